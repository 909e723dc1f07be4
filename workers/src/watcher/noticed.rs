//! Changes of the cluster's settings and of what else changes the cluster, as watches notice them. A change makes the reader
//! ask again, soon and once for several. Without a change it asks rarely; often, while something may not be watched.

use super::{
    cluster::{SILENCE_GRACE, WATCH_AGAIN, WATCH_SECONDS, advance, sentence},
    status::SourceState,
};
use crate::kubernetes::Watched;
use futures::TryStreamExt;
use kube::api::{WatchEvent, WatchParams};
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

/// Where a watch begins: with the objects that there are.
const FIRST: &str = "0";
/// After how long a kind that the cluster does not know is asked for again.
const ABSENT_AGAIN: Duration = Duration::from_secs(300);
/// After how long a watch that is forbidden or failed is begun again.
const FAILED_AGAIN: Duration = Duration::from_secs(30);
/// Wait after a change for further ones, so that they are read together.
pub(super) const BURST: Duration = Duration::from_millis(250);
/// Shortest time between two readings, however often something changes.
pub(super) const REST: Duration = Duration::from_secs(1);
/// Rounds of repeats between two readings without a change.
const REPEATS_PER_READING: u32 = 5;
/// Readings in one round of repeats, while something is not watched.
const UNWATCHED_PER_REPEAT: u32 = 6;

/// What has to be read again after a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// The cluster's settings for nodes.
    pub(super) settings: bool,
    /// What else changes the cluster.
    pub(super) changes: bool,
}

/// What the watches noticed.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    /// Numbers of changes.
    pub(super) settings: u64,
    changes: u64,
    /// Watches that have not begun yet.
    pending: BTreeSet<String>,
    /// What is not watched, and why.
    unwatched: BTreeMap<String, String>,
}

impl Noticed {
    /// Before any of these watches has begun.
    pub(super) fn before<'a>(watches: impl Iterator<Item = &'a Watched>) -> Self {
        Self {
            pending: watches.map(|it| it.what.clone()).collect(),
            ..Self::default()
        }
    }

    /// With one watch that could not begin.
    #[cfg(test)]
    pub(super) fn unwatched(why: &str) -> Self {
        Self {
            unwatched: [("secrets".to_owned(), why.to_owned())].into(),
            ..Self::default()
        }
    }

    /// Whether the settings are watched. `None`: that is not known yet.
    pub(super) fn state(&self) -> Option<SourceState> {
        if let Some(why) = self.unwatched.values().next() {
            return Some(SourceState::Forbidden(why.clone()));
        }
        self.pending.is_empty().then_some(SourceState::Watched)
    }

    /// Notes how one watch fares; `why`: it is none.
    fn is(&mut self, what: &str, why: Option<String>) -> bool {
        let first = self.pending.remove(what);
        let differs = match why {
            Some(why) if self.unwatched.get(what) != Some(&why) => {
                tracing::warn!("changes are noticed late: {why}");
                self.unwatched.insert(what.to_owned(), why);
                true
            }
            Some(_) => false,
            None => self.unwatched.remove(what).is_some(),
        };
        first || differs
    }

    fn count(&mut self, of: Due) {
        self.settings += u64::from(of.settings);
        self.changes += u64::from(of.changes);
    }
}

