//! Descriptions of a machine, a rollout and a dead letter: which field is in which section.

use super::sections::{Column, Section};
use dormer_proto::{id::Timestamp, phase::RolloutState, pool::last_written};
use dormer_views::{
    explain,
    machine::{Blocker, Condition, Drain, Halt, KubeletCertificate, Machine, PhaseFailure},
    moment::Moment,
    numbers::Numbers,
    rollout::{Away, Gap, MachineSet, Rollout, Slot, Waiting},
    run::{DeadLetter, Quarantine, RunStatus, Task, TaskFailure},
};

const TASKS: &[Column<Task>] = &[
    ("Task", |it, _| it.name.clone()),
    ("Attempt", |it, _| match it.limit() {
        Some(most) => format!("{} of {most}", it.attempt),
        None => it.attempt.to_string(),
    }),
    ("Phase", |it, _| it.phase.to_string()),
    ("Since", |it, now| aged(it.since, now)),
    ("Until", |it, now| it.until.with_age(now)),
    ("Fails", |it, now| aged(it.ends, now)),
    ("Worker", |it, _| {
        let worker = it.heartbeat.as_ref().map(|at| at.worker.clone());
        worker.unwrap_or_default()
    }),
    ("Step", |it, _| {
        let Some(at) = &it.heartbeat else {
            return String::new();
        };
        let amount = at.amount().map(|amount| format!(", {amount}"));
        format!("{}{}", at.step, amount.unwrap_or_default())
    }),
    ("Last failure", |it, _| {
        let failure = it.newest_failure();
        failure.map_or_else(String::new, failure_text)
    }),
];
const CONDITIONS: &[Column<Condition>] = &[
    ("Type", |it, _| it.kind.clone()),
    ("Status", |it, _| it.status.clone()),
    ("Reason", |it, _| it.reason.clone()),
    ("Message", |it, _| it.message.clone()),
];
const SETS: &[Column<MachineSet>] = &[
    ("Name", |it, _| it.name.clone()),
    ("Replicas", |it, _| it.replicas.to_string()),
    ("Machines", |it, _| number(it.machines)),
    ("Ready", |it, _| number(it.ready)),
    ("Available", |it, _| number(it.available)),
];
const HOLDERS: &[Column<Slot>] = &[
    ("Name", |it, _| it.name.clone()),
    ("Since", |it, now| it.since.with_age(now)),
    ("Over the limit", |it, _| yes_or_no(it.marked)),
    ("Waits for", |it, _| {
        it.waits_for.clone().unwrap_or_default()
    }),
    ("Gone", |it, _| if_so(it.vacant)),
    ("Stopped", |it, _| it.stopped.clone().unwrap_or_default()),
];
const QUEUE: &[Column<Waiting>] = &[
    ("Position", |it, _| it.position.to_string()),
    ("Name", |it, _| it.name.clone()),
    ("Already unavailable", |it, _| yes_or_no(it.away)),
];
const AWAY: &[Column<Away>] = &[
    ("Name", |it, _| it.name.clone()),
    ("Why", |it, _| it.why.to_string()),
];
const GAPS: &[Column<Gap>] = &[
    ("Name", |it, _| it.name.clone()),
    ("Since", |it, now| it.since.with_age(now)),
    ("Owner", |it, _| it.owner.clone()),
    ("Waits for", |it, _| it.waits_for.clone()),
];

fn aged(at: Option<Moment>, now: Timestamp) -> String {
    at.map_or_else(String::new, |at| at.with_age(now))
}

fn number(value: Option<u64>) -> String {
    value.map_or_else(String::new, |it| it.to_string())
}

fn yes_or_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// `yes`, or nothing.
fn if_so(value: bool) -> String {
    if value { "yes" } else { "" }.to_owned()
}

fn failure_text(failure: &TaskFailure) -> String {
    explain::cause(&failure.code, &failure.message)
}

fn step_text(failure: &PhaseFailure) -> String {
    let why = explain::cause(&failure.code, &failure.message);
    format!("while {}: {why}", failure.phase_text)
}

