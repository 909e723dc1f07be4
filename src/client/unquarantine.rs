//! `dormer unquarantine`: releases runs that engines leave alone.

use super::{Failure, ServerArgs, absent, action_commands::run_path, answer::Answer};
use clap::Args;
use dormer_proto::code;
use dormer_views::run::{List, QuarantinedRun};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Arguments of `dormer unquarantine`.
#[derive(Debug, Args)]
#[command(override_usage = "dormer unquarantine [OPTIONS] <RUN> | --all [--code CODE]")]
pub struct Unquarantine {
    /// The run: WORKFLOW/KEY, or its machine's name; `dormer get quarantine` lists them
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    run: Option<String>,
    /// All quarantined runs
    #[arg(long)]
    all: bool,
    /// Only those with this code, such as `RecordRefused`
    #[arg(long, requires = "all")]
    code: Option<String>,
    #[command(flatten)]
    to: ServerArgs,
}

impl Unquarantine {
    /// Whether the command means this run.
    fn means(&self, one: &QuarantinedRun) -> bool {
        match &self.run {
            Some(run) => *run == one.run || Some(run) == one.name.as_ref(),
            None => self
                .code
                .as_ref()
                .is_none_or(|code| code::same(code, &one.quarantine.code)),
        }
    }

    /// That none of the quarantined runs is meant by `--all` and `--code`.
    fn none(&self, all: &[QuarantinedRun]) -> Failure {
        let codes: BTreeSet<&str> = all.iter().map(|it| &*it.quarantine.code).collect();
        let codes: Vec<&str> = codes.into_iter().collect();
        match (&self.code, codes.as_slice()) {
            (Some(code), [_, ..]) => Failure::refused(
                format!("no run is quarantined with the code {code}, so none was released"),
                format!("the codes now are: {}", codes.join(", ")),
            ),
            _ => Failure::refused("no run is quarantined, so none was released", ""),
        }
    }

    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let listed: List<Answer<QuarantinedRun>> = server.get("/quarantine").await?;
        let all: Vec<QuarantinedRun> = listed.items.into_iter().map(|item| item.view).collect();
        let meant: Vec<QuarantinedRun> =
            all.iter().filter(|one| self.means(one)).cloned().collect();
        if let (Some(run), true) = (&self.run, meant.is_empty()) {
            let name = |it: &QuarantinedRun| it.name.clone().unwrap_or_else(|| it.run.clone());
            let there: Vec<String> = all.iter().map(name).collect();
            return Err(absent::unquarantined(run, &there));
        }
        if meant.is_empty() {
            return Err(self.none(&all));
        }
        let mut answers: Vec<Value> = Vec::new();
        for one in &meant {
            let path = format!("{}/unquarantine", run_path(&one.run));
            answers.push(server.post(&path, &json!({})).await?);
        }
        if let Some(text) = self.to.programs(&answers)? {
            return Ok(text);
        }
        let released = meant.iter().map(|one| format!("{} is released.", one.run));
        Ok(released.collect::<Vec<_>>().join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        asked: Unquarantine,
    }

    fn one(run: &str, name: Option<&str>, code: &str) -> QuarantinedRun {
        let since = "2026-11-21T07:00:00.000Z";
        let value = json!({"run": run, "name": name, "code": code, "why": "w", "since": since, "builds": []});
        serde_json::from_value(value).expect("a run")
    }

    fn meant(arguments: &[&str]) -> Vec<String> {
        let line = Line::try_parse_from([&["x"], arguments].concat()).expect("arguments");
        let all = [
            one("machine/u1", Some("win-1"), "RecordRefused"),
            one("machine/u2", None, "RecordUnreadable"),
        ];
        let meant = all.into_iter().filter(|one| line.asked.means(one));
        meant.map(|one| one.run).collect()
    }

    #[test]
    fn runs_are_meant_by_id_by_name_by_code_or_all() {
        assert_eq!(meant(&["machine/u2"]), ["machine/u2"]);
        assert_eq!(meant(&["win-1"]), ["machine/u1"]);
        assert_eq!(meant(&["--all"]).len(), 2);
        assert_eq!(
            meant(&["--all", "--code", "RecordUnreadable"]),
            ["machine/u2"]
        );
        assert!(
            Line::try_parse_from(["x"]).is_err(),
            "nothing is released by accident"
        );
        assert!(Line::try_parse_from(["x", "--code", "RecordRefused"]).is_err());
    }
}
