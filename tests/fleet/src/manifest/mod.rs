//! Manifests: YAML with `<placeholders>`, filled from `--set` and from defaults.

pub mod demo;

use std::{collections::BTreeMap, path::Path};

use dormer_profile::yaml;
use serde_json::Value;

/// The guide's Windows MachineSet on AWS.
pub const AWS_WINDOWS: &str = include_str!("../../manifests/aws-windows-machineset.yaml");
/// The guide's Windows MachineSet on Azure.
pub const AZURE_WINDOWS: &str = include_str!("../../manifests/azure-windows-machineset.yaml");
/// A Windows MachineSet on vSphere.
pub const VSPHERE_WINDOWS: &str = include_str!("../../manifests/vsphere-windows-machineset.yaml");
/// A Cluster of Cluster API with a MachineSet of Windows machines.
pub const CLUSTER_API: &str = include_str!("../../manifests/cluster-api.yaml");
/// A Linux MachineSet for infra nodes.
pub const INFRA: &str = include_str!("../../manifests/infra-machineset.yaml");
/// One control-plane Machine.
pub const CONTROL_PLANE: &str = include_str!("../../manifests/control-plane.yaml");
/// A Windows web server with a budget.
pub const WEBSERVER: &str = include_str!("../../manifests/webserver.yaml");

/// Largest manifest that is read, in bytes.
pub const MANIFEST_MAX: u64 = 4 << 20;

/// What fills a placeholder unless `--set` does.
const DEFAULTS: [(&str, &str); 8] = [
    ("infrastructure_id", "demo-x7k2p"),
    ("zone", "us-east-1a"),
    ("region", "us-east-1"),
    ("windows_container_ami", "ami-0f3ac2b7d4e5a6f01"),
    ("windows_machine_set_name", "winworker"),
    ("location", "centralus"),
    ("cluster_name", "blue"),
    ("cluster_namespace", demo::CLUSTERS),
];

/// Values for placeholders, by name.
pub type Sets = BTreeMap<String, String>;

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("--manifest {path}: {error}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// The file's text cannot be used.
    #[error("--manifest {path}: {error}")]
    In {
        /// Which file.
        path: String,
        /// Why.
        error: Box<ManifestError>,
    },
    /// A placeholder has no value.
    #[error("nothing is set for <{0}>; give it with --set {0}=VALUE")]
    Unset(String),
    /// The text is no YAML.
    #[error("not valid YAML: {0}")]
    Yaml(#[from] yaml::YamlError),
    /// A `--set` without `=`.
    #[error("--set {0:?} is not of the form KEY=VALUE")]
    Set(String),
}

/// Reads `--set` arguments, each `KEY=VALUE`.
///
/// # Errors
/// The first that has no `=`.
pub fn sets(arguments: &[String]) -> Result<Sets, ManifestError> {
    let one = |a: &String| {
        let (key, value) = a
            .split_once('=')
            .ok_or_else(|| ManifestError::Set(a.clone()))?;
        Ok((key.trim().to_owned(), value.to_owned()))
    };
    arguments.iter().map(one).collect()
}

/// Reads a manifest file; several documents are several objects, a `List` is its items.
///
/// # Errors
/// When it cannot be read, has a placeholder without a value, or is no YAML.
pub fn load(path: &Path, sets: &Sets) -> Result<Vec<Value>, ManifestError> {
    let failed = |error| ManifestError::Read {
        path: path.display().to_string(),
        error,
    };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > MANIFEST_MAX {
        return Err(failed(std::io::Error::other(format!(
            "larger than {MANIFEST_MAX} bytes"
        ))));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    parse(&text, sets).map_err(|error| ManifestError::In {
        path: path.display().to_string(),
        error: Box::new(error),
    })
}

/// Reads a manifest's text.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str, sets: &Sets) -> Result<Vec<Value>, ManifestError> {
    let filled = fill(text, sets)?;
    let mut objects = Vec::new();
    for value in yaml::documents(&filled)? {
        match value["items"].as_array() {
            Some(items) if value["kind"] == "List" => objects.extend(items.iter().cloned()),
            _ => objects.push(value),
        }
    }
    Ok(objects)
}

fn fill(text: &str, sets: &Sets) -> Result<String, ManifestError> {
    let azure = text.contains("azureproviderconfig");
    let value = |name: &str| -> Option<String> {
        let default = || match (name, azure) {
            ("zone", true) => Some("1"),
            _ => DEFAULTS
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| *value),
        };
        sets.get(name)
            .cloned()
            .or_else(|| default().map(str::to_owned))
    };
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        filled.push_str(before);
        let name = after
            .split_once('>')
            .map(|(name, _)| name)
            .filter(|n| is_name(n));
        let Some(name) = name else {
            filled.push('<');
            rest = after;
            continue;
        };
        filled.push_str(&value(name).ok_or_else(|| ManifestError::Unset(name.to_owned()))?);
        rest = &after[name.len() + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Meta;

    #[test]
    fn the_seeds_sets_are_valid_and_filled() {
        let aws = parse(AWS_WINDOWS, &Sets::new()).expect("it parses");
        assert_eq!(aws[0].name(), "demo-x7k2p-windows-worker-us-east-1a");
        let azure = parse(AZURE_WINDOWS, &Sets::new()).expect("it parses");
        assert_eq!(azure[0].name(), "winworker");
        assert_eq!(
            azure[0]["spec"]["template"]["spec"]["providerSpec"]["value"]["zone"],
            "1"
        );
        let set = sets(&["zone=us-west-2b".to_owned()]).expect("they read");
        let aws = parse(AWS_WINDOWS, &set).expect("it parses");
        assert_eq!(aws[0].name(), "demo-x7k2p-windows-worker-us-west-2b");
        let infra = parse(INFRA, &Sets::new()).expect("it parses");
        assert_eq!(infra[0]["spec"]["replicas"], 0);
    }

    #[test]
    fn an_alias_bomb_is_refused_at_once() {
        let aliases = vec!["*a"; 170_000].join(",");
        let bomb = format!("kind: &a {}\nitems: [{aliases}]", "x".repeat(12_000));
        let started = std::time::Instant::now();
        let error = parse(&bomb, &Sets::new()).expect_err("refused").to_string();
        let took = started.elapsed();
        assert!(took < std::time::Duration::from_millis(500), "{took:?}");
        assert!(
            error.starts_with("not valid YAML: more than 1000 aliases (`*name`)"),
            "{error}"
        );
    }

    #[test]
    fn a_placeholder_without_a_value_is_named() {
        let error = parse("a: <nobody_knows>", &Sets::new()).expect_err("it is unset");
        assert!(error.to_string().contains("nobody_knows"));
        assert!(parse("a: 1 < 2", &Sets::new()).is_ok());
    }
}
