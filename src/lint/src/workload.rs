//! Rules for workloads: which nodes their pods find, and what Windows does not know.

mod fields;
mod images;

use crate::{
    common::{Site, cased, close, filled, nearest, selected, strayed},
    documents::Object,
    finding::Finding,
    paste,
};
use dormer_profile::yaml_tree::{Node, Position, Value};
use dormer_support::windows;
use fields::{CONTAINER, POD, SPECS};
use images::{image_release, images_of_two_builds, is_windows_image};

/// Label of a node's operating system.
const OS: &str = "kubernetes.io/os";
/// Label of a node's Windows.
const BUILD: &str = "node.kubernetes.io/windows-build";

/// Terms of a pod's required node affinity.
const REQUIRED: [&str; 4] = [
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
];

/// Fields of a toleration.
const TOLERATION: [&str; 5] = ["key", "operator", "value", "effect", "tolerationSeconds"];
/// Effects of taints.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// API versions that Kubernetes 1.33 and later do not serve, and what took their place.
const GONE: [(&str, &str, &str); 12] = [
    ("extensions/v1beta1", "Deployment", "apps/v1"),
    ("extensions/v1beta1", "DaemonSet", "apps/v1"),
    ("extensions/v1beta1", "ReplicaSet", "apps/v1"),
    ("apps/v1beta1", "Deployment", "apps/v1"),
    ("apps/v1beta1", "StatefulSet", "apps/v1"),
    ("apps/v1beta2", "Deployment", "apps/v1"),
    ("apps/v1beta2", "DaemonSet", "apps/v1"),
    ("apps/v1beta2", "ReplicaSet", "apps/v1"),
    ("apps/v1beta2", "StatefulSet", "apps/v1"),
    ("batch/v1beta1", "CronJob", "batch/v1"),
    ("policy/v1beta1", "PodDisruptionBudget", "policy/v1"),
    (
        "autoscaling/v2beta2",
        "HorizontalPodAutoscaler",
        "autoscaling/v2",
    ),
];
/// Fields of a security context that Windows does not know.
const LINUX_ONLY: [&str; 11] = [
    "privileged",
    "runAsUser",
    "runAsGroup",
    "seLinuxOptions",
    "capabilities",
    "allowPrivilegeEscalation",
    "readOnlyRootFilesystem",
    "procMount",
    "fsGroup",
    "supplementalGroups",
    "seccompProfile",
];
/// The other operator's name in OLM.
const WMCO: &str = "windows-machine-config-operator";

pub(crate) fn check(object: &Object<'_>, site: &Site<'_>, found: &mut Vec<Finding>) {
    let root = &object.root;
    let of = (object.api_version.as_str(), object.kind.as_str());
    if let Some((_, _, now)) = GONE
        .iter()
        .find(|(version, kind, _)| (*version, *kind) == of)
    {
        let place = nearest(root, &["apiVersion"]);
        let value = root.get("apiVersion").map_or(place, |it| it.position);
        let finding = Finding::new(
            "api-version",
            value,
            format!("`{}` is served no more", of.0),
        );
        found.push(
            finding
                .mend(format!("write `apiVersion: {now}`"))
                .replace(value, *now),
        );
    }
    if object.kind == "Subscription"
        && root.at(&["spec", "name"]).and_then(Node::text) == Some(WMCO)
    {
        let place = nearest(root, &["spec", "name"]);
        found.push(Finding::new(
            "other-operator",
            place,
            "it installs the Windows Machine Config Operator",
        ));
    }
    let Some(pod) = pod_of(object, found) else {
        return;
    };
    pod_spec(pod, site, found);
}

