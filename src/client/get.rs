//! `dormer get` and `dormer describe`: what there is, in lines or in full.

use super::{
    Failure, To,
    output::{Column, plain, table},
    server::segment,
};
use clap::{Args, ValueEnum};
use dormer_views::lacks::sentence;
use serde_json::Value;

/// What can be listed.
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
    /// Tasks that are open, with what they are at
    #[value(aliases = ["task"])]
    Tasks,
    /// Pools
    #[value(aliases = ["pool"])]
    Pools,
}

const MACHINES: &[Column] = &[
    ("NAME", "name", false),
    ("STATE", "state", false),
    ("PHASE", "phase", false),
    ("VERSION", "version", false),
    ("SINCE", "since", false),
    ("WAITING FOR", "waitingFor", false),
    ("ATTEMPT", "attempt", true),
    ("DESIRED", "desiredVersion", true),
    ("NODE", "node", true),
    ("ADDRESS", "address", true),
    ("POOL", "pool", true),
    ("NAMESPACE", "namespace", true),
    ("UID", "uid", true),
    ("REASON", "reason", true),
];
const RUNS: &[Column] = &[
    ("RUN", "run", false),
    ("STATE", "state", false),
    ("SINCE", "since", false),
    ("NAME", "name", false),
    ("SEQ", "seq", false),
    ("TASKS", "tasks", false),
    ("BEGAN", "began", true),
    ("CLOSED", "closed", true),
];
const ROLLOUTS: &[Column] = &[
    ("POOL", "pool", false),
    ("STATE", "state", false),
    ("MEMBERS", "members", false),
    ("JOINED", "joined", false),
    ("FAILED", "failed", false),
    ("UNAVAILABLE", "unavailable", false),
    ("ALLOWED", "maxUnavailable", false),
    ("WAITING FOR", "waitingFor", false),
    ("TOKEN", "token", true),
    ("SINCE", "since", true),
];
const TASKS: &[Column] = &[
    ("MACHINE", "machine", false),
    ("TASK", "name", false),
    ("ATTEMPT", "attempt", false),
    ("PHASE", "phase", false),
    ("SINCE", "since", false),
    ("STEP", "heartbeat.step", false),
    ("DONE", "heartbeat.done", false),
    ("OF", "heartbeat.of", false),
    ("UNIT", "heartbeat.unit", false),
    ("UNTIL", "until", true),
    ("WORKER", "heartbeat.worker", true),
    ("FAILURE", "failure.code", true),
    ("ID", "task", true),
];
const POOLS: &[Column] = &[
    ("POOL", "pool", false),
    ("STRATEGY", "strategy", false),
    ("MAX UNAVAILABLE", "maxUnavailable", false),
    ("APPROVAL", "approval", false),
    ("PAUSED", "paused", false),
    ("MEMBERS", "members", false),
];

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

    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::Machines => MACHINES,
            Self::Runs => RUNS,
            Self::Rollouts => ROLLOUTS,
            Self::Tasks => TASKS,
            Self::Pools => POOLS,
        }
    }

    /// Where the one called `name` is.
    fn one(self, name: &str) -> String {
        match (self, name.split_once('/')) {
            (Self::Runs, Some((workflow, key))) => {
                format!("/runs/{}/{}", segment(workflow), segment(key))
            }
            _ => format!("{}/{}", self.path(), segment(name)),
        }
    }
}

/// What is listed.
#[derive(Debug, Args)]
pub struct Get {
    /// Of what
    kind: Kind,
    /// Only this one: a name, a UID, WORKFLOW/KEY of a run; for tasks, the machine
    name: Option<String>,
    /// Machines of this pool only
    #[arg(long)]
    pool: Option<String>,
    /// Those in this state only, such as Failed
    #[arg(long)]
    state: Option<String>,
    /// Machines that are gone, too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    to: To,
}

impl Get {
    fn path(&self) -> String {
        let ended = if self.all && self.kind == Kind::Machines {
            "?all=true"
        } else {
            ""
        };
        format!("{}{ended}", self.kind.path())
    }

    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let mut lacks = Vec::new();
        let found = match &self.name {
            Some(name) if self.kind == Kind::Tasks => {
                let machine = server.get(&Kind::Machines.one(name)).await?;
                let run = machine["run"].clone();
                let mut all = list(server.get("/tasks").await?);
                all.retain(|task| task["run"] == run);
                Value::Array(all)
            }
            Some(name) => server.get(&self.kind.one(name)).await?,
            None => {
                let answer = server.get(&self.path()).await?;
                lacks = lacks_in(&answer);
                let mut all = list(answer);
                all.retain(|item| {
                    fits(&self.pool, &item["pool"]) && fits(&self.state, &item["state"])
                });
                Value::Array(all)
            }
        };
        if let Some(text) = self.to.output.for_programs(&found)? {
            return Ok(text);
        }
        let mut items = list(found);
        if self.kind == Kind::Machines {
            items.sort_by_cached_key(|machine| {
                (plain(&machine["namespace"]), plain(&machine["name"]))
            });
        }
        if items.is_empty() {
            return Ok("There are none.".into());
        }
        lacks.push(table(&items, self.kind.columns(), self.to.wide()));
        Ok(lacks.join("\n\n"))
    }
}

