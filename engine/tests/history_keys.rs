//! Rewritten histories, on a real NATS server and in a folder: each is believed by an engine without keys of the history,
//! and quarantined by one with them. What no MAC notices is here as well.

use crate::nats_common;

use dormer_engine::{
    embedded::{EmbeddedStore, dump, restore},
    keyed::{self, RecordOf, add_mac, key_last_records, prove},
    local::Local,
    nats::{NatsStore, Options},
    port::{
        Append, DeadLetters, Expected, History, HistoryReader, Inbox, Ports, Quarantine, Stored,
        SystemClock,
    },
    prove_dump,
    shard::Shard,
};
use dormer_engine_core::{Decision, InboxMessageOf, Input, Now, Record, RetryPolicy, Workflow};
use dormer_nats::{
    history_keys::{HistoryKeys, Unproven, make_history_keys},
    signing::{Keys, make},
};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, Revision, RunId, Seq},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
};
use dormer_testkit::{NatsOptions, NatsServer, await_condition, started};
use nats_common::options;
use serde::{Deserialize, Serialize};
use std::{path::Path, sync::Arc, time::Duration};
use tokio::time::timeout;

/// How long a test waits for what must come.
const SOON: Duration = Duration::from_secs(30);
/// A fact from here on sets the limit; a smaller one is a machine that asks.
const LIMIT: u64 = 1_000;

/// A rollout: it grants each machine that asks, up to a limit.
#[derive(Debug, Clone, PartialEq)]
struct Rollout;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Granted {
    limit: usize,
    machines: Vec<u64>,
}

impl Workflow for Rollout {
    const SCHEMA: u16 = 1;
    type State = Granted;
    type Task = u64;
    type Outcome = ();
    type Fact = u64;
    type Timer = u8;
    type Signal = ();

    fn start(_: &RunId, _: bool) -> Option<Granted> {
        Some(Granted {
            limit: 1,
            machines: Vec::new(),
        })
    }

    fn decide(_: Now<'_>, mut state: Granted, input: Input<Self>) -> Decision<Self> {
        match input {
            Input::Observed {
                fact: Some(fact), ..
            } if fact >= LIMIT => {
                state.limit = usize::try_from(fact - LIMIT).expect("a limit");
                Decision::to(state)
            }
            Input::Observed {
                fact: Some(machine),
                ..
            } if state.machines.len() < state.limit => {
                state.machines.push(machine);
                Decision::to(state).run(machine, RetryPolicy::PATIENT)
            }
            _ => Decision::to(state),
        }
    }

    fn label(_: &Granted) -> &'static str {
        "Open"
    }
}

fn run(key: &str) -> RunId {
    RunId::new("rollout", key).expect("a run id")
}

fn keys(folder: &Path, name: &str, keep: Option<&str>, unkeyed: bool) -> Arc<HistoryKeys> {
    let path = folder.join(name);
    if !path.exists() {
        let keep = keep.map(|keep| folder.join(keep));
        make_history_keys(&path, keep.as_deref()).expect("keys");
    }
    Arc::new(HistoryKeys::open(&path, unkeyed).expect("keys"))
}

/// Message with a fact.
fn observation(run: &RunId, fact: u64) -> Vec<u8> {
    let observation = Observation {
        object: ObjectRef {
            cluster: String::new(),
            kind: "Machine".into(),
            uid: fact.to_string(),
        },
        version: Version {
            epoch: Epoch(1),
            resource: 1,
        },
        fact: Some(fact),
        may_start: true,
    };
    let message: InboxMessageOf<Rollout> = InboxMessage {
        run: run.clone(),
        incarnation: None,
        body: Inbound::Observed(observation),
    };
    envelope::encode(&message, Rollout::SCHEMA)
        .expect("a message")
        .0
}

/// Lets a new engine, with nothing in its memory, take a fact, until `done`.
async fn observed<P: Ports>(ports: &Arc<P>, run: &RunId, fact: u64, done: impl AsyncFn() -> bool) {
    let mut shard = Shard::<Rollout, P>::new(Arc::clone(ports), "build", 10);
    observed_by(&mut shard, ports, run, fact, done).await;
}

/// Lets an engine take a fact, until `done`.
async fn observed_by<P: Ports>(
    shard: &mut Shard<Rollout, P>,
    ports: &Arc<P>,
    run: &RunId,
    fact: u64,
    done: impl AsyncFn() -> bool,
) {
    let message = observation(run, fact);
    let put = ports.inbox().put(vec![(run.clone(), message)]);
    put.await.expect("put");
    let work = async {
        while !done().await {
            let batch = ports.inbox().take(16).await.expect("messages");
            shard.turn(batch).await.expect("a turn");
        }
    };
    timeout(SOON, work).await.expect("in time");
}

