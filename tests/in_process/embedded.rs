//! The workers' ports over the queues of one process.

use super::site::{RecordingExecutor, machine_observed};
use dormer_engine::{engine, local::Local, memory::MemoryStore, port::SystemClock};
use dormer_proto::id::Incarnation;
use dormer_run::roles::{self, Parts};
use dormer_workers::{port::Facts, worker};
use std::{sync::Arc, time::Duration};
use tokio::sync::mpsc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fact_becomes_an_order_the_order_a_report_and_the_run_is_live_until_it_is_gone() {
    let store = Arc::new(MemoryStore::new(Incarnation(3)));
    let ports = Arc::new(Local::new(store, SystemClock));
    let (done, mut tasks) = mpsc::unbounded_channel();
    let running = roles::start(Parts {
        ports: Arc::clone(&ports),
        executor: Arc::new(RecordingExecutor(done)),
        live: Arc::default(),
        engine: engine::Options::default(),
        worker: worker::Options::named("w"),
    });
    let facts = roles::facts(&ports);
    let first = facts.begin().await.expect("an epoch");
    assert_eq!((first.incarnation, first.live.len()), (Incarnation(3), 0));
    facts
        .publish(vec![machine_observed("u1", &first, false)])
        .await
        .expect("published");
    for _ in 0..2 {
        // The second is another attempt: the first one's report was taken.
        let done = tokio::time::timeout(Duration::from_secs(20), tasks.recv()).await;
        assert_eq!(done.expect("in time").expect("a task"), "machine/u1 probe");
    }
    let second = facts.begin().await.expect("an epoch");
    assert!(second.epoch > first.epoch);
    assert_eq!(second.live, ["u1"]);
    facts
        .publish(vec![machine_observed("u1", &second, true)])
        .await
        .expect("published");
    let gone = async {
        while !facts.begin().await.expect("an epoch").live.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone)
        .await
        .expect("the run ends");
    running.stop().await.expect("an orderly end");
}
