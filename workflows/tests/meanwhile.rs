//! What people and controllers do between a fact and the step that relies on it: cordons, uncordons, requests and
//! failures in the middle of a change under the lease.

use crate::common::{
    In, Story, carrying, converged, evicted, in_place, machine, machine_is, node_gone, node_is,
    owes, planned, pool_is, probed, ready, wanting,
};
use dormer_engine_core::{Command, Input, Now, Workflow};
use dormer_proto::{
    checks::{CheckResult, NodeCheck},
    id::{Seq, Timestamp},
    machine::{
        ChangeClass, FenceRefusal, Guard, MachineApi, MachineFact, MachineRef, NodeFact, Outcome,
        Section, Signal, Task,
    },
    message::Failure,
    pool::PoolSettings,
};
use dormer_workflows::machine::{Lease, Machine, Phase, RequestProgress, State, Timer};
use expect_test::expect_file;

mod torn_down;

const OPENED: Outcome = Outcome::FenceOpened {
    was_cordoned: false,
};

fn cordoned() -> In {
    node_is(NodeFact {
        cordoned: true,
        ..carrying("v1")
    })
}

fn uncordoned() -> In {
    node_is(carrying("v1"))
}

/// The Node of a host whose kubelet is stopped.
fn silent() -> In {
    node_is(NodeFact {
        ready: false,
        cordoned: true,
        ..carrying("v1")
    })
}

fn guard(story: &Story, name: &str) -> Guard {
    match story.task(name) {
        Task::OpenFence { guard, .. }
        | Task::Evict { guard, .. }
        | Task::DeleteMachine { guard, .. }
        | Task::TearDown { guard, .. } => guard,
        other => panic!("{} has no guard", other.name()),
    }
}

/// A machine in mid-drain: its Node is cordoned, and pods are left.
fn draining(pool: PoolSettings) -> Story {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("the pool wants v2", pool_is(pool))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done("open-fence", OPENED)
        .feed("the Node is cordoned", cordoned())
        .done("evict", evicted(1, 3));
    story
}

/// A machine whose pods have left, and whose host is to be torn down.
fn tearing_down() -> Story {
    let mut story = draining(in_place("v2"));
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(3, 0));
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    story
}

/// A BYOH host that serves.
fn own_host() -> Story {
    let machine = machine();
    let host = MachineFact {
        machine: MachineRef {
            api: MachineApi::Host,
            ..machine.machine.clone()
        },
        provider_id: None,
        owner: None,
        platform: "None".into(),
        node: Some("win-a".into()),
        ..machine
    };
    let mut story = Story::begin(host);
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .feed("its Node is seen", uncordoned())
        .done("probe", probed())
        .done("plan", planned(None));
    if story.names().contains(&"mark-node") {
        story.done("mark-node", Outcome::NodeMarked);
    }
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    story
}

/// From the grant to the closed fence, in place.
fn made_anew(story: &mut Story, token: u64) {
    story
        .granted(token, false)
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 0))
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("its Node is Ready", node_is(ready()))
        .done("converge-node", converged(Section::Node, false))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked);
}

#[test]
fn a_host_that_was_made_anew_is_not_made_anew_once_more() {
    let mut story = own_host();
    story.person(Signal::Recreate);
    made_anew(&mut story, 7);
    story.done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    assert_eq!(story.state.lease, Lease::None, "{}", story.text);
    assert_eq!(story.state.leased_request, None);
}

#[test]
fn a_request_that_comes_when_the_host_is_torn_down_is_another_one() {
    let mut story = own_host();
    story
        .person(Signal::Recreate)
        .granted(7, false)
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 0))
        .person(Signal::Recreate)
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("its Node is Ready", node_is(ready()))
        .done("converge-node", converged(Section::Node, false))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
    made_anew(&mut story, 8);
    story.done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.lease, Lease::None, "{}", story.text);
}

/// The pool makes its upgrades in place, and a person wants another Machine: the upgrade does not grant that.
#[test]
fn an_upgrade_in_place_does_not_fulfil_the_request_for_another_machine() {
    let mut story = draining(in_place("v2"));
    story
        .person(Signal::Recreate)
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(3, 0))
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("its Node is Ready", node_is(ready()))
        .done("converge-node", converged(Section::Node, false))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
}

