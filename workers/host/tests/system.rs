//! Windows itself: features, names, reboots, environment, roots, firewall, Defender, evidence.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_host::ops::{
    DismState, Exclusions, FirewallPolicy, FirewallRule, PortRange, Root, Value,
};
use dormer_host_sim::SimulatedHost;
use dormer_profile::{
    answer::{FailureCode, FeatureState, ItemState, Reboot},
    builtin,
    document::Section,
    item::{
        Certificate, DefenderExclusion, DynamicPorts, Feature, Firewall, Hostname, Http, Item,
        ItemKind, OnlyCertificates, Protocol, Registry, RegistryValue, SteadyService,
    },
    layers::stack,
    payload::Manifest,
    render::{EXAMPLE_PAYLOAD, Inputs, render},
    sha256_hex,
    values::{Values, join_secrets},
};

use crate::harness::{
    apply, ask, assert_as_asked, assert_converged, call, code, detail, environment, item, node, of,
    plan, remove, state,
};
use dormer_profile::invocation::Mode as Asked;

fn feature(name: &str) -> Item {
    item(
        &format!("feature:{name}"),
        ItemKind::Feature(Feature { name: name.into() }),
    )
}

fn hostname(name: &str) -> Item {
    item(
        "hostname",
        ItemKind::Hostname(Hostname { name: name.into() }),
    )
}

#[test]
fn what_dism_calls_done_is_done() {
    for (answer, needs_reboot) in [
        (Ok(0), false),
        (Ok(1), false),
        (Ok(3_010), true),
        (Err(0x8007_0bc2), true),
    ] {
        let mut host = SimulatedHost::new();
        host.answer_feature(answer);
        let document = of(vec![feature("Containers")]);
        let answered = apply(&mut host, &document);
        assert_eq!(answered.failure, None, "{answer:?}");
        let owed = Reboot::Needed {
            why: vec!["feature:Containers".into()],
        };
        assert_eq!(
            answered.reboot,
            if needs_reboot { owed } else { Reboot::None },
            "{answer:?}"
        );
        if needs_reboot {
            assert_eq!(answered.facts.containers, FeatureState::Pending);
            host.reboot();
        }
        let answered = apply(&mut host, &document);
        assert_converged(&answered);
        assert_eq!(answered.facts.containers, FeatureState::Enabled);
    }
}

#[test]
fn a_busy_dism_is_waited_for() {
    let mut host = SimulatedHost::new();
    for _ in 0..4 {
        host.answer_feature(Err(0x800f_0902));
    }
    host.refuse("feature_read", 3, 0x800f_0902);
    assert_eq!(
        apply(&mut host, &of(vec![feature("Containers")])).failure,
        None
    );
    assert_eq!(host.feature("Containers"), Some(DismState::InstallPending));
}

#[test]
fn what_windows_does_only_after_a_reboot_asks_for_one() {
    for code_of in [0x800f_0806, 0x8007_0bc9] {
        let mut host = SimulatedHost::new();
        host.answer_feature(Err(code_of));
        let answer = apply(&mut host, &of(vec![feature("Containers")]));
        assert_eq!(code(&answer), Some(FailureCode::RebootPending));
        let owed = Reboot::Needed {
            why: vec!["feature:Containers".into()],
        };
        assert_eq!(answer.reboot, owed);
    }
}

#[test]
fn a_feature_without_its_source_is_a_persons() {
    for code_of in [0x800f_081f, 0x800f_0907, 0x800f_0954] {
        let mut host = SimulatedHost::new();
        host.answer_feature(Err(code_of));
        let answer = apply(&mut host, &of(vec![feature("Containers")]));
        assert_eq!(code(&answer), Some(FailureCode::FeatureInstallFailed));
        assert!(
            detail(&answer, "feature:Containers").contains("a person has to"),
            "{:#?}",
            answer.items
        );
        assert_eq!(answer.reboot, Reboot::None);
        let failure = answer.failure.expect("a failure");
        assert!(!failure.retry, "{code_of:x}: trying again mends nothing");
    }
    // What another number says may pass: a download that an outage cut off, or too few resources.
    for code_of in [0x800f_0906, 0x8007_05aa] {
        let mut host = SimulatedHost::new();
        host.answer_feature(Err(code_of));
        let answer = apply(&mut host, &of(vec![feature("Containers")]));
        assert!(answer.failure.is_some_and(|failure| failure.retry));
    }
}

