//! Advice about a machine: the next steps of each phase. Beside this file, `cures.rs` has the cure of each failure code, and
//! `join_steps.rs` and `drain_steps.rs` the steps of some phases. No other module has any.
//!
//! A step follows from ids and codes, and of sentences from those of `proto/src/machine/sentence.rs` alone, which are written and
//! read in one place.

use super::{
    cures::{ACCEPT_KEY, Cure, LOG_NAMES_WHY, OPEN_SSH, SCREEN_SHOWS_WHY, UNKNOWN, cure},
    dotless,
    drain_steps::{evicting, lease, leaving},
    join_steps::{
        DESCRIBE_REQUESTS, SEE_REQUESTS, address, ask_in_own_name, certificate, lapsed, no_node,
        not_ready, not_renewed,
    },
    other_name::other_name,
    problem::{self, Urgency},
    shared_steps::{
        IGNORE, Selected, UNCORDON, at_once, deleted, kubectl, node, owner, pool_objects, pools,
        recreated, selected,
    },
    step::{Outside, Step},
};
use crate::{
    machine::{HaltKind, Machine, Refused},
    rollout::Rollout,
    run::Task,
};
use dormer_proto::phase::{MachinePhase, MachineState};

/// What a person does about a machine that another one replaces.
const SEE_REPLACEMENT: &str = "See the machine in its place";

/// Next steps for a person, in their order. Empty: there is nothing to do. Where the machine continues by itself
/// ([`problem::heals_by`]), they are for the time after that.
pub fn steps(machine: &Machine, rollout: Option<&Rollout>) -> Vec<Step> {
    if machine.state == MachineState::Gone {
        let next = machine.replaced_by.as_deref();
        let see = next.map(see_replacement);
        return see.or_else(|| taken_back(machine)).into_iter().collect();
    }
    if let Some(step) = stopped(machine) {
        let uncordon = machine.halt.as_ref().and_then(|_| uncordoned(machine));
        let begin = uncordon.into_iter().chain(own_hold(machine));
        return begin
            .chain([step])
            .chain(afterwards(machine, rollout))
            .collect();
    }
    if let Some(refused) = &machine.refused {
        return not_supported(machine, refused);
    }
    if machine.state == MachineState::Failed {
        return failed(machine);
    }
    if machine.given_up() && machine.phase != MachinePhase::Serving {
        return given_up(machine);
    }
    machine
        .phase
        .known()
        .map_or_else(Vec::new, |phase| in_phase(machine, phase, rollout))
}

fn see_replacement(name: &str) -> Step {
    Step::command(SEE_REPLACEMENT, &["dormer", "why", name])
}

/// Reset that takes a person's removal back. The removal is the record at which the machine was gone.
fn taken_back(machine: &Machine) -> Option<Step> {
    machine.removed.then(|| {
        let before = machine.status.entered_seq.saturating_sub(1).max(1);
        let before = before.to_string();
        let reset = ["dormer", "reset", &machine.name, "--to", &before];
        Step::command("Take the removal back, if it was a mistake", &reset)
    })
}

/// The machine that may come in the place of one that is gone, if there is one alone.
fn awaited<'a>(machine: &Machine, rollout: Option<&'a Rollout>) -> Option<&'a str> {
    let slots = &rollout?.slots;
    let slot = slots.iter().find(|slot| slot.holder == machine.uid)?;
    match slot.candidates.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

/// Uncordon of its Node, while another client keeps it cordoned.
fn uncordoned(machine: &Machine) -> Option<Step> {
    machine.cordoned_by.as_ref()?;
    let uncordon = ["kubectl", "uncordon", node(machine)];
    Some(Step::command(UNCORDON, &uncordon))
}

/// Steps against the cause for which dormer itself holds it, unless something stronger stops the machine.
fn own_hold(machine: &Machine) -> Vec<Step> {
    let stronger = machine.status.quarantine.is_some()
        || machine.lacks.is_some()
        || machine.neighbour.is_some();
    let code = machine.hold_code.as_deref().filter(|_| !stronger);
    let cure = code.and_then(|code| Some((code, cure(code)?)));
    cure.map_or_else(Vec::new, |(code, Cure { outside, say })| {
        let see = see(machine, code);
        see.into_iter()
            .chain([Step::outside(outside, say)])
            .collect()
    })
}

