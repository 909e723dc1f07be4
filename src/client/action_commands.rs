//! Commands of actions: each sends the caller's name and reason, and ends once the history holds the request.

mod bulk;
mod meanwhile;
mod request;
mod rollback;

pub(crate) use rollback::Rollback;

use super::{
    Failure, absent,
    filter::{Filter, Selector},
    items::Kind,
    machines::{self, path_of},
    server::{Server, ServerAddress, segment},
    terminal,
};
use bulk::Bulk;
use clap::Args;
use dormer_proto::{code, phase::MachineState};
use dormer_views::actions::{Action, PAUSE_POOL, RESET, RETRY, TRUST_HOST_KEY};
use dormer_views::{
    machine::{self, HaltKind},
    problem::problem,
    rollout,
    run::{List, Run},
};
use request::{RequestArgs, RequestBody, Risk};
use serde_json::Value;
use std::collections::BTreeSet;

/// What to say instead of a request that would repeat what holds already. `None`: it would change something.
fn already(action: &str, machine: &machine::Machine, user: &str, why: &str) -> Option<String> {
    let same = |halt: &&machine::Halt| match action {
        // Another person's hold is one more.
        "hold" => halt.kind == HaltKind::Held && is_by(halt, user),
        "pause" => halt.kind == HaltKind::Paused,
        _ => false,
    };
    let halt = machine.halts().find(same)?;
    let known = why.is_empty() || halt.requester().and_then(|it| it.why) == Some(why);
    let text = format!("{}: already {}", machine.name, halt.text);
    match action {
        _ if known => Some(text),
        // A person's later hold changes its reason.
        "hold" => None,
        _ => Some(format!("{text}; your reason is not recorded: {why}")),
    }
}

/// Whether the person began that halt.
fn is_by(halt: &machine::Halt, person: &str) -> bool {
    halt.requester().is_some_and(|it| it.who == person)
}

/// Arguments of an action on machines.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// The machines: names or the ends of them, NAMESPACE/NAME, UIDs, or names or addresses of their Nodes
    #[arg(conflicts_with_all = ["all_failed", "code", "selector", "of_pool"])]
    machines: Vec<String>,
    /// All machines that have failed; --code, --pool and -l narrow them
    #[arg(long, alias = "failed")]
    all_failed: bool,
    /// Of the failed machines, only those with this code, such as AccessDenied
    #[arg(long, requires = "all_failed")]
    code: Option<String>,
    /// Only machines of this pool, all of them or those that --all-failed or -l choose
    #[arg(long = "pool", value_name = "POOL")]
    of_pool: Option<String>,
    /// Only machines with these fields: KEY=VALUE or KEY!=VALUE; dormer get --help has the keys
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<Selector>,
    #[command(flatten)]
    request: RequestArgs,
}