#[test]
fn a_feature_is_asked_for_by_the_name_that_dism_knows() {
    let mut host = SimulatedHost::new();
    host.set_feature("Microsoft-Hyper-V", DismState::Installed);
    assert_converged(&apply(&mut host, &of(vec![feature("Hyper-V")])));
    let answer = apply(&mut host, &of(vec![feature("Nonsense")]));
    assert!(detail(&answer, "feature:Nonsense").contains("no such feature"));
    assert!(answer.failure.is_some_and(|failure| !failure.retry));
}

#[test]
fn a_name_holds_from_the_next_boot_on_and_nothing_starts_before_it() {
    let mut host = SimulatedHost::new();
    let name = "winworker-eu-west-1a-0042";
    let mut document = node("v1");
    document.items.insert(0, hostname(name));
    let answer = apply(&mut host, &document);
    assert_eq!(answer.failure, None);
    assert_eq!(
        answer.reboot,
        Reboot::Needed {
            why: vec!["hostname".into()]
        }
    );
    assert_eq!(answer.facts.hostname_pending.as_deref(), Some(name));
    assert_eq!(state(&answer, "service:kubelet"), ItemState::Skipped);
    assert_eq!(
        host.services(),
        Vec::<String>::new(),
        "no kubelet under the old name"
    );
    assert!(
        host.file(r"C:\k\v1\kubelet.exe").is_some(),
        "the rest is made meanwhile"
    );
    assert!(
        answer.facts.installed.is_empty(),
        "and nothing is called converged"
    );
    // The same call again in the same boot: nothing else.
    assert_eq!(apply(&mut host, &document).reboot, answer.reboot);
    host.reboot();
    let answer = apply(&mut host, &document);
    assert_converged(&answer);
    assert_eq!(
        answer.facts.hostname, name,
        "more than NetBIOS' 15 characters"
    );
}

#[test]
fn a_member_of_a_domain_is_never_renamed() {
    let mut host = SimulatedHost::new();
    host.join_domain("corp.example");
    let answer = apply(&mut host, &of(vec![hostname("other")]));
    assert_eq!(code(&answer), Some(FailureCode::HostnameFailed));
    assert!(detail(&answer, "hostname").contains("corp.example"));
    assert_eq!(answer.facts.hostname_pending, None);
    let failure = answer.failure.expect("a failure");
    assert!(!failure.retry, "only a person renames it");
}

#[test]
fn a_name_that_no_node_may_bear_is_refused() {
    let mut host = SimulatedHost::new();
    for name in ["a_b", "-a", "a.b"] {
        assert_eq!(
            code(&apply(&mut host, &of(vec![hostname(name)]))),
            Some(FailureCode::HostnameFailed),
            "{name}"
        );
    }
}

#[test]
fn a_node_that_bears_a_cut_name_keeps_it() {
    let tcpip = r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters";
    let mut host = SimulatedHost::new();
    for value in ["Hostname", "NV Hostname"] {
        host.set_registry(tcpip, value, Value::Text("WINWORKER-AAAAA".into()));
    }
    let long = of(vec![hostname("winworker-aaaaab")]);
    // A host that does not serve is renamed; one that serves keeps its name, with a finding.
    assert_eq!(
        state(&plan(&mut host, &long), "hostname"),
        ItemState::Differs
    );
    assert_converged(&apply(&mut host, &node("v1")));
    let answer = plan(&mut host, &long);
    assert_eq!(state(&answer, "hostname"), ItemState::Ok);
    assert!(detail(&answer, "hostname").contains("was cut to 15"));
}

