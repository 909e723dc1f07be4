//! Stories of resets to an earlier record.

use super::drain::draining;
use super::serving::adopted_fact;
use crate::common;
use crate::common::{
    Story, carrying, converged, evicted, in_place, machine, machine_gone, machine_is, node_is,
    planned, pool_is, probed, wanting,
};
use dormer_engine_core::{Command, Input, Now, Workflow};
use dormer_proto::id::{LeaseToken, Seq, Timestamp};
use dormer_proto::machine::{ChangeClass, MachineFact, NodeFact, Outcome, Section, Signal, Task};
use dormer_proto::pool::{Approval, PoolSettings};
use dormer_workflows::machine::{Lease, Machine, Phase, State, Timer};

#[test]
fn a_reset_keeps_the_world_and_the_lease() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    let early = story.state.clone();
    let mut story = Story::joined(wanting("v1"));
    story.wants_v2(ChangeClass::Drain).granted(7, false);
    let run = common::run_id();
    let now = Now {
        run: &run,
        seq: Seq(99),
        at: Timestamp(5),
    };
    let decision = Machine::reset(now, early.clone(), &story.state);
    assert_eq!(decision.state.lease, story.state.lease);
    assert_eq!(decision.state.node, story.state.node);
    assert_eq!(
        decision.state.phase,
        Phase::Undoing,
        "a step of another time"
    );
    // Without the lease a node that serves is not touched: it is compared, and what differs takes its way.
    let quiet = Story::joined(wanting("v1"));
    let decision = Machine::reset(now, early, &quiet.state);
    assert_eq!(decision.state.phase, Phase::Checking);
}

/// The state of a run after a person reset it to `then`.
pub(super) fn reset(story: &mut Story, then: State) -> Vec<Command<Machine>> {
    let run = common::run_id();
    let now = Now {
        run: &run,
        seq: Seq(99),
        at: Timestamp(story.at),
    };
    let decision = Machine::reset(now, then, &story.state);
    story.state = decision.state;
    let tasks = decision
        .commands
        .iter()
        .filter_map(|command| match command {
            Command::Run(task, _) => Some(task.clone()),
            _ => None,
        });
    story.open = tasks.collect();
    decision.commands
}

/// A key that a person trusts stays trusted, whatever record the run is reset to: the step after the reset uses it.
#[test]
fn a_reset_keeps_the_key_that_a_person_trusts() {
    let mut story = Story::begin(machine());
    story.feed("the pool's settings are seen", pool_is(wanting("v1")));
    story.done("probe", probed());
    let then = story.state.clone();
    story.given_up("converge-host", "HostKeyChanged");
    story.person(Signal::TrustHostKey {
        fingerprint: "SHA256:new".into(),
    });
    reset(&mut story, then);
    let Task::Converge { host, .. } = story.task("converge-host") else {
        panic!("{}", story.text)
    };
    assert_eq!(host.pin.as_deref(), Some("SHA256:new"));
}

