//! Hosts of one's own: the ConfigMap `windows-instances` becomes WindowsHosts, and a WindowsHost's status says what the
//! Machine API's controllers say of a Machine: its address, and its Node.
//!
//! One bad entry is a finding, and harms no other. An entry that goes takes its WindowsHost with it; a ConfigMap that
//! goes as a whole takes none, since a file that was pruned must not end a fleet (docs/kinds.md).

use super::{cluster::sentence, objects::ObservedNode, view::View};
use crate::{
    kubernetes::{events::Events, keys},
    pool::host::{
        HostAddress, HostNode, INSTANCES, WindowsHost, WindowsHostSpec, entries, is_address,
    },
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::Duration,
};
use tokio::time::Instant;

/// The field manager of what the watcher writes.
const MANAGER: &str = "dormer-watcher";
/// How long the API server may take for all of it.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a lookup of a name may take, and how long its answer counts.
const LOOKUP: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// After how long something that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(15);
/// Most hosts and entries that are looked after.
const HOSTS_MAX: usize = 5_000;
/// Most findings that are kept.
const FINDINGS_MAX: usize = 100;

/// A WindowsHost as it stands.
#[derive(Debug, Clone)]
struct HostObject {
    meta: ObjectMeta,
    spec: Result<WindowsHostSpec, String>,
    status: Value,
}

impl HostObject {
    fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    fn leaves(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.meta.annotations.as_ref()?.get(key).map(String::as_str)
    }

    fn of_map(&self) -> bool {
        self.annotation(keys::HOST_FROM) == Some(INSTANCES)
    }

    fn ignored(&self) -> bool {
        let label = self
            .meta
            .labels
            .as_ref()
            .and_then(|all| all.get(keys::IGNORE));
        let said = [label.map(String::as_str), self.annotation(keys::IGNORE)];
        said.contains(&Some("true"))
    }

    fn holds(&self) -> bool {
        let all = self.meta.finalizers.iter().flatten();
        all.into_iter().any(|one| one == keys::HOST_FINALIZER)
    }
}

/// What has to be written.
#[derive(Debug, Clone, PartialEq)]
enum Action {
    Create { name: String, user: String },
    Delete { name: String, uid: String },
    Patch { name: String, change: Value },
    Status { name: String, status: Value },
}

/// What the present objects ask for.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    actions: Vec<Action>,
    /// By host or entry.
    findings: BTreeMap<String, String>,
}

/// Result of a lookup.
type Resolved = Result<Ipv4Addr, String>;

/// The hosts, their names' addresses, and what is wrong with them.
pub(super) struct Hosts {
    client: Client,
    namespace: String,
    events: Events,
    objects: BTreeMap<String, HostObject>,
    /// `None`: there is no ConfigMap, or it cannot be read.
    map: Option<(ObjectMeta, BTreeMap<String, String>)>,
    resolved: BTreeMap<String, (Instant, Resolved)>,
    pub(super) findings: BTreeMap<String, String>,
    /// Something could not be written: it is tried again then.
    again: Option<Instant>,
}

