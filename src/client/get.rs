//! `dormer get`: machines, runs, rollouts, tasks, pools and quarantined runs, one per line.

use super::{
    Failure, To,
    answer::Answer,
    output::{Column, optional, table},
    server::{Server, segment},
};
use clap::{Args, ValueEnum};
use dormer_views::{
    lacks::Lack,
    machine::Machine,
    moment::span,
    rollout::{Pool, Rollout},
    run::{List, QuarantinedRun, Run, Task},
};
use serde::{Deserialize, de::DeserializeOwned};

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
    /// Quarantined runs, which engines leave alone until they are released
    #[value(aliases = ["quarantined"])]
    Quarantine,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Self::Machines => "/machines",
            Self::Runs => "/runs",
            Self::Rollouts => "/rollouts",
            Self::Tasks => "/tasks",
            Self::Pools => "/pools",
            Self::Quarantine => "/quarantine",
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
pub(super) trait Item: DeserializeOwned + 'static {
    const COLUMNS: &'static [Column<Self>];

    /// Pool of the item, for `--pool`.
    fn pool(&self) -> Option<&str> {
        None
    }

    /// Id of the item's state, for `--state`.
    fn state(&self) -> Option<&str> {
        None
    }

    /// Sort key of the table. Items with equal keys keep the server's order.
    fn sort_key(&self) -> (&str, &str) {
        ("", "")
    }
}

impl Item for Machine {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |it| it.name.clone()),
        Column::new("STATE", |it| it.state.to_string()),
        Column::new("PHASE", |it| it.phase_text.clone()),
        Column::new("VERSION", |it| optional(&it.version)),
        Column::new("SINCE", |it| span(it.status.since_seconds)),
        Column::new("WAITING FOR", |it| optional(&it.waiting_for)),
        Column::wide("ATTEMPT", |it| optional(&it.attempt)),
        Column::wide("DESIRED", |it| optional(&it.desired_version)),
        Column::wide("NODE", |it| optional(&it.node)),
        Column::wide("ADDRESS", |it| optional(&it.address)),
        Column::wide("POOL", |it| it.pool.clone()),
        Column::wide("NAMESPACE", |it| it.namespace.clone()),
        Column::wide("UID", |it| it.uid.clone()),
        Column::wide("REASON", |it| optional(&it.reason)),
    ];

    fn pool(&self) -> Option<&str> {
        Some(&self.pool)
    }

    fn state(&self) -> Option<&str> {
        Some(self.state.id())
    }

    fn sort_key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

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
        Column::new("WAITING FOR", |it| optional(&it.waiting_for)),
        Column::wide("TOKEN", |it| it.token.to_string()),
        Column::wide("SINCE", |it| span(it.status.since_seconds)),
    ];

    fn pool(&self) -> Option<&str> {
        Some(&self.pool)
    }

    fn state(&self) -> Option<&str> {
        Some(self.state.id())
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
}

impl Item for QuarantinedRun {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("RUN", |it| it.run.clone()),
        Column::new("NAME", |it| optional(&it.name)),
        Column::new("CODE", |it| it.quarantine.code.clone()),
        Column::new("SINCE", |it| it.quarantine.since.to_string()),
        Column::wide("BUILDS", |it| it.quarantine.builds.join(", ")),
        Column::new("WHY", |it| it.quarantine.why.clone()),
    ];

    fn sort_key(&self) -> (&str, &str) {
        (&self.run, "")
    }
}

