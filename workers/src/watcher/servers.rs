//! Versions of the API servers: a kubelet must not be newer than the oldest of them.

use crate::{kubernetes::OLDEST_MINOR, pool::ApiServers};
use kube::Client;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// Reads of `/version` in one check: one address may have several servers behind it.
const READS: usize = 3;
/// How long one read may take.
const READ_MAX: Duration = Duration::from_secs(10);
/// For how long a version that was seen counts: an upgrade of the control plane moves from server to server.
const VERSION_VALID_FOR: Duration = Duration::from_secs(600);

/// Minor versions that answered lately.
#[derive(Debug, Default)]
pub(super) struct Servers {
    answered: BTreeMap<u32, Instant>,
}

impl Servers {
    /// The oldest and the newest; `None`: none has answered yet.
    pub(super) fn api_servers(&self) -> Option<ApiServers> {
        let oldest = self.answered.keys().next()?;
        let newest = self.answered.keys().next_back()?;
        Some(ApiServers {
            oldest: *oldest,
            newest: *newest,
        })
    }

    /// Reads the versions; `true`: something differs from before. What cannot be read changes nothing.
    pub(super) async fn refresh(&mut self, client: &Client) -> bool {
        let before = self.api_servers();
        for _ in 0..READS {
            match tokio::time::timeout(READ_MAX, client.apiserver_version()).await {
                Ok(Ok(info)) => self.observe(minor(&info.minor), Instant::now()),
                Ok(Err(error)) => tracing::warn!("the API server's version is unknown: {error}"),
                Err(_) => tracing::warn!("the API server's version is unknown: no answer in time"),
            }
        }
        let answering = self.api_servers();
        if answering != before && answering.is_some_and(|it| it.oldest < OLDEST_MINOR) {
            let oldest = answering.map(|it| it.oldest);
            tracing::warn!(
                oldest,
                "this Kubernetes is older than 1.{OLDEST_MINOR}, with which dormer is tested"
            );
        }
        answering != before
    }

    fn observe(&mut self, minor: Option<u32>, now: Instant) {
        if let Some(minor) = minor {
            self.answered.insert(minor, now);
            self.answered
                .retain(|_, at| now.duration_since(*at) < VERSION_VALID_FOR);
        }
    }
}

/// `33`, as some clouds write it `33+`.
fn minor(text: &str) -> Option<u32> {
    text.trim_end_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_and_the_newest_count_for_a_while() {
        let mut servers = Servers::default();
        let start = Instant::now();
        assert_eq!(servers.api_servers(), None);
        servers.observe(minor("33+"), start);
        servers.observe(minor("34"), start + VERSION_VALID_FOR / 2);
        servers.observe(minor("nonsense"), start);
        assert_eq!(
            servers.api_servers(),
            Some(ApiServers {
                oldest: 33,
                newest: 34
            })
        );
        servers.observe(minor("34"), start + VERSION_VALID_FOR);
        assert_eq!(
            servers.api_servers(),
            Some(ApiServers {
                oldest: 34,
                newest: 34
            })
        );
    }
}
