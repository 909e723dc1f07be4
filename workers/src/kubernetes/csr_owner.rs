//! Owner of a certificate request: its Machine and its Node, read at the time of the decision. A host's claim to a name
//! proves nothing (docs/field-notes.md, Certificate requests of kubelets).

use super::{
    KubernetesExecutor,
    api::{call, mark_of},
    error::{FORBIDDEN, NOT_FOUND},
    guard::CONTROL_PLANE,
    keys,
};
use crate::{
    machine_names::{self, dns},
    source,
};
use dormer_proto::{
    machine::{CsrExpectation, ForeignNode, MachineApi, MachineRef, TokenMark, same_provider_id},
    message::Failure,
};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams},
};

/// Machines in one answer.
const PAGE: u32 = 500;

/// Relevant objects of the cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct ClusterState {
    /// The Machine with the UID that was expected.
    pub(super) machine: Option<DynamicObject>,
    /// The Node of the name that was expected.
    pub(super) node: Option<Node>,
    /// Another machine, of any API, with that name or whose Node is to have it. It is searched for only where no
    /// platform names the machines.
    pub(super) claimed_by: Option<String>,
}

impl KubernetesExecutor {
    pub(super) async fn cluster_state(
        &self,
        expect: &CsrExpectation,
    ) -> Result<ClusterState, Failure> {
        let Some(machine) = &expect.machine else {
            return Ok(ClusterState::default());
        };
        let object = self.machine(machine).await?;
        let node = self.node(&expect.node_name).await?;
        let unnamed = |object: &&DynamicObject| {
            machine.api == MachineApi::Host || machine_names::names(object).is_empty()
        };
        let claimed_by = match object.as_ref().filter(unnamed) {
            Some(object) => self.other_claim(machine, object, &expect.node_name).await?,
            None => None,
        };
        Ok(ClusterState {
            machine: object,
            node,
            claimed_by,
        })
    }

