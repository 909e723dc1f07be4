//! Maintenance of a store that no engine has open: check, dump, restore.

use super::{
    OpenError, apply, damaged, file,
    tables::{DEAD, HEADS, META, RECORDS},
};
use crate::{
    dump_format::{self, Completeness, Envelope, Line, LineCounts, RecordLine},
    keyed,
};
use dormer_nats::history_keys::HistoryKeys;
use dormer_proto::{
    id::{Incarnation, Seq, Sum},
    subject::RECORDS_PER_RUN_MAX,
};
use redb::{Database, ReadableDatabase, ReadableTable};
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, Write},
    path::Path,
};

/// Most faults that a report lists. The rest is counted.
const FAULTS_NAMED_MAX: usize = 1_000;

/// Record that a check of the whole file finds damaged or misplaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreFault {
    /// Run of the record.
    pub run: String,
    /// Seq of the record.
    pub seq: Seq,
    /// Fault in words.
    pub what: String,
}

/// Result of `check`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Runs read.
    pub runs: u64,
    /// Records read.
    pub records: u64,
    /// Faults found.
    pub faults: u64,
    /// First of them, at most 1,000.
    pub named: Vec<StoreFault>,
}

impl Report {
    /// Whether there is no fault.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults == 0
    }

    fn fault(&mut self, run: &str, seq: u64, what: impl Into<String>) {
        self.faults += 1;
        if self.named.len() < FAULTS_NAMED_MAX {
            self.named.push(StoreFault {
                run: run.into(),
                seq: Seq(seq),
                what: what.into(),
            });
        }
    }
}

/// Error of a dump or restore.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The store cannot be opened or read.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The dump cannot be written or read.
    #[error("the dump: {0}")]
    Io(#[from] std::io::Error),
    /// A line of the dump is invalid.
    #[error("line {line} of the dump: {detail}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Fault in words.
        detail: String,
    },
    /// The folder already has a store.
    #[error("{0} already has a store; restore into a new folder")]
    Exists(std::path::PathBuf),
}

/// Fields of a record that every workflow has.
#[derive(Deserialize)]
struct Link {
    prev: Sum,
    run: LinkRun,
}

#[derive(Deserialize)]
struct LinkRun {
    seq: Seq,
}

/// Reads the whole store in `folder` and reports faults: redb's page checksums, every record's checksum, gaps in a
/// run's seqs, and every record's link to the one before.
///
/// # Errors
/// [`OpenError`]: the store cannot be read.
pub fn check(folder: &Path) -> Result<Report, OpenError> {
    let (mut database, _) = file::open(folder)?;
    let path = folder.join(super::FILE);
    let sound = database
        .check_integrity()
        .map_err(|error| damaged(&path, &error))?;
    let mut report = walk(&database).map_err(|error| damaged(&path, &error))?;
    if !sound {
        report.fault("", 0, "redb found its pages inconsistent and repaired them");
    }
    Ok(report)
}

/// Previous record of the run.
struct Before {
    run: String,
    first: u64,
    seq: u64,
    sum: Option<u64>,
}

fn walk(database: &Database) -> Result<Report, redb::Error> {
    let read = database.begin_read()?;
    let records = read.open_table(RECORDS)?;
    let heads = read.open_table(HEADS)?;
    let head = |run: &str| Ok::<_, redb::Error>(heads.get(run)?.map(|row| row.value().1));
    let mut report = Report::default();
    let mut before: Option<Before> = None;
    for row in records.iter()? {
        let (key, bytes) = row?;
        let (run, seq) = key.value();
        report.records += 1;
        if before.as_ref().is_none_or(|last| last.run != run) {
            if let Some(last) = before.take() {
                close(&mut report, &last, head(&last.run)?);
            }
            report.runs += 1;
        }
        let sum = link(&mut report, before.as_ref(), run, seq, bytes.value());
        let first = before.as_ref().map_or(seq, |last| last.first);
        before = Some(Before {
            run: run.to_owned(),
            first,
            seq,
            sum,
        });
    }
    if let Some(last) = before {
        close(&mut report, &last, head(&last.run)?);
    }
    for row in heads.iter()? {
        let (run, head) = row?;
        let seq = head.value().1;
        if records.get((run.value(), seq))?.is_none() {
            report.fault(run.value(), seq, "its last record is missing");
        }
    }
    Ok(report)
}

