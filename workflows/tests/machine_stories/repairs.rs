//! Stories of a Node that is gone, and of a Machine that was given up.

use super::drain::draining;
use super::holds;
use crate::common::{
    Story, carrying, converged, csr_is, evicted, in_place, machine, machine_gone, machine_is, node,
    node_gone, node_is, pool_is, probed, ready, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::machine::{MachineFact, Outcome, Section, Signal};
use dormer_proto::pool::PoolSettings;
use dormer_workflows::machine::{ChangeStrategy, Lease, Phase, Timer};
use expect_test::expect_file;

/// A Node that was deleted by hand, or that the watcher only does not tell of.
#[test]
fn a_node_that_is_gone_is_searched_for_and_brought_back_through_the_lease() {
    let found = Outcome::NodeFound {
        name: "win-a".into(),
    };
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("the Node is gone", node_gone())
        .later_ms(600_000)
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", found.clone())
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .given_up("find-node", "Forbidden")
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent);
    assert!(story.state.report().had_node, "it goes on counting");
    assert!(story.state.report().unavailable);
    let waiting = story.state.clone();
    story
        .granted(7, true)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("find-node", Outcome::NodeAbsent)
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("its kubelet asks for a certificate", csr_is(true))
        .feed("the Node is seen", node_is(node()))
        .done("converge-node", converged(Section::Node, false))
        .feed("the Node is Ready", node_is(ready()))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.phase, Phase::Serving);
    holds(&story, expect_file!["../stories/node_gone.txt"]);

    // It comes back while it waits for the lease; or it stands when it is looked for again under it; or its host is
    // dead.
    let mut story = Story::joined(wanting("v1"));
    story.state = waiting.clone();
    story.feed("the Node is back", node_is(carrying("v1")));
    assert_eq!(story.names(), ["plan"]);
    assert_eq!(story.state.lease, Lease::None);
    for (answer, failure) in [(Some(found), None), (None, Some("Forbidden"))] {
        let mut story = Story::joined(wanting("v1"));
        story.state = waiting.clone();
        story.granted(7, true).done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        );
        match (answer, failure) {
            (Some(found), _) => story.done("find-node", found),
            (None, code) => story.given_up("find-node", code.unwrap_or_default()),
        };
        assert_eq!(story.names(), ["close-fence"]);
    }
    let mut story = Story::joined(wanting("v1"));
    story.state = waiting;
    story
        .granted(7, true)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("find-node", Outcome::NodeAbsent)
        .given_up("tear-down", "ConnectTimeout");
    assert_eq!(
        story.names(),
        ["close-fence"],
        "one dead host keeps nobody waiting"
    );
}

/// A story whose Node was found absent: the machine waits for the lease.
fn without_its_node(pool: PoolSettings, machine: MachineFact) -> Story {
    let mut story = Story::joined(pool);
    story
        .feed("the Machine is seen again", machine_is(machine))
        .feed("the Node is gone", node_gone())
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent);
    story
}

/// Opens the fence of a repair under an ordinary lease, and finds its Node still absent.
fn repairs(story: &mut Story) {
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    story
        .granted(7, false)
        .done("open-fence", opened)
        .done("find-node", Outcome::NodeAbsent);
}

/// With `maxUnavailable` of two or more, a repair is granted within the limit. A dead host returns that lease, too.
#[test]
fn a_repair_within_the_limit_of_a_dead_host_halts_nobody() {
    let mut story = without_its_node(wanting("v1"), machine());
    repairs(&mut story);
    story.given_up("tear-down", "ConnectTimeout");
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    assert!(!story.state.report().failed);
    story.done("close-fence", Outcome::FenceClosed);
    assert!(story.text.contains("release 7"), "{}", story.text);
    assert_eq!(story.state.phase, Phase::Serving);
    // It waits again before it asks for the next lease.
    story
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent);
    assert_eq!(story.state.lease, Lease::Wanted);

    // A host that answers, and an upgrade whose Node is there, fail as before.
    let mut story = without_its_node(wanting("v1"), machine());
    repairs(&mut story);
    story.given_up("tear-down", "AccessDenied");
    assert!(story.state.report().failed);
    let mut story = draining(in_place("v2"));
    story.feed("five seconds later", Input::Fired(Timer::Again));
    story.done("evict", evicted(3, 0));
    story.given_up("tear-down", "ConnectTimeout");
    assert!(story.state.report().failed, "{}", story.text);
}

/// A Machine that the Machine API gave up: its instance is gone for good.
pub(super) fn given_up() -> MachineFact {
    MachineFact {
        phase: Some("Failed".into()),
        error: Some("UpdateError: Can't find created instance.".into()),
        node: Some("win-a".into()),
        ..machine()
    }
}

