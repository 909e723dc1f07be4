//! Bootstrap token of each machine: its owner, its lifetime, and its permitted requests.

use super::bench::{Bench, Gate, executor, run_of};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_fleet::api::{DeleteOptions, Key, Part, User, auth::secret_text, kinds};
use dormer_proto::{
    id::{LeaseToken, Timestamp},
    machine::{CsrExpectation, Guard, MachineRef, Outcome, Task},
};
use dormer_workers::{
    host::cluster::Cluster,
    kubernetes::{KubernetesExecutor, Settings, Tokens, keys, token},
};
use serde_json::{Value, json};
use std::time::Duration;

/// Executor that creates a token for each machine.
async fn own(bench: &Bench) -> KubernetesExecutor {
    let settings = Settings {
        tokens: Tokens::Bootstrap,
        ..Settings::default()
    };
    executor(&bench.world.kubeconfig(), &Gate::default(), settings).await
}

fn machine(name: &str) -> MachineRef {
    MachineRef {
        namespace: "m".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        ..MachineRef::default()
    }
}

fn first_id(machine: &MachineRef) -> String {
    token::id("dormer", &machine.uid, 0)
}

fn key(id: &str) -> Key {
    Key::new("kube-system", format!("bootstrap-token-{id}"))
}

fn secret(bench: &Bench, id: &str) -> Option<Value> {
    bench
        .world
        .api
        .get(&kinds::SECRET, &key(id))
        .ok()
        .map(|found| found.value.clone())
}

/// User and groups of a token.
fn speaks_for(bench: &Bench, token: &str) -> Option<(String, Vec<String>)> {
    let user = bench
        .world
        .api
        .tokens()
        .user(token, bench.world.api.store())?;
    Some((user.name, user.groups))
}

/// Writes other texts into a Secret; `None` takes one away.
fn edit(bench: &Bench, id: &str, field: &str, text: &str) {
    let mut value = secret(bench, id).expect("it is there");
    value["data"][field] = STANDARD.encode(text).into();
    let user = User::admin();
    let key = key(id);
    let edited = bench
        .world
        .api
        .update(&user, &kinds::SECRET, &key, Part::Main, value, false);
    edited.expect("it is edited");
}

/// The end of a token, in minutes from now.
fn minutes_left(bench: &Bench, id: &str) -> i64 {
    let until = secret_text(&secret(bench, id).expect("it is there"), "expiration");
    let until: jiff::Timestamp = until.expect("an end").parse().expect("a time");
    until.duration_since(jiff::Timestamp::now()).as_mins()
}

fn ends_in(minutes: i64) -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes)).to_string()
}

#[tokio::test]
async fn a_token_is_made_once_and_is_the_same_for_every_worker() {
    let bench = Bench::new(1, false).await;
    let one = own(&bench).await;
    let other = own(&bench).await;
    let m = machine("win-1");
    let (first, second) = tokio::join!(one.token(&m), other.token(&m));
    let first = first.expect("a token");
    assert_eq!(first, second.expect("a token"), "two workers at once");
    assert_eq!(first, one.token(&m).await.expect("a token"), "a repeat");
    let id = first_id(&m);
    let (user, groups) = speaks_for(&bench, &first).expect("the API server knows it");
    assert_eq!(user, token::user(&id));
    assert!(
        groups.iter().any(|group| group == token::GROUP),
        "{groups:?}"
    );
    let made = secret(&bench, &id).expect("a Secret");
    assert_eq!(made["type"], "bootstrap.kubernetes.io/token");
    let labels = &made["metadata"]["labels"];
    assert_eq!(
        (&labels[keys::MANAGED_BY], &labels[keys::INSTANCE]),
        (&json!("dormer"), &json!("dormer"))
    );
    assert_eq!(labels[keys::MACHINE_UID], "uid-win-1");
    let text = |field: &str| secret_text(&made, field).expect("a text");
    assert_eq!(text("usage-bootstrap-signing"), "false");
    assert!(text("description").contains("m/win-1"));
    assert!((118..=120).contains(&minutes_left(&bench, &id)));
    let another = one.token(&machine("win-2")).await.expect("a token");
    assert_ne!(first, another);
}

