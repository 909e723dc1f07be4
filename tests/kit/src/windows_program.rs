//! A small program for Windows, as bytes.

/// `IMAGE_FILE_MACHINE_AMD64`.
pub const AMD64: u16 = 0x8664;
/// `IMAGE_FILE_MACHINE_ARM64`.
pub const ARM64: u16 = 0xaa64;

/// A small program for 64-bit Windows without code. With a version it has a version resource, laid out as `verrsrc.h`
/// and Microsoft's description of the PE format say.
///
/// # Panics
/// Never: its parts are small.
#[must_use]
pub fn windows_program(machine: u16, version: Option<[u16; 4]>) -> Vec<u8> {
    let resource = version.map(version_resource).unwrap_or_default();
    let mut headers = vec![0; 0x200];
    let mut put = |at: usize, bytes: &[u8]| headers[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3c, &0x40_u32.to_le_bytes());
    put(0x40, b"PE\0\0");
    let file = 0x44;
    put(file, &machine.to_le_bytes());
    put(file + 2, &1_u16.to_le_bytes());
    put(file + 16, &240_u16.to_le_bytes());
    put(file + 18, &0x22_u16.to_le_bytes());
    let optional = file + 20;
    put(optional, &0x20b_u16.to_le_bytes());
    put(optional + 32, &0x1000_u32.to_le_bytes());
    put(optional + 36, &0x200_u32.to_le_bytes());
    put(optional + 68, &3_u16.to_le_bytes());
    put(optional + 108, &16_u32.to_le_bytes());
    let size = u32::try_from(resource.len()).expect("small").to_le_bytes();
    if !resource.is_empty() {
        put(optional + 112 + 16, &0x1000_u32.to_le_bytes());
        put(optional + 112 + 20, &size);
    }
    let section = optional + 240;
    put(section, b".rsrc");
    put(section + 8, &size);
    put(section + 12, &0x1000_u32.to_le_bytes());
    put(section + 16, &size);
    put(section + 20, &0x200_u32.to_le_bytes());
    headers.extend(resource);
    headers
}

/// A program as Go's linker makes it: its build information has these lines, and it has no version resource.
///
/// # Panics
/// Never: its parts are small.
#[must_use]
pub fn go_program(lines: &str) -> Vec<u8> {
    let mut bytes = windows_program(AMD64, None);
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    bytes.extend(go_build_information(lines));
    bytes
}

/// Build information as `debug/buildinfo` of Go 1.18 and later reads it.
///
/// # Panics
/// Never: its parts are small.
#[must_use]
pub fn go_build_information(lines: &str) -> Vec<u8> {
    let mut bytes = b"\xff Go buildinf:\x08\x02".to_vec();
    bytes.resize(32, 0);
    let modules = format!("0w\u{1}{:13}{lines}{:16}", "", "");
    for text in ["go1.26.8", &modules] {
        let mut length = text.len();
        while length >= 0x80 {
            bytes.push(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
            length >>= 7;
        }
        bytes.push(u8::try_from(length).expect("seven bits"));
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// A resource section with one version resource: tables of types, of names and of languages, each with one entry.
fn version_resource([major, minor, patch, build]: [u16; 4]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (id, next) in [
        (16_u32, 0x8000_0000_u32 | 24),
        (1, 0x8000_0000 | 48),
        (0x409, 72),
    ] {
        bytes.extend([0; 14]);
        bytes.extend(1_u16.to_le_bytes());
        bytes.extend(id.to_le_bytes());
        bytes.extend(next.to_le_bytes());
    }
    let mut info = vec![0; 6];
    info.extend(
        "VS_VERSION_INFO\0\0"
            .encode_utf16()
            .flat_map(u16::to_le_bytes),
    );
    info.extend(0xFEEF_04BD_u32.to_le_bytes());
    // The structure's version, and a file's version that is not the product's.
    info.extend([1; 12]);
    info.extend(
        [minor, major, build, patch]
            .into_iter()
            .flat_map(u16::to_le_bytes),
    );
    info.extend([0; 28]);
    bytes.extend(0x1058_u32.to_le_bytes());
    bytes.extend(u32::try_from(info.len()).expect("small").to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(info);
    bytes
}
