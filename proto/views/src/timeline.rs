//! Timeline of a run: episodes, their phases, their tasks, and each task's attempts and waits.

use crate::open_enum::OpenEnum;
use dormer_proto::{
    listed,
    phase::{MachinePhase, MachineState},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Timeline of a run so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// Id of the run.
    pub run: String,
    /// Now, in milliseconds since 1970 by the engine's clock, as all times here.
    pub now: u64,
    /// The first record that is still stored; a store keeps the last 256 of each run. What came before it is not here, and
    /// the phase that it belongs to begins with its state.
    #[serde(default, rename = "firstRecord", alias = "first_record")]
    pub first_record: u64,
    /// Episodes, oldest first. The time between two of them belongs to one without a name, `serving`.
    pub episodes: Vec<Episode>,
}

/// Episode of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TimelineEpisode")]
pub struct Episode {
    /// Purpose, such as `bring-up`.
    pub kind: String,
    /// The record at which it began.
    pub seq: u64,
    /// Start, in milliseconds by the engine's clock, as all times here.
    pub from: u64,
    /// End. Null while it is under way.
    pub to: Option<u64>,
    /// Result; empty while it is open.
    pub result: String,
    /// Oldest first.
    pub phases: Vec<Phase>,
}

/// Phase of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TimelinePhase")]
pub struct Phase {
    /// State that the phase belongs to.
    pub state: OpenEnum<MachineState>,
    pub phase: OpenEnum<MachinePhase>,
    /// The phase in words.
    pub text: String,
    /// Start.
    pub from: u64,
    /// End; null while the run is in it.
    pub to: Option<u64>,
    /// Tasks that it ordered, in order.
    pub tasks: Vec<Task>,
}

/// Task with its attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TimelineTask")]
pub struct Task {
    /// `SEQ.ORDINAL`: its identity within the run.
    pub id: String,
    /// What it does, such as `probe`.
    pub name: String,
    /// Time of the first order.
    pub from: u64,
    /// End; null while it is open.
    pub to: Option<u64>,
    /// In their order.
    pub attempts: Vec<Attempt>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TimelineAttempt")]
pub struct Attempt {
    /// Number, from 1.
    pub attempt: u64,
    /// When it was ordered.
    pub from: u64,
    /// End; null while it is under way.
    pub to: Option<u64>,
    /// How it ended; null while it is under way.
    pub result: Option<OpenEnum<AttemptResult>>,
    /// Who reported.
    pub worker: Option<String>,
    /// Failure, or details of the success.
    pub detail: Option<String>,
    /// Time at which the next attempt is due, after a failure.
    pub wait: Option<u64>,
}

listed! {
    /// How an attempt ended.
    pub enum AttemptResult {
        /// The worker reported success.
        Succeeded = "succeeded",
        /// The worker reported a failure.
        Failed = "failed",
        /// No report came within the attempt's time limit.
        TimedOut = "timed-out",
        /// The run moved on without it.
        Cancelled = "cancelled",
    }
}

impl AttemptResult {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// That a run's first records are no longer stored, and where they can be seen. `None`: they are stored.
pub fn not_stored(first_record: u64) -> Option<String> {
    (first_record > 1).then(|| {
        format!(
            "Records before {first_record} are not shown: a store keeps the last 256 of each run. The log of dormer run, and its \
             traces, have the earlier ones."
        )
    })
}

impl Task {
    /// Number of its attempts so far, with those whose records are no longer stored.
    pub fn attempts_made(&self) -> u64 {
        self.attempts.last().map_or(0, |last| last.attempt)
    }

    /// Number of its attempts in words: `3 attempts`, `300 attempts (the first 44 are not shown)`.
    pub fn attempts_text(&self) -> String {
        let made = self.attempts_made();
        let first = self.attempts.first().map_or(1, |first| first.attempt);
        let many = if made == 1 { "" } else { "s" };
        match first {
            0 | 1 => format!("{made} attempt{many}"),
            2 => format!("{made} attempts (the first one is not shown)"),
            first => format!("{made} attempts (the first {} are not shown)", first - 1),
        }
    }
}

impl Attempt {
    /// Result in words, or that it is in progress.
    pub fn result_text(&self) -> &str {
        match &self.result {
            None => "under way",
            Some(OpenEnum::Known(result)) => result.text(),
            Some(OpenEnum::Newer(id)) => id,
        }
    }
}

impl Phase {
    /// Phase in words, with its state if that says more.
    pub fn label(&self) -> String {
        if self.text.eq_ignore_ascii_case(self.state.id()) {
            self.state.id().to_owned()
        } else {
            format!("{}: {}", self.state, self.text)
        }
    }
}

impl Episode {
    /// Every task of it.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.phases.iter().flat_map(|phase| &phase.tasks)
    }

    /// End of the scale on which it is drawn at `now`. A machine that has failed waits for a person, often for longer than
    /// it took before: that wait gets at most an eighth of the scale.
    pub fn scale_end(&self, now: u64) -> u64 {
        let end = self.to.unwrap_or(now).max(self.from + 1);
        let waits = self.phases.last().filter(|last| {
            last.to.is_none() && last.phase == MachinePhase::Failed && last.from > self.from
        });
        waits.map_or(end, |last| {
            end.min(last.from + ((last.from - self.from) / 7).max(1))
        })
    }

    /// How it ended, in words.
    pub fn ending(&self) -> &str {
        match (self.to, self.result.as_str()) {
            (None, _) if self.rests_in(MachinePhase::Failed) => "failed",
            (None, _) => "under way",
            (Some(_), "") => "ended",
            (Some(_), GIVEN_UP) if self.is_drain() => "resumed",
            (Some(_), result) => result,
        }
    }

