//! `dormer status`: one screen for the person on call, with problems, machines that wait for a person, work in
//! progress, and versions.

use super::{
    Failure, absent,
    items::{Progress, holders},
    outage::STARTS_WITHIN,
    output::OutputFormat,
    server::{Server, ServerAddress},
    server_clock,
    terminal::{self, Style},
};
use clap::Args;
use dormer_proto::{
    message::listed,
    phase::{Listed, MachinePhase},
};
use dormer_views::{
    explain::{self, as_usual},
    finding::Finding,
    machine::{Machine, Machines},
    moment::span,
    numbers::{self, Numbers},
    prerequisites::MissingPrerequisite,
    problem::{self, Group, Urgency},
    rollout::Rollout,
    run::{DeadLetter, List},
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Refresh interval of `--watch`.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// Most names in a line. The rest is a count.
const NAMES_MAX: usize = 6;
/// Most causes of one urgency. The rest is a count.
const CAUSES_MAX: usize = 8;

/// Arguments of `dormer status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Only this pool
    #[arg(long)]
    pool: Option<String>,
    /// Look again every 2 s, until you press Ctrl-C
    #[arg(short, long)]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    address: ServerAddress,
}

/// Answers that the screen is made of.
struct StatusAnswers {
    /// Where they come from, for the commands of the next steps.
    address: ServerAddress,
    /// The pool that was asked for; `None`: all.
    only_pool: Option<String>,
    machines: Vec<Machine>,
    lacks: Vec<MissingPrerequisite>,
    rollouts: Vec<Rollout>,
    /// Machines that are gone: they say how long a turn takes.
    gone: Vec<Machine>,
    dead: usize,
    /// Findings about the cluster.
    findings: Vec<Finding>,
}

/// The screen for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Screen<'a> {
    machines: u64,
    serving: u64,
    causes: Vec<Cause<'a>>,
    rollouts: Vec<RolloutLine<'a>>,
    versions: Vec<ProgramVersion>,
    /// Machines that carry none yet, or no more. With those of the versions they are all that `dormer get machines` lists.
    without_version: usize,
    dead_letters: usize,
    findings: &'a [Finding],
}

/// Cause that several machines may share.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cause<'a> {
    urgency: &'static str,
    code: String,
    cause: String,
    machines: Vec<&'a str>,
    /// Of each machine what its cause has alone, such as its address; empty where all causes are equal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alone: Vec<String>,
    /// Seconds for which the first of them has this trouble; without the field, that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<u64>,
    #[serde(rename = "do")]
    steps: Vec<explain::Step>,
}

/// A rollout in numbers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RolloutLine<'a> {
    pool: &'a str,
    state: &'a str,
    /// The state as people see it, with what its machines say.
    word: String,
    members: u64,
    machines: u64,
    serving: u64,
    updated: Option<u64>,
    holders: Vec<&'a str>,
    queue: usize,
    /// Machines that will be in the queue if their hosts differ from what is desired.
    to_compare: usize,
    stands_still: Option<String>,
    waiting_for: Option<&'a str>,
    seconds_left: Option<u64>,
}

/// Machines with one version.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ProgramVersion {
    version: String,
    machines: usize,
    /// Those of them whose Machines are being deleted.
    going: usize,
    /// Machines that should carry it.
    desired: usize,
}