#[test]
fn a_host_that_was_not_torn_down_and_serves_again_is_drained_again() {
    let failed = || {
        let mut story = tearing_down();
        story.given_up("tear-down", "AuthRejected");
        story
    };
    let mut story = failed();
    story
        .feed("an admin uncordons it, and pods come", uncordoned())
        .person(Signal::Retry);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
    story.done("open-fence", OPENED);
    assert_eq!(story.names(), ["evict"], "{}", story.text);
    // Uncordoned and cordoned again: the pods of the meantime are still there.
    let mut story = failed();
    story
        .feed("an admin uncordons it, and pods come", uncordoned())
        .feed("and cordons it again", cordoned())
        .person(Signal::Retry);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    // Half torn down: its kubelet is stopped, and no pod runs.
    let mut story = failed();
    story
        .feed("its kubelet is silent", silent())
        .person(Signal::Retry);
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
}

#[test]
fn a_drain_that_failed_cordons_again_before_it_goes_on() {
    let mut story = draining(wanting("v2"));
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .given_up("evict", "Forbidden")
        .feed("an admin uncordons it", uncordoned())
        .person(Signal::Retry);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    let mut story = draining(wanting("v2"));
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .given_up("evict", "Forbidden")
        .person(Signal::Retry);
    assert_eq!(story.names(), ["evict"], "nobody uncordoned it");
}

/// The worker reads the Node before it tears the host down.
#[test]
fn a_tear_down_that_finds_a_schedulable_node_goes_back_to_the_drain() {
    let mut story = tearing_down();
    let refused = Outcome::FenceRefused {
        why: FenceRefusal::Uncordoned,
        said: "the Node win-a was uncordoned".into(),
    };
    story.done("tear-down", refused);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
    assert!(story.state.lease.token().is_some());
    let note = story.state.note.clone().unwrap_or_default();
    assert!(note.contains("uncordoned"), "{note}");
}

/// An attempt may have begun: the host is whole if its kubelet stays Ready.
#[test]
fn an_uncordon_during_a_tear_down_reaches_the_worker() {
    let mut story = tearing_down();
    story.feed("an admin uncordons it", uncordoned());
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    let asked = guard(&story, "tear-down");
    assert!(asked.anew && asked.begun, "{asked:?}");
    // Cordoned again: the pods of the meantime are still there.
    story.feed("and cordons it again", cordoned());
    assert!(guard(&story, "tear-down").anew);
    story.given_up("tear-down", "NodeUncordoned");
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
    // The next lease knows nothing of that.
    let mut story = tearing_down();
    assert!(!guard(&story, "tear-down").anew);
    story.feed("its kubelet is stopped", silent());
    assert!(!guard(&story, "tear-down").anew);
}

/// Nothing cordons the Node again: once its kubelet is set up and Ready, pods come, and a reboot ends them.
#[test]
fn an_uncordon_during_a_tear_down_is_known_after_it() {
    let mut story = tearing_down();
    let silent_and_schedulable = NodeFact {
        ready: false,
        ..carrying("v1")
    };
    story
        .feed("an admin uncordons it", node_is(silent_and_schedulable))
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed());
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
    story
        .feed("its kubelet is back, and pods come", uncordoned())
        .done("converge-host", owes("boot-1", &["feature:Containers"]));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
}

