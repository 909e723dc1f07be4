//! `dormer get`: machines, runs, rollouts, tasks and pools, one per line.

use super::{
    Failure, To,
    answer::Answer,
    filter::{Filter, machine_states},
    machines,
    output::{Column, Output, optional, table},
    server::{Address, Server, segment},
    terminal::{self, Style},
    watch,
};
use clap::{Args, ValueEnum};
use dormer_proto::{
    id::Timestamp,
    phase::{Listed, RolloutState},
};
use dormer_views::{
    lacks::Lack,
    machine::{Machine, Machines},
    moment::{Moment, span},
    rollout::{Pool, Rollout},
    run::{List, Run, Task},
    trouble::{self, Urgency, trouble},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::cmp::Ordering;

/// Kinds that can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Machines
    #[value(aliases = ["machine", "m"])]
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
    #[value(aliases = ["pool"])]
    Pools,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Self::Machines => "/machines",
            Self::Runs => "/runs",
            Self::Rollouts => "/rollouts",
            Self::Tasks => "/tasks",
            Self::Pools => "/pools",
        }
    }

    /// Kind of one object, for `-o name`.
    fn singular(self) -> &'static str {
        match self {
            Self::Machines => "machine",
            Self::Runs => "run",
            Self::Rollouts => "rollout",
            Self::Tasks => "task",
            Self::Pools => "pool",
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
pub(super) trait Item: DeserializeOwned + Clone + 'static {
    const COLUMNS: &'static [Column<Self>];

    /// Pool of the item, for `--pool`.
    fn pool(&self) -> Option<&str> {
        None
    }

    /// Id of the item's state, for `--state`.
    fn state(&self) -> Option<&str> {
        None
    }

    /// Values that `--state` may have for such items; empty if any may occur.
    fn states() -> Vec<&'static str> {
        Vec::new()
    }

    /// How urgently it needs attention.
    fn urgency(&self) -> Option<Urgency> {
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

    /// The item under a shorter name.
    fn called(self, _: String) -> Self {
        self
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
            None => Style::Plain,
        }
    }
}

/// Age of a machine: since its Machine was created or, if that is unknown, since dormer knows it.
fn age(machine: &Machine) -> String {
    let status = &machine.status;
    let Moment(Timestamp(since)) = status.since;
    let Moment(Timestamp(from)) = machine.created.unwrap_or(status.began);
    span(status.since_seconds + since.saturating_sub(from) / 1_000)
}

