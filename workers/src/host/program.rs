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
const AMD64: u64 = 0x8664;
/// Where a DOS header names the offset of the PE header (Microsoft Learn, PE Format, MS-DOS stub).
const OFFSET_AT: usize = 0x3c;
/// Bytes of the signature and of the COFF header behind it.
const HEADER_BYTES: usize = 24;
/// Bytes of a row of the section table.
const SECTION_BYTES: usize = 40;

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
    Machine(u64),
    /// The file is shorter than its own headers say: it was not copied to its end.
    #[error(
        "the host program is cut: its headers ask for {0} bytes, and it has {1}; give the whole dormer-host.exe of this \
         release"
    )]
    Cut(u64, u64),
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
        let header = header(&bytes).ok_or(ProgramError::NotPe)?;
        match number(&bytes, header + 4, 2) {
            None => return Err(ProgramError::NotPe),
            Some(AMD64) => {}
            Some(other) => return Err(ProgramError::Machine(other)),
        }
        let needed = needed(&bytes, header);
        let has = bytes.len() as u64;
        if needed > has {
            return Err(ProgramError::Cut(needed, has));
        }
        Ok(Self {
            sha256: sha256_hex(&bytes),
            bytes,
        })
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

/// A little-endian number of so many bytes. `None`: the file ends before.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let found = bytes.get(at..at.checked_add(length)?)?;
    let digits = found.iter().rev();
    Some(digits.fold(0, |number, digit| (number << 8) | u64::from(*digit)))
}

/// Where the PE header begins; none if there is no such header.
fn header(bytes: &[u8]) -> Option<usize> {
    if !bytes.starts_with(b"MZ") {
        return None;
    }
    let at = usize::try_from(number(bytes, OFFSET_AT, 4)?).ok()?;
    bytes.get(at..)?.starts_with(b"PE\0\0").then_some(at)
}

/// Bytes that the file has at least, by its header and its sections. Windows reads no more of a section than it has in memory.
fn needed(bytes: &[u8], header: usize) -> u64 {
    let count = |at: usize| number(bytes, header + at, 2).unwrap_or_default();
    let sections = count(6);
    let optional = count(20);
    let table = (header + HEADER_BYTES) as u64 + optional;
    if sections == 0 {
        // The stand-in of simulated hosts: nothing of it would run.
        return bytes.len() as u64;
    }
    let end = |section: u64| {
        let at = usize::try_from(table + section * SECTION_BYTES as u64).ok()?;
        let of = |field: usize| number(bytes, at + field, 4);
        let memory = of(8)?;
        let file = of(16)?;
        let from = of(20)?;
        let size = memory.min(file);
        // What is zero from the start has no content in the file.
        let is_empty = size == 0 || from == 0;
        Some(if is_empty { 0 } else { from + size })
    };
    let ends = (0..sections).filter_map(end);
    let headers = table + sections * SECTION_BYTES as u64;
    ends.fold(headers, u64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_testkit::windows_program;

    fn pe(machine: u64) -> Vec<u8> {
        let mut bytes = b"MZ".to_vec();
        bytes.resize(OFFSET_AT, 0);
        bytes.extend(0x80_u32.to_le_bytes());
        bytes.resize(0x80, 0);
        bytes.extend(b"PE\0\0");
        bytes.extend(&machine.to_le_bytes()[..2]);
        bytes
    }

    /// A field of a whole program, with another value: its offset, and its bytes.
    fn with(changes: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = windows_program(0x8664, Some([1, 0, 0, 0]));
        for (at, value) in changes {
            bytes[*at..at + value.len()].copy_from_slice(value);
        }
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
    fn a_program_that_was_not_copied_to_its_end_is_refused_wherever_it_is_cut() {
        let whole = with(&[]);
        HostProgram::of(whole.clone()).expect("a whole program");
        // From where the header names the number of sections.
        for end in 0x48..whole.len() {
            let error = HostProgram::of(whole[..end].to_vec()).expect_err("a part of it");
            assert!(matches!(error, ProgramError::Cut(..)), "{end}: {error}");
            let has = format!("and it has {end};");
            assert!(error.to_string().contains(&has), "{error}");
        }
        for end in 0..0x46 {
            let error = HostProgram::of(whole[..end].to_vec()).expect_err("a part of it");
            assert!(matches!(error, ProgramError::NotPe), "{end}: {error}");
        }
    }

    #[test]
    fn odd_headers_are_refused_or_taken_and_nothing_panics() {
        // Of the whole program: the COFF header begins at 0x44, the section table at 0x148.
        let sections = 0x46;
        let optional = 0x54;
        let section = 0x148;
        let most = [0xff; 4];
        let none = [0; 4];
        for (name, changes, cut) in [
            ("most sections", vec![(sections, &most[..2])], true),
            ("a long optional header", vec![(optional, &most[..2])], true),
            (
                "a section far behind",
                vec![(section + 20, &most[..])],
                true,
            ),
            (
                "a section that is too long",
                vec![(section + 8, &most[..]), (section + 16, &most[..])],
                true,
            ),
            (
                "the end of everything",
                vec![
                    (section + 8, &most[..]),
                    (section + 16, &most[..]),
                    (section + 20, &most[..]),
                ],
                true,
            ),
            // Linkers pad what the file has of a section.
            (
                "padding that was left out",
                vec![(section + 16, &most[..])],
                false,
            ),
            // What is zero from the start, in memory alone.
            (
                "a section without content",
                vec![(section + 16, &none[..])],
                false,
            ),
            (
                "a section in the headers",
                vec![(section + 20, &none[..])],
                false,
            ),
        ] {
            let refused = HostProgram::of(with(&changes)).err();
            let is_cut = matches!(refused, Some(ProgramError::Cut(..)));
            assert_eq!(is_cut, cut, "{name}: {refused:?}");
            assert_eq!(refused.is_some(), cut, "{name}: {refused:?}");
        }
        let far = with(&[(OFFSET_AT, &most[..])]);
        let error = HostProgram::of(far).expect_err("no header");
        assert!(matches!(error, ProgramError::NotPe), "{error}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = HostProgram::read(Path::new("/nowhere/dormer-host.exe")).expect_err("no file");
        assert!(error.to_string().contains("/nowhere/dormer-host.exe"));
    }
}
