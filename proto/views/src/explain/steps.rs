//! Next steps as data: commands that can be executed as they are, and what has to be done outside of dormer.

use super::{advice::Advice, dotless, trouble};
use crate::{
    machine::{HaltKind, Machine},
    open_enum::OpenEnum,
    rollout::Rollout,
};
use dormer_proto::{
    listed,
    phase::{MachinePhase, MachineState, Unavailable},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

listed! {
    /// What a person does in the world outside of dormer.
    pub enum Outside {
        /// Let the host accept dormer's SSH key.
        AcceptKey = "accept-key",
        /// Let the host run, its sshd run, and its port 22 be open to dormer.
        OpenSsh = "open-ssh",
        /// Compare the host's key on the host itself.
        CompareHostKey = "compare-host-key",
        /// Mend what the message names on the host.
        MendHost = "mend-host",
        /// Free space on the host's disk.
        FreeDisk = "free-disk",
        /// Set the host's clock.
        SetClock = "set-clock",
        /// Restore a file in the host's virus scanner.
        RestoreFile = "restore-file",
        /// Make room in the cloud, or correct what the MachineSet asks for.
        MakeRoom = "make-room",
        /// Correct the pool, its profile or its payload.
        CorrectPool = "correct-pool",
        /// Grant a right in the cluster, or mend an object that dormer reads.
        MendCluster = "mend-cluster",
        /// Mend the Node: its kubelet, its network, its name.
        MendNode = "mend-node",
        /// Let go what holds a pod or a Machine: a budget, a finalizer, a hook.
        LetGo = "let-go",
        /// End the other operator.
        EndOperator = "end-operator",
    }
}

/// One step. It has a command, or something to do outside, or neither if dormer continues by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The step for people.
    pub say: String,
    /// Command to execute as it is; empty if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Kind of what has to be done outside of dormer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<OpenEnum<Outside>>,
    /// Whether it replaces the steps before it, instead of following them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub instead: bool,
}

impl Step {
    fn outside(kind: Outside, say: impl Into<String>) -> Self {
        Self {
            say: say.into(),
            argv: Vec::new(),
            outside: Some(kind.into()),
            instead: false,
        }
    }

    fn command(say: &str, argv: &[&str]) -> Self {
        Self {
            say: say.to_owned(),
            argv: argv.iter().map(|it| (*it).to_owned()).collect(),
            outside: None,
            instead: false,
        }
    }

    fn nothing(say: &str) -> Self {
        Self::command(say, &[])
    }

    fn instead(mut self) -> Self {
        self.instead = true;
        self
    }

    /// Its command as a line for a shell; `None` if it has none.
    pub fn line(&self) -> Option<String> {
        (!self.argv.is_empty()).then(|| {
            let words: Vec<String> = self.argv.iter().map(|word| quoted(word)).collect();
            words.join(" ")
        })
    }
}

