//! What the tests of the NATS adapter share.
#![allow(dead_code, reason = "each test file takes what it needs")]

use dormer_engine::{
    nats::{NatsStore, Options, Sync},
    port::{Append, Delivery, Expected, Inbox, Ports},
};
use dormer_proto::id::{RunId, Seq, Timestamp};
use dormer_testkit::NatsServer;
use std::time::Duration;

/// A store on this server that accepts how it syncs.
pub(crate) fn options(server: &NatsServer) -> Options {
    Options { servers: server.url(), sync: Sync::LazyAccepted, ..Options::default() }
}

/// A run of the workflow `machine`.
pub(crate) fn run(key: &str) -> RunId {
    RunId::new("machine", key).expect("a run id")
}

/// A record whose bytes are its run and seq.
pub(crate) fn append(run: &RunId, expected: Expected, seq: u64, deadline: Option<u64>) -> Append {
    Append {
        run: run.clone(),
        expected,
        bytes: format!("{run}@{seq}").into_bytes(),
        seq: Seq(seq),
        deadline: deadline.map(Timestamp),
        closed: None,
    }
}

/// The next letter.
pub(crate) async fn taken(store: &NatsStore) -> Delivery {
    let take = tokio::time::timeout(Duration::from_secs(20), store.inbox().take(1));
    take.await.expect("a letter in time").expect("a letter").remove(0)
}
