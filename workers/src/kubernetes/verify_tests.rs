//! Each check, passed, failed and not checked.

use super::*;
use crate::kubernetes::kubelet::Leaf;
use serde_json::json;

struct World {
    node: Value,
    machine: Option<(MachineApi, Value)>,
    pods: Result<Vec<Value>, String>,
    kubelet: ServingCertificate,
    expect: NodeExpectation,
}

fn leaf() -> Leaf {
    Leaf {
        names: vec!["win-a".into(), "10.0.0.5".into()],
        self_signed: false,
        until_ms: 2_000_000_000_000,
    }
}

/// A node with which nothing is wrong.
fn healthy() -> World {
    World {
        node: json!({"metadata": {"name": "win-a", "labels": {"kubernetes.io/os": "windows",
                "kubernetes.io/arch": "amd64", "node.kubernetes.io/windows-build": "10.0.20348",
                "team": "blue"}},
            "spec": {"taints": [{"key": "os", "value": "Windows", "effect": "NoSchedule"}]},
            "status": {"nodeInfo": {"kubeletVersion": "v1.33.4", "architecture": "amd64",
                "bootID": "", "containerRuntimeVersion": "containerd://2.1.4", "kernelVersion": "",
                "kubeProxyVersion": "", "machineID": "", "operatingSystem": "windows",
                "osImage": "", "systemUUID": ""},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.5"}],
                "conditions": [{"type": "Ready", "status": "True",
                    "lastTransitionTime": "2026-11-23T05:00:00Z"}]}}),
        machine: Some((
            MachineApi::OpenShift,
            json!({"metadata": {"name": "win-a", "namespace": "m"},
                "spec": {"metadata": {"labels": {"team": "blue"}},
                    "taints": [{"key": "os", "value": "Windows", "effect": "NoSchedule"}]}}),
        )),
        pods: Ok(vec![pod("exporter", "DaemonSet", "True")]),
        kubelet: ServingCertificate::Certificate(leaf()),
        expect: NodeExpectation {
            kubelet_minor: Some(33),
            containerd: Some("2.1".into()),
            os_build: Some("10.0.20348".into()),
            canary: None,
            soak_ms: 30_000,
        },
    }
}

