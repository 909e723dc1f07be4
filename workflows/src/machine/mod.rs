//! One Windows machine: Provisioned → Reachable → Configured → Joined → Draining → Recreated, `Failed` and `Gone`.
//!
//! [`Machine::decide`] is the one readable `match`; `draft.rs` says what each phase asks for when it is entered, so
//! that a retry and a reset are "enter that phase again" and nothing else. The table of every phase and input is
//! generated from this code (`tests/machine_table.txt`).

mod answers;
mod draft;
mod facts;
pub mod policy;
mod requests;
mod state;
mod view;

pub use state::*;
pub use view::View;

use self::draft::Draft;
use dormer_engine_core::{Decision, Input, Now, Workflow};
use dormer_proto::{
    id::RunId,
    machine::{Outcome, Task},
    message::Failure,
    pool::AfterTimeout,
    work::{Fact, Signal},
};

/// The machine workflow. A run is `machine/<UID of the Machine>`.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine;

impl Workflow for Machine {
    const SCHEMA: u16 = dormer_proto::work::SCHEMA;
    type State = State;
    type Task = Task;
    type Outcome = Outcome;
    type Fact = Fact;
    type Timer = Timer;
    type Signal = Signal;

    fn start(_: &RunId, by_signal: bool) -> Option<State> {
        // A machine begins by being seen; a signal to one that never was finds nobody.
        (!by_signal).then(State::default)
    }

    fn decide(now: Now<'_>, state: State, input: Input<Self>) -> Decision<Self> {
        let mut draft = Draft::new(now, state);
        match input {
            _ if draft.s.phase == Phase::Gone => {}
            Input::Started => draft.begin_episode("bring-up"),
            Input::Observed { object, fact } => draft.observed(&object, fact),
            Input::Finished { outcome, .. } => draft.finished(outcome),
            Input::Exhausted { task, failure } => draft.exhausted(&task, failure),
            Input::Fired(timer) => draft.fired(timer),
            Input::Signalled {
                from,
                signal: Signal::Machine(signal),
            } => {
                draft.signalled(&from, signal);
            }
            // A rollout is never closed and a machine is told nothing that is a rollout's.
            Input::Signalled { .. } | Input::Refused { .. } => {}
        }
        draft.finish()
    }

    fn reset(now: Now<'_>, then: State, current: &State) -> Decision<Self> {
        let mut draft = Draft::new(now, state_of_the_world(then, current));
        let phase = draft.s.phase.clone();
        if draft.s.phase == Phase::Gone || current.phase.leaving() {
            // What is gone does not come back with an old record.
            draft.s.phase = current.phase.clone();
        }
        for csr in draft.s.csrs.values_mut() {
            csr.asked = false;
        }
        draft.approve_csrs();
        draft.go_on_from(phase);
        draft.finish()
    }

    fn label(state: &State) -> &'static str {
        state.phase.label()
    }

    fn class(task: &Task) -> &'static str {
        match task {
            Task::Probe { .. }
            | Task::Converge { .. }
            | Task::Reboot { .. }
            | Task::Plan { .. }
            | Task::TearDown { .. } => "host",
            _ => "api",
        }
    }
}

/// An earlier record's phase and intentions, with the world and the lease as they are now.
fn state_of_the_world(then: State, current: &State) -> State {
    State {
        machine: current.machine.clone(),
        node: current.node.clone(),
        csrs: current.csrs.clone(),
        pool: current.pool.clone(),
        host: current.host.clone(),
        version: current.version.clone(),
        lease: current.lease,
        served: current.served,
        reported: current.reported.clone(),
        ..then
    }
}