/// What an answer says that dormer itself lacks: a sentence each.
fn lacks_in(answer: &Value) -> Vec<String> {
    let described = answer["lacks"].as_array().into_iter().flatten();
    let number = |it: &Value| {
        it.as_u64()
            .and_then(|it| usize::try_from(it).ok())
            .unwrap_or(0)
    };
    described
        .map(|lack| {
            let what = lack["what"].as_str().unwrap_or_default();
            sentence(number(&lack["waiting"]), number(&lack["machines"]), what)
        })
        .collect()
}

pub(super) fn fits(wanted: &Option<String>, found: &Value) -> bool {
    wanted.as_ref().is_none_or(|wanted| {
        found
            .as_str()
            .is_some_and(|found| found.eq_ignore_ascii_case(wanted))
    })
}

/// The things in an answer: those of a list, or the one.
pub(crate) fn list(answer: Value) -> Vec<Value> {
    match answer {
        Value::Array(items) => items,
        Value::Object(mut object) if object.get("items").is_some_and(Value::is_array) => {
            object.remove("items").map(list).unwrap_or_default()
        }
        one => vec![one],
    }
}

/// What can be described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Described {
    /// A machine
    #[value(aliases = ["machines", "m"])]
    Machine,
    /// A pool's rollout
    #[value(aliases = ["rollouts", "pool"])]
    Rollout,
}

/// What is described.
#[derive(Debug, Args)]
pub struct Describe {
    /// What it is
    kind: Described,
    /// Its name; of a machine also its UID
    name: String,
    #[command(flatten)]
    to: To,
}

impl Describe {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let kind = match self.kind {
            Described::Machine => Kind::Machines,
            Described::Rollout => Kind::Rollouts,
        };
        let found = server.get(&kind.one(&self.name)).await?;
        match self.to.output.for_programs(&found)? {
            Some(text) => Ok(text),
            None => Ok(described(&found)),
        }
    }
}

/// Every field on a line of its own; lists of things as tables below.
pub(crate) fn described(thing: &Value) -> String {
    let Value::Object(fields) = thing else {
        return plain(thing);
    };
    let width = fields
        .keys()
        .map(|key| key.len() + key.matches(char::is_uppercase).count())
        .max()
        .unwrap_or(0)
        + 2;
    let (things, plainly): (Vec<_>, Vec<_>) =
        fields.iter().partition(|(_, value)| holds_things(value));
    let mut lines: Vec<String> = plainly
        .iter()
        .map(|(key, value)| format!("{:width$}{}", format!("{}:", heading(key)), plain(value)))
        .collect();
    for (key, value) in things {
        lines.push(format!("{}:", heading(key)));
        for thing in list(value.clone()) {
            lines.push(format!("  {}", in_a_line(&thing)));
        }
    }
    lines.join("\n")
}

fn holds_things(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(Value::is_object),
        other => other.is_object(),
    }
}

fn in_a_line(thing: &Value) -> String {
    let Value::Object(fields) = thing else {
        return plain(thing);
    };
    let described = fields.iter().filter(|(_, value)| !value.is_null());
    described
        .map(|(key, value)| format!("{} {}", heading(key).to_lowercase(), plain(value)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// `waitingFor` as `Waiting for`.
fn heading(key: &str) -> String {
    let mut words = String::new();
    for (at, message) in key.chars().enumerate() {
        match message {
            message if at == 0 => words.extend(message.to_uppercase()),
            message if message.is_uppercase() => {
                words.push(' ');
                words.extend(message.to_lowercase());
            }
            message => words.push(message),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_description_has_plain_fields_first_and_things_below() {
        let thing =
            json!({"waitingFor": null, "name": "a", "tasks": [{"task": "probe", "of": null}]});
        let text = described(&thing);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            ["Name:        a", "Waiting for: -", "Tasks:", "  task probe"]
        );
    }
}
