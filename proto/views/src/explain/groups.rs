//! Machines in trouble by their causes: equal causes once, each with commands for all of its machines; and requests of people
//! that are not ended.

use super::{
    common::common,
    dotless,
    problem::{MachineProblem, problem},
    shared_steps::node,
    step::Step,
    steps,
};
use crate::{machine::Machine, rollout::Rollout};
use dormer_proto::phase::MachinePhase;

/// Machines with one cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Group<'a> {
    /// Their trouble; its cause is what their causes have in common.
    pub problem: MachineProblem,
    /// The machines, the one that has it longest first.
    pub machines: Vec<&'a Machine>,
    /// Of each machine what its cause has alone; empty where it has nothing.
    pub alone: Vec<String>,
}

impl Group<'_> {
    /// Next steps, without alternatives. Their commands are for all of its machines.
    pub fn steps(&self, rollout: Option<&Rollout>) -> Vec<Step> {
        let Some(first) = self.machines.first() else {
            return Vec::new();
        };
        let mut steps = steps(first, rollout);
        steps.retain(|step| !step.instead);
        if self.machines.len() > 1 {
            steps.iter_mut().for_each(|step| self.for_all(step, first));
        }
        steps
    }

    /// Makes the command of the first machine one for all of them, where one can be.
    fn for_all(&self, step: &mut Step, first: &Machine) {
        let words: Vec<&str> = step.argv.iter().map(String::as_str).collect();
        let code = self.problem.code.as_str();
        let names = self.machines.iter().map(|it| it.name.as_str());
        let phase = format!("phase={}", first.phase);
        let of_code = format!("code={code}");
        let argv: Vec<&str> = match words.as_slice() {
            [program, "retry", name] if *name == first.name => match first.failure {
                Some(_) => vec![*program, "retry", "--all-failed", "--code", code],
                None => vec![*program, "retry", "-l", &of_code],
            },
            [program, "approve", name] if *name == first.name => {
                vec![*program, "approve", "-l", &phase]
            }
            [program, "unquarantine", name] if *name == first.name => {
                let code = self.problem.key.as_deref().unwrap_or_default();
                vec![*program, "unquarantine", "--all", "--code", code]
            }
            [program, action @ ("resume" | "recreate"), name] if *name == first.name => {
                [*program, *action].into_iter().chain(names).collect()
            }
            // Objects of one namespace, or Nodes.
            ["kubectl", words @ ..] => {
                let same = |it: &&Machine| it.namespace == first.namespace;
                let same: Vec<&Machine> = self.machines.iter().copied().filter(same).collect();
                let called = |word: &&str| -> Vec<String> {
                    match *word {
                        word if word == first.name => {
                            same.iter().map(|it| it.name.clone()).collect()
                        }
                        word if word == node(first) => {
                            let nodes = self.machines.iter();
                            nodes.map(|it| node(it).to_owned()).collect()
                        }
                        word => vec![word.to_owned()],
                    }
                };
                let words = words.iter().flat_map(called);
                step.argv = ["kubectl".to_owned()].into_iter().chain(words).collect();
                return;
            }
            _ => {
                let one_of_them = step.fill.iter_mut().filter(|it| **it == first.name);
                one_of_them.for_each(|word| "MACHINE".clone_into(word));
                return;
            }
        };
        step.argv = argv.into_iter().map(str::to_owned).collect();
    }

    /// Puts what the causes of its machines have in common into its trouble, and what each has alone beside it. A person who
    /// reads one host's address or key would take it for that of all.
    fn share(&mut self) {
        let problems: Vec<MachineProblem> =
            self.machines.iter().filter_map(|it| problem(it)).collect();
        let causes: Vec<&str> = problems.iter().map(|it| dotless(&it.cause)).collect();
        let addresses = self.machines.iter().map(|it| it.address.as_deref());
        let addresses: Vec<&str> = addresses.map(Option::unwrap_or_default).collect();
        let (cause, alone) = common(&causes, &addresses, "the host");
        let also = problems.iter().map(|it| it.beneath.as_deref());
        let alone = alone.into_iter().zip(also).map(|(alone, also)| match also {
            Some(also) if alone.is_empty() => also.to_owned(),
            Some(also) => format!("{alone}; {also}"),
            None => alone,
        });
        self.alone = alone.collect();
        if let Some(first) = problems.into_iter().next() {
            self.problem = MachineProblem { cause, ..first };
        }
    }

    /// Seconds for which the first of its machines has the trouble, if that is known.
    pub fn seconds(&self) -> Option<u64> {
        self.problem.seconds(self.machines.first()?)
    }
}

