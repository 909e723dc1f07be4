//! Request of an action: the arguments that all of them share, the body that is sent, and the answer in words.

use crate::{Failure, ServerArgs, answer::Answer, machines::path_of, server::Server, terminal};
use clap::Args;
use dormer_proto::{code, phase::MachinePhase};
use dormer_views::{
    actions::{ABORT, Action, HOLD, REMOVE, RESUME, RETRY},
    any_run::AnyRun,
    machine::{Machine, Machines},
    rollout::Overridden,
};
use serde::Serialize;
use serde_json::Value;
use std::io::{BufRead, IsTerminal};

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
    pub(super) fn of(action: &Action) -> Self {
        action.danger.map_or(Self::None, Self::Moves)
    }
}

/// Arguments of every action.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// Your reason; the history records it
    #[arg(long, alias = "reason", default_value = "", hide_default_value = true)]
    pub(super) why: String,
    /// Id of the request; a repeat with the same id is confirmed, not executed again [default: random]
    #[arg(long)]
    id: Option<String>,
    /// Act only if the present state was entered at this record, the number that `dormer describe` shows at "State entered at
    /// record"
    #[arg(long, value_name = "RECORD")]
    pub(super) against: Option<u64>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    pub(super) to: ServerArgs,
}

#[derive(Debug, Serialize)]
pub(super) struct RequestBody<'a> {
    pub(super) id: String,
    pub(super) who: String,
    pub(super) why: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) against: Option<u64>,
    /// Record that a reset goes back to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<u64>,
    /// Payload version that a rollback goes back to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload: Option<&'a str>,
    /// The rollback that is ended, as the person saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) overridden: Option<&'a Overridden>,
    /// The host key that is trusted from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint: Option<&'a str>,
    /// Whether the server only checks the request.
    #[serde(rename = "dryRun", skip_serializing_if = "is_false")]
    pub(super) dry_run: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

impl RequestArgs {
    pub(super) fn body(&self) -> RequestBody<'_> {
        let drawn = || format!("cli-{:032x}", rand::random::<u128>());
        RequestBody {
            id: self.id.clone().unwrap_or_else(drawn),
            who: user(),
            why: &self.why,
            against: self.against,
            to: None,
            payload: None,
            overridden: None,
            fingerprint: None,
            dry_run: false,
        }
    }

    /// Posts the action to a path, and words the answer.
    pub(super) async fn post(
        &self,
        server: &Server,
        action: &Action,
        path: &str,
        body: &RequestBody<'_>,
    ) -> Result<String, Failure> {
        let answer: Answer<AnyRun> = server.post(path, body).await?;
        if let Some(programs) = self.to.programs(&answer)? {
            return Ok(programs);
        }
        if let Some(failure) = failed_again(action, &answer.view) {
            return Err(failure);
        }
        // The state of a rollout depends on its machines. Without a right to list them the rollout alone says it.
        let machines = match answer.view.as_rollout() {
            Some(_) => server.get::<Machines>("/machines").await.ok(),
            None => None,
        };
        let machines = machines.map_or_else(Vec::new, |it| it.items);
        Ok(answer_text(action, body, &answer.view, &machines))
    }

    /// An answer for people, with what an action on a machine in this state means beyond its words.
    pub(super) fn explained(&self, answer: String, action: &Action, before: &Machine) -> String {
        match abort_meant(action, before) {
            Some(meaning) if self.to.is_for_people() => format!("{answer}\n{meaning}"),
            _ => answer,
        }
    }

    /// Lets the server check a request before a person is asked to confirm it.
    pub(super) async fn check(
        &self,
        server: &Server,
        path: &str,
        body: &RequestBody<'_>,
    ) -> Result<(), Failure> {
        let body = RequestBody {
            id: body.id.clone(),
            who: body.who.clone(),
            dry_run: true,
            ..*body
        };
        server.post::<Value>(path, &body).await.map(|_| ())
    }

    /// Question before a resume ends what other people began, or a hold ends a drain or a replacement that waits. `None`: it
    /// ends nothing of that kind, or `--yes` answers.
    ///
    /// # Errors
    /// The server does not answer, or refuses the action.
    pub(super) async fn ends_of_others(
        &self,
        server: &Server,
        action: &Action,
        chosen: &[Machine],
    ) -> Result<Option<String>, Failure> {
        let concerns = |machine: &&Machine| match action.name {
            name if name == RESUME.name => machine.halt.is_some(),
            name if name == HOLD.name => machine.asked.is_some(),
            _ => false,
        };
        if self.yes {
            return Ok(None);
        }
        let mut lines = Vec::new();
        for machine in chosen.iter().filter(concerns) {
            let path = format!("{}/actions/{}", path_of(machine), action.name);
            let body = RequestBody {
                dry_run: true,
                ..self.body()
            };
            let checked: Result<Machine, Failure> = server.post(&path, &body).await;
            let checked = checked.map_err(|failure| failure.about(&machine.name))?;
            if let Some(line) = ends(action, &checked) {
                lines.push(line);
            }
        }
        Ok((!lines.is_empty()).then(|| lines.join("\n")))
    }

    /// Whether a person is asked before an action of this risk.
    pub(super) fn asks(&self, risk: Risk) -> bool {
        !self.yes && matches!(risk, Risk::Moves(_))
    }

    /// Asks for confirmation before a risky action.
    pub(super) fn confirm(&self, what: &str, risk: Risk) -> Result<(), Failure> {
        match risk {
            Risk::None => Ok(()),
            Risk::Moves(consequence) => self.asked(&format!("{what}: {consequence}.")),
        }
    }

    /// Asks a question that requires --yes, or a yes on a terminal.
    pub(super) fn asked(&self, question: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            return Err(Failure::Usage(format!("{question} Add --yes to confirm")));
        }
        terminal::ask(&format!("{question} Continue? [y/N] "));
        let mut said = String::new();
        let _ = std::io::stdin().lock().read_line(&mut said);
        match said.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(Failure::Usage("cancelled: nothing was done".into())),
        }
    }
}

