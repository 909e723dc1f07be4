//! Action buttons of a machine's page.

use super::page::{Weight, button_after, why};
use dormer_proto::{
    machine::Signal as MachineSignal,
    phase::{Listed, MachinePhase, MachineState},
    work::Signal,
};
use dormer_views::actions::{ACTIONS, Action, ActionTarget};
use dormer_views::machine::{HaltKind, Machine};
use maud::{Markup, html};

/// Buttons for the machine's present state, with a field for the reason. The first one is emphasised, and actions that
/// lose something are in a menu.
pub(super) fn section(machine: &Machine) -> Markup {
    let path = format!("machines/{}/actions", machine.uid);
    let shown = |action: &Action, weight| {
        let path = format!("{path}/{}", action.name);
        let loss = loss(action, machine);
        let against = against(action, machine);
        button_after(&path, action, &machine.name, against, weight, loss)
    };
    let (first, others): (Vec<&Action>, Vec<&Action>) = ACTIONS
        .iter()
        .filter(|action| fits(action, machine))
        .partition(|action| first(action, machine));
    let (menu, others): (Vec<&Action>, Vec<&Action>) = others
        .into_iter()
        .partition(|action| action.danger.is_some());
    html! {
        div.actions role="group" aria-label="Actions" data-key="actions" {
            @for action in first { (shown(action, Weight::Primary)) }
            @for action in others { (shown(action, Weight::Secondary)) }
            @if !menu.is_empty() {
                details.menu data-key="menu" {
                    summary.button { "More actions" }
                    div { @for action in menu { p { (shown(action, Weight::Secondary)) span { (action.what) } } } }
                }
            }
            (why())
        }
    }
}

/// What a person confirms first: the loss of a dangerous action; of a resume, whose stops it ends.
fn loss(action: &Action, machine: &Machine) -> Option<String> {
    let by_people = machine.halts().filter(|it| it.by.is_some());
    let by_people: Vec<&str> = by_people.map(|it| it.text.as_str()).collect();
    match &action.signal {
        Some(Signal::Machine(MachineSignal::Resume)) if !by_people.is_empty() => {
            Some(by_people.join("; "))
        }
        _ => action.danger.map(str::to_owned),
    }
}

/// Whether an action resolves the machine's present wait: each of these fits only one state.
fn first(action: &Action, machine: &Machine) -> bool {
    match &action.signal {
        Some(Signal::Machine(MachineSignal::Retry)) => machine.state == MachineState::Failed,
        Some(Signal::Machine(MachineSignal::Approve | MachineSignal::Resume)) => true,
        _ => false,
    }
}

/// Whether the machine failed at a changed host key.
fn key_changed(machine: &Machine) -> bool {
    let failure = machine.failure.as_ref();
    failure.is_some_and(|failure| failure.code == "HostKeyChanged")
}

/// Whether the action has an effect now. Others get no button.
fn fits(action: &Action, machine: &Machine) -> bool {
    let Some(Signal::Machine(wish)) = &action.signal else {
        return false;
    };
    let halted = machine.halt.is_some() || machine.phase == MachinePhase::Drained;
    let useful = match wish {
        // A retry meets the same changed host key again, and is refused.
        MachineSignal::Retry if machine.state == MachineState::Failed => !key_changed(machine),
        MachineSignal::Retry => machine.waits_for_attempt(),
        MachineSignal::Approve => machine.phase == MachinePhase::ApprovalWait,
        MachineSignal::Abort => {
            let drains = matches!(
                machine.phase.known(),
                Some(MachinePhase::Opening | MachinePhase::Evicting)
            );
            machine.token.is_some() && !(machine.torn_down && drains)
        }
        MachineSignal::Resume => halted,
        // Another person's hold is one more.
        MachineSignal::Hold => !halted || machine.halts().all(|it| it.kind == HaltKind::Held),
        MachineSignal::Pause => !halted,
        MachineSignal::Remove => machine.token.is_none(),
        // A fingerprint is typed by anyone who compared it elsewhere: dormer trust-host-key.
        MachineSignal::TrustHostKey { .. } => false,
        _ => true,
    };
    let mut from = action.from.iter().filter_map(|id| MachineState::of_id(id));
    useful
        && action.on == ActionTarget::Machine
        && (action.from.is_empty() || from.any(|state| machine.state == state))
}