/// The pod's spec of a workload, with its structure checked on the way.
fn pod_of<'a>(object: &'a Object<'_>, found: &mut Vec<Finding>) -> Option<&'a Node> {
    let root = &object.root;
    let spec = root.get("spec");
    match object.kind.as_str() {
        "Pod" => {
            strayed(
                root,
                &["apiVersion", "kind", "metadata", "spec", "status"],
                "a Pod",
                found,
            );
            spec
        }
        "CronJob" => spec?.at(&["jobTemplate", "spec", "template", "spec"]),
        kind => {
            let (_, known) = SPECS.iter().find(|(name, _)| *name == kind)?;
            strayed(
                root,
                &["apiVersion", "kind", "metadata", "spec", "status"],
                &format!("a {kind}"),
                found,
            );
            let spec = spec?;
            strayed(spec, known, &format!("a {kind}'s `spec`"), found);
            let template = spec.get("template")?;
            strayed(template, &["metadata", "spec"], "a `template`", found);
            match spec.at(&["selector", "matchLabels"]) {
                Some(selector) => selected(selector, template.at(&["metadata", "labels"]), found),
                // One that stands elsewhere is found there.
                None if kind != "Job"
                    && spec.get("selector").is_none()
                    && !misplaced(root, "selector") =>
                {
                    let place = nearest(root, &["spec"]);
                    found.push(Finding::new(
                        "selector-labels",
                        place,
                        format!("the {kind} has no `selector`"),
                    ));
                }
                None => {}
            }
            template.get("spec")
        }
    }
}

/// Whether a key stands at a level where it has no effect.
fn misplaced(root: &Node, key: &str) -> bool {
    let template = root.at(&["spec", "template"]);
    let spec = template.and_then(|it| it.get("spec"));
    [Some(root), template, spec]
        .iter()
        .flatten()
        .any(|it| it.get(key).is_some())
}

fn pod_spec(pod: &Node, site: &Site<'_>, found: &mut Vec<Finding>) {
    cased(pod, &POD, found);
    strayed(pod, &POD, "a pod's `spec`", found);
    let containers = ["initContainers", "containers"]
        .iter()
        .flat_map(|key| pod.get(key).map(Node::elements).unwrap_or_default());
    let containers: Vec<&Node> = containers.collect();
    for container in &containers {
        cased(container, &CONTAINER, found);
        strayed(container, &CONTAINER, "a container", found);
    }
    let selector_node = pod.get("nodeSelector");
    selector(selector_node, found);
    let of_pod = pod.get("tolerations");
    tolerations(of_pod, site, found);
    let images: Vec<(&str, Position)> = containers
        .iter()
        .filter_map(|it| filled(it, &["image"]))
        .collect();
    let class = pod.get("runtimeClassName").and_then(Node::text);
    let classed = class.is_some_and(|class| class_is_windows(class, site));
    let by_os = pod.at(&["os", "name"]).and_then(Node::text) == Some("windows");
    let selects = selector_node.is_some_and(wants_windows) || affinity_wants_windows(pod);
    let windows_image = images.iter().find(|(image, _)| is_windows_image(image));
    if windows_image.is_none() && !selects && !by_os && !classed {
        return;
    }
    scheduled(
        pod,
        windows_image.copied(),
        of_pod,
        class,
        (selects, by_os),
        found,
    );
    let builds = builds(pod, class, site);
    two_builds(&builds, found);
    images_of_two_builds(&images, found);
    let wanted = builds.first().map(|(build, _)| *build);
    for (image, place) in &images {
        image_release(image, *place, wanted, found);
    }
    for container in &containers {
        linux_only(container.get("securityContext"), found);
        shell(container, found);
    }
    linux_only(pod.get("securityContext"), found);
    for key in ["hostPID", "hostIPC", "shareProcessNamespace"] {
        if let Some((key, _)) = pod
            .entry(key)
            .filter(|(_, value)| value.text() == Some("true"))
        {
            let message = format!("Windows has no `{}`", key.name);
            found.push(Finding::new("linux-only-field", key.position, message));
        }
    }
}

