//! Table of the machine's phases: one row for each, with the properties of the whole phase.
//!
//! A row's first column is its [`MachinePhase`], which has the id, the text for people and the state. The file of a
//! phase's stage has its behaviour (on entry, on answers, on timers): `provision.rs`, `configure.rs`,
//! `serve.rs`, `drain.rs`, `recreate.rs`, `ended.rs`. `tests/phases.txt` is this table as people read it.

use super::{
    phase::{Phase, Timer},
    policy::{self, HOUR, MINUTE, SECOND},
};
use dormer_proto::{
    machine::Task,
    phase::{Listed, MachinePhase},
};

/// Row of the table of phases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseRow {
    /// Phase: its id, its text for people, its state.
    pub phase: MachinePhase,
    /// Condition that the phase waits for, as text for people. `view.rs` fills in `{host}` and `{node}`, and adds details
    /// for some phases.
    pub waits_for: &'static str,
    /// Tasks whose failure counts for this phase. Any other task belongs to an earlier phase.
    pub awaits: &'static [TaskKind],
    /// Timers of the phase, with their lengths. On leaving the phase, a timer that the next phase lacks is cancelled. A
    /// timer of both phases keeps running until the next phase restarts it.
    pub timers: &'static [(Timer, Length)],
    /// Whether it disturbs a node. A protected node waits for the lease first.
    pub disturbs: bool,
    /// Whether it ends the pods on a node, and no worker reads the Node before that: under the lease the run drains the Node
    /// first if pods may run there. A tear-down and a deletion are refused by the worker.
    pub after_drain: bool,
    /// Whether the Machine is ending or gone: no more tasks on its host.
    pub leaves: bool,
    /// Whether it begins even on a paused machine: a pause must not delay the return of the lease.
    pub even_paused: bool,
}

/// Length of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Milliseconds.
    Ms(u64),
    /// The pool's soak time; 0: no wait.
    PoolSoak,
    /// The pool's limit for a drain; 0: no limit.
    PoolDrainTimeout,
    /// The pool's `repairAfter`: how long a Node is not Ready before its machine may be repaired over the limit.
    PoolRepairAfter,
    /// Between four and six hours, by the run (`policy::drift_ms`).
    Drift,
}

/// Kind of a task that a phase may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    Probe,
    Plan,
    /// [`Task::Converge`], of either section.
    Converge,
    Reboot,
    MarkNode,
    OpenFence,
    Evict,
    DeleteMachine,
    TearDown,
    CloseFence,
    FindNode,
    ForgetHost,
}

impl TaskKind {
    /// Its name in records, which never changes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Plan => "plan",
            Self::Converge => "converge",
            Self::Reboot => "reboot",
            Self::MarkNode => "mark-node",
            Self::OpenFence => "open-fence",
            Self::Evict => "evict",
            Self::DeleteMachine => "delete-machine",
            Self::TearDown => "tear-down",
            Self::CloseFence => "close-fence",
            Self::FindNode => "find-node",
            Self::ForgetHost => "forget-host",
        }
    }

    /// Kind of a task. `None`: no phase waits for it. Certificates are approved independently of phases, and the
    /// rollout sets the payload.
    #[must_use]
    pub fn of(task: &Task) -> Option<Self> {
        match task {
            Task::Probe { .. } => Some(Self::Probe),
            Task::Plan { .. } => Some(Self::Plan),
            Task::Converge { .. } => Some(Self::Converge),
            Task::Reboot { .. } => Some(Self::Reboot),
            Task::MarkNode { .. } => Some(Self::MarkNode),
            Task::OpenFence { .. } => Some(Self::OpenFence),
            Task::Evict { .. } => Some(Self::Evict),
            Task::DeleteMachine { .. } => Some(Self::DeleteMachine),
            Task::TearDown { .. } => Some(Self::TearDown),
            Task::CloseFence { .. } => Some(Self::CloseFence),
            Task::FindNode { .. } => Some(Self::FindNode),
            Task::ForgetHost { .. } => Some(Self::ForgetHost),
            Task::ApproveCsr { .. } | Task::SetPayload { .. } => None,
        }
    }
}

