//! Tests of the commands of kubectl in all advice: each can be executed as it is.

use super::{
    cures::codes,
    step::Step,
    steps,
    tests::{failed_while, halted_by, machine_in, waiting},
};
use crate::machine::{Machine, MachineKind};
use dormer_proto::phase::{Listed, MachinePhase};
use serde_json::json;

/// Flags of kubectl that take the next word.
const WITH_A_VALUE: [&str; 6] = [
    "-n",
    "-o",
    "-p",
    "--type",
    "--field-selector",
    "--kubeconfig",
];
/// Kinds of which a command may list all.
const LISTED: [&str; 3] = ["csr", "pdb", "volumeattachments"];

/// Machines of every phase, and with every failure in the phases whose steps fail.
fn machines() -> Vec<Machine> {
    let of_phases = MachinePhase::ALL.iter().map(|phase| machine_in(*phase));
    let mut all: Vec<Machine> = of_phases.collect();
    for code in codes() {
        all.push(failed_while(MachinePhase::Marking, code, "m"));
        all.push(waiting(machine_in(MachinePhase::Probing), code, "m"));
        let compared = json!({"code": code, "message": "m"});
        all.push(Machine {
            waiting_for: Some("its host to be compared".into()),
            not_compared: serde_json::from_value(compared).expect("a failure"),
            ..machine_in(MachinePhase::Serving)
        });
    }
    for (why, budgets) in [
        ("it waits for its finalizers example.com/never", &[][..]),
        ("it is ending, with 30 s of grace", &[]),
        ("no", &["cart"]),
        ("no", &["cart", "cart-2"]),
    ] {
        let blocker = json!({"pod": "shop/cart-7", "why": why, "budgets": budgets});
        let drain = json!({"evicted": 0, "left": 1, "force": false, "blockers": [blocker]});
        all.push(Machine {
            drain: serde_json::from_value(drain).expect("a drain"),
            ..machine_in(MachinePhase::Evicting)
        });
    }
    for machine in &mut all {
        machine.node = Some("n".into());
        machine.namespace = "api".into();
    }
    all
}

/// What is wrong with a command of kubectl.
fn fault(words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let has = |word: &str| words.contains(&word);
    if has("--show-labels") && has("-o") {
        return Some("kubectl refuses --show-labels beside -o".into());
    }
    let mut rest = Vec::new();
    let mut all = words.iter().skip(1);
    while let Some(word) = all.next() {
        match *word {
            flag if WITH_A_VALUE.contains(&flag) => drop(all.next()),
            flag if flag.starts_with('-') => {}
            word => rest.push(word),
        }
    }
    if has("-A") && rest.len() != 2 {
        return Some("kubectl refuses a name beside -A".into());
    }
    if has("patch") && !has("-p") {
        return Some("a patch has a text".into());
    }
    if has("edit") {
        return Some("an editor waits for a person".into());
    }
    match rest.as_slice() {
        ["uncordon" | "cordon" | "drain", _] => None,
        ["taint", "nodes", _, _] => None,
        ["get" | "describe", kind] if LISTED.contains(kind) || has("-A") => None,
        ["get" | "describe" | "delete" | "patch", _, _, ..] => None,
        ["label", _, _, _] => None,
        _ => Some("it has no name".into()),
    }
}

#[test]
fn each_command_of_kubectl_can_be_executed_as_it_is() {
    let mut seen = 0;
    for machine in machines() {
        let mut all: Vec<Step> = steps(&machine, None);
        for step in &mut all {
            assert!(
                !step.say.contains("kubectl"),
                "a command is no part of a sentence: {}",
                step.say
            );
            step.reach(&["dormer"], &[], &["--kubeconfig".into(), "/k".into()]);
            for words in [&step.argv, &step.fill] {
                if words.first().is_none_or(|it| it != "kubectl") {
                    continue;
                }
                seen += 1;
                assert_eq!(fault(words), None, "{words:?}");
                assert_eq!(words[1..3], ["--kubeconfig", "/k"]);
            }
        }
    }
    assert!(seen > 50, "{seen} commands of kubectl");
    let split = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
    for wrong in [
        "kubectl get node n --show-labels --show-managed-fields -o yaml",
        "kubectl get node --show-managed-fields -o yaml",
        "kubectl -n x describe pod",
        "kubectl get pod p -A",
        "kubectl -n x patch pdb cart --type merge",
        "kubectl -n x edit pdb cart",
    ] {
        assert!(fault(&split(wrong)).is_some(), "{wrong}");
    }
}

