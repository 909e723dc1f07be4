//! Tables of the redb file.

use crate::port::{Append, Head};
use dormer_proto::id::{Revision, Seq, Timestamp};
use redb::TableDefinition;

/// Revision, seq, earliest deadline and end of a run. The last two are 0 if absent. The highest bit of the end means
/// that at most the alarm is outstanding.
pub(crate) type HeadRow = (u64, u64, u64, u64);
/// Mask of that bit, which no time uses.
const QUIET: u64 = 1 << 63;

/// Records by run and seq.
pub(super) const RECORDS: TableDefinition<'static, (&str, u64), &[u8]> =
    TableDefinition::new("records");
/// Head of each run, so that a sweep or a start opens no record.
pub(super) const HEADS: TableDefinition<'static, &str, HeadRow> = TableDefinition::new("heads");
/// Dead letters by id.
pub(super) const DEAD: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("dead");
/// Notes about quarantined runs, as JSON. A build that does not know the table leaves it as it is.
pub(super) const QUARANTINE: TableDefinition<'static, &str, &[u8]> =
    TableDefinition::new("quarantine");
/// Incarnation, layout, epoch, the last dead letter's id, and the file's relation to the log.
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");

/// Row of a run's new head.
pub(super) fn row_of(revision: u64, append: &Append) -> HeadRow {
    let Append {
        seq,
        deadline,
        closed,
        quiet,
        ..
    } = append;
    head_row(revision, *seq, *deadline, *closed, *quiet)
}

/// Row of a head.
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
