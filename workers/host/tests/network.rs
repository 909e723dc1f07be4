//! Networks: HNS by its numbers, routes, and what a boot takes.

use dormer_host::{
    BOOT_SERVICE,
    ops::{Interface, InterfaceAddress, Route, ServiceState, Start},
};
use dormer_host_sim::{Behaviour, SimulatedHost};
use dormer_profile::{
    answer::{FailureCode, ItemState},
    item::{HnsCreate, HnsNetwork, Item, ItemKind},
};

use crate::harness::{
    apply, ask, assert_as_asked, assert_converged, boot, call, code, detail, host_with_overlay,
    item, network_section, node, of, plan, remove, state,
};
use dormer_profile::invocation::Mode as Asked;

const LOCK: &str = r"C:\Windows\dormer\state\lock";
const PROXY_CONFIG: &str = r"C:\k\kube-proxy.conf";

fn text(host: &SimulatedHost, path: &str) -> String {
    String::from_utf8(host.file(path).unwrap_or_default()).expect("text")
}

/// A host on which both sections were converged.
fn converged() -> SimulatedHost {
    let mut host = host_with_overlay();
    assert_converged(&apply(&mut host, &node("v1")));
    assert_converged(&apply(&mut host, &network_section("v1")));
    host
}

fn bridge(subnet: &str) -> Item {
    let create = HnsCreate {
        network_type: "L2Bridge".into(),
        subnet: subnet.into(),
        gateway: "10.0.0.1".into(),
        vsid: None,
    };
    let what = HnsNetwork {
        name: "External".into(),
        wait_ms: 60_000,
        create: Some(create),
    };
    item("network", ItemKind::HnsNetwork(what))
}

#[test]
fn a_node_gets_its_network_its_endpoint_and_what_they_say() {
    let mut host = converged();
    assert_eq!(
        text(&host, PROXY_CONFIG),
        "subnet 10.132.1.0/24 vip 10.132.1.2 host 10.0.0.11"
    );
    assert_as_asked(&mut host, &network_section("v1"));
    // HNS was not started after the boot: it starts on demand, and we demanded it.
    assert_eq!(host.service_state("hns"), Some(ServiceState::Running));
}

#[test]
fn no_pod_gets_the_source_address() {
    let mut host = converged();
    let reserved = r"C:\var\lib\cni\networks\overlay\10.132.1.2";
    assert_eq!(text(&host, reserved), "dormer-VIPEndpoint\r\nVIPEndpoint");
    // host-local's folder was emptied: the address is free until it is reserved again.
    remove_file(&mut host, reserved);
    assert!(
        detail(
            &plan(&mut host, &network_section("v1")),
            "hns_endpoint:VIPEndpoint"
        )
        .contains("not reserved")
    );
    assert_converged(&apply(&mut host, &network_section("v1")));
    assert!(host.file(reserved).is_some());
}

fn remove_file(host: &mut SimulatedHost, path: &str) {
    use dormer_host::ops::{Ask as _, FileDelete, Host as _, OperationRequest, Step};
    let operation = FileDelete { path: path.into() }.operation();
    let step = Step::default();
    dormer_host::block_on(host.perform(OperationRequest { step, operation })).expect("deleted");
}

#[test]
fn a_service_that_does_not_answer_is_no_missing_network() {
    for number in [0x8007_06ba, 0x8007_06bf, 0x8007_0426, 0x803b_0020] {
        let mut host = converged();
        // For a while: it is asked again, and nothing is made.
        host.refuse("hns_call", 3, number);
        let answer = apply(&mut host, &network_section("v1"));
        assert_converged(&answer);
        assert!(
            answer.items.iter().all(|item| item.state == ItemState::Ok),
            "{number:x} {:#?}",
            answer.items
        );
        // For long: a failure that says so.
        host.refuse("hns_call", 10_000, number);
        let answer = apply(&mut host, &network_section("v1"));
        assert_eq!(code(&answer), Some(FailureCode::HnsFailed), "{number:x}");
    }
}

