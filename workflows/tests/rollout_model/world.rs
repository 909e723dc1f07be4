//! A small world around the real rollout: machine runs, sleeping workers, an API server, and those who delete machines.

mod laws;
mod machine;
mod pool;
mod withheld;
mod workers;

use dormer_proto::{pool::PoolSettings, rollout::Fact};
use dormer_workflows::rollout::State;
use machine::{Machine, ToMachine, ToRollout};
use pool::{OwnerView, Pool, SETS, max_unavailable, observed, signalled, uid};
use workers::{Step, Worker};

pub(crate) use machine::Phase;
pub(crate) use withheld::Withheld;
pub(crate) use workers::Close;

/// Everything that matters of a moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) rollout: Pool,
    pub(crate) machines: Vec<Machine>,
    /// `spec.replicas` of each owner.
    pub(crate) replicas: Vec<usize>,
    /// How many of them the first owner wants beyond those of the beginning.
    pub(crate) grown: usize,
    /// The pool's `maxUnavailable`, in percent; `None`: it is 1.
    pub(crate) share: Option<u8>,
    /// What the watcher read and has not yet published.
    pub(crate) reading: Option<Vec<OwnerView>>,
    /// What the watcher published last.
    pub(crate) observed_counts: Vec<OwnerView>,
    /// Workers, each asleep before its next call to the API server.
    pub(crate) workers: Vec<Worker>,
    pub(crate) faults: Faults,
    /// Machines that we deleted while they served, and whose replacements do not serve yet.
    pub(crate) owed: usize,
    pub(crate) withheld: Withheld,
    pub(crate) violation: Option<&'static str>,
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
    /// A replacement fails its checks, and is retried.
    pub(crate) failures: u8,
    /// A newer version is published while a replacement fails its checks: it asks for the lease, to be replaced in turn.
    pub(crate) overtakes: u8,
    /// The owner wants one machine more.
    pub(crate) grows: u8,
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

impl World {
    /// A pool of these machines, which serve; the first `upgrades` of them want to be upgraded. `replicas`: of each
    /// owner.
    pub(crate) fn new(
        replicas: &[usize],
        upgrades: usize,
        (share, max_repairs): (Option<u8>, Option<u32>),
        faults: Faults,
    ) -> Self {
        let mut world = Self {
            rollout: Pool::new(State::default()),
            machines: Vec::new(),
            replicas: replicas.to_vec(),
            grown: 0,
            share,
            reading: None,
            observed_counts: Vec::new(),
            workers: Vec::new(),
            faults,
            owed: 0,
            withheld: Withheld::Nothing,
            violation: None,
        };
        let settings = PoolSettings {
            max_unavailable: max_unavailable(share),
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
            world.take_in(signalled(who, set, ToRollout::Member(report)));
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
        world.publish();
        world
    }

    /// Another client deletes a Machine, or its owner does.
    pub(crate) fn delete(&mut self, who: usize) {
        self.machines[who].deleting = true;
        self.written(who, true);
    }

    /// The machine controller has drained it and let it go.
    pub(crate) fn vanish(&mut self, who: usize) {
        let m = &mut self.machines[who];
        (m.exists, m.ready, m.cordoned, m.disturbed) = (false, false, false, false);
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
        self.machines[who].failing = true;
        self.machines[who].report_changes();
    }

    /// The owner wants one more.
    pub(crate) fn grow(&mut self) {
        self.replicas[0] += 1;
        self.grown += 1;
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
            m.send(ToRollout::Withdraw);
        }
        m.send(ToRollout::Left {
            gap: false,
            stays: true,
        });
        m.phase = Phase::Closed;
    }

    /// The task is ordered again, while its worker sleeps.
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
}