/// dormer does not log in at the address of an instance that is gone: its owner makes another Machine.
#[test]
fn a_machine_that_was_given_up_and_has_no_node_is_replaced() {
    let mut story = without_its_node(in_place("v1"), given_up());
    let waits = |story: &Story, how| match &story.state.phase {
        Phase::LeaseWait(change) => change.repair && change.how == how,
        _ => false,
    };
    assert!(waits(&story, ChangeStrategy::Recreate), "{}", story.text);
    // Its Node is there after all: nothing is deleted.
    let asks = story.state.clone();
    let found = Outcome::NodeFound {
        name: "win-a".into(),
    };
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    story
        .granted(7, false)
        .done("open-fence", opened)
        .done("find-node", found);
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    // It is absent.
    story.state = asks;
    story.open.clear();
    story.text.clear();
    repairs(&mut story);
    assert_eq!(story.names(), ["delete-machine"], "{}", story.text);
    assert!(!story.text.contains("tear-down"), "{}", story.text);
    story
        .done("delete-machine", Outcome::MachineDeleted)
        .feed("the Machine is gone", machine_gone())
        .done("close-fence", Outcome::FenceClosed);
    assert!(
        story.text.contains("release 7, the Machine is gone"),
        "{}",
        story.text
    );

    // It is given up while it waits to be set up again. Its position in the queue stays.
    let mut story = without_its_node(wanting("v1"), machine());
    assert!(waits(&story, ChangeStrategy::InPlace), "{}", story.text);
    story.text.clear();
    story.feed("it is given up", machine_is(given_up()));
    assert!(waits(&story, ChangeStrategy::Recreate), "{}", story.text);
    assert!(!story.text.contains("request"), "{}", story.text);
}

/// A Machine that was given up and that no controller would replace waits for an owner, or for its Node.
#[test]
fn a_machine_that_was_given_up_and_has_no_owner_waits() {
    let orphan = MachineFact {
        owner: None,
        ..given_up()
    };
    let waits = |story: &Story| matches!(story.state.phase, Phase::OwnerWait(_));
    let mut story = without_its_node(wanting("v1"), orphan.clone());
    assert!(waits(&story), "{}", story.text);
    assert_eq!(story.names(), [""; 0], "{}", story.text);
    let alone = story.state.clone();
    story.feed("it has an owner", machine_is(given_up()));
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
    story.state = alone;
    story.feed("its Node is back", node_is(carrying("v1")));
    assert_eq!(story.state.phase, Phase::Checking, "{}", story.text);
    // The owner is taken away while it waits for the lease: the request is withdrawn.
    let mut story = without_its_node(wanting("v1"), given_up());
    story.feed("its owner is gone", machine_is(orphan));
    assert!(waits(&story), "{}", story.text);
    assert_eq!(story.state.lease, Lease::None, "{}", story.text);
}

/// The Machine API may take back that it gave a Machine up: its host is set up again, and needs no owner.
#[test]
fn a_machine_that_is_given_up_no_longer_needs_no_owner() {
    let orphan = |machine| MachineFact {
        owner: None,
        node: Some("win-a".into()),
        ..machine
    };
    let mut story = without_its_node(in_place("v1"), orphan(given_up()));
    assert!(matches!(story.state.phase, Phase::OwnerWait(_)));
    story.feed("it is not given up any more", machine_is(orphan(machine())));
    assert!(
        matches!(&story.state.phase, Phase::LeaseWait(change) if change.how == ChangeStrategy::InPlace),
        "{}",
        story.text
    );
}

/// Between the grant and the last search for its Node.
#[test]
fn a_machine_that_is_given_up_after_the_grant_is_not_logged_in_to() {
    let opened = || Outcome::FenceOpened {
        was_cordoned: false,
    };
    let granted = || {
        let mut story = without_its_node(in_place("v1"), machine());
        story.granted(7, false).done("open-fence", opened());
        story
    };
    let mut story = granted();
    story
        .feed("it is given up", machine_is(given_up()))
        .done("find-node", Outcome::NodeAbsent);
    assert_eq!(story.names(), ["delete-machine"], "{}", story.text);
    // It has no owner that would replace it.
    let orphan = MachineFact {
        owner: None,
        ..given_up()
    };
    let mut story = granted();
    story
        .feed("it is given up, and has no owner", machine_is(orphan))
        .done("find-node", Outcome::NodeAbsent);
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    let mut story = granted();
    story.done("find-node", Outcome::NodeAbsent);
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
}

/// Whether it waits for the lease to be replaced, as a person asked.
fn is_to_be_replaced(story: &Story) -> bool {
    match &story.state.phase {
        Phase::LeaseWait(change) => !change.repair && change.how == ChangeStrategy::Recreate,
        _ => false,
    }
}

/// A replacement of a machine that is still being brought up does not wait for the last attempt of its step.
#[test]
fn a_replacement_is_begun_while_its_host_is_probed() {
    let mut story = Story::begin(machine());
    story.feed("the pool wants v1", pool_is(wanting("v1")));
    assert_eq!(story.names(), ["probe"], "{}", story.text);
    story.text.clear();
    story.person(Signal::Recreate);
    assert!(story.text.contains("request"), "{}", story.text);
    assert!(is_to_be_replaced(&story), "{}", story.text);
    assert!(story.names().is_empty(), "no probe is left: {}", story.text);
}

/// What was asked for during a step is begun when that step fails, without a second request.
#[test]
fn a_replacement_that_was_asked_for_during_a_step_is_begun_when_the_step_fails() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool wants v1", pool_is(wanting("v1")))
        .done("probe", probed());
    let step = story.names()[0];
    story.person(Signal::Recreate);
    assert_eq!(story.names(), [step], "{}", story.text);
    story.given_up(step, "DiskFull");
    assert!(is_to_be_replaced(&story), "{}", story.text);
}
