//! The loop that every controller runs in: keys that changed, taken one at a time each.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{FuturesUnordered, SelectAll},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use crate::{
    api::{Key, Refusal, kinds::Kind, store::Event},
    world::Pace,
};

/// How long a controller waits after a refusal, in the world's time.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Reconciliation of one key.
pub trait Reconcile: Send + Sync + 'static {
    /// Which kinds it watches.
    fn sources(&self) -> Vec<&'static Kind>;
    /// Which keys a change concerns.
    fn keys(&self, kind: &'static Kind, event: &Event) -> Vec<Key>;
    /// Brings one key nearer to its desired state; returns the time of the next call, in the world's time. Never runs
    /// concurrently for one key.
    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>>;
    /// How long changes are gathered before a key is looked at, in the world's time.
    fn gather(&self) -> Duration {
        Duration::ZERO
    }
}

/// Runs a controller until it is stopped.
pub async fn run(client: Client, pace: Pace, what: Arc<dyn Reconcile>, stop: CancellationToken) {
    let work = async {
        loop {
            // Ends when a watch ended; then everything is listed and looked at again.
            until_a_watch_ends(&client, pace, &what).await;
            pace.sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
    }
}

async fn until_a_watch_ends(client: &Client, pace: Pace, what: &Arc<dyn Reconcile>) {
    let mut changes = SelectAll::new();
    let mut queue = Queue::default();
    for kind in what.sources() {
        let Some(watch) = client.watch(kind) else {
            return;
        };
        for event in watch.backlog {
            queue.add(what.keys(kind, &event), Instant::now());
        }
        let some = futures::stream::unfold(watch.changes, |mut receiver| async {
            Some((receiver.recv().await, receiver))
        });
        changes.push(some.map(move |event| (kind, event)).boxed());
    }
    let mut running = FuturesUnordered::new();
    loop {
        let now = Instant::now();
        while let Some(key) = queue.take(now) {
            let what = what.clone();
            running.push(async move {
                let again = what.reconcile(key.clone()).await;
                (key, again)
            });
        }
        let due = queue.next_due();
        tokio::select! {
            biased;
            Some((key, again)) = running.next(), if !running.is_empty() => {
                let again = again.unwrap_or(Some(RETRY_AFTER));
                queue.done(&key, again.map(|d| Instant::now() + pace.real(d)));
            }
            Some((kind, event)) = changes.next() => {
                let Some(event) = event else { return };
                let at = Instant::now() + pace.real(what.gather());
                queue.add(what.keys(kind, &event), at);
            }
            () = sleep_until(due) => {}
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Keys by the time they are due; a key that is being worked on waits.
#[derive(Default)]
struct Queue {
    due: BTreeSet<(Instant, Key)>,
    at: std::collections::HashMap<Key, Instant>,
    running: HashSet<Key>,
    dirty: HashSet<Key>,
}

impl Queue {
    fn add(&mut self, keys: Vec<Key>, at: Instant) {
        for key in keys {
            if self.running.contains(&key) {
                self.dirty.insert(key);
            } else {
                self.schedule(key, at);
            }
        }
    }

    /// The earlier of two times counts.
    fn schedule(&mut self, key: Key, at: Instant) {
        match self.at.get(&key) {
            Some(before) if *before <= at => return,
            Some(before) => drop(self.due.remove(&(*before, key.clone()))),
            None => {}
        }
        self.at.insert(key.clone(), at);
        self.due.insert((at, key));
    }

    fn take(&mut self, now: Instant) -> Option<Key> {
        let first = self.due.first().filter(|(at, _)| *at <= now)?.clone();
        self.due.remove(&first);
        self.at.remove(&first.1);
        self.running.insert(first.1.clone());
        Some(first.1)
    }

    fn done(&mut self, key: &Key, again: Option<Instant>) {
        self.running.remove(key);
        if self.dirty.remove(key) {
            self.schedule(key.clone(), Instant::now());
        } else if let Some(at) = again {
            self.schedule(key.clone(), at);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
}
