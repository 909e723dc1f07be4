//! Machine APIs and their differences: OpenShift's Machine API, Cluster API in two versions, and dormer's own
//! WindowsHosts. The remaining fields are read alike in all of them: addresses, phase, `nodeRef` (Cluster API's v1beta2
//! has its name alone), `providerID`, controller, deletion (kubernetes-sigs/cluster-api,
//! `api/core/v1beta2/machine_types.go`).

use dormer_proto::machine::MachineApi;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    Client,
    api::{ApiResource, GroupVersionKind, ObjectMeta},
    core::Selector,
};
use serde::Deserialize;
use serde_json::Value;

/// Label for the operating system of a node, which its kubelet writes.
pub(crate) const OS: &str = "kubernetes.io/os";
/// On a Machine: its operating system; `Windows` is ours.
pub const OS_ID: &str = "machine.openshift.io/os-id";
/// On a Machine: excludes its node from drains, whatever the value. The Machine API's own, and Cluster API's.
const EXCLUDE_DRAIN: [&str; 2] = [
    "machine.openshift.io/exclude-node-draining",
    "machine.cluster.x-k8s.io/exclude-node-draining",
];

/// The machine APIs that the cluster serves, by discovery; of Cluster API the newer version.
pub(crate) async fn served(client: &Client) -> Result<Vec<MachineApi>, kube::Error> {
    let groups = client.list_api_groups().await?;
    let serves = |api: &MachineApi| {
        let group = groups.groups.iter().find(|group| group.name == api.group());
        group.is_some_and(|group| group.versions.iter().any(|it| it.version == api.version()))
    };
    let mut served: Vec<_> = MachineApi::ALL.into_iter().filter(serves).collect();
    if served.contains(&MachineApi::ClusterV1Beta2) {
        served.retain(|api| *api != MachineApi::ClusterV1Beta1);
    }
    Ok(served)
}

pub(crate) fn machines(api: MachineApi) -> ApiResource {
    let gvk = GroupVersionKind::gvk(api.group(), api.version(), api.kind());
    ApiResource::from_gvk(&gvk)
}

/// The API resource of the sets that make machines again; BYOH hosts have none.
pub(crate) fn machine_sets(api: MachineApi) -> Option<ApiResource> {
    let gvk = GroupVersionKind::gvk(api.group(), api.version(), "MachineSet");
    (api != MachineApi::Host).then(|| ApiResource::from_gvk(&gvk))
}

/// The selector of a set; `None` if it is empty or malformed, which both APIs refuse.
pub(crate) fn selector(written: &Value) -> Option<Selector> {
    let written = LabelSelector::deserialize(written).ok()?;
    let selector = Selector::try_from(written).ok()?;
    (!selector.selects_all()).then_some(selector)
}

/// Whether the labels of a machine, or of a set's template, say Windows. Cluster API has no field for it: the label of
/// OpenShift counts, and the one that a Node has.
pub(crate) fn is_windows(api: MachineApi, meta: &ObjectMeta) -> bool {
    let label = |key: &str| meta.labels.as_ref()?.get(key).map(String::as_str);
    match api {
        MachineApi::Host => true,
        _ if label(OS_ID) == Some("Windows") => true,
        MachineApi::OpenShift => false,
        MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => label(OS) == Some("windows"),
    }
}

/// Mark of a Windows machine in this API, for people.
pub(crate) fn windows_label(api: MachineApi) -> String {
    let openshift = format!("{}=Windows", OS_ID);
    if api.is_cluster() {
        format!("{openshift} or {}=windows", OS)
    } else {
        openshift
    }
}

/// The annotations that exclude its node from drains. Machines that both APIs show may have that of either, or both.
pub(crate) fn drain_excluded_by(meta: &ObjectMeta) -> Vec<String> {
    let annotations = meta.annotations.as_ref();
    let is_set = |key: &&str| annotations.is_some_and(|all| all.contains_key(*key));
    let keys = EXCLUDE_DRAIN.into_iter().filter(is_set);
    keys.map(str::to_owned).collect()
}

