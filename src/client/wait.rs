//! `dormer wait`: ends once machines are in a state, for scripts.

use super::{
    Failure,
    filter::{Filter, phase_id},
    items::{Kind, ListItem, machine_states},
    machines,
    server::{Server, ServerAddress},
};
use clap::Args;
use dormer_profile::suggestion::question;
use dormer_proto::phase::{Listed, MachinePhase, MachineState};
use dormer_views::{explain, machine::Machine, run::List};
use std::{str::FromStr, time::Duration};
use tokio::time::Instant;

/// Pause between two polls.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `dormer wait`.
#[derive(Debug, Args)]
#[command(override_usage = USAGE)]
pub struct Wait {
    /// The machines: names or the ends of them, NAMESPACE/NAME, or UIDs; the kind may stand before them, as for kubectl
    machines: Vec<String>,
    /// All machines that are there now
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: Filter,
    /// What to wait for: state=STATE, phase=PHASE, version=VERSION, gone or delete
    #[arg(long = "for", value_name = "CONDITION", default_value = "state=Joined")]
    until: WaitCondition,
    /// Longest wait: 90, 90s, 15m or 2h
    #[arg(long, default_value = "30m", value_parser = duration, value_name = "TIME")]
    timeout: Duration,
    #[command(flatten)]
    address: ServerAddress,
}

/// Condition of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitCondition {
    State(String),
    Phase(String),
    Version(String),
    Gone,
}

impl FromStr for WaitCondition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("state", state)) => known("state", state, &machine_states()).map(Self::State),
            Some(("phase", phase)) => {
                let phases: Vec<&str> = MachinePhase::ALL.iter().map(|it| it.id()).collect();
                known("phase", phase_id(phase), &phases).map(Self::Phase)
            }
            Some(("version", "")) => Err("version= names no version".to_owned()),
            Some(("version", version)) => Ok(Self::Version(version.to_owned())),
            None if ["gone", "delete"]
                .iter()
                .any(|it| it.eq_ignore_ascii_case(text)) =>
            {
                Ok(Self::Gone)
            }
            Some(("condition", _)) => Err(format!(
                "machines have states and no conditions, and one that serves is Joined: --for=state=Joined\n\
                 a Node has conditions: kubectl wait --for=condition=Ready node/NODE\nthe forms are {FORMS}"
            )),
            Some(("jsonpath", _)) => Err(format!(
                "a JSONPath is not read here: the state is a field by itself\nthe forms are {FORMS}"
            )),
            None if known("state", text, &machine_states()).is_ok() => Err(format!(
                "a state is given by its field; did you mean state={text}?\nthe forms are {FORMS}"
            )),
            _ => Err(format!("give one of {FORMS}")),
        }
    }
}

/// How machines are chosen.
const CHOOSE: &str =
    "name machines, or choose them by --all, --pool POOL, --state STATE or -l KEY=VALUE";
/// Usage line: without one of the choices there is nothing to wait for.
pub(super) const USAGE: &str =
    "dormer wait [OPTIONS] <MACHINE>... | --all | --pool POOL | --state STATE | -l SELECTOR";

/// Forms of a condition.
const FORMS: &str = "state=STATE, phase=PHASE, version=VERSION, gone or delete";

/// Value of a set, in any case.
fn known(what: &str, said: &str, all: &[&str]) -> Result<String, String> {
    let found = all.iter().find(|it| it.eq_ignore_ascii_case(said));
    found.map(|it| (*it).to_owned()).ok_or_else(|| {
        let near = question(said, all.iter().copied());
        let all = all.join(", ");
        format!("there is no {what} {said:?}{near}\nthe {what}s are: {all}")
    })
}

impl WaitCondition {
    fn holds(&self, machine: &Machine) -> bool {
        let filter = |state: &String| Filter {
            state: Some(state.clone()),
            ..Filter::default()
        };
        match self {
            Self::State(state) => filter(state).takes(machine),
            Self::Phase(phase) => machine.phase.id() == phase,
            Self::Version(version) => machine.version.as_ref() == Some(version),
            Self::Gone => machine.status.closed.is_some(),
        }
    }

    /// Whether a machine that has failed can still come there without a person.
    fn excludes(&self, machine: &Machine) -> bool {
        machine.state == MachineState::Failed && !self.holds(machine) && *self != Self::Gone
    }
}

/// Time as people write it: seconds, or a number with s, m or h.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write 90s, 15m or 2h");
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3_600),
        _ => (text, 1),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(unit).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

