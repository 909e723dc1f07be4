//! Operations on the registry, on Windows as a whole, and on the store of trusted roots.
//! Numbers: docs/field-notes.md, Registry, roots, computer names;
//! docs/field-notes.md, Features, HNS, firewall, Defender.

use serde::{Deserialize, Serialize};

use super::{Bytes, QUICK_MS, Value, ask};

ask! {
    /// `RegQueryValueExW`, 64-bit view, nothing expanded.
    ///
    /// Refuses with 2 (no such key, or no such value), 5.
    RegistryRead, "registry_read", reads, |_| QUICK_MS, {
        /// Key below `HKEY_LOCAL_MACHINE`.
        key: String,
        /// Name of the value; empty is the default value.
        name: String,
    } -> Value;

    /// Names of the keys and of the values in a key.
    ///
    /// Refuses with 2, 5.
    RegistryList, "registry_list", reads, |_| QUICK_MS, {
        /// Key below `HKEY_LOCAL_MACHINE`.
        key: String,
    } -> RegistryNames;

    /// `RegCreateKeyExW` (keys above it, too), `RegSetValueExW`.
    ///
    /// Refuses with 5, 1018 (the key is marked for deletion).
    RegistryWrite, "registry_write", changes, |_| QUICK_MS, {
        /// Key below `HKEY_LOCAL_MACHINE`.
        key: String,
        /// Name of the value.
        name: String,
        value: Value,
    } -> ();

    /// `RegDeleteValueW`; the key stays.
    ///
    /// Refuses with 2, 5.
    RegistryDelete, "registry_delete", changes, |_| QUICK_MS, {
        /// Key below `HKEY_LOCAL_MACHINE`.
        key: String,
        /// Name of the value.
        name: String,
    } -> ();

    /// The range of dynamic ports of TCP: `MSFT_NetTCPSetting` in `ROOT\StandardCimv2`, of the template `Internet`, its
    /// properties `DynamicPortRangeStartPort` and `DynamicPortRangeNumberOfPorts`.
    ///
    /// Refuses with 0x8004100E (there is no such namespace), 1168 (no such template, or it names no ports).
    DynamicPortsRead, "dynamic_ports_read", reads, |_| QUICK_MS, {} -> PortRange;

    /// Tells windows that the machine's environment changed: `SendMessageTimeoutW(HWND_BROADCAST, WM_SETTINGCHANGE,
    /// "Environment", SMTO_ABORTIFHUNG, 1 s)`. Over SSH there is no listener; its result means nothing.
    EnvironmentTell, "environment_tell", changes, |_| QUICK_MS, {} -> ();

    /// What Windows this is: `RtlGetVersion`, `GetNativeSystemInfo`, `GetComputerNameExW`, and whether this process is
    /// an administrator's (`CheckTokenMembership` with S-1-5-32-544).
    SystemRead, "system_read", reads, |_| QUICK_MS, {} -> System;

    /// The clocks: `GetSystemTimePreciseAsFileTime` and `GetTickCount64`.
    ClockRead, "clock_read", reads, |_| QUICK_MS, {} -> Clock;

    /// Identity of this boot: `KUSER_SHARED_DATA.BootId`, and `NtQuerySystemInformation(3)`. [`RegistryRead`] reads the
    /// registry's copy of the boot id.
    BootRead, "boot_read", reads, |_| QUICK_MS, {} -> Boot;

    /// `NetGetJoinInformation`.
    DomainRead, "domain_read", reads, |_| QUICK_MS, {} -> Domain;

    /// `SetComputerNameExW(ComputerNamePhysicalDnsHostname)`: writes `NV Hostname` and the NetBIOS name (the first 15
    /// characters, in capitals); both hold from the next boot on.
    ///
    /// Refuses with 5, 87 (no name for a computer).
    HostNameSet, "host_name_set", changes, |_| QUICK_MS, {
        name: String,
    } -> ();

    /// `InitiateShutdownW` with `SHUTDOWN_RESTART | FORCE_OTHERS | FORCE_SELF`, reason 0x80020004, after enabling
    /// `SeShutdownPrivilege`. Success says that it was asked for; another boot identity says that it happened.
    ///
    /// Refuses with 5, 21, 1115 (has begun), 1190 (one was asked for before), 1191, 1300 (no such privilege).
    RebootAsk, "reboot_ask", changes, |_| QUICK_MS, {
        /// Seconds until it begins.
        grace_seconds: u32,
        /// Text for the event log.
        reason: String,
    } -> ();

    /// State of a feature: `DismGetFeatureInfo` in a session of its own.
    ///
    /// Refuses with 126 (no dismapi.dll), 0x800F080C (no such feature), 0x800F0902 (busy), and what DISM refuses with.
    FeatureRead, "feature_read", reads, |_| 120_000, {
        /// DISM's name of the feature.
        name: String,
    } -> DismState;

    /// `DismEnableFeature(All)` in a session of its own. Answers a result that is no failure by its sign (0, 1, 3010);
    /// the state is read again after each.
    ///
    /// Refuses with every failing HRESULT, 0x80070BC2 (done, after a reboot) among them.
    FeatureEnable, "feature_enable", changes, |_| 1_200_000, {
        /// DISM's name of the feature.
        name: String,
    } -> u32;

    /// Runs a program and answers its exit code: the whole path, no shell, no input, output thrown away. At the limit
    /// it is ended.
    ///
    /// Refuses with 2, 3, 5, 193, 225, 1260, 4551, 1460 (the limit).
    ProgramRun, "program_run", changes, |ask| ask.limit_ms, {
        path: String,
        /// Its arguments, quoted by the implementation as `CommandLineToArgvW` reads them.
        arguments: Vec<String>,
        /// The longest time.
        limit_ms: u64,
    } -> u32;

    /// Waits. On the simulated host a pause of its clock.
    Pause, "pause", reads, |ask| ask.ms + QUICK_MS, {
        /// For so many milliseconds.
        ms: u64,
    } -> ();

    /// The certificates in `LocalMachine\Root`, all physical stores of the collection.
    RootList, "root_list", reads, |_| 60_000, {} -> Vec<Root>;

    /// Adds a certificate with a friendly name to the store's own part (`.Default`): `CERT_STORE_ADD_NEW`, then
    /// `CERT_STORE_CTRL_COMMIT`. The length of the DER must be exact.
    ///
    /// Refuses with 0x80092005 (it is there already), 0x8009310B (no certificate), 5.
    RootAdd, "root_add", changes, |_| QUICK_MS, {
        /// The certificate, DER.
        der: Bytes,
        /// Its friendly name.
        name: String,
    } -> ();

    /// Deletes a certificate from the store's own part (`.Default`), then `CERT_STORE_CTRL_COMMIT`.
    ///
    /// Refuses with 0x80092004 (not there), 5.
    RootRemove, "root_remove", changes, |_| QUICK_MS, {
        /// SHA-256 of its DER.
        sha256: String,
    } -> ();
}

