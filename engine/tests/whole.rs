//! Whole engine on a store of one process: unreliable workers, engines that are cancelled or killed with their process,
//! and restarts.

use dormer_engine::{
    embedded::{self, EmbeddedStore},
    engine::{self, Options},
    local::{Local, LocalInbox, LocalTasks, deliver_due_timers},
    memory::MemoryStore,
    port::{DeadLetters, History, HistoryReader, Inbox, Quarantine, SystemClock},
};
use dormer_engine_core::{
    Command, Decision, Input, Now, Record, RetryPolicy, Workflow, replay_record,
};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, RunId, Seq},
    message::{
        Failure, Inbound, InboxMessage, NoSignal, ObjectRef, Observation, Reporter, TaskOrder,
        TaskReport, Version,
    },
};
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command as Process, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinSet};

const STEPS: u32 = 6;
/// A life takes a second. Less than the sweep's first pass with something to find: nothing may have to wait for it.
const STANDSTILL_MAX: Duration = Duration::from_secs(30);
const RUNS: u32 = 40;
const QUICK: RetryPolicy = RetryPolicy {
    first_ms: 2,
    delay_ms_max: 20,
    attempts_max: 100,
    ..RetryPolicy::PROMPT
};

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

fn runs(count: u32) -> Vec<RunId> {
    (0..count)
        .map(|n| RunId::new("ladder", &n.to_string()).unwrap())
        .collect()
}

fn message(run: &RunId, ours: Incarnation, body: Inbound<u32, u32, NoSignal>) -> (RunId, Vec<u8>) {
    let message = InboxMessage {
        run: run.clone(),
        incarnation: Some(ours),
        body,
    };
    (run.clone(), envelope::encode(&message, 1).unwrap().0)
}

async fn send_all(inbox: &LocalInbox, ours: Incarnation, count: u32) {
    let observation = |run: &RunId| Observation {
        object: ObjectRef {
            cluster: String::new(),
            kind: "Ladder".into(),
            uid: run.key().into(),
        },
        version: Version {
            epoch: Epoch(1),
            resource: 1,
        },
        fact: Some(1),
        may_start: true,
    };
    let messages = runs(count)
        .iter()
        .map(|run| message(run, ours, Inbound::Observed(observation(run))))
        .collect();
    inbox.put(messages).await.unwrap();
}

/// Fails every third order, answers every fifth twice, and executes the others.
async fn flaky_worker(tasks: Arc<LocalTasks>, inbox: Arc<LocalInbox>, ours: Incarnation) {
    let mut count = 0u32;
    loop {
        for order in tasks.take(16).await {
            count += 1;
            let order = envelope::decode::<TaskOrder<u32>>(&order.bytes, 1)
                .unwrap()
                .0;
            let result = if count.is_multiple_of(3) {
                Err(Failure::transient("Flaky", "the third one fails"))
            } else {
                Ok(order.body)
            };
            let run = order.task.run.clone();
            let TaskOrder {
                task,
                attempt,
                issued,
                ..
            } = order;
            let report = TaskReport {
                task,
                attempt,
                issued,
                worker: "w".into(),
                by: Reporter::default(),
                result,
            };
            let one = message(&run, ours, Inbound::Reported(report));
            let twice = count.is_multiple_of(5);
            inbox
                .put(if twice {
                    vec![one.clone(), one]
                } else {
                    vec![one]
                })
                .await
                .unwrap();
        }
        tasks.receipts();
    }
}

