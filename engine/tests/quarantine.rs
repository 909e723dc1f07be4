//! One run that cannot continue stops no other: it is noted, its messages leave the inbox, and it continues after its
//! release.

use dormer_engine::{
    embedded::EmbeddedStore,
    engine::{self, complete_releases},
    local::{Local, LocalInbox},
    memory::MemoryStore,
    nats::{Durability, NatsStore, Options},
    observer::{Appended, EngineObserver},
    port::{
        Ack, Append, AppendError, Clock, DeadLetter, DeadLetters, Expected, Head, History,
        HistoryReader, Inbox, Ports, Quarantine, QuarantineNote, StoreError, Stored,
    },
    quarantine::{KnownNotes, release},
    shard::{Counters, Shard},
};
use dormer_engine_core::{
    Command, Decision, InboxMessageOf, Input, Now, Record, RetryPolicy, Run, Workflow,
};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, Revision, RunId, Seq, Timestamp},
    lock::Locked as _,
    message::{
        Ask, Inbound, InboxMessage, ObjectRef, Observation, ReceiptStatus, Reporter, Request,
        TaskOrder, TaskReport, Version,
    },
};
use dormer_testkit::{NatsOptions, NatsServer, await_condition, started};
use futures::FutureExt;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// A workflow that orders one task for each fact, and greets its neighbour when asked to.
#[derive(Debug, Clone, PartialEq)]
struct Shop;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Till {
    facts: u64,
    finished: u64,
    exhausted: Vec<String>,
    greeted: u64,
    #[serde(default)]
    last: Option<Page>,
}

/// A text whose code panics where it says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
struct Page(String);

impl From<String> for Page {
    fn from(text: String) -> Self {
        assert!(!text.contains("unreadable"), "nobody can read this");
        Self(text)
    }
}

impl From<Page> for String {
    fn from(page: Page) -> Self {
        let Page(text) = page;
        assert_ne!(text, "written nowhere", "nobody can write this");
        text
    }
}

/// A task that no class suits.
const OUTCAST: u64 = u64::MAX;

impl Workflow for Shop {
    const SCHEMA: u16 = 1;
    type State = Till;
    type Task = u64;
    type Outcome = Page;
    type Fact = Page;
    type Timer = u8;
    type Signal = String;

    fn start(_: &RunId, _: bool) -> Option<Till> {
        Some(Till::default())
    }

    fn decide(_: Now<'_>, mut state: Till, input: Input<Self>) -> Decision<Self> {
        match input {
            Input::Observed { fact, .. } => {
                let says = fact.map(|Page(says)| says).unwrap_or_default();
                assert_ne!(says, "poison", "nobody expected this");
                state.facts += 1;
                let task = match says.as_str() {
                    "outcast" => OUTCAST,
                    _ => state.facts,
                };
                if says == "burns" || (says == "burns second" && state.facts == 2) {
                    state.last = Some(Page("written nowhere".into()));
                }
                if says == "swells second" && state.facts == 2 {
                    state.last = Some(Page("x".repeat(2_000_000)));
                }
                Decision::to(state).run(task, RetryPolicy::PATIENT)
            }
            Input::Finished { .. } => {
                state.finished += 1;
                Decision::to(state)
            }
            Input::Exhausted { failure, .. } => {
                state.exhausted.push(failure.code);
                Decision::to(state)
            }
            Input::Signalled { signal, .. } => {
                state.greeted += 1;
                let to = signal.strip_prefix("greet ").map(run);
                let greets = |to| Command::Signal(to, "hello".to_owned());
                to.into_iter()
                    .map(greets)
                    .fold(Decision::to(state), Decision::and)
            }
            _ => Decision::to(state),
        }
    }

    fn label(_: &Till) -> &'static str {
        "Open"
    }

    fn class(task: &u64) -> &'static str {
        assert_ne!(*task, OUTCAST, "nobody does this");
        "host"
    }
}

fn run(key: &str) -> RunId {
    RunId::new("shop", key).expect("a run id")
}

