//! Acknowledged records that are not in the redb file yet. Readers look here first.

use crate::head_row::HeadRow;
use dormer_proto::{id::RunId, lock::ReadWriteLocked as _};
use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// Record, and the run's head after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) head: HeadRow,
    pub(super) bytes: Vec<u8>,
}

/// Records of one log segment by run, each run's ascending.
pub(super) type Layer = BTreeMap<RunId, Vec<Entry>>;

/// Layers of the segment being written, and of the one being copied into the redb file.
///
/// A lock instead of a task: readers hold it for nanoseconds, and must not wait for the writer, which waits for the
/// disk.
#[derive(Debug, Default)]
pub(super) struct Overlay(RwLock<Layers>);

#[derive(Debug, Default)]
struct Layers {
    active: Layer,
    sealed: Option<Arc<Layer>>,
}

impl Layers {
    fn newest_first(&self) -> impl Iterator<Item = &Layer> {
        std::iter::once(&self.active).chain(self.sealed.as_deref())
    }
}

impl Overlay {
    fn layers(&self) -> RwLockReadGuard<'_, Layers> {
        self.0.read_locked()
    }

    fn change(&self) -> RwLockWriteGuard<'_, Layers> {
        self.0.write_locked()
    }

    /// Result of `read` on the last record of `run` here.
    pub(super) fn last<T>(&self, run: &RunId, read: impl Fn(&Entry) -> T) -> Option<T> {
        let layers = self.layers();
        layers
            .newest_first()
            .find_map(|layer| layer.get(run)?.last().map(&read))
    }

    /// All records of `run` here, unordered.
    pub(super) fn records(&self, run: &RunId) -> Vec<Entry> {
        let layers = self.layers();
        layers
            .newest_first()
            .filter_map(|layer| layer.get(run))
            .flatten()
            .cloned()
            .collect()
    }

    /// Heads of at most `limit` runs after `after`.
    pub(super) fn heads(&self, after: Option<&RunId>, limit: usize) -> BTreeMap<String, HeadRow> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let layers = self.layers();
        let mut heads = BTreeMap::new();
        // The older layer first, so that the newer one overrides it.
        for layer in layers.sealed.as_deref().into_iter().chain([&layers.active]) {
            let runs = layer
                .range::<RunId, _>((from, Bound::Unbounded))
                .take(limit);
            heads.extend(runs.filter_map(|(run, entries)| {
                entries
                    .last()
                    .map(|entry| (run.as_str().to_owned(), entry.head))
            }));
        }
        heads
    }

    /// Adds records that were just synced.
    pub(super) fn show(&self, records: impl Iterator<Item = (RunId, Entry)>) {
        let mut layers = self.change();
        for (run, entry) in records {
            layers.active.entry(run).or_default().push(entry);
        }
    }

    /// Begins a new layer. Returns the sealed one, which waits for the redb file.
    pub(super) fn seal(&self) -> Arc<Layer> {
        let mut layers = self.change();
        let sealed = Arc::new(std::mem::take(&mut layers.active));
        layers.sealed = Some(Arc::clone(&sealed));
        sealed
    }

    /// Drops the sealed layer, which the redb file now holds.
    pub(super) fn drop_sealed(&self) {
        let sealed = self.change().sealed.take();
        // Freed outside the lock.
        drop(sealed);
    }
}
