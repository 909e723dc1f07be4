//! Rules for MachineHealthChecks: how long a Windows machine may take.

use crate::{
    common::{OS_ID, Site, nearest, seconds},
    documents::Object,
    finding::Finding,
    machine_set,
};
use dormer_profile::yaml_tree::{Node, Position};

/// Shortest time to start: feature, reboot, files and updates take half an hour.
const STARTUP_MIN: u64 = 30 * 60;
/// What the Machine API takes where nothing is set, in seconds.
const STARTUP_DEFAULT: u64 = 10 * 60;
/// Shortest time for which a node may not be Ready: a reboot with updates lasts up to 20 minutes, and the kubelet's start
/// follows. With a shorter one an upgrade in place waits.
const UNREADY_MIN: u64 = 30 * 60;

pub(crate) fn check(object: &Object<'_>, site: &Site<'_>, found: &mut Vec<Finding>) {
    let root = &object.root;
    let spec = root.get("spec");
    let selector = spec.and_then(|it| it.get("selector"));
    let labels = selector.and_then(|it| it.get("matchLabels"));
    let any = selector.is_some_and(|selector| {
        let empty = |key: &str| {
            selector
                .get(key)
                .is_none_or(|it| it.entries().is_empty() && it.elements().is_empty())
        };
        empty("matchLabels") && empty("matchExpressions")
    });
    if any {
        let place = nearest(root, &["spec", "selector"]);
        found.push(Finding::new(
            "health-check-selector",
            place,
            "the selector takes every Machine",
        ));
    }
    if !any && !names_windows(selector) && !takes_windows(labels, site) {
        return;
    }
    startup(root, found);
    for condition in spec
        .and_then(|it| it.get("unhealthyConditions"))
        .map(Node::elements)
        .unwrap_or_default()
    {
        unready(condition, found);
    }
    let most = spec.and_then(|it| it.get("maxUnhealthy"));
    match most.map(|it| (it.text(), it.position)) {
        Some((Some("100%"), place)) => all(place, "`maxUnhealthy` is 100 %", found),
        Some(_) => {}
        None => all(
            nearest(root, &["spec"]),
            "without `maxUnhealthy` it is 100 %",
            found,
        ),
    }
}

fn all(place: Position, message: &str, found: &mut Vec<Finding>) {
    found.push(Finding::new("max-unhealthy", place, message));
}

/// Whether an expression of the selector takes machines by the label of Windows ones.
fn names_windows(selector: Option<&Node>) -> bool {
    let all = selector.and_then(|it| it.get("matchExpressions"));
    let all = all.map(Node::elements).unwrap_or_default();
    all.iter().any(|expression| {
        let text = |key: &str| expression.get(key).and_then(Node::text);
        let values = expression.get("values").map(Node::elements);
        let values = values.unwrap_or_default();
        let is_windows = |value: &Node| value.text() == Some("Windows");
        let names = match text("operator") {
            Some("In") => values.iter().any(is_windows),
            operator => operator == Some("Exists"),
        };
        text("key") == Some(OS_ID) && names
    })
}

/// Whether it takes Windows machines: by the label, or those of a Windows MachineSet that is linted beside it.
fn takes_windows(labels: Option<&Node>, site: &Site<'_>) -> bool {
    let labels = labels.map(Node::entries).unwrap_or_default();
    let of = |name: &str| labels.iter().find(|(key, _)| key.name == name);
    if let Some((_, os)) = of(OS_ID) {
        return os
            .text()
            .is_some_and(|it| it.eq_ignore_ascii_case("windows"));
    }
    let mut sets = site
        .objects
        .iter()
        .filter(|it| it.kind == "MachineSet" && machine_set::is_windows(it));
    sets.any(|set| {
        let template = set.root.at(&["spec", "template", "metadata", "labels"]);
        let has = |name: &str| template.and_then(|it| it.get(name)).and_then(Node::text);
        !labels.is_empty()
            && labels
                .iter()
                .all(|(key, value)| has(&key.name) == value.text())
    })
}

fn startup(root: &Node, found: &mut Vec<Finding>) {
    let node = root.at(&["spec", "nodeStartupTimeout"]);
    let said = node.and_then(Node::text);
    let time = match said {
        None => Some(STARTUP_DEFAULT),
        Some(text) => seconds(text),
    };
    let Some(time) = time.filter(|time| *time != 0 && *time < STARTUP_MIN) else {
        return;
    };
    let place = node.map_or_else(|| nearest(root, &["spec"]), |it| it.position);
    let message = match said {
        None => "no `nodeStartupTimeout` is set, so a Machine without a Node is deleted after 10 minutes".to_owned(),
        Some(_) => format!("a Machine without a Node is deleted after {} minutes", time / 60),
    };
    let finding = Finding::new("startup-timeout", place, message);
    found.push(match node {
        Some(node) => finding.replace(node.position, "40m"),
        None => finding,
    });
}

fn unready(condition: &Node, found: &mut Vec<Finding>) {
    if condition.get("type").and_then(Node::text) != Some("Ready") {
        return;
    }
    let Some(node) = condition.get("timeout") else {
        return;
    };
    let Some(time) = node
        .text()
        .and_then(seconds)
        .filter(|time| *time < UNREADY_MIN)
    else {
        return;
    };
    let message = format!(
        "a Machine is deleted once its node was not Ready for {} minutes",
        time / 60
    );
    found.push(
        Finding::new("unhealthy-timeout", node.position, message).replace(node.position, "30m"),
    );
}
