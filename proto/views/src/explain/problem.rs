//! Machines that need attention: which, how urgently, and from which cause. `dormer status`, `dormer get` and the
//! console share these limits.

pub use super::rollout_words::{ROLLOUT_WORDS, stands_still};

use crate::{
    explain::{cause, dotless, is_connection, now, other_name::other_name},
    machine::{
        A_PERSON, CertificateUse, Condition, Halt, HaltKind, KubeletCertificate, Machine,
        PendingRequest, PhaseFailure, Retried,
    },
    moment::{Moment, span},
    older_texts,
    rollout::Rollout,
    run::{Task, TaskFailure},
    timing::PhaseTiming,
};
use dormer_proto::{
    code,
    id::Timestamp,
    listed,
    machine::OTHER_NAME,
    phase::{MachinePhase, MachineState, Unavailable},
};

/// Seconds in a minute.
const MINUTE: u64 = 60;
/// Seconds after which a Node that served and is not Ready counts as stuck: a reboot with updates lasts so long
/// (docs/field-notes.md).
pub const DOWN_SECONDS: u64 = 20 * MINUTE;
/// Seconds after which a drain that pods hold up counts as slow, while it is unknown how long drains take: grace periods
/// (30 s by default) and pods that start elsewhere, for whose budgets others wait, hold up every one for a while.
pub const HELD_UP_SLOW_SECONDS: u64 = 3 * MINUTE;
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
        /// A person stopped it on purpose, and nothing else is wrong with it: no incident.
        OnPurpose = "on-purpose",
    }
}

/// Trouble of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineProblem {
    /// How urgent it is.
    pub urgency: Urgency,
    /// Stable code of the cause: machines with equal codes and keys have equal causes.
    pub code: String,
    /// Code that people see at the end of the cause. It differs from `code` where hosts do not answer: that failure may be
    /// another one at each attempt.
    pub shown: String,
    /// What the code leaves open: who did what and why, which pods hold a drain up.
    pub key: Option<String>,
    /// The cause, in one sentence without a full stop.
    pub cause: String,
    /// Cause that it would have without its halt.
    pub beneath: Option<String>,
    /// Time at which it began. `None`: unknown.
    pub since: Option<Moment>,
}

impl MachineProblem {
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
    is_late(machine).then_some(usual)
}

/// Whether the cause of its trouble says how long its step usually takes: it lasts too long, and no attempt of it has failed.
pub(super) fn says_usual(machine: &Machine) -> bool {
    is_late(machine) && newest_failure(machine).is_none()
}

/// Whether the machine's trouble is that its step lasts too long.
pub(super) fn is_late(machine: &Machine) -> bool {
    let overdue = overdue(machine);
    overdue.is_some() && found(machine) == overdue
}

/// Failure of the newest attempt that has ended, of a step that has not.
fn newest_failure(machine: &Machine) -> Option<&TaskFailure> {
    machine.tasks.iter().find_map(Task::newest_failure)
}

/// Condition of Cluster API's Machine with the reason of its provider's object. Its message may only count that object's
/// conditions: `0 of 2 completed` (docs/field-notes.md, Machines of OpenShift).
pub(super) const INFRASTRUCTURE_READY: &str = "InfrastructureReady";

/// Whether the provider reports that it cannot create the instance.
pub fn creation_refused(condition: &Condition) -> bool {
    let reason = condition.reason.as_str();
    let failed = reason.ends_with("ProvisionFailed") || reason == "InstanceCreateFailed";
    let mirrored = condition.kind == INFRASTRUCTURE_READY;
    condition.kind.starts_with("MachineCreat") || (mirrored && failed)
}

/// Key of machines whose failed step is tried again.
const TRIED_AGAIN: &str = "tried again";

