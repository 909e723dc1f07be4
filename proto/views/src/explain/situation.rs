//! A machine's state with its cause, in sentences.

use super::{
    cause, dotless,
    failing::{failing, step_text},
    now, problem, sentence, state_sentence,
};
use crate::{
    explain::LastFailure,
    machine::{Condition, Machine},
    moment::{age, span},
    older_texts,
    rollout::{MachineSet, Rollout},
    run::{Heartbeat, Task},
};
use dormer_proto::{
    machine::{DIFFERENCES_MAX, NAMED_ITEMS_MAX},
    phase::{MachinePhase, MachineState},
    rollout::MEMBERS_MAX,
};

/// The machine's state with its cause, without advice: one sentence each.
pub fn situation(
    machine: &Machine,
    last_failure: Option<&LastFailure>,
    rollout: Option<&Rollout>,
) -> Vec<String> {
    let mut sentences = vec![state_sentence(machine)];
    if let Some(quarantine) = &machine.status.quarantine {
        let since = quarantine.since.clock(now(machine));
        sentences.push(format!(
            "Its run is quarantined since {since}, and nothing happens to it until it is released: {}.",
            cause(&quarantine.code, &quarantine.why)
        ));
        return sentences;
    }
    if let Some(what) = &machine.lacks {
        sentences.push(format!(
            "It waits for one thing, as all machines do: {}.",
            dotless(what)
        ));
        return sentences;
    }
    if let Some(failing) = failing(machine, last_failure).filter(|_| !machine.is_held_up()) {
        sentences.push(sentence(&failing.cause));
        sentences.extend(failing.next);
    }
    sentences.extend(waits_for(machine));
    sentences.extend(asked(machine));
    sentences.extend(retried(machine));
    sentences.extend(rollout.and_then(|rollout| keeps_the_lease(machine, rollout)));
    sentences.extend(reason(machine));
    sentences.extend(machine.tasks.iter().filter_map(task_text));
    sentences.extend(from_the_machine(machine));
    sentences.extend(rollout.and_then(|rollout| turned_away(machine, rollout)));
    sentences.extend(rollout.and_then(|rollout| queue_position(machine, rollout)));
    sentences.extend(rollout.and_then(|rollout| numbers(machine, rollout)));
    sentences.extend(version(machine));
    sentences
}

/// That its rollout has no room for it. The rollout names the first of those; any other waits for the lease and is not in
/// the queue.
fn turned_away(machine: &Machine, rollout: &Rollout) -> Option<String> {
    let most = MEMBERS_MAX as u64;
    let named = |name: &String| *name == machine.name || *name == machine.uid;
    let queued = rollout.queue.iter().any(|it| it.uid == machine.uid);
    let waits = machine.phase == MachinePhase::LeaseWait && !queued;
    let beyond = rollout.turned_away.iter().any(named) || (waits && rollout.members >= most);
    beyond.then(|| {
        format!(
            "The rollout of pool {} has room for {most} machines and none for this one: dormer does not upgrade it \
             until another machine of the pool is gone.",
            rollout.pool
        )
    })
}

/// What a person asked for: who, when and why; and what that waits for.
fn asked(machine: &Machine) -> Option<String> {
    let asked = machine.asked.as_ref()?;
    let when = asked.at.map_or_else(String::new, |at| {
        let ago = now(machine).0.saturating_sub(at.0.0) / 1_000;
        format!(", {} ago", age(ago))
    });
    let said = machine.waiting_for.as_deref();
    let waits = machine
        .asked_waits_for()
        .filter(|it| Some(it.as_str()) != said);
    let waits = waits.map_or_else(String::new, |what| format!(" It waits for {what}."));
    let mut text = asked.text();
    text.get_mut(..1).map(str::make_ascii_uppercase);
    let set_aside = machine.set_aside.iter();
    let holds: Vec<String> = set_aside.map(|it| it.text_at(now(machine))).collect();
    let aside = match holds.as_slice() {
        [] => String::new(),
        holds => format!(
            " Until that has ended, this is set aside: {}.",
            holds.join("; ")
        ),
    };
    Some(format!("{text}{when}.{waits}{aside}"))
}

/// That a step which failed is tried again.
pub(super) fn retried(machine: &Machine) -> Option<String> {
    let retried = machine.retried.as_ref()?;
    let text = problem::retried_text(machine, retried);
    Some(format!("It is {}.", dotless(&text)))
}

/// That it keeps the lease while a person stops it, so that no other machine gets one.
fn keeps_the_lease(machine: &Machine, rollout: &Rollout) -> Option<String> {
    let slot = rollout.stopped_by().filter(|it| it.holder == machine.uid)?;
    let how = slot.stopped.as_ref()?;
    Some(format!(
        "It holds the lease of pool {} and was {how}: no other machine of the pool is upgraded until it is resumed.",
        rollout.pool
    ))
}

/// Its place in the queue for the lease.
fn queue_position(machine: &Machine, rollout: &Rollout) -> Option<String> {
    let waiting = rollout.queue.iter().find(|it| it.uid == machine.uid)?;
    Some(format!(
        "It is number {} of {} in the queue for the lease.",
        waiting.position,
        rollout.queue.len()
    ))
}

pub(super) fn waits_for(machine: &Machine) -> Option<String> {
    // A failed machine waits for a person, as the next step shows.
    // The commands that end another operator are in the step.
    let (what, _) = older_texts::operator(machine.waiting_for.as_ref()?);
    (machine.state != MachineState::Failed).then(|| format!("It waits for {}.", dotless(what)))
}

