//! A node's life, by the core's own calls: brought up, compared, rebooted, changed, cut by a power failure, removed. It
//! is lived twice, on the simulated host and over Windows' real calls in a prefix of Wine, and both answer the same for
//! each item. In a fleet of 20 simulated hosts and three prefixes each upgrade is cut at another operation.
//!
//! Wine lacks HNS: its networks and endpoints are those of the stand-in `tests/wine/vmcompute.c`. The kinds of items
//! that Wine 8 cannot hold have no part in it: features, firewall rules, exclusions, routes, dynamic ports, images, and
//! services that depend on another.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_host::{
    BOOT_SERVICE,
    arguments::{Call, Mode, parse},
    block_on,
    ops::{
        Answer as Answered, Ask, Host, Operation, OperationRequest, Outcome, Pause, Security,
        ServiceCreate, ServiceSettings, ServiceStart, ServiceState, ServiceStatusRead, Start, Step,
    },
    paths::{BIN, program_path},
    run,
};
use dormer_host_sim::{Cut, SimulatedHost, When, until_cut};
use dormer_profile::{
    answer::{Answer, Reboot},
    document::{ChangeClass, DOCUMENT_SCHEMA, Document, Fence, Section},
    invocation::Mode as Asked,
    item::{
        Certificate, Directory, DisabledService, Environment, FailureActions, File, FileSource,
        HnsCreate, HnsEndpoint, HnsNetwork, Item, ItemKind, NetworkFile, OnlyFolders, Registry,
        RegistryValue, Service, StartType,
    },
    sha256_hex,
};
use dormer_testkit::{HostProgram, Wine, block_until, host_program, long, started};

use crate::{PROGRAMS, performer::Performer};

const PERFORM: &str = r"C:\windows\dormer-host-perform.exe";
const ROOT: &[u8] = include_bytes!("../src/root.der");
/// A foreign service, which the document wants disabled.
const THEIRS: &str = "audit";
/// The services of the node, in the order of their starts.
const OURS: [&str; 2] = ["agent", "kubelet"];
const AFTER_A_POWER_CUT: &str = "way back after a power cut";
const AFTER_A_CUT: &str = "upgrade that was cut";
/// Operation of the upgrade, from 0, before which the program of the life on both hosts ends.
const CUT: usize = 25;
/// Time for a prefix to boot and for its services to start.
const BOOT_MAX: Duration = Duration::from_secs(90);

/// A computer that can live a node's life.
trait Computer {
    /// One call of the program.
    fn call(&mut self, call: Call, document: Option<&Document>) -> Answer;
    /// One call that ends before its operation number `at` (from 0) that changes something.
    fn cut(&mut self, call: Call, document: &Document, at: usize);
    /// A boot, without any call of a worker.
    fn reboot(&mut self);
    /// A boot after a power failure.
    fn lose_power(&mut self);
    fn ask(&mut self, operation: Operation) -> Outcome;
    /// What is below a folder, with the contents of files; nothing where there is no such folder.
    fn below(&mut self, folder: &str) -> Vec<(String, Option<Vec<u8>>)>;

    fn state(&mut self, service: &str) -> Option<ServiceState> {
        let read = ServiceStatusRead {
            name: service.into(),
        };
        match self.ask(read.operation()) {
            Ok(Answered::ServiceStatusRead(status)) => Some(status.state),
            _ => None,
        }
    }
}

fn item(id: &str, what: ItemKind) -> Item {
    Item {
        id: id.into(),
        change: ChangeClass::Live,
        what,
    }
}

fn folder(path: &str, keep: bool) -> Item {
    let what = Directory {
        path: path.into(),
        keep,
    };
    item(&format!("directory:{path}"), ItemKind::Directory(what))
}

fn file(path: &str, content: &[u8], user: &str) -> Item {
    let what = File {
        path: path.into(),
        sha256: sha256_hex(content),
        size: content.len() as u64,
        source: FileSource::Inline {
            base64: STANDARD.encode(content),
        },
        users: Vec::from([user.to_owned()]),
        private: false,
    };
    item(&format!("file:{path}"), ItemKind::File(what))
}

