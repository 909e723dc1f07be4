//! What a canary's pods say of a node.

use super::*;
use dormer_proto::checks::CheckResult;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn node() -> Node {
    read(json!({"metadata": {"name": "win-a", "uid": "node-1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}}))
}

fn canary(node: &Node) -> Canary<'_> {
    Canary {
        node,
        image: "registry.example/agnhost:2.63.0",
        namespace: "canaries",
        domain: "corp.example",
        outbound: Some("mirror.example:443"),
    }
}

fn container(name: &str, state: Value) -> Value {
    json!({"name": name, "image": "agnhost", "imageID": "sha256:1", "ready": name == ANSWERS,
        "restartCount": 0, "state": state})
}

fn done(code: i32, message: &str) -> Value {
    json!({"terminated": {"exitCode": code, "message": message}})
}

/// A canary of which all is well.
fn healthy() -> Value {
    let node = node();
    let mut pod = canary(&node).pod();
    pod["metadata"]["uid"] = "canary-1".into();
    pod["spec"]["nodeName"] = "win-a".into();
    pod["status"] = json!({"phase": "Running", "podIP": "10.1.2.3", "containerStatuses": [
        container(ANSWERS, json!({"running": {}})),
        container(SERVICE_IP, done(0, "")),
        container(SERVICE_DNS, done(0, "")),
        container(OUTBOUND, done(0, ""))]});
    pod
}

fn results(pod: Value) -> Vec<(String, CheckResult, String)> {
    let checks = judge(&read(pod)).into_iter();
    checks.map(|it| (it.check, it.result, it.said)).collect()
}

/// The checks that fail, each with what it says.
fn failing(pod: Value) -> Vec<(String, String)> {
    let failed = results(pod).into_iter();
    let failed = failed.filter(|(_, result, _)| *result == CheckResult::Failed);
    failed.map(|(check, _, said)| (check, said)).collect()
}

#[test]
fn a_canary_that_answers_passes_each_check() {
    let all = results(healthy());
    let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
    let wanted = [
        "canary",
        "image-pull",
        "node-to-pod",
        "service-ip",
        "service-dns",
        "outbound",
    ];
    assert_eq!(names, wanted);
    assert!(
        all.iter().all(|(_, result, _)| *result == CheckResult::Ok),
        "{all:?}"
    );
}

#[test]
fn each_fault_fails_the_check_that_is_about_it() {
    let bound_nowhere = |condition: Value| {
        let mut pod = healthy();
        pod["spec"]["nodeName"] = Value::Null;
        pod["status"] = json!({"phase": "Pending", "conditions": [condition]});
        pod
    };
    let with = |at: usize, status: Value| {
        let mut pod = healthy();
        pod["status"]["containerStatuses"][at] = status;
        pod
    };
    let unready = {
        let mut pod = healthy();
        pod["status"]["containerStatuses"][0]["ready"] = false.into();
        pod
    };
    let back_off = {
        let mut status = container(
            SERVICE_DNS,
            json!({"waiting": {"reason": "CrashLoopBackOff"}}),
        );
        status["restartCount"] = 3.into();
        status["lastState"] = done(
            1,
            "DNS: lookup kubernetes.default.svc.corp.example: no such host\n",
        );
        with(2, status)
    };
    let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "no matching manifest for windows/amd64"}});
    let full = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: Insufficient memory"});
    let unread = json!({"type": "Initialized", "status": "True"});
    for (pod, check, said) in [
        (bound_nowhere(full), "canary", "Insufficient memory"),
        (bound_nowhere(unread), "canary", "not looked at"),
        (
            with(0, container(ANSWERS, waiting)),
            "image-pull",
            "ErrImagePull no matching manifest",
        ),
        (unready, "node-to-pod", "its readiness probe fails"),
        (
            with(1, container(SERVICE_IP, done(1, "TIMEOUT\n"))),
            "service-ip",
            "does not connect: TIMEOUT",
        ),
        (
            with(1, container(SERVICE_IP, json!({"running": {}}))),
            "service-ip",
            "has not connected yet",
        ),
        (back_off, "service-dns", "no such host"),
        (
            with(3, container(OUTBOUND, done(1, "TIMEOUT\n"))),
            "outbound",
            "does not connect: TIMEOUT",
        ),
    ] {
        let found = failing(pod);
        let [(name, why)] = found.as_slice() else {
            panic!("{check}: {found:?}")
        };
        assert_eq!(name, check);
        assert!(why.contains(said), "{check}: {why}");
    }
}

