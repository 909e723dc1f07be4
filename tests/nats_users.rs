//! Users of NATS as the chart renders them: each role's login reaches the subjects of its role on a real server, and no others.

use async_nats::{Client, ConnectOptions, Event, ServerError};
use dormer_engine::{
    nats::{self, NatsStore, OpenError, Options, Origin},
    port::{
        Append, DeadLetter, DeadLetters, Expected, History, HistoryReader, Inbox, OrderOut, Ports,
        Quarantine, QuarantineNote, TaskQueue,
    },
    quarantine::release,
};
use dormer_profile::yaml;
use dormer_proto::{
    id::{Attempt, RunId, Seq, TaskId, Timestamp},
    subject::{Names, history_stream_of},
};
use dormer_testkit::{Login, NatsOptions, NatsServer, await_condition, started};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// A busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(60);
/// What the chart renders.
const RENDERED: &str = include_str!("../deploy/nats-users.yaml");
/// The roles, each with a user of its own.
pub(crate) const ROLES: [&str; 5] = ["engine", "worker", "approver", "watcher", "console"];

/// Stands for the history of a run.
const HISTORY: &str = "a run's history";

/// The server's configuration, with each role's name as its password.
pub(crate) fn login() -> Login {
    let objects = yaml::documents(RENDERED).expect("objects");
    let text = objects[0]["data"]["users.conf"].as_str().expect("users");
    let mut text = text.to_owned();
    for role in ROLES {
        let variable = format!("$DORMER_NATS_{}", role.to_uppercase());
        assert!(text.contains(&variable), "{role}");
        text = text.replace(&variable, role);
    }
    Login::Lines(text)
}

/// The user of a role, and the server's refusals.
async fn user(server: &NatsServer, role: &str) -> (Client, Arc<Mutex<Vec<String>>>) {
    let refusals = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&refusals);
    let options = ConnectOptions::new()
        .user_and_password(format!("dormer-{role}"), role.to_owned())
        .custom_inbox_prefix(format!("_INBOX.dormer-{role}"))
        .event_callback(move |event| {
            let noted = Arc::clone(&noted);
            async move {
                if let Event::ServerError(ServerError::Other(why)) = event {
                    noted.lock().expect("unpoisoned").push(why);
                }
            }
        });
    let client = options.connect(server.url()).await.expect("a login");
    (client, refusals)
}

