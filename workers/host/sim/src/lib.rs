//! Simulated Windows host behind the host interface: a disk, a registry, services, processes and networks with the
//! answers of Windows, each behaviour with its source. It serves tests of the core and the simulated fleet. Time is the
//! host's own: a pause passes at once. A host can be cloned, so that a test can cut a run after each of its operations
//! without a new run from the start.

mod cut;
mod disk;
mod network;
mod perform;
mod services;
mod snapshots;

use std::collections::{BTreeMap, VecDeque};

use dormer_host::ops::{
    DismState, Exclusions, FirewallPolicy, FirewallRule, HnsCall, Interface, PortRange, Root,
    Route, Security, ServiceConfig, ServiceSettings, ServiceState, Start, Value, WinError,
};

pub use cut::{Cut, When, until_cut};
pub use services::Behaviour;
pub use snapshots::{Snapshot, Snapshots};

use disk::Disk;
use network::Network;
use services::Scm;

/// Names of the requested operations, in order.
pub type Log = Vec<&'static str>;

/// A simulated Windows Server 2022.
#[derive(Debug, Clone)]
pub struct SimulatedHost {
    disk: Disk,
    registry: BTreeMap<String, BTreeMap<String, (String, Value)>>,
    scm: Scm,
    network: Network,
    features: BTreeMap<String, DismState>,
    /// Answers to the next attempts to enable a feature, before the normal one.
    feature_answers: VecDeque<Result<u32, WinError>>,
    roots: Vec<Root>,
    domain: Option<String>,
    locks: Vec<String>,
    /// Locks of other processes, and until when by `tick_ms`; none: until the next boot.
    foreign_locks: Vec<(String, Option<u64>)>,
    /// Operations that answer as if they had an effect and have none: the name, and a part of what is asked.
    ignored: Vec<(&'static str, String)>,
    /// The build of Windows.
    build: u32,
    boot_id: u32,
    booted_ms: i64,
    now_ms: i64,
    tick_ms: u64,
    reboot_asked: bool,
    pages: BTreeMap<String, u16>,
    versions: BTreeMap<String, [u16; 4]>,
    /// Programs that were run, with their arguments.
    ran: Vec<String>,
    /// The dynamic ports of TCP; none: this Windows does not tell them.
    dynamic_ports: Option<PortRange>,
    refusals: Vec<(&'static str, u32, WinError)>,
    log: Log,
    /// What services make a while after they run: networks, by the service's name.
    makes_networks: BTreeMap<String, Vec<(String, String)>>,
    /// Digests of containerd's images by name. Its store outlives its process.
    images: BTreeMap<String, String>,
    /// From when on containerd's pipe is there.
    pipe_from_ms: u64,
}

const COMPUTER: &str = r"system\currentcontrolset\services\tcpip\parameters";

/// containerd v2.4.2, `defaults/defaults_windows.go`.
const CONTAINERD_PIPE: &str = r"\\.\pipe\containerd-containerd";

/// An archive with one image of this digest (64 digits): an OCI layout in a tar (image-spec v1.1, chapter Image Layout).
pub fn image_archive(digest: &str) -> Vec<u8> {
    let target = serde_json::json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": format!("sha256:{digest}"),
        "size": 2,
    });
    let index = serde_json::json!({ "manifests": [target] }).to_string();
    let blob = format!("blobs/sha256/{digest}");
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in [("oci-layout", "{}"), ("index.json", &index), (&blob, "{}")] {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        // A tar in memory takes everything.
        let _ = tar.append_data(&mut header, name, text.as_bytes());
    }
    tar.into_inner().unwrap_or_default()
}

impl Default for SimulatedHost {
    fn default() -> Self {
        Self::new()
    }
}

