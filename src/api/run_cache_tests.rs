//! Runs that this build cannot read, beside runs that it can.

use super::*;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_engine::port::{DeadLetter, Stored};
use dormer_proto::id::{Incarnation, Seq, Timestamp};
use futures::future::BoxFuture;
use serde_json::Value;
use std::sync::{Mutex as StdMutex, MutexGuard};

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Last records of runs, and which of them were read.
#[derive(Default)]
struct LastRecords {
    stored: StdMutex<BTreeMap<RunId, (Revision, Vec<u8>)>>,
    read: StdMutex<Vec<RunId>>,
}

impl LastRecords {
    fn stored(&self) -> MutexGuard<'_, BTreeMap<RunId, (Revision, Vec<u8>)>> {
        self.stored.lock().expect("no panic")
    }

    fn put(&self, run: &RunId, revision: u64, bytes: &[u8]) {
        let last = (Revision(revision), bytes.to_vec());
        self.stored().insert(run.clone(), last);
    }

    /// Runs whose records were read since the last call.
    fn read(&self) -> Vec<RunId> {
        std::mem::take(&mut *self.read.lock().expect("no panic"))
    }
}

fn answer<'a, T: Send + 'a>(value: T) -> Answer<'a, T> {
    Box::pin(async { Ok(value) })
}

impl Store for LastRecords {
    fn incarnation(&self) -> Incarnation {
        Incarnation(1)
    }

    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn load<'a>(&'a self, runs: &'a [RunId]) -> Answer<'a, Vec<Option<Stored>>> {
        self.read.lock().expect("no panic").extend_from_slice(runs);
        let stored = self.stored();
        let of = |run: &RunId| {
            let (revision, bytes) = stored.get(run)?.clone();
            Some(Stored { revision, bytes })
        };
        answer(runs.iter().map(of).collect())
    }

    fn records<'a>(&'a self, _: &'a RunId, _: Seq, _: usize) -> Answer<'a, Vec<Vec<u8>>> {
        unreachable!("only last records are read")
    }

    fn heads<'a>(&'a self, after: Option<&'a RunId>, limit: usize) -> Answer<'a, Vec<Head>> {
        let stored = self.stored();
        let next = stored
            .iter()
            .filter(|(run, _)| after.is_none_or(|after| after < *run));
        let heads = next.take(limit).map(|(run, (revision, _))| Head {
            run: run.clone(),
            revision: *revision,
            seq: Seq(1),
            deadline: None,
            closed: None,
            quiet: true,
        });
        answer(heads.collect())
    }

    fn put(&self, _: RunId, _: Vec<u8>) -> Answer<'_, ()> {
        unreachable!("nothing is asked for")
    }

    fn dead_letters(&self, _: u64, _: usize) -> Answer<'_, Vec<DeadLetter>> {
        answer(Vec::new())
    }

    fn remove_dead_letter(&self, _: u64) -> Answer<'_, ()> {
        unreachable!("there is none")
    }

    fn notes(&self) -> Answer<'_, Vec<QuarantineNote>> {
        answer(Vec::new())
    }

    fn release<'a>(&'a self, _: &'a RunId) -> Answer<'a, bool> {
        unreachable!("nothing is quarantined")
    }
}

/// A store without runs, and its cache.
fn empty() -> (Arc<LastRecords>, RunCache) {
    let store = Arc::new(LastRecords::default());
    let cache = RunCache::new(Arc::clone(&store) as Arc<dyn Store>, Arc::default());
    (store, cache)
}

/// Records of a machine's bring-up, oldest first, with its run.
fn bring_up() -> (RunId, Vec<Vec<u8>>) {
    let text = include_str!("../../tests/histories/0.1/bring-up.jsonl");
    let lines = text.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let bytes = STANDARD.decode(line["record"]["envelope"].as_str()?);
        Some(bytes.expect("base64"))
    });
    let records: Vec<Vec<u8>> = lines.collect();
    let (first, _): (Record<Dormer>, _) = envelope::decode(&records[0], SCHEMA).expect("a record");
    (first.run.id, records)
}

#[tokio::test]
async fn a_run_of_a_newer_build_is_read_once_and_its_state_of_before_is_not_shown() {
    let (store, cache) = empty();
    let (run, records) = bring_up();
    store.put(&run, 1, &records[0]);
    assert_eq!(cache.all().await.expect("runs").len(), 1);
    assert_eq!(store.read(), std::slice::from_ref(&run));

    // What a newer build wrote, to this one.
    store.put(&run, 2, b"unreadable");
    for _ in 0..3 {
        assert!(cache.all().await.expect("runs").is_empty());
    }
    assert_eq!(store.read(), std::slice::from_ref(&run), "it is read once");

    store.put(&run, 3, &records[1]);
    assert_eq!(cache.all().await.expect("runs").len(), 1);
    assert_eq!(store.read(), [run]);
}

#[tokio::test]
async fn a_deleted_run_is_forgotten_also_beside_an_unreadable_one() {
    let (store, cache) = empty();
    let (run, records) = bring_up();
    store.put(&run, 1, &records[0]);
    cache.all().await.expect("runs");
    let other = machine_run("another").expect("a run");
    store.put(&other, 2, b"unreadable");
    store.stored().remove(&run);
    assert!(cache.all().await.expect("runs").is_empty());
}
