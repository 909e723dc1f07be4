//! Transition of a run: messages are offered, events are applied in order, and effects are collected for after the
//! append.

use crate::{
    fence::{self, Answer, Dropped, FenceResult, Offer, Verdict},
    limit::{CountLimit, is_reached},
    record::{HistoryEvent, Record},
    run::{
        EPISODES_MAX, Entered, Episode, FACTS_MAX, FactMark, OpenTask, Outgoing,
        REQUEST_ID_OVERHEAD, REQUEST_IDS_BYTES_MAX, Run, TASKS_MAX, TakenSignal, TaskKey,
        TaskPhase,
    },
    workflow::{Command, Decision, InboxMessageOf, Input, Now, Sender, Workflow},
};
use dormer_proto::{
    duration::span,
    id::{Attempt, Incarnation, RunId, Seq, SignalId, Sum, Timestamp},
    message::{Failure, Inbound, ObjectRef},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most events in one record.
pub const EVENTS_PER_RECORD_MAX: usize = 256;
/// Most deadlines handled per alarm; the rest fire again. So a workflow whose timers re-arm in the past (after a
/// clock step) cannot block the engine.
const DUE_TIMERS_MAX: usize = 256;
/// Most nested decisions about tasks beyond [`TASKS_MAX`]. A workflow that answers each with another task
/// would exhaust the stack.
const OVERFLOW_DEPTH_MAX: u16 = 16;
/// Most such decisions per transition. A workflow that answers each with several tasks would need exponentially many.
const OVERFLOW_DECISIONS_MAX: u16 = 256;
/// Delay in milliseconds of a task that is beyond these limits.
const OVERFLOW_DELAY_MS: u64 = 60_000;

/// Effects to carry out once the record is stored. Each is safe to repeat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    pub orders: Vec<TaskKey>,
    /// Signals to send, as (receiver, id).
    pub signals: Vec<(RunId, SignalId)>,
    /// Earliest deadline of the run, if its alarm must be set (`Some(None)`: cleared).
    pub alarm: Option<Option<Timestamp>>,
    /// Receipts and refusals.
    pub answers: Vec<Answer>,
    /// Tasks that ended without a report in this record, each with the name of its queue: their orders are of no use.
    pub ended: Vec<(TaskKey, &'static str)>,
}

impl Effects {
    /// Everything that `run` requested and that is unanswered. An engine carries it out when it loads a run at a
    /// revision that it did not append itself.
    #[must_use]
    pub fn outstanding<W: Workflow>(run: &Run<W>) -> Self {
        let in_flight = |task: &&OpenTask<W>| matches!(task.phase, TaskPhase::InFlight { .. });
        Self {
            orders: run
                .tasks
                .iter()
                .filter(in_flight)
                .map(|task| task.key)
                .collect(),
            signals: run
                .in_flight()
                .map(|out| (out.to.clone(), out.id))
                .collect(),
            // A reader never clears an alarm, because its record may be old. An alarm without a due deadline clears
            // itself.
            alarm: run.deadline().map(Some),
            answers: Vec::new(),
            ended: Vec::new(),
        }
    }
}

/// Transition under construction.
#[derive(Debug)]
pub struct Transition<W: Workflow> {
    run: Run<W>,
    prev: Sum,
    at: Timestamp,
    events: Vec<HistoryEvent<W>>,
    effects: Effects,
    deadline_before: Option<Timestamp>,
    /// Tasks before the transition, each with the name of its queue.
    tasks_before: Vec<(TaskKey, &'static str)>,
    alarm_fired: bool,
    next_task_ordinal: u16,
    /// Seq in the ids of new signals.
    signal_seq: Seq,
    next_signal_ordinal: u16,
    /// Decisions under way about tasks beyond the limit.
    overflow_depth: u16,
    /// Decisions so far about tasks beyond the limit.
    overflow_decisions: u16,
}

impl<W: Workflow> Transition<W> {
    /// Next transition of `run` at the time `at`. This process has read or written the run.
    #[must_use]
    pub fn of(mut run: Run<W>, at: Timestamp) -> Self {
        let prev = run.sum;
        resolve_issuers(&mut run, prev);
        let deadline_before = run.deadline();
        let tasks = run.tasks.iter();
        let tasks_before = tasks.map(|task| (task.key, W::class(&task.body))).collect();
        run.seq = run.seq.next();
        let signal_seq = if run.numbered < run.seq {
            run.seq
        } else {
            run.numbered.next()
        };
        Self {
            run,
            prev,
            at,
            events: Vec::new(),
            effects: Effects::default(),
            deadline_before,
            tasks_before,
            alarm_fired: false,
            next_task_ordinal: 0,
            signal_seq,
            next_signal_ordinal: 0,
            overflow_depth: 0,
            overflow_decisions: 0,
        }
    }

    /// First transition of a run that does not exist, if `message` may start it.
    ///
    /// # Errors
    /// The answer to a message that may not start it.
    pub fn begin(
        at: Timestamp,
        ours: Incarnation,
        message: &InboxMessageOf<W>,
    ) -> Result<Self, Offer> {
        let known = message.incarnation.is_none_or(|theirs| theirs == ours);
        let state = match &message.body {
            Inbound::Observed(seen) if known && seen.may_start && seen.fact.is_some() => {
                W::start(&message.run, false)
            }
            Inbound::Signalled(_) if known => W::start(&message.run, true),
            Inbound::Observed(_)
            | Inbound::Signalled(_)
            | Inbound::Reported(_)
            | Inbound::TimerDue
            | Inbound::Answered(_)
            | Inbound::Requested(_) => None,
        };
        let state = state.ok_or_else(|| fence::no_run::<W>(ours, message))?;
        let mut transition = Self::first(message.run.clone(), at, state);
        transition.apply(HistoryEvent::Started);
        Ok(transition)
    }

    pub(crate) fn first(run: RunId, at: Timestamp, state: W::State) -> Self {
        Self::of(blank(run, at, state), at)
    }

    pub(crate) fn into_run(self) -> Run<W> {
        self.run
    }

    /// Offers a message. It passes the fences and is applied, or the offer says why not. `then`: for a reset, the state of
    /// the record that it names.
    pub fn offer(
        &mut self,
        ours: Incarnation,
        message: InboxMessageOf<W>,
        then: Option<W::State>,
    ) -> Offer {
        let (event, answer) = match fence::pass(&self.run, self.at, ours, message) {
            FenceResult::Rejected(offer) => return offer,
            FenceResult::Event(event, answer) => (event, answer),
            FenceResult::Reset(reset) => match then {
                Some(then) => (reset.event(then), None),
                None => return Offer::dropped(Dropped::NoSuchRecord),
            },
        };
        self.apply(event);
        Offer {
            verdict: Verdict::Taken,
            answer,
        }
    }

    /// Whether no event was accepted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Number of accepted events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Unchanged run of a transition without events.
    #[must_use]
    pub fn abandon(mut self) -> Run<W> {
        debug_assert!(self.events.is_empty(), "events may not be thrown away");
        self.run.seq = Seq(self.run.seq.0 - 1);
        self.run
    }

    /// Record to store, and effects to carry out afterwards. `None` if no event was accepted (see
    /// [`Transition::abandon`]).
    #[must_use]
    pub fn finish(mut self, build: &str, causes: Vec<String>) -> Option<(Record<W>, Effects)> {
        if self.events.is_empty() {
            return None;
        }
        let due = self.run.deadline();
        if self.alarm_fired || due != self.deadline_before {
            self.effects.alarm = Some(due);
        }
        // Only open tasks are ordered: a later event of the same record may have ended one.
        let run = &self.run;
        self.effects.orders.retain(|key| {
            run.task(*key)
                .is_some_and(|task| matches!(task.phase, TaskPhase::InFlight { .. }))
        });
        self.effects.signals = fresh_signals(run, std::mem::take(&mut self.effects.signals));
        // A worker that has reported acknowledges its own order when the receipt arrives.
        let ended = self.tasks_before.into_iter();
        let ended =
            ended.filter(|(key, _)| run.task(*key).is_none() && !is_reported(&self.events, *key));
        self.effects.ended = ended.collect();
        let record = Record {
            at: self.at,
            prev: self.prev,
            build: build.to_owned(),
            causes,
            events: self.events,
            run: self.run,
        };
        Some((record, self.effects))
    }

    /// Applies one event. It is total: every event that a record may hold can be applied, so replay never fails.
    pub(crate) fn apply(&mut self, event: HistoryEvent<W>) {
        self.events.push(event.clone());
        match event {
            HistoryEvent::Started => self.decide(Input::Started),
            HistoryEvent::Observed {
                object,
                version,
                fact,
            } => {
                if let Some(fact) = &fact {
                    self.reopen(&object, fact);
                }
                let digest = fence::digest::<W>(fact.as_ref());
                make_room(&mut self.run.facts);
                self.run
                    .facts
                    .insert(object.clone(), FactMark { version, digest });
                self.decide(Input::Observed { object, fact });
            }
            HistoryEvent::TaskFinished {
                seq,
                ordinal,
                outcome,
                ..
            } => {
                if let Some(task) = self.close_task(TaskKey { seq, ordinal }) {
                    self.decide(Input::Finished {
                        task: task.body,
                        outcome,
                    });
                }
            }
            HistoryEvent::TaskFailed {
                seq,
                ordinal,
                failure,
                ..
            } => {
                self.fail_attempt(TaskKey { seq, ordinal }, failure);
            }
            HistoryEvent::TimerDue => self.fire_due_timers(),
            HistoryEvent::SignalTaken {
                from,
                id,
                issued,
                signal,
            } => {
                let taken = TakenSignal::of(id, issued);
                self.run.taken.insert(from.clone(), taken);
                self.decide(Input::Signalled {
                    from: Sender::Run(from),
                    signal,
                });
            }
            HistoryEvent::SignalReceipted { to, id, behind } => match behind {
                None => drop(self.close_signal(&to, id)),
                Some(highest) => self.send_again(&to, id, highest),
            },
            HistoryEvent::SignalRefused { to, id, why } => {
                if let Some(signal) = self.close_signal(&to, id) {
                    self.decide(Input::Refused {
                        to,
                        signal: signal.signal,
                        why,
                    });
                }
            }
            HistoryEvent::Requested {
                id,
                who,
                why,
                signal,
            } => {
                self.remember_request(id);
                self.decide(Input::Signalled {
                    from: Sender::Person { who, why },
                    signal,
                });
            }
            HistoryEvent::Reset { id, then, .. } => {
                self.remember_request(id);
                self.reset(then);
            }
        }
    }

    fn decide(&mut self, input: Input<W>) {
        if self.run.closed.is_some() {
            return;
        }
        let state = std::mem::take(&mut self.run.state);
        let label = W::label(&state);
        let now = Now {
            run: &self.run.id,
            seq: self.run.seq,
            at: self.at,
        };
        let decision = W::decide(now, state, input);
        self.apply_decision(label, decision);
    }

    fn apply_decision(&mut self, was: &'static str, decision: Decision<W>) {
        self.run.state = decision.state;
        if W::label(&self.run.state) != was || self.run.entered.seq == Seq(0) {
            self.run.entered = Entered {
                seq: self.run.seq,
                at: self.at,
            };
        }
        for command in decision.commands {
            self.command(command);
        }
    }

    fn command(&mut self, command: Command<W>) {
        match command {
            Command::Run(body, policy) => self.open_task(body, policy),
            Command::CancelTasks => self.run.tasks.clear(),
            Command::AttemptNow => self.attempts_are_due(),
            Command::FireNow(timer) => {
                if let Some(due) = self.run.timers.get_mut(&timer) {
                    *due = self.at.min(*due);
                }
            }
            Command::StartTimer(timer, ms) => {
                self.run.timers.insert(timer, self.at.plus_ms(ms));
            }
            Command::CancelTimer(timer) => {
                self.run.timers.remove(&timer);
            }
            Command::Signal(to, signal) => self.send(to, signal),
            Command::Forget(run) => {
                self.run.taken.remove(&run);
            }
            Command::ForgetFact(object) => {
                self.run.facts.remove(&object);
            }
            Command::BeginEpisode(kind) => self.begin_episode(kind),
            Command::EndEpisode(result) => self.end_episode(result),
            Command::Complete => {
                self.run.closed = Some(self.at);
                self.run.tasks.clear();
                self.run.timers.clear();
            }
        }
    }

    fn open_task(&mut self, body: W::Task, policy: crate::RetryPolicy) {
        let overflows = self.run.tasks.len() >= TASKS_MAX;
        let failure = || Failure::lasting("TooManyTasks", format!("{TASKS_MAX} tasks are open"));
        let may_decide = self.overflow_depth < OVERFLOW_DEPTH_MAX
            && self.overflow_decisions < OVERFLOW_DECISIONS_MAX;
        if overflows && may_decide {
            self.overflow_depth += 1;
            self.overflow_decisions += 1;
            self.decide(Input::Exhausted {
                task: body,
                failure: failure(),
            });
            self.overflow_depth -= 1;
            return;
        }
        let key = TaskKey {
            seq: self.run.seq,
            ordinal: self.next_task_ordinal,
        };
        self.next_task_ordinal += 1;
        self.run.tasks.push(OpenTask {
            key,
            body,
            policy,
            first_at: self.at,
            attempt: Attempt(1),
            episode: self.run.episode().map_or(Seq(0), |episode| episode.seq),
            phase: if overflows {
                TaskPhase::Waiting {
                    until: self.at.plus_ms(OVERFLOW_DELAY_MS),
                    failure: failure(),
                }
            } else {
                TaskPhase::InFlight {
                    at: self.at,
                    issued: None,
                }
            },
            last: None,
        });
        if !overflows {
            self.effects.orders.push(key);
        }
    }

    /// Makes the next attempts of waiting tasks due. The run's alarm, which follows, orders them.
    fn attempts_are_due(&mut self) {
        for task in &mut self.run.tasks {
            if let TaskPhase::Waiting { until, .. } = &mut task.phase {
                *until = self.at.min(*until);
            }
        }
    }

    fn close_task(&mut self, key: TaskKey) -> Option<OpenTask<W>> {
        let at = self.run.tasks.iter().position(|task| task.key == key)?;
        Some(self.run.tasks.remove(at))
    }

    /// Handles a failed attempt: waits for the next one, or gives up the task.
    fn fail_attempt(&mut self, key: TaskKey, failure: Failure) {
        let id = self.run.task_id(key);
        let at = self.at;
        let Some(task) = self.run.tasks.iter_mut().find(|task| task.key == key) else {
            return;
        };
        let mut delay = task
            .policy
            .delay_ms(&id, task.attempt)
            .max(failure.after_ms.unwrap_or(0));
        if failure.uncounted {
            delay = failure.after_ms.unwrap_or(task.policy.first_ms);
            task.give_back(at, delay);
        }
        let until = at.plus_ms(delay);
        let spent = task.attempt.0 >= task.policy.attempts_max || until > task.overall();
        if failure.retry && !spent {
            task.phase = TaskPhase::Waiting { until, failure };
            return;
        }
        if let Some(task) = self.close_task(key) {
            self.decide(Input::Exhausted {
                task: task.body,
                failure,
            });
        }
    }

    /// Handles all due deadlines, earliest first.
    fn fire_due_timers(&mut self) {
        self.alarm_fired = true;
        for _ in 0..DUE_TIMERS_MAX {
            if !self.fire_earliest_due() {
                return;
            }
        }
    }

    /// Fires the earliest deadline that is due. `false`: none is.
    fn fire_earliest_due(&mut self) -> bool {
        let at = self.at;
        let timer = self
            .run
            .timers
            .iter()
            .map(|(timer, due)| (*due, *timer))
            .min_by_key(|t| t.0);
        let task = self
            .run
            .tasks
            .iter()
            .map(|task| (task.deadline(), task.key))
            .min();
        match (timer, task) {
            (Some((due, timer)), task) if due <= at && task.is_none_or(|task| due <= task.0) => {
                self.run.timers.remove(&timer);
                self.decide(Input::Fired(timer));
                true
            }
            (_, Some((due, key))) if due <= at => {
                self.task_due(key);
                true
            }
            _ => false,
        }
    }

    fn task_due(&mut self, key: TaskKey) {
        let at = self.at;
        let Some(task) = self.run.tasks.iter_mut().find(|task| task.key == key) else {
            return;
        };
        match &task.phase {
            TaskPhase::Waiting { failure, .. } => {
                task.last = Some(failure.clone());
                task.attempt = task.attempt.next();
                task.phase = TaskPhase::InFlight { at, issued: None };
                self.effects.orders.push(key);
            }
            TaskPhase::InFlight { .. } => {
                let ms = task.deadline().since_ms(task.first_at);
                let began = span(ms / 1_000);
                let text = format!(
                    "no worker has reported on it in time; the first attempt began {began} before"
                );
                let over = task.deadline() == task.overall();
                let failure = match task.last.take().filter(|_| over) {
                    // Time is up for all attempts, and what failed until now says why.
                    Some(last) => Failure {
                        retry: false,
                        uncounted: false,
                        ..last
                    },
                    None => Failure::transient("NoAnswer", text),
                };
                self.fail_attempt(key, failure);
            }
        }
    }

    fn send(&mut self, to: RunId, signal: W::Signal) {
        let id = self.next_signal();
        self.effects.signals.push((to.clone(), id));
        self.run.outbox.push(Outgoing {
            to,
            id,
            issued: None,
            signal,
        });
    }

    fn next_signal(&mut self) -> SignalId {
        if self.signal_seq > self.run.seq {
            self.run.numbered = self.signal_seq;
        }
        let id = SignalId {
            seq: self.signal_seq,
            ordinal: self.next_signal_ordinal,
        };
        self.next_signal_ordinal += 1;
        id
    }

    /// Sends a signal again under an id above `highest`, which its receiver has of a record that this run has lost.
    fn send_again(&mut self, to: &RunId, id: SignalId, highest: SignalId) {
        let known = |out: &Outgoing<W>| out.to == *to && out.id == id;
        let Some(at) = self.run.outbox.iter().position(known) else {
            return;
        };
        if self.signal_seq <= highest.seq {
            self.signal_seq = highest.seq.next();
        }
        let next = self.next_signal();
        self.effects.signals.push((to.clone(), next));
        if let Some(out) = self.run.outbox.get_mut(at) {
            out.id = next;
            out.issued = None;
        }
    }

    fn close_signal(&mut self, to: &RunId, id: SignalId) -> Option<Outgoing<W>> {
        let at = self
            .run
            .outbox
            .iter()
            .position(|out| out.to == *to && out.id == id)?;
        let closed = self.run.outbox.remove(at);
        // The next signal to the same receiver may now be sent.
        if let Some(next) = self.run.outbox.iter().find(|out| out.to == *to) {
            self.effects.signals.push((to.clone(), next.id));
        }
        Some(closed)
    }

    fn remember_request(&mut self, id: String) {
        let requests = &mut self.run.requests;
        requests.push_back(id);
        let cost = |id: &String| id.len() + REQUEST_ID_OVERHEAD;
        let mut bytes: usize = requests.iter().map(cost).sum();
        while bytes > REQUEST_IDS_BYTES_MAX && requests.len() > 1 {
            bytes -= requests.pop_front().as_ref().map_or(0, cost);
        }
    }

    /// Begins an ended run anew, if the workflow wants that for this fact. Versions of observed objects stay, so no
    /// earlier message counts as news; their contents are forgotten with the state, so the next full list is news.
    fn reopen(&mut self, object: &ObjectRef, fact: &W::Fact) {
        if self.run.closed.is_none() {
            return;
        }
        let Some(state) = W::reopen(&self.run.state, object, fact) else {
            return;
        };
        self.run.closed = None;
        self.run.state = state;
        for mark in self.run.facts.values_mut() {
            mark.digest = FactMark::GONE;
        }
        self.run.entered = Entered {
            seq: self.run.seq,
            at: self.at,
        };
        self.decide(Input::Started);
    }

    /// Resets the state. Tasks and timers end. Signals without a receipt, and the accepted signals of each sender,
    /// stay.
    fn reset(&mut self, then: W::State) {
        if self.run.closed.is_some() && !W::resets_ended(&self.run.state) {
            return;
        }
        self.run.closed = None;
        self.run.tasks.clear();
        self.run.timers.clear();
        let current = std::mem::take(&mut self.run.state);
        let now = Now {
            run: &self.run.id,
            seq: self.run.seq,
            at: self.at,
        };
        let decision = W::reset(now, then, &current);
        // A reset always enters a state, even one with the same name.
        self.run.entered = Entered {
            seq: self.run.seq,
            at: self.at,
        };
        let label = W::label(&decision.state);
        self.apply_decision(label, decision);
    }

    fn begin_episode(&mut self, kind: &'static str) {
        self.end_episode("superseded".to_owned());
        self.run.episodes.push_back(Episode {
            kind: kind.to_owned(),
            seq: self.run.seq,
            from: self.at,
            to: None,
            result: String::new(),
        });
        while self.run.episodes.len() > EPISODES_MAX {
            self.run.episodes.pop_front();
        }
    }

    fn end_episode(&mut self, result: String) {
        if let Some(episode) = self
            .run
            .episodes
            .back_mut()
            .filter(|episode| episode.to.is_none())
        {
            episode.to = Some(self.at);
            episode.result = dormer_proto::message::cut(result);
        }
    }
}

fn blank<W: Workflow>(id: RunId, at: Timestamp, state: W::State) -> Run<W> {
    Run {
        id,
        seq: Seq(0),
        began: at,
        state,
        entered: Entered::default(),
        tasks: Vec::new(),
        timers: BTreeMap::new(),
        outbox: Vec::new(),
        taken: BTreeMap::new(),
        numbered: Seq(0),
        requests: VecDeque::new(),
        facts: BTreeMap::new(),
        episodes: VecDeque::new(),
        closed: None,
        sum: Sum(0),
    }
}

/// Sets the last record's checksum on what that record issued. The record could not contain its own checksum.
fn resolve_issuers<W: Workflow>(run: &mut Run<W>, sum: Sum) {
    for task in &mut run.tasks {
        if let TaskPhase::InFlight { issued, .. } = &mut task.phase {
            issued.get_or_insert(sum);
        }
    }
    for signal in &mut run.outbox {
        signal.issued.get_or_insert(sum);
    }
}

/// Whether a report of this task is among the events.
fn is_reported<W: Workflow>(events: &[HistoryEvent<W>], key: TaskKey) -> bool {
    events.iter().any(|event| match event {
        HistoryEvent::TaskFinished { seq, ordinal, .. }
        | HistoryEvent::TaskFailed { seq, ordinal, .. } => {
            (*seq, *ordinal) == (key.seq, key.ordinal)
        }
        HistoryEvent::Started
        | HistoryEvent::Observed { .. }
        | HistoryEvent::TimerDue
        | HistoryEvent::SignalTaken { .. }
        | HistoryEvent::SignalReceipted { .. }
        | HistoryEvent::SignalRefused { .. }
        | HistoryEvent::Requested { .. }
        | HistoryEvent::Reset { .. } => false,
    })
}

/// Signals that became sendable and are still the oldest to their receiver.
fn fresh_signals<W: Workflow>(
    run: &Run<W>,
    wanted: Vec<(RunId, SignalId)>,
) -> Vec<(RunId, SignalId)> {
    if wanted.is_empty() {
        return wanted;
    }
    let first: BTreeMap<&RunId, SignalId> = run
        .outbox
        .iter()
        .rev()
        .map(|out| (&out.to, out.id))
        .collect();
    // A run has one signal on its way to each receiver, so the receiver alone tells a repeat.
    let mut receivers = BTreeSet::new();
    wanted
        .into_iter()
        .filter(|(to, id)| first.get(to) == Some(id) && receivers.insert(to.clone()))
        .collect()
}

/// Drops objects that are gone, oldest first, to make room for new ones.
fn make_room(facts: &mut BTreeMap<ObjectRef, FactMark>) {
    if !is_reached(CountLimit::Facts, facts.len(), 1, FACTS_MAX) {
        return;
    }
    let gone = facts
        .iter()
        .filter(|(_, mark)| mark.is_gone())
        .min_by_key(|(_, mark)| mark.version);
    if let Some(object) = gone.map(|(object, _)| object.clone()) {
        facts.remove(&object);
    }
}
