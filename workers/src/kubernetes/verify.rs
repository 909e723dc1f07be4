//! Checks of a Node before it counts as joined: whether it serves, beyond its condition Ready. Each check has its own
//! result. A check that cannot be executed from here is "not checked", with the reason, never "ok"; a node that joins fails
//! by it, but for those of a list (`CheckName::may_be_unchecked`).

use super::{
    ANSWER_MAX, KubernetesExecutor,
    api::call,
    error::failure,
    guard::LiveNode,
    keys,
    kubelet::{self, ServingCertificate},
    powered_off::{OUT_OF_SERVICE, SHUT_DOWN},
    template::Template,
};
use crate::source;
use dormer_proto::{
    checks::{CheckName, CheckResult, NodeCheck, NodeExpectation},
    machine::{MachineApi, MachineRef, NAMED_ITEMS_MAX},
    message::{Failure, cut, listed},
};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, LogParams},
};
use serde_json::Value;
use tokio::time::timeout;

/// Most pods of one node that are looked at.
const PODS_MAX: u32 = 500;
/// Most bytes of a log that are requested: the check only needs to see that there are any.
const LOG_BYTES: i64 = 1_024;
/// Label of the Windows build, which the kubelet sets (kubernetes v1.33, `pkg/kubelet/kubelet_node_status_windows.go`).
const BUILD: &str = "node.kubernetes.io/windows-build";
/// Taints that keep every new pod away until a controller takes them off, or a person [`OUT_OF_SERVICE`] (kubernetes v1.33,
/// `staging/src/k8s.io/cloud-provider/api/well_known_taints.go` and `staging/src/k8s.io/api/core/v1/well_known_taints.go`).
const STARTUP_TAINTS: [&str; 6] = [
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    OUT_OF_SERVICE,
    SHUT_DOWN,
];

/// Objects read about a node.
pub(super) struct NodeReading<'a> {
    pub(super) live: &'a LiveNode,
    /// Its machine's object, with the API that keeps it; or why it is not known.
    pub(super) machine: Result<(MachineApi, &'a DynamicObject), String>,
    /// Its pods; or why they are not known.
    pub(super) pods: Result<Vec<Pod>, String>,
    pub(super) kubelet: ServingCertificate,
}

impl KubernetesExecutor {
    /// Checks a Node that was just read, and is to join.
    pub(super) async fn verify(
        &self,
        live: &LiveNode,
        machine: (&MachineRef, &DynamicObject),
        expect: &NodeExpectation,
    ) -> Vec<NodeCheck> {
        let (of, object) = machine;
        let name = live.node.name_any();
        let read = NodeReading {
            live,
            machine: Ok((of.api, object)),
            pods: self.pods_of(&name).await.map_err(|failure| failure.message),
            kubelet: self.presented(&live.node).await,
        };
        let mut checks = judge(&read, expect);
        // It would only repeat what these say.
        if let Some(image) = &expect.canary
            && !checks.iter().any(NodeCheck::failed)
        {
            checks.extend(self.canary(&live.node, image).await);
        }
        checks.into_iter().map(NodeCheck::for_a_join).collect()
    }

    /// Checks a Node at a person's wish, by its name.
    ///
    /// # Errors
    /// The Node cannot be read, or there is none.
    pub async fn verify_node(
        &self,
        name: &str,
        expect: &NodeExpectation,
    ) -> Result<Vec<NodeCheck>, Failure> {
        let Some(live) = self.live_node(name).await? else {
            let message = format!("there is no Node {name}");
            return Err(Failure::lasting("NodeGone", message));
        };
        let pods = self.pods_of(name).await.map_err(|failure| failure.message);
        let logs = match &pods {
            Ok(pods) => self.logs(pods).await,
            Err(why) => not_checked(why),
        };
        let machine = self.machine_on(&live.node).await;
        let machine = machine
            .as_ref()
            .map(|(api, object)| (*api, object))
            .map_err(Clone::clone);
        let read = NodeReading {
            live: &live,
            machine,
            pods,
            kubelet: self.presented(&live.node).await,
        };
        let mut checks = judge(&read, expect);
        match &expect.canary {
            Some(image) => checks.extend(self.canary(&live.node, image).await),
            None => checks.push(checked(CheckName::Logs, logs)),
        }
        Ok(checks)
    }

