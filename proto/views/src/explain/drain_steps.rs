//! Steps of a machine that waits for the lease, is drained, or leaves.

use super::{
    dotless, problem,
    shared_steps::{IGNORE, UNCORDON, kubectl, node},
    step::{NO_FINALIZERS, Outside, Step},
};
use crate::{
    machine::{Blocker, Machine},
    older_texts,
    rollout::Rollout,
};
use dormer_proto::{message::listed, phase::Unavailable};

/// Taint of a Node whose host is off: Kubernetes then deletes its pods.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";

/// Patch of a budget, of either form, that lets one pod go at a time.
const ONE_AT_A_TIME: &str = r#"{"spec":{"minAvailable":null,"maxUnavailable":1}}"#;

/// Most pods of a budget by name.
const PODS_MAX: usize = 6;

/// Steps of a machine that waits for the lease: what the rollout or its holder needs.
pub(super) fn lease(machine: &Machine, rollout: Option<&Rollout>) -> Vec<Step> {
    let pool = machine.pool.as_str();
    let Some(rollout) = rollout else {
        return vec![Step::command(
            "See who is first",
            &["dormer", "describe", "rollout", pool],
        )];
    };
    if rollout.halted.is_some() {
        let see = ["dormer", "status", "--pool", pool];
        return vec![Step::command(
            "See what halted the rollout, and mend that",
            &see,
        )];
    }
    if let Some(held) = &rollout.held {
        let say = rollout.held_cure.as_deref().map_or_else(
            || format!("Correct the pool: {}", dotless(held)),
            |cure| dotless(cure).to_owned(),
        );
        return vec![Step::outside(Outside::CorrectPool, say)];
    }
    if rollout.paused.is_some() {
        return Vec::from_iter(to_continue(rollout));
    }
    if rollout.eroded {
        let describe = ["dormer", "describe", "rollout", pool];
        let raise = Step::command(
            "See which MachineSet is to want more Machines again, and raise it",
            &describe,
        );
        let resume = to_continue(rollout).map(Step::instead);
        return [raise].into_iter().chain(resume).collect();
    }
    if problem::cordoned(machine, rollout) {
        let uncordon = ["kubectl", "uncordon", node(machine)];
        return vec![Step::command(UNCORDON, &uncordon)];
    }
    if rollout.stopped_by().is_some() {
        return Vec::from_iter(to_continue(rollout));
    }
    if let Some(cure) = &rollout.waits_cure {
        return vec![Step::outside(Outside::MendCluster, dotless(cure))];
    }
    match rollout.away.first() {
        Some(first) => {
            let why = ["dormer", "why", first.name.as_str()];
            let say = match first.why.known() {
                Some(Unavailable::Holds) => "See how far the machine is that holds the lease",
                _ => "See why the machine that counts against the limit is out of service",
            };
            vec![Step::command(say, &why)]
        }
        None => Vec::new(),
    }
}

/// Command that lets a rollout grant again: one that is quarantined or paused, that has lost a Machine for good, or whose
/// holder a person stopped. `None`: no command of dormer does.
pub fn to_continue(rollout: &Rollout) -> Option<Step> {
    let pool = rollout.pool.as_str();
    let resume = ["dormer", "resume", "--pool", pool];
    if rollout.status.quarantine.is_some() {
        let run = format!("rollout/{pool}");
        let release = ["dormer", "unquarantine", &run];
        return Some(Step::command(
            "Mend the cause, and release the run",
            &release,
        ));
    }
    if rollout.halted.is_some() || rollout.held.is_some() {
        return None;
    }
    if rollout.paused.is_some() {
        return Some(Step::command("Continue the rollout", &resume));
    }
    if let Some(slot) = rollout.stopped_by() {
        let resume = ["dormer", "resume", slot.name.as_str()];
        let say = format!(
            "Return {} to service, so that it returns the lease",
            slot.name
        );
        return Some(Step::command(&say, &resume));
    }
    let say = "Let the rollout continue without the missing one, if fewer are wanted for good";
    rollout.eroded.then(|| Step::command(say, &resume))
}

/// Command that takes a rollback back, so that the spec's payload applies again.
pub fn to_end_rollback(rollout: &Rollout) -> Step {
    let argv = ["dormer", "rollback", "--pool", &rollout.pool, "--end"];
    Step::command("Go forward again", &argv)
}

