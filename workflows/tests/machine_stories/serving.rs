//! Stories of a machine that serves: adoption, addresses, comparisons, repairs over the limit.

use super::holds;
use super::versions::waits;
use crate::common::{
    Story, carrying, converged, machine, machine_is, node_is, planned, pool_is, probed, ready,
    wanting,
};
use dormer_engine_core::Input;
use dormer_proto::id::LeaseToken;
use dormer_proto::machine::{
    ChangeClass, MachineFact, NodeFact, Outcome, Section, Signal, Task, TokenMark,
};
use dormer_workflows::machine::{Lease, Phase, Timer};
use expect_test::expect_file;

#[test]
fn a_new_address_of_a_node_that_serves_takes_no_lease() {
    let mut story = Story::joined(wanting("v1"));
    let moved = || MachineFact {
        addresses: vec!["10.0.0.2".into()],
        node: Some("win-a".into()),
        ..machine()
    };
    story
        .feed("another address", machine_is(moved()))
        .done("plan", planned(Some(ChangeClass::Restart)))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .done("mark-node", Outcome::NodeMarked);
    assert!(
        !story.text.contains("request"),
        "it asks for no lease: {}",
        story.text
    );
    // The next restart is the pool's again.
    story.wants_v2(ChangeClass::Restart);
    assert_eq!(waits(&story), "the rollout's lease");
    holds(&story, expect_file!["../stories/moved.txt"]);
}

/// A minute of NotReady entitles to nothing; ten minutes in one piece entitle to a repair over the limit.
#[test]
fn a_node_that_is_not_ready_for_long_may_be_repaired() {
    let mut story = Story::joined(wanting("v1"));
    let down = || NodeFact {
        ready: false,
        ..carrying("v1")
    };
    story
        .wants_v2(ChangeClass::Drain)
        .feed("its Node is not Ready", node_is(down()))
        .later_ms(60_000)
        .feed("its Node is Ready again", node_is(carrying("v1")))
        .later_ms(60_000)
        .feed("its Node is not Ready", node_is(down()))
        .later_ms(480_000)
        .feed("timer of the first time", Input::Fired(Timer::Deadline))
        .later_ms(120_000)
        .feed("timer", Input::Fired(Timer::Deadline))
        .feed("its Node is Ready again", node_is(carrying("v1")));
    holds(&story, expect_file!["../stories/repair.txt"]);
}

/// Whatever keeps dormer from comparing a host, its Machine is left as it is: a key, a right, a profile, a closed port.
#[test]
fn a_host_that_cannot_be_compared_is_left_as_it_is() {
    let down = || NodeFact {
        ready: false,
        ..carrying("v1")
    };
    let own = [
        "AuthRejected",
        "Forbidden",
        "HostKeyChanged",
        "KeyUnreadable",
        "ProfileUnusable",
        "VersionNotHere",
    ];
    let unanswered = [
        "ConnectRefused",
        "ConnectTimeout",
        "ConnectionLost",
        "NoAnswer",
    ];
    for code in own.into_iter().chain(unanswered) {
        let mut story = Story::joined(wanting("v1"));
        story
            .feed("the pool wants v2", pool_is(wanting("v2")))
            .given_up("plan", code);
        assert_eq!(story.state.phase, Phase::Serving, "{code}");
        assert_eq!(story.state.lease, Lease::None, "{code}");
        let report = story.state.report();
        assert_eq!(report.not_compared.map(|it| it.code).as_deref(), Some(code));
        // Its Node goes, and ten minutes later the host is tried again.
        story.feed("its Node is not Ready", node_is(down()));
        let told = story.state.report().not_compared.is_some();
        assert_eq!(
            told,
            own.contains(&code),
            "{code}: a dead host is no trouble of dormer's"
        );
        story
            .later_ms(600_000)
            .feed("timer", Input::Fired(Timer::Drift))
            .given_up("plan", code);
        let replaced = matches!(story.state.phase, Phase::LeaseWait(_));
        assert_eq!(replaced, unanswered.contains(&code), "{code}");
    }
}