#[test]
fn a_variable_for_services_waits_for_a_reboot_even_when_its_value_is_right() {
    let mut host = SimulatedHost::new();
    let document = of(vec![environment("NO_PROXY", ".svc", true)]);
    let owed = Reboot::Needed {
        why: vec!["environment:NO_PROXY".into()],
    };
    assert_eq!(apply(&mut host, &document).reboot, owed);
    assert_eq!(apply(&mut host, &document).reboot, owed);
    assert_eq!(plan(&mut host, &document).reboot, owed);
    host.reboot();
    assert_as_asked(&mut host, &document);
}

/// Who asked compares the lists of two boots: a shorter or another one continues, the same one never ends.
#[test]
fn what_is_owed_is_reported_by_name_after_each_boot() {
    let mut host = SimulatedHost::new();
    let document = of(vec![
        hostname("winworker-0042"),
        feature("Containers"),
        environment("NO_PROXY", ".svc", true),
    ]);
    let owes = |host: &mut SimulatedHost| match apply(host, &document) {
        answer if answer.failure.is_none() => answer.reboot,
        answer => panic!("{:#?}", answer.failure),
    };
    let owed = |why: &[&str]| Reboot::Needed {
        why: why.iter().map(|id| (*id).to_owned()).collect(),
    };
    host.answer_feature(Ok(3_010));
    let first = owed(&["hostname", "feature:Containers", "environment:NO_PROXY"]);
    assert_eq!(owes(&mut host), first);
    for _ in 0..2 {
        host.reboot();
        // A feature can read "install pending" after a boot, too (docs/field-notes.md, Features, HNS, firewall, Defender).
        host.set_feature("Containers", DismState::InstallPending);
        assert_eq!(owes(&mut host), owed(&["feature:Containers"]));
    }
    host.reboot();
    assert_as_asked(&mut host, &document);
}

#[test]
fn windows_own_signs_of_a_reboot_hold_nothing_up() {
    let mut host = SimulatedHost::new();
    host.make_key(
        r"SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending",
    );
    let answer = apply(&mut host, &node("v1"));
    assert_converged(&answer);
    assert!(answer.facts.reboot_pending, "but they are a fact");
}

#[test]
fn a_variable_keeps_its_type_and_one_of_somebody_else_stays() {
    let key = r"SYSTEM\CurrentControlSet\Control\Session Manager\Environment";
    let mut host = SimulatedHost::new();
    host.set_registry(key, "TOOLS", Value::Expand(r"%SystemRoot%\x".into()));
    host.set_registry(key, "NO_PROXY", Value::Text(".svc".into()));
    let document = of(vec![
        environment("TOOLS", r"%SystemRoot%\y", false),
        environment("NO_PROXY", ".svc", false),
    ]);
    assert_converged(&apply(&mut host, &document));
    assert_eq!(
        host.registry(key, "TOOLS"),
        Some(Value::Expand(r"%SystemRoot%\y".into()))
    );
    remove(&mut host);
    assert_eq!(host.registry(key, "TOOLS"), None);
    assert_eq!(
        host.registry(key, "NO_PROXY"),
        Some(Value::Text(".svc".into())),
        "it was so before us"
    );
}

fn value(name: &str, value: RegistryValue, static_address: bool) -> Item {
    let what = Registry {
        key: r"SYSTEM\CurrentControlSet\Services\hns\State".into(),
        name: name.into(),
        value,
        static_address,
        windows_builds: Vec::new(),
    };
    item(&format!("registry:{name}"), ItemKind::Registry(what))
}

