//! Stories of a machine whose run came back from a dump, while its host has the fence of records that were lost.

use crate::common::{
    Story, carrying, converged, evicted, in_place, machine, machine_gone, machine_is, node_is,
    planned, pool_is, probed,
};
use dormer_engine_core::{Input, Workflow as _};
use dormer_proto::{
    id::Incarnation,
    machine::{self, ChangeClass, MachineFact, NodeFact, Outcome, Section, Task},
    work::Fact,
};
use dormer_workflows::machine::{Machine, Phase, Timer};

/// Code of the host program for a call with an older fence than the host's.
const REFUSED: &str = "fence_too_old";

/// The Machine as a watcher of this store shows it.
fn of_store(store: u64) -> MachineFact {
    MachineFact {
        node: Some("win-a".into()),
        store: Some(Incarnation(store)),
        ..machine()
    }
}

/// A machine in the middle of an upgrade in place, whose host is about to be configured.
fn upgrading() -> Story {
    let cordoned = NodeFact {
        cordoned: true,
        ..carrying("v1")
    };
    let mut story = Story::joined(in_place("v1"));
    story
        .feed("the watcher names its store", machine_is(of_store(1)))
        .feed("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .feed("its Node is seen as cordoned", node_is(cordoned))
        .done("evict", evicted(4, 0))
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed());
    assert_eq!(ordered(&story), 1, "{}", story.text);
    story
}

/// Generation of the open order to configure the host.
fn ordered(story: &Story) -> u64 {
    match story.task("converge-host") {
        Task::Converge { generation, .. } => generation,
        other => panic!("{}", other.name()),
    }
}

/// The lost records may have taken several generations.
#[test]
fn a_restored_run_takes_its_host_over_by_later_generations() {
    let mut story = upgrading();
    story.feed("the store was restored", machine_is(of_store(2)));
    for generation in [2, 3, 4] {
        story.given_up("converge-host", REFUSED);
        assert_eq!(ordered(&story), generation, "{}", story.text);
    }
    story.feed("the watcher lists again", machine_is(of_store(2)));
    assert_eq!(ordered(&story), 4, "the same store");
    story.done("converge-host", converged(Section::Host, false));
    // From here on a refusal means that a newer dormer has the host.
    story.given_up("converge-node", REFUSED);
    assert!(
        matches!(&story.state.phase, Phase::Failed { failure, .. } if failure.code == REFUSED),
        "{}",
        story.text
    );
}

#[test]
fn a_step_that_was_refused_before_the_restore_was_known_continues() {
    let mut story = upgrading();
    story.given_up("converge-host", REFUSED);
    assert!(matches!(story.state.phase, Phase::Failed { .. }));
    // A watcher of an earlier build names no store.
    let unnamed = MachineFact {
        store: None,
        ..of_store(1)
    };
    story.feed("the Machine is listed", machine_is(unnamed));
    assert!(story.open.is_empty(), "{}", story.text);
    story.feed("the store was restored", machine_is(of_store(2)));
    assert_eq!(ordered(&story), 2, "{}", story.text);
}

#[test]
fn a_comparison_from_before_the_restore_was_known_does_not_undo_the_generation() {
    let mut story = Story::joined(in_place("v1"));
    story
        .feed("the watcher names its store", machine_is(of_store(1)))
        .feed("six hours later", Input::Fired(Timer::Drift))
        .feed("the store was restored", machine_is(of_store(2)))
        .done("plan", planned(None));
    assert_eq!(story.state.host.generation, 2, "{}", story.text);
}

#[test]
fn a_run_that_begins_again_knows_of_the_restore() {
    let mut story = upgrading();
    story
        .feed("its Machine is gone", machine_gone())
        .done("close-fence", Outcome::FenceClosed);
    let restored = |store| {
        let fact = Fact::Machine(machine::Fact::Machine(of_store(store)));
        let again = Machine::reopen(
            &story.state,
            &crate::common::object("Machine", "uid-a"),
            &fact,
        );
        again.expect("the Machine is there again").host.restored
    };
    assert_eq!([restored(1), restored(2)], [false, true]);
}
