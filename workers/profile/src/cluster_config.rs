//! Cluster settings that are part of a node's configuration: mirrors, CAs, the proxy, and the machine config's
//! settings for kubelets. All of them are part of the version, so that a change reaches every node. Of a secret, only
//! the revision number is part of the version.

use crate::{
    ignition::KubeletFacts,
    kubelet_config::{KubeletConfig, reaching},
    kubelet_pairs::PERIODS,
    layers::Layer,
    mirrors::{Credentials, Mirrored, registries},
    platform,
    proxy::Proxy,
    values::Values,
    variables::{Secrets, is_of_variable, of_variable},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Name of the secret with additional CAs in the built-in profiles.
pub const TRUSTED_CA: &str = "trusted-ca";

/// The kubelet's configuration in the built-in profile for OpenShift.
const KUBELET_CONFIG: &str = r"C:\k\kubelet.conf";

/// Revision of a Secret whose content matters to nodes, without the content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Revision(pub String);

/// Snapshot of the cluster settings, part by part. A part that cannot be read or parsed is an error sentence; its
/// previous value stays in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSnapshot {
    /// The mirror sets.
    pub mirrors: Result<Vec<Mirrored>, String>,
    /// The pull secret, where there are mirrors.
    pub pull_secret: Result<(Revision, Credentials), String>,
    /// The proxy.
    pub proxy: Result<Proxy, String>,
    /// Additional CAs, PEM.
    pub trusted_ca: Result<String, String>,
    /// Settings for kubelets.
    pub kubelet: Result<KubeletFacts, String>,
    /// The certificate of the nodes' exporters.
    pub exporter: Result<Revision, String>,
    /// UDP port of the hybrid overlay, where it is not 4789.
    pub vxlan_port: Result<Option<u16>, String>,
    /// KubeletConfigs of the machine config pool. Of those that are not refused, the last one counts.
    pub kubelet_configs: Result<Vec<KubeletConfig>, String>,
}

impl Default for ClusterSnapshot {
    fn default() -> Self {
        Self {
            mirrors: Ok(Vec::new()),
            pull_secret: Ok((Revision::default(), Credentials::default())),
            proxy: Ok(Proxy::default()),
            trusted_ca: Ok(String::new()),
            kubelet: Ok(KubeletFacts::default()),
            exporter: Ok(Revision::default()),
            vxlan_port: Ok(None),
            kubelet_configs: Ok(Vec::new()),
        }
    }
}

/// Cluster settings for nodes. The default has none of them, as in plain Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterConfig {
    mirrors: Vec<Mirrored>,
    credentials: Credentials,
    pull_secret: Revision,
    proxy: Proxy,
    trusted_ca: String,
    kubelet: KubeletFacts,
    exporter: Revision,
    vxlan_port: Option<u16>,
    kubelet_configs: Vec<KubeletConfig>,
    /// Parts that could not be read yet, a sentence each.
    pub unknown: Vec<String>,
}

impl ClusterConfig {
    /// Merges a new snapshot. The second value is the sentences about parts that could not be parsed or cannot be
    /// followed. A part that could not be parsed stays unchanged; one that never could is [`ClusterConfig::unknown`].
    /// `first`: there is no snapshot before.
    #[must_use]
    pub fn with(&self, snapshot: ClusterSnapshot, first: bool) -> (Self, Vec<String>) {
        let mut next = Self {
            unknown: Vec::new(),
            ..self.clone()
        };
        let mut warnings = Vec::new();
        let lacked = |what: &str| first || self.unknown.iter().any(|known| known.starts_with(what));
        let mut refuse = |what: &str, why: String| {
            let sentence = format!("{what}: {why}");
            if lacked(what) {
                next.unknown.push(sentence.clone());
            }
            warnings.push(sentence);
        };
        match snapshot.mirrors {
            Ok(mirrors) => next.mirrors = mirrors,
            Err(why) => refuse("mirrors", why),
        }
        match snapshot.pull_secret {
            Ok((revision, credentials)) => {
                (next.pull_secret, next.credentials) = (revision, credentials)
            }
            Err(why) => refuse("pull secret", why),
        }
        match snapshot.proxy {
            Ok(proxy) => next.proxy = proxy,
            Err(why) => refuse("proxy", why),
        }
        match snapshot.trusted_ca {
            Ok(pem) => next.trusted_ca = pem,
            Err(why) => refuse("trusted authorities", why),
        }
        match snapshot.kubelet {
            Ok(kubelet) => next.kubelet = kubelet,
            Err(why) => refuse("machine config", why),
        }
        match snapshot.exporter {
            Ok(revision) => next.exporter = revision,
            Err(why) => refuse("exporters' certificate", why),
        }
        match snapshot.vxlan_port {
            Ok(port) => next.vxlan_port = port,
            Err(why) => refuse("hybrid overlay", why),
        }
        match snapshot.kubelet_configs {
            Ok(configs) => next.kubelet_configs = configs,
            Err(why) => refuse("kubelet configs", why),
        }
        warnings.extend(next.reaching().1);
        warnings.extend(registries(&next.mirrors, &next.credentials).1);
        (next, warnings)
    }

