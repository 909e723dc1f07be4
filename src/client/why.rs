//! `dormer why`: a machine's state explained to a person on call, and to programs.

use super::{
    Failure, ServerArgs,
    action_commands::run_path,
    items::Kind,
    machines,
    server::{Server, segment},
    server_clock, terminal,
};
use clap::Args;
use dormer_views::{
    explain::{LastFailure, RECORDS_BACK, explanation, failure_in},
    machine::Machine,
    record::History,
    rollout::Rollout,
};

/// Columns below the headings of the explanation.
const INDENT: &str = "         ";

/// Arguments of `dormer why`.
#[derive(Debug, Args)]
pub struct Why {
    /// The machine: its name or the end of it, NAMESPACE/NAME, its UID, or the name or address of its Node
    machine: String,
    #[command(flatten)]
    to: ServerArgs,
}

impl Why {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        refuse_other_kinds(&self.machine)?;
        let server = self.to.server()?;
        let machine = machines::machine(&server, &self.machine).await?;
        let last = last_failure(&server, &machine).await?;
        let rollout = rollout(&server, &machine).await;
        let mut why = explanation(&machine, last.as_ref(), rollout.as_ref());
        self.to.reach(&mut why.steps);
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

/// Refuses KIND/NAME of a kind that has no explanation of its own, with the command that shows it.
///
/// # Errors
/// [`Failure::Usage`]. A namespace called like a kind would be refused, too: such machines have a name and a UID.
fn refuse_other_kinds(called: &str) -> Result<(), Failure> {
    let Some((kind, name)) = called.split_once('/') else {
        return Ok(());
    };
    let command = match <Kind as clap::ValueEnum>::from_str(kind, true) {
        Ok(kind @ (Kind::Rollouts | Kind::Pools)) => {
            format!("dormer describe {} {name}", kind.singular())
        }
        Ok(Kind::Runs) => format!("dormer get runs {name}"),
        Ok(Kind::Tasks) => format!("dormer get tasks {name}"),
        Ok(Kind::Quarantine) => format!("dormer get quarantine {name}"),
        Ok(Kind::Machines) | Err(_) => return Ok(()),
    };
    Err(Failure::Usage(format!(
        "{called}: dormer why explains machines\nit is shown by: {command}"
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
    fn what_is_no_machine_is_refused_with_the_command_that_shows_it() {
        let refused = |called: &str| refuse_other_kinds(called).err().map(|it| it.to_string());
        assert_eq!(
            refused("rollout/windows").as_deref(),
            Some(
                "rollout/windows: dormer why explains machines\n\
                 it is shown by: dormer describe rollout windows"
            )
        );
        assert!(refused("pool/windows").is_some_and(|it| it.ends_with("describe pool windows")));
        for machine in ["win-1", "machine/win-1", "openshift-machine-api/win-1"] {
            assert_eq!(refused(machine), None, "{machine}");
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
