//! Each fence by itself, on a toy workflow: which messages a run takes, drops, and answers.

use dormer_engine_core::{
    Answer, Command, Decision, Dropped, Effects, InboxMessageOf, Input, Now, OUTBOX_MAX,
    REQUEST_IDS_BYTES_MAX, Record, RetryPolicy, Run, TASKS_MAX, TaskPhase, Transition, Verdict,
    Workflow, replay_record,
};
use dormer_proto::{
    envelope,
    id::{Attempt, Epoch, Incarnation, RunId, Seq, SignalId, Sum, TaskId, Timestamp},
    message::{
        Ask, Failure, Inbound, InboxMessage, ObjectRef, Observation, ReceiptStatus, Refusal,
        Reporter, Request, SignalAnswer, Signalled, TaskReport, Version,
    },
};
use serde::{Deserialize, Serialize};

const OURS: Incarnation = Incarnation(7);
/// Fact that begins an ended run anew.
const AGAIN: u32 = 42;

/// Counts its facts and signals; asks for a task at each fact, waits at each signal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Toy {
    inputs: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Wait {
    A,
}

impl Workflow for Toy {
    const SCHEMA: u16 = 1;
    type State = Toy;
    type Task = u32;
    type Outcome = u32;
    type Fact = u32;
    type Timer = Wait;
    type Signal = String;

    fn start(_: &RunId, _: bool) -> Option<Toy> {
        Some(Toy::default())
    }

    fn decide(_: Now<'_>, mut state: Toy, input: Input<Toy>) -> Decision<Toy> {
        let (inputs, command) = match input {
            Input::Started => ("started".to_owned(), None),
            Input::Observed { fact, .. } => (
                format!("fact {fact:?}"),
                fact.map(|f| Command::Run(f, RetryPolicy::PROMPT)),
            ),
            Input::Finished { outcome, .. } => (format!("done {outcome}"), None),
            // From 2,000 on it asks for two in the place of each.
            Input::Exhausted { task, .. } if task >= 2_000 => {
                let decision = Decision::to(state);
                return decision
                    .run(task + 1, RetryPolicy::PROMPT)
                    .run(task + 1, RetryPolicy::PROMPT);
            }
            Input::Exhausted { task, failure } => (
                format!("exhausted {}", failure.code),
                (task >= 1_000).then(|| Command::Run(task + 1, RetryPolicy::PROMPT)),
            ),
            Input::Fired(timer) => (format!("fired {timer:?}"), None),
            Input::Signalled { signal, .. } if signal == "end" => {
                ("end".to_owned(), Some(Command::Complete))
            }
            Input::Signalled { signal, .. } if signal == "now" => {
                state.inputs.push(signal);
                return Decision::to(state)
                    .and(Command::AttemptNow)
                    .and(Command::FireNow(Wait::A));
            }
            Input::Signalled { signal, .. } if signal == "tell" => (
                "tell".to_owned(),
                Some(Command::Signal(other(), "hello".into())),
            ),
            Input::Signalled { signal, .. } => (signal, Some(Command::StartTimer(Wait::A, 1_000))),
            Input::Refused { signal, .. } => (format!("refused {signal}"), None),
        };
        state.inputs.push(inputs);
        let decision = Decision::to(state);
        match command {
            Some(command) => decision.and(command),
            None => decision,
        }
    }

    fn reopen(_: &Toy, _: &ObjectRef, fact: &u32) -> Option<Toy> {
        let inputs = vec!["anew".to_owned()];
        (*fact == AGAIN).then_some(Toy { inputs })
    }

    fn resets_ended(ended: &Toy) -> bool {
        ended.inputs.len() > 2
    }

    fn label(_: &Toy) -> &'static str {
        "Toying"
    }
}

fn toy() -> RunId {
    RunId::new("toy", "one").unwrap()
}

fn other() -> RunId {
    RunId::new("toy", "two").unwrap()
}

fn object() -> ObjectRef {
    ObjectRef {
        cluster: String::new(),
        kind: "Machine".into(),
        uid: "u".into(),
    }
}

