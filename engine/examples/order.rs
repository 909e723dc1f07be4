//! An order in a shop: charge the card, leave the customer an hour to cancel, ship; refund what cannot be shipped.
//!
//! `cargo run -p dormer-engine --example order` plays three orders, `engine/tests/order.rs` many in a bad world.

use Order::{Cancelling, Charged, Charging, Declined, New, Refunded, Refunding, Shipped, Shipping};
use dormer_engine::typed::{Client, Job, Worker, serve};
use dormer_engine::{local::Local, memory::MemoryStore, port::SystemClock};
use dormer_engine_core::{Command, Decision, Input, Now, RetryPolicy, Workflow};
use dormer_proto::id::{Incarnation, RunId, Seq};
use dormer_proto::message::Failure;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::watch;

/// State of an order, with its amount in cents. A run is the fold of its history: the state is all that it keeps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order {
    #[default]
    New,
    Charging(u32),
    Cancelling(u32),
    Charged(u32),
    Shipping(u32),
    Refunding(u32),
    Declined,
    Shipped,
    Refunded,
}

/// What a worker does. Each may be done twice: the task's id is the key by which bank and carrier know a repeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum OrderTask {
    Charge(u32),
    Ship,
    Refund(u32),
}

/// Times are milliseconds. The example's hour is short.
pub(crate) const TIME_TO_CANCEL_MS: u64 = 300;
const QUICK: RetryPolicy = RetryPolicy {
    first_ms: 5,
    ..RetryPolicy::PROMPT
};
/// A refund is owed: it is tried until it succeeds.
const OWED: RetryPolicy = RetryPolicy {
    attempts_max: u64::MAX,
    overall_ms_max: u64::MAX,
    ..QUICK
};

impl Workflow for Order {
    const SCHEMA: u16 = 1;
    type State = Order;
    type Task = OrderTask;
    type Outcome = ();
    type Fact = u32; // the amount, with which the order begins
    type Timer = (); // the time to cancel is over
    type Signal = (); // the customer cancels

    fn start(run: &RunId, by_signal: bool) -> Option<Order> {
        (run.workflow() == "order" && !by_signal).then_some(New)
    }

    // Pure and total: no clock, no network, an answer to every pair. It is stored before anything happens.
    fn decide(_: Now<'_>, state: Order, input: Input<Order>) -> Decision<Order> {
        use Input::{Exhausted, Finished, Fired, Observed, Signalled};
        match (state, input) {
            (New, Observed { fact, .. }) => enter(Charging(fact.unwrap_or(0))),
            (Charging(amount), Finished { .. }) => enter(Charged(amount)),
            // The bank may have the money already: what it answers decides.
            (Charging(amount), Signalled { .. }) => Decision::to(Cancelling(amount)),
            // The bank said no. Where it only did not answer, it may have the money: see below.
            (Charging(_) | Cancelling(_), Exhausted { failure, .. }) if !failure.retry => {
                enter(Declined)
            }
            (Charged(amount), Fired(())) => enter(Shipping(amount)),
            (Shipping(_), Finished { .. }) => enter(Shipped),
            // The compensation: whatever ends the order after the charge gives the money back.
            (Charging(amount) | Cancelling(amount) | Shipping(amount), Exhausted { .. })
            | (Cancelling(amount), Finished { .. })
            | (Charged(amount), Signalled { .. }) => enter(Refunding(amount)),
            (Refunding(_), Finished { .. }) => enter(Refunded),
            (state, _) => Decision::to(state), // late or out of place: on record, without consequence
        }
    }

    // A person went back to an earlier record: its tasks and timers have ended, and begin anew.
    fn reset(_: Now<'_>, then: Order, _: &Order) -> Decision<Order> {
        enter(then)
    }

    fn label(state: &Order) -> &'static str {
        match state {
            New => "New",
            Charging(_) => "Charging",
            Cancelling(_) => "Cancelling",
            Charged(_) => "Charged",
            Shipping(_) => "Shipping",
            Refunding(_) => "Refunding",
            Declined => "Declined",
            Shipped => "Shipped",
            Refunded => "Refunded",
        }
    }
}

/// The state, and what it begins.
fn enter(state: Order) -> Decision<Order> {
    let entered = Decision::to(state.clone());
    match state {
        Charging(amount) | Cancelling(amount) => entered.run(OrderTask::Charge(amount), QUICK),
        Charged(_) => entered.start_timer((), TIME_TO_CANCEL_MS),
        Shipping(_) => entered.run(OrderTask::Ship, QUICK),
        Refunding(amount) => entered
            .and(Command::CancelTimer(()))
            .run(OrderTask::Refund(amount), OWED),
        Declined | Shipped | Refunded => entered.and(Command::Complete),
        New => entered,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In memory; `EmbeddedStore::open(folder)` in its place survives a crash, with nothing else changed.
    let store = Arc::new(MemoryStore::new(Incarnation(1)));
    let ports = Arc::new(Local::new(store, SystemClock));
    let (stop, stopped) = watch::channel(false);
    let engine = tokio::spawn(serve::<Order, _>(Arc::clone(&ports), stopped));
    let worker = Worker::<Order>::new("worker-1", &ports);
    tokio::spawn(worker.run(8, async |job: Job<OrderTask>| match job.task {
        OrderTask::Charge(_) if job.attempt.0 == 1 => Err(Failure::transient("Busy", "no answer")),
        OrderTask::Ship if job.id.run.key() == "sold" => {
            Err(Failure::lasting("SoldOut", "none left"))
        }
        OrderTask::Charge(_) | OrderTask::Ship | OrderTask::Refund(_) => Ok(()),
    }));
    let shop = Client::<Order, _>::new(ports);
    for key in ["shipped", "cancelled", "sold"] {
        let run = RunId::new("order", key)?;
        shop.start(&run, 4_200).await?;
        if key == "cancelled" {
            shop.signal(&run, (), ("ann", "ordered twice")).await?;
        }
        shop.wait(&run, |order| order.closed.is_some()).await?;
        for record in shop.history(&run, Seq(0), 100).await? {
            println!("{run}: {:?} after {:?}", record.run.state, record.events);
        }
    }
    stop.send(true)?;
    Ok(engine.await?.map(drop)?)
}
