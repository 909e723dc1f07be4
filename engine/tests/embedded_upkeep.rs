//! Check, dump and restore of the embedded store, and truncated or changed files.

use crate::embedded_common;

use dormer_engine::{
    embedded::{DumpError, EmbeddedStore, FILE, check, dump, restore},
    port::{Append, DeadLetter, DeadLetters, Expected, History, HistoryReader},
};
use dormer_proto::id::{Seq, Timestamp};
use embedded_common::{At, closed, position, reopen, run, step};
use std::path::Path;

async fn filled(folder: &Path) -> Vec<At> {
    let store = reopen(folder).await;
    let mut positions = Vec::new();
    for i in 0..20 {
        let run = run(&i.to_string());
        let mut at = At::default();
        for _ in 0..10 {
            at = step(&store, &run, at).await.expect("stored");
        }
        positions.push(at);
    }
    let message = DeadLetter {
        id: 0,
        run: Some(run("1")),
        reason: "unread".into(),
        at: Timestamp(5),
        origin: "inbox:1".into(),
        bytes: vec![0, 159, 146],
    };
    store.put(message).await.expect("put");
    store.next_epoch().await.expect("an epoch");
    closed(store, folder).await;
    positions
}

#[tokio::test]
async fn a_dump_restores_to_the_same_histories_under_a_new_incarnation() {
    let old = tempfile::tempdir().expect("a folder");
    let new = tempfile::tempdir().expect("one");
    let positions = filled(old.path()).await;
    let mut lines = Vec::new();
    assert_eq!(dump(old.path(), &mut lines).expect("dumped"), 200);
    let text = String::from_utf8(lines.clone()).expect("text");
    assert_eq!(text.lines().count(), 203);
    assert_eq!(
        text.lines().last(),
        Some(r#"{"end":{"records":200,"dead_letters":1}}"#)
    );
    let second: serde_json::Value =
        serde_json::from_str(text.lines().nth(1).expect("a record")).expect("JSON");
    assert_eq!(
        second["record"]["record"]["run"]["seq"], 1,
        "a person can read it: {second}"
    );
    assert_eq!(
        restore(&mut lines.as_slice(), new.path(), None).expect("restored"),
        200
    );
    let again = restore(&mut lines.as_slice(), new.path(), None);
    assert!(matches!(again, Err(DumpError::Exists(_))));
    assert!(check(new.path()).expect("checks").is_clean());
    let before = reopen(old.path()).await;
    let after = reopen(new.path()).await;
    assert_ne!(before.incarnation(), after.incarnation());
    for (i, at) in positions.iter().enumerate() {
        let run = run(&i.to_string());
        assert_eq!(position(&after, &run).await, *at);
        let kept = before.records(&run, Seq(0), 100).await.expect("records");
        assert_eq!(
            after.records(&run, Seq(0), 100).await.expect("records"),
            kept
        );
    }
    assert_eq!(
        after.list(0, 9).await.expect("list"),
        before.list(0, 9).await.expect("list")
    );
    assert_eq!(
        after.next_epoch().await.expect("an epoch").0,
        2,
        "epochs never run backwards"
    );
}

#[tokio::test]
async fn a_damaged_dump_makes_no_store() {
    let old = tempfile::tempdir().expect("a folder");
    let new = tempfile::tempdir().expect("one");
    filled(old.path()).await;
    let mut lines = Vec::new();
    dump(old.path(), &mut lines).expect("dumped");
    let cut = &lines[..lines.len() / 2];
    let error = restore(&mut &cut[..], new.path(), None).expect_err("refused");
    assert!(error.to_string().starts_with("line "), "{error}");
    assert!(!new.path().join(FILE).exists());
    assert!(restore(&mut &b""[..], new.path(), None).is_err());
}

#[tokio::test]
async fn a_dump_that_lacks_whole_lines_makes_no_store() {
    let old = tempfile::tempdir().expect("a folder");
    filled(old.path()).await;
    let mut whole = Vec::new();
    let records = dump(old.path(), &mut whole).expect("dumped");
    let whole = String::from_utf8(whole).expect("text");
    let lines: Vec<&str> = whole.lines().collect();
    let refused = |lines: &[&str]| {
        let new = tempfile::tempdir().expect("a folder");
        let text = lines.join("\n");
        let error = restore(&mut text.as_bytes(), new.path(), None).expect_err("refused");
        assert!(!new.path().join(FILE).exists());
        error.to_string()
    };
    for kept in 1..lines.len() {
        let error = refused(&lines[..kept]);
        assert!(error.contains("the dump is cut"), "{kept}: {error}");
    }
    let mut without_one = lines.clone();
    without_one.remove(1);
    let error = refused(&without_one);
    let counted = format!("{} of {records} records", records - 1);
    assert!(error.contains(&counted), "{error}");
    let twice = [&lines[..], &lines[1..2]].concat();
    assert!(refused(&twice).contains("after the dump's last line"));
    let noise = tempfile::tempdir().expect("a folder");
    let error = restore(&mut &[0xff_u8, 0xfe, b'\n'][..], noise.path(), None).expect_err("no text");
    assert!(
        error.to_string().starts_with("line 1 of the dump"),
        "{error}"
    );
}

#[tokio::test]
async fn check_names_each_kind_of_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = reopen(folder.path()).await;
    let first = step(&store, &run("gap"), At::default())
        .await
        .expect("stored");
    step(&store, &run("gap"), At { seq: 2, ..first })
        .await
        .expect("stored");
    let first = step(&store, &run("link"), At::default())
        .await
        .expect("stored");
    let stranger = At {
        sum: dormer_proto::id::Sum(1),
        ..first
    };
    step(&store, &run("link"), stranger).await.expect("stored");
    let noise = Append {
        run: run("noise"),
        expected: Expected::Nothing,
        bytes: vec![1, 2, 3],
        seq: Seq(1),
        deadline: None,
        closed: None,
        quiet: false,
    };
    store.append(vec![noise]).await.remove(0).expect("stored");
    closed(store, folder.path()).await;
    let report = check(folder.path()).expect("checks");
    let named: Vec<_> = report
        .named
        .iter()
        .map(|f| (f.run.as_str(), f.what.as_str()))
        .collect();
    assert_eq!(
        (report.runs, report.records, report.faults),
        (3, 5, 3),
        "{named:?}"
    );
    assert_eq!(named[0], ("toy/gap", "a gap: the record before is 1"));
    assert_eq!(
        named[1],
        ("toy/link", "it does not follow from the record before")
    );
    assert!(named[2].1.starts_with("not an envelope"), "{named:?}");
}

#[tokio::test]
async fn a_file_cut_short_or_changed_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path()).await;
    let file = folder.path().join(FILE);
    let whole = std::fs::read(&file).expect("read");
    for part in 0..8 {
        let len = whole.len() * part / 8;
        std::fs::write(&file, &whole[..len]).expect("written");
        let error = EmbeddedStore::open(folder.path()).err().expect("refused");
        assert!(error.to_string().contains(FILE), "{len} bytes: {error}");
    }
    let at = whole
        .windows(64)
        .position(|part| part == [b'p'; 64])
        .expect("a payload");
    let mut changed = whole.clone();
    for byte in changed.iter_mut().filter(|byte| **byte == b'p') {
        *byte = b'q';
    }
    assert_eq!(changed[at], b'q');
    std::fs::write(&file, &changed).expect("written");
    let noticed = check(folder.path()).map(|report| report.is_clean());
    assert!(
        !matches!(noticed, Ok(true)),
        "changed bytes were not noticed"
    );
}