fn message(body: Inbound<u32, u32, String>) -> InboxMessageOf<Toy> {
    InboxMessage {
        run: toy(),
        incarnation: Some(OURS),
        body,
    }
}

fn fact(epoch: u64, resource: u64, fact: Option<u32>) -> InboxMessageOf<Toy> {
    let version = Version {
        epoch: Epoch(epoch),
        resource,
    };
    message(Inbound::Observed(Observation {
        object: object(),
        version,
        fact,
        may_start: true,
    }))
}

fn signal(id: u64, text: &str) -> InboxMessageOf<Toy> {
    message(Inbound::Signalled(Signalled {
        from: other(),
        id: SignalId {
            seq: Seq(id),
            ordinal: 0,
        },
        issued: Sum(1),
        signal: text.into(),
    }))
}

fn report(run: &Run<Toy>, attempt: u64, result: Result<u32, Failure>) -> InboxMessageOf<Toy> {
    let task = run.tasks.first().map_or(Seq(1), |task| task.key.seq);
    let issued = run
        .tasks
        .first()
        .and_then(|t| run.order(t.key, OURS))
        .map_or(Sum(0), |o| o.issued);
    message(Inbound::Reported(TaskReport {
        task: TaskId {
            run: toy(),
            seq: task,
            ordinal: 0,
        },
        attempt: Attempt(attempt),
        issued,
        worker: "w".into(),
        by: Reporter::default(),
        result,
    }))
}

/// A history in memory, every record of it replayed as it is written.
#[derive(Default)]
struct World {
    run: Option<Run<Toy>>,
}

impl World {
    /// Offers one message at time `at`; stores what came of it.
    fn feed(
        &mut self,
        at: u64,
        message: InboxMessageOf<Toy>,
    ) -> (Verdict, Option<Answer>, Effects) {
        let at = Timestamp(at);
        let mut transition = match &self.run {
            Some(run) => Transition::of(run.clone(), at),
            None => match Transition::begin(at, OURS, &message) {
                Ok(transition) => transition,
                Err(offer) => return (offer.verdict, offer.answer, Effects::default()),
            },
        };
        let offer = transition.offer(OURS, message, None);
        let Some((record, effects)) = transition.finish("test", Vec::new()) else {
            return (offer.verdict, offer.answer, Effects::default());
        };
        self.store(record);
        (offer.verdict, offer.answer, effects)
    }

    fn store(&mut self, record: Record<Toy>) {
        let (bytes, sum) = envelope::encode(&record, 1).unwrap();
        let (read, read_sum) = envelope::decode::<Record<Toy>>(&bytes, 1).unwrap();
        assert_eq!(sum, read_sum);
        let (replayed, divergence) = replay_record(self.run.as_ref(), &read, sum);
        assert_eq!(divergence, None);
        self.run = Some(replayed);
    }

    fn inputs(&self) -> &[String] {
        &self.run.as_ref().unwrap().state.inputs
    }

    fn run(&self) -> &Run<Toy> {
        self.run.as_ref().unwrap()
    }
}

#[test]
fn a_fact_begins_a_run_and_orders_its_task() {
    let mut world = World::default();
    let (verdict, _, effects) = world.feed(10, fact(1, 5, Some(3)));
    assert_eq!(verdict, Verdict::Taken);
    assert_eq!(world.inputs(), ["started", "fact Some(3)"]);
    let order = world.run().order(effects.orders[0], OURS).unwrap();
    assert_eq!(
        (order.attempt, order.body, order.issued),
        (Attempt(1), 3, world.run().sum)
    );
}

#[test]
fn equal_and_stale_facts_make_no_record_and_a_newer_epoch_wins() {
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(3)));
    let dropped = |verdict| match verdict {
        Verdict::Dropped(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        dropped(world.feed(11, fact(1, 9, Some(3))).0),
        Dropped::Equal
    );
    assert_eq!(
        dropped(world.feed(12, fact(1, 4, Some(8))).0),
        Dropped::Late
    );
    assert_eq!(
        world.feed(13, fact(2, 1, Some(8))).0,
        Verdict::Taken,
        "etcd was restored"
    );
    assert_eq!(
        dropped(world.feed(14, fact(1, 99, Some(3))).0),
        Dropped::Late
    );
    assert_eq!(world.feed(15, fact(2, 2, None)).0, Verdict::Taken);
    assert_eq!(world.inputs().last().unwrap(), "fact None");
}

