//! A page's content as server-sent events: the whole of it at first, then whenever it has changed. So a page that
//! slept, or lost its connection, is right again with the first event that it hears.

use super::{Console, Page, Snapshot, guarded, page};
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

/// Between two contents of one page lies at least so much: a browser lays each of them out.
const APART: Duration = Duration::from_millis(400);
/// Most pages open at once; each holds a connection.
const READERS_MAX: usize = 200;

/// The stream, unless there are too many.
pub(super) fn answer(console: Arc<Console>, page: Page) -> Response {
    if console.snapshots.followers() >= READERS_MAX {
        return guarded(
            [],
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "too many open pages: close some",
            ),
        );
    }
    let kind = (CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    let fresh = (CACHE_CONTROL, HeaderValue::from_static("no-store"));
    guarded([kind, fresh], Body::from_stream(events(console, page)))
}

/// What one browser hears.
struct Reader {
    console: Arc<Console>,
    page: Page,
    snapshots: Receiver<Option<Snapshot>>,
    /// Remote commands that this process hears of.
    commands: Receiver<u64>,
    last_sent: LastSent,
}

/// A page's content, as its script reads it.
#[derive(Serialize)]
struct PageEvent<'a> {
    title: String,
    main: String,
    /// Why the store cannot be asked; the content is as it was before.
    trouble: Option<&'a str>,
}

/// What it heard last.
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
    let reader = Reader {
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

impl Reader {
    /// The next event. `None`: dormer ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(at) = self.last_sent.at {
                tokio::time::sleep_until(at + APART).await;
                tokio::select! {
                    snapshot = self.snapshots.changed() => snapshot.ok()?,
                    // The sender lives as long as the API does.
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

    /// The event of that look, drawn now or by another reader before.
    async fn content(&self, snapshot: &Snapshot, mark: u64) -> Bytes {
        let mut drawn = self.console.drawn.lock().await;
        if let Some(event) = drawn.at(&self.page, mark) {
            return event;
        }
        let content = match self.console.draw(&self.page, snapshot).await {
            Ok(content) => content,
            Err(error) => page::failed(&error),
        };
        let event = PageEvent {
            title: page::title(&content.title),
            main: content.main.into_string(),
            trouble: snapshot.trouble.as_deref(),
        };
        // Three texts always have a JSON form, and JSON has no line breaks: one line of data is enough.
        let data = serde_json::to_string(&event).unwrap_or_default();
        let event = Bytes::from(format!(
            "id: {}\nevent: page\ndata: {data}\n\n",
            snapshot.records()
        ));
        drawn.keep(&self.page, mark, event.clone());
        event
    }
}

/// What has to differ for the page to be drawn again: the run that it is about and its remote commands, or anything;
/// and the time that passes.
fn mark(page: &Page, snapshot: &Snapshot, live: &Live) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let run = match page {
        Page::Machine(called, _) => machine_run(called).ok(),
        Page::Rollout(pool, _) => rollout_run(pool).ok(),
        Page::Fleet(_) | Page::Dead => None,
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
