//! Items of a converge document: every kind of desired state of a host.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Class of an item's change. A whole change has the highest class of its items.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ChangeClass {
    /// In place, without a lease.
    #[default]
    Live,
    /// Through the rollout, without a drain.
    Restart,
    /// Through the rollout, with a drain.
    Drain,
    /// A new machine.
    Replace,
}

/// Item of a converge document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Item {
    /// Unique in its document, for example `file:C:\k\kubelet.exe` or `service:kubelet`.
    pub id: String,
    pub change: ChangeClass,
    /// Content; its fields are beside `id`, and `kind` selects the variant.
    #[serde(flatten)]
    pub what: ItemKind,
}

/// What an item keeps true on a host, with its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ItemKind {
    /// A folder that exists.
    Directory(Directory),
    /// A file with exactly this content.
    File(File),
    /// A Windows feature that is enabled; a change asks for a reboot.
    Feature(Feature),
    /// The computer name; a change asks for a reboot.
    Hostname(Hostname),
    /// A machine-wide environment variable.
    Environment(Environment),
    /// A value in the registry.
    Registry(Registry),
    /// Ports that Windows gives to TCP connections of its own.
    DynamicPorts(DynamicPorts),
    /// A Windows service.
    Service(Service),
    /// An image in containerd's store, out of an archive of the payload.
    Image(Image),
    /// An inbound firewall rule.
    Firewall(Firewall),
    /// A process that Windows Defender leaves alone (only where Defender runs).
    DefenderExclusion(DefenderExclusion),
    /// A certificate in `LocalMachine\Root`.
    Certificate(Certificate),
    /// An HNS network that exists. Its creation cuts the SSH connection.
    HnsNetwork(HnsNetwork),
    /// An HNS endpoint attached to the host's own compartment.
    HnsEndpoint(HnsEndpoint),
    /// A file whose content holds facts that only the host's network knows.
    NetworkFile(NetworkFile),
    /// A route by way of the default gateway (Windows can forget it).
    Route(Route),
    /// Evidence: a service that is running and keeps its process id.
    SteadyService(SteadyService),
    /// Evidence: an HTTP endpoint on the host that answers 200.
    Http(Http),
    /// Removal of old version folders, except the named ones.
    Sweep(Sweep),
    /// The only folders in a folder of dormer's.
    OnlyFolders(OnlyFolders),
    /// The only certificates of dormer's that stay in `LocalMachine\Root`. Certificates of others are not touched.
    OnlyCertificates(OnlyCertificates),
    /// Of files that a program makes again and again, the newest; the others go.
    NewestFiles(NewestFiles),
    /// Processes that must not outlive a removal; `apply` leaves them alone.
    Lingering(Lingering),
    /// A foreign service that is stopped and disabled.
    DisabledService(DisabledService),
}

/// See [`ItemKind::Directory`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Directory {
    /// Absolute path with a drive.
    pub path: String,
    /// `remove` leaves it (logs outlive a teardown).
    #[serde(default)]
    pub keep: bool,
}

/// See [`ItemKind::File`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct File {
    /// Absolute path with a drive.
    pub path: String,
    /// SHA-256 of the content, 64 lower-case hex digits.
    pub sha256: String,
    /// Size of the content in bytes.
    pub size: u64,
    /// Where the content comes from.
    pub source: FileSource,
    /// Services that have the file open or read it only when they start: stopped before it is
    /// replaced, started again by their own items.
    #[serde(default)]
    pub users: Vec<String>,
    /// Only Administrators and SYSTEM may read it.
    #[serde(default)]
    pub private: bool,
}

/// Where a file's content comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum FileSource {
    /// In the document itself.
    Inline {
        /// The content, standard base64.
        base64: String,
    },
    /// Uploaded into the host's staging folder as `<name>`, or gzip-compressed as `<name>.gz`.
    Staged {
        /// Name in the staging folder: the SHA-256 of the content.
        name: String,
    },
}

/// See [`ItemKind::Feature`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Feature {
    /// Name as `Install-WindowsFeature` knows it.
    pub name: String,
}