/// A store that refuses the records of one run, as it would refuse one that is too large.
struct Refusing {
    store: MemoryStore,
    refused: Mutex<Option<RunId>>,
    /// Whether the first page of heads panics, and the second never comes.
    moody: bool,
    pages: AtomicU64,
}

impl Refusing {
    fn refuse(&self, run: Option<RunId>) {
        *self.refused.locked() = run;
    }
}

impl History for Refusing {
    fn incarnation(&self) -> Incarnation {
        self.store.incarnation()
    }
    fn exclusive(&self) -> bool {
        // One that is not asks for heads in its sweep alone.
        !self.moody
    }
    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Stored>>, StoreError> {
        self.store.load(runs).await
    }
    async fn append(&self, batch: Vec<Append>) -> Vec<Result<Revision, AppendError>> {
        let refused = self.refused.locked().clone();
        let mut results = Vec::new();
        for append in batch {
            results.push(if Some(&append.run) == refused.as_ref() {
                Err(AppendError::Refused("no".into()))
            } else {
                self.store.append(vec![append]).await.remove(0)
            });
        }
        results
    }
}

impl HistoryReader for Refusing {
    async fn records(
        &self,
        run: &RunId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.store.records(run, from, limit).await
    }
    async fn heads(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<Head>, StoreError> {
        match self.pages.fetch_add(1, Ordering::SeqCst) {
            0 if self.moody => panic!("nobody expected this"),
            1 if self.moody => std::future::pending().await,
            _ => self.store.heads(after, limit).await,
        }
    }
    async fn forget(&self, run: &RunId, revision: Revision) -> Result<(), StoreError> {
        self.store.forget(run, revision).await
    }
}

impl DeadLetters for Refusing {
    async fn put(&self, message: DeadLetter) -> Result<(), StoreError> {
        DeadLetters::put(&self.store, message).await
    }
    async fn list(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.list(after, limit).await
    }
    async fn remove(&self, id: u64) -> Result<(), StoreError> {
        DeadLetters::remove(&self.store, id).await
    }
}

impl Quarantine for Refusing {
    async fn put(&self, note: QuarantineNote) -> Result<u64, StoreError> {
        Quarantine::put(&self.store, note).await
    }
    async fn notes_of(&self, runs: &[RunId]) -> Result<Vec<Option<QuarantineNote>>, StoreError> {
        self.store.notes_of(runs).await
    }
    async fn notes(&self) -> Result<Vec<QuarantineNote>, StoreError> {
        self.store.notes().await
    }
    async fn remove(&self, run: &RunId, version: u64) -> Result<(), StoreError> {
        Quarantine::remove(&self.store, run, version).await
    }
}

/// What an engine reported.
#[derive(Default)]
struct Reported(Mutex<Vec<String>>);

impl EngineObserver<Shop> for Reported {
    type StateBefore = ();
    fn state_before(&self, _: &Run<Shop>) {}
    fn stored(&self, _: Option<()>, _: &Record<Shop>) {}
    fn appended(&self, _: Duration, _: Appended) {}
    fn quarantined(&self, run: &RunId, code: &str, _: &str) {
        let mut reports = self.0.locked();
        reports.push(format!("{run}: {code}"));
    }
    fn dropped(&self, _: u64, _: u64) {}
    fn dead_lettered(&self) {}
}

#[derive(Clone, Copy)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp(1_000)
    }
}

type Site = Local<Refusing, Still>;

fn site() -> Arc<Site> {
    site_with(false)
}

fn site_with(moody: bool) -> Arc<Site> {
    let store = Refusing {
        store: MemoryStore::new(Incarnation(5)),
        refused: Mutex::default(),
        moody,
        pages: AtomicU64::new(0),
    };
    Arc::new(Local::new(Arc::new(store), Still))
}

fn shard(site: &Arc<Site>, build: &str) -> Shard<Shop, Site> {
    Shard::new(Arc::clone(site), build, 8)
}

fn fact(to: &str, object: u64, says: &str) -> (RunId, Vec<u8>) {
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Page".into(),
        uid: object.to_string(),
    };
    let version = Version {
        epoch: Epoch(1),
        resource: 1,
    };
    message(
        to,
        Inbound::Observed(Observation {
            object,
            version,
            fact: Some(Page(says.to_owned())),
            may_start: true,
        }),
    )
}

