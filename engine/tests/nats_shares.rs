//! Shares of engines on a real server: each partition has one reader, shares are equal, and nothing is lost when an
//! engine goes or comes.

use crate::nats_common;

use dormer_engine::{
    nats::NatsStore,
    port::{Ack, Inbox, Ports},
};
use dormer_proto::{
    id::RunId,
    subject::{PARTITIONS, partition_of},
};
use dormer_testkit::{NatsOptions, NatsServer, NatsVersion, started};
use nats_common::{options, run};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

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
        let (own, took) = (Arc::clone(&store), took.clone());
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

    /// Ends as a process does that is told to: the others know at once.
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

/// Sends a message to each partition, and returns who took it.
async fn round(
    store: &NatsStore,
    runs: &[RunId],
    number: u32,
    took: &mut mpsc::UnboundedReceiver<Took>,
) -> Vec<usize> {
    let body = |run: &RunId| format!("{number} {run}").into_bytes();
    let messages = runs.iter().map(|run| (run.clone(), body(run)));
    store.inbox().put(messages.collect()).await.expect("put");
    let mut by: BTreeMap<Vec<u8>, usize> = runs.iter().map(|run| (body(run), 0)).collect();
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
    runs.iter().map(|run| by[&body(run)]).collect()
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
