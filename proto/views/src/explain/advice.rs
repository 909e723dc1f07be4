//! Advice about a machine: one or two sentences, with commands.

use super::{dotless, trouble};
use crate::{
    machine::{HaltKind, Machine},
    rollout::Rollout,
};
use dormer_profile::answer::FailureCode;
use dormer_proto::phase::{MachinePhase, MachineState, Unavailable};

/// Machine data for advice.
pub(super) struct Advice<'a> {
    machine: &'a Machine,
    /// Name of the Machine for commands.
    name: &'a str,
    /// `kubectl -n NAMESPACE`.
    kubectl: String,
}

/// Next step for a person. `rollout` is that of the machine's pool, if it is known.
pub fn next_step(machine: &Machine, rollout: Option<&Rollout>) -> String {
    let advice = Advice::of(machine);
    let name = advice.name;
    if machine.state == MachineState::Gone {
        return "There is nothing left to do.".into();
    }
    if machine.status.quarantine.is_some() {
        return format!(
            "A newer build of dormer tries it once by itself. Otherwise mend the cause (docs/runbook.md, \
             DormerRunQuarantined); then: dormer unquarantine {name}."
        );
    }
    if machine.lacks.is_some() {
        return "Once that is mended, dormer continues by itself.".into();
    }
    if machine.neighbour.is_some() {
        // What it waits for says which one, where, and how to stop it.
        return "Once it has ended, dormer compares the host and continues by itself.".into();
    }
    if let (None, Some(refused)) = (&machine.halt, &machine.refused) {
        return refused.what_to_do.clone();
    }
    if let Some(halt) = &machine.halt {
        return if halt.kind == HaltKind::Ignored {
            format!(
                "To let dormer continue, remove that label: {} label machine {name} \
                 windowsmachineconfig.openshift.io/ignore-.",
                advice.kubectl
            )
        } else {
            format!("To let dormer continue: dormer resume {name}.")
        };
    }
    if machine.state == MachineState::Failed {
        return advice.failed();
    }
    advice.waits(rollout)
}

impl<'a> Advice<'a> {
    pub(super) fn of(machine: &'a Machine) -> Self {
        let kubectl = match machine.namespace.as_str() {
            "" => "kubectl".to_owned(),
            namespace => format!("kubectl -n {namespace}"),
        };
        Self {
            machine,
            name: &machine.name,
            kubectl,
        }
    }

