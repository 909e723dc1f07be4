//! Conformance suite of the ports for every adapter: in memory, embedded, and NATS.

mod contract;

use dormer_engine::{
    any::AnyPorts,
    embedded::EmbeddedStore,
    local::{Local, LocalAlarms, LocalInbox, LocalTasks, deliver_due_timers},
    memory::MemoryStore,
    nats::{Durability, NatsStore, Options},
    port::{Ports, SystemClock},
};
use dormer_proto::{id::Incarnation, subject::Names};
use dormer_testkit::{NatsOptions, NatsServer, NatsVersion, started};
use std::sync::Arc;

#[tokio::test]
async fn memory_keeps_the_contracts() {
    let store = MemoryStore::new(Incarnation(7));
    contract::history(&store, &store).await;
    contract::dead_letters(&store).await;
    contract::quarantine(&store).await;
}

#[tokio::test]
async fn the_embedded_store_keeps_the_contracts() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(folder.path()).expect("a store");
    contract::history(&store, &store).await;
    contract::dead_letters(&store).await;
    contract::quarantine(&store).await;
}

#[tokio::test]
async fn the_inbox_of_one_process_keeps_the_contract() {
    contract::inbox(&LocalInbox::default()).await;
}

#[tokio::test]
async fn the_task_queue_of_one_process_keeps_the_contract() {
    let tasks = LocalTasks::default();
    contract::tasks(&tasks, async || tasks.waiting() as u64).await;
}

#[tokio::test]
async fn the_alarms_of_one_process_keep_the_contract() {
    let alarms = Arc::new(LocalAlarms::default());
    let inbox = Arc::new(LocalInbox::default());
    let timers = deliver_due_timers(
        Arc::clone(&alarms),
        Arc::clone(&inbox),
        SystemClock,
        Incarnation(7),
    );
    tokio::select! {
        () = timers => {}
        () = contract::alarms(alarms.as_ref(), None, inbox.as_ref()) => {}
    }
    assert_eq!(alarms.set_for(), 0);
}

/// The ports of a store of this process, as the product uses them: behind one type.
#[tokio::test]
async fn stores_of_one_process_keep_the_contracts_behind_one_type() {
    let folder = tempfile::tempdir().expect("a folder");
    let embedded = EmbeddedStore::open(folder.path()).expect("a store");
    let memory = MemoryStore::new(Incarnation(7));
    let all = [
        AnyPorts::embedded(&Local::new(Arc::new(embedded), SystemClock)),
        AnyPorts::memory(&Local::new(Arc::new(memory), SystemClock)),
    ];
    for any in &all {
        contract::history(any, any).await;
        contract::dead_letters(any).await;
        contract::quarantine(any).await;
        contract::inbox(any).await;
    }
}

#[tokio::test]
async fn nats_keeps_the_contracts() {
    for version in [NatsVersion::Current, NatsVersion::Oldest] {
        let server = started!(NatsServer::start(NatsOptions {
            version,
            ..NatsOptions::default()
        }));
        let options = Options {
            servers: server.url(),
            durability: Durability::LazyAccepted,
            ..Options::default()
        };
        let store = NatsStore::open(&options).await.expect("a store");
        contract::history(store.history(), store.reader()).await;
        contract::inbox(store.inbox()).await;
        let neighbour = NatsStore::open(&options).await.expect("another process");
        contract::alarms(store.alarms(), Some(neighbour.alarms()), store.inbox()).await;
        contract::dead_letters(store.dead()).await;
        contract::quarantine(store.quarantine()).await;
        let client = async_nats::connect(server.url()).await.expect("a client");
        let js = async_nats::jetstream::new(client);
        let waiting = async || {
            let stream = js.get_stream(Names::default().task_stream()).await;
            stream.expect("a stream").cached_info().state.messages
        };
        contract::tasks(store.tasks(), waiting).await;
        // What the product uses: the same ports behind one type.
        store.close().await;
        let server = started!(NatsServer::start(NatsOptions {
            version,
            ..NatsOptions::default()
        }));
        let options = Options {
            servers: server.url(),
            ..options
        };
        let store = NatsStore::open(&options).await.expect("a store");
        let any = AnyPorts::nats(Arc::new(store));
        contract::history(&any, &any).await;
        contract::inbox(&any).await;
        contract::dead_letters(&any).await;
        contract::quarantine(&any).await;
    }
}
