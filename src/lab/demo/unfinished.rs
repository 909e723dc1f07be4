//! Summary of a demonstration that did not finish: what happened, the causes with their machines, and one command to
//! look further.

use super::machine_runs::MachineRun;
use dormer_proto::phase::MachinePhase;

/// Most causes in a summary.
const CAUSES_MAX: usize = 3;
/// Most characters of a cause.
const CAUSE_MAX: usize = 160;

/// Machine that does not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnfinishedMachine {
    name: String,
    phase: MachinePhase,
    /// Failure, or the condition that it waits for.
    why: String,
}

impl UnfinishedMachine {
    /// `None`: it serves.
    pub(super) fn of(run: &MachineRun) -> Option<Self> {
        let view = &run.view;
        let why = view.reason.clone().or_else(|| view.waiting_for.clone());
        (view.phase != MachinePhase::Serving).then(|| Self {
            name: view.name.clone(),
            phase: view.phase,
            why: why.unwrap_or_default(),
        })
    }

    /// Failures are first. Machines that wait for their turn are last: they wait for the others.
    fn rank(&self) -> u8 {
        match self.phase {
            MachinePhase::Failed => 0,
            MachinePhase::LeaseWait | MachinePhase::ApprovalWait => 2,
            _ => 1,
        }
    }

    fn cause(&self) -> String {
        let state = self.phase.state();
        let what = match self.phase {
            MachinePhase::Failed => "failed".to_owned(),
            phase => format!("{state} ({})", phase.text()),
        };
        match self.why.as_str() {
            "" => what,
            why => format!("{what}: {}", cut(why)),
        }
    }
}

/// The first line, cut where it is long.
fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(CAUSE_MAX) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

/// The summary: `what` happened, the causes, and how to look further.
pub(super) fn summary(
    what: &str,
    mut machines: Vec<UnfinishedMachine>,
    next: impl Fn(Option<&UnfinishedMachine>) -> Option<String>,
) -> String {
    machines.sort_by(|one, other| {
        let order = |it: &UnfinishedMachine| (it.rank(), it.name.clone());
        order(one).cmp(&order(other))
    });
    let mut causes: Vec<(String, Vec<&str>)> = Vec::new();
    for machine in &machines {
        let cause = machine.cause();
        match causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, names)) => names.push(&machine.name),
            None => causes.push((cause, vec![&machine.name])),
        }
    }
    let mut text = what.to_owned();
    for (cause, names) in causes.iter().take(CAUSES_MAX) {
        let more = match names.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        text += &format!("\n  {}{more}: {cause}", names[0]);
    }
    let others = causes.iter().skip(CAUSES_MAX).map(|(_, names)| names.len());
    match others.sum::<usize>() {
        0 => {}
        1 => text += "\n  1 other machine does not serve yet",
        count => text += &format!("\n  {count} other machines do not serve yet"),
    }
    match next(machines.first()) {
        Some(command) => format!("{text}\nLook further: {command}"),
        None => text,
    }
}

/// What becomes of the simulated world of a demonstration that did not finish.
#[derive(Debug, Clone, Copy)]
pub(super) enum Afterwards<'a> {
    /// It stays, and dormer listens on this address.
    Held(&'a str),
    /// It ends, because nothing asked for it to stay.
    Ends,
    /// It ends, because a person ends it.
    Interrupted,
}

/// Command to look further: at the world that is held, or at another that stays. `None`: a person has seen enough.
pub(super) fn next_command(
    afterwards: Afterwards<'_>,
    first: Option<&UnfinishedMachine>,
    arguments: &[String],
) -> Option<String> {
    match (afterwards, first) {
        (Afterwards::Held(address), Some(first)) => Some(format!(
            "dormer why {} --server http://{address}",
            first.name
        )),
        (Afterwards::Held(address), None) => {
            Some(format!("dormer status --server http://{address}"))
        }
        (Afterwards::Ends, _) => Some(format!("dormer {} --hold", arguments.join(" "))),
        (Afterwards::Interrupted, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(name: &str, phase: MachinePhase, why: &str) -> UnfinishedMachine {
        UnfinishedMachine {
            name: name.into(),
            phase,
            why: why.into(),
        }
    }

    #[test]
    fn a_demonstration_that_fails_says_the_cause_first_and_each_cause_once() {
        let lease = |name| waiting(name, MachinePhase::LeaseWait, "the rollout's lease");
        let denied = |name| {
            let why = "access_denied while converging the host: Access is denied\nC:\\k: a list\nof files";
            waiting(name, MachinePhase::Failed, why)
        };
        let mut machines: Vec<UnfinishedMachine> = ["a", "b", "c"].map(lease).into();
        machines.extend([denied("x"), denied("d")]);
        let arguments = ["demo".to_owned(), "--machines=5".to_owned()];
        let next =
            |first: Option<&UnfinishedMachine>| next_command(Afterwards::Ends, first, &arguments);
        let text = summary("the machines could not be upgraded in time", machines, next);
        assert_eq!(
            text,
            "the machines could not be upgraded in time\n  \
             d and 1 more: failed: access_denied while converging the host: Access is denied\n  \
             a and 2 more: Joined (waiting for the lease): the rollout's lease\n\
             Look further: dormer demo --machines=5 --hold"
        );
    }

    #[test]
    fn a_person_who_ends_the_demonstration_gets_no_command_to_a_server_that_is_gone() {
        let machines = vec![waiting("win-0", MachinePhase::Probing, "SSH")];
        let next = |first: Option<&UnfinishedMachine>| {
            next_command(Afterwards::Interrupted, first, &["demo".to_owned()])
        };
        let text = summary("interrupted by SIGINT", machines, next);
        assert!(!text.contains("dormer "), "{text}");
    }

    #[test]
    fn a_long_cause_is_cut_and_many_causes_are_counted() {
        let machines = (0..9).map(|at| {
            let why = format!("{at}{}", "x".repeat(500));
            waiting(&format!("win-{at}"), MachinePhase::Probing, &why)
        });
        let held = Afterwards::Held("127.0.0.1:7080");
        let next = |first: Option<&UnfinishedMachine>| next_command(held, first, &[]);
        let text = summary("it stopped", machines.collect(), next);
        let expected = "\n  6 other machines do not serve yet\n\
                        Look further: dormer why win-0 --server http://127.0.0.1:7080";
        assert!(text.ends_with(expected), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() < 240),
            "{text}"
        );
    }
}
