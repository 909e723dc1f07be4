//! Tests of the advice: each command is complete, and each failure has its cure.

use super::{
    super::tests::{failed_while, machine_in, rollout_with, trying, waiting},
    *,
};
use crate::{
    explain::drain_steps::what_holds,
    machine::{Condition, CordonedBy, Halt, MachineKind},
    run::TaskFailure,
};
use dormer_profile::answer::FailureCode;
use dormer_proto::{
    machine::{FenceRefusal, OTHER_NAME, OTHER_NAME_POSSIBLE, OWN_REQUEST},
    phase::Listed,
};
use serde_json::json;

fn lines(steps: &[Step]) -> Vec<String> {
    steps.iter().filter_map(Step::line).collect()
}

/// Kinds of the actions outside of dormer, in their order.
fn outside(steps: &[Step]) -> Vec<Outside> {
    let kinds = steps.iter().filter_map(|it| it.outside.as_ref()?.known());
    kinds.collect()
}

fn said(steps: &[Step]) -> String {
    let said = steps.iter().map(|step| step.say.as_str());
    said.collect::<Vec<_>>().join(". ")
}

#[test]
fn a_failed_machine_is_mended_outside_and_then_retried() {
    let machine = failed_while(MachinePhase::Probing, "AuthRejected", "no key fits");
    let steps = steps(&machine, None);
    assert_eq!(outside(&steps), [Outside::AcceptKey]);
    assert_eq!(lines(&steps), ["dormer retry m", "dormer recreate m"]);
    assert!(steps[2].instead);
}

#[test]
fn the_last_failures_cure_stays_while_the_next_attempt_runs() {
    let machine = || machine_in(MachinePhase::Probing);
    let between = waiting(machine(), "DiskFull", "drive C is full");
    let during = trying(machine(), "DiskFull", "drive C is full");
    for machine in [&between, &during] {
        assert_eq!(outside(&steps(machine, None)), [Outside::FreeDisk]);
    }
    let text = said(&steps(&during, None));
    assert!(text.contains(". Attempt 4 is under way"), "{text}");
    assert!(!said(&steps(&between, None)).contains("under way"));
    // After a person's retry the new step's first attempt has no failure of its own.
    let mut retried = trying(machine(), "DiskFull", "");
    retried.tasks[0].last_failure = None;
    let fields = json!({"at": "2026-11-21T07:00:00.000Z", "code": "ClockSkew", "message": "m",
        "phase": "probing", "phaseText": "probing"});
    retried.retried = Some(serde_json::from_value(fields).expect("a retry"));
    assert_eq!(outside(&steps(&retried, None)), [Outside::SetClock]);
}

#[test]
fn a_changed_host_key_is_not_retried() {
    use crate::explain::step_lines;
    let machine = failed_while(MachinePhase::Probing, "HostKeyChanged", "another key");
    let steps = steps(&machine, None);
    let compares = [Outside::CompareHostKey, Outside::TrustHostKey];
    assert_eq!(outside(&steps), compares, "first");
    let fill = "dormer trust-host-key m --fingerprint FINGERPRINT --why REASON";
    assert_eq!(lines(&steps), [fill, "dormer recreate m"]);
    assert!(steps[1].argv.is_empty(), "no program executes it");
    assert!(steps[2].instead);
    let text = step_lines(&steps).join("\n");
    let reads = "1. Read the key on the host itself, on its console and not over SSH: ssh-keygen -lf C:\\ProgramData\\ssh\\";
    assert!(text.starts_with(reads), "{text}");
    assert!(text.contains("\n2. Trust that key"), "{text}");
    assert!(text.contains("trust-host-key m "), "{text}");
    assert!(text.contains("\nOr replace it, if the key"), "{text}");
}

