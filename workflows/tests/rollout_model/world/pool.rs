//! The rollout of the model, with what its inputs say, and the watcher that reads its owners.

use super::{
    World,
    machine::{Machine, ToMachine, ToRollout},
    withheld::Withheld,
};
use dormer_engine_core::{Command, Input, Now, Sender, Workflow};
use dormer_proto::{
    id::{RunId, Seq, Timestamp},
    machine,
    message::ObjectRef,
    pool::MaxUnavailable,
    rollout::{Fact, OwnedMachine, OwnerFact},
    work,
};
use dormer_workflows::rollout::{Rollout, State};
use std::hash::{Hash, Hasher};

/// The one second in which everything happens: stamps of the API server tell nothing apart.
pub(super) const THE_SECOND: Timestamp = Timestamp(1_000);
pub(super) const SETS: [&str; 2] = ["set", "set-b"];

/// An owner as the watcher reads it: its `spec.replicas`, and its Machines; `true`: being deleted.
pub(super) type OwnerView = (usize, Vec<(usize, bool)>);

/// The rollout, compared by what it means: ticks are ranks, and it has no clock.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) state: State,
    key: Vec<u8>,
}

impl PartialEq for Pool {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for Pool {}
impl Hash for Pool {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.key.hash(to);
    }
}

impl Pool {
    pub(crate) fn new(mut state: State) -> Self {
        rank_ticks(&mut state);
        let key = rmp_serde::to_vec(&state).expect("a state is encodable");
        Self { state, key }
    }
}

/// Ticks only order: without this, two ways to the same state would be two states.
fn rank_ticks(state: &mut State) {
    let mut ticks: Vec<u64> = Vec::new();
    each_tick(state, &mut |tick| ticks.push(*tick));
    ticks.sort_unstable();
    ticks.dedup();
    let ranks = ticks.iter().filter(|tick| **tick != 0).count();
    let first = ticks.len() - ranks;
    each_tick(state, &mut |tick| {
        if *tick != 0 {
            let at = ticks.binary_search(tick).unwrap_or(0);
            *tick = (at - first + 1) as u64;
        }
    });
    state.tick = ranks as u64;
}

fn each_tick(state: &mut State, f: &mut dyn FnMut(&mut u64)) {
    for member in state.members.values_mut() {
        f(&mut member.wants);
        f(&mut member.served);
    }
    let slots = state.slots.iter_mut().filter_map(|slot| slot.loss.as_mut());
    let gaps = state.gaps.iter_mut().map(|gap| &mut gap.loss);
    slots.chain(gaps).for_each(|loss| f(&mut loss.tick));
}

pub(super) fn max_unavailable(share: Option<u8>) -> MaxUnavailable {
    share.map_or(MaxUnavailable::Count(1), MaxUnavailable::Percent)
}

pub(super) fn uid(who: usize) -> String {
    format!("m{who}")
}

pub(super) fn who(run: &RunId) -> usize {
    run.key()[1..].parse().expect("a machine of ours")
}

pub(super) fn signalled(from: usize, set: usize, signal: ToRollout) -> Input<Rollout> {
    let from = Sender::Run(work::machine_run(&uid(from)).expect("short"));
    Input::Signalled {
        from,
        signal: work::Signal::Rollout(signal.to_signal(set)),
    }
}

pub(super) fn observed(set: &str, fact: Fact) -> Input<Rollout> {
    let object = ObjectRef {
        cluster: String::new(),
        kind: "MachineSet".into(),
        uid: set.into(),
    };
    Input::Observed {
        object,
        fact: Some(work::Fact::Rollout(fact)),
    }
}

impl World {
    /// The rollout decides.
    pub(super) fn take_in(&mut self, input: Input<Rollout>) {
        let run = RunId::new(work::ROLLOUT, "windows").expect("short");
        let now = Now {
            run: &run,
            seq: Seq(1),
            at: Timestamp(0),
        };
        let decision = Rollout::decide(now, self.rollout.state.clone(), input);
        let granted = self.rollout.state.token.0;
        self.rollout = Pool::new(decision.state);
        for command in decision.commands {
            let Command::Signal(to, work::Signal::Machine(signal)) = command else {
                continue;
            };
            let delivered = match signal {
                machine::Signal::Granted { token, over_limit } => {
                    if token.0 > granted {
                        self.check_over_limit(who(&to), over_limit);
                        self.check_failing(who(&to));
                    }
                    if token.0 > granted && !over_limit {
                        self.check_grant();
                    }
                    ToMachine::Granted {
                        token: token.0,
                        over_limit,
                    }
                }
                machine::Signal::Replaced { .. } => ToMachine::Replaced,
                _ => ToMachine::Enrol,
            };
            self.machines[who(&to)].from_rollout.push_back(delivered);
        }
    }

    fn view(&self) -> Vec<OwnerView> {
        let of = |set: usize| {
            let machines = self.machines.iter().enumerate();
            let ours = machines.filter(|(_, m)| m.exists && m.set == set);
            let deleting = |m: &Machine| m.deleting && self.withheld != Withheld::Deletions;
            ours.map(|(at, m)| (at, deleting(m))).collect()
        };
        let replicas = self.replicas.iter().enumerate();
        replicas.map(|(set, wanted)| (*wanted, of(set))).collect()
    }

    pub(crate) fn may_read(&self) -> bool {
        self.reading.is_none() && self.view() != self.observed_counts
    }

    pub(crate) fn read(&mut self) {
        self.reading = Some(self.view());
    }

    pub(crate) fn publish(&mut self) {
        let Some(view) = self.reading.take() else {
            return;
        };
        let owned = |(at, deleting): &(usize, bool)| OwnedMachine {
            uid: uid(*at),
            created: THE_SECOND,
            deleting: *deleting,
        };
        let before = std::mem::replace(&mut self.observed_counts, view.clone());
        for (set, owner) in view.iter().enumerate() {
            if before.get(set) == Some(owner) {
                continue;
            }
            let fact = OwnerFact {
                autoscaled: false,
                uid: SETS[set].into(),
                name: SETS[set].into(),
                replicas: u32::try_from(owner.0).expect("few"),
                ready: None,
                available: None,
                machines: owner.1.iter().map(owned).collect(),
            };
            self.take_in(observed(SETS[set], Fact::Owner(fact)));
        }
    }
}