fn service(name: &str, command: &str, version: u8) -> Item {
    let what = Service {
        name: name.into(),
        display: String::new(),
        description: format!("{name} of version {version}"),
        command: command.into(),
        depends: Vec::new(),
        start: StartType::Auto,
        failure: FailureActions {
            reset_seconds: 86_400,
            restart_delays_ms: vec![5_000],
        },
        environment: [("HTTP_PROXY".to_owned(), format!("http://proxy{version}"))].into(),
        priority: None,
        running: true,
        start_timeout_ms: 30_000,
        log: None,
    };
    item(&format!("service:{name}"), ItemKind::Service(what))
}

/// The host section of a version, with an item of each kind that Wine can hold; `program` is a service.
fn node(version: u8, program: &[u8]) -> Document {
    let registry = Registry {
        key: r"SOFTWARE\dormer-life".into(),
        name: "Mended".into(),
        value: RegistryValue::Dword(version.into()),
        static_address: false,
        windows_builds: Vec::new(),
    };
    let environment = Environment {
        name: "DORMER_LIFE".into(),
        value: Some(format!("v{version}")),
        reboot: false,
    };
    let root = Certificate {
        sha256: sha256_hex(ROOT),
        base64: STANDARD.encode(ROOT),
    };
    let mirrors = OnlyFolders {
        under: r"C:\k\mirrors".into(),
        keep: vec![format!("registry{version}")],
    };
    let disabled = DisabledService {
        name: THEIRS.into(),
    };
    // A program may have bytes behind its end.
    let kubelet = [program, &[version]].concat();
    let agent = format!(r"C:\k\v{version}\agent.exe");
    let mirror = format!(r"C:\k\mirrors\registry{version}\hosts.toml");
    let items = vec![
        folder(r"C:\k", false),
        folder(r"C:\k\tls", false),
        folder(r"C:\k\mirrors", false),
        folder(r"C:\var\log\dormer", true),
        item("environment", ItemKind::Environment(environment)),
        item("registry", ItemKind::Registry(registry)),
        item("certificate", ItemKind::Certificate(root)),
        item("disabled", ItemKind::DisabledService(disabled)),
        file(&mirror, b"server", "containerd"),
        item("mirrors", ItemKind::OnlyFolders(mirrors)),
        file(&agent, program, "agent"),
        file(r"C:\k\kubelet.exe", &kubelet, "kubelet"),
        file(r"C:\k\agent.conf", &[b'v', version], "agent"),
        file(r"C:\k\tls\tls.key", &[b'k', version], "agent"),
        service("agent", &format!("{agent} plain"), version),
        service("kubelet", r"C:\k\kubelet.exe plain", version),
    ];
    Document {
        schema: DOCUMENT_SCHEMA,
        section: Section::Host,
        version: format!("v{version}"),
        items,
        kept: Vec::new(),
    }
}

/// The section that makes the node's network, and attaches the host to it.
fn network() -> Document {
    let create = HnsCreate {
        network_type: "L2Bridge".into(),
        subnet: "192.168.255.0/24".into(),
        gateway: "10.0.0.1".into(),
        vsid: None,
    };
    let network = HnsNetwork {
        name: "External".into(),
        wait_ms: 60_000,
        create: Some(create),
    };
    let endpoint = HnsEndpoint {
        network: "External".into(),
        name: "VIPEndpoint".into(),
        users: Vec::new(),
    };
    let config = NetworkFile {
        path: r"C:\k\proxy.conf".into(),
        template: "subnet @{HNS_SUBNET} vip @{HNS_ENDPOINT_IP}".into(),
        network: "External".into(),
        endpoint: Some("VIPEndpoint".into()),
        users: Vec::new(),
    };
    Document {
        schema: DOCUMENT_SCHEMA,
        section: Section::Node,
        version: "v1".into(),
        items: vec![
            item("network", ItemKind::HnsNetwork(network)),
            item("endpoint", ItemKind::HnsEndpoint(endpoint)),
            item("network_file", ItemKind::NetworkFile(config)),
        ],
        kept: Vec::new(),
    }
}

fn call(mode: Asked, seq: u64, program: &str) -> Call {
    Call {
        mode: Mode::Asked(mode),
        task: format!("machine/1@{seq}.0"),
        attempt: 1,
        fence: Fence { generation: 1, seq },
        boot: None,
        document: None,
        program: program.into(),
    }
}

/// One line for each item of an answer, and one for a failure.
fn lines_of(what: &str, answer: &Answer) -> Vec<String> {
    let items = answer.items.iter();
    let mut lines: Vec<String> = items
        .map(|item| format!("{what}: {} {:?}", item.id, item.state))
        .collect();
    if answer.reboot != Reboot::None {
        lines.push(format!("{what}: {:?}", answer.reboot));
    }
    lines.extend(
        answer
            .failure
            .iter()
            .map(|failure| format!("{what}: {failure:?} {:#?}", answer.items)),
    );
    lines
}

