//! Result of a command on a simulated host.

/// What Windows PowerShell 5.1 writes to stderr for progress (docs/field-notes.md, Output of PowerShell).
const CLIXML: &str = "#< CLIXML\r\n<Objs Version=\"1.1.0.1\" xmlns=\"http://schemas.microsoft.com/powershell/2004/04\"><Obj S=\"progress\" RefId=\"0\"><MS><I64 N=\"SourceId\">1</I64><PR N=\"Record\"><AV>Preparing modules for first use.</AV></PR></MS></Obj></Objs>";

/// Result of a command.
pub(super) struct Ended {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) code: u32,
}

impl Ended {
    /// These bytes on stdout, with this exit code.
    pub(super) fn of(stdout: Vec<u8>, code: u32) -> Self {
        Self {
            stdout,
            stderr: Vec::new(),
            code,
        }
    }

    /// Exit code 0 without the expected output.
    pub(super) fn nothing() -> Self {
        Self {
            stdout: Vec::new(),
            stderr: CLIXML.into(),
            code: 0,
        }
    }

    /// This text on stdout, with this exit code.
    pub(super) fn saying(text: &str, code: u32) -> Self {
        Self {
            stdout: text.as_bytes().to_vec(),
            stderr: Vec::new(),
            code,
        }
    }
}
