//! Quarantined runs as one engine knows them, and the release of those that a person or another build freed.
//!
//! One run that cannot continue must not hold back the others. Its messages would come again for ever, and fill the
//! consumer that all engines share. So an engine notes the run beside the history, and from then on takes its messages
//! away: whatever is still valid is sent again after the release.

use crate::port::{Clock, Ports, Quarantine, QuarantineNote, StoreError};
use dormer_proto::{id::RunId, lock::Locked as _};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

/// Notes that an engine knows. They are a reason to read the store's note, and never count by themselves.
#[derive(Debug, Default)]
pub struct KnownNotes(Mutex<BTreeMap<RunId, QuarantineNote>>);

impl KnownNotes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, QuarantineNote>> {
        // A panic elsewhere cannot have left a half-done map operation.
        self.0.locked()
    }

    /// Which of these runs have a known note.
    pub(crate) fn of<'a>(&self, runs: impl Iterator<Item = &'a RunId>) -> Vec<RunId> {
        let notes = self.lock();
        if notes.is_empty() {
            return Vec::new();
        }
        runs.filter(|run| notes.contains_key(run))
            .cloned()
            .collect()
    }

    pub(crate) fn get(&self, run: &RunId) -> Option<QuarantineNote> {
        let notes = self.lock();
        if notes.is_empty() {
            return None;
        }
        notes.get(run).cloned()
    }

    pub(crate) fn set(&self, run: &RunId, note: Option<QuarantineNote>) {
        let mut notes = self.lock();
        match note {
            Some(note) => drop(notes.insert(run.clone(), note)),
            None => drop(notes.remove(run)),
        }
    }

    /// Reads every note of the store. Returns the released ones.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn refresh<P: Ports>(&self, ports: &P) -> Result<Vec<QuarantineNote>, StoreError> {
        let notes = ports.quarantine().notes().await?;
        let (released, held): (Vec<_>, Vec<_>) =
            notes.into_iter().partition(|note| note.released.is_some());
        *self.lock() = held
            .into_iter()
            .map(|note| (note.run.clone(), note))
            .collect();
        Ok(released)
    }
}

/// Releases a run: engines try it again, and what was outstanding is carried out again. Returns whether it was
/// quarantined.
///
/// # Errors
/// Errors of the store.
pub async fn release<P: Ports>(ports: &P, run: &RunId) -> Result<bool, StoreError> {
    let notes = ports
        .quarantine()
        .notes_of(std::slice::from_ref(run))
        .await?;
    let mut notes = notes.into_iter().flatten();
    let Some(note) = notes.find(|note| note.missed.is_none()) else {
        return Ok(false);
    };
    if note.released.is_none() {
        let released = Some(ports.clock().now());
        ports
            .quarantine()
            .put(QuarantineNote { released, ..note })
            .await?;
    }
    Ok(true)
}
