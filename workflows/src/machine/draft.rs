//! A decision in the making: the state, what follows from it, and the one way to enter a phase.

use super::{
    Machine, policy,
    state::{Change, Halt, How, Lease, Phase, State, Timer},
};
use dormer_engine_core::{Command, Decision, Now, RetryPolicy};
use dormer_proto::{
    id::LeaseToken,
    machine::{self, CsrExpectation, HostRef, Section, Task},
    message::Failure,
    pool::{DEFAULT_POOL, Desired},
    rollout,
    work::{Signal, rollout_run},
};

/// A decision in the making.
pub(super) struct Draft<'a> {
    pub(super) now: Now<'a>,
    pub(super) s: State,
    commands: Vec<Command<Machine>>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(now: Now<'a>, s: State) -> Self {
        Self {
            now,
            s,
            commands: Vec::new(),
        }
    }

    /// The decision. The rollout is told what changed for it, once.
    pub(super) fn finish(mut self) -> Decision<Machine> {
        let report = self.s.report();
        let over = matches!(self.s.phase, Phase::Gone | Phase::ReplacementWait);
        let known = self.s.machine.is_some() && !over;
        if known && self.s.halt != Some(Halt::Ignored) && self.s.reported.as_ref() != Some(&report)
        {
            self.report_to_rollout(rollout::Signal::Member(report.clone()));
            self.s.reported = Some(report);
        }
        Decision {
            state: self.s,
            commands: self.commands,
        }
    }

    fn push(&mut self, command: Command<Machine>) {
        self.commands.push(command);
    }

    pub(super) fn timer(&mut self, timer: Timer, ms: u64) {
        self.push(Command::StartTimer(timer, ms));
    }

    pub(super) fn report_to_rollout(&mut self, signal: rollout::Signal) {
        let pool = self
            .s
            .pool
            .as_ref()
            .map_or(DEFAULT_POOL, |pool| pool.pool.as_str());
        // A pool's name is a Kubernetes name: short enough for a run id.
        if let Ok(to) = rollout_run(pool) {
            self.push(Command::Signal(to, Signal::Rollout(signal)));
        }
    }

    pub(super) fn begin_episode(&mut self, kind: &'static str) {
        self.push(Command::BeginEpisode(kind));
    }

    pub(super) fn end_episode(&mut self, result: impl Into<String>) {
        self.push(Command::EndEpisode(result.into()));
    }

    fn run(&mut self, task: Task) {
        let policy = policy::of(&task);
        self.run_with(task, policy);
    }

    fn run_with(&mut self, task: Task, policy: RetryPolicy) {
        self.push(Command::Run(task, policy));
    }

    /// Ends every task under way; certificates that still wait are asked for again.
    pub(super) fn cancel_tasks(&mut self) {
        self.push(Command::CancelTasks);
        for csr in self.s.csrs.values_mut() {
            csr.asked = false;
        }
        self.approve_csrs();
    }

    /// Enters `phase`: ends what only the phase before waited for, and asks for what this one needs. A machine that
    /// is halted stands in the phase and begins nothing, unless it holds the lease: a slot is always given back.
    pub(super) fn enter(&mut self, phase: Phase) {
        let phase = self.guarded(phase);
        for timer in timers_of(&self.s.phase) {
            if !timers_of(&phase).contains(timer) {
                self.push(Command::CancelTimer(*timer));
            }
        }
        self.s.phase = phase;
        if !self.halted() {
            self.begin_phase();
        }
    }

    pub(super) fn halted(&self) -> bool {
        let held = matches!(self.s.lease, Lease::Held { .. });
        match &self.s.halt {
            None => false,
            Some(Halt::Paused { .. }) => !matches!(
                self.s.phase,
                Phase::Closing | Phase::Undoing | Phase::ClosingGone | Phase::Leaving
            ),
            Some(Halt::Held { .. }) => false,
            Some(Halt::Ignored) => !held,
        }
    }

    /// A node that serves is never disturbed without the lease, whichever way a phase is entered (a reset, a retry).
    fn guarded(&self, phase: Phase) -> Phase {
        let disturbs = matches!(
            phase,
            Phase::ConvergingHost { .. }
                | Phase::Rebooting { .. }
                | Phase::TearingDown
                | Phase::Reprobing
                | Phase::Deleting
                | Phase::Evicting(..)
                | Phase::Opening(_)
                | Phase::Drained
        );
        let free = self.s.lease.token().is_some() || !self.s.served || self.s.node.is_none();
        if !disturbs || free {
            return phase;
        }
        let how = self.s.how(machine::ChangeClass::Restart);
        Phase::LeaseWait(Change {
            how,
            differs: vec!["a step that was begun before".into()],
        })
    }

    fn begin_phase(&mut self) {
        match self.s.phase.clone() {
            Phase::Address => self.begin_address(),
            Phase::Probing => self.probe(),
            Phase::KeyWait { .. } => self.timer(Timer::Again, policy::KEY_AGAIN),
            Phase::Reprobing => self.probe(),
            Phase::Adopting => self.plan(true),
            Phase::PoolWait => {}
            Phase::ConvergingHost { .. } => self.begin_converging_host(),
            Phase::Rebooting { boot_id, asked } => self.begin_rebooting(boot_id, asked),
            Phase::NodeWait => self.begin_node_wait(),
            Phase::ConvergingNode => self.begin_converging_node(),
            Phase::ReadyWait => self.begin_ready_wait(),
            Phase::Soaking => self.begin_soaking(),
            Phase::Marking => self.mark(),
            Phase::Serving => self.begin_serving(),
            Phase::Checking => self.plan(false),
            Phase::Applying { section } => self.converge(section),
            Phase::ApprovalWait(_) | Phase::OwnerWait(_) | Phase::Drained => {}
            Phase::LeaseWait(_) => self.request(),
            Phase::Opening(change) => self.open(&change),
            Phase::Evicting(_, drain) => self.evict(drain.force),
            Phase::Deleting => self.delete(),
            Phase::Vanishing | Phase::Leaving => self.timer(Timer::Deadline, policy::VANISH_MAX),
            Phase::TearingDown => self.tear_down(),
            Phase::Closing | Phase::Undoing | Phase::ClosingGone => self.close(),
            Phase::ReplacementWait => self.timer(Timer::Deadline, policy::REPLACEMENT_MAX),
            Phase::Failed { .. } => {}
            Phase::Gone => self.push(Command::Complete),
        }
    }

    /// The step failed for good: the run stays where it is, says why, and keeps its lease.
    pub(super) fn fail(&mut self, failure: Failure) {
        let from = Box::new(self.s.phase.clone());
        self.enter(Phase::Failed { from, failure });
    }

    /// What is said of a deadline that passed.
    pub(super) fn overdue(&mut self, code: &str, message: String) {
        self.fail(Failure::lasting(code, message));
    }

    // What each phase asks for.

    fn begin_address(&mut self) {
        if self.s.address().is_some() {
            self.enter(Phase::Probing);
        }
    }

    fn begin_converging_host(&mut self) {
        match self.s.desired().cloned() {
            None => self.enter(Phase::PoolWait),
            // What it was granted for is finished; what came meanwhile may not follow it.
            Some(_) if self.s.bar().is_some() && self.s.target != Desired::default() => {
                self.converge(Section::Host);
            }
            Some(_) if self.s.bar().is_some() => self.enter(Phase::PoolWait),
            Some(desired) => {
                self.s.target = desired;
                self.converge(Section::Host);
            }
        }
    }

    fn begin_rebooting(&mut self, boot_id: String, asked: bool) {
        self.timer(Timer::Deadline, policy::REBOOT_MAX);
        if asked {
            self.timer(Timer::Again, policy::REBOOT_CHECK);
        } else {
            let host = self.host();
            let generation = self.s.host.generation;
            self.run(Task::Reboot {
                host,
                boot_id,
                generation,
            });
        }
    }

    fn begin_node_wait(&mut self) {
        if self.s.node.is_some() {
            self.enter(Phase::ConvergingNode);
        } else {
            self.timer(Timer::Deadline, policy::NODE_MAX);
        }
    }

    /// The Node has to have the name that was expected: certificates were approved for that one (scenario 39).
    fn begin_converging_node(&mut self) {
        let found = self.s.node.as_ref().map(|node| node.name.clone());
        match (found, self.s.host.node_name.clone()) {
            (None, _) => self.enter(Phase::NodeWait),
            (Some(found), Some(expected)) if found != expected => {
                let message = format!("the Node is named {found}; {expected} was expected");
                self.fail(Failure::lasting("NameMismatch", message));
            }
            _ => self.converge(Section::Node),
        }
    }

    fn begin_ready_wait(&mut self) {
        if self.s.node.as_ref().is_some_and(|node| node.ready) {
            self.enter(Phase::Soaking);
        } else {
            self.timer(Timer::Deadline, policy::READY_MAX);
        }
    }

    fn begin_soaking(&mut self) {
        match self.s.pool.as_ref().map_or(0, |pool| pool.soak_ms) {
            0 => self.enter(Phase::Marking),
            ms => self.timer(Timer::Soak, ms),
        }
    }

    fn begin_serving(&mut self) {
        self.s.served = true;
        self.timer(Timer::Drift, policy::drift_ms(self.now.run.as_str()));
        if self.s.node.is_none() {
            self.timer(Timer::Deadline, policy::NODE_AWAY_MAX);
        }
        self.consider();
    }

    /// Whether a serving machine has to change.
    pub(super) fn consider(&mut self) {
        let resting = self.s.phase == Phase::Serving && self.s.halt.is_none();
        if !resting {
            return;
        }
        if self.s.wish.is_some() {
            let how = self.s.how(machine::ChangeClass::Drain);
            self.want(Change {
                how,
                differs: vec!["a person asked for it".into()],
            });
        } else if self.s.differs() {
            self.enter(Phase::Checking);
        }
    }

    /// Asks for a change through the lease, once nothing stands against it.
    pub(super) fn want(&mut self, change: Change) {
        let owned = self
            .s
            .machine
            .as_ref()
            .is_some_and(|machine| machine.owner.is_some());
        if change.how == How::Recreate && !owned {
            self.enter(Phase::OwnerWait(change));
        } else if self.s.needs_approval() {
            self.enter(Phase::ApprovalWait(change));
        } else {
            self.enter(Phase::LeaseWait(change));
        }
    }

    pub(super) fn request(&mut self) {
        let report = self.s.report();
        self.s.lease = Lease::Wanted;
        self.s.reported = Some(report.clone());
        self.report_to_rollout(rollout::Signal::Request { report });
    }

    /// The wish for the lease is taken back.
    pub(super) fn withdraw(&mut self) {
        if self.s.lease == Lease::Wanted {
            self.s.lease = Lease::None;
            self.report_to_rollout(rollout::Signal::Withdraw);
        }
    }

    /// The slot is given back; the token is closed on every object.
    pub(super) fn release(&mut self, replaced: bool) {
        if let Some(token) = self.s.lease.token() {
            let deleted = self.s.machine.as_ref().and_then(|machine| machine.deleted);
            self.s.lease = Lease::None;
            self.s.closed = self.s.closed.max(token);
            self.report_to_rollout(rollout::Signal::Release {
                token,
                replaced,
                deleted,
            });
            if self.s.halt == Some(Halt::Ignored) {
                self.leave_rollout(false, true);
            }
        }
    }

    // Tasks.

    fn host(&self) -> HostRef {
        let platform = self
            .s
            .machine
            .as_ref()
            .map(|m| m.platform.clone())
            .unwrap_or_default();
        HostRef {
            machine: self.s.machine_ref(),
            address: self.s.address().unwrap_or_default().to_owned(),
            // Azure's images know `capi`, all others `Administrator`.
            user: if platform == "Azure" {
                "capi"
            } else {
                "Administrator"
            }
            .to_owned(),
            pin: self.s.host.pin.clone(),
            platform,
        }
    }

    fn node(&self) -> Option<String> {
        self.s.node_name()
    }

    fn token(&self) -> LeaseToken {
        self.s.lease.token().unwrap_or_default()
    }

    pub(super) fn probe(&mut self) {
        let task = Task::Probe { host: self.host() };
        let adopting = self.s.served && self.s.phase == Phase::Probing;
        let policy = if adopting {
            policy::ADOPTION_PROBE
        } else {
            policy::of(&task)
        };
        self.run_with(task, policy);
    }

    fn plan(&mut self, adopt: bool) {
        let host = self.host();
        let generation = self.s.host.generation;
        match self.s.desired().cloned() {
            None if adopt => self.s.note = Some("the pool does not say what it should be".into()),
            None => self.enter(Phase::Serving),
            Some(desired) => {
                let node_name = self.node();
                self.run(Task::Plan {
                    host,
                    desired,
                    node_name,
                    adopt,
                    generation,
                });
            }
        }
    }

    fn converge(&mut self, section: Section) {
        self.run(Task::Converge {
            host: self.host(),
            section,
            desired: self.s.target.clone(),
            generation: self.s.host.generation,
            node_name: self.node(),
        });
    }

    fn tear_down(&mut self) {
        self.run(Task::TearDown {
            host: self.host(),
            generation: self.s.host.generation,
        });
    }

    fn mark(&mut self) {
        if let Some(node) = self.node() {
            self.run(Task::MarkNode {
                machine: self.s.machine_ref(),
                node,
                version: self.s.target.version.clone(),
                pin: self.s.host.pin.clone(),
            });
        } else {
            self.enter(Phase::NodeWait);
        }
    }

    pub(super) fn open(&mut self, change: &Change) {
        let marked = matches!(self.s.lease, Lease::Held { marked: true, .. });
        self.run(Task::OpenFence {
            machine: self.s.machine_ref(),
            node: self.node(),
            token: self.token(),
            marked,
            cordon: change.how != How::Restart,
        });
    }

    pub(super) fn evict(&mut self, force: bool) {
        if let Some(node) = self.node() {
            let machine = self.s.machine_ref();
            let token = self.token();
            self.run(Task::Evict {
                machine,
                node,
                token,
                force,
            });
        }
    }

    fn delete(&mut self) {
        let machine = self.s.machine_ref();
        let token = self.token();
        self.run(Task::DeleteMachine { machine, token });
    }

    fn close(&mut self) {
        let machine = self.s.machine_ref();
        let token = self.token();
        self.run(Task::CloseFence {
            machine,
            node: self.node(),
            token,
        });
    }

    /// Has every pending CSR looked at that is ours to approve now: none of a machine that is leaving or halted.
    pub(super) fn approve_csrs(&mut self) {
        let deleting = self
            .s
            .machine
            .as_ref()
            .is_some_and(|machine| machine.deleting);
        let Some(expect) = self.expectation() else {
            return;
        };
        if deleting || self.s.phase.leaving() || self.halted() {
            return;
        }
        let mut tasks = Vec::new();
        for csr in self.s.csrs.values_mut() {
            if csr.fact.pending && !csr.asked && csr.refused.is_none() {
                csr.asked = true;
                tasks.push(Task::ApproveCsr {
                    csr: csr.fact.name.clone(),
                    expect: expect.clone(),
                });
            }
        }
        for task in tasks {
            self.run(task);
        }
    }

    fn expectation(&self) -> Option<CsrExpectation> {
        let machine = self.s.machine.as_ref()?;
        let node_name = self
            .s
            .host
            .node_name
            .clone()
            .or_else(|| self.s.node_name())?;
        let mut sans = machine.addresses.clone();
        sans.extend(machine.names.iter().cloned());
        sans.push(node_name.clone());
        // A host that is configured anew asks for its first certificate again, though its old Node still stands.
        let anew = !self.s.served || (self.s.lease.token().is_some() && !self.s.phase.joined());
        Some(CsrExpectation {
            node_name,
            sans,
            machine_created: machine.created,
            node_uid: self
                .s
                .node
                .as_ref()
                .filter(|_| !anew)
                .map(|node| node.uid.clone()),
            provider_id: machine.provider_id.clone(),
        })
    }
}

/// The timers that a phase waits for.
fn timers_of(phase: &Phase) -> &'static [Timer] {
    match phase {
        Phase::KeyWait { .. } => &[Timer::Again],
        Phase::Rebooting { .. } => &[Timer::Again, Timer::Deadline],
        Phase::NodeWait
        | Phase::ReadyWait
        | Phase::Vanishing
        | Phase::Leaving
        | Phase::ReplacementWait => &[Timer::Deadline],
        Phase::Soaking => &[Timer::Soak],
        Phase::Serving => &[Timer::Drift, Timer::Deadline],
        Phase::Evicting(..) => &[Timer::Again, Timer::Drain],
        _ => &[],
    }
}
