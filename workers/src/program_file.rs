//! Header and version resource of a Windows program.

use dormer_profile::release::Release;
use object::{
    LittleEndian as LE,
    pe::{IMAGE_FILE_DLL, IMAGE_FILE_MACHINE_AMD64, RT_VERSION},
    read::pe::{
        ImageNtHeaders, PeFile64, ResourceDirectory, ResourceDirectoryTable, ResourceNameOrId,
    },
};
use std::fmt;

/// First number of the fixed part of a version resource (VS_FIXEDFILEINFO in `verrsrc.h`).
const FIXED_FILE_INFO: [u8; 4] = 0xFEEF_04BD_u32.to_le_bytes();
/// Where the product's version stands after it: after the structure's own version and the file's.
const PRODUCT_VERSION: usize = 16;

/// A program for 64-bit Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Product version in its resource; most programs written in Go have none.
    pub version: Option<ProductVersion>,
}

/// Product version in a version resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProductVersion([u16; 4]);

impl ProductVersion {
    /// `major.minor`.
    #[must_use]
    pub fn release(self) -> Release {
        Release::new(self.0[0].into(), self.0[1].into())
    }
}

impl fmt::Display for ProductVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch, build] = self.0;
        write!(f, "{major}.{minor}.{patch}.{build}")
    }
}

impl Program {
    /// Reads the headers and the version resource.
    ///
    /// # Errors
    /// It is no program for 64-bit Windows on AMD64, in a sentence.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let file = PeFile64::parse(bytes)
            .map_err(|error| format!("it is no 64-bit program for Windows: {error}"))?;
        let header = file.nt_headers().file_header();
        let machine = header.machine.get(LE);
        if machine != IMAGE_FILE_MACHINE_AMD64 {
            return Err(format!(
                "it is for processors of type {machine:#06x}, and hosts are AMD64"
            ));
        }
        if header.characteristics.get(LE) & IMAGE_FILE_DLL != 0 {
            return Err("it is a library, not a program".to_owned());
        }
        let resources = file
            .data_directories()
            .resource_directory(bytes, &file.section_table())
            .map_err(|error| format!("its resources cannot be read: {error}"))?;
        let version = resources.and_then(|directory| version(&file, bytes, directory));
        Ok(Self { version })
    }
}

/// Product version of the first version resource.
fn version(
    file: &PeFile64<'_>,
    bytes: &[u8],
    directory: ResourceDirectory<'_>,
) -> Option<ProductVersion> {
    let root = directory.root().ok()?;
    let of_type = root
        .entries
        .iter()
        .find(|entry| matches!(entry.name_or_id(), ResourceNameOrId::Id(id) if id == RT_VERSION))?;
    // Below the type there is a table of names, and below it one of languages.
    let first = |table: ResourceDirectoryTable<'_>| table.entries.first().copied();
    let names = of_type.data(directory).ok()?.table()?;
    let languages = first(names)?.data(directory).ok()?.table()?;
    let entry = first(languages)?.data(directory).ok()?.data()?;
    let address = entry.offset_to_data.get(LE);
    let data = file.section_table().pe_data_at(bytes, address)?;
    let data = data.get(..entry.size.get(LE) as usize)?;
    let at = data
        .windows(FIXED_FILE_INFO.len())
        .position(|four| four == FIXED_FILE_INFO)?;
    let numbers = data.get(at + PRODUCT_VERSION..at + PRODUCT_VERSION + 8)?;
    let word = |n: usize| u16::from_le_bytes([numbers[n], numbers[n + 1]]);
    // Two numbers of 32 bits, each with its upper half first in meaning.
    Some(ProductVersion([word(2), word(0), word(6), word(4)]))
}
