//! Documents of a text, and the objects in them.

use crate::{
    finding::Finding,
    parts::{DocumentPart, walk},
    paste,
};
use dormer_profile::yaml_tree::{Node, parse};

/// Document that could be read.
pub(crate) struct Document<'a> {
    part: DocumentPart<'a>,
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
    pub(crate) part: DocumentPart<'a>,
}

impl<'a> Document<'a> {
    /// Reads a part. It first finds and skips remains of a guide's paste: call-out numbers, and a line that is indented by
    /// one column too few. The other rules see the rest.
    pub(crate) fn read(part: &DocumentPart<'a>, found: &mut Vec<Finding>) -> Option<Self> {
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

    fn of(part: DocumentPart<'a>, mut root: Node) -> Self {
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