async fn last<P: Ports>(ports: &P, run: &RunId) -> Stored {
    let stored = ports.history().load(std::slice::from_ref(run)).await;
    stored.expect("read").remove(0).expect("a record")
}

fn record(bytes: &[u8]) -> Record<Rollout> {
    let read = envelope::decode::<Record<Rollout>>(bytes, Rollout::SCHEMA);
    read.expect("a record").0
}

async fn granted<P: Ports>(ports: &P, run: &RunId) -> usize {
    let stored = ports.history().load(std::slice::from_ref(run)).await;
    let stored = stored.expect("read").remove(0);
    stored.map_or(0, |stored| record(&stored.bytes).run.state.machines.len())
}

async fn noted<P: Ports>(ports: &P, run: &RunId) -> Option<String> {
    let note = ports.quarantine().notes_of(std::slice::from_ref(run)).await;
    note.expect("notes").remove(0).map(|note| note.code)
}

/// A run that has granted all it may.
async fn begun<P: Ports>(ports: &Arc<P>, run: &RunId) {
    observed(ports, run, 1, async || {
        granted(ports.as_ref(), run).await == 1
    })
    .await;
}

/// A run with room for many, which granted one.
async fn wide<P: Ports>(ports: &Arc<P>, run: &RunId) -> Stored {
    begun(ports, run).await;
    let widened = async || {
        let stored = last(ports.as_ref(), run).await;
        record(&stored.bytes).run.state.limit == 50
    };
    observed(ports, run, LIMIT + 50, widened).await;
    last(ports.as_ref(), run).await
}

/// The record with room for many machines, and with a checksum that fits.
fn widened(bytes: &[u8], next: bool) -> Vec<u8> {
    let (mut record, sum) =
        envelope::decode::<Record<Rollout>>(bytes, Rollout::SCHEMA).expect("a record");
    record.run.state.limit = 50;
    if next {
        record.run.seq = record.run.seq.next();
        record.prev = sum;
        record.events = Vec::new();
    }
    envelope::encode(&record, Rollout::SCHEMA)
        .expect("a record")
        .0
}

fn with_mac_of(bytes: &[u8], of: &[u8]) -> Vec<u8> {
    match envelope::parts(of).expect("an envelope").mac {
        Some(mac) => envelope::with_mac(bytes, mac).expect("an envelope"),
        None => bytes.to_vec(),
    }
}

/// Puts `bytes` behind or in place of the last record of `run`, as anyone can who may write to the store.
async fn put<P: Ports>(ports: &P, run: &RunId, after: Revision, seq: Seq, bytes: Vec<u8>) {
    let append = Append {
        run: run.clone(),
        expected: Expected::At(after),
        bytes,
        seq,
        deadline: None,
        closed: None,
        quiet: true,
    };
    let result = ports.history().append(vec![append]).await.remove(0);
    result.expect("stored");
}

/// Plays every attack on the store of `engine`, whose writer has no keys.
async fn attacked<P: Ports, A: Ports>(
    engine: &Arc<P>,
    attacker: &A,
    older: &Arc<P>,
    defended: bool,
) {
    let other = wide(engine, &run("other")).await;
    let attacks = [
        "changed",
        "stripped",
        "appended",
        "other-run",
        "older-store",
    ];
    for attack in attacks {
        let run = run(attack);
        let old = wide(older, &run).await;
        begun(engine, &run).await;
        let Stored { bytes, revision } = last(attacker, &run).await;
        let seq = record(&bytes).run.seq;
        let (seq, forged, code) = match attack {
            "changed" => {
                let forged = with_mac_of(&widened(&bytes, false), &bytes);
                (seq, forged, "RecordForged")
            }
            "stripped" => (seq, widened(&bytes, false), "RecordUnkeyed"),
            "appended" => (seq.next(), widened(&bytes, true), "RecordUnkeyed"),
            "other-run" => (seq.next(), other.bytes.clone(), "RecordForged"),
            _ => (seq.next(), old.bytes, "RecordForged"),
        };
        put(attacker, &run, revision, seq, forged.clone()).await;
        if defended {
            let held = async || noted(engine.as_ref(), &run).await.is_some();
            observed(engine, &run, 2, held).await;
            let found = noted(engine.as_ref(), &run).await;
            assert_eq!(found.as_deref(), Some(code), "{attack}");
            let stored = last(attacker, &run).await.bytes;
            assert_eq!(stored, forged, "{attack}: nothing is decided on it");
        } else {
            let believed = async || granted(attacker, &run).await > 1;
            observed(engine, &run, 2, believed).await;
            assert_eq!(noted(engine.as_ref(), &run).await, None, "{attack}");
        }
    }
}

