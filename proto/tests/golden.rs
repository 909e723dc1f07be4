//! Golden bytes: every message of the first release must still be read, and be written with the same bytes.
//! `UPDATE_EXPECT=1` writes missing files and never overwrites one, since stores contain messages in that form.

use dormer_proto::pool::{PoolSettings, Terms};
use dormer_proto::{
    envelope::{Message, decode, encode},
    id::{Attempt, Epoch, Incarnation, LeaseToken, RunId, Seq, SignalId, Sum, TaskId, Timestamp},
    machine::{
        ConditionFact, Fact, Guard, MachineFact, MachineRef, Outcome, Signal, Task, TokenMark,
    },
    message::{
        Ask, Failure, Heartbeat, Inbound, InboxMessage, NodeSettings, ObjectRef, Observation,
        ReceiptStatus, Refusal, RemoteCommand, ReportReceipt, Reporter, Request, SignalAnswer,
        Signalled, TaskOrder, TaskReport, Version,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Debug, path::PathBuf};

type AnyMessage = InboxMessage<Fact, Outcome, Signal>;

fn golden<M: Message + Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, message: &M) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.msgpack"));
    let (bytes, _) = encode(message, 1).unwrap();
    if !path.exists() && std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &bytes).unwrap();
    }
    let stored = std::fs::read(&path).unwrap_or_else(|_| panic!("no {}", path.display()));
    let (read, _) = decode::<M>(&stored, 1).unwrap();
    assert_eq!(
        read, *message,
        "{name} is read otherwise than it was written"
    );
    assert_eq!(bytes, stored, "{name} is written otherwise than before");
}

fn run() -> RunId {
    RunId::new("machine", "0b5f6f0e-8a54-4c53-9d7a-6a5fb2a5c001").unwrap()
}

fn task() -> TaskId {
    TaskId {
        run: run(),
        seq: Seq(12),
        ordinal: 1,
    }
}

fn machine() -> MachineRef {
    MachineRef {
        namespace: "openshift-machine-api".into(),
        name: "winworker-a-x2x7p".into(),
        uid: run().key().into(),
        ..MachineRef::default()
    }
}

fn message(body: Inbound<Fact, Outcome, Signal>) -> AnyMessage {
    InboxMessage {
        run: run(),
        incarnation: Some(Incarnation(0xfeed)),
        body,
    }
}

#[test]
fn orders_heartbeats_and_receipts() {
    golden(
        "order",
        &TaskOrder {
            task: task(),
            attempt: Attempt(2),
            incarnation: Incarnation(0xfeed),
            issued: Sum(77),
            episode: Seq(3),
            at: Timestamp(1_795_000_000_000),
            limit_ms: 60_000,
            body: Task::OpenFence {
                machine: machine(),
                node: Some("winworker-a-x2x7p".into()),
                token: LeaseToken(9),
                over_limit: false,
                cordon: true,
                guard: Guard::default(),
            },
        },
    );
    golden(
        "heartbeat",
        &Heartbeat {
            task: task(),
            attempt: Attempt(2),
            worker: "w-1".into(),
            step: "upload".into(),
            done: 5,
            of: 9,
            unit: "bytes".into(),
            lacks: None,
        },
    );
    golden(
        "remote-command",
        &RemoteCommand {
            task: task(),
            attempt: Attempt(2),
            worker: "w-1".into(),
            number: 1,
            name: "apply host".into(),
            line: "powershell.exe -Mode apply".into(),
            at: Timestamp(1_795_000_000_000),
            took_ms: 1_500,
            ended: "exit 0".into(),
            head: "answer: apply".into(),
            left_out: 7,
            tail: "done".into(),
        },
    );
    golden(
        "node-settings",
        &NodeSettings {
            api_url: "https://api-int.cluster.example:6443".into(),
            cluster_dns: "172.30.0.10".into(),
            cluster_domain: "cluster.local".into(),
            service_cidr: "172.30.0.0/16".into(),
            exporter: true,
            cluster: r#"{"digest":""}"#.into(),
        },
    );
    golden(
        "receipt",
        &ReportReceipt {
            task: task(),
            attempt: Attempt(2),
            worker: "w-1".into(),
            fate: ReceiptStatus::Taken,
        },
    );
}

#[test]
fn a_node_is_searched_for() {
    golden(
        "order-find-node",
        &TaskOrder {
            task: task(),
            attempt: Attempt(1),
            incarnation: Incarnation(0xfeed),
            issued: Sum(77),
            episode: Seq(3),
            at: Timestamp(1_795_000_000_000),
            limit_ms: 60_000,
            body: Task::FindNode {
                machine: machine(),
                names: vec!["winworker-a-x2x7p".into()],
                provider_id: Some("aws:///us-east-1e/i-078".into()),
            },
        },
    );
}

