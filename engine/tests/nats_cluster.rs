//! Three servers, three copies of each stream, and the leader of a history stream killed in the middle of things.
//! Takes part where somebody has the time (`DORMER_LONG=1`).

mod builds;
mod nats_common;

use builds::{Build, old, old::Old, run};
use dormer_engine::{
    engine,
    nats::{NatsStore, Options},
    port::{History, HistoryReader, Inbox, Ports},
};
use dormer_engine_core::LetterOf;
use dormer_proto::{
    envelope,
    id::{Epoch, RunId},
    message::{Inbound, Letter, ObjectRef, Observation, Version},
    subject::Names,
};
use dormer_testkit::{NatsOptions, NatsServer, Skipped, Start, await_some, free_port, skip};
use nats_common::{options, worker};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

const RUNS: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(120);

/// Three servers that know each other.
fn cluster() -> Result<Vec<NatsServer>, Skipped> {
    let ports = [free_port(), free_port(), free_port()];
    let routes = ports.map(|port| format!("\"nats://127.0.0.1:{port}\"")).join(", ");
    let member = |(at, port): (usize, &u16)| {
        let extra = format!(
            "server_name: n{at}\ncluster {{ name: three, listen: \"127.0.0.1:{port}\", routes: [{routes}] }}\n"
        );
        match NatsServer::start(NatsOptions { extra, ..NatsOptions::default() }) {
            Start::Started(server) => Ok(server),
            Start::Skipped(skipped) => Err(skipped),
        }
    };
    ports.iter().enumerate().map(member).collect()
}

/// Which server leads the first history stream.
async fn leader(url: &str) -> Option<usize> {
    let client = async_nats::connect(url).await.ok()?;
    let js = async_nats::jetstream::new(client);
    let mut stream = js.get_stream(Names::default().history_stream(0)).await.ok()?;
    let name = stream.info().await.ok()?.cluster.as_ref()?.leader.clone()?;
    name.strip_prefix('n')?.parse().ok()
}

/// What the watcher does: tells the facts again and again.
async fn tell(store: &NatsStore) {
    let letters = (0..RUNS).map(|n| {
        let run = run(&n.to_string());
        let object =
            ObjectRef { cluster: String::new(), kind: "Page".into(), uid: run.key().to_owned() };
        let version = Version { epoch: Epoch(1), resource: 1 };
        let fact = Some(old::Fact { size: 1 });
        let seen = Observation { object, version, fact, may_start: true };
        let incarnation = Some(store.history().incarnation());
        let letter: LetterOf<Old> =
            Letter { run: run.clone(), incarnation, body: Inbound::Observed(seen) };
        (run, envelope::encode(&letter, 1).expect("a letter").0)
    });
    let _ = store.inbox().put(letters.collect()).await;
}

async fn closed(store: &NatsStore) -> u64 {
    let heads = store.reader().heads(None::<&RunId>, 1_000).await.unwrap_or_default();
    heads.iter().filter(|head| head.closed.is_some()).count() as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_costs_nothing() {
    if std::env::var_os("DORMER_LONG").is_none_or(|value| value != "1") {
        return;
    }
    let mut servers = match cluster() {
        Ok(servers) => servers,
        Err(skipped) => skip!(skipped),
    };
    let urls: Vec<String> = servers.iter().map(NatsServer::url).collect();
    let options = Options { servers: urls.join(","), ..options(&servers[0]) };
    let open = || async { NatsStore::open(&options).await.ok() };
    let store = Arc::new(await_some("the three to agree on a leader", PATIENCE, open).await);
    let (halt, halted) = watch::channel(false);
    let running = engine::run::<Old, _>(Arc::clone(&store), engine::Options::default(), halted);
    let running = tokio::spawn(running);
    let working = tokio::spawn(worker::<Old>(urls.join(","), "w", |task| Some(Old::answer(task))));
    tell(&store).await;
    let some = || async { (closed(&store).await > 0).then_some(()) };
    await_some("the first run to end", PATIENCE, some).await;

    let lead = await_some("a leader", PATIENCE, || leader(&urls[0])).await;
    servers[lead].kill();
    let all = || async {
        tell(&store).await;
        (closed(&store).await == RUNS).then_some(())
    };
    await_some("every run to end without it", PATIENCE, all).await;
    let checked = store.check::<Old>().await.expect("a check");
    assert_eq!((checked.runs as u64, checked.faults), (RUNS, vec![]));

    // It comes back, another goes: what it missed was copied to it.
    servers[lead].restart();
    let next = (lead + 1) % 3;
    servers[next].kill();
    let sound = || async {
        let checked = store.check::<Old>().await.ok()?;
        (checked.runs as u64 == RUNS && checked.faults.is_empty()).then_some(())
    };
    await_some("the rest to have everything", PATIENCE, sound).await;
    halt.send_replace(true);
    working.abort();
    let tally = running.await.expect("no panic").expect("a sound store");
    assert_eq!(tally.dead, 0);
}
