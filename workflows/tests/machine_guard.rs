//! Conditions that a run gives its workers before they disturb a node, and its reaction to their refusals.

use crate::common::{
    In, Story, carrying, evicted, in_place, machine, machine_is, node_is, planned, pool_is, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::{
    held_by::HeldBy,
    id::LeaseToken,
    machine::{
        Blocker, ChangeClass, FenceRefusal, Guard, MachineFact, NodeFact, Outcome, Signal, Task,
    },
    phase::MachinePhase,
    pool::PoolSettings,
};
use dormer_workflows::machine::{Halt, Lease, Phase, Timer};

const OPENED: Outcome = Outcome::FenceOpened {
    was_cordoned: false,
};

fn refused(why: FenceRefusal) -> Outcome {
    Outcome::FenceRefused {
        why,
        said: "the cluster says so".into(),
    }
}

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

/// A machine that serves, with the lease.
fn granted(pool: PoolSettings, over_limit: bool) -> Story {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("the pool wants v2", pool_is(pool))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, over_limit);
    story
}

#[test]
fn within_the_limit_nothing_is_asked_beyond_the_pools_stop() {
    let mut story = granted(wanting("v2"), false);
    assert_eq!(guard(&story, "open-fence"), Guard::default());
    story.done("open-fence", OPENED);
    let before_deletion = Guard {
        deletes: true,
        ..Guard::default()
    };
    assert_eq!(guard(&story, "evict"), before_deletion);
    story.done("evict", evicted(1, 0));
    assert_eq!(guard(&story, "delete-machine"), Guard::default());
    let mut story = granted(in_place("v2"), false);
    story
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 0));
    let tear_down = Guard {
        token: Some(LeaseToken(7)),
        ..Guard::default()
    };
    assert_eq!(guard(&story, "tear-down"), tear_down);
}

#[test]
fn over_the_limit_each_step_asks_for_a_node_that_is_down() {
    let pool = || PoolSettings {
        pool: "second".into(),
        repair_after_ms: Some(120_000),
        ..wanting("v2")
    };
    let marked = Guard {
        pool: Some("second".into()),
        down_ms: Some(120_000),
        ..Guard::default()
    };
    let mut story = granted(pool(), true);
    assert_eq!(guard(&story, "open-fence"), marked);
    story.done("open-fence", OPENED);
    let before_deletion = Guard {
        deletes: true,
        ..marked.clone()
    };
    assert_eq!(guard(&story, "evict"), before_deletion);
    story.done("evict", evicted(1, 0));
    assert_eq!(guard(&story, "delete-machine"), marked);
    // An older watcher names no time: ten minutes.
    let mut story = granted(in_place("v2"), true);
    story
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 0));
    assert_eq!(guard(&story, "tear-down").down_ms, Some(600_000));
}

/// Each pass makes two records, and a run keeps 256.
#[test]
fn passes_that_move_nothing_come_less_often() {
    let mut story = granted(wanting("v2"), false);
    story.done("open-fence", OPENED);
    let mut waits = Vec::new();
    let mut pass = |story: &mut Story, outcome: Outcome| {
        story.text.clear();
        story.done("evict", outcome);
        let again = story.text.lines().find(|line| line.contains("Again"));
        waits.push(again.unwrap_or("no further pass").trim().to_owned());
        story.feed("it is time", Input::Fired(Timer::Again));
    };
    pass(&mut story, evicted(1, 3));
    for _ in 0..60 {
        pass(&mut story, evicted(0, 3));
    }
    pass(&mut story, evicted(1, 2));
    let after = |seconds: u64, passes: usize| vec![format!("wait {seconds}.000 s (Again)"); passes];
    let expected = [after(5, 12), after(15, 36), after(60, 13), after(5, 1)].concat();
    assert_eq!(waits, expected);
}

