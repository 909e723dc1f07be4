//! Fences: the rules of opening and closing, and the effect on the cordon.

use super::bench::Bench;
use dormer_fleet::api::{DeleteOptions, Key, Meta, User, kinds};
use dormer_proto::{
    id::LeaseToken,
    machine::{FenceRefusal, Guard, MachineRef, Outcome, Task, TokenMark},
};
use dormer_workers::kubernetes::keys;
use serde_json::json;

fn open(machine: &MachineRef, token: u64) -> Task {
    opening(machine, token, false, true)
}

fn opening(machine: &MachineRef, token: u64, over_limit: bool, cordon: bool) -> Task {
    let node = Some(machine.name.clone());
    Task::OpenFence {
        machine: machine.clone(),
        node,
        token: LeaseToken(token),
        over_limit,
        cordon,
        guard: Guard::default(),
    }
}

fn close(machine: &MachineRef, token: u64) -> Task {
    let node = Some(machine.name.clone());
    Task::CloseFence {
        machine: machine.clone(),
        node,
        token: LeaseToken(token),
    }
}

fn delete(machine: &MachineRef, token: u64) -> Task {
    Task::DeleteMachine {
        machine: machine.clone(),
        token: LeaseToken(token),
        guard: Guard::default(),
    }
}

fn refused(why: FenceRefusal) -> Outcome {
    Outcome::FenceRefused {
        why,
        said: String::new(),
    }
}

const OPENED: Outcome = Outcome::FenceOpened {
    was_cordoned: false,
};

#[tokio::test]
async fn a_fence_opens_cordons_closes_and_never_opens_again() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    for _ in 0..2 {
        assert_eq!(
            bench.run(open(m, 5)).await,
            Ok(OPENED),
            "the first, and a repeat"
        );
        assert_eq!(bench.marks(m), [Some((5, true)); 2]);
        assert!(bench.cordoned(m));
    }
    bench.patch_node(m, json!({"spec": {"unschedulable": null}}));
    assert_eq!(
        bench.run(open(m, 5)).await,
        Ok(OPENED),
        "a repeat cordons again"
    );
    assert!(bench.cordoned(m));
    for _ in 0..2 {
        assert_eq!(bench.run(close(m, 5)).await, Ok(Outcome::FenceClosed));
        assert_eq!(bench.marks(m), [Some((5, false)); 2]);
        assert!(!bench.cordoned(m));
    }
    for stale in [5, 4] {
        assert_eq!(
            bench.run(open(m, stale)).await,
            Ok(refused(FenceRefusal::Superseded))
        );
        assert_eq!(bench.run(close(m, stale)).await, Ok(Outcome::FenceClosed));
        assert_eq!(
            bench.marks(m),
            [Some((5, false)); 2],
            "and nothing is written"
        );
    }
    assert_eq!(bench.run(open(m, 6)).await, Ok(OPENED));
    assert_eq!(bench.marks(m), [Some((6, true)); 2]);
    assert_eq!(bench.run(close(m, 5)).await, Ok(Outcome::FenceClosed));
    assert_eq!(
        bench.marks(m),
        [Some((6, true)); 2],
        "an old close leaves a newer lease alone"
    );
}

#[tokio::test]
async fn the_autoscaler_takes_no_node_from_under_its_token_and_a_persons_word_stays() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let word = || {
        let node = bench
            .world
            .api
            .store()
            .get(kinds::NODE.store, &Key::new("", &m.name));
        let annotations = node.expect("a Node").value["metadata"]["annotations"].clone();
        let text = |key: &str| annotations[key].as_str().map(str::to_owned);
        (text(keys::NO_SCALE_DOWN), text(keys::HELD_FROM_SCALE_DOWN))
    };
    let annotate = |value: &str| {
        bench.patch_node(
            m,
            json!({"metadata": {"annotations": {keys::NO_SCALE_DOWN: value}}}),
        );
    };
    let yes = || Some("true".to_owned());
    // A restart, too, takes the node for a while.
    for (token, cordon) in [(1, true), (2, false)] {
        for _ in 0..2 {
            assert_eq!(
                bench.run(opening(m, token, false, cordon)).await,
                Ok(OPENED)
            );
            assert_eq!(word(), (yes(), yes()), "ours");
        }
        assert_eq!(bench.run(close(m, token)).await, Ok(Outcome::FenceClosed));
        assert_eq!(word(), (None, None), "it goes with the fence");
    }
    assert_eq!(bench.run(open(m, 3)).await, Ok(OPENED));
    annotate("false");
    assert_eq!(bench.run(close(m, 3)).await, Ok(Outcome::FenceClosed));
    assert_eq!(
        word(),
        (Some("false".to_owned()), None),
        "a person's since then"
    );
    annotate("true");
    assert_eq!(bench.run(open(m, 4)).await, Ok(OPENED));
    assert_eq!(word(), (yes(), None), "a person's before");
    assert_eq!(bench.run(close(m, 4)).await, Ok(Outcome::FenceClosed));
    assert_eq!(word(), (yes(), None), "it stays");
}

