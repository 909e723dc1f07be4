//! What a person may do next about a machine: one or two sentences, each with a command.

use dormer_profile::answer::FailureCode;
use serde_json::Value;

/// A word of an answer, if it says something.
pub fn word<'a>(thing: &'a Value, key: &str) -> Option<&'a str> {
    thing[key].as_str().filter(|text| !text.is_empty())
}

/// A machine, as far as advice needs it.
struct On<'a> {
    machine: &'a Value,
    name: &'a str,
    /// `kubectl -n NAMESPACE`, as a person types it.
    kubectl: String,
}

/// What a person may do next; `rollout` is the machine's pool's, if it is known.
pub fn next_step(machine: &Value, rollout: Option<&Value>) -> String {
    let name = word(machine, "name").unwrap_or("MACHINE");
    let kubectl = word(machine, "namespace").map_or_else(
        || "kubectl".to_owned(),
        |namespace| format!("kubectl -n {namespace}"),
    );
    let on = On {
        machine,
        name,
        kubectl,
    };
    let state = word(machine, "state").unwrap_or_default();
    let phase = word(machine, "phase").unwrap_or_default();
    match (state, word(machine, "halted")) {
        ("Gone", _) => "Nothing is left to do.".into(),
        (_, Some(halted)) if halted.starts_with("hands off") => format!(
            "To go on, take that label off: {} label machine {name} \
             windowsmachineconfig.openshift.io/ignore-.",
            on.kubectl
        ),
        (_, Some(_)) => format!("To go on: dormer resume {name}."),
        ("Failed", _) => on.failed(),
        _ => on.waits(phase, rollout),
    }
}