#[test]
fn a_serving_machine_whose_host_has_another_key_is_trusted_as_a_failed_one_is() {
    let serving = Machine {
        waiting_for: Some("10.0.0.9 to be compared: another key (HostKeyChanged)".into()),
        not_compared: Some(TaskFailure {
            code: "HostKeyChanged".into(),
            message: "another key".into(),
            log: None,
        }),
        ..machine_in(MachinePhase::Serving)
    };
    let failed = failed_while(MachinePhase::Probing, "HostKeyChanged", "another key");
    assert_eq!(steps(&serving, None), steps(&failed, None));
}

#[test]
fn no_step_says_in_a_persons_name_that_a_key_was_compared() {
    let key = |letter: &str| format!("SHA256:{}", letter.repeat(43));
    let said = format!(
        "10.0.0.9 shows the host key ssh-ed25519 {}, not the pinned ssh-ed25519 {}: nothing was sent to it",
        key("n"),
        key("o")
    );
    let machine = failed_while(MachinePhase::Probing, "HostKeyChanged", &said);
    for step in steps(&machine, None) {
        let words = step.argv.join(" ");
        assert!(!words.contains("trust-host-key"), "{words}");
        assert!(
            !step.say.contains(&key("n")),
            "what the host shows is no proof: {}",
            step.say
        );
    }
}

#[test]
fn a_drain_that_a_budget_holds_up_names_it_its_pods_and_what_to_do() {
    let blocker =
        |pod: &str, budgets: &[&str]| json!({"pod": pod, "why": "no", "budgets": budgets});
    let drain = json!({"evicted": 1, "left": 4, "force": false, "blockers": [
        blocker("shop/cart-7", &["cart"]),
        blocker("shop/cart-8", &["cart"]),
        blocker("other/cart-9", &["cart"]),
        blocker("shop/db-1", &["a", "b"]),
    ]});
    let mut machine = machine_in(MachinePhase::Evicting);
    machine.drain = serde_json::from_value(drain).expect("a drain");
    let found = steps(&machine, None);
    let expected = "Let the PodDisruptionBudget cart in the namespace shop allow evictions: start more pods that it \
                    covers, mend those that are not Ready, or lower what it asks for. It keeps shop/cart-7, shop/cart-8. To let one \
                    pod go at a time";
    assert_eq!(found[1].say, expected);
    assert_eq!(
        lines(&found),
        [
            "kubectl -n shop describe pdb cart",
            "kubectl -n shop patch pdb cart --type merge -p '{\"spec\":{\"minAvailable\":null,\"maxUnavailable\":1}}'",
            "dormer abort m"
        ]
    );
    assert!(found[2].say.contains("upgrade"), "{found:?}");
    machine.asked = Some(crate::machine::PendingRequest {
        what: crate::machine::AskedFor::Drain.into(),
        by: Some("ann".into()),
        who: None,
        why: None,
        at: None,
        begun: true,
    });
    assert!(steps(&machine, None)[2].say.contains("drain"));
    // Its host is torn down: an abort has no effect.
    machine.torn_down = true;
    let left = steps(&machine, None);
    assert!(left.iter().all(|it| !it.say.contains("Give ")), "{left:?}");
    assert_eq!(lines(&left), lines(&found[..2]));
}

#[test]
fn finalizers_are_named_from_their_field_and_from_the_sentence_of_an_older_server() {
    let said = |why: &str, finalizers: &[&str]| {
        let blocker =
            serde_json::json!({"pod": "shop/cart-7", "why": why, "finalizers": finalizers});
        let drain =
            serde_json::json!({"evicted": 0, "left": 1, "force": false, "blockers": [blocker]});
        let machine = Machine {
            drain: serde_json::from_value(drain).expect("a drain"),
            ..machine_in(MachinePhase::Evicting)
        };
        steps(&machine, None).swap_remove(1).say
    };
    let expected = "Let the program that set them remove the finalizers a.b/c, d.e/f of shop/cart-7. If it is gone for good";
    assert_eq!(said("they keep it", &["a.b/c", "d.e/f"]), expected);
    assert_eq!(
        said("it waits for its finalizers a.b/c, d.e/f", &[]),
        expected
    );
}