/// Word of a command line, quoted for a POSIX shell if needed.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Next steps for a person, in their order. Empty: there is nothing to do.
pub fn steps(machine: &Machine, rollout: Option<&Rollout>) -> Vec<Step> {
    let name = machine.name.as_str();
    let advice = Advice::of(machine);
    if machine.state == MachineState::Gone {
        return Vec::new();
    }
    if machine.status.quarantine.is_some() {
        let say = "Mend the cause (docs/runbook.md, DormerRunQuarantined). Then release the run";
        return vec![Step::command(say, &["dormer", "unquarantine", name])];
    }
    if let Some(lacks) = &machine.lacks {
        return vec![Step::outside(Outside::MendCluster, lacks.as_str())];
    }
    if let Some(runs) = &machine.neighbour {
        let say = format!("End the other operator: {}", dotless(runs));
        return vec![Step::outside(Outside::EndOperator, say)];
    }
    if let Some(halt) = &machine.halt {
        return vec![if halt.kind == HaltKind::Ignored {
            let label = "windowsmachineconfig.openshift.io/ignore-";
            kubectl(
                machine,
                "Remove the label",
                &["label", "machine", name, label],
            )
        } else {
            Step::command("Let dormer continue", &["dormer", "resume", name])
        }];
    }
    if let Some(refused) = &machine.refused {
        let say = dotless(&refused.what_to_do);
        return match refused.code.starts_with("Payload") {
            true => vec![
                Step::outside(Outside::CorrectPool, say),
                Step::command(
                    "See what the pool wants",
                    &["kubectl", "describe", "windowspool", "-A"],
                ),
            ],
            false => vec![Step::outside(Outside::MakeRoom, say), deleted(machine)],
        };
    }
    if machine.state == MachineState::Failed {
        return failed(machine, &advice);
    }
    if machine.given_up() && machine.phase != MachinePhase::Serving {
        return vec![
            Step::outside(Outside::MakeRoom, "Mend what the cloud's error names"),
            deleted(machine),
        ];
    }
    let Some(phase) = machine.phase.known() else {
        return Vec::new();
    };
    match phase {
        MachinePhase::AddressWait => address(machine),
        MachinePhase::Probing | MachinePhase::Reprobing => {
            let say = "If it lasts: check that the host runs, that sshd runs, and that port 22 is open to dormer";
            vec![
                Step::outside(Outside::OpenSsh, say),
                deleted(machine).instead(),
            ]
        }
        MachinePhase::KeyWait => vec![
            Step::outside(
                Outside::AcceptKey,
                "If it lasts: let user data give the host dormer's public key",
            ),
            deleted(machine).instead(),
        ],
        MachinePhase::NodeWait => {
            let node = advice.node();
            let say = format!("Let the kubelet ask for a certificate as system:node:{node}");
            vec![
                Step::command("See the requests", &["kubectl", "get", "csr"]),
                Step::outside(Outside::MendNode, say),
            ]
        }
        MachinePhase::ReadyWait | MachinePhase::Soaking => not_ready(&advice),
        MachinePhase::ConvergingHost | MachinePhase::ConvergingNode => {
            let mut failures = machine.tasks.iter().filter_map(|it| it.failure.as_ref());
            let found =
                failures.find_map(|it| Some((outside_of(&it.code), advice.cure(&it.code)?)));
            found.map_or_else(Vec::new, |(kind, cure)| vec![Step::outside(kind, cure)])
        }
        MachinePhase::Rebooting => vec![Step::outside(
            Outside::MendHost,
            "If it lasts: look at the host's screen in the cloud's console",
        )],
        MachinePhase::PoolWait => vec![
            Step::command(
                "See what was refused",
                &["kubectl", "describe", "windowspool", "-A"],
            ),
            Step::outside(Outside::CorrectPool, "Correct the pool"),
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
            "Give the Machine a MachineSet, or choose the strategy InPlace in its pool",
        )],
        MachinePhase::Drained => vec![Step::command(
            "Return the Node to service",
            &["dormer", "resume", name],
        )],
        MachinePhase::Evicting => evicting(machine),
        MachinePhase::Vanishing | MachinePhase::Leaving => vec![
            kubectl(
                machine,
                "See what keeps it",
                &["get", "machine", name, "-o", "yaml"],
            ),
            Step::outside(
                Outside::LetGo,
                "Let go what keeps the Machine: finalizers, lifecycle hooks, attached volumes",
            ),
        ],
        MachinePhase::ReplacementWait => vec![
            Step::command(
                "See the machine in its place",
                &["dormer", "get", "machines"],
            ),
            Step::outside(
                Outside::MakeRoom,
                "If there is none, or it gets no address: make room in the cloud",
            ),
        ],
        MachinePhase::Serving if machine.waiting_for.is_none() => Vec::new(),
        MachinePhase::Serving => match &machine.not_compared {
            Some(failure) => {
                let cure = advice.cure(&failure.code).unwrap_or("Mend the cause");
                vec![
                    Step::outside(outside_of(&failure.code), cure),
                    Step::command("Replace it", &["dormer", "recreate", name, "--yes"]).instead(),
                ]
            }
            None => not_ready(&advice),
        },
        MachinePhase::Adopting
        | MachinePhase::Marking
        | MachinePhase::Checking
        | MachinePhase::Applying
        | MachinePhase::Closing
        | MachinePhase::Opening
        | MachinePhase::Deleting
        | MachinePhase::TearingDown
        | MachinePhase::Undoing
        | MachinePhase::ClosingGone
        | MachinePhase::Failed
        | MachinePhase::Gone => vec![Step::nothing("dormer continues by itself")],
    }
}