    /// Another machine of any served API to which this name belongs, whatever its system. Before that machine has a
    /// Node, nothing else shows that the name is taken.
    async fn other_claim(
        &self,
        machine: &MachineRef,
        object: &DynamicObject,
        name: &str,
    ) -> Result<Option<String>, Failure> {
        let mut apis = call(
            "list",
            "the groups of the API",
            source::served(&self.client),
        )
        .await?;
        apis.retain(|api| *api != machine.api);
        apis.insert(0, machine.api);
        for api in apis {
            let own = api == machine.api;
            let namespace = match api {
                _ if own => Some(machine.namespace.as_str()),
                MachineApi::OpenShift => self.settings.machines.as_deref(),
                MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => {
                    self.settings.cluster_machines.as_deref()
                }
                MachineApi::Host => Some(self.settings.namespace.as_str()),
            };
            let all = match self.machines_of(api, namespace).await {
                Ok(all) => all,
                // dormer does not deal with that kind, or it has just gone.
                Err(failure) if !own && [FORBIDDEN, NOT_FOUND].contains(&&*failure.code) => {
                    tracing::info!(
                        "machines of one kind cannot be read, so the node's name is not compared with them: {}",
                        failure.message
                    );
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let ours = (machine.api, object);
            let found = all.iter().find(|it| {
                let another = it.uid().as_deref() != Some(machine.uid.as_str());
                another && claims(it, name) && !is_same_machine(ours, (api, it))
            });
            if let Some(other) = found {
                return Ok(Some(format!("{} {}", api.kind(), other.name_any())));
            }
        }
        Ok(None)
    }

    async fn machines_of(
        &self,
        api: MachineApi,
        namespace: Option<&str>,
    ) -> Result<Vec<DynamicObject>, Failure> {
        let resource = source::machines(api);
        let mut what = format!("{}.{}", resource.plural, resource.group);
        let client = self.client.clone();
        let machines: Api<DynamicObject> = match namespace {
            Some(namespace) => {
                what = format!("{what} in namespace {namespace}");
                Api::namespaced_with(client, namespace, &resource)
            }
            None => Api::all_with(client, &resource),
        };
        let mut params = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        loop {
            let page = call("list", &what, machines.list(&params)).await?;
            all.extend(page.items);
            match page.metadata.continue_.filter(|more| !more.is_empty()) {
                Some(more) => params = params.continue_token(&more),
                None => return Ok(all),
            }
        }
    }
}

/// Whether a machine has this name, or names a present or future Node so.
fn claims(other: &DynamicObject, name: &str) -> bool {
    let name = dns(name);
    let says = other.annotations().get(keys::NODE_NAME);
    let linked = other.data["status"]["nodeRef"]["name"].as_str();
    let given_names = says.map(String::as_str).into_iter().chain(linked);
    let own = other.name_any();
    machine_names::names(other).contains(&name)
        || given_names
            .chain([own.as_str()])
            .any(|other| dns(other) == name)
}

/// Whether OpenShift shows one machine in both APIs: by the provider id, or by the name if the Machine API's object
/// says which API is authoritative (docs/kinds.md).
fn is_same_machine(
    (one_api, one): (MachineApi, &DynamicObject),
    (other_api, other): (MachineApi, &DynamicObject),
) -> bool {
    let openshift = match (one_api, other_api) {
        (MachineApi::OpenShift, it) if it.is_cluster() => one,
        (it, MachineApi::OpenShift) if it.is_cluster() => other,
        _ => return false,
    };
    let id = |object: &DynamicObject| text(&object.data["spec"]["providerID"]).map(str::to_owned);
    match (id(one), id(other)) {
        (Some(one), Some(other)) => same_provider_id(&one, &other),
        _ => {
            let speaks = text(&openshift.data["status"]["authoritativeAPI"]);
            speaks.is_some() && one.name_any() == other.name_any()
        }
    }
}

/// Whether the name in the request is this Machine's, and the Node of that name, if there is one. `first`: a bootstrap
/// token requests a node's first certificate.
pub(super) fn check(
    expect: &CsrExpectation,
    cluster: &ClusterState,
    first: bool,
) -> Result<(), String> {
    let machine = match (&expect.machine, &cluster.machine) {
        (None, _) => return Err("an older engine asks, and does not say for which Machine".into()),
        (Some(_), None) => return Err("its Machine is gone".into()),
        (Some(_), Some(machine)) => machine,
    };
    check_machine(machine, expect, first)?;
    check_name(machine, expect, cluster)?;
    if let Some(node) = &cluster.node {
        check_node(node, machine, expect)?;
    }
    if first {
        check_first(machine, expect, cluster)?;
    }
    Ok(())
}

fn check_machine(
    machine: &DynamicObject,
    expect: &CsrExpectation,
    first: bool,
) -> Result<(), String> {
    if machine.metadata.deletion_timestamp.is_some() {
        return Err("its Machine is being deleted".into());
    }
    let types = machine.types.as_ref();
    let api = types.map_or_else(MachineApi::default, |it| source::api_of(&it.api_version));
    if !source::is_windows(api, &machine.metadata) {
        let label = source::windows_label(api);
        return Err(format!("its Machine has no label {label}"));
    }
    if keys::ignored(machine) {
        return Err(format!("its Machine is labelled {}=true", keys::IGNORE));
    }
    let provider = text(&machine.data["spec"]["providerID"]);
    if let (Some(expected), found) = (&expect.provider_id, provider)
        && found.is_none_or(|found| !same_provider_id(found, expected))
    {
        let found = found.unwrap_or("none");
        return Err(format!(
            "the provider id of its Machine is {found}, not {expected}"
        ));
    }
    let linked = text(&machine.data["status"]["nodeRef"]["name"]);
    if let Some(other) = linked.filter(|linked| *linked != expect.node_name) {
        return Err(format!("its Machine has another Node, {other}"));
    }
    let phase = text(&machine.data["status"]["phase"]);
    if first && !matches!(phase, Some("Provisioned" | "Running")) {
        let phase = phase.unwrap_or("unknown");
        return Err(format!("its Machine is in phase {phase}"));
    }
    Ok(())
}

/// Whether the name is one of the Machine's own. If the platform names no machines, the name has to fit the pool's
/// pattern and belong to no other machine.
fn check_name(
    machine: &DynamicObject,
    expect: &CsrExpectation,
    cluster: &ClusterState,
) -> Result<(), String> {
    let name = &expect.node_name;
    if let Some(other) = &cluster.claimed_by {
        return Err(format!("{name} belongs to another machine, {other}"));
    }
    let names = machine_names::names(machine);
    if !names.is_empty() {
        return match names.contains(&dns(name)) {
            true => Ok(()),
            false => Err(format!(
                "{name} is none of its Machine's names: {}",
                names.into_iter().collect::<Vec<_>>().join(", ")
            )),
        };
    }
    let own = machine.name_any().to_lowercase();
    // The cluster itself found that this Node is the Machine's.
    let linked = text(&machine.data["status"]["nodeRef"]["name"]) == Some(name.as_str());
    match &expect.node_names {
        Some(_) | None if linked => {}
        Some(pattern) if !fits(pattern, name) => {
            return Err(format!(
                "{name} does not fit {pattern}, spec.nodeNames of the pool"
            ));
        }
        None if own != *name => {
            return Err(format!(
                "{name} is not its Machine's name, {own}; spec.nodeNames of the pool may allow others"
            ));
        }
        Some(_) | None => {}
    }
    Ok(())
}

/// Whether the Node of that name is this Machine's: by the provider id, else by the UID that the run has recorded.
fn check_node(node: &Node, machine: &DynamicObject, expect: &CsrExpectation) -> Result<(), String> {
    let name = &expect.node_name;
    // A kubelet labels its Node when it creates it.
    let system = node.labels().get("kubernetes.io/os").map(String::as_str);
    if system != Some("windows") {
        let system = system.unwrap_or("an unknown system");
        return Err(format!("the Node {name} is there, and runs {system}"));
    }
    if CONTROL_PLANE
        .iter()
        .any(|role| node.labels().contains_key(*role))
    {
        return Err(format!(
            "the Node {name} is there, and is of the control plane"
        ));
    }
    let ours = text(&machine.data["spec"]["providerID"]);
    let theirs = provider_id(node);
    let taken = expect.node_uid.is_some() && expect.node_uid == node.uid();
    match (ours, theirs) {
        (Some(_), Some(_)) => match foreign(node, machine, expect) {
            Some(found) => Err(found.to_string()),
            None => Ok(()),
        },
        (None, _) | (_, None) if taken => Ok(()),
        (None, _) | (_, None) => Err(format!(
            "the Node {name} is there, and nothing says that it is this Machine's"
        )),
    }
}

fn provider_id(node: &Node) -> Option<&str> {
    let id = node.spec.as_ref()?.provider_id.as_deref()?;
    Some(id).filter(|id| !id.is_empty())
}

/// The Node of the expected name, if it belongs to another instance than the Machine.
pub(super) fn foreign_node(expect: &CsrExpectation, cluster: &ClusterState) -> Option<ForeignNode> {
    foreign(cluster.node.as_ref()?, cluster.machine.as_ref()?, expect)
}

fn foreign(node: &Node, machine: &DynamicObject, expect: &CsrExpectation) -> Option<ForeignNode> {
    let ours = text(&machine.data["spec"]["providerID"])?;
    let theirs = provider_id(node).filter(|it| !same_provider_id(ours, it))?;
    Some(ForeignNode {
        node: expect.node_name.clone(),
        theirs: theirs.to_owned(),
        ours: ours.to_owned(),
    })
}

/// Conditions of a node's first certificate alone. Its host was configured just now. Either there was no Node, or it was
/// torn down under the lease, or it appeared in this bring-up.
fn check_first(
    machine: &DynamicObject,
    expect: &CsrExpectation,
    cluster: &ClusterState,
) -> Result<(), String> {
    let name = &expect.node_name;
    if !expect.configured {
        return Err("its host was not configured within the last 2 h".into());
    }
    let open = |mark: Option<TokenMark>| {
        expect
            .torn_down
            .is_some_and(|token| mark.is_some_and(|mark| mark.open && mark.token == token))
    };
    let linked = text(&machine.data["status"]["nodeRef"]["name"]);
    match (&cluster.node, linked) {
        (Some(node), _) if open(mark_of(node)) => Ok(()),
        (Some(node), _) => {
            let born = expect.node_uid.is_some() && expect.node_uid == node.uid();
            let marked = node.annotations().contains_key(keys::VERSION);
            match born && !marked && !expect.served {
                true => Ok(()),
                false => Err(format!(
                    "the Node exists, and was not torn down: {name} had a certificate. If that has lapsed, its host has \
                     to be set up again"
                )),
            }
        }
        (None, Some(_)) if open(mark_of(machine)) => Ok(()),
        (None, Some(_)) => Err(format!(
            "its Machine is linked to the Node {name}, which is gone"
        )),
        (None, None) => Ok(()),
    }
}

/// Whether a name fits a pattern with at most one `*`.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((front, back)) => {
            name.len() >= front.len() + back.len()
                && name.starts_with(front)
                && name.ends_with(back)
        }
    }
}

fn text(value: &serde_json::Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
#[path = "csr_owner_tests.rs"]
mod tests;