/// The life, from a host without anything of ours to one without anything of ours. The upgrade is cut before its
/// operation number `cut`. Answers the lines of all its calls.
fn life(computer: &mut impl Computer, program: &[u8], name: &str, cut: usize) -> Vec<String> {
    let versions = [1, 2].map(|version| node(version, program));
    let [one, two] = &versions;
    let mut lines = Vec::new();
    let before = [r"C:\k", r"C:\var"].map(|folder| computer.below(folder));
    let states = |computer: &mut _, when: &str| -> Vec<String> {
        let all = OURS.into_iter().chain([THEIRS]);
        all.map(|service| format!("{when}: {service} {:?}", Computer::state(computer, service)))
            .collect()
    };
    let mut go = |computer: &mut _, what: &str, mode, seq, document: Option<&Document>| {
        let answer = Computer::call(computer, call(mode, seq, name), document);
        // Writes to the registry of the last seconds may be lost with the power. They are made again, or are there.
        match what {
            AFTER_A_POWER_CUT => assert!(answer.converged(), "{answer:#?}"),
            _ => lines.extend(lines_of(what, &answer)),
        }
        lines.extend(states(computer, what));
    };
    go(computer, "plan of a new host", Asked::Plan, 1, Some(one));
    go(computer, "bring-up", Asked::Apply, 1, Some(one));
    go(computer, "plan", Asked::Plan, 2, Some(one));
    let net = network();
    go(computer, "network", Asked::Apply, 2, Some(&net));
    go(computer, "plan of the network", Asked::Plan, 2, Some(&net));
    computer.reboot();
    go(computer, "plan after a boot", Asked::Plan, 3, Some(one));
    let what = "plan of the network after a boot";
    go(computer, what, Asked::Plan, 3, Some(&net));
    computer.cut(call(Asked::Apply, 4, name), two, cut);
    go(computer, AFTER_A_CUT, Asked::Apply, 4, Some(two));
    go(computer, "plan of the upgrade", Asked::Plan, 5, Some(two));
    computer.reboot();
    computer.cut(call(Asked::Apply, 6, name), one, 20);
    computer.lose_power();
    go(
        computer,
        "way back after a power cut",
        Asked::Apply,
        6,
        Some(one),
    );
    go(computer, "plan of the way back", Asked::Plan, 7, Some(one));
    // What the other version wrote is no longer there.
    let there: Vec<String> = computer.below(r"C:\k").into_iter().map(|it| it.0).collect();
    go(computer, "removal", Asked::Remove, 8, None);
    lines.extend(there);
    let after = [r"C:\k", r"C:\var"].map(|folder| computer.below(folder));
    assert_eq!(before[0], after[0]);
    lines.extend(after[1].iter().map(|(path, _)| format!("left: {path}")));
    lines
}

impl Computer for SimulatedHost {
    fn call(&mut self, call: Call, document: Option<&Document>) -> Answer {
        let bytes = document.map(|document| document.to_bytes().expect("a document"));
        let answer = until_cut(run(call, Ok(bytes), &mut *self)).expect("it never waits");
        self.process_ended();
        answer
    }

    fn cut(&mut self, call: Call, document: &Document, at: usize) {
        let bytes = document.to_bytes().expect("a document");
        let cut = Cut::new(&mut *self, at, When::Before);
        assert!(until_cut(run(call, Ok(Some(bytes)), cut)).is_none(), "cut");
        self.process_ended();
    }

    fn reboot(&mut self) {
        Self::reboot(self);
        let boot = parse(&["boot".into()]).expect("a call");
        let answer = Computer::call(self, boot, None);
        assert_eq!(answer.failure, None);
    }

    fn lose_power(&mut self) {
        Computer::reboot(self);
    }

    fn ask(&mut self, operation: Operation) -> Outcome {
        let step = Step::default();
        block_on(self.perform(OperationRequest { step, operation }))
    }

    fn below(&mut self, folder: &str) -> Vec<(String, Option<Vec<u8>>)> {
        let paths = self.paths(folder).into_iter();
        let mut all: Vec<_> = paths.map(|path| (path.clone(), self.file(&path))).collect();
        all.retain(|(path, _)| !path.trim_end_matches('\\').eq_ignore_ascii_case(folder));
        all.sort();
        all
    }
}

