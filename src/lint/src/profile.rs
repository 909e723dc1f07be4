//! Rules for profiles and their layers: what dormer itself says when it reads them.

use crate::{common::Site, documents::Object, finding::Finding};
use dormer_profile::{
    builtin,
    layers::{Layer, stack},
    problem::Problems,
    yaml_tree::{Node, Position},
};

/// Fields by which a text is known as a layer of a profile.
const FIELDS: [&str; 5] = ["payload_folder", "variables", "host", "node", "kubernetes"];
/// The built-in profiles.
const PROFILES: [&str; 2] = ["openshift", "upstream"];

pub(crate) fn check(object: &Object<'_>, _: &Site<'_>, found: &mut Vec<Finding>) {
    let root = &object.root;
    if !root
        .entries()
        .iter()
        .any(|(key, _)| FIELDS.contains(&key.name.as_str()))
    {
        if !root.entries().is_empty() {
            let message = "there is no `apiVersion` and no `kind`";
            found.push(Finding::new("no-kind", root.position, message));
        }
        return;
    }
    let layer = match Layer::parse("", object.part.text) {
        Ok(layer) => layer,
        Err(problems) => return report(object, &problems, found),
    };
    for name in PROFILES.iter().filter(|name| layer.fits(name)) {
        let Ok(below) = builtin::layer(name) else {
            continue;
        };
        if let Err(problems) = stack(&[below, layer.clone()]) {
            return report(object, &problems, found);
        }
    }
}

fn report(object: &Object<'_>, problems: &Problems, found: &mut Vec<Finding>) {
    for problem in problems.iter() {
        let path = problem.location.trim_start_matches([':', ' ']);
        let (place, message) = match line_of(path) {
            Some((line, column)) => {
                let place = Position {
                    line,
                    column,
                    start: 0,
                    len: 0,
                };
                (
                    place.after(object.part.lines, object.part.bytes),
                    problem.reason.clone(),
                )
            }
            None => (
                position(&object.root, path),
                format!("`{path}`: {}", problem.reason),
            ),
        };
        found.push(Finding::new("profile", place, message));
    }
}

/// Numbers of `line 3 column 5`.
fn line_of(text: &str) -> Option<(usize, usize)> {
    let (line, column) = text.strip_prefix("line ")?.split_once(" column ")?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

/// Position of a path such as `host.files.C:\k\x.content`: keys may have dots in them.
fn position(root: &Node, path: &str) -> Position {
    let mut node = root;
    let mut place = root.position;
    let mut rest = path;
    loop {
        let next = node.entries().iter().filter(|(key, _)| {
            let after = rest.strip_prefix(key.name.as_str());
            after.is_some_and(|after| after.is_empty() || after.starts_with(['.', '[', ':']))
        });
        let Some((key, value)) = next.max_by_key(|(key, _)| key.name.len()) else {
            return place;
        };
        rest = rest[key.name.len()..].trim_start_matches(['.', ':']);
        (place, node) = (key.position, value);
    }
}
