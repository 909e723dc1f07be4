//! Shares of engines on a real server: each partition has one reader, shares are equal, and nothing is lost when an
//! engine goes or comes.

use crate::nats_common;

use async_nats::jetstream::{
    self,
    consumer::{FromConsumer, pull},
};
use dormer_engine::{
    nats::NatsStore,
    port::{Ack, Inbox, Ports},
};
use dormer_proto::{
    id::RunId,
    subject::{Names, PARTITIONS, partition_of},
};
use dormer_testkit::{NatsOptions, NatsServer, NatsVersion, await_condition, await_some, started};
use futures::StreamExt;
use nats_common::{options, run};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

/// How long a test waits for what must come.
const SOON: Duration = Duration::from_secs(60);

/// Engine, and the message that it took.
type Took = (usize, Vec<u8>);

/// What an engine does with its inbox: takes every message, and says so.
struct Reader {
    store: Arc<NatsStore>,
    reading: JoinHandle<()>,
}

impl Reader {
    async fn begin(server: &NatsServer, number: usize, took: &mpsc::UnboundedSender<Took>) -> Self {
        let store = Arc::new(NatsStore::open(&options(server)).await.expect("a store"));
        let own = Arc::clone(&store);
        let took = took.clone();
        let reading = tokio::spawn(async move {
            while let Ok(deliveries) = own.inbox().take(64).await {
                let done = deliveries.iter().map(|it| (it.token, Ack::Done));
                own.inbox().acknowledge(done.collect()).await;
                for delivery in deliveries {
                    let _ = took.send((number, delivery.bytes));
                }
            }
        });
        Self { store, reading }
    }

    /// Ends as a process does that receives SIGTERM: the others know at once.
    async fn end(self) {
        self.reading.abort();
        let _ = self.reading.await;
        self.store.close().await;
    }

    /// Ends as a killed process does: its connection closes without a word.
    async fn die(self) {
        self.reading.abort();
        let _ = self.reading.await;
    }
}

/// A run of each partition.
fn runs() -> Vec<RunId> {
    let mut found = BTreeMap::new();
    for n in 0..10_000 {
        let run = run(&format!("m{n}"));
        found.entry(partition_of(&run)).or_insert(run);
    }
    assert_eq!(found.len() as u64, PARTITIONS);
    found.into_values().collect()
}

/// Message of a round to a run.
fn body(number: u32, run: &RunId) -> Vec<u8> {
    format!("{number} {run}").into_bytes()
}

/// Sends a message to each partition.
async fn put(store: &NatsStore, runs: &[RunId], number: u32) {
    let messages = runs.iter().map(|run| (run.clone(), body(number, run)));
    store.inbox().put(messages.collect()).await.expect("put");
}

/// Sends a message to each partition, and returns who took it.
async fn round(
    store: &NatsStore,
    runs: &[RunId],
    number: u32,
    took: &mut mpsc::UnboundedReceiver<Took>,
) -> Vec<usize> {
    put(store, runs, number).await;
    let mut by: BTreeMap<Vec<u8>, usize> = runs.iter().map(|run| (body(number, run), 0)).collect();
    let mut missing: BTreeSet<Vec<u8>> = by.keys().cloned().collect();
    while !missing.is_empty() {
        let next = timeout(SOON, took.recv()).await;
        let (engine, bytes) = next
            .unwrap_or_else(|_| panic!("{} messages reached nobody", missing.len()))
            .expect("a reader");
        if missing.remove(&bytes) {
            by.insert(bytes, engine);
        }
    }
    runs.iter().map(|run| by[&body(number, run)]).collect()
}

