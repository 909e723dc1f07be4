//! Traces: spans as they come to be, and, when an episode ends, those of its records that this process did not append.

use super::{
    exporter::Exporter,
    spans::{self, Span},
    transition::{StateBefore, ended_episodes},
};
use dormer_engine::port::{HistoryReader, Ports, StoreError};
use dormer_engine_core::{Record, Run};
use dormer_proto::{
    envelope,
    id::{RunId, Seq, Timestamp},
    span::{SpanId, TraceId},
    work::SCHEMA,
};
use dormer_workers::observer::{AttemptRef, Operation, OperationEnd};
use dormer_workflows::Dormer;
use futures::future::BoxFuture;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::task::JoinSet;

/// Records of an episode that are read again: as many as a run keeps.
const RECORDS_MAX: usize = 256;
/// Runs of which it is remembered what was told; beyond, some spans are told twice.
const RUNS_MAX: usize = 20_000;

/// The records of the store, without its type.
trait Records: Send + Sync + 'static {
    fn from<'a>(
        &'a self,
        run: &'a RunId,
        seq: Seq,
    ) -> BoxFuture<'a, Result<Vec<Vec<u8>>, StoreError>>;
}

struct Of<P>(Arc<P>);

impl<P: Ports> Records for Of<P> {
    fn from<'a>(
        &'a self,
        run: &'a RunId,
        seq: Seq,
    ) -> BoxFuture<'a, Result<Vec<Vec<u8>>, StoreError>> {
        Box::pin(self.0.reader().records(run, seq, RECORDS_MAX))
    }
}

/// Those who are told spans.
pub(super) struct Traces {
    exporter: Exporter,
    records: OnceLock<Arc<dyn Records>>,
    /// Records of open episodes whose spans were told here. A lock: held for a map operation, never across an await.
    reported: Mutex<HashMap<RunId, BTreeSet<Seq>>>,
    /// Episodes that are being filled. A lock: held for a spawn, never across an await.
    filling: Mutex<JoinSet<()>>,
    /// Tells operations of one attempt apart, those of a worker of this name before a restart too.
    operations: AtomicU64,
}

/// An episode of which this process did not tell everything.
pub struct MissingSpans {
    /// Run that the episode is of.
    pub run: RunId,
    /// Record at which the episode began.
    pub episode: Seq,
    /// Last record that counts.
    pub until: Seq,
    /// Records whose spans are with the collector already.
    pub reported: BTreeSet<Seq>,
}

impl Traces {
    pub(super) fn new(exporter: Exporter) -> Self {
        let began = jiff::Timestamp::now().as_nanosecond();
        let operations = AtomicU64::new(u64::try_from(began).unwrap_or_default());
        let records = OnceLock::new();
        let reported = Mutex::default();
        let filling = Mutex::default();
        Self {
            exporter,
            records,
            reported,
            filling,
            operations,
        }
    }

    pub(super) fn reads<P: Ports>(&self, ports: Arc<P>) {
        // A process has one store.
        let _ = self.records.set(Arc::new(Of(ports)));
    }

    /// Tells these.
    #[cfg(test)]
    pub(super) fn send(&self, spans: impl IntoIterator<Item = Span>) {
        self.exporter.send(spans);
    }

    /// Waits until everything is told, what others appended too.
    pub(super) async fn flush(&self) {
        let filling = std::mem::take(&mut *self.filling());
        filling.join_all().await;
        self.exporter.flush().await;
    }

    /// A record was stored.
    pub(super) fn stored(&self, before: Option<&StateBefore>, record: &Record<Dormer>) {
        self.exporter.send(spans::of(before, record));
        for hole in self.note(before, record) {
            if let Some(records) = self.records.get() {
                let mut filling = self.filling();
                while filling.try_join_next().is_some() {}
                filling.spawn(fill(Arc::clone(records), self.exporter.clone(), hole));
            }
        }
    }