/// One life of a process: engine, worker and alarms, until `until` is true; then everything is dropped at once.
async fn live<S>(store: &Arc<S>, facts: Option<u32>, until: impl AsyncFn(&S) -> bool) -> bool
where
    S: History + HistoryReader + DeadLetters + Quarantine,
{
    let ours = store.incarnation();
    let ports = Arc::new(Local::new(Arc::clone(store), SystemClock));
    let (_stop, stopped) = watch::channel(false);
    let mut life = JoinSet::new();
    let alarms = Arc::clone(&ports.alarms);
    life.spawn(deliver_due_timers(
        alarms,
        Arc::clone(&ports.inbox),
        SystemClock,
        ours,
    ));
    life.spawn(flaky_worker(
        Arc::clone(&ports.tasks),
        Arc::clone(&ports.inbox),
        ours,
    ));
    if let Some(count) = facts {
        send_all(&ports.inbox, ours, count).await;
    }
    life.spawn(async move {
        engine::run::<Ladder, _>(ports, Options::default(), stopped)
            .await
            .unwrap();
    });
    let deadline = Instant::now() + STANDSTILL_MAX;
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

async fn closed<S: HistoryReader>(store: &S, count: u32) -> bool {
    let heads = store.heads(None, 1_000).await.unwrap();
    heads.len() == count as usize && heads.iter().all(|head| head.closed.is_some())
}

async fn all_closed<S: HistoryReader>(store: &S) -> bool {
    closed(store, RUNS).await
}

/// The rungs of a run, whose records follow from each other; `None`: it has none.
async fn rungs<S: HistoryReader>(store: &S, run: &RunId) -> Option<Vec<u32>> {
    let mut before = None;
    for bytes in records_of(store, run).await {
        let (record, sum) = envelope::decode::<Record<Ladder>>(&bytes, 1).unwrap();
        let (replayed, divergence) = replay_record(before.as_ref(), &record, sum);
        assert_eq!(divergence, None, "{run}");
        before = Some(replayed);
    }
    before.map(|run| run.state.rungs)
}

async fn check<S: HistoryReader>(store: &S, count: u32) {
    for run in runs(count) {
        assert_eq!(
            rungs(store, &run).await.unwrap(),
            [1, 2, 3, 4, 5, 6],
            "{run}"
        );
    }
}

/// How many records there are.
async fn records<S: HistoryReader>(store: &S) -> u64 {
    let heads = store.heads(None, 1_000).await.unwrap();
    heads.iter().map(|head| head.seq.0).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_climbs_each_rung_once_in_memory() {
    let store = Arc::new(MemoryStore::new(Incarnation(9)));
    assert!(
        live(&store, Some(RUNS), all_closed).await,
        "not done in time"
    );
    check(store.as_ref(), RUNS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_cut_off_again_and_again_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(folder.path()).unwrap());
    // Each life ends when the histories have grown by so many records; queues, alarms and messages die with it.
    for life in 1..=8u64 {
        let wanted = life * u64::from(RUNS);
        let grown = async |store: &EmbeddedStore| records(store).await >= wanted;
        assert!(
            live(&store, (life == 1).then_some(RUNS), grown).await,
            "life {life} stands still"
        );
    }
    assert!(
        live(&store, Some(RUNS), all_closed).await,
        "not done in time"
    );
    check(store.as_ref(), RUNS).await;
}

const FOLDER: &str = "DORMER_TEST_ENGINE_FOLDER";
const KILLS: u64 = 200;
/// So many that there is work to the last kill.
const KILLED_RUNS: u32 = 400;

/// Not a test by itself: the process that is killed. It says how many records it can read. Without the variable it does
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_that_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let store = Arc::new(reopen(folder.as_ref()).await);
    let states = async |store: &EmbeddedStore| {
        let line = format!("\nrecords {}\n", records(store).await);
        std::io::stdout()
            .write_all(line.as_bytes())
            .expect("the parent reads");
        closed(store, KILLED_RUNS).await
    };
    assert!(
        live(&store, Some(KILLED_RUNS), states).await,
        "it stands still"
    );
}

/// Opens the store once its former owner has closed it: a read that was under way holds it a moment longer.
async fn reopen(folder: &Path) -> EmbeddedStore {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match EmbeddedStore::open(folder) {
            Err(embedded::OpenError::InUse(_)) if Instant::now() < deadline => {
                tokio::task::yield_now().await;
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Starts the engine, kills it once it has reported its contents `times` times; answers the most that it reported.
fn kill_engine_after(folder: &Path, lines: u64) -> u64 {
    let mut child = Process::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "whole::the_engine_that_is_killed", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let out = BufReader::new(child.stdout.take().expect("its output"));
    let mut most = 0;
    let mut lines_seen = 0;
    for line in out.lines().map_while(Result::ok) {
        if let Some(count) = line
            .strip_prefix("records ")
            .and_then(|count| count.parse().ok())
        {
            most = most.max(count);
            lines_seen += 1;
            if lines_seen >= lines {
                child.kill().expect("killed");
            }
        }
    }
    child.wait().expect("ended");
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_whose_process_is_killed_two_hundred_times_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut chance = 0x2545_f491_4f6c_dd1d_u64;
    for kill in 0..KILLS {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(kill);
        let most = kill_engine_after(folder.path(), 1 + (chance >> 61));
        let store = reopen(folder.path()).await;
        let found = records(&store).await;
        assert!(
            found >= most,
            "kill {kill}: {found} records, {most} were read before"
        );
        // Every tenth time all of it, for the test's sake.
        for run in if kill % 10 == 0 {
            runs(KILLED_RUNS)
        } else {
            Vec::new()
        } {
            let rungs = rungs(&store, &run).await.unwrap_or_default();
            assert!(
                (1..=STEPS).take(rungs.len()).eq(rungs.iter().copied()),
                "{run}: {rungs:?}"
            );
        }
        assert_eq!(store.list(0, 10).await.unwrap().len(), 0, "a dead letter");
    }
    let store = Arc::new(reopen(folder.path()).await);
    let all = async |store: &EmbeddedStore| closed(store, KILLED_RUNS).await;
    assert!(
        live(&store, Some(KILLED_RUNS), all).await,
        "not done in time"
    );
    check(store.as_ref(), KILLED_RUNS).await;
    drop(store);
    let deadline = Instant::now() + Duration::from_secs(10);
    let report = loop {
        match embedded::check(folder.path()) {
            Err(embedded::OpenError::InUse(_)) if Instant::now() < deadline => {
                tokio::task::yield_now().await;
            }
            checked => break checked.unwrap(),
        }
    };
    assert!(report.is_clean(), "{report:?}");
}