/// A pod may hold a drain for days. After a rollback to what the machine carries, nothing is left to do.
#[test]
fn a_rollback_to_what_it_carries_undoes_its_drain() {
    let mut story = draining(wanting("v2"));
    story.feed("the pool goes back to v1", pool_is(wanting("v1")));
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    let note = story.state.note.clone().unwrap_or_default();
    assert!(note.contains("went back to v1"), "{note}");
    story.done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    assert_eq!(story.state.lease, Lease::None, "the next one may go");
    assert_eq!(story.state.held, None, "it follows the next upgrade");

    // Before the Node is cordoned.
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("the pool wants v2", pool_is(wanting("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .feed("the pool goes back to v1", pool_is(wanting("v1")));
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
}

/// What it carries is not desired either, or its pods are gone already: the change ends with what is desired then.
#[test]
fn a_drain_goes_on_to_the_version_that_is_desired_when_it_ends() {
    let mut story = draining(wanting("v2"));
    story.feed("the pool wants v3", pool_is(wanting("v3")));
    assert_eq!(story.names(), Vec::<&str>::new(), "{}", story.text);
    assert!(matches!(story.state.phase, Phase::Evicting(..)));
    let mut story = tearing_down();
    story.feed("the pool goes back to v1", pool_is(in_place("v1")));
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    story
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed());
    assert_eq!(story.state.target.version, "v1", "{}", story.text);
}

/// A person wants it for its own sake, whatever its version.
#[test]
fn a_rollback_ends_no_drain_that_a_person_asked_for() {
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Recreate)
        .granted(7, false)
        .done("open-fence", OPENED)
        .feed("the Node is cordoned", cordoned())
        .done("evict", evicted(1, 3))
        .feed("the pool wants v2", pool_is(wanting("v2")))
        .feed("the pool goes back to v1", pool_is(wanting("v1")));
    assert!(matches!(story.state.phase, Phase::Evicting(..)));
}

/// The order is made again under another number, for the same tear-down.
#[test]
fn a_tear_down_stays_begun_when_the_api_server_was_away() {
    let mut story = tearing_down();
    let task = story.task("tear-down");
    let failure = Failure::transient("ApiUnreachable", "no answer");
    story.feed(
        "the API server is away for hours",
        Input::Exhausted { task, failure },
    );
    assert!(guard(&story, "tear-down").begun, "{}", story.text);
}

/// The open task that cordons again may fail, and a person may cordon it first.
#[test]
fn an_uncordon_in_mid_drain_is_known_until_the_node_is_cordoned_again() {
    let mut story = draining(in_place("v2"));
    story
        .feed("an admin uncordons it", uncordoned())
        .given_up("open-fence", "Forbidden")
        .feed("and cordons it again", cordoned())
        .person(Signal::Retry);
    assert!(story.names().contains(&"open-fence"), "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
}

#[test]
fn a_dead_host_that_is_to_be_made_anew_lets_others_go_first() {
    let mut story = own_host();
    story
        .person(Signal::Recreate)
        .feed("its kubelet is silent", silent())
        .granted(7, true)
        .done("open-fence", OPENED)
        .done("evict", evicted(0, 0))
        .given_up("tear-down", "ConnectTimeout")
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.lease, Lease::None, "{}", story.text);
    story.feed("ten minutes later", Input::Fired(Timer::Drift));
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
}

/// As a build before this one wrote it, which had no note of the cordon.
#[test]
fn an_older_builds_request_overrides_the_cordon_as_it_did() {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("a person cordons it", cordoned())
        .person(Signal::Recreate);
    story.state.request_progress = RequestProgress::default();
    assert!(!story.state.report().cordoned);
}

#[test]
fn a_node_that_was_uncordoned_during_a_pause_is_drained_anew() {
    let mut story = draining(in_place("v2"));
    story
        .person(Signal::Pause)
        .feed("an admin uncordons it, and pods come", uncordoned())
        .feed("and cordons it again", cordoned())
        .person(Signal::Resume);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
    story.done("open-fence", OPENED);
    // The next pause finds nothing of that.
    story
        .done("evict", evicted(1, 1))
        .person(Signal::Pause)
        .person(Signal::Resume);
    assert_eq!(story.names(), ["evict"], "{}", story.text);
}

#[test]
fn a_node_that_is_uncordoned_in_mid_drain_is_drained_anew() {
    let mut story = draining(in_place("v2"));
    story.feed("an admin uncordons it", uncordoned());
    assert!(guard(&story, "open-fence").anew);
    // The first opening of a lease is none.
    let mut story = Story::joined(wanting("v1"));
    story.wants_v2(ChangeClass::Drain).granted(7, false);
    assert!(!guard(&story, "open-fence").anew);
}

/// A hook before the drain belongs to a controller that waits for the deletion, whether the Node is Ready or not.
#[test]
fn a_drain_before_a_deletion_says_so() {
    let story = draining_again(wanting("v2"));
    assert!(guard(&story, "evict").deletes);
    assert!(!guard(&story, "evict").recreate, "its Node is Ready");
    let story = draining_again(in_place("v2"));
    assert!(!guard(&story, "evict").deletes);
}

fn draining_again(pool: PoolSettings) -> Story {
    let mut story = draining(pool);
    story.feed("five seconds later", Input::Fired(Timer::Again));
    story
}

/// A request overrides the cordon that its author knew, not one that came later.
#[test]
fn a_cordon_that_is_newer_than_the_request_is_kept() {
    let asked = |story: &mut Story| {
        story.granted(7, false);
        guard(story, "open-fence").asked
    };
    // As it is typed: kubectl cordon, then dormer recreate.
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("a person cordons it", cordoned())
        .person(Signal::Recreate);
    assert!(!story.state.report().cordoned, "{}", story.text);
    assert!(asked(&mut story));
    // The fact of that cordon comes a moment after the request.
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Recreate)
        .later_ms(5_000)
        .feed("the cordon is seen", cordoned());
    assert!(!story.state.report().cordoned, "{}", story.text);
    assert!(asked(&mut story));
    // Hours later another person has work on it.
    let later = || {
        let mut story = Story::joined(wanting("v1"));
        story
            .person(Signal::Recreate)
            .later_ms(2 * 3_600_000)
            .feed("somebody else cordons it", cordoned());
        story
    };
    let mut story = later();
    assert!(story.state.report().cordoned, "{}", story.text);
    assert!(!asked(&mut story));
    // Asked for again, the request overrides that one, too.
    let mut story = later();
    story.person(Signal::Recreate);
    assert!(!story.state.report().cordoned, "{}", story.text);
    assert!(asked(&mut story));
    // An uncordon ends what is known.
    let mut story = later();
    story
        .person(Signal::Recreate)
        .feed("it is uncordoned", uncordoned())
        .later_ms(3_600_000)
        .feed("and cordoned by a third person", cordoned());
    assert!(story.state.report().cordoned, "{}", story.text);
}

