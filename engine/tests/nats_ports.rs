//! Ports of the NATS adapter on real servers, the current and the oldest supported: persistence, and the texts of
//! refusals.

use crate::nats_common;

use async_nats::jetstream::{consumer::pull, stream::Republish};
use dormer_engine::{
    nats::{Durability, Login, NatsStore, OpenError, Options, ServerSync, Tls},
    port::{
        Ack, Alarms, AppendError, Clock, DeadLetter, DeadLetters, Expected, History, HistoryReader,
        Inbox, OrderOut, Ports, Quarantine, QuarantineNote, SystemClock, TaskQueue,
    },
};
use dormer_nats::signing::SIGNATURE_HEADER;
use dormer_proto::{
    address::{Address, Kind, Origin},
    envelope,
    id::{Attempt, Epoch, RunId, Seq, TaskId, Timestamp},
    message::{Inbound, InboxMessage, NoSignal, ObjectRef, Observation, Version},
    subject::Names,
};
use dormer_testkit::{
    Login as ServerLogin, NatsOptions, NatsServer, NatsTls, NatsVersion, TestCa, await_condition,
    started,
};
use futures::StreamExt;
use nats_common::{append, options, run, taken};
use std::time::Duration;

/// How long a test waits for what must come.
const SOON: Duration = Duration::from_secs(30);
const VERSIONS: [NatsVersion; 2] = [NatsVersion::Current, NatsVersion::Oldest];

#[tokio::test]
async fn one_writer_wins_and_the_history_is_read_back() {
    for version in VERSIONS {
        let server = started!(NatsServer::start(NatsOptions {
            version,
            ..NatsOptions::default()
        }));
        let store = NatsStore::open(&options(&server)).await.expect("a store");
        let a = run("a.b/c");
        let b = run("b");
        let first = store
            .history()
            .append(vec![
                append(&a, Expected::Nothing, 1, Some(5_000)),
                append(&b, Expected::Nothing, 1, None),
            ])
            .await;
        let at = *first[0].as_ref().expect("stored");
        assert!(first[1].is_ok());
        let again = store
            .history()
            .append(vec![append(&a, Expected::Nothing, 1, None)])
            .await;
        assert_eq!(again, [Err(AppendError::Conflict)]);
        let second = store
            .history()
            .append(vec![append(&a, Expected::At(at), 2, Some(7_000))])
            .await;
        let now = *second[0].as_ref().expect("stored");
        let nobody = run("nobody");
        let loaded = store
            .history()
            .load(&[b.clone(), nobody, a.clone()])
            .await
            .expect("loaded");
        assert_eq!(
            loaded[0].as_ref().map(|s| s.bytes.clone()),
            Some(format!("{b}@1").into_bytes())
        );
        assert_eq!(loaded[1], None);
        assert_eq!(loaded[2].as_ref().map(|s| s.revision), Some(now));
        let records = store
            .reader()
            .records(&a, Seq(2), 10)
            .await
            .expect("records");
        assert_eq!(records, [format!("{a}@2").into_bytes()]);
        let heads = store.reader().heads(None, 1).await.expect("heads");
        assert_eq!(
            (heads[0].run.clone(), heads[0].deadline),
            (a.clone(), Some(Timestamp(7_000)))
        );
        let rest = store.reader().heads(Some(&a), 10).await.expect("heads");
        assert_eq!(rest.iter().map(|head| &head.run).collect::<Vec<_>>(), [&b]);
        store.reader().forget(&a, at).await.expect("an answer");
        assert!(
            store
                .history()
                .load(std::slice::from_ref(&a))
                .await
                .expect("loaded")[0]
                .is_some()
        );
        store.reader().forget(&a, now).await.expect("an answer");
        assert_eq!(
            store
                .history()
                .load(std::slice::from_ref(&a))
                .await
                .expect("loaded"),
            [None]
        );
        assert_eq!(
            store
                .history()
                .append(vec![append(&a, Expected::At(now), 3, None)])
                .await,
            [Err(AppendError::Conflict)]
        );
    }
}

