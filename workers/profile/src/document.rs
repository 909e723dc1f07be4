//! Converge document: the desired state of one host, as the program on it reads it.
//!
//! The document says *what* a host should be; the command line beside it says what to do
//! about it now (mode, task, attempt, fence). So one document serves `plan`, `apply` before a reboot and `apply` after
//! it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::item::ChangeClass;
use crate::item::Item;

/// Schema number of [`Document`] and [`crate::answer::Answer`]. The program refuses any other.
pub const DOCUMENT_SCHEMA: u32 = 1;
/// Most items one document may hold.
pub const DOCUMENT_ITEMS_MAX: usize = 1_000;
/// Most bytes a document may have once serialised (inline files included).
pub const DOCUMENT_BYTES_MAX: usize = 8 << 20;
/// The desired state of one host, for one section of its profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    pub schema: u32,
    /// Section of the profile.
    pub section: Section,
    /// The version that the host carries once this is converged.
    pub version: String,
    /// Items, in the order in which they are checked and changed.
    pub items: Vec<Item>,
    /// Files of this section that the host keeps as they are, because what belongs into them is not sent now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
}

/// The two parts of a profile.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// What can be rendered before the Node exists.
    Host,
    /// What needs the Node (its name, its hybrid-overlay subnet).
    Node,
}

impl Section {
    /// Name in file names and on command lines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Node => "node",
        }
    }
}

/// The host fence: no command with a smaller one may change the host (docs/decisions/0004-fences.md).
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub struct Fence {
    /// Grows with each adoption.
    pub generation: u64,
    /// The seq of the task within its run.
    pub seq: u64,
}

/// Why a document is not sent to a host.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DocumentError {
    /// More than [`DOCUMENT_ITEMS_MAX`] items.
    #[error("the document has {0} items, at most {DOCUMENT_ITEMS_MAX} are allowed")]
    TooManyItems(usize),
    /// More than [`DOCUMENT_BYTES_MAX`] bytes.
    #[error("the document has {0} bytes, at most {DOCUMENT_BYTES_MAX} are allowed")]
    TooLarge(usize),
    /// Not a converge document.
    #[error("not a converge document: {0}")]
    Malformed(String),
    /// A schema number other than [`DOCUMENT_SCHEMA`].
    #[error("the document has schema {0}, but this build knows {DOCUMENT_SCHEMA}")]
    Schema(u32),
}

impl Document {
    /// Bytes for the host: JSON without a BOM, with non-ASCII escaped, so that no code page of the host can change
    /// its meaning.
    pub fn to_bytes(&self) -> Result<Vec<u8>, DocumentError> {
        if self.items.len() > DOCUMENT_ITEMS_MAX {
            return Err(DocumentError::TooManyItems(self.items.len()));
        }
        let json =
            serde_json::to_string(self).map_err(|e| DocumentError::Malformed(e.to_string()))?;
        let bytes = crate::text::ascii_json(&json).into_bytes();
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(DocumentError::TooLarge(bytes.len()));
        }
        Ok(bytes)
    }

    /// Reads what [`Document::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DocumentError> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(DocumentError::TooLarge(bytes.len()));
        }
        let document: Self =
            serde_json::from_slice(bytes).map_err(|e| DocumentError::Malformed(e.to_string()))?;
        if document.schema != DOCUMENT_SCHEMA {
            return Err(DocumentError::Schema(document.schema));
        }
        if document.items.len() > DOCUMENT_ITEMS_MAX {
            return Err(DocumentError::TooManyItems(document.items.len()));
        }
        Ok(document)
    }
}
