//! A Node that is checked before it is marked, on a simulated API server.

use super::bench::Bench;
use dormer_fleet::api::{Key, Meta, kinds};
use dormer_proto::{
    checks::{CheckResult, NodeCheck, NodeExpectation},
    machine::{MachineRef, Outcome, Task},
};
use dormer_workers::kubernetes::keys;
use serde_json::json;

fn mark(machine: &MachineRef) -> Task {
    Task::MarkNode {
        machine: machine.clone(),
        node: machine.name.clone(),
        version: "v1".into(),
        pin: None,
        expect: Some(expect()),
    }
}

fn expect() -> NodeExpectation {
    NodeExpectation {
        kubelet_minor: Some(33),
        containerd: None,
        os_build: Some("10.0.20348".into()),
        canary: None,
        soak_ms: 0,
    }
}

fn failed(checks: &[NodeCheck]) -> Vec<&str> {
    let failed = checks.iter().filter(|check| check.failed());
    failed.map(|check| check.check.as_str()).collect()
}

#[tokio::test]
async fn a_node_is_marked_only_once_it_passes_its_checks() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    bench.patch_node(
        m,
        json!({"metadata": {"labels": {"kubernetes.io/arch": "amd64",
            "node.kubernetes.io/windows-build": "10.0.17763", "team": "blue"}}}),
    );
    let key = Key::new(m.namespace.as_str(), m.name.as_str());
    let template = |team: &str| json!({"spec": {"metadata": {"labels": {"team": team}}}});
    bench.patch_object(&kinds::MACHINE, &key, template("blue"));

    let Ok(Outcome::NodeChecked { checks }) = bench.run(mark(m)).await else {
        panic!("it is checked")
    };
    assert_eq!(failed(&checks), ["windows-build"], "{checks:?}");
    assert_eq!(bench.node(m).annotation(keys::VERSION), None);

    let build = json!({"metadata": {"labels": {"node.kubernetes.io/windows-build": "10.0.20348"}}});
    bench.patch_node(m, build);
    let Ok(Outcome::NodeChecked { checks }) = bench.run(mark(m)).await else {
        panic!("it is checked")
    };
    assert_eq!(failed(&checks), [""; 0], "{checks:?}");
    assert_eq!(bench.node(m).annotation(keys::VERSION), Some("v1"));
    // Nothing here reaches a kubelet, and that is said.
    let certificate = checks.iter().find(|one| one.check == "certificate");
    let certificate = certificate.expect("it is listed");
    assert_eq!(certificate.result, CheckResult::NotChecked);

    // At a person's wish: the Machine is found by what its controller wrote on the Node.
    let name = format!("{}/{}", m.namespace, m.name);
    let link = json!({"metadata": {"annotations": {"machine.openshift.io/machine": name}}});
    bench.patch_node(m, link);
    let checks = bench.executor.verify_node(&m.name, &expect()).await;
    let checks = checks.expect("a Node");
    let labels = checks.iter().find(|one| one.check == "labels");
    let labels = labels.expect("it is listed");
    assert_eq!(labels.result, CheckResult::Ok, "{checks:?}");
    assert!(labels.said.ends_with("of its template"), "{}", labels.said);
    // Only a person's command asks for a log, and no pod is there.
    let logs = checks.iter().find(|one| one.check == "logs");
    let logs = logs.expect("it is listed");
    assert_eq!(logs.result, CheckResult::NotChecked, "{}", logs.said);
    assert!(bench.executor.verify_node("none", &expect()).await.is_err());
}