/// Only where the Machine goes next, and only while its Node is not Ready.
#[test]
fn what_a_dead_node_does_not_end_is_skipped_where_its_machine_is_deleted() {
    let mut story = granted(wanting("v2"), false);
    story
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 3))
        .feed("its Node falls silent", silent())
        .feed("five seconds later", Input::Fired(Timer::Again));
    assert!(guard(&story, "evict").recreate);
    let skipped = Blocker {
        pod: "shop/db-0".into(),
        why: "its node does not answer".into(),
        budgets: Vec::new(),
        until_off: false,
        finalizers: Vec::new(),
    };
    story.done(
        "evict",
        Outcome::Evicted {
            evicted: 0,
            left: 0,
            blockers: Vec::new(),
            skipped: vec![skipped],
        },
    );
    assert_eq!(story.names(), ["delete-machine"]);
    let note = story.state.note.clone().unwrap_or_default();
    assert!(note.contains("shop/db-0"), "{note}");
    let mut stays = granted(in_place("v2"), false);
    stays
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 3))
        .feed("its Node falls silent", silent())
        .feed("five seconds later", Input::Fired(Timer::Again));
    assert!(!guard(&stays, "evict").recreate);
    let mut drained = Story::joined(wanting("v1"));
    drained
        .person(Signal::Drain)
        .granted(7, false)
        .done("open-fence", OPENED)
        .done("evict", evicted(1, 3))
        .feed("its Node falls silent", silent())
        .feed("five seconds later", Input::Fired(Timer::Again));
    assert!(!guard(&drained, "evict").recreate);
}

/// The step at which the worker refuses.
fn at(step: &str) -> Story {
    let pool = match step {
        "tear-down" => in_place("v2"),
        _ => wanting("v2"),
    };
    let mut story = granted(pool, true);
    if step != "open-fence" {
        story.done("open-fence", OPENED);
    }
    if step == "delete-machine" || step == "tear-down" {
        story.done("evict", evicted(1, 0));
    }
    assert_eq!(story.names(), [step]);
    story
}

const STEPS: [&str; 4] = ["open-fence", "evict", "delete-machine", "tear-down"];

#[test]
fn a_step_is_undone_when_the_pool_is_stopped_or_the_node_is_ready_again() {
    for why in [FenceRefusal::Stopped, FenceRefusal::NodeServes] {
        for step in STEPS {
            let mut story = at(step);
            story.done(step, refused(why));
            assert_eq!(story.names(), ["close-fence"], "{step}: {why:?}");
            story.done("close-fence", Outcome::FenceClosed);
            assert_eq!(story.state.halt, None, "{step}: {why:?}");
            assert!(story.state.lease.token().is_none(), "{step}: {why:?}");
            assert!(story.state.note.is_some(), "{step}: {why:?}");
        }
    }
}

/// The watcher's facts are old: they say neither that the pool is stopped nor that there is a newer token.
#[test]
fn a_lease_is_not_asked_for_at_once_after_a_refusal_that_no_fact_explains() {
    for why in [FenceRefusal::Stopped, FenceRefusal::Superseded] {
        let mut story = at("open-fence");
        story
            .done("open-fence", refused(why))
            .done("close-fence", Outcome::FenceClosed);
        assert_eq!(story.state.phase, Phase::Serving, "{why:?}");
        assert!(story.names().is_empty(), "{why:?}: {:?}", story.names());
        story.feed("ten minutes later", Input::Fired(Timer::Drift));
        assert_eq!(story.names(), ["plan"], "{why:?}");

        // A fact about the pool may be the reason.
        let mut story = at("open-fence");
        story
            .done("open-fence", refused(why))
            .done("close-fence", Outcome::FenceClosed)
            .feed("the pool is changed", pool_is(wanting("v3")));
        assert_eq!(story.names(), ["plan"], "{why:?}");
    }
}

/// As the watcher reports a pool that was deleted.
fn no_pool() -> PoolSettings {
    PoolSettings {
        paused: true,
        absent: true,
        held: Some("there is no WindowsPool dormer/windows".into()),
        ..wanting("v2")
    }
}

