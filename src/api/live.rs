//! Latest heartbeat of every attempt, the latest remote commands, the notes about quarantined runs, and since when a
//! machine is in its phase. They are for people: no decision depends on them, and they end with the process.

use crate::durations::Usual;
use dormer_engine::port::QuarantineNote;
use dormer_engine_core::Run;
use dormer_proto::{
    id::{Attempt, RunId, Seq, TaskId, Timestamp},
    message::{Heartbeat, RemoteCommand},
    phase::MachinePhase,
};
use dormer_workflows::{Dormer, State};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// Age after which a heartbeat is no longer shown. Its worker has ended, or cannot reach this process.
const SHOWN_FOR: Duration = Duration::from_secs(45);
/// Most heartbeats kept. Beyond it stale ones are dropped, then heartbeats of new tasks; those of known tasks are kept.
const LIVE_MAX: usize = 20_000;
/// Most bytes of remote commands of all runs. Beyond it the oldest are dropped.
const COMMANDS_BYTES_MAX: usize = 8 << 20;
/// Most remote commands of one task. Beyond it its oldest are dropped.
const TASK_COMMANDS_MAX: usize = 64;

/// Time after a read of all runs for which a change counts as seen when it happened.
const FRESH: Duration = Duration::from_secs(30);

/// End of a command whose worker sends no heartbeats any more.
const NO_REPORT: &str = "unknown: its worker is silent";

/// Heartbeats and remote commands in this process's memory.
#[derive(Debug, Default)]
pub struct Live {
    /// Lock held for one map operation, never across an await.
    beats: Mutex<BTreeMap<TaskId, (Instant, Heartbeat)>>,
    /// Lock held as the one above.
    commands: Mutex<Commands>,
    /// Number of remote commands received.
    command_count: watch::Sender<u64>,
    /// Notes about quarantined runs at the last read. Lock held as the ones above.
    notes: Mutex<BTreeMap<RunId, QuarantineNote>>,
    /// Begin of each machine's phase and halt. Lock held as the ones above.
    begins: Mutex<BTreeMap<RunId, Begins>>,
    /// Time at which all runs were read last. Lock held as the ones above.
    read: Mutex<Option<Instant>>,
    /// Usual durations of steps.
    pub(crate) usual: Usual,
}

/// Times at which a machine's phase and its halt began. `None`: before this process read the run first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Begins {
    seq: Seq,
    phase: MachinePhase,
    pub(crate) phase_since: Option<Timestamp>,
    halt: Option<String>,
    pub(crate) halt_since: Option<Timestamp>,
}

impl Begins {
    /// What a record of this time says, after the one `before` it. `fresh`: the runs were read shortly before, so a change
    /// is not much older than the record.
    fn after(before: Option<&Self>, run: &Run<Dormer>, at: Timestamp, fresh: bool) -> Option<Self> {
        let State::Machine(state) = &run.state else {
            return None;
        };
        let phase = state.phase.id();
        let halt = state.view().halt.map(|halt| halt.to_string());
        let known = match before {
            _ if run.entered.seq == run.seq => Some(at),
            Some(before) if before.phase == phase => before.phase_since,
            Some(_) if fresh => Some(at),
            _ => None,
        };
        // The phase may have ended and begun again since the runs were read.
        let ordered = first_order(run, phase);
        let phase_since = known.map(|known| known.max(run.entered.at)).max(ordered);
        let halt_since = match before {
            Some(before) if before.halt == halt => before.halt_since,
            Some(_) if fresh => Some(at),
            _ => None,
        };
        Some(Self {
            seq: run.seq,
            phase,
            phase_since,
            halt_since: halt_since.filter(|_| halt.is_some()),
            halt,
        })
    }
}

