//! `dormer why`: the state of a machine or a rollout, explained to a person on call, and to programs.

use super::{
    Failure, ServerArgs, absent,
    action_commands::run_path,
    items::Kind,
    machines,
    server::{Server, segment},
    server_clock, terminal,
};
use clap::Args;
use dormer_views::{
    explain::{LastFailure, RECORDS_BACK, explanation, failure_in, rollout_explanation},
    machine::{Machine, Machines},
    record::History,
    rollout::Rollout,
};

/// Columns below the headings of the explanation.
const INDENT: &str = "         ";

/// Arguments of `dormer why`.
#[derive(Debug, Args)]
pub struct Why {
    /// The machine: its name or the end of it, NAMESPACE/NAME, its UID, or the name or address of its Node; or rollout/POOL
    machine: String,
    #[command(flatten)]
    to: ServerArgs,
}

impl Why {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let called = rollout_called(&self.machine)?;
        let server = self.to.server()?;
        if let Some(pool) = called {
            return self.of_rollout(&server, pool).await;
        }
        let machine = machines::machine(&server, &self.machine).await?;
        let last = last_failure(&server, &machine).await?;
        let rollout = rollout(&server, &machine).await;
        let mut why = explanation(&machine, last.as_ref(), rollout.as_ref());
        server.address().reach(&mut why.steps);
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

    /// Why a rollout does not move. Who may not list machines sees what the rollout alone knows.
    async fn of_rollout(&self, server: &Server, pool: &str) -> Result<String, Failure> {
        let answered = server.get::<Rollout>(&Kind::Rollouts.one(pool)).await;
        let rollout = absent::explained(server, Kind::Rollouts, pool, answered).await?;
        let machines = server.get::<Machines>("/machines").await;
        let machines = machines.ok().map(|it| it.items);
        let mut why = rollout_explanation(&rollout, machines.as_deref());
        server.address().reach(&mut why.steps);
        let programs = self.to.programs(&why)?;
        Ok(programs.unwrap_or_else(|| fitting(&why.lines(), terminal::columns())))
    }
}

/// Pool of a rollout that is called `rollout/NAME` or `pool/NAME`. `None`: it is a machine.
///
/// # Errors
/// [`Failure::Usage`]: a kind without an explanation of its own, with the command that shows it. A namespace called like a kind
/// would be taken for one: such machines have a name and a UID.
fn rollout_called(called: &str) -> Result<Option<&str>, Failure> {
    let Some((kind, name)) = called.split_once('/') else {
        return Ok(None);
    };
    let command = match <Kind as clap::ValueEnum>::from_str(kind, true) {
        Ok(Kind::Rollouts | Kind::Pools) => return Ok(Some(name)),
        Ok(Kind::Runs) => format!("dormer get runs {name}"),
        Ok(Kind::Tasks) => format!("dormer get tasks {name}"),
        Ok(Kind::Quarantine) => format!("dormer get quarantine {name}"),
        Ok(Kind::Machines) | Err(_) => return Ok(None),
    };
    Err(Failure::Usage(format!(
        "{called}: dormer why explains machines and rollouts; {command} shows it"
    )))
}

/// Lines broken for the terminal. A command stays on one line, so that one can copy it.
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

/// Last failure among the latest records. `None` for a machine that serves.
async fn last_failure(server: &Server, machine: &Machine) -> Result<Option<LastFailure>, Failure> {
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
    fn a_rollout_is_explained_and_other_kinds_are_refused_with_the_command_that_shows_them() {
        for rollout in ["rollout/windows", "pool/windows", "rollouts/windows"] {
            assert_eq!(rollout_called(rollout), Ok(Some("windows")), "{rollout}");
        }
        let refused = rollout_called("task/win-1").expect_err("a task");
        assert_eq!(
            refused.to_string(),
            "task/win-1: dormer why explains machines and rollouts; dormer get tasks win-1 shows it"
        );
        for machine in ["win-1", "machine/win-1", "openshift-machine-api/win-1"] {
            assert_eq!(rollout_called(machine), Ok(None), "{machine}");
        }
    }

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