#[test]
fn a_value_of_the_registry_is_made_mended_and_removed_and_one_of_somebody_else_stays() {
    let key = r"SYSTEM\CurrentControlSet\Services\hns\State";
    let mut host = SimulatedHost::new();
    host.set_registry(key, "Theirs", Value::Number(7));
    host.set_registry(key, "Mended", Value::Text("1".into()));
    let document = of(vec![
        value("Theirs", RegistryValue::Dword(7), false),
        value("Mended", RegistryValue::Dword(1), false),
        value("Long", RegistryValue::Qword(1 << 40), false),
        value(
            "Texts",
            RegistryValue::Texts(vec!["a".into(), "b".into()]),
            false,
        ),
    ]);
    let answer = apply(&mut host, &document);
    assert_converged(&answer);
    assert_eq!(
        host.registry(key, "Mended"),
        Some(Value::Number(1)),
        "type and all"
    );
    assert_eq!(host.registry(key, "Long"), Some(Value::Long(1 << 40)));
    // What a layer no longer has goes; the key stays.
    let less = of(vec![
        value("Theirs", RegistryValue::Dword(7), false),
        value("Mended", RegistryValue::Dword(1), false),
    ]);
    assert_converged(&apply(&mut host, &less));
    assert_eq!(host.registry(key, "Texts"), None);
    // An administrator changes it meanwhile, and the profile's next version has another. The first is still restored.
    host.set_registry(key, "Mended", Value::Number(5));
    let next = of(vec![
        value("Theirs", RegistryValue::Dword(7), false),
        value("Mended", RegistryValue::Dword(2), false),
        value("New", RegistryValue::Dword(1), false),
    ]);
    assert_converged(&apply(&mut host, &next));
    assert_eq!(host.registry(key, "Mended"), Some(Value::Number(2)));
    remove(&mut host);
    assert_eq!(host.registry(key, "Mended"), Some(Value::Text("1".into())));
    assert_eq!(host.registry(key, "New"), None);
    assert_eq!(
        host.registry(key, "Theirs"),
        Some(Value::Number(7)),
        "it was so before us"
    );
    // A layer without it restores it, too.
    let mut host = SimulatedHost::new();
    host.set_registry(key, "Mended", Value::Text("1".into()));
    assert_converged(&apply(&mut host, &document));
    assert_converged(&apply(&mut host, &of(vec![])));
    assert_eq!(host.registry(key, "Mended"), Some(Value::Text("1".into())));
}

fn dynamic_ports(start: u16, count: u16) -> Item {
    let what = DynamicPorts { start, count };
    item("dynamic-ports:tcp", ItemKind::DynamicPorts(what))
}

#[test]
fn the_dynamic_ports_are_set_and_a_removal_restores_those_before() {
    let theirs = PortRange {
        start: 40_000,
        count: 1_000,
    };
    let range = |start, count| Some(PortRange { start, count });
    let mut host = SimulatedHost::new();
    *host.dynamic_ports() = Some(theirs);
    let document = of(vec![dynamic_ports(34_000, 31_536)]);
    let planned = plan(&mut host, &document);
    assert!(
        detail(&planned, "dynamic-ports:tcp").contains("1000 ports from 40000 on"),
        "{planned:#?}"
    );
    assert_converged(&apply(&mut host, &document));
    assert_eq!(*host.dynamic_ports(), range(34_000, 31_536));
    assert_as_asked(&mut host, &document);
    // An administrator sets another one meanwhile; the profile's next version has a third. The first is still restored.
    *host.dynamic_ports() = range(20_000, 500);
    assert_converged(&apply(&mut host, &document));
    let next = of(vec![dynamic_ports(32_768, 32_768)]);
    assert_converged(&apply(&mut host, &next));
    assert_eq!(*host.dynamic_ports(), range(32_768, 32_768));
    remove(&mut host);
    assert_eq!(*host.dynamic_ports(), Some(theirs));
    // A layer without them restores them, too.
    let mut host = SimulatedHost::new();
    *host.dynamic_ports() = Some(theirs);
    assert_converged(&apply(&mut host, &document));
    assert_converged(&apply(&mut host, &of(vec![])));
    assert_eq!(*host.dynamic_ports(), Some(theirs));
}

#[test]
fn dynamic_ports_that_were_so_before_stay_and_a_windows_that_does_not_tell_is_left_alone() {
    let document = of(vec![dynamic_ports(34_000, 31_536)]);
    let mut host = SimulatedHost::new();
    *host.dynamic_ports() = Some(PortRange {
        start: 34_000,
        count: 31_536,
    });
    assert_converged(&apply(&mut host, &document));
    remove(&mut host);
    assert_eq!(host.dynamic_ports().map(|it| it.start), Some(34_000));
    let mut host = SimulatedHost::new();
    *host.dynamic_ports() = None;
    let answer = apply(&mut host, &document);
    assert_converged(&answer);
    assert!(detail(&answer, "dynamic-ports:tcp").contains("does not tell"));
    assert!(host.ran().is_empty());
}

