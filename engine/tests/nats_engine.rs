//! Two engines on a real server that is killed repeatedly: every run ends, its records have no gap, and no step is
//! taken twice.

use crate::nats_common;

use dormer_engine::{
    engine,
    nats::{NatsStore, Options},
    port::{History, HistoryReader, Inbox, Ports, StoreError},
    rebuild::run_rebuild,
};
use dormer_engine_core::{
    Command, Decision, InboxMessageOf, Input, Now, Record, RetryPolicy, Workflow,
};
use dormer_proto::{
    envelope,
    id::{Epoch, RunId, Seq, Sum},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
};
use dormer_testkit::{NatsOptions, NatsServer, await_condition, started};
use nats_common::{options, run, worker};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

const RUNS: usize = 20;
const STEPS: u32 = 6;

/// Six steps with a rest in the middle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Walk;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Rest {
    Over,
}

impl Workflow for Walk {
    const SCHEMA: u16 = 1;
    type State = u32;
    type Task = u32;
    type Outcome = u32;
    type Fact = bool;
    type Timer = Rest;
    type Signal = ();

    fn start(_: &RunId, _by_signal: bool) -> Option<u32> {
        Some(0)
    }

    fn decide(_: Now<'_>, at: u32, input: Input<Self>) -> Decision<Self> {
        match input {
            Input::Started | Input::Fired(Rest::Over) => {
                Decision::to(at).run(at, RetryPolicy::PROMPT)
            }
            Input::Finished { task, .. } if task + 1 == STEPS => {
                Decision::to(STEPS).and(Command::Complete)
            }
            Input::Finished { task: 2, .. } => Decision::to(3).start_timer(Rest::Over, 600),
            Input::Finished { task, .. } => {
                Decision::to(task + 1).run(task + 1, RetryPolicy::PROMPT)
            }
            _ => Decision::to(at),
        }
    }

    fn label(_: &u32) -> &'static str {
        "Walking"
    }
}

/// Watcher: repeats the facts.
async fn send_facts(store: &NatsStore) {
    let messages = (0..RUNS).map(|at| {
        let object = ObjectRef {
            cluster: String::new(),
            kind: "Machine".into(),
            uid: at.to_string(),
        };
        let version = Version {
            epoch: Epoch(1),
            resource: 1,
        };
        let observation = Observation {
            object,
            version,
            fact: Some(true),
            may_start: true,
        };
        let message: InboxMessageOf<Walk> = InboxMessage {
            run: run(&at.to_string()),
            incarnation: Some(store.incarnation()),
            body: Inbound::Observed(observation),
        };
        let (bytes, _) = envelope::encode(&message, Walk::SCHEMA).expect("a message");
        (message.run, bytes)
    });
    let _ = store.inbox().put(messages.collect()).await;
}

async fn engine_on(
    options: Options,
    stop: watch::Receiver<bool>,
) -> (
    Arc<NatsStore>,
    tokio::task::JoinHandle<Result<dormer_engine::shard::Counters, StoreError>>,
) {
    let store = Arc::new(NatsStore::open(&options).await.expect("a store"));
    tokio::spawn(run_rebuild::<Walk>(Arc::clone(&store)));
    let running = engine::run::<Walk, _>(Arc::clone(&store), engine::Options::default(), stop);
    (store, tokio::spawn(running))
}

async fn closed(store: &NatsStore) -> usize {
    let heads = store.reader().heads(None, 1_000).await.unwrap_or_default();
    heads.iter().filter(|head| head.closed.is_some()).count()
}

/// Seqs without a gap, each record naming the one before, each step finished once and in order.
async fn lawful(store: &NatsStore, run: &RunId) {
    let records = store
        .reader()
        .records(run, Seq(0), 1_000)
        .await
        .expect("records");
    let mut before = Sum(0);
    let mut steps = Vec::new();
    for (at, bytes) in records.iter().enumerate() {
        let (record, sum) =
            envelope::decode::<Record<Walk>>(bytes, Walk::SCHEMA).expect("a record");
        assert_eq!(
            (record.run.seq, record.prev),
            (Seq(at as u64 + 1), before),
            "{run}"
        );
        before = sum;
        steps.extend(record.events.into_iter().filter_map(|event| match event {
            dormer_engine_core::HistoryEvent::TaskFinished { outcome, .. } => Some(outcome),
            _ => None,
        }));
    }
    assert_eq!(steps, (0..STEPS).collect::<Vec<_>>(), "{run}");
}

/// The check finds nothing wrong, and a dump becomes another store with the same records.
async fn backed_up(store: &NatsStore, server: &NatsServer) {
    let checked = store.check::<Walk>().await.expect("a check");
    assert_eq!((checked.runs, checked.faults), (RUNS, vec![]));
    let mut dump = Vec::new();
    assert_eq!(
        store.dump(&mut dump).await.expect("a dump"),
        checked.records
    );
    let elsewhere = Options {
        prefix: Some("elsewhere".into()),
        ..options(server)
    };
    let epoch = store.next_epoch().await.expect("an epoch");
    let restored = NatsStore::restore(&elsewhere, &mut dump.as_slice())
        .await
        .expect("a store");
    assert_ne!(restored.incarnation(), store.incarnation());
    assert!(restored.next_epoch().await.expect("an epoch") >= epoch);
    for at in 0..RUNS {
        let run = run(&at.to_string());
        let was = store
            .reader()
            .records(&run, Seq(0), 1_000)
            .await
            .expect("records");
        assert_eq!(
            restored
                .reader()
                .records(&run, Seq(0), 1_000)
                .await
                .expect("records"),
            was
        );
    }
    assert_eq!(
        restored.check::<Walk>().await.expect("a check"),
        store.check::<Walk>().await.expect("a check")
    );
    let again = NatsStore::restore(&elsewhere, &mut dump.as_slice())
        .await
        .err()
        .expect("refused");
    assert!(again.to_string().contains("already has 20 runs"), "{again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_again_and_again_costs_no_run_its_end() {
    let mut server = started!(NatsServer::start(NatsOptions {
        sync_always: true,
        ..NatsOptions::default()
    }));
    let (halt, stop) = watch::channel(false);
    let (first, running) = engine_on(options(&server), stop.clone()).await;
    let (second, beside) = engine_on(options(&server), stop).await;
    assert_eq!(
        first.history().incarnation(),
        second.history().incarnation()
    );
    let workers = ["w1", "w2"]
        .map(|name| tokio::spawn(worker::<Walk>(server.url(), name, |task| Some(*task))));
    for _ in 0..4 {
        send_facts(&first).await;
        // Somewhere in the middle of things.
        let _ = timeout(Duration::from_millis(700), std::future::pending::<()>()).await;
        server.kill();
        server.restart();
    }
    await_condition("every run to end", Duration::from_secs(90), || async {
        send_facts(&second).await;
        let _ = timeout(Duration::from_millis(500), std::future::pending::<()>()).await;
        closed(&first).await == RUNS
    })
    .await;
    for at in 0..RUNS {
        lawful(&first, &run(&at.to_string())).await;
    }
    backed_up(&first, &server).await;
    halt.send_replace(true);
    workers.iter().for_each(tokio::task::JoinHandle::abort);
    let tallies = [running.await, beside.await].map(|end| end.expect("no panic").expect("sound"));
    assert_eq!(
        tallies.iter().map(|counters| counters.dead).sum::<u64>(),
        0,
        "{tallies:?}"
    );
}
