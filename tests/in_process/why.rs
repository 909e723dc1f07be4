//! Output of `dormer why` for each fault that stops or slows a machine, made from the state that the fault leads to:
//! `tests/why.txt`, for review as text. The codes and messages are those that workers report of the simulated faults.

use dormer_api::{live::Live, views};
use dormer_engine_core::{Entered, OpenTask, RetryPolicy, Run, TaskKey, TaskPhase};
use dormer_fleet::Fault;
use dormer_proto::{
    checks::{CheckName, CheckResult, NodeCheck},
    id::{Attempt, LeaseToken, RunId, Seq, Sum, Timestamp},
    machine::{
        Blocker, ConditionFact, CsrFact, ForeignNode, HostRef, MachineFact, MachineRef, NodeFact,
        OTHER_NAME, OTHER_NAME_POSSIBLE, OWN_REQUEST, Owner, Section, Task,
    },
    message::{Failure, Heartbeat},
    other_operator::OtherOperator,
    pool::{Desired, PoolSettings},
};
use dormer_views::{
    explain::{Explanation, LastFailure, explanation, paragraph},
    machine::Machine,
    moment::Moment,
    rollout::Rollout,
    run::TaskFailure,
};
use dormer_workers::kubernetes::operators;
use dormer_workflows::{
    Dormer,
    machine::{
        Change, ChangeStrategy, Csr, Drain, Host, Lease, LeasedRequest, Phase, RequestProgress,
        Retried, State,
    },
};
use expect_test::expect_file;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Ten minutes past eight, UTC, and the moment at which the state was entered: eight minutes before.
const NOW: Timestamp = Timestamp(1_795_421_400_000);
const ENTERED: Timestamp = Timestamp(NOW.0 - 480_000);
/// Faults that dormer gets over by itself, within seconds or a few attempts, and of which nothing stays to be asked
/// about.
const GOT_OVER: &[&str] = &[
    "shell-varies",
    "program-vanishes",
    "drop-during-script",
    "feature-needs-reboot",
    "reboot-in-install",
    "hns-kills-ssh",
    "csr-wrong-user",
    "machine-events-repeat",
    "same-name-new-uid",
    "watch-gone",
    "uncordoned",
    "holder-dies",
    "late-renewal",
    "power-off",
    "code-page-850",
    "max-startups",
    "fast-reboot",
    "reboots-by-itself",
    "old-bom",
    "children-die",
    "route-lost",
    "csr-twice",
    "csr-approved-before",
    "partition",
    "provider-id-case",
    "relabelled",
    "etcd-restored",
    "forged-mark",
];

/// A machine in trouble, as the API shows it, and its rollout if that matters.
struct Trouble {
    machine: Machine,
    rollout: Option<Rollout>,
    last: Option<LastFailure>,
}

/// A machine that stands in `phase`.
fn state_in(phase: Phase) -> State {
    let machine = MachineRef {
        namespace: "openshift-machine-api".into(),
        name: "win-a".into(),
        uid: "uid-a".into(),
        ..MachineRef::default()
    };
    let owner = Owner {
        kind: "MachineSet".into(),
        name: "windows".into(),
        uid: "uid-set".into(),
    };
    let desired = Desired {
        version: "11.0.0-9fc46aca439d".into(),
        payload: "11.0.0".into(),
    };
    State {
        phase,
        machine: Some(MachineFact {
            machine,
            phase: Some("Provisioned".into()),
            addresses: vec!["10.0.0.9".into()],
            owner: Some(owner),
            ..MachineFact::default()
        }),
        pool: Some(PoolSettings {
            desired: [("*".to_owned(), desired)].into(),
            ..PoolSettings::default()
        }),
        host: Host {
            node_name: Some("win-a.ec2.internal".into()),
            ..Host::default()
        },
        ..State::default()
    }
}

/// One that served with the version before, and is being replaced.
fn serving(phase: Phase) -> State {
    let node = NodeFact {
        name: "win-a.ec2.internal".into(),
        ready: true,
        ..NodeFact::default()
    };
    let mut state = state_in(phase);
    if let Some(machine) = &mut state.machine {
        machine.phase = Some("Running".into());
    }
    let version = Some("10.9.0-37cb91f94d5f".into());
    State {
        node: Some(node),
        version,
        in_service: true,
        lease: Lease::Wanted,
        ..state
    }
}

