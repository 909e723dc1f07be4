//! Stories of a drain, and of those who come in the middle of it.

use super::certificates::person;
use super::halts::ignored_fact;
use super::holds;
use super::resets::reset;
use super::serving::adopted_fact;
use super::versions::waits;
use crate::common;
use crate::common::{
    Story, carrying, evicted, in_place, machine, machine_gone, machine_is, node_is, planned,
    pool_is, wanting,
};
use dormer_engine_core::{Command, Input};
use dormer_proto::id::LeaseToken;
use dormer_proto::machine::{
    Blocker, ChangeClass, FenceRefusal, Guard, MachineFact, NodeFact, Outcome, Signal, Task,
};
use dormer_proto::pool::{AfterTimeout, PoolSettings};
use dormer_workflows::machine::{Lease, Machine, Phase, Timer};
use expect_test::expect_file;

/// What `why` says is made of these two.
#[test]
fn a_drain_past_its_limit_says_so_until_it_begins_again() {
    let mut story = Story::joined(in_place("v1"));
    story.wants_v2(ChangeClass::Drain).granted(1, false);
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    story
        .done("open-fence", opened)
        .done("evict", evicted(1, 1))
        .feed("the limit of the drain", Input::Fired(Timer::Drain));
    let late = waits(&story);
    assert!(
        late.contains("1 pod to leave, past the drain's limit of "),
        "{late}"
    );
    story
        .feed("ten seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(0, 1));
    assert_eq!(waits(&story), late);
    let longer = PoolSettings {
        drain_timeout_ms: 7_200_000,
        ..in_place("v2")
    };
    story.feed("the pool allows two hours", pool_is(longer));
    assert!(!waits(&story).contains("limit"), "{}", waits(&story));
}

#[test]
fn after_an_abort_what_held_the_drain_up_is_still_known() {
    let mut story = Story::joined(in_place("v1"));
    story.wants_v2(ChangeClass::Drain).granted(1, false);
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    story
        .done("open-fence", opened)
        .done("evict", evicted(1, 1))
        .person(Signal::Abort)
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.phase, Phase::Serving);
    assert_eq!(
        story.state.view().reason.as_deref(),
        Some("the upgrade was given up while shop/web-1 blocked its drain: budget web allows 0")
    );
}

#[test]
fn deleted_by_somebody_else_while_it_serves() {
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Drain)
        .feed(
            "a health check deletes it",
            machine_is(MachineFact {
                deleting: true,
                ..machine()
            }),
        )
        .granted(7, false)
        .feed("the Machine is gone", machine_gone())
        .done("close-fence", Outcome::FenceClosed);
    holds(&story, expect_file!["../stories/deleted_by_others.txt"]);

    let mut story = Story::joined(wanting("v1"));
    story
        .feed(
            "a person deletes it",
            machine_is(MachineFact {
                deleting: true,
                ..machine()
            }),
        )
        .feed("the Machine is gone", machine_gone());
    holds(&story, expect_file!["../stories/deleted_by_others_gap.txt"]);
}

pub(super) fn draining(pool: PoolSettings) -> Story {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("the pool wants v2", pool_is(pool))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(1, 3));
    story.text.clear();
    story
}

/// `why` of a machine that is gone names the cause: who asked for it, or what was to change.
#[test]
fn a_machine_that_is_replaced_keeps_the_cause() {
    let gone = |mut story: Story| {
        story.done("evict", evicted(0, 0));
        assert_eq!(story.names(), ["delete-machine"]);
        story
            .done("delete-machine", Outcome::MachineDeleted)
            .feed("the Machine is gone", machine_gone());
        assert_eq!(story.names(), ["close-fence"]);
        let fenced = story.state.view().reason.unwrap_or_default();
        story.done("close-fence", Outcome::FenceClosed);
        let gone = story.state.view().reason.unwrap_or_default();
        assert_eq!(fenced, gone, "until its fence is closed, too");
        gone
    };
    let mut upgraded = draining(wanting("v2"));
    upgraded.feed("five seconds later", Input::Fired(Timer::Again));
    let upgraded = gone(upgraded);
    assert_eq!(
        upgraded,
        "its Machine is replaced (to change: service kubelet)"
    );
    let mut asked = Story::joined(wanting("v1"));
    asked
        .says("ann", "a new disk", Signal::Recreate)
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        );
    let asked = gone(asked);
    assert_eq!(
        asked,
        "its Machine is replaced (asked for by ann: a new disk)"
    );
}

/// Scenario 49.
#[test]
fn a_budget_that_never_allows_an_eviction() {
    let mut text = String::new();
    for after_timeout in [AfterTimeout::Wait, AfterTimeout::Abort, AfterTimeout::Force] {
        let mut story = draining(PoolSettings {
            after_timeout,
            ..wanting("v2")
        });
        text += &format!("-- {after_timeout:?}\n");
        story.feed("the drain takes too long", Input::Fired(Timer::Drain));
        if after_timeout == AfterTimeout::Abort {
            story.done("close-fence", Outcome::FenceClosed);
        } else {
            story.feed("five seconds later", Input::Fired(Timer::Again));
        }
        text += &story.text;
    }
    expect_file!["../stories/drain_overdue.txt"].assert_eq(&text);
}