#[test]
fn a_foreign_node_is_named_from_its_field() {
    let machine = |node: &str| Machine {
        certificate_refused: Some("another text than before".into()),
        foreign_node: Some(crate::machine::ForeignNode {
            node: node.into(),
            theirs: "aws:///a/i-0".into(),
            ours: "aws:///a/i-1".into(),
        }),
        node: Some("n-1".into()),
        ..machine_in(MachinePhase::NodeWait)
    };
    let delete = "kubectl delete node n-1".to_owned();
    assert!(lines(&steps(&machine("n-1"), None)).contains(&delete));
    assert!(!lines(&steps(&machine("n-2"), None)).contains(&delete));
}

#[test]
fn one_resume_that_ends_a_pause_and_a_hold_says_so() {
    let halt = |kind: HaltKind, text: &str| Halt {
        kind: kind.into(),
        by: Some("ann".into()),
        own: None,
        who: None,
        why: None,
        text: text.into(),
        since: None,
    };
    let machine = Machine {
        halt: Some(halt(HaltKind::Paused, "paused by ann: a look")),
        also_halted: vec![halt(HaltKind::Held, "held by bob: a disk")],
        ..machine_in(MachinePhase::Serving)
    };
    let found = steps(&machine, None);
    assert_eq!(
        found[0].say,
        "Let dormer continue; this ends all of it: paused by ann: a look; held by bob: a disk"
    );
    let cause = problem::problem(&machine).map(|it| it.cause);
    assert_eq!(
        cause.as_deref(),
        Some("paused by ann: a look; held by bob: a disk")
    );
}

#[test]
fn a_budget_that_holds_a_pod_is_shown_itself() {
    let words = |budgets: &[&str]| {
        let budgets: Vec<String> = budgets.iter().map(|&it| it.to_owned()).collect();
        what_holds("cart-7", &budgets).join(" ")
    };
    assert_eq!(words(&["cart"]), "describe pdb cart");
    assert_eq!(words(&["a", "b"]), "get pdb");
    assert_eq!(words(&[]), "describe pod cart-7");
}

#[test]
fn each_command_is_complete() {
    let rollout = rollout_with(json!({"away": [{"uid": "n", "name": "n", "why": "holds"}]}));
    for phase in MachinePhase::ALL {
        for step in steps(&machine_in(*phase), Some(&rollout)) {
            let words = step.argv.join(" ");
            let placeholder = words.contains("MACHINE") || words.contains('…');
            assert!(!placeholder, "{phase}: {words}");
            let program = step.argv.first().map(String::as_str);
            assert!(
                matches!(program, None | Some("dormer" | "kubectl")),
                "{phase}: {words}"
            );
            assert!(
                step.argv.is_empty() == step.outside.is_some(),
                "{phase}: {step:?}"
            );
        }
    }
}

/// First words of a step. A step that begins otherwise describes, and does not say what to do.
const IMPERATIVES: &[&str] = &[
    "Add", "Allow", "Change", "Check", "Close", "Compare", "Continue", "Correct", "Create",
    "Decide", "Do", "End", "Find", "Free", "Give", "Grant", "Install", "Let", "Make", "Mend",
    "Open", "Read", "Reboot", "Release", "Remove", "Replace", "Restart", "Restore", "Return",
    "See", "Set", "Start", "Tell", "Then", "Trust", "Try", "Uncordon", "Wait",
];

#[test]
fn every_step_begins_with_an_imperative() {
    let codes = FailureCode::ALL.iter().map(|it| it.as_str());
    let others = [
        "AuthRejected",
        "HostKeyChanged",
        "RebootOverdue",
        "TaintsAmiss",
    ];
    let codes = codes.chain(others.map(Into::into));
    let failed = codes.map(|code| failed_while(MachinePhase::ConvergingHost, &code, "m"));
    let phases = MachinePhase::ALL.iter().map(|phase| machine_in(*phase));
    let held = rollout_with(json!({"held": "there is no pool", "heldCure": "Create the pool"}));
    let older = rollout_with(json!({"held": "there is no pool: kubectl apply"}));
    let away = rollout_with(json!({"away": [{"uid": "n", "name": "n", "why": "holds"}]}));
    for machine in failed.chain(phases) {
        for rollout in [None, Some(&held), Some(&older), Some(&away)] {
            for step in steps(&machine, rollout) {
                let first = step.say.split([' ', ':']).next().unwrap_or_default();
                assert!(
                    IMPERATIVES.contains(&first),
                    "{}: {}",
                    machine.phase,
                    step.say
                );
            }
        }
    }
}

