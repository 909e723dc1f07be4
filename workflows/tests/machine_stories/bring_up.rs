//! Stories of a bring-up: what fails on the way, and what continues.

use super::holds;
use super::reboots::failure_of;
use crate::common::{
    Story, carrying, converged, csr_is, evicted, in_place, machine, machine_gone, machine_is, node,
    node_is, planned, pool_is, probed, ready, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::machine::{
    ChangeClass, ConditionFact, MachineFact, NodeFact, OTHER_NAME_POSSIBLE, OWN_REQUEST, Outcome,
    Section, Signal, Task,
};
use dormer_proto::message::Failure;
use dormer_workflows::machine::{Phase, Timer};
use expect_test::expect_file;

#[test]
fn a_step_fails_and_a_retry_goes_on_from_it() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .given_up("converge-host", "FeatureFailed")
        .person(Signal::Retry)
        .done("converge-host", converged(Section::Host, false))
        .feed("no Node for twenty minutes", Input::Fired(Timer::Deadline))
        .person(Signal::Retry)
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("the Node is seen", node_is(node()))
        .done("converge-node", converged(Section::Node, false))
        .feed(
            "not Ready for twenty minutes",
            Input::Fired(Timer::Deadline),
        )
        .feed(
            "it boots anew",
            node_is(NodeFact {
                boot_id: "boot-2".into(),
                ..ready()
            }),
        );
    holds(&story, expect_file!["../stories/fails_and_retry.txt"]);
}

#[test]
fn a_failure_stays_known_until_the_retried_step_succeeds() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .given_up("converge-host", "FeatureFailed");
    assert_eq!(story.state.view().retried, None, "it has failed");
    story.at = 60_000;
    story.person(Signal::Retry);
    let retried = story.state.view().retried.expect("it is tried again");
    assert_eq!(retried.by.as_deref(), Some("ada: on call"));
    assert_eq!(retried.failed, "converging-host");
    assert_eq!(retried.failure.code, "FeatureFailed");
    assert_eq!(retried.at.0, 60_000);
    let phase_since = |story: &Story| story.state.view().phase_since.map(|it| it.0);
    assert_eq!(phase_since(&story), Some(60_000));
    story.at = 90_000;
    story.feed("the same settings", pool_is(wanting("v1")));
    assert_eq!(phase_since(&story), Some(60_000), "it is still in it");
    assert!(story.state.view().retried.is_some());
    story.done("converge-host", converged(Section::Host, false));
    assert_eq!(story.state.view().retried, None, "the step has succeeded");
}

#[test]
fn a_host_that_will_not_let_us_in() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .given_up("probe", "AuthRejected")
        .feed("twenty seconds later", Input::Fired(Timer::Again))
        .given_up("probe", "AuthRejected");
    story.at = 700_000;
    story
        .feed("twenty seconds later", Input::Fired(Timer::Again))
        .given_up("probe", "AuthRejected")
        .feed(
            "a new address",
            machine_is(MachineFact {
                addresses: vec!["10.0.0.2".into()],
                ..machine()
            }),
        );
    holds(&story, expect_file!["../stories/auth_rejected.txt"]);
}

/// Its host was renamed meanwhile: a wait for the old name would end as the first one did.
#[test]
fn a_retry_after_no_node_came_reads_the_host_again() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("no Node for twenty minutes", Input::Fired(Timer::Deadline));
    assert_eq!(failure_of(&story).0, "NodeOverdue");
    story.person(Signal::Retry);
    assert_eq!(story.state.phase, Phase::Probing);
    story
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false));
    assert_eq!(story.state.phase, Phase::NodeWait);
}

/// A host that says it is another Node asks in that name, and what its machine waits for never comes.
#[test]
fn a_machine_without_a_node_names_the_request_that_its_host_may_have_made() {
    let mut story = Story::begin(machine());
    let asks = |conditions| {
        machine_is(MachineFact {
            conditions,
            ..machine()
        })
    };
    let condition = ConditionFact {
        kind: OWN_REQUEST.into(),
        status: "False".into(),
        reason: OTHER_NAME_POSSIBLE.into(),
        message: "csr-x asks for the certificate of master-0".into(),
    };
    let told = |story: &Story| story.state.view().machine_conditions.len();
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .feed("some host asks in another name", asks(vec![condition]));
    assert_eq!(told(&story), 0, "its kubelet does not run yet");
    story.done("converge-host", converged(Section::Host, false));
    assert_eq!(told(&story), 1);
    story.feed("no Node for twenty minutes", Input::Fired(Timer::Deadline));
    let (code, message) = failure_of(&story);
    assert_eq!(code, "NodeOverdue");
    assert!(
        message.ends_with("appeared; csr-x asks for the certificate of master-0"),
        "{message}"
    );
    assert_eq!(told(&story), 1);
}

