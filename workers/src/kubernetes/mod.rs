//! What a task does at the Kubernetes API: fences, evictions, deletions, certificates, annotations.

mod api;
mod cluster;
mod csr;
mod delete;
mod error;
mod evict;
mod fence;
pub mod keys;
mod mark;

pub use cluster::Settings;

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

/// Hands for the Kubernetes API. Clones share the connection.
#[derive(Clone)]
pub struct KubernetesHands {
    client: Client,
    settings: Arc<Settings>,
}

impl KubernetesHands {
    /// Hands that work through `client`, which must not retry by itself (`Config::default_retry = false`): waits
    /// belong to the engine.
    #[must_use]
    pub fn new(client: Client, settings: Settings) -> Self {
        Self { client, settings: Arc::new(settings) }
    }
}

impl Execute for KubernetesHands {
    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        progress.step(order.body.name(), 0, "");
        match &order.body {
            Task::ApproveCsr { csr, expect } => self.approve(csr, expect).await,
            Task::MarkNode { machine: _, node, version, pin } => {
                self.mark(node, version, pin.as_deref()).await
            }
            Task::OpenFence { machine, node, token, marked, cordon } => {
                self.open(machine, node.as_deref(), *token, *marked, *cordon).await
            }
            Task::CloseFence { machine, node, token } => {
                self.close(machine, node.as_deref(), *token).await
            }
            Task::Evict { machine, node, token, force } => {
                self.evict(machine, node, *token, *force, progress).await
            }
            Task::DeleteMachine { machine, token } => self.delete(machine, *token).await,
            other => Err(Failure::lasting(
                "WrongQueue",
                format!("{} is no task for the Kubernetes API", other.name()),
            )),
        }
    }
}
