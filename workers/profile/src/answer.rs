//! Answer of the program on a host: findings, changes, and the failure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{ChangeClass, Fence};
use crate::invocation::Mode;

/// Most lines of log that a failure carries.
pub const LOG_TAIL_LINES_MAX: usize = 40;
/// Most bytes of log that a failure carries.
pub const LOG_TAIL_BYTES_MAX: usize = 4_096;

/// Final answer of the program, in one framed line (see [`crate::frame`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// [`crate::document::DOCUMENT_SCHEMA`].
    pub schema: u32,
    /// Task of the call.
    pub task: String,
    pub attempt: u32,
    /// Mode of the call.
    pub mode: Mode,
    /// SHA-256 of the answering program.
    pub program: String,
    /// Facts about the host; every mode reads them, at the end of its work.
    pub facts: Facts,
    /// One outcome for each item of the document, in its order; after a failure the rest is
    /// [`ItemState::Skipped`].
    #[serde(default)]
    pub items: Vec<ItemOutcome>,
    /// Destinations of files to upload: their content is neither in place nor staged.
    #[serde(default)]
    pub missing_files: Vec<String>,
    /// Whether the host must reboot before it can match the document.
    pub reboot: Reboot,
    /// Failure that ended the call early. `None`: the call succeeded.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// Duration in milliseconds.
    #[serde(default)]
    pub took_ms: u64,
}

impl Answer {
    /// Whether the host matches the document: nothing failed, differs, is missing or waits.
    pub fn converged(&self) -> bool {
        self.failure.is_none()
            && self.reboot == Reboot::None
            && self.missing_files.is_empty()
            && self
                .items
                .iter()
                .all(|i| matches!(i.state, ItemState::Ok | ItemState::Changed))
    }

    /// Ids of items that `plan` found different.
    pub fn differing(&self) -> impl Iterator<Item = &str> {
        self.items
            .iter()
            .filter(|i| i.state == ItemState::Differs)
            .map(|i| i.id.as_str())
    }
}

/// Facts about a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// `10.0.20348`: major, minor, build.
    pub os_build: String,
    /// Product name, as Windows writes it.
    pub product: String,
    /// Present computer name.
    pub hostname: String,
    /// Computer name after the next reboot, if it differs.
    #[serde(default)]
    pub hostname_pending: Option<String>,
    /// Name of the host in DNS, when it has a domain.
    #[serde(default)]
    pub fqdn: Option<String>,
    /// Identity of this boot; a different one proves a reboot. It is Windows' own boot counter, the same that the
    /// kubelet reports in `status.nodeInfo.bootID`; the time of the boot where Windows has none.
    pub boot_id: String,
    /// Time of the last boot, milliseconds since 1970 UTC by the host's clock.
    pub booted_ms: i64,
    /// The host's clock, milliseconds since 1970 UTC.
    pub now_ms: i64,
    /// Default shell of sshd. `None`: cmd.exe.
    #[serde(default)]
    pub default_shell: Option<String>,
    /// Converged versions, per section.
    #[serde(default)]
    pub installed: Vec<Installed>,
    /// Stored fence. `None`: dormer never changed this host.
    #[serde(default)]
    pub fence: Option<Fence>,
    pub containers: FeatureState,
    /// Whether Windows waits for a reboot.
    pub reboot_pending: bool,
    /// Addresses of the host.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// IPv4 of the interface that has the default route: the kubelet's `--node-ip`.
    #[serde(default)]
    pub node_ip: Option<String>,
    /// Free bytes on `C:`.
    pub free_bytes: u64,
    /// Whether Windows Defender runs.
    #[serde(default)]
    pub defender: bool,
    /// Whether there is a service `docker`. Programs of earlier builds do not say it.
    #[serde(default)]
    pub docker: bool,
    /// Last call that ended here, so that a retry knows whether its predecessor ended.
    #[serde(default)]
    pub last: Option<LastCall>,
    /// Process id of the HNS service; a different one means that endpoints were lost (scenario 31).
    #[serde(default)]
    pub hns_pid: u32,
}

/// Converged section of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Installed {
    /// Section of the profile.
    pub section: crate::document::Section,
    /// Version it carries.
    pub version: String,
    pub task: String,
}

/// An IPv4 address of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Address {
    /// Interface index.
    pub interface: u32,
    pub ipv4: String,
    /// Whether its interface has the default route.
    pub default_route: bool,
}

/// The last call that ended on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastCall {
    pub task: String,
    pub attempt: u32,
    pub mode: Mode,
    /// Whether it ended without a failure.
    pub ok: bool,
}

/// State of a Windows feature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeatureState {
    /// Windows did not say.
    #[default]
    Unknown,
    /// Not there.
    Disabled,
    /// There after the next reboot.
    Pending,
    /// There.
    Enabled,
}