async fn on_nats(
    server: &NatsServer,
    prefix: &str,
    history_keys: Option<Arc<HistoryKeys>>,
) -> Arc<NatsStore> {
    let options = Options {
        prefix: Some(prefix.into()),
        history_keys,
        ..options(server)
    };
    Arc::new(NatsStore::open(&options).await.expect("a store"))
}

fn in_folder(
    folder: &Path,
    keys: Option<Arc<HistoryKeys>>,
) -> (Arc<Local<EmbeddedStore>>, Local<EmbeddedStore>) {
    let store = Arc::new(EmbeddedStore::open(folder).expect("a store"));
    let attacker = Local::new(Arc::clone(&store), SystemClock);
    let engine = Local::new(store, SystemClock).keyed_by(keys);
    (Arc::new(engine), attacker)
}

#[tokio::test]
async fn a_rewritten_history_on_nats_is_believed_without_keys_and_held_with_them() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = tempfile::tempdir().expect("a folder");
    for (prefix, older, defended) in [("open", "openold", false), ("shut", "shutold", true)] {
        let keys = defended.then(|| keys(folder.path(), "keys", None, false));
        let engine = on_nats(&server, prefix, keys.clone()).await;
        let older = on_nats(&server, older, keys).await;
        let attacker = on_nats(&server, prefix, None).await;
        attacked(&engine, attacker.as_ref(), &older, defended).await;
    }
}

#[tokio::test]
async fn a_rewritten_history_in_a_folder_is_believed_without_keys_and_held_with_them() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, defended) in [("open", false), ("shut", true)] {
        let keys = defended.then(|| keys(folder.path(), "keys", None, false));
        let (engine, attacker) = in_folder(&folder.path().join(name), keys.clone());
        let (older, _) = in_folder(&folder.path().join(format!("{name}-old")), keys);
        attacked(&engine, &attacker, &older, defended).await;
    }
}

#[tokio::test]
async fn an_older_record_at_the_end_is_noticed_from_memory_and_by_a_check_alone() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path(), "keys", None, false);
    let engine = on_nats(&server, "shut", Some(Arc::clone(&keys))).await;
    let run = run("back");
    wide(&engine, &run).await;
    let clean = prove(engine.as_ref(), &keys).await.expect("a proof");
    assert_eq!((clean.wrong, clean.unkeyed), (Vec::new(), 0));
    let mut old = Shard::<Rollout, _>::new(Arc::clone(&engine), "build", 10);
    let wider = async || {
        record(&last(engine.as_ref(), &run).await.bytes)
            .run
            .state
            .limit
            == 60
    };
    observed_by(&mut old, &engine, &run, LIMIT + 60, wider).await;
    let records = engine.reader().records(&run, Seq(0), 100).await;
    let first = records.expect("records").remove(0);
    let Stored { revision, bytes } = last(engine.as_ref(), &run).await;
    let seq = record(&bytes).run.seq.next();
    put(engine.as_ref(), &run, revision, seq, first).await;
    let proof = prove(engine.as_ref(), &keys).await.expect("a proof");
    assert_eq!(proof.wrong.len(), 1, "{proof:?}");
    assert!(proof.wrong[0].contains("rollout/back 1:"), "{proof:?}");

    let held = async || noted(engine.as_ref(), &run).await.is_some();
    observed_by(&mut old, &engine, &run, LIMIT + 6, held).await;
    let code = noted(engine.as_ref(), &run).await;
    assert_eq!(code.as_deref(), Some("RecordOlder"));
    let Some(note) = engine.quarantine().notes().await.expect("notes").pop() else {
        panic!("no note");
    };
    let removed = engine.quarantine().remove(&run, note.version).await;
    removed.expect("released");

    // An engine that has just begun knows no better.
    let behind = async || record(&last(engine.as_ref(), &run).await.bytes).run.seq == Seq(2);
    observed(&engine, &run, LIMIT + 7, behind).await;
    assert_eq!(noted(engine.as_ref(), &run).await, None);
}