/// A reset goes back to no step that a node that serves would feel: not to a tear-down, a reboot, a restart, a drain.
#[test]
fn no_reset_goes_round_plan_approval_and_drain() {
    let manual = || PoolSettings {
        approval: Approval::Manual,
        ..in_place("v2")
    };
    // Every state of an upgrade in place, as it was recorded.
    let mut story = Story::joined(wanting("v1"));
    let mut states = vec![story.state.clone()];
    let mut upgrade = Story::joined(in_place("v1"));
    upgrade
        .feed("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)));
    states.push(upgrade.state.clone());
    upgrade.granted(7, false);
    let steps = [
        (
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        ),
        ("evict", evicted(4, 0)),
        ("tear-down", Outcome::TornDown),
        ("probe", probed()),
        ("converge-host", converged(Section::Host, false)),
        ("converge-node", converged(Section::Node, false)),
    ];
    for (task, outcome) in steps {
        states.push(upgrade.state.clone());
        upgrade.done(task, outcome);
    }
    story.feed("the pool wants v2 with approval", pool_is(manual()));
    let serving = story.state.clone();
    for mut then in states {
        let name = then.phase.name();
        story.state = serving.clone();
        // An approval of that time, whose change was given up since.
        (then.approved, then.approved_for) = (true, Some("v2".into()));
        reset(&mut story, then);
        assert_eq!(story.names(), ["plan"], "{name}: it is compared first");
        story.done("plan", planned(Some(ChangeClass::Drain)));
        let waits = matches!(story.state.phase, Phase::ApprovalWait(_));
        assert!(waits, "{name}: {}", story.state.phase.name());
        assert_eq!(story.state.lease, Lease::None, "{name}");
    }
}

/// A record of another time knows nothing of the lease that is held now.
#[test]
fn a_reset_under_the_lease_gives_it_back_or_sets_the_host_up_again() {
    let early = {
        let mut story = Story::begin(machine());
        story
            .feed("the pool's settings are seen", pool_is(in_place("v1")))
            .done("probe", probed());
        story.state
    };
    let mut story = Story::joined(in_place("v1"));
    story
        .feed("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .feed(
            "the Node is cordoned",
            node_is(NodeFact {
                cordoned: true,
                ..carrying("v1")
            }),
        );
    let evicting = story.state.clone();
    let before = story.state.clone();
    reset(&mut story, early.clone());
    assert_eq!(
        story.state.phase,
        Phase::Undoing,
        "nothing is destroyed yet"
    );
    story.state = before;
    story.open = vec![];
    reset(&mut story, evicting);
    assert_eq!(story.names(), ["evict"], "a record of the same lease");
    story
        .done("evict", evicted(4, 0))
        .done("tear-down", Outcome::TornDown);
    reset(&mut story, early);
    assert_eq!(story.state.phase, Phase::Reprobing, "the host is not whole");
}

/// What leaves is not revived by an old record: a zombie would count as unavailable for ever.
#[test]
fn a_reset_revives_no_machine_that_leaves() {
    let mut story = Story::joined(wanting("v1"));
    let serving = story.state.clone();
    story.feed(
        "somebody deletes it",
        machine_is(MachineFact {
            deleting: true,
            ..adopted_fact()
        }),
    );
    for then in [serving.clone(), story.state.clone()] {
        let commands = reset(&mut story, then);
        assert_eq!(story.state.phase, Phase::Leaving);
        assert!(story.open.is_empty(), "{commands:?}");
        assert!(story.state.report().deleting);
    }
    story.feed("the Machine is gone", machine_gone());
    reset(&mut story, serving.clone());
    assert_eq!(story.state.phase, Phase::Gone);

    // One whose replacement is awaited.
    let mut story = draining(wanting("v2"));
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(2, 0))
        .done("delete-machine", Outcome::MachineDeleted)
        .feed("the Machine is gone", machine_gone())
        .done("close-fence", Outcome::FenceClosed);
    reset(&mut story, serving);
    assert_eq!(story.state.phase, Phase::ReplacementWait);
}

/// An older build noted at the resume that a machine serves. A reset may be the first input that this build sees.
#[test]
fn a_reset_of_a_machine_that_an_older_build_left_without_its_service_still_counts_it() {
    let mut story = Story::joined(wanting("v1"));
    let serving = story.state.clone();
    let mut early = Story::begin(machine());
    early
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    for (then, tasks) in [(serving, vec![]), (early.state, vec!["plan"])] {
        story.state.in_service = false;
        reset(&mut story, then);
        assert!(story.state.in_service, "{:?}", story.state.phase);
        assert!(story.state.report().had_node);
        assert_eq!(story.names(), tasks, "its node is not touched");
        story = Story::joined(wanting("v1"));
    }
}

/// A record in which it served says nothing of the node that it has now.
#[test]
fn a_reset_gives_no_service_to_a_machine_whose_node_has_lost_it() {
    let mut story = Story::joined(wanting("v1"));
    let serving = story.state.clone();
    story.state.in_service = false;
    story.state.phase = Phase::NodeWait;
    story.state.node = None;
    reset(&mut story, serving);
    assert!(!story.state.in_service, "{:?}", story.state.phase);
}

/// How long its Node is down, and which token it returned last, are facts: an old record would ask for a lease over the
/// limit for a Node that is Ready, or take its own closed token for another's.
#[test]
fn a_reset_keeps_how_long_the_node_is_down_and_the_last_token() {
    let down = NodeFact {
        ready: false,
        ..carrying("v1")
    };
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("its Node is not Ready", node_is(down))
        .wants_v2(ChangeClass::Drain)
        .later_ms(60 * 60_000)
        .feed("ten minutes later", Input::Fired(Timer::Deadline));
    let then = story.state.clone();
    assert!(then.report().repair, "{}", story.text);
    story.feed("it is Ready again", node_is(carrying("v1")));
    story.state.closed = LeaseToken(9);
    reset(&mut story, then.clone());
    let report = story.state.report();
    assert!(!report.repair, "it is Ready: {report:?}");
    assert_eq!(story.state.closed, LeaseToken(9));

    // And one that is down stays so.
    let mut ready = then.clone();
    ready.down = None;
    story.state = then;
    reset(&mut story, ready);
    assert!(story.state.down.is_some_and(|down| down.long));
}
