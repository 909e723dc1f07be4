//! Transcripts of a machine: the ordinary life, each failure, adoption, and interference by others.

use crate::common;

use common::{
    Story, after, carrying, converged, csr_is, evicted, first_csr, in_place, machine, machine_gone,
    node, node_gone, node_is, owes, payload, planned, pool_is, probed, probed_at, ready, saw,
    wanting,
};
use dormer_engine_core::{Command, Input, Now, Workflow};
use dormer_proto::{
    id::{LeaseToken, Seq, Timestamp},
    machine::{
        self, Blocker, ChangeClass, CsrExpectation, CsrFact, FenceRefusal, Guard, MachineFact,
        NodeFact, Outcome, Owner, Section, Signal, Task, TokenMark,
    },
    message::Failure,
    neighbour::Neighbour,
    pool::{AfterTimeout, Approval, PoolSettings, Strategy, Terms},
    work::Fact,
};
use dormer_workflows::machine::{
    CSRS_MAX, Halt, How, Lease, Machine, Phase, Reboots, State, Timer,
};
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
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .tell("the Machine has an address", saw(machine()))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, true))
        .done("reboot", Outcome::RebootAsked)
        .tell("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed())
        .tell("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at("boot-2"))
        .tell("the kubelet asks for a certificate", csr_is(true))
        .done(
            "approve-csr",
            Outcome::CsrApproved {
                csr: "csr-1".into(),
            },
        )
        .done("converge-host", converged(Section::Host, false))
        .tell("the Node is seen", node_is(node()))
        .done("converge-node", converged(Section::Node, false))
        .tell("the Node is Ready", node_is(ready()))
        .tell("the Node is not Ready", node_is(node()))
        .tell("the Node is Ready", node_is(ready()))
        .tell("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .tell("the Node carries v1", node_is(carrying("v1")))
        .tell("six hours later", Input::Fired(Timer::Drift))
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
        .tell(
            "the Node is cordoned",
            node_is(NodeFact {
                cordoned: true,
                ..carrying("v1")
            }),
        )
        .done("evict", evicted(2, 2))
        .tell("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(2, 0))
        .done("delete-machine", Outcome::MachineDeleted)
        .tell(
            "the Machine is being deleted",
            saw(MachineFact {
                deleting: true,
                deleted: Some(Timestamp(9)),
                ..machine()
            }),
        )
        .tell("the Node is gone", node_gone())
        .tell("the Machine is gone", machine_gone())
        .done("close-fence", Outcome::FenceClosed);
    let by = Some("uid-b".into());
    let from = dormer_engine_core::Sender::Run("rollout/windows".parse().unwrap());
    let signal = dormer_proto::work::Signal::Machine(Signal::Replaced { by });
    story.tell("the rollout: replaced", Input::Signalled { from, signal });
    holds(&story, expect_file!["stories/recreate.txt"]);
}

#[test]
fn an_upgrade_in_place() {
    let mut story = Story::joined(in_place("v1"));
    story
        .tell("the pool wants v2", pool_is(in_place("v2")))
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
        .tell("the pool wants v3 meanwhile", pool_is(in_place("v3")))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .tell("the soak is over", Input::Fired(Timer::Soak))
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
        .tell("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .done("close-fence", Outcome::FenceClosed)
        .tell("the Node carries v2", node_is(carrying("v2")))
        .tell("the pool wants v3", pool_is(wanting("v3")))
        .done("plan", planned(Some(ChangeClass::Live)))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .done("mark-node", Outcome::NodeMarked);
    holds(&story, expect_file!["stories/restart_and_live.txt"]);
}

/// What disturbs nobody waits as well while the pool is paused, and needs no lease once it is not.
#[test]
fn a_paused_pool_holds_live_changes_but_for_certificates() {
    let paused = |version: &str, holds_live| PoolSettings {
        paused: true,
        holds_live,
        ..wanting(version)
    };
    let mut story = Story::joined(wanting("v1"));
    story
        .tell(
            "v2 is wanted, and the pool is paused",
            pool_is(paused("v2", true)),
        )
        .done("plan", planned(Some(ChangeClass::Live)));
    let waits =
        matches!(&story.state.phase, Phase::LeaseWait(change) if change.how == How::Restart);
    assert!(waits && story.open.is_empty(), "{}", story.text);
    // A newer version is compared, and waits as well.
    story
        .tell("v3 is wanted", pool_is(paused("v3", true)))
        .done("plan", planned(Some(ChangeClass::Live)));
    assert!(story.open.is_empty(), "{}", story.text);
    story
        .tell("the pause ends", pool_is(wanting("v3")))
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
    story.tell("a new authority", pool_is(paused("v4", true)));
    let renews = matches!(story.task("plan"), Task::Plan { renew: true, .. });
    assert!(renews, "the comparison renews certificates by itself");
    // It could not, and something else differs, too: nothing is changed on the host under a pause.
    story.done("plan", certificate);
    assert!(story.open.is_empty(), "{}", story.text);

    // A watcher of an earlier build means the rollout alone.
    let mut story = Story::joined(wanting("v1"));
    story
        .tell(
            "v2 is wanted, and the pool is paused",
            pool_is(paused("v2", false)),
        )
        .done("plan", planned(Some(ChangeClass::Live)));
    assert_eq!(story.names(), ["converge-host"], "{}", story.text);
}

#[test]
fn a_step_fails_and_a_retry_goes_on_from_it() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .given_up("converge-host", "FeatureFailed")
        .person(Signal::Retry)
        .done("converge-host", converged(Section::Host, false))
        .tell("no Node for twenty minutes", Input::Fired(Timer::Deadline))
        .person(Signal::Retry)
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .tell("the Node is seen", node_is(node()))
        .done("converge-node", converged(Section::Node, false))
        .tell(
            "not Ready for twenty minutes",
            Input::Fired(Timer::Deadline),
        )
        .tell(
            "it boots anew",
            node_is(NodeFact {
                boot_id: "boot-2".into(),
                ..ready()
            }),
        );
    holds(&story, expect_file!["stories/fails_and_retry.txt"]);
}

#[test]
fn a_host_that_will_not_let_us_in() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .given_up("probe", "AuthRejected")
        .tell("twenty seconds later", Input::Fired(Timer::Again))
        .given_up("probe", "AuthRejected");
    story.at = 700_000;
    story
        .tell("twenty seconds later", Input::Fired(Timer::Again))
        .given_up("probe", "AuthRejected")
        .tell(
            "a new address",
            saw(MachineFact {
                addresses: vec!["10.0.0.2".into()],
                ..machine()
            }),
        );
    holds(&story, expect_file!["stories/auth_rejected.txt"]);
}

/// Where Windows has no number of its boot, the second of it is read again and again, and is rounded each time.
#[test]
fn a_boots_second_that_moved_a_little_is_the_same_boot() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
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
        .tell("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at("t1700000001"))
        .tell("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at("t1700000200"));
    holds(&story, expect_file!["stories/boot_seconds.txt"]);
}

#[test]
fn a_second_reboot_is_one_too_many() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, true))
        .done("reboot", Outcome::RebootAsked)
        .tell("half an hour later", Input::Fired(Timer::Deadline))
        .person(Signal::Retry)
        .tell("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at("boot-2"))
        .done("converge-host", converged(Section::Host, true));
    holds(&story, expect_file!["stories/reboots.txt"]);
}

/// Its host was renamed meanwhile: a wait for the old name would end as the first one did.
#[test]
fn a_retry_after_no_node_came_reads_the_host_again() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .tell("no Node for twenty minutes", Input::Fired(Timer::Deadline));
    assert_eq!(failure_of(&story).0, "NodeOverdue");
    story.person(Signal::Retry);
    assert_eq!(story.state.phase, Phase::Probing);
    story
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false));
    assert_eq!(story.state.phase, Phase::NodeWait);
}

/// The watcher, the signer of certificates or a network's DaemonSet was away for longer than the deadline.
#[test]
fn a_node_that_comes_after_its_deadline_is_brought_up() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .tell("no Node for twenty minutes", Input::Fired(Timer::Deadline));
    assert_eq!(failure_of(&story).0, "NodeOverdue");
    story.tell("the Node registers after all", node_is(node()));
    assert_eq!(story.state.phase, Phase::ConvergingNode);
    story
        .done("converge-node", converged(Section::Node, false))
        .tell(
            "not Ready for twenty minutes",
            Input::Fired(Timer::Deadline),
        );
    assert_eq!(failure_of(&story).0, "NotReadyOverdue");
    story.tell("it is said again that it is not", node_is(node()));
    assert_eq!(failure_of(&story).0, "NotReadyOverdue");
    story.tell("it is Ready", node_is(ready()));
    assert_eq!(story.state.phase, Phase::Soaking);
    holds(&story, expect_file!["stories/late_node.txt"]);
}

/// An outage of the cluster is nobody's failure: every machine that it met would wait for a person of its own.
#[test]
fn an_api_server_that_is_away_for_hours_fails_no_machine() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .tell("the Node registers", node_is(node()))
        .done("converge-node", converged(Section::Node, false))
        .tell("it is Ready", node_is(ready()))
        .tell("half a minute later", Input::Fired(Timer::Soak));
    assert_eq!(story.state.phase, Phase::Marking);
    let task = story.task("mark-node");
    let failure = Failure::transient("ApiUnreachable", "the API server does not answer");
    let given_up = |task: &Task, failure: &Failure| Input::Exhausted {
        task: task.clone(),
        failure: failure.clone(),
    };
    story.tell("no answer for two hours", given_up(&task, &failure));
    assert_eq!(story.state.phase, Phase::Marking);
    assert_eq!(story.task("mark-node"), task);
    let refused = Failure::transient("Forbidden", "dormer may not patch nodes");
    story.tell("no right for two hours", given_up(&task, &refused));
    assert_eq!(failure_of(&story).0, "Forbidden");
}

/// One boot of a host that owes `owed` in `boot`.
fn boots(story: &mut Story, boot: u32, owed: &[&str]) {
    let next = format!("boot-{}", boot + 1);
    story
        .done("converge-host", owes(&format!("boot-{boot}"), owed))
        .done("reboot", Outcome::RebootAsked)
        .tell("ten seconds later", Input::Fired(Timer::Again))
        .done("probe", probed_at(&next));
}

