//! `dormer plan`: which nodes would change, what on them, and how, before anything is changed.

use crate::{Failure, To, file::read, output::table, server::segment};
use clap::Args;
use dormer_profile::{layers::LAYER_BYTES_MAX, payload::MANIFEST_FILE};
use dormer_views::moment::lasted;
use serde_json::{Value, json};
use std::{fmt::Write, path::PathBuf};

/// Largest manifest that is sent, in bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Items that are told of each group of machines that change alike, unless all are asked for.
const TOTAL: usize = 12;

/// What is tried on which pool.
#[derive(Debug, Args)]
pub struct Plan {
    /// The pool
    #[arg(long, default_value = "windows")]
    pool: String,
    /// A folder with a payload that need not be installed
    #[arg(long, value_name = "DIR")]
    payload: Option<PathBuf>,
    /// A layer on top of the pool's profile
    #[arg(long, alias = "layer", value_name = "FILE")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    to: To,
}

impl Plan {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let path = format!("/pools/{}/plan", segment(&self.pool));
        let mut body = json!({});
        if let Some(folder) = &self.payload {
            body["payload"] = read(&folder.join(MANIFEST_FILE), MANIFEST_BYTES_MAX)?.into();
        }
        if let Some(path) = &self.profile {
            body["layer"] = read(path, LAYER_BYTES_MAX as u64)?.into();
        }
        let tried = body.as_object().is_some_and(|it| !it.is_empty());
        let plan = if tried {
            server.post(&path, &body).await?
        } else {
            server.get(&path).await?
        };
        match self.to.programs(&plan)? {
            Some(text) => Ok(text),
            None => Ok(table_of(&plan, self.to.wide())),
        }
    }
}

/// The machine with the sum of its steps in a word. A step that nobody took yet makes it a lower bound.
fn with_expectation(machine: &Value) -> Value {
    let mut row = machine.clone();
    if let Some(ms) = machine["expectedMs"].as_u64() {
        let least = machine["unknownSteps"]
            .as_u64()
            .is_some_and(|unknown| unknown > 0);
        let least = if least { "at least " } else { "" };
        row["expected"] = format!("{least}{}", lasted(0, ms)).into();
    }
    row
}

/// How long each step took last time: once for all machines that would take the same steps, from the shortest to the
/// longest.
fn steps(machines: &[&Value]) -> String {
    let names = |machine: &Value| -> Vec<String> {
        let steps = machine["steps"].as_array().into_iter().flatten();
        steps
            .filter_map(|step| Some(step["step"].as_str()?.to_owned()))
            .collect()
    };
    let mut groups: Vec<(Vec<String>, Vec<&Value>)> = Vec::new();
    for machine in machines
        .iter()
        .filter(|machine| machine["steps"].is_array())
    {
        let named = names(machine);
        match groups.iter_mut().find(|(known, _)| *known == named) {
            Some((_, group)) => group.push(machine),
            None => groups.push((named, vec![machine])),
        }
    }
    let mut text = String::new();
    for (names, group) in groups {
        let how = group[0]["how"].as_str().unwrap_or_default();
        let _ = write!(text, "\n\nThe last time, {how} ({} machines):", group.len());
        for (index, name) in names.iter().enumerate() {
            let took = group
                .iter()
                .filter_map(|it| it["steps"][index]["tookMs"].as_u64());
            let took: Vec<u64> = took.collect();
            let said = match (took.iter().min(), took.iter().max()) {
                (Some(least), Some(most)) if lasted(0, *least) == lasted(0, *most) => {
                    lasted(0, *least)
                }
                (Some(least), Some(most)) => {
                    format!("{} to {}", lasted(0, *least), lasted(0, *most))
                }
                _ => "nobody knows yet".to_owned(),
            };
            let _ = write!(text, "\n  {name}: {said}");
        }
    }
    text
}

/// A plan for people: a line for each machine, and what differs, once for all that change alike.
fn table_of(plan: &Value, wide: bool) -> String {
    let machines = plan["items"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let changes = |machine: &Value| machine["changesInAll"].as_u64().unwrap_or(0) > 0;
    let stay = |machine: &&Value| machine["unknown"].is_null() && machine["class"].is_null();
    let (staying, rest): (Vec<&Value>, Vec<&Value>) = machines.iter().partition(stay);
    if rest.is_empty() {
        return format!("Nothing would change on any of {} machines.", staying.len());
    }
    let columns = [
        ("MACHINE", "name", false),
        ("NODE", "node", true),
        ("FROM", "from", false),
        ("TO", "to", false),
        ("CLASS", "class", false),
        ("HOW", "how", false),
        ("EXPECTED", "expected", false),
        ("NOT ALLOWED", "notAllowed", false),
        ("UNKNOWN", "unknown", false),
    ];
    let rows: Vec<Value> = rest
        .iter()
        .map(|machine| with_expectation(machine))
        .collect();
    let mut text = table(&rows, &columns, wide);
    let mut groups: Vec<(&Value, Vec<&str>)> = Vec::new();
    for machine in rest.iter().filter(|machine| changes(machine)) {
        let name = machine["name"].as_str().unwrap_or_default();
        match groups
            .iter_mut()
            .find(|(known, _)| **known == machine["changes"])
        {
            Some((_, names)) => names.push(name),
            None => groups.push((&machine["changes"], vec![name])),
        }
    }
    for (changes, names) in groups {
        let _ = write!(text, "\n\n{}:", names.join(", "));
        let changes = changes.as_array().map(Vec::as_slice).unwrap_or_default();
        let shown = if wide { changes.len() } else { TOTAL };
        for change in changes.iter().take(shown) {
            let word = |key: &str| change[key].as_str().unwrap_or_default();
            let _ = write!(
                text,
                "\n  {:8} {}: {}",
                word("class"),
                word("item"),
                word("detail")
            );
        }
        if changes.len() > shown {
            let _ = write!(text, "\n  … and {} more (-o wide)", changes.len() - shown);
        }
    }
    text += &steps(&rest);
    if !staying.is_empty() {
        let _ = write!(text, "\n\n{} machines would not change.", staying.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, took: [Option<u64>; 2]) -> Value {
        let known: Vec<u64> = took.iter().flatten().copied().collect();
        json!({
            "name": name, "class": "drain", "how": "with the lease: drained, and stays so",
            "changes": [{"class": "drain", "item": "file:a", "detail": "another"}], "changesInAll": 1,
            "expectedMs": known.iter().sum::<u64>(), "unknownSteps": 2 - known.len(),
            "steps": [{"step": "opening the fence", "tookMs": took[0]}, {"step": "evicting", "tookMs": took[1]}],
        })
    }

    #[test]
    fn a_plan_shows_the_last_duration_of_each_step_and_their_sum() {
        let quick = machine("a", [Some(300), Some(61_000)]);
        let slow = machine("b", [Some(300), Some(122_000)]);
        let said = table_of(&json!({"items": [quick, slow]}), false);
        assert!(said.contains("1m1s") && said.contains("2m2s"), "{said}");
        let steps = "The last time, with the lease: drained, and stays so (2 machines):\n  \
             opening the fence: 300ms\n  evicting: 1m1s to 2m2s";
        assert!(said.contains(steps), "{said}");
        let said = table_of(&json!({"items": [machine("a", [None, Some(5)])]}), false);
        assert!(said.contains("at least 5ms"), "{said}");
        assert!(
            said.contains("opening the fence: nobody knows yet"),
            "{said}"
        );
    }
}
