//! Three servers with three copies of each stream, under trouble: a leader killed or moved, a minority cut off, all of
//! them killed, a full disk, an upgrade. After each scenario every run has ended, everything acknowledged is there, and
//! two of the three servers have all of it. Runs only in the long part `nats-cluster`.

mod leaders;

use crate::builds;
use crate::nats_common;

use builds::{Build, old, old::Old, run};
use dormer_engine::{
    engine,
    nats::{NatsStore, Options},
    port::{Head, History, HistoryReader, Inbox, Ports, StoreError},
    rebuild::run_rebuild,
    shard::Counters,
};
use dormer_engine_core::InboxMessageOf;
use dormer_proto::{
    envelope,
    id::{Epoch, RunId},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
    subject::{HISTORY_STREAMS, Names},
};
use dormer_testkit::{
    NatsOptions, NatsServer, NatsVersion, Skipped, Start, await_some, free_port, long, skip,
};
use nats_common::{
    ground::{Ground, SmallDisk},
    options, worker,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, watch},
    task::JoinHandle,
};

const RUNS: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(120);

/// Lock: one scenario at a time, because each has three servers.
static ONE: Mutex<()> = Mutex::const_new(());

/// Leaves the test unless the long part `nats-cluster` runs; otherwise the test's turn.
macro_rules! turn {
    () => {{
        let turn = ONE.lock().await;
        (long!("nats-cluster"), turn)
    }};
}

/// How each of the three is started.
type Member<'a> = &'a dyn Fn(usize) -> NatsOptions;

/// Three servers that know each other.
fn cluster(member: Member<'_>) -> Result<Vec<NatsServer>, Skipped> {
    let ports = [free_port(), free_port(), free_port()];
    let addresses = [0, 1, 2].map(|at| {
        let network = member(at).network;
        let host = network.map_or_else(|| "127.0.0.1".to_owned(), |network| network.address);
        format!("{host}:{}", ports[at])
    });
    let routes = addresses
        .each_ref()
        .map(|at| format!("\"nats://{at}\""))
        .join(", ");
    let start = |(at, listen): (usize, &String)| {
        let extra = format!(
            "server_name: n{at}\ncluster {{ name: three, listen: \"{listen}\", routes: [{routes}] }}\n"
        );
        match NatsServer::start(NatsOptions {
            extra,
            ..member(at)
        }) {
            Start::Started(server) => Ok(server),
            Start::Skipped(skipped) => Err(skipped),
        }
    };
    addresses.iter().enumerate().map(start).collect()
}

/// An engine at work on some of the servers.
struct Engine {
    store: Arc<NatsStore>,
    halt: watch::Sender<bool>,
    running: JoinHandle<Result<Counters, StoreError>>,
    rebuilding: JoinHandle<Result<(), StoreError>>,
}

impl Engine {
    async fn on(options: &Options) -> Self {
        let open = || async { NatsStore::open(options).await.ok() };
        let store = Arc::new(await_some("the three to agree on a leader", PATIENCE, open).await);
        let (halt, halted) = watch::channel(false);
        let running = engine::run::<Old, _>(Arc::clone(&store), engine::Options::default(), halted);
        let rebuilding = tokio::spawn(run_rebuild::<Old>(Arc::clone(&store)));
        Self {
            store,
            halt,
            running: tokio::spawn(running),
            rebuilding,
        }
    }

    async fn end(self) {
        self.halt.send_replace(true);
        self.rebuilding.abort();
        let counters = self
            .running
            .await
            .expect("no panic")
            .expect("a sound store");
        assert_eq!(counters.dead, 0);
    }
}

/// Three servers with an engine and a worker at work.
struct Story {
    servers: Vec<NatsServer>,
    engine: Engine,
    working: JoinHandle<()>,
}

impl Story {
    /// Begins: the first runs of the wave `a` have ended, the others continue.
    async fn begin(member: Member<'_>) -> Result<Self, Skipped> {
        Self::begin_with(member, None).await
    }