impl On<'_> {
    fn says(&self, key: &str) -> Option<&str> {
        word(self.machine, key)
    }

    /// Another Machine in its place, for one that serves nobody yet.
    fn replaced(&self) -> String {
        format!(
            "{} delete machine {} has its MachineSet make another",
            self.kubectl, self.name
        )
    }

    fn waits(&self, phase: &str, rollout: Option<&Value>) -> String {
        let name = self.name;
        let given_up = self.says("machinePhase") == Some("Failed");
        if given_up && phase == "waiting for an address" && self.says("machineError").is_some() {
            return format!(
                "The cloud has given the Machine up, and would give up the next one alike: make room there (a quota), \
                 or mend what {} asks for; then {}.",
                self.says("owner").unwrap_or("its MachineSet"),
                self.replaced()
            );
        }
        if given_up && phase != "serving" {
            return format!(
                "The cloud has given the Machine up, and it stays so: {}.",
                self.replaced()
            );
        }
        match phase {
            "waiting for an address" => self.address(),
            "probing" | "probing the torn-down host" => format!(
                "dormer goes on trying. If it stays so, see in the cloud's console that the host runs, \
                 that sshd does, and that port 22 is open to dormer in the security group and in the \
                 host's firewall; or give it up: {}.",
                self.replaced()
            ),
            "waiting for the key to be accepted" => format!(
                "User data may not have run yet. If it stays so, the private key that dormer has does not \
                 belong to the public key in user data: {} get secret windows-user-data -o yaml shows the \
                 one; {} with the right one.",
                self.kubectl,
                self.replaced()
            ),
            "waiting for the Node" => self.no_node(),
            "waiting for Ready" | "soaking" => self.not_ready(),
            "rebooting" => format!(
                "A reboot takes some minutes. If it stays so, look at the host's screen in the cloud's \
                 console; dormer history {name} tells when it was asked for."
            ),
            "converging the host" | "converging the node" => self.converging(),
            "waiting for the pool's settings" => format!(
                "The ConfigMap dormer-pool-{} in dormer's namespace has to be there and right: \
                 kubectl describe configmap -A dormer-pool-{} shows what was refused.",
                self.pool(),
                self.pool()
            ),
            "waiting for approval" => format!("To let it be upgraded: dormer approve {name}."),
            "waiting for the lease" => self.lease(rollout),
            "waiting for an owner" => format!(
                "A Machine without a MachineSet is not replaced: give it one, or choose the strategy \
                 in-place: kubectl edit configmap dormer-pool-{} in dormer's namespace.",
                self.pool()
            ),
            "drained" => format!("To give the node back: dormer resume {name}."),
            "evicting" => self.evicting(),
            "waiting for the Machine to be gone" | "being deleted by somebody else" => format!(
                "Finalizers and lifecycle hooks hold a Machine, and volumes that are still attached: {} get \
                 machine {name} -o yaml and kubectl get volumeattachments show them; the machine API's \
                 controllers log why.",
                self.kubectl
            ),
            "waiting for the replacement" => self.replacement(),
            "serving" if self.says("waitingFor").is_none() => "There is nothing to do.".into(),
            "serving" => self.not_ready(),
            _ => format!("dormer goes on by itself; dormer history {name} tells what was done."),
        }
    }

    fn pool(&self) -> &str {
        self.says("pool").unwrap_or("windows")
    }

    /// Its Node; before there is one, the name that is waited for.
    fn node(&self) -> &str {
        let awaited = || {
            let waits = self.says("waitingFor")?.strip_prefix("the Node ")?;
            waits.split_whitespace().next()
        };
        self.says("node").or_else(awaited).unwrap_or("NODE")
    }

    fn address(&self) -> String {
        let owner = self.says("owner").unwrap_or("its MachineSet");
        match self.says("machineError") {
            Some(_) => format!(
                "That is the cloud's answer: mend it there or in {owner}, then {}.",
                self.replaced()
            ),
            None if self.refused() => format!(
                "That is the cloud's answer, and the machine API's controllers go on trying: make room there (a \
                 quota, a subnet's addresses), or choose another size in {owner}, then {}.",
                self.replaced()
            ),
            None => format!(
                "The cloud makes it. If it stays so: {} describe machine {} tells what the machine API's \
                 controllers say, a quota among it; {owner} asked for it.",
                self.kubectl, self.name
            ),
        }
    }

    /// The provider's condition says that the instance could not be made.
    fn refused(&self) -> bool {
        let listed = self.machine["machineConditions"]
            .as_array()
            .into_iter()
            .flatten();
        listed
            .filter_map(|it| word(it, "kind"))
            .any(|kind| kind.starts_with("MachineCreat"))
    }

    fn no_node(&self) -> String {
        let node = self.node();
        format!(
            "Its kubelet runs and has to ask for certificates in the name system:node:{node}: kubectl get csr \
             shows whether it did, and under which name. Under another name, let the host's name and the \
             Machine's agree, and {}; if there is none, kubelet's log on the host says why.",
            self.replaced()
        )
    }

    fn not_ready(&self) -> String {
        format!(
            "What the Node lacks: kubectl describe node {}.",
            self.node()
        )
    }

    fn converging(&self) -> String {
        let name = self.name;
        let failing = self.machine["tasks"].as_array().into_iter().flatten();
        let code = failing
            .filter_map(|task| word(&task["failure"], "code"))
            .next();
        match code.and_then(cure) {
            Some(cure) => {
                format!("{cure}. It is tried again by itself; follow it: dormer logs {name} -f.")
            }
            None => format!("It goes on by itself. Follow it: dormer logs {name} -f."),
        }
    }

    /// Who has it, what stops the next grant, and where to look.
    fn lease(&self, rollout: Option<&Value>) -> String {
        let hint = format!("dormer describe rollout {} shows it", self.pool());
        let Some(rollout) = rollout else {
            return format!("Who has the lease: {hint}.");
        };
        if let Some(halted) = word(rollout, "halted") {
            return format!(
                "The rollout is halted: {}; mend that first ({hint}).",
                dotless(halted)
            );
        }
        if let Some(paused) = word(rollout, "paused") {
            let pool = self.pool();
            return format!(
                "The rollout is paused: {}. To go on: dormer resume --pool {pool}.",
                dotless(paused)
            );
        }
        let away: Vec<&str> = rollout["away"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| word(it, "name"))
            .take(3)
            .collect();
        match (away.as_slice(), word(rollout, "waitingFor")) {
            ([], None) => format!("Its turn comes: {hint}."),
            ([], Some(waits)) => format!("The next grant waits for {} ({hint}).", dotless(waits)),
            (away, _) => format!(
                "One at a time: {} comes first; dormer why {} tells how far it is ({hint}).",
                away.join(", "),
                away[0]
            ),
        }
    }

    fn evicting(&self) -> String {
        let name = self.name;
        let Some(reason) = self.says("reason") else {
            return format!("It goes on by itself. Follow it: dormer logs {name} -f.");
        };
        let pod = reason.split(" (").next().unwrap_or_default();
        let hint = match pod.split_once('/') {
            Some((namespace, pod)) if !namespace.contains(' ') => {
                let what = if reason.contains("inalizer") {
                    "get pod"
                } else {
                    "describe pod"
                };
                let yaml = if reason.contains("inalizer") {
                    " -o yaml"
                } else {
                    ""
                };
                let hint = format!("kubectl -n {namespace} {what} {pod}{yaml}");
                if reason.contains("udget") {
                    format!(
                        "{hint} and kubectl -n {namespace} get poddisruptionbudget show what holds it"
                    )
                } else {
                    format!("{hint} shows what holds it")
                }
            }
            _ => format!(
                "dormer logs {name} shows each pass, and kubectl describe node {} whether the node answers",
                self.node()
            ),
        };
        format!(
            "{hint}; mend that and it goes on by itself, or give the upgrade up: dormer abort {name}."
        )
    }

    fn replacement(&self) -> String {
        let owner = self.says("owner").unwrap_or("its MachineSet");
        format!(
            "Another Machine of {owner} has to serve in its place: dormer get machines shows it, and dormer why \
             what it waits for. If there is none, or it gets no address, the cloud may have no room: \
             {} describe machineset {}.",
            self.kubectl,
            owner.rsplit('/').next().unwrap_or(owner)
        )
    }

    fn failed(&self) -> String {
        let name = self.name;
        if self.says("machinePhase") == Some("Failed") {
            return format!(
                "The cloud has given the Machine up, and a retry does not mend it: {}.",
                self.replaced()
            );
        }
        let reason = self.says("reason").unwrap_or_default();
        if reason.contains("certificate request was not approved") {
            return format!(
                "Look at the request with kubectl describe csr: dormer approves only what names this machine \
                 and nothing else. When its kubelet asks for the right thing: dormer retry {name}. Or replace \
                 it: dormer recreate {name}."
            );
        }
        let code = reason.split_whitespace().next();
        let cure = code.and_then(cure).unwrap_or("Mend the cause");
        format!("{cure}; then: dormer retry {name}. Or replace it: dormer recreate {name}.")
    }
}

