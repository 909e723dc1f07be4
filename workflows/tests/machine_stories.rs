//! A machine's life in transcripts: the ordinary one, each way to fail, adoption, and what others do to it.

use crate::common;

use common::{
    Story, after, carrying, converged, csr_is, evicted, first_csr, in_place, machine, machine_gone,
    node, node_gone, node_is, payload, planned, pool_is, probed, probed_at, ready, saw, wanting,
};
use dormer_engine_core::{Input, Now, Workflow};
use dormer_proto::{
    id::{LeaseToken, Seq, Timestamp},
    machine::{
        self, Blocker, ChangeClass, CsrExpectation, CsrFact, FenceRefusal, MachineFact, NodeFact,
        Outcome, Section, Signal, Task, TokenMark,
    },
    pool::{AfterTimeout, Approval, PoolSettings, Strategy, Terms},
    work::Fact,
};
use dormer_workflows::machine::{CSRS_MAX, Machine, Timer};
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
    let says = "3 pods to leave: shop/db-0 (the disruption budgets a, b match it) and 2 more";
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

/// Scenario 56: the run holds the lease, so that any worker of it goes on with the same node.
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

/// A cordon of somebody else's is told to the rollout; who asks for this machine decides about it.
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

#[test]
fn the_node_disappears_from_under_a_serving_machine() {
    let mut story = Story::joined(wanting("v1"));
    story
        .tell("the Node is gone", node_gone())
        .tell("ten minutes later", Input::Fired(Timer::Deadline));
    holds(&story, expect_file!["stories/node_gone.txt"]);
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
    let decision = Machine::reset(now, early, &story.state);
    assert_eq!(decision.state.lease, story.state.lease);
    assert_eq!(decision.state.node, story.state.node);
    assert_eq!(decision.state.phase.name(), "converging the host");
    // Without the lease a node that serves is not touched: it is asked for first.
    let early = decision.state.clone();
    let quiet = Story::joined(wanting("v1"));
    let decision = Machine::reset(now, early, &quiet.state);
    assert_eq!(decision.state.phase.name(), "waiting for the lease");
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
    // It goes on to what it was granted for, though the newest may not follow what it carried.
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
