//! Move of a store to the other kind by a dump, and back: the same histories, heads and dead letters.

use crate::embedded_common;
use crate::nats_common;

use dormer_engine::{
    embedded::{EmbeddedStore, check, dump, restore},
    nats::{NatsStore, Options},
    port::{Append, DeadLetter, DeadLetters, Head, History, HistoryReader, Ports},
};
use dormer_proto::id::{Epoch, Revision, RunId, Seq, Timestamp};
use dormer_testkit::{NatsOptions, NatsServer, started};
use embedded_common::{At, closed, next, reopen, run, step};
use std::path::Path;

const RUNS: usize = 12;

fn named(n: usize) -> RunId {
    run(&format!("a.b/{n}"))
}

/// Runs of different length: of those that rest some have ended, some wait for a deadline.
async fn fill<S: History + DeadLetters>(store: &S) {
    for n in 0..RUNS {
        let run = named(n);
        let mut at = At::default();
        for _ in 0..n {
            at = step(store, &run, at).await.expect("stored");
        }
        let (append, _) = next(&run, at);
        let deadline = (n % 3 == 1).then_some(Timestamp(7_000 + n as u64));
        let closed = (n % 3 == 2).then_some(Timestamp(9_000 + n as u64));
        let append = Append {
            deadline,
            closed,
            quiet: n % 2 == 0,
            ..append
        };
        store.append(vec![append]).await.remove(0).expect("stored");
    }
    for (n, run) in [(1, Some(named(1))), (2, None)] {
        let message = DeadLetter {
            id: 0,
            run,
            reason: format!("unread {n}"),
            at: Timestamp(n),
            origin: "inbox:1".into(),
            bytes: vec![0, 159, 146],
        };
        store.put(message).await.expect("put");
    }
}

type Contents = (Vec<Head>, Vec<Vec<Vec<u8>>>, Vec<DeadLetter>);

/// All that a store says of its runs and dead letters, without the numbers that are its own.
async fn contents(store: &impl HistoryReader, dead: &impl DeadLetters) -> Contents {
    let mut heads = store.heads(None, 100).await.expect("heads");
    let mut histories = Vec::new();
    for head in &mut heads {
        head.revision = Revision(0);
        histories.push(
            store
                .records(&head.run, Seq(0), 100)
                .await
                .expect("records"),
        );
    }
    let messages = dead.list(0, 100).await.expect("dead letters");
    let messages = messages
        .into_iter()
        .map(|message| DeadLetter { id: 0, ..message });
    (heads, histories, messages.collect())
}

/// The store of the embedded kind that this dump makes, its last epoch left behind.
async fn embedded(dump: &[u8], folder: &Path) -> EmbeddedStore {
    restore(&mut &*dump, folder, None).expect("restored");
    assert!(check(folder).expect("checks").is_clean());
    reopen(folder).await
}

fn kinds(dump: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(dump).expect("text");
    let kind = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        line.as_object()
            .expect("an object")
            .keys()
            .next()
            .expect("a key")
            .clone()
    };
    text.lines().map(kind).collect()
}

#[tokio::test]
async fn a_store_moves_to_nats_and_back_and_on_again() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let home = tempfile::tempdir().expect("a folder");
    let back = tempfile::tempdir().expect("one");
    let store = reopen(home.path()).await;
    fill(&store).await;
    for _ in 0..5 {
        store.next_epoch().await.expect("an epoch");
    }
    let was = contents(&store, &store).await;
    let incarnation = store.incarnation();
    closed(store, home.path()).await;

    let mut first = Vec::new();
    let count = dump(home.path(), &mut first).expect("dumped");
    let options = nats_common::options(&server);
    let nats = NatsStore::restore(&options, &mut first.as_slice())
        .await
        .expect("on NATS");
    assert_eq!(contents(nats.reader(), nats.dead()).await, was);
    assert_ne!(nats.history().incarnation(), incarnation);
    let epoch = nats.next_epoch().await.expect("an epoch");
    assert!(epoch > Epoch(5), "{epoch:?}");

    let mut second = Vec::new();
    assert_eq!(nats.dump(&mut second).await.expect("dumped") as u64, count);
    assert_eq!(kinds(&second), kinds(&first), "the same lines");
    let store = embedded(&second, back.path()).await;
    assert_eq!(contents(&store, &store).await, was);
    assert!(store.next_epoch().await.expect("an epoch") > epoch);
    // It continues where it was.
    let at = embedded_common::position(&store, &named(3)).await;
    step(&store, &named(3), at).await.expect("stored");

    let elsewhere = Options {
        prefix: Some("elsewhere".into()),
        ..options
    };
    let moved = NatsStore::restore(&elsewhere, &mut second.as_slice())
        .await
        .expect("on NATS");
    assert_eq!(contents(moved.reader(), moved.dead()).await, was);
}

