//! Durable commit of the redb file: a segment's records, small changes, and the file's relation to the log.

use super::{
    overlay::Layer,
    state::{Log, note},
    tables::{DEAD, HEADS, META, QUARANTINE, RECORDS},
};
use crate::port::{DeadLetter, QuarantineNote};
use dormer_proto::{
    id::{Revision, RunId},
    subject::RECORDS_PER_RUN_MAX,
};
use redb::{Database, Durability, ReadableTable, Table, WriteTransaction};

/// Write other than an append. Each returns a number: the epoch, the id or the version that it assigned.
pub(super) enum SmallWrite {
    Epoch,
    Forget(RunId, Revision),
    DeadLetter(DeadLetter),
    RemoveDeadLetter(u64),
    Quarantine(QuarantineNote),
    /// A note of this version.
    Unquarantine(RunId, u64),
}

/// Commits everything or nothing. Returns the numbers of the writes, in their order.
pub(super) fn commit(
    database: &Database,
    layer: &Layer,
    writes: Vec<SmallWrite>,
    log: Log,
) -> Result<Vec<u64>, redb::Error> {
    let mut change = database.begin_write()?;
    change.set_durability(Durability::Immediate)?;
    put(&change, layer)?;
    let numbers = writes
        .into_iter()
        .map(|write| apply_small_write(&change, write));
    let numbers = numbers.collect::<Result<_, _>>()?;
    note(&change, log)?;
    change.commit()?;
    Ok(numbers)
}

fn put(change: &WriteTransaction, layer: &Layer) -> Result<(), redb::Error> {
    let mut heads = change.open_table(HEADS)?;
    let mut records = change.open_table(RECORDS)?;
    for (run, entries) in layer {
        let name = run.as_str();
        let stored = heads.get(name)?.map_or(0, |head| head.value().0);
        // Records that are already stored stay as they are, in case a segment is applied twice.
        let newer = entries.iter().filter(|entry| entry.head.0 > stored);
        let mut last = None;
        for entry in newer {
            let seq = entry.head.1;
            records.insert((name, seq), entry.bytes.as_slice())?;
            if let Some(old) = seq.checked_sub(RECORDS_PER_RUN_MAX.unsigned_abs()) {
                records.remove((name, old))?;
            }
            last = Some(entry.head);
        }
        if let Some(head) = last {
            heads.insert(name, head)?;
        }
    }
    Ok(())
}

fn apply_small_write(change: &WriteTransaction, write: SmallWrite) -> Result<u64, redb::Error> {
    match write {
        SmallWrite::Epoch => count(change, "epoch"),
        SmallWrite::Forget(run, revision) => forget(change, &run, revision).map(|()| 0),
        SmallWrite::DeadLetter(message) => {
            let id = count(change, "dead")?;
            let text = serde_json::to_vec(&message).map_err(std::io::Error::other)?;
            change.open_table(DEAD)?.insert(id, text.as_slice())?;
            Ok(id)
        }
        SmallWrite::RemoveDeadLetter(id) => {
            change.open_table(DEAD)?.remove(id)?;
            Ok(id)
        }
        SmallWrite::Quarantine(mut note) => {
            let mut notes = change.open_table(QUARANTINE)?;
            if version_of(&notes, &note.run)? != note.version {
                return Ok(0);
            }
            note.version = count(change, "quarantine")?;
            let text = serde_json::to_vec(&note).map_err(std::io::Error::other)?;
            notes.insert(note.run.as_str(), text.as_slice())?;
            Ok(note.version)
        }
        SmallWrite::Unquarantine(run, version) => {
            let mut notes = change.open_table(QUARANTINE)?;
            if version_of(&notes, &run)? == version {
                notes.remove(run.as_str())?;
            }
            Ok(version)
        }
    }
}

/// Version of a run's note; 0: it has none.
fn version_of(notes: &Table<'_, &str, &[u8]>, run: &RunId) -> Result<u64, redb::Error> {
    let note = notes.get(run.as_str())?;
    let note = note.and_then(|text| serde_json::from_slice::<QuarantineNote>(text.value()).ok());
    Ok(note.map_or(0, |note| note.version))
}

pub(super) fn count(change: &WriteTransaction, name: &str) -> Result<u64, redb::Error> {
    let mut meta = change.open_table(META)?;
    let next = meta.get(name)?.map_or(0, |value| value.value()) + 1;
    meta.insert(name, next)?;
    Ok(next)
}

fn forget(change: &WriteTransaction, run: &RunId, revision: Revision) -> Result<(), redb::Error> {
    let mut heads = change.open_table(HEADS)?;
    let same = heads
        .get(run.as_str())?
        .is_some_and(|head| head.value().0 == revision.0);
    if same {
        heads.remove(run.as_str())?;
        let mut records = change.open_table(RECORDS)?;
        records.retain_in((run.as_str(), 0)..=(run.as_str(), u64::MAX), |_, _| false)?;
    }
    Ok(())
}
