//! Stories of versions: which may follow which, and which hosts they are for.

use super::holds;
use crate::common::{Story, after, machine, payload, planned, pool_is, probed, wanting};
use dormer_proto::machine::{ChangeClass, MachineFact, Outcome};
use dormer_proto::pool::{PoolSettings, Strategy, Terms};
use dormer_workflows::machine::Phase;
use expect_test::expect_file;

pub(super) fn waits(story: &Story) -> String {
    story.state.view().waiting_for.unwrap_or_default()
}

#[test]
fn a_payload_without_an_edge_waits_and_says_why() {
    let mut story = Story::joined(payload("11.0.0", after(&[])));
    story.feed(
        "11.2.0 is wanted",
        pool_is(payload("11.2.0", after(&["11.1.0"]))),
    );
    story.done("plan", planned(Some(ChangeClass::Drain)));
    let why = waits(&story);
    assert!(
        why.contains("payload 11.2.0 may follow 11.1.0, not 11.0.0"),
        "{why}"
    );
    // A grant that was under way is given back.
    story
        .granted(7, false)
        .done("close-fence", Outcome::FenceClosed);
    story.done("plan", planned(Some(ChangeClass::Drain)));
    // What is changed in place is no exception.
    story.feed(
        "11.3.0 is wanted",
        pool_is(payload("11.3.0", after(&["11.2.0"]))),
    );
    story.done("plan", planned(Some(ChangeClass::Live)));
    story.feed(
        "11.1.0 is wanted",
        pool_is(payload("11.1.0", after(&["11.0.0"]))),
    );
    story.done("plan", planned(Some(ChangeClass::Drain)));
    assert_eq!(waits(&story), "the rollout's lease");
    holds(&story, expect_file!["../stories/no_edge.txt"]);
}

#[test]
fn going_back_takes_a_persons_word() {
    let mut story = Story::joined(payload("11.1.0", after(&["11.0.0"])));
    story.feed("11.0.0 is wanted", pool_is(payload("11.0.0", after(&[]))));
    story.done("plan", planned(Some(ChangeClass::Drain)));
    let why = waits(&story);
    assert!(
        why.contains("payload 11.0.0 may follow no version, not 11.1.0"),
        "{why}"
    );
    let back = Terms {
        back_from: Some("11.1.0".into()),
        ..after(&[])
    };
    story.feed(
        "a person goes back to 11.0.0",
        pool_is(payload("11.0.0", back)),
    );
    story.granted(8, false);
    holds(&story, expect_file!["../stories/going_back.txt"]);
}

/// Expiry holds a node's upgrade, never a bring-up or a return that a person asked for.
#[test]
fn an_expired_payload_takes_no_upgrade_and_brings_new_nodes_up() {
    let expired = |versions| Terms {
        expired: Some("payload 11.1.0 expired on 2027-03-01".into()),
        ..after(versions)
    };
    let mut story = Story::joined(payload("11.0.0", after(&[])));
    story.feed(
        "11.1.0 is wanted, and has expired",
        pool_is(payload("11.1.0", expired(&["11.0.0"]))),
    );
    story.done("plan", planned(Some(ChangeClass::Drain)));
    let why = waits(&story);
    assert!(why.contains("expired on 2027-03-01"), "{why}");
    story.feed(
        "it does not end any more",
        pool_is(payload("11.1.0", after(&["11.0.0"]))),
    );
    assert_eq!(waits(&story), "the rollout's lease");
    holds(&story, expect_file!["../stories/expired.txt"]);

    let mut fresh = Story::begin(machine());
    fresh.feed(
        "an expired payload is wanted",
        pool_is(payload("11.1.0", expired(&["11.0.0"]))),
    );
    fresh.done("probe", probed());
    let why = waits(&fresh);
    assert!(!why.contains("expired"), "{why}");
}

#[test]
fn a_kubelet_that_is_too_new_is_not_even_brought_up() {
    let skew = Some("kubelet 1.34 is newer than the oldest API server, 1.33".to_owned());
    let mut story = Story::begin(machine());
    story.feed(
        "11.2.0 is wanted",
        pool_is(payload("11.2.0", Terms { skew, ..after(&[]) })),
    );
    story.done("probe", probed());
    let why = waits(&story);
    assert!(
        why.contains("a payload that fits: kubelet 1.34 is newer"),
        "{why}"
    );
    story.feed(
        "the API servers are newer now",
        pool_is(payload("11.2.0", after(&[]))),
    );
    holds(&story, expect_file!["../stories/too_new.txt"]);
}

