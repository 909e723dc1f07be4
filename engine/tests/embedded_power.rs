//! Power loss: a file layer that forgets or tears what was not synced; nothing acknowledged is lost.

mod embedded_common;

use dormer_engine::embedded::EmbeddedStore;
use embedded_common::{At, run, stand, step};
use redb::StorageBackend;
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard},
};

const SECTOR: usize = 512;

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
    seen: Vec<u8>,
    pending: Vec<Change>,
    /// Operations until the power fails; `None`: it does not.
    fuse: Option<u32>,
    dead: bool,
}

/// A disk that can lose its power.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<Platter>>);

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
        self.0.lock().expect("no panic while held")
    }

    fn burn(&self) -> io::Result<MutexGuard<'_, Platter>> {
        let mut platter = self.platter();
        match platter.fuse.as_mut() {
            Some(0) => platter.dead = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if platter.dead { Err(io::Error::other("the power is gone")) } else { Ok(platter) }
    }

    /// What a disk may hold after the power came back: any sectors of any unsynced writes, in any order of arrival.
    fn after_power_loss(&self, chance: &mut impl FnMut() -> u64) -> Disk {
        let mut platter = self.platter();
        platter.dead = true;
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
        let fresh = Platter { synced: bytes.clone(), seen: bytes, ..Platter::default() };
        Disk(Arc::new(Mutex::new(fresh)))
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a small disk")
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.platter().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.platter();
        let from = index(offset);
        let found = platter.seen.get(from..from + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut platter = self.burn()?;
        let change = Change::Length(index(len));
        apply(&mut platter.seen, &change);
        platter.pending.push(change);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platter = self.burn()?;
        let Platter { synced, pending, .. } = &mut *platter;
        for change in pending.drain(..) {
            apply(synced, &change);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut platter = self.burn()?;
        let change = Change::Write(index(offset), data.to_vec());
        apply(&mut platter.seen, &change);
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

#[tokio::test]
async fn power_loss_takes_nothing_that_was_acknowledged() {
    let mut state = 7_u64;
    let mut chance = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut disk = Disk::default();
    let mut store = EmbeddedStore::open_on(disk.clone()).expect("made");
    let mut acknowledged = vec![At::default(); 8];
    for loss in 0..200 {
        let mut stands = Vec::new();
        for (i, want) in acknowledged.iter().enumerate() {
            let at = stand(&store, &run(&i.to_string())).await;
            assert!(at.seq >= want.seq, "loss {loss}: run {i} is at {}, not {}", at.seq, want.seq);
            assert!(at.seq > want.seq || at == *want, "loss {loss}: run {i} is another");
            stands.push(at);
        }
        disk.platter().fuse = Some(u32::try_from(chance() % 150).expect("small"));
        acknowledged = until_dark(&store, stands).await;
        let next = disk.after_power_loss(&mut chance);
        drop(std::mem::replace(&mut disk, next));
        store = EmbeddedStore::open_on(disk.clone()).expect("opens after a power loss");
    }
    assert!(acknowledged.iter().map(|at| at.seq).sum::<u64>() > 200, "it came to work");
}
