//! Variables of a profile, `${NAME}` and `${secret:NAME}`: values of a machine and its cluster.

use std::collections::BTreeMap;
use std::fmt;

use crate::document::Section;

/// Variable that every profile may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltinVariable {
    pub name: &'static str,
    /// The first section that may use it.
    pub from: Section,
    /// Whether it may have no value, and is then empty.
    pub optional: bool,
    pub meaning: &'static str,
}

const fn host(name: &'static str, meaning: &'static str) -> BuiltinVariable {
    BuiltinVariable {
        name,
        from: Section::Host,
        optional: false,
        meaning,
    }
}

const fn maybe(name: &'static str, meaning: &'static str) -> BuiltinVariable {
    BuiltinVariable {
        name,
        from: Section::Host,
        optional: true,
        meaning,
    }
}

/// Every built-in variable.
pub const KNOWN: &[BuiltinVariable] = &[
    host(
        "API_SERVER_INTERNAL",
        "URL of the API server as nodes reach it",
    ),
    host("CLUSTER_DNS", "address of the cluster's DNS"),
    host("CLUSTER_DOMAIN", "domain of the cluster, `cluster.local`"),
    host(
        "NODE_IP",
        "IPv4 of the interface that has the default route",
    ),
    host(
        "PAYLOAD",
        "name of the payload's folder, its version and hash",
    ),
    host("PAYLOAD_DIR", "the payload's folder on the host"),
    host(
        "PLATFORM",
        "platform in lower case: aws, azure, gcp, vsphere, nutanix, none",
    ),
    host("SERVICE_CIDR", "network of the cluster's services"),
    host("WINDOWS_BUILD", "Windows build, for example 10.0.20348"),
    maybe(
        "CLOUD_CONFIG",
        "path of the cloud configuration, where the platform has one",
    ),
    maybe(
        "CLOUD_PROVIDER",
        "the kubelet's --cloud-provider, in practice `external`",
    ),
    maybe("HOSTNAME", "computer name that the host must have"),
    maybe("HOSTNAME_OVERRIDE", "the kubelet's --hostname-override"),
    maybe("HTTPS_PROXY", "the cluster's proxy"),
    maybe("HTTP_PROXY", "the cluster's proxy"),
    maybe("LOG_FILE_AGE", "kube-log-runner's -log-file-age"),
    maybe("LOG_FILE_SIZE", "kube-log-runner's -log-file-size"),
    maybe("LOG_FLUSH_INTERVAL", "kube-log-runner's -flush-interval"),
    maybe("NO_PROXY", "what is reached without the proxy"),
    maybe("POD_CIDR", "network of the cluster's pods"),
    maybe(
        "VXLAN_PORT",
        "UDP port of the hybrid overlay, where it is not the usual one",
    ),
    BuiltinVariable {
        name: "NODE_NAME",
        from: Section::Node,
        optional: false,
        meaning: "name of the Node",
    },
    BuiltinVariable {
        name: "HYBRID_OVERLAY_SUBNET",
        from: Section::Node,
        optional: true,
        meaning: "the Node's own subnet of the hybrid overlay",
    },
];

/// Placeholder for the profile's taints: a string in a `json` file that consists of this only.
pub const TAINTS: &str = "${TAINTS}";

/// Setting of the services' logs as kube-log-runner reads it, without the space around it. `None`: the variable is
/// another one.
///
/// # Errors
/// It is no duration of Go's, or no quantity of Kubernetes'. kube-log-runner would end with it, and so the service.
pub(crate) fn log_setting(name: &str, text: &str) -> Option<Result<String, String>> {
    let (fits, what): (fn(&str) -> bool, _) = match name {
        "LOG_FILE_SIZE" => (is_quantity, "no quantity, as `100Mi`"),
        "LOG_FILE_AGE" | "LOG_FLUSH_INTERVAL" => (is_duration, "no duration, as `24h` or `5s`"),
        _ => return None,
    };
    let text = text.trim();
    Some(if text.is_empty() || fits(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is {what}"))
    })
}

/// Whether Go's `time.ParseDuration` takes it. Negative ones make no sense here.
fn is_duration(text: &str) -> bool {
    seconds(text).is_some()
}

/// Seconds of a duration that is not negative, as Go's `time.ParseDuration` reads it.
pub(crate) fn seconds(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let one = match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return (text == "0").then_some(0.0),
        };
        sum += number.parse::<f64>().ok()? * one;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

/// Whether it is a plain quantity of bytes: a number with one of Kubernetes' suffixes.
fn is_quantity(text: &str) -> bool {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let suffixes = ["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"];
    number.parse::<f64>().is_ok() && suffixes.contains(&suffix)
}

/// Built-in variable of that name.
pub fn known(name: &str) -> Option<&'static BuiltinVariable> {
    KNOWN.iter().find(|known| known.name == name)
}

/// How the name of a secret begins that replaces a variable's value.
const OF_VARIABLE: &str = "variable.";