/// Subjects that a role may publish to, and that it may not.
fn publishes(role: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match role {
        "engine" => (
            &[
                HISTORY,
                "dormer.tasks.host.a.1",
                "dormer.inbox2.1.engine.signal.machine.a.b",
                "dormer.receipts.worker-0",
                "$JS.API.STREAM.CREATE.dormer-history-0",
                // It forgets runs that have ended. The subject does not say which, so that this empties the stream, too.
                "$JS.API.STREAM.PURGE.dormer-history-0",
            ],
            &[
                "other.a",
                "$JS.API.STREAM.DELETE.other",
                "$JS.API.STREAM.CREATE.other",
                "$JS.API.STREAM.MSG.DELETE.dormer-history-0",
                "$JS.API.STREAM.DELETE.dormer-history-0",
                "$JS.API.STREAM.RESTORE.dormer-history-0",
                "$JS.API.STREAM.UPDATE.dormer-history-0",
            ],
        ),
        "worker" => (
            &[
                "dormer.inbox2.1.worker.report.machine.a.b",
                "dormer.heartbeats",
                "$JS.API.CONSUMER.MSG.NEXT.dormer-tasks.workers-host",
                // A consumer that is stuck is made anew.
                "$JS.API.CONSUMER.DELETE.dormer-tasks.workers-host",
                "$JS.API.CONSUMER.DELETE.dormer-tasks.workers-api",
                "$JS.ACK.dormer-tasks.workers-api.1.1.1.1.1",
            ],
            &[
                HISTORY,
                "dormer.tasks.host.a.1",
                "dormer.inbox2.1.watcher.fact.machine.a.b",
                "dormer.inbox2.1.approver.approval.machine.a.b",
                "dormer.inbox2.1.console.request.machine.a.b",
                "dormer.receipts.worker-0",
                "dormer.meta.identity",
                "$JS.API.CONSUMER.MSG.NEXT.dormer-tasks.workers-approve",
                "$JS.API.CONSUMER.CREATE.dormer-history-0.a",
                "$JS.API.DIRECT.GET.dormer-history-0.a",
                "$JS.API.STREAM.MSG.GET.dormer-history-0",
                "$JS.API.STREAM.PURGE.dormer-tasks",
                "$JS.API.STREAM.UPDATE.dormer-history-0",
            ],
        ),
        "approver" => (
            &[
                "dormer.inbox2.1.approver.approval.machine.a.b",
                "$JS.API.CONSUMER.MSG.NEXT.dormer-tasks.workers-approve",
                "$JS.API.CONSUMER.DELETE.dormer-tasks.workers-approve",
            ],
            &[
                "dormer.inbox2.1.worker.report.machine.a.b",
                "dormer.tasks.approve.a.1",
                HISTORY,
                "$JS.API.CONSUMER.MSG.NEXT.dormer-tasks.workers-host",
            ],
        ),
        "watcher" => (
            &[
                "dormer.inbox2.1.watcher.fact.machine.a.b",
                "dormer.meta.epoch",
                "$JS.API.STREAM.INFO.dormer-history-3",
            ],
            &[
                "dormer.inbox2.1.worker.report.machine.a.b",
                HISTORY,
                "dormer.tasks.host.a.1",
                "dormer.meta.identity",
                "$JS.API.STREAM.DELETE.dormer-history-0",
            ],
        ),
        _ => (
            &[
                "dormer.inbox2.1.console.request.machine.a.b",
                "dormer.changes.v1.machine.a",
                // dormer unquarantine.
                "dormer.meta.quarantine.machine.a",
                "$JS.API.STREAM.MSG.GET.dormer-history-0",
                // What a restart of the server takes away.
                "$JS.API.STREAM.CREATE.dormer-tasks",
            ],
            &[
                "$JS.API.STREAM.PURGE.dormer-meta",
                "dormer.tasks.host.a.1",
                "dormer.tasks.api.a.1",
                HISTORY,
                "dormer.inbox2.1.worker.report.machine.a.b",
                "dormer.inbox2.1.engine.timer.machine.a.due",
                "dormer.engines",
                // All that dormer does rests on the store's identity.
                "dormer.meta.identity",
                "dormer.meta.epoch",
                "$JS.API.STREAM.DELETE.dormer-meta",
                "$JS.API.STREAM.DELETE.dormer-history-0",
                "$JS.API.STREAM.PURGE.dormer-history-0",
                "$JS.API.STREAM.UPDATE.dormer-tasks",
                // No store has that stream any more. One of that name could have other programs' streams as its sources.
                "$JS.API.STREAM.CREATE.dormer-inbox",
                "$JS.API.STREAM.CREATE.dormer-history-0",
                "$JS.API.STREAM.CREATE.dormer-meta",
                "$JS.API.CONSUMER.CREATE.dormer-tasks.workers-host.dormer.tasks.host.>",
            ],
        ),
    }
}

