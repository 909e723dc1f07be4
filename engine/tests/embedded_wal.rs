//! Log of the embedded store: torn tails are cut off, damage is reported, and the two files must belong together.

use crate::embedded_common;

use dormer_engine::{
    embedded::{DumpError, EmbeddedStore, FILE, OpenError, WAL_FILE, check, dump, restore},
    port::{Append, AppendError, History, HistoryReader},
};
use dormer_proto::id::Seq;
use embedded_common::{At, closed, next, position, reopen, reopen_with, run, step};
use redb::{Database, ReadableDatabase, TableDefinition};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const BLOCK: usize = 4_096;
/// Bytes of the log's segments here.
const SEGMENT: usize = 64 << 10;
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// What a process that is killed now would leave: the files as they are, and nothing else.
fn killed(folder: &Path) -> TempDir {
    let copy = self::folder();
    for name in [FILE, WAL_FILE] {
        if folder.join(name).exists() {
            std::fs::copy(folder.join(name), copy.path().join(name)).expect("copied");
        }
    }
    copy
}

async fn open(folder: &Path) -> EmbeddedStore {
    reopen_with(folder, SEGMENT as u64).await
}

/// Appends so many records to the run `key`, each in a frame of its own.
async fn steps(store: &EmbeddedStore, key: &str, mut at: At, count: u64) -> At {
    for _ in 0..count {
        at = step(store, &run(key), at).await.expect("stored");
    }
    at
}

/// Appends more, and leaves no commit of the redb file under way that a copy could cut.
async fn many(store: &EmbeddedStore, at: At) -> At {
    let at = steps(store, "a", at, 6 * (SEGMENT / BLOCK) as u64).await;
    store.next_epoch().await.expect("an epoch");
    steps(store, "a", at, 3).await
}

fn refused(folder: &Path) -> OpenError {
    EmbeddedStore::open(folder).err().expect("refused")
}

fn wal(folder: &Path) -> PathBuf {
    folder.join(WAL_FILE)
}

/// Changes the log's bytes.
fn change(folder: &Path, with: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(wal(folder)).expect("read");
    with(&mut bytes);
    std::fs::write(wal(folder), bytes).expect("written");
}

/// Where frames begin in the log, in the order of their revisions: 48 bytes of head with a magic word.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let starts = (0..bytes.len()).step_by(BLOCK);
    let mut frames: Vec<_> = starts
        .filter(|at| &bytes[at + 8..at + 16] == b"dormfram")
        .collect();
    frames.sort_by_key(|at| word(at + 40));
    frames
}

/// A store with eleven frames in one segment (the first of the log is the second half's).
async fn eleven() -> (TempDir, EmbeddedStore, At) {
    let folder = folder();
    let store = open(folder.path()).await;
    let at = steps(&store, "a", At::default(), 11).await;
    (folder, store, at)
}

#[tokio::test]
async fn a_kill_leaves_a_log_that_is_taken_over() {
    let (folder, store, at) = eleven().await;
    let copy = killed(folder.path());
    assert!(check(copy.path()).expect("checks").is_clean());
    assert!(!wal(copy.path()).exists(), "the redb file has everything");
    let again = open(copy.path()).await;
    assert_eq!(position(&again, &run("a")).await, at);
    let further = step(&again, &run("a"), at).await.expect("stored");
    assert!(
        further.revision > at.revision,
        "revisions go on where they stood"
    );
    drop(store);
}

#[tokio::test]
async fn a_torn_tail_is_cut_off() {
    let (folder, _store, at) = eleven().await;
    for torn in [0, 100, 512] {
        let copy = killed(folder.path());
        change(copy.path(), |bytes| {
            let last = *frames(bytes).last().expect("frames");
            bytes[last + torn..last + BLOCK].fill(0);
        });
        let store = open(copy.path()).await;
        let found = position(&store, &run("a")).await;
        let want = if torn == 512 { at.seq } else { 10 };
        assert_eq!(found.seq, want, "a record of 400 bytes, cut at byte {torn}");
        let further = steps(&store, "a", found, 3).await;
        closed(store, copy.path()).await;
        assert_eq!(
            position(&reopen(copy.path()).await, &run("a")).await,
            further
        );
    }
}

