//! Memory that readers of changes cost. The test is alone in its binary, because it measures the whole process.

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
use dormer_engine_core::{InboxMessageOf, Transition};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, Timestamp},
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

fn observed(number: usize) -> InboxMessageOf<Dormer> {
    let uid = format!("{number:08x}-9003-49ff-8ec4-b416090ac595");
    let fact = MachineFact {
        machine: MachineRef {
            namespace: "openshift-machine-api".into(),
            name: format!("demo-x7k2p-windows-worker-us-east-1a-{number:05}"),
            uid: uid.clone(),
            ..MachineRef::default()
        },
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
            resource: 1,
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

/// First record of a machine's run.
fn first_record(number: usize) -> Append {
    let message = observed(number);
    let mut transition = Transition::<Dormer>::begin(NOW, OURS, &message).expect("a run begins");
    transition.offer(OURS, message);
    let (record, _) = transition.finish("test", Vec::new()).expect("a record");
    let (bytes, _) = envelope::encode(&record, SCHEMA).expect("encoded");
    Append {
        run: record.run.id.clone(),
        expected: Expected::Nothing,
        bytes,
        seq: record.run.seq,
        deadline: record.run.deadline(),
        closed: record.run.closed,
        quiet: record.run.is_quiet(),
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
    let ports = Arc::new(Local::new(Arc::new(MemoryStore::new(OURS)), SystemClock));
    let appends = (0..MACHINES).map(first_record).collect();
    for stored in ports.store.append(appends).await {
        stored.expect("stored");
    }
    let api = Api::over(ports, Arc::default(), None);
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