#[tokio::test]
async fn each_role_publishes_what_is_its_own() {
    let server = started!(NatsServer::start(NatsOptions {
        login: login(),
        ..NatsOptions::default()
    }));
    for role in ROLES {
        let (client, refusals) = user(&server, role).await;
        let (own, others) = publishes(role);
        let run = RunId::new("machine", "a").expect("an id");
        let spelled = |all: &[&str]| -> Vec<String> {
            let history = || Names::default().history(&run);
            let all = all.iter();
            all.map(|it| {
                if *it == HISTORY {
                    history()
                } else {
                    (*it).to_owned()
                }
            })
            .collect()
        };
        let own = spelled(own);
        let others = spelled(others);
        // The server answers in order, so that what came before the last refusal was not refused.
        for subject in own.iter().chain(&others) {
            client
                .publish(subject.clone(), "x".into())
                .await
                .expect("sent");
        }
        client.flush().await.expect("sent");
        let last = others.last().expect("a subject");
        let refused = || refusals.lock().expect("unpoisoned").clone();
        await_condition(&format!("{role} is refused {last}"), IN_TIME, || async {
            refused().iter().any(|why| why.contains(last.as_str()))
        })
        .await;
        let said = refused();
        for subject in &others {
            let quoted = format!("\"{subject}\"");
            assert!(
                said.iter().any(|why| why.contains(&quoted)),
                "{role} publishes to {subject}: {said:?}"
            );
        }
        assert_eq!(
            said.len(),
            others.len(),
            "{role} may have its own: {said:?}"
        );
    }
}

#[tokio::test]
async fn no_role_listens_to_anothers_answers() {
    let server = started!(NatsServer::start(NatsOptions {
        login: login(),
        ..NatsOptions::default()
    }));
    for role in ROLES {
        let (client, refusals) = user(&server, role).await;
        let own = format!("_INBOX.dormer-{role}.>");
        let another = if role == "engine" {
            "console"
        } else {
            "engine"
        };
        let of_another = format!("_INBOX.dormer-{another}.>");
        let wrong = [
            "_INBOX.>",
            of_another.as_str(),
            "dormer.tasks.>",
            "dormer.>",
            ">",
        ];
        let mut all = vec![client.subscribe(own).await.expect("asked")];
        for subject in wrong {
            all.push(client.subscribe(subject.to_owned()).await.expect("asked"));
        }
        client.flush().await.expect("sent");
        let refused = || refusals.lock().expect("unpoisoned").len();
        await_condition(&format!("{role} is refused"), IN_TIME, || async {
            refused() >= wrong.len()
        })
        .await;
        assert_eq!(refused(), wrong.len(), "{role}: {refusals:?}");
    }
}

/// The store as a process of this role opens it.
async fn opened(server: &NatsServer, role: &str) -> Result<NatsStore, OpenError> {
    let options = Options {
        servers: server.url(),
        durability: nats::Durability::LazyAccepted,
        login: nats::Login::User {
            user: format!("dormer-{role}"),
            password: role.to_owned(),
        },
        origin: match role {
            "engine" => Origin::Engine,
            _ => Origin::Console,
        },
        ..Options::default()
    };
    NatsStore::open(&options).await
}

/// Answers of the server's API to a role.
async fn asked(client: &Client, subject: &str, request: &Value) -> Value {
    let answer = client.request(subject.to_owned(), request.to_string().into());
    let answer = answer.await.expect("an answer");
    serde_json::from_slice(&answer.payload).expect("JSON")
}

