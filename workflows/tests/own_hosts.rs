//! BYOH hosts: they are upgraded in place whatever the pool says, and their removal is the run's own work.

use crate::common::{
    Story, carrying, converged, evicted, first_csr, machine, machine_gone, machine_is, node_gone,
    node_is, planned, pool_is, probed, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::{
    id::LeaseToken,
    machine::{
        ChangeClass, FenceRefusal, MachineApi, MachineFact, MachineRef, NodeFact, Outcome, Section,
        Signal, Task,
    },
    other_operator::OtherOperator,
    pool::{AfterTimeout, PoolSettings},
};
use dormer_workflows::machine::{ChangeStrategy, Lease, Phase, Timer};

fn host() -> MachineFact {
    let machine = machine();
    MachineFact {
        machine: MachineRef {
            api: MachineApi::Host,
            ..machine.machine.clone()
        },
        provider_id: None,
        owner: None,
        platform: "None".into(),
        user: Some("core".into()),
        node: Some("win-a".into()),
        ..machine
    }
}

fn leaving() -> MachineFact {
    MachineFact {
        deleting: true,
        ..host()
    }
}

/// A host whose node serves.
fn serving() -> Story {
    let mut story = Story::begin(host());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .feed("its Node is seen", node_is(carrying("v1")))
        .done("probe", probed())
        .done("plan", planned(None));
    if story.names().contains(&"mark-node") {
        story.done("mark-node", Outcome::NodeMarked);
    }
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    story.text.clear();
    story
}

/// A serving host whose entry is gone and whose turn has come.
fn granted_removal() -> Story {
    let mut story = serving();
    story
        .feed("its entry is taken away", machine_is(leaving()))
        .granted(7, false);
    story
}

#[test]
fn it_is_reached_as_the_user_that_its_object_names() {
    let story = Story::begin(host());
    let Task::Probe { host } = story.task("probe") else {
        panic!("a probe")
    };
    assert_eq!(host.user, "core");
    assert_eq!(host.machine.api, MachineApi::Host);
}

#[test]
fn it_is_upgraded_in_place_under_the_lease_whatever_the_strategy_and_the_class() {
    for class in [ChangeClass::Drain, ChangeClass::Replace] {
        let mut story = serving();
        story
            .feed("another version is wanted", pool_is(wanting("v2")))
            .done("plan", planned(Some(class)))
            .granted(7, false);
        let Phase::Opening(change) = &story.state.phase else {
            panic!("{}", story.text)
        };
        assert_eq!(change.how, ChangeStrategy::InPlace);
        story
            .done(
                "open-fence",
                Outcome::FenceOpened {
                    was_cordoned: false,
                },
            )
            .done("evict", evicted(1, 0))
            .done("tear-down", Outcome::TornDown)
            .done("probe", probed());
        assert_eq!(story.names(), ["converge-host"]);
        story.done("converge-host", converged(Section::Host, false));
    }
}

/// `kubectl delete node` in the middle of a drain: the watcher takes the link to the Node away, too.
#[test]
fn one_whose_node_is_deleted_in_mid_drain_goes_on() {
    let unlinked = MachineFact {
        node: None,
        ..host()
    };
    let mut story = serving();
    story
        .feed("another version is wanted", pool_is(wanting("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(1, 3))
        .feed("its Node is deleted", node_gone())
        .feed("its link is taken away", machine_is(unlinked))
        .feed("five seconds later", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
    story
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed());
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
}

#[test]
fn a_person_who_wants_it_made_anew_gets_it_made_anew_in_place() {
    let mut story = serving();
    story.person(Signal::Recreate);
    let Phase::LeaseWait(change) = &story.state.phase else {
        panic!("{}", story.text)
    };
    assert_eq!(change.how, ChangeStrategy::InPlace);
}

/// Its cluster was off for weeks, and its kubelet asks as a new node: refused, until a person has the host set up again.
#[test]
fn one_whose_kubelets_certificate_has_lapsed_gets_another_by_a_persons_command() {
    let lapsed = || NodeFact {
        ready: false,
        ..carrying("v1")
    };
    let asked = |story: &Story| match story.task("approve-csr") {
        Task::ApproveCsr { expect, .. } => expect,
        other => panic!("{other:?}"),
    };
    let mut story = serving();
    story
        .feed("its kubelet is silent", node_is(lapsed()))
        .feed("and asks for a first certificate", first_csr());
    let expect = asked(&story);
    assert!(!expect.configured && expect.served, "{expect:?}");
    let why = "the Node win-a exists, and was not torn down";
    story.done(
        "approve-csr",
        Outcome::CsrRefused {
            csr: "csr-0".into(),
            why: why.into(),
            foreign: None,
        },
    );
    let view = story.state.view();
    assert_eq!(view.certificate_refused.as_deref(), Some(why));
    story
        .person(Signal::Recreate)
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(0, 0))
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false));
    // Its old Node still stands, so the run continues without a new one; the kubelet may ask at any step from here.
    while !story.names().contains(&"approve-csr") {
        assert_eq!(story.names(), ["converge-node"], "{}", story.text);
        story.done("converge-node", converged(Section::Node, false));
        assert_eq!(story.state.phase, Phase::ReadyWait);
        story.feed("the kubelet asks anew", first_csr());
    }
    let expect = asked(&story);
    assert!(expect.configured, "{expect:?}");
    assert_eq!(expect.torn_down, Some(LeaseToken(7)));
}

/// The annotation speaks of Machines that are deleted, and this host stays.
#[test]
fn what_excludes_a_machine_from_drains_means_no_host_that_stays() {
    let mut story = serving();
    story
        .feed(
            "its object is excluded from drains",
            machine_is(MachineFact {
                exclude_drain: true,
                ..host()
            }),
        )
        .person(Signal::Recreate)
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        );
    assert_eq!(story.names(), ["evict"], "{}", story.text);
}