fn person_request(to: &str, says: &str) -> (RunId, Vec<u8>) {
    message(
        to,
        Inbound::Requested(Request {
            id: says.to_owned(),
            who: "ada".into(),
            why: String::new(),
            against: Seq(0),
            ask: Ask::Signal(says.to_owned()),
        }),
    )
}

fn message(to: &str, body: Inbound<Page, Page, String>) -> (RunId, Vec<u8>) {
    let message: InboxMessageOf<Shop> = InboxMessage {
        run: run(to),
        incarnation: Some(Incarnation(5)),
        body,
    };
    let (bytes, _) = envelope::encode(&message, 1).expect("a message");
    (run(to), bytes)
}

/// Works off what waits in the inbox now, and what comes of it.
async fn work<E: EngineObserver<Shop>>(site: &Site, shard: &mut Shard<Shop, Site, E>) {
    while let Some(batch) = site.inbox.take(1_000).now_or_never() {
        shard
            .turn(batch.expect("messages"))
            .await
            .expect("the engine goes on");
    }
}

async fn put(inbox: &LocalInbox, messages: Vec<(RunId, Vec<u8>)>) {
    inbox.put(messages).await.expect("put");
}

async fn stored(site: &Site, key: &str) -> Run<Shop> {
    let bytes = site
        .store
        .load(&[run(key)])
        .await
        .expect("loaded")
        .remove(0);
    let bytes = bytes.expect("a record").bytes;
    envelope::decode::<Record<Shop>>(&bytes, 1)
        .expect("a record")
        .0
        .run
}

async fn noted(site: &Site) -> Vec<(String, String)> {
    let notes = site.store.notes().await.expect("notes");
    notes
        .into_iter()
        .map(|note| (note.run.key().to_owned(), note.code))
        .collect()
}

/// The report of the order that waits, with this outcome.
async fn report(site: &Site, outcome: &str) -> (RunId, Vec<u8>) {
    let order = site.tasks.take(1).await.remove(0);
    let (order, _) = envelope::decode::<TaskOrder<u64>>(&order.bytes, 1).expect("an order");
    let key = order.task.run.key().to_owned();
    message(
        &key,
        Inbound::Reported(TaskReport {
            task: order.task,
            attempt: order.attempt,
            issued: order.issued,
            worker: "w".into(),
            by: Reporter::default(),
            result: Ok(Page(outcome.to_owned())),
        }),
    )
}

fn fates(site: &Site) -> Vec<ReceiptStatus> {
    site.tasks
        .receipts()
        .into_iter()
        .map(|receipt| receipt.fate)
        .collect()
}

#[tokio::test]
async fn messages_to_a_refused_run_leave_the_inbox_and_the_run_is_noted_once() {
    let site = site();
    let reports = Arc::new(Reported::default());
    let mut engine = Shard::<Shop, Site, Reported>::observed_by(
        Arc::clone(&site),
        "one",
        8,
        Arc::clone(&reports),
    );
    site.store.refuse(Some(run("big")));
    for round in 0..3 {
        let mut batch: Vec<_> = (0..300)
            .map(|n| fact("big", round * 300 + n, "x"))
            .collect();
        batch.push(fact("small", round, "x"));
        put(&site.inbox, batch).await;
        work(&site, &mut engine).await;
        assert_eq!(
            site.inbox.depth(),
            0,
            "nothing stays for other engines to trip over"
        );
    }
    assert_eq!(
        stored(&site, "small").await.state.facts,
        3,
        "nobody waits for it"
    );
    assert_eq!(noted(&site).await, [("big".into(), "RecordRefused".into())]);
    let note = site.store.notes().await.expect("notes").remove(0);
    assert_eq!(
        (note.builds, note.why.as_str(), note.at),
        (vec!["one".into()], "no", Timestamp(1_000))
    );
    let reports = reports.0.locked().clone();
    assert_eq!(reports, ["shop/big: RecordRefused"]);
}

