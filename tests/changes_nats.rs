//! Stream of changes over NATS, read by another program from a real server and real processes of dormer.

use async_nats::{
    Client, ConnectOptions,
    jetstream::{
        self,
        consumer::{AckPolicy, DeliverPolicy, pull},
    },
};
use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{DeleteOptions, Key, User, kinds},
};
use dormer_proto::{
    subject::{HISTORY_STREAMS, Names, history_stream_of},
    work::machine_run,
};
use dormer_testkit::{
    Login, NatsOptions, NatsServer, Process, ProcessSpec, TempDir, await_condition, await_some,
    free_port, started, test_dir,
};
use futures::StreamExt;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

/// A busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(120);
/// A stream and its subjects, as docs/changes.md has them.
const STREAM: &str = "dormer-changes";
const ALL: &str = "dormer.changes.v1.>";

/// Users of the server: dormer, and a reader with the rights that docs/changes.md names.
const USERS: &str = r#"
authorization {
  users: [
    { user: "dormer", password: "dormer" }
    { user: "reader", password: "reader", permissions: {
        publish: [
          "$JS.API.INFO",
          "$JS.API.STREAM.NAMES",
          "$JS.API.STREAM.INFO.dormer-changes",
          "$JS.API.DIRECT.GET.dormer-changes.>",
          "$JS.API.CONSUMER.CREATE.dormer-changes",
          "$JS.API.CONSUMER.CREATE.dormer-changes.>",
          "$JS.API.CONSUMER.INFO.dormer-changes.>",
          "$JS.API.CONSUMER.MSG.NEXT.dormer-changes.>",
          "$JS.FC.dormer-changes.>",
        ]
        subscribe: ["_INBOX.>"]
    } }
  ]
}
"#;

/// A simulated cluster of two machines, a nats-server, and consoles.
struct Site {
    folder: TempDir,
    world: World,
    server: NatsServer,
    ssh_port: u16,
}

/// A process of `dormer run`.
struct Dormer {
    process: Process,
    port: u16,
}

/// What a client has rebuilt: each run's state.
type Rebuilt = BTreeMap<String, Value>;

impl Site {
    async fn on(server: NatsServer) -> Self {
        let folder = test_dir("changes");
        let ssh_port = free_port();
        let config = WorldConfig {
            ssh_port,
            ..WorldConfig::on_loopback(2, Pace::times_faster(20.0))
        };
        let world = World::start(config).await.expect("a world");
        world
            .write_kubeconfig(&folder.path().join("kubeconfig"))
            .expect("written");
        Self {
            folder,
            world,
            server,
            ssh_port,
        }
    }

    fn dormer(&self, roles: &str) -> Dormer {
        let port = free_port();
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let flags = [
            ("--kubeconfig", path("kubeconfig")),
            ("--host-program", crate::host_program(self.folder.path())),
            ("--ssh-port", self.ssh_port.to_string()),
            ("--listen", format!("127.0.0.1:{port}")),
            ("--store", self.server.url()),
            ("--nats-user", "dormer".into()),
            ("--nats-password", "dormer".into()),
            ("--name", format!("dormer-{port}")),
            ("--role", roles.into()),
        ];
        let flags = flags
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value]);
        let spec = ProcessSpec {
            program: env!("CARGO_BIN_EXE_dormer").into(),
            args: std::iter::once("run".to_owned()).chain(flags).collect(),
            env: Vec::new(),
            log: self.folder.path().join(format!("log-{port}")),
            folder: None,
        };
        Dormer {
            process: Process::start(&spec).expect("dormer starts"),
            port,
        }
    }

    async fn client(&self, user: &str) -> Client {
        let options = ConnectOptions::new().user_and_password(user.into(), user.into());
        options.connect(self.server.url()).await.expect("a client")
    }

    /// A reader with no more rights than it needs.
    async fn reader(&self) -> jetstream::Context {
        jetstream::new(self.client("reader").await)
    }

    /// Deletes a Machine, and then everything that dormer has of it, as time does with runs that ended.
    async fn remove(&self, machine: &Value, admin: &jetstream::Context, dormer: &Dormer) {
        let namespace = &machine["namespace"];
        let name = &machine["name"];
        let key = Key::new(
            namespace.as_str().expect("a namespace"),
            name.as_str().expect("a name"),
        );
        let deleted = self.world.api.delete(
            &User::admin(),
            &kinds::MACHINE,
            &key,
            &DeleteOptions::default(),
        );
        deleted.expect("the Machine is deleted");
        let uid = machine["uid"].as_str().expect("a UID");
        let path = format!("/api/v1/machines/{uid}");
        await_condition("its run has ended", IN_TIME, || async {
            dormer
                .get(&path)
                .is_some_and(|(_, shown)| !shown["closed"].is_null())
        })
        .await;
        let names = Names::default();
        let run = machine_run(uid).expect("a run");
        let history = admin
            .get_stream(names.history_stream(history_stream_of(&run)))
            .await;
        let purge = history
            .expect("a stream")
            .purge()
            .filter(names.history(&run));
        purge.await.expect("purged");
    }
}