/// The watcher, the signer of certificates or a network's DaemonSet was away for longer than the deadline.
#[test]
fn a_node_that_comes_after_its_deadline_is_brought_up() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("no Node for twenty minutes", Input::Fired(Timer::Deadline));
    assert_eq!(failure_of(&story).0, "NodeOverdue");
    story.feed("the Node registers after all", node_is(node()));
    assert_eq!(story.state.phase, Phase::ConvergingNode);
    story
        .done("converge-node", converged(Section::Node, false))
        .feed(
            "not Ready for twenty minutes",
            Input::Fired(Timer::Deadline),
        );
    assert_eq!(failure_of(&story).0, "NotReadyOverdue");
    story.feed("it is said again that it is not", node_is(node()));
    assert_eq!(failure_of(&story).0, "NotReadyOverdue");
    story.feed("it is Ready", node_is(ready()));
    assert_eq!(story.state.phase, Phase::Soaking);
    holds(&story, expect_file!["../stories/late_node.txt"]);
}

/// An outage of the cluster is no machine's failure: every machine that it met would wait for a person of its own.
#[test]
fn an_api_server_that_is_away_for_hours_fails_no_machine() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("the Node registers", node_is(node()))
        .done("converge-node", converged(Section::Node, false))
        .feed("it is Ready", node_is(ready()))
        .feed("half a minute later", Input::Fired(Timer::Soak));
    assert_eq!(story.state.phase, Phase::Marking);
    let task = story.task("mark-node");
    let failure = Failure::transient("ApiUnreachable", "the API server does not answer");
    let given_up = |task: &Task, failure: &Failure| Input::Exhausted {
        task: task.clone(),
        failure: failure.clone(),
    };
    story.feed("no answer for two hours", given_up(&task, &failure));
    assert_eq!(story.state.phase, Phase::Marking);
    assert_eq!(story.task("mark-node"), task);
    let refused = Failure::transient("Forbidden", "dormer may not patch nodes");
    story.feed("no right for two hours", given_up(&task, &refused));
    assert_eq!(failure_of(&story).0, "Forbidden");
}

/// Scenario 42 (the numbers are those of `tests/SCENARIOS.md`): the engine drops what is older; what says the same
/// twice is no event. Here: the same fact again.
#[test]
fn the_same_fact_twice_asks_for_nothing() {
    let mut story = Story::joined(wanting("v1"));
    for input in [
        machine_is(MachineFact {
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
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .feed(
            "the Machine is being deleted",
            machine_is(MachineFact {
                deleting: true,
                ..machine()
            }),
        )
        .feed("its kubelet asks for a certificate", csr_is(true))
        .feed("the Machine is gone", machine_gone());
    assert!(story.open.is_empty(), "nothing is approved for it");
    holds(&story, expect_file!["../stories/deleted_in_bring_up.txt"]);
}

/// Scenario 45.
#[test]
fn the_address_changes_during_bring_up() {
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .feed(
            "another address",
            machine_is(MachineFact {
                addresses: vec!["10.0.0.2".into()],
                ..machine()
            }),
        );
    holds(&story, expect_file!["../stories/address_changes.txt"]);
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
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", says("win-a"));
    story.state.phase = dormer_workflows::machine::Phase::Probing;
    let task = Task::Probe {
        host: Default::default(),
    };
    story.feed(
        "it is looked at again",
        Input::Finished {
            task,
            outcome: says("win-b"),
        },
    );
    assert_eq!(story.state.host.node_name.as_deref(), Some("win-b"));
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
    story.feed("it is given up", machine_is(failed()));
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
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
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
fn a_retry_makes_the_next_attempt_now_and_begins_no_task_twice() {
    let mut story = Story::begin(machine());
    story.text.clear();
    story.person(Signal::Retry);
    assert!(
        story.text.ends_with("next attempts now\n"),
        "{}",
        story.text
    );
    assert_eq!(story.names(), ["probe"], "the same one");
    story
        .given_up("probe", "AuthRejected")
        .person(Signal::Retry);
    assert!(
        story.text.ends_with("wait no longer (Again)\n"),
        "{}",
        story.text
    );
    let mut story = Story::joined(wanting("v1"));
    story.person(Signal::Retry);
    assert!(!story.text.contains("Drift"), "{}", story.text);
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
        .feed("the soak is over", Input::Fired(Timer::Soak))
        .feed("the Node is not Ready", node_is(node()));
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
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .feed("another address", machine_is(moved()));
    assert_eq!(story.names(), ["converge-host"]);
    let mut story = Story::joined(wanting("v1"));
    story.wants_v2(ChangeClass::Drain).feed(
        "another address",
        machine_is(MachineFact {
            node: Some("win-a".into()),
            ..moved()
        }),
    );
    assert_eq!(story.names(), ["plan"], "its services have to be renewed");
}
