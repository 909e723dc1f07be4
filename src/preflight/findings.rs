//! Judgement of a cluster's survey: each finding with its object, what is wrong, and what to do.

mod network;
mod secrets;

use super::survey::{ReadObject, Survey, name};
use dormer_lint::{Flavour, Severity, lint};
use dormer_profile::{
    builtin,
    layers::{Layer, stack},
    payload::check_skew,
    yaml,
};
use dormer_proto::other_operator::OtherOperator;
use dormer_support::{
    Refusal,
    version::{self, DOCKER, Minor},
    windows,
};
use dormer_workers::pool::LAYER_KEY;
use network::network;
use secrets::{key, openshift_secrets, userdata};
use serde::Serialize;
use serde_json::{Value, json};

/// Definition of pools, without which dormer has none.
const POOLS: &str = "windowspools.dormer.io";
/// Days before the end of Windows' updates from which on it is a finding.
const END_DAYS: i64 = 180;
/// Definition of gMSA's credential specs.
const GMSA: &str = "gmsacredentialspecs.windows.k8s.io";

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PreflightFinding {
    /// Stable code: a word, or the name of a lint's rule.
    pub(super) code: String,
    /// How bad it is.
    pub(super) severity: Severity,
    /// Object: `Network cluster`.
    pub(super) object: String,
    /// What is wrong.
    pub(super) message: String,
    pub(super) what_to_do: String,
}

/// Findings, in the order in which one mends them.
struct Findings(Vec<PreflightFinding>);

impl Findings {
    fn error(&mut self, code: &str, object: &str, message: impl Into<String>, todo: &str) {
        self.add(Severity::Error, code, object, message.into(), todo);
    }

    fn warning(&mut self, code: &str, object: &str, message: impl Into<String>, todo: &str) {
        self.add(Severity::Warning, code, object, message.into(), todo);
    }

    fn add(&mut self, severity: Severity, code: &str, object: &str, message: String, todo: &str) {
        self.0.push(PreflightFinding {
            code: code.to_owned(),
            severity,
            object: object.to_owned(),
            message,
            what_to_do: todo.to_owned(),
        });
    }
}

pub(super) fn judge(survey: &Survey) -> Vec<PreflightFinding> {
    let mut found = Findings(Vec::new());
    for why in &survey.unread {
        let todo = "give the kubeconfig's account the right to read it, and run preflight again";
        found.error("Unread", "", why.clone(), todo);
    }
    operator(survey, &mut found);
    versions(survey, &mut found);
    if survey.infrastructure.value().is_some() {
        network(survey, &mut found);
        openshift_secrets(survey, &mut found);
    }
    let public = key(survey, &mut found);
    if survey.infrastructure.value().is_some() {
        userdata(survey, public.as_deref(), &mut found);
    }
    manifests(survey, &mut found);
    nodes(survey, &mut found);
    own(survey, &mut found);
    pool_layers(survey, &mut found);
    gmsa(survey, &mut found);
    rights(survey, &mut found);
    found.0
}

fn operator(survey: &Survey, found: &mut Findings) {
    let Some(operator) = &survey.operator else {
        return;
    };
    if let OtherOperator::Runs(what) = &operator.neighbour {
        let todo =
            "end it as it is said, or leave the hosts to it: two operators undo each other's work";
        found.error("AnotherOperatorRuns", "", what.clone(), todo);
        return;
    }
    let installed = (!survey.operator_installed.is_empty()).then(|| {
        let all = survey.operator_installed.join(", ");
        format!("the Windows Machine Config Operator is installed ({all}) and does not run")
    });
    if let Some(what) = operator.idle.clone().or(installed) {
        let todo = "remove its Subscription and ClusterServiceVersion, so that OLM does not start it again";
        found.warning("AnotherOperatorInstalled", "", what, todo);
    }
}

