//! Roles on a NATS store: the ports of each, and the connection to the server.

use super::roles::{CONSOLE, ENGINE, Running, WORKER};
use crate::config::{Config, NatsSettings, Role};
use dormer_api::{Api, live::Live, run_publisher};
use dormer_engine::{
    any::AnyPorts,
    engine,
    nats::{self as store, NatsChanges, NatsStore, run_old_inbox_retirement},
};
use dormer_nats::{Login, Tls};
use dormer_proto::message::{Failure, NodeSettings};
use dormer_telemetry::health::{Health, RoleStatus};
use dormer_workers::{
    catalog::Catalog,
    host::cluster::Cluster,
    kubernetes::KubernetesExecutor,
    nats::{self as link, NatsLink, NatsOrders, WorkerEvent},
};
use futures::StreamExt;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// Time limit for the first connection to NATS.
const CONNECT_FOR: Duration = Duration::from_secs(30);
/// How often a worker publishes settings for nodes.
const PUBLISH_EVERY: Duration = Duration::from_secs(30);
/// Pause between two tries.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Opens the engine's side of the store.
///
/// # Errors
/// What to change on the server, or in the settings.
pub async fn open(config: &Config, servers: &str) -> anyhow::Result<Arc<NatsStore>> {
    opened(config, servers, ConnectFailure::Passing, || ()).await
}

/// Opens the engine's side of the store for a role that runs on. A console waits for an engine to make it, however long
/// that takes, and says so in `health`.
///
/// # Errors
/// As [`open`].
pub async fn open_for_role(
    config: &Config,
    servers: &str,
    health: &Health,
) -> anyhow::Result<Arc<NatsStore>> {
    let waits = || health.set(CONSOLE, RoleStatus::Waiting(NO_STORE.into()));
    opened(config, servers, ConnectFailure::NoStore, waits).await
}

/// Opens the store; without one, as `no_store` says.
async fn opened(
    config: &Config,
    servers: &str,
    no_store: ConnectFailure,
    waits: impl Fn(),
) -> anyhow::Result<Arc<NatsStore>> {
    let options = store_options(config, servers);
    let kind = |error: &store::OpenError| match error {
        store::OpenError::NoStore => no_store,
        store::OpenError::Connect { lasting: false, .. } => ConnectFailure::Passing,
        _ => ConnectFailure::Lasting,
    };
    let opened = patiently(async || NatsStore::open(&options).await, kind, waits).await;
    Ok(Arc::new(opened?))
}

/// What a console waits for that starts before any engine.
const NO_STORE: &str = "no engine has made the store yet: start `dormer run --role engine` with the same --store and \
     --nats-prefix; this console then continues by itself";

/// Options of the store: connection and required durability.
pub fn store_options(config: &Config, servers: &str) -> store::Options {
    let nats = &config.nats;
    let lazy = nats.accept_lazy_sync.unwrap_or(false);
    store::Options {
        servers: servers.to_owned(),
        prefix: nats.prefix.clone(),
        replicas: nats.replicas,
        durability: if lazy {
            store::Durability::LazyAccepted
        } else {
            store::Durability::PowerLossSafe
        },
        monitor: nats.monitor.clone(),
        login: login(nats),
        tls: tls(nats, servers),
        origin: if config.is(Role::Engine) {
            store::Origin::Engine
        } else {
            store::Origin::Console
        },
        keys: config.keys.clone(),
        history_keys: config.history_keys.clone(),
    }
}

/// Opens the workers' and the watcher's side of the store.
///
/// # Errors
/// No server answers, or it refuses the login.
pub async fn connect(config: &Config, servers: &str) -> anyhow::Result<Arc<NatsLink>> {
    let nats = &config.nats;
    let options = link::Options {
        servers: servers.to_owned(),
        prefix: nats.prefix.clone(),
        login: login(nats),
        tls: tls(nats, servers),
        keys: config.keys.clone(),
    };
    let kind = |error: &dormer_nats::ConnectError| match error.lasting {
        true => ConnectFailure::Lasting,
        false => ConnectFailure::Passing,
    };
    Ok(patiently(async || NatsLink::connect(&options).await, kind, || ()).await?)
}

/// Kind of a failure at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectFailure {
    /// Another try would fail in the same way.
    Lasting,
    /// The server does not answer yet.
    Passing,
    /// The server answers, and no engine has made the store yet.
    NoStore,
}

/// Retries for [`CONNECT_FOR`]: in a cluster, NATS and dormer often start together. For a store that no engine has made
/// it waits without a limit, and calls `waits`: an engine may be installed an hour later.
async fn patiently<T, E: std::fmt::Display>(
    open: impl AsyncFn() -> Result<T, E>,
    kind: impl Fn(&E) -> ConnectFailure,
    waits: impl Fn(),
) -> Result<T, E> {
    let mut until = Instant::now() + CONNECT_FOR;
    loop {
        match open().await {
            Err(error) => match kind(&error) {
                ConnectFailure::NoStore => {
                    waits();
                    until = Instant::now() + CONNECT_FOR;
                }
                ConnectFailure::Passing if Instant::now() < until => {
                    tracing::warn!(%error, "NATS does not answer yet");
                }
                ConnectFailure::Passing | ConnectFailure::Lasting => return Err(error),
            },
            opened => return opened,
        }
        sleep(CONNECT_PAUSE).await;
    }
}

