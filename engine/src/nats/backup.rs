//! Check, dump and restore: a store's history as JSON lines, one record a line.

use super::{
    NatsStore,
    connect::{self, ANSWER_MAX},
    identity,
    link::{Link, number},
    options::{OpenError, Options},
};
use crate::port::{
    Append, Clock, Expected, History, HistoryReader, Ports, StoreError, SystemClock,
};
use async_nats::jetstream::context::ContextBuilder;
use dormer_engine_core::{Record, Workflow};
use dormer_proto::{
    envelope::{self, DecodeError},
    id::{Epoch, Incarnation, Revision, RunId, Seq, Sum, Timestamp},
    subject::{CLOSED_HEADER, DEADLINE_HEADER, Names, RECORDS_PER_RUN_MAX, SEQ_HEADER, shard},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    io::{BufRead, Write},
    sync::Arc,
};
use tokio::sync::Notify;

/// Runs read at once.
const PAGE: usize = 1_000;
/// The dump's own version.
const DUMP_VERSION: u16 = 1;

/// A dump's first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpHead {
    /// The format.
    pub dump: u16,
    /// The store it was taken of.
    pub incarnation: Incarnation,
    /// Its last epoch: a restored store draws greater ones.
    pub epoch: Epoch,
}

/// Each further line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpLine {
    /// Whose record.
    pub run: RunId,
    /// Its seq.
    pub seq: Seq,
    /// The run's earliest deadline then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// When the run ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Timestamp>,
    /// The record's envelope, in hexadecimal digits.
    pub record: String,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Runs looked at.
    pub runs: usize,
    /// Records looked at.
    pub records: usize,
    /// Of those, records that a newer build wrote: whole, as far as this one can tell.
    pub newer: usize,
    /// What is wrong, a sentence each.
    pub faults: Vec<String>,
}

/// Why a dump was not taken or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Opening the store.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file.
    #[error("the dump cannot be read or written: {0}")]
    File(#[from] std::io::Error),
    /// A line is not what it must be.
    #[error("line {line} of the dump: {why}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// There is a store already.
    #[error("there are {0} runs already: a dump is restored into a store without any")]
    NotEmpty(usize),
}

impl<C: Clock> NatsStore<C> {
    /// Reads every record: each must be whole, name the one before it, and follow it without a gap.
    ///
    /// # Errors
    /// The store's.
    pub async fn check<W: Workflow>(&self) -> Result<Checked, StoreError> {
        let mut checked = Checked::default();
        let mut after: Option<RunId> = None;
        loop {
            let heads = self.reader().heads(after.as_ref(), PAGE).await?;
            let Some(last) = heads.last() else { return Ok(checked) };
            after = Some(last.run.clone());
            for head in &heads {
                let records = self.reader().records(&head.run, Seq(0), PAGE).await?;
                checked.runs += 1;
                checked.records += records.len();
                chain::<W>(&head.run, &records, &mut checked);
            }
        }
    }

    /// Writes the history: a head, then every record.
    ///
    /// # Errors
    /// [`BackupError`].
    pub async fn dump(&self, out: &mut (impl Write + Send)) -> Result<usize, BackupError> {
        let epoch = self.next_epoch().await?;
        let head = DumpHead { dump: DUMP_VERSION, incarnation: self.incarnation(), epoch };
        write_line(out, &head)?;
        let (mut count, mut after): (usize, Option<RunId>) = (0, None);
        loop {
            let heads = self.reader().heads(after.as_ref(), PAGE).await?;
            let Some(last) = heads.last() else { return Ok(count) };
            after = Some(last.run.clone());
            for head in heads {
                for line in lines_of(&self.link, &head.run).await? {
                    write_line(out, &line)?;
                    count += 1;
                }
            }
        }
    }
}