    /// Purpose for people. A drain that a person asked for is recorded as an upgrade, since it needs the lease as well.
    pub fn purpose(&self) -> &str {
        if self.is_drain() { "drain" } else { &self.kind }
    }

    /// Whether it only drained the node until a person resumed the machine.
    fn is_drain(&self) -> bool {
        let drained = self
            .phases
            .iter()
            .any(|it| it.phase == MachinePhase::Drained);
        let given_up = self.to.is_some() && self.result == GIVEN_UP;
        self.rests_in(MachinePhase::Drained) || given_up && drained
    }

    /// Whether it is open, and the machine waits in this phase.
    fn rests_in(&self, phase: MachinePhase) -> bool {
        let last = self.phases.last();
        self.to.is_none() && last.is_some_and(|last| last.to.is_none() && last.phase == phase)
    }
}

/// Result of an episode whose change was given up.
pub const GIVEN_UP: &str = "given up";

/// Name of the time between two episodes.
pub const BETWEEN: &str = "serving";

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(phase: MachinePhase, from: u64, to: Option<u64>) -> Phase {
        Phase {
            state: phase.state().into(),
            phase: phase.into(),
            text: phase.text().into(),
            from,
            to,
            tasks: Vec::new(),
        }
    }

    #[test]
    fn the_first_record_is_spelt_as_other_fields_and_that_of_an_older_server_is_read() {
        for field in ["firstRecord", "first_record"] {
            let read = serde_json::json!({"run": "machine/u", "now": 1, field: 9, "episodes": []});
            let read: Timeline = serde_json::from_value(read).expect("a timeline");
            assert_eq!(read.first_record, 9, "{field}");
            let shown = serde_json::to_value(read).expect("JSON");
            assert_eq!(shown["firstRecord"], 9);
        }
    }

    #[test]
    fn attempts_whose_records_are_no_longer_stored_count() {
        let attempt = |attempt| Attempt {
            attempt,
            from: 0,
            to: None,
            result: None,
            worker: None,
            detail: None,
            wait: None,
        };
        let task = |attempts: &[u64]| Task {
            id: "3.0".into(),
            name: "probe".into(),
            from: 0,
            to: None,
            attempts: attempts.iter().map(|it| attempt(*it)).collect(),
        };
        assert_eq!(task(&[]).attempts_text(), "0 attempts");
        assert_eq!(task(&[1]).attempts_text(), "1 attempt");
        assert_eq!(task(&[1, 2]).attempts_text(), "2 attempts");
        let cut = task(&[45, 46, 47]);
        assert_eq!(
            cut.attempts_text(),
            "47 attempts (the first 44 are not shown)"
        );
        let said = not_stored(45).unwrap_or_default();
        assert!(
            said.starts_with("Records before 45 are not shown"),
            "{said}"
        );
        assert_eq!((not_stored(1), not_stored(0)), (None, None));
    }

    #[test]
    fn an_episode_says_what_it_was_for_and_how_it_stands() {
        let upgrade = |phases: Vec<Phase>, to, result: &str| Episode {
            kind: "upgrade".into(),
            seq: 25,
            from: 0,
            to,
            result: result.into(),
            phases,
        };
        let said = |it: Episode| format!("{}: {}", it.purpose(), it.ending());
        let evicting = || phase(MachinePhase::Evicting, 0, Some(5));
        let drained = |to| phase(MachinePhase::Drained, 5, to);
        let undoing = || phase(MachinePhase::Undoing, 9, Some(10));
        let ended = vec![evicting(), drained(Some(9)), undoing()];
        assert_eq!(
            said(upgrade(ended.clone(), Some(10), GIVEN_UP)),
            "drain: resumed"
        );
        assert_eq!(
            said(upgrade(vec![evicting(), drained(None)], None, "")),
            "drain: under way"
        );
        let aborted = vec![evicting(), undoing()];
        assert_eq!(
            said(upgrade(aborted, Some(10), GIVEN_UP)),
            "upgrade: given up"
        );
        assert_eq!(
            said(upgrade(ended, Some(10), "upgraded")),
            "upgrade: upgraded"
        );
        let failed = vec![evicting(), phase(MachinePhase::Failed, 5, None)];
        assert_eq!(said(upgrade(failed, None, "")), "upgrade: failed");
        assert_eq!(
            said(upgrade(
                vec![phase(MachinePhase::Evicting, 0, None)],
                None,
                ""
            )),
            "upgrade: under way"
        );
    }

    #[test]
    fn what_a_machine_did_stays_readable_beside_the_days_since_it_failed() {
        let episode = |phases: Vec<Phase>, to| Episode {
            kind: "bring-up".into(),
            seq: 1,
            from: 1_000,
            to,
            result: String::new(),
            phases,
        };
        let day = 86_400_000;
        let probing = |to| phase(MachinePhase::Probing, 1_000, to);
        let failed = phase(MachinePhase::Failed, 71_000, None);
        let left = episode(vec![probing(Some(71_000)), failed], None);
        assert_eq!(left.scale_end(day), 81_000);
        assert_eq!(left.scale_end(72_000), 72_000, "it has just failed");
        assert_eq!(episode(vec![probing(None)], None).scale_end(day), day);
        let ended = episode(vec![probing(Some(71_000))], Some(71_000));
        assert_eq!(ended.scale_end(day), 71_000);
    }
}