impl MachineArgs {
    pub(crate) async fn run(self, action: &Action) -> Result<String, Failure> {
        let risk = Risk::of(action);
        if self.machines.is_empty()
            && !self.all_failed
            && self.selector.is_none()
            && self.of_pool.is_none()
        {
            let choose =
                "name machines, or choose them by --all-failed, --pool POOL or -l KEY=VALUE";
            return Err(Failure::Usage(choose.into()));
        }
        let server = self.request.to.server()?;
        if let [only] = self.machines.as_slice() {
            let machine = machines::machine(&server, only).await?;
            if let Some(text) = already(action.name, &machine, &request::user(), &self.request.why)
            {
                return Ok(text);
            }
            let path = format!("{}/actions/{}", path_of(&machine), action.name);
            let body = self.request.body();
            if self.request.asks(risk) {
                let checked = self.request.check(&server, &path, &body).await;
                checked.map_err(|failure| failure.about(&machine.name))?;
            }
            let chosen = std::slice::from_ref(&machine);
            let ends = self.request.ends_of_others(&server, action, chosen).await?;
            if let Some(question) = &ends {
                self.request.asked(question)?;
            }
            meanwhile::warn(&server, action, chosen).await;
            self.request
                .confirm(&format!("{} {}", action.name, machine.name), risk)?;
            let posted = self.request.post(&server, action, &path, &body).await;
            let posted = posted.map_err(|failure| failure.about(&machine.name))?;
            return Ok(self.request.explained(posted, action, &machine));
        }
        if self.request.against.is_some() {
            let message = "--against names a record of one machine: give one machine";
            return Err(Failure::Usage(message.into()));
        }
        let (mut chosen, kept) = self.chosen(&server, action).await?;
        if chosen.is_empty() {
            if let Some(pool) = &self.of_pool {
                absent::check_pool(&server, pool).await?;
            }
            return Err(Failure::refused(
                "no machine matches, so nothing was done",
                self.what_matches(&server, action, kept).await,
            ));
        }
        let mut bulk = Bulk::new(&self.request, &server, action);
        if self.request.asks(risk) {
            chosen = bulk.possible(chosen).await?;
        }
        if chosen.is_empty() {
            return Err(Failure::refused(
                format!("{}: nothing was done", action.name),
                "dormer why says what they wait for",
            ));
        }
        meanwhile::warn(&server, action, &chosen).await;
        let what = summary(action, &chosen);
        let ends = self
            .request
            .ends_of_others(&server, action, &chosen)
            .await?;
        if let Some(question) = &ends {
            self.request.asked(question)?;
        }
        match risk {
            Risk::None if self.machines.is_empty() => self.request.asked(&format!("{what}."))?,
            risk => self.request.confirm(&what, risk)?,
        }
        bulk.post(&chosen).await
    }

    /// Remedy if no machine matches, or people keep all that do: for `--all-failed`, the codes of failed machines.
    async fn what_matches(&self, server: &Server, action: &Action, kept: usize) -> String {
        if kept > 0 {
            return KEPT.into();
        }
        let listed = server.get::<List<machine::Machine>>("/machines").await;
        let machines = listed.map_or_else(|_| Vec::new(), |it| it.items);
        if !self.all_failed {
            let of_pool = action.name == RETRY.name && self.selector.is_none();
            return match of_pool {
                true => {
                    "no machine there has failed, and none waits for the next attempt of a step"
                        .into()
                }
                false => "dormer get machines lists them".into(),
            };
        }
        match self.code.as_deref() {
            Some(code) if late_with(&machines, code) => format!(
                "machines show {code} and have not failed: their step is tried again. dormer {} -l code={code} chooses them",
                action.name
            ),
            _ => failed_codes(&machines),
        }
    }

    /// The machines that are named, or that the arguments select; and how many of those people keep as they are, which are
    /// left out.
    async fn chosen(
        &self,
        server: &Server,
        action: &Action,
    ) -> Result<(Vec<machine::Machine>, usize), Failure> {
        if !self.machines.is_empty() {
            let mut found = Vec::new();
            for called in &self.machines {
                found.push(machines::machine(server, called).await?);
            }
            // Two ends of a name may mean one machine.
            let mut seen = BTreeSet::new();
            found.retain(|it: &machine::Machine| seen.insert(it.uid.clone()));
            return Ok((found, 0));
        }
        let List { mut items } = server.get::<List<machine::Machine>>("/machines").await?;
        let filter = Filter {
            pool: self.of_pool.clone(),
            selector: self.selector.clone(),
            ..Filter::default()
        };
        filter.check::<machine::Machine>("machines")?;
        filter.check_pool(server).await?;
        let filter = filter.for_items(&items.iter().collect::<Vec<_>>())?;
        items.retain(|it| filter.takes(it) && self.has_failed(it));
        let kept = match action.name == RETRY.name {
            true => self.keep_for_retry(&mut items),
            false => 0,
        };
        items.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((items, kept))
    }

    /// Leaves the machines that a retry is for and that no person keeps as they are. Returns how many of them a person keeps.
    fn keep_for_retry(&self, items: &mut Vec<machine::Machine>) -> usize {
        // Of a whole pool only those are meant that a retry is for.
        items.retain(|it| self.selector.is_some() || can_be_retried(it));
        let all = items.len();
        items.retain(|it| is_left_to_dormer(it, &self.request.to.address));
        all - items.len()
    }

