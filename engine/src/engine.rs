//! Engine: concurrent shards, the intake that feeds them, the sweep, and the shutdown.

use crate::{
    local::timer_due,
    observer::EngineObserver,
    port::{
        Ack, Alarms, Clock, Head, History, HistoryReader, Inbox, Ports, Quarantine, StoreError,
    },
    quarantine::KnownNotes,
    shard::{Counters, DecodedDelivery, Shard},
    supervise::supervised,
};
use dormer_engine_core::Workflow;
use dormer_proto::id::{RunId, Timestamp, hash64};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

/// Runs per step of the sweep.
const SWEEP_PAGE: usize = 1_000;
/// Runs per second whose outstanding work is carried out again when an engine starts on its own store. New input does
/// not wait for it.
const REVISITS_AT_START_PER_S: usize = 20_000;
/// Most time for one sweep.
const SWEEP_MAX: Duration = Duration::from_secs(300);
/// Most time for one page of a pass that carries out outstanding work again.
const PAGE_TIME_MAX: Duration = Duration::from_secs(120);
/// Interval at which an engine reads the notes about quarantined runs.
const NOTES_EVERY: Duration = Duration::from_secs(5);
/// Runs per second whose outstanding work is carried out again after a release.
const REVISITS_AFTER_RELEASE_PER_S: usize = 500;
/// Pause before the next try, if the store did not answer.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Retention of a closed run's records after its end: 30 days, in milliseconds.
const CLOSED_KEPT_MS: u64 = 30 * 24 * 3_600_000;

/// Options of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// Build, as records name it.
    pub build: String,
    /// Number of shards. Each owns the runs whose ids hash to it.
    pub shards: usize,
    /// Most messages in one turn of a shard.
    pub batch_max: usize,
    /// Most runs in memory, over all shards.
    pub cached_max: usize,
    /// Mean time between two sweeps. An engine sweeps the runs of its partitions.
    pub sweep_every: Duration,
    /// How long a deadline must be overdue before the sweep fires it, in milliseconds, so that the alarm comes first.
    pub sweep_grace_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            build: concat!("dormer ", env!("CARGO_PKG_VERSION")).into(),
            shards: 4,
            batch_max: 512,
            cached_max: 8_192,
            sweep_every: Duration::from_secs(30),
            sweep_grace_ms: 2_000,
        }
    }
}

/// Runs an engine until `stop` is true. It then finishes its current turns and returns the messages that it holds.
///
/// # Errors
/// [`StoreError::Broken`]: the store cannot be trusted. The engine has made no further decision on it.
pub async fn run<W: Workflow, P: Ports>(
    ports: Arc<P>,
    options: Options,
    stop: watch::Receiver<bool>,
) -> Result<Counters, StoreError> {
    run_observed::<W, P, ()>(ports, options, Arc::default(), stop).await
}

