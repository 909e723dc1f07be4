//! Contracts of the ports as functions over any adapter.

use dormer_engine::port::{
    Ack, Alarms, Append, AppendError, Clock, DeadLetter, DeadLetters, EndedTask, Expected, History,
    HistoryReader, Inbox, OrderOut, Quarantine, QuarantineNote, SystemClock, TaskQueue,
};
use dormer_proto::{
    envelope,
    id::{Attempt, Revision, RunId, Seq, TaskId, Timestamp},
    message::{Inbound, InboxMessage, NoSignal},
};
use std::{collections::BTreeSet, time::Duration};

fn run(key: &str) -> RunId {
    RunId::new("contract", key).expect("a run id")
}

fn record(run: &RunId, expected: Expected, seq: u64) -> Append {
    let bytes = format!("{run}@{seq}").into_bytes();
    let deadline = Some(Timestamp(seq * 1_000));
    Append {
        run: run.clone(),
        expected,
        bytes,
        seq: Seq(seq),
        deadline,
        closed: None,
        quiet: seq % 2 == 1,
    }
}

async fn one<H: History>(store: &H, append: Append) -> Result<Revision, AppendError> {
    store.append(vec![append]).await.remove(0)
}

/// Everything that a history and its reader promise. The store must be empty.
pub(crate) async fn history<H: History, R: HistoryReader>(store: &H, reader: &R) {
    expectations_hold(store).await;
    one_of_many_wins(store).await;
    records_of_a_batch_are_independent(store).await;
    a_load_sees_every_acknowledged_append(store).await;
    records_come_in_order(store, reader).await;
    heads_page_through_each_run_once(store, reader).await;
    heads_page_through_each_run_while_others_write(store, reader).await;
    the_latest_records_are_kept(store, reader).await;
    forgetting_asks_for_the_revision(store, reader).await;
}

async fn expectations_hold<H: History>(store: &H) {
    let a = run("expects");
    let early = one(store, record(&a, Expected::At(Revision(1)), 1)).await;
    assert_eq!(
        early,
        Err(AppendError::Conflict),
        "nothing is there to stand on"
    );
    let first = one(store, record(&a, Expected::Nothing, 1))
        .await
        .expect("stored");
    assert_eq!(
        one(store, record(&a, Expected::Nothing, 1)).await,
        Err(AppendError::Conflict)
    );
    let second = one(store, record(&a, Expected::At(first), 2))
        .await
        .expect("stored");
    assert!(second > first, "revisions grow");
    assert_eq!(
        one(store, record(&a, Expected::At(first), 2)).await,
        Err(AppendError::Conflict)
    );
}

async fn one_of_many_wins<H: History>(store: &H) {
    let a = run("race");
    let mut expected = Expected::Nothing;
    for seq in 1..=20 {
        let racers = (0..8).map(|_| one(store, record(&a, expected, seq)));
        let answers = futures::future::join_all(racers).await;
        let won: Vec<_> = answers
            .iter()
            .filter_map(|answer| answer.as_ref().ok())
            .collect();
        assert_eq!(won.len(), 1, "record {seq}: {answers:?}");
        expected = Expected::At(*won[0]);
    }
}

async fn records_of_a_batch_are_independent<H: History>(store: &H) {
    let a = run("batch.a");
    let b = run("batch.b");
    let c = run("batch.c");
    one(store, record(&b, Expected::Nothing, 1))
        .await
        .expect("stored");
    let batch = [&a, &b, &c].map(|run| record(run, Expected::Nothing, 1));
    let answers = store.append(batch.to_vec()).await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert_eq!(answers[1], Err(AppendError::Conflict));
    assert_eq!(store.append(Vec::new()).await, []);
}

async fn a_load_sees_every_acknowledged_append<H: History>(store: &H) {
    let a = run("load");
    let nobody = run("nobody");
    let mut expected = Expected::Nothing;
    for seq in 1..=20 {
        let revision = one(store, record(&a, expected, seq)).await.expect("stored");
        expected = Expected::At(revision);
        let loaded = store
            .load(&[nobody.clone(), a.clone(), nobody.clone()])
            .await;
        let loaded = loaded.expect("loaded");
        assert_eq!((loaded.len(), &loaded[0], &loaded[2]), (3, &None, &None));
        let last = loaded[1].as_ref().expect("it is there");
        assert_eq!(
            (&last.bytes, last.revision),
            (&format!("{a}@{seq}").into_bytes(), revision)
        );
    }
}