impl Dormer {
    /// The status of an answer, and its JSON.
    fn ask(&self, request: &str, body: &str) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .ok()?;
        let head = format!(
            "{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n",
            body.len()
        );
        stream
            .write_all(format!("{head}\r\n{body}").as_bytes())
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let status = text.split(' ').nth(1)?.parse().ok()?;
        Some((
            status,
            serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?,
        ))
    }

    fn get(&self, path: &str) -> Option<(u16, Value)> {
        self.ask(&format!("GET {path}"), "")
            .filter(|(status, _)| *status == 200)
    }

    /// Machines and rollouts, as the API answers them.
    fn answers(&self) -> Option<Rebuilt> {
        let lists = ["machines", "rollouts"].map(|list| self.get(&format!("/api/v1/{list}")));
        let mut all = Rebuilt::new();
        for list in lists {
            for item in list?.1["items"].as_array()? {
                all.insert(item["run"].as_str()?.to_owned(), timeless(item.clone()));
            }
        }
        Some(all)
    }

    /// The machines, once there are two.
    async fn machines(&self) -> Vec<Value> {
        await_some("two machines", IN_TIME, || async {
            let machines = self.get("/api/v1/machines")?.1["items"].as_array()?.clone();
            (machines.len() == 2).then_some(machines)
        })
        .await
    }

    /// Asks for an action. An engine that is busy takes it later: it stays in the inbox.
    fn request_action(&self, machine: &Value, action: &str) {
        let name = machine["name"].as_str().expect("a name");
        let path = format!("/api/v1/machines/{name}/actions/{action}");
        let body = json!({"who": "ann", "why": "a test"}).to_string();
        let (status, said) = self.ask(&format!("POST {path}"), &body).expect("an answer");
        assert!([200, 504].contains(&status), "{status} {said}");
    }
}

/// Without what a moment has of its own: how long ago something was, how far a task is, and what one console saw begin.
fn timeless(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let own = |name: &str| ["sinceSeconds", "heartbeat", "phaseSince"].contains(&name);
            // A halt's beginning is likewise known to consoles that saw it.
            let halt = fields.contains_key("kind") && fields.contains_key("by");
            fields
                .into_iter()
                .filter(|(name, _)| !(own(name) || halt && name == "since"))
                .map(|(k, v)| (k, timeless(v)))
                .collect()
        }
        Value::Array(items) => items.into_iter().map(timeless).collect(),
        other => other,
    }
}

