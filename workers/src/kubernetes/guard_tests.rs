//! Which Node is whose, and what time an answer has.

use super::*;
use serde_json::json;

fn machine(uid: Option<&str>, provider_id: Option<&str>) -> DynamicObject {
    let node_ref = json!({"kind": "Node", "name": "win-1", "uid": uid});
    serde_json::from_value(json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
        "metadata": {"name": "m"},
        "spec": {"providerID": provider_id}, "status": {"nodeRef": node_ref},
    }))
    .expect("a Machine")
}

fn unlinked(noted: Option<&str>, provider_id: Option<&str>) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
        "metadata": {"name": "m", "annotations": {keys::NODE_NAME: noted.unwrap_or("")}},
        "spec": {"providerID": provider_id},
    }))
    .expect("a Machine")
}

fn node(name: &str, uid: &str, provider_id: Option<&str>) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": uid, "labels": {OS: "windows"}},
        "spec": {"providerID": provider_id},
    }))
    .expect("a Node")
}

fn refused(machine: &DynamicObject, node: &Node) -> Option<FenceRefusal> {
    is_of(machine, node).err().map(|refused| refused.why)
}

#[test]
fn a_node_is_its_machines_by_uid_or_else_by_name_and_provider_id() {
    use FenceRefusal::NotItsNode;
    let one = Some("aws:///zone/i-1");
    let two = Some("aws:///zone/i-2");
    let table = [
        // The UID decides, whatever the providerIDs say.
        (machine(Some("u"), one), node("win-1", "u", two), None),
        // The Node registered again, and no controller renewed the nodeRef.
        (machine(Some("u"), one), node("win-1", "v", one), None),
        (
            machine(Some("u"), one),
            node("win-1", "v", two),
            Some(NotItsNode),
        ),
        (
            machine(Some("u"), one),
            node("win-1", "v", None),
            Some(NotItsNode),
        ),
        (
            machine(Some("u"), None),
            node("win-1", "v", None),
            Some(NotItsNode),
        ),
        (
            machine(Some("u"), one),
            node("win-2", "u", one),
            Some(NotItsNode),
        ),
        // Cluster API v1beta2: a name alone.
        (machine(None, one), node("win-1", "u", one), None),
        (
            machine(None, one),
            node("win-1", "u", two),
            Some(NotItsNode),
        ),
        (
            machine(None, one),
            node("win-1", "u", None),
            Some(NotItsNode),
        ),
        (
            machine(None, one),
            node("win-1", "u", Some("AWS:///zone/I-1")),
            Some(NotItsNode),
        ),
        (machine(None, None), node("win-1", "u", one), None),
        // There is no nodeRef yet, and the host's claim to a name proves nothing by itself.
        (unlinked(Some("win-1"), one), node("win-1", "u", one), None),
        (
            unlinked(Some("win-1"), one),
            node("win-1", "u", two),
            Some(NotItsNode),
        ),
        (
            unlinked(Some("win-1"), None),
            node("win-1", "u", None),
            Some(NotItsNode),
        ),
        (
            unlinked(None, one),
            node("win-1", "u", one),
            Some(NotItsNode),
        ),
    ];
    for (at, (machine, node, why)) in table.into_iter().enumerate() {
        assert_eq!(refused(&machine, &node), why, "row {at}");
    }
}

#[test]
fn no_other_system_and_no_control_plane() {
    let machine = machine(Some("u"), None);
    let with = |labels: Value| {
        let node = json!({"metadata": {"name": "win-1", "uid": "u", "labels": labels}});
        let node: Node = serde_json::from_value(node).expect("a Node");
        refused(&machine, &node)
    };
    assert_eq!(with(json!({OS: "windows"})), None);
    assert_eq!(with(json!({OS: "linux"})), Some(FenceRefusal::NotWindows));
    assert_eq!(with(json!({})), Some(FenceRefusal::NotWindows));
    for role in CONTROL_PLANE {
        let why = with(json!({OS: "windows", role: ""}));
        assert_eq!(why, Some(FenceRefusal::ControlPlane), "{role}");
    }
}

#[test]
fn a_refusal_has_a_code_and_a_text_of_its_own() {
    let of = |why| Refused::new(why, "it says so").failure();
    for (why, code, retry) in [
        (FenceRefusal::NotWindows, "NodeNotWindows", false),
        (FenceRefusal::ControlPlane, "NodeIsControlPlane", false),
        (FenceRefusal::NotItsNode, "NotItsNode", true),
        (FenceRefusal::Stopped, "PoolStopped", true),
        (FenceRefusal::Paused, "MachinePaused", true),
        (FenceRefusal::OtherDormer, "OtherDormer", false),
    ] {
        let failure = of(why);
        assert_eq!((failure.code.as_str(), failure.retry), (code, retry));
        assert_eq!(failure.message, "it says so");
    }
}

#[test]
fn a_date_header_is_read() {
    let text = "Sun, 06 Nov 1994 08:49:37 GMT";
    assert_eq!(http_date(text), Some(784_111_777_000));
    assert_eq!(http_date("yesterday"), None);
}