#[tokio::test]
async fn a_token_near_its_end_is_prolonged_and_one_that_ended_or_was_edited_is_made_anew() {
    let bench = Bench::new(1, false).await;
    let executor = own(&bench).await;
    let m = machine("win-1");
    let id = first_id(&machine("win-1"));
    let first = executor.token(&m).await.expect("a token");
    edit(&bench, &id, "expiration", &ends_in(90));
    assert_eq!(executor.token(&m).await.expect("a token"), first);
    assert!(minutes_left(&bench, &id) <= 90, "it lasts long enough");
    edit(&bench, &id, "expiration", &ends_in(20));
    assert_eq!(
        executor.token(&m).await.expect("a token"),
        first,
        "the host may have it already"
    );
    assert!(minutes_left(&bench, &id) >= 118);
    edit(&bench, &id, "expiration", &ends_in(-1));
    assert_eq!(speaks_for(&bench, &first), None, "it has ended");
    let second = executor.token(&m).await.expect("a token");
    assert_ne!(first, second);
    assert_eq!(speaks_for(&bench, &first), None);
    assert!(speaks_for(&bench, &second).is_some());
    for (field, text) in [
        ("token-secret", "short"),
        (
            "auth-extra-groups",
            "system:bootstrappers:kubeadm:default-node-token",
        ),
        ("usage-bootstrap-authentication", "false"),
        ("expiration", "tomorrow"),
    ] {
        edit(&bench, &id, field, text);
        let mended = executor.token(&m).await.expect("a token");
        let (_, groups) = speaks_for(&bench, &mended).expect(field);
        assert!(
            groups.iter().any(|group| group == token::GROUP),
            "{field}: {groups:?}"
        );
    }
}

#[tokio::test]
async fn a_secret_of_that_name_that_is_not_dormers_is_left_alone() {
    let bench = Bench::new(1, false).await;
    let executor = own(&bench).await;
    let m = machine("win-1");
    let theirs = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": format!("bootstrap-token-{}", first_id(&m)), "namespace": "kube-system"}});
    bench.world.create(theirs).expect("a Secret");
    let before = secret(&bench, &first_id(&m));
    let made = executor.token(&m).await.expect("a token");
    let second = token::id("dormer", &m.uid, 1);
    assert_eq!(
        speaks_for(&bench, &made).expect("known").0,
        token::user(&second)
    );
    // Theirs goes: the machine keeps the one that its host was given.
    let user = User::admin();
    let key = key(&first_id(&m));
    assert_eq!(secret(&bench, &first_id(&m)), before);
    bench
        .world
        .api
        .delete(&user, &kinds::SECRET, &key, &DeleteOptions::now())
        .expect("deleted");
    assert_eq!(executor.token(&m).await.expect("a token"), made);
    bench
        .until("it is gone", || secret(&bench, &first_id(&m)).is_none())
        .await;
}

#[tokio::test]
async fn a_node_that_is_marked_and_a_machine_that_is_deleted_have_no_token() {
    let bench = Bench::new(1, false).await;
    let executor = own(&bench).await;
    let m = bench.machines()[0].clone();
    let id = first_id(&m);
    executor.token(&m).await.expect("a token");
    let node = m.name.clone();
    let version = "v1".to_owned();
    let mark = Task::MarkNode {
        machine: m.clone(),
        node,
        version,
        pin: None,
        expect: None,
    };
    assert_eq!(
        run_of(&executor, &m.uid, mark.clone()).await,
        Ok(Outcome::NodeMarked)
    );
    assert_eq!(secret(&bench, &id), None);
    assert_eq!(
        run_of(&executor, &m.uid, mark).await,
        Ok(Outcome::NodeMarked),
        "a repeat"
    );
    executor.token(&m).await.expect("a token");
    let token = dormer_proto::id::LeaseToken(1);
    let node = Some(m.name.clone());
    let open = Task::OpenFence {
        machine: m.clone(),
        node,
        token,
        over_limit: false,
        cordon: true,
        guard: Guard::default(),
    };
    run_of(&executor, &m.uid, open).await.expect("it is open");
    let delete = Task::DeleteMachine {
        machine: m.clone(),
        token,
        guard: Guard::default(),
    };
    assert_eq!(
        run_of(&executor, &m.uid, delete).await,
        Ok(Outcome::MachineDeleted)
    );
    assert_eq!(secret(&bench, &id), None);
}

