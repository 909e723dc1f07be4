//! Values that operations and answers share.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes, written as base64 in a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD
            .decode(text)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// SHA-256 and size of a content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// SHA-256, 64 lower-case hex digits.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
}

/// Where the content of a new file comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum ContentSource {
    /// Here it is.
    Inline {
        /// The content.
        bytes: Bytes,
    },
    /// A file on the host.
    Staged {
        path: String,
        /// Whether it is gzip-compressed; the content is then the decompressed data.
        gzip: bool,
    },
}

/// Access rights of an object at its creation, owner included. SDDL (docs/field-notes.md, Access rights of files) in a
/// security descriptor for `CreateFileW` or `CreateDirectoryW`, so that others cannot write at any moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rights {
    /// Inherited from the parent folder; no security descriptor is given.
    #[default]
    Inherited,
    /// Administrators and SYSTEM everything, users read and execute; nothing is inherited.
    Users,
    /// Full access for Administrators and SYSTEM, none for others; nothing is inherited.
    Private,
}

impl Rights {
    /// The security descriptor as text; none for [`Rights::Inherited`].
    pub const fn sddl(self, folder: bool) -> Option<&'static str> {
        match (self, folder) {
            (Self::Inherited, _) => None,
            (Self::Users, true) => {
                Some("O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)")
            }
            (Self::Users, false) => Some("O:BAD:PAI(A;;FA;;;SY)(A;;FA;;;BA)(A;;0x1200a9;;;BU)"),
            (Self::Private, true) => Some("O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)"),
            (Self::Private, false) => Some("O:BAD:PAI(A;;FA;;;SY)(A;;FA;;;BA)"),
        }
    }
}

/// A value in the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum Value {
    /// `REG_SZ`, without its final NUL.
    Text(String),
    /// `REG_EXPAND_SZ`, not expanded.
    Expand(String),
    /// `REG_MULTI_SZ`.
    Texts(Vec<String>),
    /// `REG_DWORD`.
    Number(u32),
    /// `REG_QWORD`.
    Long(u64),
    /// `REG_BINARY`, and every other type.
    Bytes(Bytes),
}