/// Trouble of the machine. `None`: it serves, or continues at its usual speed.
pub fn problem(machine: &Machine) -> Option<MachineProblem> {
    let (urgency, code, cause) = found(machine)?;
    let key = key(machine, &code, &cause);
    let code = code::shown(&code);
    let attempted = newest_failure(machine).filter(|_| is_late(machine));
    Some(MachineProblem {
        urgency,
        key,
        shown: attempted.map_or_else(|| code.clone(), |it| code::shown(&it.code)),
        code,
        cause: cause.trim_end_matches('.').to_owned(),
        beneath: beneath(machine).map(|(_, it)| it.trim_end_matches('.').to_owned()),
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
    let is_explained = machine.neighbour.is_some() || drained || evicting;
    if is_explained && machine.lacks.is_none() {
        return Some(cause.to_owned());
    }
    let retried = machine.retried.as_ref();
    let by = retried.filter(|it| machine.failure.is_none() && code == it.failure.code);
    if let Some(by) = by.and_then(|it| it.by.clone()) {
        return Some(by);
    }
    // A machine that has failed waits for a retry. One whose step is late is tried again by itself.
    let is_tried = machine.failure.is_none() && newest_failure(machine).is_some();
    is_tried.then(|| TRIED_AGAIN.to_owned())
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
        return machine
            .down_since
            .or_else(|| late(machine).map(KubeletCertificate::late_from));
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
        MachinePhase::Evicting if urgency.is_some() && drain_ends(machine).is_some() => {
            return drain_ends(machine);
        }
        // With afterTimeout: Wait a budget yields only to a change of its pods or of itself: a person has to make one.
        MachinePhase::Evicting if urgency.is_some() && is_kept_by_budget(machine) => return None,
        MachinePhase::Evicting if machine.is_held_up() => HELD_UP_SECONDS,
        phase => limits(phase)?.1,
    };
    let begun = now(machine)
        .0
        .saturating_sub(machine.phase_seconds() * 1_000);
    Some(Moment(Timestamp(begun + limit * 1_000)))
}

/// When dormer ends what holds its drain up, if that is still to come.
fn drain_ends(machine: &Machine) -> Option<Moment> {
    let ends = machine.drain.as_ref()?.ends;
    ends.filter(|it| it.0 > now(machine))
}

/// Whether a PodDisruptionBudget holds the machine's drain up.
fn is_kept_by_budget(machine: &Machine) -> bool {
    let blockers = machine.drain.iter().flat_map(|drain| &drain.blockers);
    blockers.take(1).any(|it| !it.budgets.is_empty())
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
        let cause = format!("another client cordoned its Node{by}, and dormer does not upgrade it");
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
        code: code::shown(code),
        shown: code::shown(code),
        key: None,
        cause: cause.trim_end_matches('.').to_owned(),
        beneath: None,
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
    if let Some((runs, _)) = operator(machine) {
        return Some((Person, "neighbour".into(), runs.to_owned()));
    }
    if let Some(halt) = &machine.halt {
        return Some(halted(machine, halt));
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
            (_, None) => not_renewed(machine),
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
        Some(MachinePhase::NodeWait) if let Some(found) = other_name(machine) => {
            let text = found.text.to_owned();
            match found.sure {
                true => Some((Stuck, OTHER_NAME.into(), text)),
                // Another machine's host may be the one.
                false => overdue(machine).map(|(urgency, _, late)| {
                    (urgency, OTHER_NAME.into(), format!("{late}; {text}"))
                }),
            }
        }
        Some(MachinePhase::Evicting) => held_up(machine)
            .or_else(|| overdue(machine))
            .or_else(|| retried(machine)),
        _ => overdue(machine).or_else(|| retried(machine)),
    }
}

/// A machine that is paused, held or ignored, with all that halts it.
fn halted(machine: &Machine, halt: &Halt) -> (Urgency, String, String) {
    let code = match halt.kind.known() {
        Some(HaltKind::Paused) => "paused",
        Some(HaltKind::Held) => "held",
        Some(HaltKind::Ignored) => "ignored",
        None => halt.kind.id(),
    };
    let now = now(machine);
    let all: Vec<String> = machine.halts().map(|it| it.text_at(now)).collect();
    let urgency = match is_on_purpose(machine) {
        true => Urgency::OnPurpose,
        false => Urgency::Person,
    };
    (urgency, code.into(), all.join("; "))
}

/// The machine as it would be without its halt. `None`: it has none.
pub(super) fn released(machine: &Machine) -> Option<Machine> {
    machine.halt.as_ref()?;
    // It waits for the resume now. Of its own it waits for something if its Node is not Ready.
    let is_down = machine.phase == MachinePhase::Serving && machine.down_since.is_some();
    Some(Machine {
        waiting_for: is_down.then(|| "its Node to be Ready".to_owned()),
        halt: None,
        also_halted: Vec::new(),
        ..machine.clone()
    })
}

/// What would be wrong with the machine without its halt, and how urgently.
pub(super) fn beneath(machine: &Machine) -> Option<(Urgency, String)> {
    let stronger = machine.status.quarantine.is_some()
        || machine.lacks.is_some()
        || machine.neighbour.is_some();
    let (urgency, _, cause) = found(&released(machine).filter(|_| !stronger)?)?;
    Some((urgency, cause))
}

/// Whether people keep the machine as it is, and that does no harm: nothing else is wrong with it, and no other machine
/// waits for it.
pub(super) fn is_on_purpose(machine: &Machine) -> bool {
    let wants = |halt: &Halt| match halt.kind.known() {
        Some(HaltKind::Held) => !halt.is_own(),
        Some(HaltKind::Ignored) => true,
        Some(HaltKind::Paused) | None => false,
    };
    let well = beneath(machine).is_none_or(|(urgency, _)| urgency == Urgency::Person);
    // A hold and the label do not stop an upgrade that has the lease. A drain keeps the lease until it is resumed.
    let keeps_lease = machine.token.is_some() && machine.phase == MachinePhase::Drained;
    machine.halt.is_some() && !keeps_lease && machine.halts().all(wants) && well
}

/// The certificate of its kubelet that lapses first among those that should have been renewed.
pub(super) fn late(machine: &Machine) -> Option<&KubeletCertificate> {
    let now = now(machine);
    let late = machine.certificates.iter();
    let late = late.filter(|it| it.late_from().0 <= now);
    late.min_by_key(|it| it.until.0)
}

/// A kubelet that does not renew a certificate of its own. It serves on until that has lapsed.
fn not_renewed(machine: &Machine) -> Option<(Urgency, String, String)> {
    let certificate = late(machine)?;
    let now = now(machine);
    let lapsed = certificate.until.0 <= now;
    let until = certificate.until.clock(now);
    let which = match certificate.used_as.known() {
        Some(CertificateUse::Client) => "by which the API server knows it",
        Some(CertificateUse::Serving) => "by which it serves logs and exec",
        None => certificate.used_as.id(),
    };
    Some(if lapsed {
        let text = format!("the certificate of its kubelet {which} lapsed at {until}");
        (Urgency::Stuck, "CertificateLapsed".into(), text)
    } else {
        let text =
            format!("its kubelet has not renewed the certificate {which}, which lapses at {until}");
        (Urgency::Person, "CertificateLapses".into(), text)
    })
}

/// What runs beside dormer, and the commands that stop it, if they are known.
pub(super) fn operator(machine: &Machine) -> Option<(&str, Option<&str>)> {
    let runs = machine.neighbour.as_deref()?;
    let stop = machine.neighbour_stop.as_deref();
    Some(match stop {
        Some(_) => (runs, stop),
        None => older_texts::operator(runs),
    })
}

/// Who drained it, and the holds that are in force again once it is resumed.
fn drained(machine: &Machine) -> String {
    let by = machine.asked.as_ref();
    let by = by.map_or_else(|| A_PERSON.to_owned(), PendingRequest::person);
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
    // A host whose instance is gone does not answer: that is the cause, and no firewall.
    let gone = machine.given_up() && is_connection(&failure.code);
    let text = match machine.machine_error.as_ref().filter(|_| gone) {
        Some(error) => format!("its Machine failed: {}; {text}", dotless(error)),
        None => text,
    };
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
    let by = retried.requester();
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
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
        .find(|it| creation_refused(it));
    if let Some(Condition {
        reason,
        message,
        kind,
        ..
    }) = refused
        && !machine.served
    {
        let code = if reason.is_empty() { kind } else { reason };
        let text = match message.as_str() {
            "" => code.clone(),
            counts if kind == INFRASTRUCTURE_READY => format!("{code}: {counts}"),
            whole => whole.to_owned(),
        };
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

/// Why the cloud cannot create a machine that has not served: its code, or the first clause of its error. `None`: it reports no
/// such thing.
pub fn refused_by_cloud(machine: &Machine) -> Option<&str> {
    let conditions = machine.machine_conditions.iter();
    let refused = conditions.filter(|it| creation_refused(it));
    let refusal = refused.map(|it| match it.message.as_str() {
        message if !message.is_empty() && it.kind != INFRASTRUCTURE_READY => message,
        _ => it.reason.as_str(),
    });
    let error = machine.machine_error.as_deref();
    let text = refusal.chain(error).find(|it| !it.is_empty());
    let text = text.filter(|_| !machine.served)?;
    Some(text.split_once(": ").map_or(text, |(clause, _)| clause))
}

/// Drain that pods hold up for longer than usual.
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
    let slow = slow_after((HELD_UP_SLOW_SECONDS, HELD_UP_SECONDS), usual(machine));
    let urgency = match machine.phase_seconds() {
        seconds if seconds >= HELD_UP_SECONDS && drain_ends(machine).is_none() => Urgency::Stuck,
        seconds if seconds >= slow => Urgency::Slow,
        _ => return None,
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
    let phase = machine.phase.id().to_owned();
    if let Some(failure) = newest_failure(machine) {
        let text = cause(&failure.code, &failure.message);
        // Whether a host does not answer or refuses may change with each attempt, and a group must not. What else fails has
        // its own cure.
        let code = match is_connection(&failure.code) {
            true => phase,
            false => failure.code.clone(),
        };
        return Some((urgency, code, text));
    }
    let usual = usual.map_or_else(String::new, |it| format!(", usually {}", span(it)));
    let text = match &machine.waiting_for {
        Some(waits) if machine.phase.known().is_some_and(MachinePhase::waits) => {
            format!("it waits for {waits}{usual}")
        }
        Some(waits) => format!("{}{usual}: it waits for {waits}", machine.phase_text),
        None => format!("{}{usual}", machine.phase_text),
    };
    Some((urgency, phase, text))
}

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;