/// Its next fact about the pool may come after days.
#[test]
fn a_lease_is_asked_for_at_once_if_the_pool_is_there_again_before_the_fence_is_closed() {
    for step in STEPS {
        let mut story = at(step);
        story
            .done(step, refused(FenceRefusal::Stopped))
            .feed("there is no pool", pool_is(no_pool()))
            .feed("the pool is there again", pool_is(wanting("v2")))
            .done("close-fence", Outcome::FenceClosed);
        assert_eq!(story.names(), ["plan"], "{step}: {}", story.text);
    }
}

/// The worker read the pool before it was made again, and its answer comes after that fact.
#[test]
fn a_lease_is_asked_for_at_once_after_a_refusal_that_is_older_than_the_pool() {
    let mut story = at("open-fence");
    story
        .feed("there is no pool", pool_is(no_pool()))
        .feed("the pool is there again", pool_is(wanting("v2")))
        .done("open-fence", refused(FenceRefusal::Stopped))
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.names(), ["plan"], "{}", story.text);
    // Only that refusal is older.
    story
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(8, true)
        .done("open-fence", refused(FenceRefusal::Stopped))
        .done("close-fence", Outcome::FenceClosed);
    assert!(story.names().is_empty(), "{:?}", story.names());
}

fn pool_with_uid(uid: &str) -> PoolSettings {
    PoolSettings {
        uid: Some(uid.into()),
        ..wanting("v2")
    }
}

/// No watcher ran while there was no pool.
#[test]
fn a_lease_is_asked_for_at_once_after_a_refusal_that_is_older_than_another_pool_of_the_name() {
    let mut story = at("open-fence");
    story
        .feed("the pool", pool_is(pool_with_uid("u1")))
        .feed("another pool of the name", pool_is(pool_with_uid("u2")))
        .done("open-fence", refused(FenceRefusal::Stopped))
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.names(), ["plan"], "{}", story.text);
}

/// An older watcher names no UID of the pool.
#[test]
fn a_pool_of_which_a_newer_watcher_names_the_uid_first_is_the_same() {
    let mut story = at("open-fence");
    for settings in [pool_with_uid("u1"), wanting("v2"), pool_with_uid("u1")] {
        story.feed("the same pool", pool_is(settings));
        assert!(!story.state.allowed_again);
    }
}

/// These refusals are about the Node's objects, and no settings end their cause.
#[test]
fn a_pool_that_is_there_again_explains_no_other_refusal() {
    for why in [FenceRefusal::Superseded, FenceRefusal::Uncordoned] {
        let mut story = at("open-fence");
        story
            .feed("there is no pool", pool_is(no_pool()))
            .feed("the pool is there again", pool_is(wanting("v2")))
            .done("open-fence", refused(why))
            .done("close-fence", Outcome::FenceClosed);
        assert!(story.names().is_empty(), "{why:?}: {:?}", story.names());
    }
}

#[test]
fn a_newer_token_is_granted_after_the_pool_is_there_again() {
    let mut story = at("open-fence");
    story
        .feed("there is no pool", pool_is(no_pool()))
        .feed("the pool is there again", pool_is(wanting("v2")));
    assert!(story.state.allowed_again);
    story.granted(8, true);
    assert!(!story.state.allowed_again, "{}", story.text);
}

/// What the refusal says, the fact says too, whenever it comes: the machine rests until there is a pool.
#[test]
fn no_lease_is_asked_for_while_there_is_no_pool() {
    let mut early = at("open-fence");
    early
        .feed("there is no pool", pool_is(no_pool()))
        .feed("it is there for a moment", pool_is(wanting("v2")))
        .feed("there is none again", pool_is(no_pool()))
        .done("open-fence", refused(FenceRefusal::Stopped))
        .done("close-fence", Outcome::FenceClosed);
    let mut late = at("open-fence");
    late.done("open-fence", refused(FenceRefusal::Stopped))
        .feed("there is no pool", pool_is(no_pool()))
        .done("close-fence", Outcome::FenceClosed);
    for mut story in [early, late] {
        assert!(story.names().is_empty(), "{}", story.text);
        story.feed("the pool is there again", pool_is(wanting("v2")));
        assert_eq!(story.names(), ["plan"], "{}", story.text);
    }
}

