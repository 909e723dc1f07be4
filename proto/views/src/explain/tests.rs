//! What a machine's page and `dormer why` say, in one paragraph.

use super::{situation::task_text, *};
use crate::{
    machine::{CordonedBy, PhaseFailure},
    record::{Event, EventKind, Record},
    run::{Heartbeat, Task, TaskPhase},
};
use dormer_proto::phase::Listed;
use serde_json::{Value, json};

/// A machine in `phase`, five minutes after it entered it.
pub(crate) fn machine_in(phase: MachinePhase) -> Machine {
    let machine = json!({
        "name": "m", "namespace": "", "uid": "u", "state": phase.state().id(), "phase": phase.id(),
        "phaseText": phase.text(), "differs": [], "pool": "windows", "deleting": false,
        "machineConditions": [], "served": false, "tasks": [], "run": "machine/u", "seq": 9, "enteredSeq": 7,
        "began": "2026-11-21T06:00:00.000Z", "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 312,
    });
    serde_json::from_value(machine).expect("a machine")
}

/// A rollout of the pool `windows`, with `fields` as JSON.
pub(crate) fn rollout_with(fields: Value) -> Rollout {
    let mut rollout = json!({
        "pool": "windows", "state": "Open", "members": 3, "joined": 2, "failed": 0, "unavailable": 1,
        "manualApproval": false, "token": 4, "away": [], "queue": [], "slots": [], "gaps": [], "awaited": [],
        "turnedAway": [], "machineSets": [], "run": "rollout/windows", "seq": 3, "enteredSeq": 1,
        "began": "2026-11-21T06:00:00.000Z", "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 312,
    });
    for (key, value) in fields.as_object().expect("fields") {
        rollout[key] = value.clone();
    }
    serde_json::from_value(rollout).expect("a rollout")
}

/// Failure of attempt 1, 7:01.
fn last_failure(task: &str, code: &str, message: &str) -> LastFailure {
    LastFailure {
        at: Moment(Timestamp(
            machine_in(MachinePhase::Probing).status.since.0.0 + 60_000,
        )),
        task: task.into(),
        attempt: 1,
        failure: TaskFailure {
            code: code.into(),
            message: message.into(),
            log: None,
        },
    }
}

pub(crate) fn failed_while(phase: MachinePhase, code: &str, message: &str) -> Machine {
    Machine {
        failure: Some(PhaseFailure {
            code: code.into(),
            message: message.into(),
            log: None,
            phase: phase.into(),
            phase_text: phase.text().into(),
        }),
        ..machine_in(MachinePhase::Failed)
    }
}

/// The machine with a step whose attempt has failed, and waits for the next one.
pub(crate) fn waiting(machine: Machine, code: &str, message: &str) -> Machine {
    let task = json!({"task": "machine/u@9.0", "run": "machine/u", "name": "probe", "machine": null, "attempt": 3,
        "attemptsMax": 65_535, "phase": "waiting", "since": null, "sinceSeconds": null,
        "until": "2026-11-21T07:06:00.000Z", "failure": {"code": code, "message": message}, "heartbeat": null});
    Machine {
        tasks: vec![serde_json::from_value(task).expect("a task")],
        ..machine
    }
}

/// The machine of [`waiting`] while the next attempt runs.
pub(crate) fn trying(machine: Machine, code: &str, message: &str) -> Machine {
    let mut machine = waiting(machine, code, message);
    for task in &mut machine.tasks {
        task.attempt += 1;
        task.phase = TaskPhase::InFlight.into();
        task.last_failure = task.failure.take();
    }
    machine
}

#[test]
fn a_hold_hides_no_failure() {
    let mut machine = failed_while(MachinePhase::Probing, "DiskFull", "drive C is full");
    machine.halt = Some(halted_by("held", "ann: a look"));
    let found = explanation(&machine, None, None);
    let cause = "held by ann: a look; without that: drive C is full (DiskFull)";
    assert_eq!(found.cause.as_deref(), Some(cause));
    assert_eq!(
        found.urgency.and_then(|it| it.known()),
        Some(Urgency::Person)
    );
    let lines: Vec<String> = found.steps.iter().filter_map(Step::line).collect();
    assert_eq!(lines, ["dormer resume m", "dormer retry m"]);
    assert!(
        found
            .steps
            .iter()
            .any(|it| it.say.starts_with("Free space"))
    );
    let lines = explanation(&machine, None, None).lines();
    assert!(
        lines.contains("Cause:   held by ann: a look; without that"),
        "{lines}"
    );
}

