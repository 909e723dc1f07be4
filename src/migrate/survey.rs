//! Survey of a cluster that the Windows Machine Config Operator (WMCO) runs, or ran: what it has there, and how far dormer
//! has taken its nodes over. It writes nothing.

use crate::cluster_access::{failed, silent};
use base64::{Engine, prelude::BASE64_STANDARD};
use dormer_client::Failure;
use dormer_profile::sha256_hex;
use dormer_workers::{
    kubernetes::{keys, operators},
    ssh::Key,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::timeout;

/// Time limit of one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Objects of one page of a list.
const PAGE: u32 = 500;
/// WMCO's package in OLM, its Deployment, and the begin of its lock's name.
pub(super) const WMCO: &str = "windows-machine-config-operator";
/// Namespace that OpenShift's documents install WMCO into.
const WMCO_HOME: &str = "openshift-windows-machine-config-operator";
/// Namespace of the Machine API.
pub(super) const MACHINE_API: &str = "openshift-machine-api";
/// Secret with the SSH key, of WMCO and of dormer.
pub(super) const KEY: &str = "cloud-private-key";
/// File in that Secret.
pub(super) const KEY_FILE: &str = "private-key.pem";
/// WMCO's daemon on hosts (WICD): its service, and its account.
pub(crate) const WICD: &str = "windows-instance-config-daemon";
/// ConfigMaps that WICD follows, before their version.
pub(super) const SERVICES: &str = "windows-services-";
/// WMCO's list of BYOH hosts.
pub(super) const INSTANCES: &str = "windows-instances";
/// WMCO's annotations and labels, before their own names.
pub(super) const PREFIX: &str = "windowsmachineconfig.openshift.io/";
/// dormer's pool.
pub(super) const POOL: &str = "windows";
/// Lease of dormer's watcher.
const WATCHER: &str = "dormer-watcher";

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WindowsNode {
    pub(super) name: String,
    /// Its Machine; none for a BYOH host.
    pub(super) machine: Option<String>,
    /// WMCO's `version`: it was configured by this build.
    pub(super) version: Option<String>,
    /// WMCO's `desired-version`.
    pub(super) desired_version: Option<String>,
    /// WMCO's `pub-key-hash`.
    pub(super) key_hash: Option<String>,
    /// Whether WMCO upgrades it at the moment.
    pub(super) upgrading: bool,
    /// Whether WMCO owes it a reboot.
    pub(super) reboot_required: bool,
    /// Whether WMCO has it from `windows-instances`.
    pub(super) own_host: bool,
    pub(super) ready: bool,
    pub(super) cordoned: bool,
    /// dormer's version: dormer configured it.
    pub(super) dormer: Option<String>,
    /// Whether dormer's fence on it is open.
    pub(super) fenced: bool,
    /// State that dormer shows of its machine.
    pub(super) state: Option<String>,
    /// Whether its Machine has the label `ignore=true`.
    pub(super) ignored: bool,
    /// Its address in the cluster.
    pub(super) address: Option<String>,
    /// Host key that dormer pinned on it.
    pub(super) host_key: Option<String>,
    /// Pause images in its list of images.
    pub(super) pause_images: Vec<String>,
    #[serde(skip)]
    pub(super) resource_version: String,
}

/// The key of hosts in a Secret.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "is", content = "of")]
pub(super) enum KeySecret {
    #[default]
    Absent,
    /// It is no key that dormer can use: why.
    Unusable(String),
    /// WMCO's hash of its public key.
    There(String),
}

impl KeySecret {
    pub(super) fn hash(&self) -> Option<&str> {
        match self {
            Self::There(hash) => Some(hash),
            Self::Absent | Self::Unusable(_) => None,
        }
    }
}

/// dormer's pool, as far as a move needs it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SurveyedPool {
    pub(super) paused: bool,
    /// `Manual`, and not `Automatic`.
    pub(super) manual: bool,
    /// `InPlace`, and not `Recreate`.
    pub(super) in_place: bool,
}

