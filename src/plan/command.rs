//! `dormer plan`: which nodes would change, what on them, and how, before anything is changed.

use crate::{
    client::{Failure, To, output::table, server::segment},
    profile_command::read,
};
use clap::Args;
use dormer_profile::{layers::LAYER_BYTES_MAX, payload::MANIFEST_FILE};
use serde_json::{Value, json};
use std::{fmt::Write, path::PathBuf};

/// Largest manifest that is sent, in bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Items that are told of each group of machines that change alike, unless all are asked for.
const TOLD: usize = 12;

/// What is tried on which pool.
#[derive(Debug, Args)]
pub(crate) struct Plan {
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
        let plan = if tried { server.post(&path, &body).await? } else { server.get(&path).await? };
        match self.to.programs(&plan)? {
            Some(text) => Ok(text),
            None => Ok(told(&plan, self.to.wide())),
        }
    }
}

/// A plan for people: a line for each machine, and what differs, once for all that change alike.
fn told(plan: &Value, wide: bool) -> String {
    let machines = plan["items"].as_array().map(Vec::as_slice).unwrap_or_default();
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
        ("NOT ALLOWED", "notAllowed", false),
        ("UNKNOWN", "unknown", false),
    ];
    let rows: Vec<Value> = rest.iter().map(|machine| (*machine).clone()).collect();
    let mut text = table(&rows, &columns, wide);
    let mut groups: Vec<(&Value, Vec<&str>)> = Vec::new();
    for machine in rest.iter().filter(|machine| changes(machine)) {
        let name = machine["name"].as_str().unwrap_or_default();
        match groups.iter_mut().find(|(known, _)| **known == machine["changes"]) {
            Some((_, names)) => names.push(name),
            None => groups.push((&machine["changes"], vec![name])),
        }
    }
    for (changes, names) in groups {
        let _ = write!(text, "\n\n{}:", names.join(", "));
        let changes = changes.as_array().map(Vec::as_slice).unwrap_or_default();
        let shown = if wide { changes.len() } else { TOLD };
        for change in changes.iter().take(shown) {
            let word = |key: &str| change[key].as_str().unwrap_or_default();
            let _ = write!(text, "\n  {:8} {}: {}", word("class"), word("item"), word("detail"));
        }
        if changes.len() > shown {
            let _ = write!(text, "\n  … and {} more (-o wide)", changes.len() - shown);
        }
    }
    if !staying.is_empty() {
        let _ = write!(text, "\n\n{} machines would not change.", staying.len());
    }
    text
}
