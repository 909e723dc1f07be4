//! Cluster settings without their secrets. A worker, which reads them from the cluster, publishes them; a console, which may
//! not, renders plans with them.

use super::{ClusterConfig, Revision};
use crate::{
    ignition::KubeletFacts,
    kubelet_config::KubeletConfig,
    layers::Layer,
    mirrors::{Credentials, Mirrored},
    proxy::Proxy,
    registry_sources::RegistrySources,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The settings as JSON. A secret is represented by its name, its revision or its hash.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Published {
    /// Digest for versions, which the secret settings are part of. Empty: there are no settings.
    digest: String,
    mirrors: Vec<Mirrored>,
    /// Registries, and paths in them, for which the pull secret has credentials.
    credentials: Vec<String>,
    pull_secret: String,
    /// URLs of the proxy without their passwords, the destinations that bypass it, and the revision of the passwords.
    proxy: (String, String, String, Option<String>),
    trusted_ca: String,
    cloud_provider: Option<String>,
    cloud_config_hash: Option<String>,
    ecr_config_hash: Option<String>,
    kubelet: Option<Map<String, Value>>,
    kubelet_unread: Option<String>,
    exporter: String,
    vxlan_port: Option<u16>,
    kubelet_configs: Vec<KubeletConfig>,
    registry_sources: RegistrySources,
    layers: Vec<Layer>,
    layers_refused: Option<String>,
    unknown: Vec<String>,
}

impl ClusterConfig {
    /// The settings as JSON, without secrets.
    #[must_use]
    pub fn published(&self) -> String {
        let hash = |text: &String| crate::sha256_hex(text.as_bytes());
        let (http, https, no) = self.proxy.shown();
        let KubeletFacts {
            cloud_provider,
            cloud_config,
            ecr_config,
            settings,
            unread,
        } = &self.kubelet;
        let published = Published {
            digest: self.digest().unwrap_or_default(),
            mirrors: self.mirrors.clone(),
            credentials: self.credentials.locations().map(str::to_owned).collect(),
            pull_secret: self.pull_secret.0.clone(),
            proxy: (http, https, no.to_owned(), self.proxy.revision()),
            trusted_ca: self.trusted_ca.clone(),
            cloud_provider: cloud_provider.clone(),
            cloud_config_hash: cloud_config.as_ref().map(hash),
            ecr_config_hash: ecr_config.as_ref().map(hash),
            kubelet: settings.clone(),
            kubelet_unread: unread.clone(),
            exporter: self.exporter.0.clone(),
            vxlan_port: self.vxlan_port,
            kubelet_configs: self.kubelet_configs.clone(),
            registry_sources: self.registry_sources.clone(),
            layers: self.layers.clone(),
            layers_refused: self.layers_refused.clone(),
            unknown: self.unknown.clone(),
        };
        serde_json::to_string(&published).unwrap_or_default()
    }

    /// Reads what [`ClusterConfig::published`] wrote. The result renders the same documents with secrets by name, and the
    /// same versions. It is not for hosts: in place of each secret it has its hash, or nothing.
    ///
    /// # Errors
    /// The text is not such JSON.
    pub fn from_published(text: &str) -> Result<Self, String> {
        let published: Published = serde_json::from_str(text).map_err(|why| why.to_string())?;
        let (http, https, no, revision) = published.proxy;
        Ok(Self {
            mirrors: published.mirrors,
            credentials: Credentials::without_secrets(published.credentials),
            pull_secret: Revision(published.pull_secret),
            proxy: Proxy::new(&http, &https, &no, &revision.unwrap_or_default()),
            trusted_ca: published.trusted_ca,
            kubelet: KubeletFacts {
                cloud_provider: published.cloud_provider,
                cloud_config: published.cloud_config_hash,
                ecr_config: published.ecr_config_hash,
                settings: published.kubelet,
                unread: published.kubelet_unread,
            },
            exporter: Revision(published.exporter),
            vxlan_port: published.vxlan_port,
            kubelet_configs: published.kubelet_configs,
            registry_sources: published.registry_sources,
            layers: published.layers,
            layers_refused: published.layers_refused,
            unknown: published.unknown,
            published_digest: Some(published.digest),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{builtin, cluster_config::ClusterSnapshot, variables::Secrets};

    const SECRETS: [&str; 4] = ["hunter2", "YTpjcmVkZW50aWFs", "aadClientSecret", "ecrKey"];

    fn with_secrets() -> ClusterConfig {
        let pull_secret = format!(
            r#"{{"auths": {{"m.example": {{"auth": "{}"}}}}}}"#,
            SECRETS[1]
        );
        let mirror = Mirrored {
            source: "quay.io".into(),
            mirrors: vec!["m.example".into()],
            ..Mirrored::default()
        };
        let url = format!("http://u:{}@proxy.example:3128", SECRETS[0]);
        let snapshot = ClusterSnapshot {
            mirrors: Ok(vec![mirror]),
            pull_secret: Ok((
                Revision("7".into()),
                Credentials::parse(&pull_secret).expect("a pull secret"),
            )),
            proxy: Ok(Proxy::new(&url, "", ".svc", "8")),
            trusted_ca: Ok("-----BEGIN CERTIFICATE-----".into()),
            kubelet: Ok(KubeletFacts {
                cloud_provider: Some("external".into()),
                cloud_config: Some(SECRETS[2].into()),
                ecr_config: Some(SECRETS[3].into()),
                ..KubeletFacts::default()
            }),
            exporter: Ok(Revision("9".into())),
            vxlan_port: Ok(Some(9_898)),
            ..ClusterSnapshot::default()
        };
        ClusterConfig::default().with(snapshot, true).0
    }

    /// Settings as people see them in a document: the layer, and each secret's name.
    fn rendered(config: &ClusterConfig) -> (String, Vec<String>) {
        let below = builtin::layer("openshift").expect("a built-in profile");
        let (profile, _) = config.layered(&below, &[]).expect("a profile");
        let mut secrets = Secrets::default();
        config.named_secrets("aws", &mut secrets);
        let names = secrets.iter().map(|(name, _)| name.to_owned()).collect();
        (serde_json::to_string(&profile).expect("JSON"), names)
    }

    #[test]
    fn what_is_published_has_no_secret_and_renders_the_same_version() {
        let config = with_secrets();
        let text = config.published();
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        let read = ClusterConfig::from_published(&text).expect("settings");
        assert!(config.digest().is_some());
        assert_eq!(read.digest(), config.digest());
        assert_eq!(rendered(&read), rendered(&config));
        let layer = |text: &str| Layer::parse("ConfigMap dormer/blue", text).expect("a layer");
        let text = "host: {services: {kubelet: {environment: {TEAM: blue}}}}";
        let snapshot = ClusterSnapshot {
            layers: Ok(vec![layer(text)]),
            ..ClusterSnapshot::default()
        };
        let (layered, _) = ClusterConfig::default().with(snapshot, true);
        assert_eq!(layered.digest(), None, "layers are part of the profile");
        let read = ClusterConfig::from_published(&layered.published()).expect("settings");
        assert_eq!(read.layers(), [layer(text)]);
        let none = ClusterConfig::default();
        let read = ClusterConfig::from_published(&none.published()).expect("settings");
        assert_eq!(read.digest(), None);
    }

    #[test]
    fn another_secret_is_another_version_without_being_shown() {
        let config = with_secrets();
        let other = ClusterSnapshot {
            kubelet: Ok(KubeletFacts {
                cloud_config: Some("another secret".into()),
                ..KubeletFacts::default()
            }),
            ..ClusterSnapshot::default()
        };
        let other = config.with(other, false).0;
        let read = |config: &ClusterConfig| {
            ClusterConfig::from_published(&config.published()).expect("settings")
        };
        assert_ne!(read(&config).digest(), read(&other).digest());
        assert!(ClusterConfig::from_published("{").is_err());
    }
}
