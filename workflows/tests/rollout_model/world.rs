//! A small world around the real rollout: machine runs, sleeping workers, an API server, and those who delete machines.

use dormer_engine_core::{Command, Input, Now, Sender, Workflow};
use dormer_proto::{
    id::{LeaseToken, RunId, Seq, Timestamp},
    machine,
    message::{ObjectRef, Refusal},
    pool::PoolSettings,
    rollout::{Fact, MemberReport, NotCompared, OwnedMachine, OwnerFact, Signal},
    work,
};
use dormer_workflows::rollout::{Flag, Rollout, State, Uid};
use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
};

/// The one second in which everything happens: stamps of the API server tell nothing apart.
const SECOND: Timestamp = Timestamp(1_000);
const SETS: [&str; 2] = ["set", "set-b"];

/// An owner as the watcher reads it: its `spec.replicas`, and its Machines; `true`: being deleted.
type OwnerView = (usize, Vec<(usize, bool)>);

/// Everything that matters of a moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) rollout: Pool,
    pub(crate) machines: Vec<Machine>,
    /// `spec.replicas` of each owner.
    pub(crate) replicas: Vec<usize>,
    /// What the watcher read and has not yet published.
    pub(crate) reading: Option<Vec<OwnerView>>,
    /// What the watcher told last.
    pub(crate) observed_counts: Vec<OwnerView>,
    /// Workers, each asleep before its next call to the API server.
    pub(crate) workers: Vec<Worker>,
    pub(crate) faults: Faults,
    /// Machines that we deleted while they served, and whose replacements do not serve yet.
    pub(crate) owed: usize,
    pub(crate) blind: Blind,
    pub(crate) wrong: Option<&'static str>,
}

/// How often each thing may still go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Faults {
    /// A task is ordered again though its worker sleeps only (a crash, a lapsed claim, a redelivery).
    pub(crate) repeats: u8,
    /// An upgrade is given up halfway.
    pub(crate) aborts: u8,
    /// Another client deletes a machine.
    pub(crate) deletions: u8,
    /// The owner wants one machine less.
    pub(crate) shrinks: u8,
    /// A replacement fails, and is retried.
    pub(crate) failures: u8,
    /// A Node is not Ready for a while.
    pub(crate) outages: u8,
    /// A person closes a run.
    pub(crate) removals: u8,
    /// A machine is asked to enrol again, and so repeats what it said.
    pub(crate) asks: u8,
    /// A person cordons a Node, and uncordons it later.
    pub(crate) cordons: u8,
    /// A host cannot be compared for a while; each time for the same reason.
    pub(crate) troubles: u8,
}

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

/// A Machine with its Node, as the API server has them, and its run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Machine {
    /// Its owner.
    pub(crate) set: usize,
    pub(crate) exists: bool,
    pub(crate) deleting: bool,
    pub(crate) ready: bool,
    pub(crate) cordoned: bool,
    /// A person cordoned it, and it is theirs to uncordon.
    pub(crate) kept: bool,
    /// It has been NotReady for as long as the pool's `repairAfter`.
    pub(crate) long_down: bool,
    /// Its host cannot be compared.
    pub(crate) not_compared: bool,
    /// The cordon, or the deletion, hit a node that served.
    pub(crate) hurt: bool,
    /// The token on the Machine, and whether it is open.
    pub(crate) on_machine: (u64, bool),
    /// The token on the Node.
    pub(crate) on_node: (u64, bool),
    pub(crate) phase: Phase,
    pub(crate) lease: u64,
    pub(crate) over_limit: bool,
    /// Its Node has served.
    pub(crate) served: bool,
    pub(crate) upgraded: bool,
    /// The number of its present task; older ones get no answer.
    pub(crate) task: u8,
    pub(crate) said: Option<Report>,
    /// What reached the rollout last.
    pub(crate) received: Received,
    pub(crate) to_rollout: VecDeque<Say>,
    pub(crate) from_rollout: VecDeque<ToMachine>,
}

/// Where a machine's run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Coming,
    Failed,
    Serving,
    Wanting,
    Opening,
    Deleting,
    Vanishing,
    /// In place: the host is torn down and set up again.
    Working,
    Closing,
    ClosingGone,
    /// Waits for its replacement.
    Replaced,
    /// Another client deletes it.
    Leaving,
    Closed,
}

