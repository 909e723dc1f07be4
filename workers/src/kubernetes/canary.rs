//! Canary pods: what a node has to carry before it counts as joined. One pod is really scheduled on the node and
//! answers there; another, on a Linux node, then reaches it, by its address and by a NodePort of the new node.
//!
//! Nothing is remembered between two passes: the state is the pods'. Each pass makes the next pod, or judges those that
//! are there. The pods go once all checks have passed. Pods of a node that never passes stay for a person to look at, and
//! go with the Node.

use super::{
    ANSWER_MAX, KubernetesExecutor,
    api::{call, call_if_there},
    error::failure,
    keys,
    verify::{Checked, checked, failed, not_checked},
};
use dormer_proto::{
    checks::{CheckName, NodeCheck},
    message::Failure,
};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Node, Pod, Service},
    apimachinery::pkg::apis::meta::v1::Status,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{AttachParams, DeleteParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::fmt::Debug;
use tokio::time::timeout;

/// Prints its version and ends. Kubernetes' own tests run this program by this path, also on Windows (kubernetes v1.36
/// `test/e2e/network/netpol/kubemanager.go`).
const COMMAND: [&str; 2] = ["/agnhost", "--version"];
/// Port on which the canary answers.
const PORT: u16 = 8_080;
/// How long an attempt to connect lasts; the kubelet repeats it.
const CONNECT: &str = "--timeout=5s";
/// On the peer: UID of the canary that it reaches for.
const PEER_OF: &str = "dormer.io/reaches";
/// The canary's containers: one answers, and each of the others makes one attempt until it succeeds.
const ANSWERS: &str = "answers";
const SERVICE_IP: &str = "service-ip";
const SERVICE_DNS: &str = "service-dns";
const OUTBOUND: &str = "outbound";
/// The peer's containers.
const REACH: &str = "reach";
const REACH_NODE: &str = "reach-node";
/// Label of the canary, by which its Service finds it: the UID of its Node.
const OF_NODE: &str = "dormer.io/canary-of";

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
    /// `HOST:PORT` outside of the cluster.
    pub(super) outbound: Option<&'a str>,
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
            outbound: self.settings.outbound.as_deref(),
        };
        // A person asked for these checks: an error of the API server does not pass them.
        self.pass(&canary)
            .await
            .unwrap_or_else(|failure| vec![checked(CheckName::Canary, failed(failure.message))])
    }

    async fn pass(&self, of: &Canary<'_>) -> Result<Vec<NodeCheck>, Failure> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), of.namespace);
        let name = of.name();
        let peer_name = of.peer_name();
        let Some(pod) = find(&api, of.namespace, &name).await? else {
            create(&api, of.namespace, of.pod()).await?;
            let made = format!(
                "Pod {}/{name} was created; its result is not there yet",
                of.namespace
            );
            return Ok(vec![checked(CheckName::Canary, failed(made))]);
        };
        let services: Api<Service> = Api::namespaced(self.client.clone(), of.namespace);
        let service = find(&services, of.namespace, &of.service_name()).await?;
        if let Some(why) = of.outdated(&pod) {
            if let Some(service) = &service {
                delete(&services, of.namespace, service).await?;
            }
            delete(&api, of.namespace, &pod).await?;
            let why = format!("Pod {}/{name} is made again: {why}", of.namespace);
            return Ok(vec![checked(CheckName::Canary, failed(why))]);
        }
        let mut checks = judge(&pod);
        if checks.iter().any(NodeCheck::failed) {
            return Ok(checks);
        }
        let log = self.logs(std::slice::from_ref(&pod)).await;
        // Here a pod runs: a log that cannot be read is no reason to pass.
        let log = log.or_else(|(_, why)| failed(why));
        checks.push(checked(CheckName::Logs, log));
        checks.push(checked(CheckName::Exec, exec(&api, &pod).await));
        let Some(service) = service else {
            create(&services, of.namespace, of.service()).await?;
            let made = format!(
                "Service {}/{} was created; its result is not there yet",
                of.namespace,
                of.service_name()
            );
            checks.push(checked(CheckName::NodePort, failed(made)));
            return Ok(checks);
        };
        let Some(target) = of.node_port(&service) else {
            let why = "the Node has no InternalIP, or its Service no NodePort yet";
            checks.push(checked(CheckName::NodePort, failed(why)));
            return Ok(checks);
        };
        let peer = find(&api, of.namespace, &peer_name).await?;
        let waits = match &peer {
            Some(peer) => match of.peer_outdated(peer, &pod, &target) {
                Some(why) => {
                    delete(&api, of.namespace, peer).await?;
                    Some(format!(
                        "Pod {}/{peer_name} is made again: {why}",
                        of.namespace
                    ))
                }
                None => None,
            },
            None => {
                create(&api, of.namespace, of.peer(&pod, &target)).await?;
                Some(format!(
                    "Pod {}/{peer_name} was created; its result is not there yet",
                    of.namespace
                ))
            }
        };
        for (check, container) in [
            (CheckName::PodToPod, REACH),
            (CheckName::NodePort, REACH_NODE),
        ] {
            let result = match (&waits, &peer) {
                (None, Some(peer)) => reached(peer, container),
                (waits, _) => failed(waits.as_deref().unwrap_or_default()),
            };
            checks.push(checked(check, result));
        }
        if !checks.iter().any(NodeCheck::failed) {
            delete(&services, of.namespace, &service).await?;
            delete(&api, of.namespace, &pod).await?;
            if let Some(peer) = &peer {
                delete(&api, of.namespace, peer).await?;
            }
        }
        Ok(checks)
    }
}

