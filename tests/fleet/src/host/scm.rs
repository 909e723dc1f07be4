//! The service control manager's table: what services there are and in which state (docs/field-notes.md, Services and
//! features).

use std::collections::BTreeMap;

use dormer_profile::item::{Service, StartType};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::path::WinPath;

/// State of a service as the service control manager says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// Not running.
    Stopped,
    /// Asked to start.
    StartPending,
    /// Running, which does not mean healthy.
    Running,
    /// Asked to stop.
    StopPending,
}

/// Win32 error numbers of service calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScmError {
    /// The file of the command is not there.
    #[error("[SC] StartService FAILED 2: The system cannot find the file specified.")]
    FileNotFound,
    /// The folder of the command is not there.
    #[error("[SC] StartService FAILED 3: The system cannot find the path specified.")]
    FolderNotFound,
    /// Others that run depend on it.
    #[error(
        "[SC] ControlService FAILED 1051: A stop control has been sent to a service that other running services are dependent on."
    )]
    DependentsRunning,
    /// No answer within 30 s.
    #[error(
        "[SC] StartService FAILED 1053: The service did not respond to the start or control request in a timely fashion."
    )]
    Timeout,
    /// It runs already.
    #[error("[SC] StartService FAILED 1056: An instance of the service is already running.")]
    AlreadyRunning,
    /// Its start type is disabled.
    #[error("[SC] StartService FAILED 1058: The service cannot be started.")]
    Disabled,
    /// There is none of this name.
    #[error(
        "[SC] OpenService FAILED 1060: The specified service does not exist as an installed service."
    )]
    Missing,
    /// It does not run.
    #[error("[SC] ControlService FAILED 1062: The service has not been started.")]
    NotActive,
    /// Its process ended right away.
    #[error("[SC] StartService FAILED 1067: The process terminated unexpectedly.")]
    ProcessDied,
    /// A service that it depends on did not start.
    #[error("[SC] StartService FAILED 1068: The dependency service or group failed to start.")]
    DependencyFailed,
    /// A service that it depends on is not there.
    #[error(
        "[SC] StartService FAILED 1075: The dependency service does not exist or has been marked for deletion."
    )]
    DependencyMissing,
    /// It was deleted and another process holds it open.
    #[error("[SC] CreateService FAILED 1072: The specified service has been marked for deletion.")]
    MarkedForDeletion,
    /// There is one of this name.
    #[error("[SC] CreateService FAILED 1073: The specified service already exists.")]
    Exists,
}

impl ScmError {
    /// The Win32 error number, which is `sc.exe`'s exit code.
    pub fn code(self) -> u32 {
        match self {
            Self::FileNotFound => 2,
            Self::FolderNotFound => 3,
            Self::DependentsRunning => 1051,
            Self::Timeout => 1053,
            Self::AlreadyRunning => 1056,
            Self::Disabled => 1058,
            Self::Missing => 1060,
            Self::NotActive => 1062,
            Self::ProcessDied => 1067,
            Self::DependencyFailed => 1068,
            Self::MarkedForDeletion => 1072,
            Self::Exists => 1073,
            Self::DependencyMissing => 1075,
        }
    }
}

/// One service.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its configuration.
    pub config: Service,
    pub state: ServiceState,
    /// Its process while it has one. A stopped service may have one for some seconds more.
    pub pid: Option<u32>,
    /// Ends when the process ends.
    pub life: CancellationToken,
    /// How often it was started since it was made.
    pub starts: u32,
    /// Whether its process serves what it is there for.
    pub healthy: bool,
    /// `dwErrorControl`.
    pub error_control: u32,
    /// `dwWin32ExitCode`; 1077: it was never started in this boot.
    pub exit: u32,
    /// Whether it goes when it stops, because it was deleted.
    pub marked: bool,
}

/// `ERROR_SERVICE_NEVER_STARTED`.
const NEVER_STARTED: u32 = 1077;

/// The table.
#[derive(Debug, Default)]
pub struct Scm {
    services: BTreeMap<String, Entry>,
    marked: BTreeMap<String, Instant>,
}

