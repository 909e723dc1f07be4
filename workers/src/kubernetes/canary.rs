//! Canary pods: what a node has to carry before it counts as joined. One pod is really scheduled on the node and
//! answers there; another, on a Linux node, then reaches it.
//!
//! Nothing is remembered between two passes: the state is the pods'. Each pass makes the next pod, or judges those that
//! are there. The pods go once all checks have passed. Pods of a node that never passes stay for a person to look at, and
//! go with the Node.

use super::{
    KubernetesExecutor,
    api::{call, call_if_there},
    keys,
    verify::{Checked, checked, failed, not_checked},
};
use dormer_proto::{
    checks::{CheckName, NodeCheck},
    message::Failure,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

/// Port on which the canary answers.
const PORT: u16 = 8_080;
/// How long an attempt to connect lasts; the kubelet repeats it.
const CONNECT: &str = "--timeout=5s";
/// On the peer: UID of the canary that it reaches for.
const REACHES: &str = "dormer.io/reaches";
/// The canary's containers: one answers, and each of the others makes one attempt until it succeeds.
const ANSWERS: &str = "answers";
const SERVICE_IP: &str = "service-ip";
const SERVICE_DNS: &str = "service-dns";
/// The peer's container.
const REACH: &str = "reach";

/// A node and what its canary is made of.
#[derive(Debug)]
pub(super) struct Canary<'a> {
    pub(super) node: &'a Node,
    /// Image of agnhost, Kubernetes' own program for tests, of which one name has an image for every Windows build and
    /// for Linux.
    pub(super) image: &'a str,
    pub(super) namespace: &'a str,
    /// The cluster's domain. Windows takes a name with a dot for a whole one (kubernetes.io, *Networking on Windows*).
    pub(super) domain: &'a str,
}

impl KubernetesExecutor {
    /// One pass of the canary's checks.
    pub(super) async fn canary(&self, node: &Node, image: &str) -> Vec<NodeCheck> {
        let Some(namespace) = self.settings.canaries.as_deref() else {
            let why =
                "the payload names a canary, and dormer has no --canary-namespace to run it in";
            return vec![checked(CheckName::Canary, not_checked(why))];
        };
        let canary = Canary {
            node,
            image,
            namespace,
            domain: &self.settings.cluster_domain,
        };
        // A person asked for these checks: an error of the API server does not pass them.
        self.pass(&canary)
            .await
            .unwrap_or_else(|failure| vec![checked(CheckName::Canary, failed(failure.message))])
    }

    async fn pass(&self, of: &Canary<'_>) -> Result<Vec<NodeCheck>, Failure> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), of.namespace);
        let (name, peer_name) = (of.name(), of.peer_name());
        let Some(pod) = find(&api, of.namespace, &name).await? else {
            create(&api, of.namespace, of.pod()).await?;
            let made = format!("Pod {}/{name} was just made", of.namespace);
            return Ok(vec![checked(CheckName::Canary, failed(made))]);
        };
        if let Some(why) = of.outdated(&pod) {
            delete(&api, of.namespace, &pod).await?;
            let why = format!("Pod {}/{name} is made again: {why}", of.namespace);
            return Ok(vec![checked(CheckName::Canary, failed(why))]);
        }
        let mut checks = judge(&pod);
        if checks.iter().any(NodeCheck::failed) {
            return Ok(checks);
        }
        checks.push(checked(
            CheckName::Logs,
            self.logs(std::slice::from_ref(&pod)).await,
        ));
        let peer = find(&api, of.namespace, &peer_name).await?;
        let reached = match &peer {
            Some(peer) => match of.peer_outdated(peer, &pod) {
                Some(why) => {
                    delete(&api, of.namespace, peer).await?;
                    failed(format!(
                        "Pod {}/{peer_name} is made again: {why}",
                        of.namespace
                    ))
                }
                None => reached(peer),
            },
            None => {
                create(&api, of.namespace, of.peer(&pod)).await?;
                failed(format!("Pod {}/{peer_name} was just made", of.namespace))
            }
        };
        checks.push(checked(CheckName::PodToPod, reached));
        if !checks.iter().any(NodeCheck::failed) {
            delete(&api, of.namespace, &pod).await?;
            if let Some(peer) = &peer {
                delete(&api, of.namespace, peer).await?;
            }
        }
        Ok(checks)
    }
}

async fn find(api: &Api<Pod>, namespace: &str, name: &str) -> Result<Option<Pod>, Failure> {
    call_if_there("get", &format!("Pod {namespace}/{name}"), api.get(name)).await
}

