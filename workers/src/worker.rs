//! Worker: takes orders, extends their claims, executes them, and reports until it has receipts.

use crate::{
    execute::Execute,
    observer::{AttemptGuard, ObserverHandle},
    port::{Claimed, Orders, PortError},
    progress::Progress,
};
use backon::{ExponentialBuilder, Retryable};
use dormer_proto::{
    id::{Attempt, TaskId},
    lock::Locked as _,
    machine::Outcome,
    message::Failure,
    span::TraceId,
    work::{Order, Report},
};
use futures::FutureExt;
use std::{
    any::Any,
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Longest time without progress before an attempt is ended: each longer step reports progress.
pub const STILL_MAX: Duration = Duration::from_secs(60);
/// Longest pause between two calls of a port that does not answer.
const PORT_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Shortest limit of an attempt, however fast the engine's clock runs.
const LIMIT_LEAST: Duration = Duration::from_secs(1);

/// Settings of a worker.
#[derive(Debug, Clone)]
pub struct Options {
    /// Attempts at once.
    pub slots: usize,
    /// Its name: unique among the workers of a store, since receipts go there.
    pub name: String,
    /// Longest time without progress before an attempt is ended.
    pub still_max: Duration,
    /// How often a claim is extended. The claim's own term must be some times as long.
    pub heartbeat_every: Duration,
    /// How many milliseconds of the engine's clock pass in one millisecond here: 1, except in a simulated world.
    pub time_factor: f64,
    /// Grace period for running attempts after the stop.
    pub grace: Duration,
    pub observer: ObserverHandle,
}

impl Options {
    /// Defaults, with this name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            slots: 256,
            name: name.into(),
            still_max: STILL_MAX,
            heartbeat_every: Duration::from_secs(5),
            time_factor: 1.0,
            grace: Duration::from_secs(10),
            observer: ObserverHandle::default(),
        }
    }

    fn limit(&self, order: &Order) -> Duration {
        let factor = if self.time_factor > 0.0 {
            self.time_factor
        } else {
            1.0
        };
        Duration::from_millis(order.limit_ms)
            .div_f64(factor)
            .max(LIMIT_LEAST)
    }
}

/// Works until `stop`. Then it takes no more orders, lets running attempts end within the grace period, and cancels
/// the rest. Their claims lapse, and other workers get their orders.
pub async fn run<O: Orders, X: Execute>(
    orders: Arc<O>,
    executor: Arc<X>,
    options: Options,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(options.slots.max(1)));
    let grace = options.grace;
    let worker = Arc::new(Worker {
        orders,
        executor,
        options,
        running: Mutex::default(),
    });
    let mut attempts = JoinSet::new();
    loop {
        while let Some(ended) = attempts.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "an attempt ended without a report");
            }
        }
        let taken = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            taken = worker.take_for_free_slots(&slots) => taken,
        };
        for claimed in taken {
            // Only this task takes slots, so at least as many are free as orders came; and the semaphore is never
            // closed.
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                break;
            };
            let worker = Arc::clone(&worker);
            attempts.spawn(async move {
                worker.attempt(claimed).await;
                drop(slot);
            });
        }
    }
    let ending = async { while attempts.join_next().await.is_some() {} };
    if timeout(grace, ending).await.is_err() {
        tracing::info!(
            attempts = attempts.len(),
            "attempts are left to another worker"
        );
        attempts.shutdown().await;
    }
}

struct Worker<O, X> {
    orders: Arc<O>,
    executor: Arc<X>,
    options: Options,
    /// Running attempts. Lock held for a map operation, never across an await.
    running: Mutex<HashMap<TaskId, RunningOrder>>,
}

/// One task's newest attempt here.
struct RunningOrder {
    attempt: Attempt,
    /// Ends it, since the engine has issued a newer attempt.
    superseded: CancellationToken,
}

/// Decision about an order.
enum OrderAction {
    /// Execute it, until the token is cancelled because a newer attempt arrived.
    Execute(CancellationToken),
    /// This attempt is already running: forget the repeat.
    Repeat,
    /// A newer attempt is running: report that, which ends the order.
    Old,
}

