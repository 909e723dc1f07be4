//! Stories of what a change waits for: approval, an owner, the lease, and a person's request.

use super::holds;
use super::serving::adopted_fact;
use super::versions::waits;
use crate::common::{
    Story, carrying, converged, evicted, in_place, machine, machine_is, node_gone, node_is,
    planned, pool_is, probed, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::machine::{ChangeClass, MachineFact, NodeFact, Outcome, Owner, Section, Signal};
use dormer_proto::pool::{Approval, PoolSettings};
use dormer_workflows::machine::{ChangeStrategy, Lease, Phase, Timer};
use expect_test::expect_file;

#[test]
fn manual_approval_reaches_who_waits_for_the_lease_and_names_who_is_beyond_it() {
    let manual = || PoolSettings {
        approval: Approval::Manual,
        ..in_place("v2")
    };
    let mut queued = Story::joined(in_place("v1"));
    queued.wants_v2(ChangeClass::Drain);
    assert_eq!(queued.state.lease, Lease::Wanted);
    queued
        .feed("a person wants to approve", pool_is(manual()))
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(matches!(queued.state.phase, Phase::ApprovalWait(_)));
    assert_eq!(queued.state.lease, Lease::None);

    let mut begun = Story::joined(in_place("v1"));
    begun.wants_v2(ChangeClass::Drain).granted(1, false);
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    begun
        .done("open-fence", opened)
        .done("evict", evicted(1, 1));
    assert!(!waits(&begun).contains("approval"));
    begun.feed("a person wants to approve", pool_is(manual()));
    let said = "1 pod to leave: shop/web-1 (budget web allows 0) (it began before approval became manual, and continues)";
    assert_eq!(waits(&begun), said);
    begun.person(Signal::Abort);
    assert!(!waits(&begun).contains("approval"), "{}", waits(&begun));
}

/// It is asked when the pool changes, too. A machine that an earlier build kept in the queue is asked again before
/// anything is done to it.
#[test]
fn a_grant_asks_again_for_the_approval() {
    let mut story = Story::joined(in_place("v1"));
    story.wants_v2(ChangeClass::Drain);
    assert!(matches!(story.state.phase, Phase::LeaseWait(_)));
    let pool = story.state.pool.as_mut().expect("its pool");
    pool.approval = Approval::Manual;
    story.granted(1, false);
    assert_eq!(story.state.phase, Phase::Undoing);
    story.done("close-fence", Outcome::FenceClosed);
    story.done("plan", planned(Some(ChangeClass::Drain)));
    assert!(matches!(story.state.phase, Phase::ApprovalWait(_)));
}

#[test]
fn a_grant_asks_again_for_the_node_that_was_gone() {
    let mut story = Story::joined(in_place("v1"));
    story
        .feed("the Node is gone", node_gone())
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent);
    assert!(matches!(&story.state.phase, Phase::LeaseWait(change) if change.repair));
    story.state.node = Some(carrying("v1"));
    story.granted(1, false);
    assert_eq!(story.state.phase, Phase::Undoing);
}

#[test]
fn what_keeps_an_upgrade_from_starting() {
    let mut story = Story::joined(wanting("v1"));
    let manual = PoolSettings {
        approval: Approval::Manual,
        ..wanting("v2")
    };
    story
        .feed("the pool wants v2, with approval", pool_is(manual))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .person(Signal::Hold)
        .person(Signal::Resume)
        .done("plan", planned(Some(ChangeClass::Drain)))
        .person(Signal::Approve)
        .person(Signal::Pause)
        .granted(7, false)
        .person(Signal::Resume)
        .person(Signal::Abort)
        .done("close-fence", Outcome::FenceClosed);
    holds(&story, expect_file!["../stories/approval_hold_pause.txt"]);

    let orphan = MachineFact {
        owner: None,
        node: Some("win-a".into()),
        ..machine()
    };
    let mut story = Story::joined(wanting("v1"));
    story.quietly(machine_is(orphan));
    story.wants_v2(ChangeClass::Drain);
    holds(&story, expect_file!["../stories/no_owner.txt"]);
}

#[test]
fn who_asked_for_a_drain_stays_known_until_it_ends() {
    use dormer_workflows::machine::{LeasedRequest, PendingRequest};
    let mut story = Story::joined(wanting("v1"));
    story.at = 5_000;
    story.person(Signal::Drain);
    let asked = |story: &Story| story.state.view().asked;
    let found = asked(&story).expect("it waits for the lease");
    assert_eq!(found.what, LeasedRequest::Drain);
    assert_eq!(found.by.as_deref(), Some("ada: on call"));
    assert_eq!(found.at.map(|it| it.0), Some(5_000));
    story
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(4, 0));
    assert_eq!(story.state.phase, Phase::Drained);
    let begun = PendingRequest {
        begun: true,
        ..found
    };
    assert_eq!(asked(&story), Some(begun));
    story.person(Signal::Resume);
    assert_eq!(asked(&story), None);
}

