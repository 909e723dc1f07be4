//! Old and new builds on one NATS store: first one after the other, as in a rollback, then side by side.

use crate::builds;
use crate::nats_common;

use builds::{Build, FETCHES, new, new::New, old, old::Old, run};
use dormer_engine::{
    engine,
    nats::NatsStore,
    port::{DeadLetters, History, Inbox, Ports, StoreError},
    shard::Counters,
};
use dormer_engine_core::{InboxMessageOf, Record, Workflow};
use dormer_proto::{
    envelope,
    id::{Epoch, Revision, RunId, Seq},
    message::{Ask, Inbound, InboxMessage, ObjectRef, Observation, Request, Version},
};
use dormer_testkit::{NatsOptions, NatsServer, NatsVersion, await_condition, started};
use nats_common::{options, worker};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinHandle};

const RUNS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(120);

/// A build at work: an engine and a worker.
struct Life {
    store: Arc<NatsStore>,
    halt: watch::Sender<bool>,
    running: JoinHandle<Result<Counters, StoreError>>,
    working: JoinHandle<()>,
}

impl Life {
    async fn begin<B: Build>(
        server: &NatsServer,
        name: &'static str,
        answer: fn(&B::Task) -> Option<u32>,
    ) -> Self {
        let store = Arc::new(NatsStore::open(&options(server)).await.expect("a store"));
        let (halt, halted) = watch::channel(false);
        let settings = engine::Options {
            build: name.to_owned(),
            ..engine::Options::default()
        };
        let running = engine::run::<B, _>(Arc::clone(&store), settings, halted);
        let working = worker::<B>(server.url(), name, answer);
        let running = tokio::spawn(running);
        let working = tokio::spawn(working);
        Self {
            store,
            halt,
            running,
            working,
        }
    }

    async fn end(self) -> Counters {
        self.halt.send_replace(true);
        self.working.abort();
        let counters = self
            .running
            .await
            .expect("no panic")
            .expect("a sound store");
        self.store.close().await;
        counters
    }

    async fn put<B: Workflow>(&self, run: &RunId, body: Inbound<B::Fact, B::Outcome, B::Signal>) {
        let incarnation = Some(self.store.history().incarnation());
        let message: InboxMessageOf<B> = InboxMessage {
            run: run.clone(),
            incarnation,
            body,
        };
        let (bytes, _) = envelope::encode(&message, B::SCHEMA).expect("a message");
        self.store
            .inbox()
            .put(vec![(run.clone(), bytes)])
            .await
            .expect("put");
    }

    async fn last(&self, run: &RunId) -> Option<(Record<New>, Revision)> {
        let stored = self
            .store
            .history()
            .load(std::slice::from_ref(run))
            .await
            .ok()?
            .remove(0)?;
        let (record, _) = envelope::decode(&stored.bytes, New::SCHEMA).expect("a record");
        Some((record, stored.revision))
    }

    /// Waits until every one of these runs is as `wanted`.
    async fn until(&self, what: &str, runs: &[RunId], wanted: fn(&Record<New>) -> bool) {
        await_condition(what, PATIENCE, || async {
            for run in runs {
                if !self
                    .last(run)
                    .await
                    .is_some_and(|(record, _)| wanted(&record))
                {
                    return false;
                }
            }
            true
        })
        .await;
    }
}

fn observation<F>(run: &RunId, resource: u64, fact: F) -> Observation<F> {
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Page".into(),
        uid: run.key().to_owned(),
    };
    let version = Version {
        epoch: Epoch(1),
        resource,
    };
    Observation {
        object,
        version,
        fact: Some(fact),
        may_start: true,
    }
}

fn person_request<S>(id: &str, signal: S) -> Request<S> {
    let who = "someone".to_owned();
    let why = "because".to_owned();
    Request {
        id: id.to_owned(),
        who,
        why,
        against: Seq(0),
        ask: Ask::Signal(signal),
    }
}

fn named(prefix: &str) -> Vec<RunId> {
    (0..RUNS).map(|n| run(&format!("{prefix}{n}"))).collect()
}

/// The newer build's worker, before it may check.
fn fetches(task: &new::Task) -> Option<u32> {
    Some(New::answer(task)).filter(|answer| *answer < FETCHES)
}

async fn begin_all<B: Workflow>(life: &Life, runs: &[RunId], fact: B::Fact) {
    for run in runs {
        life.put::<B>(run, Inbound::Observed(observation(run, 1, fact.clone())))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn builds_share_a_store_on_nats() {
    share_a_store(&started!(NatsServer::start(NatsOptions::default()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn builds_share_a_store_on_the_oldest_nats() {
    let oldest = NatsOptions {
        version: NatsVersion::Oldest,
        ..NatsOptions::default()
    };
    share_a_store(&started!(NatsServer::start(oldest))).await;
}

async fn share_a_store(server: &NatsServer) {
    let theirs = named("a");
    let own = named("b");
    let newer = Life::begin::<New>(server, "new", fetches).await;
    begin_all::<New>(
        &newer,
        &theirs,
        new::Fact {
            size: 1,
            colour: None,
        },
    )
    .await;
    let checking = |record: &Record<New>| record.run.state.phase == new::Phase::Checking;
    newer
        .until("every run to be checked", &theirs, checking)
        .await;
    assert_eq!(newer.end().await.newer, 0);

    let older = Life::begin::<Old>(server, "old", |task| Some(Old::answer(task))).await;
    let mut before = Vec::new();
    for run in &theirs {
        before.push(older.last(run).await.expect("a record").1);
        older
            .put::<Old>(
                run,
                Inbound::Requested(person_request("h", old::Signal::Hello)),
            )
            .await;
        older
            .put::<Old>(
                run,
                Inbound::Observed(observation(run, 2, old::Fact { size: 7 })),
            )
            .await;
        let note = person_request("n", new::Signal::Note("noted".into()));
        older.put::<New>(run, Inbound::Requested(note)).await;
    }
    begin_all::<Old>(&older, &own, old::Fact { size: 1 }).await;
    let ended = |record: &Record<New>| record.run.closed.is_some();
    older
        .until("the older build's own runs to end", &own, ended)
        .await;
    for (run, before) in theirs.iter().zip(before) {
        assert_eq!(
            older.last(run).await.expect("a record").1,
            before,
            "{run} was left alone"
        );
    }

    // Side by side from here on: each message reaches the one that can read it.
    let newer = Life::begin::<New>(server, "new", fetches).await;
    let taken_by_newer = |record: &Record<New>| {
        let state = &record.run.state;
        (state.size, state.hellos, state.notes.len()) == (7, 1, 1)
    };
    newer
        .until("every message to be taken", &theirs, taken_by_newer)
        .await;
    let newest = Life::begin::<New>(server, "newest", |task| Some(New::answer(task))).await;
    newest.until("every run to end", &theirs, ended).await;
    let dead = newest.store.dead().list(0, 10).await.expect("dead letters");
    assert!(dead.is_empty(), "{dead:?}");
    let checked = newest.store.check::<New>().await.expect("a check");
    assert_eq!((checked.newer, checked.faults), (0, vec![]));
    let checked = newest.store.check::<Old>().await.expect("a check");
    assert_eq!(checked.faults, Vec::<String>::new());
    assert!(checked.newer > 0);
    for life in [older, newer, newest] {
        assert_eq!(life.end().await.dead, 0);
    }
}