fn kubectl(machine: &Machine, say: &str, words: &[&str]) -> Step {
    let mut argv = vec!["kubectl"];
    if !machine.namespace.is_empty() {
        argv.extend(["-n", &machine.namespace]);
    }
    argv.extend(words);
    Step::command(say, &argv)
}

/// Replacement of a Machine that does not serve yet.
fn deleted(machine: &Machine) -> Step {
    let say = "Let its MachineSet create another";
    kubectl(machine, say, &["delete", "machine", &machine.name])
}

fn failed(machine: &Machine, advice: &Advice<'_>) -> Vec<Step> {
    let name = machine.name.as_str();
    if machine.given_up() {
        return vec![deleted(machine)];
    }
    let code = machine.failure.as_ref().map_or("", |it| it.code.as_str());
    let cure = advice.cure(code).unwrap_or("Mend the cause");
    let recreate = || Step::command("Replace it", &["dormer", "recreate", name, "--yes"]).instead();
    // A retry meets the same key again. Trust in the new key continues the step.
    if code == "HostKeyChanged" {
        return vec![
            Step::outside(Outside::CompareHostKey, cure.replace("MACHINE", name)),
            recreate(),
        ];
    }
    vec![
        Step::outside(outside_of(code), cure),
        Step::command("Then continue", &["dormer", "retry", name]),
        recreate(),
    ]
}

fn address(machine: &Machine) -> Vec<Step> {
    let kinds = machine.machine_conditions.iter().map(|it| it.kind.as_str());
    if machine.machine_error.is_some() || trouble::creation_refused(kinds) {
        let say =
            "Make room in the cloud (a quota, a subnet's addresses), or correct the MachineSet";
        return vec![Step::outside(Outside::MakeRoom, say), deleted(machine)];
    }
    vec![kubectl(
        machine,
        "If it lasts: see what the machine API's controllers report",
        &["describe", "machine", &machine.name],
    )]
}

fn not_ready(advice: &Advice<'_>) -> Vec<Step> {
    vec![
        Step::command(
            "See what the Node lacks",
            &["kubectl", "describe", "node", advice.node()],
        ),
        Step::outside(Outside::MendNode, "Mend what its conditions name"),
    ]
}

fn lease(machine: &Machine, rollout: Option<&Rollout>) -> Vec<Step> {
    let pool = machine.pool.as_str();
    let Some(rollout) = rollout else {
        return Vec::new();
    };
    if rollout.halted.is_some() {
        let see = ["dormer", "status", "--pool", pool];
        return vec![Step::command("See what halted the rollout", &see)];
    }
    if let Some(held) = &rollout.held {
        return vec![Step::outside(Outside::CorrectPool, dotless(held))];
    }
    if rollout.paused.is_some() {
        let resume = ["dormer", "resume", "--pool", pool];
        return vec![Step::command("Continue the rollout", &resume)];
    }
    let ours = rollout.away.iter().find(|it| it.uid == machine.uid);
    if ours.is_some_and(|it| it.why == Unavailable::Cordoned) {
        let node = machine.node.as_deref().unwrap_or(&machine.name);
        let uncordon = ["kubectl", "uncordon", node];
        return vec![Step::command("Once it may be upgraded", &uncordon)];
    }
    match rollout.away.first() {
        Some(first) => {
            let why = ["dormer", "why", first.name.as_str()];
            vec![Step::command("See who is first", &why)]
        }
        None => vec![Step::nothing("Its turn comes by itself")],
    }
}