/// The table: a row for each phase, in the order of [`MachinePhase`].
pub static PHASES: [PhaseRow; MachinePhase::ALL.len()] = [
    // Provisioned: provision.rs
    row(MachinePhase::AddressWait, "an InternalIP on the Machine"),
    row(MachinePhase::Probing, "SSH at {host}").awaits(&[TaskKind::Probe]),
    row(MachinePhase::KeyWait, "{host} to accept the key")
        .awaits(&[TaskKind::Probe])
        .timers(&[
            // Between two refused logins; shorter waits risk MaxAuthTries and lock-outs (scenario 4).
            (Timer::Again, Length::Ms(20 * SECOND)),
        ]),
    row(MachinePhase::Adopting, "{host} to be compared").awaits(&[TaskKind::Plan]),
    // Reachable: configure.rs
    row(MachinePhase::PoolWait, "the pool's settings"),
    row(MachinePhase::ConvergingHost, "{host} to be configured")
        .awaits(&[TaskKind::Converge])
        .disturbs()
        .after_drain(),
    row(
        MachinePhase::Rebooting,
        "{host} to come back from its reboot",
    )
    .awaits(&[TaskKind::Reboot, TaskKind::Probe])
    .disturbs()
    .after_drain()
    .timers(&[
        // Pause before the first probe of a host that was ordered to reboot, and between two probes.
        (Timer::Again, Length::Ms(10 * SECOND)),
        // A reboot that applies updates takes a quarter of an hour (scenario 25).
        (Timer::Deadline, Length::Ms(30 * MINUTE)),
    ]),
    // Configured: configure.rs
    row(MachinePhase::NodeWait, "the Node {node}").timers(&[
        // From the kubelet's start to its Node.
        (Timer::Deadline, Length::Ms(20 * MINUTE)),
    ]),
    row(
        MachinePhase::ConvergingNode,
        "{host} to be configured for its Node",
    )
    .awaits(&[TaskKind::Converge]),
    row(MachinePhase::ReadyWait, "the Node {node} to be Ready").timers(&[
        // From the Node to Ready.
        (Timer::Deadline, Length::Ms(20 * MINUTE)),
    ]),
    row(MachinePhase::Soaking, "the Node {node} to stay Ready")
        .timers(&[(Timer::Soak, Length::PoolSoak)]),
    row(MachinePhase::Marking, "our version on the Node {node}").awaits(&[TaskKind::MarkNode]),
    // Joined: serve.rs
    row(
        MachinePhase::Serving,
        "the Node {node} to be Ready and schedulable",
    )
    .awaits(&[TaskKind::FindNode])
    .timers(&[
        (Timer::Drift, Length::Drift),
        // From a Node's disappearance to the search for it at the API server; runs only without a Node.
        (Timer::Deadline, Length::Ms(10 * MINUTE)),
    ]),
    row(MachinePhase::Checking, "{host} to be compared").awaits(&[TaskKind::Plan]),
    row(MachinePhase::Applying, "{host} to be changed in place").awaits(&[TaskKind::Converge]),
    // Their `Drift` runs only on hosts with a token that ends, which a comparison renews.
    row(MachinePhase::ApprovalWait, "a person's approval")
        .awaits(&[TaskKind::Plan])
        .timers(&[(Timer::Drift, Length::Drift)]),
    row(
        MachinePhase::OwnerWait,
        "an owner: no MachineSet would replace this Machine",
    )
    .awaits(&[TaskKind::Plan])
    .timers(&[(Timer::Drift, Length::Drift)]),
    row(MachinePhase::LeaseWait, "the rollout's lease")
        .awaits(&[TaskKind::Plan])
        .timers(&[
            // How long a Node is not Ready before its machine may be repaired over the rollout's limit; runs only while
            // it is not Ready.
            (Timer::Deadline, Length::PoolRepairAfter),
            (Timer::Drift, Length::Drift),
        ]),
    row(MachinePhase::Closing, "the fence to be closed")
        .awaits(&[TaskKind::CloseFence])
        .even_paused(),
    // Draining: drain.rs
    // The host says first what its clock shows, unless it has just done so.
    row(MachinePhase::Opening, "the fence to be opened")
        .awaits(&[TaskKind::OpenFence, TaskKind::FindNode, TaskKind::Probe])
        .disturbs(),
    row(MachinePhase::Evicting, "pods to leave")
        .awaits(&[TaskKind::Evict, TaskKind::OpenFence])
        .disturbs()
        .timers(&[
            // Between two passes of evictions, at first.
            (Timer::Again, Length::Ms(policy::next_pass(0))),
            (Timer::Drain, Length::PoolDrainTimeout),
        ]),
    row(MachinePhase::Drained, "a person's resume").disturbs(),
    row(MachinePhase::Deleting, "the Machine's deletion")
        .awaits(&[TaskKind::DeleteMachine])
        .disturbs(),
    row(MachinePhase::Vanishing, "the Machine to be gone")
        .leaves()
        .timers(&[(Timer::Deadline, Length::Ms(VANISH))]),
    row(MachinePhase::TearingDown, "{host} to be torn down")
        .awaits(&[TaskKind::TearDown])
        .disturbs(),
    row(MachinePhase::Undoing, "the fence to be closed")
        .awaits(&[TaskKind::CloseFence])
        .even_paused(),
    // The tasks are for a host that no controller takes away.
    row(MachinePhase::Leaving, "the Machine to be gone")
        .awaits(&[
            TaskKind::Probe,
            TaskKind::Evict,
            TaskKind::TearDown,
            TaskKind::ForgetHost,
        ])
        .leaves()
        .even_paused()
        .timers(&[(Timer::Deadline, Length::Ms(VANISH))]),
    // Recreated: recreate.rs
    row(MachinePhase::Reprobing, "SSH at {host}")
        .awaits(&[TaskKind::Probe])
        .disturbs(),
    row(MachinePhase::ClosingGone, "the fence to be closed")
        .awaits(&[TaskKind::CloseFence])
        .leaves()
        .even_paused(),
    row(MachinePhase::ReplacementWait, "a replacement to serve")
        .leaves()
        .timers(&[
            // How long a closed run waits for the signal that its replacement serves.
            (Timer::Deadline, Length::Ms(30 * 24 * HOUR)),
        ]),
    // A failed machine continues once there is a reason: ended.rs
    row(
        MachinePhase::Failed,
        "a person's retry, or a change that gives a reason",
    ),
    row(MachinePhase::Gone, "").leaves(),
];

