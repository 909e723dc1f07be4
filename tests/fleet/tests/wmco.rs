//! The simulated WMCO: each of its rules is played, and is not when it is switched off.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_fleet::{
    World, WorldConfig,
    api::{Key, Meta, Object, Part, User, WriteOptions, kinds, kinds::Kind, patch::PatchKind},
    wmco::{
        KEY_ANNOTATION, Options, REBOOT_ANNOTATION, VERSION_ANNOTATION, Wmco,
        rules::{DEPLOYMENT, LOCK, RULES, WmcoRule},
    },
};
use dormer_profile::item::{FailureActions, Service, StartType};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::Instant;

const OPERATOR: &str = "openshift-windows-machine-config-operator";
/// What does not happen in so long never will, in the world's time.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// A world whose one Windows machine runs and has a Node, and WMCO beside it.
struct Site {
    world: World,
    wmco: Wmco,
    machine: Value,
}

fn patch(world: &World, kind: &'static Kind, key: &Key, patch: &Value) {
    let options = WriteOptions::default();
    let user = User::admin();
    let patched = world.api.patch(
        &user,
        kind,
        key,
        Part::Main,
        (PatchKind::Merge, patch),
        &options,
    );
    patched.expect("it is patched");
}

/// Looks once a second, until it is so or the patience is over.
async fn comes(world: &World, so: impl Fn() -> bool) -> bool {
    let begun = world.clock.elapsed();
    let mut poll = tokio::time::interval(Duration::from_secs(1));
    while !so() {
        if world.clock.elapsed() > begun + PATIENCE {
            return false;
        }
        poll.tick().await;
    }
    true
}

fn windows(world: &World) -> Option<Value> {
    let all = world.all(&kinds::MACHINE);
    let ours = |m: &&Arc<Object>| m.value.label("machine.openshift.io/os-id") == Some("Windows");
    all.iter().find(ours).map(|m| m.value.clone())
}

fn node(world: &World) -> Option<Value> {
    let machine = windows(world)?;
    let name = machine["status"]["nodeRef"]["name"].as_str()?.to_owned();
    let found = world
        .api
        .store()
        .get(kinds::NODE.store, &Key::new("", name))?;
    Some(found.value.clone())
}

impl Site {
    /// With a Node that an earlier WMCO configured by `key`, or without one.
    async fn new(off: Option<WmcoRule>, key: Option<&str>) -> Self {
        let config = WorldConfig {
            linux: false,
            workload: false,
            ..WorldConfig::in_memory(1)
        };
        let world = World::start(config).await.expect("a world");
        let provisioned =
            || windows(&world).is_some_and(|machine| machine["status"]["phase"] == "Provisioned");
        assert!(comes(&world, provisioned).await, "a machine");
        let machine = windows(&world).expect("a machine");
        let mut annotations = json!({});
        if let Some(key) = key {
            annotations = json!({KEY_ANNOTATION: key, VERSION_ANNOTATION: "10.20.0-1"});
        }
        let ready = json!({"type": "Ready", "status": "True"});
        let made = world.create(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": machine.name(), "annotations": annotations,
                "labels": {"kubernetes.io/os": "windows"}},
            "spec": {"providerID": machine["spec"]["providerID"]},
            "status": {"addresses": machine["status"]["addresses"], "conditions": [ready]}}));
        made.expect("a Node");
        let runs = || windows(&world).is_some_and(|m| m["status"]["phase"] == "Running");
        assert!(comes(&world, runs).await, "{:?}", windows(&world));
        let options = Options {
            off: off.into_iter().collect(),
            ..Options::default()
        };
        let wmco = Wmco::start(&world, options).expect("WMCO");
        Self {
            world,
            wmco,
            machine,
        }
    }

    fn marked(&self) -> bool {
        node(&self.world).is_some_and(|node| node.annotation(VERSION_ANNOTATION).is_some())
    }
}

/// Whether each rule has its effect, and without it has not.
async fn is_needed(rule: WmcoRule, play: impl AsyncFn(Option<WmcoRule>) -> bool) {
    assert!(play(None).await, "{rule:?} has no effect");
    assert!(!play(Some(rule)).await, "{rule:?} is switched off");
}

