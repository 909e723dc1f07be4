//! Facts that the script reads about a host.

use dormer_profile::answer::{Address, Facts, FeatureState, Installed, Reboot};
use dormer_profile::document::{BIN, DOCUMENTS, HOST_ROOT, INSTALLED_FILE, STAGING, Section};

use crate::host::computer::Host;
use crate::host::path::WinPath;
use crate::host::shell::Shell;

impl Host {
    pub(super) fn make_our_folders(&self) {
        let mut state = self.state();
        for folder in [HOST_ROOT, STAGING, BIN, DOCUMENTS] {
            state.disk.make_folders(folder);
        }
    }

    /// What is so about the host, as the script says it.
    pub fn facts(&self) -> Facts {
        let fence = self.fence();
        let now_ms = self.now_ms();
        let node_ip = self.internal_ip();
        let state = self.state();
        Facts {
            os_build: self.image.release.build().into(),
            product: self.image.release.product().into(),
            hostname: state.hostname.clone(),
            hostname_pending: state.hostname_pending.clone(),
            fqdn: self.internal_dns(),
            boot_id: state.boot_id.to_string(),
            booted_ms: state.booted_ms,
            now_ms,
            shell: if self.image.shell == Shell::Pwsh {
                "7.4.6"
            } else {
                "5.1.20348.2849"
            }
            .into(),
            code_page: self.image.code_page,
            default_shell: self.image.shell.registry_value().map(str::to_owned),
            installed: installed(&state),
            fence,
            containers: state
                .features
                .get("Containers")
                .copied()
                .unwrap_or(FeatureState::Unknown),
            reboot_pending: state.reboot_pending(),
            addresses: vec![Address {
                interface: 6,
                ipv4: node_ip.clone(),
                default_route: true,
            }],
            node_ip: Some(node_ip),
            free_bytes: state.disk.free(),
            defender: self.image.defender,
            scripts: scripts(&state),
            last: state.last_call.clone(),
            hns_pid: state.hns.pid,
        }
    }

    pub(in crate::host) fn internal_dns(&self) -> Option<String> {
        let addresses = self.instance().addresses;
        addresses
            .into_iter()
            .find(|(kind, _)| kind == "InternalDNS")
            .map(|(_, name)| name)
    }

    pub(super) fn reboot_state(&self) -> Reboot {
        let state = self.state();
        if state.shutting_down {
            return Reboot::Pending;
        }
        let pending = state
            .features
            .iter()
            .filter(|(_, s)| **s == FeatureState::Pending);
        let mut why: Vec<String> = pending.map(|(name, _)| format!("feature:{name}")).collect();
        why.extend(
            state
                .hostname_pending
                .iter()
                .map(|name| format!("hostname:{name}")),
        );
        if why.is_empty() {
            Reboot::None
        } else {
            Reboot::Needed { why }
        }
    }

    pub(super) fn note_installed(&self, section: Section, version: &str, task: &str) {
        let mut state = self.state();
        let mut all = installed(&state);
        all.retain(|one| one.section != section);
        all.push(Installed {
            section,
            version: version.to_owned(),
            task: task.to_owned(),
        });
        let json = serde_json::to_vec(&all).unwrap_or_default();
        let _ = state.disk.put(INSTALLED_FILE, &json);
    }

    pub(super) fn forget_installed(&self, section: Section) {
        let mut state = self.state();
        let mut all = installed(&state);
        all.retain(|one| one.section != section);
        let json = serde_json::to_vec(&all).unwrap_or_default();
        let _ = state.disk.put(INSTALLED_FILE, &json);
    }
}

fn installed(state: &crate::host::state::State) -> Vec<Installed> {
    let body = state.disk.read_text_path(INSTALLED_FILE).ok();
    let json = body.and_then(|body| body.bytes().cloned());
    json.and_then(|json| serde_json::from_slice(&json).ok())
        .unwrap_or_default()
}

/// Hashes of the scripts in our folder.
fn scripts(state: &crate::host::state::State) -> Vec<String> {
    let Ok(folder) = WinPath::absolute(BIN) else {
        return Vec::new();
    };
    let names = state
        .disk
        .list(&folder)
        .into_iter()
        .map(|(name, _)| format!("{BIN}\\{name}"));
    names
        .filter(|path| path.ends_with(".ps1"))
        .filter_map(|path| Some(state.disk.read_text_path(&path).ok()?.sha256.clone()))
        .collect()
}
