//! Stories of a machine whose Node is Ready and that has never served: it serves when it has passed its checks, and pods
//! that may run there are protected until then.

use crate::common::{
    Story, converged, evicted, machine, machine_is, node_is, owes, planned, pool_is, probed, ready,
    wanting,
};
use dormer_engine_core::Input;
use dormer_proto::{
    checks::{CheckName, CheckResult, NodeCheck},
    machine::{ChangeClass, FenceRefusal, MachineFact, NodeFact, Outcome, Section, Signal, Task},
    pool::{Approval, PoolSettings, Strategy},
};
use dormer_workflows::machine::{Lease, Phase, Timer};

fn checking(version: &str) -> PoolSettings {
    PoolSettings {
        verify: true,
        ..wanting(version)
    }
}

/// A first bring-up, to a Node that is Ready.
fn up_to_ready(pool: PoolSettings) -> Story {
    let mut story = Story::begin(machine());
    story
        .feed("pool", pool_is(pool))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("its Node is named", machine_is(named()))
        .feed("its Node is Ready", node_is(ready()))
        .done("converge-node", converged(Section::Node, false));
    story.text.clear();
    story
}

fn named() -> MachineFact {
    MachineFact {
        node: Some("win-a".into()),
        ..machine()
    }
}

fn checks_fail() -> Outcome {
    Outcome::NodeChecked {
        checks: vec![NodeCheck {
            check: CheckName::Certificate.to_string(),
            result: CheckResult::Failed,
            said: "it is another's".into(),
        }],
    }
}

/// The soak is over, and the checks fail until they are given up.
fn fails_its_checks(story: &mut Story) {
    story.feed("the soak is over", Input::Fired(Timer::Soak));
    for _ in 0..200 {
        if failed(story) {
            return;
        }
        story
            .done("mark-node", checks_fail())
            .later_ms(60_000)
            .feed("again", Input::Fired(Timer::Again));
    }
    panic!("{}", story.text);
}

fn failed(story: &Story) -> bool {
    matches!(story.state.phase, Phase::Failed { .. })
}

#[test]
fn a_replacement_that_failed_its_checks_is_replaced_and_never_serves() {
    let mut story = up_to_ready(checking("v1"));
    fails_its_checks(&mut story);
    story.person(Signal::Recreate);
    let report = story.state.report();
    assert!(report.failed, "its rollout stays halted: {report:?}");
    story.granted(9, true);
    let Task::OpenFence {
        over_limit, guard, ..
    } = story.task("open-fence")
    else {
        panic!("{}", story.text);
    };
    assert!(!over_limit && guard.down_ms.is_none(), "{guard:?}");
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    story
        .done("open-fence", opened)
        .done("evict", crate::common::evicted(0, 0));
    assert_eq!(story.names(), ["delete-machine"], "{}", story.text);
    assert!(!story.state.report().joined);
}

/// A worker of an older build refuses a Node that is Ready.
#[test]
fn a_returned_lease_brings_a_failed_replacement_back_to_its_checks() {
    let mut story = up_to_ready(checking("v1"));
    fails_its_checks(&mut story);
    story.person(Signal::Recreate);
    let refused = Outcome::FenceRefused {
        why: FenceRefusal::NodeServes,
        said: "it is Ready".into(),
    };
    story
        .granted(9, true)
        .done("open-fence", refused)
        .done("close-fence", Outcome::FenceClosed);
    is_checked_again(story);
}

/// Its checks would fail again, and it would ask for the lease in the same moment.
#[test]
fn a_refusal_that_no_fact_explains_holds_a_failed_replacement_for_a_while() {
    for why in [FenceRefusal::Stopped, FenceRefusal::Superseded] {
        let mut story = up_to_ready(checking("v1"));
        fails_its_checks(&mut story);
        let refused = Outcome::FenceRefused {
            why,
            said: "not now".into(),
        };
        story
            .feed("v2 is wanted", pool_is(checking("v2")))
            .granted(9, true)
            .done("open-fence", refused)
            .done("close-fence", Outcome::FenceClosed)
            .feed("the soak is over", Input::Fired(Timer::Soak))
            .done("mark-node", checks_fail());
        let waits = matches!(story.state.phase, Phase::LeaseWait(_));
        assert!(!waits, "{}", story.text);
        story
            .later_ms(10 * 60_000)
            .feed("ten minutes later", Input::Fired(Timer::Again));
        let waits = matches!(story.state.phase, Phase::LeaseWait(_));
        assert!(waits || story.names() == ["mark-node"], "{}", story.text);
    }
}