#[tokio::test]
async fn a_note_that_cannot_be_read_counts_as_none_and_is_replaced() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let client = async_nats::connect(server.url()).await.expect("a client");
    let js = async_nats::jetstream::new(client);
    let run = run("a");
    let subject = Names::default().quarantine(&run);
    let sent = js.publish(subject, "nonsense".into()).await.expect("sent");
    sent.await.expect("stored");
    let notes = async || {
        let notes = store.quarantine().notes_of(std::slice::from_ref(&run));
        notes.await.expect("an answer").remove(0)
    };
    assert_eq!(notes().await, None);
    let note = QuarantineNote {
        run: run.clone(),
        code: "RecordRefused".into(),
        why: "too large".into(),
        at: Timestamp(1),
        builds: vec!["one".into()],
        released: None,
        missed: None,
        version: 0,
    };
    let version = store.quarantine().put(note.clone()).await.expect("put");
    let stored = QuarantineNote {
        version,
        ..note.clone()
    };
    assert_eq!(notes().await, Some(stored));
    let other = store.quarantine().put(note).await;
    other.expect_err("a note that can be read stays");
}

#[tokio::test]
async fn paging_yields_each_of_thousands_of_heads_once() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let batch =
        (0..12_000).map(|i| append(&run(&format!("{i:05}")), Expected::Nothing, 1, Some(i)));
    let answers = store.history().append(batch.collect()).await;
    assert!(answers.iter().all(Result::is_ok));
    let mut count = 0_u64;
    let mut after = None;
    loop {
        let page = store
            .reader()
            .heads(after.as_ref(), 1_000)
            .await
            .expect("heads");
        let Some(last) = page.last() else { break };
        for head in &page {
            assert_eq!(
                (head.run.clone(), head.deadline),
                (run(&format!("{count:05}")), Some(Timestamp(count)))
            );
            count += 1;
        }
        after = Some(last.run.clone());
    }
    assert_eq!(count, 12_000);
    let runs: Vec<_> = (0..3_000).map(|i| run(&format!("{i:05}"))).collect();
    let loaded = store.history().load(&runs).await.expect("loaded");
    assert!(loaded.iter().zip(&runs).all(|(stored, run)| {
        stored
            .as_ref()
            .is_some_and(|stored| stored.bytes == format!("{run}@1").into_bytes())
    }));
}

#[tokio::test]
async fn messages_are_redelivered_until_acknowledged_and_alarms_fire() {
    for version in VERSIONS {
        let server = started!(NatsServer::start(NatsOptions {
            version,
            ..NatsOptions::default()
        }));
        let store = NatsStore::open(&options(&server)).await.expect("a store");
        let to = run("ns/a.b");
        store
            .inbox()
            .put(vec![(to.clone(), b"one".to_vec())])
            .await
            .expect("put");
        let first = taken(&store).await;
        assert_eq!(first.bytes, b"one");
        store
            .inbox()
            .acknowledge(vec![(first.token, Ack::Again(50))])
            .await;
        let second = taken(&store).await;
        assert_eq!(second.bytes, b"one");
        store
            .inbox()
            .acknowledge(vec![(second.token, Ack::Done)])
            .await;
        // The earlier alarm replaces the later one; the cleared alarm does not fire before it.
        let now = SystemClock.now();
        let cleared = run("cleared");
        store
            .alarms()
            .set(vec![
                (to.clone(), Some(now.plus_ms(3_600_000))),
                (cleared.clone(), Some(now.plus_ms(400))),
            ])
            .await
            .expect("set");
        store
            .alarms()
            .set(vec![(to.clone(), Some(now.plus_ms(600))), (cleared, None)])
            .await
            .expect("set");
        let due = taken(&store).await;
        assert_eq!(
            Some(due.bytes),
            dormer_engine::local::timer_due(&to, store.incarnation())
        );
        assert!(SystemClock.now() >= now.plus_ms(600), "not before its time");
        store
            .inbox()
            .acknowledge(vec![(due.token, Ack::Done)])
            .await;
        store.close().await;
        assert!(
            store.inbox().take(1).await.is_err(),
            "a closed inbox gives nothing"
        );
    }
}

