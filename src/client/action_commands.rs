//! Commands of actions: each sends the caller's name and reason, and ends once the history holds the request.

use super::{
    Failure, To,
    answer::Answer,
    server::{Server, segment},
};
use clap::Args;
use dormer_views::{any_run::AnyRun, machine};
use dormer_workflows::actions::{Action, RESET, ROLLBACK, TRUST_HOST_KEY};
use serde::Serialize;
use std::io::{BufRead, IsTerminal, Write};

/// Risk of an action.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Risk {
    /// Nothing that cannot be undone.
    None,
    /// A consequence that a person must confirm.
    Moves(&'static str),
}

impl Risk {
    /// Risk in the table of actions.
    fn of(action: &Action) -> Self {
        action.danger.map_or(Self::None, Self::Moves)
    }
}

/// Arguments of every action.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// Your reason; the history records it
    #[arg(long, default_value = "")]
    why: String,
    /// Id of the request; a repeat with the same id is confirmed, not executed again [default: random]
    #[arg(long)]
    id: Option<String>,
    /// Act only if the present state was entered at this record; `dormer describe` shows the record
    #[arg(long, value_name = "SEQ")]
    against: Option<u64>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    to: To,
}

/// Body of a request.
#[derive(Debug, Serialize)]
struct RequestBody<'a> {
    id: String,
    who: String,
    why: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<u64>,
    /// Record that a reset goes back to.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<u64>,
    /// Payload version that a rollback goes back to.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    /// The host key that is trusted from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<&'a str>,
}

impl RequestArgs {
    fn body(&self) -> RequestBody<'_> {
        let drawn = || format!("{:032x}", rand::random::<u128>());
        RequestBody {
            id: self.id.clone().unwrap_or_else(drawn),
            who: user(),
            why: &self.why,
            against: self.against,
            to: None,
            payload: None,
            fingerprint: None,
        }
    }

    async fn post(
        &self,
        server: &Server,
        path: &str,
        body: &RequestBody<'_>,
    ) -> Result<String, Failure> {
        let answer: Answer<AnyRun> = server.post(path, body).await?;
        let programs = self.to.programs(&answer)?;
        Ok(programs.unwrap_or_else(|| answer_line(&answer.view)))
    }

    /// Asks for confirmation before a risky action.
    fn confirm(&self, what: &str, risk: Risk) -> Result<(), Failure> {
        let Risk::Moves(consequence) = risk else {
            return Ok(());
        };
        if self.yes {
            return Ok(());
        }
        let question = format!("{what}: {consequence}.");
        if !std::io::stdin().is_terminal() {
            return Err(Failure::Usage(format!("{question} Add --yes to confirm")));
        }
        eprint!("{question} Continue? [y/N] ");
        let _ = std::io::stderr().flush();
        let mut said = String::new();
        let _ = std::io::stdin().lock().read_line(&mut said);
        match said.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(Failure::Usage("cancelled: nothing was done".into())),
        }
    }
}

/// Name of the requester: the user of this computer.
fn user() -> String {
    let named = ["USER", "LOGNAME", "USERNAME"]
        .iter()
        .filter_map(|name| std::env::var(name).ok());
    named
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "somebody".into())
}

/// Answer in one line: the run's state, and what it waits for.
fn answer_line(run: &AnyRun) -> String {
    let mut line = format!("{}: {}", run.name(), run.state());
    if let Some(phase) = run.phase() {
        line += &format!(" ({phase})");
    }
    if let Some(what) = run.waiting_for() {
        line += &format!(", waits for {what}");
    }
    line
}

/// Arguments of an action on a machine.
#[derive(Debug, Args)]
pub struct Machine {
    /// The machine: its name, NAMESPACE/NAME, or its UID
    machine: String,
    #[command(flatten)]
    request: RequestArgs,
}

impl Machine {
    pub(crate) async fn run(self, action: &Action) -> Result<String, Failure> {
        let risk = Risk::of(action);
        let action = action.name;
        self.request
            .confirm(&format!("{action} {}", self.machine), risk)?;
        let server = self.request.to.server()?;
        let path = format!("/machines/{}/actions/{action}", segment(&self.machine));
        self.request
            .post(&server, &path, &self.request.body())
            .await
    }
}

/// Arguments of `dormer trust-host-key`.
#[derive(Debug, Args)]
pub struct TrustHostKey {
    /// Machine: its name, NAMESPACE/NAME, or its UID
    machine: String,
    /// New host key, as `ssh-keygen -lf C:\ProgramData\ssh\ssh_host_ed25519_key.pub` prints it on the host: SHA256:…
    #[arg(long, value_name = "SHA256:…")]
    fingerprint: String,
    #[command(flatten)]
    request: RequestArgs,
}

