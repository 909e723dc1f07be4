//! The object store: what etcd is to a cluster, in memory, with a bounded log for watches.

use dormer_proto::lock::Locked as _;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::object::{Key, Meta, Object};

/// Events kept per kind for watches that start late; older ones are compacted away.
pub const LOG_MAX: usize = 16_384;
/// Events that may wait for one slow watcher; then its watch ends, as a real server's would.
pub const WATCH_BACKLOG_MAX: usize = 65_536;

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    /// The revision of the change.
    pub revision: u64,
    /// Whether the object is gone by it.
    pub deleted: bool,
    /// The object after the change; for a deletion as it was last, with the deletion's revision.
    pub object: Arc<Object>,
    /// The object before; `None` when it is new.
    pub before: Option<Arc<Object>>,
}

/// Which changes a watcher is woken for; finer selection is its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Interest {
    /// All of the kind.
    All,
    /// The object of this name.
    Name(String),
    /// Pods on this node, before or after the change.
    Node(String),
}

/// Why a watch cannot start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchError {
    /// The start is before the oldest kept revision, which is given.
    Compacted(u64),
    /// It would start after the present revision.
    Future(u64),
}

/// Called under the store's lock for every change, with the user that made it. It reads the whole store through the
/// transaction, and must not write.
pub type Observer = Box<dyn Fn(&Tx<'_>, &'static str, &Event) + Send + Sync>;

/// The object store.
#[derive(Default)]
pub struct Store {
    inner: Mutex<Inner>,
    observer: OnceLock<Observer>,
}

#[derive(Default)]
struct Inner {
    revision: u64,
    tables: HashMap<&'static str, Table>,
}

#[derive(Default)]
struct Table {
    objects: BTreeMap<Key, Arc<Object>>,
    /// Pods by `spec.nodeName`, so that one node's pods are found without a walk.
    by_node: HashMap<String, BTreeSet<Key>>,
    log: VecDeque<Arc<Event>>,
    /// The newest revision that the log no longer holds.
    compacted: u64,
    watchers: HashMap<Interest, Vec<mpsc::Sender<Arc<Event>>>>,
}

/// The state of a store at one time, to go back to.
pub struct Backup {
    revision: u64,
    tables: HashMap<&'static str, BTreeMap<Key, Arc<Object>>>,
}

impl Store {
    /// Sets the observer of every change; only the first call counts.
    pub fn observe(&self, observer: Observer) {
        let _ = self.observer.set(observer);
    }

