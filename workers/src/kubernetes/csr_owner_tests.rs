//! Whose name and whose Node it must be: what a host may say of itself, and what the cluster has.

use super::*;
use serde_json::{Value, json};

const UID: &str = "m-1";

/// The Machine `win-1` of a platform that gives it no name.
fn machine() -> Value {
    json!({"metadata": {"name": "win-1", "uid": UID, "labels": {keys::OS_ID: "Windows"}},
        "spec": {"providerID": "none:///1"},
        "status": {"phase": "Provisioned",
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}})
}

/// The same of AWS, with the name that AWS gives it.
fn of_aws() -> Value {
    let mut machine = machine();
    machine["spec"]["providerSpec"] = json!({"value": {"kind": "AWSMachineProviderConfig"}});
    let name = json!({"type": "InternalDNS", "address": "IP-10-0-0-7.ec2.internal."});
    machine["status"]["addresses"] = json!([name]);
    machine
}

fn node(uid: &str, provider: Option<&str>) -> Value {
    json!({"metadata": {"name": "win-1", "uid": uid, "labels": {"kubernetes.io/os": "windows"}},
        "spec": {"providerID": provider}})
}

fn expected(name: &str) -> CsrExpectation {
    CsrExpectation {
        node_name: name.into(),
        provider_id: Some("none:///1".into()),
        machine: Some(MachineRef::default()),
        configured: true,
        ..CsrExpectation::default()
    }
}

fn cluster_state(machine: Value, node: Option<Value>) -> ClusterState {
    ClusterState {
        machine: Some(serde_json::from_value(machine).expect("a Machine")),
        node: node.map(|node| serde_json::from_value(node).expect("a Node")),
        claimed_by: None,
    }
}

/// A first request is refused, and the answer says this.
#[track_caller]
fn refused(expect: &CsrExpectation, cluster: &ClusterState, word: &str) {
    let why = check(expect, cluster, true).expect_err(word);
    assert!(why.contains(word), "{why}: it should speak of {word}");
}

#[test]
fn a_name_is_the_machines_own() {
    let aws = cluster_state(of_aws(), None);
    assert_eq!(
        check(&expected("ip-10-0-0-7.ec2.internal"), &aws, true),
        Ok(())
    );
    for foreign in ["win-1", "master-0", "ip-10-0-0-70.ec2.internal"] {
        refused(&expected(foreign), &aws, "none of its Machine's names");
        let pattern = CsrExpectation {
            node_names: Some("*".into()),
            ..expected(foreign)
        };
        refused(&pattern, &aws, "none of its Machine's names");
    }
    let bare = cluster_state(machine(), None);
    assert_eq!(check(&expected("win-1"), &bare, true), Ok(()));
    refused(
        &expected("master-0"),
        &bare,
        "not its Machine's name, win-1",
    );
    let fits = |name: &str| CsrExpectation {
        node_names: Some("win-*".into()),
        ..expected(name)
    };
    assert_eq!(check(&fits("win-7"), &bare, true), Ok(()));
    refused(&fits("master-0"), &bare, "does not fit win-*");
    let mut linked = machine();
    linked["status"]["nodeRef"] = json!({"name": "win-77", "uid": "n-1"});
    let renewal = check(&expected("win-77"), &cluster_state(linked, None), false);
    assert_eq!(renewal, Ok(()), "a Node that joined under another build");
    let claimed = ClusterState {
        claimed_by: Some("win-7".into()),
        ..bare
    };
    refused(&fits("win-7"), &claimed, "another machine, win-7");
    let mut vsphere = machine();
    vsphere["spec"]["providerSpec"] = json!({"value": {"kind": "VSphereMachineProviderSpec"}});
    let vsphere = cluster_state(vsphere, None);
    assert_eq!(check(&expected("win-1"), &vsphere, true), Ok(()));
    refused(&fits("win-7"), &vsphere, "none of its Machine's names");
}

