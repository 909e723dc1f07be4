//! Forged messages on a real server: each attack succeeds on a store without keys, and not on one with keys.

use crate::nats_common;

use async_nats::{
    HeaderMap,
    jetstream::{
        self,
        consumer::{AckPolicy, push},
    },
};
use dormer_engine::{
    nats::{NatsStore, Options},
    port::{Ack, Alarms, Clock, DeadLetters, Inbox, OrderOut, Ports, SystemClock, TaskQueue},
};
use dormer_nats::signing::{Keys, Refusal, SIGNATURE_HEADER, Signed, make};
use dormer_proto::{
    address::{Address, Origin},
    envelope,
    id::{Attempt, Epoch, RunId, Seq, Sum, TaskId},
    message::{
        Inbound, InboxMessage, NoSignal, ObjectRef, Observation, Reporter, TaskReport, Version,
    },
    subject::Names,
};
use dormer_testkit::{NatsOptions, NatsServer, await_condition, started};
use futures::StreamExt;
use nats_common::{options, run, taken};
use std::{path::Path, sync::Arc, time::Duration};
use tokio::time::timeout;

const ROLES: [&str; 5] = ["engine", "worker", "approver", "watcher", "console"];
/// How long a test waits for what must come.
const SOON: Duration = Duration::from_secs(30);

fn keys(folder: &Path, name: &str) -> Arc<Keys> {
    let folder = folder.join(name);
    make(&folder, &ROLES, None).expect("keys");
    Arc::new(Keys::open(&folder, &ROLES, false).expect("keys"))
}

fn fact(run: &RunId, uid: &str) -> Vec<u8> {
    let body: Inbound<u64, (), NoSignal> = Inbound::Observed(Observation {
        object: ObjectRef {
            cluster: String::new(),
            kind: "Node".into(),
            uid: uid.into(),
        },
        version: Version {
            epoch: Epoch(1),
            resource: 1,
        },
        fact: Some(1),
        may_start: true,
    });
    let message = InboxMessage {
        run: run.clone(),
        incarnation: None,
        body,
    };
    envelope::encode(&message, 0).expect("a message").0
}

/// Store under a prefix of its own.
async fn store(server: &NatsServer, prefix: &str, keys: Option<Arc<Keys>>) -> NatsStore {
    let options = Options {
        prefix: Some(prefix.into()),
        keys,
        ..options(server)
    };
    NatsStore::open(&options).await.expect("a store")
}

/// What a stranger with access to the server puts into the inbox.
struct Forgery {
    what: &'static str,
    subject: String,
    body: Vec<u8>,
    headers: HeaderMap,
}

/// Every attack on the inbox of the store under `prefix`, with an object of its own for each.
fn forgeries(prefix: &str, incarnation: u64, keys: &Keys, foreign: &Keys) -> Vec<Forgery> {
    let names = Names::with_prefix(prefix);
    let one = |what: &'static str, uid: &str, sign: &dyn Fn(&str, &[u8], &mut HeaderMap)| {
        let body = fact(&run("a"), uid);
        let subject = names.message(Origin::Watcher, &Address::of_bytes(&run("a"), &body));
        let mut headers = HeaderMap::new();
        sign(&subject, &body, &mut headers);
        Forgery {
            what,
            subject,
            body,
            headers,
        }
    };
    let by = |keys: &Keys, role: &str, store: u64, subject: &str, body: &[u8]| {
        let mut headers = HeaderMap::new();
        let signed = Signed {
            incarnation: store,
            subject,
            body,
        };
        keys.sign(role, signed, &mut headers);
        headers
    };
    let elsewhere = Names::with_prefix("elsewhere");
    vec![
        one("no signature", "1", &|_, _, _| {}),
        one("another role's key", "2", &|subject, body, headers| {
            *headers = by(keys, "worker", incarnation, subject, body);
        }),
        one("another message's subject", "3", &|_, body, headers| {
            let other = names.message(
                Origin::Watcher,
                &Address::of_bytes(&run("b"), &fact(&run("b"), "3")),
            );
            *headers = by(keys, "watcher", incarnation, &other, body);
        }),
        one("another prefix", "4", &|_, body, headers| {
            let other = elsewhere.message(Origin::Watcher, &Address::of_bytes(&run("a"), body));
            *headers = by(keys, "watcher", incarnation, &other, body);
        }),
        one("another incarnation", "5", &|subject, body, headers| {
            *headers = by(keys, "watcher", incarnation ^ 1, subject, body);
        }),
        one("a rewritten body", "6", &|subject, _, headers| {
            *headers = by(keys, "watcher", incarnation, subject, b"what was signed");
        }),
        one("an unknown key", "7", &|subject, body, headers| {
            *headers = by(foreign, "watcher", incarnation, subject, body);
        }),
        one("a truncated signature", "8", &|subject, body, headers| {
            let all = by(keys, "watcher", incarnation, subject, body);
            let value = all.get(SIGNATURE_HEADER).expect("a signature").as_str();
            headers.insert(SIGNATURE_HEADER, &value[..value.len() - 8]);
        }),
    ]
}