#[tokio::test]
async fn a_store_without_macs_is_keyed_and_its_keys_rotate() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let idle = run("idle");
    let plain = on_nats(&server, "grown", None).await;
    begun(&plain, &idle).await;
    drop(plain);
    let lenient = keys(folder.path(), "old", None, true);
    let engine = on_nats(&server, "grown", Some(Arc::clone(&lenient))).await;
    // Engines that believe what has no MAC, until the last records have one.
    begun(&engine, &run("new")).await;
    let proof = prove(engine.as_ref(), &lenient).await.expect("a proof");
    assert_eq!(
        (proof.last_unkeyed, proof.wrong),
        (vec![idle.clone()], Vec::new())
    );
    let strict = keys(folder.path(), "old", None, false);
    let refused = key_last_records(engine.as_ref(), &strict).await;
    assert!(
        refused
            .expect_err("a refusal")
            .to_string()
            .contains("rollout/idle")
    );
    let keyed = key_last_records(engine.as_ref(), &lenient).await;
    assert_eq!(keyed, Ok((1, 2)));
    let again = key_last_records(engine.as_ref(), &lenient).await;
    assert_eq!(again, Ok((0, 2)), "nothing is left to do");
    let records = engine.reader().records(&idle, Seq(0), 100).await;
    let count = records.expect("records").len();
    assert_eq!(
        count,
        record(&last(engine.as_ref(), &idle).await.bytes).run.seq.0 as usize
    );
    drop(engine);
    let engine = on_nats(&server, "grown", Some(Arc::clone(&strict))).await;
    let wider = async || {
        record(&last(engine.as_ref(), &idle).await.bytes)
            .run
            .state
            .limit
            == 9
    };
    observed(&engine, &idle, LIMIT + 9, wider).await;

    // Both keys are accepted, the old one writes; then only the order in the file changes.
    let both = keys(folder.path(), "both", Some("old"), false);
    assert_eq!(both.writes_as(), strict.writes_as());
    let text = std::fs::read_to_string(folder.path().join("both")).expect("keys");
    let lines: Vec<&str> = text.lines().collect();
    let turned = folder.path().join("turned");
    std::fs::copy(folder.path().join("both"), &turned).expect("a copy");
    std::fs::write(&turned, [lines[2], lines[1]].join("\n")).expect("written");
    let turned = keys(folder.path(), "turned", None, false);
    let keyed = key_last_records(engine.as_ref(), &turned).await;
    assert_eq!(keyed, Ok((2, 2)));
    let alone = folder.path().join("alone");
    std::fs::copy(folder.path().join("both"), &alone).expect("a copy");
    std::fs::write(&alone, lines[2]).expect("written");
    let alone = keys(folder.path(), "alone", None, false);
    drop(engine);
    let engine = on_nats(&server, "grown", Some(alone)).await;
    let wider = async || {
        record(&last(engine.as_ref(), &idle).await.bytes)
            .run
            .state
            .limit
            == 8
    };
    observed(&engine, &idle, LIMIT + 8, wider).await;
    let proof = prove(engine.as_ref(), &strict).await.expect("a proof");
    assert!(proof.wrong[0].contains("which is not in --history-keys"));
}

#[tokio::test]
async fn a_dump_is_proven_and_a_restored_store_has_its_own_macs() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path(), "keys", None, false);
    let from = folder.path().join("from");
    {
        let (engine, _) = in_folder(&from, Some(Arc::clone(&keys)));
        wide(&engine, &run("a")).await;
    }
    let mut text = Vec::new();
    dump(&from, &mut text).expect("a dump");
    let proof = prove_dump(&mut text.as_slice(), &keys).expect("a proof");
    let records = proof.keyed.values().sum::<u64>();
    assert!(records >= 2 && proof.wrong.is_empty(), "{proof:?}");

    let to = folder.path().join("to");
    let restored = restore(&mut text.as_slice(), &to, Some(&keys)).expect("restored");
    assert_eq!(restored, records);
    let (engine, _) = in_folder(&to, Some(Arc::clone(&keys)));
    let proof = prove(engine.as_ref(), &keys).await.expect("a proof");
    assert!(proof.wrong.is_empty(), "{proof:?}");
    let two = async || granted(engine.as_ref(), &run("a")).await == 2;
    observed(&engine, &run("a"), 2, two).await;

    // Without keys the records keep the MACs of the old store, and an engine with keys leaves them alone.
    let bare = folder.path().join("bare");
    restore(&mut text.as_slice(), &bare, None).expect("restored");
    let (engine, _) = in_folder(&bare, Some(Arc::clone(&keys)));
    let held = async || noted(engine.as_ref(), &run("a")).await.is_some();
    observed(&engine, &run("a"), 2, held).await;
    let code = noted(engine.as_ref(), &run("a")).await;
    assert_eq!(code.as_deref(), Some("RecordForged"));

    // A changed dump is not restored.
    let other = self::keys(folder.path(), "other", None, false);
    let refused = restore(
        &mut text.as_slice(),
        &folder.path().join("no"),
        Some(&other),
    );
    let why = refused.expect_err("a refusal").to_string();
    assert!(
        why.contains("rollout/a 1") && why.contains(keys.writes_as()),
        "{why}"
    );
}