impl Wait {
    pub(crate) async fn run(mut self) -> Result<String, Failure> {
        self.filter.check::<Machine>("machines")?;
        self.without_kind();
        if self.all && !self.machines.is_empty() {
            let message = "give machines, or --all";
            return Err(Failure::Usage(message.into()));
        }
        if self.machines.is_empty() && self.filter.is_empty() && !self.all {
            return Err(Failure::Usage(CHOOSE.into()));
        }
        let server = self.address.server();
        let chosen = self.chosen(&server).await?;
        if chosen.is_empty() {
            self.filter.check_pool(&server).await?;
            return Err(Failure::refused(
                "no machine matches, so there is nothing to wait for",
                "dormer get machines lists them",
            ));
        }
        let deadline = Instant::now() + self.timeout;
        let by_name = !self.machines.is_empty();
        let mut waiting: Vec<String> = chosen.into_iter().map(|it| it.uid).collect();
        let mut met = Vec::new();
        loop {
            let mut still = Vec::new();
            // The server's silence in this pass.
            let mut lost = None;
            for uid in waiting {
                // A server that is silent for one machine would be so for each.
                if lost.is_some() {
                    still.push((uid, None));
                    continue;
                }
                let machine: Machine = match machines::machine(&server, &uid).await {
                    Ok(machine) => machine,
                    // A machine that is gone is forgotten after a while.
                    Err(Failure::Absent { .. }) if self.until == WaitCondition::Gone => {
                        met.push(format!("machine/{uid} condition met"));
                        continue;
                    }
                    // dormer may start again meanwhile, or another takes over.
                    Err(failure @ (Failure::Unreachable { .. } | Failure::Unready { .. })) => {
                        still.push((uid, None));
                        lost = Some(failure);
                        continue;
                    }
                    Err(failure) => return Err(failure),
                };
                match self.outcome(&machine, by_name) {
                    WaitState::Met(text) => met.push(text),
                    WaitState::Never(failure) => return Err(failure),
                    WaitState::Waits => still.push((uid, Some(machine))),
                }
            }
            let Some((_, first)) = still.first() else {
                return Ok(met.join("\n"));
            };
            if Instant::now() >= deadline {
                return Err(timed_out(
                    first.as_ref(),
                    still.len() - 1,
                    lost,
                    &self.address,
                ));
            }
            waiting = still.into_iter().map(|(uid, _)| uid).collect();
            tokio::time::sleep(POLL_EVERY.min(deadline - Instant::now())).await;
        }
    }

    fn outcome(&self, machine: &Machine, by_name: bool) -> WaitState {
        let is_gone = machine.status.closed.is_some();
        if self.until.holds(machine) {
            WaitState::Met(format!("machine/{} condition met", machine.name()))
        } else if is_gone && by_name {
            WaitState::Never(gone(machine, &self.address))
        } else if is_gone {
            // Of those that were chosen together: it was replaced, or is no more wanted.
            WaitState::Met(without(machine))
        } else if self.until.excludes(machine) {
            WaitState::Never(failed(machine, &self.address))
        } else {
            WaitState::Waits
        }
    }

    /// Takes the kind off, which kubectl wants before names and flags: `machines --all`.
    fn without_kind(&mut self) {
        let kind = |word: &String| <Kind as clap::ValueEnum>::from_str(word, true);
        let chosen = self.machines.len() > 1 || self.all || !self.filter.is_empty();
        if chosen && self.machines.first().map(kind) == Some(Ok(Kind::Machines)) {
            self.machines.remove(0);
        }
    }

    async fn chosen(&self, server: &Server) -> Result<Vec<Machine>, Failure> {
        let mut found = Vec::new();
        for called in &self.machines {
            let called = called.strip_prefix("machine/").unwrap_or(called);
            found.push(machines::machine(server, called).await?);
        }
        if self.machines.is_empty() {
            // A machine that is gone is listed only on request.
            let path = match self.filter.wants_gone() {
                true => "/machines?all=true",
                false => "/machines",
            };
            found = server.get::<List<Machine>>(path).await?.items;
        }
        found.retain(|it| self.filter.takes(it));
        Ok(found)
    }
}

/// What a machine's state means for the wait.
enum WaitState {
    /// It need not be waited for any more: why, for people.
    Met(String),
    /// It does not come there by itself.
    Never(Failure),
    /// Not yet.
    Waits,
}

