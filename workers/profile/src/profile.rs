//! Profile: a Windows node's configuration as people write it.
//!
//! Everything that can occur more than once is a map with meaningful keys (a path, a service's name). So a later layer
//! can change one entry without repeating the rest; see [`crate::layers`]. Texts may hold `${NAME}`; see
//! [`crate::variables`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::document::ChangeClass;
use crate::item::{FailureActions, HnsCreate, Priority, Protocol, StartType};
use crate::release::Range;

/// A map whose entries a layer may remove with `null`.
pub type Named<T> = BTreeMap<String, T>;

/// A node's configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// Name. In a user's layer: the only profile that the layer is for; without it, every profile.
    pub name: String,
    /// Folder of the payload on the host; `${PAYLOAD}` in it keeps versions side by side.
    pub payload_folder: String,
    /// The profile's own variables with their values; they may use `${…}` of the built-in ones.
    #[serde(deserialize_with = "without_nulls")]
    pub variables: Named<String>,
    /// Items that do not need the Node.
    pub host: SectionSpec,
    /// Items that need the Node: its name, its subnet.
    pub node: SectionSpec,
    /// What is said about the Node itself.
    pub kubernetes: Kubernetes,
}

/// One of the two sections of a profile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SectionSpec {
    /// Folders, by path.
    #[serde(deserialize_with = "without_nulls")]
    pub directories: Named<DirectorySpec>,
    /// Windows features, by name.
    #[serde(deserialize_with = "without_nulls")]
    pub features: Named<FeatureSpec>,
    /// Computer name; empty after substitution means: unchanged.
    pub hostname: String,
    /// Machine environment, by name.
    #[serde(deserialize_with = "without_nulls")]
    pub environment: Named<EnvironmentSpec>,
    /// Values in the registry, by any name.
    #[serde(
        deserialize_with = "without_nulls",
        skip_serializing_if = "Named::is_empty"
    )]
    pub registry: Named<RegistrySpec>,
    /// Ports that Windows gives to TCP connections of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_ports: Option<DynamicPortsSpec>,
    /// Certificates for `LocalMachine\Root`, by any name.
    #[serde(deserialize_with = "without_nulls")]
    pub certificates: Named<CertificateSpec>,
    /// Images in containerd's store, by name.
    #[serde(
        deserialize_with = "without_nulls",
        skip_serializing_if = "Named::is_empty"
    )]
    pub images: Named<ImageSpec>,
    /// Inbound firewall rules, by name.
    #[serde(deserialize_with = "without_nulls")]
    pub firewall: Named<FirewallSpec>,
    /// Executables that Windows Defender leaves alone, by path.
    #[serde(deserialize_with = "without_nulls")]
    pub defender: Named<ConditionSpec>,
    /// Files of the payload, by their name in its manifest.
    #[serde(deserialize_with = "without_nulls")]
    pub payload: Named<PayloadSpec>,
    /// Files with content in the profile, by path.
    #[serde(deserialize_with = "without_nulls")]
    pub files: Named<FileSpec>,
    /// Registries and their mirrors (containerd's `hosts.toml`), by host name.
    #[serde(deserialize_with = "without_nulls")]
    pub mirrors: Named<MirrorSpec>,
    /// Folder of the mirrors' files.
    pub mirrors_folder: String,
    /// Routes by way of the default gateway, by prefix.
    #[serde(deserialize_with = "without_nulls")]
    pub routes: Named<ConditionSpec>,
    /// The HNS network, once the services before it run.
    pub network: Option<NetworkSpec>,
    /// Windows services, by name.
    #[serde(deserialize_with = "without_nulls")]
    pub services: Named<ServiceSpec>,
    /// Evidence that the section is converged, by any name; checked in the order of names.
    #[serde(deserialize_with = "without_nulls")]
    pub evidence: Named<EvidenceSpec>,
    /// Foreign services that are stopped and disabled, by name: first of all, and without a drain.
    #[serde(
        deserialize_with = "without_nulls",
        skip_serializing_if = "Named::is_empty"
    )]
    pub disabled_services: Named<ConditionSpec>,
    /// Files that a program makes again and again, by any name: the newest stay.
    #[serde(
        deserialize_with = "without_nulls",
        skip_serializing_if = "Named::is_empty"
    )]
    pub newest_files: Named<NewestFilesSpec>,
    /// Processes that a removal ends, by name without `.exe`.
    #[serde(deserialize_with = "without_nulls")]
    pub lingering: Named<ConditionSpec>,
}

