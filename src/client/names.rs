//! Names for the completion of a shell: `dormer __complete -- WORDS…` prints what may stand in place of the last word.

use super::{
    ApiCommand, Failure,
    action_commands::run_path,
    filter,
    items::{self, Kind},
    machines,
    server::{Server, ServerAddress, segment},
    short_names::short_names,
};
use clap::{Args, FromArgMatches, Subcommand};
use dormer_proto::phase::{Listed, MachinePhase};
use dormer_views::{
    machine::{Machine, Machines},
    rollout::Pool,
    run::List,
    timeline::{Episode, Timeline},
};
use std::{collections::BTreeSet, time::Duration};

/// Time limit: a person waits at the keyboard.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Arguments of `dormer __complete`.
#[derive(Debug, Args)]
pub struct Names {
    /// The command line behind `dormer`, up to the word at the cursor, which may be empty
    #[arg(last = true)]
    words: Vec<String>,
    #[command(flatten)]
    address: ServerAddress,
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
    /// A task of this machine.
    Task {
        machine: String,
    },
    /// One of these words.
    Word(Vec<String>),
}

impl Names {
    /// Candidates, one on a line.
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let (flags, words) = connection(&self.words);
        let Some((named, word)) = named(&words) else {
            return Ok(String::new());
        };
        let server = address(flags).unwrap_or(self.address).server();
        let asked = tokio::time::timeout(TIME_LIMIT, candidates(&server, &named, &word));
        let found = asked.await.unwrap_or_else(|_| Ok(Vec::new()))?;
        Ok(found.join("\n"))
    }
}

/// The connection flags before the last of the `words`, and the other words. bash breaks words at `=` and `:`.
fn connection(words: &[String]) -> (Vec<String>, Vec<String>) {
    let known = ServerAddress::augment_args(clap::Command::new("dormer"));
    let is_known = |word: &str| {
        known
            .get_arguments()
            .any(|it| match word.strip_prefix("--") {
                Some(long) => it.get_long() == Some(long),
                None => it.get_short().is_some_and(|it| word == format!("-{it}")),
            })
    };
    let mut flags = Vec::new();
    let mut others = Vec::new();
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (word, None),
        };
        let at_cursor = words.peek().is_none();
        if at_cursor || !is_known(flag) {
            others.push(word.to_owned());
            continue;
        }
        let next = value.or_else(|| words.find(|it| *it != "=").map(str::to_owned));
        let mut value = next.unwrap_or_default();
        while words.next_if_eq(&":").is_some() {
            value.push(':');
            value.push_str(words.next().unwrap_or_default());
        }
        if words.peek().is_none() {
            // The cursor is at its value.
            others.extend([flag.to_owned(), value]);
            break;
        }
        flags.extend([flag.to_owned(), value]);
    }
    (flags, others)
}

/// Address that these flags name. `None`: they name none, or are not complete.
fn address(flags: Vec<String>) -> Option<ServerAddress> {
    if flags.is_empty() {
        return None;
    }
    let line = std::iter::once("dormer".to_owned()).chain(flags);
    let whole = ServerAddress::augment_args(clap::Command::new("dormer"));
    let matches = whole.try_get_matches_from(line).ok()?;
    ServerAddress::from_arg_matches(&matches).ok()
}

/// Values of a field of machines that are known without a server.
fn values(key: &str) -> Vec<&'static str> {
    match key {
        "state" => items::machine_states(),
        "phase" => MachinePhase::ALL.iter().map(|it| it.id()).collect(),
        _ => Vec::new(),
    }
}

/// `KEY=VALUE` of the fields with known values; the values alone, where bash has broken the word at `=`.
fn terms(key: Option<&str>) -> Vec<String> {
    match key {
        Some(key) => values(key).into_iter().map(str::to_owned).collect(),
        None => {
            let terms = ["state", "phase"].into_iter();
            let of_key = |key| values(key).into_iter().map(move |it| format!("{key}={it}"));
            terms.flat_map(of_key).collect()
        }
    }
}

