//! A kubelet's Node: registered once, its status reported again and again.

use serde_json::{Map, Value, json};

use super::api::Api;
use super::settings::Settings;
use crate::faults::Fault;
use crate::host::computer::Host;
use crate::host::path::WinPath;
use crate::host::scm::{ServiceState, executables, flag};
use crate::host::services::Role;

impl Host {
    /// Makes the Node, or takes any Node of its name as its own: a kubelet with a certificate for the
    /// name updates what is there. It compares no providerID, leaves that of the Node as it is, and of labels sets the
    /// default ones alone (Kubernetes 1.33, pkg/kubelet/kubelet_node_status.go: `tryRegisterWithAPIServer`,
    /// `updateDefaultLabels`). From then on it posts its own status there.
    pub(super) async fn register(&self, api: &Api, settings: &Settings) -> Result<(), String> {
        let path = format!("/api/v1/nodes/{}", settings.node);
        let (code, _) = api.get(&path).await?;
        if code == 404 {
            let (code, made) = api.post("/api/v1/nodes", &self.node(settings)).await?;
            return match code {
                201 => Ok(()),
                code => Err(format!(
                    "the Node was answered with {code}: {}",
                    made["message"]
                )),
            };
        }
        if code != 200 {
            return Err(format!("the Node was answered with {code}"));
        }
        let labels = json!({"metadata": {"labels": self.default_labels(settings)}});
        let (code, _) = api.merge(&path, &labels).await?;
        if code == 200 {
            Ok(())
        } else {
            Err(format!("labels were answered with {code}"))
        }
    }

    fn node(&self, settings: &Settings) -> Value {
        let mut id = self.instance().provider_id;
        // Only there is one computer's id written in two cases.
        if id.starts_with("azure://") && self.strike(Fault::ProviderIdCase) {
            id = in_another_case(&id);
        }
        let mut spec = json!({});
        if !id.is_empty() {
            spec["providerID"] = json!(id);
        }
        if settings.taints.is_array() {
            spec["taints"] = settings.taints.clone();
        }
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": settings.node, "labels": self.labels(settings),
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
            "spec": spec,
            "status": self.status(settings, &Err("the kubelet has just started".into()), &Value::Null),
        })
    }

    fn default_labels(&self, settings: &Settings) -> Map<String, Value> {
        let build = match self.strike(Fault::WrongBuild) {
            true => "10.0.14393",
            false => self.image.release.build(),
        };
        let mut labels = Map::new();
        for (key, value) in [
            ("kubernetes.io/os", "windows"),
            ("kubernetes.io/arch", "amd64"),
            ("kubernetes.io/hostname", settings.node.as_str()),
            ("node.kubernetes.io/windows-build", build),
        ] {
            labels.insert(key.into(), value.into());
        }
        labels
    }

    fn labels(&self, settings: &Settings) -> Value {
        let mut labels = self.default_labels(settings);
        for (key, value) in &settings.labels {
            labels.insert(key.clone(), value.clone().into());
        }
        Value::Object(labels)
    }

    /// Whether the node may call itself Ready, and if not why.
    pub(super) fn node_ready(&self) -> Result<(), String> {
        let state = self.state();
        let mut runtimes = state
            .scm
            .iter()
            .filter(|e| Role::of(&e.config.command) == Role::Containerd);
        let Some(runtime) = runtimes.find(|e| e.state == ServiceState::Running) else {
            return Err("container runtime is down".into());
        };
        let config = flag(&runtime.config.command, "config");
        let config = config.and_then(|path| state.disk.read_text_path(&path).ok());
        let text = config.map(|body| String::from_utf8_lossy(&body.head).to_lowercase());
        let openshift =
            text.is_some_and(|text| text.replace(r"\\", r"\").contains(r"c:\k\cni\config"));
        if !openshift {
            return Ok(());
        }
        let Ok(folder) = WinPath::absolute(r"C:\k\cni\config") else {
            return Ok(());
        };
        let configured = state
            .disk
            .list(&folder)
            .iter()
            .any(|(name, _)| name.contains(".conf"));
        if configured {
            Ok(())
        } else {
            Err("cni plugin not initialized".into())
        }
    }

    /// Posts the whole status.
    pub(super) async fn post_status(
        &self,
        api: &Api,
        settings: &Settings,
        ready: &Result<(), String>,
    ) -> Result<(), String> {
        let path = format!("/api/v1/nodes/{}", settings.node);
        let before = match api.get(&path).await? {
            (200, node) => node["status"]["conditions"].clone(),
            _ => Value::Null,
        };
        let patch = json!({"status": self.status(settings, ready, &before)});
        let (code, said) = api.merge(&format!("{path}/status"), &patch).await?;
        match code {
            200 => Ok(()),
            404 => Err("the Node is gone; a kubelet makes it only when it starts".into()),
            code => Err(format!(
                "the status was answered with {code}: {}",
                said["message"]
            )),
        }
    }

    fn status(&self, settings: &Settings, ready: &Result<(), String>, before: &Value) -> Value {
        let stamp = self.context.clock.stamp();
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            // A condition that is as it was keeps its time (kubernetes v1.33, pkg/kubelet/nodestatus/setters.go).
            let mut before = before.as_array().into_iter().flatten();
            let same = before.find(|it| it["type"] == kind && it["status"] == status);
            let since = same.and_then(|it| it["lastTransitionTime"].as_str());
            json!({"type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": stamp, "lastTransitionTime": since.unwrap_or(&stamp)})
        };
        let ready = match ready {
            Ok(()) => condition(
                "Ready",
                "True",
                "KubeletReady",
                "kubelet is posting ready status",
            ),
            Err(why) => condition("Ready", "False", "KubeletNotReady", why),
        };
        let version = self.kubelet_version();
        json!({
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": settings.pods_max.to_string()},
            "allocatable": {"cpu": "3500m", "memory": "14Gi", "pods": settings.pods_max.to_string()},
            "addresses": [
                {"type": "InternalIP", "address": settings.ip},
                {"type": "Hostname", "address": settings.node},
            ],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", ""),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", ""),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", ""),
                ready,
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "bootID": self.state().boot_id.to_string(),
                "machineID": self.state().hostname,
                "systemUUID": self.uid(),
                "kernelVersion": format!("{}.2849", self.image.release.build()),
                "osImage": self.image.release.product(),
                "operatingSystem": "windows",
                "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": version,
                "kubeProxyVersion": version,
            },
        })
    }

    /// The version that the kubelet's executable carries in its first bytes, such as `v1.33.4`.
    fn kubelet_version(&self) -> String {
        let state = self.state();
        let mut kubelets = state
            .scm
            .iter()
            .filter(|e| Role::of(&e.config.command) == Role::Kubelet);
        let exe = kubelets
            .next()
            .and_then(|e| executables(&e.config.command).pop());
        let body = exe.and_then(|path| state.disk.read(&path).ok());
        let head = body.map(|body| body.head.slice(..body.head.len().min(4_096)));
        head.and_then(|head| version_in(&head))
            .unwrap_or_else(|| "v1.33.0".into())
    }
}