    /// Requests one line of a pod's log through the API server.
    pub(super) async fn logs(&self, pods: &[Pod]) -> Checked {
        let runs = |pod: &&Pod| {
            let status = pod.status.as_ref();
            status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
        };
        let Some(pod) = pods.iter().find(runs) else {
            return not_checked("no pod runs on the node");
        };
        let namespace = pod.namespace().unwrap_or_default();
        let name = pod.name_any();
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice());
        let first = containers.unwrap_or_default().first();
        let params = LogParams {
            container: first.map(|container| container.name.clone()),
            tail_lines: Some(1),
            limit_bytes: Some(LOG_BYTES),
            ..LogParams::default()
        };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let what = format!("the log of Pod {namespace}/{name}");
        match timeout(ANSWER_MAX, api.logs(&name, &params)).await {
            Ok(answer) => log_answer(&what, answer.map(drop)),
            Err(_) => failed(format!(
                "the API server does not answer with {what} in {} s",
                ANSWER_MAX.as_secs()
            )),
        }
    }

    /// The machine that a Node's annotations name: in the Machine API in one, in Cluster API in two.
    async fn machine_on(&self, node: &Node) -> Result<(MachineApi, DynamicObject), String> {
        let note = |key: &str| node.annotations().get(key).cloned();
        let of_openshift = note(keys::NODE_LINK);
        let of_openshift = of_openshift.and_then(|both| {
            let (namespace, name) = both.split_once('/')?;
            Some((namespace.to_owned(), name.to_owned()))
        });
        let of_cluster = note("cluster.x-k8s.io/cluster-namespace").zip(note(keys::CLUSTER_LINK));
        let served = source::served(&self.client)
            .await
            .map_err(|error| format!("the API server does not say what it serves: {error}"))?;
        let mut linked = served.into_iter().filter_map(|api| match api {
            MachineApi::OpenShift => Some((api, of_openshift.clone()?)),
            MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => {
                Some((api, of_cluster.clone()?))
            }
            MachineApi::Host => None,
        });
        let Some((api, (namespace, name))) = linked.next() else {
            return Err("no Machine is named on it".to_owned());
        };
        let machines: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &namespace, &source::machines(api));
        let what = format!("Machine {namespace}/{name}");
        let found = call("get", &what, machines.get(&name)).await;
        found
            .map(|object| (api, object))
            .map_err(|failure| failure.message)
    }

    async fn pods_of(&self, node: &str) -> Result<Vec<Pod>, Failure> {
        let api: Api<Pod> = Api::all(self.client.clone());
        let params = ListParams::default()
            .fields(&format!("spec.nodeName={node}"))
            .limit(PODS_MAX);
        let what = format!("the pods of Node {node}");
        Ok(call("list", &what, api.list(&params)).await?.items)
    }

    /// Serving certificate that the node's kubelet presents to clients.
    async fn presented(&self, node: &Node) -> ServingCertificate {
        let Some(dialer) = &self.kubelets else {
            return ServingCertificate::Unknown("this process does not reach kubelets".to_owned());
        };
        match address(node) {
            Some(address) => kubelet::presented(dialer, &address).await,
            None => ServingCertificate::Unknown("the Node has no InternalIP".to_owned()),
        }
    }
}

/// An error between the API server and the kubelet has a status of 500 or above (kubernetes v1.33,
/// `staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/status.go`, `ErrorToAPIStatus`).
fn log_answer(what: &str, answer: Result<(), kube::Error>) -> Checked {
    match answer {
        Ok(()) => Ok(what.to_owned()),
        Err(kube::Error::Api(status)) if status.code >= 500 => failed(format!(
            "the API server does not get {what} from the kubelet: {}",
            status.message
        )),
        Err(error) => not_checked(failure("read", what, &error).message),
    }
}

fn address(node: &Node) -> Option<String> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let internal = addresses.iter().find(|one| one.type_ == "InternalIP")?;
    Some(internal.address.clone())
}

/// The results of all checks, in the order of [`CheckName`].
pub(super) fn judge(read: &NodeReading<'_>, expect: &NodeExpectation) -> Vec<NodeCheck> {
    let node = &read.live.node;
    vec![
        checked(CheckName::Version, version(node, expect)),
        checked(CheckName::Runtime, runtime(node, expect)),
        checked(CheckName::Os, label_is(node, "kubernetes.io/os", "windows")),
        checked(CheckName::Architecture, architecture(node)),
        checked(CheckName::Build, build(node, expect)),
        checked(CheckName::Labels, labels(node, read.machine.as_ref())),
        checked(CheckName::Taints, taints(node, read.machine.as_ref())),
        checked(CheckName::Certificate, certificate(node, read)),
        checked(CheckName::DaemonSets, daemon_sets(read)),
        checked(CheckName::Settled, ready_for_long(read, expect)),
    ]
}

/// Result of a check: passed, with the finding; failed; or not checked.
pub(super) type Checked = Result<String, (CheckResult, String)>;