/// From the Machine's deletion to its end: drain, instance, finalizers.
const VANISH: u64 = 2 * HOUR;

/// Whether the rows are in the order of [`MachinePhase`]. The lookup is by index.
const fn in_order() -> bool {
    let mut at = 0;
    while at < PHASES.len() {
        if PHASES[at].phase as usize != at {
            return false;
        }
        at += 1;
    }
    true
}
const _: () = assert!(in_order(), "a row of PHASES is out of order");

impl PhaseRow {
    #[must_use]
    pub fn of(phase: MachinePhase) -> &'static Self {
        &PHASES[phase as usize]
    }

    /// Length of `timer` in this phase. `None`: the phase does not have it.
    #[must_use]
    pub fn length(&self, timer: Timer) -> Option<Length> {
        let mut timers = self.timers.iter();
        timers
            .find(|(one, _)| *one == timer)
            .map(|(_, length)| *length)
    }

    const fn awaits(mut self, tasks: &'static [TaskKind]) -> Self {
        self.awaits = tasks;
        self
    }

    const fn timers(mut self, timers: &'static [(Timer, Length)]) -> Self {
        self.timers = timers;
        self
    }

    const fn disturbs(mut self) -> Self {
        self.disturbs = true;
        self
    }

    const fn after_drain(mut self) -> Self {
        self.after_drain = true;
        self
    }

    const fn leaves(mut self) -> Self {
        self.leaves = true;
        self
    }

    const fn even_paused(mut self) -> Self {
        self.even_paused = true;
        self
    }
}

impl Phase {
    /// Row in the table of phases.
    #[must_use]
    pub fn row(&self) -> &'static PhaseRow {
        PhaseRow::of(self.id())
    }

    /// Whether the Machine is ending or gone: no more tasks on its host.
    #[must_use]
    pub fn leaving(&self) -> bool {
        self.row().leaves
    }
}

/// Row without tasks and timers, for a phase that neither disturbs a node nor removes it.
const fn row(phase: MachinePhase, waits_for: &'static str) -> PhaseRow {
    PhaseRow {
        phase,
        waits_for,
        awaits: &[],
        timers: &[],
        disturbs: false,
        after_drain: false,
        leaves: false,
        even_paused: false,
    }
}
