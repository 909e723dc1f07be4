//! Tests of the advice: each command is complete, and each failure has its cure.

use super::{
    super::tests::{failed_while, machine_in, rollout_with, trying, waiting},
    *,
};
use crate::{
    explain::drain_steps::what_holds,
    machine::{CordonedBy, Halt, MachineKind},
    run::TaskFailure,
};
use dormer_profile::answer::FailureCode;
use dormer_proto::{machine::FenceRefusal, phase::Listed};
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
                    covers, mend those that are not Ready, or lower what it asks for. It keeps shop/cart-7, shop/cart-8";
    assert_eq!(found[1].say, expected);
    assert_eq!(
        lines(&found),
        ["kubectl -n shop describe pdb cart", "dormer abort m"]
    );
    assert!(found[2].say.contains("upgrade"), "{found:?}");
    machine.asked = Some(crate::machine::PendingRequest {
        what: crate::machine::AskedFor::Drain.into(),
        by: Some("ann".into()),
        at: None,
        begun: true,
    });
    assert!(steps(&machine, None)[2].say.contains("drain"));
}

#[test]
fn one_resume_that_ends_a_pause_and_a_hold_says_so() {
    let halt = |kind: HaltKind, text: &str| Halt {
        kind: kind.into(),
        by: Some("ann".into()),
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
            by: Some("dormer: somebody else cordoned the Node m".into()),
            text: "held by dormer: somebody else cordoned the Node m".into(),
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
        assert_eq!(lines(&steps), ["dormer resume m"], "{why:?}");
        assert!(
            !steps[0].say.is_empty() && steps[0].argv.is_empty(),
            "the cure is first"
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
    let runs = "WMCO runs (Pod w/w-1); to stop it: kubectl -n w scale deployment w --replicas=0";
    let machine = Machine {
        neighbour: Some(runs.into()),
        ..machine_in(MachinePhase::LeaseWait)
    };
    let cause = problem::problem(&machine).map(|it| it.cause);
    assert_eq!(cause.as_deref(), Some("WMCO runs (Pod w/w-1)"));
    let said = "End the other operator: kubectl -n w scale deployment w --replicas=0";
    assert_eq!(steps(&machine, None)[0].say, said);
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