#[test]
fn a_report_of_another_role_changes_nothing() {
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(3)));
    let own = report(world.run(), 1, Ok(5));
    let mut foreign = own.clone();
    if let Inbound::Reported(report) = &mut foreign.body {
        report.by = Reporter::Approver;
    }
    let (verdict, answer, _) = world.feed(20, foreign);
    assert_eq!(verdict, Verdict::Dropped(Dropped::Late));
    assert!(matches!(answer, Some(Answer::Report(receipt)) if receipt.fate == ReceiptStatus::Late));
    assert_eq!(world.feed(21, own).0, Verdict::Taken);
}

#[test]
fn a_straggler_changes_nothing() {
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(3)));
    let first = report(world.run(), 1, Err(Failure::transient("Reset", "kex")));
    let second = report(world.run(), 1, Ok(5));
    assert_eq!(world.feed(20, first).0, Verdict::Taken);
    // The attempt failed; its own late success is a straggler while the next waits, and after it went out.
    let due = world.run().deadline().unwrap();
    assert!(due.0 >= 270 && due.0 <= 520, "{due:?}");
    let (verdict, answer, _) = world.feed(21, second.clone());
    assert_eq!(verdict, Verdict::Dropped(Dropped::Late));
    assert!(matches!(answer, Some(Answer::Report(receipt)) if receipt.fate == ReceiptStatus::Late));
    let (_, _, effects) = world.feed(due.0, message(Inbound::TimerDue));
    assert_eq!(
        world.run().order(effects.orders[0], OURS).unwrap().attempt,
        Attempt(2)
    );
    assert_eq!(
        world.feed(due.0 + 1, second).0,
        Verdict::Dropped(Dropped::Late)
    );
    let third = report(world.run(), 2, Ok(6));
    assert_eq!(world.feed(due.0 + 2, third).0, Verdict::Taken);
    assert_eq!(world.inputs().last().unwrap(), "done 6");
}

#[test]
fn a_lasting_failure_is_not_tried_again() {
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(3)));
    let failed = report(world.run(), 1, Err(Failure::lasting("AuthRejected", "key")));
    world.feed(20, failed);
    assert_eq!(world.inputs().last().unwrap(), "exhausted AuthRejected");
    assert!(world.run().tasks.is_empty());
}

#[test]
fn an_attempt_that_is_given_back_costs_neither_itself_nor_its_time() {
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(3)));
    let mut now = 10;
    for attempt in 1..=100 {
        now += 240_000;
        let lacking = Failure {
            uncounted: true,
            ..Failure::transient("NoKey", "no key")
        };
        let report = report(world.run(), attempt, Err(lacking));
        assert_eq!(world.feed(now, report).0, Verdict::Taken);
        now = world.run().deadline().unwrap().0;
        world.feed(now, message(Inbound::TimerDue));
    }
    assert_eq!(
        world.inputs().last().unwrap(),
        "fact Some(3)",
        "nothing is exhausted"
    );
    for attempt in 101..=106 {
        let report = report(
            world.run(),
            attempt,
            Err(Failure::transient("Slow", "slow")),
        );
        assert_eq!(world.feed(now, report).0, Verdict::Taken);
        if let Some(due) = world.run().deadline() {
            now = due.0;
            world.feed(now, message(Inbound::TimerDue));
        }
    }
    assert_eq!(
        world.inputs().last().unwrap(),
        "exhausted Slow",
        "the six that count"
    );
}

#[test]
fn an_attempt_without_answer_is_given_up_at_its_limits_and_the_task_at_its_own() {
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(3)));
    let mut fired = 0;
    while !world.run().tasks.is_empty() {
        let due = world.run().deadline().unwrap();
        assert_eq!(
            world.feed(due.0 - 1, message(Inbound::TimerDue)).0,
            Verdict::Dropped(Dropped::Late)
        );
        world.feed(due.0, message(Inbound::TimerDue));
        fired += 1;
        assert!(fired < 50);
    }
    assert_eq!(world.inputs().last().unwrap(), "exhausted NoAnswer");
}

