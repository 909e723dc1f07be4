//! Cluster settings for nodes: mirror sets and the pull secret, the proxy, further authorities, the kubelet settings of the
//! machine config, and the layers that the pool names. A kind that the cluster does not serve counts as empty, as on plain
//! Kubernetes.

use super::{
    ANSWER_MAX,
    authorities::{certificates, pem_of},
    cluster::EXPORTER_TLS,
    error::{failure, is_gone, silent},
    watched::Watched,
};
use crate::pool::{self, LAYER_KEY};
use dormer_profile::{
    cluster_config::{ClusterSnapshot, Revision, TRUSTED_CA},
    ignition::{KubeletFacts, kubelet_facts},
    kubelet_config::KubeletConfig,
    layers::Layer,
    mirrors::{Credentials, Mirrored},
    proxy::Proxy,
    registry_sources::RegistrySources,
};
use dormer_proto::{lock::Locked as _, pool::DEFAULT_POOL};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    core::{Selector, SelectorExt as _},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};
use tokio::time::timeout;

/// API group of the cluster's configuration.
const CONFIG_GROUP: &str = "config.openshift.io";
/// API group of the machine configs.
pub(super) const MACHINE_CONFIG_GROUP: &str = "machineconfiguration.openshift.io";
/// API group of the operators' configuration.
const OPERATOR_GROUP: &str = "operator.openshift.io";
/// API group of our own kinds.
const POOL_GROUP: &str = "dormer.io";
/// Where OpenShift keeps what its administrators give it.
const CONFIG: &str = "openshift-config";
/// The pull secret there, and its key.
const PULL_SECRET: (&str, &str) = ("pull-secret", ".dockerconfigjson");
/// The key of a bundle of authorities in a ConfigMap, as OpenShift injects it.
const BUNDLE: &str = "ca-bundle.crt";
/// MachineConfigPool whose settings Windows nodes follow.
pub(crate) const WORKER_POOL: &str = "worker";
/// Number at the end of the name of a KubeletConfig's machine config; the first one has none.
const MC_NAME_SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";
/// Mirror sets, or KubeletConfigs, that are asked for at once; and the most of a kind that are read.
const SETS_PAGE: u32 = 500;
const SETS_MAX: usize = 5_000;

/// Most bytes of a pool's layers together: a worker publishes them to consoles in one message.
const LAYERS_BYTES_MAX: usize = 256 << 10;

/// Reader of cluster settings.
pub(crate) struct ClusterConfigReader {
    client: Client,
    /// dormer's own namespace.
    home: String,
    /// Contents of the machine config of that name. A rendered one never changes.
    machine_config: Mutex<Option<(String, KubeletFacts)>>,
    /// Kinds that the API server has served before. A starting API server may serve fewer for a moment; a kind that is
    /// missing then is not gone.
    served: Mutex<BTreeSet<String>>,
}

/// What a reading is made of, to be watched. A rendered machine config never changes, and has another name each time.
pub(crate) fn watched(client: &Client, home: &str) -> Vec<Watched> {
    let of = |group: &str, kind: &str| Watched::new(client, &resource(group, kind), None);
    let within =
        |kind: &str, namespace: &str| Watched::new(client, &resource("", kind), Some(namespace));
    // Only OpenShift's own settings name objects there.
    let given = |kind: &str| within(kind, CONFIG).beside(resource(CONFIG_GROUP, "Proxy"));
    vec![
        of(CONFIG_GROUP, "ImageDigestMirrorSet"),
        of(CONFIG_GROUP, "ImageTagMirrorSet"),
        of(OPERATOR_GROUP, "ImageContentSourcePolicy"),
        of(MACHINE_CONFIG_GROUP, "KubeletConfig"),
        of(MACHINE_CONFIG_GROUP, "MachineConfigPool").named(WORKER_POOL),
        of(OPERATOR_GROUP, "Network").named("cluster"),
        of(CONFIG_GROUP, "Proxy").named("cluster"),
        of(CONFIG_GROUP, "Image").named("cluster"),
        given("Secret").named(PULL_SECRET.0),
        given("ConfigMap"),
        within("Secret", home).named(EXPORTER_TLS),
        // Its own authorities, and the pool's layers.
        within("ConfigMap", home),
    ]
}

