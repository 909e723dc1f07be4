//! The contract's harmless rows on a host, through a program that performs single operations there.

use dormer_contract::{
    Scope, Shown, StandIns, clear,
    recording::{self, RecordedLine, Recorder},
};
use dormer_host::ops::{Host, OperationRequest, Outcome, WinError};
use dormer_proto::message::Failure;
use dormer_workers::ssh::{Conversation, Session};
use serde::Serialize;
use std::{
    ops::ControlFlow,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Longest wait for an answer, beyond the operation's own limit.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// `ERROR_BROKEN_PIPE`: the program is gone.
const BROKEN_PIPE: u32 = 109;
/// Why there is no recording.
pub(super) const NO_ROW: &str = "no row of the contract ran";

/// Results of the rows.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Contract {
    /// Rows that the host answers as dormer's model does.
    pub(super) held: usize,
    /// Rows that it answers otherwise: what was expected, and what came.
    pub(super) differs: Vec<String>,
    /// Rows that do not hold on such a host, and why.
    pub(super) skipped: Vec<String>,
    /// Whether the rows were cut: more of them would have run.
    pub(super) cut: bool,
}

impl Contract {
    /// How many rows have a result.
    pub(super) const fn rows(&self) -> usize {
        self.held + self.differs.len() + self.skipped.len()
    }

    /// Results for people, row by row unless a row holds.
    pub(super) fn text(&self) -> Vec<String> {
        let head = format!(
            "\n{} rows of the contract hold, {} differ from dormer's model, {} do not run on this host.",
            self.held,
            self.differs.len(),
            self.skipped.len()
        );
        let cut = "  CUT: the rows behind these did not run, and the recording ends here";
        let cut = self.cut.then(|| cut.to_owned());
        let differs = self.differs.iter().map(|why| format!("  DIFFERS {why}"));
        let skipped = self.skipped.iter().map(|why| format!("  skipped {why}"));
        [head]
            .into_iter()
            .chain(differs)
            .chain(skipped)
            .chain(cut)
            .collect()
    }
}

/// Rows that run on a host, and what has come so far. It outlives a run that is cut.
pub(super) struct Comparison {
    about: String,
    contract: Contract,
    recorder: Option<Recorder<Remote>>,
}

impl Comparison {
    /// Nothing has run yet.
    pub(super) fn new(about: String) -> Self {
        Self {
            about,
            contract: Contract {
                cut: true,
                ..Contract::default()
            },
            recorder: None,
        }
    }

    /// Runs the rows, and the core's probe with these words, by the program at this path.
    ///
    /// # Errors
    /// The program does not run, or was lost. The rows until then are kept.
    pub(super) async fn run(
        &mut self,
        session: &Session,
        program: &str,
        probe: Vec<String>,
    ) -> Result<((), String), Failure> {
        let remote = Remote::start(session, program).await?;
        let lost = remote.lost.clone();
        let recorder = Recorder::new(remote, &self.about, &Scope::scratch());
        let recorder = self.recorder.insert(recorder);
        let contract = &mut self.contract;
        let ran = recorder
            .harmless_rows(|shown| {
                // A lost program's row has no result.
                if lost.get().is_some() {
                    return ControlFlow::Break(());
                }
                match shown {
                    Shown::Held(_) => contract.held += 1,
                    Shown::Skipped(name, why) => contract.skipped.push(format!("{name}: {why}")),
                    Shown::Failed(why) => contract.differs.push(why.to_string()),
                }
                ControlFlow::Continue(())
            })
            .await;
        if let Some(failure) = lost.get() {
            return Err(failure.clone());
        }
        ran.map_err(|why| Failure::lasting("ScratchTaken", why))?;
        let probed = recorder.call(probe, None).await;
        if let Some(failure) = lost.get() {
            recorder.forget();
            return Err(failure.clone());
        }
        probed.map_err(|error| Failure::lasting("CommandUnusable", error))?;
        contract.cut = false;
        let text = format!(
            "{} hold, {} differ, {} do not run here",
            contract.held,
            contract.differs.len(),
            contract.skipped.len()
        );
        Ok(((), text))
    }

