//! `dormer why`: one paragraph that explains a machine's state to a person on call.

use super::{
    Failure, To,
    action_commands::run_path,
    server::{Server, segment},
};
use clap::Args;
use dormer_views::{
    explain::{RECORDS_BACK, failure_in, paragraph},
    machine::Machine,
    record::History,
    rollout::Rollout,
};
use serde::Serialize;

/// Arguments of `dormer why`.
#[derive(Debug, Args)]
pub struct Why {
    /// The machine: its name, NAMESPACE/NAME, or its UID
    machine: String,
    #[command(flatten)]
    to: To,
}

/// Explanation in the form for programs.
#[derive(Debug, Serialize)]
struct Explanation<'a> {
    name: &'a str,
    uid: &'a str,
    why: &'a str,
}

impl Why {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let path = format!("/machines/{}", segment(&self.machine));
        let machine: Machine = server.get(&path).await?;
        let last = last_failure(&server, &machine).await?;
        let rollout = rollout(&server, &machine).await;
        let why = paragraph(&machine, last.as_deref(), rollout.as_ref());
        let programs = self.to.programs(&Explanation {
            name: &machine.name,
            uid: &machine.uid,
            why: &why,
        })?;
        Ok(programs.unwrap_or(why))
    }
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