impl Item for Machine {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |it| it.name.clone()),
        Column::new("STATE", |it| it.state.to_string()),
        Column::new("PHASE", |it| it.phase_text.clone()),
        Column::new("SINCE", |it| span(it.status.since_seconds)),
        Column::new("AGE", age),
        Column::new("VERSION", |it| optional(&it.version)),
        Column::new("REASON", |it| optional(&trouble::in_short(it))),
        Column::wide("WAITING FOR", |it| optional(&it.waiting_for)),
        Column::wide("ATTEMPT", |it| optional(&it.attempt)),
        Column::wide("DESIRED", |it| optional(&it.desired_version)),
        Column::wide("NODE", |it| optional(&it.node)),
        Column::wide("ADDRESS", |it| optional(&it.address)),
        Column::wide("POOL", |it| it.pool.clone()),
        Column::wide("NAMESPACE", |it| it.namespace.clone()),
        Column::wide("UID", |it| it.uid.clone()),
    ];

    fn pool(&self) -> Option<&str> {
        Some(&self.pool)
    }

    fn state(&self) -> Option<&str> {
        Some(self.state.id())
    }

    fn states() -> Vec<&'static str> {
        machine_states()
    }

    fn urgency(&self) -> Option<Urgency> {
        trouble(self).map(|it| it.urgency)
    }

    fn field(&self, key: &str) -> Option<String> {
        Some(match key {
            "name" => self.name.clone(),
            "namespace" => self.namespace.clone(),
            "pool" => self.pool.clone(),
            "state" => self.state.to_string(),
            "phase" => self.phase.to_string(),
            "version" => return self.version.clone(),
            "node" => return self.node.clone(),
            "owner" => return self.owner.clone(),
            "code" => return trouble(self).map(|it| it.code),
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
const NAMESPACE: Column<Machine> = Column::new("NAMESPACE", |it| it.namespace.clone());

impl Item for Run {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("RUN", |it| it.status.run.clone()),
        Column::new("STATE", |it| it.state.clone()),
        Column::new("SINCE", |it| span(it.status.since_seconds)),
        Column::new("NAME", |it| it.name.clone()),
        Column::new("SEQ", |it| it.status.seq.to_string()),
        Column::new("TASKS", |it| it.tasks.to_string()),
        Column::wide("BEGAN", |it| it.status.began.to_string()),
        Column::wide("CLOSED", |it| optional(&it.status.closed)),
    ];

    fn state(&self) -> Option<&str> {
        Some(&self.state)
    }

    fn name(&self) -> String {
        self.status.run.clone()
    }
}

/// A rollout, with what its machines say of it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Progress {
    #[serde(flatten)]
    rollout: Rollout,
    /// Machines that serve with the version that they should carry; unknown without the machines.
    #[serde(skip)]
    pub(super) updated: Option<u64>,
    /// Time until the queue is empty, in seconds.
    #[serde(skip)]
    pub(super) left: Option<u64>,
}

impl Progress {
    /// Progress of `rollout`, of which `machines` are known; those that are gone say how long a turn takes.
    pub(super) fn of(rollout: Rollout, machines: &[Machine]) -> Self {
        let ours = || machines.iter().filter(|it| it.pool == rollout.pool);
        let updated = ours().filter(|it| {
            let same = it.version.is_some() && it.version == it.desired_version;
            it.served && same && it.status.closed.is_none()
        });
        Self {
            updated: Some(updated.count() as u64),
            left: time_left(&rollout, ours()),
            rollout,
        }
    }
}

/// Seconds until the queue is empty: as many turns as wait and go on, each as long as the finished ones took on
/// average. `None`: nothing waits, nothing is granted now, or no turn has ended.
fn time_left<'a>(rollout: &Rollout, machines: impl Iterator<Item = &'a Machine>) -> Option<u64> {
    if trouble::stands_still(rollout).is_some() {
        return None;
    }
    let turns = (rollout.queue.len() + rollout.slots.len()) as u64;
    let lasted: Vec<u64> = machines
        .filter_map(|machine| machine.status.episode.as_ref())
        .filter(|episode| episode.kind == "upgrade")
        .filter_map(|episode| Some(episode.to?.0.0.saturating_sub(episode.from.0.0)))
        .collect();
    let count = lasted.len() as u64;
    let average = lasted.iter().sum::<u64>().checked_div(count)?;
    let beside = rollout.max_unavailable.unwrap_or(1).max(1);
    (turns > 0).then(|| turns.div_ceil(beside) * average / 1_000)
}

impl Item for Progress {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("POOL", |it| it.rollout.pool.clone()),
        Column::new("STATE", |it| it.rollout.state.to_string()),
        Column::new("MEMBERS", |it| it.rollout.members.to_string()),
        Column::new("UPDATED", |it| optional(&it.updated)),
        Column::new("JOINED", |it| it.rollout.joined.to_string()),
        Column::new("FAILED", |it| it.rollout.failed.to_string()),
        Column::new("UNAVAILABLE", |it| {
            let allowed = it.rollout.max_unavailable;
            let allowed = allowed.map_or_else(|| "?".to_owned(), |it| it.to_string());
            format!("{}/{allowed}", it.rollout.unavailable)
        }),
        Column::new("HOLDER", |it| holders(&it.rollout)),
        Column::new("QUEUE", |it| it.rollout.queue.len().to_string()),
        Column::new("TIME LEFT", |it| optional(&it.left.map(span))),
        Column::new("WAITING FOR", |it| {
            let still = trouble::stands_still(&it.rollout);
            optional(&still.or_else(|| it.rollout.waiting_for.clone()))
        }),
        Column::wide("TOKEN", |it| it.rollout.token.to_string()),
        Column::wide("SINCE", |it| span(it.rollout.status.since_seconds)),
    ];

    fn pool(&self) -> Option<&str> {
        self.rollout.pool()
    }

    fn state(&self) -> Option<&str> {
        Some(self.rollout.state.id())
    }

    fn states() -> Vec<&'static str> {
        Rollout::states()
    }

    fn urgency(&self) -> Option<Urgency> {
        self.rollout.urgency()
    }

    fn name(&self) -> String {
        self.rollout.pool.clone()
    }

    fn with(self, machines: &[Machine]) -> Self {
        Self::of(self.rollout, machines)
    }
}

