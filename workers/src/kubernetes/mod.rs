//! Tasks at the Kubernetes API: fences, evictions, deletions, certificates, annotations.

pub mod account_token;
mod api;
mod authorities;
mod bound_token;
mod canary;
pub mod changing;
pub mod cloud_token;
mod cluster;
mod cluster_config;
pub(crate) mod cordon;
pub(crate) mod csr;
mod csr_owner;
mod delete;
mod drain_hooks;
mod error;
pub mod events;
mod evict;
mod fence;
mod find;
mod forget;
mod guard;
mod installation;
pub mod join;
pub mod keys;
mod kubelet;
pub mod lacked_right;
mod mark;
mod newcomers;
pub mod operators;
mod owner;
mod paused;
mod payload;
mod powered_off;
mod refusal;
mod template;
pub mod token;
mod verify;
mod watched;

pub use cluster::{EXPORTER, EXPORTER_TLS, Settings, Tokens};
pub(crate) use cluster_config::{ClusterConfigReader, watched as watched_settings};
pub use csr::requested_names;
pub use guard::server_day;
pub(crate) use guard::{CONTROL_PLANE, OS};
pub use kubelet::KUBELET_PORT;
pub(crate) use watched::Watched;

use crate::{execute::Execute, progress::Progress, ssh::Dialer};
use dormer_proto::{
    checks::NodeExpectation,
    id::{Attempt, LeaseToken},
    machine::{Guard, MachineRef, Outcome, Task},
    message::{Failure, Reporter},
    work::Order,
};
use evict::Pass;
use kube::Client;
use std::{sync::Arc, time::Duration};

/// Longest wait for one answer of the API server.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The oldest minor of Kubernetes 1 that dormer promises to work with.
pub const OLDEST_MINOR: u32 = 33;

/// How often a task restarts at its first read after a conflict with another writer. A kubelet
/// updates its Node so often that retries by the engine would cost too much.
const ROUNDS_MAX: u32 = 4;

/// Executor for the Kubernetes API. Clones share the connection.
#[derive(Clone)]
pub struct KubernetesExecutor {
    client: Client,
    settings: Arc<Settings>,
    cluster_config: Arc<ClusterConfigReader>,
    events: events::Events,
    /// How kubelets are reached; `None`: not at all.
    kubelets: Option<Dialer>,
    duty: Duty,
}

/// Which tasks at the Kubernetes API a process carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Duty {
    /// All of them: worker and approver are one process.
    Both,
    /// A worker's. Tokens come from the approver.
    Worker,
    /// An approver's: certificates and tokens.
    Approver,
}

