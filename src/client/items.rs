//! Objects that commands list: their kinds, and each as a row of a table.

use super::{
    output::{Column, optional},
    server::segment,
    short_names::short_names,
    terminal::Style,
};
use clap::{
    ValueEnum,
    builder::{EnumValueParser, PossibleValue, TypedValueParser},
};
use dormer_proto::phase::{Listed, MachinePhase, MachineState};
use dormer_views::{
    machine::{HaltKind, Machine, MachineKind},
    moment::span,
    numbers::Numbers,
    problem::{self, Urgency, problem},
    rollout::{Pool, Rollout},
    run::{QuarantinedRun, Run, Task},
};
use serde::{Deserialize, de::DeserializeOwned};
use std::ffi::OsStr;

/// Argument of a command: a kind, or KIND/NAME, as `-o name` prints it and kubectl accepts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target<K> {
    pub(super) kind: K,
    /// Name behind the kind.
    pub(super) name: Option<String>,
}

/// Parser of [`Target`]s, with the kinds as its possible values.
#[derive(Clone)]
pub(super) struct TargetParser<K: ValueEnum + Clone + Send + Sync + 'static>(EnumValueParser<K>);

impl<K: ValueEnum + Clone + Send + Sync + 'static> TargetParser<K> {
    pub(super) fn new() -> Self {
        Self(EnumValueParser::new())
    }
}

impl<K: ValueEnum + Clone + Send + Sync + 'static> TypedValueParser for TargetParser<K> {
    type Value = Target<K>;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Target<K>, clap::Error> {
        let text = value.to_string_lossy();
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) if !name.is_empty() => (kind, Some(name.to_owned())),
            _ => (text.as_ref(), None),
        };
        let kind = self.0.parse_ref(command, argument, OsStr::new(kind))?;
        Ok(Target { kind, name })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// Names that `--state` takes beside the states: how urgently a machine needs attention.
pub(super) const URGENCIES: [&str; 5] = ["stuck", "person", "slow", ATTENTION, "on-purpose"];
/// Name for the first three of them together.
pub(super) const ATTENTION: &str = "attention";

/// Kinds that can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Machines
    #[value(aliases = ["machine", "m", "windowsmachine", "windowsmachines"])]
    Machines,
    /// Runs of every workflow
    #[value(aliases = ["run"])]
    Runs,
    /// Rollouts, one for each pool
    #[value(aliases = ["rollout"])]
    Rollouts,
    /// Open tasks with their progress
    #[value(aliases = ["task"])]
    Tasks,
    /// Pools
    #[value(aliases = ["pool", "windowspool", "windowspools"])]
    Pools,
    /// Quarantined runs, which engines leave alone until they are released
    #[value(aliases = ["quarantined"])]
    Quarantine,
}

impl Kind {
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Machines => "/machines",
            Self::Runs => "/runs",
            Self::Rollouts => "/rollouts",
            Self::Tasks => "/tasks",
            Self::Pools => "/pools",
            Self::Quarantine => "/quarantine",
        }
    }

    /// Kind of one object, for `-o name`.
    pub(super) fn singular(self) -> &'static str {
        match self {
            Self::Machines => "machine",
            Self::Runs => "run",
            Self::Rollouts => "rollout",
            Self::Tasks => "task",
            Self::Pools => "pool",
            Self::Quarantine => "run",
        }
    }

    /// The name without its kind: `windows` of `pool/windows`. Runs keep theirs, WORKFLOW/KEY, and machines have
    /// namespaces, which come first.
    pub(super) fn bare(self, called: &str) -> &str {
        match called.split_once('/') {
            Some((kind, name))
                if !matches!(self, Self::Machines | Self::Runs | Self::Quarantine)
                    && Self::from_str(kind, true) == Ok(self)
                    && !name.is_empty() =>
            {
                name
            }
            _ => called,
        }
    }

    /// Path of the object called `name`.
    pub(super) fn one(self, name: &str) -> String {
        match (self, name.split_once('/')) {
            (Self::Runs, Some((workflow, key))) => {
                format!("/runs/{}/{}", segment(workflow), segment(key))
            }
            _ => format!("{}/{}", self.path(), segment(name)),
        }
    }
}

