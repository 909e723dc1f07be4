//! State of a host: the part that survives a reboot, and the rest.

use std::collections::{BTreeMap, BTreeSet};

use dormer_host::ops::PortRange;
use dormer_profile::answer::FeatureState;
use tokio::time::Instant;

use super::disk::Disk;
use super::scm::Scm;

/// A network of the host network service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HnsNetwork {
    pub subnet: String,
    /// The host's address in it.
    pub management_ip: String,
}

/// The host network service.
#[derive(Debug, Default)]
pub struct Hns {
    /// Networks by name; they persist over a reboot.
    pub networks: BTreeMap<String, HnsNetwork>,
    /// Addresses of endpoints by name; lost on a reboot and when the service restarts.
    pub endpoints: BTreeMap<String, String>,
    /// Process id of the service.
    pub pid: u32,
    /// Types of networks that were made on request, by name.
    pub kinds: BTreeMap<String, String>,
    /// Networks of endpoints, by the endpoint's name.
    pub homes: BTreeMap<String, String>,
    /// Endpoints that are made and not attached yet.
    pub unattached: BTreeSet<String>,
}

/// Everything that a host remembers.
#[derive(Default)]
pub struct HostState {
    /// The volume `C:`.
    pub disk: Disk,
    /// Services.
    pub scm: Scm,
    /// Windows features by name.
    pub features: BTreeMap<String, FeatureState>,
    /// Computer name now.
    pub hostname: String,
    /// Whether that name is wrong; its kubelet reports it as well.
    pub claims_name: bool,
    /// Whether the shell's profile writes nothing any more.
    pub profile_quiet: bool,
    /// Computer name after the next reboot.
    pub hostname_pending: Option<String>,
    /// Machine-wide environment.
    pub environment: BTreeMap<String, String>,
    /// Host network service.
    pub hns: Hns,
    /// Routes beside the default one.
    pub routes: BTreeSet<String>,
    /// Inbound firewall rules: protocol and port by name.
    pub firewall: BTreeMap<String, (dormer_profile::item::Protocol, u16)>,
    /// Processes that Defender leaves alone.
    pub exclusions: BTreeSet<String>,
    /// Files that Defender does not scan.
    pub excluded_paths: BTreeSet<String>,
    /// Values of the registry by key and name, both in lower case: those that nothing else of this state stands for.
    pub registry: BTreeMap<String, BTreeMap<String, dormer_host::ops::Value>>,
    /// First port and number of TCP's dynamic ports, where they were set.
    pub set_dynamic_ports: Option<(u16, u16)>,
    /// SHA-256 of certificates in `LocalMachine\Root`.
    pub certificates: BTreeSet<String>,
    /// Digests of containerd's images by name. Its store outlives its process.
    pub images: BTreeMap<String, String>,
    /// Whether a firewall blocks all connections except those to the worker, the API server and mirrors.
    pub egress_closed: bool,
    /// Leftover processes by name, such as `containerd-shim-runhcs-v1`; lost on a reboot.
    pub lingering: BTreeSet<String>,
    /// How far the host's clock is ahead of the world's, in milliseconds.
    pub clock_offset_ms: i64,
    /// Windows' boot counter.
    pub boot_id: u64,
    /// The host's clock at its last boot, milliseconds since 1970.
    pub booted_ms: i64,
    /// Boots that were finished.
    pub boots: u32,
    /// The host's lock: to which process it belongs, by process id. Lost on a reboot.
    pub mutex: Option<u32>,
    /// Whether a reboot was requested already.
    pub shutting_down: bool,
    /// Section and item of the present call.
    pub doing: Option<String>,
    /// Files that applied documents required: path and SHA-256.
    pub asked_for: BTreeMap<String, String>,
    /// Running commands: process id and what it runs. Lost on a reboot.
    pub processes: BTreeMap<u32, String>,
    /// Kind of public keys that sshd refuses, as `PubkeyAcceptedAlgorithms` in its sshd_config makes it.
    pub refused_keys: Option<&'static str>,
    /// Whether a kubelet ever ran here.
    pub had_kubelet: bool,
    /// Files that a process holds open until then (the exe of a service that stopped just now).
    pub held: BTreeMap<String, Instant>,
    /// Files that another process holds open without sharing, by path in lower case: until when.
    pub locked: BTreeMap<String, Instant>,
    /// Reads of the health of a kubelet that does not serve.
    pub(super) unhealthy_reads: u32,
    /// The last process id that was given out, less 4,000.
    pub(super) next_pid: u32,
}

impl HostState {
    /// An unused process id.
    pub fn new_pid(&mut self) -> u32 {
        self.next_pid += 4;
        4_000 + self.next_pid
    }

    /// Tells the disk which files are in use by processes.
    pub fn refresh_running(&mut self, now: Instant) {
        self.held.retain(|_, until| *until > now);
        let mut running: BTreeSet<String> = self.scm.running_files().collect();
        running.extend(self.held.keys().cloned());
        self.disk.set_running(running);
    }

    /// TCP's dynamic ports (Microsoft, KB 929851: 16,384 from 49,152 on).
    pub fn dynamic_ports(&self) -> PortRange {
        let (start, count) = self.set_dynamic_ports.unwrap_or((49_152, 16_384));
        PortRange { start, count }
    }

    /// Whether Windows waits for a reboot.
    pub fn reboot_pending(&self) -> bool {
        self.hostname_pending.is_some()
            || self
                .features
                .values()
                .any(|state| *state == FeatureState::Pending)
    }

    /// Effect of a power loss: disk and registry stay, processes end.
    pub fn lose_volatile(&mut self) {
        self.disk.close_all();
        self.scm.lose_processes();
        self.hns.endpoints.clear();
        self.lingering.clear();
        self.processes.clear();
        self.held.clear();
        self.locked.clear();
        self.mutex = None;
        self.doing = None;
        self.shutting_down = false;
        self.refresh_running(Instant::now());
    }

    /// Effect of a boot: pending changes take effect, the boot counter grows.
    pub fn boot(&mut self, now_ms: i64) {
        for state in self.features.values_mut() {
            if *state == FeatureState::Pending {
                *state = FeatureState::Enabled;
            }
        }
        if let Some(name) = self.hostname_pending.take() {
            self.hostname = name;
        }
        self.boot_id += 1;
        self.booted_ms = now_ms;
        self.hns.pid = self.new_pid();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reboot_makes_pending_changes_real_and_loses_processes() {
        let mut state = HostState {
            hostname: "WIN-ABC".into(),
            ..HostState::default()
        };
        state
            .features
            .insert("Containers".into(), FeatureState::Pending);
        state.hostname_pending = Some("win-1".into());
        state.hns.networks.insert(
            "overlay".into(),
            HnsNetwork {
                subnet: "10.132.0.0/24".into(),
                management_ip: "10.0.0.4".into(),
            },
        );
        state
            .hns
            .endpoints
            .insert("VIPEndpoint".into(), "10.132.0.2".into());
        state.mutex = Some(4);
        assert!(state.reboot_pending());
        let boot = state.boot_id;
        let pid = state.hns.pid;
        state.lose_volatile();
        state.boot(1_000);
        assert_eq!(
            state.features.get("Containers"),
            Some(&FeatureState::Enabled)
        );
        assert_eq!((state.hostname.as_str(), state.mutex), ("win-1", None));
        assert_eq!(
            (state.hns.networks.len(), state.hns.endpoints.len()),
            (1, 0)
        );
        assert!(!state.reboot_pending() && state.boot_id == boot + 1 && state.hns.pid != pid);
    }
}