/// What counts is the lease, not the order: a new address makes a new order for the same tear-down.
#[test]
fn a_tear_down_that_was_begun_stays_begun_under_another_order() {
    let mut story = tearing_down();
    assert!(!guard(&story, "tear-down").begun);
    story.feed(
        "the host has another address",
        machine_is(MachineFact {
            addresses: vec!["10.0.0.9".into()],
            node: Some("win-a".into()),
            ..machine()
        }),
    );
    assert!(guard(&story, "tear-down").begun, "{}", story.text);
    // A retry after a failure, with the kubelet stopped.
    let mut story = tearing_down();
    story
        .given_up("tear-down", "ConnectTimeout")
        .feed("its kubelet is silent", silent())
        .person(Signal::Retry);
    assert!(guard(&story, "tear-down").begun, "{}", story.text);
    // Refused before anything was done, and drained again: it has not begun.
    let mut story = tearing_down();
    let refused = Outcome::FenceRefused {
        why: FenceRefusal::Uncordoned,
        said: "the Node win-a was uncordoned".into(),
    };
    story
        .done("tear-down", refused)
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 0));
    assert!(!guard(&story, "tear-down").begun, "{}", story.text);
}

/// A machine whose pods have left, and which is to be deleted.
fn deleting() -> Story {
    let mut story = draining(wanting("v2"));
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(3, 0));
    assert_eq!(story.names(), ["delete-machine"], "{}", story.text);
    story
}

/// The worker reads the Node before it deletes the Machine.
#[test]
fn a_deletion_that_finds_a_schedulable_node_goes_back_to_the_drain() {
    let mut story = deleting();
    let refused = Outcome::FenceRefused {
        why: FenceRefusal::Uncordoned,
        said: "somebody uncordoned the Node win-a, and it is Ready".into(),
    };
    story.done("delete-machine", refused);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
    assert!(story.state.lease.token().is_some());
    story
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 0));
    assert_eq!(story.names(), ["delete-machine"], "{}", story.text);
    assert!(!guard(&story, "delete-machine").anew, "it is drained");
}

/// The order waits for a worker, or for a person: the worker looks for pods of the meantime also if the Node is
/// cordoned again.
#[test]
fn an_uncordon_before_the_deletion_reaches_the_worker() {
    let mut story = deleting();
    assert!(!guard(&story, "delete-machine").anew);
    story
        .feed("an admin uncordons it", uncordoned())
        .feed("and cordons it again", cordoned());
    assert_eq!(story.names(), ["delete-machine"], "{}", story.text);
    assert!(guard(&story, "delete-machine").anew);
    let mut story = deleting();
    story
        .given_up("delete-machine", "Forbidden")
        .feed("an admin uncordons it", uncordoned())
        .feed("and cordons it again", cordoned())
        .person(Signal::Retry);
    assert!(guard(&story, "delete-machine").anew, "{}", story.text);
    let mut story = deleting();
    story
        .person(Signal::Pause)
        .feed("an admin uncordons it", uncordoned())
        .feed("and cordons it again", cordoned())
        .person(Signal::Resume);
    assert!(guard(&story, "delete-machine").anew, "{}", story.text);
}

