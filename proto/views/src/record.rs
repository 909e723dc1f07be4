//! History of a run for people: records and their events.

use crate::{moment::Moment, open_enum::OpenEnum};
use dormer_proto::{listed, phase::MachinePhase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

listed! {
    /// What a record of a history is about.
    pub enum EventKind {
        /// The run began.
        Started = "started",
        /// The watcher saw an object, or that it is gone.
        Observed = "observed",
        TaskSucceeded = "task-succeeded",
        /// A task failed for good, or its attempts are used up.
        TaskFailed = "task-failed",
        /// A timer was due.
        TimerDue = "timer-due",
        /// Another run sent a signal.
        SignalTaken = "signal-taken",
        /// Another run confirmed a signal of this one.
        SignalReceipted = "signal-receipted",
        /// A signal of this run was refused.
        SignalRefused = "signal-refused",
        /// The rollout granted its lease to a machine.
        LeaseGranted = "lease-granted",
        /// A person requested an action.
        Requested = "requested",
        /// A person sent the run back to an earlier record.
        Reset = "reset",
    }
}

/// Event of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    pub kind: OpenEnum<EventKind>,
    /// Name of the task, where it is about one.
    pub task: Option<String>,
    /// Code of the failure, such as `AuthRejected`.
    pub code: Option<String>,
    /// Number of the attempt, from 1.
    pub attempt: Option<u64>,
    /// Why it failed, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// End of the log of the service at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Id of the other run: the sender or receiver of a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    /// Whether it comes again and again in a rollout, and matters only where it changes something: a report of a machine that
    /// is well, or numbers of a MachineSet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub routine: bool,
    /// All of it in a sentence, without a full stop.
    pub text: String,
}

impl Event {
    /// An event that is not about a task.
    pub fn new(kind: EventKind, text: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            task: None,
            code: None,
            attempt: None,
            message: None,
            log: None,
            other: None,
            routine: false,
            text: text.into(),
        }
    }
}

impl Event {
    /// Whether it is only for dormer itself: runs confirm each other's signals, a timer leads to what follows it, and what is
    /// routine says nothing new.
    pub fn is_internal(&self) -> bool {
        self.routine || self.kind == EventKind::SignalReceipted || self.kind == EventKind::TimerDue
    }
}

/// A record of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its number, from 1.
    pub seq: u64,
    /// Its time, by the engine's clock.
    pub at: Moment,
    /// State of the run after it, as its workflow names it.
    pub state: String,
    /// The state in the word that people read, where that is another: an Open rollout is Idle, Waiting or Running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_text: Option<String>,
    /// Phase of a machine after it.
    pub phase: Option<OpenEnum<MachinePhase>>,
    /// The phase in words.
    pub phase_text: Option<String>,
    /// What happened.
    pub events: Vec<Event>,
    /// Names of the tasks that it ordered.
    pub asks: Vec<String>,
    /// Stored envelope of the record in base64; only if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<String>,
}

impl Record {
    /// State in the word that people read.
    pub fn state_word(&self) -> &str {
        self.state_text.as_deref().unwrap_or(&self.state)
    }

    /// Phase in words, if it says more than the state.
    pub fn phase_beside_state(&self) -> Option<&str> {
        let text = self.phase_text.as_deref()?;
        (!text.eq_ignore_ascii_case(&self.state)).then_some(text)
    }
}

/// Records that people read, oldest first: without those that only dormer needs, and with equal failures in a row as one.
#[derive(Debug, PartialEq)]
pub struct ShownRecord<'a> {
    /// The last of its records.
    pub record: &'a Record,
    pub first: &'a Record,
    /// Number of its records.
    pub times: usize,
}

impl ShownRecord<'_> {
    /// How often its failure came: `attempts 45 to 300`, or `3 times so` where attempts are not numbered in a row.
    pub fn repeated(&self) -> String {
        let attempt = |record: &Record| record.events.iter().find_map(|event| event.attempt);
        let span = attempt(self.first).zip(attempt(self.record));
        let in_a_row = |&(first, last): &(u64, u64)| {
            last.checked_sub(first)
                .is_some_and(|more| more + 1 == self.times as u64)
        };
        match span.filter(in_a_row) {
            Some((first, last)) => format!("attempts {first} to {last}"),
            None => format!("{} times so", self.times),
        }
    }

    /// Its events: without internal ones, unless `all` are asked for, or nothing else tells why the record is there. A
    /// timer before a task that was ordered says nothing; one that ended a step is named.
    pub fn events(&self, all: bool) -> impl Iterator<Item = &Event> {
        let internal = self.record.events.iter().all(Event::is_internal);
        let alone = internal && self.record.asks.is_empty();
        let events = self.record.events.iter();
        events.filter(move |event| all || alone || !event.is_internal())
    }
}