/// Has the kubelet run a command in the canary, as `kubectl exec` does.
async fn exec(api: &Api<Pod>, pod: &Pod) -> Checked {
    let name = pod.name_any();
    let what = format!(
        "a command in Pod {}/{name}",
        pod.namespace().unwrap_or_default()
    );
    let params = AttachParams::default().container(ANSWERS).stderr(false);
    let run = async {
        let mut command = api.exec(&name, COMMAND, &params).await?;
        let status = command.take_status();
        // What it prints has to be read, or the command never ends.
        if let Some(mut printed) = command.stdout() {
            drop(tokio::io::copy(&mut printed, &mut tokio::io::sink()).await);
        }
        Ok(match status {
            Some(status) => status.await,
            None => None,
        })
    };
    match timeout(ANSWER_MAX, run).await {
        Ok(ended) => exec_answer(&what, ended),
        Err(_) => failed(format!(
            "the API server does not answer with the end of {what} in {} s",
            ANSWER_MAX.as_secs()
        )),
    }
}

/// The end of a command, or the refusal to run one. Code 403 is the API server's for two causes: an installation of an
/// earlier dormer lacks the right, or an admission policy forbids commands in pods. The finding has the API server's text,
/// which says which.
pub(super) fn exec_answer(what: &str, ended: Result<Option<Status>, kube::Error>) -> Checked {
    match ended {
        Ok(Some(ended)) if ended.status.as_deref() == Some("Success") => Ok(what.to_owned()),
        Ok(Some(ended)) => failed(format!(
            "{what} fails: {}",
            ended.message.unwrap_or_default()
        )),
        Ok(None) => failed(format!("{what} ends without a result")),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            not_checked(failure("exec", what, &kube::Error::Api(status)).message)
        }
        Err(error) => failed(failure("exec", what, &error).message),
    }
}

/// What a canary is made of: pods and a Service.
trait CanaryObject: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {}

impl CanaryObject for Pod {}
impl CanaryObject for Service {}

fn what<K: CanaryObject>(namespace: &str, name: &str) -> String {
    format!("{} {namespace}/{name}", K::kind(&()))
}

async fn find<K: CanaryObject>(
    api: &Api<K>,
    namespace: &str,
    name: &str,
) -> Result<Option<K>, Failure> {
    call_if_there("get", &what::<K>(namespace, name), api.get(name)).await
}

async fn create<K: CanaryObject>(
    api: &Api<K>,
    namespace: &str,
    part: Value,
) -> Result<(), Failure> {
    let name = part["metadata"]["name"].as_str().unwrap_or_default();
    let what = what::<K>(namespace, name);
    let part: K = serde_json::from_value(part)
        .map_err(|error| Failure::lasting("CanaryUnwritable", format!("{what}: {error}")))?;
    let params = PostParams::default();
    call("create", &what, api.create(&params, &part))
        .await
        .map(drop)
}

