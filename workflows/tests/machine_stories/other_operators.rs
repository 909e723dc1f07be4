//! Stories of another operator that configures the same hosts.

use super::holds;
use crate::common::{Story, evicted, in_place, machine, machine_is, planned, pool_is, wanting};
use dormer_engine_core::Input;
use dormer_proto::machine::{ChangeClass, MachineFact, Outcome, Signal};
use dormer_proto::other_operator::OtherOperator;
use dormer_workflows::machine::Timer;
use expect_test::expect_file;

/// The Machine as a watcher tells of it that saw another operator, or its end.
fn beside(neighbour: OtherOperator) -> MachineFact {
    MachineFact {
        node: Some("win-a".into()),
        neighbour,
        ..machine()
    }
}

fn another() -> OtherOperator {
    OtherOperator::Runs("another operator runs (Pod winc/wmco-1)".into())
}

#[test]
fn another_operator_runs_before_a_machine_is_probed() {
    let mut story = Story::begin(MachineFact {
        neighbour: another(),
        ..machine()
    });
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .person(Signal::Retry);
    let waits = story.state.view().waiting_for.expect("it waits");
    assert!(waits.contains("Pod winc/wmco-1"), "{waits}");
    story
        .feed(
            "an older watcher, or one that cannot read it, says nothing",
            machine_is(machine()),
        )
        .feed(
            "it has ended",
            machine_is(MachineFact {
                neighbour: OtherOperator::Absent,
                ..machine()
            }),
        );
    holds(&story, expect_file!["../stories/beside_bring_up.txt"]);
}

#[test]
fn another_operator_comes_in_the_middle_of_an_upgrade() {
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
        .feed("another operator runs", machine_is(beside(another())))
        .done("close-fence", Outcome::FenceClosed)
        .feed("hours pass", Input::Fired(Timer::Drift))
        .person(Signal::Recreate)
        .granted(8, false)
        .done("close-fence", Outcome::FenceClosed)
        .feed("it has ended", machine_is(beside(OtherOperator::Absent)));
    holds(&story, expect_file!["../stories/beside_upgrade.txt"]);
}

#[test]
fn another_operator_comes_when_a_host_is_torn_down() {
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
        .feed("another operator runs", machine_is(beside(another())))
        .feed("it has ended", machine_is(beside(OtherOperator::Absent)));
    holds(&story, expect_file!["../stories/beside_tear_down.txt"]);
}
