//! Byte format of the write-ahead log: a header opens each segment, followed by frames with checksums.
//!
//! Headers and frames begin at block boundaries. An acknowledged block is never written again, so a torn write cannot
//! destroy it.

use crate::{embedded::overlay::Entry, head_row::HeadRow};
use dormer_proto::id::{RunId, hash64};

/// Size of a block. A disk may tear a write at any 512 bytes, or destroy the physical sector being written (often 4
/// KiB).
pub(super) const BLOCK: usize = 4_096;
/// Bytes of a frame before its records.
const FRAME_HEAD: usize = 48;
/// Bytes of a record beside its run's name and its envelope.
const RECORD_HEAD: usize = 2 + 8 + 8 + 8 + 4;
const FRAME_MAGIC: u64 = u64::from_le_bytes(*b"dormfram");
const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"dormwal1");

/// Identity of a segment. Its generation counts up and its salt is random, so that frames of an earlier use of the
/// same place, or of another lifetime of the store, are never mistaken for its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded) struct Mark {
    pub(in crate::embedded) generation: u64,
    pub(in crate::embedded) salt: u64,
    /// Revision of its first record.
    pub(in crate::embedded) first: u64,
}

/// Header at a segment's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub(super) incarnation: u64,
    pub(super) mark: Mark,
    /// Salt of the previous segment; 0 if this is the first since the store was opened.
    pub(super) before: u64,
    /// Bytes of a segment, including this block.
    pub(super) bytes: u64,
}

impl SegmentHead {
    pub(super) fn write(&self) -> Vec<u8> {
        let Mark {
            generation,
            salt,
            first,
        } = self.mark;
        let words = [
            SEGMENT_MAGIC,
            self.incarnation,
            generation,
            salt,
            first,
            self.before,
            self.bytes,
        ];
        let mut block = vec![0; 8];
        block.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        sign(&mut block);
        block.resize(BLOCK, 0);
        block
    }

    pub(super) fn read(block: &[u8]) -> Option<Self> {
        let head = block.get(..64)?;
        let words: Vec<u64> = head.chunks_exact(8).map(word).collect();
        let [
            sum,
            SEGMENT_MAGIC,
            incarnation,
            generation,
            salt,
            first,
            before,
            bytes,
        ] = words[..]
        else {
            return None;
        };
        let mark = Mark {
            generation,
            salt,
            first,
        };
        (sum == hash64(&head[8..])).then_some(Self {
            incarnation,
            mark,
            before,
            bytes,
        })
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Writes the checksum of all following bytes into the first eight.
fn sign(bytes: &mut [u8]) {
    let sum = hash64(&bytes[8..]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
}

/// Frame under construction: the records of one sync.
#[derive(Debug)]
pub(in crate::embedded) struct Frame {
    bytes: Vec<u8>,
    count: u64,
}

/// Bytes that a record of `run` with an envelope of this size takes in a frame.
pub(in crate::embedded) fn record_bytes(run: &RunId, envelope: usize) -> usize {
    RECORD_HEAD + run.as_str().len() + envelope
}

impl Frame {
    pub(in crate::embedded) fn new() -> Self {
        Self {
            bytes: vec![0; FRAME_HEAD],
            count: 0,
        }
    }

    pub(in crate::embedded) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether `more` bytes still fit into `room`.
    pub(in crate::embedded) fn fits(&self, more: usize, room: usize) -> bool {
        self.bytes.len() + more <= room
    }

    /// Adds a record. Its revision follows from its position.
    pub(in crate::embedded) fn push(&mut self, run: &RunId, head: HeadRow, envelope: &[u8]) {
        let (_, seq, deadline, end) = head;
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let name = run.as_str().as_bytes();
        // A run id has at most 200 bytes.
        self.bytes.extend_from_slice(&length(name)[..2]);
        self.bytes.extend_from_slice(name);
        for word in [seq, deadline, end] {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.bytes.extend_from_slice(&length(envelope));
        self.bytes.extend_from_slice(envelope);
        self.count += 1;
    }

    /// Finished frame in whole blocks, with a segment's records from revision `first` on.
    pub(super) fn finish(&mut self, mark: Mark, first: u64) -> &[u8] {
        let words = [FRAME_MAGIC, self.len(), mark.generation, mark.salt, first];
        for (slot, word) in self.bytes[8..FRAME_HEAD].chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        sign(&mut self.bytes);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        &self.bytes
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEAD);
        self.count = 0;
    }
}

/// Complete frame that was read.
#[derive(Debug)]
pub(super) struct ReadFrame<'a> {
    pub(super) generation: u64,
    pub(super) salt: u64,
    pub(super) first: u64,
    records: &'a [u8],
    /// Bytes to the next possible frame.
    pub(super) blocks: usize,
}

impl<'a> ReadFrame<'a> {
    /// Frame at the start of `bytes`, if there is one and its checksum matches.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let head = bytes.get(..FRAME_HEAD)?;
        let words: Vec<u64> = head.chunks_exact(8).map(word).collect();
        let [sum, FRAME_MAGIC, len, generation, salt, first] = words[..] else {
            return None;
        };
        let frame = bytes.get(..usize::try_from(len).ok()?)?;
        if frame.len() < FRAME_HEAD || sum != hash64(&frame[8..]) {
            return None;
        }
        let blocks = frame.len().next_multiple_of(BLOCK);
        Some(Self {
            generation,
            salt,
            first,
            records: &frame[FRAME_HEAD..],
            blocks,
        })
    }

    /// Records of the frame in order. `None`: this build cannot read them.
    pub(super) fn records(&self) -> Option<Vec<(RunId, Entry)>> {
        let mut rest = self.records;
        let mut revision = self.first;
        let mut records = Vec::new();
        while !rest.is_empty() {
            records.push(record(&mut rest, revision)?);
            revision += 1;
        }
        Some(records)
    }
}

fn record(rest: &mut &[u8], revision: u64) -> Option<(RunId, Entry)> {
    let name = u16::from_le_bytes(rest.split_off(..2)?.try_into().ok()?);
    let run = std::str::from_utf8(rest.split_off(..usize::from(name))?)
        .ok()?
        .parse()
        .ok()?;
    let mut next = || rest.split_off(..8).map(word);
    let seq = next()?;
    let deadline = next()?;
    let end = next()?;
    let length = u32::from_le_bytes(rest.split_off(..4)?.try_into().ok()?);
    let bytes = rest.split_off(..usize::try_from(length).ok()?)?.to_vec();
    Some((
        run,
        Entry {
            head: (revision, seq, deadline, end),
            bytes,
        },
    ))
}