/// See [`ItemKind::Hostname`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hostname {
    /// The name, at most 15 characters, which is the limit of NetBIOS.
    pub name: String,
}

/// See [`ItemKind::Environment`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Name of the variable.
    pub name: String,
    /// Its value; none means that the variable must not exist.
    pub value: Option<String>,
    /// Services must see it, and those get the environment of the last boot: a change asks for a
    /// reboot. (What one service alone needs goes into [`Service::environment`], without one.)
    #[serde(default)]
    pub reboot: bool,
}

/// See [`ItemKind::Registry`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Registry {
    /// The key below `HKEY_LOCAL_MACHINE`, without the root.
    pub key: String,
    /// Name of the value.
    pub name: String,
    pub value: RegistryValue,
    /// Only on a host whose address is static. Elsewhere the value is left alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub static_address: bool,
    /// Only on these Windows builds; empty: on all. Elsewhere the value is left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows_builds: Vec<String>,
}

/// See [`ItemKind::DynamicPorts`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DynamicPorts {
    /// First port.
    pub start: u16,
    /// Number of ports.
    pub count: u16,
}

/// Value in the registry, by its type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum RegistryValue {
    /// `REG_DWORD`.
    Dword(u32),
    /// `REG_QWORD`.
    Qword(u64),
    /// `REG_SZ`.
    Text(String),
    /// `REG_EXPAND_SZ`, not expanded.
    Expand(String),
    /// `REG_MULTI_SZ`.
    Texts(Vec<String>),
}

/// See [`ItemKind::Service`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Service {
    /// Service name, the key in the service control manager.
    pub name: String,
    /// Display name.
    pub display: String,
    pub description: String,
    /// The whole command line (`ImagePath`), quoted as Windows wants it.
    pub command: String,
    /// Services that must run before this one.
    pub depends: Vec<String>,
    /// When Windows starts it.
    pub start: StartType,
    /// What Windows does when it dies.
    pub failure: FailureActions,
    /// Environment of this service alone (registry value `Environment`).
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Executable whose registry key for a priority class goes: older versions made it, and the kubelet has a flag for it.
    #[serde(default)]
    pub priority: Option<Priority>,
    /// Whether it must be running when the document is converged.
    pub running: bool,
    /// Longest wait for `RUNNING` in milliseconds.
    pub start_timeout_ms: u64,
    /// Log file whose tail explains a failure.
    #[serde(default)]
    pub log: Option<String>,
}

/// When Windows starts a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StartType {
    /// At boot.
    #[default]
    Auto,
    /// When asked to.
    Demand,
    /// Never.
    Disabled,
}

/// What Windows does when a service dies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailureActions {
    /// Seconds without a failure after which the count restarts.
    pub reset_seconds: u32,
    /// Delay before each restart, in MILLISECONDS, as `sc.exe` counts them. Empty: no restart.
    pub restart_delays_ms: Vec<u32>,
}

/// A priority class for one executable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Priority {
    /// File name of the executable, for example `kubelet.exe`.
    pub executable: String,
    pub class: PriorityClass,
}

/// Windows' priority classes that make sense for a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PriorityClass {
    BelowNormal,
    Normal,
    AboveNormal,
    High,
}

/// See [`ItemKind::Image`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// Its name, as the kubelet and containerd's configuration have it: `registry.k8s.io/pause:3.10.2`.
    pub name: String,
    /// Absolute path of the archive on the host: an OCI layout in a tar.
    pub archive: String,
    /// containerd's pipe.
    pub pipe: String,
    /// Longest wait for containerd to answer, in milliseconds.
    pub wait_ms: u64,
}

/// See [`ItemKind::Firewall`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Firewall {
    /// Name of the rule.
    pub name: String,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Local port.
    pub port: u16,
}

/// Protocol of a firewall rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Tcp,
    Udp,
}

/// See [`ItemKind::DefenderExclusion`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DefenderExclusion {
    /// Absolute path of the executable.
    pub process: String,
}

