//! Format of an exported history, which `dormer history --export` writes and `dormer replay` reads.

/// Newest format of exports and dumps that this build reads.
pub const FORMAT: u64 = 1;
