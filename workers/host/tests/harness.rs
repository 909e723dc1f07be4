//! Documents, calls, and a host to make them on.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_host::{
    arguments::{Call, Mode},
    ops::ServiceSettings,
    run,
};
use dormer_host_sim::{Behaviour, SimulatedHost, until_cut};
use dormer_profile::{
    answer::{Answer, FailureCode, ItemState, Reboot},
    document::{ChangeClass, DOCUMENT_SCHEMA, Document, Fence, Section},
    invocation::Mode as Asked,
    item::{
        Directory, Environment, FailureActions, File, FileSource, HnsEndpoint, HnsNetwork, Item,
        ItemKind, NetworkFile, Service, StartType,
    },
    sha256_hex,
};

/// A call of mode `mode`, task `machine/1@SEQ.0`.
pub(crate) fn call(mode: Asked, seq: u64) -> Call {
    Call {
        mode: Mode::Asked(mode),
        task: format!("machine/1@{seq}.0"),
        attempt: 1,
        fence: Fence { generation: 1, seq },
        boot: None,
        document: None,
        program: "ab".repeat(32),
    }
}

/// What a call answers, with the document as it came on stdin.
pub(crate) fn ask(host: &mut SimulatedHost, call: Call, document: Option<&Document>) -> Answer {
    let bytes = document.map(|document| document.to_bytes().expect("a document"));
    let answer = until_cut(run(call, Ok(bytes), &mut *host)).expect("a simulated host never waits");
    host.process_ended();
    answer
}

pub(crate) fn apply(host: &mut SimulatedHost, document: &Document) -> Answer {
    ask(host, call(Asked::Apply, 1), Some(document))
}

pub(crate) fn plan(host: &mut SimulatedHost, document: &Document) -> Answer {
    ask(host, call(Asked::Plan, 1), Some(document))
}

pub(crate) fn remove(host: &mut SimulatedHost) -> Answer {
    ask(host, call(Asked::Remove, 2), None)
}

/// The boot run, as Windows asks for it.
pub(crate) fn boot(host: &mut SimulatedHost) -> Answer {
    let boot = dormer_host::arguments::parse(&["boot".into()]).expect("a call");
    ask(host, boot, None)
}

pub(crate) fn document(section: Section, items: Vec<Item>) -> Document {
    Document {
        schema: DOCUMENT_SCHEMA,
        section,
        version: "v1".into(),
        items,
        kept: Vec::new(),
    }
}

/// A document of the section `host`.
pub(crate) fn of(items: Vec<Item>) -> Document {
    document(Section::Host, items)
}

pub(crate) fn item(id: &str, what: ItemKind) -> Item {
    Item {
        id: id.into(),
        change: ChangeClass::Live,
        what,
    }
}

pub(crate) fn folder(path: &str) -> Item {
    let what = Directory {
        path: path.into(),
        keep: false,
    };
    item(&format!("directory:{path}"), ItemKind::Directory(what))
}

pub(crate) fn file(path: &str, content: &str) -> Item {
    file_for(path, content, &[])
}

/// A file that services have open.
pub(crate) fn file_for(path: &str, content: &str, users: &[&str]) -> Item {
    let what = File {
        path: path.into(),
        sha256: sha256_hex(content.as_bytes()),
        size: content.len() as u64,
        source: FileSource::Inline {
            base64: STANDARD.encode(content),
        },
        users: users.iter().map(|user| (*user).to_owned()).collect(),
        private: false,
    };
    item(&format!("file:{path}"), ItemKind::File(what))
}

/// A file whose content is uploaded.
pub(crate) fn staged(path: &str, content: &[u8]) -> Item {
    let what = File {
        path: path.into(),
        sha256: sha256_hex(content),
        size: content.len() as u64,
        source: FileSource::Staged {
            name: sha256_hex(content),
        },
        users: Vec::new(),
        private: false,
    };
    item(&format!("file:{path}"), ItemKind::File(what))
}

pub(crate) fn environment(name: &str, value: &str, reboot: bool) -> Item {
    let what = Environment {
        name: name.into(),
        value: Some(value.into()),
        reboot,
    };
    item(&format!("environment:{name}"), ItemKind::Environment(what))
}

/// A service of ours, which runs.
pub(crate) fn service(name: &str, command: &str, depends: &[&str]) -> Item {
    let what = Service {
        name: name.into(),
        display: String::new(),
        description: format!("{name} of ours"),
        command: command.into(),
        depends: depends.iter().map(|on| (*on).to_owned()).collect(),
        start: StartType::Auto,
        failure: FailureActions {
            reset_seconds: 86_400,
            restart_delays_ms: vec![5_000],
        },
        environment: std::iter::once(("HTTP_PROXY".to_owned(), "http://proxy".to_owned()))
            .collect(),
        priority: None,
        running: true,
        start_timeout_ms: 30_000,
        log: None,
    };
    item(&format!("service:{name}"), ItemKind::Service(what))
}

