//! Ports of the workers on a real NATS server, with a minimal engine at the other end.

use async_nats::{
    HeaderMap,
    jetstream::{
        self,
        consumer::{AckPolicy, pull, push},
        stream::{Config, DiscardPolicy, RetentionPolicy, StorageType},
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use dormer_nats::signing::{Keys, SIGNATURE_HEADER, Signed, make};
use dormer_proto::{
    envelope,
    id::{Attempt, Incarnation, RunId, Seq, Sum, TaskId, Timestamp},
    machine::{HostRef, Outcome, Task},
    message::{
        Failure, Inbound, InboxMessage, NodeSettings, ObjectRef, Observation, ReceiptStatus,
        ReportReceipt, Reporter, Version,
    },
    subject::{
        APPROVALS, CLOSED_HEADER, HISTORY_STREAMS, Identity, META_IDENTITY, Names, PARTITIONS,
        WORKER_CLASSES, history_stream_of,
    },
    work::{FactMessage, Order, Report, ReportMessage, SCHEMA, machine_run},
};
use dormer_testkit::{
    Login as ServerLogin, NatsOptions, NatsServer, NatsTls, TestCa, await_condition, started,
    test_dir,
};
use dormer_workers::{
    execute::Execute,
    nats::{Login, NatsFacts, NatsLink, NatsOrders, Options, Tls, WorkerEvent},
    port::{Facts, Orders},
    progress::Progress,
    worker,
};
use futures::StreamExt;
use rcgen::{KeyPair, SigningKey as _};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::{sync::Mutex, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

const IN_TIME: Duration = Duration::from_secs(60);

/// What the engine does with a store, as far as workers notice.
struct Store {
    client: async_nats::Client,
    js: jetstream::Context,
    names: Names,
}

impl Store {
    async fn make(server: &NatsServer) -> Self {
        let how = async_nats::ConnectOptions::new().max_reconnects(None);
        let client = how.connect(server.url()).await.expect("a client");
        let store = Self {
            js: jetstream::new(client.clone()),
            client,
            names: Names::default(),
        };
        store.make_streams().await;
        let identity = Identity {
            incarnation: Incarnation(42),
            history_streams: HISTORY_STREAMS,
            partitions: PARTITIONS,
        };
        let body = serde_json::to_vec(&identity).expect("json");
        store.put(store.names.meta(META_IDENTITY), body).await;
        store
    }

    async fn make_streams(&self) {
        for spec in self.names.streams() {
            let config = Config {
                name: spec.name,
                subjects: spec.subjects,
                storage: if spec.in_memory {
                    StorageType::Memory
                } else {
                    StorageType::File
                },
                retention: if spec.work_queue {
                    RetentionPolicy::WorkQueue
                } else {
                    RetentionPolicy::Limits
                },
                discard: if spec.refuse_when_full {
                    DiscardPolicy::New
                } else {
                    DiscardPolicy::Old
                },
                discard_new_per_subject: spec.refuse_when_full
                    && spec.per_subject_max > 0
                    && !spec.replaces,
                max_messages_per_subject: spec.per_subject_max,
                max_messages: spec.messages_max,
                allow_direct: true,
                ..Config::default()
            };
            self.js
                .get_or_create_stream(config)
                .await
                .expect("a stream");
        }
    }

    async fn put(&self, subject: String, body: Vec<u8>) {
        let sent = self.js.publish(subject, body.into()).await.expect("sent");
        sent.await.expect("stored");
    }

    async fn order(&self, class: &str, uid: &str, seq: u64) {
        let order = order(uid, seq);
        let subject = self.names.order(class, &order.task, order.attempt);
        self.put(
            subject,
            envelope::encode(&order, SCHEMA).expect("an order").0,
        )
        .await;
    }

    async fn orders_left(&self) -> u64 {
        let mut stream = self
            .js
            .get_stream(self.names.task_stream())
            .await
            .expect("a stream");
        stream.info().await.expect("its state").state.messages
    }

    /// Takes reports, and receipts every one but the first `deaf`.
    fn listen(&self, deaf: usize) -> (Arc<Mutex<Vec<Report>>>, JoinHandle<()>) {
        let taken = Arc::<Mutex<Vec<Report>>>::default();
        let reports = Arc::clone(&taken);
        let client = self.client.clone();
        let js = self.js.clone();
        let names = self.names.clone();
        let listening = tokio::spawn(async move {
            loop {
                let config = pull::Config {
                    durable_name: Some("engines".into()),
                    filter_subjects: (0..PARTITIONS)
                        .map(|it| names.inbox_partition(it))
                        .collect(),
                    ..pull::Config::default()
                };
                let made = js
                    .create_consumer_on_stream(config, names.inbox_stream())
                    .await;
                let Ok(consumer) = made else { continue };
                let asked = consumer
                    .batch()
                    .max_messages(64)
                    .expires(Duration::from_secs(1));
                let Ok(mut to_runs) = asked.messages().await else {
                    continue;
                };
                while let Some(Ok(message)) = to_runs.next().await {
                    let _ = message.ack().await;
                    let read = envelope::decode::<ReportMessage>(&message.payload, SCHEMA);
                    let Ok((
                        InboxMessage {
                            body: Inbound::Reported(report),
                            ..
                        },
                        _,
                    )) = read
                    else {
                        continue;
                    };
                    let mut reports = reports.lock().await;
                    reports.push(report.clone());
                    if reports.len() > deaf {
                        let receipt = ReportReceipt {
                            task: report.task,
                            attempt: report.attempt,
                            worker: report.worker.clone(),
                            fate: ReceiptStatus::Taken,
                        };
                        let (bytes, _) = envelope::encode(&receipt, 0).expect("a receipt");
                        let _ = client
                            .publish(names.receipts(&report.worker), bytes.into())
                            .await;
                    }
                }
            }
        });
        (taken, listening)
    }
}

fn order(uid: &str, seq: u64) -> Order {
    Order {
        task: TaskId {
            run: machine_run(uid).expect("a run"),
            seq: Seq(seq),
            ordinal: 0,
        },
        attempt: Attempt(1),
        incarnation: Incarnation(42),
        issued: Sum(seq),
        episode: Seq(1),
        at: Timestamp(0),
        limit_ms: 60_000,
        body: Task::Probe {
            host: HostRef::default(),
        },
    }
}

fn options(server: &NatsServer) -> Options {
    Options {
        servers: server.url(),
        ..Options::default()
    }
}

fn keys(folder: &Path, name: &str) -> Arc<Keys> {
    let roles = ["engine", "worker", "approver"];
    let folder = folder.join(name);
    make(&folder, &roles, None).expect("keys");
    Arc::new(Keys::open(&folder, &roles, false).expect("keys"))
}

/// Headers with the engine's signature.
fn signature(keys: &Keys, incarnation: u64, subject: &str, body: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let signed = Signed {
        incarnation,
        subject,
        body,
    };
    keys.sign("engine", signed, &mut headers);
    headers
}

/// A stranger that may publish changes has the server send two of them to subjects of orders: 8 as the answer to a read,
/// and 9 by a push consumer, which the server stores under the subject that it had. It delivers while a client listens.
async fn sent_by_the_server(store: &Store) {
    let change = async |seq: u64| {
        let order = order("m", seq);
        let subject = store.names.order("host", &order.task, order.attempt);
        let body = envelope::encode(&order, SCHEMA).expect("an order").0;
        let run = machine_run(&format!("of {seq}")).expect("a run");
        let kept = store.names.change(&run);
        store.put(kept.clone(), body).await;
        (kept, subject)
    };
    let left = store.orders_left().await;
    let (kept, subject) = change(8).await;
    let changes = store.names.changes_stream();
    let read = format!("$JS.API.DIRECT.GET.{changes}.{kept}");
    let asked = store.client.publish_with_reply(read, subject, "".into());
    asked.await.expect("asked");
    let (kept, subject) = change(9).await;
    let stream = store.js.get_stream(changes).await.expect("a stream");
    let listening = store.client.subscribe(subject.clone()).await;
    let _listening = listening.expect("a subscription");
    let config = push::Config {
        deliver_subject: subject,
        filter_subject: kept.clone(),
        ack_policy: AckPolicy::None,
        ..push::Config::default()
    };
    stream.create_consumer(config).await.expect("a consumer");
    await_condition("both to be stored", IN_TIME, || async {
        store.orders_left().await == left + 2
    })
    .await;
    let orders = store.js.get_stream(store.names.task_stream()).await;
    let orders = orders.expect("a stream");
    let found = orders.get_last_raw_message_by_subject(&kept).await;
    found.expect("a message that no worker reads");
}

/// Seqs of the orders that a worker takes, of those that a stranger sends and of one true one, whose seq is the last.
async fn taken(
    server: &NatsServer,
    defence: Option<Arc<Keys>>,
    ours: &Keys,
    foreign: &Keys,
) -> Vec<u64> {
    let store = Store::make(server).await;
    let put = async |seq: u64, headers: &dyn Fn(&str, &[u8]) -> HeaderMap| {
        let order = order("m", seq);
        let subject = store.names.order("host", &order.task, order.attempt);
        let body = envelope::encode(&order, SCHEMA).expect("an order").0;
        let headers = headers(&subject, &body);
        let sent = store
            .js
            .publish_with_headers(subject, headers, body.into())
            .await;
        sent.expect("sent").await.expect("stored");
    };
    put(1, &|_, _| HeaderMap::new()).await;
    put(2, &|subject, body| signature(foreign, 42, subject, body)).await;
    put(3, &|_, body| {
        signature(ours, 42, "dormer.tasks.host.x", body)
    })
    .await;
    put(4, &|subject, body| signature(ours, 41, subject, body)).await;
    put(5, &|subject, _| signature(ours, 42, subject, b"another")).await;
    // A request whose reply subject is an order's: its answer is published there by who may.
    let forged = order("m", 6);
    let subject = store.names.order("host", &forged.task, forged.attempt);
    let body = envelope::encode(&forged, SCHEMA).expect("an order").0;
    let mut echo = store
        .client
        .subscribe("echo")
        .await
        .expect("a subscription");
    let asked = store
        .client
        .publish_with_reply("echo", subject, body.into())
        .await;
    asked.expect("asked");
    let request = echo.next().await.expect("a request");
    let reply = request.reply.expect("a reply subject");
    let answered = store.client.publish(reply, request.payload).await;
    answered.expect("answered");
    sent_by_the_server(&store).await;
    put(7, &|subject, body| signature(ours, 42, subject, body)).await;

    let options = Options {
        keys: defence,
        ..options(server)
    };
    let link = NatsLink::connect(&options).await.expect("a connection");
    let orders = NatsOrders::open(link, "w", Reporter::Worker).await;
    let orders = orders.expect("orders");
    let mut seqs = Vec::new();
    while seqs.last() != Some(&7) {
        let claimed = timeout(IN_TIME, orders.take(10)).await.expect("in time");
        let claimed = claimed.expect("orders");
        seqs.extend(claimed.into_iter().map(|one| one.order.task.seq.0));
    }
    seqs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_orders_are_done_without_keys_and_refused_with_them() {
    let open = started!(NatsServer::start(NatsOptions::default()));
    let shut = started!(NatsServer::start(NatsOptions::default()));
    let folder = test_dir("signed-orders");
    let ours = keys(folder.path(), "a");
    let foreign = keys(folder.path(), "b");
    let without = taken(&open, None, &ours, &foreign).await;
    assert_eq!(without, [1, 2, 3, 4, 5, 6, 8, 7]);
    let with = taken(&shut, Some(Arc::clone(&ours)), &ours, &foreign).await;
    assert_eq!(with, [7]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_true_order_that_comes_before_the_stores_identity_is_kept() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = test_dir("early-orders");
    let ours = keys(folder.path(), "a");
    let store = Store::make(&server).await;
    // As in the seconds in which a store is restored from a backup: its streams are there, its identity is not.
    let meta = store.js.get_stream(store.names.meta_stream()).await;
    let meta = meta.expect("a stream");
    let purged = meta.purge().filter(store.names.meta(META_IDENTITY)).await;
    purged.expect("purged");
    let order = order("m", 1);
    let subject = store.names.order("host", &order.task, order.attempt);
    let body = envelope::encode(&order, SCHEMA).expect("an order").0;
    let headers = signature(&ours, 43, &subject, &body);
    let sent = store
        .js
        .publish_with_headers(subject, headers, body.into())
        .await;
    sent.expect("sent").await.expect("stored");

    let options = Options {
        keys: Some(Arc::clone(&ours)),
        ..options(&server)
    };
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    ours.count_with(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let link = NatsLink::connect(&options).await.expect("a connection");
    let orders = NatsOrders::open(link, "w", Reporter::Worker).await;
    let orders = orders.expect("orders");
    let early = async {
        tokio::select! {
            claimed = orders.take(1) => panic!("{}", claimed.expect("orders").len()),
            () = await_condition("a refusal", IN_TIME, async || refused.load(Ordering::SeqCst) > 0) => {}
        }
    };
    timeout(IN_TIME, early).await.expect("in time");
    assert_eq!(store.orders_left().await, 1, "it is kept");
    let identity = Identity {
        incarnation: Incarnation(43),
        history_streams: HISTORY_STREAMS,
        partitions: PARTITIONS,
    };
    let identity = serde_json::to_vec(&identity).expect("json");
    store.put(store.names.meta(META_IDENTITY), identity).await;
    let claimed = timeout(IN_TIME, orders.take(1)).await.expect("in time");
    assert_eq!(claimed.expect("orders").len(), 1);
}

/// Hands that only count.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Execute for Counting {
    async fn execute(&self, _: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        progress.step("count", 1, "orders");
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Outcome::RebootAsked)
    }
}

struct Shift {
    executor: Arc<Counting>,
    stop: CancellationToken,
    working: JoinHandle<()>,
}

async fn shift(server: &NatsServer, name: &str) -> Shift {
    let link = NatsLink::connect(&options(server))
        .await
        .expect("a connection");
    let orders = NatsOrders::open(link, name, Reporter::Worker)
        .await
        .expect("orders");
    let executor = Arc::new(Counting::default());
    let stop = CancellationToken::new();
    let options = worker::Options {
        slots: 16,
        ..worker::Options::named(name)
    };
    let running = worker::run(
        Arc::new(orders),
        Arc::clone(&executor),
        options,
        stop.clone(),
    );
    Shift {
        executor,
        stop,
        working: tokio::spawn(running),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_both_classes_are_shared_reported_and_gone() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = Store::make(&server).await;
    let (reports, listening) = store.listen(3);
    let shifts = [shift(&server, "w.1").await, shift(&server, "w 2").await];
    for seq in 1..=50 {
        store
            .order(WORKER_CLASSES[seq as usize % 2], "m", seq)
            .await;
    }
    await_condition("every order to be done and gone", IN_TIME, || async {
        store.orders_left().await == 0
    })
    .await;
    let reports = reports.lock().await.clone();
    assert!(
        reports.len() > 50,
        "the first three were not receipted, and came again"
    );
    for seq in 1..=50 {
        let ours: Vec<_> = reports.iter().filter(|r| r.task.seq == Seq(seq)).collect();
        assert!(
            ours.iter().all(|report| report.issued == Sum(seq)),
            "{seq}: {ours:?}"
        );
        assert!(!ours.is_empty(), "{seq}");
    }
    let done: usize = shifts
        .iter()
        .map(|shift| shift.executor.0.load(Ordering::SeqCst))
        .sum();
    assert_eq!(done, 50, "each was done once");
    for shift in shifts {
        shift.stop.cancel();
        timeout(IN_TIME, shift.working)
            .await
            .expect("in time")
            .expect("the worker ends");
    }
    listening.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_takes_no_approval_and_an_approver_takes_nothing_else() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = Store::make(&server).await;
    store.order("host", "m", 1).await;
    store.order(APPROVALS, "m", 2).await;
    store.order("api", "m", 3).await;
    for (role, wanted) in [
        (Reporter::Approver, vec![2]),
        (Reporter::Worker, vec![1, 3]),
    ] {
        let link = NatsLink::connect(&options(&server)).await;
        let link = link.expect("a connection");
        let orders = NatsOrders::open(link, "w", role).await.expect("orders");
        let mut seqs = Vec::new();
        while seqs.len() < wanted.len() {
            let claimed = timeout(IN_TIME, orders.take(10)).await.expect("in time");
            let claimed = claimed.expect("orders");
            seqs.extend(claimed.into_iter().map(|one| one.order.task.seq.0));
        }
        seqs.sort_unstable();
        assert_eq!(seqs, wanted, "{role:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_costs_no_report() {
    let mut server = started!(NatsServer::start(NatsOptions::default()));
    let store = Store::make(&server).await;
    let shift = shift(&server, "w").await;
    let (_, deaf) = store.listen(usize::MAX);
    store.order("host", "m", 1).await;
    await_condition("the order to be done", IN_TIME, || async {
        shift.executor.0.load(Ordering::SeqCst) == 1
    })
    .await;
    deaf.abort();
    // Inbox and orders die with the server; the worker still holds the report.
    server.kill();
    server.restart();
    await_condition("the streams again", IN_TIME, || async {
        store.client.flush().await.is_ok() && store.js.query_account().await.is_ok()
    })
    .await;
    store.make_streams().await;
    let (reports, listening) = store.listen(0);
    await_condition("the report again", IN_TIME, || async {
        !reports.lock().await.is_empty()
    })
    .await;
    store.order("api", "m", 2).await;
    await_condition("the next order's report", IN_TIME, || async {
        reports
            .lock()
            .await
            .iter()
            .any(|report| report.task.seq == Seq(2))
    })
    .await;
    listening.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_kept_while_the_heart_beats_and_people_see_it() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = Store::make(&server).await;
    let link = NatsLink::connect(&options(&server))
        .await
        .expect("a connection");
    let orders = NatsOrders::open(Arc::clone(&link), "w", Reporter::Worker)
        .await
        .expect("orders");
    let beats = link.heartbeats().await.expect("heartbeats");
    let mut beats = std::pin::pin!(beats);
    store.order("host", "m", 1).await;
    // A take that is cancelled loses nothing.
    let _ = timeout(Duration::from_millis(1), orders.take(1)).await;
    let taken = timeout(IN_TIME, orders.take(1))
        .await
        .expect("in time")
        .expect("an order");
    let progress = Progress::default();
    progress.step("upload", 10, "bytes");
    let beat = progress.heartbeat(&taken[0].order.task, Attempt(1), "w");
    orders
        .heartbeat(&taken[0].claim, beat.clone())
        .await
        .expect("a heartbeat");
    assert_eq!(
        timeout(IN_TIME, beats.next()).await.expect("in time"),
        Some(WorkerEvent::Heartbeat(beat))
    );
    assert_eq!(
        store.orders_left().await,
        1,
        "it stays until its report is receipted"
    );
}

/// An approver's key signs heartbeats, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_for_nodes_come_from_workers_alone() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = Store::make(&server).await;
    let folder = test_dir("signed-settings");
    let options = Options {
        keys: Some(keys(folder.path(), "a")),
        ..options(&server)
    };
    let link = NatsLink::connect(&options).await.expect("a connection");
    let beats = link.heartbeats().await.expect("heartbeats");
    let mut beats = std::pin::pin!(beats);
    let settings = |url: &str| NodeSettings {
        api_url: url.into(),
        cluster_dns: "172.30.0.10".into(),
        cluster_domain: "cluster.local".into(),
        service_cidr: "172.30.0.0/16".into(),
        exporter: false,
        cluster: "{}".into(),
    };
    for (role, url) in [(Reporter::Approver, "forged"), (Reporter::Worker, "true")] {
        let orders = NatsOrders::open(Arc::clone(&link), "w", role).await;
        let orders = orders.expect("orders");
        let published = orders.publish_settings(&settings(url)).await;
        published.expect("published");
    }
    let unsigned = envelope::encode(&settings("unsigned"), 0)
        .expect("a message")
        .0;
    let subject = store.names.heartbeats();
    let sent = store.client.publish(subject, unsigned.into()).await;
    sent.expect("sent");
    assert_eq!(
        timeout(IN_TIME, beats.next()).await.expect("in time"),
        Some(WorkerEvent::Settings(settings("true")))
    );
    let orders = NatsOrders::open(Arc::clone(&link), "w", Reporter::Worker).await;
    let orders = orders.expect("orders");
    let large = NodeSettings {
        cluster: "x".repeat(2 << 20),
        ..settings("large")
    };
    let refused = orders.publish_settings(&large).await;
    let why = refused.expect_err("too large").to_string();
    assert!(why.contains("1000000 are allowed"), "{why}");
    orders
        .publish_settings(&settings("next"))
        .await
        .expect("published");
    assert_eq!(
        timeout(IN_TIME, beats.next()).await.expect("in time"),
        Some(WorkerEvent::Settings(settings("next")))
    );
}

/// Headers with a signature of `role` that is `age_s` old, by the keys in a folder.
fn aged(folder: &Path, role: &str, age_s: u64, subject: &str, body: &[u8]) -> HeaderMap {
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).expect("keys");
    let pair = KeyPair::from_pem(&read(&format!("{role}.key"))).expect("a key");
    let public = read("public.keys");
    let line = public.lines().find(|line| line.starts_with(role));
    let id = line.and_then(|it| it.split_whitespace().nth(1));
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let at = u64::try_from(since.expect("a clock").as_millis()).expect("a time") - age_s * 1_000;
    let mut bytes = b"dormer message 2\0".to_vec();
    for number in [at, 42, subject.len() as u64] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(subject.as_bytes());
    bytes.extend(body);
    let signature = BASE64.encode(pair.sign(&bytes).expect("a signature"));
    let mut headers = HeaderMap::new();
    let value = format!("2.{at}.{}.{signature}", id.expect("an id"));
    headers.insert(SIGNATURE_HEADER, value.as_str());
    headers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_another_role_or_an_earlier_hour_count_without_keys_only() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = Store::make(&server).await;
    let folder = test_dir("forged-settings");
    let roles = ["engine", "worker", "approver", "watcher", "console"];
    let folder = folder.path().join("keys");
    make(&folder, &roles, None).expect("keys");
    let keys = Keys::open(&folder, &["console"], false).expect("keys");
    let settings = |url: &str| NodeSettings {
        api_url: url.into(),
        cluster_dns: "172.30.0.10".into(),
        cluster_domain: "cluster.local".into(),
        service_cidr: "172.30.0.0/16".into(),
        exporter: false,
        cluster: "{}".into(),
    };
    let sent = [
        (None, 0, "unsigned"),
        (Some("engine"), 0, "an engine's"),
        (Some("approver"), 0, "an approver's"),
        (Some("watcher"), 0, "a watcher's"),
        (Some("console"), 0, "a console's"),
        (Some("worker"), 362, "an old one"),
        // The age and the difference of two clocks are five minutes and one.
        (Some("worker"), 350, "an earlier one"),
        (Some("worker"), 0, "the true one"),
    ];
    for (defence, from) in [(None, 0), (Some(Arc::new(keys)), 6)] {
        let options = Options {
            keys: defence,
            ..options(&server)
        };
        let link = NatsLink::connect(&options).await.expect("a connection");
        let beats = link.heartbeats().await.expect("heartbeats");
        let mut beats = std::pin::pin!(beats);
        // An answer comes after the server has read the subscription.
        let facts = NatsFacts::new(Arc::clone(&link));
        facts.begin().await.expect("an answer");
        for (role, age_s, url) in sent {
            let subject = store.names.heartbeats();
            let body = envelope::encode(&settings(url), 0).expect("a message").0;
            let headers = role.map_or_else(HeaderMap::new, |role| {
                aged(&folder, role, age_s, &subject, &body)
            });
            let sent = store
                .client
                .publish_with_headers(subject, headers, body.into());
            sent.await.expect("sent");
        }
        for (_, _, url) in &sent[from..] {
            let event = timeout(IN_TIME, beats.next()).await.expect("in time");
            assert_eq!(event, Some(WorkerEvent::Settings(settings(url))));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_only_grows_and_live_are_the_machines_that_have_not_ended() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = Store::make(&server).await;
    let facts = NatsFacts::new(
        NatsLink::connect(&options(&server))
            .await
            .expect("a connection"),
    );
    for (run, closed) in [
        ("machine/a", false),
        ("machine/b.2", false),
        ("machine/c", true),
        ("rollout/windows", false),
        ("machine/b.2", false),
    ] {
        let run: RunId = run.parse().expect("a run");
        let mut headers = async_nats::HeaderMap::new();
        if closed {
            headers.insert(CLOSED_HEADER, "1");
        }
        let subject = store.names.history(&run);
        let sent = store
            .js
            .publish_with_headers(subject, headers, "record".into())
            .await;
        sent.expect("sent").await.expect("stored");
        assert!(history_stream_of(&run) < HISTORY_STREAMS);
    }
    let first = facts.begin().await.expect("a beginning");
    let mut live = first.live.clone();
    live.sort();
    assert_eq!(
        (first.incarnation, live),
        (Incarnation(42), vec!["a".into(), "b.2".into()])
    );
    let second = facts.begin().await.expect("a beginning");
    assert!(second.epoch > first.epoch, "{first:?} {second:?}");

    let to_runs: Vec<FactMessage> = (0..500)
        .map(|at| gone(&at.to_string(), second.epoch))
        .collect();
    facts.publish(to_runs).await.expect("published");
    let mut inbox = store
        .js
        .get_stream(store.names.inbox_stream())
        .await
        .expect("a stream");
    assert_eq!(inbox.info().await.expect("its state").state.messages, 500);
}

fn gone(uid: &str, epoch: dormer_proto::id::Epoch) -> FactMessage {
    let observation = Observation {
        object: ObjectRef {
            cluster: String::new(),
            kind: "Machine".into(),
            uid: uid.into(),
        },
        version: Version { epoch, resource: 9 },
        fact: None,
        may_start: false,
    };
    InboxMessage {
        run: machine_run(uid).expect("a run"),
        incarnation: Some(Incarnation(42)),
        body: Inbound::Observed(observation),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_logs_in_and_a_refused_login_is_named() {
    let login = ServerLogin::User {
        user: "dormer".into(),
        password: "s3cret".into(),
    };
    let server = started!(NatsServer::start(NatsOptions {
        login,
        ..NatsOptions::default()
    }));
    let refused = NatsLink::connect(&options(&server))
        .await
        .err()
        .expect("a refusal");
    assert!(refused.to_string().contains("authorization"), "{refused}");
    let login = Login::User {
        user: "dormer".into(),
        password: "s3cret".into(),
    };
    let ours = Options {
        login,
        ..options(&server)
    };
    assert!(!format!("{ours:?}").contains("s3cret"));
    NatsLink::connect(&ours).await.expect("a connection");
    let facts = NatsFacts::new(NatsLink::connect(&ours).await.expect("a connection"));
    let early = facts.begin().await.expect_err("there is no store yet");
    assert!(early.0.contains("engine"), "{early}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutual_tls_works_and_an_unknown_authority_is_refused() {
    let ca = TestCa::new();
    let tls = NatsTls {
        identity: ca.issue("server", &["127.0.0.1", "localhost"]),
        client_ca: Some(ca.certificate()),
    };
    let server = started!(NatsServer::start(NatsOptions {
        tls: Some(tls),
        ..NatsOptions::default()
    }));
    let folder = test_dir("tls");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let client = ca.issue("dormer", &["dormer"]);
    let identity = (
        write("c.pem", &client.certificate),
        write("k.pem", &client.key),
    );
    let tls = Tls {
        ca: Some(write("ca.pem", &ca.certificate())),
        identity: Some(identity),
        required: true,
    };
    let right = Options {
        tls: tls.clone(),
        ..options(&server)
    };
    NatsLink::connect(&right).await.expect("a connection");
    let stranger = write("stranger.pem", &TestCa::new().certificate());
    let wrong = Options {
        tls: Tls {
            ca: Some(stranger),
            ..tls
        },
        ..options(&server)
    };
    let refused = NatsLink::connect(&wrong).await.err().expect("a refusal");
    assert!(
        refused.to_string().starts_with("cannot connect to tls:"),
        "{refused}"
    );
}
