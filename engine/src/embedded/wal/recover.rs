//! Recovery of the log when a store is opened: records to take over, a torn end to cut off, and damage to refuse.
//!
//! A frame is synced before the next one is written. So a crash can tear only the last frame, which was never
//! acknowledged: it is cut off. An unreadable frame followed by a complete one was acknowledged: that is damage.

use super::frame::{BLOCK, Mark, ReadFrame, SegmentHead};
use crate::embedded::overlay::Entry;
use dormer_proto::id::RunId;
use redb::StorageBackend;
use std::io;

const HEADLESS: &str = "a segment's header cannot be read, but complete frames follow it";

/// Reason for which a log cannot be recovered.
#[derive(Debug, thiserror::Error)]
pub(in crate::embedded) enum RecoveryFault {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A part of the acknowledged records cannot be read.
    #[error("byte {at}: {what}")]
    Damaged {
        /// Position in bytes.
        at: usize,
        /// Fault at that position.
        what: &'static str,
    },
    /// The log is from another time or another store.
    #[error("{0}")]
    Unpaired(&'static str),
}

/// Records of the log that the redb file lacks.
#[derive(Debug)]
pub(in crate::embedded) struct Recovered {
    /// Records in the order of their revisions.
    pub(in crate::embedded) records: Vec<(RunId, Entry)>,
    /// Newest segment.
    pub(in crate::embedded) generation: u64,
}

/// Log in memory.
struct Halves {
    bytes: Vec<u8>,
}

impl Halves {
    fn read(file: &dyn StorageBackend) -> io::Result<Self> {
        let length = usize::try_from(file.len()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        file.read(0, &mut bytes)?;
        Ok(Self { bytes })
    }

    /// Start of the half of `generation`.
    fn start(&self, generation: u64) -> usize {
        if generation.is_multiple_of(2) {
            0
        } else {
            self.bytes.len() / 2
        }
    }

    /// Bytes of that half.
    fn half(&self, generation: u64) -> &[u8] {
        let (even, odd) = self.bytes.split_at(self.bytes.len() / 2);
        if generation.is_multiple_of(2) {
            even
        } else {
            odd
        }
    }

    fn head(&self, generation: u64, incarnation: u64) -> Option<SegmentHead> {
        let half = self.half(generation);
        let head = SegmentHead::read(half)?;
        let ours = head.incarnation == incarnation && head.bytes == half.len() as u64;
        ours.then_some(head)
    }

    /// Checks that the file has the length in its first header, if it has one.
    fn whole(&self) -> Result<(), RecoveryFault> {
        let length = self.bytes.len();
        match SegmentHead::read(&self.bytes) {
            Some(head) if head.bytes.saturating_mul(2) != length as u64 => {
                Err(RecoveryFault::Damaged {
                    at: length,
                    what: "the file has the wrong length",
                })
            }
            _ => Ok(()),
        }
    }

    /// Complete frames at or after byte `from` in the half of `generation`.
    fn frames(&self, generation: u64, from: usize) -> impl Iterator<Item = ReadFrame<'_>> {
        let half = self.half(generation);
        (from..half.len())
            .step_by(BLOCK)
            .filter_map(|at| ReadFrame::read(&half[at..]))
    }

    /// Reads the segment's frames in order. The answer is their end.
    fn walk(
        &self,
        mark: Mark,
        next: &mut u64,
        records: &mut Vec<(RunId, Entry)>,
    ) -> Result<usize, RecoveryFault> {
        let half = self.half(mark.generation);
        let start = self.start(mark.generation);
        let mut at = BLOCK;
        while let Some(found) = half.get(at..).and_then(ReadFrame::read)
            && (found.generation, found.salt, found.first) == (mark.generation, mark.salt, *next)
        {
            let what = "a frame whose records this build cannot read";
            let more = found.records().ok_or(RecoveryFault::Damaged {
                at: start + at,
                what,
            })?;
            *next += more.len() as u64;
            records.extend(more);
            at += found.blocks;
        }
        let mut behind = self.frames(mark.generation, at);
        if behind.any(|found| (found.generation, found.salt) == (mark.generation, mark.salt)) {
            let what = "a frame cannot be read, but complete ones follow it";
            return Err(RecoveryFault::Damaged {
                at: start + at,
                what,
            });
        }
        Ok(start + at)
    }
}

/// Recovers the records after `mark`, which the redb file names.
///
/// # Errors
/// [`RecoveryFault`].
pub(in crate::embedded) fn recover(
    file: &dyn StorageBackend,
    incarnation: u64,
    mark: Mark,
) -> Result<Recovered, RecoveryFault> {
    let halves = Halves::read(file)?;
    halves.whole()?;
    let generation = mark.generation;
    match halves.head(generation, incarnation) {
        Some(head) if head.mark == mark => {}
        Some(_) => {
            return Err(RecoveryFault::Unpaired(
                "it continues from another time than the store's",
            ));
        }
        None if halves
            .frames(generation, BLOCK)
            .any(|found| found.salt == mark.salt) =>
        {
            return Err(RecoveryFault::Damaged {
                at: halves.start(generation),
                what: HEADLESS,
            });
        }
        None => {
            return Err(RecoveryFault::Unpaired(
                "it has no segment that continues the store",
            ));
        }
    }
    let mut records = Vec::new();
    let mut next = mark.first;
    let end = halves.walk(mark, &mut next, &mut records)?;
    let newer = generation + 1;
    match halves.head(newer, incarnation) {
        Some(head) if head.mark.generation == newer && head.before == mark.salt => {
            if head.mark.first != next {
                let what = "acknowledged frames are missing at this segment's end";
                return Err(RecoveryFault::Damaged { at: end, what });
            }
            halves.walk(head.mark, &mut next, &mut records)?;
            Ok(Recovered {
                records,
                generation: newer,
            })
        }
        Some(head) if head.mark.generation >= newer => Err(RecoveryFault::Unpaired(
            "its segments do not follow each other",
        )),
        // An older, spent segment, or a torn header, after which nothing was written yet.
        _ if halves
            .frames(newer, BLOCK)
            .any(|found| found.generation >= newer) =>
        {
            Err(RecoveryFault::Damaged {
                at: halves.start(newer),
                what: HEADLESS,
            })
        }
        _ => Ok(Recovered {
            records,
            generation,
        }),
    }
}

/// Checks that the log beside a closed store, whose last segment is `generation`, holds no records of its own.
///
/// # Errors
/// [`RecoveryFault`].
pub(in crate::embedded) fn verify_spent(
    file: &dyn StorageBackend,
    incarnation: u64,
    generation: u64,
) -> Result<(), RecoveryFault> {
    let halves = Halves::read(file)?;
    for half in [0, 1] {
        let head = SegmentHead::read(halves.half(half));
        let foreign = head.is_some_and(|head| head.incarnation != incarnation);
        let mut frames = halves.frames(half, BLOCK);
        if frames.any(|found| foreign || found.generation > generation) {
            return Err(RecoveryFault::Unpaired(
                "it holds records that were acknowledged after the store was closed",
            ));
        }
    }
    Ok(())
}