/// As this build's predecessor wrote a store on NATS.
fn old_dump(histories: &[Vec<Vec<u8>>], heads: &[Head]) -> Vec<u8> {
    let mut text = r#"{"dump":1,"incarnation":77,"epoch":9}"#.to_owned() + "\n";
    for (head, records) in heads.iter().zip(histories) {
        for (at, record) in records.iter().enumerate() {
            let last = at + 1 == records.len();
            let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut line = serde_json::json!({ "run": head.run, "seq": at + 1, "record": hex });
            for (name, moment) in [("deadline", head.deadline), ("closed", head.closed)] {
                if let Some(moment) = moment.filter(|_| last) {
                    line[name] = moment.0.into();
                }
            }
            text += &format!("{line}\n");
        }
    }
    text.into_bytes()
}

#[tokio::test]
async fn an_old_dump_of_nats_is_still_read_by_either_kind() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let home = tempfile::tempdir().expect("a folder");
    let new = tempfile::tempdir().expect("one");
    let store = reopen(home.path()).await;
    fill(&store).await;
    let (mut heads, histories, _) = contents(&store, &store).await;
    // It did not say who is quiet.
    heads.iter_mut().for_each(|head| head.quiet = false);
    let old = old_dump(&histories, &heads);

    let store = embedded(&old, new.path()).await;
    assert_eq!(
        contents(&store, &store).await,
        (heads.clone(), histories.clone(), vec![])
    );
    assert!(store.next_epoch().await.expect("an epoch") > Epoch(9));
    let options = nats_common::options(&server);
    let nats = NatsStore::restore(&options, &mut old.as_slice())
        .await
        .expect("on NATS");
    assert_eq!(
        contents(nats.reader(), nats.dead()).await,
        (heads, histories, vec![])
    );
    assert!(nats.next_epoch().await.expect("an epoch") > Epoch(9));
}

#[tokio::test]
async fn what_is_no_dump_is_refused_with_its_line() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = r#"{"store":{"layout":1,"incarnation":1,"epoch":1}}"#;
    let rows = [
        ("", "line 1 of the dump: the dump is empty"),
        (r#"{"dead_letter":{}}"#, "line 1 of the dump"),
        (
            r#"{"store":{"layout":99,"incarnation":1,"epoch":1}}"#,
            "layout 99",
        ),
        (
            r#"{"dump":2,"incarnation":1,"epoch":1}"#,
            "format 2 is unknown",
        ),
        (
            r#"{"store":{"layout":2,"incarnation":1,"epoch":1}}"#,
            "the dump is cut",
        ),
        (
            &format!("{store}\n{store}"),
            "line 2 of the dump: only the first line",
        ),
        (
            &format!("{store}\n{{\"run\":\"toy/1\",\"seq\":1,\"record\":\"0g\"}}"),
            "hexadecimal",
        ),
    ];
    for (at, (text, why)) in rows.into_iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = restore(&mut text.as_bytes(), folder.path(), None).expect_err("refused");
        assert!(refused.to_string().contains(why), "{refused}");
        let options = Options {
            prefix: Some(format!("p{at}")),
            ..nats_common::options(&server)
        };
        let refused = NatsStore::restore(&options, &mut text.as_bytes())
            .await
            .err();
        let refused = refused.expect("refused").to_string();
        assert!(refused.contains(why), "{refused}");
    }
}