/// Steps of a drain. `None`: nothing is known to hold it up.
pub(super) fn evicting(machine: &Machine) -> Option<Vec<Step>> {
    let blockers = machine.drain.as_ref().map(|drain| &drain.blockers);
    let blocker = blockers.and_then(|blockers| blockers.first())?;
    let mut steps = Vec::new();
    match blocker.pod.split_once('/') {
        Some((namespace, pod)) => {
            let in_namespace = ["kubectl", "-n", namespace];
            let see = [&in_namespace[..], &what_holds(pod, &blocker.budgets)].concat();
            steps.push(Step::command("See what holds the pod", &see));
        }
        None => steps.push(Step::command(
            "See whether the node answers",
            &["kubectl", "describe", "node", node(machine)],
        )),
    }
    if blocker.until_off {
        let taint = ["kubectl", "taint", "nodes", node(machine), OUT_OF_SERVICE];
        let say = "Tell Kubernetes that the host is off, once that is certain (remove the taint when the host runs again: \
                   nothing else does)";
        steps.push(Step::command(say, &taint));
    } else {
        steps.push(let_go(machine, blocker));
    }
    // No earlier configuration is left, and an abort has no effect.
    if machine.torn_down {
        return Some(steps);
    }
    let abort = ["dormer", "abort", machine.name.as_str()];
    let drain = machine.asked.as_ref().is_some_and(|it| it.begun);
    let say = match drain {
        true => "Give the drain up: the machine is held",
        false => "Give the upgrade up",
    };
    steps.push(Step::command(say, &abort).instead());
    Some(steps)
}

/// Step that lets a pod go, with a command where one does it.
fn let_go(machine: &Machine, blocker: &Blocker) -> Step {
    let why = dotless(&blocker.why);
    let finalizers = match blocker.finalizers.as_slice() {
        [] => older_texts::finalizers(&blocker.why).map(str::to_owned),
        names => Some(names.join(", ")),
    };
    let otherwise = || match &finalizers {
        Some(names) => format!(
            "Let the program that set them remove the finalizers {names} of {}. If it is gone for good",
            blocker.pod
        ),
        None => format!("Remove what keeps {}: {why}", blocker.pod),
    };
    let say = allow_eviction(machine, blocker).unwrap_or_else(otherwise);
    let step = Step::outside(Outside::LetGo, say);
    let Some((namespace, pod)) = blocker.pod.split_once('/') else {
        return step;
    };
    let words: Vec<&str> = match blocker.budgets.as_slice() {
        [budget] => vec![
            "patch",
            "pdb",
            budget,
            "--type",
            "merge",
            "-p",
            ONE_AT_A_TIME,
        ],
        // The reason names them; which one stays is a person's choice.
        [_, _, ..] => vec!["delete", "pdb", "BUDGET"],
        _ if finalizers.is_some() => {
            vec!["patch", "pod", pod, "--type", "merge", "-p", NO_FINALIZERS]
        }
        _ => return step,
    };
    step.fill(&[&["kubectl", "-n", namespace][..], &words].concat())
}

/// What to do about the PodDisruptionBudget that keeps a pod, with all pods that it keeps. `None`: something else keeps it.
fn allow_eviction(machine: &Machine, blocker: &Blocker) -> Option<String> {
    let [budget] = blocker.budgets.as_slice() else {
        return None;
    };
    let (namespace, _) = blocker.pod.split_once('/')?;
    let blockers = machine.drain.as_ref()?.blockers.iter();
    let same = blockers.filter(|it| {
        let here = it.pod.split_once('/').map(|(of, _)| of);
        here == Some(namespace) && it.budgets == blocker.budgets
    });
    let pods: Vec<&str> = same.map(|it| it.pod.as_str()).collect();
    Some(format!(
        "Let the PodDisruptionBudget {budget} in the namespace {namespace} allow evictions: start more pods that it covers, \
         mend those that are not Ready, or lower what it asks for. It keeps {}. To let one pod go at a time",
        listed(&pods, PODS_MAX)
    ))
}

/// Words of `kubectl` that show what holds a pod. Its budgets are not in its own description.
pub(super) fn what_holds<'a>(pod: &'a str, budgets: &'a [String]) -> Vec<&'a str> {
    match budgets {
        [] => vec!["describe", "pod", pod],
        [budget] => vec!["describe", "pdb", budget],
        [_, _, ..] => vec!["get", "pdb"],
    }
}

/// Steps of a Machine that is being deleted and stays.
pub(super) fn leaving(machine: &Machine) -> Vec<Step> {
    let name = machine.name.as_str();
    let resource = machine.resource();
    if resource == "windowshost" {
        let label = ["label", resource, name, &format!("{IGNORE}=true")];
        let say = "Release the host as it is, if dormer does not finish removing it";
        return vec![kubectl(machine, say, &label).instead()];
    }
    vec![
        kubectl(
            machine,
            "See what keeps it",
            &["get", resource, name, "-o", "yaml"],
        ),
        Step::command("See its volumes", &["kubectl", "get", "volumeattachments"]),
        Step::outside(
            Outside::LetGo,
            "Remove what keeps the Machine: finalizers, lifecycle hooks, attached volumes",
        ),
    ]
}
