//! A rollback in the pool's status: the last order holds, however late an earlier one comes.

use super::bench::{Bench, run_issued};
use dormer_fleet::api::kinds;
use dormer_proto::{
    id::{Incarnation, Seq},
    machine::{Outcome, Task},
    message::Failure,
};
use serde_json::{Value, json};

fn to(payload: &str) -> Task {
    Task::SetPayload {
        pool: "windows".into(),
        payload: payload.into(),
        back_from: "2.0.0".into(),
        by: "ada: it fails".into(),
        instead: Some("installed".into()),
    }
}

async fn bench() -> Bench {
    let bench = Bench::new(1, false).await;
    bench.edit_pool(json!({"payload": "installed"}));
    bench
}

async fn order(bench: &Bench, issued: (u64, u64), task: Task) -> Result<Outcome, Failure> {
    let issued = (Incarnation(issued.0), Seq(issued.1));
    run_issued(&bench.executor, "m", issued, task).await
}

fn holds(bench: &Bench) -> Value {
    let pools = bench.world.all(&kinds::WINDOWS_POOL);
    let pool = pools.first().expect("a pool");
    pool.value["status"]["override"]["payload"].clone()
}

#[tokio::test]
async fn an_earlier_order_that_comes_late_does_not_undo_a_later_rollback() {
    let bench = bench().await;
    order(&bench, (1, 9), to("0.9.0")).await.expect("written");
    // A worker that hung over the first of two rollbacks, or another one that repeats its order.
    let late = order(&bench, (1, 5), to("1.0.0")).await;
    assert_eq!(late.expect_err("it is late").code, "RollbackSuperseded");
    assert_eq!(holds(&bench), "0.9.0");
    // A later order wants what this one wanted: it holds.
    order(&bench, (1, 5), to("0.9.0")).await.expect("as asked");
    // Another attempt of the same order, and a later order.
    order(&bench, (1, 9), to("0.9.0")).await.expect("a repeat");
    assert_eq!(holds(&bench), "0.9.0");
    order(&bench, (1, 12), to("1.0.0")).await.expect("written");
    assert_eq!(holds(&bench), "1.0.0");
}

#[tokio::test]
async fn a_store_that_begins_anew_orders_rollbacks_from_its_first_record() {
    let bench = bench().await;
    order(&bench, (1, 9), to("0.9.0")).await.expect("written");
    order(&bench, (2, 1), to("1.0.0")).await.expect("written");
    assert_eq!(holds(&bench), "1.0.0");
}

#[tokio::test]
async fn a_rollback_ends_at_a_persons_request_and_an_earlier_order_brings_it_not_back() {
    let bench = bench().await;
    let end = |by: &str| Task::SetPayload {
        pool: "windows".into(),
        payload: "installed".into(),
        back_from: "installed".into(),
        by: by.into(),
        instead: Some("installed".into()),
    };
    order(&bench, (1, 9), to("0.9.0")).await.expect("written");
    // Without a person, only a rollback of another spec's payload is taken away.
    order(&bench, (1, 10), end("")).await.expect("kept");
    assert_eq!(holds(&bench), "0.9.0");
    order(&bench, (1, 12), end("bob")).await.expect("ended");
    assert_eq!(holds(&bench), Value::Null);
    // The order of a rollback that hung, and comes after its end.
    order(&bench, (1, 20), end("bob")).await.expect("nothing");
    let late = order(&bench, (1, 15), to("1.0.0")).await;
    assert_eq!(late.expect_err("it is late").code, "RollbackSuperseded");
    assert_eq!(holds(&bench), Value::Null);
}

#[tokio::test]
async fn a_rollback_that_a_person_ended_is_not_brought_back_by_its_own_order() {
    let bench = bench().await;
    order(&bench, (1, 9), to("0.9.0")).await.expect("written");
    bench.edit_pool(json!({"payload": "3.0.0"}));
    let ended = Task::SetPayload {
        pool: "windows".into(),
        payload: "3.0.0".into(),
        back_from: "3.0.0".into(),
        by: String::new(),
        instead: Some("3.0.0".into()),
    };
    order(&bench, (1, 12), ended).await.expect("taken away");
    assert_eq!(holds(&bench), Value::Null);
    // The pool names again what the rollback was for, and its order comes again.
    bench.edit_pool(json!({"payload": "installed"}));
    let repeated = order(&bench, (1, 9), to("0.9.0")).await;
    let refused = repeated.expect_err("it has ended");
    assert_eq!(
        (refused.code.as_str(), refused.retry),
        ("RollbackSuperseded", false)
    );
    assert_eq!(holds(&bench), Value::Null);
    order(&bench, (1, 15), to("1.0.0"))
        .await
        .expect("a new one");
    assert_eq!(holds(&bench), "1.0.0");
}