impl Scm {
    /// The service of this name; names are compared without regard to case.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.services.get(&name.to_lowercase())
    }

    /// [`Scm::get`], to change it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Entry> {
        self.services.get_mut(&name.to_lowercase())
    }

    /// All services.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.services.values()
    }

    /// Whether the service runs.
    pub fn running(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|entry| entry.state == ServiceState::Running)
    }

    /// Makes a service.
    ///
    /// # Errors
    /// [`ScmError::Exists`], [`ScmError::MarkedForDeletion`].
    pub fn create(&mut self, config: Service, now: Instant) -> Result<(), ScmError> {
        let key = config.name.to_lowercase();
        if self.marked.get(&key).is_some_and(|until| *until > now) {
            return Err(ScmError::MarkedForDeletion);
        }
        match self.services.get(&key) {
            Some(entry) if entry.marked => return Err(ScmError::MarkedForDeletion),
            Some(_) => return Err(ScmError::Exists),
            None => {}
        }
        let entry = Entry {
            config,
            state: ServiceState::Stopped,
            pid: None,
            life: CancellationToken::new(),
            starts: 0,
            healthy: false,
            error_control: 1,
            exit: NEVER_STARTED,
            marked: false,
        };
        self.services.insert(key, entry);
        Ok(())
    }

    /// Deletes a service that is stopped; one that runs is marked, and goes when it stops ([`Scm::sweep`]).
    pub fn delete(&mut self, name: &str) -> Result<(), ScmError> {
        let entry = self.get_mut(name).ok_or(ScmError::Missing)?;
        if entry.marked {
            return Err(ScmError::MarkedForDeletion);
        }
        entry.marked = true;
        self.sweep();
        Ok(())
    }

    /// Takes away marked services that have stopped.
    pub fn sweep(&mut self) {
        self.services
            .retain(|_, it| !it.marked || it.state != ServiceState::Stopped);
    }

    /// Whether another service than `name` is shown under this display name.
    pub fn is_shown(&self, display: &str, name: &str) -> bool {
        self.iter().any(|entry| {
            !entry.config.name.eq_ignore_ascii_case(name)
                && entry.config.display.eq_ignore_ascii_case(display)
        })
    }

    /// Makes creating this service fail with 1072 until `until`.
    pub fn mark_for_deletion(&mut self, name: &str, until: Instant) {
        self.marked.insert(name.to_lowercase(), until);
    }

    /// Names of running services that need this one, directly or not, each before what it needs.
    pub fn dependents(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        self.collect_dependents(name, &mut found);
        found
    }

    fn collect_dependents(&self, name: &str, found: &mut Vec<String>) {
        for entry in self.services.values() {
            let needs = entry
                .config
                .depends
                .iter()
                .any(|d| d.eq_ignore_ascii_case(name));
            let up = matches!(
                entry.state,
                ServiceState::Running | ServiceState::StartPending
            );
            if needs && up && !found.contains(&entry.config.name) {
                self.collect_dependents(&entry.config.name, found);
                if !found.contains(&entry.config.name) {
                    found.push(entry.config.name.clone());
                }
            }
        }
    }

    /// Services that Windows starts at boot, those that others need first.
    pub fn boot_order(&self) -> Vec<String> {
        let mut order = Vec::new();
        let auto = |entry: &&Entry| entry.config.start == StartType::Auto;
        for entry in self.services.values().filter(auto) {
            self.collect_boot(&entry.config.name, &mut order);
        }
        order
    }

    fn collect_boot(&self, name: &str, order: &mut Vec<String>) {
        if order
            .iter()
            .any(|known: &String| known.eq_ignore_ascii_case(name))
            || order.len() > 256
        {
            return;
        }
        let Some(entry) = self.get(name) else { return };
        for needed in &entry.config.depends {
            self.collect_boot(needed, order);
        }
        if !order.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            order.push(entry.config.name.clone());
        }
    }

    /// What a power loss leaves: configurations, no processes.
    pub fn lose_processes(&mut self) {
        for entry in self.services.values_mut() {
            entry.life.cancel();
            entry.life = CancellationToken::new();
            entry.state = ServiceState::Stopped;
            entry.pid = None;
            entry.healthy = false;
            entry.exit = NEVER_STARTED;
        }
        self.sweep();
        self.marked.clear();
    }

    /// Files that processes of services were started from, as disk keys.
    pub fn running_files(&self) -> impl Iterator<Item = String> {
        let alive = self.services.values().filter(|entry| entry.pid.is_some());
        alive
            .flat_map(|entry| executables(&entry.config.command))
            .map(|path| path.key().to_owned())
    }
}

