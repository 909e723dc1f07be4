//! Names for the completion of a shell: `dormer __complete -- WORDS…` prints what may stand in place of the last word.

use super::{
    ApiCommand, Failure,
    server::{Address, Server, segment},
    short_names::short_names,
};
use clap::{Args, Subcommand};
use dormer_views::{
    machine::{Machine, Machines},
    rollout::Pool,
    run::List,
};
use std::time::Duration;

/// Time limit: a person waits at the keyboard.
const AT_MOST: Duration = Duration::from_secs(2);

/// Arguments of `dormer __complete`.
#[derive(Debug, Args)]
pub struct Names {
    /// The command line behind `dormer`, up to the word at the cursor, which may be empty
    #[arg(last = true)]
    words: Vec<String>,
    #[command(flatten)]
    address: Address,
}

/// What a word of a command line names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    /// A machine; also a rollout, where the command takes one.
    Machine {
        or_rollout: bool,
    },
    Node,
    Pool,
    /// A version that the pool can go back to; of any pool, if none is named yet.
    Version {
        pool: Option<String>,
    },
}

impl Names {
    /// Candidates, one on a line.
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let Some((named, word)) = named(&self.words) else {
            return Ok(String::new());
        };
        let server = self.address.server();
        let asked = tokio::time::timeout(AT_MOST, candidates(&server, &named, &word));
        let found = asked.await.unwrap_or_else(|_| Ok(Vec::new()))?;
        Ok(found.join("\n"))
    }
}

/// What the last of `words` names, and what of it is typed. `None`: nothing that a running dormer knows.
fn named(words: &[String]) -> Option<(Named, String)> {
    let (word, before) = words.split_last()?;
    // bash splits `--pool=win` into three words.
    let (word, before) = match (word.as_str(), before) {
        ("=", before) => ("", before),
        (word, [before @ .., equals]) if equals == "=" => (word, before),
        (word, before) => (word, before),
    };
    let (command, arguments) = before.split_first()?;
    let whole = ApiCommand::augment_subcommands(clap::Command::new("dormer"));
    let command = whole.find_subcommand(command.as_str());
    let flag = |text: &str| {
        let short = text.strip_prefix('-').filter(|it| it.len() == 1);
        command?
            .get_arguments()
            .find(|it| match text.strip_prefix("--") {
                Some(long) => it.get_long() == Some(long),
                None => short.is_some() && short == it.get_short().map(String::from).as_deref(),
            })
    };
    let takes_value = |text: &str| flag(text).is_some_and(|it| it.get_action().takes_values());
    // Words that are neither flags nor their values.
    let mut plain: Vec<&str> = Vec::new();
    let mut of_flag = None;
    let mut pool = None;
    for argument in arguments.iter().map(String::as_str).filter(|it| *it != "=") {
        match (of_flag.take(), argument.starts_with('-')) {
            (Some("--pool"), _) => pool = Some(argument),
            (Some(_), _) => {}
            (None, true) if takes_value(argument) => of_flag = Some(argument),
            (None, true) => {}
            (None, false) => plain.push(argument),
        }
    }
    let (of_flag, word) = match word.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => (Some(flag), value),
        _ if word.starts_with('-') => return None,
        _ => (of_flag, word),
    };
    let name = before[0].as_str();
    let of_kind = |kind: &str| match kind {
        "machine" | "machines" | "m" => Some(Named::Machine { or_rollout: false }),
        "pool" | "pools" | "rollout" | "rollouts" => Some(Named::Pool),
        _ => None,
    };
    let named = match (of_flag, name) {
        (Some("--pool"), _) => Named::Pool,
        (Some("--to"), "rollback") => Named::Version {
            pool: pool.or(plain.first().copied()).map(str::to_owned),
        },
        (Some(_), _) => return None,
        (None, "verify") if plain.is_empty() => Named::Node,
        (None, "rollback") if plain.is_empty() => Named::Pool,
        (None, "get" | "describe" | "watch") => match (plain.first(), word.split_once('/')) {
            (Some(kind), _) => of_kind(kind)?,
            (None, Some((kind, _))) => of_kind(kind)?,
            // The name alone is enough there.
            (None, None) if name == "describe" => Named::Machine { or_rollout: false },
            (None, None) => return None,
        },
        (None, "history" | "reset") if plain.is_empty() => Named::Machine { or_rollout: true },
        (None, _) => {
            let first = command?.get_positionals().next()?;
            match first.get_id().as_str() {
                "machines" => {}
                "machine" if plain.is_empty() => {}
                _ => return None,
            }
            Named::Machine { or_rollout: false }
        }
    };
    Some((named, word.to_owned()))
}