/// Checks one record. Returns its checksum if it is valid.
fn link(
    report: &mut Report,
    before: Option<&Before>,
    run: &str,
    seq: u64,
    bytes: &[u8],
) -> Option<u64> {
    if let Some(last) = before
        && seq != last.seq + 1
    {
        report.fault(
            run,
            seq,
            format!("a gap: the record before is {}", last.seq),
        );
    }
    let envelope = match Envelope::read(bytes) {
        Ok(envelope) => envelope,
        Err(what) => {
            report.fault(run, seq, what);
            return None;
        }
    };
    match rmp_serde::from_slice::<Link>(envelope.body) {
        Err(error) => report.fault(run, seq, format!("its body cannot be read: {error}")),
        Ok(link) if link.run.seq.0 != seq => {
            report.fault(run, seq, format!("it claims to be record {}", link.run.seq));
        }
        Ok(link) => {
            let want = before
                .filter(|last| last.seq + 1 == seq)
                .and_then(|last| last.sum);
            if want.is_some_and(|sum| sum != link.prev.0) || (seq == 1 && link.prev.0 != 0) {
                report.fault(run, seq, "it does not follow from the record before");
            }
        }
    }
    Some(envelope.sum)
}

fn close(report: &mut Report, last: &Before, head: Option<u64>) {
    if head != Some(last.seq) {
        report.fault(&last.run, last.seq, "the run's head names another record");
    }
    let oldest = last.seq.saturating_sub(RECORDS_PER_RUN_MAX.unsigned_abs()) + 1;
    if last.first > oldest.max(1) {
        report.fault(&last.run, last.first, "records before it are missing");
    }
}

/// Writes the store in `folder` as JSON lines. Returns the number of records.
///
/// # Errors
/// [`DumpError`]. A damaged record stops the dump: run [`check`].
pub fn dump(folder: &Path, out: &mut dyn Write) -> Result<u64, DumpError> {
    let (database, _) = file::open(folder)?;
    let path = folder.join(super::FILE);
    let written = write_lines(&database, out).map_err(|error| match error {
        redb::Error::Io(error) => DumpError::Io(error),
        other => DumpError::Store(damaged(&path, &other)),
    })?;
    out.flush()?;
    Ok(written)
}

fn write_lines(database: &Database, out: &mut dyn Write) -> Result<u64, redb::Error> {
    let read = database.begin_read()?;
    let records = read.open_table(RECORDS)?;
    let heads = read.open_table(HEADS)?;
    let dead = read.open_table(DEAD)?;
    let meta = read.open_table(META)?;
    let word = |name: &str| Ok::<_, redb::Error>(meta.get(name)?.map_or(0, |row| row.value()));
    let incarnation = word("incarnation")?;
    let epoch = word("epoch")?;
    dump_format::put(
        out,
        &Line::Store {
            layout: dump_format::LAYOUT,
            incarnation,
            epoch,
        },
    )?;
    let mut written = 0;
    for row in records.iter()? {
        let (key, bytes) = row?;
        let (run, seq) = key.value();
        let head = heads
            .get(run)?
            .map(|row| row.value())
            .filter(|head| head.1 == seq);
        dump_format::put(
            out,
            &Line::Record(RecordLine::new(run, seq, head, bytes.value())?),
        )?;
        written += 1;
    }
    let mut dead_letters = 0;
    for row in dead.iter()? {
        let (_, bytes) = row?;
        let message = serde_json::from_slice(bytes.value()).map_err(std::io::Error::other)?;
        dump_format::put(out, &Line::DeadLetter(message))?;
        dead_letters += 1;
    }
    let counts = LineCounts {
        records: written,
        dead_letters,
    };
    dump_format::put(out, &Line::End(counts))?;
    Ok(written)
}