/// Failure of a machine whose retried step has failed already, when the retry is in its history.
fn failed_again(action: &Action, run: &AnyRun) -> Option<Failure> {
    let machine = run.as_machine().filter(|_| action.name == RETRY.name)?;
    let failure = machine.failure.as_ref()?;
    Some(Failure::refused(
        format!(
            "retried, and it failed again at once: {} ({})",
            failure.message,
            code::shown(&failure.code)
        ),
        format!("dormer why {} says what to do first", machine.name),
    ))
}

/// What a checked resume would end of other people's, or a checked hold of what waits.
fn ends(action: &Action, checked: &Machine) -> Option<String> {
    let all = checked.would_end.join("; ");
    let what = match action.name == HOLD.name {
        true => "hold ends a request that waits",
        false => "resume ends what other people began",
    };
    (!all.is_empty()).then(|| format!("{}: {what}: {all}.", checked.name))
}

/// What an abort did: of a machine that only waits, nothing was changed yet. `None`: another action.
fn abort_meant(action: &Action, before: &Machine) -> Option<String> {
    if action.name != ABORT.name {
        return None;
    }
    let waited = match before.phase.known() {
        Some(MachinePhase::LeaseWait) => "No upgrade had begun: it left the queue. ",
        Some(MachinePhase::ApprovalWait | MachinePhase::OwnerWait) => "No upgrade had begun. ",
        _ => "",
    };
    let name = &before.name;
    Some(format!(
        "{waited}It is held: it serves as it is, and gets no upgrade until dormer resume {name}"
    ))
}

/// Name of the requester: the user of this computer.
pub(super) fn user() -> String {
    let mut named = ["USER", "LOGNAME", "USERNAME"]
        .iter()
        .filter_map(|name| std::env::var(name).ok());
    named
        .find(|name| !name.is_empty())
        .or_else(user_of_process)
        .unwrap_or_else(|| "somebody".into())
}

/// Name of the user whose process this is, as in a container or a service without `USER`.
fn user_of_process() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let id = ids.split_whitespace().next()?.parse().ok()?;
    name_of(&std::fs::read_to_string("/etc/passwd").ok()?, id)
}