/// `machine` alone means the API group that is first in the alphabet: Cluster API's, where a cluster has both.
#[test]
fn a_command_about_a_machine_names_the_api_of_its_object() {
    for (kind, resource) in [
        (MachineKind::OpenShift, "machine.machine.openshift.io"),
        (MachineKind::ClusterApi, "machine.cluster.x-k8s.io"),
    ] {
        let machine = Machine {
            kind: Some(kind.into()),
            namespace: "api".into(),
            ..machine_in(MachinePhase::AddressWait)
        };
        let line = steps(&machine, None)[0].line();
        let describe = format!("kubectl -n api describe {resource} m");
        assert_eq!(line.as_deref(), Some(describe.as_str()));
    }
}

#[test]
fn a_label_that_somebody_wrote_is_shown_with_its_writer() {
    let failed = Machine {
        node: Some("n".into()),
        ..failed_while(MachinePhase::Opening, "WrongBuild", "no")
    };
    let first = steps(&failed, None)[0].line();
    let line = "kubectl get node n --show-managed-fields -o yaml";
    assert_eq!(first.as_deref(), Some(line));
}

/// Some cures name an object without a command of their own.
#[test]
fn a_serving_machine_and_a_hold_have_the_command_that_shows_the_object() {
    for (code, first) in [
        ("NotItsAddress", "kubectl -n api get machine m -o yaml"),
        ("MachineGone", "kubectl -n api get machine m"),
        ("NotItsNode", "kubectl describe node n"),
        ("PoolStopped", "kubectl describe windowspool -A"),
    ] {
        let serving = Machine {
            node: Some("n".into()),
            namespace: "api".into(),
            ..machine_in(MachinePhase::Serving)
        };
        let compared = json!({"code": code, "message": "m"});
        let not_compared = Machine {
            waiting_for: Some("its host to be compared".into()),
            not_compared: serde_json::from_value(compared).expect("a failure"),
            ..serving.clone()
        };
        let held = Machine {
            hold_code: Some(code.into()),
            halt: Some(halted_by("held", "dormer: it is not its own")),
            ..serving
        };
        for machine in [not_compared, held] {
            let steps = steps(&machine, None);
            assert_eq!(steps[0].line().as_deref(), Some(first), "{code}");
            assert!(!steps[0].say.contains("refused"), "{}", steps[0].say);
            assert!(steps[1].outside.is_some(), "{code}");
        }
    }
}

/// The message of a container that has ended is in the status of its pod, and that pod is another one for two of the checks.
#[test]
fn a_check_from_a_pod_that_fails_leads_to_that_pod() {
    for (code, pod) in [
        ("NoServiceIp", "canary-n"),
        ("NoServiceDns", "canary-n"),
        ("NoOutbound", "canary-n"),
        ("NoNodeToPod", "canary-n"),
        ("NoPodToPod", "peer-of-canary-n"),
        ("NoNodePort", "peer-of-canary-n"),
    ] {
        let failed = Machine {
            node: Some("n".into()),
            ..failed_while(MachinePhase::Marking, code, "no")
        };
        let steps = steps(&failed, None);
        let line = format!("kubectl get pods -A -o yaml --field-selector metadata.name={pod}");
        assert_eq!(steps[0].line(), Some(line), "{code}");
        let said = steps[1].say.contains("lastState.terminated.message");
        assert!(said, "{}", steps[1].say);
    }
}

#[test]
fn what_is_final_is_a_persons_choice() {
    let draining = |why: &str, budgets: &[&str]| {
        let blocker = json!({"pod": "shop/cart-7", "why": why, "budgets": budgets});
        let drain = json!({"evicted": 0, "left": 1, "force": false, "blockers": [blocker]});
        let machine = Machine {
            drain: serde_json::from_value(drain).expect("a drain"),
            ..machine_in(MachinePhase::Evicting)
        };
        let steps = steps(&machine, None);
        let fill = steps.into_iter().find(|it| !it.fill.is_empty());
        fill.expect("a command to decide on")
    };
    let two = draining("it is covered by 2 budgets", &["cart", "cart-2"]);
    let line = two.line();
    assert_eq!(line.as_deref(), Some("kubectl -n shop delete pdb BUDGET"));
    assert!(two.takes_away());
    let finalizers = draining("it waits for its finalizers example.com/never", &[]);
    assert_eq!(finalizers.fill[3], "patch");
    assert!(finalizers.takes_away());
    assert!(!draining("no", &["cart"]).takes_away());
}