/// What a client does: the last state of each run, and then every change.
async fn consumer(reader: &jetstream::Context) -> Option<jetstream::consumer::PullConsumer> {
    let stream = reader.get_stream(STREAM).await.ok()?;
    let config = pull::Config {
        deliver_policy: DeliverPolicy::LastPerSubject,
        filter_subject: ALL.into(),
        ack_policy: AckPolicy::None,
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.ok()
}

/// What a late reader rebuilds: it has all when nothing is pending.
async fn rebuild(reader: &jetstream::Context) -> Option<Rebuilt> {
    let consumer = consumer(reader).await?;
    let mut rebuilt = Rebuilt::new();
    if consumer.cached_info().num_pending == 0 {
        return Some(rebuilt);
    }
    let mut messages = consumer.messages().await.ok()?;
    loop {
        let message = tokio::time::timeout(Duration::from_secs(10), messages.next()).await;
        let message = message.ok()??.ok()?;
        let state: Value = serde_json::from_slice(&message.payload).expect("JSON");
        let run = state["run"].as_str().expect("a run").to_owned();
        match state["forgotten"].as_bool() {
            Some(true) => drop(rebuilt.remove(&run)),
            _ => drop(rebuilt.insert(run, timeless(state))),
        }
        if message.info().expect("told").pending == 0 {
            return Some(rebuilt);
        }
    }
}

/// Waits until a late reader rebuilds what the API answers.
async fn agree(what: &str, reader: &jetstream::Context, dormer: &Dormer) -> Rebuilt {
    let deadline = Instant::now() + IN_TIME;
    await_some(what, IN_TIME + IN_TIME, || async {
        let rebuilt = rebuild(reader).await;
        let answered = dormer.answers();
        let agree = rebuilt == answered && rebuilt.as_ref().is_some_and(|all| !all.is_empty());
        let late = || {
            format!(
                "{what}: {rebuilt:#?} and {answered:#?}\n{}",
                dormer.process.log_tail()
            )
        };
        assert!(agree || Instant::now() < deadline, "{}", late());
        rebuilt.filter(|_| agree)
    })
    .await
}

fn server() -> dormer_testkit::Start<NatsServer> {
    NatsServer::start(NatsOptions {
        sync_always: true,
        login: Login::Lines(USERS.into()),
        ..NatsOptions::default()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_reader_rebuilds_the_state_and_no_other_reader_drains_or_delays_it() {
    dormer_testkit::full!();
    let server = started!(server());
    let site = Site::on(server).await;
    let mut dormer = site.dormer("engine,watcher,worker,console");
    let machines = dormer.machines().await;
    let reader = site.reader().await;
    let whole = agree("the whole", &reader, &dormer).await;
    assert!(
        machines
            .iter()
            .all(|it| whole.contains_key(it["run"].as_str().expect("a run")))
    );

    // One that has read a message and stops, without a word.
    let lazy = site.reader().await;
    let stalled = pull::Config {
        durable_name: Some("stalled".into()),
        ack_policy: AckPolicy::Explicit,
        max_ack_pending: 1,
        ..pull::Config::default()
    };
    let stalled = lazy
        .get_stream(STREAM)
        .await
        .expect("a stream")
        .create_consumer(stalled)
        .await;
    let mut stalled = stalled
        .expect("a consumer")
        .messages()
        .await
        .expect("messages");
    let held = stalled.next().await.expect("a message").expect("a message");
    // One that acknowledges all that there is.
    let busy = jetstream::new(site.client("dormer").await);
    let config = pull::Config {
        durable_name: Some("busy".into()),
        ..pull::Config::default()
    };
    let stream = busy.get_stream(STREAM).await.expect("a stream");
    let acking: jetstream::consumer::PullConsumer =
        stream.create_consumer(config).await.expect("a consumer");
    let mut all = acking
        .fetch()
        .max_messages(100)
        .messages()
        .await
        .expect("messages");
    while let Some(message) = all.next().await {
        message
            .expect("a message")
            .double_ack()
            .await
            .expect("acknowledged");
    }
    stream.delete_consumer("busy").await.expect("deleted");
    // What a reader may not: to empty, to delete, to write.
    let stream = reader.get_stream(STREAM).await.expect("a stream");
    let sequence = held.info().expect("told").stream_sequence;
    assert!(stream.purge().await.is_err(), "a reader emptied the stream");
    assert!(
        stream.delete_message(sequence).await.is_err(),
        "a reader deleted a message"
    );
    assert!(
        reader.delete_stream(STREAM).await.is_err(),
        "a reader deleted the stream"
    );
    let forged = reader
        .publish("dormer.changes.v1.machine.x", "{}".into())
        .await;
    assert!(forged.expect("sent").await.is_err(), "a reader wrote");
    assert!(
        reader.get_stream("dormer-history-0").await.is_err(),
        "a reader read a history"
    );

    dormer.request_action(&machines[0], "pause");
    let run = machines[0]["run"].as_str().expect("a run");
    let paused = await_some("the change", IN_TIME, || async {
        let state = rebuild(&reader).await?.remove(run)?;
        (state["halt"]["text"] == "paused by ann: a test").then_some(state)
    })
    .await;
    agree("the whole, and what changed", &reader, &dormer).await;
    // A direct read, too.
    let subject = format!(
        "dormer.changes.v1.machine.{}",
        machines[0]["uid"].as_str().expect("a UID")
    );
    let last = stream
        .direct_get_last_for_subject(subject.as_str())
        .await
        .expect("a direct read");
    let last: Value = serde_json::from_slice(&last.payload).expect("JSON");
    assert_eq!(
        (&last["name"], timeless(last["halt"].clone())),
        (&machines[0]["name"], timeless(paused["halt"].clone()))
    );

    let admin = jetstream::new(site.client("dormer").await);
    site.remove(&machines[1], &admin, &dormer).await;
    let subject = format!(
        "dormer.changes.v1.machine.{}",
        machines[1]["uid"].as_str().expect("a UID")
    );
    let tombstone = await_some("a tombstone", IN_TIME, || async {
        let last = stream
            .direct_get_last_for_subject(subject.as_str())
            .await
            .ok()?;
        let body: Value = serde_json::from_slice(&last.payload).ok()?;
        (body["forgotten"] == true).then_some((last.headers, body))
    })
    .await;
    assert_eq!(
        tombstone.1,
        json!({"run": machines[1]["run"], "forgotten": true})
    );
    let ages = tombstone
        .0
        .get("Nats-TTL")
        .map(|ttl| ttl.as_str().to_owned());
    assert_eq!(ages.as_deref(), Some("86400s"));
    let left = agree("the whole without it", &reader, &dormer).await;
    assert!(!left.contains_key(machines[1]["run"].as_str().expect("a run")));
    dormer.process.terminate().expect("it ends");
}

/// Every message as it comes, of which nothing may be missed.
struct MessageLog {
    sequences: BTreeMap<String, Vec<u64>>,
    count: u64,
    /// Sequence in the stream of the last one.
    last: u64,
}

impl MessageLog {
    /// Reads until the stream has no more, and holds each run's seqs against each other.
    async fn read(&mut self, messages: &mut pull::Ordered) {
        while let Ok(Some(message)) =
            tokio::time::timeout(Duration::from_secs(3), messages.next()).await
        {
            let message = message.expect("a message");
            let seq = message
                .headers
                .as_ref()
                .and_then(|it| it.get("Dormer-Seq"))
                .expect("a seq");
            let seq: u64 = seq.as_str().parse().expect("a number");
            let seqs = self
                .sequences
                .entry(message.subject.to_string())
                .or_default();
            assert!(
                seqs.last() < Some(&seq),
                "{}: {seq} after {seqs:?}",
                message.subject
            );
            seqs.push(seq);
            self.count += 1;
            self.last = message
                .info()
                .expect("a message of a stream")
                .stream_sequence;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_consoles_publish_each_change_once_and_restarts_never_go_back() {
    dormer_testkit::full!();
    let server = started!(server());
    let mut site = Site::on(server).await;
    let mut engine = site.dormer("engine,watcher,worker");
    let mut consoles = [site.dormer("console"), site.dormer("console")];
    let machines = consoles[0].machines().await;
    let reader = site.reader().await;
    agree("the whole", &reader, &consoles[0]).await;

    let admin = jetstream::new(site.client("dormer").await);
    let mut stream = admin.get_stream(STREAM).await.expect("a stream");
    let config = pull::OrderedConfig {
        filter_subject: ALL.into(),
        ..Default::default()
    };
    let ordered: jetstream::consumer::Consumer<pull::OrderedConfig> =
        stream.create_consumer(config).await.expect("a consumer");
    let mut messages = ordered.messages().await.expect("messages");
    let mut log = MessageLog {
        sequences: BTreeMap::new(),
        count: 0,
        last: 0,
    };
    let mut before = None;
    for round in 0..6 {
        // Between two, one of the consoles dies, or both, and comes back.
        if round == 2 || round == 4 {
            consoles[0].process.kill();
        }
        if round == 4 {
            consoles[1].process.kill();
            consoles[1] = site.dormer("console");
            consoles[1].machines().await;
        }
        consoles[1].request_action(&machines[0], ["pause", "resume"][round % 2]);
        if round == 2 || round == 4 {
            consoles[0] = site.dormer("console");
            consoles[0].machines().await;
        }
        agree("the whole after a change", &reader, &consoles[0]).await;
        // What is stored after the last message was read is read, too: a change may come at any moment.
        let stored = loop {
            log.read(&mut messages).await;
            let stored = stream.info().await.expect("its state").state.last_sequence;
            if log.last >= stored {
                break stored;
            }
        };
        let (stored_before, counted_before) = *before.get_or_insert((stored, log.count));
        assert_eq!(
            stored - stored_before,
            log.count - counted_before,
            "a change was told twice"
        );
    }

    site.server.kill();
    site.server.restart();
    agree("the whole after the server's death", &reader, &consoles[1]).await;
    consoles[1].request_action(&machines[1], "pause");
    agree("what changes after that", &reader, &consoles[0]).await;
    stream.purge().await.expect("purged");
    agree(
        "the whole after somebody emptied the stream",
        &reader,
        &consoles[0],
    )
    .await;
    for dormer in consoles.iter_mut().chain([&mut engine]) {
        dormer.process.terminate().expect("it ends");
    }
}

/// Number of requests that one connection made of each kind, by its stream.
type Asked = BTreeMap<(String, String), usize>;

/// Notes a request under its connection: its own inbox is the answer's address, with a token for the request.
fn note(asked: &mut Asked, request: &async_nats::Message) {
    let kind = request.subject.splitn(5, '.').skip(2).collect::<Vec<_>>();
    let [of, verb, rest] = kind[..] else {
        return;
    };
    let stream = rest.split('.').next().unwrap_or_default();
    let reply = request.reply.as_deref().unwrap_or_default();
    let connection = reply.rsplit_once('.').unwrap_or_default().0.to_owned();
    *asked
        .entry((connection, format!("{of} {verb} {stream}")))
        .or_default() += 1;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_that_somebody_watches_creates_at_most_one_consumer_for_each_history_stream() {
    dormer_testkit::full!();
    let server = started!(server());
    let site = Site::on(server).await;
    let _engine = site.dormer("engine,watcher,worker");
    let console = site.dormer("console");
    console.machines().await;
    let watching = TcpStream::connect(("127.0.0.1", console.port)).expect("a console");
    let request = "GET /api/v1/changes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    (&watching)
        .write_all(request.as_bytes())
        .expect("it is asked");
    (&watching).read_exact(&mut [0; 12]).expect("it answers");

    let spy = site.client("dormer").await;
    let mut requests = spy.subscribe("$JS.API.>").await.expect("subscribed");
    let names = Names::default();
    let (first, of) = (names.history_stream(0), |verb: &str, index| {
        format!("{verb} {}", names.history_stream(index))
    });
    // The console looks four times a second: this is ten seconds of watching.
    let mut asked = Asked::new();
    let watched = async {
        while let Some(request) = requests.next().await {
            note(&mut asked, &request);
            let looks = |((_, what), count): (&(String, String), &usize)| {
                *what == format!("STREAM INFO {first}") && *count >= 40
            };
            if let Some(((connection, _), _)) = asked.iter().find(|it| looks(*it)) {
                return Some(connection.clone());
            }
        }
        None
    };
    let console = tokio::time::timeout(IN_TIME, watched).await;
    let console = console.expect("in time").expect("requests");
    for index in 0..HISTORY_STREAMS {
        let created = asked.get(&(console.clone(), of("CONSUMER CREATE", index)));
        assert!(created.is_none_or(|count| *count <= 1), "{asked:?}");
    }
}
