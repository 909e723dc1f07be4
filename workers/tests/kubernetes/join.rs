//! Prerequisites of a joining kubelet: annotations of the Machine, the bootstrap token, certificates, and the Node's
//! version.

use super::bench::{Bench, Gate, executor, patch, run, run_of};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_fleet::api::{DeleteOptions, Key, Meta, Part, User, auth::NODE_BOOTSTRAPPER, kinds};
use dormer_proto::{
    id::{LeaseToken, Timestamp},
    machine::{CsrExpectation, MachineApi, MachineRef, Outcome, Task},
};
use dormer_workers::{
    host::cluster::Cluster,
    kubernetes::{EXPORTER_TLS, Settings, keys},
};
use serde_json::{Value, json};

fn mark(machine: &MachineRef, version: &str, pin: Option<&str>) -> Task {
    let node = machine.name.clone();
    let version = version.into();
    Task::MarkNode {
        machine: machine.clone(),
        node,
        version,
        pin: pin.map(str::to_owned),
        expect: None,
    }
}

/// Whose first certificate is due: the machine is configured anew in its place.
fn torn_down(bench: &Bench) -> MachineRef {
    let machine = bench.machines().remove(0);
    bench.open_at_once(&machine, 1);
    machine
}

fn approve(machine: &MachineRef, csr: &str) -> Task {
    let expect = CsrExpectation {
        node_name: machine.name.clone(),
        machine_created: Timestamp(0),
        machine: Some(machine.clone()),
        configured: true,
        torn_down: Some(LeaseToken(1)),
        served: true,
        ..CsrExpectation::default()
    };
    Task::ApproveCsr {
        csr: csr.into(),
        expect,
    }
}

/// A kubelet's request for its first certificate, made by the bootstrapper.
fn ask(bench: &Bench, name: &str, node: &str) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, format!("system:node:{node}"));
    let pem = params
        .serialize_request(&key)
        .expect("a request")
        .pem()
        .expect("PEM");
    let csr = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"], "request": STANDARD.encode(pem)},
    });
    let (_, account) = NODE_BOOTSTRAPPER.rsplit_once(':').expect("an account");
    let user = User::service_account("openshift-machine-config-operator", account);
    bench
        .world
        .api
        .create(&user, &kinds::CSR, "", csr, false)
        .expect("a request");
}

fn csr(bench: &Bench, name: &str) -> Value {
    bench
        .world
        .api
        .get(&kinds::CSR, &Key::new("", name))
        .expect("it is there")
        .value
        .clone()
}

fn decide(bench: &Bench, name: &str, kind: &str) {
    let mut value = csr(bench, name);
    value["status"]["conditions"] = json!([{"type": kind, "status": "True"}]);
    let user = User::admin();
    let key = Key::new("", name);
    let decided = bench
        .world
        .api
        .update(&user, &kinds::CSR, &key, Part::Approval, value, false);
    decided.expect("it is decided");
}

fn approved(name: &str) -> Result<Outcome, dormer_proto::message::Failure> {
    Ok(Outcome::CsrApproved { csr: name.into() })
}

