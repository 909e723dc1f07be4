//! The one writer: a thread that gathers what waits into one transaction, syncs once, and answers everybody.

use super::tables::{DEAD, HEADS, META, RECORDS, row_of};
use crate::port::{Append, AppendError, DeadLetter, Expected, StoreError};
use dormer_proto::{
    id::{Revision, RunId},
    subject::RECORDS_PER_RUN_MAX,
};
use redb::{Database, Durability, ReadableTable, WriteTransaction};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait for the writer; more make their senders wait.
const WAITING_MAX: usize = 4_096;
/// Requests in one transaction.
const GATHERED_MAX: usize = 1_024;

type Appended = Vec<Result<Revision, AppendError>>;

/// A small change other than an append. Each answers one number.
pub(super) enum Wish {
    Epoch,
    Forget(RunId, Revision),
    Bury(DeadLetter),
    Unbury(u64),
}

enum Job {
    Append(Vec<Append>, oneshot::Sender<Appended>),
    Wish(Wish, oneshot::Sender<Result<u64, StoreError>>),
}

/// The handle to the thread. It ends when the handle is dropped.
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
}

impl Writer {
    pub(super) fn start(database: Arc<Database>, revision: u64) -> Self {
        let (jobs, waiting) = mpsc::channel(WAITING_MAX);
        std::thread::spawn(move || write_for_ever(&database, waiting, revision));
        Self { jobs }
    }

    pub(super) async fn append(&self, batch: Vec<Append>) -> Appended {
        let count = batch.len();
        let (answer, answered) = oneshot::channel();
        if self.jobs.send(Job::Append(batch, answer)).await.is_ok()
            && let Ok(results) = answered.await
        {
            return results;
        }
        let gone = AppendError::Unknown("the store's writer has stopped".into());
        vec![Err(gone); count]
    }

    pub(super) async fn ask(&self, wish: Wish) -> Result<u64, StoreError> {
        let gone = || StoreError::Broken("the store's writer has stopped".into());
        let (answer, answered) = oneshot::channel();
        self.jobs.send(Job::Wish(wish, answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// A storage error ends the thread: what is on disk is then found out by opening the file anew.
fn write_for_ever(database: &Database, mut jobs: mpsc::Receiver<Job>, mut revision: u64) {
    let mut gathered = Vec::with_capacity(GATHERED_MAX);
    while jobs.blocking_recv_many(&mut gathered, GATHERED_MAX) > 0 {
        if let Err(error) = commit(database, std::mem::take(&mut gathered), &mut revision) {
            tracing::error!(%error, "the embedded store failed; dormer must be started anew");
            return;
        }
    }
}

/// One transaction. Answers go out only after the sync; on an error nobody is answered, which they read as unknown.
fn commit(database: &Database, jobs: Vec<Job>, revision: &mut u64) -> Result<(), redb::Error> {
    let mut change = database.begin_write()?;
    change.set_durability(Durability::Immediate)?;
    let mut appended = Vec::new();
    let mut wished = Vec::new();
    for job in jobs {
        match job {
            Job::Append(batch, answer) => {
                appended.push((append(&change, batch, revision)?, answer));
            }
            Job::Wish(wish, answer) => wished.push((grant(&change, wish)?, answer)),
        }
    }
    change.commit()?;
    // Whoever asked may be gone; the fact stands.
    for (results, answer) in appended {
        let _ = answer.send(results);
    }
    for (number, answer) in wished {
        let _ = answer.send(Ok(number));
    }
    Ok(())
}

fn append(
    change: &WriteTransaction,
    batch: Vec<Append>,
    revision: &mut u64,
) -> Result<Appended, redb::Error> {
    let (mut heads, mut records) = (change.open_table(HEADS)?, change.open_table(RECORDS)?);
    let mut results = Vec::with_capacity(batch.len());
    for wish in batch {
        let run = wish.run.as_str();
        let found = heads.get(run)?.map(|head| head.value().0);
        let fits = match wish.expected {
            Expected::Nothing => found.is_none(),
            Expected::At(revision) => found == Some(revision.0),
            #[cfg(feature = "unfenced")]
            Expected::Anything => true,
        };
        if !fits {
            results.push(Err(AppendError::Conflict));
            continue;
        }
        *revision += 1;
        heads.insert(run, row_of(*revision, &wish))?;
        records.insert((run, wish.seq.0), wish.bytes.as_slice())?;
        if let Some(old) = wish.seq.0.checked_sub(RECORDS_PER_RUN_MAX.unsigned_abs()) {
            records.remove((run, old))?;
        }
        results.push(Ok(Revision(*revision)));
    }
    Ok(results)
}

fn grant(change: &WriteTransaction, wish: Wish) -> Result<u64, redb::Error> {
    match wish {
        Wish::Epoch => count(change, "epoch"),
        Wish::Forget(run, revision) => forget(change, &run, revision).map(|()| 0),
        Wish::Bury(letter) => {
            let id = count(change, "dead")?;
            let text = serde_json::to_vec(&letter).map_err(std::io::Error::other)?;
            change.open_table(DEAD)?.insert(id, text.as_slice())?;
            Ok(id)
        }
        Wish::Unbury(id) => {
            change.open_table(DEAD)?.remove(id)?;
            Ok(id)
        }
    }
}

pub(super) fn count(change: &WriteTransaction, name: &str) -> Result<u64, redb::Error> {
    let mut meta = change.open_table(META)?;
    let next = meta.get(name)?.map_or(0, |value| value.value()) + 1;
    meta.insert(name, next)?;
    Ok(next)
}

fn forget(change: &WriteTransaction, run: &RunId, revision: Revision) -> Result<(), redb::Error> {
    let mut heads = change.open_table(HEADS)?;
    let same = heads.get(run.as_str())?.is_some_and(|head| head.value().0 == revision.0);
    if same {
        heads.remove(run.as_str())?;
        let mut records = change.open_table(RECORDS)?;
        records.retain_in((run.as_str(), 0)..=(run.as_str(), u64::MAX), |_, _| false)?;
    }
    Ok(())
}
