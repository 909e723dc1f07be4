//! Values for rendering nodes, as a worker published them last.

use dormer_proto::{lock::Locked as _, message::NodeSettings};
use std::{sync::Mutex, time::Duration};
use tokio::time::Instant;

/// Time for which they are used. Workers publish them several times within it.
const USED_FOR: Duration = Duration::from_secs(300);

/// The latest values, and when they came.
#[derive(Debug, Default)]
pub(super) struct LatestSettings(Mutex<Option<(NodeSettings, Instant)>>);

impl LatestSettings {
    pub(super) fn put(&self, settings: NodeSettings) {
        *self.0.locked() = Some((settings, Instant::now()));
    }

    /// `None`: there are none, or only outdated ones.
    pub(super) fn get(&self) -> Option<NodeSettings> {
        let latest = self.0.locked();
        let (settings, at) = latest.as_ref()?;
        (at.elapsed() < USED_FOR).then(|| settings.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn outdated_settings_are_not_used() {
        let latest = LatestSettings::default();
        assert_eq!(latest.get(), None);
        let settings = NodeSettings {
            api_url: "https://api.example".into(),
            cluster_dns: "10.96.0.10".into(),
            cluster_domain: "cluster.local".into(),
            service_cidr: "10.96.0.0/16".into(),
            exporter: false,
            cluster: "{}".into(),
        };
        latest.put(settings.clone());
        assert_eq!(latest.get(), Some(settings));
        tokio::time::advance(USED_FOR).await;
        assert_eq!(latest.get(), None);
    }
}