#[test]
fn a_pattern_has_one_star_for_any_characters() {
    for (pattern, name, so) in [
        ("win-*", "win-1", true),
        ("win-*", "win-", true),
        ("win-*", "xwin-1", false),
        ("w*-prod", "win-1-prod", true),
        ("w*-prod", "w-prod", true),
        ("win-*-1", "win-1", false),
        ("win-1", "win-1", true),
        ("win-1", "win-10", false),
    ] {
        assert_eq!(fits(pattern, name), so, "{pattern} {name}");
    }
}

#[test]
fn a_node_of_that_name_must_be_this_machines() {
    let mut taken = expected("win-1");
    taken.node_uid = Some("n-1".into());
    for first in [true, false] {
        let ask = |node: Value| check(&taken, &cluster_state(machine(), Some(node)), first);
        assert_eq!(ask(node("n-1", None)), Ok(()), "the one that the run took");
        let another = ask(node("n-2", None)).expect_err("another one");
        assert!(another.contains("nothing says"), "{another}");
        let foreign = ask(node("n-1", Some("none:///2"))).expect_err("another instance's");
        assert!(foreign.contains("belongs to none:///2"), "{foreign}");
        let named = |id| {
            let cluster = cluster_state(machine(), Some(node("n-1", id)));
            foreign_node(&taken, &cluster).map(|it| it.to_string())
        };
        assert_eq!(named(Some("none:///2")), Some(foreign));
        assert_eq!(named(None), None);
        let mut linux = node("n-1", Some("none:///1"));
        linux["metadata"]["labels"]["kubernetes.io/os"] = "linux".into();
        let linux = ask(linux).expect_err("a Linux node");
        assert!(linux.contains("runs linux"), "{linux}");
        let mut master = node("n-1", Some("none:///1"));
        master["metadata"]["labels"]["node-role.kubernetes.io/master"] = "".into();
        let master = ask(master).expect_err("of the control plane");
        assert!(master.contains("control plane"), "{master}");
    }
    let unknown = cluster_state(machine(), Some(node("n-1", None)));
    refused(&expected("win-1"), &unknown, "nothing says");
}

#[test]
fn a_node_that_is_there_was_torn_down_or_has_just_come() {
    let ours = || node("n-1", Some("none:///1"));
    let known = CsrExpectation {
        node_uid: Some("n-1".into()),
        ..expected("win-1")
    };
    assert_eq!(
        check(&known, &cluster_state(machine(), Some(ours())), true),
        Ok(()),
        "born in this bring-up"
    );
    let older = expected("win-1");
    refused(
        &older,
        &cluster_state(machine(), Some(ours())),
        "the Node exists",
    );
    let mut carries = ours();
    carries["metadata"]["annotations"] = json!({keys::VERSION: "v1"});
    refused(
        &known,
        &cluster_state(machine(), Some(carries)),
        "the Node exists",
    );
    let served = CsrExpectation {
        served: true,
        ..known
    };
    refused(
        &served,
        &cluster_state(machine(), Some(ours())),
        "the Node exists",
    );
    refused(
        &served,
        &cluster_state(machine(), Some(ours())),
        "its host has to be set up again",
    );
    let torn = CsrExpectation {
        torn_down: Some(dormer_proto::id::LeaseToken(7)),
        ..served
    };
    for (mark, so) in [
        (None, false),
        (Some("7 open"), true),
        (Some("7 closed"), false),
        (Some("8 open"), false),
        (Some("6 open"), false),
    ] {
        let mut node = ours();
        node["metadata"]["annotations"] = json!({keys::FENCE: mark});
        if mark.is_none() {
            node["metadata"]["annotations"] = json!({});
        }
        let answer = check(&torn, &cluster_state(machine(), Some(node)), true);
        assert_eq!(answer.is_ok(), so, "{mark:?}: {answer:?}");
    }
}

