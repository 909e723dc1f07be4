//! `dormer why`: one paragraph about one machine, for a person on call.

use super::{
    Failure, To,
    action_commands::run_of,
    get::list,
    server::{Server, segment},
};
use clap::Args;
use dormer_views::explain::{RECORDS_BACK, failure_in, paragraph, word};
use serde_json::{Value, json};

/// Of which machine.
#[derive(Debug, Args)]
pub struct Why {
    /// The machine: its name, NAMESPACE/NAME, or its UID
    machine: String,
    #[command(flatten)]
    to: To,
}

impl Why {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let machine = server
            .get(&format!("/machines/{}", segment(&self.machine)))
            .await?;
        let last = last_failure(&server, &machine).await?;
        let rollout = rollout(&server, &machine).await;
        let why = paragraph(&machine, last.as_deref(), rollout.as_ref());
        let answer = json!({"name": machine["name"], "uid": machine["uid"], "why": why});
        Ok(self.to.output.for_programs(&answer)?.unwrap_or(why))
    }
}

/// The machine's pool's rollout. Without it there is less to say, and still enough.
async fn rollout(server: &Server, machine: &Value) -> Option<Value> {
    let pool = word(machine, "pool")?;
    server
        .get(&format!("/rollouts/{}", segment(pool)))
        .await
        .ok()
}

/// The last thing that failed among the latest records, with its time. What serves has got over it.
async fn last_failure(server: &Server, machine: &Value) -> Result<Option<String>, Failure> {
    let (Some(run), Some(seq)) = (word(machine, "run"), machine["seq"].as_u64()) else {
        return Ok(None);
    };
    let from = seq.saturating_sub(RECORDS_BACK).max(1);
    let run = run_of(server, run).await?;
    let page = server
        .get(&format!(
            "{run}/history?from={from}&limit={}",
            RECORDS_BACK + 1
        ))
        .await?;
    Ok(failure_in(&list(page), machine))
}
