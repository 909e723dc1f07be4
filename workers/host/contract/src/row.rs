//! One row, and how it runs.

use std::fmt;

use dormer_host::ops::{
    Answer, Ask, Host, Operation, OperationRequest, Outcome, Pause, Step, WinError,
};

/// Expected result of an operation.
pub enum Wanted {
    /// It answers, whatever it is.
    Done,
    /// It answers, and the answer is so.
    Answer(&'static str, Box<dyn Fn(&Answer) -> bool + Send>),
    /// It is refused with one of these numbers.
    Refused(&'static [u32]),
    /// It answers or is refused: it clears away what may be there.
    Whatever,
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("an answer"),
            Self::Answer(what, _) => f.write_str(what),
            Self::Refused(numbers) => write!(f, "refused with {numbers:?}"),
            Self::Whatever => f.write_str("whatever"),
        }
    }
}

impl Wanted {
    fn is_met(&self, outcome: &Outcome) -> bool {
        match (self, outcome) {
            (Self::Done, Ok(_)) | (Self::Whatever, _) => true,
            (Self::Answer(_, is), Ok(answer)) => is(answer),
            (Self::Refused(numbers), Err(error)) => {
                numbers.contains(&error.code) || error.is_any(numbers)
            }
            _ => false,
        }
    }
}

/// Whether Wine 8 can show a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnWine {
    /// It answers as Windows does.
    Runs,
    /// It lacks this library. A stand-in of ours (`tests/wine`) answers, written from the sources of the rows: it
    /// shows that our call is made as these say.
    StandIn(&'static str),
    /// The host lacks the subject of the row, or differs from Windows: the reason.
    Differs(&'static str),
}

/// What a host has, or lacks, where a row holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// It holds on every host.
    Nothing,
    /// The feature Containers.
    Containers,
    /// No feature Containers.
    NoContainers,
    /// No Windows Defender.
    NoDefender,
    /// Membership of no domain.
    NoDomain,
}

/// An operation before or after the one that a row is about.
#[derive(Debug)]
pub struct Expected {
    pub operation: Operation,
    /// Expected result.
    pub wanted: Wanted,
    /// Whether the operation is repeated until it has the expected result.
    pub again: bool,
}

/// Most repeats of an operation, and the pause between them. A liar gets fewer.
const TRIES: u32 = 1200;
const LIAR_TRIES: u32 = 10;
const PAUSE_MS: u64 = 50;

/// One promise of the contract.
#[derive(Debug)]
pub struct Row {
    /// What holds, as a sentence.
    pub name: &'static str,
    /// Prepares the host.
    pub setup: Vec<Expected>,
    /// The operation that the row is about.
    pub operation: Operation,
    /// Expected result.
    pub wanted: Wanted,
    /// What holds afterwards.
    pub after: Vec<Expected>,
    /// Wrong answer without an effect, which the row must refuse.
    pub liar: Outcome,
    /// Source of the fact: a page of Microsoft's, or a measurement.
    pub source: &'static str,
    /// Whether Wine 8 shows it.
    pub wine: OnWine,
    /// On which hosts it holds.
    pub needs: Needs,
}

impl Row {
    /// A row whose liar reports a change as done, or refuses a read with a number of its own.
    pub(crate) fn new(
        name: &'static str,
        setup: Vec<Operation>,
        operation: Operation,
        wanted: Wanted,
        source: &'static str,
    ) -> Self {
        let liar = done(&operation).map_or_else(|| Err(WinError::new(NO_NUMBER)), Ok);
        let once = |operation| Expected {
            operation,
            wanted: Wanted::Done,
            again: false,
        };
        Self {
            name,
            setup: setup.into_iter().map(once).collect(),
            operation,
            wanted,
            after: Vec::new(),
            liar,
            source,
            wine: OnWine::Runs,
            needs: Needs::Nothing,
        }
    }

    /// And then this holds.
    pub(crate) fn then(mut self, operation: Operation, wanted: Wanted) -> Self {
        self.after.push(Expected {
            operation,
            wanted,
            again: false,
        });
        self
    }

    /// And then this holds after a while.
    pub(crate) fn eventually(mut self, operation: Operation, wanted: Wanted) -> Self {
        self.after.push(Expected {
            operation,
            wanted,
            again: true,
        });
        self
    }

    /// Before it, this is awaited.
    pub(crate) fn once(mut self, operation: Operation, wanted: Wanted) -> Self {
        self.setup.push(Expected {
            operation,
            wanted,
            again: true,
        });
        self
    }

