//! Stories of what stops work on a machine: the label, a pause, a hold.

use super::certificates::person;
use super::holds;
use super::resets::reset;
use super::serving::adopted_fact;
use crate::common::{
    Story, converged, evicted, machine, machine_is, node, node_gone, node_is, pool_is, probed,
    ready, wanting,
};
use dormer_engine_core::{Command, Input};
use dormer_proto::{
    held_by::HeldBy,
    id::Timestamp,
    machine::{MachineFact, Outcome, Section, Signal},
};
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

/// Labelled before it ever served: the node that it was made to replace is still missing, and the rollout learns that;
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
        let more = view.also_halted.iter().map(|(it, _)| it.to_string());
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

/// A name may have the separator of name and reason in records.
#[test]
fn two_people_whose_names_begin_alike_up_to_a_colon_have_two_holds() {
    let mut story = Story::joined(wanting("v1"));
    story.says("ops: ann", "a disk", Signal::Hold);
    story.says("ops: bob", "", Signal::Hold);
    story.says("ops: ann", "another disk", Signal::Hold);
    let held = |story: &Story| {
        let halts = story.state.halts();
        let whose = halts.iter().filter_map(Halt::requester);
        let whose = whose.map(|it| (it.who.to_owned(), it.why.map(str::to_owned)));
        whose.collect::<Vec<_>>()
    };
    let whole = |who: &str, why: Option<&str>| (who.to_owned(), why.map(str::to_owned));
    let bobs = whole("ops: bob", None);
    assert_eq!(
        held(&story),
        [whole("ops: ann", Some("another disk")), bobs.clone()]
    );
    story.says("ops: ann", "", Signal::Resume);
    assert_eq!(held(&story), [bobs], "each ends their own first");
    story.says("ops: carl", "a look", Signal::Pause);
    story.says("ops: dora", "a kernel", Signal::Drain);
    let asked = story.state.view().asked.expect("a drain");
    assert_eq!(asked.who.as_deref(), Some("ops: dora"));
    story.says("ann", "why", Signal::Hold);
    let stored = story.state.holds();
    assert!(
        stored
            .iter()
            .any(|it| it.by == "ann: why" && it.who.is_none())
    );
}

/// A drain is no resume: the hold that it set aside, its person and its time are back when the drain has ended.
#[test]
fn a_hold_outlives_a_drain() {
    let mut story = Story::joined(wanting("v1"));
    story.at = 1_000;
    story.says("ann", "memory dump", Signal::Hold);
    story.at = 2_000;
    story.says("bob", "a disk", Signal::Drain);
    let halts = |story: &Story| story.state.halts_since();
    let anns = Halt::Held {
        by: "ann: memory dump".into(),
        holder: Some(HeldBy::Person),
        who: None,
    };
    assert_eq!(story.state.phase.name(), "waiting for the lease");
    assert_eq!(halts(&story), [], "the drain overrides it");
    let aside = story.state.set_aside.clone();
    assert_eq!(aside.len(), 1);
    assert_eq!(
        (aside[0].by.as_str(), aside[0].at.map(|it| it.0)),
        ("ann: memory dump", Some(1_000))
    );
    let waits = story.state.clone();
    story
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(1, 0));
    assert_eq!(story.state.phase, Phase::Drained);
    story.at = 3_000;
    story.says("bob", "", Signal::Resume);
    assert_eq!(halts(&story), [(anns.clone(), Some(Timestamp(1_000)))]);
    story.done("close-fence", Outcome::FenceClosed);
    story.feed("the pool wants v2", pool_is(wanting("v2")));
    assert_eq!(story.state.phase, Phase::Serving, "ann holds it");
    assert_eq!(story.names(), Vec::<&str>::new());
    // An abort of the drain ends it as well; the two holds are kept.
    story.state = waits;
    story.says("carl", "not now", Signal::Abort);
    let both = ["held by ann: memory dump", "held by carl: not now"];
    let halts: Vec<String> = story
        .state
        .halts()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(halts, both);
}

