//! Fences: which messages a run accepts, which it drops, and the answer in each case.

use crate::{
    limit::{CountLimit, is_reached},
    record::HistoryEvent,
    run::{FACTS_MAX, FactMark, OUTBOX_MAX, Run, TaskKey, TaskPhase},
    unfenced::{Fence, enforced},
    workflow::{InboxMessageOf, Workflow},
};
use dormer_proto::{
    id::{Incarnation, RunId, Seq, SignalId, Timestamp, hash64},
    message::{
        Ask, Inbound, Observation, ReceiptStatus, Refusal, ReportReceipt, Request, SignalAnswer,
        Signalled, TaskReport,
    },
};

/// Reason for which a message changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// It is older than the record, or its task, attempt or deadline no longer exists.
    Late,
    /// It is already in the history.
    Repeat,
    /// It repeats what is on record.
    Equal,
    /// The run has ended.
    Closed,
    /// The run does not exist, and this message may not start it.
    NoRun,
    /// The run has left the state that the request names.
    StateLeft,
    /// It belongs to another incarnation, or to a record that the store lost. It is counted and shown.
    Unknown,
    /// The run remembers the maximum number of objects, and none of them is gone.
    TooManyFacts,
    /// The store no longer has the record that a reset names, or this build cannot read it.
    NoSuchRecord,
}

/// Answer to the sender of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To the run that sent a signal.
    Signal {
        /// The sender.
        to: RunId,
        /// The receipt or refusal.
        answer: SignalAnswer,
    },
    /// To the worker that reported.
    Report(ReportReceipt),
}

/// Verdict on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is part of the transition.
    Taken,
    /// It changes nothing. This is final only if the run was just read from the store's leader.
    Dropped(Dropped),
    /// Not now: the run's outbox is full. The message returns to the inbox.
    Later,
}

/// Verdict on a message, and the answer to send once the verdict is final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub verdict: Verdict,
    /// Answer to its sender.
    pub answer: Option<Answer>,
}

impl Offer {
    pub(crate) fn dropped(why: Dropped) -> Self {
        Self {
            verdict: Verdict::Dropped(why),
            answer: None,
        }
    }
}

/// Result of the fences: the event that a message becomes, or the offer that rejects it.
pub(crate) enum FenceResult<W: Workflow> {
    Event(HistoryEvent<W>, Option<Answer>),
    /// It needs the state of the record that it names.
    Reset(ResetRequest),
    Rejected(Offer),
}

/// Request of a person to reset a run.
pub(crate) struct ResetRequest {
    id: String,
    who: String,
    why: String,
    to: Seq,
}

impl ResetRequest {
    /// The reset to `then`, the state of the record that it names.
    pub(crate) fn event<W: Workflow>(self, then: W::State) -> HistoryEvent<W> {
        let Self { id, who, why, to } = self;
        HistoryEvent::Reset {
            id,
            who,
            why,
            to,
            then,
        }
    }
}

/// Answer to a message for a run that does not exist and that the message may not start.
pub(crate) fn no_run<W: Workflow>(ours: Incarnation, message: &InboxMessageOf<W>) -> Offer {
    if foreign(ours, message.incarnation) {
        return unknown::<W>(message);
    }
    let answer = match &message.body {
        Inbound::Signalled(signal) => Some(refuse(&message.run, signal, Refusal::Unknown)),
        Inbound::Reported(report) => Some(receipt(report, ReceiptStatus::Late)),
        Inbound::Observed(_) | Inbound::TimerDue | Inbound::Answered(_) | Inbound::Requested(_) => {
            None
        }
    };
    Offer {
        verdict: Verdict::Dropped(Dropped::NoRun),
        answer,
    }
}

/// Applies the fences of `run` to `message`.
pub(crate) fn pass<W: Workflow>(
    run: &Run<W>,
    at: Timestamp,
    ours: Incarnation,
    message: InboxMessageOf<W>,
) -> FenceResult<W> {
    if foreign(ours, message.incarnation) {
        return FenceResult::Rejected(unknown::<W>(&message));
    }
    let outboxes = match &message.body {
        // An answer empties our outbox, a signal its sender's. Two runs with full outboxes to each other would
        // otherwise deadlock.
        Inbound::Answered(_) | Inbound::Signalled(_) => None,
        // A time limit must not wait for a receiver.
        Inbound::TimerDue => Some(2),
        Inbound::Observed(_) | Inbound::Reported(_) | Inbound::Requested(_) => Some(1),
    };
    let is_full = |times| is_reached(CountLimit::Outbox, run.outbox.len(), times, OUTBOX_MAX);
    if outboxes.is_some_and(is_full) {
        return FenceResult::Rejected(Offer {
            verdict: Verdict::Later,
            answer: None,
        });
    }
    match message.body {
        Inbound::Answered(answer) => answered(run, answer),
        Inbound::Signalled(signal) => signalled(run, signal),
        Inbound::Reported(report) => reported(run, report),
        Inbound::Observed(observation) if run.closed.is_some() => reopened(run, observation),
        Inbound::Requested(request) if resets_ended(run, &request) => requested(run, request),
        _ if run.closed.is_some() => FenceResult::Rejected(Offer::dropped(Dropped::Closed)),
        Inbound::Observed(observation) => observed(run, observation),
        Inbound::TimerDue => timer_due(run, at),
        Inbound::Requested(request) => requested(run, request),
    }
}