#[tokio::test]
async fn a_damaged_middle_is_named() {
    let (folder, _store, _) = eleven().await;
    for broken in [0, 5, 9] {
        let copy = killed(folder.path());
        let mut offset = 0;
        change(copy.path(), |bytes| {
            offset = frames(bytes)[broken];
            bytes[offset + 60] ^= 1;
        });
        let error = refused(copy.path());
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(WAL_FILE) && text.contains(&format!("byte {offset}:")),
            "{text}"
        );
        assert!(
            matches!(check(copy.path()), Err(OpenError::Damaged { .. })),
            "and so says check"
        );
        assert!(
            dump(copy.path(), &mut Vec::new()).is_err(),
            "nothing is silently lost"
        );
    }
}

#[tokio::test]
async fn a_damaged_header_is_named() {
    let (folder, _store, _) = eleven().await;
    let copy = killed(folder.path());
    change(copy.path(), |bytes| {
        let header = frames(bytes)[0] - BLOCK;
        bytes[header + 20] ^= 1;
    });
    let error = refused(copy.path());
    assert!(
        error.to_string().contains("header cannot be read"),
        "{error}"
    );
}

#[tokio::test]
async fn a_log_cut_short_is_refused() {
    let (folder, at) = both_segments().await;
    for part in 0..8 {
        let copy = killed(folder.path());
        change(copy.path(), |bytes| bytes.truncate(bytes.len() * part / 8));
        let error = refused(copy.path());
        assert!(
            error.to_string().contains(WAL_FILE),
            "{part} eighths: {error}"
        );
    }
    assert_eq!(position(&open(folder.path()).await, &run("a")).await, at);
}

/// A log in which a full segment is not in the redb file yet: the redb file of before its commit, the log of after.
async fn both_segments() -> (TempDir, At) {
    let folder = folder();
    let store = open(folder.path()).await;
    let room = (SEGMENT / BLOCK - 1) as u64;
    let at = steps(&store, "a", At::default(), room).await;
    let before = killed(folder.path());
    let at = steps(&store, "a", at, 5).await;
    std::fs::copy(wal(folder.path()), wal(before.path())).expect("copied");
    (before, at)
}

#[tokio::test]
async fn a_commit_that_was_interrupted_is_made_again() {
    let (folder, at) = both_segments().await;
    let again = killed(folder.path());
    let store = open(folder.path()).await;
    assert_eq!(position(&store, &run("a")).await, at);
    let kept = store
        .records(&run("a"), Seq(0), 100)
        .await
        .expect("records");
    assert_eq!(kept.len() as u64, at.seq);
    // Killed in the middle of that, too: the next process finds the same.
    assert_eq!(position(&open(again.path()).await, &run("a")).await, at);
}

#[tokio::test]
async fn a_missing_end_of_a_full_segment_is_named() {
    let (folder, at) = both_segments().await;
    change(folder.path(), |bytes| {
        let frames = frames(bytes);
        assert_eq!(frames.len() as u64, at.seq);
        let last_of_first = frames[SEGMENT / BLOCK - 2];
        bytes[last_of_first..last_of_first + BLOCK].fill(0);
    });
    let error = refused(folder.path());
    assert!(
        error
            .to_string()
            .contains("acknowledged frames are missing"),
        "{error}"
    );
}

#[tokio::test]
async fn frames_of_an_earlier_use_are_not_taken() {
    let folder = folder();
    let store = open(folder.path()).await;
    // Three times round the log: every place has been used before.
    let at = many(&store, At::default()).await;
    let copy = killed(folder.path());
    let again = open(copy.path()).await;
    assert_eq!(position(&again, &run("a")).await, at);
    let kept = again
        .records(&run("a"), Seq(0), 1_000)
        .await
        .expect("records");
    assert_eq!(kept.len() as u64, at.seq);
    closed(again, copy.path()).await;
    assert!(check(copy.path()).expect("checks").is_clean());
}