/// Whether its pods find Windows nodes, and only those.
fn scheduled(
    pod: &Node,
    image: Option<(&str, Position)>,
    of_pod: Option<&Node>,
    class: Option<&str>,
    (selects, by_os): (bool, bool),
    found: &mut Vec<Finding>,
) {
    // A class brings selector and toleration; whether it does is the class's own matter.
    if class.is_some() {
        return;
    }
    let place = image.map_or_else(|| nearest(pod, &["nodeSelector"]), |(_, place)| place);
    let what = image.map_or("the pod".to_owned(), |(image, _)| format!("`{image}`"));
    if !tolerates(of_pod) {
        let message = format!(
            "{what} runs on Windows only, and the pod does not tolerate the taint of Windows nodes"
        );
        found.push(Finding::new("windows-toleration", place, message));
    }
    if !selects {
        // The scheduler does not read `os`; the kubelet of a Linux node refuses the pod by it (kubernetes.io, *Pods*).
        let remark = if by_os { ": `os` selects none" } else { "" };
        let message =
            format!("{what} runs on Windows only, and the pod selects no Windows node{remark}");
        found.push(Finding::new("windows-selector", place, message));
    }
}

/// Whether a class that is linted beside it is one for Windows; one that is not there may be.
fn class_is_windows(class: &str, site: &Site<'_>) -> bool {
    let known = site
        .objects
        .iter()
        .find(|it| it.kind == "RuntimeClass" && it.name() == Some(class));
    known.is_some_and(|class| {
        class
            .root
            .at(&["scheduling", "nodeSelector"])
            .is_some_and(wants_windows)
    })
}

/// Whether a selector selects Windows nodes, by either label, in any case; a misspelt one is another rule's matter.
pub(crate) fn wants_windows(selector: &Node) -> bool {
    let wants = selector.entries().iter().any(|(key, value)| {
        is_os(&key.name) && value.text().is_some_and(|it| nearly(it, "windows"))
    });
    wants || selector.get(BUILD).is_some()
}

/// Whether a label is that of the operating system, by its old name too, or with a letter or two wrong.
fn is_os(key: &str) -> bool {
    close(key.strip_prefix("beta.").unwrap_or(key), OS)
}

/// Whether two words are one but for their case and a letter or two.
fn nearly(text: &str, word: &str) -> bool {
    close(&text.to_ascii_lowercase(), word)
}

fn affinity_wants_windows(pod: &Node) -> bool {
    let terms = pod.at(&REQUIRED).map(Node::elements).unwrap_or_default();
    let wants = |term: &Node| {
        let all = term
            .get("matchExpressions")
            .map(Node::elements)
            .unwrap_or_default();
        all.iter().any(|expression| {
            let text = |key: &str| expression.get(key).and_then(Node::text);
            let values = expression.get("values").map(Node::elements);
            let values = values.unwrap_or_default();
            let is_windows = |value: &Node| value.text().is_some_and(|it| nearly(it, "windows"));
            // `NotIn [windows]` keeps pods away from Windows nodes, and `In [linux, windows]` takes both.
            let of_os = text("key").is_some_and(is_os);
            let only_windows = !values.is_empty() && values.iter().all(is_windows);
            let of_build = text("key") == Some(BUILD);
            match text("operator") {
                Some("In") => of_build || of_os && only_windows,
                Some("Exists") => of_build,
                _ => false,
            }
        })
    };
    !terms.is_empty() && terms.iter().all(wants)
}

/// Whether tolerations let a pod onto Windows nodes; a wrong case is another rule's matter.
pub(crate) fn tolerates(tolerations: Option<&Node>) -> bool {
    let all = tolerations.map(Node::elements).unwrap_or_default();
    all.iter().any(|one| {
        let text = |key: &str| one.get(key).and_then(Node::text).unwrap_or_default();
        let exists = text("operator") == "Exists";
        let of_key = text("key") == "os" || (text("key").is_empty() && exists);
        // The taint's effect is NoSchedule; one that does not exist is another rule's matter.
        let of_effect = !["PreferNoSchedule", "NoExecute"].contains(&text("effect"));
        of_key && of_effect && (exists || nearly(text("value"), "windows"))
    })
}

