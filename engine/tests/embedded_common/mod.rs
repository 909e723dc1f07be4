//! Fixtures of the embedded store's tests: genuine chained records.
#![allow(dead_code, reason = "each test file takes what it needs")]

use dormer_engine::{
    embedded::{EmbeddedStore, OpenError, SEGMENT_BYTES},
    port::{Append, AppendError, Expected, History},
};
use dormer_proto::{
    envelope::{self, Message},
    id::{Revision, RunId, Seq, Sum},
};
use serde::{Deserialize, Serialize};
use std::{
    path::Path,
    time::{Duration, Instant},
};

#[derive(Serialize, Deserialize)]
struct Tiny {
    prev: Sum,
    payload: String,
    run: TinyRun,
}

#[derive(Serialize, Deserialize)]
struct TinyRun {
    seq: Seq,
}

impl Message for Tiny {
    const KIND: &'static str = "record";
}

/// A run of the workflow `toy`.
pub(crate) fn run(key: &str) -> RunId {
    RunId::new("toy", key).expect("a run id")
}

/// Where a run's history stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) revision: Option<Revision>,
    pub(crate) seq: u64,
    pub(crate) sum: Sum,
}

/// Reads where `run` stands.
pub(crate) async fn position<H: History>(store: &H, run: &RunId) -> At {
    let Some(last) = store
        .load(std::slice::from_ref(run))
        .await
        .expect("loaded")
        .remove(0)
    else {
        return At::default();
    };
    let (tiny, sum) = envelope::decode::<Tiny>(&last.bytes, 0).expect("a whole record");
    At {
        revision: Some(last.revision),
        seq: tiny.run.seq.0,
        sum,
    }
}

/// The record that follows `at`, of about 300 bytes, and its checksum.
pub(crate) fn next(run: &RunId, at: At) -> (Append, Sum) {
    let seq = Seq(at.seq + 1);
    let tiny = Tiny {
        prev: at.sum,
        payload: "p".repeat(256),
        run: TinyRun { seq },
    };
    let (bytes, sum) = envelope::encode(&tiny, 0).expect("encodes");
    let expected = at.revision.map_or(Expected::Nothing, Expected::At);
    (
        Append {
            run: run.clone(),
            expected,
            bytes,
            seq,
            deadline: None,
            closed: None,
            quiet: false,
        },
        sum,
    )
}

/// Appends one record; answers where the run stands then.
pub(crate) async fn step<H: History>(store: &H, run: &RunId, at: At) -> Result<At, AppendError> {
    let (append, sum) = next(run, at);
    let revision = store.append(vec![append]).await.remove(0)?;
    Ok(At {
        revision: Some(revision),
        seq: at.seq + 1,
        sum,
    })
}

/// Opens the store once its former owner has closed it: the writer's thread closes the file a moment after its handle.
pub(crate) async fn reopen(folder: &Path) -> EmbeddedStore {
    reopen_with(folder, SEGMENT_BYTES).await
}

/// The same, with such segments of the log.
pub(crate) async fn reopen_with(folder: &Path, segment_bytes: u64) -> EmbeddedStore {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match EmbeddedStore::open_with(folder, segment_bytes) {
            Ok(store) => return store,
            Err(OpenError::InUse(_)) if Instant::now() < deadline => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Lets go of the store, and waits until the file is closed.
pub(crate) async fn closed(store: EmbeddedStore, folder: &Path) {
    drop(store);
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(error) = dormer_engine::embedded::check(folder) {
        let busy = matches!(error, OpenError::InUse(_)) && Instant::now() < deadline;
        assert!(busy, "{error}");
        tokio::task::yield_now().await;
    }
}
