//! Report of a replay, for people and for programs.

use dormer_api::replay::{Difference, DivergentRecord, Judgement};
use dormer_proto::id::{RunId, Seq};
use serde::Serialize;
use std::{collections::BTreeMap, fmt};

/// Most findings listed of each kind. The rest is counted.
const NAMED_MAX: usize = 1_000;

/// Most fields listed of those that this build remembers differently.
const FIELDS_MAX: usize = 50;

/// Record or line that cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Fault {
    /// Record as `RUN record SEQ`, or file and line.
    at: String,
    what: String,
}

/// Reason.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReplayReport {
    /// Runs read.
    runs: u64,
    /// Records read.
    records: u64,
    /// Records that this build decides as recorded.
    same: u64,
    /// Records that it decides as recorded while it remembers something else.
    remembers: u64,
    /// Those fields, each with its number of records.
    remembered: BTreeMap<String, u64>,
    /// First stored records of longer histories. The records after them are judged.
    begin: u64,
    /// Records that it decides differently.
    otherwise: u64,
    /// Records or lines that cannot be judged.
    faults: u64,
    /// First of them.
    decided_otherwise: Vec<DivergentRecord>,
    not_judged: Vec<Fault>,
    #[serde(skip)]
    last: Option<RunId>,
}

impl ReplayReport {
    pub(super) fn take(&mut self, run: &RunId, seq: Seq, judgement: Judgement) {
        self.records += 1;
        if self.last.as_ref() != Some(run) {
            self.runs += 1;
            self.last = Some(run.clone());
        }
        match judgement {
            Judgement::Same => self.same += 1,
            Judgement::Remembers(fields) => self.remember(&fields),
            Judgement::First => self.begin += 1,
            Judgement::DivergentRecord(found) => {
                self.otherwise += 1;
                if self.decided_otherwise.len() < NAMED_MAX {
                    self.decided_otherwise.push(*found);
                }
            }
            Judgement::Fault(what) => self.fault(format!("{run} record {seq}"), what),
        }
    }

    /// Begins another file. A run in it is a new history, even if an earlier file had the run.
    pub(super) fn next_source(&mut self) {
        self.last = None;
    }

    /// Reports a line that does not belong to a history.
    pub(super) fn strange(&mut self, source: &str, line: usize, what: &str) {
        let at = if line == 0 {
            source.to_owned()
        } else {
            format!("{source} line {line}")
        };
        self.fault(at, what.to_owned());
    }

    fn remember(&mut self, fields: &[Difference]) {
        self.remembers += 1;
        for it in fields {
            if self.remembered.len() < FIELDS_MAX || self.remembered.contains_key(&it.field) {
                *self.remembered.entry(it.field.clone()).or_default() += 1;
            }
        }
    }

    fn fault(&mut self, at: String, what: String) {
        self.faults += 1;
        if self.not_judged.len() < NAMED_MAX {
            self.not_judged.push(Fault { at, what });
        }
    }

    /// Whether this build decides everything as recorded.
    pub(super) fn is_good(&self) -> bool {
        self.otherwise == 0 && self.faults == 0
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for found in &self.decided_otherwise {
            writeln!(f, "{found}")?;
        }
        for fault in &self.not_judged {
            writeln!(f, "{}: {}", fault.at, fault.what)?;
        }
        let named = (self.decided_otherwise.len() + self.not_judged.len()) as u64;
        let more = (self.otherwise + self.faults).saturating_sub(named);
        if more > 0 {
            writeln!(f, "… and {more} more")?;
        }
        let runs = counted(self.runs, "run");
        let records = counted(self.records, "record");
        write!(f, "{records} of {runs}: ")?;
        if self.is_good() {
            write!(f, "this build decides everything as recorded")?;
        } else {
            let otherwise = self.otherwise;
            let faults = self.faults;
            let same = self.same + self.remembers;
            write!(
                f,
                "{same} as recorded, {otherwise} differently, {faults} not judged"
            )?;
        }
        match self.begin {
            0 => write!(f, ".")?,
            begin => write!(
                f,
                "; {begin} begin a history whose earlier records are no longer stored."
            )?,
        }
        if self.remembers > 0 {
            let fields: Vec<&str> = self.remembered.keys().map(String::as_str).collect();
            let count = counted(self.remembers, "record");
            let fields = fields.join(", ");
            write!(
                f,
                "\nIn {count} it decides the same but remembers something else: {fields}."
            )?;
        }
        Ok(())
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}