#[tokio::test]
async fn a_released_run_gets_again_what_it_missed() {
    let site = site();
    let mut engine = shard(&site, "one");
    put(
        &site.inbox,
        vec![fact("big", 1, "x"), fact("small", 1, "x")],
    )
    .await;
    work(&site, &mut engine).await;
    site.store.refuse(Some(run("big")));
    let reported = report(&site, "done").await;
    assert_eq!(reported.0, run("big"));
    put(
        &site.inbox,
        vec![reported, person_request("small", "greet big")],
    )
    .await;
    work(&site, &mut engine).await;
    assert_eq!(site.inbox.depth(), 0);
    assert_eq!(fates(&site), [ReceiptStatus::Unknown], "the worker lets go");
    assert_eq!(
        stored(&site, "small").await.outbox.len(),
        1,
        "neither receipted nor refused"
    );
    assert_eq!(noted(&site).await.len(), 1);

    site.store.refuse(None);
    assert!(release(site.as_ref(), &run("big")).await.expect("released"));
    complete_releases::<Shop, _>(&site, &KnownNotes::default())
        .await
        .expect("completed");
    assert_eq!(noted(&site).await, []);
    work(&site, &mut engine).await;
    let big = stored(&site, "big").await;
    assert_eq!(big.state.greeted, 1, "its sender sent it again");
    assert!(stored(&site, "small").await.outbox.is_empty());
    let mut orders = BTreeSet::new();
    while let Some(taken) = site.tasks.take(8).now_or_never() {
        orders.extend(taken.into_iter().map(|order| order.task.run));
    }
    assert!(
        orders.contains(&big.id),
        "its task is ordered again: {orders:?}"
    );
}

#[tokio::test]
async fn another_build_tries_once_and_its_success_releases_the_run() {
    let site = site();
    site.store.refuse(Some(run("big")));
    let mut one = shard(&site, "one");
    put(&site.inbox, vec![fact("big", 1, "x")]).await;
    work(&site, &mut one).await;
    let builds = async || site.store.notes().await.expect("notes").remove(0).builds;
    assert_eq!(builds().await, ["one"]);

    // It has just begun, and has not read the notes yet.
    let known = Arc::new(KnownNotes::default());
    let mut two = shard(&site, "two").with_quarantine_notes(Arc::clone(&known));
    put(&site.inbox, vec![fact("big", 1, "x")]).await;
    work(&site, &mut two).await;
    assert_eq!(builds().await, ["one", "two"], "it tried");
    let tries = two.counters.refused;
    put(&site.inbox, vec![fact("big", 1, "x")]).await;
    work(&site, &mut two).await;
    assert_eq!(two.counters.refused, tries, "and not again");

    site.store.refuse(None);
    let mut three = shard(&site, "three").with_quarantine_notes(known);
    put(&site.inbox, vec![fact("big", 1, "x")]).await;
    work(&site, &mut three).await;
    assert_eq!(stored(&site, "big").await.state.facts, 1);
    complete_releases::<Shop, _>(&site, &KnownNotes::default())
        .await
        .expect("completed");
    assert_eq!(noted(&site).await, [], "its success released the run");
}

#[tokio::test]
async fn a_damaged_record_and_a_decision_that_panics_stop_their_runs_alone() {
    let site = site();
    let mut engine = shard(&site, "one");
    let damaged = Append {
        run: run("damaged"),
        expected: Expected::Nothing,
        bytes: b"not a record".to_vec(),
        seq: Seq(1),
        deadline: None,
        closed: None,
        quiet: false,
    };
    assert!(site.store.append(vec![damaged]).await[0].is_ok());
    put(&site.inbox, vec![fact("poisoned", 1, "x")]).await;
    work(&site, &mut engine).await;
    let batch = vec![
        fact("poisoned", 2, "poison"),
        fact("new", 1, "poison"),
        fact("damaged", 1, "x"),
        fact("sound", 1, "x"),
    ];
    put(&site.inbox, batch).await;
    work(&site, &mut engine).await;
    let expected = [
        ("damaged", "RecordUnreadable"),
        ("new", "DecisionPanicked"),
        ("poisoned", "DecisionPanicked"),
    ];
    let expected = expected.map(|(key, code)| (key.to_owned(), code.to_owned()));
    assert_eq!(noted(&site).await, expected);
    let notes = site.store.notes().await.expect("notes");
    assert!(
        notes[2].why.contains("nobody expected this"),
        "{}",
        notes[2].why
    );
    assert_eq!(site.inbox.depth(), 0);
    assert_eq!(stored(&site, "sound").await.state.facts, 1);
    assert_eq!(
        stored(&site, "poisoned").await.state.facts,
        1,
        "its record is as it was"
    );
    let all = vec![run("damaged"), run("poisoned")];
    engine
        .revisit(all)
        .await
        .expect("a pass over all runs goes on");
}

