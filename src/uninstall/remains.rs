//! What dormer left in a cluster. docs/uninstall.md has the same list for people.

use super::{POLL_EVERY, if_there, within};
use crate::cluster_access::failed;
use dormer_client::Failure;
use dormer_workers::kubernetes::{join, keys};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, PersistentVolumeClaim, Pod, Secret, Service},
        discovery::v1::EndpointSlice,
        node::v1::RuntimeClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    discovery,
};
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeSet,
    fmt,
    time::{Duration, Instant},
};

/// Groups whose kind `Machine` dormer annotates.
const MACHINE_GROUPS: [&str; 2] = ["machine.openshift.io", "cluster.x-k8s.io"];
/// Group of dormer's own kinds.
pub(super) const GROUP: &str = "dormer.io";
/// Lease of the elected watcher, in dormer's namespace.
const WATCHER: &str = "dormer-watcher";
/// Leases of dormer's processes.
const LEASES: &str = "dormer";
/// User data of new Windows machines.
const USER_DATA: &str = "windows-user-data";
/// Namespace of bootstrap tokens.
const TOKENS: &str = "kube-system";
/// Time in which a running watcher renews its Lease: its duration (15 s) and a slow API server.
const RENEWED_WITHIN: Duration = Duration::from_secs(20);

/// One write that takes a trace of dormer away.
#[derive(Debug)]
pub(super) enum Write {
    /// Annotations of a Machine or Node, its fence and cordon.
    Marks {
        resource: ApiResource,
        namespace: Option<String>,
        name: String,
    },
    Condition {
        node: String,
    },
    /// A whole object.
    Delete {
        resource: ApiResource,
        namespace: Option<String>,
        name: String,
    },
}

impl fmt::Display for Write {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |namespace: &Option<String>, name: &str| match namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
        match self {
            Self::Marks {
                resource,
                namespace,
                name,
            } => {
                let whole = of(namespace, name);
                write!(out, "{} {whole}: dormer's annotations", resource.kind)
            }
            Self::Condition { node } => write!(out, "Node {node}: condition {}", keys::CONDITION),
            Self::Delete {
                resource,
                namespace,
                name,
            } => write!(out, "{} {}: deleted", resource.kind, of(namespace, name)),
        }
    }
}

/// Everything that dormer left.
#[derive(Debug, Default)]
pub(super) struct Remains {
    /// Nodes that dormer configured.
    pub(super) configured: Vec<String>,
    /// Nodes that another dormer has.
    pub(super) nodes_of_others: BTreeSet<String>,
    /// Machines and Nodes with an open fence.
    pub(super) under_way: Vec<String>,
    /// What takes it away, in order: definitions of kinds come last.
    pub(super) writes: Vec<Write>,
    /// Volume claims of the store, which stay.
    pub(super) volumes: Vec<String>,
}