#[test]
fn a_hold_on_purpose_is_no_incident() {
    let mut machine = machine_in(MachinePhase::Serving);
    machine.halt = Some(halted_by("held", "ann: a look"));
    machine.waiting_for = Some("resume (held by ann: a look)".into());
    let urgency = |machine: &Machine| problem::problem(machine).map(|it| it.urgency);
    assert_eq!(urgency(&machine), Some(Urgency::OnPurpose));
    let lines = explanation(&machine, None, None).lines();
    let nothing = "Do now:  Nothing: it is held on purpose. To let dormer continue:\n           dormer resume m";
    assert!(lines.contains(nothing), "{lines}");
    // Its Node is not Ready.
    let down = Machine {
        down_since: Some(machine.status.since),
        ..machine.clone()
    };
    assert_eq!(urgency(&down), Some(Urgency::Person));
    // An upgrade under the lease continues. A drain stops the rollout: that is for a person, as what dormer itself stopped.
    let mut holder = Machine {
        token: Some(7),
        ..machine.clone()
    };
    assert_eq!(urgency(&holder), Some(Urgency::OnPurpose));
    holder.phase = MachinePhase::Drained.into();
    assert_eq!(urgency(&holder), Some(Urgency::Person));
    machine.halt = Some(halted_by("held", "dormer: the host may be another"));
    assert_eq!(urgency(&machine), Some(Urgency::Person));
    machine.halt = Some(halted_by("paused", "ann: a look"));
    assert_eq!(urgency(&machine), Some(Urgency::Person));
}

pub(crate) fn halted_by(kind: &str, by: &str) -> crate::machine::Halt {
    let halt = json!({"kind": kind, "by": by, "text": format!("{kind} by {by}")});
    serde_json::from_value(halt).expect("a halt")
}

#[test]
fn a_failure_is_explained_with_its_cause_and_the_next_step() {
    let machine = Machine {
        name: "win-1".into(),
        desired_version: Some("v2".into()),
        machine_phase: Some("Provisioned".into()),
        waiting_for: Some("a person's retry, or a change that gives a reason".into()),
        ..failed_while(
            MachinePhase::Probing,
            "AuthRejected",
            "the key is not accepted.",
        )
    };
    assert_eq!(
        paragraph(&machine, None, None),
        "win-1 failed 5 minutes ago (07:00 UTC) while probing: the key is not accepted (AuthRejected). \
         Its Machine is in phase Provisioned. Its desired version is v2. \
         Make the host accept dormer's key: check the user, the public key in the user data (which may not have run \
         yet), and that only Administrators and SYSTEM can access administrators_authorized_keys. Then continue: \
         dormer retry win-1. Or replace it: dormer recreate win-1."
    );
    assert_eq!(
        cause("access_denied", "C:\\k cannot be written."),
        "access denied: C:\\k cannot be written (AccessDenied)"
    );
}

#[test]
fn an_explanation_has_its_parts_on_lines_of_their_own() {
    let machine = failed_while(MachinePhase::ConvergingHost, "access_denied", "No right.");
    let found = explanation(&machine, None, None);
    assert_eq!(
        found.lines(),
        "m failed 5 minutes ago (07:00 UTC) while converging the host: access denied: No right (AccessDenied).\n\
         Do now:  1. Make the SSH user an administrator of the host.\n         \
         2. Then continue:\n              \
         dormer retry m\n         \
         Or replace it:\n           \
         dormer recreate m\n\
         State:   Failed since 07:00 UTC, for 5m12s, while converging the host"
    );
    let json = serde_json::to_value(&found).expect("JSON");
    assert_eq!(json["do"][1]["argv"], json!(["dormer", "retry", "m"]));
    assert_eq!(json["do"][0]["outside"], "mend-host");
    assert_eq!(json["urgency"], "stuck");
    let serving = explanation(&machine_in(MachinePhase::Serving), None, None);
    assert_eq!((serving.cause, serving.steps.len()), (None, 0));
}