/// Windows may owe a boot for a name, then for a feature that could only be added under it.
#[test]
fn a_reboot_for_something_else_goes_on() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    boots(&mut story, 1, &["feature:Containers", "hostname"]);
    boots(&mut story, 2, &["feature:Containers"]);
    story.done("converge-host", converged(Section::Host, false));
    assert_eq!(story.state.phase, Phase::NodeWait);
    holds(&story, expect_file!["stories/reboots_for_more.txt"]);
}

#[test]
fn the_same_reboot_again_is_a_loop() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    boots(&mut story, 1, &["feature:Containers"]);
    story.done("converge-host", owes("boot-2", &["feature:Containers"]));
    assert_eq!(
        failure_of(&story),
        (
            "RebootLoop".into(),
            "the host was rebooted, and asks for the same again: feature:Containers".into()
        )
    );
}

#[test]
fn three_reboots_are_all_that_one_configuration_gets() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
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
    story.tell(
        "another address",
        saw(MachineFact {
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
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    boots(&mut story, 1, &[]);
    story.state.host.reboots = Reboots::default();
    story.done("converge-host", owes("boot-2", &[]));
    assert_eq!(failure_of(&story).0, "RebootLoop");
}

fn failure_of(story: &Story) -> (String, String) {
    match &story.state.phase {
        Phase::Failed { failure, .. } => (failure.code.clone(), failure.message.clone()),
        phase => panic!("it is {phase:?}"),
    }
}

#[test]
fn manual_approval_reaches_who_waits_for_the_lease_and_names_who_is_beyond_it() {
    let manual = || PoolSettings {
        approval: Approval::Manual,
        ..in_place("v2")
    };
    let mut queued = Story::joined(in_place("v1"));
    queued.wants_v2(ChangeClass::Drain);
    assert_eq!(queued.state.lease, Lease::Wanted);
    queued
        .tell("a person wants to approve", pool_is(manual()))
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(matches!(queued.state.phase, Phase::ApprovalWait(_)));
    assert_eq!(queued.state.lease, Lease::None);

    let mut begun = Story::joined(in_place("v1"));
    begun.wants_v2(ChangeClass::Drain).granted(1, false);
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    begun
        .done("open-fence", opened)
        .done("evict", evicted(1, 1));
    assert!(!waits(&begun).contains("approval"));
    begun.tell("a person wants to approve", pool_is(manual()));
    let said = "1 pod to leave: shop/web-1 (budget web allows 0) (it began before approval became manual, and continues)";
    assert_eq!(waits(&begun), said);
    begun.person(Signal::Abort);
    assert!(!waits(&begun).contains("approval"), "{}", waits(&begun));
}

/// It is asked when the pool changes, too. A machine that an earlier build kept in the queue is asked again before
/// anything is done to it.
#[test]
fn a_grant_asks_again_for_the_approval() {
    let mut story = Story::joined(in_place("v1"));
    story.wants_v2(ChangeClass::Drain);
    assert!(matches!(story.state.phase, Phase::LeaseWait(_)));
    let pool = story.state.pool.as_mut().expect("its pool");
    pool.approval = Approval::Manual;
    story.granted(1, false);
    assert_eq!(story.state.phase, Phase::Undoing);
    story.done("close-fence", Outcome::FenceClosed);
    story.done("plan", planned(Some(ChangeClass::Drain)));
    assert!(matches!(story.state.phase, Phase::ApprovalWait(_)));
}

#[test]
fn a_grant_asks_again_for_the_node_that_was_gone() {
    let mut story = Story::joined(in_place("v1"));
    story
        .tell("the Node is gone", node_gone())
        .tell("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent);
    assert!(matches!(&story.state.phase, Phase::LeaseWait(change) if change.repair));
    story.state.node = Some(carrying("v1"));
    story.granted(1, false);
    assert_eq!(story.state.phase, Phase::Undoing);
}

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
        .tell("the limit of the drain", Input::Fired(Timer::Drain));
    let late = waits(&story);
    assert!(
        late.contains("1 pod to leave, past the drain's limit of "),
        "{late}"
    );
    story
        .tell("ten seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(0, 1));
    assert_eq!(waits(&story), late);
    let longer = PoolSettings {
        drain_timeout_ms: 7_200_000,
        ..in_place("v2")
    };
    story.tell("the pool allows two hours", pool_is(longer));
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

/// Scenario 42 (the numbers are those of `tests/SCENARIOS.md`): the engine drops what is older; what says the same
/// twice is no event. Here: the same fact again.
#[test]
fn the_same_fact_twice_asks_for_nothing() {
    let mut story = Story::joined(wanting("v1"));
    for input in [
        saw(MachineFact {
            node: Some("win-a".into()),
            ..machine()
        }),
        node_is(carrying("v1")),
    ] {
        assert_eq!(story.quietly(input), []);
    }
}

/// Scenarios 43, 44 and 46.
#[test]
fn deleted_while_it_is_configured() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .tell(
            "the Machine is being deleted",
            saw(MachineFact {
                deleting: true,
                ..machine()
            }),
        )
        .tell("its kubelet asks for a certificate", csr_is(true))
        .tell("the Machine is gone", machine_gone());
    assert!(story.open.is_empty(), "nothing is approved for it");
    holds(&story, expect_file!["stories/deleted_in_bring_up.txt"]);
}

/// Scenario 45.
#[test]
fn the_address_changes_during_bring_up() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .tell(
            "another address",
            saw(MachineFact {
                addresses: vec!["10.0.0.2".into()],
                ..machine()
            }),
        );
    holds(&story, expect_file!["stories/address_changes.txt"]);
}

#[test]
fn a_new_address_of_a_node_that_serves_takes_no_lease() {
    let mut story = Story::joined(wanting("v1"));
    let moved = || MachineFact {
        addresses: vec!["10.0.0.2".into()],
        node: Some("win-a".into()),
        ..machine()
    };
    story
        .tell("another address", saw(moved()))
        .done("plan", planned(Some(ChangeClass::Restart)))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .done("mark-node", Outcome::NodeMarked);
    assert!(
        !story.text.contains("request"),
        "it asks for no lease: {}",
        story.text
    );
    // The next restart is the pool's again.
    story.wants_v2(ChangeClass::Restart);
    assert_eq!(waits(&story), "the rollout's lease");
    holds(&story, expect_file!["stories/moved.txt"]);
}

#[test]
fn deleted_by_somebody_else_while_it_serves() {
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Drain)
        .tell(
            "a health check deletes it",
            saw(MachineFact {
                deleting: true,
                ..machine()
            }),
        )
        .granted(7, false)
        .tell("the Machine is gone", machine_gone())
        .done("close-fence", Outcome::FenceClosed);
    holds(&story, expect_file!["stories/deleted_by_others.txt"]);

    let mut story = Story::joined(wanting("v1"));
    story
        .tell(
            "a person deletes it",
            saw(MachineFact {
                deleting: true,
                ..machine()
            }),
        )
        .tell("the Machine is gone", machine_gone());
    holds(&story, expect_file!["stories/deleted_by_others_gap.txt"]);
}

fn draining(pool: PoolSettings) -> Story {
    let mut story = Story::joined(wanting("v1"));
    story
        .tell("the pool wants v2", pool_is(pool))
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
        story.tell("the drain takes too long", Input::Fired(Timer::Drain));
        if after_timeout == AfterTimeout::Abort {
            story.done("close-fence", Outcome::FenceClosed);
        } else {
            story.tell("five seconds later", Input::Fired(Timer::Again));
        }
        text += &story.text;
    }
    expect_file!["stories/drain_overdue.txt"].assert_eq(&text);
}