/// Item of a list: one line of a table.
pub(super) trait ListItem: DeserializeOwned + Clone + 'static {
    const COLUMNS: &'static [Column<Self>];
    /// Headings of columns that are left out on a narrow terminal, in that order. The last column is the most
    /// important.
    const DROPPED_WHEN_NARROW: &'static [&'static str] = &[];
    /// Characters that are to be left for the last column; columns are left out for them.
    const LAST_COLUMN_CHARS_MIN: usize = 48;
    /// Whether such items have an age, by which `--older-than` and `--younger-than` choose.
    const HAS_AGE: bool = false;

    fn pool(&self) -> Option<&str> {
        None
    }

    /// Id of the item's state, for `--state`.
    fn state(&self) -> Option<&str> {
        None
    }

    /// Its state for people, where the server's answer has another one: JSON has that of the table.
    fn derived_state(&self) -> Option<&str> {
        None
    }

    /// Kinds of its halts, by which `--state` finds it as well.
    fn halts(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Values that `--state` may have for such items; empty if any may occur.
    fn states() -> Vec<&'static str> {
        Vec::new()
    }

    /// Values that the field of a selector may have; empty if any may occur.
    fn values(key: &str) -> Vec<&'static str> {
        match key {
            "state" => Self::states(),
            _ => Vec::new(),
        }
    }

    /// How urgently it needs attention.
    fn urgency(&self) -> Option<Urgency> {
        None
    }

    /// For how long it has been there, in seconds. `None`: such items have no age ([`Self::HAS_AGE`]).
    fn age_seconds(&self) -> Option<u64> {
        None
    }

    /// Code that its row shows, where it is another than the field `code`.
    fn shown_code(&self) -> Option<String> {
        None
    }

    /// Field of a selector.
    fn field(&self, key: &str) -> Option<String> {
        match key {
            "pool" => self.pool().map(str::to_owned),
            "state" => self.state().map(str::to_owned),
            "name" => Some(self.name()),
            _ => None,
        }
    }

    /// Name for `-o name`, without its kind.
    fn name(&self) -> String;

    /// Whether people call it so.
    fn is_called(&self, name: &str) -> bool {
        self.name() == name
    }

    /// The item under a shorter name.
    fn called(self, _: String) -> Self {
        self
    }

    /// The items with shorter names, for a narrow terminal.
    fn shortened(shown: Vec<Self>) -> Vec<Self> {
        let names: Vec<String> = shown.iter().map(Self::name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let short = short_names(&names);
        let renamed = shown.into_iter().zip(short);
        renamed.map(|(item, name)| item.called(name)).collect()
    }

    /// The item with what these machines say of it.
    fn with(self, _: &[Machine]) -> Self {
        self
    }

    /// Sort key of the table, within equal urgency. Items with equal keys keep the server's order.
    fn sort_key(&self) -> (&str, &str) {
        ("", "")
    }

    /// Style of its row.
    fn style(&self) -> Style {
        match self.urgency() {
            Some(Urgency::Stuck) => Style::Bad,
            Some(Urgency::Person | Urgency::Slow) => Style::Attention,
            Some(Urgency::OnPurpose) | None => Style::Plain,
        }
    }
}

/// Beginning of a selector's key that names a label: `label.team`.
pub(super) const LABEL: &str = "label.";
/// Value of `template` for a machine that was made from an earlier template of its MachineSet.
const OUTDATED: &str = "outdated";
/// Value of `template` for every other machine.
const CURRENT: &str = "current";

/// Whether a machine equals the template of its MachineSet.
fn template_text(machine: &Machine) -> &'static str {
    if machine.outdated() {
        OUTDATED
    } else {
        CURRENT
    }
}

