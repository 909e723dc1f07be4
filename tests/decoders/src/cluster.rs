//! What the cluster, people and browsers send.

use axum::http::{HeaderMap, HeaderValue, header::COOKIE};
use dormer_api::access::Sessions;
use dormer_lint::Flavour;
use dormer_profile::{
    ignition, layers::Layer, mirrors::Credentials, payload::Manifest, proxy,
    registry_sources::RegistrySources, values::Values, yaml, yaml_tree,
};
use dormer_workers::{
    kubernetes::{keys, requested_names},
    payload_keys::PayloadKeys,
    pool::{PoolSpec, host},
    program_file::Program,
};
use serde_json::Value;
use std::sync::LazyLock;

/// Key of the signatures in `workers/tests/signed`.
const SIGNER: &str = "RWSTP/jCGkh8TMB1thTmpyb28qo9J9hCqDMi9M3TR6D73oOg18MtgdUI";

fn text_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

pub(crate) fn csr(bytes: &[u8]) {
    let _ = requested_names(bytes);
}

pub(crate) fn pool(bytes: &[u8]) {
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let _ = PoolSpec::read("windows", &object["spec"], &object["status"]);
}

pub(crate) fn mark(bytes: &[u8]) {
    if let Some(mark) = text_of(bytes).and_then(keys::fence) {
        assert_eq!(keys::fence(&keys::fence_text(mark)), Some(mark));
    }
}

pub(crate) fn instances(bytes: &[u8]) {
    if let Ok(data) = serde_json::from_slice(bytes) {
        let _ = host::entries(&data);
    }
}

pub(crate) fn cluster_config(bytes: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        let _ = ignition::kubelet_facts(&value);
        let _ = RegistrySources::parse(&value);
    }
}

pub(crate) fn pull_secret(bytes: &[u8]) {
    if let Some(text) = text_of(bytes) {
        let _ = Credentials::parse(text);
        let _ = proxy::masked(text);
    }
}

pub(crate) fn payload(bytes: &[u8]) {
    let Some(text) = text_of(bytes) else {
        return;
    };
    let _ = Manifest::parse(text);
    static KEYS: LazyLock<PayloadKeys> =
        LazyLock::new(|| PayloadKeys::parse(&[SIGNER.to_owned()]).expect("a key of minisign"));
    // No signature of this key is of an empty manifest.
    assert!(KEYS.check(b"", Some(text)).is_err());
}

pub(crate) fn program(bytes: &[u8]) {
    let _ = Program::parse(bytes);
}

pub(crate) fn yaml(bytes: &[u8]) {
    let Some(text) = text_of(bytes) else {
        return;
    };
    let _ = yaml::documents(text);
    let _ = yaml_tree::parse(text);
    let _ = Layer::parse("outside", text);
    let _ = Values::parse_over(&Values::example("aws"), text);
    for flavour in [Flavour::OpenShift, Flavour::Upstream] {
        let _ = dormer_lint::lint(text, flavour);
        let (fixed, _) = dormer_lint::fix(text, flavour);
        let _ = dormer_lint::lint(&fixed, flavour);
    }
}

pub(crate) fn cookie(bytes: &[u8]) {
    static SESSIONS: LazyLock<Sessions> =
        LazyLock::new(|| Sessions::new(&["a key that only this program has".to_owned()], true));
    let Ok(value) = HeaderValue::from_bytes(bytes) else {
        return;
    };
    let mut headers = HeaderMap::new();
    headers.insert(COOKIE, value);
    assert!(
        SESSIONS.of(&headers).is_none(),
        "a session that none opened"
    );
    let _ = SESSIONS.close(&headers);
}
