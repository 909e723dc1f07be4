//! The example's workflow in a bad world, by seed: a bank and a carrier that fail and that do a job twice, customers who cancel
//! at any moment, an engine that is cut off again and again.

use crate::order_example::{Order, OrderTask, TIME_TO_CANCEL_MS};
use dormer_engine::{
    local::Local,
    memory::MemoryStore,
    port::{Append, Expected, History, HistoryReader, SystemClock},
    typed::{Client, ClientError, Job, Worker, serve},
};
use dormer_engine_core::Workflow;
use dormer_proto::{
    id::{Incarnation, RunId, Seq},
    message::Failure,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

/// Longest time that all orders of a seed may take, beside the time to cancel.
const PATIENCE: Duration = Duration::from_secs(60);
const ORDERS: u32 = 12;
/// How often the engine is cut off.
const LIVES: u32 = 4;

/// What bank and carrier did for each order, by their own books: they know a repeat by its key.
#[derive(Default)]
struct Outside {
    charged: BTreeMap<String, u32>,
    shipped: BTreeMap<String, u32>,
    refunded: BTreeMap<String, u32>,
    keys: BTreeMap<String, OrderTask>,
}

impl Outside {
    fn does(&mut self, job: &Job<OrderTask>) {
        let key = job.id.to_string();
        if self.keys.insert(key, job.task.clone()).is_some() {
            return;
        }
        let book = match job.task {
            OrderTask::Charge(_) => &mut self.charged,
            OrderTask::Ship => &mut self.shipped,
            OrderTask::Refund(_) => &mut self.refunded,
        };
        *book.entry(job.id.run.key().to_owned()).or_default() += 1;
    }
}

impl Outside {
    /// How often an order was charged, shipped and refunded.
    fn did(&self, order: &str) -> (u32, u32, u32) {
        let count = |book: &BTreeMap<String, u32>| book.get(order).copied().unwrap_or(0);
        (
            count(&self.charged),
            count(&self.shipped),
            count(&self.refunded),
        )
    }
}

/// An attempt fails before its effect, or after it, or succeeds; some orders are sold out.
fn work(
    outside: &Mutex<Outside>,
    chance: &Mutex<StdRng>,
    job: &Job<OrderTask>,
) -> Result<(), Failure> {
    let draw = chance.lock().expect("unpoisoned").random_range(0..10);
    if job.task == OrderTask::Ship && job.id.run.key().ends_with('7') {
        return Err(Failure::lasting("SoldOut", "the shelf is empty"));
    }
    let busy = || Failure::transient("Busy", "nobody answers");
    match draw {
        0..3 => Err(busy()),
        3 => {
            outside.lock().expect("unpoisoned").does(job);
            Err(busy())
        }
        _ => {
            outside.lock().expect("unpoisoned").does(job);
            Ok(())
        }
    }
}

async fn closed(store: &MemoryStore) -> usize {
    let heads = store.heads(None, 1_000).await.expect("heads");
    heads.iter().filter(|head| head.closed.is_some()).count()
}

#[tokio::test]
async fn nothing_is_shipped_unpaid_and_no_money_is_kept_for_nothing() {
    for seed in 0..6 {
        let chance = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
        let outside = Arc::new(Mutex::new(Outside::default()));
        let store = Arc::new(MemoryStore::new(Incarnation(1)));
        let run = |n: u32| RunId::new("order", &format!("{seed}-{n}")).expect("an id");
        for life in 0..=LIVES {
            // Queues, timers and orders under way die with each life; the store stays.
            let ports = Arc::new(Local::new(Arc::clone(&store), SystemClock));
            let (_stop, stopped) = watch::channel(false);
            let mut alive = JoinSet::new();
            let engine = serve::<Order, _>(Arc::clone(&ports), stopped);
            alive.spawn(async move { drop(engine.await) });
            let worker = Worker::<Order>::new("w", &ports);
            let books = Arc::clone(&outside);
            let draws = Arc::clone(&chance);
            alive.spawn(worker.run(4, move |job| {
                let result = work(&books, &draws, &job);
                std::future::ready(result)
            }));
            let shop = Client::<Order, _>::new(ports);
            for n in 0..ORDERS {
                if life == 0 {
                    shop.start(&run(n), 100 + n).await.expect("started");
                }
                let cancels = chance.lock().expect("unpoisoned").random_ratio(1, 12);
                if cancels {
                    let asked = shop.signal(&run(n), (), ("ann", "")).await;
                    assert!(
                        matches!(asked, Ok(_) | Err(ClientError::Ended(_))),
                        "{asked:?}"
                    );
                }
            }
            let share = (ORDERS * life / LIVES) as usize;
            let done = async {
                while closed(&store).await < share {
                    tokio::task::yield_now().await;
                }
            };
            let limit = PATIENCE + Duration::from_millis(TIME_TO_CANCEL_MS);
            tokio::time::timeout(limit, done)
                .await
                .unwrap_or_else(|_| panic!("seed {seed}: life {life} stands still"));
        }
        let ports = Arc::new(Local::new(Arc::clone(&store), SystemClock));
        let shop = Client::<Order, _>::new(ports);
        for n in 0..ORDERS {
            let order = run(n);
            let ended = shop.query(&order).await.expect("a run").state;
            let did = outside.lock().expect("unpoisoned").did(order.key());
            let allowed: &[(u32, u32, u32)] = match ended {
                Order::Shipped => &[(1, 1, 0)],
                Order::Refunded => &[(1, 0, 1), (1, 1, 1), (0, 0, 1)],
                other => panic!("seed {seed}: {order} ended as {other:?}"),
            };
            assert!(
                allowed.contains(&did),
                "seed {seed}: {order}: {ended:?}, {did:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_what_to_do() {
    let ports = Arc::new(Local::new(
        Arc::new(MemoryStore::new(Incarnation(1))),
        SystemClock,
    ));
    let (stop, stopped) = watch::channel(false);
    let engine = tokio::spawn(serve::<Order, _>(Arc::clone(&ports), stopped));
    let shop = Client::<Order, _>::new(Arc::clone(&ports));
    let id = |workflow, key| RunId::new(workflow, key).expect("an id");
    let order = id("order", "a");
    let none = shop.query(&order).await.expect_err("no run");
    assert!(none.to_string().contains("start it first"));
    assert!(matches!(
        shop.signal(&order, (), ("ann", "")).await,
        Err(ClientError::NoRun(_))
    ));
    shop.start(&order, 5).await.expect("started");
    assert!(matches!(
        shop.start(&order, 6).await,
        Err(ClientError::Exists(_))
    ));
    assert!(matches!(
        shop.reset(&order, Seq(99), ("ann", "")).await,
        Err(ClientError::NoRecord(_, Seq(99)))
    ));
    let long = "x".repeat(100_000);
    assert!(matches!(
        shop.signal(&order, (), ("ann", &long)).await,
        Err(ClientError::ReasonTooLong)
    ));
    // The workflow starts no run of this name.
    let parcel = id("parcel", "a");
    assert_eq!(
        shop.start(&parcel, 5).await.map(|run| run.state),
        Err(ClientError::Foreign(parcel))
    );

    // No worker took the charge. Back to the first record: it is charged anew, under another id.
    let again = shop
        .reset(&order, Seq(1), ("ann", "again"))
        .await
        .expect("reset");
    assert_eq!(Order::label(&again.state), "Charging");
    let worker = Worker::<Order>::new("w", &ports);
    let worker = tokio::spawn(worker.run(1, |_| std::future::ready(Ok(()))));
    shop.wait(&order, |now| now.closed.is_some())
        .await
        .expect("it ends");
    assert!(matches!(
        shop.signal(&order, (), ("ann", "")).await,
        Err(ClientError::Ended(_))
    ));
    let records = shop.history(&order, Seq(0), 100).await.expect("records");
    assert_eq!(
        Order::label(&records.last().expect("one").run.state),
        "Shipped"
    );
    worker.abort();
    stop.send(true).expect("it runs");
    engine.await.expect("it ends").expect("a sound store");
}

/// The queue would not give the order out for minutes: its worker is dropped in the middle of the job.
#[tokio::test]
async fn what_a_worker_leaves_is_done_by_the_next_one() {
    let ports = Arc::new(Local::new(
        Arc::new(MemoryStore::new(Incarnation(1))),
        SystemClock,
    ));
    let (_stop, stopped) = watch::channel(false);
    let engine = tokio::spawn(serve::<Order, _>(Arc::clone(&ports), stopped));
    let shop = Client::<Order, _>::new(Arc::clone(&ports));
    let order = RunId::new("order", "left").expect("an id");
    shop.start(&order, 5).await.expect("started");
    let begun = Arc::new(Notify::new());
    let first = Worker::<Order>::new("first", &ports);
    let begins = Arc::clone(&begun);
    let first = tokio::spawn(first.run(1, move |_| {
        begins.notify_one();
        std::future::pending()
    }));
    begun.notified().await;
    first.abort();
    let second = Worker::<Order>::new("second", &ports);
    let second = tokio::spawn(second.run(1, |_| std::future::ready(Ok(()))));
    let ends = shop.wait(&order, |now| now.closed.is_some());
    let ended = tokio::time::timeout(PATIENCE, ends).await;
    let ended = ended.expect("in time").expect("a run");
    assert_eq!(ended.state, Order::Shipped);
    second.abort();
    engine.abort();
}

/// A run knows the ids of its last 16 requests only.
#[tokio::test]
async fn of_many_signals_at_once_each_is_answered_as_taken() {
    let ports = Arc::new(Local::new(
        Arc::new(MemoryStore::new(Incarnation(1))),
        SystemClock,
    ));
    let (_stop, stopped) = watch::channel(false);
    let engine = tokio::spawn(serve::<Order, _>(Arc::clone(&ports), stopped));
    let shop = Client::<Order, _>::new(Arc::clone(&ports));
    let order = RunId::new("order", "many").expect("an id");
    shop.start(&order, 5).await.expect("started");
    // Without a worker the order stays open, whatever is asked.
    let asked = (0..40).map(|_| shop.signal(&order, (), ("ann", "")));
    let answers = futures::future::join_all(asked).await;
    let refused: Vec<_> = answers.iter().filter_map(|it| it.as_ref().err()).collect();
    assert!(refused.is_empty(), "{refused:?}");
    engine.abort();
}

#[tokio::test(start_paused = true)]
async fn without_an_engine_a_client_says_so() {
    let store = Arc::new(MemoryStore::new(Incarnation(1)));
    let shop = Client::<Order, _>::new(Arc::new(Local::new(store, SystemClock)));
    let order = RunId::new("order", "a").expect("an id");
    let late = shop.start(&order, 5).await.expect_err("nobody took it");
    assert_eq!(late, ClientError::NotTaken(order));
    assert!(late.to_string().contains("is one running?"), "{late}");
}

#[tokio::test]
async fn a_record_that_cannot_be_read_names_its_run_and_the_remedy() {
    let store = Arc::new(MemoryStore::new(Incarnation(1)));
    let order = RunId::new("order", "a").expect("an id");
    let damaged = Append {
        run: order.clone(),
        expected: Expected::Nothing,
        bytes: b"half a rec".to_vec(),
        seq: Seq(1),
        deadline: None,
        closed: None,
        quiet: true,
    };
    let stored = store.append(vec![damaged]).await;
    assert!(stored.iter().all(Result::is_ok));
    let shop = Client::<Order, _>::new(Arc::new(Local::new(store, SystemClock)));
    for error in [
        shop.query(&order).await.map(drop),
        shop.start(&order, 5).await.map(drop),
        shop.history(&order, Seq(0), 9).await.map(drop),
        shop.signal(&order, (), ("ann", "")).await.map(drop),
    ] {
        let error = error.expect_err("unreadable");
        assert!(matches!(&error, ClientError::Unreadable(run, _) if *run == order));
        let text = error.to_string();
        assert!(text.contains("use the build that wrote it"), "{text}");
    }
}

/// No process reads the inbox while no engine runs, and each repeat stays in it.
#[tokio::test(start_paused = true)]
async fn a_report_that_nobody_takes_is_repeated_less_and_less_often() {
    let ports = Arc::new(Local::new(
        Arc::new(MemoryStore::new(Incarnation(1))),
        SystemClock,
    ));
    let (_stop, stopped) = watch::channel(false);
    let engine = tokio::spawn(serve::<Order, _>(Arc::clone(&ports), stopped));
    let shop = Client::<Order, _>::new(Arc::clone(&ports));
    let order = RunId::new("order", "a").expect("an id");
    shop.start(&order, 5).await.expect("started");
    let ends = engine.abort_handle();
    let worker = Worker::<Order>::new("w", &ports);
    let worker = tokio::spawn(worker.run(1, move |_| {
        ends.abort();
        std::future::ready(Ok(()))
    }));
    assert!(engine.await.expect_err("aborted").is_cancelled());
    for _ in 0..3_600 {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    let copies = ports.inbox.depth();
    assert!((2..20).contains(&copies), "{copies} in an hour");
    worker.abort();
}