    fn filling(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the record was told; answers the episodes that it ended and of which something was not told here.
    fn note(&self, before: Option<&StateBefore>, record: &Record<Dormer>) -> Vec<MissingSpans> {
        let run = &record.run;
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() >= RUNS_MAX && !reported.contains_key(&run.id) {
            reported.clear();
        }
        let ours = reported.entry(run.id.clone()).or_default();
        ours.insert(run.seq);
        let ended = ended_episodes(before, record);
        let holes = ended.filter_map(|episode| {
            let whole = (episode.seq.0..=run.seq.0).all(|seq| ours.contains(&Seq(seq)));
            let hole = || MissingSpans {
                run: run.id.clone(),
                episode: episode.seq,
                until: run.seq,
                reported: ours.clone(),
            };
            (!whole).then(hole)
        });
        let holes = holes.collect();
        match run.episode() {
            Some(open) => ours.retain(|seq| *seq >= open.seq),
            None => drop(reported.remove(&run.id)),
        }
        holes
    }

    /// An attempt waited in the queue until now.
    pub(super) fn queued(&self, at: &AttemptRef, ordered: Timestamp, now: Timestamp) {
        self.tell(at, "queue", ordered.0.min(now.0), now.0, |span| span);
    }

    /// A worker executed an attempt.
    pub(super) fn executed(
        &self,
        at: &AttemptRef,
        now: Timestamp,
        took_ms: u64,
        outcome: &'static str,
    ) {
        let from = now.0.saturating_sub(took_ms);
        self.tell(at, "execute", from, now.0, |mut span| {
            span.error = (outcome != "finished").then(|| outcome.to_owned());
            span.with("dormer.outcome", outcome)
        });
    }

    /// An attempt did something on a host.
    pub(super) fn operation_ended(
        &self,
        at: &AttemptRef,
        operation: Operation,
        now: Timestamp,
        took_ms: u64,
        end: OperationEnd,
    ) {
        let from = now.0.saturating_sub(took_ms);
        self.tell(at, operation.name(), from, now.0, |mut span| {
            span.error = (end != OperationEnd::Done).then(|| end.name().to_owned());
            let span = span.with("dormer.outcome", end.name());
            match operation {
                Operation::Upload { bytes } => span.with("dormer.bytes", bytes),
                _ => span,
            }
        });
    }

    /// Tells a span below an attempt. It hangs on the attempt, not on what the worker does as a whole: of a worker
    /// that is killed the latter never comes, and the attempt is told by the engine.
    fn tell(
        &self,
        at: &AttemptRef,
        what: &'static str,
        from: u64,
        to: u64,
        more: impl FnOnce(Span) -> Span,
    ) {
        if at.episode == Seq(0) {
            return;
        }
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        let key = format!("{what} {} {number}", at.worker);
        let id = SpanId::operation(&at.task, at.attempt, &key);
        let trace = TraceId::of(&at.task.run, None, at.episode);
        let span = Span::new(trace, id, what, from, to)
            .below(SpanId::attempt(&at.task, at.attempt))
            .with("dormer.worker", &at.worker)
            .with("dormer.task", &at.task)
            .with("dormer.attempt", at.attempt);
        self.exporter.send([more(span)]);
    }
}

/// Tells what others appended, or this process before a restart.
async fn fill(records: Arc<dyn Records>, exporter: Exporter, hole: MissingSpans) {
    let first = Seq(hole.episode.0.saturating_sub(1));
    match records.from(&hole.run, first).await {
        Ok(kept) => exporter.send(missing(&hole, &kept)),
        Err(error) => tracing::debug!(run = %hole.run, %error, "a trace keeps its holes"),
    }
}

/// The spans of an episode's records, but for those that were told.
pub fn missing(hole: &MissingSpans, kept: &[Vec<u8>]) -> Vec<Span> {
    let (mut spans, mut before): (Vec<Span>, Option<Run<Dormer>>) = Default::default();
    for bytes in kept {
        let Ok((record, _)) = envelope::decode::<Record<Dormer>>(bytes, SCHEMA) else {
            break;
        };
        let seq = record.run.seq;
        let follows = before.as_ref().is_some_and(|run| run.seq.next() == seq);
        if seq > hole.until {
            break;
        }
        if (follows || seq == Seq(1)) && !hole.reported.contains(&seq) {
            let trace = spans::trace(&record.run, hole.episode);
            let state_before = before.as_ref().map(StateBefore::at);
            let all = spans::of(state_before.as_ref(), &record);
            spans.extend(all.into_iter().filter(|span| span.trace == trace));
        }
        before = Some(record.run);
    }
    spans
}