impl Status {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.address.server();
        if !self.watch {
            return self.text(&server).await;
        }
        let mut good = String::new();
        let mut shown = String::new();
        let mut answered = Instant::now();
        loop {
            let starts = !good.is_empty() && answered.elapsed() < STARTS_WITHIN;
            let text = match self.text(&server).await {
                // It may be starting again.
                Err(Failure::Unreachable { why, .. }) if !good.is_empty() => outdated(&good, &why),
                Err(Failure::Unready { error, .. }) if starts => outdated(&good, &error),
                answer => {
                    good = answer?;
                    answered = Instant::now();
                    good.clone()
                }
            };
            if text != shown {
                // A terminal is cleared and redrawn; other outputs get a block for each change.
                if terminal::say_anew(&text).is_err() {
                    return Ok(String::new());
                }
            }
            shown = text;
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    async fn text(&self, server: &Server) -> Result<String, Failure> {
        let found = self.found(server).await?;
        let programs = self.output.for_programs(&found.screen())?;
        Ok(programs.unwrap_or_else(|| {
            let columns = terminal::columns().unwrap_or(usize::MAX);
            let mut text = found.lines(columns, terminal::coloured());
            let now = found
                .machines
                .first()
                .map(|it| server_clock::time_of(&it.status));
            if let Some(remark) = now.and_then(server_clock::remark) {
                text += &format!("\n\n{remark}");
            }
            text
        }))
    }

    async fn found(&self, server: &Server) -> Result<StatusAnswers, Failure> {
        let Machines { items, lacks } = server.get("/machines?all=true").await?;
        let List { items: rollouts } = server.get::<List<Rollout>>("/rollouts").await?;
        let ours = |pool: &String| self.pool.as_ref().is_none_or(|wanted| wanted == pool);
        if let Some(pool) = &self.pool {
            let known: Vec<String> = rollouts.iter().map(|it| it.pool.clone()).collect();
            if let Some(unknown) = absent::unknown_pool(pool, &known) {
                return Err(unknown);
            }
        }
        let ours_only = items.into_iter().filter(|it| ours(&it.pool));
        let (gone, machines) = ours_only.partition(|it| it.status.closed.is_some());
        // A caller who may not read dead letters sees the rest.
        let dead = server.get::<List<DeadLetter>>("/dead-letters").await;
        let findings = server.get::<List<Finding>>("/findings").await;
        Ok(StatusAnswers {
            address: server.address(),
            only_pool: self.pool.clone(),
            machines,
            lacks,
            rollouts: rollouts.into_iter().filter(|it| ours(&it.pool)).collect(),
            gone,
            dead: dead.map_or(0, |it| it.items.len()),
            findings: findings.map_or_else(|_| Vec::new(), |it| it.items),
        })
    }
}

impl StatusAnswers {
    fn rollout_of(&self, machine: &Machine) -> Option<&Rollout> {
        self.rollouts.iter().find(|it| it.pool == machine.pool)
    }

    fn progress(&self, rollout: &Rollout) -> Progress {
        let all: Vec<Machine> = self.machines.iter().chain(&self.gone).cloned().collect();
        Progress::of(rollout.clone(), &all)
    }

    fn screen(&self) -> Screen<'_> {
        let groups = problem::groups(&self.machines);
        let causes = groups.into_iter().map(|group| {
            let steps = self.steps(&group);
            let machines = group.machines.iter().map(|it| it.name.as_str()).collect();
            let seconds = group.seconds();
            let differ = group.alone.iter().any(|it| !it.is_empty());
            Cause {
                alone: if differ { group.alone } else { Vec::new() },
                urgency: group.problem.urgency.id(),
                code: group.problem.code,
                cause: group.problem.cause,
                machines,
                seconds,
                steps,
            }
        });
        let rollouts = self.rollouts.iter().map(|rollout| {
            let progress = self.progress(rollout);
            RolloutLine {
                pool: &rollout.pool,
                state: rollout.state.id(),
                word: progress.word.clone(),
                members: rollout.members,
                machines: progress.numbers.machines,
                serving: progress.numbers.serving,
                updated: Some(progress.numbers.updated),
                holders: rollout.holders().map(|it| it.name.as_str()).collect(),
                queue: rollout.queue.len(),
                to_compare: self.to_compare(rollout),
                stands_still: problem::stands_still(rollout),
                waiting_for: rollout.waiting_for.as_deref(),
                seconds_left: progress.left,
            }
        });
        let numbers = self.numbers();
        Screen {
            machines: numbers.machines,
            serving: numbers.serving,
            causes: causes.collect(),
            rollouts: rollouts.collect(),
            versions: versions(&self.machines),
            without_version: self.without_version(),
            dead_letters: self.dead,
            findings: &self.findings,
        }
    }

    fn without_version(&self) -> usize {
        let without = self.machines.iter().filter(|it| it.version.is_none());
        without.count()
    }

    fn numbers(&self) -> Numbers {
        Numbers::of(&self.machines)
    }

    /// Next steps for a group: commands for all of its machines.
    fn steps(&self, group: &Group<'_>) -> Vec<explain::Step> {
        let first = group.machines.first();
        let mut steps = group.steps(first.and_then(|it| self.rollout_of(it)));
        for step in &mut steps {
            self.of_this_pool(step);
        }
        self.address.reach(&mut steps);
        steps
    }

    /// Narrows a command that chooses machines to the pool that was asked for: the screen shows no others.
    fn of_this_pool(&self, step: &mut explain::Step) {
        let chooses = |word: &String| word == "--all-failed" || word == "-l";
        let dormers = step.argv.first().is_some_and(|word| word == "dormer");
        if let Some(pool) = self.only_pool.as_ref().filter(|_| dormers)
            && step.argv.iter().any(chooses)
        {
            step.argv.extend(["--pool".to_owned(), pool.clone()]);
        }
    }