/// Adds an engine on NATS, and the task that rebuilds lost queues.
pub fn engine(running: &mut Running, store: &Arc<NatsStore>, options: engine::Options) {
    running.engine(AnyPorts::nats(Arc::clone(store)), options);
    let rebuilt = Arc::clone(store);
    running.supervised(ENGINE, "rebuilding lost queues", move || {
        let store = Arc::clone(&rebuilt);
        async move { Ok(dormer_loop::run_rebuild(store).await?) }
    });
    let emptied = Arc::clone(store);
    running.supervised(ENGINE, "retiring the old inbox", move || {
        let store = Arc::clone(&emptied);
        async move { match run_old_inbox_retirement(store).await {} }
    });
}

/// Collects every worker's heartbeats in this process.
pub async fn listen(
    running: &mut Running,
    link: &Arc<NatsLink>,
    live: Arc<Live>,
) -> anyhow::Result<()> {
    let beats = link.heartbeats().await?;
    running.beside(CONSOLE, async move {
        let mut beats = std::pin::pin!(beats);
        while let Some(beat) = beats.next().await {
            match beat {
                WorkerEvent::Heartbeat(beat) => live.beat(beat),
                WorkerEvent::Ran(command) => live.ran(command),
                WorkerEvent::Settings(settings) => live.set_settings(settings),
            }
        }
        Err(anyhow::anyhow!("the connection to NATS has ended"))
    });
    Ok(())
}

/// Publishes how nodes are rendered, without secrets. Consoles may not read that from the cluster.
pub fn publish_settings(
    running: &mut Running,
    orders: Arc<NatsOrders>,
    cluster: KubernetesExecutor,
    catalog: Arc<Catalog>,
) {
    running.beside(WORKER, async move {
        let mut again = tokio::time::interval(PUBLISH_EVERY);
        let mut said = String::new();
        loop {
            again.tick().await;
            let published = match read_settings(&cluster, &catalog).await {
                Ok(settings) => orders.publish_settings(&settings).await,
                Err(failure) => {
                    if said != failure.message {
                        tracing::warn!(
                            "settings for nodes are not published, so consoles make no plans: {}",
                            failure.message
                        );
                        said = failure.message;
                    }
                    continue;
                }
            };
            if let Err(error) = published {
                tracing::warn!(%error, "settings for nodes are not published, so consoles make no plans");
            }
        }
    });
}

/// Reads the values for rendering nodes, without secrets.
async fn read_settings(
    cluster: &KubernetesExecutor,
    catalog: &Catalog,
) -> Result<NodeSettings, Failure> {
    let bootstrap = cluster.bootstrap().await?;
    for warning in catalog.read_cluster(cluster.read_cluster().await) {
        tracing::debug!("of the cluster around: {warning}");
    }
    Ok(NodeSettings {
        api_url: bootstrap.api_url,
        cluster_dns: bootstrap.cluster_dns,
        cluster_domain: bootstrap.cluster_domain,
        service_cidr: bootstrap.service_cidr,
        exporter: bootstrap.exporter_tls.is_some(),
        cluster: catalog.cluster_config().published(),
    })
}

/// Publishes every change to the stream of changes, with or without listeners.
pub fn publish_changes(running: &mut Running, api: Arc<Api>, changes: NatsChanges) {
    running.supervised(CONSOLE, "publishing changes", move || {
        let api = Arc::clone(&api);
        let changes = changes.clone();
        async move { match run_publisher(api, changes).await {} }
    });
}

/// Whether this process needs the store: as engine or console.
pub fn needs_store(config: &Config) -> bool {
    config.is(Role::Engine) || config.is(Role::Console)
}

fn login(nats: &NatsSettings) -> Login {
    match (&nats.user, &nats.password, &nats.token) {
        (Some(user), Some(password), _) => Login::User {
            user: user.clone(),
            password: password.reveal().to_owned(),
        },
        (_, _, Some(token)) => Login::Token(token.reveal().to_owned()),
        #[cfg(feature = "nats-creds")]
        _ if nats.credentials.is_some() => {
            Login::CredentialsFile(nats.credentials.clone().unwrap_or_default())
        }
        _ => Login::Open,
    }
}

fn tls(nats: &NatsSettings, servers: &str) -> Tls {
    Tls {
        ca: nats.ca.clone(),
        identity: nats.certificate.clone().zip(nats.key.clone()),
        // An administrator who names a CA expects TLS.
        required: servers.contains("tls://") || nats.ca.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Number of tries until `patiently` gives up, of a server that fails so `times` times and then lastingly.
    async fn tries(trouble: ConnectFailure, times: u32) -> (u32, u32) {
        let tries = AtomicU32::new(0);
        let waited = AtomicU32::new(0);
        let open = async || {
            let failed = match tries.fetch_add(1, Ordering::Relaxed) < times {
                true => trouble,
                false => ConnectFailure::Lasting,
            };
            Err::<(), _>(format!("{failed:?}"))
        };
        let kind = |error: &String| match error.as_str() {
            "NoStore" => ConnectFailure::NoStore,
            "Passing" => ConnectFailure::Passing,
            _ => ConnectFailure::Lasting,
        };
        let waits = || {
            waited.fetch_add(1, Ordering::Relaxed);
        };
        assert!(patiently(open, kind, waits).await.is_err());
        (tries.into_inner(), waited.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_starts_is_waited_for_and_a_refused_login_ends_the_start() {
        assert_eq!(tries(ConnectFailure::Passing, 1_000).await, (31, 0));
        assert_eq!(tries(ConnectFailure::Lasting, 1_000).await, (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_console_that_starts_before_any_engine_waits_for_it_without_a_limit() {
        assert_eq!(tries(ConnectFailure::NoStore, 5_000).await, (5_001, 5_000));
    }
}
