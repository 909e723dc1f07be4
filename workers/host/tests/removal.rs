//! A removal proves that all is gone: Windows' answer to a deletion is no proof.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_host::ops::{Exclusions, ServiceSettings, Start};
use dormer_host_sim::SimulatedHost;
use dormer_profile::{
    document::Document,
    item::{
        Certificate, DefenderExclusion, DisabledService, Firewall, HnsCreate, HnsEndpoint,
        HnsNetwork, ItemKind, Lingering, Protocol, Registry, RegistryValue,
    },
    sha256_hex,
};

use crate::harness::{
    apply, assert_converged, environment, file, folder, foreign_service, item, of, remove, service,
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
