//! What this process knows about runs beside their records: latest heartbeats, latest remote commands, notes about
//! quarantined runs, and since when a machine is in its phase. It is for people: no decision depends on it, and it ends with
//! the process.

mod commands;
mod heartbeats;
mod phase_times;
mod settings;

use crate::durations::Usual;
use commands::AllCommands;
use dormer_engine::port::QuarantineNote;
use dormer_engine_core::Run;
use dormer_proto::{
    id::{Attempt, RunId, Seq, TaskId, Timestamp},
    lock::Locked as _,
    message::{Heartbeat, NodeSettings, RemoteCommand},
};
use dormer_workflows::Dormer;
use heartbeats::AllBeats;
use phase_times::AllPhaseTimes;
pub(crate) use phase_times::PhaseTimes;
use settings::LatestSettings;
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};
use tokio::sync::watch;

/// End of a command whose worker sends no heartbeats any more.
const NO_REPORT: &str = "unknown: its worker is silent";

/// Heartbeats, remote commands, notes and begins in this process's memory.
#[derive(Debug, Default)]
pub struct Live {
    beats: AllBeats,
    commands: AllCommands,
    begins: AllPhaseTimes,
    settings: LatestSettings,
    /// Notes about quarantined runs at the last read. Lock held for one map operation, never across an await.
    notes: Mutex<BTreeMap<RunId, QuarantineNote>>,
    /// Usual durations of steps.
    pub(crate) usual: Usual,
}

impl Live {
    /// Learns from a record when the phase and the halt of its run began.
    pub(crate) fn observe(&self, run: &Run<Dormer>, at: Timestamp) {
        self.begins.observe(run, at);
    }

    /// All runs were read now.
    pub(crate) fn observe_all(&self) {
        self.begins.observe_all();
    }

    /// Forgets runs that are stored no more.
    pub(crate) fn forget(&self, stored: impl Fn(&RunId) -> bool) {
        self.begins.forget(stored);
    }

    /// When the phase and the halt of a run began.
    pub(crate) fn begins(&self, run: &RunId) -> Option<PhaseTimes> {
        self.begins.get(run)
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<RunId, QuarantineNote>> {
        self.notes.locked()
    }

    /// Replaces the notes about quarantined runs. Those of released runs, and of runs in doubt, are left out.
    pub fn note_all(&self, notes: Vec<QuarantineNote>) {
        let held = notes.into_iter();
        let held = held.filter(|note| note.released.is_none() && note.missed.is_none());
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
        self.beats.put(heartbeat);
    }

    /// Stores a worker's settings for nodes.
    pub fn set_settings(&self, settings: NodeSettings) {
        self.settings.put(settings);
    }

    /// Settings for nodes that a worker published lately.
    pub(crate) fn settings(&self) -> Option<NodeSettings> {
        self.settings.get()
    }

    /// Removes the heartbeat of a task that has ended.
    pub fn ended(&self, task: &TaskId) {
        self.beats.remove(task);
    }

    /// Stores a remote command. If there are too many, it replaces the oldest.
    pub fn ran(&self, command: RemoteCommand) {
        self.commands.put(command);
    }

    /// Counter that changes with every remote command of any run.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.commands.subscribe()
    }

    /// Mark that changes when this run has a new remote command, or one of them has ended.
    pub fn commands_mark(&self, run: &RunId) -> (usize, usize, Option<TaskId>) {
        self.commands.mark(run)
    }

    /// Remote commands of one run, task by task. A command without an end is still running: its worker sends
    /// heartbeats.
    pub fn commands(&self, run: &RunId) -> Vec<RemoteCommand> {
        let mut commands = self.commands.of(run);
        for command in commands
            .iter_mut()
            .filter(|command| command.ended.is_empty())
        {
            if !self.is_alive(&command.task, command.attempt) {
                NO_REPORT.clone_into(&mut command.ended);
            }
        }
        commands
    }

    /// Whether a worker sends heartbeats for this attempt.
    pub fn is_alive(&self, task: &TaskId, attempt: Attempt) -> bool {
        self.beats.is_alive(task, attempt)
    }

    /// Current heartbeats of one run.
    pub fn of(&self, run: &RunId) -> Vec<Heartbeat> {
        self.beats.of(run)
    }
}

/// Entries of the tasks of one run.
fn of_run<'a, T>(
    by_task: &'a BTreeMap<TaskId, T>,
    run: &'a RunId,
) -> impl Iterator<Item = (&'a TaskId, &'a T)> {
    let first = TaskId {
        run: run.clone(),
        seq: Seq(0),
        ordinal: 0,
    };
    let from = by_task.range(first..);
    from.take_while(move |(task, _)| task.run == *run)
}

#[cfg(test)]
mod tests {
    use super::{commands::COMMANDS_BYTES_MAX, heartbeats::SHOWN_FOR, *};
    use dormer_proto::id::Timestamp;
    use std::{collections::VecDeque, time::Duration};

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