    /// Digest for a version. `None`: there are no settings.
    #[must_use]
    pub fn digest(&self) -> Option<String> {
        let plain = Self {
            unknown: Vec::new(),
            ..self.clone()
        };
        if plain == Self::default() {
            return None;
        }
        // The profile names the mirrors' secrets. Their revisions represent their contents, as the proxy's own does.
        let mut said = json!({
            "mirrors": self.mirrors, "pullSecret": self.used_credentials().then_some(&self.pull_secret),
            "proxy": self.proxy.said(), "trustedCa": self.trusted_ca, "kubelet": self.kubelet, "exporter": self.exporter,
        });
        if let Some(port) = self.vxlan_port {
            said["vxlanPort"] = json!(port);
        }
        Some(crate::sha256_hex(said.to_string().as_bytes()))
    }

    fn reaching(&self) -> (Map<String, Value>, Vec<String>) {
        reaching(&self.kubelet_configs, self.kubelet.settings.as_ref())
    }

    fn used_credentials(&self) -> bool {
        let (found, _) = registries(&self.mirrors, &self.credentials);
        found
            .values()
            .flat_map(|spec| &spec.mirrors)
            .any(|mirror| !mirror.authorization.is_empty())
    }

    /// Layer between a built-in profile and the users' own.
    #[must_use]
    pub fn layer(&self) -> Layer {
        let (found, _) = registries(&self.mirrors, &self.credentials);
        let mirrors = found.into_iter().collect();
        let host = crate::profile::SectionSpec {
            mirrors,
            ..Default::default()
        };
        // Only present settings; the layers below decide the rest.
        let mirrors = serde_json::to_value(host.mirrors).unwrap_or_default();
        let mut layer = json!({"host": {"mirrors": mirrors}});
        let (mut settings, _) = self.reaching();
        for name in PERIODS {
            // Before, it does nothing on Windows (docs/settings.md).
            if let Some(value) = settings.get_mut(name) {
                *value = json!({"when": {"kubelet": ">=1.34"}, "value": value.take()});
            }
        }
        if !settings.is_empty() {
            layer["host"]["files"][KUBELET_CONFIG] = json!({"json": settings});
        }
        Layer::from_value("the cluster", layer)
    }

    /// Fills in the values that it determines for one machine.
    pub fn fill(&self, values: &mut Values) {
        let (http, https, no) = self.proxy.shown();
        (values.http_proxy, values.https_proxy) = (http, https);
        no.clone_into(&mut values.no_proxy);
        if let Some(port) = self.vxlan_port {
            values.vxlan_port = port.to_string();
        }
        if let Some(provider) = &self.kubelet.cloud_provider {
            values.cloud_provider.clone_from(provider);
        }
    }

    /// Adds its secrets for a machine on that platform (lower case).
    pub fn secrets(&self, platform: &str, secrets: &mut Secrets) {
        for (name, text) in self.credentials.secrets() {
            secrets.set(name, text);
        }
        if !self.trusted_ca.is_empty() {
            secrets.set(TRUSTED_CA, &self.trusted_ca);
        }
        for (variable, url) in self.proxy.secrets() {
            secrets.set(of_variable(variable), url);
        }
        if let Some(text) = &self.kubelet.cloud_config {
            secrets.set("cloud-config", text);
        }
        if let Some(text) = &self.kubelet.ecr_config
            && platform::has_ecr(platform)
        {
            secrets.set("ecr-config", text);
        }
    }
}