    /// Whether the machine has failed, with the requested code, if the selection requires that.
    fn has_failed(&self, machine: &machine::Machine) -> bool {
        let code = machine.failure.as_ref().map(|it| it.code.as_str());
        let fits = self
            .code
            .as_deref()
            .is_none_or(|wanted| code.is_some_and(|code| code::same(code, wanted)));
        !self.all_failed || machine.state == MachineState::Failed && fits
    }
}

/// Remedy if people keep all machines of a choice as they are that a retry is for.
const KEPT: &str = "those that a retry is for are held or paused: dormer resume them first";

/// Whether a retry has something to do: a step failed, or waits for its next attempt.
fn can_be_retried(machine: &machine::Machine) -> bool {
    machine.state == MachineState::Failed || machine.waits_for_attempt()
}

/// Whether machines show this code that have not failed.
fn late_with(machines: &[machine::Machine], code: &str) -> bool {
    let shows = |it: &&machine::Machine| {
        let found = problem(it);
        found.is_some_and(|it| code::same(&it.code, code) || code::same(&it.shown, code))
    };
    let open = machines
        .iter()
        .filter(|it| it.state != MachineState::Failed);
    open.filter(shows).count() > 0
}

/// Whether no person keeps the machine as it is. Of a choice by code or pool those are left out, with a word: a retry would
/// act on them.
fn is_left_to_dormer(machine: &machine::Machine, address: &ServerAddress) -> bool {
    let Some(halt) = machine.halts().find(|it| it.kind != HaltKind::Ignored) else {
        return true;
    };
    let name = &machine.name;
    terminal::warn(format_args!(
        "{name}: left out, it is {}; {} ends that",
        halt.text,
        address.line(&["dormer", "resume", name])
    ));
    false
}

/// Codes of the failed machines, for the message about an unknown code.
fn failed_codes(machines: &[machine::Machine]) -> String {
    let failed = machines
        .iter()
        .filter(|it| it.state == MachineState::Failed)
        .filter_map(|it| it.failure.as_ref());
    let codes: BTreeSet<String> = failed.map(|it| code::shown(&it.code)).collect();
    if codes.is_empty() {
        return "no machine has failed".into();
    }
    let codes: Vec<String> = codes.into_iter().collect();
    format!("machines have failed with: {}", codes.join(", "))
}

/// Most names in a summary. The rest is a count.
const NAMES_MAX: usize = 10;

/// Summary of an action on several machines: their number, their names, and their causes.
fn summary(action: &Action, machines: &[machine::Machine]) -> String {
    let mut names: Vec<&str> = machines
        .iter()
        .take(NAMES_MAX)
        .map(|it| it.name.as_str())
        .collect();
    let more = machines.len().saturating_sub(NAMES_MAX);
    let rest = format!("and {more} more");
    if more > 0 {
        names.push(&rest);
    }
    let mut codes: Vec<(String, usize)> = Vec::new();
    for code in machines.iter().filter_map(problem).map(|it| it.code) {
        match codes.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => codes.push((code, 1)),
        }
    }
    let codes: Vec<String> = codes
        .iter()
        .map(|(code, count)| format!("{count} {code}"))
        .collect();
    let causes = if codes.is_empty() {
        String::new()
    } else {
        format!("; causes: {}", codes.join(", "))
    };
    let plural = if machines.len() == 1 { "" } else { "s" };
    format!(
        "{} {} machine{plural} ({}{causes})",
        action.name,
        machines.len(),
        names.join(", ")
    )
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
        let server = self.request.to.server()?;
        let machine = machines::machine(&server, &self.machine).await?;
        let what = format!("trust {} of {}", self.fingerprint, machine.name);
        let body = RequestBody {
            fingerprint: Some(&self.fingerprint),
            ..self.request.body()
        };
        let path = format!("{}/actions/{}", path_of(&machine), TRUST_HOST_KEY.name);
        let risk = Risk::of(&TRUST_HOST_KEY);
        if self.request.asks(risk) {
            let checked = self.request.check(&server, &path, &body).await;
            checked.map_err(|failure| failure.about(&machine.name))?;
        }
        self.request.confirm(&what, risk)?;
        let posted = self
            .request
            .post(&server, &TRUST_HOST_KEY, &path, &body)
            .await;
        posted.map_err(|failure| failure.about(&machine.name))
    }
}

