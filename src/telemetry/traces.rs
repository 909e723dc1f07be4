//! Traces: spans as they complete and, when an episode ends, the spans of records that other processes appended.

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
    lock::Locked as _,
    span::{SpanId, TraceId},
    work::SCHEMA,
};
use dormer_workers::observer::{AttemptRef, Operation, OperationEnd};
use dormer_workflows::Dormer;
use futures::future::BoxFuture;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::task::JoinSet;

/// Most records of an episode that are read again: as many as a run keeps.
const RECORDS_MAX: usize = 256;
/// Most runs whose sent records are remembered. Beyond it, some spans are sent twice.
const RUNS_MAX: usize = 20_000;

/// Records of the store, independent of its type.
trait Records: Send + Sync + 'static {
    fn from<'a>(
        &'a self,
        run: &'a RunId,
        seq: Seq,
    ) -> BoxFuture<'a, Result<Vec<Vec<u8>>, StoreError>>;
}

struct PortRecords<P>(Arc<P>);

impl<P: Ports> Records for PortRecords<P> {
    fn from<'a>(
        &'a self,
        run: &'a RunId,
        seq: Seq,
    ) -> BoxFuture<'a, Result<Vec<Vec<u8>>, StoreError>> {
        Box::pin(self.0.reader().records(run, seq, RECORDS_MAX))
    }
}

/// Sender of spans.
pub(super) struct Traces {
    exporter: Exporter,
    records: OnceLock<Arc<dyn Records>>,
    /// Records of open episodes whose spans this process sent. Lock held for one map operation, never across an
    /// await.
    reported: Mutex<HashMap<RunId, BTreeSet<Seq>>>,
    /// Tasks that complete episodes. Lock held for a spawn, never across an await.
    filling: Mutex<JoinSet<()>>,
    /// Distinguishes the operations of one attempt, including those of the same worker before a restart.
    operations: AtomicU64,
}

/// Episode of which this process did not send every span.
pub struct MissingSpans {
    /// Run of the episode.
    pub run: RunId,
    /// First record of the episode.
    pub episode: Seq,
    /// Last record of the episode.
    pub until: Seq,
    /// Records whose spans are already sent.
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
        let _ = self.records.set(Arc::new(PortRecords(ports)));
    }

    #[cfg(test)]
    pub(super) fn send(&self, spans: impl IntoIterator<Item = Span>) {
        self.exporter.send(spans);
    }

    /// Waits until all spans are sent, including those of other processes' records.
    pub(super) async fn flush(&self) {
        let filling = std::mem::take(&mut *self.filling());
        filling.join_all().await;
        self.exporter.flush().await;
    }

    /// Sends the spans of a stored record.
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
        self.filling.locked()
    }

    /// Notes that the record's spans were sent. Returns the episodes that it ended and that lack spans.
    fn note(&self, before: Option<&StateBefore>, record: &Record<Dormer>) -> Vec<MissingSpans> {
        let run = &record.run;
        let mut reported = self.reported.locked();
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

    /// Sends the span of an attempt's wait in the queue.
    pub(super) fn queued(&self, at: &AttemptRef, ordered: Timestamp, now: Timestamp) {
        self.send_span(at, "queue", ordered.0.min(now.0), now.0, |span| span);
    }

    /// Sends the span of an attempt's execution.
    pub(super) fn executed(
        &self,
        at: &AttemptRef,
        now: Timestamp,
        took_ms: u64,
        outcome: &'static str,
    ) {
        let from = now.0.saturating_sub(took_ms);
        self.send_span(at, "execute", from, now.0, |mut span| {
            span.error = (outcome != "finished").then(|| outcome.to_owned());
            span.with("dormer.outcome", outcome)
        });
    }

    /// Sends the span of an operation on a host.
    pub(super) fn operation_ended(
        &self,
        at: &AttemptRef,
        operation: Operation,
        now: Timestamp,
        took_ms: u64,
        end: OperationEnd,
    ) {
        let from = now.0.saturating_sub(took_ms);
        self.send_span(at, operation.name(), from, now.0, |mut span| {
            span.error = (end != OperationEnd::Done).then(|| end.name().to_owned());
            let span = span.with("dormer.outcome", end.name());
            match operation {
                Operation::Upload { bytes } => span.with("dormer.bytes", bytes),
                _ => span,
            }
        });
    }

    /// Sends a span below an attempt. Its parent is the attempt, which the engine sends, and not the execution: a
    /// killed worker never sends the latter.
    fn send_span(
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

/// Sends the spans of records that other processes appended, or this one before a restart.
async fn fill(records: Arc<dyn Records>, exporter: Exporter, hole: MissingSpans) {
    let first = Seq(hole.episode.0.saturating_sub(1));
    match records.from(&hole.run, first).await {
        Ok(kept) => exporter.send(missing(&hole, &kept)),
        Err(error) => tracing::debug!(run = %hole.run, %error, "a trace stays incomplete"),
    }
}

/// Spans of an episode's records that were not sent yet.
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
