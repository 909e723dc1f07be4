//! Orders of tasks that end without a report leave the stream of a real server.

use crate::nats_common;

use async_nats::jetstream;
use dormer_engine::{
    nats::NatsStore,
    port::{Clock, Inbox, Ports, SystemClock},
    shard::Shard,
};
use dormer_engine_core::{Command, Decision, InboxMessageOf, Input, Now, RetryPolicy, Workflow};
use dormer_proto::{
    envelope,
    id::{Epoch, RunId, Timestamp},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
    subject::Names,
};
use dormer_testkit::{NatsOptions, NatsServer, started};
use nats_common::{options, run};
use serde::{Deserialize, Serialize};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A workflow that does what its facts say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Obedient;

impl Workflow for Obedient {
    const SCHEMA: u16 = 1;
    type State = u32;
    type Task = String;
    type Outcome = ();
    type Fact = String;
    type Timer = u8;
    type Signal = ();

    fn start(_: &RunId, _: bool) -> Option<u32> {
        Some(0)
    }

    fn decide(_: Now<'_>, exhausted: u32, input: Input<Self>) -> Decision<Self> {
        let once = RetryPolicy {
            attempts_max: 1,
            ..RetryPolicy::PATIENT
        };
        match input {
            Input::Observed { fact, .. } => match fact.as_deref() {
                Some("cancel") => Decision::to(exhausted).and(Command::CancelTasks),
                Some("end") => Decision::to(exhausted).and(Command::Complete),
                Some("once") => Decision::to(exhausted).run("once".into(), once),
                _ => Decision::to(exhausted).run("work".into(), RetryPolicy::PATIENT),
            },
            Input::Exhausted { .. } => Decision::to(exhausted + 1),
            _ => Decision::to(exhausted),
        }
    }

    fn label(_: &u32) -> &'static str {
        "Obeying"
    }
}

/// A clock that a test sets.
#[derive(Clone)]
struct Set(Arc<AtomicU64>);

impl Clock for Set {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// An engine, and what waits for its workers.
struct Site {
    store: Arc<NatsStore<Set>>,
    shard: Shard<Obedient, NatsStore<Set>>,
    js: jetstream::Context,
    clock: Set,
    facts: u64,
}

impl Site {
    async fn on(server: &NatsServer) -> Self {
        // No alarm of the server's rings during the test.
        let clock = Set(Arc::new(AtomicU64::new(SystemClock.now().0)));
        let store = NatsStore::open_with(&options(server), clock.clone()).await;
        let store = Arc::new(store.expect("a store"));
        let client = async_nats::connect(server.url()).await.expect("a client");
        Self {
            shard: Shard::new(Arc::clone(&store), "one", 8),
            store,
            js: jetstream::new(client),
            clock,
            facts: 0,
        }
    }

    async fn take(&mut self, to: &str, body: Inbound<String, (), ()>) {
        let message: InboxMessageOf<Obedient> = InboxMessage {
            run: run(to),
            incarnation: Some(self.store.incarnation()),
            body,
        };
        let (bytes, _) = envelope::encode(&message, 1).expect("a message");
        self.store
            .inbox()
            .put(vec![(run(to), bytes)])
            .await
            .expect("put");
        let batch = vec![taken_from(&self.store).await];
        self.shard.turn(batch).await.expect("the engine goes on");
    }

    async fn observe(&mut self, to: &str, says: &str) {
        self.facts += 1;
        let object = ObjectRef {
            cluster: String::new(),
            kind: "Page".into(),
            uid: self.facts.to_string(),
        };
        let version = Version {
            epoch: Epoch(1),
            resource: 1,
        };
        let observation = Observation {
            object,
            version,
            fact: Some(says.to_owned()),
            may_start: true,
        };
        self.take(to, Inbound::Observed(observation)).await;
    }

    /// The clock advances by so much, and the run's alarm fires.
    async fn time_passes(&mut self, to: &str, ms: u64) {
        self.clock.0.fetch_add(ms, Ordering::SeqCst);
        self.take(to, Inbound::TimerDue).await;
    }

    /// Orders in the stream, beside its marker.
    async fn orders(&self) -> u64 {
        let stream = self.js.get_stream(Names::default().task_stream()).await;
        stream.expect("a stream").cached_info().state.messages - 1
    }
}

async fn taken_from(store: &NatsStore<Set>) -> dormer_engine::port::Delivery {
    let take = tokio::time::timeout(std::time::Duration::from_secs(60), store.inbox().take(1));
    take.await
        .expect("a message in time")
        .expect("a message")
        .remove(0)
}

#[tokio::test]
async fn orders_of_cancelled_exhausted_and_ended_tasks_leave_the_stream_and_no_others() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let mut site = Site::on(&server).await;
    site.observe("stays", "work").await;
    assert_eq!(site.orders().await, 1);
    for (key, last) in [("cancelled", "cancel"), ("closed", "end")] {
        site.observe(key, "work").await;
        site.observe(key, "work").await;
        assert_eq!(site.orders().await, 3, "{key}");
        site.observe(key, last).await;
        assert_eq!(site.orders().await, 1, "{key}");
    }
    site.observe("exhausted", "once").await;
    assert_eq!(site.orders().await, 2);
    let RetryPolicy {
        attempt_ms_max,
        queue_ms_max,
        ..
    } = RetryPolicy::PATIENT;
    let unanswered = attempt_ms_max + queue_ms_max + 1;
    site.time_passes("exhausted", unanswered).await;
    assert_eq!(site.orders().await, 1, "nobody waits for it any more");

    // An attempt without an answer: its order stays until the next attempt, or until the task ends.
    site.observe("retried", "work").await;
    site.time_passes("retried", unanswered).await;
    assert_eq!(site.orders().await, 2);
    site.observe("retried", "cancel").await;
    assert_eq!(site.orders().await, 1);
}