impl Hosts {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self {
            events: Events::new(client.clone(), MANAGER),
            client,
            namespace: namespace.to_owned(),
            objects: BTreeMap::new(),
            map: None,
            resolved: BTreeMap::new(),
            findings: BTreeMap::new(),
            again: None,
        }
    }

    /// Before a list: everything is read again.
    pub(super) fn forget(&mut self) {
        self.objects.clear();
        self.map = None;
    }

    /// A WindowsHost stands so.
    pub(super) fn observe(&mut self, object: &DynamicObject) {
        let Some(uid) = object.metadata.uid.clone() else {
            return;
        };
        if !self.objects.contains_key(&uid) && self.objects.len() >= HOSTS_MAX {
            return;
        }
        let spec = WindowsHostSpec::deserialize(&object.data["spec"]);
        let known = HostObject {
            meta: object.metadata.clone(),
            spec: spec.map_err(|error| error.to_string()),
            status: object.data["status"].clone(),
        };
        self.objects.insert(uid, known);
    }

    /// The ConfigMap stands so.
    pub(super) fn observe_map(&mut self, object: DynamicObject) {
        let data = &object.data["data"];
        let data = BTreeMap::deserialize(data).unwrap_or_default();
        self.map = Some((object.metadata, data));
    }

    pub(super) fn lose(&mut self, uid: &str) {
        self.objects.remove(uid);
    }

    pub(super) fn lose_map(&mut self) {
        self.map = None;
    }

    /// Does what the objects ask for. What goes wrong is a finding, and is tried again.
    pub(super) async fn keep(&mut self, view: &View) {
        if self.objects.is_empty() && self.map.is_none() {
            self.findings.clear();
            return;
        }
        if self.again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        self.again = None;
        self.resolve_names().await;
        let resolved = self
            .resolved
            .iter()
            .map(|(name, (_, it))| (name.clone(), it.clone()));
        let map = self.map.as_ref().map(|(_, data)| data);
        let mut plan = plan(&self.objects, map, &resolved.collect(), view);
        let deadline = Instant::now() + LIMIT;
        let mut failed = false;
        for action in std::mem::take(&mut plan.actions) {
            let about = match &action {
                Action::Create { name, .. }
                | Action::Delete { name, .. }
                | Action::Patch { name, .. }
                | Action::Status { name, .. } => name.clone(),
            };
            match tokio::time::timeout_at(deadline, self.write(action)).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => {
                    failed = true;
                    plan.findings.insert(about, why);
                }
                Err(_) => {
                    failed = true;
                    let why = "the API server does not answer in time".to_owned();
                    plan.findings.insert(about, why);
                    break;
                }
            }
        }
        self.again = failed.then(|| Instant::now() + AGAIN);
        self.say(plan.findings).await;
    }

    /// New findings become a warning and an Event; the old ones were said.
    async fn say(&mut self, mut findings: BTreeMap<String, String>) {
        while findings.len() > FINDINGS_MAX {
            findings.pop_last();
        }
        let new: Vec<_> = findings
            .iter()
            .filter(|(about, why)| self.findings.get(*about) != Some(why))
            .map(|(about, why)| (about.clone(), why.clone()))
            .collect();
        self.findings = findings;
        for (about, why) in new {
            tracing::warn!("the Windows host {about}: {why}");
            let hosts = self.objects.values();
            let host = hosts.into_iter().find(|host| host.name() == about);
            let types = ("dormer.io/v1beta1", "WindowsHost");
            let map = self
                .map
                .as_ref()
                .map(|(meta, _)| (meta, ("v1", "ConfigMap")));
            let Some((meta, (version, kind))) = host.map(|it| (&it.meta, types)).or(map) else {
                continue;
            };
            let reference = ObjectReference {
                api_version: Some(version.into()),
                kind: Some(kind.into()),
                name: meta.name.clone(),
                namespace: meta.namespace.clone(),
                uid: meta.uid.clone(),
                ..ObjectReference::default()
            };
            let note = format!("{about}: {why}");
            self.events
                .warn(reference, "BadWindowsHost", "Read", note)
                .await;
        }
    }

    /// Looks up the names whose addresses are unknown or old. An answer that fails leaves the last address.
    async fn resolve_names(&mut self) {
        let mut names = BTreeSet::new();
        for host in self.objects.values() {
            if let Ok(spec) = &host.spec {
                names.insert(spec.address.to_lowercase());
            }
        }
        self.resolved.retain(|name, _| names.contains(name));
        let now = Instant::now();
        let fresh = |name: &String| {
            let known = self.resolved.get(name);
            known.is_some_and(|(at, _)| now.duration_since(*at) < LOOKUP.1)
        };
        names.retain(|name| !fresh(name));
        for (name, found) in join_all(names.into_iter().map(resolve)).await {
            let known = self.resolved.get(&name).map(|(_, it)| it.clone());
            let found = match (found, known) {
                (Err(_), Some(Ok(before))) => Ok(before),
                // Of several addresses the known one stays.
                (Ok(found), Some(Ok(before))) if found.contains(&before) => Ok(before),
                (Ok(found), _) => found
                    .first()
                    .copied()
                    .ok_or_else(|| format!("{name} has no IPv4 address")),
                (Err(why), _) => Err(why),
            };
            self.resolved.insert(name, (now, found));
        }
    }

    async fn write(&mut self, action: Action) -> Result<(), String> {
        let api: Api<WindowsHost> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..PatchParams::default()
        };
        let fails = |verb: &str, name: &str, error: &kube::Error| {
            sentence(verb, &format!("WindowsHost {name}"), error).0
        };
        let written = match action {
            Action::Create { name, user } => {
                let mut host = WindowsHost::new(
                    &name,
                    WindowsHostSpec {
                        address: name.clone(),
                        user: Some(user),
                    },
                );
                let meta = host.meta_mut();
                meta.finalizers = Some(vec![keys::HOST_FINALIZER.into()]);
                meta.annotations =
                    Some(BTreeMap::from([(keys::HOST_FROM.into(), INSTANCES.into())]));
                let made = api.create(&PostParams::default(), &host).await;
                made.map_err(|error| fails("create", &name, &error))?
            }
            Action::Delete { name, uid } => {
                let only = Preconditions {
                    uid: Some(uid),
                    resource_version: None,
                };
                let params = DeleteParams::default().preconditions(only);
                let deleted = api.delete(&name, &params).await;
                return match deleted {
                    Ok(_) => Ok(()),
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    Err(error) => Err(fails("delete", &name, &error)),
                };
            }
            Action::Patch { name, change } => {
                let patched = api.patch(&name, &params, &Patch::Merge(&change)).await;
                patched.map_err(|error| fails("patch", &name, &error))?
            }
            Action::Status { name, status } => {
                let change = json!({"status": status});
                let patched = api
                    .patch_status(&name, &params, &Patch::Merge(&change))
                    .await;
                patched.map_err(|error| fails("patch the status of", &name, &error))?
            }
        };
        // What was written need not be written again before the watch tells of it.
        if let Some(uid) = written.uid() {
            let status = serde_json::to_value(&written.status).unwrap_or_default();
            let known = HostObject {
                meta: written.metadata,
                spec: Ok(written.spec),
                status,
            };
            self.objects.insert(uid, known);
        }
        Ok(())
    }
}

