//! Stories of reboots: which one counts as the one that was ordered, and how many a configuration may need.

use super::holds;
use crate::common::{
    Story, converged, machine, machine_is, owes, pool_is, probed, probed_at, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::machine::{MachineFact, Outcome, Section, Signal};
use dormer_workflows::machine::{Phase, Reboots, Timer};
use expect_test::expect_file;

/// Where Windows has no number of its boot, the second of it is read again and again, and is rounded each time.
#[test]
fn a_boots_second_that_moved_a_little_is_the_same_boot() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed_at("t1700000000"))
        .done(
            "converge-host",
            Outcome::Converged {
                section: Section::Host,
                changed: 3,
                reboot: true,
                boot_id: "t1700000000".into(),
                owed: Vec::new(),
            },
        )
        .done("reboot", Outcome::RebootAsked)
        .feed("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at("t1700000001"))
        .feed("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at("t1700000200"));
    holds(&story, expect_file!["../stories/boot_seconds.txt"]);
}

#[test]
fn a_second_reboot_is_one_too_many() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, true))
        .done("reboot", Outcome::RebootAsked)
        .feed("half an hour later", Input::Fired(Timer::Deadline))
        .person(Signal::Retry)
        .feed("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at("boot-2"))
        .done("converge-host", converged(Section::Host, true));
    holds(&story, expect_file!["../stories/reboots.txt"]);
}

/// One boot of a host that owes `owed` in `boot`.
fn boots(story: &mut Story, boot: u32, owed: &[&str]) {
    let next = format!("boot-{}", boot + 1);
    story
        .done("converge-host", owes(&format!("boot-{boot}"), owed))
        .done("reboot", Outcome::RebootAsked)
        .feed("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at(&next));
}

/// Windows may owe a boot for a name, then for a feature that could only be added under it.
#[test]
fn a_reboot_for_something_else_goes_on() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    boots(&mut story, 1, &["feature:Containers", "hostname"]);
    boots(&mut story, 2, &["feature:Containers"]);
    story.done("converge-host", converged(Section::Host, false));
    assert_eq!(story.state.phase, Phase::NodeWait);
    holds(&story, expect_file!["../stories/reboots_for_more.txt"]);
}

#[test]
fn the_same_reboot_again_is_a_loop() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    boots(&mut story, 1, &["feature:Containers"]);
    story.done("converge-host", owes("boot-2", &["feature:Containers"]));
    assert_eq!(
        failure_of(&story),
        (
            "RebootLoop".into(),
            "the host was rebooted, and asks for the same again: feature:Containers".into()
        )
    );
}

#[test]
fn three_reboots_are_all_that_one_configuration_gets() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    for (boot, owed) in [(1, "a"), (2, "b"), (3, "c")] {
        boots(&mut story, boot, &[owed]);
    }
    story.done("converge-host", owes("boot-4", &["d"]));
    let (code, message) = failure_of(&story);
    assert_eq!(code, "RebootLoop");
    assert!(
        message.contains("3 times") && message.contains(": d;"),
        "{message}"
    );
    // The next configuration has its own three.
    story
        .person(Signal::Retry)
        .done("converge-host", converged(Section::Host, false));
    story.feed(
        "another address",
        machine_is(MachineFact {
            addresses: vec!["10.0.0.2".into()],
            ..machine()
        }),
    );
    boots(&mut story, 4, &["d"]);
    assert!(matches!(
        story.state.phase,
        Phase::ConvergingHost { rebooted: true }
    ));
}

/// An older worker says that a reboot is needed, and not for what; an older build has counted nothing.
#[test]
fn a_reboot_without_a_reason_is_allowed_once() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    boots(&mut story, 1, &[]);
    story.state.host.reboots = Reboots::default();
    story.done("converge-host", owes("boot-2", &[]));
    assert_eq!(failure_of(&story).0, "RebootLoop");
}

pub(super) fn failure_of(story: &Story) -> (String, String) {
    match &story.state.phase {
        Phase::Failed { failure, .. } => (failure.code.clone(), failure.message.clone()),
        phase => panic!("it is {phase:?}"),
    }
}
