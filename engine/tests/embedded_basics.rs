//! Embedded store: persistence after closing and opening, and refusals with their sentences.

use dormer_engine::{
    embedded::{EmbeddedStore, FILE, OpenError},
    port::{Append, AppendError, DeadLetter, DeadLetters, Expected, History, HistoryReader},
};
use dormer_proto::id::{Revision, RunId, Seq, Timestamp};

fn run(key: &str) -> RunId {
    RunId::new("toy", key).unwrap()
}

fn record(run: RunId, expected: Expected, seq: u64) -> Append {
    let bytes = format!("{run} {seq}").into_bytes();
    let deadline = seq.is_multiple_of(2).then_some(Timestamp(seq * 10));
    Append {
        run,
        expected,
        bytes,
        seq: Seq(seq),
        deadline,
        closed: None,
        quiet: false,
    }
}

async fn one(store: &EmbeddedStore, append: Append) -> Result<Revision, AppendError> {
    store.append(vec![append]).await.remove(0)
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    let incarnation = store.incarnation();
    let first = one(&store, record(run("a"), Expected::Nothing, 1))
        .await
        .unwrap();
    assert_eq!(
        one(&store, record(run("a"), Expected::Nothing, 1)).await,
        Err(AppendError::Conflict)
    );
    let second = one(&store, record(run("a"), Expected::At(first), 2))
        .await
        .unwrap();
    assert!(second > first);
    assert_eq!(
        one(&store, record(run("a"), Expected::At(first), 2)).await,
        Err(AppendError::Conflict)
    );
    drop(store);
    let store = reopen(folder.path()).await;
    assert_eq!(store.incarnation(), incarnation);
    let loaded = store.load(&[run("b"), run("a")]).await.unwrap();
    assert_eq!(loaded[0], None);
    let last = loaded[1].clone().unwrap();
    assert_eq!((last.bytes, last.revision), (b"toy/a 2".to_vec(), second));
    let third = one(&store, record(run("a"), Expected::At(second), 3))
        .await
        .unwrap();
    assert!(third > second, "revisions go on where they stood");
}

/// The writer's thread closes the file a moment after its handle is dropped.
async fn reopen(folder: &std::path::Path) -> EmbeddedStore {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        match EmbeddedStore::open(folder) {
            Ok(store) => return store,
            Err(OpenError::InUse(_)) if std::time::Instant::now() < deadline => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_second_process_learns_who_holds_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let _first = EmbeddedStore::open(folder.path()).unwrap();
    let second = EmbeddedStore::open(folder.path()).err().unwrap();
    assert!(matches!(second, OpenError::InUse(_)), "{second}");
    assert!(second.to_string().contains("in use by another dormer"));
}

#[tokio::test]
async fn a_damaged_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join(FILE),
        b"this is no store at all, and long enough to be read",
    )
    .unwrap();
    let error = EmbeddedStore::open(folder.path()).err().unwrap();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(FILE), "{error}");
}

#[tokio::test]
async fn heads_page_through_every_run_and_old_records_go() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    for key in ["a", "b", "c"] {
        one(&store, record(run(key), Expected::Nothing, 1))
            .await
            .unwrap();
    }
    let mut last = store.load(&[run("b")]).await.unwrap()[0]
        .clone()
        .unwrap()
        .revision;
    for seq in 2..=300 {
        last = one(&store, record(run("b"), Expected::At(last), seq))
            .await
            .unwrap();
    }
    let page = store.heads(None, 2).await.unwrap();
    let keys: Vec<_> = page.iter().map(|head| head.run.key().to_owned()).collect();
    assert_eq!(keys, ["a", "b"]);
    assert_eq!(
        (page[1].seq, page[1].deadline),
        (Seq(300), Some(Timestamp(3_000)))
    );
    let rest = store.heads(Some(&page[1].run), 10).await.unwrap();
    assert_eq!(rest.len(), 1);
    let kept = store.records(&run("b"), Seq(0), 1_000).await.unwrap();
    assert_eq!((kept.len(), kept[0].clone()), (256, b"toy/b 45".to_vec()));
    store.forget(&run("b"), Revision(1)).await.unwrap();
    assert!(
        store.load(&[run("b")]).await.unwrap()[0].is_some(),
        "it has moved on"
    );
    store.forget(&run("b"), last).await.unwrap();
    assert!(store.load(&[run("b")]).await.unwrap()[0].is_none());
    assert!(
        store
            .records(&run("b"), Seq(0), 10)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn dead_letters_stay_until_removed_and_epochs_grow() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    for reason in ["one", "two"] {
        let message = DeadLetter {
            id: 0,
            run: Some(run("a")),
            reason: reason.into(),
            at: Timestamp(5),
            origin: "inbox:1".into(),
            bytes: vec![1, 2, 3],
        };
        store.put(message).await.unwrap();
    }
    let listed = store.list(0, 10).await.unwrap();
    assert_eq!(
        (listed.len(), listed[1].reason.as_str(), listed[1].id),
        (2, "two", 2)
    );
    store.remove(1).await.unwrap();
    assert_eq!(store.list(0, 10).await.unwrap().len(), 1);
    let first = store.next_epoch().await.unwrap();
    assert!(store.next_epoch().await.unwrap() > first);
}
