//! Dump format of all stores: JSON lines, one record per line.
//!
//! The first line describes the store. Then come records, each run's in the order of their seqs, and dead letters. The
//! last line says how many of each there are, so that a dump that was cut is not taken for a smaller store.
//! Before version 0.2, dumps of NATS stores had a format of their own. It is still read.

use crate::{
    head_row::HeadRow,
    keyed::{Proof, RecordOf},
    loose_json::Loose,
    port::DeadLetter,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_nats::history_keys::HistoryKeys;
use dormer_proto::id::{Epoch, Incarnation, RunId, Seq, Timestamp, hash64};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};

/// Layout of the lines. A newer dormer wrote a dump with a greater number.
pub const LAYOUT: u64 = 2;
/// First layout whose dumps have a last line.
const LAYOUT_WITH_END: u64 = 2;

/// A line of a dump.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first line.
    Store {
        layout: u64,
        incarnation: u64,
        epoch: u64,
    },
    /// One record.
    Record(RecordLine),
    /// One dead letter.
    DeadLetter(DeadLetter),
    /// The last line.
    End(LineCounts),
}

/// Lines of a dump, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LineCounts {
    pub(crate) records: u64,
    pub(crate) dead_letters: u64,
}

/// Check that a dump is whole, while it is read.
#[derive(Debug, Default)]
pub(crate) struct Completeness {
    layout: u64,
    counts: LineCounts,
    ended: bool,
}

impl Completeness {
    /// Counts the next line. The error says what is wrong with it.
    pub(crate) fn take(&mut self, line: &Line) -> Result<(), String> {
        if self.ended {
            return Err("it comes after the dump's last line".into());
        }
        match line {
            Line::Store { layout, .. } => self.layout = *layout,
            Line::Record(_) => self.counts.records += 1,
            Line::DeadLetter(_) => self.counts.dead_letters += 1,
            Line::End(counts) if *counts == self.counts => self.ended = true,
            Line::End(counts) => {
                return Err(format!(
                    "lines are missing before it: {} of {} records and {} of {} dead letters are there",
                    self.counts.records,
                    counts.records,
                    self.counts.dead_letters,
                    counts.dead_letters
                ));
            }
        }
        Ok(())
    }

