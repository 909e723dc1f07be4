//! Hosts of one's own: they are upgraded in place whatever the pool says, and their removal is the run's own work.

use crate::common::{
    Story, carrying, converged, evicted, machine, machine_gone, node_is, planned, pool_is, probed,
    saw, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::{
    machine::{
        ChangeClass, FenceRefusal, MachineApi, MachineFact, MachineRef, NodeFact, Outcome, Section,
        Signal, Task,
    },
    neighbour::Neighbour,
    pool::{AfterTimeout, PoolSettings},
};
use dormer_workflows::machine::{How, Phase, Timer};

fn host() -> MachineFact {
    let machine = machine();
    MachineFact {
        machine: MachineRef {
            api: MachineApi::Host,
            ..machine.machine.clone()
        },
        provider_id: None,
        owner: None,
        platform: "None".into(),
        user: Some("core".into()),
        node: Some("win-a".into()),
        ..machine
    }
}

fn leaving() -> MachineFact {
    MachineFact {
        deleting: true,
        ..host()
    }
}

/// A host whose node serves.
fn serving() -> Story {
    let mut story = Story::begin(host());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .tell("its Node is seen", node_is(carrying("v1")))
        .done("probe", probed())
        .done("plan", planned(None));
    if story.names().contains(&"mark-node") {
        story.done("mark-node", Outcome::NodeMarked);
    }
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    story.text.clear();
    story
}

#[test]
fn it_is_reached_as_the_user_that_its_object_names() {
    let story = Story::begin(host());
    let Task::Probe { host } = story.task("probe") else {
        panic!("a probe")
    };
    assert_eq!(host.user, "core");
    assert_eq!(host.machine.api, MachineApi::Host);
}

#[test]
fn it_is_upgraded_in_place_under_the_lease_whatever_the_strategy_and_the_class() {
    for class in [ChangeClass::Drain, ChangeClass::Replace] {
        let mut story = serving();
        story
            .tell("another version is wanted", pool_is(wanting("v2")))
            .done("plan", planned(Some(class)))
            .granted(7, false);
        let Phase::Opening(change) = &story.state.phase else {
            panic!("{}", story.text)
        };
        assert_eq!(change.how, How::InPlace);
        story
            .done(
                "open-fence",
                Outcome::FenceOpened {
                    was_cordoned: false,
                },
            )
            .done("evict", evicted(1, 0))
            .done("tear-down", Outcome::TornDown)
            .done("probe", probed());
        assert_eq!(story.names(), ["converge-host"]);
        story.done("converge-host", converged(Section::Host, false));
    }
}

#[test]
fn a_person_who_wants_it_made_anew_gets_it_made_anew_in_place() {
    let mut story = serving();
    story.person(Signal::Recreate);
    let Phase::LeaseWait(change) = &story.state.phase else {
        panic!("{}", story.text)
    };
    assert_eq!(change.how, How::InPlace);
}

#[test]
fn its_removal_empties_tears_down_and_forgets_it() {
    let mut story = serving();
    story
        .tell("its entry is taken away", saw(leaving()))
        .done("evict", evicted(2, 1));
    assert!(story.names().is_empty(), "the next pass comes in a while");
    story
        .tell("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(1, 0))
        .done("tear-down", Outcome::TornDown);
    let Task::ForgetHost { node, debt, .. } = story.task("forget-host") else {
        panic!("it is let go")
    };
    assert_eq!((node.as_deref(), debt), (Some("win-a"), None));
    story
        .done("forget-host", Outcome::HostForgotten)
        .tell("its object is gone", machine_gone());
    assert_eq!(story.state.phase, Phase::Gone);
}

#[test]
fn a_dead_host_is_forgotten_by_force_and_the_debt_is_written_down() {
    let mut story = serving();
    story
        .tell("its entry is taken away", saw(leaving()))
        .done("evict", evicted(0, 0))
        .given_up("tear-down", "ConnectTimeout");
    let Task::ForgetHost { debt, .. } = story.task("forget-host") else {
        panic!("it is let go")
    };
    let debt = debt.expect("what is left");
    assert!(
        debt.contains("10.0.0.1") && debt.contains("not torn down"),
        "{debt}"
    );
    assert_eq!(story.state.note, Some(debt));
}

#[test]
fn a_host_that_answers_and_refuses_is_not_forgotten() {
    let mut story = serving();
    story
        .tell("its entry is taken away", saw(leaving()))
        .done("evict", evicted(0, 0))
        .given_up("tear-down", "AuthRejected");
    assert!(matches!(story.state.phase, Phase::Failed { .. }));
    story.person(Signal::Retry);
    assert_eq!(story.names(), ["evict"], "from its first step");
}

#[test]
fn one_that_was_never_reached_is_just_let_go() {
    let mut story = Story::begin(MachineFact {
        node: None,
        addresses: Vec::new(),
        ..host()
    });
    let gone = MachineFact {
        node: None,
        addresses: Vec::new(),
        ..leaving()
    };
    story.tell("its entry is taken away", saw(gone));
    assert_eq!(story.names(), ["forget-host"]);
}

#[test]
fn its_removal_waits_for_a_stopped_pool_and_for_another_operator() {
    let mut story = serving();
    let stopped = Outcome::FenceRefused {
        why: FenceRefusal::Stopped,
        said: "a person stopped it".into(),
    };
    story
        .tell("its entry is taken away", saw(leaving()))
        .done("evict", stopped)
        .tell("five seconds later", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["evict"]);
    assert_eq!(
        story.state.note.as_deref(),
        Some("its removal waits: a person stopped it")
    );

    let mut story = serving();
    let other = MachineFact {
        neighbour: Neighbour::Runs("another one".into()),
        ..leaving()
    };
    story.tell("its entry is taken away", saw(other.clone()));
    assert!(story.names().is_empty(), "{}", story.text);
    story.tell(
        "it is gone",
        saw(MachineFact {
            neighbour: Neighbour::Absent,
            ..other
        }),
    );
    story.tell("five seconds later", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["evict"]);
}

#[test]
fn a_drain_that_takes_too_long_follows_the_pool() {
    for (policy, force) in [(AfterTimeout::Force, true), (AfterTimeout::Abort, false)] {
        let mut story = serving();
        story
            .tell(
                "the policy",
                pool_is(PoolSettings {
                    drain_timeout_ms: 60_000,
                    after_timeout: policy,
                    ..wanting("v1")
                }),
            )
            .tell("its entry is taken away", saw(leaving()))
            .done("evict", evicted(0, 1))
            .tell("the limit is over", Input::Fired(Timer::Drain));
        let forced = story
            .open
            .iter()
            .any(|task| matches!(task, Task::Evict { force: true, .. }));
        assert_eq!(forced, force, "{policy:?}");
    }
}

#[test]
fn a_machine_of_a_controller_is_left_to_its_controller() {
    let mut story = Story::joined(wanting("v1"));
    story.tell(
        "somebody deletes it",
        saw(MachineFact {
            deleting: true,
            ..machine()
        }),
    );
    story.tell("five seconds later", Input::Fired(Timer::Again));
    assert!(story.names().is_empty());
}

#[test]
fn a_removal_counts_as_away_and_leaves_no_gap() {
    let mut story = serving();
    story.tell("its entry is taken away", saw(leaving()));
    let report = story.state.report();
    assert!(report.deleting && report.unavailable && report.owner.is_none());
    story.tell(
        "its Node is gone, too",
        node_is(NodeFact {
            ready: false,
            ..carrying("v1")
        }),
    );
    assert!(story.state.report().unavailable);
}