/// A member's report; its owner and its times are the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Report {
    had_node: bool,
    unavailable: bool,
    joined: bool,
    failed: bool,
    deleting: bool,
    cordoned: bool,
    repair: bool,
    not_compared: bool,
}

/// What a report says that forbids or allows a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Received {
    cordoned: bool,
    repair: bool,
    not_compared: bool,
}

/// What is kept from the rollout, to prove that a law of the model can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) enum Blind {
    /// Nothing.
    #[default]
    No,
    /// That a person cordoned a Node.
    Cordons,
    /// For how long a Node has not been Ready: each may be repaired at once.
    Downtime,
    /// That a host cannot be compared.
    Troubles,
    /// That a Machine was deleted: neither its run nor the watcher says so.
    Deletions,
    /// That a lease has ended.
    Releases,
}

impl Blind {
    fn report(self, report: Report) -> Report {
        match self {
            Self::Cordons => Report {
                cordoned: false,
                ..report
            },
            Self::Downtime => Report {
                repair: report.unavailable,
                ..report
            },
            Self::Troubles => Report {
                not_compared: false,
                ..report
            },
            Self::Deletions => Report {
                deleting: false,
                ..report
            },
            Self::No | Self::Releases => report,
        }
    }

    /// What the rollout takes in. `None`: nothing.
    fn say(self, say: Say) -> Option<Say> {
        Some(match (self, say) {
            (_, Say::Member(report)) => Say::Member(self.report(report)),
            (_, Say::Request(report)) => Say::Request(self.report(report)),
            (Self::Releases, Say::Release { .. }) => return None,
            (Self::Deletions, Say::Release { token, .. }) => Say::Release {
                token,
                replaced: false,
            },
            (Self::Deletions, Say::Left { stays, .. }) => Say::Left { gap: false, stays },
            (_, say) => say,
        })
    }
}

/// What a machine's run says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Say {
    Member(Report),
    Request(Report),
    Withdraw,
    Release { token: u64, replaced: bool },
    Left { gap: bool, stays: bool },
}

/// Signals that a machine's run receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ToMachine {
    Granted { token: u64, over_limit: bool },
    Replaced,
    Enrol,
}

/// A worker at a task, asleep before its next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Worker {
    pub(crate) who: usize,
    pub(crate) task: u8,
    pub(crate) job: Job,
    pub(crate) at: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Job {
    Open { token: u64, over_limit: bool },
    Delete { token: u64 },
    Close { token: u64 },
}

/// The call that comes next. `fresh`: what was read is still so, and the precondition will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step {
    ReadMachine,
    WriteMachine { fresh: bool },
    ReadNode,
    WriteNode { fresh: bool },
}

/// What Close does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// It writes the token, closed, undoes the cordon, and says if it found the Machine deleted.
    Reports,
    /// … and says nothing of that.
    TellsNothing,
    /// It only undoes the cordon.
    WritesNothing,
}

/// What a worker reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    Opened,
    NotOpened,
    Deleted,
    NotDeleted,
    Closed,
}

fn uid(who: usize) -> String {
    format!("m{who}")
}

fn who(run: &RunId) -> usize {
    run.key()[1..].parse().expect("a machine of ours")
}

impl Machine {
    fn coming(set: usize, upgraded: bool) -> Self {
        Self {
            set,
            exists: true,
            deleting: false,
            ready: false,
            cordoned: false,
            kept: false,
            long_down: false,
            not_compared: false,
            hurt: false,
            on_machine: (0, false),
            on_node: (0, false),
            phase: Phase::Coming,
            lease: 0,
            over_limit: false,
            served: false,
            upgraded,
            task: 0,
            said: None,
            received: Received::default(),
            to_rollout: VecDeque::new(),
            from_rollout: VecDeque::new(),
        }
    }

    fn serves(&self) -> bool {
        self.exists && self.served && self.ready && !self.cordoned && !self.kept && !self.deleting
    }

    fn stays(&self) -> bool {
        self.exists && !self.deleting && self.served
    }