impl TrustHostKey {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        if self.request.why.trim().is_empty() {
            let message = "say with --why how you know that the host was reinstalled on purpose";
            return Err(Failure::Usage(message.into()));
        }
        let what = format!("trust {} of {}", self.fingerprint, self.machine);
        self.request.confirm(&what, Risk::of(&TRUST_HOST_KEY))?;
        let server = self.request.to.server()?;
        let body = RequestBody {
            fingerprint: Some(&self.fingerprint),
            ..self.request.body()
        };
        let action = TRUST_HOST_KEY.name;
        let path = format!("/machines/{}/actions/{action}", segment(&self.machine));
        self.request.post(&server, &path, &body).await
    }
}

/// Arguments of an action on a machine or a pool.
#[derive(Debug, Args)]
pub struct MachineOrPool {
    /// The machine: its name, NAMESPACE/NAME, or its UID; or rollout/POOL
    #[arg(required_unless_present = "pool", conflicts_with = "pool")]
    machine: Option<String>,
    /// The pool, instead of a machine
    #[arg(long)]
    pool: Option<String>,
    #[command(flatten)]
    request: RequestArgs,
}

impl MachineOrPool {
    pub(crate) async fn run(self, action: &str) -> Result<String, Failure> {
        let server = self.request.to.server()?;
        let pool = self
            .machine
            .as_ref()
            .and_then(|name| name.strip_prefix("rollout/"));
        let (things, name) = match (&self.machine, pool.or(self.pool.as_deref())) {
            (_, Some(pool)) => ("rollouts", pool),
            (Some(machine), None) => ("machines", machine.as_str()),
            (None, None) => return Err(Failure::Usage("give a machine, or --pool POOL".into())),
        };
        let path = format!("/{things}/{}/actions/{action}", segment(name));
        self.request
            .post(&server, &path, &self.request.body())
            .await
    }
}

/// Arguments of a rollback.
#[derive(Debug, Args)]
pub struct Rollback {
    /// The pool
    pool: String,
    /// Version of the payload to go back to; the present payload must be allowed to follow it
    #[arg(long, value_name = "VERSION")]
    to: String,
    #[command(flatten)]
    request: RequestArgs,
}

impl Rollback {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let what = format!("go back to {} in the pool {}", self.to, self.pool);
        self.request.confirm(&what, Risk::of(&ROLLBACK))?;
        let server = self.request.to.server()?;
        let body = RequestBody {
            payload: Some(&self.to),
            ..self.request.body()
        };
        let path = format!("/rollouts/{}/actions/rollback", segment(&self.pool));
        self.request.post(&server, &path, &body).await
    }
}

/// Arguments of a reset.
#[derive(Debug, Args)]
pub struct Reset {
    /// The machine: its name, NAMESPACE/NAME, or its UID
    machine: String,
    /// Record to go back to; `dormer history` shows the numbers
    #[arg(long = "to", alias = "to-record", value_name = "SEQ")]
    to_record: u64,
    #[command(flatten)]
    request: RequestArgs,
}

impl Reset {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let what = format!("reset {} to record {}", self.machine, self.to_record);
        self.request.confirm(&what, Risk::of(&RESET))?;
        let server = self.request.to.server()?;
        let run = run_of(&server, &self.machine).await?;
        let body = RequestBody {
            to: Some(self.to_record),
            ..self.request.body()
        };
        self.request
            .post(&server, &format!("{run}/reset"), &body)
            .await
    }
}

/// Path of the run of a machine, by its name, UID or `rollout/POOL`.
///
/// # Errors
/// The run does not exist, or the server does not answer.
pub(crate) async fn run_of(server: &Server, called: &str) -> Result<String, Failure> {
    if called.starts_with("rollout/") || called.starts_with("machine/") {
        return Ok(run_path(called));
    }
    let path = format!("/machines/{}", segment(called));
    let machine: machine::Machine = server.get(&path).await?;
    Ok(run_path(&machine.status.run))
}

/// Path of the run with this id.
pub(super) fn run_path(run: &str) -> String {
    let (workflow, key) = run.split_once('/').unwrap_or((run, ""));
    format!("/runs/{}/{}", segment(workflow), segment(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{machine_with, rollout_with};
    use serde_json::json;

    #[test]
    fn an_answer_says_who_is_now_where() {
        let probing =
            json!({"phase": "probing", "phaseText": "probing", "waitingFor": "SSH at 10.0.0.9"});
        let answer = AnyRun::Machine(Box::new(machine_with(probing)));
        assert_eq!(
            answer_line(&answer),
            "win-1: Reachable (probing), waits for SSH at 10.0.0.9"
        );
        let answer = AnyRun::Rollout(Box::new(rollout_with(json!({"state": "Paused"}))));
        assert_eq!(answer_line(&answer), "windows: Paused");
    }

    #[test]
    fn a_request_says_only_what_is_meant() {
        let body = RequestBody {
            id: "x".into(),
            who: "ada".into(),
            why: "",
            against: Some(7),
            to: None,
            payload: None,
            fingerprint: None,
        };
        let sent = json!({"id": "x", "who": "ada", "why": "", "against": 7});
        assert_eq!(serde_json::to_value(body).unwrap(), sent);
    }
}
