//! The embedded store: history and dead letters of one process in one redb file.
//!
//! Why redb and not fjall (engines.md §2b has both measured): crash safety decides before speed. redb's commit is one
//! checksummed switch of a root page, its recovery is fuzzed upstream, and its `StorageBackend` lets a test tear and
//! drop unsynced writes, which nothing lets us do to fjall's background threads. Group commit by one writer thread
//! gives back most of the speed.

mod file;
mod json;
mod tables;
mod upkeep;
mod writer;

pub(crate) use json::Loose;
pub(crate) use tables::{HeadRow, head_of, head_row};
pub use upkeep::{DumpError, Fault, Report, check, dump, restore};

use crate::port::{
    Append, AppendError, DeadLetter, DeadLetters, Head, History, HistoryReader, StoreError, Stored,
};
use dormer_proto::id::{Epoch, Incarnation, Revision, RunId, Seq};
use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageBackend};
use std::{
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};
use tables::{DEAD, HEADS, META, RECORDS};
use writer::{Wish, Writer};

/// Layout of the file; a file with a greater number was written by a newer dormer.
const LAYOUT: u64 = 1;
/// Pages of the file that are kept in memory, in bytes. Runs at work fit; idle runs are left to the system's cache.
pub const CACHE_BYTES_MAX: usize = 16 << 20;
/// Name of the file in the store's folder.
pub const FILE: &str = "dormer.redb";

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{0} is in use by another dormer; one process at a time can open a folder store")]
    InUse(PathBuf),
    /// The folder cannot be made or read.
    #[error("cannot use the folder {folder}: {error}")]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is no store, or a part of it is damaged.
    #[error(
        "{file} is damaged or no dormer store ({detail}); restore it from a dump, or start on a new folder"
    )]
    Damaged {
        /// Which.
        file: PathBuf,
        /// What redb says.
        detail: String,
    },
    /// A newer dormer wrote it.
    #[error("{file} has layout {found}; this build reads up to {LAYOUT}: use the newer dormer")]
    Newer {
        /// Which.
        file: PathBuf,
        /// Its layout.
        found: u64,
    },
}

/// The store. Cloning is cheap through `Arc`; dropping the last one closes the file.
pub struct EmbeddedStore {
    database: Arc<Database>,
    incarnation: Incarnation,
    writer: Writer,
}

impl EmbeddedStore {
    /// Opens the store in `folder`, making both if they are not there.
    ///
    /// # Errors
    /// [`OpenError`], which says what to do.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        let database = file::open_or_create(folder)?;
        Self::on(database, &folder.join(FILE))
    }

    /// Opens the store on a file layer of the caller's, such as one that loses unsynced writes.
    ///
    /// # Errors
    /// [`OpenError`], which says what to do.
    pub fn open_on(backend: impl StorageBackend) -> Result<Self, OpenError> {
        let file = Path::new("the given file layer");
        let database = builder().create_with_backend(backend);
        Self::on(database.map_err(|error| damaged(file, &error))?, file)
    }

    fn on(database: Database, file: &Path) -> Result<Self, OpenError> {
        let (incarnation, layout, revision) =
            identity(&database).map_err(|error| damaged(file, &error))?;
        if layout > LAYOUT {
            return Err(OpenError::Newer { file: file.to_owned(), found: layout });
        }
        let database = Arc::new(database);
        let writer = Writer::start(Arc::clone(&database), revision);
        Ok(Self { database, incarnation, writer })
    }

    /// Draws the next epoch.
    ///
    /// # Errors
    /// The store's.
    pub async fn next_epoch(&self) -> Result<Epoch, StoreError> {
        self.writer.ask(Wish::Epoch).await.map(Epoch)
    }

    async fn read<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let database = Arc::clone(&self.database);
        let done = tokio::task::spawn_blocking(move || job(&database)).await;
        let done = done.map_err(|error| StoreError::Broken(format!("a read ended: {error}")))?;
        done.map_err(|error| broken(&error))
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES_MAX);
    builder
}

fn damaged(file: &Path, error: &impl std::fmt::Display) -> OpenError {
    OpenError::Damaged { file: file.to_owned(), detail: error.to_string() }
}

