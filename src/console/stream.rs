//! A page's content as server-sent events: the whole of it at first, then whenever it has changed. So a page that
//! slept, or lost its connection, is right again with the first event that it hears.

use super::{Console, Look, Page, guarded, page};
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
use serde_json::json;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{sync::watch::Receiver, time::Instant};

/// Between two contents of one page lies at least so much: a browser lays each of them out.
const APART: Duration = Duration::from_millis(400);
/// Most pages open at once; each holds a connection.
const READERS_MAX: usize = 200;

/// The stream, unless there are too many.
pub(super) fn answer(console: Arc<Console>, page: Page) -> Response {
    if console.looks.followers() >= READERS_MAX {
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
    looks: Receiver<Option<Look>>,
    /// Remote commands that this process hears of.
    heard: Receiver<u64>,
    told: Told,
}

/// What it heard last.
#[derive(Default)]
struct Told {
    at: Option<Instant>,
    mark: Option<u64>,
    content: Bytes,
}

fn events(
    console: Arc<Console>,
    page: Page,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let looks = console.looks.follow(&console.api);
    let heard = console.api.live().heard();
    let reader = Reader {
        console,
        page,
        looks,
        heard,
        told: Told::default(),
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
            if let Some(at) = self.told.at {
                tokio::time::sleep_until(at + APART).await;
                tokio::select! {
                    look = self.looks.changed() => look.ok()?,
                    // The sender lives as long as the API does.
                    _ = self.heard.changed(), if matches!(self.page, Page::Machine(..)) => {}
                }
            }
            let look = self.looks.wait_for(Option::is_some).await.ok()?.clone()?;
            let mark = mark(&self.page, &look, self.console.api.live());
            if self.told.mark == Some(mark) {
                continue;
            }
            self.told.mark = Some(mark);
            let content = self.content(&look, mark).await;
            self.told.at = Some(Instant::now());
            if content == self.told.content {
                return Some(Bytes::from_static(b"event: still\ndata: {}\n\n"));
            }
            self.told.content = content.clone();
            return Some(content);
        }
    }

    /// The event of that look, drawn now or by another reader before.
    async fn content(&self, look: &Look, mark: u64) -> Bytes {
        let mut drawn = self.console.drawn.lock().await;
        if let Some(event) = drawn.at(&self.page, mark) {
            return event;
        }
        let content = match self.console.draw(&self.page, look).await {
            Ok(content) => content,
            Err(error) => page::failed(&error),
        };
        let told = json!({
            "title": page::title(&content.title),
            "main": content.main.into_string(),
            "trouble": look.trouble,
        });
        // Serialised JSON has no line breaks, so one line of data is enough.
        let event = Bytes::from(format!(
            "id: {}\nevent: page\ndata: {told}\n\n",
            look.records()
        ));
        drawn.keep(&self.page, mark, event.clone());
        event
    }
}

/// What has to differ for the page to be drawn again: the run that it is about and its remote commands, or anything;
/// and the time that passes.
fn mark(page: &Page, look: &Look, live: &Live) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let run = match page {
        Page::Machine(called, _) => machine_run(called).ok(),
        Page::Rollout(pool, _) => rollout_run(pool).ok(),
        Page::Fleet(_) | Page::Dead => None,
    };
    let mut hasher = DefaultHasher::new();
    match run.and_then(|run| look.run(&run)) {
        Some(run) => {
            (run.sum.0, look.tick, &look.trouble).hash(&mut hasher);
            live.commands_mark(&run.id).hash(&mut hasher);
        }
        None => (look.number, &look.trouble).hash(&mut hasher),
    }
    hasher.finish()
}