    /// Findings about the cluster around, each with its cure.
    fn found_in_the_cluster(&self, lines: &mut Vec<String>, coloured: bool) {
        // Earlier templates have a section of their own.
        let findings = self.findings.iter();
        let findings: Vec<_> = findings
            .filter(|it| it.code != "TemplateOutdated")
            .collect();
        if findings.is_empty() {
            return;
        }
        section(lines, "CLUSTER", Style::Attention, coloured);
        for found in findings.iter().take(CAUSES_MAX) {
            let Finding {
                code,
                severity,
                object,
                message,
                what_to_do,
            } = found;
            lines.push(format!("  {severity} {object}: {message} ({code})"));
            lines.push(format!("    {what_to_do}"));
        }
        let more = findings.len().saturating_sub(CAUSES_MAX);
        if more > 0 {
            lines.push(format!("  and {more} more: dormer status -o json"));
        }
    }

    fn lines(&self, columns: usize, coloured: bool) -> String {
        let mut lines: Vec<String> = Vec::new();
        lines.extend(self.lacks.iter().map(MissingPrerequisite::sentence));
        self.problems(&mut lines, coloured);
        let numbers = self.numbers();
        let all = numbers.machines;
        let still: Vec<String> = self
            .rollouts
            .iter()
            .filter_map(|rollout| {
                let still = problem::stands_still(rollout)?;
                let mut step = explain::to_continue(rollout);
                self.address.reach(&mut step);
                let command = step.and_then(|step| step.line());
                let line = command.map_or_else(String::new, |text| format!("\n    {text}"));
                Some(format!("  Rollout {}: {still}{line}", rollout.pool))
            })
            .collect();
        if !still.is_empty() {
            section(&mut lines, "STOPPED ROLLOUTS", Style::Attention, coloured);
            lines.extend(still);
        }
        let refused: Vec<String> = self
            .rollouts
            .iter()
            .filter_map(|it| {
                let why = it.refused.as_ref()?;
                Some(format!("  Pool {}: {why}", it.pool))
            })
            .collect();
        if !refused.is_empty() {
            section(&mut lines, "REFUSED SETTINGS", Style::Attention, coloured);
            lines.extend(refused);
        }
        if self.dead > 0 {
            section(&mut lines, "DEAD LETTERS", Style::Bad, coloured);
            lines.push(format!(
                "  {} messages that no engine could read: dormer dead-letters list",
                self.dead
            ));
        }
        self.found_in_the_cluster(&mut lines, coloured);
        if lines.is_empty() {
            lines.push(if all == 0 {
                "There are no machines: dormer has found no Windows Machine.".to_owned()
            } else {
                "Nothing is wrong, and nothing waits for a person.".to_owned()
            });
        }
        section(&mut lines, "IN PROGRESS", Style::Heading, coloured);
        lines.push(format!("  {} of {all} machines serve", numbers.serving));
        lines.extend(self.rollouts.iter().flat_map(|it| self.rollout(it)));
        lines.extend(self.changing());
        let requests = problem::requests(&self.machines).into_iter();
        lines.extend(
            requests.map(|(text, names)| format!("  {text}: {}", listed(&names, NAMES_MAX))),
        );
        self.on_purpose(&mut lines, coloured);
        let versions = versions(&self.machines);
        if !versions.is_empty() {
            section(&mut lines, "VERSIONS", Style::Heading, coloured);
            lines.extend(versions.iter().map(|row| {
                let ProgramVersion {
                    version,
                    machines,
                    going,
                    desired,
                } = row;
                let going = match going {
                    0 => String::new(),
                    going => format!(" ({going} being deleted)"),
                };
                format!(
                    "  {version}: carried by {}{going}, desired on {desired}",
                    machines_text(*machines)
                )
            }));
            let without = self.without_version();
            if without > 0 {
                lines.push(format!("  no version yet: {}", machines_text(without)));
            }
        }
        self.outdated(&mut lines, coloured);
        let fitted = lines.iter().map(|line| {
            let command = line.starts_with("      ");
            if command || columns == usize::MAX {
                line.clone()
            } else {
                terminal::wrap(line, columns, "    ")
            }
        });
        fitted.collect::<Vec<_>>().join("\n")
    }

    /// Machines that were made from an earlier template of their MachineSet.
    fn outdated(&self, lines: &mut Vec<String>, coloured: bool) {
        let machines = self.machines.iter();
        let groups = explain::outdated(machines.map(|it| (&*it.name, &*it.template_differs)));
        if groups.is_empty() {
            return;
        }
        section(lines, "EARLIER TEMPLATES", Style::Heading, coloured);
        for group in groups.iter().take(CAUSES_MAX) {
            lines.push(format!("  {}", group.heading()));
            lines.extend(group.differs.iter().map(|it| format!("    {it}")));
            lines.push(format!("    {}", group.remedy()));
        }
        let more = groups.len().saturating_sub(CAUSES_MAX);
        if more > 0 {
            lines.push(format!(
                "  and {more} more differences; dormer get machines -l template=outdated lists the machines"
            ));
        }
    }