#[tokio::test]
async fn a_close_that_comes_first_wins() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    assert_eq!(bench.run(close(m, 3)).await, Ok(Outcome::FenceClosed));
    assert_eq!(bench.marks(m), [Some((3, false)); 2]);
    assert_eq!(
        bench.run(open(m, 3)).await,
        Ok(refused(FenceRefusal::Superseded))
    );
    assert!(!bench.cordoned(m));
}

/// A kubelet may annotate its own Node: a greater token there does not keep the fence from opening or closing.
#[tokio::test]
async fn a_host_that_writes_a_token_on_its_own_node_is_upgraded_all_the_same() {
    for forged in [100, u64::MAX] {
        for word in ["open", "closed"] {
            let bench = Bench::new(1, false).await;
            let m = &bench.machines()[0];
            let mark =
                json!({"metadata": {"annotations": {keys::FENCE: format!("{forged} {word}")}}});
            bench.patch_node(m, mark.clone());
            assert_eq!(bench.run(open(m, 5)).await, Ok(OPENED), "{forged} {word}");
            assert_eq!(bench.marks(m), [Some((5, true)); 2]);
            // And in the middle of its upgrade.
            bench.patch_node(m, mark);
            assert_eq!(bench.run(close(m, 5)).await, Ok(Outcome::FenceClosed));
            assert_eq!(bench.marks(m), [Some((5, false)); 2]);
            assert!(!bench.cordoned(m));
        }
    }
}

/// Tokens that an earlier build wrote past what it read itself.
#[tokio::test]
async fn every_token_that_is_written_is_read() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let token = u64::MAX / 2 + 7;
    assert_eq!(bench.run(open(m, token)).await, Ok(OPENED));
    assert_eq!(bench.marks(m), [Some((token, true)); 2]);
    assert_eq!(bench.run(close(m, token)).await, Ok(Outcome::FenceClosed));
    assert_eq!(
        bench.run(open(m, token)).await,
        Ok(refused(FenceRefusal::Superseded))
    );
    assert_eq!(bench.run(open(m, token + 1)).await, Ok(OPENED));
}

#[tokio::test]
async fn a_node_that_another_machine_holds_is_not_closed_by_its_name() {
    let bench = Bench::new(2, false).await;
    let [ours, theirs] = &bench.machines()[..] else {
        panic!("two machines")
    };
    assert_eq!(bench.run(open(theirs, 3)).await, Ok(OPENED));
    let by_name = |token| Task::CloseFence {
        machine: ours.clone(),
        node: Some(theirs.name.clone()),
        token: LeaseToken(token),
    };
    assert_eq!(bench.run(by_name(5)).await, Ok(Outcome::FenceClosed));
    assert_eq!(bench.marks(ours)[0], Some((5, false)));
    assert_eq!(
        bench.marks(theirs),
        [Some((3, true)); 2],
        "another holder's"
    );
    assert!(bench.cordoned(theirs));
}