fn failed(from: Phase, code: &str, message: &str) -> Trouble {
    let failure = Failure::lasting(code, message);
    shown_as(
        &state_in(Phase::Failed {
            from: Box::new(from),
            failure,
        }),
        Vec::new(),
    )
}

/// A machine without a Node, since a certificate request of its kubelet was not approved.
fn refused_certificate(why: &str, foreign: Option<ForeignNode>) -> Trouble {
    let message = match &foreign {
        Some(foreign) => foreign.name_taken(),
        None => format!(
            "no Node win-a.ec2.internal appeared; a certificate request was not approved: {why}"
        ),
    };
    let failure = Failure::lasting("NodeOverdue", message);
    let csr = Csr {
        fact: CsrFact::default(),
        asked: false,
        refused: Some(why.to_owned()),
        foreign,
        expected: 0,
    };
    let state = State {
        csrs: [("uid-csr".to_owned(), csr)].into(),
        ..state_in(Phase::Failed {
            from: Box::new(Phase::NodeWait),
            failure,
        })
    };
    shown_as(&state, Vec::new())
}

/// A task that failed, and is tried again in ten seconds.
fn waits(phase: Phase, task: Task, attempt: u64, code: &str, message: &str) -> Trouble {
    let failure = Failure::transient(code, message);
    failed_attempt(phase, task, attempt, failure)
}

/// The last attempt failed two minutes ago.
fn failed_attempt(phase: Phase, task: Task, attempt: u64, failure: Failure) -> Trouble {
    let last = LastFailure {
        at: Moment(Timestamp(NOW.0 - 120_000)),
        task: task.name().to_owned(),
        attempt,
        failure: TaskFailure {
            code: failure.code.clone(),
            message: failure.message.clone(),
            log: failure.log.clone(),
        },
    };
    let phase_of = TaskPhase::Waiting {
        until: NOW.plus_ms(10_000),
        failure,
    };
    Trouble {
        last: Some(last),
        ..shown_as(&state_in(phase), vec![(task, attempt, phase_of)])
    }
}

fn shown_as(state: &State, tasks: Vec<(Task, u64, TaskPhase)>) -> Trouble {
    let live = Live::default();
    Trouble {
        machine: machine(state, tasks, &live),
        rollout: None,
        last: None,
    }
}

fn machine(state: &State, tasks: Vec<(Task, u64, TaskPhase)>, live: &Live) -> Machine {
    let open = |(body, attempt, phase)| OpenTask {
        key: TaskKey {
            seq: Seq(7),
            ordinal: 0,
        },
        body,
        policy: RetryPolicy::PATIENT,
        first_at: ENTERED,
        attempt: Attempt(attempt),
        episode: Seq(1),
        phase,
        last: None,
    };
    let run = Run::<Dormer> {
        state: state.clone().into(),
        tasks: tasks.into_iter().map(open).collect(),
        ..run_of("machine/uid-a")
    };
    views::machine(&run, live, NOW).unwrap()
}

/// A run that entered its state at record 7.
fn run_of(id: &str) -> Run<Dormer> {
    Run {
        id: id.parse().expect("an id"),
        seq: Seq(7),
        began: ENTERED,
        state: dormer_workflows::State::None,
        entered: Entered {
            seq: Seq(7),
            at: ENTERED,
        },
        tasks: Vec::new(),
        timers: BTreeMap::new(),
        outbox: Vec::new(),
        taken: BTreeMap::new(),
        numbered: Seq(0),
        requests: Default::default(),
        facts: BTreeMap::new(),
        episodes: Default::default(),
        closed: None,
        sum: Sum(0),
    }
}

fn probe() -> Task {
    Task::Probe {
        host: HostRef {
            address: "10.0.0.9".into(),
            ..HostRef::default()
        },
    }
}

fn converge(section: Section) -> Task {
    let host = HostRef {
        address: "10.0.0.9".into(),
        ..HostRef::default()
    };
    Task::Converge {
        host,
        section,
        desired: Desired::default(),
        generation: 1,
        node_name: None,
    }
}

fn converging(attempt: u64, code: &str, message: &str) -> Trouble {
    let phase = Phase::ConvergingHost { rebooted: false };
    waits(phase, converge(Section::Host), attempt, code, message)
}

