//! Telemetry: live output compared with the history, and the result of each attempt.

use super::site::{RecordingExecutor, machine_observed};
use dormer_engine::{
    engine,
    local::{Local, deliver_due_timers},
    memory::MemoryStore,
    observer::{Appended, EngineObserver},
    port::{History, HistoryReader, Ports, SystemClock},
};
use dormer_engine_core::{Record, Run};
use dormer_proto::{
    envelope,
    id::{Incarnation, RunId, Seq, TaskId},
    lock::Locked as _,
    span::{SpanId, TraceId},
    work::{SCHEMA, machine_run},
};
use dormer_run::{embedded::LocalOrders, roles};
use dormer_telemetry::{
    MissingSpans, StateBefore, Telemetry, missing,
    spans::{Span, of},
};
use dormer_workers::{observer::ObserverHandle, port::Facts, worker};
use dormer_workflows::Dormer;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

const IN_TIME: Duration = Duration::from_secs(20);

/// Receives every span, and passes it on to telemetry.
struct SpanRecorder {
    telemetry: Arc<Telemetry>,
    recorded: Mutex<Vec<Span>>,
}

impl EngineObserver<Dormer> for SpanRecorder {
    type StateBefore = StateBefore;

    fn state_before(&self, run: &Run<Dormer>) -> StateBefore {
        StateBefore::at(run)
    }

    fn stored(&self, before: Option<StateBefore>, record: &Record<Dormer>) {
        let spans = of(before.as_ref(), record);
        self.recorded.locked().extend(spans);
        self.telemetry.stored(before, record);
    }

    fn appended(&self, took: Duration, what: Appended) {
        EngineObserver::<Dormer>::appended(self.telemetry.as_ref(), took, what);
    }

    fn dropped(&self, _: u64, _: u64) {}
    fn dead_lettered(&self) {}
}

/// The life of a machine whose probe fails, until it is gone: spans as received, and its kept records.
async fn a_short_life() -> (Vec<Span>, Vec<Vec<u8>>, Arc<Telemetry>) {
    let ports = Arc::new(Local::new(
        Arc::new(MemoryStore::new(Incarnation(3))),
        SystemClock,
    ));
    let telemetry = Arc::new(Telemetry::default());
    let ear = Arc::new(SpanRecorder {
        telemetry: Arc::clone(&telemetry),
        recorded: Mutex::default(),
    });
    let (halt, stop) = watch::channel(false);
    let running = engine::run_observed::<Dormer, _, _>(
        Arc::clone(&ports),
        engine::Options::default(),
        Arc::clone(&ear),
        stop,
    );
    let running = tokio::spawn(running);
    let alarms = Arc::clone(&ports.alarms);
    let inbox = Arc::clone(&ports.inbox);
    let delivering = tokio::spawn(deliver_due_timers(
        alarms,
        inbox,
        SystemClock,
        ports.history().incarnation(),
    ));
    let orders = LocalOrders::new(
        Arc::clone(&ports.tasks),
        Arc::clone(&ports.inbox),
        Arc::default(),
    );
    let (done, mut tasks) = mpsc::unbounded_channel();
    let options = worker::Options {
        observer: ObserverHandle::by(telemetry.clone()),
        ..worker::Options::named("w")
    };
    let leave = CancellationToken::new();
    let working = tokio::spawn(worker::run(
        Arc::new(orders),
        Arc::new(RecordingExecutor(done)),
        options,
        leave.clone(),
    ));

    let facts = roles::facts(&ports);
    let first = facts.begin().await.expect("an epoch");
    facts
        .publish(vec![machine_observed("u1", &first, false)])
        .await
        .expect("published");
    for _ in 0..2 {
        timeout(IN_TIME, tasks.recv())
            .await
            .expect("in time")
            .expect("an attempt");
    }
    let second = facts.begin().await.expect("an epoch");
    facts
        .publish(vec![machine_observed("u1", &second, true)])
        .await
        .expect("published");
    let gone = async {
        while !facts.begin().await.expect("an epoch").live.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(IN_TIME, gone).await.expect("the run ends");
    leave.cancel();
    working.await.expect("an end");
    halt.send_replace(true);
    running.await.expect("an end").expect("no error");
    delivering.abort();
    let run = machine_run("u1").expect("a run");
    let records = ports
        .reader()
        .records(&run, Seq(0), 256)
        .await
        .expect("records");
    let recorded = ear.recorded.locked().clone();
    (recorded, records, telemetry)
}

fn by_id(spans: Vec<Span>) -> BTreeMap<(TraceId, SpanId), Span> {
    let count = spans.len();
    let map: BTreeMap<_, _> = spans
        .into_iter()
        .map(|span| ((span.trace, span.id), span))
        .collect();
    assert_eq!(map.len(), count, "no span is told twice");
    map
}

fn hole(run: &RunId, records: &[Vec<u8>], reported: BTreeSet<Seq>) -> MissingSpans {
    let until = Seq(records.len() as u64);
    MissingSpans {
        run: run.clone(),
        episode: Seq(1),
        until,
        reported,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_from_the_history_equal_those_sent_live() {
    let (recorded, records, telemetry) = a_short_life().await;
    let run = machine_run("u1").expect("a run");
    let trace = TraceId::of(&run, None, Seq(1));
    let live = by_id(
        recorded
            .into_iter()
            .filter(|span| span.trace == trace)
            .collect(),
    );
    let folded = by_id(missing(&hole(&run, &records, BTreeSet::new()), &records));
    assert_eq!(live, folded);

    let root = &live[&(trace, SpanId::episode(&run, Seq(1)))];
    assert_eq!(
        (root.name.as_str(), root.parent, root.link),
        ("bring-up", None, None)
    );
    for span in live.values().filter(|span| span.id != root.id) {
        let parent = span.parent.expect("a parent");
        assert!(live.contains_key(&(trace, parent)), "a hole above {span:?}");
        assert!(span.from <= span.to && span.from >= root.from, "{span:?}");
    }
    let (first, _) = envelope::decode::<Record<Dormer>>(&records[0], SCHEMA).expect("a record");
    let key = first.run.tasks[0].key;
    let task = TaskId {
        run: run.clone(),
        seq: key.seq,
        ordinal: key.ordinal,
    };
    let attempt = &live[&(trace, SpanId::attempt(&task, dormer_proto::id::Attempt(1)))];
    assert_eq!(attempt.parent, Some(SpanId::task(&task)));
    assert_eq!(attempt.error.as_deref(), Some("these hands do nothing"));
    assert!(
        attempt
            .attributes
            .contains(&("error.type", "NotToday".to_owned())),
        "{attempt:?}"
    );

    // Of two processes each tells what it appended, and the second what it did not.
    let half: BTreeSet<Seq> = (1..=records.len() as u64 / 2).map(Seq).collect();
    let rest: BTreeSet<Seq> = (1..=records.len() as u64)
        .map(Seq)
        .filter(|s| !half.contains(s))
        .collect();
    let mut both = missing(&hole(&run, &records, half), &records);
    both.extend(missing(&hole(&run, &records, rest), &records));
    assert_eq!(by_id(both), live);

    // Engine and worker counted the same attempts.
    let page = telemetry.metrics().page();
    assert!(
        page.contains(r#"dormer_task_failures_total{task="probe",code="NotToday"}"#),
        "{page}"
    );
    for end in [
        "bring-up\",result=\"gone\"",
        "task=\"probe\",outcome=\"failed\"",
    ] {
        assert!(page.contains(end), "{end}: {page}");
    }
}
