//! Latest remote commands of every task, in a bounded memory.

use super::of_run;
use dormer_proto::{
    id::{RunId, TaskId},
    lock::Locked as _,
    message::RemoteCommand,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
};
use tokio::sync::watch;

/// Most bytes of remote commands of all runs. Beyond it the oldest are dropped.
pub(super) const COMMANDS_BYTES_MAX: usize = 8 << 20;
/// Most remote commands of one task. Beyond it its oldest are dropped.
const TASK_COMMANDS_MAX: usize = 64;

/// Remote commands of all runs, with a counter for who waits for the next.
#[derive(Debug, Default)]
pub(super) struct AllCommands {
    /// Lock held for one map operation, never across an await.
    kept: Mutex<Commands>,
    /// Number of remote commands received.
    received: watch::Sender<u64>,
}

impl AllCommands {
    /// Keeps a command. If there are too many, it replaces the oldest.
    pub(super) fn put(&self, command: RemoteCommand) {
        self.kept.locked().put(command);
        self.received.send_modify(|received| *received += 1);
    }

    /// Counter that changes with every command of any run.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.received.subscribe()
    }

    /// Mark that changes when this run has a new command, or one of them has ended.
    pub(super) fn mark(&self, run: &RunId) -> (usize, usize, Option<TaskId>) {
        let kept = self.kept.locked();
        of_run(&kept.of, run).fold((0, 0, None), |(all, over, _), (task, commands)| {
            let ended = commands
                .iter()
                .filter(|command| !command.ended.is_empty())
                .count();
            // In a full task the newest replace the oldest, so the count alone does not change.
            let newest = commands.back().map_or(0, |last| last.number as usize);
            (all + newest, over + ended + newest, Some(task.clone()))
        })
    }

    /// Commands of one run, task by task.
    pub(super) fn of(&self, run: &RunId) -> Vec<RemoteCommand> {
        let kept = self.kept.locked();
        let of_run = of_run(&kept.of, run);
        of_run.flat_map(|(_, commands)| commands).cloned().collect()
    }
}

/// Remote commands by task, with their order of arrival.
#[derive(Debug, Default)]
struct Commands {
    of: BTreeMap<TaskId, VecDeque<RemoteCommand>>,
    came: VecDeque<TaskId>,
    bytes: usize,
}

impl Commands {
    fn put(&mut self, command: RemoteCommand) {
        let task = command.task.clone();
        let ours = self.of.entry(task.clone()).or_default();
        let same = |known: &&mut RemoteCommand| {
            (known.attempt, &known.worker, known.number)
                == (command.attempt, &command.worker, command.number)
        };
        if let Some(known) = ours.iter_mut().find(same) {
            // A late report that a command runs does not replace its end.
            if known.ended.is_empty() {
                self.bytes = (self.bytes + size(&command)).saturating_sub(size(known));
                *known = command;
            }
            return;
        }
        self.bytes += size(&command);
        ours.push_back(command);
        self.came.push_back(task.clone());
        if ours.len() > TASK_COMMANDS_MAX {
            let index = self.came.iter().position(|came| *came == task);
            index.and_then(|at| self.came.remove(at));
            self.drop_first(&task);
        }
        while self.bytes > COMMANDS_BYTES_MAX
            && let Some(oldest) = self.came.pop_front()
        {
            self.drop_first(&oldest);
        }
    }

    fn drop_first(&mut self, task: &TaskId) {
        let Some(ours) = self.of.get_mut(task) else {
            return;
        };
        if let Some(command) = ours.pop_front() {
            self.bytes = self.bytes.saturating_sub(size(&command));
        }
        if ours.is_empty() {
            self.of.remove(task);
        }
    }
}

/// Bytes of its texts, plus a fixed overhead.
fn size(command: &RemoteCommand) -> usize {
    let RemoteCommand {
        worker,
        name,
        line,
        ended,
        head,
        tail,
        ..
    } = command;
    let texts = [
        worker,
        name,
        line,
        ended,
        head,
        tail,
        &command.task.run.as_str().to_owned(),
    ];
    texts.iter().map(|text| text.len()).sum::<usize>() + size_of::<RemoteCommand>()
}
