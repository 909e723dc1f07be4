//! BYOH hosts: the ConfigMap `windows-instances` becomes WindowsHosts, and a WindowsHost's status says what the
//! Machine API's controllers say of a Machine: its address, and its Node.
//!
//! One bad entry is a finding, and harms no other. An entry that goes takes its WindowsHost with it; a ConfigMap that
//! goes as a whole takes none, since a file that was pruned must not end a fleet (docs/kinds.md).
//!
//! Of several dormers one holds a host: the one whose pool stands in its annotation `dormer.io/host-pool`, beside the
//! finalizer. It alone writes finalizer and status. If `spec.pool` names another pool, it has its run end first, and then
//! takes its finalizer away; the other dormer waits for that.

use super::{cluster::sentence, objects::ObservedNode, view::View};
use crate::{
    kubernetes::{events::Events, keys},
    pool::host::{
        HostAddress, HostNode, INSTANCES, WindowsHost, WindowsHostSpec, entries, is_address,
    },
};
use futures::{StreamExt, future::join_all, stream};
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

/// Field manager of the watcher's writes.
const MANAGER: &str = "dormer-watcher";
/// Limit of one write.
const WRITE_MAX: Duration = Duration::from_secs(3);
/// Limit of all writes of one pass; the others wait for the next pass.
const PASS_MAX: Duration = Duration::from_secs(5);
/// Most writes at once: one that hangs holds no other.
const WRITES_AT_ONCE: usize = 16;
/// Limit of one lookup of a name.
const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// How long the result of a lookup counts.
const LOOKUP_KEPT: Duration = Duration::from_secs(60);
/// Pause before a failed write is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(15);
/// Most hosts and entries that are looked after.
const HOSTS_MAX: usize = 5_000;
/// Most findings that are kept.
const FINDINGS_MAX: usize = 100;

/// A WindowsHost as read.
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

    /// Pool whose dormer manages it; the finalizer of an older build names none.
    fn holder(&self) -> Option<&str> {
        self.annotation(keys::HOST_POOL).filter(|_| self.holds())
    }

    /// The pool that it belongs to; `None`: its spec cannot be read, or names none.
    fn named_pool(&self) -> Option<&str> {
        self.spec.as_ref().ok()?.pool.as_deref()
    }

    /// Relation of the dormer of `pool` to this host.
    fn claim(&self, pool: &str) -> Claim {
        let named = self.named_pool().unwrap_or(pool) == pool;
        match self.holder() {
            Some(holder) if holder != pool => Claim::Others,
            // Who began with it takes it off its host again.
            Some(_) if named || self.leaves() => Claim::Ours,
            Some(_) => Claim::HandedOver,
            None if named => Claim::Ours,
            None => Claim::Others,
        }
    }
}

/// Whose a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// This dormer's.
    Ours,
    /// This dormer's until its run has ended, and then another one's.
    HandedOver,
    /// Another one's: nothing is written on it.
    Others,
}

/// A write that is due.
#[derive(Debug, Clone, PartialEq)]
enum Action {
    Create { name: String, user: String },
    Delete { name: String, uid: String },
    Patch { name: String, change: Value },
    Status { name: String, status: Value },
}

impl Action {
    /// The host that it is about.
    fn about(&self) -> &str {
        match self {
            Self::Create { name, .. }
            | Self::Delete { name, .. }
            | Self::Patch { name, .. }
            | Self::Status { name, .. } => name,
        }
    }
}

/// Writes that the present objects require.
#[derive(Debug, Default, PartialEq)]
struct HostPlan {
    actions: Vec<Action>,
    /// By host or entry.
    findings: BTreeMap<String, String>,
}

/// Result of a lookup.
type Resolved = Result<Ipv4Addr, String>;

/// The hosts, the addresses of their names, and the problems found.
pub(super) struct Hosts {
    client: Client,
    namespace: String,
    /// The pool of this dormer's; a host of another one is left alone.
    pool: String,
    events: Events,
    objects: BTreeMap<String, HostObject>,
    /// `None`: there is no ConfigMap, or it cannot be read.
    map: Option<(ObjectMeta, BTreeMap<String, String>)>,
    resolved: BTreeMap<String, (Instant, Resolved)>,
    pub(super) findings: BTreeMap<String, String>,
    /// Hosts about which something could not be written, and when that is tried again.
    again: BTreeMap<String, Instant>,
}

