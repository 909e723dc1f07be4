//! Recordings: what a host answered, operation by operation, and a host that answers from one.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::ControlFlow,
};

use dormer_host::{
    arguments,
    ops::{Host, Operation, OperationRequest, Outcome, WinError},
    run as run_core,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Scope, Shown, harmless::make_folder, is_harmless, native::Features, row::NO_NUMBER, rows, run,
};

/// One line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum RecordedLine {
    /// Which host it is, and the names that the rows used there.
    Host { about: String, scope: Scope },
    /// A row begins.
    Row { name: String },
    /// A call of the core begins: its words, and the document on its standard input.
    Call {
        words: Vec<String>,
        document: Option<String>,
    },
    /// An operation, and what the host made of it.
    Performed {
        operation: Box<Operation>,
        outcome: Box<Outcome>,
    },
    /// The row's result.
    Shown {
        result: RowResult,
        #[serde(default)]
        why: String,
    },
    /// The core's answer.
    Answered { answer: Value },
}

/// What came of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowResult {
    Held,
    Differs,
    Skipped,
}

impl RowResult {
    fn of(shown: &Shown) -> (Self, String) {
        match shown {
            Shown::Held(_) => (Self::Held, String::new()),
            Shown::Skipped(_, why) => (Self::Skipped, why.clone()),
            Shown::Failed(failed) => (Self::Differs, failed.to_string()),
        }
    }
}

/// A host that is asked through this, and what it answered.
#[derive(Debug)]
pub struct Recorder<H> {
    host: H,
    lines: Vec<RecordedLine>,
}

impl<H: Host> Recorder<H> {
    /// Records a host: `about` says which.
    pub fn new(host: H, about: &str, scope: &Scope) -> Self {
        let head = RecordedLine::Host {
            about: about.to_owned(),
            scope: scope.clone(),
        };
        Self {
            host,
            lines: vec![head],
        }
    }

    /// The host, and what was recorded: all rows and calls that came to an end.
    pub fn into_parts(mut self) -> (H, Vec<RecordedLine>) {
        if !self.lines.last().is_some_and(ends) {
            self.forget();
        }
        (self.host, self.lines)
    }

    /// Forgets the last row or call.
    pub fn forget(&mut self) {
        let begins = |line: &RecordedLine| {
            matches!(line, RecordedLine::Row { .. } | RecordedLine::Call { .. })
        };
        if let Some(at) = self.lines.iter().rposition(begins) {
            self.lines.truncate(at);
        }
    }

    /// Makes the scope's folder, runs the harmless rows, and reports each. A row whose report breaks off is forgotten,
    /// and the last.
    ///
    /// # Errors
    /// The folder cannot be made, or is there.
    pub async fn harmless_rows(
        &mut self,
        mut report: impl FnMut(Shown) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let Some(RecordedLine::Host { scope, .. }) = self.lines.first().cloned() else {
            return Ok(());
        };
        make_folder(&scope, &mut self.host).await?;
        let features = Features::read(&mut self.host).await;
        for row in rows(&scope).iter().filter(|row| is_harmless(row, &scope)) {
            let name = row.name.to_owned();
            self.lines.push(RecordedLine::Row { name });
            let shown = match features.lack(row.needs) {
                Some(why) => Shown::Skipped(row.name, why.to_owned()),
                None => match run(row, self).await {
                    Ok(()) => Shown::Held(row.name),
                    Err(failed) => Shown::Failed(failed),
                },
            };
            let (result, why) = RowResult::of(&shown);
            self.lines.push(RecordedLine::Shown { result, why });
            if report(shown).is_break() {
                self.forget();
                break;
            }
        }
        Ok(())
    }

    /// Makes a call of the core, as `dormer-host.exe` does with these words.
    ///
    /// # Errors
    /// The words are no call.
    pub async fn call(
        &mut self,
        words: Vec<String>,
        document: Option<String>,
    ) -> Result<(), String> {
        let asked = arguments::parse(&words).map_err(|error| error.to_string())?;
        let given = Ok(document.clone().map(String::into_bytes));
        self.lines.push(RecordedLine::Call { words, document });
        let answer = run_core(asked, given, &mut *self).await;
        let answer = serde_json::to_value(answer).map_err(|error| error.to_string())?;
        self.lines.push(RecordedLine::Answered { answer });
        Ok(())
    }
}

impl<H: Host> Host for Recorder<H> {
    async fn perform(&mut self, request: OperationRequest) -> Outcome {
        let operation = Box::new(request.operation.clone());
        let outcome = self.host.perform(request).await;
        self.lines.push(RecordedLine::Performed {
            operation,
            outcome: Box::new(outcome.clone()),
        });
        outcome
    }
}