#[test]
fn a_pool_that_holds_grants_has_its_remedy_as_the_step() {
    let machine = machine_in(MachinePhase::LeaseWait);
    let rollout =
        rollout_with(json!({"held": "there is no pool", "heldCure": "Create the pool: c"}));
    let steps = steps(&machine, Some(&rollout));
    assert_eq!(said(&steps), "Create the pool: c");
    assert_eq!(outside(&steps), [Outside::CorrectPool]);
}

#[test]
fn a_halted_machine_is_resumed() {
    let paused = Machine {
        halt: Some(Halt {
            kind: HaltKind::Paused.into(),
            by: Some("x".into()),
            own: None,
            who: None,
            why: None,
            text: "paused by x".into(),
            since: None,
        }),
        ..machine_in(MachinePhase::Rebooting)
    };
    assert_eq!(lines(&steps(&paused, None)), ["dormer resume m"]);
}

#[test]
fn a_machine_that_dormer_holds_for_a_cordon_has_the_uncordon_first() {
    let held = Machine {
        halt: Some(Halt {
            kind: HaltKind::Held.into(),
            by: Some("dormer: another client cordoned the Node m".into()),
            own: None,
            who: None,
            why: None,
            text: "held by dormer: another client cordoned the Node m".into(),
            since: None,
        }),
        cordoned_by: Some(CordonedBy {
            program: "kubectl".into(),
            at: None,
        }),
        ..machine_in(MachinePhase::Serving)
    };
    let steps = steps(&held, None);
    assert_eq!(lines(&steps), ["kubectl uncordon m", "dormer resume m"]);
    assert_eq!(
        steps[1].say,
        "Let dormer continue, once its cause has ended"
    );
}

#[test]
fn a_machine_that_dormer_holds_for_another_dormer_has_the_cure_before_the_resume() {
    let held = |code: &str| Machine {
        halt: Some(Halt {
            kind: HaltKind::Held.into(),
            by: Some("dormer: another one has it".into()),
            own: None,
            who: None,
            why: None,
            text: "held by dormer: another one has it".into(),
            since: None,
        }),
        hold_code: Some(code.into()),
        ..machine_in(MachinePhase::Serving)
    };
    let kinds = [
        (FenceRefusal::OtherDormer, Outside::MendCluster),
        (FenceRefusal::NotItsNode, Outside::MendNode),
        (FenceRefusal::NotWindows, Outside::MendNode),
        (FenceRefusal::ControlPlane, Outside::MendNode),
        (FenceRefusal::Paused, Outside::MendCluster),
        (FenceRefusal::NoOwner, Outside::CorrectPool),
    ];
    for (why, kind) in kinds {
        let steps = steps(&held(why.code()), None);
        assert_eq!(outside(&steps), [kind], "{why:?}");
        let lines = lines(&steps);
        assert_eq!(lines.last().map(String::as_str), Some("dormer resume m"));
        let cure = steps.iter().position(|it| it.outside.is_some());
        assert_eq!(
            cure,
            Some(steps.len() - 2),
            "the cure is before it: {why:?}"
        );
    }
    let quarantined = Machine {
        neighbour: Some("WMCO runs".into()),
        ..held("OtherDormer")
    };
    assert_eq!(outside(&steps(&quarantined, None)), [Outside::EndOperator]);
}