async fn records_come_in_order<H: History, R: HistoryReader>(store: &H, reader: &R) {
    // Neighbours by name, whose records must not get mixed in.
    let a = run("order");
    let next = run("order/2");
    one(store, record(&next, Expected::Nothing, 1))
        .await
        .expect("stored");
    let mut expected = Expected::Nothing;
    for seq in 1..=12 {
        let revision = one(store, record(&a, expected, seq)).await.expect("stored");
        expected = Expected::At(revision);
    }
    let want = |from: u64, to: u64| {
        (from..=to)
            .map(|seq| format!("{a}@{seq}").into_bytes())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        reader.records(&a, Seq(0), 100).await.expect("records"),
        want(1, 12)
    );
    assert_eq!(
        reader.records(&a, Seq(9), 100).await.expect("records"),
        want(9, 12)
    );
    assert_eq!(
        reader.records(&a, Seq(3), 4).await.expect("records"),
        want(3, 6)
    );
    assert!(
        reader
            .records(&run("nobody"), Seq(0), 9)
            .await
            .expect("records")
            .is_empty()
    );
}

async fn heads_page_through_each_run_once<H: History, R: HistoryReader>(store: &H, reader: &R) {
    let batch = (0..50).map(|i| record(&run(&format!("page.{i}")), Expected::Nothing, 1));
    assert!(
        store
            .append(batch.collect())
            .await
            .iter()
            .all(Result::is_ok)
    );
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = reader.heads(after.as_ref(), 7).await.expect("heads");
        assert!(page.len() <= 7);
        let Some(last) = page.last() else { break };
        after = Some(last.run.clone());
        seen.extend(page);
    }
    let mut runs: Vec<_> = seen.iter().map(|head| head.run.clone()).collect();
    let pages = runs
        .iter()
        .filter(|run| run.key().starts_with("page."))
        .count();
    assert_eq!(pages, 50);
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), seen.len(), "each run once");
    for head in &seen {
        assert_eq!(
            head.deadline,
            Some(Timestamp(head.seq.0 * 1_000)),
            "{}",
            head.run
        );
        assert_eq!(
            (head.closed, head.quiet),
            (None, head.seq.0 % 2 == 1),
            "{}",
            head.run
        );
    }
}

/// A page is no snapshot: runs behind and before its end change meanwhile, and new ones come. Each run that was there before
/// the first page is found once, and a new one at most once.
async fn heads_page_through_each_run_while_others_write<H: History, R: HistoryReader>(
    store: &H,
    reader: &R,
) {
    let mut revisions = Vec::new();
    for i in 0..30 {
        let run = run(&format!("writes.{i:02}"));
        let revision = one(store, record(&run, Expected::Nothing, 1)).await;
        revisions.push((run, revision.expect("stored")));
    }
    let mut seen: Vec<RunId> = Vec::new();
    let mut after = None;
    for page in 0.. {
        let heads = reader.heads(after.as_ref(), 7).await.expect("heads");
        let Some(last) = heads.last() else { break };
        after = Some(last.run.clone());
        seen.extend(heads.iter().map(|head| head.run.clone()));
        if page < 8 {
            // One that is likely behind the page, one that is likely before it, and a new one.
            for at in [page, 29 - page] {
                let (run, revision) = &mut revisions[at];
                let next = record(run, Expected::At(*revision), 2);
                *revision = one(store, next).await.expect("stored");
            }
            let new = run(&format!("writes.new.{page}"));
            one(store, record(&new, Expected::Nothing, 1))
                .await
                .expect("stored");
        }
    }
    let found: BTreeSet<&RunId> = seen.iter().collect();
    assert_eq!(found.len(), seen.len(), "each run once");
    for (run, _) in &revisions {
        assert!(found.contains(run), "{run} is missing");
    }
}

/// A history keeps the latest 256 records of a run (docs/engine.md).
async fn the_latest_records_are_kept<H: History, R: HistoryReader>(store: &H, reader: &R) {
    let a = run("long");
    let mut expected = Expected::Nothing;
    for seq in 1..=260 {
        let revision = one(store, record(&a, expected, seq)).await.expect("stored");
        expected = Expected::At(revision);
    }
    let records = reader.records(&a, Seq(0), 1_000).await.expect("records");
    assert_eq!(records.len(), 256);
    assert_eq!(records.first(), Some(&format!("{a}@5").into_bytes()));
    assert_eq!(records.last(), Some(&format!("{a}@260").into_bytes()));
}