    /// Remedy of a failure code, without a full stop.
    pub(super) fn cure(&self, code: &str) -> Option<&'static str> {
        cure(code)
    }

    /// Replacement of a Machine that does not serve yet.
    fn replaced(&self) -> String {
        format!(
            "{} delete machine {} makes its MachineSet create another",
            self.kubectl, self.name
        )
    }

    fn waits(&self, rollout: Option<&Rollout>) -> String {
        let name = self.name;
        let given_up = self.machine.given_up();
        if given_up
            && self.machine.phase == MachinePhase::AddressWait
            && self.machine.machine_error.is_some()
        {
            return format!(
                "The cloud has given the Machine up, and would refuse the next one for the same reason. Make room \
                 there (a quota), or correct what {} asks for; then {}.",
                self.owner(),
                self.replaced()
            );
        }
        if given_up && self.machine.phase != MachinePhase::Serving {
            return format!(
                "The cloud has given the Machine up for good: {}.",
                self.replaced()
            );
        }
        let Some(phase) = self.machine.phase.known() else {
            return self.by_itself();
        };
        match phase {
            MachinePhase::AddressWait => self.address(),
            MachinePhase::Probing | MachinePhase::Reprobing => format!(
                "dormer keeps trying. If it does not succeed, check in the cloud's console that the host runs, that \
                 sshd runs, and that port 22 is open to dormer in the security group and in the host's firewall. \
                 Or give the host up: {}.",
                self.replaced()
            ),
            MachinePhase::KeyWait => format!(
                "User data may not have run yet. If this lasts, dormer's private key does not belong to the public \
                 key in user data: {} get secret windows-user-data -o yaml shows that key. With the right key in \
                 place, {}.",
                self.kubectl,
                self.replaced()
            ),
            MachinePhase::NodeWait => self.no_node(),
            MachinePhase::ReadyWait | MachinePhase::Soaking => self.not_ready(),
            MachinePhase::Rebooting => format!(
                "A reboot takes some minutes. If it lasts longer, look at the host's screen in the cloud's console; \
                 dormer history {name} shows when the reboot was asked for."
            ),
            MachinePhase::ConvergingHost | MachinePhase::ConvergingNode => self.converging(),
            MachinePhase::PoolWait => format!(
                "The WindowsPool {0} in dormer's namespace has to be one that dormer can follow: kubectl describe \
                 windowspool -A shows what was refused.",
                self.machine.pool
            ),
            MachinePhase::ApprovalWait => format!("To allow its upgrade: dormer approve {name}."),
            MachinePhase::LeaseWait => self.lease(rollout),
            MachinePhase::OwnerWait => format!(
                "Nothing replaces a Machine without a MachineSet. Give it one, or choose the strategy InPlace: \
                 kubectl edit windowspool {} in dormer's namespace.",
                self.machine.pool
            ),
            MachinePhase::Drained => {
                format!("To return the Node to service: dormer resume {name}.")
            }
            MachinePhase::Evicting => self.evicting(),
            MachinePhase::Vanishing | MachinePhase::Leaving => format!(
                "Finalizers, lifecycle hooks and attached volumes keep a Machine from going: {} get machine {name} \
                 -o yaml and kubectl get volumeattachments show them. The machine API's controllers log the reason.",
                self.kubectl
            ),
            MachinePhase::ReplacementWait => self.replacement(),
            MachinePhase::Serving if self.machine.waiting_for.is_none() => {
                "There is nothing to do.".into()
            }
            MachinePhase::Serving => match &self.machine.not_compared {
                Some(failure) => self.not_compared(&failure.code),
                None => self.not_ready(),
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
            | MachinePhase::Gone => self.by_itself(),
        }
    }

    fn by_itself(&self) -> String {
        let name = self.name;
        format!("dormer continues by itself; dormer history {name} shows what was done.")
    }

    fn follow(&self) -> String {
        let name = self.name;
        format!("To follow it: dormer logs {name} -f.")
    }

    fn owner(&self) -> &str {
        self.machine.owner.as_deref().unwrap_or("its MachineSet")
    }

    /// Name of its Node or, before there is one, the expected name.
    pub(super) fn node(&self) -> &str {
        let awaited = || {
            let waits = self.machine.waiting_for.as_deref()?;
            waits.strip_prefix("the Node ")?.split_whitespace().next()
        };
        let node = self.machine.node.as_deref();
        node.or_else(awaited).unwrap_or("NODE")
    }

    fn address(&self) -> String {
        let owner = self.owner();
        if self.machine.machine_error.is_some() {
            return format!(
                "That is the cloud's answer: mend it there or in {owner}, then {}.",
                self.replaced()
            );
        }
        if self.creation_refused() {
            return format!(
                "That is the cloud's answer, and the machine API's controllers keep trying. Make room there (a quota, \
                 a subnet's addresses), or choose another size in {owner}; then {}.",
                self.replaced()
            );
        }
        format!(
            "The cloud is creating the host. If it lasts, {} describe machine {} shows what the machine API's \
             controllers report, such as a quota; {owner} asked for it.",
            self.kubectl, self.name
        )
    }

    /// Whether the provider's condition says that the instance could not be created.
    fn creation_refused(&self) -> bool {
        let conditions = self.machine.machine_conditions.iter();
        trouble::creation_refused(conditions.map(|it| it.kind.as_str()))
    }

    fn no_node(&self) -> String {
        let node = self.node();
        format!(
            "The kubelet runs and has to ask for a certificate in the name system:node:{node}. kubectl get csr shows \
             whether it did, and under which name. If the name is another one, let the host's name and the Machine's \
             agree, and {}. If there is no request, the kubelet's log on the host says why.",
            self.replaced()
        )
    }

    /// Its Node serves, or does not; what is wanted of its host waits until that can be looked at.
    fn not_compared(&self, code: &str) -> String {
        let name = self.name;
        let cure = cure(code).unwrap_or("Mend the cause");
        format!(
            "{cure}. dormer tries again every 10 minutes, and replaces no Machine for that. To replace it all the same: \
             dormer recreate {name}."
        )
    }

    fn not_ready(&self) -> String {
        let node = self.node();
        format!("To see what the Node lacks: kubectl describe node {node}.")
    }

    fn converging(&self) -> String {
        let mut failures = self
            .machine
            .tasks
            .iter()
            .filter_map(|it| it.failure.as_ref());
        match failures.find_map(|failure| cure(&failure.code)) {
            Some(cure) => format!("{cure}. dormer tries again by itself. {}", self.follow()),
            None => format!("dormer continues by itself. {}", self.follow()),
        }
    }

    /// Holder of the lease, blocker of the next grant, and where to look.
    fn lease(&self, rollout: Option<&Rollout>) -> String {
        let pool = &self.machine.pool;
        let details = format!("Details: dormer describe rollout {pool}.");
        let Some(rollout) = rollout else {
            return details;
        };
        if let Some(halted) = &rollout.halted {
            return format!(
                "The rollout is halted: {}. Mend that first. {details}",
                dotless(halted)
            );
        }
        if let Some(held) = &rollout.held {
            return format!("No lease is granted: {}. {details}", dotless(held));
        }
        if let Some(paused) = &rollout.paused {
            return format!(
                "The rollout is paused by {}. To continue it: dormer resume --pool {pool}.",
                dotless(paused)
            );
        }
        let ours = rollout.away.iter().find(|it| it.uid == self.machine.uid);
        if ours.is_some_and(|it| it.why == Unavailable::Cordoned) {
            let node = self.machine.node.as_deref().unwrap_or(self.name);
            return format!(
                "Somebody else cordoned its Node: dormer takes no such Node, and it counts against the limit meanwhile. \
                 Once it may be upgraded: kubectl uncordon {node}. {details}"
            );
        }
        let away: Vec<&str> = rollout
            .away
            .iter()
            .take(3)
            .map(|it| it.name.as_str())
            .collect();
        match (away.first(), &rollout.waiting_for) {
            (None, None) => format!("It is next. {details}"),
            (None, Some(waits)) => {
                format!("The next lease waits for {}. {details}", dotless(waits))
            }
            (Some(first), _) => format!(
                "Machines are upgraded one after the other; {} comes first. How far it is: dormer why {first}. {details}",
                away.join(", ")
            ),
        }
    }

    fn evicting(&self) -> String {
        let name = self.name;
        let drain = self.machine.drain.as_ref();
        let Some(blocker) = drain.and_then(|drain| drain.blockers.first()) else {
            return format!("dormer continues by itself. {}", self.follow());
        };
        let look = match blocker.pod.split_once('/') {
            Some((namespace, pod)) if !namespace.contains(' ') => {
                if blocker.why.contains("inalizer") {
                    format!("kubectl -n {namespace} get pod {pod} -o yaml shows what holds it")
                } else if blocker.why.contains("udget") {
                    format!(
                        "kubectl -n {namespace} describe pod {pod} and kubectl -n {namespace} get poddisruptionbudget \
                         show what holds it"
                    )
                } else {
                    format!("kubectl -n {namespace} describe pod {pod} shows what holds it")
                }
            }
            _ => format!(
                "dormer logs {name} shows each pass, and kubectl describe node {} whether the node answers",
                self.node()
            ),
        };
        format!(
            "{look}. Once that is mended, the drain continues by itself. To give the upgrade up: dormer abort {name}."
        )
    }

    fn replacement(&self) -> String {
        let owner = self.owner();
        format!(
            "Another Machine of {owner} has to serve in its place: dormer get machines lists it, and dormer why says \
             what it waits for. If there is none, or it gets no address, the cloud may have no room: {} describe \
             machineset {}.",
            self.kubectl,
            owner.rsplit('/').next().unwrap_or(owner)
        )
    }

    fn failed(&self) -> String {
        let name = self.name;
        if self.machine.given_up() {
            return format!(
                "The cloud has given the Machine up, and a retry does not change that: {}.",
                self.replaced()
            );
        }
        let failure = self.machine.failure.as_ref();
        let no_node = failure.is_some_and(|failure| failure.phase == MachinePhase::NodeWait);
        if no_node && self.machine.certificate_refused.is_some() {
            return format!(
                "See the request: kubectl describe csr. dormer approves only a request that names this machine and \
                 nothing else. Once the kubelet asks for the right thing: dormer retry {name}. Or replace the machine: \
                 dormer recreate {name}."
            );
        }
        let cure = failure.and_then(|failure| cure(&failure.code));
        let cure = cure.unwrap_or("Mend the cause");
        if failure.is_some_and(|failure| failure.code == "HostKeyChanged") {
            // A retry would meet the same key. Trust in the new key continues the failed step.
            let cure = cure.replace("MACHINE", name);
            return format!("{cure}. Or replace it: dormer recreate {name}.");
        }
        format!("{cure}. Then: dormer retry {name}. Or replace it: dormer recreate {name}.")
    }
}

