//! Framed answer line of the program on a host, and its extraction from noisy output.
//!
//! `DORMER1 <task> <attempt> <base64 of the JSON> <check>`, where the check is the first eight hex digits of the
//! SHA-256 of the base64 text. Output of a profile, CLIXML and localised text in any code page may surround it
//! (docs/field-notes.md, Output of PowerShell). Line ends may be CRLF, and a narrow console may have broken the line
//! anywhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::answer::Answer;
use crate::document::DOCUMENT_SCHEMA;

/// First word of the line; the number is that of the framing, not of the schema.
pub const FRAME_MARK: &str = "DORMER1";
/// Most bytes of output that are searched for a frame, from its end.
pub const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// Most bytes of JSON in one answer.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Reason for which an output has no answer. Each means "unknown": the call may still be running.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// No frame at all: the output was cut, or the program never ran.
    #[error("the output holds no answer")]
    Missing,
    /// A frame was cut or changed in transit.
    #[error("the answer is damaged")]
    Damaged,
    /// Only the answers of other calls.
    #[error("the answer is for task {task}, attempt {attempt}")]
    OtherCall { task: String, attempt: u32 },
    /// The frame is intact, but this build cannot read its content.
    #[error("the answer is not readable: {0}")]
    Unreadable(String),
    /// The answer has another schema.
    #[error("the answer has schema {0}, but this build knows {DOCUMENT_SCHEMA}")]
    Schema(u32),
}

/// Writes the line, with CRLF before and after.
pub fn write(answer: &Answer) -> Vec<u8> {
    let json = serde_json::to_string(answer).unwrap_or_default();
    let body = STANDARD.encode(crate::text::ascii_json(&json));
    let check = check(body.as_bytes());
    format!(
        "\r\n{FRAME_MARK} {} {} {body} {check}\r\n",
        answer.task, answer.attempt
    )
    .into_bytes()
}

/// Finds the answer of one attempt of one task; the last one, should there be several.
pub fn extract(stdout: &[u8], task: &str, attempt: u32) -> Result<Answer, FrameError> {
    let start = stdout.len().saturating_sub(OUTPUT_BYTES_MAX);
    let text: Vec<u8> = stdout[start..]
        .iter()
        .copied()
        .filter(|b| !matches!(b, b'\r' | b'\n' | 0))
        .collect();
    let mut best = Err(FrameError::Missing);
    for at in marks(&text) {
        let found = read(&text[at..], task, attempt);
        let better = match &best {
            Err(FrameError::Missing) => true,
            Err(FrameError::Damaged | FrameError::OtherCall { .. }) => {
                !matches!(found, Err(FrameError::Missing | FrameError::Damaged))
            }
            Err(_) | Ok(_) => found.is_ok(),
        };
        if better {
            best = found;
        }
    }
    best
}

/// Where frames begin.
fn marks(text: &[u8]) -> impl Iterator<Item = usize> {
    let mark = FRAME_MARK.as_bytes();
    text.windows(mark.len() + 1)
        .enumerate()
        .filter(move |(_, window)| window.starts_with(mark) && window[mark.len()] == b' ')
        .map(|(at, _)| at)
}

/// Reads one frame from its mark on.
fn read(text: &[u8], task: &str, attempt: u32) -> Result<Answer, FrameError> {
    let mut fields = text.splitn(5, |b| *b == b' ').skip(1);
    let mut field = || fields.next().ok_or(FrameError::Damaged);
    let found_task = field()?;
    let found_attempt = field()?;
    let body = field()?;
    let rest = field()?;
    let found_task = std::str::from_utf8(found_task).map_err(|_| FrameError::Damaged)?;
    let found_attempt: u32 = std::str::from_utf8(found_attempt)
        .ok()
        .and_then(|n| n.parse().ok())
        .ok_or(FrameError::Damaged)?;
    if rest.get(..8) != Some(check(body).as_bytes()) {
        return Err(FrameError::Damaged);
    }
    if (found_task, found_attempt) != (task, attempt) {
        return Err(FrameError::OtherCall {
            task: found_task.to_owned(),
            attempt: found_attempt,
        });
    }
    decode(body, task, attempt)
}