async fn resolve(name: String) -> (String, Result<Vec<Ipv4Addr>, String>) {
    if let Ok(address) = name.parse::<Ipv4Addr>() {
        return (name, Ok(vec![address]));
    }
    if !is_address(&name) {
        let why = format!("{name} is neither an IPv4 address nor a DNS name");
        return (name, Err(why));
    }
    let asked = tokio::net::lookup_host((name.clone(), 22));
    let found = match tokio::time::timeout(LOOKUP.0, asked).await {
        Err(_) => Err(format!("{name} cannot be looked up: no answer in 5 s")),
        Ok(Err(error)) => Err(format!("{name} cannot be looked up: {error}")),
        Ok(Ok(all)) => {
            let all: BTreeSet<Ipv4Addr> = all
                .filter_map(|one| match one.ip() {
                    std::net::IpAddr::V4(address) => Some(address),
                    std::net::IpAddr::V6(_) => None,
                })
                .collect();
            Ok(all.into_iter().collect())
        }
    };
    (name, found)
}

/// What follows from the objects, the ConfigMap's entries, the addresses of names, and the Nodes.
fn plan(
    objects: &BTreeMap<String, HostObject>,
    map: Option<&BTreeMap<String, String>>,
    resolved: &BTreeMap<String, Resolved>,
    view: &View,
) -> Plan {
    let mut plan = Plan::default();
    plan_entries(objects, map, &mut plan);
    let mut hosts: Vec<&HostObject> = objects.values().collect();
    hosts.sort_by_key(|host| (host.meta.creation_timestamp.clone(), host.name()));
    // Who has an address, the older one first. One that leaves has it still.
    let mut taken: BTreeMap<Ipv4Addr, &str> = BTreeMap::new();
    for host in hosts {
        let name = host.name().to_owned();
        if host.leaves() {
            if host.ignored() && host.holds() {
                // Hands off: it goes as it is.
                let change = json!({"metadata": {"finalizers": without_ours(&host.meta),
                    "uid": host.meta.uid}});
                plan.actions.push(Action::Patch { name, change });
            } else if let Some(address) = present(&host.status) {
                taken.entry(address).or_insert(host.name());
            }
            continue;
        }
        if !host.holds() {
            let mut all = host.meta.finalizers.clone().unwrap_or_default();
            all.push(keys::HOST_FINALIZER.into());
            let change = json!({"metadata": {"finalizers": all, "uid": host.meta.uid,
                "resourceVersion": host.meta.resource_version}});
            let name = name.clone();
            plan.actions.push(Action::Patch { name, change });
        }
        let accepted = accept(host, resolved, &mut taken);
        if let Err((_, why)) = &accepted {
            plan.findings.insert(name.clone(), why.clone());
        }
        let wanted = status(host, accepted, view);
        if !holds(&host.status, &wanted) {
            let status = wanted;
            plan.actions.push(Action::Status { name, status });
        }
    }
    plan
}

