//! The laws, checked at every call by which an engine changes the world.

use crate::{
    build::Build,
    older_build::Elder,
    toy::Toy,
    world::{InTransit, OTHER_ROLE, RecordEntry, World, fault},
};
use dormer_engine::port::{Ack, Append, Delivery, Expected, OrderOut, QuarantineNote};
use dormer_engine_core::{
    FACTS_MAX, HistoryEvent, InboxMessageOf, Record, Run, TaskKey, TaskPhase, Workflow,
    limit::{CountLimit, lowered},
    replay_record,
};
use dormer_proto::{
    envelope,
    id::{Attempt, Revision, RunId, SignalId, Sum, TaskId, Timestamp, hash64},
    message::{Inbound, ReceiptStatus, ReportReceipt, TaskOrder},
};
use std::collections::{BTreeMap, BTreeSet};

/// Most messages that are delivered and not acknowledged.
const PENDING_MAX: usize = 5;
/// Delay of messages for which the store did not answer, in milliseconds: as `UNAVAILABLE_AGAIN_MS` in
/// `engine/src/shard.rs`.
const UNAVAILABLE_AGAIN_MS: u64 = 1_000;

impl World {
    /// Stores a record, and checks what a record may say.
    pub(crate) fn store(&mut self, append: Append) -> Revision {
        self.revision += 1;
        let revision = Revision(self.revision);
        self.digest = hash64(&[&self.digest.to_le_bytes()[..], &append.bytes].concat());
        match envelope::decode::<Record<Toy>>(&append.bytes, Toy::SCHEMA) {
            Ok((record, sum)) => {
                let checked = self
                    .check_replay(&append, &record, sum)
                    .and_then(|()| self.check_record(&append.run, &record));
                if let Err(law) = checked {
                    self.violated(format!("{}@{}: {law}", append.run, append.seq));
                }
                self.ever.insert(sum);
                for event in &record.events {
                    if let HistoryEvent::SignalTaken {
                        from,
                        id,
                        issued: Some(issued),
                        ..
                    } = event
                    {
                        let taken = (append.run.clone(), from.clone(), *id, *issued);
                        self.taken.insert(taken);
                    }
                }
                let Append { run, bytes, .. } = append;
                self.entries.push(RecordEntry {
                    run,
                    bytes,
                    sum,
                    revision,
                    record,
                });
            }
            Err(error) => self.violated(format!("a record cannot be read: {error}")),
        }
        revision
    }

    /// Replay, by the build that wrote the record, equals the live run.
    fn check_replay(&self, append: &Append, record: &Record<Toy>, sum: Sum) -> Result<(), String> {
        let last = self.last(&append.run).map(|entry| &entry.bytes);
        if record.build == Build::Older.name() {
            replayed::<Elder>(last, &append.bytes)?;
        } else {
            replayed::<Toy>(last, &append.bytes)?;
        }
        let noted = self
            .last(&append.run)
            .map_or(0, |entry| entry.record.run.state.notes);
        if record.run.state.notes < noted {
            return Err(format!("what a newer build noted is lost ({sum})"));
        }
        Ok(())
    }

