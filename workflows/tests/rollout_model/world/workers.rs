//! Workers of the model: each sleeps before its next call to the API server.

use super::{Withheld, World, machine::Phase};

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
pub(super) enum Answer {
    Opened,
    NotOpened,
    Deleted,
    NotDeleted,
    Closed,
}

impl World {
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
        self.check_away();
    }

    fn open_call(&mut self, worker: Worker, token: u64, over_limit: bool) -> Result<Step, Answer> {
        let reads = self.withheld != Withheld::LiveRead;
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
            Step::ReadNode if reads && over_limit && m.ready => Err(Answer::NotOpened),
            Step::ReadNode if reads && m.kept => Err(Answer::NotOpened),
            Step::ReadNode if may(m.on_node) => Ok(Step::WriteNode { fresh }),
            Step::WriteNode { fresh: true } => {
                let ready = m.ready;
                let kept = m.kept;
                m.disturbed |= m.ready && !m.cordoned;
                (m.on_node, m.cordoned) = ((token, true), true);
                self.written(worker.who, false);
                self.check_opened(over_limit && ready, kept);
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
                let disturbed = m.disturbed || (m.ready && !m.cordoned);
                m.deleting = true;
                self.owed += usize::from(disturbed);
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
            (m.cordoned, m.disturbed) = (false, false);
            self.written(worker.who, false);
        }
        Err(Answer::Closed)
    }

    /// The object has a new resourceVersion: what others read of it is old.
    pub(super) fn written(&mut self, who: usize, machine: bool) {
        for worker in self.workers.iter_mut().filter(|worker| worker.who == who) {
            match &mut worker.at {
                Step::WriteMachine { fresh } if machine => *fresh = false,
                Step::WriteNode { fresh } if !machine => *fresh = false,
                _ => {}
            }
        }
    }
}
