//! Tests of which machines need attention, and from which cause.

use super::*;
use crate::{
    explain::{
        short::in_short,
        tests::{failed_while, halted_by, machine_in},
    },
    machine::{Blocker, Drain},
};

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
    // A phase that waits is not named twice.
    let mut waits = machine_in(MachinePhase::ReplacementWait);
    waits.waiting_for = Some("a replacement to serve".into());
    waits.status.since_seconds = 3 * 60 * MINUTE;
    let found = problem(&waits).expect("trouble");
    assert_eq!(found.cause, "it waits for a replacement to serve");
    assert_eq!(in_short(&waits), Some(found.cause));
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

/// Kubelets renew at 70 to 90 of 100 parts of the validity, whatever that is: a day in a young cluster, or a year.
#[test]
fn a_kubelet_that_does_not_renew_its_certificate_is_named_with_the_date() {
    let serving = machine_in(MachinePhase::Serving);
    let Moment(Timestamp(now)) = Moment(crate::explain::now(&serving));
    let day = 24 * 3_600 * 1_000;
    let with = |used_as: CertificateUse, days: u64, gone: u64| {
        let from = now - days * day * gone / 1_000;
        KubeletCertificate {
            used_as: used_as.into(),
            from: Moment(Timestamp(from)),
            until: Moment(Timestamp(from + days * day)),
        }
    };
    let machine = |certificates: Vec<KubeletCertificate>| Machine {
        certificates,
        ..serving.clone()
    };
    for days in [1, 30, 365] {
        let fine = machine(vec![with(CertificateUse::Client, days, 940)]);
        assert_eq!(problem(&fine), None, "{days} days");
        assert_eq!(crate::explain::steps(&fine, None), []);
        let late = with(CertificateUse::Client, days, 960);
        let at = late.late_from();
        let until = late.until.clock(Timestamp(now));
        let two = machine(vec![with(CertificateUse::Serving, 400, 100), late]);
        let found = problem(&two).expect("trouble");
        let said = format!(
            "its kubelet has not renewed the certificate by which the API server knows it, which lapses at {until}"
        );
        assert_eq!(
            (found.code.as_str(), found.cause),
            ("CertificateLapses", said)
        );
        assert_eq!((found.urgency, found.since), (Urgency::Person, Some(at)));
        assert!(!crate::explain::steps(&two, None).is_empty());
    }
    let lapsed = machine(vec![with(CertificateUse::Serving, 30, 1_001)]);
    let found = problem(&lapsed).expect("trouble");
    assert_eq!(found.urgency, Urgency::Stuck);
    assert_eq!(found.code, "CertificateLapsed");
    let cause = "the certificate of its kubelet by which it serves logs and exec lapsed at ";
    assert!(found.cause.starts_with(cause), "{}", found.cause);
    let down = Machine {
        waiting_for: Some("the Node n to be Ready and schedulable".into()),
        ..lapsed
    };
    assert_eq!(
        problem(&down).expect("trouble").code,
        "NotReady",
        "as before"
    );
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
            own: None,
            who: None,
            why: None,
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

/// One cure for all that is shown as one cause: a full disk is not mended where a host does not answer.
#[test]
fn late_machines_are_one_cause_only_where_one_cure_is_right() {
    let late = |name: &str, code: &str| {
        let task = serde_json::json!({"task": "machine/u@3.0", "run": "machine/u", "name": "probe", "attempt": 3,
            "attemptsMax": 65_535, "phase": "waiting", "until": "2026-11-21T09:00:00.000Z",
            "failure": {"code": code, "message": "m"}});
        let mut machine = after(machine_in(MachinePhase::Probing), 60);
        machine.name = name.into();
        machine.tasks = vec![serde_json::from_value(task).expect("a task")];
        machine
    };
    let machines = [
        late("a", "ConnectTimeout"),
        late("b", "DiskFull"),
        late("c", "ConnectRefused"),
        late("d", "DiskFull"),
    ];
    let groups = crate::explain::groups::groups(&machines);
    let names = |group: &crate::explain::groups::Group<'_>| -> Vec<String> {
        let machines = group.machines.iter();
        machines.map(|it| it.name.clone()).collect()
    };
    let mut names: Vec<Vec<String>> = groups.iter().map(names).collect();
    names.sort();
    assert_eq!(names, [["a", "c"], ["b", "d"]]);
    for group in &groups {
        let code = &group.machines[0].tasks[0]
            .failure
            .as_ref()
            .expect("one")
            .code;
        let cure = crate::explain::steps(group.machines[0], None);
        assert_eq!(cure[0].say, group.steps(None)[0].say, "{code}");
    }
}