#[test]
fn a_person_drains_and_recreates() {
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Drain)
        .granted(7, false)
        .done("open-fence", Outcome::FenceOpened { was_cordoned: true })
        .done("evict", evicted(4, 0))
        .person(Signal::Resume)
        .done("close-fence", Outcome::FenceClosed)
        .person(Signal::Recreate)
        .granted(8, false)
        .feed(
            "its owner forbids a drain",
            machine_is(MachineFact {
                exclude_drain: true,
                drain_excluded_by: vec!["machine.cluster.x-k8s.io/exclude-node-draining".into()],
                node: Some("win-a".into()),
                ..machine()
            }),
        )
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        );
    holds(&story, expect_file!["../stories/a_persons_request.txt"]);
}

/// A grant, like a request, is judged by what is known when it arrives.
#[test]
fn a_grant_finds_the_owner_gone() {
    let orphan = || MachineFact {
        owner: None,
        ..adopted_fact()
    };
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Drain)
        .feed("its MachineSet lets go of it", machine_is(orphan()))
        .granted(7, false);
    assert_eq!(story.names(), ["close-fence"], "given back");
    story
        .done("close-fence", Outcome::FenceClosed)
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(matches!(story.state.phase, Phase::OwnerWait(_)));
    story.person(Signal::Abort);
    assert_eq!(
        story.state.phase,
        Phase::Serving,
        "and it can be left alone"
    );

    // A person's wish in the queue of a change in place.
    let mut story = Story::joined(in_place("v1"));
    story
        .feed("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .feed("its MachineSet lets go of it", machine_is(orphan()))
        .person(Signal::Recreate);
    assert!(matches!(story.state.phase, Phase::OwnerWait(_)));
    assert_eq!(story.state.lease, Lease::None);

    // A controller that makes no other Machine is no owner.
    let other = MachineFact {
        owner: Some(Owner {
            kind: "Deployment".into(),
            name: "d".into(),
            uid: "uid-d".into(),
        }),
        ..adopted_fact()
    };
    let mut story = Story::joined(wanting("v1"));
    story.feed("it has another controller", machine_is(other));
    story.wants_v2(ChangeClass::Drain);
    assert!(matches!(story.state.phase, Phase::OwnerWait(_)));
    assert_eq!(story.state.report().owner, None);
}

/// A person's approval is for the version of that day.
#[test]
fn an_approval_is_for_one_version() {
    let manual = |version| PoolSettings {
        approval: Approval::Manual,
        ..in_place(version)
    };
    let approval_waits = |story: &Story| matches!(story.state.phase, Phase::ApprovalWait(_));
    // Before anything was to be approved.
    let mut story = Story::joined(manual("v1"));
    story
        .person(Signal::Approve)
        .feed("v2 is wanted", pool_is(manual("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(approval_waits(&story));
    // In the queue for v2, and v3 comes.
    story
        .person(Signal::Approve)
        .feed("v3 is wanted", pool_is(manual("v3")))
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(approval_waits(&story));
    // Under way to v3, and v4 comes: v3 is finished first.
    story
        .person(Signal::Approve)
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(4, 0))
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .feed("v4 is wanted", pool_is(manual("v4")))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked);
    assert_eq!(story.state.version.as_deref(), Some("v3"));
    story
        .done("close-fence", Outcome::FenceClosed)
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(approval_waits(&story), "{}", story.text);
}

/// A change without a drain stays one: a newer version waits for its own plan.
#[test]
fn a_restart_does_not_become_more_than_that() {
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Restart)
        .granted(7, false)
        .done("open-fence", opened)
        .feed("v3 is wanted", pool_is(wanting("v3")))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked);
    assert_eq!(story.state.version.as_deref(), Some("v2"));
    // A new version while a live change is marked: the node serves, and is compared.
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("the pool wants v2", pool_is(wanting("v2")))
        .done("plan", planned(Some(ChangeClass::Live)))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .feed("v3 is wanted", pool_is(wanting("v3")));
    assert_eq!(story.names(), ["plan"]);
}

/// Who waits for the lease is planned anew when the pool's strategy, or its approval, is changed.
#[test]
fn a_changed_strategy_changes_what_is_waited_for() {
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Drain)
        .feed("in place from now on", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)));
    let Phase::LeaseWait(change) = &story.state.phase else {
        panic!("{}", story.state.phase.name());
    };
    assert_eq!(change.how, ChangeStrategy::InPlace);
    let manual = PoolSettings {
        approval: Approval::Manual,
        ..in_place("v2")
    };
    story
        .feed("with approval from now on", pool_is(manual))
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(matches!(story.state.phase, Phase::ApprovalWait(_)));
}

/// What a person asks for while something else is under way is done after it.
#[test]
fn a_request_is_not_lost_during_a_change() {
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Restart)
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .person(Signal::Drain)
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(waits(&story), "the rollout's lease");
    // Drained, and now to be replaced.
    story
        .granted(8, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(4, 0))
        .person(Signal::Recreate);
    assert_eq!(story.names(), ["delete-machine"]);
    // A person uncordons a Node that is drained: it is emptied again, until it is resumed.
    let mut story = Story::joined(wanting("v1"));
    let cordoned = NodeFact {
        cordoned: true,
        ..carrying("v1")
    };
    story
        .person(Signal::Drain)
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .feed("the Node is cordoned", node_is(cordoned))
        .done("evict", evicted(4, 0))
        .feed("somebody uncordons it", node_is(carrying("v1")));
    assert_eq!(story.names(), ["open-fence"]);
}