/// Watches for ever, and counts each change in `to`.
pub(super) async fn follow(watched: Watched, of: Due, to: watch::Sender<Noticed>) {
    let mut from = FIRST.to_owned();
    loop {
        let began = Instant::now();
        let watch = async {
            let there = watched.may_be_there().await?;
            if there {
                one_watch(&watched, of, &mut from, &to).await?;
            }
            Ok(there)
        };
        let again = match watch.await {
            Ok(true) => WATCH_AGAIN,
            Ok(false) => {
                FIRST.clone_into(&mut from);
                to.send_if_modified(|noticed| noticed.is(&watched.what, None));
                ABSENT_AGAIN
            }
            Err(error) => {
                FIRST.clone_into(&mut from);
                let code = match &error {
                    kube::Error::Api(status) => status.code,
                    _ => 0,
                };
                let why = sentence("watch", &watched.what, &error).0;
                let (why, again) = match code {
                    404 => (None, ABSENT_AGAIN),
                    // The API server keeps no history so long: the objects that there are come again, and what was deleted
                    // meanwhile is missed.
                    410 => {
                        to.send_modify(|noticed| noticed.count(of));
                        (None, WATCH_AGAIN)
                    }
                    _ => (Some(why), FAILED_AGAIN),
                };
                to.send_if_modified(|noticed| noticed.is(&watched.what, why));
                again
            }
        };
        sleep_until(began + again).await;
    }
}

/// One watch, until the server ends it or it is silent for too long.
async fn one_watch(
    watched: &Watched,
    of: Due,
    from: &mut String,
    to: &watch::Sender<Noticed>,
) -> Result<(), kube::Error> {
    let mut params = WatchParams::default().timeout(WATCH_SECONDS);
    let name = watched.name.as_ref();
    params.field_selector = name.map(|name| format!("metadata.name={name}"));
    let silence = Duration::from_secs(WATCH_SECONDS.into()) + SILENCE_GRACE;
    let begun = timeout(silence, watched.api.watch_metadata(&params, from));
    let Ok(begun) = begun.await else {
        let why = format!("no answer to a watch of {}", watched.what);
        to.send_if_modified(|noticed| noticed.is(&watched.what, Some(why)));
        return Ok(());
    };
    let mut stream = pin!(begun?);
    to.send_if_modified(|noticed| noticed.is(&watched.what, None));
    while let Ok(next) = timeout(silence, stream.try_next()).await {
        let version = match next {
            // A cut is no refusal: the next watch continues from here, or fails with the reason.
            Ok(None) | Err(kube::Error::ReadEvents(_)) => break,
            Err(error) => return Err(error),
            Ok(Some(WatchEvent::Bookmark(mark))) => {
                advance(from, Some(&mark.metadata.resource_version));
                continue;
            }
            Ok(Some(WatchEvent::Error(status))) => return Err(kube::Error::Api(status)),
            Ok(Some(
                WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object),
            )) => object.metadata.resource_version,
        };
        advance(from, version.as_deref());
        to.send_modify(|noticed| noticed.count(of));
    }
    Ok(())
}

/// When the cluster is read again.
pub(super) struct Rereads {
    noticed: watch::Receiver<Noticed>,
    /// Changes that readings follow already, of settings and of others.
    followed: (u64, u64),
    settings: Turn,
    changes: Turn,
    /// Longest time between two readings: while everything is watched, and else.
    every: (Duration, Duration),
}

/// One kind of reading.
#[derive(Clone, Copy)]
struct Turn {
    last: Instant,
    due: Instant,
}

impl Turn {
    fn read(every: Duration) -> Self {
        let last = Instant::now();
        Self {
            last,
            due: last + every,
        }
    }

    fn soon(&mut self) {
        let earliest = (Instant::now() + BURST).max(self.last + REST);
        self.due = self.due.min(earliest);
    }
}

impl Rereads {
    /// Everything was just read. `repeat`: time of one round of repeats.
    pub(super) fn begin(noticed: watch::Receiver<Noticed>, repeat: Duration) -> Self {
        let every = (repeat * REPEATS_PER_READING, repeat / UNWATCHED_PER_REPEAT);
        Self {
            noticed,
            followed: (0, 0),
            settings: Turn::read(every.0),
            changes: Turn::read(every.0),
            every,
        }
    }

    /// A change that no watch here notices.
    pub(super) fn soon(&mut self, what: Due) {
        if what.settings {
            self.settings.soon();
        }
        if what.changes {
            self.changes.soon();
        }
    }

