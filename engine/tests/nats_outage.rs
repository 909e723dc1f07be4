//! Outages and losses on a real server: acknowledged data stays, and lost data is noticed.

use crate::{
    builds::{self, old, old::Old},
    nats_common,
};

use dormer_engine::{
    nats::NatsStore,
    port::{
        Ack, AppendError, Clock, Delivery, Expected, Head, History, HistoryReader, Inbox,
        MissedRecord, Ports, Quarantine, QuarantineNote, StoreError,
    },
    quarantine::{KnownNotes, release},
    rebuild::{REVISITS_PER_S, rebuild},
    shard::Shard,
};
use dormer_engine_core::InboxMessageOf;
use dormer_proto::{
    envelope,
    id::{Attempt, Epoch, Incarnation, Revision, RunId, Seq, TaskId, Timestamp},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
    subject::{Names, history_stream_of},
};
use dormer_testkit::{NatsOptions, NatsServer, await_condition, await_some, started};
use futures::StreamExt;
use nats_common::{append, options, run, taken};
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const SOON: Duration = Duration::from_secs(30);
/// Polls in which a future sends a page of orders and alarms: tokio lets one poll send 128 messages.
const TURNS_TO_SEND: usize = 64;

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
    let store = Arc::new(store);
    let ours = store.incarnation();
    // More runs than a pass visits in a second, after which it pauses.
    let keys: Vec<String> = (0..=REVISITS_PER_S).map(|n| format!("m{n}")).collect();
    let mut shard = Shard::<Old, _>::new(Arc::clone(&store), "test", 8);
    let begin = keys.iter().map(|key| delivery(observed(ours, key, 1)));
    shard.turn(begin.collect()).await.expect("each has a task");
    let client = async_nats::connect(server.url()).await.expect("a client");
    let orders = Names::default().orders("task");
    let mut orders = client.subscribe(orders).await.expect("subscribed");
    client.flush().await.expect("flushed");
    {
        let mut rebuilding = pin!(rebuild::<Old>(&store));
        for _ in 0..REVISITS_PER_S {
            tokio::select! {
                biased;
                order = orders.next() => drop(order.expect("an order")),
                ended = &mut rebuilding => panic!("it ended before its pause: {ended:?}"),
            }
        }
        // The alarms of these runs are sent beside the orders. Half sent, they count as unanswered when the publish is
        // polled again after its time limit.
        for _ in 0..TURNS_TO_SEND {
            tokio::select! {
                biased;
                ended = &mut rebuilding => panic!("it ended before its pause: {ended:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        // It stands still from here on, until it is polled again. Its answers come meanwhile: the stream has acknowledged
        // those orders once it acknowledges this one, and without that it would be deleted before it has.
        let js = async_nats::jetstream::new(client);
        let task = TaskId {
            run: run("last"),
            seq: Seq(1),
            ordinal: 0,
        };
        let last = Names::default().order("task", &task, Attempt(1));
        let sent = js.publish(last, "".into()).await.expect("sent");
        sent.await.expect("acknowledged");
        js.delete_stream("dormer-tasks").await.expect("deleted");
        assert!(begins_with_a_loss(&server).await, "it is made again");
        let pass = rebuilding.await.expect("rebuilt");
        assert_eq!(pass.runs, keys.len());
    }
    assert!(
        begins_with_a_loss(&server).await,
        "the queue is not the one that was rebuilt"
    );
    rebuilt(&server).await;
    assert!(!begins_with_a_loss(&server).await, "the next one is");
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

/// Delivery of a message that no inbox has.
fn delivery((run, bytes): (RunId, Vec<u8>)) -> Delivery {
    Delivery {
        bytes,
        token: u64::MAX,
        cause: run.to_string(),
        deliveries: 1,
    }
}

/// News about the page of the run `page`.
fn page_observed(ours: Incarnation, resource: u64) -> (RunId, Vec<u8>) {
    observed(ours, "page", resource)
}

/// News about the page of a run.
fn observed(ours: Incarnation, key: &str, resource: u64) -> (RunId, Vec<u8>) {
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Page".into(),
        uid: key.to_owned(),
    };
    let version = Version {
        epoch: Epoch(1),
        resource,
    };
    let size = u32::try_from(resource).expect("small");
    let message: InboxMessageOf<Old> = InboxMessage {
        run: builds::run(key),
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
        told(resource).await.expect("the engine continues");
    }
    let stored = store
        .history()
        .load(std::slice::from_ref(&page))
        .await
        .expect("loaded");
    assert!(stored[0].is_some(), "the run begins anew");
}

/// Clock that a test sets, in milliseconds.
#[derive(Clone, Default)]
struct SetClock(Arc<AtomicU64>);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// Deletes the last record of a run, as `nats stream rmm` does. Returns its sequence.
async fn delete_last_record(server: &NatsServer, run: &RunId) -> u64 {
    let js = async_nats::jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
    let names = Names::default();
    let history = names.history_stream(history_stream_of(run));
    let history = js.get_stream(history).await.expect("a stream");
    let subject = names.history(run);
    let last = history.get_last_raw_message_by_subject(&subject).await;
    let last = last.expect("a record").sequence;
    assert!(history.delete_message(last).await.expect("deleted"));
    last
}

#[tokio::test]
async fn a_run_whose_last_record_is_deleted_stops_no_other_and_is_quarantined() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let clock = SetClock::default();
    let store = NatsStore::open_with(&options(&server), clock.clone()).await;
    let store = Arc::new(store.expect("a store"));
    let ours = store.incarnation();
    let mut shard = Shard::<Old, _>::new(Arc::clone(&store), "test", 8);
    let mut resources = 0..;
    let mut turn = async |others: &[&str]| {
        let resource = resources.next().expect("another one");
        let messages = [&["page"], others].concat().into_iter();
        let messages = messages.map(|key| delivery(observed(ours, key, resource)));
        shard
            .turn(messages.collect())
            .await
            .expect("the engine continues");
    };
    let seqs = async || {
        let heads = store
            .reader()
            .heads(None::<&RunId>, 10)
            .await
            .expect("heads");
        let seq = |head: Head| (head.run.key().to_owned(), head.seq.0);
        heads.into_iter().map(seq).collect::<BTreeMap<_, _>>()
    };
    let notes = async || store.quarantine().notes().await.expect("notes");
    let page = builds::run("page");
    turn(&[]).await;
    turn(&[]).await;
    let last = delete_last_record(&server, &page).await;
    // The first turn finds the run in memory, the others read it.
    turn(&["a"]).await;
    turn(&["a", "b"]).await;
    let those = |page| {
        BTreeMap::from([("page", page), ("a", 2), ("b", 1)].map(|(key, seq)| (key.to_owned(), seq)))
    };
    assert_eq!(seqs().await, those(1));
    for _ in 0..20 {
        turn(&[]).await;
    }
    let doubt = notes().await.remove(0);
    let missed = doubt.missed.map(|it| it.revision.0);
    assert_eq!((missed, doubt.holds("test")), (Some(last), false));
    assert!(
        !release(store.as_ref(), &page).await.expect("read"),
        "it is not quarantined: the answer may be that of a deposed leader"
    );
    clock.0.store(60_000, Ordering::Relaxed);
    turn(&[]).await;
    let noted = notes().await.remove(0);
    assert_eq!(noted.missed, None);
    assert_eq!(
        (noted.run.clone(), noted.code.as_str()),
        (page, "RecordLost")
    );
    let before = last - 1;
    let why = format!("acknowledged at revision {last}; the store now has {before}");
    assert!(noted.why.contains(&why), "{}", noted.why);
    assert_eq!(seqs().await, those(1));
    // After a release the run continues from the record that is there.
    let removed = store.quarantine().remove(&noted.run, noted.version).await;
    removed.expect("released");
    turn(&[]).await;
    assert_eq!(seqs().await, those(2));
    assert_eq!(notes().await, []);
}

#[tokio::test]
async fn an_engine_that_begins_knows_the_record_that_another_one_missed() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let clock = SetClock::default();
    let store = NatsStore::open_with(&options(&server), clock.clone()).await;
    let store = Arc::new(store.expect("a store"));
    let ours = store.incarnation();
    let page = builds::run("page");
    let notes = async || store.quarantine().notes().await.expect("notes");
    let begin = async || {
        let known = Arc::new(KnownNotes::default());
        known.refresh(store.as_ref()).await.expect("notes");
        Shard::<Old, _>::new(Arc::clone(&store), "test", 8).with_quarantine_notes(known)
    };
    let mut resources = 1..;
    let mut turn = async |shard: &mut Shard<Old, _>| {
        let news = page_observed(ours, resources.next().expect("another one"));
        let turn = shard.turn(vec![delivery(news)]).await;
        turn.expect("the engine continues");
    };
    let stored = async || {
        let stored = store.history().load(std::slice::from_ref(&page)).await;
        let stored = stored.expect("loaded").remove(0);
        stored.expect("a record").revision
    };
    let mut first = begin().await;
    turn(&mut first).await;
    turn(&mut first).await;
    let last = Revision(delete_last_record(&server, &page).await);
    turn(&mut first).await;
    drop(first);
    let mut second = begin().await;
    for _ in 0..20 {
        turn(&mut second).await;
    }
    assert!(
        stored().await < last,
        "no engine continues from an older record"
    );
    clock.0.store(60_000, Ordering::Relaxed);
    // A third one begins after the minute, and reads as often as it must.
    let mut third = begin().await;
    for _ in 0..8 {
        turn(&mut third).await;
    }
    let noted = notes().await.remove(0);
    assert_eq!((noted.code.as_str(), noted.missed), ("RecordLost", None));
    assert!(stored().await < last);
    let removed = store.quarantine().remove(&page, noted.version).await;
    removed.expect("released");
    turn(&mut third).await;
    assert!(stored().await > last, "after the release it continues");

    // A record that is there is missed no more.
    let missed = MissedRecord {
        revision: stored().await,
        seq: Seq(2),
    };
    let doubt = QuarantineNote {
        code: "RecordMissed".into(),
        builds: Vec::new(),
        missed: Some(missed),
        version: 0,
        ..noted
    };
    store.quarantine().put(doubt).await.expect("noted");
    let mut fourth = begin().await;
    let before = stored().await;
    turn(&mut fourth).await;
    assert!(stored().await > before);
    assert_eq!(notes().await, []);
}
