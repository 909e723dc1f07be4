//! Replay: folds a recorded history with this build, and finds records that it decides differently. It changes
//! nothing.

use crate::{record::Record, run::Run, transition::Transition, workflow::Workflow};
use dormer_proto::id::{Seq, Sum};

/// Most request ids in a run of earlier builds.
const EARLIER_REQUESTS_MAX: usize = 16;

/// Record that this build decides differently.
#[derive(Debug, Clone, PartialEq)]
pub struct Divergence<W: Workflow> {
    /// Seq of the record.
    pub seq: Seq,
    /// Run that this build decides from its events.
    pub ours: Box<Run<W>>,
    pub recorded: Box<Run<W>>,
}

/// Folds one record over the run in the record before it (`None`: this is the first). `sum` is the record's own
/// checksum. Returns the run that this build decides, and the divergence, if there is one.
pub fn replay_record<W: Workflow>(
    before: Option<&Run<W>>,
    record: &Record<W>,
    sum: Sum,
) -> (Run<W>, Option<Divergence<W>>) {
    let start = || {
        let state = W::start(&record.run.id, false).or_else(|| W::start(&record.run.id, true));
        Transition::first(record.run.id.clone(), record.at, state.unwrap_or_default())
    };
    let mut transition = before.map_or_else(start, |run| Transition::of(run.clone(), record.at));
    for event in &record.events {
        transition.apply(event.clone());
    }
    let mut ours = transition.into_run();
    ours.set_sum(sum);
    if record.run.requests.len() == EARLIER_REQUESTS_MAX {
        let forgotten = ours.requests.len().saturating_sub(EARLIER_REQUESTS_MAX);
        ours.requests.drain(..forgotten);
    }
    let mut recorded = record.run.clone();
    recorded.set_sum(sum);
    let differs = ours != recorded;
    let divergence = differs.then(|| Divergence {
        seq: record.run.seq,
        ours: Box::new(ours.clone()),
        recorded: Box::new(recorded),
    });
    (ours, divergence)
}