/// A pass of evictions is under way, and an admin uncordons the Node.
fn uncordoned_during_a_pass(pool: PoolSettings) -> Story {
    let mut story = draining_again(pool);
    story.text.clear();
    story.feed("an admin uncordons it, and pods come", uncordoned());
    assert_eq!(story.names(), ["evict", "open-fence"], "{}", story.text);
    story
}

/// The pass read the pods before new ones came: that it found none left says nothing about those.
#[test]
fn a_pass_during_which_the_node_was_uncordoned_does_not_end_the_drain() {
    for pool in [wanting("v2"), in_place("v2")] {
        let mut story = uncordoned_during_a_pass(pool);
        story.done("evict", evicted(3, 0));
        assert_eq!(story.names(), ["open-fence"], "{}", story.text);
        // The next pass may begin before the Node is cordoned again.
        story
            .feed("five seconds later", Input::Fired(Timer::Again))
            .done("open-fence", OPENED)
            .feed("the Node is cordoned", cordoned())
            .done("evict", evicted(2, 0));
        assert_eq!(story.names(), Vec::<&str>::new(), "{}", story.text);
        story
            .feed("five seconds later", Input::Fired(Timer::Again))
            .done("evict", evicted(1, 0));
        assert_ne!(story.names(), ["evict"], "{}", story.text);
        assert_eq!(story.names().len(), 1, "{}", story.text);
    }
    let mut story = uncordoned_during_a_pass(in_place("v2"));
    story
        .done("evict", evicted(3, 0))
        .done("open-fence", OPENED)
        .feed("the Node is cordoned", cordoned())
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(1, 0));
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    expect_file!["stories/uncordoned_during_a_pass.txt"].assert_eq(&story.text);
}

/// The answer of the pass comes after dormer, or the admin, has cordoned the Node again.
#[test]
fn a_pass_that_began_before_the_node_was_cordoned_again_does_not_end_the_drain() {
    let by_dormer = || {
        let mut story = uncordoned_during_a_pass(in_place("v2"));
        story
            .done("open-fence", OPENED)
            .feed("the Node is cordoned", cordoned());
        story
    };
    let by_the_admin = || {
        let mut story = uncordoned_during_a_pass(in_place("v2"));
        story
            .feed("and cordons it again", cordoned())
            .done("open-fence", OPENED);
        story
    };
    for mut story in [by_dormer(), by_the_admin()] {
        story.done("evict", evicted(3, 0));
        assert_eq!(story.names(), Vec::<&str>::new(), "{}", story.text);
        story
            .feed("five seconds later", Input::Fired(Timer::Again))
            .done("evict", evicted(1, 0));
        assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    }
    // The admin cordons it again, and the pass is answered before dormer's own cordon.
    let mut story = uncordoned_during_a_pass(in_place("v2"));
    story
        .feed("and cordons it again", cordoned())
        .done("evict", evicted(3, 0));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
}