/// A live read finds a Node Ready that is not, by the facts of a watcher that is an hour late.
#[test]
fn a_node_that_serves_after_all_may_not_go_over_the_limit_before_it_is_down_for_long() {
    let mut story = Story::joined(wanting("v1"));
    let not_ready = NodeFact {
        ready: false,
        ..carrying("v1")
    };
    story
        .feed("its Node falls silent", node_is(not_ready))
        .later_ms(10 * 60_000)
        .wants_v2(ChangeClass::Drain);
    assert!(story.state.report().repair, "{}", story.text);
    story
        .granted(7, true)
        .done("open-fence", refused(FenceRefusal::NodeServes))
        .done("close-fence", Outcome::FenceClosed)
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(matches!(story.state.phase, Phase::LeaseWait(_)));
    assert!(!story.state.report().repair, "{}", story.text);
    story
        .later_ms(10 * 60_000)
        .feed("ten minutes later", Input::Fired(Timer::Deadline));
    assert!(story.state.report().repair, "{}", story.text);
}

/// `dormer recreate` overrides the cordon of another client; an upgrade does not.
#[test]
fn a_person_who_asks_for_a_cordoned_machine_gets_it() {
    let cordoned = || {
        node_is(NodeFact {
            cordoned: true,
            ..carrying("v1")
        })
    };
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("a person cordons it", cordoned())
        .person(Signal::Recreate)
        .granted(7, false);
    assert!(guard(&story, "open-fence").asked);
    assert!(!guard(&granted(wanting("v2"), false), "open-fence").asked);
}

/// Its MachineSet lets go of it in the middle of an hour's drain: a deletion would shrink the pool.
#[test]
fn a_machine_that_loses_its_owner_in_mid_drain_is_given_back() {
    let orphan = || {
        machine_is(MachineFact {
            owner: None,
            node: Some("win-a".into()),
            ..machine()
        })
    };
    for step in ["open-fence", "evict"] {
        let mut story = at(step);
        story.feed("its MachineSet lets go of it", orphan());
        assert_eq!(story.names(), ["close-fence"], "{step}");
        story.done("close-fence", Outcome::FenceClosed);
        assert!(story.state.lease.token().is_none(), "{step}");
        assert!(!story.text.contains("delete-machine"), "{step}");
    }
    // In place its own host is set up again: no replacement is needed.
    let mut story = granted(in_place("v2"), false);
    story
        .done("open-fence", OPENED)
        .feed("its MachineSet lets go of it", orphan());
    assert_eq!(story.names(), ["evict"]);
}

#[test]
fn a_node_that_is_not_its_own_is_given_back_and_the_machine_waits_for_a_person() {
    for why in [
        FenceRefusal::NotWindows,
        FenceRefusal::ControlPlane,
        FenceRefusal::NotItsNode,
        FenceRefusal::Paused,
        FenceRefusal::OtherDormer,
        FenceRefusal::Ignored,
        FenceRefusal::NoOwner,
        FenceRefusal::Cordoned,
    ] {
        for step in STEPS {
            let mut story = at(step);
            story
                .done(step, refused(why))
                .done("close-fence", Outcome::FenceClosed);
            let held = Halt::Held {
                by: "dormer: the cluster says so".to_owned(),
                holder: Some(HeldBy::Dormer),
                who: None,
            };
            assert_eq!(story.state.halt, Some(held), "{step}: {why:?}");
            assert_eq!(story.state.hold_cause(), Some(why), "{step}");
            assert_eq!(story.names(), [""; 0], "{step}: nothing new is begun");
        }
    }
}

