//! Page content as server-sent events: the whole content at first, then whenever it changes. So a page that slept or
//! lost its connection is correct again after the first event.

use super::{Console, Page, Snapshot, guarded, page, plan};
use axum::{
    body::Body,
    http::{
        HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::Response,
};
use bytes::Bytes;
use dormer_api::live::Live;
use dormer_proto::work::{machine_run, rollout_run};
use futures::{Stream, stream};
use serde::Serialize;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{sync::watch::Receiver, time::Instant};

/// Least time between two contents of one page, because the browser lays out each.
const APART: Duration = Duration::from_millis(400);
/// Most open pages. Each holds a connection.
const READERS_MAX: usize = 200;

/// Answers the stream, or 503 if there are too many.
pub(super) fn answer(console: Arc<Console>, page: Page) -> Response {
    if console.snapshots.followers() >= READERS_MAX {
        return guarded(
            [],
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "too many console pages are open; close some",
            ),
        );
    }
    let kind = (CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    let fresh = (CACHE_CONTROL, HeaderValue::from_static("no-store"));
    guarded([kind, fresh], Body::from_stream(events(console, page)))
}

/// State of one browser's stream.
struct PageReader {
    console: Arc<Console>,
    page: Page,
    snapshots: Receiver<Option<Snapshot>>,
    /// Counter of the remote commands that this process receives.
    commands: Receiver<u64>,
    last_sent: LastSent,
}

/// Content of a page in the form that its script reads.
#[derive(Serialize)]
struct PageEvent<'a> {
    title: String,
    main: String,
    /// Error of the store. The content is then from before.
    trouble: Option<&'a str>,
}

/// Content that was sent last.
#[derive(Default)]
struct LastSent {
    at: Option<Instant>,
    mark: Option<u64>,
    content: Bytes,
}

fn events(
    console: Arc<Console>,
    page: Page,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let snapshots = console.snapshots.follow(&console.api);
    let commands = console.api.live().subscribe();
    let reader = PageReader {
        console,
        page,
        snapshots,
        commands,
        last_sent: LastSent::default(),
    };
    stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    })
}

impl PageReader {
    /// Next event. `None`: dormer shuts down.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(at) = self.last_sent.at {
                tokio::time::sleep_until(at + APART).await;
                tokio::select! {
                    snapshot = self.snapshots.changed() => snapshot.ok()?,
                    // The sender exists as long as the API.
                    _ = self.commands.changed(), if matches!(self.page, Page::Machine(..)) => {}
                }
            }
            let snapshot = self
                .snapshots
                .wait_for(Option::is_some)
                .await
                .ok()?
                .clone()?;
            let mark = mark(&self.page, &snapshot, self.console.api.live());
            if self.last_sent.mark == Some(mark) {
                continue;
            }
            self.last_sent.mark = Some(mark);
            let content = self.content(&snapshot, mark).await;
            self.last_sent.at = Some(Instant::now());
            if content == self.last_sent.content {
                return Some(Bytes::from_static(b"event: still\ndata: {}\n\n"));
            }
            self.last_sent.content = content.clone();
            return Some(content);
        }
    }

    /// Event of a snapshot, rendered now or earlier by another reader.
    async fn content(&self, snapshot: &Snapshot, mark: u64) -> Bytes {
        // A plan reads the cluster, which may take long, so other pages do not wait for it.
        if matches!(self.page, Page::Plan(_)) {
            return self.event(snapshot).await;
        }
        let mut drawn = self.console.drawn.lock().await;
        if let Some(event) = drawn.at(&self.page, mark) {
            return event;
        }
        let event = self.event(snapshot).await;
        drawn.keep(&self.page, mark, event.clone());
        event
    }

    async fn event(&self, snapshot: &Snapshot) -> Bytes {
        let content = match self.console.draw(&self.page, snapshot).await {
            Ok(content) => content,
            Err(error) => self.page.without(&error),
        };
        let event = PageEvent {
            title: page::title(&content.title),
            main: content.main.into_string(),
            trouble: snapshot.trouble.as_deref(),
        };
        // Three texts always have a JSON form, and JSON has no line breaks: one line of data is enough.
        let data = serde_json::to_string(&event).unwrap_or_default();
        let number = snapshot.records();
        Bytes::from(format!("id: {number}\nevent: page\ndata: {data}\n\n"))
    }
}

/// Mark that changes when the page must be rendered again: with its run and the run's remote commands, or with any
/// run; and with time.
fn mark(page: &Page, snapshot: &Snapshot, live: &Live) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let run = match page {
        Page::Machine(called, _) => machine_run(called).ok(),
        Page::Rollout(pool, _) => rollout_run(pool).ok(),
        Page::Plan(_) => return plan::mark(snapshot, live),
        Page::Fleet(_) | Page::Rollouts | Page::Activity | Page::Settings | Page::Dead => None,
    };
    let mut hasher = DefaultHasher::new();
    match run.and_then(|run| snapshot.run(&run)) {
        Some(run) => {
            (run.sum.0, snapshot.tick, &snapshot.trouble).hash(&mut hasher);
            live.commands_mark(&run.id).hash(&mut hasher);
        }
        None => (snapshot.number, &snapshot.trouble).hash(&mut hasher),
    }
    hasher.finish()
}