    /// Ends the check. Dumps of older builds have no last line.
    pub(crate) fn finish(self) -> Result<(), String> {
        if self.ended || self.layout < LAYOUT_WITH_END {
            return Ok(());
        }
        Err(format!(
            "the dump is cut: it has {} records, and its last line is missing. Take another copy of it",
            self.counts.records
        ))
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct RecordLine {
    pub(crate) run: RunId,
    pub(crate) seq: u64,
    /// Head, in the run's last record only: revision, seq, deadline, end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) head: Option<HeadRow>,
    /// The record for people. A restore reads the envelope.
    record: serde_json::Value,
    /// Envelope in base64.
    envelope: String,
}

impl RecordLine {
    /// Line of a record with this envelope.
    pub(crate) fn new(
        run: &str,
        seq: u64,
        head: Option<HeadRow>,
        bytes: &[u8],
    ) -> Result<Self, std::io::Error> {
        let bad = |what: String| std::io::Error::other(format!("record {seq} of {run}: {what}"));
        let envelope = Envelope::read(bytes).map_err(bad)?;
        let Loose(record) =
            rmp_serde::from_slice(envelope.body).map_err(|error| bad(error.to_string()))?;
        let run = run.parse().map_err(|error| bad(format!("{error}")))?;
        Ok(Self {
            run,
            seq,
            head,
            record,
            envelope: STANDARD.encode(bytes),
        })
    }

    /// Decodes the record's envelope.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, String> {
        let bytes = STANDARD
            .decode(&self.envelope)
            .map_err(|error| error.to_string())?;
        Envelope::read(&bytes)?;
        Ok(bytes)
    }
}

/// Writes one line.
pub(crate) fn put(out: &mut dyn Write, line: &Line) -> Result<(), std::io::Error> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Reads the line with this index, from 0. The error says what is wrong.
pub(crate) fn read(text: &str, at: usize) -> Result<Line, String> {
    let line = match serde_json::from_str::<Line>(text) {
        Ok(line) => line,
        Err(error) => old(text, at).ok_or(error.to_string())??,
    };
    match line {
        Line::Store { layout, .. } if layout > LAYOUT => Err(format!(
            "the dump has layout {layout}, but this build reads up to {LAYOUT}"
        )),
        Line::Store { .. } if at > 0 => Err("only the first line describes the store".into()),
        Line::Record(_) | Line::DeadLetter(_) | Line::End(_) if at == 0 => {
            Err("the first line must describe the store".into())
        }
        line => Ok(line),
    }
}

/// Compares the MAC of every record of a dump.
///
/// # Errors
/// A line that cannot be read, with its number.
pub fn prove(dump: &mut dyn BufRead, keys: &HistoryKeys) -> Result<Proof, std::io::Error> {
    let mut proof = Proof::default();
    let mut incarnation = Incarnation(0);
    let mut run: Option<(RunId, Vec<Vec<u8>>)> = None;
    let mut add = |run: Option<(RunId, Vec<Vec<u8>>)>, incarnation| {
        if let Some((run, records)) = run {
            let of = RecordOf {
                incarnation,
                run: &run,
            };
            proof.add(keys, of, &records);
        }
    };
    let mut completeness = Completeness::default();
    for (at, text) in dump.lines().enumerate() {
        let bad =
            |why: String| std::io::Error::other(format!("line {} of the dump: {why}", at + 1));
        let line = read(&text?, at).map_err(bad)?;
        completeness.take(&line).map_err(bad)?;
        match line {
            Line::Store {
                incarnation: id, ..
            } => incarnation = Incarnation(id),
            Line::DeadLetter(_) | Line::End(_) => {}
            Line::Record(line) => {
                let bytes = line.bytes().map_err(bad)?;
                match &mut run {
                    Some((known, records)) if *known == line.run => records.push(bytes),
                    _ => add(run.replace((line.run, vec![bytes])), incarnation),
                }
            }
        }
    }
    add(run, incarnation);
    completeness.finish().map_err(std::io::Error::other)?;
    Ok(proof)
}

/// First line of an old dump of a NATS store.
#[derive(Deserialize)]
struct OldHead {
    dump: u64,
    incarnation: Incarnation,
    epoch: Epoch,
}

/// Further line of an old dump.
#[derive(Deserialize)]
struct OldRecord {
    run: RunId,
    seq: Seq,
    #[serde(default)]
    deadline: Option<Timestamp>,
    #[serde(default)]
    closed: Option<Timestamp>,
    /// Envelope in hexadecimal.
    record: String,
}

/// Parses a line of an old dump of a NATS store. `None`: it is not one.
fn old(text: &str, at: usize) -> Option<Result<Line, String>> {
    if let Ok(OldHead {
        dump,
        incarnation,
        epoch,
    }) = serde_json::from_str(text)
    {
        return Some(match dump {
            1 => Ok(Line::Store {
                layout: 1,
                incarnation: incarnation.0,
                epoch: epoch.0,
            }),
            _ => Err(format!("format {dump} is unknown")),
        });
    }
    let OldRecord {
        run,
        seq,
        deadline,
        closed,
        record,
    } = serde_json::from_str(text).ok()?;
    let ms = |at: Option<Timestamp>| at.map_or(0, |at| at.0);
    // The last line of a run is its head. The line number serves as revision, because it grows.
    let head = (at as u64, seq.0, ms(deadline), ms(closed));
    let line = unhex(&record)
        .ok_or_else(|| "not hexadecimal".to_owned())
        .and_then(|bytes| {
            RecordLine::new(run.as_str(), seq.0, Some(head), &bytes)
                .map_err(|error| error.to_string())
        });
    Some(line.map(Line::Record))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits
        .len()
        .is_multiple_of(2)
        .then(|| digits.chunks(2).map(pair).collect())?
}

/// Envelope around any body, with the field names of `dormer_proto::envelope`.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    kind: &'a str,
    pub(crate) sum: u64,
    #[serde(with = "serde_bytes")]
    pub(crate) body: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads an envelope that is intact and holds a record.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let envelope: Self =
            rmp_serde::from_slice(bytes).map_err(|error| format!("not an envelope: {error}"))?;
        if envelope.kind != "record" {
            return Err(format!("a {:?} message instead of a record", envelope.kind));
        }
        if hash64(envelope.body) != envelope.sum {
            return Err("its checksum does not match".into());
        }
        Ok(envelope)
    }
}
