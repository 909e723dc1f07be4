//! Sweep of several engines on a real server: of each history stream one engine makes it, and another takes over.

use crate::{nats_common, nats_engine::Walk};

use dormer_engine::{engine, nats::NatsStore, port::StoreError, shard::Counters};
use dormer_testkit::{NatsOptions, NatsServer, await_condition, started};
use nats_common::{created::Created, options};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinHandle};

const SOON: Duration = Duration::from_secs(60);
/// Passes of one stream in a row that one engine must make.
const IN_A_ROW: usize = 6;

/// Waits until the last passes of each stream are those of one engine: each pass creates a consumer. Returns this
/// engine of each stream.
async fn owners(created: &Created) -> Vec<String> {
    let last = |passes: Vec<String>| {
        let by: BTreeSet<&String> = passes.iter().rev().take(IN_A_ROW).collect();
        let one = passes.len() >= IN_A_ROW && by.len() == 1;
        one.then(|| by.into_iter().next().cloned()).flatten()
    };
    let by = || -> Option<Vec<String>> { created.of_streams().into_iter().map(last).collect() };
    await_condition("one engine for each stream", SOON, || async {
        by().is_some()
    })
    .await;
    by().expect("one for each")
}

struct Engine {
    store: Arc<NatsStore>,
    running: JoinHandle<Result<Counters, StoreError>>,
    _halt: watch::Sender<bool>,
}

impl Engine {
    async fn begin(server: &NatsServer) -> Self {
        let store = Arc::new(NatsStore::open(&options(server)).await.expect("a store"));
        let (halt, halted) = watch::channel(false);
        let options = engine::Options {
            sweep_every: Duration::from_millis(200),
            ..engine::Options::default()
        };
        let running = tokio::spawn(engine::run::<Walk, _>(Arc::clone(&store), options, halted));
        Self {
            store,
            running,
            _halt: halt,
        }
    }

    /// Ends as a killed process does: without a word.
    async fn die(self) {
        self.running.abort();
        let _ = self.running.await;
        drop(self.store);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_engine_sweeps_each_history_stream_and_another_goes_on_after_its_death() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let created = Created::on(&server).await;
    let mut engines = Vec::new();
    for _ in 0..3 {
        engines.push(Engine::begin(&server).await);
    }
    let by = owners(&created).await;
    created.forget();
    await_condition("more passes", SOON, || async {
        created.of_streams().iter().all(|it| it.len() > IN_A_ROW)
    })
    .await;
    for (stream, owner) in created.of_streams().into_iter().zip(&by) {
        assert!(stream.iter().all(|it| it == owner), "{stream:?}");
    }
    // Who remains sweeps all.
    for engine in engines.drain(..2) {
        engine.die().await;
        created.forget();
        owners(&created).await;
    }
    let by: BTreeSet<String> = owners(&created).await.into_iter().collect();
    assert_eq!(by.len(), 1, "{by:?}");
    drop(engines);
}