/// A service whose log the host has sent.
fn unhealthy() -> Trouble {
    let failure = Failure {
        log: Some(
            "E1123 08:07:51 kubelet.go:1480] failed to start\nE1123 08:07:51 kubelet.go:1511] no node-ip"
                .into(),
        ),
        ..Failure::transient(
            "not_healthy",
            "kubelet runs, and http://127.0.0.1:10248/healthz does not answer 200",
        )
    };
    let phase = Phase::ConvergingHost { rebooted: false };
    failed_attempt(phase, converge(Section::Host), 3, failure)
}

fn change() -> Change {
    let differs = [
        "kubelet.exe (not uploaded)",
        "containerd.exe (not uploaded)",
        "kubelet (other)",
    ];
    let differs = differs.iter().chain(&["csi-proxy.exe (not uploaded)"]);
    Change {
        how: ChangeStrategy::Recreate,
        differs: differs.map(|it| (*it).to_owned()).collect(),
        repair: false,
        anew: false,
        asked: false,
    }
}

/// A drain that one pod holds.
fn evicting(pod: &str, why: &str, budgets: &[&str]) -> Trouble {
    let blockers = vec![Blocker {
        pod: pod.into(),
        why: why.into(),
        budgets: budgets.iter().map(|&name| name.into()).collect(),
        until_off: false,
        finalizers: Vec::new(),
    }];
    let drain = Drain {
        evicted: 4,
        left: 1,
        blockers,
        force: false,
        overdue: false,
        idle_passes: 0,
        ..Drain::default()
    };
    shown_as(&serving(Phase::Evicting(change(), drain)), Vec::new())
}

/// The same, of a host that has to be said to be off.
fn until_off(mut trouble: Trouble) -> Trouble {
    let drain = trouble.machine.drain.as_mut().expect("it is drained");
    drain.blockers[0].until_off = true;
    trouble
}

fn upload() -> Trouble {
    let live = Live::default();
    let run = RunId::new("machine", "uid-a").unwrap();
    live.beat(Heartbeat {
        task: dormer_proto::id::TaskId {
            run,
            seq: Seq(7),
            ordinal: 0,
        },
        attempt: Attempt(1),
        worker: "worker-1".into(),
        step: "upload".into(),
        done: 31_457_280,
        of: 209_715_200,
        unit: "bytes".into(),
        lacks: None,
    });
    let state = state_in(Phase::ConvergingHost { rebooted: false });
    let phase = TaskPhase::InFlight {
        at: ENTERED,
        issued: None,
    };
    let tasks = vec![(converge(Section::Host), 1, phase)];
    Trouble {
        machine: machine(&state, tasks, &live),
        rollout: None,
        last: None,
    }
}

/// Its Machine as the cloud has it.
fn with_cloud(mut state: State, phase: &str, error: Option<&str>) -> State {
    if let Some(machine) = &mut state.machine {
        machine.phase = Some(phase.into());
        machine.error = error.map(str::to_owned);
    }
    state
}

/// A machine for which the watcher found a request in the name of another Node.
fn asks_as_another(phase: Phase, reason: &str, how: &str) -> Trouble {
    let mut state = state_in(phase);
    let condition = ConditionFact {
        kind: OWN_REQUEST.into(),
        status: "False".into(),
        reason: reason.into(),
        message: format!("csr-x7k2p asks for the certificate of master-0 {how}"),
    };
    state
        .machine
        .iter_mut()
        .for_each(|it| it.conditions.push(condition.clone()));
    shown_as(&state, Vec::new())
}

/// What the watcher says where hosts share what they join with.
const ASKS_AS_ANOTHER: &str = "with a token that hosts join with, and is not approved: the Node of that name is there, and \
                               another host has it. If this machine's host asks so, it says that it is master-0, not \
                               win-a.ec2.internal";

fn no_address(phase: &str, error: Option<&str>) -> Trouble {
    let mut state = with_cloud(state_in(Phase::Address), phase, error);
    if let Some(machine) = &mut state.machine {
        machine.addresses.clear();
    }
    shown_as(&state, Vec::new())
}

/// The cloud makes no instance, and says so in the Machine's own words or in its provider's condition.
fn refused(phase: &str, error: Option<&str>, condition: Option<(&str, &str, &str)>) -> Trouble {
    let mut state = with_cloud(state_in(Phase::Address), phase, error);
    if let Some(machine) = &mut state.machine {
        machine.addresses.clear();
        let found = condition
            .into_iter()
            .map(|(kind, reason, message)| ConditionFact {
                kind: kind.into(),
                status: "False".into(),
                reason: reason.into(),
                message: message.into(),
            });
        machine.conditions = found.collect();
    }
    let set = json!({"name": "windows", "replicas": 3, "machines": 3, "ready": 2, "available": 2});
    Trouble {
        rollout: Some(rollout_with(json!({"machineSets": [set]}))),
        ..shown_as(&state, Vec::new())
    }
}

