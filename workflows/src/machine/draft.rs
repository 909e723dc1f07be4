//! Draft of a machine's decision: the new state, the commands, and `enter`, the only way into a phase.

use super::{
    Machine,
    halt::Halt,
    input::PhaseRequest,
    phase::{Phase, Timer},
    policy,
    state::{Down, Failing, Lease, LeasedRequest, State},
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
    pub(super) state: State,
    /// Phase and halts before the decision.
    before: (MachinePhase, Vec<Halt>),
    commands: Vec<Command<Machine>>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(now: Now<'a>, mut state: State) -> Self {
        state.take_over_halt();
        state.take_over_service();
        state.take_over_restored();
        let before = (state.phase.id(), state.halts());
        Self {
            now,
            state,
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
        self.state.note = Some(format!("not waited for: {}{more}", named.join("; ")));
    }

    /// Finished decision. It reports to the rollout once what changed.
    pub(super) fn finish(mut self) -> Decision<Machine> {
        self.restore_holds();
        let report = self.state.report();
        let over = matches!(self.state.phase, Phase::Gone | Phase::ReplacementWait);
        let known = self.state.machine.is_some() && !over;
        self.note_times();
        if known && !self.state.ignored() && self.state.reported.as_ref() != Some(&report) {
            self.report_to_rollout(rollout::Signal::Member(report.clone()));
            self.state.reported = Some(report);
        }
        Decision {
            state: self.state,
            commands: self.commands,
        }
    }

    /// Notes since when the phase and the halts last, and forgets a failure once its step has succeeded or failed again.
    fn note_times(&mut self) {
        let phase = self.state.phase.id();
        let halts = self.state.halts();
        let (phase_before, halts_before) = &self.before;
        let entered = *phase_before != phase;
        if entered {
            self.state.phase_since = Some(self.now.at);
        }
        if *halts_before != halts {
            self.state.halted_since = Some(self.now.at).filter(|_| !halts.is_empty());
        }
        self.state.halt = halts.into_iter().next();
        self.state.retried = self
            .state
            .retried
            .take()
            .filter(|it| it.phase == phase.id());
        if entered {
            self.note_failing();
        }
    }

    /// Notes the first failure of a step, and forgets it once the machine serves or is drained.
    fn note_failing(&mut self) {
        let phase = self.state.phase.id();
        match self.state.phase.failed() {
            Some((from, _)) => {
                let from = from.id().to_string();
                if self
                    .state
                    .failing
                    .as_ref()
                    .is_none_or(|it| it.phase != from)
                {
                    self.state.failing = Some(Failing {
                        phase: from,
                        first: self.now.at,
                        retries: 0,
                    });
                }
            }
            None if phase == MachinePhase::Drained => self.state.failing = None,
            None if phase.state() == MachineState::Joined && self.state.in_service => {
                self.state.failing = None;
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
        if self.state.left_alone() && awaited.is_some_and(|kind| kind != TaskKind::CloseFence) {
            return;
        }
        self.push(Command::Run(task, policy));
    }

    /// Cancels every open task, and issues again what no phase waits for: the approvals of pending certificates, and the close
    /// of a restored token.
    pub(super) fn cancel_tasks(&mut self) {
        self.push(Command::CancelTasks);
        // The answers about those that are approved or denied already will not come.
        self.state.csrs.retain(|_, csr| csr.fact.pending);
        for csr in self.state.csrs.values_mut() {
            csr.asked = false;
        }
        self.approve_csrs();
        // Without the restore, facts that are late show the last token open for a while after its close.
        if self.state.restored {
            self.close_restored();
        }
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
        let pool = self.state.pool.as_ref();
        let length = self.state.phase.row().length(timer);
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
        let pool = self.state.pool.as_ref();
        pool.and_then(|pool| pool.repair_after_ms)
            .unwrap_or(REPAIR_AFTER_MS)
    }

    /// Whether its Node has been down long enough for its machine to be repaired over the limit.
    pub(super) fn is_down_for_long(&self) -> bool {
        let after = self.repair_after_ms();
        let down = self.state.down;
        down.is_some_and(|down| down.long || self.now.at.since_ms(down.since) >= after)
    }

    /// Restarts the time without a Ready Node: a live read found the Node Ready, so the facts are stale. Otherwise the run
    /// would ask for a lease over the limit at once, and again after each refusal.
    pub(super) fn restart_down_time(&mut self) {
        let since = self.now.at;
        self.state.down = self.state.down.map(|_| Down { since, long: false });
    }

    /// Time until its machine may be repaired over the limit, in milliseconds; at least 1.
    pub(super) fn repair_left_ms(&self) -> u64 {
        let lasted = self
            .state
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
        let phase = self.drained_before(phase);
        for (timer, _) in self.state.phase.row().timers {
            if phase.row().length(*timer).is_none() {
                self.push(Command::CancelTimer(*timer));
            }
        }
        let checks = self.state.phase == Phase::Marking && self.state.checked_since.is_some();
        // A refused drain or tear-down is tried again by that timer. After a tear-down it does not run.
        let refused = self.state.may_wait_torn_down() && phase != Phase::Reprobing;
        if checks || refused {
            self.push(Command::CancelTimer(Timer::Again));
        }
        self.state.phase = phase;
        // The end of a run is no work on its host: a paused or ignored one ends, too.
        if !self.may_not_begin() || self.state.phase == Phase::Gone {
            self.begin_phase();
        }
    }

    /// Restarts the current phase and cancels its tasks.
    pub(super) fn begin_again(&mut self) {
        self.cancel_tasks();
        self.enter(self.state.phase.clone());
    }

    /// Whether the current phase must not begin anything now.
    pub(super) fn may_not_begin(&self) -> bool {
        let held = matches!(self.state.lease, Lease::Held { .. });
        let paused = self.state.paused.is_some() && !self.state.phase.row().even_paused;
        self.state.left_alone() || paused || (self.state.ignored() && !held)
    }

    /// Whether a person or the rollout has stopped new work on the machine.
    pub(super) fn is_stopped_by_person(&self) -> bool {
        self.state.paused.is_some() || self.state.held.is_some() || self.state.ignored()
    }

    /// Whether its host has answered within the last ten minutes. What it said then still counts.
    pub(super) fn host_answered_lately(&self) -> bool {
        let lately = |at| self.now.at.since_ms(at) < policy::CHECK_AGAIN;
        self.state.host.facts_at.is_some_and(lately)
    }

    /// Whether a machine that never served may ask for the lease to another version: it rests for no person, nothing bars
    /// that version, and its host has not just said that its clock is off.
    pub(super) fn may_queue_for_version(&self) -> bool {
        let wrong_clock = self.state.host.wrong_clock_ms().is_some() && self.host_answered_lately();
        self.state.pods_before_service()
            && !self.is_stopped_by_person()
            && self.state.change_refusal().is_none()
            && !wrong_clock
    }

    /// A serving node is never disturbed without the lease, however the run enters a phase (a reset, a retry, a new
    /// version in the middle of a step). The run compares the host instead, and changes what differs in the
    /// ordinary way.
    fn protect(&self, phase: Phase) -> Phase {
        match phase.row().disturbs && self.state.protected() {
            true => Phase::Checking,
            false => phase,
        }
    }

    /// A machine that has never passed its checks does not serve, however the run enters a phase (a lease that is
    /// returned, a hold, a reset): its bring-up continues. If its host is half changed, it is set up to the end first: under
    /// the lease where pods may run, and after a comparison where its Node is down.
    fn before_service(&self, phase: Phase) -> Phase {
        let serves = matches!(
            phase,
            Phase::Serving | Phase::Checking | Phase::Applying { .. }
        );
        if !serves || !self.state.first_bring_up() {
            return phase;
        }
        let half_changed = self.state.host.half_changed;
        match &self.state.node {
            Some(_) if half_changed && self.may_queue_for_version() => self.wait_for_version(),
            Some(node) if self.state.is_coming_up() && node.ready => Phase::Soaking,
            Some(_) if self.state.is_coming_up() && !half_changed => Phase::ReadyWait,
            Some(_) | None => Phase::Address,
        }
    }

    /// Fails the step for good: the run stays in place, gives the reason, and keeps its lease.
    ///
    /// A replacement that a person asked for during the step is requested now.
    pub(super) fn fail(&mut self, failure: Failure) {
        let from = Box::new(self.state.phase.clone());
        self.enter(Phase::Failed { from, failure });
        if self.state.leased_request == Some(LeasedRequest::Recreate) && !self.state.left_alone() {
            self.is_asked(PhaseRequest::Leased);
        }
    }

    /// Starts the timer of a failure that is tried again by itself.
    pub(super) fn try_again_later(&mut self) {
        if self.state.failure_may_end_by_itself() {
            self.wait_ms(Timer::Again, policy::CHECK_AGAIN);
        }
    }

    /// Failure with advice for a person: a passed deadline, or a fault that no further attempt would mend.
    pub(super) fn lasting(&mut self, code: &str, message: impl Into<String>) {
        self.fail(Failure::lasting(code, message.into()));
    }
}
