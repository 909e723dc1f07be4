//! Problems in a document that a person wrote, each with its place and its reason.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::yaml::YamlError;

/// Most problems reported at once.
pub const PROBLEMS_MAX: usize = 50;

/// Problem in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Place: a path in the document such as `host.services.kubelet.depends[0]`, or a line.
    pub location: String,
    pub reason: String,
}

impl Problem {
    /// A problem at a place.
    pub fn new(location: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            location: location.into(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.reason)
    }
}

/// All problems; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Succeeds if `found` is empty; otherwise returns the problems (at most [`PROBLEMS_MAX`]).
    pub fn check(mut found: Vec<Problem>) -> Result<(), Self> {
        found.truncate(PROBLEMS_MAX);
        if found.is_empty() {
            Ok(())
        } else {
            Err(Self(found))
        }
    }

    pub fn one(location: impl Into<String>, reason: impl Into<String>) -> Self {
        Self(vec![Problem::new(location, reason)])
    }

    /// Reads a JSON value as `T`. A problem is at the path of the value that does not fit, or at `whole` where there is none.
    pub(crate) fn typed<T: DeserializeOwned>(value: Value, whole: &str) -> Result<T, Self> {
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            let location = if path == "." { whole.to_owned() } else { path };
            Self::one(location, error.into_inner().to_string())
        })
    }

    /// Problem of the YAML reader, with line and column.
    pub fn from_yaml(error: &YamlError) -> Self {
        let location = match error.location {
            Some((line, column)) => format!("line {line} column {column}"),
            None => "document".into(),
        };
        Self::one(location, error.reason.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// The same problems, with `prefix` before each place.
    pub fn below(self, prefix: &str) -> Self {
        let at = |p: Problem| Problem::new(format!("{prefix}: {}", p.location), p.reason);
        Self(self.0.into_iter().map(at).collect())
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