async fn create(api: &Api<Pod>, namespace: &str, pod: Value) -> Result<(), Failure> {
    let what = format!(
        "Pod {namespace}/{}",
        pod["metadata"]["name"].as_str().unwrap_or_default()
    );
    let pod: Pod = serde_json::from_value(pod)
        .map_err(|error| Failure::lasting("CanaryUnwritable", format!("{what}: {error}")))?;
    let params = PostParams::default();
    call("create", &what, api.create(&params, &pod))
        .await
        .map(drop)
}

async fn delete(api: &Api<Pod>, namespace: &str, pod: &Pod) -> Result<(), Failure> {
    let name = pod.name_any();
    let this = kube::api::Preconditions {
        uid: pod.uid(),
        resource_version: None,
    };
    let params = DeleteParams::default().preconditions(this);
    let what = format!("Pod {namespace}/{name}");
    call_if_there("delete", &what, api.delete(&name, &params))
        .await
        .map(drop)
}

impl Canary<'_> {
    fn name(&self) -> String {
        format!("canary-{}", self.node.name_any())
    }

    fn peer_name(&self) -> String {
        format!("peer-of-{}", self.name())
    }

    /// A pod that only this node may take, whatever its taints are: a cordon, too, for the node is checked before it is
    /// opened.
    pub(super) fn pod(&self) -> Value {
        let connect = |name: &str, host: &str| {
            let to = format!("{host}:$(KUBERNETES_SERVICE_PORT)");
            self.container(name, &["connect", &to, CONNECT])
        };
        let mut answers = self.container(ANSWERS, &["netexec", &format!("--http-port={PORT}")]);
        answers["readinessProbe"] = json!({"httpGet": {"path": "/healthz", "port": PORT}, "periodSeconds": 2, "timeoutSeconds": 5});
        let only =
            json!({"key": "metadata.name", "operator": "In", "values": [self.node.name_any()]});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": self.metadata(&self.name()),
        "spec": {
            "os": {"name": "windows"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchFields": [only]}]}}},
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsNonRoot": true, "windowsOptions": {"runAsUserName": "ContainerUser"}},
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                answers,
                connect(SERVICE_IP, "$(KUBERNETES_SERVICE_HOST)"),
                connect(SERVICE_DNS, &format!("kubernetes.default.svc.{}", self.domain)),
            ]}})
    }

    /// A pod on some Linux node that connects to the canary.
    pub(super) fn peer(&self, canary: &Pod) -> Value {
        let address = canary.status.as_ref().and_then(|it| it.pod_ip.as_deref());
        let to = format!("{}:{PORT}", address.unwrap_or_default());
        let mut container = self.container(REACH, &["connect", &to, CONNECT]);
        container["securityContext"] =
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        let mut metadata = self.metadata(&self.peer_name());
        metadata["annotations"] = json!({REACHES: canary.uid()});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65_532, "seccompProfile": {"type": "RuntimeDefault"}},
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "restartPolicy": "OnFailure",
                "terminationGracePeriodSeconds": 1,
                "containers": [container]}})
    }

    fn container(&self, name: &str, arguments: &[&str]) -> Value {
        json!({"name": name, "image": self.image, "imagePullPolicy": "Always", "args": arguments,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}})
    }

    /// The garbage collector takes the pods away when their Node goes.
    fn metadata(&self, name: &str) -> Value {
        let (key, value) = keys::OURS;
        json!({"name": name, "namespace": self.namespace, "labels": {key: value},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": self.node.name_any(),
                "uid": self.node.uid()}]})
    }

    /// Why a pod that is there says nothing about this node and image.
    fn outdated(&self, pod: &Pod) -> Option<String> {
        let status = pod.status.as_ref();
        let phase = status
            .and_then(|it| it.phase.as_deref())
            .unwrap_or_default();
        let message = status
            .and_then(|it| it.message.as_deref())
            .unwrap_or_default();
        let mut owners = pod.owner_references().iter();
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice());
        let mut images = containers
            .unwrap_or_default()
            .iter()
            .map(|it| it.image.as_deref());
        if pod.metadata.deletion_timestamp.is_some() {
            Some("it is being deleted".to_owned())
        } else if !owners.any(|owner| Some(&owner.uid) == self.node.uid().as_ref()) {
            Some("it was for an earlier Node of this name".to_owned())
        } else if images.any(|image| image != Some(self.image)) {
            Some("the payload names another image".to_owned())
        } else if phase == "Failed" {
            Some(format!("it failed: {message}"))
        } else {
            None
        }
    }

    fn peer_outdated(&self, peer: &Pod, canary: &Pod) -> Option<String> {
        let reaches = peer.annotations().get(REACHES);
        match reaches == canary.uid().as_ref() {
            true => self.outdated(peer),
            false => Some("it reaches for an earlier canary".to_owned()),
        }
    }
}

