//! Cures of failures by their codes: what a person does outside of dormer.

use super::{
    dotless,
    step::Outside::{
        self, CompareHostKey, CorrectPool, FreeDisk, MakeRoom, MendCluster, MendHost, MendNode,
        RestoreFile, SetClock,
    },
};
use dormer_profile::answer::FailureCode;
use dormer_proto::code;

/// Cure of a failure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cure {
    /// Kind of the action.
    pub(super) outside: Outside,
    /// The same in words, without a full stop.
    pub(super) say: &'static str,
}

const fn cured(outside: Outside, say: &'static str) -> Cure {
    Cure { outside, say }
}

/// Cure of a service whose log is shown.
pub(super) const LOG_NAMES_WHY: &str = "Fix the error at the end of the log";
/// Cure of a failure without an entry: only its message can say more.
pub(super) const UNKNOWN: Cure = cured(Outside::MendHost, "Mend the cause");
pub(super) const OPEN_SSH: Cure = cured(
    Outside::OpenSsh,
    "Check that the host runs (the cloud's console shows it), that its sshd runs, and that the security group and the \
     host's firewall let dormer reach its SSH port (--ssh-port, 22 by default)",
);
pub(super) const ACCEPT_KEY: Cure = cured(
    Outside::AcceptKey,
    "Make the host accept dormer's key: check the user, the public key in the user data (which may not have run yet), and \
     that only Administrators and SYSTEM can access administrators_authorized_keys",
);
pub(super) const SCREEN_SHOWS_WHY: Cure = cured(
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
        &["SshAgentUnusable"],
        cured(
            MendCluster,
            "Start the SSH agent that has the key of the Windows hosts, and see with ssh-add -l that it holds the key: it may be \
             locked (ssh-add -X)",
        ),
    ),
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
            "Compare the Machine's status.addresses with the host's address. Once it is the host's own, the next order names it. \
             An order that names another host again and again is old, or forged",
        ),
    ),
    (
        &["MachineNotWindows"],
        cured(
            MendCluster,
            "Compare the Machine's labels with those of its MachineSet's template: dormer logs in to Windows machines alone",
        ),
    ),
    (
        &["MachineGone"],
        cured(
            MendCluster,
            "Check that the Machine is there: without it there is no host to change",
        ),
    ),
    (
        &["SftpUnusable"],
        cured(
            MendHost,
            "Make the profile scripts of the host's default shell print nothing: their text mixes with what SFTP sends",
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
            "Give the host its name back; or, if the new name is wanted, recreate the Machine",
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
            "Find the program on the host that kills commands or prints into their output",
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
             delete the old Node",
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
            "End the stop of the pool: set spec.stop of its WindowsPool to false",
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
        &["MachineWithoutOwner"],
        cured(
            CorrectPool,
            "Give the Machine a MachineSet, or choose the strategy InPlace in its WindowsPool: nothing replaces a Machine \
             without a MachineSet",
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
            "Find out who writes the label: managedFields names the program. A restart of the kubelet writes what the host is",
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
            "Find out which controller should remove or set the taint. The cloud controller manager removes \
             node.cloudprovider.kubernetes.io/uninitialized. Nothing but a person removes node.kubernetes.io/out-of-service",
        ),
    ),
    (
        &["NoServingCertificate"],
        cured(
            MendNode,
            "Find out why the kubelet's request for a serving certificate was not approved or not signed. Open port 10250 of the \
             host to dormer and to the API server",
        ),
    ),
    (
        &["DaemonSetPodNotReady"],
        cured(
            MendNode,
            "Mend the named pods. A DaemonSet for Linux alone needs the node selector kubernetes.io/os: linux",
        ),
    ),
    (
        &["NotSettled"],
        cured(
            MendNode,
            "Find out why the Node does not stay Ready: its conditions, and the kubelet's log on the host",
        ),
    ),
    (
        &["CanaryNotScheduled", "CanaryNotStarted"],
        cured(
            MendNode,
            "Give the canary pod what its Events name. The node has to get the image that `canary` of payload.yaml names, from \
             its registry or a mirror of it",
        ),
    ),
    (
        &[
            "NoNodeToPod",
            "NoServiceIp",
            "NoServiceDns",
            "NoPodToPod",
            "NoNodePort",
            "NoOutbound",
        ],
        cured(
            MendNode,
            "Check the node's network: the CNI's and kube-proxy's logs on the host, and the networks and endpoints of HNS. The \
             pod tries on: lastState.terminated.message of its containers has the latest error",
        ),
    ),
    (
        &["NodeCheckFailed", "NoLogs", "NoExec"],
        cured(
            MendNode,
            "See which check fails: dormer verify NODE runs all of them",
        ),
    ),
    (
        &["NotReadyOverdue"],
        cured(MendNode, "Mend what its conditions name"),
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

/// Every code with a cure.
#[cfg(test)]
pub(super) fn codes() -> impl Iterator<Item = &'static str> {
    CURES.iter().flat_map(|(codes, _)| codes.iter().copied())
}

/// Cure of a failure code. `None`: only the message can say.
pub(super) fn cure(code: &str) -> Option<Cure> {
    let mut rows = CURES.iter();
    let is = |known: &&str| code::same(known, code);
    let row = rows.find(|(codes, _)| codes.iter().any(is));
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
    let code = code_of_host(code)?;
    let outside = match code {
        // The earlier call ends by itself.
        FailureCode::HostBusy => return None,
        _ => MendHost,
    };
    Some(cured(outside, dotless(code.advice())))
}

/// Codes that dormer's own steps have as well, with messages that say all.
const OF_OURS: [FailureCode; 2] = [FailureCode::ClockSkew, FailureCode::DiskFull];

/// Code of the host program alone, in either style.
pub(super) fn code_of_host(code: &str) -> Option<FailureCode> {
    let mut codes = FailureCode::ALL.into_iter();
    codes.find(|known| !OF_OURS.contains(known) && code::same(&known.as_str(), code))
}
