//! The simulated world: what is stored, what is on its way, and what goes wrong with it.

use crate::{
    chance::Chance,
    older_build::Elder,
    toy::{self, Toy, ToySignal},
};
use dormer_engine::port::{
    Ack, Append, AppendError, Expected, Head, OrderOut, QuarantineNote, Stored,
};
use dormer_engine_core::{InboxMessageOf, Record, Run, TakenSignal, Workflow};
use dormer_proto::{
    address::Address,
    envelope,
    id::{Attempt, Epoch, Incarnation, Revision, RunId, Seq, SignalId, Sum, TaskId, Timestamp},
    message::{
        Ask, Failure, Inbound, InboxMessage, ObjectRef, Observation, Reporter, Request, TaskOrder,
        TaskReport, Version,
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// How long a caller waits for the answer, in milliseconds: as `CONFIRMED_WITHIN` in `src/api/ask.rs`.
const CONFIRMED_WITHIN_MS: u64 = 5_000;

/// Begins the worker's name in a report of a role that the task is not for.
pub(crate) const OTHER_ROLE: &str = "other role ";

/// Faults, one bit each.
pub(crate) mod fault {
    pub(crate) const DIE: u32 = 1;
    pub(crate) const REFUSE: u32 = 2;
    pub(crate) const UNKNOWN: u32 = 4;
    pub(crate) const REPEAT: u32 = 8;
    pub(crate) const LOSE: u32 = 16;
    pub(crate) const LATE: u32 = 32;
    pub(crate) const CLOCK: u32 = 64;
    pub(crate) const ALARM: u32 = 128;
    pub(crate) const WORKER: u32 = 256;
    pub(crate) const TAIL: u32 = 512;
    pub(crate) const RESTORE: u32 = 1_024;
    pub(crate) const BUILD: u32 = 2_048;
    /// A record is refused for good, together with others or alone.
    pub(crate) const TOO_LARGE: u32 = 4_096;
    /// An append without an answer lands later, after engines have read again.
    pub(crate) const LANDS_LATE: u32 = 8_192;
    /// The stream of the inbox is gone, with every message in it. (JetStream: a stream in memory whose servers restart,
    /// or one that an operator deletes.)
    pub(crate) const INBOX_LOST: u32 = 16_384;
    /// The same of the stream of orders.
    pub(crate) const TASKS_LOST: u32 = 32_768;
    /// Clocks of the engines differ from the server's, which rings the alarms.
    pub(crate) const SKEW: u32 = 65_536;
    /// A month passes: runs that have ended are deleted, and may begin anew.
    pub(crate) const MONTH: u32 = 131_072;
    /// The consumer of the inbox delivers no more while so many messages are neither acknowledged nor, after a delayed
    /// negative acknowledgement, due again (JetStream's `max_ack_pending`, which counts both).
    pub(crate) const PENDING: u32 = 262_144;
    /// A deposed leader answers a read with the record before the last.
    pub(crate) const STALE: u32 = 524_288;
    /// The last record of one run is deleted from its history stream (`nats stream rmm`, or a server that lost it).
    pub(crate) const RECORD_LOST: u32 = 1_048_576;
}

/// One stored record, opened.
pub(crate) struct RecordEntry {
    pub(crate) run: RunId,
    pub(crate) bytes: Vec<u8>,
    pub(crate) sum: Sum,
    pub(crate) revision: Revision,
    pub(crate) record: Record<Toy>,
}

impl RecordEntry {
    pub(crate) fn stored(&self) -> Stored {
        Stored {
            bytes: self.bytes.clone(),
            revision: self.revision,
        }
    }
}

/// A message on its way.
pub(crate) struct InTransit {
    pub(crate) bytes: Vec<u8>,
    pub(crate) token: u64,
    pub(crate) after: Timestamp,
    pub(crate) holder: Option<usize>,
    pub(crate) run: Option<RunId>,
    /// Its address in an inbox that holds one message for each.
    pub(crate) address: Option<Address>,
    /// Whether it has reached the inbox.
    pub(crate) arrived: bool,
    /// Whether it has been delivered at least once.
    pub(crate) delivered: bool,
    /// Whether another took its place. Its holder continues with it, and no other engine gets it.
    pub(crate) replaced: bool,
}

pub(crate) struct World {
    pub(crate) chance: Chance,
    pub(crate) faults: u32,
    pub(crate) exclusive: bool,
    /// Engines of two builds take turns, and work side by side.
    pub(crate) mixed: bool,
    pub(crate) incarnation: Incarnation,
    pub(crate) now: Timestamp,
    /// All records of all runs, in the order in which they were stored.
    pub(crate) entries: Vec<RecordEntry>,
    pub(crate) revision: u64,
    pub(crate) ever: BTreeSet<Sum>,
    /// Signals that a record took, lost records included: receiver, sender, id, and the record that issued it.
    pub(crate) taken: BTreeSet<(RunId, RunId, SignalId, Sum)>,
    pub(crate) messages: Vec<InTransit>,
    pub(crate) token: u64,
    pub(crate) orders: BTreeMap<(TaskId, Attempt), OrderOut>,
    /// When each rings, and which engine set it last; `None`: one that is dead.
    pub(crate) alarms: BTreeMap<RunId, (Timestamp, Option<usize>)>,
    /// Notes about quarantined runs.
    pub(crate) notes: BTreeMap<RunId, QuarantineNote>,
    /// Version of the last one.
    pub(crate) notes_last: u64,
    /// Appends on their way, whose engines got no answer.
    pub(crate) appends: Vec<Append>,
    /// Runs that may have to wait for the sweep. One of their messages was replaced after it had been delivered and before
    /// it was acknowledged, so that a record may be stored with no engine left to carry out its effects. Or a deposed
    /// leader answered with an older record, with another timer or none.
    pub(crate) orphaned: BTreeSet<RunId>,
    /// Engines that sleep in mid-turn, after which they may still store a record.
    pub(crate) asleep: BTreeSet<usize>,
    /// No alarm is lost, nor what it follows from: none may wait for the sweep.
    pub(crate) punctual: bool,
    pub(crate) tail_lost: bool,
    /// Runs of which a last record was deleted.
    pub(crate) record_lost: BTreeSet<RunId>,
    /// Newest record of each run that an engine wrote and must know, until it or the run's quarantine ends.
    pub(crate) acknowledged: BTreeMap<(usize, RunId), Revision>,
    /// Whether engines shed runs, and what they know of them.
    pub(crate) forgets: bool,
    /// The faults have ended, and what was under way with them.
    pub(crate) calm: bool,
    /// Runs of which a deposed leader returned an older record. A report that was dropped for it costs its attempt: the run
    /// tries the task again. A timer that was dropped for it is found by the sweep.
    pub(crate) misread: BTreeSet<RunId>,
    /// Runs of which an engine's last answer was such a one.
    pub(crate) misread_last: BTreeSet<(usize, RunId)>,
    pub(crate) revisit: bool,
    pub(crate) truth: BTreeMap<(u64, String), (Option<u64>, u64)>,
    pub(crate) epoch: u64,
    pub(crate) resource: u64,
    pub(crate) requests: u64,
    /// Requests whose senders wait for an answer, each with its run and until when.
    pub(crate) asked: BTreeMap<String, (RunId, Timestamp)>,
    /// Requests whose senders have a receipt that they are on record, each with its run.
    pub(crate) confirmed_requests: BTreeMap<String, RunId>,
    /// How far each engine's clock is ahead of the server's, in milliseconds.
    pub(crate) skew: BTreeMap<usize, i64>,
    pub(crate) violation: Option<String>,
    pub(crate) digest: u64,
    /// Orders that a worker took after their tasks had ended.
    pub(crate) left_over: u64,
}

impl World {
    pub(crate) fn new(seed: u64, faults: u32, exclusive: bool, mixed: bool) -> Self {
        let losing =
            fault::ALARM | fault::TAIL | fault::RESTORE | fault::INBOX_LOST | fault::RECORD_LOST;
        let punctual = seed % 3 == 1 || faults & losing == 0;
        Self {
            chance: Chance::new(seed),
            faults: if punctual { faults & !losing } else { faults },
            punctual,
            exclusive,
            mixed,
            incarnation: Incarnation(1),
            now: Timestamp(1_000_000),
            entries: Vec::new(),
            revision: 0,
            ever: BTreeSet::new(),
            taken: BTreeSet::new(),
            messages: Vec::new(),
            token: 0,
            orders: BTreeMap::new(),
            alarms: BTreeMap::new(),
            notes: BTreeMap::new(),
            notes_last: 0,
            appends: Vec::new(),
            orphaned: BTreeSet::new(),
            asleep: BTreeSet::new(),
            tail_lost: false,
            record_lost: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            forgets: false,
            calm: false,
            misread: BTreeSet::new(),
            misread_last: BTreeSet::new(),
            revisit: false,
            truth: BTreeMap::new(),
            epoch: 1,
            resource: 0,
            requests: 0,
            asked: BTreeMap::new(),
            confirmed_requests: BTreeMap::new(),
            skew: BTreeMap::new(),
            violation: None,
            digest: 0,
            left_over: 0,
        }
    }

    /// Whether `kind` strikes now, at `percent` in a hundred.
    pub(crate) fn strikes(&mut self, kind: u32, percent: u64) -> bool {
        self.faults & kind != 0 && self.chance.percent(percent)
    }

    pub(crate) fn violated(&mut self, law: String) {
        self.violation.get_or_insert(law);
    }

    pub(crate) fn last(&self, run: &RunId) -> Option<&RecordEntry> {
        self.entries.iter().rev().find(|entry| entry.run == *run)
    }

    /// Every run as stored.
    pub(crate) fn runs(&self) -> Vec<&Run<Toy>> {
        (0..toy::RUNS)
            .filter_map(|n| Some(&self.last(&toy::id(n))?.record.run))
            .collect()
    }

    pub(crate) fn put(&mut self, bytes: Vec<u8>) {
        let run = envelope::decode::<InboxMessageOf<Toy>>(&bytes, Toy::SCHEMA).ok();
        let run = run.map(|(message, _)| message.run);
        let copies = if self.strikes(fault::REPEAT, 15) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let late = if self.strikes(fault::LATE, 15) {
                self.chance.below(30_000)
            } else {
                0
            };
            self.token += 1;
            let after = self.now.plus_ms(late);
            let token = self.token;
            let bytes = bytes.clone();
            let run = run.clone();
            let address = Address::read(&bytes).filter(|_| !self.exclusive);
            self.messages.push(InTransit {
                bytes,
                token,
                after,
                holder: None,
                run,
                address,
                arrived: false,
                delivered: false,
                replaced: false,
            });
        }
        self.arrive();
    }

    /// What has been on its way long enough reaches the inbox, in that order, and takes the place of the message with
    /// the same address, whichever of both is newer: as in a stream with `max_msgs_per_subject: 1` (nats-server 2.12.3,
    /// `server/memstore.go`, `enforcePerSubjectLimit`).
    pub(crate) fn arrive(&mut self) {
        loop {
            let here = |message: &&InTransit| !message.arrived && message.after <= self.now;
            let coming = self.messages.iter().filter(here);
            let Some(next) = coming.min_by_key(|message| (message.after, message.token)) else {
                return self.forget_replaced();
            };
            let token = next.token;
            let address = next.address.clone();
            for message in &mut self.messages {
                message.replaced |=
                    message.arrived && address.is_some() && message.address == address;
                message.arrived |= message.token == token;
            }
        }
    }

    /// Messages that an engine held are free again, and those among them that were replaced are gone.
    pub(crate) fn release(&mut self, released: impl Fn(&InTransit) -> bool) {
        for message in self.messages.iter_mut().filter(|it| released(it)) {
            message.holder = None;
        }
        self.forget_replaced();
    }

    fn forget_replaced(&mut self) {
        let gone = |message: &InTransit| message.replaced && message.holder.is_none();
        for message in self.messages.iter().filter(|it| gone(it) && it.delivered) {
            self.orphaned.extend(message.run.clone());
        }
        self.messages.retain(|message| !gone(message));
    }

    /// An engine reads runs. `stale`: a deposed leader answers it.
    pub(crate) fn were_read(&mut self, engine: usize, runs: &[RunId], stale: bool) {
        for run in runs {
            if stale {
                self.misread.insert(run.clone());
                self.misread_last.insert((engine, run.clone()));
                self.orphaned.insert(run.clone());
            } else {
                self.misread_last.remove(&(engine, run.clone()));
            }
        }
    }

    /// The alarm of a run was set by an engine that read it or stored its record.
    pub(crate) fn alarm_was_set(&mut self, engine: usize, run: &RunId) {
        let may_land = self.appends.iter().any(|append| append.run == *run);
        let misread = self.misread_last.contains(&(engine, run.clone()));
        if !may_land && !misread && self.asleep.is_empty() {
            self.orphaned.remove(run);
        }
    }

    pub(crate) fn put_message(&mut self, message: &InboxMessageOf<Toy>) {
        // Watchers, workers and people are of either build; an older one has no word for a note.
        let note = matches!(
            &message.body,
            Inbound::Requested(Request {
                ask: Ask::Signal(ToySignal::Note(_)),
                ..
            })
        );
        let older = self.mixed && !note && self.chance.percent(85);
        match envelope::encode(message, if older { Elder::SCHEMA } else { Toy::SCHEMA }) {
            Ok((bytes, _)) => self.put(bytes),
            Err(error) => self.violated(format!("a message cannot be written: {error}")),
        }
    }

    /// A message is now in these hands.
    pub(crate) fn hold(&mut self, token: u64, holder: usize) {
        if let Some(message) = self
            .messages
            .iter_mut()
            .find(|message| message.token == token)
        {
            message.holder = Some(holder);
            message.delivered = true;
        }
    }

    pub(crate) fn acknowledge(&mut self, token: u64, ack: Ack) {
        let lost = self.strikes(fault::LOSE, 10);
        let now = self.now;
        let Some(at) = self
            .messages
            .iter()
            .position(|message| message.token == token)
        else {
            return;
        };
        self.check_ack(at, ack);
        match ack {
            // A lost acknowledgement of a message that was replaced is not missed.
            Ack::Done if !lost || self.messages[at].replaced => drop(self.messages.remove(at)),
            Ack::Done => self.messages[at].holder = None,
            Ack::Again(ms) | Ack::Newer(ms) => {
                self.messages[at].holder = None;
                self.messages[at].after = now.plus_ms(ms);
                self.forget_replaced();
            }
        }
    }

    /// The world changes, or a person wishes something.
    pub(crate) fn happen(&mut self) {
        let n = self.chance.below(toy::RUNS);
        if self.chance.percent(75) {
            let uid = format!("o{}", self.chance.below(2));
            let gone = self.chance.percent(10);
            let fact = (!gone).then(|| self.chance.below(12));
            self.resource += 1;
            let known = self.truth.contains_key(&(n, uid.clone()));
            if fact.is_some() || known {
                self.truth.insert((n, uid.clone()), (fact, self.resource));
                self.observe(n, &uid);
            }
        } else {
            self.request(n);
        }
    }

    fn observe(&mut self, n: u64, uid: &str) {
        let Some((fact, resource)) = self.truth.get(&(n, uid.to_owned())).copied() else {
            return;
        };
        let object = ObjectRef {
            cluster: String::new(),
            kind: "Thing".to_owned(),
            uid: uid.to_owned(),
        };
        let version = Version {
            epoch: Epoch(self.epoch),
            resource,
        };
        let body = Inbound::Observed(Observation {
            object,
            version,
            fact,
            may_start: true,
        });
        self.put_message(&InboxMessage {
            run: toy::id(n),
            incarnation: Some(self.incarnation),
            body,
        });
    }

    /// The watcher lists again, in a new epoch.
    pub(crate) fn relist(&mut self) {
        self.epoch += 1;
        self.repeat();
    }

    /// The watcher publishes from its cache, in the same epoch.
    pub(crate) fn repeat(&mut self) {
        let known: Vec<_> = self.truth.keys().cloned().collect();
        for (n, uid) in known {
            self.observe(n, &uid);
        }
    }

    /// The same, once the objects of runs that have ended are gone: nothing is said of them any more.
    pub(crate) fn repeat_what_lives(&mut self) {
        let known: Vec<_> = self.truth.keys().cloned().collect();
        for (n, uid) in known {
            let last = self.last(&toy::id(n));
            if last.is_none_or(|entry| entry.record.run.closed.is_none()) {
                self.observe(n, &uid);
            }
        }
    }

    /// A caller learns that its request is on record, or in the end that none confirmed it: as the API does
    /// (`src/api/ask.rs`), by the ids that the run remembers.
    pub(crate) fn answer_people(&mut self) {
        for (id, (run, until)) in std::mem::take(&mut self.asked) {
            let last = self.last(&run);
            if last.is_some_and(|entry| entry.record.run.requests.contains(&id)) {
                self.confirmed_requests.insert(id, run);
            } else if self.now < until {
                self.asked.insert(id, (run, until));
            }
        }
    }

    fn request(&mut self, n: u64) {
        self.requests += 1;
        let run = toy::id(n);
        let entered = self
            .last(&run)
            .map_or(Seq(0), |entry| entry.record.run.entered.seq);
        let seq = self.last(&run).map_or(0, |entry| entry.record.run.seq.0);
        let ask = match self.chance.below(10) {
            0 => Ask::Signal(ToySignal::End),
            9 if self.mixed => Ask::Signal(ToySignal::Note(1)),
            1..4 => Ask::Reset {
                to: Seq(1 + self.chance.below(seq.max(1))),
            },
            _ => Ask::Signal(ToySignal::Hello(2)),
        };
        let against = if self.chance.percent(50) {
            entered
        } else {
            Seq(0)
        };
        let who = "someone".to_owned();
        let why = "because".to_owned();
        let until = self.now.plus_ms(CONFIRMED_WITHIN_MS);
        self.asked
            .insert(self.requests.to_string(), (run.clone(), until));
        let request = Request {
            id: self.requests.to_string(),
            who,
            why,
            against,
            ask,
        };
        self.put_message(&InboxMessage {
            run,
            incarnation: None,
            body: Inbound::Requested(request),
        });
    }

    /// A worker works on some order; it stays until a receipt comes.
    pub(crate) fn work(&mut self) {
        if self.orders.is_empty() || self.strikes(fault::WORKER, 20) {
            return;
        }
        let at = self.chance.index(self.orders.len());
        let Some(order) = self.orders.values().nth(at) else {
            return;
        };
        let Ok((order, _)) = envelope::decode::<TaskOrder<u64>>(&order.bytes, Toy::SCHEMA) else {
            return self.violated("an order cannot be read".to_owned());
        };
        self.left_over += u64::from(!self.is_open(&order.task));
        if self.strikes(fault::WORKER, 5) {
            let result = Ok(order.body);
            self.report(&order, Reporter::Approver, result);
        }
        let twice = self.strikes(fault::WORKER, 30);
        for _ in 0..=usize::from(twice) {
            let result = if self.strikes(fault::WORKER, 40) {
                Err(Failure::transient("Trouble", "it did not work"))
            } else if self.strikes(fault::WORKER, 5) {
                Err(Failure::lasting("Never", "it will not work"))
            } else {
                Ok(order.body)
            };
            if self.strikes(fault::LOSE, 10) {
                continue;
            }
            self.report(&order, Reporter::Worker, result);
        }
    }

    /// A worker reports on an order, or another role does. Its name says which, and which order it had.
    fn report(&mut self, order: &TaskOrder<u64>, by: Reporter, result: Result<u64, Failure>) {
        let role = if by == Reporter::Worker {
            ""
        } else {
            OTHER_ROLE
        };
        let body = Inbound::Reported(TaskReport {
            task: order.task.clone(),
            attempt: order.attempt,
            issued: order.issued,
            worker: format!("{role}{}/{}", order.incarnation.0, order.issued),
            by,
            result,
        });
        self.put_message(&InboxMessage {
            run: order.task.run.clone(),
            incarnation: Some(order.incarnation),
            body,
        });
    }

    fn deliver_timer_due(&mut self, run: &RunId) {
        let body = Inbound::TimerDue;
        self.put_message(&InboxMessage {
            run: run.clone(),
            incarnation: Some(self.incarnation),
            body,
        });
    }

    /// Time passes, perhaps not evenly; alarms ring.
    pub(crate) fn pass_time(&mut self) {
        self.now = self.now.plus_ms(self.chance.below(2_500));
        if self.strikes(fault::CLOCK, 10) {
            let back = self.chance.below(20_000);
            self.now = Timestamp(self.now.0.saturating_sub(back));
        } else if self.strikes(fault::CLOCK, 5) {
            self.now = self.now.plus_ms(60_000);
        }
        self.land();
        self.deliver_due_alarms();
        let set: Vec<RunId> = self.alarms.keys().cloned().collect();
        for run in set {
            if self.strikes(fault::ALARM, 10) {
                self.deliver_timer_due(&run);
            }
        }
    }

    /// A month, after which the sweep deletes what has ended.
    pub(crate) fn pass_month(&mut self) {
        self.now = self.now.plus_ms(31 * 24 * 3_600_000);
        self.land();
        self.deliver_due_alarms();
    }

    /// Sets the clock of one engine.
    pub(crate) fn skew_clock(&mut self, engine: usize) {
        let ms = i64::try_from(self.chance.below(20_000)).unwrap_or(0) - 10_000;
        self.skew.insert(engine, ms);
    }

    /// Time by the clock of one engine.
    pub(crate) fn now_of(&self, engine: usize) -> Timestamp {
        let ahead = self.skew.get(&engine).copied().unwrap_or(0);
        Timestamp(self.now.0.saturating_add_signed(ahead))
    }

    /// The inbox is gone with its messages. Who holds one continues with it, and acknowledges into the void.
    pub(crate) fn lose_inbox(&mut self) {
        self.messages.clear();
        self.revisit = true;
    }

    /// Whether the store lost records, or was restored.
    pub(crate) fn went_back(&self) -> bool {
        self.tail_lost || self.incarnation != Incarnation(1)
    }

    /// Whether the store lost records of this run, without another identity.
    pub(crate) fn lost_records(&self, run: &RunId) -> bool {
        self.tail_lost || self.record_lost.contains(run)
    }

    /// Deletes a run that has ended, if `revision` is still its last.
    pub(crate) fn forget(&mut self, run: &RunId, revision: Revision) {
        if self
            .last(run)
            .is_some_and(|entry| entry.revision == revision)
        {
            self.entries.retain(|entry| entry.run != *run);
            self.confirmed_requests.retain(|_, of| of != run);
        }
    }

    /// Deletes the last record of one run, whatever engines know of it.
    pub(crate) fn lose_last_record(&mut self) {
        let run = toy::id(self.chance.below(toy::RUNS));
        let Some(last) = self.entries.iter().rposition(|entry| entry.run == run) else {
            return;
        };
        self.entries.remove(last);
        let mut confirmed = std::mem::take(&mut self.confirmed_requests);
        confirmed.retain(|id, of| *of != run || self.confirmed(of, id));
        self.confirmed_requests = confirmed;
        self.record_lost.insert(run);
    }

    /// A person releases every run. The answer is whether one was quarantined.
    pub(crate) fn release_all(&mut self) -> bool {
        let held = self.notes.extract_if(.., |_, note| note.missed.is_none());
        let held: BTreeSet<RunId> = held.map(|(run, _)| run).collect();
        self.acknowledged.retain(|(_, run), _| !held.contains(run));
        !held.is_empty()
    }

    /// Alarms that are due ring, or are lost. Answers whether there were any.
    pub(crate) fn deliver_due_alarms(&mut self) -> bool {
        let due = self.alarms.iter().filter(|(_, (at, _))| *at <= self.now);
        let due: Vec<RunId> = due.map(|(run, _)| run.clone()).collect();
        for run in &due {
            self.alarms.remove(run);
            if !self.strikes(fault::ALARM, 15) {
                self.deliver_timer_due(run);
            }
        }
        !due.is_empty()
    }

    /// A page of what the store knows of its runs without opening a record.
    pub(crate) fn heads(&self, after: Option<&RunId>, max: usize) -> Vec<Head> {
        let mut ids: Vec<RunId> = (0..toy::RUNS).map(toy::id).collect();
        ids.sort();
        let later = ids
            .into_iter()
            .filter(|id| after.is_none_or(|after| id > after));
        let head = |id: RunId| {
            let RecordEntry {
                record, revision, ..
            } = self.last(&id)?;
            let Run { seq, closed, .. } = record.run;
            let quiet = record.run.is_quiet();
            Some(Head {
                run: id,
                revision: *revision,
                seq,
                deadline: record.run.deadline(),
                closed,
                quiet,
            })
        };
        later.filter_map(head).take(max).collect()
    }

    /// The next moment at which something waits.
    pub(crate) fn next_moment(&self) -> Option<Timestamp> {
        let deadlines = self.runs().into_iter().filter_map(Run::deadline);
        deadlines
            .chain(self.messages.iter().map(|message| message.after))
            .min()
    }

    /// The next moment after now at which something comes by itself: a message, or an alarm.
    pub(crate) fn next_event(&self) -> Option<Timestamp> {
        let due_times = self.alarms.values().map(|(at, _)| *at);
        let messages = self.messages.iter().map(|message| message.after);
        due_times.chain(messages).filter(|at| *at > self.now).min()
    }

    /// The store comes back without its last records; with another identity if it was restored.
    pub(crate) fn rewind(&mut self, restored: bool, reuse: bool) {
        let lost = self.chance.index(self.entries.len().min(6)) + 1;
        self.entries
            .truncate(self.entries.len().saturating_sub(lost));
        self.appends.clear();
        if restored {
            self.incarnation = Incarnation(self.incarnation.0 + 1);
        } else {
            self.tail_lost = true;
        }
        // Each engine ends at a contradiction from now on, and would end at these for ever.
        self.notes.retain(|_, note| note.missed.is_none());
        // What is lost was confirmed before.
        self.confirmed_requests.clear();
        if reuse {
            self.revision = self.entries.last().map_or(0, |entry| entry.revision.0);
        } else {
            self.revision += 1_000;
        }
        self.revisit = true;
        self.relist();
    }

    /// Stores a record if its precondition holds.
    pub(crate) fn append(&mut self, append: Append) -> Result<Revision, AppendError> {
        let found = self.last(&append.run).map(|entry| entry.revision);
        let fits = match append.expected {
            Expected::Nothing => found.is_none(),
            Expected::At(revision) => found == Some(revision),
            Expected::Anything => true,
        };
        if fits {
            Ok(self.store(append))
        } else {
            Err(AppendError::Conflict)
        }
    }

    /// Appends land whose engines gave up waiting.
    pub(crate) fn land(&mut self) {
        for append in std::mem::take(&mut self.appends) {
            // The answer is dropped.
            let _ = self.append(append);
        }
    }

    /// Signals that `run` took from `from`, as stored.
    pub(crate) fn took(&self, run: &RunId, from: &RunId) -> Option<SignalId> {
        let taken = &self.last(run)?.record.run.taken;
        taken.get(from).map(TakenSignal::id)
    }
}
