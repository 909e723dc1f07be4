//! Starting and stopping services of a host, and what their processes then do (docs/field-notes.md, Services and
//! features).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::computer::Host;
use super::path::WinPath;
use super::scm::{ScmError, ServiceState, executables, flag};
use crate::faults::Fault;

/// How long the service control manager waits for a process to report (1053 after that).
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a stopped process still holds its file, in milliseconds.
const HELD_MS: (u64, u64) = (500, 3_000);

/// Kind of a service's process, derived from its command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Containerd,
    Kubelet,
    HybridOverlay,
    /// The service that puts back what a boot takes.
    Boot,
    Other,
}

impl Role {
    pub(super) fn of(command: &str) -> Self {
        if super::program::parse(command).is_some() {
            return Self::Boot;
        }
        let names: Vec<String> = executables(command)
            .iter()
            .map(|path| path.name().to_lowercase())
            .collect();
        match names.last().map(String::as_str) {
            Some("containerd.exe") => Self::Containerd,
            Some("kubelet.exe") => Self::Kubelet,
            Some("hybrid-overlay-node.exe") => Self::HybridOverlay,
            _ => Self::Other,
        }
    }
}

impl Host {
    /// Starts what Windows starts at boot.
    pub(super) async fn start_boot_services(&self) {
        let order = self.state().scm.boot_order();
        for name in order {
            if let Err(error) = Box::pin(self.start_service(&name)).await {
                tracing::debug!(machine = self.name(), service = name, %error, "no start at boot");
            }
        }
    }

    /// Starts a service and those that it depends on; returns once it is RUNNING, which does not mean healthy.
    ///
    /// # Errors
    /// As `sc.exe start` and the state after it would tell.
    pub async fn start_service(&self, name: &str) -> Result<(), ScmError> {
        // Who else starts it is waited for (1056): there is one process of a service.
        while self
            .state()
            .scm
            .get(name)
            .is_some_and(|e| e.state == ServiceState::StartPending)
        {
            self.sleep(Duration::from_millis(250)).await;
        }
        let (command, depends) = {
            let state = self.state();
            let entry = state.scm.get(name).ok_or(ScmError::Missing)?;
            if entry.state == ServiceState::Running {
                return Err(ScmError::AlreadyRunning);
            }
            // A deletion disables it first (MS-SCMR, RDeleteService).
            if entry.marked || entry.config.start == dormer_profile::item::StartType::Disabled {
                return Err(ScmError::Disabled);
            }
            (entry.config.command.clone(), entry.config.depends.clone())
        };
        for needed in depends {
            match Box::pin(self.start_service(&needed)).await {
                Ok(()) | Err(ScmError::AlreadyRunning) => {}
                Err(ScmError::Missing) => return Err(ScmError::DependencyMissing),
                Err(_) => return Err(ScmError::DependencyFailed),
            }
        }
        self.check_files(&command)?;
        self.set_state(name, ServiceState::StartPending);
        let started = self.start_process(name, &command).await;
        if let Err(error) = started {
            self.set_state(name, ServiceState::Stopped);
            let mut state = self.state();
            if let Some(entry) = state.scm.get_mut(name) {
                entry.exit = error.code();
            }
            state.scm.sweep();
        }
        started
    }

    fn check_files(&self, command: &str) -> Result<(), ScmError> {
        let state = self.state();
        let there = |path: &WinPath| state.disk.exists(path);
        let ours = executables(command);
        let windows = |path: &WinPath| path.key().starts_with(r"c:\windows\");
        let missing = ours.iter().find(|path| !windows(path) && !there(path));
        let above = |path: &WinPath| path.parent().is_none_or(|above| state.disk.exists(&above));
        match missing {
            None if !ours.is_empty() => Ok(()),
            Some(path) if !above(path) => Err(ScmError::FolderNotFound),
            _ => Err(ScmError::FileNotFound),
        }
    }

    async fn start_process(&self, name: &str, command: &str) -> Result<(), ScmError> {
        let role = Role::of(command);
        if role == Role::Kubelet && self.strike(Fault::KubeletStart1053) {
            self.sleep(START_LIMIT).await;
            return Err(ScmError::Timeout);
        }
        self.pause(800, 2_500).await;
        if !self.may_live(role, command) {
            return Err(ScmError::ProcessDied);
        }
        let sick = role == Role::Kubelet && self.strike(Fault::RunningNotHealthy);
        let life = self.power_token().child_token();
        {
            let mut state = self.state();
            let pid = state.new_pid();
            let entry = state.scm.get_mut(name).ok_or(ScmError::Missing)?;
            entry.state = ServiceState::Running;
            entry.pid = Some(pid);
            entry.life = life.clone();
            entry.starts += 1;
            entry.exit = 0;
            entry.healthy = !sick;
            state.refresh_running(Instant::now());
        }
        if !sick {
            self.begin_role(name, role, command.to_owned(), life);
        }
        Ok(())
    }

    /// Whether the process of a service survives its first second: its configuration must be readable.
    fn may_live(&self, role: Role, command: &str) -> bool {
        let state = self.state();
        let clean = |name: &str| match flag(command, name) {
            None => true,
            Some(path) => match state.disk.read_text_path(&path) {
                Ok(body) => {
                    !body.head.starts_with(&[0xef, 0xbb, 0xbf])
                        && !body.head.starts_with(&[0xff, 0xfe])
                }
                Err(_) => false,
            },
        };
        match role {
            Role::Containerd | Role::Kubelet => clean("config"),
            Role::HybridOverlay | Role::Boot | Role::Other => true,
        }
    }

    fn begin_role(&self, name: &str, role: Role, command: String, life: CancellationToken) {
        let Some(host) = self.me.upgrade() else {
            return;
        };
        let name = name.to_owned();
        let work = async move {
            match role {
                Role::Boot => {
                    let boot = Arc::clone(&host).run_boot_service(&command);
                    Box::pin(boot).await;
                    // The work is done, and it stops by itself.
                    host.stop_one(&name).await;
                }
                Role::Kubelet => host.run_kubelet(command).await,
                Role::HybridOverlay => host.run_hybrid_overlay().await,
                Role::Containerd | Role::Other => {}
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = life.cancelled() => {}
                () = work => {}
            }
        });
    }

