//! A full disk is reported as what it is, and the store continues once there is room. That a writer has stopped is
//! reported at once.

use crate::embedded_common;

use dormer_engine::{
    embedded::{EmbeddedStore, OpenError},
    port::{AppendError, History, StoreError},
};
use dormer_testkit::await_condition;
use embedded_common::{At, position, run, step};
use redb::StorageBackend;
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Of the log: so small that the redb file grows all the time.
const SEGMENT: u64 = 32 << 10;
const SOON: Duration = Duration::from_secs(60);

/// A disk in memory with so much room, which may fail.
#[derive(Debug, Clone)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// End of what was ever written.
    used: Arc<AtomicUsize>,
    room: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
}

impl Disk {
    fn new() -> Self {
        Self {
            bytes: Arc::default(),
            used: Arc::default(),
            room: Arc::new(AtomicUsize::new(usize::MAX)),
            fails: Arc::default(),
        }
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().expect("no panic while held")
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a small disk")
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes();
        let found = bytes.get(index(offset)..index(offset) + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    // The length alone takes no room, as on most file systems.
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes().resize(index(len), 0);
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = index(offset) + data.len();
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is gone"));
        }
        if end > self.used.load(Ordering::SeqCst) && end > self.room.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.used.fetch_max(end, Ordering::SeqCst);
        let mut bytes = self.bytes();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[end - data.len()..end].copy_from_slice(data);
        Ok(())
    }
}

/// Begins one run after the other until an append gets no answer. Returns how many began.
async fn until_refused(store: &EmbeddedStore, from: usize) -> (usize, AppendError) {
    for n in from.. {
        if let Err(error) = step(store, &run(&n.to_string()), At::default()).await {
            return (n, error);
        }
    }
    unreachable!("there are fewer runs than numbers")
}

/// Whether every run that was acknowledged is there.
async fn are_there(store: &EmbeddedStore, count: usize) -> bool {
    let runs: Vec<_> = (0..count).map(|n| run(&n.to_string())).collect();
    let found = store.load(&runs).await.expect("loaded");
    found.iter().all(Option::is_some)
}

fn fill(disk: &Disk) {
    disk.room
        .store(disk.used.load(Ordering::SeqCst), Ordering::SeqCst);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_says_so_and_goes_on_once_there_is_room() {
    let disk = Disk::new();
    let wal = Disk::new();
    let store = EmbeddedStore::open_on(disk.clone(), wal.clone(), SEGMENT).expect("a store");
    fill(&disk);
    let (began, error) = until_refused(&store, 0).await;
    assert!(began > 0, "the log had room");
    assert!(
        matches!(&error, AppendError::Unknown(why) if why.contains("no room")),
        "{error}"
    );
    let loaded = store.load(&[run("0")]).await;
    assert!(
        matches!(&loaded, Err(StoreError::Unavailable(why)) if why.contains("no room")),
        "{loaded:?}"
    );

    disk.room.store(usize::MAX, Ordering::SeqCst);
    await_condition("the store to answer", SOON, || async {
        store.load(&[run("0")]).await.is_ok()
    })
    .await;
    assert!(are_there(&store, began).await, "nothing is lost");
    let mut at = position(&store, &run("a")).await;
    for _ in 0..500 {
        at = step(&store, &run("a"), at).await.expect("it goes on");
    }
    drop(store);
    let again = EmbeddedStore::open_on(disk, wal, SEGMENT).expect("a sound store");
    assert_eq!(position(&again, &run("a")).await, at);
    assert!(are_there(&again, began).await, "nothing is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_ends_on_a_full_disk_and_nothing_is_lost() {
    let disk = Disk::new();
    let wal = Disk::new();
    let store = EmbeddedStore::open_on(disk.clone(), wal.clone(), SEGMENT).expect("a store");
    fill(&disk);
    let (began, _) = until_refused(&store, 0).await;
    drop(store);
    match EmbeddedStore::open_on(disk.clone(), wal.clone(), SEGMENT) {
        Err(OpenError::Disk { error, .. }) => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
        Err(other) => panic!("a full disk is no damage: {other}"),
        Ok(_) => panic!("there was no room"),
    }
    disk.room.store(usize::MAX, Ordering::SeqCst);
    let store = EmbeddedStore::open_on(disk, wal, SEGMENT).expect("a sound store");
    assert!(are_there(&store, began).await, "nothing is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_has_stopped_breaks_the_store() {
    let disk = Disk::new();
    let wal = Disk::new();
    let store = EmbeddedStore::open_on(disk, wal.clone(), SEGMENT).expect("a store");
    wal.fails.store(true, Ordering::SeqCst);
    let (_, error) = until_refused(&store, 0).await;
    assert!(matches!(error, AppendError::Unknown(_)), "{error}");
    await_condition("the store to be broken", SOON, || async {
        matches!(store.load(&[run("0")]).await, Err(StoreError::Broken(_)))
    })
    .await;
}
