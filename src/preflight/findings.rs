//! Judgement of a cluster's survey: each finding with its object, what is wrong, and what to do.

use super::survey::{MACHINE_API, ReadObject, Survey, name};
use base64::{Engine, prelude::BASE64_STANDARD};
use dormer_lint::{Flavour, Severity, lint};
use dormer_profile::{payload::check_skew, userdata::user_data, yaml};
use dormer_proto::other_operator::OtherOperator;
use dormer_support::{
    Refusal, platform,
    version::{self, DOCKER, Minor},
};
use dormer_workers::ssh::{Key, SshError};
use serde::Serialize;
use serde_json::{Value, json};

/// Port of VXLAN where nothing else is set, and the only one of Windows Server 2019.
const VXLAN: u64 = 4_789;
/// Definition of pools, without which dormer has none.
const POOLS: &str = "windowspools.dormer.io";
/// Definition of gMSA's credential specs.
const GMSA: &str = "gmsacredentialspecs.windows.k8s.io";

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// Stable code: a word, or the name of a lint's rule.
    pub(super) code: String,
    /// How bad it is.
    pub(super) severity: Severity,
    /// Object: `Network cluster`.
    pub(super) object: String,
    /// What is wrong.
    pub(super) message: String,
    pub(super) what_to_do: String,
}

/// Findings, in the order in which one mends them.
struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, code: &str, object: &str, message: impl Into<String>, todo: &str) {
        self.add(Severity::Error, code, object, message.into(), todo);
    }

    fn warning(&mut self, code: &str, object: &str, message: impl Into<String>, todo: &str) {
        self.add(Severity::Warning, code, object, message.into(), todo);
    }

    fn add(&mut self, severity: Severity, code: &str, object: &str, message: String, todo: &str) {
        self.0.push(Finding {
            code: code.to_owned(),
            severity,
            object: object.to_owned(),
            message,
            what_to_do: todo.to_owned(),
        });
    }
}

pub(super) fn judge(survey: &Survey) -> Vec<Finding> {
    let mut found = Findings(Vec::new());
    for why in &survey.unread {
        let todo = "give the kubeconfig's account the right to read it, and run preflight again";
        found.error("Unread", "", why.clone(), todo);
    }
    operator(survey, &mut found);
    versions(survey, &mut found);
    if survey.infrastructure.value().is_some() {
        network(survey, &mut found);
        openshift_secrets(survey, &mut found);
    }
    let public = key(survey, &mut found);
    if survey.infrastructure.value().is_some() {
        userdata(survey, public.as_deref(), &mut found);
    }
    manifests(survey, &mut found);
    nodes(survey, &mut found);
    own(survey, &mut found);
    gmsa(survey, &mut found);
    rights(survey, &mut found);
    found.0
}

fn operator(survey: &Survey, found: &mut Findings) {
    let Some(operator) = &survey.operator else {
        return;
    };
    if let OtherOperator::Runs(what) = &operator.neighbour {
        let todo =
            "end it as it is said, or leave the hosts to it: two operators undo each other's work";
        found.error("AnotherOperatorRuns", "", what.clone(), todo);
        return;
    }
    let installed = (!survey.operator_installed.is_empty()).then(|| {
        let all = survey.operator_installed.join(", ");
        format!("the Windows Machine Config Operator is installed ({all}) and does not run")
    });
    if let Some(what) = operator.idle.clone().or(installed) {
        let todo = "remove its Subscription and ClusterServiceVersion, so that OLM does not start it again";
        found.warning("AnotherOperatorInstalled", "", what, todo);
    }
}

