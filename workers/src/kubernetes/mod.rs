//! What a task does at the Kubernetes API: fences, evictions, deletions, certificates, annotations.

mod api;
mod cluster;
mod cluster_config;
pub(crate) mod csr;
mod csr_owner;
mod delete;
mod error;
pub mod events;
mod evict;
mod fence;
pub mod keys;
mod mark;
mod payload;
mod refusal;
pub mod token;

pub use cluster::{EXPORTER, EXPORTER_TLS, Settings};
pub(crate) use cluster_config::ClusterConfigReader;

use crate::{execute::Execute, progress::Progress};
use dormer_proto::{
    machine::{Outcome, Task},
    message::Failure,
    work::Order,
};
use kube::Client;
use std::{sync::Arc, time::Duration};

/// Longest wait for one answer of the API server.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The oldest minor of Kubernetes 1 that dormer promises to work with.
pub const OLDEST_MINOR: u32 = 33;

/// How often a task begins anew, from its first read, when somebody else wrote on the object in between. A kubelet
/// writes on its Node so often that the engine's retries would be dear.
const ROUNDS_MAX: u32 = 4;

/// Hands for the Kubernetes API. Clones share the connection.
#[derive(Clone)]
pub struct KubernetesExecutor {
    client: Client,
    settings: Arc<Settings>,
    cluster_config: Arc<ClusterConfigReader>,
    events: events::Events,
}

impl KubernetesExecutor {
    /// Hands that work through `client`, which must not retry by itself (`Config::default_retry = false`): waits
    /// belong to the engine.
    #[must_use]
    pub fn new(client: Client, settings: Settings) -> Self {
        let events = events::Events::new(client.clone(), "dormer-worker");
        let cluster_config = Arc::new(ClusterConfigReader::new(
            client.clone(),
            &settings.namespace,
        ));
        Self {
            client,
            settings: Arc::new(settings),
            cluster_config,
            events,
        }
    }

    async fn once(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        match &order.body {
            // A machine's run has the Machine's UID for its key.
            Task::ApproveCsr { csr, expect } => {
                self.approve(csr, expect, order.task.run.key()).await
            }
            Task::MarkNode {
                machine,
                node,
                version,
                pin,
            } => {
                let marked = self.mark(node, version, pin.as_deref()).await?;
                // It is a node now, and asks by its own certificate.
                self.forget_token(machine).await;
                Ok(marked)
            }
            Task::OpenFence {
                machine,
                node,
                token,
                marked,
                cordon,
            } => {
                self.open(machine, node.as_deref(), *token, *marked, *cordon)
                    .await
            }
            Task::CloseFence {
                machine,
                node,
                token,
            } => self.close(machine, node.as_deref(), *token).await,
            Task::Evict {
                machine,
                node,
                token,
                force,
            } => self.evict(machine, node, *token, *force, progress).await,
            Task::DeleteMachine { machine, token } => {
                let deleted = self.delete(machine, *token).await?;
                if deleted == Outcome::MachineDeleted {
                    self.forget_token(machine).await;
                }
                Ok(deleted)
            }
            Task::SetPayload {
                pool,
                payload,
                back_from,
                by,
                instead,
            } => {
                let step = (back_from.as_str(), instead.as_deref());
                self.set_payload(pool, payload, step, by).await
            }
            other => Err(Failure::lasting(
                "WrongQueue",
                format!("{} is no task for the Kubernetes API", other.name()),
            )),
        }
    }
}

impl Execute for KubernetesExecutor {
    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        progress.step(order.body.name(), 0, "");
        for _ in 1..ROUNDS_MAX {
            match self.once(order, progress).await {
                Err(failure) if failure.code == error::CONFLICT => progress.advance(0),
                done => return done,
            }
        }
        self.once(order, progress).await
    }
}
