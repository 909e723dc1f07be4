//! Stories of tokens on a Node that its Machine does not have: dormer writes each token on the Machine first.

use crate::common::{
    Story, carrying, machine, machine_is, node_is, planned, pool_is, probed, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::{
    id::LeaseToken,
    machine::{
        ChangeClass, MachineApi, MachineFact, MachineRef, NodeFact, Outcome, Signal, Task,
        TokenMark,
    },
    message::Failure,
};
use dormer_workflows::machine::{Lease, Phase, Timer};

fn own_host() -> MachineFact {
    let machine = machine();
    MachineFact {
        machine: MachineRef {
            api: MachineApi::Host,
            ..machine.machine.clone()
        },
        owner: None,
        node: Some("win-a".into()),
        ..machine
    }
}

fn with_token(open: bool, cordoned: bool) -> NodeFact {
    NodeFact {
        token: Some(TokenMark {
            token: LeaseToken(7),
            open,
        }),
        cordoned,
        ..carrying("v1")
    }
}

fn adopted(machine: MachineFact, node: NodeFact) -> Story {
    let mut story = Story::begin(machine);
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .feed("its Node is seen", node_is(node))
        .done("probe", probed())
        .done("plan", planned(None));
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    story
}

fn note(story: &Story) -> &str {
    story.state.note.as_deref().unwrap_or_default()
}

/// Its custom resources were installed anew in the middle of an upgrade.
#[test]
fn a_host_whose_object_was_made_anew_says_how_its_node_is_freed() {
    let mut story = adopted(own_host(), with_token(true, true));
    let said = note(&story);
    assert!(said.contains("its WindowsHost has none"), "{said}");
    assert!(
        said.ends_with("uncordon it, unless a person wants that"),
        "{said}"
    );
    // A host may have written that by itself: it gets no lease before others, and its Node stays cordoned.
    assert!(story.state.stray_token().is_none());
    assert!(story.state.report().cordoned);

    story.feed("a person uncordons it", node_is(with_token(true, false)));
    let said = note(&story);
    assert!(
        said.contains("token 7") && !said.contains("uncordon"),
        "{said}"
    );
    story.feed("another change is over", node_is(with_token(false, false)));
    assert_eq!(story.state.note, None);
}

fn token(token: u64, open: bool) -> Option<TokenMark> {
    let token = LeaseToken(token);
    Some(TokenMark { token, open })
}

/// A machine that serves after its lease 5, when all of etcd goes back to the middle of that change.
fn restored(closed: u64) -> Story {
    let machine = |open| MachineFact {
        token: token(5, open),
        ..own_host()
    };
    let node = |open| NodeFact {
        token: token(5, open),
        cordoned: open,
        ..carrying("v1")
    };
    let mut story = Story::begin(machine(false));
    story.state.closed = LeaseToken(closed);
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .feed("its Node is seen", node_is(node(false)))
        .done("probe", probed())
        .done("plan", planned(None))
        .feed("etcd is restored", machine_is(machine(true)));
    assert!(story.names().is_empty(), "{}", story.text);
    story.feed("and its Node", node_is(node(true)));
    story
}

fn closes(story: &Story) -> u64 {
    match story.task("close-fence") {
        Task::CloseFence { token, .. } => token.0,
        other => panic!("{}", other.name()),
    }
}

/// No other client cordoned the Node, and it would stay cordoned for ever.
#[test]
fn a_token_that_an_older_etcd_brings_back_is_closed_again() {
    for closed in [5, 9] {
        let mut story = restored(closed);
        assert_eq!(story.names(), ["close-fence"], "{}", story.text);
        assert_eq!(closes(&story), closed, "over both marks");
        assert!(note(&story).contains("token 5"), "{}", note(&story));
        assert_eq!(story.state.phase, Phase::Serving);
        let node = |open| NodeFact {
            token: token(if open { 5 } else { closed }, open),
            cordoned: open,
            ..carrying("v1")
        };
        story.feed("its Node is seen once more", node_is(node(true)));
        assert_eq!(story.names(), ["close-fence"], "once: {}", story.text);
        // The API server is away for longer than the attempts last.
        story.given_up("close-fence", "Forbidden");
        assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
        story.feed("hours later", Input::Fired(Timer::Drift));
        assert_eq!(story.names(), ["close-fence", "plan"], "{}", story.text);
        story
            .done("close-fence", Outcome::FenceClosed)
            .done("plan", planned(None))
            .feed("it is closed", node_is(node(false)));
        assert!(story.names().is_empty(), "{}", story.text);
        assert!(!story.state.report().cordoned);
    }
}

/// What the watcher sees comes a moment after the answer of the close.
#[test]
fn a_token_that_was_just_closed_is_not_closed_again() {
    let mut story = adopted(own_host(), carrying("v1"));
    let machine = MachineFact {
        token: token(7, true),
        ..own_host()
    };
    story
        .wants_v2(ChangeClass::Restart)
        .granted(7, false)
        .feed("its token is seen", machine_is(machine.clone()))
        .feed("and its Node's", node_is(with_token(true, false)))
        .person(Signal::Abort)
        .done("close-fence", Outcome::FenceClosed)
        .feed("an older Machine", machine_is(machine))
        .feed("an older Node", node_is(with_token(true, true)));
    assert!(story.names().is_empty(), "{}", story.text);
}

/// Within seconds of the close another version is published twice: no etcd was restored.
#[test]
fn a_token_that_was_just_closed_is_not_taken_for_a_restored_one_in_a_comparison() {
    let mut story = adopted(own_host(), carrying("v1"));
    let machine = MachineFact {
        token: token(7, true),
        ..own_host()
    };
    story
        .wants_v2(ChangeClass::Drain)
        .granted(7, false)
        .feed("its token is seen", machine_is(machine))
        .feed("and its Node's", node_is(with_token(true, true)))
        .feed("the pool goes back to v1", pool_is(wanting("v1")))
        .done("close-fence", Outcome::FenceClosed)
        .feed("the pool wants v2", pool_is(wanting("v2")))
        .feed("the pool wants v3", pool_is(wanting("v3")));
    assert_eq!(story.names(), ["plan"], "{}", story.text);
    assert!(!note(&story).contains("etcd"), "{}", note(&story));
}

/// The next lease ends by its own close.
#[test]
fn the_close_of_a_restored_token_ends_no_lease() {
    for fails in [false, true] {
        let mut story = restored(9);
        let old = story.task("close-fence");
        story
            .wants_v2(ChangeClass::Drain)
            .granted(10, false)
            .person(Signal::Abort);
        assert_eq!(closes(&story), 10, "{}", story.text);
        let late = match fails {
            false => Input::Finished {
                task: old,
                outcome: Outcome::FenceClosed,
            },
            true => Input::Exhausted {
                task: old,
                failure: Failure::lasting("Forbidden", "no"),
            },
        };
        story.feed("the old close is answered", late);
        assert_eq!(story.state.phase, Phase::Undoing, "{}", story.text);
        assert!(story.state.lease.token().is_some());
    }
}

/// The restored pool wants another version as well, and nothing else would order the close while the machine waits: its Node
/// would stay cordoned, and it would never get the lease.
#[test]
fn the_close_of_a_restored_token_outlives_the_tasks_of_a_comparison() {
    let mut story = restored(9);
    story
        .feed("the pool wants v2", pool_is(wanting("v2")))
        .feed("the pool wants v3", pool_is(wanting("v3")));
    assert_eq!(story.names(), ["close-fence", "plan"], "{}", story.text);
    assert_eq!(closes(&story), 9);
    story.done("plan", planned(Some(ChangeClass::Drain)));
    assert_eq!(story.state.lease, Lease::Wanted, "{}", story.text);
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    story
        .done("close-fence", Outcome::FenceClosed)
        .feed("it is closed", node_is(carrying("v1")));
    assert!(!story.state.report().cordoned, "{}", story.text);
}

/// That build stored only the note of what it had ordered.
#[test]
fn the_close_that_an_older_build_ordered_outlives_the_tasks_of_a_comparison() {
    let mut story = restored(9);
    let note = "token 5 is open on its objects once more, as by the restore of an older etcd: dormer closes it again";
    (story.state.restored, story.state.note) = (false, Some(note.into()));
    story
        .feed("the pool wants v2", pool_is(wanting("v2")))
        .feed("the pool wants v3", pool_is(wanting("v3")));
    assert_eq!(story.names(), ["close-fence", "plan"], "{}", story.text);
    assert_eq!(closes(&story), 9);
    // The answer has come, and the facts are late: nothing is ordered.
    let mut story = restored(9);
    (story.state.restored, story.state.note) = (false, None);
    story
        .done("close-fence", Outcome::FenceClosed)
        .feed("the pool wants v2", pool_is(wanting("v2")))
        .feed("the pool wants v3", pool_is(wanting("v3")));
    assert_eq!(story.names(), ["plan"], "{}", story.text);
}

#[test]
fn a_closed_token_that_outlived_its_object_is_no_trouble() {
    let story = adopted(own_host(), with_token(false, false));
    assert_eq!(story.state.note, None);
}

#[test]
fn a_token_beyond_that_of_its_machine_is_another_clients() {
    let before = MachineFact {
        token: Some(TokenMark {
            token: LeaseToken(6),
            open: false,
        }),
        ..own_host()
    };
    let mut story = adopted(before, with_token(true, true));
    let forged = "another client wrote token 7 in the annotation dormer.io/fence of the Node win-a";
    assert!(note(&story).starts_with(forged), "{}", note(&story));

    let beyond = MachineFact {
        token: Some(TokenMark {
            token: LeaseToken(u64::MAX),
            open: true,
        }),
        ..own_host()
    };
    story.feed("another client writes one", machine_is(beyond));
    assert!(
        note(&story).contains("of the Machine a,"),
        "{}",
        note(&story)
    );
}