/// An observer whose code panics about some runs.
#[derive(Default)]
struct Nervous;

impl EngineObserver<Shop> for Nervous {
    type StateBefore = ();
    fn state_before(&self, run: &Run<Shop>) {
        assert_ne!(run.id.key(), "watched", "nobody looks at this");
    }
    fn stored(&self, _: Option<()>, record: &Record<Shop>) {
        assert_ne!(record.run.id.key(), "stored", "nobody tells of this");
    }
    fn appended(&self, _: Duration, _: Appended) {}
    fn dropped(&self, _: u64, _: u64) {}
    fn dead_lettered(&self) {}
}

/// Stores a record of `like` under the name `key`, with what `change` does to it.
async fn store_as(site: &Site, like: &str, key: &str, change: impl FnOnce(&mut Record<Shop>)) {
    let bytes = site.store.load(&[run(like)]).await.expect("loaded");
    let bytes = bytes[0].as_ref().expect("a record").bytes.clone();
    let (mut record, _) = envelope::decode::<Record<Shop>>(&bytes, 1).expect("a record");
    record.run.id = run(key);
    change(&mut record);
    let (bytes, _) = envelope::encode(&record, 1).expect("a record");
    let append = Append {
        run: run(key),
        expected: Expected::Nothing,
        bytes,
        seq: record.run.seq,
        deadline: record.run.deadline(),
        closed: None,
        quiet: false,
    };
    assert!(site.store.append(vec![append]).await[0].is_ok());
}

/// Works off a message to a run whose code panics, beside one to a sound run, twice. Returns the cause of the
/// quarantine.
async fn panics_alone<E: EngineObserver<Shop>>(
    site: &Arc<Site>,
    engine: &mut Shard<Shop, Site, E>,
    key: &str,
    says: &str,
) -> String {
    let before = site.store.load(&[run(key)]).await.expect("loaded");
    let facts = match site.store.load(&[run("sound")]).await.expect("loaded")[0] {
        Some(_) => stored(site, "sound").await.state.facts,
        None => 0,
    };
    for round in 1..=2 {
        let batch = vec![
            fact(key, 90 + round, says),
            fact("sound", facts + round, "x"),
        ];
        put(&site.inbox, batch).await;
        work(site, engine).await;
        assert_eq!(
            stored(site, "sound").await.state.facts,
            facts + round,
            "the others go on"
        );
    }
    assert_eq!(site.inbox.depth(), 0, "{key}");
    let after = site.store.load(&[run(key)]).await.expect("loaded");
    assert_eq!(after, before, "the history of {key} is as it was");
    let notes = site.store.notes().await.expect("notes");
    let mut notes = notes.into_iter().filter(|note| note.run == run(key));
    let note = notes.next().expect("a note");
    assert_eq!(note.code, "DecisionPanicked");
    note.why
}

#[tokio::test]
async fn a_message_whose_decoding_panics_stops_its_run_alone() {
    let site = site();
    let mut engine = shard(&site, "one");
    put(&site.inbox, vec![fact("sick", 1, "x")]).await;
    work(&site, &mut engine).await;
    let why = panics_alone(&site, &mut engine, "sick", "unreadable").await;
    assert!(why.contains("nobody can read this"), "{why}");
    assert_eq!(engine.counters.quarantined, 1, "once");
    let reported = report(&site, "unreadable").await;
    put(&site.inbox, vec![reported]).await;
    work(&site, &mut engine).await;
    assert_eq!(site.inbox.depth(), 0);
    assert_eq!(fates(&site), [ReceiptStatus::Unknown], "the worker lets go");
}