#[test]
fn a_machine_that_is_linked_elsewhere_or_leaves_gets_nothing() {
    let name = "ip-10-0-0-7.ec2.internal";
    let with = |change: &dyn Fn(&mut Value)| {
        let mut machine = of_aws();
        change(&mut machine);
        cluster_state(machine, None)
    };
    let expect = expected(name);
    let gone = with(&|it| it["status"]["nodeRef"] = json!({"name": name, "uid": "n-1"}));
    refused(&expect, &gone, "which is gone");
    let torn = CsrExpectation {
        torn_down: Some(dormer_proto::id::LeaseToken(7)),
        ..expect.clone()
    };
    refused(&torn, &gone, "which is gone");
    let open = with(&|it| {
        it["status"]["nodeRef"] = json!({"name": name, "uid": "n-1"});
        it["metadata"]["annotations"] = json!({keys::FENCE: "7 open"});
    });
    assert_eq!(check(&torn, &open, true), Ok(()), "deleted in its upgrade");
    let other = with(&|it| it["status"]["nodeRef"] = json!({"name": "win-9", "uid": "n-1"}));
    refused(&expect, &other, "another Node, win-9");
    for phase in [json!(null), json!("Failed"), json!("Deleting")] {
        let odd = with(&|it| it["status"]["phase"] = phase.clone());
        refused(&expect, &odd, "in phase");
    }
    let changed = with(&|it| it["spec"]["providerID"] = "none:///2".into());
    refused(&expect, &changed, "the provider id");
    let leaving = with(&|it| it["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    refused(&expect, &leaving, "being deleted");
    let ignored = with(&|it| it["metadata"]["labels"][keys::IGNORE] = "true".into());
    refused(&expect, &ignored, "ignore=true");
    let linux = with(&|it| it["metadata"]["labels"][keys::OS_ID] = "Linux".into());
    refused(&expect, &linux, "=Windows");
    refused(&expect, &ClusterState::default(), "is gone");
    let late = CsrExpectation {
        configured: false,
        ..expect.clone()
    };
    refused(&late, &with(&|_| {}), "not configured");
    let old = CsrExpectation {
        machine: None,
        ..expect
    };
    refused(&old, &with(&|_| {}), "older engine");
}

#[test]
fn one_machine_of_two_apis_does_not_claim_its_own_name() {
    use MachineApi::{ClusterV1Beta2, Host, OpenShift};
    let of = |id: Option<&str>, speaks: Option<&str>| -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": "win-1", "uid": "m"},
            "spec": {"providerID": id}, "status": {"authoritativeAPI": speaks}}))
        .expect("a machine")
    };
    let says = Some("MachineAPI");
    for (ours, theirs, speaks, same) in [
        (Some("azure:///a"), Some("azure:///A"), None, true),
        (Some("azure:///a"), Some("azure:///b"), says, false),
        (None, Some("azure:///b"), says, true),
        (None, None, None, false),
    ] {
        let one = (OpenShift, &of(ours, speaks));
        let two = (ClusterV1Beta2, &of(theirs, None));
        assert!(claims(two.1, "WIN-1"));
        assert_eq!(is_same_machine(one, two), same, "{ours:?} {theirs:?}");
        assert_eq!(is_same_machine(two, one), same, "{ours:?} {theirs:?}");
    }
    let host = (Host, &of(None, None));
    assert!(!is_same_machine(host, (OpenShift, &of(None, says))));
}

#[test]
fn a_host_of_ones_own_gets_no_name_that_another_machine_has() {
    let mut host = machine();
    host["spec"] = json!({"address": "win-1"});
    host["status"]["addresses"] = json!([{"type": "Hostname", "address": "win-1"}]);
    host["apiVersion"] = "dormer.io/v1beta1".into();
    host["kind"] = "WindowsHost".into();
    let expect = CsrExpectation {
        provider_id: None,
        ..expected("win-1")
    };
    let free = cluster_state(host, None);
    assert_eq!(check(&expect, &free, true), Ok(()));
    let claimed = ClusterState {
        claimed_by: Some("Machine win-1".into()),
        ..free
    };
    refused(&expect, &claimed, "another machine, Machine win-1");
}