#[test]
fn a_peer_that_no_linux_node_runs_says_nothing_about_the_node() {
    let node = node();
    let mut peer = canary(&node).peer(&read(healthy()), "10.0.0.7:30080");
    assert_eq!(peer["spec"]["containers"][0]["args"][1], "10.1.2.3:8080");
    assert_eq!(peer["spec"]["containers"][1]["args"][1], "10.0.0.7:30080");
    let full =
        json!({"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"});
    peer["status"] = json!({"conditions": [full]});
    let result = |peer: &Value| reached(&read(peer.clone()), REACH).map_err(|(result, _)| result);
    assert_eq!(result(&peer), Err(CheckResult::NotChecked));
    peer["spec"]["nodeName"] = "linux-a".into();
    let pulls = json!({"waiting": {"reason": "ImagePullBackOff"}});
    peer["status"] = json!({"containerStatuses": [container(REACH, pulls)]});
    assert_eq!(result(&peer), Err(CheckResult::NotChecked));
    peer["status"] = json!({"containerStatuses": [container(REACH, done(1, "REFUSED"))]});
    assert_eq!(result(&peer), Err(CheckResult::Failed));
    peer["status"] = json!({"containerStatuses": [container(REACH, done(0, ""))]});
    assert!(result(&peer).is_ok_and(|said| said.contains("linux-a")));
    // The other attempt has its own result.
    let by_port = reached(&read(peer), REACH_NODE).map_err(|(result, _)| result);
    assert_eq!(
        by_port,
        Err(CheckResult::Failed),
        "it has not connected yet"
    );
}

#[test]
fn a_pod_of_another_node_image_or_canary_is_made_again() {
    let node = node();
    let of = canary(&node);
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut pod = healthy();
        change(&mut pod);
        of.outdated(&read(pod))
    };
    assert_eq!(changed(&|_| ()), None);
    type Change<'a> = &'a dyn Fn(&mut Value);
    let again: [(Change<'_>, &str); 7] = [
        // A build before the Services labelled no canary.
        (
            &|pod| pod["metadata"]["labels"] = json!({}),
            "its Service would not find it",
        ),
        (
            &|pod| pod["metadata"]["labels"][OF_NODE] = "node-0".into(),
            "its Service would not find it",
        ),
        (
            &|pod| pod["spec"]["containers"][3]["args"][1] = "else.example:443".into(),
            "another address",
        ),
        (
            &|pod| pod["metadata"]["ownerReferences"][0]["uid"] = "node-0".into(),
            "earlier Node",
        ),
        (
            &|pod| pod["spec"]["containers"][1]["image"] = "other:1".into(),
            "another image",
        ),
        (&|pod| pod["status"]["phase"] = "Failed".into(), "it failed"),
        (
            &|pod| pod["metadata"]["deletionTimestamp"] = "2026-11-27T00:00:00Z".into(),
            "deleted",
        ),
    ];
    for (change, why) in again {
        let found = changed(change).expect("it is outdated");
        assert!(found.contains(why), "{found}");
    }
    let pod: Pod = read(healthy());
    let node_port = "10.0.0.7:30080";
    let peer = of.peer(&pod, node_port);
    assert_eq!(of.peer_outdated(&read(peer.clone()), &pod, node_port), None);
    let elsewhere = of.peer_outdated(&read(peer.clone()), &pod, "10.0.0.7:30081");
    assert!(elsewhere.is_some(), "another NodePort");
    let mut later = pod;
    later.metadata.uid = Some("canary-2".into());
    assert!(of.peer_outdated(&read(peer), &later, node_port).is_some());
}

#[test]
fn without_an_address_outside_nothing_is_said_about_it() {
    let node = node();
    let mut of = canary(&node);
    of.outbound = None;
    let mut pod = of.pod();
    pod["status"] = healthy()["status"].clone();
    pod["spec"]["nodeName"] = "win-a".into();
    let all = results(pod);
    let outbound = all.iter().find(|(name, ..)| name == "outbound");
    assert_eq!(outbound.expect("it is there").1, CheckResult::NotChecked);
}

#[test]
fn a_node_port_is_an_address_of_the_node_with_the_port_of_its_service() {
    let node = node();
    let of = canary(&node);
    let mut service = of.service();
    assert_eq!(
        of.node_port(&read(service.clone())),
        None,
        "none was given yet"
    );
    assert_eq!(
        service["spec"]["selector"],
        json!({OF_NODE: of.pod()["metadata"]["labels"][OF_NODE]})
    );
    service["spec"]["ports"][0]["nodePort"] = 30_080.into();
    assert_eq!(
        of.node_port(&read(service)).as_deref(),
        Some("10.0.0.7:30080")
    );
}

#[test]
fn a_command_counts_only_if_it_ended_well_and_a_missing_right_says_nothing_of_the_node() {
    let ended = |status: Value| exec_answer("a command in Pod a/b", Ok(Some(read(status))));
    assert!(ended(json!({"status": "Success"})).is_ok());
    let failed = [
        ended(json!({"status": "Failure", "message": "exit code: 1"})),
        exec_answer("a command in Pod a/b", Ok(None)),
        refused_exec(500),
    ];
    for found in failed {
        assert_eq!(found.expect_err("it failed").0, CheckResult::Failed);
    }
    let (result, why) = refused_exec(403).expect_err("it was not run");
    assert_eq!(result, CheckResult::NotChecked);
    assert!(why.contains("may not exec a command in Pod a/b"), "{why}");
}

fn refused_exec(code: u16) -> Checked {
    let status = kube::core::Status::failure("refused", "Reason").with_code(code);
    exec_answer(
        "a command in Pod a/b",
        Err(kube::Error::Api(Box::new(status))),
    )
}