/// Arguments of `dormer get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Kind of objects
    kind: Kind,
    /// Only this one: a name, a UID, or WORKFLOW/KEY of a run; for tasks, the machine
    name: Option<String>,
    /// Only machines of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Only those in this state, such as Failed
    #[arg(long)]
    state: Option<String>,
    /// Also machines that are gone
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    to: To,
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
        let server = self.to.server()?;
        match (self.kind, &self.name) {
            (Kind::Machines, _) => self.found::<Machine>(&server).await,
            (Kind::Runs, _) => self.found::<Run>(&server).await,
            (Kind::Rollouts, _) => self.found::<Rollout>(&server).await,
            (Kind::Pools, _) => self.found::<Pool>(&server).await,
            (Kind::Quarantine, _) => self.quarantined(&server).await,
            (Kind::Tasks, None) => self.found::<Task>(&server).await,
            (Kind::Tasks, Some(machine)) => self.tasks_of(&server, machine).await,
        }
    }

    fn path(&self) -> String {
        let ended = if self.all && self.kind == Kind::Machines {
            "?all=true"
        } else {
            ""
        };
        format!("{}{ended}", self.kind.path())
    }

    /// Reads the named object, or all that match the filters.
    async fn found<T: Item>(&self, server: &Server) -> Result<String, Failure> {
        if let Some(name) = &self.name {
            let one: Answer<T> = server.get(&self.kind.one(name)).await?;
            let programs = self.to.programs(&one)?;
            return Ok(programs.unwrap_or_else(|| table([&one.view], T::COLUMNS, self.to.wide())));
        }
        let mut listing: Listing<T> = server.get(&self.path()).await?;
        listing.items.retain(|item| {
            fits(&self.pool, item.view.pool()) && fits(&self.state, item.view.state())
        });
        self.listed(listing)
    }

    /// Reads the quarantined runs; the name selects one by its id or its name.
    async fn quarantined(&self, server: &Server) -> Result<String, Failure> {
        let mut listing: Listing<QuarantinedRun> = server.get(&self.path()).await?;
        listing.items.retain(|item| {
            let QuarantinedRun { run, name, .. } = &item.view;
            let wanted = self.name.as_ref();
            wanted.is_none_or(|wanted| wanted == run || Some(wanted) == name.as_ref())
        });
        self.listed(listing)
    }

    /// Reads the open tasks of one machine.
    async fn tasks_of(&self, server: &Server, machine: &str) -> Result<String, Failure> {
        let machine: Machine = server.get(&Kind::Machines.one(machine)).await?;
        let List { mut items } = server.get::<List<Answer<Task>>>(self.kind.path()).await?;
        items.retain(|task| task.view.run == machine.status.run);
        self.listed(Listing {
            items,
            lacks: Vec::new(),
        })
    }

    fn listed<T: Item>(&self, listing: Listing<T>) -> Result<String, Failure> {
        let Listing { items, lacks } = listing;
        if let Some(text) = self.to.programs(&items)? {
            return Ok(text);
        }
        if items.is_empty() {
            return Ok("None found.".into());
        }
        let mut shown: Vec<&T> = items.iter().map(|item| &item.view).collect();
        shown.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
        let mut parts: Vec<String> = lacks.iter().map(Lack::sentence).collect();
        parts.push(table(shown, T::COLUMNS, self.to.wide()));
        Ok(parts.join("\n\n"))
    }
}

/// Whether a value matches a filter. A missing value matches no filter.
pub(super) fn fits(wanted: &Option<String>, found: Option<&str>) -> bool {
    wanted
        .as_ref()
        .is_none_or(|wanted| found.is_some_and(|found| found.eq_ignore_ascii_case(wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::machine_with;
    use serde_json::json;

    #[test]
    fn a_machines_row_has_its_phase_in_words_and_counts_by_the_clock_of_the_server() {
        let machine = machine_with(json!({"version": "v1", "sinceSeconds": 312}));
        let text = table([&machine], Machine::COLUMNS, false);
        let row = text.lines().nth(1).unwrap_or_default();
        for part in [
            "win-1",
            "Reachable",
            "converging the host",
            "v1",
            "5m12s",
            "-",
        ] {
            assert!(row.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_state_is_compared_by_its_id_without_case() {
        let machine = machine_with(json!({"state": "Failed"}));
        assert!(fits(&Some("failed".into()), machine.state()));
        assert!(!fits(&Some("Joined".into()), machine.state()));
        assert!(fits(&None, None) && !fits(&Some("Joined".into()), None));
    }
}
