//! Write-ahead log: each append is synced here before it is acknowledged.
//!
//! The file has a fixed length and two halves, the segments. One is written block after block, with a frame and a
//! sync for each group of appends. Meanwhile one commit copies the other's records into the redb file. When that
//! commit is durable, the other half is overwritten. The commit also names the log's next segment, so the two files
//! can be checked to belong together.

mod frame;
mod recover;

pub(super) use frame::{Frame, Mark, record_bytes};
pub(super) use recover::{RecoveryFault, recover, verify_spent};

use frame::{BLOCK, SegmentHead};
use redb::StorageBackend;
use std::io;

/// Bytes zeroed per write when the file is created.
const ZEROES: usize = 1 << 20;

/// Log that is open for writing.
#[derive(Debug)]
pub(super) struct Wal {
    file: Box<dyn StorageBackend>,
    incarnation: u64,
    segment_bytes: u64,
    mark: Mark,
    /// Bytes written in the present segment.
    written: u64,
}

impl Wal {
    /// Prepares the file, and opens the segment after `generation`, beginning with revision `first`.
    ///
    /// # Errors
    /// IO errors of the file.
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

    /// Segment being written.
    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    /// Whether the present segment has a frame.
    pub(super) fn is_used(&self) -> bool {
        self.written > BLOCK as u64
    }

    /// Bytes left for a frame in this segment.
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
    /// IO errors of the file. The frame's state is then unknown, and nothing more may be written.
    pub(super) fn append(&mut self, frame: &mut Frame, first: u64) -> io::Result<()> {
        let bytes = frame.finish(self.mark, first);
        self.file
            .write(self.start(self.mark.generation) + self.written, bytes)?;
        self.file.sync_data()?;
        self.written += bytes.len() as u64;
        frame.clear();
        Ok(())
    }

    /// Continues in the other segment, whose records must be durable in the redb file. Returns its mark. The
    /// header is synced: a redb commit that names this mark may follow.
    ///
    /// # Errors
    /// IO errors of the file.
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

/// Writes the file's whole length, so that a later sync has no metadata to write.
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
