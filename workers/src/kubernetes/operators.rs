//! Detection of the Windows Machine Config Operator (WMCO), which configures the same hosts as dormer.
//!
//! It runs while the Pod that holds its lock lives, or while its Deployment wants replicas, in any namespace
//! (docs/field-notes.md, WMCO beside dormer). An operator that is only installed (a ClusterServiceVersion, a Deployment
//! without replicas) is reported and stops nothing.

use dormer_proto::{
    message::cut,
    other_operator::{self, OtherOperator},
};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        coordination::v1::Lease,
        core::v1::{ConfigMap, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde::de::DeserializeOwned;
use std::{collections::BTreeMap, fmt::Debug, time::Duration};
use tokio::time::timeout;

/// The operator's Deployment, in whatever namespace it was installed.
const DEPLOYMENT: &str = "windows-machine-config-operator";
/// Its leader's lock, a ConfigMap or a Lease: leader for life, owned by the Pod that leads.
const LOCK: &str = "windows-machine-config-operator-lock";
/// What ClusterServiceVersions of the operator are called before their version.
const CSV: &str = "windows-machine-config-operator.v";
/// Time limit of one call: the watcher does nothing else meanwhile.
pub(super) const CALL_MAX: Duration = Duration::from_secs(10);
/// Most objects of one name that are read: one in each namespace.
const NAMESAKES_MAX: u32 = 100;

/// Result of one search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperatorSearch {
    /// Whether it runs.
    pub neighbour: OtherOperator,
    /// It is installed and does not run: where.
    pub idle: Option<String>,
    /// What could not be read.
    pub unread: Option<String>,
}

/// Searches for a running operator.
pub async fn check(client: &Client) -> OperatorSearch {
    let mut unread = None;
    let mut note = |why: String| {
        unread.get_or_insert(why);
    };
    let (holder, deployments) = tokio::join!(holder(client), deployments(client));
    let holder = holder.unwrap_or_else(|why| {
        note(why);
        None
    });
    let (wanted, idle) = deployments.unwrap_or_else(|why| {
        note(why);
        (None, None)
    });
    let runs = match (holder, wanted) {
        (Some((namespace, pod)), _) => Some((format!("Pod {namespace}/{pod}"), namespace)),
        (None, Some(namespace)) => {
            Some((format!("Deployment {namespace}/{DEPLOYMENT}"), namespace))
        }
        (None, None) => None,
    };
    let neighbour = match (runs, &unread) {
        (Some((what, namespace)), _) => OtherOperator::Runs(cut(sentence(&what, &namespace))),
        (None, Some(_)) => OtherOperator::Unread,
        (None, None) => OtherOperator::Absent,
    };
    OperatorSearch {
        neighbour,
        idle,
        unread,
    }
}

/// Where ClusterServiceVersions of the operator are. They say that it is installed, not that it runs.
///
/// # Errors
/// They could not be listed, in one sentence.
pub async fn installed(client: &Client) -> Result<Vec<String>, String> {
    let kind = GroupVersionKind::gvk("operators.coreos.com", "v1alpha1", "ClusterServiceVersion");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let asked = timeout(CALL_MAX, api.list_metadata(&ListParams::default())).await;
    match asked.map_err(|_| slow("clusterserviceversions"))? {
        Ok(listed) => Ok(listed
            .items
            .iter()
            .filter(|one| one.name_any().starts_with(CSV) && !is_copy(one.labels()))
            .map(|one| format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any()))
            .collect()),
        // Without OLM there is no such kind.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(refused("list", "clusterserviceversions", &error)),
    }
}

/// Whether OLM made it to show an operator in a namespace that it does not run in.
fn is_copy(labels: &BTreeMap<String, String>) -> bool {
    labels.contains_key("olm.copiedFrom")
}

/// Sentence for people about a running operator: its Pod or Deployment, its namespace, and the command that stops it.
#[must_use]
pub fn sentence(what: &str, namespace: &str) -> String {
    other_operator::text(
        &format!("the Windows Machine Config Operator runs ({what}) and configures the same hosts"),
        &format!(
            "kubectl -n {namespace} scale deployment {DEPLOYMENT} --replicas=0, and where OLM undoes that, delete its \
             Subscription and ClusterServiceVersion first"
        ),
    )
}