async fn forgetting_asks_for_the_revision<H: History, R: HistoryReader>(store: &H, reader: &R) {
    let a = run("forget");
    let next = run("forget/2");
    one(store, record(&next, Expected::Nothing, 1))
        .await
        .expect("stored");
    let first = one(store, record(&a, Expected::Nothing, 1))
        .await
        .expect("stored");
    let closing = Append {
        closed: Some(Timestamp(9)),
        ..record(&a, Expected::At(first), 2)
    };
    let second = one(store, closing).await.expect("stored");
    reader.forget(&a, first).await.expect("an answer");
    assert!(store.load(std::slice::from_ref(&a)).await.expect("loaded")[0].is_some());
    reader.forget(&a, second).await.expect("an answer");
    let loaded = store.load(&[a.clone(), next]).await.expect("loaded");
    assert!(
        loaded[0].is_none() && loaded[1].is_some(),
        "this run, and no other"
    );
    assert!(
        reader
            .records(&a, Seq(0), 9)
            .await
            .expect("records")
            .is_empty()
    );
}

/// What an inbox promises. It must be empty.
pub(crate) async fn inbox<I: Inbox>(inbox: &I) {
    let messages = (0..3_u8).map(|i| (run("letters"), vec![i])).collect();
    inbox.put(messages).await.expect("put");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        for delivery in taken(inbox).await {
            seen.push(delivery.bytes[0]);
            let fate = if delivery.bytes == [1] {
                Ack::Again(20)
            } else {
                Ack::Done
            };
            inbox.acknowledge(vec![(delivery.token, fate)]).await;
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
    let again = taken(inbox).await;
    assert_eq!(
        again.iter().map(|d| d.bytes.clone()).collect::<Vec<_>>(),
        [vec![1]]
    );
    inbox.acknowledge(vec![(again[0].token, Ack::Done)]).await;
}

async fn taken<I: Inbox>(inbox: &I) -> Vec<dormer_engine::port::Delivery> {
    let take = tokio::time::timeout(Duration::from_secs(20), inbox.take(2));
    let page = take.await.expect("letters in time").expect("letters");
    assert!((1..=2).contains(&page.len()));
    page
}

/// What alarms promise, set by one process and, where the adapter serves several, by another. None may be set.
pub(crate) async fn alarms<A: Alarms, I: Inbox>(ours: &A, theirs: Option<&A>, inbox: &I) {
    let other = theirs.unwrap_or(ours);
    let now = SystemClock.now();
    let soon = now.plus_ms(400);
    let late = now.plus_ms(3_600_000);
    let set = async |who: &A, key: &str, at| {
        who.set(vec![(run(key), at)]).await.expect("set");
    };
    for (key, times) in [("alarm.1", [soon, late]), ("alarm.2", [late, soon])] {
        set(ours, key, Some(times[0])).await;
        set(other, key, Some(times[1])).await;
    }
    let mut due = BTreeSet::from([run("alarm.1"), run("alarm.2")]);
    if theirs.is_some() {
        // A reader of an alarm relies on it: the clear of a slow neighbour leaves it.
        set(ours, "alarm.3", Some(soon)).await;
        set(other, "alarm.3", Some(late)).await;
        set(ours, "alarm.3", None).await;
        due.insert(run("alarm.3"));
    }
    rung(inbox, due).await;
    // An alarm that has fired delays nothing.
    set(other, "alarm.1", Some(SystemClock.now().plus_ms(300))).await;
    set(ours, "alarm.1", Some(late)).await;
    rung(inbox, BTreeSet::from([run("alarm.1")])).await;
    assert!(SystemClock.now() < late);
}

/// Waits until each of these alarms has fired: at most twenty seconds, far less than the later of two times.
async fn rung<I: Inbox>(inbox: &I, mut due: BTreeSet<RunId>) {
    while !due.is_empty() {
        for delivery in taken(inbox).await {
            let message = envelope::decode::<InboxMessage<(), (), NoSignal>>(&delivery.bytes, 0);
            let (message, _) = message.expect("a ring");
            assert_eq!(message.body, Inbound::TimerDue);
            due.remove(&message.run);
            inbox.acknowledge(vec![(delivery.token, Ack::Done)]).await;
        }
    }
}

/// What the dead letters promise. There must be none.
pub(crate) async fn dead_letters<D: DeadLetters>(dead: &D) {
    for (reason, run) in [("one", None), ("two", Some(run("dead"))), ("three", None)] {
        let at = Timestamp(7);
        let origin = "inbox:1".to_owned();
        let bytes = vec![0, 159, 146];
        let message = DeadLetter {
            id: 0,
            run,
            reason: reason.into(),
            at,
            origin,
            bytes,
        };
        dead.put(message).await.expect("put");
    }
    let list = dead.list(0, 10).await.expect("list");
    assert_eq!(
        list.iter().map(|l| l.reason.as_str()).collect::<Vec<_>>(),
        ["one", "two", "three"]
    );
    assert!(list.is_sorted_by(|a, b| a.id < b.id));
    assert_eq!(
        (&list[1].run, &list[1].bytes),
        (&Some(run("dead")), &vec![0, 159, 146])
    );
    assert_eq!(dead.list(0, 2).await.expect("list"), list[..2]);
    dead.remove(list[1].id).await.expect("removed");
    dead.remove(list[1].id).await.expect("again is harmless");
    assert_eq!(dead.list(list[0].id, 10).await.expect("list"), list[2..]);
}

/// What a quarantine promises. There must be no note.
pub(crate) async fn quarantine<Q: Quarantine>(quarantine: &Q) {
    let note = |key: &str, why: &str| QuarantineNote {
        run: run(key),
        code: "RecordRefused".into(),
        why: why.into(),
        at: Timestamp(7),
        builds: vec!["one".into()],
        released: None,
        missed: None,
        version: 0,
    };
    let whys = |notes: &[QuarantineNote]| notes.iter().map(|n| n.why.clone()).collect::<Vec<_>>();
    assert_eq!(quarantine.notes().await.expect("notes"), []);
    for (key, why) in [("q.2", "b"), ("q.1", "a"), ("q.1/x", "c")] {
        quarantine.put(note(key, why)).await.expect("put");
    }
    let notes = quarantine.notes().await.expect("notes");
    assert_eq!(whys(&notes), ["a", "c", "b"], "ordered by run");
    let asked = [run("q.3"), run("q.2")];
    let found = quarantine.notes_of(&asked).await.expect("notes");
    assert_eq!(found, [None, Some(notes[2].clone())]);
    let first = &notes[0];
    // Another engine does not know it, or knows an earlier one.
    for version in [0, first.version + 100] {
        let other = QuarantineNote {
            version,
            ..note("q.1", "of an engine that knows no note")
        };
        quarantine.put(other).await.expect_err("it stays");
    }
    let anew = QuarantineNote {
        version: first.version,
        ..note("q.1", "anew")
    };
    let anew_version = quarantine.put(anew.clone()).await.expect("put");
    quarantine.put(anew).await.expect_err("it has changed");
    quarantine
        .remove(&first.run, first.version)
        .await
        .expect("an answer");
    let now = quarantine.notes().await.expect("notes");
    assert_eq!(whys(&now), ["anew", "c", "b"], "a newer note stays");
    assert_eq!(now[0].version, anew_version);
    for note in now {
        quarantine
            .remove(&note.run, note.version)
            .await
            .expect("removed");
        quarantine
            .remove(&note.run, note.version)
            .await
            .expect("again is harmless");
    }
    assert_eq!(quarantine.notes().await.expect("notes"), []);
}

/// What a task queue promises: one order for each attempt, however often it is published, and none of an attempt that was
/// superseded or of a task that ended. `waiting`: how many orders no worker has taken.
pub(crate) async fn tasks<T: TaskQueue>(queue: &T, waiting: impl AsyncFn() -> u64) {
    const CLASS: &str = "task";
    let before = waiting().await;
    let task = |key: &str| TaskId {
        run: run(key),
        seq: Seq(1),
        ordinal: 0,
    };
    let publish = async |key: &str, attempt: u64| {
        let order = OrderOut {
            task: task(key),
            attempt: Attempt(attempt),
            class: CLASS,
            bytes: format!("{key}/{attempt}").into_bytes(),
        };
        queue.publish(vec![order]).await.expect("published");
        waiting().await - before
    };
    let withdraw = async |key: &str| {
        let ended = EndedTask {
            task: task(key),
            class: CLASS,
        };
        queue.withdraw(vec![ended]).await;
        waiting().await - before
    };
    assert_eq!(publish("one", 1).await, 1);
    assert_eq!(publish("other", 1).await, 2);
    assert_eq!(publish("one", 1).await, 2, "an order is there once");
    assert_eq!(publish("one", 2).await, 2, "the attempt before has none");
    assert_eq!(withdraw("nobody").await, 2, "no other task loses its order");
    assert_eq!(withdraw("one").await, 1);
    assert_eq!(publish("one", 3).await, 2, "a task that is issued again");
    assert_eq!(withdraw("one").await, 1);
    assert_eq!(withdraw("other").await, 0);
}