/// The steps of SECURITY.md after a stolen NATS whose keys are stolen, too: new keys on the old volumes, then an empty store.
#[tokio::test]
async fn after_a_stolen_nats_the_old_keys_count_neither_for_messages_nor_for_records() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let opened = async |prefix: &str, when: &str| {
        let of_roles = folder.path().join(format!("{when}-roles"));
        if !of_roles.exists() {
            // As `dormer keys make` without --keep.
            make(&of_roles, &["engine", "watcher"], None).expect("keys");
        }
        let signing = Keys::open(&of_roles, &["engine", "watcher"], false).expect("keys");
        let options = Options {
            prefix: Some(prefix.into()),
            keys: Some(Arc::new(signing)),
            history_keys: Some(keys(folder.path(), when, None, false)),
            ..options(&server)
        };
        Arc::new(NatsStore::open(&options).await.expect("a store"))
    };
    let a = run("a");
    let installation = opened("stolen", "old").await;
    let recorded = wide(&installation, &a).await;
    drop(installation);
    let new = keys(folder.path(), "new", None, false);

    // The thief has a login and every key of the old installation, and reads no inbox.
    for prefix in ["stolen", "empty"] {
        let engine = opened(prefix, "new").await;
        let thief = opened(prefix, "old").await;
        if prefix == "empty" {
            // The first fact begins the run again, as adoption does with a node that serves.
            begun(&engine, &a).await;
            let clean = prove(engine.as_ref(), &new).await.expect("a proof");
            assert_eq!((clean.wrong, clean.unkeyed), (Vec::new(), 0));
            let Stored { bytes, revision } = last(engine.as_ref(), &a).await;
            let seq = record(&bytes).run.seq.next();
            put(thief.as_ref(), &a, revision, seq, recorded.bytes.clone()).await;
        }
        let signed = observation(&a, 7);
        let sent = thief.inbox().put(vec![(a.clone(), signed)]).await;
        sent.expect("put");
        let noted_as_refused = await_condition("the message to be refused", SOON, || async {
            !engine.dead().list(0, 9).await.expect("letters").is_empty()
        });
        tokio::select! {
            () = noted_as_refused => {}
            taken = engine.inbox().take(9) => panic!("{prefix}: the thief's message counts: {taken:?}"),
        }
        // dormer store check
        let proof = prove(engine.as_ref(), &new).await.expect("a proof");
        let named =
            |line: &String| line.contains("rollout/a") && line.contains("not in --history-keys");
        assert!(proof.wrong.iter().any(named), "{prefix}: {proof:?}");
        // An engine grants nothing by such a record.
        let held = async || noted(engine.as_ref(), &a).await.is_some();
        observed(&engine, &a, 2, held).await;
        let code = noted(engine.as_ref(), &a).await;
        assert_eq!(code.as_deref(), Some("RecordKeyUnknown"), "{prefix}");
        let stored = last(engine.as_ref(), &a).await;
        assert_eq!(
            stored.bytes, recorded.bytes,
            "{prefix}: nothing is decided on it"
        );
    }
}

/// A body of 2 KiB.
#[derive(Serialize)]
struct Body {
    machines: Vec<u64>,
}

impl envelope::Message for Body {
    const KIND: &'static str = "record";
}

#[test]
fn what_a_mac_costs() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path(), "keys", None, false);
    let run = run("a");
    let of = RecordOf {
        incarnation: Incarnation(1),
        run: &run,
    };
    let big = Body {
        machines: vec![u64::MAX; 220],
    };
    let bytes = envelope::encode(&big, 1).expect("a record").0;
    let rounds = 1_000;
    let begun = std::time::Instant::now();
    let mut keyed_bytes = Vec::new();
    for _ in 0..rounds {
        keyed_bytes = add_mac(&keys, of, bytes.clone());
    }
    let between = begun.elapsed();
    for _ in 0..rounds {
        assert_eq!(
            keyed::verify_if_keyed(Some(&keys), of, &keyed_bytes),
            Ok(())
        );
    }
    let verified = begun.elapsed() - between;
    assert_eq!(
        keyed::verify_if_keyed(Some(&keys), of, &bytes),
        Err(Unproven::Missing)
    );
    println!(
        "of {} bytes each: written in {:?}, compared in {:?}",
        bytes.len(),
        between / rounds,
        verified / rounds
    );
}