#[tokio::test]
async fn an_engine_decodes_messages_before_their_shard_and_goes_on_after_a_panic_there() {
    let site = site();
    let (halt, halted) = watch::channel(false);
    let running = tokio::spawn(engine::run::<Shop, _>(
        Arc::clone(&site),
        engine::Options::default(),
        halted,
    ));
    put(
        &site.inbox,
        vec![fact("sick", 1, "unreadable"), fact("sound", 1, "x")],
    )
    .await;
    await_condition(
        "a sound run and a note",
        Duration::from_secs(60),
        || async {
            let sound = site.store.load(&[run("sound")]).await.expect("loaded");
            sound[0].is_some() && noted(&site).await == [("sick".into(), "DecisionPanicked".into())]
        },
    )
    .await;
    halt.send_replace(true);
    let counters = running.await.expect("no panic").expect("sound");
    assert_eq!(counters.quarantined, 1);
}

#[tokio::test]
async fn a_record_or_an_order_whose_writing_panics_stops_its_run_alone_and_is_never_stored() {
    let site = site();
    let mut engine = shard(&site, "one");
    put(
        &site.inbox,
        vec![fact("burning", 1, "x"), fact("outcast", 1, "x")],
    )
    .await;
    work(&site, &mut engine).await;
    let why = panics_alone(&site, &mut engine, "burning", "burns").await;
    assert!(why.contains("nobody can write this"), "{why}");
    let why = panics_alone(&site, &mut engine, "outcast", "outcast").await;
    assert!(why.contains("nobody does this"), "{why}");
    assert_eq!(engine.counters.quarantined, 2);
}

#[tokio::test]
async fn a_record_that_panics_or_is_too_large_on_an_old_state_is_decided_again_on_the_stored_one() {
    for too_large in [false, true] {
        let site = site_with(true);
        let mut engine = shard(&site, "one");
        put(&site.inbox, vec![fact("shared", 1, "x")]).await;
        work(&site, &mut engine).await;
        put(&site.inbox, vec![fact("shared", 2, "x")]).await;
        work(&site, &mut shard(&site, "another")).await;
        assert_eq!(stored(&site, "shared").await.state.facts, 2);

        // For the first engine it is still the second fact.
        let says = if too_large {
            "swells second"
        } else {
            "burns second"
        };
        put(&site.inbox, vec![fact("shared", 3, says)]).await;
        work(&site, &mut engine).await;
        assert_eq!(noted(&site).await, [], "{says}");
        let shared = stored(&site, "shared").await.state;
        assert_eq!((shared.facts, site.inbox.depth()), (3, 0), "{says}");
        assert_eq!(engine.counters.dead, 0, "{says}");
    }
}

#[tokio::test]
async fn an_observer_that_panics_before_a_transition_stops_that_run_and_after_it_nothing() {
    let site = site();
    let mut engine =
        Shard::<Shop, Site, Nervous>::observed_by(Arc::clone(&site), "one", 8, Arc::default());
    put(
        &site.inbox,
        vec![fact("watched", 1, "x"), fact("stored", 1, "x")],
    )
    .await;
    work(&site, &mut engine).await;
    let why = panics_alone(&site, &mut engine, "watched", "x").await;
    assert!(why.contains("nobody looks at this"), "{why}");
    put(&site.inbox, vec![fact("stored", 2, "x")]).await;
    work(&site, &mut engine).await;
    assert_eq!(stored(&site, "stored").await.state.facts, 2);
    assert_eq!(noted(&site).await.len(), 1, "what is stored is stored");
    let mut orders = 0;
    while let Some(taken) = site.tasks.take(8).now_or_never() {
        orders += taken
            .iter()
            .filter(|it| it.task.run == run("stored"))
            .count();
    }
    assert_eq!(orders, 2, "and its tasks are ordered");
}

