//! Stories of what stops work on a machine: the label, a pause, a hold.

use super::certificates::person;
use super::holds;
use super::resets::reset;
use super::serving::adopted_fact;
use crate::common::{
    Story, converged, machine, machine_is, node, node_gone, node_is, pool_is, probed, ready,
    wanting,
};
use dormer_engine_core::{Command, Input};
use dormer_proto::machine::{MachineFact, Section, Signal};
use dormer_workflows::machine::{Halt, Lease, Machine, Phase, Timer};
use expect_test::expect_file;

#[test]
fn ignored_machine() {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed(
            "it is labelled ignore=true",
            machine_is(MachineFact {
                ignored: true,
                ..adopted_fact()
            }),
        )
        .feed("the pool wants v2", pool_is(wanting("v2")))
        .feed("the label goes", machine_is(adopted_fact()));
    holds(&story, expect_file!["../stories/ignored.txt"]);
}

/// Labelled before it ever served: the node that it was made to replace is still missing, and the rollout is told so;
/// and again when another operator has brought it up.
#[test]
fn ignored_before_it_ever_served() {
    let label = |ignored| MachineFact {
        ignored,
        ..machine()
    };
    let mut story = Story::begin(machine());
    story
        .feed("it is labelled ignore=true", machine_is(label(true)))
        .feed("its Node registers", node_is(node()))
        .feed("it is Ready", node_is(ready()))
        .feed("the same Node", node_is(ready()));
    holds(&story, expect_file!["../stories/ignored_early.txt"]);
    // The person who closes its run decides that nothing waits for it.
    let mut story = Story::begin(machine());
    story.feed("it is labelled ignore=true", machine_is(label(true)));
    story.text.clear();
    story.person(Signal::Remove);
    assert!(story.text.contains("left\n"), "{}", story.text);
}

/// A pause and a hold are two halts, and one resume ends both.
#[test]
fn a_pause_and_a_hold_are_both_in_the_view_until_a_resume_ends_them() {
    let mut story = Story::joined(wanting("v1"));
    story.at = 1_000;
    story.person(Signal::Hold);
    let halted = |story: &Story| {
        let view = story.state.view();
        let more = view.also_halted.iter().map(ToString::to_string);
        let first = view.halt.map(|it| it.to_string());
        (
            first.into_iter().chain(more).collect::<Vec<_>>(),
            view.halted_since.map(|it| it.0),
        )
    };
    let held = "held by ada: on call".to_owned();
    assert_eq!(halted(&story), (vec![held.clone()], Some(1_000)));
    story.at = 2_000;
    story.person(Signal::Pause);
    let both = vec!["paused by ada: on call".to_owned(), held];
    assert_eq!(halted(&story), (both, Some(2_000)));
    story.person(Signal::Resume);
    assert_eq!(halted(&story), (Vec::new(), None));
}

pub(super) fn ignored_fact() -> MachineFact {
    MachineFact {
        ignored: true,
        ..adopted_fact()
    }
}

/// The label on the Machine is the Machine's: nothing that is said to the run ends it, and no reset.
#[test]
fn only_its_removal_ends_the_label() {
    let mut story = Story::joined(wanting("v1"));
    let serving = story.state.clone();
    story.feed("it is labelled ignore=true", machine_is(ignored_fact()));
    for signal in [
        Signal::Pause,
        Signal::Resume,
        Signal::Hold,
        Signal::Resume,
        Signal::Drain,
        Signal::Recreate,
        Signal::Approve,
        Signal::Abort,
        Signal::Retry,
        Signal::Enrol,
    ] {
        story.person(signal.clone());
        story.feed("v2 is wanted", pool_is(wanting("v2")));
        story.feed("timer", Input::Fired(Timer::Drift));
        story.feed("the same fact", machine_is(ignored_fact()));
        assert!(story.state.ignored(), "{signal:?}");
        assert_eq!(story.names(), Vec::<&str>::new(), "{signal:?}");
        assert_eq!(story.state.lease, Lease::None, "{signal:?}");
        assert_eq!(story.state.reported, None, "{signal:?}: it is no member");
    }
    reset(&mut story, serving);
    assert_eq!(story.names(), Vec::<&str>::new(), "a reset");
    assert_eq!(story.state.view().halt, Some(Halt::Ignored));
    story.feed("the label goes", machine_is(adopted_fact()));
    assert_eq!(story.names(), ["probe"], "it is looked at anew");
    assert_eq!(
        story.state.leased_request, None,
        "what was asked for meanwhile is not done later"
    );
}

/// A pause and a hold stand beside the label, and beside each other.
#[test]
fn the_halts_are_separate() {
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Hold)
        .person(Signal::Pause)
        .feed("it is labelled ignore=true", machine_is(ignored_fact()));
    let kinds = |story: &Story| {
        let halts = story.state.halts().into_iter();
        halts
            .map(|halt| match halt {
                Halt::Ignored => "ignored",
                Halt::Paused { .. } => "paused",
                Halt::Held { .. } => "held",
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&story), ["ignored", "paused", "held"]);
    story.feed("the label goes", machine_is(adopted_fact()));
    assert_eq!(kinds(&story), ["paused", "held"]);
    assert_eq!(story.names(), Vec::<&str>::new(), "it is still paused");
    story.person(Signal::Resume);
    assert_eq!(kinds(&story), Vec::<&str>::new());
    assert_eq!(story.names(), ["probe"]);
}

/// A state that a build wrote which knew one halt only.
#[test]
fn an_older_builds_halt_is_taken_over() {
    let by = || "ada: on call".to_owned();
    for halt in [Halt::Paused { by: by() }, Halt::Held { by: by() }] {
        let mut story = Story::joined(wanting("v1"));
        story.state.halt = Some(halt.clone());
        assert_eq!(
            story.state.view().halt,
            Some(halt.clone()),
            "before it decides"
        );
        story.feed("v2 is wanted", pool_is(wanting("v2")));
        assert_eq!(story.state.halts(), std::slice::from_ref(&halt));
        assert_eq!(
            story.state.halt,
            Some(halt),
            "and for that build, should it come back"
        );
        assert_eq!(story.names(), Vec::<&str>::new());
        story.person(Signal::Resume);
        assert_eq!(story.names(), ["plan"]);
    }
    // One that had forgotten the label.
    let mut story = Story::joined(wanting("v1"));
    story.state.machine = Some(ignored_fact());
    story.feed("v2 is wanted", pool_is(wanting("v2")));
    assert_eq!(story.names(), Vec::<&str>::new());
}

/// A pause stops the clocks: nothing fails of it, nothing is repaired in it, and the drift timer runs again afterwards.
#[test]
fn a_paused_machine_fails_of_no_deadline() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .person(Signal::Pause)
        .feed("no Node for twenty minutes", Input::Fired(Timer::Deadline));
    assert_eq!(story.state.phase, Phase::NodeWait);
    let commands = story.quietly(person(Signal::Resume));
    let waits = |commands: &[Command<Machine>], timer| {
        commands
            .iter()
            .any(|it| matches!(it, Command::StartTimer(one, _) if *one == timer))
    };
    assert!(waits(&commands, Timer::Deadline), "{commands:?}");

    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Pause)
        .feed("the Node is gone", node_gone())
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .feed("six hours later", Input::Fired(Timer::Drift));
    assert_eq!(story.names(), Vec::<&str>::new());
    assert_eq!(story.state.phase, Phase::Serving);
    let commands = story.quietly(person(Signal::Resume));
    assert!(waits(&commands, Timer::Drift), "{commands:?}");
    assert!(waits(&commands, Timer::Deadline), "{commands:?}");
}
