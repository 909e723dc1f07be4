//! Machine in the list of the fleet's page: its state, and whether it needs a person.

use dormer_api::{SharedRun, live::Live};
use dormer_engine_core::TaskPhase;
use dormer_proto::{
    id::Timestamp,
    phase::{Listed, MachinePhase, MachineState},
};
use dormer_views::{
    explain,
    trouble::{self, HELD_UP_SECONDS},
};
use dormer_workflows::{State, machine::View};

/// States in the list's order: those that need a person first.
pub(super) const STATES: [MachineState; 8] = [
    MachineState::Failed,
    MachineState::Provisioned,
    MachineState::Reachable,
    MachineState::Configured,
    MachineState::Draining,
    MachineState::Recreated,
    MachineState::Joined,
    MachineState::Gone,
];
/// Machine API phase of a Machine whose creation failed for good.
const GIVEN_UP: &str = "Failed";

/// Reason for which a machine needs a person, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// Its run is quarantined, and nothing happens to it until it is released.
    Quarantined,
    /// It failed, and does nothing until it is retried.
    Failed,
    /// The Machine API has marked its Machine as failed.
    GivenUp,
    /// It serves, but its Node is not Ready.
    Down,
    /// Its phase lasts longer than [`trouble::limits`] says, the cloud cannot create it, or its drain is blocked.
    Stuck,
}

/// Row of the list.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub(super) run: &'a SharedRun,
    pub(super) view: View,
    pub(super) need: Option<Need>,
}

impl<'a> Item<'a> {
    /// Row of a run. `None`: the run is not a machine's, or has ended.
    pub(super) fn of(run: &'a SharedRun, live: &Live, now: Timestamp) -> Option<Self> {
        let State::Machine(state) = &run.state else {
            return None;
        };
        if run.closed.is_some() {
            return None;
        }
        let view = state.view();
        let quarantined = live.note(&run.id).map(|_| Need::Quarantined);
        let need = quarantined.or_else(|| need(&view, now.since_ms(run.entered.at)));
        Some(Self { run, view, need })
    }

    /// State of the machine.
    pub(super) fn state(&self) -> MachineState {
        self.view.phase.state()
    }

    /// Sort key: machines that need a person first, then by state, then by name.
    pub(super) fn sort_key(&self) -> (bool, Option<Need>, usize, &str) {
        let state = STATES.iter().position(|state| *state == self.state());
        (
            self.need.is_none(),
            self.need,
            state.unwrap_or(STATES.len()),
            &self.view.name,
        )
    }

    /// Whether all words of a search occur in its searchable fields.
    pub(super) fn is_called(&self, words: &[String]) -> bool {
        let view = &self.view;
        let texts = [
            Some(&view.name),
            Some(&view.uid),
            view.node.as_ref(),
            view.address.as_ref(),
            view.owner.as_ref(),
            view.version.as_ref(),
            view.reason.as_ref(),
        ];
        let fixed = [self.state().id(), view.phase.text()].map(str::to_lowercase);
        let texts: Vec<String> = texts
            .into_iter()
            .flatten()
            .map(|it| it.to_lowercase())
            .chain(fixed)
            .collect();
        words
            .iter()
            .all(|word| texts.iter().any(|text| text.contains(word)))
    }

    /// One line about it: why it failed, or what it waits for.
    pub(super) fn reason_text(&self) -> String {
        let view = &self.view;
        if let Some((_, failure)) = &view.failure {
            return explain::cause(&failure.code, &failure.message);
        }
        let waits = view
            .waiting_for
            .as_ref()
            .map(|what| format!("waits for {what}"));
        let failure = self.run.tasks.iter().find_map(|task| match &task.phase {
            TaskPhase::Waiting { failure, .. } => Some(format!(
                "{} failed at attempt {}: {}",
                task.body.name(),
                task.attempt.0,
                explain::cause(&failure.code, &failure.message)
            )),
            TaskPhase::InFlight { .. } => None,
        });
        let draining = self.state() == MachineState::Draining;
        let held_up = view.reason.clone().filter(|_| draining);
        [view.machine_error.clone(), waits, held_up, failure]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; ")
    }
}

