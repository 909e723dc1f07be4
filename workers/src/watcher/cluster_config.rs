//! Cluster settings as the watcher follows them. The catalog turns them into versions, and an Event names each setting
//! that is not understood.

use super::settings::write_event;
use crate::{kubernetes::ClusterConfigReader, pool::Installed};
use kube::{Client, api::ObjectMeta};

/// Reader of the settings, and the sentences reported so far.
pub(super) struct ClusterConfigFollower {
    cluster_config: ClusterConfigReader,
    client: Client,
    pool: ObjectMeta,
    warnings: Vec<String>,
}

impl ClusterConfigFollower {
    pub(super) fn new(client: Client, pool: &str, namespace: &str) -> Self {
        let pool = ObjectMeta {
            name: Some(pool.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        Self {
            cluster_config: ClusterConfigReader::new(client.clone(), namespace),
            client,
            pool,
            warnings: Vec::new(),
        }
    }

    /// Reads again. Reports every new sentence in the log and by an Event about the pool's settings.
    pub(super) async fn refresh(&mut self, installed: &impl Installed) {
        let warnings = installed.read_cluster(self.cluster_config.read().await);
        for new in warnings.iter().filter(|one| !self.warnings.contains(one)) {
            tracing::warn!("the cluster's settings for nodes: {new}");
            write_event(
                &self.client,
                &self.pool,
                None,
                "BadClusterSetting",
                format!("{new}."),
            )
            .await;
        }
        self.warnings = warnings;
    }
}