#[test]
fn a_machine_that_is_left_to_another_operator_needs_no_resume() {
    let machine = Machine {
        neighbour: Some("the Windows Machine Config Operator runs (Pod wmco/w-1)".into()),
        ..machine_in(MachinePhase::LeaseWait)
    };
    let steps = steps(&machine, None);
    assert_eq!(outside(&steps), [Outside::EndOperator]);
    assert!(lines(&steps).is_empty(), "{steps:?}");
}

#[test]
fn the_commands_that_stop_another_operator_are_in_the_step_and_not_in_the_cause() {
    let stop = "kubectl -n w scale deployment w --replicas=0";
    let runs = "WMCO runs (Pod w/w-1)";
    let fields = (runs.to_owned(), Some(stop.to_owned()));
    let older_server = (format!("{runs}; to stop it: {stop}"), None);
    for (neighbour, neighbour_stop) in [fields, older_server] {
        let machine = Machine {
            neighbour: Some(neighbour),
            neighbour_stop,
            ..machine_in(MachinePhase::LeaseWait)
        };
        let cause = problem::problem(&machine).map(|it| it.cause);
        assert_eq!(cause.as_deref(), Some(runs));
        let said = format!("End the other operator: {stop}");
        assert_eq!(steps(&machine, None)[0].say, said);
    }
}

#[test]
fn a_waiting_machine_has_the_lease_holder_or_the_obstacle() {
    let machine = machine_in(MachinePhase::LeaseWait);
    let of = |fields| lines(&steps(&machine, Some(&rollout_with(fields))));
    let away = |uid: &str, why: &str| json!([{"uid": uid, "name": "n", "why": why}]);
    assert_eq!(of(json!({"away": away("n", "holds")})), ["dormer why n"]);
    let halted = of(json!({"halted": "n failed."}));
    assert_eq!(halted, ["dormer status --pool windows"]);
    let paused = of(json!({"paused": "ann"}));
    assert_eq!(paused, ["dormer resume --pool windows"]);
    let ways = [
        "dormer describe rollout windows",
        "dormer resume --pool windows",
    ];
    assert_eq!(
        of(json!({"eroded": true, "away": away("n", "holds")})),
        ways
    );
    let cordoned = of(json!({"away": away("u", "cordoned")}));
    assert_eq!(cordoned, ["kubectl uncordon m"]);
}

#[test]
fn a_host_that_cannot_be_compared_has_its_cure_and_a_last_resort() {
    let machine = Machine {
        waiting_for: Some("10.0.0.9 to be compared: no key fits (AuthRejected)".into()),
        not_compared: Some(TaskFailure {
            code: "AuthRejected".into(),
            message: "no key fits".into(),
            log: None,
        }),
        ..machine_in(MachinePhase::Serving)
    };
    let steps = steps(&machine, None);
    assert_eq!(outside(&steps), [Outside::AcceptKey]);
    assert_eq!(lines(&steps), ["dormer retry m", "dormer recreate m"]);
}

#[test]
fn a_node_that_is_anothers_and_a_kubelet_that_is_not_the_payloads_have_a_command_to_copy() {
    for code in ["NotItsNode", "WrongKubelet"] {
        let failed = Machine {
            node: Some("n".into()),
            ..failed_while(MachinePhase::Opening, code, "no")
        };
        let all = [
            "kubectl describe node n",
            "dormer retry m",
            "dormer recreate m",
        ];
        assert_eq!(lines(&steps(&failed, None)), all, "{code}");
    }
    let marking = Machine {
        node: Some("n".into()),
        unserved: Some(TaskFailure {
            code: "WrongKubelet".into(),
            message: "v1.30.1".into(),
            log: None,
        }),
        ..machine_in(MachinePhase::Marking)
    };
    let first = lines(&steps(&marking, None)).into_iter().next();
    assert_eq!(first.as_deref(), Some("kubectl describe node n"));
}