    fn check_record(&self, id: &RunId, record: &Record<Toy>) -> Result<(), String> {
        let last = self.last(id);
        if record.prev != last.map_or(Sum(0), |entry| entry.sum) {
            return Err("the chain of checksums is broken".to_owned());
        }
        let before = last.map(|entry| {
            let mut run = entry.record.run.clone();
            run.set_sum(entry.sum);
            run
        });
        outbox_adds_up(before.as_ref(), record)?;
        let known = before.iter().flat_map(|run| &run.facts);
        let mut facts: Vec<_> = known.map(|(it, mark)| (it.clone(), mark.version)).collect();
        let mut requests = BTreeSet::new();
        let mut accepted = BTreeSet::new();
        let mut taken: BTreeMap<_, _> = before
            .as_ref()
            .map(|run| {
                let ids = run.taken.iter();
                ids.map(|(from, taken)| (from.clone(), taken.id()))
                    .collect()
            })
            .unwrap_or_default();
        for (at, event) in record.events.iter().enumerate() {
            match event {
                HistoryEvent::TimerDue if at == 0 => {
                    let due = before.as_ref().and_then(Run::deadline);
                    if due.is_none_or(|due| due > record.at) {
                        return Err("a ring was taken while nothing was due".to_owned());
                    }
                }
                HistoryEvent::Observed {
                    object, version, ..
                } => match facts.iter_mut().find(|(known, _)| known == object) {
                    Some((_, known)) if *known > *version => {
                        return Err("an older observation was taken".to_owned());
                    }
                    Some((_, known)) => *known = *version,
                    None => facts.push((object.clone(), *version)),
                },
                HistoryEvent::TaskFinished {
                    seq,
                    ordinal,
                    attempt,
                    worker,
                    ..
                }
                | HistoryEvent::TaskFailed {
                    seq,
                    ordinal,
                    attempt,
                    worker,
                    ..
                } => {
                    let task = TaskId {
                        run: id.clone(),
                        seq: *seq,
                        ordinal: *ordinal,
                    };
                    self.check_report(&task, *attempt, worker)?;
                    if !accepted.insert((task, *attempt)) {
                        return Err("two reports of one attempt were taken".to_owned());
                    }
                }
                HistoryEvent::SignalTaken { from, id, .. } => {
                    let before = taken.insert(from.clone(), *id);
                    if before.is_some_and(|highest| highest >= *id) {
                        return Err(format!("signal {id:?} of {from} was taken twice"));
                    }
                }
                // Also a receiver that has ended since then, and was deleted, took it.
                HistoryEvent::SignalReceipted {
                    to,
                    id: signal,
                    behind: None,
                } if !self.has_taken(before.as_ref(), to, *signal) => {
                    let highest = self.took(to, id);
                    let how = if highest.is_some_and(|highest| highest >= *signal) {
                        "was swallowed: its id was used before"
                    } else {
                        "is lost"
                    };
                    return Err(format!("signal {signal:?} to {to} {how}"));
                }
                HistoryEvent::Requested { id: request, .. }
                | HistoryEvent::Reset { id: request, .. }
                    if !requests.insert(request.clone()) || self.confirmed(id, request) =>
                {
                    return Err(format!("request {request} was taken twice"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// No engine continues from an older record than one that it wrote, unless it has quarantined the run.
    pub(crate) fn check_append(&mut self, engine: usize, append: &Append) {
        let Expected::At(before) = append.expected else {
            return;
        };
        let known = self.acknowledged.get(&(engine, append.run.clone()));
        if let Some(known) = known
            && before < *known
            && !self.forgets
            && !self.went_back()
        {
            self.violated(format!(
                "{} continues from revision {before}, and no note says that {known} is lost",
                append.run
            ));
        }
    }

    /// An engine learns that its record is stored.
    pub(crate) fn was_acknowledged(&mut self, engine: usize, append: &Append, revision: Revision) {
        let of = (engine, append.run.clone());
        if append.closed.is_some() {
            // It may be deleted.
            self.acknowledged.remove(&of);
        } else {
            self.acknowledged.insert(of, revision);
        }
    }

    /// A run is quarantined for a lost record only if it has lost one. From then on the engine may continue from what is
    /// there.
    pub(crate) fn check_note(&mut self, engine: usize, note: &QuarantineNote) {
        let sound = !self.went_back() && !self.record_lost.contains(&note.run);
        if sound && note.code == "RecordLost" {
            self.violated(format!("{} lost no record: {}", note.run, note.why));
        }
        if note.missed.is_none() {
            self.acknowledged.remove(&(engine, note.run.clone()));
        }
    }

    /// An engine that begins reads which records other engines did not find.
    pub(crate) fn were_noted(&mut self, engine: usize, notes: &[QuarantineNote]) {
        for note in notes {
            if let Some(missed) = note.missed {
                let known = self.acknowledged.entry((engine, note.run.clone()));
                let known = known.or_insert(missed.revision);
                *known = missed.revision.max(*known);
            }
        }
    }

    /// Once the store answers again, no message waits for it, but those of runs that lost a record.
    pub(crate) fn check_ack(&mut self, at: usize, ack: Ack) {
        let run = self.messages[at].run.clone();
        let waits = matches!(ack, Ack::Again(ms) if ms >= UNAVAILABLE_AGAIN_MS);
        if let Some(run) = run
            && waits
            && self.calm
            && !self.record_lost.contains(&run)
            && !self.went_back()
        {
            self.violated(format!("{run} lost nothing, and waits"));
        }
    }

    /// Whether the history of `run` holds this request: that is the answer to its sender.
    pub(crate) fn confirmed(&self, run: &RunId, request: &str) -> bool {
        let ours = self.entries.iter().filter(|entry| entry.run == *run);
        let mut events = ours.flat_map(|entry| &entry.record.events);
        events.any(|event| match event {
            HistoryEvent::Requested { id, .. } | HistoryEvent::Reset { id, .. } => id == request,
            _ => false,
        })
    }

    /// Whether `to` ever took the signal that is outstanding in `sender`, and not another with the same id. Its record
    /// may be lost since then.
    fn has_taken(&self, sender: Option<&Run<Toy>>, to: &RunId, signal: SignalId) -> bool {
        let out = sender.and_then(|run| {
            let mut outbox = run.outbox.iter();
            let out = outbox.find(|out| out.to == *to && out.id == signal)?;
            Some((&run.id, out.issued.unwrap_or(run.sum)))
        });
        let Some((sender, sum)) = out else {
            // It was sent again within this record, or the law of the outbox finds it.
            return true;
        };
        self.taken
            .contains(&(to.clone(), sender.clone(), signal, sum))
    }

    fn check_report(&self, task: &TaskId, attempt: Attempt, worker: &str) -> Result<(), String> {
        if self.accepted(task, attempt) {
            return Err(format!(
                "two reports of {task}, attempt {attempt}, were taken"
            ));
        }
        if worker.starts_with(OTHER_ROLE) {
            return Err(format!("a report of another role was taken for {task}"));
        }
        let (incarnation, issued) = worker.split_once('/').unwrap_or_default();
        if incarnation != self.incarnation.0.to_string() {
            return Err(format!(
                "a report of another incarnation was taken for {task}"
            ));
        }
        let ours = |entry: &RecordEntry| entry.run == task.run && entry.sum.to_string() == issued;
        if !self.entries.iter().any(ours) {
            return Err(format!(
                "a report was taken for {task} whose order no record issued"
            ));
        }
        Ok(())
    }

    fn accepted(&self, task: &TaskId, attempt: Attempt) -> bool {
        let ours = self.entries.iter().filter(|entry| entry.run == task.run);
        ours.flat_map(|entry| &entry.record.events)
            .any(|event| match event {
                HistoryEvent::TaskFinished {
                    seq,
                    ordinal,
                    attempt: a,
                    ..
                }
                | HistoryEvent::TaskFailed {
                    seq,
                    ordinal,
                    attempt: a,
                    ..
                } => (*seq, *ordinal, *a) == (task.seq, task.ordinal, attempt),
                _ => false,
            })
    }

    /// An order follows a stored record.
    pub(crate) fn check_order(&mut self, order: &OrderOut) {
        match envelope::decode::<TaskOrder<u64>>(&order.bytes, Toy::SCHEMA) {
            Ok((order, _)) if !self.ever.contains(&order.issued) => {
                self.violated(format!(
                    "{} was ordered before its record was stored",
                    order.task
                ));
            }
            Ok(_) => {}
            Err(error) => self.violated(format!("an order cannot be read: {error}")),
        }
    }

    /// Orders are withdrawn of tasks only that have ended on record.
    pub(crate) fn check_ended(&mut self, task: &TaskId) {
        if self.is_open(task) && !self.lost_records(&task.run) {
            self.violated(format!("{task} is open, and its orders were withdrawn"));
        }
    }

    /// Whether the last record of its run waits for a task.
    pub(crate) fn is_open(&self, task: &TaskId) -> bool {
        let key = TaskKey {
            seq: task.seq,
            ordinal: task.ordinal,
        };
        let last = self.last(&task.run);
        last.is_some_and(|entry| entry.record.run.task(key).is_some())
    }

    /// A signal follows a stored record.
    pub(crate) fn check_message(&mut self, bytes: &[u8]) {
        match envelope::decode::<InboxMessageOf<Toy>>(bytes, Toy::SCHEMA) {
            Ok((
                InboxMessageOf::<Toy> {
                    body: Inbound::Signalled(signal),
                    ..
                },
                _,
            )) if !self.ever.contains(&signal.issued) => {
                self.violated(format!(
                    "a signal of {} went out before its record",
                    signal.from
                ));
            }
            Ok(_) => {}
            Err(error) => self.violated(format!("a message cannot be read: {error}")),
        }
    }

    /// A receipt says what the history says.
    pub(crate) fn check_receipt(&mut self, receipt: &ReportReceipt) {
        let ReportReceipt {
            task,
            attempt,
            fate,
            ..
        } = receipt;
        // Of another role's report the incarnation does not match.
        let (incarnation, issued) = receipt.worker.split_once('/').unwrap_or_default();
        if self.lost_records(&task.run) || incarnation != self.incarnation.0.to_string() {
            return;
        }
        // The run may have been deleted and begun anew since then, with tasks of the same numbers.
        let lives = |entry: &RecordEntry| entry.run == task.run && entry.sum.to_string() == issued;
        let awaited = self.entries.iter().any(lives);
        let open = self.last(&task.run).is_some_and(|entry| {
            entry.record.run.tasks.iter().any(|open| {
                (open.key.seq, open.key.ordinal, open.attempt) == (task.seq, task.ordinal, *attempt)
                    && matches!(open.phase, TaskPhase::InFlight { .. })
            })
        });
        if *fate == ReceiptStatus::Late && open && awaited && !self.misread.contains(&task.run) {
            self.violated(format!(
                "the awaited report of {task}, {attempt}, was called late"
            ));
        }
        if *fate == ReceiptStatus::Taken && !self.accepted(task, *attempt) {
            self.violated(format!(
                "the report of {task}, {attempt}, was receipted, never stored"
            ));
        }
    }

    /// Messages that may be delivered now, some of them, in any order.
    pub(crate) fn take(&mut self, max: usize) -> Vec<Delivery> {
        self.arrive();
        let mut taken = Vec::new();
        for _ in 0..max {
            if self.delivers_no_more() {
                break;
            }
            let ripe = |at: &usize| {
                let message = &self.messages[*at];
                message.arrived && message.holder.is_none() && message.after <= self.now
            };
            let ripe: Vec<usize> = (0..self.messages.len()).filter(ripe).collect();
            if ripe.is_empty() {
                break;
            }
            let at = ripe[self.chance.index(ripe.len())];
            let message = &mut self.messages[at];
            // Until the intake has sorted it.
            message.holder = Some(usize::MAX);
            let cause = format!("sim:{}", message.token);
            taken.push(Delivery {
                bytes: message.bytes.clone(),
                token: message.token,
                cause,
                deliveries: 1,
            });
        }
        taken
    }

    /// Whether the consumer of the inbox waits for acknowledgements. The inbox of an engine alone has no such limit
    /// (`engine/src/local.rs`).
    pub(crate) fn delivers_no_more(&self) -> bool {
        let pending = |it: &&InTransit| it.holder.is_some() || it.delivered && it.after > self.now;
        !self.exclusive
            && self.faults & fault::PENDING != 0
            && self.messages.iter().filter(pending).count() >= PENDING_MAX
    }

    /// No process postpones an alarm that would fire in time.
    pub(crate) fn check_set(&mut self, run: &RunId, set: Option<Timestamp>, at: Timestamp) {
        let due = self.last(run).and_then(|entry| entry.record.run.deadline());
        if let (Some(due), Some(set)) = (due, set)
            && set <= due
            && due < at
        {
            self.violated(format!(
                "{run} is due at {}, its alarm is put off to {}",
                due.0, at.0
            ));
        }
    }

    /// What a run waits for will come in time: its alarm is set, and rings no later than its deadline, or a message is
    /// on its way to it or in a shard's hands, whose load or whose record sets it. A run that lost its message to a
    /// repeat, or to the answer of a deposed leader, may have to wait for the sweep.
    pub(crate) fn check_alarms(&mut self) {
        if !self.punctual {
            return;
        }
        let written_to: BTreeSet<_> = self
            .messages
            .iter()
            .filter_map(|l| l.run.as_ref())
            .collect();
        let late = self.runs().into_iter().find_map(|run| {
            let due = run.deadline()?;
            let set = self.alarms.get(&run.id).map(|(at, _)| at.0);
            // The messages to a quarantined run are taken away. Its release sets the alarm again.
            let known = written_to.contains(&run.id)
                || self.notes.contains_key(&run.id)
                || self.orphaned.contains(&run.id);
            let waits = set.is_none_or(|set| set > due.0) && !known;
            waits.then(|| format!("{} is due at {}, and its alarm at {set:?}", run.id, due.0))
        });
        if let Some(law) = late {
            self.violated(law);
        }
    }

    /// What must be true once everything rests.
    pub(crate) fn check_rest(&mut self) {
        self.answer_people();
        let mut wrong = Vec::new();
        for (id, run) in &self.confirmed_requests {
            if !self.confirmed(run, id) {
                wrong.push(format!(
                    "the request {id} was confirmed, and is not on record"
                ));
            }
        }
        for run in self.runs() {
            let Run {
                id,
                tasks,
                outbox,
                timers,
                ..
            } = run;
            if !tasks.is_empty() || !outbox.is_empty() || !timers.is_empty() {
                wrong.push(format!(
                    "{id} does not rest: {tasks:?} {outbox:?} {timers:?}"
                ));
            }
        }
        for ((n, uid), (fact, _)) in &self.truth {
            match self
                .last(&crate::toy::id(*n))
                .map(|entry| &entry.record.run)
            {
                Some(run)
                    if run.closed.is_none()
                        && run.state.facts.get(uid) != fact.as_ref()
                        && has_room(run, uid) =>
                {
                    wrong.push(format!("{} missed the last fact about {uid}", run.id));
                }
                None if fact.is_some() => wrong.push(format!("run {n} never began")),
                _ => {}
            }
        }
        if let Some(law) = wrong.into_iter().next() {
            self.violated(law);
        }
    }
}

/// Whether a run knows the object, or has room for it. One that is full of others drops what is said of it.
fn has_room<W: Workflow>(run: &Run<W>, uid: &str) -> bool {
    let most = lowered(CountLimit::Facts).unwrap_or(FACTS_MAX);
    run.facts.len() < most || run.facts.keys().any(|object| object.uid == uid)
}

/// Folds a record over the one before it, both as the build `W` reads them.
fn replayed<W: Workflow>(before: Option<&Vec<u8>>, record: &[u8]) -> Result<(), String> {
    let read = |bytes: &[u8]| {
        // However new: that no engine writes over what it cannot read is a law of its own.
        envelope::decode::<Record<W>>(bytes, u16::MAX).map_err(|error| format!("replay: {error}"))
    };
    let before = before
        .map(|bytes| read(bytes))
        .transpose()?
        .map(|(record, sum)| {
            let mut run = record.run;
            run.set_sum(sum);
            run
        });
    let (record, sum) = read(record)?;
    match replay_record(before.as_ref(), &record, sum) {
        (_, Some(divergence)) => Err(format!("replay differs: {divergence:?}")),
        _ => Ok(()),
    }
}

/// Emitted minus answered is what is outstanding.
fn outbox_adds_up(before: Option<&Run<Toy>>, record: &Record<Toy>) -> Result<(), String> {
    let answered: BTreeSet<(&RunId, SignalId)> = record
        .events
        .iter()
        .filter_map(|event| match event {
            HistoryEvent::SignalReceipted { to, id, .. }
            | HistoryEvent::SignalRefused { to, id, .. } => Some((to, *id)),
            _ => None,
        })
        .collect();
    let kept = before
        .iter()
        .flat_map(|run| &run.outbox)
        .map(|out| (&out.to, out.id));
    let expected: BTreeSet<_> = kept.filter(|out| !answered.contains(out)).collect();
    let old = record.run.outbox.iter().filter(|out| out.issued.is_some());
    let found: BTreeSet<_> = old.map(|out| (&out.to, out.id)).collect();
    if expected == found {
        Ok(())
    } else {
        Err("emitted less answered is not the outbox".to_owned())
    }
}
