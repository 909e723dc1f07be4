//! Credit on a real server: an engine pulls what its shards can begin soon, so a slow store costs no repeats, and a
//! shard whose store does not answer holds up no other.

use crate::{
    builds::{self, new, new::New},
    nats_common,
};

use async_nats::jetstream;
use dormer_engine::{
    engine::{self, Options},
    nats::NatsStore,
    port::{Ack, Append, AppendError, History, Inbox, Ports, StoreError, Stored, SystemClock},
};
use dormer_engine_core::{InboxMessageOf, Workflow};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, Revision, RunId},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
    subject::{HISTORY_STREAMS, PARTITIONS, history_stream_of},
};
use dormer_testkit::{NatsOptions, NatsServer, await_condition, started};
use nats_common::options;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

/// How a store answers appends.
#[derive(Debug, Clone, Copy)]
enum Pace {
    /// Each record of a history stream takes this long.
    Each(Duration),
    /// The stream 0 does not answer, as without a leader.
    WithoutFirst,
}

/// Store that is slow.
struct Slow {
    store: NatsStore,
    history: SlowHistory,
}

struct SlowHistory {
    store: NatsStore,
    pace: Pace,
}

impl History for SlowHistory {
    fn incarnation(&self) -> Incarnation {
        self.store.history().incarnation()
    }
    fn exclusive(&self) -> bool {
        false
    }
    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Stored>>, StoreError> {
        self.store.history().load(runs).await
    }
    async fn append(&self, batch: Vec<Append>) -> Vec<Result<Revision, AppendError>> {
        match self.pace {
            Pace::Each(time) => {
                let records = u32::try_from(batch.len()).expect("few");
                let answer = std::future::pending::<()>();
                let _ = tokio::time::timeout(time * records, answer).await;
            }
            Pace::WithoutFirst if batch.iter().any(|it| history_stream_of(&it.run) == 0) => {
                std::future::pending::<()>().await;
            }
            Pace::WithoutFirst => {}
        }
        self.store.history().append(batch).await
    }
}

impl Ports for Slow {
    type History = SlowHistory;
    type Reader = <NatsStore as Ports>::Reader;
    type Inbox = <NatsStore as Ports>::Inbox;
    type Tasks = <NatsStore as Ports>::Tasks;
    type Alarms = <NatsStore as Ports>::Alarms;
    type Dead = <NatsStore as Ports>::Dead;
    type Quarantine = <NatsStore as Ports>::Quarantine;
    type Clock = SystemClock;
    fn history(&self) -> &SlowHistory {
        &self.history
    }
    fn reader(&self) -> &Self::Reader {
        self.store.reader()
    }
    fn inbox(&self) -> &Self::Inbox {
        self.store.inbox()
    }
    fn tasks(&self) -> &Self::Tasks {
        self.store.tasks()
    }
    fn alarms(&self) -> &Self::Alarms {
        self.store.alarms()
    }
    fn dead(&self) -> &Self::Dead {
        self.store.dead()
    }
    fn quarantine(&self) -> &Self::Quarantine {
        self.store.quarantine()
    }
    fn clock(&self) -> &SystemClock {
        &SystemClock
    }
}

async fn slow(server: &NatsServer, pace: Pace) -> Arc<Slow> {
    let open = async || NatsStore::open(&options(server)).await.expect("a store");
    let history = SlowHistory {
        store: open().await,
        pace,
    };
    Arc::new(Slow {
        store: open().await,
        history,
    })
}

/// Fact that starts a run.
fn fact(store: &NatsStore, run: &RunId) -> (RunId, Vec<u8>) {
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Page".into(),
        uid: run.key().into(),
    };
    let version = Version {
        epoch: Epoch(1),
        resource: 1,
    };
    let fact = new::Fact {
        size: 1,
        colour: None,
    };
    let message: InboxMessageOf<New> = InboxMessage {
        run: run.clone(),
        incarnation: Some(store.incarnation()),
        body: Inbound::Observed(Observation {
            object,
            version,
            fact: Some(fact),
            may_start: true,
        }),
    };
    let (bytes, _) = envelope::encode(&message, New::SCHEMA).expect("a message");
    (message.run, bytes)
}

/// Puts a fact for each of this many new runs.
async fn put_facts(store: &NatsStore, count: usize) -> Vec<RunId> {
    let runs: Vec<RunId> = (0..count).map(|n| builds::run(&n.to_string())).collect();
    for part in runs.chunks(1_000) {
        let facts = part.iter().map(|run| fact(store, run)).collect();
        store.inbox().put(facts).await.expect("put");
    }
    runs
}

/// Messages that the server delivered, repeats included.
async fn delivered(server: &NatsServer) -> u64 {
    let client = async_nats::connect(server.url()).await.expect("a client");
    let js = jetstream::new(client);
    let stream = js.get_stream("dormer-inbox2").await.expect("the inbox");
    let mut delivered = 0;
    for partition in 0..PARTITIONS {
        let info = stream.consumer_info(format!("engines-{partition}")).await;
        delivered += info.map_or(0, |info| info.delivered.consumer_sequence);
    }
    delivered
}

