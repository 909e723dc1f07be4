//! The form of an exported history, which `dormer history --export` writes and `dormer replay` reads.

/// Newest form of an export, and of either store's dump, that this build reads.
pub const FORMAT: u64 = 1;