/// Conditions of an entry. All given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// The platform is one of these (lower case: `aws`, `azure`, `gcp`, `vsphere`, `none` …).
    pub platform: Vec<String>,
    /// This variable has a value that is not empty.
    pub set: String,
    /// This secret exists.
    pub secret: String,
    /// The payload has this file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub payload: String,
    /// The payload's kubelet, and so its kube-proxy, is in this range: `<1.34`.
    #[serde(skip_serializing_if = "Range::is_any")]
    pub kubelet: Range,
    /// The payload's containerd is in this range: `>=2.0 <2.1`.
    #[serde(skip_serializing_if = "Range::is_any")]
    pub containerd: Range,
}

/// Entry with conditions only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConditionSpec {
    /// When it is there.
    pub when: When,
}

/// A folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DirectorySpec {
    /// Whether a removal keeps it with its content.
    pub keep: bool,
    /// When it is there.
    #[serde(skip_serializing_if = "When::is_always")]
    pub when: When,
}

/// Files that a program makes again and again, and does not remove. All given parts of the name must fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NewestFilesSpec {
    /// Their folder.
    pub under: String,
    /// How their names begin.
    pub prefix: String,
    /// How their names end.
    pub suffix: String,
    /// So many stay, the newest.
    pub keep: usize,
    /// Name of a file in that folder whose content is one of theirs: that one stays as well.
    pub current: String,
    /// When it is there.
    pub when: When,
}

impl Default for NewestFilesSpec {
    fn default() -> Self {
        Self {
            under: String::new(),
            prefix: String::new(),
            suffix: String::new(),
            keep: 2,
            current: String::new(),
            when: When::default(),
        }
    }
}

/// A Windows feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FeatureSpec {
    /// When it is there.
    pub when: When,
    /// What a change of it asks for.
    pub change: ChangeClass,
}

impl Default for FeatureSpec {
    fn default() -> Self {
        Self {
            when: When::default(),
            change: ChangeClass::Drain,
        }
    }
}

/// A machine environment variable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvironmentSpec {
    /// Its value; empty after substitution means: it must not exist.
    pub value: String,
    /// Services must see it, which takes a reboot; the change class is then at least `drain`.
    pub reboot: bool,
    /// When it is managed. Elsewhere it stays as it is.
    #[serde(skip_serializing_if = "When::is_always")]
    pub when: When,
}

/// A value in the registry. Exactly one of the typed fields is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RegistrySpec {
    /// Its key below `HKEY_LOCAL_MACHINE`, without the root.
    pub key: String,
    pub name: String,
    /// `REG_DWORD`.
    pub dword: Option<u32>,
    /// `REG_QWORD`.
    pub qword: Option<u64>,
    /// `REG_SZ`.
    pub text: Option<String>,
    /// `REG_EXPAND_SZ`.
    pub expand: Option<String>,
    /// `REG_MULTI_SZ`.
    pub texts: Option<Vec<String>>,
    /// Only on a host whose address is static.
    pub static_address: bool,
    /// Only on these Windows builds; empty: on all. The host itself compares.
    pub windows_builds: Vec<String>,
    /// What a change of it asks for.
    pub change: ChangeClass,
    /// When it is there.
    pub when: When,
}

/// The range of ports out of which Windows takes one for a TCP connection of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DynamicPortsSpec {
    /// First port, at least 1025. The range has no port from 30000 to 32767: those are NodePorts.
    pub start: u16,
    /// How many, at least 255.
    pub count: u16,
    /// What a change of it asks for.
    pub change: ChangeClass,
    /// When it is managed. Elsewhere it stays as it is.
    pub when: When,
}