/// A host that could not be compared, and the two ways in which that ends: it is mended, or a person replaces it.
#[test]
fn trouble_with_a_host_ends_when_it_is_mended() {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("the pool wants v2", pool_is(wanting("v2")))
        .given_up("plan", "AuthRejected")
        .later_ms(600_000)
        .feed("ten minutes later", Input::Fired(Timer::Drift))
        .given_up("plan", "AuthRejected")
        .person(Signal::Recreate)
        .person(Signal::Hold)
        .person(Signal::Resume)
        .done("plan", planned(Some(ChangeClass::Drain)));
    holds(&story, expect_file!["../stories/not_compared.txt"]);
}

/// The host of a serving node was reinstalled. The word of a person that trusts its key compares it at once, and nothing
/// else has to be typed.
#[test]
fn a_trusted_key_of_a_serving_host_is_compared_at_once() {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("the pool wants v2", pool_is(wanting("v2")))
        .given_up("plan", "HostKeyChanged");
    assert_eq!(story.state.phase, Phase::Serving);
    story.text.clear();
    story.person(Signal::TrustHostKey {
        fingerprint: "SHA256:new".into(),
    });
    assert!(
        story.text.ends_with("wait no longer (Drift)\n"),
        "{}",
        story.text
    );
    story.feed("at once", Input::Fired(Timer::Drift));
    let Task::Plan { host, .. } = story.task("plan") else {
        panic!("{}", story.text)
    };
    assert_eq!(host.pin.as_deref(), Some("SHA256:new"));
    story.done("plan", planned(Some(ChangeClass::Drain)));
    assert!(story.state.not_compared.is_none(), "{}", story.text);
    assert!(
        matches!(story.state.phase, Phase::LeaseWait(_)),
        "the upgrade continues: {}",
        story.text
    );
}

/// The run reports a cordon by another client to the rollout; a request for this machine overrides it.
#[test]
fn a_node_that_a_person_cordoned_waits_for_the_uncordon() {
    let mut story = Story::joined(wanting("v1"));
    let cordoned = || NodeFact {
        cordoned: true,
        ..carrying("v1")
    };
    story
        .feed("somebody cordons its Node", node_is(cordoned()))
        .wants_v2(ChangeClass::Drain)
        .person(Signal::Recreate);
    holds(&story, expect_file!["../stories/cordoned.txt"]);
}

pub(super) fn adopted_fact() -> MachineFact {
    MachineFact {
        node: Some("win-a".into()),
        ..machine()
    }
}

#[test]
fn adoption() {
    let mut text = String::new();
    let mut append = |title: &str, story: &Story| text += &format!("-- {title}\n{}", story.text);

    let mut story = Story::begin(adopted_fact());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .feed("the Node is seen", node_is(carrying("v1")))
        .done("probe", probed())
        .done("plan", planned(None));
    append("nothing differs", &story);

    let wmco = NodeFact {
        wmco_version: Some("10.17.0".into()),
        ..ready()
    };
    let mut story = Story::begin(adopted_fact());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .feed("the Node is seen", node_is(wmco))
        .done("probe", probed())
        .done("plan", planned(Some(ChangeClass::Drain)));
    append("WMCO configured it", &story);

    let mut story = Story::begin(adopted_fact());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .feed("the Node is seen", node_is(carrying("v0")))
        .given_up("probe", "ConnectTimeout");
    append("the host does not answer", &story);

    let open = Some(TokenMark {
        token: LeaseToken(5),
        open: true,
    });
    let cordoned = NodeFact {
        token: open,
        cordoned: true,
        ..carrying("v1")
    };
    let mut story = Story::begin(MachineFact {
        token: open,
        ..adopted_fact()
    });
    story
        .feed("the pool's settings are seen", pool_is(wanting("v2")))
        .feed("the Node is seen", node_is(cordoned))
        .done("probe", probed())
        .done("plan", planned(Some(ChangeClass::Drain)));
    append("an earlier store began an upgrade", &story);

    expect_file!["../stories/adoption.txt"].assert_eq(&text);
}

/// A provider id that another writes in another case is the same computer's.
#[test]
fn a_provider_id_in_another_case_is_the_same_machines() {
    let id = "azure:///subscriptions/1/resourceGroups/RG/providers/p/virtualMachines/win-a";
    let on_azure = MachineFact {
        provider_id: Some(id.into()),
        node: Some("win-a".into()),
        ..machine()
    };
    let mut story = Story::begin(on_azure);
    let there = NodeFact {
        provider_id: Some(id.to_lowercase()),
        ..carrying("v1")
    };
    story.feed("its Node is seen", node_is(there));
    assert!(story.state.node.is_some());
}