fn versions(survey: &Survey, found: &mut Findings) {
    let served = Minor::parse(&survey.api_server);
    let refused = served.map(version::kubernetes);
    let is = &survey.api_server;
    match refused {
        None => {
            let todo = "check that the kubeconfig names a Kubernetes API server";
            found.error(
                "KubernetesUnread",
                "API server",
                format!("it calls its version {is:?}"),
                todo,
            );
        }
        Some(Err(why)) => {
            let todo = "upgrade the cluster, or take a dormer that knows it: docs/support.md lists the versions";
            let message = format!("Kubernetes {is} is not supported: {why}");
            found.error("KubernetesUnsupported", "API server", message, todo);
        }
        Some(Ok(())) => {}
    }
    let Some(cluster) = survey.cluster_version.value() else {
        return;
    };
    let object = "ClusterVersion version";
    let desired = cluster["status"]["desired"]["version"].as_str();
    if let Some((text, Some(minor))) = desired.map(|text| (text, Minor::parse(text)))
        && let Err(why) = version::openshift(minor)
    {
        let todo = "upgrade the cluster, or take a dormer that knows it: docs/support.md lists the versions";
        let message = format!("OpenShift {text} is not supported: {why}");
        found.error("OpenShiftUnsupported", object, message, todo);
    }
    let condition = |kind: &str| -> Option<&Value> {
        let all = cluster["status"]["conditions"].as_array()?;
        all.iter().find(|it| it["type"] == kind)
    };
    let said = |it: &Value| it["message"].as_str().unwrap_or_default().to_owned();
    if let Some(it) = condition("Progressing").filter(|it| it["status"] == "True") {
        let todo = "wait until it has ended: until then dormer grants no upgrade";
        found.warning(
            "ClusterUpgrades",
            object,
            format!("the cluster is being upgraded: {}", said(it)),
            todo,
        );
    }
    if let Some(it) = condition("Failing").filter(|it| it["status"] == "True") {
        let todo = "mend the cluster's own operators first: oc get clusteroperators";
        found.warning(
            "ClusterFails",
            object,
            format!("the cluster's upgrade fails: {}", said(it)),
            todo,
        );
    }
}

/// Platform of OpenShift, lower case.
fn platform_of(survey: &Survey) -> String {
    let status = survey.infrastructure.value().map(|it| &it["status"]);
    let name = status.and_then(|status| {
        status["platformStatus"]["type"]
            .as_str()
            .or(status["platform"].as_str())
    });
    name.unwrap_or_default().to_ascii_lowercase()
}

/// MachineSets and what belongs to them, by the lint's rules. A server fills in more than people write, so rules
/// about unknown fields do not count here.
fn manifests(survey: &Survey, found: &mut Findings) {
    let none = Vec::new();
    // How long a machine may take to become a node concerns Windows only where the autoscaler makes such machines.
    let cluster_wide = match scales_windows(survey) {
        true => &survey.cluster_autoscalers,
        false => &none,
    };
    // Their targets are MachineSets, and one that was not read would count as absent.
    let autoscalers = match survey.unread_kinds.contains("MachineSet") {
        true => &none,
        false => &survey.autoscalers,
    };
    let items: Vec<Value> = [
        &survey.machine_sets,
        &survey.health_checks,
        autoscalers,
        cluster_wide,
        &survey.runtime_classes,
        &survey.pools,
        &survey.instances,
    ]
    .into_iter()
    .flatten()
    .map(bare)
    .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let Ok(text) = yaml::to_string(&list) else {
        return;
    };
    for it in lint(&text, flavour(survey)) {
        if ["misplaced-field", "placeholder", "callout"].contains(&it.rule) {
            continue;
        }
        found.add(
            it.severity,
            it.rule,
            &it.object,
            format!("{}: {}", it.message, it.why),
            &it.mend,
        );
    }
}

/// Whether a MachineAutoscaler names a MachineSet of Windows machines.
fn scales_windows(survey: &Survey) -> bool {
    let label = "/spec/template/metadata/labels/machine.openshift.io~1os-id";
    let of_windows = |set: &&Value| set.pointer(label).is_some_and(|it| it == "Windows");
    let mut sets = survey.machine_sets.iter().filter(of_windows);
    sets.any(|set| {
        let names = |it: &Value| it["spec"]["scaleTargetRef"]["name"] == name(set);
        survey.autoscalers.iter().any(names)
    })
}

/// Which taint the cluster's Windows nodes have: by the pool's profile, else by the cluster.
fn flavour(survey: &Survey) -> Flavour {
    let of_pool = ours(survey)
        .next()
        .and_then(|it| it["spec"]["profile"].as_str());
    let upstream = of_pool.map_or(survey.infrastructure.value().is_none(), |it| {
        it == "upstream"
    });
    if upstream {
        Flavour::Upstream
    } else {
        Flavour::OpenShift
    }
}

/// Pools of the namespace that dormer reads.
fn ours(survey: &Survey) -> impl Iterator<Item = &Value> {
    survey.pools.iter().filter(|it| is_ours(survey, it))
}

fn is_ours(survey: &Survey, pool: &Value) -> bool {
    namespace(pool) == survey.namespace
}

fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

/// Object without what the server keeps for itself.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| {
            ["name", "namespace", "labels", "annotations"].contains(&key.as_str())
        });
        // It repeats the whole object in one line.
        if let Some(all) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            all.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    object
}