fn need(view: &View, for_ms: u64) -> Option<Need> {
    if view.halt.is_some() || view.deleting {
        return None;
    }
    let seconds = for_ms / 1_000;
    let conditions = view.machine_conditions.iter();
    let refused = trouble::creation_refused(conditions.map(|it| it.kind.as_str()));
    let down = view.phase == MachinePhase::Serving && view.waiting_for.is_some();
    match view.phase.state() {
        MachineState::Failed => Some(Need::Failed),
        _ if view.machine_phase.as_deref() == Some(GIVEN_UP) => Some(Need::GivenUp),
        MachineState::Joined => down.then_some(Need::Down),
        MachineState::Gone => None,
        // No wait mends a quota.
        _ if !view.served && (refused || view.machine_error.is_some()) => Some(Need::Stuck),
        MachineState::Draining if view.reason.is_some() => {
            (seconds >= HELD_UP_SECONDS).then_some(Need::Stuck)
        }
        _ => {
            let (_, stuck) = trouble::limits(view.phase)?;
            (seconds >= stuck).then_some(Need::Stuck)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_engine_core::{Entered, Run};
    use dormer_proto::{
        id::{Seq, Sum},
        machine::ConditionFact,
        message::Failure,
    };
    use dormer_workflows::machine::{Halt, Phase};
    use std::{
        collections::{BTreeMap, VecDeque},
        sync::Arc,
    };

    fn view(phase: MachinePhase) -> View {
        View {
            phase,
            ..dormer_workflows::machine::State::default().view()
        }
    }

    fn run_in(phase: Phase) -> SharedRun {
        let state = dormer_workflows::machine::State {
            phase,
            ..dormer_workflows::machine::State::default()
        };
        Arc::new(Run {
            id: "machine/u1".parse().expect("an id"),
            seq: Seq(1),
            began: Timestamp(0),
            state: state.into(),
            entered: Entered {
                seq: Seq(1),
                at: Timestamp(0),
            },
            tasks: Vec::new(),
            timers: BTreeMap::new(),
            outbox: Vec::new(),
            taken: BTreeMap::new(),
            requests: VecDeque::new(),
            facts: BTreeMap::new(),
            episodes: VecDeque::new(),
            closed: None,
            sum: Sum(0),
        })
    }

    #[test]
    fn a_failure_leads_with_its_cause_and_not_with_its_code() {
        let failed = |code, message| {
            let run = run_in(Phase::Failed {
                from: Box::new(Phase::Probing),
                failure: Failure::lasting(code, message),
            });
            let item = Item::of(&run, &Live::default(), Timestamp(0)).expect("a machine");
            item.reason_text()
        };
        assert_eq!(
            failed("ClockSkew", "its clock is -600 s off: run w32tm /resync"),
            "its clock is -600 s off: run w32tm /resync (ClockSkew)"
        );
        assert_eq!(
            failed("access_denied", "cannot write C:\\k"),
            "access denied: cannot write C:\\k (access_denied)"
        );
    }

    #[test]
    fn the_list_has_every_state() {
        assert!(MachineState::ALL.iter().all(|state| STATES.contains(state)));
    }

    #[test]
    fn who_needs_a_person_is_who_failed_was_given_up_is_down_or_does_not_move() {
        assert_eq!(need(&view(MachinePhase::Failed), 0), Some(Need::Failed));
        let given_up = View {
            machine_phase: Some("Failed".into()),
            ..view(MachinePhase::Probing)
        };
        assert_eq!(need(&given_up, 0), Some(Need::GivenUp));
        let down = View {
            waiting_for: Some("the Node".into()),
            ..view(MachinePhase::Serving)
        };
        assert_eq!(need(&down, 0), Some(Need::Down));
        assert_eq!(need(&view(MachinePhase::LeaseWait), 3_600_000), None);
        let silent = view(MachinePhase::Probing);
        assert_eq!(
            (need(&silent, 1_799_000), need(&silent, 1_800_000)),
            (None, Some(Need::Stuck))
        );
        let no_room = View {
            machine_conditions: vec![ConditionFact {
                kind: "MachineCreation".into(),
                status: "False".into(),
                reason: "MachineCreationFailed".into(),
                message: "InstanceLimitExceeded".into(),
            }],
            ..view(MachinePhase::AddressWait)
        };
        assert_eq!(need(&no_room, 0), Some(Need::Stuck), "the cloud refuses");
        let drain = View {
            reason: Some("a/pod (a budget)".into()),
            ..view(MachinePhase::Evicting)
        };
        assert_eq!(
            (need(&drain, 599_000), need(&drain, 600_000)),
            (None, Some(Need::Stuck))
        );
        let held = View {
            halt: Some(Halt::Held { by: "ann".into() }),
            ..view(MachinePhase::Failed)
        };
        assert_eq!(need(&held, 3_600_000), None, "somebody takes care of it");
    }
}
