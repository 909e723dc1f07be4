//! Cluster settings that are part of a node's configuration: mirrors, CAs, the proxy, and the machine config's
//! settings for kubelets. All of them are part of the version, so that a change reaches every node. Of a secret, only
//! the revision number is part of the version.

mod published;

use crate::{
    ignition::KubeletFacts,
    kubelet_config::{KubeletConfig, RELEASES, reaching},
    kubelet_pairs::{Contradiction, contradictions},
    layers::{Layer, stack},
    mirrors::{Credentials, Mirrored, registries},
    platform,
    problem::Problems,
    profile::{MirrorSpec, Named, Profile},
    proxy::Proxy,
    registry_sources::RegistrySources,
    render::text::is_conditional,
    values::Values,
    variables::{Secrets, is_of_variable, of_variable},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Name of the secret with additional CAs in the built-in profiles.
pub const TRUSTED_CA: &str = "trusted-ca";

/// Part of a reading that is about the pool's layers, as sentences about it begin.
const LAYERS: &str = "layers";

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
    /// Registries that are blocked, or whose certificates are not checked.
    pub registry_sources: Result<RegistrySources, String>,
    /// Layers that the pool names, the lowest first. One that cannot be read makes all of them an error: a stack without one
    /// of its layers is another configuration.
    pub layers: Result<Vec<Layer>, String>,
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
            registry_sources: Ok(RegistrySources::default()),
            layers: Ok(Vec::new()),
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
    registry_sources: RegistrySources,
    layers: Vec<Layer>,
    /// Why the pool's latest layers are not in force: which one is wrong, and the mistake.
    pub layers_refused: Option<String>,
    /// Parts that could not be read yet, a sentence each.
    pub unknown: Vec<String>,
    /// Digest of settings that another process published without their secrets; empty: there are none.
    published_digest: Option<String>,
}