#[test]
fn a_task_whose_time_is_up_ends_with_what_failed_until_then() {
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(3)));
    let mut now = 10;
    for attempt in 1.. {
        let task = &world.run().tasks[0];
        if task.deadline() == task.overall() {
            break;
        }
        // Each attempt fails just before its time is up, until one is cut short by the end of all.
        now = task.deadline().0 - 1;
        let failed = report(
            world.run(),
            attempt,
            Err(Failure::transient("Slow", "slow")),
        );
        assert_eq!(world.feed(now, failed).0, Verdict::Taken);
        now = world.run().deadline().unwrap().0;
        world.feed(now, message(Inbound::TimerDue));
    }
    let due = world.run().deadline().unwrap().0;
    assert!(due > now, "an attempt is in flight");
    world.feed(due, message(Inbound::TimerDue));
    assert_eq!(world.inputs().last().unwrap(), "exhausted Slow");
    assert!(world.run().tasks.is_empty());
}

#[test]
fn an_old_alarm_does_not_end_a_new_wait() {
    let mut world = World::default();
    world.feed(10, signal(1, "wait"));
    world.feed(500, signal(2, "wait again"));
    // The alarm of the first wait rings at 1,010; the wait on record ends at 1,500.
    assert_eq!(
        world.feed(1_010, message(Inbound::TimerDue)).0,
        Verdict::Dropped(Dropped::Late)
    );
    let (_, _, effects) = world.feed(1_500, message(Inbound::TimerDue));
    assert_eq!(world.inputs().last().unwrap(), "fired A");
    assert_eq!(effects.alarm, Some(None));
}

#[test]
fn a_repeated_signal_is_receipted_and_not_taken_again() {
    let mut world = World::default();
    world.feed(10, signal(1, "x"));
    let (verdict, answer, _) = world.feed(11, signal(1, "x"));
    assert_eq!(verdict, Verdict::Dropped(Dropped::Repeat));
    let Some(Answer::Signal { to, answer }) = answer else {
        panic!()
    };
    assert_eq!((to, answer.refused), (other(), None));
}