impl Draft<'_> {
    fn fired(&mut self, timer: Timer) {
        match (self.s.phase.clone(), timer) {
            (Phase::KeyWait { .. }, Timer::Again) => self.probe(),
            (Phase::Rebooting { .. }, Timer::Again) => self.probe(),
            (Phase::Rebooting { boot_id, .. }, Timer::Deadline) => {
                let message = format!("the host still runs the boot {boot_id}, which should end");
                self.overdue("RebootOverdue", message);
            }
            (Phase::NodeWait, Timer::Deadline) => self.overdue("NodeOverdue", self.no_node()),
            (Phase::ReadyWait, Timer::Deadline) => {
                let message = "the Node is there and does not become Ready; see its conditions";
                self.overdue("NotReadyOverdue", message.into());
            }
            (Phase::Soaking, Timer::Soak) => self.enter(Phase::Marking),
            (Phase::Serving, Timer::Drift) if !self.halted() => self.enter(Phase::Checking),
            (Phase::Serving, Timer::Deadline) if self.s.node.is_none() => self.node_stays_away(),
            (Phase::Evicting(_, drain), Timer::Again) => self.evict(drain.force),
            (Phase::Evicting(change, drain), Timer::Drain) => self.drain_overdue(change, drain),
            (Phase::Vanishing | Phase::Leaving, Timer::Deadline) => {
                let message = "the Machine is being deleted and does not go: see its finalizers, \
                               lifecycle hooks and conditions";
                self.s.note = Some(message.into());
                self.timer(Timer::Deadline, policy::VANISH_MAX);
            }
            (Phase::ReplacementWait, Timer::Deadline) => self.enter(Phase::Gone),
            _ => {}
        }
    }

    fn no_node(&self) -> String {
        let name = self.s.host.node_name.as_deref().unwrap_or("?");
        let refused = self.s.csrs.values().find_map(|csr| csr.refused.clone());
        let csr = refused.map(|why| format!("; a certificate request was not approved: {why}"));
        format!("no Node {name} appeared{}", csr.unwrap_or_default())
    }

    fn node_stays_away(&mut self) {
        // A machine without a Node serves nobody: it is configured without the lease (docs/decisions/0002-adoption.md).
        self.s.served = false;
        if let Some(machine) = &mut self.s.machine {
            machine.node = None;
        }
        self.begin_episode("repair");
        self.enter(Phase::Probing);
    }

    fn drain_overdue(&mut self, change: Change, mut drain: Drain) {
        let policy = self
            .s
            .pool
            .as_ref()
            .map_or(AfterTimeout::Wait, |pool| pool.after_timeout);
        let blocked = drain
            .blockers
            .first()
            .map(|b| format!("{}: {}", b.pod, b.why));
        let blocked = blocked.unwrap_or_else(|| format!("{} pods are left", drain.left));
        match policy {
            AfterTimeout::Wait => {
                self.s.note = Some(format!("the drain takes longer than allowed: {blocked}"));
            }
            AfterTimeout::Abort => {
                let by = format!("the drain timed out ({blocked}); the pool's policy is abort");
                self.s.halt = Some(Halt::Held { by });
                self.cancel_tasks();
                self.enter(Phase::Undoing);
            }
            AfterTimeout::Force => {
                self.s.note = Some(format!("evicting without budgets: {blocked}"));
                drain.force = true;
                self.s.phase = Phase::Evicting(change, drain);
            }
        }
    }

    /// Goes on from `phase`, as a retry and a reset do.
    pub(super) fn go_on_from(&mut self, phase: Phase) {
        let phase = match phase {
            // The record of a failure goes on from the step that failed.
            Phase::Failed { from, .. } => *from,
            // A phase of a lease that is no longer held asks for it anew.
            Phase::Opening(change) | Phase::Evicting(change, _)
                if self.s.lease.token().is_none() =>
            {
                Phase::LeaseWait(change)
            }
            // A lease that is held is closed and given back, where the phase knows nothing of it.
            Phase::Serving
            | Phase::Checking
            | Phase::Applying { .. }
            | Phase::ApprovalWait(_)
            | Phase::OwnerWait(_)
            | Phase::LeaseWait(_)
                if self.s.lease.token().is_some() =>
            {
                Phase::Undoing
            }
            phase => phase,
        };
        self.enter(phase);
    }

    /// A failure that names what a person can do.
    pub(super) fn lasting(&mut self, code: &str, message: impl Into<String>) {
        self.fail(Failure::lasting(code, message.into()));
    }
}
