//! Outages and losses on a real server: acknowledged data stays, and lost data is noticed.

use crate::{
    builds::{self, old, old::Old},
    nats_common,
};

use dormer_engine::{
    nats::NatsStore,
    port::{
        Ack, AppendError, Delivery, Expected, History, HistoryReader, Inbox, Ports, StoreError,
    },
    rebuild::rebuild,
    shard::Shard,
};
use dormer_engine_core::InboxMessageOf;
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, RunId},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
};
use dormer_testkit::{NatsOptions, NatsServer, await_condition, await_some, started};
use nats_common::{append, options, run, taken};
use std::{sync::Arc, time::Duration};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_killed_server_loses_the_queues_not_the_history_and_the_loss_is_noticed() {
    let mut server = started!(NatsServer::start(NatsOptions {
        sync_always: true,
        ..NatsOptions::default()
    }));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let losses = store.losses();
    let before = *losses.borrow();
    let a = run("a");
    let first = store
        .history()
        .append(vec![append(&a, Expected::Nothing, 1, None)])
        .await;
    let at = *first[0].as_ref().expect("stored");
    store
        .inbox()
        .put(vec![(a.clone(), b"lost".to_vec())])
        .await
        .expect("put");
    server.kill();
    let cut = store
        .history()
        .append(vec![append(&a, Expected::At(at), 2, None)])
        .await;
    assert!(matches!(cut[0], Err(AppendError::Unknown(_))), "{cut:?}");
    server.restart();
    await_condition("the loss to be noticed", SOON, || async {
        *losses.borrow() > before
    })
    .await;
    // The append that had no answer may have been sent when the connection came back: either way it is on record once.
    let stored = await_some("the store to answer", SOON, || async {
        store
            .history()
            .load(std::slice::from_ref(&a))
            .await
            .ok()?
            .remove(0)
    })
    .await;
    assert!(stored.revision >= at);
    let next = store
        .history()
        .append(vec![append(&a, Expected::At(stored.revision), 3, None)])
        .await;
    assert!(next[0].is_ok(), "{next:?}");
    // The inbox lives again, too.
    await_condition("the inbox to take messages", SOON, || async {
        store
            .inbox()
            .put(vec![(a.clone(), b"new".to_vec())])
            .await
            .is_ok()
    })
    .await;
    loop {
        let delivery = taken(&store).await;
        store
            .inbox()
            .acknowledge(vec![(delivery.token, Ack::Done)])
            .await;
        if delivery.bytes == b"new" {
            break;
        }
    }
}

#[tokio::test]
async fn a_frozen_server_is_an_unknown_answer_and_nothing_is_lost() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let a = run("a");
    server.pause();
    let cut = store
        .history()
        .append(vec![append(&a, Expected::Nothing, 1, None)])
        .await;
    assert!(matches!(cut[0], Err(AppendError::Unknown(_))), "{cut:?}");
    server.resume();
    // The late append arrives after all: the repeat meets a conflict, or is the one that wins.
    await_condition("the append to be on record", SOON, || async {
        let _ = store
            .history()
            .append(vec![append(&a, Expected::Nothing, 1, None)])
            .await;
        matches!(
            store
                .history()
                .load(std::slice::from_ref(&a))
                .await
                .as_deref(),
            Ok([Some(_)])
        )
    })
    .await;
    let again = store
        .history()
        .append(vec![append(&a, Expected::Nothing, 1, None)])
        .await;
    assert_eq!(again, [Err(AppendError::Conflict)]);
}

#[tokio::test]
async fn a_deleted_queue_is_made_again_and_its_loss_noticed() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let before = *store.losses().borrow();
    let js = async_nats::jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
    js.delete_stream("dormer-inbox2").await.expect("deleted");
    // Nothing is read from this store yet, so the message that no stream accepts is the first sign.
    await_condition("the queue to be made again", SOON, || async {
        let message = (run("a"), b"new".to_vec());
        store.inbox().put(vec![message]).await.is_ok()
    })
    .await;
    let losses = store.losses();
    await_condition("the loss to be noticed", SOON, || async {
        *losses.borrow() > before
    })
    .await;
    assert_eq!(taken(&store).await.bytes, b"new");
}

/// Whether a process that begins now finds the queues lost.
async fn begins_with_a_loss(server: &NatsServer) -> bool {
    let open = || async { NatsStore::open(&options(server)).await.ok() };
    let store = await_some("a store", SOON, open).await;
    *store.losses().borrow() > 0
}

