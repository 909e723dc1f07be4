//! Roles of several processes on a NATS server.

use super::site::{RecordingExecutor, machine_observed};
use dormer_api::live::Live;
use dormer_engine::engine;
use dormer_nats::signing::make;
use dormer_proto::{message::Reporter, work::machine_run};
use dormer_run::{
    config::{Config, NatsSettings, Role, Settings},
    nats::{self, connect, listen, open},
    roles::Running,
};
use dormer_testkit::{NatsOptions, NatsServer, await_condition, started};
use dormer_workers::{
    nats::{NatsFacts, NatsOrders},
    port::Facts,
    worker,
};
use std::{path::Path, sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::timeout};

const IN_TIME: Duration = Duration::from_secs(60);

fn config(server: &NatsServer, keys: Option<&Path>, role: Role, name: &str) -> Config {
    let settings = Settings {
        store: Some(server.url()),
        role: vec![role],
        name: Some(name.into()),
        nats: NatsSettings {
            accept_lazy_sync: Some(true),
            keys: keys.map(Path::to_owned),
            ..NatsSettings::default()
        },
        ..Settings::default()
    };
    Config::new(settings).expect("a configuration")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_of_several_processes_meet_on_a_server_and_survive_its_death() {
    meet_and_survive(None).await;
}

/// Keys are made by the set-up command's code, and each process has those of its role.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_with_keys_meet_on_a_server_and_survive_its_death() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("keys");
    let roles = Role::ALL.map(Role::as_str);
    make(&folder, &roles, None).expect("keys");
    meet_and_survive(Some(&folder)).await;
}

/// Each role with connections of its own, as in pods of their own.
async fn meet_and_survive(keys: Option<&Path>) {
    let mut server = started!(NatsServer::start(NatsOptions {
        sync_always: true,
        ..NatsOptions::default()
    }));
    let mut deciding = Running::default();
    let mut stores = Vec::new();
    for name in ["e1", "e2"] {
        let config = config(&server, keys, Role::Engine, name);
        let store = open(&config, &server.url()).await.expect("a store");
        nats::engine(&mut deciding, &store, engine::Options::default());
        stores.push(store);
    }
    let (done, mut tasks) = mpsc::unbounded_channel();
    let mut working = Running::default();
    let linked = async |role, name| {
        let config = config(&server, keys, role, name);
        connect(&config, &server.url()).await.expect("a link")
    };
    let link = linked(Role::Worker, "w").await;
    let watching = linked(Role::Watcher, "f").await;
    let showing = linked(Role::Console, "c").await;
    let orders = NatsOrders::open(Arc::clone(&link), "w", Reporter::Worker)
        .await
        .expect("orders");
    let options = worker::Options::named("w");
    working.worker(Arc::new(orders), Arc::new(RecordingExecutor(done)), options);
    let live = Arc::<Live>::default();
    listen(&mut working, &showing, Arc::clone(&live))
        .await
        .expect("heartbeats");

    let facts = NatsFacts::new(watching);
    let first = facts.begin().await.expect("an epoch");
    facts
        .publish(vec![machine_observed("u1", &first, false)])
        .await
        .expect("published");
    let task = timeout(IN_TIME, tasks.recv()).await.expect("in time");
    assert_eq!(task.as_deref(), Some("machine/u1 probe"));
    let run = machine_run("u1").expect("a run");
    await_condition("a heartbeat", IN_TIME, || async {
        !live.of(&run).is_empty()
    })
    .await;
    assert_eq!(facts.begin().await.expect("an epoch").live, ["u1"]);

    server.kill();
    server.restart();
    let again = timeout(IN_TIME, tasks.recv()).await.expect("in time");
    assert_eq!(
        again.as_deref(),
        Some("machine/u1 probe"),
        "the next attempt"
    );
    await_condition("the watcher's way", IN_TIME, || async {
        let Ok(next) = facts.begin().await else {
            return false;
        };
        next.epoch > first.epoch
            && facts
                .publish(vec![machine_observed("u1", &next, true)])
                .await
                .is_ok()
            && next.live.is_empty()
    })
    .await;
    timeout(IN_TIME, working.stop())
        .await
        .expect("in time")
        .expect("an orderly end");
    assert!(deciding.health().ready(), "{:?}", deciding.health().all());
    timeout(IN_TIME, deciding.stop())
        .await
        .expect("in time")
        .expect("an orderly end");
}
