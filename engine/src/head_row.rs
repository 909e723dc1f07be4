//! Head of a run as a row of four numbers, as the embedded store and dumps write it.

use crate::port::Head;
use dormer_proto::id::{Revision, Seq, Timestamp};

/// Revision, seq, earliest deadline and end of a run. The last two are 0 if absent. The highest bit of the end means
/// that at most the alarm is outstanding.
pub(crate) type HeadRow = (u64, u64, u64, u64);
/// Mask of that bit, which no time uses.
const QUIET: u64 = 1 << 63;

pub(crate) fn head_row(
    revision: u64,
    seq: Seq,
    deadline: Option<Timestamp>,
    closed: Option<Timestamp>,
    quiet: bool,
) -> HeadRow {
    let ms = |at: Option<Timestamp>| at.map_or(0, |at| at.0.clamp(1, QUIET - 1));
    (
        revision,
        seq.0,
        ms(deadline),
        ms(closed) | if quiet { QUIET } else { 0 },
    )
}

/// Head for readers. `None`: the key is not a run id.
pub(crate) fn head_of(run: &str, (revision, seq, deadline, closed): HeadRow) -> Option<Head> {
    let some = |ms: u64| (ms != 0).then_some(Timestamp(ms));
    Some(Head {
        run: run.parse().ok()?,
        revision: Revision(revision),
        seq: Seq(seq),
        deadline: some(deadline),
        closed: some(closed & !QUIET),
        quiet: closed & QUIET != 0,
    })
}