/// Reason for its state, if neither the headline nor its wait contains it.
fn reason(machine: &Machine) -> Option<String> {
    if machine.failure.is_some() {
        return None;
    }
    if let [_, ..] = machine.differs.as_slice() {
        return Some(what_differs(machine));
    }
    let blockers = machine.drain.as_ref().map_or(0, |it| it.blockers.len());
    // The description of the drain already names the only pod that blocks it.
    if blockers == 1 {
        return None;
    }
    // The sentence about the request says it.
    let waits = [
        MachinePhase::LeaseWait,
        MachinePhase::OwnerWait,
        MachinePhase::ApprovalWait,
    ];
    if machine.asked.is_some() && waits.iter().any(|it| machine.phase == *it) {
        return None;
    }
    let reason = older_texts::in_brief(dotless(machine.reason.as_ref()?));
    Some(format!("Reason: {reason}."))
}

/// Planned changes; of a long list the first ones.
fn what_differs(machine: &Machine) -> String {
    let Machine { differs, name, .. } = machine;
    let named = &differs[..differs.len().min(DIFFERENCES_MAX)];
    let more = differs.len() - named.len();
    let more = match more {
        0 => String::new(),
        // A worker names no more.
        more if differs.len() >= NAMED_ITEMS_MAX => {
            format!(" and {more} or more others (dormer plan {name})")
        }
        more => format!(" and {more} more (dormer plan {name})"),
    };
    format!("What is to change: {}{more}.", named.join(", "))
}

/// The attempt that runs.
pub(super) fn task_text(task: &Task) -> Option<String> {
    if task.failure.is_some() {
        return None;
    }
    let step = step_text(&task.name);
    let attempt = task.attempt;
    // Of its limits, the one that ends it first.
    let of = task.limit().filter(|_| task.ends.is_none());
    let of = of.map_or_else(String::new, |max| format!(" of {max}"));
    let long = task
        .since_seconds
        .map_or_else(String::new, |seconds| format!(" for {}", span(seconds)));
    let progress = task.heartbeat.as_ref().map(progress);
    let progress = progress.unwrap_or_default();
    Some(format!(
        "{step} has been running{long}, attempt {attempt}{of}{progress}."
    ))
}

fn progress(heartbeat: &Heartbeat) -> String {
    let Heartbeat { worker, step, .. } = heartbeat;
    if step.is_empty() {
        return String::new();
    }
    let amount = heartbeat.amount();
    let amount = amount.map_or_else(String::new, |amount| format!(", {amount}"));
    format!(", on worker {worker}, step {step}{amount}")
}

/// State of the Machine object itself.
fn from_the_machine(machine: &Machine) -> Vec<String> {
    let mut texts = Vec::new();
    let phase = machine.machine_phase.as_deref();
    if let Some(phase) = phase.filter(|phase| *phase != "Running") {
        texts.push(format!("Its Machine is in phase {phase}."));
    }
    if let Some(error) = &machine.machine_error {
        texts.push(format!("The Machine's error: {}.", dotless(error)));
    }
    let conditions = machine.machine_conditions.iter();
    texts.extend(conditions.map(|it| sentence(&format!("Its condition {}", condition_text(it)))));
    texts
}

/// `MachineCreation is False (MachineCreationFailed): no room`.
pub fn condition_text(condition: &Condition) -> String {
    let Condition {
        kind,
        status,
        reason,
        message,
    } = condition;
    let mut text = format!("{kind} is {status}");
    if !reason.is_empty() {
        text += &format!(" ({reason})");
    }
    if !message.is_empty() {
        text += &format!(": {message}");
    }
    text
}

/// Numbers of its MachineSet, if one falls short and the machine waits.
fn numbers(machine: &Machine, rollout: &Rollout) -> Option<String> {
    machine.waiting_for.as_ref()?;
    let set = machine_set(machine, rollout).filter(|set| set.falls_short())?;
    Some(format!("Its MachineSet {}.", numbers_text(set)))
}

/// The machine's own MachineSet among its rollout's.
pub fn machine_set<'a>(machine: &Machine, rollout: &'a Rollout) -> Option<&'a MachineSet> {
    let owner = machine.machine_set()?;
    rollout.machine_sets.iter().find(|set| set.name == owner)
}

/// `windows has 2 of 3 Machines, 1 ready, 1 available`.
pub fn numbers_text(set: &MachineSet) -> String {
    let known = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |it| it.to_string());
    let has = known(set.machines);
    // One that goes still counts while the next one is there.
    let machines = match set.machines.and_then(|it| it.checked_sub(set.replicas)) {
        Some(more) if more > 0 => format!("{has} Machines, {more} more than it wants"),
        _ => format!("{has} of {} Machines", set.replicas),
    };
    format!(
        "{} has {machines}, {} ready, {} available",
        set.name,
        known(set.ready),
        known(set.available)
    )
}

fn version(machine: &Machine) -> Option<String> {
    Some(match (&machine.version, &machine.desired_version) {
        (Some(version), Some(desired)) if version == desired => {
            format!("It carries the desired version, {version}.")
        }
        (Some(version), Some(desired)) => {
            format!("It carries version {version}; {desired} is desired.")
        }
        (None, Some(desired)) => format!("Its desired version is {desired}."),
        _ => return None,
    })
}
