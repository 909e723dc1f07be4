//! Table of the machine's phases: one row for each, with everything that holds for the whole phase.
//!
//! A row's first column is its [`MachinePhase`], which brings the id, the text for people and the state. What happens in
//! a phase (when it is entered, answered, fired) stands in the file of its stage: `provision.rs`, `configure.rs`,
//! `serve.rs`, `drain.rs`, `recreate.rs`, `ended.rs`. `tests/phases.txt` is this table as people read it.

use super::{
    phase::Timer,
    policy::{HOUR, MINUTE, SECOND},
};
use dormer_proto::{
    machine::Task,
    phase::{Listed, MachinePhase},
};

/// A row of the table of phases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseRow {
    /// Which phase: its id, its text for people, its state.
    pub phase: MachinePhase,
    /// What it waits for, for people. `{host}`, `{node}` and `{boot}` are filled in by `view.rs`, which also says more
    /// where a phase knows more.
    pub waits_for: &'static str,
    /// Tasks whose failure is this phase's; any other was asked for by a phase that was left.
    pub awaits: &'static [TaskKind],
    /// Timers that it may wait for, and for how long. When the phase is left, a timer that the next phase does not have
    /// is cancelled; one that both have goes on until the next phase starts it anew.
    pub timers: &'static [(Timer, Length)],
    /// Whether it disturbs a node: a protected one then waits for the lease instead.
    pub disturbs: bool,
    /// Whether the Machine's end is under way or past: nothing is done on its host any more.
    pub leaves: bool,
    /// Whether it begins even on a paused machine: what gives the lease back is not held up.
    pub even_paused: bool,
}

/// How long a timer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Milliseconds.
    Ms(u64),
    /// As long as the pool wants a Node to stay Ready; 0: no wait.
    PoolSoak,
    /// As long as the pool lets a drain take; 0: no limit.
    PoolDrainTimeout,
    /// As long as the pool lets a Node be not Ready before its machine may be repaired over the limit.
    PoolRepairAfter,
    /// Between four and six hours, by the run (`policy::drift_ms`).
    Drift,
}

/// Kind of a task that a phase may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    /// [`Task::Probe`].
    Probe,
    /// [`Task::Plan`].
    Plan,
    /// [`Task::Converge`], of either section.
    Converge,
    /// [`Task::Reboot`].
    Reboot,
    /// [`Task::MarkNode`].
    MarkNode,
    /// [`Task::OpenFence`].
    OpenFence,
    /// [`Task::Evict`].
    Evict,
    /// [`Task::DeleteMachine`].
    DeleteMachine,
    /// [`Task::TearDown`].
    TearDown,
    /// [`Task::CloseFence`].
    CloseFence,
    /// [`Task::FindNode`].
    FindNode,
}

impl TaskKind {
    /// The kind of a task. `None`: no phase waits for it. Certificates are approved beside any phase, and the payload
    /// is the rollout's to set.
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
            // Between two log-ins that the host refuses: MaxAuthTries and lock-outs are near (scenario 4).
            (Timer::Again, Length::Ms(20 * SECOND)),
        ]),
    row(MachinePhase::Adopting, "{host} to be compared").awaits(&[TaskKind::Plan]),
    // Reachable: configure.rs
    row(MachinePhase::PoolWait, "the pool's settings"),
    row(MachinePhase::ConvergingHost, "{host} to be configured")
        .awaits(&[TaskKind::Converge])
        .disturbs(),
    row(MachinePhase::Rebooting, "{host} to end the boot {boot}")
        .awaits(&[TaskKind::Reboot, TaskKind::Probe])
        .disturbs()
        .timers(&[
            // Before the first look at a host that was asked to reboot; and between two looks.
            (Timer::Again, Length::Ms(10 * SECOND)),
            // A reboot that applies updates takes a quarter of an hour (scenario 25).
            (Timer::Deadline, Length::Ms(30 * MINUTE)),
        ]),
    // Configured: configure.rs
    row(MachinePhase::NodeWait, "the Node {node}").timers(&[
        // From the kubelet's start to its Node.
        (Timer::Deadline, Length::Ms(20 * MINUTE)),
    ]),
    row(MachinePhase::ConvergingNode, "the node's second section").awaits(&[TaskKind::Converge]),
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
        // How long a Node that vanished may stay away before it is looked for; runs only without a Node.
        (Timer::Deadline, Length::Ms(10 * MINUTE)),
    ]),
    row(MachinePhase::Checking, "{host} to be compared").awaits(&[TaskKind::Plan]),
    row(MachinePhase::Applying, "the node's second section").awaits(&[TaskKind::Converge]),
    row(MachinePhase::ApprovalWait, "approval (dormer approve)"),
    row(
        MachinePhase::OwnerWait,
        "an owner: nobody would replace this Machine",
    ),
    row(MachinePhase::LeaseWait, "the rollout's lease").timers(&[
        // How long a Node has not to be Ready before the machine is repaired over the rollout's limit; runs only then.
        (Timer::Deadline, Length::PoolRepairAfter),
    ]),
    row(MachinePhase::Closing, "the fence to be closed")
        .awaits(&[TaskKind::CloseFence])
        .even_paused(),
    // Draining: drain.rs
    row(MachinePhase::Opening, "the fence to be opened")
        .awaits(&[TaskKind::OpenFence, TaskKind::FindNode])
        .disturbs(),
    row(MachinePhase::Evicting, "pods to leave")
        .awaits(&[TaskKind::Evict, TaskKind::OpenFence])
        .disturbs()
        .timers(&[
            // Between two passes of evictions.
            (Timer::Again, Length::Ms(5 * SECOND)),
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
    row(MachinePhase::Leaving, "the Machine to be gone")
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
            // How long a closed run keeps waiting for the word that its replacement serves.
            (Timer::Deadline, Length::Ms(30 * 24 * HOUR)),
        ]),
    // Nothing goes on by itself: ended.rs
    row(
        MachinePhase::Failed,
        "a retry (dormer retry), or a change that gives a reason",
    ),
    row(MachinePhase::Gone, "").leaves(),
];

/// From the Machine's deletion to its end: drain, instance, finalizers.
const VANISH: u64 = 2 * HOUR;

/// Whether every row stands where its phase stands in [`MachinePhase`]: a row is looked up by place.
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
const _: () = assert!(in_order(), "a row of PHASES stands in the wrong place");

impl PhaseRow {
    /// The row of a phase.
    #[must_use]
    pub fn of(phase: MachinePhase) -> &'static Self {
        &PHASES[phase as usize]
    }

    /// How long `timer` runs in this phase. `None`: it does not wait for it.
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

    const fn leaves(mut self) -> Self {
        self.leaves = true;
        self
    }

    const fn even_paused(mut self) -> Self {
        self.even_paused = true;
        self
    }
}

/// A row that awaits no task and no timer, disturbs nobody, and stays.
const fn row(phase: MachinePhase, waits_for: &'static str) -> PhaseRow {
    PhaseRow {
        phase,
        waits_for,
        awaits: &[],
        timers: &[],
        disturbs: false,
        leaves: false,
        even_paused: false,
    }
}
