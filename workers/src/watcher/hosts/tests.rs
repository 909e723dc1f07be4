//! What follows from entries, hosts, names and Nodes, as a table.

use super::{super::view::ObservedObject, *};
use dormer_proto::machine::NodeFact;

fn host(name: &str, address: &str, more: Value) -> (String, HostObject) {
    let mut object = json!({"metadata": {"name": name, "uid": format!("uid-{name}"),
        "namespace": "dormer", "finalizers": [keys::HOST_FINALIZER],
        "annotations": {keys::HOST_POOL: "windows"},
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
fn shown(plan: &HostPlan) -> Vec<String> {
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
        let shown = shown(&plan(&objects, map.as_ref(), &resolved, &view, "windows"));
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
    let first = plan(&objects, None, &resolved, &view, "windows");
    let [Action::Status { status, .. }] = &first.actions[..] else {
        panic!("{first:?}");
    };
    objects.get_mut("uid-a").expect("it is there").status = status.clone();
    assert_eq!(
        plan(&objects, None, &resolved, &view, "windows"),
        HostPlan::default()
    );
}

#[test]
fn a_host_that_leaves_is_still_linked_to_its_node() {
    let mut out = leaving();
    merge(
        &mut out,
        json!({"metadata": {"annotations": {keys::NODE_NAME: "win-a"}},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.5"}],
                "nodeRef": {"name": "old", "uid": "node-old"}}}),
    );
    Case {
        hosts: vec![host("a", "10.0.0.5", out)],
        map: None,
        nodes: vec![node("win-a", "10.0.0.5")],
    }
    .shows(&["a: - - win-a"]);
}

#[test]
fn a_link_stays_only_while_its_node_stands_and_a_login_has_found_it() {
    let linked = |login: Option<&str>, to: &str| {
        let notes = login.map(|name| (keys::NODE_NAME, name));
        let notes: BTreeMap<_, _> = notes.into_iter().collect();
        json!({"metadata": {"annotations": notes},
            "status": {"nodeRef": {"name": to, "uid": format!("node-{to}")}}})
    };
    Case {
        hosts: vec![
            host("gone", "10.0.0.5", linked(Some("lost"), "lost")),
            host("moved", "10.0.0.6", linked(Some("win-b"), "win-b")),
            host("typo", "10.0.0.7", linked(Some("win-x"), "win-c")),
            host("unread", "10.0.0.8", linked(None, "win-c")),
        ],
        map: None,
        nodes: vec![node("win-b", "10.0.9.9"), node("win-c", "10.0.9.8")],
    }
    .shows(&[
        "gone: Addressed 10.0.0.5 -",
        "moved: Addressed 10.0.0.6 win-b",
        "typo: Addressed 10.0.0.7 -",
        "unread: Addressed 10.0.0.8 -",
    ]);
}

#[test]
fn too_many_entries_remove_no_host() {
    let (uid, last) = host("10.200.0.1", "10.200.0.1", of_map(json!({})));
    let objects = BTreeMap::from([(uid, last)]);
    let entry = |n: usize| {
        (
            format!("10.{}.{}.{}", n / 65_536, n / 256 % 256, n % 256),
            "username=core".to_owned(),
        )
    };
    let removed = |map: &BTreeMap<String, String>| {
        let plan = plan(
            &objects,
            Some(map),
            &BTreeMap::new(),
            &View::default(),
            "windows",
        );
        let removed = plan.actions.iter();
        let removed = removed.filter(|action| matches!(action, Action::Delete { .. }));
        (removed.count(), plan.findings.get(INSTANCES).cloned())
    };
    let mut map: BTreeMap<_, _> = (0..HOSTS_MAX).map(entry).collect();
    assert_eq!(removed(&map), (1, None), "it has no entry");
    map.insert("10.200.0.1".into(), "username=core".into());
    let (count, why) = removed(&map);
    assert_eq!(count, 0);
    let why = why.expect("a finding");
    assert!(why.contains("5001 entries"), "{why}");
}

fn of_pool(named: Value, holder: Value) -> Value {
    let finalizers = match holder.as_str() {
        Some("") => json!(["a.person/own"]),
        _ => json!(["a.person/own", keys::HOST_FINALIZER]),
    };
    json!({"metadata": {"finalizers": finalizers, "annotations": {keys::HOST_POOL: holder}},
        "spec": {"pool": named}})
}

#[test]
fn only_the_dormer_whose_pool_is_named_writes_on_a_host() {
    let leaves = |mut host: Value| {
        merge(&mut host, leaving());
        merge(
            &mut host,
            json!({"metadata": {"labels": {keys::IGNORE: "true"}}}),
        );
        host
    };
    let other = json!("other");
    let ours = json!("windows");
    Case {
        hosts: vec![
            host("a", "10.0.0.5", of_pool(ours.clone(), ours.clone())),
            host("b", "10.0.0.6", of_pool(other.clone(), json!(""))),
            host("c", "10.0.0.7", of_pool(other.clone(), other.clone())),
            // It comes over, once the other dormer has let it go.
            host("d", "10.0.0.8", of_pool(ours.clone(), other.clone())),
            host("e", "10.0.0.9", of_pool(ours.clone(), json!(""))),
            // Its present manager removes it, whatever its spec names by now.
            host(
                "f",
                "10.0.0.10",
                leaves(of_pool(ours.clone(), other.clone())),
            ),
            host("g", "10.0.0.11", leaves(of_pool(other, ours))),
        ],
        map: None,
        nodes: vec![],
    }
    .shows(&[
        "a: Addressed 10.0.0.5 -",
        "finalizers of e: [\"a.person/own\",\"dormer.io/host\"]",
        "e: Addressed 10.0.0.9 -",
        "finalizers of g: [\"a.person/own\"]",
        "! d: the dormer of the pool other still holds it",
    ]);
}

#[test]
fn a_host_whose_pool_changes_is_let_go_once_its_run_has_ended() {
    let (uid, moved) = host("a", "10.0.0.5", of_pool(json!("other"), json!("windows")));
    let objects = BTreeMap::from([(uid.clone(), moved)]);
    let planned = |view: &View| plan(&objects, None, &BTreeMap::new(), view, "windows");
    let before = planned(&View::new(&[uid]));
    assert_eq!(before.actions, [], "its run is under way");
    let why = &before.findings["a"];
    assert!(why.contains("other now"), "{why}");
    let after = planned(&View::new(&[]));
    let [Action::Patch { change, .. }] = &after.actions[..] else {
        panic!("{after:?}");
    };
    assert_eq!(change["metadata"]["finalizers"], json!(["a.person/own"]));
    let pool = change["metadata"]["annotations"].get(keys::HOST_POOL);
    assert_eq!(pool, Some(&Value::Null));
}

/// An API server that answers each patch of a status but that of hosts whose names begin with `hang`.
fn hosts_of(patched: std::sync::Arc<std::sync::Mutex<Vec<String>>>) -> Hosts {
    use kube::client::Body;
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let name = request.uri().path().split('/').rev().nth(1);
        let name = name.unwrap_or_default().to_owned();
        let patched = patched.clone();
        async move {
            if name.starts_with("hang") {
                std::future::pending::<()>().await;
            }
            let object = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsHost",
                "metadata": {"name": name, "uid": format!("uid-{name}")},
                "spec": {"address": "10.0.0.5"}});
            patched.lock().expect("no panic").push(name);
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(
                object.to_string().into_bytes(),
            )))
        }
    });
    Hosts::new(Client::new(service, "dormer"), "dormer", "windows")
}

#[tokio::test(start_paused = true)]
async fn writes_that_hang_hold_no_other_hosts() {
    let patched = std::sync::Arc::default();
    let mut hosts = hosts_of(std::sync::Arc::clone(&patched));
    let names: Vec<_> = (0..WRITES_AT_ONCE)
        .map(|n| format!("hang-{n}"))
        .chain(["well".to_owned()])
        .collect();
    let actions = || {
        let status = |name: &String| Action::Status {
            name: name.clone(),
            status: json!({}),
        };
        names.iter().map(status).collect::<Vec<_>>()
    };
    let mut findings = BTreeMap::new();
    hosts.write_all(actions(), &mut findings).await;
    assert_eq!(*patched.lock().expect("no panic"), ["well"]);
    assert_eq!(findings.len(), WRITES_AT_ONCE, "{findings:?}");
    // The next pass does not wait for them at all.
    let begun = Instant::now();
    hosts.write_all(actions(), &mut BTreeMap::new()).await;
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(patched.lock().expect("no panic").len(), 2);
}