impl ListItem for Machine {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |it| it.name.clone()),
        Column::new("STATE", |it| it.state.to_string()),
        Column::new("PHASE", |it| it.phase_text.clone()),
        Column::new("SINCE", |it| span(it.status.since_seconds)),
        Column::new("AGE", |it| span(it.age_seconds())),
        Column::new("VERSION", |it| optional(&it.version)),
        Column::new("REASON", |it| optional(&problem::in_short(it))),
        Column::wide("WAITING FOR", |it| optional(&it.waiting_for)),
        Column::wide("ATTEMPT", |it| optional(&it.attempt)),
        Column::wide("DESIRED", |it| optional(&it.desired_version)),
        Column::wide("NODE", |it| optional(&it.node)),
        Column::wide("ADDRESS", |it| optional(&it.address)),
        Column::wide("POOL", |it| it.pool.clone()),
        Column::wide("ZONE", |it| optional(&it.zone)),
        Column::wide("TEMPLATE", |it| template_text(it).to_owned()),
        Column::wide("KIND", |it| optional(&it.kind)),
        Column::wide("NAMESPACE", |it| it.namespace.clone()),
        Column::wide("UID", |it| it.uid.clone()),
    ];
    const DROPPED_WHEN_NARROW: &'static [&'static str] = &["AGE", "VERSION", "PHASE"];
    const HAS_AGE: bool = true;

    fn pool(&self) -> Option<&str> {
        Some(&self.pool)
    }

    fn state(&self) -> Option<&str> {
        Some(self.state.id())
    }

    fn halts(&self) -> Vec<&str> {
        Self::halts(self).map(|it| it.kind.id()).collect()
    }

    fn states() -> Vec<&'static str> {
        machine_states()
    }

    fn values(key: &str) -> Vec<&'static str> {
        match key {
            "state" => machine_states(),
            "phase" => MachinePhase::ALL.iter().map(|it| it.id()).collect(),
            "kind" => MachineKind::ALL.iter().map(|it| it.id()).collect(),
            "template" => vec![CURRENT, OUTDATED],
            _ => Vec::new(),
        }
    }

    fn urgency(&self) -> Option<Urgency> {
        problem(self).map(|it| it.urgency)
    }

    fn age_seconds(&self) -> Option<u64> {
        Some(self.age_seconds())
    }

    fn shown_code(&self) -> Option<String> {
        let failed = self.failure.as_ref().map(|it| it.code.clone());
        failed.or_else(|| problem(self).map(|it| it.shown))
    }

    fn field(&self, key: &str) -> Option<String> {
        if let Some(label) = key.strip_prefix(LABEL) {
            return self.labels.get(label).cloned();
        }
        Some(match key {
            "name" => self.name.clone(),
            "kind" => return self.kind.as_ref().map(ToString::to_string),
            "namespace" => self.namespace.clone(),
            "pool" => self.pool.clone(),
            "state" => self.state.to_string(),
            "phase" => self.phase.to_string(),
            "version" => return self.version.clone(),
            "node" => return self.node.clone(),
            "owner" => return self.owner.clone(),
            "template" => template_text(self).to_owned(),
            "zone" => return self.zone.clone(),
            "code" => return problem(self).map(|it| it.code),
            _ => return None,
        })
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn called(mut self, name: String) -> Self {
        self.name = name;
        self
    }

    fn sort_key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

/// Column of the namespace, for `--all-namespaces`.
pub(super) const NAMESPACE: Column<Machine> = Column::new("NAMESPACE", |it| it.namespace.clone());

impl ListItem for Run {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("RUN", |it| it.status.run.clone()),
        Column::new("STATE", |it| it.state_word().to_owned()),
        Column::new("SINCE", |it| span(it.status.since_seconds)),
        Column::new("NAME", |it| it.name.clone()),
        Column::new("RECORD", |it| it.status.seq.to_string()),
        Column::new("TASKS", |it| it.tasks.to_string()),
        Column::wide("BEGAN", |it| it.status.began.to_string()),
        Column::wide("CLOSED", |it| optional(&it.status.closed)),
    ];

    fn state(&self) -> Option<&str> {
        Some(self.state_word())
    }

    fn name(&self) -> String {
        self.status.run.clone()
    }

    fn is_called(&self, name: &str) -> bool {
        let key = self.status.run.split_once('/').map(|(_, key)| key);
        key == Some(name) || self.name == name
    }
}

/// A rollout, with what its machines say of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Rollout")]
pub(super) struct Progress {
    rollout: Rollout,
    /// Numbers of its machines; zero without them.
    pub(super) numbers: Numbers,
    /// Time until the queue is empty, in seconds.
    pub(super) left: Option<u64>,
    /// The same for people.
    left_text: Option<String>,
    /// Its state in a word.
    pub(super) word: String,
    /// Machines that are not updated because people, or a label, keep them as they are.
    kept: Option<String>,
    /// Names of its machines, with shorter ones.
    short: Vec<(String, String)>,
}

impl From<Rollout> for Progress {
    fn from(rollout: Rollout) -> Self {
        Self::of(rollout, &[])
    }
}

impl Progress {
    /// Progress of `rollout` with the known `machines`; the server estimates the duration of a turn.
    pub(super) fn of(rollout: Rollout, machines: &[Machine]) -> Self {
        let ours = machines.iter().filter(|it| it.pool == rollout.pool);
        let names: Vec<&str> = ours.map(|it| it.name.as_str()).collect();
        let short = short_names(&names);
        let names = names.into_iter().map(str::to_owned);
        Self {
            numbers: Numbers::of_pool(machines, &rollout.pool),
            left: problem::seconds_left(&rollout, machines),
            left_text: problem::time_left(&rollout, machines),
            word: problem::word_among(&rollout, machines).to_owned(),
            short: names.zip(short).collect(),
            kept: kept(machines, &rollout.pool),
            rollout,
        }
    }

