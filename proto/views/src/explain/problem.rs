//! Machines that need attention: which, how urgently, and from which cause. `dormer status`, `dormer get` and the
//! console share these limits.

use crate::{
    explain::{cause, now},
    machine::{Condition, HaltKind, Machine, PhaseFailure, Retried, person},
    moment::{Moment, span},
    rollout::{LATE, Rollout, Slot},
    run::Task,
    timing::PhaseTiming,
};
use dormer_proto::{
    id::Timestamp,
    listed,
    phase::{MachinePhase, MachineState, RolloutState, Unavailable},
};

pub use super::{
    groups::{Group, groups, requests},
    short::in_short,
};

/// Seconds in a minute.
const MINUTE: u64 = 60;
/// Seconds after which a Node that served and is not Ready counts as stuck: a reboot with updates lasts so long
/// (docs/field-notes.md).
pub const DOWN_SECONDS: u64 = 20 * MINUTE;
/// Seconds after which a drain that pods hold up counts as stuck.
pub const HELD_UP_SECONDS: u64 = 10 * MINUTE;

listed! {
    /// How urgently a machine needs attention, most urgent first.
    pub enum Urgency {
        /// It does not continue by itself, or longer than a step may last.
        Stuck = "stuck",
        /// It waits for a person's decision.
        Person = "person",
        /// It continues, but slower than usual.
        Slow = "slow",
    }
}

/// Trouble of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineProblem {
    /// How urgent it is.
    pub urgency: Urgency,
    /// Stable code of the cause: machines with equal codes and keys have equal causes.
    pub code: String,
    /// What the code leaves open: who did what and why, which pods hold a drain up.
    pub key: Option<String>,
    /// The cause, in one sentence without a full stop.
    pub cause: String,
    /// Time at which it began. `None`: unknown.
    pub since: Option<Moment>,
}

impl MachineProblem {
    /// Seconds for which the machine has it.
    pub fn seconds(&self, machine: &Machine) -> Option<u64> {
        let Moment(Timestamp(since)) = self.since?;
        Some(now(machine).0.saturating_sub(since) / 1_000)
    }
}

/// Seconds after which a machine in `phase` is slow, and after which it is stuck. `None`: the phase has no limit of
/// its own.
pub fn limits(phase: MachinePhase) -> Option<(u64, u64)> {
    let (slow, stuck) = PhaseTiming::of(phase).limits?;
    Some((slow * MINUTE, stuck * MINUTE))
}

/// Seconds beyond the usual duration of a step from which on it is slow, if it takes less than that: short steps vary
/// most.
const SLACK_SECONDS: u64 = MINUTE;

/// Seconds after which a step is slow: at twice its usual duration, and at least a minute after it. While that is unknown, the
/// limit of its phase counts. A step is never slow later than stuck.
pub fn slow_after((slow, stuck): (u64, u64), usual: Option<u64>) -> u64 {
    let by_history = |usual: u64| (2 * usual).max(usual + SLACK_SECONDS);
    usual.map_or(slow, by_history).min(stuck)
}

/// Usual duration of the machine's step, where it is known since when the step runs. Another age could be that of
/// earlier steps.
pub(super) fn usual(machine: &Machine) -> Option<u64> {
    machine
        .usual_seconds
        .filter(|_| machine.phase_since.is_some())
}

/// Usual duration in seconds of a step that lasts too long, if that is the machine's trouble and the duration is known.
pub(super) fn usual_of_late(machine: &Machine) -> Option<u64> {
    let usual = usual(machine)?;
    let (_, code, _) = overdue(machine)?;
    let (_, found, _) = found(machine)?;
    (code == found).then_some(usual)
}

/// Whether the provider reports that it cannot create the instance.
pub fn creation_refused<'a>(kinds: impl IntoIterator<Item = &'a str>) -> bool {
    kinds
        .into_iter()
        .any(|kind| kind.starts_with("MachineCreat"))
}

/// Trouble of the machine. `None`: it serves, or continues at its usual speed.
pub fn problem(machine: &Machine) -> Option<MachineProblem> {
    let (urgency, code, cause) = found(machine)?;
    Some(MachineProblem {
        urgency,
        key: key(machine, &code, &cause),
        code,
        cause: cause.trim_end_matches('.').to_owned(),
        since: since(machine),
    })
}

/// Text that is equal for machines with one cause, where their code does not say enough: one command or one cure is right for
/// all of them.
fn key(machine: &Machine, code: &str, cause: &str) -> Option<String> {
    if let Some(quarantine) = &machine.status.quarantine {
        return Some(quarantine.code.clone());
    }
    let drained = machine.phase == MachinePhase::Drained;
    let evicting = machine.phase == MachinePhase::Evicting;
    if machine.halt.is_some() && machine.lacks.is_none() && machine.neighbour.is_none() {
        // Without the ages, which differ.
        let all: Vec<&str> = machine.halts().map(|it| it.text.as_str()).collect();
        return Some(all.join("; "));
    }
    let told = machine.neighbour.is_some() || drained || evicting;
    if told && machine.lacks.is_none() {
        return Some(cause.to_owned());
    }
    let retried = machine.retried.as_ref()?;
    let retries = machine.failure.is_none() && code == retried.failure.code;
    retried.by.clone().filter(|_| retries)
}