/// Sends rounds until three in a row were taken alike, by these engines in equal shares.
async fn until_shared(
    store: &NatsStore,
    runs: &[RunId],
    number: &mut u32,
    engines: &[usize],
    took: &mut mpsc::UnboundedReceiver<Took>,
) {
    let equal = |taken: &[usize]| {
        let count = |engine: &usize| taken.iter().filter(|it| *it == engine).count();
        let counts: Vec<usize> = engines.iter().map(count).collect();
        let all = counts.iter().sum::<usize>() == taken.len();
        all && counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1
    };
    let mut alike = 0;
    let mut last = Vec::new();
    let sharing = async {
        while alike < 3 {
            *number += 1;
            let taken = round(store, runs, *number, took).await;
            alike = match equal(&taken) {
                true if taken == last => alike + 1,
                true => 1,
                false => 0,
            };
            last = taken;
        }
    };
    timeout(SOON, sharing).await.expect("equal shares");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_share_the_partitions_and_an_engine_that_goes_or_comes_leaves_none_unread() {
    // The oldest server is the one whose priorities are new.
    let server = started!(NatsServer::start(NatsOptions {
        version: NatsVersion::Oldest,
        ..NatsOptions::default()
    }));
    let runs = runs();
    let (sender, mut took) = mpsc::unbounded_channel();
    let mut number = 0;
    let a = Reader::begin(&server, 1, &sender).await;
    let b = Reader::begin(&server, 2, &sender).await;
    let c = Reader::begin(&server, 3, &sender).await;
    let store = Arc::clone(&b.store);
    until_shared(&store, &runs, &mut number, &[1, 2, 3], &mut took).await;
    a.die().await;
    until_shared(&store, &runs, &mut number, &[2, 3], &mut took).await;
    let d = Reader::begin(&server, 4, &sender).await;
    until_shared(&store, &runs, &mut number, &[2, 3, 4], &mut took).await;
    c.end().await;
    until_shared(&store, &runs, &mut number, &[2, 4], &mut took).await;
    drop(d);
}

/// Priorities of requests of the engine that reads a partition and of the one that stands by, as `engine/src/nats/silent.rs`
/// has them.
const FIRST: usize = 8;
const SECOND: usize = 9;

/// Puts rounds of messages until three in a row are taken in time.
async fn three_whole_rounds(
    store: &NatsStore,
    runs: &[RunId],
    number: &mut u32,
    took: &mut mpsc::UnboundedReceiver<Took>,
) {
    let mut in_a_row = 0;
    while in_a_row < 3 {
        *number += 1;
        put(store, runs, *number).await;
        let end = Instant::now() + Duration::from_secs(8);
        let mut missing: BTreeSet<Vec<u8>> = runs.iter().map(|run| body(*number, run)).collect();
        in_a_row += 1;
        while !missing.is_empty() {
            let Ok(Some((_, bytes))) = timeout_at(end, took.recv()).await else {
                in_a_row = 0;
                break;
            };
            missing.remove(&bytes);
        }
    }
}

/// An engine as the server sees one that is frozen (SIGSTOP, a virtual machine that stands still): it took its share, its
/// requests stay open on a connection that nothing closes, and it sends no heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_do_not_go_to_the_open_requests_of_a_silent_engine_also_where_another_one_begins()
{
    let server = started!(NatsServer::start(NatsOptions::default()));
    let runs = runs();
    let (sender, mut took) = mpsc::unbounded_channel();
    let client = async_nats::connect(server.url()).await.expect("a client");
    let names = Names::default();
    let beats = client.clone();
    let engines = names.engines();
    let alive = tokio::spawn(async move {
        let mut again = tokio::time::interval(Duration::from_millis(500));
        loop {
            again.tick().await;
            let beat = r#"{"engine":7,"leaves":false}"#.into();
            beats.publish(engines.clone(), beat).await.expect("sent");
        }
    });
    let reader = Reader::begin(&server, 1, &sender).await;
    let own = client.new_inbox();
    let mut frozen = client.subscribe(own.clone()).await.expect("subscribed");
    let open = Duration::from_secs(120);
    let stream = names.inbox_stream();
    let ask = async |partition: u64, priority: usize| {
        let request = serde_json::json!({"batch": 16, "expires": open.as_nanos(), "group": "engines",
            "priority": priority});
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.engines-{partition}");
        let sent = client.publish_with_reply(subject, own.clone(), request.to_string().into());
        sent.await.expect("sent");
    };
    // The reader makes the consumers.
    let mut number = 1;
    let taken = round(&reader.store, &runs, number, &mut took).await;
    assert_eq!(taken, vec![1; runs.len()]);
    for partition in 0..PARTITIONS {
        ask(partition, SECOND).await;
    }
    // Where the reader is first it takes all. Where it stands by, too, the two take messages in turn.
    let mut before = BTreeSet::new();
    let shared = async {
        loop {
            number += 1;
            put(&reader.store, &runs, number).await;
            let end = Instant::now() + Duration::from_secs(1);
            let mut now = BTreeSet::new();
            while let Ok(Some(message)) = timeout_at(end, frozen.next()).await {
                let its = |run: &&RunId| *body(number, run) == *message.payload;
                now.extend(runs.iter().find(its).map(partition_of));
            }
            let both: BTreeSet<u64> = now.union(&before).copied().collect();
            if both.len() as u64 == PARTITIONS / 2 {
                return both;
            }
            before = now;
        }
    };
    let shared = timeout(SOON, shared).await.expect("a share");
    let asked = Instant::now();
    for partition in &shared {
        ask(*partition, FIRST).await;
    }
    client.flush().await.expect("flushed");
    alive.abort();
    // What the requests got before is repeated after ten seconds.
    let whole = three_whole_rounds(&reader.store, &runs, &mut number, &mut took);
    let whole = timeout(Duration::from_secs(40), whole).await;
    whole.expect("rounds that no silent engine has a part of");
    // An engine that begins now has no message about the silent one.
    let other = Reader::begin(&server, 2, &sender).await;
    let mut shared = false;
    while !shared {
        number += 1;
        let taken = round(&reader.store, &runs, number, &mut took).await;
        shared = taken.contains(&2);
    }
    let whole = three_whole_rounds(&reader.store, &runs, &mut number, &mut took);
    let whole = timeout(Duration::from_secs(20), whole).await;
    whole.expect("rounds that no silent engine has a part of");
    assert!(asked.elapsed() < open, "the requests are still open");
    reader.end().await;
    other.end().await;
}

/// An engine of a build that reads all partitions with one consumer makes it again while the partition's own is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_of_an_earlier_build_that_comes_late_keeps_no_partition() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let runs = runs();
    let (sender, mut took) = mpsc::unbounded_channel();
    let reader = Reader::begin(&server, 1, &sender).await;
    round(&reader.store, &runs, 1, &mut took).await;
    let client = async_nats::connect(server.url()).await.expect("a client");
    let names = Names::default();
    let stream = jetstream::new(client)
        .get_stream(names.inbox_stream())
        .await;
    let stream = stream.expect("a stream");
    let earlier = || async {
        // The reader may be faster, or pauses before it tries again.
        let _ = stream.delete_consumer("engines-0").await;
        let config = pull::Config {
            durable_name: Some("engines".to_owned()),
            filter_subject: names.inbox_partition(0),
            ..pull::Config::default()
        };
        stream.create_consumer(config).await.is_ok()
    };
    await_condition("the earlier build's consumer", SOON, earlier).await;
    assert_eq!(
        round(&reader.store, &runs, 2, &mut took).await,
        vec![1; runs.len()]
    );
    reader.end().await;
}