#[tokio::test]
async fn a_request_that_fits_is_approved_and_signed_once() {
    let bench = Bench::new(1, false).await;
    let m = &torn_down(&bench);
    ask(&bench, "good", &m.name);
    assert_eq!(bench.run(approve(m, "good")).await, approved("good"));
    bench
        .until("it is signed", || {
            csr(&bench, "good")["status"]["certificate"].is_string()
        })
        .await;
    assert_eq!(
        bench.run(approve(m, "good")).await,
        approved("good"),
        "a repeat"
    );
    assert_eq!(
        csr(&bench, "good")["status"]["conditions"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    ask(&bench, "theirs", &m.name);
    decide(&bench, "theirs", "Approved");
    assert_eq!(
        bench.run(approve(m, "theirs")).await,
        approved("theirs"),
        "another was faster"
    );
}

/// A host that is not the machine's asks in its name, and the controller manager approves whatever a shared token asks for.
#[tokio::test]
async fn what_another_client_approved_counts_only_if_dormer_would_have_approved_it() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    ask(&bench, "theirs", &m.name);
    decide(&bench, "theirs", "Approved");
    let Task::ApproveCsr { csr: name, expect } = approve(m, "theirs") else {
        panic!("an approval")
    };
    let expect = CsrExpectation {
        torn_down: None,
        ..expect
    };
    let outcome = bench.run(Task::ApproveCsr { csr: name, expect }).await;
    let Ok(Outcome::CsrRefused { why, .. }) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(why.starts_with("somebody else approved it"), "{why}");
}

#[tokio::test]
async fn a_request_that_does_not_fit_stays_pending_and_is_reported() {
    let bench = Bench::new(1, false).await;
    let m = &torn_down(&bench);
    ask(&bench, "bad", &format!("{}0", m.name));
    for _ in 0..2 {
        let Ok(Outcome::CsrRefused { csr: name, why, .. }) = bench.run(approve(m, "bad")).await
        else {
            panic!("it is not refused")
        };
        assert_eq!(name, "bad");
        assert!(why.contains("common name"), "{why}");
    }
    assert!(csr(&bench, "bad")["status"]["conditions"].is_null());
    let events = bench.world.all(&kinds::EVENT_V1);
    let warnings =
        |e: &&std::sync::Arc<dormer_fleet::api::Object>| e.value["reason"] == "CertificateRefused";
    let warnings: Vec<_> = events.iter().filter(warnings).collect();
    assert_eq!(warnings.len(), 1, "the second raises a count");
    let text = warnings[0].value.to_string();
    assert!(
        text.contains("common name") && text.contains("bad"),
        "{text}"
    );
}

#[tokio::test]
async fn a_host_of_ones_own_gets_no_name_of_a_machine_of_another_api() {
    let bench = Bench::new(1, false).await;
    let host = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsHost",
        "metadata": {"name": "win-b", "namespace": "dormer"}, "spec": {"address": "10.0.9.9"},
        "status": {"phase": "Provisioned",
            "addresses": [{"type": "InternalIP", "address": "10.0.9.9"}]}});
    let host = bench.world.create(host).expect("a host");
    let machine = MachineRef {
        namespace: "dormer".into(),
        name: "win-b".into(),
        uid: host.value.uid().to_owned(),
        api: MachineApi::Host,
    };
    // Neither has a Node yet.
    let other = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": "win-b", "namespace": "openshift-cluster-api"}, "spec": {}});
    bench.world.create(other).expect("a machine");
    ask(&bench, "first", "win-b");
    let expect = CsrExpectation {
        node_name: "win-b".into(),
        machine: Some(machine.clone()),
        configured: true,
        ..CsrExpectation::default()
    };
    let task = Task::ApproveCsr {
        csr: "first".into(),
        expect,
    };
    let refused = run_of(&bench.executor, &machine.uid, task).await;
    let Ok(Outcome::CsrRefused { why, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert!(why.contains("another machine, Machine win-b"), "{why}");
}

#[tokio::test]
async fn a_denial_stands() {
    let bench = Bench::new(1, false).await;
    let m = &torn_down(&bench);
    ask(&bench, "denied", &m.name);
    decide(&bench, "denied", "Denied");
    let outcome = bench.run(approve(m, "denied")).await;
    assert!(matches!(&outcome, Ok(Outcome::CsrRefused { why, .. }) if why.contains("Denied")));
    // One that denies while we decide.
    ask(&bench, "late", &m.name);
    let there = bench.clone();
    bench
        .gate
        .before(1, move || decide(&there, "late", "Denied"));
    let outcome = bench.run(approve(m, "late")).await;
    assert!(matches!(&outcome, Ok(Outcome::CsrRefused { why, .. }) if why.contains("Denied")));
}

/// What WMCO still had to do on the host is void; what it compares stays.
#[tokio::test]
async fn a_node_that_is_marked_owes_wmco_nothing() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let wmco = |key: &str| format!("windowsmachineconfig.openshift.io/{key}");
    let marks = json!({"metadata": {
        "annotations": {wmco("reboot-required"): "", wmco("version"): "11.0.0-a", wmco("pub-key-hash"): "k"},
        "labels": {wmco("upgrading"): "true"}}});
    bench.patch_node(m, marks.clone());
    bench.run(mark(m, "v1", None)).await.expect("marked");
    let node = bench.node(m);
    assert_eq!(node.annotation(keys::VERSION), Some("v1"));
    assert_eq!(node.annotation(&wmco("reboot-required")), None);
    assert_eq!(node.label(&wmco("upgrading")), None);
    assert_eq!(node.annotation(&wmco("version")), Some("11.0.0-a"));
    assert_eq!(node.annotation(&wmco("pub-key-hash")), Some("k"));
    // Marked again under the same version, too.
    bench.patch_node(m, marks.clone());
    bench.run(mark(m, "v1", None)).await.expect("marked");
    assert_eq!(bench.node(m).annotation(&wmco("reboot-required")), None);
}