    /// The text with shorter names of its machines.
    fn with_short_names(&self, text: &str) -> String {
        let names = self.short.iter();
        names.fold(text.to_owned(), |text, (name, short)| {
            text.replace(name, short)
        })
    }

    /// The rollout with shorter names of its machines: of the holders, and in sentences.
    fn with_shorter_names(mut self) -> Self {
        for at in 0..self.rollout.slots.len() {
            self.rollout.slots[at].name = self.with_short_names(&self.rollout.slots[at].name);
        }
        for at in 0..self.rollout.away.len() {
            self.rollout.away[at].name = self.with_short_names(&self.rollout.away[at].name);
        }
        let halted = self.rollout.halted.take();
        self.rollout.halted = halted.map(|text| self.with_short_names(&text));
        let waits = self.rollout.waiting_for.take();
        self.rollout.waiting_for = waits.map(|text| self.with_short_names(&text));
        let kept = self.kept.take();
        self.kept = kept.map(|text| self.with_short_names(&text));
        self
    }
}

/// Names of those machines of the pool that are not updated because people, or a label, keep them.
fn kept(machines: &[Machine], pool: &str) -> Option<String> {
    let open = machines
        .iter()
        .filter(|it| it.pool == pool && it.status.closed.is_none());
    let kept = open.filter(|it| it.halt.is_some() && it.served && !it.is_updated());
    let kept: Vec<&str> = kept.map(|it| it.name.as_str()).collect();
    (!kept.is_empty()).then(|| kept.join(", "))
}

impl ListItem for Progress {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("POOL", |it| it.rollout.pool.clone()),
        Column::new("STATE", |it| it.word.clone()),
        Column::new("MACHINES", |it| it.numbers.machines.to_string()),
        Column::new("SERVING", |it| it.numbers.serving.to_string()),
        Column::new("UPDATED", |it| it.numbers.updated.to_string()),
        Column::new("FAILED", |it| it.numbers.failed.to_string()),
        Column::new("UNAVAILABLE", |progress| {
            let most = progress.rollout.max_unavailable;
            let allowed = most.map_or_else(|| "?".to_owned(), |most| most.to_string());
            format!("{}/{allowed}", progress.rollout.unavailable)
        }),
        Column::new("HOLDER", |it| it.rollout.unavailable_machines().join(", ")),
        Column::new("QUEUE", |it| it.rollout.queue.len().to_string()),
        Column::new("TIME LEFT", |it| optional(&it.left_text)),
        Column::new("WAITING FOR", |progress| {
            let rollout = &progress.rollout;
            let still = problem::stands_still(rollout);
            let waits = still.or_else(|| rollout.waiting_for.clone());
            let kept = progress.kept.as_ref();
            let kept = || kept.map(|why| format!("kept as it is: {why}"));
            optional(&waits.or_else(|| rollout.direction()).or_else(kept))
        }),
        Column::wide("TOKEN", |it| it.rollout.token.to_string()),
        Column::wide("SINCE", |it| span(it.rollout.status.since_seconds)),
    ];

    const DROPPED_WHEN_NARROW: &'static [&'static str] = &[
        "FAILED",
        "SERVING",
        "UNAVAILABLE",
        "MACHINES",
        "QUEUE",
        "HOLDER",
        "TIME LEFT",
        "UPDATED",
    ];
    const LAST_COLUMN_CHARS_MIN: usize = 32;

    fn pool(&self) -> Option<&str> {
        Some(&self.rollout.pool)
    }

    fn state(&self) -> Option<&str> {
        Some(&self.word)
    }

    fn derived_state(&self) -> Option<&str> {
        Some(&self.word)
    }

    fn states() -> Vec<&'static str> {
        problem::ROLLOUT_WORDS.to_vec()
    }

    fn urgency(&self) -> Option<Urgency> {
        let rollout = &self.rollout;
        let stuck = rollout.halted.is_some() || rollout.held.is_some() || self.word == "Stuck";
        let paused = rollout.paused.is_some() || rollout.stopped_by().is_some();
        let paused = paused.then_some(Urgency::Person);
        stuck.then_some(Urgency::Stuck).or(paused)
    }

    fn name(&self) -> String {
        self.rollout.pool.clone()
    }

    fn shortened(shown: Vec<Self>) -> Vec<Self> {
        shown.into_iter().map(Self::with_shorter_names).collect()
    }

    fn with(self, machines: &[Machine]) -> Self {
        Self::of(self.rollout, machines)
    }
}

