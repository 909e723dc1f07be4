//! Size of a rollout with the most members: it fits into a record.

use crate::rollout_common;

use dormer_proto::{
    id::{LeaseToken, Timestamp},
    machine::TokenMark,
    pool::PoolSettings,
    rollout::{Fact, MEMBERS_MAX, MemberReport, OwnedMachine, OwnerFact, Signal},
};
use dormer_workflows::rollout::State;
use rollout_common::{Pool, observed, serving, signalled};

/// Bytes that one member may cost, encoded as the engine stores it.
const MEMBER_BYTES_MAX: usize = 64;
/// Bytes of everything else: settings, owners, slots, what left.
const REST_BYTES_MAX: usize = 2_048;

fn uid(at: usize) -> String {
    format!("0b5f6f0e-8a54-4c53-9d7a-6a5fb2{at:06x}")
}

const OWNER: &str = "77777777-8a54-4c53-9d7a-6a5fb2a5c001";

/// The widest report there is: every number is as large as it can get.
fn report() -> MemberReport {
    MemberReport {
        owner: Some(OWNER.into()),
        created: Timestamp(u64::MAX >> 8),
        unavailable: true,
        failed: true,
        token: Some(TokenMark {
            token: LeaseToken(u64::MAX >> 8),
            open: true,
        }),
        ..serving()
    }
}

fn full() -> Pool {
    let mut pool = Pool::new();
    // A pool that is as old as pools get.
    pool.state.tick = u64::MAX >> 8;
    let machines = (0..MEMBERS_MAX).map(|at| OwnedMachine {
        uid: uid(at),
        created: report().created,
        deleting: false,
    });
    let fact = OwnerFact {
        uid: OWNER.into(),
        name: "winworker".into(),
        replicas: 5_000,
        ready: Some(4_999),
        available: Some(4_999),
        machines: machines.collect(),
    };
    pool.decide(observed(Fact::Pool(PoolSettings {
        paused: true,
        ..PoolSettings::default()
    })));
    pool.decide(observed(Fact::Owner(fact)));
    for at in 0..MEMBERS_MAX {
        pool.decide(signalled(&uid(at), Signal::Request { report: report() }));
    }
    pool
}

#[test]
fn a_member_takes_at_most_64_bytes() {
    let Pool { state, .. } = full();
    assert_eq!(state.enrolled(), MEMBERS_MAX);
    assert_eq!(state.queue().len(), MEMBERS_MAX);
    let bytes = rmp_serde::to_vec_named(&state).unwrap();
    let max = MEMBERS_MAX * MEMBER_BYTES_MAX + REST_BYTES_MAX;
    assert!(bytes.len() <= max, "{} bytes; at most {max}", bytes.len());
    assert_eq!(rmp_serde::from_slice::<State>(&bytes).unwrap(), state);
}

#[test]
fn one_member_too_many_is_turned_away_and_named() {
    let mut pool = full();
    let over = uid(MEMBERS_MAX);
    pool.decide(signalled(&over, Signal::Request { report: report() }));
    assert_eq!(pool.state.enrolled(), MEMBERS_MAX);
    assert_eq!(pool.state.view().turned_away, [over.as_str()]);
    // There is room again: it is asked to enrol.
    pool.text.clear();
    pool.left(&uid(0), false, 0);
    assert!(
        pool.text.contains(&format!("{over}: enrol")),
        "{}",
        pool.text
    );
    pool.decide(signalled(&over, Signal::Member(report())));
    assert_eq!(pool.state.enrolled(), MEMBERS_MAX);
    assert!(pool.state.view().turned_away.is_empty());
}

#[test]
fn a_machine_that_only_its_owner_names_makes_room() {
    let mut pool = full();
    pool.left(&uid(0), false, 0);
    let named = OwnedMachine {
        uid: "named".into(),
        created: Timestamp(1),
        deleting: false,
    };
    let other = |machines| OwnerFact {
        uid: "other".into(),
        name: "other".into(),
        replicas: 1,
        machines,
        ready: Some(1),
        available: Some(1),
    };
    pool.decide(observed(Fact::Owner(other(vec![named]))));
    assert!(pool.state.members.len() == MEMBERS_MAX && pool.state.enrolled() < MEMBERS_MAX);
    pool.decide(signalled(&uid(MEMBERS_MAX), Signal::Member(report())));
    assert_eq!(pool.state.enrolled(), MEMBERS_MAX);
    assert!(pool.state.view().turned_away.is_empty());
}

#[test]
fn who_left_is_forgotten_in_the_end() {
    let mut pool = Pool::of(&["a"]);
    for at in 0..300 {
        pool.decide(signalled(&uid(at), Signal::Member(serving())));
        pool.left(&uid(at), false, 0);
    }
    assert_eq!(pool.text.matches("→ forget ").count(), 300 - 256);
    assert!(pool.text.contains(&format!("→ forget {}", uid(43))));
    assert_eq!(pool.state.departed.len(), 256);
}
