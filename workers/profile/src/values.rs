//! Values and secrets of one machine, which a worker supplies.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    platform,
    problem::Problems,
    variables::{Secrets, Variables},
    yaml,
};
use std::collections::BTreeMap;

/// Values of one machine and its cluster. An empty text means no value. A rendering that needs a missing value fails
/// with its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Values {
    /// URL of the API server as nodes reach it (OpenShift: `apiServerInternalURI`).
    pub api_server: String,
    /// Address of the cluster's DNS service, the tenth of the service network on OpenShift.
    pub cluster_dns: String,
    /// Domain of the cluster, in practice `cluster.local`.
    pub cluster_domain: String,
    /// Network of the services, for example `172.30.0.0/16`.
    pub service_cidr: String,
    /// Network of the pods; optional.
    pub pod_cidr: String,
    /// The host's `facts.node_ip`: IPv4 of the interface that has the default route.
    pub node_ip: String,
    /// Platform in lower case: `aws`, `azure`, `gcp`, `vsphere`, `nutanix`, `none`.
    pub platform: String,
    /// The host's `facts.os_build`, for example `10.0.20348`.
    pub windows_build: String,
    /// Computer name that the host must have (vSphere and Nutanix: the Machine's name); empty: as it is.
    pub hostname: String,
    /// Name of the Node where it is not the computer name in lower case (AWS: the private DNS name).
    pub hostname_override: String,
    /// The kubelet's `--cloud-provider`: `external`, or empty.
    pub cloud_provider: String,
    /// The cluster's proxy for `http`; empty: none.
    pub http_proxy: String,
    /// The cluster's proxy for `https`; empty: none.
    pub https_proxy: String,
    /// Destinations that bypass the proxy.
    pub no_proxy: String,
    /// UDP port of the hybrid overlay, where it is not 4789.
    pub vxlan_port: String,
    /// Name of the Node. Needed by the Node section only.
    pub node_name: String,
    /// The Node's annotation `k8s.ovn.org/hybrid-overlay-node-subnet`; optional, Node section only.
    pub subnet: String,
}

impl Values {
    /// Example cluster and machine, on a platform in lower case. The addresses are those that documentation uses.
    #[must_use]
    pub fn example(platform: &str) -> Self {
        let mut values = Self {
            api_server: "https://api-int.cluster.example:6443".into(),
            cluster_dns: "172.30.0.10".into(),
            cluster_domain: "cluster.local".into(),
            service_cidr: "172.30.0.0/16".into(),
            node_ip: "192.0.2.10".into(),
            platform: platform.to_lowercase(),
            windows_build: "10.0.20348".into(),
            node_name: "win-example".into(),
            cloud_provider: platform::cloud_provider(platform).into(),
            ..Self::default()
        };
        if platform::names_the_host(platform) {
            values.hostname.clone_from(&values.node_name);
        }
        if platform::overrides(platform) {
            values.hostname_override.clone_from(&values.node_name);
        }
        values
    }

    /// Facts as a person wrote them (YAML, and therefore JSON). Missing ones are taken from `example`.
    ///
    /// # Errors
    /// An unknown field, or a value that is not text: with line, column and reason.
    pub fn parse_over(example: &Self, text: &str) -> Result<Self, Problems> {
        let said: BTreeMap<String, serde_json::Value> =
            yaml::from_str(text).map_err(|e| Problems::from_yaml(&e))?;
        let _: Self = yaml::from_str(text).map_err(|e| Problems::from_yaml(&e))?;
        let mut whole = serde_json::to_value(example).unwrap_or_default();
        for (name, value) in said {
            whole[name] = value;
        }
        Problems::typed(whole, "facts")
    }