fn versions(survey: &Survey, found: &mut Findings) {
    let served = Minor::parse(&survey.api_server);
    let refused = served.map(version::kubernetes);
    let is = &survey.api_server;
    match refused {
        None => {
            let todo = "check that the kubeconfig names a Kubernetes API server";
            found.error(
                "KubernetesUnread",
                "API server",
                format!("it calls its version {is:?}"),
                todo,
            );
        }
        Some(Err(why)) => {
            let todo = "upgrade the cluster, or take a dormer that knows it: docs/support.md lists the versions";
            let message = format!("Kubernetes {is} is not supported: {why}");
            found.error("KubernetesUnsupported", "API server", message, todo);
        }
        Some(Ok(())) => {}
    }
    let Some(cluster) = survey.cluster_version.value() else {
        return;
    };
    let object = "ClusterVersion version";
    let desired = cluster["status"]["desired"]["version"].as_str();
    if let Some((text, Some(minor))) = desired.map(|text| (text, Minor::parse(text)))
        && let Err(why) = version::openshift(minor)
    {
        let todo = "upgrade the cluster, or take a dormer that knows it: docs/support.md lists the versions";
        let message = format!("OpenShift {text} is not supported: {why}");
        found.error("OpenShiftUnsupported", object, message, todo);
    }
    let condition = |kind: &str| -> Option<&Value> {
        let all = cluster["status"]["conditions"].as_array()?;
        all.iter().find(|it| it["type"] == kind)
    };
    let said = |it: &Value| it["message"].as_str().unwrap_or_default().to_owned();
    if let Some(it) = condition("Progressing").filter(|it| it["status"] == "True") {
        let todo = "wait until it has ended: until then dormer grants no upgrade";
        found.warning(
            "ClusterUpgrades",
            object,
            format!("the cluster is being upgraded: {}", said(it)),
            todo,
        );
    }
    if let Some(it) = condition("Failing").filter(|it| it["status"] == "True") {
        let todo = "mend the cluster's own operators first: oc get clusteroperators";
        found.warning(
            "ClusterFails",
            object,
            format!("the cluster's upgrade fails: {}", said(it)),
            todo,
        );
    }
}

/// Platform of OpenShift, lower case.
fn platform_of(survey: &Survey) -> String {
    let status = survey.infrastructure.value().map(|it| &it["status"]);
    let name = status.and_then(|it| {
        it["platformStatus"]["type"]
            .as_str()
            .or(it["platform"].as_str())
    });
    name.unwrap_or_default().to_ascii_lowercase()
}

const INSTALL_TIME: &str = "this is set when a cluster is installed and cannot be changed later: install a cluster with \
                            networkType OVNKubernetes and a hybridOverlayConfig";

fn network(survey: &Survey, found: &mut Findings) {
    let platform = platform_of(survey);
    if let Some(refusal) = Refusal::of_platform(&platform, "", &[]) {
        found.error(
            "PlatformUnsupported",
            "Infrastructure cluster",
            refusal.to_string(),
            &refusal.mend(),
        );
    }
    let object = "Network cluster (config.openshift.io)";
    let Some(config) = survey.network.value() else {
        if survey.network == ReadObject::Absent {
            let todo = "without it dormer does not know the service network: restore it";
            found.error("NetworkAbsent", object, "there is none", todo);
        }
        return;
    };
    let of = |it: &Value, path: &str| it.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let kind = of(config, "/status/networkType").or_else(|| of(config, "/spec/networkType"));
    let kind = kind.unwrap_or_default();
    if let Some(plugin) = platform::plugin(&kind) {
        if let Some(why) = plugin.refused {
            found.error(
                "NetworkUnsupported",
                object,
                format!("the network is {kind}: {why}"),
                INSTALL_TIME,
            );
            return;
        }
    } else {
        let todo = "see docs/support.md, and the plugin's own pages about Windows nodes";
        found.warning(
            "NetworkUnknown",
            object,
            format!("dormer does not know the network {kind:?}"),
            todo,
        );
    }
    if config["spec"]["serviceNetwork"][0].as_str().is_none() {
        let todo = "name the services' network in spec.serviceNetwork";
        found.error(
            "ServiceNetworkAbsent",
            object,
            "it names no network of services",
            todo,
        );
    }
    if kind == "OVNKubernetes" {
        overlay(survey, config, &platform, found);
    }
}