#[test]
fn what_a_drain_waits_for_names_the_pod_and_what_holds_it() {
    let mut story = draining(wanting("v2"));
    let mut pass = |left: u32, named: &[(&str, &str)]| {
        let blockers = named.iter().map(|(pod, why)| Blocker {
            pod: (*pod).into(),
            why: (*why).into(),
            budgets: Vec::new(),
            until_off: false,
            finalizers: Vec::new(),
        });
        let passed = Outcome::Evicted {
            evicted: 0,
            left,
            blockers: blockers.collect(),
            skipped: Vec::new(),
        };
        story
            .feed("five seconds later", Input::Fired(Timer::Again))
            .done("evict", passed);
        waits(&story)
    };
    assert_eq!(pass(2, &[]), "2 pods to leave");
    let db = ("shop/db-0", "the disruption budgets a, b match it");
    let says = "1 pod to leave: shop/db-0 (the disruption budgets a, b match it)";
    assert_eq!(pass(1, &[db]), says);
    let says = "3 pods to leave: shop/db-0 (the disruption budgets a, b match it) and 2 more pods";
    assert_eq!(pass(3, &[db, ("shop/x", "held"), ("shop/y", "held")]), says);
}

/// Scenario 54.
#[test]
fn a_person_uncordons_in_the_middle_of_a_drain() {
    let mut story = draining(wanting("v2"));
    story
        .feed(
            "the Node is cordoned",
            node_is(NodeFact {
                cordoned: true,
                ..carrying("v1")
            }),
        )
        .feed("a person uncordons it", node_is(carrying("v1")))
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .feed("five seconds later", Input::Fired(Timer::Again));
    holds(&story, expect_file!["../stories/uncordoned.txt"]);
}

/// Scenario 56: the run holds the lease, so that any worker continues with the same node.
/// Scenario 57: a token closed meanwhile stops the work.
#[test]
fn the_token_is_closed_under_a_drain() {
    let mut story = draining(wanting("v2"));
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", Outcome::FenceClosedMeanwhile)
        .done("close-fence", Outcome::FenceClosed);
    holds(&story, expect_file!["../stories/token_closed.txt"]);
}

#[test]
fn a_grant_over_the_limit_meets_a_node_that_serves() {
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Drain)
        .granted(7, true)
        .done(
            "open-fence",
            Outcome::FenceRefused {
                why: FenceRefusal::NodeServes,
                said: String::new(),
            },
        )
        .done("close-fence", Outcome::FenceClosed)
        .done("plan", planned(Some(ChangeClass::Drain)));
    holds(&story, expect_file!["../stories/marked_grant.txt"]);
}

/// Labelled in the middle of an upgrade: as long as nothing is destroyed, it is undone.
#[test]
fn a_label_in_the_middle_of_a_drain_undoes_it() {
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    let mut opening = Story::joined(wanting("v1"));
    opening.wants_v2(ChangeClass::Drain).granted(7, false);
    let mut evicting = draining(wanting("v2"));
    evicting.feed("five seconds later", Input::Fired(Timer::Again));
    let mut deleting = draining(wanting("v2"));
    deleting
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(3, 0));
    let mut drained = Story::joined(wanting("v1"));
    drained
        .person(Signal::Drain)
        .granted(7, false)
        .done("open-fence", opened)
        .done("evict", evicted(4, 0));
    let mut failed = draining(wanting("v2"));
    failed
        .feed("five seconds later", Input::Fired(Timer::Again))
        .given_up("evict", "Forbidden");
    for mut story in [opening, evicting, deleting, drained, failed] {
        let name = story.state.phase.name();
        story.feed("it is labelled ignore=true", machine_is(ignored_fact()));
        assert_eq!(story.names(), ["close-fence"], "{name}");
        story.done("close-fence", Outcome::FenceClosed);
        assert_eq!(story.names(), Vec::<&str>::new(), "{name}");
        assert_eq!(story.state.lease, Lease::None, "{name}");
        assert_eq!(story.state.reported, None, "{name}: it is no member");
    }
    // A deletion that has landed is found by the close.
    let mut story = draining(wanting("v2"));
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(3, 0))
        .feed("it is labelled ignore=true", machine_is(ignored_fact()))
        .done("close-fence", Outcome::MachineDeleted);
    assert_eq!(story.state.phase, Phase::Vanishing);
    // A host that was torn down is set up to the end.
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
        .feed("it is labelled ignore=true", machine_is(ignored_fact()))
        .done("tear-down", Outcome::TornDown)
        .feed("the label goes", machine_is(adopted_fact()));
    assert_eq!(story.names(), ["probe"]);
    assert_eq!(
        story.state.phase,
        Phase::Reprobing,
        "the lease is not forgotten"
    );
}

