//! Size of a rollout with the most members: it fits into a record.

use crate::rollout_common;

use dormer_engine_core::{EVENTS_PER_RECORD_MAX, InboxMessageOf, Record, Run, Transition, Verdict};
use dormer_proto::{
    envelope::{self, MESSAGE_BYTES_MAX},
    id::{Epoch, Incarnation, LeaseToken, Seq, SignalId, Sum, Timestamp},
    machine::{self, TokenMark},
    message::{
        Ask, Inbound, InboxMessage, ObjectRef, Observation, Refusal, Request, Signalled, Version,
    },
    pool::PoolSettings,
    rollout::{Fact, MEMBERS_MAX, MemberReport, OwnedMachine, OwnerFact, Signal},
    work::{self, machine_run, rollout_run},
};
use dormer_workflows::{Dormer, rollout::State};
use rollout_common::{Pool, observed, serving, signalled};

/// Bytes that one member may cost, encoded as the engine stores it.
const MEMBER_BYTES_MAX: usize = 64;
/// Most machines that are asked to enrol at once: `ASKING_MAX` in `workflows/src/rollout/draft.rs`.
const ASKED_AT_ONCE: usize = 256;
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

fn settings() -> Fact {
    Fact::Pool(PoolSettings {
        paused: true,
        ..PoolSettings::default()
    })
}

fn owner(ready: u32) -> Fact {
    owner_of(ready, 0..MEMBERS_MAX)
}

fn owner_of(ready: u32, machines: impl Iterator<Item = usize>) -> Fact {
    let machines = machines.map(|at| OwnedMachine {
        uid: uid(at),
        created: report().created,
        deleting: false,
    });
    Fact::Owner(OwnerFact {
        autoscaled: false,
        uid: OWNER.into(),
        name: "winworker".into(),
        replicas: 5_000,
        ready: Some(ready),
        available: Some(ready),
        machines: machines.collect(),
    })
}