#[tokio::test]
async fn an_order_published_twice_is_one_and_stays_until_the_next_attempt_supersedes_it() {
    for version in VERSIONS {
        let server = started!(NatsServer::start(NatsOptions {
            version,
            ..NatsOptions::default()
        }));
        let store = NatsStore::open(&options(&server)).await.expect("a store");
        let task = TaskId {
            run: run("a"),
            seq: Seq(3),
            ordinal: 0,
        };
        let order = |attempt| OrderOut {
            task: task.clone(),
            attempt: Attempt(attempt),
            class: "host",
            bytes: vec![1],
        };
        let js =
            async_nats::jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
        let stream = js.get_stream("dormer-tasks").await.expect("the stream");
        for (attempt, last) in [(1, 1), (1, 1), (2, 2), (2, 2)] {
            let published = store.tasks().publish(vec![order(attempt)]).await;
            published.expect("published");
            let orders = stream.info_builder().subjects("dormer.tasks.host.>");
            let orders = orders
                .fetch()
                .await
                .expect("info")
                .info
                .state
                .subjects_count;
            assert_eq!(orders, 2, "the marker, and one order");
            let subject = Names::default().order("host", &task, Attempt(last));
            let found = stream.get_last_raw_message_by_subject(&subject).await;
            assert!(found.is_ok(), "the order of attempt {last}");
        }
    }
}

#[tokio::test]
async fn dead_letters_stay_until_removed() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let message = |reason: &str, run| DeadLetter {
        id: 0,
        run,
        reason: reason.into(),
        at: Timestamp(7),
        origin: "inbox:1".into(),
        bytes: vec![0, 159, 146],
    };
    store
        .dead()
        .put(message("not an\nenvelope", None))
        .await
        .expect("put");
    store
        .dead()
        .put(message("damaged", Some(run("a"))))
        .await
        .expect("put");
    let list = store.dead().list(0, 10).await.expect("list");
    assert_eq!(
        list.iter().map(|l| l.reason.as_str()).collect::<Vec<_>>(),
        ["not an envelope", "damaged"]
    );
    assert_eq!(
        (list[1].run.clone(), list[1].at, list[1].bytes.clone()),
        (Some(run("a")), Timestamp(7), vec![0, 159, 146])
    );
    store.dead().remove(list[0].id).await.expect("removed");
    store
        .dead()
        .remove(list[0].id)
        .await
        .expect("again is harmless");
    assert_eq!(store.dead().list(0, 10).await.expect("list").len(), 1);
    assert_eq!(store.dead().list(list[1].id, 10).await.expect("list"), []);
}

#[tokio::test]
async fn the_identity_stays_and_epochs_only_grow() {
    let mut server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let who = store.incarnation();
    let first = store.next_epoch().await.expect("an epoch");
    server.restart();
    let again = NatsStore::open(&options(&server)).await.expect("a store");
    assert_eq!(again.incarnation(), who);
    assert!(again.next_epoch().await.expect("an epoch") > first);
    let other = Options {
        prefix: Some("other".into()),
        ..options(&server)
    };
    assert_ne!(
        NatsStore::open(&other)
            .await
            .expect("another store")
            .incarnation(),
        who
    );
}

