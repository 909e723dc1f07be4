//! Reading the log when a store is opened: what is taken over, what is cut off, and what is refused.
//!
//! A frame is synced before the next one is written. So a crash can tear the last frame alone, which nobody was told
//! of: it is cut off. A frame that cannot be read and has a whole one behind it was acknowledged: that is damage.

use super::frame::{BLOCK, Mark, ReadFrame, SegmentHead};
use crate::embedded::overlay::Entry;
use dormer_proto::id::RunId;
use redb::StorageBackend;
use std::io;

const HEADLESS: &str = "a segment's header cannot be read, and whole frames lie behind it";

/// Why a log cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub(in crate::embedded) enum Fault {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It holds what was acknowledged, and a part of that cannot be read.
    #[error("byte {at}: {what}")]
    Damaged {
        /// Where.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// It is a log of another time, or of another store.
    #[error("{0}")]
    Unpaired(&'static str),
}

/// What the log has that the redb file has not.
#[derive(Debug)]
pub(in crate::embedded) struct Recovered {
    /// In the order of their revisions.
    pub(in crate::embedded) records: Vec<(RunId, Entry)>,
    /// The newest segment.
    pub(in crate::embedded) generation: u64,
}

/// A log in memory.
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

    /// Where the half that `generation` is written to begins.
    fn start(&self, generation: u64) -> usize {
        if generation.is_multiple_of(2) {
            0
        } else {
            self.bytes.len() / 2
        }
    }

    /// That half.
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

    /// Makes sure that the file has the length that its first header tells, if it has one.
    fn whole(&self) -> Result<(), Fault> {
        let length = self.bytes.len();
        match SegmentHead::read(&self.bytes) {
            Some(head) if head.bytes.saturating_mul(2) != length as u64 => Err(Fault::Damaged {
                at: length,
                what: "the file ends too soon or too late",
            }),
            _ => Ok(()),
        }
    }

    /// Whole frames at or behind byte `from` of `generation`'s half.
    fn frames(&self, generation: u64, from: usize) -> impl Iterator<Item = ReadFrame<'_>> {
        let half = self.half(generation);
        (from..half.len())
            .step_by(BLOCK)
            .filter_map(|at| ReadFrame::read(&half[at..]))
    }

    /// Reads the segment's frames in order; answers where they end.
    fn walk(
        &self,
        mark: Mark,
        next: &mut u64,
        records: &mut Vec<(RunId, Entry)>,
    ) -> Result<usize, Fault> {
        let half = self.half(mark.generation);
        let start = self.start(mark.generation);
        let mut at = BLOCK;
        while let Some(found) = half.get(at..).and_then(ReadFrame::read)
            && (found.generation, found.salt, found.first) == (mark.generation, mark.salt, *next)
        {
            let what = "a frame whose records this build cannot read";
            let more = found.records().ok_or(Fault::Damaged {
                at: start + at,
                what,
            })?;
            *next += more.len() as u64;
            records.extend(more);
            at += found.blocks;
        }
        let mut behind = self.frames(mark.generation, at);
        if behind.any(|found| (found.generation, found.salt) == (mark.generation, mark.salt)) {
            let what = "a frame cannot be read, and whole ones lie behind it";
            return Err(Fault::Damaged {
                at: start + at,
                what,
            });
        }
        Ok(start + at)
    }
}

/// Reads what follows `mark`, which the redb file names.
///
/// # Errors
/// [`Fault`].
pub(in crate::embedded) fn recover(
    file: &dyn StorageBackend,
    incarnation: u64,
    mark: Mark,
) -> Result<Recovered, Fault> {
    let halves = Halves::read(file)?;
    halves.whole()?;
    let generation = mark.generation;
    match halves.head(generation, incarnation) {
        Some(head) if head.mark == mark => {}
        Some(_) => {
            return Err(Fault::Unpaired(
                "it goes on from another moment than the store stands at",
            ));
        }
        None if halves
            .frames(generation, BLOCK)
            .any(|found| found.salt == mark.salt) =>
        {
            return Err(Fault::Damaged {
                at: halves.start(generation),
                what: HEADLESS,
            });
        }
        None => {
            return Err(Fault::Unpaired(
                "it has no segment that the store can go on with",
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
                return Err(Fault::Damaged { at: end, what });
            }
            halves.walk(head.mark, &mut next, &mut records)?;
            Ok(Recovered {
                records,
                generation: newer,
            })
        }
        Some(head) if head.mark.generation >= newer => {
            Err(Fault::Unpaired("its segments do not follow each other"))
        }
        // An older segment, spent, or a header that was torn: then nothing was written behind it yet.
        _ if halves
            .frames(newer, BLOCK)
            .any(|found| found.generation >= newer) =>
        {
            Err(Fault::Damaged {
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

/// Makes sure that the log beside a store that was closed, the last segment being `generation`, holds nothing of its own.
///
/// # Errors
/// [`Fault`].
pub(in crate::embedded) fn verify_spent(
    file: &dyn StorageBackend,
    incarnation: u64,
    generation: u64,
) -> Result<(), Fault> {
    let halves = Halves::read(file)?;
    for half in [0, 1] {
        let head = SegmentHead::read(halves.half(half));
        let foreign = head.is_some_and(|head| head.incarnation != incarnation);
        let mut frames = halves.frames(half, BLOCK);
        if frames.any(|found| foreign || found.generation > generation) {
            return Err(Fault::Unpaired(
                "it holds what was acknowledged after the store was closed",
            ));
        }
    }
    Ok(())
}
