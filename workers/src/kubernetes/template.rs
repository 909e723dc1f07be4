//! Labels and annotations that a machine's object gives to its Node. Machine API's nodelink controller copies them, and
//! Cluster API's machine controller does. If neither has linked the Node, dormer adds the missing ones. It never
//! changes an existing label, and writes none that belongs to others; `deploy/guard.yaml` refuses the same ones.

use super::{KubernetesExecutor, api::patch, guard::LiveNode, keys};
use dormer_proto::{
    machine::{MachineApi, MachineRef},
    message::Failure,
};
use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Domains whose labels and annotations dormer adds to no Node: of Kubernetes and OpenShift, of dormer itself, and of
/// networks.
const RESERVED: [&str; 8] = [
    "kubernetes.io",
    "k8s.io",
    "x-k8s.io",
    "openshift.io",
    "dormer.io",
    "ovn.org",
    "projectcalico.org",
    "flannel.alpha.coreos.com",
];
/// Of those, domains that are for people to choose.
const FREE: [&str; 2] = ["node-restriction.kubernetes.io", "node.cluster.x-k8s.io"];
/// Domain of a node's roles.
const ROLE: &str = "node-role.kubernetes.io";

/// Labels, annotations and taints that a machine's object gives to its Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Template {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

impl Template {
    /// Machine API's nodelink controller writes the labels of `spec.metadata` (machine-api-operator 951196122,
    /// `pkg/controller/nodelink`); Cluster API's controller the Machine's own labels of three domains (cluster-api v1.10,
    /// `internal/controllers/machine/machine_controller_noderef.go`, `getManagedLabels`). A BYOH host names its
    /// labels itself.
    pub(super) fn of(api: MachineApi, machine: &DynamicObject) -> Self {
        let spec = &machine.data["spec"];
        match api {
            MachineApi::OpenShift => Self {
                labels: texts(&spec["metadata"]["labels"]),
                annotations: texts(&spec["metadata"]["annotations"]),
            },
            MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => {
                let mut labels = machine.labels().clone();
                labels.retain(|key, _| is_managed(key));
                Self {
                    labels,
                    ..Self::default()
                }
            }
            MachineApi::Host => Self {
                labels: texts(&spec["labels"]),
                ..Self::default()
            },
        }
    }

    /// Part of it that the Node lacks and dormer may add.
    fn lacking(&self, node: &Node) -> Self {
        let lacking = |wanted: &BTreeMap<String, String>, there: &BTreeMap<String, String>| {
            let mut lacking = wanted.clone();
            lacking.retain(|key, _| !there.contains_key(key) && may_add(key));
            lacking
        };
        Self {
            labels: lacking(&self.labels, node.labels()),
            annotations: lacking(&self.annotations, node.annotations()),
        }
    }
}

fn texts(of: &Value) -> BTreeMap<String, String> {
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let all = of.as_object().into_iter().flatten();
    all.filter_map(text).collect()
}

fn domain(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

fn is_within(domain: &str, wanted: &str) -> bool {
    let front = domain.strip_suffix(wanted);
    front.is_some_and(|front| front.is_empty() || front.ends_with('.'))
}

/// Whether Cluster API carries a label of this key from a Machine to its Node.
fn is_managed(key: &str) -> bool {
    let domain = domain(key);
    domain == ROLE || FREE.iter().any(|free| is_within(domain, free))
}

/// Whether dormer may add this key to a Node.
fn may_add(key: &str) -> bool {
    let domain = domain(key);
    if domain == ROLE {
        return !super::CONTROL_PLANE.contains(&key);
    }
    let within = |all: &[&str]| all.iter().any(|one| is_within(domain, one));
    within(&FREE) || !within(&RESERVED)
}

/// Whether the machine API's own controller has linked the Node, and so writes on it.
fn is_linked(api: MachineApi, node: &Node) -> bool {
    let noted = |key: &str| node.annotations().contains_key(key);
    match api {
        MachineApi::OpenShift => noted(keys::NODE_LINK),
        MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => noted(keys::CLUSTER_LINK),
        MachineApi::Host => false,
    }
}

impl KubernetesExecutor {
    /// Adds the part of its machine's template that a Node lacks, unless a controller of the machine API does. Returns
    /// the resulting Node.
    pub(super) async fn carry(
        &self,
        machine: (&MachineRef, &DynamicObject),
        live: LiveNode,
    ) -> Result<LiveNode, Failure> {
        let (of, object) = machine;
        if is_linked(of.api, &live.node) {
            return Ok(live);
        }
        let lacking = Template::of(of.api, object).lacking(&live.node);
        if lacking == Template::default() {
            return Ok(live);
        }
        let Template {
            labels,
            annotations,
        } = lacking;
        let name = live.node.name_any();
        let what = format!("Node {name}");
        let change = json!({"metadata": {"labels": labels, "annotations": annotations}});
        match patch(&self.node_api(), &live.node, &what, change).await? {
            Some(node) => Ok(LiveNode { node, ..live }),
            None => Err(Failure::transient(
                "NodeGone",
                format!("the Node {name} is not there"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_people_choose_is_added() {
        for (key, may) in [
            ("team", true),
            ("corp.example/team", true),
            ("node-role.kubernetes.io/worker", true),
            ("node-role.kubernetes.io/windows", true),
            ("a.node-restriction.kubernetes.io/x", true),
            ("pool.node.cluster.x-k8s.io/x", true),
            ("node-role.kubernetes.io/control-plane", false),
            ("node-role.kubernetes.io/master", false),
            ("kubernetes.io/os", false),
            ("node.kubernetes.io/windows-build", false),
            ("topology.kubernetes.io/zone", false),
            ("cluster.x-k8s.io/machine", false),
            ("machine.openshift.io/machine", false),
            ("windowsmachineconfig.openshift.io/version", false),
            ("dormer.io/version", false),
            ("k8s.ovn.org/hybrid-overlay-node-subnet", false),
            ("notkubernetes.io/a", true),
        ] {
            assert_eq!(may_add(key), may, "{key}");
        }
    }

    #[test]
    fn what_stands_on_the_node_stays() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "win-a",
            "labels": {"team": "red"}, "annotations": {}}}))
        .expect("a Node");
        let machine: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "metadata": {"name": "win-a"},
            "spec": {"metadata": {"labels": {"team": "blue", "rack": "7", "kubernetes.io/os": "linux"},
                "annotations": {"corp.example/owner": "ann"}}}}))
        .expect("a Machine");
        let lacking = Template::of(MachineApi::OpenShift, &machine).lacking(&node);
        let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        assert_eq!(lacking.labels, one("rack", "7"));
        assert_eq!(lacking.annotations, one("corp.example/owner", "ann"));
    }
}