/// Two people hold one machine: both holds are kept, and a resume ends first one's own.
#[test]
fn each_person_has_a_hold() {
    let mut story = Story::joined(wanting("v1"));
    let halts = |story: &Story| {
        let halts = story.state.halts_since().into_iter();
        let halts = halts.map(|(halt, since)| (halt.to_string(), since.map_or(0, |it| it.0)));
        halts.collect::<Vec<_>>()
    };
    let ann = |why: &str| (format!("held by ann: {why}"), 1_000);
    let bob = ("held by bob: a disk".to_owned(), 2_000);
    story.at = 1_000;
    story.says("ann", "memory dump", Signal::Hold);
    story.at = 2_000;
    story.says("bob", "a disk", Signal::Hold);
    assert_eq!(halts(&story), [ann("memory dump"), bob.clone()]);
    story.at = 3_000;
    story.says("ann", "a longer one", Signal::Hold);
    assert_eq!(halts(&story), [ann("a longer one"), bob.clone()]);
    let both = story.state.clone();
    story.says("ann", "", Signal::Resume);
    assert_eq!(halts(&story), [bob]);
    story.feed("the pool wants v2", pool_is(wanting("v2")));
    assert_eq!(story.names(), Vec::<&str>::new(), "bob still holds it");
    story.says("ann", "", Signal::Resume);
    assert_eq!(halts(&story), []);
    assert_ne!(story.names(), Vec::<&str>::new(), "it is upgraded");
    story.state = both;
    story.says("carl", "", Signal::Resume);
    assert_eq!(halts(&story), [], "who holds nothing ends all");
    // The first person's pause stays.
    story.says("ann", "a look", Signal::Pause);
    story.says("bob", "another look", Signal::Pause);
    assert_eq!(halts(&story), [("paused by ann: a look".to_owned(), 3_000)]);
    // A record has room for so many.
    story.says("ann", "", Signal::Resume);
    for person in 0..20 {
        story.says(&format!("person-{person}"), "", Signal::Hold);
    }
    assert_eq!(halts(&story).len(), 16);
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

/// A person may have read the machine before another person held it.
#[test]
fn a_retry_of_a_machine_that_people_keep_does_nothing() {
    for keep in [Signal::Hold, Signal::Pause] {
        let mut story = Story::begin(machine());
        story
            .feed("the pool's settings are seen", pool_is(wanting("v1")))
            .done("probe", probed())
            .given_up("converge-host", "DiskFull");
        let failed = story.state.phase.clone();
        assert!(matches!(failed, Phase::Failed { .. }));
        story.person(keep.clone()).person(Signal::Retry);
        assert_eq!(story.names(), Vec::<&str>::new(), "{keep:?}");
        assert_eq!(story.state.phase, failed, "{keep:?}");
        let refused = story.state.retry_refused().unwrap_or_default();
        assert!(!refused.is_empty(), "{keep:?}");
        story.person(Signal::Resume).person(Signal::Retry);
        assert_eq!(story.names(), ["converge-host"], "{keep:?}");
        assert_eq!(story.state.retry_refused(), None);
    }
}

/// dormer marks its own holds itself: they are not recognised by the name in the text.
#[test]
fn a_person_of_the_name_dormer_keeps_a_machine_as_any_other() {
    for keep in [Signal::Hold, Signal::Pause] {
        let mut story = Story::begin(machine());
        story
            .feed("the pool's settings are seen", pool_is(wanting("v1")))
            .done("probe", probed())
            .given_up("converge-host", "DiskFull")
            .says("dormer", "a new disk", keep.clone());
        story.person(Signal::Retry);
        assert_eq!(story.names(), Vec::<&str>::new(), "{keep:?}");
        let refused = story.state.retry_refused().unwrap_or_default();
        assert!(
            refused.contains("dormer: a new disk"),
            "{keep:?}: {refused}"
        );
    }
}

/// A build that stored no holder had the text alone.
#[test]
fn an_older_builds_own_hold_is_known_by_its_text() {
    for (by, kept) in [("dormer: no owner", false), ("ann: a new disk", true)] {
        let mut story = Story::joined(wanting("v1"));
        story.state.held = Some(by.to_owned());
        assert_eq!(story.state.kept_by_people().is_some(), kept, "{by}");
        story.says("bob", "", Signal::Hold);
        let mut holders = story.state.holds().into_iter().map(|hold| hold.is_own());
        assert_eq!(holders.next(), Some(!kept), "{by}");
        assert_eq!(holders.next(), Some(false), "{by}");
    }
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
    let held = Halt::Held {
        by: by(),
        holder: None,
        who: None,
    };
    for halt in [
        Halt::Paused {
            by: by(),
            who: None,
        },
        held,
    ] {
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

/// `dormer hold` says so: an upgrade that runs is stopped by an abort, and a hold keeps the machine out of the next one.
#[test]
fn a_hold_does_not_stop_an_upgrade_that_runs() {
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Recreate)
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .person(Signal::Hold)
        .done("evict", evicted(1, 0));
    assert_eq!(story.state.phase, Phase::Deleting, "{}", story.text);
    assert_eq!(story.state.halts().len(), 1);
}