/// Who may make a consumer or ask it names the subject that the server delivers to, and no permission is asked for it.
#[tokio::test]
async fn what_a_consumer_delivers_elsewhere_is_neither_an_order_nor_a_record() {
    let server = started!(NatsServer::start(NatsOptions {
        login: login(),
        ..NatsOptions::default()
    }));
    let engine = opened(&server, "engine").await.expect("an engine");
    let run = RunId::new("machine", "a").expect("an id");
    let results = engine
        .history()
        .append(vec![record(&run, Expected::Nothing, 1)])
        .await;
    let [Ok(revision)] = results[..] else {
        panic!("{results:?}")
    };
    let task = |seq| TaskId {
        run: run.clone(),
        seq: Seq(seq),
        ordinal: 0,
    };
    let order = OrderOut {
        task: task(1),
        attempt: Attempt(1),
        class: "host",
        bytes: b"an order".to_vec(),
    };
    let put = engine.tasks().publish(vec![order]).await;
    put.expect("published");

    let names = Names::default();
    let orders = names.task_stream();
    let history = names.history_stream(history_stream_of(&run));
    let (setup, _) = user(&server, "engine").await;
    let messages = async |stream: &str| {
        let info = asked(
            &setup,
            &format!("$JS.API.STREAM.INFO.{stream}"),
            &Value::Null,
        )
        .await;
        info["state"]["messages"].as_u64().expect("a number")
    };
    let before = messages(&history).await;
    let (worker, _) = user(&server, "worker").await;
    let make = format!(
        "$JS.API.CONSUMER.CREATE.{orders}.workers-host.{}",
        names.orders("host")
    );
    let consumer = json!({"stream_name": orders, "config": {"name": "workers-host", "durable_name": "workers-host",
        "filter_subject": names.orders("host"), "ack_policy": "explicit"}});
    // As the reply subject of a request for the next message.
    let deliver = async |by: &Client, stream: &str, consumer: &str, to: String| {
        let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        let asked = by.publish_with_reply(next, to, r#"{"batch":1}"#.into());
        asked.await.expect("asked");
    };
    // Onto another order's subject: the server sees that the stream would feed itself.
    let another = names.order("host", &task(2), Attempt(1));
    let mut push = consumer.clone();
    push["config"]["deliver_subject"] = another.into();
    let refused = asked(&worker, &make, &push).await;
    assert_eq!(refused["error"]["err_code"], 10_081, "{refused}");
    // Onto a history: it is stored there under the order's subject, which no engine reads.
    let made = asked(&worker, &make, &consumer).await;
    assert_eq!(made["error"], Value::Null, "{made}");
    deliver(&worker, &orders, "workers-host", names.history(&run)).await;
    await_condition("the order to be delivered", IN_TIME, || async {
        messages(&history).await == before + 1
    })
    .await;
    let records = engine.reader().records(&run, Seq(1), 9).await;
    assert_eq!(records.expect("records"), [b"record 1"]);
    let heads = engine.reader().heads(None, 9).await.expect("heads");
    assert_eq!(heads.len(), 1, "{heads:?}");
    let next = record(&run, Expected::At(revision), 2);
    let results = engine.history().append(vec![next]).await;
    assert!(results[0].is_ok(), "{results:?}");

    // A console's own bytes, onto a new order's subject: no worker's consumer has them.
    let (console, _) = user(&server, "console").await;
    let change = names.change(&run);
    let changes = names.changes_stream();
    let sent = console.publish(change.clone(), "forged".into()).await;
    sent.expect("sent");
    let before = messages(&orders).await;
    let order = names.order("api", &task(3), Attempt(1));
    let made = asked(
        &console,
        &format!("$JS.API.CONSUMER.CREATE.{changes}.p"),
        &json!({"stream_name": changes, "config": {"name": "p", "ack_policy": "none"}}),
    )
    .await;
    assert_eq!(made["error"], Value::Null, "{made}");
    deliver(&console, &changes, "p", order.clone()).await;
    await_condition("the change to be delivered", IN_TIME, || async {
        messages(&orders).await == before + 1
    })
    .await;
    let last = |subject: &str| json!({"last_by_subj": subject});
    let read = format!("$JS.API.STREAM.MSG.GET.{orders}");
    let found = asked(&setup, &read, &last(&order)).await;
    assert_eq!(found["error"]["code"], 404, "{found}");
    let found = asked(&setup, &read, &last(&change)).await;
    assert_eq!(found["message"]["subject"], change, "{found}");
}

fn record(run: &RunId, expected: Expected, seq: u64) -> Append {
    Append {
        run: run.clone(),
        expected,
        bytes: format!("record {seq}").into_bytes(),
        seq: Seq(seq),
        deadline: None,
        closed: None,
        quiet: false,
    }
}

#[tokio::test]
async fn a_console_reads_releases_and_requeues_and_writes_no_history_no_order_and_no_identity() {
    let server = started!(NatsServer::start(NatsOptions {
        login: login(),
        ..NatsOptions::default()
    }));
    let early = opened(&server, "console").await.err();
    assert_eq!(early, Some(OpenError::NoStore), "engines make stores");
    let engine = opened(&server, "engine").await.expect("an engine");
    let console = opened(&server, "console").await.expect("a console");
    let run = RunId::new("machine", "a").expect("an id");
    let results = engine
        .history()
        .append(vec![record(&run, Expected::Nothing, 1)])
        .await;
    let [Ok(revision)] = results[..] else {
        panic!("{results:?}")
    };

    // What it reads. Twice: the second time it asks for what is new.
    for _ in 0..2 {
        let heads = console.reader().heads(None, 9).await.expect("heads");
        assert_eq!(heads.len(), 1);
    }
    let records = console.reader().records(&run, Seq(1), 9).await;
    assert_eq!(records.expect("records"), [b"record 1"]);

    // dormer unquarantine.
    let note = QuarantineNote {
        run: run.clone(),
        code: "RecordRefused".into(),
        why: "no".into(),
        at: Timestamp(1),
        builds: vec!["one".into()],
        released: None,
        missed: None,
        version: 0,
    };
    let noted = Quarantine::put(engine.quarantine(), note).await;
    noted.expect("noted");
    assert!(release(&console, &run).await.expect("released"));
    let notes = engine.quarantine().notes().await.expect("notes");
    assert!(notes[0].released.is_some());

    // dormer dead-letters requeue.
    let dead = DeadLetter {
        id: 0,
        run: Some(run.clone()),
        reason: "nobody reads it".into(),
        at: Timestamp(1),
        origin: "a test".into(),
        bytes: b"a message".to_vec(),
    };
    let put = DeadLetters::put(engine.dead(), dead).await;
    put.expect("put");
    let dead = console.dead().list(0, 9).await.expect("dead letters");
    let [dead] = &dead[..] else {
        panic!("{dead:?}")
    };
    let again = vec![(run.clone(), dead.bytes.clone())];
    console.inbox().put(again).await.expect("requeued");
    let removed = DeadLetters::remove(console.dead(), dead.id).await;
    removed.expect("removed");
    let left = engine.dead().list(0, 9).await.expect("dead letters");
    assert_eq!(left, []);

    // What it does not do, whatever it tries.
    let forged = record(&run, Expected::At(revision), 2);
    let results = console.history().append(vec![forged]).await;
    assert!(results[0].is_err(), "{results:?}");
    let order = OrderOut {
        task: TaskId {
            run: run.clone(),
            seq: Seq(1),
            ordinal: 0,
        },
        attempt: Attempt(1),
        class: "host",
        bytes: b"an order".to_vec(),
    };
    let ordered = console.tasks().publish(vec![order]).await;
    assert!(ordered.is_err(), "{ordered:?}");
    let forgotten = console.reader().forget(&run, revision).await;
    assert!(forgotten.is_err(), "{forgotten:?}");
    let (client, refusals) = user(&server, "console").await;
    let forged = r#"{"incarnation":7,"history_streams":4,"partitions":64}"#;
    let subject = "dormer.meta.identity";
    client.publish(subject, forged.into()).await.expect("sent");
    await_condition("it is refused", IN_TIME, || async {
        let said = refusals.lock().expect("unpoisoned");
        said.iter().any(|why| why.contains(subject))
    })
    .await;
    let stored = engine.history().load(&[run]).await.expect("loaded");
    let stored = stored[0].as_ref().expect("a record");
    assert_eq!(stored.revision, revision, "the history is as it was");
    let reopened = opened(&server, "engine").await.expect("an engine");
    assert_eq!(reopened.incarnation(), engine.incarnation());
}