/// A machine that serves and would be upgraded, while another operator runs.
fn beside() -> Trouble {
    let namespace = "openshift-windows-machine-config-operator";
    let pod = format!("Pod {namespace}/windows-machine-config-operator-5d8f6");
    let mut state = serving(Phase::LeaseWait(change()));
    if let Some(machine) = &mut state.machine {
        machine.neighbour = OtherOperator::Runs(operators::sentence(&pod, namespace));
    }
    shown_as(&state, Vec::new())
}

/// No fault of the simulated world: what the Machine API says of a cloud that refuses.
#[rustfmt::skip]
fn clouds() -> Vec<(&'static str, Trouble)> {
    let quota = "VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of 32 allows, \
        status code: 400, request id: …";
    let never = "error launching instance: The instance type m9.large is not supported";
    vec![
        ("a Machine that failed with a quota error", refused("Failed", Some(&format!("InsufficientResources: {quota}")), None)),
        ("a Machine that the cloud has no room for, tried again and again", refused("Provisioning", None, Some(("MachineCreation", "MachineCreationFailed", quota)))),
        ("a Machine of a size that there is not", refused("Failed", Some(&format!("InvalidConfiguration: {never}")), Some(("InstanceExists", "InstanceNotCreated", "Instance has not been created")))),
    ]
}

/// The rollout of the pool, with these fields as JSON.
fn rollout_with(fields: Value) -> Rollout {
    let run = Run::<Dormer> {
        state: dormer_workflows::rollout::State::default().into(),
        ..run_of("rollout/windows")
    };
    let rollout = views::rollout(
        &run,
        &views::KnownMachines::default(),
        &Live::default(),
        NOW,
    )
    .expect("a rollout");
    let mut rollout = serde_json::to_value(rollout).expect("JSON");
    for (key, value) in fields.as_object().expect("fields") {
        rollout[key] = value.clone();
    }
    serde_json::from_value(rollout).expect("a rollout")
}

fn behind(fields: Value) -> Trouble {
    let trouble = shown_as(&serving(Phase::LeaseWait(change())), Vec::new());
    Trouble {
        rollout: Some(rollout_with(fields)),
        ..trouble
    }
}