/// Name of the secret that replaces the value of that variable: the value is what people may see of it.
pub(crate) fn of_variable(name: &str) -> String {
    format!("{OF_VARIABLE}{name}")
}

/// Whether a secret replaces the value of a variable.
pub(crate) fn is_of_variable(secret: &str) -> bool {
    secret.starts_with(OF_VARIABLE)
}

/// Values of variables for one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Sets one. An empty value means no value.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Value, if it has one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Every name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// Secrets and rotating material by name. They are never printed. One without a text is withheld.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<String, Option<String>>);

impl Secrets {
    /// Adds one.
    pub fn set(&mut self, name: impl Into<String>, text: impl Into<String>) -> &mut Self {
        self.0.insert(name.into(), Some(text.into()));
        self
    }

    /// Withholds one: files that use it are left out, and therefore stay unchanged on the host.
    pub fn withhold(&mut self, name: impl Into<String>) -> &mut Self {
        self.0.insert(name.into(), None);
        self
    }

    /// Whether one is withheld.
    pub(crate) fn withholds(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(Option::is_none)
    }

    /// Text of one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_deref()
    }

    /// Every name and text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .filter_map(|(name, text)| Some((name.as_str(), text.as_deref()?)))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Piece of a text with variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Literal text.
    Text(&'a str),
    /// `${NAME}`.
    Variable(&'a str),
    /// `${secret:NAME}`.
    Secret(&'a str),
}

/// Splits a text into pieces. `$${` means a literal `${`; any other `${` must begin a name.
pub fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            found.push(Piece::Text(&rest[..at - 1]));
            found.push(Piece::Text("${"));
            rest = &rest[at + 2..];
            continue;
        }
        found.push(Piece::Text(&rest[..at]));
        let inside = &rest[at + 2..];
        let end = inside
            .find('}')
            .ok_or_else(|| format!("`${{` without `}}` in `{text}`"))?;
        found.push(named(&inside[..end])?);
        rest = &inside[end + 1..];
    }
    found.push(Piece::Text(rest));
    found.retain(|piece| *piece != Piece::Text(""));
    Ok(found)
}

fn named(name: &str) -> Result<Piece<'_>, String> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    };
    match name.strip_prefix("secret:") {
        Some(secret) if is_name(secret) => Ok(Piece::Secret(secret)),
        None if is_name(name) => Ok(Piece::Variable(name)),
        _ => Err(format!("`${{{name}}}` is not a name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_taken_apart() {
        use Piece::{Secret, Text, Variable};
        let table = [
            ("", Ok(vec![])),
            ("C:\\k", Ok(vec![Text("C:\\k")])),
            (
                "--node-ip=${NODE_IP}",
                Ok(vec![Text("--node-ip="), Variable("NODE_IP")]),
            ),
            ("${A}${secret:b.c}", Ok(vec![Variable("A"), Secret("b.c")])),
            ("$${A}$", Ok(vec![Text("${"), Text("A}$")])),
            ("${A", Err("`${` without `}` in `${A`".to_owned())),
            ("${a b}", Err("`${a b}` is not a name".to_owned())),
            ("${file:x}", Err("`${file:x}` is not a name".to_owned())),
        ];
        for (text, wanted) in table {
            assert_eq!(pieces(text), wanted, "{text}");
        }
    }

    #[test]
    fn log_settings_are_trimmed_and_read_as_go_reads_them() {
        let table = [
            ("LOG_FILE_SIZE", " 100Mi\n", Some("100Mi")),
            ("LOG_FILE_SIZE", "1.5Gi", Some("1.5Gi")),
            ("LOG_FILE_SIZE", "100MB", None),
            ("LOG_FILE_SIZE", "Mi", None),
            ("LOG_FILE_AGE", "168h", Some("168h")),
            ("LOG_FILE_AGE", "1h30m", Some("1h30m")),
            ("LOG_FILE_AGE", "0", Some("0")),
            ("LOG_FILE_AGE", "7d", None),
            ("LOG_FILE_AGE", "168", None),
            ("LOG_FILE_AGE", "-1h", None),
            ("LOG_FLUSH_INTERVAL", "notaduration", None),
            ("LOG_FLUSH_INTERVAL", "", Some("")),
        ];
        for (name, text, wanted) in table {
            let read = log_setting(name, text).expect("one of them").ok();
            assert_eq!(read.as_deref(), wanted, "{name} {text}");
        }
        assert_eq!(log_setting("NO_PROXY", " x"), None);
    }

    #[test]
    fn a_duration_has_its_length() {
        let table = [
            ("1h30m", Some(5_400.0)),
            ("10s", Some(10.0)),
            ("0", Some(0.0)),
            ("0s", Some(0.0)),
            ("1.5s", Some(1.5)),
            ("10", None),
            ("-1s", None),
            ("", None),
        ];
        for (text, wanted) in table {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let mut secrets = Secrets::default();
        secrets.set("TOKEN", "hunter2");
        assert_eq!(format!("{secrets:?}"), r#"{"TOKEN"}"#);
    }
}
