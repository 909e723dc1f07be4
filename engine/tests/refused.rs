//! Record that no store accepts: its run stops, is reported once and counted each time, and no other run waits for it.

use crate::builds;

use builds::{old, old::Old, run};
use dormer_engine::{
    local::Local,
    memory::MemoryStore,
    observer::{Appended, EngineObserver},
    port::{
        Append, AppendError, Clock, DeadLetter, DeadLetters, Delivery, Head, History,
        HistoryReader, StoreError, Stored,
    },
    shard::Shard,
};
use dormer_engine_core::{InboxMessageOf, Record, Run};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, Revision, RunId, Seq, Timestamp},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A store that refuses whatever the run `big` wants stored.
struct Refusing(MemoryStore);

impl History for Refusing {
    fn incarnation(&self) -> Incarnation {
        self.0.incarnation()
    }
    fn exclusive(&self) -> bool {
        self.0.exclusive()
    }
    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Stored>>, StoreError> {
        self.0.load(runs).await
    }
    async fn append(&self, batch: Vec<Append>) -> Vec<Result<Revision, AppendError>> {
        let mut results = Vec::new();
        for append in batch {
            results.push(if append.run.key() == "big" {
                Err(AppendError::Refused("too large".into()))
            } else {
                self.0.append(vec![append]).await.remove(0)
            });
        }
        results
    }
}

impl HistoryReader for Refusing {
    async fn records(
        &self,
        run: &RunId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.0.records(run, from, limit).await
    }
    async fn heads(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.0.heads(after, limit).await
    }
    async fn forget(&self, run: &RunId, revision: Revision) -> Result<(), StoreError> {
        self.0.forget(run, revision).await
    }
}

impl DeadLetters for Refusing {
    async fn put(&self, message: DeadLetter) -> Result<(), StoreError> {
        self.0.put(message).await
    }
    async fn list(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.0.list(after, limit).await
    }
    async fn remove(&self, id: u64) -> Result<(), StoreError> {
        self.0.remove(id).await
    }
}

/// Reported runs, and the number of refused appends.
#[derive(Default)]
struct RefusalLog(Mutex<(Vec<String>, u64)>);

impl RefusalLog {
    fn now(&self) -> (Vec<String>, u64) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl EngineObserver<Old> for RefusalLog {
    type StateBefore = ();
    fn state_before(&self, _: &Run<Old>) {}
    fn stored(&self, _: Option<()>, _: &Record<Old>) {}
    fn appended(&self, _: Duration, what: Appended) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1 += what.refused;
    }
    fn refused(&self, run: &RunId, why: &str) {
        let refusal = format!("{run}: {why}");
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .push(refusal);
    }
    fn dropped(&self, _: u64, _: u64) {}
    fn dead_lettered(&self) {}
}

#[derive(Clone, Copy)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp(1_000)
    }
}

fn fact(run: &RunId, token: u64) -> Delivery {
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Page".into(),
        uid: run.key().to_owned(),
    };
    let version = Version {
        epoch: Epoch(1),
        resource: token,
    };
    let fact = Some(old::Fact { size: 1 });
    let observation = Observation {
        object,
        version,
        fact,
        may_start: true,
    };
    let message: InboxMessageOf<Old> = InboxMessage {
        run: run.clone(),
        incarnation: Some(Incarnation(5)),
        body: Inbound::Observed(observation),
    };
    let (bytes, _) = envelope::encode(&message, 1).expect("a message");
    Delivery {
        bytes,
        token,
        cause: format!("test:{token}"),
    }
}

#[tokio::test]
async fn a_refused_record_is_reported_once_and_counted_each_time() {
    let store = Arc::new(Refusing(MemoryStore::new(Incarnation(5))));
    let ports = Arc::new(Local::new(Arc::clone(&store), Still));
    let refusals = Arc::new(RefusalLog::default());
    let mut shard =
        Shard::<Old, _, RefusalLog>::observed_by(ports, "test", 8, Arc::clone(&refusals));
    let big = run("big");
    let small = run("small");
    for token in 0..3 {
        shard
            .turn(vec![fact(&big, 2 * token), fact(&small, 2 * token + 1)])
            .await
            .expect("sound");
    }
    assert_eq!(refusals.now(), (vec!["fetch/big: too large".to_owned()], 3));
    assert_eq!((shard.counters.refused, shard.counters.dead), (3, 0));
    let stored = store.load(&[big, small]).await.expect("loaded");
    assert!(stored[0].is_none() && stored[1].is_some());
}
