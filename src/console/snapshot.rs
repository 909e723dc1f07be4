//! Snapshot of the store, shared by all open pages: one poll serves every browser.

use super::item::ItemCache;
use dormer_api::{Api, SharedRun, live::Live, views};
use dormer_proto::{
    id::{RunId, Timestamp},
    lock::Locked as _,
};
use dormer_views::machine::Machine;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::watch::{self, Receiver, Sender},
    time::Instant,
};

/// Poll interval while a page is open.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// Interval at which pages are sent again without a change: progress and ages change with time alone, and the message
/// shows the browser that the connection works.
const TICK_EVERY: Duration = Duration::from_secs(4);

/// State of everything at one moment.
#[derive(Clone)]
pub(super) struct Snapshot {
    /// Number that grows with each published snapshot.
    pub(super) number: u64,
    /// Number that grows every [`TICK_EVERY`].
    pub(super) tick: u64,
    /// Every run, ordered by id.
    pub(super) runs: Arc<Vec<SharedRun>>,
    /// Dead letters.
    pub(super) dead: usize,
    /// Time by the engine's clock.
    pub(super) now: Timestamp,
    /// Error of the last poll. The other fields are then from the poll before.
    pub(super) trouble: Option<String>,
}

impl Snapshot {
    /// Reads the store now.
    pub(super) async fn at(api: &Api) -> Result<Self, dormer_api::ApiError> {
        let (runs, dead, now) = api.snapshot().await?;
        Ok(Self {
            number: 0,
            tick: 0,
            runs: Arc::new(runs),
            dead,
            now,
            trouble: None,
        })
    }

    /// Total number of records. It grows with each record, so it orders pages by age.
    pub(super) fn records(&self) -> u64 {
        self.runs.iter().map(|run| run.seq.0).sum()
    }

    /// Views of the machines whose runs are open.
    pub(super) fn machines(&self, live: &Live) -> Vec<Machine> {
        let open = self.runs.iter().filter(|run| run.closed.is_none());
        open.filter_map(|run| views::machine(run, live, self.now))
            .collect()
    }

    pub(super) fn run(&self, id: &RunId) -> Option<&SharedRun> {
        let at = self.runs.binary_search_by(|run| run.id.cmp(id)).ok()?;
        self.runs.get(at)
    }

    fn same(&self, other: &Self) -> bool {
        let ours = &self.runs;
        let theirs = &other.runs;
        let alike = |(one, two): (&SharedRun, &SharedRun)| one.sum == two.sum && one.id == two.id;
        self.dead == other.dead
            && self.trouble == other.trouble
            && ours.len() == theirs.len()
            && ours.iter().zip(theirs.iter()).all(alike)
    }
}

/// One poller and its followers. The poller ends when no page is open.
#[derive(Default)]
pub(super) struct SnapshotFeed {
    /// Lock held for a comparison, never across an await.
    sender_slot: Mutex<Weak<Sender<Option<Snapshot>>>>,
    /// Number and tick of the snapshot that was published last, by any poller.
    number: AtomicU64,
    tick: AtomicU64,
    /// Rows of the fleet's page.
    pub(super) items: ItemCache,
}

