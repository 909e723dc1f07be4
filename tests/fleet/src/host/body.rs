//! File content as a host keeps it: size and SHA-256 in full, the bytes up to a limit.

use dormer_profile::text::hex;
use dormer_proto::lock::Locked as _;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, Weak};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// Bytes of a file that are kept for reading; what follows is only counted and hashed.
pub const HEAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of out-of-order writes that wait for the gap before them.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Where the stand-in's modelled body begins, behind its headers.
pub(super) const STAND_IN_BODY_AT: usize = 0x90;
/// First bytes of a *modelled* body: a short file that stands for a long one (see [`modelled_body`]).
pub const MODELLED_MARK: &str = "dormer modelled body: ";

/// The content of a file. Identical content is held once in the whole process.
#[derive(Debug, PartialEq, Eq)]
pub struct Body {
    /// Length in bytes.
    pub size: u64,
    /// SHA-256, 64 lower-case hex digits.
    pub sha256: String,
    /// The first [`HEAD_BYTES_MAX`] bytes.
    pub head: Bytes,
    /// SHA-256 of what a gzip stream unpacks to, with its size, if the content is one.
    pub unpacked: Option<(String, u64)>,
    /// The length that time is counted for: `size`, or what a modelled body claims.
    pub modelled: u64,
}

impl Body {
    /// Content that is all there.
    pub fn of(bytes: &[u8]) -> Arc<Self> {
        let mut writer = BodyWriter::default();
        writer.write(0, bytes);
        writer.finish()
    }

    /// The whole content, if it is short enough to be kept.
    pub fn bytes(&self) -> Option<&Bytes> {
        (self.head.len() as u64 == self.size).then_some(&self.head)
    }

    /// What a gzip stream unpacks to, if it is kept whole.
    pub fn gunzip(&self) -> Option<Vec<u8>> {
        use std::io::Read as _;
        let mut out = Vec::new();
        let limit = HEAD_BYTES_MAX as u64 * 64;
        flate2::read::GzDecoder::new(self.bytes()?.as_ref())
            .take(limit)
            .read_to_end(&mut out)
            .ok()?;
        Some(out)
    }
}