/// Contents of a registry key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryNames {
    pub keys: Vec<String>,
    pub values: Vec<String>,
}

/// What Windows this is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// Major version, minor version, build: 10, 0, 20348.
    pub version: [u32; 3],
    /// `wProductType`: 1 workstation, 2 domain controller, 3 server.
    pub product_type: u8,
    /// `PROCESSOR_ARCHITECTURE_*`: 9 is x86-64, 12 ARM64.
    pub architecture: u16,
    /// `ComputerNamePhysicalDnsHostname` of this boot.
    pub dns_host_name: String,
    /// Whether this process is an administrator's.
    pub administrator: bool,
}

/// Values of the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Milliseconds since 1970 UTC; can jump.
    pub now_ms: i64,
    /// Milliseconds since the boot; only grows.
    pub tick_ms: u64,
}

/// Ports that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    /// The first.
    pub start: u16,
    /// Number of ports.
    pub count: u16,
}

/// Identity of this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// `KUSER_SHARED_DATA.BootId`; 0 is none.
    pub kuser_boot_id: u32,
    /// `BootTime - BootTimeBias`, milliseconds since 1970 UTC: constant during one boot, also if the clock is set.
    pub steady_ms: i64,
    /// `BootTime`, milliseconds since 1970 UTC.
    pub booted_ms: i64,
}

/// Whether the host belongs to a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// `NETSETUP_JOIN_STATUS`: 0 unknown, 1 none, 2 a workgroup, 3 a domain.
    pub status: u32,
    /// Name of the workgroup or domain.
    pub name: String,
}

/// `DismPackageFeatureState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DismState {
    NotPresent,
    /// 1: removed with the next boot.
    UninstallPending,
    /// 2: off, its files are there.
    Staged,
    /// 3: off, its files are not there.
    Removed,
    Installed,
    /// 5: comes with the next boot.
    InstallPending,
    Superseded,
    PartiallyInstalled,
}

/// One trusted root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// SHA-256 of its DER, 64 lower-case hex digits.
    pub sha256: String,
    /// Its friendly name; empty without one.
    pub name: String,
    /// Whether it lies in the store's own part (`.Default`), not one of policy, enterprise or Windows Update.
    pub own: bool,
}