    fn report(&self) -> Report {
        let failed = self.phase == Phase::Failed;
        let deleting = matches!(
            self.phase,
            Phase::Leaving | Phase::Vanishing | Phase::ClosingGone | Phase::Closed
        );
        // A cordon of ours is no person's: while the lease is held, a run does not tell them apart.
        let cordoned = self.kept && self.lease == 0;
        let away = !self.ready || self.kept || failed || deleting;
        Report {
            had_node: self.served,
            unavailable: self.served && away,
            joined: self.served && !deleting,
            failed,
            deleting,
            cordoned,
            repair: self.served && self.long_down,
            not_compared: self.served && self.not_compared && !deleting,
        }
    }

    fn say(&mut self, say: Say) {
        self.to_rollout.push_back(say);
    }

    /// Tells the rollout what changed for it, once.
    fn report_changes(&mut self) {
        let report = self.report();
        let over = matches!(self.phase, Phase::Replaced | Phase::Closed);
        if !over && self.said != Some(report) {
            self.said = Some(report);
            self.say(Say::Member(report));
        }
    }
}

impl Report {
    fn spell(self, set: usize) -> MemberReport {
        MemberReport {
            owner: Some(SETS[set].into()),
            created: SECOND,
            had_node: self.had_node,
            unavailable: self.unavailable,
            joined: self.joined,
            failed: self.failed,
            deleting: self.deleting,
            deleted: self.deleting.then_some(SECOND),
            token: None,
            barred: false,
            cordoned: self.cordoned,
            repair: self.repair,
            by_request: false,
            not_compared: self.not_compared.then(|| NotCompared {
                code: "AuthRejected".into(),
                message: "no key fits".into(),
                shown_key: None,
            }),
        }
    }
}

impl Say {
    fn spell(self, set: usize) -> Signal {
        match self {
            Self::Member(report) => Signal::Member(report.spell(set)),
            Self::Request(report) => Signal::Request {
                report: report.spell(set),
            },
            Self::Withdraw => Signal::Withdraw,
            Self::Release { token, replaced } => Signal::Release {
                token: LeaseToken(token),
                replaced,
                deleted: replaced.then_some(SECOND),
            },
            Self::Left { gap, stays } => {
                let deleted = (!stays).then_some(SECOND);
                Signal::Left {
                    owner: Some(SETS[set].into()),
                    gap,
                    stays,
                    never_served: false,
                    token: None,
                    deleted,
                }
            }
        }
    }
}

impl World {
    /// A pool of these machines, which serve; the first `upgrades` of them want to be upgraded. `replicas`: of each
    /// owner.
    pub(crate) fn new(
        replicas: &[usize],
        upgrades: usize,
        max_repairs: Option<u32>,
        faults: Faults,
    ) -> Self {
        let mut world = Self {
            rollout: Pool::new(State::default()),
            machines: Vec::new(),
            replicas: replicas.to_vec(),
            reading: None,
            observed_counts: Vec::new(),
            workers: Vec::new(),
            faults,
            owed: 0,
            blind: Blind::No,
            wrong: None,
        };
        let settings = PoolSettings {
            max_repairs,
            ..PoolSettings::default()
        };
        world.take_in(observed(SETS[0], Fact::Pool(settings)));
        let owners = replicas.iter().enumerate();
        let owners = owners.flat_map(|(set, replicas)| std::iter::repeat_n(set, *replicas));
        for (who, set) in owners.enumerate() {
            world.machines.push(Machine::coming(set, who >= upgrades));
            world.joins(who);
            world.machines[who].to_rollout.clear();
            let report = world.machines[who].report();
            world.take_in(said(who, set, Say::Member(report)));
        }
        let with_node = (0..world.machines.len()).map(uid).collect();
        world.take_in(observed(
            SETS[0],
            Fact::Listed {
                with_node,
                sets: None,
            },
        ));
        world.read();
        world.feed();
        world
    }

