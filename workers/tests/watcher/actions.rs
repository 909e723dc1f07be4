//! Actions of people and clusters on the simulated world in these tests.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{
        Key, Meta, Part, User, WriteOptions, auth::NODE_BOOTSTRAPPER, kinds, kinds::Kind,
        patch::PatchKind,
    },
    world::BareCloud,
};
use serde_json::{Value, json};

/// World at a hundred times real speed, whose hosts configure themselves.
pub(crate) async fn world(machines: u32, faults: &[&str]) -> World {
    let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
    let config = WorldConfig {
        faults,
        ..WorldConfig::on_loopback(machines, Pace::times_faster(100.0))
    };
    let made = World::start_with(config, |context, api| BareCloud::new(api, context.pace)).await;
    made.expect("a world")
}

/// The Windows Machines that stand.
pub(crate) fn windows(world: &World) -> Vec<Value> {
    let all = world.all(&kinds::MACHINE).into_iter();
    let windows = all.filter(|m| m.value.label("machine.openshift.io/os-id") == Some("Windows"));
    windows.map(|m| m.value.clone()).collect()
}

/// Patches an object as the administrator; its status too.
pub(crate) fn patch(world: &World, kind: &'static Kind, key: &Key, patch: Value) {
    let part = if patch.get("status").is_some() {
        Part::Status
    } else {
        Part::Main
    };
    let user = User::admin();
    let options = WriteOptions::default();
    let patched = world
        .api
        .patch(&user, kind, key, part, (PatchKind::Merge, &patch), &options);
    patched.expect("it is patched");
}

/// Scales the Windows set.
pub(crate) fn scale(world: &World, replicas: u32) {
    let sets = world.all(&kinds::MACHINE_SET);
    let set = sets
        .iter()
        .find(|s| s.value.name().contains("windows"))
        .expect("a Windows set");
    patch(
        world,
        &kinds::MACHINE_SET,
        &Key::of(&set.value),
        json!({"spec": {"replicas": replicas}}),
    );
}

/// A kubelet's request for its first certificate, in the name of `node`.
pub(crate) fn csr(world: &World, name: &str, node: &str) {
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
    // Requests of others are routed to no machine.
    let (_, account) = NODE_BOOTSTRAPPER.rsplit_once(':').expect("an account");
    let user = User::service_account("openshift-machine-config-operator", account);
    let made = world.api.create(&user, &kinds::CSR, "", csr, false);
    made.expect("a request");
}
