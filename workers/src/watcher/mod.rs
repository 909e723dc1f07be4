//! Watcher: publishes the state of the cluster's objects to runs.
//!
//! Facts are level-triggered. A *round* is one epoch: `Facts::begin`, a full list by consistent reads, everything
//! published, then watches, whose changes are published as they come; and everything again, spread evenly over
//! `Options::repeat`. A gap in a watch, a refused message or the time ends the round, and the next one lists again. So
//! the watcher keeps nothing that it could not find again, and several of them are harmless.
//!
//! It may do no more than: list and watch Machines and MachineSets of each API in their namespaces, Nodes and
//! CertificateSigningRequests, and WindowsPools and ConfigMaps in dormer's namespace; read `/version`; get, create and
//! update the Lease there; create and patch Events there; create, patch and delete
//! WindowsHosts there, which people or the ConfigMap `windows-instances` name; get and apply RuntimeClasses; list the Deployment and the
//! lock of another operator for Windows hosts by their names, in any namespace, and get the Pod that holds the lock;
//! list MachineHealthChecks and read the ClusterVersion; read what the cluster says about all of its nodes (mirror
//! sets, pull secret, proxy, authorities, machine config, the pool's layers); watch the metadata of both. It writes to no
//! Machine, MachineSet or Node.

mod classes;
mod cluster;
mod cluster_config;
mod conditions;
mod csr;
mod election;
mod hosts;
pub mod logins;
mod messages;
mod noticed;
mod objects;
mod other_operators;
mod round;
mod routing;
mod secrets;
mod servers;
mod settings;
mod sources;
mod status;
mod view;

pub use election::Election;
pub use secrets::SecretChanges;
pub use status::{Source, SourceState, Status};

use crate::{pool::Installed, port::Facts};
use backon::{BackoffBuilder, ExponentialBuilder};
use classes::Classes;
use cluster::ApiFailure;
use cluster_config::ClusterConfigFollower;
use dormer_proto::{
    id::{IdError, RunId},
    pool::DEFAULT_POOL,
};
use hosts::Hosts;
use kube::Client;
use messages::PublishedFacts;
use objects::{ObservedMachine, UnreadableObject};
use other_operators::OtherOperators;
use servers::Servers;
use settings::Settings;
use sources::Sources;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use view::Kind;

/// Most objects about which a warning is remembered, so that each is warned about once.
const WARNED_MAX: usize = 1_000;
/// The first and the longest wait after something went wrong.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Objects to watch, and intervals.
#[derive(Debug, Clone)]
pub struct Options {
    /// The namespace of Machines and MachineSets; `None`: all namespaces.
    pub machines: Option<String>,
    /// The namespace of Cluster API's Machines and MachineSets; `None`: all namespaces.
    pub cluster_machines: Option<String>,
    /// The namespace of the WindowsPool and of the watcher's Kubernetes Lease.
    pub namespace: String,
    /// Pool that is watched, and whose rollout the facts go to.
    pub pool: String,
    /// How one of several watchers is elected; `None`: this is the only one.
    pub election: Option<Election>,
    /// Longest time between two full lists.
    pub relist: Duration,
    /// Time in which every fact is repeated once, evenly spread.
    pub repeat: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            machines: Some("openshift-machine-api".to_owned()),
            cluster_machines: Some("openshift-cluster-api".to_owned()),
            namespace: "dormer".to_owned(),
            pool: DEFAULT_POOL.to_owned(),
            election: None,
            relist: Duration::from_secs(600),
            repeat: Duration::from_secs(60),
        }
    }
}

/// Why the watcher cannot start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The pool's name is no name of a run.
    #[error("the pool {pool:?} cannot have a rollout: {error}")]
    Pool {
        /// Name as it was given.
        pool: String,
        /// Reason for which it was skipped.
        error: IdError,
    },
}