/// Cluster API's controllers are paused in mid-drain: the Node is given back, and the upgrade continues by itself.
#[test]
fn a_machine_goes_on_by_itself_after_the_pause_of_its_controllers() {
    let held = |step: &str, why: FenceRefusal| {
        let mut story = at(step);
        story
            .done(step, refused(why))
            .done("close-fence", Outcome::FenceClosed);
        assert!(story.state.halt.is_some(), "{step}");
        story
    };
    let each = [
        FenceRefusal::Paused,
        FenceRefusal::Ignored,
        FenceRefusal::NoOwner,
        FenceRefusal::Cordoned,
    ];
    for (step, why) in STEPS
        .into_iter()
        .flat_map(|step| each.map(|why| (step, why)))
    {
        let mut story = held(step, why);
        let ten_minutes = "wait 600.000 s (Drift)";
        assert!(story.text.contains(ten_minutes), "{}", story.text);
        story.feed("ten minutes later", Input::Fired(Timer::Drift));
        assert_eq!(story.state.halt, None, "{step}");
        assert_eq!(story.names(), ["plan"], "{step}");
        story.done("plan", planned(Some(ChangeClass::Drain)));
        assert_eq!(story.state.lease, Lease::Wanted, "{step}");
    }
    let mut story = held("evict", FenceRefusal::Paused);
    story
        .person(Signal::Hold)
        .feed("ten minutes later", Input::Fired(Timer::Drift));
    assert!(story.state.halt.is_some(), "a person holds it");
    let mut story = at("evict");
    story
        .person(Signal::Hold)
        .done("evict", refused(FenceRefusal::Paused))
        .done("close-fence", Outcome::FenceClosed)
        .feed("ten minutes later", Input::Fired(Timer::Drift));
    assert!(story.state.halt.is_some(), "a person held it before");
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Recreate)
        .granted(7, false)
        .done("open-fence", refused(FenceRefusal::Paused))
        .done("close-fence", Outcome::FenceClosed)
        .feed("ten minutes later", Input::Fired(Timer::Drift));
    assert_eq!(story.state.lease, Lease::Wanted, "it is still asked for");
}

#[test]
fn a_machine_that_is_excluded_from_drains_is_drained_by_a_persons_word_and_not_called_so_before() {
    let mut story = Story::joined(wanting("v1"));
    let excluded = machine_is(MachineFact {
        node: Some("win-a".into()),
        exclude_drain: true,
        ..machine()
    });
    story
        .feed("the Machine is excluded from drains", excluded)
        .person(Signal::Drain)
        .granted(7, false)
        .done("open-fence", OPENED);
    assert_eq!(story.names(), ["evict"]);
    assert_eq!(story.state.phase.id(), MachinePhase::Evicting);
}

/// Both Machine APIs mean a Machine that is deleted by it.
#[test]
fn what_excludes_a_machine_from_drains_holds_where_it_is_deleted_and_not_in_place() {
    const KEY: &str = "machine.openshift.io/exclude-node-draining";
    let excluded = || {
        machine_is(MachineFact {
            node: Some("win-a".into()),
            exclude_drain: true,
            drain_excluded_by: vec![KEY.into()],
            ..machine()
        })
    };
    for (wanted, next) in [(in_place("v2"), "evict"), (wanting("v2"), "delete-machine")] {
        let mut story = granted(wanted, false);
        story
            .feed("the Machine is excluded from drains", excluded())
            .done("open-fence", OPENED);
        assert_eq!(story.names(), [next]);
        let says = format!("not drained: the annotation {KEY} is set on the Machine");
        let said = story.state.note.as_deref() == Some(says.as_str());
        assert_eq!(said, next == "delete-machine", "{:?}", story.state.note);
    }
}
