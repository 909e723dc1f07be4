//! Line formats of recorded histories: of `dormer history --export`, and of dumps of both stores.
//!
//! | line | of an export | of a folder store's dump | of a NATS store's dump |
//! |---|---|---|---|
//! | first | `{"history": {format, schema, incarnation, run, build}}` | `{"store": {layout, …}}` | `{"dump": 1, …}` |
//! | further | `{"record": {run, seq, …, envelope}}` | the same | `{"run", "seq", …, "record"}` |
//!
//! `envelope` is the stored record in base64. A dump of a NATS store has it in hexadecimal. The other fields are for
//! people.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_engine::DUMP_LAYOUT;
use dormer_proto::id::{RunId, Seq};
use dormer_views::export::FORMAT;
use serde::Deserialize;

/// Longest line, in bytes: the largest record in base64, and its view for people.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Content of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExportedLine {
    /// Origin of the history.
    Head,
    /// A stored record.
    Record {
        run: RunId,
        seq: Seq,
        envelope: Vec<u8>,
    },
    /// A line outside histories: a dead letter, or the last line of a dump.
    Beside,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    /// The line has no known form.
    #[error("is not a line of a history ({0}); the file may be truncated or changed")]
    Strange(String),
    /// The file begins with another line.
    #[error("has no header line; dormer history MACHINE --export FILE writes one")]
    Headless,
    /// A newer build wrote the file.
    #[error(
        "has format {found}, but this build reads up to {known}: replay it with a newer dormer"
    )]
    Newer { found: u64, known: u64 },
}

/// All fields of all forms.
#[derive(Deserialize)]
struct Raw {
    history: Option<ExportedHistory>,
    store: Option<ExportedStore>,
    dump: Option<u64>,
    run: Option<RunId>,
    seq: Option<Seq>,
    record: Option<RawRecord>,
    dead_letter: Option<serde_json::Value>,
    end: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct ExportedHistory {
    format: u64,
}

#[derive(Deserialize)]
struct ExportedStore {
    layout: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawRecord {
    Digits(String),
    Whole {
        run: RunId,
        seq: Seq,
        envelope: String,
    },
}

/// Parses a line. The `first` one must be a header.
pub(super) fn read(text: &str, first: bool) -> Result<ExportedLine, LineError> {
    let strange = |what: &str| LineError::Strange(what.to_owned());
    if text.len() > LINE_BYTES_MAX {
        return Err(strange("it is too long"));
    }
    let raw: Raw =
        serde_json::from_str(text).map_err(|error| LineError::Strange(error.to_string()))?;
    let format = raw.history.map(|head| (head.format, FORMAT));
    let layout = raw.store.map(|head| (head.layout, DUMP_LAYOUT));
    let dump = raw.dump.map(|format| (format, 1));
    if let Some((found, known)) = format.or(layout).or(dump) {
        return if found > known {
            Err(LineError::Newer { found, known })
        } else {
            Ok(ExportedLine::Head)
        };
    }
    if first {
        return Err(LineError::Headless);
    }
    match (raw.record, raw.run, raw.seq) {
        (Some(RawRecord::Whole { run, seq, envelope }), ..) => {
            let envelope = STANDARD
                .decode(envelope)
                .map_err(|why| strange(&why.to_string()))?;
            Ok(ExportedLine::Record { run, seq, envelope })
        }
        (Some(RawRecord::Digits(digits)), Some(run), Some(seq)) => {
            let envelope = bytes(&digits).ok_or_else(|| strange("not hexadecimal digits"))?;
            Ok(ExportedLine::Record { run, seq, envelope })
        }
        _ if raw.dead_letter.is_some() || raw.end.is_some() => Ok(ExportedLine::Beside),
        _ => Err(strange("it holds no record")),
    }
}

/// Decodes hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let text = std::str::from_utf8(pair)
                .ok()
                .filter(|text| text.len() == 2)?;
            u8::from_str_radix(text, 16).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(envelope: &[u8]) -> ExportedLine {
        let run = "machine/u".parse().unwrap();
        ExportedLine::Record {
            run,
            seq: Seq(3),
            envelope: envelope.to_vec(),
        }
    }

    #[test]
    fn every_form_of_a_history_is_read() {
        for head in [
            r#"{"history":{"format":1,"x":2}}"#,
            r#"{"store":{"layout":1}}"#,
            r#"{"store":{"layout":2}}"#,
            r#"{"dump":1}"#,
        ] {
            assert_eq!(read(head, true), Ok(ExportedLine::Head));
        }
        let whole = r#"{"record":{"run":"machine/u","seq":3,"told":[1],"envelope":"AQI="}}"#;
        assert_eq!(read(whole, false), Ok(record(&[1, 2])));
        let digits = r#"{"run":"machine/u","seq":3,"deadline":7,"record":"01ff"}"#;
        assert_eq!(read(digits, false), Ok(record(&[1, 255])));
        let end = r#"{"end":{"records":3,"dead_letters":1}}"#;
        for beside in [r#"{"dead_letter":{"id":1}}"#, end] {
            assert_eq!(read(beside, false), Ok(ExportedLine::Beside));
        }
    }

    #[test]
    fn what_is_not_a_history_is_recognised() {
        assert_eq!(
            read(r#"{"history":{"format":2}}"#, true),
            Err(LineError::Newer { found: 2, known: 1 })
        );
        let whole = r#"{"record":{"run":"machine/u","seq":3,"envelope":"AQI="}}"#;
        assert_eq!(read(whole, true), Err(LineError::Headless));
        for nonsense in [
            "",
            "[]",
            "{}",
            r#"{"record":{"run":"u"}}"#,
            r#"{"record":"abc"}"#,
        ] {
            assert!(
                matches!(read(nonsense, false), Err(LineError::Strange(_))),
                "{nonsense}"
            );
        }
    }
}
