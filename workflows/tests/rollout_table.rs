//! Generated transition table of the rollout: every kind of state with every input, its signals, and the next state.

use crate::rollout_common;

use dormer_engine_core::{Input, Sender, Workflow};
use dormer_proto::{
    id::{LeaseToken, Timestamp},
    machine,
    message::Refusal,
    pool::PoolSettings,
    rollout::{Fact, MemberReport, OwnedMachine, OwnerFact, Signal},
    work,
};
use dormer_workflows::rollout::{Rollout, Timer};
use expect_test::expect_file;
use rollout_common::{
    Pool, SET, barred, carrying, coming, down, failed, going, granted, object, observed, serving,
    signalled, spell, state_line, terms, wanting,
};
use std::fmt::Write as _;

type Make = fn() -> Pool;

/// Two members, `a` first; where there is a replacement, it is `r`.
fn kinds() -> Vec<(&'static str, Make)> {
    vec![
        ("new", Pool::new),
        ("enrolling", || {
            let mut pool = Pool::new();
            pool.settings(PoolSettings::default())
                .listed(&["a", "b"])
                .request("b");
            pool
        }),
        ("idle", || Pool::of(&["a", "b"])),
        ("a is down, b waits", || {
            let mut pool = Pool::of(&["a", "b"]);
            pool.member("a", down()).request("b");
            pool
        }),
        ("a holds, b waits", held),
        ("a holds and has failed, b waits", || {
            let mut pool = held();
            pool.member("a", failed());
            pool
        }),
        ("a holds and is being deleted, b waits", || {
            let mut pool = held();
            pool.member("a", going())
                .owner(2, &["b", "r"], &["a"])
                .member("r", coming(1));
            pool
        }),
        ("a is to be replaced, b waits", vacant),
        ("a is to be replaced, r is coming, b waits", || {
            let mut pool = vacant();
            pool.owner(2, &["b", "r"], &[]).member("r", coming(1));
            pool
        }),
        ("a is to be replaced, r has failed, b waits", || {
            let mut pool = vacant();
            pool.member(
                "r",
                MemberReport {
                    failed: true,
                    ..coming(1)
                },
            );
            pool
        }),
        ("a is missing, b waits", || {
            let mut pool = Pool::of(&["a", "b"]);
            pool.left("a", true, 1_000).request("b");
            pool
        }),
        ("a is missing, its owner is unknown, b waits", || {
            let mut pool = Pool::of(&["b"]);
            let owner = Some("other".to_owned());
            let deleted = Some(Timestamp(1_000));
            let left = Signal::Left {
                owner,
                gap: true,
                stays: false,
                never_served: false,
                token: None,
                deleted,
            };
            pool.signal("a", "left", left);
            pool.request("b").wait_ms(16 * 60_000);
            pool
        }),
        ("paused, b waits", || {
            let mut pool = Pool::of(&["a", "b"]);
            pool.person(Signal::Pause).request("b");
            pool
        }),
        ("b waits and is barred", || {
            let mut pool = Pool::of(&["a", "b"]);
            pool.settings(wanting(terms())).request_as("b", barred());
            pool
        }),
        ("a carries an open token, b waits", || {
            let mut pool = Pool::of(&["a", "b"]);
            pool.member("a", carrying(7)).request("b");
            pool
        }),
    ]
}

fn held() -> Pool {
    let mut pool = Pool::of(&["a", "b"]);
    pool.request("a").request("b");
    pool
}

fn vacant() -> Pool {
    let mut pool = held();
    pool.replace("a", 1, 1_000);
    pool
}

fn owner(replicas: u32, uids: &[&str]) -> Input<Rollout> {
    let machine = |uid: &&str| OwnedMachine {
        uid: (*uid).to_owned(),
        created: Timestamp(1_000),
        deleting: false,
    };
    let machines = uids.iter().map(machine).collect();
    observed(Fact::Owner(OwnerFact {
        autoscaled: false,
        uid: SET.into(),
        name: "winset".into(),
        replicas,
        machines,
        ready: None,
        available: None,
    }))
}

fn refused(signal: machine::Signal, why: Refusal) -> Input<Rollout> {
    let to = work::machine_run("a").unwrap();
    Input::Refused {
        to,
        signal: work::Signal::Machine(signal),
        why,
    }
}

fn by_a_person(signal: Signal) -> Input<Rollout> {
    let from = Sender::Person {
        who: "ann".into(),
        why: String::new(),
    };
    Input::Signalled {
        from,
        signal: work::Signal::Rollout(signal),
    }
}