impl<O: Orders, X: Execute> Worker<O, X> {
    fn running(&self) -> MutexGuard<'_, HashMap<TaskId, RunningOrder>> {
        self.running.locked()
    }

    /// Waits for a free slot, then for orders, at most as many as there are free slots.
    async fn take_for_free_slots(&self, slots: &Semaphore) -> Vec<Claimed<O::Claim>> {
        drop(slots.acquire().await);
        let free = slots.available_permits();
        let take = || self.orders.take(free);
        let taken = take
            .retry(retry_without_end())
            .notify(|error: &PortError, wait| {
                tracing::warn!(%error, ?wait, "orders cannot be taken");
            });
        // The retries have no end, so there is no last error; an empty answer only asks again.
        taken.await.unwrap_or_default()
    }

    async fn attempt(&self, claimed: Claimed<O::Claim>) {
        let Claimed { claim, order } = claimed;
        let name = order.body.name();
        let trace = TraceId::of(&order.task.run, None, order.episode);
        let span = tracing::info_span!(
            "attempt", task = %order.task, attempt = order.attempt.0, name, trace = %trace
        );
        async {
            match self.admit(&order) {
                OrderAction::Repeat => tracing::debug!("the order came twice"),
                OrderAction::Old => self.report(&claim, &order, Err(superseded())).await,
                OrderAction::Execute(newer) => {
                    let _running = RunningGuard {
                        worker: self,
                        order: &order,
                    };
                    self.carry_out(&claim, &order, &newer).await;
                }
            }
        }
        .instrument(span)
        .await;
    }

    /// Notes the attempt as running, unless it runs already or a newer one does.
    fn admit(&self, order: &Order) -> OrderAction {
        let mut running = self.running();
        if let Some(found) = running.get(&order.task) {
            if found.attempt == order.attempt {
                return OrderAction::Repeat;
            }
            if found.attempt > order.attempt {
                return OrderAction::Old;
            }
            found.superseded.cancel();
        }
        let token = CancellationToken::new();
        let entry = RunningOrder {
            attempt: order.attempt,
            superseded: token.clone(),
        };
        running.insert(order.task.clone(), entry);
        OrderAction::Execute(token)
    }

    /// Executes and reports, with heartbeats: the claim is extended until the report has a receipt.
    async fn carry_out(&self, claim: &O::Claim, order: &Order, newer: &CancellationToken) {
        let progress = Progress::default();
        let work = async {
            let attempting = AttemptGuard::begin(&self.options.observer, order, &self.options.name);
            let result = attempting
                .scope(self.execute(order, &progress, newer))
                .await;
            attempting.ended(&result);
            self.show_new_commands(&progress).await;
            match &result {
                Ok(_) => tracing::debug!("done"),
                Err(failure) => {
                    tracing::info!(code = failure.code, why = failure.message, "failed");
                }
            }
            self.report(claim, order, result).await;
        };
        tokio::select! {
            biased;
            () = work => {}
            () = self.run_heartbeat(claim, order, &progress) => {}
            () = self.show_commands(&progress) => {}
        }
    }

    /// Shows remote commands to people as they begin and end, for as long as it is awaited.
    async fn show_commands(&self, progress: &Progress) {
        loop {
            progress.commands_changed().await;
            self.show_new_commands(progress).await;
        }
    }

    /// Shows people the remote commands that have begun or ended.
    async fn show_new_commands(&self, progress: &Progress) {
        for mut command in progress.take_commands() {
            command.worker.clone_from(&self.options.name);
            self.orders.show(command).await;
        }
    }

    async fn execute(
        &self,
        order: &Order,
        progress: &Progress,
        newer: &CancellationToken,
    ) -> Result<Outcome, Failure> {
        // Only the progress of an attempt outlives a panic, and its lock tolerates that.
        let ready = self
            .executor
            .ready(order, progress, self.options.time_factor);
        let ready = AssertUnwindSafe(ready).catch_unwind();
        tokio::select! {
            biased;
            ready = ready => ready.unwrap_or_else(|panic| Err(panicked(progress, panic.as_ref())))?,
            () = newer.cancelled() => return Err(superseded()),
        }
        progress.step("start", 0, "");
        let limit = self.options.limit(order);
        let doing = AssertUnwindSafe(self.executor.execute(order, progress)).catch_unwind();
        tokio::select! {
            biased;
            done = doing => done.unwrap_or_else(|panic| Err(panicked(progress, panic.as_ref()))),
            () = newer.cancelled() => Err(superseded()),
            () = sleep(limit) => Err(Failure::transient(
                "TimeLimit",
                format!("not done within {} s; it was in step {:?}", limit.as_secs(), progress.step_name()),
            )),
            () = until_stuck(progress, self.options.still_max) => Err(Failure::transient(
                "NoProgress",
                format!(
                    "no progress for {} s in step {:?}",
                    self.options.still_max.as_secs(),
                    progress.step_name()
                ),
            )),
        }
    }

    async fn run_heartbeat(&self, claim: &O::Claim, order: &Order, progress: &Progress) {
        loop {
            let beat = progress.heartbeat(&order.task, order.attempt, &self.options.name);
            if let Err(error) = self.orders.heartbeat(claim, beat).await {
                tracing::debug!(%error, "a heartbeat was lost");
            }
            sleep(self.options.heartbeat_every).await;
        }
    }

    async fn report(&self, claim: &O::Claim, order: &Order, result: Result<Outcome, Failure>) {
        let report = Report {
            task: order.task.clone(),
            attempt: order.attempt,
            issued: order.issued,
            worker: self.options.name.clone(),
            by: order.body.reporter(),
            result,
        };
        let send = || self.orders.report(claim, report.clone());
        let notified = send
            .retry(retry_without_end())
            .notify(|error: &PortError, wait| {
                tracing::warn!(%error, ?wait, "the report is not receipted");
            });
        // The retries have no end, so there is no last error.
        let _ = notified.await;
    }
}

/// Removes an attempt from the running ones, also when its future is dropped at an await.
struct RunningGuard<'a, O: Orders, X: Execute> {
    worker: &'a Worker<O, X>,
    order: &'a Order,
}

impl<O: Orders, X: Execute> Drop for RunningGuard<'_, O, X> {
    fn drop(&mut self) {
        let mut running = self.worker.running();
        let ours = running
            .get(&self.order.task)
            .is_some_and(|r| r.attempt == self.order.attempt);
        if ours {
            running.remove(&self.order.task);
        }
    }
}

async fn until_stuck(progress: &Progress, max: Duration) {
    loop {
        let still = progress.still_for();
        if still >= max {
            return;
        }
        sleep(max.saturating_sub(still)).await;
    }
}

fn retry_without_end() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(PORT_PAUSE_MAX)
        .with_jitter()
        .without_max_times()
}

fn superseded() -> Failure {
    Failure::transient("Superseded", "a newer attempt of the same task has begun")
}

fn panicked(progress: &Progress, panic: &(dyn Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(step = progress.step_name(), "a task panicked");
    Failure::transient(
        "Panic",
        format!(
            "a fault in dormer itself, in step {:?}: {}",
            progress.step_name(),
            said.unwrap_or("no message")
        ),
    )
}