/// Begin of the machine's trouble, in the order of [`found`]. The age of its state is another one: a machine that has
/// served for a day may be held for a minute.
fn since(machine: &Machine) -> Option<Moment> {
    if let Some(quarantine) = &machine.status.quarantine {
        return Some(quarantine.since);
    }
    if machine.lacks.is_some() || machine.neighbour.is_some() {
        return None;
    }
    if let Some(halt) = &machine.halt {
        return halt.since;
    }
    if machine.phase == MachinePhase::Serving {
        return machine.down_since;
    }
    // A state is as old as its phase, or older. Only a machine that has joined stays in its state for good.
    let state = (machine.state != MachineState::Joined).then_some(machine.status.since);
    machine.phase_since.or(state)
}

/// Limit until which the machine continues by itself, and after which it counts as stuck. `None`: it does not, it serves, or it waits for its turn.
pub fn heals_by(machine: &Machine) -> Option<Moment> {
    let urgency = found(machine).map(|(urgency, ..)| urgency);
    if urgency.is_some_and(|it| it != Urgency::Slow) {
        return None;
    }
    let limit = match machine.phase.known()? {
        MachinePhase::Serving => {
            return down_until(machine)
                .filter(|_| urgency.is_some())
                .map(Moment);
        }
        MachinePhase::Evicting if held_up(machine).is_some() => HELD_UP_SECONDS,
        phase => limits(phase)?.1,
    };
    let begun = now(machine)
        .0
        .saturating_sub(machine.phase_seconds() * 1_000);
    Some(Moment(Timestamp(begun + limit * 1_000)))
}

/// Limit of a Node that served and is not Ready: after that it counts as stuck.
fn down_until(machine: &Machine) -> Option<Timestamp> {
    let Moment(since) = machine.down_since?;
    Some(Timestamp(since.0 + DOWN_SECONDS * 1_000))
}

/// Trouble of a machine that waits for a lease which is not granted. `None`: the machine only waits for its turn.
pub fn in_rollout(machine: &Machine, rollout: &Rollout) -> Option<MachineProblem> {
    if machine.phase != MachinePhase::LeaseWait {
        return None;
    }
    let (urgency, code, cause) = if let Some(halted) = &rollout.halted {
        (
            Urgency::Stuck,
            "halted",
            format!("the rollout is halted: {halted}"),
        )
    } else if let Some(held) = &rollout.held {
        (
            Urgency::Stuck,
            "held",
            format!("no lease is granted: {held}"),
        )
    } else if let Some(paused) = &rollout.paused {
        (
            Urgency::Person,
            "paused",
            format!("the rollout is paused by {paused}"),
        )
    } else if rollout.eroded {
        let cause = "a replacement was deleted before it served, and its MachineSet wants fewer Machines since";
        (Urgency::Person, "eroded", cause.to_owned())
    } else if cordoned(machine, rollout) {
        let by = machine.cordoned_by.as_ref().map(|by| {
            let at = by.at.map(|at| format!(", {}", at.clock(now(machine))));
            format!(" (by {}{})", by.program, at.unwrap_or_default())
        });
        let by = by.unwrap_or_default();
        let cause = format!("somebody else cordoned its Node{by}, and dormer takes no such Node");
        (Urgency::Person, "cordoned", cause)
    } else if let Some(slot) = rollout.stopped_by() {
        let how = slot.stopped.as_deref().unwrap_or_default();
        let cause = format!("{} holds the lease, and was {how}", slot.name);
        (Urgency::Person, "holder-stopped", cause)
    } else if let (Some(_), Some(waits)) = (&rollout.waits_cure, &rollout.waiting_for) {
        let cause = format!("the rollout waits for {waits}");
        (Urgency::Slow, "cluster-changes", cause)
    } else {
        return None;
    };
    Some(MachineProblem {
        urgency,
        code: code.to_owned(),
        key: None,
        cause: cause.trim_end_matches('.').to_owned(),
        since: None,
    })
}

/// Whether another client cordoned the machine's Node.
pub(super) fn cordoned(machine: &Machine, rollout: &Rollout) -> bool {
    let mut away = rollout.away.iter();
    away.any(|it| it.uid == machine.uid && it.why == Unavailable::Cordoned)
}