#[test]
fn what_a_drain_waits_for_names_the_pod_and_what_holds_it() {
    let mut story = draining(wanting("v2"));
    let mut pass = |left: u32, named: &[(&str, &str)]| {
        let blockers = named.iter().map(|(pod, why)| Blocker {
            pod: (*pod).into(),
            why: (*why).into(),
        });
        let passed = Outcome::Evicted {
            evicted: 0,
            left,
            blockers: blockers.collect(),
            skipped: Vec::new(),
        };
        story
            .tell("five seconds later", Input::Fired(Timer::Again))
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
        .tell(
            "the Node is cordoned",
            node_is(NodeFact {
                cordoned: true,
                ..carrying("v1")
            }),
        )
        .tell("a person uncordons it", node_is(carrying("v1")))
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .tell("five seconds later", Input::Fired(Timer::Again));
    holds(&story, expect_file!["stories/uncordoned.txt"]);
}

/// Scenario 56: the run holds the lease, so that any worker continues with the same node.
/// Scenario 57: a token closed meanwhile stops the work.
#[test]
fn the_token_is_closed_under_a_drain() {
    let mut story = draining(wanting("v2"));
    story
        .tell("five seconds later", Input::Fired(Timer::Again))
        .done("evict", Outcome::FenceClosedMeanwhile)
        .done("close-fence", Outcome::FenceClosed);
    holds(&story, expect_file!["stories/token_closed.txt"]);
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
    holds(&story, expect_file!["stories/marked_grant.txt"]);
}

/// A minute of NotReady entitles to nothing; ten minutes in one piece entitle to a repair over the limit.
#[test]
fn a_node_that_is_not_ready_for_long_may_be_repaired() {
    let mut story = Story::joined(wanting("v1"));
    let down = || NodeFact {
        ready: false,
        ..carrying("v1")
    };
    story
        .wants_v2(ChangeClass::Drain)
        .tell("its Node is not Ready", node_is(down()))
        .later_ms(60_000)
        .tell("its Node is Ready again", node_is(carrying("v1")))
        .later_ms(60_000)
        .tell("its Node is not Ready", node_is(down()))
        .later_ms(480_000)
        .tell("timer of the first time", Input::Fired(Timer::Deadline))
        .later_ms(120_000)
        .tell("timer", Input::Fired(Timer::Deadline))
        .tell("its Node is Ready again", node_is(carrying("v1")));
    holds(&story, expect_file!["stories/repair.txt"]);
}

/// Whatever keeps dormer from comparing a host, its Machine is left as it is: a key, a right, a profile, a closed port.
#[test]
fn a_host_that_cannot_be_compared_is_left_as_it_is() {
    let down = || NodeFact {
        ready: false,
        ..carrying("v1")
    };
    let own = [
        "AuthRejected",
        "Forbidden",
        "HostKeyChanged",
        "KeyUnreadable",
        "ProfileUnusable",
        "VersionNotHere",
    ];
    let unanswered = [
        "ConnectRefused",
        "ConnectTimeout",
        "ConnectionLost",
        "NoAnswer",
    ];
    for code in own.into_iter().chain(unanswered) {
        let mut story = Story::joined(wanting("v1"));
        story
            .tell("the pool wants v2", pool_is(wanting("v2")))
            .given_up("plan", code);
        assert_eq!(story.state.phase, Phase::Serving, "{code}");
        assert_eq!(story.state.lease, Lease::None, "{code}");
        let report = story.state.report();
        assert_eq!(report.not_compared.map(|it| it.code).as_deref(), Some(code));
        // Its Node goes, and ten minutes later the host is tried again.
        story.tell("its Node is not Ready", node_is(down()));
        let told = story.state.report().not_compared.is_some();
        assert_eq!(
            told,
            own.contains(&code),
            "{code}: a dead host is no trouble of dormer's"
        );
        story
            .later_ms(600_000)
            .tell("timer", Input::Fired(Timer::Drift))
            .given_up("plan", code);
        let replaced = matches!(story.state.phase, Phase::LeaseWait(_));
        assert_eq!(replaced, unanswered.contains(&code), "{code}");
    }
}

/// A host that could not be compared, and the two ways in which that ends: it is mended, or a person replaces it.
#[test]
fn trouble_with_a_host_ends_when_it_is_mended() {
    let mut story = Story::joined(wanting("v1"));
    story
        .tell("the pool wants v2", pool_is(wanting("v2")))
        .given_up("plan", "AuthRejected")
        .later_ms(600_000)
        .tell("ten minutes later", Input::Fired(Timer::Drift))
        .given_up("plan", "AuthRejected")
        .person(Signal::Recreate)
        .person(Signal::Hold)
        .person(Signal::Resume)
        .done("plan", planned(Some(ChangeClass::Drain)));
    holds(&story, expect_file!["stories/not_compared.txt"]);
}

/// The run reports a cordon by somebody else to the rollout; a request for this machine overrides it.
#[test]
fn a_node_that_a_person_cordoned_waits_for_the_uncordon() {
    let mut story = Story::joined(wanting("v1"));
    let cordoned = || NodeFact {
        cordoned: true,
        ..carrying("v1")
    };
    story
        .tell("somebody cordons its Node", node_is(cordoned()))
        .wants_v2(ChangeClass::Drain)
        .person(Signal::Recreate);
    holds(&story, expect_file!["stories/cordoned.txt"]);
}

#[test]
fn what_keeps_an_upgrade_from_starting() {
    let mut story = Story::joined(wanting("v1"));
    let manual = PoolSettings {
        approval: Approval::Manual,
        ..wanting("v2")
    };
    story
        .tell("the pool wants v2, with approval", pool_is(manual))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .person(Signal::Hold)
        .person(Signal::Resume)
        .done("plan", planned(Some(ChangeClass::Drain)))
        .person(Signal::Approve)
        .person(Signal::Pause)
        .granted(7, false)
        .person(Signal::Resume)
        .person(Signal::Abort)
        .done("close-fence", Outcome::FenceClosed);
    holds(&story, expect_file!["stories/approval_hold_pause.txt"]);

    let orphan = MachineFact {
        owner: None,
        node: Some("win-a".into()),
        ..machine()
    };
    let mut story = Story::joined(wanting("v1"));
    story.quietly(saw(orphan));
    story.wants_v2(ChangeClass::Drain);
    holds(&story, expect_file!["stories/no_owner.txt"]);
}

#[test]
fn a_person_drains_and_recreates() {
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Drain)
        .granted(7, false)
        .done("open-fence", Outcome::FenceOpened { was_cordoned: true })
        .done("evict", evicted(4, 0))
        .person(Signal::Resume)
        .done("close-fence", Outcome::FenceClosed)
        .person(Signal::Recreate)
        .granted(8, false)
        .tell(
            "its owner forbids a drain",
            saw(MachineFact {
                exclude_drain: true,
                node: Some("win-a".into()),
                ..machine()
            }),
        )
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        );
    holds(&story, expect_file!["stories/a_persons_wish.txt"]);
}

fn adopted_fact() -> MachineFact {
    MachineFact {
        node: Some("win-a".into()),
        ..machine()
    }
}

#[test]
fn adoption() {
    let mut text = String::new();
    let mut append = |title: &str, story: &Story| text += &format!("-- {title}\n{}", story.text);

    let mut story = Story::begin(adopted_fact());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .tell("the Node is seen", node_is(carrying("v1")))
        .done("probe", probed())
        .done("plan", planned(None));
    append("nothing differs", &story);

    let wmco = NodeFact {
        wmco_version: Some("10.17.0".into()),
        ..ready()
    };
    let mut story = Story::begin(adopted_fact());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .tell("the Node is seen", node_is(wmco))
        .done("probe", probed())
        .done("plan", planned(Some(ChangeClass::Drain)));
    append("WMCO configured it", &story);

    let mut story = Story::begin(adopted_fact());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .tell("the Node is seen", node_is(carrying("v0")))
        .given_up("probe", "ConnectTimeout");
    append("the host does not answer", &story);

    let open = Some(TokenMark {
        token: LeaseToken(5),
        open: true,
    });
    let cordoned = NodeFact {
        token: open,
        cordoned: true,
        ..carrying("v1")
    };
    let mut story = Story::begin(MachineFact {
        token: open,
        ..adopted_fact()
    });
    story
        .tell("the pool's settings are seen", pool_is(wanting("v2")))
        .tell("the Node is seen", node_is(cordoned))
        .done("probe", probed())
        .done("plan", planned(Some(ChangeClass::Drain)));
    append("an earlier store began an upgrade", &story);

    expect_file!["stories/adoption.txt"].assert_eq(&text);
}

#[test]
fn a_certificate_that_does_not_fit_yet() {
    let mut story = Story::joined(wanting("v1"));
    let why = "the address 10.0.0.9 is not the Machine's".to_owned();
    let more = vec!["10.0.0.1".into(), "10.0.0.9".into()];
    story
        .tell("the kubelet asks for a certificate", csr_is(true))
        .done(
            "approve-csr",
            Outcome::CsrRefused {
                csr: "csr-1".into(),
                why,
            },
        )
        .tell(
            "the Machine has one more address",
            saw(MachineFact {
                addresses: more,
                ..adopted_fact()
            }),
        )
        .tell("somebody else approves", csr_is(false));
    holds(&story, expect_file!["stories/certificate.txt"]);
}

/// Why a request was refused may end without a fact for this run: another machine claimed the name, and is gone.
#[test]
fn a_refused_request_is_checked_again_when_a_node_is_awaited() {
    let refused = || Outcome::CsrRefused {
        csr: "csr-0".into(),
        why: "another Machine has this name".into(),
    };
    let mut story = nameless();
    story
        .tell("the kubelet asks", first_csr())
        .done("approve-csr", refused());
    assert_eq!(story.names(), [""; 0], "{}", story.text);
    story.tell("no Node came", Input::Fired(Timer::Deadline));
    assert!(matches!(story.state.phase, Phase::Failed { .. }));
    story.person(Signal::Retry);
    assert!(story.names().contains(&"approve-csr"), "{}", story.text);
    story
        .done("approve-csr", refused())
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false));
    assert_eq!(story.state.phase, Phase::NodeWait, "{}", story.text);
    assert_eq!(story.names(), ["approve-csr"], "{}", story.text);
}

fn expected(story: &Story) -> CsrExpectation {
    match story.task("approve-csr") {
        Task::ApproveCsr { expect, .. } => expect,
        other => panic!("{other:?}"),
    }
}

/// A Machine whose platform tells no provider id, as its host is configured.
fn nameless() -> Story {
    let bare = MachineFact {
        provider_id: None,
        ..machine()
    };
    let mut story = Story::begin(bare);
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false));
    story
}

#[test]
fn a_first_certificate_is_due_for_two_hours_after_its_host_was_configured() {
    const HOUR: u64 = 3_600_000;
    let mut story = nameless();
    story
        .later_ms(2 * HOUR)
        .tell("the kubelet asks", first_csr());
    let expect = expected(&story);
    assert!(expect.configured && !expect.served);
    assert_eq!(expect.machine, Some(machine().machine));
    let mut story = nameless();
    story
        .later_ms(2 * HOUR + 1)
        .tell("the kubelet asks", first_csr());
    assert!(!expected(&story).configured, "too late");
    let mut story = Story::joined(wanting("v1"));
    story.tell("somebody asks", first_csr());
    let expect = expected(&story);
    assert!(!expect.configured && expect.served, "it serves");
    assert_eq!(expect.node_uid.as_deref(), Some("uid-node"));
    assert_eq!(expect.provider_id.as_deref(), Some("aws:///a"));
    assert_eq!(expect.torn_down, None);
}

#[test]
fn a_host_that_is_torn_down_under_the_lease_may_ask_anew() {
    let mut story = Story::joined(in_place("v1"));
    story
        .tell("the pool wants v2", pool_is(in_place("v2")))
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
        .tell("the kubelet asks", first_csr());
    let expect = expected(&story);
    assert!(expect.configured && expect.served);
    assert_eq!(expect.torn_down, Some(LeaseToken(7)));
    story.done("converge-host", converged(Section::Host, false));
}