#[tokio::test]
async fn forged_messages_are_taken_without_keys_and_refused_with_them() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let ours = keys(folder.path(), "a");
    let foreign = keys(folder.path(), "b");
    let client = async_nats::connect(server.url()).await.expect("a client");
    let js = jetstream::new(client.clone());
    for (prefix, defended) in [("open", false), ("shut", true)] {
        let store = store(&server, prefix, defended.then(|| Arc::clone(&ours))).await;
        let forged = forgeries(prefix, store.incarnation().0, &ours, &foreign);
        let count = forged.len();
        for forgery in forged {
            let sent =
                js.publish_with_headers(forgery.subject, forgery.headers, forgery.body.into());
            let sent = sent.await.expect("sent");
            sent.await
                .unwrap_or_else(|e| panic!("{}: {e}", forgery.what));
        }
        // A request's reply subject: who answers publishes there, for a client that may not.
        let names = Names::with_prefix(prefix);
        let body = fact(&run("a"), "9");
        let target = names.message(Origin::Watcher, &Address::of_bytes(&run("a"), &body));
        let mut responder = client
            .subscribe(format!("{prefix}.echo"))
            .await
            .expect("a subscription");
        let asked = client.publish_with_reply(format!("{prefix}.echo"), target, body.into());
        asked.await.expect("asked");
        let request = responder.next().await.expect("a request");
        let reply = request.reply.expect("a reply subject");
        client
            .publish(reply, request.payload)
            .await
            .expect("answered");
        if defended {
            let put = store.inbox().put(vec![(run("a"), fact(&run("a"), "true"))]);
            put.await.expect("put");
            let delivery = taken(&store).await;
            assert_eq!(delivery.bytes, fact(&run("a"), "true"), "the only one");
            store
                .inbox()
                .acknowledge(vec![(delivery.token, Ack::Done)])
                .await;
            let gone = await_condition("every forgery to be noted", SOON, || async {
                let dead = store.dead().list(0, 100).await.expect("dead letters");
                let empty = dead.iter().all(|one| one.bytes.is_empty());
                assert!(empty, "nobody puts a forgery back");
                dead.len() == count + 1
            });
            tokio::select! {
                () = gone => {}
                more = store.inbox().take(10) => panic!("a forgery was taken: {more:?}"),
            }
        } else {
            for _ in 0..count + 1 {
                let delivery = taken(&store).await;
                store
                    .inbox()
                    .acknowledge(vec![(delivery.token, Ack::Done)])
                    .await;
            }
        }
    }
}