/// Arguments of an action on machines or a pool.
#[derive(Debug, Args)]
pub struct MachineOrPool {
    /// The machines: names or the ends of them, NAMESPACE/NAME, or UIDs; or one pool/POOL
    #[arg(conflicts_with_all = ["selector", "pool"])]
    machines: Vec<String>,
    /// The pool itself, instead of machines
    #[arg(long, conflicts_with = "selector")]
    pool: Option<String>,
    /// Machines with these fields, such as pool=windows: KEY=VALUE or KEY!=VALUE; dormer get --help has the keys
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<Selector>,
    #[command(flatten)]
    request: RequestArgs,
}

impl MachineOrPool {
    pub(crate) async fn run(self, action: &Action) -> Result<String, Failure> {
        let named = self.machines.iter().find_map(|called| pool_in(called));
        let pool = named.or(self.pool.as_deref());
        match (pool, self.machines.len()) {
            (Some(_), 2..) => Err(Failure::Usage("give a pool alone, or machines".into())),
            (Some(pool), _) => self.on_pool(action, pool, named.is_some()).await,
            (None, 0) if self.selector.is_none() => Err(Failure::Usage(
                "name machines, choose them by -l KEY=VALUE, or give --pool POOL".into(),
            )),
            (None, _) => self.on_machines(action).await,
        }
    }

    async fn on_pool(&self, action: &Action, pool: &str, named: bool) -> Result<String, Failure> {
        let server = self.request.to.server()?;
        if action.name == PAUSE_POOL.name
            && let Ok(found) = server
                .get::<rollout::Rollout>(&Kind::Rollouts.one(pool))
                .await
            && let Some(by) = found.paused
        {
            let why = self.request.why.trim();
            let said = match why.is_empty() || by.ends_with(&format!(": {why}")) {
                true => String::new(),
                false => format!("; your reason is not recorded: {why}"),
            };
            return Ok(format!("{pool}: already paused by {by}{said}"));
        }
        let path = format!("/rollouts/{}/actions/{}", segment(pool), action.name);
        let body = self.request.body();
        let answered = self.request.post(&server, action, &path, &body).await;
        let answered = answered.map_err(|failure| failure.about(pool));
        match named {
            true => absent::explained(&server, Kind::Pools, pool, answered).await,
            false => absent::in_pool(&server, pool, answered).await,
        }
    }

    async fn on_machines(self, action: &Action) -> Result<String, Failure> {
        let server = self.request.to.server()?;
        let names = self.machines.clone();
        let on = MachineArgs {
            machines: self.machines,
            all_failed: false,
            code: None,
            of_pool: None,
            selector: self.selector,
            request: self.request,
        };
        let absent = match on.run(action).await {
            Err(absent @ Failure::Absent { .. }) => absent,
            answered => return answered,
        };
        // The name of a pool alone is its pool's, and no machine's.
        for called in &names {
            if server.get::<Value>(&Kind::Pools.one(called)).await.is_ok() {
                return Err(a_pool(action.name, called));
            }
        }
        Err(absent)
    }
}

/// The pool in `pool/POOL` or `rollout/POOL`.
pub(crate) fn pool_in(called: &str) -> Option<&str> {
    let kinds = ["rollout/", "rollouts/", "pool/", "pools/"];
    let found = kinds.iter().find_map(|kind| called.strip_prefix(kind));
    found.filter(|pool| !pool.is_empty())
}

/// Failure for a pool's name instead of a machine's.
fn a_pool(action: &str, pool: &str) -> Failure {
    Failure::Usage(format!(
        "{pool} is a pool and no machine: dormer {action} --pool {pool}"
    ))
}