async fn delete<K: CanaryObject>(api: &Api<K>, namespace: &str, part: &K) -> Result<(), Failure> {
    let name = part.name_any();
    let this = kube::api::Preconditions {
        uid: part.uid(),
        resource_version: None,
    };
    let params = DeleteParams::default().preconditions(this);
    let what = what::<K>(namespace, &name);
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

    /// A Node's name may be too long for a Service, and have dots.
    fn service_name(&self) -> String {
        format!("canary-{}", self.node.uid().unwrap_or_default())
    }

    /// A Service that leads to this canary, with a port on each node.
    pub(super) fn service(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": self.metadata(&self.service_name()),
            "spec": {"type": "NodePort", "selector": {OF_NODE: self.node.uid()},
                "ports": [{"port": PORT, "targetPort": PORT}]}})
    }

    /// `HOST:PORT` by which the canary is reached on its own node.
    pub(super) fn node_port(&self, service: &Service) -> Option<String> {
        let addresses = self.node.status.as_ref()?.addresses.as_ref()?;
        let internal = addresses.iter().find(|it| it.type_ == "InternalIP")?;
        let ports = service.spec.as_ref()?.ports.as_ref()?;
        let port = ports.first()?.node_port?;
        Some(match internal.address.contains(':') {
            true => format!("[{}]:{port}", internal.address),
            false => format!("{}:{port}", internal.address),
        })
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
        let mut containers = vec![
            answers,
            connect(SERVICE_IP, "$(KUBERNETES_SERVICE_HOST)"),
            connect(
                SERVICE_DNS,
                &format!("kubernetes.default.svc.{}", self.domain),
            ),
        ];
        if let Some(target) = self.outbound {
            containers.push(self.container(OUTBOUND, &["connect", target, CONNECT]));
        }
        let mut metadata = self.metadata(&self.name());
        metadata["labels"][OF_NODE] = json!(self.node.uid());
        let only =
            json!({"key": "metadata.name", "operator": "In", "values": [self.node.name_any()]});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
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
            "containers": containers}})
    }

    /// A pod on some Linux node that connects to the canary, and to its NodePort at `node`.
    pub(super) fn peer(&self, canary: &Pod, node: &str) -> Value {
        let address = canary.status.as_ref().and_then(|it| it.pod_ip.as_deref());
        let to = format!("{}:{PORT}", address.unwrap_or_default());
        let container = |name: &str, to: &str| {
            let mut container = self.container(name, &["connect", to, CONNECT]);
            container["securityContext"] =
                json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
            container
        };
        let mut metadata = self.metadata(&self.peer_name());
        metadata["annotations"] = json!({PEER_OF: reaches(canary, node)});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65_532, "seccompProfile": {"type": "RuntimeDefault"}},
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "restartPolicy": "OnFailure",
                "terminationGracePeriodSeconds": 1,
                "containers": [container(REACH, &to), container(REACH_NODE, node)]}})
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

    /// Why a canary that is there says nothing about this node and image.
    fn outdated(&self, canary: &Pod) -> Option<String> {
        self.pod_outdated(canary).or_else(|| {
            if canary.labels().get(OF_NODE) != self.node.uid().as_ref() {
                Some("its Service would not find it: an earlier dormer made it".to_owned())
            } else if self.tries_another(canary) {
                Some("another address outside of the cluster is to be reached".to_owned())
            } else {
                None
            }
        })
    }

    /// The same of what holds for a peer, too.
    fn pod_outdated(&self, pod: &Pod) -> Option<String> {
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

    /// Whether the canary was made for another address outside of the cluster.
    fn tries_another(&self, pod: &Pod) -> bool {
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice());
        let mut containers = containers.unwrap_or_default().iter();
        let outbound = containers.find(|it| it.name == OUTBOUND);
        let target = outbound.and_then(|it| it.args.as_ref()?.get(1).map(String::as_str));
        target != self.outbound
    }

    fn peer_outdated(&self, peer: &Pod, canary: &Pod, node: &str) -> Option<String> {
        match peer.annotations().get(PEER_OF) == Some(&reaches(canary, node)) {
            true => self.pod_outdated(peer),
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
            checks.push(checked(CheckName::Outbound, outbound(pod, &what)));
        }
    }
    checks
}

/// What a peer reaches for.
fn reaches(canary: &Pod, node: &str) -> String {
    format!("{} {node}", canary.uid().unwrap_or_default())
}

/// A cluster may have no way out, so a person says what has to be reached.
fn outbound(pod: &Pod, what: &str) -> Checked {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice());
    let mut containers = containers.unwrap_or_default().iter();
    match containers.any(|it| it.name == OUTBOUND) {
        true => connected(pod, OUTBOUND, what),
        false => not_checked("no --canary-outbound says what has to be reached"),
    }
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
pub(super) fn reached(peer: &Pod, container: &str) -> Checked {
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
    let waiting = status(peer, container).and_then(|it| it.state.as_ref()?.waiting.as_ref());
    let pulls = waiting.and_then(|it| it.reason.as_deref());
    if let Some(reason @ ("ErrImagePull" | "ImagePullBackOff" | "InvalidImageName")) = pulls {
        return not_checked(format!(
            "the Linux node {node} does not get the image of {what}: {reason}"
        ));
    }
    connected(peer, container, &format!("{what} on {node}"))
}

#[cfg(test)]
#[path = "canary_tests.rs"]
mod tests;