/// A person trusted another key of the host meanwhile. A WMCO that came back would refuse it.
#[tokio::test]
async fn a_host_key_that_wmco_pinned_goes_once_dormer_has_another_of_its_type() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let pinned = |kind: &str, key: &str| {
        json!({"metadata": {"annotations": {
            keys::WMCO_HOST_KEY: key, keys::WMCO_HOST_KEY_TYPE: kind}}})
    };
    let theirs = || {
        let node = bench.node(m);
        let mark = |key| node.annotation(key).map(str::to_owned);
        (mark(keys::WMCO_HOST_KEY_TYPE), mark(keys::WMCO_HOST_KEY))
    };
    let ours = Some("ssh-ed25519 AAAA");
    for (kind, key, stays) in [
        ("ssh-ed25519", "AAAA", true),
        ("ecdsa-sha2-nistp256", "BBBB", true),
        ("ssh-ed25519", "BBBB", false),
    ] {
        bench.patch_node(m, pinned(kind, key));
        bench.run(mark(m, "v1", ours)).await.expect("marked");
        let there = stays.then(|| (Some(kind.to_owned()), Some(key.to_owned())));
        assert_eq!(theirs(), there.unwrap_or_default(), "{kind} {key}");
    }
}

#[tokio::test]
async fn a_node_is_marked_once() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    assert_eq!(
        bench.run(mark(m, "v1", Some("ssh-ed25519 AAAA"))).await,
        Ok(Outcome::NodeMarked)
    );
    let node = bench.node(m);
    assert_eq!(node.annotation(keys::VERSION), Some("v1"));
    assert_eq!(node.annotation(keys::HOST_KEY), Some("ssh-ed25519 AAAA"));
    bench.gate.before(u32::MAX, || {});
    assert_eq!(
        bench.run(mark(m, "v1", None)).await,
        Ok(Outcome::NodeMarked)
    );
    assert_eq!(bench.gate.passed().0, 2, "a repeat only reads");
    let none = MachineRef {
        name: "none".into(),
        ..m.clone()
    };
    let failure = bench
        .run(mark(&none, "v1", None))
        .await
        .expect_err("there is no such Node");
    assert!(failure.retry && failure.code == "NodeGone", "{failure:?}");
}

#[tokio::test]
async fn a_machine_is_noted_once_and_only_the_right_one() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    bench
        .executor
        .note(m, "win-1", "ssh-ed25519 AAAA")
        .await
        .expect("it is noted");
    let object = bench.machine(m);
    assert_eq!(object.annotation(keys::NODE_NAME), Some("win-1"));
    assert_eq!(object.annotation(keys::HOST_KEY), Some("ssh-ed25519 AAAA"));
    bench.gate.before(u32::MAX, || {});
    bench
        .executor
        .note(m, "win-1", "ssh-ed25519 AAAA")
        .await
        .expect("it stands");
    assert_eq!(bench.gate.passed().0, 1, "a repeat only reads");
    let failure = bench
        .executor
        .note(m, "win-2", "ssh-ed25519 AAAA")
        .await
        .expect_err("it stays what it was");
    assert_eq!(
        (failure.code.as_str(), failure.retry),
        ("NameChanged", false)
    );
    // What its platform calls it is another matter.
    bench
        .executor
        .note(m, &m.name, "ssh-ed25519 AAAA")
        .await
        .expect("its own name");
    let other = MachineRef {
        uid: "another".into(),
        ..m.clone()
    };
    let failure = bench
        .executor
        .note(&other, "win-2", "k")
        .await
        .expect_err("it is gone");
    assert_eq!(
        (failure.code.as_str(), failure.retry),
        ("MachineGone", false)
    );
}

#[tokio::test]
async fn a_machines_cluster_state_is_read_from_machine_node_and_pods() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let marks = json!({"metadata": {"annotations": {keys::FENCE: "7 closed",
        keys::SUBNET: "10.132.1.0/24"}}});
    bench.patch_node(m, marks);
    let key = Key::new(m.namespace.as_str(), m.name.as_str());
    let lower = json!({"metadata": {"annotations": {keys::FENCE: "4 open"}}});
    patch(&bench.world, &kinds::MACHINE, &key, lower);
    let in_cluster = bench
        .executor
        .machine_in_cluster(m, Some(&m.name))
        .await
        .expect("a standing");
    assert_eq!(in_cluster.token.0, 7);
    assert_eq!(in_cluster.subnet.as_deref(), Some("10.132.1.0/24"));
    let alone = bench
        .executor
        .machine_in_cluster(m, None)
        .await
        .expect("a standing");
    assert_eq!((alone.token.0, alone.pods, alone.subnet), (4, 0, None));
}

