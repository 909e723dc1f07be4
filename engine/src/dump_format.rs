//! The one format of dumps, whatever store they are of: JSON lines, one record a line.
//!
//! The first line describes the store; then come records, a run's in the order of their seqs, and dead letters. Dumps
//! of a store on NATS had a format of their own until version 0.1 ended; it is still read.

use crate::{
    embedded::{HeadRow, Loose},
    port::DeadLetter,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_proto::id::{Epoch, Incarnation, RunId, Seq, Timestamp, hash64};
use serde::{Deserialize, Serialize};
use std::io::Write;

/// Layout of the lines; a dump with a greater number was written by a newer dormer.
pub(crate) const LAYOUT: u64 = 1;

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
}

#[derive(Serialize, Deserialize)]
pub(crate) struct RecordLine {
    pub(crate) run: RunId,
    pub(crate) seq: u64,
    /// Of the run's last record: revision, seq, deadline, end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) head: Option<HeadRow>,
    /// For people; whoever restores reads the envelope.
    record: serde_json::Value,
    /// The envelope, base64.
    envelope: String,
}

impl RecordLine {
    /// The line of a record with this envelope.
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

    /// The record's envelope, whole.
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

/// Reads the line at this place, from 0; what is wrong with it otherwise.
pub(crate) fn read(text: &str, at: usize) -> Result<Line, String> {
    let line = match serde_json::from_str::<Line>(text) {
        Ok(line) => line,
        Err(error) => old(text, at).ok_or(error.to_string())??,
    };
    match line {
        Line::Store { layout, .. } if layout > LAYOUT => {
            Err(format!("layout {layout}; this build reads up to {LAYOUT}"))
        }
        Line::Store { .. } if at > 0 => Err("only the first line describes the store".into()),
        Line::Record(_) | Line::DeadLetter(_) if at == 0 => {
            Err("the first line must describe the store".into())
        }
        line => Ok(line),
    }
}

/// The first line of an old dump of a store on NATS.
#[derive(Deserialize)]
struct OldHead {
    dump: u64,
    incarnation: Incarnation,
    epoch: Epoch,
}

/// Each further line.
#[derive(Deserialize)]
struct OldRecord {
    run: RunId,
    seq: Seq,
    #[serde(default)]
    deadline: Option<Timestamp>,
    #[serde(default)]
    closed: Option<Timestamp>,
    /// The envelope, in hexadecimal digits.
    record: String,
}

/// The line as an old dump of a store on NATS had it; `None` if it is none.
fn old(text: &str, at: usize) -> Option<Result<Line, String>> {
    if let Ok(OldHead {
        dump,
        incarnation,
        epoch,
    }) = serde_json::from_str(text)
    {
        return Some(match dump {
            1 => Ok(Line::Store {
                layout: LAYOUT,
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
    // Whichever of a run's lines comes last is its head; lines are counted, and that grows.
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

/// The envelope around any body. The names are `dormer_proto::envelope`'s.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    kind: &'a str,
    pub(crate) sum: u64,
    #[serde(with = "serde_bytes")]
    pub(crate) body: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// The envelope, if it is whole and a record's.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let envelope: Self =
            rmp_serde::from_slice(bytes).map_err(|error| format!("no envelope: {error}"))?;
        if envelope.kind != "record" {
            return Err(format!(
                "a {:?} message where a record belongs",
                envelope.kind
            ));
        }
        if hash64(envelope.body) != envelope.sum {
            return Err("its checksum does not fit".into());
        }
        Ok(envelope)
    }
}