/// Watches until `stop`. Errors meanwhile are in `status`, and the watcher tries again.
///
/// `client` must not retry by itself (`Config::default_retry = false`), since waits belong to the watcher.
///
/// # Errors
/// The options cannot be used.
pub async fn run<F: Facts, I: Installed>(
    client: Client,
    facts: Arc<F>,
    catalog: Arc<I>,
    options: Options,
    status: watch::Sender<Status>,
    stop: CancellationToken,
) -> Result<(), WatchError> {
    let rollout = messages::rollout_of(&options.pool).map_err(|error| WatchError::Pool {
        pool: options.pool.clone(),
        error,
    })?;
    let status = Arc::new(status);
    let campaign = election::campaign(
        client.clone(),
        options.namespace.clone(),
        options.election.clone(),
        status.clone(),
        stop.clone(),
    );
    let watcher = Watcher {
        settings: Settings::new(client.clone(), &options.pool, &options.namespace),
        hosts: Hosts::new(client.clone(), &options.namespace, &options.pool),
        surroundings: ClusterConfigFollower::new(client.clone(), &options.pool, &options.namespace),
        client,
        facts,
        catalog,
        options,
        rollout,
        elected: status.subscribe(),
        status,
        published: PublishedFacts::default(),
        servers: Servers::default(),
        sources: Sources::default(),
        other_operators: OtherOperators::default(),
        classes: Classes::default(),
        unreadable: Unreadable::default(),
    };
    tokio::join!(campaign, watcher.run(stop));
    Ok(())
}

struct Watcher<F, I> {
    client: Client,
    facts: Arc<F>,
    catalog: Arc<I>,
    options: Options,
    rollout: RunId,
    status: Arc<watch::Sender<Status>>,
    elected: watch::Receiver<Status>,
    settings: Settings,
    published: PublishedFacts,
    servers: Servers,
    sources: Sources,
    hosts: Hosts,
    other_operators: OtherOperators,
    classes: Classes,
    surroundings: ClusterConfigFollower,
    unreadable: Unreadable,
}

impl<F: Facts, I: Installed> Watcher<F, I> {
    async fn run(mut self, stop: CancellationToken) {
        let waits = ExponentialBuilder::default()
            .with_min_delay(BACKOFF.0)
            .with_max_delay(BACKOFF.1)
            .with_jitter()
            .without_max_times();
        let mut next = waits.build();
        let mut elected = self.elected.clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = becomes(&mut elected, true) => {}
            }
            let began = Instant::now();
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                () = becomes(&mut elected, false) => continue,
                ended = self.round() => ended,
            };
            let Err(trouble) = ended else { continue };
            tracing::warn!("the watcher lists again: {trouble}");
            self.status
                .send_modify(|status| status.failed(trouble.to_string()));
            // A watch that ends at once after every list must not cause a list in quick succession.
            if began.elapsed() > BACKOFF.1 {
                next = waits.build();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(next.next().unwrap_or(BACKOFF.1)) => {}
            }
        }
    }
}

/// Waits until this process is elected, or is not any more.
async fn becomes(status: &mut watch::Receiver<Status>, elected: bool) {
    // The sender exists as long as the watcher.
    drop(status.wait_for(|status| status.elected == elected).await);
}

/// Objects that could not be read: each is counted, and warned about once.
#[derive(Debug, Default)]
struct Unreadable {
    count: u64,
    warned: BTreeSet<String>,
}

impl Unreadable {
    fn say(&mut self, kind: Kind, name: Option<&str>, odd: &UnreadableObject) {
        self.count += 1;
        let name = name.unwrap_or("without a name");
        if self.first(format!("{kind:?}/{name}")) {
            tracing::warn!("the {kind:?} {name} cannot be read and is left alone: {odd}");
        }
    }

    /// Counts a Machine for which another API is authoritative as left alone, and logs it once.
    fn elsewhere(&mut self, machine: &ObservedMachine) {
        let Some(api) = &machine.elsewhere else {
            return;
        };
        let name = &machine.fact.machine.name;
        if self.first(format!("elsewhere/{}", machine.fact.machine.uid)) {
            tracing::warn!(
                "the Machine {name} is left alone: {api} speaks for it (status.authoritativeAPI)"
            );
        }
    }

    fn first(&mut self, what: String) -> bool {
        self.warned.len() < WARNED_MAX && self.warned.insert(what)
    }
}
