//! Kubeconfigs: how kubectl, dormer and kubelets find this server and speak to it.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::ca::Pair;

/// Credentials of a client.
#[derive(Debug, Clone)]
pub enum Credential {
    /// A bearer token.
    Token(String),
    /// A client certificate.
    Certificate(Pair),
}

/// A kubeconfig as a value; its JSON is valid YAML.
pub fn kubeconfig(server: &str, ca_pem: &str, user: &str, credential: &Credential) -> Value {
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    let shown = match credential {
        Credential::Token(token) => json!({"token": token}),
        Credential::Certificate(pair) => json!({
            "client-certificate-data": encode(&pair.cert_pem),
            "client-key-data": encode(&pair.key_pem),
        }),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fleet", "cluster": {
            "server": server, "certificate-authority-data": encode(ca_pem)}}],
        "users": [{"name": user, "user": shown}],
        "contexts": [{"name": "fleet", "context": {"cluster": "fleet", "user": user,
            "namespace": "openshift-machine-api"}}],
        "current-context": "fleet",
    })
}
