//! What a rollout believes: tokens that it may have granted, and machines that have served.

use crate::{
    common::{Story, carrying as node_carrying, machine_is, node_is, planned, wanting},
    rollout_common::{Pool, coming, not_compared, serving},
};
use dormer_proto::{
    id::{LeaseToken, TOKENS_AHEAD_MAX},
    machine::{MachineFact, NodeFact, TokenMark},
    pool::MaxUnavailable,
    rollout::MemberReport,
};
use dormer_workflows::machine::Phase;

fn closed(token: u64) -> TokenMark {
    TokenMark {
        token: LeaseToken(token),
        open: false,
    }
}

fn open(token: u64) -> TokenMark {
    TokenMark {
        open: true,
        ..closed(token)
    }
}

fn with(mark: TokenMark) -> MemberReport {
    MemberReport {
        token: Some(mark),
        ..serving()
    }
}

/// A person who may annotate Machines uses the numbers up.
#[test]
fn a_token_that_nobody_can_have_granted_changes_nothing() {
    for mark in [
        closed(u64::MAX),
        open(u64::MAX),
        closed(u64::MAX / 2),
        closed(TOKENS_AHEAD_MAX + 1),
    ] {
        let mut pool = Pool::of(&["a", "b", "c"]);
        pool.member("a", with(mark)).request("b");
        let slot = pool.state.slots.first().expect("b is granted");
        assert_eq!((slot.token, slot.over_limit), (LeaseToken(1), false));
    }
}

/// A store that was lost has granted fewer than that.
#[test]
fn the_tokens_of_a_lost_store_are_believed() {
    for token in [41, TOKENS_AHEAD_MAX] {
        let mut pool = Pool::of(&["a", "b"]);
        pool.member("a", with(closed(token))).request("b");
        assert_eq!(pool.state.slots[0].token, LeaseToken(token + 1));
    }
}

/// An earlier build believed the greatest token that it read.
#[test]
fn a_rollout_with_a_forged_counter_goes_on_counting() {
    let forged = u64::MAX / 2;
    let mut pool = Pool::of(&["a", "b"]);
    pool.state.token = LeaseToken(forged);
    pool.member("a", with(closed(forged))).request("b");
    let token = pool.state.slots[0].token;
    assert_eq!(token, LeaseToken(forged + 1));
    pool.release("b", token.0).request("a");
    assert_eq!(pool.state.slots[0].token, LeaseToken(forged + 2));
}

/// A kubelet may write annotations of its own Node, and none of a Machine.
#[test]
fn a_hosts_own_mark_on_its_node_holds_nobody() {
    for mark in [open(100), closed(100), open(u64::MAX)] {
        let mut story = Story::joined(wanting("v1"));
        story.feed(
            "a host's own mark",
            node_is(NodeFact {
                token: Some(mark),
                ..node_carrying("v1")
            }),
        );
        let report = story.state.report();
        assert_eq!(report.token, None);
        assert!(!report.unavailable, "{report:?}");
        // A closed one may be what a Machine of that name left behind.
        let note = story.state.note.clone().unwrap_or_default();
        let named = note.contains(&format!("token {}", mark.token)) && note.contains("Node win-a");
        assert_eq!(named, mark.open, "{note}");

        let mut pool = Pool::of(&["a", "b", "c"]);
        pool.member("a", report).request("c");
        assert_eq!(pool.state.slots.len(), 1);
    }
}

#[test]
fn a_token_that_the_machine_has_too_is_an_earlier_stores() {
    let mut story = Story::joined(wanting("v1"));
    story
        .feed(
            "on the Machine",
            machine_is(MachineFact {
                token: Some(open(7)),
                node: Some("win-a".into()),
                ..crate::common::machine()
            }),
        )
        .feed(
            "on the Node",
            node_is(NodeFact {
                token: Some(open(7)),
                ..node_carrying("v1")
            }),
        );
    assert_eq!(story.state.report().token, Some(open(7)));
    // Only a lease closes it, so the run asks for one, although nothing differs.
    story.done("plan", planned(None));
    assert!(
        matches!(story.state.phase, Phase::LeaseWait(_)),
        "{}",
        story.text
    );
}

