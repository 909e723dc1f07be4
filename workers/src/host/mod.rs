//! What a task does on a Windows host: probe, converge, plan, reboot, tear down.

mod call;
pub mod cluster;
mod facts;
mod known_secrets;
mod leave;
mod plan;
mod platform;
mod prepare;
mod prepared;
mod program;
mod program_call;
mod remote_command;
mod renewal;
mod scrub;
mod sent_files;
pub mod values;

use crate::{
    catalog::Catalog,
    execute::Execute,
    packed::Packer,
    progress::Progress,
    ssh::{Dialer, Key, Limits, Pool, fingerprint, is_fingerprint},
};
use call::{HostAttempt, ProgramCommand};
use cluster::Cluster;
use dormer_profile::{
    answer::{Answer, Reboot},
    document,
    invocation::Mode,
};
use dormer_proto::{
    id::Seq,
    machine::{HostFence, HostRef, NAMED_ITEMS_MAX, Outcome, Section, Task},
    message::Failure,
    pool::Desired,
    work::Order,
};
use known_secrets::KnownSecrets;
use plan::PlanTarget;
use prepared::{CloudTokenSent, Prepared};
pub use program::{HostProgram, ProgramError};
pub use program_call::obstacle;
use std::sync::Arc;

/// Most uploads and repeated calls after a host reports missing files.
const ROUNDS_MAX: usize = 3;

/// Executor for Windows hosts. Clones share connections.
pub struct HostExecutor<C> {
    pool: Arc<Pool>,
    catalog: Catalog,
    cluster: Arc<C>,
    sent: Arc<sent_files::SentFiles>,
    packer: Arc<Packer>,
    known: Arc<KnownSecrets>,
    now_ms: NowMs,
    /// Dates of remote commands.
    dated_ms: NowMs,
    program: Arc<HostProgram>,
}

/// Milliseconds since 1970.
type NowMs = Arc<dyn Fn() -> i64 + Send + Sync>;

impl<C> Clone for HostExecutor<C> {
    fn clone(&self) -> Self {
        Self {
            pool: Arc::clone(&self.pool),
            catalog: self.catalog.clone(),
            cluster: Arc::clone(&self.cluster),
            sent: Arc::clone(&self.sent),
            packer: Arc::clone(&self.packer),
            known: Arc::clone(&self.known),
            now_ms: Arc::clone(&self.now_ms),
            dated_ms: Arc::clone(&self.dated_ms),
            program: Arc::clone(&self.program),
        }
    }
}

impl<C: Cluster> HostExecutor<C> {
    /// Executor that reaches hosts through `dialer`, logs in with `key`, installs payloads of `catalog` with `program`,
    /// and reads `cluster`.
    #[must_use]
    pub fn new(
        dialer: Dialer,
        key: Key,
        limits: Limits,
        catalog: Catalog,
        program: Arc<HostProgram>,
        cluster: Arc<C>,
    ) -> Self {
        let pool = Arc::new(Pool::new(dialer, key, limits));
        let now_ms: NowMs = Arc::new(facts::system_ms);
        let sent = Arc::default();
        let packer = Arc::default();
        let known = Arc::default();
        Self {
            pool,
            catalog,
            cluster,
            sent,
            packer,
            known,
            dated_ms: Arc::clone(&now_ms),
            now_ms,
            program,
        }
    }

    /// Executor that keeps packed payload files where `packer` does, and not in the system's temporary folder.
    #[must_use]
    pub fn packing(self, packer: Arc<Packer>) -> Self {
        Self { packer, ..self }
    }

    /// Executor that compares the hosts' clocks with `now_ms` (milliseconds since 1970) instead of the system clock,
    /// and dates remote commands by it, for simulated time.
    #[must_use]
    pub fn with_clock(self, now_ms: NowMs) -> Self {
        let dated_ms = Arc::clone(&now_ms);
        Self {
            now_ms,
            dated_ms,
            ..self
        }
    }

    /// Executor that dates remote commands by `dated_ms` (milliseconds since 1970), where the engine has a clock of its
    /// own: a command then lies within its attempt.
    #[must_use]
    pub fn dated_by(self, dated_ms: NowMs) -> Self {
        Self { dated_ms, ..self }
    }
}

impl<C: Cluster> Execute for HostExecutor<C> {
    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        let Some(host) = order.body.host() else {
            return Err(wrong_queue(order));
        };
        let held = self.pool.hold(host);
        for key in self.pool.key().texts() {
            self.known.value(key);
        }
        let at_ms = (self.dated_ms)();
        let on = HostAttempt {
            order,
            host,
            fence: fence(order),
            progress,
        };
        let answer = self.perform_pinned(on).await;
        held.done();
        if let Err(failure) = &answer {
            remote_command::show_failure(on, at_ms, failure, &self.dated_ms, &self.known);
        }
        self.known.clean_report(answer)
    }
}