    /// Machines that people keep as they are. They are no incident.
    fn on_purpose(&self, lines: &mut Vec<String>, coloured: bool) {
        let groups = problem::groups(&self.machines).into_iter();
        let of: Vec<Group<'_>> = groups
            .filter(|group| group.problem.urgency == Urgency::OnPurpose)
            .collect();
        if of.is_empty() {
            return;
        }
        section(lines, "KEPT AS THEY ARE", Style::Heading, coloured);
        for group in of.iter().take(CAUSES_MAX) {
            let names: Vec<&str> = group.machines.iter().map(|it| it.name.as_str()).collect();
            let names = listed(&names, NAMES_MAX);
            let cause = &group.problem.cause;
            lines.push(format!("  {names}: {cause}{}", for_long(group)));
            let steps = self.steps(group);
            let commands = steps.iter().filter_map(explain::Step::line);
            lines.extend(commands.map(|line| format!("    To end that: {line}")));
        }
        let more = of.len().saturating_sub(CAUSES_MAX);
        if more > 0 {
            lines.push(format!(
                "  and {more} more; dormer get machines --state on-purpose lists them all"
            ));
        }
    }

    /// Machines with a trouble, by their urgency and cause.
    fn problems(&self, lines: &mut Vec<String>, coloured: bool) {
        let groups = problem::groups(&self.machines);
        let all = self.numbers().machines;
        for (urgency, heading, style) in [
            (Urgency::Stuck, "STUCK", Style::Bad),
            (Urgency::Person, "WAITING FOR A PERSON", Style::Attention),
            (Urgency::Slow, "SLOW", Style::Attention),
        ] {
            let of: Vec<&Group<'_>> = groups
                .iter()
                .filter(|group| group.problem.urgency == urgency)
                .collect();
            let count: usize = of.iter().map(|group| group.machines.len()).sum();
            if count > 0 {
                section(
                    lines,
                    &format!("{heading}: {count} of {all} machines"),
                    style,
                    coloured,
                );
                for group in of.iter().take(CAUSES_MAX) {
                    self.group(group, lines);
                }
                let more = of.len().saturating_sub(CAUSES_MAX);
                if more > 0 {
                    lines.push(format!(
                        "  and {more} more {}; dormer get machines lists them all",
                        if more == 1 { "cause" } else { "causes" }
                    ));
                }
            }
        }
    }

    fn group(&self, group: &Group<'_>, lines: &mut Vec<String>) {
        let names: Vec<&str> = group.machines.iter().map(|it| it.name.as_str()).collect();
        lines.push(format!(
            "  {}: {}{}",
            machines_text(names.len()),
            group.problem.cause,
            for_long(group)
        ));
        if group.alone.iter().all(String::is_empty) {
            lines.push(format!("    {}", listed(&names, NAMES_MAX)));
        } else {
            let each = names.iter().zip(&group.alone).take(NAMES_MAX);
            lines.extend(each.map(|(name, alone)| match alone.as_str() {
                "" => format!("    {name}"),
                alone => format!("    {name}: {alone}"),
            }));
            let more = names.len().saturating_sub(NAMES_MAX);
            if more > 0 {
                lines.push(format!("    and {more} more"));
            }
        }
        let steps = self.steps(group);
        let before = explain::before_steps(&group.machines).filter(|_| !steps.is_empty());
        lines.extend(before.map(|text| format!("    {text}")));
        for step in steps {
            let say = step.say.trim_end_matches('.');
            match step.line() {
                Some(line) if say.is_empty() => lines.push(format!("      {line}")),
                Some(line) => lines.extend([format!("    {say}:"), format!("      {line}")]),
                None => lines.push(format!("    {say}.")),
            }
        }
    }

    /// A rollout in numbers, and below them who holds the lease and what the next grant waits for.
    fn rollout(&self, rollout: &Rollout) -> Vec<String> {
        let progress = self.progress(rollout);
        let Numbers {
            machines, updated, ..
        } = progress.numbers;
        let limit = rollout.max_unavailable;
        let limit = limit.map_or_else(|| "?".to_owned(), |it| it.to_string());
        let mut numbers = vec![
            format!("{updated} of {machines} updated"),
            format!("{} of {limit} unavailable", rollout.unavailable),
        ];
        if !rollout.queue.is_empty() {
            numbers.push(format!("{} in the queue", rollout.queue.len()));
        }
        match self.to_compare(rollout) {
            0 => {}
            count => numbers.push(format!("{count} not compared yet")),
        }
        if let Some(left) = progress.left {
            let left = span(left);
            numbers.push(match rollout.typical_turn_expected {
                true => format!("perhaps {left} left (no turn has ended yet)"),
                false => format!("about {left} left"),
            });
        }
        let first = format!(
            "  Rollout {} is {}: {}",
            rollout.pool,
            progress.word,
            numbers.join(", ")
        );
        let holding = rollout.holders().count();
        let holds = (holding > 0).then(|| {
            let verb = if holding == 1 { "holds" } else { "hold" };
            format!("    {} {verb} the lease", holders(rollout))
        });
        // Who paused it stands among the stopped rollouts.
        let awaited = rollout.waiting_for.as_ref();
        let awaited = awaited.filter(|_| rollout.paused.is_none());
        let waits = awaited.map(|what| format!("    The next grant waits for {what}"));
        let back = rollout.direction();
        let back = back.map(|text| format!("    It is {text}"));
        [Some(first), back, holds, waits]
            .into_iter()
            .flatten()
            .collect()
    }