#[tokio::test]
async fn an_unfit_server_or_stream_is_refused_with_what_to_change() {
    let plain = started!(NatsServer::start(NatsOptions {
        jetstream: false,
        ..NatsOptions::default()
    }));
    let refused = NatsStore::open(&options(&plain))
        .await
        .err()
        .expect("refused");
    assert!(
        refused.to_string().contains("jetstream { store_dir"),
        "{refused}"
    );

    let lazy = started!(NatsServer::start(NatsOptions {
        monitor: true,
        ..NatsOptions::default()
    }));
    let strict = Options {
        monitor: lazy.monitor_url(),
        durability: Durability::PowerLossSafe,
        ..options(&lazy)
    };
    assert_eq!(
        NatsStore::open(&strict).await.err(),
        Some(OpenError::LazySync)
    );
    let accepting = Options {
        durability: Durability::LazyAccepted,
        ..strict
    };
    assert_eq!(
        NatsStore::open(&accepting).await.expect("a store").synced(),
        ServerSync::AtIntervals
    );

    let synced = NatsOptions {
        monitor: true,
        sync_always: true,
        ..NatsOptions::default()
    };
    let synced = started!(NatsServer::start(synced));
    let strict = Options {
        monitor: synced.monitor_url(),
        durability: Durability::PowerLossSafe,
        ..options(&synced)
    };
    assert_eq!(
        NatsStore::open(&strict).await.expect("a store").synced(),
        ServerSync::EveryWrite
    );

    let js = async_nats::jetstream::new(async_nats::connect(lazy.url()).await.expect("a client"));
    js.delete_stream("dormer-history-2").await.expect("deleted");
    let refused = NatsStore::open(&accepting).await.err().expect("refused");
    assert!(
        refused
            .to_string()
            .contains("the stream dormer-history-2 does not exist"),
        "{refused}"
    );
    js.delete_stream("dormer-dead").await.expect("deleted");
    let foreign = async_nats::jetstream::stream::Config {
        name: "other-dead".into(),
        subjects: vec!["other.dead.>".into()],
        ..Default::default()
    };
    js.create_stream(foreign).await.expect("created");
    let other = Options {
        prefix: Some("other".into()),
        ..accepting
    };
    let refused = NatsStore::open(&other).await.err().expect("refused");
    assert!(
        refused
            .to_string()
            .starts_with("stream other-dead has discard Old, but must have New"),
        "{refused}"
    );
}

/// A stolen login of an engine may have left it: the server then copies what arrives there to another subject.
#[tokio::test]
async fn a_stream_whose_messages_the_server_copies_elsewhere_is_refused() {
    for version in VERSIONS {
        let server = started!(NatsServer::start(NatsOptions {
            version,
            ..NatsOptions::default()
        }));
        let store = NatsStore::open(&options(&server)).await.expect("a store");
        let js =
            async_nats::jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
        let stream = js.get_stream("dormer-changes").await.expect("a stream");
        let mut altered = stream.cached_info().config.clone();
        altered.republish = Some(Republish {
            source: ">".into(),
            destination: "elsewhere.>".into(),
            headers_only: false,
        });
        js.update_stream(altered).await.expect("altered");
        let refused = NatsStore::open(&options(&server)).await.err();
        let says = refused.expect("refused").to_string();
        assert!(
            says.contains("dormer-changes has copies by republish, but must have none"),
            "{says}"
        );
        drop(store);
    }
}

/// With the subjects of an earlier build such a stream is not taken for one that an earlier build made.
#[tokio::test]
async fn a_stream_whose_messages_are_copied_is_refused_with_an_earlier_builds_subjects_too() {
    for version in VERSIONS {
        let server = started!(NatsServer::start(NatsOptions {
            version,
            ..NatsOptions::default()
        }));
        drop(NatsStore::open(&options(&server)).await.expect("a store"));
        let js =
            async_nats::jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
        let stream = js.get_stream("dormer-tasks").await.expect("a stream");
        let mut altered = stream.cached_info().config.clone();
        altered.subjects = vec!["dormer.tasks.>".into()];
        altered.republish = Some(Republish {
            source: ">".into(),
            destination: "elsewhere.>".into(),
            headers_only: false,
        });
        js.update_stream(altered).await.expect("altered");
        let refused = NatsStore::open(&options(&server)).await.err();
        let says = refused.expect("refused").to_string();
        assert!(
            says.contains("dormer-tasks has copies by republish, but must have none"),
            "{says}"
        );
    }
}

