//! A decision in the making: the state, what follows from it, and the one way to enter a phase.

use super::{
    Machine,
    phase::{Phase, Timer},
    policy,
    state::{Lease, State},
    table::{Length, TaskKind},
};
use dormer_engine_core::{Command, Decision, Now, RetryPolicy};
use dormer_proto::{id::Timestamp, machine::Task, message::Failure, rollout};

/// How long a Node is not Ready before its machine may be repaired over the limit, where the pool does not say.
pub(super) const REPAIR_AFTER_MS: u64 = 10 * 60_000;

/// A decision in the making.
pub(super) struct Draft<'a> {
    pub(super) now: Now<'a>,
    pub(super) s: State,
    commands: Vec<Command<Machine>>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(now: Now<'a>, mut s: State) -> Self {
        s.take_over_halt();
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
        self.s.halt = self.s.halts().into_iter().next();
        if known && !self.s.ignored() && self.s.reported.as_ref() != Some(&report) {
            self.report_to_rollout(rollout::Signal::Member(report.clone()));
            self.s.reported = Some(report);
        }
        Decision {
            state: self.s,
            commands: self.commands,
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

    /// Asks for a task. Of a host that is left alone nothing is asked: its phase begins anew when that ends.
    pub(super) fn run_with(&mut self, task: Task, policy: RetryPolicy) {
        let awaited = TaskKind::of(&task);
        if self.s.left_alone() && awaited.is_some_and(|kind| kind != TaskKind::CloseFence) {
            return;
        }
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

    /// Starts one of the present phase's timers, for as long as its row of the table says. `false`: there is nothing to
    /// wait for, because the pool sets no such time.
    pub(super) fn wait(&mut self, timer: Timer) -> bool {
        let ms = self.length_ms(timer);
        if ms > 0 {
            self.wait_ms(timer, ms);
        }
        ms > 0
    }

    /// The length of one of the present phase's timers, in milliseconds.
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

    /// Whether its Node has not been Ready for so long that its machine may be repaired over the limit.
    pub(super) fn is_down_for_long(&self) -> bool {
        let after = self.repair_after_ms();
        let down = self.s.down;
        down.is_some_and(|down| down.long || self.now.at.since_ms(down.since) >= after)
    }

    /// Starts one of the present phase's timers as if it had been started at `since`. `false`: its time is over.
    pub(super) fn wait_since(&mut self, timer: Timer, since: Timestamp) -> bool {
        let ms = self.length_ms(timer);
        let left = ms.saturating_sub(self.now.at.since_ms(since));
        if left > 0 {
            self.wait_ms(timer, left);
        }
        left > 0
    }

    /// Starts a timer for another time than the table's.
    pub(super) fn wait_ms(&mut self, timer: Timer, ms: u64) {
        self.push(Command::StartTimer(timer, ms));
    }

    /// Enters `phase`: ends what only the phase before waited for, and asks for what this one needs. A machine that
    /// is halted stands in the phase and begins nothing, unless it holds the lease: a slot is always given back.
    pub(super) fn enter(&mut self, phase: Phase) {
        let phase = self.protect(phase);
        for (timer, _) in self.s.phase.row().timers {
            if phase.row().length(*timer).is_none() {
                self.push(Command::CancelTimer(*timer));
            }
        }
        self.s.phase = phase;
        if !self.halted() {
            self.begin_phase();
        }
    }

    /// The present phase begins anew: what is under way ends.
    pub(super) fn begin_again(&mut self) {
        self.cancel_tasks();
        self.enter(self.s.phase.clone());
    }

    /// Whether the present phase begins nothing now.
    pub(super) fn halted(&self) -> bool {
        let held = matches!(self.s.lease, Lease::Held { .. });
        let paused = self.s.paused.is_some() && !self.s.phase.row().even_paused;
        self.s.left_alone() || paused || (self.s.ignored() && !held)
    }

    /// Whether nothing that is new is begun on the machine, by whoever's word.
    pub(super) fn rests(&self) -> bool {
        self.s.paused.is_some() || self.s.held.is_some() || self.s.ignored()
    }

    /// A node that serves is never disturbed without the lease, whichever way a phase is entered (a reset, a retry, a
    /// new version in the middle of a step): its host is compared, and what differs takes the way of every change.
    fn protect(&self, phase: Phase) -> Phase {
        match phase.row().disturbs && self.s.protected() {
            true => Phase::Checking,
            false => phase,
        }
    }

    /// The step failed for good: the run stays where it is, says why, and keeps its lease.
    pub(super) fn fail(&mut self, failure: Failure) {
        let from = Box::new(self.s.phase.clone());
        self.enter(Phase::Failed { from, failure });
    }

    /// A failure that names what a person can do: a deadline that passed, or what no further try would mend.
    pub(super) fn lasting(&mut self, code: &str, message: impl Into<String>) {
        self.fail(Failure::lasting(code, message.into()));
    }
}
