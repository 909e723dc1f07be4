//! The host interface: every question and every change that the core has for Windows, as values.
//!
//! An [`Operation`] is one call of Windows (or one loop over plain bytes, such as "write this content to a new file"),
//! its [`Answer`] is typed, and what Windows refuses is a [`WinError`]: a number, passed on as the API gave it. There is
//! one method, [`Host::perform`]. So cutting a run after any operation, counting them, recording them on a real host
//! and playing such a recording back are one mechanism.
//!
//! What an implementation must keep to:
//! - An operation does what its comment says and nothing beside it: no retries, no waiting (only [`Pause`] waits, and
//!   [`FeatureEnable`], [`ProgramRun`] and [`HttpGet`] last as long as Windows takes), no cleaning up of old things.
//! - Text that Windows translates stands only in [`WinError::text`], for people.
//! - Paths are absolute with a drive and `\`, at most 32,000 UTF-16 units; an implementation adds `\\?\` itself.
//! - Names of services, rules, networks and files are compared without regard to case, as Windows does.
//! - Registry keys lie in `HKEY_LOCAL_MACHINE`, in the 64-bit view, written without the root.

mod files;
mod images;
mod network;
mod services;
mod system;
mod values;

use std::{fmt, future::Future};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use files::{Stat as Look, *};
pub use images::*;
pub use network::*;
pub use services::*;
pub use system::*;
pub use values::*;

/// The longest time for an operation that Windows answers at once.
pub const QUICK_MS: u64 = 30_000;
/// The longest time for one that reads or writes a whole file.
pub const CONTENT_MS: u64 = 300_000;

/// A question or a change with a typed answer.
pub trait Ask: Clone + Serialize + DeserializeOwned + Send {
    /// Answer of the operation.
    type Answer: Send;
    /// Its name in recordings, heartbeats and the contract suite.
    const NAME: &'static str;
    /// Whether it changes the host. One that does not can be repeated, left out or cut without a trace.
    const CHANGES: bool;

    /// The longest time it may take; the worker ends a call whose operation lasts longer.
    fn limit_ms(&self) -> u64;
    /// The same as one of all operations.
    fn operation(self) -> Operation;
    /// Its answer out of all answers; none when that is another operation's.
    fn answer(answer: Answer) -> Option<Self::Answer>;
}

/// Defines operations: `Name, "name", reads|changes, limit { fields } -> Answer;`.
macro_rules! ask {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $kind:ident, $limit:expr, {
        $($(#[$fdoc:meta])* $field:ident: $type:ty),* $(,)?
    } -> $answer:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }

        impl $crate::ops::Ask for $name {
            type Answer = $answer;
            const NAME: &'static str = $text;
            const CHANGES: bool = $crate::ops::ask!(@$kind);
            fn limit_ms(&self) -> u64 {
                let limit: fn(&Self) -> u64 = $limit;
                limit(self)
            }
            fn operation(self) -> $crate::ops::Operation { $crate::ops::Operation::$name(self) }
            fn answer(answer: $crate::ops::Answer) -> Option<$answer> {
                match answer {
                    $crate::ops::Answer::$name(answer) => Some(answer),
                    _ => None,
                }
            }
        }
    )*};
    (@reads) => { false };
    (@changes) => { true };
}
pub(crate) use ask;

