//! What several rules share.

use crate::{Flavour, documents::Object, finding::Finding, paste};
use dormer_profile::{
    suggestion::near,
    yaml_tree::{Key, Node, Position, Value},
};

/// Everything that is linted at once.
pub(crate) struct Site<'a> {
    /// Which taint the nodes have.
    pub(crate) flavour: Flavour,
    /// All objects.
    pub(crate) objects: &'a [Object<'a>],
    /// The whole text.
    pub(crate) text: &'a str,
}

/// Label of a Windows machine, on its template.
pub(crate) const OS_ID: &str = "machine.openshift.io/os-id";
/// Label with the infrastructure's name.
pub(crate) const CLUSTER: &str = "machine.openshift.io/cluster-api-cluster";
/// Label with the MachineSet's name.
pub(crate) const SET: &str = "machine.openshift.io/cluster-api-machineset";

/// What the provider reads.
pub(crate) const VALUE: [&str; 5] = ["spec", "template", "spec", "providerSpec", "value"];

/// Text at a path that is filled: no placeholder of a guide.
pub(crate) fn filled<'a>(node: &'a Node, path: &[&str]) -> Option<(&'a str, Position)> {
    let node = node.at(path)?;
    let text = node.text()?;
    (!paste::has_placeholder(text)).then_some((text, node.position))
}

/// Position of the deepest key of a path that is there.
pub(crate) fn nearest(node: &Node, path: &[&str]) -> Position {
    let mut place = node.position;
    let mut node = node;
    for key in path {
        match node.entry(key) {
            Some((found, next)) => {
                place = found.position;
                node = next;
            }
            None => break,
        }
    }
    place
}

/// Line that adds `key: value` to a map, above its first key. `None`: the map is empty, or in one line.
pub(crate) fn added(site: &Site<'_>, map: &Node, entry: &str) -> Option<crate::Edit> {
    let (Key { position, .. }, _) = map.entries().first()?;
    let line_start = site.text[..position.start]
        .rfind('\n')
        .map_or(0, |at| at + 1);
    let before = &site.text[line_start..position.start];
    before.bytes().all(|b| b == b' ').then(|| crate::Edit {
        start: line_start,
        end: line_start,
        text: format!("{before}{entry}\n"),
    })
}

/// Labels of a selector that the template does not have with that value.
pub(crate) fn selected(selector: &Node, labels: Option<&Node>, found: &mut Vec<Finding>) {
    for (key, value) in selector.entries() {
        let has = labels.and_then(|labels| labels.get(&key.name));
        let same = has.is_some_and(|has| has.text() == value.text());
        if same {
            continue;
        }
        let is = has
            .and_then(Node::text)
            .map_or("has no such label".to_owned(), |is| format!("has `{is}`"));
        let wants = value.text().unwrap_or_default();
        let message = format!(
            "the selector wants `{}: {wants}`, and the template {is}",
            key.name
        );
        found.push(Finding::new("selector-labels", value.position, message));
    }
}

/// Seconds of a time as `1h30m`, or of a number of seconds.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let mut sum = 0.0_f64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        sum += amount * unit;
        rest = &rest[end..];
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time of years is a mistake anyway"
    )]
    (!text.is_empty()).then_some(sum as u64)
}

/// Keys of a map without effect there.
pub(crate) fn unknown(map: &Node, known: &[&str], whole: &str, found: &mut Vec<Finding>) {
    misplaced(map, known, whole, false, found);
}

/// Keys of a map that belong elsewhere. Newer versions of Kubernetes have fields that no list here knows.
pub(crate) fn strayed(map: &Node, known: &[&str], whole: &str, found: &mut Vec<Finding>) {
    misplaced(map, known, whole, true, found);
}

fn misplaced(
    map: &Node,
    known: &[&str],
    whole: &str,
    only_strayed: bool,
    found: &mut Vec<Finding>,
) {
    for (key, _) in map.entries() {
        if known.contains(&key.name.as_str()) || is_cased(&key.name, known) {
            continue;
        }
        if only_strayed && home(&key.name).is_none() {
            continue;
        }
        let message = format!("`{}` is no field of {whole}", key.name);
        let finding = Finding::new("misplaced-field", key.position, message);
        let near = near(&key.name, known.iter().copied());
        found.push(match (home(&key.name), near) {
            (Some(home), _) => finding.mend(format!(
                "move it to {home}: its indentation decides where it belongs"
            )),
            (None, Some(near)) => {
                let finding = finding.mend(format!("did you mean `{near}`?"));
                match close(near, &key.name) && map.get(near).is_none() {
                    true => finding.replace(key.position, near),
                    false => finding,
                }
            }
            (None, None) => finding,
        });
    }
}

/// Where a field belongs that is often a column off.
fn home(key: &str) -> Option<&'static str> {
    Some(match key {
        "selector" | "replicas" | "strategy" => "`spec`",
        "matchLabels" | "matchExpressions" => "`spec.selector`",
        "nodeSelector"
        | "tolerations"
        | "runtimeClassName"
        | "affinity"
        | "nodeName"
        | "volumes"
        | "containers"
        | "hostNetwork"
        | "serviceAccountName"
        | "restartPolicy"
        | "terminationGracePeriodSeconds" => "the pod's `spec`, beside `containers`",
        "labels" | "annotations" | "name" | "namespace" => "`metadata`",
        "image" | "command" | "args" | "ports" | "resources" | "env" | "imagePullPolicy" => {
            "the container"
        }
        "providerSpec" => "`spec.template.spec`",
        "osType" => "`osDisk`",
        "userDataSecret" => "`providerSpec.value`",
        _ => return None,
    })
}

/// Whether a key is a known one but for its case, which another rule finds.
pub(crate) fn is_cased(key: &str, known: &[&str]) -> bool {
    known
        .iter()
        .any(|it| *it != key && it.eq_ignore_ascii_case(key))
}

/// Keys that differ from the known ones by their case only.
pub(crate) fn cased(map: &Node, known: &[&str], found: &mut Vec<Finding>) {
    for (key, _) in map.entries() {
        let right = known
            .iter()
            .find(|it| **it != key.name && it.eq_ignore_ascii_case(&key.name));
        if let Some(right) = right {
            let message = format!("`{}` is written `{right}`", key.name);
            let finding = Finding::new("field-case", key.position, message);
            found.push(
                finding
                    .mend(format!("write `{right}`"))
                    .replace(key.position, *right),
            );
        }
    }
}

/// Whether two words differ by one or two letters at most.
pub(crate) fn close(one: &str, other: &str) -> bool {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let cost = before + usize::from(a != b);
            before = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(before + 1);
        }
    }
    row[other.len()] <= 2
}

/// Whether a node is there and not nothing.
pub(crate) fn is_there(node: Option<&Node>) -> bool {
    node.is_some_and(|node| match &node.value {
        Value::Null => false,
        Value::Text(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_kubernetes_reads_them() {
        for (text, wanted) in [
            ("10m", Some(600)),
            ("1h30m", Some(5_400)),
            ("600s", Some(600)),
            ("0", Some(0)),
            ("1.5h", Some(5_400)),
            ("10 minutes", None),
            ("m", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }
}