fn evicting(machine: &Machine) -> Vec<Step> {
    let blockers = machine.drain.as_ref().map(|drain| &drain.blockers);
    let Some(blocker) = blockers.and_then(|blockers| blockers.first()) else {
        return vec![Step::nothing("dormer continues by itself")];
    };
    let mut steps = Vec::new();
    if let Some((namespace, pod)) = blocker.pod.split_once('/')
        && !namespace.contains(' ')
    {
        let describe = ["kubectl", "-n", namespace, "describe", "pod", pod];
        steps.push(Step::command("See what holds the pod", &describe));
    }
    let say = format!("Let {} go: {}", blocker.pod, dotless(&blocker.why));
    steps.push(Step::outside(Outside::LetGo, say));
    let abort = ["dormer", "abort", machine.name.as_str()];
    steps.push(Step::command("Give the upgrade up", &abort).instead());
    steps
}

/// Kind of what mends a failure.
fn outside_of(code: &str) -> Outside {
    match code {
        "AuthRejected" => Outside::AcceptKey,
        "HostKeyChanged" => Outside::CompareHostKey,
        "ConnectTimeout" | "ConnectRefused" | "ConnectionLost" | "HandshakeFailed" | "NoAnswer" => {
            Outside::OpenSsh
        }
        "DiskFull" | "disk_full" => Outside::FreeDisk,
        "ClockSkew" | "clock_skew" => Outside::SetClock,
        "QuarantineSuspected" | "quarantine_suspected" => Outside::RestoreFile,
        "UnknownFile" | "ProfileUnusable" | "DocumentUnusable" | "Invalid" | "VersionNotHere"
        | "PayloadUnreadable" | "PayloadDamaged" | "PoolStopped" => Outside::CorrectPool,
        "BootstrapUnusable" | "Forbidden" => Outside::MendCluster,
        "NodeOverdue" | "NodeNotWindows" | "NodeIsControlPlane" | "NotItsNode"
        | "NotReadyOverdue" | "NameChanged" | "NameMismatch" => Outside::MendNode,
        _ => Outside::MendHost,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{failed_while, machine_in, rollout_with};
    use super::*;
    use dormer_proto::phase::Listed;
    use serde_json::json;

    fn lines(steps: &[Step]) -> Vec<String> {
        steps.iter().filter_map(Step::line).collect()
    }

    #[test]
    fn a_failed_machine_is_mended_outside_and_then_retried() {
        let machine = failed_while(MachinePhase::Probing, "AuthRejected", "no key fits");
        let steps = steps(&machine, None);
        assert_eq!(steps[0].outside, Some(Outside::AcceptKey.into()));
        assert_eq!(lines(&steps), ["dormer retry m", "dormer recreate m --yes"]);
        assert!(steps[2].instead);
    }

    #[test]
    fn a_changed_host_key_is_not_retried() {
        let machine = failed_while(MachinePhase::Probing, "HostKeyChanged", "another key");
        let steps = steps(&machine, None);
        assert_eq!(lines(&steps), ["dormer recreate m --yes"]);
        assert!(steps[0].say.contains("trust-host-key m "), "{steps:?}");
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
            }
        }
        assert!(Outside::ALL.len() <= 15, "generic actions on the world");
    }

    #[test]
    fn a_word_with_a_blank_is_quoted() {
        let step = Step::command("", &["dormer", "retry", "it's b"]);
        assert_eq!(step.line().as_deref(), Some("dormer retry 'it'\\''s b'"));
    }
}