    /// Waits until something has to be read. Nothing is lost if that is given up.
    pub(super) async fn due(&mut self) -> Due {
        loop {
            let next = self.settings.due.min(self.changes.due);
            tokio::select! {
                Ok(()) = self.noticed.changed() => self.note(),
                () = sleep_until(next) => break,
            }
        }
        let now = Instant::now();
        Due {
            settings: self.settings.due <= now,
            changes: self.changes.due <= now,
        }
    }

    fn note(&mut self) {
        let (now, late) = {
            let noticed = self.noticed.borrow_and_update();
            let now = (noticed.settings, noticed.changes);
            (now, !noticed.unwatched.is_empty())
        };
        self.soon(Due {
            settings: now.0 != self.followed.0,
            changes: now.1 != self.followed.1,
        });
        self.followed = now;
        if late {
            let due = Instant::now() + self.every.1;
            self.settings.due = self.settings.due.min(due);
            self.changes.due = self.changes.due.min(due);
        }
    }

    /// Sets the time of the next read of `what`, which was read now.
    pub(super) fn done(&mut self, what: Due) {
        let late = !self.noticed.borrow().unwatched.is_empty();
        let every = if late { self.every.1 } else { self.every.0 };
        if what.settings {
            self.settings = Turn::read(every);
        }
        if what.changes {
            self.changes = Turn::read(every);
        }
    }

    /// Whether the settings are watched.
    pub(super) fn state(&self) -> Option<SourceState> {
        self.noticed.borrow().state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Due = Due {
        settings: true,
        changes: true,
    };
    const SETTINGS: Due = Due {
        settings: true,
        changes: false,
    };

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_changes_is_one_reading_and_none_is_rare() {
        let (to, noticed) = watch::channel(Noticed::default());
        let mut rereads = Rereads::begin(noticed, Duration::from_secs(60));
        let begun = Instant::now();
        assert_eq!(rereads.due().await, BOTH);
        assert_eq!(begun.elapsed().as_secs(), 300);
        rereads.done(BOTH);
        let begun = Instant::now();
        for _ in 0..9 {
            to.send_modify(|noticed| noticed.count(SETTINGS));
        }
        assert_eq!(rereads.due().await, SETTINGS);
        assert_eq!(begun.elapsed().as_secs(), 1, "not at once after a reading");
        // During the reading there is another one.
        to.send_modify(|noticed| noticed.count(SETTINGS));
        rereads.done(SETTINGS);
        assert_eq!(rereads.due().await, SETTINGS);
        rereads.done(SETTINGS);
        let begun = Instant::now();
        assert_eq!(
            rereads.due().await,
            Due {
                settings: false,
                ..BOTH
            }
        );
        assert!(begun.elapsed().as_secs() > 290, "the other one");
    }

    #[tokio::test(start_paused = true)]
    async fn while_something_is_not_watched_everything_is_read_often() {
        let (to, noticed) = watch::channel(Noticed {
            pending: ["proxies".to_owned()].into(),
            ..Noticed::default()
        });
        let mut rereads = Rereads::begin(noticed, Duration::from_secs(60));
        assert_eq!(rereads.state(), None);
        let why = || Some("dormer may not watch proxies".to_owned());
        to.send_if_modified(|noticed| noticed.is("proxies", why()));
        for _ in 0..2 {
            let begun = Instant::now();
            assert_eq!(rereads.due().await, BOTH);
            assert_eq!(begun.elapsed().as_secs(), 10);
            rereads.done(BOTH);
        }
        assert_eq!(rereads.state(), why().map(SourceState::Forbidden));
        assert!(!to.send_if_modified(|noticed| noticed.is("proxies", why())));
        assert!(to.send_if_modified(|noticed| noticed.is("proxies", None)));
        assert_eq!(rereads.state(), Some(SourceState::Watched));
        assert_eq!(rereads.due().await, BOTH);
        rereads.done(BOTH);
        let begun = Instant::now();
        assert_eq!(rereads.due().await, BOTH);
        assert_eq!(begun.elapsed().as_secs(), 300);
    }
}