#[test]
fn dynamic_ports_that_cannot_be_read_or_set_fail_the_call() {
    let mut host = SimulatedHost::new();
    host.refuse("dynamic_ports_read", 1, 0x8004_1001);
    let answer = apply(&mut host, &of(vec![dynamic_ports(34_000, 31_536)]));
    assert_eq!(code(&answer), Some(FailureCode::Other));
    // netsh refuses fewer than 255 ports, and ends with 1.
    let mut host = SimulatedHost::new();
    let answer = apply(&mut host, &of(vec![dynamic_ports(34_000, 10)]));
    assert_eq!(code(&answer), Some(FailureCode::Other));
}

/// The values of the built-in profiles by the build of Windows (docs/differences.md, upstream and sig-windows-tools).
#[test]
fn each_windows_gets_the_values_that_are_for_it() {
    let state = r"SYSTEM\CurrentControlSet\Services\hns\State";
    let overrides = r"SYSTEM\CurrentControlSet\Policies\Microsoft\FeatureManagement\Overrides";
    let card = r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces\{1}";
    for name in ["openshift", "upstream"] {
        let layer = builtin::layer(name).expect("a profile");
        let profile = stack(&[layer]).expect("a profile");
        let values = Values::example("none");
        let inputs = Inputs {
            profile: &profile,
            payload: &Manifest::parse(EXAMPLE_PAYLOAD).expect("a payload"),
            variables: &values.variables(),
            secrets: &join_secrets(&values.api_server, "API CA", "CLIENT CA", "t0ken"),
            keep: &[],
        };
        let rendered = render(&inputs, Section::Host, "v").expect("rendered");
        let items = rendered.document.items.into_iter();
        let document = of(items
            .filter(|item| matches!(item.what, ItemKind::Registry(_)))
            .collect());
        for (build, expected) in [
            (17_763, [Some(80), None, None, Some(1)]),
            (20_348, [None, Some(0), None, None]),
            (26_100, [None, None, Some(1), Some(1)]),
            // One that the profile does not know gets what is for all.
            (30_000, [None, None, None, None]),
        ] {
            let mut host = SimulatedHost::new();
            host.set_build(build);
            host.set_registry(card, "EnableDHCP", Value::Number(0));
            let gateway = Value::Texts(vec!["10.0.0.1".into()]);
            host.set_registry(card, "DefaultGateway", gateway);
            assert_converged(&apply(&mut host, &document));
            let number = |key: &str, name: &str| match host.registry(key, name) {
                Some(Value::Number(number)) => Some(number),
                other => {
                    assert_eq!(other, None, "{name}");
                    None
                }
            };
            let found = [
                number(state, "HNSControlFlag"),
                number(overrides, "1114842764"),
                number(overrides, "520997518"),
                number(state, "DeviceLessNicDisabled"),
            ];
            assert_eq!(found, expected, "{name} {build}");
            let update = r"SOFTWARE\Policies\Microsoft\Windows\WindowsUpdate\AU";
            assert_eq!(number(update, "NoAutoUpdate"), Some(1));
            assert_eq!(number(state, "EnableCompartmentNamespace"), Some(1));
            assert_as_asked(&mut host, &document);
        }
    }
}

/// Only a static address is lost when HNS takes the card over (microsoft/SDN#498).
#[test]
fn a_value_for_static_addresses_is_set_on_hosts_that_have_one() {
    let state = r"SYSTEM\CurrentControlSet\Services\hns\State";
    let card = r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces\{1}";
    let document = of(vec![value(
        "DeviceLessNicDisabled",
        RegistryValue::Dword(1),
        true,
    )]);
    for (dhcp, gateway, wanted) in [
        (1, "10.0.0.1", false),
        (0, "", false),
        (0, "10.0.0.1", true),
    ] {
        let mut host = SimulatedHost::new();
        host.set_registry(card, "EnableDHCP", Value::Number(dhcp));
        host.set_registry(card, "DefaultGateway", Value::Texts(vec![gateway.into()]));
        assert_converged(&apply(&mut host, &document));
        let there = host.registry(state, "DeviceLessNicDisabled").is_some();
        assert_eq!(there, wanted, "DHCP {dhcp}, gateway {gateway}");
    }
}