fn overlay(survey: &Survey, config: &Value, platform: &str, found: &mut Findings) {
    let object = "Network cluster (operator.openshift.io)";
    let Some(operator) = survey.network_operator.value() else {
        if survey.network_operator == ReadObject::Absent {
            found.error("HybridOverlayAbsent", object, "there is none", INSTALL_TIME);
        }
        return;
    };
    let default = &operator["spec"]["defaultNetwork"];
    if let (Some(one), Some(other)) = (
        default["type"].as_str(),
        config["spec"]["networkType"].as_str(),
    ) && one != other
    {
        let message = format!("it says {one}, and the other Network object {other}");
        let todo = "wait for the network's migration to end: oc get clusteroperator network";
        found.error("NetworksDiffer", object, message, todo);
    }
    let hybrid = &default["ovnKubernetesConfig"]["hybridOverlayConfig"];
    let networks = hybrid["hybridClusterNetwork"].as_array();
    let Some(networks) = networks.filter(|it| !it.is_empty()) else {
        let message = "there is no hybridOverlayConfig with a hybridClusterNetwork, so pods on Windows nodes have no network";
        found.error("HybridOverlayAbsent", object, message, INSTALL_TIME);
        return;
    };
    let cidr = |it: &Value| it["cidr"].as_str().and_then(Cidr::parse);
    let of = |it: &Value| {
        it.as_array()
            .into_iter()
            .flatten()
            .filter_map(cidr)
            .collect::<Vec<_>>()
    };
    let services = config["spec"]["serviceNetwork"]
        .as_array()
        .into_iter()
        .flatten();
    let services = services.filter_map(|it| Cidr::parse(it.as_str()?));
    let others: Vec<Cidr> = of(&config["spec"]["clusterNetwork"])
        .into_iter()
        .chain(services)
        .collect();
    for network in networks.iter().filter_map(cidr) {
        if let Some(other) = others.iter().find(|it| it.overlaps(&network)) {
            let message = format!("the hybrid network {network} overlaps {other}");
            found.error("HybridOverlayOverlaps", object, message, INSTALL_TIME);
        }
    }
    let port = hybrid["hybridOverlayVXLANPort"].as_u64();
    if platform == "vsphere" && port.is_none_or(|port| port == VXLAN) {
        let message = format!(
            "the hybrid overlay uses VXLAN's port {VXLAN}, which vSphere's own network takes"
        );
        let todo = "set hybridOverlayVXLANPort to a free port, such as 9898, when the cluster is installed";
        found.error("VxlanPortTaken", object, message, todo);
    }
    let custom = port.filter(|port| *port != VXLAN);
    let old = survey.machine_sets.iter().find(|set| is_2019(set));
    if let (Some(port), Some(set)) = (custom, old) {
        let message = format!(
            "the hybrid overlay uses VXLAN's port {port}, and {} has images of Windows Server 2019, which knows {VXLAN} only",
            name(set)
        );
        let todo = "give the MachineSet an image of Windows Server 2022 or 2025";
        found.error("VxlanPort2019", object, message, todo);
    }
}

/// Whether a MachineSet's image is one of Windows Server 2019, by its name.
fn is_2019(set: &Value) -> bool {
    let value = &set["spec"]["template"]["spec"]["providerSpec"]["value"];
    let texts = [
        &value["image"]["sku"],
        &value["template"],
        &value["disks"][0]["image"],
    ];
    let labelled =
        set["spec"]["template"]["metadata"]["labels"]["machine.openshift.io/os-id"] == "Windows";
    labelled
        && texts
            .iter()
            .any(|it| it.as_str().is_some_and(|it| it.contains("2019")))
}

/// Network of IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cidr {
    first: u32,
    bits: u32,
}

impl Cidr {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address: std::net::Ipv4Addr = address.parse().ok()?;
        let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32)?;
        let first = u32::from(address) & Self::mask(bits);
        Some(Self { first, bits })
    }

    fn mask(bits: u32) -> u32 {
        u32::MAX.checked_shl(32 - bits).unwrap_or(0)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let mask = Self::mask(self.bits.min(other.bits));
        self.first & mask == other.first & mask
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", std::net::Ipv4Addr::from(self.first), self.bits)
    }
}

fn secret_text(secret: &Value, key: &str) -> Option<String> {
    let encoded = secret["data"][key].as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
}