fn pod(name: &str, owner: &str, ready: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "monitoring", "ownerReferences": [{"apiVersion":
            "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": true}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

impl World {
    fn checks(self) -> Vec<NodeCheck> {
        let node: Node = serde_json::from_value(self.node).expect("a Node");
        let at: jiff::Timestamp = "2026-11-23T05:01:00Z".parse().expect("a time");
        let live = LiveNode {
            node,
            at_ms: Some(at.as_millisecond()),
        };
        let object = self.machine.map(|(api, mut value)| {
            value["apiVersion"] = "v1".into();
            value["kind"] = "Machine".into();
            let object: DynamicObject = serde_json::from_value(value).expect("an object");
            (api, object)
        });
        let pods = self.pods.map(|all| {
            let read = |pod| serde_json::from_value(pod).expect("a pod");
            all.into_iter().map(read).collect()
        });
        let read = NodeReading {
            live: &live,
            machine: object
                .as_ref()
                .map(|(api, object)| (*api, object))
                .ok_or_else(|| "its Machine is not known".to_owned()),
            pods,
            kubelet: self.kubelet,
        };
        judge(&read, &self.expect)
    }
}

/// Changes one property, and expects that only this check reports it.
fn only(check: &str, result: CheckResult, part: &str, change: impl FnOnce(&mut World)) {
    let mut world = healthy();
    change(&mut world);
    let amiss: Vec<_> = world
        .checks()
        .into_iter()
        .filter(|one| one.result != CheckResult::Ok)
        .collect();
    let [one] = &amiss[..] else {
        panic!("{check}: {amiss:?}")
    };
    assert_eq!((one.check.as_str(), one.result), (check, result), "{one:?}");
    assert!(one.said.contains(part), "{part}: {}", one.said);
}

fn breaks(check: &str, part: &str, change: impl FnOnce(&mut World)) {
    only(check, CheckResult::Failed, part, change);
}

fn hides(check: &str, part: &str, change: impl FnOnce(&mut World)) {
    only(check, CheckResult::NotChecked, part, change);
}

#[test]
fn a_healthy_node_passes_every_check() {
    let checks = healthy().checks();
    let names: Vec<_> = checks.iter().map(|one| one.check.as_str()).collect();
    let wanted = [
        "version",
        "runtime",
        "os",
        "arch",
        "windows-build",
        "labels",
        "taints",
        "certificate",
        "daemonsets",
        "settled",
    ];
    assert_eq!(names, wanted);
    let amiss: Vec<_> = checks
        .iter()
        .filter(|one| one.result != CheckResult::Ok)
        .collect();
    assert!(amiss.is_empty(), "{amiss:?}");
}

#[test]
fn labels_and_versions_of_the_node_are_compared() {
    let label = |key: &'static str, value: Value| {
        move |world: &mut World| world.node["metadata"]["labels"][key] = value
    };
    let os = "kubernetes.io/os";
    breaks("os", "linux, not windows", label(os, json!("linux")));
    breaks("arch", "arm64", label("kubernetes.io/arch", json!("arm64")));
    let build = "node.kubernetes.io/windows-build";
    breaks(
        "windows-build",
        "10.0.17763",
        label(build, json!("10.0.17763")),
    );
    breaks("labels", "team=blue", label("team", json!("red")));
    breaks("version", "v1.32.9", |world| {
        world.node["status"]["nodeInfo"]["kubeletVersion"] = "v1.32.9".into();
    });
    breaks("version", "v1.3.3", |world| {
        world.node["status"]["nodeInfo"]["kubeletVersion"] = "v1.3.3".into();
    });
    for (runs, part) in [
        (
            "containerd://2.3.7",
            "containerd is 2.3.7, and the payload's is 2.1",
        ),
        ("containerd://2.10.0", "containerd is 2.10.0"),
        ("docker://20.10.9", "the runtime is docker://20.10.9"),
    ] {
        breaks("runtime", part, |world| {
            world.node["status"]["nodeInfo"]["containerRuntimeVersion"] = runs.into();
        });
    }
    // `git describe --always` of a source without tags.
    hides("runtime", "0a1b2c3d, which names no release", |world| {
        world.node["status"]["nodeInfo"]["containerRuntimeVersion"] =
            "containerd://0a1b2c3d".into();
    });
    // Vendors' own endings.
    for runs in ["v2.1.5+azure", "2.1.0-rc.1"] {
        let mut vendor = healthy();
        let runtime = format!("containerd://{runs}").into();
        vendor.node["status"]["nodeInfo"]["containerRuntimeVersion"] = runtime;
        let checks = vendor.checks();
        assert!(
            checks.iter().all(|one| one.result == CheckResult::Ok),
            "{checks:?}"
        );
    }
    hides("runtime", "not known here", |world| {
        world.expect.containerd = None;
    });
    hides("version", "payload", |world| {
        world.expect.kubelet_minor = None
    });
    hides("windows-build", "logged in", |world| {
        world.expect.os_build = None
    });
}

#[test]
fn a_template_of_cluster_api_reaches_the_node_in_three_domains_only() {
    let of = |labels: Value| {
        move |world: &mut World| {
            let machine = json!({"metadata": {"name": "win-a", "labels": labels}});
            world.machine = Some((MachineApi::ClusterV1Beta1, machine));
        }
    };
    for key in [
        "node-role.kubernetes.io/web",
        "node-restriction.kubernetes.io/zone",
        "example.node-restriction.kubernetes.io/zone",
        "rack.node.cluster.x-k8s.io/n",
    ] {
        breaks("labels", key, of(json!({key: "x"})));
    }
    for key in ["team", "example.com/team", "notnode.cluster.x-k8s.io/n"] {
        let mut world = healthy();
        of(json!({key: "other"}))(&mut world);
        assert!(
            world
                .checks()
                .iter()
                .all(|one| one.result == CheckResult::Ok)
        );
    }
}

fn taint(world: &mut World, key: &str) {
    let taints = world.node["spec"]["taints"].as_array_mut();
    let one = json!({"key": key, "effect": "NoSchedule"});
    taints.expect("taints").push(one);
}

#[test]
fn a_taint_that_keeps_all_pods_away_and_one_that_is_missing_fail() {
    breaks("taints", "uninitialized", |world| {
        taint(world, "node.cloudprovider.kubernetes.io/uninitialized");
    });
    // A host that was off runs again, and these taints still stand: the first is a person's, the other the cloud's.
    for key in [
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
    ] {
        breaks("taints", key, |world| taint(world, key));
    }
    breaks("taints", "os", |world| {
        world.node["spec"]["taints"] = json!([])
    });
    breaks("taints", "os", |world| {
        world.node["spec"]["taints"][0]["effect"] = "PreferNoSchedule".into();
    });
    // The fence's cordon is dormer's own.
    let mut world = healthy();
    taint(&mut world, "node.kubernetes.io/unschedulable");
    assert!(
        world
            .checks()
            .iter()
            .all(|one| one.result == CheckResult::Ok)
    );
}

#[test]
fn a_kubelet_without_a_certificate_for_this_node_is_found() {
    let of =
        |leaf: Leaf| move |world: &mut World| world.kubelet = ServingCertificate::Certificate(leaf);
    breaks("certificate", "no serving certificate", |world| {
        world.kubelet = ServingCertificate::Nothing("internal error".into());
    });
    let own = Leaf {
        self_signed: true,
        ..leaf()
    };
    breaks("certificate", "its own", of(own));
    let other = Leaf {
        names: vec!["win-b".into()],
        ..leaf()
    };
    breaks("certificate", "win-b, not for win-a or 10.0.0.5", of(other));
    let lapsed = Leaf {
        until_ms: 1,
        ..leaf()
    };
    breaks("certificate", "lapsed", of(lapsed));
    hides("certificate", "refused", |world| {
        world.kubelet = ServingCertificate::Unknown("connection refused".into());
    });
}

#[test]
fn pods_of_daemon_sets_are_waited_for_and_others_are_not() {
    breaks("daemonsets", "monitoring/exporter", |world| {
        world.pods = Ok(vec![pod("exporter", "DaemonSet", "False")]);
    });
    let mut world = healthy();
    world.pods = Ok(vec![pod("web", "ReplicaSet", "False")]);
    assert!(
        world
            .checks()
            .iter()
            .all(|one| one.result == CheckResult::Ok)
    );
    let mut ends = pod("exporter", "DaemonSet", "False");
    ends["metadata"]["deletionTimestamp"] = json!("2026-11-23T05:00:30Z");
    let mut world = healthy();
    world.pods = Ok(vec![ends]);
    assert!(
        world
            .checks()
            .iter()
            .all(|one| one.result == CheckResult::Ok)
    );
    hides("daemonsets", "forbidden", |world| {
        world.pods = Err("forbidden".into())
    });
}

#[test]
fn a_node_that_was_not_ready_a_moment_ago_has_not_joined() {
    let ready = |status: &'static str, since: &'static str| {
        move |world: &mut World| {
            world.node["status"]["conditions"][0] =
                json!({"type": "Ready", "status": status, "lastTransitionTime": since});
        }
    };
    let long = "2026-11-23T04:00:00Z";
    breaks("settled", "not Ready", ready("False", long));
    breaks("settled", "for 10 s", ready("True", "2026-11-23T05:00:50Z"));
    hides("settled", "since when", |world| {
        world.node["status"]["conditions"][0] = json!({"type": "Ready", "status": "True"});
    });
}

#[test]
fn what_is_not_known_of_the_machine_is_not_checked() {
    let mut world = healthy();
    world.machine = None;
    let amiss: Vec<_> = world
        .checks()
        .into_iter()
        .filter(|one| one.result != CheckResult::Ok)
        .map(|one| (one.check, one.result))
        .collect();
    let not = CheckResult::NotChecked;
    assert_eq!(amiss, [("labels".into(), not), ("taints".into(), not)]);
}

#[test]
fn a_log_that_the_kubelet_does_not_give_is_another_matter_than_a_right() {
    use kube::core::Status;
    let said = |code: u16, text: &str| {
        let status = Status::failure(text, "Reason").with_code(code);
        checked(
            CheckName::Logs,
            log_answer(
                "the log of Pod a/b",
                Err(kube::Error::Api(Box::new(status))),
            ),
        )
    };
    let tls = said(500, "remote error: tls: internal error");
    assert_eq!(tls.result, CheckResult::Failed);
    assert!(tls.said.contains("tls: internal error"), "{}", tls.said);
    let forbidden = said(403, "pods/log is forbidden");
    assert_eq!(forbidden.result, CheckResult::NotChecked);
    let fine = checked(CheckName::Logs, log_answer("the log of Pod a/b", Ok(())));
    assert_eq!(fine.result, CheckResult::Ok);
}

/// The pods of a node that joins cannot be listed, and its Ready condition has no time.
#[test]
fn what_has_to_be_known_of_a_node_that_joins_fails_when_it_is_not() {
    let mut world = healthy();
    world.pods = Err("dormer may not list pods".into());
    world.kubelet = ServingCertificate::Unknown("nothing reaches port 10250".into());
    let time = world.node.pointer_mut("/status/conditions/0").expect("one");
    time["lastTransitionTime"] = Value::Null;
    let checks = world.checks().into_iter().map(NodeCheck::for_a_join);
    let not_ok: Vec<_> = checks.filter(|it| it.result != CheckResult::Ok).collect();
    let results: Vec<_> = not_ok.iter().map(|it| (&*it.check, it.result)).collect();
    assert_eq!(
        results,
        [
            ("certificate", CheckResult::NotChecked),
            ("daemonsets", CheckResult::Failed),
            ("settled", CheckResult::Failed),
        ]
    );
    assert!(not_ok[1].said.contains("dormer may not list pods"));
}