impl SnapshotFeed {
    /// Adds a follower. The first snapshot may not exist yet.
    pub(super) fn follow(self: &Arc<Self>, api: &Arc<Api>) -> Receiver<Option<Snapshot>> {
        let mut sender_slot = self.sender_slot.locked();
        if let Some(sender) = sender_slot.upgrade() {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(None);
        let sender = Arc::new(sender);
        *sender_slot = Arc::downgrade(&sender);
        tokio::spawn(run_reader(Arc::clone(self), Arc::clone(api), sender));
        receiver
    }

    /// Number and tick of the next snapshot; `due` begins a tick. Pages are kept by them, so a poller does not repeat those of
    /// an earlier one: a browser would get a page from before.
    fn numbered(&self, due: bool) -> (u64, u64) {
        let advanced = |counter: &AtomicU64, step: u64| {
            let before = counter.fetch_add(step, Ordering::Relaxed);
            before + step
        };
        (
            advanced(&self.number, 1),
            advanced(&self.tick, u64::from(due)),
        )
    }

    /// Number of followers.
    pub(super) fn followers(&self) -> usize {
        let sender_slot = self.sender_slot.locked();
        sender_slot
            .upgrade()
            .map_or(0, |sender| sender.receiver_count())
    }

    /// Ends the poller if it has no follower, and drops the rows. The lock is the one under which followers join.
    fn close_if_unused(&self, sender: &Sender<Option<Snapshot>>) -> bool {
        let mut sender_slot = self.sender_slot.locked();
        let nobody = sender.receiver_count() == 0;
        if nobody {
            *sender_slot = Weak::new();
        }
        drop(sender_slot);
        if nobody {
            self.items.clear();
        }
        nobody
    }
}

async fn run_reader(
    snapshots: Arc<SnapshotFeed>,
    api: Arc<Api>,
    sender: Arc<Sender<Option<Snapshot>>>,
) {
    let mut last: Option<Snapshot> = None;
    let mut ticked = Instant::now();
    while !snapshots.close_if_unused(&sender) {
        if let Some(mut snapshot) = next(&api, last.as_ref()).await {
            let due = last.is_none() || ticked.elapsed() >= TICK_EVERY;
            if due || last.as_ref().is_none_or(|before| !before.same(&snapshot)) {
                (snapshot.number, snapshot.tick) = snapshots.numbered(due);
                if due {
                    ticked = Instant::now();
                }
                sender.send_replace(Some(snapshot.clone()));
                last = Some(snapshot);
            }
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Next snapshot. If the store does not answer: the last one with the error.
async fn next(api: &Api, last: Option<&Snapshot>) -> Option<Snapshot> {
    match Snapshot::at(api).await {
        Ok(snapshot) => Some(snapshot),
        Err(error) => {
            let trouble = Some(error.what_and_remedy().0.to_owned());
            let nothing = || Snapshot {
                number: 0,
                tick: 0,
                runs: Arc::default(),
                dead: 0,
                now: Timestamp(0),
                trouble: None,
            };
            Some(Snapshot {
                trouble,
                ..last.cloned().unwrap_or_else(nothing)
            })
        }
    }
}

/// Cache of pages rendered from one snapshot.
pub(super) struct PageCache<K> {
    pages: HashMap<K, (u64, bytes::Bytes)>,
}

impl<K> Default for PageCache<K> {
    fn default() -> Self {
        Self {
            pages: HashMap::new(),
        }
    }
}

/// Most pages in the cache.
const PAGES_MAX: usize = 64;

impl<K: std::hash::Hash + Eq + Clone> PageCache<K> {
    /// Page rendered at this mark.
    pub(super) fn at(&self, page: &K, mark: u64) -> Option<bytes::Bytes> {
        self.pages
            .get(page)
            .filter(|drawn| drawn.0 == mark)
            .map(|drawn| drawn.1.clone())
    }

    /// Stores a rendered page.
    pub(super) fn keep(&mut self, page: &K, mark: u64, drawn: bytes::Bytes) {
        if self.pages.len() >= PAGES_MAX && !self.pages.contains_key(page) {
            self.pages.clear();
        }
        self.pages.insert(page.clone(), (mark, drawn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_go_with_the_last_page() {
        let feed = SnapshotFeed::default();
        let live = Live::default();
        let rows = Arc::downgrade(&feed.items.items(1, &[], Timestamp(0), &live));
        let (sender, page) = watch::channel(None);
        assert!(!feed.close_if_unused(&sender) && rows.upgrade().is_some());
        drop(page);
        assert!(feed.close_if_unused(&sender) && rows.upgrade().is_none());
    }

    #[test]
    fn a_poller_repeats_neither_number_nor_tick_of_an_earlier_one() {
        let feed = SnapshotFeed::default();
        let earlier = [feed.numbered(true), feed.numbered(false)];
        assert_eq!(earlier, [(1, 1), (2, 1)]);
        assert_eq!(feed.numbered(true), (3, 2), "the next poller's first");
    }
}