#[tokio::test(start_paused = true)]
async fn it_leads_for_life_in_its_own_namespace() {
    is_needed(WmcoRule::LeadsForLife, async |off| {
        let site = Site::new(off, None).await;
        assert_eq!(site.wmco.namespace(), OPERATOR);
        let world = &site.world;
        let lock = Key::new(OPERATOR, LOCK);
        let lock = || world.api.store().get(kinds::CONFIG_MAP.store, &lock);
        if !comes(world, || lock().is_some()).await {
            return false;
        }
        let owner = lock().expect("a lock").value["metadata"]["ownerReferences"][0].clone();
        let pod = Key::new(OPERATOR, owner["name"].as_str().unwrap_or_default());
        let pod = || world.api.store().get(kinds::POD.store, &pod);
        assert_eq!(owner["uid"], *pod().expect("its Pod").value.uid());
        // Scaled down, its Pod goes, and nothing is done any more.
        let scale = json!({"spec": {"replicas": 0}});
        patch(
            world,
            &kinds::DEPLOYMENT,
            &Key::new(OPERATOR, DEPLOYMENT),
            &scale,
        );
        assert!(comes(world, || pod().is_none()).await, "it stays");
        assert!(!comes(world, || site.marked()).await, "it goes on");
        true
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_deletes_machines_of_another_key() {
    is_needed(WmcoRule::DeletesOtherKeys, async |off| {
        let site = Site::new(off, Some("another")).await;
        let gone = || windows(&site.world).is_none_or(|now| now.uid() != site.machine.uid());
        let deletes = || gone() || windows(&site.world).is_some_and(|machine| machine.deleting());
        comes(&site.world, deletes).await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_configures_nodes_without_a_version_undrained() {
    is_needed(WmcoRule::ConfiguresWithoutVersion, async |off| {
        let site = Site::new(off, None).await;
        let world = &site.world;
        let pod = world.create(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"nodeName": site.machine.name(), "containers": [{"name": "web", "image": "web"}]},
            "status": {"phase": "Running"}}));
        pod.expect("a pod");
        let cordoned = || {
            node(world).is_some_and(|node| node["spec"]["unschedulable"] == true)
        };
        let marked = comes(world, || site.marked()).await;
        if marked {
            assert!(comes(world, || !cordoned()).await, "it stays cordoned");
            assert_eq!(world.record.tally().pods_evicted, 0, "nothing is drained");
        }
        marked
    })
    .await;
}

/// What dormer's worker leaves there once it wrote user data itself.
fn other_user_data(world: &World) {
    let key = Key::new("openshift-machine-api", "windows-user-data");
    let other = json!({"stringData": {"userData": "of somebody else"}});
    patch(world, &kinds::SECRET, &key, &other);
}

#[tokio::test(start_paused = true)]
async fn it_clears_keys_for_other_user_data_and_so_deletes_machines() {
    is_needed(WmcoRule::ClearsKeysForOtherUserData, async |off| {
        let site = Site::new(off, None).await;
        assert!(comes(&site.world, || site.marked()).await, "configured");
        let gone = || windows(&site.world).is_none_or(|now| now.uid() != site.machine.uid());
        let deletes = || gone() || windows(&site.world).is_some_and(|machine| machine.deleting());
        assert!(!comes(&site.world, deletes).await, "its own user data");
        other_user_data(&site.world);
        comes(&site.world, deletes).await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_reboots_a_node_that_owes_it() {
    is_needed(WmcoRule::RebootsWhatOwesIt, async |off| {
        let site = Site::new(off, None).await;
        let world = &site.world;
        assert!(comes(world, || site.marked()).await, "configured");
        let hosts = world.hosts.as_ref().expect("hosts");
        let host = hosts.host(site.machine.uid()).expect("a host");
        let boots = host.state().boots;
        let owes = json!({"metadata": {"annotations": {REBOOT_ANNOTATION: ""}}});
        let key = Key::of(&node(world).expect("a Node"));
        patch(world, &kinds::NODE, &key, &owes);
        let paid = || node(world).is_some_and(|node| node.annotation(REBOOT_ANNOTATION).is_none());
        let rebooted = comes(world, paid).await;
        assert_eq!(host.state().boots > boots, rebooted);
        rebooted
    })
    .await;
}

/// A kubelet's request for its first certificate, in the name of `node`.
fn csr(world: &World, name: &str, node: &str) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    let mut subject = rcgen::DistinguishedName::new();
    subject.push(rcgen::DnType::OrganizationName, "system:nodes");
    subject.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
    params.distinguished_name = subject;
    let request = params.serialize_request(&key).expect("a request");
    let made = world.create(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
            "request": STANDARD.encode(request.pem().expect("PEM"))},
    }));
    made.expect("a request");
}

#[tokio::test(start_paused = true)]
async fn it_approves_requests_by_a_part_of_a_name() {
    is_needed(WmcoRule::ApprovesRequests, async |off| {
        let site = Site::new(off, None).await;
        let world = &site.world;
        let instances = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "windows-instances", "namespace": OPERATOR},
            "data": {"win10.example.com": "username=Administrator"}});
        world.create(instances).expect("instances");
        csr(world, "a-part", "win1");
        csr(world, "another", "linux");
        let approved = |name: &str| {
            let found = world.api.store().get(kinds::CSR.store, &Key::new("", name));
            found.is_some_and(|csr| csr.value["status"]["conditions"][0]["reason"] == "WMCOApprove")
        };
        let one = comes(world, || approved("a-part")).await;
        assert!(!approved("another"));
        one
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn its_daemon_restores_command_lines_every_two_minutes() {
    is_needed(WmcoRule::RestoresCommandLines, async |off| {
        let site = Site::new(off, None).await;
        let hosts = site.world.hosts.as_ref().expect("hosts");
        let host = hosts.host(site.machine.uid()).expect("a host");
        let theirs = r"C:\Windows\kubelet.exe --v=2";
        let service = Service {
            name: "kubelet".into(),
            display: "kubelet".into(),
            description: String::new(),
            command: theirs.into(),
            depends: Vec::new(),
            start: StartType::Auto,
            failure: FailureActions {
                reset_seconds: 0,
                restart_delays_ms: Vec::new(),
            },
            environment: Default::default(),
            priority: None,
            running: true,
            start_timeout_ms: 30_000,
            log: None,
        };
        let created = host.state().scm.create(service, Instant::now());
        created.expect("a service");
        assert!(comes(&site.world, || site.marked()).await, "it is adopted");
        let command = || {
            let state = host.state();
            state
                .scm
                .get("kubelet")
                .map(|entry| entry.config.command.clone())
        };
        assert_eq!(command().as_deref(), Some(theirs));
        let ours = r"C:\Windows\kubelet.exe --v=4";
        if let Some(entry) = host.state().scm.get_mut("kubelet") {
            ours.clone_into(&mut entry.config.command);
        }
        let begun = site.world.clock.elapsed();
        let restored = comes(&site.world, || command().as_deref() == Some(theirs)).await;
        let took = site.world.clock.elapsed() - begun;
        assert!(!restored || took < Duration::from_secs(150), "{took:?}");
        restored
    })
    .await;
}

/// Every rule has its row, and the row's test is one of this file.
#[test]
fn each_rule_has_its_source_and_its_test() {
    let file = include_str!("wmco.rs");
    for row in RULES {
        assert!(file.contains(&format!("fn {}(", row.test)), "{}", row.test);
        assert!(
            file.contains(&format!("WmcoRule::{:?}", row.rule)),
            "{:?}",
            row.rule
        );
        assert!(row.source.ends_with(".go"), "{}", row.source);
    }
}

#[tokio::test(start_paused = true)]
async fn its_own_role_is_all_that_it_has() {
    let site = Site::new(None, None).await;
    let world = &site.world;
    let account = format!("system:serviceaccount:{OPERATOR}:{DEPLOYMENT}");
    let may = |verb: &str, resource: &str| {
        let asked = json!({"verb": verb, "resource": resource, "subresource": "", "name": "x",
            "namespace": "default"});
        world.api.tokens().may(&account, &asked)
    };
    assert!(may("delete", "machines") && may("patch", "nodes") && may("delete", "nodes"));
    assert!(!may("patch", "machines") && !may("delete", "pods") && !may("create", "nodes"));
}
