//! The objects of the default world: what an OpenShift cluster has before dormer comes.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    AWS_WINDOWS, AZURE_WINDOWS, CLUSTER_API, CONTROL_PLANE, INFRA, ManifestError, Sets, WEBSERVER,
    parse,
};
use crate::cluster::cluster_api;

/// The namespace of the Machine API.
pub const MACHINE_API: &str = "openshift-machine-api";
/// Where Cluster API's objects are on plain Kubernetes.
pub const CLUSTERS: &str = "clusters";
/// Where they are on OpenShift.
pub const OPENSHIFT_CLUSTERS: &str = "openshift-cluster-api";
/// dormer's own namespace, in which it has the private key's secret, too.
pub const DORMER: &str = "dormer";
/// Namespace in which dormer's approver hands tokens over (deploy/rbac.yaml).
pub const JOIN: &str = "dormer-join";
/// WMCO's namespace, in which the private key's secret is.
pub const OPERATOR: &str = "openshift-windows-machine-config-operator";
/// The machine config operator's namespace, in which the bootstrap token's secret is.
pub const MACHINE_CONFIG: &str = "openshift-machine-config-operator";

/// Namespaces of the default world beside those that every cluster has.
pub const NAMESPACES: [&str; 7] = [
    MACHINE_API,
    OPERATOR,
    MACHINE_CONFIG,
    "openshift-config",
    OPENSHIFT_CLUSTERS,
    DORMER,
    JOIN,
];

/// Namespaces of plain Kubernetes beside those that every cluster has.
pub const PLAIN_NAMESPACES: [&str; 3] = [CLUSTERS, DORMER, JOIN];

/// API groups of OpenShift, which plain Kubernetes does not serve.
pub const OPENSHIFT_GROUPS: [&str; 5] = [
    "machine.openshift.io",
    "config.openshift.io",
    "operator.openshift.io",
    "machineconfiguration.openshift.io",
    "operators.coreos.com",
];

/// The pair of keys that opens the Windows hosts.
#[derive(Clone)]
pub struct SshKey {
    /// The private key, OpenSSH's PEM.
    pub private_pem: String,
    /// The public key as one line of `authorized_keys`.
    pub public_line: String,
}

pub fn secret(namespace: &str, name: &str, data: &[(&str, &str)]) -> Value {
    let entry =
        |(key, value): &(&str, &str)| ((*key).to_owned(), json!(BASE64_STANDARD.encode(value)));
    let data: serde_json::Map<String, Value> = data.iter().map(entry).collect();
    json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace}, "data": data})
}

/// What the simulated WMCO writes as user data of new machines: nothing in it but the key differs.
pub fn user_data(public_line: &str) -> String {
    let public: Vec<&str> = public_line.split_whitespace().take(2).collect();
    let public = public.join(" ");
    format!(
        "<powershell>\n\
         Add-WindowsCapability -Online -Name OpenSSH.Server~~~~0.0.1.0\n\
         Set-Content -Encoding ascii -Path C:\\ProgramData\\ssh\\administrators_authorized_keys \
         -Value '{public}'\n\
         Restart-Service sshd\n\
         </powershell>\n<persist>true</persist>\n"
    )
}

/// The secrets that the guide and WMCO expect, and the cluster's own.
pub fn secrets(key: &SshKey, ca_pem: &str, bootstrap_token: &str) -> Vec<Value> {
    let user_data = user_data(&key.public_line);
    let token = [("ca.crt", ca_pem), ("token", bootstrap_token)];
    let private = [("private-key.pem", key.private_pem.as_str())];
    vec![
        secret(OPERATOR, "cloud-private-key", &private),
        secret(DORMER, "cloud-private-key", &private),
        secret(
            MACHINE_API,
            "windows-user-data",
            &[("userData", &user_data)],
        ),
        secret(
            MACHINE_API,
            "worker-user-data",
            &[("userData", "{\"ignition\":{}}")],
        ),
        secret(
            MACHINE_API,
            "master-user-data",
            &[("userData", "{\"ignition\":{}}")],
        ),
        secret(MACHINE_CONFIG, "node-bootstrapper-token", &token),
        secret(
            "openshift-config",
            "pull-secret",
            &[(".dockerconfigjson", "{\"auths\":{}}")],
        ),
    ]
}

/// The Secrets of plain Kubernetes: the private key for dormer.
pub fn plain_secrets(key: &SshKey) -> Vec<Value> {
    let private = [("private-key.pem", key.private_pem.as_str())];
    vec![secret(DORMER, "cloud-private-key", &private)]
}