#[test]
fn a_machine_that_continues_by_itself_says_when_it_counts_as_stuck() {
    let probing = |since_seconds| {
        let mut machine = machine_in(MachinePhase::Probing);
        machine.status.since_seconds = since_seconds;
        explanation(&machine, None, None)
    };
    let usual = probing(300);
    let json = serde_json::to_value(&usual).expect("JSON");
    assert_eq!(json["healsBy"], "2026-11-21T07:30:00.000Z");
    assert_eq!(json["do"][0]["outside"], "open-ssh");
    let lines = usual.lines();
    let first = "Do now:  Nothing yet: dormer continues by itself. It counts as stuck at 07:30 UTC; then:\n";
    assert!(lines.contains(first), "{lines}");
    let slow = probing(16 * 60);
    assert_eq!(slow.urgency, Some(Urgency::Slow.into()));
    assert_eq!(slow.heals_by, usual.heals_by);
    let stuck = probing(30 * 60);
    assert_eq!(stuck.urgency, Some(Urgency::Stuck.into()));
    assert_eq!(stuck.heals_by, None);
    let lines = stuck.lines();
    assert!(
        lines.contains("Do now:  Check that the host runs"),
        "{lines}"
    );
}

#[test]
fn the_age_of_a_halted_machine_is_that_of_its_state() {
    let halt = json!({"kind": "held", "by": "ann", "text": "held by ann"});
    let machine = Machine {
        halt: serde_json::from_value(halt).expect("a halt"),
        ..machine_in(MachinePhase::Serving)
    };
    let lines = explanation(&machine, None, None).lines();
    let since = lines.lines().find(|it| it.starts_with("State:"));
    let since = since.unwrap_or_default();
    assert!(since.ends_with("for 5m12s, serving"), "{lines}");
    let details = "Details: dormer history m shows when it was stopped.";
    assert!(lines.contains(details), "{lines}");
    let mut known = machine;
    let now = now(&known);
    if let Some(halt) = &mut known.halt {
        halt.since = Some(Moment(Timestamp(now.0 - 4_000)));
    }
    let lines = explanation(&known, None, None).lines();
    assert!(
        lines.contains("Details: It has been stopped for 4s."),
        "{lines}"
    );
    let serving = explanation(&machine_in(MachinePhase::Serving), None, None);
    assert!(!serving.lines().contains("stopped"));
}

#[test]
fn a_late_steps_cause_is_its_last_failure_while_the_next_attempt_goes_on() {
    let mut machine = Machine {
        waiting_for: Some("SSH at 10.0.0.9".into()),
        ..machine_in(MachinePhase::Probing)
    };
    machine.status.since_seconds = 40 * 60;
    let last = last_failure("probe", "ConnectTimeout", "10.0.0.9 does not answer");
    let found = explanation(&machine, Some(&last), None);
    let cause = "Probing the host failed 39 minutes ago: 10.0.0.9 does not answer (ConnectTimeout)";
    assert_eq!(found.cause.as_deref(), Some(cause));
    assert_eq!(found.cause_code.as_deref(), Some("ConnectTimeout"));
    let said = |it: &String| it.contains("does not answer");
    assert!(!found.details.iter().any(said), "said once: {found:?}");
    assert_eq!(
        found.headline,
        "m has been Provisioned (probing) for 40 minutes, since 07:00 UTC: 10.0.0.9 does not answer."
    );
    let unknown = explanation(&machine, None, None);
    let cause = unknown.cause.clone().unwrap_or_default();
    assert!(cause.contains("it waits for SSH"), "{cause}");
    let lines = unknown.lines();
    assert_eq!(lines.matches(&cause).count(), 1, "{lines}");
}