/// The records that people read, and how many were left out. With `all`, each record is there by itself.
pub fn shown<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    all: bool,
) -> (Vec<ShownRecord<'a>>, usize) {
    let mut rows: Vec<ShownRecord<'a>> = Vec::new();
    let mut left_out = 0;
    let mut state = None;
    for record in records {
        let now = (&record.state, &record.phase_text);
        let same = state == Some(now) && record.asks.is_empty();
        state = Some(now);
        if !all && same && record.events.iter().all(Event::is_internal) {
            left_out += 1;
            continue;
        }
        match rows.last_mut() {
            Some(last) if !all && same && is_again(last.record, record) => {
                last.record = record;
                last.times += 1;
            }
            _ => rows.push(ShownRecord {
                record,
                first: record,
                times: 1,
            }),
        }
    }
    (rows, left_out)
}

/// Whether two records in a row are about the same failure of the same task.
fn is_again(before: &Record, record: &Record) -> bool {
    let failure = |record: &'_ Record| {
        let mut shown = record.events.iter().filter(|event| !event.is_internal());
        let first = shown.next().filter(|it| it.kind == EventKind::TaskFailed)?;
        let only = shown.next().is_none() && record.asks.is_empty();
        only.then(|| (first.task.clone(), first.code.clone()))
    };
    failure(record).is_some_and(|failed| failure(before) == Some(failed))
}

/// A part of a history, oldest record first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// Id of the run.
    pub run: String,
    pub items: Vec<Record>,
    /// Number of the first record of the next part; null at the end.
    pub next: Option<u64>,
    /// Schema of the records; only with their envelopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<u64>,
    /// Incarnation of the store; only with the envelopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// Version of the dormer that answers; only with the envelopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn record(seq: u64, events: Value) -> Record {
        let record = json!({"seq": seq, "at": "2026-11-21T07:00:00.000Z", "state": "Provisioned",
            "phase": "probing", "phaseText": "probing", "events": events, "asks": []});
        serde_json::from_value(record).expect("a record")
    }

    fn failed(seq: u64, code: &str) -> Record {
        let text = format!("probe failed at attempt {seq}: no");
        record(
            seq,
            json!([{"kind": "task-failed", "task": "probe", "code": code, "attempt": seq, "text": text}]),
        )
    }

    fn due(seq: u64) -> Record {
        record(seq, json!([{"kind": "timer-due", "text": "a timer"}]))
    }

    #[test]
    fn what_is_routine_in_a_rollout_does_not_hide_what_a_person_did() {
        let routine = |seq| {
            record(
                seq,
                json!([{"kind": "signal-taken", "text": "report", "routine": true}]),
            )
        };
        let pause = json!([{"kind": "requested", "text": "ann asked: pause"},
            {"kind": "observed", "text": "numbers", "routine": true}]);
        let mut granted = routine(4);
        granted.state = "Halted".into();
        let records = [
            routine(1),
            routine(2),
            record(3, pause),
            granted,
            routine(5),
        ];
        let (rows, left_out) = shown(&records, false);
        let texts: Vec<Vec<&str>> = rows
            .iter()
            .map(|row| row.events(false).map(|it| it.text.as_str()).collect())
            .collect();
        assert_eq!(
            texts,
            [
                vec!["report"],
                vec!["ann asked: pause"],
                vec!["report"],
                vec!["report"]
            ],
            "the first of all, and those that change the state"
        );
        assert_eq!(left_out, 1);
        assert_eq!(shown(&records, true).0.len(), 5);
    }

    #[test]
    fn equal_failures_in_a_row_are_one_and_timers_between_them_are_left_out() {
        let records = [
            record(1, json!([{"kind": "started", "text": "the run began"}])),
            failed(2, "DiskFull"),
            due(3),
            failed(4, "DiskFull"),
            due(5),
            failed(6, "DiskFull"),
            failed(7, "NoAnswer"),
        ];
        let (rows, left_out) = shown(&records, false);
        let seen: Vec<(u64, u64, usize)> = rows
            .iter()
            .map(|row| (row.first.seq, row.record.seq, row.times))
            .collect();
        assert_eq!(seen, [(1, 1, 1), (2, 6, 3), (7, 7, 1)]);
        assert_eq!(left_out, 2);
        assert_eq!(rows[1].repeated(), "3 times so", "attempts 2, 4 and 6");
        let late = [failed(45, "DiskFull"), due(46), failed(46, "DiskFull")];
        assert_eq!(shown(&late, false).0[0].repeated(), "attempts 45 to 46");
        let (rows, left_out) = shown(&records, true);
        assert_eq!((rows.len(), left_out), (7, 0), "all of them");

        let mut orders = due(8);
        orders.asks = vec!["plan".into()];
        let told = |record: &Record, all: bool| {
            let records = [record.clone()];
            let (rows, _) = shown(&records, all);
            rows[0].events(all).count()
        };
        assert_eq!((told(&orders, false), told(&orders, true)), (0, 1));
        assert_eq!(told(&due(9), false), 1, "it ended a step");
    }
}