    /// The same with so many copies of each stream.
    async fn begin_with(member: Member<'_>, replicas: Option<usize>) -> Result<Self, Skipped> {
        let servers = cluster(member)?;
        let options = Options {
            replicas,
            ..on(&servers, &[0, 1, 2])
        };
        let engine = Engine::on(&options).await;
        let working = worker::<Old>(options.servers, "w", |task| Some(Old::answer(task)));
        let story = Self {
            engine,
            working: tokio::spawn(working),
            servers,
        };
        send_facts(story.store(), "a").await;
        let some = || async { (closed(story.store(), "a").await > 0).then_some(()) };
        await_some("the first run to end", PATIENCE, some).await;
        Ok(story)
    }

    fn store(&self) -> &NatsStore {
        &self.engine.store
    }

    /// Every run of this wave has ended.
    async fn ended(&self, wave: &str) {
        ended(self.store(), wave).await;
    }

    /// Every server has a copy of all history, and is up to date.
    async fn copied(&self) {
        let copied = || async {
            let mut whole = 0;
            for index in 0..HISTORY_STREAMS {
                let info = stream(&self.servers[0].url(), index).await?;
                let copies = info.cluster?.replicas;
                whole += usize::from(copies.len() == 2 && copies.iter().all(|copy| copy.current));
            }
            (whole as u64 == HISTORY_STREAMS).then_some(())
        };
        await_some("every copy to be whole", PATIENCE, copied).await;
    }

    /// The end: all is as it was acknowledged, and still is when `lost` is gone.
    async fn end(mut self, waves: &[&str], acknowledged: Vec<Head>, lost: usize) {
        for wave in waves {
            self.ended(wave).await;
        }
        let runs = RUNS as usize * waves.len();
        self.copied().await;
        // Just after trouble a leader may still be missing.
        let answered = || async { self.store().check::<Old>().await.ok() };
        let checked = await_some("a check", PATIENCE, answered).await;
        assert_eq!((checked.runs, checked.faults), (runs, vec![]));
        self.servers[lost].kill();
        let sound = || async {
            let checked = self.store().check::<Old>().await.ok()?;
            (checked.runs == runs && checked.faults.is_empty()).then_some(())
        };
        await_some("the rest to have everything", PATIENCE, sound).await;
        let answered = || async { self.store().reader().heads(None, 1_000).await.ok() };
        let heads = await_some("heads", PATIENCE, answered).await;
        for was in acknowledged {
            let is = heads
                .iter()
                .find(|head| head.run == was.run)
                .expect("the run is there");
            assert!(
                is.seq >= was.seq && is.revision >= was.revision,
                "{was:?} became {is:?}"
            );
        }
        self.working.abort();
        self.engine.end().await;
    }
}

/// A store on these of the servers.
fn on(servers: &[NatsServer], which: &[usize]) -> Options {
    let urls: Vec<String> = which.iter().map(|at| servers[*at].url()).collect();
    Options {
        servers: urls.join(","),
        ..options(&servers[0])
    }
}

async fn stream(url: &str, index: u64) -> Option<async_nats::jetstream::stream::Info> {
    let client = async_nats::connect(url).await.ok()?;
    let js = async_nats::jetstream::new(client);
    let stream = js
        .get_stream(Names::default().history_stream(index))
        .await
        .ok()?;
    Some(stream.cached_info().clone())
}

/// Which server leads the first history stream.
async fn leader(url: &str) -> Option<usize> {
    stream(url, 0)
        .await?
        .cluster?
        .leader?
        .strip_prefix('n')?
        .parse()
        .ok()
}

