//! Answer to a name that nothing has: the near name, and which there are.

use super::{
    Failure,
    items::{Kind, ListItem, Progress},
    server::Server,
    short_names::SHORT_MIN,
};
use dormer_profile::suggestion::question;
use dormer_proto::message;
use dormer_views::{
    machine::Machine,
    rollout::Pool,
    run::{List, QuarantinedRun, Run, Task},
};

/// Most names in an answer. The rest is a count.
const NAMES_MAX: usize = 8;

/// `answered`, with a better message for a 404 of dormer's own: the kind of object, the most similar name, and the
/// existing names. A caller who may not list them gets the server's own words.
///
/// # Errors
///
/// As `answered`.
pub(super) async fn explained<T>(
    server: &Server,
    kind: Kind,
    called: &str,
    answered: Result<T, Failure>,
) -> Result<T, Failure> {
    match answered {
        Err(absent @ Failure::Absent { .. }) => match names(server, kind).await {
            Some(names) => Err(failure(kind, called, &names)),
            None => Err(absent),
        },
        answered => answered,
    }
}

/// Names of all objects of a kind. `None`: they cannot be listed.
async fn names(server: &Server, kind: Kind) -> Option<Vec<String>> {
    match kind {
        Kind::Machines => names_of::<Machine>(server, kind).await,
        Kind::Runs => names_of::<Run>(server, kind).await,
        Kind::Rollouts => names_of::<Progress>(server, kind).await,
        Kind::Tasks => names_of::<Task>(server, kind).await,
        Kind::Pools => names_of::<Pool>(server, kind).await,
        Kind::Quarantine => names_of::<QuarantinedRun>(server, kind).await,
    }
}

async fn names_of<T: ListItem>(server: &Server, kind: Kind) -> Option<Vec<String>> {
    let List { items } = server.get::<List<T>>(kind.path()).await.ok()?;
    Some(items.iter().map(ListItem::name).collect())
}

/// Failure for an object that does not exist beside those called `names`.
pub(super) fn failure(kind: Kind, called: &str, names: &[String]) -> Failure {
    let singular = kind.singular();
    let near = question(called, names.iter().map(String::as_str));
    let plural = kind.path().trim_start_matches('/');
    Failure::Absent {
        error: format!("there is no {singular} {called:?}{near}"),
        what_to_do: match names {
            [] => format!("there are no {plural} yet"),
            names => format!(
                "there are: {}; dormer get {plural} lists them",
                listed(names)
            ),
        },
    }
}

/// The first names, and the count of the others.
pub(super) fn listed(names: &[String]) -> String {
    message::listed(names, NAMES_MAX)
}

/// Failure for a run that is not among the quarantined ones, which are called `names`.
pub(super) fn unquarantined(called: &str, names: &[String]) -> Failure {
    let near = question(called, names.iter().map(String::as_str));
    Failure::Absent {
        error: format!("{called} is not quarantined{near}"),
        what_to_do: match names {
            [] => "no run is quarantined".to_owned(),
            names => format!("quarantined are: {}", listed(names)),
        },
    }
}

/// Failure for machines that are called otherwise: by their names, or by the ends of them.
pub(super) fn machine(called: &str, names: &[&str], mut ends: Vec<String>) -> Failure {
    ends.sort_unstable();
    let all = ends.iter().map(String::as_str).chain(names.iter().copied());
    Failure::Absent {
        error: format!("there is no machine {called:?}{}", question(called, all)),
        what_to_do: match ends.as_slice() {
            [] => "there are no machines yet".into(),
            ends => {
                // A person who types a part of a name expects that to do.
                let part = names.iter().any(|name| name.contains(called));
                let rule = if part {
                    format!("of a name only its end is enough, from {SHORT_MIN} characters on; ")
                } else {
                    String::new()
                };
                format!(
                    "{rule}there are: {}; dormer get machines --all lists them, and those that are gone",
                    listed(ends)
                )
            }
        },
    }
}

/// Refuses an unknown `--pool`: an empty list would hide the mistake. If the caller may not list pools, the pool is not
/// checked.
///
/// # Errors
///
/// [`Failure::Absent`] with the most similar name, and the existing names.
pub(super) async fn check_pool(server: &Server, pool: &str) -> Result<(), Failure> {
    let Ok(List { items }) = server.get::<List<Pool>>("/pools").await else {
        return Ok(());
    };
    let pools: Vec<String> = items.into_iter().map(|it| it.pool).collect();
    unknown_pool(pool, &pools).map_or(Ok(()), Err)
}

/// `answered` about the pool of a flag: a 404 names the flag, as in every command with `--pool`.
///
/// # Errors
/// As `answered`; [`Failure::Absent`] if there is no such pool.
pub(super) async fn in_pool<T>(
    server: &Server,
    pool: &str,
    answered: Result<T, Failure>,
) -> Result<T, Failure> {
    if matches!(answered, Err(Failure::Absent { .. })) {
        check_pool(server, pool).await?;
    }
    answered
}

/// Refusal of a `--pool` that is none of `pools`.
pub(super) fn unknown_pool(pool: &str, pools: &[String]) -> Option<Failure> {
    if pools.iter().any(|it| it == pool) {
        return None;
    }
    let near = question(pool, pools.iter().map(String::as_str));
    let known = match pools {
        [] => "there are no pools yet".to_owned(),
        pools => format!("the pools are: {}", listed(pools)),
    };
    Some(Failure::Absent {
        error: format!("--pool {pool}: there is no such pool{near}"),
        what_to_do: known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_is_named_with_the_near_name_and_those_that_there_are() {
        let names = |count: usize| -> Vec<String> {
            let numbers = 0..count;
            numbers.map(|number| format!("windows-{number}")).collect()
        };
        let said = |kind, called: &str, count| failure(kind, called, &names(count)).to_string();
        assert_eq!(
            said(Kind::Pools, "windwos-0", 2),
            "there is no pool \"windwos-0\"; did you mean windows-0?\n\
             there are: windows-0, windows-1; dormer get pools lists them"
        );
        assert_eq!(
            said(Kind::Runs, "nope", 0),
            "there is no run \"nope\"\nthere are no runs yet"
        );
        assert!(said(Kind::Machines, "x", 10).contains("windows-7 and 2 more;"));
        let ends = vec!["zzzzz".to_owned(), "2k4kt".to_owned()];
        assert_eq!(
            machine("2k4kx", &["c-windows-a-zzzzz", "c-windows-a-2k4kt"], ends).to_string(),
            "there is no machine \"2k4kx\"; did you mean 2k4kt?\n\
             there are: 2k4kt, zzzzz; dormer get machines --all lists them, and those that are gone"
        );
        let ends = vec!["2k4kt".to_owned()];
        let begin = machine("c-win", &["c-windows-a-2k4kt"], ends).to_string();
        assert!(
            begin.contains(
                "\nof a name only its end is enough, from 4 characters on; there are: 2k4kt"
            ),
            "{begin}"
        );
        let refused = unknown_pool("widows", &["windows".into()]).expect("unknown");
        assert_eq!(
            refused.to_string(),
            "--pool widows: there is no such pool; did you mean windows?\nthe pools are: windows"
        );
        let not_found = std::process::ExitCode::from(3);
        assert_eq!(
            refused.exit_code(),
            not_found,
            "as a pool that is an argument"
        );
        assert_eq!(unknown_pool("windows", &["windows".into()]), None);
    }
}
