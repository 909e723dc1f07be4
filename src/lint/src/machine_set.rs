//! Rules for MachineSets.

use crate::{
    common::{
        CLUSTER, OS_ID, SET, Site, VALUE, added, close, filled, is_there, nearest, selected,
        unknown,
    },
    documents::Object,
    finding::Finding,
    names, paste, providers, workload,
};
use dormer_profile::yaml_tree::Node;

/// Secret with the user data of Windows machines.
pub(crate) const USER_DATA: &str = "windows-user-data";
/// Namespace of the Machine API.
pub(crate) const MACHINE_API: &str = "openshift-machine-api";
/// Labels of the template's Machines.
const LABELS: [&str; 4] = ["spec", "template", "metadata", "labels"];
/// Labels that reach the Node.
const NODE_LABELS: [&str; 5] = ["spec", "template", "spec", "metadata", "labels"];
pub(crate) fn check(object: &Object<'_>, site: &Site<'_>, found: &mut Vec<Finding>) {
    let root = &object.root;
    fields(root, found);
    labels(object, found);
    if !is_windows(object) {
        return;
    }
    os_id(object, site, found);
    user_data(root, found);
    namespace(root, found);
    names::check(object, found);
    providers::check(root, found);
}

/// Whether its machines are to be Windows ones, by whatever says so.
pub(crate) fn is_windows(object: &Object<'_>) -> bool {
    let root = &object.root;
    let text = |path: &[&str]| root.at(path).and_then(Node::text).unwrap_or_default();
    let provider = |path: &[&str]| text(&[&VALUE, path].concat()).to_ascii_lowercase();
    let labelled = [
        &LABELS[..],
        &NODE_LABELS[..],
        &["metadata", "labels"],
        &["spec", "selector", "matchLabels"],
    ]
    .iter()
    .any(|path| {
        let is = root
            .at(path)
            .and_then(|it| it.get(OS_ID))
            .and_then(Node::text);
        is.is_some_and(|it| close(&it.to_ascii_lowercase(), "windows"))
    });
    labelled
        || provider(&["userDataSecret", "name"]) == USER_DATA
        || provider(&["osDisk", "osType"]) == "windows"
        || provider(&["image", "offer"]).contains("windows")
        || provider(&["image", "sku"]).contains("windows")
        || object
            .name()
            .is_some_and(|it| it.split(['-', '.']).any(|part| part.starts_with("win")))
}

fn fields(root: &Node, found: &mut Vec<Finding>) {
    unknown(
        root,
        &["apiVersion", "kind", "metadata", "spec", "status"],
        "a MachineSet",
        found,
    );
    let Some(spec) = root.get("spec") else { return };
    let of_spec = [
        "replicas",
        "selector",
        "template",
        "deletePolicy",
        "minReadySeconds",
        "authoritativeAPI",
    ];
    unknown(spec, &of_spec, "a MachineSet's `spec`", found);
    let Some(template) = spec.get("template") else {
        return;
    };
    unknown(
        template,
        &["metadata", "spec"],
        "a MachineSet's `template`",
        found,
    );
    let of_machine = [
        "metadata",
        "providerSpec",
        "providerID",
        "taints",
        "lifecycleHooks",
        "authoritativeAPI",
        "versions",
    ];
    if let Some(spec) = template.get("spec") {
        unknown(spec, &of_machine, "a Machine's `spec`", found);
        let taints = spec.get("taints").map(Node::elements).unwrap_or_default();
        for taint in taints {
            let of_taint = ["key", "value", "effect", "timeAdded"];
            unknown(taint, &of_taint, "a taint", found);
            workload::taint_effect(taint, found);
        }
    }
}

fn labels(object: &Object<'_>, found: &mut Vec<Finding>) {
    let root = &object.root;
    let selector = root.at(&["spec", "selector", "matchLabels"]);
    let template = root.at(&LABELS);
    if let Some(selector) = selector {
        selected(selector, template, found);
    }
    cluster_id(root, found);
    let Some((name, _)) = filled(root, &["metadata", "name"]) else {
        return;
    };
    // Where the template has another name, the rule of the selector says so.
    let of_selector = selector.and_then(|it| it.get(SET));
    if let Some(node) = of_selector
        && let Some(is) = node.text().filter(|it| !paste::has_placeholder(it))
        && is != name
    {
        let message = format!("`{SET}` is `{is}`, and the MachineSet is `{name}`");
        found.push(Finding::new("set-label", node.position, message));
    }
}