#[tokio::test]
async fn the_redb_file_of_another_moment_is_noticed() {
    let (folder, store, at) = eleven().await;
    let early = killed(folder.path());
    let at = many(&store, at).await;
    let late = killed(folder.path());
    let mixed = |redb: &Path, log: &Path| {
        let both = self::folder();
        std::fs::copy(redb.join(FILE), both.path().join(FILE)).expect("copied");
        std::fs::copy(wal(log), wal(both.path())).expect("copied");
        both
    };
    for (redb, log) in [(&early, &late), (&late, &early)] {
        let error = refused(mixed(redb.path(), log.path()).path());
        assert!(matches!(error, OpenError::Unpaired { .. }), "{error}");
        assert!(error.to_string().contains(WAL_FILE), "{error}");
    }
    closed(store, folder.path()).await;
    let error = refused(mixed(folder.path(), eleven().await.0.path()).path());
    assert!(
        matches!(error, OpenError::Unpaired { .. }),
        "another store's: {error}"
    );
    assert_eq!(
        position(&open(folder.path()).await, &run("a")).await,
        at,
        "closed, it stands alone"
    );
}

#[tokio::test]
async fn one_file_without_the_other_is_noticed() {
    let (folder, _store, _) = eleven().await;
    for (gone, said) in [
        (WAL_FILE, "it is missing"),
        (FILE, "dormer.redb is missing"),
    ] {
        let copy = killed(folder.path());
        std::fs::remove_file(copy.path().join(gone)).expect("removed");
        let error = refused(copy.path());
        assert!(matches!(error, OpenError::Unpaired { .. }), "{error}");
        assert!(error.to_string().contains(said), "{error}");
        let restored = restore(&mut &b""[..], copy.path(), None);
        assert!(
            matches!(restored, Err(DumpError::Exists(_))),
            "a log is not written over"
        );
    }
}

#[tokio::test]
async fn a_store_that_was_closed_is_one_file_of_the_old_layout() {
    let (folder, store, at) = eleven().await;
    let layout = |folder: &Path| {
        let file = Database::open(folder.join(FILE)).expect("opens");
        let meta = file
            .begin_read()
            .expect("reads")
            .open_table(META)
            .expect("its words");
        meta.get("layout")
            .expect("reads")
            .expect("a layout")
            .value()
    };
    let copy = killed(folder.path());
    assert_eq!(
        layout(copy.path()),
        2,
        "a build that knows of no log must not open it"
    );
    closed(store, folder.path()).await;
    assert_eq!(layout(folder.path()), 1);
    assert!(!wal(folder.path()).exists());
    // As a build without a log left it: without its words.
    let file = Database::open(folder.path().join(FILE)).expect("opens");
    let change = file.begin_write().expect("begins");
    for word in ["wal_generation", "wal_salt", "wal_first"] {
        change
            .open_table(META)
            .expect("its words")
            .remove(word)
            .expect("removed");
    }
    change.commit().expect("committed");
    drop(file);
    let store = open(folder.path()).await;
    assert_eq!(position(&store, &run("a")).await, at);
    steps(&store, "a", at, 1).await;
}

#[tokio::test]
async fn a_record_larger_than_a_segment_is_refused_and_the_next_is_not() {
    let folder = folder();
    let store = open(folder.path()).await;
    let (small, _) = next(&run("a"), At::default());
    let large = Append {
        bytes: vec![7; SEGMENT],
        run: run("b"),
        ..small.clone()
    };
    let half = Append {
        bytes: vec![7; SEGMENT / 2],
        run: run("c"),
        ..small.clone()
    };
    let halves: Vec<_> = (0..5)
        .map(|i| Append {
            run: run(&i.to_string()),
            ..half.clone()
        })
        .collect();
    let batch = [vec![large, small], halves].concat();
    let results = store.append(batch).await;
    assert!(
        matches!(results[0], Err(AppendError::Refused(_))),
        "{results:?}"
    );
    assert!(
        results[1..].iter().all(Result::is_ok),
        "five segments' worth in one batch: {results:?}"
    );
    closed(store, folder.path()).await;
    assert_eq!(
        reopen(folder.path())
            .await
            .heads(None, 10)
            .await
            .expect("heads")
            .len(),
        6
    );
}
