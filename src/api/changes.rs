//! Stream of changes. Each change is found and encoded once, and sent to every reader as server-sent events. With
//! NATS it is also published to a stream there ([`publish`]).
//!
//! A reader first receives the current state of every run, then each change. A reader that falls behind receives
//! everything again. So its view is complete at any time.

mod publish;

pub use publish::run_publisher;

use super::{
    Api, ApiError,
    run_cache::SharedRun,
    views::{self, KnownMachines},
};
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
    lock::Locked as _,
    work::ROLLOUT,
};
use dormer_views::any_run::AnyRun;
use futures::{Stream, stream};
use serde::Serialize;
use serde_json::json;
use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{
        Notify,
        broadcast::{
            self, Receiver, Sender,
            error::{RecvError, TryRecvError},
        },
    },
    time::{Instant, timeout},
};

/// Interval at which the store is polled while a reader is connected.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// Poll interval while only the NATS publisher listens, so that a console without readers stays cheap.
const POLL_SELDOM: Duration = Duration::from_secs(1);
/// Pause before the next such poll, as a multiple of the poll's duration. A poll of 100,000 runs takes half a second.
const POLL_SHARE: u32 = 9;
/// Changes that a slow reader may fall behind before it receives everything again.
const LAG_MAX: usize = 4_096;
/// Silence after which a reader receives a keep-alive. It is below the one-minute timeout of most proxies.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// Most readers at once. Each holds a connection.
const READERS_MAX: usize = 200;
/// Runs of the full state that a reader holds at once. They are encoded one by one, as the reader takes them.
const PAGE: usize = 32;

/// One poller of the store and its listeners. The poller ends with the last listener.
#[derive(Default)]
pub(super) struct Changes {
    /// Lock held for a comparison, never across an await.
    broadcaster: Mutex<Weak<Broadcaster>>,
    /// Number of listeners that are publishers to NATS, not readers.
    publishers: AtomicUsize,
    /// Wakes the poller, so that a new reader does not wait for the slow interval.
    joined: Notify,
}

/// Sender of changes to all listeners.
type Broadcaster = Sender<Arc<RunChange>>;

/// Change of one run, encoded once for all listeners.
pub(super) struct RunChange {
    run: RunId,
    mark: Mark,
    /// The change as a server-sent event.
    event: Bytes,
    /// JSON within the event.
    body: Bytes,
}

impl RunChange {
    /// Change to a run's present state.
    fn of(api: &Api, run: &SharedRun, names: &KnownMachines) -> Self {
        let mark = Some((run.seq, run.sum));
        Self::new(run.id.clone(), mark, "run", &api.shown_with(run, names))
    }

    /// Change for a run that the store no longer has.
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

    /// Update of the NATS stream that replaces the run's message there.
    fn update(&self, replaces: u64) -> StateUpdate {
        StateUpdate {
            run: self.run.clone(),
            mark: self.mark,
            body: self.body.clone(),
            replaces,
        }
    }
}

/// Guard that counts a publisher until it is dropped.
struct Publishing<'a>(&'a AtomicUsize);

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Changes {
    /// Subscribes to changes from now on. The present state is not sent, so the caller reads it after this.
    async fn join(&self, api: &Arc<Api>) -> Receiver<Arc<RunChange>> {
        // Read before a new broadcast has listeners, so that every later change is sent.
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

    /// Marks one listener as a publisher.
    fn publisher(&self) -> Publishing<'_> {
        self.publishers.fetch_add(1, Ordering::Relaxed);
        Publishing(&self.publishers)
    }

    /// Adds a listener. The answer holds a broadcaster if the caller must start it.
    fn listen(&self) -> (Receiver<Arc<RunChange>>, Option<Arc<Broadcaster>>) {
        let mut broadcaster = self.broadcaster.locked();
        if let Some(sender) = broadcaster.upgrade() {
            return (sender.subscribe(), None);
        }
        let (sender, receiver) = broadcast::channel(LAG_MAX);
        let sender = Arc::new(sender);
        *broadcaster = Arc::downgrade(&sender);
        (receiver, Some(sender))
    }

    /// Ends the broadcast if it has no listener. The lock is the one under which listeners join.
    fn nobody_listens(&self, sender: &Broadcaster) -> bool {
        let mut broadcaster = self.broadcaster.locked();
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
        let broadcaster = self.broadcaster.locked();
        broadcaster
            .upgrade()
            .map_or(0, |sender| sender.receiver_count())
    }
}

/// `GET /api/v1/changes`.
pub(super) async fn changes(Of(api): Of<Arc<Api>>) -> Response {
    if api.changes.readers() >= READERS_MAX {
        let what = json!({"error": "too many readers of changes", "whatToDo": "close an open stream, or try again later"});
        return (StatusCode::SERVICE_UNAVAILABLE, axum::Json(what)).into_response();
    }
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(reader(api))).into_response()
}

/// State of one reader.
struct ChangesReader {
    api: Arc<Api>,
    receiver: Receiver<Arc<RunChange>>,
    /// Full state that is being sent.
    whole: Option<FullState>,
}

/// Full state of all runs, as far as it is not sent yet. It holds one page of runs, so that a slow reader costs little
/// memory.
#[derive(Default)]
struct FullState {
    begun: bool,
    page: VecDeque<SharedRun>,
    /// Last run that was sent.
    last: Option<RunId>,
    sent: usize,
    /// Names of machines. Only rollouts need them, and they come last.
    names: Option<KnownMachines>,
}

