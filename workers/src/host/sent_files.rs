//! Files that this worker has uploaded, by host, so that a broken connection does not cost another check.

use dormer_proto::{lock::Locked as _, machine::HostRef};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard},
};

/// Most hosts remembered. Beyond that all are forgotten, which costs one check each.
const HOSTS_MAX: usize = 10_000;

/// Files named by their content, by host. A memory, never evidence: a call that finds nothing to run makes it forget.
#[derive(Debug, Default)]
pub(super) struct SentFiles {
    /// A lock: held for a map operation, never across an await.
    hosts: Mutex<HashMap<String, BTreeSet<String>>>,
}

impl SentFiles {
    fn hosts(&self) -> MutexGuard<'_, HashMap<String, BTreeSet<String>>> {
        self.hosts.locked()
    }

    /// Whether this file was put there.
    pub(super) fn has(&self, host: &HostRef, path: &str) -> bool {
        self.hosts()
            .get(&key(host))
            .is_some_and(|paths| paths.contains(path))
    }

    /// It is there now.
    pub(super) fn put(&self, host: &HostRef, path: String) {
        let mut hosts = self.hosts();
        if hosts.len() >= HOSTS_MAX {
            hosts.clear();
        }
        hosts.entry(key(host)).or_default().insert(path);
    }

    /// Nothing is known of this host any more.
    pub(super) fn forget(&self, host: &HostRef) {
        self.hosts().remove(&key(host));
    }
}

fn key(host: &HostRef) -> String {
    format!("{}@{}", host.machine.uid, host.address)
}
