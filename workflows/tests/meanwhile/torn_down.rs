//! A host that was torn down under the lease has no earlier configuration to go back to: its change continues to the end,
//! however often its Node is drained in between.

use super::{
    OPENED, cordoned, draining, failed_under_the_lease, guard, made_anew_node,
    repaired_until_it_soaks, reset, silent, tearing_down, uncordoned,
};
use crate::common::{
    In, Story, carrying, converged, evicted, facts, in_place, machine, machine_is, node_gone,
    node_is, owes, planned, pool_is, probed, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::{
    machine::{ChangeClass, FenceRefusal, MachineFact, NodeFact, Outcome, Section, Signal},
    other_operator::OtherOperator,
    pool::{AfterTimeout, PoolSettings},
};
use dormer_workflows::machine::{Lease, Phase, Timer};

/// A machine whose host was torn down, and whose Node is drained again, since pods came.
fn opening() -> Story {
    let mut story = failed_under_the_lease();
    story
        .feed("an admin uncordons it, and pods come", uncordoned())
        .feed("the pool wants v3", pool_is(in_place("v3")));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    story
}

fn evicting() -> Story {
    let mut story = opening();
    story
        .done("open-fence", OPENED)
        .feed("the Node is cordoned", cordoned())
        .done("evict", evicted(0, 2))
        .feed("five seconds later", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["evict"], "{}", story.text);
    story
}

fn drain_failed() -> Story {
    let mut story = evicting();
    story.given_up("evict", "Forbidden");
    story
}

/// The Machine as a watcher shows it, with one difference.
fn named(change: impl FnOnce(&mut MachineFact)) -> In {
    let mut fact = MachineFact {
        node: Some("win-a".into()),
        ..machine()
    };
    change(&mut fact);
    machine_is(fact)
}

fn keeps_the_lease(story: &Story, what: &str) {
    assert!(
        story.state.lease.token().is_some() && story.state.phase != Phase::Undoing,
        "{what}: {}",
        story.text
    );
    assert_eq!(story.state.held, None, "{what}: {}", story.text);
}

#[test]
fn no_label_abort_or_rollback_gives_it_back_in_the_middle_of_its_drain() {
    let label = || named(|machine| machine.ignored = true);
    let back = || pool_is(in_place("v1"));
    for begin in [opening, evicting, drain_failed] {
        let mut story = begin();
        let before = story.names();
        story.feed("it is labelled ignore=true", label());
        keeps_the_lease(&story, "label");
        assert_eq!(story.names(), before, "{}", story.text);
        let mut story = begin();
        story.person(Signal::Abort);
        keeps_the_lease(&story, "abort");
        assert_eq!(story.names(), before, "{}", story.text);
    }
    for begin in [opening, evicting] {
        let mut story = begin();
        let before = story.names();
        story.feed("the pool goes back to v1, which is on no host", back());
        keeps_the_lease(&story, "rollback");
        assert_eq!(story.names(), before, "{}", story.text);
    }
    // Before the tear-down each of them ends the drain.
    for input in [label(), back()] {
        let mut story = draining(in_place("v2"));
        story.feed("before the tear-down", input);
        assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    }
    let mut story = draining(in_place("v2"));
    story.person(Signal::Abort);
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
}

#[test]
fn another_operator_does_not_get_a_host_that_is_torn_down_for_a_whole_one() {
    for (begin, next) in [
        (opening as fn() -> Story, "open-fence"),
        (evicting as fn() -> Story, "evict"),
    ] {
        let mut story = begin();
        let runs = || OtherOperator::Runs("another operator runs (Pod winc/wmco-1)".into());
        story.feed(
            "another operator runs",
            named(|machine| machine.neighbour = runs()),
        );
        assert_eq!(story.names(), Vec::<&str>::new(), "{}", story.text);
        keeps_the_lease(&story, "another operator");
        story.feed(
            "it has ended",
            named(|machine| machine.neighbour = OtherOperator::Absent),
        );
        assert_eq!(story.names(), [next], "{}", story.text);
    }
}

/// By itself the run would add a hold and return the lease of a host that carries no version.
#[test]
fn a_drain_of_it_that_takes_too_long_waits_where_the_pool_says_abort() {
    let aborts = PoolSettings {
        drain_timeout_ms: 60_000,
        after_timeout: AfterTimeout::Abort,
        ..in_place("v3")
    };
    let mut story = evicting();
    story
        .feed("the pool's policy is abort", pool_is(aborts.clone()))
        .done("evict", evicted(0, 2))
        .feed("the drain takes too long", Input::Fired(Timer::Drain));
    keeps_the_lease(&story, "the drain's limit");
    let note = story.state.note.clone().unwrap_or_default();
    assert!(note.contains("torn down"), "{note}");
    let drain = story.state.view().drain.expect("it is drained");
    assert!(drain.overdue, "{drain:?}");
    // Before the tear-down it is undone.
    let mut story = draining(PoolSettings {
        desired: in_place("v2").desired,
        ..aborts
    });
    story.feed("the drain takes too long", Input::Fired(Timer::Drain));
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
}

/// A stop, a pause, a cordon: the drain begins again when they have ended.
#[test]
fn a_refusal_of_its_drain_is_waited_for() {
    let refused = |why| Outcome::FenceRefused {
        why,
        said: "not now".into(),
    };
    for why in [
        FenceRefusal::Stopped,
        FenceRefusal::Paused,
        FenceRefusal::Cordoned,
        FenceRefusal::Ignored,
        FenceRefusal::OtherDormer,
        FenceRefusal::NotItsNode,
    ] {
        for (begin, task) in [
            (opening as fn() -> Story, "open-fence"),
            (evicting as fn() -> Story, "evict"),
        ] {
            let mut story = begin();
            story.done(task, refused(why));
            assert_eq!(story.names(), Vec::<&str>::new(), "{why:?}: {}", story.text);
            keeps_the_lease(&story, task);
            let note = story.state.note.clone().unwrap_or_default();
            assert!(note.contains("not now"), "{note}");
            story.feed("a minute later", Input::Fired(Timer::Again));
            assert_eq!(story.names(), [task], "{why:?}: {}", story.text);
        }
    }
    // Uncordoned and refused: it is cordoned before the next pass.
    let mut story = evicting();
    story
        .feed("an admin uncordons it", uncordoned())
        .done("open-fence", refused(FenceRefusal::Stopped));
    assert_eq!(story.names(), Vec::<&str>::new(), "{}", story.text);
    story.feed("a minute later", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    story.done("open-fence", OPENED);
    assert_eq!(story.names(), ["evict"], "{}", story.text);
    // A Node that serves is compared, and a newer token ends every right.
    for why in [FenceRefusal::NodeServes, FenceRefusal::Superseded] {
        let mut story = opening();
        story.done("open-fence", refused(why));
        assert_eq!(story.names(), ["close-fence"], "{}", story.text);
        story.done("close-fence", Outcome::FenceClosed);
        let compares = story.names() == ["plan"] || why == FenceRefusal::Superseded;
        assert!(compares, "{}", story.text);
    }
}

/// A machine that is torn down for v3, after v2 had failed under the same lease.
fn tearing_down_again() -> Story {
    let mut story = opening();
    story
        .done("open-fence", OPENED)
        .feed("the Node is cordoned", cordoned())
        .done("evict", evicted(2, 0));
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    story
}

#[test]
fn a_refusal_of_its_next_tear_down_is_waited_for() {
    let refused = |why| Outcome::FenceRefused {
        why,
        said: "not now".into(),
    };
    for why in [
        FenceRefusal::OtherDormer,
        FenceRefusal::NotItsNode,
        FenceRefusal::NotWindows,
        FenceRefusal::ControlPlane,
        FenceRefusal::Stopped,
    ] {
        let mut story = tearing_down_again();
        story.done("tear-down", refused(why));
        assert_eq!(story.names(), Vec::<&str>::new(), "{why:?}: {}", story.text);
        keeps_the_lease(&story, "tear-down");
        let note = story.state.note.clone().unwrap_or_default();
        assert!(note.contains("not now"), "{note}");
        story.feed("a minute later", Input::Fired(Timer::Again));
        assert_eq!(story.names(), ["tear-down"], "{why:?}: {}", story.text);
        story.done("tear-down", Outcome::TornDown);
        assert_eq!(story.names(), ["probe"], "{why:?}: {}", story.text);
    }
    // It begins again for another reason: the wait is over.
    let mut story = tearing_down_again();
    story
        .done("tear-down", refused(FenceRefusal::NotItsNode))
        .feed("an admin uncordons it", uncordoned());
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    let waits = story.text.rfind("(Again)");
    let waits = waits.and_then(|at| story.text[..at].rsplit('\n').next());
    assert_eq!(waits.map(str::trim), Some("wait no more"), "{}", story.text);
    // The first one destroys nothing when it is refused.
    let mut story = tearing_down();
    story.done("tear-down", refused(FenceRefusal::NotItsNode));
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
}

/// Its cause is mended, and a person does not want to wait for the rest of the minute.
#[test]
fn a_retry_ends_the_wait_after_a_refusal() {
    let refused = Outcome::FenceRefused {
        why: FenceRefusal::NotItsNode,
        said: "not now".into(),
    };
    for (begin, task) in [
        (opening as fn() -> Story, "open-fence"),
        (evicting as fn() -> Story, "evict"),
        (tearing_down_again as fn() -> Story, "tear-down"),
    ] {
        let mut story = begin();
        story.done(task, refused.clone());
        let note = story.state.note.clone().unwrap_or_default();
        assert!(
            note.contains("waits until") && note.contains("UTC"),
            "{note}"
        );
        story.text.clear();
        story.person(Signal::Retry);
        let fires = story.text.contains("wait no longer (Again)");
        assert!(fires, "{task}: {}", story.text);
    }
    // Before the tear-down there is no such wait.
    let mut story = tearing_down();
    story.text.clear();
    story.person(Signal::Retry);
    assert!(!story.text.contains("(Again)"), "{}", story.text);
}

/// There is nothing to spare it from: it is set up whatever its clock shows.
#[test]
fn its_clock_does_not_end_its_change() {
    let mut late = facts("boot-1");
    late.clock_skew_ms = 6 * 60_000;
    let probed = Outcome::Probed {
        facts: late,
        host_key: "key-a".into(),
        node_name: "win-a".into(),
    };
    let mut story = tearing_down();
    story
        .feed("its kubelet is stopped", silent())
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed)
        .feed("its kubelet is back", cordoned())
        .feed("an admin uncordons it, and pods come", uncordoned())
        .done("converge-host", owes("boot-1", &["feature:Containers"]));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
}

#[test]
fn a_reset_to_another_lease_sets_it_up_again() {
    let early = Story::joined(wanting("v1")).state;
    for begin in [opening, evicting, drain_failed] {
        let mut story = begin();
        story.open.clear();
        reset(&mut story, early.clone());
        assert_eq!(story.names(), ["probe"], "{}", story.text);
        assert_eq!(story.state.phase, Phase::Reprobing);
    }
    let mut story = draining(in_place("v2"));
    reset(&mut story, early);
    assert_eq!(story.state.phase, Phase::Undoing, "nothing is destroyed");
}

/// The Node of a repair, whose kubelet does not answer.
fn new_node_is_silent(cordoned: bool) -> In {
    node_is(NodeFact {
        uid: "uid-anew".into(),
        ready: false,
        cordoned,
        ..carrying("v1")
    })
}

const MINUTE: u64 = 60_000;

/// The version does not pass its checks since its kubelet dies, and the next one mends that. Its pods are not gone before
/// their kubelet is back.
#[test]
fn a_drain_in_the_middle_of_a_change_does_not_wait_for_a_kubelet_that_the_change_brings_back() {
    let mut story = repaired_until_it_soaks();
    story
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .given_up("mark-node", "Forbidden")
        .feed("its kubelet dies", new_node_is_silent(false))
        .later_ms(5 * MINUTE)
        .feed("the pool wants v3", pool_is(in_place("v3")))
        .done("open-fence", OPENED)
        .feed("the Node is cordoned", new_node_is_silent(true))
        .done("evict", evicted(0, 2))
        .feed("five seconds later", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["evict"], "five minutes: {}", story.text);
    story
        .done("evict", evicted(0, 2))
        .later_ms(5 * MINUTE)
        .feed("ten minutes", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
    assert_eq!(story.state.target.version, "v3");
    // Its pods are still there: once the kubelet is back, a reboot waits for them.
    story
        .feed(
            "its kubelet is back",
            node_is(NodeFact {
                uid: "uid-anew".into(),
                cordoned: true,
                ..carrying("v1")
            }),
        )
        .done("converge-host", owes("boot-1", &["feature:Containers"]));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
}

/// What was planned as a drain of a dead host waits, until a person says that the host is off.
#[test]
fn a_drain_that_was_planned_waits_for_the_pods_of_a_dead_host() {
    let mut story = draining(in_place("v2"));
    story
        .feed("its kubelet dies", silent())
        .later_ms(60 * MINUTE)
        .feed("an hour later", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["evict"], "{}", story.text);
    // Refused before the tear-down began: nothing of the host is changed.
    let refused = Outcome::FenceRefused {
        why: FenceRefusal::Uncordoned,
        said: "the Node win-a was uncordoned".into(),
    };
    let mut story = tearing_down();
    story
        .done("tear-down", refused)
        .done("open-fence", OPENED)
        .done("evict", evicted(0, 2))
        .feed("its kubelet dies", silent())
        .later_ms(60 * MINUTE)
        .feed("an hour later", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["evict"], "{}", story.text);
    story
        .person(Signal::Abort)
        .done("close-fence", Outcome::FenceClosed);
    assert!(!story.state.host.half_changed, "{}", story.text);
}

/// The first attempts removed a part, and the host came up again for a while.
#[test]
fn a_tear_down_that_was_begun_continues_when_its_node_is_down_for_long() {
    let mut story = tearing_down();
    story
        .given_up("tear-down", "NodeUncordoned")
        .done("open-fence", OPENED)
        .done("evict", evicted(0, 2))
        .feed("its kubelet dies", silent())
        .later_ms(10 * MINUTE)
        .feed("ten minutes later", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    assert!(guard(&story, "tear-down").begun);
}

/// A machine that is drained before the reboot of a change that was planned without a drain.
fn drained_for_its_reboot(pool: PoolSettings) -> Story {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("the pool wants v2", pool_is(pool))
        .done("plan", planned(Some(ChangeClass::Restart)))
        .granted(7, false)
        .done("open-fence", OPENED)
        .done("converge-host", owes("boot-1", &["feature:Containers"]))
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 3));
    story
}

/// Its host is off, and some pods stay.
fn is_off_for_an_hour(story: &mut Story) {
    story
        .feed("its kubelet dies", silent())
        .later_ms(60 * MINUTE)
        .feed("an hour later", Input::Fired(Timer::Again));
}

#[test]
fn a_restart_continues_when_its_node_is_down_for_long() {
    let mut story = drained_for_its_reboot(in_place("v2"));
    is_off_for_an_hour(&mut story);
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
    story.done("converge-host", owes("boot-1", &["feature:Containers"]));
    assert_eq!(story.names(), ["reboot"], "{}", story.text);
}

/// The change was given up, and a person holds the machine: no comparison has forgotten that change.
#[test]
fn a_drain_or_replacement_after_a_change_that_was_given_up_configures_no_host() {
    for (request, pool) in [
        (Signal::Drain, in_place("v2")),
        (Signal::Drain, wanting("v2")),
        (Signal::Recreate, wanting("v2")),
    ] {
        let mut story = drained_for_its_reboot(pool);
        story
            .person(Signal::Abort)
            .done("close-fence", Outcome::FenceClosed);
        assert!(story.state.host.half_changed, "{}", story.text);
        story
            .person(request)
            .granted(8, false)
            .done("open-fence", OPENED)
            .done("evict", evicted(0, 2));
        is_off_for_an_hour(&mut story);
        assert_eq!(story.names(), ["evict"], "{}", story.text);
    }
}

/// The pool replaces machines whose change needs a drain: nothing is configured any more.
#[test]
fn a_change_that_has_become_a_replacement_waits_for_the_pods_of_a_dead_host() {
    let mut story = drained_for_its_reboot(wanting("v2"));
    is_off_for_an_hour(&mut story);
    assert_eq!(story.names(), ["evict"], "{}", story.text);
    // A person asks in the middle of the change.
    let mut story = drained_for_its_reboot(in_place("v2"));
    story.person(Signal::Drain);
    is_off_for_an_hour(&mut story);
    assert_eq!(story.names(), ["evict"], "{}", story.text);
}

/// An older build took each refused tear-down for one that had begun.
#[test]
fn an_older_builds_note_of_a_refused_tear_down_configures_no_host() {
    let refused = Outcome::FenceRefused {
        why: FenceRefusal::Uncordoned,
        said: "the Node win-a was uncordoned".into(),
    };
    let mut story = tearing_down();
    story
        .done("tear-down", refused)
        .done("open-fence", OPENED)
        .done("evict", evicted(0, 2));
    story.state.host.half_changed = true;
    is_off_for_an_hour(&mut story);
    assert_eq!(story.names(), ["evict"], "{}", story.text);
}

/// An older build kept the note of an uncordon before the tear-down, and knew no kubelet that is stopped.
#[test]
fn an_older_builds_note_of_an_uncordon_delays_a_dead_host_no_longer_than_any_other() {
    let mut story = tearing_down();
    story
        .feed("its kubelet is stopped", silent())
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed());
    (story.state.host.uncordoned, story.state.host.stopped) = (true, false);
    story
        .given_up("converge-host", "ConnectTimeout")
        .person(Signal::Retry)
        .done("open-fence", OPENED)
        .done("evict", evicted(0, 2))
        .later_ms(10 * MINUTE)
        .feed("ten minutes later", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
}

/// The kubelet of a repair flaps, and the version that mends it was published while pods were there.
#[test]
fn a_step_that_fails_is_left_for_the_version_that_was_published_meanwhile() {
    let mut story = repaired_until_it_soaks();
    story
        .feed("its kubelet is silent", new_node_is_silent(false))
        .feed("the pool wants v3", pool_is(in_place("v3")));
    assert_eq!(story.names(), Vec::<&str>::new(), "{}", story.text);
    assert_eq!(story.state.phase, Phase::ReadyWait);
    story
        .later_ms(5 * MINUTE)
        .feed("it does not come back", Input::Fired(Timer::Deadline));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    let retried = story.state.retried.clone().expect("people see why");
    assert_eq!(retried.failure.code, "NotReadyOverdue");
    // Down for long, it has no pods to spare.
    let mut story = repaired_until_it_soaks();
    story
        .feed("its kubelet is silent", new_node_is_silent(false))
        .feed("the pool wants v3", pool_is(in_place("v3")))
        .later_ms(20 * MINUTE)
        .feed("it does not come back", Input::Fired(Timer::Deadline));
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
    assert_eq!(story.state.target.version, "v3");
    // The section of its Node fails.
    let mut story = repaired_until_its_node_registers();
    story
        .feed("the pool wants v3", pool_is(in_place("v3")))
        .given_up("converge-node", "Forbidden");
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    // During a pause it waits.
    let mut story = repaired_until_its_node_registers();
    story
        .feed("the pool wants v3", pool_is(in_place("v3")))
        .person(Signal::Pause)
        .given_up("converge-node", "Forbidden");
    assert_eq!(story.names(), Vec::<&str>::new(), "{}", story.text);
    story.person(Signal::Resume);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    // Without another version it has failed.
    let mut story = repaired_until_its_node_registers();
    story.given_up("converge-node", "Forbidden");
    assert!(matches!(story.state.phase, Phase::Failed { .. }));
    story.person(Signal::Retry);
    assert_eq!(story.names(), ["converge-node"], "{}", story.text);
}

/// A machine in its repair: its new Node is Ready, and its section is not applied yet.
fn repaired_until_its_node_registers() -> Story {
    let mut story = Story::joined(in_place("v1"));
    story
        .feed("its Node is gone", node_gone())
        .later_ms(10 * MINUTE)
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent)
        .granted(7, false)
        .done("open-fence", OPENED)
        .done("find-node", Outcome::NodeAbsent)
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("its kubelet registers", made_anew_node());
    assert_eq!(story.names(), ["converge-node"], "{}", story.text);
    story
}

/// The record is of the checks that followed an earlier configuration under the same lease. To finish it would leave out what
/// the drain was begun for.
#[test]
fn a_reset_to_a_later_step_skips_no_drain_that_is_under_way() {
    let mut story = failed_under_the_lease();
    let then = story.state.clone();
    story
        .feed("an admin uncordons it, and pods come", uncordoned())
        .feed("the pool wants v3", pool_is(in_place("v3")))
        .done("open-fence", OPENED)
        .feed("the Node is cordoned", cordoned())
        .done("evict", evicted(0, 2));
    reset(&mut story, then);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(matches!(story.state.lease, Lease::Held { .. }));
}