/// Names that begin with `word`.
async fn candidates(server: &Server, named: &Named, word: &str) -> Result<Vec<String>, Failure> {
    // KIND/NAME, as `-o name` prints it.
    let (kind, typed) = match word.split_once('/') {
        Some((kind, name)) if !matches!(named, Named::Version { .. }) => (format!("{kind}/"), name),
        _ => (String::new(), word),
    };
    let found = match named {
        Named::Machine { .. } if kind.starts_with("rollout") => pools(server).await?,
        // `verify` takes kinds, but completes names of Nodes.
        Named::Node if !kind.is_empty() => Vec::new(),
        Named::Machine { or_rollout } => {
            let machines = server.get::<Machines>("/machines").await?.items;
            let mut found = names_of(&machines, typed);
            if *or_rollout && kind.is_empty() {
                let pools = pools(server).await?;
                found.extend(pools.iter().map(|pool| format!("rollout/{pool}")));
            }
            found
        }
        Named::Node => {
            let machines = server.get::<Machines>("/machines").await?.items;
            machines.into_iter().filter_map(|it| it.node).collect()
        }
        Named::Pool => pools(server).await?,
        Named::Version { pool } => {
            let pools = match pool {
                Some(pool) => vec![server.get(&format!("/pools/{}", segment(pool))).await?],
                None => server.get::<List<Pool>>("/pools").await?.items,
            };
            pools
                .into_iter()
                .flat_map(|pool| pool.rollback_to)
                .collect()
        }
    };
    let fitting = found.into_iter().filter(|it| it.starts_with(typed));
    Ok(fitting.map(|it| format!("{kind}{it}")).collect())
}

/// Names of the machines; the ends of them, as commands take them, where no whole name begins with `typed`.
fn names_of(machines: &[Machine], typed: &str) -> Vec<String> {
    let names: Vec<&str> = machines.iter().map(|it| it.name.as_str()).collect();
    if names.iter().any(|name| name.starts_with(typed)) {
        return names.into_iter().map(str::to_owned).collect();
    }
    short_names(&names)
}

async fn pools(server: &Server) -> Result<Vec<String>, Failure> {
    let listed = server.get::<List<Pool>>("/pools").await?;
    Ok(listed.items.into_iter().map(|it| it.pool).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::machine_with;
    use serde_json::json;

    #[test]
    fn a_word_is_completed_by_what_its_command_takes_there() {
        let machine = || Some(Named::Machine { or_rollout: false });
        let version = |pool: Option<&str>| {
            let pool = pool.map(str::to_owned);
            Some(Named::Version { pool })
        };
        for (line, wanted) in [
            ("why |", machine()),
            ("why 59|", machine()),
            ("logs --follow |", machine()),
            ("logs --task 3.0 |", machine()),
            ("logs --task |", None),
            ("retry -y a |", machine()),
            ("retry --why |", None),
            ("why a |", None),
            ("trust-host-key |", machine()),
            ("pause |", machine()),
            ("pause --pool |", Some(Named::Pool)),
            ("pause --pool = win|", Some(Named::Pool)),
            ("pause --pool =|", Some(Named::Pool)),
            ("pause --pool=win|", Some(Named::Pool)),
            ("rollback |", Some(Named::Pool)),
            ("rollback windows --to |", version(Some("windows"))),
            ("rollback --pool windows --to |", version(Some("windows"))),
            ("rollback --pool |", Some(Named::Pool)),
            ("rollback --to 1|", version(None)),
            ("history |", Some(Named::Machine { or_rollout: true })),
            ("reset --to |", None),
            ("describe machine |", machine()),
            ("describe |", machine()),
            ("describe rollout |", Some(Named::Pool)),
            ("get pools |", Some(Named::Pool)),
            ("get machine/|", machine()),
            ("get |", None),
            ("get tasks |", None),
            ("wait --for state=Joined |", machine()),
            ("verify |", Some(Named::Node)),
            ("status --pool |", Some(Named::Pool)),
            ("status |", None),
            ("lint |", None),
            ("why --|", None),
            ("|", None),
        ] {
            let words: Vec<String> = line
                .trim_end_matches('|')
                .split(' ')
                .map(str::to_owned)
                .collect();
            assert_eq!(named(&words).map(|(named, _)| named), wanted, "{line}");
        }
    }

    #[test]
    fn the_end_of_a_name_is_completed_where_no_whole_name_fits() {
        let machines =
            ["c-win-a-59xk2", "c-win-a-zzzzz"].map(|it| machine_with(json!({"name": it})));
        assert_eq!(names_of(&machines, "59"), ["59xk2", "zzzzz"]);
        assert_eq!(
            names_of(&machines, "c-"),
            ["c-win-a-59xk2", "c-win-a-zzzzz"]
        );
        assert_eq!(names_of(&machines, ""), ["c-win-a-59xk2", "c-win-a-zzzzz"]);
    }
}