/// Watcher: repeats the facts.
async fn send_facts(store: &NatsStore, wave: &str) {
    let messages = (0..RUNS).map(|n| {
        let run = run(&format!("{wave}{n}"));
        let object = ObjectRef {
            cluster: String::new(),
            kind: "Page".into(),
            uid: run.key().to_owned(),
        };
        let version = Version {
            epoch: Epoch(1),
            resource: 1,
        };
        let fact = Some(old::Fact { size: 1 });
        let observation = Observation {
            object,
            version,
            fact,
            may_start: true,
        };
        let incarnation = Some(store.history().incarnation());
        let message: InboxMessageOf<Old> = InboxMessage {
            run: run.clone(),
            incarnation,
            body: Inbound::Observed(observation),
        };
        (run, envelope::encode(&message, 1).expect("a message").0)
    });
    let _ = store.inbox().put(messages.collect()).await;
}

async fn heads(store: &NatsStore) -> Vec<Head> {
    store
        .reader()
        .heads(None::<&RunId>, 1_000)
        .await
        .unwrap_or_default()
}

async fn closed(store: &NatsStore, wave: &str) -> u64 {
    let ended = |head: &&Head| head.run.key().starts_with(wave) && head.closed.is_some();
    heads(store).await.iter().filter(ended).count() as u64
}

async fn ended(store: &NatsStore, wave: &str) {
    let all = || async {
        send_facts(store, wave).await;
        (closed(store, wave).await == RUNS).then_some(())
    };
    await_some("every run to end", PATIENCE, all).await;
}

fn plain(_: usize) -> NatsOptions {
    NatsOptions::default()
}

/// The story, or leaves the test: there are no such servers here.
macro_rules! begun {
    ($member:expr) => {
        match Story::begin($member).await {
            Ok(story) => story,
            Err(skipped) => skip!(skipped),
        }
    };
}