fn openshift_secrets(survey: &Survey, found: &mut Findings) {
    let token = "Secret openshift-machine-config-operator/node-bootstrapper-token";
    let todo = "the machine config operator makes it: oc get clusteroperator machine-config";
    match &survey.bootstrap {
        ReadObject::Absent => found.error(
            "BootstrapTokenAbsent",
            token,
            "new nodes have no token to join with",
            todo,
        ),
        ReadObject::There(secret) => {
            for key in ["ca.crt", "token"] {
                if secret_text(secret, key).is_none_or(|it| it.trim().is_empty()) {
                    let message = format!("it has no {key}, so new nodes cannot join");
                    found.error("BootstrapTokenAbsent", token, message, todo);
                }
            }
        }
        ReadObject::Unread(_) => {}
    }
    if survey.pull_secret == ReadObject::Absent {
        let todo = "without it nodes pull from public registries only: restore it";
        found.warning(
            "PullSecretAbsent",
            "Secret openshift-config/pull-secret",
            "there is none",
            todo,
        );
    }
}

/// Judges dormer's private key. Returns its public half.
fn key(survey: &Survey, found: &mut Findings) -> Option<String> {
    let namespace = &survey.namespace;
    let object = format!("Secret {namespace}/cloud-private-key");
    let make = format!(
        "make a key for dormer alone: ssh-keygen -t ed25519 -N '' -f windows && kubectl -n {namespace} create secret \
         generic cloud-private-key --from-file=private-key.pem=windows"
    );
    let secret = match &survey.key {
        ReadObject::Absent => {
            found.error(
                "KeyAbsent",
                &object,
                "dormer has no SSH key for the hosts",
                &make,
            );
            return None;
        }
        ReadObject::Unread(_) => return None,
        ReadObject::There(secret) => secret,
    };
    let Some(text) = secret_text(secret, "private-key.pem") else {
        found.error("KeyAbsent", &object, "it has no private-key.pem", &make);
        return None;
    };
    let key = match Key::read(&text) {
        Ok(key) => key,
        Err(error) => {
            let code = match error {
                SshError::KeyEncrypted => "KeyEncrypted",
                SshError::KeyWeak(_) => "KeyWeak",
                _ => "KeyUnusable",
            };
            found.error(code, &object, error.to_string(), &make);
            return None;
        }
    };
    let public = key.public_line().ok()?;
    if installed_with(survey)
        .iter()
        .any(|known| same_key(known, &public))
    {
        let message =
            "it is the key that the cluster was installed with, which opens the control plane, too";
        found.error("KeyIsTheClusters", &object, message, &make);
    }
    Some(public)
}

/// Public keys that the cluster was installed with.
fn installed_with(survey: &Survey) -> Vec<String> {
    let Some(config) = survey.install_keys.value() else {
        return Vec::new();
    };
    let users = config["spec"]["config"]["passwd"]["users"]
        .as_array()
        .into_iter()
        .flatten();
    let keys = users.flat_map(|it| it["sshAuthorizedKeys"].as_array().into_iter().flatten());
    keys.filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect()
}