#[tokio::test]
async fn a_record_that_panics_while_it_is_read_and_outstanding_work_that_does_stop_their_runs_alone()
 {
    let site = site();
    let mut engine = shard(&site, "one");
    put(&site.inbox, vec![fact("like", 1, "x")]).await;
    work(&site, &mut engine).await;
    store_as(&site, "like", "garbled", |record| {
        record.run.state.last = Some(Page("unreadable".into()));
    })
    .await;
    store_as(&site, "like", "stuck", |record| {
        record.run.tasks[0].body = OUTCAST;
    })
    .await;
    let all = ["garbled", "stuck", "like"].map(run).to_vec();
    engine
        .revisit(all)
        .await
        .expect("a pass over all runs goes on");
    let why = panics_alone(&site, &mut engine, "garbled", "x").await;
    assert!(why.contains("nobody can read this"), "{why}");
    let why = panics_alone(&site, &mut engine, "stuck", "x").await;
    assert!(why.contains("nobody does this"), "{why}");
}

#[tokio::test]
async fn messages_that_do_not_fit_together_are_stored_in_parts() {
    let site = site();
    let mut engine = shard(&site, "one");
    let page = "x".repeat(20_000);
    put(
        &site.inbox,
        (0..64).map(|n| fact("big", n, &page)).collect(),
    )
    .await;
    work(&site, &mut engine).await;
    assert_eq!(stored(&site, "big").await.state.facts, 64);
    assert_eq!((site.inbox.depth(), noted(&site).await), (0, Vec::new()));
    assert_eq!(engine.counters.dead, 0);
}

#[tokio::test]
async fn a_message_that_does_not_fit_alone_is_left_out_and_the_run_goes_on() {
    let site = site();
    let mut engine = shard(&site, "one");
    put(&site.inbox, vec![fact("big", 1, "x")]).await;
    work(&site, &mut engine).await;
    let whole = "x".repeat(999_700);
    let mut batch = vec![report(&site, &whole).await, fact("big", 2, &whole)];
    batch.extend((3..20).map(|n| fact("big", n, "x")));
    put(&site.inbox, batch).await;
    work(&site, &mut engine).await;
    // The watcher repeats its fact.
    put(&site.inbox, vec![fact("big", 2, &whole)]).await;
    work(&site, &mut engine).await;
    let big = stored(&site, "big").await.state;
    assert_eq!((big.facts, big.finished), (18, 0));
    assert_eq!(
        big.exhausted,
        ["ReportTooLarge"],
        "the task has failed, with a reason"
    );
    assert_eq!(
        fates(&site),
        [ReceiptStatus::Taken],
        "and the worker stops repeating it"
    );
    let dead = site.store.list(0, 9).await.expect("dead letters");
    assert_eq!(dead.len(), 2, "each once");
    assert!(
        dead.iter()
            .all(|dead| dead.run == Some(run("big")) && dead.bytes.len() > 999_700)
    );
    assert_eq!((site.inbox.depth(), noted(&site).await), (0, Vec::new()));
}

#[tokio::test]
async fn the_quarantine_outlasts_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let poison = [("sick", "poison"), ("well", "x")];
    for reopened in [false, true] {
        let store = EmbeddedStore::open(folder.path()).expect("a store");
        let incarnation = store.incarnation();
        let ports = Arc::new(Local::new(Arc::new(store), Still));
        let known = Arc::new(KnownNotes::default());
        known.refresh(ports.as_ref()).await.expect("read");
        let mut shard = Shard::<Shop, _>::new(Arc::clone(&ports), "one", 8)
            .with_quarantine_notes(Arc::clone(&known));
        for (to, says) in poison {
            let (run, bytes) = fact(to, 1, says);
            let (mut message, _) =
                envelope::decode::<InboxMessageOf<Shop>>(&bytes, 1).expect("ours");
            message.incarnation = Some(incarnation);
            let (bytes, _) = envelope::encode(&message, 1).expect("a message");
            ports.inbox.put(vec![(run, bytes)]).await.expect("put");
        }
        let batch = ports.inbox.take(8).await.expect("messages");
        shard.turn(batch).await.expect("the engine goes on");
        assert_eq!(ports.inbox.depth(), 0);
        let Counters {
            quarantined,
            taken_away,
            ..
        } = shard.counters;
        assert_eq!((quarantined, taken_away), (u64::from(!reopened), 1));
    }
}