impl ClusterConfigReader {
    /// Reader through `client`; `home` is dormer's own namespace.
    pub(crate) fn new(client: Client, home: &str) -> Self {
        Self {
            client,
            home: home.to_owned(),
            machine_config: Mutex::default(),
            served: Mutex::default(),
        }
    }

    /// Reads once.
    pub(crate) async fn read(&self) -> ClusterSnapshot {
        let (mirrors, proxy, kubelet, exporter, vxlan_port, kubelet_configs, image, layers) = tokio::join!(
            self.mirrors(),
            self.proxy(),
            self.kubelet(),
            self.exporter(),
            self.vxlan_port(),
            self.kubelet_configs(),
            self.cluster("Image"),
            self.layers()
        );
        // Also on plain Kubernetes, which has no such object.
        let image = image.map(|image| image.map_or(Value::Null, |image| image.data));
        let registry_sources = image.as_ref().map_err(Clone::clone);
        let registry_sources =
            registry_sources.map(|image| RegistrySources::parse(&image["spec"]["registrySources"]));
        let mirrored = mirrors.as_ref().is_ok_and(|sets| !sets.is_empty());
        let pull_secret = if mirrored {
            self.pull_secret().await
        } else {
            Ok(Default::default())
        };
        let (proxy, bundle) = match proxy {
            Ok((proxy, bundle)) => (Ok(proxy), Ok(bundle)),
            Err(why) => (Err(why.clone()), Err(why)),
        };
        let trusted_ca = self.trusted_ca(bundle, image).await;
        ClusterSnapshot {
            mirrors,
            pull_secret,
            proxy,
            trusted_ca,
            kubelet,
            exporter,
            vxlan_port,
            kubelet_configs,
            registry_sources,
            layers,
        }
    }