/// Whether two lines of `authorized_keys` have one key; comments do not count.
fn same_key(one: &str, other: &str) -> bool {
    let key = |line: &str| {
        line.split_whitespace()
            .take(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    key(one).len() == 2 && key(one) == key(other)
}

fn userdata(survey: &Survey, public: Option<&str>, found: &mut Findings) {
    let object = format!("Secret {MACHINE_API}/windows-user-data");
    let todo = format!(
        "dormer writes it at its start; if another wrote this one: kubectl -n {MACHINE_API} delete secret windows-user-data"
    );
    let any_set = survey.machine_sets.iter().any(|set| {
        set["spec"]["template"]["metadata"]["labels"]["machine.openshift.io/os-id"] == "Windows"
    });
    let secret = match &survey.user_data {
        ReadObject::Absent => {
            if any_set {
                let message = "there is none, and a Windows MachineSet needs it: without it dormer cannot log in to its hosts";
                found.warning("UserDataAbsent", &object, message, &todo);
            }
            return;
        }
        ReadObject::Unread(_) => return,
        ReadObject::There(secret) => secret,
    };
    let Some(text) = secret_text(secret, "userData").filter(|it| !it.trim().is_empty()) else {
        found.error("UserDataEmpty", &object, "it has no userData", &todo);
        return;
    };
    let Some(public) = public else { return };
    let words: Vec<&str> = public.split_whitespace().take(2).collect();
    if !text.contains(&words.join(" ")) {
        let message = "it permits another key than dormer's: new hosts would refuse dormer's login";
        found.error("UserDataOtherKey", &object, message, &todo);
        return;
    }
    if !text.contains("sshd") {
        found.error(
            "UserDataWithoutSshd",
            &object,
            "it does not start sshd",
            &todo,
        );
    }
    let ours = secret["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "dormer";
    let right = user_data(public, &platform_of(survey)).ok();
    if ours && right.is_some_and(|right| right != text) {
        let message =
            "it is not what dormer would write: a person changed it, or an earlier dormer wrote it";
        found.warning("UserDataChanged", &object, message, &todo);
    }
}

/// MachineSets and what belongs to them, by the lint's rules. A server fills in more than people write, so rules
/// about unknown fields do not count here.
fn manifests(survey: &Survey, found: &mut Findings) {
    let items: Vec<Value> = [
        &survey.machine_sets,
        &survey.health_checks,
        &survey.autoscalers,
        &survey.runtime_classes,
        &survey.pools,
        &survey.instances,
    ]
    .into_iter()
    .flatten()
    .map(bare)
    .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let Ok(text) = yaml::to_string(&list) else {
        return;
    };
    let of_pool = ours(survey)
        .next()
        .and_then(|it| it["spec"]["profile"].as_str());
    let upstream = of_pool.map_or(survey.infrastructure.value().is_none(), |it| {
        it == "upstream"
    });
    let flavour = if upstream {
        Flavour::Upstream
    } else {
        Flavour::OpenShift
    };
    for it in lint(&text, flavour) {
        if ["misplaced-field", "placeholder", "callout"].contains(&it.rule) {
            continue;
        }
        found.add(
            it.severity,
            it.rule,
            &it.object,
            format!("{}: {}", it.message, it.why),
            &it.mend,
        );
    }
}

/// Pools of the namespace that dormer reads.
fn ours(survey: &Survey) -> impl Iterator<Item = &Value> {
    survey.pools.iter().filter(|it| is_ours(survey, it))
}

fn is_ours(survey: &Survey, pool: &Value) -> bool {
    namespace(pool) == survey.namespace
}

fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

/// Object without what the server keeps for itself.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| {
            ["name", "namespace", "labels", "annotations"].contains(&key.as_str())
        });
        // It repeats the whole object in one line.
        if let Some(all) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            all.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    object
}

fn nodes(survey: &Survey, found: &mut Findings) {
    let windows_nodes = survey.nodes.iter().filter(|it| {
        it["metadata"]["labels"]["kubernetes.io/os"] == "windows"
            || it["status"]["nodeInfo"]["operatingSystem"] == "windows"
    });
    let server = Minor::parse(&survey.api_server);
    for node in windows_nodes {
        let object = format!("Node {}", name(node));
        let info = &node["status"]["nodeInfo"];
        let text = |key: &str| info[key].as_str().unwrap_or_default();
        if text("containerRuntimeVersion").starts_with("docker:") {
            found.error(
                "NodeRunsDocker",
                &object,
                format!("its runtime is {}", text("containerRuntimeVersion")),
                DOCKER,
            );
        }
        let build: Vec<&str> = text("kernelVersion").split('.').take(3).collect();
        if let Some(refusal) = Refusal::of_host(&build.join("."), text("osImage")) {
            found.error(
                "NodeUnsupported",
                &object,
                refusal.to_string(),
                &refusal.mend(),
            );
        }
        if let (Some(kubelet), Some(server)) = (Minor::parse(text("kubeletVersion")), server)
            && let Err(why) = check_skew(kubelet.minor, server.minor, server.minor)
        {
            let todo =
                "choose a payload whose kubelet fits the API servers: dormer payload list DIR";
            found.error("NodeSkew", &object, why.to_string(), todo);
        }
        let taints = node["spec"]["taints"].as_array();
        if !taints.is_some_and(|all| all.iter().any(|it| it["key"] == "os")) {
            let message = "it has no taint os, so Linux pods land on it and fail";
            let todo = "dormer's profiles register nodes with it; meanwhile: kubectl taint node NODE os=Windows:NoSchedule";
            found.warning("NodeWithoutTaint", &object, message, todo);
        }
    }
}