fn nodes(survey: &Survey, found: &mut Findings) {
    let windows_nodes = survey.nodes.iter().filter(|it| {
        it["metadata"]["labels"]["kubernetes.io/os"] == "windows"
            || it["status"]["nodeInfo"]["operatingSystem"] == "windows"
    });
    let server = Minor::parse(&survey.api_server);
    for node in windows_nodes {
        let object = format!("Node {}", name(node));
        let info = &node["status"]["nodeInfo"];
        let text = |key: &str| info[key].as_str().unwrap_or_default();
        if text("containerRuntimeVersion").starts_with("docker:") {
            found.error(
                "NodeRunsDocker",
                &object,
                format!("its runtime is {}", text("containerRuntimeVersion")),
                DOCKER,
            );
        }
        let build: Vec<&str> = text("kernelVersion").split('.').take(3).collect();
        if let Some(refusal) = Refusal::of_host(&build.join("."), text("osImage")) {
            found.error(
                "NodeUnsupported",
                &object,
                refusal.to_string(),
                &refusal.mend(),
            );
        }
        of_the_table(node, &survey.today, found);
        if let (Some(kubelet), Some(server)) = (Minor::parse(text("kubeletVersion")), server)
            && let Err(why) = check_skew(kubelet.minor, server.minor, server.minor)
        {
            let todo =
                "choose a payload whose kubelet fits the API servers: dormer payload list DIR";
            found.error("NodeSkew", &object, why.to_string(), todo);
        }
        let taints = node["spec"]["taints"].as_array();
        if !taints.is_some_and(|all| all.iter().any(|it| it["key"] == "os")) {
            let message = "it has no taint os, so Linux pods land on it and fail";
            let todo = format!(
                "dormer's profiles register nodes with it; meanwhile: kubectl taint node {} os={}:NoSchedule",
                name(node),
                flavour(survey).taint()
            );
            found.warning("NodeWithoutTaint", &object, message, &todo);
        }
    }
}

/// What the support table says of a node's containerd, and of its Windows and the updates of it.
fn of_the_table(node: &Value, today: &str, found: &mut Findings) {
    let object = format!("Node {}", name(node));
    let info = &node["status"]["nodeInfo"];
    let text = |key: &str| info[key].as_str().unwrap_or_default();
    let runtime = text("containerRuntimeVersion");
    let containerd = runtime.strip_prefix("containerd://").and_then(Minor::parse);
    if let Some(Err(why)) = containerd.map(version::containerd) {
        let todo = "choose a payload with a containerd that docs/support.md lists as supported";
        let message = format!("its runtime {runtime} is not supported: {why}");
        found.error("NodeContainerdOld", &object, message, todo);
    }
    let kernel = text("kernelVersion");
    if let Some(kubelet) = Minor::parse(text("kubeletVersion"))
        && let Some(bad) = windows::bad_build(kernel, kubelet)
    {
        let message = format!("its update {kernel} has a known fault: {}", bad.what);
        found.warning("NodeBadUpdate", &object, message, bad.mend);
    }
    let build: Vec<&str> = kernel.split('.').take(3).collect();
    let release = windows::release(&build.join("."), text("osImage"));
    let supported = release.filter(|it| it.refused.is_none());
    if let Some((release, left)) = supported.and_then(|it| Some((it, it.days_left(today)?)))
        && left <= END_DAYS
    {
        let verb = if left < 0 { "ended" } else { "end" };
        let message = format!("the updates of {} {verb} on {}", release.name, release.ends);
        let todo =
            "make the node anew from an image of a later Windows: docs/support.md lists them";
        found.warning("NodeUpdatesEnd", &object, message, todo);
    }
}

fn own(survey: &Survey, found: &mut Findings) {
    let defined = survey.definitions.iter().any(|it| name(it) == POOLS);
    if !defined && !survey.definitions.is_empty() {
        let todo = "kubectl apply -f deploy/crd.yaml, or install the Helm chart, which has it";
        found.error(
            "DefinitionAbsent",
            &format!("CustomResourceDefinition {POOLS}"),
            "it is not applied",
            todo,
        );
    }
    let count = ours(survey).count();
    if count > 1 {
        let message = format!("{count} pools are there; dormer reads the one named windows");
        found.warning("PoolsMany", "WindowsPool", message, "delete the others");
    }
    for pool in survey.pools.iter().filter(|it| !is_ours(survey, it)) {
        let elsewhere = namespace(pool);
        let message = format!(
            "dormer reads the pools of the namespace {} alone: nothing follows this one",
            survey.namespace
        );
        let todo = format!(
            "make it there, then: kubectl -n {elsewhere} delete windowspool {}",
            name(pool)
        );
        let object = format!("WindowsPool {elsewhere}/{}", name(pool));
        found.warning("PoolElsewhere", &object, message, &todo);
    }
    let homes: Vec<&str> = survey
        .instances
        .iter()
        .filter_map(|it| it["metadata"]["namespace"].as_str())
        .collect();
    if homes.len() > 1 {
        let message = format!(
            "the ConfigMap windows-instances is in {}",
            homes.join(" and ")
        );
        let todo = "keep it in the namespace of the operator that configures these hosts, and delete the other";
        found.warning(
            "InstancesTwice",
            "ConfigMap windows-instances",
            message,
            todo,
        );
    }
}