/// What the host does in each phase, by the fault that brings it there.
#[rustfmt::skip]
fn hosts() -> Vec<(&'static str, Trouble)> {
    let timeout = "no answer from 10.0.0.9: the host is down, or a firewall drops packets to its SSH port (is the network profile Public?)";
    let refused = "the SSH port of 10.0.0.9 refuses connections: sshd does not run (yet), or the host is still booting";
    let rejected = "10.0.0.9 does not accept our key for Administrator: user data has not run yet, or \
        accounts other than Administrators and SYSTEM can write administrators_authorized_keys";
    let key = "10.0.0.9 shows another host key than the pinned one: ssh-ed25519 SHA256:DRwR6J, not ssh-ed25519 \
        SHA256:nL6KI7; nothing was sent to it";
    let clock = "its clock is 10m behind: 2026-11-23 07:52:00 UTC on the host, 2026-11-23 08:02:00 UTC here, and 5m is \
        the limit. Run w32tm /resync on the host";
    let ahead = "its clock is 10m ahead: 2026-11-23 08:12:00 UTC on the host, 2026-11-23 08:02:00 UTC here, and 5m is \
        the limit. Run w32tm /resync on the host";
    let reboot = || Phase::Rebooting { boot_id: "b1".into(), asked: true };
    let host = || Phase::ConvergingHost { rebooted: false };
    vec![
        ("dead", waits(Phase::Probing, probe(), 41, "ConnectTimeout", timeout)),
        ("ssh-reset-in-kex", waits(Phase::Probing, probe(), 2, "HandshakeFailed", "10.0.0.9 ends the connection before the login: early eof")),
        ("auth-refused-a-while", waits(Phase::KeyWait { since: ENTERED }, probe(), 3, "AuthRejected", rejected)),
        ("auth-refused", failed(Phase::Probing, "AuthRejected", rejected)),
        ("host-key-changed", failed(Phase::ConvergingNode, "HostKeyChanged", key)),
        ("clock-skew", failed(Phase::Probing, "ClockSkew", clock)),
        ("clock-forward", failed(Phase::Probing, "ClockSkew", ahead)),
        ("half-open", converging(1, "ConnectionLost", "the connection to 10.0.0.9 broke: Keepalive timeout")),
        ("no-frame", converging(1, "NoFrame", "the output holds no answer (exit 0); the program is sent again")),
        ("profile-noise", failed(host(), "SftpUnusable", "SFTP of 10.0.0.9 begins with the text \"Load\": a profile of its default shell prints text; remove that output")),
        ("upload-cut", converging(1, "ConnectionLost", "the connection to 10.0.0.9 broke: early eof")),
        ("slow-upload", upload()),
        ("disk-full", converging(2, "DiskFull", "drive C of 10.0.0.9 seems to be full: C:\\ProgramData\\dormer\\staging\\51a112.part cannot be written")),
        ("no-approver", converging(1, "TokenAwaited", "no approver answered in Secret dormer-join/join-u within 20 s: is a dormer with the role approver running?")),
        ("no-token", converging(2, "TokenRefused", "the approver gives no bootstrap token: its Machine is in phase Deleting")),
        ("scanner-deletes", failed(host(), "quarantine_suspected", "C:\\k\\kubelet.exe was right and is gone")),
        ("exe-locked", converging(1, "file_locked", "C:\\k\\kubelet.exe is held by a process that did not end")),
        ("marked-for-deletion", converging(1, "service_marked_for_deletion", "kubelet: the service is marked for deletion (1072) while changing kubelet")),
        ("kubelet-start-1053", converging(1, "service_start_timeout", "kubelet: the service did not answer in time (1053) while starting kubelet")),
        ("running-not-healthy", unhealthy()),
        ("hns-restarts", converging(1, "hns_missing", "no HNS network OVNKubernetesHybridOverlayNetwork")),
        ("slow-reboot", waits(reboot(), probe(), 4, "ConnectTimeout", timeout)),
        ("sshd-dead-after-reboot", waits(reboot(), probe(), 9, "ConnectRefused", refused)),
        ("applocker", failed(Phase::Probing, "ProgramBlockedByAppLocker", "Windows does not run dormer's program (exit 1260); AppLocker blocks it (1260): allow its publisher or its hash for administrators; the default rules allow all of C:\\Windows")),
        ("wdac", failed(Phase::Probing, "ProgramBlockedByWdac", "Windows does not run dormer's program (exit 4551); Windows Defender Application Control blocks it (4551): add its hash or its publisher to the policy of this host")),
        ("scanner-blocks", failed(Phase::Probing, "ProgramQuarantined", "Windows does not run dormer's program (exit 225); the virus scanner blocks it (225): restore it there and exclude C:\\Windows\\dormer\\bin")),
        ("sftp-missing", failed(Phase::Probing, "SftpMissing", "10.0.0.9 has no SFTP: its sshd_config lacks the line 'Subsystem sftp sftp-server.exe'")),
        ("other-processor", failed(Phase::Probing, "ProgramForOtherProcessor", "Windows does not run dormer's program (exit 216); this Windows is not one for x86-64 (216): take it out of the pool")),
        ("configure-fails", failed(host(), "access_denied", "access denied (5) while opening C:\\k")),
    ]
}

/// What hosts have that no fault gives them.
#[rustfmt::skip]
fn others() -> Vec<(&'static str, Trouble)> {
    vec![
        ("wrong-containerd", failed(Phase::Marking, "WrongContainerd", "the Node is Ready but does not serve: runtime: containerd is 2.3.7, and the payload's is 2.1: `containerd:` of payload.yaml names another release than the program's")),
    ]
}