#[tokio::test]
async fn every_login_works_and_a_wrong_one_says_so() {
    let user = ServerLogin::User {
        user: "u".into(),
        password: "p".into(),
    };
    for (server_login, login) in [
        (
            user,
            Login::User {
                user: "u".into(),
                password: "p".into(),
            },
        ),
        (ServerLogin::Token("t".into()), Login::Token("t".into())),
    ] {
        let server = started!(NatsServer::start(NatsOptions {
            login: server_login,
            ..NatsOptions::default()
        }));
        let right = Options {
            login,
            ..options(&server)
        };
        NatsStore::open(&right).await.expect("let in");
        let wrong = Options {
            login: Login::Token("wrong".into()),
            ..options(&server)
        };
        let refused = NatsStore::open(&wrong).await.err().expect("refused");
        assert!(refused.to_string().contains("authorization"), "{refused}");
    }
}

#[tokio::test]
async fn mutual_tls_works_and_an_unknown_authority_is_refused() {
    let ca = TestCa::new();
    let identity = ca.issue("server", &["127.0.0.1", "localhost"]);
    let tls = NatsTls {
        identity,
        client_ca: Some(ca.certificate()),
    };
    let server = started!(NatsServer::start(NatsOptions {
        tls: Some(tls),
        ..NatsOptions::default()
    }));
    let dir = dormer_testkit::test_dir("tls");
    let write = |name: &str, pem: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, pem).expect("written");
        path
    };
    let client = ca.issue("dormer", &["dormer"]);
    let pair = (
        write("client.pem", &client.certificate),
        write("client.key", &client.key),
    );
    let tls = Tls {
        ca: Some(write("ca.pem", &ca.certificate())),
        identity: Some(pair),
        required: true,
    };
    let right = Options {
        tls: tls.clone(),
        ..options(&server)
    };
    let store = NatsStore::open(&right).await.expect("a store over TLS");
    assert_eq!(
        store.history().load(&[run("a")]).await.expect("loaded"),
        [None]
    );
    let stranger = write("stranger.pem", &TestCa::new().certificate());
    let wrong = Options {
        tls: Tls {
            ca: Some(stranger),
            ..tls
        },
        ..options(&server)
    };
    assert!(matches!(
        NatsStore::open(&wrong).await.err(),
        Some(OpenError::Connect { .. })
    ));
}

#[tokio::test]
async fn a_record_too_large_is_refused_for_good() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let mut large = append(&run("a"), Expected::Nothing, 1, None);
    large.bytes = vec![0; 2 << 20];
    let answer = tokio::time::timeout(Duration::from_secs(5), store.history().append(vec![large]));
    let answer = answer.await.expect("an answer").remove(0);
    assert!(matches!(answer, Err(AppendError::Refused(_))), "{answer:?}");
}

#[tokio::test]
async fn a_process_that_takes_nothing_holds_nothing_back() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let reader = NatsStore::open(&options(&server)).await.expect("a store");
    let engine = NatsStore::open(&options(&server)).await.expect("a store");
    for at in 0..20_u8 {
        reader
            .inbox()
            .put(vec![(run("a"), vec![at])])
            .await
            .expect("put");
    }
    for _ in 0..20 {
        let delivery = taken(&engine).await;
        engine
            .inbox()
            .acknowledge(vec![(delivery.token, Ack::Done)])
            .await;
    }
}

/// An observation of the object `uid`, as a message.
fn observed(run: &RunId, uid: &str, resource: u64) -> Vec<u8> {
    let body: Inbound<u64, (), NoSignal> = Inbound::Observed(Observation {
        object: ObjectRef {
            cluster: String::new(),
            kind: "Node".into(),
            uid: uid.into(),
        },
        version: Version {
            epoch: Epoch(1),
            resource,
        },
        fact: Some(resource),
        may_start: true,
    });
    let message = InboxMessage {
        run: run.clone(),
        incarnation: None,
        body,
    };
    envelope::encode(&message, 0).expect("a message").0
}

