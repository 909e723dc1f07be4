//! Replay: fold a recorded history with this build, and say where it would decide otherwise. Changes nothing.

use crate::{record::Record, run::Run, transition::Transition, workflow::Workflow};
use dormer_proto::id::{Seq, Sum};

/// A record at which today's code would decide otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Divergence<W: Workflow> {
    /// Which record.
    pub seq: Seq,
    /// What this build makes of its events.
    pub ours: Box<Run<W>>,
    /// What the record says.
    pub recorded: Box<Run<W>>,
}

/// Folds one record over the run as recorded before it (`None`: this is the first). `sum` is the record's own
/// checksum. Answers the run that this build arrives at, and the divergence, if there is one.
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
    ours.sealed(sum);
    let mut recorded = record.run.clone();
    recorded.sealed(sum);
    let differs = ours != recorded;
    let divergence = differs.then(|| Divergence {
        seq: record.run.seq,
        ours: Box::new(ours.clone()),
        recorded: Box::new(recorded),
    });
    (ours, divergence)
}