/// Arguments of a reset.
#[derive(Debug, Args)]
pub struct Reset {
    /// The machine: its name, NAMESPACE/NAME, or its UID
    machine: String,
    /// Record to go back to; `dormer history` shows the numbers
    #[arg(long = "to", alias = "to-record", value_name = "RECORD")]
    to_record: u64,
    #[command(flatten)]
    request: RequestArgs,
}

impl Reset {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.request.to.server()?;
        let run = run_of(&server, &self.machine).await?;
        // Who may not read it gets the server's own answer.
        if let Ok(now) = server.get::<Run>(&run).await {
            in_history(&self.machine, self.to_record, now.status.seq)?;
        }
        let what = format!("reset {} to record {}", self.machine, self.to_record);
        let body = RequestBody {
            to: Some(self.to_record),
            ..self.request.body()
        };
        let path = format!("{run}/reset");
        let risk = Risk::of(&RESET);
        if self.request.asks(risk) {
            self.request.check(&server, &path, &body).await?;
        }
        self.request.confirm(&what, risk)?;
        self.request.post(&server, &RESET, &path, &body).await
    }
}

/// Refuses a record that the history of `name`, which ends at record `last`, does not have.
fn in_history(name: &str, to: u64, last: u64) -> Result<(), Failure> {
    if (1..=last).contains(&to) {
        return Ok(());
    }
    Err(Failure::Absent {
        error: format!("--to {to}: the history of {name} has the records 1 to {last}"),
        what_to_do: format!("dormer history {name} shows them"),
    })
}

/// Path of the run of a machine, by its name or UID, or of a pool's rollout, by `pool/POOL` or `rollout/POOL`.
///
/// # Errors
/// The run does not exist, or the server does not answer.
pub(crate) async fn run_of(server: &Server, called: &str) -> Result<String, Failure> {
    if let Some(pool) = pool_in(called) {
        let answered = server.get::<Value>(&Kind::Rollouts.one(pool)).await;
        absent::explained(server, Kind::Rollouts, pool, answered).await?;
        return Ok(run_path(&format!("rollout/{pool}")));
    }
    let called = called.strip_prefix("machine/").unwrap_or(called);
    let absent = match machines::machine(server, called).await {
        Ok(machine) => return Ok(run_path(&machine.status.run)),
        Err(absent @ Failure::Absent { .. }) => absent,
        Err(failure) => return Err(failure),
    };
    match server.get::<Value>(&Kind::Pools.one(called)).await {
        Ok(_) => Err(Failure::Usage(format!(
            "{called} is a pool and no machine: its rollout is rollout/{called}"
        ))),
        Err(_) => Err(absent),
    }
}