    /// How many machines serve with another version than the desired one, and are not in the queue yet, since their hosts
    /// are compared first. At the start of a rollout that is each one for a while.
    fn to_compare(&self, rollout: &Rollout) -> usize {
        let queued = |uid: &String| rollout.queue.iter().any(|it| it.uid == *uid);
        let ours = self.machines.iter().filter(|it| it.pool == rollout.pool);
        let served = ours.filter(|it| it.served && it.phase == MachinePhase::Serving);
        let outdated = served.filter(|it| it.desired_version.is_some() && !it.is_updated());
        let free = outdated.filter(|it| it.halt.is_none() && !queued(&it.uid) && !self.holds(it));
        free.count()
    }

    /// Whether its rollout has granted it the lease.
    fn holds(&self, machine: &Machine) -> bool {
        let rollout = self.rollout_of(machine);
        rollout.is_some_and(|it| it.holders().any(|slot| slot.holder == machine.uid))
    }

    /// Machines that change without trouble, by phase.
    fn changing(&self) -> Vec<String> {
        let mut phases: BTreeMap<&str, Vec<&Machine>> = BTreeMap::new();
        for machine in &self.machines {
            let serving = machine.phase == MachinePhase::Serving;
            // It has been granted, and its own run is about to know.
            let granted = machine.phase == MachinePhase::LeaseWait && self.holds(machine);
            if !serving && !granted && problem::problem(machine).is_none() {
                let names = phases.entry(&machine.phase_text).or_default();
                names.push(machine);
            }
        }
        let line = |(phase, machines): (&&str, &Vec<&Machine>)| {
            let names: Vec<&str> = machines.iter().map(|it| it.name.as_str()).collect();
            let all: Option<Vec<String>> = machines.iter().map(|it| as_usual(it)).collect();
            // The last one of several is the last to end.
            let last = all.and_then(|all| all.into_iter().max());
            let usual = last.map_or_else(String::new, |usual| format!(" ({usual})"));
            format!("  {phase}: {}{usual}", listed(&names, NAMES_MAX))
        };
        phases.iter().map(line).collect()
    }
}

/// The last screen of a server that does not answer now.
fn outdated(good: &str, why: &str) -> String {
    format!("{good}\n\n(the server does not answer, and this screen is outdated: {why})")
}

fn section(lines: &mut Vec<String>, heading: &str, style: Style, coloured: bool) {
    if !lines.is_empty() {
        lines.push(String::new());
    }
    lines.push(style.paint(heading, coloured));
}

/// How long the first machine has had the trouble, if that is known.
fn for_long(group: &Group<'_>) -> String {
    let text = |seconds| format!(" (for {})", span(seconds));
    group.seconds_beside().map_or_else(String::new, text)
}

fn machines_text(count: usize) -> String {
    format!("{count} machine{}", if count == 1 { "" } else { "s" })
}

