//! A machine of the model: its Machine, its Node, and its run.

use super::{
    World,
    pool::{SETS, THE_SECOND, signalled, uid},
    workers::{Answer, Job, Step, Worker},
};
use dormer_engine_core::Input;
use dormer_proto::{
    id::LeaseToken,
    machine,
    message::Refusal,
    rollout::{MemberReport, NotCompared, Signal},
    work,
};
use std::collections::VecDeque;

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
    pub(crate) disturbed: bool,
    /// The token on the Machine, and whether it is open.
    pub(crate) on_machine: (u64, bool),
    /// The token on the Node.
    pub(crate) on_node: (u64, bool),
    pub(crate) phase: Phase,
    pub(crate) lease: u64,
    pub(crate) over_limit: bool,
    /// Its Node has served.
    pub(crate) served: bool,
    /// It has failed its checks since it came.
    pub(crate) failing: bool,
    pub(crate) upgraded: bool,
    /// The number of its present task; older ones get no answer.
    pub(crate) task: u8,
    /// What it sent last.
    pub(crate) sent: Option<Report>,
    /// What reached the rollout last.
    pub(crate) received: Received,
    pub(crate) to_rollout: VecDeque<ToRollout>,
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
    pub(super) had_node: bool,
    pub(super) unavailable: bool,
    pub(super) joined: bool,
    pub(super) failed: bool,
    pub(super) deleting: bool,
    pub(super) cordoned: bool,
    pub(super) repair: bool,
    pub(super) not_compared: bool,
}

/// What a report says that forbids or allows a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Received {
    pub(super) failed: bool,
    pub(super) cordoned: bool,
    pub(super) repair: bool,
    pub(super) not_compared: bool,
}

/// Signals of a machine's run to its rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ToRollout {
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

impl Machine {
    pub(super) fn coming(set: usize, upgraded: bool) -> Self {
        Self {
            set,
            exists: true,
            deleting: false,
            ready: false,
            cordoned: false,
            kept: false,
            long_down: false,
            not_compared: false,
            disturbed: false,
            on_machine: (0, false),
            on_node: (0, false),
            phase: Phase::Coming,
            lease: 0,
            over_limit: false,
            served: false,
            failing: false,
            upgraded,
            task: 0,
            sent: None,
            received: Received::default(),
            to_rollout: VecDeque::new(),
            from_rollout: VecDeque::new(),
        }
    }

    pub(super) fn serves(&self) -> bool {
        self.exists && self.served && self.ready && !self.cordoned && !self.kept && !self.deleting
    }

    pub(super) fn stays(&self) -> bool {
        self.exists && !self.deleting && self.served
    }

    pub(super) fn report(&self) -> Report {
        // It waits for the lease, or has it, to be replaced: that mends nothing.
        let waits = matches!(
            self.phase,
            Phase::Wanting | Phase::Opening | Phase::Deleting
        );
        let failed = self.phase == Phase::Failed || (self.failing && waits);
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

    pub(super) fn send(&mut self, signal: ToRollout) {
        self.to_rollout.push_back(signal);
    }

    /// Tells the rollout what changed for it, once.
    pub(super) fn report_changes(&mut self) {
        let report = self.report();
        let over = matches!(self.phase, Phase::Replaced | Phase::Closed);
        if !over && self.sent != Some(report) {
            self.sent = Some(report);
            self.send(ToRollout::Member(report));
        }
    }
}

impl Report {
    fn to_report(self, set: usize) -> MemberReport {
        MemberReport {
            owner: Some(SETS[set].into()),
            created: THE_SECOND,
            had_node: self.had_node,
            unavailable: self.unavailable,
            joined: self.joined,
            failed: self.failed,
            deleting: self.deleting,
            deleted: self.deleting.then_some(THE_SECOND),
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

impl ToRollout {
    pub(super) fn to_signal(self, set: usize) -> Signal {
        match self {
            Self::Member(report) => Signal::Member(report.to_report(set)),
            Self::Request(report) => Signal::Request {
                report: report.to_report(set),
            },
            Self::Withdraw => Signal::Withdraw,
            Self::Release { token, replaced } => Signal::Release {
                token: LeaseToken(token),
                replaced,
                deleted: replaced.then_some(THE_SECOND),
            },
            Self::Left { gap, stays } => {
                let deleted = (!stays).then_some(THE_SECOND);
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
    /// The oldest signal of `from` is delivered.
    pub(crate) fn deliver(&mut self, from: usize) {
        let Some(signal) = self.machines[from].to_rollout.pop_front() else {
            return;
        };
        if let ToRollout::Member(report) | ToRollout::Request(report) = signal {
            self.machines[from].received = Received {
                failed: report.failed,
                cordoned: report.cordoned,
                repair: report.repair,
                not_compared: report.not_compared,
            };
        }
        if let Some(signal) = self.withheld.pass(signal) {
            self.take_in(signalled(from, self.machines[from].set, signal));
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
                self.machines[to].sent = None;
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

    pub(super) fn close(&mut self, to: usize, phase: Phase) {
        let m = &mut self.machines[to];
        m.phase = phase;
        let token = m.lease;
        self.order(to, Job::Close { token });
    }

    pub(crate) fn wants(&mut self, who: usize) {
        let m = &mut self.machines[who];
        m.phase = Phase::Wanting;
        let report = m.report();
        m.sent = Some(report);
        m.send(ToRollout::Request(report));
    }

    pub(crate) fn joins(&mut self, who: usize) {
        let m = &mut self.machines[who];
        (m.phase, m.ready, m.served) = (Phase::Serving, true, true);
        m.failing = false;
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
            m.send(ToRollout::Withdraw);
        }
        if m.exists {
            m.task += 1;
            m.phase = Phase::Leaving;
            m.report_changes();
        } else if m.lease != 0 {
            self.close(who, Phase::ClosingGone);
        } else {
            let gap = m.served;
            m.send(ToRollout::Left { gap, stays: false });
            m.task += 1;
            m.phase = Phase::Closed;
        }
    }

    pub(super) fn answer(&mut self, worker: Worker, answer: Answer, in_place: bool) {
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
                m.send(ToRollout::Release {
                    token: m.lease,
                    replaced: false,
                });
                let phase = if m.served {
                    Phase::Serving
                } else {
                    Phase::Failed
                };
                (m.lease, m.phase) = (0, phase);
                m.task += 1;
                m.report_changes();
            }
            (Phase::ClosingGone, Answer::Closed) => {
                m.send(ToRollout::Release {
                    token: m.lease,
                    replaced: true,
                });
                (m.lease, m.phase) = (0, Phase::Replaced);
                m.task += 1;
            }
            _ => {}
        }
    }
}
