//! The hands of this process' worker, made from its settings.

use super::key::{Keyed, LOOK_EVERY, Source};
use crate::config::Config;
use dormer_workers::{
    catalog::Catalog,
    execute::Hands,
    host::HostHands,
    kubernetes::{KubernetesHands, Settings},
    ssh::{Dialer, Limits, TcpDial},
};
use std::sync::Arc;

/// Both pairs of hands.
pub(crate) type Both = Hands<Keyed<HostHands<KubernetesHands>>, KubernetesHands>;

/// The hands for the Kubernetes API.
pub(crate) fn kubernetes(config: &Config, client: &kube::Client) -> KubernetesHands {
    let settings = Settings {
        namespace: config.namespace.clone(),
        ..config.join.clone()
    };
    KubernetesHands::new(client.clone(), settings)
}

/// Where the key for hosts is.
pub(crate) fn source(config: &Config, client: &kube::Client) -> Source {
    Source {
        client: client.clone(),
        namespace: config.namespace.clone(),
        place: config.key.clone(),
        look_every: LOOK_EVERY,
    }
}

/// Both pairs of hands for the cluster behind `client`. A key that is not there yet is waited for.
pub(crate) async fn both(config: &Config, client: &kube::Client, catalog: &Catalog) -> Both {
    let source = source(config, client);
    let kubernetes = kubernetes(config, client);
    let cluster = Arc::new(kubernetes.clone());
    let catalog = catalog.clone();
    let dialer: Dialer = Arc::new(TcpDial {
        port: config.ssh_port,
    });
    let host = Keyed::follow(source, config.slots, move |key| {
        let dialer = Arc::clone(&dialer);
        let cluster = Arc::clone(&cluster);
        HostHands::new(dialer, key, Limits::default(), catalog.clone(), cluster)
    });
    Hands {
        host: host.await,
        kubernetes,
    }
}
