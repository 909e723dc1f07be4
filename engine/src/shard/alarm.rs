//! Setting of a run's alarm. An alarm may fire early, so a set alarm stays while the deadline only moves later.
//!
//! Most waits end long before their deadline, and the next deadline is later. So a run that proceeds step by step
//! sets one alarm, not one per step. An alarm that fires before anything is due is set to the deadline of that time.

use super::effects::EffectBatch;
use dormer_engine_core::{Dropped, Effects, HistoryEvent, Record, Run, Verdict, Workflow};
use dormer_proto::id::Timestamp;

/// State of a run's alarm within a plan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Alarm {
    /// Previous deadline. The alarm is set, and fires no later.
    set: Option<Timestamp>,
    /// Whether it fired early.
    early: bool,
}

impl Alarm {
    /// State of the alarm of a loaded run.
    pub(super) fn of<W: Workflow>(run: Option<&Run<W>>) -> Self {
        Self {
            set: run.and_then(Run::deadline),
            early: false,
        }
    }

    /// Notes an offered message. `timer_due`: it is the alarm's.
    pub(super) fn offered(&mut self, timer_due: bool, verdict: Verdict) {
        self.early |= timer_due && verdict == Verdict::Dropped(Dropped::Late);
    }

    /// Sets the alarm of an unchanged run if needed.
    pub(super) fn of_unchanged<W: Workflow>(self, run: &Run<W>, work: &mut EffectBatch) {
        if self.early {
            work.alarm(run.id.clone(), run.deadline());
        }
    }

    /// Decides whether the alarm must be set after this record.
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