/// Certificates in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CertificateSpec {
    /// One or more certificates.
    pub pem: String,
    /// When it is there.
    pub when: When,
}

/// An image in containerd's store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImageSpec {
    /// File of the payload with the image, an OCI layout in a tar. It stands among the section's `payload`, too.
    pub archive: String,
    /// The service through which it is imported, as soon as that runs.
    pub service: String,
    /// Named pipe of that service.
    pub pipe: String,
    /// Longest wait for its answer, in milliseconds.
    pub wait_ms: u64,
    /// What a change of it asks for.
    pub change: ChangeClass,
    /// When it is there.
    pub when: When,
}

impl Default for ImageSpec {
    fn default() -> Self {
        Self {
            archive: String::new(),
            service: "containerd".into(),
            pipe: r"\\.\pipe\containerd-containerd".into(),
            wait_ms: 60_000,
            change: ChangeClass::Live,
            when: When::default(),
        }
    }
}

/// An inbound firewall rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FirewallSpec {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Local port.
    pub port: u16,
    /// When it is there.
    pub when: When,
}

impl Default for FirewallSpec {
    fn default() -> Self {
        Self {
            protocol: Protocol::Tcp,
            port: 0,
            when: When::default(),
        }
    }
}

/// A file of the payload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PayloadSpec {
    /// What a change of it asks for.
    pub change: ChangeClass,
    /// When it is there.
    pub when: When,
}

/// A file with content in the profile: either `content` or `json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileSpec {
    /// Text, written unchanged (line ends LF, no BOM); or its parts, of which those whose condition holds are joined.
    pub content: Option<Content>,
    /// An object, written as JSON. Layers can change single fields of it. A value or a list element of the form
    /// `{when: …, value: …}` is there under that condition.
    pub json: Option<Value>,
    /// What a change of it asks for.
    pub change: ChangeClass,
    /// Services that read it only when they start: a change restarts them.
    pub users: Vec<String>,
    /// Only Administrators and SYSTEM may read it.
    pub private: bool,
    /// When it is there.
    pub when: When,
}

/// Content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Content {
    /// The whole text.
    Whole(String),
    /// Its parts in order.
    Parts(Vec<TextPart>),
}

/// A part of a file's content, always there or under a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TextPart {
    Always(String),
    /// Under a condition.
    Maybe(MaybePart),
}

/// A part under a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaybePart {
    /// When it is there.
    pub when: When,
    pub text: String,
}

impl When {
    /// Whether it has no condition.
    #[must_use]
    pub fn is_always(&self) -> bool {
        self == &Self::default()
    }
}

/// A registry that is reached by mirrors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MirrorSpec {
    /// Server to use if no mirror has the image; empty: none.
    pub server: String,
    /// The mirrors, in the order in which they are tried.
    pub mirrors: Vec<Mirror>,
    /// Whether the registry itself is never contacted: the first mirror is asked again instead.
    pub blocked: bool,
    /// When it is there.
    #[serde(skip_serializing_if = "When::is_always")]
    pub when: When,
}

/// One mirror of a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mirror {
    /// Its address, for example `https://mirror.example:5000/team`.
    pub url: String,
    /// Whether a tag may be resolved by it (ITMS), or digests only (IDMS).
    pub resolve_tags: bool,
    /// Value of the `Authorization` header, in practice a `${secret:…}`; empty: none.
    pub authorization: String,
    /// Whether its certificate is not checked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

/// The HNS network and what is written about it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkSpec {
    /// Name of the HNS network.
    pub name: String,
    /// Further networks that the same service creates: awaited before it, and removed with it.
    pub also: Vec<String>,
    /// Longest wait for it, in milliseconds.
    pub wait_ms: u64,
    /// How to create it; none: a service creates it.
    pub create: Option<HnsCreate>,
    /// Name of the endpoint on the host's own compartment; empty: none is needed.
    pub endpoint: String,
    /// Files with `@{HNS_…}` marks, by path.
    #[serde(deserialize_with = "without_nulls")]
    pub files: Named<FileSpec>,
}