fn answered(answer: Option<Answer>) -> SignalAnswer {
    match answer {
        Some(Answer::Signal { answer, .. }) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sender_that_lost_its_last_records_is_asked_for_its_signal_again() {
    let issued = |id, sum| {
        let mut message = signal(id, "x");
        if let Inbound::Signalled(signal) = &mut message.body {
            signal.issued = Sum(sum);
        }
        message
    };
    let mut world = World::default();
    world.feed(10, issued(5, 50));
    for other in [issued(5, 51), issued(4, 41)] {
        let (verdict, answer, _) = world.feed(11, other);
        assert_eq!(verdict, Verdict::Dropped(Dropped::Repeat));
        let highest = SignalId {
            seq: Seq(5),
            ordinal: 0,
        };
        assert_eq!(answered(answer).behind, Some(highest));
    }
    let (_, answer, _) = world.feed(12, issued(5, 50));
    assert_eq!(answered(answer).behind, None, "that one was taken");
}

#[test]
fn a_signal_of_a_run_that_lost_its_last_records_is_sent_under_a_new_id() {
    let mut world = World::default();
    world.feed(10, signal(1, "tell"));
    world.feed(11, signal(2, "tell"));
    let first = world.run().outbox[0].clone();
    let highest = SignalId {
        seq: Seq(40),
        ordinal: 3,
    };
    let answer = SignalAnswer {
        from: other(),
        id: first.id,
        issued: first.issued.unwrap(),
        refused: None,
        behind: Some(highest),
    };
    let again = message(Inbound::Answered(answer));
    let (verdict, _, effects) = world.feed(12, again.clone());
    assert_eq!(verdict, Verdict::Taken);
    let renumbered = world.run().outbox[0].id;
    assert!(renumbered > highest);
    assert_eq!(effects.signals, [(other(), renumbered)]);
    assert_eq!(world.run().outbox.len(), 2, "none is lost");
    assert_eq!(
        world.feed(13, again).0,
        Verdict::Dropped(Dropped::Late),
        "a repeat of the answer changes nothing"
    );
    // Later ones stay above it.
    world.feed(14, signal(3, "tell"));
    world.feed(15, signal(4, "tell"));
    let ids: Vec<_> = world.run().outbox.iter().map(|out| out.id).collect();
    assert!(
        renumbered < ids[2] && ids[2] < ids[3],
        "{ids:?} grow, but for those of before"
    );
}

#[test]
fn a_closed_run_refuses_signals_but_takes_answers() {
    let mut world = World::default();
    world.feed(10, signal(1, "tell"));
    world.feed(11, signal(2, "end"));
    let (verdict, answer, _) = world.feed(12, signal(3, "more"));
    assert_eq!(verdict, Verdict::Dropped(Dropped::Closed));
    let Some(Answer::Signal { answer, .. }) = answer else {
        panic!()
    };
    assert_eq!(answer.refused, Some(Refusal::Closed));
    let out = &world.run().outbox[0];
    let answer = SignalAnswer {
        from: other(),
        id: out.id,
        issued: out.issued.unwrap(),
        refused: None,
        behind: None,
    };
    assert_eq!(
        world.feed(13, message(Inbound::Answered(answer))).0,
        Verdict::Taken
    );
    assert!(world.run().outbox.is_empty());
}

#[test]
fn one_signal_per_receiver_is_in_flight_and_the_next_follows_its_receipt() {
    let mut world = World::default();
    let (_, _, first) = world.feed(10, signal(1, "tell"));
    assert_eq!(first.signals.len(), 1);
    let (_, _, second) = world.feed(11, signal(2, "tell"));
    assert!(second.signals.is_empty());
    let out = world.run().outbox[0].clone();
    let wrong = SignalAnswer {
        from: other(),
        id: out.id,
        issued: Sum(99),
        refused: None,
        behind: None,
    };
    assert_eq!(
        world.feed(12, message(Inbound::Answered(wrong))).0,
        Verdict::Dropped(Dropped::Unknown)
    );
    let answer = SignalAnswer {
        from: other(),
        id: out.id,
        issued: out.issued.unwrap(),
        refused: Some(Refusal::Unknown),
        behind: None,
    };
    let (_, _, third) = world.feed(13, message(Inbound::Answered(answer)));
    assert_eq!(
        third.signals.len(),
        1,
        "the second goes out after the first was answered"
    );
    assert_eq!(world.inputs().last().unwrap(), "refused hello");
}

#[test]
fn another_incarnation_or_a_lost_record_is_unknown_and_never_applied() {
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(3)));
    let mut foreign = report(world.run(), 1, Ok(5));
    foreign.incarnation = Some(Incarnation(8));
    assert_eq!(
        world.feed(11, foreign).0,
        Verdict::Dropped(Dropped::Unknown)
    );
    let mut lost = report(world.run(), 1, Ok(5));
    if let Inbound::Reported(report) = &mut lost.body {
        report.issued = Sum(12345);
    }
    let (verdict, answer, _) = world.feed(12, lost);
    assert_eq!(verdict, Verdict::Dropped(Dropped::Unknown));
    assert!(
        matches!(answer, Some(Answer::Report(receipt)) if receipt.fate == ReceiptStatus::Unknown)
    );
    assert_eq!(world.run().tasks.len(), 1);
}

#[test]
fn a_report_from_before_a_restore_is_unknown_even_where_its_run_is_not_there() {
    let mut earlier = World::default();
    earlier.feed(10, fact(1, 5, Some(3)));
    let mut report = report(earlier.run(), 1, Ok(5));
    report.incarnation = Some(Incarnation(8));
    let (verdict, answer, _) = World::default().feed(11, report);
    assert_eq!(verdict, Verdict::Dropped(Dropped::Unknown));
    assert!(
        matches!(answer, Some(Answer::Report(receipt)) if receipt.fate == ReceiptStatus::Unknown)
    );
}