#[tokio::test]
async fn a_node_has_joined_when_it_is_ready_and_no_fence_is_open() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let joined = async |node: Option<&str>| {
        bench
            .executor
            .machine_in_cluster(m, node)
            .await
            .expect("a standing")
            .joined
    };
    assert!(joined(Some(&m.name)).await);
    assert!(!joined(None).await);
    bench.open_at_once(m, 3);
    assert!(!joined(Some(&m.name)).await);
    bench.close_at_once(m, 3);
    assert!(joined(Some(&m.name)).await);
}

/// First request of a kubelet, made with this token.
fn ask(bench: &Bench, name: &str, node: &str, token: &str) {
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
    let api = &bench.world.api;
    let user = api.tokens().user(token, api.store()).expect("it is known");
    api.create(&user, &kinds::CSR, "", csr, false)
        .expect("a request");
}

#[tokio::test]
async fn a_machines_first_request_is_approved_by_its_own_token_alone() {
    let bench = Bench::new(1, false).await;
    let executor = own(&bench).await;
    let ours = bench.machines().remove(0);
    bench.open_at_once(&ours, 1);
    let other = machine("win-2");
    let mine = executor.token(&ours).await;
    let theirs = executor.token(&other).await;
    ask(&bench, "mine", &ours.name, &mine.expect("a token"));
    ask(&bench, "theirs", &ours.name, &theirs.expect("a token"));
    let approve = |csr: &str| {
        let expect = CsrExpectation {
            node_name: ours.name.clone(),
            machine_created: Timestamp(0),
            machine: Some(ours.clone()),
            configured: true,
            torn_down: Some(LeaseToken(1)),
            ..CsrExpectation::default()
        };
        Task::ApproveCsr {
            csr: csr.into(),
            expect,
        }
    };
    let refused = run_of(&executor, &ours.uid, approve("theirs")).await;
    let Ok(Outcome::CsrRefused { why, .. }) = &refused else {
        panic!("{refused:?}")
    };
    assert!(
        why.contains(&token::user(&first_id(&other))),
        "whose it is: {why}"
    );
    assert!(
        why.contains(&token::user(&first_id(&ours))),
        "whose it should be: {why}"
    );
    let approved = Outcome::CsrApproved { csr: "mine".into() };
    assert_eq!(
        run_of(&executor, &ours.uid, approve("mine")).await,
        Ok(approved)
    );
    // Where one token is for all, any token's holder may ask.
    let approved = Outcome::CsrApproved {
        csr: "theirs".into(),
    };
    assert_eq!(
        run_of(&bench.executor, &ours.uid, approve("theirs")).await,
        Ok(approved)
    );
}

#[tokio::test]
async fn how_a_kubelet_joins_is_read_without_a_token_for_all() {
    let bench = Bench::new(1, false).await;
    let executor = own(&bench).await;
    bench.without_authority();
    let failure = executor
        .bootstrap()
        .await
        .expect_err("nobody says who signs");
    assert!(failure.message.contains("kube-root-ca.crt"), "{failure:?}");
    let root = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": "kube-system"},
        "data": {"ca.crt": "servers"}});
    bench.world.create(root).expect("an object");
    let found = executor.bootstrap().await.expect("how to join");
    assert_eq!((found.token, &*found.api_ca), (None, "servers"));
    bench.world.api.set_available(false);
    let failure = executor
        .token(&machine("win-1"))
        .await
        .expect_err("it is away");
    assert!(failure.retry, "{failure:?}");
    bench.world.api.set_available(true);
    tokio::time::timeout(Duration::from_secs(60), executor.token(&machine("win-1")))
        .await
        .expect("in time")
        .expect("a token");
}