#[test]
fn its_removal_empties_tears_down_and_forgets_it() {
    let mut story = granted_removal();
    story.done("evict", evicted(2, 1));
    assert!(story.names().is_empty(), "the next pass comes in a while");
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(1, 0))
        .done("tear-down", Outcome::TornDown);
    let Task::ForgetHost { node, debt, .. } = story.task("forget-host") else {
        panic!("it is let go")
    };
    assert_eq!((node.as_deref(), debt), (Some("win-a"), None));
    story
        .done("forget-host", Outcome::HostForgotten)
        .feed("its object is gone", machine_gone())
        .done("close-fence", Outcome::MachineDeleted);
    assert_eq!(story.state.phase, Phase::Gone);
    assert!(story.text.contains("release 7\n"), "{}", story.text);
}

#[test]
fn one_that_serves_waits_for_its_turn_and_serves_until_then() {
    let mut story = serving();
    story.feed("its entry is taken away", machine_is(leaving()));
    assert!(story.names().is_empty(), "{}", story.text);
    assert_eq!(story.state.lease, Lease::Wanted);
    let report = story.state.report();
    assert!(report.had_node && report.by_request && !report.deleting && !report.unavailable);
    let waits = story.state.view().waiting_for;
    assert_eq!(
        waits.as_deref(),
        Some("the rollout's lease, for its removal")
    );
    story.feed("the object is told again", machine_is(leaving()));
    assert!(story.names().is_empty(), "{}", story.text);
    story.granted(7, false);
    assert_eq!(story.names(), ["evict"]);
    let report = story.state.report();
    assert!(report.deleting && report.unavailable);
}