#[tokio::test]
async fn a_repeat_replaces_what_it_repeats() {
    for version in VERSIONS {
        let server = started!(NatsServer::start(NatsOptions {
            version,
            ..NatsOptions::default()
        }));
        let store = NatsStore::open(&options(&server)).await.expect("a store");
        let a = run("a.b/c");
        for resource in 1..=50 {
            let all = ["u", "v"].map(|uid| (a.clone(), observed(&a, uid, resource)));
            store.inbox().put(all.into()).await.expect("put");
        }
        // One of them is replaced while it is in the hands of an engine.
        let first = taken(&store).await;
        let second = taken(&store).await;
        let mut bodies = [&first, &second].map(|delivery| delivery.bytes.clone());
        bodies.sort();
        let mut wanted = [observed(&a, "u", 50), observed(&a, "v", 50)];
        wanted.sort();
        assert_eq!(bodies, wanted);
        let newer = observed(&a, "u", 51);
        store
            .inbox()
            .put(vec![(a.clone(), newer.clone())])
            .await
            .expect("put");
        let acks = [first, second].map(|delivery| (delivery.token, Ack::Done));
        store.inbox().acknowledge(acks.into()).await;
        let third = taken(&store).await;
        assert_eq!(third.bytes, newer);
        store
            .inbox()
            .acknowledge(vec![(third.token, Ack::Done)])
            .await;
        let js =
            async_nats::jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
        await_condition("the inbox to be empty", SOON, || async {
            let mut stream = js.get_stream("dormer-inbox2").await.expect("a stream");
            // The marker stays.
            stream.info().await.expect("its state").state.messages == 1
        })
        .await;
    }
}

#[tokio::test]
async fn a_subject_that_says_something_else_is_refused_and_a_signature_is_no_hindrance() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let js = async_nats::jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
    let names = Names::default();
    let a = run("a");
    let body = observed(&a, "u", 1);
    let address = Address::of_bytes(&a, &body);
    let put = async |origin, address: &Address| {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(SIGNATURE_HEADER, "some-signature");
        let subject = names.message(origin, address);
        let sent = js.publish_with_headers(subject, headers, body.clone().into());
        sent.await.expect("sent").await.expect("stored");
    };
    // A worker may not observe, whatever its subject says.
    put(Origin::Worker, &address).await;
    for told in [
        Address {
            kind: Kind::Report,
            ..address.clone()
        },
        Address {
            kind: Kind::Other,
            ..address.clone()
        },
        Address {
            run: run("b"),
            ..address.clone()
        },
        Address {
            identity: "v".into(),
            ..address.clone()
        },
    ] {
        put(Origin::Worker, &told).await;
        put(Origin::Watcher, &told).await;
    }
    put(Origin::Watcher, &address).await;
    let delivery = taken(&store).await;
    assert_eq!(delivery.bytes, body);
    let acks = vec![(delivery.token, Ack::Done)];
    store.inbox().acknowledge(acks).await;
    let empty = await_condition("the inbox to be empty", SOON, || async {
        let mut stream = js.get_stream("dormer-inbox2").await.expect("a stream");
        stream.info().await.expect("its state").state.messages == 1
    });
    // Other partitions are read a moment later: an engine continues to take.
    tokio::select! {
        () = empty => {}
        more = store.inbox().take(10) => panic!("a forged message was taken: {more:?}"),
    }
}

/// A clock that is so many milliseconds ahead.
struct Ahead(u64);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus_ms(self.0)
    }
}

/// Two days.
const LATER_MS: u64 = 2 * 24 * 3_600_000;

