//! MACs of records: the one module that adds them and the one that compares them.
//!
//! A MAC stands in the envelope, so it crosses the ports, dumps and stores of every kind with its record. It covers
//! the store's incarnation, the run and the body, and the body has the record's seq and the checksum of the record
//! before. So a record can be moved neither to another run nor to another store, and its seq cannot be changed.

use crate::port::{Append, AppendError, Expected, Head, History, HistoryReader, Ports, StoreError};
use dormer_nats::history_keys::{HistoryKeys, Unproven};
use dormer_proto::{
    envelope,
    id::{Incarnation, RunId, Seq},
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Runs read at once.
const PAGE: usize = 500;

/// Where a record lies: what its MAC covers beside its bytes.
#[derive(Debug, Clone, Copy)]
pub struct RecordOf<'a> {
    /// Identity of the store.
    pub incarnation: Incarnation,
    pub run: &'a RunId,
}

/// Calls `with` with everything that the MAC of a record covers, and with its MAC.
fn covered<T>(
    of: RecordOf<'_>,
    bytes: &[u8],
    with: impl FnOnce(&[&[u8]], Option<&str>) -> T,
) -> Option<T> {
    let parts = envelope::parts(bytes).ok()?;
    let incarnation = of.incarnation.0.to_be_bytes();
    let version = parts.version.to_be_bytes();
    let schema = parts.schema.to_be_bytes();
    let all: [&[u8]; 6] = [
        &incarnation,
        of.run.as_str().as_bytes(),
        &version,
        &schema,
        parts.kind.as_bytes(),
        parts.body,
    ];
    Some(with(&all, parts.mac))
}

/// The record with a MAC by the first key, instead of any that it had. Bytes that are no envelope stay as they are.
#[must_use]
pub fn add_mac(keys: &HistoryKeys, of: RecordOf<'_>, bytes: Vec<u8>) -> Vec<u8> {
    let mac = covered(of, &bytes, |covered, _| keys.mac(covered)).flatten();
    mac.and_then(|mac| envelope::with_mac(&bytes, &mac))
        .unwrap_or(bytes)
}

/// Compares the MAC of a record with its bytes and where it lies. Returns the id of its key.
///
/// # Errors
/// [`Unproven`], also for a record without a MAC.
pub fn verify(keys: &HistoryKeys, of: RecordOf<'_>, bytes: &[u8]) -> Result<String, Unproven> {
    covered(of, bytes, |covered, mac| {
        keys.verify(covered, mac).map(str::to_owned)
    })
    .unwrap_or(Err(Unproven::Wrong))
}

/// As [`verify`], for an engine that is about to act on the record: without keys everything is believed, and without a
/// MAC what the keys' settings allow.
///
/// # Errors
/// [`Unproven`]: the engine must not act on it.
pub fn verify_if_keyed(
    keys: Option<&HistoryKeys>,
    of: RecordOf<'_>,
    bytes: &[u8],
) -> Result<(), Unproven> {
    let Some(keys) = keys else { return Ok(()) };
    match verify(keys, of, bytes) {
        Err(Unproven::Missing) if keys.accepts_unkeyed() => Ok(()),
        result => result.map(drop),
    }
}

/// What the MACs of a store's records say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proof {
    /// Records by the id of their key.
    pub keyed: BTreeMap<String, u64>,
    /// Records without a MAC, from before the run's first record with one.
    pub unkeyed: u64,
    /// Runs without a MAC, of which an engine with keys quarantines each.
    pub last_unkeyed: Vec<RunId>,
    /// Records that are not what an engine with these keys wrote there, each with its run and seq.
    pub wrong: Vec<String>,
}

impl Proof {
    /// Adds the records of one run, in their order.
    pub(crate) fn add(&mut self, keys: &HistoryKeys, of: RecordOf<'_>, records: &[Vec<u8>]) {
        let mut before: Option<u64> = None;
        let mut keyed = false;
        for bytes in records {
            let seq = seq_of(bytes);
            let named = seq.map_or_else(
                || format!("after {}", before.unwrap_or(0)),
                |seq| seq.to_string(),
            );
            match verify(keys, of, bytes) {
                Ok(id) => {
                    keyed = true;
                    *self.keyed.entry(id).or_default() += 1;
                    if before.is_some() && seq != before.map(|before| before + 1) {
                        let why = "it is a record of this run from another place in its history";
                        self.wrong.push(format!("{} {named}: {why}", of.run));
                    }
                }
                Err(Unproven::Missing) if !keyed => self.unkeyed += 1,
                Err(why) => self.wrong.push(format!("{} {named}: {why}", of.run)),
            }
            before = seq.or(before);
        }
        if !keyed && !records.is_empty() {
            self.last_unkeyed.push(of.run.clone());
        }
    }
}