    /// Runs one transaction: everything in it happens at once, as seen from outside. `by` is the
    /// user on whose behalf.
    pub fn transact<T>(&self, by: &str, work: impl FnOnce(&mut Tx<'_>) -> T) -> T {
        let mut inner = self.lock();
        work(&mut Tx {
            inner: &mut inner,
            by,
            observer: self.observer.get(),
        })
    }

    /// The present revision.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Reads one object.
    pub fn get(&self, store: &'static str, key: &Key) -> Option<Arc<Object>> {
        self.lock().table(store)?.objects.get(key).cloned()
    }

    /// All objects of a kind in the order of their keys, with the store's revision.
    pub fn list(&self, store: &'static str, scope: &Scope<'_>) -> (Vec<Arc<Object>>, u64) {
        let inner = self.lock();
        let found = inner.table(store).map_or_else(Vec::new, |t| t.list(scope));
        (found, inner.revision)
    }

    /// How many pods a node has.
    pub fn count_on(&self, store: &'static str, node: &str) -> usize {
        let inner = self.lock();
        inner
            .table(store)
            .and_then(|t| t.by_node.get(node))
            .map_or(0, BTreeSet::len)
    }

    /// How many objects of a kind there are.
    pub fn count(&self, store: &'static str) -> usize {
        self.lock().table(store).map_or(0, |t| t.objects.len())
    }

    /// Starts a watch after `revision`: the log since then, and a channel for the rest. With `with_all`, `revision` is
    /// ignored and all present objects come first.
    ///
    /// # Errors
    ///
    /// `revision` is before the oldest kept one, or after the present.
    pub fn watch(
        &self,
        store: &'static str,
        interest: Interest,
        from: WatchFrom,
    ) -> Result<StartedWatch, WatchError> {
        let mut inner = self.lock();
        let present = inner.revision;
        let table = inner.tables.entry(store).or_default();
        let backlog = match from {
            WatchFrom::Now => Vec::new(),
            WatchFrom::All => table
                .objects
                .values()
                .map(|o| Arc::new(Event::now(o)))
                .collect(),
            WatchFrom::After(revision) => {
                if revision > present {
                    return Err(WatchError::Future(present));
                }
                if revision < table.compacted {
                    return Err(WatchError::Compacted(table.compacted));
                }
                let start = table.log.partition_point(|e| e.revision <= revision);
                table.log.range(start..).cloned().collect()
            }
        };
        let (sender, changes) = mpsc::channel(WATCH_BACKLOG_MAX);
        table.watchers.entry(interest).or_default().push(sender);
        Ok(StartedWatch {
            backlog,
            changes,
            revision: present,
        })
    }

    /// Forgets a kind's log and ends its watches, as a compaction after a long disconnection
    /// does: a watch from before is answered 410 Gone.
    pub fn compact(&self, store: &'static str) {
        let mut inner = self.lock();
        let revision = inner.revision;
        if let Some(table) = inner.tables.get_mut(store) {
            table.log.clear();
            table.compacted = revision;
            table.watchers.clear();
        }
    }

    /// Ends all watches; the log stays.
    pub fn end_watches(&self) {
        for table in self.lock().tables.values_mut() {
            table.watchers.clear();
        }
    }

    /// The present state, to go back to.
    pub fn backup(&self) -> Backup {
        let inner = self.lock();
        let tables = inner
            .tables
            .iter()
            .map(|(name, t)| (*name, t.objects.clone()));
        Backup {
            revision: inner.revision,
            tables: tables.collect(),
        }
    }

    /// Restores an earlier state, revision included, as an etcd that is restored from a backup does. Watches end, and
    /// the observer is not called.
    pub fn restore(&self, backup: &Backup) {
        let mut inner = self.lock();
        inner.revision = backup.revision;
        for (name, table) in &mut inner.tables {
            table.objects = backup.tables.get(name).cloned().unwrap_or_default();
            table.reindex();
            table.log.clear();
            table.compacted = backup.revision;
            table.watchers.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.locked()
    }
}

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchFrom {
    /// With what changes from now on.
    Now,
    /// With all present objects, then what changes.
    All,
    /// After this revision.
    After(u64),
}

/// Changes from a revision on, as they come.
pub struct StartedWatch {
    /// What comes first.
    pub backlog: Vec<Arc<Event>>,
    /// What comes then; its end means that the watch was ended.
    pub changes: mpsc::Receiver<Arc<Event>>,
    /// The store's revision at the start.
    pub revision: u64,
}

/// Which part of a kind is listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// Only this namespace.
    pub namespace: Option<&'a str>,
    /// Only pods on this node.
    pub node: Option<&'a str>,
    /// Only keys after this one.
    pub after: Option<&'a Key>,
}

impl Inner {
    fn table(&self, store: &str) -> Option<&Table> {
        self.tables.get(store)
    }
}

impl Table {
    fn list(&self, scope: &Scope<'_>) -> Vec<Arc<Object>> {
        let in_scope = |key: &Key| {
            scope.namespace.is_none_or(|ns| key.namespace == ns)
                && scope.after.is_none_or(|after| key > after)
        };
        if let Some(node) = scope.node {
            let keys = self
                .by_node
                .get(node)
                .into_iter()
                .flatten()
                .filter(|k| in_scope(k));
            return keys.filter_map(|k| self.objects.get(k).cloned()).collect();
        }
        let start = match (scope.after, scope.namespace) {
            (Some(after), _) => after.clone(),
            (None, Some(ns)) => Key::new(ns, ""),
            (None, None) => Key::new("", ""),
        };
        let from = self.objects.range(start..);
        let ends = |key: &Key| {
            scope
                .namespace
                .is_some_and(|ns| key.namespace.as_str() > ns)
        };
        let kept = from
            .take_while(|(key, _)| !ends(key))
            .filter(|(key, _)| in_scope(key));
        kept.map(|(_, object)| object.clone()).collect()
    }