impl Hosts {
    pub(super) fn new(client: Client, namespace: &str, pool: &str) -> Self {
        Self {
            events: Events::new(client.clone(), MANAGER),
            client,
            namespace: namespace.to_owned(),
            pool: pool.to_owned(),
            objects: BTreeMap::new(),
            map: None,
            resolved: BTreeMap::new(),
            findings: BTreeMap::new(),
            again: BTreeMap::new(),
        }
    }

    /// Before a list: everything is read again.
    pub(super) fn forget(&mut self) {
        self.objects.clear();
        self.map = None;
    }

    /// Records a WindowsHost as read.
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

    /// Records the ConfigMap as read.
    pub(super) fn observe_map(&mut self, object: DynamicObject) {
        match Option::deserialize(&object.data["data"]) {
            Ok(data) => self.map = Some((object.metadata, data.unwrap_or_default())),
            // What cannot be read takes no host away.
            Err(error) => tracing::warn!("the data of {INSTANCES} cannot be read: {error}"),
        }
    }

    /// Whether this dormer may have a run for the host with this UID.
    pub(super) fn are_ours(&self, uid: &str) -> bool {
        let host = self.objects.get(uid);
        host.is_none_or(|host| host.claim(&self.pool) == Claim::Ours)
    }

    pub(super) fn lose(&mut self, uid: &str) {
        self.objects.remove(uid);
    }

    pub(super) fn lose_map(&mut self) {
        self.map = None;
    }

    /// Executes what the objects require. A problem becomes a finding, and is tried again.
    pub(super) async fn keep(&mut self, view: &View) {
        if self.objects.is_empty() && self.map.is_none() {
            self.findings.clear();
            return;
        }
        self.resolve_names().await;
        let resolved = self
            .resolved
            .iter()
            .map(|(name, (_, it))| (name.clone(), it.clone()));
        let map = self.map.as_ref().map(|(_, data)| data);
        let mut plan = plan(&self.objects, map, &resolved.collect(), view, &self.pool);
        let actions = std::mem::take(&mut plan.actions);
        self.write_all(actions, &mut plan.findings).await;
        self.say(plan.findings).await;
    }

    /// Writes hosts concurrently, and the writes of one host in order. A failed host waits for a while, and delays no
    /// other.
    async fn write_all(&mut self, actions: Vec<Action>, findings: &mut BTreeMap<String, String>) {
        let mut by_host: BTreeMap<String, Vec<Action>> = BTreeMap::new();
        for action in actions {
            let about = action.about().to_owned();
            by_host.entry(about).or_default().push(action);
        }
        self.again.retain(|name, _| by_host.contains_key(name));
        let now = Instant::now();
        let (later, now): (Vec<_>, Vec<_>) = by_host
            .into_iter()
            .partition(|(about, _)| self.again.get(about).is_some_and(|again| now < *again));
        for (about, _) in later {
            if let Some(why) = self.findings.get(&about) {
                findings.insert(about, why.clone());
            }
        }
        let mut now = now;
        now.sort_by_key(|(about, _)| self.again.contains_key(about));
        let api: Api<WindowsHost> = Api::namespaced(self.client.clone(), &self.namespace);
        let limit = Instant::now() + PASS_MAX;
        let mut writes = stream::iter(now)
            .map(|(about, actions)| {
                let api = api.clone();
                let pool = self.pool.as_str();
                async move {
                    let (written, result) = write_host(&api, actions, pool).await;
                    (about, written, result)
                }
            })
            .buffer_unordered(WRITES_AT_ONCE);
        while let Ok(Some(done)) = tokio::time::timeout_at(limit, writes.next()).await {
            let (about, written, result) = done;
            self.objects.extend(written);
            match result {
                Ok(()) => drop(self.again.remove(&about)),
                Err(why) => {
                    self.again
                        .insert(about.clone(), Instant::now() + RETRY_AFTER);
                    findings.insert(about, why);
                }
            }
        }
    }

