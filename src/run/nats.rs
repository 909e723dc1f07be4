//! Roles on a NATS store: the ports of each, and the connection to the server.

use super::roles::{CONSOLE, ENGINE, Running};
use crate::config::{Config, NatsSettings, Role};
use dormer_api::{Api, live::Live, publish_for_ever};
use dormer_engine::{
    any::AnyPorts,
    engine,
    nats::{self as store, NatsChanges, NatsStore, retire_old_inbox_for_ever},
};
use dormer_nats::{Login, Tls};
use dormer_workers::nats::{self as link, NatsLink, Sign};
use futures::StreamExt;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// Time limit for the first connection to NATS.
const CONNECT_FOR: Duration = Duration::from_secs(30);
/// Pause between two tries.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Opens the engine's side of the store.
///
/// # Errors
/// What to change on the server, or in the settings.
pub async fn open(config: &Config, servers: &str) -> anyhow::Result<Arc<NatsStore>> {
    let options = store_options(config, servers);
    let passing = |error: &store::OpenError| {
        let passes = |error| matches!(error, &store::OpenError::Connect { lasting: false, .. });
        passes(error) || *error == store::OpenError::NoStore
    };
    let opened = patiently(async || NatsStore::open(&options).await, passing).await;
    Ok(Arc::new(opened?))
}

/// Options of the store: connection and required durability.
pub fn store_options(config: &Config, servers: &str) -> store::Options {
    let nats = &config.nats;
    let lazy = nats.accept_lazy_sync.unwrap_or(false);
    store::Options {
        servers: servers.to_owned(),
        prefix: nats.prefix.clone(),
        replicas: nats.replicas,
        sync: if lazy {
            store::Sync::LazyAccepted
        } else {
            store::Sync::Always
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
    Ok(patiently(
        async || NatsLink::connect(&options).await,
        |error| !error.lasting,
    )
    .await?)
}

/// Retries for [`CONNECT_FOR`]: in a cluster, NATS and dormer often start together.
async fn patiently<T, E: std::fmt::Display>(
    open: impl AsyncFn() -> Result<T, E>,
    passing: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let until = Instant::now() + CONNECT_FOR;
    loop {
        match open().await {
            Err(error) if passing(&error) && Instant::now() < until => {
                tracing::warn!(%error, "NATS does not answer yet");
                sleep(CONNECT_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Adds an engine on NATS, and the task that rebuilds lost queues.
pub fn engine(running: &mut Running, store: &Arc<NatsStore>, options: engine::Options) {
    running.engine(AnyPorts::nats(Arc::clone(store)), options);
    let rebuilt = Arc::clone(store);
    running.supervised(ENGINE, "rebuilding lost queues", move || {
        let store = Arc::clone(&rebuilt);
        async move { Ok(dormer_loop::rebuild_for_ever(store).await?) }
    });
    let emptied = Arc::clone(store);
    running.supervised(ENGINE, "retiring the old inbox", move || {
        let store = Arc::clone(&emptied);
        async move { match retire_old_inbox_for_ever(store).await {} }
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
                Sign::Beat(beat) => live.beat(beat),
                Sign::Ran(command) => live.ran(command),
            }
        }
        Err(anyhow::anyhow!("the connection to NATS has ended"))
    });
    Ok(())
}

/// Publishes every change to the stream of changes, with or without listeners.
pub fn publish_changes(running: &mut Running, api: Arc<Api>, changes: NatsChanges) {
    running.supervised(CONSOLE, "publishing changes", move || {
        let (api, changes) = (Arc::clone(&api), changes.clone());
        async move { match publish_for_ever(api, changes).await {} }
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

    #[tokio::test(start_paused = true)]
    async fn a_server_that_starts_is_waited_for_and_a_refused_login_ends_the_start() {
        for (lasting, most) in [(false, 31), (true, 1)] {
            let tries = AtomicU32::new(0);
            let open = async || {
                tries.fetch_add(1, Ordering::Relaxed);
                Err::<(), _>(if lasting {
                    "authorization violation"
                } else {
                    "timed out"
                })
            };
            let result = patiently(open, |_| !lasting).await;
            assert!(result.is_err());
            assert_eq!(tries.load(Ordering::Relaxed), most, "lasting: {lasting}");
        }
    }
}