fn root(der: &[u8]) -> Item {
    let sha256 = sha256_hex(der);
    let what = Certificate {
        sha256: sha256.clone(),
        base64: STANDARD.encode(der),
    };
    item(
        &format!("certificate:{sha256}"),
        ItemKind::Certificate(what),
    )
}

fn only_roots(ders: &[&[u8]]) -> Item {
    let keep = ders.iter().map(|der| sha256_hex(der)).collect();
    item(
        "roots",
        ItemKind::OnlyCertificates(OnlyCertificates { keep }),
    )
}

fn in_store(der: &[u8], name: &str, own: bool) -> Root {
    Root {
        sha256: sha256_hex(der),
        name: name.into(),
        own,
    }
}

#[test]
fn only_our_own_roots_go() {
    let mut host = SimulatedHost::new();
    // One of the customer's that we ask for, too; one that is there by policy alone.
    host.roots().push(in_store(b"customer", "", true));
    host.roots().push(in_store(b"policy", "", false));
    let all: [&[u8]; 3] = [b"customer", b"policy", b"ours"];
    let document = of(vec![
        root(b"customer"),
        root(b"policy"),
        root(b"ours"),
        only_roots(&all),
    ]);
    assert_converged(&apply(&mut host, &document));
    assert_as_asked(&mut host, &document);
    let added: Vec<Root> = host
        .roots()
        .iter()
        .filter(|root| root.name == "dormer")
        .cloned()
        .collect();
    assert_eq!(
        added,
        [
            in_store(b"policy", "dormer", true),
            in_store(b"ours", "dormer", true)
        ]
    );
    // No longer asked for.
    let less = of(vec![root(b"customer"), only_roots(&all[..1])]);
    assert_converged(&apply(&mut host, &less));
    assert_eq!(
        *host.roots(),
        [
            in_store(b"customer", "", true),
            in_store(b"policy", "", false)
        ]
    );
    remove(&mut host);
    assert_eq!(host.roots().len(), 2, "the customer's root stays");
}

#[test]
fn a_root_that_somebody_adds_meanwhile_is_his() {
    let mut host = SimulatedHost::new();
    let document = of(vec![root(b"ours")]);
    host.refuse("root_add", 1, 0x8009_2005);
    assert_converged(&apply(&mut host, &document));
    host.roots().push(in_store(b"ours", "", true));
    remove(&mut host);
    assert_eq!(host.roots().len(), 1);
}

fn kubelet_port() -> Item {
    let what = Firewall {
        name: "dormer-kubelet".into(),
        protocol: Protocol::Tcp,
        port: 10_250,
    };
    item("firewall:dormer-kubelet", ItemKind::Firewall(what))
}

fn rule(ports: &str) -> FirewallRule {
    FirewallRule {
        name: "dormer-kubelet".into(),
        description: String::new(),
        protocol: 6,
        ports: ports.into(),
        direction: 1,
        action: 1,
        profiles: 7,
        enabled: true,
        remote: "*".into(),
        program: String::new(),
    }
}

#[test]
fn a_firewall_rule_is_changed_in_place() {
    let mut host = SimulatedHost::new();
    host.rules().push(rule("1-9"));
    host.take_log();
    assert_converged(&apply(&mut host, &of(vec![kubelet_port()])));
    let log = host.take_log();
    assert!(
        log.contains(&"firewall_change")
            && !log.contains(&"firewall_remove")
            && !log.contains(&"firewall_add")
    );
    assert_eq!(host.rules().len(), 1);
    assert_eq!(host.rules()[0].ports, "10250");
    // Every profile may be said as 7.
    host.rules()[0] = rule("10250");
    assert_as_asked(&mut host, &of(vec![kubelet_port()]));
}