/// Steps of what else is wrong with a machine that a person stopped, once it is resumed.
fn afterwards(machine: &Machine, rollout: Option<&Rollout>) -> Vec<Step> {
    let wrong = problem::beneath(machine).is_some_and(|(urgency, _)| urgency != Urgency::Person);
    let released = problem::released(machine).filter(|it| wrong && it.hold_code.is_none());
    let mut steps = released.map_or_else(Vec::new, |it| steps(&it, rollout));
    steps.retain(|it| !it.instead);
    steps
}

/// Step of a machine on which dormer does nothing until a person lets it continue.
fn stopped(machine: &Machine) -> Option<Step> {
    let name = machine.name.as_str();
    if machine.status.quarantine.is_some() {
        let say = "Mend the cause (docs/runbook.md, DormerRunQuarantined), and release the run; a newer build of dormer \
                   tries it once by itself";
        return Some(Step::command(say, &["dormer", "unquarantine", name]));
    }
    if let Some(lacks) = &machine.lacks {
        return Some(Step::outside(Outside::MendCluster, dotless(lacks)));
    }
    if let Some((runs, stop)) = problem::operator(machine) {
        let say = format!("End the other operator: {}", dotless(stop.unwrap_or(runs)));
        return Some(Step::outside(Outside::EndOperator, say));
    }
    let halt = machine.halt.as_ref()?;
    Some(if halt.kind == HaltKind::Ignored {
        let unlabel = ["label", machine.resource(), name, &format!("{IGNORE}-")];
        kubectl(
            machine,
            "Remove the label, so that dormer continues",
            &unlabel,
        )
    } else {
        // One resume ends all of them; of several people's holds, first one's own.
        let holds = machine.halts().filter(|it| it.kind == HaltKind::Held);
        let ends = match holds.count() {
            0 | 1 => "this ends all of it",
            _ => "this ends your own hold, and all of it if you have none",
        };
        let all: Vec<&str> = machine
            .halts()
            .filter(|it| it.kind != HaltKind::Ignored)
            .map(|it| it.text.as_str())
            .collect();
        let own = halt.is_own();
        let say = match all.as_slice() {
            [] | [_] if own => "Let dormer continue, once its cause has ended".to_owned(),
            [] | [_] if problem::is_on_purpose(machine) => {
                "Nothing: it is held on purpose. To let dormer continue".to_owned()
            }
            all if problem::is_on_purpose(machine) => format!(
                "Nothing: it is held on purpose. To let dormer continue; {ends}: {}",
                all.join("; ")
            ),
            [] | [_] => "Let dormer continue".to_owned(),
            all => format!("Let dormer continue; {ends}: {}", all.join("; ")),
        };
        Step::command(&say, &["dormer", "resume", name])
    })
}

/// Steps of a machine that is not supported, or not by its pool's payload.
fn not_supported(machine: &Machine, refused: &Refused) -> Vec<Step> {
    let say = dotless(&refused.what_to_do);
    if refused.code.starts_with("Payload") {
        return vec![Step::outside(Outside::CorrectPool, say), pools()];
    }
    vec![Step::outside(Outside::MakeRoom, say), deleted(machine)]
}

fn failed(machine: &Machine) -> Vec<Step> {
    if machine.given_up() {
        return vec![deleted(machine)];
    }
    let name = machine.name.as_str();
    let code = machine.failure.as_ref().map_or("", |it| it.code.as_str());
    let phase = machine.failure.as_ref().and_then(|it| it.phase.known());
    let recreate = || recreated(machine).instead();
    let retry = || Step::command("Then continue", &["dormer", "retry", name]);
    if phase == Some(MachinePhase::NodeWait)
        && let Some(why) = &machine.certificate_refused
    {
        let mut steps = certificate(machine, why);
        steps.extend([retry(), recreate()]);
        return steps;
    }
    if phase == Some(MachinePhase::NodeWait)
        && let Some(found) = other_name(machine)
    {
        let mut steps = ask_in_own_name(machine, found);
        steps.extend([retry(), recreate()]);
        return steps;
    }
    if let Some(see) = see(machine, code) {
        let Cure { outside, say } = cure(code).unwrap_or(UNKNOWN);
        let mut steps = vec![see, Step::outside(outside, say)];
        steps.extend(by_person_alone(machine, code));
        steps.extend([retry(), recreate()]);
        return steps;
    }
    let Cure { outside, say } = cure(code).unwrap_or(UNKNOWN);
    let has_log = machine.failure.as_ref().is_some_and(|it| it.log.is_some());
    match code {
        // The end of the log is shown above the steps.
        _ if has_log => vec![Step::outside(outside, LOG_NAMES_WHY), retry(), recreate()],
        HOST_KEY_CHANGED => other_key(machine),
        // No host of that kind can be mended.
        "ProgramForOtherProcessor" => vec![Step::outside(outside, say), recreated(machine)],
        _ => vec![Step::outside(outside, say), retry(), recreate()],
    }
}

