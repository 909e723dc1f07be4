//! Transfer of content into a file: decompress, hash, write. It is the platform-independent part of
//! [`crate::ops::FileWriteNew`] and [`crate::ops::FileDigest`].

use std::io::{self, BufReader, Read, Write};

use flate2::bufread::DeflateDecoder;
use sha2::{Digest as _, Sha256};

use crate::ops::Digest;

/// Bytes moved at a time.
const PIECE: usize = 1 << 20;

/// Copies everything from `source` to `target` and returns its size and hash; with `gzip`, those of the decompressed
/// content. A source that is not a complete gzip file is [`io::ErrorKind::InvalidData`] or
/// [`io::ErrorKind::UnexpectedEof`].
pub fn copy(source: impl Read, gzip: bool, target: &mut impl Write) -> io::Result<Digest> {
    if gzip {
        pass(Gzip::open(source)?, target)
    } else {
        pass(source, target)
    }
}

/// Reader of one gzip member without optional fields, as a worker packs it (RFC 1952, 2.3).
///
/// flate2's own reader would bring 54 KB of tables for its checksum into a program of 1.2 MB.
struct Gzip<R: Read> {
    inflate: DeflateDecoder<BufReader<R>>,
    crc: u32,
    size: u32,
    ended: bool,
}

impl<R: Read> Gzip<R> {
    fn open(source: R) -> io::Result<Self> {
        let mut source = BufReader::with_capacity(PIECE, source);
        let mut header = [0; 10];
        source.read_exact(&mut header)?;
        // The magic number, deflate, no flags.
        if header[..4] != [0x1f, 0x8b, 8, 0] {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self {
            inflate: DeflateDecoder::new(source),
            crc: u32::MAX,
            size: 0,
            ended: false,
        })
    }

    /// Compares checksum and size, which follow the packed bytes. Nothing may follow them.
    fn end(&mut self) -> io::Result<()> {
        let source = self.inflate.get_mut();
        let mut trailer = [0; 8];
        source.read_exact(&mut trailer)?;
        let [a, b, c, d, size @ ..] = trailer;
        let same = u32::from_le_bytes([a, b, c, d]) == !self.crc
            && u32::from_le_bytes(size) == self.size
            && source.read(&mut [0])? == 0;
        self.ended = true;
        if same {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let count = self.inflate.read(buffer)?;
        if count == 0 && !buffer.is_empty() {
            self.end()?;
            return Ok(0);
        }
        for byte in &buffer[..count] {
            let row = (self.crc as u8) ^ byte;
            self.crc = CRC[usize::from(row)] ^ (self.crc >> 8);
        }
        // The size modulo 2^32.
        self.size = self.size.wrapping_add(count as u32);
        Ok(count)
    }
}

/// CRC-32 of each byte (RFC 1952, 8).
static CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut rest = n as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 == 1 {
                0xedb8_8320 ^ (rest >> 1)
            } else {
                rest >> 1
            };
            bit += 1;
        }
        table[n] = rest;
        n += 1;
    }
    table
};

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
            // flate2's error for damaged data.
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
        let longer = [&whole[..], b"x"].concat();
        let mut packed_byte = whole.clone();
        packed_byte[12] ^= 1;
        for damaged in [
            &whole[..whole.len() - 3],
            &whole[..12],
            &changed,
            &packed_byte,
            &longer,
            b"MZ no gzip",
            &b""[..],
        ] {
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