/// Names of the lease's holders.
pub(super) fn holders(rollout: &Rollout) -> String {
    let names: Vec<&str> = rollout.holders().map(|it| it.name.as_str()).collect();
    names.join(", ")
}

impl ListItem for QuarantinedRun {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("RUN", |it| it.run.clone()),
        Column::new("NAME", |it| optional(&it.name)),
        Column::new("CODE", |it| it.quarantine.code.clone()),
        Column::new("SINCE", |it| it.quarantine.since.to_string()),
        Column::wide("BUILDS", |it| it.quarantine.builds.join(", ")),
        Column::new("WHY", |it| it.quarantine.why.clone()),
    ];

    fn field(&self, key: &str) -> Option<String> {
        match key {
            "name" => self.name.clone(),
            "code" => Some(self.quarantine.code.clone()),
            _ => None,
        }
    }

    fn name(&self) -> String {
        self.run.clone()
    }

    fn urgency(&self) -> Option<Urgency> {
        Some(Urgency::Stuck)
    }

    fn sort_key(&self) -> (&str, &str) {
        (&self.run, "")
    }
}

impl ListItem for Task {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("MACHINE", |it| optional(&it.machine)),
        Column::new("TASK", |it| it.name.clone()),
        Column::new("ATTEMPT", |it| it.attempt.to_string()),
        Column::new("PHASE", |it| it.phase.to_string()),
        Column::new("SINCE", |it| optional(&it.since_seconds.map(span))),
        Column::new("STEP", |it| {
            optional(&it.heartbeat.as_ref().map(|at| &at.step))
        }),
        Column::new("DONE", |it| {
            optional(&it.heartbeat.as_ref().map(|at| at.done))
        }),
        Column::new("OF", |it| optional(&it.heartbeat.as_ref().map(|at| at.of))),
        Column::new("UNIT", |it| {
            optional(&it.heartbeat.as_ref().map(|at| &at.unit))
        }),
        Column::wide("UNTIL", |it| it.until.to_string()),
        Column::wide("WORKER", |it| {
            optional(&it.heartbeat.as_ref().map(|at| &at.worker))
        }),
        Column::wide("FAILURE", |it| {
            optional(&it.failure.as_ref().map(|at| &at.code))
        }),
        Column::wide("ID", |it| it.task.clone()),
    ];

    fn name(&self) -> String {
        self.task.clone()
    }
}

impl ListItem for Pool {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("POOL", |it| it.pool.clone()),
        Column::new("MAX UNAVAILABLE", |it| optional(&it.max_unavailable)),
        Column::new("APPROVAL", |it| it.approval.to_string()),
        Column::new("PAYLOAD", |it| optional(&it.payload)),
        Column::new("PAUSED", |it| optional(&it.paused)),
        Column::new("MACHINES", |it| it.members.to_string()),
        Column::new("REFUSED", |it| optional(&it.refused)),
    ];

    fn pool(&self) -> Option<&str> {
        Some(&self.pool)
    }

    fn name(&self) -> String {
        self.pool.clone()
    }

    fn with(self, machines: &[Machine]) -> Self {
        Self {
            members: Numbers::of_pool(machines, &self.pool).machines,
            ..self
        }
    }
}