/// Steps of a machine whose host shows another key. A retry meets the same key again, and trust in the new key continues
/// the step, or compares the host at once. The command lacks the key: a person who trusts a key types what the host itself
/// shows, not what the connection shows.
fn other_key(machine: &Machine) -> Vec<Step> {
    let Cure { outside, say } = cure(HOST_KEY_CHANGED).unwrap_or(UNKNOWN);
    let trust = "Trust that key, if it is the one that the cause names and you know who reinstalled the host: fill in its \
                 fingerprint (SHA256:…) and your reason. The step then continues";
    let fill = [
        "dormer",
        "trust-host-key",
        machine.name.as_str(),
        "--fingerprint",
        "FINGERPRINT",
        "--why",
        "REASON",
    ];
    let mut replace = recreated(machine).instead();
    replace.say =
        "Replace it, if the key is another one or nobody reinstalled the host: the connection may be intercepted".into();
    vec![
        Step::outside(outside, say),
        Step::outside(Outside::TrustHostKey, trust).fill(&fill),
        replace,
    ]
}

/// Code of a host that shows another key than the pinned one.
const HOST_KEY_CHANGED: &str = "HostKeyChanged";

/// Codes of a Node that is another's, or is not as it should be.
const NODE_SHOWS_WHY: &[&str] = &[
    "NodeNotWindows",
    "NodeIsControlPlane",
    "NotItsNode",
    "WrongKubelet",
    "WrongContainerd",
    "LabelMissing",
    "TaintsAmiss",
];

/// Command against a cause that no controller ends: it follows the cure of the code.
fn by_person_alone(machine: &Machine, code: &str) -> Option<Step> {
    let taint = "node.kubernetes.io/out-of-service-";
    let say = "Remove the taint node.kubernetes.io/out-of-service, if the Node has it and its host runs again";
    (code == "TaintsAmiss")
        .then(|| Step::command(say, &["kubectl", "taint", "nodes", node(machine), taint]))
}

/// Command that shows pods with their status, before the selector.
const POD_STATUS: [&str; 7] = [
    "kubectl",
    "get",
    "pods",
    "-A",
    "-o",
    "yaml",
    "--field-selector",
];

/// Command that shows what a code is about, before its cure. It is complete: a cure itself names no command of kubectl.
fn see(machine: &Machine, code: &str) -> Option<Step> {
    let node = node(machine);
    let resource = machine.resource();
    let name = machine.name.as_str();
    Some(match code {
        "WrongOs" | "WrongArchitecture" | "WrongBuild" => {
            let of_node = ["kubectl", "get", "node", node];
            let argv = [&of_node[..], &["--show-managed-fields", "-o", "yaml"]].concat();
            Step::command("See the Node's labels, and who wrote them", &argv)
        }
        _ if NODE_SHOWS_WHY.contains(&code) => Step::command(
            "See what the Node is",
            &["kubectl", "describe", "node", node],
        ),
        "NotSettled" | "NotReadyOverdue" => Step::command(
            "See what the Node lacks",
            &["kubectl", "describe", "node", node],
        ),
        "NodeOverdue" | "NoServingCertificate" => Step::command(SEE_REQUESTS, &DESCRIBE_REQUESTS),
        "NotItsAddress" | "NoAddress" => kubectl(
            machine,
            "See which address the Machine has",
            &["get", resource, name, "-o", "yaml"],
        ),
        "MachineNotWindows" => kubectl(
            machine,
            "See the Machine's labels",
            &["get", resource, name, "--show-labels"],
        ),
        "MachineGone" => kubectl(
            machine,
            "See whether the Machine is there",
            &["get", resource, name],
        ),
        "PoolStopped" => pool_objects("See the settings of the pools"),
        "DaemonSetPodNotReady" => {
            let argv = ["kubectl", "get", "pods", "-A", "--field-selector"];
            selected(Selected::Pods, node, "See the pods of the Node", &argv)
        }
        "CanaryNotScheduled" | "CanaryNotStarted" => {
            let argv = ["kubectl", "get", "events", "-A", "--field-selector"];
            let say = "See the Events of the canary pod";
            selected(Selected::CanaryEvents, node, say, &argv)
        }
        // The message of a container that has ended is in the pod's status; its Events say only that it starts again.
        "NoNodeToPod" | "NoServiceIp" | "NoServiceDns" | "NoOutbound" => selected(
            Selected::Canary,
            node,
            "See the status of the canary pod",
            &POD_STATUS,
        ),
        "NoPodToPod" | "NoNodePort" => {
            let say = "See the status of the pod that connects to the canary pod";
            selected(Selected::Peer, node, say, &POD_STATUS)
        }
        _ => return None,
    })
}