fn own(survey: &Survey, found: &mut Findings) {
    let defined = survey.definitions.iter().any(|it| name(it) == POOLS);
    if !defined && !survey.definitions.is_empty() {
        let todo = "kubectl apply -f deploy/crd.yaml, or install the Helm chart, which has it";
        found.error(
            "DefinitionAbsent",
            &format!("CustomResourceDefinition {POOLS}"),
            "it is not applied",
            todo,
        );
    }
    let count = ours(survey).count();
    if count > 1 {
        let message = format!("{count} pools are there; dormer reads the one named windows");
        found.warning("PoolsMany", "WindowsPool", message, "delete the others");
    }
    for pool in survey.pools.iter().filter(|it| !is_ours(survey, it)) {
        let elsewhere = namespace(pool);
        let message = format!(
            "dormer reads the pools of the namespace {} alone: nothing follows this one",
            survey.namespace
        );
        let todo = format!(
            "make it there, then: kubectl -n {elsewhere} delete windowspool {}",
            name(pool)
        );
        let object = format!("WindowsPool {elsewhere}/{}", name(pool));
        found.warning("PoolElsewhere", &object, message, &todo);
    }
    let homes: Vec<&str> = survey
        .instances
        .iter()
        .filter_map(|it| it["metadata"]["namespace"].as_str())
        .collect();
    if homes.len() > 1 {
        let message = format!(
            "the ConfigMap windows-instances is in {}",
            homes.join(" and ")
        );
        let todo = "keep it in the namespace of the operator that configures these hosts, and delete the other";
        found.warning(
            "InstancesTwice",
            "ConfigMap windows-instances",
            message,
            todo,
        );
    }
}

fn gmsa(survey: &Survey, found: &mut Findings) {
    let defined = survey.definitions.iter().any(|it| name(it) == GMSA);
    if !defined {
        return;
    }
    let ready = |it: &Value| it["status"]["readyReplicas"].as_u64().unwrap_or(0) > 0;
    let todo = "install the webhook of kubernetes-sigs/windows-gmsa, with its certificate";
    match survey.gmsa_webhooks.first() {
        None => {
            let message =
                "credential specs of gMSA are defined, and no webhook fills them into pods";
            found.error(
                "GmsaWebhookAbsent",
                &format!("CustomResourceDefinition {GMSA}"),
                message,
                todo,
            );
        }
        Some(webhook) if !survey.gmsa_webhooks.iter().any(ready) => {
            let object = format!("Deployment {}", name(webhook));
            let message = "no replica of the webhook of gMSA is ready, and pods with credential specs are refused";
            found.error(
                "GmsaWebhookAway",
                &object,
                message,
                "see why: kubectl describe deployment, kubectl get events",
            );
        }
        Some(_) => {}
    }
    for spec in &survey.gmsa_specs {
        let object = format!("GMSACredentialSpec {}", name(spec));
        let plugin =
            spec["credspec"]["ActiveDirectoryConfig"]["GroupManagedServiceAccounts"].as_array();
        if plugin.is_none_or(Vec::is_empty) {
            let todo = "generate it with New-CredentialSpec on a host of the domain";
            found.error(
                "GmsaSpecEmpty",
                &object,
                "it names no GroupManagedServiceAccounts",
                todo,
            );
        }
    }
}

fn rights(survey: &Survey, found: &mut Findings) {
    if survey.lacks.is_empty() {
        return;
    }
    let message = format!(
        "the account of the kubeconfig may not {}",
        survey.lacks.join(", ")
    );
    let todo = "kubectl apply -f deploy/rbac.yaml grants dormer's accounts what it needs; --as ACCOUNT looks with one of them";
    found.error("RightsAbsent", "SelfSubjectAccessReview", message, todo);
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
