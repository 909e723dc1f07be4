//! The written inventory, docs/inventory.md: its tables, and what in a cluster speaks of dormer.

use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/inventory.md");

/// Kinds that tell of dormer, but are no trace of it: Events and requests for certificates end by themselves, and the
/// chart takes accounts, rights and its namespace away.
pub const NO_TRACES: [&str; 12] = [
    "Event",
    "CertificateSigningRequest",
    "Namespace",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    // Made by the API server from the kinds.
    "APIService",
    // Secrets of dormer's namespace are people's, and so are its ConfigMaps.
    "ConfigMap",
];

/// One row of a table.
pub struct WrittenRow {
    /// Patterns of things.
    pub things: Vec<String>,
    /// Its last column.
    pub fate: String,
}

/// The rows under this heading; none if there is no such heading.
#[must_use]
pub fn rows(heading: &str) -> Vec<WrittenRow> {
    let section = PAGE.split_once(heading).map_or("", |(_, section)| section);
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let mut columns = line.trim_matches('|').split(" | ");
        let things = columns.next().unwrap_or_default();
        let things = things.split('`').skip(1).step_by(2).map(str::to_owned);
        WrittenRow {
            things: things.collect(),
            fate: columns.last().unwrap_or_default().trim().to_owned(),
        }
    };
    lines.map(row).collect()
}

/// Whether a pattern stands for a thing.
#[must_use]
pub fn fits(pattern: &str, thing: &str) -> bool {
    let pattern = pattern.to_lowercase();
    let mut rest = &*thing.to_lowercase();
    let mut parts = pattern.split('*');
    let Some(after) = rest.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    rest = after;
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The things that no row with this fate names.
pub fn unnamed<'a>(
    rows: &[WrittenRow],
    fate: impl Fn(&str) -> bool,
    things: impl IntoIterator<Item = &'a String>,
) -> Vec<&'a String> {
    let rows: Vec<&WrittenRow> = rows.iter().filter(|row| fate(&row.fate)).collect();
    let named = |thing: &str| {
        let mut patterns = rows.iter().flat_map(|row| &row.things);
        patterns.any(|pattern| fits(pattern, thing))
    };
    let things = things.into_iter();
    things.filter(|thing| !named(thing)).collect()
}

/// What of an object speaks of dormer: `KIND annotation KEY` and the like, and of dormer's own kinds every object.
#[must_use]
pub fn traces(object: &Value) -> Vec<String> {
    let ours = |text: &str| {
        // The simulated world's own marks.
        text.to_lowercase().contains("dormer") && !text.starts_with("fleet.dormer.io/")
    };
    let word = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let kind = word(&object["kind"]);
    let name = word(&object["metadata"]["name"]);
    let mut found = Vec::new();
    if word(&object["apiVersion"]).starts_with("dormer.io/") {
        found.push(format!("{kind} {name}"));
    }
    if ours(&name) {
        found.push(format!("{kind} name {name}"));
    }
    for (field, shown) in [("annotations", "annotation"), ("labels", "label")] {
        let all = object["metadata"][field].as_object();
        for (key, value) in all.into_iter().flatten() {
            let value = word(value);
            if ours(key) {
                found.push(format!("{kind} {shown} {key}"));
            } else if ours(&value) {
                found.push(format!("{kind} {shown} {key}={value}"));
            }
        }
    }
    let conditions = object["status"]["conditions"].as_array();
    let types = conditions.into_iter().flatten();
    let types = types.map(|it| word(&it["type"])).filter(|it| ours(it));
    found.extend(types.map(|it| format!("{kind} condition {it}")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_people_read_them() {
        for (pattern, thing) in [
            (r"folder:C:\k*", r"folder:C:\K\cni"),
            (r"file:C:\k\*", r"file:C:\k\a\b.exe"),
            ("service:kubelet", "service:kubelet"),
            ("a*b*c", "a1b2c"),
            ("*c", "c"),
        ] {
            assert!(fits(pattern, thing), "{pattern} {thing}");
        }
        for (pattern, thing) in [
            ("service:kubelet", "service:kubelet2"),
            (r"file:C:\k\*", r"file:C:\kube"),
            ("a*b*c", "a1c"),
            ("a*c", "b1c"),
        ] {
            assert!(!fits(pattern, thing), "{pattern} {thing}");
        }
    }
}
