//! Documents of a text, and the objects in them.

use crate::{finding::Finding, paste};
use dormer_profile::yaml_tree::{Key, Node, Position, Value, parse};

/// Part of a text between two document marks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    /// Its text.
    pub(crate) text: &'a str,
    /// Lines before it.
    pub(crate) lines: usize,
    /// Bytes before it.
    pub(crate) bytes: usize,
}

/// Splits a text at its document marks (`---`, `...`). No content can begin a line with one.
pub(crate) fn split(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut lines = 0;
    let mut bytes = 0;
    let mut begun = Part {
        text: "",
        lines: 0,
        bytes: 0,
    };
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end();
        let next = bytes + line.len();
        if bare == "---" || bare == "..." || bare.starts_with("--- #") || bare.starts_with("... #")
        {
            parts.push(Part {
                text: &text[begun.bytes..bytes],
                ..begun
            });
            begun = Part {
                text: "",
                lines: lines + 1,
                bytes: next,
            };
        }
        (lines, bytes) = (lines + 1, next);
    }
    parts.push(Part {
        text: &text[begun.bytes..],
        ..begun
    });
    let content = |part: &Part<'_>| {
        part.text.lines().any(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with('#') && !line.starts_with('%')
        })
    };
    parts.retain(content);
    parts
}

/// Document that could be read.
pub(crate) struct Document<'a> {
    part: Part<'a>,
    root: Node,
}

/// Object of a document, or an element of a `List`.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    /// Its tree.
    pub(crate) root: Node,
    /// `apiVersion`; empty if it has none.
    pub(crate) api_version: String,
    /// `kind`; empty if it has none.
    pub(crate) kind: String,
    /// Text of the document that it is in.
    pub(crate) part: Part<'a>,
}

impl<'a> Document<'a> {
    /// Reads a part. What the paste of a guide left in it (call-out numbers, a line that is indented by one column too
    /// few) is found first, and read over, so that the other rules see the rest.
    pub(crate) fn read(part: &Part<'a>, found: &mut Vec<Finding>) -> Option<Self> {
        let callouts = paste::callouts(part);
        let blanked = paste::blanked(part.text, &callouts);
        found.extend(callouts.into_iter().map(|it| it.finding));
        match parse(&blanked) {
            Ok(root) => Some(Self::of(*part, root)),
            Err(error) => {
                if let Some(indent) = paste::indent(part, &blanked) {
                    let read = parse(&indent.straightened);
                    found.push(indent.finding);
                    return read.ok().map(|mut root| {
                        indent.shift.apply(&mut root);
                        Self::of(*part, root)
                    });
                }
                found.push(paste::unreadable(part, &error));
                None
            }
        }
    }

    fn of(part: Part<'a>, mut root: Node) -> Self {
        walk(&mut root, &mut |place| {
            *place = place.after(part.lines, part.bytes)
        });
        Self { part, root }
    }

    /// Its objects: itself, or the elements of a `List`.
    pub(crate) fn objects(self) -> Vec<Object<'a>> {
        let is_list = self.root.get("kind").and_then(Node::text) == Some("List");
        let part = self.part;
        let object = |root: Node| {
            let text = |key: &str| {
                root.get(key)
                    .and_then(Node::text)
                    .unwrap_or_default()
                    .to_owned()
            };
            Object {
                api_version: text("apiVersion"),
                kind: text("kind"),
                part,
                root,
            }
        };
        match self.root.get("items") {
            Some(items) if is_list => items.elements().iter().cloned().map(object).collect(),
            _ => vec![object(self.root)],
        }
    }
}

/// Calls `change` with every place of a tree.
pub(crate) fn walk(node: &mut Node, change: &mut impl FnMut(&mut Position)) {
    change(&mut node.place);
    match &mut node.value {
        Value::List(all) => all.iter_mut().for_each(|it| walk(it, change)),
        Value::Map(all) => {
            for (Key { place, .. }, value) in all {
                change(place);
                walk(value, change);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
    }
}

impl Object<'_> {
    /// API group; empty for the core group.
    pub(crate) fn group(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// `metadata.name`, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.root.at(&["metadata", "name"])?.text()
    }

    /// `MachineSet windows-a`.
    pub(crate) fn title(&self) -> String {
        [self.kind.as_str(), self.name().unwrap_or_default()]
            .join(" ")
            .trim()
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_where_kubectl_splits_it() {
        let text = "# only a remark\n---\na: 1\n--- # next\nb: |\n  x\n...\n---\nc: 3\n";
        let parts = split(text);
        let shown: Vec<(usize, &str)> = parts.iter().map(|it| (it.lines, it.text)).collect();
        assert_eq!(shown, [(2, "a: 1\n"), (4, "b: |\n  x\n"), (8, "c: 3\n")]);
        assert!(parts.iter().all(|it| text[it.bytes..].starts_with(it.text)));
    }
}