/// A providerID as another party writes it. Azure's names are compared without case, and its tools spell resource groups
/// in upper or in lower case as they please, so the cloud provider's library brings them into one
/// (cloud-provider-azure, pkg/provider/azure_wrap.go: `ConvertResourceGroupNameToLower`).
fn in_another_case(id: &str) -> String {
    match id.split_once("://") {
        Some((cloud, rest)) if rest.chars().any(|c| c.is_ascii_lowercase()) => {
            format!("{cloud}://{}", rest.to_ascii_uppercase())
        }
        _ => id.to_ascii_lowercase(),
    }
}

fn version_in(head: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && !".-+".contains(c));
    let is_version = |word: &&str| {
        let numbers = word
            .strip_prefix('v')
            .map(|rest| rest.split('.').collect::<Vec<_>>());
        numbers.is_some_and(|n| {
            n.len() == 3 && n.iter().take(2).all(|p| p.parse::<u32>().is_ok()) && !n[2].is_empty()
        })
    };
    words
        .find(is_version)
        .map(|word| word.trim_end_matches(['.', '-']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_case_is_the_same_name_to_whoever_compares_without_case() {
        let id = "azure:///subscriptions/s/resourceGroups/g/providers/p/virtualMachines/win";
        let other = in_another_case(id);
        assert!(other != id && other.eq_ignore_ascii_case(id), "{other}");
        assert!(other.starts_with("azure:///"), "{other}");
    }

    #[test]
    fn a_version_is_found_in_an_executable() {
        assert_eq!(
            version_in(b"MZ\x00 kubelet.exe v1.33.4\n\x01").as_deref(),
            Some("v1.33.4")
        );
        assert_eq!(version_in(b"MZ nothing"), None);
    }
}