impl SimulatedHost {
    /// A host right after its installation: no features, no networks, named `WIN-FRESH`.
    pub fn new() -> Self {
        let mut host = Self {
            disk: Disk::new(),
            registry: BTreeMap::new(),
            scm: Scm::new(),
            network: Network::new(),
            features: BTreeMap::new(),
            feature_answers: VecDeque::new(),
            roots: Vec::new(),
            domain: None,
            locks: Vec::new(),
            foreign_locks: Vec::new(),
            ignored: Vec::new(),
            build: 20_348,
            boot_id: 7,
            booted_ms: 1_700_000_000_000,
            now_ms: 1_700_000_100_000,
            tick_ms: 100_000,
            reboot_asked: false,
            pages: BTreeMap::new(),
            versions: BTreeMap::new(),
            ran: Vec::new(),
            dynamic_ports: Some(PortRange {
                start: 49_152,
                count: 16_384,
            }),
            refusals: Vec::new(),
            log: Vec::new(),
            makes_networks: BTreeMap::new(),
            images: BTreeMap::new(),
            pipe_from_ms: 0,
        };
        let current = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion";
        host.set_registry(
            current,
            "ProductName",
            Value::Text("Windows Server 2022 Datacenter".into()),
        );
        host.set_registry(COMPUTER, "Hostname", Value::Text("WIN-FRESH".into()));
        host.set_registry(COMPUTER, "NV Hostname", Value::Text("WIN-FRESH".into()));
        host.disk.now_ms = host.now_ms;
        host.disk.tick_ms = host.tick_ms;
        host.scm.tick_ms = host.tick_ms;
        host.features.insert("containers".into(), DismState::Staged);
        host
    }

    /// A host whose feature Containers is on: HNS is there.
    pub fn with_containers() -> Self {
        let mut host = Self::new();
        host.enable_containers();
        host
    }

    fn enable_containers(&mut self) {
        self.features
            .insert("containers".into(), DismState::Installed);
        self.network.has_hns = true;
        self.disk.put(r"C:\Windows\System32\svchost.exe", b"MZ");
        let settings = ServiceSettings {
            command: Some(r"C:\Windows\System32\svchost.exe -k NetSvcs".into()),
            display: Some("Host Network Service".into()),
            // Manual start: the service runs when it is started (K2s#593).
            start: Some(Start::Demand),
            ..ServiceSettings::default()
        };
        let _ = self.scm.create("hns", &settings);
    }

    /// Lets time pass, with all that is due.
    pub fn pass(&mut self, ms: u64) {
        let until = self.tick_ms + ms;
        while self.tick_ms < until {
            let step = (until - self.tick_ms).min(50);
            self.tick_ms += step;
            self.now_ms += i64::try_from(step).unwrap_or_default();
            self.disk.tick_ms = self.tick_ms;
            self.disk.now_ms = self.now_ms;
            self.scm.advance(self.tick_ms);
            self.services_make_networks();
        }
        self.disk.running = self.scm.mapped_files();
    }

    fn services_make_networks(&mut self) {
        let hns_runs = self.service_state("hns") == Some(ServiceState::Running);
        let makers: Vec<String> = self.makes_networks.keys().cloned().collect();
        for maker in makers {
            if !hns_runs || self.service_state(&maker) != Some(ServiceState::Running) {
                continue;
            }
            for (name, subnet) in self.makes_networks[&maker].clone() {
                let _ = self.network.make_network(&name, "Overlay", &subnet, false);
            }
        }
    }

    /// Ends the process that used the interface: Windows closes its handles.
    pub fn process_ended(&mut self) {
        self.locks.clear();
        self.scm.forget_handles();
    }

    /// A boot, after a request or a power cut.
    pub fn reboot(&mut self) {
        self.process_ended();
        self.foreign_locks.clear();
        self.boot_id += 1;
        self.reboot_asked = false;
        self.disk.let_go();
        self.now_ms += 30_000;
        self.booted_ms = self.now_ms;
        self.tick_ms = 1_000;
        self.disk.tick_ms = self.tick_ms;
        self.scm.tick_ms = self.tick_ms;
        self.scm.boot();
        self.disk.running.clear();
        self.network.boot();
        let pending: Vec<String> = self
            .features
            .iter()
            .filter(|(_, state)| **state == DismState::InstallPending)
            .map(|(name, _)| name.clone())
            .collect();
        for name in pending {
            self.features.insert(name.clone(), DismState::Installed);
            if name == "containers" {
                self.enable_containers();
            }
        }
        if let Some((_, value)) = self
            .registry
            .get(COMPUTER)
            .and_then(|key| key.get("nv hostname"))
            .cloned()
        {
            self.set_registry(COMPUTER, "Hostname", value);
        }
        self.pass(1_000);
    }