#[test]
fn every_rule_of_our_name_goes() {
    let mut host = SimulatedHost::new();
    assert_converged(&apply(&mut host, &of(vec![kubelet_port()])));
    host.rules().push(rule("10250"));
    host.rules().push(FirewallRule {
        name: "theirs".into(),
        ..rule("1")
    });
    remove(&mut host);
    let names: Vec<&str> = host.rules().iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["theirs"]);
}

#[test]
fn a_firewall_that_others_rule_is_a_finding() {
    let document = of(vec![kubelet_port()]);
    for (off, policy, said) in [
        (false, FirewallPolicy::Overridden, "group policy"),
        (false, FirewallPolicy::InboundBlocked, "blocks everything"),
        (true, FirewallPolicy::Ok, "nothing is filtered"),
    ] {
        let mut host = SimulatedHost::new();
        host.set_firewall(off, policy);
        let answer = apply(&mut host, &document);
        assert_converged(&answer);
        assert!(
            detail(&answer, "firewall:dormer-kubelet").contains(said),
            "{:#?}",
            answer.items
        );
        assert_as_asked(&mut host, &document);
    }
}

#[test]
fn only_one_number_says_that_there_is_no_rule() {
    let mut host = SimulatedHost::new();
    host.refuse("firewall_read", 1, 0x8000_4001);
    assert_eq!(
        code(&apply(&mut host, &of(vec![kubelet_port()]))),
        Some(FailureCode::FirewallFailed)
    );
    assert!(host.rules().is_empty());
}

fn excluded(process: &str) -> Item {
    let what = DefenderExclusion {
        process: process.into(),
    };
    item(
        &format!("defender:{process}"),
        ItemKind::DefenderExclusion(what),
    )
}

const CONTAINERD: &str = r"C:\k\v1\containerd.exe";

#[test]
fn a_program_is_excluded_by_its_path_as_well() {
    let mut host = SimulatedHost::new();
    let theirs = Exclusions {
        paths: vec![r"D:\sql".into()],
        processes: vec![CONTAINERD.to_uppercase()],
    };
    *host.exclusions() = Some(theirs.clone());
    assert_converged(&apply(&mut host, &of(vec![excluded(CONTAINERD)])));
    let now = host.exclusions().clone().expect("Defender");
    assert_eq!(now.paths, [r"D:\sql", CONTAINERD]);
    assert_eq!(
        now.processes.len(),
        1,
        "what is there in other letters is not added again"
    );
    assert_as_asked(&mut host, &of(vec![excluded(CONTAINERD)]));
    // The next payload's comes, the old one's goes.
    let next = of(vec![excluded(r"C:\k\v2\containerd.exe")]);
    assert_converged(&apply(&mut host, &next));
    let now = host.exclusions().clone().expect("Defender");
    assert_eq!(now.paths, [r"D:\sql", r"C:\k\v2\containerd.exe"]);
}

#[test]
fn a_list_that_a_policy_hides_is_a_finding_once() {
    let mut host = SimulatedHost::new();
    host.hide_exclusions();
    let document = of(vec![excluded(CONTAINERD)]);
    let answer = apply(&mut host, &document);
    assert_converged(&answer);
    assert!(detail(&answer, &format!("defender:{CONTAINERD}")).contains("a policy hides the list"));
    let paths = host.exclusions().clone().expect("Defender").paths;
    assert_eq!(paths, [CONTAINERD]);
    assert_as_asked(&mut host, &document);
    let answer = apply(&mut host, &document);
    assert!(
        answer
            .items
            .iter()
            .all(|item| item.state == ItemState::Ok && item.detail.is_empty())
    );
}