fn reader(api: Arc<Api>) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    stream::unfold(None, move |reader: Option<ChangesReader>| {
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

/// Subscribes before it reads the full state, so that no change is lost between the two.
async fn begin(api: Arc<Api>) -> Option<ChangesReader> {
    let receiver = api.changes.join(&api).await;
    let mut reader = ChangesReader {
        api,
        receiver,
        whole: None,
    };
    reader.send_everything().await?;
    Some(reader)
}

impl FullState {
    /// Next part of what the page holds: a `reset` at first, then its runs. `None`: the page is empty.
    fn of_page(&mut self, api: &Api) -> Option<Bytes> {
        if !std::mem::replace(&mut self.begun, true) {
            return Some(event("reset", &json!({})));
        }
        let run = self.page.pop_front()?;
        self.last = Some(run.id.clone());
        self.sent += 1;
        let none = KnownMachines::default();
        let names = self.names.as_ref().unwrap_or(&none);
        Some(event("run", &api.shown_with(&run, names)))
    }

    /// Reads the next page: the runs as they are when the reader comes to them. False: there is none.
    async fn read_page(&mut self, api: &Api) -> bool {
        self.page = api.run_cache.page(self.last.as_ref(), PAGE).await.into();
        let needs_names = self.page.iter().any(|run| run.id.workflow() == ROLLOUT);
        if needs_names && self.names.is_none() {
            self.names = Some(views::names(&api.run_cache.known().await));
        }
        !self.page.is_empty()
    }

    /// Whether the run was sent. The state of any other run comes with its page.
    fn has_sent(&self, run: &RunId) -> bool {
        self.last.as_ref().is_some_and(|last| run <= last)
    }
}

impl ChangesReader {
    /// Begins to send the full state. `None`: the store does not answer. The stream then ends, and the browser
    /// reconnects.
    async fn send_everything(&mut self) -> Option<()> {
        let runs = self.api.run_cache.all().await.ok()?;
        self.api.learn_usual(&runs).await;
        self.whole = Some(FullState::default());
        Some(())
    }

    /// Starts again for a reader that fell behind.
    async fn start_again(&mut self) -> Option<()> {
        self.receiver = self.receiver.resubscribe();
        self.send_everything().await
    }

    /// Next part of the full state, in the order of the runs' ids. Changes since then come between two pages, so that no
    /// older state of a run follows a newer one. `None`: the store does not answer.
    async fn of_whole(&mut self, mut whole: FullState) -> Option<Bytes> {
        loop {
            let part = whole.of_page(&self.api);
            if part.is_some() {
                self.whole = Some(whole);
                return part;
            }
            match self.receiver.try_recv() {
                Ok(change) if whole.has_sent(&change.run) => {
                    self.whole = Some(whole);
                    return Some(change.event.clone());
                }
                Ok(_) => {}
                Err(TryRecvError::Lagged(_)) => {
                    self.start_again().await?;
                    whole = self.whole.take().unwrap_or_default();
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => {
                    if !whole.read_page(&self.api).await {
                        return Some(event("complete", &json!({"runs": whole.sent})));
                    }
                }
            }
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(whole) = self.whole.take() {
                return self.of_whole(whole).await;
            }
            match timeout(QUIET_MAX, self.receiver.recv()).await {
                Ok(Ok(change)) => return Some(change.event.clone()),
                Ok(Err(RecvError::Lagged(_))) => self.start_again().await?,
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => return Some(Bytes::from_static(b": still here\n\n")),
            }
        }
    }
}

impl Api {
    /// Any run as lists show it.
    fn shown_with(&self, run: &SharedRun, names: &KnownMachines) -> AnyRun {
        let now = self.ports.now();
        let machine = views::machine(run, &self.live, now);
        if let Some(machine) = machine {
            return AnyRun::Machine(Box::new(machine));
        }
        match views::rollout(run, names, &self.live, now) {
            Some(rollout) => AnyRun::Rollout(Box::new(rollout)),
            None => AnyRun::Run(Box::new(views::run(run, &self.live, now))),
        }
    }

    /// Any run as lists show it, with the machines' names.
    pub(super) async fn shown(&self, run: &SharedRun) -> Result<AnyRun, ApiError> {
        let names = views::names(&self.run_cache.all().await?);
        Ok(self.shown_with(run, &names))
    }
}

/// Polls for changes and sends them while there are listeners. Runs in `known` are not sent: a listener receives the
/// full state first, and sending all runs would exceed [`LAG_MAX`].
async fn broadcast(api: Arc<Api>, sender: Arc<Broadcaster>, mut known: HashMap<RunId, Sum>) {
    while !api.changes.nobody_listens(&sender) {
        let began = Instant::now();
        if let Ok(runs) = api.run_cache.all().await {
            let changed: Vec<&SharedRun> = runs
                .iter()
                .filter(|run| known.get(&run.id) != Some(&run.sum))
                .collect();
            // Unchanged runs are not encoded again: of thousands only a few change.
            let rollout = changed.iter().any(|run| run.id.workflow() == ROLLOUT);
            let names = if rollout {
                views::names(&runs)
            } else {
                KnownMachines::default()
            };
            for run in changed {
                let _ = sender.send(Arc::new(RunChange::of(&api, run, &names)));
                known.insert(run.id.clone(), run.sum);
            }
            if known.len() > runs.len() {
                known.retain(|id, _| {
                    let there = runs.binary_search_by(|run| run.id.cmp(id)).is_ok();
                    if !there {
                        let _ = sender.send(Arc::new(RunChange::forgotten(id)));
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

/// Event in the form that a browser's `EventSource` reads. JSON has no line breaks, so one line of data is enough.
fn event(kind: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {kind}\ndata: {data}\n\n").into()
}