impl SurveyedPool {
    /// Whether no node is upgraded before a person says so, twice.
    pub(super) fn waits(&self) -> bool {
        self.paused && self.manual
    }
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Survey {
    /// dormer's namespace.
    pub(super) namespace: String,
    pub(super) kubernetes: String,
    /// WMCO's namespace.
    pub(super) wmco_namespace: String,
    /// Sentence about a WMCO that runs.
    pub(super) runs: Option<String>,
    /// WMCO's Deployment, with its replicas.
    pub(super) deployment: Option<i64>,
    /// Pod that owns its lock.
    pub(super) lock_holder: Option<String>,
    /// OLM's Subscriptions to it, `NAMESPACE/NAME`.
    pub(super) subscriptions: Vec<String>,
    /// Its ClusterServiceVersions, `NAMESPACE/NAME`.
    pub(super) cluster_service_versions: Vec<String>,
    /// Entries of its `windows-instances`; none: there is no such ConfigMap.
    pub(super) instances: Option<usize>,
    /// Entries of `windows-instances` in dormer's namespace.
    pub(super) own_instances: Option<usize>,
    /// Versions of its ConfigMaps `windows-services-…`.
    pub(super) services: Vec<String>,
    /// Whether WICD's account is there.
    pub(super) daemon_account: bool,
    pub(super) key: KeySecret,
    /// The copy in dormer's namespace.
    pub(super) key_copy: KeySecret,
    pub(super) pool: Option<SurveyedPool>,
    /// Process that holds the Lease of dormer's watcher.
    pub(super) watcher: Option<String>,
    pub(super) nodes: Vec<WindowsNode>,
    /// Sources of the ImageTagMirrorSets.
    pub(super) tag_mirrors: Vec<String>,
    /// `blockedRegistries` of the cluster.
    pub(super) blocked_registries: Vec<String>,
    /// What could not be read, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unread: Vec<String>,
}

impl Survey {
    /// Whether anything of WMCO's operator is left that could run again.
    pub(super) fn operator_left(&self) -> Vec<String> {
        let home = &self.wmco_namespace;
        let all = |kind: &str, names: &[String]| -> Vec<String> {
            names.iter().map(|name| format!("{kind} {name}")).collect()
        };
        let mut left = all("Subscription", &self.subscriptions);
        left.extend(all("ClusterServiceVersion", &self.cluster_service_versions));
        left.extend(self.deployment.map(|_| format!("Deployment {home}/{WMCO}")));
        left.extend(
            self.lock_holder
                .as_ref()
                .filter(|_| self.runs.is_some())
                .map(|pod| format!("Pod {home}/{pod}")),
        );
        left
    }

    /// Nodes that carry WMCO's version.
    pub(super) fn wmco_nodes(&self) -> impl Iterator<Item = &WindowsNode> {
        self.nodes.iter().filter(|node| node.version.is_some())
    }