/// Namespace and name of the live Pod that holds the lock.
async fn holder(client: &Client) -> Result<Option<(String, String)>, String> {
    let mut holders = Vec::new();
    for lock in named::<ConfigMap>(client, LOCK, "configmaps").await? {
        holders.extend(owner(&lock.metadata));
    }
    for lock in named::<Lease>(client, LOCK, "leases").await? {
        // `POD_UUID`: the name under which client-go's resource lock records its holder.
        let spec = lease_holder(&lock);
        holders.extend(owner(&lock.metadata).or(spec));
    }
    for (namespace, pod, uid) in holders {
        if lives(client, &namespace, &pod, uid.as_deref()).await? {
            return Ok(Some((namespace, pod)));
        }
    }
    Ok(None)
}

/// A Pod's namespace, name, and its UID where that is known.
type Holder = (String, String, Option<String>);

fn owner(lock: &ObjectMeta) -> Option<Holder> {
    let owners = lock.owner_references.as_deref().unwrap_or_default();
    let pod = owners.iter().find(|owner| owner.kind == "Pod")?;
    let namespace = lock.namespace.clone()?;
    Some((namespace, pod.name.clone(), Some(pod.uid.clone())))
}

fn lease_holder(lock: &Lease) -> Option<Holder> {
    let holder = lock.spec.as_ref()?.holder_identity.as_deref()?;
    let pod = holder.split('_').next().filter(|pod| !pod.is_empty())?;
    Some((lock.metadata.namespace.clone()?, pod.to_owned(), None))
}

async fn lives(
    client: &Client,
    namespace: &str,
    pod: &str,
    uid: Option<&str>,
) -> Result<bool, String> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let in_time = timeout(CALL_MAX, api.get_opt(pod)).await;
    let answer = in_time.map_err(|_| slow("pods"))?;
    let found = answer.map_err(|error| refused("get", "pods", &error))?;
    Ok(found.is_some_and(|found| {
        let same = uid.is_none_or(|uid| found.metadata.uid.as_deref() == Some(uid));
        let phase = found.status.and_then(|status| status.phase);
        let over = matches!(phase.as_deref(), Some("Failed" | "Succeeded"));
        same && !over
    }))
}

/// The namespace of a Deployment that wants replicas; and one that wants none, as a sentence.
async fn deployments(client: &Client) -> Result<(Option<String>, Option<String>), String> {
    let all = named::<Deployment>(client, DEPLOYMENT, "deployments").await?;
    let wants = |one: &&Deployment| {
        let replicas = one.spec.as_ref().and_then(|spec| spec.replicas);
        // The API server's default.
        replicas.unwrap_or(1) > 0
    };
    let runs = all.iter().find(wants).and_then(ResourceExt::namespace);
    let idle = all.iter().find(|one| !wants(one)).map(|one| {
        let namespace = one.namespace().unwrap_or_default();
        format!(
            "the Windows Machine Config Operator is installed (Deployment {namespace}/{DEPLOYMENT}) and does not run: it \
             must not run beside dormer"
        )
    });
    Ok((runs, idle))
}

/// All objects of a name, in every namespace.
async fn named<K>(client: &Client, name: &str, what: &str) -> Result<Vec<K>, String>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let params = ListParams::default()
        .fields(&format!("metadata.name={name}"))
        .limit(NAMESAKES_MAX);
    let api: Api<K> = Api::all(client.clone());
    let listed = timeout(CALL_MAX, api.list(&params)).await;
    let listed = listed.map_err(|_| slow(what))?;
    Ok(listed.map_err(|error| refused("list", what, &error))?.items)
}

pub(super) fn slow(what: &str) -> String {
    format!("the API server does not answer about {what} in time")
}

pub(super) fn refused(verb: &str, what: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("dormer may not {verb} {what}: {}", status.message)
        }
        other => format!("cannot {verb} {what}: {other}"),
    }
}