/// A Cluster of Cluster API with so many Windows machines in one MachineSet, and the Secret that they boot with.
///
/// # Errors
/// When `--set` makes the manifest invalid.
pub fn cluster_api(
    namespace: &str,
    machines: u32,
    key: &SshKey,
    sets: &Sets,
) -> Result<Vec<Value>, ManifestError> {
    let mut sets = sets.clone();
    sets.entry("cluster_namespace".to_owned())
        .or_insert_with(|| namespace.to_owned());
    let namespace = sets["cluster_namespace"].clone();
    let user_data = user_data(&key.public_line);
    let boots = [("value", user_data.as_str())];
    let mut objects = vec![secret(&namespace, "windows-user-data", &boots)];
    objects.extend(parse(CLUSTER_API, &sets)?);
    for set in objects.iter_mut().filter(|it| it["kind"] == "MachineSet") {
        set["spec"]["replicas"] = json!(machines);
    }
    Ok(objects)
}

/// Authority of the API server, as the controller manager publishes it in every namespace
/// (kubernetes pkg/controller/certificates/rootcacertpublisher). Here it is in one.
pub fn authority(ca_pem: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": "kube-system"},
        "data": {"ca.crt": ca_pem}})
}

/// What says on what the cluster runs and how its network is.
pub fn cluster_objects(api_url: &str) -> Vec<Value> {
    vec![
        json!({"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure",
            "metadata": {"name": "cluster"},
            "spec": {"platformSpec": {"type": "AWS"}},
            "status": {"infrastructureName": "demo-x7k2p", "platform": "AWS",
                "apiServerURL": api_url, "apiServerInternalURI": api_url,
                "platformStatus": {"type": "AWS", "aws": {"region": "us-east-1"}}}}),
        json!({"apiVersion": "config.openshift.io/v1", "kind": "Network",
            "metadata": {"name": "cluster"},
            "spec": {"networkType": "OVNKubernetes", "serviceNetwork": ["172.30.0.0/16"],
                "clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}]}}),
        json!({"apiVersion": "operator.openshift.io/v1", "kind": "Network",
            "metadata": {"name": "cluster"},
            "spec": {"defaultNetwork": {"type": "OVNKubernetes", "ovnKubernetesConfig": {
                "hybridOverlayConfig": {"hybridClusterNetwork":
                    [{"cidr": "10.132.0.0/14", "hostPrefix": 23}]}}}}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "node-bootstrapper", "namespace": MACHINE_CONFIG}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "dormer", "namespace": "dormer"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "dormer-cloud-node-manager", "namespace": "dormer"}}),
    ]
}

/// Three control-plane Machines and the infra set, with one replica: Linux, not dormer's.
///
/// # Errors
/// When `--set` makes the manifests invalid.
pub fn linux(sets: &Sets) -> Result<Vec<Value>, ManifestError> {
    let mut objects = Vec::new();
    for ordinal in 0..3 {
        let mut sets = sets.clone();
        sets.insert("ordinal".to_owned(), ordinal.to_string());
        objects.extend(parse(CONTROL_PLANE, &sets)?);
    }
    let mut infra = parse(INFRA, sets)?;
    for set in &mut infra {
        set["spec"]["replicas"] = json!(1);
    }
    objects.extend(infra);
    Ok(objects)
}

/// The Windows MachineSets of the default world: the AWS one, and with `two` also the Azure one.
///
/// # Errors
/// When `--set` makes the manifests invalid.
pub fn windows(two: bool, sets: &Sets) -> Result<Vec<Value>, ManifestError> {
    let mut objects = parse(AWS_WINDOWS, sets)?;
    if two {
        objects.extend(parse(AZURE_WINDOWS, sets)?);
    }
    Ok(objects)
}

/// Whether an object is a MachineSet of Windows machines, of either machine API.
pub fn is_windows_set(object: &Value) -> bool {
    object["kind"] == "MachineSet" && cluster_api::is_windows(&object["spec"]["template"])
}

/// Spreads so many machines over the Windows MachineSets among these objects.
pub fn distribute(objects: &mut [Value], machines: u32) {
    let mut sets: Vec<&mut Value> = objects.iter_mut().filter(|o| is_windows_set(o)).collect();
    let count = u32::try_from(sets.len()).unwrap_or(1).max(1);
    for (at, set) in sets.iter_mut().enumerate() {
        let at = u32::try_from(at).unwrap_or(0);
        let replicas = machines / count + u32::from(at < machines % count);
        set["spec"]["replicas"] = json!(replicas);
    }
}

/// The web server on the Windows nodes, with its budget.
///
/// # Errors
/// Never, as the manifest is ours.
pub fn webserver(replicas: u32) -> Result<Vec<Value>, ManifestError> {
    parse(
        WEBSERVER,
        &Sets::from([("replicas".to_owned(), replicas.to_string())]),
    )
}

/// The same on nodes of plain Kubernetes: their taint has another value there.
///
/// # Errors
/// Never, as the manifest is ours.
pub fn plain_webserver(replicas: u32) -> Result<Vec<Value>, ManifestError> {
    let mut objects = webserver(replicas)?;
    for object in objects.iter_mut().filter(|it| it["kind"] == "Deployment") {
        object["spec"]["template"]["spec"]["tolerations"] =
            json!([{"key": "os", "operator": "Exists", "effect": "NoSchedule"}]);
    }
    Ok(objects)
}
