//! Reader of one of the console's streams, like a browser's `EventSource`.

use anyhow::{Context, ensure};
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::Deserialize;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Time to wait for data before the reader checks whether it should stop.
const PIECE: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// Fleet page: each event has the number of records in its snapshot.
    Page,
    /// Changes of the API: the same number is the sum over all runs received.
    Changes,
}

impl StreamKind {
    fn path(self) -> &'static str {
        match self {
            Self::Page => "/",
            Self::Changes => "/api/v1/changes",
        }
    }
}

/// Data that a reader received.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// Number of records that it knew, each with the time.
    pub(super) changes: Vec<(u64, Instant)>,
    pub(super) bytes: u64,
}

/// Fields of a run that are counted.
#[derive(Debug, Deserialize)]
struct Run {
    run: String,
    seq: u64,
}

/// Reads until it is stopped.
pub(super) async fn follow(
    url: String,
    what: StreamKind,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Received> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let request = Request::get(format!("{url}{}", what.path()))
        .header("accept", "text/event-stream")
        .body(Empty::new())?;
    let answer = client.request(request).await?;
    ensure!(answer.status().is_success(), "{}", answer.status());
    let mut body = answer.into_body();
    let mut reader = StreamReader::default();
    while !stop.load(Relaxed) {
        let Ok(piece) = tokio::time::timeout(PIECE, body.frame()).await else {
            continue;
        };
        let piece = piece.context("the stream ended")??;
        if let Ok(bytes) = piece.into_data() {
            reader.take(&bytes, what);
        }
    }
    Ok(reader.received)
}

#[derive(Default)]
struct StreamReader {
    received: Received,
    line: Vec<u8>,
    kind: String,
    records: Option<u64>,
    whole: bool,
    runs: HashMap<String, u64>,
    sum: u64,
}

impl StreamReader {
    fn take(&mut self, bytes: &[u8], what: StreamKind) {
        self.received.bytes += bytes.len() as u64;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.line(String::from_utf8_lossy(&line).trim_end(), what);
            }
        }
    }

    fn line(&mut self, line: &str, what: StreamKind) {
        if let Some(id) = line.strip_prefix("id: ") {
            self.records = id.parse().ok();
        } else if let Some(kind) = line.strip_prefix("event: ") {
            kind.clone_into(&mut self.kind);
        } else if let Some(data) = line
            .strip_prefix("data: ")
            .filter(|_| what == StreamKind::Changes)
        {
            self.change(data);
        } else if line.is_empty()
            && let Some(records) = self.records.take()
        {
            self.received.changes.push((records, Instant::now()));
        }
    }

    fn change(&mut self, data: &str) {
        match self.kind.as_str() {
            "complete" => self.whole = true,
            "run" => {
                let Ok(run) = serde_json::from_str::<Run>(data) else {
                    return;
                };
                let known = self.runs.entry(run.run).or_default();
                self.sum = self.sum + run.seq - *known;
                *known = run.seq;
            }
            _ => return,
        }
        self.records = self.whole.then_some(self.sum);
    }
}