/// A person keeps the Node out of service, and no fact of it has arrived yet. Nothing is written on either object.
#[tokio::test]
async fn a_node_that_a_person_cordoned_is_not_taken() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let cordon = json!({"spec": {"unschedulable": true}});
    let lifted = json!({"spec": {"unschedulable": null}});
    bench.patch_node(m, cordon.clone());
    for cordons in [true, false] {
        let outcome = bench.run(opening(m, 1, false, cordons)).await;
        let Ok(Outcome::FenceRefused { why, said }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(why, FenceRefusal::Cordoned);
        assert!(said.contains("another client cordoned"), "{said}");
        assert_eq!(bench.marks(m), [None, None]);
    }
    assert_eq!(bench.run(close(m, 1)).await, Ok(Outcome::FenceClosed));
    assert!(bench.cordoned(m), "the person's cordon stays");
    bench.patch_node(m, lifted.clone());
    for token in [2, 2, 3] {
        assert_eq!(
            bench.run(open(m, token)).await,
            Ok(OPENED),
            "dormer's own cordon, of this lease or of an earlier one, is not taken for a person's"
        );
    }
    assert_eq!(bench.run(close(m, 3)).await, Ok(Outcome::FenceClosed));
    assert!(!bench.cordoned(m));
    // A change that needs no cordon: one that a person makes meanwhile stays.
    assert_eq!(bench.run(opening(m, 4, false, false)).await, Ok(OPENED));
    assert!(!bench.cordoned(m));
    bench.patch_node(m, cordon);
    assert_eq!(bench.run(close(m, 4)).await, Ok(Outcome::FenceClosed));
    assert!(bench.cordoned(m));
}

/// The host of a change without a drain asks for a reboot, and a person has cordoned its Node meanwhile.
#[tokio::test]
async fn a_cordon_that_a_person_made_during_a_restart_is_not_taken_for_dormers() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    assert_eq!(bench.run(opening(m, 7, false, false)).await, Ok(OPENED));
    bench.patch_node(m, json!({"spec": {"unschedulable": true}}));
    let outcome = bench.run(opening(m, 7, false, true)).await;
    let Ok(Outcome::FenceRefused { why, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(why, FenceRefusal::Cordoned);
    assert_eq!(bench.run(close(m, 7)).await, Ok(Outcome::FenceClosed));
    assert!(bench.cordoned(m), "the person's cordon stays");
    // Lifted, it is dormer's own.
    bench.patch_node(m, json!({"spec": {"unschedulable": null}}));
    for cordon in [false, true, true] {
        assert_eq!(bench.run(opening(m, 8, false, cordon)).await, Ok(OPENED));
    }
    assert_eq!(bench.run(close(m, 8)).await, Ok(Outcome::FenceClosed));
    assert!(!bench.cordoned(m));
}

/// An older store granted a lease that nothing closed. Budgets would be ignored at once in the next one's drain.
#[tokio::test]
async fn the_time_of_an_earlier_leases_drain_is_not_that_of_the_next() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let since = || bench.machine(m)["metadata"]["annotations"][keys::DRAINED_SINCE].clone();
    assert_eq!(bench.run(open(m, 5)).await, Ok(OPENED));
    assert!(since().is_string());
    assert_eq!(bench.run(opening(m, 7, false, false)).await, Ok(OPENED));
    assert!(since().is_null(), "{}", since());
    assert_eq!(bench.run(open(m, 7)).await, Ok(OPENED));
    assert!(since().is_string(), "its own");
}