    /// Logs new findings and writes Events about them; earlier ones were reported already.
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
        let mut writes = Vec::new();
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
            let event = self.events.warn(reference, "BadWindowsHost", "Read", note);
            writes.push(event);
        }
        let writes = stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
        writes.collect::<()>().await;
    }

    /// Resolves the names whose addresses are unknown or old. After a failed lookup the last address stays.
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
            known.is_some_and(|(at, _)| now.duration_since(*at) < LOOKUP_KEPT)
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
}

/// Does what concerns one host, up to the first failure, and returns the objects as they are now.
async fn write_host(
    api: &Api<WindowsHost>,
    actions: Vec<Action>,
    pool: &str,
) -> (Vec<(String, HostObject)>, Result<(), String>) {
    let mut written = Vec::new();
    for action in actions {
        match tokio::time::timeout(WRITE_MAX, write(api, action, pool)).await {
            Ok(Ok(object)) => written.extend(object),
            Ok(Err(why)) => return (written, Err(why)),
            Err(_) => {
                let why = "the API server does not answer in time".to_owned();
                return (written, Err(why));
            }
        }
    }
    (written, Ok(()))
}

/// Executes one write. What was written need not be written again before the watch reports it.
async fn write(
    api: &Api<WindowsHost>,
    action: Action,
    pool: &str,
) -> Result<Option<(String, HostObject)>, String> {
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
                    ..WindowsHostSpec::default()
                },
            );
            let meta = host.meta_mut();
            meta.finalizers = Some(vec![keys::HOST_FINALIZER.into()]);
            meta.annotations = Some(BTreeMap::from([
                (keys::HOST_FROM.into(), INSTANCES.into()),
                (keys::HOST_POOL.into(), pool.into()),
            ]));
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
                Ok(_) => Ok(None),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
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
    let Some(uid) = written.uid() else {
        return Ok(None);
    };
    let status = serde_json::to_value(&written.status).unwrap_or_default();
    let known = HostObject {
        meta: written.metadata,
        spec: Ok(written.spec),
        status,
    };
    Ok(Some((uid, known)))
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
    let found = match tokio::time::timeout(LOOKUP_MAX, asked).await {
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
    pool: &str,
) -> HostPlan {
    let mut plan = HostPlan::default();
    plan_entries(objects, map, pool, &mut plan);
    let mut hosts: Vec<&HostObject> = objects.values().collect();
    hosts.sort_by_key(|host| (host.meta.creation_timestamp.clone(), host.name()));
    // Who has an address, the older one first. One that leaves has it still.
    let mut taken: BTreeMap<Ipv4Addr, &str> = BTreeMap::new();
    for host in hosts {
        let name = host.name().to_owned();
        match host.claim(pool) {
            Claim::Ours => {}
            Claim::HandedOver => {
                if let Some(address) = present(&host.status) {
                    taken.entry(address).or_insert(host.name());
                }
                let other = host.named_pool().unwrap_or_default();
                let uid = host.meta.uid.as_deref().unwrap_or_default();
                if view.has_run(uid) {
                    let why = format!(
                        "its spec.pool is {other} now: the dormer of that pool takes it over once its run here has ended"
                    );
                    plan.findings.insert(name, why);
                } else {
                    let mut change = json!({"metadata": {"finalizers": without_ours(&host.meta),
                        "uid": host.meta.uid, "resourceVersion": host.meta.resource_version}});
                    change["metadata"]["annotations"][keys::HOST_POOL] = Value::Null;
                    plan.actions.push(Action::Patch { name, change });
                }
                continue;
            }
            Claim::Others => {
                // Ours by its spec: it comes once the other one has let it go.
                let waits = host.holder().filter(|_| host.named_pool() == Some(pool));
                if let Some(other) = waits.filter(|_| !host.leaves()) {
                    let why = format!("the dormer of the pool {other} still holds it");
                    plan.findings.insert(name, why);
                }
                continue;
            }
        }
        if host.leaves() {
            if host.ignored() && host.holds() {
                // The host is released as it is, without a removal.
                let change = json!({"metadata": {"finalizers": without_ours(&host.meta),
                    "uid": host.meta.uid}});
                plan.actions.push(Action::Patch { name, change });
                continue;
            }
            let address = present(&host.status);
            if let Some(address) = address {
                taken.entry(address).or_insert(host.name());
            }
            // The Node of the host matters for its removal as well.
            let node = linked(host, address, view);
            if address.is_some() && !holds(&host.status, &json!({"nodeRef": node})) {
                let phase = phase(node.as_ref());
                let status = json!({"phase": phase, "nodeRef": node});
                plan.actions.push(Action::Status { name, status });
            }
            continue;
        }
        if host.holder() != Some(pool) {
            let mut all = host.meta.finalizers.clone().unwrap_or_default();
            if !host.holds() {
                all.push(keys::HOST_FINALIZER.into());
            }
            // Of two dormers that take it at once, the resourceVersion lets one.
            let mut change = json!({"metadata": {"finalizers": all, "uid": host.meta.uid,
                "resourceVersion": host.meta.resource_version}});
            change["metadata"]["annotations"][keys::HOST_POOL] = pool.into();
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
    pool: &str,
    plan: &mut HostPlan,
) {
    let mine = |host: &&HostObject| host.of_map() && host.claim(pool) == Claim::Ours;
    let ours: Vec<_> = objects.values().filter(mine).collect();
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
    let over = map.len() > HOSTS_MAX;
    if over {
        let why = format!(
            "it has {} entries, and no more than {HOSTS_MAX} are looked after: the others are not taken in, and until \
             there are fewer no host is removed",
            map.len()
        );
        plan.findings.insert(INSTANCES.to_owned(), why);
    }
    for (address, user) in entries(map).into_iter().take(HOSTS_MAX) {
        let there = objects.values().find(|host| host.name() == address);
        if !named.insert(address.clone()) {
            let why = "two entries of windows-instances differ in their case alone".to_owned();
            plan.findings.insert(address, why);
            continue;
        }
        let user = match user {
            Ok(user) => user,
            // It stays as it is: a typing error removes no node.
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
            // Another dormer has taken that entry, or is to.
            Some(host) if host.of_map() && host.claim(pool) != Claim::Ours => {}
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
        if !over && !named.contains(host.name()) && !host.leaves() {
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
    let transition = before["lastTransitionTime"].as_str();
    let unchanged = transition.filter(|_| before["status"] == status);
    let now = || jiff::Timestamp::from_second(jiff::Timestamp::now().as_second());
    let since = unchanged.map_or_else(|| now().unwrap_or_default().to_string(), str::to_owned);
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
    let node = linked(host, Some(address), view);
    let phase = phase(node.as_ref());
    json!({"phase": phase, "addresses": addresses, "nodeRef": node, "conditions": [condition]})
}

fn phase(node: Option<&HostNode>) -> &'static str {
    match node {
        Some(_) => "Running",
        None => "Provisioned",
    }
}

/// Node for the host's status: the one with the host's address, else the one in the status, if it exists and a login to
/// the host has found its name. A Node's addresses follow those of its host with a delay.
fn linked(host: &HostObject, address: Option<Ipv4Addr>, view: &View) -> Option<HostNode> {
    let found = address.and_then(|address| node_of(host, address, view));
    found.or_else(|| {
        let before = HostNode::deserialize(&host.status["nodeRef"]).ok()?;
        let node = view.nodes.get(&before.uid)?;
        let login = host.annotation(keys::NODE_NAME) == Some(&node.fact.name);
        let same = node.fact.name == before.name && node.windows_worker;
        (login && same && !others(host, &before.name, view)).then_some(before)
    })
}

/// The host's Node, as the Machine API's nodelink controller finds it: the only Windows worker with its address
/// (machine-api-operator, `pkg/controller/nodelink`). After a probe has read the host's own name, the Node must have
/// that name as well, and belong to no other machine.
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
    (!others(host, name, view)).then(|| HostNode {
        name: name.clone(),
        uid: node.fact.uid.clone(),
    })
}

/// Whether another machine claims this Node.
fn others(host: &HostObject, node: &str, view: &View) -> bool {
    let others = view.machines.values();
    let mut others = others.filter(|it| Some(&it.fact.machine.uid) != host.meta.uid.as_ref());
    others.any(|it| it.counts() && it.fact.node.as_deref() == Some(node))
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