/// Kubernetes never removes that taint.
#[test]
fn a_taint_that_a_person_set_comes_with_the_command_that_removes_it() {
    let message = "no new pod comes here: node.kubernetes.io/out-of-service";
    let failed = Machine {
        node: Some("n".into()),
        ..failed_while(MachinePhase::Marking, "TaintsAmiss", message)
    };
    let marking = Machine {
        node: Some("n".into()),
        unserved: Some(TaskFailure {
            code: "TaintsAmiss".into(),
            message: message.into(),
            log: None,
        }),
        ..machine_in(MachinePhase::Marking)
    };
    for machine in [failed, marking] {
        let first: Vec<String> = lines(&steps(&machine, None)).into_iter().take(2).collect();
        let wanted = [
            "kubectl describe node n",
            "kubectl taint nodes n node.kubernetes.io/out-of-service-",
        ];
        assert_eq!(first, wanted);
    }
}

/// A list of requests does not show which name they hold, so that is no step.
#[test]
fn a_host_that_asks_in_another_name_gets_its_own_back_and_its_request_is_named() {
    let condition = |reason: &str| Condition {
        kind: OWN_REQUEST.into(),
        status: "False".into(),
        reason: reason.into(),
        message: "csr-x asks for the certificate of master-0".into(),
    };
    let overdue = failed_while(MachinePhase::NodeWait, "NodeOverdue", "no Node n appeared");
    let without = lines(&steps(&overdue, None));
    assert_eq!(without[0], "kubectl describe csr");
    for reason in [OTHER_NAME, OTHER_NAME_POSSIBLE] {
        let failed = Machine {
            machine_conditions: vec![condition(reason)],
            ..overdue.clone()
        };
        let all = steps(&failed, None);
        assert_eq!(
            lines(&all),
            [
                "kubectl describe csr csr-x",
                "dormer retry m",
                "dormer recreate m"
            ]
        );
        assert_eq!(outside(&all), [Outside::MendNode]);
        assert!(
            said(&all).contains("Do not approve csr-x"),
            "{}",
            said(&all)
        );
        // With an override the computer's own name counts for nothing, and a Node's name with dots is none.
        for (part, is_said) in [
            (
                "--hostname-override in sc.exe qc kubelet; only without that flag",
                true,
            ),
            (
                "If it is not m, correct it there and restart the host",
                true,
            ),
            (
                "If it is m, another host made the request",
                reason == OTHER_NAME_POSSIBLE,
            ),
            ("give it that name", false),
        ] {
            assert_eq!(said(&all).contains(part), is_said, "{reason}: {part}");
        }
        let waits = Machine {
            machine_conditions: vec![condition(reason)],
            ..machine_in(MachinePhase::NodeWait)
        };
        assert_eq!(lines(&steps(&waits, None))[0], "kubectl describe csr csr-x");
        let found = problem::problem(&waits).map(|it| (it.urgency, it.code));
        // Where another machine's host may be the one, it is as late as it would be without.
        let urgency = match reason {
            OTHER_NAME => Urgency::Stuck,
            _ => Urgency::Slow,
        };
        assert_eq!(found, Some((urgency, OTHER_NAME.to_owned())));
        // A refusal of its own request comes first, in the steps as in the cause.
        let both = Machine {
            certificate_refused: Some("it names another address".into()),
            ..waits
        };
        let found = problem::problem(&both).map(|it| it.code);
        assert_eq!(found.as_deref(), Some("CertificateRefused"));
        let steps = steps(&both, None);
        assert_eq!(lines(&steps)[0], "kubectl describe csr", "{reason}");
        assert!(
            said(&steps).contains("it names another address"),
            "{reason}"
        );
    }
}

#[test]
fn a_lapsed_certificate_is_cured_by_a_persons_command() {
    let mut machine = Machine {
        waiting_for: Some("the Node n to be Ready and schedulable".into()),
        certificate_refused: Some("the Node n exists, and was not torn down".into()),
        ..machine_in(MachinePhase::Serving)
    };
    let all = ["kubectl describe csr", "dormer recreate m"];
    assert_eq!(lines(&steps(&machine, None)), all);
    assert!(said(&steps(&machine, None)).contains("Replace the machine"));
    machine.kind = Some(MachineKind::WindowsHost.into());
    assert_eq!(lines(&steps(&machine, None)), all);
    assert!(said(&steps(&machine, None)).contains("Set the host up again"));
}