/// Who may publish changes has the server send them to subjects of facts: as the answer to a read, and by a push consumer.
#[tokio::test]
async fn what_the_server_sends_for_a_stranger_counts_without_keys_only() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let ours = keys(folder.path(), "a");
    let client = async_nats::connect(server.url()).await.expect("a client");
    let js = jetstream::new(client.clone());
    for (prefix, defended) in [("open", false), ("shut", true)] {
        let store = store(&server, prefix, defended.then(|| Arc::clone(&ours))).await;
        let names = Names::with_prefix(prefix);
        let changes = names.changes_stream();
        let change = async |uid: &str| {
            let body = fact(&run("a"), uid);
            let fact = names.message(Origin::Watcher, &Address::of_bytes(&run("a"), &body));
            let kept = names.change(&run(uid));
            let sent = js.publish(kept.clone(), body.into()).await;
            sent.expect("sent").await.expect("stored");
            (kept, fact)
        };
        let (pushed, deliver_subject) = change("pushed").await;
        // A push consumer delivers while a client listens.
        let listening = client.subscribe(deliver_subject.clone()).await;
        let _listening = listening.expect("a subscription");
        let config = push::Config {
            deliver_subject,
            filter_subject: pushed.clone(),
            ack_policy: AckPolicy::None,
            ..push::Config::default()
        };
        let stream = js.get_stream(&changes).await.expect("a stream");
        stream.create_consumer(config).await.expect("a consumer");
        // The server stores it under the subject that it had, and no engine reads that.
        let inbox = js.get_stream(names.inbox_stream()).await.expect("a stream");
        let there = async |subject: &str| {
            let found = inbox.get_last_raw_message_by_subject(subject).await;
            found.is_ok()
        };
        await_condition("it to be pushed", SOON, || there(&pushed)).await;
        let (kept, fact_subject) = change("read").await;
        let read = format!("$JS.API.DIRECT.GET.{changes}.{kept}");
        let asked = client.publish_with_reply(read, fact_subject.clone(), "".into());
        asked.await.expect("asked");
        await_condition("the answer to be stored", SOON, || there(&fact_subject)).await;
        let put = store.inbox().put(vec![(run("a"), fact(&run("a"), "true"))]);
        put.await.expect("put");
        let mut wanted = vec!["true"];
        if !defended {
            wanted.insert(0, "read");
        }
        for uid in wanted {
            let delivery = taken(&store).await;
            assert_eq!(delivery.bytes, fact(&run("a"), uid), "{prefix}");
            let done = vec![(delivery.token, Ack::Done)];
            store.inbox().acknowledge(done).await;
        }
        await_condition("what is refused to be noted", SOON, || async {
            let dead = store.dead().list(0, 100).await.expect("dead letters");
            dead.len() == usize::from(defended)
        })
        .await;
        assert!(there(&pushed).await);
    }
}

/// As without a leader of the dead letters' stream: no note is acknowledged.
#[tokio::test]
async fn refused_messages_whose_notes_get_no_answer_hold_up_no_other() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let ours = keys(folder.path(), "a");
    let foreign = keys(folder.path(), "b");
    let store = store(&server, "shut", Some(Arc::clone(&ours))).await;
    let client = async_nats::connect(server.url()).await.expect("a client");
    let js = jetstream::new(client.clone());
    let names = Names::with_prefix("shut");
    let deleted = js.delete_stream(names.dead_stream()).await;
    deleted.expect("deleted");
    let mut notes = client
        .subscribe(names.dead_all())
        .await
        .expect("subscribed");
    client.flush().await.expect("flushed");
    let forged = forgeries("shut", store.incarnation().0, &ours, &foreign);
    let count = forged.len();
    for forgery in forged {
        let sent = js.publish_with_headers(forgery.subject, forgery.headers, forgery.body.into());
        sent.await.expect("sent").await.expect("stored");
    }
    let put = store.inbox().put(vec![(run("a"), fact(&run("a"), "true"))]);
    put.await.expect("put");
    assert_eq!(taken(&store).await.bytes, fact(&run("a"), "true"));
    for _ in 0..count {
        let note = timeout(SOON, notes.next()).await.expect("in time");
        assert_eq!(note.expect("a note").payload.len(), 0);
    }
}

fn approval(by: Reporter, seq: u64) -> Vec<u8> {
    let body: Inbound<u64, u64, NoSignal> = Inbound::Reported(TaskReport {
        task: TaskId {
            run: run("a"),
            seq: Seq(seq),
            ordinal: 0,
        },
        attempt: Attempt(1),
        issued: Sum(1),
        worker: "w".into(),
        by,
        result: Ok(1),
    });
    let message = InboxMessage {
        run: run("a"),
        incarnation: None,
        body,
    };
    envelope::encode(&message, 0).expect("a message").0
}

