//! Readers of changes that take their events slowly: what they cost, and what they receive. The tests are alone in their
//! binary, because one measures the whole process.

use axum::{
    body::{Body, BodyDataStream},
    http::Request,
};
use dormer_api::Api;
use dormer_engine::{
    local::Local,
    memory::MemoryStore,
    port::{Append, Expected, History, SystemClock},
};
use dormer_engine_core::{InboxMessageOf, Run, Transition};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, Revision, Timestamp},
    machine::{self, MachineFact, MachineRef},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
    work::{Fact, SCHEMA, machine_run},
};
use dormer_workflows::Dormer;
use futures::StreamExt;
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
use tower::ServiceExt;

const IN_TIME: Duration = Duration::from_secs(60);
const MACHINES: usize = 1_000;
const READERS: usize = 64;
/// Most memory of all readers together. The full state of 1,000 machines has over 1 MiB, so a copy for each reader
/// takes more.
const KIB_MAX: u64 = 24 << 10;

const OURS: Incarnation = Incarnation(3);
const NOW: Timestamp = Timestamp(1_000_000);

/// Fact about a machine. Its phase changes with each version.
fn observed(number: usize, version: u64) -> InboxMessageOf<Dormer> {
    let uid = format!("{number:08x}-9003-49ff-8ec4-b416090ac595");
    let fact = MachineFact {
        machine: MachineRef {
            namespace: "openshift-machine-api".into(),
            name: format!("demo-x7k2p-windows-worker-us-east-1a-{number:05}"),
            uid: uid.clone(),
            ..MachineRef::default()
        },
        phase: Some(format!("Phase{version}")),
        ..MachineFact::default()
    };
    let run = machine_run(&uid).expect("a run");
    let observation = Observation {
        object: ObjectRef {
            cluster: String::new(),
            kind: "Machine".into(),
            uid,
        },
        version: Version {
            epoch: Epoch(1),
            resource: version,
        },
        fact: Some(Fact::Machine(machine::Fact::Machine(fact))),
        may_start: true,
    };
    InboxMessage {
        run,
        incarnation: Some(OURS),
        body: Inbound::Observed(observation),
    }
}

/// Record that this message makes, and the run after it.
fn record(
    mut transition: Transition<Dormer>,
    message: InboxMessageOf<Dormer>,
    expected: Expected,
) -> (Append, Run<Dormer>) {
    transition.offer(OURS, message, None);
    let (record, _) = transition.finish("test", Vec::new()).expect("a record");
    let (bytes, sum) = envelope::encode(&record, SCHEMA).expect("encoded");
    let mut run = record.run;
    run.set_sum(sum);
    let append = Append {
        run: run.id.clone(),
        expected,
        bytes,
        seq: run.seq,
        deadline: run.deadline(),
        closed: run.closed,
        quiet: run.is_quiet(),
    };
    (append, run)
}

type MemoryPorts = Arc<Local<MemoryStore, SystemClock>>;

/// Machines in a store, each with its revision.
struct StoredMachines {
    ports: MemoryPorts,
    runs: Vec<(Run<Dormer>, Revision)>,
}

impl StoredMachines {
    async fn of(machines: usize) -> Self {
        let ports = Arc::new(Local::new(Arc::new(MemoryStore::new(OURS)), SystemClock));
        let begun = (0..machines).map(|number| {
            let message = observed(number, 1);
            let begun = Transition::<Dormer>::begin(NOW, OURS, &message);
            record(begun.expect("a run begins"), message, Expected::Nothing)
        });
        let (appends, runs): (Vec<Append>, Vec<Run<Dormer>>) = begun.unzip();
        let stored = ports.store.append(appends).await.into_iter();
        let revisions = stored.map(|revision| revision.expect("stored"));
        let runs = runs.into_iter().zip(revisions).collect();
        Self { ports, runs }
    }

    fn api(&self) -> Arc<Api> {
        Api::over(Arc::clone(&self.ports), Arc::default(), None)
    }

    /// Changes a machine.
    async fn change(&mut self, number: usize, version: u64) {
        let (run, revision) = self.runs[number].clone();
        let message = observed(number, version);
        let expected = Expected::At(revision);
        let (append, run) = record(Transition::of(run, NOW), message, expected);
        let stored = self.ports.store.append(vec![append]).await.remove(0);
        self.runs[number] = (run, stored.expect("stored"));
    }
}

/// Opens a stream and reads its first event.
async fn open(api: &Arc<Api>) -> BodyDataStream {
    let request = Request::get("/api/v1/changes").body(Body::empty());
    let router = dormer_api::router(Arc::clone(api));
    let answer = router.oneshot(request.expect("a request")).await;
    let mut stream = answer.expect("an answer").into_body().into_data_stream();
    assert!(read(&mut stream).await.starts_with("event: reset\n"));
    stream
}

async fn read(stream: &mut BodyDataStream) -> String {
    let next = timeout(IN_TIME, stream.next()).await.expect("in time");
    let bytes = next.expect("the stream continues").expect("bytes");
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Memory of this process now.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|it| it.parse().ok()).expect("its memory")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_take_one_event_cost_little_memory_and_later_receive_every_run() {
    let api = StoredMachines::of(MACHINES).await.api();
    let mut slow = vec![open(&api).await];
    let before = resident_kib();
    for _ in 1..READERS {
        slow.push(open(&api).await);
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown <= KIB_MAX, "{READERS} slow readers cost {grown} KiB");
    let stream = slow.last_mut().expect("a reader");
    let mut runs = 0;
    let complete = loop {
        let event = read(stream).await;
        if !event.starts_with("event: run\n") {
            break event;
        }
        assert!(event.contains(&format!("-us-east-1a-{runs:05}")), "{event}");
        runs += 1;
    };
    assert_eq!(complete, "event: complete\ndata: {\"runs\":1000}\n\n");
}

/// Reads until an event has this word.
async fn read_until(stream: &mut BodyDataStream, word: &str) {
    while !read(stream).await.contains(word) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_older_state_of_a_run_follows_a_newer_one() {
    let mut fleet = StoredMachines::of(100).await;
    let api = fleet.api();
    let mut fast = open(&api).await;
    read_until(&mut fast, "event: complete").await;
    let mut slow = open(&api).await;
    read_until(&mut slow, "-us-east-1a-00000").await;
    // The slow reader has the first machine, and not the last one.
    for version in [2, 3] {
        for machine in [0, 99] {
            fleet.change(machine, version).await;
            read_until(&mut fast, &format!("Phase{version}\"")).await;
        }
    }
    let mut last = [Vec::new(), Vec::new()];
    let complete = loop {
        let event = read(&mut slow).await;
        if !event.starts_with("event: run\n") {
            break event;
        }
        for (number, found) in [0, 99].into_iter().zip(&mut last) {
            if event.contains(&format!("-us-east-1a-{number:05}")) {
                let version = (1..=3).find(|it| event.contains(&format!("Phase{it}\"")));
                found.push(version.expect("a phase"));
            }
        }
    };
    assert_eq!(complete, "event: complete\ndata: {\"runs\":100}\n\n");
    assert_eq!(last, [vec![2, 3], vec![3]]);
    fleet.change(99, 4).await;
    let next = read(&mut slow).await;
    assert!(next.contains("Phase4\""), "{next}");
}