/// Name of the user with this id, of the lines `NAME:PASSWORD:ID:…`.
fn name_of(passwd: &str, id: u32) -> Option<String> {
    let mut rows = passwd.lines().map(|line| line.split(':'));
    rows.find_map(|mut row| {
        let name = row.next()?;
        let found: u32 = row.nth(1)?.parse().ok()?;
        (found == id && !name.is_empty()).then(|| name.to_owned())
    })
}

/// Finished action: its own words, with its payload or record.
fn done(action: &Action, body: &RequestBody<'_>) -> String {
    let to_record = body.to.map(|record| record.to_string());
    let payload = body.payload.filter(|_| body.overridden.is_none());
    match to_record.as_deref().or(payload) {
        Some(to) => format!("{} {to}", action.done),
        None => action.done.to_owned(),
    }
}

/// Answer to an action on a run, which `machines` say more of if it is a rollout; and how a removal is taken back: by a reset to the record before it.
pub(super) fn answer_text(
    action: &Action,
    body: &RequestBody<'_>,
    run: &AnyRun,
    machines: &[Machine],
) -> String {
    let line = answer_line(action, &done(action, body), run, machines);
    if action.name != REMOVE.name {
        return line;
    }
    let before = run.status().seq.saturating_sub(1).max(1);
    let name = run.name();
    format!("{line}\nTo take it back: dormer reset {name} --to {before}")
}