/// Sixteen Machines never came (no quota): four nodes serve, and a quarter of them is one.
#[test]
fn a_share_is_one_of_machines_that_have_served() {
    let mut pool = Pool::of(&["a", "b", "c", "d"]);
    pool.limit(MaxUnavailable::Percent(25));
    for n in 0..16 {
        let failed = MemberReport {
            failed: true,
            ..coming(100)
        };
        pool.member(&format!("n{n}@100"), failed);
    }
    pool.request("a").request("b").request("c").request("d");
    assert_eq!(pool.state.slots.len(), 1, "{}", pool.text);
    assert_eq!(pool.state.limit(), Some(1));
}

/// A machine that waits for its replacement is one of the pool still.
#[test]
fn a_share_does_not_shrink_while_machines_are_replaced() {
    let mut pool = Pool::of(&["a", "b", "c", "d"]);
    pool.limit(MaxUnavailable::Percent(50));
    pool.request("a").request("b").request("c");
    pool.replace("a", 1, 10);
    assert_eq!(pool.state.limit(), Some(2));
    pool.member("r@20", coming(20));
    assert_eq!(pool.state.limit(), Some(2));
    pool.member(
        "r@20",
        MemberReport {
            created: coming(20).created,
            ..serving()
        },
    );
    assert_eq!(pool.state.limit(), Some(2));
    assert_eq!(pool.state.slots.len(), 2, "{}", pool.text);
}

/// A person has the failed replacement replaced; until a replacement serves, no other machine is taken.
#[test]
fn a_replacement_that_is_replaced_before_it_served_keeps_the_halt() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.limit(MaxUnavailable::Count(3));
    pool.request("a");
    pool.replace("a", 1, 10);
    let failed = MemberReport {
        failed: true,
        ..coming(20)
    };
    pool.member("r@20", failed.clone()).request("b");
    assert!(pool.state.halted());
    let asked = MemberReport {
        by_request: true,
        ..failed
    };
    pool.request_as("r@20", asked);
    let taken: Vec<_> = pool.state.slots.iter().filter(|it| !it.vacant).collect();
    assert_eq!(taken.len(), 1, "{}", pool.text);
    assert_eq!(taken[0].uid.to_string(), "r@20");
}

/// Each of these ends the vacancy of the one before, so a vacant slot over the limit does not stand in its way.
#[test]
fn a_second_replacement_that_failed_can_be_replaced_too() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.limit(MaxUnavailable::Count(1));
    pool.request("a");
    pool.replace("a", 1, 10);
    let failed = |at| MemberReport {
        failed: true,
        ..coming(at)
    };
    pool.member("r@20", failed(20))
        .request_as("r@20", failed(20));
    pool.replace("r@20", 2, 30);
    pool.member("s@40", failed(40))
        .request_as("s@40", failed(40));
    let taken: Vec<_> = pool.state.slots.iter().filter(|it| !it.vacant).collect();
    assert_eq!(taken.len(), 1, "{}", pool.text);
    assert_eq!(taken[0].uid.to_string(), "s@40", "{}", pool.text);
}

/// A holder whose token is superseded again and again has no precedence, unless dormer itself began there.
#[test]
fn others_have_their_turn_beside_a_machine_that_returns_its_lease() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.request("a").request("b");
    pool.release("a", 1).request("a");
    assert_eq!(pool.state.slots[0].uid.to_string(), "b", "{}", pool.text);
}

/// dormer's clock, or its network: several hosts that serve report the same.
#[test]
fn the_clock_of_dormer_is_one_finding() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    for who in ["a", "b"] {
        pool.member(who, not_compared("ClockSkew"));
    }
    pool.request("c");
    assert!(pool.state.slots.is_empty(), "{}", pool.text);
    assert_eq!(pool.state.finding().expect("a finding").uids.len(), 2);
    pool.member("a", serving()).member("b", serving());
    assert_eq!(pool.state.slots.len(), 1);
}

/// A finalizer keeps the Machine of the holder, and its replacement fails meanwhile.
#[test]
fn a_replacement_that_fails_before_its_predecessor_is_gone_stops_the_rollout() {
    let leaves = MemberReport {
        deleting: true,
        unavailable: true,
        deleted: Some(dormer_proto::id::Timestamp(15_000)),
        ..serving()
    };
    let fails = MemberReport {
        failed: true,
        ..coming(20)
    };
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.limit(MaxUnavailable::Count(2))
        .request("a")
        .member("a", leaves)
        .owner(3, &["b", "c", "r@20"], &["a"])
        .member("r@20", fails)
        .request("b");
    assert_eq!(pool.state.slots.len(), 1, "{}", pool.text);
    // It comes up after all.
    pool.member("r@20", coming(20));
    assert_eq!(pool.state.slots.len(), 2, "{}", pool.text);
}
