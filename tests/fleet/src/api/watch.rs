//! A client's watch: lines of JSON, selected and converted from the store's events.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{Receiver, error::TryRecvError},
    time::Instant,
};

use super::{
    kinds::Kind,
    object::Object,
    server::{ApiServer, ListQuery},
    status::Refusal,
    store::{Event, Interest, WatchError, WatchFrom},
    table,
};

/// Interval of bookmarks for a watch that requested them, on tokio's clock.
pub const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Longest duration of a watch, on tokio's clock.
pub const WATCH_FOR_MAX: Duration = Duration::from_secs(40 * 60);

/// Options of a watch besides a list's selection.
#[derive(Debug, Clone, Default)]
pub struct WatchQuery {
    /// Selection.
    pub list: ListQuery,
    /// `resourceVersion`; empty or 0: with all present objects first.
    pub revision: String,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `sendInitialEvents`.
    pub initial: Option<bool>,
    /// `timeoutSeconds`.
    pub timeout: Option<Duration>,
    /// Whether objects are sent as Tables.
    pub as_table: bool,
}

/// One selected change.
#[derive(Debug, Clone)]
pub struct Change {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: &'static str,
    pub object: Arc<Object>,
}

/// Meaning of the event for a selection: none, or a change.
pub fn select(query: &ListQuery, event: &Event) -> Option<Change> {
    let fits = |o: &Arc<Object>| {
        let ns = o.value["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default();
        query.namespace.as_deref().is_none_or(|want| want == ns)
            && query.labels.matches(&o.value)
            && query.fields.matches(&o.value)
    };
    let now = !event.deleted && fits(&event.object);
    let was = event.before.as_ref().is_some_and(fits);
    let kind = match (was, now) {
        (false, true) => "ADDED",
        (true, true) => "MODIFIED",
        (true, false) => "DELETED",
        (false, false) => return None,
    };
    Some(Change {
        kind,
        object: event.object.clone(),
    })
}

struct Watching {
    server: ApiServer,
    kind: &'static Kind,
    query: WatchQuery,
    ready: VecDeque<Bytes>,
    changes: Receiver<Arc<Event>>,
    end: Instant,
    next_bookmark: Instant,
    /// A bookmark that is due once everything up to its revision was sent.
    bookmark: Option<u64>,
}

impl ApiServer {
    /// Starts a watch: a stream of lines that ends when the watch does.
    ///
    /// # Errors
    /// 400 for a resourceVersion that is no number.
    pub fn watch(
        &self,
        kind: &'static Kind,
        query: WatchQuery,
    ) -> Result<impl Stream<Item = Bytes> + Send + use<>, Refusal> {
        let from = match (query.initial, query.revision.as_str()) {
            (Some(true), _) | (None, "" | "0") => WatchFrom::All,
            (_, "" | "0") => WatchFrom::Now,
            (_, revision) => WatchFrom::After(revision.parse().map_err(|_| {
                Refusal::bad_request(format!("invalid resource version {revision:?}"))
            })?),
        };
        let fields = &query.list.fields;
        let interest = match (
            fields.equal_to("metadata.name"),
            fields.equal_to("spec.nodeName"),
        ) {
            (Some(name), _) => Interest::Name(name.to_owned()),
            (_, Some(node)) => Interest::Node(node.to_owned()),
            _ => Interest::All,
        };
        let started = self.store().watch(kind.store, interest, from);
        let (watch, refused) = match started {
            Ok(watch) => (watch, None),
            Err(error) => {
                let watch = self
                    .store()
                    .watch(kind.store, Interest::All, WatchFrom::Now);
                (
                    watch.map_err(|_| Refusal::expired("no watch"))?,
                    Some(refusal(error, &query)),
                )
            }
        };
        let now = Instant::now();
        let lasts = query
            .timeout
            .map_or(WATCH_FOR_MAX, |t| t.min(WATCH_FOR_MAX));
        let mut state = Watching {
            server: self.clone(),
            kind,
            ready: VecDeque::new(),
            changes: watch.changes,
            end: now
                + if refused.is_some() {
                    Duration::ZERO
                } else {
                    lasts
                },
            next_bookmark: now + BOOKMARK_EVERY,
            bookmark: None,
            query,
        };
        match refused {
            Some(refusal) => state
                .ready
                .push_back(line("ERROR", &encode(&refusal.to_value()))),
            None => {
                watch.backlog.iter().for_each(|event| state.take(event));
                if state.query.initial == Some(true) {
                    state.push_bookmark(watch.revision, true);
                }
            }
        }
        Ok(futures::stream::unfold(state, |mut state| async move {
            let line = state.next().await?;
            Some((line, state))
        }))
    }
}

fn refusal(error: WatchError, query: &WatchQuery) -> Refusal {
    match error {
        WatchError::Compacted(oldest) => Refusal::expired(format!(
            "too old resource version: {} ({oldest})",
            query.revision
        )),
        WatchError::Future(present) => Refusal::new(
            504,
            "Timeout",
            format!(
                "Too large resource version: {}, current: {present}",
                query.revision
            ),
        ),
    }
}

impl Watching {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            match self.changes.try_recv() {
                Ok(event) => {
                    self.take(&event);
                    continue;
                }
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            if let Some(revision) = self.bookmark.take() {
                self.push_bookmark(revision, false);
                continue;
            }
            let wake = if self.query.bookmarks {
                self.next_bookmark.min(self.end)
            } else {
                self.end
            };
            tokio::select! {
                biased;
                event = self.changes.recv() => {
                    let event = event?;
                    self.take(&event);
                }
                () = tokio::time::sleep_until(wake) => {
                    if Instant::now() >= self.end {
                        return None;
                    }
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    self.bookmark = Some(self.server.store().revision());
                }
            }
        }
    }

    fn take(&mut self, event: &Event) {
        let Some(change) = select(&self.query.list, event) else {
            return;
        };
        let text = if self.query.as_table {
            let now = self.server.clock().now();
            encode(&table::of(self.kind, &[change.object], json!({}), now))
        } else {
            self.server.encoded(self.kind, &change.object)
        };
        self.ready.push_back(line(change.kind, &text));
    }

    fn push_bookmark(&mut self, revision: u64, initial_end: bool) {
        let mut bookmark = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(),
            "metadata": {"resourceVersion": revision.to_string()}});
        if initial_end {
            bookmark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        self.ready.push_back(line("BOOKMARK", &encode(&bookmark)));
    }
}

fn encode(value: &Value) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

fn line(kind: &str, object: &Bytes) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}
