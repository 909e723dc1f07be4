//! One Windows machine: Provisioned → Reachable → Configured → Joined → Draining → Recreated, `Failed` and `Gone`.
//!
//! By state: `table.rs` has a row for each phase. `provision.rs`, `configure.rs`, `serve.rs`, `drain.rs` and
//! `recreate.rs` have the behaviour of the phases on entry, on answers and on timers. A retry and a reset only enter a
//! phase again.
//!
//! By input: [`Machine::decide`] has the one `match`. `facts.rs`, `answers.rs` and `requests.rs` handle what is the
//! same in every phase, and `stage.rs` passes the rest to the phase's file. `tests/machine_table.txt` is generated from
//! this code: every phase with every input.

mod answers;
mod certificates;
mod change;
mod clock;
mod configure;
mod desired;
mod draft;
mod drain;
mod ended;
mod facts;
mod halt;
mod holds;
mod host_fence;
mod input;
mod issued;
mod lease;
mod member;
mod phase;
mod pods;
pub mod policy;
mod provision;
mod recreate;
mod removal;
mod requests;
mod serve;
mod stage;
mod state;
mod table;
mod tasks;
mod tokens;
mod view;

pub use change::*;
pub use halt::{Halt, Hold};
pub use issued::KubeletCertificates;
pub use phase::{Phase, Timer};
pub use state::*;
pub use table::{Length, PHASES, PhaseRow, TaskKind};
pub use view::{PendingRequest, View};

use self::draft::Draft;
use dormer_engine_core::{Decision, Input, Now, Workflow};
use dormer_proto::{
    id::RunId,
    machine::{self, Outcome, Task},
    message::{ObjectRef, Reporter},
    subject::{API_CLASS, APPROVALS, HOST_CLASS},
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
        // A run begins with an observation of the Machine; a signal to an unknown machine has no receiver.
        (!by_signal).then(State::default)
    }

    fn decide(now: Now<'_>, state: State, input: Input<Self>) -> Decision<Self> {
        let mut draft = Draft::new(now, state);
        match input {
            _ if draft.state.phase == Phase::Gone => {}
            Input::Started => draft.begin_episode("bring-up"),
            Input::Observed { object, fact } => draft.observed(&object, fact),
            Input::Finished { task, outcome } => draft.finished(&task, outcome),
            Input::Exhausted { task, failure } => draft.exhausted(&task, failure),
            Input::Fired(timer) => draft.fired(timer),
            Input::Signalled {
                from,
                signal: Signal::Machine(signal),
            } => {
                draft.signalled(&from, signal);
            }
            // A rollout never closes, so it refuses no signal; a machine receives no signals for rollouts.
            Input::Signalled { .. } | Input::Refused { .. } => {}
        }
        draft.finish()
    }

    fn reopen(ended: &State, object: &ObjectRef, fact: &Fact) -> Option<State> {
        let Fact::Machine(machine::Fact::Machine(machine)) = fact else {
            return None;
        };
        // etcd was restored, or a list was incomplete. A Machine that is being deleted needs no run.
        if object.kind != "Machine" || machine.deleting || !ended.machine_gone {
            return None;
        }
        Some(State {
            // The same UID is the same host: its key stays pinned.
            host: Host {
                pin: ended.host.pin.clone(),
                generation: ended.host.generation,
                restored: ended.host.restored
                    || host_fence::is_another_store(ended.store(), machine.store),
                ..Host::default()
            },
            closed: ended.closed,
            note: Some("its Machine was gone, and is there again".into()),
            ..ended.pauses_and_holds()
        })
    }

    fn resets_ended(ended: &State) -> bool {
        // A person closed it, and a person may take that back.
        !ended.machine_gone
    }

    fn reset(now: Now<'_>, then: State, current: &State) -> Decision<Self> {
        // A reset may be the first input after an older build.
        let mut current = current.clone();
        current.take_over_halt();
        current.take_over_service();
        current.take_over_restored();
        let current = &current;
        let closed_by_a_person = current.phase == Phase::Gone && !current.machine_gone;
        let deleting = current.machine.as_ref().is_some_and(|m| m.deleting);
        if deleting || (current.phase.leaving() && !closed_by_a_person) {
            // An old record does not revive a machine that is gone or leaving: its phase restarts.
            let mut draft = Draft::new(now, current.clone());
            draft.begin_again();
            return draft.finish();
        }
        let same_lease = then.lease == current.lease;
        let mut draft = Draft::new(now, state_of_the_world(then, current));
        // A phase in which it served is no proof that its present Node has.
        draft.state.in_service = current.in_service;
        draft.state.csrs.retain(|_, csr| csr.fact.pending);
        for csr in draft.state.csrs.values_mut() {
            csr.asked = false;
        }
        draft.approve_csrs();
        draft.go_back(same_lease, &current.phase);
        draft.finish()
    }

    fn label(state: &State) -> &'static str {
        state.phase.label()
    }

    fn reporter(task: &Task) -> Reporter {
        task.reporter()
    }

    fn class(task: &Task) -> &'static str {
        if matches!(task, Task::ApproveCsr { .. }) {
            APPROVALS
        } else if task.host().is_some() {
            HOST_CLASS
        } else {
            API_CLASS
        }
    }
}

/// Phase and intentions of an earlier record, with the present facts, lease, pauses and holds. What this does not name is
/// the present.
fn state_of_the_world(then: State, current: &State) -> State {
    let same = is_same_request(&then, current);
    let State {
        leased_request,
        request_progress,
        ..
    } = then;
    State {
        phase: then.phase,
        phase_since: then.phase_since,
        target: then.target,
        // A build that noted no time let every request override a cordon. That cordon may be newer.
        leased_request: leased_request.filter(|_| same || request_progress.at.is_some()),
        request_progress: RequestProgress {
            over_cordon: same && current.request_progress.over_cordon,
            ..request_progress
        },
        moved: then.moved,
        removal: then.removal,
        refused_lately: then.refused_lately,
        checks: then.checks,
        checked_since: then.checked_since,
        retried: then.retried,
        replaced_for: then.replaced_for,
        failing: then.failing,
        machine_gone: then.machine_gone,
        note: then.note,
        ..current.clone()
    }
}

/// Whether the request of an earlier record is still the present one.
fn is_same_request(then: &State, current: &State) -> bool {
    let at = |state: &State| state.request_progress.at;
    current.leased_request.is_some() && at(current) == at(then)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::{machine::CsrExpectation, message::Reporter, subject::WORKER_CLASSES};

    #[test]
    fn an_approval_is_an_approvers_and_everything_else_a_workers() {
        let approve = Task::ApproveCsr {
            csr: "c".into(),
            expect: CsrExpectation::default(),
        };
        assert_eq!(Machine::class(&approve), APPROVALS);
        assert_eq!(Machine::reporter(&approve), Reporter::Approver);
        let probe = Task::Probe {
            host: dormer_proto::machine::HostRef::default(),
        };
        let close = Task::CloseFence {
            machine: dormer_proto::machine::MachineRef::default(),
            node: None,
            token: dormer_proto::id::LeaseToken(1),
        };
        for task in [probe, close] {
            assert!(WORKER_CLASSES.contains(&Machine::class(&task)));
            assert_eq!(Machine::reporter(&task), Reporter::Worker);
        }
    }
}