/// Machines by the version that they carry. A machine that goes is to carry none any more: the one in its place is.
fn versions(machines: &[Machine]) -> Vec<ProgramVersion> {
    let replaced = numbers::replaced(machines);
    let mut counts: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    for machine in machines {
        if let Some(version) = &machine.version {
            let count = counts.entry(version).or_default();
            count.0 += 1;
            count.1 += usize::from(machine.deleting);
        }
        let goes = replaced.iter().any(|it| it.uid == machine.uid);
        if let Some(version) = machine.desired_version.as_ref().filter(|_| !goes) {
            counts.entry(version).or_default().2 += 1;
        }
    }
    let version = |(version, (machines, going, desired)): (&str, _)| ProgramVersion {
        version: version.to_owned(),
        machines,
        going,
        desired,
    };
    counts.into_iter().map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{machine_with, rollout_with};
    use dormer_views::finding::FindingSeverity;
    use serde_json::{Value, json};

    fn failed(name: &str, code: &str) -> Value {
        json!({"name": name, "uid": name, "state": "Failed", "phase": "failed", "phaseText": "failed",
            "sinceSeconds": 1_320, "failure": {"code": code, "message": "No right.",
                "phase": "converging-host", "phaseText": "converging the host"}})
    }

    fn serving(name: &str, version: &str) -> Value {
        json!({"name": name, "state": "Joined", "phase": "serving", "phaseText": "serving",
            "served": true, "version": version, "desiredVersion": "v2"})
    }

    fn found(machines: &[Value], rollout: Value) -> StatusAnswers {
        StatusAnswers {
            address: ServerAddress::default(),
            only_pool: None,
            machines: machines.iter().cloned().map(machine_with).collect(),
            lacks: Vec::new(),
            rollouts: vec![rollout_with(rollout)],
            gone: Vec::new(),
            dead: 0,
            findings: Vec::new(),
        }
    }

    #[test]
    fn a_hold_on_purpose_is_no_incident() {
        let mut held = serving("win-a", "v2");
        held["halt"] = json!({"kind": "held", "by": "ann: a disk", "text": "held by ann: a disk"});
        let text = found(&[held], json!({})).lines(usize::MAX, false);
        assert!(text.starts_with("Nothing is wrong"), "{text}");
        let lines = "\n\nKEPT AS THEY ARE\n  win-a: held by ann: a disk\n    To end that: dormer resume win-a";
        assert!(text.contains(lines), "{text}");
    }

    #[test]
    fn how_long_a_machine_is_held_is_said_once() {
        let mut held = serving("win-a", "v2");
        held["halt"] = json!({"kind": "held", "by": "ann: a disk", "text": "held by ann: a disk",
            "since": "2026-11-21T07:00:00.000Z"});
        let text = found(&[held], json!({})).lines(usize::MAX, false);
        let line = text.lines().find(|line| line.contains("held by ann"));
        let line = line.expect("a line");
        assert_eq!(line.matches(" for ").count(), 1, "{line}");
    }

    #[test]
    fn a_command_for_a_group_is_for_the_pool_that_was_asked_for() {
        let denied = |name: &str| failed(name, "AccessDenied");
        let mut screen = found(&[denied("win-a"), denied("win-b")], json!({}));
        let retry = "dormer retry --all-failed --code AccessDenied";
        let text = screen.lines(usize::MAX, false);
        assert!(text.contains(retry) && !text.contains("--pool"), "{text}");
        screen.only_pool = Some("windows".into());
        let text = screen.lines(usize::MAX, false);
        assert!(text.contains(&format!("{retry} --pool windows")), "{text}");
    }

    #[test]
    fn a_groups_text_is_what_is_common_and_each_machine_has_its_own_line() {
        let denied = |name: &str, address: &str| {
            let mut machine = failed(name, "AuthRejected");
            machine["address"] = json!(address);
            machine["failure"]["message"] = json!(format!("{address} does not accept our key"));
            machine
        };
        let machines = [denied("win-a", "10.0.0.7"), denied("win-b", "10.0.0.8")];
        let text = found(&machines, json!({})).lines(usize::MAX, false);
        let lines = "  2 machines: the host does not accept our key (AuthRejected) (for 22m)\n    \
             win-a: 10.0.0.7\n    win-b: 10.0.0.8\n";
        assert!(text.contains(lines), "{text}");
        assert!(text.contains("Rollout windows is Stuck: "), "{text}");
    }

    #[test]
    fn what_stands_against_dormer_in_the_cluster_is_shown_with_its_cure() {
        let mut answers = found(&[serving("win-a", "v2")], json!({"maxUnavailable": 1}));
        let well = "Nothing is wrong, and nothing waits for a person.";
        assert!(answers.lines(usize::MAX, false).starts_with(well));
        answers.findings = vec![Finding {
            code: "startup-timeout".into(),
            severity: FindingSeverity::Error.into(),
            object: "MachineHealthCheck windows".into(),
            message: "its nodeStartupTimeout is 10m".into(),
            what_to_do: "write 45m".into(),
        }];
        let text = answers.lines(usize::MAX, false);
        let said = "CLUSTER\n  error MachineHealthCheck windows: its nodeStartupTimeout is 10m (startup-timeout)\n    write 45m";
        assert!(text.starts_with(said), "{text}");
        assert!(!text.contains(well), "{text}");
        let for_programs = serde_json::to_value(answers.screen()).expect("JSON");
        assert_eq!(for_programs["findings"][0]["code"], "startup-timeout");
        answers.findings[0].code = "TemplateOutdated".into();
        let text = answers.lines(usize::MAX, false);
        assert!(
            !text.contains("CLUSTER"),
            "it has a section of its own: {text}"
        );
    }

    #[test]
    fn equal_causes_are_one_entry_with_one_command() {
        let machines = [
            failed("win-b", "access_denied"),
            serving("win-c", "v1"),
            failed("win-a", "access_denied"),
        ];
        let text = found(&machines, json!({"maxUnavailable": 1})).lines(usize::MAX, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "STUCK: 2 of 3 machines",
                "  2 machines: access denied: No right (AccessDenied) (for 22m)",
                "    win-a, win-b",
                "    Make the SSH user an administrator of the host.",
                "    Then continue:",
                "      dormer retry --all-failed --code AccessDenied",
                "",
                "IN PROGRESS",
                "  1 of 3 machines serve",
                "  Rollout windows is Stuck: 0 of 3 updated, 1 of 1 unavailable, 1 not compared yet",
                "",
                "VERSIONS",
                "  v1: carried by 1 machine, desired on 0",
                "  v2: carried by 0 machines, desired on 1",
                "  no version yet: 2 machines",
            ]
        );
    }

    #[test]
    fn a_rollouts_line_is_short_and_its_machines_and_versions_add_up() {
        let owned = |name: &str, fields: Value| {
            let mut machine = serving(name, "v1");
            machine["uid"] = json!(name);
            machine["desiredVersion"] = json!("v2");
            machine["owner"] = json!("MachineSet/windows");
            for (key, value) in fields.as_object().expect("fields") {
                machine[key] = value.clone();
            }
            machine
        };
        let machines = [
            owned("demo-x7k2p-windows-worker-us-east-1a-9dg4j", json!({})),
            owned(
                "demo-x7k2p-windows-worker-us-east-1a-vn94g",
                json!({"deleting": true, "state": "Draining",
                "phase": "vanishing", "phaseText": "waiting for the Machine to be gone"}),
            ),
            owned(
                "demo-x7k2p-windows-worker-us-east-1a-zzzzz",
                json!({"version": null, "served": false,
                "state": "Provisioned", "phase": "probing", "phaseText": "probing"}),
            ),
        ];
        let rollout = json!({"maxUnavailable": 1, "waitingFor": "a slot: at most 1 machine may be unavailable",
            "queue": [{"uid": "u", "name": "u", "position": 1, "away": false}],
            "slots": [{"token": 5, "holder": "h", "name": "demo-x7k2p-windows-worker-us-east-1a-vn94g",
                "marked": false, "seq": 20, "since": "2026-11-21T07:00:00.000Z", "waitsFor": null}]});
        let text = found(&machines, rollout).lines(usize::MAX, false);
        for line in [
            "  Rollout windows is Running: 0 of 2 updated, 1 of 1 unavailable, 1 in the queue, 1 not compared yet",
            "    demo-x7k2p-windows-worker-us-east-1a-vn94g holds the lease",
            "    The next grant waits for a slot: at most 1 machine may be unavailable",
            "  v1: carried by 2 machines (1 being deleted), desired on 0",
            "  v2: carried by 0 machines, desired on 2",
            "  no version yet: 1 machine",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        let short = text.lines().filter(|line| line.contains("ollout"));
        assert!(short.clone().count() > 0);
        assert!(
            short.clone().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }

    #[test]
    fn a_machine_that_holds_the_lease_does_not_wait_for_it() {
        let waits = |name: &str| {
            let mut machine = serving(name, "v1");
            machine["uid"] = json!(format!("uid-{name}"));
            machine["phase"] = json!("lease-wait");
            machine["phaseText"] = json!("waiting for the lease");
            machine
        };
        let holder = json!({"slots": [{"token": 5, "holder": "uid-win-a", "name": "win-a", "marked": false,
            "seq": 20, "since": "2026-11-21T07:00:00.000Z", "waitsFor": null}]});
        let text = found(&[waits("win-a"), waits("win-b")], holder).lines(usize::MAX, false);
        assert!(text.contains("win-a holds the lease"), "{text}");
        assert!(
            text.contains("\n  waiting for the lease: win-b\n"),
            "{text}"
        );
    }

    #[test]
    fn a_quiet_fleet_says_so_and_a_halted_rollout_does_not() {
        let quiet = found(&[serving("win-a", "v2")], json!({})).lines(usize::MAX, false);
        assert!(quiet.starts_with("Nothing is wrong"), "{quiet}");
        assert!(quiet.contains("1 of 1 updated"), "{quiet}");
        let halted = found(&[serving("win-a", "v2")], json!({"halted": "win-x failed"}));
        let text = halted.lines(usize::MAX, false);
        assert!(
            text.starts_with("STOPPED ROLLOUTS\n  Rollout windows: halted: win-x failed"),
            "{text}"
        );
        let waits = json!({"eroded": true, "waitingFor": "s to want 3 Machines again"});
        let eroded = found(&[serving("win-a", "v2")], waits).lines(usize::MAX, false);
        assert!(eroded.starts_with("STOPPED ROLLOUTS"), "{eroded}");
        assert!(eroded.contains("dormer resume --pool windows"), "{eroded}");
    }

    #[test]
    fn machines_of_an_earlier_template_raise_no_alarm() {
        let outdated = |name: &str| {
            let mut machine = serving(name, "v2");
            machine["templateDiffers"] = json!([{"field": "spec.providerSpec.value.ami.id",
                "machine": "\"ami-1\"", "template": "\"ami-2\""}]);
            machine
        };
        let machines = [outdated("win-a"), serving("win-b", "v2"), outdated("win-c")];
        let text = found(&machines, json!({})).lines(usize::MAX, false);
        assert!(text.starts_with("Nothing is wrong"), "{text}");
        let section = "\n\nEARLIER TEMPLATES\n  \
             win-a, win-c were made from an earlier template of their MachineSet.\n    \
             spec.providerSpec.value.ami.id: \"ami-1\", the template has \"ami-2\"\n    \
             To replace a machine with one of today's template: dormer recreate win-a";
        assert!(text.ends_with(section), "{text}");
    }

    #[test]
    fn a_paused_rollout_says_once_who_paused_it() {
        let rollout = json!({"state": "Paused", "paused": "ann: a look", "maxUnavailable": 1,
            "waitingFor": "a resume (paused by ann: a look)"});
        let text = found(&[serving("win-a", "v2")], rollout).lines(usize::MAX, false);
        assert_eq!(text.matches("paused by ann").count(), 1, "{text}");
        assert!(!text.contains("The next grant waits"), "{text}");
    }

    #[test]
    fn a_rollout_in_quarantine_is_a_stopped_one() {
        let quarantine = json!({"code": "RecordForged", "why": "its MAC is wrong", "builds": ["a"],
            "since": "2026-11-22T10:00:00Z"});
        let rollout = json!({"quarantine": quarantine});
        let text = found(&[serving("win-a", "v2")], rollout).lines(usize::MAX, false);
        assert!(
            text.starts_with(
                "STOPPED ROLLOUTS\n  Rollout windows: quarantined (RecordForged), and grants nothing: its \
                 MAC is wrong\n    dormer unquarantine rollout/windows"
            ),
            "{text}"
        );
    }

    #[test]
    fn what_the_pool_refuses_is_said() {
        let refused = json!({"refused": "payload: there is no payload 11.9.0"});
        let text = found(&[serving("win-a", "v2")], refused).lines(usize::MAX, false);
        assert!(
            text.starts_with("REFUSED SETTINGS\n  Pool windows: payload: there is no payload"),
            "{text}"
        );
    }

    /// `dormer why` says the same of both machines.
    #[test]
    fn a_machine_that_continues_by_itself_differs_from_one_that_a_budget_keeps() {
        let slow = json!({"name": "win-a", "state": "Provisioned", "phase": "probing", "phaseText": "probing",
            "sinceSeconds": 1_000});
        let text = found(&[slow], json!({})).lines(usize::MAX, false);
        let waits = "\n    Nothing yet: dormer continues by itself. It counts as stuck at 07:30 UTC; then:\n    Check that";
        assert!(text.contains(waits), "{text}");
        let blocker = json!({"pod": "shop/cart-7", "why": "no", "budgets": ["cart"]});
        let kept = json!({"name": "win-a", "state": "Draining", "phase": "evicting", "phaseText": "evicting",
            "sinceSeconds": 312, "drain": {"evicted": 0, "left": 1, "force": false, "blockers": [blocker]}});
        let text = found(&[kept], json!({})).lines(usize::MAX, false);
        assert!(!text.contains("by itself"), "{text}");
        let see = "\n    See what holds the pod:\n      kubectl -n shop describe pdb cart\n";
        assert!(text.contains(see), "{text}");
    }

    #[test]
    fn a_step_in_its_usual_time_is_said_to_be_as_usual() {
        let probing = json!({"name": "win-a", "state": "Provisioned", "phase": "probing", "phaseText": "probing",
            "phaseSince": "2026-11-21T07:00:00.000Z", "usualSeconds": 180});
        let text = found(&[probing], json!({})).lines(usize::MAX, false);
        let line = "  probing: win-a (as usual; this step takes about 3m, by 07:03 UTC)";
        assert!(text.lines().any(|it| it == line), "{text}");
    }

    #[test]
    fn programs_read_the_same() {
        let found = found(&[failed("win-a", "access_denied")], json!({}));
        let screen = serde_json::to_value(found.screen()).unwrap();
        assert_eq!(screen["causes"][0]["urgency"], "stuck");
        assert_eq!(
            screen["causes"][0]["do"][1]["argv"],
            json!(["dormer", "retry", "win-a"])
        );
        assert_eq!(screen["rollouts"][0]["pool"], "windows");
    }
}
