//! Advice about a machine: the next steps of each phase, and the cure of each failure code. No other module has any.
//!
//! A step follows from ids and codes alone, never from a sentence.

use super::{
    dotless, problem,
    step::{
        Outside::{
            self, CompareHostKey, CorrectPool, FreeDisk, MakeRoom, MendCluster, MendHost, MendNode,
            RestoreFile, SetClock,
        },
        Step,
    },
};
use crate::{
    machine::{Blocker, HaltKind, Machine, MachineKind, Refused},
    open_enum::OpenEnum,
    rollout::Rollout,
};
use dormer_profile::answer::FailureCode;
use dormer_proto::{
    message::listed,
    phase::{MachinePhase, MachineState, Unavailable},
};

/// Label of a Machine that dormer leaves alone.
const IGNORE: &str = "windowsmachineconfig.openshift.io/ignore";

/// Taint of a Node whose host is off: Kubernetes then deletes its pods.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";

/// Most pods of a budget by name.
const PODS_MAX: usize = 6;

/// Next steps for a person, in their order. Empty: there is nothing to do. Where the machine continues by itself
/// ([`problem::heals_by`]), they are for the time after that.
pub fn steps(machine: &Machine, rollout: Option<&Rollout>) -> Vec<Step> {
    if machine.state == MachineState::Gone {
        return Vec::new();
    }
    if let Some(step) = stopped(machine) {
        let uncordon = machine.halt.as_ref().and_then(|_| uncordoned(machine));
        return uncordon.into_iter().chain([step]).collect();
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

/// Uncordon of its Node, while another client keeps it cordoned.
fn uncordoned(machine: &Machine) -> Option<Step> {
    machine.cordoned_by.as_ref()?;
    let uncordon = ["kubectl", "uncordon", node(machine)];
    Some(Step::command(UNCORDON, &uncordon))
}

const UNCORDON: &str = "Uncordon the Node once it may be upgraded";

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
    if let Some(runs) = &machine.neighbour {
        let (what, cure) = problem::operator(runs);
        let say = format!("End the other operator: {}", dotless(cure.unwrap_or(what)));
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
        let own = halt
            .by
            .as_deref()
            .is_some_and(|by| by.starts_with("dormer: "));
        let say = match all.as_slice() {
            [] | [_] if own => "Let dormer continue, once its cause has ended".to_owned(),
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

/// Steps of a machine that failed.
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
        let mut steps = certificate(why);
        steps.extend([retry(), recreate()]);
        return steps;
    }
    if let Some(see) = see(machine, code) {
        let Cure { outside, say } = cure(code).unwrap_or(UNKNOWN);
        return vec![see, Step::outside(outside, say), retry(), recreate()];
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
    "WrongOs",
    "WrongArchitecture",
    "WrongBuild",
    "LabelMissing",
    "TaintsAmiss",
];

/// Command that shows what a code is about, before its cure.
fn see(machine: &Machine, code: &str) -> Option<Step> {
    if NODE_SHOWS_WHY.contains(&code) {
        let argv = ["kubectl", "describe", "node", node(machine)];
        return Some(Step::command("See what the Node is", &argv));
    }
    let requests = ["NodeOverdue", "NoServingCertificate"].contains(&code);
    requests.then(|| Step::command("See the requests", &["kubectl", "get", "csr"]))
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
        MachinePhase::Evicting => evicting(machine),
        MachinePhase::Vanishing | MachinePhase::Leaving => leaving(machine),
        MachinePhase::ReplacementWait => vec![
            Step::command(
                "See the machine in its place",
                &["dormer", "get", "machines"],
            ),
            Step::outside(
                Outside::MakeRoom,
                "Make room in the cloud if there is no replacement, or if it gets no address",
            ),
        ],
        MachinePhase::Serving if machine.waiting_for.is_none() => Vec::new(),
        MachinePhase::Serving => match &machine.not_compared {
            Some(failure) if failure.code == HOST_KEY_CHANGED => other_key(machine),
            Some(failure) => {
                let Cure { outside, say } = cure(&failure.code).unwrap_or(UNKNOWN);
                let mut steps = vec![Step::outside(outside, say)];
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
    let mut failures = machine.tasks.iter().filter_map(|it| it.failure.as_ref());
    let cure = failures.find_map(|failure| {
        let Cure { outside, say } = cure(&failure.code)?;
        let say = failure.log.as_ref().map_or(say, |_| LOG_NAMES_WHY);
        Some(Cure { outside, say })
    });
    let unserved = machine.unserved.as_ref();
    let cure = cure.or_else(|| self::cure(&unserved?.code));
    let cure = cure.or(match phase {
        MachinePhase::Probing | MachinePhase::Reprobing => Some(OPEN_SSH),
        MachinePhase::KeyWait => Some(ACCEPT_KEY),
        MachinePhase::Rebooting => Some(SCREEN_SHOWS_WHY),
        _ => None,
    });
    let Some(Cure { outside, say }) = cure else {
        return more_to_read(machine, phase);
    };
    // The task is tried again, and no command has to follow. A machine in its usual time says so above the steps.
    let say = match problem::heals_by(machine) {
        Some(_) => say.to_owned(),
        None => format!("{say}. dormer tries again by itself"),
    };
    let codes = machine.tasks.iter().filter_map(|it| it.failure.as_ref());
    let mut codes = codes.chain(unserved).map(|it| it.code.as_str());
    let mut steps: Vec<Step> = codes
        .find_map(|code| see(machine, code))
        .into_iter()
        .collect();
    steps.push(Step::outside(outside, say));
    steps.extend(at_once(machine));
    if matches!(phase, MachinePhase::Probing | MachinePhase::KeyWait) {
        steps.push(deleted(machine).instead());
    }
    steps
}

/// Step of a machine that is stuck without a known failure: where to look.
fn more_to_read(machine: &Machine, phase: MachinePhase) -> Vec<Step> {
    use MachinePhase::{Adopting, Applying, Checking, ConvergingHost, ConvergingNode, TearingDown};
    let stuck = problem::problem(machine).is_some_and(|it| it.urgency == problem::Urgency::Stuck);
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

fn kubectl(machine: &Machine, say: &str, words: &[&str]) -> Step {
    let mut argv = vec!["kubectl"];
    if !machine.namespace.is_empty() {
        argv.extend(["-n", &machine.namespace]);
    }
    argv.extend(words);
    Step::command(say, &argv)
}

fn pools() -> Step {
    Step::command(
        "See what was refused",
        &["kubectl", "describe", "windowspool", "-A"],
    )
}

fn recreated(machine: &Machine) -> Step {
    Step::command("Replace it", &["dormer", "recreate", &machine.name])
}

/// Retry of a step that dormer tries again later by itself.
fn at_once(machine: &Machine) -> Option<Step> {
    let retry = ["dormer", "retry", machine.name.as_str()];
    let say = "Try again at once, instead of waiting";
    machine
        .waits_for_attempt()
        .then(|| Step::command(say, &retry))
}

/// Replacement of a Machine that does not serve yet.
fn deleted(machine: &Machine) -> Step {
    let say = match machine.kind.as_ref().and_then(OpenEnum::known) {
        Some(MachineKind::WindowsHost) => "Give the host up",
        _ => "Let its MachineSet create another",
    };
    kubectl(machine, say, &["delete", machine.resource(), &machine.name])
}

fn owner(machine: &Machine) -> &str {
    machine.owner.as_deref().unwrap_or("its MachineSet")
}

fn address(machine: &Machine) -> Vec<Step> {
    let resource = machine.resource();
    let see = |say: &str| kubectl(machine, say, &["describe", resource, &machine.name]);
    let kinds = machine.machine_conditions.iter().map(|it| it.kind.as_str());
    if machine.machine_error.is_some() || problem::creation_refused(kinds) {
        let say = format!(
            "Make room in the cloud (a quota, a subnet's addresses), or correct what {} asks for; the machine API's \
             controllers keep trying",
            owner(machine)
        );
        return vec![
            Step::outside(Outside::MakeRoom, say),
            deleted(machine).instead(),
        ];
    }
    if machine
        .kind
        .as_ref()
        .is_some_and(|kind| *kind == MachineKind::WindowsHost)
    {
        return vec![
            see("See why the host is not accepted"),
            Step::outside(
                Outside::MendCluster,
                "Give its name an address that no other WindowsHost has",
            ),
        ];
    }
    vec![see(
        "See what the machine API's controllers report, such as a quota",
    )]
}

fn no_node(machine: &Machine) -> Vec<Step> {
    if let Some(why) = &machine.certificate_refused {
        let mut steps = certificate(why);
        steps.push(deleted(machine).instead());
        return steps;
    }
    let say = format!(
        "Compare the name in the kubelet's request with system:node:{}: if it differs, give the host the Machine's name; if \
         there is no request, read the kubelet's log on the host",
        node(machine)
    );
    vec![
        Step::command("See the requests", &["kubectl", "get", "csr"]),
        Step::outside(Outside::MendNode, say),
        deleted(machine).instead(),
    ]
}

/// Steps after a certificate request that was not approved. The approver names the Node of another machine so:
/// "the Node NAME is there, and belongs to ID, not ID".
fn certificate(why: &str) -> Vec<Step> {
    let others = why
        .strip_prefix("the Node ")
        .and_then(|rest| rest.split_once(" is there, and belongs to "));
    if let Some((node, _)) = others {
        return vec![
            Step::command(
                "See whose Node it is",
                &["kubectl", "describe", "node", node],
            ),
            Step::command(
                "Delete it if no host has it any more",
                &["kubectl", "delete", "node", node],
            ),
        ];
    }
    let say = format!("Remove the reason for the refusal: {}", dotless(why));
    vec![
        Step::command("See the request", &["kubectl", "describe", "csr"]),
        Step::outside(Outside::MendNode, say),
    ]
}

/// Name of its Node or, before there is one, the expected name.
fn node(machine: &Machine) -> &str {
    let known = machine.node.as_deref().or(machine.expected_node.as_deref());
    known.unwrap_or(&machine.name)
}

/// Steps of a machine that served, whose Node is not available, and whose kubelet got no certificate. Its Node has to be
/// torn down under the lease, and only then a first certificate is approved for that name once more.
fn lapsed(machine: &Machine) -> Vec<Step> {
    let name = machine.name.as_str();
    let say = match machine.kind.as_ref().and_then(OpenEnum::known) {
        Some(MachineKind::WindowsHost) => {
            "Set the host up again if its kubelet's certificate has lapsed"
        }
        _ => "Replace the machine if its kubelet's certificate has lapsed",
    };
    vec![
        Step::command("See who asks for what", &["kubectl", "describe", "csr"]),
        Step::command(say, &["dormer", "recreate", name]),
    ]
}

fn not_ready(machine: &Machine) -> Vec<Step> {
    vec![
        Step::command(
            "See what the Node lacks",
            &["kubectl", "describe", "node", node(machine)],
        ),
        Step::outside(Outside::MendNode, "Mend what its conditions name"),
    ]
}

fn lease(machine: &Machine, rollout: Option<&Rollout>) -> Vec<Step> {
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

fn evicting(machine: &Machine) -> Vec<Step> {
    let blockers = machine.drain.as_ref().map(|drain| &drain.blockers);
    let Some(blocker) = blockers.and_then(|blockers| blockers.first()) else {
        return working(machine, MachinePhase::Evicting);
    };
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
        let say = "Tell Kubernetes that the host is off, once that is certain";
        steps.push(Step::command(say, &taint));
    } else {
        let say = allow_eviction(machine, blocker).unwrap_or_else(|| {
            let why = dotless(&blocker.why);
            format!("Remove what keeps {}: {why}", blocker.pod)
        });
        steps.push(Step::outside(Outside::LetGo, say));
    }
    let abort = ["dormer", "abort", machine.name.as_str()];
    let drain = machine.asked.as_ref().is_some_and(|it| it.begun);
    let say = match drain {
        true => "Give the drain up: the machine is held",
        false => "Give the upgrade up",
    };
    steps.push(Step::command(say, &abort).instead());
    steps
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
         mend those that are not Ready, or lower what it asks for. It keeps {}",
        listed(&pods, PODS_MAX)
    ))
}

/// Words of `kubectl` that show what holds a pod. Its budgets are not in its own description.
fn what_holds<'a>(pod: &'a str, budgets: &'a [String]) -> Vec<&'a str> {
    match budgets {
        [] => vec!["describe", "pod", pod],
        [budget] => vec!["describe", "pdb", budget],
        [_, _, ..] => vec!["get", "pdb"],
    }
}

fn leaving(machine: &Machine) -> Vec<Step> {
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

/// Cure of a failure.
#[derive(Debug, Clone, Copy)]
struct Cure {
    /// Kind of the action.
    outside: Outside,
    /// The same in words, without a full stop.
    say: &'static str,
}

const fn cured(outside: Outside, say: &'static str) -> Cure {
    Cure { outside, say }
}

/// Cure of a service whose log is shown.
const LOG_NAMES_WHY: &str = "Mend what the end of the log names";
/// Cure of a failure without an entry: only its message can say more.
const UNKNOWN: Cure = cured(Outside::MendHost, "Mend the cause");
const OPEN_SSH: Cure = cured(
    Outside::OpenSsh,
    "Check that the host runs (the cloud's console shows it), that its sshd runs, and that the security group and the \
     host's firewall open port 22 to dormer",
);
const ACCEPT_KEY: Cure = cured(
    Outside::AcceptKey,
    "Make the host accept dormer's key: check the user, the public key in the user data (which may not have run yet), and \
     that only Administrators and SYSTEM can access administrators_authorized_keys",
);
const SCREEN_SHOWS_WHY: Cure = cured(
    Outside::OpenSsh,
    "Open the host's screen in the cloud's console, and remove what prevents Windows or sshd from starting; reset the host \
     there if nothing else helps",
);

/// Codes of failures which mean that the host cannot be reached over SSH.
const CONNECTION: &[&str] = &[
    "ConnectTimeout",
    "ConnectRefused",
    "ConnectionLost",
    "HandshakeFailed",
    "NoAnswer",
];

/// Whether a failure means that the host cannot be reached over SSH.
#[must_use]
pub fn is_connection(code: &str) -> bool {
    CONNECTION.contains(&code)
}

/// Cures by the codes of the failures that they mend.
const CURES: &[(&[&str], Cure)] = &[
    (&["AuthRejected"], ACCEPT_KEY),
    (
        &["HostKeyChanged"],
        cured(
            CompareHostKey,
            "Read the key on the host itself, on its console and not over SSH: ssh-keygen -lf \
             C:\\ProgramData\\ssh\\ssh_host_ed25519_key.pub",
        ),
    ),
    (CONNECTION, OPEN_SSH),
    (
        &["NotItsAddress", "NoAddress"],
        cured(
            MendCluster,
            "See which address the Machine has: kubectl get machine -o yaml, status.addresses. Once that is the host's own, the \
             next order names it. An order that names another host again and again is old, or forged",
        ),
    ),
    (
        &["MachineGone"],
        cured(
            MendCluster,
            "See whether the Machine is there: kubectl get machine. Without it there is no host to change",
        ),
    ),
    (
        &["SftpUnusable"],
        cured(
            MendHost,
            "Remove every output of the profiles of the host's default shell: it mixes with what SFTP sends",
        ),
    ),
    (
        &["SftpMissing"],
        cured(
            MendHost,
            "Add the line Subsystem sftp sftp-server.exe to sshd_config on the host",
        ),
    ),
    (
        &["DiskFull"],
        cured(
            FreeDisk,
            "Free space on the host's disk C:, or give the Machine a larger one",
        ),
    ),
    (
        &["ClockSkew"],
        cured(SetClock, "Set the host's clock: w32tm /resync on the host"),
    ),
    (
        &["NameChanged"],
        cured(
            MendNode,
            "Give the host its name back; a Machine whose host is to be another node has to be recreated",
        ),
    ),
    (
        &["NameMismatch"],
        cured(
            MendNode,
            "Give the host the name that its Machine has, or recreate the Machine",
        ),
    ),
    (
        &["NoFrame", "OutputEndless"],
        cured(
            MendHost,
            "Check the host by hand: a program there ends commands, or writes into their output",
        ),
    ),
    (
        &["QuarantineSuspected"],
        cured(
            RestoreFile,
            "Restore the file in the host's virus scanner and exclude dormer's folder there",
        ),
    ),
    (
        &["ProgramBlockedByAppLocker"],
        cured(
            MendHost,
            "Allow dormer-host.exe in AppLocker for administrators, by its publisher or its hash; the default rules allow all \
             of C:\\Windows",
        ),
    ),
    (
        &["ProgramBlockedByWdac"],
        cured(
            MendHost,
            "Add dormer-host.exe to the host's application control policy, by its hash or its publisher",
        ),
    ),
    (
        &["ProgramQuarantined"],
        cured(
            RestoreFile,
            "Restore dormer-host.exe in the host's virus scanner and exclude C:\\Windows\\dormer\\bin there",
        ),
    ),
    (
        &["ProgramForOtherProcessor"],
        cured(
            MakeRoom,
            "Change the MachineSet to an x86-64 instance type, or remove it from the pool: dormer-host.exe runs only on x86-64",
        ),
    ),
    (
        &[
            "UnknownFile",
            "ProfileUnusable",
            "DocumentUnusable",
            "Invalid",
        ],
        cured(
            CorrectPool,
            "Correct the profile: dormer profile render shows its result",
        ),
    ),
    (
        &["VersionNotHere", "PayloadUnreadable", "PayloadDamaged"],
        cured(
            CorrectPool,
            "Install the payload again: dormer payload verify names each damaged file",
        ),
    ),
    (
        &["BootstrapUnusable"],
        cured(
            MendCluster,
            "Correct what the message names: a kubelet cannot join without it",
        ),
    ),
    (
        &["TokenAwaited"],
        cured(
            MendCluster,
            "Start a dormer with the role approver: it issues the tokens with which kubelets request their first certificate",
        ),
    ),
    (
        &["TokenRefused"],
        cured(
            MendCluster,
            "Correct what the message names: the approver gives tokens only to Windows Machines that join",
        ),
    ),
    (
        &["Forbidden"],
        cured(
            MendCluster,
            "Grant dormer's ServiceAccount the permission that the message names",
        ),
    ),
    (
        &["NodeOverdue"],
        cured(
            MendNode,
            "Compare the name in the kubelet's request with that of its Node, and read the kubelet's log on the host",
        ),
    ),
    (
        &["NodeNotWindows", "NodeIsControlPlane", "NotItsNode"],
        cured(
            MendNode,
            "Find out which host has the Node's name: compare its ProviderID with the Machine's. If no host has it any more, \
             delete the old Node with kubectl delete node and its name",
        ),
    ),
    (
        &["LeaseEnded"],
        cured(
            MendNode,
            "Find out who wrote the annotation dormer.io/fence of Machine and Node: it names a later lease, or this one as \
             closed, so dormer does not reboot the host",
        ),
    ),
    (
        &["NodeDownTooShort"],
        cured(
            MendNode,
            "Wait until the Node has not been Ready for the pool's repairAfter: before that it is repaired only within the \
             limit",
        ),
    ),
    (
        &["PoolStopped"],
        cured(
            CorrectPool,
            "End the stop of the pool: kubectl edit windowspool in dormer's namespace",
        ),
    ),
    (
        &["OtherDormer"],
        cured(
            MendCluster,
            "Decide which dormer manages the machine, and remove the other one: helm uninstall, then delete its WindowsPool. \
             Then remove the annotation dormer.io/installation from the Machines of the removed one",
        ),
    ),
    (
        &["MachinePaused"],
        cured(
            MendCluster,
            "End the pause of its Machine, MachineSet or Cluster: the annotation cluster.x-k8s.io/paused, or spec.paused of \
             the Cluster",
        ),
    ),
    (
        &["WrongKubelet"],
        cured(
            MendHost,
            "Find out who installed or started another kubelet on the host than the payload's: sc.exe qc kubelet on the host \
             shows the program of its service",
        ),
    ),
    (
        &["WrongContainerd"],
        cured(
            MendHost,
            "Compare containerd: in the payload's payload.yaml with the release of its containerd.exe: dormer payload make \
             writes it. If they agree, find out who installed another containerd on the host",
        ),
    ),
    (
        &["WrongOs", "WrongArchitecture", "WrongBuild"],
        cured(
            MendNode,
            "Find out who writes the label: kubectl get node --show-labels --show-managed-fields -o yaml. A restart of the \
             kubelet writes what the host is",
        ),
    ),
    (
        &["LabelMissing"],
        cured(
            MendNode,
            "See why the Node did not get what its Machine's spec.metadata names: whether the nodelink controller (Cluster \
             API: its machine controller) runs, and whether the Node has another label",
        ),
    ),
    (
        &["TaintsAmiss"],
        cured(
            MendNode,
            "Find out which controller should remove or set the taint: kubectl describe node. The cloud controller manager \
             removes node.cloudprovider.kubernetes.io/uninitialized",
        ),
    ),
    (
        &["NoServingCertificate"],
        cured(
            MendNode,
            "Check the kubelet's request for a serving certificate: kubectl get csr. Open port 10250 of the host to dormer and \
             to the API server",
        ),
    ),
    (
        &["DaemonSetPodNotReady"],
        cured(
            MendNode,
            "See why the named pods are not Ready: kubectl describe pod. A DaemonSet for Linux alone needs the node selector \
             kubernetes.io/os: linux",
        ),
    ),
    (
        &["NotSettled"],
        cured(
            MendNode,
            "See why the Node does not stay Ready: kubectl describe node, and the kubelet's log on the host",
        ),
    ),
    (
        &["NodeCheckFailed", "NoLogs"],
        cured(
            MendNode,
            "See which check fails: dormer verify NODE runs all of them",
        ),
    ),
    (
        &["NotReadyOverdue"],
        cured(MendNode, "See what the Node lacks: kubectl describe node"),
    ),
    (&["RebootOverdue"], SCREEN_SHOWS_WHY),
    (
        &["RebootLoop"],
        cured(
            MendHost,
            "Find out what requests a reboot repeatedly: dormer history names it",
        ),
    ),
];

/// Cure of a failure code. `None`: only the message can say.
fn cure(code: &str) -> Option<Cure> {
    let mut rows = CURES.iter();
    let row = rows.find(|(codes, _)| codes.contains(&code));
    row.map_or_else(|| of_host_program(code), |&(_, cure)| Some(cure))
}

/// Cure of a failure that the host program reports, or of a host's clock: in words, without a full stop. Its message has
/// none.
#[must_use]
pub fn host_cure(code: &str) -> Option<&'static str> {
    let cure = match code {
        "ClockSkew" => cure(code),
        code => of_host_program(code),
    };
    cure.map(|it| it.say)
}

/// Cure of a failure that the host program reports: its own advice.
fn of_host_program(code: &str) -> Option<Cure> {
    let mut codes = FailureCode::ALL.iter();
    let code = codes.find(|known| known.as_str() == code)?;
    let outside = match code {
        // The earlier call ends by itself.
        FailureCode::HostBusy => return None,
        FailureCode::DiskFull => FreeDisk,
        FailureCode::QuarantineSuspected => RestoreFile,
        _ => MendHost,
    };
    Some(cured(outside, dotless(code.advice())))
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{failed_while, machine_in, rollout_with},
        *,
    };
    use crate::{
        machine::{CordonedBy, Halt},
        run::TaskFailure,
    };
    use dormer_proto::phase::Listed;
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
        let runs =
            "WMCO runs (Pod w/w-1); to stop it: kubectl -n w scale deployment w --replicas=0";
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
}