/// Compares the MAC of every record of a store.
///
/// # Errors
/// Errors of the store.
pub async fn prove<P: Ports>(ports: &P, keys: &HistoryKeys) -> Result<Proof, StoreError> {
    let incarnation = ports.history().incarnation();
    let mut proof = Proof::default();
    let mut after: Option<RunId> = None;
    loop {
        let heads = ports.reader().heads(after.as_ref(), PAGE).await?;
        let Some(last) = heads.last() else {
            return Ok(proof);
        };
        after = Some(last.run.clone());
        for Head { run, .. } in &heads {
            let records = ports.reader().records(run, Seq(0), usize::MAX).await?;
            proof.add(keys, RecordOf { incarnation, run }, &records);
        }
    }
}

/// A record of a dump as the store that is made from it holds it: its MAC is compared as of the old store, and replaced by
/// one for the new. Without keys, and without a MAC, it stays as it is.
///
/// # Errors
/// [`Unproven`]: these keys did not write it.
pub(crate) fn moved(
    keys: Option<&HistoryKeys>,
    run: &RunId,
    bytes: Vec<u8>,
    [from, to]: [Incarnation; 2],
) -> Result<Vec<u8>, Unproven> {
    let Some(keys) = keys else { return Ok(bytes) };
    let of = |incarnation| RecordOf { incarnation, run };
    match verify(keys, of(from), &bytes) {
        Ok(_) => Ok(add_mac(keys, of(to), bytes)),
        Err(Unproven::Missing) => Ok(bytes),
        Err(why) => Err(why),
    }
}

/// Seq in the body of a record, which every workflow's records have.
fn seq_of(bytes: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Body {
        run: Run,
    }
    #[derive(Deserialize)]
    struct Run {
        seq: Seq,
    }
    let parts = envelope::parts(bytes).ok()?;
    let body: Body = rmp_serde::from_slice(parts.body).ok()?;
    Some(body.run.seq.0)
}

/// Writes the last record of each run again with a MAC by the first key, if it has none or one by an older key. The
/// answer is the numbers of records written and of runs.
///
/// Beside running engines this is safe: the record stays the same, and the condition on each append lets an engine that
/// was faster win.
///
/// # Errors
/// Errors of the store; [`StoreError::Broken`] names a run whose last record has a wrong MAC, or has
/// none and the keys' settings do not allow that.
pub async fn key_last_records<P: Ports>(
    ports: &P,
    keys: &HistoryKeys,
) -> Result<(usize, usize), StoreError> {
    let incarnation = ports.history().incarnation();
    let mut written = 0;
    let mut runs = 0;
    let mut after: Option<RunId> = None;
    loop {
        let heads = ports.reader().heads(after.as_ref(), PAGE).await?;
        let Some(last) = heads.last() else {
            return Ok((written, runs));
        };
        after = Some(last.run.clone());
        runs += heads.len();
        let ids: Vec<RunId> = heads.iter().map(|head| head.run.clone()).collect();
        let stored = ports.history().load(&ids).await?;
        let mut appends = Vec::new();
        for (head, stored) in heads.into_iter().zip(stored) {
            // A head of another revision is not this record's: an engine has just written, with a MAC.
            let Some(stored) = stored.filter(|stored| stored.revision == head.revision) else {
                continue;
            };
            let run = &head.run;
            let of = RecordOf { incarnation, run };
            match verify(keys, of, &stored.bytes) {
                Ok(id) if id == keys.writes_as() => continue,
                Err(why) if why != Unproven::Missing || !keys.accepts_unkeyed() => {
                    return Err(StoreError::Broken(format!("{run} {}: {why}", head.seq)));
                }
                _ => {
                    let bytes = add_mac(keys, of, stored.bytes);
                    appends.push(same_record(head, bytes));
                }
            }
        }
        for result in ports.history().append(appends).await {
            match result {
                Ok(_) => written += 1,
                Err(AppendError::Conflict) => {}
                Err(error) => return Err(StoreError::Unavailable(error.to_string())),
            }
        }
    }
}

fn same_record(head: Head, bytes: Vec<u8>) -> Append {
    Append {
        run: head.run,
        expected: Expected::At(head.revision),
        bytes,
        seq: head.seq,
        deadline: head.deadline,
        closed: head.closed,
        quiet: head.quiet,
    }
}