    /// What came. It ends the program, and the locks that it holds.
    pub(super) async fn ended(self) -> Compared {
        let mut lines = Vec::new();
        if let Some(recorder) = self.recorder {
            let (remote, recorded) = recorder.into_parts();
            lines = recorded;
            // A loss is the failure of the run. Locks of a program that does not end show when the scratch is removed.
            let _ = remote.end().await;
        }
        Compared {
            contract: self.contract,
            lines,
        }
    }
}

/// Results, and what was recorded.
pub(super) struct Compared {
    contract: Contract,
    lines: Vec<RecordedLine>,
}

impl Compared {
    /// Results and recording, with stand-ins for these texts and for what names the host in it.
    pub(super) fn without(self, private: &[String]) -> (Contract, Result<String, String>) {
        let Self {
            mut contract,
            lines,
        } = self;
        let stand_ins = StandIns::of(&lines, private);
        for why in &mut contract.differs {
            *why = stand_ins.text(why);
        }
        let recording = match contract.rows() {
            0 => Err(NO_ROW.to_owned()),
            _ => stand_ins.lines(&lines).map(|it| recording::text(&it)),
        };
        (contract, recording)
    }
}

/// A host at the other end of a conversation.
struct Remote {
    conversation: Conversation,
    lost: Arc<OnceLock<Failure>>,
}

impl Remote {
    async fn start(session: &Session, program: &str) -> Result<Self, Failure> {
        Ok(Self {
            conversation: session.converse(program).await?,
            lost: Arc::default(),
        })
    }

    async fn ask(&mut self, request: &OperationRequest) -> Result<Outcome, Failure> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        let unusable = |error: serde_json::Error| {
            Failure::lasting("NoFrame", format!("{}: {error}", request.operation.name()))
        };
        let line = serde_json::to_vec(request).map_err(unusable)?;
        let limit = Duration::from_millis(request.operation.limit_ms()) + ANSWER_MAX;
        let answer = self.conversation.ask(&line, limit).await?;
        serde_json::from_slice(&answer).map_err(unusable)
    }

    /// Ends the program, and the locks that it holds.
    async fn end(self) -> Result<(), Failure> {
        match self.lost.get() {
            Some(lost) => Err(lost.clone()),
            None => Ok(self.conversation.end(ANSWER_MAX).await?),
        }
    }
}

impl Host for Remote {
    async fn perform(&mut self, request: OperationRequest) -> Outcome {
        match self.ask(&request).await {
            Ok(outcome) => outcome,
            Err(lost) => {
                let text = lost.message.clone();
                // The first loss is the cause.
                self.lost.get_or_init(|| lost);
                Err(WinError {
                    code: BROKEN_PIPE,
                    text,
                })
            }
        }
    }
}

/// Removes what the rows left, or what an earlier run left that was cut.
///
/// # Errors
/// Something is still there.
pub(super) async fn cleared(session: &Session, program: &str) -> Result<((), String), Failure> {
    let scope = Scope::scratch();
    let mut remote = Remote::start(session, program).await?;
    let cleared = clear(&scope, &mut remote).await;
    remote.end().await?;
    cleared.map_err(|why| Failure::lasting("ScratchLeft", why))?;
    let text = format!("{}, and services named {}-*", scope.folder, scope.prefix);
    Ok(((), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_differs_is_reported_without_the_hosts_names_and_no_row_is_no_recording() {
        let compared = |differs: &[&str]| {
            let differs = differs.iter().map(|it| (*it).to_owned()).collect();
            let contract = Contract {
                differs,
                cut: true,
                ..Contract::default()
            };
            let lines = Vec::new();
            Compared { contract, lines }.without(&["win-7".to_owned()])
        };
        let (contract, recording) = compared(&["a row: got WIN-7"]);
        assert_eq!(contract.differs, ["a row: got host-1"]);
        assert_eq!(recording, Ok(String::new()));
        let text = contract.text().join("\n");
        assert!(text.contains("  CUT: "), "{text}");
        let (_, recording) = compared(&[]);
        assert_eq!(recording, Err(NO_ROW.to_owned()));
    }
}
