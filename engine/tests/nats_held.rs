//! Messages that an engine holds, on a real server: how many it takes, and for how long they are its own.

use crate::nats_common;

use dormer_engine::{
    nats::NatsStore,
    port::{Ack, Inbox, Ports},
};
use dormer_proto::subject::PARTITIONS;
use dormer_testkit::{NatsOptions, NatsServer, started};
use nats_common::{options, run, taken};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Claim of a message on the server.
const CLAIM: Duration = Duration::from_secs(10);
/// What an engine takes before it has acknowledged anything: the least credit of each of four budgets.
const FIRST: usize = 4 * 64;
/// Time after which a message whose claim has ended is there again for certain.
const SOON_AFTER: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_engine_holds_while_it_works_comes_once() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let put = async |text: String| {
        let message = (run(&text), text.into_bytes());
        store.inbox().put(vec![message]).await.expect("put");
    };
    put("held".into()).await;
    let held = taken(&store).await;
    let begun = Instant::now();
    let mut number = 0;
    while begun.elapsed() < CLAIM + SOON_AFTER {
        number += 1;
        put(format!("{number}")).await;
        let other = taken(&store).await;
        assert_ne!(other.bytes, held.bytes, "it came again");
        store
            .inbox()
            .acknowledge(vec![(other.token, Ack::Done)])
            .await;
    }
    store
        .inbox()
        .acknowledge(vec![(held.token, Ack::Done)])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_engine_holds_that_stands_still_comes_again() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let message = (run("held"), b"held".to_vec());
    store.inbox().put(vec![message]).await.expect("put");
    let held = taken(&store).await;
    // It counts as stuck after one claim; then its last extension ends.
    let again = timeout(CLAIM * 2 + SOON_AFTER, store.inbox().take(1)).await;
    let again = again.expect("it comes again").expect("a message");
    assert_eq!(again[0].bytes, held.bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_takes_no_more_than_it_can_begin_soon() {
    const MESSAGES: usize = 12_000;
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let messages = (0..MESSAGES).map(|n| (run(&n.to_string()), n.to_string().into_bytes()));
    store.inbox().put(messages.collect()).await.expect("put");
    let first = taken(&store).await;
    let client = async_nats::connect(server.url()).await.expect("a client");
    let js = async_nats::jetstream::new(client);
    let stream = js.get_stream("dormer-inbox2").await.expect("the inbox");
    // Until nothing more comes: two counts in a row are equal.
    let mut last = 0;
    let mut alike = 0;
    while alike < 2 {
        let mut claimed = 0;
        for partition in 0..PARTITIONS {
            let name = format!("engines-{partition}");
            // An engine makes them one after another.
            if let Ok(info) = stream.consumer_info(name).await {
                claimed += info.num_ack_pending;
            }
        }
        alike = if claimed == last && claimed >= FIRST {
            alike + 1
        } else {
            0
        };
        last = claimed;
    }
    assert_eq!(last, FIRST, "one of them is taken");
    store
        .inbox()
        .acknowledge(vec![(first.token, Ack::Done)])
        .await;
}
