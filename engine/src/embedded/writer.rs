//! Writer thread: gathers waiting requests into one log frame, syncs once, and answers them all.

use super::{
    apply::{SmallWrite, commit},
    overlay::{Entry, Overlay},
    room::Room,
    state::Log,
    tables::{HEADS, row_of},
    wal::{Frame, Wal, record_bytes},
};
use crate::port::{Append, AppendError, Expected, StoreError};
use dormer_proto::id::{Revision, RunId};
use redb::{Database, ReadableDatabase};
use std::{collections::HashMap, io, sync::Arc, thread::JoinHandle};
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for the writer. At the limit, senders wait.
const WAITING_MAX: usize = 4_096;
/// Most requests in one sync.
const GATHERED_MAX: usize = 1_024;

const STOPPED: &str = "the store's writer has stopped; the log says why";

fn no_room(why: &str) -> String {
    format!("no room on the store's disk: {why}")
}

type Appended = Vec<Result<Revision, AppendError>>;
type Granted = oneshot::Sender<Result<u64, StoreError>>;

enum Job {
    Append(Vec<Append>, oneshot::Sender<Appended>),
    SmallWrite(SmallWrite, Granted),
}

/// Handle to the thread. Dropping it waits until the store is closed, which takes a few milliseconds.
pub(super) struct Writer {
    /// `None` only during drop, as is `thread`.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    room: Arc<Room>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        // A full disk must not keep the process from ending. The log holds everything acknowledged.
        self.room.wait(false);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the log still holds everything acknowledged.
            let _ = thread.join();
        }
    }
}

impl Writer {
    pub(super) fn start(writing: Writing, room: Arc<Room>) -> Self {
        let (jobs, waiting) = mpsc::channel(WAITING_MAX);
        let thread = std::thread::spawn(move || writing.run_writer(waiting));
        Self {
            jobs: Some(jobs),
            thread: Some(thread),
            room,
        }
    }

    /// Fails while the disk is full, and once the thread has stopped.
    pub(super) fn sound(&self) -> Result<(), StoreError> {
        if self.jobs.as_ref().is_none_or(mpsc::Sender::is_closed) {
            return Err(StoreError::Broken(STOPPED.into()));
        }
        match self.room.shortage() {
            Some(why) => Err(StoreError::Unavailable(no_room(&why))),
            None => Ok(()),
        }
    }

    /// Sends a job and waits for its answer. `None`: the thread has stopped, or the disk is full. The thread passes
    /// over a job whose caller has given up.
    async fn asked<T>(&self, job: Job, mut answered: oneshot::Receiver<T>) -> Option<T> {
        let jobs = self.jobs.as_ref()?;
        tokio::select! {
            biased;
            sent = jobs.send(job) => sent.ok()?,
            () = self.room.until_full() => return None,
        }
        tokio::select! {
            biased;
            answer = &mut answered => answer.ok(),
            // A job sent while the thread stops stays in the channel, and nothing receives or drops it.
            () = jobs.closed() => answered.try_recv().ok(),
            () = self.room.until_full() => None,
        }
    }

    pub(super) async fn append(&self, batch: Vec<Append>) -> Appended {
        let count = batch.len();
        let (answer, answered) = oneshot::channel();
        let gone = || {
            let shortage = self.room.shortage();
            AppendError::Unknown(shortage.map_or_else(|| STOPPED.into(), |why| no_room(&why)))
        };
        let results = self.asked(Job::Append(batch, answer), answered).await;
        results.unwrap_or_else(|| vec![Err(gone()); count])
    }

    pub(super) async fn ask(&self, write: SmallWrite) -> Result<u64, StoreError> {
        let gone = || match self.sound() {
            Err(error) => error,
            Ok(()) => StoreError::Unavailable("the store's disk was full".into()),
        };
        let (answer, answered) = oneshot::channel();
        self.asked(Job::SmallWrite(write, answer), answered)
            .await
            .ok_or_else(gone)?
    }
}

/// Action for when the store is closed and the redb file holds everything.
pub(super) type AtEnd = Box<dyn FnOnce() + Send>;

/// State that the thread owns.
pub(super) struct Writing {
    wal: Wal,
    database: Arc<Database>,
    overlay: Arc<Overlay>,
    /// Last revision that was assigned.
    revision: u64,
    frame: Frame,
    /// Content of the frame, in order.
    staged: Vec<(RunId, Entry)>,
    /// Revisions in the frame, by run.
    staged_last: HashMap<RunId, u64>,
    answers: Vec<(Appended, oneshot::Sender<Appended>)>,
    /// Thread that copies the sealed layer into the redb file.
    applying: Option<JoinHandle<Result<(), redb::Error>>>,
    at_end: AtEnd,
}

impl Writing {
    pub(super) fn new(
        wal: Wal,
        database: Arc<Database>,
        overlay: Arc<Overlay>,
        revision: u64,
        at_end: AtEnd,
    ) -> Self {
        Self {
            wal,
            database,
            overlay,
            revision,
            frame: Frame::new(),
            staged: Vec::new(),
            staged_last: HashMap::new(),
            answers: Vec::new(),
            applying: None,
            at_end,
        }
    }

    /// A storage error ends the thread. Reopening the files then determines what is on disk.
    fn run_writer(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut gathered = Vec::with_capacity(GATHERED_MAX);
        while jobs.blocking_recv_many(&mut gathered, GATHERED_MAX) > 0 {
            if let Err(error) = self.serve(gathered.drain(..)) {
                tracing::error!(%error, "the embedded store failed; restart dormer");
                return;
            }
        }
        if let Err(error) = self.close() {
            tracing::error!(
                %error,
                "the embedded store was not closed cleanly; the next start recovers it"
            );
        }
    }

