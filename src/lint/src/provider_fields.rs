//! Fields of a `providerSpec` that the Machine API ignores.

use crate::{common::close, finding::Finding, paste};
use dormer_profile::{
    provider_fields::{Field, of},
    suggestion::near,
    yaml_tree::Node,
};

/// Fields of a providerSpec of `kind` that the Machine API ignores.
pub(crate) fn check(value: &Node, platform: &str, kind: &str, found: &mut Vec<Finding>) {
    walk(value, of(platform), "", kind, found);
}

fn walk(node: &Node, known: &'static [Field], path: &str, whole: &str, found: &mut Vec<Finding>) {
    if known.is_empty() {
        return;
    }
    for element in node.elements() {
        walk(element, known, path, whole, found);
    }
    for (key, value) in node.entries() {
        let name = key.name.as_str();
        let field = Field::find(known, name);
        let inner = format!("{path}{name}.");
        match field {
            Some(field) => walk(value, field.below, &inner, whole, found),
            None if paste::has_placeholder(name) => {}
            None => {
                let of = match path.strip_suffix('.') {
                    Some(path) => format!("`{path}`"),
                    None => format!("`{whole}`"),
                };
                let message = format!("`{name}` is no field of {of}");
                let finding = Finding::new("provider-field", key.position, message);
                found.push(
                    match (
                        near(name, known.iter().map(|it| it.name)),
                        home(known, name),
                    ) {
                        (_, Some(home)) => {
                            finding.mend(format!("write it as `{path}{home}.{name}`"))
                        }
                        (Some(near), None) => {
                            let finding = finding.mend(format!("did you mean `{near}`?"));
                            match close(near, name) && node.get(near).is_none() {
                                true => finding.replace(key.position, near),
                                false => finding,
                            }
                        }
                        (None, None) => finding,
                    },
                );
            }
        }
    }
}

/// Field of `known` below which a field of this name belongs, if there is only one.
fn home(known: &[Field], name: &str) -> Option<&'static str> {
    let mut homes = known
        .iter()
        .filter(|it| it.below.iter().any(|below| below.name == name));
    match (homes.next(), homes.next()) {
        (Some(only), None) => Some(only.name),
        _ => None,
    }
}