/// As [`run`], with an observer.
///
/// # Errors
/// As [`run`].
pub async fn run_observed<W: Workflow, P: Ports, E: EngineObserver<W>>(
    ports: Arc<P>,
    options: Options,
    observer: Arc<E>,
    mut stop: watch::Receiver<bool>,
) -> Result<Counters, StoreError> {
    let shards = options.shards.max(1);
    let mut tasks: JoinSet<Result<Counters, StoreError>> = JoinSet::new();
    let mut queues = Vec::with_capacity(shards);
    let known = Arc::new(KnownNotes::default());
    // Without an answer the watch over the quarantine reads them later.
    let noted = tokio::time::timeout(ASK_AGAIN_AFTER, known.refresh(ports.as_ref())).await;
    tracing::debug!(?noted, "read the notes about quarantined runs");
    // A shard whose store does not answer must not hold up the intake of the others.
    let mailbox = ports.inbox().held_max().unwrap_or(0);
    let mailbox = mailbox.max(options.batch_max * 2);
    for _ in 0..shards {
        let (queue, messages) = mpsc::channel(mailbox);
        let build = options.build.clone();
        let cached_max = options.cached_max / shards;
        let shard = Shard::<W, P, E>::observed_by(
            Arc::clone(&ports),
            build,
            cached_max,
            Arc::clone(&observer),
        )
        .with_quarantine_notes(Arc::clone(&known));
        tasks.spawn(shard_loop(shard, messages, options.batch_max));
        queues.push(queue);
    }
    let mut background = JoinSet::new();
    let panicked = move |what| observer.background_panicked(what);
    let own = Arc::clone(&ports);
    let swept = options.clone();
    let sweep = move || run_sweep(Arc::clone(&own), swept.clone());
    background.spawn(supervised("the sweep", sweep, panicked.clone()));
    let own = Arc::clone(&ports);
    let watch = move || run_watch::<W, P>(Arc::clone(&own), Arc::clone(&known));
    let what = "the watch over the quarantine";
    background.spawn(supervised(what, watch, panicked.clone()));
    if ports.history().exclusive() {
        // A store with one owner has its queues in memory, so outstanding work is carried out again at the start.
        let own = Arc::clone(&ports);
        let ask = move || revisit_at_start::<W, P>(Arc::clone(&own));
        background.spawn(supervised("the pass at the start", ask, panicked));
    }
    let result = tokio::select! {
        biased;
        result = intake::<W, P>(&ports, &queues, &options, &mut stop) => result,
        Some(ended) = tasks.join_next() => flatten(ended).map(drop),
    };
    drop(background);
    drop(queues);
    let mut total = Counters::default();
    let mut first_error = result.err();
    while let Some(ended) = tasks.join_next().await {
        match flatten(ended) {
            Ok(counters) => total = sum(total, counters),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(total), Err)
}

async fn revisit_at_start<W: Workflow, P: Ports>(ports: Arc<P>) {
    loop {
        match revisit_all::<W, P>(Arc::clone(&ports), REVISITS_AT_START_PER_S).await {
            Ok(Pass { runs, .. }) => {
                tracing::info!(runs, "everything outstanding was carried out again");
                return;
            }
            Err(StoreError::Unavailable(why)) => {
                tracing::warn!(
                    why,
                    "not everything outstanding was carried out again; trying once more"
                );
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
            // The shards end the engine with this error.
            Err(error) => {
                tracing::error!(%error, "not everything outstanding was carried out again");
                return;
            }
        }
    }
}

fn flatten(
    ended: Result<Result<Counters, StoreError>, tokio::task::JoinError>,
) -> Result<Counters, StoreError> {
    ended.unwrap_or_else(|error| Err(StoreError::Broken(format!("a shard ended: {error}"))))
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A dropped sender means stop as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn shard_loop<W: Workflow, P: Ports, E: EngineObserver<W>>(
    mut shard: Shard<W, P, E>,
    mut messages: mpsc::Receiver<DecodedDelivery<W>>,
    batch_max: usize,
) -> Result<Counters, StoreError> {
    let mut waiting = Vec::with_capacity(batch_max);
    loop {
        let room = messages.max_capacity().saturating_sub(waiting.len());
        if waiting.is_empty() {
            messages.recv_many(&mut waiting, room).await;
        } else {
            waiting.extend(std::iter::from_fn(|| messages.try_recv().ok()).take(room));
        }
        if waiting.is_empty() {
            return Ok(shard.counters);
        }
        let batch = take_batch(&mut waiting, batch_max, DecodedDelivery::deliveries);
        shard.turn_decoded(batch).await?;
    }
}

/// Takes at most `max` of the messages that wait: first those that were delivered most often, which have waited longest.
fn take_batch<T>(waiting: &mut Vec<T>, max: usize, deliveries: impl Fn(&T) -> u32) -> Vec<T> {
    // Of those delivered as often, the first one first.
    waiting.sort_by_key(|message| std::cmp::Reverse(deliveries(message)));
    let rest = waiting.split_off(max.min(waiting.len()));
    std::mem::replace(waiting, rest)
}

/// Takes messages and passes each to the shard that owns its run, until `stop` is true. Messages taken by then are
/// passed on as well, so that a graceful end loses none.
async fn intake<W: Workflow, P: Ports>(
    ports: &P,
    queues: &[mpsc::Sender<DecodedDelivery<W>>],
    options: &Options,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), StoreError> {
    let mut wait = Duration::from_millis(100);
    loop {
        let taken = tokio::select! {
            biased;
            () = stopped(stop) => return Ok(()),
            taken = ports.inbox().take(options.batch_max) => taken,
        };
        match taken {
            Ok(deliveries) => {
                wait = Duration::from_millis(100);
                for delivery in deliveries {
                    let message = DecodedDelivery::<W>::decode(delivery);
                    let token = message.token();
                    let shard = shard_of(message.run(), queues.len());
                    if queues[shard].send(message).await.is_err() {
                        ports
                            .inbox()
                            .acknowledge(vec![(token, Ack::Again(0))])
                            .await;
                        return Ok(());
                    }
                }
            }
            Err(StoreError::Unavailable(why)) => {
                tracing::warn!(why, "the inbox does not answer");
                let _ = tokio::time::timeout(wait, stopped(stop)).await;
                wait = (wait * 2).min(Duration::from_secs(5));
            }
            Err(broken) => return Err(broken),
        }
    }
}

/// Index of the shard that owns `run`, of `shards`.
#[must_use]
pub fn shard_of(run: Option<&RunId>, shards: usize) -> usize {
    // An unreadable message goes to the first shard, which dead-letters it.
    let hash = run.map_or(0, |run| hash64(run.as_str().as_bytes()));
    usize::try_from(hash % shards as u64).unwrap_or(0)
}

/// Fires alarms of runs whose deadline has passed, or that have effects outstanding and no deadline, and deletes runs
/// that ended long ago.
async fn run_sweep<P: Ports>(ports: Arc<P>, options: Options) {
    loop {
        let pass = sweep(ports.as_ref(), options.sweep_grace_ms);
        match tokio::time::timeout(SWEEP_MAX, pass).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the sweep ended early"),
            Err(_) => tracing::warn!("the sweep hung, and begins again"),
        }
        tokio::time::sleep(jittered(options.sweep_every)).await;
    }
}

/// Time between three and five quarters of `every`, so that engines that began together do not ask together.
fn jittered(every: Duration) -> Duration {
    every.mul_f64(0.75 + rand::random::<f64>() / 2.0)
}

/// One pass over the runs that this process sweeps.
///
/// # Errors
/// Errors of the store.
pub async fn sweep<P: Ports>(ports: &P, grace_ms: u64) -> Result<(), StoreError> {
    let now = ports.clock().now();
    let overdue = Timestamp(now.0.saturating_sub(grace_ms));
    let mut after: Option<RunId> = None;
    loop {
        let pass = ports.reader().heads_to_sweep(after.as_ref(), SWEEP_PAGE);
        let heads = pass.await?;
        let Some(last) = heads.last() else {
            return Ok(());
        };
        after = Some(last.run.clone());
        let incarnation = ports.history().incarnation();
        let is_expired = |head: &Head| {
            head.closed
                .is_some_and(|at| now.since_ms(at) > CLOSED_KEPT_MS)
        };
        let (expired, others): (Vec<Head>, Vec<Head>) = heads.into_iter().partition(is_expired);
        // An append without an answer may land when the message that led to it is gone. Its deadline leads to the run.
        // Without a deadline nothing else does, and its signals wait: a run that has ended gets no more facts.
        let waits = |head: &Head| match head.deadline {
            Some(deadline) => deadline <= overdue,
            None => !head.quiet,
        };
        let late = others.into_iter().filter(waits);
        let messages: Vec<(RunId, Vec<u8>)> = late
            .filter_map(|head| timer_due(&head.run, incarnation).map(|bytes| (head.run, bytes)))
            .collect();
        // Alarms come first: runs may wait for them, but nothing waits for a deletion.
        if !messages.is_empty() {
            ports.inbox().put(messages).await?;
        }
        for head in expired {
            ports.reader().forget(&head.run, head.revision).await?;
        }
    }
}

/// Carries out `outstanding()` of every run, at most `per_s` per second. It is needed after the loss of a rebuildable
/// stream, and when an engine starts on a store with its queues in memory. A quiet run is not opened: only its alarm
/// is set, which counts as an eighth. Runs that a newer build wrote are left to it.
///
/// # Errors
/// Errors of the store.
pub async fn revisit_all<W: Workflow, P: Ports>(
    ports: Arc<P>,
    per_s: usize,
) -> Result<Pass, StoreError> {
    let mut shard = Shard::<W, P>::new(Arc::clone(&ports), "revisit", 1);
    let mut after: Option<RunId> = None;
    let mut runs = 0;
    loop {
        let revisit = revisit_page(&mut shard, ports.as_ref(), after.as_ref(), per_s);
        let in_time = tokio::time::timeout(PAGE_TIME_MAX, revisit).await;
        let hung = |_| StoreError::Unavailable("a page of the pass over all runs hung".into());
        let revisited = in_time.map_err(hung)??;
        let Some(page) = revisited else {
            let newer = shard.counters.newer;
            return Ok(Pass { runs, newer });
        };
        let Revisited { last, cost, .. } = page;
        after = Some(last);
        runs += page.runs;
        tokio::time::sleep(Duration::from_secs_f64(cost / per_s.max(1) as f64)).await;
    }
}

/// What [`revisit_all`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Number of runs in the store.
    pub runs: usize,
    /// Runs of them that a newer build wrote, which were left to it.
    pub newer: u64,
}

/// Page of [`revisit_all`].
#[derive(Debug)]
pub struct Revisited {
    /// Last run of the page.
    pub last: RunId,
    /// Number of runs.
    pub runs: usize,
    /// Cost of the page, in opened runs.
    pub cost: f64,
}

/// Carries out `outstanding()` of at most `max` runs after `after`. `None`: there are no more.
///
/// # Errors
/// Errors of the store.
pub async fn revisit_page<W: Workflow, P: Ports>(
    shard: &mut Shard<W, P>,
    ports: &P,
    after: Option<&RunId>,
    max: usize,
) -> Result<Option<Revisited>, StoreError> {
    let heads = ports
        .reader()
        .heads(after, max.clamp(1, SWEEP_PAGE))
        .await?;
    let Some(last) = heads.last().map(|head| head.run.clone()) else {
        return Ok(None);
    };
    let runs = heads.len();
    let (quiet, open): (Vec<_>, Vec<_>) = heads.into_iter().partition(|head| head.quiet);
    let set = quiet.into_iter().filter(|head| head.deadline.is_some());
    let set: Vec<_> = set.map(|head| (head.run, head.deadline)).collect();
    let cost = open.len() as f64 + set.len() as f64 / 8.0;
    if !set.is_empty() {
        ports.alarms().set(set).await?;
    }
    shard
        .revisit(open.into_iter().map(|head| head.run).collect())
        .await?;
    Ok(Some(Revisited { last, runs, cost }))
}

/// Reads the notes at intervals, and completes releases: carries out what is outstanding, as the messages that were
/// taken away are gone, and then removes the notes.
async fn run_watch<W: Workflow, P: Ports>(ports: Arc<P>, known: Arc<KnownNotes>) {
    loop {
        if let Err(error) = complete_releases::<W, P>(&ports, &known).await {
            tracing::debug!(%error, "the quarantine is read again later");
        }
        tokio::time::sleep(NOTES_EVERY).await;
    }
}

/// Carries out everything outstanding if a run was released, and then removes the released notes.
///
/// # Errors
/// Errors of the store.
pub async fn complete_releases<W: Workflow, P: Ports>(
    ports: &Arc<P>,
    known: &KnownNotes,
) -> Result<(), StoreError> {
    let released = known.refresh(ports.as_ref()).await?;
    if released.is_empty() {
        return Ok(());
    }
    let pass = revisit_all::<W, P>(Arc::clone(ports), REVISITS_AFTER_RELEASE_PER_S).await?;
    for note in released {
        ports.quarantine().remove(&note.run, note.version).await?;
        tracing::info!(run = %note.run, runs = pass.runs, "a run left the quarantine");
    }
    Ok(())
}

fn sum(a: Counters, b: Counters) -> Counters {
    Counters {
        records: a.records + b.records,
        events: a.events + b.events,
        dropped: a.dropped + b.dropped,
        unknown: a.unknown + b.unknown,
        conflicts: a.conflicts + b.conflicts,
        dead: a.dead + b.dead,
        newer: a.newer + b.newer,
        refused: a.refused + b.refused,
        quarantined: a.quarantined + b.quarantined,
        taken_away: a.taken_away + b.taken_away,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_of_engines_that_began_together_differ_by_half_an_interval() {
        let every = Duration::from_secs(40);
        let pauses: Vec<Duration> = (0..1_000).map(|_| jittered(every)).collect();
        let least = pauses.iter().min();
        let most = pauses.iter().max();
        let least = *least.expect("some");
        let most = *most.expect("some");
        assert!(least >= Duration::from_secs(30) && most <= Duration::from_secs(50));
        assert!(
            most - least > Duration::from_secs(15),
            "{least:?} to {most:?}"
        );
    }
    #[test]
    fn a_shard_begins_with_what_was_delivered_most_often() {
        let mut waiting = vec![("a", 1), ("b", 3), ("c", 1), ("d", 2), ("e", 3)];
        let first = take_batch(&mut waiting, 3, |(_, deliveries)| *deliveries);
        assert_eq!(first, [("b", 3), ("e", 3), ("d", 2)]);
        assert_eq!(waiting, [("a", 1), ("c", 1)]);
        assert_eq!(take_batch(&mut waiting, 3, |it| it.1).len(), 2);
        assert!(waiting.is_empty());
    }
}
