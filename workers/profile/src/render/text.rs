//! Substitution of `${NAME}` and `${secret:NAME}`, and evaluation of conditions.

use super::Inputs;
use crate::{
    document::Section,
    profile::{Content, FileSpec, Profile, TextPart, When},
    variables::{Piece, TAINTS, Variables, known, log_setting, of_variable, pieces},
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
        let set = match self.value(&when.set, 0) {
            _ if when.set.is_empty() => true,
            Ok(value) => !value.is_empty(),
            // What is wrong with a profile's own variable is reported where its value is used.
            Err(_) => self.profile.variables.contains_key(&when.set),
        };
        let secret = when.secret.is_empty() || self.inputs.secrets.get(&when.secret).is_some();
        let payload = self.inputs.payload;
        let releases =
            when.kubelet.holds(payload.kubelet()) && when.containerd.holds(payload.containerd());
        let there = when.payload.is_empty() || payload.file(&when.payload).is_some();
        fits && set && secret && releases && there
    }

    /// Whether a file uses a withheld secret.
    pub(super) fn withheld(&self, file: &FileSpec) -> bool {
        let json = file.json.as_ref().map(Value::to_string);
        let content = file.content.as_ref().map(|content| self.parts(content));
        let texts = content.into_iter().flatten().chain(json.as_deref());
        let mut pieces = texts.flat_map(|text| pieces(text).unwrap_or_default());
        pieces.any(|it| matches!(it, Piece::Secret(name) if self.inputs.secrets.withholds(name)))
    }

    /// Parts of a content that are there.
    pub(super) fn parts<'c>(&self, content: &'c Content) -> Vec<&'c str> {
        match content {
            Content::Whole(text) => vec![text],
            Content::Parts(parts) => parts
                .iter()
                .filter_map(|part| match part {
                    TextPart::Always(text) => Some(text.as_str()),
                    TextPart::Maybe(maybe) => {
                        self.holds(&maybe.when).then_some(maybe.text.as_str())
                    }
                })
                .collect(),
        }
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
        if let Some(secret) = self.inputs.secrets.get(&of_variable(name)) {
            return Ok(secret.to_owned());
        }
        if let Some(value) = self
            .own
            .get(name)
            .or_else(|| self.inputs.variables.get(name))
        {
            return Ok(value.to_owned());
        }
        if let Some(text) = self.profile.variables.get(name) {
            let text = self.fill_at(text, depth + 1)?;
            return log_setting(name, &text).unwrap_or(Ok(text));
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

    /// Value with every string filled in, and without missing parts.
    pub(super) fn fill_json(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) if text == TAINTS => self.taints(),
            Value::String(text) => Value::String(self.fill(text)?),
            Value::Array(all) => {
                let there = all.iter().filter_map(|one| self.present(one).transpose());
                let filled = there.map(|one| self.fill_json(one?));
                Value::Array(filled.collect::<Result<_, _>>()?)
            }
            Value::Object(all) => {
                let mut filled = serde_json::Map::new();
                for (key, one) in all {
                    if let Some(one) = self.present(one)? {
                        filled.insert(key.clone(), self.fill_json(one)?);
                    }
                }
                Value::Object(filled)
            }
            other => other.clone(),
        })
    }

    /// A value of a `json` file, if its condition holds.
    fn present<'v>(&self, value: &'v Value) -> Result<Option<&'v Value>, String> {
        let mut value = value;
        while let Some((when, below)) = conditional(value)? {
            if !self.holds(&when) {
                return Ok(None);
            }
            value = below;
        }
        Ok(Some(value))
    }

    fn taints(&self) -> Value {
        let taints = &self.profile.kubernetes.taints;
        let one =
            |t: &crate::profile::Taint| json!({"key": t.key, "value": t.value, "effect": t.effect});
        Value::Array(taints.iter().map(one).collect())
    }
}

/// Whether an object of a `json` file is a value under a condition.
pub(crate) fn is_conditional(value: &Value) -> bool {
    let object = value.as_object().filter(|object| object.len() == 2);
    object.is_some_and(|object| object.contains_key("when") && object.contains_key("value"))
}

/// Condition and value of an object of the form `{when: …, value: …}`.
///
/// # Errors
/// It has that form, but its condition cannot be read.
pub(crate) fn conditional(value: &Value) -> Result<Option<(When, &Value)>, String> {
    if !is_conditional(value) {
        return Ok(None);
    }
    let when = serde_json::from_value(value["when"].clone()).map_err(|e| format!("when: {e}"))?;
    Ok(Some((when, &value["value"])))
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
