//! Worker over a faulty queue and faulty executors, on a clock of its own.

use dormer_proto::{
    id::{Attempt, Incarnation, RunId, Seq, Sum, TaskId, Timestamp},
    machine::{HostRef, Outcome, Task},
    message::{Failure, Heartbeat},
    work::{Order, Report},
};
use dormer_workers::{
    execute::Execute,
    port::{Claimed, Orders, PortError},
    progress::Progress,
    worker::{self, Options},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// Orders in memory that note everything.
#[derive(Default)]
struct TestQueue {
    waiting: Mutex<VecDeque<Order>>,
    come: Notify,
    limits: Mutex<Vec<usize>>,
    beats: Mutex<Vec<Heartbeat>>,
    reports: Mutex<Vec<Report>>,
    reported: Notify,
    /// Reports refused before one is receipted.
    deaf: AtomicUsize,
    taken: AtomicUsize,
}

impl TestQueue {
    fn give(&self, order: Order) {
        self.waiting.lock().unwrap().push_back(order);
        self.come.notify_one();
    }

    /// The reports, once there are so many.
    async fn reports(&self, count: usize) -> Vec<Report> {
        let wait = async {
            loop {
                let reported = self.reported.notified();
                let reports = self.reports.lock().unwrap().clone();
                if reports.len() >= count {
                    return reports;
                }
                reported.await;
            }
        };
        timeout(Duration::from_secs(100_000), wait)
            .await
            .expect("reports in time")
    }
}

impl Orders for TestQueue {
    type Claim = ();

    async fn take(&self, limit: usize) -> Result<Vec<Claimed<()>>, PortError> {
        self.limits.lock().unwrap().push(limit);
        loop {
            let come = self.come.notified();
            {
                let mut waiting = self.waiting.lock().unwrap();
                let count = waiting.len().min(limit);
                if count > 0 {
                    self.taken.fetch_add(count, Ordering::SeqCst);
                    return Ok(waiting
                        .drain(..count)
                        .map(|order| Claimed { claim: (), order })
                        .collect());
                }
            }
            come.await;
        }
    }

    async fn heartbeat(&self, (): &(), heartbeat: Heartbeat) -> Result<(), PortError> {
        self.beats.lock().unwrap().push(heartbeat);
        Ok(())
    }

    async fn report(&self, (): &(), report: Report) -> Result<(), PortError> {
        if self.deaf.load(Ordering::SeqCst) > 0 {
            self.deaf.fetch_sub(1, Ordering::SeqCst);
            return Err(PortError("deaf".into()));
        }
        self.reports.lock().unwrap().push(report);
        self.reported.notify_one();
        Ok(())
    }
}

/// Hands that do what the order's host name says.
#[derive(Default)]
struct Actor {
    begun: AtomicUsize,
    at_once: AtomicUsize,
    at_once_most: AtomicUsize,
}

impl Execute for Actor {
    async fn ready(&self, order: &Order, _: &Progress, _: f64) -> Result<(), Failure> {
        if let Task::Probe { host } = &order.body
            && host.address == "panic before"
        {
            panic!("a prerequisite cannot be read");
        }
        Ok(())
    }

    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let Task::Probe { host } = &order.body else {
            unreachable!("only probes are ordered")
        };
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_once_most.fetch_max(now, Ordering::SeqCst);
        match host.address.as_str() {
            "panic" => panic!("the hands slipped"),
            "hang" => {
                progress.step("reach into the void", 0, "");
                std::future::pending::<()>().await;
            }
            "slow" => {
                progress.step("crawl", 0, "steps");
                loop {
                    sleep(Duration::from_secs(20)).await;
                    progress.advance(1);
                }
            }
            _ => sleep(Duration::from_secs(1)).await,
        }
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        Ok(Outcome::RebootAsked)
    }
}

fn order(how: &str, seq: u64, attempt: u64) -> Order {
    Order {
        task: TaskId {
            run: RunId::new("machine", "m").unwrap(),
            seq: Seq(seq),
            ordinal: 0,
        },
        attempt: Attempt(attempt),
        incarnation: Incarnation(1),
        issued: Sum(7),
        episode: Seq(1),
        at: Timestamp(0),
        limit_ms: 900_000,
        body: Task::Probe {
            host: HostRef {
                address: how.into(),
                ..HostRef::default()
            },
        },
    }
}

struct Shift {
    queue: Arc<TestQueue>,
    actor: Arc<Actor>,
    stop: CancellationToken,
    working: JoinHandle<()>,
}

fn shift(options: Options) -> Shift {
    let queue = Arc::new(TestQueue::default());
    let actor = Arc::new(Actor::default());
    let stop = CancellationToken::new();
    let working = tokio::spawn(worker::run(
        Arc::clone(&queue),
        Arc::clone(&actor),
        options,
        stop.clone(),
    ));
    Shift {
        queue,
        actor,
        stop,
        working,
    }
}