#[test]
fn a_request_is_taken_once_and_only_against_the_state_it_names() {
    let mut world = World::default();
    world.feed(10, signal(1, "x"));
    let ask = |id: &str, against| {
        message(Inbound::Requested(Request {
            id: id.into(),
            who: "ada".into(),
            why: "3 a.m.".into(),
            against: Seq(against),
            ask: Ask::Signal("please".into()),
        }))
    };
    assert_eq!(world.feed(11, ask("a", 1)).0, Verdict::Taken);
    assert_eq!(
        world.feed(12, ask("a", 1)).0,
        Verdict::Dropped(Dropped::Repeat)
    );
    assert_eq!(
        world.feed(13, ask("b", 2)).0,
        Verdict::Dropped(Dropped::StateLeft)
    );
    assert_eq!(world.feed(14, ask("c", 0)).0, Verdict::Taken);
}

fn request(id: &str) -> InboxMessageOf<Toy> {
    message(Inbound::Requested(Request {
        id: id.into(),
        who: "ada".into(),
        why: "3 a.m.".into(),
        against: Seq(0),
        ask: Ask::Signal("please".into()),
    }))
}

#[test]
fn a_request_is_taken_once_also_after_many_others_and_the_record_stays_small() {
    let mut world = World::default();
    world.feed(10, signal(1, "x"));
    let drawn = |n: u64| format!("cli-{n:032x}");
    for n in 0..80 {
        assert_eq!(world.feed(11, request(&drawn(n))).0, Verdict::Taken);
    }
    for n in 0..80 {
        let again = world.feed(12, request(&drawn(n))).0;
        assert_eq!(again, Verdict::Dropped(Dropped::Repeat), "request {n}");
    }
    let long = |n: u64| format!("{n:0200}");
    for n in 0..200 {
        assert_eq!(world.feed(13, request(&long(n))).0, Verdict::Taken);
    }
    let known = &world.run().requests;
    let bytes: usize = known.iter().map(|id| id.len() + 3).sum();
    assert!(bytes <= REQUEST_IDS_BYTES_MAX, "{bytes} bytes");
    let newest: Vec<String> = (183..200).map(long).collect();
    assert_eq!(*known, newest);
    // An id of whatever size is known itself.
    let huge = "x".repeat(REQUEST_IDS_BYTES_MAX + 1);
    assert_eq!(world.feed(14, request(&huge)).0, Verdict::Taken);
    let again = world.feed(15, request(&huge)).0;
    assert_eq!(again, Verdict::Dropped(Dropped::Repeat));
    assert_eq!(world.run().requests.len(), 1);
}

#[test]
fn a_record_of_a_build_that_remembered_sixteen_requests_is_decided_as_it_was() {
    let mut world = World::default();
    world.feed(10, signal(1, "x"));
    for n in 0..16 {
        world.feed(11, request(&n.to_string()));
    }
    let before = world.run().clone();
    let mut transition = Transition::of(before.clone(), Timestamp(12));
    transition.offer(OURS, request("16"), None);
    let (mut record, _) = transition.finish("earlier", Vec::new()).unwrap();
    assert_eq!(replay_record(Some(&before), &record, Sum(1)).1, None);
    record.run.requests.pop_front();
    assert_eq!(replay_record(Some(&before), &record, Sum(1)).1, None);
    record.run.requests.pop_front();
    assert!(replay_record(Some(&before), &record, Sum(1)).1.is_some());
}

#[test]
fn a_reset_ends_tasks_and_timers_and_late_answers_find_nothing() {
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(3)));
    let then = world.run().state.clone();
    world.feed(11, signal(1, "wait"));
    let late = report(world.run(), 1, Ok(5));
    let request = Request {
        id: "r".into(),
        who: "ada".into(),
        why: "go back".into(),
        against: Seq(0),
        ask: Ask::Reset { to: Seq(1) },
    };
    let mut transition = Transition::of(world.run().clone(), Timestamp(20));
    assert_eq!(
        transition
            .offer(
                OURS,
                message(Inbound::Requested(request)),
                Some(then.clone())
            )
            .verdict,
        Verdict::Taken
    );
    let (record, effects) = transition.finish("test", Vec::new()).unwrap();
    world.store(record);
    assert_eq!((world.run().state.clone(), world.run().seq), (then, Seq(3)));
    assert_eq!((effects.alarm, world.run().deadline()), (Some(None), None));
    assert_eq!(world.feed(21, late).0, Verdict::Dropped(Dropped::Late));
    assert!(
        world.run().taken.contains_key(&other()),
        "what was taken from a sender stays"
    );
}