pub(super) fn checked(check: CheckName, result: Checked) -> NodeCheck {
    let (result, said) = match result {
        Ok(said) => (CheckResult::Ok, said),
        Err(found) => found,
    };
    NodeCheck {
        check: check.to_string(),
        result,
        said: cut(said),
    }
}

pub(super) fn failed(said: impl Into<String>) -> Checked {
    Err((CheckResult::Failed, said.into()))
}

pub(super) fn not_checked(why: impl Into<String>) -> Checked {
    Err((CheckResult::NotChecked, why.into()))
}

fn version(node: &Node, expect: &NodeExpectation) -> Checked {
    let info = node.status.as_ref().and_then(|it| it.node_info.as_ref());
    let Some(runs) = info.map(|info| info.kubelet_version.as_str()) else {
        return failed("the Node does not say which kubelet it runs");
    };
    let Some(wanted) = expect.kubelet_minor else {
        return not_checked("the minor version of the payload's kubelet is not known here");
    };
    match runs.starts_with(&format!("v1.{wanted}.")) {
        true => Ok(format!("kubelet {runs}")),
        false => failed(format!(
            "the kubelet is {runs}, and the payload's is 1.{wanted}"
        )),
    }
}

/// The settings of containerd are written for the manifest's release (docs/settings.md).
fn runtime(node: &Node, expect: &NodeExpectation) -> Checked {
    let Some(wanted) = &expect.containerd else {
        return not_checked("the release of the payload's containerd is not known here");
    };
    let info = node.status.as_ref().and_then(|it| it.node_info.as_ref());
    let runtime = info.map_or("", |info| info.container_runtime_version.as_str());
    match runtime.strip_prefix("containerd://") {
        // A build without tags has a commit in place of a version.
        Some(is) if !is_release(is) => {
            not_checked(format!("containerd is {is}, which names no release"))
        }
        Some(is) if is_of(is, wanted) => Ok(format!("containerd {is}")),
        Some(is) => failed(format!(
            "containerd is {is}, and the payload's is {wanted}: `containerd:` of payload.yaml names another release than \
             the program's"
        )),
        None => failed(format!(
            "the runtime is {runtime}, and the payload's is containerd {wanted}"
        )),
    }
}

/// Whether a version begins with a release, such as `v2.1.4` and `2.0.5+azure`; a commit such as `0a1b2c3d` does not.
fn is_release(version: &str) -> bool {
    let mut parts = version.trim_start_matches('v').split('.');
    let number =
        |part: Option<&str>| part.is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()));
    let major = parts
        .next()
        .is_some_and(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()));
    major && number(parts.next())
}

/// Whether a version such as `v2.1.4` is of the release `2.1`.
fn is_of(version: &str, release: &str) -> bool {
    let rest = version.trim_start_matches('v').strip_prefix(release);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
}

fn label_is(node: &Node, key: &str, wanted: &str) -> Checked {
    match node.labels().get(key) {
        Some(value) if value == wanted => Ok(value.clone()),
        Some(value) => failed(format!("the label {key} is {value}, not {wanted}")),
        None => failed(format!("the label {key} is missing; it should be {wanted}")),
    }
}

/// Both the label that the scheduler reads, and the value that the kubelet reports.
fn architecture(node: &Node) -> Checked {
    let info = node.status.as_ref().and_then(|it| it.node_info.as_ref());
    let found = info.map(|info| info.architecture.as_str());
    let found = found.filter(|it| !it.is_empty()).unwrap_or("amd64");
    label_is(node, "kubernetes.io/arch", found)
}

fn build(node: &Node, expect: &NodeExpectation) -> Checked {
    match &expect.os_build {
        Some(build) => label_is(node, BUILD, build),
        None => not_checked("nobody has logged in to the host from here"),
    }
}

fn labels(node: &Node, machine: Result<&(MachineApi, &DynamicObject), &String>) -> Checked {
    let (api, object) = match machine {
        Ok(found) => found,
        Err(why) => return not_checked(why),
    };
    let wanted = Template::of(*api, object).labels;
    let there = node.labels();
    let differ = wanted
        .iter()
        .filter(|(key, value)| there.get(*key) != Some(value));
    let differ: Vec<_> = differ
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    match differ.is_empty() {
        true => Ok(count(
            wanted.len(),
            "label of its template",
            "labels of its template",
        )),
        false => failed(format!(
            "the Node lacks labels of its template: {}",
            listed(&differ, NAMED_ITEMS_MAX)
        )),
    }
}