/// Remedy of a failure code, without a full stop. `None`: only the message can say.
fn cure(code: &str) -> Option<&'static str> {
    Some(match code {
        "AuthRejected" => {
            "Let the host accept dormer's key: the user, the public key in its user data, and \
             administrators_authorized_keys open to Administrators and SYSTEM alone"
        }
        "HostKeyChanged" => {
            "Find out why the host shows another key. If it was rightfully reinstalled, compare its key on the host itself \
             and trust it: dormer trust-host-key MACHINE --fingerprint SHA256:… --why TEXT. The step then continues. If \
             not, the connection may be intercepted"
        }
        "ConnectTimeout" | "ConnectRefused" | "ConnectionLost" | "HandshakeFailed" | "NoAnswer" => {
            "Check that the host runs, that sshd runs, and that port 22 is open to dormer"
        }
        "SftpUnusable" => {
            "Let no profile of the host's default shell write anything: SFTP shares its output"
        }
        "SftpMissing" => "Give sshd_config on the host its line Subsystem sftp",
        "DiskFull" => "Free space on the host's disk C:, or give the Machine a larger one",
        "ClockSkew" => "Set the host's clock: w32tm /resync on the host",
        "NameChanged" => {
            "Give the host its name back; a Machine whose host is to be another node has to be recreated"
        }
        "NameMismatch" => "Let the Machine's name and the host's agree",
        "NoFrame" | "OutputEndless" => {
            "Look at the host by hand: something ends commands there, or writes into their output"
        }
        "QuarantineSuspected" => {
            "Restore the file in the host's virus scanner and exclude dormer's folder there"
        }
        "ProgramBlockedByAppLocker" => {
            "Allow dormer-host.exe in AppLocker for administrators, by its publisher or its hash; the default rules allow all \
             of C:\\Windows"
        }
        "ProgramBlockedByWdac" => {
            "Add dormer-host.exe to the host's application control policy, by its hash or its publisher"
        }
        "ProgramQuarantined" => {
            "Restore dormer-host.exe in the host's virus scanner and exclude C:\\Windows\\dormer\\bin there"
        }
        "ProgramForOtherProcessor" => {
            "Take the Machine out of the pool: dormer-host.exe runs on x86-64 alone"
        }
        "UnknownFile" | "ProfileUnusable" | "DocumentUnusable" | "Invalid" => {
            "Correct the profile: dormer profile render shows what it makes"
        }
        "VersionNotHere" | "PayloadUnreadable" | "PayloadDamaged" => {
            "Install the payload anew: dormer payload verify shows what is wrong with it"
        }
        "BootstrapUnusable" => {
            "Mend what the message names: kubelets ask for their first certificate with it"
        }
        "Forbidden" => "Grant dormer's ServiceAccount what the message names",
        "NodeOverdue" => {
            "See with kubectl get csr under which name the kubelet asked, and read the kubelet's log on the host"
        }
        "NodeNotWindows" | "NodeIsControlPlane" | "NotItsNode" => {
            "Find out which host has the Node's name: compare kubectl get node -o yaml with the Machine's nodeRef and \
             providerID"
        }
        "NodeDownTooShort" => {
            "Wait until the Node has not been Ready for the pool's repairAfter: before that it is repaired only within the \
             limit"
        }
        "PoolStopped" => "End the stop of the pool: kubectl edit windowspool in dormer's namespace",
        "NotReadyOverdue" => "See what the Node lacks: kubectl describe node",
        "RebootOverdue" => {
            "Look at the host's screen in the cloud's console, and end what keeps it from restarting"
        }
        "RebootLoop" => "Find what asks for a reboot again and again: dormer history names it",
        program => FailureCode::ALL
            .iter()
            .find(|known| known.as_str() == program)
            .map(|known| dotless(known.advice()))?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{failed_while, machine_in, rollout_with};
    use super::*;
    use crate::{machine::Halt, run::TaskFailure};
    use serde_json::json;

    #[test]
    fn each_phase_has_its_own_next_step() {
        let step = |phase| next_step(&machine_in(phase), None);
        assert!(step(MachinePhase::Serving).contains("nothing to do"));
        assert!(step(MachinePhase::ApprovalWait).contains("dormer approve m"));
        assert!(step(MachinePhase::LeaseWait).contains("describe rollout windows"));
        assert!(step(MachinePhase::Undoing).contains("by itself"));
        let paused = Machine {
            halt: Some(Halt {
                kind: HaltKind::Paused.into(),
                by: Some("x".into()),
                text: "paused by x".into(),
            }),
            ..machine_in(MachinePhase::Rebooting)
        };
        assert!(next_step(&paused, None).contains("dormer resume m"));
    }

    #[test]
    fn a_machine_that_is_left_to_another_operator_needs_no_resume() {
        let machine = Machine {
            neighbour: Some("the Windows Machine Config Operator runs (Pod wmco/w-1)".into()),
            ..machine_in(MachinePhase::LeaseWait)
        };
        let step = next_step(&machine, None);
        assert!(step.contains("Once it has ended"), "{step}");
        assert!(!step.contains("dormer resume"), "{step}");
    }

    #[test]
    fn advice_for_a_waiting_machine_names_the_lease_holder_and_the_obstacle() {
        let machine = machine_in(MachinePhase::LeaseWait);
        let advice_of = |fields| next_step(&machine, Some(&rollout_with(fields)));
        let away = json!([{"uid": "n", "name": "n", "why": "holds"}]);
        assert!(advice_of(json!({ "away": away })).contains("dormer why n"));
        let halted = advice_of(json!({"halted": "n failed."}));
        assert!(
            halted.contains("halted: n failed. Mend that first."),
            "{halted}"
        );
        assert!(advice_of(json!({"paused": "ann"})).contains("dormer resume --pool windows"));
    }

    #[test]
    fn a_host_that_cannot_be_compared_has_its_cure_and_a_last_resort() {
        let machine = Machine {
            waiting_for: Some("10.0.0.9 to be compared: no key fits (AuthRejected)".into()),
            not_compared: Some(TaskFailure {
                code: "AuthRejected".into(),
                message: "no key fits".into(),
            }),
            ..machine_in(MachinePhase::Serving)
        };
        let advice = next_step(&machine, None);
        assert!(
            advice.starts_with("Let the host accept dormer's key"),
            "{advice}"
        );
        assert!(advice.ends_with("dormer recreate m."), "{advice}");
    }

    #[test]
    fn a_node_that_was_down_too_short_is_waited_for() {
        let said = "the Node m has been as it is, not Ready, for 20 s";
        let machine = failed_while(MachinePhase::Opening, "NodeDownTooShort", said);
        let advice = next_step(&machine, None);
        assert!(advice.contains("the pool's repairAfter"), "{advice}");
        assert!(advice.contains("Then: dormer retry m."), "{advice}");
    }

    #[test]
    fn the_host_programs_own_failures_have_their_advice() {
        let machine = failed_while(
            MachinePhase::ConvergingHost,
            "access_denied",
            "Access is denied.",
        );
        let advice = next_step(&machine, None);
        let cure = "The SSH user must be an administrator of the host. Then: dormer retry m.";
        assert!(advice.starts_with(cure), "{advice}");
    }
}
