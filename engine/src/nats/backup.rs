//! Check, dump and restore of a NATS store: its history as JSON lines, one record per line.

use super::{
    NatsStore,
    connect::{self, ANSWER_MAX},
    identity,
    link::{Link, header_of, number},
    options::{OpenError, Options},
};
use crate::{
    dump_format::{self, Completeness, Line, LineCounts, RecordLine},
    head_row::{head_of, head_row},
    keyed,
    port::{
        Append, Clock, DeadLetters, Expected, History, HistoryReader, Ports, StoreError,
        SystemClock,
    },
};
use async_nats::jetstream::context::ContextBuilder;
use dormer_engine_core::{Record, Workflow};
use dormer_proto::{
    address::Origin,
    envelope::{self, DecodeError},
    id::{Epoch, Incarnation, Revision, RunId, Seq, Sum, Timestamp},
    subject::{
        CLOSED_HEADER, DEADLINE_HEADER, Names, QUIET_HEADER, RECORDS_PER_RUN_MAX, SEQ_HEADER,
        history_stream_of,
    },
};
use std::{
    collections::HashMap,
    io::{BufRead, Write},
    sync::Arc,
};
use tokio::sync::Notify;

/// Runs read at once.
const PAGE: usize = 1_000;
/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    pub runs: usize,
    pub records: usize,
    /// Records of a newer build among them: intact as far as this build can tell.
    pub newer: usize,
    /// Faults, one sentence each.
    pub faults: Vec<String>,
}

/// Error of a dump or restore.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Error of opening the store.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// IO error of the dump.
    #[error("the dump cannot be read or written: {0}")]
    File(#[from] std::io::Error),
    /// A line is invalid.
    #[error("line {line} of the dump: {why}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Fault in words.
        why: String,
    },
    /// The store already has runs.
    #[error("the store already has {0} runs: restore the dump into an empty store")]
    NotEmpty(usize),
}

impl<C: Clock> NatsStore<C> {
    /// Reads every record. Each must be intact, name its predecessor, and follow it without a gap.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn check<W: Workflow>(&self) -> Result<Checked, StoreError> {
        let mut checked = Checked::default();
        let mut after: Option<RunId> = None;
        loop {
            let heads = self.reader().heads(after.as_ref(), PAGE).await?;
            let Some(last) = heads.last() else {
                return Ok(checked);
            };
            after = Some(last.run.clone());
            for head in &heads {
                let records = self.reader().records(&head.run, Seq(0), PAGE).await?;
                checked.runs += 1;
                checked.records += records.len();
                chain::<W>(&head.run, &records, &mut checked);
            }
        }
    }

    /// Writes the history and the dead letters in the common dump format, which an embedded store can restore as
    /// well. Returns the number of records.
    ///
    /// # Errors
    /// [`BackupError`].
    pub async fn dump(&self, out: &mut (impl Write + Send)) -> Result<usize, BackupError> {
        let epoch = self.next_epoch().await?.0;
        let incarnation = self.incarnation().0;
        dump_format::put(
            out,
            &Line::Store {
                layout: dump_format::LAYOUT,
                incarnation,
                epoch,
            },
        )?;
        let mut count = 0_usize;
        let mut after: Option<RunId> = None;
        loop {
            let heads = self.reader().heads(after.as_ref(), PAGE).await?;
            let Some(last) = heads.last() else { break };
            after = Some(last.run.clone());
            for head in heads {
                for line in lines_of(&self.link, &head.run).await? {
                    dump_format::put(out, &Line::Record(line))?;
                    count += 1;
                }
            }
        }
        let mut after = 0;
        let mut dead_letters = 0;
        loop {
            let messages = self.dead().list(after, PAGE).await?;
            let Some(last) = messages.last() else {
                let counts = LineCounts {
                    records: count as u64,
                    dead_letters,
                };
                dump_format::put(out, &Line::End(counts))?;
                return Ok(count);
            };
            after = last.id;
            for message in messages {
                dump_format::put(out, &Line::DeadLetter(message))?;
                dead_letters += 1;
            }
        }
    }
}

impl NatsStore {
    /// Creates a new store from a dump: a new incarnation, epochs above the dump's, the same records. With keys of
    /// the history each MAC is compared, and replaced by one for the new store.
    ///
    /// # Errors
    /// [`BackupError`]; [`BackupError::NotEmpty`] if there is already a history. After another error the store has a part of
    /// the dump: delete its streams before the next restore.
    pub async fn restore(
        options: &Options,
        from: &mut (impl BufRead + Send),
    ) -> Result<Self, BackupError> {
        let bad = |at: usize, why: String| BackupError::Line { line: at + 1, why };
        let mut texts = from.lines().enumerate();
        let first = texts
            .next()
            .map_or_else(|| Ok(String::new()), |(_, text)| text)?;
        if first.is_empty() {
            return Err(bad(0, "the dump is empty".into()));
        }
        let line = dump_format::read(&first, 0).map_err(|why| bad(0, why))?;
        let mut completeness = Completeness::default();
        completeness.take(&line).map_err(|why| bad(0, why))?;
        let Line::Store {
            epoch, incarnation, ..
        } = line
        else {
            return Err(bad(0, "the first line must describe the store".into()));
        };
        let store = begin(options, Epoch(epoch)).await?;
        let moves = [Incarnation(incarnation), store.incarnation()];
        let keys = options.history_keys.as_deref();
        let mut last: HashMap<RunId, Revision> = HashMap::new();
        let mut lines = 1;
        for (at, text) in texts {
            lines = at + 1;
            let line = dump_format::read(&text?, at).map_err(|why| bad(at, why))?;
            completeness.take(&line).map_err(|why| bad(at, why))?;
            match line {
                Line::Store { .. } | Line::End(_) => {}
                Line::DeadLetter(message) => store.dead().put(message).await?,
                Line::Record(line) => {
                    let mut append = append_of(&line, &last).map_err(|why| bad(at, why))?;
                    append.bytes = keyed::moved(keys, &line.run, append.bytes, moves)
                        .map_err(|why| bad(at, format!("{} {}: {why}", line.run, line.seq)))?;
                    match store.history().append(vec![append]).await.pop() {
                        Some(Ok(revision)) => drop(last.insert(line.run, revision)),
                        Some(Err(error)) => return Err(bad(at, error.to_string())),
                        None => {}
                    }
                }
            }
        }
        completeness.finish().map_err(|why| bad(lines, why))?;
        Ok(store)
    }
}

