//! Embedded store: history and dead letters of one process in one redb file with a write-ahead log.
//!
//! Why redb and not fjall (both were measured): crash safety comes before speed. redb commits by one checksummed
//! switch of a root page, and its recovery is fuzzed upstream. Its `StorageBackend` lets a test tear and drop
//! unsynced writes; fjall's background threads offer no such hook.
//!
//! Why a log: a redb commit syncs about nine scattered pages. An append is one frame of the log and one sync, and is
//! then acknowledged. Readers find it in memory (`overlay`) until one commit has copied its whole segment into the
//! redb file. That commit also names the next segment, so a mismatch of the two files is detected. A closed store is
//! the redb file alone.

mod apply;
mod file;
mod overlay;
mod room;
mod state;
mod tables;
mod upkeep;
mod wal;
mod writer;

pub use upkeep::{DumpError, Report, StoreFault, check, dump, restore};

use crate::{
    head_row::{HeadRow, head_of},
    port::{
        Append, AppendError, DeadLetter, DeadLetters, Head, History, HistoryReader, Quarantine,
        QuarantineNote, StoreError, Stored, note_has_changed,
    },
};
use apply::{SmallWrite, commit};
use dormer_proto::{
    id::{Epoch, Incarnation, Revision, RunId, Seq},
    subject::RECORDS_PER_RUN_MAX,
};
use overlay::{Layer, Overlay};
use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageBackend};
use room::{Room, WaitingBackend, is_of_disk};
pub use state::LAYOUT;
use state::{Log, State};
use std::{
    collections::BTreeMap,
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};
use tables::{DEAD, HEADS, QUARANTINE, RECORDS};
use wal::Wal;
use writer::{AtEnd, Writer, Writing};

/// Bytes of each of the log's two segments: the amount that one commit of the redb file copies, and about what memory
/// holds of each. With half the size the log waited for those commits on a slow disk. Twice the size was hardly
/// faster.
pub const SEGMENT_BYTES: u64 = 8 << 20;
/// Cache of the redb file's pages, in bytes. Active runs are in the log's memory, and idle runs in the system's page
/// cache. Four times the size was no faster.
pub const CACHE_BYTES_MAX: usize = 4 << 20;
/// Name of the redb file in the store's folder.
pub const FILE: &str = "dormer.redb";
/// Name of the log. It exists while the store is open, and after a crash.
pub const WAL_FILE: &str = "dormer.wal";

/// Error of opening a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses it.
    #[error(
        "{0} is in use by another dormer process; only one process at a time can open a \
    folder store"
    )]
    InUse(PathBuf),
    /// The folder cannot be created or read.
    #[error("cannot use the folder {folder}: {error}")]
    Folder {
        folder: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The disk does not let it be read or written.
    #[error(
        "{file} cannot be read or written ({error}); nothing says that the store is damaged: make room on the \
        disk, or mend it, and start again"
    )]
    Disk {
        file: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not a store, or a part of it is damaged.
    #[error(
        "{file} is damaged or not a dormer store ({detail}); restore it from a dump, or use a new folder"
    )]
    Damaged {
        file: PathBuf,
        /// What redb says.
        detail: String,
    },
    /// The store and its log are from different times: one was restored or removed without the other.
    #[error(
        "{file} and {FILE} do not belong together ({detail}); restore both files from the same time, or \
         restore a dump into a new folder"
    )]
    Unpaired {
        /// Log file.
        file: PathBuf,
        /// Mismatch.
        detail: String,
    },
    /// A newer dormer wrote it.
    #[error("{file} has layout {found}, but this build reads up to {LAYOUT}: use the newer dormer")]
    Newer {
        file: PathBuf,
        /// Its layout.
        found: u64,
    },
}

/// Embedded store. Dropping the last handle closes the file.
pub struct EmbeddedStore {
    database: Arc<Database>,
    overlay: Arc<Overlay>,
    incarnation: Incarnation,
    writer: Writer,
}

