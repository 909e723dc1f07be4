//! The roles on a NATS store: which ports each needs, and how the server is reached.

use super::roles::{CONSOLE, ENGINE, Running};
use crate::{
    config::{Config, NatsSettings, Role},
    live::Live,
};
use dormer_engine::{
    engine,
    nats::{self as store, NatsStore, rebuild_for_ever},
};
use dormer_workers::nats::{self as link, NatsLink};
use dormer_workflows::Dormer;
use futures::StreamExt;
use std::sync::Arc;

/// The engine's side of the store.
///
/// # Errors
/// What to change at the server, or in the settings.
pub(crate) async fn open(config: &Config, servers: &str) -> anyhow::Result<Arc<NatsStore>> {
    let nats = &config.nats;
    let lazy = nats.accept_lazy_sync.unwrap_or(false);
    let options = store::Options {
        servers: servers.to_owned(),
        prefix: nats.prefix.clone(),
        replicas: nats.replicas,
        sync: if lazy { store::Sync::LazyAccepted } else { store::Sync::Always },
        monitor: nats.monitor.clone(),
        login: store_login(nats),
        tls: store::Tls {
            ca: nats.ca.clone(),
            identity: nats.certificate.clone().zip(nats.key.clone()),
            required: servers.contains("tls://"),
        },
    };
    Ok(Arc::new(NatsStore::open(&options).await?))
}

/// The workers' and the watcher's side of the store.
///
/// # Errors
/// No server answers, or it refuses us.
pub(crate) async fn connect(config: &Config, servers: &str) -> anyhow::Result<Arc<NatsLink>> {
    let nats = &config.nats;
    let options = link::Options {
        servers: servers.to_owned(),
        prefix: nats.prefix.clone(),
        login: link_login(nats),
        tls: link::Tls {
            ca: nats.ca.clone(),
            identity: nats.certificate.clone().zip(nats.key.clone()),
            required: servers.contains("tls://"),
        },
    };
    Ok(NatsLink::connect(&options).await?)
}

/// Adds an engine on NATS, with what rebuilds lost queues beside it.
pub(crate) fn engine(running: &mut Running, store: &Arc<NatsStore>, options: engine::Options) {
    running.engine(Arc::clone(store), options);
    let rebuilt = Arc::clone(store);
    running.beside(ENGINE, async move { Ok(rebuild_for_ever::<Dormer, _>(rebuilt).await?) });
    let closed = Arc::clone(store);
    running.at_end(async move { closed.close().await });
}

/// Shows every worker's heartbeats in this process.
pub(crate) async fn hear(
    running: &mut Running,
    link: &NatsLink,
    live: Arc<Live>,
) -> anyhow::Result<()> {
    let beats = link.heartbeats().await?;
    running.beside(CONSOLE, async move {
        let mut beats = std::pin::pin!(beats);
        while let Some(beat) = beats.next().await {
            live.beat(beat);
        }
        Err(anyhow::anyhow!("the connection to NATS has ended"))
    });
    Ok(())
}

/// Whether this process decides or reads histories.
pub(crate) fn needs_store(config: &Config) -> bool {
    config.is(Role::Engine) || config.is(Role::Console)
}

fn store_login(nats: &NatsSettings) -> store::Login {
    match (&nats.user, &nats.password, &nats.token) {
        (Some(user), Some(password), _) => {
            store::Login::User { user: user.clone(), password: password.reveal().to_owned() }
        }
        (_, _, Some(token)) => store::Login::Token(token.reveal().to_owned()),
        #[cfg(feature = "nats-creds")]
        _ if nats.credentials.is_some() => {
            store::Login::CredentialsFile(nats.credentials.clone().unwrap_or_default())
        }
        _ => store::Login::Open,
    }
}

fn link_login(nats: &NatsSettings) -> link::Login {
    match (&nats.user, &nats.password, &nats.token) {
        (Some(user), Some(password), _) => {
            link::Login::User { user: user.clone(), password: password.reveal().to_owned() }
        }
        (_, _, Some(token)) => link::Login::Token(token.reveal().to_owned()),
        #[cfg(feature = "nats-creds")]
        _ if nats.credentials.is_some() => {
            link::Login::CredentialsFile(nats.credentials.clone().unwrap_or_default())
        }
        _ => link::Login::Open,
    }
}
