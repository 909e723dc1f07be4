//! Consumers whose server dies, as the engine that reads them notices it: their new leader tells each open request that
//! it is gone, and the engine asks again.

use super::{ONE, cluster, nats_common, plain};
use async_nats::{Message, jetstream};
use dormer_engine::{
    nats::{NatsStore, Options},
    port::{Ack, HistoryReader, Inbox, Ports},
};
use dormer_proto::{
    id::RunId,
    subject::{Names, PARTITIONS, partition_of},
};
use dormer_testkit::{NatsOptions, NatsServer, await_some, long, skip, started};
use futures::{Stream, StreamExt};
use nats_common::{options, run};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

const PATIENCE: Duration = Duration::from_secs(120);
/// Longest time that a partition may be unread after its consumer's server died: two elections of nine seconds.
const UNREAD_MAX: Duration = Duration::from_secs(18);

/// Says to the subject `reply` what a consumer's new leader does.
async fn tell_of_a_new_leader(server: &NatsServer, reply: &str) {
    let address = server.url().replace("nats://", "");
    let mut server = BufReader::new(TcpStream::connect(address).await.expect("a connection"));
    let headers = "NATS/1.0 409 Leadership Change\r\n\r\n";
    let size = headers.len();
    let said = format!(
        "CONNECT {{\"verbose\":false,\"headers\":true}}\r\nHPUB {reply} {size} {size}\r\n{headers}\r\nPING\r\n"
    );
    server.write_all(said.as_bytes()).await.expect("written");
    let mut line = String::new();
    while line != "PONG\r\n" {
        line.clear();
        let read = server.read_line(&mut line).await.expect("an answer");
        assert_ne!(read, 0, "the server hangs up");
    }
}

/// What the engine asks next about the first partition's consumer.
async fn asked(requests: &mut (impl Stream<Item = Message> + Unpin)) -> (String, Message) {
    let next = async {
        loop {
            let request = requests.next().await.expect("a request");
            let tokens: Vec<&str> = request.subject.split('.').collect();
            if tokens.contains(&"engines-0") {
                return (tokens[3].to_owned(), request);
            }
        }
    };
    timeout(PATIENCE, next).await.expect("a request in time")
}

#[tokio::test]
async fn a_consumer_with_a_new_leader_is_asked_again_and_not_created_again() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let client = async_nats::connect(server.url()).await.expect("a client");
    let requests = client.subscribe("$JS.API.CONSUMER.>").await;
    let mut requests = requests.expect("subscribed");
    client.flush().await.expect("flushed");
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let taking = tokio::spawn(async move { store.inbox().take(1).await });
    let mut replies = BTreeSet::new();
    let mut gone: Option<Message> = None;
    for _ in 0..3 {
        let next = loop {
            let (verb, request) = asked(&mut requests).await;
            let body: Value = serde_json::from_slice(&request.payload).expect("a request");
            // One that stands by has the priority 9.
            if verb == "MSG" && body["priority"] != 9 {
                break request;
            }
            assert!(gone.is_none(), "it is asked for {verb}: {body}");
        };
        let reply = next.reply.clone().expect("a reply").to_string();
        tell_of_a_new_leader(&server, &reply).await;
        assert!(replies.insert(reply), "each request has its own answers");
        if let Some(gone) = gone {
            assert_eq!(next.payload, gone.payload, "all of it is asked for again");
        }
        gone = Some(next);
    }
    taking.abort();
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

/// Takes every message, and says so.
fn reads(store: &Arc<NatsStore>) -> (JoinHandle<()>, mpsc::UnboundedReceiver<Vec<u8>>) {
    let store = Arc::clone(store);
    let (tell, took) = mpsc::unbounded_channel();
    let reading = tokio::spawn(async move {
        while let Ok(deliveries) = store.inbox().take(64).await {
            let done = deliveries.iter().map(|it| (it.token, Ack::Done));
            store.inbox().acknowledge(done.collect()).await;
            for delivery in deliveries {
                let _ = tell.send(delivery.bytes);
            }
        }
    });
    (reading, took)
}

/// The number of the server that leads most of the partitions' consumers, of those that no client of the test has.
async fn leader_of_most(url: &str) -> usize {
    let client = async_nats::connect(url).await.expect("a client");
    let js = jetstream::new(client);
    let stream = js.get_stream(Names::default().inbox_stream()).await;
    let stream = stream.expect("a stream");
    let mut led = [0; 3];
    for partition in 0..PARTITIONS {
        let info = stream.consumer_info(format!("engines-{partition}")).await;
        let leader = info.expect("a consumer").cluster.and_then(|it| it.leader);
        let number = leader.and_then(|name| name.strip_prefix('n')?.parse::<usize>().ok());
        if let Some(number) = number {
            led[number] += 1;
        }
    }
    if led[1] >= led[2] { 1 } else { 2 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_whose_consumers_lose_their_leader_are_read_soon_by_one_engine() {
    let _turn = ONE.lock().await;
    let part = long!("nats-cluster");
    let mut servers = match cluster(&plain) {
        Ok(servers) => servers,
        Err(skipped) => skip!(skipped),
    };
    let settings = Options {
        servers: servers[0].url(),
        ..options(&servers[0])
    };
    let open = || async { NatsStore::open(&settings).await.ok() };
    let store = Arc::new(await_some("a store", PATIENCE, open).await);
    let (reading, mut took) = reads(&store);
    let runs = runs();
    let put = async |number: u32| {
        let messages = runs.iter().map(|run| {
            let body = format!("{number} {run}").into_bytes();
            (run.clone(), body)
        });
        store.inbox().put(messages.collect()).await
    };
    // It knows its share, and has asked for the messages that come next, in several requests.
    let share = || async { store.reader().heads_to_sweep(None, 1).await.ok() };
    await_some("the engine's share", PATIENCE, share).await;
    for number in 0..12 {
        let put = || async { put(number).await.ok() };
        await_some("the messages to be put", PATIENCE, put).await;
        for _ in &runs {
            timeout(PATIENCE, took.recv()).await.expect("in time");
        }
    }
    let victim = leader_of_most(&servers[0].url()).await;
    servers[victim].kill();
    let mut number = 12;
    let mut sent = BTreeSet::new();
    while sent.is_empty() {
        number += 1;
        // Until the stream itself has a leader again, no message can be sent.
        if put(number).await.is_ok() {
            let messages = runs
                .iter()
                .map(|run| format!("{number} {run}").into_bytes());
            sent = messages.collect();
        }
    }
    let begun = Instant::now();
    let end = begun + UNREAD_MAX;
    while !sent.is_empty() {
        let Ok(Some(bytes)) = timeout_at(end, took.recv()).await else {
            break;
        };
        sent.remove(&bytes);
    }
    reading.abort();
    assert_eq!(sent.len(), 0, "partitions of n{victim} that nobody reads");
    let unread = begun.elapsed().as_millis();
    part.passed(&[("longest time unread in ms", unread.to_string())]);
}