#[test]
fn a_pass_that_fails_after_an_uncordon_is_repeated_under_a_new_cordon() {
    let mut story = uncordoned_during_a_pass(in_place("v2"));
    story.given_up("evict", "Forbidden").person(Signal::Retry);
    assert!(story.names().contains(&"open-fence"), "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
    assert!(!story.names().contains(&"evict"), "{}", story.text);
    // dormer has cordoned it again when the pass fails: the retry begins with a pass that counts.
    let mut story = uncordoned_during_a_pass(in_place("v2"));
    story
        .done("open-fence", OPENED)
        .feed("the Node is cordoned", cordoned())
        .given_up("evict", "Forbidden")
        .person(Signal::Retry)
        .done("evict", evicted(1, 0));
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
}

/// A person ends the drain, as the note says.
#[test]
fn an_abort_after_an_uncordon_leaves_the_node_in_service() {
    let mut story = uncordoned_during_a_pass(in_place("v2"));
    story.person(Signal::Abort);
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
}

/// A reset to a record of the drain, when the Node has been uncordoned: it is cordoned before a pod is evicted.
#[test]
fn a_reset_to_a_drain_cordons_first() {
    let story = draining(in_place("v2"));
    let then = story.state.clone();
    let mut current = story.state.clone();
    current.node = Some(carrying("v1"));
    let run = dormer_proto::work::machine_run("uid-a").unwrap();
    let now = Now {
        run: &run,
        seq: Seq(99),
        at: Timestamp(story.at),
    };
    let commands = Machine::reset(now, then, &current).commands;
    let asked = commands.iter().find_map(|command| match command {
        Command::Run(task, _) => Some(task.name()),
        _ => None,
    });
    assert_eq!(asked, Some("open-fence"));
}

/// The state and the tasks of a run after a person has reset it to `then`.
fn reset(story: &mut Story, then: State) {
    let run = dormer_proto::work::machine_run("uid-a").unwrap();
    let now = Now {
        run: &run,
        seq: Seq(99),
        at: Timestamp(story.at),
    };
    let decision = Machine::reset(now, then, &story.state);
    story.state = decision.state;
    let tasks = decision.commands.iter();
    let tasks = tasks.filter_map(|command| match command {
        Command::Run(task, _) => Some(task.clone()),
        _ => None,
    });
    story.open = tasks.collect();
}

/// The Node was uncordoned after that record, and is cordoned and drained again: its pods of the meantime are on it.
#[test]
fn a_reset_to_what_follows_a_drain_skips_no_drain() {
    let refused = || Outcome::FenceRefused {
        why: FenceRefusal::Uncordoned,
        said: "the Node win-a was uncordoned".into(),
    };
    let drained_again = |story: &mut Story, task: &str| {
        story
            .done(task, refused())
            .done("open-fence", OPENED)
            .feed("the Node is cordoned", cordoned());
        assert_eq!(story.names(), ["evict"], "{}", story.text);
    };
    let mut story = tearing_down();
    let then = story.state.clone();
    drained_again(&mut story, "tear-down");
    reset(&mut story, then);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
    story
        .done("open-fence", OPENED)
        .done("evict", evicted(2, 0));
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    // Its kubelet is stopped: it is half torn down.
    let mut story = tearing_down();
    let then = story.state.clone();
    story.feed("its kubelet is silent", silent());
    reset(&mut story, then);
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    // The worker finds out whether the Node is Ready.
    let mut story = deleting();
    let then = story.state.clone();
    drained_again(&mut story, "delete-machine");
    reset(&mut story, then);
    assert_eq!(story.names(), ["delete-machine"], "{}", story.text);
    assert!(guard(&story, "delete-machine").anew);
}

/// The Node is cordoned again, and no fact says that it is Ready: the worker refuses the tear-down if it is.
#[test]
fn an_uncordon_after_a_tear_down_has_failed_reaches_the_worker() {
    let mut story = tearing_down();
    story
        .given_up("tear-down", "AuthRejected")
        .feed("an admin uncordons it, and pods come", uncordoned())
        .feed("it is cordoned, and silent for a moment", silent())
        .person(Signal::Retry);
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    assert!(guard(&story, "tear-down").anew);
}

/// An admin deletes the Node, and its kubelet registers again after a reboot: the new Node is schedulable.
fn made_anew_node() -> In {
    node_is(NodeFact {
        uid: "uid-anew".into(),
        ..carrying("v1")
    })
}

#[test]
fn a_node_that_is_deleted_and_comes_back_in_a_tear_down_reaches_the_worker() {
    let mut story = tearing_down();
    assert!(!guard(&story, "tear-down").anew);
    story
        .feed("an admin deletes the Node", node_gone())
        .feed("its kubelet registers again", made_anew_node());
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    let guard = guard(&story, "tear-down");
    assert!(guard.anew && guard.begun, "another order may have begun");
    let refused = Outcome::FenceRefused {
        why: FenceRefusal::Uncordoned,
        said: "pods may have come".into(),
    };
    story.done("tear-down", refused);
    assert_eq!(
        story.names(),
        ["open-fence"],
        "it is drained: {}",
        story.text
    );
}

#[test]
fn a_node_that_is_deleted_and_comes_back_stays_drained() {
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Drain)
        .granted(7, false)
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 0));
    assert_eq!(story.state.phase, Phase::Drained, "{}", story.text);
    story
        .feed("an admin deletes the Node", node_gone())
        .feed("its kubelet registers again", made_anew_node());
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
}