fn found(machine: &Machine) -> Option<(Urgency, String, String)> {
    use Urgency::{Person, Stuck};
    if machine.state == MachineState::Gone {
        return None;
    }
    if let Some(quarantine) = &machine.status.quarantine {
        let why = cause(&quarantine.code, &quarantine.why);
        return Some((
            Stuck,
            "quarantined".into(),
            format!("its run is quarantined: {why}"),
        ));
    }
    if let Some(lacks) = &machine.lacks {
        return Some((Stuck, "lacks".into(), lacks.clone()));
    }
    if let Some(runs) = &machine.neighbour {
        let (cause, _) = operator(runs);
        return Some((Person, "neighbour".into(), cause.to_owned()));
    }
    if let Some(halt) = &machine.halt {
        let code = match halt.kind.known() {
            Some(HaltKind::Paused) => "paused",
            Some(HaltKind::Held) => "held",
            Some(HaltKind::Ignored) => "ignored",
            None => halt.kind.id(),
        };
        let now = now(machine);
        let all: Vec<String> = machine.halts().map(|it| it.text_at(now)).collect();
        return Some((Person, code.into(), all.join("; ")));
    }
    if let Some(failure) = &machine.failure {
        let text = failed(machine, failure);
        return Some((Stuck, failure.code.clone(), text));
    }
    if let Some(refused) = &machine.refused {
        return Some((Stuck, refused.code.clone(), refused.message.clone()));
    }
    if machine.deleting && machine.phase != MachinePhase::Evicting {
        return overdue(machine);
    }
    if let Some((code, text)) = the_clouds(machine) {
        return Some((Stuck, code, text));
    }
    let phase = machine.phase.known();
    let waits = machine.waiting_for.clone();
    match phase {
        Some(MachinePhase::ApprovalWait) => Some((
            Person,
            "approval".into(),
            "its upgrade needs approval".into(),
        )),
        Some(MachinePhase::Drained) => {
            let text = drained(machine);
            Some((Person, "drained".into(), text))
        }
        Some(MachinePhase::OwnerWait) => Some((
            Stuck,
            "owner".into(),
            "no MachineSet would replace its Machine".into(),
        )),
        Some(MachinePhase::Serving) => match (&machine.not_compared, waits) {
            (_, None) => None,
            (Some(failure), _) => {
                let text = cause(&failure.code, &failure.message);
                Some((Stuck, failure.code.clone(), text))
            }
            // No wait mends it: a kubelet whose certificate has lapsed cannot renew it.
            (None, Some(_)) if let Some(why) = &machine.certificate_refused => {
                let text = format!(
                    "its Node is not available, and a certificate request of its kubelet was not approved: {why}"
                );
                Some((Stuck, "CertificateRefused".into(), text))
            }
            (None, Some(waits)) => Some((
                match down_until(machine) {
                    Some(until) if until > super::now(machine) => Urgency::Slow,
                    _ => Stuck,
                },
                "NotReady".into(),
                format!("it serves no more: it waits for {waits}"),
            )),
        },
        Some(MachinePhase::NodeWait) if machine.certificate_refused.is_some() => {
            let why = machine.certificate_refused.clone().unwrap_or_default();
            Some((Stuck, "CertificateRefused".into(), why))
        }
        Some(MachinePhase::Evicting) => held_up(machine)
            .or_else(|| overdue(machine))
            .or_else(|| retried(machine)),
        _ => overdue(machine).or_else(|| retried(machine)),
    }
}

/// What runs beside dormer, and the commands that stop it, if the text names them.
pub(super) fn operator(runs: &str) -> (&str, Option<&str>) {
    let parts = runs.split_once("; to stop it: ");
    parts.map_or((runs, None), |(what, cure)| (what, Some(cure)))
}

/// Who drained it, and the holds that are in force again once it is resumed.
fn drained(machine: &Machine) -> String {
    let by = person(machine.asked.as_ref().and_then(|it| it.by.as_deref()));
    let aside = machine.set_aside.iter().map(|it| it.text_at(now(machine)));
    let aside: Vec<String> = aside.collect();
    let then = match aside.as_slice() {
        [] => String::new(),
        holds => format!(", and is then again {}", holds.join("; ")),
    };
    format!("drained by {by}; it stays so until it is resumed{then}")
}

/// Text of a failure, and whether it came again after a retry.
fn failed(machine: &Machine, failure: &PhaseFailure) -> String {
    let text = cause(&failure.code, &failure.message);
    match machine.failed_again(now(machine)) {
        Some(again) => format!("{again}: {text}"),
        None => text,
    }
}

/// Step that failed, and has not succeeded since: the machine is not well yet.
fn retried(machine: &Machine) -> Option<(Urgency, String, String)> {
    let retried = machine.retried.as_ref()?;
    let code = retried.failure.code.clone();
    Some((Urgency::Slow, code, retried_text(machine, retried)))
}