/// All names of the infrastructure have to be one.
fn cluster_id(root: &Node, found: &mut Vec<Finding>) {
    let labels = [
        &["metadata", "labels"][..],
        &["spec", "selector", "matchLabels"],
        &LABELS,
    ];
    let mut known: Option<&str> = None;
    for path in labels {
        let of = root.at(path).and_then(|it| it.get(CLUSTER));
        let Some((node, id)) = of.and_then(|node| Some((node, node.text()?))) else {
            continue;
        };
        if paste::has_placeholder(id) {
            continue;
        }
        if let Some(known) = known.filter(|known| *known != id) {
            let message = format!("`{CLUSTER}` is `{id}`; above it is `{known}`");
            found.push(Finding::new("cluster-id", node.position, message));
        }
        known = known.or(Some(id));
    }
    let tags = root.at(&[&VALUE[..], &["tags"]].concat());
    for tag in tags.map(Node::elements).unwrap_or_default() {
        let name = tag.get("name");
        let id = name
            .and_then(Node::text)
            .and_then(|it| it.strip_prefix("kubernetes.io/cluster/"));
        if let (Some(name), Some(id)) = (name, id)
            && !paste::has_placeholder(id)
            && let Some(known) = known.filter(|known| *known != id)
        {
            let message = format!("the tag names the cluster `{id}`; above it is `{known}`");
            found.push(Finding::new("cluster-id", name.position, message));
        }
    }
}

fn os_id(object: &Object<'_>, site: &Site<'_>, found: &mut Vec<Finding>) {
    let root = &object.root;
    let labels = root.at(&LABELS);
    let label = labels.and_then(|it| it.get(OS_ID));
    if let Some(label) = label {
        if label.text() != Some("Windows") && !label.text().is_some_and(paste::has_placeholder) {
            let is = label.text().unwrap_or_default();
            let finding = Finding::new(
                "os-id-label",
                label.position,
                format!("`{OS_ID}` is `{is}`"),
            );
            found.push(
                finding
                    .mend(format!("write `{OS_ID}: Windows`"))
                    .replace(label.position, "Windows"),
            );
        }
        return;
    }
    let elsewhere = [&["metadata", "labels"][..], &NODE_LABELS]
        .iter()
        .find_map(|path| {
            let (key, _) = root.at(path)?.entry(OS_ID)?;
            Some(key.position)
        });
    let finding = match elsewhere {
        Some(place) => Finding::new(
            "os-id-label",
            place,
            format!("`{OS_ID}` stands where it labels no Machine"),
        ),
        None => {
            let place = nearest(root, &LABELS);
            Finding::new(
                "os-id-label",
                place,
                format!("the template has no label `{OS_ID}`"),
            )
        }
    };
    let edit = labels.and_then(|labels| added(site, labels, &format!("{OS_ID}: Windows")));
    found.push(finding.edit(edit));
}

fn user_data(root: &Node, found: &mut Vec<Finding>) {
    let path = [&VALUE[..], &["userDataSecret", "name"]].concat();
    match root.at(&path) {
        Some(name)
            if name
                .text()
                .is_some_and(|it| it == USER_DATA || paste::has_placeholder(it)) => {}
        Some(name) => {
            let is = name.text().unwrap_or_default();
            let finding = Finding::new(
                "user-data",
                name.position,
                format!("the user data is that of `{is}`"),
            );
            found.push(finding.replace(name.position, USER_DATA));
        }
        None => {
            let place = nearest(root, &path);
            found.push(Finding::new(
                "user-data",
                place,
                "no `userDataSecret` is named",
            ));
        }
    }
    let namespace = [&VALUE[..], &["userDataSecret", "namespace"]].concat();
    if let Some((is, place)) = filled(root, &namespace).filter(|(is, _)| *is != MACHINE_API) {
        let finding = Finding::new(
            "user-data",
            place,
            format!("the user data is looked for in `{is}`"),
        );
        found.push(
            finding
                .mend(format!("write `namespace: {MACHINE_API}`"))
                .replace(place, MACHINE_API),
        );
    }
}

fn namespace(root: &Node, found: &mut Vec<Finding>) {
    match filled(root, &["metadata", "namespace"]) {
        Some((MACHINE_API, _)) => {}
        Some((is, place)) => {
            let finding = Finding::new("namespace", place, format!("the namespace is `{is}`"));
            found.push(finding.replace(place, MACHINE_API));
        }
        None if is_there(root.at(&["metadata", "namespace"])) => {}
        None => {
            let place = nearest(root, &["metadata"]);
            found.push(Finding::new("namespace", place, "no namespace is named"));
        }
    }
}
