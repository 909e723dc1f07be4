//! Label and field selectors of lists, watches, sets and budgets.

use serde_json::Value;

use super::object::Meta;

/// One requirement on labels.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// A label selector; the empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Vec<Requirement>);

impl Labels {
    /// Reads a selector as it stands in a query: `a=b,c!=d,e in (f,g),h,!i`.
    ///
    /// # Errors
    /// The requirement that cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        split_outside_brackets(text)
            .into_iter()
            .map(requirement)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Reads a selector as it stands in an object: `matchLabels` and `matchExpressions`.
    pub fn of(selector: &Value) -> Self {
        let mut all = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            all.push(Requirement::In(key.clone(), vec![value]));
        }
        for expression in selector["matchExpressions"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect();
            all.push(match expression["operator"].as_str().unwrap_or_default() {
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::Absent(key),
                _ => Requirement::In(key, values),
            });
        }
        Self(all)
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object's labels match.
    pub fn matches(&self, object: &Value) -> bool {
        self.matches_labels(&object["metadata"]["labels"])
    }

    /// Whether these labels match.
    pub fn matches_labels(&self, labels: &Value) -> bool {
        let one_of = |key: &str, values: &[String]| {
            labels[key]
                .as_str()
                .is_some_and(|have| values.iter().any(|v| v == have))
        };
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => one_of(key, values),
            Requirement::NotIn(key, values) => !one_of(key, values),
            Requirement::Exists(key) => labels.get(key).is_some(),
            Requirement::Absent(key) => labels.get(key).is_none(),
        })
    }
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
        .into_iter()
        .map(str::trim)
        .filter(|p| !p.is_empty())
        .collect()
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let bad = || format!("unable to parse requirement: {text}");
    let list = |rest: &str| -> Option<Vec<String>> {
        let inner = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(|v| v.trim().to_owned()).collect())
    };
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Requirement::Absent(key.trim().to_owned()));
    }
    if let Some((key, rest)) = text.split_once(" notin ") {
        return Ok(Requirement::NotIn(
            key.trim().to_owned(),
            list(rest).ok_or_else(bad)?,
        ));
    }
    if let Some((key, rest)) = text.split_once(" in ") {
        return Ok(Requirement::In(
            key.trim().to_owned(),
            list(rest).ok_or_else(bad)?,
        ));
    }
    let owned = |s: &str| s.trim().to_owned();
    if let Some((key, value)) = text.split_once("!=") {
        return Ok(Requirement::NotIn(owned(key), vec![owned(value)]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Requirement::In(owned(key), vec![owned(value)]));
    }
    if text.contains(char::is_whitespace) {
        return Err(bad());
    }
    Ok(Requirement::Exists(owned(text)))
}

/// A field selector: equalities on dotted paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String, bool)>);

impl Fields {
    /// Reads a selector as it stands in a query: `spec.nodeName=a,status.phase!=Failed`.
    ///
    /// # Errors
    /// The term that cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let terms = text.split(',').map(str::trim).filter(|t| !t.is_empty());
        let term = |t: &str| {
            let owned = |s: &str| s.trim().to_owned();
            if let Some((path, value)) = t.split_once("!=") {
                return Ok((owned(path), owned(value), false));
            }
            let (path, value) = t
                .split_once("==")
                .or_else(|| t.split_once('='))
                .ok_or_else(|| format!("invalid field selector: {t}"))?;
            Ok((owned(path), owned(value), true))
        };
        terms.map(term).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an object matches.
    pub fn matches(&self, object: &Value) -> bool {
        self.0
            .iter()
            .all(|(path, value, equal)| (field(object, path) == *value) == *equal)
    }

    /// Required value of this path, if the selector has one.
    pub fn equal_to(&self, path: &str) -> Option<&str> {
        let term = self.0.iter().find(|(p, _, equal)| p == path && *equal);
        term.map(|(_, value, _)| value.as_str())
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The text at a dotted path; empty if there is none, as Kubernetes compares it.
fn field(object: &Value, path: &str) -> String {
    match path {
        "metadata.name" => return object.name().to_owned(),
        "metadata.namespace" => return object.namespace().to_owned(),
        _ => {}
    }
    let found = path.split('.').try_fold(object, |at, step| at.get(step));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_match() {
        let object = json!({"metadata": {"labels": {"os": "Windows", "zone": "a"}}});
        for yes in [
            "os=Windows",
            "os==Windows,zone",
            "zone in (a, b)",
            "!gpu",
            "os!=Linux",
            "",
        ] {
            assert!(
                Labels::parse(yes).expect("a selector").matches(&object),
                "{yes}"
            );
        }
        for no in ["os=Linux", "gpu", "zone notin (a,b)", "!os"] {
            assert!(
                !Labels::parse(no).expect("a selector").matches(&object),
                "{no}"
            );
        }
        assert!(Labels::parse("what is this").is_err());
    }

    #[test]
    fn field_selectors_match() {
        let object = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "win-1"}});
        let yes = Fields::parse("spec.nodeName=win-1,status.phase!=Failed").expect("a selector");
        assert!(yes.matches(&object));
        assert_eq!(yes.equal_to("spec.nodeName"), Some("win-1"));
        assert!(
            !Fields::parse("metadata.name=q")
                .expect("a selector")
                .matches(&object)
        );
    }
}