impl ClusterConfig {
    /// Adds the same secrets for people: each is its own name with an identifier of its content, a revision or the
    /// beginning of a hash. CAs are not secret and are shown as they are.
    pub fn named_secrets(&self, platform: &str, secrets: &mut Secrets) {
        let mut own = Secrets::default();
        self.secrets(platform, &mut own);
        for (name, text) in own.iter() {
            let which = match name {
                TRUSTED_CA => {
                    secrets.set(name, text);
                    continue;
                }
                // Below, with what people may see of it.
                name if is_of_variable(name) => continue,
                name if name.starts_with("registry.") => self.pull_secret.0.clone(),
                _ => crate::sha256_hex(text.as_bytes())[..12].to_owned(),
            };
            secrets.set(name, format!("${{secret:{name}@{which}}}"));
        }
        for (variable, url) in self.proxy.named() {
            secrets.set(of_variable(variable), url);
        }
    }

    /// What of the proxy's URLs is secret: each as a whole, and its password.
    pub fn proxy_passwords(&self) -> impl Iterator<Item = &str> {
        self.proxy.passwords()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxied() -> ClusterSnapshot {
        let proxy = Proxy::new("http://proxy.example:3128", "", "", "7");
        ClusterSnapshot {
            proxy: Ok(proxy),
            ..ClusterSnapshot::default()
        }
    }

    fn mirrored() -> Vec<Mirrored> {
        let mirrors = vec!["m.example".to_owned()];
        vec![Mirrored {
            source: "quay.io".into(),
            mirrors,
            ..Mirrored::default()
        }]
    }

    fn pull_secret(revision: &str, auth: &str) -> (Revision, Credentials) {
        let text = format!(r#"{{"auths": {{"m.example": {{"auth": "{auth}"}}}}}}"#);
        (
            Revision(revision.into()),
            Credentials::parse(&text).expect("a pull secret"),
        )
    }

    #[test]
    fn a_cluster_that_says_nothing_is_in_no_version() {
        let (plain, warnings) = ClusterConfig::default().with(ClusterSnapshot::default(), true);
        assert_eq!((plain.digest(), warnings.len()), (None, 0));
        let (proxied, _) = plain.with(proxied(), false);
        assert!(proxied.digest().is_some());
        let (again, _) = proxied.with(ClusterSnapshot::default(), false);
        assert_eq!(again.digest(), None);
    }

    fn with_proxy(http: &str, revision: &str) -> ClusterConfig {
        let snapshot = ClusterSnapshot {
            proxy: Ok(Proxy::new(http, "", ".svc", revision)),
            ..ClusterSnapshot::default()
        };
        ClusterConfig::default().with(snapshot, true).0
    }

    #[test]
    fn a_proxy_without_a_password_is_in_the_version_as_ever() {
        let config = with_proxy("http://proxy.example:3128", "7");
        let of_earlier_builds = "ec0ae7b8e858e1adfffeda3fa899041a6c7555a94566313facfc7d02de242172";
        assert_eq!(config.digest().as_deref(), Some(of_earlier_builds));
        let empty = with_proxy("", "7");
        let again = with_proxy("", "8");
        assert_eq!((empty.digest(), &empty), (again.digest(), &again));
    }

    #[test]
    fn a_proxys_password_is_in_the_version_by_its_revision() {
        let url = |password: &str| format!("http://u:{password}@proxy.example:3128");
        let config = with_proxy(&url("hunter2"), "7");
        assert_eq!(config.digest(), with_proxy(&url("other"), "7").digest());
        assert_ne!(config.digest(), with_proxy(&url("hunter2"), "8").digest());
        let without = with_proxy("http://u@proxy.example:3128", "7");
        assert_ne!(config.digest(), without.digest());
        assert!(!format!("{config:?}").contains("hunter2"));
        let mut values = Values::default();
        config.fill(&mut values);
        assert_eq!(values.http_proxy, url("***"));
        let mut secrets = Secrets::default();
        config.secrets("aws", &mut secrets);
        assert_eq!(
            secrets.get("variable.HTTP_PROXY"),
            Some(url("hunter2").as_str())
        );
        let mut named = Secrets::default();
        config.named_secrets("aws", &mut named);
        let wanted = url("${secret:variable.HTTP_PROXY@7}");
        assert_eq!(named.get("variable.HTTP_PROXY"), Some(wanted.as_str()));
    }

    #[test]
    fn the_port_of_the_overlay_is_in_the_version_and_reaches_the_node() {
        let snapshot = ClusterSnapshot {
            vxlan_port: Ok(Some(9898)),
            ..ClusterSnapshot::default()
        };
        let (config, warnings) = ClusterConfig::default().with(snapshot, true);
        assert!(config.digest().is_some() && warnings.is_empty());
        let mut values = Values::default();
        config.fill(&mut values);
        assert_eq!(values.vxlan_port, "9898");
    }

    #[test]
    fn a_kubelet_config_reaches_the_kubelet_of_a_windows_node() {
        let settings = json!({"maxPods": 100, "cpuManagerPolicy": "static"});
        let snapshot = ClusterSnapshot {
            kubelet_configs: Ok(vec![KubeletConfig {
                name: "a".into(),
                settings,
                ..KubeletConfig::default()
            }]),
            ..ClusterSnapshot::default()
        };
        let (config, warnings) = ClusterConfig::default().with(snapshot, true);
        assert_eq!(
            warnings,
            ["KubeletConfig a: cpuManagerPolicy do not reach Windows nodes"]
        );
        let below = crate::builtin::layer("openshift").expect("a layer");
        let profile = crate::layers::stack(&[below, config.layer()]).expect("a profile");
        let json = profile.host.files[KUBELET_CONFIG]
            .json
            .as_ref()
            .expect("JSON");
        assert_eq!(
            (&json["maxPods"], &json["kubeAPIQPS"]),
            (&json!(100), &json!(50))
        );
        assert!(json.get("cpuManagerPolicy").is_none());
    }

    #[test]
    fn a_part_that_is_not_understood_stays_as_it_was() {
        let (good, _) = ClusterConfig::default().with(proxied(), true);
        let wrong = ClusterSnapshot {
            proxy: Err("no URL".into()),
            ..ClusterSnapshot::default()
        };
        let (kept, warnings) = good.with(wrong.clone(), false);
        assert_eq!(
            (kept.digest(), warnings),
            (good.digest(), vec!["proxy: no URL".to_owned()])
        );
        assert!(kept.unknown.is_empty());
        let (never, _) = ClusterConfig::default().with(wrong.clone(), true);
        assert_eq!(never.unknown, ["proxy: no URL"]);
        let (still, _) = never.with(wrong, false);
        assert_eq!(still.unknown, ["proxy: no URL"]);
        assert!(still.with(proxied(), false).0.unknown.is_empty());
    }

    #[test]
    fn a_secret_is_in_the_version_by_its_revision_where_a_mirror_needs_it() {
        let with = |mirrors, secret| {
            let snapshot = ClusterSnapshot {
                mirrors: Ok(mirrors),
                pull_secret: Ok(secret),
                ..ClusterSnapshot::default()
            };
            ClusterConfig::default().with(snapshot, true).0
        };
        let one = with(mirrored(), pull_secret("7", "b25lOnA="));
        assert_eq!(
            one.digest(),
            with(mirrored(), pull_secret("7", "dHdvOnA=")).digest()
        );
        assert_ne!(
            one.digest(),
            with(mirrored(), pull_secret("8", "b25lOnA=")).digest()
        );
        let mut secrets = Secrets::default();
        one.secrets("aws", &mut secrets);
        assert_eq!(secrets.get("registry.m.example"), Some("b25lOnA="));
        assert!(!format!("{one:?}").contains("b25lOnA="));
        let renewed = |revision: &str| {
            let snapshot = ClusterSnapshot {
                exporter: Ok(Revision(revision.into())),
                ..ClusterSnapshot::default()
            };
            ClusterConfig::default().with(snapshot, true).0.digest()
        };
        assert_ne!(
            renewed("7"),
            renewed("8"),
            "a renewed certificate of exporters reaches the nodes"
        );
    }
}
