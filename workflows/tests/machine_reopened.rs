//! A run that ended although its machine is there: it begins anew by the Machine's own fact, or by a person's reset.

use crate::common::{
    Story, carrying, evicted, in_place, machine, machine_gone, node, node_is, planned, pool_is,
    wanting,
};
use dormer_engine_core::{
    Command, Decision, InboxMessageOf, Now, Record, Run, Transition, Verdict, Workflow,
    replay_record,
};
use dormer_proto::{
    envelope,
    held_by::HeldBy,
    id::{Epoch, Incarnation, LeaseToken, Seq, Timestamp},
    machine::{self, ChangeClass, MachineFact, NodeFact, Outcome, Signal, Task},
    message::{Ask, Failure, Inbound, InboxMessage, ObjectRef, Observation, Request, Version},
    work::{self, Fact},
};
use dormer_workflows::{
    Dormer, State,
    machine::{Machine, Phase, RequestProgress, State as MachineState},
};

const OURS: Incarnation = Incarnation(3);

/// A run of the product's own engine core, each record encoded, read and replayed.
struct Life {
    run: Option<Run<Dormer>>,
    epoch: u64,
    at: u64,
}

impl Life {
    /// A machine that is seen with its settings and a Node that serves.
    fn serving() -> Self {
        let mut life = Self {
            run: None,
            epoch: 1,
            at: 0,
        };
        life.list();
        assert_eq!(life.phase(), &Phase::Probing);
        life
    }

    /// What a full list says of a machine that serves.
    fn list(&mut self) -> Vec<Verdict> {
        let with_node = MachineFact {
            node: Some("win-a".into()),
            ..machine()
        };
        let pool = Fact::Machine(machine::Fact::Pool(wanting("v1")));
        let node = Fact::Machine(machine::Fact::Node(NodeFact {
            ready: true,
            ..node()
        }));
        vec![
            self.sees("Machine", "uid-a", Some(machine_fact(with_node))),
            self.sees("MachineConfig", "pool", Some(pool)),
            self.sees("Node", "uid-node", Some(node)),
        ]
    }

    fn sees(&mut self, kind: &str, uid: &str, fact: Option<Fact>) -> Verdict {
        self.sees_in(self.epoch, kind, uid, fact)
    }

    fn sees_in(&mut self, epoch: u64, kind: &str, uid: &str, fact: Option<Fact>) -> Verdict {
        self.offer(Inbound::Observed(Observation {
            object: ObjectRef {
                cluster: String::new(),
                kind: kind.into(),
                uid: uid.into(),
            },
            version: Version {
                epoch: Epoch(epoch),
                resource: 5,
            },
            fact,
            may_start: true,
        }))
    }

    fn person(&mut self, id: &str, signal: Signal) -> Verdict {
        self.offer(Inbound::Requested(Request {
            id: id.into(),
            who: "ada".into(),
            why: "on call".into(),
            against: Seq(0),
            ask: Ask::Signal(work::Signal::Machine(signal)),
        }))
    }

    fn offer(
        &mut self,
        body: Inbound<Fact, dormer_proto::machine::Outcome, work::Signal>,
    ) -> Verdict {
        self.offer_with(body, None)
    }

    /// Offers a message. `then`: for a reset, the state of the record that it names.
    fn offer_with(
        &mut self,
        body: Inbound<Fact, dormer_proto::machine::Outcome, work::Signal>,
        then: Option<State>,
    ) -> Verdict {
        self.at += 1_000;
        let at = Timestamp(self.at);
        let message: InboxMessageOf<Dormer> = InboxMessage {
            run: work::machine_run("uid-a").unwrap(),
            incarnation: Some(OURS),
            body,
        };
        let mut transition = match &self.run {
            Some(run) => Transition::of(run.clone(), at),
            None => Transition::begin(at, OURS, &message).unwrap(),
        };
        let offer = transition.offer(OURS, message, then);
        self.store(transition);
        offer.verdict
    }

    fn reset(&mut self, id: &str, to: State) -> Verdict {
        let request = Request {
            id: id.into(),
            who: "ada".into(),
            why: "removed by mistake".into(),
            against: Seq(0),
            ask: Ask::Reset { to: Seq(1) },
        };
        self.offer_with(Inbound::Requested(request), Some(to))
    }

    fn store(&mut self, transition: Transition<Dormer>) {
        let Some((record, _)) = transition.finish("test", Vec::new()) else {
            return;
        };
        let (bytes, sum) = envelope::encode(&record, 1).unwrap();
        let (read, _) = envelope::decode::<Record<Dormer>>(&bytes, 1).unwrap();
        let (replayed, divergence) = replay_record(self.run.as_ref(), &read, sum);
        assert_eq!(divergence, None);
        self.run = Some(replayed);
    }

    fn run(&self) -> &Run<Dormer> {
        self.run.as_ref().expect("a run")
    }