/// Append of a dump's line, after the run's last revision.
fn append_of(line: &RecordLine, last: &HashMap<RunId, Revision>) -> Result<Append, String> {
    let head = line.head.and_then(|row| head_of(line.run.as_str(), row));
    Ok(Append {
        run: line.run.clone(),
        expected: last
            .get(&line.run)
            .map_or(Expected::Nothing, |r| Expected::At(*r)),
        bytes: line.bytes()?,
        seq: Seq(line.seq),
        deadline: head.as_ref().and_then(|head| head.deadline),
        closed: head.as_ref().and_then(|head| head.closed),
        quiet: head.is_some_and(|head| head.quiet),
    })
}

/// Creates an empty store whose epochs begin above `epoch`.
async fn begin(options: &Options, epoch: Epoch) -> Result<NatsStore, BackupError> {
    let client = connect::connect(options, Arc::new(Notify::new())).await?;
    let js = ContextBuilder::new()
        .timeout(ANSWER_MAX)
        .build(client.clone());
    connect::check(&client, &js, options).await?;
    let names = options
        .prefix
        .as_deref()
        .map_or_else(Names::default, Names::with_prefix);
    identity::establish(
        &js,
        &names,
        Origin::Engine,
        options.replicas,
        Some(epoch.0 + 1),
    )
    .await?;
    let store = NatsStore::open_with(options, SystemClock).await?;
    let there = store.reader().heads(None, PAGE).await?.len();
    if there > 0 {
        return Err(BackupError::NotEmpty(there));
    }
    while store.next_epoch().await? <= epoch {
        // An earlier attempt may have created the store with lower epochs. Skipping them is cheap.
    }
    Ok(store)
}

/// Checks the stored records of one run.
fn chain<W: Workflow>(run: &RunId, records: &[Vec<u8>], checked: &mut Checked) {
    let faults = &mut checked.faults;
    let mut before: Option<(Seq, Sum)> = None;
    for bytes in records {
        let (record, sum) = match envelope::decode::<Record<W>>(bytes, W::SCHEMA) {
            Ok(read) => read,
            Err(DecodeError::Newer { .. }) => {
                checked.newer += 1;
                before = None;
                continue;
            }
            Err(error) => {
                faults.push(format!(
                    "{run}: a record after seq {:?}: {error}",
                    before.map(|b| b.0.0)
                ));
                before = None;
                continue;
            }
        };
        let seq = record.run.seq;
        if let Some((last, last_sum)) = before {
            if seq != last.next() {
                faults.push(format!("{run}: seq {seq} follows {last}"));
            } else if record.prev != last_sum {
                faults.push(format!(
                    "{run}: record {seq} does not name the record before it"
                ));
            }
        }
        before = Some((seq, sum));
    }
}

/// Lines of a run's records. The last one has its head.
async fn lines_of(link: &Link, run: &RunId) -> Result<Vec<RecordLine>, BackupError> {
    let stream = link.names.history_stream(history_stream_of(run));
    let subject = link.names.history(run);
    let mut lines = Vec::new();
    let mut next = 1;
    let mut head = None;
    loop {
        let request = serde_json::json!({
            "next_by_subj": subject, "seq": next, "batch": RECORDS_PER_RUN_MAX,
        });
        let (messages, cut) = link.read(&stream, request).await?;
        for message in &messages {
            let sequence = number(message, "Nats-Sequence").unwrap_or(next);
            next = sequence + 1;
            let seq = number(message, SEQ_HEADER).unwrap_or(0);
            let moment = |header| number(message, header).map(Timestamp);
            let deadline = moment(DEADLINE_HEADER);
            let closed = moment(CLOSED_HEADER);
            let quiet = header_of(message, QUIET_HEADER).is_some();
            head = Some(head_row(sequence, Seq(seq), deadline, closed, quiet));
            // A record that was written again, for its MAC, has the same seq.
            lines.pop_if(|last: &mut RecordLine| last.seq == seq);
            lines.push(RecordLine::new(run.as_str(), seq, None, &message.payload)?);
        }
        if !cut || messages.is_empty() {
            if let Some(last) = lines.last_mut() {
                last.head = head;
            }
            return Ok(lines);
        }
    }
}