/// Layers that the pool names: each is there, and all of them make a profile.
fn pool_layers(survey: &Survey, found: &mut Findings) {
    let mut stacked = Vec::new();
    for (name, map) in &survey.layers {
        let place = format!("ConfigMap {}/{name}", survey.namespace);
        let layer: Result<Layer, String> = match map {
            ReadObject::Unread(_) => return,
            ReadObject::Absent => Err("it is absent, and spec.layers of the pool names it".into()),
            ReadObject::There(map) => match map["data"][LAYER_KEY].as_str() {
                None => Err(format!("it has no {LAYER_KEY}")),
                Some(text) => Layer::parse(LAYER_KEY, text).map_err(|why| why.to_string()),
            },
        };
        let layer = layer.and_then(|layer| {
            stacked.push(layer);
            let problem = builtin::NAMES.iter().find_map(|profile| {
                let below = builtin::layer(profile).ok()?;
                let above = stacked.iter().filter(|it| it.fits(profile)).cloned();
                stack(&std::iter::once(below).chain(above).collect::<Vec<_>>()).err()
            });
            problem.map_or(Ok(()), |why| Err(why.to_string()))
        });
        if let Err(why) = layer {
            let todo = "correct the ConfigMap, or take its name out of spec.layers";
            found.error("LayerUnusable", &place, why, todo);
            return;
        }
    }
}

fn gmsa(survey: &Survey, found: &mut Findings) {
    let defined = survey.definitions.iter().any(|it| name(it) == GMSA);
    if !defined {
        return;
    }
    let ready = |it: &Value| it["status"]["readyReplicas"].as_u64().unwrap_or(0) > 0;
    let todo = "install the webhook of kubernetes-sigs/windows-gmsa, with its certificate";
    match survey.gmsa_webhooks.first() {
        None if survey.unread_kinds.contains("Deployment") => {}
        None => {
            let message =
                "credential specs of gMSA are defined, and no webhook fills them into pods";
            found.error(
                "GmsaWebhookAbsent",
                &format!("CustomResourceDefinition {GMSA}"),
                message,
                todo,
            );
        }
        Some(webhook) if !survey.gmsa_webhooks.iter().any(ready) => {
            let object = format!("Deployment {}", name(webhook));
            let message = "no replica of the webhook of gMSA is ready, and pods with credential specs are refused";
            found.error(
                "GmsaWebhookAway",
                &object,
                message,
                "see why: kubectl describe deployment, kubectl get events",
            );
        }
        Some(_) => {}
    }
    for spec in &survey.gmsa_specs {
        let object = format!("GMSACredentialSpec {}", name(spec));
        let plugin =
            spec["credspec"]["ActiveDirectoryConfig"]["GroupManagedServiceAccounts"].as_array();
        if plugin.is_none_or(Vec::is_empty) {
            let todo = "generate it with New-CredentialSpec on a host of the domain";
            found.error(
                "GmsaSpecEmpty",
                &object,
                "it names no GroupManagedServiceAccounts",
                todo,
            );
        }
    }
}

fn rights(survey: &Survey, found: &mut Findings) {
    if survey.lacks.is_empty() {
        return;
    }
    let lacks = survey.lacks.join(", ");
    if survey.running {
        let message = format!("the console's account may not {lacks}");
        let todo = "kubectl apply -f deploy/rbac.yaml grants it, or upgrade the chart together with dormer";
        found.error("RightsAbsent", "console", message, todo);
        return;
    }
    let account = survey.account.as_deref();
    let account = account.unwrap_or("of the kubeconfig");
    let message = format!("the account {account} may not {lacks}");
    let todo = "kubectl apply -f deploy/rbac.yaml grants dormer's accounts what it needs; --as ACCOUNT looks with one of them";
    found.error("RightsAbsent", "SelfSubjectAccessReview", message, todo);
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