/// Whether a recording may end with this line.
const fn ends(line: &RecordedLine) -> bool {
    match line {
        RecordedLine::Host { .. } | RecordedLine::Shown { .. } | RecordedLine::Answered { .. } => {
            true
        }
        RecordedLine::Row { .. } | RecordedLine::Call { .. } | RecordedLine::Performed { .. } => {
            false
        }
    }
}

/// A host that answers from a recording. The same question again gets the answer of its next time, and the last answer
/// when there is none.
#[derive(Debug, Default)]
pub struct Replay {
    answers: BTreeMap<String, VecDeque<Outcome>>,
    /// Operations that the recording lacks.
    unrecorded: Vec<&'static str>,
}

impl Replay {
    fn record(&mut self, operation: &Operation, outcome: Outcome) {
        self.answers
            .entry(key(operation))
            .or_default()
            .push_back(outcome);
    }
}

fn key(operation: &Operation) -> String {
    serde_json::to_string(operation).unwrap_or_default()
}

impl Host for Replay {
    async fn perform(&mut self, request: OperationRequest) -> Outcome {
        let recorded = self.answers.get_mut(&key(&request.operation));
        let next = recorded.and_then(|left| match left.len() {
            0 | 1 => left.front().cloned(),
            _ => left.pop_front(),
        });
        next.unwrap_or_else(|| {
            self.unrecorded.push(request.operation.name());
            Err(WinError::new(NO_NUMBER))
        })
    }
}

/// What came of replaying a recording.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Rows with the recorded result, and calls of the core with the recorded answer.
    pub same: usize,
    /// Rows that ask something else than at the time of the recording, or are gone.
    pub outdated: Vec<String>,
    /// What has another result now.
    pub wrong: Vec<String>,
}

/// Reads a recording.
///
/// # Errors
/// The number of the line that is none, and why.
pub fn parse(text: &str) -> Result<Vec<RecordedLine>, String> {
    let lines = text.lines().enumerate();
    lines
        .map(|(at, line)| serde_json::from_str(line).map_err(|e| format!("line {}: {e}", at + 1)))
        .collect()
}

/// Writes a recording, one line of JSON for each.
pub fn text(lines: &[RecordedLine]) -> String {
    let lines = lines
        .iter()
        .filter_map(|line| serde_json::to_string(line).ok());
    lines.map(|line| line + "\n").collect()
}

/// Runs rows and calls of the core over a recording.
///
/// # Errors
/// The lines are no recording.
pub async fn replay(lines: &[RecordedLine]) -> Result<Replayed, String> {
    let Some((RecordedLine::Host { scope, .. }, rest)) = lines.split_first() else {
        return Err("the first line names no host".into());
    };
    let mut left = rows(scope);
    let mut came = Replayed::default();
    let mut rest = rest.iter();
    while let Some(head) = rest.next() {
        let mut host = Replay::default();
        let end = rest.find(|line| match line {
            RecordedLine::Performed { operation, outcome } => {
                host.record(operation, *outcome.clone());
                false
            }
            _ => true,
        });
        match (head, end) {
            (RecordedLine::Row { name }, Some(RecordedLine::Shown { result, .. })) => {
                let found = left.iter().position(|row| row.name == name);
                let row = found.map(|at| left.remove(at));
                let now = match (&row, result) {
                    (None, _) => None,
                    (Some(_), RowResult::Skipped) => Some(RowResult::Skipped),
                    (Some(row), _) => Some(match run(row, &mut host).await {
                        Ok(()) => RowResult::Held,
                        Err(_) => RowResult::Differs,
                    }),
                };
                match now {
                    Some(now) if host.unrecorded.is_empty() && now == *result => came.same += 1,
                    Some(now) if host.unrecorded.is_empty() => {
                        came.wrong
                            .push(format!("{name}: {now:?}, recorded was {result:?}"));
                    }
                    _ => came.outdated.push(name.clone()),
                }
            }
            (RecordedLine::Call { words, document }, Some(RecordedLine::Answered { answer })) => {
                let call = arguments::parse(words).map_err(|error| error.to_string())?;
                let given = Ok(document.clone().map(String::into_bytes));
                let now = run_core(call, given, &mut host).await;
                let now = serde_json::to_value(now).map_err(|error| error.to_string())?;
                if now == *answer && host.unrecorded.is_empty() {
                    came.same += 1;
                } else {
                    let lacks = &host.unrecorded;
                    came.wrong.push(format!(
                        "{words:?}: {now}, recorded was {answer}; not recorded: {lacks:?}"
                    ));
                }
            }
            other => return Err(format!("no section of a recording: {other:?}")),
        }
    }
    Ok(came)
}