/// Failure at the end of the time: the `first` of the machines that are waited for, as it was last seen. `lost`: the server does
/// not answer now.
fn timed_out(
    first: Option<&Machine>,
    others: usize,
    lost: Option<Failure>,
    address: &ServerAddress,
) -> Failure {
    let Some(first) = first else {
        return lost.unwrap_or_else(|| Failure::refused("timed out", "dormer status"));
    };
    let Machine {
        name, phase_text, ..
    } = first;
    let others = match others {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Failure::refused(
        format!(
            "timed out: {name} is {} ({phase_text}){others}",
            first.state
        ),
        address.line(&["dormer", "why", name]),
    )
}

/// That a machine is gone, and which one serves in its place.
fn without(machine: &Machine) -> String {
    let by = machine.replaced_by.as_ref();
    let by = by.map_or_else(String::new, |by| format!(", replaced by {by}"));
    format!("machine/{} is gone{by}", machine.name)
}

/// Refusal to wait for a machine that comes to no state any more.
fn gone(machine: &Machine, address: &ServerAddress) -> Failure {
    let what_to_do = match &machine.replaced_by {
        Some(by) => format!(
            "wait for the machine in its place: {}",
            address.line(&["dormer", "wait", by])
        ),
        None => "dormer get machines lists those that are there".to_owned(),
    };
    Failure::refused(
        format!("{}: it comes to no other state", without(machine)),
        what_to_do,
    )
}

fn failed(machine: &Machine, address: &ServerAddress) -> Failure {
    let failure = machine.failure.as_ref();
    let cause = failure.map_or_else(String::new, |it| explain::cause(&it.code, &it.message));
    Failure::refused(
        format!("{} failed: {cause}", machine.name),
        address.line(&["dormer", "why", &machine.name]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{machine_with, server_with};
    use serde_json::json;

    #[tokio::test]
    async fn a_machine_that_is_gone_is_found_by_its_state() {
        use clap::Parser as _;
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            wait: Wait,
        }
        let gone = json!({"state": "Gone", "phase": "gone", "phaseText": "gone",
            "closed": "2026-11-21T08:00:00.000Z"});
        let url = server_with(move |path| match path {
            "/api/v1/machines" => json!({"items": []}),
            "/api/v1/machines?all=true" => json!({"items": [machine_with(gone.clone())]}),
            _ => serde_json::to_value(machine_with(gone.clone())).expect("JSON"),
        });
        let url = url.await;
        let line = ["x", "--state", "gone", "--for", "gone", "--server", &url];
        let Line { wait } = Line::try_parse_from(line).expect("a command");
        let met = wait.run().await;
        assert_eq!(met.as_deref(), Ok("machine/win-1 condition met"));
    }

    #[test]
    fn a_machine_that_is_gone_is_named_with_its_replacement() {
        let replaced = machine_with(json!({"replacedBy": "win-2"}));
        assert_eq!(
            without(&replaced),
            "machine/win-1 is gone, replaced by win-2"
        );
        let refused = gone(&replaced, &ServerAddress::default()).to_string();
        assert!(refused.ends_with("dormer wait win-2"), "{refused}");
        let gone = gone(&machine_with(json!({})), &ServerAddress::default()).to_string();
        assert!(
            gone.starts_with("machine/win-1 is gone: it comes to no other state"),
            "{gone}"
        );
    }

    #[test]
    fn a_condition_names_a_state_that_exists() {
        let joined: WaitCondition = "state=joined".parse().unwrap();
        assert_eq!(joined, WaitCondition::State("Joined".into()));
        assert!(joined.holds(&machine_with(
            json!({"state": "Joined", "phase": "serving"})
        )));
        assert!(!joined.holds(&machine_with(json!({}))));
        let wrong = "state=Jioned".parse::<WaitCondition>().unwrap_err();
        assert!(wrong.contains("Joined"), "{wrong}");
        assert!("colour=red".parse::<WaitCondition>().is_err());
        let bare = "Joined".parse::<WaitCondition>().unwrap_err();
        assert!(bare.contains("did you mean state=Joined?"), "{bare}");
        assert_eq!("gone".parse(), Ok(WaitCondition::Gone));
        assert_eq!(
            "delete".parse(),
            Ok(WaitCondition::Gone),
            "as kubectl calls it"
        );
    }

    #[test]
    fn what_kubectl_wants_is_taken_or_answered_with_what_there_is() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            wait: Wait,
        }
        let machines = |line: &str| {
            let line = Line::try_parse_from(line.split(' ')).expect("a command line");
            let mut wait = line.wait;
            wait.without_kind();
            (wait.machines.join(" "), wait.all)
        };
        assert_eq!(machines("wait machines --all"), (String::new(), true));
        assert_eq!(machines("wait machine a b"), ("a b".into(), false));
        assert_eq!(
            machines("wait machines --pool windows"),
            (String::new(), false)
        );
        assert_eq!(machines("wait machine"), ("machine".into(), false));
        for (condition, part) in [
            ("condition=Ready", "--for=state=Joined"),
            ("jsonpath={.state}=Joined", "state=STATE"),
        ] {
            let why = condition.parse::<WaitCondition>().unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn a_phase_that_there_is_not_would_be_waited_for_for_ever() {
        let probing: WaitCondition = "phase=Probing".parse().unwrap();
        assert!(probing.holds(&machine_with(json!({"phase": "probing"}))));
        let wrong = "phase=probign".parse::<WaitCondition>().unwrap_err();
        assert!(wrong.contains("did you mean probing?"), "{wrong}");
        assert!(wrong.contains("the phases are: "), "{wrong}");
        assert!("version=".parse::<WaitCondition>().is_err());
    }

    #[test]
    fn a_failed_machine_does_not_come_to_another_state_by_itself() {
        let failed = machine_with(json!({"state": "Failed", "phase": "failed"}));
        assert!(WaitCondition::State("Joined".into()).excludes(&failed));
        assert!(!WaitCondition::State("Failed".into()).excludes(&failed));
        assert!(!WaitCondition::Gone.excludes(&failed));
    }

    #[test]
    fn a_time_is_read_as_people_write_it() {
        let read = |text: &str| duration(text).ok().map(|it| it.as_secs());
        assert_eq!(
            [read("90"), read("90s"), read("15m"), read("2h")],
            [Some(90), Some(90), Some(900), Some(7_200)]
        );
        for wrong in ["", "m", "soon", "-1s", "9999999999999999999h"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