/// Scenario 40: the Node `win-a` was there before, and nothing says whose it is.
#[test]
fn a_node_that_was_there_before_its_first_certificate_is_not_taken() {
    let foreign = || NodeFact {
        provider_id: None,
        ..ready()
    };
    let mut story = nameless();
    story.tell("a Node of its name is seen", node_is(foreign()));
    assert_eq!(story.state.node, None, "it is never fenced or drained");
    story.tell("the kubelet asks", first_csr());
    assert_eq!(expected(&story).node_uid, None);
    story.done(
        "approve-csr",
        Outcome::CsrRefused {
            csr: "csr-0".into(),
            why: "nothing says that it is this Machine's".into(),
        },
    );
    assert!(story.open.is_empty(), "not again and again");
    story.tell("that Node is gone", node_gone());
    story.done(
        "approve-csr",
        Outcome::CsrApproved {
            csr: "csr-0".into(),
        },
    );
    story.tell("its own Node is seen", node_is(foreign()));
    assert!(story.state.node.is_some(), "born of that certificate");
}

#[test]
fn a_name_that_changes_between_probes_is_a_finding() {
    let says = |name: &str| match probed() {
        Outcome::Probed {
            facts, host_key, ..
        } => Outcome::Probed {
            facts,
            host_key,
            node_name: name.into(),
        },
        other => other,
    };
    let mut story = Story::joined(in_place("v1"));
    story
        .tell("the pool wants v2", pool_is(in_place("v2")))
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
        .done("probe", says("master-0"));
    assert!(
        story.text.contains("Failed: failed"),
        "no certificate in another name: {}",
        story.text
    );
    assert_eq!(story.state.host.node_name.as_deref(), Some("win-a"));
    // What its platform calls it is followed.
    let mut story = Story::begin(MachineFact {
        names: vec!["win-b".into()],
        ..machine()
    });
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", says("win-a"));
    story.state.phase = dormer_workflows::machine::Phase::Probing;
    let task = Task::Probe {
        host: Default::default(),
    };
    story.tell(
        "it is looked at again",
        Input::Finished {
            task,
            outcome: says("win-b"),
        },
    );
    assert_eq!(story.state.host.node_name.as_deref(), Some("win-b"));
}

fn csr_numbered(n: usize) -> common::In {
    let csr = CsrFact {
        name: format!("csr-{n}"),
        signer: "kubernetes.io/kube-apiserver-client-kubelet".into(),
        pending: true,
    };
    Input::Observed {
        object: common::object("CertificateSigningRequest", &format!("uid-{n:02}")),
        fact: Some(Fact::Machine(machine::Fact::Csr(csr))),
    }
}

#[test]
fn junk_requests_make_room_for_the_true_one() {
    let mut story = nameless();
    for n in 0..20 {
        story.tell("a request comes", csr_numbered(n));
    }
    assert_eq!(story.open.len(), CSRS_MAX);
    let dropped = story.text.matches("not taken in").count();
    assert_eq!(dropped, 20 - CSRS_MAX, "each is news again: {}", story.text);
    for n in 0..CSRS_MAX {
        let refused = Outcome::CsrRefused {
            csr: format!("csr-{n}"),
            why: "its usages are any".into(),
        };
        story.done("approve-csr", refused);
    }
    story.tell("the true one comes", csr_numbered(99));
    let Task::ApproveCsr { csr, .. } = story.task("approve-csr") else {
        panic!("{:?}", story.open)
    };
    assert_eq!((csr.as_str(), story.open.len()), ("csr-99", 1));
    assert_eq!(story.state.csrs.len(), CSRS_MAX);
}

#[test]
fn a_machine_that_the_machine_api_gave_up_is_not_probed() {
    let failed = || MachineFact {
        phase: Some("Failed".into()),
        error: Some("UpdateError: Can't find created instance.".into()),
        ..machine()
    };
    let story = Story::begin(failed());
    assert_eq!(story.names(), [""; 0], "{}", story.text);
    assert!(story.text.contains("Failed: failed"), "{}", story.text);
    let mut story = Story::begin(machine());
    story.tell("it is given up", saw(failed()));
    assert_eq!(story.names(), [""; 0], "{}", story.text);
    story.person(Signal::Retry);
    assert_eq!(story.names(), [""; 0], "{}", story.text);
    // One with a Node is adopted unseen, and counts.
    let story = Story::begin(MachineFact {
        node: Some("win-a".into()),
        ..failed()
    });
    assert_eq!(story.names(), [""; 0], "{}", story.text);
    assert!(story.state.counts() && story.state.phase.joined());
}

#[test]
fn a_new_host_key_is_trusted_by_a_persons_word() {
    let new = || Signal::TrustHostKey {
        fingerprint: "SHA256:new".into(),
    };
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .given_up("converge-host", "HostKeyChanged")
        .person(new());
    let Task::Converge { host, .. } = story.task("converge-host") else {
        panic!("{}", story.text)
    };
    assert_eq!(host.pin.as_deref(), Some("SHA256:new"), "it goes on");
    let note = story.state.note.clone().expect("who said so");
    assert!(
        note.contains("SHA256:new") && note.contains("ada: on call"),
        "{note}"
    );
    // Where the key was not what failed, nothing is begun.
    let mut story = Story::begin(machine());
    story.given_up("probe", "ConnectTimeout").person(new());
    assert_eq!(story.names(), [""; 0], "{}", story.text);
}

#[test]
fn ignored_machine() {
    let mut story = Story::joined(wanting("v1"));
    story
        .tell(
            "it is labelled ignore=true",
            saw(MachineFact {
                ignored: true,
                ..adopted_fact()
            }),
        )
        .tell("the pool wants v2", pool_is(wanting("v2")))
        .tell("the label goes", saw(adopted_fact()));
    holds(&story, expect_file!["stories/ignored.txt"]);
}

/// Labelled before it ever served: the node that it was made to replace is still missing, and the rollout is told so;
/// and again when other hands have brought it up.
#[test]
fn ignored_before_it_ever_served() {
    let label = |ignored| MachineFact {
        ignored,
        ..machine()
    };
    let mut story = Story::begin(machine());
    story
        .tell("it is labelled ignore=true", saw(label(true)))
        .tell("its Node registers", node_is(node()))
        .tell("it is Ready", node_is(ready()))
        .tell("the same Node", node_is(ready()));
    holds(&story, expect_file!["stories/ignored_early.txt"]);
    // Whoever closes its run decides that nobody waits for it.
    let mut story = Story::begin(machine());
    story.tell("it is labelled ignore=true", saw(label(true)));
    story.text.clear();
    story.person(Signal::Remove);
    assert!(story.text.contains("left\n"), "{}", story.text);
}

#[test]
fn a_reset_keeps_the_world_and_the_lease() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed());
    let early = story.state.clone();
    let mut story = Story::joined(wanting("v1"));
    story.wants_v2(ChangeClass::Drain).granted(7, false);
    let run = common::run_id();
    let now = Now {
        run: &run,
        seq: Seq(99),
        at: Timestamp(5),
    };
    let decision = Machine::reset(now, early.clone(), &story.state);
    assert_eq!(decision.state.lease, story.state.lease);
    assert_eq!(decision.state.node, story.state.node);
    assert_eq!(
        decision.state.phase,
        Phase::Undoing,
        "a step of another time"
    );
    // Without the lease a node that serves is not touched: it is compared, and what differs takes its way.
    let quiet = Story::joined(wanting("v1"));
    let decision = Machine::reset(now, early, &quiet.state);
    assert_eq!(decision.state.phase, Phase::Checking);
}

/// The state of a run after a person reset it to `then`.
fn reset(story: &mut Story, then: State) -> Vec<Command<Machine>> {
    let run = common::run_id();
    let now = Now {
        run: &run,
        seq: Seq(99),
        at: Timestamp(story.at),
    };
    let decision = Machine::reset(now, then, &story.state);
    story.state = decision.state;
    let tasks = decision
        .commands
        .iter()
        .filter_map(|command| match command {
            Command::Run(task, _) => Some(task.clone()),
            _ => None,
        });
    story.open = tasks.collect();
    decision.commands
}

