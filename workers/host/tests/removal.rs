//! A removal proves that all is gone: Windows' answer to a deletion is no proof.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_host::ops::{Exclusions, ServiceSettings, Start};
use dormer_host_sim::SimulatedHost;
use dormer_profile::{
    document::{ChangeClass, Document},
    drift::differences,
    invocation::Mode as Asked,
    item::{
        Certificate, DefenderExclusion, DisabledService, Firewall, HnsCreate, HnsEndpoint,
        HnsNetwork, ItemKind, Lingering, Protocol, Registry, RegistryValue,
    },
    sha256_hex,
};

use crate::harness::{
    apply, ask, assert_converged, call, environment, file, folder, foreign_service, item, node, of,
    plan, remove, service,
};

const KEY: &str = r"SYSTEM\CurrentControlSet\Services\hns\State";
const ROOT: &[u8] = b"a root of ours";
const PROGRAM: &str = r"C:\k\agent.exe";
const WICD: &str = "windows-instance-config-daemon";

/// A document with an item of each kind that a removal takes away.
fn one_of_each() -> Document {
    let registry = Registry {
        key: KEY.into(),
        name: "Mended".into(),
        value: RegistryValue::Dword(1),
        static_address: false,
        windows_builds: Vec::new(),
    };
    let firewall = Firewall {
        name: "dormer-kubelet".into(),
        protocol: Protocol::Tcp,
        port: 10_250,
    };
    let exclusion = DefenderExclusion {
        process: PROGRAM.into(),
    };
    let root = Certificate {
        sha256: sha256_hex(ROOT),
        base64: STANDARD.encode(ROOT),
    };
    let create = HnsCreate {
        network_type: "L2Bridge".into(),
        subnet: "192.168.255.0/30".into(),
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
    let lingering = Lingering {
        process: "agent-child".into(),
    };
    let disabled = DisabledService { name: WICD.into() };
    of(vec![
        folder(r"C:\k"),
        file(PROGRAM, "MZ agent"),
        file(r"C:\data\list", "x"),
        environment("HTTP_PROXY", "http://proxy", false),
        item("registry:Mended", ItemKind::Registry(registry)),
        item("firewall:dormer-kubelet", ItemKind::Firewall(firewall)),
        item("exclusion", ItemKind::DefenderExclusion(exclusion)),
        item("certificate", ItemKind::Certificate(root)),
        item("network", ItemKind::HnsNetwork(network)),
        item("endpoint", ItemKind::HnsEndpoint(endpoint)),
        item("lingering", ItemKind::Lingering(lingering)),
        item("disabled", ItemKind::DisabledService(disabled)),
        service("agent", PROGRAM, &[]),
    ])
}

fn converged() -> SimulatedHost {
    let mut host = SimulatedHost::with_containers();
    *host.exclusions() = Some(Exclusions::default());
    foreign_service(&mut host, WICD, &[]);
    let by_itself = ServiceSettings {
        start: Some(Start::Auto),
        ..ServiceSettings::default()
    };
    host.configure(WICD, &by_itself);
    assert_converged(&apply(&mut host, &one_of_each()));
    host.spawn(r"C:\k\agent-child.exe");
    host
}

#[test]
fn a_removal_ends_though_a_service_of_others_needs_one_that_it_removed() {
    let mut host = converged();
    foreign_service(&mut host, "audit", &["agent"]);
    assert_converged(&remove(&mut host));
    // It cannot run without the other one, and no later call tries.
    assert_converged(&remove(&mut host));
}

#[test]
fn a_deletion_that_did_nothing_fails_the_removal_by_the_things_name() {
    assert_converged(&remove(&mut converged()));
    let sha256 = sha256_hex(ROOT);
    let root = format!("root:{sha256}");
    let rows: [(&str, &[(&'static str, &str)]); 13] = [
        ("service:agent", &[("service_delete", "\"agent\"")]),
        ("lingering:agent-child", &[("process_end", "")]),
        // A network takes its endpoints with it.
        ("endpoint:VIPEndpoint", &[("hns_call", "\"delete\"")]),
        ("network:External", &[("hns_call", "\"/networks/")]),
        ("disabled:windows-instance", &[("service_change", WICD)]),
        (
            "firewall:dormer-kubelet",
            &[("firewall_remove", "dormer-kubelet")],
        ),
        (r"exclusion:C:\k\agent.exe", &[("defender_remove", "")]),
        (
            "environment:HTTP_PROXY",
            &[("registry_delete", "http_proxy")],
        ),
        (r"State\Mended", &[("registry_delete", "\"mended\"")]),
        (&root, &[("root_remove", &sha256)]),
        (r"file:C:\data\list", &[("file_delete", r"c:\data\list")]),
        (r"directory:C:\k", &[("tree_remove", r"c:\k")]),
        (
            r"directory:C:\data",
            &[("directory_remove", r#""c:\data""#)],
        ),
    ];
    for (thing, ignored) in rows {
        let mut host = converged();
        for (operation, about) in ignored {
            host.ignore(operation, about);
        }
        // What is there still is no less there at the second removal.
        for _ in 0..2 {
            let failure = remove(&mut host).failure.expect(thing);
            let named = failure.message.contains(thing)
                || failure.item.is_some_and(|item| item.contains(thing));
            assert!(named, "{thing}: {}", failure.message);
        }
        host.heed();
        assert_converged(&remove(&mut host));
    }
}

#[test]
fn a_folder_that_others_use_stays_and_is_no_failure() {
    let mut host = converged();
    host.put(r"C:\data\theirs", b"x");
    assert_converged(&remove(&mut host));
    assert!(host.has_folder(r"C:\data"));
}

/// A file of the kubelet, and an address that host-local gave to a pod.
const OF_A_NODE: [&str; 2] = [
    r"C:\var\lib\kubelet\pods\a\etc-hosts",
    r"C:\var\lib\cni\networks\overlay\10.132.1.9",
];

fn fill(host: &mut SimulatedHost) {
    for path in OF_A_NODE {
        host.put(path, b"x");
    }
}

fn there(host: &SimulatedHost) -> [bool; 2] {
    OF_A_NODE.map(|path| host.file(path).is_some())
}

#[test]
fn what_a_node_filled_goes_also_by_the_second_call_of_a_removal() {
    let mut host = SimulatedHost::with_containers();
    assert_converged(&apply(&mut host, &node("v1")));
    fill(&mut host);
    // The kubelet is gone when the first call fails.
    host.refuse("registry_delete", 1, 5);
    let failed = remove(&mut host).failure.expect("it fails");
    assert_eq!(failed.item.as_deref(), Some("environment:HTTP_PROXY"));
    assert_eq!((host.service("kubelet"), there(&host)), (None, [true; 2]));
    assert_converged(&remove(&mut host));
    assert_eq!(there(&host), [false; 2]);
    assert!(!host.has_folder(r"C:\var\lib"));
}

#[test]
fn a_removal_that_is_given_up_takes_nothing_from_the_node_that_comes_back() {
    let mut host = SimulatedHost::with_containers();
    assert_converged(&apply(&mut host, &node("v1")));
    host.refuse("registry_delete", 1, 5);
    assert!(remove(&mut host).failure.is_some());
    let later = |host: &mut SimulatedHost, version| {
        let answer = ask(host, call(Asked::Apply, 3), Some(&node(version)));
        assert_converged(&answer);
    };
    later(&mut host, "v1");
    fill(&mut host);
    later(&mut host, "v2");
    assert_eq!(there(&host), [true; 2]);
    assert_converged(&ask(&mut host, call(Asked::Remove, 4), None));
    assert_eq!(there(&host), [false; 2]);
}

#[test]
fn addresses_of_an_earlier_node_are_free_again_once_nobody_uses_them() {
    let [_, address] = OF_A_NODE;
    let leftover = |host: &mut SimulatedHost| host.put(address, b"gone-pod");
    // A container runs.
    let mut host = SimulatedHost::with_containers();
    leftover(&mut host);
    let shim = host.spawn(r"C:\k\containerd-shim-runhcs-v1.exe");
    assert!(shim != 0);
    assert_converged(&apply(&mut host, &of(vec![folder(r"C:\k")])));
    assert!(host.file(address).is_some(), "a container has it");
    // A foreign kubelet is there.
    let mut host = SimulatedHost::with_containers();
    leftover(&mut host);
    foreign_service(&mut host, "kubelet", &[]);
    assert_converged(&apply(&mut host, &of(vec![folder(r"C:\k")])));
    assert!(host.file(address).is_some(), "a node is there");
    // No user is left.
    let mut host = SimulatedHost::with_containers();
    leftover(&mut host);
    assert_converged(&plan(&mut host, &of(Vec::new())));
    assert!(host.file(address).is_some(), "a plan changes nothing");
    assert_converged(&apply(&mut host, &node("v1")));
    assert!(host.file(address).is_none(), "no pod has it");
    // From now on it is the node's.
    leftover(&mut host);
    assert_converged(&apply(&mut host, &node("v2")));
    assert!(host.file(address).is_some(), "the node's own");
}

/// A layer drops a service, a process or a firewall rule: a plan says so, with the class of what that disturbs.
#[test]
fn a_plan_names_what_the_document_has_no_longer() {
    let mut host = converged();
    let all = one_of_each();
    for (dropped, id, class) in [
        ("service:agent", "service:agent", ChangeClass::Drain),
        ("lingering", "lingering:agent-child", ChangeClass::Drain),
        (
            "firewall:dormer-kubelet",
            "firewall:dormer-kubelet",
            ChangeClass::Live,
        ),
    ] {
        let mut less = all.clone();
        less.version = format!("without {dropped}");
        less.items.retain(|item| item.id != dropped);
        assert_eq!(less.items.len() + 1, all.items.len(), "{dropped}");
        let planned = plan(&mut host, &less);
        let found = differences(&less, &planned);
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.id.as_str(), one.change, one.detail.as_str()))
            .collect();
        assert_eq!(found, [(id, class, "is no longer wanted")]);
        // Once it is gone, nothing differs.
        assert_converged(&apply(&mut host, &less));
        assert_eq!(differences(&less, &plan(&mut host, &less)), []);
        assert_converged(&apply(&mut host, &all));
    }
}