#[test]
fn a_reboot_is_mended_by_what_its_last_attempt_met() {
    let refuses = |phase| {
        let task = json!({"task": "machine/u@3.0", "run": "machine/u", "name": "probe", "machine": null,
            "attempt": 9, "attemptsMax": 60, "phase": "waiting", "since": null, "sinceSeconds": null,
            "until": "2026-11-21T07:10:00.000Z", "failure": {"code": "ConnectRefused", "message": "no"},
            "heartbeat": null});
        let mut machine = machine_in(phase);
        machine.tasks = vec![serde_json::from_value(task).expect("a task")];
        outside(&steps(&machine, None))
    };
    assert_eq!(refuses(MachinePhase::Rebooting), [Outside::OpenSsh]);
    assert_eq!(refuses(MachinePhase::Deleting), [Outside::OpenSsh]);
    let silent = steps(&machine_in(MachinePhase::Rebooting), None);
    assert_eq!(outside(&silent), [Outside::OpenSsh]);
}

#[test]
fn a_node_that_was_down_too_short_is_waited_for() {
    let why = "the Node m has been as it is, not Ready, for 20 s";
    let machine = failed_while(MachinePhase::Opening, "NodeDownTooShort", why);
    let steps = steps(&machine, None);
    assert!(said(&steps).contains("the pool's repairAfter"), "{steps:?}");
    assert_eq!(lines(&steps)[0], "dormer retry m");
}

#[test]
fn the_host_programs_own_failures_have_their_advice() {
    let machine = failed_while(
        MachinePhase::ConvergingHost,
        "access_denied",
        "Access is denied.",
    );
    let steps = steps(&machine, None);
    assert_eq!(
        steps[0].say,
        "Make the SSH user an administrator of the host"
    );
}

#[test]
fn a_machine_that_a_person_removed_is_brought_back_by_a_reset_to_the_record_before() {
    let gone = Machine {
        removed: true,
        ..machine_in(MachinePhase::Gone)
    };
    // It entered the state at record 7.
    assert_eq!(lines(&steps(&gone, None)), ["dormer reset m --to 6"]);
    let replaced = Machine {
        removed: false,
        ..gone
    };
    assert_eq!(steps(&replaced, None), []);
}

#[test]
fn the_only_candidate_to_replace_a_machine_is_named() {
    let waits = machine_in(MachinePhase::ReplacementWait);
    let rollout = |candidates: &[&str]| {
        rollout_with(
            json!({"slots": [{"token": 4, "holder": "u", "name": "m", "marked": false, "seq": 2,
            "since": "2026-11-21T07:00:12.000Z", "waitsFor": "a Machine", "candidates": candidates}]}),
        )
    };
    let first = |candidates: &[&str]| lines(&steps(&waits, Some(&rollout(candidates))))[0].clone();
    assert_eq!(first(&["win-9"]), "dormer why win-9");
    assert!(first(&["win-9", "win-8"]).starts_with("dormer get machines"));
    assert!(first(&[]).starts_with("dormer get machines"));
}

/// A step with a command shows something; the step after it in words need not show it again.
#[test]
fn no_step_in_words_repeats_the_command_before_it() {
    for code in [
        "NodeOverdue",
        "NoServingCertificate",
        "TaintsAmiss",
        "NotItsNode",
        "WrongKubelet",
        "WrongContainerd",
        "WrongOs",
        "LabelMissing",
    ] {
        let failed = failed_while(MachinePhase::Marking, code, "no");
        let all = steps(&failed, None);
        let [program, verb, kind, ..] = all[0].argv.as_slice() else {
            panic!("{code}: {all:?}");
        };
        let shown = format!("{program} {verb} {kind}");
        // A list of requests shows less than their description.
        for repeated in [shown.as_str(), "kubectl get csr"] {
            assert!(!all[1].say.contains(repeated), "{code}: {}", all[1].say);
        }
    }
}