/// Makes, changes and deletes the WindowsHosts of the ConfigMap's entries.
fn plan_entries(
    objects: &BTreeMap<String, HostObject>,
    map: Option<&BTreeMap<String, String>>,
    plan: &mut Plan,
) {
    let ours: Vec<_> = objects.values().filter(|host| host.of_map()).collect();
    let Some(map) = map else {
        let stay = ours.iter().filter(|host| !host.leaves()).count();
        if stay > 0 {
            let why = format!(
                "there is no ConfigMap {INSTANCES}, and its {stay} hosts stay; one without entries removes them"
            );
            plan.findings.insert(INSTANCES.to_owned(), why);
        }
        return;
    };
    let mut named = BTreeSet::new();
    for (address, user) in entries(map).into_iter().take(HOSTS_MAX) {
        let there = objects.values().find(|host| host.name() == address);
        if !named.insert(address.clone()) {
            let why = "two entries of windows-instances differ in their case alone".to_owned();
            plan.findings.insert(address, why);
            continue;
        }
        let user = match user {
            Ok(user) => user,
            // It stays as it is: a slip of the pen removes no node.
            Err(why) => {
                let why = format!("its entry in {INSTANCES} cannot be read: {why}");
                plan.findings.insert(address, why);
                continue;
            }
        };
        match there {
            None => plan.actions.push(Action::Create {
                name: address,
                user,
            }),
            // It comes again once the old one is gone.
            Some(host) if host.leaves() => {}
            Some(host) if !host.of_map() => {
                let why = format!(
                    "a WindowsHost of this name is there, and its entry in {INSTANCES} is not used"
                );
                plan.findings.insert(address, why);
            }
            Some(host) => {
                let same = host
                    .spec
                    .as_ref()
                    .is_ok_and(|it| it.user.as_ref() == Some(&user));
                if !same {
                    let change =
                        json!({"metadata": {"uid": host.meta.uid}, "spec": {"user": user}});
                    let name = address;
                    plan.actions.push(Action::Patch { name, change });
                }
            }
        }
    }
    for host in ours {
        if !named.contains(host.name()) && !host.leaves() {
            plan.actions.push(Action::Delete {
                name: host.name().to_owned(),
                uid: host.meta.uid.clone().unwrap_or_default(),
            });
        }
    }
}

/// The host's address; or one word and a sentence why it has none.
fn accept<'a>(
    host: &'a HostObject,
    resolved: &BTreeMap<String, Resolved>,
    taken: &mut BTreeMap<Ipv4Addr, &'a str>,
) -> Result<Ipv4Addr, (&'static str, String)> {
    let spec = host.spec.as_ref();
    let spec = spec.map_err(|why| ("Unreadable", format!("its spec cannot be read: {why}")))?;
    let found = resolved.get(&spec.address.to_lowercase()).cloned();
    let found = found.unwrap_or_else(|| Err(format!("{} is not looked up yet", spec.address)));
    // A name server that is away takes no address.
    let address = found.or_else(|why| present(&host.status).ok_or(("NoAddress", why)))?;
    match taken.get(&address) {
        Some(other) => Err((
            "SameAddress",
            format!(
                "{address} is the address of the WindowsHost {other}, too: one host is configured once"
            ),
        )),
        None => {
            taken.insert(address, host.name());
            Ok(address)
        }
    }
}

