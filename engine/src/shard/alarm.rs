//! When a run's alarm is set: it may ring early, so one that is set stays while the deadline only moves away from it.
//!
//! Most waits end long before their deadline, and the next deadline is later still: a run that goes on step by step
//! sets one alarm, not one a step. An alarm that rings before anything is due is set to the deadline of then.

use super::effects::EffectBatch;
use dormer_engine_core::{Dropped, Effects, HistoryEvent, Record, Run, Verdict, Workflow};
use dormer_proto::id::Timestamp;

/// What one plan knows of its run's alarm.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Alarm {
    /// The deadline before: the alarm is set, and rings no later.
    set: Option<Timestamp>,
    /// It rang early.
    early: bool,
}

impl Alarm {
    /// Of a run as it was loaded.
    pub(super) fn of<W: Workflow>(run: Option<&Run<W>>) -> Self {
        Self {
            set: run.and_then(Run::deadline),
            early: false,
        }
    }

    /// A message was offered; `timer_due`: the alarm's.
    pub(super) fn offered(&mut self, timer_due: bool, verdict: Verdict) {
        self.early |= timer_due && verdict == Verdict::Dropped(Dropped::Late);
    }

    /// Of a run to which nothing happened.
    pub(super) fn of_unchanged<W: Workflow>(self, run: &Run<W>, work: &mut EffectBatch) {
        if self.early {
            work.alarm(run.id.clone(), run.deadline());
        }
    }

    /// Whether the alarm has to be set after this record.
    pub(super) fn after<W: Workflow>(self, record: &Record<W>, effects: &mut Effects) {
        let due = record.run.deadline();
        let early = self.early
            || record
                .events
                .iter()
                .any(|e| matches!(e, HistoryEvent::TimerDue));
        if early {
            effects.alarm = Some(due);
        } else if self
            .set
            .is_some_and(|set| due.is_some_and(|due| set <= due))
        {
            effects.alarm = None;
        }
    }
}
