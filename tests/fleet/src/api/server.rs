//! What can be done with objects: the API server's verbs, without HTTP.

mod delete;
mod update;

use dormer_proto::lock::Locked as _;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

pub use delete::{DeleteOptions, Deleted};
use serde_json::{Value, json};

use super::{
    admission,
    auth::{Tokens, User},
    ca::Ca,
    kinds::{self, Kind},
    object::{Key, Meta, Object},
    selector::{Fields, Labels},
    status::Refusal,
    store::{Scope, Store, Tx},
};
use crate::{
    faults::splitmix,
    world::{Happened, Record, WorldClock},
};

/// Events kept in the whole cluster; the oldest go first (a real server forgets them by age).
pub const EVENTS_MAX: usize = 20_000;

/// The API server: an object store with Kubernetes' rules. Clones share it.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) clock: WorldClock,
    pub(crate) ca: Ca,
    pub(crate) tokens: Tokens,
    pub(crate) available: AtomicBool,
    pub(crate) requests: AtomicU64,
    /// Number of times that the right to read Nodes was revoked and not restored.
    pub(crate) unreadable: AtomicU64,
    /// API groups, or groups with a version, that are not served.
    unserved: Mutex<BTreeSet<String>>,
    record: OnceLock<Record>,
    drawn: AtomicU64,
    seed: u64,
    /// What each field manager applied last, by kind, key and manager.
    applied: Mutex<HashMap<(&'static str, Key, String), Value>>,
}

/// Selection of a list.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Label selector.
    pub labels: Labels,
    /// Field selector.
    pub fields: Fields,
    /// At most so many; 0: all.
    pub limit: usize,
    /// Continue after this key.
    pub after: Option<Key>,
}

/// A list's answer.
#[derive(Debug)]
pub struct Listed {
    pub items: Vec<Arc<Object>>,
    /// The store's revision.
    pub revision: u64,
    /// Where to continue, when there is more.
    pub more: Option<Key>,
    /// How many more there are.
    pub remaining: usize,
}

/// Which part of an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status.
    Main,
    Status,
    /// A certificate request's conditions.
    Approval,
}

/// How a write is made.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Only pretend.
    pub dry_run: bool,
    /// `fieldManager`.
    pub manager: String,
}