/// Machines in trouble, grouped by equal causes: the most urgent first, then the largest group.
pub fn groups<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for machine in machines {
        let Some(problem) = problem(machine) else {
            continue;
        };
        let known = groups.iter_mut().find(|group| {
            let of = |it: &MachineProblem| (it.urgency, it.code.clone(), it.key.clone());
            of(&group.problem) == of(&problem)
        });
        match known {
            Some(group) => group.machines.push(machine),
            None => groups.push(Group {
                problem,
                machines: vec![machine],
                alone: Vec::new(),
            }),
        }
    }
    for group in &mut groups {
        group.machines.sort_by_cached_key(|it| {
            let seconds = problem(it).and_then(|problem| problem.seconds(it));
            (std::cmp::Reverse(seconds), it.name.clone())
        });
        group.share();
    }
    groups.sort_by(|one, other| {
        let order = |it: &Group<'_>| (it.problem.urgency, std::cmp::Reverse(it.machines.len()));
        order(one)
            .cmp(&order(other))
            .then_with(|| one.problem.code.cmp(&other.problem.code))
            .then_with(|| one.problem.key.cmp(&other.problem.key))
    });
    groups
}

/// Requests of people that need the lease and are not ended, each with what it waits for and the names of its machines. A
/// machine that is drained is none: that is a trouble.
pub fn requests<'a>(
    machines: impl IntoIterator<Item = &'a Machine>,
) -> Vec<(String, Vec<&'a str>)> {
    let mut requests: Vec<(String, Vec<&'a str>)> = Vec::new();
    for machine in machines {
        let open = machine
            .asked
            .as_ref()
            .filter(|_| machine.phase != MachinePhase::Drained);
        let Some(asked) = open else { continue };
        let text = match machine.asked_waits_for() {
            Some(what) => format!("{}, waits for {what}", asked.text()),
            None => asked.text(),
        };
        match requests.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(&machine.name),
            None => requests.push((text, vec![&machine.name])),
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        explain::{
            short::in_short,
            tests::{failed_while, machine_in, waiting},
        },
        machine::{HaltKind, PendingRequest},
    };

    fn after(machine: Machine, minutes: u64) -> Machine {
        let mut machine = machine;
        machine.status.since_seconds = minutes * 60;
        machine
    }

    fn held_by(name: &str, by: &str) -> Machine {
        Machine {
            name: name.into(),
            halt: Some(crate::machine::Halt {
                kind: HaltKind::Held.into(),
                by: Some(by.into()),
                text: format!("held by {by}"),
                since: None,
            }),
            ..machine_in(MachinePhase::Serving)
        }
    }

    #[test]
    fn holds_of_two_people_are_two_groups_each_with_a_command_for_all_of_its_machines() {
        let machines = [
            held_by("a", "ann: a new disk"),
            held_by("b", "bob: a review"),
            held_by("c", "ann: a new disk"),
            held_by("d", "ann: another reason"),
        ];
        let groups = groups(&machines);
        let lines: Vec<(String, Option<String>)> = groups
            .iter()
            .map(|it| (it.problem.cause.clone(), it.steps(None)[0].line()))
            .collect();
        let line = |cause: &str, line: &str| (cause.to_owned(), Some(line.to_owned()));
        assert_eq!(
            lines,
            [
                line("held by ann: a new disk", "dormer resume a c"),
                line("held by ann: another reason", "dormer resume d"),
                line("held by bob: a review", "dormer resume b"),
            ]
        );
    }

    #[test]
    fn a_command_for_a_group_is_for_all_of_it() {
        let ignored = |name: &str| {
            let mut machine = held_by(name, "");
            machine.namespace = "machines".into();
            if let Some(halt) = &mut machine.halt {
                halt.kind = HaltKind::Ignored.into();
                halt.text = "labelled".into();
            }
            machine
        };
        let quarantined = |name: &str, code: &str| {
            let mut machine = machine_in(MachinePhase::Serving);
            machine.name = name.into();
            machine.status.quarantine = Some(crate::run::Quarantine {
                code: code.into(),
                why: format!("why of {name}"),
                since: machine.status.since,
                builds: Vec::new(),
            });
            machine
        };
        let lines = |machines: &[Machine]| -> Vec<String> {
            let groups = groups(machines);
            let lines = groups.iter().flat_map(|it| it.steps(None));
            lines.filter_map(|it| it.line()).collect()
        };
        assert_eq!(
            lines(&[ignored("a"), ignored("b")]),
            ["kubectl -n machines label machine a b windowsmachineconfig.openshift.io/ignore-"]
        );
        let quarantined = [
            quarantined("a", "RecordRefused"),
            quarantined("b", "RecordForged"),
            quarantined("c", "RecordRefused"),
        ];
        assert_eq!(
            lines(&quarantined),
            [
                "dormer unquarantine --all --code RecordRefused",
                "dormer unquarantine b",
            ]
        );
    }

    #[test]
    fn a_command_for_late_machines_chooses_them_by_the_code_that_is_shown() {
        let late = |name: &str, code: &str| {
            let machine = Machine {
                name: name.into(),
                ..after(machine_in(MachinePhase::Probing), 60)
            };
            waiting(machine, code, "it cannot be written")
        };
        let full = [late("a", "DiskFull"), late("b", "DiskFull")];
        let group = &groups(&full)[0];
        assert_eq!(group.problem.code, "DiskFull");
        let lines: Vec<String> = group.steps(None).iter().filter_map(Step::line).collect();
        assert_eq!(lines, ["dormer retry -l code=DiskFull"]);
        // One that has failed is not tried again by itself, and needs another command.
        let failed = failed_while(MachinePhase::Probing, "DiskFull", "it cannot be written");
        let mixed = [late("a", "DiskFull"), failed];
        assert_eq!(groups(&mixed).len(), 2);
        // Whether a host does not answer or refuses is one cause.
        let silent = [late("a", "ConnectTimeout"), late("b", "ConnectRefused")];
        let silent = groups(&silent);
        assert_eq!(silent.len(), 1);
        assert_eq!(silent[0].problem.shown, "ConnectTimeout");
        let line = silent[0].steps(None).iter().find_map(Step::line);
        assert_eq!(line.as_deref(), Some("dormer retry -l code=probing"));
    }

    #[test]
    fn a_groups_cause_is_what_its_machines_share() {
        let changed = |name: &str, address: &str, key: &str| Machine {
            name: name.into(),
            address: Some(address.into()),
            ..failed_while(
                MachinePhase::Probing,
                "HostKeyChanged",
                &format!("{address} shows the key {key}."),
            )
        };
        let machines = [changed("a", "10.0.0.7", "k"), changed("b", "10.0.0.8", "l")];
        let groups = groups(&machines);
        let [group] = groups.as_slice() else {
            panic!("{groups:?}");
        };
        let cause = "the host shows the key … (HostKeyChanged)";
        assert_eq!(group.problem.cause, cause);
        assert_eq!(group.alone, ["10.0.0.7 k", "10.0.0.8 l"]);
        let line = group.steps(None).iter().find_map(Step::line);
        let trust = "dormer trust-host-key MACHINE --fingerprint FINGERPRINT --why REASON";
        assert_eq!(line.as_deref(), Some(trust));
    }

    #[test]
    fn a_request_that_waits_is_shown_with_its_person_and_what_it_waits_for() {
        let asked = |name: &str, phase| Machine {
            name: name.into(),
            asked: Some(PendingRequest {
                what: crate::machine::AskedFor::Drain.into(),
                by: Some("ann: a new kernel".into()),
                at: None,
                begun: false,
            }),
            ..machine_in(phase)
        };
        let waits = asked("a", MachinePhase::LeaseWait);
        let short = "drain asked for by ann (a new kernel)";
        assert_eq!(in_short(&waits).as_deref(), Some(short));
        let machines = [
            waits,
            asked("b", MachinePhase::ConvergingHost),
            asked("c", MachinePhase::LeaseWait),
            asked("d", MachinePhase::Drained),
        ];
        let lease = format!("{short}, waits for the rollout's lease");
        let step = format!("{short}, waits for the present step (converging the host)");
        assert_eq!(
            requests(&machines),
            [(lease, vec!["a", "c"]), (step, vec!["b"])]
        );
        let drained = problem(&machines[3]).expect("trouble");
        assert_eq!(
            drained.cause,
            "drained by ann (a new kernel); it stays so until it is resumed"
        );
    }

    #[test]
    fn equal_causes_are_one_group_and_the_most_urgent_comes_first() {
        let denied = |name: &str, minutes| Machine {
            name: name.into(),
            ..after(
                failed_while(MachinePhase::ConvergingHost, "access_denied", "Denied."),
                minutes,
            )
        };
        let slow = after(machine_in(MachinePhase::Probing), 20);
        let approval = machine_in(MachinePhase::ApprovalWait);
        let serving = machine_in(MachinePhase::Serving);
        let all = [slow, serving, denied("a", 1), approval, denied("b", 5)];
        let groups = groups(&all);
        let seen: Vec<(&str, Vec<&str>)> = groups
            .iter()
            .map(|group| {
                let names = group.machines.iter().map(|it| it.name.as_str());
                (group.problem.code.as_str(), names.collect())
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("access_denied", vec!["b", "a"]),
                ("approval", vec!["m"]),
                ("probing", vec!["m"]),
            ]
        );
    }
}