/// Names of the lease's holders.
pub(super) fn holders(rollout: &Rollout) -> String {
    let names: Vec<&str> = rollout.slots.iter().map(|it| it.name.as_str()).collect();
    names.join(", ")
}

impl Item for Rollout {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("POOL", |it| it.pool.clone()),
        Column::new("STATE", |it| it.state.to_string()),
        Column::new("MEMBERS", |it| it.members.to_string()),
        Column::new("JOINED", |it| it.joined.to_string()),
        Column::new("FAILED", |it| it.failed.to_string()),
        Column::new("UNAVAILABLE", |it| it.unavailable.to_string()),
        Column::new("ALLOWED", |it| optional(&it.max_unavailable)),
        Column::new("HOLDER", holders),
        Column::new("WAITING FOR", |it| {
            let still = trouble::stands_still(it);
            optional(&still.or_else(|| it.waiting_for.clone()))
        }),
        Column::wide("TOKEN", |it| it.token.to_string()),
        Column::wide("SINCE", |it| span(it.status.since_seconds)),
    ];

    fn pool(&self) -> Option<&str> {
        Some(&self.pool)
    }

    fn state(&self) -> Option<&str> {
        Some(self.state.id())
    }

    fn states() -> Vec<&'static str> {
        RolloutState::ALL.iter().map(|it| it.id()).collect()
    }

    fn urgency(&self) -> Option<Urgency> {
        let stuck = self.halted.is_some() || self.held.is_some();
        let paused = self.paused.as_ref().map(|_| Urgency::Person);
        stuck.then_some(Urgency::Stuck).or(paused)
    }

    fn name(&self) -> String {
        self.pool.clone()
    }
}

impl Item for Task {
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

impl Item for Pool {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("POOL", |it| it.pool.clone()),
        Column::new("MAX UNAVAILABLE", |it| optional(&it.max_unavailable)),
        Column::new("APPROVAL", |it| it.approval.to_string()),
        Column::new("PAUSED", |it| optional(&it.paused)),
        Column::new("MEMBERS", |it| it.members.to_string()),
    ];

    fn pool(&self) -> Option<&str> {
        Some(&self.pool)
    }

    fn name(&self) -> String {
        self.pool.clone()
    }
}

/// Output format of `dormer get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum GetOutput {
    /// A table for people
    #[default]
    Table,
    /// A table with more columns
    Wide,
    /// JSON, as the API answers it
    Json,
    /// The same as YAML
    Yaml,
    /// KIND/NAME, one per line
    Name,
}

impl GetOutput {
    /// The same format of other commands. [`Self::Name`] is one of this command only.
    fn common(self) -> Output {
        match self {
            Self::Table | Self::Name => Output::Table,
            Self::Wide => Output::Wide,
            Self::Json => Output::Json,
            Self::Yaml => Output::Yaml,
        }
    }
}

/// Arguments of `dormer get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Kind of objects
    kind: Kind,
    /// Only these: names, UIDs, or WORKFLOW/KEY of runs; for tasks, the machine
    names: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Also machines that are gone
    #[arg(long)]
    all: bool,
    /// Show the namespace, too; machines of all namespaces are listed in any case
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Sort by this field of the JSON, such as since, name or failure.code [default: what needs attention first]
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<String>,
    /// Leave out the headings
    #[arg(long)]
    no_headers: bool,
    /// Keep watching, until you press Ctrl-C; machines and rollouts only
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    address: Address,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: GetOutput,
}

/// List in the server's answer.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Listing<T> {
    items: Vec<Answer<T>>,
    /// Prerequisites that dormer itself lacks. Only the list of machines has them.
    #[serde(default)]
    lacks: Vec<Lack>,
}