/// Checks tolerations: the case of their fields, their effect, and the taint's value.
pub(crate) fn tolerations(tolerations: Option<&Node>, site: &Site<'_>, found: &mut Vec<Finding>) {
    let all = tolerations.map(Node::elements).unwrap_or_default();
    let right = site.flavour.taint();
    // A pod may stand both spellings of the taint, as the classes that dormer makes do.
    let fits = all.iter().any(|one| {
        let is = |key: &str, text: &str| one.get(key).and_then(Node::text) == Some(text);
        is("key", "os") && (is("value", right) || is("operator", "Exists"))
    });
    for one in all {
        cased(one, &TOLERATION, found);
        strayed(one, &TOLERATION, "a toleration", found);
        taint_effect(one, found);
        let of_os = one.get("key").and_then(Node::text) == Some("os");
        let Some(value) = one.get("value").filter(|_| of_os && !fits) else {
            continue;
        };
        let is = value.text().unwrap_or_default();
        if is != right && nearly(is, "windows") {
            let message = format!("the taint is `os={right}`, and `{is}` does not tolerate it");
            let finding = Finding::new("taint-value", value.position, message);
            found.push(
                finding
                    .mend(format!("write `value: {right}`"))
                    .replace(value.position, right),
            );
        }
    }
}

/// Checks the effect of a taint, or of a toleration, where it may be absent (kubernetes v1.33,
/// `pkg/apis/core/validation/validation.go`, `validateTaintEffect`).
pub(crate) fn taint_effect(of: &Node, found: &mut Vec<Finding>) {
    let Some(effect) = of.get("effect") else {
        return;
    };
    let is = effect.text().unwrap_or_default();
    if is.is_empty() || EFFECTS.contains(&is) || paste::has_placeholder(is) {
        return;
    }
    let message = format!("there is no effect `{is}`");
    let finding = Finding::new("taint-effect", effect.position, message);
    let meant = EFFECTS
        .iter()
        .find(|it| nearly(is, &it.to_ascii_lowercase()));
    found.push(match meant {
        Some(meant) => finding
            .mend(format!("write `effect: {meant}`"))
            .replace(effect.position, *meant),
        None => finding,
    });
}

/// Checks a node selector: old or misspelt labels, the system, the form and the age of the build.
pub(crate) fn selector(selector: Option<&Node>, found: &mut Vec<Finding>) {
    for (key, value) in selector.map(Node::entries).unwrap_or_default() {
        let text = value.text().unwrap_or_default();
        if let Some(now) = key
            .name
            .strip_prefix("beta.")
            .filter(|it| [OS, "kubernetes.io/arch"].contains(it))
        {
            let message = format!("`{}` is the old name of `{now}`", key.name);
            let finding = Finding::new("os-label", key.position, message);
            found.push(
                finding
                    .mend(format!("write `{now}`"))
                    .replace(key.position, now),
            );
        }
        if is_os(&key.name) && !key.name.ends_with(OS) {
            let message = format!("no node has the label `{}`", key.name);
            let finding = Finding::new("os-key", key.position, message);
            found.push(
                finding
                    .mend(format!("write `{OS}`"))
                    .replace(key.position, OS),
            );
        }
        if is_os(&key.name) && !text.is_empty() && !paste::has_placeholder(text) {
            os_value(&key.name, text, value.position, found);
        }
        if key.name == BUILD && !text.is_empty() {
            build(text, value.position, found);
        }
    }
}

/// Checks the operating system that a selector wants: the kubelet labels its node with Go's name of it.
fn os_value(key: &str, text: &str, place: Position, found: &mut Vec<Finding>) {
    const SYSTEMS: [&str; 2] = ["windows", "linux"];
    if SYSTEMS.contains(&text) {
        return;
    }
    let message = format!("no node has `{key}: {text}`");
    let finding = Finding::new("os-value", place, message);
    let meant = SYSTEMS.into_iter().find(|it| nearly(text, it));
    found.push(match meant {
        Some(meant) => finding
            .mend(format!("write `{meant}`"))
            .replace(place, meant),
        None => finding,
    });
}

