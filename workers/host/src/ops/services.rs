//! Operations on services and processes. Numbers: docs/field-notes.md, Services and processes.

use serde::{Deserialize, Serialize};

use super::{QUICK_MS, ask};

ask! {
    /// Every Win32 service (types 0x10 and 0x20, instances of user services left out) with its state and what it
    /// depends on: `EnumServicesStatusExW`, then `QueryServiceConfigW` for each. A service that is gone in between, or
    /// may not be read (5), is left out, with the exception of its name: then `depends` is empty.
    ServiceList, "service_list", reads, |_| QUICK_MS, {} -> Vec<ServiceEntry>;

    /// A service's configuration: `QueryServiceConfigW`, and `QueryServiceConfig2W` levels 1, 2, 3 and 4. A level that
    /// Windows refuses with 124 is [`None`]: not readable, which is not the same as not there.
    ///
    /// Refuses with 5, 123 (no name), 1060 (none), 1072 (marked, on some builds), 1115 (shutting down).
    ServiceRead, "service_read", reads, |_| QUICK_MS, {
        /// The service's name.
        name: String,
    } -> ServiceConfig;

    /// `QueryServiceStatusEx`. The process id is valid in RUNNING and the three states about PAUSED alone.
    ///
    /// Refuses as [`ServiceRead`].
    ServiceStatusRead, "service_status_read", reads, |_| QUICK_MS, {
        /// The service's name.
        name: String,
    } -> ServiceStatus;

    /// `CreateServiceW`, `SERVICE_WIN32_OWN_PROCESS`, LocalSystem, no tag.
    ///
    /// Refuses with 5, 123, 87, 1057, 1059, 1072 (marked for deletion), 1073 (exists), 1078 (the display name is
    /// another service's), 1115.
    ServiceCreate, "service_create", changes, |_| QUICK_MS, {
        /// The service's name.
        name: String,
        /// Its settings. Fields that are [`None`] get Windows' default (display name: the name; manual start; normal
        /// errors).
        settings: ServiceSettings,
    } -> ();

    /// `ChangeServiceConfigW`: what is [`None`] stays (NULL, `SERVICE_NO_CHANGE`). An empty list of dependencies clears
    /// them (`"\0\0"`).
    ///
    /// Refuses with 5, 87, 1059, 1060, 1072, 1078, 1115.
    ServiceChange, "service_change", changes, |_| QUICK_MS, {
        /// The service's name.
        name: String,
        /// What changes.
        settings: ServiceSettings,
    } -> ();

    /// `ChangeServiceConfig2W`, level 1; an empty text deletes the description.
    ///
    /// Refuses with 5, 1060, 1072, 1115.
    ServiceDescribe, "service_describe", changes, |_| QUICK_MS, {
        /// The service's name.
        name: String,
        description: String,
    } -> ();

    /// `ChangeServiceConfig2W`, level 2, on a handle with `SERVICE_START`. No delays: actions and reset period are
    /// deleted (a list that is not NULL, of length 0).
    ///
    /// Refuses with 5, 1060, 1072, 1115.
    ServiceFailure, "service_failure", changes, |_| QUICK_MS, {
        /// The service's name.
        name: String,
        actions: Restarts,
    } -> ();

    /// `StartServiceW`. Success says that the service's process began, not that it runs.
    ///
    /// Refuses with 2, 3, 5, 193, 225, 1053, 1055, 1056 (any state but STOPPED), 1058 (disabled, or marked for
    /// deletion), 1060, 1068, 1069, 1072, 1075, 1115, and what `CreateProcessW` refuses with (1260, 4551).
    ServiceStart, "service_start", changes, |_| 60_000, {
        /// The service's name.
        name: String,
    } -> ();

    /// `ControlService(SERVICE_CONTROL_STOP)`. Success says that the service received the order.
    ///
    /// Refuses with 5, 109, 232 (its process ends), 1051 (others that depend on it run), 1052, 1053, 1060, 1061 (takes
    /// no orders now), 1062 (does not run), 1115.
    ServiceStop, "service_stop", changes, |_| 60_000, {
        /// The service's name.
        name: String,
    } -> ();

    /// `DeleteService`. The record goes when the last handle is closed and the service has stopped.
    ///
    /// Refuses with 5, 1060, 1072 (marked already), 1115.
    ServiceDelete, "service_delete", changes, |_| QUICK_MS, {
        /// The service's name.
        name: String,
    } -> ();

    /// Every process: a Toolhelp snapshot, with creation time and path of each that may be opened for
    /// `PROCESS_QUERY_LIMITED_INFORMATION`.
    ProcessList, "process_list", reads, |_| QUICK_MS, {} -> Vec<Process>;

    /// Opens a process (`QUERY_LIMITED_INFORMATION`, `SYNCHRONIZE`, `TERMINATE`) and keeps the handle, under its id and
    /// creation time; while it is kept Windows gives the id to no other. Answers the creation time.
    ///
    /// Refuses with 87 (no such process), 5 (Windows' own).
    ProcessHold, "process_hold", reads, |_| QUICK_MS, {
        /// Process id. Windows gives it to another process later.
        pid: u32,
    } -> u64;

    /// Whether a process that is held has ended: `WaitForSingleObject(0)`.
    ///
    /// Refuses with 6 (is not held).
    ProcessEnded, "process_ended", reads, |_| QUICK_MS, {
        process: ProcessKey,
    } -> bool;

    /// `TerminateProcess` on a held process. Windows ends it later: [`ProcessEnded`] reports its end.
    ///
    /// Refuses with 5 (it has ended, or may not be ended), 6 (is not held).
    ProcessEnd, "process_end", changes, |_| QUICK_MS, {
        process: ProcessKey,
    } -> ();

    /// Closes the handle; not held: `()`, too.
    ProcessRelease, "process_release", reads, |_| QUICK_MS, {
        process: ProcessKey,
    } -> ();
}