/// Paused during a drain: no further pass, no deletion, and the upgrade can be aborted.
#[test]
fn a_pause_in_the_middle_of_a_drain_stops_before_the_deletion() {
    let cordoned = NodeFact {
        cordoned: true,
        ..carrying("v1")
    };
    let mut story = draining(wanting("v2"));
    story
        .feed("the Node is cordoned", node_is(cordoned))
        .feed("five seconds later", Input::Fired(Timer::Again))
        .person(Signal::Pause)
        .done("evict", evicted(3, 0))
        .feed("five seconds later", Input::Fired(Timer::Again))
        .feed("the drain takes too long", Input::Fired(Timer::Drain));
    assert_eq!(story.names(), Vec::<&str>::new());
    assert!(matches!(story.state.phase, Phase::Evicting(..)));
    let paused = story.state.clone();
    story.person(Signal::Resume).done("evict", evicted(0, 0));
    assert_eq!(story.names(), ["delete-machine"]);
    story.state = paused.clone();
    story.open.clear();
    story
        .feed("somebody uncordons the Node", node_is(carrying("v1")))
        .person(Signal::Resume);
    assert_eq!(
        story.names(),
        ["open-fence"],
        "cordoned again before a pod is evicted"
    );
    story.state = paused;
    story.open.clear();
    story.person(Signal::Abort);
    assert_eq!(
        story.names(),
        ["close-fence"],
        "abort is obeyed while paused"
    );
    holds(&story, expect_file!["../stories/paused_drain.txt"]);

    // A deletion that was ordered is given up, too: the close finds out whether it has landed.
    let mut story = draining(wanting("v2"));
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(3, 0))
        .person(Signal::Abort);
    assert_eq!(story.names(), ["close-fence"]);

    // Paused before the fence was open, for a change without a drain.
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Restart)
        .granted(7, false)
        .person(Signal::Pause)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        );
    assert_eq!(story.names(), Vec::<&str>::new());
    story.person(Signal::Abort);
    assert_eq!(story.names(), ["close-fence"]);
}

/// A drain that begins anew has its limit again: after a failure, and when the pool says otherwise.
#[test]
fn a_drain_is_limited_after_a_retry_and_by_the_newest_settings() {
    let drains = |commands: &[Command<Machine>]| {
        commands.iter().find_map(|it| match it {
            Command::StartTimer(Timer::Drain, ms) => Some(*ms),
            _ => None,
        })
    };
    let mut story = draining(wanting("v2"));
    let cordoned = NodeFact {
        cordoned: true,
        ..carrying("v1")
    };
    story
        .feed("the Node is cordoned", node_is(cordoned))
        .feed("five seconds later", Input::Fired(Timer::Again))
        .given_up("evict", "Forbidden");
    let commands = story.quietly(person(Signal::Retry));
    assert_eq!(drains(&commands), Some(3_600_000));
    let then = story.state.clone();
    let commands = reset(&mut story, then);
    assert_eq!(drains(&commands), Some(3_600_000), "a reset");
    // A pod is held for good, and the pool is changed in the middle of the drain.
    let pool = |after_timeout| {
        pool_is(PoolSettings {
            drain_timeout_ms: 60_000,
            after_timeout,
            ..wanting("v2")
        })
    };
    let commands = story.quietly(pool(AfterTimeout::Force));
    assert_eq!(drains(&commands), Some(60_000));
    story.feed("the drain takes too long", Input::Fired(Timer::Drain));
    let forced = |story: &Story| match &story.state.phase {
        Phase::Evicting(_, drain) => drain.force,
        other => panic!("{}", other.name()),
    };
    assert!(forced(&story));
    story
        .done("evict", evicted(0, 1))
        .feed("five seconds later", Input::Fired(Timer::Again));
    let Task::Evict { guard, .. } = story.task("evict") else {
        panic!("a pass")
    };
    assert_eq!(guard.drain_ms, Some(60_000), "by the API server's clock");
    let commands = story.quietly(pool(AfterTimeout::Wait));
    assert_eq!(drains(&commands), Some(60_000));
    assert!(!forced(&story), "budgets count again");
    assert_eq!(
        drains(&story.quietly(pool(AfterTimeout::Wait))),
        None,
        "no news"
    );
}

/// The answer of a comparison that was left says nothing of what was begun meanwhile.
#[test]
fn a_late_plan_changes_no_target() {
    let mut story = draining(in_place("v2"));
    let target = story.state.target.clone();
    story.feed("v3 is wanted", pool_is(in_place("v3")));
    let generation = story.state.host.generation;
    let late = Outcome::Planned {
        class: None,
        differs: Vec::new(),
        facts: common::facts("boot-1"),
        host_key: "key-a".into(),
        generation: 9,
        token: LeaseToken(0),
        pods: 4,
        certificates: false,
        renews: false,
    };
    let task = Task::DeleteMachine {
        machine: story.state.machine_ref(),
        token: LeaseToken(7),
        guard: Guard::default(),
    };
    story.feed(
        "a late plan",
        Input::Finished {
            task,
            outcome: late,
        },
    );
    assert_eq!(story.state.target, target);
    assert_eq!(story.state.host.generation, generation);
}