fn code(report: &Report) -> &str {
    report
        .result
        .as_ref()
        .map_or_else(|failure| failure.code.as_str(), |_| "done")
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_reported_with_what_its_order_said() {
    let shift = shift(Options::named("w7"));
    shift.queue.give(order("work", 3, 2));
    let report = shift.queue.reports(1).await.remove(0);
    assert_eq!(
        (report.task.seq, report.attempt, report.issued),
        (Seq(3), Attempt(2), Sum(7))
    );
    assert_eq!((report.worker.as_str(), code(&report)), ("w7", "done"));
    assert!(
        !shift.queue.beats.lock().unwrap().is_empty(),
        "people were shown that it goes on"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stuck_attempt_is_ended_and_its_step_named() {
    let shift = shift(Options::named("w"));
    let begun = Instant::now();
    shift.queue.give(order("hang", 1, 1));
    let report = shift.queue.reports(1).await.remove(0);
    assert_eq!(
        (code(&report), begun.elapsed().as_secs()),
        ("NoProgress", 60)
    );
    let failure = report.result.unwrap_err();
    assert!(
        failure.retry && failure.message.contains("reach into the void"),
        "{failure:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_moves_goes_on_until_its_limit_by_the_engines_clock() {
    let shift = shift(Options {
        time_factor: 3.0,
        ..Options::named("w")
    });
    let begun = Instant::now();
    shift.queue.give(order("slow", 1, 1));
    let report = shift.queue.reports(1).await.remove(0);
    assert_eq!(
        (code(&report), begun.elapsed().as_secs()),
        ("TimeLimit", 300)
    );
    let beats = shift.queue.beats.lock().unwrap().clone();
    assert!(
        beats.len() > 50 && beats.last().unwrap().done > 10,
        "{}",
        beats.len()
    );
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_and_the_worker_goes_on() {
    let shift = shift(Options::named("w"));
    shift.queue.give(order("panic", 1, 1));
    let report = shift.queue.reports(1).await.remove(0);
    assert_eq!(code(&report), "Panic");
    assert!(
        report
            .result
            .unwrap_err()
            .message
            .contains("the hands slipped")
    );
    shift.queue.give(order("panic before", 2, 1));
    assert_eq!(code(&shift.queue.reports(2).await[1]), "Panic");
    shift.queue.give(order("work", 3, 1));
    assert_eq!(code(&shift.queue.reports(3).await[2]), "done");
}

#[tokio::test(start_paused = true)]
async fn a_report_is_repeated_until_it_is_receipted() {
    let shift = shift(Options::named("w"));
    shift.queue.deaf.store(20, Ordering::SeqCst);
    shift.queue.give(order("work", 1, 1));
    shift.queue.reports(1).await;
    assert_eq!(shift.queue.deaf.load(Ordering::SeqCst), 0);
    assert_eq!(shift.actor.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn one_attempt_delivered_twice_is_executed_once() {
    let shift = shift(Options::named("w"));
    for _ in 0..3 {
        shift.queue.give(order("work", 1, 1));
    }
    shift.queue.reports(1).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(shift.actor.begun.load(Ordering::SeqCst), 1);
    assert_eq!(shift.queue.reports.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_newer_attempt_ends_the_older_whichever_comes_first() {
    let shift = shift(Options::named("w"));
    shift.queue.give(order("hang", 1, 1));
    sleep(Duration::from_secs(5)).await;
    shift.queue.give(order("slow", 1, 2));
    let report = shift.queue.reports(1).await.remove(0);
    assert_eq!((report.attempt, code(&report)), (Attempt(1), "Superseded"));
    shift.queue.give(order("hang", 1, 1));
    let report = shift.queue.reports(2).await.remove(1);
    assert_eq!((report.attempt, code(&report)), (Attempt(1), "Superseded"));
    assert_eq!(
        shift.actor.begun.load(Ordering::SeqCst),
        2,
        "the late one was not begun"
    );
}

#[tokio::test(start_paused = true)]
async fn no_more_is_taken_than_there_are_free_slots() {
    let shift = shift(Options {
        slots: 8,
        ..Options::named("w")
    });
    for seq in 1..=100 {
        shift.queue.give(order("work", seq, 1));
    }
    shift.queue.reports(100).await;
    assert_eq!(shift.actor.at_once_most.load(Ordering::SeqCst), 8);
    assert!(
        shift
            .queue
            .limits
            .lock()
            .unwrap()
            .iter()
            .all(|limit| *limit <= 8)
    );
}

#[tokio::test(start_paused = true)]
async fn at_the_stop_short_ones_end_and_the_rest_is_dropped() {
    let shift = shift(Options {
        grace: Duration::from_secs(10),
        ..Options::named("w")
    });
    shift.queue.give(order("work", 1, 1));
    shift.queue.give(order("slow", 2, 1));
    sleep(Duration::from_millis(100)).await;
    shift.stop.cancel();
    shift.queue.give(order("work", 3, 1));
    let begun = Instant::now();
    shift.working.await.expect("the worker ends");
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(
        shift.queue.taken.load(Ordering::SeqCst),
        2,
        "no more is taken"
    );
    let reports = shift.queue.reports.lock().unwrap().clone();
    assert_eq!(
        reports
            .iter()
            .map(|report| report.task.seq.0)
            .collect::<Vec<_>>(),
        [1]
    );
}