/// A request for a reset to the first record, as the engine offers it.
fn reset(world: &mut World, id: &str) -> Verdict {
    let request = Request {
        id: id.into(),
        who: "ada".into(),
        why: "taken back".into(),
        against: Seq(0),
        ask: Ask::Reset { to: Seq(1) },
    };
    let then = Toy {
        inputs: vec!["then".into()],
    };
    let mut transition = Transition::of(world.run().clone(), Timestamp(100));
    let verdict = transition
        .offer(OURS, message(Inbound::Requested(request)), Some(then))
        .verdict;
    if let Some((record, _)) = transition.finish("test", Vec::new()) {
        world.store(record);
    }
    verdict
}

#[test]
fn an_ended_run_begins_anew_by_a_fact_that_says_so_and_by_no_other() {
    let closed = Verdict::Dropped(Dropped::Closed);
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(AGAIN)));
    world.feed(11, fact(1, 6, None));
    world.feed(12, signal(1, "end"));
    assert_eq!(world.feed(13, fact(2, 1, Some(3))).0, closed);
    assert_eq!(world.feed(14, fact(2, 2, None)).0, closed);
    assert_eq!(
        world.feed(15, fact(1, 5, Some(AGAIN))).0,
        Verdict::Dropped(Dropped::Late),
        "from before its end, delivered again"
    );
    assert!(world.run().closed.is_some());
    let (verdict, _, effects) = world.feed(16, fact(2, 3, Some(AGAIN)));
    assert_eq!(verdict, Verdict::Taken);
    assert_eq!(world.inputs(), ["anew", "started", "fact Some(42)"]);
    assert!(world.run().closed.is_none());
    assert_eq!(effects.orders.len(), 1, "it works as any other");
    assert_eq!(
        world.feed(17, signal(1, "end")).0,
        Verdict::Dropped(Dropped::Repeat),
        "what was taken from others stays taken"
    );
    assert_eq!(world.feed(18, fact(2, 4, Some(8))).0, Verdict::Taken);
}

#[test]
fn what_an_ended_run_knew_of_other_objects_counts_when_it_begins_anew() {
    let of = |epoch, object: &str, content| {
        let mut message = fact(epoch, 1, content);
        if let Inbound::Observed(seen) = &mut message.body {
            seen.object.uid = object.into();
        }
        message
    };
    let mut world = World::default();
    world.feed(10, of(1, "machine", Some(AGAIN)));
    world.feed(11, of(1, "node", Some(7)));
    world.feed(12, signal(1, "end"));
    world.feed(13, of(2, "machine", Some(AGAIN)));
    assert_eq!(world.inputs().last().unwrap(), "fact Some(42)");
    assert_eq!(world.feed(14, of(2, "node", Some(7))).0, Verdict::Taken);
    assert_eq!(world.inputs().last().unwrap(), "fact Some(7)");
}

#[test]
fn a_reset_opens_an_ended_run_only_if_the_workflow_lets_it() {
    let mut world = World::default();
    world.feed(10, signal(1, "end"));
    assert_eq!(
        reset(&mut world, "a"),
        Verdict::Dropped(Dropped::Closed),
        "two inputs: the toy refuses"
    );
    let mut world = World::default();
    world.feed(10, signal(1, "wait"));
    world.feed(11, signal(2, "end"));
    assert_eq!(reset(&mut world, "b"), Verdict::Taken);
    assert_eq!(world.inputs(), ["then"]);
    assert!(world.run().closed.is_none());
}

