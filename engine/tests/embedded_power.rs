//! Power loss: a file layer that forgets or tears unsynced writes. Nothing acknowledged is lost.

use crate::embedded_common;

use dormer_engine::embedded::{EmbeddedStore, OpenError};
use embedded_common::{At, position, run, step};
use redb::StorageBackend;
use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

const SECTOR: usize = 512;
/// Of the log: so small that it is full after a few frames, and a cut falls into each part of its life.
const SEGMENT: u64 = 32 << 10;

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Debug, Default)]
struct Platter {
    /// What survives for certain.
    synced: Vec<u8>,
    /// What a reader sees.
    visible: Vec<u8>,
    pending: Vec<Change>,
    /// A disk that says "synced" and is not.
    lies: bool,
    /// A disk so busy that no sync ends before it is released.
    busy: bool,
}

/// The power of both disks: when it fails, it fails for the redb file and the log at once.
#[derive(Debug, Default)]
struct Power {
    /// Operations until the power fails; `None`: it does not.
    fuse: Option<u32>,
    dead: bool,
}

/// A disk that can lose its power.
#[derive(Debug, Clone, Default)]
struct Disk {
    platter: Arc<Mutex<Platter>>,
    power: Arc<Mutex<Power>>,
    let_go: Arc<Condvar>,
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(len) => bytes.resize(*len, 0),
        Change::Write(at, data) => {
            if bytes.len() < at + data.len() {
                bytes.resize(at + data.len(), 0);
            }
            bytes[*at..at + data.len()].copy_from_slice(data);
        }
    }
}

