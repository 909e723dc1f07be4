//! A stream of changes: each is found and written once, and fanned out to every reader as server-sent events; where
//! there is NATS, also to a stream there ([`publish`]).
//!
//! A reader first hears every run as it stands, then each that changes; one that cannot keep up hears everything
//! again. So what it has put together is right, whenever it looks.

mod publish;

pub use publish::publish_for_ever;

use super::{Api, ApiError, run_cache::SharedRun, views};
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
use dormer_engine::nats::{Mark, StateUpdate};
use dormer_proto::{
    id::{RunId, Sum},
    work::ROLLOUT,
};
use dormer_views::any_run::AnyRun;
use futures::{Stream, stream};
use serde::Serialize;
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{
        Notify,
        broadcast::{self, Receiver, Sender, error::RecvError},
    },
    time::{Instant, timeout},
};

/// How often the store is looked at, while anybody listens.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// How often it is looked at for the stream over NATS alone: a console that nobody looks at stays cheap.
const POLL_SELDOM: Duration = Duration::from_secs(1);
/// How many times as long as such a look takes is waited for the next: of 100,000 runs it takes half a second.
const POLL_SHARE: u32 = 9;
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
    broadcaster: Mutex<Weak<Broadcaster>>,
    /// Those among them who are no readers of ours, but tell others over NATS.
    publishers: AtomicUsize,
    /// Somebody came who should not wait for a seldom look.
    joined: Notify,
}

/// Where changes are told.
type Broadcaster = Sender<Arc<Change>>;

/// What changed of one run, written once for all who hear of it.
pub(super) struct Change {
    run: RunId,
    mark: Mark,
    /// As a server-sent event.
    event: Bytes,
    /// The event's JSON, which is a part of it.
    body: Bytes,
}

impl Change {
    /// A run as it stands.
    fn of(api: &Api, run: &SharedRun, names: &BTreeMap<String, String>) -> Self {
        let mark = Some((run.seq, run.sum));
        Self::new(run.id.clone(), mark, "run", &api.shown_with(run, names))
    }

    /// A run that the store has no more.
    fn forgotten(run: &RunId) -> Self {
        let body = json!({"run": run.as_str(), "forgotten": true});
        Self::new(run.clone(), None, "forgotten", &body)
    }

    fn new(run: RunId, mark: Mark, kind: &str, data: &impl Serialize) -> Self {
        let event = event(kind, data);
        let from = "event: \ndata: ".len() + kind.len();
        let body = event.slice(from..event.len() - "\n\n".len());
        Self {
            run,
            mark,
            event,
            body,
        }
    }

    /// For the stream over NATS, in place of the message that stands there.
    fn update(&self, replaces: u64) -> StateUpdate {
        StateUpdate {
            run: self.run.clone(),
            mark: self.mark,
            body: self.body.clone(),
            replaces,
        }
    }
}

/// Counts a publisher as long as it lives.
struct Publishing<'a>(&'a AtomicUsize);

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Changes {
    /// Hears every change from now on: what stands now is not told, so the caller reads it after this.
    async fn join(&self, api: &Arc<Api>) -> Receiver<Arc<Change>> {
        // Read before anybody listens to a new telling, so that whatever changes from then on is told.
        let first = self.listeners() == 0;
        let before = if first {
            api.run_cache.all().await.unwrap_or_default()
        } else {
            Vec::new()
        };
        let (receiver, begin) = self.listen();
        match begin {
            Some(sender) => {
                let known = before.iter().map(|run| (run.id.clone(), run.sum)).collect();
                tokio::spawn(broadcast(Arc::clone(api), sender, known));
            }
            None => self.joined.notify_one(),
        }
        receiver
    }

    /// Says that one who listens is a publisher.
    fn publisher(&self) -> Publishing<'_> {
        self.publishers.fetch_add(1, Ordering::Relaxed);
        Publishing(&self.publishers)
    }

    /// Joins those who are told, and says whether somebody has to begin to tell.
    fn listen(&self) -> (Receiver<Arc<Change>>, Option<Arc<Broadcaster>>) {
        let mut broadcaster = self
            .broadcaster
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = broadcaster.upgrade() {
            return (sender.subscribe(), None);
        }
        let (sender, receiver) = broadcast::channel(LAG_MAX);
        let sender = Arc::new(sender);
        *broadcaster = Arc::downgrade(&sender);
        (receiver, Some(sender))
    }

    /// Ends the telling if nobody listens, under the lock under which listeners come.
    fn nobody_listens(&self, sender: &Broadcaster) -> bool {
        let mut broadcaster = self
            .broadcaster
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let nobody = sender.receiver_count() == 0;
        if nobody {
            *broadcaster = Weak::new();
        }
        nobody
    }

    fn readers(&self) -> usize {
        self.listeners()
            .saturating_sub(self.publishers.load(Ordering::Relaxed))
    }

    fn listeners(&self) -> usize {
        let broadcaster = self
            .broadcaster
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        broadcaster
            .upgrade()
            .map_or(0, |sender| sender.receiver_count())
    }
}