fn inputs() -> Vec<(&'static str, Input<Rollout>)> {
    let release = |replaced| Signal::Release {
        token: LeaseToken(1),
        replaced,
        deleted: replaced.then_some(Timestamp(1_000)),
    };
    let left = |gap, token| Signal::Left {
        owner: Some(SET.into()),
        gap,
        stays: false,
        never_served: false,
        token,
        deleted: Some(Timestamp(1_000)),
    };
    let closed = Signal::Left {
        owner: Some(SET.into()),
        gap: false,
        stays: true,
        never_served: false,
        token: None,
        deleted: None,
    };
    let paused = PoolSettings {
        paused: true,
        ..PoolSettings::default()
    };
    let strange = work::Signal::Machine(machine::Signal::Retry);
    let from = Sender::Run(work::machine_run("a").unwrap());
    vec![
        ("started", Input::Started),
        ("a serves", signalled("a", Signal::Member(serving()))),
        ("a is down", signalled("a", Signal::Member(down()))),
        ("a has failed", signalled("a", Signal::Member(failed()))),
        (
            "a is being deleted",
            signalled("a", Signal::Member(going())),
        ),
        (
            "a carries an open token",
            signalled("a", Signal::Member(carrying(9))),
        ),
        ("r serves", signalled("r", Signal::Member(serving()))),
        (
            "a asks",
            signalled("a", Signal::Request { report: serving() }),
        ),
        (
            "a asks, being down",
            signalled("a", Signal::Request { report: down() }),
        ),
        (
            "a asks, being barred",
            signalled("a", Signal::Request { report: barred() }),
        ),
        (
            "b asks",
            signalled("b", Signal::Request { report: serving() }),
        ),
        ("b withdraws", signalled("b", Signal::Withdraw)),
        ("x withdraws", signalled("x", Signal::Withdraw)),
        ("a releases", signalled("a", release(false))),
        ("a releases, replaced", signalled("a", release(true))),
        ("b releases what a holds", signalled("b", release(false))),
        ("a leaves", signalled("a", left(false, None))),
        ("a leaves, its Machine stays", signalled("a", closed)),
        ("a leaves a gap", signalled("a", left(true, None))),
        (
            "a leaves with the lease",
            signalled("a", left(false, Some(LeaseToken(1)))),
        ),
        ("a person pauses", by_a_person(Signal::Pause)),
        ("a person resumes", by_a_person(Signal::Resume)),
        (
            "a person goes back",
            by_a_person(Signal::Rollback {
                to: "11.0.0".into(),
            }),
        ),
        ("a person goes forward", by_a_person(Signal::EndRollback)),
        ("a person enrols", by_a_person(Signal::Member(serving()))),
        ("settings", observed(Fact::Pool(PoolSettings::default()))),
        (
            "settings, with a payload",
            observed(Fact::Pool(wanting(terms()))),
        ),
        ("settings, paused", observed(Fact::Pool(paused))),
        ("the owner has a and b of 2", owner(2, &["a", "b"])),
        ("the owner has b of 2", owner(2, &["b"])),
        ("the owner has b of 1", owner(1, &["b"])),
        (
            "the owner is gone",
            Input::Observed {
                object: object(SET),
                fact: None,
            },
        ),
        (
            "a and b have a Node",
            observed(Fact::Listed {
                with_node: vec!["a".into(), "b".into()],
                sets: None,
            }),
        ),
        (
            "no Machine has a Node",
            observed(Fact::Listed {
                with_node: Vec::new(),
                sets: Some(vec![SET.into()]),
            }),
        ),
        (
            "a refuses the grant, closed",
            refused(granted(1), Refusal::Closed),
        ),
        (
            "a refuses the grant, unknown",
            refused(granted(1), Refusal::Unknown),
        ),
        (
            "a refuses to enrol, closed",
            refused(machine::Signal::Enrol, Refusal::Closed),
        ),
        (
            "a refuses to enrol, unknown",
            refused(machine::Signal::Enrol, Refusal::Unknown),
        ),
        ("timer Ask", Input::Fired(Timer::Ask)),
        ("timer OwnerCheck", Input::Fired(Timer::OwnerCheck)),
        (
            "a machine's signal",
            Input::Signalled {
                from,
                signal: strange,
            },
        ),
    ]
}

fn table() -> String {
    let mut text = String::new();
    for (kind, make) in kinds() {
        let before = state_line(&make().state);
        let _ = writeln!(text, "{kind}: {before}");
        let mut nothing = Vec::new();
        for (what, input) in inputs() {
            let mut pool = make();
            let commands = pool.decide(input);
            let after = state_line(&pool.state);
            let sent = commands
                .iter()
                .map(spell)
                .chain((after != before).then_some(after));
            let sent: Vec<_> = sent.collect();
            if sent.is_empty() {
                nothing.push(what);
            } else {
                let _ = writeln!(text, "    {what:29} → {}", sent.join("; "));
            }
        }
        let _ = writeln!(text, "    nothing follows from: {}", nothing.join("; "));
    }
    text
}

#[test]
fn the_table_holds() {
    expect_file!["rollout_table.txt"].assert_eq(&table());
}

#[test]
fn a_reset_keeps_what_is_the_world_s() {
    for (kind, make) in kinds() {
        let mut pool = make();
        let then = pool.state.clone();
        pool.person(Signal::Pause).request("c");
        let current = pool.state.clone();
        let run = work::rollout_run("windows").unwrap();
        let now = dormer_engine_core::Now {
            run: &run,
            seq: dormer_proto::id::Seq(1_000),
            at: Timestamp(1_000_000),
        };
        let reset = Rollout::reset(now, then.clone(), &current);
        assert_eq!(reset.state.pause, then.pause, "{kind}");
        assert_eq!(reset.state.members.len(), current.members.len(), "{kind}");
        assert!(reset.state.token >= current.token, "{kind}");
        assert!(reset.state.slots.len() >= current.slots.len(), "{kind}");
    }
}
