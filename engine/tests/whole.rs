//! The whole engine on a store of one process: flaky workers, engines that are cut off and started anew.

use dormer_engine::{
    embedded::EmbeddedStore,
    engine::{self, Options},
    local::{Local, LocalInbox, LocalTasks, ring_for_ever},
    memory::MemoryStore,
    port::{DeadLetters, History, HistoryReader, Inbox, SystemClock},
};
use dormer_engine_core::{
    Command, Decision, Input, Now, Record, RetryPolicy, Workflow, replay_record,
};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, RunId, Seq},
    message::{
        Failure, Inbound, Letter, NoSignal, ObjectRef, Observation, TaskOrder, TaskReport, Version,
    },
};
use serde::{Deserialize, Serialize};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinSet};

const STEPS: u32 = 6;
const RUNS: u32 = 40;
const QUICK: RetryPolicy =
    RetryPolicy { first_ms: 2, delay_ms_max: 20, attempts_max: 100, ..RetryPolicy::PROMPT };

/// Six tasks, one after another, each a number that must come back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Ladder {
    rungs: Vec<u32>,
}

impl Workflow for Ladder {
    const SCHEMA: u16 = 1;
    type State = Ladder;
    type Task = u32;
    type Outcome = u32;
    type Fact = u32;
    type Timer = u8;
    type Signal = ();

    fn start(_: &RunId, by_signal: bool) -> Option<Ladder> {
        (!by_signal).then(Ladder::default)
    }

    fn decide(_: Now<'_>, mut state: Ladder, input: Input<Ladder>) -> Decision<Ladder> {
        match input {
            Input::Started => Decision::to(state).run(1, QUICK),
            Input::Finished { outcome, .. } => {
                state.rungs.push(outcome);
                match state.rungs.len() as u32 {
                    STEPS => Decision::to(state).and(Command::Complete),
                    done => Decision::to(state).run(done + 1, QUICK),
                }
            }
            _ => Decision::to(state),
        }
    }

    fn label(_: &Ladder) -> &'static str {
        "Climbing"
    }
}

fn runs() -> Vec<RunId> {
    (0..RUNS).map(|n| RunId::new("ladder", &n.to_string()).unwrap()).collect()
}

fn letter(run: &RunId, ours: Incarnation, body: Inbound<u32, u32, NoSignal>) -> (RunId, Vec<u8>) {
    let letter = Letter { run: run.clone(), incarnation: Some(ours), body };
    (run.clone(), envelope::encode(&letter, 1).unwrap().0)
}

async fn tell_all(inbox: &LocalInbox, ours: Incarnation) {
    let seen = |run: &RunId| Observation {
        object: ObjectRef { cluster: String::new(), kind: "Ladder".into(), uid: run.key().into() },
        version: Version { epoch: Epoch(1), resource: 1 },
        fact: Some(1),
        may_start: true,
    };
    let letters =
        runs().iter().map(|run| letter(run, ours, Inbound::Observed(seen(run)))).collect();
    inbox.put(letters).await.unwrap();
}

/// Fails every third order, answers every fifth twice, else does what it is told.
async fn flaky_worker(tasks: Arc<LocalTasks>, inbox: Arc<LocalInbox>, ours: Incarnation) {
    let mut count = 0u32;
    loop {
        for order in tasks.take(16).await {
            count += 1;
            let order = envelope::decode::<TaskOrder<u32>>(&order.bytes, 1).unwrap().0;
            let result = if count.is_multiple_of(3) {
                Err(Failure::transient("Flaky", "the third one fails"))
            } else {
                Ok(order.body)
            };
            let run = order.task.run.clone();
            let TaskOrder { task, attempt, issued, .. } = order;
            let report = TaskReport { task, attempt, issued, worker: "w".into(), result };
            let one = letter(&run, ours, Inbound::Reported(report));
            let twice = count.is_multiple_of(5);
            inbox.put(if twice { vec![one.clone(), one] } else { vec![one] }).await.unwrap();
        }
        tasks.receipts();
    }
}

/// One life of a process: engine, worker and alarms, until `until` says so; then everything is dropped at once.
async fn live<S>(store: &Arc<S>, facts: bool, until: impl AsyncFn(&S) -> bool) -> bool
where
    S: History + HistoryReader + DeadLetters,
{
    let ours = store.incarnation();
    let ports = Arc::new(Local::new(Arc::clone(store), SystemClock));
    let (_stop, stopped) = watch::channel(false);
    let mut life = JoinSet::new();
    let alarms = Arc::clone(&ports.alarms);
    life.spawn(ring_for_ever(alarms, Arc::clone(&ports.inbox), SystemClock, ours));
    life.spawn(flaky_worker(Arc::clone(&ports.tasks), Arc::clone(&ports.inbox), ours));
    if facts {
        tell_all(&ports.inbox, ours).await;
    }
    life.spawn(async move {
        engine::run::<Ladder, _>(ports, Options::default(), stopped).await.unwrap();
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if until(store).await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

async fn records_of<S: HistoryReader>(store: &S, run: &RunId) -> Vec<Vec<u8>> {
    store.records(run, Seq(0), 1_000).await.unwrap()
}

async fn all_closed<S: HistoryReader>(store: &S) -> bool {
    let heads = store.heads(None, 1_000).await.unwrap();
    heads.len() == RUNS as usize && heads.iter().all(|head| head.closed.is_some())
}

async fn check<S: HistoryReader>(store: &S) {
    for run in runs() {
        let mut before = None;
        for bytes in records_of(store, &run).await {
            let (record, sum) = envelope::decode::<Record<Ladder>>(&bytes, 1).unwrap();
            let (replayed, divergence) = replay_record(before.as_ref(), &record, sum);
            assert_eq!(divergence, None, "{run}");
            before = Some(replayed);
        }
        assert_eq!(before.unwrap().state.rungs, [1, 2, 3, 4, 5, 6], "{run}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_climbs_each_rung_once_in_memory() {
    let store = Arc::new(MemoryStore::new(Incarnation(9)));
    assert!(live(&store, true, all_closed).await, "not done in time");
    check(store.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_cut_off_again_and_again_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(folder.path()).unwrap());
    // Each life ends when the histories have grown by so many records; queues, alarms and letters die with it.
    for life in 1..=8u64 {
        let wanted = life * u64::from(RUNS);
        let grown = async |store: &EmbeddedStore| {
            let heads = store.heads(None, 1_000).await.unwrap();
            heads.iter().map(|head| head.seq.0).sum::<u64>() >= wanted
        };
        assert!(live(&store, life == 1, grown).await, "life {life} stands still");
    }
    assert!(live(&store, true, all_closed).await, "not done in time");
    check(store.as_ref()).await;
}
