//! The file's tables.

use crate::port::Head;
use dormer_proto::id::{Revision, Seq, Timestamp};
use redb::TableDefinition;

/// Revision, seq, earliest deadline and end of a run; the last two are 0 when there is none.
pub(super) type HeadRow = (u64, u64, u64, u64);

/// Records by run and seq.
pub(super) const RECORDS: TableDefinition<'static, (&str, u64), &[u8]> =
    TableDefinition::new("records");
/// Each run's head, so that a sweep or a start opens no record.
pub(super) const HEADS: TableDefinition<'static, &str, HeadRow> = TableDefinition::new("heads");
/// Dead letters by id.
pub(super) const DEAD: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("dead");
/// Incarnation, layout, epoch, the last dead letter's id.
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");

/// A head as readers see it; `None` for a key that is no run id.
pub(super) fn head_of(run: &str, (revision, seq, deadline, closed): HeadRow) -> Option<Head> {
    let some = |ms: u64| (ms != 0).then_some(Timestamp(ms));
    Some(Head {
        run: run.parse().ok()?,
        revision: Revision(revision),
        seq: Seq(seq),
        deadline: some(deadline),
        closed: some(closed),
    })
}