    /// Values by the names that profiles use ([`crate::variables::KNOWN`]).
    #[must_use]
    pub fn variables(&self) -> Variables {
        let pairs = [
            ("API_SERVER_INTERNAL", &self.api_server),
            ("CLUSTER_DNS", &self.cluster_dns),
            ("CLUSTER_DOMAIN", &self.cluster_domain),
            ("SERVICE_CIDR", &self.service_cidr),
            ("POD_CIDR", &self.pod_cidr),
            ("NODE_IP", &self.node_ip),
            ("PLATFORM", &self.platform),
            ("WINDOWS_BUILD", &self.windows_build),
            ("HOSTNAME", &self.hostname),
            ("HOSTNAME_OVERRIDE", &self.hostname_override),
            ("CLOUD_PROVIDER", &self.cloud_provider),
            ("HTTP_PROXY", &self.http_proxy),
            ("HTTPS_PROXY", &self.https_proxy),
            ("NO_PROXY", &self.no_proxy),
            ("VXLAN_PORT", &self.vxlan_port),
            ("NODE_NAME", &self.node_name),
            ("HYBRID_OVERLAY_SUBNET", &self.subnet),
        ];
        pairs
            .into_iter()
            .map(|(name, value)| (name, value.as_str()))
            .collect()
    }
}

/// Secrets of every join, by the names that the built-in profiles use.
pub const JOIN_SECRETS: [&str; 4] = ["api-ca", "client-ca", JOIN_TOKEN, CLOUD_TOKEN];

/// The one among them that contains a bootstrap token.
pub const JOIN_TOKEN: &str = "bootstrap-kubeconfig";

/// The one with the token of Azure's cloud-node-manager. Hosts that have one which lasts keep it.
pub const CLOUD_TOKEN: &str = "cloud-node-manager-token";

/// Secrets that a kubelet needs to join, by the names that the built-in profiles use: `api-ca`, `client-ca` and
/// `bootstrap-kubeconfig`. `token` is a bootstrap token and a secret.
#[must_use]
pub fn join_secrets(api_server: &str, api_ca: &str, client_ca: &str, token: &str) -> Secrets {
    let mut secrets = Secrets::default();
    secrets.set("api-ca", api_ca);
    secrets.set("client-ca", client_ca);
    secrets.set(JOIN_TOKEN, bootstrap_kubeconfig(api_server, api_ca, token));
    secrets.withhold(CLOUD_TOKEN);
    secrets
}

/// Kubeconfig with which a kubelet requests its first certificate. It is JSON, which is valid YAML.
fn bootstrap_kubeconfig(api_server: &str, api_ca: &str, token: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {
            "server": api_server, "certificate-authority-data": STANDARD.encode(api_ca)}}],
        "users": [{"name": "kubelet-bootstrap", "user": {"token": token}}],
        "contexts": [{"name": "bootstrap",
            "context": {"cluster": "cluster", "user": "kubelet-bootstrap"}}],
        "current-context": "bootstrap",
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variables::known;

    #[test]
    fn every_value_has_a_name_that_profiles_know() {
        for (name, _) in Values::default().variables().iter() {
            assert!(known(name).is_some(), "{name}");
        }
    }

    #[test]
    fn every_built_in_variable_is_supplied_by_somebody() {
        let values = Values::default().variables();
        let supplied: Vec<&str> = values.iter().map(|(name, _)| name).collect();
        for known in crate::variables::KNOWN {
            let ours = known.name.starts_with("PAYLOAD");
            assert!(
                ours || known.optional || supplied.contains(&known.name),
                "{} is needed and nobody supplies it",
                known.name
            );
        }
    }

    #[test]
    fn a_fact_of_another_type_is_named() {
        let example = Values::example("aws");
        let why = Values::parse_over(&example, "vxlan_port: 9898").expect_err("a number");
        assert!(why.to_string().contains("vxlan_port"), "{why}");
    }

    #[test]
    fn a_bootstrap_kubeconfig_names_its_context() {
        let secrets = join_secrets("https://api:6443", "CA", "CLIENT", "t0ken");
        let text = secrets.get("bootstrap-kubeconfig").expect("one");
        let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(value["current-context"], value["contexts"][0]["name"]);
        assert_eq!(value["users"][0]["user"]["token"], "t0ken");
    }
}