/// Creates a store in `folder` from a dump. It has a new incarnation, and the old epoch, which must never go
/// backwards. With `keys` each MAC is compared, and replaced by one for the new store. Returns the number of
/// records.
///
/// # Errors
/// [`DumpError`]; `folder` then has no store.
pub fn restore(
    dump: &mut dyn BufRead,
    folder: &Path,
    keys: Option<&HistoryKeys>,
) -> Result<u64, DumpError> {
    if folder.join(super::FILE).exists() || folder.join(super::WAL_FILE).exists() {
        return Err(DumpError::Exists(folder.to_owned()));
    }
    let mut wrong = None;
    let mut written = 0;
    let made = file::create(folder, |database| {
        let change = database.begin_write()?;
        let new = meta_word(&change, "incarnation")?;
        // Dropping the transaction undoes it, and the file never gets its real name.
        let mut refuse = |line: usize, detail: String| {
            wrong = Some(DumpError::Line { line, detail });
            redb::Error::from(std::io::Error::other("the dump is damaged"))
        };
        let mut completeness = Completeness::default();
        let mut lines = 0;
        for (at, text) in dump.lines().enumerate() {
            lines = at + 1;
            let text = text.map_err(|error| refuse(lines, error.to_string()))?;
            let read = dump_format::read(&text, at);
            let taken = read.and_then(|line| completeness.take(&line).map(|()| line));
            let line = taken.map_err(|why| refuse(lines, why))?;
            let restored = restore_line(&change, line, (keys, new), &mut written)?;
            restored.map_err(|why| refuse(lines, why))?;
        }
        completeness.finish().map_err(|why| refuse(lines, why))?;
        if written == 0 && change.open_table(META)?.get("restored")?.is_none() {
            return Err(refuse(1, "the dump is empty".into()));
        }
        change.commit()?;
        Ok(())
    });
    match (wrong, made) {
        (Some(error), _) => Err(error),
        (None, made) => Ok(made.map(|()| written)?),
    }
}

fn meta_word(change: &redb::WriteTransaction, name: &str) -> Result<u64, redb::Error> {
    let meta = change.open_table(META)?;
    let word = meta.get(name)?.map_or(0, |row| row.value());
    Ok(word)
}

fn restore_line(
    change: &redb::WriteTransaction,
    line: Line,
    (keys, new): (Option<&HistoryKeys>, u64),
    written: &mut u64,
) -> Result<Result<(), String>, redb::Error> {
    match line {
        Line::End(_) => {}
        Line::Store {
            incarnation, epoch, ..
        } => {
            let mut meta = change.open_table(META)?;
            meta.insert("epoch", epoch)?;
            meta.insert("restored", incarnation)?;
        }
        Line::DeadLetter(message) => {
            let text = serde_json::to_vec(&message).map_err(std::io::Error::other)?;
            let id = apply::count(change, "dead")?;
            change.open_table(DEAD)?.insert(id, text.as_slice())?;
        }
        Line::Record(line) => {
            let bytes = match line.bytes() {
                Ok(bytes) => bytes,
                Err(what) => return Ok(Err(what)),
            };
            let moves = [meta_word(change, "restored")?, new].map(Incarnation);
            let bytes = match keyed::moved(keys, &line.run, bytes, moves) {
                Ok(bytes) => bytes,
                Err(why) => return Ok(Err(format!("{} {}: {why}", line.run, line.seq))),
            };
            *written += 1;
            change
                .open_table(RECORDS)?
                .insert((line.run.as_str(), line.seq), bytes.as_slice())?;
            if let Some(head) = line.head {
                change.open_table(HEADS)?.insert(line.run.as_str(), head)?;
            }
        }
    }
    Ok(Ok(()))
}