#[tokio::test]
async fn an_approval_counts_from_an_approvers_key_only() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path(), "a");
    let store = store(&server, "shut", Some(Arc::clone(&keys))).await;
    let client = async_nats::connect(server.url()).await.expect("a client");
    let js = jetstream::new(client);
    let names = Names::with_prefix("shut");
    let incarnation = store.incarnation().0;
    let put = async |key: &str, origin: Origin, said: &[u8], body: &[u8]| {
        let subject = names.message(origin, &Address::of_bytes(&run("a"), said));
        let mut headers = HeaderMap::new();
        let signed = Signed {
            incarnation,
            subject: &subject,
            body,
        };
        keys.sign(key, signed, &mut headers);
        let sent = js.publish_with_headers(subject, headers, body.to_vec().into());
        sent.await.expect("sent").await.expect("stored");
    };
    let approval = |seq| self::approval(Reporter::Approver, seq);
    // A worker's key under the approver's name, under its own, and under the name of a worker's report.
    put("worker", Origin::Approver, &approval(1), &approval(1)).await;
    put("worker", Origin::Worker, &approval(2), &approval(2)).await;
    let report = self::approval(Reporter::Worker, 3);
    put("worker", Origin::Worker, &report, &approval(3)).await;
    // An approver's key makes no worker's report.
    let report = self::approval(Reporter::Worker, 4);
    put("approver", Origin::Approver, &report, &report).await;
    put("approver", Origin::Approver, &approval(5), &approval(5)).await;
    let delivery = taken(&store).await;
    assert_eq!(delivery.bytes, approval(5), "the only one");
    let done = vec![(delivery.token, Ack::Done)];
    store.inbox().acknowledge(done).await;
    let noted = await_condition("the others to be noted", SOON, || async {
        store.dead().list(0, 100).await.expect("dead letters").len() == 4
    });
    tokio::select! {
        () = noted => {}
        more = store.inbox().take(10) => panic!("another one was taken: {more:?}"),
    }
}

/// Junk that no engine reads would fill the stream for good.
#[tokio::test]
async fn what_nobody_reads_finds_no_stream() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let client = async_nats::connect(server.url()).await.expect("a client");
    let js = jetstream::new(client);
    let store = store(&server, "shut", None).await;
    for junk in [
        "inbox2.junk.1",
        "inbox2.64.a.b.c.d.e",
        "inbox2.1.a",
        "tasks.junk.a.1",
        "tasks.host",
    ] {
        let sent = js.publish(format!("shut.{junk}"), "x".into()).await;
        let stored = sent.expect("sent").await;
        assert!(stored.is_err(), "{junk}: {stored:?}");
    }
    drop(store);
    // As an earlier build made them.
    for name in ["inbox2", "tasks"] {
        let stream = js.get_stream(format!("shut-{name}")).await;
        let config = stream.expect("a stream").cached_info().config.clone();
        let wide = jetstream::stream::Config {
            subjects: vec![format!("shut.{name}.>")],
            ..config.clone()
        };
        js.update_stream(wide).await.expect("updated");
        drop(self::store(&server, "shut", None).await);
        let stream = js.get_stream(format!("shut-{name}")).await;
        let now = stream.expect("a stream").cached_info().config.clone();
        assert_eq!(now.subjects, config.subjects);
    }
}

/// Each subject of an order holds one message, so a forged one would keep the true one out.
#[tokio::test]
async fn a_forged_message_on_an_orders_subject_is_replaced_by_the_order() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path(), "a");
    let client = async_nats::connect(server.url()).await.expect("a client");
    let js = jetstream::new(client);
    let store = store(&server, "shut", Some(Arc::clone(&keys))).await;
    let names = Names::with_prefix("shut");
    let task = TaskId {
        run: run("a"),
        seq: Seq(1),
        ordinal: 0,
    };
    let order = |bytes: &[u8]| OrderOut {
        task: task.clone(),
        attempt: Attempt(1),
        class: "host",
        bytes: bytes.to_vec(),
    };
    let subject = names.order("host", &task, Attempt(1));
    let junk = js.publish(subject.clone(), "junk".into()).await;
    junk.expect("sent").await.expect("stored");
    let stored = async || {
        let stream = js.get_stream(names.task_stream()).await.expect("a stream");
        let last = stream.get_last_raw_message_by_subject(&subject).await;
        last.expect("a message").payload
    };
    let put = store.tasks().publish(vec![order(b"true")]).await;
    put.expect("published");
    assert_eq!(stored().await, "true");
    // The engine's own first order of an attempt stays, whatever a later build would write.
    let put = store.tasks().publish(vec![order(b"again")]).await;
    put.expect("published");
    assert_eq!(stored().await, "true");
}