impl Disk {
    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.platter.lock().expect("no panic while held")
    }

    fn power(&self) -> MutexGuard<'_, Power> {
        self.power.lock().expect("no panic while held")
    }

    fn burn(&self) -> io::Result<MutexGuard<'_, Platter>> {
        let mut power = self.power();
        match power.fuse.as_mut() {
            Some(0) => power.dead = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if power.dead {
            Err(io::Error::other("the power is gone"))
        } else {
            Ok(self.platter())
        }
    }

    fn make_busy(&self, busy: bool) {
        self.platter().busy = busy;
        self.let_go.notify_all();
    }

    /// What a disk may hold after the power came back: any sectors of any unsynced writes, in any order of arrival.
    fn after_power_loss(
        &self,
        power: &Arc<Mutex<Power>>,
        chance: &mut impl FnMut() -> u64,
    ) -> Disk {
        self.power().dead = true;
        self.make_busy(false);
        let platter = self.platter();
        let mut bytes = platter.synced.clone();
        for change in &platter.pending {
            match change {
                Change::Length(_) => apply(&mut bytes, change),
                Change::Write(at, data) => match chance() % 3 {
                    0 => {}
                    1 => apply(&mut bytes, change),
                    _ => {
                        for (i, sector) in data.chunks(SECTOR).enumerate() {
                            if chance() < (1 << 30) {
                                let part = Change::Write(at + i * SECTOR, sector.to_vec());
                                apply(&mut bytes, &part);
                            }
                        }
                    }
                },
            }
        }
        let synced = bytes.clone();
        let lies = platter.lies;
        let fresh = Platter {
            synced,
            visible: bytes,
            lies,
            ..Platter::default()
        };
        let platter = Arc::new(Mutex::new(fresh));
        Disk {
            platter,
            power: Arc::clone(power),
            ..Disk::default()
        }
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a small disk")
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.platter().visible.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.platter();
        let from = index(offset);
        let found = platter.visible.get(from..from + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut platter = self.burn()?;
        let change = Change::Length(index(len));
        apply(&mut platter.visible, &change);
        platter.pending.push(change);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let waited = self
            .let_go
            .wait_while(self.platter(), |platter| platter.busy);
        drop(waited.expect("no panic while held"));
        let mut platter = self.burn()?;
        let Platter {
            synced,
            pending,
            lies,
            ..
        } = &mut *platter;
        if *lies {
            return Ok(());
        }
        for change in pending.drain(..) {
            apply(synced, &change);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut platter = self.burn()?;
        let change = Change::Write(index(offset), data.to_vec());
        apply(&mut platter.visible, &change);
        platter.pending.push(change);
        Ok(())
    }
}

/// Appends until the power fails; answers how far each run was acknowledged.
async fn until_dark(store: &EmbeddedStore, from: Vec<At>) -> Vec<At> {
    let runs = from.into_iter().enumerate().map(|(i, mut at)| async move {
        let run = run(&i.to_string());
        while let Ok(further) = step(store, &run, at).await {
            at = further;
        }
        at
    });
    futures::future::join_all(runs).await
}

/// The redb file and the log, each on a disk of its own under one power.
struct Disks {
    store: Disk,
    wal: Disk,
}

impl Disks {
    fn new() -> Self {
        let power = Arc::default();
        let disk = || Disk {
            power: Arc::clone(&power),
            ..Disk::default()
        };
        Self {
            store: disk(),
            wal: disk(),
        }
    }

    fn open(&self) -> Result<EmbeddedStore, OpenError> {
        EmbeddedStore::open_on(self.store.clone(), self.wal.clone(), SEGMENT)
    }

    fn after_power_loss(&self, chance: &mut impl FnMut() -> u64) -> Self {
        let power = Arc::default();
        let store = self.store.after_power_loss(&power, chance);
        Self {
            store,
            wal: self.wal.after_power_loss(&power, chance),
        }
    }
}

fn chances(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

/// Loses the power so many times; says which law broke, or how many records were acknowledged.
async fn lose_power(mut disks: Disks, losses: u32) -> Result<u64, String> {
    let mut chance = chances(7);
    let mut store = disks.open().map_err(|error| error.to_string())?;
    let mut acknowledged = vec![At::default(); 8];
    for loss in 0..losses {
        let mut positions = Vec::new();
        for (i, want) in acknowledged.iter().enumerate() {
            let at = position(&store, &run(&i.to_string())).await;
            if at.seq < want.seq || (at.seq == want.seq && at != *want) {
                return Err(format!("loss {loss}: run {i} is at {at:?}, not {want:?}"));
            }
            positions.push(at);
        }
        disks.store.power().fuse = Some(u32::try_from(chance() % 150).expect("small"));
        acknowledged = until_dark(&store, positions).await;
        disks = disks.after_power_loss(&mut chance);
        // Now and then the power fails again while the store is being opened.
        if loss % 4 == 3 {
            disks.store.power().fuse = Some(u32::try_from(chance() % 40).expect("small"));
            drop(disks.open());
            disks = disks.after_power_loss(&mut chance);
        }
        store = disks
            .open()
            .map_err(|error| format!("loss {loss}: {error}"))?;
    }
    Ok(acknowledged.iter().map(|at| at.seq).sum())
}

#[tokio::test]
async fn power_loss_takes_nothing_that_was_acknowledged() {
    let stored = lose_power(Disks::new(), 200).await.expect("the laws hold");
    assert!(stored > 200, "it came to work: {stored} records");
}

#[tokio::test]
async fn a_log_that_is_not_synced_breaks_the_law() {
    let disks = Disks::new();
    disks.wal.platter().lies = true;
    let broken = lose_power(disks, 200)
        .await
        .expect_err("something acknowledged is lost");
    assert!(broken.starts_with("loss "), "{broken}");
}

/// Steps of one run that a segment takes: a block each, behind its header.
const STEPS_A_SEGMENT: u64 = SEGMENT / 4_096 - 1;

/// Steps so far; answers where the run stands then.
async fn steps(store: &EmbeddedStore, count: u64) -> At {
    let name = run("a");
    let mut at = At::default();
    for seq in 1..=count {
        let stepped = tokio::time::timeout(Duration::from_secs(20), step(store, &name, at));
        at = stepped
            .await
            .unwrap_or_else(|_| panic!("step {seq} waits"))
            .expect("appended");
    }
    at
}

#[tokio::test]
async fn appends_wait_for_a_commit_only_when_both_segments_are_full() {
    let disks = Disks::new();
    let store = disks.open().expect("a store");
    disks.store.make_busy(true);
    // The first segment is full, its commit hangs, and the other takes as many.
    let at = steps(&store, 2 * STEPS_A_SEGMENT).await;
    let name = run("a");
    let mut more = std::pin::pin!(step(&store, &name, at));
    // What is acknowledged is read meanwhile; the writer has both segments full and must wait.
    assert_eq!(position(&store, &name).await, at);
    assert!(
        tokio::time::timeout(Duration::from_millis(300), &mut more)
            .await
            .is_err()
    );
    disks.store.make_busy(false);
    let further = tokio::time::timeout(Duration::from_secs(20), more)
        .await
        .expect("it goes on");
    assert_eq!(further.expect("appended").seq, 2 * STEPS_A_SEGMENT + 1);
}

#[tokio::test]
async fn power_loss_during_a_commit_loses_no_frame_of_either_segment() {
    let mut chance = chances(11);
    for count in (1..=2 * STEPS_A_SEGMENT).cycle().take(100) {
        let disks = Disks::new();
        let store = disks.open().expect("a store");
        disks.store.make_busy(true);
        let at = steps(&store, count).await;
        let after = disks.after_power_loss(&mut chance);
        let found = after.open().expect("a store");
        assert_eq!(position(&found, &run("a")).await, at, "after {count} steps");
    }
}
