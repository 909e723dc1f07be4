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
    // It is empty, and the cluster autoscaler would take it.
    let kept = || {
        [keys::NO_SCALE_DOWN, keys::HELD_FROM_SCALE_DOWN]
            .map(|key| bench.node(m).annotation(key).map(str::to_owned))
    };
    let yes = || Some("true".to_owned());
    assert_eq!(kept(), [yes(), yes()]);

    let build = json!({"metadata": {"labels": {"node.kubernetes.io/windows-build": "10.0.20348"}}});
    bench.patch_node(m, build);
    let Ok(Outcome::NodeChecked { checks }) = bench.run(mark(m)).await else {
        panic!("it is checked")
    };
    assert_eq!(failed(&checks), [""; 0], "{checks:?}");
    assert_eq!(bench.node(m).annotation(keys::VERSION), Some("v1"));
    assert_eq!(kept(), [None, None]);
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

/// Its machine has failed by then, and nothing else would let the cluster autoscaler remove the Node.
#[tokio::test]
async fn a_node_that_fails_its_checks_for_good_is_left_to_the_autoscaler() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let kept = || {
        [keys::NO_SCALE_DOWN, keys::HELD_FROM_SCALE_DOWN]
            .map(|key| bench.node(m).annotation(key).map(str::to_owned))
    };
    let fails = async || {
        let Ok(Outcome::NodeChecked { checks }) = bench.run(mark(m)).await else {
            panic!("it is checked")
        };
        assert!(!failed(&checks).is_empty(), "{checks:?}");
    };
    let yes = || Some("true".to_owned());
    let build = json!({"metadata": {"labels": {"node.kubernetes.io/windows-build": "10.0.17763"}}});
    bench.patch_node(m, build);
    fails().await;
    assert_eq!(kept(), [yes(), yes()]);
    bench.node_says_ready_since(m, "True", "2001-01-01T00:00:00Z");
    fails().await;
    assert_eq!(kept(), [None, None]);
    fails().await;
    assert_eq!(kept(), [None, None], "it stays so");
    // A person's own stays.
    bench.patch_node(
        m,
        json!({"metadata": {"annotations": {keys::NO_SCALE_DOWN: "true"}}}),
    );
    fails().await;
    assert_eq!(kept(), [yes(), None]);
    // Under a lease its token keeps it.
    let change = json!({"metadata": {"annotations": {keys::HELD_FROM_SCALE_DOWN: "true"}}});
    bench.patch_node(m, change);
    bench.open_at_once(m, 7);
    fails().await;
    assert_eq!(kept(), [yes(), yes()]);
}

#[tokio::test]
async fn a_persons_word_to_the_autoscaler_outlives_the_checks() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    for word in ["true", "false"] {
        bench.patch_node(
            m,
            json!({"metadata": {
                "labels": {"kubernetes.io/arch": "amd64", "node.kubernetes.io/windows-build": "10.0.20348"},
                "annotations": {keys::NO_SCALE_DOWN: word, keys::VERSION: null}}}),
        );
        let Ok(Outcome::NodeChecked { checks }) = bench.run(mark(m)).await else {
            panic!("it is checked")
        };
        assert_eq!(failed(&checks), [""; 0], "{checks:?}");
        let node = bench.node(m);
        assert_eq!(node.annotation(keys::NO_SCALE_DOWN), Some(word));
        assert_eq!(node.annotation(keys::HELD_FROM_SCALE_DOWN), None);
    }
}
