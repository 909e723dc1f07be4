//! PowerShell scripts that run on a host: the converge script and the built-in probe.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::invocation::{COMMAND_LINE_MAX, InvocationError, PREFIX, TASK_CHARS_MAX, check};

/// The converge script: Windows PowerShell 5.1, uploaded to [`crate::invocation::script_path`].
pub const CONVERGE: &str = include_str!("converge.ps1");
/// The built-in probe, sent as `-EncodedCommand` to a host that has no script yet.
pub const PROBE: &str = include_str!("probe.ps1");

/// SHA-256 of the converge script, 64 lower-case hex digits.
pub fn hash() -> &'static str {
    static HASH: LazyLock<String> = LazyLock::new(|| crate::sha256_hex(CONVERGE.as_bytes()));
    &HASH
}

/// The command line of the built-in probe: answers with facts in the same frame, and makes our
/// folders. Works under every default shell, without SFTP.
pub fn bootstrap_line(task: &str, attempt: u32) -> Result<String, InvocationError> {
    check(task, "the task", TASK_CHARS_MAX)?;
    let text = format!("$t='{task}';$n={attempt}\n{}", compact(PROBE));
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let line = format!("{PREFIX} -EncodedCommand {}", STANDARD.encode(utf16));
    if line.len() > COMMAND_LINE_MAX {
        return Err(InvocationError::TooLong(line.len()));
    }
    Ok(line)
}

/// Parses a call of the built-in probe: its task and attempt.
pub(crate) fn parse_bootstrap(encoded: &str) -> Option<(String, u32)> {
    let bytes = STANDARD.decode(encoded).ok()?;
    let units: Vec<u16> = bytes
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect();
    let text = String::from_utf16(&units).ok()?;
    let (first, rest) = text.split_once('\n')?;
    let (task, attempt) = first.strip_prefix("$t='")?.split_once("';$n=")?;
    (rest == compact(PROBE)).then_some(())?;
    Some((task.to_owned(), attempt.parse().ok()?))
}

/// Removes comments, blank lines and indentation, because a command line is short.
fn compact(script: &str) -> String {
    let lines = script.lines().map(str::trim);
    let kept: Vec<&str> = lines
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .collect();
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invocation::{Invocation, parse};

    #[test]
    fn the_built_in_probe_fits_and_is_recognised() {
        let task = format!(
            "machine/{}@123456.0",
            "8f1c2a9e-0b1d-4c3e-9f60-7a1b2c3d4e5f"
        );
        let line = bootstrap_line(&task, 3).expect("it fits");
        assert_eq!(
            parse(&line),
            Some(Invocation::Bootstrap { task, attempt: 3 })
        );
        assert!(bootstrap_line("a'b", 1).is_err());
    }
}