fn full() -> Pool {
    let mut pool = Pool::new();
    // A pool that is as old as pools get.
    pool.state.tick = u64::MAX >> 8;
    pool.state.token = LeaseToken(u64::MAX >> 8);
    pool.decide(observed(settings()));
    pool.decide(observed(owner(4_999)));
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

/// Room that the first cannot use is the next one's.
#[test]
fn one_that_was_turned_away_and_has_no_run_any_more_is_passed_over() {
    let mut pool = full();
    let two = [uid(MEMBERS_MAX), uid(MEMBERS_MAX + 1)];
    for over in &two {
        pool.decide(signalled(over, Signal::Request { report: report() }));
    }
    assert_eq!(pool.state.view().turned_away.len(), 2);
    pool.text.clear();
    pool.left(&uid(0), false, 0);
    let asked = |text: &str, over: &str| text.contains(&format!("{over}: enrol"));
    let [other, gone] = &two;
    assert!(
        asked(&pool.text, gone) && !asked(&pool.text, other),
        "{}",
        pool.text
    );
    pool.text.clear();
    pool.refused(gone, machine::Signal::Enrol, Refusal::Unknown);
    assert!(asked(&pool.text, other), "{}", pool.text);
    assert!(pool.state.view().turned_away.is_empty());
}

#[test]
fn a_machine_that_only_its_owner_names_makes_room() {
    let mut pool = full_with_one_spare();
    pool.decide(signalled(&uid(MEMBERS_MAX), Signal::Member(report())));
    assert_eq!(pool.state.enrolled(), MEMBERS_MAX);
    assert!(pool.state.view().turned_away.is_empty());
}

/// As many members as there may be. One of them is only named by its owner.
fn full_with_one_spare() -> Pool {
    let mut pool = full();
    pool.left(&uid(0), false, 0);
    let named = OwnedMachine {
        uid: "named".into(),
        created: Timestamp(1),
        deleting: false,
    };
    let other = |machines| OwnerFact {
        autoscaled: false,
        uid: "other".into(),
        name: "other".into(),
        replicas: 1,
        machines,
        ready: Some(1),
        available: Some(1),
    };
    pool.decide(observed(Fact::Owner(other(vec![named]))));
    assert!(pool.state.members.len() == MEMBERS_MAX && pool.state.enrolled() < MEMBERS_MAX);
    pool
}

#[test]
fn a_machine_that_only_its_owner_names_makes_room_for_a_stranger() {
    let mut pool = full_with_one_spare();
    let stranger = uid(MEMBERS_MAX);
    let second = uid(MEMBERS_MAX + 1);
    for machine in [&stranger, &second] {
        pool.text.clear();
        pool.feed("", signalled(machine, Signal::Withdraw));
        let asked = pool.text.contains(&format!("{machine}: enrol"));
        assert_eq!(asked, *machine == stranger, "{}", pool.text);
    }
    assert_eq!(pool.state.view().turned_away, [second.as_str()]);
    // There is room again: the first one has no run.
    pool.text.clear();
    pool.refused(&stranger, machine::Signal::Enrol, Refusal::Unknown);
    assert!(
        pool.text.contains(&format!("{second}: enrol")),
        "{}",
        pool.text
    );
    pool.decide(signalled(&second, Signal::Member(report())));
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

/// What a message to a run says.
type Body = Inbound<work::Fact, machine::Outcome, work::Signal>;

/// Whole records of a run: its state, the senders that it remembers, and what it took.
struct Recorded {
    run: Option<Run<Dormer>>,
    at: Timestamp,
    /// Largest record so far, as the store gets it.
    largest: usize,
}

impl Recorded {
    fn take(&mut self, bodies: Vec<Body>) {
        let ours = Incarnation(u64::MAX);
        let id = rollout_run("windows").expect("a run");
        let mut transition = self.run.take().map(|run| Transition::of(run, self.at));
        for body in bodies {
            let message: InboxMessageOf<Dormer> = InboxMessage {
                run: id.clone(),
                incarnation: Some(ours),
                body,
            };
            let transition = transition.get_or_insert_with(|| {
                Transition::begin(self.at, ours, &message).expect("a start")
            });
            assert_eq!(
                transition.offer(ours, message, None).verdict,
                Verdict::Taken
            );
        }
        let finished = transition.and_then(|it| it.finish("dormer 99.99.99", Vec::new()));
        let (Record { run, .. }, bytes) = finished
            .map(|(record, _)| {
                let bytes = envelope::encode(&record, work::SCHEMA)
                    .expect("it fits")
                    .0
                    .len();
                (record, bytes)
            })
            .expect("a record");
        self.largest = self.largest.max(bytes);
        let mut run = run;
        run.set_sum(Sum(u64::MAX));
        self.run = Some(run);
    }
}

fn fact(kind: &str, resource: u64, fact: Fact) -> Body {
    let object = ObjectRef {
        cluster: String::new(),
        kind: kind.into(),
        uid: OWNER.into(),
    };
    let version = Version {
        epoch: Epoch(u64::MAX >> 8),
        resource,
    };
    Inbound::Observed(Observation {
        object,
        version,
        fact: Some(work::Fact::Rollout(fact)),
        may_start: true,
    })
}

fn asks(at: usize) -> Body {
    Inbound::Signalled(Signalled {
        from: machine_run(&uid(at)).expect("a run"),
        id: SignalId {
            seq: Seq(u64::from(u32::MAX)),
            ordinal: 7,
        },
        issued: Sum(u64::MAX),
        signal: work::Signal::Rollout(Signal::Request { report: report() }),
    })
}

/// Request of a person, with an id as the command line draws it.
fn request(n: u32) -> Body {
    Inbound::Requested(Request {
        id: format!("cli-{n:032x}"),
        who: "ann".into(),
        why: String::new(),
        against: Seq(0),
        ask: Ask::Signal(work::Signal::Rollout(Signal::Pause)),
    })
}

#[test]
fn the_whole_record_of_a_full_pool_fits_and_who_was_turned_away_leaves_nothing_in_it() {
    let at = Timestamp(1_700_000_000_000);
    let mut pool = Recorded {
        run: None,
        at,
        largest: 0,
    };
    pool.take(vec![fact("Pool", 1, settings())]);
    let all: Vec<usize> = (0..MEMBERS_MAX).collect();
    for page in all.chunks(EVENTS_PER_RECORD_MAX) {
        pool.take(page.iter().map(|at| asks(*at)).collect());
    }
    // Thousands more than there is room for.
    for page in (MEMBERS_MAX..MEMBERS_MAX + 4_096)
        .collect::<Vec<_>>()
        .chunks(256)
    {
        pool.take(page.iter().map(|at| asks(*at)).collect());
    }
    // As many requests of people as it remembers.
    let requests: Vec<u32> = (0..1_000).collect();
    for page in requests.chunks(EVENTS_PER_RECORD_MAX) {
        pool.take(page.iter().map(|n| request(*n)).collect());
    }
    // The largest event alone: a MachineSet with every Machine of the pool.
    pool.take(vec![fact("MachineSet", 1, owner(4_999))]);
    let run = pool.run.as_ref().expect("a run");
    assert_eq!(run.taken.len(), MEMBERS_MAX, "members, and nobody else");
    assert_eq!(run.outbox.len(), 0);
    let spare = MESSAGE_BYTES_MAX.saturating_sub(pool.largest);
    assert!(spare >= MESSAGE_BYTES_MAX / 20, "{} bytes", pool.largest);

    // The same event while members that the MachineSet no longer names are asked to enrol, and none has answered yet.
    let unnamed = 3 * ASKED_AT_ONCE;
    let named = 0..MEMBERS_MAX - unnamed;
    let fewer = owner_of(1, named.clone());
    pool.take(vec![fact("MachineSet", 2, fewer)]);
    pool.at = pool.at.plus_ms(60_000);
    pool.take(vec![Inbound::TimerDue]);
    let others = MEMBERS_MAX..MEMBERS_MAX + unnamed;
    let as_many = owner_of(4_999, named.chain(others));
    pool.take(vec![fact("MachineSet", 3, as_many)]);
    let spare = MESSAGE_BYTES_MAX.saturating_sub(pool.largest);
    assert!(spare >= MESSAGE_BYTES_MAX / 100, "{} bytes", pool.largest);
    let run = pool.run.as_ref().expect("a run");
    assert_eq!(run.outbox.len(), ASKED_AT_ONCE);
    assert_eq!(run.taken.len(), MEMBERS_MAX);
}
