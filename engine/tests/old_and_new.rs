//! Old and new builds on one store: the older build leaves what it cannot read to the newer one and continues with the
//! rest. No healthy message is lost or becomes a dead letter.

use crate::builds;

use builds::{Build, FETCHES, awaited::Awaited, new, new::New, old, old::Old, run};
use dormer_engine::{
    embedded::EmbeddedStore,
    engine::{self, Options},
    local::{Local, deliver_due_timers},
    memory::MemoryStore,
    port::{Clock, DeadLetters, History, HistoryReader, Inbox, OrderOut, Quarantine},
    shard::Counters,
};
use dormer_engine_core::{InboxMessageOf, Record, Workflow, replay_record};
use dormer_proto::{
    envelope::{self, DecodeError},
    id::{Epoch, Incarnation, Revision, RunId, Seq, Timestamp},
    message::{
        Ask, Inbound, InboxMessage, ObjectRef, Observation, Reporter, Request, TaskOrder,
        TaskReport, Version,
    },
};
use dormer_testkit::await_condition;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};

const RUNS: usize = 8;
/// Longer than a message waits for a newer build.
const PATIENCE: Duration = Duration::from_secs(120);

/// The runtime's clock, which skips the time that no task waits for.
#[derive(Clone, Copy)]
struct Skipping(Instant);

impl Clock for Skipping {
    fn now(&self) -> Timestamp {
        Timestamp(1_000_000).plus_ms(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(0))
    }
}

type Ports<S> = Arc<Local<S, Skipping>>;

/// Answers orders, but for checks while `checks` is false; what it may not or cannot do it gives back at the end.
async fn worker<B: Build, S>(
    ports: Ports<S>,
    ours: Incarnation,
    checks: bool,
    mut halt: watch::Receiver<bool>,
) where
    S: Send + Sync + 'static,
{
    let mut held: Vec<OrderOut> = Vec::new();
    loop {
        let orders = tokio::select! {
            _ = halt.wait_for(|halt| *halt) => break,
            orders = ports.tasks.take(64) => orders,
        };
        for order in orders {
            let read = envelope::decode::<TaskOrder<B::Task>>(&order.bytes, B::SCHEMA);
            match read {
                Ok((read, _)) if checks || B::answer(&read.body) < FETCHES => {
                    let result = Ok(B::answer(&read.body));
                    let TaskOrder {
                        task,
                        attempt,
                        issued,
                        ..
                    } = read;
                    let run = task.run.clone();
                    let report = TaskReport {
                        task,
                        attempt,
                        issued,
                        worker: "w".into(),
                        by: Reporter::default(),
                        result,
                    };
                    let message = message::<B>(&run, Some(ours), Inbound::Reported(report));
                    ports.inbox.put(vec![message]).await.expect("put");
                }
                Ok(_) | Err(DecodeError::Newer { .. }) => held.push(order),
                Err(error) => panic!("an order that no build wrote: {error}"),
            }
        }
        ports.tasks.receipts();
    }
    held.into_iter()
        .for_each(|order| ports.tasks.give_back(order));
}

type Body<B> = Inbound<<B as Workflow>::Fact, <B as Workflow>::Outcome, <B as Workflow>::Signal>;