#[test]
fn a_payload_is_written_and_comes_with_its_terms() {
    golden(
        "order-set-payload",
        &TaskOrder {
            task: task(),
            attempt: Attempt(1),
            incarnation: Incarnation(0xfeed),
            issued: Sum(77),
            episode: Seq(3),
            at: Timestamp(1_795_000_000_000),
            limit_ms: 60_000,
            body: Task::SetPayload {
                pool: "windows".into(),
                payload: "11.0.0".into(),
                back_from: "11.1.0".into(),
                by: "ada: it crashes".into(),
                instead: None,
            },
        },
    );
    let terms = Terms {
        may_follow: vec!["10.20.0".into()],
        installed: vec!["10.20.0".into()],
        back_from: Some("11.1.0".into()),
        skew: Some("kubelet 1.34 is newer than the oldest API server, 1.33".into()),
        expired: None,
        platforms: Vec::new(),
        kubelet: None,
        containerd: None,
        canary: None,
        refused_builds: std::collections::BTreeMap::new(),
        paths: std::collections::BTreeMap::new(),
        build: None,
    };
    let pool = PoolSettings {
        terms: [("11.0.0".into(), terms)].into(),
        ..PoolSettings::default()
    };
    let object = ObjectRef {
        cluster: String::new(),
        kind: "ConfigMap".into(),
        uid: "u".into(),
    };
    let version = Version {
        epoch: Epoch(4),
        resource: 1_234,
    };
    let fact = Some(Fact::Pool(pool));
    let observation = Observation {
        object,
        version,
        fact,
        may_start: false,
    };
    golden(
        "message-observed-pool",
        &message(Inbound::Observed(observation)),
    );
}

#[test]
fn a_pool_that_is_held_and_overridden() {
    let pool = PoolSettings {
        max_repairs: Some(1),
        repair_after_ms: Some(600_000),
        held: Some("there is no WindowsPool dormer/windows".into()),
        absent: true,
        paused: true,
        spec_payload: Some("installed".into()),
        overridden_by: Some("ada: it crashes".into()),
        generation: 3,
        refused: Some("spec.payload: payload 12.0.0 is not installed".into()),
        ..PoolSettings::default()
    };
    let machine = pool.for_machine();
    assert_eq!(
        machine, None,
        "nothing is known that a machine could become"
    );
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Pool".into(),
        uid: "windows".into(),
    };
    let version = Version {
        epoch: Epoch(4),
        resource: 1_234,
    };
    let observation = Observation {
        object,
        version,
        fact: Some(Fact::Pool(pool)),
        may_start: false,
    };
    golden(
        "message-observed-pool-held",
        &message(Inbound::Observed(observation)),
    );
}

#[test]
fn settings_of_an_older_watcher_have_no_terms() {
    let pool = PoolSettings::default();
    let bytes = rmp_serde::to_vec_named(&pool).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("terms"), "what is empty is not written");
    assert_eq!(rmp_serde::from_slice::<PoolSettings>(&bytes).unwrap(), pool);
}

#[test]
fn facts_and_due_timers() {
    let fact = MachineFact {
        machine: machine(),
        created: Timestamp(1_795_000_000_000),
        phase: Some("Provisioned".into()),
        provider_id: Some("aws:///us-east-1e/i-078".into()),
        addresses: vec!["10.0.1.7".into()],
        token: Some(TokenMark {
            token: LeaseToken(9),
            open: true,
        }),
        ..MachineFact::default()
    };
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Machine".into(),
        uid: run().key().into(),
    };
    let version = Version {
        epoch: Epoch(4),
        resource: 1_234,
    };
    let observation = Observation {
        object,
        version,
        fact: Some(Fact::Machine(fact)),
        may_start: true,
    };
    golden(
        "message-observed",
        &message(Inbound::Observed(observation.clone())),
    );
    if let Some(Fact::Machine(refused)) = observation.clone().fact {
        let condition = ConditionFact {
            kind: "MachineCreation".into(),
            status: "False".into(),
            reason: "MachineCreationFailed".into(),
            message: "VcpuLimitExceeded".into(),
        };
        let fact = Some(Fact::Machine(MachineFact {
            conditions: vec![condition],
            ..refused
        }));
        let observed = Observation {
            fact,
            ..observation.clone()
        };
        golden(
            "message-observed-conditions",
            &message(Inbound::Observed(observed)),
        );
    }
    golden(
        "message-gone",
        &message(Inbound::Observed(Observation {
            fact: None,
            ..observation
        })),
    );
    golden("message-timer-due", &message(Inbound::TimerDue));
}

#[test]
fn reports() {
    let report = |result| TaskReport {
        task: task(),
        attempt: Attempt(2),
        issued: Sum(77),
        worker: "w-1".into(),
        by: Reporter::default(),
        result,
    };
    let done = Ok(Outcome::FenceOpened { was_cordoned: true });
    golden(
        "message-reported",
        &message(Inbound::Reported(report(done))),
    );
    let failed = Err(Failure::transient(
        "ConnectRefused",
        "10.0.1.7:22 refused the connection",
    ));
    golden(
        "message-reported-failure",
        &message(Inbound::Reported(report(failed))),
    );
}

#[test]
fn signals_answers_and_requests() {
    let id = SignalId {
        seq: Seq(8),
        ordinal: 0,
    };
    let granted = Signal::Granted {
        token: LeaseToken(9),
        over_limit: false,
    };
    let from = RunId::new("rollout", "windows").unwrap();
    let signalled = Signalled {
        from: from.clone(),
        id,
        issued: Sum(5),
        signal: granted,
    };
    golden("message-signalled", &message(Inbound::Signalled(signalled)));
    let answer = SignalAnswer {
        from,
        id,
        issued: Sum(5),
        refused: Some(Refusal::Closed),
        behind: None,
    };
    golden("message-answered", &message(Inbound::Answered(answer)));
    let request = |ask| Request {
        id: "r-1".into(),
        who: "ada".into(),
        why: "after the quota was raised".into(),
        against: Seq(11),
        ask,
    };
    golden(
        "message-requested",
        &message(Inbound::Requested(request(Ask::Signal(Signal::Retry)))),
    );
    golden(
        "message-reset",
        &message(Inbound::Requested(request(Ask::Reset { to: Seq(4) }))),
    );
}
