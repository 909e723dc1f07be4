//! Parts of a text between document marks, and the places in them.

use dormer_profile::yaml_tree::{Key, Node, Position, Value};

/// Part of a text between two document marks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DocumentPart<'a> {
    pub(crate) text: &'a str,
    /// Lines before it.
    pub(crate) lines: usize,
    /// Bytes before it.
    pub(crate) bytes: usize,
}

/// Splits a text at its document marks (`---`, `...`). No content can begin a line with one.
pub(crate) fn split(text: &str) -> Vec<DocumentPart<'_>> {
    let mut parts = Vec::new();
    let mut lines = 0;
    let mut bytes = 0;
    let mut begun = DocumentPart {
        text: "",
        lines: 0,
        bytes: 0,
    };
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end();
        let next = bytes + line.len();
        if bare == "---" || bare == "..." || bare.starts_with("--- #") || bare.starts_with("... #")
        {
            parts.push(DocumentPart {
                text: &text[begun.bytes..bytes],
                ..begun
            });
            begun = DocumentPart {
                text: "",
                lines: lines + 1,
                bytes: next,
            };
        }
        (lines, bytes) = (lines + 1, next);
    }
    parts.push(DocumentPart {
        text: &text[begun.bytes..],
        ..begun
    });
    let content = |part: &DocumentPart<'_>| {
        part.text.lines().any(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with('#') && !line.starts_with('%')
        })
    };
    parts.retain(content);
    parts
}

/// Calls `change` with every place of a tree.
pub(crate) fn walk(node: &mut Node, change: &mut impl FnMut(&mut Position)) {
    change(&mut node.position);
    match &mut node.value {
        Value::List(all) => all.iter_mut().for_each(|it| walk(it, change)),
        Value::Map(all) => {
            for (Key { position, .. }, value) in all {
                change(position);
                walk(value, change);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
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