#[test]
fn what_stands_against_a_lease_is_the_trouble_of_those_who_wait() {
    let waits = machine_in(MachinePhase::LeaseWait);
    let of = |fields| {
        let found = explanation(&waits, None, Some(&rollout_with(fields)));
        (found.urgency.and_then(|it| it.known()), found.code)
    };
    let code = |code: &str| Some(code.to_owned());
    let held = of(json!({"held": "there is no pool"}));
    assert_eq!(held, (Some(Urgency::Stuck), code("Held")));
    let cordoned = of(json!({"away": [{"uid": "u", "name": "m", "why": "cordoned"}]}));
    assert_eq!(cordoned, (Some(Urgency::Person), code("Cordoned")));
    let eroded = of(json!({"eroded": true}));
    assert_eq!(eroded, (Some(Urgency::Person), code("Eroded")));
    let away = json!({"away": [{"uid": "u", "name": "m", "why": "cordoned"}]});
    let by = Machine {
        cordoned_by: Some(CordonedBy {
            program: "kubectl-cordon".into(),
            at: Some(Moment(Timestamp(1_795_593_600_000))),
        }),
        ..waits.clone()
    };
    let cause = explanation(&by, None, Some(&rollout_with(away))).cause;
    let cause = cause.unwrap_or_default();
    assert!(
        cause.contains("cordoned its Node (by kubectl-cordon, 2026-11-25 08:00 UTC)"),
        "{cause}"
    );
    assert_eq!(of(json!({})), (None, None), "its turn comes by itself");
}

#[test]
fn a_machine_beyond_the_limit_of_its_rollout_says_so() {
    let room = "The rollout of pool windows has room for 5000 machines and none for this one: dormer does not \
                upgrade it until another machine of the pool is gone.";
    let says = |phase, fields| {
        let machine = machine_in(phase);
        let rollout = rollout_with(fields);
        let found = explanation(&machine, None, Some(&rollout));
        assert_eq!(
            found.why.contains(room),
            found.details.iter().any(|it| it == room)
        );
        found.why.contains(room)
    };
    let serves = MachinePhase::Serving;
    let waits = MachinePhase::LeaseWait;
    assert!(says(serves, json!({"members": 5_000, "turnedAway": ["m"]})));
    assert!(says(waits, json!({"members": 5_000, "turnedAway": ["u"]})));
    // The rollout names sixteen of them.
    assert!(says(
        waits,
        json!({"members": 5_000, "turnedAway": ["other"]})
    ));
    assert!(!says(waits, json!({"members": 4_999})));
    assert!(!says(serves, json!({"members": 5_000})));
    let queued = json!([{"uid": "u", "name": "m", "position": 1, "away": false}]);
    assert!(!says(waits, json!({"members": 5_000, "queue": queued})));
}

#[test]
fn a_running_attempt_is_explained_with_its_progress() {
    let since = Moment(Timestamp(1_000_000));
    let task = Task {
        last_failure: None,
        task: "machine/u@3.0".into(),
        run: "machine/u".into(),
        name: "converge-host".into(),
        machine: None,
        attempt: 2,
        attempts_max: 60,
        ends: None,
        phase: crate::run::TaskPhase::InFlight.into(),
        since: Some(since),
        since_seconds: Some(75),
        until: Moment(Timestamp(1_090_000)),
        failure: None,
        heartbeat: Some(Heartbeat {
            worker: "w1".into(),
            step: "upload".into(),
            done: 31_457_280,
            of: 209_715_200,
            unit: "bytes".into(),
        }),
    };
    assert_eq!(
        task_text(&task).as_deref(),
        Some(
            "Configuring the host has been running for 75s, attempt 2 of 60, on worker w1, step upload, 30 of 200 MiB."
        )
    );
    let failure = TaskFailure {
        code: "ConnectRefused".into(),
        message: "10.0.0.9:22 refuses".into(),
        log: None,
    };
    let task = Task {
        last_failure: None,
        attempts_max: 65_535,
        ends: None,
        failure: Some(failure),
        ..task
    };
    assert_eq!(task_text(&task), None, "the failure says it");
    let mut machine = machine_in(MachinePhase::ConvergingHost);
    machine.tasks = vec![task];
    machine.status.since_seconds = 0;
    let at = now(&machine);
    machine.tasks[0].until = Moment(Timestamp(at.0 + 15_000));
    let twice = explanation(&machine, None, None);
    let cause = "Configuring the host failed 2 times: 10.0.0.9:22 refuses (ConnectRefused)";
    assert_eq!(twice.cause.as_deref(), Some(cause));
    assert_eq!(
        twice.next.as_deref(),
        Some("The next attempt is due in 15s.")
    );
}

