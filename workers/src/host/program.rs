//! The native program that runs on hosts, as this process holds it.

use bytes::Bytes;
use dormer_profile::sha256_hex;
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Largest program that is taken: several times what ours has.
const BYTES_MAX: u64 = 32 << 20;
/// `IMAGE_FILE_MACHINE_AMD64` (Microsoft Learn, PE Format, machine types).
const AMD64: u16 = 0x8664;
/// Where a DOS header names the offset of the PE header (Microsoft Learn, PE Format, MS-DOS stub).
const OFFSET_AT: usize = 0x3c;

/// `dormer-host.exe` with its hash, checked to be a 64-bit Windows program.
#[derive(Clone, PartialEq, Eq)]
pub struct HostProgram {
    bytes: Bytes,
    sha256: String,
}

/// Error of a file that is to be `dormer-host.exe`.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The file cannot be read.
    #[error("the host program {0} cannot be read: {1}")]
    Unread(PathBuf, std::io::Error),
    /// It is larger than any such program.
    #[error("the host program has {0} bytes, at most {BYTES_MAX} are taken")]
    TooLarge(u64),
    /// The file is no Windows program.
    #[error(
        "the host program is no Windows program: it has no PE header; give the dormer-host.exe of this release"
    )]
    NotPe,
    /// The program is for another processor.
    #[error(
        "the host program is for machine type 0x{0:04x}, not for x86-64 (0x8664): Windows nodes are x86-64; give the \
         dormer-host.exe of this release"
    )]
    Machine(u16),
}

impl HostProgram {
    /// Reads the program from a file.
    ///
    /// # Errors
    /// [`ProgramError`].
    pub fn read(path: &Path) -> Result<Self, ProgramError> {
        let unread = |error| ProgramError::Unread(path.to_owned(), error);
        let size = std::fs::metadata(path).map_err(unread)?.len();
        if size > BYTES_MAX {
            return Err(ProgramError::TooLarge(size));
        }
        Self::of(std::fs::read(path).map_err(unread)?)
    }

    /// The program of these bytes.
    ///
    /// # Errors
    /// [`ProgramError`]: it is none that a Windows node could run.
    pub fn of(bytes: impl Into<Bytes>) -> Result<Self, ProgramError> {
        let bytes = bytes.into();
        if bytes.len() as u64 > BYTES_MAX {
            return Err(ProgramError::TooLarge(bytes.len() as u64));
        }
        match machine(&bytes) {
            None => Err(ProgramError::NotPe),
            Some(AMD64) => Ok(Self {
                sha256: sha256_hex(&bytes),
                bytes,
            }),
            Some(other) => Err(ProgramError::Machine(other)),
        }
    }

    /// Its content.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// SHA-256 of its content, 64 lower-case hex digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

impl fmt::Debug for HostProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostProgram")
            .field("bytes", &self.bytes.len())
            .field("sha256", &self.sha256)
            .finish()
    }
}

/// The machine type in a PE header; none if there is no such header.
fn machine(bytes: &[u8]) -> Option<u16> {
    if !bytes.starts_with(b"MZ") {
        return None;
    }
    let offset = bytes.get(OFFSET_AT..OFFSET_AT + 4)?;
    let offset = usize::try_from(u32::from_le_bytes(offset.try_into().ok()?)).ok()?;
    let header = bytes.get(offset..)?.strip_prefix(b"PE\0\0")?;
    Some(u16::from_le_bytes(header.get(..2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pe(machine: u16) -> Vec<u8> {
        let mut bytes = b"MZ".to_vec();
        bytes.resize(OFFSET_AT, 0);
        bytes.extend(0x80_u32.to_le_bytes());
        bytes.resize(0x80, 0);
        bytes.extend(b"PE\0\0");
        bytes.extend(machine.to_le_bytes());
        bytes
    }

    #[test]
    fn only_a_program_for_64_bit_windows_is_taken() {
        let program = HostProgram::of(pe(AMD64)).expect("one of ours");
        assert_eq!(program.sha256(), sha256_hex(&pe(AMD64)));
        assert_eq!(program.bytes().len(), 0x86);
        let arm = HostProgram::of(pe(0xaa64)).expect_err("for ARM64");
        assert!(arm.to_string().contains("0xaa64"), "{arm}");
        let far = [&b"MZ"[..], &[0xff; 0x80]].concat();
        let short = pe(AMD64)[..0x84].to_vec();
        let elf = b"\x7fELF".to_vec();
        for bytes in [far, short, elf, b"MZ".to_vec(), Vec::new()] {
            let error = HostProgram::of(bytes).expect_err("no program");
            assert!(matches!(error, ProgramError::NotPe), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = HostProgram::read(Path::new("/nowhere/dormer-host.exe")).expect_err("no file");
        assert!(error.to_string().contains("/nowhere/dormer-host.exe"));
    }
}