    fn reindex(&mut self) {
        self.by_node.clear();
        for (key, object) in &self.objects {
            if let Some(node) = node_of(&object.value) {
                self.by_node
                    .entry(node.to_owned())
                    .or_default()
                    .insert(key.clone());
            }
        }
    }

    fn index(&mut self, key: &Key, before: Option<&Value>, after: Option<&Value>) {
        let was = before.and_then(node_of);
        let is = after.and_then(node_of);
        if was == is {
            return;
        }
        if let Some(was) = was
            && let Some(keys) = self.by_node.get_mut(was)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.by_node.remove(was);
            }
        }
        if let Some(is) = is {
            self.by_node
                .entry(is.to_owned())
                .or_default()
                .insert(key.clone());
        }
    }

    fn publish(&mut self, event: &Arc<Event>) {
        self.log.push_back(event.clone());
        if self.log.len() > LOG_MAX
            && let Some(old) = self.log.pop_front()
        {
            self.compacted = old.revision;
        }
        let mut interests = vec![
            Interest::All,
            Interest::Name(event.object.value.name().to_owned()),
        ];
        let values = [Some(&event.object), event.before.as_ref()];
        for node in values
            .into_iter()
            .flatten()
            .filter_map(|o| node_of(&o.value))
        {
            let interest = Interest::Node(node.to_owned());
            if !interests.contains(&interest) {
                interests.push(interest);
            }
        }
        for interest in interests {
            self.notify(&interest, event);
        }
    }

    /// Sends to all watchers of this interest; one that is gone or too slow is dropped.
    fn notify(&mut self, interest: &Interest, event: &Arc<Event>) {
        if let Some(senders) = self.watchers.get_mut(interest) {
            senders.retain(|s| s.try_send(event.clone()).is_ok());
            if senders.is_empty() {
                self.watchers.remove(interest);
            }
        }
    }
}

/// The node of a pod; empty for one that waits for a node.
fn node_of(object: &Value) -> Option<&str> {
    let node = object["spec"]["nodeName"].as_str();
    node.or_else(|| (object["kind"] == "Pod").then_some(""))
}

impl Event {
    fn now(object: &Arc<Object>) -> Self {
        Self {
            revision: object.revision,
            deleted: false,
            object: object.clone(),
            before: None,
        }
    }
}

/// A transaction: reads and writes of the whole store, all at one time.
pub struct Tx<'a> {
    inner: &'a mut Inner,
    /// On whose behalf.
    pub by: &'a str,
    observer: Option<&'a Observer>,
}

