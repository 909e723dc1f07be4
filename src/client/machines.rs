//! Machines by what people call them: a name, NAMESPACE/NAME, a UID, or the end of a name that only one machine has.

use super::{
    Failure,
    answer::Answer,
    items::Kind,
    server::{Server, segment},
};
use dormer_views::{machine::Machine, run::List};

/// Fewest characters of a short name.
const SHORT_MIN: usize = 4;

/// Machine that is called so, as the server answers it.
///
/// # Errors
/// There is none, several have that end of a name, or the server does not answer.
pub(super) async fn answer(server: &Server, called: &str) -> Result<Answer<Machine>, Failure> {
    let absent = match server.get(&Kind::Machines.one(called)).await {
        Err(absent @ Failure::Absent { .. }) => absent,
        answered => return answered,
    };
    if called.len() < SHORT_MIN {
        return Err(absent);
    }
    // Who may read one machine may not be allowed to list them.
    let Ok(List { items }) = server.get::<List<Answer<Machine>>>("/machines").await else {
        return Err(absent);
    };
    let mut items: Vec<Answer<Machine>> = items
        .into_iter()
        .filter(|it| is_short_for(called, &it.view.name))
        .collect();
    match items.len() {
        0 => Err(absent),
        1 => items.pop().ok_or(absent),
        many => Err(Failure::Usage(format!(
            "{many} machines have names that end in {called}: give the whole name"
        ))),
    }
}

/// View of [`answer`].
///
/// # Errors
/// As there.
pub(super) async fn machine(server: &Server, called: &str) -> Result<Machine, Failure> {
    answer(server, called).await.map(|answer| answer.view)
}

/// Path of the machine under the API.
pub(super) fn path_of(machine: &Machine) -> String {
    format!("/machines/{}", segment(&machine.uid))
}

/// Whether `short` is the end of `name` after a dash.
fn is_short_for(short: &str, name: &str) -> bool {
    name.strip_suffix(short)
        .is_some_and(|before| before.ends_with('-'))
}

/// Shortest unique ends of the names, in their order; the whole name where none is unique.
pub(super) fn short_names(names: &[&str]) -> Vec<String> {
    let unique = |short: &str| {
        names
            .iter()
            .filter(|name| **name == short || is_short_for(short, name))
            .count()
            == 1
    };
    let short = |name: &str| {
        let ends = name.rmatch_indices('-').map(|(at, _)| &name[at + 1..]);
        let mut long_enough = ends.filter(|end| end.len() >= SHORT_MIN);
        let found = long_enough.find(|end| unique(end));
        found.unwrap_or(name).to_owned()
    };
    names.iter().map(|name| short(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_is_the_shortest_end_that_is_unique() {
        let names = [
            "c-windows-a-9nhgg",
            "c-windows-b-9nhgg",
            "c-windows-a-zzzzz",
            "win-1",
        ];
        assert_eq!(
            short_names(&names),
            ["a-9nhgg", "b-9nhgg", "zzzzz", "win-1"]
        );
        assert!(is_short_for("9nhgg", "a-9nhgg") && !is_short_for("hgg", "a-9nhgg"));
    }
}