fn foreign(ours: Incarnation, theirs: Option<Incarnation>) -> bool {
    enforced(Fence::Incarnation) && theirs.is_some_and(|theirs| theirs != ours)
}

fn unknown<W: Workflow>(message: &InboxMessageOf<W>) -> Offer {
    let answer = match &message.body {
        Inbound::Reported(report) => Some(receipt(report, ReceiptStatus::Unknown)),
        Inbound::Observed(_)
        | Inbound::TimerDue
        | Inbound::Signalled(_)
        | Inbound::Answered(_)
        | Inbound::Requested(_) => None,
    };
    Offer {
        verdict: Verdict::Dropped(Dropped::Unknown),
        answer,
    }
}

fn receipt<O>(report: &TaskReport<O>, fate: ReceiptStatus) -> Answer {
    Answer::Report(ReportReceipt {
        task: report.task.clone(),
        attempt: report.attempt,
        worker: report.worker.clone(),
        fate,
    })
}

fn refuse<S>(run: &RunId, signal: &Signalled<S>, why: Refusal) -> Answer {
    answer_signal(run, signal, Some(why))
}

/// Answer to a sender that reused a signal id: the signal is not accepted, and `highest` is the last accepted id.
fn behind<S>(run: &RunId, signal: &Signalled<S>, highest: SignalId) -> Answer {
    Answer::Signal {
        to: signal.from.clone(),
        answer: SignalAnswer {
            from: run.clone(),
            id: signal.id,
            issued: signal.issued,
            refused: None,
            behind: Some(highest),
        },
    }
}

fn answer_signal<S>(run: &RunId, signal: &Signalled<S>, refused: Option<Refusal>) -> Answer {
    Answer::Signal {
        to: signal.from.clone(),
        answer: SignalAnswer {
            from: run.clone(),
            id: signal.id,
            issued: signal.issued,
            refused,
            behind: None,
        },
    }
}

fn observed<W: Workflow>(run: &Run<W>, seen: Observation<W::Fact>) -> FenceResult<W> {
    let digest = digest::<W>(seen.fact.as_ref());
    match run.facts.get(&seen.object) {
        Some(mark) if enforced(Fence::Observation) && seen.version < mark.version => {
            return FenceResult::Rejected(Offer::dropped(Dropped::Late));
        }
        Some(mark) if mark.digest == digest => {
            return FenceResult::Rejected(Offer::dropped(Dropped::Equal));
        }
        Some(_) => {}
        None if digest == FactMark::GONE => {
            return FenceResult::Rejected(Offer::dropped(Dropped::Equal));
        }
        None if is_reached(CountLimit::Facts, run.facts.len(), 1, FACTS_MAX)
            && !run.facts.values().any(FactMark::is_gone) =>
        {
            return FenceResult::Rejected(Offer::dropped(Dropped::TooManyFacts));
        }
        None => {}
    }
    let Observation {
        object,
        version,
        fact,
        ..
    } = seen;
    FenceResult::Event(
        HistoryEvent::Observed {
            object,
            version,
            fact,
        },
        None,
    )
}

/// Applies the fences of an ended run to a fact. It may begin the run anew, even where it equals the last one: what was
/// observed before the end was lost with it.
fn reopened<W: Workflow>(run: &Run<W>, seen: Observation<W::Fact>) -> FenceResult<W> {
    let late = run
        .facts
        .get(&seen.object)
        .is_some_and(|mark| enforced(Fence::Observation) && seen.version < mark.version);
    if late {
        return FenceResult::Rejected(Offer::dropped(Dropped::Late));
    }
    let Observation {
        object,
        version,
        fact,
        ..
    } = seen;
    let reopens = fact
        .as_ref()
        .is_some_and(|fact| W::reopen(&run.state, &object, fact).is_some());
    if !reopens {
        return FenceResult::Rejected(Offer::dropped(Dropped::Closed));
    }
    FenceResult::Event(
        HistoryEvent::Observed {
            object,
            version,
            fact,
        },
        None,
    )
}

fn resets_ended<W: Workflow>(run: &Run<W>, request: &Request<W::Signal>) -> bool {
    let reset = matches!(request.ask, Ask::Reset { .. });
    run.closed.is_some() && reset && W::resets_ended(&run.state)
}

/// Hash of an encoded fact; [`FactMark::GONE`] if there is none.
pub(crate) fn digest<W: Workflow>(fact: Option<&W::Fact>) -> u64 {
    fact.map_or(FactMark::GONE, |fact| {
        rmp_serde::to_vec_named(fact).map_or(1, |b| hash64(&b).max(1))
    })
}