/// `being retried by ann (new key) since 08:02 UTC, attempt 2; it failed while probing: no answer (ConnectTimeout)`.
pub(super) fn retried_text(machine: &Machine, retried: &Retried) -> String {
    let by = retried.by.as_deref();
    let by = by.map_or_else(String::new, |by| format!(" by {}", person(Some(by))));
    let since = retried.at.clock(now(machine));
    let attempt = machine.tasks.iter().map(|task| task.attempt).max();
    let attempt = attempt.map_or_else(String::new, |it| format!(", attempt {it}"));
    let PhaseFailure {
        code,
        message,
        phase_text,
        ..
    } = &retried.failure;
    let why = cause(code, message);
    let again = match machine.retries {
        0 | 1 => String::new(),
        count => format!(" (retry {count})"),
    };
    format!("being retried{again}{by} since {since}{attempt}; it failed while {phase_text}: {why}")
}

/// Whether the machine's trouble is that a step which failed is tried again.
pub(super) fn is_retried(machine: &Machine) -> bool {
    let retried = retried(machine);
    retried.is_some() && found(machine) == retried
}

/// Error of the cloud, of a Machine that has no Node yet: stuck at once, since no wait mends a quota.
fn the_clouds(machine: &Machine) -> Option<(String, String)> {
    let refused = machine
        .machine_conditions
        .iter()
        .find(|it| creation_refused([it.kind.as_str()]));
    if let Some(Condition {
        reason,
        message,
        kind,
        ..
    }) = refused
        && !machine.served
    {
        let code = if reason.is_empty() { kind } else { reason };
        let text = if message.is_empty() { code } else { message };
        return Some((code.clone(), format!("the cloud cannot create it: {text}")));
    }
    if machine.given_up() {
        let error = machine.machine_error.as_deref();
        let error = error.unwrap_or("its Machine is in phase Failed, which is final");
        return Some(("MachineFailed".into(), error.to_owned()));
    }
    let error = machine.machine_error.as_ref().filter(|_| !machine.served)?;
    Some(("MachineError".into(), error.clone()))
}

/// Drain that pods hold up.
fn held_up(machine: &Machine) -> Option<(Urgency, String, String)> {
    let blockers = &machine.drain.as_ref()?.blockers;
    let first = blockers.first()?;
    let pod = &first.pod;
    let same = blockers.iter().all(|it| it.why == first.why);
    let of = if same { "" } else { "the first one: " };
    let pods = match blockers.len() - 1 {
        0 => format!("{pod} holds"),
        1 => format!("{pod} and 1 more pod hold"),
        more => format!("{pod} and {more} more pods hold"),
    };
    let text = format!("{pods} up its drain: {of}{}", first.why);
    let urgency = if machine.phase_seconds() >= HELD_UP_SECONDS {
        Urgency::Stuck
    } else {
        Urgency::Slow
    };
    Some((urgency, "DrainHeldUp".into(), text))
}

/// Machine whose phase lasts longer than usual, with its last failure if there is one.
fn overdue(machine: &Machine) -> Option<(Urgency, String, String)> {
    let (slow, stuck) = limits(machine.phase.known()?)?;
    let seconds = machine.phase_seconds();
    let usual = usual(machine);
    let urgency = match seconds {
        _ if seconds >= stuck => Urgency::Stuck,
        _ if seconds >= slow_after((slow, stuck), usual) => Urgency::Slow,
        _ => return None,
    };
    // The code is the phase's, whether an attempt runs or waits: a group must not change with each attempt.
    let phase = machine.phase.id().to_owned();
    if let Some(failure) = machine.tasks.iter().find_map(Task::newest_failure) {
        let text = cause(&failure.code, &failure.message);
        return Some((urgency, phase, text));
    }
    let usual = usual.map_or_else(String::new, |it| format!(", usually {}", span(it)));
    let text = match &machine.waiting_for {
        Some(waits) => format!("{}{usual}: it waits for {waits}", machine.phase_text),
        None => format!("{}{usual}", machine.phase_text),
    };
    Some((urgency, phase, text))
}

/// All words of [`word_of`].
pub const ROLLOUT_WORDS: [&str; 7] = [
    "Idle",
    "Running",
    "Waiting",
    "Stopped",
    "Enrolling",
    "Paused",
    "Halted",
];

/// State of a rollout in a word. While it grants leases: Stopped, Running, Waiting, or Idle if no machine waits.
pub fn word_of(rollout: &Rollout) -> &str {
    let open = rollout.state == RolloutState::Open;
    match () {
        () if !open => rollout.state.id(),
        () if stands_still(rollout).is_some() => "Stopped",
        () if rollout.slots.iter().any(|slot| slot.stopped.is_none()) => "Running",
        () if !rollout.queue.is_empty() => "Waiting",
        () => "Idle",
    }
}

