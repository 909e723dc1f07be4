//! Stories of reboots: which one counts as the one that was ordered, and how many a configuration may need.

use super::holds;
use crate::common::{
    Story, converged, evicted, facts, in_place, machine, machine_is, node, node_is, owes, planned,
    pool_is, probed, probed_at, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::{
    machine::{ChangeClass, MachineFact, Outcome, Section, Signal, Task},
    pool::PoolSettings,
};
use dormer_workflows::machine::{Lease, Phase, Reboots, Timer};
use expect_test::expect_file;

/// Where Windows has no number of its boot, the second of it is read again and again, and is rounded each time.
#[test]
fn a_boots_second_that_moved_a_little_is_the_same_boot() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed_at("t1700000000"))
        .done(
            "converge-host",
            Outcome::Converged {
                section: Section::Host,
                changed: 3,
                reboot: true,
                boot_id: "t1700000000".into(),
                owed: Vec::new(),
            },
        )
        .done("reboot", Outcome::RebootAsked)
        .feed("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at("t1700000001"))
        .feed("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at("t1700000200"));
    holds(&story, expect_file!["../stories/boot_seconds.txt"]);
}

#[test]
fn a_second_reboot_is_one_too_many() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, true))
        .done("reboot", Outcome::RebootAsked)
        .feed("half an hour later", Input::Fired(Timer::Deadline))
        .person(Signal::Retry)
        .feed("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at("boot-2"))
        .done("converge-host", converged(Section::Host, true));
    holds(&story, expect_file!["../stories/reboots.txt"]);
}

/// One boot of a host that owes `owed` in `boot`.
fn boots(story: &mut Story, boot: u32, owed: &[&str]) {
    let next = format!("boot-{}", boot + 1);
    story
        .done("converge-host", owes(&format!("boot-{boot}"), owed))
        .done("reboot", Outcome::RebootAsked)
        .feed("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at(&next));
}

/// Windows may owe a boot for a name, then for a feature that could only be added under it.
#[test]
fn a_reboot_for_something_else_goes_on() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    boots(&mut story, 1, &["feature:Containers", "hostname"]);
    boots(&mut story, 2, &["feature:Containers"]);
    story.done("converge-host", converged(Section::Host, false));
    assert_eq!(story.state.phase, Phase::NodeWait);
    holds(&story, expect_file!["../stories/reboots_for_more.txt"]);
}

#[test]
fn the_same_reboot_again_is_a_loop() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    boots(&mut story, 1, &["feature:Containers"]);
    story.done("converge-host", owes("boot-2", &["feature:Containers"]));
    assert_eq!(
        failure_of(&story),
        (
            "RebootLoop".into(),
            "the host was rebooted, and still requires a reboot: feature:Containers".into()
        )
    );
}

#[test]
fn three_reboots_are_all_that_one_configuration_gets() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    for (boot, owed) in [(1, "a"), (2, "b"), (3, "c")] {
        boots(&mut story, boot, &[owed]);
    }
    story.done("converge-host", owes("boot-4", &["d"]));
    let (code, message) = failure_of(&story);
    assert_eq!(code, "RebootLoop");
    assert!(
        message.contains("3 times") && message.contains(": d;"),
        "{message}"
    );
    // The next configuration has its own three.
    story
        .person(Signal::Retry)
        .done("converge-host", converged(Section::Host, false));
    story.feed(
        "another address",
        machine_is(MachineFact {
            addresses: vec!["10.0.0.2".into()],
            ..machine()
        }),
    );
    boots(&mut story, 4, &["d"]);
    assert!(matches!(
        story.state.phase,
        Phase::ConvergingHost { rebooted: true }
    ));
}

/// An older worker says that a reboot is needed, and not for what; an older build has counted nothing.
#[test]
fn a_reboot_without_a_reason_is_allowed_once() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    boots(&mut story, 1, &[]);
    story.state.host.reboots = Reboots::default();
    story.done("converge-host", owes("boot-2", &[]));
    assert_eq!(failure_of(&story).0, "RebootLoop");
}