async fn rebuilt(server: &NatsServer) {
    let store = NatsStore::open(&options(server)).await.expect("a store");
    rebuild::<Old>(&Arc::new(store)).await.expect("rebuilt");
}

#[tokio::test]
async fn a_loss_is_noticed_at_each_start_until_it_is_made_good() {
    let mut server = started!(NatsServer::start(NatsOptions {
        sync_always: true,
        ..NatsOptions::default()
    }));
    rebuilt(&server).await;
    assert!(!begins_with_a_loss(&server).await, "the queues are whole");
    server.kill();
    server.restart();
    for start in 1..=2 {
        assert!(
            begins_with_a_loss(&server).await,
            "nobody has made the loss good at start {start}"
        );
    }
    rebuilt(&server).await;
    assert!(!begins_with_a_loss(&server).await, "the loss is made good");
}

#[tokio::test]
async fn a_queue_that_is_lost_during_a_rebuild_is_rebuilt_again() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let begun = store.canaries().await.expect("canaries");
    let js = async_nats::jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
    js.delete_stream("dormer-tasks").await.expect("deleted");
    assert!(begins_with_a_loss(&server).await, "it is made again");
    store.note_whole(&begun).await.expect("noted");
    assert!(
        begins_with_a_loss(&server).await,
        "the queue is not the one that was rebuilt"
    );
}

#[tokio::test]
async fn a_rewound_history_ends_the_store() {
    let mut server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let a = run("a");
    let mut expected = Expected::Nothing;
    for seq in 1..=3 {
        let answer = store
            .history()
            .append(vec![append(&a, expected, seq, None)])
            .await;
        expected = Expected::At(*answer[0].as_ref().expect("stored"));
    }
    // An old backup is put in the place of the server's files.
    server.stop();
    std::fs::remove_dir_all(server.store_dir()).expect("removed");
    server.restart();
    NatsStore::open(&options(&server))
        .await
        .expect("a new store in its place");
    let broken = await_some("the fault to be noticed", SOON, || async {
        match store.history().load(std::slice::from_ref(&a)).await {
            Err(StoreError::Broken(why)) => Some(why),
            _ => None,
        }
    })
    .await;
    assert!(broken.contains("acknowledged sequence"), "{broken}");
}

/// News about the page of the run `page`.
fn page_observed(ours: Incarnation, resource: u64) -> (RunId, Vec<u8>) {
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Page".into(),
        uid: "page".into(),
    };
    let version = Version {
        epoch: Epoch(1),
        resource,
    };
    let size = u32::try_from(resource).expect("small");
    let message: InboxMessageOf<Old> = InboxMessage {
        run: builds::run("page"),
        incarnation: Some(ours),
        body: Inbound::Observed(Observation {
            object,
            version,
            fact: Some(old::Fact { size }),
            may_start: true,
        }),
    };
    let (bytes, _) = envelope::encode(&message, 1).expect("a message");
    (message.run, bytes)
}

#[tokio::test]
async fn a_run_that_another_engine_deleted_ends_nobody() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = Arc::new(NatsStore::open(&options(&server)).await.expect("a store"));
    let theirs = NatsStore::open(&options(&server))
        .await
        .expect("another process");
    let mut shard = Shard::<Old, _>::new(Arc::clone(&store), "test", 8);
    let mut told = async |resource| {
        let delivery = page_observed(store.incarnation(), resource);
        store.inbox().put(vec![delivery]).await.expect("put");
        shard.turn(vec![taken(&store).await]).await
    };
    let page = builds::run("page");
    told(1).await.expect("stored");
    // Another engine takes the run from the store, and is faster with the next record.
    let (_, bytes) = page_observed(store.incarnation(), 2);
    let theirs = Arc::new(theirs);
    let mut other = Shard::<Old, _>::new(Arc::clone(&theirs), "other", 8);
    let delivery = Delivery {
        bytes,
        token: u64::MAX,
        cause: "2".into(),
        deliveries: 1,
    };
    other.turn(vec![delivery]).await.expect("stored");
    told(3).await.expect("a conflict, decided again");
    let stored = theirs
        .history()
        .load(std::slice::from_ref(&page))
        .await
        .expect("loaded");
    let revision = stored[0].as_ref().expect("a record").revision;
    theirs
        .reader()
        .forget(&page, revision)
        .await
        .expect("deleted");
    for resource in 4..7 {
        told(resource).await.expect("the engine goes on");
    }
    let stored = store
        .history()
        .load(std::slice::from_ref(&page))
        .await
        .expect("loaded");
    assert!(stored[0].is_some(), "the run begins anew");
}