/// A prefix of Wine with the program, performed by the core of this process over the prefix' own calls.
struct Prefix {
    wine: Wine,
    performer: Performer,
}

/// What Windows answers where Wine 8 answers by Unix mode bits: files of the prefix' user are the administrators'.
struct AsWindows<'a>(&'a mut Performer);

impl Host for AsWindows<'_> {
    async fn perform(&mut self, request: OperationRequest) -> Outcome {
        let outcome = self.0.perform(request).await?;
        Ok(match outcome {
            Answered::FileSecurity(security) => Answered::FileSecurity(as_windows(security)),
            other => other,
        })
    }
}

fn as_windows(mut security: Security) -> Security {
    const ADMINISTRATORS: &str = "S-1-5-32-544";
    let of_the_user = |sid: &str| sid.starts_with("S-1-5-21-");
    if of_the_user(&security.owner) {
        security.owner = ADMINISTRATORS.into();
    }
    for ace in security.entries.iter_mut().flatten() {
        if of_the_user(&ace.sid) {
            ace.sid = ADMINISTRATORS.into();
        }
    }
    security
}

impl Prefix {
    fn start(wine: Wine, perform: &Path, program: &Path, hash: &str) -> Self {
        wine.install(perform, PERFORM).expect("installed");
        fs::create_dir_all(wine.file(BIN)).expect("made");
        // By its name as the prefix has the folder.
        wine.install(program, &program_path(hash)).expect("sent");
        wine.install_stand_in("vmcompute.dll").expect("compiled");
        let performer = Performer::start(&wine, PERFORM);
        Self { wine, performer }
    }

    /// The service of HNS, which every host with the feature Containers has.
    fn with_hns(mut self) -> Self {
        let settings = ServiceSettings {
            command: Some(format!(r"{PROGRAMS}\plain.exe plain")),
            ..ServiceSettings::default()
        };
        let name = "hns".to_owned();
        let create = ServiceCreate { name, settings };
        self.ask(create.operation()).expect("made");
        self
    }

    /// The next program is the prefix' next boot, which takes endpoints (docs/field-notes.md).
    fn boot(&mut self) {
        let store = self.wine.file(r"C:\windows\hns.stand-in");
        let things = fs::read_to_string(&store).unwrap_or_default();
        let networks = things.lines().filter(|line| line.starts_with('N'));
        let networks: String = networks.map(|line| format!("{line}\r\n")).collect();
        fs::write(store, networks).expect("written");
        let began = Instant::now();
        self.performer = Performer::start(&self.wine, PERFORM);
        let done = block_until(BOOT_MAX, || {
            let booted = self.state(BOOT_SERVICE) == Some(ServiceState::Stopped);
            let runs = |service| self.state(service) == Some(ServiceState::Running);
            booted && OURS.into_iter().all(runs)
        });
        let states = OURS.map(|service| self.state(service));
        assert!(done, "{states:?} {:?}", self.state(BOOT_SERVICE));
        println!("the services run {:?} after the boot", began.elapsed());
    }
}

impl Computer for Prefix {
    fn call(&mut self, call: Call, document: Option<&Document>) -> Answer {
        let bytes = document.map(|document| document.to_bytes().expect("a document"));
        let answer = block_on(run(call, Ok(bytes), AsWindows(&mut self.performer)));
        // Locks and handles of the call end with its process.
        self.performer = Performer::start(&self.wine, PERFORM);
        answer
    }

    fn cut(&mut self, call: Call, document: &Document, at: usize) {
        let bytes = document.to_bytes().expect("a document");
        let mut host = AsWindows(&mut self.performer);
        let cut = Cut::new(&mut host, at, When::Before);
        assert!(until_cut(run(call, Ok(Some(bytes)), cut)).is_none(), "cut");
        self.performer = Performer::start(&self.wine, PERFORM);
    }

    fn reboot(&mut self) {
        self.wine.shut_down();
        self.boot();
    }

    fn lose_power(&mut self) {
        self.wine.cut_power();
        self.boot();
    }

    fn ask(&mut self, operation: Operation) -> Outcome {
        let step = Step::default();
        block_on(self.performer.perform(OperationRequest { step, operation }))
    }