    fn set_state(&self, name: &str, to: ServiceState) {
        if let Some(entry) = self.state().scm.get_mut(name) {
            entry.state = to;
        }
    }

    /// Stops a service, its running dependents first; its file stays in use for some seconds.
    ///
    /// # Errors
    /// [`ScmError::Missing`], [`ScmError::NotActive`].
    pub async fn stop_service(&self, name: &str) -> Result<(), ScmError> {
        let dependents = {
            let state = self.state();
            let entry = state.scm.get(name).ok_or(ScmError::Missing)?;
            if entry.state != ServiceState::Running {
                return Err(ScmError::NotActive);
            }
            state.scm.dependents(name)
        };
        for dependent in dependents {
            self.stop_one(&dependent).await;
        }
        self.stop_one(name).await;
        Ok(())
    }

    pub(super) async fn stop_one(&self, name: &str) {
        self.set_state(name, ServiceState::StopPending);
        self.pause(500, 2_000).await;
        let until = Instant::now() + self.context.pace.real(self.between(HELD_MS.0, HELD_MS.1));
        let mut state = self.state();
        let Some(entry) = state.scm.get_mut(name) else {
            return;
        };
        entry.life.cancel();
        entry.state = ServiceState::Stopped;
        entry.pid = None;
        entry.healthy = false;
        entry.exit = 0;
        let files: Vec<String> = executables(&entry.config.command)
            .iter()
            .map(|p| p.key().to_owned())
            .collect();
        state
            .held
            .extend(files.into_iter().map(|file| (file, until)));
        state.scm.sweep();
        state.refresh_running(Instant::now());
    }

    /// Whether a service answers on its health address.
    pub(super) fn healthy(&self, url: &str) -> bool {
        let state = self.state();
        let wanted = if url.contains(":10248") {
            Some(Role::Kubelet)
        } else {
            None
        };
        let serves = |entry: &super::scm::Entry| match wanted {
            Some(role) => Role::of(&entry.config.command) == role && entry.healthy,
            None => entry.healthy,
        };
        state.scm.iter().any(serves)
    }

    /// The hybrid overlay: makes its HNS networks once the Node has a subnet; that cuts SSH for a while.
    async fn run_hybrid_overlay(&self) {
        let subnet = self.hybrid_overlay_subnet().await;
        const NETWORKS: [&str; 2] = [
            "BaseOVNKubernetesHybridOverlayNetwork",
            "OVNKubernetesHybridOverlayNetwork",
        ];
        let missing: Vec<&str> = {
            let state = self.state();
            NETWORKS
                .into_iter()
                .filter(|name| !state.hns.networks.contains_key(*name))
                .collect()
        };
        if !missing.is_empty() {
            self.make_hns_networks(&missing, &subnet).await;
        }
    }

    /// Makes HNS networks: the NIC is bound anew, so connections die and the host is deaf for some seconds.
    pub(super) async fn make_hns_networks(&self, names: &[&str], subnet: &str) {
        let deaf = if self.strike(Fault::HnsKillsSsh) {
            Duration::from_secs(45)
        } else {
            self.between(5_000, 9_000)
        };
        self.pause(1_000, 3_000).await;
        let management_ip = self.internal_ip();
        let network = super::state::HnsNetwork {
            subnet: subnet.to_owned(),
            management_ip,
        };
        for name in names {
            self.state()
                .hns
                .networks
                .insert((*name).to_owned(), network.clone());
            self.effect(&format!("network {name}"));
            self.at(&format!("network {name} made")).await;
        }
        if self.strike(Fault::RouteLost) {
            self.state().routes.clear();
        }
        self.cut_connections();
        let before = self
            .phase
            .send_replace(super::computer::HostPhase::Dropping);
        self.sleep(deaf).await;
        self.phase
            .send_replace(before.max(super::computer::HostPhase::AuthFailing));
    }
}
