//! Command lines of the converge script, which every default shell passes on unchanged.
//!
//! docs/field-notes.md, Default shells of sshd: cmd wraps the command in one pair of quotes, PowerShell and pwsh wrap
//! it when it has a space and escape `"`. So the line holds no quote, no character that any of them treats specially,
//! and does not end in a backslash.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{BIN, DOCUMENTS, Fence, Section};

/// Longest command line that cmd.exe accepts (docs/field-notes.md, Length of a command line). dormer's stay below it
/// in every shell.
pub const COMMAND_LINE_MAX: usize = 8_000;
/// Longest task id on a command line.
pub const TASK_CHARS_MAX: usize = 300;

/// What the script is to do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Read facts. It needs no document and no mutex, and only creates dormer's own folders.
    Probe,
    /// Compare with the document; changes nothing.
    Plan,
    /// Apply the document.
    Apply,
    /// Remove the document's items, in reverse order.
    Remove,
    /// Ask Windows for a reboot in five seconds, if the boot identity is the expected one.
    Reboot,
    /// Write the fence and nothing else: the one change that adoption makes (docs/decisions/0002-adoption.md).
    Adopt,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 6] = [
        Self::Probe,
        Self::Plan,
        Self::Apply,
        Self::Remove,
        Self::Reboot,
        Self::Adopt,
    ];

    /// The word on the command line and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Remove => "remove",
            Self::Reboot => "reboot",
            Self::Adopt => "adopt",
        }
    }

    /// Whether the mode changes the host, and so needs a fence that is not too old.
    pub const fn changes(self) -> bool {
        matches!(
            self,
            Self::Apply | Self::Remove | Self::Reboot | Self::Adopt
        )
    }

    /// Whether the mode reads a document.
    pub const fn needs_document(self) -> bool {
        matches!(self, Self::Plan | Self::Apply | Self::Remove)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = InvocationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|m| m.as_str() == text)
            .ok_or_else(|| InvocationError::Malformed(format!("mode `{text}`")))
    }
}

/// Call of the script: what to do now with the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What the script is to do.
    pub mode: Mode,
    /// The task, echoed in the answer. Messages, digits and `@ . _ / : -` only.
    pub task: String,
    /// Its attempt, echoed in the answer.
    pub attempt: u32,
    /// The host fence of this task.
    pub fence: Fence,
    /// Boot for which the call is valid; another one is `BootChanged`.
    pub expected_boot_id: Option<String>,
    /// The document; none for `probe`, `reboot` and `adopt`.
    pub document: Option<DocumentRef>,
    /// SHA-256 of the script, 64 lower-case hex digits.
    pub script: String,
}

/// A document as a command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentRef {
    /// A file in [`DOCUMENTS`], uploaded before; its SHA-256 is checked by the script.
    Uploaded {
        /// The section, part of the file's name.
        section: Section,
        /// SHA-256 of the document, 64 lower-case hex digits.
        sha256: String,
    },
    /// The document itself, base64 on the command line; at most [`INLINE_BYTES_MAX`] bytes.
    Inline(Vec<u8>),
}

/// Error of building or parsing a command line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvocationError {
    /// The line would be longer than [`COMMAND_LINE_MAX`].
    #[error("the command line has {0} characters, at most {COMMAND_LINE_MAX} are allowed")]
    TooLong(usize),
    /// A part holds characters that a shell might treat specially.
    #[error("{0} holds characters that no command line of ours may hold")]
    Unsafe(&'static str),
    /// It looks like a converge command line, but is not one.
    #[error("not a converge command line: {0}")]
    Malformed(String),
}

/// Path of a script on the host.
pub fn script_path(sha256: &str) -> String {
    format!(r"{BIN}\converge-{}.ps1", short(sha256))
}

/// Path of a document on the host.
pub fn document_path(section: Section, sha256: &str) -> String {
    format!(r"{DOCUMENTS}\{}-{}.json", section.as_str(), short(sha256))
}