/// Sentence about a rollout that grants nothing although machines wait. `None`: it grants, or no machine waits.
pub fn stands_still(rollout: &Rollout) -> Option<String> {
    if let Some(found) = &rollout.status.quarantine {
        return Some(format!(
            "quarantined ({}), and grants nothing: {}",
            found.code, found.why
        ));
    }
    if let Some(why) = &rollout.halted {
        return Some(format!("halted: {why}"));
    }
    if let Some(why) = &rollout.held {
        return Some(format!("no lease is granted: {why}"));
    }
    if let Some(by) = &rollout.paused {
        return Some(format!("paused by {by}"));
    }
    if let Some(slot) = rollout.stopped_by() {
        let name = &slot.name;
        let how = slot.stopped.as_deref().unwrap_or_default();
        return Some(format!(
            "{name} holds the lease, and was {how}: nothing else is granted"
        ));
    }
    let eroded = rollout.eroded && rollout.waiting_for.is_some();
    eroded.then(|| "waits for a Machine that its MachineSet no longer wants".to_owned())
}

/// Seconds until the queue is empty and the last holder done: as many turns as wait and go on, each as long as usual, less
/// what the holders have taken. `None`: nothing waits, nothing is granted now, a turn is late, or no turn has ended yet.
pub fn seconds_left(rollout: &Rollout) -> Option<u64> {
    let typical = rollout.typical_turn_seconds?;
    let turns = (rollout.queue.len() + rollout.slots.len()) as u64;
    if turns == 0 || stands_still(rollout).is_some() {
        return None;
    }
    let now = rollout.status.since.0.0 / 1_000 + rollout.status.since_seconds;
    let taken = |slot: &Slot| now.saturating_sub(slot.since.0.0 / 1_000);
    if rollout.slots.iter().any(|it| taken(it) > LATE * typical) {
        return None;
    }
    let gone: u64 = rollout.slots.iter().map(|it| taken(it).min(typical)).sum();
    let beside = rollout.max_unavailable.unwrap_or(1).max(1);
    Some((typical * turns).saturating_sub(gone).div_ceil(beside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        explain::tests::{failed_while, machine_in, rollout_with},
        machine::{Blocker, Drain},
    };
    use serde_json::{Value, json};

    fn after(machine: Machine, minutes: u64) -> Machine {
        let mut machine = machine;
        machine.status.since_seconds = minutes * MINUTE;
        machine
    }

    fn urgency(machine: &Machine) -> Option<Urgency> {
        problem(machine).map(|it| it.urgency)
    }

    #[test]
    fn a_host_that_does_not_answer_is_slow_and_then_stuck() {
        let probing = |minutes| after(machine_in(MachinePhase::Probing), minutes);
        assert_eq!(urgency(&probing(5)), None);
        assert_eq!(urgency(&probing(16)), Some(Urgency::Slow));
        assert_eq!(urgency(&probing(39)), Some(Urgency::Stuck));
        let queued = after(machine_in(MachinePhase::LeaseWait), 600);
        assert_eq!(urgency(&queued), None, "a place in the queue is no trouble");
    }

    #[test]
    fn a_step_is_slow_at_twice_its_usual_duration() {
        let table = [
            // Limits of the phase, usual duration, and slow from.
            ((900, 1_800), None, 900),
            ((900, 1_800), Some(0), 60),
            ((900, 1_800), Some(20), 80),
            ((900, 1_800), Some(60), 120),
            ((900, 1_800), Some(120), 240),
            ((900, 1_800), Some(600), 1_200),
            ((900, 1_800), Some(1_500), 1_800),
        ];
        for (limits, usual, from) in table {
            assert_eq!(slow_after(limits, usual), from, "{limits:?} {usual:?}");
        }
    }

    #[test]
    fn a_slow_step_has_its_usual_duration_beside_it() {
        let since = machine_in(MachinePhase::Probing).status.since;
        let probing = |seconds| {
            let mut machine = machine_in(MachinePhase::Probing);
            machine.status.since_seconds = seconds;
            machine.phase_since = Some(since);
            machine.usual_seconds = Some(120);
            machine.waiting_for = Some("SSH on 10.0.0.4".into());
            machine
        };
        assert_eq!(urgency(&probing(239)), None);
        let slow = probing(420);
        let found = problem(&slow).expect("trouble");
        assert_eq!(found.urgency, Urgency::Slow);
        let phase = MachinePhase::Probing.text();
        let said = format!("{phase}, usually 2m: it waits for SSH on 10.0.0.4");
        assert_eq!(found.cause, said);
        assert_eq!(in_short(&slow).as_deref(), Some("slow: usually 2m, now 7m"));
        assert_eq!(urgency(&probing(31 * MINUTE)), Some(Urgency::Stuck));
        // Its state may be older than its step.
        let unknown = Machine {
            phase_since: None,
            ..probing(420)
        };
        assert_eq!(urgency(&unknown), None);
        // A failed attempt is the cause in `why`, and the duration a detail.
        let why = crate::explain::explanation(&slow, None, None);
        assert!(why.cause.is_some_and(|it| it.contains("usually 2m")));
        assert!(why.details.iter().all(|it| !it.contains("usually")));
    }

    #[test]
    fn a_node_that_is_down_may_reboot_before_it_is_stuck() {
        let since = machine_in(MachinePhase::Serving).status.since;
        let down = |minutes| {
            let machine = Machine {
                waiting_for: Some("the Node n to be Ready and schedulable".into()),
                down_since: Some(since),
                ..machine_in(MachinePhase::Serving)
            };
            after(machine, minutes)
        };
        let back = Moment(Timestamp(since.0.0 + DOWN_SECONDS * 1_000));
        assert_eq!(urgency(&down(19)), Some(Urgency::Slow));
        assert_eq!(heals_by(&down(19)), Some(back));
        assert_eq!(urgency(&down(20)), Some(Urgency::Stuck));
        assert_eq!(heals_by(&down(20)), None);
        assert_eq!(heals_by(&machine_in(MachinePhase::Serving)), None);
    }

    #[test]
    fn a_node_that_is_down_without_a_certificate_does_not_come_back_by_itself() {
        let since = machine_in(MachinePhase::Serving).status.since;
        let down = Machine {
            waiting_for: Some("the Node n to be Ready and schedulable".into()),
            down_since: Some(since),
            certificate_refused: Some("the Node n exists, and was not torn down".into()),
            ..machine_in(MachinePhase::Serving)
        };
        let found = problem(&down).expect("trouble");
        assert_eq!(found.urgency, Urgency::Stuck);
        assert_eq!(found.code, "CertificateRefused");
        assert!(found.cause.contains("was not torn down"), "{found:?}");
        assert_eq!(heals_by(&down), None);
        let serves = Machine {
            waiting_for: None,
            ..down
        };
        assert_eq!(urgency(&serves), None, "somebody else asked in its name");
    }

    #[test]
    fn a_check_is_as_late_as_itself_and_not_as_its_state() {
        // It has been Joined for a day, and is compared for 12 s.
        let mut checked = after(machine_in(MachinePhase::Checking), 26 * 60);
        let Moment(Timestamp(joined)) = checked.status.since;
        let begun = joined + (26 * 3_600 - 12) * 1_000;
        checked.phase_since = Some(Moment(Timestamp(begun)));
        assert_eq!(problem(&checked), None);
        let until = Moment(Timestamp(begun + 3_600 * 1_000));
        assert_eq!(heals_by(&checked), Some(until));
        checked.phase_since = Some(Moment(Timestamp(begun - 2 * 3_600 * 1_000)));
        let found = problem(&checked).expect("trouble");
        assert_eq!(found.urgency, Urgency::Stuck);
        assert_eq!(found.seconds(&checked), Some(2 * 3_600 + 12));
        let steps = crate::explain::steps(&checked, None);
        assert_eq!(steps[0].argv, ["dormer", "logs", "m"], "{steps:?}");
    }

    #[test]
    fn a_hold_is_as_old_as_itself_and_not_as_its_state() {
        let held = |since| Machine {
            halt: Some(crate::machine::Halt {
                kind: HaltKind::Held.into(),
                by: Some("ann".into()),
                text: "held by ann".into(),
                since,
            }),
            ..after(machine_in(MachinePhase::Serving), 37)
        };
        let seconds = |machine: &Machine| problem(machine).and_then(|it| it.seconds(machine));
        assert_eq!(seconds(&held(None)), None, "nobody knows");
        let now = now(&held(None));
        let since = Moment(Timestamp(now.0 - 4_000));
        let held = held(Some(since));
        assert_eq!(seconds(&held), Some(4));
        let found = problem(&held).expect("trouble");
        assert_eq!(found.cause, "held by ann for 4 seconds");
        assert_eq!(found.key.as_deref(), Some("held by ann"), "without the age");
        let with_reason = crate::machine::Halt {
            by: Some("ann: a disk".into()),
            text: "held by ann: a disk".into(),
            ..held.halt.expect("a halt")
        };
        let later = Timestamp(now.0 + 3 * 3_600_000);
        assert_eq!(
            with_reason.text_at(later),
            "held by ann for 3 hours: a disk"
        );
    }

    #[test]
    fn a_step_that_fails_again_after_a_retry_says_so() {
        let mut failed = failed_while(MachinePhase::Probing, "ConnectTimeout", "no answer");
        let cause = |machine: &Machine| problem(machine).expect("trouble").cause;
        failed.failing_since = Some(failed.status.since);
        assert_eq!(cause(&failed), "no answer (ConnectTimeout)");
        failed.retries = 2;
        assert_eq!(
            cause(&failed),
            "failed again after 2 retries since 07:00 UTC: no answer (ConnectTimeout)"
        );
    }

    /// The cause stays while a new attempt runs.
    #[test]
    fn the_last_failure_is_shown_until_an_attempt_succeeds() {
        let task = |phase: &str, attempt: u64, failed: &str| {
            serde_json::json!({"task": "machine/u@3.0", "run": "machine/u", "name": "probe", "attempt": attempt,
                "attemptsMax": 65_535, "phase": phase, "until": "2026-11-21T09:00:00.000Z",
                failed: {"code": "ConnectTimeout", "message": "no answer"}})
        };
        let of = |task| {
            let mut machine = after(machine_in(MachinePhase::Probing), 60);
            machine.tasks = vec![serde_json::from_value(task).expect("a task")];
            machine
        };
        let waiting = of(task("waiting", 3, "failure"));
        let running = of(task("inFlight", 4, "lastFailure"));
        assert_eq!(problem(&running), problem(&waiting));
        let why = crate::explain::explanation(&running, None, None);
        assert_eq!(why.next.as_deref(), Some("Attempt 4 runs."), "{why:?}");
        let cause = why.cause.unwrap_or_default();
        assert!(
            cause.ends_with("failed 3 times: no answer (ConnectTimeout)"),
            "{cause}"
        );
    }

    #[test]
    fn a_machine_that_is_retried_is_no_calm_one() {
        let since = machine_in(MachinePhase::Probing).status.since;
        let failed = failed_while(MachinePhase::Probing, "ConnectTimeout", "no answer");
        let mut retried = machine_in(MachinePhase::Probing);
        retried.retried = failed.failure.map(|failure| Retried {
            at: since,
            by: Some("ann: the firewall is open".into()),
            failure,
        });
        let found = problem(&retried).expect("trouble");
        assert_eq!(found.urgency, Urgency::Slow);
        assert_eq!(found.code, "ConnectTimeout");
        assert_eq!(
            found.cause,
            "being retried by ann (the firewall is open) since 07:00 UTC; it failed while probing: no answer \
             (ConnectTimeout)"
        );
        let why = crate::explain::explanation(&retried, None, None);
        assert_eq!(why.cause.as_deref(), Some(found.cause.as_str()));
        assert!(why.heals_by.is_some());
        let late = after(retried.clone(), 40);
        assert_eq!(urgency(&late), Some(Urgency::Stuck), "the step's own limit");
        let serves = Machine {
            retried: retried.retried,
            ..machine_in(MachinePhase::Serving)
        };
        assert_eq!(problem(&serves), None);
    }

    #[test]
    fn pods_that_hold_a_drain_up_are_counted_before_the_reason_of_the_first() {
        let blocker = |pod: &str, why: &str| Blocker {
            pod: pod.into(),
            why: why.into(),
            budgets: Vec::new(),
            until_off: false,
        };
        let cause = |blockers: Vec<Blocker>| {
            let drain = Drain {
                blockers,
                ..Drain::default()
            };
            let machine = Machine {
                drain: Some(drain),
                ..machine_in(MachinePhase::Evicting)
            };
            problem(&machine).map(|it| it.cause).unwrap_or_default()
        };
        let one = || blocker("shop/cart-7", "it needs 5");
        assert_eq!(
            cause(vec![one()]),
            "shop/cart-7 holds up its drain: it needs 5"
        );
        assert_eq!(
            cause(vec![one(), blocker("shop/cart-8", "it needs 5")]),
            "shop/cart-7 and 1 more pod hold up its drain: it needs 5"
        );
        assert_eq!(
            cause(vec![one(), one(), blocker("db/a", "a finalizer")]),
            "shop/cart-7 and 2 more pods hold up its drain: the first one: it needs 5"
        );
    }

    #[test]
    fn a_holder_that_a_person_stopped_stops_its_rollout() {
        let slot = json!([{"token": 4, "holder": "h", "name": "win-h", "marked": false, "seq": 2,
            "since": "2026-11-21T07:00:12.000Z", "waitsFor": null, "stopped": "drained by ann (a new kernel)"}]);
        let rollout = |max: u64| {
            rollout_with(json!({"slots": slot.clone(), "maxUnavailable": max, "unavailable": 1}))
        };
        assert_eq!(
            stands_still(&rollout(1)).as_deref(),
            Some(
                "win-h holds the lease, and was drained by ann (a new kernel): nothing else is granted"
            )
        );
        let to_continue = crate::explain::to_continue(&rollout(1)).and_then(|it| it.line());
        assert_eq!(to_continue.as_deref(), Some("dormer resume win-h"));
        assert_eq!(stands_still(&rollout(2)), None, "there is room for another");
        let mut two = rollout(1);
        let mut other = two.slots[0].clone();
        other.stopped = None;
        two.slots.push(other);
        assert_eq!(stands_still(&two), None, "another turn goes on");
        let waits = machine_in(MachinePhase::LeaseWait);
        let why = crate::explain::explanation(&waits, None, Some(&rollout(1)));
        let cause = "win-h holds the lease, and was drained by ann (a new kernel)";
        assert_eq!(why.cause.as_deref(), Some(cause));
        assert_eq!(why.steps[0].argv, ["dormer", "resume", "win-h"]);
    }

    #[test]
    fn a_refusal_of_the_cloud_is_stuck_at_once() {
        let refused = Machine {
            machine_conditions: vec![Condition {
                kind: "MachineCreation".into(),
                status: "False".into(),
                reason: "MachineCreationFailed".into(),
                message: "InstanceLimitExceeded: you have reached your quota.".into(),
            }],
            ..after(machine_in(MachinePhase::AddressWait), 0)
        };
        let found = problem(&refused).expect("trouble");
        assert_eq!(found.urgency, Urgency::Stuck);
        assert!(found.cause.contains("InstanceLimitExceeded"), "{found:?}");
        assert_eq!(
            urgency(&after(machine_in(MachinePhase::AddressWait), 0)),
            None
        );
    }

    #[test]
    fn a_drain_is_stuck_only_when_something_holds_it_up() {
        let held = |blockers, minutes| {
            let drain = Drain {
                left: 1,
                blockers,
                ..Drain::default()
            };
            let machine = Machine {
                drain: Some(drain),
                ..machine_in(MachinePhase::Evicting)
            };
            urgency(&after(machine, minutes))
        };
        let blocker = vec![Blocker {
            pod: "a/p".into(),
            why: "a budget".into(),
            budgets: Vec::new(),
            until_off: false,
        }];
        assert_eq!(held(Vec::new(), 11), None);
        assert_eq!(held(blocker.clone(), 9), Some(Urgency::Slow));
        assert_eq!(held(blocker, 10), Some(Urgency::Stuck));
    }

    #[test]
    fn a_long_cause_is_its_first_clause_and_its_code() {
        let failed =
            |text: &str| in_short(&failed_while(MachinePhase::Probing, "AuthRejected", text));
        let long =
            "10.0.0.7 does not accept our key: user data has not run yet, or the file is open";
        assert_eq!(
            failed(long).as_deref(),
            Some("10.0.0.7 does not accept our key (AuthRejected)")
        );
        let refused = "Windows does not run dormer's program (exit 216): this version of the file is not compatible";
        assert_eq!(
            failed(refused).as_deref(),
            Some("Windows does not run dormer's program (exit 216) (AuthRejected)")
        );
        assert_eq!(failed("no key").as_deref(), Some("no key (AuthRejected)"));
    }

    #[test]
    fn a_quarantined_run_is_stuck_whatever_its_machine_says() {
        let mut machine = machine_in(MachinePhase::Serving);
        machine.status.quarantine = Some(crate::run::Quarantine {
            code: "RecordRefused".into(),
            why: "its record has 2000000 bytes".into(),
            since: machine.status.since,
            builds: vec!["dormer 1".into()],
        });
        let found = problem(&machine).expect("trouble");
        assert_eq!(found.urgency, Urgency::Stuck);
        assert_eq!(found.code, "quarantined");
        let steps = crate::explain::steps(&machine, None);
        assert_eq!(steps[0].argv, ["dormer", "unquarantine", "m"]);
    }

    #[test]
    fn many_differences_are_a_number() {
        let with = |differs: &[&str]| Machine {
            differs: differs.iter().map(|it| (*it).to_owned()).collect(),
            ..machine_in(MachinePhase::LeaseWait)
        };
        assert_eq!(
            in_short(&with(&["file a"])).as_deref(),
            Some("file a differs")
        );
        assert_eq!(
            in_short(&with(&["a"; 16])).as_deref(),
            Some("16 or more items differ, see dormer plan")
        );
    }

    #[test]
    fn the_time_left_is_that_of_the_turns_that_wait_and_go_on() {
        let left = |fields: Value| seconds_left(&rollout_with(fields));
        let waiting = json!({"uid": "w", "name": "w", "position": 1, "away": false});
        // The rollout's clock is at 07:05:12.
        let slot = |since: &str| {
            json!([{"token": 4, "holder": "h", "name": "h", "marked": false, "seq": 2, "since": since,
                "waitsFor": null}])
        };
        let queue = json!([waiting.clone(), waiting]);
        let queued = json!({"queue": queue, "maxUnavailable": 1, "typicalTurnSeconds": 600});
        let with = |key: &str, value: Value| {
            let mut fields = queued.clone();
            fields[key] = value;
            left(fields)
        };
        assert_eq!(left(queued.clone()), Some(1_200));
        assert_eq!(
            with("slots", slot("2026-11-21T07:00:12.000Z")),
            Some(1_800 - 300)
        );
        assert_eq!(
            with("slots", slot("2026-11-21T06:45:12.000Z")),
            Some(1_200),
            "over its time"
        );
        assert_eq!(
            with("slots", slot("2026-11-21T06:35:11.000Z")),
            None,
            "late"
        );
        assert_eq!(with("maxUnavailable", json!(2)), Some(600));
        assert_eq!(
            with("paused", json!("ann")),
            None,
            "nobody knows while it is paused"
        );
        assert_eq!(
            with("typicalTurnSeconds", Value::Null),
            None,
            "no turn has ended"
        );
        assert_eq!(with("queue", json!([])), None, "nothing waits");
    }
}
