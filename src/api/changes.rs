//! A stream of changes: each is found and written once, and fanned out to every reader as server-sent events.
//!
//! A reader first hears every run as it stands, then each that changes; one that cannot keep up hears everything
//! again. So what it has put together is right, whenever it looks.

use super::{Api, shelf::Shown, shown};
use axum::{
    body::Body,
    extract::State as Of,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use dormer_engine::port::{Clock, Ports};
use dormer_proto::{
    id::{RunId, Sum},
    work::ROLLOUT,
};
use futures::{Stream, stream};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::broadcast::{self, Receiver, Sender, error::RecvError};

/// How often the store is looked at, while anybody listens.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Changes that a slow reader may lag behind before it hears everything again.
const LAG_MAX: usize = 4_096;
/// Silence after which a reader hears that the stream still stands: below the minute of most proxies.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// Most readers at once; each holds a connection.
const READERS_MAX: usize = 200;

/// The one that looks, and those whom it tells. It ends when nobody listens.
#[derive(Default)]
pub(super) struct Changes {
    /// A lock: held for a comparison, never across an await.
    telling: Mutex<Weak<Sender<Bytes>>>,
}

impl Changes {
    /// Joins those who are told, and says whether somebody has to begin to tell.
    fn listen(&self) -> (Receiver<Bytes>, Option<Arc<Sender<Bytes>>>) {
        let mut telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = telling.upgrade() {
            return (sender.subscribe(), None);
        }
        let (sender, receiver) = broadcast::channel(LAG_MAX);
        let sender = Arc::new(sender);
        *telling = Arc::downgrade(&sender);
        (receiver, Some(sender))
    }

    /// Ends the telling if nobody listens, under the lock under which listeners come.
    fn nobody_listens(&self, sender: &Sender<Bytes>) -> bool {
        let mut telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let nobody = sender.receiver_count() == 0;
        if nobody {
            *telling = Weak::new();
        }
        nobody
    }

    fn readers(&self) -> usize {
        let telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        telling.upgrade().map_or(0, |sender| sender.receiver_count())
    }
}

/// `GET /api/v1/changes`.
pub(super) async fn changes<P: Ports>(Of(api): Of<Arc<Api<P>>>) -> Response {
    if api.changes.readers() >= READERS_MAX {
        let what = json!({"error": "too many readers of changes", "whatToDo": "close some"});
        return (StatusCode::SERVICE_UNAVAILABLE, axum::Json(what)).into_response();
    }
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(reader(api))).into_response()
}

/// What one reader hears.
struct Reader<P> {
    api: Arc<Api<P>>,
    told: Receiver<Bytes>,
    /// Parts of the whole that it has not heard yet.
    whole: VecDeque<Bytes>,
}

fn reader<P: Ports>(api: Arc<Api<P>>) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    stream::unfold(None, move |reader: Option<Reader<P>>| {
        let api = Arc::clone(&api);
        async move {
            let mut reader = match reader {
                Some(reader) => reader,
                None => begin(api).await?,
            };
            let heard = reader.next().await?;
            Some((Ok(heard), Some(reader)))
        }
    })
}

/// Listens before it reads the whole, so that no change falls between the two.
async fn begin<P: Ports>(api: Arc<Api<P>>) -> Option<Reader<P>> {
    // Read before anybody listens to a new telling, so that whatever changes from then on is told.
    let first = api.changes.readers() == 0;
    let before = if first { api.shelf.all().await.unwrap_or_default() } else { Vec::new() };
    let (told, begin) = api.changes.listen();
    if let Some(sender) = begin {
        let known = before.iter().map(|run| (run.id.clone(), run.sum)).collect();
        tokio::spawn(tell(Arc::clone(&api), sender, known));
    }
    let mut reader = Reader { api, told, whole: VecDeque::new() };
    reader.hear_all().await?;
    Some(reader)
}

impl<P: Ports> Reader<P> {
    /// The whole anew: a `reset`, every run, and `complete`. `None`: the store does not answer; the stream ends, and
    /// a browser asks again by itself.
    async fn hear_all(&mut self) -> Option<()> {
        let runs = self.api.shelf.all().await.ok()?;
        let names = shown::names(&runs);
        self.whole.push_back(event("reset", &json!({})));
        self.whole.extend(runs.iter().map(|run| event("run", &self.api.shown(run, &names))));
        self.whole.push_back(event("complete", &json!({"runs": runs.len()})));
        Some(())
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(part) = self.whole.pop_front() {
                return Some(part);
            }
            match tokio::time::timeout(QUIET_MAX, self.told.recv()).await {
                Ok(Ok(change)) => return Some(change),
                Ok(Err(RecvError::Lagged(_))) => {
                    self.told = self.told.resubscribe();
                    self.hear_all().await?;
                }
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => return Some(Bytes::from_static(b": still here\n\n")),
            }
        }
    }
}

impl<P: Ports> Api<P> {
    /// Any run as its list shows it.
    fn shown(&self, run: &Shown, names: &BTreeMap<String, String>) -> Value {
        let now = self.ports.clock().now();
        shown::machine(run, &self.live, now)
            .or_else(|| shown::rollout(run, names, now))
            .unwrap_or_else(|| shown::run(run, now))
    }
}

/// Looks for changes and tells them, as long as anybody listens. What is `known` is not told: who listens
/// hears the whole first, and a burst of everything would be more than a reader may lag behind.
async fn tell<P: Ports>(
    api: Arc<Api<P>>,
    sender: Arc<Sender<Bytes>>,
    mut known: HashMap<RunId, Sum>,
) {
    while !api.changes.nobody_listens(&sender) {
        if let Ok(runs) = api.shelf.all().await {
            let changed: Vec<&Shown> =
                runs.iter().filter(|run| known.get(&run.id) != Some(&run.sum)).collect();
            // Of thousands of runs only some have changed: nothing is made anew for the others.
            let rollout = changed.iter().any(|run| run.id.workflow() == ROLLOUT);
            let names = if rollout { shown::names(&runs) } else { BTreeMap::new() };
            for run in changed {
                let _ = sender.send(event("run", &api.shown(run, &names)));
                known.insert(run.id.clone(), run.sum);
            }
            if known.len() > runs.len() {
                known.retain(|id, _| {
                    let there = runs.binary_search_by(|run| run.id.cmp(id)).is_ok();
                    if !there {
                        let _ = sender.send(event("forgotten", &json!({"run": id.as_str()})));
                    }
                    there
                });
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// One event as a browser's `EventSource` reads it. JSON has no line breaks, so one line of data is enough.
fn event(kind: &str, data: &Value) -> Bytes {
    format!("event: {kind}\ndata: {data}\n\n").into()
}
