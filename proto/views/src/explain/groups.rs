//! Machines in trouble by their causes: equal causes once, each with commands for all of its machines; and requests of people
//! that are not ended.

use super::{
    common::common,
    dotless,
    problem::{MachineProblem, problem},
    shared_steps::{Selected, known_node, node},
    step::{Step, TAKES_AWAY},
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
    /// Whether another group has the same code: a command that chooses by the code would act on that, too.
    pub shares_code: bool,
}

impl Group<'_> {
    /// Next steps, without alternatives. Their words and commands are for all of its machines.
    pub fn steps(&self, rollout: Option<&Rollout>) -> Vec<Step> {
        let Some(first) = self.machines.first() else {
            return Vec::new();
        };
        let mut steps = steps(first, rollout);
        steps.retain(|step| !step.instead);
        if self.machines.len() > 1 {
            for step in &mut steps {
                self.for_all(step, first);
                step.say = self.said_of_all(&step.say, first);
            }
        }
        steps
    }

    /// Words of a step without what only the first machine has: several hosts would get the name of one.
    fn said_of_all(&self, say: &str, first: &Machine) -> String {
        let others = |own: fn(&Machine) -> Option<&str>| {
            let own_of_first = own(first)?;
            let alike = self.machines.iter().all(|it| own(it) == Some(own_of_first));
            (!alike).then_some(own_of_first)
        };
        let own = [
            (others(|it| Some(node(it))), "its own Node's name"),
            (others(|it| Some(&it.name)), "its own name"),
            (others(|it| it.address.as_deref()), "its own address"),
            (others(|it| it.owner.as_deref()), "its owner"),
        ];
        replaced(say, |word| {
            let known = own.iter().find(|(own, _)| *own == Some(word));
            // A machine may be called as a noun of the text: a name has a sign or a digit.
            let is_name = word.contains(|c: char| !c.is_alphabetic());
            known.filter(|_| is_name).map(|(_, instead)| *instead)
        })
    }

    /// Makes the command of the first machine one for all of them, where one can be. What deletes is for one machine at a
    /// time, which a person names.
    fn for_all(&self, step: &mut Step, first: &Machine) {
        let argv = step.argv.clone();
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let code = self.problem.code.as_str();
        let names = self.machines.iter().map(|it| it.name.as_str());
        let phase = format!("phase={}", first.phase);
        let of_code = format!("code={code}");
        let argv: Vec<&str> = match words.as_slice() {
            [program, "retry", name] if *name == first.name && self.shares_code => {
                [*program, "retry"].into_iter().chain(names).collect()
            }
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
            [program, "resume", name] if *name == first.name => {
                [*program, "resume"].into_iter().chain(names).collect()
            }
            [program, "recreate", name] if *name == first.name => {
                return one_by_one(
                    step,
                    &[*program, "recreate", CommandObject::Machine.placeholder()],
                );
            }
            ["kubectl", ..] => return self.kubectl_for_all(step, first),
            _ => {
                let one_of_them = step.fill.iter_mut().filter(|it| **it == first.name);
                one_of_them.for_each(|word| "MACHINE".clone_into(word));
                return;
            }
        };
        step.argv = argv.into_iter().map(str::to_owned).collect();
    }

    /// The same for a command of kubectl, whose kind says which names it takes: a Node may have the name of a Machine.
    fn kubectl_for_all(&self, step: &mut Step, first: &Machine) {
        let argv = step.argv.clone();
        let mut words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let by_node = words.iter().enumerate().find_map(|(at, word)| {
            let (what, of) = Selected::in_word(word)?;
            (of == node(first)).then_some((at, what))
        });
        if let Some((at, what)) = by_node {
            let placeholder = CommandObject::Node.placeholder();
            let selector = format!("{}{placeholder}", what.before_node());
            words[at] = &selector;
            return one_by_one(step, &words);
        }
        let Some((kind, at)) = CommandObject::of(&words, first) else {
            return;
        };
        if TAKES_AWAY.iter().any(|verb| words[..at].contains(verb)) {
            words[at] = kind.placeholder();
            return one_by_one(step, &words);
        }
        let names: Vec<&str> = match kind {
            CommandObject::Machine => {
                let same = |it: &&&Machine| {
                    it.namespace == first.namespace && it.resource() == first.resource()
                };
                let same = self.machines.iter().filter(same);
                same.map(|it| it.name.as_str()).collect()
            }
            // Of a machine without a Node no name is known.
            CommandObject::Node => self
                .machines
                .iter()
                .filter_map(|it| known_node(it))
                .collect(),
        };
        if names.is_empty() {
            return;
        }
        let before = &words[..at];
        let after = &words[at + 1..];
        let all = before.iter().chain(&names).chain(after);
        step.argv = all.map(|it| (*it).to_owned()).collect();
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

    /// Those seconds, where the cause does not say them: a halt's text has its age.
    pub fn seconds_beside(&self) -> Option<u64> {
        let dated = |it: &&&Machine| it.halt.as_ref().is_some_and(|halt| halt.since.is_some());
        let said = self.alone.iter().all(String::is_empty)
            && self.machines.first().filter(dated).is_some();
        self.seconds().filter(|_| !said)
    }

    /// Seconds for which the first of its machines has the trouble, if that is known.
    pub fn seconds(&self) -> Option<u64> {
        self.problem.seconds(self.machines.first()?)
    }
}