/// A reset goes back to no step that a node that serves would feel: not to a tear-down, a reboot, a restart, a drain.
#[test]
fn no_reset_goes_round_plan_approval_and_drain() {
    let manual = || PoolSettings {
        approval: Approval::Manual,
        ..in_place("v2")
    };
    // Every state of an upgrade in place, as it was recorded.
    let mut story = Story::joined(wanting("v1"));
    let mut states = vec![story.state.clone()];
    let mut upgrade = Story::joined(in_place("v1"));
    upgrade
        .tell("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)));
    states.push(upgrade.state.clone());
    upgrade.granted(7, false);
    let steps = [
        (
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        ),
        ("evict", evicted(4, 0)),
        ("tear-down", Outcome::TornDown),
        ("probe", probed()),
        ("converge-host", converged(Section::Host, false)),
        ("converge-node", converged(Section::Node, false)),
    ];
    for (task, outcome) in steps {
        states.push(upgrade.state.clone());
        upgrade.done(task, outcome);
    }
    story.tell("the pool wants v2 with approval", pool_is(manual()));
    let serving = story.state.clone();
    for then in states {
        let name = then.phase.name();
        story.state = serving.clone();
        reset(&mut story, then);
        assert_eq!(story.names(), ["plan"], "{name}: it is compared first");
        story.done("plan", planned(Some(ChangeClass::Drain)));
        let waits = matches!(story.state.phase, Phase::ApprovalWait(_));
        assert!(waits, "{name}: {}", story.state.phase.name());
        assert_eq!(story.state.lease, Lease::None, "{name}");
    }
}

/// A record of another time knows nothing of the lease that is held now.
#[test]
fn a_reset_under_the_lease_gives_it_back_or_sets_the_host_up_again() {
    let early = {
        let mut story = Story::begin(machine());
        story
            .tell("the pool's settings are seen", pool_is(in_place("v1")))
            .done("probe", probed());
        story.state
    };
    let mut story = Story::joined(in_place("v1"));
    story
        .tell("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .tell(
            "the Node is cordoned",
            node_is(NodeFact {
                cordoned: true,
                ..carrying("v1")
            }),
        );
    let evicting = story.state.clone();
    let before = story.state.clone();
    reset(&mut story, early.clone());
    assert_eq!(
        story.state.phase,
        Phase::Undoing,
        "nothing is destroyed yet"
    );
    story.state = before;
    story.open = vec![];
    reset(&mut story, evicting);
    assert_eq!(story.names(), ["evict"], "a record of the same lease");
    story
        .done("evict", evicted(4, 0))
        .done("tear-down", Outcome::TornDown);
    reset(&mut story, early);
    assert_eq!(story.state.phase, Phase::Reprobing, "the host is not whole");
}

/// What leaves is not revived by an old record: a zombie would count as unavailable for ever.
#[test]
fn a_reset_revives_no_machine_that_leaves() {
    let mut story = Story::joined(wanting("v1"));
    let serving = story.state.clone();
    story.tell(
        "somebody deletes it",
        saw(MachineFact {
            deleting: true,
            ..adopted_fact()
        }),
    );
    for then in [serving.clone(), story.state.clone()] {
        let commands = reset(&mut story, then);
        assert_eq!(story.state.phase, Phase::Leaving);
        assert!(story.open.is_empty(), "{commands:?}");
        assert!(story.state.report().deleting);
    }
    story.tell("the Machine is gone", machine_gone());
    reset(&mut story, serving.clone());
    assert_eq!(story.state.phase, Phase::Gone);

    // One whose replacement is awaited.
    let mut story = draining(wanting("v2"));
    story
        .tell("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(2, 0))
        .done("delete-machine", Outcome::MachineDeleted)
        .tell("the Machine is gone", machine_gone())
        .done("close-fence", Outcome::FenceClosed);
    reset(&mut story, serving);
    assert_eq!(story.state.phase, Phase::ReplacementWait);
}

fn ignored_fact() -> MachineFact {
    MachineFact {
        ignored: true,
        ..adopted_fact()
    }
}

/// The label on the Machine is the Machine's: nothing that is said to the run ends it, and no reset.
#[test]
fn only_its_removal_ends_the_label() {
    let mut story = Story::joined(wanting("v1"));
    let serving = story.state.clone();
    story.tell("it is labelled ignore=true", saw(ignored_fact()));
    for signal in [
        Signal::Pause,
        Signal::Resume,
        Signal::Hold,
        Signal::Resume,
        Signal::Drain,
        Signal::Recreate,
        Signal::Approve,
        Signal::Abort,
        Signal::Retry,
        Signal::Enrol,
    ] {
        story.person(signal.clone());
        story.tell("v2 is wanted", pool_is(wanting("v2")));
        story.tell("timer", Input::Fired(Timer::Drift));
        story.tell("the same fact", saw(ignored_fact()));
        assert!(story.state.ignored(), "{signal:?}");
        assert_eq!(story.names(), Vec::<&str>::new(), "{signal:?}");
        assert_eq!(story.state.lease, Lease::None, "{signal:?}");
        assert_eq!(story.state.reported, None, "{signal:?}: it is no member");
    }
    reset(&mut story, serving);
    assert_eq!(story.names(), Vec::<&str>::new(), "a reset");
    assert_eq!(story.state.view().halt, Some(Halt::Ignored));
    story.tell("the label goes", saw(adopted_fact()));
    assert_eq!(story.names(), ["probe"], "it is looked at anew");
    assert_eq!(
        story.state.wish, None,
        "what was asked for meanwhile is not done later"
    );
}

/// A pause and a hold stand beside the label, and beside each other.
#[test]
fn the_halts_are_separate() {
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Hold)
        .person(Signal::Pause)
        .tell("it is labelled ignore=true", saw(ignored_fact()));
    let kinds = |story: &Story| {
        let halts = story.state.halts().into_iter();
        halts
            .map(|halt| match halt {
                Halt::Ignored => "ignored",
                Halt::Paused { .. } => "paused",
                Halt::Held { .. } => "held",
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&story), ["ignored", "paused", "held"]);
    story.tell("the label goes", saw(adopted_fact()));
    assert_eq!(kinds(&story), ["paused", "held"]);
    assert_eq!(story.names(), Vec::<&str>::new(), "it is still paused");
    story.person(Signal::Resume);
    assert_eq!(kinds(&story), Vec::<&str>::new());
    assert_eq!(story.names(), ["probe"]);
}

/// A state that a build wrote which knew one halt only.
#[test]
fn an_older_builds_halt_is_taken_over() {
    let by = || "ada: on call".to_owned();
    for halt in [Halt::Paused { by: by() }, Halt::Held { by: by() }] {
        let mut story = Story::joined(wanting("v1"));
        story.state.halt = Some(halt.clone());
        assert_eq!(
            story.state.view().halt,
            Some(halt.clone()),
            "before it decides"
        );
        story.tell("v2 is wanted", pool_is(wanting("v2")));
        assert_eq!(story.state.halts(), std::slice::from_ref(&halt));
        assert_eq!(
            story.state.halt,
            Some(halt),
            "and for that build, should it come back"
        );
        assert_eq!(story.names(), Vec::<&str>::new());
        story.person(Signal::Resume);
        assert_eq!(story.names(), ["plan"]);
    }
    // One that had forgotten the label.
    let mut story = Story::joined(wanting("v1"));
    story.state.machine = Some(ignored_fact());
    story.tell("v2 is wanted", pool_is(wanting("v2")));
    assert_eq!(story.names(), Vec::<&str>::new());
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
    evicting.tell("five seconds later", Input::Fired(Timer::Again));
    let mut deleting = draining(wanting("v2"));
    deleting
        .tell("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(3, 0));
    let mut drained = Story::joined(wanting("v1"));
    drained
        .person(Signal::Drain)
        .granted(7, false)
        .done("open-fence", opened)
        .done("evict", evicted(4, 0));
    let mut failed = draining(wanting("v2"));
    failed
        .tell("five seconds later", Input::Fired(Timer::Again))
        .given_up("evict", "Forbidden");
    for mut story in [opening, evicting, deleting, drained, failed] {
        let name = story.state.phase.name();
        story.tell("it is labelled ignore=true", saw(ignored_fact()));
        assert_eq!(story.names(), ["close-fence"], "{name}");
        story.done("close-fence", Outcome::FenceClosed);
        assert_eq!(story.names(), Vec::<&str>::new(), "{name}");
        assert_eq!(story.state.lease, Lease::None, "{name}");
        assert_eq!(story.state.reported, None, "{name}: it is no member");
    }
    // A deletion that has landed is found by the close.
    let mut story = draining(wanting("v2"));
    story
        .tell("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(3, 0))
        .tell("it is labelled ignore=true", saw(ignored_fact()))
        .done("close-fence", Outcome::MachineDeleted);
    assert_eq!(story.state.phase, Phase::Vanishing);
    // A host that was torn down is set up to the end.
    let mut story = Story::joined(in_place("v1"));
    story
        .tell("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(4, 0))
        .tell("it is labelled ignore=true", saw(ignored_fact()))
        .done("tear-down", Outcome::TornDown)
        .tell("the label goes", saw(adopted_fact()));
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
        .tell("the Node is cordoned", node_is(cordoned))
        .tell("five seconds later", Input::Fired(Timer::Again))
        .person(Signal::Pause)
        .done("evict", evicted(3, 0))
        .tell("five seconds later", Input::Fired(Timer::Again))
        .tell("the drain takes too long", Input::Fired(Timer::Drain));
    assert_eq!(story.names(), Vec::<&str>::new());
    assert!(matches!(story.state.phase, Phase::Evicting(..)));
    let paused = story.state.clone();
    story.person(Signal::Resume).done("evict", evicted(0, 0));
    assert_eq!(story.names(), ["delete-machine"]);
    story.state = paused.clone();
    story.open.clear();
    story
        .tell("somebody uncordons the Node", node_is(carrying("v1")))
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
    holds(&story, expect_file!["stories/paused_drain.txt"]);

    // A deletion that was ordered is given up, too: the close finds out whether it has landed.
    let mut story = draining(wanting("v2"));
    story
        .tell("five seconds later", Input::Fired(Timer::Again))
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

/// A pause stops the clocks: nothing fails of it, nothing is repaired in it, and the drift timer runs again afterwards.
#[test]
fn a_paused_machine_fails_of_no_deadline() {
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .person(Signal::Pause)
        .tell("no Node for twenty minutes", Input::Fired(Timer::Deadline));
    assert_eq!(story.state.phase, Phase::NodeWait);
    let commands = story.quietly(person(Signal::Resume));
    let waits = |commands: &[Command<Machine>], timer| {
        commands
            .iter()
            .any(|it| matches!(it, Command::StartTimer(one, _) if *one == timer))
    };
    assert!(waits(&commands, Timer::Deadline), "{commands:?}");

    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Pause)
        .tell("the Node is gone", node_gone())
        .tell("ten minutes later", Input::Fired(Timer::Deadline))
        .tell("six hours later", Input::Fired(Timer::Drift));
    assert_eq!(story.names(), Vec::<&str>::new());
    assert_eq!(story.state.phase, Phase::Serving);
    let commands = story.quietly(person(Signal::Resume));
    assert!(waits(&commands, Timer::Drift), "{commands:?}");
    assert!(waits(&commands, Timer::Deadline), "{commands:?}");
}

fn person(signal: Signal) -> common::In {
    Input::Signalled {
        from: dormer_engine_core::Sender::Person {
            who: "ada".into(),
            why: String::new(),
        },
        signal: dormer_proto::work::Signal::Machine(signal),
    }
}

/// A node that serves renews its certificates while its machine is paused; a host that joins gets none.
#[test]
fn renewals_are_approved_while_paused() {
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Pause)
        .tell("its kubelet renews", csr_is(true));
    assert_eq!(story.names(), ["approve-csr"]);
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .person(Signal::Pause)
        .tell("its kubelet asks for the first time", csr_is(true));
    assert_eq!(story.names(), Vec::<&str>::new());
    story.person(Signal::Resume);
    assert_eq!(story.names(), ["approve-csr"]);
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
        .tell("the Node is cordoned", node_is(cordoned))
        .tell("five seconds later", Input::Fired(Timer::Again))
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
    story.tell("the drain takes too long", Input::Fired(Timer::Drain));
    let forced = |story: &Story| match &story.state.phase {
        Phase::Evicting(_, drain) => drain.force,
        other => panic!("{}", other.name()),
    };
    assert!(forced(&story));
    let commands = story.quietly(pool(AfterTimeout::Wait));
    assert_eq!(drains(&commands), Some(60_000));
    assert!(!forced(&story), "budgets count again");
    assert_eq!(
        drains(&story.quietly(pool(AfterTimeout::Wait))),
        None,
        "no news"
    );
}

/// A grant, like a request, is judged by what is known when it arrives.
#[test]
fn a_grant_finds_the_owner_gone() {
    let orphan = || MachineFact {
        owner: None,
        ..adopted_fact()
    };
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Drain)
        .tell("its MachineSet lets go of it", saw(orphan()))
        .granted(7, false);
    assert_eq!(story.names(), ["close-fence"], "given back");
    story
        .done("close-fence", Outcome::FenceClosed)
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(matches!(story.state.phase, Phase::OwnerWait(_)));
    story.person(Signal::Abort);
    assert_eq!(
        story.state.phase,
        Phase::Serving,
        "and it can be left alone"
    );

    // A person's wish in the queue of a change in place.
    let mut story = Story::joined(in_place("v1"));
    story
        .tell("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .tell("its MachineSet lets go of it", saw(orphan()))
        .person(Signal::Recreate);
    assert!(matches!(story.state.phase, Phase::OwnerWait(_)));
    assert_eq!(story.state.lease, Lease::None);

    // A controller that makes no other Machine is no owner.
    let other = MachineFact {
        owner: Some(Owner {
            kind: "Deployment".into(),
            name: "d".into(),
            uid: "uid-d".into(),
        }),
        ..adopted_fact()
    };
    let mut story = Story::joined(wanting("v1"));
    story.tell("it has another controller", saw(other));
    story.wants_v2(ChangeClass::Drain);
    assert!(matches!(story.state.phase, Phase::OwnerWait(_)));
    assert_eq!(story.state.report().owner, None);
}

/// A person's approval is for the version of that day.
#[test]
fn an_approval_is_for_one_version() {
    let manual = |version| PoolSettings {
        approval: Approval::Manual,
        ..in_place(version)
    };
    let approval_waits = |story: &Story| matches!(story.state.phase, Phase::ApprovalWait(_));
    // Before anything was to be approved.
    let mut story = Story::joined(manual("v1"));
    story
        .person(Signal::Approve)
        .tell("v2 is wanted", pool_is(manual("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(approval_waits(&story));
    // In the queue for v2, and v3 comes.
    story
        .person(Signal::Approve)
        .tell("v3 is wanted", pool_is(manual("v3")))
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(approval_waits(&story));
    // Under way to v3, and v4 comes: v3 is finished first.
    story
        .person(Signal::Approve)
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
        .tell("v4 is wanted", pool_is(manual("v4")))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .tell("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked);
    assert_eq!(story.state.version.as_deref(), Some("v3"));
    story
        .done("close-fence", Outcome::FenceClosed)
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(approval_waits(&story), "{}", story.text);
}

/// A change without a drain stays one: a newer version waits for its own plan.
#[test]
fn a_restart_does_not_become_more_than_that() {
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Restart)
        .granted(7, false)
        .done("open-fence", opened)
        .tell("v3 is wanted", pool_is(wanting("v3")))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .tell("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked);
    assert_eq!(story.state.version.as_deref(), Some("v2"));
    // A new version while a live change is marked: the node serves, and is compared.
    let mut story = Story::joined(wanting("v1"));
    story
        .tell("the pool wants v2", pool_is(wanting("v2")))
        .done("plan", planned(Some(ChangeClass::Live)))
        .done("converge-host", converged(Section::Host, false))
        .done("converge-node", converged(Section::Node, false))
        .tell("v3 is wanted", pool_is(wanting("v3")));
    assert_eq!(story.names(), ["plan"]);
}

/// Who waits for the lease is planned anew when the pool's strategy, or its approval, is changed.
#[test]
fn a_changed_strategy_changes_what_is_waited_for() {
    let mut story = Story::joined(wanting("v1"));
    story
        .wants_v2(ChangeClass::Drain)
        .tell("in place from now on", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)));
    let Phase::LeaseWait(change) = &story.state.phase else {
        panic!("{}", story.state.phase.name());
    };
    assert_eq!(change.how, How::InPlace);
    let manual = PoolSettings {
        approval: Approval::Manual,
        ..in_place("v2")
    };
    story
        .tell("with approval from now on", pool_is(manual))
        .done("plan", planned(Some(ChangeClass::Drain)));
    assert!(matches!(story.state.phase, Phase::ApprovalWait(_)));
}

/// What a person asks for while something else is under way is done after it.
#[test]
fn a_wish_is_not_lost_during_a_change() {
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
        .tell("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .person(Signal::Drain)
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(waits(&story), "the rollout's lease");
    // Drained, and now to be replaced.
    story
        .granted(8, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(4, 0))
        .person(Signal::Recreate);
    assert_eq!(story.names(), ["delete-machine"]);
    // A person uncordons a Node that is drained: it is emptied again, until it is resumed.
    let mut story = Story::joined(wanting("v1"));
    let cordoned = NodeFact {
        cordoned: true,
        ..carrying("v1")
    };
    story
        .person(Signal::Drain)
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .tell("the Node is cordoned", node_is(cordoned))
        .done("evict", evicted(4, 0))
        .tell("somebody uncordons it", node_is(carrying("v1")));
    assert_eq!(story.names(), ["open-fence"]);
}

/// A node is not given back, and does not count as joined, while it is not Ready.
#[test]
fn a_node_that_is_not_ready_when_it_is_marked_is_waited_for() {
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
        .tell("the soak is over", Input::Fired(Timer::Soak))
        .tell("the Node is not Ready", node_is(node()));
    assert_eq!(story.state.phase, Phase::ReadyWait);
    assert_eq!(story.names(), Vec::<&str>::new());
}

/// What was set up for an address that is gone is set up again.
#[test]
fn a_new_address_reaches_every_step() {
    let moved = || MachineFact {
        addresses: vec!["10.0.0.2".into()],
        ..machine()
    };
    let mut story = Story::begin(machine());
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .tell("another address", saw(moved()));
    assert_eq!(story.names(), ["converge-host"]);
    let mut story = Story::joined(wanting("v1"));
    story.wants_v2(ChangeClass::Drain).tell(
        "another address",
        saw(MachineFact {
            node: Some("win-a".into()),
            ..moved()
        }),
    );
    assert_eq!(story.names(), ["plan"], "its services have to be told");
}

/// The answer of a comparison that was left says nothing of what was begun meanwhile.
#[test]
fn a_late_plan_changes_no_target() {
    let mut story = draining(in_place("v2"));
    let target = story.state.target.clone();
    story.tell("v3 is wanted", pool_is(in_place("v3")));
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
    story.tell(
        "a late plan",
        Input::Finished {
            task,
            outcome: late,
        },
    );
    assert_eq!(story.state.target, target);
    assert_eq!(story.state.host.generation, generation);
}

/// A Node that was deleted by hand, or that the watcher only does not tell of.
#[test]
fn a_node_that_is_gone_is_searched_for_and_brought_back_through_the_lease() {
    let found = Outcome::NodeFound {
        name: "win-a".into(),
    };
    let mut story = Story::joined(wanting("v1"));
    story
        .tell("the Node is gone", node_gone())
        .later_ms(600_000)
        .tell("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", found.clone())
        .tell("ten minutes later", Input::Fired(Timer::Deadline))
        .given_up("find-node", "Forbidden")
        .tell("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent);
    assert!(story.state.report().had_node, "it goes on counting");
    assert!(story.state.report().unavailable);
    let waiting = story.state.clone();
    story
        .granted(7, true)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("find-node", Outcome::NodeAbsent)
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .tell("its kubelet asks for a certificate", csr_is(true))
        .tell("the Node is seen", node_is(node()))
        .done("converge-node", converged(Section::Node, false))
        .tell("the Node is Ready", node_is(ready()))
        .tell("the soak is over", Input::Fired(Timer::Soak))
        .done("mark-node", Outcome::NodeMarked)
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.phase, Phase::Serving);
    holds(&story, expect_file!["stories/node_gone.txt"]);

    // It comes back while it waits for the lease; or it stands when it is looked for again under it; or its host is
    // dead.
    let mut story = Story::joined(wanting("v1"));
    story.state = waiting.clone();
    story.tell("the Node is back", node_is(carrying("v1")));
    assert_eq!(story.names(), ["plan"]);
    assert_eq!(story.state.lease, Lease::None);
    for (answer, failure) in [(Some(found), None), (None, Some("Forbidden"))] {
        let mut story = Story::joined(wanting("v1"));
        story.state = waiting.clone();
        story.granted(7, true).done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        );
        match (answer, failure) {
            (Some(found), _) => story.done("find-node", found),
            (None, code) => story.given_up("find-node", code.unwrap_or_default()),
        };
        assert_eq!(story.names(), ["close-fence"]);
    }
    let mut story = Story::joined(wanting("v1"));
    story.state = waiting;
    story
        .granted(7, true)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("find-node", Outcome::NodeAbsent)
        .given_up("tear-down", "ConnectTimeout");
    assert_eq!(
        story.names(),
        ["close-fence"],
        "one dead host keeps nobody waiting"
    );
}

/// A story whose Node was found absent: the machine waits for the lease.
fn without_its_node(pool: PoolSettings, machine: MachineFact) -> Story {
    let mut story = Story::joined(pool);
    story
        .tell("the Machine is seen again", saw(machine))
        .tell("the Node is gone", node_gone())
        .tell("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent);
    story
}

/// Opens the fence of a repair under an ordinary lease, and finds its Node still absent.
fn repairs(story: &mut Story) {
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    story
        .granted(7, false)
        .done("open-fence", opened)
        .done("find-node", Outcome::NodeAbsent);
}

/// With `maxUnavailable` of two or more, a repair is granted within the limit. A dead host returns that lease, too.
#[test]
fn a_repair_within_the_limit_of_a_dead_host_halts_nobody() {
    let mut story = without_its_node(wanting("v1"), machine());
    repairs(&mut story);
    story.given_up("tear-down", "ConnectTimeout");
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    assert!(!story.state.report().failed);
    story.done("close-fence", Outcome::FenceClosed);
    assert!(story.text.contains("release 7"), "{}", story.text);
    assert_eq!(story.state.phase, Phase::Serving);
    // It waits again before it asks for the next lease.
    story
        .tell("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent);
    assert_eq!(story.state.lease, Lease::Wanted);

    // A host that answers, and an upgrade whose Node is there, fail as before.
    let mut story = without_its_node(wanting("v1"), machine());
    repairs(&mut story);
    story.given_up("tear-down", "AccessDenied");
    assert!(story.state.report().failed);
    let mut story = draining(in_place("v2"));
    story.tell("five seconds later", Input::Fired(Timer::Again));
    story.done("evict", evicted(3, 0));
    story.given_up("tear-down", "ConnectTimeout");
    assert!(story.state.report().failed, "{}", story.text);
}

/// A Machine that the Machine API gave up: its instance is gone for good.
fn given_up() -> MachineFact {
    MachineFact {
        phase: Some("Failed".into()),
        error: Some("UpdateError: Can't find created instance.".into()),
        node: Some("win-a".into()),
        ..machine()
    }
}

/// dormer does not log in at the address of an instance that is gone: its owner makes another Machine.
#[test]
fn a_machine_that_was_given_up_and_has_no_node_is_replaced() {
    let mut story = without_its_node(in_place("v1"), given_up());
    let waits = |story: &Story, how| match &story.state.phase {
        Phase::LeaseWait(change) => change.repair && change.how == how,
        _ => false,
    };
    assert!(waits(&story, How::Recreate), "{}", story.text);
    // Its Node is there after all: nothing is deleted.
    let asks = story.state.clone();
    let found = Outcome::NodeFound {
        name: "win-a".into(),
    };
    let opened = Outcome::FenceOpened {
        was_cordoned: false,
    };
    story
        .granted(7, false)
        .done("open-fence", opened)
        .done("find-node", found);
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    // It is absent.
    story.state = asks;
    story.open.clear();
    story.text.clear();
    repairs(&mut story);
    assert_eq!(story.names(), ["delete-machine"], "{}", story.text);
    assert!(!story.text.contains("tear-down"), "{}", story.text);
    story
        .done("delete-machine", Outcome::MachineDeleted)
        .tell("the Machine is gone", machine_gone())
        .done("close-fence", Outcome::FenceClosed);
    assert!(
        story.text.contains("release 7, the Machine is gone"),
        "{}",
        story.text
    );

    // It is given up while it waits to be set up again. Its position in the queue stays.
    let mut story = without_its_node(wanting("v1"), machine());
    assert!(waits(&story, How::InPlace), "{}", story.text);
    story.text.clear();
    story.tell("it is given up", saw(given_up()));
    assert!(waits(&story, How::Recreate), "{}", story.text);
    assert!(!story.text.contains("request"), "{}", story.text);
}

/// A Machine that was given up and that nobody would replace waits for an owner, or for its Node.
#[test]
fn a_machine_that_was_given_up_and_has_no_owner_waits() {
    let orphan = MachineFact {
        owner: None,
        ..given_up()
    };
    let waits = |story: &Story| matches!(story.state.phase, Phase::OwnerWait(_));
    let mut story = without_its_node(wanting("v1"), orphan.clone());
    assert!(waits(&story), "{}", story.text);
    assert_eq!(story.names(), [""; 0], "{}", story.text);
    let alone = story.state.clone();
    story.tell("it has an owner", saw(given_up()));
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
    story.state = alone;
    story.tell("its Node is back", node_is(carrying("v1")));
    assert_eq!(story.state.phase, Phase::Checking, "{}", story.text);
    // The owner is taken away while it waits for the lease: the request is withdrawn.
    let mut story = without_its_node(wanting("v1"), given_up());
    story.tell("its owner is gone", saw(orphan));
    assert!(waits(&story), "{}", story.text);
    assert_eq!(story.state.lease, Lease::None, "{}", story.text);
}

/// The Machine API may take back that it gave a Machine up: its host is set up again, and needs no owner.
#[test]
fn a_machine_that_is_given_up_no_longer_needs_no_owner() {
    let orphan = |machine| MachineFact {
        owner: None,
        node: Some("win-a".into()),
        ..machine
    };
    let mut story = without_its_node(in_place("v1"), orphan(given_up()));
    assert!(matches!(story.state.phase, Phase::OwnerWait(_)));
    story.tell("it is not given up any more", saw(orphan(machine())));
    assert!(
        matches!(&story.state.phase, Phase::LeaseWait(change) if change.how == How::InPlace),
        "{}",
        story.text
    );
}

/// Between the grant and the last search for its Node.
#[test]
fn a_machine_that_is_given_up_after_the_grant_is_not_logged_in_to() {
    let opened = || Outcome::FenceOpened {
        was_cordoned: false,
    };
    let granted = || {
        let mut story = without_its_node(in_place("v1"), machine());
        story.granted(7, false).done("open-fence", opened());
        story
    };
    let mut story = granted();
    story
        .tell("it is given up", saw(given_up()))
        .done("find-node", Outcome::NodeAbsent);
    assert_eq!(story.names(), ["delete-machine"], "{}", story.text);
    // It has no owner that would replace it.
    let orphan = MachineFact {
        owner: None,
        ..given_up()
    };
    let mut story = granted();
    story
        .tell("it is given up, and has no owner", saw(orphan))
        .done("find-node", Outcome::NodeAbsent);
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    let mut story = granted();
    story.done("find-node", Outcome::NodeAbsent);
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
}

/// A provider id that another writes in another case is the same computer's.
#[test]
fn a_provider_id_in_another_case_is_the_same_machines() {
    let id = "azure:///subscriptions/1/resourceGroups/RG/providers/p/virtualMachines/win-a";
    let on_azure = MachineFact {
        provider_id: Some(id.into()),
        node: Some("win-a".into()),
        ..machine()
    };
    let mut story = Story::begin(on_azure);
    let there = NodeFact {
        provider_id: Some(id.to_lowercase()),
        ..carrying("v1")
    };
    story.tell("its Node is seen", node_is(there));
    assert!(story.state.node.is_some());
}

fn waits(story: &Story) -> String {
    story.state.view().waiting_for.unwrap_or_default()
}

#[test]
fn a_payload_without_an_edge_waits_and_says_why() {
    let mut story = Story::joined(payload("11.0.0", after(&[])));
    story.tell(
        "11.2.0 is wanted",
        pool_is(payload("11.2.0", after(&["11.1.0"]))),
    );
    story.done("plan", planned(Some(ChangeClass::Drain)));
    let why = waits(&story);
    assert!(
        why.contains("payload 11.2.0 may follow 11.1.0, not 11.0.0"),
        "{why}"
    );
    // A grant that was under way is given back.
    story
        .granted(7, false)
        .done("close-fence", Outcome::FenceClosed);
    story.done("plan", planned(Some(ChangeClass::Drain)));
    // What is changed in place is no exception.
    story.tell(
        "11.3.0 is wanted",
        pool_is(payload("11.3.0", after(&["11.2.0"]))),
    );
    story.done("plan", planned(Some(ChangeClass::Live)));
    story.tell(
        "11.1.0 is wanted",
        pool_is(payload("11.1.0", after(&["11.0.0"]))),
    );
    story.done("plan", planned(Some(ChangeClass::Drain)));
    assert_eq!(waits(&story), "the rollout's lease");
    holds(&story, expect_file!["stories/no_edge.txt"]);
}

#[test]
fn going_back_takes_a_persons_word() {
    let mut story = Story::joined(payload("11.1.0", after(&["11.0.0"])));
    story.tell("11.0.0 is wanted", pool_is(payload("11.0.0", after(&[]))));
    story.done("plan", planned(Some(ChangeClass::Drain)));
    let why = waits(&story);
    assert!(
        why.contains("payload 11.0.0 may follow no version, not 11.1.0"),
        "{why}"
    );
    let back = Terms {
        back_from: Some("11.1.0".into()),
        ..after(&[])
    };
    story.tell(
        "a person goes back to 11.0.0",
        pool_is(payload("11.0.0", back)),
    );
    story.granted(8, false);
    holds(&story, expect_file!["stories/going_back.txt"]);
}

#[test]
fn a_kubelet_that_is_too_new_is_not_even_brought_up() {
    let skew = Some("kubelet 1.34 is newer than the oldest API server, 1.33".to_owned());
    let mut story = Story::begin(machine());
    story.tell(
        "11.2.0 is wanted",
        pool_is(payload("11.2.0", Terms { skew, ..after(&[]) })),
    );
    story.done("probe", probed());
    let why = waits(&story);
    assert!(
        why.contains("a payload that fits: kubelet 1.34 is newer"),
        "{why}"
    );
    story.tell(
        "the API servers are newer now",
        pool_is(payload("11.2.0", after(&[]))),
    );
    holds(&story, expect_file!["stories/too_new.txt"]);
}

/// A machine whose host has this Windows, in a pool with these settings, on this platform.
fn probed_as(build: &str, product: &str, platform: &str, pool: PoolSettings) -> Story {
    let mut story = Story::begin(MachineFact {
        platform: platform.into(),
        ..machine()
    });
    story.tell("the pool's settings are seen", pool_is(pool));
    let Outcome::Probed {
        mut facts,
        host_key,
        node_name,
    } = probed()
    else {
        panic!("a probe")
    };
    facts.os_build = build.into();
    facts.os_name = product.into();
    let found = Outcome::Probed {
        facts,
        host_key,
        node_name,
    };
    story.done("probe", found);
    story
}

/// A pool whose payload is for one build only.
fn for_build(build: &str) -> PoolSettings {
    let pool = payload("11.0.0", after(&[]));
    let desired = pool.desired.values().next().expect("one").clone();
    PoolSettings {
        desired: [(build.to_owned(), desired)].into(),
        ..pool
    }
}

#[test]
fn a_machine_that_is_not_supported_is_refused_by_its_name() {
    let all = || payload("11.0.0", after(&[]));
    let only_aws = || {
        let terms = Terms {
            platforms: vec!["aws".into()],
            ..after(&[])
        };
        payload("11.0.0", terms)
    };
    let no_port = || {
        let why = "Windows Server 2019 (10.0.17763) cannot change the port of VXLAN to 9898";
        let terms = Terms {
            refused_builds: [("10.0.17763".into(), why.into())].into(),
            ..after(&[])
        };
        payload("11.0.0", terms)
    };
    let (server, server_2022) = (
        "Windows Server Datacenter",
        "Windows Server 2022 Datacenter",
    );
    let table = [
        // (build, product, platform, pool, code, text)
        (
            "10.0.18362",
            server,
            "AWS",
            all(),
            "UnsupportedBuild",
            "Windows Server, version 1903 (10.0.18362)",
        ),
        (
            "10.0.18362",
            server,
            "AWS",
            for_build("10.0.20348"),
            "UnsupportedBuild",
            "version 1903",
        ),
        (
            "10.0.17763",
            server,
            "AWS",
            all(),
            "UnsupportedBuild",
            "Windows Server, version 1809 (10.0.17763)",
        ),
        (
            "10.0.26100",
            "Windows 11 Pro",
            "AWS",
            all(),
            "UnsupportedEdition",
            "Windows 11 Pro",
        ),
        (
            "10.0.26100",
            "",
            "AWS",
            for_build("10.0.20348"),
            "PayloadForOtherBuild",
            "it is for 10.0.20348",
        ),
        (
            "10.0.29000",
            "",
            "AWS",
            for_build("10.0.20348"),
            "UnsupportedBuild",
            "10.0.29000",
        ),
        (
            "10.0.20348",
            server_2022,
            "PowerVS",
            all(),
            "UnsupportedPlatform",
            "powervs",
        ),
        (
            "10.0.20348",
            server_2022,
            "Azure",
            only_aws(),
            "PayloadForOtherPlatform",
            "it is for aws",
        ),
        (
            "10.0.17763",
            "Windows Server 2019 Datacenter",
            "AWS",
            no_port(),
            "SettingForOtherBuild",
            "cannot change the port of VXLAN to 9898",
        ),
    ];
    for (build, product, platform, pool, code, text) in table {
        let story = probed_as(build, product, platform, pool);
        let view = story.state.view();
        assert_eq!(story.state.phase, Phase::PoolWait, "{build} {product}");
        let refused = view
            .refused
            .unwrap_or_else(|| panic!("{build} {product}: not refused"));
        assert_eq!(refused.code(), code, "{build} {product} {platform}");
        let reason = view.reason.unwrap_or_default();
        assert!(
            reason.starts_with(code) && reason.contains(text),
            "{reason}"
        );
        let waits = view.waiting_for.unwrap_or_default();
        assert!(waits.contains(text), "{waits}");
    }
}

/// The same pool, and a setting that one of the payload's builds cannot have.
#[test]
fn a_setting_that_a_build_cannot_have_stops_the_hosts_of_that_build_only() {
    let why = "only 4789 works there";
    let pool = |refused: &[&str]| {
        let builds = refused.iter();
        let terms = Terms {
            refused_builds: builds.map(|it| ((*it).to_owned(), why.into())).collect(),
            ..after(&[])
        };
        payload("11.0.0", terms)
    };
    let only_2019 = || pool(&["10.0.17763"]);
    let newer = probed_as("10.0.20348", "", "AWS", only_2019());
    let begun = |story: &Story| matches!(story.state.phase, Phase::ConvergingHost { .. });
    assert!(begun(&newer), "{:?}", newer.state.phase);
    let mut older = probed_as("10.0.17763", "", "AWS", only_2019());
    assert_eq!(older.state.phase, Phase::PoolWait);
    assert!(waits(&older).contains(why), "{}", waits(&older));
    // A node that serves keeps what it has, and gets no version with that setting.
    let mut serving = probed_as("10.0.17763", "", "AWS", pool(&[]));
    serving.state.in_service = true;
    serving.state.pool = Some(only_2019());
    assert_eq!(serving.state.bar().as_deref(), Some(why));
    older.tell("the port is the usual one again", pool_is(pool(&[])));
    assert!(begun(&older), "{:?}", older.state.phase);
}

#[test]
fn a_machine_that_is_supported_is_not_refused() {
    let table = [
        (
            "10.0.17763",
            "Microsoft Windows Server 2019 Datacenter",
            "AWS",
            for_build("10.0.17763"),
        ),
        ("10.0.17763", "", "vSphere", for_build("10.0.17763")),
        (
            "10.0.20348",
            "Windows Server 2022 Datacenter",
            "Azure",
            for_build("10.0.20348"),
        ),
        (
            "10.0.26100",
            "Windows Server 2025 Standard",
            "None",
            payload("11.0.0", after(&[])),
        ),
        // Nobody knows it, and the payload is for it.
        ("10.0.29000", "", "", for_build("10.0.29000")),
    ];
    for (build, product, platform, pool) in table {
        let story = probed_as(build, product, platform, pool);
        assert_eq!(story.state.refusal(), None, "{build} {product}");
        let begun = matches!(story.state.phase, Phase::ConvergingHost { .. });
        assert!(begun, "{build} {product}: {:?}", story.state.phase);
    }
}

#[test]
fn a_refused_machine_goes_on_once_the_payload_is_for_it() {
    let mut story = probed_as("10.0.26100", "", "AWS", for_build("10.0.20348"));
    assert!(waits(&story).contains("it is for 10.0.20348"));
    story.tell("a payload for it", pool_is(for_build("10.0.26100")));
    assert_eq!(story.state.refusal(), None);
    let begun = matches!(story.state.phase, Phase::ConvergingHost { .. });
    assert!(begun, "{:?}", story.state.phase);
}

#[test]
fn a_node_that_serves_is_left_as_it_is_whatever_its_windows() {
    let mut story = probed_as("10.0.20348", "", "AWS", for_build("10.0.20348"));
    story.state.in_service = true;
    if let Some(facts) = &mut story.state.host.facts {
        facts.os_build = "10.0.18362".into();
    }
    assert_eq!(story.state.refusal(), None);
}

#[test]
fn an_upgrade_that_was_begun_ends_before_the_next_that_may_not_follow_it() {
    let wanted = |version, terms| PoolSettings {
        strategy: Strategy::InPlace,
        ..payload(version, terms)
    };
    let mut story = Story::joined(wanted("11.0.0", after(&[])));
    story.tell(
        "11.1.0 is wanted",
        pool_is(wanted("11.1.0", after(&["11.0.0"]))),
    );
    story
        .done("plan", planned(Some(ChangeClass::Restart)))
        .granted(7, false);
    story.done(
        "open-fence",
        Outcome::FenceOpened {
            was_cordoned: false,
        },
    );
    // It continues to the granted version, although the newest one has no edge from the earlier version.
    story.tell(
        "11.3.0 is wanted",
        pool_is(wanted("11.3.0", after(&["11.2.0"]))),
    );
    holds(&story, expect_file!["stories/begun_before.txt"]);
}

#[test]
fn a_node_that_serves_stays_as_the_pool_last_said_when_that_is_gone() {
    let absent = |version| PoolSettings {
        absent: true,
        paused: true,
        held: Some("there is no WindowsPool dormer/windows".into()),
        ..wanting(version)
    };
    let mut story = Story::joined(wanting("v1"));
    story.tell("the pool is gone", pool_is(absent("v9")));
    story.tell("the pool wants v2", pool_is(wanting("v2")));
    story.done("plan", planned(Some(ChangeClass::Live)));
    holds(&story, expect_file!["stories/pool_gone.txt"]);

    // It was brought up while there was none: what dormer brings along changes, and the node does not.
    let mut story = Story::joined(absent("v1"));
    story.tell("another payload is installed", pool_is(absent("v2")));
    story.done("plan", planned(Some(ChangeClass::Live)));
    let why = waits(&story);
    assert!(why.contains("there is no WindowsPool"), "{why}");
    story.tell("there is a pool", pool_is(wanting("v2")));
    holds(&story, expect_file!["stories/no_pool.txt"]);
}

/// The Machine as a watcher tells of it that saw another operator, or its end.
fn beside(neighbour: Neighbour) -> MachineFact {
    MachineFact {
        node: Some("win-a".into()),
        neighbour,
        ..machine()
    }
}

fn another() -> Neighbour {
    Neighbour::Runs("another operator runs (Pod winc/wmco-1)".into())
}

#[test]
fn another_operator_runs_before_a_machine_is_probed() {
    let mut story = Story::begin(MachineFact {
        neighbour: another(),
        ..machine()
    });
    story
        .tell("the pool's settings are seen", pool_is(wanting("v1")))
        .person(Signal::Retry);
    let waits = story.state.view().waiting_for.expect("it waits");
    assert!(waits.contains("Pod winc/wmco-1"), "{waits}");
    story
        .tell(
            "an older watcher, or one that cannot read it, says nothing",
            saw(machine()),
        )
        .tell(
            "it has ended",
            saw(MachineFact {
                neighbour: Neighbour::Absent,
                ..machine()
            }),
        );
    holds(&story, expect_file!["stories/beside_bring_up.txt"]);
}

#[test]
fn another_operator_comes_in_the_middle_of_an_upgrade() {
    let mut story = Story::joined(in_place("v1"));
    story
        .tell("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .tell("another operator runs", saw(beside(another())))
        .done("close-fence", Outcome::FenceClosed)
        .tell("hours pass", Input::Fired(Timer::Drift))
        .person(Signal::Recreate)
        .granted(8, false)
        .done("close-fence", Outcome::FenceClosed)
        .tell("it has ended", saw(beside(Neighbour::Absent)));
    holds(&story, expect_file!["stories/beside_upgrade.txt"]);
}

#[test]
fn another_operator_comes_when_a_host_is_torn_down() {
    let mut story = Story::joined(in_place("v1"));
    story
        .tell("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(4, 0))
        .tell("another operator runs", saw(beside(another())))
        .tell("it has ended", saw(beside(Neighbour::Absent)));
    holds(&story, expect_file!["stories/beside_tear_down.txt"]);
}
