//! A node that is checked before it counts as joined.

use crate::common::{
    Story, carrying, converged, machine, machine_is, node, node_is, planned, pool_is, probed,
    ready, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::{
    checks::{CheckName, CheckResult, NodeCheck},
    machine::{MachineFact, Outcome, Section, Task},
    pool::{PoolSettings, Terms},
};
use dormer_workflows::machine::{Phase, Timer};

fn checked() -> PoolSettings {
    let wanted = wanting("v1");
    let payload = wanted.desired.values().next().expect("one").payload.clone();
    let terms = Terms {
        kubelet: Some(33),
        containerd: Some("2.1".into()),
        canary: Some("agnhost:2.63.0".into()),
        ..Terms::default()
    };
    PoolSettings {
        verify: true,
        terms: [(payload, terms)].into(),
        ..wanted
    }
}

/// A machine whose node is Ready, and has been for the soak time.
fn soaked(pool: PoolSettings) -> Story {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(pool))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed(
            "the Machine has a Node",
            machine_is(MachineFact {
                node: Some("win-a".into()),
                ..machine()
            }),
        )
        .feed("the Node is seen", node_is(node()))
        .done("converge-node", converged(Section::Node, false))
        .feed("the Node is Ready", node_is(ready()))
        .feed("the soak is over", Input::Fired(Timer::Soak));
    assert_eq!(story.names(), ["mark-node"], "{}", story.text);
    story
}

fn check(name: CheckName, result: CheckResult) -> NodeCheck {
    NodeCheck {
        check: name.to_string(),
        result,
        said: "as it was found".into(),
    }
}

fn all_but(name: CheckName, result: CheckResult) -> Outcome {
    let others = [CheckName::Version, CheckName::Settled];
    let mut checks = others.map(|one| check(one, CheckResult::Ok)).to_vec();
    checks.insert(1, check(name, result));
    Outcome::NodeChecked { checks }
}

#[test]
fn it_joins_once_no_check_fails_and_one_that_cannot_be_made_holds_nothing() {
    let mut story = soaked(checked());
    let Task::MarkNode { expect, .. } = story.task("mark-node") else {
        panic!("it is checked")
    };
    let expect = expect.expect("what it has to pass");
    assert_eq!(expect.kubelet_minor, Some(33));
    assert_eq!(expect.containerd.as_deref(), Some("2.1"));
    assert_eq!(expect.canary.as_deref(), Some("agnhost:2.63.0"));
    assert!(expect.os_build.is_some());
    assert_eq!(expect.soak_ms, checked().soak_ms);
    let missing = all_but(CheckName::Certificate, CheckResult::Failed);
    story.done("mark-node", missing);
    assert_eq!(story.state.phase, Phase::Marking, "{}", story.text);
    assert!(!story.state.report().joined);
    let view = story.state.view();
    let waits = view.waiting_for.unwrap_or_default();
    assert!(waits.contains("certificate: as it was found"), "{waits}");
    let reason = view.reason.unwrap_or_default();
    assert!(reason.contains("does not serve yet"), "{reason}");
    story
        .feed("15 seconds later", Input::Fired(Timer::Again))
        .done(
            "mark-node",
            all_but(CheckName::Certificate, CheckResult::NotChecked),
        );
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    assert_eq!(story.state.checks.len(), 3, "people can read them");
}

#[test]
fn what_fails_for_half_an_hour_fails_the_join_with_its_own_code() {
    for (name, code) in [
        (CheckName::Certificate, "NoServingCertificate"),
        (CheckName::DaemonSets, "DaemonSetPodNotReady"),
        (CheckName::Labels, "LabelMissing"),
        (CheckName::Build, "WrongBuild"),
        (CheckName::Runtime, "WrongContainerd"),
        (CheckName::Settled, "NotSettled"),
        (CheckName::ServiceDns, "NoServiceDns"),
        (CheckName::PodToPod, "NoPodToPod"),
        (CheckName::NodePort, "NoNodePort"),
        (CheckName::Outbound, "NoOutbound"),
        (CheckName::Exec, "NoExec"),
    ] {
        let mut story = soaked(checked());
        story.done("mark-node", all_but(name, CheckResult::Failed));
        story
            .later_ms(29 * 60_000)
            .feed("29 minutes later", Input::Fired(Timer::Again))
            .done("mark-node", all_but(name, CheckResult::Failed));
        assert_eq!(story.state.phase, Phase::Marking, "{}", story.text);
        story
            .later_ms(60_000)
            .feed("a minute later", Input::Fired(Timer::Again))
            .done("mark-node", all_but(name, CheckResult::Failed));
        let Phase::Failed { from, failure } = &story.state.phase else {
            panic!("{}", story.text)
        };
        assert_eq!(
            (from.as_ref(), failure.code.as_str()),
            (&Phase::Marking, code)
        );
        let reason = story.state.view().reason.unwrap_or_default();
        assert!(reason.contains(&name.to_string()), "{reason}");
        // A retry begins with new checks and a new half hour.
        story.person(dormer_proto::machine::Signal::Retry);
        story.done("mark-node", all_but(name, CheckResult::Failed));
        assert_eq!(story.state.phase, Phase::Marking, "{}", story.text);
    }
}

#[test]
fn one_that_flaps_meanwhile_soaks_again() {
    let mut story = soaked(checked());
    story
        .done(
            "mark-node",
            all_but(CheckName::DaemonSets, CheckResult::Failed),
        )
        .feed("it is not Ready", node_is(node()));
    assert_eq!(story.state.phase, Phase::ReadyWait, "{}", story.text);
    assert!(
        story.text.contains("wait no more (Again)"),
        "{}",
        story.text
    );
    story.feed("it is Ready again", node_is(ready()));
    assert_eq!(story.state.phase, Phase::Soaking, "{}", story.text);
}

#[test]
fn a_pool_that_does_not_ask_and_a_node_that_serves_are_not_checked() {
    let mut story = soaked(wanting("v1"));
    let Task::MarkNode { expect, .. } = story.task("mark-node") else {
        panic!("it is marked")
    };
    assert_eq!(expect, None);
    story.done("mark-node", Outcome::NodeMarked);
    assert_eq!(story.state.phase, Phase::Serving);

    let adopted = MachineFact {
        node: Some("win-a".into()),
        ..machine()
    };
    let mut story = Story::begin(adopted);
    story
        .feed("the pool's settings are seen", pool_is(checked()))
        .feed("its Node is seen", node_is(carrying("v1")))
        .done("probe", probed())
        .done("plan", planned(None));
    let unchecked = |task: &Task| matches!(task, Task::MarkNode { expect: None, .. });
    assert!(story.open.iter().all(unchecked), "{}", story.text);
}