/// State of a service, `dwCurrentState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    Stopped,
    StartPending,
    StopPending,
    Running,
    ContinuePending,
    PausePending,
    Paused,
}

/// One service of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceEntry {
    /// Name of the service, not its display name.
    pub name: String,
    /// State that the service control manager has noted.
    pub state: ServiceState,
    /// Its process; 0 without one.
    pub pid: u32,
    /// The services that it depends on; groups (a leading `+`) included.
    pub depends: Vec<String>,
}

/// When a service is started, `dwStartType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// 0, drivers only.
    Boot,
    /// 1, drivers only.
    System,
    Auto,
    Demand,
    Disabled,
}

/// Settings of a service that can be changed separately.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSettings {
    /// The whole command line.
    pub command: Option<String>,
    /// Display name.
    pub display: Option<String>,
    /// When it is started.
    pub start: Option<Start>,
    /// Services that it depends on.
    pub depends: Option<Vec<String>>,
    /// `dwErrorControl`: 0 ignore, 1 normal.
    pub error_control: Option<u32>,
}

/// What Windows keeps about a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceConfig {
    /// `dwServiceType`; 0x10 is a process of its own.
    pub kind: u32,
    /// When it is started.
    pub start: Start,
    /// `dwErrorControl`.
    pub error_control: u32,
    /// The whole command line, not expanded.
    pub command: String,
    /// Display name; Windows answers the name where none was set.
    pub display: String,
    /// Account it runs as.
    pub account: String,
    /// Services that it depends on, in order.
    pub depends: Vec<String>,
    /// Level 1; empty: none is set.
    pub description: Option<String>,
    /// Level 2.
    pub failure: Option<Restarts>,
    /// Level 3: whether an automatic start waits for two minutes.
    pub delayed: Option<bool>,
    /// Level 4: whether an exit code other than 0 counts as a failure as well.
    pub failure_flag: Option<bool>,
}

/// Failure actions that are all restarts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarts {
    /// Time without a failure after which the count restarts, in SECONDS; `u32::MAX` is never.
    pub reset_seconds: u32,
    /// Delay before each restart in MILLISECONDS; empty: nothing is done.
    pub delays_ms: Vec<u32>,
    /// Whether it has other actions than restarts (a command, a reboot), which others have set.
    pub other: bool,
}

/// Present state of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// State that the service control manager has noted.
    pub state: ServiceState,
    /// `dwControlsAccepted`; 1 is STOP.
    pub accepts: u32,
    /// `dwWin32ExitCode`; 1077 was never started in this boot, 1067 died, 1066 look at `service_exit`.
    pub exit: u32,
    /// `dwServiceSpecificExitCode`.
    pub service_exit: u32,
    /// `dwCheckPoint`.
    pub checkpoint: u32,
    /// `dwWaitHint`.
    pub wait_hint_ms: u32,
    /// Its process; 0 without one.
    pub pid: u32,
}

/// A process, identified by its creation time as well, since ids are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessKey {
    /// Process id. Windows gives it to another process later.
    pub pid: u32,
    /// When it was created: a FILETIME (100 ns since 1601).
    pub created: u64,
}

/// One process of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id. Windows gives it to another process later.
    pub pid: u32,
    /// When it was created; 0 where Windows does not say.
    pub created: u64,
    /// Id of the process that made it, which may have ended, and may be another's by now.
    pub parent: u32,
    /// File name of its program.
    pub name: String,
    /// Whole path of its program (`QueryFullProcessImageNameW`); empty where Windows does not say.
    pub path: String,
}