/// First order of the phase's only task. Other phases have several tasks, or none.
fn first_order(run: &Run<Dormer>, phase: MachinePhase) -> Option<Timestamp> {
    use MachinePhase::{Applying, Checking, Closing};
    let orders = run.tasks.iter().map(|task| task.first_at);
    let first = orders.min();
    first.filter(|_| [Applying, Checking, Closing].contains(&phase))
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

impl Live {
    /// Learns from a record when the phase and the halt of its run began.
    pub(crate) fn observe(&self, run: &Run<Dormer>, at: Timestamp) {
        let fresh = lock(&self.read).is_some_and(|read| read.elapsed() < FRESH);
        let mut begins = lock(&self.begins);
        let known = begins.get(&run.id);
        if known.is_some_and(|known| known.seq >= run.seq) {
            return;
        }
        if let Some(next) = Begins::after(known, run, at, fresh) {
            begins.insert(run.id.clone(), next);
        }
    }

    /// All runs were read now.
    pub(crate) fn observe_all(&self) {
        *lock(&self.read) = Some(Instant::now());
    }

    /// Forgets runs that are stored no more.
    pub(crate) fn forget(&self, stored: impl Fn(&RunId) -> bool) {
        lock(&self.begins).retain(|run, _| stored(run));
    }

    /// When the phase and the halt of a run began.
    pub(crate) fn begins(&self, run: &RunId) -> Option<Begins> {
        lock(&self.begins).get(run).cloned()
    }

    fn beats(&self) -> MutexGuard<'_, BTreeMap<TaskId, (Instant, Heartbeat)>> {
        lock(&self.beats)
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<RunId, QuarantineNote>> {
        lock(&self.notes)
    }

    /// Replaces the notes about quarantined runs. Released ones are left out.
    pub fn note_all(&self, notes: Vec<QuarantineNote>) {
        let held = notes.into_iter().filter(|note| note.released.is_none());
        *self.notes() = held.map(|note| (note.run.clone(), note)).collect();
    }

    /// Notes about all quarantined runs, ordered by run.
    pub fn noted(&self) -> Vec<QuarantineNote> {
        self.notes().values().cloned().collect()
    }

    /// Note about a run, if it is quarantined.
    pub fn note(&self, run: &RunId) -> Option<QuarantineNote> {
        self.notes().get(run).cloned()
    }

    /// Stores a heartbeat.
    pub fn beat(&self, heartbeat: Heartbeat) {
        let now = Instant::now();
        let mut beats = self.beats();
        let known = beats.contains_key(&heartbeat.task);
        if !known && beats.len() >= LIVE_MAX {
            beats.retain(|_, (at, _)| now.duration_since(*at) < SHOWN_FOR);
        }
        if known || beats.len() < LIVE_MAX {
            beats.insert(heartbeat.task.clone(), (now, heartbeat));
        }
    }

    /// Removes the heartbeat of a task that has ended.
    pub fn ended(&self, task: &TaskId) {
        self.beats().remove(task);
    }

    /// Stores a remote command. If there are too many, it replaces the oldest.
    pub fn ran(&self, command: RemoteCommand) {
        let mut commands = lock(&self.commands);
        commands.put(command);
        drop(commands);
        self.command_count
            .send_modify(|command_count| *command_count += 1);
    }

    /// Counter that changes with every remote command of any run.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.command_count.subscribe()
    }

    /// Mark that changes when this run has a new remote command, or one of them has ended.
    pub fn commands_mark(&self, run: &RunId) -> (usize, usize, Option<TaskId>) {
        let first = TaskId {
            run: run.clone(),
            seq: Seq(0),
            ordinal: 0,
        };
        let commands = lock(&self.commands);
        let ours = commands
            .of
            .range(first..)
            .take_while(|(task, _)| task.run == *run);
        ours.fold((0, 0, None), |(all, over, _), (task, commands)| {
            let ended = commands
                .iter()
                .filter(|command| !command.ended.is_empty())
                .count();
            // In a full task the newest replace the oldest, so the count alone does not change.
            let newest = commands.back().map_or(0, |last| last.number as usize);
            (all + newest, over + ended + newest, Some(task.clone()))
        })
    }

    /// Remote commands of one run, task by task. A command without an end is still running: its worker sends
    /// heartbeats.
    pub fn commands(&self, run: &RunId) -> Vec<RemoteCommand> {
        let first = TaskId {
            run: run.clone(),
            seq: Seq(0),
            ordinal: 0,
        };
        let commands = lock(&self.commands);
        let ours = commands
            .of
            .range(first..)
            .take_while(|(task, _)| task.run == *run);
        let mut ours: Vec<RemoteCommand> = ours.flat_map(|(_, ours)| ours).cloned().collect();
        drop(commands);
        for command in ours.iter_mut().filter(|command| command.ended.is_empty()) {
            if !self.is_alive(&command.task, command.attempt) {
                NO_REPORT.clone_into(&mut command.ended);
            }
        }
        ours
    }

    /// Whether a worker sends heartbeats for this attempt.
    pub fn is_alive(&self, task: &TaskId, attempt: Attempt) -> bool {
        let beats = self.beats();
        let beat = beats.get(task);
        beat.is_some_and(|(at, beat)| beat.attempt == attempt && at.elapsed() < SHOWN_FOR)
    }

    /// Current heartbeats of one run.
    pub fn of(&self, run: &RunId) -> Vec<Heartbeat> {
        let first = TaskId {
            run: run.clone(),
            seq: Seq(0),
            ordinal: 0,
        };
        let beats = self.beats();
        let ours = beats
            .range(first..)
            .take_while(|(task, _)| task.run == *run);
        ours.filter(|(_, (at, _))| at.elapsed() < SHOWN_FOR)
            .map(|(_, (_, heartbeat))| heartbeat.clone())
            .collect()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::id::Timestamp;

    fn beat(run: &str, seq: u64, done: u64) -> Heartbeat {
        Heartbeat {
            task: TaskId {
                run: RunId::new("machine", run).unwrap(),
                seq: Seq(seq),
                ordinal: 0,
            },
            attempt: Attempt(1),
            worker: "w".into(),
            step: "upload".into(),
            done,
            of: 10,
            unit: "bytes".into(),
            lacks: None,
        }
    }

    /// A command that still runs.
    const RUNS: usize = 1;

    #[tokio::test]
    async fn remote_commands_are_kept_in_a_bounded_memory_the_latest_of_each_task() {
        let live = Live::default();
        let ran = |run: &str, number: u32, said: usize| {
            let Heartbeat {
                task,
                attempt,
                worker,
                ..
            } = beat(run, 1, 0);
            let (name, line, tail) = Default::default();
            let ended = if said == RUNS {
                String::new()
            } else {
                "exit 0".to_owned()
            };
            let head = "x".repeat(said);
            let at = Timestamp(0);
            let took_ms = 0;
            let left_out = 0;
            live.ran(RemoteCommand {
                task,
                attempt,
                worker,
                number,
                name,
                line,
                at,
                took_ms,
                ended,
                head,
                left_out,
                tail,
            });
        };
        let numbers = |run: &str| -> Vec<u32> {
            let commands = live.commands(&RunId::new("machine", run).unwrap());
            commands.iter().map(|command| command.number).collect()
        };
        ran("b", 1, 0);
        (1..=70).for_each(|number| ran("a", number, 0));
        assert_eq!((numbers("a"), numbers("b")), ((7..=70).collect(), vec![1]));
        (1..=9).for_each(|number| ran("c", number, COMMANDS_BYTES_MAX / 8));
        assert_eq!((numbers("a"), numbers("b")), (Vec::new(), Vec::new()));
        assert_eq!(numbers("c"), [3, 4, 5, 6, 7, 8, 9]);

        // A command is shown as running while its worker sends heartbeats. Its end replaces it.
        let run = RunId::new("machine", "d").unwrap();
        let ended = || {
            live.commands(&run)
                .iter()
                .map(|it| it.ended.clone())
                .collect::<Vec<_>>()
        };
        ran("d", 1, RUNS);
        assert_eq!(ended(), [NO_REPORT]);
        live.beat(beat("d", 1, 0));
        let mark = live.commands_mark(&run);
        assert_eq!(ended(), [""]);
        ran("d", 1, 0);
        ran("d", 1, RUNS);
        assert_eq!(ended(), ["exit 0"]);
        assert_ne!(live.commands_mark(&run), mark);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_shows_its_own_latest_heartbeats_until_they_are_stale() {
        let live = Live::default();
        for heartbeat in [beat("a", 1, 1), beat("a", 1, 4), beat("b", 7, 2)] {
            live.beat(heartbeat);
        }
        let of = |run: &str| -> Vec<u64> {
            let beats = live.of(&RunId::new("machine", run).unwrap());
            beats.iter().map(|beat| beat.done).collect()
        };
        assert_eq!((of("a"), of("b"), of("c")), (vec![4], vec![2], Vec::new()));
        let task = beat("b", 7, 0).task;
        assert!(live.is_alive(&task, Attempt(1)) && !live.is_alive(&task, Attempt(2)));
        live.ended(&beat("b", 7, 0).task);
        assert_eq!((of("a"), of("b")), (vec![4], Vec::new()));
        tokio::time::advance(SHOWN_FOR).await;
        assert!(of("a").is_empty());
    }

    /// A machine's run at record `seq`, which entered its state at record 1.
    fn run_in(
        phase: dormer_workflows::machine::Phase,
        held: Option<&str>,
        seq: u64,
    ) -> Run<Dormer> {
        use dormer_workflows::machine::State as Machine;
        let state = Machine {
            phase,
            held: held.map(str::to_owned),
            ..Machine::default()
        };
        Run {
            id: "machine/u1".parse().expect("an id"),
            seq: Seq(seq),
            began: Timestamp(0),
            state: state.into(),
            entered: dormer_engine_core::Entered {
                seq: Seq(1),
                at: Timestamp(1),
            },
            tasks: Vec::new(),
            timers: BTreeMap::new(),
            outbox: Vec::new(),
            taken: BTreeMap::new(),
            numbered: Seq(0),
            requests: VecDeque::new(),
            facts: BTreeMap::new(),
            episodes: VecDeque::new(),
            closed: None,
            sum: dormer_proto::id::Sum(0),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_phase_and_a_halt_are_as_old_as_their_own_records() {
        use dormer_workflows::machine::Phase;
        let live = Live::default();
        let times = |run: &Run<Dormer>| {
            let begins = live.begins(&run.id).expect("it was read");
            (begins.phase_since, begins.halt_since)
        };
        let joined = run_in(Phase::Serving, None, 5);
        live.observe(&joined, Timestamp(50));
        assert_eq!(
            times(&joined),
            (None, None),
            "it is older than this process"
        );
        live.observe_all();
        let held = run_in(Phase::Serving, Some("ann"), 6);
        live.observe(&held, Timestamp(60));
        assert_eq!(times(&held), (None, Some(Timestamp(60))));
        let checked = run_in(Phase::Checking, Some("ann"), 7);
        live.observe(&checked, Timestamp(70));
        assert_eq!(times(&checked), (Some(Timestamp(70)), Some(Timestamp(60))));
        live.observe(&held, Timestamp(60));
        assert_eq!(
            times(&held).0,
            Some(Timestamp(70)),
            "an older record is read late"
        );
        // The runs were not read for an hour: the phase began at some time in it.
        tokio::time::advance(Duration::from_secs(3_600)).await;
        let serves = run_in(Phase::Serving, None, 90);
        live.observe(&serves, Timestamp(3_600_070));
        assert_eq!(times(&serves), (None, None));
    }
}
