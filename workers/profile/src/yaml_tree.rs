//! YAML as a tree with the location of each key and value, read with the same budgets as [`crate::yaml`].

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned};
use std::fmt;

use crate::yaml::{YamlError, from_str};

/// Position in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Offset in bytes.
    pub start: usize,
    /// Length in bytes; 0 for maps and lists.
    pub len: usize,
}

impl Position {
    fn of(location: &Location) -> Self {
        let number = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
        let span = location.span();
        Self {
            line: number(location.line()),
            column: number(location.column()),
            start: number(span.byte_offset().unwrap_or(0)),
            len: number(span.byte_len().unwrap_or(0)),
        }
    }

    /// The same location in a text that begins `lines` lines and `bytes` bytes earlier.
    #[must_use]
    pub fn after(self, lines: usize, bytes: usize) -> Self {
        Self {
            line: self.line + lines,
            start: self.start + bytes,
            ..self
        }
    }
}

/// Value and its location.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it begins.
    pub position: Position,
    pub value: Value,
}

/// Value of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Number, as its shortest text.
    Number(String),
    Text(String),
    List(Vec<Node>),
    /// Map, in the order of the text.
    Map(Vec<(Key, Node)>),
}

/// Key of a map, and its location.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// Where it begins.
    pub position: Position,
    pub name: String,
}

/// Parses the only document of a text.
///
/// # Errors
/// The text is not YAML, or exceeds a budget.
pub fn parse(text: &str) -> Result<Node, YamlError> {
    let read: Spanned<Value> = from_str(text)?;
    Ok(node(read))
}

fn node(read: Spanned<Value>) -> Node {
    Node {
        position: Position::of(&read.referenced),
        value: read.value,
    }
}

impl Node {
    /// Value of a key. `None`: there is no such key, or this is no map.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|(_, node)| node)
    }

    /// Key and value of a name.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<(&Key, &Node)> {
        let found = self.entries().iter().find(|(known, _)| known.name == key);
        found.map(|(key, node)| (key, node))
    }

    /// Value at a path of keys.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// Entries of a map; none for other values.
    #[must_use]
    pub fn entries(&self) -> &[(Key, Node)] {
        match &self.value {
            Value::Map(all) => all,
            _ => &[],
        }
    }

    /// Elements of a list; none for other values.
    #[must_use]
    pub fn elements(&self) -> &[Node] {
        match &self.value {
            Value::List(all) => all,
            _ => &[],
        }
    }

    /// Text of a scalar, also of a number or a boolean.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) | Value::Number(text) => Some(text),
            Value::Bool(true) => Some("true"),
            Value::Bool(false) => Some("false"),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Whole number.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        match &self.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        Value::deserialize(from)
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(Value::Bool(it))
    }

    fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
        Ok(Value::Number(it.to_string()))
    }

    fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
        Ok(Value::Number(it.to_string()))
    }

    fn visit_i128<E>(self, it: i128) -> Result<Value, E> {
        Ok(Value::Number(it.to_string()))
    }

    fn visit_u128<E>(self, it: u128) -> Result<Value, E> {
        Ok(Value::Number(it.to_string()))
    }

    fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
        Ok(Value::Number(it.to_string()))
    }

    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(Value::Text(it.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = from.next_element::<Spanned<Value>>()? {
            all.push(node(one));
        }
        Ok(Value::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(key) = from.next_key::<Spanned<String>>()? {
            let position = Position::of(&key.referenced);
            let name = key.value;
            let value = node(from.next_value::<Spanned<Value>>()?);
            all.push((Key { position, name }, value));
        }
        Ok(Value::Map(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_and_value_knows_its_position() {
        let text = "a: 1\nb:\n  - {c: 'x', d: \"é y\"}\n  - true\n# e\nf:\n  g: plain text # why\n  h:\n    i: 2\n";
        let tree = parse(text).expect("YAML");
        let said = |node: &Node| {
            text[node.position.start..node.position.start + node.position.len].to_owned()
        };
        let line = |node: &Node| (node.position.line, node.position.column);
        let first = &tree.get("b").expect("b").elements()[0];
        assert_eq!(line(first.get("c").expect("c")), (3, 9));
        assert_eq!(said(first.get("c").expect("c")), "'x'");
        assert_eq!(said(first.get("d").expect("d")), "\"é y\"");
        let g = tree.at(&["f", "g"]).expect("g");
        assert_eq!((line(g), said(g).as_str()), ((7, 6), "plain text"));
        let (key, h) = tree.get("f").expect("f").entry("h").expect("h");
        assert_eq!((key.position.line, key.position.column), (8, 3));
        assert_eq!(line(h), (9, 5));
        assert_eq!(tree.get("a").and_then(Node::number), Some(1));
        assert_eq!(tree.get("b").expect("b").elements()[1].text(), Some("true"));
    }

    #[test]
    fn an_error_has_its_position_and_a_bomb_is_refused() {
        let error = parse("a:\n  b: 1\n c: 2\n").expect_err("no YAML");
        assert_eq!(error.location.map(|it| it.0), Some(3), "{error}");
        let twice = parse("a: 1\na: 2\n").expect_err("twice");
        assert!(twice.reason.contains("duplicate"), "{twice}");
        let bomb = format!("a: &a x\nb: [{}]\n", "*a,".repeat(1_001));
        assert!(parse(&bomb).is_err());
    }
}