impl ApiServer {
    /// An empty server with the namespaces that every cluster has.
    ///
    /// # Errors
    /// When the certificate authority cannot be made.
    pub fn new(clock: WorldClock, seed: u64) -> Result<Self, super::ca::CaError> {
        let inner = Inner {
            store: Store::default(),
            clock,
            ca: Ca::new()?,
            tokens: Tokens::default(),
            available: AtomicBool::new(true),
            unreadable: AtomicU64::new(0),
            unserved: Mutex::default(),
            requests: AtomicU64::new(0),
            record: OnceLock::new(),
            drawn: AtomicU64::new(0),
            seed,
            applied: Mutex::default(),
        };
        let server = Self {
            inner: Arc::new(inner),
        };
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let namespace = json!({"metadata": {"name": name}});
            let _ = server.create(&User::admin(), &kinds::NAMESPACE, "", namespace, false);
        }
        Ok(server)
    }

    /// The object store.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The cluster's certificate authority.
    pub fn ca(&self) -> &Ca {
        &self.inner.ca
    }

    /// The bearer tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.inner.tokens
    }

    /// The world's clock.
    pub fn clock(&self) -> WorldClock {
        self.inner.clock
    }

    /// Sets where what happens is written down; only the first call counts.
    pub fn set_record(&self, record: Record) {
        let _ = self.inner.record.set(record);
    }

    pub(crate) fn note(&self, happened: Happened) {
        if let Some(record) = self.inner.record.get() {
            record.push(happened);
        }
    }

    /// How many HTTP requests were answered.
    pub fn requests(&self) -> u64 {
        self.inner.requests.load(Ordering::Relaxed)
    }

    /// Lets the server be absent (`false`): connections are refused, watches end.
    pub fn set_available(&self, available: bool) {
        self.inner.available.store(available, Ordering::Relaxed);
        if !available {
            self.inner.store.end_watches();
        }
    }

    /// Serves none of these API groups (`group`, or `group/version`), and again all others.
    pub fn unserve(&self, groups: &[&str]) {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        *self.unserved_now() = groups;
        self.inner.store.end_watches();
    }

    pub(crate) fn unserved_now(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.inner.unserved.locked()
    }

    pub(crate) fn serves(&self, kind: &Kind) -> bool {
        let unserved = self.unserved_now();
        !unserved.contains(kind.group) && !unserved.contains(&kind.api_version())
    }

    /// Restores every user's right to read Nodes, however often it was revoked.
    pub fn restore_rights(&self) {
        self.inner.unreadable.store(0, Ordering::Relaxed);
    }

    /// Revokes the right to read Nodes of all users except kubelets and the cluster's own controllers, or restores it
    /// once for each revocation.
    pub fn set_nodes_readable(&self, readable: bool) {
        if readable {
            let less = |taken: u64| taken.checked_sub(1);
            let unreadable = &self.inner.unreadable;
            let _ = unreadable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        } else {
            self.inner.unreadable.fetch_add(1, Ordering::Relaxed);
            self.inner.store.end_watches();
        }
    }

    /// Reads one object.
    ///
    /// # Errors
    /// 404.
    pub fn get(&self, kind: &Kind, key: &Key) -> Result<Arc<Object>, Refusal> {
        let found = self.inner.store.get(kind.store, key);
        found.ok_or_else(|| Refusal::not_found(kind, &key.name))
    }

    /// Lists objects.
    pub fn list(&self, kind: &Kind, query: &ListQuery) -> Listed {
        let scope = Scope {
            namespace: query.namespace.as_deref(),
            node: query.fields.equal_to("spec.nodeName"),
            after: query.after.as_ref(),
        };
        if let Some(found) = self.one_by_name(kind, query) {
            return found;
        }
        let (mut items, revision) = self.inner.store.list(kind.store, &scope);
        if !query.labels.is_empty() || !query.fields.is_empty() {
            items.retain(|o| query.labels.matches(&o.value) && query.fields.matches(&o.value));
        }
        let remaining = match query.limit {
            0 => 0,
            limit => items.len().saturating_sub(limit),
        };
        let mut more = None;
        if remaining > 0 {
            items.truncate(query.limit);
            more = items.last().map(|o| Key::of(&o.value));
        }
        Listed {
            items,
            revision,
            more,
            remaining,
        }
    }

    /// Shortcut for a selector that names one object.
    fn one_by_name(&self, kind: &Kind, query: &ListQuery) -> Option<Listed> {
        let name = query.fields.equal_to("metadata.name")?;
        let namespace = match (kind.namespaced, &query.namespace) {
            (true, None) => return None,
            (true, Some(namespace)) => namespace.as_str(),
            (false, _) => "",
        };
        let revision = self.inner.store.revision();
        let found = self.inner.store.get(kind.store, &Key::new(namespace, name));
        let fits =
            |o: &Arc<Object>| query.labels.matches(&o.value) && query.fields.matches(&o.value);
        let items = found.into_iter().filter(fits).collect();
        Some(Listed {
            items,
            revision,
            more: None,
            remaining: 0,
        })
    }

    /// Makes an object. Its name may be drawn (`generateName`).
    ///
    /// # Errors
    /// 404 for an unknown namespace, 403 for one that goes away, 409 if it is there, 422.
    pub fn create(
        &self,
        user: &User,
        kind: &Kind,
        namespace: &str,
        mut value: Value,
        dry_run: bool,
    ) -> Result<Arc<Object>, Refusal> {
        self.check_body(kind, namespace, None, &value)?;
        value["apiVersion"] = json!(kind.api_version());
        value["kind"] = json!(kind.kind);
        self.new_metadata(kind, namespace, &mut value);
        if kind.store == "events" {
            super::events::to_core(&mut value);
        }
        admission::on_create(kind, &mut value, user);
        admission::check(kind, &value, None)?;
        admission::on_behalf(kind, &value, user)?;
        let key = Key::of(&value);
        self.inner.store.transact(&user.name, |tx| {
            self.check_namespace(tx, kind, &key)?;
            if tx.get(kind.store, &key).is_some() {
                return Err(Refusal::already_exists(kind, &key.name));
            }
            if dry_run {
                return Ok(Arc::new(Object::new(value, 0)));
            }
            if kind.store == "events" {
                forget_old_events(tx);
            }
            Ok(tx.put(kind.store, value))
        })
    }

    fn new_metadata(&self, kind: &Kind, namespace: &str, value: &mut Value) {
        if !value["metadata"].is_object() {
            value["metadata"] = json!({});
        }
        let meta = &mut value["metadata"];
        if meta["name"].as_str().unwrap_or_default().is_empty()
            && let Some(prefix) = meta["generateName"].as_str()
        {
            meta["name"] = json!(format!("{prefix}{}", self.suffix()));
        }
        if kind.namespaced {
            meta["namespace"] = json!(namespace);
        } else if let Some(meta) = meta.as_object_mut() {
            meta.remove("namespace");
        }
        meta["uid"] = json!(self.uid());
        meta["creationTimestamp"] = json!(self.inner.clock.stamp());
        meta["generation"] = json!(1);
        if let Some(meta) = meta.as_object_mut() {
            for set_by_us in [
                "resourceVersion",
                "deletionTimestamp",
                "selfLink",
                "managedFields",
            ] {
                meta.remove(set_by_us);
            }
        }
    }

    /// Whether something may be made in a namespace: 404 where there is none, 403 where it ends.
    pub(super) fn check_namespace(
        &self,
        tx: &Tx<'_>,
        kind: &Kind,
        key: &Key,
    ) -> Result<(), Refusal> {
        let Some(namespace) = key.ns() else {
            return Ok(());
        };
        let found = tx.get("namespaces", &Key::new("", namespace));
        let found = found.ok_or_else(|| Refusal::not_found(&kinds::NAMESPACE, namespace))?;
        if found.value.deleting() {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being \
                 terminated"
            );
            let mut refusal = Refusal::forbidden(kind, &key.name, &why);
            refusal.details["causes"] = json!([{"reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace"}]);
            return Err(refusal);
        }
        Ok(())
    }

    /// A body must be of the kind, and in the namespace, that the path says.
    fn check_body(
        &self,
        kind: &Kind,
        namespace: &str,
        name: Option<&str>,
        value: &Value,
    ) -> Result<(), Refusal> {
        if !value.is_object() {
            return Err(Refusal::bad_request("the body is no object"));
        }
        let wrong = |what: &str, is: &str, path: &str| {
            Err(Refusal::bad_request(format!(
                "the {what} of the object ({is}) does not match the {what} on the URL ({path})"
            )))
        };
        match value["kind"].as_str() {
            Some(is) if !is.is_empty() && is != kind.kind => return wrong("kind", is, kind.kind),
            _ => {}
        }
        match value["metadata"]["namespace"].as_str() {
            Some(is) if kind.namespaced && !is.is_empty() && is != namespace => {
                return wrong("namespace", is, namespace);
            }
            _ => {}
        }
        match (name, value["metadata"]["name"].as_str()) {
            (Some(path), Some(is)) if !is.is_empty() && is != path => wrong("name", is, path),
            _ => Ok(()),
        }
    }

    /// The next UID: drawn from the seed, in the shape of a version 4 UUID.
    pub(crate) fn uid(&self) -> String {
        let a = self.draw();
        let b = self.draw();
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xfff,
            0x8000 | (b >> 48 & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }

    /// Five letters and digits, as Kubernetes draws them for generated names.
    pub(crate) fn suffix(&self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut draw = self.draw();
        let mut character = || {
            let at = usize::try_from(draw % 27).unwrap_or(0);
            draw /= 27;
            char::from(ALPHABET[at])
        };
        (0..5).map(|_| character()).collect()
    }

    fn draw(&self) -> u64 {
        let n = self.inner.drawn.fetch_add(1, Ordering::Relaxed);
        splitmix(splitmix(self.inner.seed) ^ n.wrapping_mul(0xd134_2543_de82_ef95))
    }
}

fn forget_old_events(tx: &mut Tx<'_>) {
    if let Some((oldest, count)) = tx.oldest_beyond("events", EVENTS_MAX)
        && count > EVENTS_MAX
    {
        tx.delete("events", &oldest);
    }
}