/// Waits until no consumer of a partition has an open request.
async fn until_nobody_asks(server: &NatsServer) {
    let client = async_nats::connect(server.url()).await.expect("a client");
    let js = jetstream::new(client);
    let stream = js.get_stream_no_info(Names::default().inbox_stream()).await;
    let stream = stream.expect("a stream");
    for partition in 0..PARTITIONS {
        let name = format!("engines-{partition}");
        await_condition("no open request", SOON, || async {
            let info = stream.consumer_info(&name).await;
            info.is_ok_and(|info| info.num_waiting == 0)
        })
        .await;
    }
}

/// While it listens for others an engine stands by for every partition, and is served as no other asks. It takes 0.15 s on
/// two processors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_begins_alone_reads_each_partition_before_it_waits_for_anything() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let runs = runs();
    let (sender, mut took) = mpsc::unbounded_channel();
    let writer = NatsStore::open(&options(&server)).await.expect("a store");
    for number in 1..3 {
        put(&writer, &runs, number).await;
        let begun = Instant::now();
        let reader = Reader::begin(&server, 1, &sender).await;
        for _ in &runs {
            timeout(SOON, took.recv()).await.expect("a message");
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "engine {number}: {took:?}");
        // The next one begins on the consumers of one that was killed. What the server sends before it sees the closed
        // connection comes again only after the claim.
        reader.die().await;
        until_nobody_asks(&server).await;
    }
}

/// An operator edits a consumer so that the server refuses each of the engine's requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_somebody_edited_is_made_again_as_it_was() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let runs = runs();
    let (sender, mut took) = mpsc::unbounded_channel();
    let reader = Reader::begin(&server, 1, &sender).await;
    round(&reader.store, &runs, 1, &mut took).await;
    let js = jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
    let names = Names::default();
    let edited = [
        (names.inbox_stream(), "engines-0"),
        (names.alarm_stream(), "engines"),
    ];
    for (stream, consumer) in edited {
        let stream = js.get_stream(stream).await.expect("a stream");
        let made = || async {
            let found = async || stream.get_consumer::<pull::Config>(consumer).await.ok();
            let found = await_some("a consumer", SOON, found).await;
            found.cached_info().config.clone()
        };
        let before = made().await;
        let shorter = pull::Config {
            max_expires: Duration::from_secs(1),
            ..pull::Config::try_from_consumer_config(before.clone()).expect("a pull consumer")
        };
        let updated = stream.update_consumer(shorter).await;
        updated.expect("edited");
        // The open requests take what comes; the server refuses the next ones.
        for number in 2..5 {
            round(&reader.store, &runs, number, &mut took).await;
        }
        await_condition("the consumer as it was", SOON, || async {
            made().await.max_expires == before.max_expires
        })
        .await;
    }
    reader.end().await;
}

/// A frozen engine's requests stay open until they end, and those for due timers are served in turn with the others'.
#[tokio::test]
async fn requests_for_due_timers_end_about_when_a_silent_engine_is_noticed() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let client = async_nats::connect(server.url()).await.expect("a client");
    let stream = Names::default().alarm_stream();
    let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.engines");
    let mut requests = client.subscribe(subject).await.expect("subscribed");
    client.flush().await.expect("flushed");
    let (sender, _took) = mpsc::unbounded_channel();
    let reader = Reader::begin(&server, 1, &sender).await;
    // The second request shows that the first one ended.
    for _ in 0..2 {
        let request = timeout(SOON, requests.next()).await.expect("in time");
        let body = request.expect("a request").payload;
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        let open = Duration::from_nanos(body["expires"].as_u64().expect("a time"));
        assert!(open <= Duration::from_secs(4), "{open:?}");
    }
    reader.end().await;
}