    fn below(&mut self, folder: &str) -> Vec<(String, Option<Vec<u8>>)> {
        let mut all = Vec::new();
        let mut left = vec![folder.to_owned()];
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(self.wine.file(&folder)).into_iter().flatten() {
                let entry = entry.expect("an entry");
                let path = format!(r"{folder}\{}", entry.file_name().to_string_lossy());
                if entry.path().is_dir() {
                    all.push((format!(r"{path}\"), None));
                    left.push(path);
                } else {
                    all.push((path, Some(fs::read(entry.path()).expect("a file"))));
                }
            }
        }
        all.sort();
        all
    }
}

/// A foreign service, which runs, and starts at each boot.
fn audited(computer: &mut impl Computer) {
    let settings = ServiceSettings {
        command: Some(format!(r"{PROGRAMS}\plain.exe plain")),
        start: Some(Start::Auto),
        ..ServiceSettings::default()
    };
    let name = || THEIRS.to_owned();
    let create = ServiceCreate {
        name: name(),
        settings,
    };
    computer.ask(create.operation()).expect("made");
    let start = ServiceStart { name: name() };
    computer.ask(start.operation()).expect("started");
    let pause = Pause { ms: 50 }.operation();
    while computer.state(THEIRS) != Some(ServiceState::Running) {
        computer.ask(pause.clone()).expect("time passes");
    }
}

/// A life on a simulated host that has the programs of a prefix.
fn simulated_life(plain: &[u8], hash: &str, cut: usize) -> Vec<String> {
    let mut simulated = SimulatedHost::with_containers();
    simulated.put(&format!(r"{PROGRAMS}\plain.exe"), plain);
    simulated.put(&program_path(hash), b"MZ");
    audited(&mut simulated);
    life(&mut simulated, plain, hash, cut)
}

/// Lives the life in a prefix and on a simulated host, and compares them. Answers the lines.
fn lived_twice(program: &HostProgram, wine: Wine, cut: usize) -> Vec<String> {
    wine.install_service_programs(PROGRAMS, &["plain"])
        .expect("compiled");
    let plain = fs::read(wine.file(&format!(r"{PROGRAMS}\plain.exe"))).expect("a program");
    let hash = sha256_hex(&fs::read(&program.program).expect("it was built"));
    let wanted = simulated_life(&plain, &hash, cut);

    let mut prefix = Prefix::start(wine, &program.perform, &program.program, &hash).with_hns();
    audited(&mut prefix);
    let found = life(&mut prefix, &plain, &hash, cut);
    let only = |one: &[String], other: &[String]| -> Vec<String> {
        one.iter()
            .filter(|line| !other.contains(line))
            .cloned()
            .collect()
    };
    let none = Vec::<String>::new();
    assert_eq!(
        (only(&found, &wanted), only(&wanted, &found)),
        (none.clone(), none),
        "over Windows' calls, and on the simulated host, cut at {cut}"
    );
    assert_eq!(found, wanted);
    found
}

/// Lines of a life without those of the call that completes a cut upgrade: how much was left to do depends on the cut.
fn outcomes(mut lines: Vec<String>) -> Vec<String> {
    lines.retain(|line| !line.starts_with(AFTER_A_CUT));
    lines
}

#[test]
fn a_nodes_life_is_the_same_on_the_simulated_host_and_over_windows_calls() {
    let program = match host_program() {
        Ok(program) => program,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let wine = started!(Wine::start());
    lived_twice(&program, wine, CUT);
}

#[test]
fn twenty_simulated_hosts_whose_upgrades_are_cut_differently_end_alike() {
    let hash = sha256_hex(b"MZ");
    let all = (0..20).map(|host| outcomes(simulated_life(b"MZ plain", &hash, 6 + host)));
    let all: Vec<Vec<String>> = all.collect();
    for (host, lines) in all.iter().enumerate() {
        assert_eq!(lines, &all[0], "host {host}");
    }
}

#[test]
fn three_prefixes_whose_upgrades_are_cut_differently_end_alike() {
    let part = long!("host-life");
    let program = match host_program() {
        Ok(program) => program,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let mut lives = Vec::new();
    for cut in [8, 16, CUT] {
        let wine = started!(Wine::start());
        lives.push(outcomes(lived_twice(&program, wine, cut)));
    }
    for lines in &lives[1..] {
        assert_eq!(lines, &lives[0]);
    }
    part.passed(&[("prefixes", lives.len().to_string())]);
}
