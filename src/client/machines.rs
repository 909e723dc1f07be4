//! Machines by what people call them: a name, NAMESPACE/NAME, a UID, the end of a name that only one machine has, or the
//! name or address of a Node.

use super::{
    Failure, absent,
    answer::Answer,
    items::Kind,
    server::{Server, segment},
    short_names::{SHORT_MIN, is_short_for, short_names},
};
use dormer_views::{machine::Machine, run::List};

/// Machine that is called so, as the server answers it.
///
/// # Errors
/// There is none, several have that end of a name, or the server does not answer.
pub(super) async fn answer(server: &Server, called: &str) -> Result<Answer<Machine>, Failure> {
    let unknown = match server.get(&Kind::Machines.one(called)).await {
        Err(unknown @ Failure::Absent { .. }) => unknown,
        answered => return answered,
    };
    // As `-o name` prints it, and kubectl takes it. A namespace of that name came first.
    if let Some(name) = without_kind(called) {
        return Box::pin(answer(server, name)).await;
    }
    // Who may read one machine may not be allowed to list them.
    let Ok(List { items }) = server.get::<List<Answer<Machine>>>("/machines").await else {
        return Err(unknown);
    };
    let names: Vec<&str> = items.iter().map(|it| it.view.name.as_str()).collect();
    let unknown = absent::machine(called, &names, short_names(&names));
    let views: Vec<&Machine> = items.iter().map(|it| &it.view).collect();
    let found = match find_by_other_name(&views, called) {
        Called::One(at) => Some(at),
        Called::Several(why) => return Err(Failure::Usage(why)),
        Called::None => None,
    };
    match found.and_then(|at| items.into_iter().nth(at)) {
        Some(found) => Ok(found),
        None => gone(server, called).await.ok_or(unknown),
    }
}

/// Machines that are called by something else than their names.
#[derive(Debug, PartialEq, Eq)]
enum Called {
    One(usize),
    /// Several are called so: why, with their names.
    Several(String),
    None,
}

/// Place among `all` of the machine with that end of a name, else with that Node or address.
fn find_by_other_name(all: &[&Machine], called: &str) -> Called {
    let short = |it: &&Machine| called.len() >= SHORT_MIN && is_short_for(called, &it.name);
    let node = called
        .split_once('/')
        .filter(|(kind, _)| ["node", "nodes"].contains(kind))
        .map_or(called, |(_, name)| name);
    let those = |fits: &dyn Fn(&&Machine) -> bool| -> Vec<(usize, &str)> {
        let found = all.iter().enumerate().filter(|(_, it)| fits(it));
        found.map(|(at, it)| (at, it.name.as_str())).collect()
    };
    let ways = [
        ("have names that end in", those(&short)),
        (
            "have the Node or address",
            those(&|it| is_host_of(it, node)),
        ),
    ];
    for (have, found) in ways {
        match found.as_slice() {
            [] => {}
            [(at, _)] => return Called::One(*at),
            several => {
                let names: Vec<String> = several.iter().map(|(_, it)| (*it).to_owned()).collect();
                let count = names.len();
                let names = absent::listed(&names);
                return Called::Several(format!(
                    "{count} machines {have} {called}: {names}\ngive the whole name of one"
                ));
            }
        }
    }
    Called::None
}

/// Whether the machine's Node has this name, with its domain or without, or its host this address.
fn is_host_of(machine: &Machine, called: &str) -> bool {
    let same = |name: &String| {
        let host = name.split_once('.').map_or(name.as_str(), |(host, _)| host);
        name.eq_ignore_ascii_case(called) || host.eq_ignore_ascii_case(called)
    };
    let nodes = [&machine.node, &machine.expected_node];
    let address = machine.address.as_ref();
    nodes.into_iter().flatten().any(same)
        || address.is_some_and(|address| address.eq_ignore_ascii_case(called))
}

/// The machine with that end of a name that went last. Its history still explains it.
async fn gone(server: &Server, called: &str) -> Option<Answer<Machine>> {
    let all = server.get::<List<Answer<Machine>>>("/machines?all=true");
    let mut items = all.await.ok()?.items;
    let views: Vec<&Machine> = items.iter().map(|it| &it.view).collect();
    last_gone(&views, called).map(|at| items.swap_remove(at))
}