/// The fact comes while the fence is still being closed.
#[test]
fn a_failed_replacement_is_not_held_for_a_refusal_that_the_pool_has_ended() {
    let mut story = up_to_ready(checking("v1"));
    fails_its_checks(&mut story);
    let refused = Outcome::FenceRefused {
        why: FenceRefusal::Stopped,
        said: "not now".into(),
    };
    story
        .feed("v2 is wanted", pool_is(checking("v2")))
        .granted(9, true)
        .done("open-fence", refused);
    assert_eq!(story.state.holds().len(), 1, "{}", story.text);
    story.feed("v3 is wanted", pool_is(checking("v3")));
    assert!(story.state.holds().is_empty(), "{}", story.text);
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
}

fn is_checked_again(mut story: Story) {
    assert_eq!(story.state.phase, Phase::Soaking, "{}", story.text);
    assert!(!story.state.report().joined && !story.state.in_service);
    story.feed("the soak is over", Input::Fired(Timer::Soak));
    let Task::MarkNode { expect, .. } = story.task("mark-node") else {
        panic!("{}", story.text);
    };
    assert!(expect.is_some(), "it is checked");
    story.done("mark-node", Outcome::NodeMarked);
    assert!(story.state.report().joined, "{}", story.text);
}

#[test]
fn a_hold_of_a_failed_replacement_does_not_make_it_serve() {
    let mut story = up_to_ready(checking("v1"));
    fails_its_checks(&mut story);
    story.person(Signal::Recreate).person(Signal::Hold);
    is_checked_again(story);
}