impl KubernetesExecutor {
    /// Executor that uses `client`, which must not retry by itself (`Config::default_retry = false`): waits
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
            kubelets: None,
            duty: Duty::Both,
        }
    }

    /// Executor of a worker beside which an approver runs: it approves nothing, and asks the approver for tokens.
    #[must_use]
    pub fn of_worker(self) -> Self {
        Self {
            duty: Duty::Worker,
            ..self
        }
    }

    /// Executor of an approver: certificates and tokens, and nothing else.
    #[must_use]
    pub fn of_approver(self) -> Self {
        Self {
            events: events::Events::new(self.client.clone(), "dormer-approver"),
            duty: Duty::Approver,
            ..self
        }
    }

    /// Whether a task is this process's.
    ///
    /// # Errors
    /// Another role carries it out.
    fn is_ours(&self, task: &Task) -> Result<(), Failure> {
        match (self.duty, task.reporter()) {
            (Duty::Both, _)
            | (Duty::Worker, Reporter::Worker)
            | (Duty::Approver, Reporter::Approver) => Ok(()),
            (Duty::Worker, Reporter::Approver) => Err(Failure::transient(
                "ApproverOnly",
                format!(
                    "{} is a task of the role approver, and a worker got it from an engine of an earlier build",
                    task.name()
                ),
            )),
            (Duty::Approver, Reporter::Worker) => Err(Failure::lasting(
                "WrongQueue",
                format!("{} is no task of the role approver", task.name()),
            )),
        }
    }

    /// Executor that connects to kubelets with `dialer`, on [`KUBELET_PORT`].
    #[must_use]
    pub fn reaching(self, dialer: Dialer) -> Self {
        Self {
            kubelets: Some(dialer),
            ..self
        }
    }

    async fn once(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        self.is_ours(&order.body)?;
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
                expect,
            } => {
                let marks = (version.as_str(), pin.as_deref());
                self.mark_and_forget_token(machine, node, marks, expect.as_ref())
                    .await
            }
            Task::OpenFence {
                machine,
                node,
                token,
                over_limit,
                cordon,
                guard,
            } => {
                let limit = (*over_limit, guard);
                self.open(machine, node.as_deref(), *token, limit, *cordon)
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
                guard,
            } => {
                let pass = Pass {
                    machine,
                    node,
                    token: *token,
                    force: *force,
                    guard,
                };
                self.evict(&pass, progress).await
            }
            Task::DeleteMachine {
                machine,
                token,
                guard,
            } => self.delete_and_forget_token(machine, *token, guard).await,
            Task::FindNode {
                machine,
                names,
                provider_id,
            } => self.find_node(machine, names, provider_id.as_deref()).await,
            Task::ForgetHost {
                machine,
                node,
                debt,
            } => {
                let node = node.as_deref();
                let debt = debt.as_deref();
                let done = self.forget_host(machine, node, debt).await?;
                self.forget_token(machine).await;
                Ok(done)
            }
            Task::SetPayload {
                pool,
                payload,
                back_from,
                by,
                instead,
            } => {
                let step = (back_from.as_str(), instead.as_deref());
                let issued = (order.incarnation, order.task.seq);
                self.set_payload(pool, payload, step, by, issued).await
            }
            other => Err(Failure::lasting(
                "WrongQueue",
                format!("{} is no task for the Kubernetes API", other.name()),
            )),
        }
    }

    /// Marks the Node. Once it is marked it asks by its own certificate, so the token is not needed any more.
    async fn mark_and_forget_token(
        &self,
        machine: &MachineRef,
        node: &str,
        marks: (&str, Option<&str>),
        expect: Option<&NodeExpectation>,
    ) -> Result<Outcome, Failure> {
        let (outcome, marked) = self.mark(machine, node, marks, expect).await?;
        if marked {
            self.forget_token(machine).await;
        }
        Ok(outcome)
    }

    async fn delete_and_forget_token(
        &self,
        machine: &MachineRef,
        token: LeaseToken,
        guard: &Guard,
    ) -> Result<Outcome, Failure> {
        let deleted = self.delete(machine, token, guard).await?;
        if deleted == Outcome::MachineDeleted {
            self.forget_token(machine).await;
        }
        Ok(deleted)
    }
}

impl Execute for KubernetesExecutor {
    /// A host that has served is torn down under the lease, and only while the cluster is as the lease was granted
    /// for. A BYOH host that leaves and never served needs no lease.
    async fn refuses(&self, order: &Order) -> Result<Option<Outcome>, Failure> {
        let (host, guard) = match &order.body {
            Task::TearDown { host, guard, .. } => (host, guard),
            Task::Reboot { host, token, .. } => {
                let Some(token) = *token else {
                    return Ok(None);
                };
                let refused = self.reboot_refused(&host.machine, token).await?;
                return refused.map_or(Ok(None), |refused| Err(refused.failure()));
            }
            // They change no host under the lease: they read it, or bring it up.
            Task::Probe { .. } | Task::Converge { .. } | Task::Plan { .. } => return Ok(None),
            // They write to the API server alone, and read it themselves just before.
            Task::ApproveCsr { .. }
            | Task::MarkNode { .. }
            | Task::OpenFence { .. }
            | Task::CloseFence { .. }
            | Task::Evict { .. }
            | Task::SetPayload { .. }
            | Task::FindNode { .. }
            | Task::ForgetHost { .. }
            | Task::DeleteMachine { .. } => return Ok(None),
        };
        let begun = guard.begun || order.attempt > Attempt(1);
        for _ in 1..ROUNDS_MAX {
            match self.before_tear_down(&host.machine, guard, begun).await {
                // Another client wrote the Machine after the read.
                Err(failure) if failure.code == error::CONFLICT => {}
                done => return done,
            }
        }
        self.before_tear_down(&host.machine, guard, begun).await
    }

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