fn halt_text(halt: &Halt, now: Timestamp) -> String {
    match halt.since {
        Some(at) => format!("{}, since {}", halt.text, at.with_age(now)),
        None => halt.text.clone(),
    }
}

fn quarantine_text(it: &Quarantine, now: Timestamp) -> String {
    let why = explain::cause(&it.code, &it.why);
    let builds = it.builds.join(", ");
    format!(
        "since {}: {why}; by the builds {builds}",
        it.since.with_age(now)
    )
}

/// Time of the server at which it answered.
pub(super) fn now(status: &RunStatus) -> Timestamp {
    let Moment(since) = status.since;
    Timestamp(since.0 + status.since_seconds.saturating_mul(1_000))
}

/// Its labels as selectors have them.
fn labels(machine: &Machine) -> Vec<String> {
    let labels = machine.labels.iter();
    labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
}

pub(super) fn of_machine(machine: &Machine) -> Vec<Section> {
    let now = now(&machine.status);
    vec![
        Section::new("", now)
            .text("Name", &machine.name)
            .optional("Kind", machine.kind.as_ref())
            .text("Namespace", &machine.namespace)
            .text("UID", &machine.uid)
            .text("Pool", &machine.pool)
            .optional("Owner", machine.owner.as_ref())
            .list("Labels", &labels(machine))
            .time("Created", machine.created)
            .time("Deleted", machine.deleted),
        state(machine, now),
        Section::new("Version", now)
            .optional("Version", machine.version.as_ref())
            .optional("Desired version", machine.desired_version.as_ref())
            .list("Differs", &machine.differs)
            .lines("Template differs", texts(&machine.template_differs)),
        Section::new("Node and Machine", now)
            .optional("Node", machine.node.as_ref())
            .optional("Expected node", machine.expected_node.as_ref())
            .optional("Address", machine.address.as_ref())
            .optional("Zone", machine.zone.as_ref())
            .flag("Served", machine.served)
            .optional("Cordoned by", cordon(machine, now).as_ref())
            .optional("Certificate refused", machine.certificate_refused.as_ref())
            .list("On its host", &machine.host_remarks)
            .lines("Certificates", certificates(machine, now))
            .optional(
                "Not compared",
                machine.not_compared.as_ref().map(failure_text).as_ref(),
            )
            .optional(
                "Unserved",
                machine.unserved.as_ref().map(failure_text).as_ref(),
            )
            .optional("Machine phase", machine.machine_phase.as_ref())
            .optional("Machine error", machine.machine_error.as_ref())
            .table(
                "Machine conditions",
                &machine.machine_conditions,
                CONDITIONS,
            ),
        lease(machine, now),
        Section::new("Tasks", now)
            .optional("Attempt", machine.attempt.as_ref())
            .table("Tasks", &machine.tasks, TASKS),
        history(&machine.status, now),
    ]
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

/// `client until 2027-01-02 08:02 UTC`, and whether its kubelet should have renewed it.
fn certificates(machine: &Machine, now: Timestamp) -> Vec<String> {
    let one = |it: &KubeletCertificate| {
        let late = if it.late_from().0 <= now {
            ", not renewed"
        } else {
            ""
        };
        format!("{} until {}{late}", it.used_as, it.until.clock(now))
    };
    machine.certificates.iter().map(one).collect()
}

fn cordon(machine: &Machine, now: Timestamp) -> Option<String> {
    let by = machine.cordoned_by.as_ref()?;
    let at = by.at.map(|at| format!(", {}", at.with_age(now)));
    Some(format!("{}{}", by.program, at.unwrap_or_default()))
}

fn state(machine: &Machine, now: Timestamp) -> Section {
    // The reason has the failure's code and its message.
    let failure = machine
        .failure
        .as_ref()
        .filter(|_| machine.reason.is_none());
    let asked = machine.asked.as_ref().map(|request| {
        let at = request.at.map(|at| format!(", {}", at.with_age(now)));
        let begun = if request.begun { ", begun" } else { "" };
        format!("{}{}{begun}", request.text(), at.unwrap_or_default())
    });
    let retried = machine.retried.as_ref().map(|retried| {
        let by = retried.requester().map(|by| format!("by {by}, "));
        let by = by.unwrap_or_default();
        let at = retried.at.with_age(now);
        format!("{by}{at}; it failed {}", step_text(&retried.failure))
    });
    let quarantine = machine.status.quarantine.as_ref();
    let halts = machine.also_halted.iter();
    let halts: Vec<String> = halts.map(|halt| halt_text(halt, now)).collect();
    let aside = machine.set_aside.iter();
    let aside: Vec<String> = aside.map(|halt| halt_text(halt, now)).collect();
    let retries = Some(machine.retries).filter(|count| *count > 0);
    let refused = machine.refused.as_ref().map(|it| {
        let why = explain::cause(&it.code, &it.message);
        format!("{why}; {}", it.what_to_do)
    });
    let removed = machine.removed.then_some("by a person");
    Section::new("State", now)
        .text("State", &machine.state)
        .text("Phase", &machine.phase_text)
        .time("Since", Some(machine.status.since))
        .time("Phase since", machine.phase_since)
        .duration("Usual step", machine.usual_seconds)
        .optional("Reason", machine.reason.as_ref())
        .optional("Replaced by", machine.replaced_by.as_ref())
        .optional("Failure", failure.map(step_text).as_ref())
        .optional("Waiting for", machine.waiting_for.as_ref())
        .optional("Asked", asked.as_ref())
        .optional("Retried", retried.as_ref())
        .optional("Retries", retries.as_ref())
        .time("Failing since", machine.failing_since)
        .optional(
            "Quarantine",
            quarantine.map(|it| quarantine_text(it, now)).as_ref(),
        )
        .time("Down since", machine.down_since)
        .optional(
            "Halt",
            machine.halt.as_ref().map(|it| halt_text(it, now)).as_ref(),
        )
        .list("Also halted", &halts)
        .list("Set aside", &aside)
        .optional("Refused", refused.as_ref())
        .optional("Lacks", machine.lacks.as_ref())
        .optional("Neighbour", machine.neighbour.as_ref())
        .optional("To stop it", machine.neighbour_stop.as_ref())
        .flag("Deleting", machine.deleting)
        .optional("Removed", removed)
}

fn lease(machine: &Machine, now: Timestamp) -> Section {
    let torn_down = machine
        .torn_down
        .then_some("torn down; no abort ends its change");
    let section = Section::new("Lease", now)
        .optional("Token", machine.token.as_ref())
        .optional("Host", torn_down.as_ref());
    let Some(drain) = &machine.drain else {
        return section;
    };
    let Drain {
        evicted,
        left,
        blockers,
        force,
        ends,
    } = drain;
    let force = if *force {
        ", without regard to budgets"
    } else {
        ""
    };
    let blocked = |it: &Blocker| match it.budgets.as_slice() {
        [] => format!("{}: {}", it.pod, it.why),
        budgets => format!("{}: {} ({})", it.pod, it.why, budgets.join(", ")),
    };
    section
        .text(
            "Drain",
            format!("{} evicted, {left} left{force}", pods_text(*evicted)),
        )
        .lines("Held up by", blockers.iter().map(blocked).collect())
        .time("Ended by the pool", *ends)
}

/// `1 pod`, `2 pods`.
fn pods_text(count: u64) -> String {
    match count {
        1 => "1 pod".to_owned(),
        count => format!("{count} pods"),
    }
}

/// Times and numbers of a run's records. `--against` takes that of the state.
fn history(status: &RunStatus, now: Timestamp) -> Section {
    Section::new("History", now)
        .time("Began", Some(status.began))
        .time("Closed", status.closed)
        .text("Records", status.seq)
        .text("State entered at record", status.entered_seq)
}

/// Sections of a rollout, with what its machines say of it if they are known.
pub(super) fn of_rollout(
    rollout: &Rollout,
    machines: Option<&[Machine]>,
    back: &[String],
) -> Vec<Section> {
    let now = now(&rollout.status);
    let numbers = machines.map(|it| Numbers::of_pool(it, &rollout.pool));
    let word = dormer_views::problem::word_among(rollout, machines.unwrap_or_default());
    let counted = |number: fn(&Numbers) -> u64| numbers.as_ref().map(number);
    let quarantine = rollout.status.quarantine.as_ref();
    let turn = match rollout.typical_turn_expected {
        true => "Expected turn",
        false => "Usual turn",
    };
    // Its pause is named below.
    let waits = rollout.waiting_for.as_ref();
    let waits = waits.filter(|_| !rollout.waits_for_resume);
    vec![
        Section::new("", now)
            .text("Pool", &rollout.pool)
            .optional("Payload", rollout.payload.as_ref())
            .list("May go back to", back),
        Section::new("State", now)
            .text("State", word)
            .time("Since", Some(rollout.status.since))
            .optional("Waiting for", waits)
            .optional(
                "Quarantine",
                quarantine.map(|it| quarantine_text(it, now)).as_ref(),
            )
            .optional("Halted", halted(rollout, now).as_ref())
            .optional("Held", rollout.held.as_ref())
            .optional("Held cure", rollout.held_cure.as_ref())
            .optional("Wait cure", rollout.waits_cure.as_ref())
            .optional("Last written by", edit(rollout, now).as_ref())
            .optional("Refused", rollout.refused.as_ref())
            .optional("Paused", rollout.paused.as_ref())
            .optional("Rollback", rollout.rollback.as_ref())
            .optional("Rolled back", rollout.direction().as_ref()),
        Section::new("Machines", now)
            .optional("Machines", counted(|it| it.machines).as_ref())
            .optional("Serving", counted(|it| it.serving).as_ref())
            .optional("Updated", counted(|it| it.updated).as_ref())
            .text("Failed", rollout.failed)
            .text("Unavailable", rollout.unavailable)
            .optional("Max unavailable", rollout.max_unavailable.as_ref())
            .flag("Manual approval", rollout.manual_approval)
            .duration(turn, rollout.typical_turn_seconds)
            .table("Machine sets", &rollout.machine_sets, SETS),
        Section::new("Lease", now)
            .text("Token", rollout.token)
            .table("Holders", &rollout.slots, HOLDERS)
            .table("Queue", &rollout.queue, QUEUE)
            .table("Unavailable machines", &rollout.away, AWAY)
            .table("Deleted by others", &rollout.gaps, GAPS)
            .list("Awaited", &rollout.awaited)
            .list("Beyond the limit", &rollout.turned_away),
        history(&rollout.status, now),
    ]
}

/// Last edit of the pool: program, its fields, and the time.
fn edit(rollout: &Rollout, now: Timestamp) -> Option<String> {
    let by = rollout.edited.as_ref()?;
    let at = by.at.map(|at| format!(", {}", at.with_age(now)));
    let by = last_written(&by.program, &by.fields);
    Some(format!("{by}{}", at.unwrap_or_default()))
}

/// What stops the rollout, and since when it is halted. A finding stops it in another state.
fn halted(rollout: &Rollout, now: Timestamp) -> Option<String> {
    let why = rollout.halted.as_ref()?;
    Some(match rollout.state == RolloutState::Halted {
        true => format!("{why}, since {}", rollout.status.since.with_age(now)),
        false => why.clone(),
    })
}

pub(super) fn of_dead_letter(dead: &DeadLetter) -> Vec<Section> {
    // No time of the server is known, so times have no age.
    let section = Section::new("", Timestamp(0))
        .text("ID", dead.id)
        .text("Since", dead.at)
        .optional("Run", dead.run.as_ref())
        .text("From", &dead.origin)
        .text("Bytes", dead.bytes)
        .text("Reason", &dead.reason)
        .optional("Message", dead.message.as_ref());
    vec![section]
}
