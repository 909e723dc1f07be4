//! Tables of the redb file.

use crate::{
    head_row::{HeadRow, head_row},
    port::Append,
};
use redb::TableDefinition;

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