async fn stored(store: &NatsStore, runs: &[RunId]) -> usize {
    let mut stored = 0;
    for part in runs.chunks(1_000) {
        let records = store.history().load(part).await.expect("read");
        stored += records.into_iter().flatten().count();
    }
    stored
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_works_slowly_gets_no_message_again() {
    dormer_testkit::full!();
    const FACTS: usize = 3_000;
    const FOR: Duration = Duration::from_secs(15);
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    put_facts(&store, FACTS).await;
    let mut seen = BTreeSet::new();
    let mut pace = interval(Duration::from_millis(12));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let begun = Instant::now();
    while begun.elapsed() < FOR {
        pace.tick().await;
        let taken = store.inbox().take(1).await.expect("a message");
        let done = taken.iter().map(|it| (it.token, Ack::Done)).collect();
        store.inbox().acknowledge(done).await;
        for delivery in taken {
            assert!(seen.insert(delivery.bytes), "it came again");
        }
    }
    let client = async_nats::connect(server.url()).await.expect("a client");
    let js = jetstream::new(client);
    let stream = js.get_stream("dormer-inbox2").await.expect("the inbox");
    let mut again = 0;
    for partition in 0..PARTITIONS {
        let info = stream.consumer_info(format!("engines-{partition}")).await;
        again += info.expect("its consumer").num_redelivered;
    }
    assert_eq!(again, 0, "of {} taken", seen.len());
}

/// After a second and a half an engine knows who else lives, and reads the partitions for which it stood by. The server
/// may have sent it a message just then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_lost_when_an_engine_begins_to_read_what_it_stood_by_for() {
    dormer_testkit::full!();
    /// Longer than an engine stands by.
    const FOR: Duration = Duration::from_secs(3);
    /// Less than the claim, after which a lost message comes again.
    const COME_WITHIN: Duration = Duration::from_secs(5);
    let server = started!(NatsServer::start(NatsOptions::default()));
    let sender = NatsStore::open(&options(&server)).await.expect("a store");
    let (counted, count) = watch::channel(None);
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let sending = tokio::spawn(async move {
        let begun = Instant::now();
        let mut sent = 0;
        while begun.elapsed() < FOR {
            let runs: Vec<RunId> = (sent..sent + 200)
                .map(|n| builds::run(&n.to_string()))
                .collect();
            let facts = runs.iter().map(|run| fact(&sender, run)).collect();
            sender.inbox().put(facts).await.expect("put");
            sent += runs.len();
        }
        counted.send_replace(Some(sent));
        sender
    });
    let mut seen = BTreeSet::new();
    let mut last = Instant::now();
    while count.borrow().is_none_or(|sent| seen.len() < sent) {
        let next = tokio::time::timeout(COME_WITHIN, store.inbox().take(256)).await;
        let lost = || format!("{:?} sent, {} came", *count.borrow(), seen.len());
        let Ok(taken) = next else {
            // The last message may be here before the sender says how many there are.
            assert_eq!(*count.borrow(), Some(seen.len()), "{}", lost());
            break;
        };
        let taken = taken.expect("messages");
        assert!(last.elapsed() < COME_WITHIN, "{}", lost());
        last = Instant::now();
        let done = taken.iter().map(|it| (it.token, Ack::Done)).collect();
        store.inbox().acknowledge(done).await;
        seen.extend(taken.into_iter().map(|it| it.bytes));
    }
    drop(sending.await.expect("no panic"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_whose_store_does_not_answer_holds_up_no_other() {
    dormer_testkit::full!();
    const FACTS: usize = 12_000;
    let server = started!(NatsServer::start(NatsOptions::default()));
    let site = slow(&server, Pace::WithoutFirst).await;
    let runs = put_facts(&site.store, FACTS).await;
    let others = runs.into_iter().filter(|run| history_stream_of(run) != 0);
    let others: Vec<RunId> = others.collect();
    let (stop, stopped) = watch::channel(false);
    let running = engine::run::<New, _>(Arc::clone(&site), Options::default(), stopped);
    let running = tokio::spawn(running);
    await_condition("the records of others", Duration::from_secs(60), || async {
        stored(&site.store, &others).await == others.len()
    })
    .await;
    // The shard without an answer never ends.
    running.abort();
    drop(stop);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_store_is_not_slowed_down_by_repeats() {
    let part = dormer_testkit::long!("engines");
    const FACTS: usize = 2_400;
    let server = started!(NatsServer::start(NatsOptions::default()));
    // 25 records a second of each stream.
    let site = slow(&server, Pace::Each(Duration::from_millis(40))).await;
    let runs = put_facts(&site.store, FACTS).await;
    let (stop, stopped) = watch::channel(false);
    let running = engine::run::<New, _>(Arc::clone(&site), Options::default(), stopped);
    let running = tokio::spawn(running);
    let begun = Instant::now();
    let best = Duration::from_millis(40) * u32::try_from(FACTS).unwrap()
        / u32::try_from(HISTORY_STREAMS).unwrap();
    await_condition("the records of all", best * 3, || async {
        stored(&site.store, &runs).await == runs.len()
    })
    .await;
    let took = begun.elapsed();
    let repeats = delivered(&server).await - FACTS as u64;
    stop.send_replace(true);
    running.await.expect("no panic").expect("it ends");
    assert_eq!(repeats, 0, "in {took:?}");
    assert!(took < best * 3 / 2, "{took:?}, at best {best:?}");
    part.passed(&[
        ("messages", FACTS.to_string()),
        ("repeats", repeats.to_string()),
        (
            "of the best time",
            format!("{:.2}", took.as_secs_f64() / best.as_secs_f64()),
        ),
    ]);
}