    /// The rollout decides.
    fn take_in(&mut self, input: Input<Rollout>) {
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
                        self.judge_marked(who(&to), over_limit);
                    }
                    if token.0 > granted && !over_limit {
                        self.judge_grant();
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

    /// A grant over the limit is the only one of its kind, and for a node that was down for long. None is for a node that
    /// a person keeps cordoned, as far as the rollout was told: what changed since, a worker sees when it opens the fence.
    fn judge_marked(&mut self, to: usize, over_limit: bool) {
        let slots = &self.rollout.state.slots;
        let members = &self.rollout.state.members;
        let Some(member) = members.get(&Uid::new(&uid(to))) else {
            return;
        };
        let received = self.machines[to].received;
        if over_limit && slots.iter().filter(|slot| slot.over_limit).count() > 1 {
            self.wrong = Some("two leases over the limit");
        }
        if over_limit && member.is(Flag::HadNode) && !received.repair {
            self.wrong = Some("a lease over the limit for a node that was just NotReady");
        }
        let is_member = |at: &usize| members.contains_key(&Uid::new(&uid(*at)));
        let members = (0..self.machines.len()).filter(is_member);
        if members
            .filter(|at| self.machines[*at].received.not_compared)
            .count()
            > 1
        {
            self.wrong = Some("a lease while hosts cannot be compared");
        }
        if received.cordoned {
            self.wrong = Some("a lease for a node that a person cordoned");
        }
    }

    /// A grant within the limit, when every deletion is known: then all that the owner wants is there.
    fn judge_grant(&mut self) {
        let members = &self.rollout.state.members;
        let known = |at: usize, m: &Machine| {
            m.stays() || !m.served || members.get(&Uid::new(&uid(at))).is_none_or(|m| m.leaves())
        };
        let all_known = self.machines.iter().enumerate().all(|(at, m)| known(at, m));
        if all_known && (0..self.replicas.len()).any(|set| self.gaps(set) > 0) {
            self.wrong = Some("a grant over a gap");
        }
    }

    /// Machines that serve no more, or not yet, of those that an owner wants.
    fn gaps(&self, set: usize) -> usize {
        let ours = self.machines.iter().filter(|m| m.set == set);
        let there = ours.filter(|m| m.stays()).count();
        self.replicas[set].saturating_sub(there)
    }

    // The watcher.

    fn view(&self) -> Vec<OwnerView> {
        let of = |set: usize| {
            let machines = self.machines.iter().enumerate();
            let ours = machines.filter(|(_, m)| m.exists && m.set == set);
            let deleting = |m: &Machine| m.deleting && self.blind != Blind::Deletions;
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

    pub(crate) fn feed(&mut self) {
        let Some(view) = self.reading.take() else {
            return;
        };
        let owned = |(at, deleting): &(usize, bool)| OwnedMachine {
            uid: uid(*at),
            created: SECOND,
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

    // Machine runs.

    /// The oldest signal of `from` is delivered.
    pub(crate) fn deliver(&mut self, from: usize) {
        let Some(say) = self.machines[from].to_rollout.pop_front() else {
            return;
        };
        if let Say::Member(report) | Say::Request(report) = say {
            self.machines[from].received = Received {
                cordoned: report.cordoned,
                repair: report.repair,
                not_compared: report.not_compared,
            };
        }
        if let Some(say) = self.blind.say(say) {
            self.take_in(said(from, self.machines[from].set, say));
        }
    }

    /// The oldest signal to `to` is delivered, or has no receiver.
    pub(crate) fn receive(&mut self, to: usize) {
        let Some(delivered) = self.machines[to].from_rollout.pop_front() else {
            return;
        };
        if self.machines[to].phase == Phase::Closed {
            if let ToMachine::Granted { token, over_limit } = delivered {
                let token = LeaseToken(token);
                let signal = work::Signal::Machine(machine::Signal::Granted { token, over_limit });
                let to = work::machine_run(&uid(to)).expect("short");
                self.take_in(Input::Refused {
                    to,
                    signal,
                    why: Refusal::Closed,
                });
            }
            return;
        }
        match delivered {
            ToMachine::Granted { token, over_limit } => self.granted(to, token, over_limit),
            ToMachine::Replaced if self.machines[to].phase == Phase::Replaced => {
                self.machines[to].phase = Phase::Closed;
            }
            ToMachine::Replaced => {}
            ToMachine::Enrol => {
                self.machines[to].said = None;
                if self.machines[to].phase == Phase::Wanting {
                    self.wants(to);
                }
            }
        }
        self.machines[to].report_changes();
    }

    fn granted(&mut self, to: usize, token: u64, over_limit: bool) {
        let m = &mut self.machines[to];
        if m.lease >= token {
            return;
        }
        (m.lease, m.over_limit) = (token, over_limit);
        match m.phase {
            Phase::Wanting => self.open(to),
            Phase::Leaving => {}
            _ => self.close(to, Phase::Closing),
        }
    }

    fn order(&mut self, to: usize, job: Job) {
        let m = &mut self.machines[to];
        m.task += 1;
        self.workers.push(Worker {
            who: to,
            task: m.task,
            job,
            at: Step::ReadMachine,
        });
        self.workers.sort_unstable();
    }

    fn open(&mut self, to: usize) {
        let m = &mut self.machines[to];
        m.phase = Phase::Opening;
        let token = m.lease;
        let over_limit = m.over_limit;
        self.order(to, Job::Open { token, over_limit });
    }

    fn close(&mut self, to: usize, phase: Phase) {
        let m = &mut self.machines[to];
        m.phase = phase;
        let token = m.lease;
        self.order(to, Job::Close { token });
    }

    pub(crate) fn wants(&mut self, who: usize) {
        let m = &mut self.machines[who];
        m.phase = Phase::Wanting;
        let report = m.report();
        m.said = Some(report);
        m.say(Say::Request(report));
    }

    pub(crate) fn joins(&mut self, who: usize) {
        let m = &mut self.machines[who];
        (m.phase, m.ready, m.served) = (Phase::Serving, true, true);
        m.report_changes();
        self.owed = self.owed.saturating_sub(1);
    }

    /// In place: the host is set up again.
    pub(crate) fn worked(&mut self, who: usize) {
        self.machines[who].upgraded = true;
        self.close(who, Phase::Closing);
    }

    /// The run sees what became of its Machine.
    pub(crate) fn sees(&mut self, who: usize) {
        let m = &mut self.machines[who];
        if m.phase == Phase::Wanting {
            m.say(Say::Withdraw);
        }
        if m.exists {
            m.task += 1;
            m.phase = Phase::Leaving;
            m.report_changes();
        } else if m.lease != 0 {
            self.close(who, Phase::ClosingGone);
        } else {
            let gap = m.served;
            m.say(Say::Left { gap, stays: false });
            m.task += 1;
            m.phase = Phase::Closed;
        }
    }

    fn answer(&mut self, worker: Worker, answer: Answer, in_place: bool) {
        let m = &mut self.machines[worker.who];
        if worker.task != m.task {
            return;
        }
        match (m.phase, answer) {
            (Phase::Opening, Answer::Opened) if in_place => m.phase = Phase::Working,
            (Phase::Opening, Answer::Opened) => {
                m.phase = Phase::Deleting;
                let token = m.lease;
                self.order(worker.who, Job::Delete { token });
            }
            (Phase::Deleting, Answer::Deleted) => {
                m.phase = Phase::Vanishing;
                m.report_changes();
            }
            (Phase::Opening | Phase::Deleting, Answer::NotOpened | Answer::NotDeleted) => {
                self.close(worker.who, Phase::Closing);
            }
            // It was deleted before the close, by our own order: the slot goes with it.
            (Phase::Closing, Answer::Deleted) => {
                m.phase = Phase::Vanishing;
                m.report_changes();
            }
            (Phase::Closing, Answer::Closed) => {
                m.say(Say::Release {
                    token: m.lease,
                    replaced: false,
                });
                (m.lease, m.phase) = (0, Phase::Serving);
                m.task += 1;
                m.report_changes();
            }
            (Phase::ClosingGone, Answer::Closed) => {
                m.say(Say::Release {
                    token: m.lease,
                    replaced: true,
                });
                (m.lease, m.phase) = (0, Phase::Replaced);
                m.task += 1;
            }
            _ => {}
        }
    }

    // Workers at the API server.

    /// The worker at place `at` wakes, makes one call, and sleeps again or is done.
    pub(crate) fn wake(&mut self, at: usize, in_place: bool, close: Close) {
        let worker = self.workers.remove(at);
        let next = match worker.job {
            Job::Open { token, over_limit } => self.open_call(worker, token, over_limit),
            Job::Delete { token } => self.delete_call(worker, token),
            Job::Close { token } => self.close_call(worker, token, close),
        };
        match next {
            Ok(at) => self.workers.push(Worker { at, ..worker }),
            Err(answer) => self.answer(worker, answer, in_place),
        }
        self.workers.sort_unstable();
        self.judge();
    }

    fn open_call(&mut self, worker: Worker, token: u64, over_limit: bool) -> Result<Step, Answer> {
        let m = &mut self.machines[worker.who];
        let may = |on: (u64, bool)| on.0 < token || on == (token, true);
        let fresh = true;
        match worker.at {
            _ if !m.exists => Err(Answer::NotOpened),
            Step::ReadMachine if may(m.on_machine) => Ok(Step::WriteMachine { fresh }),
            Step::WriteMachine { fresh: true } => {
                m.on_machine = (token, true);
                self.written(worker.who, true);
                Ok(Step::ReadNode)
            }
            Step::ReadNode if over_limit && m.ready => Err(Answer::NotOpened),
            Step::ReadNode if m.kept => Err(Answer::NotOpened),
            Step::ReadNode if may(m.on_node) => Ok(Step::WriteNode { fresh }),
            Step::WriteNode { fresh: true } => {
                m.hurt |= m.ready && !m.cordoned;
                (m.on_node, m.cordoned) = ((token, true), true);
                self.written(worker.who, false);
                Err(Answer::Opened)
            }
            Step::ReadMachine | Step::ReadNode => Err(Answer::NotOpened),
            Step::WriteMachine { fresh: false } => Ok(Step::ReadMachine),
            Step::WriteNode { fresh: false } => Ok(Step::ReadNode),
        }
    }

    fn delete_call(&mut self, worker: Worker, token: u64) -> Result<Step, Answer> {
        let m = &mut self.machines[worker.who];
        match worker.at {
            _ if !m.exists || m.deleting => Err(Answer::Deleted),
            Step::ReadMachine if m.on_machine == (token, true) => {
                Ok(Step::WriteMachine { fresh: true })
            }
            Step::WriteMachine { fresh: true } => {
                let hurt = m.hurt || (m.ready && !m.cordoned);
                m.deleting = true;
                self.owed += usize::from(hurt);
                self.written(worker.who, true);
                Err(Answer::Deleted)
            }
            Step::WriteMachine { fresh: false } => Ok(Step::ReadMachine),
            _ => Err(Answer::NotDeleted),
        }
    }

    /// A read and a write under its precondition that is repeated until it holds are one write.
    fn close_call(&mut self, worker: Worker, token: u64, close: Close) -> Result<Step, Answer> {
        let closes = close != Close::WritesNothing;
        let m = &mut self.machines[worker.who];
        let going = !m.exists || m.deleting;
        if !m.exists || (going && worker.at == Step::ReadNode && close == Close::Reports) {
            let tells = close == Close::Reports && m.phase == Phase::Closing;
            return Err(if tells {
                Answer::Deleted
            } else {
                Answer::Closed
            });
        }
        if worker.at == Step::ReadMachine {
            if closes && m.on_machine.0 <= token && m.on_machine != (token, false) {
                m.on_machine = (token, false);
                self.written(worker.who, true);
            }
            return Ok(Step::ReadNode);
        }
        if m.on_node.0 <= token && m.on_node != (token, false) {
            m.on_node = if closes { (token, false) } else { m.on_node };
            (m.cordoned, m.hurt) = (false, false);
            self.written(worker.who, false);
        }
        Err(Answer::Closed)
    }

    /// The object has a new resourceVersion: what others read of it is old.
    fn written(&mut self, who: usize, machine: bool) {
        for worker in self.workers.iter_mut().filter(|worker| worker.who == who) {
            match &mut worker.at {
                Step::WriteMachine { fresh } if machine => *fresh = false,
                Step::WriteNode { fresh } if !machine => *fresh = false,
                _ => {}
            }
        }
    }

    // The world.

    /// Another client deletes a Machine, or its owner does.
    pub(crate) fn delete(&mut self, who: usize) {
        self.machines[who].deleting = true;
        self.written(who, true);
    }

    /// The machine controller has drained it and let it go.
    pub(crate) fn vanish(&mut self, who: usize) {
        let m = &mut self.machines[who];
        (m.exists, m.ready, m.cordoned, m.hurt) = (false, false, false, false);
        (m.kept, m.long_down, m.not_compared) = (false, false, false);
        (m.on_machine, m.on_node) = ((0, false), (0, false));
    }

    /// An owner makes a Machine.
    pub(crate) fn create(&mut self, set: usize) {
        let mut machine = Machine::coming(set, true);
        machine.report_changes();
        self.machines.push(machine);
    }

    pub(crate) fn fail(&mut self, who: usize, phase: Phase) {
        self.machines[who].phase = phase;
        self.machines[who].report_changes();
    }

    pub(crate) fn ready(&mut self, who: usize, ready: bool) {
        self.machines[who].ready = ready;
        self.machines[who].long_down = false;
        self.machines[who].report_changes();
        self.written(who, false);
    }

    /// It has been NotReady for long.
    pub(crate) fn stays_down(&mut self, who: usize) {
        self.machines[who].long_down = true;
        self.machines[who].report_changes();
    }

    /// A person cordons the Node, or uncordons it.
    pub(crate) fn keep(&mut self, who: usize, kept: bool) {
        self.machines[who].kept = kept;
        self.machines[who].report_changes();
        self.written(who, false);
    }

    /// Its host cannot be compared, or can be again.
    pub(crate) fn puzzle(&mut self, who: usize, not_compared: bool) {
        self.machines[who].not_compared = not_compared;
        self.machines[who].report_changes();
    }

    /// It is asked to enrol again.
    pub(crate) fn ask(&mut self, who: usize) {
        self.machines[who].from_rollout.push_back(ToMachine::Enrol);
    }

    /// A person closes the run: it touches the machine no more.
    pub(crate) fn remove(&mut self, who: usize) {
        let m = &mut self.machines[who];
        if m.phase == Phase::Wanting {
            m.say(Say::Withdraw);
        }
        m.say(Say::Left {
            gap: false,
            stays: true,
        });
        m.phase = Phase::Closed;
    }

    /// The task is ordered once more, while its worker sleeps.
    pub(crate) fn repeat(&mut self, at: usize) {
        let worker = Worker {
            at: Step::ReadMachine,
            ..self.workers[at]
        };
        self.workers.push(worker);
        self.workers.sort_unstable();
    }

    /// The upgrade is given up.
    pub(crate) fn abort(&mut self, who: usize) {
        self.close(who, Phase::Closing);
    }

    /// Machines of an owner that are not being deleted.
    pub(crate) fn live(&self, set: usize) -> usize {
        let ours = self.machines.iter().filter(|m| m.set == set);
        ours.filter(|m| m.exists && !m.deleting).count()
    }

    /// More nodes away at once, by our doing, than one.
    fn judge(&mut self) {
        let cordoned = self
            .machines
            .iter()
            .filter(|m| m.exists && !m.deleting && m.hurt)
            .count();
        let gaps: usize = (0..self.replicas.len()).map(|set| self.gaps(set)).sum();
        let owed = self.owed.min(gaps);
        if cordoned + owed > 1 {
            self.wrong = Some("two nodes away by our doing");
        }
    }

    /// Nothing is held, no machine waits, and every machine is as it should be.
    pub(crate) fn at_rest(&self) -> bool {
        let state = &self.rollout.state;
        let rests = |m: &Machine| match m.phase {
            Phase::Closed => true,
            Phase::Serving => m.upgraded && m.serves(),
            _ => false,
        };
        state.slots.is_empty()
            && state.gaps.is_empty()
            && state.queue().is_empty()
            && state.unavailable() == 0
            && self.machines.iter().all(rests)
    }
}

fn said(from: usize, set: usize, say: Say) -> Input<Rollout> {
    let from = Sender::Run(work::machine_run(&uid(from)).expect("short"));
    Input::Signalled {
        from,
        signal: work::Signal::Rollout(say.spell(set)),
    }
}

fn observed(set: &str, fact: Fact) -> Input<Rollout> {
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
