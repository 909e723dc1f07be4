//! What follows from entries, hosts, names and Nodes, as a table.

use super::{super::view::ObservedObject, *};
use dormer_proto::machine::NodeFact;

fn host(name: &str, address: &str, more: Value) -> (String, HostObject) {
    let mut object = json!({"metadata": {"name": name, "uid": format!("uid-{name}"),
        "namespace": "dormer", "finalizers": [keys::HOST_FINALIZER],
        "creationTimestamp": "2026-11-21T06:00:00Z"},
        "spec": {"address": address, "user": "core"}});
    merge(&mut object, more);
    let meta = ObjectMeta::deserialize(&object["metadata"]).expect("metadata");
    let known = HostObject {
        meta,
        spec: Ok(WindowsHostSpec::deserialize(&object["spec"]).expect("a spec")),
        status: object["status"].clone(),
    };
    (format!("uid-{name}"), known)
}

fn merge(into: &mut Value, more: Value) {
    match more {
        Value::Object(fields) => {
            for (key, value) in fields {
                merge(&mut into[key], value);
            }
        }
        value => *into = value,
    }
}

fn of_map(more: Value) -> Value {
    let mut all = json!({"metadata": {"annotations": {keys::HOST_FROM: INSTANCES}}});
    merge(&mut all, more);
    all
}

fn leaving() -> Value {
    json!({"metadata": {"deletionTimestamp": "2026-11-22T06:00:00Z"}})
}

/// Actions and findings in short; statuses only by what they say of acceptance and Node.
fn shown(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for action in &plan.actions {
        lines.push(match action {
            Action::Create { name, user } => format!("create {name} for {user}"),
            Action::Delete { name, .. } => format!("delete {name}"),
            Action::Patch { name, change } => match &change["spec"]["user"] {
                Value::String(user) => format!("user of {name}: {user}"),
                _ => format!("finalizers of {name}: {}", change["metadata"]["finalizers"]),
            },
            Action::Status { name, status } => {
                let condition = &status["conditions"][0]["reason"];
                let node = &status["nodeRef"]["name"];
                format!(
                    "{name}: {} {} {}",
                    condition.as_str().unwrap_or("-"),
                    status["addresses"][0]["address"].as_str().unwrap_or("-"),
                    node.as_str().unwrap_or("-")
                )
            }
        });
    }
    for (about, why) in &plan.findings {
        lines.push(format!("! {about}: {why}"));
    }
    lines
}

fn node(name: &str, address: &str) -> ObservedNode {
    let fact = NodeFact {
        name: name.into(),
        uid: format!("node-{name}"),
        ..NodeFact::default()
    };
    ObservedNode {
        fact,
        build: None,
        windows_worker: true,
        addresses: vec![address.into()],
        resource: 1,
    }
}

struct Case {
    hosts: Vec<(String, HostObject)>,
    map: Option<Vec<(&'static str, &'static str)>>,
    nodes: Vec<ObservedNode>,
}

impl Case {
    fn shows(self, wanted: &[&str]) {
        let objects: BTreeMap<_, _> = self.hosts.into_iter().collect();
        let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let map = self.map.map(|all| all.into_iter().map(own).collect());
        let mut resolved = BTreeMap::new();
        for (name, found) in [
            ("win-1.corp.example", Ok(Ipv4Addr::new(10, 0, 0, 5))),
            (
                "lost.example",
                Err("lost.example cannot be looked up".to_owned()),
            ),
        ] {
            resolved.insert(name.to_owned(), found);
        }
        for last in 1..20 {
            let address = Ipv4Addr::new(10, 0, 0, last);
            resolved.insert(address.to_string(), Ok(address));
        }
        let mut view = View::default();
        for node in self.nodes {
            view.observe(ObservedObject::Node(node));
        }
        let shown = shown(&plan(&objects, map.as_ref(), &resolved, &view));
        assert_eq!(shown, wanted);
    }
}

#[test]
fn entries_become_hosts_and_one_bad_entry_harms_no_other() {
    Case {
        hosts: vec![],
        map: Some(vec![
            ("10.0.0.5", "username=core"),
            ("10.0.0.6", "user=core"),
            ("win-1.corp.example", "username=Administrator"),
        ]),
        nodes: vec![],
    }
    .shows(&[
        "create 10.0.0.5 for core",
        "create win-1.corp.example for Administrator",
        "! 10.0.0.6: its entry in windows-instances cannot be read: its value is not of the form username=<user>",
    ]);
}