#[test]
fn an_endpoint_counts_only_where_it_serves() {
    // A call that died between making and attaching left one without a card.
    let mut host = converged();
    let endpoints = host.hns("GET", "/endpoints", "").expect("endpoints");
    let value: serde_json::Value = serde_json::from_str(&endpoints).expect("JSON");
    let id = value["Output"][0]["ID"].as_str().expect("an id").to_owned();
    let network = value["Output"][0]["VirtualNetwork"]
        .as_str()
        .expect("a network")
        .to_owned();
    host.hns("DELETE", &format!("/endpoints/{id}"), "")
        .expect("deleted");
    let body = format!(r#"{{"Name":"VIPEndpoint","VirtualNetwork":"{network}"}}"#);
    host.hns("POST", "/endpoints", &body).expect("made");
    let differs = plan(&mut host, &network_section("v1"));
    assert_eq!(
        detail(&differs, "hns_endpoint:VIPEndpoint"),
        "is not attached to the host, or in another network"
    );
    let before = host.process_of("kube-proxy");
    assert_converged(&apply(&mut host, &network_section("v1")));
    assert_as_asked(&mut host, &network_section("v1"));
    assert_ne!(
        host.process_of("kube-proxy"),
        before,
        "who used the old one was started anew"
    );
}

#[test]
fn an_attachment_that_is_there_and_a_network_that_exists_are_well() {
    let mut host = SimulatedHost::with_containers();
    host.start("hns");
    let document = of(vec![bridge("192.168.255.0/30")]);
    // Another made it between our look and our request.
    let body =
        r#"{"Name":"External","Type":"L2Bridge","Subnets":[{"AddressPrefix":"192.168.255.0/30"}]}"#;
    assert_converged(&apply(&mut host, &document));
    assert_eq!(
        host.hns("POST", "/networks", body)
            .map_err(|error| error.code),
        Err(0x803b_0010)
    );
    assert_as_asked(&mut host, &document);
    // Of another kind or subnet it is another network: made anew.
    let other = of(vec![bridge("192.168.254.0/30")]);
    assert!(detail(&plan(&mut host, &other), "network").contains("192.168.255.0/30"));
    assert_converged(&apply(&mut host, &other));
    assert_as_asked(&mut host, &other);
}

#[test]
fn a_management_address_of_nobody_is_refused() {
    let mut host = SimulatedHost::with_containers();
    host.cards()[0].addresses.clear();
    let answer = apply(&mut host, &of(vec![bridge("192.168.255.0/30")]));
    assert_eq!(
        code(&answer),
        Some(FailureCode::NoDefaultRoute),
        "no network on a card without an address"
    );
    host.start("hns");
    let body =
        r#"{"Name":"External","Type":"L2Bridge","Subnets":[{"AddressPrefix":"192.168.255.0/30"}]}"#;
    host.hns("POST", "/networks", body).expect("made");
    let answer = plan(&mut host, &of(vec![bridge("192.168.255.0/30")]));
    assert_eq!(
        detail(&answer, "network"),
        "has the management address 169.254.10.10"
    );
}

#[test]
fn a_plan_compares_nothing_with_a_stopped_hns() {
    let mut host = converged();
    host.kill("hns");
    let answer = plan(&mut host, &network_section("v1"));
    assert_converged(&answer);
    for id in [
        "hns_network:overlay",
        "hns_endpoint:VIPEndpoint",
        r"network_file:C:\k\kube-proxy.conf",
    ] {
        assert_eq!(detail(&answer, id), "hns does not run: not compared");
    }
    // An apply starts it, and compares.
    assert_converged(&apply(&mut host, &network_section("v1")));
    assert_as_asked(&mut host, &network_section("v1"));
}

#[test]
fn a_host_without_hns_says_so() {
    let mut host = SimulatedHost::new();
    let answer = apply(&mut host, &of(vec![bridge("192.168.255.0/30")]));
    assert_eq!(code(&answer), Some(FailureCode::HnsMissing));
    assert_eq!(
        detail(
            &plan(&mut host, &of(vec![bridge("192.168.255.0/30")])),
            "network"
        ),
        "is not there"
    );
}

fn metadata_route() -> Item {
    let what = dormer_profile::item::Route {
        prefix: "169.254.169.254/32".into(),
    };
    item("route", ItemKind::Route(what))
}

fn card(index: u32, up: bool, metric: u32, gateway: &str) -> Interface {
    Interface {
        index,
        luid: u64::from(index) << 32,
        name: format!("Ethernet {index}"),
        up,
        loopback: false,
        mac: String::new(),
        metric,
        addresses: vec![InterfaceAddress {
            ipv4: format!("10.{index}.0.2"),
            prefix_length: 24,
            preferred: true,
        }],
        gateways: vec![gateway.into()],
    }
}

fn by(prefix: &str, interface: u32, next_hop: &str, metric: u32) -> Route {
    Route {
        prefix: prefix.into(),
        next_hop: next_hop.into(),
        interface,
        metric,
    }
}

#[test]
fn a_route_takes_the_cheapest_gateway_of_a_card_that_is_up() {
    let mut host = SimulatedHost::new();
    *host.cards() = vec![
        card(4, false, 1, "10.4.0.1"),
        card(5, true, 90, "10.5.0.1"),
        card(6, true, 20, "10.6.0.1"),
    ];
    *host.routes() = vec![
        by("0.0.0.0/0", 4, "10.4.0.1", 0),
        // By its own metric the cheaper one, with its card's the dearer.
        by("0.0.0.0/0", 5, "10.5.0.1", 0),
        by("0.0.0.0/0", 6, "10.6.0.1", 10),
        // On the card that died with the virtual switch: it leads nowhere.
        by("169.254.169.254/32", 4, "10.4.0.1", 15),
    ];
    let document = of(vec![metadata_route()]);
    assert_eq!(
        state(&plan(&mut host, &document), "route"),
        ItemState::Differs
    );
    assert_converged(&apply(&mut host, &document));
    let added = host.routes().last().cloned().expect("a route");
    assert_eq!((added.interface, added.next_hop.as_str()), (6, "10.6.0.1"));
    assert_as_asked(&mut host, &document);
    host.refuse("route_add", 1, 5_010);
    host.routes().pop();
    assert_converged(&apply(&mut host, &document));
    *host.routes() = Vec::new();
    assert_eq!(
        code(&apply(&mut host, &document)),
        Some(FailureCode::NoDefaultRoute)
    );
}

#[test]
fn amazons_agent_keeps_its_routes_where_it_is_new_enough() {
    let agent = r"C:\Program Files\Amazon\EC2Launch\EC2Launch.exe";
    for (version, runs) in [
        ([2, 0, 99, 0], false),
        ([2, 0, 2107, 0], true),
        ([2, 1, 0, 0], true),
    ] {
        let mut host = SimulatedHost::new();
        host.put(agent, b"MZ");
        host.set_version(agent, version);
        let answer = apply(&mut host, &of(vec![metadata_route()]));
        assert_converged(&answer);
        assert_eq!(host.ran().len(), usize::from(runs), "{version:?}");
        assert_eq!(
            detail(&answer, "route").contains("too old"),
            !runs,
            "{version:?}"
        );
        if runs {
            assert_eq!(
                host.ran()[0],
                format!("{agent} run-task add-routes --persistent")
            );
        }
        // What it said is no evidence: the route was not there, so ours was added.
        assert!(
            host.routes()
                .iter()
                .any(|route| route.prefix == "169.254.169.254/32")
        );
    }
}

#[test]
fn a_boot_is_put_right_without_anybody() {
    let mut host = converged();
    let mut with_route = network_section("v1");
    with_route.items.push(metadata_route());
    assert_converged(&apply(&mut host, &with_route));
    let service = host.service(BOOT_SERVICE).expect("the boot service");
    assert_eq!(service.start, Start::Auto);
    assert_eq!(
        service.command,
        r"C:\Windows\dormer\bin\dormer-host-abababababababab.exe boot"
    );
    for name in ["containerd", "kubelet", "hybrid-overlay-node", "kube-proxy"] {
        assert_eq!(
            host.service(name).map(|config| config.start),
            Some(Start::Demand),
            "{name}"
        );
    }
    host.reboot();
    assert_eq!(host.service_state("kubelet"), Some(ServiceState::Stopped));
    let answer = boot(&mut host);
    assert_eq!(answer.failure, None);
    for name in ["containerd", "kubelet", "hybrid-overlay-node", "kube-proxy"] {
        assert_eq!(
            host.service_state(name),
            Some(ServiceState::Running),
            "{name}"
        );
    }
    assert_as_asked(&mut host, &node("v1"));
    assert_as_asked(&mut host, &with_route);
}

#[test]
fn the_address_of_before_a_boot_is_a_pods_again() {
    let mut host = converged();
    let folder = r"C:\var\lib\cni\networks\overlay\";
    assert_eq!(host.paths(folder), [format!("{folder}10.132.1.2")]);
    host.reboot();
    host.start("hns");
    // Another takes the first address of the network before us.
    let body =
        r#"{"Name":"overlay","Type":"Overlay","Subnets":[{"AddressPrefix":"10.132.1.0/24"}]}"#;
    let made = host.hns("POST", "/networks", body).expect("made");
    let made: serde_json::Value = serde_json::from_str(&made).expect("JSON");
    let body = serde_json::json!({ "Name": "other", "VirtualNetwork": made["Output"]["ID"] });
    host.hns("POST", "/endpoints", &body.to_string())
        .expect("made");
    assert_eq!(boot(&mut host).failure, None);
    assert_eq!(host.paths(folder), [format!("{folder}10.132.1.3")]);
    assert!(text(&host, PROXY_CONFIG).contains("vip 10.132.1.3"));
}

#[test]
fn a_removal_after_a_boot_takes_the_network_too() {
    let mut host = SimulatedHost::with_containers();
    assert_converged(&apply(&mut host, &of(vec![bridge("192.168.255.0/30")])));
    host.reboot();
    assert_eq!(host.service_state("hns"), Some(ServiceState::Stopped));
    assert_eq!(remove(&mut host).failure, None);
    host.start("hns");
    let networks = host.hns("GET", "/networks", "").expect("networks");
    assert!(!networks.contains("External"), "{networks}");
}

#[test]
fn a_boot_run_that_fails_leaves_the_node_not_ready_and_tells_the_next_probe() {
    let mut host = converged();
    host.reboot();
    host.behave(
        "hybrid-overlay-node.exe",
        Behaviour {
            fails: Some(1),
            ..Behaviour::default()
        },
    );
    let answer = boot(&mut host);
    assert_eq!(code(&answer), Some(FailureCode::ServiceCrashed));
    assert_eq!(
        host.service_state("kubelet"),
        Some(ServiceState::Stopped),
        "the Node is NotReady"
    );
    let probed = ask(&mut host, call(Asked::Probe, 2), None);
    assert_eq!(state(&probed, "boot"), ItemState::Failed);
    assert!(detail(&probed, "boot").contains("hybrid-overlay-node"));
    host.behave("hybrid-overlay-node.exe", Behaviour::default());
    // A worker makes right what the boot run could not.
    let mut mended = host.clone();
    let probe = |host: &mut SimulatedHost| ask(host, call(Asked::Probe, 2), None).items;
    assert_converged(&apply(&mut mended, &node("v1")));
    assert_eq!(
        probe(&mut mended).len(),
        1,
        "the node section is not right yet"
    );
    assert_converged(&apply(&mut mended, &network_section("v1")));
    assert!(probe(&mut mended).is_empty());
    // The next boot is another.
    host.reboot();
    assert_eq!(boot(&mut host).failure, None);
    assert!(ask(&mut host, call(Asked::Probe, 2), None).items.is_empty());
}

#[test]
fn a_boot_run_waits_for_the_call_that_has_the_host() {
    let mut host = converged();
    host.reboot();
    // A worker's comparison, which began while the service of the boot run did.
    host.lock_by_another_for(LOCK, 60_000);
    assert_eq!(boot(&mut host).failure, None);
    for name in ["containerd", "kubelet", "hybrid-overlay-node", "kube-proxy"] {
        let state = host.service_state(name);
        assert_eq!(state, Some(ServiceState::Running), "{name}");
    }
    assert!(ask(&mut host, call(Asked::Probe, 2), None).items.is_empty());
}

#[test]
fn a_boot_run_that_never_gets_the_host_tells_the_next_probe() {
    let mut host = converged();
    host.reboot();
    host.lock_by_another(LOCK);
    assert_eq!(code(&boot(&mut host)), Some(FailureCode::HostBusy));
    let probed = ask(&mut host, call(Asked::Probe, 2), None);
    assert_eq!(state(&probed, "boot"), ItemState::Failed);
    assert!(
        detail(&probed, "boot").contains("works on this host"),
        "{}",
        detail(&probed, "boot")
    );
    // The next boot is another.
    host.reboot();
    assert_eq!(boot(&mut host).failure, None);
    assert!(ask(&mut host, call(Asked::Probe, 2), None).items.is_empty());
}

#[test]
fn a_boot_run_that_fails_before_its_first_step_tells_the_next_probe() {
    let mut host = converged();
    host.reboot();
    host.refuse("lock_take", 1, 5);
    assert_eq!(code(&boot(&mut host)), Some(FailureCode::AccessDenied));
    let probed = ask(&mut host, call(Asked::Probe, 2), None);
    assert_eq!(state(&probed, "boot"), ItemState::Failed);
}

#[test]
fn a_boot_run_tries_again_for_minutes() {
    let mut host = converged();
    host.reboot();
    host.refuse("hns_call", 60, 0x803b_0006);
    assert_eq!(boot(&mut host).failure, None);
    assert_eq!(
        host.service_state("kube-proxy"),
        Some(ServiceState::Running)
    );
}

#[test]
fn a_removal_leaves_the_host_as_it_was() {
    let clean = |host: &SimulatedHost| -> Vec<String> {
        let ours =
            |line: &String| line.contains(r"C:\Windows\dormer") || line.starts_with("service hns ");
        host.snapshot()
            .into_iter()
            .filter(|line| !ours(line))
            .collect()
    };
    let mut host = host_with_overlay();
    let before = clean(&host);
    assert_converged(&apply(&mut host, &node("v1")));
    assert_converged(&apply(&mut host, &network_section("v1")));
    // What a node leaves beside what we made.
    host.put(r"C:\var\lib\kubelet\pods\1\token", b"x");
    host.put(
        r"C:\var\lib\cni\networks\overlay\last_reserved_ip.0",
        b"10.132.1.9",
    );
    let answer = remove(&mut host);
    assert_eq!(answer.failure, None, "{:#?}", answer.items);
    assert!(answer.facts.installed.is_empty());
    assert_eq!(clean(&host), before);
    let order: Vec<&str> = answer.items.iter().map(|item| item.id.as_str()).collect();
    let at = |id: &str| {
        order
            .iter()
            .position(|one| *one == id)
            .unwrap_or_else(|| panic!("{id} in {order:?}"))
    };
    assert!(at("service:kube-proxy") < at("service:kubelet"));
    assert!(at("service:kubelet") < at("service:containerd"));
    assert!(at("service:containerd") < at("endpoint:VIPEndpoint"));
    assert!(at("endpoint:VIPEndpoint") < at("network:overlay"));
    assert!(at("network:overlay") < at(r"file:C:\k\v1\kubelet.exe"));
}

#[test]
fn an_upgrade_in_place_touches_what_changed_and_takes_what_nobody_wants() {
    let mut host = converged();
    let containerd = host.process_of("containerd");
    let boot_id = host.boot_id();
    // Only kubelet.exe changes; a file is no longer wanted.
    let mut next = node("v1");
    next.version = "v2".into();
    next.items[5] = crate::harness::file_for(r"C:\k\v1\kubelet.exe", "MZ kubelet v2", &["kubelet"]);
    next.items.remove(7);
    let answer = apply(&mut host, &next);
    assert_converged(&answer);
    assert_eq!(
        host.process_of("containerd"),
        containerd,
        "no runtime was stopped"
    );
    assert_eq!(host.boot_id(), boot_id);
    assert_eq!(
        host.file(r"C:\k\bootstrap-kubeconfig"),
        None,
        "nobody wants it any more"
    );
    assert!(
        host.file(PROXY_CONFIG).is_some(),
        "the other section's things stay"
    );
    assert!(
        host.file(r"C:\var\lib\cni\networks\overlay\10.132.1.2")
            .is_some()
    );
    assert_as_asked(&mut host, &next);
    assert_as_asked(&mut host, &network_section("v1"));
}