/// What people do.
#[rustfmt::skip]
fn people() -> Vec<(&'static str, Trouble)> {
    let asked = |state: State| State {
        leased_request: Some(LeasedRequest::Drain),
        request_progress: RequestProgress {
            by: Some("ann: a new kernel".into()),
            at: Some(ENTERED),
            ..RequestProgress::default()
        },
        ..state
    };
    let leased = |state: State| State {
        lease: Lease::Held {
            token: LeaseToken(7),
            over_limit: false,
        },
        under_lease: Some(ChangeStrategy::Drain),
        ..asked(state)
    };
    let blocked = Drain {
        left: 2,
        blockers: ["shop/cart-7", "shop/cart-8"]
            .map(|pod| Blocker {
                pod: pod.into(),
                why: "the PodDisruptionBudget cart asks for 5 healthy pods, and 5 are healthy".into(),
                budgets: vec!["cart".into()],
                until_off: false,
                finalizers: Vec::new(),
            })
            .to_vec(),
        ..Drain::default()
    };
    let drain = Change {
        how: ChangeStrategy::Drain,
        differs: vec![dormer_workflows::machine::ASKED.into()],
        asked: true,
        ..change()
    };
    let held_twice = State {
        paused: Some("ann: a look".into()),
        held: Some("bob: a disk".into()),
        ..serving(Phase::Serving)
    };
    let mut retried = state_in(Phase::Probing);
    retried.retried = Some(Retried {
        at: ENTERED,
        by: Some("ann: the firewall is open".into()),
        who: None,
        failed: "probing".into(),
        failure: Failure::lasting("ConnectTimeout", "no answer from 10.0.0.9"),
        phase: "probing".into(),
    });
    let slot = json!([{"token": 4, "holder": "uid-b", "name": "win-b", "marked": false, "seq": 2,
        "since": "2026-11-23T08:00:00.000Z", "waitsFor": null, "stopped": "drained by ann (a new kernel)"}]);
    vec![
        ("drain waits for the lease", shown_as(&asked(serving(Phase::LeaseWait(drain.clone()))), Vec::new())),
        ("drain waits for a step", shown_as(&asked(serving(Phase::Closing)), Vec::new())),
        ("drain that a budget holds up", shown_as(&leased(serving(Phase::Evicting(drain, blocked))), Vec::new())),
        ("drain of a host that does not answer", until_off(evicting("shop/cart-7", "it is ending, with 30 s of grace, but its node does not answer: its containers may still run, so it is not deleted by force", &[]))),
        ("behind an upgrade of the cluster", behind(json!({"waitingFor": "another change of the cluster to end: the cluster is being upgraded since 2026-11-23T07:00:00Z (Working towards 4.20.3)", "waitsCure": "See how far the cluster's upgrade is: kubectl get clusterversion"}))),
        ("drained", shown_as(&leased(serving(Phase::Drained)), Vec::new())),
        ("behind a drained machine", behind(json!({"slots": slot, "away": [{"uid": "uid-b", "name": "win-b", "why": "holds"}]}))),
        ("paused and held", shown_as(&held_twice, Vec::new())),
        ("retried", shown_as(&retried, vec![(probe(), 2, TaskPhase::InFlight { at: ENTERED, issued: None })])),
    ]
}