#[test]
fn one_that_is_down_for_long_or_cordoned_by_a_person_may_go_over_the_limit() {
    let down = || NodeFact {
        ready: false,
        ..carrying("v1")
    };
    let cordoned = || NodeFact {
        cordoned: true,
        ..carrying("v1")
    };
    let mut story = serving();
    story
        .feed("its entry is taken away", machine_is(leaving()))
        .feed("its kubelet is silent", node_is(down()));
    assert!(!story.state.report().repair);
    story
        .later_ms(10 * 60_000)
        .feed("ten minutes later", Input::Fired(Timer::Again));
    assert!(story.state.report().repair);
    story.granted(7, true);
    let Task::Evict { guard, .. } = story.task("evict") else {
        panic!("a pass")
    };
    assert!(guard.down_ms.is_some(), "not if it has come back");
    let back = Outcome::FenceRefused {
        why: FenceRefusal::NodeServes,
        said: String::new(),
    };
    story
        .feed("it is back", node_is(carrying("v1")))
        .done("evict", back);
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
    assert!(story.names().is_empty(), "{}", story.text);
    // So that it goes over the limit.
    story.feed("a person cordons it", node_is(cordoned()));
    assert!(story.state.report().repair, "{}", story.text);

    let mut story = serving();
    story
        .feed("a person cordons it", node_is(cordoned()))
        .feed("and takes its entry away", machine_is(leaving()));
    let report = story.state.report();
    assert!(report.repair && report.unavailable && !report.cordoned);
    story.granted(7, true);
    let Task::Evict { guard, .. } = story.task("evict") else {
        panic!("a pass")
    };
    assert_eq!(guard.down_ms, None, "it may be Ready");
    assert!(guard.unless_serving, "not if the person uncordons it");
    // The person did, and the fact of that is late: it would ask over the limit at once, and again after each refusal.
    let back = Outcome::FenceRefused {
        why: FenceRefusal::NodeServes,
        said: String::new(),
    };
    story.done("evict", back);
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
    assert!(!story.state.report().repair, "{}", story.text);
    story
        .feed("the fact comes", node_is(carrying("v1")))
        .feed("a person cordons it again", node_is(cordoned()));
    assert!(story.state.report().repair, "{}", story.text);
}

fn node_as(ready: bool, cordoned: bool) -> crate::common::In {
    node_is(NodeFact {
        ready,
        cordoned,
        ..carrying("v1")
    })
}

fn serves() -> Outcome {
    Outcome::FenceRefused {
        why: FenceRefusal::NodeServes,
        said: String::new(),
    }
}

/// A host that was down for long when its entry was taken away, with the lease over the limit.
fn over_the_limit() -> Story {
    let mut story = serving();
    story
        .feed("its entry is taken away", machine_is(leaving()))
        .feed("its kubelet is silent", node_as(false, false))
        .later_ms(10 * 60_000)
        .feed("ten minutes later", Input::Fired(Timer::Again))
        .granted(7, true);
    story
}

/// Its first pass cordons the Node, and the kubelet comes back in the middle of the drain: two nodes would be drained at
/// once.
#[test]
fn a_removal_does_not_take_its_own_cordon_for_a_persons() {
    let back = |late: bool| {
        let mut story = over_the_limit();
        story.done("evict", evicted(0, 2));
        if !late {
            story
                .feed("dormer's cordon is seen", node_as(false, true))
                .feed("it is Ready again", node_as(true, true));
        }
        story
            .feed("five seconds later", Input::Fired(Timer::Again))
            .done("evict", serves());
        if late {
            story.feed(
                "it is Ready, and dormer's cordon is seen",
                node_as(true, true),
            );
        }
        story
    };
    for late in [false, true] {
        let mut story = back(late);
        assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
        assert!(!story.state.report().repair, "{}", story.text);
        // In its turn it is drained as any other.
        story.granted(8, false);
        let Task::Evict { guard, .. } = story.task("evict") else {
            panic!("a pass")
        };
        assert_eq!(guard.down_ms, None);
        assert!(!guard.unless_serving);
        // Until a person has lifted that one.
        let mut story = back(late);
        story
            .feed("a person uncordons it", node_as(true, false))
            .feed("and cordons it", node_as(true, true));
        assert!(story.state.report().repair, "{}", story.text);
    }
}