/// Outcome of one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ItemOutcome {
    /// The item's id.
    pub id: String,
    /// Its state at the end.
    pub state: ItemState,
    /// Difference or action in words; may be empty.
    #[serde(default)]
    pub detail: String,
    /// Minimum change class of this change on this host, if it disturbs more than the class of its kind: services run
    /// from files that have to be moved aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeClass>,
}

/// State of an item at the end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// It already matched.
    Ok,
    /// It was changed to match (in mode `remove`: it was removed).
    Changed,
    /// It does not match, and the mode was `plan`; or it will match after a reboot.
    Differs,
    /// It could not be changed; [`Answer::failure`] has the reason.
    Failed,
    /// It was not checked.
    Skipped,
}

/// Whether a host has to reboot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Reboot {
    /// No.
    None,
    /// Yes, for these reasons; the program has not done it.
    Needed {
        /// What waits for it, for example `feature:Containers`.
        why: Vec<String>,
    },
    /// It was requested, by this call (mode `reboot`) or another process.
    Pending,
}

/// Failure of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// Kind of the failure.
    pub code: FailureCode,
    /// Item at fault, if any.
    #[serde(default)]
    pub item: Option<String>,
    /// Message of Windows in its own language: for people, never for decisions.
    pub message: String,
    /// The end of the log of the service at fault ([`LOG_TAIL_LINES_MAX`]).
    #[serde(default)]
    pub log_tail: String,
    /// Whether the same call may succeed later.
    pub retry: bool,
}

/// Kinds of failure that a person or the engine treats differently.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// A newer task changed the host: this one is stale and must stop.
    FenceTooOld,
    /// Another call holds the host's lock.
    HostBusy,
    /// The program cannot read the document, or it is another document than intended.
    DocumentRejected,
    /// `C:` has no room for it.
    DiskFull,
    /// Windows would not enable a feature.
    FeatureInstallFailed,
    /// The computer could not be renamed.
    HostnameFailed,
    /// A file is open in a process that did not end.
    FileLocked,
    /// A staged file differs from the document's hash.
    HashMismatch,
    /// A required file is neither in place nor staged.
    FileMissing,
    /// A correct file disappeared: a virus scanner removed it.
    QuarantineSuspected,
    /// Windows could not make, change or delete a service.
    ServiceConfigFailed,
    /// A deleted service is still marked for deletion (1072): another process has a handle of it.
    ServiceMarkedForDeletion,
    /// A service did not come up in time (1053 and the like).
    ServiceStartTimeout,
    /// A service ended right after its start (1067), or keeps changing its process.
    ServiceCrashed,
    /// A service, or its process, did not end in time.
    ServiceStopTimeout,
    /// A service that it depends on did not start (1068).
    DependencyFailed,
    /// It runs, but its health address does not answer 200.
    NotHealthy,
    /// The HNS network or endpoint is not there.
    HnsMissing,
    /// An HNS call failed.
    HnsFailed,
    /// The host has no default route, or no address on it.
    NoDefaultRoute,
    /// The host's clock is too far off for certificates.
    ClockSkew,
    /// Windows waits for a reboot and refuses the change before it.
    RebootPending,
    /// The boot identity is not the expected one: the host rebooted meanwhile.
    BootChanged,
    /// `shutdown.exe` refused.
    RebootRefused,
    /// A firewall rule could not be set.
    FirewallFailed,
    /// A certificate could not be imported or removed.
    CertificateFailed,
    /// Windows Defender refused an exclusion.
    DefenderFailed,
    /// An operation exceeded its limit: the program on the host ended itself, so that none of its work continues.
    TimedOut,
    /// Windows refused access.
    AccessDenied,
    /// Any other failure; see the message.
    Other,
}

impl FailureCode {
    /// Every code, for tables and tests.
    pub const ALL: [Self; 30] = [
        Self::FenceTooOld,
        Self::HostBusy,
        Self::DocumentRejected,
        Self::DiskFull,
        Self::FeatureInstallFailed,
        Self::HostnameFailed,
        Self::FileLocked,
        Self::HashMismatch,
        Self::FileMissing,
        Self::QuarantineSuspected,
        Self::ServiceConfigFailed,
        Self::ServiceMarkedForDeletion,
        Self::ServiceStartTimeout,
        Self::ServiceCrashed,
        Self::ServiceStopTimeout,
        Self::DependencyFailed,
        Self::NotHealthy,
        Self::HnsMissing,
        Self::HnsFailed,
        Self::NoDefaultRoute,
        Self::ClockSkew,
        Self::RebootPending,
        Self::BootChanged,
        Self::RebootRefused,
        Self::FirewallFailed,
        Self::CertificateFailed,
        Self::DefenderFailed,
        Self::TimedOut,
        Self::AccessDenied,
        Self::Other,
    ];

    /// Whether the same call may succeed later without any action.
    pub const fn retry(self) -> bool {
        !matches!(
            self,
            Self::FenceTooOld
                | Self::DocumentRejected
                | Self::BootChanged
                | Self::NoDefaultRoute
                | Self::QuarantineSuspected
                | Self::AccessDenied
        )
    }