#[test]
fn a_machine_that_is_retried_is_no_calm_one() {
    let since = machine_in(MachinePhase::Probing).status.since;
    let failed = failed_while(MachinePhase::Probing, "ConnectTimeout", "no answer");
    let mut retried = machine_in(MachinePhase::Probing);
    retried.retried = failed.failure.map(|failure| Retried {
        at: since,
        by: Some("ann: the firewall is open".into()),
        who: None,
        why: None,
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
        finalizers: Vec::new(),
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
        let late = problem(&after(machine, 4));
        late.map(|it| it.cause).unwrap_or_default()
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

/// Its Machine has no condition about the creation, but mirrors the reason of the provider's object.
#[test]
fn a_refusal_by_a_provider_of_cluster_api_is_stuck_at_once() {
    let mirrored = |why: &str| Machine {
        machine_conditions: vec![Condition {
            kind: "InfrastructureReady".into(),
            status: "False".into(),
            reason: why.into(),
            message: "0 of 2 completed".into(),
        }],
        ..after(machine_in(MachinePhase::AddressWait), 0)
    };
    for reason in [
        "InstanceProvisionFailed",
        "VMProvisionFailed",
        "InstanceCreateFailed",
    ] {
        let refused = mirrored(reason);
        let found = problem(&refused).expect("trouble");
        assert_eq!(found.urgency, Urgency::Stuck, "{reason}");
        assert!(found.cause.contains(reason), "{found:?}");
        assert_eq!(refused_by_cloud(&refused), Some(reason));
        let explained = crate::explain::explanation(&refused, None, None);
        let outside = explained.steps.iter().find_map(|it| it.outside.as_ref());
        assert_eq!(outside.map(|it| it.id()), Some("make-room"), "{reason}");
    }
    for early in ["InstanceProvisionStarted", "WaitingForInfrastructure"] {
        assert_eq!(urgency(&mirrored(early)), None, "{early}");
    }
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
        finalizers: Vec::new(),
    }];
    assert_eq!(held(Vec::new(), 11), None);
    assert_eq!(held(blocker.clone(), 2), None, "an ordinary drain");
    assert_eq!(held(blocker.clone(), 3), Some(Urgency::Slow));
    assert_eq!(held(blocker.clone(), 9), Some(Urgency::Slow));
    assert_eq!(held(blocker, 10), Some(Urgency::Stuck));
}

#[test]
fn a_long_cause_is_its_first_clause_and_its_code() {
    let failed = |text: &str| in_short(&failed_while(MachinePhase::Probing, "AuthRejected", text));
    let long = "10.0.0.7 does not accept our key: user data has not run yet, or the file is open";
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
    assert_eq!(found.code, "Quarantined");
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
fn a_silent_host_whose_instance_is_gone_has_the_error_of_its_machine_as_cause() {
    let silent = failed_while(MachinePhase::Probing, "ConnectTimeout", "no answer");
    let gone = Machine {
        machine_phase: Some("Failed".into()),
        machine_error: Some("Can't find created instance.".into()),
        ..silent.clone()
    };
    let cause = |machine: &Machine| problem(machine).expect("trouble").cause;
    assert_eq!(cause(&silent), "no answer (ConnectTimeout)");
    assert_eq!(
        cause(&gone),
        "its Machine failed: Can't find created instance; no answer (ConnectTimeout)"
    );
    let refused = failed_while(MachinePhase::Probing, "AuthRejected", "no key fits");
    let refused = Machine {
        failure: refused.failure,
        ..gone
    };
    assert_eq!(cause(&refused), "no key fits (AuthRejected)");
}

#[test]
fn a_page_does_not_name_a_command_for_its_own_plan() {
    let machine = Machine {
        differs: vec!["a".into(), "b".into()],
        ..machine_in(MachinePhase::Serving)
    };
    let shown = super::super::short::in_short_on_page(&machine);
    assert_eq!(shown.as_deref(), Some("2 items differ"));
}

/// With `drain.afterTimeout: Abort` or `Force` dormer ends the drain by itself.
#[test]
fn a_drain_that_the_pool_ends_continues_by_itself_until_then() {
    let held = |minutes: u64, ends: Option<u64>| {
        let blocker = Blocker {
            pod: "shop/cart-7".into(),
            why: "it needs 5".into(),
            budgets: vec!["cart".into()],
            until_off: false,
            finalizers: Vec::new(),
        };
        let evicting = after(machine_in(MachinePhase::Evicting), minutes);
        let now = crate::explain::now(&evicting).0;
        let ends = ends.map(|minutes| Moment(Timestamp(now + minutes * 60_000)));
        Machine {
            drain: Some(Drain {
                left: 1,
                blockers: vec![blocker],
                ends,
                ..Drain::default()
            }),
            ..evicting
        }
    };
    let waits = held(4, None);
    assert_eq!(heals_by(&waits), None, "a person has to do something");
    for minutes in [4, 50] {
        let ends = held(minutes, Some(10));
        assert_eq!(urgency(&ends), Some(Urgency::Slow), "{minutes}");
        let by = heals_by(&ends);
        assert_eq!(by, ends.drain.as_ref().and_then(|it| it.ends), "{minutes}");
    }
    assert_eq!(urgency(&held(50, None)), Some(Urgency::Stuck));
}

/// A person who holds a machine during its upgrade stops nothing.
#[test]
fn a_hold_under_the_lease_is_no_trouble_and_a_drain_is() {
    let held = |phase: MachinePhase, kind: &str| Machine {
        token: Some(4),
        halt: Some(halted_by(kind, "ann: a look")),
        ..machine_in(phase)
    };
    for phase in [MachinePhase::Evicting, MachinePhase::TearingDown] {
        assert_eq!(urgency(&held(phase, "held")), Some(Urgency::OnPurpose));
        assert_eq!(urgency(&held(phase, "paused")), Some(Urgency::Person));
    }
    let drained = held(MachinePhase::Drained, "held");
    assert_eq!(urgency(&drained), Some(Urgency::Person));
}

#[test]
fn a_bar_is_what_the_machine_waits_for() {
    let waits = |text: &str| {
        let late = Machine {
            waiting_for: Some(text.into()),
            ..after(machine_in(MachinePhase::PoolWait), 600)
        };
        problem(&late).map(|it| it.cause).unwrap_or_default()
    };
    let bar = waits("an upgrade that is allowed: 11.0.0 does not follow 9.0.0");
    assert!(
        bar.starts_with("it waits for an upgrade that is allowed: 11.0.0 does not follow 9.0.0"),
        "{bar}"
    );
    let named = waits("the pool's settings");
    assert!(
        named.starts_with("it waits for the pool's settings"),
        "{named}"
    );
}