/// The platform of a machine: `AWS` of `AWSMachineProviderConfig` in its providerSpec, and of `AWSMachine`, to which
/// Cluster API's `infrastructureRef` leads. A BYOH host has none that dormer has to know.
pub(crate) fn platform(api: MachineApi, spec: &Value) -> &str {
    match api {
        MachineApi::OpenShift => {
            let kind = spec["providerSpec"]["value"]["kind"].as_str();
            let kind = kind.unwrap_or_default();
            kind.split("MachineProvider").next().unwrap_or_default()
        }
        MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => {
            let kind = spec["infrastructureRef"]["kind"].as_str();
            let kind = kind.unwrap_or_default();
            kind.strip_suffix("Machine").unwrap_or(kind)
        }
        MachineApi::Host => "None",
    }
}

/// The zone of a machine's cloud. The Machine API's controllers write it as a label (machine-api-operator 951196122,
/// `pkg/controller/machine/controller.go`, `MachineAZLabelName`). Cluster API's v1beta2 says in the status where the machine
/// is, and both of its versions in the spec where it was to be (cluster-api ae7ff047d,
/// `api/core/v1beta2/machine_types.go`).
pub(crate) fn zone<'a>(api: MachineApi, meta: &'a ObjectMeta, body: &'a Value) -> Option<&'a str> {
    let zone = match api {
        MachineApi::OpenShift => meta.labels.as_ref()?.get("machine.openshift.io/zone")?,
        MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => {
            let of = |part: &str| body[part]["failureDomain"].as_str();
            of("status").or_else(|| of("spec"))?
        }
        MachineApi::Host => return None,
    };
    (!zone.is_empty()).then_some(zone)
}

/// The API of an object as it was read.
pub(crate) fn api_of(api_version: &str) -> MachineApi {
    let (group, version) = api_version.split_once('/').unwrap_or_default();
    let mut all = MachineApi::ALL.into_iter();
    all.find(|api| (api.group(), api.version()) == (group, version))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_api_names_windows_drains_and_platforms_in_its_own_words() {
        use MachineApi::{ClusterV1Beta1, ClusterV1Beta2, Host, OpenShift};
        let meta = |labels: Value, annotations: Value| -> ObjectMeta {
            serde_json::from_value(json!({"labels": labels, "annotations": annotations}))
                .expect("metadata")
        };
        let windows = [
            (
                OpenShift,
                json!({"machine.openshift.io/os-id": "Windows"}),
                true,
            ),
            (OpenShift, json!({"kubernetes.io/os": "windows"}), false),
            (
                ClusterV1Beta1,
                json!({"machine.openshift.io/os-id": "Windows"}),
                true,
            ),
            (ClusterV1Beta2, json!({"kubernetes.io/os": "windows"}), true),
            (ClusterV1Beta2, json!({"kubernetes.io/os": "linux"}), false),
            (ClusterV1Beta2, json!({}), false),
            (Host, json!({}), true),
        ];
        for (api, labels, is) in windows {
            assert_eq!(
                is_windows(api, &meta(labels.clone(), json!({}))),
                is,
                "{api:?} {labels}"
            );
        }
        let [openshift, cluster] = EXCLUDE_DRAIN;
        let other = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach";
        let excluded: [(&[&str], &[&str]); 4] = [
            (&[openshift], &[openshift]),
            (&[cluster], &[cluster]),
            (&[cluster, openshift, other], &[openshift, cluster]),
            (&[other], &[]),
        ];
        for (there, by) in excluded {
            let annotations: Value = there.iter().map(|key| (*key, "")).collect();
            let found = drain_excluded_by(&meta(json!({}), annotations));
            assert_eq!(found, by, "{there:?}");
        }
        let openshift = json!({"providerSpec": {"value": {"kind": "AWSMachineProviderConfig"}}});
        let cluster = json!({"infrastructureRef": {"kind": "VSphereMachine", "name": "a"}});
        assert_eq!(platform(OpenShift, &openshift), "AWS");
        assert_eq!(platform(ClusterV1Beta1, &cluster), "VSphere");
        assert_eq!(platform(ClusterV1Beta2, &json!({})), "");
        assert_eq!(platform(Host, &json!({})), "None");
        for api in MachineApi::ALL {
            assert_eq!(api_of(&machines(api).api_version), api);
        }
    }
}