/// A Windows service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceSpec {
    /// The command line, word by word; quoted where Windows needs it.
    pub command: Vec<CommandWord>,
    /// Description; the display name is the service's name.
    pub description: String,
    /// Services that must run before this one.
    pub depends: Vec<String>,
    /// When Windows starts it.
    pub start: StartType,
    /// What Windows does when it dies; delays in MILLISECONDS.
    pub failure: FailureActions,
    /// Environment of this service alone; an entry that is empty after substitution is left out.
    #[serde(deserialize_with = "without_nulls")]
    pub environment: Named<String>,
    /// Executable whose registry key for a priority class goes. The class itself is a flag of the program.
    pub priority: Option<Priority>,
    /// Whether it is only installed, not started.
    pub stopped: bool,
    /// Whether it starts only after the section's `network`.
    pub needs_network: bool,
    /// Longest wait for `RUNNING`, in milliseconds.
    pub start_timeout_ms: u64,
    /// Log file whose tail explains a failure.
    pub log: String,
    /// What a change of it asks for.
    pub change: ChangeClass,
    /// When it is there.
    pub when: When,
}

impl Default for ServiceSpec {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            description: String::new(),
            depends: Vec::new(),
            start: StartType::Auto,
            failure: FailureActions {
                reset_seconds: 300,
                restart_delays_ms: vec![10_000, 30_000, 60_000, 120_000],
            },
            environment: Named::new(),
            priority: None,
            stopped: false,
            needs_network: false,
            start_timeout_ms: 60_000,
            log: String::new(),
            change: ChangeClass::Restart,
            when: When::default(),
        }
    }
}

/// A word of a command line, always there or under a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CommandWord {
    Always(String),
    /// Under a condition.
    Maybe(ConditionalWords),
}

/// Words under a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConditionalWords {
    /// When they are there.
    pub when: When,
    pub words: Vec<String>,
}

/// Evidence that a section is converged: either `service` or `http`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvidenceSpec {
    /// A service that runs and keeps its process id.
    pub service: String,
    /// For how long, in milliseconds.
    pub steady_ms: u64,
    /// An address on the host that answers 200.
    pub http: String,
    /// Longest wait for that, in milliseconds.
    pub wait_ms: u64,
    /// Log file whose tail explains a failure.
    pub log: String,
    /// When it is checked.
    pub when: When,
}

impl Default for EvidenceSpec {
    fn default() -> Self {
        Self {
            service: String::new(),
            steady_ms: 3_000,
            http: String::new(),
            wait_ms: 60_000,
            log: String::new(),
            when: When::default(),
        }
    }
}

/// Labels, annotations and taints of the Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Kubernetes {
    /// Labels that dormer puts on the Node (a kubelet may not set every label on itself).
    #[serde(deserialize_with = "without_nulls")]
    pub labels: Named<String>,
    /// Annotations that dormer puts on the Node.
    #[serde(deserialize_with = "without_nulls")]
    pub annotations: Named<String>,
    /// Taints that the kubelet registers with; `${TAINTS}` in a `json` file stands for them.
    pub taints: Vec<Taint>,
}

/// A taint of the Node, as the kubelet registers it (core/v1 `Taint`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Taint {
    pub key: String,
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl Profile {
    /// JSON Schema of a layer. An entry of a map may be `null`, which removes the one below.
    pub fn schema() -> Value {
        let mut schema = schemars::schema_for!(Profile).to_value();
        let maps = |value: &mut Value| {
            if let Some(entry) = value
                .get_mut("additionalProperties")
                .filter(|it| it.is_object())
            {
                *entry = json!({"anyOf": [entry.take(), {"type": "null"}]});
            }
        };
        each_object(&mut schema, &maps);
        schema
    }
}

fn each_object(value: &mut Value, change: &impl Fn(&mut Value)) {
    match value {
        Value::Object(all) => {
            all.values_mut().for_each(|one| each_object(one, change));
            change(value);
        }
        Value::Array(all) => all.iter_mut().for_each(|one| each_object(one, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn without_nulls<'de, D, T>(from: D) -> Result<Named<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let map = BTreeMap::<String, Option<T>>::deserialize(from)?;
    Ok(map
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect())
}