/// What it takes, or leaves the test.
macro_rules! had {
    ($had:expr) => {
        match $had {
            Ok(had) => had,
            Err(skipped) => skip!(skipped),
        }
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_costs_nothing() {
    let (part, _turn) = turn!();
    let mut story = begun!(&plain);
    let url = story.servers[0].url();
    let lead = await_some("a leader", PATIENCE, || leader(&url)).await;
    let acknowledged = heads(story.store()).await;
    story.servers[lead].kill();
    send_facts(story.store(), "b").await;
    story.ended("a").await;
    // It comes back, another goes: what it missed was copied to it.
    story.servers[lead].restart();
    story.end(&["a", "b"], acknowledged, (lead + 1) % 3).await;
    part.passed(&[("runs of each wave", RUNS.to_string())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_is_cut_off_and_healed_costs_nothing() {
    let (part, _turn) = turn!();
    let ground = had!(Ground::lay());
    let story = begun!(&|at| NatsOptions {
        network: Some(ground.network(at)),
        ..NatsOptions::default()
    });
    let url = story.servers[0].url();
    // The leader itself, so that for a while it still acts as the leader.
    let lead = await_some("a leader", PATIENCE, || leader(&url)).await;
    let acknowledged = heads(story.store()).await;
    ground.cut(lead, true);
    let others = [(lead + 1) % 3, (lead + 2) % 3];
    // The first engine may be on either side; a second is with the majority, and continues.
    let second = Engine::on(&on(&story.servers, &others)).await;
    ended(&second.store, "b").await;
    ground.cut(lead, false);
    second.end().await;
    story.end(&["a", "b"], acknowledged, others[0]).await;
    part.passed(&[("runs of each wave", RUNS.to_string())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_that_are_killed_at_once_come_back_with_everything() {
    let (part, _turn) = turn!();
    let mut story = begun!(&plain);
    let acknowledged = heads(story.store()).await;
    send_facts(story.store(), "b").await;
    // Everything in memory is lost: messages, orders, alarms.
    story.servers.iter_mut().for_each(NatsServer::kill);
    story.servers.iter_mut().for_each(NatsServer::restart);
    story.end(&["a", "b"], acknowledged, 0).await;
    part.passed(&[("runs of each wave", RUNS.to_string())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_moves_under_load_costs_nothing() {
    let (part, _turn) = turn!();
    let story = begun!(&plain);
    let acknowledged = heads(story.store()).await;
    let client = async_nats::connect(story.servers[0].url())
        .await
        .expect("a client");
    let mut moved = 0;
    for round in 0..6 {
        send_facts(story.store(), "b").await;
        for index in 0..HISTORY_STREAMS {
            let name = Names::default().history_stream(index);
            let step_down = format!("$JS.API.STREAM.LEADER.STEPDOWN.{name}");
            let answer = client.request(step_down, "".into()).await;
            let moved_on =
                answer.is_ok_and(|m| String::from_utf8_lossy(&m.payload).contains("true"));
            moved += u64::from(moved_on);
        }
        let some = || async { (closed(story.store(), "b").await >= round).then_some(()) };
        await_some("runs to go on", PATIENCE, some).await;
    }
    assert!(moved >= 2 * HISTORY_STREAMS, "{moved} times");
    story.end(&["a", "b"], acknowledged, 1).await;
    part.passed(&[("runs of each wave", RUNS.to_string())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_costs_nothing() {
    let (part, _turn) = turn!();
    let disk = had!(SmallDisk::mounted(96));
    let mut story = begun!(&|at| NatsOptions {
        store_dir: (at == 2).then(|| disk.folder()),
        ..NatsOptions::default()
    });
    let acknowledged = heads(story.store()).await;
    disk.fill();
    story.ended("b").await;
    disk.free();
    story.servers[2].restart();
    // The one that was full is one of the two that are left.
    story.end(&["a", "b"], acknowledged, 0).await;
    part.passed(&[("runs of each wave", RUNS.to_string())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_are_upgraded_one_after_the_other_with_their_data() {
    let (part, _turn) = turn!();
    let oldest = |_| NatsOptions {
        version: NatsVersion::Oldest,
        ..NatsOptions::default()
    };
    let mut story = begun!(&oldest);
    let acknowledged = heads(story.store()).await;
    for (at, wave) in ["b", "c", "d"].into_iter().enumerate() {
        story.copied().await;
        story.servers[at].upgrade();
        story.ended(wave).await;
    }
    story.copied().await;
    let client = async_nats::connect(story.servers[0].url())
        .await
        .expect("a client");
    assert!(!client.server_info().version.starts_with("2.12."));
    story.end(&["a", "b", "c", "d"], acknowledged, 1).await;
    part.passed(&[("runs of each wave", RUNS.to_string())]);
}

/// Gives every stream of the store three copies, as an operator does with `nats stream edit --replicas 3`.
async fn edit_to_three(url: &str) {
    use futures::TryStreamExt;
    let client = async_nats::connect(url).await.expect("a client");
    let js = async_nats::jetstream::new(client);
    let names: Vec<String> = js.stream_names().try_collect().await.expect("names");
    for name in names {
        let edited = || async {
            let stream = js.get_stream(&name).await.ok()?;
            let mut config = stream.cached_info().config.clone();
            config.num_replicas = 3;
            js.update_stream(config).await.ok()
        };
        await_some("a stream to be edited", PATIENCE, edited).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_edited_from_one_copy_to_three_go_on_and_then_lose_a_leader() {
    let (part, _turn) = turn!();
    let story = match Story::begin_with(&plain, Some(1)).await {
        Ok(story) => story,
        Err(skipped) => skip!(skipped),
    };
    let url = story.servers[0].url();
    let copies = stream(&url, 0).await.expect("a stream").config.num_replicas;
    assert_eq!(copies, 1);
    send_facts(story.store(), "b").await;
    edit_to_three(&url).await;
    story.ended("b").await;
    story.copied().await;
    // A new process takes the store as it is.
    let second = Engine::on(&on(&story.servers, &[0, 1, 2])).await;
    ended(&second.store, "c").await;
    second.end().await;
    let acknowledged = heads(story.store()).await;
    let lead = await_some("a leader", PATIENCE, || leader(&url)).await;
    story.end(&["a", "b", "c"], acknowledged, lead).await;
    part.passed(&[("runs of each wave", RUNS.to_string())]);
}