#[test]
fn a_quarantine_comes_before_everything_else() {
    let mut machine = failed_while(MachinePhase::Probing, "AuthRejected", "no key");
    machine.status.quarantine = Some(crate::run::Quarantine {
        code: "RecordRefused".into(),
        why: "record message has 2000000 bytes.".into(),
        since: machine.status.since,
        builds: vec!["dormer 1".into()],
    });
    let said = paragraph(
        &machine,
        Some(&last_failure("probe", "NoAnswer", "The last failure")),
        None,
    );
    for part in [
        "Its run is quarantined since",
        "record message has 2000000 bytes (RecordRefused).",
        "dormer unquarantine",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        !said.contains("The last failure") && !said.contains("retry"),
        "{said}"
    );
}

#[test]
fn the_last_failure_is_shown_until_the_machine_serves_or_the_task_succeeds() {
    let about = |kind: EventKind, text: &str| Event {
        task: Some("probe".into()),
        attempt: Some(1),
        ..Event::new(kind, text)
    };
    let record = |seq: u64, event: Event| Record {
        seq,
        at: Moment(Timestamp(1_763_708_400_000)),
        state: "Provisioned".into(),
        state_text: None,
        phase: None,
        phase_text: None,
        events: vec![event],
        asks: Vec::new(),
        envelope: None,
    };
    let failure = Event {
        code: Some("NoAnswer".into()),
        message: Some("no worker answered".into()),
        ..about(EventKind::TaskFailed, "probe failed at attempt 1")
    };
    let mut records = vec![
        record(1, failure),
        record(2, Event::new(EventKind::Observed, "the Machine is seen")),
    ];
    let probing = Machine {
        waiting_for: Some("SSH".into()),
        ..machine_in(MachinePhase::Probing)
    };
    let last = failure_in(&records, &probing);
    let message = last.as_ref().map(|it| it.failure.message.as_str());
    assert_eq!(message, Some("no worker answered"));
    let why = paragraph(&probing, last.as_ref(), None);
    assert!(why.contains("no worker answered (NoAnswer)"), "{why}");
    assert_eq!(
        failure_in(&records, &machine_in(MachinePhase::Serving)),
        None
    );
    records.push(record(
        3,
        about(EventKind::TaskSucceeded, "probe succeeded"),
    ));
    assert_eq!(failure_in(&records, &probing), None);
}

/// After two hours of attempts the engine ends a task with its own message, which is less specific than those of
/// the attempts.
#[test]
fn what_went_wrong_stays_known_after_the_time_for_it_is_over() {
    let over = "no worker has reported on it in time; the first attempt began 2h before";
    let record = |seq: u64, code: &str, message: &str| {
        let event = Event {
            task: Some("probe".into()),
            code: Some(code.into()),
            attempt: Some(seq),
            message: Some(message.into()),
            ..Event::new(EventKind::TaskFailed, "probe failed")
        };
        Record {
            seq,
            at: Moment(Timestamp(1_763_708_400_000)),
            state: "Provisioned".into(),
            state_text: None,
            phase: None,
            phase_text: None,
            events: vec![event],
            asks: Vec::new(),
            envelope: None,
        }
    };
    let mut failed = machine_in(MachinePhase::Failed);
    failed.failure = Some(crate::machine::PhaseFailure {
        phase: MachinePhase::Probing.into(),
        phase_text: "probing the host".into(),
        code: "NoAnswer".into(),
        message: over.into(),
        log: None,
    });
    let last = failure_in(
        &[
            record(1, "ConnectRefused", "10.0.0.9 refuses port 22"),
            record(2, "NoAnswer", over),
        ],
        &failed,
    );
    let why = paragraph(&failed, last.as_ref(), None);
    assert!(why.contains(over), "{why}");
    let found = explanation(&failed, last.as_ref(), None);
    assert!(
        found.headline.ends_with(": 10.0.0.9 refuses port 22."),
        "{found:?}"
    );
    // If nothing else is known, that message is shown.
    let last = failure_in(&[record(2, "NoAnswer", over)], &failed);
    assert!(last.is_some_and(|it| it.failure.message == over));
}