/// Lists the operations: the enums over all of them, and their names.
macro_rules! operations {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// One operation, of any kind.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "operation")]
        pub enum Operation {
            $(#[doc = concat!("See [`", stringify!($name), "`].")]
            #[serde(rename = $text)]
            $name($name),)*
        }

        /// The answer of one operation, of any kind.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "operation", content = "answer")]
        pub enum Answer {
            $(#[doc = concat!("Of [`", stringify!($name), "`].")]
            #[serde(rename = $text)]
            $name(<$name as Ask>::Answer),)*
        }

        impl Operation {
            /// Names of all operations, in the order of this page.
            pub const NAMES: &'static [&'static str] = &[$($text),*];

            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => $text,)* }
            }

            /// Whether it changes the host.
            pub fn changes(&self) -> bool {
                match self { $(Self::$name(_) => <$name as Ask>::CHANGES,)* }
            }

            /// The longest time it may take.
            pub fn limit_ms(&self) -> u64 {
                match self { $(Self::$name(ask) => ask.limit_ms(),)* }
            }
        }

        impl Answer {
            /// The name of the operation it belongs to.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => $text,)* }
            }
        }

        #[cfg(test)]
        const NAMES_OF_ASKS: &[&str] = &[$(<$name as Ask>::NAME),*];
    };
}

operations! {
    // files
    FileInformation = "file_information",
    FileSecurity = "file_security",
    FileRights = "file_rights",
    FileDigest = "file_digest",
    FileRead = "file_read",
    FileWriteNew = "file_write_new",
    FileRename = "file_rename",
    FileDelete = "file_delete",
    FileProbe = "file_probe",
    FileAttributes = "file_attributes",
    FileVersion = "file_version",
    DirectoryCreate = "directory_create",
    DirectoryList = "directory_list",
    DirectoryRemove = "directory_remove",
    TreeRemove = "tree_remove",
    VolumeSpace = "volume_space",
    LockTake = "lock_take",
    LockRelease = "lock_release",
    // services and processes
    ServiceList = "service_list",
    ServiceRead = "service_read",
    ServiceStatusRead = "service_status_read",
    ServiceCreate = "service_create",
    ServiceChange = "service_change",
    ServiceDescribe = "service_describe",
    ServiceFailure = "service_failure",
    ServiceStart = "service_start",
    ServiceStop = "service_stop",
    ServiceDelete = "service_delete",
    ProcessList = "process_list",
    ProcessHold = "process_hold",
    ProcessEnded = "process_ended",
    ProcessEnd = "process_end",
    ProcessRelease = "process_release",
    // registry, system
    RegistryRead = "registry_read",
    RegistryList = "registry_list",
    RegistryWrite = "registry_write",
    RegistryDelete = "registry_delete",
    DynamicPortsRead = "dynamic_ports_read",
    EnvironmentTell = "environment_tell",
    SystemRead = "system_read",
    ClockRead = "clock_read",
    BootRead = "boot_read",
    DomainRead = "domain_read",
    HostNameSet = "host_name_set",
    RebootAsk = "reboot_ask",
    FeatureRead = "feature_read",
    FeatureEnable = "feature_enable",
    ProgramRun = "program_run",
    Pause = "pause",
    RootList = "root_list",
    RootAdd = "root_add",
    RootRemove = "root_remove",
    // network, firewall, Defender
    HnsCall = "hns_call",
    InterfaceList = "interface_list",
    RouteList = "route_list",
    RouteAdd = "route_add",
    RouteRemove = "route_remove",
    HttpGet = "http_get",
    FirewallRead = "firewall_read",
    FirewallAdd = "firewall_add",
    FirewallChange = "firewall_change",
    FirewallRemove = "firewall_remove",
    FirewallPolicyRead = "firewall_policy_read",
    DefenderRead = "defender_read",
    DefenderAdd = "defender_add",
    DefenderRemove = "defender_remove",
    // containerd's images
    ImageRead = "image_read",
    ImageArchiveRead = "image_archive_read",
    ImageImport = "image_import",
}

/// Present activity of the core, for heartbeats.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Present item; empty outside of items.
    pub item: String,
    /// Present activity: an operation's name, or the name of a wait over several operations ("kubelet stops").
    pub doing: String,
    /// When that began, by [`Clock::tick_ms`]; 0: with this operation.
    pub since_ms: u64,
    /// The longest time for it.
    pub limit_ms: u64,
}

/// An operation with its context, for a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRequest {
    /// Activity that it belongs to.
    pub step: Step,
    #[serde(flatten)]
    pub operation: Operation,
}