/// First 16 digits: enough to distinguish files. The script checks the whole hash.
fn short(sha256: &str) -> &str {
    sha256.get(..16).unwrap_or(sha256)
}

pub(crate) const PREFIX: &str =
    "powershell.exe -NoLogo -NoProfile -NonInteractive -ExecutionPolicy Bypass";

/// The command line of a call, for any default shell.
pub fn command_line(call: &Call) -> Result<String, InvocationError> {
    check(&call.task, "the task", TASK_CHARS_MAX)?;
    check(&call.script, "the script hash", 64)?;
    let mut line = format!(
        "{PREFIX} -File {} -Mode {} -Task {} -Attempt {} -Generation {} -Seq {} -ScriptHash {}",
        script_path(&call.script),
        call.mode,
        call.task,
        call.attempt,
        call.fence.generation,
        call.fence.seq,
        call.script,
    );
    if let Some(boot) = &call.expected_boot_id {
        check(boot, "the boot identity", 64)?;
        line.push_str(&format!(" -BootId {boot}"));
    }
    match &call.document {
        Some(DocumentRef::Uploaded { section, sha256 }) => {
            check(sha256, "the document hash", 64)?;
            let path = document_path(*section, sha256);
            line.push_str(&format!(" -Document {path} -DocumentHash {sha256}"));
        }
        Some(DocumentRef::Inline(bytes)) => {
            line.push_str(&format!(" -DocumentText {}", URL_SAFE_NO_PAD.encode(bytes)));
        }
        None if call.mode.needs_document() => {
            return Err(InvocationError::Malformed(format!(
                "{} without a document",
                call.mode
            )));
        }
        None => {}
    }
    if line.len() > COMMAND_LINE_MAX {
        return Err(InvocationError::TooLong(line.len()));
    }
    Ok(line)
}

/// Transfer of a document: inline if it fits on the command line, which saves an SFTP session; by upload otherwise.
pub fn document_ref(section: Section, bytes: &[u8]) -> DocumentRef {
    if bytes.len() <= INLINE_BYTES_MAX {
        DocumentRef::Inline(bytes.to_vec())
    } else {
        DocumentRef::Uploaded {
            section,
            sha256: crate::sha256_hex(bytes),
        }
    }
}

/// Most bytes of a document that goes inline: 7,000 characters of base64, which leaves 1,000 for
/// the rest of the line.
pub const INLINE_BYTES_MAX: usize = 5_250;

/// Parsed converge command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// The built-in probe, for a host that has no script yet (see [`crate::script::bootstrap_line`]).
    Bootstrap {
        /// The task, echoed in the answer.
        task: String,
        /// Its attempt, echoed in the answer.
        attempt: u32,
    },
    /// A call of an uploaded script.
    Script(Call),
}

/// Recognises a command line made by [`command_line`] or [`crate::script::bootstrap_line`]; none
/// when it is not one of ours. The simulated host lives on this.
pub fn parse(line: &str) -> Option<Invocation> {
    let rest = line.trim().strip_prefix(PREFIX)?.trim_start();
    if let Some(encoded) = rest.strip_prefix("-EncodedCommand ") {
        let (task, attempt) = crate::script::parse_bootstrap(encoded.trim())?;
        return Some(Invocation::Bootstrap { task, attempt });
    }
    parse_script(rest).map(Invocation::Script)
}

fn parse_script(rest: &str) -> Option<Call> {
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    if !words.len().is_multiple_of(2) {
        return None;
    }
    let value = |name: &str| {
        words
            .chunks_exact(2)
            .find(|pair| pair[0] == name)
            .map(|pair| pair[1].to_owned())
    };
    let script = value("-ScriptHash")?;
    if value("-File")? != script_path(&script) {
        return None;
    }
    let document = match (
        value("-Document"),
        value("-DocumentHash"),
        value("-DocumentText"),
    ) {
        (Some(path), Some(sha256), None) => Some(uploaded(&path, sha256)?),
        (None, None, Some(text)) => Some(DocumentRef::Inline(
            URL_SAFE_NO_PAD.decode(text.as_bytes()).ok()?,
        )),
        (None, None, None) => None,
        _ => return None,
    };
    Some(Call {
        mode: value("-Mode")?.parse().ok()?,
        task: value("-Task")?,
        attempt: value("-Attempt")?.parse().ok()?,
        fence: Fence {
            generation: value("-Generation")?.parse().ok()?,
            seq: value("-Seq")?.parse().ok()?,
        },
        expected_boot_id: value("-BootId"),
        document,
        script,
    })
}

