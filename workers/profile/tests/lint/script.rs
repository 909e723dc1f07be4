//! A PowerShell text with its syntax tree, and the few questions that rules ask of it.

use tree_sitter::{Node, Parser, Tree};

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) line: usize,
    /// Name of the rule.
    pub(crate) rule: &'static str,
    /// What is wrong.
    pub(crate) what: String,
}

pub(crate) struct Script<'a> {
    pub(crate) text: &'a str,
    /// Variables that the caller sets.
    pub(crate) given: &'a [&'a str],
    tree: Tree,
}

impl<'a> Script<'a> {
    pub(crate) fn parse(text: &'a str, given: &'a [&'a str]) -> Self {
        let mut parser = Parser::new();
        let language = tree_sitter_powershell::LANGUAGE.into();
        parser
            .set_language(&language)
            .expect("the grammar fits the parser");
        let tree = parser.parse(text, None).expect("a tree");
        Self { text, given, tree }
    }

    /// Every node, from the top of the script down.
    pub(crate) fn nodes(&self) -> Vec<Node<'_>> {
        let mut found = Vec::new();
        let mut waiting = vec![self.tree.root_node()];
        while let Some(node) = waiting.pop() {
            found.push(node);
            let mut cursor = node.walk();
            let mut children: Vec<Node<'_>> = node.children(&mut cursor).collect();
            children.reverse();
            waiting.extend(children);
        }
        found
    }

    /// Every node of that kind.
    pub(crate) fn of(&self, kind: &str) -> Vec<Node<'_>> {
        self.nodes()
            .into_iter()
            .filter(|node| node.kind() == kind)
            .collect()
    }

    /// The text of a node.
    pub(crate) fn says(&self, node: Node<'_>) -> &'a str {
        &self.text[node.byte_range()]
    }

    /// The text with comments and the insides of plain strings blanked out, so that what is left is code.
    pub(crate) fn code(&self) -> String {
        let mut bytes = self.text.as_bytes().to_vec();
        let quiet = [
            "comment",
            "verbatim_string_characters",
            "verbatim_here_string_characters",
        ];
        for node in self.nodes() {
            let expandable = node.kind().starts_with("expandable");
            if expandable || quiet.contains(&node.kind()) {
                let range = node.byte_range();
                bytes[range]
                    .iter_mut()
                    .filter(|b| **b != b'\n')
                    .for_each(|b| *b = b' ');
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn finding(
        &self,
        node: Node<'_>,
        rule: &'static str,
        what: impl Into<String>,
    ) -> Finding {
        Finding {
            line: node.start_position().row + 1,
            rule,
            what: what.into(),
        }
    }

    /// Names of the functions that it defines.
    pub(crate) fn functions(&self) -> Vec<&'a str> {
        self.of("function_name")
            .into_iter()
            .map(|node| self.says(node))
            .collect()
    }
}
