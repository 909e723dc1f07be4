//! Polls of all runs, as a console does while a person watches it, on a real server.

use crate::nats_common;

use async_nats::jetstream;
use dormer_engine::{
    nats::NatsStore,
    port::{Expected, History, HistoryReader, Ports},
};
use dormer_proto::{
    id::{Revision, RunId},
    subject::{HISTORY_STREAMS, Names, history_stream_of},
};
use dormer_testkit::{NatsOptions, NatsServer, started};
use futures::StreamExt;
use nats_common::{append, created::Created, options, run};
use std::collections::BTreeMap;

/// Polls of a console in ten seconds.
const POLLS: u64 = 40;

/// Runs with the revision of each.
type Runs = BTreeMap<RunId, Revision>;

/// All runs, as a reader sees them who asks for pages.
async fn poll(store: &NatsStore) -> Runs {
    let mut all = Runs::new();
    let mut after = None;
    loop {
        let page = store
            .reader()
            .heads(after.as_ref(), 50)
            .await
            .expect("read");
        let Some(last) = page.last() else {
            return all;
        };
        after = Some(last.run.clone());
        all.extend(page.into_iter().map(|head| (head.run, head.revision)));
    }
}

/// Consumers that the server keeps on the history streams.
async fn kept(server: &NatsServer) -> usize {
    let js = jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
    let mut kept = 0;
    for index in 0..HISTORY_STREAMS {
        let name = Names::default().history_stream(index);
        let stream = js.get_stream(&name).await.expect("a stream");
        kept += stream.consumer_names().count().await;
    }
    kept
}

/// Stores a record of each of these runs, and notes its revision.
async fn store_all(store: &NatsStore, runs: &mut Runs, keys: impl Iterator<Item = String>) {
    let batch = keys.map(|key| {
        let run = run(&key);
        let expected = runs
            .get(&run)
            .map_or(Expected::Nothing, |at| Expected::At(*at));
        append(&run, expected, 1, None)
    });
    let batch: Vec<_> = batch.collect();
    let ids: Vec<RunId> = batch.iter().map(|append| append.run.clone()).collect();
    for (run, stored) in ids.into_iter().zip(store.history().append(batch).await) {
        runs.insert(run, stored.expect("stored"));
    }
}

#[tokio::test]
async fn who_polls_all_runs_creates_one_consumer_for_each_stream() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let other = NatsStore::open(&options(&server)).await.expect("a store");
    let created = Created::on(&server).await;
    let mut runs = Runs::new();
    store_all(&other, &mut runs, (0..200).map(|n| format!("m{n}"))).await;
    for at in 0..POLLS {
        assert_eq!(poll(&store).await, runs, "poll {at}");
        // What changed, and what is new.
        let keys = [format!("m{at}"), format!("m{}", 200 + at)];
        store_all(&other, &mut runs, keys.into_iter()).await;
    }
    assert_eq!(created.counts().await, vec![1; 4]);
    assert_eq!(HISTORY_STREAMS, 4);

    // A run that is deleted leaves no message.
    let gone = run("m7");
    let at = runs.remove(&gone).expect("stored");
    other.reader().forget(&gone, at).await.expect("deleted");
    assert_eq!(poll(&store).await, runs, "without the deleted run");
    // The last message of a stream, too.
    let stream = history_stream_of(&run("m0"));
    let of = runs
        .iter()
        .filter(|(run, _)| history_stream_of(run) == stream);
    let (last, at) = of.max_by_key(|(_, at)| **at).expect("one");
    let last = last.clone();
    let at = *at;
    runs.remove(&last);
    other.reader().forget(&last, at).await.expect("deleted");
    for _ in 0..3 {
        assert_eq!(poll(&store).await, runs, "without the last one");
    }
    let most = created.counts().await;
    assert!(most.iter().all(|count| *count <= 3), "{most:?}");
    // Those that were lost on the way are not kept.
    assert_eq!(kept(&server).await, 4);

    // The server forgets its consumers, as a restart does.
    let js = jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
    for index in 0..HISTORY_STREAMS {
        let name = Names::default().history_stream(index);
        let stream = js.get_stream(&name).await.expect("a stream");
        let consumers: Vec<_> = stream.consumer_names().collect().await;
        for consumer in consumers {
            let consumer = consumer.expect("a name");
            stream.delete_consumer(&consumer).await.expect("deleted");
        }
    }
    store_all(&other, &mut runs, (0..40).map(|n| format!("m{}", 100 + n))).await;
    assert_eq!(poll(&store).await, runs, "after the loss of the consumers");

    // The view is gone.
    store.close().await;
    assert_eq!(kept(&server).await, 0, "closed");
    // A late reader, such as a last export of metrics, leaves nothing on the server.
    let late = store.reader().heads(None, 50).await;
    assert!(late.is_err(), "{late:?}");
    assert_eq!(kept(&server).await, 0, "read after the end");
}