/// Result of an operation: its answer, or the Win32 error code.
pub type Outcome = Result<Answer, WinError>;

/// A Windows host. Implemented by the Win32 side, the simulated host, and wrappers that cut, count or record.
///
/// # Contract
/// `perform` answers with the [`Answer`] of the same name as the operation, or with a number; it neither panics nor
/// retries. An operation that answered has taken effect; one that was cut may or may not have. Handles that outlive an
/// operation ([`LockTake`], [`ProcessHold`]) belong to the host value and end with it.
pub trait Host: Send {
    /// Performs one operation.
    fn perform(&mut self, request: OperationRequest) -> impl Future<Output = Outcome> + Send;
}

impl<H: Host> Host for &mut H {
    fn perform(&mut self, request: OperationRequest) -> impl Future<Output = Outcome> + Send {
        (**self).perform(request)
    }
}

/// A number with which Windows refused, as the API gave it: a Win32 error (`5`) or an HRESULT (`0x80070005`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WinError {
    /// The number.
    pub code: u32,
    /// Windows' error message in its own language: for people, never for decisions.
    #[serde(default)]
    pub text: String,
}

impl WinError {
    /// A number without a text.
    pub const fn new(code: u32) -> Self {
        Self {
            code,
            text: String::new(),
        }
    }

    /// The number, with a Win32 error taken out of an HRESULT that carries one (facility 7).
    pub const fn number(&self) -> u32 {
        if self.code & 0xffff_0000 == 0x8007_0000 {
            self.code & 0xffff
        } else {
            self.code
        }
    }

    /// Whether the number is one of these.
    pub fn is_any(&self, numbers: &[u32]) -> bool {
        numbers.contains(&self.number())
    }
}

impl fmt::Display for WinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code >= 0x8000_0000 {
            write!(f, "0x{:08x}", self.code)?;
        } else {
            write!(f, "{}", self.code)?;
        }
        if self.text.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", self.text)
        }
    }
}

impl std::error::Error for WinError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_one_name() {
        assert_eq!(Operation::NAMES, NAMES_OF_ASKS);
        let mut sorted = Operation::NAMES.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), Operation::NAMES.len());
    }

    #[test]
    fn a_request_and_its_answer_survive_a_recording() {
        let request = OperationRequest {
            step: Step {
                item: "service:kubelet".into(),
                doing: "service_stop".into(),
                since_ms: 7,
                limit_ms: QUICK_MS,
            },
            operation: ServiceStop {
                name: "kubelet".into(),
            }
            .operation(),
        };
        let text = serde_json::to_string(&request).expect("serialised");
        assert_eq!(
            text,
            r#"{"step":{"item":"service:kubelet","doing":"service_stop","since_ms":7,"limit_ms":30000},"#
                .to_owned()
                + r#""operation":"service_stop","name":"kubelet"}"#
        );
        assert_eq!(
            serde_json::from_str::<OperationRequest>(&text).expect("read"),
            request
        );
        let answers = [
            Answer::FileProbe(()),
            Answer::FileRead(Content {
                bytes: Bytes(vec![0, 255]),
                size: 9,
            }),
            Answer::RegistryRead(Value::Text("x".into())),
        ];
        for answer in answers {
            let text = serde_json::to_string(&answer).expect("serialised");
            assert_eq!(
                serde_json::from_str::<Answer>(&text).expect("read"),
                answer,
                "{text}"
            );
        }
    }

    #[test]
    fn a_win32_error_is_found_inside_an_hresult() {
        assert_eq!(WinError::new(0x8007_0002).number(), 2);
        assert_eq!(WinError::new(0x800f_0806).number(), 0x800f_0806);
        assert_eq!(WinError::new(0x803b_0010).to_string(), "0x803b0010");
        assert!(WinError::new(32).is_any(&[5, 32]));
    }
}