/// Its Node came back between the search and the tear-down, and the watcher has not said so yet.
#[test]
fn a_repair_whose_node_came_back_unseen_is_given_back() {
    let mut story = Story::joined(in_place("v1"));
    story
        .feed("its Node is gone", node_gone())
        .later_ms(10 * 60_000)
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent)
        .granted(7, false)
        .done("open-fence", OPENED)
        .done("find-node", Outcome::NodeAbsent);
    let refused = Outcome::FenceRefused {
        why: FenceRefusal::Uncordoned,
        said: "the Node win-a is Ready".into(),
    };
    story.done("tear-down", refused);
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    story.done("close-fence", Outcome::FenceClosed);
    assert!(
        story.names().is_empty(),
        "it waits for facts: {}",
        story.text
    );
}

/// A machine in its repair: its Node was gone, and its new one is Ready and schedulable.
fn repaired_until_it_soaks() -> Story {
    let soaks = PoolSettings {
        soak_ms: 60_000,
        ..in_place("v1")
    };
    let mut story = Story::joined(soaks);
    story
        .feed("its Node is gone", node_gone())
        .later_ms(10 * 60_000)
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent)
        .granted(7, false)
        .done("open-fence", OPENED)
        .done("find-node", Outcome::NodeAbsent)
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("its kubelet registers", made_anew_node())
        .done("converge-node", converged(Section::Node, false));
    assert_eq!(story.state.phase, Phase::Soaking, "{}", story.text);
    story
}

/// The Node of a repair is not cordoned, and pods come as soon as it is Ready.
#[test]
fn a_version_that_is_published_during_a_repair_does_not_disturb_the_new_node() {
    let mut story = repaired_until_it_soaks();
    story.feed("the pool wants v3", pool_is(in_place("v3")));
    assert_eq!(story.names(), Vec::<&str>::new(), "{}", story.text);
    story
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.lease, Lease::None, "{}", story.text);
    assert_eq!(story.names(), ["plan"], "v3 takes the way of every change");
    // Its services need the new address, and its pods are drained before they are set up again.
    let mut story = repaired_until_it_soaks();
    story.feed(
        "the host has another address",
        machine_is(MachineFact {
            addresses: vec!["10.0.0.9".into()],
            node: Some("win-a".into()),
            ..machine()
        }),
    );
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
}

/// What was published does not pass its checks, and the next version is to mend that.
#[test]
fn a_node_of_a_repair_that_fails_its_checks_is_drained_before_the_next_version() {
    let fails = || Outcome::NodeChecked {
        checks: vec![NodeCheck {
            check: "certificate".into(),
            result: CheckResult::Failed,
            said: String::new(),
        }],
    };
    let failing = || {
        let mut story = repaired_until_it_soaks();
        story.feed("the soak is over", Input::Fired(Timer::Soak));
        story
    };
    let mut story = failing();
    story
        .done("mark-node", fails())
        .feed("the pool wants v3", pool_is(in_place("v3")));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
    let mut story = failing();
    story
        .feed("the pool wants v3", pool_is(in_place("v3")))
        .done("mark-node", fails());
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    story
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 0))
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed());
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
    assert_eq!(story.state.target.version, "v3");
}

/// A machine whose new version failed its checks under the lease: its Node is Ready and cordoned.
fn failed_under_the_lease() -> Story {
    let mut story = tearing_down();
    story
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .given_up("mark-node", "Forbidden");
    assert!(matches!(story.state.phase, Phase::Failed { .. }));
    story
}

/// The rollout has halted, and on the second day an admin needs the node.
#[test]
fn a_failed_machine_that_was_uncordoned_is_drained_before_it_is_changed() {
    let mut story = failed_under_the_lease();
    story
        .feed("an admin uncordons it, and pods come", uncordoned())
        .feed("the pool wants v3", pool_is(in_place("v3")));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
    // Uncordoned and cordoned again, and NotReady for a moment: the pods of the meantime are still there.
    let mut story = failed_under_the_lease();
    story
        .feed("an admin uncordons it, and pods come", uncordoned())
        .feed("and cordons it again", cordoned())
        .feed("it is silent for a moment", silent())
        .feed("the pool wants v3", pool_is(in_place("v3")));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    // Still cordoned, it is empty.
    let mut story = failed_under_the_lease();
    story.feed("the pool wants v3", pool_is(in_place("v3")));
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
    // Its host is set up again from an address that is new.
    let mut story = failed_under_the_lease();
    story
        .feed("an admin uncordons it, and pods come", uncordoned())
        .feed(
            "the host has another address",
            machine_is(MachineFact {
                addresses: vec!["10.0.0.9".into()],
                node: Some("win-a".into()),
                ..machine()
            }),
        );
    assert_eq!(story.names(), ["mark-node"], "nothing is disturbed");
}

