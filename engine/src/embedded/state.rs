//! Metadata of the store in the redb file: its identity, and its relation to the log.

use super::{
    tables::{DEAD, HEADS, META, RECORDS},
    wal::Mark,
};
use dormer_proto::id::Incarnation;
use redb::{Database, ReadableDatabase, ReadableTable, WriteTransaction};

/// Layout of a closed store: one redb file, which builds without a log can open as well.
pub(super) const CLOSED: u64 = 1;
/// Layout while a log belongs to it. A newer dormer wrote a greater number.
pub const LAYOUT: u64 = 2;

/// Relation of the redb file to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    /// The file holds everything. The number is the last segment, 0 if there was none.
    Spent(u64),
    /// Records acknowledged from this segment on are in the log.
    From(Mark),
}

/// Metadata of the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) incarnation: Incarnation,
    pub(super) layout: u64,
    /// Last revision in the redb file.
    pub(super) revision: u64,
    pub(super) log: Log,
}

/// Creates the tables if needed, and reads the metadata.
pub(super) fn state(database: &Database) -> Result<State, redb::Error> {
    match read(database) {
        // Only a new file has no tables.
        Err(redb::Error::TableDoesNotExist(_)) => {}
        found => return found,
    }
    let change = database.begin_write()?;
    change.open_table(RECORDS)?;
    change.open_table(HEADS)?;
    change.open_table(DEAD)?;
    {
        let mut meta = change.open_table(META)?;
        if meta.get("incarnation")?.is_none() {
            meta.insert("incarnation", rand::random::<u64>())?;
            meta.insert("layout", CLOSED)?;
        }
    }
    change.commit()?;
    read(database)
}

fn read(database: &Database) -> Result<State, redb::Error> {
    let read = database.begin_read()?;
    let meta = read.open_table(META)?;
    let heads = read.open_table(HEADS)?;
    let word = |name: &str| Ok::<_, redb::Error>(meta.get(name)?.map_or(0, |v| v.value()));
    let generation = word("wal_generation")?;
    let salt = word("wal_salt")?;
    let log = match salt {
        0 => Log::Spent(generation),
        _ => Log::From(Mark {
            generation,
            salt,
            first: word("wal_first")?,
        }),
    };
    let mut revision = 0;
    for head in heads.iter()? {
        revision = revision.max(head?.1.value().0);
    }
    let incarnation = Incarnation(word("incarnation")?);
    Ok(State {
        incarnation,
        layout: word("layout")?,
        revision,
        log,
    })
}

/// Writes the file's relation to the log within the transaction `change`.
pub(super) fn note(change: &WriteTransaction, log: Log) -> Result<(), redb::Error> {
    let (layout, generation, salt, first) = match log {
        Log::Spent(generation) => (CLOSED, generation, 0, 0),
        Log::From(mark) => (LAYOUT, mark.generation, mark.salt, mark.first),
    };
    let mut meta = change.open_table(META)?;
    meta.insert("layout", layout)?;
    meta.insert("wal_generation", generation)?;
    meta.insert("wal_salt", salt)?;
    meta.insert("wal_first", first)?;
    Ok(())
}