/// A machine whose host has this Windows, in a pool with these settings, on this platform.
fn probed_as(build: &str, product: &str, platform: &str, pool: PoolSettings) -> Story {
    let mut story = Story::begin(MachineFact {
        platform: platform.into(),
        ..machine()
    });
    story.feed("the pool's settings are seen", pool_is(pool));
    let Outcome::Probed {
        mut facts,
        host_key,
        node_name,
    } = probed()
    else {
        panic!("a probe")
    };
    facts.os_build = build.into();
    facts.os_name = product.into();
    let found = Outcome::Probed {
        facts,
        host_key,
        node_name,
    };
    story.done("probe", found);
    story
}

/// A pool whose payload is for one build only.
fn for_build(build: &str) -> PoolSettings {
    let pool = payload("11.0.0", after(&[]));
    let desired = pool.desired.values().next().expect("one").clone();
    PoolSettings {
        desired: [(build.to_owned(), desired)].into(),
        ..pool
    }
}

#[test]
fn a_machine_that_is_not_supported_is_refused_by_its_name() {
    let all = || payload("11.0.0", after(&[]));
    let only_aws = || {
        let terms = Terms {
            platforms: vec!["aws".into()],
            ..after(&[])
        };
        payload("11.0.0", terms)
    };
    let no_port = || {
        let why = "Windows Server 2019 (10.0.17763) cannot change the port of VXLAN to 9898";
        let terms = Terms {
            refused_builds: [("10.0.17763".into(), why.into())].into(),
            ..after(&[])
        };
        payload("11.0.0", terms)
    };
    let server = "Windows Server Datacenter";
    let server_2022 = "Windows Server 2022 Datacenter";
    let table = [
        // (build, product, platform, pool, code, text)
        (
            "10.0.18362",
            server,
            "AWS",
            all(),
            "UnsupportedBuild",
            "Windows Server, version 1903 (10.0.18362)",
        ),
        (
            "10.0.18362",
            server,
            "AWS",
            for_build("10.0.20348"),
            "UnsupportedBuild",
            "version 1903",
        ),
        (
            "10.0.17763",
            server,
            "AWS",
            all(),
            "UnsupportedBuild",
            "Windows Server, version 1809 (10.0.17763)",
        ),
        (
            "10.0.26100",
            "Windows 11 Pro",
            "AWS",
            all(),
            "UnsupportedEdition",
            "Windows 11 Pro",
        ),
        (
            "10.0.26100",
            "",
            "AWS",
            for_build("10.0.20348"),
            "PayloadForOtherBuild",
            "it is for 10.0.20348",
        ),
        (
            "10.0.29000",
            "",
            "AWS",
            for_build("10.0.20348"),
            "UnsupportedBuild",
            "10.0.29000",
        ),
        (
            "10.0.20348",
            server_2022,
            "PowerVS",
            all(),
            "UnsupportedPlatform",
            "powervs",
        ),
        (
            "10.0.20348",
            server_2022,
            "Azure",
            only_aws(),
            "PayloadForOtherPlatform",
            "it is for aws",
        ),
        (
            "10.0.17763",
            "Windows Server 2019 Datacenter",
            "AWS",
            no_port(),
            "SettingForOtherBuild",
            "cannot change the port of VXLAN to 9898",
        ),
    ];
    for (build, product, platform, pool, code, text) in table {
        let story = probed_as(build, product, platform, pool);
        let view = story.state.view();
        assert_eq!(story.state.phase, Phase::PoolWait, "{build} {product}");
        let refused = view
            .refused
            .unwrap_or_else(|| panic!("{build} {product}: not refused"));
        assert_eq!(refused.code(), code, "{build} {product} {platform}");
        let reason = view.reason.unwrap_or_default();
        assert!(
            reason.starts_with(code) && reason.contains(text),
            "{reason}"
        );
        let waits = view.waiting_for.unwrap_or_default();
        assert!(waits.contains(text), "{waits}");
    }
}

/// The same pool, and a setting that one of the payload's builds cannot have.
#[test]
fn a_setting_that_a_build_cannot_have_stops_the_hosts_of_that_build_only() {
    let why = "only 4789 works there";
    let pool = |refused: &[&str]| {
        let builds = refused.iter();
        let terms = Terms {
            refused_builds: builds.map(|it| ((*it).to_owned(), why.into())).collect(),
            ..after(&[])
        };
        payload("11.0.0", terms)
    };
    let only_2019 = || pool(&["10.0.17763"]);
    let newer = probed_as("10.0.20348", "", "AWS", only_2019());
    let begun = |story: &Story| matches!(story.state.phase, Phase::ConvergingHost { .. });
    assert!(begun(&newer), "{:?}", newer.state.phase);
    let mut older = probed_as("10.0.17763", "", "AWS", only_2019());
    assert_eq!(older.state.phase, Phase::PoolWait);
    assert!(waits(&older).contains(why), "{}", waits(&older));
    // A node that serves keeps what it has, and gets no version with that setting.
    let mut serving = probed_as("10.0.17763", "", "AWS", pool(&[]));
    serving.state.in_service = true;
    serving.state.pool = Some(only_2019());
    assert_eq!(serving.state.version_refusal().as_deref(), Some(why));
    older.feed("the port is the usual one again", pool_is(pool(&[])));
    assert!(begun(&older), "{:?}", older.state.phase);
}