/// The change was planned without a drain, the reboot of its host failed, and its kubelet is up again.
#[test]
fn a_retried_reboot_of_a_node_that_serves_again_waits_for_a_drain() {
    let mut story = Story::joined(in_place("v1"));
    story
        .feed("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Restart)))
        .granted(7, false)
        .done("open-fence", OPENED)
        .feed(
            "its kubelet is silent",
            node_is(NodeFact {
                ready: false,
                ..carrying("v1")
            }),
        )
        .later_ms(10 * 60_000)
        .done("converge-host", owes("boot-1", &["feature:Containers"]))
        .given_up("reboot", "AccessDenied")
        .feed("it serves again", uncordoned())
        .person(Signal::Retry);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    let Task::OpenFence { cordon, .. } = story.task("open-fence") else {
        panic!("a fence")
    };
    assert!(cordon);
    story.done("open-fence", OPENED);
    assert_eq!(story.names(), ["evict"], "{}", story.text);
}

/// A kubelet's first Node is not Ready, and a host that reboots by itself makes no Node Ready for a while.
#[test]
fn an_uncordon_of_a_silent_node_in_a_tear_down_reaches_the_worker() {
    let silent_and_schedulable = || {
        node_is(NodeFact {
            ready: false,
            ..carrying("v1")
        })
    };
    let mut story = tearing_down();
    story
        .feed("its kubelet is silent", silent())
        .feed("an admin uncordons it", silent_and_schedulable())
        .feed("it is Ready, and pods come", uncordoned())
        .feed("the admin cordons it again", cordoned());
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    let asked = guard(&story, "tear-down");
    assert!(asked.anew && asked.begun, "{asked:?}");
    // The first order of a repair waits for the end of a pause.
    let mut story = Story::joined(in_place("v1"));
    story
        .feed("its Node is gone", node_gone())
        .later_ms(10 * 60_000)
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent)
        .granted(7, false)
        .done("open-fence", OPENED)
        .person(Signal::Pause)
        .done("find-node", Outcome::NodeAbsent)
        .feed("its kubelet registers again", made_anew_node())
        .feed(
            "a person cordons it",
            node_is(NodeFact {
                uid: "uid-anew".into(),
                cordoned: true,
                ..carrying("v1")
            }),
        )
        .person(Signal::Resume);
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    assert!(guard(&story, "tear-down").anew, "{}", story.text);
}

/// A drain that is under way is not skipped, whatever the facts say of the Node at that moment.
#[test]
fn a_reset_skips_no_drain_that_is_under_way() {
    // A change without a drain, and a reboot that was not planned.
    let mut story = Story::joined(in_place("v1"));
    story
        .feed("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Restart)))
        .granted(7, false)
        .done("open-fence", OPENED);
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
    let then = story.state.clone();
    story
        .done("converge-host", owes("boot-1", &["feature:Containers"]))
        .done("open-fence", OPENED)
        .feed("the Node is cordoned", cordoned())
        .done("evict", evicted(1, 3));
    reset(&mut story, then);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
    // Its kubelet is silent for a moment.
    let mut story = tearing_down();
    let then = story.state.clone();
    let refused = Outcome::FenceRefused {
        why: FenceRefusal::Uncordoned,
        said: "the Node win-a was uncordoned".into(),
    };
    story
        .done("tear-down", refused)
        .done("open-fence", OPENED)
        .feed("it is silent for a moment", silent());
    reset(&mut story, then);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
}

/// The pause keeps dormer from cordoning it again, and a person asks for another machine.
#[test]
fn a_drained_machine_that_was_uncordoned_in_a_pause_is_drained_before_it_is_replaced() {
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Drain)
        .granted(7, false)
        .done("open-fence", OPENED)
        .feed("the Node is cordoned", cordoned())
        .done("evict", evicted(1, 0))
        .person(Signal::Pause)
        .feed("an admin uncordons it, and pods come", uncordoned())
        .feed("and cordons it again", cordoned())
        .person(Signal::Recreate);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(guard(&story, "open-fence").anew);
    story
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 0));
    assert_eq!(story.names(), ["delete-machine"], "{}", story.text);
}
