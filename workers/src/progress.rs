//! Progress of an attempt: for people with each heartbeat, and for the worker, which ends attempts without progress.

use dormer_proto::{
    id::{Attempt, TaskId},
    lock::Locked as _,
    message::{Heartbeat, RemoteCommand},
};
use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// Most remote commands of one attempt that are reported.
pub const COMMANDS_MAX: u32 = 64;

/// Handle on an attempt's progress. Clones share it.
#[derive(Debug, Clone)]
pub struct Progress(Arc<Mutex<ProgressState>>, Arc<UnreportedCommands>);

/// Remote commands that are not reported yet.
#[derive(Debug, Default)]
struct UnreportedCommands {
    /// Number of all commands, and those that wait for publication. Lock held for a list operation, never across an
    /// await.
    commands: Mutex<(u32, Vec<RemoteCommand>)>,
    more: Notify,
}

#[derive(Debug)]
struct ProgressState {
    step: String,
    done: u64,
    of: u64,
    unit: &'static str,
    moved: Instant,
    lacks: Option<String>,
}

impl ProgressState {
    fn begun(step: String, of: u64, unit: &'static str) -> Self {
        Self {
            step,
            done: 0,
            of,
            unit,
            moved: Instant::now(),
            lacks: None,
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self(
            Arc::new(Mutex::new(ProgressState::begun("start".into(), 0, ""))),
            Arc::default(),
        )
    }
}

impl Progress {
    fn inner(&self) -> MutexGuard<'_, ProgressState> {
        self.0.locked()
    }

    /// Begins a step of `of` `unit`s (0: unknown).
    pub fn step(&self, name: impl Into<String>, of: u64, unit: &'static str) {
        *self.inner() = ProgressState::begun(name.into(), of, unit);
    }

    /// Reports that the attempt waits for a prerequisite of dormer's own, described by `sentence`, until the next step.
    pub fn waits_for(&self, sentence: &str) {
        let begun = ProgressState::begun("wait for what dormer lacks".into(), 0, "");
        *self.inner() = ProgressState {
            lacks: Some(sentence.to_owned()),
            ..begun
        };
    }

    /// Reports `more` units of the present step as done. 0 counts as a heartbeat as well.
    pub fn advance(&self, more: u64) {
        let mut inner = self.inner();
        inner.done = inner.done.saturating_add(more);
        inner.moved = Instant::now();
    }

    /// Time without progress.
    #[must_use]
    pub fn still_for(&self) -> Duration {
        self.inner().moved.elapsed()
    }

    fn commands(&self) -> MutexGuard<'_, (u32, Vec<RemoteCommand>)> {
        self.1.commands.locked()
    }

    /// Begins a remote command and numbers it. Commands beyond [`COMMANDS_MAX`] are not reported.
    #[must_use = "its end is reported under the same number"]
    pub fn command_began(&self, command: &RemoteCommand) -> u32 {
        let mut commands = self.commands();
        commands.0 = commands.0.saturating_add(1);
        let number = commands.0;
        if number <= COMMANDS_MAX {
            let ended = String::new();
            commands.1.push(RemoteCommand {
                number,
                ended,
                ..command.clone()
            });
            self.1.more.notify_one();
        }
        number
    }

    /// A remote command has ended, which began under that number.
    pub fn command_ended(&self, command: RemoteCommand) {
        if command.number > COMMANDS_MAX {
            return;
        }
        let mut commands = self.commands();
        // A command that ended at once is reported only once.
        commands
            .1
            .retain(|unreported| unreported.number != command.number);
        commands.1.push(command);
        self.1.more.notify_one();
    }

    /// Whether a remote command has begun.
    pub(crate) fn has_run_a_command(&self) -> bool {
        self.commands().0 > 0
    }

    /// Remote commands that began or ended since the last call.
    #[must_use]
    pub fn take_commands(&self) -> Vec<RemoteCommand> {
        std::mem::take(&mut self.commands().1)
    }

    /// Waits until a command may have begun or ended.
    pub async fn commands_changed(&self) {
        self.1.more.notified().await;
    }

    /// The name of the present step.
    #[must_use]
    pub fn step_name(&self) -> String {
        self.inner().step.clone()
    }

    /// Text for people.
    #[must_use]
    pub fn heartbeat(&self, task: &TaskId, attempt: Attempt, worker: &str) -> Heartbeat {
        let inner = self.inner();
        Heartbeat {
            task: task.clone(),
            attempt,
            worker: worker.to_owned(),
            step: inner.step.clone(),
            done: inner.done,
            of: inner.of,
            unit: inner.unit.to_owned(),
            lacks: inner.lacks.clone(),
        }
    }
}
