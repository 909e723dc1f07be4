//! Worker that sleeps between any two of its calls, and wakes after its run has closed the token.

use super::bench::Bench;
use dormer_fleet::api::Meta;
use dormer_proto::{
    id::LeaseToken,
    machine::{FenceRefusal, Guard, MachineRef, Outcome, Task},
};
use serde_json::json;

/// Does `task` again and again, each time asleep at a later call while the token is closed, until it is done before
/// that. Each round has a token of its own; `prepared`: the token is opened
/// before it.
async fn asleep_at_each_call(
    bench: &Bench,
    m: &MachineRef,
    prepared: bool,
    task: impl Fn(u64) -> Task,
    check: impl Fn(u32, Outcome),
) -> u32 {
    for skip in 0.. {
        let token = u64::from(skip) + 10;
        if prepared {
            let opened = bench.run(open(m, token)).await;
            assert_eq!(
                opened,
                Ok(Outcome::FenceOpened {
                    was_cordoned: false
                })
            );
        }
        let there = bench.clone();
        let machine = m.clone();
        bench
            .gate
            .before(skip, move || there.close_at_once(&machine, token));
        let outcome = bench.run(task(token)).await.expect("an outcome");
        if !bench.gate.passed().1 {
            return skip;
        }
        assert_eq!(
            bench.marks(m),
            [Some((token, false)); 2],
            "asleep at call {skip}"
        );
        assert!(!bench.cordoned(m), "asleep at call {skip}");
        check(skip, outcome);
    }
    unreachable!("some round ends before the close")
}

fn open(machine: &MachineRef, token: u64) -> Task {
    let node = Some(machine.name.clone());
    let token = LeaseToken(token);
    Task::OpenFence {
        machine: machine.clone(),
        node,
        token,
        over_limit: false,
        cordon: true,
        guard: Guard::default(),
    }
}

#[tokio::test]
async fn a_sleeper_opens_nothing() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let superseded = Outcome::FenceRefused {
        why: FenceRefusal::Superseded,
        said: String::new(),
    };
    let calls = asleep_at_each_call(
        &bench,
        &m,
        false,
        |token| open(&m, token),
        |_, outcome| {
            assert_eq!(outcome, superseded);
        },
    )
    .await;
    assert!(calls >= 4, "two reads and two writes, not {calls}");
}

#[tokio::test]
async fn a_sleeper_deletes_nothing() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let delete = |token| Task::DeleteMachine {
        machine: m.clone(),
        token: LeaseToken(token),
        guard: Guard::default(),
    };
    let calls = asleep_at_each_call(&bench, &m, true, delete, |skip, outcome| {
        assert_eq!(
            outcome,
            Outcome::FenceClosedMeanwhile,
            "asleep at call {skip}"
        );
        assert!(!bench.machine(&m).deleting());
    })
    .await;
    assert!(calls >= 2, "a read and the DELETE, not {calls}");
}

#[tokio::test]
async fn a_sleeper_closes_no_later_lease() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    for skip in 0..4 {
        let token = 10 + 2 * u64::from(skip);
        bench.run(open(&m, token)).await.expect("it opens");
        let there = bench.clone();
        let machine = m.clone();
        bench.gate.before(skip, move || {
            there.close_at_once(&machine, token);
            there.open_at_once(&machine, token + 1);
        });
        let node = Some(m.name.clone());
        let token = LeaseToken(token);
        let close = Task::CloseFence {
            machine: m.clone(),
            node,
            token,
        };
        assert_eq!(bench.run(close).await, Ok(Outcome::FenceClosed));
        assert_eq!(
            bench.marks(&m),
            [Some((token.0 + 1, true)); 2],
            "asleep at call {skip}"
        );
        assert!(bench.cordoned(&m), "asleep at call {skip}");
    }
}

#[tokio::test]
async fn a_sleeper_that_ignores_budgets_moves_one_pod_at_most() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let all = ["a", "b", "c"];
    for name in all {
        bench.pod(&m, name, json!({}));
    }
    let force = |token| Task::Evict {
        machine: m.clone(),
        node: m.name.clone(),
        token: LeaseToken(token),
        force: true,
        guard: Guard::default(),
    };
    // Four reads before the first pod is touched; then three and a DELETE for each.
    for (skip, moved) in [(0, 0), (1, 0), (3, 0), (5, 0), (7, 1)] {
        let token = 10 + u64::from(skip);
        let opened = bench.run(open(&m, token)).await;
        assert_eq!(
            opened,
            Ok(Outcome::FenceOpened {
                was_cordoned: false
            })
        );
        let there = bench.clone();
        let machine = m.clone();
        bench
            .gate
            .before(skip, move || there.close_at_once(&machine, token));
        assert_eq!(
            bench.run(force(token)).await,
            Ok(Outcome::FenceClosedMeanwhile)
        );
        assert_eq!(
            all.len() - bench.remaining_pods().len(),
            moved,
            "asleep at call {skip}"
        );
    }
}

#[tokio::test]
async fn who_writes_in_between_makes_a_task_read_again() {
    let bench = Bench::new(1, false).await;
    let m = bench.machines().remove(0);
    let there = bench.clone();
    let machine = m.clone();
    // A person's label, written between our read of the Node and our write.
    bench.gate.before(3, move || {
        there.patch_node(&machine, json!({"metadata": {"labels": {"team": "a"}}}));
    });
    let opened = bench.run(open(&m, 1)).await;
    let was_cordoned = false;
    assert_eq!(opened, Ok(Outcome::FenceOpened { was_cordoned }));
    let (calls, written) = bench.gate.passed();
    assert!(
        written && calls >= 8,
        "four calls, and four again, not {calls}"
    );
}