/// Host output with secrets removed: tokens, private keys, long runs of base64.
#[must_use]
pub fn scrubbed(said: &str) -> String {
    scrub::clean(&[], said)
}

fn wrong_queue(order: &Order) -> Failure {
    let message = format!("{} is no task for a Windows host", order.body.name());
    Failure::lasting("WrongQueue", message)
}

/// Desired state of a section.
#[derive(Debug, Clone, Copy)]
struct SectionTarget<'a> {
    desired: &'a Desired,
    section: Section,
    node: Option<&'a str>,
    /// Purpose of the rendering.
    mode: Mode,
}

/// Fence of a task that changes the host, or compares it for a change; none for a probe.
fn fence(order: &Order) -> HostFence {
    match order.body {
        Task::Converge { generation, .. }
        | Task::Plan { generation, .. }
        | Task::Reboot { generation, .. }
        | Task::TearDown { generation, .. } => HostFence {
            generation,
            seq: order.task.seq,
        },
        _ => HostFence::default(),
    }
}

impl<C: Cluster> HostExecutor<C> {
    /// Performs a task on the host whose address the live Machine has, and whose key the run and the Machine pin alike. The
    /// pin on the Machine survives a lost store. If the two differ, nothing is sent to the host until a person trusts a
    /// key, which replaces both.
    async fn perform_pinned(&self, on: HostAttempt<'_>) -> Result<Outcome, Failure> {
        let host = on.host;
        let trusted = host.pin.as_deref().is_some_and(is_fingerprint);
        let noted = self.cluster.pinned(host).await?;
        let host = match (&host.pin, noted.clone()) {
            (Some(pin), Some(noted)) if !trusted && *pin != noted => {
                return Err(pins_differ(host, pin, &noted));
            }
            (None, noted) => HostRef {
                pin: noted,
                ..host.clone()
            },
            (Some(_), _) => host.clone(),
        };
        let outcome = self.perform(HostAttempt { host: &host, ..on }).await?;
        if trusted {
            let session = self.session(&host).await?;
            if noted.as_deref() != Some(session.host_key()) {
                self.cluster.pin(&host.machine, session.host_key()).await?;
            }
        }
        Ok(outcome)
    }

    async fn perform(&self, on: HostAttempt<'_>) -> Result<Outcome, Failure> {
        match &on.order.body {
            Task::Probe { .. } => self.probe(on).await,
            Task::Converge {
                section,
                desired,
                node_name,
                ..
            } => {
                let wanted = SectionTarget {
                    desired,
                    section: *section,
                    node: node_name.as_deref(),
                    mode: Mode::Apply,
                };
                self.converge(on, wanted).await
            }
            Task::Plan {
                desired,
                node_name,
                adopt,
                renew,
                ..
            } => {
                let wanted = PlanTarget {
                    desired,
                    node: node_name.as_deref(),
                    adopt: *adopt,
                    renew: *renew,
                };
                self.plan(on, wanted).await
            }
            Task::Reboot { boot_id, .. } => self.reboot(on, boot_id).await,
            Task::TearDown { .. } => self.tear_down(on).await,
            Task::ApproveCsr { .. }
            | Task::MarkNode { .. }
            | Task::OpenFence { .. }
            | Task::CloseFence { .. }
            | Task::Evict { .. }
            | Task::SetPayload { .. }
            | Task::FindNode { .. }
            | Task::ForgetHost { .. }
            | Task::DeleteMachine { .. } => Err(wrong_queue(on.order)),
        }
    }

    async fn probe(&self, on: HostAttempt<'_>) -> Result<Outcome, Failure> {
        let HostAttempt { host, progress, .. } = on;
        progress.step("log in", 0, "");
        let session = self.session(host).await?;
        progress.step("read facts", 0, "");
        let asked = ProgramCommand {
            mode: Mode::Probe,
            boot: None,
            rendered: None,
        };
        let answer = self.ask(on, &session, asked).await?;
        let host_key = session.host_key().to_owned();
        progress.step("note the node's name", 0, "");
        let in_cluster = self.cluster.machine_in_cluster(&host.machine, None).await?;
        let node_name = platform::node_name(host, &in_cluster);
        let node_name = node_name.unwrap_or_else(|| facts::node_name(&answer.facts));
        self.cluster
            .note(&host.machine, &node_name, &host_key)
            .await?;
        Ok(Outcome::Probed {
            facts: facts::of(&answer.facts, (self.now_ms)()),
            host_key,
            node_name,
        })
    }