/// Object that a command of kubectl is about.
#[derive(Debug, Clone, Copy)]
enum CommandObject {
    /// The Machine, or the WindowsHost of a BYOH host.
    Machine,
    Node,
}

impl CommandObject {
    /// Kind and position of the name in a command about the machine or its Node. `None`: it is about something else.
    fn of(words: &[&str], machine: &Machine) -> Option<(Self, usize)> {
        let verb = match words {
            ["kubectl", "-n", _, ..] => 3,
            _ => 1,
        };
        let (kind, at) = match words.get(verb..)? {
            ["uncordon" | "cordon" | "drain", ..] => (Self::Node, verb + 1),
            [_, "node" | "nodes", ..] => (Self::Node, verb + 2),
            [_, resource, ..] if *resource == machine.resource() => (Self::Machine, verb + 2),
            _ => return None,
        };
        let name = match kind {
            Self::Machine => machine.name.as_str(),
            Self::Node => node(machine),
        };
        (words.get(at) == Some(&name)).then_some((kind, at))
    }

    /// Word that a person replaces by a name.
    fn placeholder(self) -> &'static str {
        match self {
            Self::Machine => "MACHINE",
            Self::Node => "NODE",
        }
    }
}

/// Makes a command one that a person completes for each machine: a group can hold a whole pool.
fn one_by_one(step: &mut Step, words: &[&str]) {
    step.fill = words.iter().map(|it| (*it).to_owned()).collect();
    step.argv = Vec::new();
    step.say = format!("{}, one after the other", dotless(&step.say));
}

/// Steps of the machine without its own names: what is right for one machine of a group has to be right for all of it.
fn steps_of_any(machine: &Machine) -> Vec<String> {
    let own = [
        Some(machine.name.as_str()),
        known_node(machine),
        machine.address.as_deref(),
        machine.owner.as_deref(),
        Some(machine.namespace.as_str()),
    ];
    let own: Vec<&str> = own.into_iter().flatten().collect();
    let mark = |word: &str| match Selected::in_word(word) {
        _ if own.contains(&word) => "…".to_owned(),
        Some((what, node)) if own.contains(&node) => format!("{}…", what.before_node()),
        _ => word.to_owned(),
    };
    let said = |text: &str| replaced(text, |word| own.contains(&word).then_some("…"));
    let steps = steps(machine, None).into_iter().filter(|it| !it.instead);
    let lines = steps.map(|step| {
        let words = step.argv.iter().chain(&step.fill).map(|word| mark(word));
        let words: Vec<String> = words.collect();
        format!("{} {}", said(&step.say), words.join(" "))
    });
    lines.collect()
}

/// Text in which some of its whole words are others.
fn replaced(text: &str, instead: impl Fn(&str) -> Option<&'static str>) -> String {
    const ENDS: [char; 7] = [' ', ':', ';', ',', '=', '(', ')'];
    // A full stop may be a part of a name.
    const CLOSES: [char; 10] = [' ', ':', ';', ',', '=', '(', ')', '.', '\'', '"'];
    let words = text.split_inclusive(ENDS).map(|word| {
        let from = word.len() - word.trim_start_matches(['\'', '"']).len();
        let (begin, word) = word.split_at(from);
        let bare = word.trim_end_matches(CLOSES);
        let bare = bare.strip_suffix("'s").unwrap_or(bare);
        // An article is no name, though a machine of a test may be called so.
        match instead(bare).filter(|_| bare.len() >= 3) {
            Some(instead) => format!("{begin}{instead}{}", &word[bare.len()..]),
            None => format!("{begin}{word}"),
        }
    });
    words.collect()
}