/// What the cluster and the cloud do.
#[rustfmt::skip]
fn clusters() -> Vec<(&'static str, Trouble)> {
    let vanishing = shown_as(&with_cloud(serving(Phase::Vanishing), "Deleting", None), Vec::new());
    let flapping = NodeFact { name: "win-a.ec2.internal".into(), ..NodeFact::default() };
    let flapping = State { node: Some(flapping), ..state_in(Phase::ReadyWait) };
    let unserved = State {
        checks: vec![NodeCheck { check: CheckName::Certificate.to_string(), result: CheckResult::Failed,
            said: "the kubelet has no serving certificate, so neither logs nor exec answer: no certificate came".into() }],
        ..state_in(Phase::Marking)
    };
    let silent = State { note: Some("the drain takes longer than allowed: 1 pod is left".into()), ..serving(Phase::Evicting(change(), Drain { left: 1, overdue: true, ..Drain::default() })) };
    let no_instance = with_cloud(state_in(Phase::Failed {
        from: Box::new(Phase::ConvergingNode),
        failure: Failure::lasting("ConnectTimeout", "no answer from 10.0.0.9: the host is down"),
    }), "Failed", Some("UpdateError: Can't find created instance"));
    let overdue = Phase::Failed {
        from: Box::new(Phase::NodeWait),
        failure: Failure::lasting(
            "NodeOverdue",
            format!("no Node win-a.ec2.internal appeared; csr-x7k2p asks for the certificate of master-0 {ASKS_AS_ANOTHER}"),
        ),
    };
    let foreign = ForeignNode {
        node: "win-a.ec2.internal".into(),
        theirs: "aws:///us-east-1a/i-0".into(),
        ours: "aws:///us-east-1a/i-1".into(),
    };
    let quota = "InsufficientResources: You have requested more vCPU capacity than your current limit of 32 allows";
    vec![
        ("wmco-beside", beside()),
        ("name-mismatch", shown_as(&state_in(Phase::NodeWait), Vec::new())),
        ("name-mismatch", failed(Phase::NodeWait, "NodeOverdue", "no Node win-a.ec2.internal appeared")),
        ("csr-extra-san", refused_certificate("it names the address 10.9.9.9, which the Machine does not have", None)),
        ("old-node", refused_certificate(&foreign.to_string(), Some(foreign))),
        ("flapping", shown_as(&flapping, Vec::new())),
        ("serving-never", shown_as(&unserved, Vec::new())),
        ("serving-never", failed(Phase::Marking, "NoServingCertificate", "the Node is Ready but does not serve: certificate: the kubelet has no serving certificate, so neither logs nor exec answer: no certificate came")),
        ("wrong-build", failed(Phase::Marking, "WrongBuild", "the Node is Ready but does not serve: windows-build: the label node.kubernetes.io/windows-build is 10.0.14393, not 10.0.20348")),
        ("address-late", no_address("Provisioning", None)),
        ("address-late", waits(Phase::Probing, probe(), 1, "NotItsAddress", "the order names the host 10.0.0.9, and the Machine win-a has 10.0.0.12: nothing was sent to it")),
        ("deleted-while-configuring", shown_as(&with_cloud(state_in(Phase::Leaving), "Deleting", None), Vec::new())),
        ("budget-never", evicting("shop/cart-7", "the PodDisruptionBudget cart asks for 1 healthy pod, and 1 is healthy", &["cart"])),
        ("two-budgets", evicting("shop/cart-7", "the disruption budgets cart, shop match it, and no pod with more than one can be evicted: delete all of them but one", &["cart", "shop"])),
        ("finalizer-holds", evicting("shop/cart-7", "it waits for its finalizers example.com/never", &[])),
        ("stubborn-pod", evicting("kube-system/agent-x", "it came after the cordon, which it tolerates", &[])),
        ("not-ready-in-drain", shown_as(&silent, Vec::new())),
        ("volume-attached", vanishing),
        ("replacement-never", shown_as(&with_cloud(serving(Phase::ReplacementWait), "Deleting", None), Vec::new())),
        ("replacement-never", no_address("Provisioning", Some(quota))),
        ("replacement-never", behind(json!({"away": [{"uid": "uid-b", "name": "win-b", "why": "holds"}], "waitingFor": "win-b"}))),
        ("replacement-never", behind(json!({"halted": "the replacement of win-b failed"}))),
        ("instance-vanishes", shown_as(&no_instance, Vec::new())),
        ("cordoned-by-admin", behind(json!({"away": [{"uid": "uid-a", "name": "win-a", "why": "cordoned"}], "waitingFor": "an uncordon of win-a: another client cordoned the Node, and dormer takes no such Node"}))),
        ("node-unreadable", shown_as(&State { node: None, ..serving(Phase::Serving) }, Vec::new())),
        ("host-claims-name", asks_as_another(Phase::NodeWait, OTHER_NAME, "with this machine's own token: its host says that it is master-0, not win-a.ec2.internal. It is not approved: the Node of that name is there, and another host has it")),
        ("host-claims-name", asks_as_another(overdue, OTHER_NAME_POSSIBLE, ASKS_AS_ANOTHER)),
        ("prune-settings", behind(json!({"held": "there is no WindowsPool dormer/windows", "heldCure": "Create the pool: kubectl -n dormer apply -f deploy/pool.yaml"}))),
        ("dead-for-good", evicting("shop/cart-7", "it is Terminating, and its node does not answer", &[])),
    ]
}

/// What a person reads, and below it the next steps as data: the time by which the machine usually continues by itself,
/// commands, and actions outside of dormer.
fn story(name: &str, trouble: &Trouble) -> String {
    let why = explanation(
        &trouble.machine,
        trouble.last.as_ref(),
        trouble.rollout.as_ref(),
    );
    let lines = why.lines().replace('\n', "\n  ");
    format!("\n{name}\n  {lines}\n{}", verdict(&why))
}

