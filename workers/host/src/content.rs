//! Content on its way into a file: inflated, hashed, written. What lies below [`crate::ops::FileWriteNew`] and
//! [`crate::ops::FileDigest`], the same on every platform.

use std::io::{self, Read, Write};

use flate2::read::MultiGzDecoder;
use sha2::{Digest as _, Sha256};

use crate::ops::Digest;

/// Bytes moved at a time.
const PIECE: usize = 1 << 20;

/// Copies everything from `source` to `target` and answers what it was; with `gzip` what `source` unpacks to. A source
/// that is no whole gzip file is [`io::ErrorKind::InvalidData`] or [`io::ErrorKind::UnexpectedEof`].
pub fn copy(source: impl Read, gzip: bool, target: &mut impl Write) -> io::Result<Digest> {
    if gzip {
        pass(
            MultiGzDecoder::new(io::BufReader::with_capacity(PIECE, source)),
            target,
        )
    } else {
        pass(source, target)
    }
}

/// SHA-256 and size of everything in `source`.
pub fn digest(source: impl Read) -> io::Result<Digest> {
    pass(source, &mut io::sink())
}

fn pass(mut source: impl Read, target: &mut impl Write) -> io::Result<Digest> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut size = 0;
    loop {
        let count = match source.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            // flate2 says so of a damaged header.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, e));
            }
            Err(e) => return Err(e),
        };
        hash.update(&piece[..count]);
        target.write_all(&piece[..count])?;
        size += count as u64;
    }
    Ok(Digest {
        sha256: dormer_profile::hex(&hash.finalize()),
        size,
    })
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("written");
        encoder.finish().expect("packed")
    }

    #[test]
    fn what_is_packed_arrives_unpacked_and_hashed() {
        let bytes: Vec<u8> = (0..PIECE as u32 / 3).flat_map(u32::to_le_bytes).collect();
        assert!(bytes.len() > PIECE);
        let wanted = Digest {
            sha256: dormer_profile::sha256_hex(&bytes),
            size: bytes.len() as u64,
        };
        for (source, gzip) in [(bytes.clone(), false), (packed(&bytes), true)] {
            let mut target = Vec::new();
            assert_eq!(
                copy(&source[..], gzip, &mut target).expect("copied"),
                wanted
            );
            assert_eq!(target, bytes);
        }
        assert_eq!(digest(&bytes[..]).expect("read"), wanted);
    }

    #[test]
    fn a_damaged_upload_differs_from_a_full_disk() {
        let whole = packed(b"kubelet");
        let mut changed = whole.clone();
        let last = changed.len() - 6;
        changed[last] ^= 1;
        for damaged in [&whole[..whole.len() - 3], &changed, b"MZ no gzip", &b""[..]] {
            let kind = copy(damaged, true, &mut Vec::new())
                .expect_err("damaged")
                .kind();
            assert!(
                matches!(
                    kind,
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
                ),
                "{kind:?}"
            );
        }
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(112))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = copy(&b"x"[..], false, &mut Full).expect_err("full");
        assert_eq!(error.raw_os_error(), Some(112));
    }
}