fn dotless(text: &str) -> &str {
    text.trim_end_matches('.')
}

/// What mends a failure of this code, without a full stop. `None`: its message has to say.
fn cure(code: &str) -> Option<&'static str> {
    Some(match code {
        "AuthRejected" => {
            "Let the host accept dormer's key: the user, the public key in its user data, and \
             administrators_authorized_keys open to Administrators and SYSTEM alone"
        }
        "HostKeyChanged" => {
            "Find out why the host shows another key: if it was reinstalled, recreate the Machine; if not, \
             somebody may stand between"
        }
        "ConnectTimeout" | "ConnectRefused" | "ConnectionLost" | "HandshakeFailed" | "NoAnswer" => {
            "See that the host runs, that sshd does, and that port 22 is open to dormer"
        }
        "SftpUnusable" => {
            "Let no profile of the host's default shell write anything: SFTP shares its output"
        }
        "SftpMissing" => "Let sshd_config on the host have its Subsystem sftp line",
        "DiskFull" => "Make room on the host's disk C:, or give the Machine a larger one",
        "ClockSkew" => "Set the host's clock: w32tm /resync on the host",
        "NameMismatch" => "Let the Machine's name and the host's agree",
        "NoFrame" | "OutputEndless" => {
            "Run PowerShell on the host by hand: something ends it, or writes into its output"
        }
        "QuarantineSuspected" => {
            "Restore the file in the virus scanner of the host and exclude dormer's folder there"
        }
        "UnknownFile" | "ProfileUnusable" | "DocumentUnusable" | "Invalid" => {
            "Mend the profile: dormer profile render shows what it makes"
        }
        "VersionNotHere" | "PayloadUnreadable" | "PayloadDamaged" => {
            "Install the payload anew: dormer payload verify shows what is wrong with it"
        }
        "BootstrapUnusable" => {
            "Mend what the message names: by it kubelets ask for their first certificate"
        }
        "Forbidden" => "Grant dormer's ServiceAccount what the message names",
        "NodeOverdue" => {
            "See with kubectl get csr under which name its kubelet asked, and look at kubelet's log on the host"
        }
        "NotReadyOverdue" => "See with kubectl describe node what the Node lacks",
        "RebootOverdue" => {
            "Look at the host's screen in the cloud's console, and end what keeps it up"
        }
        "RebootLoop" => "Find what asks for a reboot again and again: dormer history names it",
        script => FailureCode::ALL
            .iter()
            .find(|known| known.as_str() == script)
            .map(|known| known.advice())?
            .trim_end_matches('.'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn next(machine: Value) -> String {
        next_step(&machine, None)
    }

    #[test]
    fn each_kind_of_standstill_has_its_own_next_step() {
        let step = |state: &str, phase: &str, halted: Option<&str>| {
            next(json!({"name": "m", "state": state, "phase": phase, "halted": halted}))
        };
        assert!(step("Joined", "serving", None).contains("nothing to do"));
        assert!(step("Joined", "waiting for approval", None).contains("dormer approve m"));
        assert!(step("Joined", "waiting for the lease", None).contains("describe rollout windows"));
        assert!(step("Reachable", "rebooting", Some("paused by x")).contains("dormer resume m"));
        assert!(step("Draining", "undoing", None).contains("by itself"));
    }

    #[test]
    fn advice_for_a_waiting_machine_names_the_lease_holder_and_the_obstacle() {
        let machine = json!({"name": "m", "state": "Joined", "phase": "waiting for the lease"});
        let advice_of = |rollout: Value| next_step(&machine, Some(&rollout));
        assert!(advice_of(json!({"away": [{"name": "n"}]})).contains("dormer why n"));
        assert!(
            advice_of(json!({"halted": "n failed."})).contains("halted: n failed; mend that first")
        );
        assert!(advice_of(json!({"paused": "by ann"})).contains("dormer resume --pool windows"));
    }

    #[test]
    fn the_scripts_own_failures_have_their_advice() {
        let reason = "access_denied while converging the host: Access is denied.";
        let advice_of =
            next(json!({"name": "m", "state": "Failed", "phase": "failed", "reason": reason}));
        assert!(advice_of.starts_with(
            "The SSH user must be an administrator of the host; then: dormer retry m"
        ));
    }
}