impl Remains {
    /// Lists what dormer, whose namespace is `home`, left.
    ///
    /// # Errors
    /// A list that the API server refuses, or a WindowsPool of another dormer.
    pub(super) async fn find(client: &Client, home: &str) -> Result<Self, Failure> {
        let mut found = Self::default();
        found.pools_of_others(client, home).await?;
        found.nodes(client, home).await?;
        for group in MACHINE_GROUPS {
            found.machines(client, group, home).await?;
        }
        found.objects(client, home).await?;
        found.canaries(client).await?;
        found.kinds(client).await?;
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), home);
        let ours = ListParams::default().labels("app.kubernetes.io/name=dormer");
        let listed = if_there(api.list(&ours)).await?;
        let claims = listed.into_iter().flat_map(|list| list.items);
        found.volumes = claims
            .map(|claim| format!("{home}/{}", claim.name_any()))
            .collect();
        Ok(found)
    }

    /// What stays, because people decide on it.
    pub(super) fn others(&self) -> String {
        let volumes = self.volumes.iter();
        let lines = volumes.map(|it| format!("\nThe store stays: PersistentVolumeClaim {it}"));
        lines.collect()
    }

    /// Refuses while another namespace has what people write for a dormer there.
    async fn pools_of_others(&self, client: &Client, home: &str) -> Result<(), Failure> {
        for name in ["WindowsPool", "WindowsHost"] {
            let Some(resource) = kind(client, GROUP, name).await? else {
                continue;
            };
            for object in all(client, &resource).await? {
                let namespace = object.namespace().unwrap_or_default();
                if namespace != home {
                    let whole = format!("{namespace}/{}", object.name_any());
                    let error = format!("there is a {name} {whole} of another dormer");
                    let cure = format!("name its namespace with -n {namespace}, or delete it");
                    return Err(Failure::refused(error, cure));
                }
            }
        }
        Ok(())
    }

    async fn nodes(&mut self, client: &Client, home: &str) -> Result<(), Failure> {
        let resource = ApiResource::erase::<Node>(&());
        let nodes: Api<Node> = Api::all(client.clone());
        for node in listed(&nodes, ListParams::default()).await? {
            let name = node.name_any();
            if keys::other_installation(&node, home).is_some() {
                self.nodes_of_others.insert(name);
                continue;
            }
            if node.annotations().contains_key(keys::VERSION) {
                self.configured.push(name.clone());
            }
            self.marked(&resource, &node);
            let conditions = node.status.and_then(|status| status.conditions);
            let conditions = conditions.unwrap_or_default();
            if conditions.iter().any(|it| it.type_ == keys::CONDITION) {
                self.writes.push(Write::Condition { node: name });
            }
        }
        Ok(())
    }

    async fn machines(&mut self, client: &Client, group: &str, home: &str) -> Result<(), Failure> {
        let Some(resource) = kind(client, group, "Machine").await? else {
            return Ok(());
        };
        for machine in all(client, &resource).await? {
            if keys::other_installation(&machine, home).is_none() {
                self.marked(&resource, &machine);
            }
        }
        Ok(())
    }

    /// Notes an object that bears annotations of dormer's.
    fn marked(&mut self, resource: &ApiResource, object: &impl ResourceExt) {
        let annotations = object.annotations();
        let fence = annotations
            .get(keys::FENCE)
            .and_then(|text| keys::fence(text));
        let name = object.name_any();
        if fence.is_some_and(|mark| mark.open) {
            self.under_way.push(format!("{} {name}", resource.kind));
        }
        if keys::OWN.iter().any(|key| annotations.contains_key(*key)) {
            self.writes.push(Write::Marks {
                resource: resource.clone(),
                namespace: object.namespace(),
                name,
            });
        }
    }

    /// Objects that dormer created beside the machines' own.
    async fn objects(&mut self, client: &Client, home: &str) -> Result<(), Failure> {
        let ours = ListParams::default().labels(&format!("{}={}", keys::OURS.0, keys::OURS.1));
        let classes: Api<RuntimeClass> = Api::all(client.clone());
        self.delete_all(listed(&classes, ours.clone()).await?);
        let secrets: Api<Secret> = Api::all(client.clone());
        let mut secrets = listed(&secrets, ours.clone()).await?;
        let joins = join::namespace(home);
        secrets.retain(|secret| {
            let instance = secret.labels().get(keys::INSTANCE).map(String::as_str);
            let namespace = secret.namespace().unwrap_or_default();
            let token =
                [TOKENS, joins.as_str()].contains(&namespace.as_str()) && instance == Some(home);
            token || secret.name_any() == USER_DATA
        });
        self.delete_all(secrets);
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), home);
        self.delete_all(listed(&slices, ours).await?);
        let leases: Api<Lease> = Api::namespaced(client.clone(), home);
        let mut leases = listed(&leases, ListParams::default()).await?;
        leases.retain(|lease| {
            let name = lease.name_any();
            name == LEASES || name.starts_with("dormer-")
        });
        self.delete_all(leases);
        Ok(())
    }

    /// Pods and Services of canaries that never passed. Their namespace was a setting of the dormer that is gone.
    async fn canaries(&mut self, client: &Client) -> Result<(), Failure> {
        let ours = ListParams::default().labels(&format!("{}={}", keys::OURS.0, keys::OURS.1));
        let pods: Api<Pod> = Api::all(client.clone());
        let mut pods = listed(&pods, ours.clone()).await?;
        pods.retain(|pod| self.is_canary(pod));
        self.delete_all(pods);
        let services: Api<Service> = Api::all(client.clone());
        let mut services = listed(&services, ours).await?;
        services.retain(|service| self.is_canary(service));
        self.delete_all(services);
        Ok(())
    }

    /// Whether an object with dormer's label is of a canary, which belongs to its Node. One that leaves waits for its kubelet,
    /// and so perhaps for the end of a node that is down.
    fn is_canary(&self, object: &impl ResourceExt) -> bool {
        let owners = object.owner_references().iter();
        let mut nodes = owners.filter(|owner| owner.kind == "Node");
        object.meta().deletion_timestamp.is_none()
            && nodes.any(|node| !self.nodes_of_others.contains(&node.name))
    }

    fn delete_all<K>(&mut self, objects: Vec<K>)
    where
        K: Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<K>(&());
        for object in objects {
            self.writes.push(Write::Delete {
                resource: resource.clone(),
                namespace: object.namespace(),
                name: object.name_any(),
            });
        }
    }

    /// Objects of dormer's own kinds, then the kinds.
    async fn kinds(&mut self, client: &Client) -> Result<(), Failure> {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let mut definitions = listed(&definitions, ListParams::default()).await?;
        definitions.retain(|it| it.spec.group == GROUP);
        for resource in served(client, GROUP).await? {
            for object in all(client, &resource).await? {
                let leaves = object.metadata.deletion_timestamp.is_some();
                let waits = object
                    .finalizers()
                    .iter()
                    .any(|it| it == keys::HOST_FINALIZER);
                if leaves && waits {
                    let name = object.name_any();
                    self.under_way
                        .push(format!("{} {name}, which is taken apart", resource.kind));
                }
                self.writes.push(Write::Delete {
                    resource: resource.clone(),
                    namespace: object.namespace(),
                    name: object.name_any(),
                });
            }
        }
        self.delete_all(definitions);
        Ok(())
    }
}

