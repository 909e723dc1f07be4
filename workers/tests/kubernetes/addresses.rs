//! An order names the host of its Machine: before anything is sent, the worker reads the live Machine.

use super::bench::{Bench, PATIENCE, patch_part};
use crate::host::bench::program;
use dormer_fleet::api::{Key, Part, kinds};
use dormer_proto::{
    id::{Attempt, Incarnation, RunId, Seq, Sum, TaskId, Timestamp},
    machine::{HostRef, MachineRef, Task},
    message::Failure,
    work::Order,
};
use dormer_workers::{
    catalog::Catalog,
    execute::Execute,
    host::HostExecutor,
    kubernetes::KubernetesExecutor,
    progress::Progress,
    ssh::{BoxIo, Dial, Key as SshKey, Limits},
};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::{
    io,
    sync::{Arc, Mutex},
};

/// No host answers; which were called is noted.
#[derive(Default)]
struct Silence(Mutex<Vec<String>>);

impl Dial for Silence {
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let mut called = self.0.lock().expect("unpoisoned");
        called.push(address.to_owned());
        Box::pin(async { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) })
    }
}

struct Caller {
    hosts: HostExecutor<KubernetesExecutor>,
    silence: Arc<Silence>,
}

impl Caller {
    fn of(bench: &Bench) -> Self {
        let silence = Arc::new(Silence::default());
        let hosts = HostExecutor::new(
            Arc::clone(&silence) as Arc<dyn Dial>,
            SshKey::read(&bench.world.ssh_key.private_pem).expect("a key"),
            Limits::default(),
            Catalog::new(&[]).expect("a catalog"),
            program(),
            Arc::new(bench.executor.clone()),
        );
        Self { hosts, silence }
    }

    /// A probe of that address; which hosts were called, and the failure's code.
    async fn probe(&self, machine: &MachineRef, address: &str) -> (Vec<String>, Failure) {
        let order = Order {
            task: TaskId {
                run: RunId::new("machine", "m").expect("an id"),
                seq: Seq(1),
                ordinal: 0,
            },
            attempt: Attempt(1),
            incarnation: Incarnation(1),
            issued: Sum(1),
            episode: Seq(0),
            at: Timestamp(0),
            limit_ms: 60_000,
            body: Task::Probe {
                host: HostRef {
                    machine: machine.clone(),
                    address: address.to_owned(),
                    user: "Administrator".into(),
                    pin: None,
                    platform: "AWS".into(),
                },
            },
        };
        let progress = Progress::default();
        let done = tokio::time::timeout(PATIENCE, self.hosts.execute(&order, &progress)).await;
        let failure = done.expect("in time").expect_err("no host answers");
        let called = std::mem::take(&mut *self.silence.0.lock().expect("unpoisoned"));
        (called, failure)
    }
}

fn addresses(bench: &Bench, machine: &MachineRef, all: &[&str]) {
    let internal = |address: &&str| json!({"type": "InternalIP", "address": address});
    let all: Vec<Value> = all.iter().map(internal).collect();
    let key = Key::new(machine.namespace.as_str(), machine.name.as_str());
    let status = json!({"status": {"addresses": all}});
    patch_part(&bench.world, &kinds::MACHINE, &key, Part::Status, status);
}

#[tokio::test]
async fn an_order_for_an_address_that_its_machine_does_not_have_calls_nobody() {
    let bench = Bench::new(1, false).await;
    let machine = bench.machines().remove(0);
    let caller = Caller::of(&bench);
    let (called, refused) = caller.probe(&machine, "203.0.113.7").await;
    assert!(called.is_empty(), "{called:?}: {refused:?}");
    assert_eq!(
        (refused.code.as_str(), refused.retry),
        ("NotItsAddress", true)
    );
    for word in ["203.0.113.7", machine.name.as_str(), "nothing was sent"] {
        assert!(refused.message.contains(word), "{}", refused.message);
    }
    // A second interface, whichever comes first, and an address that was renewed: the next order has it.
    addresses(&bench, &machine, &["10.0.0.8", "10.0.0.9"]);
    for address in ["10.0.0.8", "10.0.0.9"] {
        let (called, failure) = caller.probe(&machine, address).await;
        assert_eq!(called, [address], "{failure:?}");
    }
    addresses(&bench, &machine, &["10.0.0.10"]);
    let (called, refused) = caller.probe(&machine, "10.0.0.9").await;
    assert!(
        called.is_empty() && refused.code == "NotItsAddress",
        "{refused:?}"
    );
    let (called, _) = caller.probe(&machine, "10.0.0.10").await;
    assert_eq!(called, ["10.0.0.10"]);
    // The guest agent restarts: the order names no host, and no stranger's either.
    addresses(&bench, &machine, &[]);
    let (called, refused) = caller.probe(&machine, "").await;
    assert!(called.is_empty(), "{called:?}");
    assert_eq!((refused.code.as_str(), refused.retry), ("NoAddress", true));
}

/// A Linux machine of the cluster, or one whose label a person removed.
#[tokio::test]
async fn an_order_for_a_machine_that_is_not_windows_calls_nobody() {
    let bench = Bench::new(1, false).await;
    let machine = bench.machines().remove(0);
    let caller = Caller::of(&bench);
    addresses(&bench, &machine, &["10.0.0.8"]);
    let key = Key::new(machine.namespace.as_str(), machine.name.as_str());
    let label = |value: Value| {
        let labels = json!({"metadata": {"labels": {"machine.openshift.io/os-id": value}}});
        patch_part(&bench.world, &kinds::MACHINE, &key, Part::Main, labels);
    };
    for value in [json!("Linux"), Value::Null] {
        label(value);
        let (called, refused) = caller.probe(&machine, "10.0.0.8").await;
        assert!(called.is_empty(), "{called:?}: {refused:?}");
        assert_eq!(
            (refused.code.as_str(), refused.retry),
            ("MachineNotWindows", true)
        );
        assert!(
            refused.message.contains("os-id=Windows"),
            "{}",
            refused.message
        );
    }
    label(json!("Windows"));
    let (called, _) = caller.probe(&machine, "10.0.0.8").await;
    assert_eq!(called, ["10.0.0.8"]);
}

#[tokio::test]
async fn an_order_for_an_invented_machine_calls_nobody() {
    let bench = Bench::new(1, false).await;
    let known = bench.machines().remove(0);
    let caller = Caller::of(&bench);
    addresses(&bench, &known, &["10.0.0.8"]);
    let another_uid = MachineRef {
        uid: "another".into(),
        ..known.clone()
    };
    let another_name = MachineRef {
        name: "another".into(),
        ..known
    };
    for machine in [another_uid, another_name] {
        let (called, refused) = caller.probe(&machine, "10.0.0.8").await;
        assert!(called.is_empty(), "{called:?}: {refused:?}");
        assert_eq!(
            (refused.code.as_str(), refused.retry),
            ("MachineGone", true)
        );
    }
}