impl ClusterConfig {
    /// Merges a new snapshot. The second value is the sentences about parts that could not be parsed or cannot be
    /// followed. A part that could not be parsed stays unchanged; one that never could is [`ClusterConfig::unknown`].
    /// `first`: there is no snapshot before.
    #[must_use]
    pub fn with(&self, snapshot: ClusterSnapshot, first: bool) -> (Self, Vec<String>) {
        let mut next = Self {
            unknown: Vec::new(),
            layers_refused: snapshot.layers.as_ref().err().cloned(),
            published_digest: None,
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
        match snapshot.registry_sources {
            Ok(sources) => next.registry_sources = sources,
            Err(why) => refuse("image registries", why),
        }
        match snapshot.layers {
            Ok(layers) => next.layers = layers,
            Err(why) => refuse(LAYERS, why),
        }
        warnings.extend(next.reaching().1);
        warnings.extend(next.registries().1);
        (next, warnings)
    }

    /// Layers of the pool, the lowest first. They lie on top of those that dormer was started with.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The settings with the lowest `count` layers alone.
    #[must_use]
    pub fn with_lowest_layers(&self, count: usize) -> Self {
        let mut fewer = self.clone();
        fewer.layers.truncate(count);
        fewer
    }

    /// The settings with the layers of `before`, because `why` forbids their own. The second value is the sentence about
    /// that. `first`: there is no snapshot before, so that the layers are [`ClusterConfig::unknown`].
    #[must_use]
    pub fn with_layers_of(mut self, before: &Self, first: bool, why: String) -> (Self, String) {
        let sentence = format!("{LAYERS}: {why}");
        let mut unknown = before.unknown.iter();
        if first || unknown.any(|known| known.starts_with(LAYERS)) {
            self.unknown.push(sentence.clone());
        }
        self.layers.clone_from(&before.layers);
        self.layers_refused = Some(why);
        (self, sentence)
    }

    /// Digest for a version. `None`: there are no settings. The pool's layers are in the profile, and not here.
    #[must_use]
    pub fn digest(&self) -> Option<String> {
        if let Some(known) = &self.published_digest {
            return Some(known.clone()).filter(|it| !it.is_empty());
        }
        let registry_sources = self.registry_sources.reaching();
        let plain = Self {
            unknown: Vec::new(),
            layers: Vec::new(),
            layers_refused: None,
            registry_sources: registry_sources.clone(),
            ..self.clone()
        };
        if plain == Self::default() {
            return None;
        }
        // The profile names the mirrors' secrets. Their revisions represent their contents, as the proxy's own does.
        let mut said = json!({
            "mirrors": self.mirrors, "pullSecret": self.used_credentials().then_some(&self.pull_secret),
            "proxy": self.proxy.for_version(), "trustedCa": self.trusted_ca, "kubelet": self.kubelet, "exporter": self.exporter,
        });
        if let Some(port) = self.vxlan_port {
            said["vxlanPort"] = json!(port);
        }
        if registry_sources != RegistrySources::default() {
            said["registrySources"] = json!([registry_sources.blocked, registry_sources.insecure]);
        }
        Some(crate::sha256_hex(said.to_string().as_bytes()))
    }

    fn reaching(&self) -> (Map<String, Value>, Vec<String>) {
        reaching(&self.kubelet_configs, self.kubelet.settings.as_ref())
    }

    /// What containerd's configuration says of registries, and a sentence for each setting that it cannot express.
    fn registries(&self) -> (Named<MirrorSpec>, Vec<String>) {
        let (mut found, mut said) = registries(&self.mirrors, &self.credentials);
        said.extend(self.registry_sources.add_to(&mut found));
        (found, said)
    }

    fn used_credentials(&self) -> bool {
        let (found, _) = self.registries();
        found
            .values()
            .flat_map(|spec| &spec.mirrors)
            .any(|mirror| !mirror.authorization.is_empty())
    }

    /// Layer between a built-in profile and the users' own.
    #[must_use]
    pub fn layer(&self) -> Layer {
        self.layer_without(&[])
    }

    /// A built-in profile with the cluster's settings and the users' layers on top. The sentences name each setting of a
    /// kubelet that was left out, because a layer contradicts it and the kubelet would end with both.
    ///
    /// # Errors
    /// A layer has mistakes.
    pub fn layered(
        &self,
        below: &Layer,
        above: &[Layer],
    ) -> Result<(Profile, Vec<String>), Problems> {
        let with = |cluster: Layer| {
            let all = [below.clone(), cluster];
            stack(&[&all[..], above].concat())
        };
        let profile = with(self.layer())?;
        let (settings, _) = self.reaching();
        let of_cluster =
            |pair: &&Contradiction| pair.0.iter().any(|name| settings.contains_key(*name));
        let found = contradicted(&profile);
        let found: Vec<_> = found.iter().filter(of_cluster).collect();
        if found.is_empty() {
            return Ok((profile, Vec::new()));
        }
        let names: Vec<&str> = found.iter().flat_map(|(names, _)| *names).collect();
        let without = with(self.layer_without(&names))?;
        // What the layers themselves contradict is refused where it is rendered.
        let still = contradicted(&without);
        let mended = found
            .iter()
            .filter(|(names, _)| !still.iter().any(|(other, _)| other == names));
        let said = mended.map(|(names, reason)| {
            let set = names.iter().filter(|name| settings.contains_key(**name));
            let set: Vec<&str> = set.copied().collect();
            let own = set.join(" and ");
            format!(
                "KubeletConfigs and the layers: {reason}. The layers count, and {own} of the cluster do not reach Windows \
                 nodes"
            )
        });
        Ok((without, said.collect()))
    }

    fn layer_without(&self, names: &[&str]) -> Layer {
        let (found, _) = self.registries();
        let mirrors = found.into_iter().collect();
        let host = crate::profile::SectionSpec {
            mirrors,
            ..Default::default()
        };
        // Only present settings; the layers below decide the rest.
        let mirrors = serde_json::to_value(host.mirrors).unwrap_or_default();
        let mut layer = json!({"host": {"mirrors": mirrors}});
        let (mut settings, _) = self.reaching();
        settings.retain(|name, _| !names.contains(&name.as_str()));
        for (name, releases) in RELEASES {
            if let Some(value) = settings.get_mut(name) {
                *value = json!({"when": {"kubelet": releases}, "value": value.take()});
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

/// Pairs of the kubelet's settings in a profile that contradict themselves, whatever their conditions are.
fn contradicted(profile: &Profile) -> Vec<Contradiction> {
    let file = profile.host.files.get(KUBELET_CONFIG);
    let Some(json) = file.and_then(|file| file.json.as_ref()) else {
        return Vec::new();
    };
    contradictions(|name| {
        let there = json.get(name)?;
        Some(if is_conditional(there) {
            &there["value"]
        } else {
            there
        })
    })
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
    fn registries_are_in_the_version_as_far_as_they_reach_windows_nodes() {
        let of = |sources: Value| {
            let snapshot = ClusterSnapshot {
                registry_sources: Ok(RegistrySources::parse(&sources)),
                ..ClusterSnapshot::default()
            };
            ClusterConfig::default().with(snapshot, true)
        };
        let (allowed, said) = of(json!({"allowedRegistries": ["quay.io"]}));
        assert_eq!((allowed.digest(), said.len()), (None, 1));
        let blocked = |name: &str| of(json!({"blockedRegistries": [name]})).0.digest();
        assert!(blocked("bad.example").is_some());
        assert_ne!(blocked("bad.example"), blocked("worse.example"));
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

    /// A field that a kubelet does not have is refused where it is rendered, so it may not be there.
    #[test]
    fn a_setting_that_later_kubelets_have_is_for_them_alone() {
        let settings =
            json!({"tlsCurvePreferences": [29], "shutdownGracePeriod": "60s", "maxPods": 9});
        let snapshot = ClusterSnapshot {
            kubelet_configs: Ok(vec![KubeletConfig {
                name: "a".into(),
                settings,
                ..KubeletConfig::default()
            }]),
            ..ClusterSnapshot::default()
        };
        let (config, said) = ClusterConfig::default().with(snapshot, true);
        assert_eq!(said, Vec::<String>::new());
        let below = crate::builtin::layer("openshift").expect("a layer");
        let profile = crate::layers::stack(&[below, config.layer()]).expect("a profile");
        let json = profile.host.files[KUBELET_CONFIG].json.clone();
        let json = json.expect("JSON");
        let wanted = |release: &str, value| json!({"when": {"kubelet": release}, "value": value});
        assert_eq!(json["tlsCurvePreferences"], wanted(">=1.36", json!([29])));
        assert_eq!(json["shutdownGracePeriod"], wanted(">=1.34", json!("60s")));
        assert_eq!(json["maxPods"], 9);
    }

    /// The cluster's administrators and those of dormer write one file, and neither sees the other's part.
    #[test]
    fn a_kubelet_config_that_contradicts_a_layer_stays_away_and_stops_nothing() {
        let below = crate::builtin::layer("openshift").expect("a layer");
        let told = |settings: &Value, layer: &str| {
            let snapshot = ClusterSnapshot {
                kubelet_configs: Ok(vec![KubeletConfig {
                    name: "a".into(),
                    settings: settings.clone(),
                    ..KubeletConfig::default()
                }]),
                ..ClusterSnapshot::default()
            };
            let (config, said) = ClusterConfig::default().with(snapshot, true);
            assert_eq!(said, Vec::<String>::new());
            let layer = format!(r"host: {{files: {{'C:\k\kubelet.conf': {{json: {layer}}}}}}}");
            let layer = Layer::parse("user", &layer).expect("a layer");
            let (profile, said) = config.layered(&below, &[layer]).expect("a profile");
            let json = profile.host.files[KUBELET_CONFIG].json.clone();
            (json.expect("JSON"), said)
        };
        let both = json!({"imageGCHighThresholdPercent": 70, "imageGCLowThresholdPercent": 60, "maxPods": 99});
        let (json, said) = told(&both, "{imageGCLowThresholdPercent: 75}");
        let of = |name: &str| json.get(name).cloned().unwrap_or_default();
        assert_eq!(of("imageGCLowThresholdPercent"), 75);
        assert_eq!(of("imageGCHighThresholdPercent"), Value::Null);
        assert_eq!(of("maxPods"), 99, "everything else of it reaches the node");
        let wanted = "KubeletConfigs and the layers: `imageGCLowThresholdPercent` (75) is not below \
            `imageGCHighThresholdPercent` (70)";
        assert!(said.len() == 1 && said[0].starts_with(wanted), "{said:?}");
        assert!(
            said[0].ends_with(
                "The layers count, and imageGCHighThresholdPercent and imageGCLowThresholdPercent of the cluster do not \
                 reach Windows nodes"
            ),
            "{said:?}"
        );
        // The profile's own periods come back, with their condition.
        let short = json!({"shutdownGracePeriod": "10s"});
        let (json, said) = told(&short, "{shutdownGracePeriodCriticalPods: {value: 15s}}");
        assert_eq!(json["shutdownGracePeriod"]["value"], "60s");
        assert_eq!(json["shutdownGracePeriodCriticalPods"]["value"], "15s");
        assert_eq!(said.len(), 1, "{said:?}");
        // What agrees is merged, and what a layer contradicts by itself is the layer's matter.
        let (json, said) = told(&both, "{imageGCLowThresholdPercent: 65}");
        assert_eq!(
            (&json["imageGCHighThresholdPercent"], said.len()),
            (&json!(70), 0)
        );
        let pulls = json!({"serializeImagePulls": false});
        let (json, said) = told(
            &pulls,
            "{serializeImagePulls: true, maxParallelImagePulls: 5}",
        );
        assert_eq!((&json["maxParallelImagePulls"], said.len()), (&json!(5), 0));
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