/// The address in a status.
fn present(status: &Value) -> Option<Ipv4Addr> {
    let all = status["addresses"].as_array()?;
    let internal = all.iter().find(|one| one["type"] == "InternalIP")?;
    internal["address"].as_str()?.parse().ok()
}

/// The status that the host should have.
fn status(
    host: &HostObject,
    accepted: Result<Ipv4Addr, (&'static str, String)>,
    view: &View,
) -> Value {
    let (status, reason, message) = match &accepted {
        Ok(address) => ("True", "Addressed", format!("it is reached at {address}")),
        Err((reason, why)) => ("False", *reason, why.clone()),
    };
    let before = &host.status["conditions"][0];
    let since = before["lastTransitionTime"].as_str();
    let since = since.filter(|_| before["status"] == status);
    let now = || jiff::Timestamp::from_second(jiff::Timestamp::now().as_second());
    let since = since.map_or_else(|| now().unwrap_or_default().to_string(), str::to_owned);
    let condition = json!({"type": "Accepted", "status": status, "reason": reason,
        "message": message, "lastTransitionTime": since});
    let Ok(address) = accepted else {
        return json!({"phase": null, "addresses": null, "conditions": [condition]});
    };
    let mut addresses = vec![("InternalIP", address.to_string())];
    let named = host.spec.as_ref().map(|spec| spec.address.to_lowercase());
    if let Some(name) = named.ok().filter(|name| name.parse::<Ipv4Addr>().is_err()) {
        let label = name.split('.').next().unwrap_or_default().to_owned();
        addresses.push(("InternalDNS", name));
        addresses.push(("Hostname", label));
    }
    let addresses: Vec<_> = addresses
        .into_iter()
        .map(|(r#type, address)| HostAddress {
            r#type: r#type.to_owned(),
            address,
        })
        .collect();
    let node = node_of(host, address, view);
    let before = HostNode::deserialize(&host.status["nodeRef"]).ok();
    let node = node.or(before.filter(|it| !it.name.is_empty()));
    let phase = if node.is_some() {
        "Running"
    } else {
        "Provisioned"
    };
    json!({"phase": phase, "addresses": addresses, "nodeRef": node, "conditions": [condition]})
}

/// The host's Node, as the Machine API's nodelink controller finds it: the one Windows worker that has its address
/// (machine-api-operator, `pkg/controller/nodelink`). Once a probe has read the host's own name it has that name, too;
/// and it is no other machine's.
fn node_of(host: &HostObject, address: Ipv4Addr, view: &View) -> Option<HostNode> {
    let address = address.to_string();
    let has = |node: &&ObservedNode| node.windows_worker && node.addresses.contains(&address);
    let mut all = view.nodes.values().filter(has);
    let (node, None) = (all.next()?, all.next()) else {
        return None;
    };
    let name = &node.fact.name;
    if host
        .annotation(keys::NODE_NAME)
        .is_some_and(|noted| noted != name)
    {
        return None;
    }
    let others = view.machines.values();
    let mut others = others.filter(|it| Some(&it.fact.machine.uid) != host.meta.uid.as_ref());
    let linked = others.any(|it| it.counts() && it.fact.node.as_ref() == Some(name));
    (!linked).then(|| HostNode {
        name: name.clone(),
        uid: node.fact.uid.clone(),
    })
}

/// Whether a status has everything that is wanted; an absent field is as good as `null`.
fn holds(there: &Value, wanted: &Value) -> bool {
    let fields = wanted.as_object().into_iter().flatten();
    fields.into_iter().all(|(key, value)| there[key] == *value)
}

fn without_ours(meta: &ObjectMeta) -> Vec<&String> {
    let all = meta.finalizers.iter().flatten();
    all.filter(|one| *one != keys::HOST_FINALIZER).collect()
}

#[cfg(test)]
mod tests;