fn taints(node: &Node, machine: Result<&(MachineApi, &DynamicObject), &String>) -> Checked {
    let there = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let there = there.unwrap_or_default();
    let waits: Vec<_> = there
        .iter()
        .filter(|taint| STARTUP_TAINTS.contains(&taint.key.as_str()))
        .map(|taint| taint.key.clone())
        .collect();
    if !waits.is_empty() {
        return failed(format!(
            "no new pod comes here: {}",
            listed(&waits, NAMED_ITEMS_MAX)
        ));
    }
    let (api, object) = match machine {
        Ok(found) => found,
        Err(why) => return not_checked(why),
    };
    let wanted = match api {
        MachineApi::OpenShift => object.data["spec"]["taints"].as_array(),
        MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 | MachineApi::Host => None,
    };
    let wanted = wanted.map(Vec::as_slice).unwrap_or_default();
    let same = |taint: &Taint, wanted: &Value| {
        wanted["key"] == taint.key.as_str() && wanted["effect"] == taint.effect.as_str()
    };
    let lacks: Vec<_> = wanted
        .iter()
        .filter(|wanted| !there.iter().any(|taint| same(taint, wanted)))
        .map(|wanted| wanted["key"].as_str().unwrap_or_default().to_owned())
        .collect();
    match lacks.is_empty() {
        true => Ok(count(
            wanted.len(),
            "taint of its template",
            "taints of its template",
        )),
        false => failed(format!(
            "the Node lacks taints of its template: {}",
            listed(&lacks, NAMED_ITEMS_MAX)
        )),
    }
}

fn certificate(node: &Node, read: &NodeReading<'_>) -> Checked {
    let name = node.name_any();
    let ours: Vec<String> = [Some(name), address(node)].into_iter().flatten().collect();
    match &read.kubelet {
        ServingCertificate::Unknown(why) => not_checked(why),
        ServingCertificate::Nothing(why) => failed(format!(
            "the kubelet has no serving certificate, so neither logs nor exec answer: {why}"
        )),
        ServingCertificate::Unreadable(why) => {
            failed(format!("its serving certificate cannot be read: {why}"))
        }
        ServingCertificate::Certificate(leaf) if leaf.self_signed => failed(
            "the kubelet's certificate is its own: its request for a serving certificate was not granted",
        ),
        ServingCertificate::Certificate(leaf)
            if !leaf.names.iter().any(|name| ours.contains(name)) =>
        {
            failed(format!(
                "the kubelet's certificate is for {}, not for {}",
                listed(&leaf.names, NAMED_ITEMS_MAX),
                ours.join(" or ")
            ))
        }
        ServingCertificate::Certificate(leaf) => match read.live.at_ms {
            Some(now) if now > leaf.until_ms => {
                failed("the kubelet's serving certificate has lapsed")
            }
            _ => Ok(format!(
                "issued for {}",
                listed(&leaf.names, NAMED_ITEMS_MAX)
            )),
        },
    }
}

fn daemon_sets(read: &NodeReading<'_>) -> Checked {
    let pods = match &read.pods {
        Ok(pods) => pods,
        Err(why) => return not_checked(why),
    };
    let of_daemon_set = |pod: &&Pod| {
        let mut owners = pod.owner_references().iter();
        owners.any(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true))
            && pod.metadata.deletion_timestamp.is_none()
    };
    let ours: Vec<&Pod> = pods.iter().filter(of_daemon_set).collect();
    let waits: Vec<String> = ours
        .iter()
        .filter(|pod| !is_ready(pod))
        .map(|pod| {
            let namespace = pod.namespace().unwrap_or_default();
            format!("{namespace}/{}", pod.name_any())
        })
        .collect();
    match waits.is_empty() {
        true => Ok(count(
            ours.len(),
            "pod of a DaemonSet",
            "pods of DaemonSets",
        )),
        false => failed(format!(
            "pods of DaemonSets are not ready: {}",
            listed(&waits, NAMED_ITEMS_MAX)
        )),
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// Ready for the time that the pool requires, by the API server's clock: a node that flaps has not joined.
fn ready_for_long(read: &NodeReading<'_>, expect: &NodeExpectation) -> Checked {
    if !read.live.ready() {
        return failed("the Node is not Ready");
    }
    let Some(lasted) = read.live.unchanged_ms() else {
        return not_checked("the API server does not say since when the Node is Ready");
    };
    // The API server's times have whole seconds.
    match lasted.saturating_add(1_000) >= expect.soak_ms {
        true => Ok(format!("Ready for {} s", lasted / 1_000)),
        false => failed(format!(
            "the Node has been Ready for {} s, and has to be so for {} s",
            lasted / 1_000,
            expect.soak_ms / 1_000
        )),
    }
}

fn count(number: usize, one: &str, more: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {more}"),
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