fn build(text: &str, place: Position, found: &mut Vec<Finding>) {
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() != 3 || !text.starts_with("10.0.") {
        let whole = parts
            .iter()
            .find(|it| it.len() == 5)
            .copied()
            .unwrap_or("20348");
        let finding = Finding::new(
            "windows-build",
            place,
            format!("`{text}` is no build as nodes have it"),
        );
        found.push(finding.mend(format!(
            "write `10.0.{whole}`: major, minor and build, with no update"
        )));
    } else if let Some(release) = windows::release(text, "").filter(|it| it.refused.is_some()) {
        let message = format!("`{text}` is {}, which is not supported", release.name);
        found.push(Finding::new("windows-build", place, message));
    }
}

/// Builds that a pod asks for, with their places: of its selector, of its required affinity, and of its class where that
/// is linted beside it.
fn builds<'a>(pod: &'a Node, class: Option<&str>, site: &'a Site<'_>) -> Vec<(&'a str, Position)> {
    let own = pod.at(&["nodeSelector", BUILD]);
    let terms = pod.at(&REQUIRED).map(Node::elements).unwrap_or_default();
    let expressions = terms
        .iter()
        .filter_map(|term| term.get("matchExpressions"))
        .flat_map(Node::elements);
    let named = expressions.filter(|it| {
        let text = |key: &str| it.get(key).and_then(Node::text);
        text("key") == Some(BUILD) && text("operator") == Some("In")
    });
    let values = named
        .filter_map(|it| it.get("values"))
        .flat_map(Node::elements);
    let mut all: Vec<(&str, Position)> = own
        .into_iter()
        .chain(values)
        .filter_map(|it| Some((it.text()?, it.position)))
        .collect();
    let class = site
        .objects
        .iter()
        .find(|it| it.kind == "RuntimeClass" && class.is_some() && it.name() == class);
    let of_class = class.and_then(|it| it.root.at(&["scheduling", "nodeSelector", BUILD]));
    if let Some(of_class) = of_class.and_then(Node::text)
        && let Some((_, place)) = all.first()
    {
        // The place is the pod's: the class may be right for others.
        all.insert(0, (of_class, *place));
    }
    all
}

/// Two builds of Windows for one pod.
fn two_builds(builds: &[(&str, Position)], found: &mut Vec<Finding>) {
    let Some((first, _)) = builds.first() else {
        return;
    };
    if let Some((other, place)) = builds.iter().find(|(build, _)| build != first) {
        let message = format!("the pod asks for the build `{other}` beside `{first}`");
        found.push(Finding::new("two-builds", *place, message));
    }
}

fn linux_only(context: Option<&Node>, found: &mut Vec<Finding>) {
    for (key, value) in context.map(Node::entries).unwrap_or_default() {
        let off = value.text() == Some("false") || matches!(value.value, Value::Null);
        if LINUX_ONLY.contains(&key.name.as_str()) && !off {
            let message = format!("Windows has no `{}`", key.name);
            found.push(Finding::new("linux-only-field", key.position, message));
        }
    }
}

/// An image of PowerShell has `pwsh.exe` and no `powershell.exe`.
fn shell(container: &Node, found: &mut Vec<Finding>) {
    let image = container
        .get("image")
        .and_then(Node::text)
        .unwrap_or_default();
    let first = container
        .get("command")
        .map(Node::elements)
        .unwrap_or_default()
        .first();
    let Some(first) = first.filter(|_| image.starts_with("mcr.microsoft.com/powershell")) else {
        return;
    };
    let program = first.text().unwrap_or_default();
    if program.eq_ignore_ascii_case("powershell.exe") || program.eq_ignore_ascii_case("powershell")
    {
        let message = format!("`{image}` has no `{program}`");
        let finding = Finding::new("shell", first.position, message);
        found.push(finding.replace(first.position, "pwsh.exe"));
    }
}