/// A machine whose change was planned without a drain, and whose host asks for a reboot after it.
fn restarted(pool: PoolSettings, owed: &[&str]) -> Story {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("the pool wants v2", pool_is(pool))
        .done("plan", planned(Some(ChangeClass::Restart)))
        .granted(7, false)
        .done("open-fence", OPENED);
    story.text.clear();
    story.done("converge-host", owes("boot-1", owed));
    story
}

const OPENED: Outcome = Outcome::FenceOpened {
    was_cordoned: false,
};

/// A person has renamed the host, which a boot would carry out, or Windows wants a boot of its own.
#[test]
fn a_node_that_serves_is_drained_before_a_reboot_that_nobody_planned() {
    let cordons = |story: &Story| match story.task("open-fence") {
        Task::OpenFence { cordon, .. } => cordon,
        other => panic!("{}", other.name()),
    };
    // It is replaced: the new machine has its own name.
    let mut story = restarted(wanting("v2"), &["hostname:win-b"]);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(cordons(&story));
    story
        .done("open-fence", OPENED)
        .done("evict", evicted(4, 0));
    assert_eq!(story.names(), ["delete-machine"], "{}", story.text);
    // In place it says its name first, and is not drained under another one.
    let mut story = restarted(in_place("v2"), &["hostname:win-b"]);
    assert_eq!(story.names(), ["probe"], "{}", story.text);
    let renamed = Outcome::Probed {
        facts: facts("boot-1"),
        host_key: "key-a".into(),
        node_name: "win-b".into(),
    };
    story.done("probe", renamed);
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    story
        .done("close-fence", Outcome::FenceClosed)
        .later_ms(10 * 60_000)
        .feed("ten minutes later", Input::Fired(Timer::Drift))
        .done("plan", planned(Some(ChangeClass::Restart)))
        .granted(8, false);
    assert_eq!(story.names(), ["probe"], "it is asked: {}", story.text);
    story.done("probe", probed());
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    // Another cause than a name.
    let mut story = restarted(in_place("v2"), &["feature:Containers"]);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    assert!(cordons(&story));
    story
        .done("open-fence", OPENED)
        .done("evict", evicted(4, 0))
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .done("converge-host", owes("boot-1", &["feature:Containers"]));
    assert_eq!(story.names(), ["reboot"], "no pod is left: {}", story.text);
}

/// A part of the new version is on the host already: it is no machine of the old one.
#[test]
fn a_host_whose_unplanned_drain_is_undone_is_compared() {
    let mut story = restarted(in_place("v2"), &["feature:Containers"]);
    story
        .done("open-fence", OPENED)
        .feed("the pool goes back to v1", pool_is(in_place("v1")))
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.names(), ["plan"], "{}", story.text);
    story.done("plan", planned(Some(ChangeClass::Restart)));
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
    // What was undone once is over with the next change.
    story
        .granted(8, false)
        .done("open-fence", OPENED)
        .person(Signal::Abort);
    assert_eq!(story.state.phase, Phase::ConvergingHost { rebooted: false });
    story
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
}

/// Nothing serves there, and a drain would wait for a kubelet that only the reboot brings back.
#[test]
fn a_node_that_is_down_for_long_is_rebooted_without_a_drain() {
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Restart)
        .granted(7, false)
        .done("open-fence", OPENED)
        .feed("its kubelet is silent", node_is(node()))
        .later_ms(10 * 60_000)
        .done("converge-host", owes("boot-1", &["feature:Containers"]));
    assert_eq!(story.names(), ["reboot"], "{}", story.text);
}

pub(super) fn failure_of(story: &Story) -> (String, String) {
    match &story.state.phase {
        Phase::Failed { failure, .. } => (failure.code.clone(), failure.message.clone()),
        phase => panic!("it is {phase:?}"),
    }
}