/// Machines in trouble, grouped by equal causes and equal steps: the most urgent first, then the largest group.
pub fn groups<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut kinds: Vec<Vec<String>> = Vec::new();
    for machine in machines {
        let Some(problem) = problem(machine) else {
            continue;
        };
        let kind = steps_of_any(machine);
        let mut known = groups.iter_mut().zip(&kinds);
        let known = known.find(|(group, kind_of_group)| {
            let of = |it: &MachineProblem| (it.urgency, it.code.clone(), it.key.clone());
            of(&group.problem) == of(&problem) && **kind_of_group == kind
        });
        match known {
            Some((group, _)) => group.machines.push(machine),
            None => {
                kinds.push(kind);
                groups.push(Group {
                    problem,
                    machines: vec![machine],
                    alone: Vec::new(),
                    shares_code: false,
                });
            }
        }
    }
    let codes: Vec<String> = groups.iter().map(|it| it.problem.code.clone()).collect();
    for group in &mut groups {
        let same = codes.iter().filter(|it| **it == group.problem.code);
        group.shares_code = same.count() > 1;
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
                own: None,
                who: None,
                why: None,
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

    /// Each machine of a group would get the name of one.
    #[test]
    fn no_step_of_a_group_names_one_of_its_machines() {
        let waits = |phase, name: &str| Machine {
            name: name.into(),
            expected_node: Some(format!("{name}.internal")),
            address: Some(format!("10.0.0.{}", name.len())),
            owner: Some(format!("MachineSet/of-{name}")),
            ..after(machine_in(phase), 60)
        };
        let overdue = |name: &str| waits(MachinePhase::NodeWait, name);
        let asks = crate::machine::Condition {
            kind: dormer_proto::machine::OWN_REQUEST.into(),
            status: "False".into(),
            reason: dormer_proto::machine::OTHER_NAME_POSSIBLE.into(),
            message: "csr-x asks for the certificate of master-0".into(),
        };
        let in_another_name = |name: &str| Machine {
            machine_conditions: vec![asks.clone()],
            ..overdue(name)
        };
        let refused = |name: &str| Machine {
            certificate_refused: Some(format!("10.0.0.{} is no address of it", name.len())),
            ..overdue(name)
        };
        let no_room = |name: &str| Machine {
            machine_error: Some("no quota".into()),
            ..waits(MachinePhase::AddressWait, name)
        };
        let both = ["win-a", "win-bc"];
        for (case, machines) in [
            ("another name", both.map(in_another_name)),
            ("no request", both.map(overdue)),
            ("refused", both.map(refused)),
            ("no address", both.map(no_room)),
        ] {
            let groups = groups(&machines);
            let [group] = groups.as_slice() else {
                panic!("{case}: {groups:?}");
            };
            assert_eq!(group.machines.len(), 2, "{case}");
            let steps = group.steps(None);
            let said: Vec<&str> = steps.iter().map(|it| it.say.as_str()).collect();
            assert!(!said.is_empty(), "{case}");
            for own in ["win-a", "win-bc", "10.0.0."] {
                assert!(!said.iter().any(|it| it.contains(own)), "{case}: {said:?}");
            }
            let one = steps_of(&machines[..1]);
            assert_ne!(said, one, "{case}: the first one's own are in its steps");
        }
        // What all of them have stays.
        let of_one_set = both.map(|name| Machine {
            owner: Some("MachineSet/windows".into()),
            ..no_room(name)
        });
        let said = steps_of(&of_one_set).join(" ");
        assert!(said.contains("what MachineSet/windows asks for"), "{said}");
    }

    fn steps_of(machines: &[Machine]) -> Vec<String> {
        let groups = groups(machines);
        let steps = groups.iter().flat_map(|it| it.steps(None));
        steps.map(|it| it.say).collect()
    }

    #[test]
    fn no_command_of_a_group_deletes_several_machines_or_takes_another_kinds_names() {
        // Each Node has the name of another Machine.
        let crossed = |name: &str, node: &str| Machine {
            name: name.into(),
            node: Some(node.into()),
            namespace: "machines".into(),
            ..machine_in(MachinePhase::Serving)
        };
        let machines = [crossed("a", "b"), crossed("b", "a"), crossed("c", "c")];
        let group = Group {
            problem: MachineProblem {
                code: "NotReady".into(),
                ..problem(&held_by("a", "ann")).expect("trouble")
            },
            machines: machines.iter().collect(),
            alone: Vec::new(),
            shares_code: false,
        };
        let for_all = |words: &[&str]| {
            let mut step = Step::command("Do it", words);
            group.for_all(&mut step, &machines[0]);
            (step.argv.join(" "), step.fill.join(" "))
        };
        let argv = |line: &str| (line.to_owned(), String::new());
        let fill = |line: &str| (String::new(), line.to_owned());
        let resource = machines[0].resource();
        let of_machine = |verb: &'static str| ["kubectl", "-n", "machines", verb, resource, "a"];
        let one = |verb: &str| format!("kubectl -n machines {verb} {resource} MACHINE");
        assert_eq!(for_all(&of_machine("delete")), fill(&one("delete")));
        let described = format!("kubectl -n machines describe {resource} a b c");
        assert_eq!(for_all(&of_machine("describe")), argv(&described));
        assert_eq!(
            for_all(&["kubectl", "describe", "node", "b"]),
            argv("kubectl describe node b a c")
        );
        assert_eq!(
            for_all(&["kubectl", "uncordon", "b"]),
            argv("kubectl uncordon b a c")
        );
        assert_eq!(
            for_all(&["kubectl", "delete", "node", "b"]),
            fill("kubectl delete node NODE")
        );
        assert_eq!(
            for_all(&["kubectl", "taint", "nodes", "b", "out:NoExecute"]),
            fill("kubectl taint nodes NODE out:NoExecute")
        );
        assert_eq!(
            for_all(&["dormer", "recreate", "a"]),
            fill("dormer recreate MACHINE")
        );
        assert_eq!(for_all(&["kubectl", "get", "csr"]), argv("kubectl get csr"));
        assert_eq!(
            for_all(&["dormer", "resume", "a"]),
            argv("dormer resume a b c")
        );
    }

    #[test]
    fn machines_with_one_code_and_other_steps_are_another_group() {
        let failed = |name: &str| Machine {
            name: name.into(),
            ..failed_while(MachinePhase::Probing, "ConnectTimeout", "no answer")
        };
        let vanished = Machine {
            machine_phase: Some("Failed".into()),
            machine_error: Some("the instance is gone".into()),
            ..failed("c")
        };
        assert!(vanished.given_up());
        let machines = [failed("a"), vanished, failed("b")];
        let groups = groups(&machines);
        let named: Vec<Vec<&str>> = groups
            .iter()
            .map(|it| it.machines.iter().map(|it| it.name.as_str()).collect())
            .collect();
        assert_eq!(named, [vec!["a", "b"], vec!["c"]]);
        let lines = groups
            .iter()
            .map(|it| it.steps(None).iter().find_map(Step::line));
        let lines: Vec<String> = lines.flatten().collect();
        assert_eq!(lines[0], "dormer retry a b", "and not all with that code");
        assert!(lines[1].starts_with("kubectl "), "{lines:?}");
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
        assert_eq!(line.as_deref(), Some("dormer retry -l code=Probing"));
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
                who: None,
                why: None,
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
                ("AccessDenied", vec!["b", "a"]),
                ("Approval", vec!["m"]),
                ("Probing", vec!["m"]),
            ]
        );
    }

    /// The name of a Node is a part of a word in these commands.
    #[test]
    fn machines_with_one_fault_of_the_network_are_one_group_whose_command_names_none() {
        for code in [
            "NoOutbound",
            "NoServiceIp",
            "NoPodToPod",
            "NoNodePort",
            "CanaryNotStarted",
            "DaemonSetPodNotReady",
        ] {
            let failed = |name: &str| Machine {
                name: name.into(),
                node: Some(format!("ip-{name}.ec2.internal")),
                ..failed_while(MachinePhase::Marking, code, "no")
            };
            let machines = [failed("win-1"), failed("win-2")];
            let groups = groups(&machines);
            assert_eq!(groups.len(), 1, "{code}");
            let lines = groups[0].steps(None);
            let lines: Vec<String> = lines.iter().filter_map(Step::line).collect();
            assert!(lines[0].starts_with("kubectl get "), "{code}: {lines:?}");
            assert!(lines[0].ends_with("NODE"), "{code}: {lines:?}");
            assert!(!lines[0].contains("win-"), "{code}: {lines:?}");
            let retry = format!("dormer retry --all-failed --code {code}");
            assert!(lines.contains(&retry), "{code}: {lines:?}");
        }
    }

    #[test]
    fn a_name_at_the_end_of_a_sentence_or_with_a_possessive_is_a_name_and_a_noun_is_none() {
        let own = |word: &str| (word == "ip-1.ec2.internal").then_some("its own Node's name");
        for (text, expected) in [
            ("See ip-1.ec2.internal.", "See its own Node's name."),
            ("See 'ip-1.ec2.internal'", "See 'its own Node's name'"),
            ("See \"ip-1.ec2.internal\".", "See \"its own Node's name\"."),
            ("ip-1.ec2.internal's disk", "its own Node's name's disk"),
            ("ip-1.ec2.internal.example", "ip-1.ec2.internal.example"),
        ] {
            assert_eq!(replaced(text, own), expected);
        }
        let named = |name: &str| Machine {
            name: name.into(),
            ..failed_while(MachinePhase::Probing, "ClockSkew", "no")
        };
        let machines = [named("host"), named("win-1")];
        let group = Group {
            problem: problem(&machines[0]).expect("trouble"),
            machines: machines.iter().collect(),
            alone: Vec::new(),
            shares_code: false,
        };
        let steps = group.steps(None);
        assert!(
            steps[0].say.contains("Set the host's clock"),
            "{}",
            steps[0].say
        );
    }
}