impl NatsStore {
    /// Makes a new store of a dump: a new incarnation, epochs above the dump's, the same records.
    ///
    /// # Errors
    /// [`BackupError`]; [`BackupError::NotEmpty`] where there is history already.
    pub async fn restore(
        options: &Options,
        from: &mut (impl BufRead + Send),
    ) -> Result<Self, BackupError> {
        let mut lines = from.lines().enumerate();
        let head: DumpHead = match lines.next() {
            Some((_, line)) => parse(1, &line?)?,
            None => return Err(BackupError::Line { line: 1, why: "the dump is empty".into() }),
        };
        if head.dump != DUMP_VERSION {
            let why = format!("format {} is unknown; this build reads {DUMP_VERSION}", head.dump);
            return Err(BackupError::Line { line: 1, why });
        }
        let store = begin(options, head.epoch).await?;
        let mut last: HashMap<RunId, Revision> = HashMap::new();
        for (at, line) in lines {
            let line: DumpLine = parse(at + 1, &line?)?;
            let bytes = unhex(&line.record)
                .ok_or_else(|| BackupError::Line { line: at + 1, why: "not hexadecimal".into() })?;
            let append = Append {
                expected: last.get(&line.run).map_or(Expected::Nothing, |r| Expected::At(*r)),
                run: line.run.clone(),
                bytes,
                seq: line.seq,
                deadline: line.deadline,
                closed: line.closed,
                // Whoever meets it first opens it and finds out.
                quiet: false,
            };
            let answer = store.history().append(vec![append]).await.pop();
            match answer {
                Some(Ok(revision)) => drop(last.insert(line.run, revision)),
                Some(Err(error)) => {
                    return Err(BackupError::Line { line: at + 1, why: error.to_string() });
                }
                None => {}
            }
        }
        Ok(store)
    }
}

/// An empty store whose epochs begin above `epoch`.
async fn begin(options: &Options, epoch: Epoch) -> Result<NatsStore, BackupError> {
    let client = connect::connect(options, Arc::new(Notify::new())).await?;
    let js = ContextBuilder::new().timeout(ANSWER_MAX).build(client.clone());
    connect::check(&client, &js, options).await?;
    let names = options.prefix.as_deref().map_or_else(Names::default, Names::with_prefix);
    identity::settle(&js, &names, options.replicas, Some(epoch.0 + 1)).await?;
    let store = NatsStore::open_with(options, SystemClock).await?;
    let there = store.reader().heads(None, PAGE).await?.len();
    if there > 0 {
        return Err(BackupError::NotEmpty(there));
    }
    while store.next_epoch().await? <= epoch {
        // A store that was begun before, with lower epochs: they are cheap to draw.
    }
    Ok(store)
}

/// What is wrong with one run's kept records.
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
                faults.push(format!("{run}: record {seq} does not name the record before it"));
            }
        }
        before = Some((seq, sum));
    }
}

async fn lines_of(link: &Link, run: &RunId) -> Result<Vec<DumpLine>, StoreError> {
    let (stream, subject) = (link.names.history_stream(shard(run)), link.names.history(run));
    let (mut lines, mut next) = (Vec::new(), 1);
    loop {
        let request = serde_json::json!({
            "next_by_subj": subject, "seq": next, "batch": RECORDS_PER_RUN_MAX,
        });
        let (messages, cut) = link.read(&stream, request).await?;
        for message in &messages {
            next = number(message, "Nats-Sequence").map_or(next, |sequence| sequence + 1);
            lines.push(DumpLine {
                run: run.clone(),
                seq: Seq(number(message, SEQ_HEADER).unwrap_or(0)),
                deadline: number(message, DEADLINE_HEADER).map(Timestamp),
                closed: number(message, CLOSED_HEADER).map(Timestamp),
                record: hex(&message.payload),
            });
        }
        if !cut || messages.is_empty() {
            return Ok(lines);
        }
    }
}

fn write_line(out: &mut impl Write, line: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

fn parse<T: serde::de::DeserializeOwned>(line: usize, text: &str) -> Result<T, BackupError> {
    serde_json::from_str(text).map_err(|e| BackupError::Line { line, why: e.to_string() })
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(pair).collect())?
}