#[tokio::test]
async fn the_inbox_of_earlier_builds_is_drained_and_then_deleted() {
    for version in VERSIONS {
        let server = started!(NatsServer::start(NatsOptions {
            version,
            ..NatsOptions::default()
        }));
        let js =
            async_nats::jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
        // As the build before this one created it, with its marker.
        let old = async_nats::jetstream::stream::Config {
            name: "dormer-inbox".into(),
            subjects: vec!["dormer.inbox.>".into()],
            retention: async_nats::jetstream::stream::RetentionPolicy::WorkQueue,
            storage: async_nats::jetstream::stream::StorageType::Memory,
            allow_direct: true,
            ..Default::default()
        };
        js.create_stream(old).await.expect("a stream");
        let a = run("a");
        let body = observed(&a, "u", 1);
        for (subject, body) in [
            ("dormer.inbox.canary", b"tweet".to_vec()),
            ("dormer.inbox.machine.a", body.clone()),
        ] {
            let sent = js.publish(subject, body.into()).await.expect("sent");
            sent.await.expect("stored");
        }
        let store = NatsStore::open(&options(&server)).await.expect("a store");
        let at = async |ms| NatsStore::open_with(&options(&server), Ahead(ms)).await;
        let ahead = at(LATER_MS).await.expect("a store");
        let later = at(LATER_MS + 11 * 60_000).await.expect("a store");
        assert_eq!(ahead.retire_old_inbox().await, Ok(false), "nobody read it");
        let delivery = taken(&store).await;
        assert_eq!(delivery.bytes, body);
        assert_eq!(ahead.retire_old_inbox().await, Ok(false), "it is in hand");
        let acks = vec![(delivery.token, Ack::Done)];
        store.inbox().acknowledge(acks).await;
        assert_eq!(store.retire_old_inbox().await, Ok(false), "it is in use");
        // An engine of the build before waits for messages: nothing is closed under it.
        let consumer = js.get_consumer_from_stream::<pull::Config, _, _>("engines", "dormer-inbox");
        let consumer = consumer.await.expect("the consumer");
        let mut waits = consumer.messages().await.expect("a pull");
        let polled = futures::poll!(waits.next());
        assert!(polled.is_pending());
        let waiting = async || {
            let stream = js.get_stream("dormer-inbox").await.expect("a stream");
            let info = stream.consumer_info("engines").await.expect("a consumer");
            info.num_waiting
        };
        let some = async || waiting().await > 0;
        await_condition("the earlier engine to wait", SOON, some).await;
        assert_eq!(later.retire_old_inbox().await, Ok(false), "it is awaited");
        let send = async |resource| {
            let message = observed(&run("a"), "u", resource);
            js.publish("dormer.inbox.machine.a", message.into())
                .await
                .expect("sent")
                .await
        };
        send(3).await.expect("the stream is open");
        let message = waits.next().await.expect("a message").expect("a message");
        message.ack().await.expect("acknowledged");
        drop(waits);
        let nobody = async || waiting().await == 0;
        await_condition("nobody to wait", SOON, nobody).await;
        // First it is closed: who still sends to it gets an error, and nothing is lost.
        await_condition("the old inbox to be closed", SOON, || async {
            assert_eq!(ahead.retire_old_inbox().await, Ok(false));
            send(4).await.is_err()
        })
        .await;
        assert_eq!(ahead.retire_old_inbox().await, Ok(false), "not yet");
        assert!(js.get_stream("dormer-inbox").await.is_ok());
        await_condition("the old inbox to be deleted", SOON, || async {
            later.retire_old_inbox().await == Ok(true)
        })
        .await;
        assert!(js.get_stream("dormer-inbox").await.is_err());
        assert!(send(5).await.is_err(), "nobody takes it");
        // And without it.
        let newer = observed(&a, "u", 2);
        let put = store.inbox().put(vec![(a, newer.clone())]).await;
        put.expect("put");
        assert_eq!(taken(&store).await.bytes, newer);
    }
}
