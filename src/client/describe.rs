//! `dormer describe`: all fields of one object, including those that only a newer server knows.

use super::{Failure, To, get::Kind, output::one_line};
use clap::{Args, ValueEnum};
use serde_json::Value;

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Described {
    /// A machine
    #[value(aliases = ["machines", "m"])]
    Machine,
    /// A pool's rollout
    #[value(aliases = ["rollouts", "pool"])]
    Rollout,
}

/// Arguments of `dormer describe`.
#[derive(Debug, Args)]
pub struct Describe {
    /// Kind of object
    kind: Described,
    /// Name; a machine also goes by its UID
    name: String,
    #[command(flatten)]
    to: To,
}

impl Describe {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let kind = match self.kind {
            Described::Machine => Kind::Machines,
            Described::Rollout => Kind::Rollouts,
        };
        let found: Value = server.get(&kind.one(&self.name)).await?;
        let programs = self.to.programs(&found)?;
        Ok(programs.unwrap_or_else(|| described(&found)))
    }
}

/// One line per field; lists of objects below.
pub(super) fn described(thing: &Value) -> String {
    let Value::Object(fields) = thing else {
        return plain(thing);
    };
    let width = fields.keys().map(|key| heading(key).len()).max();
    let width = width.unwrap_or(0) + 2;
    let (things, plainly): (Vec<_>, Vec<_>) =
        fields.iter().partition(|(_, value)| holds_things(value));
    let mut lines: Vec<String> = plainly
        .iter()
        .map(|(key, value)| format!("{:width$}{}", format!("{}:", heading(key)), plain(value)))
        .collect();
    for (key, value) in things {
        lines.push(format!("{}:", heading(key)));
        let items = value.as_array().map(Vec::as_slice);
        let items = items.unwrap_or(std::slice::from_ref(value));
        lines.extend(items.iter().map(|item| format!("  {}", in_a_line(item))));
    }
    lines.join("\n")
}

fn holds_things(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(Value::is_object),
        other => other.is_object(),
    }
}

fn in_a_line(thing: &Value) -> String {
    let Value::Object(fields) = thing else {
        return plain(thing);
    };
    let described = fields.iter().filter(|(_, value)| !value.is_null());
    described
        .map(|(key, value)| format!("{} {}", heading(key).to_lowercase(), plain(value)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Value on one line: a dash for null, a list as its items.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => one_line(""),
        Value::String(text) => one_line(text),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Array(items) if items.is_empty() => one_line(""),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(_) | Value::Number(_) => value.to_string(),
    }
}

/// `waitingFor` as `Waiting for`.
fn heading(key: &str) -> String {
    let mut words = String::new();
    for (at, character) in key.chars().enumerate() {
        if at == 0 {
            words.extend(character.to_uppercase());
        } else if character.is_uppercase() {
            words.push(' ');
            words.extend(character.to_lowercase());
        } else {
            words.push(character);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_description_has_plain_fields_first_and_things_below() {
        let thing = json!({"waitingFor": null, "name": "a", "halt": {"kind": "paused", "by": "ada"},
            "tasks": [{"task": "probe", "of": null}]});
        let text = described(&thing);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "Name:        a",
                "Waiting for: -",
                "Halt:",
                "  by ada, kind paused",
                "Tasks:",
                "  task probe"
            ]
        );
    }
}
