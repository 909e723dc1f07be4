//! Unfilled placeholders of a guide.

use crate::{
    common::Site,
    documents::Object,
    finding::Finding,
    paste::{FREE, placeholder},
};
use dormer_profile::yaml_tree::{Node, Value};

/// Unfilled placeholders.
pub(crate) fn placeholders(object: &Object<'_>, _: &Site<'_>, found: &mut Vec<Finding>) {
    search(&object.root, found);
}

fn search(node: &Node, found: &mut Vec<Finding>) {
    match &node.value {
        Value::Text(text) => {
            if let Some(name) = placeholder(text) {
                let message = format!("`{name}` is an unfilled placeholder");
                found.push(Finding::new("placeholder", node.position, message));
            }
        }
        Value::List(all) => all.iter().for_each(|it| search(it, found)),
        Value::Map(all) => {
            for (key, value) in all
                .iter()
                .filter(|(key, _)| !FREE.contains(&key.name.as_str()))
            {
                if let Some(name) = placeholder(&key.name) {
                    let message = format!("`{name}` is an unfilled placeholder");
                    found.push(Finding::new("placeholder", key.position, message));
                }
                search(value, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