/// States and urgencies of machines, and what people did to stop them.
pub(super) fn machine_states() -> Vec<&'static str> {
    let states = MachineState::ALL.iter().map(|it| it.id());
    let halts = HaltKind::ALL.iter().map(|it| it.id());
    states.chain(halts).chain(URGENCIES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{machine_with, rollout_with};
    use serde_json::{Value, json};

    #[test]
    fn a_run_is_chosen_by_the_word_that_its_row_shows() {
        let run: Run = serde_json::from_value(json!({"run": "rollout/windows", "seq": 9, "enteredSeq": 7,
            "began": "2026-11-21T06:00:00.000Z", "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 61,
            "workflow": "rollout", "name": "windows", "state": "Open", "state_text": "Idle", "tasks": 0}))
        .expect("a run");
        let column = Run::COLUMNS.iter().find(|it| it.heading == "STATE");
        assert_eq!((column.expect("a column").cell)(&run), "Idle");
        assert_eq!(run.state(), Some("Idle"));
    }

    #[test]
    fn unavailable_machines_and_the_state_are_named() {
        let column = |name: &str, rollout: &Rollout| {
            let column = Progress::COLUMNS.iter().find(|it| it.heading == name);
            (column.expect("a column").cell)(&Progress::of(rollout.clone(), &[]))
        };
        let slot = json!({"token": 4, "holder": "a", "name": "win-a", "marked": false, "seq": 3,
            "since": "2026-11-21T07:00:00.000Z", "waitsFor": null});
        let mut drained = slot.clone();
        drained["stopped"] = json!("drained by ann");
        let mut gone = slot.clone();
        gone["vacant"] = json!(true);
        let cordoned = json!([{"uid": "b", "name": "win-b", "why": "cordoned"}]);
        for (fields, state, holder) in [
            (json!({}), "Idle", ""),
            (json!({"slots": [slot]}), "Running", "win-a"),
            (
                json!({"slots": [drained], "maxUnavailable": 1}),
                "Stopped",
                "win-a",
            ),
            (json!({"slots": [gone]}), "Running", "win-a (gone)"),
            (json!({"away": cordoned}), "Idle", "win-b (cordoned)"),
        ] {
            let rollout = rollout_with(fields);
            assert_eq!(column("STATE", &rollout), state, "{rollout:?}");
            assert_eq!(column("HOLDER", &rollout), holder, "{rollout:?}");
        }
        let back = json!({"payload": "11.0.0", "overridden": {"specPayload": "11.1.0", "by": "ann: the weekend"}});
        let back = column("WAITING FOR", &rollout_with(back));
        assert!(
            back.starts_with("rolled back to 11.0.0 instead of 11.1.0"),
            "{back}"
        );
        assert!(
            back.ends_with("dormer rollback --pool windows --end"),
            "{back}"
        );
    }

    #[test]
    fn a_machine_that_is_kept_behind_is_named() {
        let behind = json!({"halt": {"kind": "held", "by": "ann", "text": "held by ann"}, "served": true,
            "version": "v1", "desiredVersion": "v2", "state": "Joined", "phase": "serving"});
        let waits = |machine: Value| {
            let machines = [machine_with(machine)];
            let progress = Progress::of(rollout_with(json!({})), &machines);
            let column = Progress::COLUMNS
                .iter()
                .find(|it| it.heading == "WAITING FOR");
            (column.expect("a column").cell)(&progress)
        };
        assert_eq!(waits(behind.clone()), "kept as it is: win-1");
        let mut updated = behind;
        updated["version"] = json!("v2");
        assert_eq!(waits(updated), "");
    }

    #[test]
    fn a_kind_may_bring_a_name_and_only_its_own_kind_is_taken_off() {
        let parsed = |text: &str| {
            let command = clap::Command::new("get");
            let parser = TargetParser::<Kind>::new();
            parser.parse_ref(&command, None, OsStr::new(text))
        };
        let found = parsed("machine/win-1").expect("a kind");
        assert_eq!(found.kind, Kind::Machines);
        assert_eq!(found.name.as_deref(), Some("win-1"));
        let found = parsed("run/machine/u1").expect("a kind");
        assert_eq!(
            (found.kind, found.name.as_deref()),
            (Kind::Runs, Some("machine/u1"))
        );
        assert_eq!(parsed("pools").expect("a kind").name, None);
        assert!(parsed("machinse/win-1").is_err());
        assert_eq!(Kind::Pools.bare("pool/windows"), "windows");
        assert_eq!(Kind::Rollouts.bare("pool/windows"), "pool/windows");
        assert_eq!(Kind::Runs.bare("run/x"), "run/x");
    }

    #[test]
    fn the_time_left_is_that_of_the_turns_that_wait() {
        let updated =
            machine_with(json!({"served": true, "version": "v2", "desiredVersion": "v2"}));
        let waiting = json!({"uid": "w", "name": "w", "position": 1, "away": false});
        let rollout =
            |fields: Value| Progress::of(rollout_with(fields), std::slice::from_ref(&updated));
        let queued = json!({"queue": [waiting.clone(), waiting], "maxUnavailable": 1,
            "typicalTurnSeconds": 600});
        let queued = rollout(queued);
        assert_eq!((queued.numbers.updated, queued.left), (1, Some(1_200)));
        assert_eq!(rollout(json!({})).left, None);
    }
}