/// What the last of `words` names, and what of it is typed. `None`: nothing that a running dormer knows.
fn named(words: &[String]) -> Option<(Named, String)> {
    let (word, before) = words.split_last()?;
    // bash splits `--pool=win` into three words.
    let (word, before, broken) = match (word.as_str(), before) {
        ("=", before) => ("", before, true),
        (word, [before @ .., equals]) if equals == "=" => (word, before, true),
        (word, before) => (word, before, false),
    };
    // `-l state=Jo`: three words, too.
    let (key, before) = match before {
        [before @ .., flag, key] if broken && !key.starts_with('-') && takes_terms(flag) => {
            let before: Vec<String> = before.iter().chain([flag]).cloned().collect();
            (Some(key.as_str()), before)
        }
        _ => (None, before.to_vec()),
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
        (Some("--state"), _) => {
            Named::Word(filter::names().into_iter().map(str::to_owned).collect())
        }
        (Some("--for"), "wait") if key.is_none() => {
            let gone = ["gone", "delete"].map(str::to_owned);
            Named::Word([terms(None), gone.to_vec()].concat())
        }
        (Some("--sort-by"), _) => {
            let kind = plain.first().copied().unwrap_or_default();
            Named::Word(sorted_by(kind).iter().map(|&it| it.to_owned()).collect())
        }
        (Some(flag), _) if takes_terms(flag) => Named::Word(terms(key)),
        (Some("--task"), "logs") => Named::Task {
            machine: (*plain.first()?).to_owned(),
        },
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
        (None, "history" | "reset" | "why") if plain.is_empty() => {
            Named::Machine { or_rollout: true }
        }
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

/// Fields by which people sort objects of this kind; KIND/NAME has one, too.
fn sorted_by(target: &str) -> &'static [&'static str] {
    let kind = target.split_once('/').map_or(target, |(kind, _)| kind);
    let Ok(kind) = <Kind as clap::ValueEnum>::from_str(kind, true) else {
        return &[];
    };
    match kind {
        Kind::Machines => &[
            "name",
            "state",
            "phase",
            "since",
            "created",
            "version",
            "desiredVersion",
            "node",
            "address",
            "pool",
            "zone",
            "kind",
            "namespace",
            "failure.code",
        ],
        Kind::Rollouts => &[
            "pool",
            "state",
            "members",
            "joined",
            "failed",
            "unavailable",
            "since",
        ],
        Kind::Pools => &["pool", "payload", "members"],
        Kind::Runs => &["run", "name", "workflow", "state", "began", "since"],
        Kind::Tasks => &["machine", "name", "attempt", "since", "until"],
        Kind::Quarantine => &["run", "name", "code", "since"],
    }
}

/// Whether a flag takes `KEY=VALUE`.
fn takes_terms(flag: &str) -> bool {
    ["--for", "-l", "--selector"].contains(&flag)
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
        Named::Word(words) => words.clone(),
        Named::Task { machine } => tasks(server, machine).await?,
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

/// Names of the tasks that the machine has had.
async fn tasks(server: &Server, machine: &str) -> Result<Vec<String>, Failure> {
    let run = machines::machine(server, machine).await?.status.run;
    let timeline: Timeline = server.get(&format!("{}/timeline", run_path(&run))).await?;
    let tasks = timeline.episodes.iter().flat_map(Episode::tasks);
    let names: BTreeSet<String> = tasks.map(|it| it.name.clone()).collect();
    Ok(names.into_iter().collect())
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
            ("why 59|", Some(Named::Machine { or_rollout: true })),
            ("logs --follow |", machine()),
            ("logs --task 3.0 |", machine()),
            ("logs --task |", None),
            (
                "logs a --task |",
                Some(Named::Task {
                    machine: "a".into(),
                }),
            ),
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
            ("why |", Some(Named::Machine { or_rollout: true })),
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
            assert_eq!(
                named(&words(line)).map(|(named, _)| named),
                wanted,
                "{line}"
            );
        }
    }

    /// The words of a line up to the cursor.
    fn words(line: &str) -> Vec<String> {
        let line = line.trim_end_matches('|').split(' ');
        line.map(str::to_owned).collect()
    }

    #[test]
    fn connection_flags_stand_anywhere_and_say_which_server_is_asked() {
        let url = "http://127.0.0.1:7081";
        for line in [
            "--server http : //127.0.0.1 : 7081 why w|",
            "--server http://127.0.0.1:7081 why w|",
            "--server = http : //127.0.0.1 : 7081 why w|",
            "why --server=http://127.0.0.1:7081 w|",
            "why --server http : //127.0.0.1 : 7081 w|",
        ] {
            let (flags, others) = connection(&words(line));
            assert_eq!(flags, ["--server", url], "{line}");
            assert_eq!(others, ["why", "w"], "{line}");
            assert!(address(flags).is_some(), "{line}");
        }
        let (flags, others) = connection(&words("why --server htt|"));
        assert!(flags.is_empty() && named(&others).is_none(), "{others:?}");
        assert!(address(Vec::new()).is_none());
    }

    /// Fields of a view, as the API answers it.
    fn fields<T: schemars::JsonSchema>() -> Vec<String> {
        let schema = schemars::schema_for!(T);
        let fields = schema.get("properties").and_then(|it| it.as_object());
        fields.expect("an object").keys().cloned().collect()
    }

    #[test]
    fn each_field_to_sort_by_is_one_of_its_kind() {
        use dormer_views::{
            rollout::Rollout,
            run::{QuarantinedRun, Run, Task},
        };
        for (kinds, fields) in [
            (
                &["m", "machine", "windowsmachines", "machine/win-1"][..],
                fields::<Machine>(),
            ),
            (&["rollout", "rollouts"], fields::<Rollout>()),
            (&["pools", "windowspool"], fields::<Pool>()),
            (&["run", "runs"], fields::<Run>()),
            (&["tasks"], fields::<Task>()),
            (&["quarantined"], fields::<QuarantinedRun>()),
        ] {
            for kind in kinds {
                let all = sorted_by(kind);
                assert!(!all.is_empty(), "{kind}");
                for field in all {
                    let first = field.split('.').next().unwrap_or_default();
                    assert!(fields.iter().any(|it| it == first), "{kind}: {field}");
                }
            }
        }
        assert!(sorted_by("").is_empty());
    }

    #[test]
    fn known_values_are_offered_without_a_server() {
        let offered = |line: &str| match named(&words(line)) {
            Some((Named::Word(words), _)) => words,
            other => panic!("{line}: {other:?}"),
        };
        let states = offered("get machines --state = st|");
        assert!(states.contains(&"stuck".to_owned()), "{states:?}");
        let terms = offered("get machines -l |");
        assert!(terms.contains(&"state=Joined".to_owned()), "{terms:?}");
        assert!(terms.contains(&"phase=evicting".to_owned()), "{terms:?}");
        let broken = offered("get machines -l state = Jo|");
        assert!(broken.contains(&"Joined".to_owned()), "{broken:?}");
        let until = offered("wait m --for |");
        assert!(until.contains(&"gone".to_owned()), "{until:?}");
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
