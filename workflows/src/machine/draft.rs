//! Draft of a machine's decision: the new state, the commands, and `enter`, the only way into a phase.

use super::{
    Machine,
    input::Request,
    phase::{Phase, Timer},
    policy,
    state::{Failing, Halt, Lease, LeasedRequest, State},
    table::{Length, TaskKind},
};
use dormer_engine_core::{Command, Decision, Now, RetryPolicy};
use dormer_proto::{
    id::Timestamp,
    machine::{Blocker, Task},
    message::Failure,
    phase::{Listed, MachinePhase, MachineState},
    rollout,
};

/// How long a Node is not Ready before its machine may be repaired over the limit, where the pool does not say.
pub(super) const REPAIR_AFTER_MS: u64 = 10 * 60_000;

/// Most pods without a wait that a note names.
const SKIPPED_NAMED: usize = 3;

/// Draft of a decision.
pub(super) struct Draft<'a> {
    pub(super) now: Now<'a>,
    pub(super) s: State,
    /// Phase and halts before the decision.
    before: (MachinePhase, Vec<Halt>),
    commands: Vec<Command<Machine>>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(now: Now<'a>, mut s: State) -> Self {
        s.take_over_halt();
        let before = (s.phase.id(), s.halts());
        Self {
            now,
            s,
            before,
            commands: Vec::new(),
        }
    }

    /// Notes pods that a drain does not wait for, each with its reason.
    pub(super) fn note_skipped(&mut self, skipped: &[Blocker]) {
        if skipped.is_empty() {
            return;
        }
        let named = skipped.iter().take(SKIPPED_NAMED);
        let named: Vec<String> = named.map(|it| format!("{}: {}", it.pod, it.why)).collect();
        let more = match skipped.len().saturating_sub(SKIPPED_NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        self.s.note = Some(format!("not waited for: {}{more}", named.join("; ")));
    }

    /// Finished decision. It reports to the rollout once what changed.
    pub(super) fn finish(mut self) -> Decision<Machine> {
        self.holds_are_back();
        let report = self.s.report();
        let over = matches!(self.s.phase, Phase::Gone | Phase::ReplacementWait);
        let known = self.s.machine.is_some() && !over;
        self.note_times();
        if known && !self.s.ignored() && self.s.reported.as_ref() != Some(&report) {
            self.report_to_rollout(rollout::Signal::Member(report.clone()));
            self.s.reported = Some(report);
        }
        Decision {
            state: self.s,
            commands: self.commands,
        }
    }

    /// Notes since when the phase and the halts last, and forgets a failure once its step has succeeded or failed again.
    fn note_times(&mut self) {
        let phase = self.s.phase.id();
        let halts = self.s.halts();
        let (phase_before, halts_before) = &self.before;
        let entered = *phase_before != phase;
        if entered {
            self.s.phase_since = Some(self.now.at);
        }
        if *halts_before != halts {
            self.s.halted_since = Some(self.now.at).filter(|_| !halts.is_empty());
        }
        self.s.halt = halts.into_iter().next();
        self.s.retried = self.s.retried.take().filter(|it| it.phase == phase.id());
        if entered {
            self.note_failing();
        }
    }

    /// Notes the first failure of a step, and forgets it once the machine serves or is drained.
    fn note_failing(&mut self) {
        let phase = self.s.phase.id();
        match self.s.phase.failed() {
            Some((from, _)) => {
                let from = from.id().to_string();
                if self.s.failing.as_ref().is_none_or(|it| it.phase != from) {
                    self.s.failing = Some(Failing {
                        phase: from,
                        first: self.now.at,
                        retries: 0,
                    });
                }
            }
            None if phase == MachinePhase::Drained => self.s.failing = None,
            None if phase.state() == MachineState::Joined && self.s.in_service => {
                self.s.failing = None;
            }
            None => {}
        }
    }

    pub(super) fn push(&mut self, command: Command<Machine>) {
        self.commands.push(command);
    }

    pub(super) fn begin_episode(&mut self, kind: &'static str) {
        self.push(Command::BeginEpisode(kind));
    }

    pub(super) fn end_episode(&mut self, result: impl Into<String>) {
        self.push(Command::EndEpisode(result.into()));
    }

    pub(super) fn run(&mut self, task: Task) {
        let policy = policy::of(&task);
        self.run_with(task, policy);
    }

    /// Issues a task, but none while another operator has the host: the phase restarts when that operator stops.
    pub(super) fn run_with(&mut self, task: Task, policy: RetryPolicy) {
        let awaited = TaskKind::of(&task);
        if self.s.left_alone() && awaited.is_some_and(|kind| kind != TaskKind::CloseFence) {
            return;
        }
        self.push(Command::Run(task, policy));
    }

    /// Cancels every open task, and issues the approvals of pending certificates again.
    pub(super) fn cancel_tasks(&mut self) {
        self.push(Command::CancelTasks);
        for csr in self.s.csrs.values_mut() {
            csr.asked = false;
        }
        self.approve_csrs();
    }

    /// Starts a timer of the current phase with the length in its row. `false`: no wait, because the pool does not set
    /// that time.
    pub(super) fn wait(&mut self, timer: Timer) -> bool {
        let ms = self.length_ms(timer);
        if ms > 0 {
            self.wait_ms(timer, ms);
        }
        ms > 0
    }

    /// Length of a timer of the current phase, in milliseconds.
    fn length_ms(&self, timer: Timer) -> u64 {
        let pool = self.s.pool.as_ref();
        let length = self.s.phase.row().length(timer);
        debug_assert!(length.is_some(), "{timer:?} is not in the phase's row");
        match length {
            Some(Length::Ms(ms)) => ms,
            Some(Length::PoolSoak) => pool.map_or(0, |pool| pool.soak_ms),
            Some(Length::PoolDrainTimeout) => pool.map_or(0, |pool| pool.drain_timeout_ms),
            Some(Length::PoolRepairAfter) => self.repair_after_ms(),
            Some(Length::Drift) => policy::drift_ms(self.now.run.as_str()),
            None => 0,
        }
    }

    /// How long a Node is not Ready before its machine may be repaired over the limit.
    fn repair_after_ms(&self) -> u64 {
        let pool = self.s.pool.as_ref();
        pool.and_then(|pool| pool.repair_after_ms)
            .unwrap_or(REPAIR_AFTER_MS)
    }

    /// Whether its Node has been down long enough for its machine to be repaired over the limit.
    pub(super) fn is_down_for_long(&self) -> bool {
        let after = self.repair_after_ms();
        let down = self.s.down;
        down.is_some_and(|down| down.long || self.now.at.since_ms(down.since) >= after)
    }

    /// How long until then.
    pub(super) fn repair_left_ms(&self) -> u64 {
        let lasted = self
            .s
            .down
            .map_or(0, |down| self.now.at.since_ms(down.since));
        self.repair_after_ms().saturating_sub(lasted).max(1)
    }

    /// Starts a timer of the current phase as if at `since`. `false`: it would be due already.
    pub(super) fn wait_since(&mut self, timer: Timer, since: Timestamp) -> bool {
        let ms = self.length_ms(timer);
        let left = ms.saturating_sub(self.now.at.since_ms(since));
        if left > 0 {
            self.wait_ms(timer, left);
        }
        left > 0
    }

    /// Starts a timer with a length other than the table's.
    pub(super) fn wait_ms(&mut self, timer: Timer, ms: u64) {
        self.push(Command::StartTimer(timer, ms));
    }

    /// Enters `phase`: cancels what only the last phase waited for, and issues what this one needs. A halted machine
    /// enters the phase and begins nothing, unless it holds the lease: it always returns its slot.
    pub(super) fn enter(&mut self, phase: Phase) {
        let phase = self.protect(self.before_service(phase));
        for (timer, _) in self.s.phase.row().timers {
            if phase.row().length(*timer).is_none() {
                self.push(Command::CancelTimer(*timer));
            }
        }
        if self.s.phase == Phase::Marking && self.s.checked_since.is_some() {
            self.push(Command::CancelTimer(Timer::Again));
        }
        self.s.phase = phase;
        // The end of a run is no work on its host: a paused or ignored one ends, too.
        if !self.halted() || self.s.phase == Phase::Gone {
            self.begin_phase();
        }
    }

    /// Restarts the current phase and cancels its tasks.
    pub(super) fn begin_again(&mut self) {
        self.cancel_tasks();
        self.enter(self.s.phase.clone());
    }

    /// Whether the current phase must not begin anything now.
    pub(super) fn halted(&self) -> bool {
        let held = matches!(self.s.lease, Lease::Held { .. });
        let paused = self.s.paused.is_some() && !self.s.phase.row().even_paused;
        self.s.left_alone() || paused || (self.s.ignored() && !held)
    }

    /// Whether a person or the rollout has stopped new work on the machine.
    pub(super) fn rests(&self) -> bool {
        self.s.paused.is_some() || self.s.held.is_some() || self.s.ignored()
    }

    /// Whether a machine that never served may ask for the lease to another version: it rests for no person, and nothing
    /// bars that version.
    pub(super) fn may_want_version(&self) -> bool {
        self.s.pods_before_service() && !self.rests() && self.s.barred().is_none()
    }

    /// A serving node is never disturbed without the lease, however the run enters a phase (a reset, a retry, a new
    /// version in the middle of a step). The run compares the host instead, and changes what differs in the
    /// ordinary way.
    fn protect(&self, phase: Phase) -> Phase {
        match phase.row().disturbs && self.s.protected() {
            true => Phase::Checking,
            false => phase,
        }
    }

    /// A machine that has never passed its checks does not serve, however the run enters a phase (a lease that is
    /// returned, a hold, a reset): its bring-up continues.
    fn before_service(&self, phase: Phase) -> Phase {
        let serves = matches!(
            phase,
            Phase::Serving | Phase::Checking | Phase::Applying { .. }
        );
        if !serves || !self.s.first_bring_up() {
            return phase;
        }
        match &self.s.node {
            Some(node) if self.s.comes_up() && node.ready => Phase::Soaking,
            Some(_) if self.s.comes_up() => Phase::ReadyWait,
            Some(_) | None => Phase::Address,
        }
    }

    /// Fails the step for good: the run stays in place, gives the reason, and keeps its lease.
    ///
    /// A replacement that a person asked for during the step is requested now.
    pub(super) fn fail(&mut self, failure: Failure) {
        let from = Box::new(self.s.phase.clone());
        self.enter(Phase::Failed { from, failure });
        if self.s.leased_request == Some(LeasedRequest::Recreate) && !self.s.left_alone() {
            self.is_asked(Request::Leased);
        }
    }

    /// Starts the timer of a failure that is tried again by itself.
    pub(super) fn try_again_later(&mut self) {
        if self.s.fails_for_a_while() {
            self.wait_ms(Timer::Again, policy::CHECK_AGAIN);
        }
    }

    /// Failure with advice for a person: a passed deadline, or a fault that no further attempt would mend.
    pub(super) fn lasting(&mut self, code: &str, message: impl Into<String>) {
        self.fail(Failure::lasting(code, message.into()));
    }
}