/// Checks that no process of dormer is at work, which would write everything again.
///
/// # Errors
/// There are pods of dormer, or the watcher's Lease is renewed.
pub(super) async fn nobody_runs(client: &Client, home: &str) -> Result<(), Failure> {
    let cure = format!("take it away first: helm uninstall dormer -n {home}");
    let pods: Api<Pod> = Api::namespaced(client.clone(), home);
    let ours = ListParams::default().labels("app.kubernetes.io/name=dormer");
    let mut pods = listed(&pods, ours).await?;
    pods.retain(|pod| {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    });
    if let Some(pod) = pods.first() {
        let error = format!("dormer still runs: pod {home}/{}", pod.name_any());
        return Err(Failure::refused(error, cure));
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), home);
    let Some(lease) = if_there(leases.get(WATCHER)).await? else {
        return Ok(());
    };
    let holder = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.holder_identity.clone());
    let Some(holder) = holder.filter(|holder| !holder.is_empty()) else {
        return Ok(());
    };
    // A watcher that was killed gives nothing back. Whether this one lives shows when it renews; no clocks are compared.
    eprintln!("Waiting up to 20 s for a sign of life of the watcher {holder} …");
    let begun = Instant::now();
    let mut every = tokio::time::interval(POLL_EVERY);
    while begun.elapsed() < RENEWED_WITHIN {
        every.tick().await;
        let now = if_there(leases.get(WATCHER)).await?;
        let version = now.and_then(|now| now.resource_version());
        if version.is_some() && version != lease.resource_version() {
            let error = format!("dormer still runs: the watcher {holder} renews its Lease");
            return Err(Failure::refused(error, cure));
        }
    }
    Ok(())
}

/// The resource of a kind at its most stable version. `None`: the group or the kind is absent.
async fn kind(client: &Client, group: &str, name: &str) -> Result<Option<ApiResource>, Failure> {
    let mut served = served(client, group).await?.into_iter();
    Ok(served.find(|resource| resource.kind == name))
}

/// Kinds of a group, each at its most stable version: not every kind is in the version that the group prefers. Empty:
/// the group is absent.
async fn served(client: &Client, group: &str) -> Result<Vec<ApiResource>, Failure> {
    match within(discovery::group(client, group)).await {
        Ok(found) => {
            let kinds = found.resources_by_stability().into_iter();
            Ok(kinds.map(|(resource, _)| resource).collect())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(kube::Error::Discovery(_)) => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

async fn all(client: &Client, resource: &ApiResource) -> Result<Vec<DynamicObject>, Failure> {
    let api = Api::all_with(client.clone(), resource);
    listed(&api, ListParams::default()).await
}

/// Every object of a list, by pages.
async fn listed<K>(api: &Api<K>, params: ListParams) -> Result<Vec<K>, Failure>
where
    K: Clone + DeserializeOwned + fmt::Debug,
{
    let mut params = params.limit(500);
    let mut objects = Vec::new();
    while let Some(page) = if_there(api.list(&params)).await? {
        objects.extend(page.items);
        match page.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => params.continue_token = Some(more),
            None => break,
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_node_of_this_dormer_owns_is_a_canarys() {
        let found = Remains {
            nodes_of_others: BTreeSet::from(["win-b".to_owned()]),
            ..Remains::default()
        };
        let canary = |owner_kind: &str, owner: &str, leaves: Option<&str>| {
            let owner = json!({"apiVersion": "v1", "kind": owner_kind, "name": owner, "uid": "1"});
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "canary-win-a",
                "ownerReferences": [owner], "deletionTimestamp": leaves}});
            let pod: Pod = serde_json::from_value(pod).expect("a Pod");
            found.is_canary(&pod)
        };
        assert!(canary("Node", "win-a", None));
        assert!(!canary("Node", "win-b", None), "another dormer's");
        assert!(!canary("ReplicaSet", "win-a", None));
        let goes = Some("2026-11-29T05:00:00Z");
        assert!(!canary("Node", "win-a", goes), "it goes already");
    }
}
