//! Stories of trouble on the way to a host that serves, or of dormer's own: it never takes a node out of service, and is
//! tried again.

use crate::common::{
    Story, carrying, converged, evicted, facts, in_place, machine, node_is, planned, pool_is,
    wanting,
};
use dormer_engine_core::Input;
use dormer_proto::{
    machine::{ChangeClass, MachineFact, Outcome, Section, Signal},
    message::Failure,
};
use dormer_workflows::machine::{Phase, Timer};

#[test]
fn a_live_change_that_does_not_reach_its_host_is_tried_again() {
    for code in ["ConnectTimeout", "AuthRejected", "PayloadUnreadable"] {
        let mut story = Story::joined(wanting("v1"));
        story
            .feed("v2 is wanted", pool_is(wanting("v2")))
            .done("plan", planned(Some(ChangeClass::Live)));
        let task = story.task("converge-host");
        let failure = Failure::transient(code, "no answer");
        story.feed("exhausted", Input::Exhausted { task, failure });
        assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
        let report = story.state.report();
        assert!(!report.failed && !report.unavailable, "{report:?}");
        let trouble = report.not_compared.expect("its rollout knows");
        assert_eq!(trouble.code, code);
        // The next comparison continues.
        story
            .feed("ten minutes later", Input::Fired(Timer::Drift))
            .done("plan", planned(Some(ChangeClass::Live)))
            .done("converge-host", converged(Section::Host, false))
            .done("converge-node", converged(Section::Node, false))
            .done("mark-node", Outcome::NodeMarked);
        assert_eq!(story.state.version.as_deref(), Some("v2"));
        assert!(story.state.report().not_compared.is_none());
    }
}

#[test]
fn a_person_who_retries_does_not_wait_for_the_next_comparison() {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("v2 is wanted", pool_is(wanting("v2")))
        .done("plan", planned(Some(ChangeClass::Live)))
        .given_up("converge-host", "ConnectTimeout");
    story.text.clear();
    story.person(Signal::Retry);
    assert!(story.text.contains("Drift"), "{}", story.text);
}

/// What the host itself says is a person's to mend.
#[test]
fn a_live_change_that_the_host_refuses_fails() {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("v2 is wanted", pool_is(wanting("v2")))
        .done("plan", planned(Some(ChangeClass::Live)))
        .given_up("converge-host", "DiskFull");
    assert!(matches!(story.state.phase, Phase::Failed { .. }));
}

fn adopted() -> MachineFact {
    MachineFact {
        node: Some("win-a".into()),
        ..machine()
    }
}

fn probed_with_a_skew(ms: i64) -> Outcome {
    let mut facts = facts("boot-1");
    facts.clock_skew_ms = ms;
    Outcome::Probed {
        facts,
        host_key: "key-a".into(),
        node_name: "win-a".into(),
    }
}

/// A new installation, whose own clock is six minutes off.
#[test]
fn a_clock_that_is_off_at_an_adoption_fails_no_node_that_serves() {
    let mut story = Story::begin(adopted());
    story
        .feed("pool", pool_is(wanting("v1")))
        .feed("node", node_is(carrying("v1")))
        .done("probe", probed_with_a_skew(6 * 60_000));
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    let report = story.state.report();
    assert!(!report.failed && !report.unavailable && report.joined);
    assert_eq!(
        report.not_compared.expect("its rollout knows").code,
        "ClockSkew"
    );
    story
        .feed("ten minutes later", Input::Fired(Timer::Drift))
        .done("plan", planned(None));
    assert!(story.state.report().not_compared.is_none());
}

fn planned_with_a_skew(class: ChangeClass, ms: i64) -> Outcome {
    let mut outcome = planned(Some(class));
    if let Outcome::Planned { facts, .. } = &mut outcome {
        facts.clock_skew_ms = ms;
    }
    outcome
}

/// After its drain its new certificate would not be valid on it.
#[test]
fn a_node_whose_clock_is_off_waits_for_no_lease_until_it_is_right() {
    let mut story = Story::joined(in_place("v1"));
    story.feed("v2 is wanted", pool_is(in_place("v2")));
    for _ in 0..3 {
        story.done("plan", planned_with_a_skew(ChangeClass::Drain, 6 * 60_000));
        assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
        let report = story.state.report();
        let why = report.not_compared.expect("its rollout knows");
        assert_eq!(why.code, "ClockSkew");
        assert!(why.message.contains("6m ahead"), "{}", why.message);
        story.feed("ten minutes later", Input::Fired(Timer::Drift));
    }
    story.done("plan", planned_with_a_skew(ChangeClass::Drain, 60_000));
    assert!(
        matches!(story.state.phase, Phase::LeaseWait(_)),
        "{}",
        story.text
    );
    assert!(story.state.report().not_compared.is_none());
}

/// A host that never served has no certificate yet that shows which clock is right.
#[test]
fn a_clock_that_is_off_fails_a_bring_up_until_a_person_retries() {
    let mut story = Story::begin(machine());
    story
        .feed("pool", pool_is(wanting("v1")))
        .done("probe", probed_with_a_skew(6 * 60_000));
    assert!(matches!(story.state.phase, Phase::Failed { .. }));
    story
        .person(Signal::Retry)
        .done("probe", probed_with_a_skew(0));
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
}

/// A drained node, whose host does not answer for a quarter of an hour.
fn unanswered_tear_down(code: &str) -> Story {
    let mut story = Story::joined(in_place("v1"));
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    story
        .feed("v2 is wanted", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done("open-fence", opened)
        .done("evict", evicted(0, 0))
        .given_up("tear-down", code);
    assert!(
        matches!(story.state.phase, Phase::Failed { .. }),
        "{}",
        story.text
    );
    story
}

#[test]
fn a_step_under_the_lease_goes_on_when_its_host_answers_again() {
    let mut story = unanswered_tear_down("ConnectTimeout");
    assert!(
        story.state.report().failed,
        "until then nobody else is taken"
    );
    story.feed("ten minutes later", Input::Fired(Timer::Again));
    // Its Node is Ready again: pods may have come, so the fence is opened and the drain made again.
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);

    // A pause stops that, and its end lets it continue.
    let mut story = unanswered_tear_down("ConnectTimeout");
    story
        .person(Signal::Pause)
        .feed("ten minutes later", Input::Fired(Timer::Again));
    assert!(story.names().is_empty(), "{}", story.text);
    story.text.clear();
    story.person(Signal::Resume);
    assert!(story.text.contains("Again"), "{}", story.text);

    // What the host refused is a person's to mend.
    let mut story = unanswered_tear_down("DiskFull");
    story.feed("ten minutes later", Input::Fired(Timer::Again));
    assert!(story.names().is_empty(), "{}", story.text);
}
