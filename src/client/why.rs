//! `dormer why`: a machine's state explained to a person on call, and to programs.

use super::{
    Failure, To,
    action_commands::run_path,
    machines,
    server::{Server, segment},
    server_clock, terminal,
};
use clap::Args;
use dormer_views::{
    explain::{RECORDS_BACK, explanation, failure_in},
    machine::Machine,
    record::History,
    rollout::Rollout,
};

/// Columns below the headings of the explanation.
const INDENT: &str = "         ";

/// Arguments of `dormer why`.
#[derive(Debug, Args)]
pub struct Why {
    /// The machine: its name or the end of it, NAMESPACE/NAME, or its UID
    machine: String,
    #[command(flatten)]
    to: To,
}

impl Why {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let machine = machines::machine(&server, &self.machine).await?;
        let last = last_failure(&server, &machine).await?;
        let rollout = rollout(&server, &machine).await;
        let why = explanation(&machine, last.as_deref(), rollout.as_ref());
        let programs = self.to.programs(&why)?;
        let people = || {
            let mut text = why.lines();
            if let Some(remark) = server_clock::remark(server_clock::time_of(&machine.status)) {
                text += &format!("\n{:1$}{remark}", "Clock:", INDENT.len());
            }
            fitting(&text, terminal::columns())
        };
        Ok(programs.unwrap_or_else(people))
    }
}

/// Lines wrapped for the terminal. A command stays on one line, so that it can be copied.
fn fitting(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else {
        return text.to_owned();
    };
    let command = format!("{INDENT}  ");
    let lines = text.lines().map(|line| {
        if line.starts_with(&command) {
            line.to_owned()
        } else {
            terminal::wrap(line, columns, INDENT)
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Rollout of the machine's pool. It is optional: the explanation is shorter without it.
async fn rollout(server: &Server, machine: &Machine) -> Option<Rollout> {
    let path = format!("/rollouts/{}", segment(&machine.pool));
    server.get(&path).await.ok()
}

/// Last failure among the latest records, with its time. `None` for a machine that serves.
async fn last_failure(server: &Server, machine: &Machine) -> Result<Option<String>, Failure> {
    let from = machine.status.seq.saturating_sub(RECORDS_BACK).max(1);
    let run = run_path(&machine.status.run);
    let limit = RECORDS_BACK + 1;
    let path = format!("{run}/history?from={from}&limit={limit}");
    let page: History = server.get(&path).await?;
    Ok(failure_in(&page.items, machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_but_commands_are_not() {
        let text = "Do now:  Say something that is long:\n           dormer retry a-long-name-of-a-machine";
        assert_eq!(
            fitting(text, Some(30)),
            "Do now:  Say something that is\n         long:\n           dormer retry a-long-name-of-a-machine"
        );
        assert_eq!(fitting(text, None), text);
    }
}
