//! YAML reader and writer of the project: one set of rules, and budgets against documents that expand.
//!
//! An alias (`*name`) repeats what an anchor (`&name`) marks, so a text of one megabyte can expand to gigabytes. The
//! budgets count what a text *expands to* while it is parsed. A document beyond one is refused before it uses memory.

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_saphyr::{
    Error, MessageFormatter, Options, SerializerOptions, UserMessageFormatter, budget::BudgetBreach,
};

/// Most aliases in one text: far more than a person writes. A generated document has none.
pub const ALIASES_MAX: usize = 1_000;
/// Most text in one document, in bytes, with each alias counted in full. It is above the largest file that is read.
pub const EXPANDED_BYTES_MAX: usize = 16 << 20;
/// Most values in one document, with each alias counted in full.
pub const VALUES_MAX: usize = 250_000;
/// Deepest nesting. Each step takes up to 5 KiB of a thread's stack (25 KiB unoptimised), of which there are 2 MiB.
pub const DEPTH_MAX: usize = 64;
/// Most characters of a refused value in a reason.
const FOUND_MAX: usize = 60;

/// Error of a YAML text: place and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    /// Line and column, both from 1; `None` when the text as a whole is refused.
    pub location: Option<(u64, u64)>,
    /// Reason in words for people, after the path of the field.
    pub reason: String,
}

impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match self.location {
            Some((line, column)) => write!(f, " at line {line} column {column}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for YamlError {}

/// Parses the only document of a text (YAML, and therefore JSON).
///
/// # Errors
/// The text is not YAML, does not match `T`, or exceeds a budget.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    let mut path = String::new();
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options(), |from| {
        serde_path_to_error::deserialize(from).map_err(|error| {
            path = error.path().to_string();
            error.into_inner()
        })
    });
    read.map_err(|error| explain(&error, &path, text))
}

/// Parses every document of a text, as `kubectl apply -f` does. Empty ones are skipped.
///
/// # Errors
/// The text is not YAML, or exceeds a budget.
pub fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    serde_saphyr::from_multiple_with_options(text, options())
        .map_err(|error| explain(&error, "", text))
}

/// Value as YAML, with a line end after the last line.
///
/// # Errors
/// The value has no YAML form, for example a map with lists as keys.
pub fn to_string(value: &impl Serialize) -> Result<String, YamlError> {
    serde_saphyr::to_string_with_options(value, style()).map_err(|error| YamlError {
        location: None,
        reason: error.to_string(),
    })
}

/// Parser options. Plain words follow YAML 1.2: `yes`, `0644` and `1_000` are texts.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: ALIASES_MAX,
            max_total_scalar_bytes: EXPANDED_BYTES_MAX,
            max_nodes: VALUES_MAX,
            max_depth: DEPTH_MAX,
            // The budgets above count repetitions. A ratio limit would refuse one anchor with many uses.
            enforce_alias_anchor_ratio: false,
        },
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    }
}

/// Long lines are not folded, because people search the output with `grep`.
fn style() -> SerializerOptions {
    serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX }
}

fn explain(error: &Error, path: &str, text: &str) -> YamlError {
    let path = match error {
        Error::SerdeUnknownField { field, .. } => path.strip_suffix(field.as_str()).unwrap_or(path),
        _ => path,
    };
    let path = path.trim_end_matches(['?', '.']);
    let reason = reason(error, text);
    YamlError {
        location: error.location().map(|at| (at.line(), at.column())),
        reason: match path {
            "" => reason,
            path => format!("{path}: {reason}"),
        },
    }
}

fn reason(error: &Error, text: &str) -> String {
    let found = || found(error, text);
    match error {
        Error::AliasError { error, .. } | Error::WithSnippet { error, .. } => reason(error, text),
        Error::Budget { breach, .. } => over_budget(breach),
        Error::AliasReplayLimitExceeded { .. } | Error::AliasReplayStackDepthExceeded { .. } => {
            format!("its aliases repeat too much; {WRITE_OUT}")
        }
        Error::Unexpected { expected, .. } => {
            let expected = expected.strip_suffix(" start").unwrap_or(expected);
            format!("expected {expected}, found {}", found())
        }
        Error::InvalidScalar { ty, .. } => format!("{} is no {ty}", found()),
        Error::InvalidBooleanStrict { .. } => format!("{} is neither true nor false", found()),
        other => UserMessageFormatter.format_message(other).into_owned(),
    }
}

const WRITE_OUT: &str =
    "an alias (`*name`) counts as all that it repeats, so write out what is needed";

fn over_budget(breach: &BudgetBreach) -> String {
    match breach {
        BudgetBreach::Aliases { .. } => {
            format!("more than {ALIASES_MAX} aliases (`*name`): write out what they repeat")
        }
        BudgetBreach::ScalarBytes { .. } => {
            let most = EXPANDED_BYTES_MAX >> 20;
            format!("more than {most} MiB of text; {WRITE_OUT}")
        }
        BudgetBreach::Nodes { .. } => format!("more than {VALUES_MAX} values; {WRITE_OUT}"),
        BudgetBreach::Depth { .. } => format!("nested more than {DEPTH_MAX} deep"),
        other => format!("too large: {other:?}"),
    }
}

/// Start of the value with the error.
fn found(error: &Error, text: &str) -> String {
    let span = error.location().map(|at| at.span());
    let bytes = span.and_then(|span| {
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let len = usize::try_from(span.byte_len()?).ok()?;
        text.get(start..start.checked_add(len)?)
    });
    match bytes.and_then(|found| found.lines().next()) {
        None | Some("") => "nothing".into(),
        Some(line) => {
            let start: String = line.chars().take(FOUND_MAX).collect();
            format!("`{start}`")
        }
    }
}

#[cfg(test)]
#[path = "yaml_tests.rs"]
mod tests;