#[test]
fn an_entry_that_goes_takes_its_host_a_bad_one_and_a_lost_map_take_none() {
    let hosts = || {
        vec![
            host("10.0.0.5", "10.0.0.5", of_map(json!({}))),
            host("10.0.0.6", "10.0.0.6", of_map(json!({}))),
        ]
    };
    let addressed = [
        "10.0.0.5: Addressed 10.0.0.5 -",
        "10.0.0.6: Addressed 10.0.0.6 -",
    ];
    Case {
        hosts: hosts(),
        map: Some(vec![("10.0.0.6", "username=other")]),
        nodes: vec![],
    }
    .shows(&[
        "user of 10.0.0.6: other",
        "delete 10.0.0.5",
        addressed[0],
        addressed[1],
    ]);
    Case {
        hosts: hosts(),
        map: Some(vec![("10.0.0.5", "username=core"), ("10.0.0.6", "x")]),
        nodes: vec![],
    }
    .shows(&[
        addressed[0],
        addressed[1],
        "! 10.0.0.6: its entry in windows-instances cannot be read: its value is not of the form username=<user>",
    ]);
    Case {
        hosts: hosts(),
        map: None,
        nodes: vec![],
    }
    .shows(&[
        addressed[0],
        addressed[1],
        "! windows-instances: there is no ConfigMap windows-instances, and its 2 hosts stay; one without entries \
         removes them",
    ]);
}

#[test]
fn an_entry_that_comes_again_waits_until_its_old_host_is_gone() {
    Case {
        hosts: vec![host("10.0.0.5", "10.0.0.5", of_map(leaving()))],
        map: Some(vec![("10.0.0.5", "username=core")]),
        nodes: vec![],
    }
    .shows(&[]);
}

#[test]
fn two_entries_for_one_host_are_refused_and_the_older_one_serves() {
    let younger = json!({"metadata": {"creationTimestamp": "2026-11-21T07:00:00Z"}});
    let leaves = json!({"metadata": {"deletionTimestamp": "2026-11-22T06:00:00Z"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}});
    Case {
        hosts: vec![
            host("a", "win-1.corp.example", younger),
            host("b", "10.0.0.5", json!({})),
            host("c", "10.0.0.9", leaves),
            host("d", "10.0.0.9", json!({})),
        ],
        map: None,
        nodes: vec![],
    }
    .shows(&[
        "b: Addressed 10.0.0.5 -",
        "d: SameAddress - -",
        "a: SameAddress - -",
        "! a: 10.0.0.5 is the address of the WindowsHost b, too: one host is configured once",
        "! d: 10.0.0.9 is the address of the WindowsHost c, too: one host is configured once",
    ]);
}

#[test]
fn a_name_that_cannot_be_resolved_keeps_its_address_and_a_new_address_is_taken() {
    let had = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}});
    Case {
        hosts: vec![
            host("moved", "win-1.corp.example", had.clone()),
            host("kept", "lost.example", had),
            host("lost", "lost.example", json!({})),
        ],
        map: None,
        nodes: vec![],
    }
    .shows(&[
        "kept: Addressed 10.0.0.7 -",
        "lost: NoAddress - -",
        "moved: Addressed 10.0.0.5 -",
        "! lost: lost.example cannot be looked up",
    ]);
}

#[test]
fn a_node_is_the_hosts_by_its_address_and_by_the_name_that_it_said() {
    let named = |name: &str| json!({"metadata": {"annotations": {keys::NODE_NAME: name}}});
    Case {
        hosts: vec![
            host("a", "10.0.0.5", named("win-a")),
            host("b", "10.0.0.6", named("win-b")),
            host("c", "10.0.0.7", json!({})),
        ],
        map: None,
        nodes: vec![
            node("win-a", "10.0.0.5"),
            node("other", "10.0.0.6"),
            node("win-c", "10.0.0.7"),
        ],
    }
    .shows(&[
        "a: Addressed 10.0.0.5 win-a",
        "b: Addressed 10.0.0.6 -",
        "c: Addressed 10.0.0.7 win-c",
    ]);
}

#[test]
fn a_new_host_is_held_until_it_is_torn_down_and_an_ignored_one_goes_as_it_is() {
    let bare = json!({"metadata": {"finalizers": ["a.person/own"]}});
    let mut ignored = leaving();
    merge(
        &mut ignored,
        json!({"metadata": {"labels": {keys::IGNORE: "true"}}}),
    );
    Case {
        hosts: vec![
            host("new", "10.0.0.5", bare),
            host("off", "10.0.0.6", ignored),
            host("out", "10.0.0.7", leaving()),
        ],
        map: None,
        nodes: vec![],
    }
    .shows(&[
        "finalizers of new: [\"a.person/own\",\"dormer.io/host\"]",
        "new: Addressed 10.0.0.5 -",
        "finalizers of off: []",
    ]);
}

#[test]
fn what_stands_is_not_written_again() {
    let mut objects: BTreeMap<_, _> = [host("a", "win-1.corp.example", json!({}))].into();
    let resolved = BTreeMap::from([(
        "win-1.corp.example".to_owned(),
        Ok(Ipv4Addr::new(10, 0, 0, 5)),
    )]);
    let view = View::default();
    let first = plan(&objects, None, &resolved, &view);
    let [Action::Status { status, .. }] = &first.actions[..] else {
        panic!("{first:?}");
    };
    objects.get_mut("uid-a").expect("it is there").status = status.clone();
    assert_eq!(plan(&objects, None, &resolved, &view), Plan::default());
}
