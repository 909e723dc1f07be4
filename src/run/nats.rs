//! The roles on a NATS store: which ports each needs, and how the server is reached.

use super::roles::{CONSOLE, ENGINE, Running};
use crate::{
    api::{Api, publish_for_ever},
    config::{Config, NatsSettings, Role},
    live::Live,
};
use dormer_engine::{
    engine,
    nats::{self as store, NatsChanges, NatsStore, rebuild_for_ever},
    port::Ports,
};
use dormer_workers::nats::{self as link, NatsLink, Sign};
use dormer_workflows::Dormer;
use futures::StreamExt;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// How long a server may take to come up when dormer starts.
const CONNECT_FOR: Duration = Duration::from_secs(30);
/// The pause between two tries.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The engine's side of the store.
///
/// # Errors
/// What to change at the server, or in the settings.
pub(crate) async fn open(config: &Config, servers: &str) -> anyhow::Result<Arc<NatsStore>> {
    let options = store_options(config, servers);
    let passing = |error: &store::OpenError| matches!(error, store::OpenError::Connect { .. });
    let opened = patiently(async || NatsStore::open(&options).await, passing).await;
    Ok(Arc::new(opened?))
}

/// How the store is reached and what it has to be.
pub(crate) fn store_options(config: &Config, servers: &str) -> store::Options {
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
        login: store_login(nats),
        tls: store::Tls {
            ca: nats.ca.clone(),
            identity: nats.certificate.clone().zip(nats.key.clone()),
            required: servers.contains("tls://"),
        },
    }
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
    Ok(patiently(async || NatsLink::connect(&options).await, |_| true).await?)
}

/// Tries again for a while: in a cluster, NATS and dormer often start at the same time.
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

/// Adds an engine on NATS, with what rebuilds lost queues beside it.
pub(crate) fn engine(running: &mut Running, store: &Arc<NatsStore>, options: engine::Options) {
    running.engine(Arc::clone(store), options);
    let rebuilt = Arc::clone(store);
    running.beside(ENGINE, async move {
        Ok(rebuild_for_ever::<Dormer, _>(rebuilt).await?)
    });
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
            match beat {
                Sign::Beat(beat) => live.beat(beat),
                Sign::Ran(command) => live.ran(command),
            }
        }
        Err(anyhow::anyhow!("the connection to NATS has ended"))
    });
    Ok(())
}

/// Tells every change to the stream of changes, whether anybody listens or not.
pub(crate) fn tell_changes<P: Ports>(
    running: &mut Running,
    api: Arc<Api<P>>,
    changes: NatsChanges,
) {
    running.beside(CONSOLE, async move {
        match publish_for_ever(api, changes).await {}
    });
}

/// Whether this process decides or reads histories.
pub(crate) fn needs_store(config: &Config) -> bool {
    config.is(Role::Engine) || config.is(Role::Console)
}

fn store_login(nats: &NatsSettings) -> store::Login {
    match (&nats.user, &nats.password, &nats.token) {
        (Some(user), Some(password), _) => store::Login::User {
            user: user.clone(),
            password: password.reveal().to_owned(),
        },
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
        (Some(user), Some(password), _) => link::Login::User {
            user: user.clone(),
            password: password.reveal().to_owned(),
        },
        (_, _, Some(token)) => link::Login::Token(token.reveal().to_owned()),
        #[cfg(feature = "nats-creds")]
        _ if nats.credentials.is_some() => {
            link::Login::CredentialsFile(nats.credentials.clone().unwrap_or_default())
        }
        _ => link::Login::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Settings,
        embedded::tests::{Telling, machine_seen},
    };
    use dormer_proto::{subject::CLASSES, work::machine_run};
    use dormer_testkit::{NatsOptions, NatsServer, await_condition, started};
    use dormer_workers::{
        nats::{NatsFacts, NatsOrders},
        port::Facts,
        worker,
    };
    use tokio::{sync::mpsc, time::timeout};

    const IN_TIME: Duration = Duration::from_secs(60);

    fn config(server: &NatsServer, role: Role, name: &str) -> Config {
        let settings = Settings {
            store: Some(server.url()),
            role: vec![role],
            name: Some(name.into()),
            nats: NatsSettings {
                accept_lazy_sync: Some(true),
                ..NatsSettings::default()
            },
            ..Settings::default()
        };
        Config::new(settings).expect("a configuration")
    }

    /// Each role with connections of its own, as in pods of their own.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn roles_of_several_processes_meet_on_a_server_and_survive_its_death() {
        let mut server = started!(NatsServer::start(NatsOptions {
            sync_always: true,
            ..NatsOptions::default()
        }));
        let mut deciding = Running::default();
        let mut stores = Vec::new();
        for name in ["e1", "e2"] {
            let config = config(&server, Role::Engine, name);
            let store = open(&config, &server.url()).await.expect("a store");
            engine(&mut deciding, &store, engine::Options::default());
            stores.push(store);
        }
        let (told, mut tasks) = mpsc::unbounded_channel();
        let mut working = Running::default();
        let link = connect(&config(&server, Role::Worker, "w"), &server.url())
            .await
            .expect("a link");
        let orders = NatsOrders::open(Arc::clone(&link), "w", &CLASSES)
            .await
            .expect("orders");
        let options = worker::Options::named("w");
        working.worker(Arc::new(orders), Arc::new(Telling(told)), options);
        let live = Arc::<Live>::default();
        hear(&mut working, &link, Arc::clone(&live))
            .await
            .expect("heartbeats");

        let facts = NatsFacts::new(link);
        let first = facts.begin().await.expect("an epoch");
        facts
            .publish(vec![machine_seen("u1", &first, false)])
            .await
            .expect("published");
        let task = timeout(IN_TIME, tasks.recv()).await.expect("in time");
        assert_eq!(task.as_deref(), Some("machine/u1 probe"));
        let run = machine_run("u1").expect("a run");
        await_condition("a heartbeat", IN_TIME, || async {
            !live.of(&run).is_empty()
        })
        .await;
        assert_eq!(facts.begin().await.expect("an epoch").live, ["u1"]);

        server.kill();
        server.restart();
        let again = timeout(IN_TIME, tasks.recv()).await.expect("in time");
        assert_eq!(
            again.as_deref(),
            Some("machine/u1 probe"),
            "the next attempt"
        );
        await_condition("the watcher's way", IN_TIME, || async {
            let Ok(next) = facts.begin().await else {
                return false;
            };
            next.epoch > first.epoch
                && facts
                    .publish(vec![machine_seen("u1", &next, true)])
                    .await
                    .is_ok()
                && next.live.is_empty()
        })
        .await;
        timeout(IN_TIME, working.stop())
            .await
            .expect("in time")
            .expect("an orderly end");
        assert!(deciding.health().ready(), "{:?}", deciding.health().all());
        timeout(IN_TIME, deciding.stop())
            .await
            .expect("in time")
            .expect("an orderly end");
    }
}