    fn state(&self) -> &dormer_workflows::machine::State {
        match &self.run().state {
            State::Machine(state) => state,
            other => panic!("{other:?}"),
        }
    }

    fn phase(&self) -> &Phase {
        &self.state().phase
    }
}

/// A person's reset of a machine to the state of an earlier record.
fn reset(then: MachineState, current: &MachineState) -> Decision<Machine> {
    let run = work::machine_run("uid-a").unwrap();
    let now = Now {
        run: &run,
        seq: Seq(90),
        at: Timestamp(90),
    };
    Machine::reset(now, then, current)
}

fn machine_fact(fact: MachineFact) -> Fact {
    Fact::Machine(machine::Fact::Machine(fact))
}

#[test]
fn a_machine_that_an_etcd_restored_brings_back_is_adopted_again() {
    let mut life = Life::serving();
    assert_eq!(life.sees("Machine", "uid-a", None), Verdict::Taken);
    assert!(life.run().closed.is_some(), "{:?}", life.phase());
    assert!(life.state().reported.is_none(), "the rollout was told");

    // The list after the restore equals the one before the deletion, word for word.
    life.epoch = 2;
    let verdicts = life.list();
    assert!(
        verdicts.iter().all(|it| *it == Verdict::Taken),
        "{verdicts:?}"
    );
    assert!(life.run().closed.is_none());
    assert_eq!(life.phase(), &Phase::Probing);
    assert!(life.state().in_service, "its Node was there: adopted");
    assert!(
        life.state().reported.is_some(),
        "the rollout hears of it again"
    );
    let episodes: Vec<_> = life
        .run()
        .episodes
        .iter()
        .map(|it| it.kind.as_str())
        .collect();
    assert_eq!(episodes.last(), Some(&"adoption"), "{episodes:?}");
    assert!(!life.run().tasks.is_empty(), "it works");
}

#[test]
fn what_was_said_before_its_end_does_not_bring_it_back() {
    let mut life = Life::serving();
    life.epoch = 2;
    life.sees("Machine", "uid-a", None);
    let before = Some(machine_fact(machine()));
    let verdict = life.sees_in(1, "Machine", "uid-a", before);
    assert!(matches!(verdict, Verdict::Dropped(_)), "{verdict:?}");
    assert!(life.run().closed.is_some());
    // Nor does a Machine that another client deletes, or another object's fact.
    let leaving = Some(machine_fact(MachineFact {
        deleting: true,
        ..machine()
    }));
    life.epoch = 3;
    life.sees("Machine", "uid-a", leaving);
    let node = Some(Fact::Machine(machine::Fact::Node(node())));
    life.sees("Node", "uid-node", node);
    assert!(life.run().closed.is_some());
}

#[test]
fn a_run_that_a_person_closed_stays_closed_however_often_its_machine_is_listed() {
    let mut life = Life::serving();
    assert_eq!(life.person("r1", Signal::Remove), Verdict::Taken);
    assert!(life.run().closed.is_some());
    for epoch in 2..6 {
        life.epoch = epoch;
        let verdicts = life.list();
        assert!(
            verdicts.iter().all(|it| matches!(it, Verdict::Dropped(_))),
            "{verdicts:?}"
        );
    }
}

#[test]
fn a_person_who_removed_the_wrong_one_takes_it_back_by_a_reset() {
    let mut life = Life::serving();
    let then = life.run().state.clone();
    life.person("r1", Signal::Remove);
    assert_eq!(life.reset("r2", then), Verdict::Taken);
    assert!(life.run().closed.is_none(), "{:?}", life.phase());
    assert!(life.state().reported.is_some(), "it is a member again");
    assert!(!life.run().tasks.is_empty(), "it works");
    // Its Machine was deleted while no watch ran: the next list says so.
    life.epoch = 2;
    assert_eq!(life.sees("Machine", "uid-a", None), Verdict::Taken);
    assert!(life.run().closed.is_some());
}

#[test]
fn a_machine_that_is_gone_is_not_brought_back_by_a_reset() {
    let mut life = Life::serving();
    let then = life.run().state.clone();
    life.sees("Machine", "uid-a", None);
    let verdict = life.reset("r1", then);
    assert!(matches!(verdict, Verdict::Dropped(_)), "{verdict:?}");
    assert!(life.run().closed.is_some());
}

#[test]
fn it_keeps_its_hosts_key_its_highest_token_and_a_persons_pause_and_hold() {
    let mut story = Story::joined(wanting("v1"));
    story.state.host.pin = Some("SHA256:k".into());
    story.state.host.generation = 4;
    story.state.closed = LeaseToken(9);
    story.person(Signal::Pause).person(Signal::Hold);
    story.feed("its Machine is gone", machine_gone());
    assert_eq!(story.state.phase, Phase::Gone);
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Machine".into(),
        uid: "uid-a".into(),
    };
    let state = Machine::reopen(&story.state, &object, &machine_fact(machine())).unwrap();
    assert_eq!(state.host.pin.as_deref(), Some("SHA256:k"));
    assert_eq!((state.host.generation, state.closed), (4, LeaseToken(9)));
    assert!(state.paused.is_some());
    assert_eq!(state.held, story.state.held);
    assert!(state.held.is_some() && !state.held_for_pause);
    assert_eq!(state.machine, None, "what it knew of the cluster is old");
}