fn uploaded(path: &str, sha256: String) -> Option<DocumentRef> {
    let section = [Section::Host, Section::Node]
        .into_iter()
        .find(|section| document_path(*section, &sha256) == path)?;
    Some(DocumentRef::Uploaded { section, sha256 })
}

/// Rejects characters that a shell might treat specially, and a leading `-`, which would be read as a parameter.
pub(crate) fn check(text: &str, what: &'static str, max: usize) -> Result<(), InvocationError> {
    let safe = |c: char| c.is_ascii_alphanumeric() || "@._/:-".contains(c);
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if text.len() > max || !starts_well || !text.chars().all(safe) {
        return Err(InvocationError::Unsafe(what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call {
            mode: Mode::Apply,
            task: "machine/8f1c2a9e-0b1d@17.0".into(),
            attempt: 2,
            fence: Fence {
                generation: 3,
                seq: 17,
            },
            expected_boot_id: Some("42".into()),
            document: Some(DocumentRef::Uploaded {
                section: Section::Host,
                sha256: "ab".repeat(32),
            }),
            script: "cd".repeat(32),
        }
    }

    #[test]
    fn a_line_says_what_was_meant() {
        for document in [
            call().document,
            Some(DocumentRef::Inline(br#"{"schema":1}"#.to_vec())),
        ] {
            let call = Call { document, ..call() };
            let line = command_line(&call).expect("a line");
            assert_eq!(parse(&line), Some(Invocation::Script(call)));
        }
        let probe = Call {
            mode: Mode::Probe,
            document: None,
            expected_boot_id: None,
            ..call()
        };
        let line = command_line(&probe).expect("a line");
        assert_eq!(parse(&line), Some(Invocation::Script(probe)));
    }

    #[test]
    fn no_shell_finds_anything_special_in_it() {
        let line = command_line(&call()).expect("a line");
        assert!(
            line.chars()
                .all(|c| c.is_ascii_alphanumeric() || " -.:\\/@_".contains(c)),
            "{line}"
        );
        assert!(!line.ends_with('\\'));
    }

    #[test]
    fn what_a_shell_would_treat_specially_is_refused() {
        for task in [
            "a b", "a;b", "a&b", "a\"b", "a'b", "$x", "a`b", "-Mode", "", "a|b", "%OS%",
        ] {
            let line = command_line(&Call {
                task: task.into(),
                ..call()
            });
            assert_eq!(line, Err(InvocationError::Unsafe("the task")), "{task}");
        }
    }

    #[test]
    fn a_large_document_is_uploaded_and_a_long_line_refused() {
        let large = vec![b' '; INLINE_BYTES_MAX + 1];
        assert!(matches!(
            document_ref(Section::Node, &large),
            DocumentRef::Uploaded { .. }
        ));
        let fits = document_ref(Section::Node, &large[..INLINE_BYTES_MAX]);
        let longest_task = format!("m{}", "x".repeat(TASK_CHARS_MAX - 1));
        let line = command_line(&Call {
            document: Some(fits),
            task: longest_task,
            ..call()
        });
        assert!(line.is_ok(), "{line:?}");
        let too_long = Call {
            document: Some(DocumentRef::Inline(vec![b' '; 9_000])),
            ..call()
        };
        assert!(matches!(
            command_line(&too_long),
            Err(InvocationError::TooLong(_))
        ));
    }

    #[test]
    fn other_command_lines_are_not_ours() {
        for line in [
            "",
            "whoami",
            "powershell.exe -Command Get-Help",
            &format!("{PREFIX} -File x.ps1"),
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
