//! A host with a token that ends: a comparison renews it, also while the machine waits for days.

use crate::common::{Story, carrying, machine, machine_is, node_gone, planned, pool_is, wanting};
use dormer_engine_core::{Command, Input};
use dormer_proto::{
    machine::{ChangeClass, MachineFact, Outcome, Owner, Signal, Task},
    pool::{Approval, PoolSettings},
};
use dormer_workflows::machine::{Lease, Phase, Timer};
use expect_test::expect_file;

/// A comparison of a host that has a token.
fn compared(class: Option<ChangeClass>) -> Outcome {
    match planned(class) {
        Outcome::Planned {
            class,
            differs,
            facts,
            host_key,
            generation,
            token,
            pods,
            certificates,
            ..
        } => Outcome::Planned {
            class,
            differs,
            facts,
            host_key,
            generation,
            token,
            pods,
            certificates,
            renews: true,
        },
        other => other,
    }
}

/// A machine that waits for the lease.
fn waiting(pool: PoolSettings) -> Story {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("the pool wants v2", pool_is(pool))
        .done("plan", compared(Some(ChangeClass::Drain)));
    story
}

fn renews(story: &Story) -> bool {
    matches!(
        story.task("plan"),
        Task::Plan {
            renew: true,
            adopt: false,
            ..
        }
    )
}

#[test]
fn a_token_is_renewed_while_the_machine_waits_for_the_lease() {
    let mut story = waiting(wanting("v2"));
    story.feed("six hours later", Input::Fired(Timer::Drift));
    assert!(renews(&story), "{}", story.text);
    story
        .done("plan", compared(Some(ChangeClass::Drain)))
        .feed("six hours later", Input::Fired(Timer::Drift))
        .given_up("plan", "ConnectTimeout");
    assert!(matches!(story.state.phase, Phase::LeaseWait(_)));
    assert_eq!(story.state.lease, Lease::Wanted, "its position stays");
    story
        .feed("six hours later", Input::Fired(Timer::Drift))
        .granted(7, false);
    // The comparison may still be under way: its answer changes nothing.
    story.done("plan", compared(Some(ChangeClass::Drain)));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    expect_file!["stories/renewal.txt"].assert_eq(&story.text);
}

#[test]
fn a_token_is_renewed_while_the_machine_waits_for_a_person_or_an_owner() {
    let manual = PoolSettings {
        approval: Approval::Manual,
        ..wanting("v2")
    };
    let mut story = waiting(manual);
    assert!(matches!(story.state.phase, Phase::ApprovalWait(_)));
    story.feed("six hours later", Input::Fired(Timer::Drift));
    assert!(renews(&story), "{}", story.text);
    story.done("plan", compared(None)).person(Signal::Approve);
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);

    let mut story = Story::joined(wanting("v1"));
    let orphan = MachineFact {
        owner: None::<Owner>,
        node: Some("win-a".into()),
        ..machine()
    };
    story
        .feed("its owner is gone", machine_is(orphan))
        .feed("the pool wants v2", pool_is(wanting("v2")))
        .done("plan", compared(Some(ChangeClass::Drain)));
    assert!(matches!(story.state.phase, Phase::OwnerWait(_)));
    story.feed("six hours later", Input::Fired(Timer::Drift));
    assert!(renews(&story), "{}", story.text);
}

/// The address of a machine whose Node is gone may be another's by now.
#[test]
fn no_token_is_renewed_on_a_host_without_a_node_or_without_a_token() {
    let mut story = waiting(wanting("v2"));
    story
        .feed("its Node is gone", node_gone())
        .feed("six hours later", Input::Fired(Timer::Drift));
    assert!(story.names().is_empty(), "{}", story.text);

    let mut story = Story::joined(wanting("v1"));
    story.feed("the pool wants v2", pool_is(wanting("v2")));
    let task = story.task("plan");
    let outcome = planned(Some(ChangeClass::Drain));
    let commands = story.quietly(Input::Finished { task, outcome });
    let timed = commands
        .iter()
        .any(|command| matches!(command, Command::StartTimer(Timer::Drift, _)));
    assert!(!timed, "it is compared when its turn comes");
    // A timer of the time when it served may come due.
    story.open.clear();
    story.feed("six hours later", Input::Fired(Timer::Drift));
    assert!(story.names().is_empty(), "{}", story.text);
}

/// A pause holds every other change, also those that disturb no pod.
#[test]
fn under_a_pause_a_comparison_renews_and_nothing_else_is_changed() {
    let paused = PoolSettings {
        paused: true,
        holds_live: true,
        ..wanting("v2")
    };
    let mut story = Story::joined(wanting("v1"));
    story.feed("the pool wants v2, and is paused", pool_is(paused));
    assert!(renews(&story));
    story.done("plan", compared(Some(ChangeClass::Live)));
    assert!(story.names().is_empty(), "{}", story.text);
    assert!(matches!(story.state.phase, Phase::LeaseWait(_)));
    assert_eq!(story.state.node, Some(carrying("v1")), "nothing is marked");
}