/// Place of that machine among `all`.
fn last_gone(all: &[&Machine], called: &str) -> Option<usize> {
    let fits = |it: &Machine| called.len() >= SHORT_MIN && is_short_for(called, &it.name);
    let gone = all.iter().enumerate().filter(|(_, it)| fits(it));
    let gone = gone.filter_map(|(at, it)| Some((it.status.closed?.0, at)));
    gone.max().map(|(_, at)| at)
}

/// View of [`answer`].
///
/// # Errors
/// As there.
pub(super) async fn machine(server: &Server, called: &str) -> Result<Machine, Failure> {
    answer(server, called).await.map(|answer| answer.view)
}

/// UID of the machine that is called so.
///
/// # Errors
/// As `answer`.
pub async fn uid_of_machine(server: &Server, called: &str) -> Result<String, Failure> {
    machine(server, called).await.map(|it| it.uid)
}

/// Path of the machine under the API.
pub(super) fn path_of(machine: &Machine) -> String {
    format!("/machines/{}", segment(&machine.uid))
}

/// The name in KIND/NAME.
fn without_kind(called: &str) -> Option<&str> {
    let (kind, name) = called.split_once('/')?;
    let kind = <Kind as clap::ValueEnum>::from_str(kind, true).ok()?;
    (kind == Kind::Machines && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::machine_with;
    use serde_json::json;

    #[test]
    fn the_end_of_a_name_finds_the_machine_that_went_last() {
        let machine = |name: &str, closed: Option<&str>| {
            machine_with(json!({"name": name, "state": "Gone", "closed": closed}))
        };
        let all = [
            machine("c-win-a-8g4fg", Some("2026-11-21T07:00:00.000Z")),
            machine("c-win-b-8g4fg", Some("2026-11-21T08:00:00.000Z")),
            machine("c-win-c-9h5gh", None),
        ];
        let all: Vec<&Machine> = all.iter().collect();
        assert_eq!(last_gone(&all, "8g4fg"), Some(1));
        assert_eq!(last_gone(&all, "9h5gh"), None, "it is there");
        assert_eq!(last_gone(&all, "4fg"), None, "too short");
    }

    #[test]
    fn a_machine_is_found_by_its_node_and_by_its_address_if_it_is_the_only_one() {
        let machine = |name: &str, node: &str, address: &str| {
            machine_with(json!({"name": name, "node": node, "address": address}))
        };
        let all = [
            machine("c-win-a-8g4fg", "ip-10-0-0-7.ec2.internal", "10.0.0.7"),
            machine("c-win-a-9h5gh", "ip-10-0-0-9.ec2.internal", "10.0.0.9"),
            machine("c-win-b-8g4fg", "WIN-9", "10.0.0.9"),
        ];
        let all: Vec<&Machine> = all.iter().collect();
        for (called, at) in [
            ("ip-10-0-0-7.ec2.internal", 0),
            ("node/ip-10-0-0-7.ec2.internal", 0),
            ("ip-10-0-0-7", 0),
            ("10.0.0.7", 0),
            ("win-9", 2),
            ("9h5gh", 1),
        ] {
            assert_eq!(
                find_by_other_name(&all, called),
                Called::One(at),
                "{called}"
            );
        }
        for called in ["8g4fg", "10.0.0.9"] {
            let Called::Several(why) = find_by_other_name(&all, called) else {
                panic!("two are called {called}");
            };
            assert!(why.contains("c-win-b-8g4fg"), "{why}");
        }
        for called in ["10.0.0.8", "10.0.0", "ip-10-0-0-8", "", "4fg"] {
            assert_eq!(find_by_other_name(&all, called), Called::None, "{called}");
        }
    }

    #[test]
    fn a_name_may_come_with_its_kind() {
        for called in ["machine/win-1", "machines/win-1", "Machine/win-1"] {
            assert_eq!(without_kind(called), Some("win-1"), "{called}");
        }
        for called in [
            "win-1",
            "pool/win-1",
            "openshift-machine-api/win-1",
            "machine/",
        ] {
            assert_eq!(without_kind(called), None, "{called}");
        }
    }
}