    async fn converge(
        &self,
        on: HostAttempt<'_>,
        wanted: SectionTarget<'_>,
    ) -> Result<Outcome, Failure> {
        let prepared = self.prepare(on, wanted).await?;
        let session = self.session(on.host).await?;
        self.send_program(on, &session).await?;
        self.upload_payload(on, &session, &prepared).await?;
        for _ in 0..ROUNDS_MAX {
            let asked = ProgramCommand {
                mode: Mode::Apply,
                boot: None,
                rendered: Some(&prepared),
            };
            on.progress
                .step(format!("converge {}", prepared.section.as_str()), 0, "");
            let answer = self.ask(on, &session, asked).await?;
            if answer.missing_files.is_empty() {
                let outcome = converged(wanted.section, &answer)?;
                self.note_token(wanted.node, &prepared).await?;
                self.sent.put(on.host, prepared.payload_mark());
                return Ok(outcome);
            }
            let missing = prepared.missing(&answer.missing_files)?;
            self.upload(on, &session, &prepared, &missing).await?;
        }
        let message = "the host keeps losing files that were just uploaded; a virus scanner?";
        Err(Failure::transient("QuarantineSuspected", message))
    }

    /// Notes that the host has a new token of its Node's cloud-node-manager, if the document had one.
    async fn note_token(&self, node: Option<&str>, prepared: &Prepared) -> Result<(), Failure> {
        match (node, &prepared.cloud) {
            (Some(node), CloudTokenSent::New { node_uid, due }) => {
                self.cluster.note_cloud_token(node, node_uid, *due).await
            }
            _ => Ok(()),
        }
    }

    async fn reboot(&self, on: HostAttempt<'_>, boot_id: &str) -> Result<Outcome, Failure> {
        let session = self.session(on.host).await?;
        on.progress.step("ask for a reboot", 0, "");
        let asked = ProgramCommand {
            mode: Mode::Reboot,
            boot: Some(boot_id),
            rendered: None,
        };
        match self.ask(on, &session, asked).await {
            Ok(_) => {}
            // It rebooted meanwhile: what was wanted.
            Err(failure) if failure.code == "boot_changed" => {}
            Err(failure) => return Err(failure),
        }
        self.pool.drop_session(on.host);
        Ok(Outcome::RebootAsked)
    }

    /// Tears the host down. The program records what it created, so one call removes both sections. Where the host leaves
    /// for good, the program goes last.
    async fn tear_down(&self, on: HostAttempt<'_>) -> Result<Outcome, Failure> {
        let session = self.session(on.host).await?;
        on.progress.step("remove", 0, "");
        let asked = ProgramCommand {
            mode: Mode::Remove,
            boot: None,
            rendered: None,
        };
        self.ask(on, &session, asked).await?;
        self.sent.forget(on.host);
        if self.cluster.leaves(&on.host.machine).await? {
            let taken = self.take_program_away(&session).await;
            taken.map_err(|error| self.failed(on.host, error))?;
        }
        Ok(Outcome::TornDown)
    }
}

fn pins_differ(host: &HostRef, pin: &str, noted: &str) -> Failure {
    let message = format!(
        "the host key pinned for {} is not the one of its Machine's annotation {}: {}, not {}; nothing was sent to it",
        host.address,
        cluster::HOST_KEY,
        fingerprint(pin),
        fingerprint(noted)
    );
    Failure::lasting("HostKeyChanged", message)
}

fn converged(section: Section, answer: &Answer) -> Result<Outcome, Failure> {
    use dormer_profile::answer::ItemState;
    let changed = answer
        .items
        .iter()
        .filter(|item| item.state == ItemState::Changed)
        .count();
    let reboot = answer.reboot != Reboot::None;
    if !reboot && !answer.converged() {
        let left: Vec<_> = answer.differing().take(NAMED_ITEMS_MAX).collect();
        let message = format!("not everything could be made so: {}", left.join(", "));
        return Err(Failure::transient("NotConverged", message));
    }
    Ok(Outcome::Converged {
        section,
        changed: u32::try_from(changed).unwrap_or(u32::MAX),
        reboot,
        boot_id: answer.facts.boot_id.clone(),
        owed: owed(&answer.reboot),
    })
}

/// Reasons for a reboot, sorted: equal items give an equal list, whatever their order.
fn owed(reboot: &Reboot) -> Vec<String> {
    let mut owed = match reboot {
        Reboot::Needed { why } => why.clone(),
        Reboot::None | Reboot::Pending => Vec::new(),
    };
    owed.sort();
    owed.dedup();
    let more = owed.len().saturating_sub(NAMED_ITEMS_MAX);
    owed.truncate(NAMED_ITEMS_MAX);
    owed.extend((more > 0).then(|| format!("{more} more")));
    owed
}

/// The two numbers of a fence, for the program.
fn program_fence(fence: HostFence) -> document::Fence {
    let Seq(seq) = fence.seq;
    document::Fence {
        generation: fence.generation,
        seq,
    }
}