#[test]
fn an_exclusion_that_tamper_protection_keeps_out_is_no_difference_for_ever() {
    let mut host = SimulatedHost::new();
    let features = r"SOFTWARE\Microsoft\Windows Defender\Features";
    host.set_registry(features, "TPExclusions", Value::Number(1));
    host.ignore("defender_add", "");
    let document = of(vec![excluded(CONTAINERD)]);
    let id = format!("defender:{CONTAINERD}");
    let first = apply(&mut host, &document);
    assert_converged(&first);
    assert_eq!(state(&first, &id), ItemState::Changed);
    assert!(detail(&first, &id).contains("tamper protection"));
    let second = apply(&mut host, &document);
    assert_converged(&second);
    assert_eq!(state(&second, &id), ItemState::Ok);
    assert!(detail(&second, &id).contains("tamper protection"));
    let compared = plan(&mut host, &document);
    assert_eq!(state(&compared, &id), ItemState::Ok);
    assert_converged(&remove(&mut host));
}

#[test]
fn a_host_without_defender_needs_no_exclusion() {
    let mut host = SimulatedHost::new();
    *host.exclusions() = None;
    assert_converged(&apply(&mut host, &of(vec![excluded(CONTAINERD)])));
    let mut host = SimulatedHost::new();
    host.refuse("defender_read", 9, 0x8001_06ba);
    assert_converged(&apply(&mut host, &of(vec![excluded(CONTAINERD)])));
}

#[test]
fn evidence_is_read_and_nothing_else() {
    let steady = SteadyService {
        service: "kubelet".into(),
        steady_ms: 3_000,
        log: None,
    };
    let page = Http {
        url: "http://127.0.0.1:10248/healthz".into(),
        wait_ms: 5_000,
        log: None,
    };
    let mut document = node("v1");
    document
        .items
        .push(item("steady", ItemKind::SteadyService(steady)));
    document.items.push(item("healthz", ItemKind::Http(page)));
    let mut host = SimulatedHost::new();
    let answer = apply(&mut host, &document);
    assert_eq!(code(&answer), Some(FailureCode::NotHealthy));
    assert_eq!(state(&answer, "steady"), ItemState::Ok);
    host.set_page("http://127.0.0.1:10248/healthz", 200);
    assert_converged(&apply(&mut host, &document));
    host.kill("kubelet");
    let answer = plan(&mut host, &document);
    assert_eq!(answer.failure, None);
    assert_eq!(detail(&answer, "steady"), "kubelet is not running");
    assert_eq!(ask(&mut host, call(Asked::Probe, 1), None).failure, None);
}

/// hybrid-overlay-node gets a certificate each day and removes none (`--cert-duration=24h`).
#[test]
fn an_openshift_node_keeps_its_two_newest_network_certificates() {
    let layer = builtin::layer("openshift").expect("a profile");
    let profile = stack(&[layer]).expect("a profile");
    let values = Values::example("none");
    let inputs = Inputs {
        profile: &profile,
        payload: &Manifest::parse(EXAMPLE_PAYLOAD).expect("a payload"),
        variables: &values.variables(),
        secrets: &join_secrets(&values.api_server, "API CA", "CLIENT CA", "t0ken"),
        keep: &[],
    };
    let rendered = render(&inputs, Section::Node, "v").expect("rendered");
    let of_files = |item: &Item| matches!(item.what, ItemKind::NewestFiles(_));
    let items = rendered.document.items.into_iter().filter(of_files);
    let document = of(items.collect());
    let mut host = SimulatedHost::new();
    let path = |name: &str| format!(r"C:\k\cni\config\ovnkube-client-{name}.pem");
    for day in ["2026-11-23-01-00-00", "2026-11-24-01-00-00"] {
        host.put(&path(day), day.as_bytes());
        host.pass(1_000);
    }
    host.put(r"C:\k\cni\config\cni.conf", b"{}");
    assert_as_asked(&mut host, &document);
    host.put(&path("2026-11-25-01-00-00"), b"new");
    host.put(&path("current"), b"new");
    assert_converged(&apply(&mut host, &document));
    let left = host.paths(r"C:\k\cni\config\");
    let wanted = ["2026-11-24-01-00-00", "2026-11-25-01-00-00", "current"].map(path);
    let config = vec![r"C:\k\cni\config\cni.conf".to_owned()];
    assert_eq!(left, [config, wanted.to_vec()].concat());
    // A folder is not there before the Node is.
    assert_as_asked(&mut SimulatedHost::new(), &document);
}