impl EmbeddedStore {
    /// Opens the store in `folder`, and creates both if they do not exist.
    ///
    /// # Errors
    /// [`OpenError`], which says what to do.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        Self::open_with(folder, SEGMENT_BYTES)
    }

    /// Opens the store with log segments of `segment_bytes`: at least 8 KiB, and larger than any record.
    ///
    /// # Errors
    /// [`OpenError`], which says what to do.
    pub fn open_with(folder: &Path, segment_bytes: u64) -> Result<Self, OpenError> {
        let room = Arc::new(Room::default());
        let (database, state) = file::open_or_create(folder, &room)?;
        let wal = Box::new(WaitingBackend::new(file::wal_file(folder)?, &room));
        let file = folder.join(FILE);
        let wal = begin(wal, segment_bytes, &state, &folder.join(WAL_FILE))?;
        file::keep_names(folder)?;
        let folder = folder.to_owned();
        Self::on(
            database,
            &state,
            wal,
            &file,
            Box::new(move || file::forget_wal(&folder)),
            room,
        )
    }

    /// Opens the store on the caller's file layers, for example ones that lose unsynced writes: one for the redb
    /// file, one for the log.
    ///
    /// # Errors
    /// [`OpenError`], which says what to do.
    pub fn open_on(
        backend: impl StorageBackend,
        wal: impl StorageBackend,
        segment_bytes: u64,
    ) -> Result<Self, OpenError> {
        let file = Path::new("the given file layer");
        let wal_file = Path::new("the given log");
        let room = Arc::new(Room::default());
        let backend = WaitingBackend::new(Box::new(backend), &room);
        let wal = WaitingBackend::new(Box::new(wal), &room);
        let database = builder().create_with_backend(backend);
        let database = database.map_err(|error| failed(file, error))?;
        let state = file::reconcile(&database, Some(&wal), file, wal_file)?;
        let wal = begin(Box::new(wal), segment_bytes, &state, wal_file)?;
        Self::on(database, &state, wal, file, Box::new(|| ()), room)
    }

    /// Starts the log. From here on the redb file depends on it.
    fn on(
        database: Database,
        state: &State,
        wal: Wal,
        file: &Path,
        at_end: AtEnd,
        room: Arc<Room>,
    ) -> Result<Self, OpenError> {
        commit(&database, &Layer::new(), Vec::new(), Log::From(wal.mark()))
            .map_err(|error| failed(file, error))?;
        room.wait(true);
        let database = Arc::new(database);
        let overlay = Arc::new(Overlay::default());
        let own = Arc::clone(&database);
        let read_overlay = Arc::clone(&overlay);
        let writing = Writing::new(wal, own, read_overlay, state.revision, at_end);
        let writer = Writer::start(writing, room);
        Ok(Self {
            database,
            overlay,
            incarnation: state.incarnation,
            writer,
        })
    }

    /// Allocates the next epoch.
    ///
    /// # Errors
    /// The store's.
    pub async fn next_epoch(&self) -> Result<Epoch, StoreError> {
        self.writer.ask(SmallWrite::Epoch).await.map(Epoch)
    }

    async fn read<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.sound()?;
        let database = Arc::clone(&self.database);
        let done = tokio::task::spawn_blocking(move || job(&database)).await;
        let done = done.map_err(|error| StoreError::Broken(format!("a read ended: {error}")))?;
        done.map_err(|error| match &error {
            redb::Error::Io(io) if is_of_disk(io) => StoreError::Unavailable(error.to_string()),
            _ => broken(&error),
        })
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES_MAX);
    builder
}

/// Error of redb: the disk's, or damage.
fn failed(file: &Path, error: impl Into<redb::Error>) -> OpenError {
    match error.into() {
        redb::Error::Io(error) if is_of_disk(&error) => OpenError::Disk {
            file: file.to_owned(),
            error,
        },
        error => damaged(file, &error),
    }
}

fn damaged(file: &Path, error: &impl std::fmt::Display) -> OpenError {
    OpenError::Damaged {
        file: file.to_owned(),
        detail: error.to_string(),
    }
}

fn broken(error: &impl std::fmt::Display) -> StoreError {
    StoreError::Broken(format!("the embedded store: {error}"))
}

/// Opens a log segment that begins after everything in the redb file.
fn begin(
    wal: Box<dyn StorageBackend>,
    segment_bytes: u64,
    state: &State,
    file: &Path,
) -> Result<Wal, OpenError> {
    let (Log::Spent(generation) | Log::From(wal::Mark { generation, .. })) = state.log;
    let incarnation = state.incarnation.0;
    let first = state.revision + 1;
    Wal::begin(wal, segment_bytes, incarnation, generation, first).map_err(|error| {
        OpenError::Folder {
            folder: file.to_owned(),
            error,
        }
    })
}

impl History for EmbeddedStore {
    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn exclusive(&self) -> bool {
        true
    }

    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Stored>>, StoreError> {
        self.writer.sound()?;
        let stored = |entry: &overlay::Entry| Stored {
            bytes: entry.bytes.clone(),
            revision: Revision(entry.head.0),
        };
        let mut found: Vec<_> = runs
            .iter()
            .map(|run| self.overlay.last(run, stored))
            .collect();
        let absent: Vec<usize> = (0..runs.len()).filter(|at| found[*at].is_none()).collect();
        if absent.is_empty() {
            return Ok(found);
        }
        let wanted: Vec<RunId> = absent.iter().map(|at| runs[*at].clone()).collect();
        // Records move from memory to the file, so reading in this order misses none.
        let read = self
            .read(move |database| last_records(database, &wanted))
            .await?;
        for (at, stored) in absent.into_iter().zip(read) {
            found[at] = stored;
        }
        Ok(found)
    }

    async fn append(&self, batch: Vec<Append>) -> Vec<Result<Revision, AppendError>> {
        self.writer.append(batch).await
    }
}