fn message<B: Workflow>(
    run: &RunId,
    incarnation: Option<Incarnation>,
    body: Body<B>,
) -> (RunId, Vec<u8>) {
    let message: InboxMessageOf<B> = InboxMessage {
        run: run.clone(),
        incarnation,
        body,
    };
    (
        run.clone(),
        envelope::encode(&message, B::SCHEMA).expect("a message").0,
    )
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

/// One build at work on these ports, until `done`. It then stops as on a SIGTERM.
async fn life<B: Build, S>(ports: &Ports<S>, checks: bool, done: impl AsyncFn() -> bool) -> Counters
where
    S: History + HistoryReader + DeadLetters + Quarantine,
{
    let ours = ports.store.incarnation();
    let (halt, halted) = watch::channel(false);
    let alarms = Arc::clone(&ports.alarms);
    let inbox = Arc::clone(&ports.inbox);
    let delivering = tokio::spawn(deliver_due_timers(alarms, inbox, ports.clock, ours));
    let working = tokio::spawn(worker::<B, S>(
        Arc::clone(ports),
        ours,
        checks,
        halted.clone(),
    ));
    let options = Options {
        build: format!("schema {}", B::SCHEMA),
        ..Options::default()
    };
    let running = tokio::spawn(engine::run::<B, _>(Arc::clone(ports), options, halted));
    await_condition("a build to get on", PATIENCE, || done()).await;
    halt.send_replace(true);
    let counters = running.await.expect("no panic").expect("a sound store");
    working.await.expect("no panic");
    delivering.abort();
    counters
}

async fn last<S: HistoryReader>(store: &S, run: &RunId) -> Option<Record<New>> {
    let records = store.records(run, Seq(0), 1_000).await.expect("records");
    let (record, _) = envelope::decode(records.last()?, New::SCHEMA).expect("a record");
    Some(record)
}

async fn revisions<S: HistoryReader>(store: &S) -> BTreeMap<RunId, Revision> {
    let heads = store.heads(None, 1_000).await.expect("heads");
    heads
        .into_iter()
        .map(|head| (head.run, head.revision))
        .collect()
}

async fn closed<S: HistoryReader>(store: &S, runs: &[RunId]) -> bool {
    let heads = store.heads(None, 1_000).await.expect("heads");
    runs.iter().all(|run| {
        heads
            .iter()
            .any(|head| head.run == *run && head.closed.is_some())
    })
}

fn named(prefix: &str) -> Vec<RunId> {
    (0..RUNS).map(|n| run(&format!("{prefix}{n}"))).collect()
}

async fn begin<B: Workflow, S: History>(ports: &Ports<S>, runs: &[RunId], fact: B::Fact) {
    let ours = Some(ports.store.incarnation());
    let body = |run| Inbound::Observed(observation(run, 1, fact.clone()));
    let messages = runs
        .iter()
        .map(|run| message::<B>(run, ours, body(run)))
        .collect();
    ports.inbox.put(messages).await.expect("put");
}

/// The older begins, the newer continues and leaves half of the runs in its new state, the older comes back (a rollback),
/// and at last the newer takes over.
async fn back_and_forth<S>(store: Arc<S>)
where
    S: History + HistoryReader + DeadLetters + Quarantine,
{
    let ports: Ports<S> = Arc::new(Local::new(store, Skipping(Instant::now())));
    let store = Arc::clone(&ports.store);
    let first = named("a");
    let second = named("b");
    begin::<Old, _>(&ports, &first, old::Fact { size: 1 }).await;
    let begun = async || revisions(store.as_ref()).await.len() == RUNS;
    life::<Old, _>(&ports, true, begun).await;

    let checking = async || {
        for run in &first {
            let record = last(store.as_ref(), run).await;
            if record.is_none_or(|record| record.run.state.phase != new::Phase::Checking) {
                return false;
            }
        }
        true
    };
    life::<New, _>(&ports, false, checking).await;

    rolled_back(&ports, &first, &second).await;

    let taken = async || ports.inbox.depth() == 0;
    let counters = life::<New, _>(&ports, false, taken).await;
    assert_eq!((counters.newer, counters.dead), (0, 0));
    let ended = async || closed(store.as_ref(), &first).await;
    life::<New, _>(&ports, true, ended).await;
    let dead = store.list(0, 10).await.expect("dead letters");
    assert!(dead.is_empty(), "{dead:?}");
    for run in &first {
        let state = last(store.as_ref(), run).await.expect("a record").run.state;
        assert_eq!(
            (state.done, state.size, state.hellos),
            (FETCHES, 7, 1),
            "{run}"
        );
        assert_eq!(state.notes, ["noted", "red"], "{run}");
    }
    for run in first.iter().chain(&second) {
        replayed(store.as_ref(), run).await;
    }
}

/// The older build meets runs and messages of the newer.
async fn rolled_back<S>(ports: &Ports<S>, theirs: &[RunId], own: &[RunId])
where
    S: History + HistoryReader + DeadLetters + Quarantine,
{
    let store = ports.store.as_ref();
    let ours = Some(store.incarnation());
    let before = revisions(store).await;
    let mut messages = Vec::new();
    for run in theirs {
        let fact = |size| old::Fact { size };
        messages.push(message::<Old>(
            run,
            ours,
            Inbound::Observed(observation(run, 2, fact(5))),
        ));
        messages.push(message::<Old>(
            run,
            ours,
            Inbound::Observed(observation(run, 3, fact(6))),
        ));
        messages.push(message::<Old>(
            run,
            None,
            Inbound::Requested(person_request("h", old::Signal::Hello)),
        ));
        let note = Inbound::Requested(person_request("n", new::Signal::Note("noted".into())));
        messages.push(message::<New>(run, None, note));
        let fact = new::Fact {
            size: 7,
            colour: Some("red".into()),
        };
        messages.push(message::<New>(
            run,
            ours,
            Inbound::Observed(observation(run, 4, fact)),
        ));
    }
    ports.inbox.put(messages).await.expect("put");
    begin::<Old, _>(ports, own, old::Fact { size: 1 }).await;
    // Until its own runs have ended, and long enough for due timers, repeats and the sweep to pile up if they can.
    let since = ports.clock.now();
    let done = async || {
        for run in theirs {
            // The watcher repeats.
            let again = observation(run, 3, old::Fact { size: 6 });
            let again = message::<Old>(run, ours, Inbound::Observed(again));
            ports.inbox.put(vec![again]).await.expect("put");
        }
        let pause = Duration::from_secs(5);
        let _ = tokio::time::timeout(pause, std::future::pending::<()>()).await;
        closed(store, own).await && ports.clock.now().since_ms(since) > 90_000
    };
    let counters = life::<Old, _>(ports, true, done).await;
    assert_eq!((counters.dead, counters.conflicts), (0, 0));
    assert!(counters.newer > 0);
    let after = revisions(store).await;
    for run in theirs {
        assert_eq!(after.get(run), before.get(run), "{run} was left alone");
    }
    // For each run: a greeting, a note, a fact of either build, perhaps a due timer; and messages after the last read.
    let depth = ports.inbox.depth();
    assert!(
        (4 * RUNS..=6 * RUNS).contains(&depth),
        "{depth} messages wait"
    );
}

/// Today's build reads the whole history and would decide it the same way, where it decided it.
async fn replayed<S: HistoryReader>(store: &S, run: &RunId) {
    let mut before = None;
    for bytes in store.records(run, Seq(0), 1_000).await.expect("records") {
        let (record, sum) = envelope::decode::<Record<New>>(&bytes, New::SCHEMA).expect("read");
        let (_, divergence) = replay_record(before.as_ref(), &record, sum);
        // Where the older build did not check, the newer would have.
        let unchecked = record.build == "schema 1" && record.run.state.done == 2;
        assert!(divergence.is_none() || unchecked, "{run}: {divergence:?}");
        let mut run = record.run;
        run.set_sum(sum);
        before = Some(run);
    }
}

#[tokio::test(start_paused = true)]
async fn builds_share_a_store_in_memory() {
    back_and_forth(Arc::new(MemoryStore::new(Incarnation(5)))).await;
}

#[tokio::test(start_paused = true)]
async fn builds_share_an_embedded_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(folder.path()).expect("a store");
    back_and_forth(Arc::new(Awaited(Arc::new(store)))).await;
}
