//! The write-ahead log: where an append is synced before it is acknowledged.
//!
//! A file of fixed length in two halves, the segments. One is written, block after block, a frame and a sync for each
//! group of appends; meanwhile the other's records go into the redb file in one commit. When that commit is durable, the
//! other's place is written again. The commit also notes which segment the log goes on with, so that the two files can
//! be told to belong together.

mod frame;
mod recover;

pub(super) use frame::{Frame, Mark, record_bytes};
pub(super) use recover::{Fault, recover, verify_spent};

use frame::{BLOCK, SegmentHead};
use redb::StorageBackend;
use std::io;

/// How much is zeroed in one write when the file is made.
const ZEROES: usize = 1 << 20;

/// The log, open for writing.
#[derive(Debug)]
pub(super) struct Wal {
    file: Box<dyn StorageBackend>,
    incarnation: u64,
    segment_bytes: u64,
    mark: Mark,
    /// Bytes of the present segment that are written.
    written: u64,
}

impl Wal {
    /// Makes the file ready, and opens a segment that comes after `generation` and begins with revision `first`.
    ///
    /// # Errors
    /// The file's.
    pub(super) fn begin(
        file: Box<dyn StorageBackend>,
        segment_bytes: u64,
        incarnation: u64,
        generation: u64,
        first: u64,
    ) -> io::Result<Self> {
        let segment_bytes = segment_bytes
            .next_multiple_of(BLOCK as u64)
            .max(2 * BLOCK as u64);
        if file.len()? != 2 * segment_bytes {
            zero(&*file, 2 * segment_bytes)?;
        }
        let mark = Mark {
            generation,
            salt: 0,
            first,
        };
        let mut wal = Self {
            file,
            incarnation,
            segment_bytes,
            mark,
            written: 0,
        };
        wal.rotate(first)?;
        Ok(wal)
    }

    /// Which segment is being written.
    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    /// Whether the present segment has a frame.
    pub(super) fn is_used(&self) -> bool {
        self.written > BLOCK as u64
    }

    /// Bytes that a frame may still have in this segment.
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.segment_bytes - self.written).unwrap_or(usize::MAX)
    }

    /// Bytes that a frame may have in an empty segment.
    pub(super) fn room_max(&self) -> usize {
        usize::try_from(self.segment_bytes)
            .unwrap_or(usize::MAX)
            .saturating_sub(BLOCK)
    }

    /// Writes `frame`, whose records begin with revision `first`, syncs it and empties it. It must fit the room.
    ///
    /// # Errors
    /// The file's: then nothing is known of the frame, and nothing more may be written.
    pub(super) fn append(&mut self, frame: &mut Frame, first: u64) -> io::Result<()> {
        let bytes = frame.finish(self.mark, first);
        self.file
            .write(self.start(self.mark.generation) + self.written, bytes)?;
        self.file.sync_data()?;
        self.written += bytes.len() as u64;
        frame.clear();
        Ok(())
    }

    /// Goes on in the other segment, whose records must be in the redb file durably; answers its mark. The header is
    /// synced: a redb commit that names this mark may follow.
    ///
    /// # Errors
    /// The file's.
    pub(super) fn rotate(&mut self, first: u64) -> io::Result<Mark> {
        let before = self.mark.salt;
        let salt = rand::random_range(1..=u64::MAX);
        let mark = Mark {
            generation: self.mark.generation + 1,
            salt,
            first,
        };
        let head = SegmentHead {
            incarnation: self.incarnation,
            mark,
            before,
            bytes: self.segment_bytes,
        };
        self.file
            .write(self.start(mark.generation), &head.write())?;
        self.file.sync_data()?;
        (self.mark, self.written) = (mark, BLOCK as u64);
        Ok(mark)
    }

    fn start(&self, generation: u64) -> u64 {
        (generation % 2) * self.segment_bytes
    }
}

/// Gives the file its length by writing it, so that a later sync has no metadata to write.
fn zero(file: &dyn StorageBackend, length: u64) -> io::Result<()> {
    file.set_len(0)?;
    let zeroes = vec![0; ZEROES];
    let mut at = 0;
    while at < length {
        let step = (length - at).min(ZEROES as u64);
        file.set_len(at + step)?;
        file.write(at, &zeroes[..usize::try_from(step).unwrap_or(ZEROES)])?;
        at += step;
    }
    file.sync_data()
}
