//! SHA-256 of data that is too large for memory.

use dormer_profile::hex;
use sha2::{Digest, Sha256};
use std::io::{self, Read};

/// Bytes that are read at once.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// The sum of all of `from` in lower-case hex digits, and its size in bytes.
///
/// # Errors
/// `from` cannot be read.
pub(crate) fn sum(mut from: impl Read) -> io::Result<(String, u64)> {
    let mut sum = Sha256::new();
    let mut size = 0;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok((hex(&sum.finalize()), size)),
            read => {
                sum.update(&piece[..read]);
                size += read as u64;
            }
        }
    }
}