/// The checks that the canary alone answers, each with its own result.
pub(super) fn judge(pod: &Pod) -> Vec<NodeCheck> {
    let what = format!(
        "Pod {}/{}",
        pod.namespace().unwrap_or_default(),
        pod.name_any()
    );
    let mut checks = vec![checked(CheckName::Canary, scheduled(pod, &what))];
    if !checks[0].failed() {
        let pulled = pulled(pod, ANSWERS, &what);
        let there = pulled.is_ok();
        checks.push(checked(CheckName::ImagePull, pulled));
        if there {
            checks.push(checked(CheckName::NodeToPod, probed(pod, &what)));
            checks.push(checked(
                CheckName::ServiceIp,
                connected(pod, SERVICE_IP, &what),
            ));
            checks.push(checked(
                CheckName::ServiceDns,
                connected(pod, SERVICE_DNS, &what),
            ));
        }
    }
    checks
}

fn scheduled(pod: &Pod, what: &str) -> Checked {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    match (node, unscheduled(pod)) {
        (Some(node), _) => Ok(format!("{what} is on {node}")),
        (None, Some(why)) => failed(format!("the scheduler finds no room for {what}: {why}")),
        (None, None) => failed(format!("the scheduler has not looked at {what} yet")),
    }
}

/// Why the scheduler does not bind it.
fn unscheduled(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let waits = conditions
        .iter()
        .find(|it| it.type_ == "PodScheduled" && it.status == "False")?;
    Some(waits.message.clone().unwrap_or_default())
}

fn status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let all = pod.status.as_ref()?.container_statuses.as_ref()?;
    all.iter().find(|it| it.name == container)
}

/// `imagePullPolicy` is `Always`: a container that has begun proves that the registry answered this node.
fn pulled(pod: &Pod, container: &str, what: &str) -> Checked {
    let Some(found) = status(pod, container) else {
        return failed(format!("the kubelet says nothing of {what} yet"));
    };
    let state = found.state.as_ref();
    match state.and_then(|state| state.waiting.as_ref()) {
        Some(waiting) if found.restart_count == 0 => {
            let reason = waiting.reason.as_deref().unwrap_or("it waits");
            let message = waiting.message.as_deref().unwrap_or_default();
            failed(format!("{what} does not start: {reason} {message}").trim_end())
        }
        _ if state.is_none() => failed(format!("{what} does not start yet")),
        _ => Ok(found.image.clone()),
    }
}

fn probed(pod: &Pod, what: &str) -> Checked {
    let address = pod.status.as_ref().and_then(|it| it.pod_ip.as_deref());
    match (status(pod, ANSWERS).is_some_and(|it| it.ready), address) {
        (true, Some(address)) => Ok(format!("its kubelet reaches {what} on {address}:{PORT}")),
        (true, None) => failed(format!("{what} has no address")),
        (false, _) => failed(format!(
            "the node's kubelet does not reach {what} on port {PORT}: its readiness probe fails"
        )),
    }
}

/// An attempt to connect that a container makes: the kubelet repeats it until it succeeds.
fn connected(pod: &Pod, container: &str, what: &str) -> Checked {
    let found = status(pod, container);
    let ended = |found: &ContainerStatus| {
        let now = found.state.as_ref().and_then(|it| it.terminated.clone());
        now.or_else(|| {
            found
                .last_state
                .as_ref()
                .and_then(|it| it.terminated.clone())
        })
    };
    match found.and_then(ended) {
        Some(ended) if ended.exit_code == 0 => Ok(format!("{what} connects")),
        Some(ended) => failed(
            format!(
                "{what} does not connect: {}",
                ended.message.as_deref().map_or("", str::trim)
            )
            .trim_end_matches([' ', ':']),
        ),
        None => failed(format!("{what} has not connected yet")),
    }
}

/// Whether the peer reaches the canary. A cluster without a free Linux node, or a Linux node that does not get the image,
/// says nothing about the Windows node.
pub(super) fn reached(peer: &Pod) -> Checked {
    let what = format!(
        "Pod {}/{}",
        peer.namespace().unwrap_or_default(),
        peer.name_any()
    );
    let node = peer
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref());
    let Some(node) = node else {
        return match unscheduled(peer) {
            Some(why) => not_checked(format!("no Linux node takes {what}: {why}")),
            None => failed(format!("the scheduler has not looked at {what} yet")),
        };
    };
    let waiting = status(peer, REACH).and_then(|it| it.state.as_ref()?.waiting.as_ref());
    let pulls = waiting.and_then(|it| it.reason.as_deref());
    if let Some(reason @ ("ErrImagePull" | "ImagePullBackOff" | "InvalidImageName")) = pulls {
        return not_checked(format!(
            "the Linux node {node} does not get the image of {what}: {reason}"
        ));
    }
    connected(peer, REACH, &format!("{what} on {node}"))
}

#[cfg(test)]
#[path = "canary_tests.rs"]
mod tests;
