//! Transcripts of a machine: the ordinary life, each failure, adoption, and interference by others.

mod approval;
mod before_service;
mod bring_up;
mod certificates;
mod clocks;
mod drain;
mod halts;
mod other_operators;
mod own_trouble;
mod reboots;
mod repairs;
mod resets;
mod restored_store;
mod serving;
mod tokens;
mod versions;

use crate::common::{
    Story, carrying, converged, csr_is, evicted, in_place, machine, machine_gone, machine_is, node,
    node_gone, node_is, planned, pool_is, probed, probed_at, ready, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::id::Timestamp;
use dormer_proto::machine::{ChangeClass, MachineFact, NodeFact, Outcome, Section, Signal, Task};
use dormer_proto::pool::PoolSettings;
use dormer_workflows::machine::{ChangeStrategy, Phase, Timer};
use expect_test::{ExpectFile, expect_file};

fn holds(story: &Story, expected: ExpectFile) {
    expected.assert_eq(&story.text);
}

#[test]
fn the_ordinary_life() {
    let mut story = Story::begin(MachineFact {
        addresses: Vec::new(),
        phase: None,
        ..machine()
    });
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .feed("the Machine has an address", machine_is(machine()))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, true))
        .done("reboot", Outcome::RebootAsked)
        .feed("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed())
        .feed("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at("boot-2"))
        .feed("the kubelet asks for a certificate", csr_is(true))
        .done(
            "approve-csr",
            Outcome::CsrApproved {
                csr: "csr-1".into(),
            },
        )
        .done("converge-host", converged(Section::Host, false))
        .feed("the Node is seen", node_is(node()))
        .done("converge-node", converged(Section::Node, false))
        .feed("the Node is Ready", node_is(ready()))
        .feed("the Node is not Ready", node_is(node()))
        .feed("the Node is Ready", node_is(ready()))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .feed("the Node carries v1", node_is(carrying("v1")))
        .feed("six hours later", Input::Fired(Timer::Drift))
        .done("plan", planned(None));
    holds(&story, expect_file!["stories/ordinary.txt"]);
}

#[test]
fn an_upgrade_by_recreate() {
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Drain)
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
        )
        .done("evict", evicted(2, 2))
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(2, 0))
        .done("delete-machine", Outcome::MachineDeleted)
        .feed(
            "the Machine is being deleted",
            machine_is(MachineFact {
                deleting: true,
                deleted: Some(Timestamp(9)),
                ..machine()
            }),
        )
        .feed("the Node is gone", node_gone())
        .feed("the Machine is gone", machine_gone())
        .done("close-fence", Outcome::FenceClosed);
    let by = Some("uid-b".into());
    let from = dormer_engine_core::Sender::Run("rollout/windows".parse().unwrap());
    let signal = dormer_proto::work::Signal::Machine(Signal::Replaced { by });
    story.feed("the rollout: replaced", Input::Signalled { from, signal });
    holds(&story, expect_file!["stories/recreate.txt"]);
}

#[test]
fn an_upgrade_in_place() {
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
        .done("evict", evicted(4, 0))
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .feed("the pool wants v3 meanwhile", pool_is(in_place("v3")))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(
        story.state.version.as_deref(),
        Some("v3"),
        "not drained twice"
    );
    holds(&story, expect_file!["stories/in_place.txt"]);
}

#[test]
fn a_restart_and_a_live_change() {
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
        .done("close-fence", Outcome::FenceClosed)
        .feed("the Node carries v2", node_is(carrying("v2")))
        .feed("the pool wants v3", pool_is(wanting("v3")))
        .done("plan", planned(Some(ChangeClass::Live)))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .done("mark-node", Outcome::NodeMarked);
    holds(&story, expect_file!["stories/restart_and_live.txt"]);
}

/// A change that disturbs no pod waits as well while the pool is paused, and needs no lease once it is not.
#[test]
fn a_paused_pool_holds_live_changes_but_for_certificates() {
    let paused = |version: &str, holds_live| PoolSettings {
        paused: true,
        holds_live,
        ..wanting(version)
    };
    let mut story = Story::joined(wanting("v1"));
    story
        .feed(
            "v2 is wanted, and the pool is paused",
            pool_is(paused("v2", true)),
        )
        .done("plan", planned(Some(ChangeClass::Live)));
    let waits = matches!(&story.state.phase, Phase::LeaseWait(change) if change.how == ChangeStrategy::Restart);
    assert!(waits && story.open.is_empty(), "{}", story.text);
    // A newer version is compared, and waits as well.
    story
        .feed("v3 is wanted", pool_is(paused("v3", true)))
        .done("plan", planned(Some(ChangeClass::Live)));
    assert!(story.open.is_empty(), "{}", story.text);
    story
        .feed("the pause ends", pool_is(wanting("v3")))
        .done("plan", planned(Some(ChangeClass::Live)))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .done("mark-node", Outcome::NodeMarked);
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);

    let Outcome::Planned {
        facts,
        host_key,
        generation,
        token,
        pods,
        ..
    } = planned(None)
    else {
        panic!("a comparison")
    };
    let certificate = Outcome::Planned {
        class: Some(ChangeClass::Live),
        differs: vec!["certificate:1 (missing)".into()],
        facts,
        host_key,
        generation,
        token,
        pods,
        certificates: true,
        renews: false,
    };
    story.feed("a new authority", pool_is(paused("v4", true)));
    let renews = matches!(story.task("plan"), Task::Plan { renew: true, .. });
    assert!(renews, "the comparison renews certificates by itself");
    // It could not, and something else differs, too: nothing is changed on the host under a pause.
    story.done("plan", certificate);
    assert!(story.open.is_empty(), "{}", story.text);

    // A watcher of an earlier build means the rollout alone.
    let mut story = Story::joined(wanting("v1"));
    story
        .feed(
            "v2 is wanted, and the pool is paused",
            pool_is(paused("v2", false)),
        )
        .done("plan", planned(Some(ChangeClass::Live)));
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
}
