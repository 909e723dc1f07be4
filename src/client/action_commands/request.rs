//! Request of an action: the arguments that all of them share, the body that is sent, and the answer in words.

use super::is_by;
use crate::{
    Failure, ServerArgs,
    answer::Answer,
    machines::path_of,
    server::{Server, ServerAddress},
    terminal,
};
use clap::Args;
use dormer_proto::{code, phase::MachinePhase};
use dormer_views::{
    actions::{ABORT, Action, HOLD, PAUSE, REMOVE, RESUME, RETRY},
    any_run::AnyRun,
    machine::{AskedFor, Halt, HaltKind, Machine, Machines},
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
    #[arg(long, alias = "reason", default_value = "", hide_default_value = true, value_parser = reason)]
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
        if let Some(failure) = failed_again(action, &answer.view, &self.to.address) {
            return Err(failure);
        }
        // The state of a rollout depends on its machines. Without a right to list them the rollout alone says it.
        let machines = match answer.view.as_rollout() {
            Some(_) => server.get::<Machines>("/machines").await.ok(),
            None => None,
        };
        let machines = machines.map_or_else(Vec::new, |it| it.items);
        Ok(answer_text(
            action,
            body,
            &answer.view,
            &machines,
            &self.to.address,
        ))
    }

    /// An answer for people, with what an action on a machine in this state means beyond its words.
    pub(super) fn explained(&self, answer: String, action: &Action, before: &Machine) -> String {
        if !self.to.is_for_people() {
            return answer;
        }
        let address = &self.to.address;
        let meant = abort_meant(action, before, address);
        let meant = meant.or_else(|| held_before(action, before, &user()));
        let lines = [Some(answer), meant, under_lease(action, before, address)];
        lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
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
        if let Ok(0) = std::io::stdin().lock().read_line(&mut said) {
            // The input ended on the line of the question.
            terminal::ask("\n");
        }
        match said.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(Failure::Usage("cancelled: nothing was done".into())),
        }
    }
}