#[tokio::test]
async fn how_a_kubelet_joins_is_read_from_an_openshift_cluster() {
    let bench = Bench::new(1, false).await;
    let found = bench.executor.bootstrap().await.expect("how to join");
    assert_eq!(found.api_url, &*bench.world.api_url);
    assert!(found.api_ca.starts_with("-----BEGIN CERTIFICATE-----"));
    assert_eq!(found.client_ca, found.api_ca);
    assert!(found.token.expect("one for all").starts_with("bootstrap-"));
    assert_eq!(
        (&*found.cluster_dns, &*found.service_cidr),
        ("172.30.0.10", "172.30.0.0/16")
    );
    assert_eq!(
        found.exporter_tls, None,
        "nobody asked for the nodes' own metrics"
    );
    let tls = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": EXPORTER_TLS, "namespace": "dormer"},
        "data": {"tls.crt": STANDARD.encode("a certificate"), "tls.key": STANDARD.encode("a key")}});
    bench.world.create(tls).expect("a Secret");
    let found = bench.executor.bootstrap().await.expect("how to join");
    let (certificate, key) = found.exporter_tls.expect("both");
    assert_eq!((&*certificate, key.as_str()), ("a certificate", "a key"));
    let key = Key::new(
        "openshift-machine-config-operator",
        "node-bootstrapper-token",
    );
    let gone = bench
        .world
        .api
        .delete(&User::admin(), &kinds::SECRET, &key, &DeleteOptions::now());
    gone.expect("it is deleted");
    let failure = bench
        .executor
        .bootstrap()
        .await
        .expect_err("without a token");
    assert!(
        failure.retry && failure.message.contains("node-bootstrapper-token"),
        "{failure:?}"
    );
}

#[tokio::test]
async fn a_kubelet_joins_plain_kubernetes_by_settings_and_its_own_token() {
    let bench = Bench::new(1, false).await;
    let text = |text: &str| Value::from(STANDARD.encode(text));
    let objects = [
        json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
            "data": {"token-id": text("abcdef"), "token-secret": text("0123456789abcdef")}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
            "data": {"client-ca-file": "clients"}}),
    ];
    for object in objects {
        bench.world.create(object).expect("an object");
    }
    let settings = Settings {
        api_url: Some("https://10.0.0.1:6443".into()),
        bootstrap: ("kube-system".into(), "bootstrap-token-abcdef".into()),
        service_cidr: Some("10.96.0.0/12".into()),
        ..Settings::default()
    };
    let plain = executor(&bench.world.kubeconfig(), &Gate::default(), settings).await;
    bench.without_authority();
    let failure = plain.bootstrap().await.expect_err("nobody says who signs");
    assert!(failure.message.contains("ca.crt"), "{failure:?}");
    let root = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": "kube-system"},
        "data": {"ca.crt": "servers"}});
    bench.world.create(root).expect("an object");
    let found = plain.bootstrap().await.expect("how to join");
    let token = found.token.expect("one for all");
    assert_eq!(token.as_str(), "abcdef.0123456789abcdef");
    assert_eq!((&*found.api_ca, &*found.client_ca), ("servers", "clients"));
    assert_eq!(
        (&*found.api_url, &*found.cluster_dns),
        ("https://10.0.0.1:6443", "10.96.0.10")
    );
}

#[tokio::test]
async fn an_api_server_that_is_away_is_a_failure_that_passes() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    bench.world.api.set_available(false);
    let failure = bench
        .run(mark(m, "v1", None))
        .await
        .expect_err("it is away");
    assert!(failure.retry, "{failure:?}");
    bench.world.api.set_available(true);
    assert_eq!(
        bench.run(mark(m, "v1", None)).await,
        Ok(Outcome::NodeMarked)
    );
}

#[tokio::test]
async fn an_unknown_requester_is_reported() {
    let bench = Bench::new(1, false).await;
    let mut kubeconfig = bench.world.kubeconfig();
    kubeconfig["users"][0]["user"]["token"] = "stale".into();
    let stranger = executor(&kubeconfig, &Gate::default(), Settings::default()).await;
    let failure = run(&stranger, approve(&bench.machines()[0], "x"))
        .await
        .expect_err("nobody knows it");
    assert!(
        failure.retry && failure.code == "Unauthorized",
        "{failure:?}"
    );
}