/// The kubelet was slow: the person who retries finds a Node while the host is probed.
#[test]
fn a_node_that_comes_during_the_probe_of_a_retry_is_checked() {
    let mut story = Story::begin(machine());
    story
        .feed("pool", pool_is(checking("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("no Node comes", Input::Fired(Timer::Deadline));
    assert!(failed(&story), "{}", story.text);
    story
        .person(Signal::Retry)
        .feed("its Node is named", machine_is(named()))
        .feed("its Node is Ready", node_is(ready()))
        .done("probe", probed())
        .done("plan", planned(None));
    is_checked_again(story);
}

#[test]
fn a_host_that_no_longer_answers_is_not_taken_for_one_that_served() {
    let mut story = Story::begin(machine());
    story
        .feed("pool", pool_is(checking("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("no Node comes", Input::Fired(Timer::Deadline))
        .person(Signal::Retry)
        .feed("its Node is named", machine_is(named()))
        .given_up("probe", "ConnectTimeout");
    assert!(failed(&story), "{}", story.text);
    assert!(!story.state.in_service);
}

/// A label that says to ignore the Machine leaves it to others, who may have brought it up.
#[test]
fn what_others_may_have_brought_up_is_adopted() {
    let mut story = up_to_ready(checking("v1"));
    let ignored = |ignored| machine_is(MachineFact { ignored, ..named() });
    story
        .feed("ignored", ignored(true))
        .feed("no longer", ignored(false))
        .done("probe", probed())
        .done("plan", planned(None));
    assert!(story.state.in_service, "{}", story.text);
}

#[test]
fn a_ready_node_finishes_its_version_and_the_newer_one_waits_for_the_lease() {
    let soaks = |version| PoolSettings {
        soak_ms: 3_600_000,
        ..checking(version)
    };
    let mut story = up_to_ready(soaks("v1"));
    assert_eq!(story.state.phase, Phase::Soaking);
    story
        .later_ms(3_000_000)
        .feed("v2 is wanted", pool_is(soaks("v2")));
    assert_eq!(story.state.phase, Phase::Soaking, "{}", story.text);
    story
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .done("plan", planned(Some(ChangeClass::Restart)));
    assert!(
        matches!(story.state.phase, Phase::LeaseWait(_)),
        "{}",
        story.text
    );
    assert_eq!(story.state.version.as_deref(), Some("v1"));
}

/// One that is not Ready has no pods that a restart would end.
#[test]
fn a_node_that_is_not_ready_gets_the_newest_version_at_once() {
    let mut story = up_to_ready(checking("v1"));
    story
        .feed(
            "its Node is not Ready",
            node_is(NodeFact {
                ready: false,
                ..ready()
            }),
        )
        .feed("v2 is wanted", pool_is(checking("v2")));
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
}

#[test]
fn a_version_that_fails_its_checks_is_replaced_under_the_lease() {
    // While its checks fail, and after they were given up.
    for gives_up in [false, true] {
        let mut story = up_to_ready(checking("v1"));
        if gives_up {
            fails_its_checks(&mut story);
        } else {
            story
                .feed("the soak is over", Input::Fired(Timer::Soak))
                .done("mark-node", checks_fail());
        }
        story.feed("v2 is wanted", pool_is(checking("v2")));
        assert!(
            matches!(story.state.phase, Phase::LeaseWait(_)),
            "{}",
            story.text
        );
        assert!(!story.names().contains(&"converge-host"), "{}", story.text);
        // Its place stays when the pool wants another one.
        story.feed("v3 is wanted", pool_is(checking("v3")));
        story.granted(9, true);
        assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    }
}

#[test]
fn a_version_that_was_overtaken_before_its_checks_failed_is_not_checked_for_long() {
    let mut story = up_to_ready(checking("v1"));
    story
        .feed("v2 is wanted", pool_is(checking("v2")))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", checks_fail());
    assert!(
        matches!(story.state.phase, Phase::LeaseWait(_)),
        "{}",
        story.text
    );
}

/// A person who keeps it as it is, is obeyed there as well, and the newest version is asked for afterwards.
#[test]
fn a_hold_keeps_a_version_that_fails_its_checks() {
    let waits = |story: &Story| matches!(story.state.phase, Phase::LeaseWait(_));
    let mut story = up_to_ready(checking("v1"));
    fails_its_checks(&mut story);
    story
        .person(Signal::Hold)
        .feed("v2 is wanted", pool_is(checking("v2")));
    assert!(failed(&story), "{}", story.text);
    story.person(Signal::Resume);
    assert!(waits(&story), "{}", story.text);

    let mut story = up_to_ready(checking("v1"));
    story
        .person(Signal::Hold)
        .feed("v2 is wanted", pool_is(checking("v2")))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", checks_fail());
    assert!(!waits(&story), "{}", story.text);
}

#[test]
fn an_approval_is_needed_there_as_well() {
    let manual = |version| PoolSettings {
        approval: Approval::Manual,
        ..checking(version)
    };
    let mut story = up_to_ready(manual("v1"));
    fails_its_checks(&mut story);
    story.feed("v2 is wanted", pool_is(manual("v2")));
    assert!(
        matches!(story.state.phase, Phase::ApprovalWait(_)),
        "{}",
        story.text
    );
    story.feed("automatic", pool_is(checking("v2")));
    assert!(
        matches!(story.state.phase, Phase::LeaseWait(_)),
        "{}",
        story.text
    );
}

/// An older build noted only at the resume that a machine which was marked during a pause serves.
#[test]
fn what_an_older_build_marked_during_a_pause_is_not_checked_again() {
    let mut story = up_to_ready(checking("v1"));
    story
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .person(Signal::Pause)
        .done("mark-node", Outcome::NodeMarked);
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    story.state.in_service = false;
    story.person(Signal::Resume);
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    assert!(story.state.report().joined);
}

/// dormer's own hold for a cordon ends by itself, also where no comparison of the host would end it.
#[test]
fn dormers_own_hold_of_a_version_that_fails_its_checks_ends() {
    let waits = |story: &Story| matches!(story.state.phase, Phase::LeaseWait(_));
    let mut story = up_to_ready(checking("v1"));
    let cordoned = Outcome::FenceRefused {
        why: FenceRefusal::Cordoned,
        said: "another client cordoned it".into(),
    };
    story
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", checks_fail())
        .feed("v2 is wanted", pool_is(checking("v2")))
        .granted(9, true)
        .done("open-fence", cordoned)
        .done("close-fence", Outcome::FenceClosed)
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", checks_fail());
    assert!(
        story.state.held.is_some() && !waits(&story),
        "{}",
        story.text
    );
    story
        .later_ms(10 * 60_000)
        .feed("again", Input::Fired(Timer::Again))
        .done("mark-node", checks_fail());
    assert!(
        story.state.held.is_none() && waits(&story),
        "{}",
        story.text
    );
}

/// A first bring-up whose version failed, and whose host was torn down and set up for the next one in part: it asks for a
/// reboot, and pods have come.
fn half_changed() -> Story {
    let in_place = |version| PoolSettings {
        strategy: Strategy::InPlace,
        ..checking(version)
    };
    let opened = || Outcome::FenceOpened {
        was_cordoned: false,
    };
    let cordoned = |ready: bool| {
        node_is(NodeFact {
            ready,
            cordoned: true,
            ..crate::common::ready()
        })
    };
    let mut story = up_to_ready(in_place("v1"));
    story
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", checks_fail())
        .feed("v2 is wanted", pool_is(in_place("v2")))
        .granted(9, false)
        .done("open-fence", opened())
        .done("evict", evicted(0, 0))
        .feed("its kubelet is stopped", cordoned(false))
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .feed("its kubelet is back", cordoned(true))
        .feed("somebody uncordons it, and pods come", node_is(ready()))
        .done("converge-host", owes("boot-1", &["feature:Containers"]))
        .done("open-fence", opened());
    assert_eq!(story.names(), ["evict"], "{}", story.text);
    story
}

/// Its target is v2, and half of that is there: no check of a Node finds a reboot that is owed.
#[test]
fn a_half_changed_machine_does_not_serve_as_the_new_version() {
    let closed = |story: &mut Story| {
        story
            .done("evict", Outcome::FenceClosedMeanwhile)
            .done("close-fence", Outcome::FenceClosed);
    };
    let mut story = half_changed();
    closed(&mut story);
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
    assert!(!story.state.in_service);
    // A person keeps it as it is: it serves once it passes its checks, and is compared when that ends.
    let mut story = half_changed();
    story.person(Signal::Hold);
    closed(&mut story);
    story
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked);
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    assert!(story.names().is_empty(), "{}", story.text);
    story.person(Signal::Resume);
    assert_eq!(story.names(), ["plan"], "{}", story.text);
    // It does not pass them, and the hold ends.
    let mut story = half_changed();
    story.person(Signal::Hold);
    closed(&mut story);
    story
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", checks_fail())
        .person(Signal::Resume)
        .feed("fifteen seconds later", Input::Fired(Timer::Again))
        .done("mark-node", checks_fail());
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
}

/// Under the next lease its drain is planned, whatever was half done under the last one.
#[test]
fn the_next_drain_of_a_half_changed_machine_waits_for_the_pods_of_a_dead_host() {
    for strategy in [Strategy::InPlace, Strategy::Recreate] {
        let pool = PoolSettings {
            strategy,
            ..checking("v2")
        };
        let mut story = half_changed();
        story
            .feed("the pool is edited", pool_is(pool))
            .done("evict", Outcome::FenceClosedMeanwhile)
            .done("close-fence", Outcome::FenceClosed)
            .granted(10, false)
            .done(
                "open-fence",
                Outcome::FenceOpened {
                    was_cordoned: false,
                },
            )
            .done("evict", evicted(0, 2))
            .feed(
                "its kubelet dies",
                node_is(NodeFact {
                    ready: false,
                    cordoned: true,
                    ..ready()
                }),
            )
            .later_ms(60 * 60_000)
            .feed("an hour later", Input::Fired(Timer::Again));
        assert_eq!(story.names(), ["evict"], "{}", story.text);
    }
}

#[test]
fn a_half_changed_machine_whose_node_is_down_is_compared_first() {
    let mut story = half_changed();
    story
        .feed(
            "its kubelet is silent",
            node_is(NodeFact {
                ready: false,
                cordoned: true,
                ..ready()
            }),
        )
        .done("evict", Outcome::FenceClosedMeanwhile)
        .done("close-fence", Outcome::FenceClosed)
        .done("probe", probed());
    assert_eq!(story.names(), ["plan"], "{}", story.text);
    // The host has containers, so pods may be there.
    story
        .done("plan", planned(Some(ChangeClass::Restart)))
        .feed("its kubelet is back", node_is(ready()))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked);
    assert_eq!(story.names(), ["plan"], "{}", story.text);
    // Without pods it is set up to the end.
    let mut story = half_changed();
    let mut without = planned(Some(ChangeClass::Restart));
    if let Outcome::Planned { pods, .. } = &mut without {
        *pods = 0;
    }
    story
        .feed(
            "its kubelet is silent",
            node_is(NodeFact {
                ready: false,
                cordoned: true,
                ..ready()
            }),
        )
        .done("evict", Outcome::FenceClosedMeanwhile)
        .done("close-fence", Outcome::FenceClosed)
        .done("probe", probed())
        .done("plan", without);
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
}