fn last_records(database: &Database, runs: &[RunId]) -> Result<Vec<Option<Stored>>, redb::Error> {
    let read = database.begin_read()?;
    let heads = read.open_table(HEADS)?;
    let records = read.open_table(RECORDS)?;
    let mut found = Vec::with_capacity(runs.len());
    for run in runs {
        let Some(head) = heads.get(run.as_str())? else {
            found.push(None);
            continue;
        };
        let (revision, seq, ..): HeadRow = head.value();
        let bytes = records
            .get((run.as_str(), seq))?
            .map(|v| v.value().to_vec());
        found.push(bytes.map(|bytes| Stored {
            bytes,
            revision: Revision(revision),
        }));
    }
    Ok(found)
}

impl HistoryReader for EmbeddedStore {
    async fn records(
        &self,
        run: &RunId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let run = run.clone();
        let mut found = BTreeMap::new();
        for entry in self.overlay.records(&run) {
            found.insert(entry.head.1, entry.bytes);
        }
        self.read(move |database| {
            let read = database.begin_read()?;
            let records = read.open_table(RECORDS)?;
            // Records that are not in the file yet may displace its oldest ones.
            let last = found.last_key_value().map_or(0, |(seq, _)| *seq);
            let oldest = (last + 1).saturating_sub(RECORDS_PER_RUN_MAX.unsigned_abs());
            let from = from.0.max(oldest);
            let wanted = records.range((run.as_str(), from)..=(run.as_str(), u64::MAX))?;
            for row in wanted.take(limit) {
                let (key, bytes) = row?;
                found.insert(key.value().1, bytes.value().to_vec());
            }
            Ok(found.split_off(&from).into_values().take(limit).collect())
        })
        .await
    }

    async fn heads(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<Head>, StoreError> {
        let newer = self.overlay.heads(after, limit);
        let after = after.cloned();
        self.read(move |database| {
            let read = database.begin_read()?;
            let heads = read.open_table(HEADS)?;
            let from = after
                .as_ref()
                .map_or(Bound::Unbounded, |run| Bound::Excluded(run.as_str()));
            let mut page = BTreeMap::new();
            for row in heads.range::<&str>((from, Bound::Unbounded))?.take(limit) {
                let (run, head) = row?;
                page.insert(run.value().to_owned(), head.value());
            }
            for (run, head) in newer {
                let known = page.entry(run).or_insert(head);
                *known = head.max(*known);
            }
            let rows = page.iter().take(limit);
            Ok(rows.filter_map(|(run, head)| head_of(run, *head)).collect())
        })
        .await
    }

    async fn forget(&self, run: &RunId, revision: Revision) -> Result<(), StoreError> {
        self.writer
            .ask(SmallWrite::Forget(run.clone(), revision))
            .await
            .map(drop)
    }
}

impl DeadLetters for EmbeddedStore {
    async fn put(&self, message: DeadLetter) -> Result<(), StoreError> {
        self.writer
            .ask(SmallWrite::DeadLetter(message))
            .await
            .map(drop)
    }

    async fn list(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.read(move |database| {
            let read = database.begin_read()?;
            let dead = read.open_table(DEAD)?;
            let mut page = Vec::new();
            for row in dead.range(after.saturating_add(1)..)?.take(limit) {
                let (id, bytes) = row?;
                if let Ok(message) = serde_json::from_slice::<DeadLetter>(bytes.value()) {
                    page.push(DeadLetter {
                        id: id.value(),
                        ..message
                    });
                }
            }
            Ok(page)
        })
        .await
    }

    async fn remove(&self, id: u64) -> Result<(), StoreError> {
        self.writer
            .ask(SmallWrite::RemoveDeadLetter(id))
            .await
            .map(drop)
    }
}

impl Quarantine for EmbeddedStore {
    async fn put(&self, note: QuarantineNote) -> Result<u64, StoreError> {
        let run = note.run.clone();
        match self.writer.ask(SmallWrite::Quarantine(note)).await? {
            0 => Err(note_has_changed(&run)),
            version => Ok(version),
        }
    }

    async fn notes_of(&self, runs: &[RunId]) -> Result<Vec<Option<QuarantineNote>>, StoreError> {
        let mut notes: BTreeMap<RunId, QuarantineNote> = BTreeMap::new();
        notes.extend(
            self.notes()
                .await?
                .into_iter()
                .map(|note| (note.run.clone(), note)),
        );
        Ok(runs.iter().map(|run| notes.get(run).cloned()).collect())
    }

    async fn notes(&self) -> Result<Vec<QuarantineNote>, StoreError> {
        self.read(move |database| {
            let read = database.begin_read()?;
            let notes = match read.open_table(QUARANTINE) {
                Ok(notes) => notes,
                // The first note creates it.
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                Err(error) => return Err(error.into()),
            };
            let mut found = Vec::new();
            for row in notes.iter()? {
                found.extend(serde_json::from_slice(row?.1.value()).ok());
            }
            Ok(found)
        })
        .await
    }

    async fn remove(&self, run: &RunId, version: u64) -> Result<(), StoreError> {
        let write = SmallWrite::Unquarantine(run.clone(), version);
        self.writer.ask(write).await.map(drop)
    }
}