/// Content of `actual` bytes that hosts treat, in time and in disk space, as if it had `modelled` bytes: how a
/// payload of 300 MB is shipped to a thousand hosts in one process. `name` makes the content unique.
pub fn modelled_body(name: &str, actual: usize, modelled: u64) -> Vec<u8> {
    let mut bytes = format!("{MODELLED_MARK}{actual} {modelled} {name}\n").into_bytes();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ name.len() as u64;
    for byte in name.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    while bytes.len() < actual {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(actual.max(MODELLED_MARK.len()));
    bytes
}

/// `(actual, modelled)` of a modelled body, read from its first bytes.
pub fn modelled_sizes(head: &[u8]) -> Option<(u64, u64)> {
    // The stand-in for the host program begins with a program's headers.
    if head.starts_with(b"MZ") {
        let (actual, modelled) = modelled_sizes(head.get(STAND_IN_BODY_AT..)?)?;
        return Some((actual + STAND_IN_BODY_AT as u64, modelled));
    }
    let rest = head.strip_prefix(MODELLED_MARK.as_bytes())?;
    let line = rest.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let actual: u64 = words.next()?.parse().ok()?;
    let modelled: u64 = words.next()?.parse().ok()?;
    (actual > 0 && modelled >= actual).then_some((actual, modelled))
}

/// What a gzip stream unpacks to: its bytes if they are kept, else a body that is known by its hash alone.
pub(super) fn unpack(body: &Arc<Body>, sha256: &str) -> Arc<Body> {
    if let Some(bytes) = body.gunzip() {
        let whole = Body::of(&bytes);
        if whole.sha256 == sha256 {
            return whole;
        }
    }
    let size = body.unpacked.as_ref().map_or(body.size, |(_, size)| *size);
    Arc::new(Body {
        size,
        sha256: sha256.to_owned(),
        head: Bytes::new(),
        unpacked: None,
        modelled: body.modelled.max(size),
    })
}

/// Collects what is written to an open file.
#[derive(Default)]
pub struct BodyWriter {
    head: Vec<u8>,
    hasher: Sha256,
    unpack: Option<flate2::write::GzDecoder<HashSink>>,
    hashed: u64,
    size: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    waiting_bytes: usize,
    torn: bool,
}

impl BodyWriter {
    /// Continues from existing content (an open without truncation).
    pub fn resume(body: &Body) -> Self {
        let mut writer = Self::default();
        writer.write(0, &body.head);
        writer.torn = body.size > writer.size;
        writer.size = body.size;
        writer
    }

    /// Length so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The first bytes so far.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Forgets what came after `bytes`; the hash is one that no whole content has.
    pub fn tear(&mut self, bytes: u64) {
        self.size = bytes.min(self.size);
        self.head
            .truncate(usize::try_from(self.size).unwrap_or(usize::MAX));
        self.unpack = None;
        self.torn = true;
    }

    /// Cuts the content to `length` bytes, if it is longer. What is left of a long one has a hash that no other content
    /// has.
    pub fn cut(&mut self, length: u64) {
        match usize::try_from(length) {
            _ if length >= self.size => {}
            Ok(kept) if kept <= self.head.len() => {
                let head = self.head[..kept].to_vec();
                *self = Self::default();
                self.write(0, &head);
            }
            _ => self.tear(length),
        }
    }

    /// Takes `data` at `offset`. Pieces may come in any order; bytes are hashed as soon as those before them are
    /// there. A piece that overwrites what was hashed is honoured within the head and marks the rest as torn.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.size = self.size.max(offset + data.len() as u64);
        if offset > self.hashed {
            self.waiting_bytes += data.len();
            self.torn |= self.waiting_bytes > WAITING_BYTES_MAX;
            if !self.torn {
                self.waiting.insert(offset, data.to_vec());
            }
            return;
        }
        if offset < self.hashed {
            self.overwrite(offset, data);
            return;
        }
        self.append(data);
        while let Some((at, _)) = self.waiting.first_key_value() {
            if *at > self.hashed {
                break;
            }
            if let Some((at, piece)) = self.waiting.pop_first() {
                self.waiting_bytes -= piece.len();
                if at == self.hashed {
                    self.append(&piece)
                } else {
                    self.overwrite(at, &piece)
                }
            }
        }
    }

    fn append(&mut self, data: &[u8]) {
        use std::io::Write as _;
        if self.hashed == 0 && data.starts_with(&[0x1f, 0x8b]) {
            self.unpack = Some(flate2::write::GzDecoder::new(HashSink::default()));
        }
        if let Some(unpack) = &mut self.unpack
            && unpack.write_all(data).is_err()
        {
            self.unpack = None;
        }
        self.hasher.update(data);
        self.hashed += data.len() as u64;
        let room = HEAD_BYTES_MAX.saturating_sub(self.head.len());
        self.head.extend_from_slice(&data[..room.min(data.len())]);
    }

    fn overwrite(&mut self, offset: u64, data: &[u8]) {
        let Ok(start) = usize::try_from(offset) else {
            return;
        };
        for (index, byte) in data.iter().enumerate() {
            let room = self.head.len() < HEAD_BYTES_MAX;
            match self.head.get_mut(start + index) {
                Some(slot) => *slot = *byte,
                None if room => self.head.push(*byte),
                None => self.torn = true,
            }
        }
        self.unpack = None;
        if self.hashed <= HEAD_BYTES_MAX as u64 && !self.torn {
            self.hasher = Sha256::new_with_prefix(&self.head);
            self.hashed = self.head.len() as u64;
        } else {
            self.torn = true;
        }
    }

    /// The content as it stands, for instance after the connection was cut. A gap, or a torn body, gets a hash that
    /// no other content has.
    pub fn snapshot(&self) -> Arc<Body> {
        let mut hasher = self.hasher.clone();
        if self.torn || self.hashed != self.size {
            hasher.update(b"torn");
        }
        let sha256 = hex(&hasher.finalize());
        let unpacked = self.unpack.as_ref().and_then(|unpack| {
            let sink = unpack.get_ref();
            (sink.size > 0).then(|| (hex(&sink.hasher.clone().finalize()), sink.size))
        });
        let modelled = match modelled_sizes(&self.head) {
            Some((actual, modelled)) if actual == self.size => modelled,
            _ => self.size,
        };
        intern(Body {
            size: self.size,
            sha256,
            head: Bytes::copy_from_slice(&self.head),
            unpacked,
            modelled,
        })
    }

    /// The finished content.
    pub fn finish(mut self) -> Arc<Body> {
        if self
            .unpack
            .as_mut()
            .is_some_and(|unpack| unpack.try_finish().is_err())
        {
            self.unpack = None;
        }
        self.snapshot()
    }
}