/// Failure of a machine whose retried step has failed already, when the retry is in its history.
fn failed_again(action: &Action, run: &AnyRun, address: &ServerAddress) -> Option<Failure> {
    let machine = run.as_machine().filter(|_| action.name == RETRY.name)?;
    let failure = machine.failure.as_ref()?;
    Some(Failure::refused(
        format!(
            "retried, and it failed again at once: {} ({})",
            failure.message,
            code::shown(&failure.code)
        ),
        format!(
            "{} says what to do first",
            address.line(&["dormer", "why", &machine.name])
        ),
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
fn abort_meant(action: &Action, before: &Machine, address: &ServerAddress) -> Option<String> {
    if action.name != ABORT.name {
        return None;
    }
    let waited = match before.phase.known() {
        Some(MachinePhase::LeaseWait) => "No upgrade had begun: it left the queue. ",
        Some(MachinePhase::ApprovalWait | MachinePhase::OwnerWait) => "No upgrade had begun. ",
        _ => "",
    };
    let resume = address.line(&["dormer", "resume", &before.name]);
    Some(format!(
        "{waited}It is held: it serves as it is, and gets no upgrade until {resume}"
    ))
}

/// That a person's hold has a new reason. `None`: another action, or this person has not held it.
fn held_before(action: &Action, before: &Machine, person: &str) -> Option<String> {
    let own = |halt: &&Halt| halt.kind == HaltKind::Held && is_by(halt, person);
    let halt = before
        .halts()
        .find(own)
        .filter(|_| action.name == HOLD.name)?;
    Some(format!(
        "It was {} already: the new reason replaces that one",
        halt.text
    ))
}

/// What a hold or a pause means for a machine that holds the lease, and how it serves again. `None`: another action, it does not
/// hold the lease, or it gives the lease back whatever is asked for.
pub(super) fn under_lease(
    action: &Action,
    before: &Machine,
    address: &ServerAddress,
) -> Option<String> {
    use MachinePhase::{
        Closing, ClosingGone, Deleting, Drained, Evicting, Leaving, Opening, Undoing, Vanishing,
    };
    let asked = action.name == HOLD.name || action.name == PAUSE.name;
    before.token.filter(|_| asked)?;
    let is_in = |phases: &[MachinePhase]| phases.iter().any(|phase| before.phase == *phase);
    let line = |verb: &str| address.line(&["dormer", verb, before.name.as_str()]);
    if is_in(&[Closing, Undoing, ClosingGone]) {
        return None;
    }
    let may_abort = is_in(&[Opening, Evicting]) && !before.torn_down;
    let stops = action.name == PAUSE.name && !is_in(&[Leaving]);
    if stops || is_in(&[Drained]) {
        let text = format!(
            "It holds the lease: no other machine of pool {} is upgraded until it is resumed ({})",
            before.pool,
            line("resume")
        );
        return Some(match may_abort {
            true => format!(
                "{text}. To let it serve as it is, and give the lease back: {}",
                line("abort")
            ),
            false => text,
        });
    }
    let request = before.asked.as_ref().filter(|it| it.begun);
    let change = match request.and_then(|it| it.what.known()) {
        Some(AskedFor::Drain) => "drain",
        Some(AskedFor::Recreate) => "replacement",
        None => "upgrade",
    };
    Some(if may_abort {
        format!(
            "Its {change} continues: this keeps it out of the next one. To keep it as it is now: {}",
            line("abort")
        )
    } else if is_in(&[Deleting, Vanishing, Leaving]) {
        format!("Its {change} continues: the Machine is deleted")
    } else {
        format!("Its {change} continues, and it is kept as it is afterwards")
    })
}

/// Reason of a person. The word that stands for one in printed commands is none.
fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "REASON" => Err("write your own reason in the place of REASON".to_owned()),
        _ => Ok(text.to_owned()),
    }
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
    address: &ServerAddress,
) -> String {
    let line = answer_line(action, &done(action, body), run, machines);
    if action.name != REMOVE.name {
        return line;
    }
    let before = run.status().seq.saturating_sub(1).max(1);
    let name = run.name();
    let before = before.to_string();
    let reset = address.line(&["dormer", "reset", name, "--to", &before]);
    format!("{line}\nTo take it back: {reset}")
}

/// Whether what it waits for is the end of a pause.
fn is_paused(run: &AnyRun) -> bool {
    let rollout = run.as_rollout();
    rollout.is_some_and(|it| it.waits_for_resume)
        || run.as_machine().is_some_and(Machine::waits_for_resume)
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
    // Of a pause that has just begun its person knows.
    let paused = action.name == PAUSE.name && is_paused(run);
    if let Some(what) = run.waiting_for().filter(|_| !paused) {
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
            answer_text(&RETRY, &asked, &answer, &[], &ServerAddress::default()),
            "win-1: retried; now Reachable (probing), waits for SSH at 10.0.0.9"
        );
        assert!(failed_again(&RETRY, &answer, &ServerAddress::default()).is_none());
        let failed = json!({"phase": "failed", "state": "Failed", "phaseText": "failed", "failure":
            {"code": "access_denied", "message": "access denied", "phase": "probing", "phaseText": "probing"}});
        let answer = AnyRun::Machine(Box::new(machine_with(failed)));
        assert!(failed_again(&RESUME, &answer, &ServerAddress::default()).is_none());
        let again = failed_again(&RETRY, &answer, &ServerAddress::default())
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
            answer_text(&RESUME, &asked, &answer, &[], &ServerAddress::default()),
            "win-1: resumed (it was paused by ann: a look; held by bob: a disk); now Joined (serving)"
        );
        let ended = json!({"phase": "serving", "state": "Joined", "phaseText": "serving",
            "ended": ["drain asked for by ann (a disk)"], "halt": {"kind": "held", "by": "ada", "text": "held by ada"}});
        let answer = AnyRun::Machine(Box::new(machine_with(ended)));
        assert_eq!(
            answer_text(&HOLD, &asked, &answer, &[], &ServerAddress::default()),
            "win-1: held, which ended this request: drain asked for by ann (a disk); now Joined (serving)"
        );
        let checked = machine_with(json!({"wouldEnd": ["drain asked for by ann (a disk)"]}));
        assert_eq!(
            ends(&HOLD, &checked).as_deref(),
            Some("win-1: hold ends a request that waits: drain asked for by ann (a disk).")
        );
        let answer = AnyRun::Rollout(Box::new(rollout_with(json!({"state": "Paused"}))));
        assert_eq!(
            answer_text(&PAUSE_POOL, &asked, &answer, &[], &ServerAddress::default()),
            "windows: paused"
        );
        let answer = json!({"state": "Paused", "waitingFor": "a resume (paused by ada)",
            "waitsForResume": true});
        let answer = AnyRun::Rollout(Box::new(rollout_with(answer)));
        assert_eq!(
            answer_text(&PAUSE_POOL, &asked, &answer, &[], &ServerAddress::default()),
            "windows: paused"
        );
        let answer = AnyRun::Rollout(Box::new(rollout_with(json!({}))));
        assert_eq!(
            answer_text(&ROLLBACK, &back, &answer, &[], &ServerAddress::default()),
            "windows: rolling back to 10.9.0"
        );
    }

    #[test]
    fn an_abort_says_what_it_did_to_a_machine_that_only_waited() {
        let meant = |phase: &str| {
            let before = machine_with(json!({"state": "Joined", "phase": phase}));
            abort_meant(&ABORT, &before, &ServerAddress::default()).unwrap_or_default()
        };
        assert_eq!(
            meant("lease-wait"),
            "No upgrade had begun: it left the queue. It is held: it serves as it is, and gets no upgrade until \
             dormer resume win-1"
        );
        assert!(meant("approval-wait").starts_with("No upgrade had begun. "));
        assert!(meant("evicting").starts_with("It is held"));
        assert_eq!(
            abort_meant(&RETRY, &machine_with(json!({})), &ServerAddress::default()),
            None
        );
    }

    fn said_under_lease(action: &Action, phase: &str, token: Option<u64>) -> Option<String> {
        let machine = machine_with(json!({"state": "Draining", "phase": phase, "token": token}));
        under_lease(action, &machine, &ServerAddress::default())
    }

    #[test]
    fn a_pause_of_a_machine_that_holds_the_lease_says_who_waits_for_it() {
        let waits = "It holds the lease: no other machine of pool windows is upgraded until it is resumed (dormer resume \
                     win-1)";
        assert_eq!(
            said_under_lease(&PAUSE, "evicting", Some(4)),
            Some(format!(
                "{waits}. To let it serve as it is, and give the lease back: dormer abort win-1"
            ))
        );
        let torn_down = said_under_lease(&PAUSE, "tearing-down", Some(4));
        assert_eq!(torn_down.as_deref(), Some(waits), "too late for an abort");
        // A pause does not stop what gives the lease back.
        for phase in ["closing", "undoing", "closing-gone"] {
            assert_eq!(said_under_lease(&PAUSE, phase, Some(4)), None, "{phase}");
        }
        assert_eq!(said_under_lease(&PAUSE, "serving", None), None);
        assert_eq!(said_under_lease(&RETRY, "evicting", Some(4)), None);
    }

    #[test]
    fn no_abort_is_named_where_the_host_is_torn_down() {
        for phase in ["opening", "evicting"] {
            let torn_down = machine_with(
                json!({"state": "Draining", "phase": phase, "token": 4, "tornDown": true}),
            );
            for action in [&PAUSE, &HOLD] {
                let said =
                    under_lease(action, &torn_down, &ServerAddress::default()).unwrap_or_default();
                assert!(!said.is_empty() && !said.contains("abort"), "{said}");
            }
        }
    }

    /// `a_hold_does_not_stop_an_upgrade_that_runs` of the workflows shows that these answers are true.
    #[test]
    fn a_hold_of_a_machine_that_holds_the_lease_does_not_claim_to_stop_its_upgrade() {
        let said = |phase| said_under_lease(&HOLD, phase, Some(4));
        let aborted = "Its upgrade continues: this keeps it out of the next one. To keep it as it is now: dormer abort win-1";
        assert_eq!(said("evicting").as_deref(), Some(aborted));
        assert_eq!(said("opening").as_deref(), Some(aborted));
        let gone = "Its upgrade continues: the Machine is deleted";
        assert_eq!(said("deleting").as_deref(), Some(gone));
        let after = "Its upgrade continues, and it is kept as it is afterwards";
        for phase in ["tearing-down", "reprobing", "converging-host"] {
            assert_eq!(said(phase).as_deref(), Some(after), "{phase}");
        }
        assert_eq!(said("undoing"), None);
        let drained = said("drained").expect("it stays so");
        assert!(drained.starts_with("It holds the lease"), "{drained}");
        let drain = machine_with(json!({"phase": "evicting", "token": 4,
            "asked": {"what": "drain", "by": "ann", "at": null, "begun": true}}));
        let said = under_lease(&HOLD, &drain, &ServerAddress::default()).expect("it continues");
        assert!(said.starts_with("Its drain continues: "), "{said}");
    }

    #[test]
    fn the_word_that_stands_for_a_reason_is_none() {
        for placeholder in ["REASON", " REASON "] {
            assert!(reason(placeholder).is_err(), "{placeholder:?}");
        }
        for given in ["", "a reason", "REASON: the disk"] {
            assert_eq!(reason(given).as_deref(), Ok(given));
        }
    }

    #[test]
    fn a_hold_that_gets_another_reason_says_that_the_first_one_is_gone() {
        let held = |by: &str| {
            machine_with(
                json!({"halt": {"kind": "held", "by": by, "text": format!("held by {by}")}}),
            )
        };
        assert_eq!(
            held_before(&HOLD, &held("ada: a disk"), "ada").as_deref(),
            Some("It was held by ada: a disk already: the new reason replaces that one")
        );
        assert_eq!(held_before(&HOLD, &held("bob: a disk"), "ada"), None);
        assert_eq!(held_before(&RETRY, &held("ada: a disk"), "ada"), None);
        assert_eq!(held_before(&HOLD, &machine_with(json!({})), "ada"), None);
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