/// Steps of a Machine that the Machine API has marked as failed.
fn given_up(machine: &Machine) -> Vec<Step> {
    let say = match &machine.machine_error {
        Some(_) => format!(
            "Make room in the cloud (a quota), or correct what {} asks for: the cloud would refuse the next Machine for \
             the same reason",
            owner(machine)
        ),
        None => "Find out in the cloud why the instance is gone".to_owned(),
    };
    vec![Step::outside(Outside::MakeRoom, say), deleted(machine)]
}

fn in_phase(machine: &Machine, phase: MachinePhase, rollout: Option<&Rollout>) -> Vec<Step> {
    let name = machine.name.as_str();
    match phase {
        MachinePhase::AddressWait => address(machine),
        MachinePhase::NodeWait => no_node(machine),
        MachinePhase::ReadyWait | MachinePhase::Soaking => not_ready(machine),
        MachinePhase::PoolWait => vec![
            pools(),
            Step::outside(
                Outside::CorrectPool,
                format!(
                    "Create the WindowsPool {}, or correct the fields that its Events name",
                    machine.pool
                ),
            ),
        ],
        MachinePhase::ApprovalWait => vec![
            Step::command(
                "See what would change",
                &["dormer", "plan", "--pool", &machine.pool],
            ),
            Step::command("Allow its upgrade", &["dormer", "approve", name]),
        ],
        MachinePhase::LeaseWait => lease(machine, rollout),
        MachinePhase::OwnerWait => vec![Step::outside(
            Outside::CorrectPool,
            format!(
                "Give the Machine a MachineSet, or choose the strategy InPlace in the WindowsPool {}: nothing replaces a \
                 Machine without a MachineSet",
                machine.pool
            ),
        )],
        MachinePhase::Drained => vec![Step::command(
            "Return the Node to service",
            &["dormer", "resume", name],
        )],
        MachinePhase::Evicting => evicting(machine).unwrap_or_else(|| working(machine, phase)),
        MachinePhase::Vanishing | MachinePhase::Leaving => leaving(machine),
        MachinePhase::ReplacementWait => {
            let of_set = machine.owner.as_ref().map(|owner| format!("owner={owner}"));
            let mut in_its_set = vec!["dormer", "get", "machines"];
            in_its_set.extend(of_set.iter().flat_map(|it| ["-l", it.as_str()]));
            let see = awaited(machine, rollout).map(see_replacement);
            vec![
                see.unwrap_or_else(|| Step::command(SEE_REPLACEMENT, &in_its_set)),
                Step::outside(
                    Outside::MakeRoom,
                    "Make room in the cloud if there is no replacement, or if it gets no address",
                ),
            ]
        }
        MachinePhase::Serving if machine.waiting_for.is_none() => not_renewed(machine),
        MachinePhase::Serving => match &machine.not_compared {
            Some(failure) if failure.code == HOST_KEY_CHANGED => other_key(machine),
            Some(failure) => {
                let Cure { outside, say } = cure(&failure.code).unwrap_or(UNKNOWN);
                let mut steps = Vec::from_iter(see(machine, &failure.code));
                steps.push(Step::outside(outside, say));
                steps.extend(at_once(machine));
                steps.push(recreated(machine).instead());
                steps
            }
            None if machine.certificate_refused.is_some() => lapsed(machine),
            None => not_ready(machine),
        },
        MachinePhase::Failed | MachinePhase::Gone => Vec::new(),
        MachinePhase::Probing
        | MachinePhase::Reprobing
        | MachinePhase::KeyWait
        | MachinePhase::Rebooting
        | MachinePhase::ConvergingHost
        | MachinePhase::ConvergingNode
        | MachinePhase::Adopting
        | MachinePhase::Marking
        | MachinePhase::Checking
        | MachinePhase::Applying
        | MachinePhase::Closing
        | MachinePhase::Opening
        | MachinePhase::Deleting
        | MachinePhase::TearingDown
        | MachinePhase::Undoing
        | MachinePhase::ClosingGone => working(machine, phase),
    }
}