    /// Whether a reboot was requested in this boot.
    pub const fn reboot_was_asked(&self) -> bool {
        self.reboot_asked
    }

    /// A shutdown begins: the service control manager answers 1115 to nearly everything.
    pub const fn begin_shutdown(&mut self) {
        self.scm.going_down = true;
    }

    // Files.

    /// Writes a file, as another process would.
    pub fn put(&mut self, path: &str, bytes: &[u8]) {
        self.disk.put(path, bytes);
    }

    /// A file's content.
    pub fn file(&self, path: &str) -> Option<Vec<u8>> {
        self.disk
            .all()
            .find(|(shown, folder, _)| !folder && shown.eq_ignore_ascii_case(path))
            .map(|(_, _, bytes)| bytes.to_vec())
    }

    /// Whether there is a folder at this path.
    pub fn has_folder(&self, path: &str) -> bool {
        self.disk.stat(path).is_ok_and(|look| look.folder)
    }

    /// Every path, folders with a `\` at their end, those below `under` alone.
    pub fn paths(&self, under: &str) -> Vec<String> {
        let under = under.to_lowercase();
        let all = self
            .disk
            .all()
            .filter(|(shown, _, _)| shown.to_lowercase().starts_with(&under));
        all.map(|(shown, folder, _)| {
            if folder {
                format!(r"{shown}\")
            } else {
                shown.to_owned()
            }
        })
        .collect()
    }

    /// A link: a junction (`folder`, 0xA0000003), a symbolic link, or a deduplicated file (0x80000013).
    pub fn link(&mut self, path: &str, folder: bool, tag: u32) {
        self.disk.link(path, folder, tag);
    }

    /// Another process opens a file for `ms` (`None`: for ever).
    pub fn hold(&mut self, path: &str, ms: Option<u64>, share_delete: bool) {
        let until = ms.map(|ms| self.tick_ms + ms);
        self.disk.hold(path, until, share_delete);
    }

    /// Rights of an object.
    pub fn security(&self, path: &str) -> Option<Security> {
        self.disk.security(path).ok()
    }

    /// Changes an object's rights, as another process would.
    pub fn set_security(&mut self, path: &str, security: Security) {
        self.disk.set_security(path, security);
    }

    /// Sets `FILE_ATTRIBUTE_*` of a file, as another process would.
    pub fn set_attributes(&mut self, path: &str, attributes: u32) {
        let _ = self.disk.set_attributes(path, attributes);
    }

    /// Time for which a scanner holds each new file.
    pub const fn scanner(&mut self, ms: u64) {
        self.disk.scanner_ms = ms;
    }

    /// A scanner takes away what gets a path that ends so.
    pub fn quarantine(&mut self, end: &str) {
        self.disk.quarantine.push(end.to_lowercase());
    }

    /// Free bytes on `C:`.
    pub const fn set_free(&mut self, bytes: u64) {
        self.disk.free = bytes;
    }

    /// The version in a program's resources.
    pub fn set_version(&mut self, path: &str, version: [u16; 4]) {
        self.versions.insert(path.to_lowercase(), version);
    }

    // containerd's images.

    /// Points a name to an image, as another client would.
    pub fn set_image(&mut self, name: &str, digest: &str) {
        self.images.insert(name.to_owned(), digest.to_owned());
    }

    /// Digest of an image.
    pub fn image(&self, name: &str) -> Option<&str> {
        self.images.get(name).map(String::as_str)
    }

    /// Server of a pipe. Without it there is no pipe of that name (sdk-api, `CreateFileW`: 2).
    fn pipe(&self, name: &str) -> Result<(), WinError> {
        let runs = self.service_state("containerd") == Some(ServiceState::Running);
        if runs && name.eq_ignore_ascii_case(CONTAINERD_PIPE) && self.tick_ms >= self.pipe_from_ms {
            Ok(())
        } else {
            Err(WinError::new(2))
        }
    }

    /// containerd's pipe comes only so long after this moment, however long its service runs (containerd#3659).
    pub const fn pipe_comes_in(&mut self, ms: u64) {
        self.pipe_from_ms = self.tick_ms + ms;
    }

    /// Digest of the image in an archive on the disk, read by the program's own code.
    fn archived(&self, path: &str, name: &str) -> Result<String, WinError> {
        let content = self.disk.read(path, u64::MAX, false)?;
        dormer_host::containerd::describe(std::io::Cursor::new(content.bytes.0), name)
    }

    /// Another Windows Server: 17763 is 2019, 26100 is 2025 (Microsoft, Windows Server release information).
    pub const fn set_build(&mut self, build: u32) {
        self.build = build;
    }

    // Registry.

    /// Sets a registry value, as another process would.
    pub fn set_registry(&mut self, key: &str, name: &str, value: Value) {
        let key = self.registry.entry(key.to_lowercase()).or_default();
        key.insert(name.to_lowercase(), (name.to_owned(), value));
    }

    pub fn registry(&self, key: &str, name: &str) -> Option<Value> {
        let key = self.registry.get(&key.to_lowercase())?;
        key.get(&name.to_lowercase())
            .map(|(_, value)| value.clone())
    }

    /// Makes an empty key.
    pub fn make_key(&mut self, key: &str) {
        self.registry.entry(key.to_lowercase()).or_default();
    }

    // Services and processes.

    /// Behaviour of a program as a service, by its file name.
    pub fn behave(&mut self, program: &str, behaviour: Behaviour) {
        self.scm
            .behaviours
            .insert(program.to_lowercase(), behaviour);
    }

    /// Installs a service, as another program would.
    pub fn install(&mut self, name: &str, settings: &ServiceSettings) {
        let _ = self.scm.create(name, settings);
    }

    /// Changes a service, as another process would.
    pub fn configure(&mut self, name: &str, settings: &ServiceSettings) {
        let _ = self.scm.change(name, settings);
    }

    /// Starts a service, as another process would, and waits for it.
    pub fn start(&mut self, name: &str) -> bool {
        let started = self.start_service(name).is_ok();
        self.pass(10_000);
        started && self.service_state(name) == Some(ServiceState::Running)
    }

    fn start_service(&mut self, name: &str) -> Result<(), WinError> {
        let disk = self.disk.clone();
        // 2: no such file; 3: no such folder (Microsoft Learn, `StartServiceW`, return value).
        let exists = |path: &str| disk.stat(path).err().map(|error| error.code);
        self.scm.start(name, &exists)
    }

    /// The state of a service; none if there is none.
    pub fn service_state(&self, name: &str) -> Option<ServiceState> {
        self.scm
            .services
            .get(&name.to_lowercase())
            .map(|service| service.state)
    }

    /// The configuration of a service.
    pub fn service(&self, name: &str) -> Option<ServiceConfig> {
        self.scm
            .services
            .get(&name.to_lowercase())
            .map(|service| service.config.clone())
    }

    /// The names of all services.
    pub fn services(&self) -> Vec<String> {
        self.scm
            .services
            .values()
            .map(|service| service.name.clone())
            .collect()
    }

    /// Services in the order in which they were stopped.
    pub fn stops(&self) -> &[String] {
        &self.scm.stops
    }

    /// Another process keeps a handle of a service for `ms`.
    pub fn hold_service(&mut self, name: &str, ms: u64) {
        self.scm.hold_open(name, ms);
    }

    /// Deletes a service, as another process would.
    pub fn delete_service(&mut self, name: &str) {
        let _ = self.scm.delete(name);
    }

    /// Windows returns no failure actions of a service any more.
    pub fn hide_failure_actions(&mut self, name: &str) {
        if let Some(service) = self.scm.services.get_mut(&name.to_lowercase()) {
            service.config.failure = None;
        }
    }

    /// A service's process ends by itself.
    pub fn kill(&mut self, name: &str) {
        self.scm.kill(name);
        self.disk.running = self.scm.mapped_files();
    }

    /// Paths of the programs that run, in lower case.
    pub fn programs(&self) -> Vec<String> {
        self.scm.running_programs()
    }

    /// Starts a process that belongs to no service.
    pub fn spawn(&mut self, path: &str) -> u32 {
        let pid = self.scm.spawn(4, path);
        self.disk.running = self.scm.mapped_files();
        pid
    }

    /// The process that Windows started for a service.
    pub fn process_of(&self, service: &str) -> Option<u32> {
        self.scm.process_of(service).map(|process| process.pid)
    }

    /// A service that makes networks once it and HNS run: name and subnet of each.
    pub fn makes_networks(&mut self, service: &str, networks: &[(&str, &str)]) {
        let networks = networks
            .iter()
            .map(|(name, subnet)| ((*name).to_owned(), (*subnet).to_owned()));
        self.makes_networks
            .insert(service.to_lowercase(), networks.collect());
    }

    // The rest.

    /// The next attempt to enable a feature answers so, after it took effect; a failing HRESULT has no effect, but
    /// 0x80070BC2.
    pub fn answer_feature(&mut self, answer: Result<u32, u32>) {
        self.feature_answers
            .push_back(answer.map_err(WinError::new));
    }

    pub fn feature(&self, name: &str) -> Option<DismState> {
        self.features.get(&name.to_lowercase()).copied()
    }

    pub fn set_feature(&mut self, name: &str, state: DismState) {
        self.features.insert(name.to_lowercase(), state);
    }

    /// The dynamic ports of TCP; none: this Windows does not tell them.
    pub const fn dynamic_ports(&mut self) -> &mut Option<PortRange> {
        &mut self.dynamic_ports
    }

    /// `netsh interface ipv4 set dynamicportrange`: 1 for what it does not understand or take (Microsoft, KB 929851).
    fn netsh(&mut self, arguments: &[String]) -> u32 {
        let number = |name: &str| {
            let given = arguments.iter().find_map(|it| it.strip_prefix(name))?;
            given.parse::<u16>().ok()
        };
        let begins = ["interface", "ipv4", "set", "dynamicportrange"];
        let known = arguments.len() > 4
            && arguments[..4].iter().eq(&begins)
            && arguments[4..].iter().any(|it| it == "protocol=tcp");
        let range = number("startport=").zip(number("numberofports="));
        match range {
            Some((start, count))
                if known
                    && start > 1_024
                    && count >= 255
                    && u32::from(start) + u32::from(count) <= 65_536 =>
            {
                self.dynamic_ports = Some(PortRange { start, count });
                0
            }
            _ => 1,
        }
    }

    /// The trusted roots.
    pub const fn roots(&mut self) -> &mut Vec<Root> {
        &mut self.roots
    }

    /// The firewall's rules.
    pub const fn rules(&mut self) -> &mut Vec<FirewallRule> {
        &mut self.network.rules
    }

    /// What policies and services do to the firewall.
    pub const fn set_firewall(&mut self, off: bool, policy: FirewallPolicy) {
        self.network.firewall_off = off;
        self.network.policy = policy;
    }

    /// The exclusions of Windows Defender; none: there is no Defender.
    pub const fn exclusions(&mut self) -> &mut Option<Exclusions> {
        &mut self.network.exclusions
    }

    /// A policy hides the exclusions.
    pub fn hide_exclusions(&mut self) {
        self.network.hides_exclusions = true;
        let key = r"SOFTWARE\Policies\Microsoft\Windows Defender";
        self.set_registry(key, "HideExclusionsFromLocalAdmins", Value::Number(1));
    }

    /// The network cards.
    pub const fn cards(&mut self) -> &mut Vec<Interface> {
        &mut self.network.cards
    }

    /// The active routes.
    pub const fn routes(&mut self) -> &mut Vec<Route> {
        &mut self.network.routes
    }

    /// Calls HNS without the interface's count and refusals.
    pub fn hns(&mut self, method: &str, path: &str, body: &str) -> Result<String, WinError> {
        let call = HnsCall {
            method: method.into(),
            path: path.into(),
            body: body.into(),
        };
        self.call_hns(&call)
    }

    fn call_hns(&mut self, call: &HnsCall) -> Result<String, WinError> {
        let running = self.service_state("hns") == Some(ServiceState::Running);
        self.network
            .hns(running, &call.method, &call.path, &call.body)
    }

    /// The host belongs to a domain.
    pub fn join_domain(&mut self, name: &str) {
        self.domain = Some(name.to_owned());
    }

    /// An address of this host answers so.
    pub fn set_page(&mut self, url: &str, status: u16) {
        self.pages.insert(url.to_owned(), status);
    }

    /// Programs that were run, with their arguments.
    pub fn ran(&self) -> &[String] {
        &self.ran
    }

    /// The number that the loader counts boots by.
    pub const fn boot_id(&self) -> u32 {
        self.boot_id
    }

    /// Another process holds the host lock.
    pub fn lock_by_another(&mut self, path: &str) {
        self.foreign_locks.push((path.to_lowercase(), None));
    }

    /// The same, with this wait in milliseconds.
    pub fn lock_by_another_for(&mut self, path: &str, ms: u64) {
        let until = Some(self.tick_ms + ms);
        self.foreign_locks.push((path.to_lowercase(), until));
    }

    /// From now on operations of this name that ask for `about` answer as if they had done it, and do nothing.
    pub fn ignore(&mut self, operation: &'static str, about: &str) {
        self.ignored.push((operation, about.to_lowercase()));
    }

    /// Every operation has its effect again.
    pub fn heed(&mut self) {
        self.ignored.clear();
    }

    /// The next `times` operations of this name are refused with `code` and have no effect.
    pub fn refuse(&mut self, operation: &'static str, times: u32, code: u32) {
        self.refusals.push((operation, times, WinError::new(code)));
    }

    /// The names of the operations that were performed since the last call of this.
    pub fn take_log(&mut self) -> Log {
        std::mem::take(&mut self.log)
    }

    /// Everything that lasts, for comparisons: paths with content, registry, services with their configuration and
    /// whether they run, rules, exclusions, roots, networks and endpoints by name. Times and ids are left out.
    pub fn snapshot(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for (path, folder, bytes) in self.disk.all() {
            let security = self
                .disk
                .security(path)
                .map(|security| format!("{security:?}"))
                .unwrap_or_default();
            all.push(if folder {
                format!("folder {path} {security}")
            } else {
                format!(
                    "file {path} {} {security}",
                    dormer_profile::sha256_hex(bytes)
                )
            });
        }
        for (key, values) in &self.registry {
            all.extend(
                values
                    .values()
                    .map(|(name, value)| format!("registry {key} {name} {value:?}")),
            );
        }
        for service in self.scm.services.values() {
            all.push(format!(
                "service {} {:?} {:?} {}",
                service.name, service.config, service.state, service.marked
            ));
        }
        all.extend(
            self.network
                .rules
                .iter()
                .map(|rule| format!("rule {rule:?}")),
        );
        all.push(format!("dynamic ports {:?}", self.dynamic_ports));
        all.push(format!("exclusions {:?}", self.network.exclusions));
        all.extend(self.roots.iter().map(|root| format!("root {root:?}")));
        all.extend(self.network.snapshot());
        all.extend(
            self.features
                .iter()
                .map(|(name, state)| format!("feature {name} {state:?}")),
        );
        all
    }
}