/// The texts are alike: only what was noted beside them says whose the hold is.
#[test]
fn it_keeps_the_hold_of_a_person_named_dormer() {
    let mut story = Story::joined(wanting("v1"));
    story.says("dormer", "a new disk", Signal::Hold);
    let kept = story.state.kept_by_people();
    assert!(kept.is_some(), "{}", story.text);
    story.feed("its Machine is gone", machine_gone());
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Machine".into(),
        uid: "uid-a".into(),
    };
    let state = Machine::reopen(&story.state, &object, &machine_fact(machine())).unwrap();
    assert_eq!(state.held_by, Some(HeldBy::Person));
    assert_eq!(state.kept_by_people(), kept);
}

/// A hold is the present one after a reset, and so is whose it is: dormer's own for a pause of the machine's controllers
/// ends by itself, a person's never.
#[test]
fn a_reset_keeps_whose_hold_it_is() {
    for (own_then, own_now) in [(true, false), (false, true)] {
        let holder = |own: bool| match own {
            true => HeldBy::Dormer,
            false => HeldBy::Person,
        };
        let mut then = Story::joined(wanting("v1")).state;
        then.held = Some("dormer: paused".to_owned());
        then.held_by = Some(holder(own_then));
        then.held_for_pause = own_then;
        then.halted_since = Some(Timestamp(1));
        let mut current = then.clone();
        current.held = Some("dormer: whose?".into());
        current.held_by = Some(holder(own_now));
        current.held_for_pause = own_now;
        current.halted_since = Some(Timestamp(80));
        let state = reset(then, &current).state;
        assert_eq!(state.held.as_deref(), Some("dormer: whose?"));
        assert_eq!(state.held_by, Some(holder(own_now)));
        assert_eq!(state.held_for_pause, own_now);
        assert_eq!(state.kept_by_people().is_some(), !own_now);
        assert_eq!(state.halted_since, Some(Timestamp(80)));
    }
}

/// A request overrides the cordon that its author knew. One that a reset brings back knows no cordon of today.
#[test]
fn a_request_that_a_reset_brings_back_overrides_no_cordon() {
    let cordoned = |cordoned: bool| {
        node_is(NodeFact {
            cordoned,
            ..carrying("v1")
        })
    };
    let mut story = Story::joined(wanting("v1"));
    story
        .feed("a person cordons it", cordoned(true))
        .person(Signal::Recreate);
    let asked = story.state.clone();
    assert!(asked.asked_over_cordon(), "{}", story.text);
    // The same request is still the present one.
    assert!(reset(asked.clone(), &asked).state.asked_over_cordon());
    // The cordon that it overrode has ended, and another person's came.
    story.feed("it is uncordoned", cordoned(false));
    story.later_ms(3_600_000);
    story.feed("bob cordons it", cordoned(true));
    let state = reset(asked.clone(), &story.state).state;
    assert!(state.leased_request.is_some());
    assert!(!state.asked_over_cordon() && state.cordoned_by_others());
    // It has ended, and the Node is bob's.
    story.person(Signal::Hold);
    assert_eq!(story.state.leased_request, None, "{}", story.text);
    let state = reset(asked.clone(), &story.state).state;
    assert!(state.leased_request.is_some(), "it is asked for again");
    assert!(!state.asked_over_cordon() && state.cordoned_by_others());
    // As a build recorded it that noted no time: it would override every cordon.
    let mut older = asked;
    older.request_progress = RequestProgress::default();
    let state = reset(older.clone(), &story.state).state;
    assert_eq!(state.leased_request, None);
    let again = reset(older.clone(), &older).state;
    assert!(again.leased_request.is_some(), "it is the present one");
}

/// Half a tear-down is finished. The host was probed instead, and no certificate of its Node was ever approved.
#[test]
fn a_reset_in_the_middle_of_a_tear_down_finishes_it() {
    let mut story = Story::joined(in_place("v1"));
    let then = story.state.clone();
    story
        .feed("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(1, 0));
    assert_eq!(story.state.phase, Phase::TearingDown);
    let failed = |from: Phase| Phase::Failed {
        from: Box::new(from),
        failure: Failure::lasting("Broken", "it broke"),
    };
    for phase in [Phase::TearingDown, failed(Phase::TearingDown)] {
        let mut current = story.state.clone();
        current.phase = phase;
        let decision = reset(then.clone(), &current);
        assert_eq!(decision.state.phase, Phase::TearingDown);
        let tears_down = decision
            .commands
            .iter()
            .any(|it| matches!(it, Command::Run(Task::TearDown { .. }, _)));
        assert!(tears_down, "{:?}", decision.commands);
    }
}
