//! Store in memory, for benchmarks on a virtual clock and for tests. It does not survive the process.

use crate::port::{
    Append, AppendError, DeadLetter, DeadLetters, Expected, Head, History, HistoryReader,
    Quarantine, QuarantineNote, StoreError, Stored, note_has_changed,
};
use dormer_proto::{
    id::{Epoch, Incarnation, Revision, RunId, Seq, Timestamp},
    lock::Locked as _,
    subject::RECORDS_PER_RUN_MAX,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard},
};

/// History and dead letters in memory.
#[derive(Debug)]
pub struct MemoryStore {
    incarnation: Incarnation,
    // A lock instead of a task: every critical section is a few map operations without an await.
    inner: Mutex<MemoryState>,
}

#[derive(Debug, Default)]
struct MemoryState {
    runs: BTreeMap<RunId, StoredRun>,
    revision: u64,
    epoch: u64,
    dead: BTreeMap<u64, DeadLetter>,
    dead_last: u64,
    notes: BTreeMap<RunId, QuarantineNote>,
    note_last: u64,
}

#[derive(Debug, Default)]
struct StoredRun {
    records: VecDeque<(Seq, Vec<u8>)>,
    revision: Revision,
    deadline: Option<Timestamp>,
    closed: Option<Timestamp>,
    quiet: bool,
}

impl MemoryStore {
    /// Empty store.
    #[must_use]
    pub fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            inner: Mutex::default(),
        }
    }

    /// Allocates the next epoch.
    pub fn next_epoch(&self) -> Epoch {
        let mut inner = self.lock();
        inner.epoch += 1;
        Epoch(inner.epoch)
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        // A panic elsewhere cannot have left a half-done map operation.
        self.inner.locked()
    }
}

impl MemoryState {
    fn append(&mut self, append: Append) -> Result<Revision, AppendError> {
        let found = self.runs.get(&append.run).map(|kept| kept.revision);
        let fits = match append.expected {
            Expected::Nothing => found.is_none(),
            Expected::At(revision) => found == Some(revision),
            #[cfg(feature = "unfenced")]
            Expected::Anything => true,
        };
        if !fits {
            return Err(AppendError::Conflict);
        }
        self.revision += 1;
        let kept = self.runs.entry(append.run).or_default();
        kept.records.push_back((append.seq, append.bytes));
        while kept.records.len() > RECORDS_PER_RUN_MAX as usize {
            kept.records.pop_front();
        }
        kept.revision = Revision(self.revision);
        kept.deadline = append.deadline;
        kept.closed = append.closed;
        kept.quiet = append.quiet;
        Ok(kept.revision)
    }
}

impl History for MemoryStore {
    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn exclusive(&self) -> bool {
        true
    }

    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Stored>>, StoreError> {
        let inner = self.lock();
        let last = |run: &RunId| {
            let kept = inner.runs.get(run)?;
            let (_, bytes) = kept.records.back()?;
            Some(Stored {
                bytes: bytes.clone(),
                revision: kept.revision,
            })
        };
        Ok(runs.iter().map(last).collect())
    }

    async fn append(&self, batch: Vec<Append>) -> Vec<Result<Revision, AppendError>> {
        let mut inner = self.lock();
        batch
            .into_iter()
            .map(|append| inner.append(append))
            .collect()
    }
}

impl HistoryReader for MemoryStore {
    async fn records(
        &self,
        run: &RunId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let inner = self.lock();
        let kept = inner
            .runs
            .get(run)
            .map(|kept| kept.records.iter())
            .into_iter()
            .flatten();
        let wanted = kept.filter(|(seq, _)| *seq >= from).take(limit);
        Ok(wanted.map(|(_, bytes)| bytes.clone()).collect())
    }

    async fn heads(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<Head>, StoreError> {
        use std::ops::Bound;
        let inner = self.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let head = |(run, kept): (&RunId, &StoredRun)| Head {
            run: run.clone(),
            revision: kept.revision,
            seq: kept.records.back().map_or(Seq(0), |(seq, _)| *seq),
            deadline: kept.deadline,
            closed: kept.closed,
            quiet: kept.quiet,
        };
        Ok(inner
            .runs
            .range::<RunId, _>((from, Bound::Unbounded))
            .take(limit)
            .map(head)
            .collect())
    }

    async fn forget(&self, run: &RunId, revision: Revision) -> Result<(), StoreError> {
        let mut inner = self.lock();
        if inner
            .runs
            .get(run)
            .is_some_and(|kept| kept.revision == revision)
        {
            inner.runs.remove(run);
        }
        Ok(())
    }
}

impl DeadLetters for MemoryStore {
    async fn put(&self, mut message: DeadLetter) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.dead_last += 1;
        message.id = inner.dead_last;
        let id = message.id;
        inner.dead.insert(id, message);
        Ok(())
    }

    async fn list(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(self
            .lock()
            .dead
            .range(after + 1..)
            .take(limit)
            .map(|(_, message)| message.clone())
            .collect())
    }

    async fn remove(&self, id: u64) -> Result<(), StoreError> {
        self.lock().dead.remove(&id);
        Ok(())
    }
}

impl Quarantine for MemoryStore {
    async fn put(&self, mut note: QuarantineNote) -> Result<u64, StoreError> {
        let mut inner = self.lock();
        let there = inner.notes.get(&note.run).map_or(0, |note| note.version);
        if there != note.version {
            return Err(note_has_changed(&note.run));
        }
        inner.note_last += 1;
        let version = inner.note_last;
        note.version = version;
        inner.notes.insert(note.run.clone(), note);
        Ok(version)
    }

    async fn notes_of(&self, runs: &[RunId]) -> Result<Vec<Option<QuarantineNote>>, StoreError> {
        let inner = self.lock();
        Ok(runs
            .iter()
            .map(|run| inner.notes.get(run).cloned())
            .collect())
    }

    async fn notes(&self) -> Result<Vec<QuarantineNote>, StoreError> {
        Ok(self.lock().notes.values().cloned().collect())
    }

    async fn remove(&self, run: &RunId, version: u64) -> Result<(), StoreError> {
        let mut inner = self.lock();
        if inner
            .notes
            .get(run)
            .is_some_and(|note| note.version == version)
        {
            inner.notes.remove(run);
        }
        Ok(())
    }
}