fn reported<W: Workflow>(run: &Run<W>, report: TaskReport<W::Outcome>) -> FenceResult<W> {
    let TaskReport {
        ref task,
        attempt,
        issued,
        ..
    } = report;
    let key = TaskKey {
        seq: task.seq,
        ordinal: task.ordinal,
    };
    let late = Offer {
        verdict: Verdict::Dropped(Dropped::Late),
        answer: Some(receipt(&report, ReceiptStatus::Late)),
    };
    let Some(open) = run.task(key) else {
        return FenceResult::Rejected(late);
    };
    if enforced(Fence::Reporter) && report.by != W::reporter(&open.body) {
        return FenceResult::Rejected(late);
    }
    let TaskPhase::InFlight {
        issued: expected, ..
    } = &open.phase
    else {
        return FenceResult::Rejected(late);
    };
    if enforced(Fence::Attempt) && attempt != open.attempt {
        return FenceResult::Rejected(late);
    }
    if enforced(Fence::IssuingRecord)
        && issued != expected.unwrap_or(run.sum)
        && attempt == open.attempt
    {
        return FenceResult::Rejected(Offer {
            verdict: Verdict::Dropped(Dropped::Unknown),
            answer: Some(receipt(&report, ReceiptStatus::Unknown)),
        });
    }
    let answer = Some(receipt(&report, ReceiptStatus::Taken));
    let TaskKey { seq, ordinal } = key;
    let worker = report.worker;
    let event = match report.result {
        Ok(outcome) => HistoryEvent::TaskFinished {
            seq,
            ordinal,
            attempt,
            worker,
            outcome,
        },
        Err(failure) => HistoryEvent::TaskFailed {
            seq,
            ordinal,
            attempt,
            worker,
            failure,
        },
    };
    FenceResult::Event(event, answer)
}

fn timer_due<W: Workflow>(run: &Run<W>, at: Timestamp) -> FenceResult<W> {
    let due = run.deadline().is_some_and(|deadline| deadline <= at);
    if due || !enforced(Fence::Deadline) {
        FenceResult::Event(HistoryEvent::TimerDue, None)
    } else {
        FenceResult::Rejected(Offer::dropped(Dropped::Late))
    }
}

fn signalled<W: Workflow>(run: &Run<W>, signal: Signalled<W::Signal>) -> FenceResult<W> {
    let highest = run.taken.get(&signal.from);
    if let Some(highest) = highest.filter(|highest| highest.id() >= signal.id)
        && enforced(Fence::Receipt)
    {
        // One signal is in flight at a time. So an earlier one is either long receipted, and this answer is late, or of
        // a sender that lost its last records and used their ids again.
        let same = highest.is(signal.id, signal.issued);
        let answer = if same || !enforced(Fence::ReusedId) {
            answer_signal(&run.id, &signal, None)
        } else {
            behind(&run.id, &signal, highest.id())
        };
        return FenceResult::Rejected(Offer {
            verdict: Verdict::Dropped(Dropped::Repeat),
            answer: Some(answer),
        });
    }
    if run.closed.is_some() {
        return FenceResult::Rejected(Offer {
            verdict: Verdict::Dropped(Dropped::Closed),
            answer: Some(refuse(&run.id, &signal, Refusal::Closed)),
        });
    }
    let answer = answer_signal(&run.id, &signal, None);
    let Signalled {
        from,
        id,
        issued,
        signal,
    } = signal;
    let issued = Some(issued);
    let taken = HistoryEvent::SignalTaken {
        from,
        id,
        issued,
        signal,
    };
    FenceResult::Event(taken, Some(answer))
}

fn answered<W: Workflow>(run: &Run<W>, answer: SignalAnswer) -> FenceResult<W> {
    let SignalAnswer {
        from: to,
        id,
        issued,
        refused,
        behind,
    } = answer;
    let Some(open) = run.outbox.iter().find(|out| out.to == to && out.id == id) else {
        return FenceResult::Rejected(Offer::dropped(Dropped::Late));
    };
    if enforced(Fence::IssuingRecord) && open.issued.unwrap_or(run.sum) != issued {
        return FenceResult::Rejected(Offer::dropped(Dropped::Unknown));
    }
    FenceResult::Event(
        match refused {
            None => HistoryEvent::SignalReceipted { to, id, behind },
            Some(why) => HistoryEvent::SignalRefused { to, id, why },
        },
        None,
    )
}

fn requested<W: Workflow>(run: &Run<W>, request: Request<W::Signal>) -> FenceResult<W> {
    if run.requests.contains(&request.id) && enforced(Fence::Request) {
        return FenceResult::Rejected(Offer::dropped(Dropped::Repeat));
    }
    if request.against.0 != 0 && request.against != run.entered.seq {
        return FenceResult::Rejected(Offer::dropped(Dropped::StateLeft));
    }
    let Request {
        id, who, why, ask, ..
    } = request;
    match ask {
        Ask::Reset { to } => FenceResult::Reset(ResetRequest { id, who, why, to }),
        Ask::Signal(signal) => {
            let event = HistoryEvent::Requested {
                id,
                who,
                why,
                signal,
            };
            FenceResult::Event(event, None)
        }
    }
}
