//! Substitution of `${NAME}` and `${secret:NAME}`, and evaluation of conditions.

use super::Inputs;
use crate::{
    document::Section,
    profile::{FileSpec, Profile, When},
    variables::{Piece, TAINTS, Variables, known, pieces},
};
use serde_json::{Value, json};

/// Deepest nesting of a profile's own variables.
const DEPTH_MAX: usize = 8;

/// The values of one machine and section.
pub(super) struct Values<'a> {
    profile: &'a Profile,
    inputs: &'a Inputs<'a>,
    section: Section,
    own: Variables,
}

impl<'a> Values<'a> {
    pub(super) fn new(inputs: &'a Inputs<'a>, section: Section) -> Self {
        let mut own = Variables::default();
        own.set("PAYLOAD", inputs.payload.folder());
        let mut values = Self {
            profile: inputs.profile,
            inputs,
            section,
            own,
        };
        // A payload folder with a problem is reported where it is used.
        let folder = values
            .fill(&inputs.profile.payload_folder)
            .unwrap_or_default();
        values.own.set("PAYLOAD_DIR", folder);
        values
    }

    /// Whether all given conditions hold.
    pub(super) fn holds(&self, when: &When) -> bool {
        let platform = self.inputs.variables.get("PLATFORM").unwrap_or("none");
        let fits = when.platform.is_empty() || when.platform.iter().any(|p| p == platform);
        let set = when.set.is_empty() || self.value(&when.set, 0).is_ok_and(|v| !v.is_empty());
        let secret = when.secret.is_empty() || self.inputs.secrets.get(&when.secret).is_some();
        fits && set && secret
    }

    /// Whether a file uses a withheld secret.
    pub(super) fn withheld(&self, file: &FileSpec) -> bool {
        let json = file.json.as_ref().map(Value::to_string);
        let texts = file.content.as_deref().into_iter().chain(json.as_deref());
        let mut pieces = texts.flat_map(|text| pieces(text).unwrap_or_default());
        pieces.any(|it| matches!(it, Piece::Secret(name) if self.inputs.secrets.withholds(name)))
    }

    /// Text with all variables filled in.
    pub(super) fn fill(&self, text: &str) -> Result<String, String> {
        self.fill_at(text, 0)
    }

    fn fill_at(&self, text: &str, depth: usize) -> Result<String, String> {
        let mut filled = String::with_capacity(text.len());
        for piece in pieces(text)? {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Variable(name) => filled.push_str(&self.value(name, depth)?),
                Piece::Secret(name) => {
                    let secret = self.inputs.secrets.get(name);
                    filled.push_str(secret.ok_or_else(|| format!("no secret `{name}`"))?);
                }
            }
        }
        Ok(filled)
    }

    fn value(&self, name: &str, depth: usize) -> Result<String, String> {
        if depth > DEPTH_MAX {
            return Err(format!("`${{{name}}}` uses itself, or others too deep"));
        }
        if let Some(value) = self
            .own
            .get(name)
            .or_else(|| self.inputs.variables.get(name))
        {
            return Ok(value.to_owned());
        }
        if let Some(text) = self.profile.variables.get(name) {
            return self.fill_at(text, depth + 1);
        }
        match known(name) {
            None => Err(format!("there is no variable `{name}`")),
            Some(known) if known.from == Section::Node && self.section == Section::Host => {
                Err(format!("`{name}` is known in the node section only"))
            }
            Some(known) if known.optional => Ok(String::new()),
            Some(_) => Err(format!("`{name}` has no value here")),
        }
    }

    /// Object with every string filled in. Empty strings are left out.
    pub(super) fn fill_json(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) if text == TAINTS => self.taints(),
            Value::String(text) => Value::String(self.fill(text)?),
            Value::Array(all) => Value::Array(
                all.iter()
                    .map(|one| self.fill_json(one))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Object(all) => {
                let mut filled = serde_json::Map::new();
                for (key, one) in all {
                    filled.insert(key.clone(), self.fill_json(one)?);
                }
                Value::Object(filled)
            }
            other => other.clone(),
        })
    }

    fn taints(&self) -> Value {
        let taints = &self.profile.kubernetes.taints;
        let one =
            |t: &crate::profile::Taint| json!({"key": t.key, "value": t.value, "effect": t.effect});
        Value::Array(taints.iter().map(one).collect())
    }
}

/// One word of a Windows command line, quoted where it has to be (`CommandLineToArgvW`'s rules).
pub(super) fn quoted(word: &str) -> String {
    if !word.is_empty() && !word.contains([' ', '\t', '"']) {
        return word.to_owned();
    }
    let mut out = String::from("\"");
    let mut slashes = 0;
    for c in word.chars() {
        match c {
            '\\' => slashes += 1,
            '"' => {
                out.push_str(&"\\".repeat(slashes + 1));
                slashes = 0;
            }
            _ => slashes = 0,
        }
        out.push(c);
    }
    out.push_str(&"\\".repeat(slashes));
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_as_windows_reads_them() {
        let table = [
            (r"C:\k\kubelet.exe", r"C:\k\kubelet.exe"),
            ("", r#""""#),
            (r"C:\Program Files\x", r#""C:\Program Files\x""#),
            (r"C:\a b\", r#""C:\a b\\""#),
            (r#"a"b"#, r#""a\"b""#),
            (r#"a\"b"#, r#""a\\\"b""#),
        ];
        for (word, wanted) in table {
            assert_eq!(quoted(word), wanted, "{word}");
        }
    }
}