/// Steps of a machine whose task is retried: the cure of its last failure, else of the phase.
fn working(machine: &Machine, phase: MachinePhase) -> Vec<Step> {
    // The last failure counts until an attempt succeeds, also while the next one runs.
    let attempted = machine.tasks.iter().filter_map(Task::newest_failure);
    let attempted = attempted.map(|it| (it.code.as_str(), it.log.is_some()));
    let mut failures: Vec<(&str, bool)> = attempted.collect();
    if failures.is_empty() {
        // Until an attempt after a person's retry ends, the failure before it counts.
        let retried = machine.retried.iter().map(|it| &it.failure);
        failures.extend(retried.map(|it| (it.code.as_str(), it.log.is_some())));
    }
    let of_failure = failures.iter().find_map(|(code, has_log)| {
        let Cure { outside, say } = cure(code)?;
        let say = if *has_log { LOG_NAMES_WHY } else { say };
        Some(Cure { outside, say })
    });
    let unserved = machine.unserved.as_ref();
    let of_code = of_failure.or_else(|| cure(&unserved?.code));
    let found = of_code.or(match phase {
        MachinePhase::Probing | MachinePhase::Reprobing => Some(OPEN_SSH),
        MachinePhase::KeyWait => Some(ACCEPT_KEY),
        MachinePhase::Rebooting => Some(SCREEN_SHOWS_WHY),
        _ => None,
    });
    let Some(Cure { outside, say }) = found else {
        return more_to_read(machine, phase);
    };
    // The task is tried again, and no command has to follow. A machine in its usual time says so above the steps.
    let say = match (problem::heals_by(machine), runs_again(machine)) {
        (_, Some(attempt)) => format!("{say}. Attempt {attempt} is under way"),
        (Some(_), None) => say.to_owned(),
        (None, None) => format!("{say}. dormer tries again by itself"),
    };
    let of_failures = failures.iter().map(|(code, _)| *code);
    let codes: Vec<&str> = of_failures
        .chain(unserved.map(|it| it.code.as_str()))
        .collect();
    let mut steps: Vec<Step> = codes
        .iter()
        .find_map(|code| see(machine, code))
        .into_iter()
        .collect();
    steps.push(Step::outside(outside, say));
    let mut by_person = codes.iter();
    steps.extend(by_person.find_map(|code| by_person_alone(machine, code)));
    steps.extend(at_once(machine));
    if matches!(phase, MachinePhase::Probing | MachinePhase::KeyWait) {
        steps.push(deleted(machine).instead());
    }
    steps
}

/// Number of the attempt that runs after one that failed.
fn runs_again(machine: &Machine) -> Option<u64> {
    let failed = |task: &&Task| task.last_failure.is_some() || machine.retried.is_some();
    let mut running = machine.tasks.iter().filter(|it| it.failure.is_none());
    Some(running.find(failed)?.attempt)
}

/// Step of a machine that is stuck without a known failure: where to look.
fn more_to_read(machine: &Machine, phase: MachinePhase) -> Vec<Step> {
    use MachinePhase::{Adopting, Applying, Checking, ConvergingHost, ConvergingNode, TearingDown};
    let stuck = problem::problem(machine).is_some_and(|it| it.urgency == Urgency::Stuck);
    if !stuck {
        return Vec::new();
    }
    let on_host = [
        Adopting,
        Applying,
        Checking,
        ConvergingHost,
        ConvergingNode,
        TearingDown,
    ];
    let (say, command) = match on_host.contains(&phase) {
        true => ("See what the step does on the host", "logs"),
        false => ("See what was tried", "history"),
    };
    vec![Step::command(say, &["dormer", command, &machine.name])]
}

#[cfg(test)]
#[path = "advice_tests.rs"]
mod tests;
