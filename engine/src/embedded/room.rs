//! File layer that waits for room. A full disk is no damage: what cannot be written now is written once there is room,
//! so redb and the log never see a failed write, and nothing is lost. Meanwhile the store says that it does not answer.

use redb::{BackendError, StorageBackend};
use std::{
    io,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// Pause before the next try.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Whether the disk of an open store has room.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Error of the disk while it is full.
    full: watch::Sender<Option<String>>,
    /// Whether writes wait. While a store is opened or closed they fail, because a hang would have no visible cause.
    waits: AtomicBool,
}

impl Room {
    pub(super) fn wait(&self, waits: bool) {
        self.waits.store(waits, Ordering::SeqCst);
    }

    /// Error of the disk, while it is full.
    pub(super) fn shortage(&self) -> Option<String> {
        self.full.borrow().clone()
    }

    /// Returns once the disk is full.
    pub(super) async fn until_full(&self) {
        let mut full = self.full.subscribe();
        if full.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn until_written(&self, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let mut waited = false;
        loop {
            match write() {
                Err(error) if is_full(&error) && self.waits.load(Ordering::SeqCst) => {
                    if !waited {
                        tracing::error!(%error, "the embedded store waits for room on its disk");
                    }
                    waited = true;
                    self.full.send_replace(Some(error.to_string()));
                    std::thread::sleep(TRY_AGAIN);
                }
                result => {
                    if waited {
                        tracing::info!("the embedded store no longer waits for room");
                        self.full.send_replace(None);
                    }
                    return result;
                }
            }
        }
    }
}

/// Whether there is no room for a write.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Whether the disk failed, rather than the content of a file.
pub(super) fn is_of_disk(error: &io::Error) -> bool {
    error.raw_os_error().is_some() || is_full(error)
}

/// File whose writes wait for room.
#[derive(Debug)]
pub(super) struct WaitingBackend {
    file: Box<dyn StorageBackend>,
    room: Arc<Room>,
}

impl WaitingBackend {
    pub(super) fn new(file: Box<dyn StorageBackend>, room: &Arc<Room>) -> Self {
        let room = Arc::clone(room);
        Self { file, room }
    }
}

type Locked<T> = Result<T, BackendError>;

impl StorageBackend for WaitingBackend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room.until_written(|| self.file.set_len(len))
    }

    // A failed sync is not tried again: what it should have written may be lost, and the next one would not say so.
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room.until_written(|| self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.file.query_lock_range(start, end)
    }
}