#[test]
fn a_next_attempt_and_a_timer_are_due_at_once_when_the_workflow_says_so() {
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(3)));
    world.feed(11, signal(1, "now"));
    let flies = |world: &World| matches!(world.run().tasks[0].phase, TaskPhase::InFlight { .. });
    assert!(flies(&world), "an attempt under way goes on");
    let failed = report(world.run(), 1, Err(Failure::transient("Down", "no answer")));
    world.feed(12, failed);
    world.feed(13, signal(2, "wait"));
    let due = world.run().deadline().expect("a deadline");
    assert!(!flies(&world) && due > Timestamp(100), "{due:?}");
    let (_, _, effects) = world.feed(14, signal(3, "now"));
    assert_eq!(effects.alarm, Some(Some(Timestamp(14))));
    let (verdict, _, effects) = world.feed(14, message(Inbound::TimerDue));
    assert_eq!((verdict, effects.orders.len()), (Verdict::Taken, 1));
    assert!(flies(&world));
    assert_eq!(world.run().tasks[0].attempt, Attempt(2));
    assert_eq!(world.inputs().last().map(String::as_str), Some("fired A"));
    world.feed(15, signal(4, "now"));
    assert!(!world.run().timers.contains_key(&Wait::A), "none runs");
}

#[test]
fn outstanding_is_what_was_asked_and_not_answered() {
    let mut world = World::default();
    world.feed(10, fact(1, 5, Some(3)));
    world.feed(11, signal(1, "tell"));
    let outstanding = Effects::outstanding(world.run());
    assert_eq!(
        (outstanding.orders.len(), outstanding.signals.len()),
        (1, 1)
    );
    assert_eq!(outstanding.alarm, Some(world.run().deadline()));
    let done = report(world.run(), 1, Ok(1));
    world.feed(12, done);
    assert!(Effects::outstanding(world.run()).orders.is_empty());
}

#[test]
fn two_runs_with_full_outboxes_to_each_other_go_on() {
    let mut world = World::default();
    world.feed(10, signal(1, "wait"));
    for id in 0..OUTBOX_MAX as u64 {
        world.feed(11, signal(2 + id, "tell"));
    }
    assert_eq!(world.run().outbox.len(), OUTBOX_MAX);
    let (verdict, ..) = world.feed(12, fact(1, 5, Some(3)));
    assert_eq!(verdict, Verdict::Later, "news waits for the receivers");
    // What the other run sent is taken, so that its outbox empties.
    let (verdict, answer, _) = world.feed(12, signal(9_999, "tell"));
    assert_eq!(verdict, Verdict::Taken);
    assert!(matches!(answer, Some(Answer::Signal { .. })), "{answer:?}");
    let (verdict, ..) = world.feed(2_000, message(Inbound::TimerDue));
    assert_eq!(verdict, Verdict::Taken, "a time limit waits for nobody");
    assert!(world.inputs().contains(&"fired A".to_owned()));
}

#[test]
fn a_workflow_that_never_gives_up_a_task_beyond_the_limit_does_not_exhaust_the_stack() {
    let mut world = World::default();
    for at in 0..TASKS_MAX as u64 {
        world.feed(
            10 + at,
            fact(1, 5 + at, Some(1 + u32::try_from(at).unwrap())),
        );
    }
    assert_eq!(world.run().tasks.len(), TASKS_MAX);
    let (verdict, _, effects) = world.feed(200, fact(1, 500, Some(1_000)));
    assert_eq!((verdict, effects.orders.len()), (Verdict::Taken, 0));
    let waiting = |phase: &TaskPhase| matches!(phase, TaskPhase::Waiting { .. });
    let last = world.run().tasks.last().expect("a task");
    assert!(
        waiting(&last.phase),
        "it waits until there is room: {last:?}"
    );
}

#[test]
fn a_workflow_that_answers_each_task_by_two_ends_its_decision() {
    let mut world = World::default();
    for at in 0..TASKS_MAX as u64 {
        let task = 1 + u32::try_from(at).unwrap();
        world.feed(10 + at, fact(1, 5 + at, Some(task)));
    }
    world.feed(200, fact(1, 500, Some(2_000)));
    let tasks = world.run().tasks.len();
    assert!(tasks <= 8 * TASKS_MAX, "{tasks} tasks");
}
