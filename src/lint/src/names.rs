//! Rules for the names of MachineSets, from which hosts get theirs.

use crate::{
    common::{VALUE, filled},
    documents::Object,
    finding::Finding,
};
use dormer_support::platform;

/// Most characters of a MachineSet's name: a Machine adds six, and a label has at most 63.
const NAME_MAX: usize = 57;

pub(crate) fn check(object: &Object<'_>, found: &mut Vec<Finding>) {
    let Some((name, place)) = filled(&object.root, &["metadata", "name"]) else {
        return;
    };
    let kind = filled(&object.root, &[&VALUE[..], &["kind"]].concat()).map(|(kind, _)| kind);
    let platform = kind.and_then(platform::of_provider);
    let most = platform.and_then(|it| it.set_name_max);
    let length = name.chars().count();
    if let Some(most) = most.filter(|most| length > *most) {
        let on = platform.map_or("", |it| it.name);
        let message = format!(
            "`{name}` has {length} characters; on {on} a Windows MachineSet may have {most}"
        );
        found.push(Finding::new("set-name-length", place, message));
    } else if length > NAME_MAX {
        let message =
            format!("`{name}` has {length} characters; its Machines' names add 6 to at most 63");
        found.push(Finding::new("set-name-length", place, message).mend("shorten the name"));
    }
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !name.chars().all(letters) || !name.starts_with(ends) || !name.ends_with(ends) {
        let message = format!("`{name}` is no name of an object");
        found.push(Finding::new("set-name", place, message));
    }
}