/// `GET /api/v1/changes`.
pub(super) async fn changes(Of(api): Of<Arc<Api>>) -> Response {
    if api.changes.readers() >= READERS_MAX {
        let what = json!({"error": "too many readers of changes", "whatToDo": "close some"});
        return (StatusCode::SERVICE_UNAVAILABLE, axum::Json(what)).into_response();
    }
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(reader(api))).into_response()
}

/// What one reader hears.
struct Reader {
    api: Arc<Api>,
    receiver: Receiver<Arc<Change>>,
    /// Parts of the whole that it has not heard yet.
    whole: VecDeque<Bytes>,
}

fn reader(api: Arc<Api>) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    stream::unfold(None, move |reader: Option<Reader>| {
        let api = Arc::clone(&api);
        async move {
            let mut reader = match reader {
                Some(reader) => reader,
                None => begin(api).await?,
            };
            let part = reader.next().await?;
            Some((Ok(part), Some(reader)))
        }
    })
}

/// Listens before it reads the whole, so that no change falls between the two.
async fn begin(api: Arc<Api>) -> Option<Reader> {
    let receiver = api.changes.join(&api).await;
    let mut reader = Reader {
        api,
        receiver,
        whole: VecDeque::new(),
    };
    reader.send_everything().await?;
    Some(reader)
}

impl Reader {
    /// The whole anew: a `reset`, every run, and `complete`. `None`: the store does not answer; the stream ends, and
    /// a browser asks again by itself.
    async fn send_everything(&mut self) -> Option<()> {
        let runs = self.api.run_cache.all().await.ok()?;
        let names = views::names(&runs);
        self.whole.push_back(event("reset", &json!({})));
        self.whole.extend(
            runs.iter()
                .map(|run| event("run", &self.api.shown_with(run, &names))),
        );
        self.whole
            .push_back(event("complete", &json!({"runs": runs.len()})));
        Some(())
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(part) = self.whole.pop_front() {
                return Some(part);
            }
            match timeout(QUIET_MAX, self.receiver.recv()).await {
                Ok(Ok(change)) => return Some(change.event.clone()),
                Ok(Err(RecvError::Lagged(_))) => {
                    self.receiver = self.receiver.resubscribe();
                    self.send_everything().await?;
                }
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => return Some(Bytes::from_static(b": still here\n\n")),
            }
        }
    }
}

impl Api {
    /// Any run as its list shows it.
    fn shown_with(&self, run: &SharedRun, names: &BTreeMap<String, String>) -> AnyRun {
        let now = self.ports.now();
        let machine = views::machine(run, &self.live, now);
        if let Some(machine) = machine {
            return AnyRun::Machine(Box::new(machine));
        }
        match views::rollout(run, names, now) {
            Some(rollout) => AnyRun::Rollout(Box::new(rollout)),
            None => AnyRun::Run(Box::new(views::run(run, now))),
        }
    }

    /// Any run as its list shows it, with the machines' names.
    pub(super) async fn shown(&self, run: &SharedRun) -> Result<AnyRun, ApiError> {
        let names = views::names(&self.run_cache.all().await?);
        Ok(self.shown_with(run, &names))
    }
}

/// Looks for changes and tells them, as long as anybody listens. What is `known` is not told: who listens
/// hears the whole first, and a burst of everything would be more than a reader may lag behind.
async fn broadcast(api: Arc<Api>, sender: Arc<Broadcaster>, mut known: HashMap<RunId, Sum>) {
    while !api.changes.nobody_listens(&sender) {
        let began = Instant::now();
        if let Ok(runs) = api.run_cache.all().await {
            let changed: Vec<&SharedRun> = runs
                .iter()
                .filter(|run| known.get(&run.id) != Some(&run.sum))
                .collect();
            // Of thousands of runs only some have changed: nothing is made anew for the others.
            let rollout = changed.iter().any(|run| run.id.workflow() == ROLLOUT);
            let names = if rollout {
                views::names(&runs)
            } else {
                BTreeMap::new()
            };
            for run in changed {
                let _ = sender.send(Arc::new(Change::of(&api, run, &names)));
                known.insert(run.id.clone(), run.sum);
            }
            if known.len() > runs.len() {
                known.retain(|id, _| {
                    let there = runs.binary_search_by(|run| run.id.cmp(id)).is_ok();
                    if !there {
                        let _ = sender.send(Arc::new(Change::forgotten(id)));
                    }
                    there
                });
            }
        }
        let took = began.elapsed();
        tokio::time::sleep(POLL_EVERY).await;
        if api.changes.readers() == 0 {
            let pause = POLL_SELDOM.max(took * POLL_SHARE) - POLL_EVERY;
            let _ = timeout(pause, api.changes.joined.notified()).await;
        }
    }
}

/// One event as a browser's `EventSource` reads it. JSON has no line breaks, so one line of data is enough.
fn event(kind: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {kind}\ndata: {data}\n\n").into()
}