    /// Answers are sent only after the sync. After an error none is sent, which callers read as unknown.
    fn serve(&mut self, jobs: impl Iterator<Item = Job>) -> Result<(), redb::Error> {
        let mut requested = Vec::new();
        for job in jobs {
            match job {
                // Its caller has given up, and has reported that it may not be stored.
                Job::Append(_, answer) if answer.is_closed() => {}
                Job::SmallWrite(_, answer) if answer.is_closed() => {}
                Job::Append(batch, answer) => {
                    let results = self.stage(batch)?;
                    self.answers.push((results, answer));
                }
                Job::SmallWrite(write, answer) => requested.push((write, answer)),
            }
        }
        self.flush()?;
        if requested.is_empty() {
            Ok(())
        } else {
            self.small_writes(requested)
        }
    }

    /// Adds a batch to the frame, record after record.
    fn stage(&mut self, batch: Vec<Append>) -> Result<Appended, redb::Error> {
        let mut results = Vec::with_capacity(batch.len());
        for write in batch {
            let found = self.last(&write.run)?;
            let fits = match write.expected {
                Expected::Nothing => found.is_none(),
                Expected::At(revision) => found == Some(revision.0),
                #[cfg(feature = "unfenced")]
                Expected::Anything => true,
            };
            if !fits {
                results.push(Err(AppendError::Conflict));
                continue;
            }
            let bytes = record_bytes(&write.run, write.bytes.len());
            if !self.make_room(bytes)? {
                let refusal = format!("{bytes} bytes do not fit into a log segment");
                results.push(Err(AppendError::Refused(refusal)));
                continue;
            }
            self.revision += 1;
            let head = row_of(self.revision, &write);
            self.frame.push(&write.run, head, &write.bytes);
            self.staged_last.insert(write.run.clone(), self.revision);
            self.staged.push((
                write.run,
                Entry {
                    head,
                    bytes: write.bytes,
                },
            ));
            results.push(Ok(Revision(self.revision)));
        }
        Ok(results)
    }

    /// The revision of `run`'s last record: in the frame, in memory, or in the redb file. In this order, since records
    /// only move that way.
    fn last(&self, run: &RunId) -> Result<Option<u64>, redb::Error> {
        let known = self.staged_last.get(run).copied();
        if let Some(revision) = known.or_else(|| self.overlay.last(run, |entry| entry.head.0)) {
            return Ok(Some(revision));
        }
        let heads = self.database.begin_read()?.open_table(HEADS)?;
        Ok(heads.get(run.as_str())?.map(|head| head.value().0))
    }

    /// Makes room for `more` bytes in the frame. `false`: no frame could hold them.
    fn make_room(&mut self, more: usize) -> Result<bool, redb::Error> {
        if self.frame.fits(more, self.wal.room()) {
            return Ok(true);
        }
        self.flush()?;
        if self.frame.fits(more, self.wal.room()) {
            return Ok(true);
        }
        if !self.frame.fits(more, self.wal.room_max()) {
            return Ok(false);
        }
        self.rotate()?;
        Ok(true)
    }

    /// Writes the frame, syncs it, publishes it to readers, and answers.
    fn flush(&mut self) -> Result<(), redb::Error> {
        if !self.frame.is_empty() {
            let first = self.revision + 1 - self.staged.len() as u64;
            self.wal.append(&mut self.frame, first)?;
            self.overlay.show(self.staged.drain(..));
            self.staged_last.clear();
        }
        // The caller may be gone; the append is valid nevertheless.
        for (results, answer) in self.answers.drain(..) {
            let _ = answer.send(results);
        }
        Ok(())
    }

    /// Continues in the log's other segment, while a thread copies this one's records into the redb file.
    fn rotate(&mut self) -> Result<(), redb::Error> {
        self.applied()?;
        let mark = self.wal.rotate(self.revision + 1)?;
        let layer = self.overlay.seal();
        let database = Arc::clone(&self.database);
        let overlay = Arc::clone(&self.overlay);
        self.applying = Some(std::thread::spawn(move || {
            commit(&database, &layer, Vec::new(), Log::From(mark))?;
            overlay.drop_sealed();
            Ok(())
        }));
        Ok(())
    }

    /// Waits until the sealed layer is in the redb file.
    fn applied(&mut self) -> Result<(), redb::Error> {
        let Some(applying) = self.applying.take() else {
            return Ok(());
        };
        applying
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a commit panicked").into()))
    }

    /// Executes small writes in one commit of the redb file, together with everything appended before.
    fn small_writes(&mut self, requested: Vec<(SmallWrite, Granted)>) -> Result<(), redb::Error> {
        self.applied()?;
        let (writes, answers): (Vec<_>, Vec<_>) = requested.into_iter().unzip();
        let used = self.wal.is_used();
        let mark = if used {
            self.wal.rotate(self.revision + 1)?
        } else {
            self.wal.mark()
        };
        let layer = self.overlay.seal();
        let numbers = commit(&self.database, &layer, writes, Log::From(mark))?;
        self.overlay.drop_sealed();
        for (number, answer) in numbers.into_iter().zip(answers) {
            let _ = answer.send(Ok(number));
        }
        Ok(())
    }

    /// Copies everything into the redb file, which then no longer needs the log.
    fn close(mut self) -> Result<(), redb::Error> {
        self.applied()?;
        let spent = Log::Spent(self.wal.mark().generation);
        commit(&self.database, &self.overlay.seal(), Vec::new(), spent)?;
        self.overlay.drop_sealed();
        // Done while the redb file is still locked, because the next process to open the store creates its own log.
        (self.at_end)();
        Ok(())
    }
}