    /// Layers of the pool, the lowest first. The ConfigMaps that it names are at home.
    async fn layers(&self) -> Result<Vec<Layer>, String> {
        let resource = resource(POOL_GROUP, "WindowsPool");
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &self.home, &resource);
        let what = format!(".{POOL_GROUP} {}/{DEFAULT_POOL}", self.home);
        let read = self.within("get", (&resource.plural, &what), api.get(DEFAULT_POOL));
        let Some(pool) = read.await? else {
            return Ok(Vec::new());
        };
        let names = pool::layers(&pool.data["spec"])
            .map_err(|why| format!("WindowsPool {}/{DEFAULT_POOL}: {why}", self.home))?;
        let mut layers = Vec::new();
        let mut bytes = 0;
        for name in names {
            let place = format!("ConfigMap {}/{name}", self.home);
            let map = self.map(&self.home, &name).await?;
            let map = map.ok_or_else(|| {
                format!("there is no {place}, which spec.layers of the WindowsPool names")
            })?;
            let text = map.get(LAYER_KEY);
            let text = text.ok_or_else(|| format!("{place} has no {LAYER_KEY}"))?;
            bytes += text.len();
            if bytes > LAYERS_BYTES_MAX {
                return Err(format!(
                    "the layers up to {place} have {bytes} bytes, at most {LAYERS_BYTES_MAX}"
                ));
            }
            let layer = Layer::parse(&place, text)
                .map_err(|problems| problems.to_string().replace('\n', "; "))?;
            layers.push(layer);
        }
        Ok(layers)
    }

    /// KubeletConfigs of the pool whose settings Windows nodes follow. The last one is the one that OpenShift's own order
    /// puts last: each becomes a machine config whose name ends with the number in an annotation.
    async fn kubelet_configs(&self) -> Result<Vec<KubeletConfig>, String> {
        let mut found = self.sets(MACHINE_CONFIG_GROUP, "KubeletConfig").await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let pool = self
            .object(MACHINE_CONFIG_GROUP, "MachineConfigPool", WORKER_POOL)
            .await?;
        let labels = pool.map(|pool| pool.labels().clone()).unwrap_or_default();
        found.retain(|config| config.metadata.deletion_timestamp.is_none());
        found.retain(|config| selects(&config.data["spec"]["machineConfigPoolSelector"], &labels));
        found.sort_by_key(|config| {
            let number = config.annotations().get(MC_NAME_SUFFIX);
            let number: u32 = number.and_then(|it| it.parse().ok()).unwrap_or(0);
            (number, config.creation_timestamp(), config.name_any())
        });
        Ok(found.iter().map(kubelet_config).collect())
    }

    /// UDP port of the hybrid overlay, where the cluster's network operator has another one than 4789.
    async fn vxlan_port(&self) -> Result<Option<u16>, String> {
        let Some(network) = self.object(OPERATOR_GROUP, "Network", "cluster").await? else {
            return Ok(None);
        };
        let overlay = &network.data["spec"]["defaultNetwork"]["ovnKubernetesConfig"];
        let port = &overlay["hybridOverlayConfig"]["hybridOverlayVXLANPort"];
        if port.is_null() {
            return Ok(None);
        }
        let read = port.as_u64().and_then(|port| u16::try_from(port).ok());
        read.filter(|port| *port != 0).map(Some).ok_or_else(|| {
            format!("hybridOverlayVXLANPort of networks.operator.openshift.io/cluster is {port}, no port")
        })
    }

    /// Mirror sets for digests before those for tags, each sorted by name, so that every reader gets the same order.
    async fn mirrors(&self) -> Result<Vec<Mirrored>, String> {
        let mut found = Vec::new();
        for (group, kind, field, tags) in [
            (
                CONFIG_GROUP,
                "ImageDigestMirrorSet",
                "imageDigestMirrors",
                false,
            ),
            // Predecessor of ImageDigestMirrorSets, still served; also for digests.
            (
                OPERATOR_GROUP,
                "ImageContentSourcePolicy",
                "repositoryDigestMirrors",
                false,
            ),
            (CONFIG_GROUP, "ImageTagMirrorSet", "imageTagMirrors", true),
        ] {
            let mut sets = self.sets(group, kind).await?;
            sets.sort_by_key(ResourceExt::name_any);
            for set in sets {
                let entries = set.data["spec"][field]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                found.extend(entries.iter().map(|entry| mirrored(entry, tags)));
            }
        }
        Ok(found)
    }

    async fn sets(&self, group: &str, kind: &str) -> Result<Vec<DynamicObject>, String> {
        let resource = resource(group, kind);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let mut params = ListParams::default().limit(SETS_PAGE);
        let group = format!(".{group}");
        let mut found = Vec::new();
        loop {
            let listed = self.within("list", (&resource.plural, &group), api.list(&params));
            let Some(page) = listed.await? else {
                return Ok(found);
            };
            found.extend(page.items);
            if found.len() > SETS_MAX {
                let plural = &resource.plural;
                return Err(format!("there are more than {SETS_MAX} {plural}{group}"));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    async fn pull_secret(&self) -> Result<(Revision, Credentials), String> {
        let (name, key) = PULL_SECRET;
        let Some(secret) = self.secret(CONFIG, name).await? else {
            return Ok(Default::default());
        };
        let revision = Revision(secret.resource_version().unwrap_or_default());
        let bytes = secret
            .data
            .as_ref()
            .and_then(|data| data.get(key))
            .map(|bytes| &bytes.0[..]);
        let Some(bytes) = bytes else {
            return Err(format!("Secret {CONFIG}/{name} has no {key}"));
        };
        let text =
            std::str::from_utf8(bytes).map_err(|_| format!("Secret {CONFIG}/{name} is no text"))?;
        let read = Credentials::parse(text)
            .map_err(|why| format!("Secret {CONFIG}/{name}: {key} {why}"))?;
        Ok((revision, read))
    }

    /// The proxy as the cluster itself has it, and the ConfigMap with the authorities that it needs.
    async fn proxy(&self) -> Result<(Proxy, Option<String>), String> {
        let Some(found) = self.cluster("Proxy").await? else {
            return Ok(Default::default());
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let status = &found.data["status"];
        let http = text(&status["httpProxy"]);
        let https = text(&status["httpsProxy"]);
        for (name, value) in [("httpProxy", &http), ("httpsProxy", &https)] {
            if !value.is_empty() && !is_url(value) {
                // It may hold a password.
                return Err(format!(
                    "status.{name} of proxies.config.openshift.io/cluster is no URL"
                ));
            }
        }
        let revision = found.resource_version().unwrap_or_default();
        let proxy = Proxy::new(&http, &https, &text(&status["noProxy"]), &revision);
        let bundle = text(&found.data["spec"]["trustedCA"]["name"]);
        Ok((proxy, Some(bundle).filter(|name| !name.is_empty())))
    }

    /// A ConfigMap `trusted-ca` at home wins over the one that the proxy names; the authorities of registries come on
    /// top.
    async fn trusted_ca(
        &self,
        named: Result<Option<String>, String>,
        image: Result<Value, String>,
    ) -> Result<String, String> {
        let bundle = match self.map(&self.home, TRUSTED_CA).await? {
            Some(own) => Some((format!("{}/{TRUSTED_CA}", self.home), own)),
            // Without the proxy, the authorities that it names are unknown as well.
            None => match named? {
                Some(name) => {
                    let map = self.map(CONFIG, &name).await?;
                    let map =
                        map.ok_or_else(|| format!("there is no ConfigMap {CONFIG}/{name}"))?;
                    Some((format!("{CONFIG}/{name}"), map))
                }
                None => None,
            },
        };
        let mut found = BTreeMap::new();
        if let Some((key, data)) = bundle {
            let Some(pem) = data.get(BUNDLE) else {
                return Err(format!("ConfigMap {key} has no {BUNDLE}"));
            };
            certificates(pem, &mut found)
                .map_err(|why| format!("ConfigMap {key}: {BUNDLE} {why}"))?;
        }
        if let Some(name) = image?["spec"]["additionalTrustedCA"]["name"].as_str()
            && !name.is_empty()
        {
            for (registry, pem) in self.map(CONFIG, name).await?.unwrap_or_default() {
                certificates(&pem, &mut found)
                    .map_err(|why| format!("ConfigMap {CONFIG}/{name}: {registry} {why}"))?;
            }
        }
        Ok(pem_of(found.into_values()))
    }

    async fn kubelet(&self) -> Result<KubeletFacts, String> {
        let pool = self
            .object(MACHINE_CONFIG_GROUP, "MachineConfigPool", WORKER_POOL)
            .await?;
        let Some(pool) = pool else {
            return Ok(KubeletFacts::default());
        };
        let name = |part: &str| {
            pool.data[part]["configuration"]["name"]
                .as_str()
                .map(str::to_owned)
        };
        // `spec` names what the pool shall have, `status` what all its nodes have (machine-config-operator
        // pkg/controller/node/status.go, calculateStatus). What no Linux node has run yet reaches no Windows node.
        let Some(name) = name("status").or_else(|| name("spec")) else {
            return Ok(KubeletFacts::default());
        };
        let known = self.machine_config.locked().clone();
        if let Some((_, facts)) = known.filter(|(known, _)| *known == name) {
            return Ok(facts);
        }
        let found = self
            .object(MACHINE_CONFIG_GROUP, "MachineConfig", &name)
            .await?;
        let found = found.ok_or_else(|| format!("there is no MachineConfig {name}"))?;
        let facts = kubelet_facts(&found.data["spec"]["config"])
            .map_err(|why| format!("MachineConfig {name} {why}"))?;
        if let Some(why) = &facts.unread {
            tracing::warn!(
                "MachineConfig {name}: {why}. Its settings of the kubelet do not reach Windows nodes"
            );
        }
        *self.machine_config.locked() = Some((name, facts.clone()));
        Ok(facts)
    }

    /// Revision of the exporters' certificate. Its private key stays out of this process: a rule cannot say so, but a
    /// request for the metadata gets nothing else.
    async fn exporter(&self) -> Result<Revision, String> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.home);
        let what = format!(" {}/{EXPORTER_TLS}", self.home);
        let read = api.get_metadata(EXPORTER_TLS);
        let secret = self.within("get", ("Secret", &what), read).await?;
        Ok(Revision(
            secret
                .and_then(|secret| secret.resource_version())
                .unwrap_or_default(),
        ))
    }

    /// One read; `None`: it is not there, or nothing of its kind is served.
    async fn within<T>(
        &self,
        verb: &str,
        (kind, name): (&str, &str),
        doing: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Option<T>, String> {
        let what = format!("{kind}{name}");
        // A kind of one name can be in two groups, of which one is served.
        let kind = what
            .split_once('/')
            .map_or(&what[..], |(kind, _)| kind)
            .to_owned();
        let done = timeout(ANSWER_MAX, doing)
            .await
            .map_err(|_| silent(verb, &what).message)?;
        let mut served = self.served.locked();
        match done {
            Ok(found) => {
                served.insert(kind);
                Ok(Some(found))
            }
            Err(error) if is_gone(&error) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 && !served.contains(&kind) => {
                Ok(None)
            }
            Err(error) => Err(failure(verb, &what, &error).message),
        }
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>, String> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        self.within(
            "get",
            ("Secret", &format!(" {namespace}/{name}")),
            api.get(name),
        )
        .await
    }

    async fn map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<BTreeMap<String, String>>, String> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let found = self
            .within(
                "get",
                ("ConfigMap", &format!(" {namespace}/{name}")),
                api.get(name),
            )
            .await?;
        Ok(found.map(|map| map.data.unwrap_or_default()))
    }

    async fn cluster(&self, kind: &str) -> Result<Option<DynamicObject>, String> {
        self.object(CONFIG_GROUP, kind, "cluster").await
    }

    async fn object(
        &self,
        group: &str,
        kind: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, String> {
        let resource = resource(group, kind);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        self.within(
            "get",
            (&resource.plural, &format!(".{group}/{name}")),
            api.get(name),
        )
        .await
    }
}

fn resource(group: &str, kind: &str) -> ApiResource {
    let version = match kind {
        "ImageContentSourcePolicy" => "v1alpha1",
        "WindowsPool" => "v1beta1",
        _ => "v1",
    };
    let gvk = GroupVersionKind::gvk(group, version, kind);
    match kind {
        // kube would derive a wrong plural.
        "Proxy" => ApiResource::from_gvk_with_plural(&gvk, "proxies"),
        _ => ApiResource::from_gvk(&gvk),
    }
}

fn kubelet_config(config: &DynamicObject) -> KubeletConfig {
    let spec = config.data["spec"].as_object();
    let further = spec.into_iter().flatten().filter(|(name, value)| {
        !value.is_null() && !["kubeletConfig", "machineConfigPoolSelector"].contains(&name.as_str())
    });
    // The newest condition is the last one. That of a refusal has the type Failure, whatever its status.
    let conditions = config.data["status"]["conditions"].as_array();
    let newest = conditions.and_then(|all| all.last());
    let refusal = newest.filter(|condition| condition["type"] == "Failure");
    let why = |condition: &Value| {
        condition["message"]
            .as_str()
            .unwrap_or("no reason")
            .to_owned()
    };
    KubeletConfig {
        name: config.name_any(),
        settings: config.data["spec"]["kubeletConfig"].clone(),
        further: further.map(|(name, _)| name.clone()).collect(),
        refused: refusal.map(why),
    }
}

/// Whether a label selector selects these labels. Without one, as with one that cannot be read, nothing is selected.
fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let Ok(selector) = serde_json::from_value::<LabelSelector>(selector.clone()) else {
        return false;
    };
    let empty = selector.match_labels.is_none() && selector.match_expressions.is_none();
    !empty && Selector::try_from(selector).is_ok_and(|selector| selector.matches(labels))
}

/// Windows' programs take a proxy with its scheme, and a host behind it.
fn is_url(text: &str) -> bool {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    let plain = |rest: &str| !rest.chars().any(|c| c.is_whitespace() || c.is_control());
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', ':']) && plain(rest))
}

fn mirrored(entry: &Value, tags: bool) -> Mirrored {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mirrors = entry["mirrors"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    Mirrored {
        source: text(&entry["source"]),
        mirrors: mirrors.iter().map(text).collect(),
        never_source: entry["mirrorSourcePolicy"] == "NeverContactSource",
        tags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::ACCEPT;
    use kube::client::Body;
    use std::sync::Arc;

    #[tokio::test]
    async fn the_exporters_certificate_is_followed_without_its_private_key() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::clone(&asked);
        let answer = move |request: http::Request<Body>| {
            let accepts = request.headers().get(ACCEPT).cloned();
            let path = request.uri().path().to_owned();
            known.lock().expect("no panic").push((path, accepts));
            async {
                let metadata = r#"{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": {"name": "a", "resourceVersion": "7"}}"#;
                let answer = Body::from(metadata.as_bytes().to_vec());
                Ok::<_, std::io::Error>(http::Response::new(answer))
            }
        };
        let client = Client::new(tower::service_fn(answer), "dormer");
        let reader = ClusterConfigReader::new(client, "dormer");
        assert_eq!(reader.exporter().await, Ok(Revision("7".into())));
        let asked = asked.lock().expect("no panic").clone();
        let [(path, Some(accepts))] = &asked[..] else {
            panic!("{asked:?}")
        };
        assert!(path.ends_with(EXPORTER_TLS), "{path}");
        let accepts = accepts.to_str().expect("a text");
        assert!(accepts.contains("as=PartialObjectMetadata"), "{accepts}");
    }
}