    /// At first, this is cleared away.
    pub(crate) fn cleared(mut self, operation: Operation) -> Self {
        let expected = Expected {
            operation,
            wanted: Wanted::Whatever,
            again: false,
        };
        self.setup.insert(0, expected);
        self
    }

    /// Before it, this is done.
    pub(crate) fn first(mut self, operation: Operation) -> Self {
        self.setup.push(Expected {
            operation,
            wanted: Wanted::Done,
            again: false,
        });
        self
    }

    /// Another liar.
    pub(crate) fn liar(mut self, outcome: Outcome) -> Self {
        self.liar = outcome;
        self
    }

    /// It holds on such hosts alone.
    pub(crate) fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }

    /// Wine 8 shows it by a library of ours.
    pub(crate) fn by_stand_in(mut self, library: &'static str) -> Self {
        self.wine = OnWine::StandIn(library);
        self
    }

    /// Wine 8 shows it otherwise, or not at all.
    pub(crate) fn not_on_wine(mut self, why: &'static str) -> Self {
        self.wine = OnWine::Differs(why);
        self
    }
}

/// A number that no system answers: bit 29 marks numbers of applications (sdk-api, `winerror.h`).
pub(crate) const NO_NUMBER: u32 = 0x2000_0001;

/// The answer of an operation that answers nothing but that it was done.
fn done(operation: &Operation) -> Option<Answer> {
    let answer = serde_json::json!({ "operation": operation.name(), "answer": null });
    serde_json::from_value(answer).ok()
}

/// Why a row failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed(pub String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Runs a row.
///
/// # Errors
/// The host answers otherwise, or cannot be prepared.
pub async fn run(row: &Row, host: &mut impl Host) -> Result<(), Failed> {
    prepare(row, host).await?;
    let outcome = perform(host, &row.operation).await;
    judge(row, host, &outcome, TRIES).await
}

/// Runs a row with its liar in the host's scope, which must be refused.
///
/// # Errors
/// The row is satisfied by a lie, or the host cannot be prepared.
pub async fn run_liar(row: &Row, host: &mut impl Host) -> Result<(), Failed> {
    prepare(row, host).await?;
    match judge(row, host, &row.liar, LIAR_TRIES).await {
        Err(_) => Ok(()),
        Ok(()) => Err(Failed(format!(
            "{}: satisfied by the lie {:?}",
            row.name, row.liar
        ))),
    }
}

async fn prepare(row: &Row, host: &mut impl Host) -> Result<(), Failed> {
    for expected in &row.setup {
        meet(row, host, expected, TRIES).await?;
    }
    Ok(())
}

async fn judge(
    row: &Row,
    host: &mut impl Host,
    outcome: &Outcome,
    tries: u32,
) -> Result<(), Failed> {
    check(row, &row.operation, &row.wanted, outcome)?;
    for expected in &row.after {
        meet(row, host, expected, tries).await?;
    }
    Ok(())
}

async fn meet(
    row: &Row,
    host: &mut impl Host,
    expected: &Expected,
    tries: u32,
) -> Result<(), Failed> {
    let mut left = if expected.again { tries } else { 1 };
    loop {
        let outcome = perform(host, &expected.operation).await;
        let met = check(row, &expected.operation, &expected.wanted, &outcome);
        left -= 1;
        if met.is_ok() || left == 0 {
            return met;
        }
        // A host without a pause is asked again at once.
        let _ = perform(host, &Pause { ms: PAUSE_MS }.operation()).await;
    }
}

fn check(
    row: &Row,
    operation: &Operation,
    wanted: &Wanted,
    outcome: &Outcome,
) -> Result<(), Failed> {
    let of_this = match outcome {
        Ok(answer) => answer.name() == operation.name(),
        Err(_) => true,
    };
    if of_this && wanted.is_met(outcome) {
        return Ok(());
    }
    Err(Failed(format!(
        "{}: {}: wanted {wanted:?}, got {outcome:?} ({})",
        row.name,
        operation.name(),
        row.source
    )))
}

pub(crate) async fn perform(host: &mut impl Host, operation: &Operation) -> Outcome {
    let step = Step {
        item: String::new(),
        doing: operation.name().to_owned(),
        since_ms: 0,
        limit_ms: operation.limit_ms(),
    };
    let request = OperationRequest {
        step,
        operation: operation.clone(),
    };
    host.perform(request).await
}
