//! Ends of machines' names that only one machine has: people type and read them instead of the whole names.

/// Fewest characters of a short name.
pub(super) const SHORT_MIN: usize = 4;

/// The only one of `names` that ends in `called` after a dash.
pub fn one_that_ends_in<'a>(called: &str, names: &[&'a str]) -> Option<&'a str> {
    let short = |name: &&&str| called.len() >= SHORT_MIN && is_short_for(called, name);
    let mut found = names.iter().filter(short);
    match (found.next(), found.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// Whether `short` is the end of `name` after a dash.
pub(super) fn is_short_for(short: &str, name: &str) -> bool {
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
        assert_eq!(one_that_ends_in("zzzzz", &names), Some("c-windows-a-zzzzz"));
        assert_eq!(one_that_ends_in("9nhgg", &names), None, "two end so");
        assert_eq!(one_that_ends_in("1", &names), None, "too short");
        assert!(is_short_for("9nhgg", "a-9nhgg") && !is_short_for("hgg", "a-9nhgg"));
    }
}