/// The host section of a small node: three programs and their services, one of them wrapped.
pub(crate) fn node(version: &str) -> Document {
    let program = |name: &str| format!(r"C:\k\{version}\{name}.exe");
    let kubelet = format!(
        r"{} -log-file=C:\var\log\kubelet\kubelet.log {} --config=C:\k\kubelet.conf",
        program("kube-log-runner"),
        program("kubelet")
    );
    let items = vec![
        folder(r"C:\k"),
        folder(r"C:\var\lib\kubelet\pki"),
        environment("HTTP_PROXY", "http://proxy", false),
        file(&program("containerd"), "MZ containerd"),
        file(&program("kube-log-runner"), "MZ kube-log-runner"),
        file(&program("kubelet"), &format!("MZ kubelet {version}")),
        file_for(r"C:\k\kubelet.conf", version, &["kubelet"]),
        file(r"C:\k\bootstrap-kubeconfig", "token: s3cret"),
        service(
            "containerd",
            &format!("{} --run-service", program("containerd")),
            &[],
        ),
        service("kubelet", &kubelet, &["containerd"]),
    ];
    Document {
        version: version.into(),
        ..of(items)
    }
}

/// The node section that goes with it.
pub(crate) fn network_section(version: &str) -> Document {
    let overlay = format!(r"C:\k\{version}\hybrid-overlay-node.exe");
    let proxy = format!(r"C:\k\{version}\kube-proxy.exe");
    let network = ItemKind::HnsNetwork(HnsNetwork {
        name: "overlay".into(),
        wait_ms: 60_000,
        create: None,
    });
    let endpoint = ItemKind::HnsEndpoint(HnsEndpoint {
        network: "overlay".into(),
        name: "VIPEndpoint".into(),
        users: vec!["kube-proxy".into()],
    });
    let config = ItemKind::NetworkFile(NetworkFile {
        path: r"C:\k\kube-proxy.conf".into(),
        template: "subnet @{HNS_SUBNET} vip @{HNS_ENDPOINT_IP} host @{HNS_MANAGEMENT_IP}".into(),
        network: "overlay".into(),
        endpoint: Some("VIPEndpoint".into()),
        users: vec!["kube-proxy".into()],
    });
    let items = vec![
        file(&overlay, "MZ hybrid-overlay-node"),
        file(&proxy, "MZ kube-proxy"),
        service("hybrid-overlay-node", &overlay, &["kubelet"]),
        item("hns_network:overlay", network),
        item("hns_endpoint:VIPEndpoint", endpoint),
        item(r"network_file:C:\k\kube-proxy.conf", config),
        service("kube-proxy", &proxy, &["hybrid-overlay-node"]),
    ];
    Document {
        version: version.into(),
        ..document(Section::Node, items)
    }
}

/// A host on which hybrid-overlay-node makes the network.
pub(crate) fn host_with_overlay() -> SimulatedHost {
    let mut host = SimulatedHost::with_containers();
    host.makes_networks("hybrid-overlay-node", &[("overlay", "10.132.1.0/24")]);
    host
}

/// A service of another program, which runs.
pub(crate) fn foreign_service(host: &mut SimulatedHost, name: &str, depends: &[&str]) {
    let program = format!(r"C:\Program Files\{name}\{name}.exe");
    host.put(&program, b"MZ");
    let settings = ServiceSettings {
        command: Some(format!("\"{program}\"")),
        depends: Some(depends.iter().map(|on| (*on).to_owned()).collect()),
        ..ServiceSettings::default()
    };
    host.install(name, &settings);
    assert!(host.start(name), "{name} runs");
}

pub(crate) fn state(answer: &Answer, id: &str) -> ItemState {
    answer
        .items
        .iter()
        .find(|item| item.id == id)
        .unwrap_or_else(|| panic!("{id} is not in {:#?}", answer.items))
        .state
}

pub(crate) fn detail<'a>(answer: &'a Answer, id: &str) -> &'a str {
    let item = answer.items.iter().find(|item| item.id == id);
    item.map_or("", |item| &item.detail)
}

pub(crate) fn code(answer: &Answer) -> Option<FailureCode> {
    answer.failure.as_ref().map(|failure| failure.code)
}

/// Nothing failed, nothing differs, nothing waits.
#[track_caller]
pub(crate) fn assert_converged(answer: &Answer) {
    assert!(
        answer.converged(),
        "{:#?} {:#?} {:?}",
        answer.failure,
        answer.items,
        answer.reboot
    );
}

/// A plan that finds nothing to do.
#[track_caller]
pub(crate) fn assert_as_asked(host: &mut SimulatedHost, document: &Document) {
    let answer = plan(host, document);
    assert_converged(&answer);
    assert_eq!(answer.reboot, Reboot::None);
    let changed = answer.items.iter().find(|item| item.state != ItemState::Ok);
    assert_eq!(changed, None);
}

/// A program that stays in STOP_PENDING.
pub(crate) fn deaf() -> Behaviour {
    Behaviour {
        ignores_stop: true,
        ..Behaviour::default()
    }
}