#[tokio::test]
async fn on_nats_a_panic_quarantines_its_run_for_every_engine_of_the_build() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let options = Options {
        servers: server.url(),
        durability: Durability::LazyAccepted,
        ..Options::default()
    };
    let ours = Arc::new(NatsStore::open(&options).await.expect("a store"));
    let theirs = Arc::new(NatsStore::open(&options).await.expect("another process"));
    let to = |says: &str, object| {
        let (run, bytes) = fact("sick", object, says);
        let (mut message, _) = envelope::decode::<InboxMessageOf<Shop>>(&bytes, 1).expect("ours");
        message.incarnation = Some(ours.incarnation());
        (run, envelope::encode(&message, 1).expect("a message").0)
    };
    ours.inbox().put(vec![to("poison", 1)]).await.expect("put");
    let mut one = Shard::<Shop, _>::new(Arc::clone(&ours), "one", 8);
    one.turn(ours.inbox().take(8).await.expect("a message"))
        .await
        .expect("the engine goes on");
    assert_eq!(one.counters.quarantined, 1);
    ours.close().await;

    let known = Arc::new(KnownNotes::default());
    known.refresh(theirs.as_ref()).await.expect("read");
    let mut two = Shard::<Shop, _>::new(Arc::clone(&theirs), "one", 8)
        .with_quarantine_notes(Arc::clone(&known));
    theirs.inbox().put(vec![to("x", 2)]).await.expect("put");
    two.turn(theirs.inbox().take(8).await.expect("a message"))
        .await
        .expect("the engine goes on");
    assert_eq!((two.counters.taken_away, two.counters.records), (1, 0));

    assert!(
        release(theirs.as_ref(), &run("sick"))
            .await
            .expect("released")
    );
    theirs.inbox().put(vec![to("x", 2)]).await.expect("put");
    two.turn(theirs.inbox().take(8).await.expect("a message"))
        .await
        .expect("the engine goes on");
    assert_eq!(two.counters.records, 1, "the release counts at once");
    complete_releases::<Shop, _>(&theirs, &known)
        .await
        .expect("completed");
    assert_eq!(theirs.quarantine().notes().await.expect("notes"), []);
}

/// An append without an answer may land when the message that led to it is gone.
#[tokio::test]
async fn the_sweep_finds_a_signal_that_nobody_sent() {
    let site = site();
    let mut engine = shard(&site, "one");
    put(&site.inbox, vec![fact("small", 1, "x")]).await;
    work(&site, &mut engine).await;
    let reported = report(&site, "done").await;
    put(
        &site.inbox,
        vec![reported, person_request("small", "greet big")],
    )
    .await;
    let batch = site.inbox.take(1_000).await.expect("messages");
    engine.turn(batch).await.expect("stored");
    let lost = site.inbox.take(1_000).await.expect("a signal");
    let acks = lost.iter().map(|lost| (lost.token, Ack::Done)).collect();
    site.inbox.acknowledge(acks).await;
    let small = stored(&site, "small").await;
    assert_eq!((small.outbox.len(), small.deadline()), (1, None));

    engine::sweep(site.as_ref(), 0).await.expect("swept");
    work(&site, &mut shard(&site, "one")).await;
    assert_eq!(stored(&site, "big").await.state.greeted, 1);
    assert!(stored(&site, "small").await.outbox.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_sweep_goes_on_after_a_panic_and_after_a_page_that_never_comes() {
    let site = site_with(true);
    let (halt, halted) = watch::channel(false);
    let running = tokio::spawn(engine::run::<Shop, _>(
        Arc::clone(&site),
        engine::Options::default(),
        halted,
    ));
    await_condition("more pages", Duration::from_secs(3_600), || async {
        site.store.pages.load(Ordering::SeqCst) > 3
    })
    .await;
    halt.send_replace(true);
    running.await.expect("no panic").expect("sound");
}