/// See [`ItemKind::Certificate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// SHA-256 of the DER bytes, 64 lower-case hex digits.
    pub sha256: String,
    /// The certificate: DER in standard base64.
    pub base64: String,
}

/// See [`ItemKind::HnsNetwork`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HnsNetwork {
    pub name: String,
    /// Longest wait for it in milliseconds; then `HnsMissing`, to be tried again.
    pub wait_ms: u64,
    /// How to create it; none: a service creates it, and the program waits.
    #[serde(default)]
    pub create: Option<HnsCreate>,
}

/// How to make an HNS network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HnsCreate {
    /// Type of the network, `L2Bridge`, `Overlay` or `Transparent`.
    pub network_type: String,
    /// Its subnet, for example `10.132.1.0/24`.
    pub subnet: String,
    pub gateway: String,
    /// Virtual subnet id, for `Overlay`.
    #[serde(default)]
    pub vsid: Option<u32>,
}

/// See [`ItemKind::HnsEndpoint`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HnsEndpoint {
    /// The network it belongs to.
    pub network: String,
    pub name: String,
    /// As in [`File::users`]: services that know the endpoint by its address, and must be restarted after it was lost
    /// and made again (the HNS service restarts), even where the address is the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
}

/// See [`ItemKind::NetworkFile`]. In the content `@{HNS_SUBNET}`, `@{HNS_MANAGEMENT_IP}` and `@{HNS_ENDPOINT_IP}` are
/// replaced by values of the host's network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkFile {
    /// Absolute path with a drive.
    pub path: String,
    /// The content with its `@{…}` marks.
    pub template: String,
    /// The HNS network asked.
    pub network: String,
    /// The HNS endpoint asked, when the template needs its address.
    #[serde(default)]
    pub endpoint: Option<String>,
    #[serde(default)]
    pub users: Vec<String>,
}

/// See [`ItemKind::Route`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// Destination prefix, for example `169.254.169.254/32`.
    pub prefix: String,
}

/// See [`ItemKind::SteadyService`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SteadyService {
    pub service: String,
    /// For how long its process id must stay the same, in milliseconds.
    pub steady_ms: u64,
    /// Log file whose tail explains a failure.
    #[serde(default)]
    pub log: Option<String>,
}

/// See [`ItemKind::Http`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Http {
    /// The address, on the host itself.
    pub url: String,
    /// Longest wait for a 200 in milliseconds.
    pub wait_ms: u64,
    /// Log file whose tail explains a failure.
    #[serde(default)]
    pub log: Option<String>,
}

/// See [`ItemKind::Sweep`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sweep {
    /// Folder that holds the version folders.
    pub under: String,
    /// Version folders that stay (this one and the one before it); any other that carries the
    /// mark file [`VERSION_MARK`] goes.
    pub keep: Vec<String>,
}

/// File in a version folder that says it is one of ours, so that a sweep touches nothing else.
pub const VERSION_MARK: &str = ".dormer-version";

/// See [`ItemKind::OnlyFolders`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnlyFolders {
    /// Folder that only dormer writes to.
    pub under: String,
    /// The names of the folders in it that stay.
    pub keep: Vec<String>,
}

/// See [`ItemKind::NewestFiles`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewestFiles {
    /// The folder.
    pub under: String,
    /// How their names begin: `ovnkube-client-`.
    pub prefix: String,
    /// How they end: `.pem`.
    pub suffix: String,
    /// So many stay.
    pub keep: usize,
    /// A file that is one of them under a name of its own: its twin stays, too.
    #[serde(default)]
    pub current: Option<String>,
}

/// See [`ItemKind::OnlyCertificates`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnlyCertificates {
    /// SHA-256 of the DER bytes of each that stays.
    pub keep: Vec<String>,
}

/// See [`ItemKind::DisabledService`]. WICD is one where dormer takes over from WMCO. How it was started is noted on the host, so
/// that it can be given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DisabledService {
    pub name: String,
}

/// See [`ItemKind::Lingering`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lingering {
    /// Name of the process, without `.exe`.
    pub process: String,
}