fn broken(error: &impl std::fmt::Display) -> StoreError {
    StoreError::Broken(format!("the embedded store: {error}"))
}

/// Makes the tables once; answers incarnation, layout and the last revision.
fn identity(database: &Database) -> Result<(Incarnation, u64, u64), redb::Error> {
    let change = database.begin_write()?;
    let found = {
        change.open_table(RECORDS)?;
        change.open_table(DEAD)?;
        let heads = change.open_table(HEADS)?;
        let mut meta = change.open_table(META)?;
        if meta.get("incarnation")?.is_none() {
            meta.insert("incarnation", rand::random::<u64>())?;
            meta.insert("layout", LAYOUT)?;
        }
        let word = |name: &str| Ok::<_, redb::Error>(meta.get(name)?.map_or(0, |v| v.value()));
        let mut last = 0;
        for head in heads.iter()? {
            last = last.max(head?.1.value().0);
        }
        (Incarnation(word("incarnation")?), word("layout")?, last)
    };
    change.commit()?;
    Ok(found)
}

impl History for EmbeddedStore {
    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn exclusive(&self) -> bool {
        true
    }

    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Stored>>, StoreError> {
        let runs = runs.to_vec();
        self.read(move |database| {
            let read = database.begin_read()?;
            let (heads, records) = (read.open_table(HEADS)?, read.open_table(RECORDS)?);
            let mut found = Vec::with_capacity(runs.len());
            for run in &runs {
                let Some(head) = heads.get(run.as_str())? else {
                    found.push(None);
                    continue;
                };
                let (revision, seq, ..): HeadRow = head.value();
                let bytes = records.get((run.as_str(), seq))?.map(|v| v.value().to_vec());
                found.push(bytes.map(|bytes| Stored { bytes, revision: Revision(revision) }));
            }
            Ok(found)
        })
        .await
    }

    async fn append(&self, batch: Vec<Append>) -> Vec<Result<Revision, AppendError>> {
        self.writer.append(batch).await
    }
}

impl HistoryReader for EmbeddedStore {
    async fn records(
        &self,
        run: &RunId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let run = run.clone();
        self.read(move |database| {
            let read = database.begin_read()?;
            let records = read.open_table(RECORDS)?;
            let wanted = records.range((run.as_str(), from.0)..=(run.as_str(), u64::MAX))?;
            wanted.take(limit).map(|row| Ok(row?.1.value().to_vec())).collect()
        })
        .await
    }

    async fn heads(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<Head>, StoreError> {
        let after = after.cloned();
        self.read(move |database| {
            let read = database.begin_read()?;
            let heads = read.open_table(HEADS)?;
            let from = after.as_ref().map_or(Bound::Unbounded, |run| Bound::Excluded(run.as_str()));
            let mut page = Vec::new();
            for row in heads.range::<&str>((from, Bound::Unbounded))?.take(limit) {
                let (run, head) = row?;
                page.extend(head_of(run.value(), head.value()));
            }
            Ok(page)
        })
        .await
    }

    async fn forget(&self, run: &RunId, revision: Revision) -> Result<(), StoreError> {
        self.writer.ask(Wish::Forget(run.clone(), revision)).await.map(drop)
    }
}

impl DeadLetters for EmbeddedStore {
    async fn put(&self, letter: DeadLetter) -> Result<(), StoreError> {
        self.writer.ask(Wish::Bury(letter)).await.map(drop)
    }

    async fn list(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.read(move |database| {
            let read = database.begin_read()?;
            let dead = read.open_table(DEAD)?;
            let mut page = Vec::new();
            for row in dead.range(after.saturating_add(1)..)?.take(limit) {
                let (id, bytes) = row?;
                if let Ok(letter) = serde_json::from_slice::<DeadLetter>(bytes.value()) {
                    page.push(DeadLetter { id: id.value(), ..letter });
                }
            }
            Ok(page)
        })
        .await
    }

    async fn remove(&self, id: u64) -> Result<(), StoreError> {
        self.writer.ask(Wish::Unbury(id)).await.map(drop)
    }
}