/// A kubelet may write annotations of its own Node, but none of its Machine: it would undo a person's cordon, or skip the
/// wait before a repair over the limit. A Machine that had a lease keeps that one's token, closed.
#[tokio::test]
async fn a_token_that_only_the_node_has_open_does_not_make_a_persons_cordon_dormers() {
    for had_a_lease in [false, true] {
        let bench = Bench::new(1, false).await;
        let m = &bench.machines()[0];
        if had_a_lease {
            assert_eq!(bench.run(open(m, 3)).await, Ok(OPENED));
            assert_eq!(bench.run(close(m, 3)).await, Ok(Outcome::FenceClosed));
        }
        let open_mark = TokenMark {
            token: LeaseToken(3),
            open: true,
        };
        let forged = json!({
            "metadata": {"annotations": {
                keys::FENCE: keys::fence_text(open_mark), keys::WAS_CORDONED: "false"}},
            "spec": {"unschedulable": true}
        });
        bench.patch_node(m, forged);
        let outcome = bench.run(open(m, 5)).await;
        let Ok(Outcome::FenceRefused { why, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(why, FenceRefusal::Cordoned);
        // It is silent for a moment only.
        bench.node_says_ready(m, "Unknown");
        bench.patch_node(m, json!({"spec": {"unschedulable": null}}));
        let over_limit = Task::OpenFence {
            machine: m.clone(),
            node: Some(m.name.clone()),
            token: LeaseToken(5),
            over_limit: true,
            cordon: true,
            guard: Guard {
                down_ms: Some(600_000),
                ..Guard::default()
            },
        };
        let waits = bench.run(over_limit).await.expect_err("it waits");
        assert_eq!(waits.code, "NodeDownTooShort");
        // With the person's cordon gone it is opened: dormer's own.
        assert_eq!(bench.run(open(m, 5)).await, Ok(OPENED));
        assert_eq!(bench.run(close(m, 5)).await, Ok(Outcome::FenceClosed));
        assert!(!bench.cordoned(m));
    }
}

#[tokio::test]
async fn a_grant_over_the_limit_is_refused_by_a_node_that_serves() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let over_limit = opening(m, 1, true, true);
    let serves = |outcome| {
        let why = FenceRefusal::NodeServes;
        assert!(
            matches!(&outcome, Ok(Outcome::FenceRefused { why: it, .. }) if *it == why),
            "{outcome:?}"
        );
    };
    serves(bench.run(over_limit.clone()).await);
    // A cordon entitles to nothing: the node is Ready, and may be uncordoned at any moment.
    bench.patch_node(m, json!({"spec": {"unschedulable": true}}));
    serves(bench.run(over_limit.clone()).await);
    assert_eq!(bench.marks(m), [None, None], "nothing was written");
    bench.node_says_ready(m, "Unknown");
    let kept = bench.run(over_limit.clone()).await;
    let Ok(Outcome::FenceRefused { why, .. }) = kept else {
        panic!("{kept:?}");
    };
    assert_eq!(why, FenceRefusal::Cordoned, "a person may be at work on it");
    bench.patch_node(m, json!({"spec": {"unschedulable": null}}));
    assert_eq!(bench.run(over_limit).await, Ok(OPENED));
}

#[tokio::test]
async fn a_machine_is_deleted_under_its_open_token_alone() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let closed = Ok(Outcome::FenceClosedMeanwhile);
    assert_eq!(bench.run(delete(m, 1)).await, closed, "never opened");
    assert_eq!(bench.run(open(m, 1)).await, Ok(OPENED));
    assert_eq!(bench.run(delete(m, 2)).await, closed, "another token");
    assert_eq!(bench.run(close(m, 1)).await, Ok(Outcome::FenceClosed));
    assert_eq!(bench.run(delete(m, 1)).await, closed);
    assert!(!bench.machine(m).deleting());
    assert_eq!(bench.run(open(m, 2)).await, Ok(OPENED));
    let deleted = Ok(Outcome::MachineDeleted);
    assert_eq!(bench.run(delete(m, 2)).await, deleted);
    assert_eq!(bench.run(delete(m, 2)).await, deleted, "a repeat");
    bench
        .until("it is gone", || bench.machine(m).is_null())
        .await;
    assert_eq!(bench.run(delete(m, 2)).await, deleted);
    assert_eq!(bench.run(open(m, 2)).await, Ok(refused(FenceRefusal::Gone)));
    assert_eq!(
        bench.run(close(m, 2)).await,
        deleted,
        "the slot waits for its replacement"
    );
}

#[tokio::test]
async fn another_machine_of_that_name_is_left_alone() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let old = MachineRef {
        uid: "another".into(),
        ..m.clone()
    };
    assert_eq!(
        bench.run(open(&old, 1)).await,
        Ok(refused(FenceRefusal::Gone))
    );
    assert_eq!(
        bench.run(delete(&old, 1)).await,
        Ok(Outcome::MachineDeleted)
    );
    assert_eq!(bench.marks(&m), [None, None]);
    assert!(!bench.machine(&m).deleting());
}

#[tokio::test]
async fn a_fence_without_a_node_is_kept_on_the_machine() {
    let bench = Bench::new(1, false).await;
    let m = &bench.machines()[0];
    let alone = Task::OpenFence {
        machine: m.clone(),
        node: None,
        token: LeaseToken(1),
        over_limit: false,
        cordon: true,
        guard: Guard::default(),
    };
    assert_eq!(bench.run(alone).await, Ok(OPENED));
    assert_eq!(bench.marks(m), [Some((1, true)), None]);
    let key = Key::new("", m.name.as_str());
    let gone = bench
        .world
        .api
        .delete(&User::admin(), &kinds::NODE, &key, &DeleteOptions::now());
    gone.expect("it is deleted");
    assert_eq!(
        bench.run(open(m, 2)).await,
        Ok(OPENED),
        "a Node that is gone needs no fence"
    );
    assert_eq!(bench.run(close(m, 2)).await, Ok(Outcome::FenceClosed));
    assert_eq!(bench.marks(m)[0], Some((2, false)));
}