    /// Name on the wire, in `snake_case`.
    pub fn as_str(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(word)) => word,
            _ => String::new(),
        }
    }

    /// The failure in a few words, without a full stop.
    pub const fn text(self) -> &'static str {
        match self {
            Self::FenceTooOld => "a newer task has taken over the host",
            Self::HostBusy => "another call runs on the host",
            Self::DocumentRejected => "the host program rejected its document",
            Self::DiskFull => "the disk is full",
            Self::FeatureInstallFailed => "a Windows feature could not be installed",
            Self::HostnameFailed => "the host could not be renamed",
            Self::FileLocked => "a program has a file open",
            Self::HashMismatch => "a file is not the one that was sent",
            Self::FileMissing => "a file is not on the host yet",
            Self::QuarantineSuspected => "a virus scanner seems to have removed a file",
            Self::ServiceConfigFailed => "a service could not be configured",
            Self::ServiceMarkedForDeletion => "a service is marked for deletion",
            Self::ServiceStartTimeout => "a service did not start in time",
            Self::ServiceCrashed => "a service ended unexpectedly",
            Self::NotHealthy => "a service runs and is not healthy",
            Self::ServiceStopTimeout => "a service did not stop in time",
            Self::DependencyFailed => "a service that it depends on did not start",
            Self::HnsMissing => "the host's container network is missing",
            Self::HnsFailed => "the Host Networking Service failed",
            Self::NoDefaultRoute => "the host has no default route",
            Self::ClockSkew => "the host's clock is wrong",
            Self::RebootPending => "a reboot is pending",
            Self::BootChanged => "the host rebooted meanwhile",
            Self::RebootRefused => "Windows refused the reboot",
            Self::FirewallFailed => "a firewall rule could not be set",
            Self::CertificateFailed => "a certificate could not be installed",
            Self::DefenderFailed => "Defender could not be configured",
            Self::TimedOut => "the call took too long",
            Self::AccessDenied => "access denied",
            Self::Other => "the host program failed",
        }
    }

    /// Advice to a person, in one sentence.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::FenceTooOld => "Do nothing: a newer task has taken over this host.",
            Self::HostBusy => "Wait: an earlier call is still running on the host.",
            Self::DocumentRejected => {
                "Check that dormer-host.exe and dormer are from the same build."
            }
            Self::DiskFull => "Free space on C: of the host, or give it a larger disk.",
            Self::FeatureInstallFailed => {
                "Read C:\\Windows\\Logs\\DISM on the host; the feature store may be damaged."
            }
            Self::HostnameFailed => "Check the name (15 characters) and the domain of the host.",
            Self::FileLocked => "Find the process that holds the file, or reboot the host.",
            Self::HashMismatch => {
                "Wait: dormer repeats the upload. Check the payload if the failure persists."
            }
            Self::FileMissing => "Wait: dormer uploads the file and repeats the call.",
            Self::QuarantineSuspected => {
                "Restore the file in the virus scanner and exclude it there."
            }
            Self::ServiceConfigFailed => "Check whether a group policy forbids the service.",
            Self::ServiceMarkedForDeletion => {
                "Close the consoles that show services on the host, or reboot it."
            }
            Self::ServiceStartTimeout | Self::ServiceCrashed | Self::NotHealthy => {
                "Read the end of the service's log on the host: Get-Content C:\\var\\log\\kubelet\\kubelet.log -Tail 40 (or containerd\\containerd.log)."
            }
            Self::ServiceStopTimeout => "Reboot the host: the process does not end.",
            Self::DependencyFailed => "Check the service that it depends on.",
            Self::HnsMissing => {
                "Read the log of the service that creates the network: C:\\var\\log\\hybrid-overlay\\hybrid-overlay.log on OpenShift, else that of the network plugin."
            }
            Self::HnsFailed => "Restart the service `hns`, or reboot the host.",
            Self::NoDefaultRoute => "Give the host a default route with an IPv4 address.",
            Self::ClockSkew => "Set the host's clock: `w32tm /resync`.",
            Self::RebootPending => "Wait: dormer reboots the host and repeats the call.",
            Self::BootChanged => "Do nothing: the host has rebooted, and dormer compares it again.",
            Self::RebootRefused => {
                "Find out on the host what blocked the shutdown: a person, or a policy."
            }
            Self::FirewallFailed => "Check whether a group policy controls the firewall.",
            Self::CertificateFailed => "Check the certificate in the trusted bundle.",
            Self::DefenderFailed => {
                "Check whether a group policy or tamper protection controls Defender."
            }
            Self::TimedOut => {
                "Wait: dormer repeats the call. Check what the message names if the failure persists."
            }
            Self::AccessDenied => "Make the SSH user an administrator of the host.",
            Self::Other => "Correct what the cause names.",
        }
    }
}