impl Get {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        if self.watch {
            return self.watched()?.run().await;
        }
        let server = self.address.server();
        match self.kind {
            Kind::Machines => self.found::<Machine>(&server).await,
            Kind::Runs => self.found::<Run>(&server).await,
            Kind::Rollouts => self.found::<Progress>(&server).await,
            Kind::Pools => self.found::<Pool>(&server).await,
            Kind::Tasks => match self.names.as_slice() {
                [] => self.found::<Task>(&server).await,
                [machine] => self.tasks_of(&server, machine).await,
                _ => Err(Failure::Usage("give one machine, or none".into())),
            },
        }
    }

    /// The same as `dormer watch`.
    fn watched(self) -> Result<watch::Watch, Failure> {
        let kind = match self.kind {
            Kind::Machines => watch::Watched::Machines,
            Kind::Rollouts => watch::Watched::Rollouts,
            Kind::Runs | Kind::Tasks | Kind::Pools => {
                let message = "--watch: only machines and rollouts can be watched";
                return Err(Failure::Usage(message.into()));
            }
        };
        let formats = self.output == GetOutput::Name || self.no_headers || self.sort_by.is_some();
        if self.names.len() > 1 || formats {
            let message =
                "--watch takes one name, and neither -o name nor --sort-by nor --no-headers";
            return Err(Failure::Usage(message.into()));
        }
        let to = To {
            address: self.address,
            output: self.output.common(),
        };
        let name = self.names.into_iter().next();
        Ok(watch::Watch::new(kind, name, self.filter, self.all, to))
    }

    fn path(&self) -> String {
        let ended = if self.all && self.kind == Kind::Machines {
            "?all=true"
        } else {
            ""
        };
        format!("{}{ended}", self.kind.path())
    }

    /// Reads the named objects, or all that match the filters.
    async fn found<T: Item>(&self, server: &Server) -> Result<String, Failure> {
        self.filter
            .check::<T>(self.kind.path().trim_start_matches('/'))?;
        if self.names.is_empty() {
            let mut listing: Listing<T> = server.get(&self.path()).await?;
            listing.items.retain(|item| self.filter.takes(&item.view));
            if listing.items.is_empty() {
                self.check_pool(server).await?;
            }
            return self.listed(server, listing).await;
        }
        let mut items = Vec::new();
        for name in &self.names {
            items.push(self.one::<T>(server, name).await?);
        }
        if let [one] = items.as_slice()
            && let Some(text) = self.programs(one)?
        {
            return Ok(text);
        }
        let lacks = Vec::new();
        self.listed(server, Listing { items, lacks }).await
    }

    async fn one<T: Item>(&self, server: &Server, name: &str) -> Result<Answer<T>, Failure> {
        if self.kind == Kind::Machines {
            let found = machines::answer(server, name).await?;
            let found = serde_json::to_value(&found).map_err(Failure::unreadable)?;
            return serde_json::from_value(found).map_err(Failure::unreadable);
        }
        server.get(&self.kind.one(name)).await
    }

    /// Refuses a pool that nobody knows: an empty list would hide the mistake.
    async fn check_pool(&self, server: &Server) -> Result<(), Failure> {
        let Some(pool) = &self.filter.pool else {
            return Ok(());
        };
        let Ok(List { items }) = server.get::<List<Pool>>("/pools").await else {
            return Ok(());
        };
        let pools: Vec<&str> = items.iter().map(|it| it.pool.as_str()).collect();
        if pools.contains(&pool.as_str()) {
            return Ok(());
        }
        let known = match pools.as_slice() {
            [] => "there are none yet".to_owned(),
            pools => format!("there are {}", pools.join(", ")),
        };
        Err(Failure::Usage(format!(
            "--pool {pool}: there is no such pool; {known}"
        )))
    }

    /// Reads the open tasks of one machine.
    async fn tasks_of(&self, server: &Server, machine: &str) -> Result<String, Failure> {
        let machine = machines::machine(server, machine).await?;
        let List { mut items } = server.get::<List<Answer<Task>>>(self.kind.path()).await?;
        items.retain(|task| task.view.run == machine.status.run);
        let lacks = Vec::new();
        self.listed(server, Listing { items, lacks }).await
    }

    fn programs(&self, value: &impl Serialize) -> Result<Option<String>, Failure> {
        self.output.common().for_programs(value)
    }

    async fn listed<T: Item>(
        &self,
        server: &Server,
        listing: Listing<T>,
    ) -> Result<String, Failure> {
        let Listing { mut items, lacks } = listing;
        match &self.sort_by {
            Some(field) => sort_by(&mut items, field)?,
            None => items.sort_by(|one, other| by_urgency(&one.view, &other.view)),
        }
        if let Some(text) = self.programs(&items)? {
            return Ok(text);
        }
        if self.output == GetOutput::Name {
            let kind = self.kind.singular();
            let lines = items.iter().map(|it| format!("{kind}/{}", it.view.name()));
            return Ok(lines.collect::<Vec<_>>().join("\n"));
        }
        if items.is_empty() {
            return Ok("None found.".into());
        }
        let mut shown: Vec<T> = items.into_iter().map(|item| item.view).collect();
        if self.kind == Kind::Rollouts {
            shown = with_progress(server, shown).await;
        }
        let mut parts: Vec<String> = lacks.iter().map(Lack::sentence).collect();
        parts.push(self.table(shown));
        Ok(parts.join("\n\n"))
    }

    /// Table that fits the terminal: names are shortened first, then lines are cut.
    fn table<T: Item>(&self, mut shown: Vec<T>) -> String {
        let wide = self.output == GetOutput::Wide;
        let columns = terminal::columns().filter(|_| !wide);
        let mut text = self.lines(&shown, wide);
        if let Some(columns) = columns
            && text.lines().any(|line| line.chars().count() > columns)
        {
            let names: Vec<String> = shown.iter().map(Item::name).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let short = machines::short_names(&names);
            let renamed = shown.into_iter().zip(short);
            shown = renamed.map(|(item, name)| item.called(name)).collect();
            text = self.lines(&shown, wide);
        }
        let coloured = terminal::coloured();
        let styles = std::iter::once(Style::Heading).chain(shown.iter().map(Item::style));
        let lines = text.lines().zip(styles).map(|(line, style)| {
            let line = columns.map_or_else(|| line.to_owned(), |most| terminal::cut(line, most));
            style.paint(&line, coloured)
        });
        let skipped = usize::from(self.no_headers);
        lines.skip(skipped).collect::<Vec<_>>().join("\n")
    }

    fn lines<T: Item>(&self, shown: &[T], wide: bool) -> String {
        let text = table(shown, T::COLUMNS, wide);
        let namespaces: Vec<&str> = shown.iter().map(|it| it.sort_key().0).collect();
        if !self.all_namespaces || self.kind != Kind::Machines || wide {
            return text;
        }
        let heading = NAMESPACE.heading;
        let widest = namespaces.iter().map(|it| it.len()).max().unwrap_or(0);
        let width = widest.max(heading.len()) + 2;
        let cells = std::iter::once(heading).chain(namespaces);
        let lines = cells.zip(text.lines());
        let lines = lines.map(|(cell, line)| format!("{cell:width$}{line}"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Rollouts with what their machines say of them. Without a right to list machines those columns stay empty.
async fn with_progress<T: Item>(server: &Server, shown: Vec<T>) -> Vec<T> {
    let Ok(Machines { items, .. }) = server.get("/machines?all=true").await else {
        return shown;
    };
    shown.into_iter().map(|it| it.with(&items)).collect()
}

/// Order of a table: the most urgent first, then by namespace and name.
fn by_urgency<T: Item>(one: &T, other: &T) -> Ordering {
    let urgency = |item: &T| item.urgency().map_or(usize::MAX, |it| it as usize);
    urgency(one)
        .cmp(&urgency(other))
        .then_with(|| one.sort_key().cmp(&other.sort_key()))
}

/// Sorts by a field of the JSON, such as `since` or `failure.code`. Items without it come last.
fn sort_by<T>(items: &mut [Answer<T>], field: &str) -> Result<(), Failure> {
    let pointer: String = field
        .trim_start_matches('.')
        .split('.')
        .map(|part| format!("/{part}"))
        .collect();
    let found = |item: &Answer<T>| {
        item.raw()
            .pointer(&pointer)
            .filter(|it| !it.is_null())
            .cloned()
    };
    let known = |item: &Answer<T>| item.raw().pointer(&pointer).is_some();
    if !items.is_empty() && !items.iter().any(known) {
        let fields = items.first().and_then(|it| it.raw().as_object());
        let fields: Vec<&str> = fields
            .into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .collect();
        return Err(Failure::Usage(format!(
            "--sort-by {field}: there is no such field; there are {}",
            fields.join(", ")
        )));
    }
    items.sort_by(|one, other| compared(found(one).as_ref(), found(other).as_ref()));
    Ok(())
}

fn compared(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => {
                let text = |value: &Value| {
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned)
                };
                text(one).cmp(&text(other))
            }
        },
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{machine_with, rollout_with};
    use serde_json::json;

    #[test]
    fn a_machines_row_has_its_phase_in_words_and_counts_by_the_clock_of_the_server() {
        let machine =
            machine_with(json!({"version": "v1", "sinceSeconds": 312, "waitingFor": "SSH"}));
        let text = table([&machine], Machine::COLUMNS, false);
        let row = text.lines().nth(1).unwrap_or_default();
        for part in [
            "win-1",
            "Reachable",
            "converging the host",
            "v1",
            "5m12s",
            "1h5m",
            "waits for SSH",
        ] {
            assert!(row.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_is_stuck_comes_first_and_then_the_names() {
        let named = |name: &str, state: &str, phase: &str, seconds: u64| {
            machine_with(
                json!({"name": name, "state": state, "phase": phase, "sinceSeconds": seconds}),
            )
        };
        let mut all = [
            named("a", "Joined", "serving", 9),
            named("c", "Provisioned", "probing", 7_200),
            named("b", "Joined", "serving", 9),
            named("d", "Provisioned", "probing", 1_000),
        ];
        all.sort_by(by_urgency);
        assert_eq!(all.map(|it| it.name), ["c", "d", "a", "b"]);
    }

    #[test]
    fn a_field_sorts_by_number_and_by_text_and_an_unknown_one_is_refused() {
        let answer = |value: Value| serde_json::from_value::<Answer<Value>>(value).unwrap();
        let mut items = [
            json!({"n": 10, "t": "b"}),
            json!({"n": 9, "t": "a", "in": {"x": 1}}),
            json!({"n": null}),
        ]
        .map(answer);
        let order = |items: &[Answer<Value>]| {
            let numbers = items.iter().map(|it| it.raw()["n"].as_u64());
            numbers.collect::<Vec<_>>()
        };
        sort_by(&mut items, ".n").unwrap();
        assert_eq!(order(&items), [Some(9), Some(10), None]);
        sort_by(&mut items, "t").unwrap();
        assert_eq!(order(&items), [Some(9), Some(10), None]);
        sort_by(&mut items, "in.x").unwrap();
        let refused = sort_by(&mut items, "colour").unwrap_err().to_string();
        assert!(refused.contains("n, t"), "{refused}");
    }

    #[test]
    fn the_time_left_is_that_of_the_turns_that_wait() {
        let upgraded = machine_with(
            json!({"served": true, "version": "v2", "desiredVersion": "v2",
            "episode": {"kind": "upgrade", "seq": 3, "from": "2026-11-21T07:00:00.000Z",
                "to": "2026-11-21T07:10:00.000Z", "result": "done"}}),
        );
        let waiting = json!({"uid": "w", "name": "w", "position": 1, "away": false});
        let rollout =
            |fields: Value| Progress::of(rollout_with(fields), std::slice::from_ref(&upgraded));
        let queued = rollout(json!({"queue": [waiting.clone(), waiting], "maxUnavailable": 1}));
        assert_eq!((queued.updated, queued.left), (Some(1), Some(1_200)));
        let paused = rollout(json!({"paused": "ann", "queue": queued.rollout.queue}));
        assert_eq!(paused.left, None, "nobody knows while it is paused");
        assert_eq!(rollout(json!({})).left, None);
    }
}