fn verdict(why: &Explanation) -> String {
    let heals = why
        .heals_by
        .map(|by| format!("  = heals by {}\n", by.clock(NOW)));
    let lines = why.steps.iter().map(|step| {
        let or = if step.instead { "or " } else { "" };
        match (step.line(), &step.outside) {
            // A command that a person completes is one of these, too.
            (_, Some(kind)) => format!("  = {or}outside: {kind}\n"),
            (Some(line), None) => format!("  = {or}command: {line}\n"),
            (None, None) => panic!("{step:?} is nothing to do"),
        }
    });
    heals.into_iter().chain(lines).collect()
}

/// The step of a line below "Do now", if the line begins one.
fn begins(line: &str) -> Option<&str> {
    let line = line
        .strip_prefix("  Do now:  ")
        .or(line.strip_prefix("           "))?;
    let line = line.strip_prefix("Or ").unwrap_or(line);
    let numbered = line.split_once(". ");
    let numbered = numbered.filter(|(number, _)| number.parse::<u8>().is_ok());
    let line = numbered.map_or(line, |(_, step)| step);
    (!line.starts_with(' ')).then_some(line)
}

/// First words of steps in `tests/why.txt`. `Then` continues the step before it.
const IMPERATIVES: &[&str] = &[
    "add", "allow", "approve", "change", "check", "close", "compare", "correct", "create",
    "delete", "end", "find", "fix", "free", "give", "install", "let", "make", "mend", "nothing",
    "open", "read", "remove", "replace", "restore", "return", "see", "set", "start", "tell",
    "then", "trust", "try", "uncordon", "wait",
];

#[test]
fn what_to_do_now_begins_with_an_imperative() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/why.txt");
    let text = std::fs::read_to_string(path).expect("the committed outputs");
    let mut steps = 0;
    let mut doing = false;
    for (number, line) in text.lines().enumerate() {
        doing = line.starts_with("  Do now:") || doing && line.starts_with("           ");
        let Some(step) = begins(line).filter(|_| doing) else {
            continue;
        };
        steps += 1;
        let first = step.split([' ', ':']).next().unwrap_or_default();
        let known = IMPERATIVES.contains(&first.to_lowercase().as_str());
        assert!(known, "tests/why.txt:{}: {step}", number + 1);
    }
    assert!(steps > 50, "{steps} steps");
    let causes = text
        .lines()
        .filter_map(|line| line.strip_prefix("  Cause:"));
    let commands = causes.filter(|cause| cause.contains("kubectl ") || cause.contains("(dormer "));
    assert_eq!(
        commands.collect::<Vec<_>>(),
        Vec::<&str>::new(),
        "a cause is no remedy"
    );
}

#[test]
fn every_fault_has_its_true_cause_and_a_next_step_with_a_command() {
    let mut text = String::from(
        "# What dormer why says of each fault of dormer fleet --list-faults that stops or slows a machine. Below each, with \
         an equals sign, its next steps in dormer why -o json.\n\
         # Generated by tests/in_process/why.rs (UPDATE_EXPECT=1 cargo test --test integration in_process::why).\n",
    );
    let mut found = Vec::new();
    for (fault, trouble) in hosts().into_iter().chain(clusters()) {
        let why = paragraph(
            &trouble.machine,
            trouble.last.as_ref(),
            trouble.rollout.as_ref(),
        );
        let command = ["dormer ", "kubectl "].iter().any(|it| why.contains(it));
        assert!(command, "{fault}: no next step with a command: {why}");
        assert!(!why.contains("Mend the cause"), "{fault}: {why}");
        text += &story(fault, &trouble);
        found.push(fault);
    }
    text += "\n# And of what the Machine API says without any fault of ours:\n";
    for (what, trouble) in clouds() {
        let why = paragraph(
            &trouble.machine,
            trouble.last.as_ref(),
            trouble.rollout.as_ref(),
        );
        assert!(
            why.contains("windows has 3 of 3 Machines, 2 ready, 2 available"),
            "{what}: {why}"
        );
        text += &story(what, &trouble);
    }
    text += "\n# And of what no fault of ours shows:\n";
    for (what, trouble) in others() {
        text += &story(what, &trouble);
    }
    text += "\n# And of what people do:\n";
    for (what, trouble) in people() {
        text += &story(what, &trouble);
    }
    text += "\n# dormer gets over these by itself:\n";
    for fault in GOT_OVER {
        text += &format!("# {fault}\n");
    }
    for fault in Fault::ALL {
        let name = fault.name();
        assert!(
            found.contains(&name) != GOT_OVER.contains(&name),
            "{name} is told of once"
        );
    }
    expect_file!["../why.txt"].assert_eq(&text);
}