    /// Nodes that WMCO configured, and dormer has not upgraded yet.
    pub(super) fn still_wmco(&self) -> impl Iterator<Item = &WindowsNode> {
        self.wmco_nodes().filter(|node| node.dormer.is_none())
    }
}

/// WMCO's hash of a key: SHA-256 of the line in `authorized_keys`, without comment and line end
/// (WMCO `pkg/nodeconfig/nodeconfig.go`, CreatePubKeyHashAnnotation, read at 0be4b9cc).
pub(crate) fn key_hash(public_line: &str) -> String {
    sha256_hex(public_line.trim_end().as_bytes())
}

/// Reads the cluster. `namespace` is dormer's.
///
/// # Errors
/// No API server answers.
pub(super) async fn read(client: &Client, namespace: &str) -> Result<Survey, Failure> {
    let in_time = timeout(ANSWER_MAX, client.apiserver_version()).await;
    let answer = in_time.map_err(|_| silent("its version"))?;
    let version = answer.map_err(failed)?;
    let mut reader = ClusterReader {
        client,
        unread: Vec::new(),
    };
    let mut survey = Survey {
        namespace: namespace.to_owned(),
        kubernetes: version.git_version,
        ..Survey::default()
    };
    reader.operator(&mut survey).await;
    reader.dormer(&mut survey).await;
    reader.nodes(&mut survey).await;
    reader.registries(&mut survey).await;
    survey.unread = reader.unread;
    Ok(survey)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

fn annotation(object: &Value, key: &str) -> Option<String> {
    let text = object["metadata"]["annotations"][key].as_str()?;
    Some(text.to_owned())
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"][key].as_str()
}

fn whole(object: &Value) -> String {
    format!("{}/{}", namespace(object), name(object))
}

fn entries(map: Option<Value>) -> Option<usize> {
    let map = map?;
    Some(map["data"].as_object().map_or(0, serde_json::Map::len))
}

fn key_of(secret: Option<Value>) -> KeySecret {
    let Some(secret) = secret else {
        return KeySecret::Absent;
    };
    let data = secret["data"][KEY_FILE].as_str();
    let text = data
        .and_then(|data| BASE64_STANDARD.decode(data).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(text) = text else {
        return KeySecret::Unusable(format!("it has no {KEY_FILE}"));
    };
    match Key::read(&text).and_then(|key| key.public_line()) {
        Ok(line) => KeySecret::There(key_hash(&line)),
        Err(error) => KeySecret::Unusable(error.to_string()),
    }
}

/// A Node as the API server has it.
pub(super) fn node(node: &Value) -> WindowsNode {
    let wmco = |key: &str| annotation(node, &format!("{PREFIX}{key}"));
    let labelled = |key: &str| label(node, &format!("{PREFIX}{key}")) == Some("true");
    let all = |key: &str| node["status"][key].as_array().into_iter().flatten();
    let ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
    let address = all("addresses").find(|it| it["type"] == "InternalIP");
    let fence = annotation(node, keys::FENCE);
    WindowsNode {
        name: name(node).to_owned(),
        version: wmco("version"),
        desired_version: wmco("desired-version"),
        key_hash: wmco("pub-key-hash"),
        reboot_required: wmco("reboot-required").is_some(),
        upgrading: labelled("upgrading"),
        own_host: labelled("byoh"),
        ready: all("conditions").any(ready),
        cordoned: node["spec"]["unschedulable"] == true,
        dormer: annotation(node, keys::VERSION),
        fenced: fence
            .and_then(|text| keys::fence(&text))
            .is_some_and(|mark| mark.open),
        address: address.and_then(|it| Some(it["address"].as_str()?.to_owned())),
        host_key: annotation(node, keys::HOST_KEY),
        pause_images: pause_images(node),
        resource_version: node["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        ..WindowsNode::default()
    }
}

struct ClusterReader<'a> {
    client: &'a Client,
    unread: Vec<String>,
}

impl ClusterReader<'_> {
    fn api(&self, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let client = self.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    fn not_read(&mut self, what: &str, why: impl std::fmt::Display) {
        self.unread.push(format!("{what}: {why}"));
    }

    async fn one(
        &mut self,
        version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let api = self.api(version, kind, Some(namespace));
        let what = format!("{kind} {namespace}/{name}");
        match timeout(ANSWER_MAX, api.get_opt(name)).await {
            Ok(Ok(found)) => return found.and_then(|found| serde_json::to_value(found).ok()),
            Ok(Err(error)) => self.not_read(&what, error),
            Err(_) => self.not_read(&what, "no answer within 30 s"),
        }
        None
    }

    /// Objects of a kind; of one name, if one is given.
    async fn many(
        &mut self,
        version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Vec<Value> {
        let api = self.api(version, kind, namespace);
        let mut params = ListParams::default().limit(PAGE);
        if let Some(name) = name {
            params = params.fields(&format!("metadata.name={name}"));
        }
        let mut found = Vec::new();
        loop {
            match timeout(ANSWER_MAX, api.list(&params)).await {
                Ok(Ok(list)) => {
                    let more = list.metadata.continue_.filter(|token| !token.is_empty());
                    let items = list.items.into_iter();
                    found.extend(items.filter_map(|it| serde_json::to_value(it).ok()));
                    match more {
                        Some(token) => params.continue_token = Some(token),
                        None => return found,
                    }
                }
                // No such kind here.
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => return found,
                Ok(Err(error)) => {
                    self.not_read(&format!("{kind}s"), error);
                    return found;
                }
                Err(_) => {
                    self.not_read(&format!("{kind}s"), "no answer within 30 s");
                    return found;
                }
            }
        }
    }

    async fn operator(&mut self, survey: &mut Survey) {
        let seen = operators::check(self.client).await;
        survey.runs = seen.neighbour.runs().map(str::to_owned);
        self.unread.extend(seen.unread);
        let deployments = self.many("apps/v1", "Deployment", None, Some(WMCO)).await;
        let lock = format!("{WMCO}-lock");
        let mut locks = self.many("v1", "ConfigMap", None, Some(&lock)).await;
        let lease = "coordination.k8s.io/v1";
        locks.extend(self.many(lease, "Lease", None, Some(&lock)).await);
        let olm = "operators.coreos.com/v1alpha1";
        let subscriptions = self.many(olm, "Subscription", None, None).await;
        survey.subscriptions = subscriptions
            .iter()
            .filter(|it| it["spec"]["name"] == WMCO)
            .map(whole)
            .collect();
        match operators::installed(self.client).await {
            Ok(all) => survey.cluster_service_versions = all,
            Err(why) => self.unread.push(why),
        }
        let accounts = self.many("v1", "ServiceAccount", None, Some(WICD)).await;
        let instances = self.many("v1", "ConfigMap", None, Some(INSTANCES)).await;
        let first = |all: &[Value]| all.first().map(|it| namespace(it).to_owned());
        let named = |all: &[String]| {
            let whole = all.first()?;
            Some(whole.split_once('/')?.0.to_owned())
        };
        let home = first(&deployments)
            .or_else(|| first(&locks))
            .or_else(|| named(&survey.subscriptions))
            .or_else(|| named(&survey.cluster_service_versions))
            .or_else(|| first(&accounts))
            .unwrap_or_else(|| WMCO_HOME.to_owned());
        survey.deployment = deployments
            .first()
            // The API server's default.
            .map(|it| it["spec"]["replicas"].as_i64().unwrap_or(1));
        survey.lock_holder = locks.iter().find_map(|lock| {
            let owners = lock["metadata"]["ownerReferences"].as_array()?;
            let pod = owners.iter().find(|it| it["kind"] == "Pod")?;
            Some(pod["name"].as_str()?.to_owned())
        });
        survey.daemon_account = accounts.iter().any(|it| namespace(it) == home);
        let of = |home: &str| instances.iter().find(|it| namespace(it) == home).cloned();
        survey.own_instances = entries(of(&survey.namespace));
        survey.instances = entries(of(&home).filter(|_| home != survey.namespace));
        let maps = self.many("v1", "ConfigMap", Some(&home), None).await;
        survey.services = maps
            .iter()
            .filter_map(|it| Some(name(it).strip_prefix(SERVICES)?.to_owned()))
            .collect();
        survey.key = key_of(self.one("v1", "Secret", &home, KEY).await);
        survey.wmco_namespace = home;
    }

    async fn dormer(&mut self, survey: &mut Survey) {
        let home = survey.namespace.clone();
        survey.key_copy = key_of(self.one("v1", "Secret", &home, KEY).await);
        let pools = self
            .many("dormer.io/v1beta1", "WindowsPool", Some(&home), Some(POOL))
            .await;
        // A server that knows no such field's selector answers with all.
        let pool = pools.iter().find(|it| name(it) == POOL);
        survey.pool = pool.map(|pool| SurveyedPool {
            paused: pool["spec"]["paused"] == true,
            manual: pool["spec"]["approval"] == "Manual",
            in_place: pool["spec"]["strategy"]["type"] == "InPlace",
        });
        let lease = self
            .one("coordination.k8s.io/v1", "Lease", &home, WATCHER)
            .await;
        survey.watcher = lease.and_then(|lease| {
            let holder = lease["spec"]["holderIdentity"].as_str()?;
            (!holder.is_empty()).then(|| holder.to_owned())
        });
    }

    async fn registries(&mut self, survey: &mut Survey) {
        let config = "config.openshift.io/v1";
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let sets = self.many(config, "ImageTagMirrorSet", None, None).await;
        let entries = sets
            .iter()
            .flat_map(|set| set["spec"]["imageTagMirrors"].as_array());
        let sources = entries.flatten().filter_map(|entry| text(&entry["source"]));
        survey.tag_mirrors = sources.collect();
        let images = self.many(config, "Image", None, Some("cluster")).await;
        let image = images.iter().find(|it| name(it) == "cluster");
        let blocked =
            image.and_then(|it| it["spec"]["registrySources"]["blockedRegistries"].as_array());
        survey.blocked_registries = blocked.into_iter().flatten().filter_map(text).collect();
    }

    async fn nodes(&mut self, survey: &mut Survey) {
        let machine_api = "machine.openshift.io/v1beta1";
        let machines = self
            .many(machine_api, "Machine", Some(MACHINE_API), None)
            .await;
        let by_node: BTreeMap<&str, &Value> = machines
            .iter()
            .filter_map(|it| Some((it["status"]["nodeRef"]["name"].as_str()?, it)))
            .collect();
        let shown = self
            .many("dormer.io/v1alpha1", "WindowsMachine", None, None)
            .await;
        let states: BTreeMap<&str, &str> = shown
            .iter()
            .filter_map(|it| Some((name(it), it["status"]["state"].as_str()?)))
            .collect();
        for object in self.many("v1", "Node", None, None).await {
            if label(&object, "kubernetes.io/os") != Some("windows") {
                continue;
            }
            let mut found = node(&object);
            if let Some(machine) = by_node.get(found.name.as_str()) {
                found.machine = Some(name(machine).to_owned());
                let marked = label(machine, keys::IGNORE).map(str::to_owned);
                let marked = marked.or_else(|| annotation(machine, keys::IGNORE));
                found.ignored = marked.as_deref() == Some("true");
                found.host_key = annotation(machine, keys::HOST_KEY).or(found.host_key);
            }
            let machine = found.machine.as_deref().unwrap_or(&found.name);
            found.state = states.get(machine).map(|state| (*state).to_owned());
            survey.nodes.push(found);
        }
        survey.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

/// Pause images in a Node's list of images. A kubelet lists its 50 largest.
fn pause_images(node: &Value) -> Vec<String> {
    let all = node["status"]["images"].as_array().into_iter().flatten();
    let names = all.flat_map(|image| image["names"].as_array().into_iter().flatten());
    let tagged = names.filter_map(Value::as_str).filter(|name| {
        let tagged = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
        tagged.is_some_and(|(name, _)| name.ends_with("/pause"))
    });
    tagged.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_pause_image_of_a_node_is_found_in_its_list() {
        let node = json!({"status": {"images": [
            {"names": ["mcr.microsoft.com/oss/kubernetes/pause@sha256:00", "mcr.microsoft.com/oss/kubernetes/pause:3.9"]},
            {"names": ["m.example:5000/pause"]},
            {"names": ["m.example:5000/pause:3.10.2", "m.example/pauses:1"]},
            {"names": null}]}});
        let wanted = [
            "mcr.microsoft.com/oss/kubernetes/pause:3.9",
            "m.example:5000/pause:3.10.2",
        ];
        assert_eq!(pause_images(&node), wanted);
        assert_eq!(pause_images(&json!({})), [""; 0]);
    }
}