#[test]
fn a_machine_that_is_supported_is_not_refused() {
    let table = [
        (
            "10.0.17763",
            "Microsoft Windows Server 2019 Datacenter",
            "AWS",
            for_build("10.0.17763"),
        ),
        ("10.0.17763", "", "vSphere", for_build("10.0.17763")),
        (
            "10.0.20348",
            "Windows Server 2022 Datacenter",
            "Azure",
            for_build("10.0.20348"),
        ),
        (
            "10.0.26100",
            "Windows Server 2025 Standard",
            "None",
            payload("11.0.0", after(&[])),
        ),
        // The support table does not know it, and the payload is for it.
        ("10.0.29000", "", "", for_build("10.0.29000")),
    ];
    for (build, product, platform, pool) in table {
        let story = probed_as(build, product, platform, pool);
        assert_eq!(story.state.refusal(), None, "{build} {product}");
        let begun = matches!(story.state.phase, Phase::ConvergingHost { .. });
        assert!(begun, "{build} {product}: {:?}", story.state.phase);
    }
}

#[test]
fn a_refused_machine_goes_on_once_the_payload_is_for_it() {
    let mut story = probed_as("10.0.26100", "", "AWS", for_build("10.0.20348"));
    assert!(waits(&story).contains("it is for 10.0.20348"));
    story.feed("a payload for it", pool_is(for_build("10.0.26100")));
    assert_eq!(story.state.refusal(), None);
    let begun = matches!(story.state.phase, Phase::ConvergingHost { .. });
    assert!(begun, "{:?}", story.state.phase);
}

#[test]
fn a_node_that_serves_is_left_as_it_is_whatever_its_windows() {
    let mut story = probed_as("10.0.20348", "", "AWS", for_build("10.0.20348"));
    story.state.in_service = true;
    if let Some(facts) = &mut story.state.host.facts {
        facts.os_build = "10.0.18362".into();
    }
    assert_eq!(story.state.refusal(), None);
}

#[test]
fn an_upgrade_that_was_begun_ends_before_the_next_that_may_not_follow_it() {
    let wanted = |version, terms| PoolSettings {
        strategy: Strategy::InPlace,
        ..payload(version, terms)
    };
    let mut story = Story::joined(wanted("11.0.0", after(&[])));
    story.feed(
        "11.1.0 is wanted",
        pool_is(wanted("11.1.0", after(&["11.0.0"]))),
    );
    story
        .done("plan", planned(Some(ChangeClass::Restart)))
        .granted(7, false);
    story.done(
        "open-fence",
        Outcome::FenceOpened {
            was_cordoned: false,
        },
    );
    // It continues to the granted version, although the newest one has no edge from the earlier version.
    story.feed(
        "11.3.0 is wanted",
        pool_is(wanted("11.3.0", after(&["11.2.0"]))),
    );
    holds(&story, expect_file!["../stories/begun_before.txt"]);
}

#[test]
fn a_node_that_serves_stays_as_the_pool_last_said_when_that_is_gone() {
    let absent = |version| PoolSettings {
        absent: true,
        paused: true,
        held: Some("there is no WindowsPool dormer/windows".into()),
        ..wanting(version)
    };
    let mut story = Story::joined(wanting("v1"));
    story.feed("the pool is gone", pool_is(absent("v9")));
    story.feed("the pool wants v2", pool_is(wanting("v2")));
    story.done("plan", planned(Some(ChangeClass::Live)));
    holds(&story, expect_file!["../stories/pool_gone.txt"]);

    // It was brought up while there was none: what dormer brings along changes, and the node does not.
    let mut story = Story::joined(absent("v1"));
    story.feed("another payload is installed", pool_is(absent("v2")));
    story.done("plan", planned(Some(ChangeClass::Live)));
    let why = waits(&story);
    assert!(why.contains("there is no WindowsPool"), "{why}");
    story.feed("there is a pool", pool_is(wanting("v2")));
    holds(&story, expect_file!["../stories/no_pool.txt"]);
}