/// Precondition of a request. An action that responds to a state is valid in that state only; an action that stops a
/// machine is valid in any.
fn against(action: &Action, machine: &Machine) -> Option<u64> {
    let anywhere = matches!(
        action.signal,
        Some(Signal::Machine(
            MachineSignal::Pause | MachineSignal::Resume | MachineSignal::Hold
        ))
    );
    (!anywhere).then_some(machine.status.entered_seq)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use dormer_proto::id::Timestamp;
    use dormer_views::actions::{PAUSE, RECREATE, RETRY};
    use dormer_views::{
        machine::{Halt, HaltKind, PhaseFailure},
        moment::Moment,
        run::RunStatus,
    };

    /// A machine in `phase`, which it entered at record 7.
    pub(crate) fn machine_in(phase: MachinePhase) -> Machine {
        let since = Moment(Timestamp(1_763_708_400_000));
        Machine {
            name: "win-a".into(),
            namespace: "machines".into(),
            uid: "u1".into(),
            state: phase.state().into(),
            phase: phase.into(),
            phase_text: phase.text().into(),
            phase_since: None,
            usual_seconds: None,
            reason: None,
            failure: None,
            waiting_for: None,
            differs: Vec::new(),
            template_differs: Vec::new(),
            torn_down: false,
            drain: None,
            version: None,
            desired_version: None,
            node: None,
            expected_node: None,
            address: None,
            pool: "windows".into(),
            zone: None,
            labels: Default::default(),
            token: None,
            deleting: false,
            machine_phase: None,
            machine_error: None,
            machine_conditions: Vec::new(),
            owner: None,
            halt: None,
            also_halted: Vec::new(),
            hold_code: None,
            set_aside: Vec::new(),
            replaced_by: None,
            removed: false,
            would_end: Vec::new(),
            asked: None,
            retried: None,
            retries: 0,
            failing_since: None,
            ended: Vec::new(),
            not_compared: None,
            unserved: None,
            neighbour: None,
            neighbour_stop: None,
            refused: None,
            certificate_refused: None,
            foreign_node: None,
            certificates: Vec::new(),
            host_remarks: Vec::new(),
            kind: None,
            cordoned_by: None,
            down_since: None,
            created: None,
            deleted: None,
            served: false,
            attempt: None,
            tasks: Vec::new(),
            lacks: None,
            status: RunStatus {
                run: "machine/u1".into(),
                seq: 9,
                entered_seq: 7,
                began: since,
                since,
                since_seconds: 312,
                closed: None,
                episode: None,
                quarantine: None,
            },
        }
    }

    fn offered(machine: &Machine) -> Vec<&'static str> {
        ACTIONS
            .iter()
            .filter(|action| fits(action, machine))
            .map(|action| action.name)
            .collect()
    }

    #[test]
    fn only_what_does_something_is_a_button() {
        let failed = machine_in(MachinePhase::Failed);
        assert_eq!(
            offered(&failed),
            ["retry", "pause", "hold", "drain", "recreate", "remove"]
        );
        let halt = Halt {
            kind: HaltKind::Paused.into(),
            by: Some("ann".into()),
            own: None,
            who: None,
            why: None,
            text: "paused by ann".into(),
            since: None,
        };
        let paused = Machine {
            halt: Some(halt),
            ..machine_in(MachinePhase::Serving)
        };
        assert_eq!(offered(&paused), ["resume", "drain", "recreate", "remove"]);
        let drained = machine_in(MachinePhase::Drained);
        assert!(offered(&drained).contains(&"resume"));
        let draining = Machine {
            token: Some(4),
            ..machine_in(MachinePhase::Evicting)
        };
        assert_eq!(
            offered(&draining),
            ["pause", "hold", "drain", "recreate", "abort"]
        );
        let torn_down = Machine {
            torn_down: true,
            ..draining
        };
        assert_eq!(offered(&torn_down), ["pause", "hold", "drain", "recreate"]);
        let waits = machine_in(MachinePhase::ApprovalWait);
        assert!(offered(&waits).contains(&"approve"));
        let by = [&RETRY, &RECREATE, &PAUSE].map(|action| against(action, &failed));
        assert_eq!(by, [Some(7), Some(7), None]);
    }

    #[test]
    fn a_retry_is_not_offered_where_it_meets_the_same_host_key() {
        let failed = |code: &str| Machine {
            failure: Some(PhaseFailure {
                code: code.into(),
                message: "No.".into(),
                log: None,
                phase: MachinePhase::Probing.into(),
                phase_text: "probing".into(),
            }),
            ..machine_in(MachinePhase::Failed)
        };
        let shown = |code| section(&failed(code)).into_string();
        assert!(shown("DiskFull").contains("class=\"primary\""));
        assert!(!shown("HostKeyChanged").contains(">Retry<"));
        assert!(!shown("HostKeyChanged").contains("class=\"primary\""));
    }

    #[test]
    fn what_is_sensible_now_comes_first_and_what_loses_something_is_in_a_menu() {
        let shown = section(&machine_in(MachinePhase::Failed)).into_string();
        let at = |text: &str| {
            shown
                .find(text)
                .unwrap_or_else(|| panic!("{text}: {shown}"))
        };
        assert!(at("class=\"primary\"") < at(">Retry<") && at(">Retry<") < at(">Pause<"));
        assert!(at(">Pause<") < at("More actions") && at("More actions") < at(">Recreate<"));
        assert!(shown.contains("data-yes=\"Recreate machine\""), "{shown}");
        assert!(shown.contains("data-done=\"Retry accepted\""), "{shown}");
    }

    #[test]
    fn the_states_of_the_table_of_actions_are_states_of_a_machine() {
        let of_machines = ACTIONS
            .iter()
            .filter(|action| action.on == ActionTarget::Machine);
        for id in of_machines.flat_map(|action| action.from) {
            assert!(MachineState::of_id(id).is_some(), "{id}");
        }
    }
}
