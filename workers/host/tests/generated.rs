//! Generated documents, applied, changed and removed, with the process killed before and after each operation: the
//! same host in the end, nothing left to do, and no secret in any answer.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_host::{
    ops::{FirewallRule, Root, ServiceSettings, Start, Value},
    run,
};
use dormer_host_sim::{SimulatedHost, Snapshots, until_cut};
use dormer_profile::{
    answer::{Answer, ItemState, Reboot},
    document::{Document, Section},
    invocation::Mode as Asked,
    item::{
        Certificate, DefenderExclusion, Directory, File, FileSource, Firewall, HnsCreate,
        HnsEndpoint, HnsNetwork, Item, ItemKind, Lingering, NetworkFile, OnlyFolders, Protocol,
        Route, SteadyService,
    },
    sha256_hex,
};
use dormer_testkit::{long, tier::sized};

use crate::harness::{
    ask, assert_converged, call, document, environment, file, file_for, folder, item, service,
    staged,
};

/// What no answer may say.
const SECRET: &str = "s3cret";
/// Reboots that a bring-up may take.
const REBOOTS_MAX: usize = 3;

/// Draws by name: the properties of an item do not depend on the other items of the document.
struct Draw {
    seed: u64,
    version: u64,
}

impl Draw {
    fn number(&self, name: &str, version: u64) -> u64 {
        // FNV-1a, then the finalizer of SplitMix64.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in name.bytes().chain(version.to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }

    /// A number below `n`. Half of the draws are equal in version 1 and version 2.
    fn of(&self, n: u64, name: &str) -> u64 {
        let changes = self.version == 2 && self.number(&format!("changes {name}"), 0) & 1 == 1;
        self.number(name, if changes { 2 } else { 1 }) % n
    }

    fn yes(&self, name: &str) -> bool {
        self.of(2, name) == 1
    }
}

fn private(path: &str, content: &str, users: &[&str]) -> Item {
    let mut item = file_for(path, content, users);
    if let ItemKind::File(File { private, .. }) = &mut item.what {
        *private = true;
    }
    item
}

fn certificate(der: &str) -> Item {
    let sha256 = sha256_hex(der.as_bytes());
    let what = Certificate {
        sha256: sha256.clone(),
        base64: STANDARD.encode(der),
    };
    item(
        &format!("certificate:{sha256}"),
        ItemKind::Certificate(what),
    )
}

/// The section `host` of a document of its own for each seed.
fn host_section(seed: u64, version: u64) -> Document {
    let draw = Draw { seed, version };
    let mut items = vec![folder(r"C:\k")];
    if draw.yes("reboot") {
        items.push(environment(
            "NO_PROXY",
            &draw.of(2, "proxy").to_string(),
            true,
        ));
    }
    for n in 0..3 {
        let name = format!("VAR{n}");
        if draw.yes(&name) {
            let value = draw.of(3, &format!("{name} is")).to_string();
            items.push(environment(&name, &value, false));
        }
    }
    if draw.yes("logs") {
        let what = Directory {
            path: r"C:\var\log\dormer".into(),
            keep: true,
        };
        items.push(item("directory:logs", ItemKind::Directory(what)));
    }
    if draw.yes("tls") {
        items.push(folder(r"C:\k\tls\certs"));
        let key = format!("{SECRET} {}", draw.of(3, "key"));
        items.push(private(r"C:\k\tls\certs\tls.key", &key, &["svc0"]));
    }
    if draw.yes("large") {
        let path = r"C:\k\large.dll";
        items.push(staged(path, &large(draw.of(2, "large is"))));
    }
    let payload = format!(r"C:\k\v{}", draw.of(2, "payload"));
    for n in 0..1 + draw.of(3, "services") {
        let name = format!("svc{n}");
        let program = format!(r"{payload}\{name}.exe");
        items.push(file_for(
            &program,
            &format!("MZ {name} {}", draw.of(2, &program)),
            &[&name],
        ));
        let config = format!(r"C:\k\{name}.conf");
        let content = format!("{SECRET} {}", draw.of(3, &config));
        items.push(file_for(&config, &content, &[&name]));
        let on = format!("svc{}", draw.of(n + 1, &format!("{name} depends")));
        let depends: &[&str] = if on == name { &[] } else { &[&on] };
        let command = format!("{program} --x={}", draw.of(2, &format!("{name} command")));
        let command = match draw.yes(&format!("{name} is wrapped")) {
            true => {
                let wrapper = format!(r"{payload}\kube-log-runner.exe");
                if !items
                    .iter()
                    .any(|item| item.id == format!("file:{wrapper}"))
                {
                    items.push(file(&wrapper, "MZ kube-log-runner"));
                }
                format!(r"{wrapper} -log-file=C:\var\log\{name}.log {command}")
            }
            false => command,
        };
        items.push(service(&name, &command, depends));
        if draw.yes(&format!("{name} is excluded")) {
            let what = DefenderExclusion { process: program };
            items.push(item(
                &format!("defender:{name}"),
                ItemKind::DefenderExclusion(what),
            ));
        }
    }
    for n in 0..2 {
        let name = format!("dormer-{n}");
        if draw.yes(&name) {
            let what = Firewall {
                name: name.clone(),
                protocol: Protocol::Tcp,
                port: 10_250 + u16::try_from(draw.of(2, &format!("{name} port"))).unwrap_or(0),
            };
            items.push(item(&format!("firewall:{name}"), ItemKind::Firewall(what)));
        }
    }
    for der in ["one", "two", "customer"] {
        if draw.yes(der) {
            items.push(certificate(der));
        }
    }
    if draw.yes("mirrors") {
        items.push(folder(r"C:\k\mirrors"));
        let keep = format!("registry{}", draw.of(2, "mirror"));
        items.push(file(&format!(r"C:\k\mirrors\{keep}\hosts.toml"), "server"));
        let what = OnlyFolders {
            under: r"C:\k\mirrors".into(),
            keep: vec![keep],
        };
        items.push(item("only_folders:mirrors", ItemKind::OnlyFolders(what)));
    }
    let process = "containerd-shim-runhcs-v1".to_owned();
    items.push(item(
        "lingering",
        ItemKind::Lingering(Lingering { process }),
    ));
    if draw.yes("steady") {
        let what = SteadyService {
            service: "svc0".into(),
            steady_ms: 3_000,
            log: None,
        };
        items.push(item("steady", ItemKind::SteadyService(what)));
    }
    Document {
        version: format!("v{version}"),
        ..document(Section::Host, items)
    }
}

fn large(n: u64) -> Vec<u8> {
    format!("large {n}").into_bytes().repeat(100)
}

/// The section `node`: a network, its attachments, and the services that use it.
fn node_section(seed: u64, version: u64) -> Document {
    let draw = Draw { seed, version };
    let mut items = Vec::new();
    let subnet = format!("10.132.{}.0/24", draw.of(2, "subnet"));
    let create = HnsCreate {
        network_type: "L2Bridge".into(),
        subnet,
        gateway: "10.0.0.1".into(),
        vsid: None,
    };
    let network = ItemKind::HnsNetwork(HnsNetwork {
        name: "External".into(),
        wait_ms: 60_000,
        create: Some(create),
    });
    items.push(item("hns_network:External", network));
    let endpoint = draw.yes("endpoint");
    if endpoint {
        let what = HnsEndpoint {
            network: "External".into(),
            name: "VIPEndpoint".into(),
            users: vec!["proxy".into()],
        };
        items.push(item(
            "hns_endpoint:VIPEndpoint",
            ItemKind::HnsEndpoint(what),
        ));
    }
    let template = match endpoint {
        true => "subnet @{HNS_SUBNET} vip @{HNS_ENDPOINT_IP}",
        false => "subnet @{HNS_SUBNET}",
    };
    let config = ItemKind::NetworkFile(NetworkFile {
        path: r"C:\k\proxy.conf".into(),
        template: template.into(),
        network: "External".into(),
        endpoint: endpoint.then(|| "VIPEndpoint".into()),
        users: vec!["proxy".into()],
    });
    items.push(item(r"network_file:C:\k\proxy.conf", config));
    if draw.yes("route") {
        let prefix = "169.254.169.254/32".into();
        items.push(item("route:metadata", ItemKind::Route(Route { prefix })));
    }
    let program = format!(r"C:\k\proxy{}.exe", draw.of(2, "proxy"));
    items.push(file(&program, "MZ proxy"));
    items.push(service("proxy", &program, &["svc0"]));
    Document {
        version: format!("v{version}"),
        ..document(Section::Node, items)
    }
}

/// A host that other people use, too, with what was uploaded to it.
fn shared_host() -> SimulatedHost {
    let mut host = SimulatedHost::with_containers();
    assert!(host.start("hns"), "HNS runs");
    let key = r"SYSTEM\CurrentControlSet\Control\Session Manager\Environment";
    host.set_registry(key, "THEIRS", Value::Expand(r"%SystemRoot%\x".into()));
    host.rules().push(FirewallRule {
        name: "theirs".into(),
        description: String::new(),
        protocol: 6,
        ports: "443".into(),
        direction: 1,
        action: 1,
        profiles: i32::MAX,
        enabled: true,
        remote: "*".into(),
        program: String::new(),
    });
    host.roots().push(Root {
        sha256: sha256_hex(b"customer"),
        name: String::new(),
        own: true,
    });
    host.put(r"C:\theirs\a.txt", b"theirs");
    host.put(r"C:\Program Files\audit\audit.exe", b"MZ");
    let settings = ServiceSettings {
        command: Some(r#""C:\Program Files\audit\audit.exe""#.into()),
        start: Some(Start::Auto),
        ..ServiceSettings::default()
    };
    host.install("audit", &settings);
    assert!(host.start("audit"), "audit runs");
    host
}

/// Uploads what a document wants to have uploaded.
fn upload(host: &mut SimulatedHost, document: &Document) {
    for item in &document.items {
        let ItemKind::File(File { source, sha256, .. }) = &item.what else {
            continue;
        };
        let FileSource::Staged { name } = source else {
            continue;
        };
        let content = [0, 1].map(large);
        let content = content
            .iter()
            .find(|content| sha256_hex(content) == *sha256);
        let path = format!(r"C:\Windows\dormer\staging\{name}");
        host.put(&path, content.expect("a content of ours"));
    }
}

/// What lasts on a host once everything that was started is up, without what tells tasks, boots and the holder of the lock.
fn end(host: &SimulatedHost) -> Vec<String> {
    let mut host = host.clone();
    host.pass(10_000);
    let telling = ["holder.json", "last.json", "reboot.json"];
    let mut all = host.snapshot();
    all.retain(|line| {
        !telling
            .iter()
            .any(|name| line.contains(&format!(r"\state\{name}")))
    });
    all.sort();
    all
}

#[track_caller]
fn assert_same(found: &[String], wanted: &[String], about: &str) {
    if found == wanted {
        return;
    }
    let only = |one: &[String], other: &[String]| -> Vec<String> {
        one.iter()
            .filter(|line| !other.contains(line))
            .cloned()
            .collect()
    };
    panic!(
        "{about}\nis {:#?}\nwas to be {:#?}",
        only(found, wanted),
        only(wanted, found)
    );
}

#[track_caller]
fn assert_no_secret(answer: &Answer, about: &str) {
    let said = serde_json::to_string(answer).expect("an answer");
    assert!(!said.contains(SECRET), "{about}: {said}");
    assert!(
        !said.contains(&STANDARD.encode(SECRET)[..8]),
        "{about}: {said}"
    );
}

/// Asks until nothing fails and no reboot is owed; each answer is without secrets.
fn run_to_the_end(host: &mut SimulatedHost, mode: Asked, document: Option<&Document>, about: &str) {
    for _ in 0..=REBOOTS_MAX {
        let answer = ask(host, call(mode, 3), document);
        assert_no_secret(&answer, about);
        assert_eq!(answer.failure, None, "{about}: {:#?}", answer.items);
        if answer.reboot == Reboot::None {
            return;
        }
        host.reboot();
    }
    panic!("{about}: a reboot is owed again and again");
}

/// Runs `mode` to its end, with a copy of the host at each cut, then again on each copy. Answers the number of cuts; the
/// host is as the uncut run left it.
fn cut_everywhere(
    host: &mut SimulatedHost,
    mode: Asked,
    document: Option<&Document>,
    about: &str,
) -> usize {
    let bytes = document.map(|document| document.to_bytes().expect("a document"));
    let mut snapshots = Snapshots::new(host);
    let answer = until_cut(run(call(mode, 3), Ok(bytes), &mut snapshots)).expect("an answer");
    assert_no_secret(&answer, about);
    let taken = snapshots.taken();
    host.process_ended();
    run_to_the_end(host, mode, document, about);
    let wanted = end(host);
    let cuts = taken.len();
    for (n, cut) in taken.into_iter().enumerate() {
        let about = format!("{about}, cut {n} {:?} {}", cut.when, cut.operation);
        let mut host = cut.host;
        run_to_the_end(&mut host, mode, document, &about);
        assert_same(&end(&host), &wanted, &about);
        if let Some(document) = document {
            let plan = ask(&mut host, call(Asked::Plan, 3), Some(document));
            assert_no_secret(&plan, &about);
            assert_converged(&plan);
            let changed = plan.items.iter().find(|item| item.state != ItemState::Ok);
            assert_eq!((changed, &plan.reboot), (None, &Reboot::None), "{about}");
        }
    }
    cuts
}

/// A bring-up, and the way to the next version, of one seed.
fn bring_up_and_upgrade(seed: u64) -> usize {
    let mut host = shared_host();
    let mut cuts = 0;
    for version in [1, 2] {
        for document in [host_section(seed, version), node_section(seed, version)] {
            let about = format!("seed {seed}, version {version}, {:?}", document.section);
            upload(&mut host, &document);
            cuts += cut_everywhere(&mut host, Asked::Apply, Some(&document), &about);
        }
    }
    cuts
}

/// What is there after the next boot and is not dormer's own; without the folder of logs, which a removal leaves.
fn without_ours(host: &SimulatedHost) -> Vec<String> {
    let mut host = host.clone();
    // Routes of the active store go with the boot.
    host.reboot();
    let mut all = end(&host);
    all.retain(|line| {
        let line = line.to_lowercase();
        let logs = [r"folder c:\var ", r"folder c:\var\log"];
        !line.contains(r"c:\windows\dormer") && !logs.iter().any(|log| line.starts_with(log))
    });
    all
}

/// A removal of one seed; what is left is what was there before anything of ours.
fn remove(seed: u64) -> usize {
    let mut host = shared_host();
    let before = without_ours(&host);
    for document in [host_section(seed, 1), node_section(seed, 1)] {
        upload(&mut host, &document);
        run_to_the_end(
            &mut host,
            Asked::Apply,
            Some(&document),
            "before the removal",
        );
    }
    let about = format!("seed {seed}, removal");
    let cuts = cut_everywhere(&mut host, Asked::Remove, None, &about);
    assert_same(&without_ours(&host), &before, &about);
    cuts
}

#[test]
fn generated_documents_and_their_next_versions_survive_every_cut() {
    let documents = sized(5, 50);
    let cuts: usize = (1..=documents).map(bring_up_and_upgrade).sum();
    assert!(cuts > sized(250, 5_000), "{cuts} cuts");
}

/// Documents of one test of the part `host-cuts`.
const MANY: u64 = 100;

/// Brings up and upgrades the documents of many seeds, on all processors. Answers the number of cuts.
fn cuts_by_seeds_from(first: u64) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let go = |thread: u64| {
        move || -> usize {
            let seeds = (first..first + MANY).filter(move |seed| seed % threads == thread);
            seeds.map(bring_up_and_upgrade).sum()
        }
    };
    let threads: Vec<_> = (0..threads).map(|at| std::thread::spawn(go(at))).collect();
    let cuts = threads
        .into_iter()
        .map(|thread| thread.join().expect("the same host in the end"));
    cuts.sum()
}

/// An interrupted part continues at the first test that has not passed.
macro_rules! many_documents {
    ($($name:ident: $first:literal;)*) => {$(
        #[test]
        fn $name() {
            let part = long!("host-cuts");
            let cuts = cuts_by_seeds_from($first);
            part.passed(&[("documents", MANY.to_string()), ("cuts", cuts.to_string())]);
        }
    )*};
}

many_documents! {
    many_generated_documents_from_seed_1: 1;
    many_generated_documents_from_seed_101: 101;
    many_generated_documents_from_seed_201: 201;
    many_generated_documents_from_seed_301: 301;
    many_generated_documents_from_seed_401: 401;
}

#[test]
fn generated_documents_are_removed_whatever_is_cut() {
    let cuts: usize = (1..=10).map(remove).sum();
    assert!(cuts > 300, "{cuts} cuts");
}