/// Executables that a command line starts: its first word, and for a log runner the program that it runs.
pub fn executables(command: &str) -> Vec<WinPath> {
    let words = split_command(command);
    let mut found = Vec::new();
    for word in words.iter().filter(|w| w.to_lowercase().ends_with(".exe")) {
        if let Ok(path) = WinPath::absolute(word) {
            let runner = path.name().eq_ignore_ascii_case("kube-log-runner.exe");
            found.push(path);
            if !runner {
                break;
            }
        }
    }
    found
}

/// Words of a command line; double quotes keep blanks together.
pub fn split_command(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in command.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words.retain(|w| !w.is_empty());
    words
}

/// The value of `--name=value` or `--name value` on a command line, with one or two dashes.
pub fn flag(command: &str, name: &str) -> Option<String> {
    let words = split_command(command);
    let is_flag = |word: &str| word.trim_start_matches('-') == name && word.starts_with('-');
    words
        .iter()
        .enumerate()
        .find_map(|(at, word)| match word.split_once('=') {
            Some((left, value)) if is_flag(left) => Some(value.to_owned()),
            _ if is_flag(word) => words.get(at + 1).cloned(),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_profile::item::FailureActions;

    fn service(name: &str, depends: &[&str]) -> Service {
        Service {
            name: name.into(),
            display: name.into(),
            description: String::new(),
            command: format!(r"C:\k\{name}.exe"),
            depends: depends.iter().map(|d| (*d).into()).collect(),
            start: StartType::Auto,
            failure: FailureActions {
                reset_seconds: 300,
                restart_delays_ms: Vec::new(),
            },
            environment: BTreeMap::new(),
            priority: None,
            running: true,
            start_timeout_ms: 30_000,
            log: None,
        }
    }

    #[test]
    fn dependents_stop_before_what_they_need_and_start_after_it() {
        let mut scm = Scm::default();
        let now = Instant::now();
        for (name, depends) in [
            ("kube-proxy", &["overlay"][..]),
            ("overlay", &["kubelet"]),
            ("kubelet", &["containerd"]),
            ("containerd", &[]),
        ] {
            assert_eq!(scm.create(service(name, depends), now), Ok(()));
            if let Some(entry) = scm.get_mut(name) {
                entry.state = ServiceState::Running;
            }
        }
        assert_eq!(
            scm.dependents("Containerd"),
            ["kube-proxy", "overlay", "kubelet"]
        );
        assert_eq!(
            scm.boot_order(),
            ["containerd", "kubelet", "overlay", "kube-proxy"]
        );
        assert_eq!(
            scm.create(service("Kubelet", &[]), now),
            Err(ScmError::Exists)
        );
    }

    #[test]
    fn a_log_runner_counts_with_the_program_it_runs() {
        let command = r#""C:\k\kube-log-runner.exe" -log-file=C:\var\x.log C:\k\kubelet.exe --config=C:\k\kubelet.conf --node-ip 10.0.0.4"#;
        let names: Vec<String> = executables(command)
            .iter()
            .map(|p| p.name().to_owned())
            .collect();
        assert_eq!(names, ["kube-log-runner.exe", "kubelet.exe"]);
        assert_eq!(
            flag(command, "config").as_deref(),
            Some(r"C:\k\kubelet.conf")
        );
        assert_eq!(flag(command, "node-ip").as_deref(), Some("10.0.0.4"));
        assert_eq!(flag(command, "kubeconfig"), None);
    }
}