impl Tx<'_> {
    /// Reads one object.
    pub fn get(&self, store: &str, key: &Key) -> Option<&Arc<Object>> {
        self.inner.table(store)?.objects.get(key)
    }

    pub fn list(&self, store: &str, scope: &Scope<'_>) -> Vec<Arc<Object>> {
        self.inner
            .table(store)
            .map_or_else(Vec::new, |t| t.list(scope))
    }

    /// The oldest object of a kind and how many there are, if there are more than `most`.
    pub fn oldest_beyond(&self, store: &str, most: usize) -> Option<(Key, usize)> {
        let table = self.inner.table(store).filter(|t| t.objects.len() > most)?;
        let oldest = table.objects.iter().min_by_key(|(_, o)| o.revision)?;
        Some((oldest.0.clone(), table.objects.len()))
    }

    /// Writes an object under its key, with the next revision.
    pub fn put(&mut self, store: &'static str, mut value: Value) -> Arc<Object> {
        let key = Key::of(&value);
        self.inner.revision += 1;
        let revision = self.inner.revision;
        value["metadata"]["resourceVersion"] = json!(revision.to_string());
        let object = Arc::new(Object::new(value, revision));
        let table = self.inner.tables.entry(store).or_default();
        let before = table.objects.insert(key.clone(), object.clone());
        table.index(
            &key,
            before.as_deref().map(|o| &o.value),
            Some(&object.value),
        );
        self.commit(
            store,
            Event {
                revision,
                deleted: false,
                object: object.clone(),
                before,
            },
        );
        object
    }

    /// Takes an object away; answers it as it was last.
    pub fn delete(&mut self, store: &'static str, key: &Key) -> Option<Arc<Object>> {
        let table = self.inner.tables.get_mut(store)?;
        let before = table.objects.remove(key)?;
        table.index(key, Some(&before.value), None);
        self.inner.revision += 1;
        let revision = self.inner.revision;
        let mut last = before.value.clone();
        last["metadata"]["resourceVersion"] = json!(revision.to_string());
        let object = Arc::new(Object::new(last, revision));
        let event = Event {
            revision,
            deleted: true,
            object: object.clone(),
            before: Some(before),
        };
        self.commit(store, event);
        Some(object)
    }

    /// Sends an old event again to all who watch (scenario 42).
    pub fn repeat(&mut self, store: &'static str, event: &Arc<Event>) {
        if let Some(table) = self.inner.tables.get_mut(store) {
            table.notify(&Interest::All, event);
        }
    }

    /// The newest event but `back` of a kind that is about this object.
    pub fn recent(&self, store: &'static str, key: &Key, back: usize) -> Option<Arc<Event>> {
        let log = &self.inner.table(store)?.log;
        log.iter()
            .rev()
            .filter(|e| Key::of(&e.object.value) == *key)
            .nth(back)
            .cloned()
    }

    fn commit(&mut self, store: &'static str, event: Event) {
        let event = Arc::new(event);
        if let Some(table) = self.inner.tables.get_mut(store) {
            table.publish(&event);
        }
        if let Some(observer) = self.observer {
            observer(self, store, &event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: Option<&str>) -> Value {
        json!({"kind": "Pod", "metadata": {"namespace": "a", "name": name},
            "spec": {"nodeName": node}})
    }

    #[tokio::test]
    async fn a_watch_goes_on_where_the_list_ended() {
        let store = Store::default();
        store.transact("me", |tx| tx.put("pods", pod("1", None)));
        let (listed, revision) = store.list("pods", &Scope::default());
        assert_eq!(listed.len(), 1);
        store.transact("me", |tx| tx.put("pods", pod("2", None)));
        let mut watch = store
            .watch("pods", Interest::All, WatchFrom::After(revision))
            .expect("a watch");
        assert_eq!(watch.backlog.len(), 1);
        store.transact("me", |tx| tx.delete("pods", &Key::new("a", "1")));
        let event = watch.changes.recv().await.expect("an event");
        assert!(event.deleted && event.revision == 3);
        assert_eq!(event.object.value.name(), "1");
    }

    #[tokio::test]
    async fn compaction_is_gone_and_restore_goes_back() {
        let store = Store::default();
        store.transact("me", |tx| tx.put("pods", pod("1", None)));
        let backup = store.backup();
        store.transact("me", |tx| tx.put("pods", pod("2", Some("n"))));
        store.compact("pods");
        let gone = store.watch("pods", Interest::All, WatchFrom::After(1));
        assert_eq!(gone.err(), Some(WatchError::Compacted(2)));
        store.restore(&backup);
        assert_eq!((store.count("pods"), store.revision()), (1, 1));
        let future = store.watch("pods", Interest::All, WatchFrom::After(2));
        assert_eq!(future.err(), Some(WatchError::Future(1)));
    }

    #[tokio::test]
    async fn one_nodes_pods_are_found_and_watched_alone() {
        let store = Store::default();
        let node = || Interest::Node("n".into());
        let mut watch = store
            .watch("pods", node(), WatchFrom::Now)
            .expect("a watch");
        store.transact("me", |tx| {
            tx.put("pods", pod("1", Some("n")));
            tx.put("pods", pod("2", Some("m")));
            tx.put("pods", pod("1", Some("m")));
        });
        let on = |node| Scope {
            node: Some(node),
            ..Scope::default()
        };
        assert_eq!(store.list("pods", &on("n")).0.len(), 0);
        assert_eq!(store.list("pods", &on("m")).0.len(), 2);
        let mut revisions = Vec::new();
        while let Ok(event) = watch.changes.try_recv() {
            revisions.push(event.revision);
        }
        assert_eq!(revisions, [1, 3]);
    }
}