/// Answer in one line: the finished action, the run's state, and the condition that it waits for.
fn answer_line(action: &Action, what: &str, run: &AnyRun, machines: &[Machine]) -> String {
    let mut line = format!("{}: {what}", run.name());
    // A resume ends a pause, a hold and a drain together.
    let ended = run.as_machine().map_or(&[][..], |it| &it.ended);
    let is_hold = action.name == HOLD.name;
    if !ended.is_empty() {
        let ended = ended.join("; ");
        line += &match is_hold {
            true => format!(", which ended this request: {ended}"),
            false => format!(" (it was {ended})"),
        };
    }
    let still: Vec<&str> = run.as_machine().map_or_else(Vec::new, |it| {
        it.halts().map(|halt| halt.text.as_str()).collect()
    });
    if !ended.is_empty() && !still.is_empty() && !is_hold {
        line += &format!("; still {}", still.join("; "));
    }
    let word = run.word(machines);
    // It says nothing about what was asked for.
    let idle = run.state() != word && word == "Idle";
    if !idle && !word.eq_ignore_ascii_case(what) {
        line += &format!("; now {word}");
    }
    if let Some(phase) = run.phase() {
        line += &format!(" ({phase})");
    }
    if let Some(what) = run.waiting_for() {
        line += &format!(", waits for {what}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{machine_with, rollout_with};
    use dormer_views::actions::{END_ROLLBACK, PAUSE_POOL, RESET, ROLLBACK};
    use serde_json::json;

    #[test]
    fn who_asks_without_a_variable_is_the_user_of_the_process() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\n\nodd\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_of(passwd, 1_000).as_deref(), Some("ada"));
        assert_eq!(name_of(passwd, 0).as_deref(), Some("root"));
        assert_eq!(name_of(passwd, 7), None, "an id of a container alone");
    }

    fn body() -> RequestBody<'static> {
        RequestBody {
            id: "x".into(),
            who: "ada".into(),
            why: "",
            against: None,
            to: None,
            payload: None,
            overridden: None,
            fingerprint: None,
            dry_run: false,
        }
    }

    #[test]
    fn an_answer_says_who_is_now_where() {
        let probing =
            json!({"phase": "probing", "phaseText": "probing", "waitingFor": "SSH at 10.0.0.9"});
        let answer = AnyRun::Machine(Box::new(machine_with(probing)));
        let asked = body();
        let back = RequestBody {
            payload: Some("10.9.0"),
            ..body()
        };
        assert_eq!(
            answer_text(&RETRY, &asked, &answer, &[]),
            "win-1: retried; now Reachable (probing), waits for SSH at 10.0.0.9"
        );
        assert!(failed_again(&RETRY, &answer).is_none());
        let failed = json!({"phase": "failed", "state": "Failed", "phaseText": "failed", "failure":
            {"code": "access_denied", "message": "access denied", "phase": "probing", "phaseText": "probing"}});
        let answer = AnyRun::Machine(Box::new(machine_with(failed)));
        assert!(failed_again(&RESUME, &answer).is_none());
        let again = failed_again(&RETRY, &answer)
            .expect("a failure")
            .to_string();
        assert!(
            again.contains("failed again at once: access denied (AccessDenied)")
                && again.contains("dormer why win-1"),
            "{again}"
        );
        let ended = json!({"phase": "serving", "state": "Joined", "phaseText": "serving",
            "ended": ["paused by ann: a look", "held by bob: a disk"]});
        let answer = AnyRun::Machine(Box::new(machine_with(ended)));
        assert_eq!(
            answer_text(&RESUME, &asked, &answer, &[]),
            "win-1: resumed (it was paused by ann: a look; held by bob: a disk); now Joined (serving)"
        );
        let ended = json!({"phase": "serving", "state": "Joined", "phaseText": "serving",
            "ended": ["drain asked for by ann (a disk)"], "halt": {"kind": "held", "by": "ada", "text": "held by ada"}});
        let answer = AnyRun::Machine(Box::new(machine_with(ended)));
        assert_eq!(
            answer_text(&HOLD, &asked, &answer, &[]),
            "win-1: held, which ended this request: drain asked for by ann (a disk); now Joined (serving)"
        );
        let checked = machine_with(json!({"wouldEnd": ["drain asked for by ann (a disk)"]}));
        assert_eq!(
            ends(&HOLD, &checked).as_deref(),
            Some("win-1: hold ends a request that waits: drain asked for by ann (a disk).")
        );
        let answer = AnyRun::Rollout(Box::new(rollout_with(json!({"state": "Paused"}))));
        assert_eq!(
            answer_text(&PAUSE_POOL, &asked, &answer, &[]),
            "windows: paused"
        );
        let answer = AnyRun::Rollout(Box::new(rollout_with(json!({}))));
        assert_eq!(
            answer_text(&ROLLBACK, &back, &answer, &[]),
            "windows: rolling back to 10.9.0"
        );
    }

    #[test]
    fn an_abort_says_what_it_did_to_a_machine_that_only_waited() {
        let meant = |phase: &str| {
            let before = machine_with(json!({"state": "Joined", "phase": phase}));
            abort_meant(&ABORT, &before).unwrap_or_default()
        };
        assert_eq!(
            meant("lease-wait"),
            "No upgrade had begun: it left the queue. It is held: it serves as it is, and gets no upgrade until \
             dormer resume win-1"
        );
        assert!(meant("approval-wait").starts_with("No upgrade had begun. "));
        assert!(meant("evicting").starts_with("It is held"));
        assert_eq!(abort_meant(&RETRY, &machine_with(json!({}))), None);
    }

    #[test]
    fn a_request_says_only_what_is_meant() {
        let body = RequestBody {
            against: Some(7),
            ..body()
        };
        let sent = json!({"id": "x", "who": "ada", "why": "", "against": 7});
        assert_eq!(serde_json::to_value(body).unwrap(), sent);
    }

    #[test]
    fn where_an_action_goes_to_is_said() {
        let seen = Overridden {
            spec_payload: "11.0.0".into(),
            by: "ann".into(),
        };
        let end = RequestBody {
            payload: Some("10.9.0"),
            overridden: Some(&seen),
            ..body()
        };
        assert_eq!(done(&END_ROLLBACK, &end), END_ROLLBACK.done);
        let sent = serde_json::to_value(end).unwrap();
        assert_eq!(
            (&sent["payload"], &sent["overridden"]),
            (
                &json!("10.9.0"),
                &json!({"specPayload": "11.0.0", "by": "ann"})
            )
        );
        let to_record = RequestBody {
            to: Some(38),
            ..body()
        };
        assert_eq!(done(&RESET, &to_record), "reset to record 38");
        assert_eq!(done(&REMOVE, &body()), "removed from dormer");
    }
}