fn decode(body: &[u8], task: &str, attempt: u32) -> Result<Answer, FrameError> {
    let json = STANDARD.decode(body).map_err(|_| FrameError::Damaged)?;
    let unreadable = |why: String| FrameError::Unreadable(why);
    if json.len() > ANSWER_BYTES_MAX {
        return Err(unreadable(format!(
            "{} bytes, at most {ANSWER_BYTES_MAX}",
            json.len()
        )));
    }
    let value: serde_json::Value =
        serde_json::from_slice(&json).map_err(|e| unreadable(e.to_string()))?;
    let schema = value
        .get("schema")
        .and_then(serde_json::Value::as_u64)
        .unwrap_or(0);
    if schema != u64::from(DOCUMENT_SCHEMA) {
        return Err(FrameError::Schema(
            u32::try_from(schema).unwrap_or(u32::MAX),
        ));
    }
    let answer: Answer = serde_json::from_value(value).map_err(|e| unreadable(e.to_string()))?;
    if answer.task != task || answer.attempt != attempt {
        return Err(FrameError::OtherCall {
            task: answer.task,
            attempt: answer.attempt,
        });
    }
    Ok(answer)
}

fn check(body: &[u8]) -> String {
    let mut hex = crate::sha256_hex(body);
    hex.truncate(8);
    hex
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Facts, Reboot};
    use crate::invocation::Mode;

    const TASK: &str = "machine/8f1c@17.0";

    fn answer() -> Answer {
        Answer {
            schema: DOCUMENT_SCHEMA,
            task: TASK.into(),
            attempt: 2,
            mode: Mode::Plan,
            program: "ab".repeat(32),
            facts: Facts {
                product: "Windows Server 2022 Größe".into(),
                ..Facts::default()
            },
            items: Vec::new(),
            missing_files: Vec::new(),
            reboot: Reboot::None,
            failure: None,
            took_ms: 12,
        }
    }

    fn found(stdout: &[u8]) -> Result<Answer, FrameError> {
        extract(stdout, TASK, 2)
    }

    #[test]
    fn the_answer_is_found_amid_every_noise() {
        let line = write(&answer());
        let wrapped: Vec<u8> = line
            .trim_ascii()
            .chunks(80)
            .flat_map(|c| [c, b"\r\n"].concat())
            .collect();
        let utf16: Vec<u8> = line.iter().flat_map(|b| [*b, 0]).collect();
        let progress: &[u8] =
            b"#< CLIXML\r\n<Objs Version=\"1.1.0.1\"><Obj S=\"progress\"/></Objs>";
        let table: [(&str, Vec<u8>); 7] = [
            ("nothing else", line.clone()),
            (
                "a profile that prints",
                [b"Loading personal profile...\r\n", &line[..]].concat(),
            ),
            (
                "CLIXML before and after",
                [progress, &line, progress].concat(),
            ),
            (
                "code page 850",
                [b"Gr\x94\xE1e \x81berpr\x81ft\r\n\xff\xfe", &line[..]].concat(),
            ),
            ("a console of 80 columns", wrapped),
            ("UTF-16", utf16),
            (
                "text right after the line",
                [line.trim_ascii(), b"PS C:\\>"].concat(),
            ),
        ];
        for (noise, stdout) in table {
            assert_eq!(found(&stdout), Ok(answer()), "{noise}");
        }
    }

    #[test]
    fn what_is_not_the_framed_answer_is_recognised() {
        let line = write(&answer());
        assert_eq!(found(b""), Err(FrameError::Missing));
        assert_eq!(found(b"#< CLIXML\r\n<Objs/>"), Err(FrameError::Missing));
        assert_eq!(found(&line[..line.len() / 2]), Err(FrameError::Damaged));
        let mut changed = line.clone();
        changed[60] ^= 1;
        assert_eq!(found(&changed), Err(FrameError::Damaged));
        let other = write(&Answer {
            attempt: 1,
            ..answer()
        });
        let wanted = FrameError::OtherCall {
            task: TASK.into(),
            attempt: 1,
        };
        assert_eq!(found(&other), Err(wanted));
        let newer = write(&Answer {
            schema: 2,
            ..answer()
        });
        assert_eq!(found(&newer), Err(FrameError::Schema(2)));
    }

    #[test]
    fn ours_is_found_beside_others_and_the_last_one_counts() {
        let other = write(&Answer {
            attempt: 1,
            ..answer()
        });
        let first = write(&answer());
        let last = write(&Answer {
            took_ms: 99,
            ..answer()
        });
        let stdout = [&other[..], &first, b"DORMER1 cut", &last, &other].concat();
        assert_eq!(found(&stdout).map(|a| a.took_ms), Ok(99));
    }
}