/// The upgrade has cordoned it, and its token is given back by the removal.
#[test]
fn a_removal_does_not_take_the_cordon_of_an_upgrade_for_a_persons() {
    let mut story = serving();
    story
        .feed("another version is wanted", pool_is(wanting("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, true)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .feed("its entry is taken away", machine_is(leaving()))
        .feed("dormer's cordon is seen", node_as(true, true))
        .done("evict", serves());
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
    assert!(!story.state.report().repair, "{}", story.text);
}

#[test]
fn one_that_serves_before_its_bring_up_has_ended_waits_for_its_turn_too() {
    let coming = |deleting: bool| MachineFact {
        node: None,
        deleting,
        ..host()
    };
    let mut story = Story::begin(coming(false));
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .feed("its entry is taken away", machine_is(coming(true)));
    let Task::TearDown { guard, .. } = story.task("tear-down") else {
        panic!("{}", story.text)
    };
    assert!(guard.unless_serving, "its kubelet may have come up");
    let serves = Outcome::FenceRefused {
        why: FenceRefusal::NodeServes,
        said: String::new(),
    };
    story.done("tear-down", serves);
    assert_eq!(story.state.lease, Lease::Wanted);
    assert!(story.names().is_empty(), "{}", story.text);
    story.granted(7, false);
    let Task::TearDown { guard, .. } = story.task("tear-down") else {
        panic!("{}", story.text)
    };
    assert!(!guard.unless_serving);
}

#[test]
fn one_whose_link_is_wrong_waits_for_it_and_is_torn_down_all_the_same() {
    let foreign = || Outcome::FenceRefused {
        why: FenceRefusal::NotItsNode,
        said: "that is another's".into(),
    };
    let mut story = granted_removal();
    story.done("evict", foreign());
    assert!(story.names().is_empty(), "{}", story.text);
    let note = story.state.note.clone().unwrap_or_default();
    assert!(note.contains("that is another's"), "{note}");
    // It is right for a while, and pods leave; then it is wrong again.
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .later_ms(5 * 60_000)
        .done("evict", evicted(1, 1))
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", foreign());
    assert!(story.names().is_empty(), "{}", story.text);
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .later_ms(5 * 60_000)
        .done("evict", foreign())
        .done("tear-down", Outcome::TornDown);
    let Task::ForgetHost { debt, .. } = story.task("forget-host") else {
        panic!("it is let go")
    };
    let debt = debt.expect("the Node that is left");
    assert!(debt.contains("the Node left as it is"), "{debt}");
}

#[test]
fn one_that_this_run_never_reached_is_probed_before_it_is_let_go() {
    let unlinked = || MachineFact {
        node: None,
        ..host()
    };
    let begun = || {
        let mut story = Story::begin(unlinked());
        story.feed(
            "its entry is taken away",
            machine_is(MachineFact {
                deleting: true,
                ..unlinked()
            }),
        );
        assert_eq!(story.names(), ["probe"]);
        story
    };
    let mut story = begun();
    story.done("probe", probed());
    assert_eq!(story.names(), ["tear-down"]);
    let mut story = begun();
    story.given_up("probe", "ConnectTimeout");
    let Task::ForgetHost { debt: None, .. } = story.task("forget-host") else {
        panic!("it is just let go: {}", story.text)
    };
}

#[test]
fn a_node_that_the_cluster_has_no_more_is_gone_even_if_the_link_has_a_name_only() {
    let mut story = serving();
    let lost = MachineFact {
        node_absent: true,
        ..host()
    };
    story.feed("the list has no Node win-a", machine_is(lost));
    assert_eq!(story.state.node, None);
    assert!(
        story.text.contains("not taken in: Node uid-node"),
        "{}",
        story.text
    );
    story.feed("it stands all the same", node_is(carrying("v1")));
    assert!(story.state.node.is_some());
}

#[test]
fn a_dead_host_is_forgotten_by_force_and_the_debt_is_written_down() {
    let mut story = granted_removal();
    story
        .done("evict", evicted(0, 0))
        .given_up("tear-down", "ConnectTimeout");
    let Task::ForgetHost { debt, .. } = story.task("forget-host") else {
        panic!("it is let go")
    };
    let debt = debt.expect("what is left");
    assert!(
        debt.contains("10.0.0.1") && debt.contains("not torn down"),
        "{debt}"
    );
    assert_eq!(story.state.note, Some(debt));
}

#[test]
fn a_host_that_answers_and_refuses_is_tried_a_few_times_and_not_forgotten() {
    let mut story = granted_removal();
    for minutes in [1, 2, 4, 8] {
        story
            .done("evict", evicted(0, 0))
            .given_up("tear-down", "AuthRejected");
        let waits = format!("wait {}.000 s (Again)", minutes * 60);
        assert!(story.text.contains(&waits), "{waits}\n{}", story.text);
        story.feed("the wait is over", Input::Fired(Timer::Again));
    }
    story
        .done("evict", evicted(0, 0))
        .given_up("tear-down", "AuthRejected");
    let Phase::Failed { failure, .. } = &story.state.phase else {
        panic!("{}", story.text)
    };
    assert!(failure.message.contains("retry"), "{}", failure.message);
    // Whatever facts come, it begins nothing by itself.
    story
        .feed("its object is told again", machine_is(leaving()))
        .feed("another version is wanted", pool_is(wanting("v2")))
        .person(Signal::Recreate);
    assert!(story.names().is_empty(), "{}", story.text);
    story.person(Signal::Retry);
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
    story.granted(9, false);
    assert_eq!(story.names(), ["evict"], "from its first step");
}

/// A removal whose tear-down failed for good, under the lease 7.
fn failed_removal() -> Story {
    let mut story = granted_removal();
    for round in 0..5 {
        if round > 0 {
            story.feed("the wait is over", Input::Fired(Timer::Again));
        }
        story
            .done("evict", evicted(0, 0))
            .given_up("tear-down", "AuthRejected");
    }
    assert!(story.state.phase.removal_failed(), "{}", story.text);
    story
}

#[test]
fn a_removal_that_failed_returns_its_slot_and_asks_again_last() {
    let mut story = failed_removal();
    assert!(story.text.contains("release 7\n"), "{}", story.text);
    assert_eq!(story.state.lease, Lease::None);
    let report = story.state.report();
    assert!(report.failed && !report.unavailable && !report.deleting && !report.repair);
    assert!(
        story.text.contains("wait 1800.000 s (Again)"),
        "{}",
        story.text
    );
    story
        .feed(
            "its Node is cordoned, and silent",
            node_is(NodeFact {
                ready: false,
                cordoned: true,
                ..carrying("v1")
            }),
        )
        .feed("half an hour later", Input::Fired(Timer::Again));
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
    let report = story.state.report();
    assert!(!report.failed && !report.unavailable && !report.repair && !report.cordoned);
    story.granted(9, false);
    assert_eq!(story.names(), ["evict"]);
    assert!(story.state.report().unavailable, "it is under way again");
}

#[test]
fn a_failed_removal_of_an_earlier_build_returns_its_slot_too() {
    for ends in [machine_is(leaving()), Input::Fired(Timer::Drift)] {
        let mut story = failed_removal();
        story.state.lease = Lease::Held {
            token: LeaseToken(7),
            over_limit: false,
        };
        story.text.clear();
        story.feed("something is told", ends).person(Signal::Abort);
        assert!(story.text.contains("release 7\n"), "{}", story.text);
        assert_eq!(story.state.lease, Lease::None);
    }
}

#[test]
fn scattered_failures_end_no_removal_and_those_of_one_step_do() {
    let mut story = granted_removal();
    for _ in 0..12 {
        story
            .given_up("evict", "Unreachable")
            .feed("the wait is over", Input::Fired(Timer::Again))
            .done("evict", evicted(1, 3))
            .feed("five seconds later", Input::Fired(Timer::Again));
    }
    assert_eq!(story.state.phase, Phase::Leaving, "{}", story.text);
    // A pass that succeeds says nothing of the tear-down.
    for _ in 0..5 {
        story
            .done("evict", evicted(0, 0))
            .given_up("tear-down", "AuthRejected")
            .feed("the wait is over", Input::Fired(Timer::Again));
    }
    assert!(
        story.state.phase.removal_failed() || story.state.removal.rounds == 1,
        "{}",
        story.text
    );
}

#[test]
fn one_that_was_never_reached_is_just_let_go() {
    let mut story = Story::begin(MachineFact {
        node: None,
        addresses: Vec::new(),
        ..host()
    });
    let gone = MachineFact {
        node: None,
        addresses: Vec::new(),
        ..leaving()
    };
    story.feed("its entry is taken away", machine_is(gone));
    assert_eq!(story.names(), ["forget-host"]);
}

#[test]
fn its_removal_waits_for_a_stopped_pool_and_for_another_operator() {
    let mut story = granted_removal();
    let stopped = Outcome::FenceRefused {
        why: FenceRefusal::Stopped,
        said: "a person stopped it".into(),
    };
    story
        .done("evict", stopped)
        .feed("five seconds later", Input::Fired(Timer::Again));
    assert_eq!(story.names(), ["evict"]);
    assert_eq!(
        story.state.note.as_deref(),
        Some("its removal waits: a person stopped it")
    );

    let mut story = serving();
    let other = MachineFact {
        neighbour: OtherOperator::Runs("another one".into()),
        ..leaving()
    };
    story.feed("its entry is taken away", machine_is(other.clone()));
    assert!(story.names().is_empty(), "{}", story.text);
    story.feed(
        "it is gone",
        machine_is(MachineFact {
            neighbour: OtherOperator::Absent,
            ..other
        }),
    );
    story
        .feed("five seconds later", Input::Fired(Timer::Again))
        .granted(7, false);
    assert_eq!(story.names(), ["evict"]);
}

#[test]
fn a_drain_that_takes_too_long_follows_the_pool() {
    for (policy, force) in [(AfterTimeout::Force, true), (AfterTimeout::Abort, false)] {
        let mut story = serving();
        story
            .feed(
                "the policy",
                pool_is(PoolSettings {
                    drain_timeout_ms: 60_000,
                    after_timeout: policy,
                    ..wanting("v1")
                }),
            )
            .feed("its entry is taken away", machine_is(leaving()))
            .granted(7, false)
            .done("evict", evicted(0, 1))
            .feed("the limit is over", Input::Fired(Timer::Drain));
        let forced = story.open.iter().find_map(|task| match task {
            Task::Evict {
                force: true, guard, ..
            } => Some(guard.drain_ms),
            _ => None,
        });
        // The worker compares the limit with the API server's clock.
        assert_eq!(forced, force.then_some(Some(60_000)), "{policy:?}");
    }
}

#[test]
fn a_machine_of_a_controller_is_left_to_its_controller() {
    let mut story = Story::joined(wanting("v1"));
    story.feed(
        "somebody deletes it",
        machine_is(MachineFact {
            deleting: true,
            ..machine()
        }),
    );
    story.feed("five seconds later", Input::Fired(Timer::Again));
    assert!(story.names().is_empty());
}

#[test]
fn a_removal_counts_as_away_and_leaves_no_gap() {
    let mut story = granted_removal();
    let report = story.state.report();
    assert!(report.deleting && report.unavailable && report.owner.is_none());
    story.feed(
        "its Node is gone, too",
        node_is(NodeFact {
            ready: false,
            ..carrying("v1")
        }),
    );
    assert!(story.state.report().unavailable);
}
