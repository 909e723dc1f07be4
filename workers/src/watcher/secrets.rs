//! Changes of Secrets that another part of dormer reads by its own rights: it waits for them here between two readings.

use super::{
    noticed::{BURST, Due, Noticed, REST, follow},
    status::SourceState,
};
use crate::kubernetes::Watched;
use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, api::ApiResource};
use std::time::Duration;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// Changes of Secrets, noticed by watches of their metadata. The watches advance only during [`Self::wait`]; a change between
/// two calls is noticed by the second.
pub struct SecretChanges {
    noticed: watch::Receiver<Noticed>,
    /// The watches. They do not end.
    watches: BoxFuture<'static, ()>,
    /// Number of changes that a reading follows already.
    followed: u64,
    /// Whether every watch has begun, and a reading followed that.
    begun: bool,
}

impl SecretChanges {
    /// Changes of the Secrets with these namespaces and names.
    #[must_use]
    pub fn of(client: &Client, secrets: &[(&str, &str)]) -> Self {
        let kind = ApiResource::erase::<Secret>(&());
        let watched = secrets.iter().map(|&(namespace, name)| {
            let all = Watched::new(client, &kind, Some(namespace));
            all.named(name)
        });
        let watched: Vec<Watched> = watched.collect();
        let (to, noticed) = watch::channel(Noticed::before(watched.iter()));
        let of = Due {
            settings: true,
            changes: false,
        };
        let watches = watched
            .into_iter()
            .map(|watched| follow(watched, of, to.clone()));
        let watches = join_all(watches).map(drop).boxed();
        Self::noticing(noticed, watches)
    }

    fn noticing(noticed: watch::Receiver<Noticed>, watches: BoxFuture<'static, ()>) -> Self {
        Self {
            noticed,
            watches,
            followed: 0,
            begun: false,
        }
    }

    /// Waits until the Secrets have to be read again: soon after a change, and without one after `seldom`. While a Secret
    /// cannot be watched, that is after `often`.
    pub async fn wait(&mut self, often: Duration, seldom: Duration) {
        let since = Instant::now();
        loop {
            let (changes, watched) = {
                let noticed = self.noticed.borrow_and_update();
                let watched = noticed.state() == Some(SourceState::Watched);
                (noticed.settings, watched)
            };
            // No watch tells what was deleted before it began.
            let first = watched && !self.begun;
            self.begun = watched;
            if first || changes != self.followed {
                break;
            }
            let longest = if watched { seldom } else { often };
            tokio::select! {
                () = &mut self.watches => {}
                Ok(()) = self.noticed.changed() => {}
                () = sleep_until(since + longest) => return,
            }
        }
        // Further changes are read together with this one.
        tokio::select! {
            () = &mut self.watches => {}
            () = sleep_until((Instant::now() + BURST).max(since + REST)) => {}
        }
        self.followed = self.noticed.borrow_and_update().settings;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFTEN: Duration = Duration::from_secs(15);
    const SELDOM: Duration = Duration::from_secs(300);

    async fn waited(changes: &mut SecretChanges) -> u64 {
        let since = Instant::now();
        changes.wait(OFTEN, SELDOM).await;
        since.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_read_soon_and_without_one_readings_are_rare_while_all_is_watched() {
        let (to, noticed) = watch::channel(Noticed::unwatched("no right"));
        let watches = std::future::pending().boxed();
        let mut changes = SecretChanges::noticing(noticed, watches);
        assert_eq!(waited(&mut changes).await, 15, "not watched");
        to.send_modify(|noticed| *noticed = Noticed::default());
        assert_eq!(waited(&mut changes).await, 1, "the watches have begun");
        assert_eq!(waited(&mut changes).await, 300, "nothing changes");
        for number in [1, 2] {
            to.send_modify(|noticed| noticed.settings = number);
        }
        assert_eq!(waited(&mut changes).await, 1, "two changes");
        assert_eq!(waited(&mut changes).await, 300, "they were read together");
    }
}