/// Path of the run with this id.
pub(super) fn run_path(run: &str) -> String {
    let (workflow, key) = run.split_once('/').unwrap_or((run, ""));
    format!("/runs/{}/{}", segment(workflow), segment(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{machine_with, server_with};
    use dormer_views::actions::RETRY;
    use serde_json::json;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        machine: MachineArgs,
    }

    /// Two machines with this failure: failed, or late with an attempt that waits.
    fn with_code(code: &str, late: bool) -> Vec<machine::Machine> {
        let task = json!({"task": "machine/u@9.0", "run": "machine/u", "name": "probe", "machine": null, "attempt": 3,
            "attemptsMax": 65_535, "phase": "waiting", "since": null, "sinceSeconds": null, "heartbeat": null,
            "until": "2026-11-21T07:06:00.000Z", "failure": {"code": code, "message": "m"}});
        let fields = |name: &str| match late {
            true => json!({"name": name, "uid": name, "phase": "probing", "phaseText": "probing",
                "state": "Provisioned", "since": "2026-11-21T06:00:00.000Z", "sinceSeconds": 7_200, "tasks": [task]}),
            false => {
                json!({"name": name, "uid": name, "phase": "failed", "phaseText": "failed", "state": "Failed",
                "failure": {"code": code, "message": "m", "phase": "probing", "phaseText": "probing"}})
            }
        };
        ["win-a", "win-b"]
            .map(|name| machine_with(fields(name)))
            .into()
    }

    #[test]
    fn a_retry_of_a_pool_is_for_those_that_failed_or_wait_for_an_attempt() {
        let machine = |fields: serde_json::Value| machine_with(fields);
        let task = json!({"task": "machine/u@9.0", "run": "machine/u", "name": "probe", "attempt": 3,
            "attemptsMax": 60, "phase": "waiting", "until": "2026-11-21T07:06:00.000Z"});
        let failed = json!({"state": "Failed", "phase": "failed", "phaseText": "failed", "failure":
            {"code": "DiskFull", "message": "full", "phase": "probing", "phaseText": "probing"}});
        assert!(can_be_retried(&machine(failed)));
        assert!(can_be_retried(&machine(
            json!({"phase": "probing", "tasks": [task]})
        )));
        assert!(!can_be_retried(&machine(
            json!({"state": "Joined", "phase": "serving"})
        )));
    }

    #[tokio::test]
    async fn a_retry_of_a_pool_whose_failed_machines_are_held_names_the_resume() {
        use clap::Parser as _;
        let failed = json!({"state": "Failed", "phase": "failed", "phaseText": "failed", "failure":
            {"code": "DiskFull", "message": "full", "phase": "probing", "phaseText": "probing"}});
        let mut held = failed.clone();
        held["halt"] = json!({"kind": "held", "by": "ann", "text": "held by ann"});
        let serves = json!({"state": "Joined", "phase": "serving"});
        for (fields, says, not) in [
            (held, "dormer resume", "no machine there has failed"),
            (serves, "no machine there has failed", "resume"),
        ] {
            let url = server_with(move |path| match path {
                "/api/v1/machines" => json!({"items": [machine_with(fields.clone())]}),
                _ => json!({}),
            });
            let url = url.await;
            let line = ["x", "--pool", "windows", "--yes", "--server", &url];
            let args = Line::try_parse_from(line).expect("it is taken").machine;
            let refused = args.run(&RETRY).await.expect_err("nothing to retry");
            let refused = refused.to_string();
            assert!(
                refused.contains(says) && !refused.contains(not),
                "{refused}"
            );
        }
    }

    #[test]
    fn each_printed_command_of_a_group_chooses_its_machines() {
        use clap::Parser as _;
        use dormer_profile::answer::FailureCode;
        let codes = FailureCode::ALL.iter().map(|it| it.as_str());
        let others = [
            "ConnectTimeout",
            "ConnectRefused",
            "AuthRejected",
            "ClockSkew",
            "NoAnswer",
            "NameMismatch",
        ];
        let mut tried = 0;
        for code in codes.chain(others.map(str::to_owned)) {
            for late in [false, true] {
                let machines = with_code(&code, late);
                let groups = dormer_views::problem::groups(&machines);
                assert_eq!(groups.len(), 1, "{code}");
                for step in groups[0].steps(None) {
                    let [program, action, rest @ ..] = step.argv.as_slice() else {
                        continue;
                    };
                    if program != "dormer" || !["retry", "recreate"].contains(&action.as_str()) {
                        continue;
                    }
                    tried += 1;
                    let line = ["x".to_owned()].into_iter().chain(rest.iter().cloned());
                    let args = Line::try_parse_from(line).expect("it is taken").machine;
                    let filter = Filter {
                        pool: args.of_pool.clone(),
                        selector: args.selector.clone(),
                        ..Filter::default()
                    };
                    for machine in &machines {
                        let named = args.machines.contains(&machine.name);
                        let chosen = named
                            || args.machines.is_empty()
                                && filter.takes(machine)
                                && args.has_failed(machine);
                        assert!(chosen, "{}: {:?}", machine.name, step.line());
                    }
                }
            }
        }
        assert!(tried > 20, "{tried}");
    }

    #[test]
    fn what_holds_already_is_said_and_what_is_out_of_range_is_refused() {
        let halted = |kind: &str, text: &str| {
            machine_with(json!({"halt": {"kind": kind, "by": "ann", "text": text}}))
        };
        let held = halted("held", "held by ann");
        assert_eq!(
            already("hold", &held, "ann", "").as_deref(),
            Some("win-1: already held by ann")
        );
        assert_eq!(already("hold", &held, "bob", ""), None, "his is one more");
        assert_eq!(already("pause", &held, "ann", ""), None);
        assert_eq!(already("resume", &held, "ann", ""), None);
        // A later reason of one's own is the new one; that of a second pause is not kept, which is said.
        assert_eq!(already("hold", &held, "ann", "a new disk"), None);
        let paused = halted("paused", "paused by ann");
        assert_eq!(
            already("pause", &paused, "bob", "a look").as_deref(),
            Some("win-1: already paused by ann; your reason is not recorded: a look")
        );
        assert_eq!(already("hold", &machine_with(json!({})), "ann", ""), None);
        assert_eq!(in_history("win-1", 41, 41), Ok(()));
        for to in [0, 42] {
            let refused = in_history("win-1", to, 41).unwrap_err().to_string();
            assert!(refused.contains("the records 1 to 41"), "{refused}");
        }
        let pool = a_pool("pause", "windows").to_string();
        assert!(pool.ends_with("dormer pause --pool windows"), "{pool}");
    }

    #[test]
    fn a_person_whose_name_has_a_colon_is_named_whole() {
        use dormer_proto::id::Timestamp;
        let held = machine_with(
            json!({"halt": {"kind": "held", "by": "ops: ann: a disk", "who": "ops: ann",
            "why": "a disk", "text": "held by ops: ann: a disk", "since": "2026-11-21T07:00:00.000Z"}}),
        );
        let text = already("hold", &held, "ops: ann", "a disk");
        assert_eq!(
            text.as_deref(),
            Some("win-1: already held by ops: ann: a disk")
        );
        assert_eq!(
            already("hold", &held, "ops: bob", ""),
            None,
            "another person"
        );
        assert_eq!(already("hold", &held, "ops", ""), None, "nor this one");
        let halt = held.halt.expect("a hold");
        let since = halt.since.expect("a time").0.0;
        assert_eq!(
            halt.text_at(Timestamp(since + 3 * 3_600_000)),
            "held by ops: ann for 3 hours: a disk"
        );
    }

    #[test]
    fn a_code_that_nothing_failed_with_gets_those_that_there_are() {
        let failed = machine_with(json!({"state": "Failed", "phase": "failed", "failure":
            {"code": "access_denied", "message": "", "phase": "probing", "phaseText": "probing"}}));
        let serving = machine_with(json!({"state": "Joined", "phase": "serving"}));
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            machine: MachineArgs,
        }
        for (code, fits) in [
            ("AccessDenied", true),
            ("access_denied", true),
            ("DiskFull", false),
        ] {
            let line = ["retry", "--all-failed", "--code", code];
            let line = Line::try_parse_from(line).expect("a command line");
            assert_eq!(line.machine.has_failed(&failed), fits, "{code}");
        }
        assert_eq!(
            failed_codes(&[failed, serving.clone()]),
            "machines have failed with: AccessDenied"
        );
        assert_eq!(failed_codes(&[serving]), "no machine has failed");
    }

    #[test]
    fn a_summary_names_the_machines_and_their_causes() {
        let failed = |name: &str| {
            machine_with(
                json!({"name": name, "state": "Failed", "phase": "failed", "failure":
                {"code": "access_denied", "message": "", "phase": "probing", "phaseText": "probing"}}),
            )
        };
        let machines = [failed("a"), failed("b")];
        assert_eq!(
            summary(&RETRY, &machines),
            "retry 2 machines (a, b; causes: 2 AccessDenied)"
        );
        let many: Vec<machine::Machine> = (0..12).map(|_| failed("m")).collect();
        assert!(summary(&RETRY, &many).contains("and 2 more"));
    }
}