/// Repeated for an engine that is gone, it would keep its partitions from the others.
#[tokio::test]
async fn a_recorded_sign_of_life_is_refused() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path(), "a");
    let (stale, mut refused) = tokio::sync::mpsc::unbounded_channel();
    keys.count_with(move |refusal| {
        let _ = stale.send(refusal);
    });
    let client = async_nats::connect(server.url()).await.expect("a client");
    let names = Names::with_prefix("shut");
    let mut beats = client.subscribe(names.engines()).await.expect("beats");
    let answer = jetstream::new(client.clone()).query_account().await;
    answer.expect("an answer");
    let store = store(&server, "shut", Some(Arc::clone(&keys))).await;
    let works = async {
        loop {
            let taken = store.inbox().take(1).await;
            taken.expect("the inbox answers");
        }
    };
    let attack = async {
        let recorded = timeout(SOON, beats.next()).await;
        let recorded = recorded.expect("a beat in time").expect("a beat");
        let headers = recorded.headers.expect("a signature");
        let sent = client.publish_with_headers(recorded.subject, headers, recorded.payload);
        sent.await.expect("sent");
        let refusal = timeout(SOON, refused.recv()).await.expect("in time");
        assert_eq!(refusal, Some(Refusal::Stale));
    };
    tokio::select! {
        () = works => {}
        () = attack => {}
    }
}

#[tokio::test]
async fn a_due_timer_and_an_order_carry_the_engines_signature() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path(), "a");
    let store = store(&server, "shut", Some(Arc::clone(&keys))).await;
    let due = SystemClock.now().plus_ms(300);
    let set = store.alarms().set(vec![(run("a"), Some(due))]);
    set.await.expect("an alarm");
    let timer = taken(&store).await;
    assert!(timer.cause.contains("alarms"), "{}", timer.cause);

    let client = async_nats::connect(server.url()).await.expect("a client");
    let mut orders = client.subscribe("shut.tasks.>").await.expect("orders");
    // An answer comes after the server has read the subscription; a flush only sends it.
    let answer = jetstream::new(client).query_account().await;
    answer.expect("an answer");
    let order = OrderOut {
        class: "host",
        task: TaskId {
            run: run("a"),
            seq: Seq(1),
            ordinal: 0,
        },
        attempt: Attempt(1),
        bytes: b"an order".to_vec(),
    };
    store.tasks().publish(vec![order]).await.expect("published");
    let message = timeout(SOON, orders.next()).await;
    let message = message.expect("an order in time").expect("an order");
    let signed = Signed {
        incarnation: store.incarnation().0,
        subject: &message.subject,
        body: &message.payload,
    };
    assert_eq!(
        message.payload.as_ref(),
        b"an order",
        "the body is the same"
    );
    let headers = message.headers.as_ref();
    assert!(keys.verify(&["engine"], signed, headers).is_ok());

    // What signing and verifying costs.
    let mut headers = HeaderMap::new();
    let body = [7; 2_048];
    let signed = Signed {
        body: &body,
        ..signed
    };
    let rounds = 1_000;
    let begun = std::time::Instant::now();
    for _ in 0..rounds {
        keys.sign("engine", signed, &mut headers);
    }
    let between = begun.elapsed();
    for _ in 0..rounds {
        assert!(keys.verify(&["engine"], signed, Some(&headers)).is_ok());
    }
    let verified = begun.elapsed() - between;
    println!(
        "of 2 KiB each: signed in {:?}, verified in {:?}",
        between / rounds,
        verified / rounds
    );
}