/// Counts and hashes what is written to it.
#[derive(Default)]
struct HashSink {
    hasher: Sha256,
    size: u64,
}

impl std::io::Write for HashSink {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.hasher.update(data);
        self.size += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Bodies alive in this process, by hash: a thousand hosts hold one copy of one payload.
fn intern(body: Body) -> Arc<Body> {
    static KNOWN: LazyLock<Mutex<HashMap<String, Weak<Body>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.locked();
    if let Some(same) = known.get(&body.sha256).and_then(Weak::upgrade)
        && same.size == body.size
    {
        return same;
    }
    if known.len() > 10_000 {
        known.retain(|_, body| body.strong_count() > 0);
    }
    let body = Arc::new(body);
    known.insert(body.sha256.clone(), Arc::downgrade(&body));
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_profile::text::sha256_hex;

    #[test]
    fn pieces_out_of_order_make_the_same_content() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        let mut writer = BodyWriter::default();
        writer.write(200_000, &bytes[200_000..]);
        writer.write(0, &bytes[..100_000]);
        writer.write(100_000, &bytes[100_000..200_000]);
        let body = writer.finish();
        assert_eq!(
            (body.size, body.sha256.clone()),
            (300_000, sha256_hex(&bytes))
        );
        assert!(Arc::ptr_eq(&body, &Body::of(&bytes)));
    }

    #[test]
    fn long_content_is_hashed_and_not_kept() {
        let bytes = vec![7_u8; 3 << 20];
        let body = Body::of(&bytes);
        assert_eq!(body.sha256, sha256_hex(&bytes));
        assert_eq!((body.head.len(), body.bytes()), (HEAD_BYTES_MAX, None));
    }

    #[test]
    fn a_gap_never_has_the_hash_of_the_whole() {
        let mut writer = BodyWriter::default();
        writer.write(10, b"tail");
        assert_ne!(writer.finish().sha256, sha256_hex(b"tail"));
    }

    #[test]
    fn overwriting_the_beginning_is_honoured() {
        let mut writer = BodyWriter::default();
        writer.write(0, b"hello world");
        writer.write(0, b"HELLO");
        assert_eq!(writer.finish().sha256, sha256_hex(b"HELLO world"));
    }

    #[test]
    fn a_modelled_body_claims_its_length() {
        let body = Body::of(&modelled_body("kubelet.exe", 65_536, 100 << 20));
        assert_eq!((body.size, body.modelled), (65_536, 100 << 20));
        assert_ne!(
            body.sha256,
            Body::of(&modelled_body("containerd.exe", 65_536, 100 << 20)).sha256
        );
    }

    #[test]
    fn a_gzip_stream_is_known_by_what_it_unpacks_to() {
        use std::io::Write as _;
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let packed = packer
            .write_all(b"the content")
            .and_then(|()| packer.finish())
            .unwrap_or_default();
        let body = Body::of(&packed);
        assert_eq!(body.unpacked, Some((sha256_hex(b"the content"), 11)));
        assert_eq!(body.gunzip().as_deref(), Some(b"the content".as_slice()));
    }
}
