//! `dormer plan`: which nodes would change, what on them, and how. It changes nothing.

use crate::{
    Failure, ServerArgs, absent,
    action_commands::pool_in,
    answer::Answer,
    file::read,
    machines,
    output::{Column, columns_without, optional, table},
    server::{Server, segment},
    short_names::short_names,
    terminal,
};
use clap::Args;
use dormer_profile::{layers::LAYER_BYTES_MAX, payload::MANIFEST_FILE};
use dormer_proto::pool::DEFAULT_POOL;
use dormer_views::{
    explain,
    machine::Machine,
    moment::lasted,
    plan::{self, ItemChange, MachinePlan},
    rollout::Pool,
    run::List,
};
use serde::Serialize;
use serde_json::Value;
use std::{fmt::Write, path::PathBuf};

/// Largest manifest sent, in bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Most differences printed for each group of machines that change alike. `-o wide` prints all.
const TOTAL: usize = 12;

const COLUMNS: &[Column<MachinePlan>] = &[
    Column::new("MACHINE", |it| it.name.clone()),
    Column::wide("NODE", |it| optional(&it.node)),
    Column::new("FROM", |it| optional(&it.from)),
    Column::new("TO", |it| optional(&it.to)),
    Column::new("CLASS", |it| optional(&it.class)),
    Column::new("HOW", |it| optional(&it.how)),
    Column::new("EXPECTED", expected),
    Column::new("NOT ALLOWED", |it| optional(&it.not_allowed)),
    Column::new("UNKNOWN", |it| optional(&it.unknown)),
];

/// Columns that a narrow terminal does without, in that order, after those that have no value.
const DROPPED_WHEN_NARROW: [&str; 4] = ["CLASS", "FROM", "EXPECTED", "TO"];

/// A line for each machine. In a terminal of so many `columns` names are shortened first, then columns are left out, and lines
/// are cut last.
fn rows(machines: &[&MachinePlan], wide: bool, columns: Option<usize>) -> String {
    let text = table(machines.iter().copied(), COLUMNS, wide);
    let fits = |text: &str, most| text.lines().all(|line| line.chars().count() <= most);
    let Some(most) = columns.filter(|most| !wide && !fits(&text, *most)) else {
        return text;
    };
    let names: Vec<&str> = machines.iter().map(|it| it.name.as_str()).collect();
    let renamed = machines.iter().zip(short_names(&names));
    let shown: Vec<MachinePlan> = renamed
        .map(|(machine, name)| MachinePlan {
            name,
            ..(*machine).clone()
        })
        .collect();
    let is_empty = |column: &&Column<MachinePlan>| {
        shown
            .iter()
            .all(|machine| (column.cell)(machine).is_empty())
    };
    let empty = COLUMNS.iter().filter(is_empty).map(|it| it.heading);
    let mut spared: Vec<&str> = empty.collect();
    let mut text = table(&shown, &columns_without(COLUMNS, &spared), false);
    for heading in DROPPED_WHEN_NARROW {
        if fits(&text, most) {
            break;
        }
        spared.push(heading);
        text = table(&shown, &columns_without(COLUMNS, &spared), false);
    }
    let lines = text.lines().map(|line| terminal::cut(line, most));
    lines.collect::<Vec<_>>().join("\n")
}

/// Arguments of `dormer plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// Only this machine, with every item that differs: its name or the end of it, NAMESPACE/NAME, or its UID
    #[arg(conflicts_with = "pool")]
    machine: Option<String>,
    /// The pool
    #[arg(long, default_value = DEFAULT_POOL)]
    pool: String,
    /// Folder with a candidate payload, which need not be installed
    #[arg(long, value_name = "DIR")]
    payload: Option<PathBuf>,
    /// File with a candidate layer for the pool's profile
    #[arg(long, alias = "layer", value_name = "FILE")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    to: ServerArgs,
}

/// Candidate as text.
#[derive(Debug, Default, PartialEq, Serialize)]
struct CandidateFiles {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<String>,
}

impl Plan {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let named = self.machine.as_deref().and_then(pool_in);
        let one = match self.machine.as_deref().filter(|_| named.is_none()) {
            Some(called) => Some(open_machine(&server, called).await?),
            None => None,
        };
        let pool = one
            .as_ref()
            .map_or(named.unwrap_or(&self.pool), |it| &it.pool);
        let path = format!("/pools/{}/plan", segment(pool));
        let candidate = self.candidate()?;
        let answered = if candidate == CandidateFiles::default() {
            server.get(&path).await
        } else {
            server.post(&path, &candidate).await
        };
        let plan: Answer<plan::Plan> = absent::in_pool(&server, pool, answered).await?;
        let Some(machine) = one else {
            let programs = self.to.programs(&plan)?;
            return Ok(programs.unwrap_or_else(|| table_of(&plan.view.items, self.to.wide())));
        };
        let plan = only(plan.raw(), &machine.name);
        let view: plan::Plan = serde_json::from_value(plan.clone()).map_err(Failure::unreadable)?;
        let programs = self.to.programs(&plan)?;
        let people = || of_one(&machine.name, &view.items, self.to.wide());
        Ok(programs.unwrap_or_else(people))
    }

    fn candidate(&self) -> Result<CandidateFiles, Failure> {
        let manifest = |folder: &PathBuf| {
            let path = folder.join(MANIFEST_FILE);
            read("--payload", &path, MANIFEST_BYTES_MAX)
        };
        let layer = |path: &PathBuf| read("--profile", path, LAYER_BYTES_MAX as u64);
        Ok(CandidateFiles {
            payload: self.payload.as_ref().map(manifest).transpose()?,
            layer: self.profile.as_ref().map(layer).transpose()?,
        })
    }
}

/// The open machine that is called so.
///
/// # Errors
/// There is none, it is gone, or the name is a pool's.
async fn open_machine(server: &Server, called: &str) -> Result<Machine, Failure> {
    let machine = match machines::machine(server, called).await {
        Err(absent @ Failure::Absent { .. }) => {
            let pools = server.get::<List<Pool>>("/pools").await;
            let is_pool = pools.is_ok_and(|it| it.items.iter().any(|pool| pool.pool == called));
            return Err(if is_pool {
                Failure::Usage(format!(
                    "{called} is a pool, not a machine\nits plan is shown by: dormer plan --pool {called}"
                ))
            } else {
                absent
            });
        }
        found => found?,
    };
    if machine.status.closed.is_some() {
        return Err(Failure::Usage(format!(
            "{} is gone: nothing would change on it\nwhat was done is shown by: dormer history {}",
            machine.name, machine.uid
        )));
    }
    Ok(machine)
}

/// The plan with this machine alone, with all that the server says of it.
fn only(plan: &Value, name: &str) -> Value {
    let mut plan = plan.clone();
    if let Some(items) = plan["items"].as_array_mut() {
        items.retain(|it| it["name"] == name);
    }
    plan
}

/// Plan of one machine for people, with every item.
fn of_one(name: &str, machines: &[MachinePlan], wide: bool) -> String {
    let changing = |it: &MachinePlan| it.unknown.is_some() || it.class.is_some();
    let text = if machines.iter().any(|it| it.leaves) {
        format!("Nothing would change on {name}: its Machine is being deleted.")
    } else if machines.iter().any(changing) {
        let all: Vec<&MachinePlan> = machines.iter().collect();
        rows(&all, wide, terminal::columns()) + &changes(&all, true) + &steps(&all)
    } else {
        format!("Nothing would change on {name}.")
    };
    text + &templates(machines)
}

/// Sum of the steps' durations. It is a lower bound if a step has no known duration.
fn expected(machine: &MachinePlan) -> String {
    let least = if machine.unknown_steps > 0 {
        "at least "
    } else {
        ""
    };
    let sum = machine.expected_ms.map(|ms| lasted(0, ms));
    optional(&sum.map(|sum| format!("{least}{sum}")))
}

/// Plan for people: a line per machine, then the differences, once for all machines that change alike.
fn table_of(machines: &[MachinePlan], wide: bool) -> String {
    let stays = |machine: &&MachinePlan| machine.unknown.is_none() && machine.class.is_none();
    let (staying, rest): (Vec<&MachinePlan>, Vec<&MachinePlan>) = machines.iter().partition(stays);
    let leaving: Vec<&str> = staying
        .iter()
        .filter(|it| it.leaves)
        .map(|it| &*it.name)
        .collect();
    let leaving = match leaving.as_slice() {
        [] => String::new(),
        names => format!(" Being deleted: {}.", names.join(", ")),
    };
    let templates = templates(machines);
    if rest.is_empty() {
        return format!(
            "Nothing would change on any of {}.{leaving}{templates}",
            machines_text(staying.len())
        );
    }
    let mut text = rows(&rest, wide, terminal::columns());
    text += &changes(&rest, wide);
    text += &steps(&rest);
    if !staying.is_empty() {
        let _ = write!(
            text,
            "\n\n{} would not change.{leaving}",
            machines_text(staying.len())
        );
    }
    text + &templates
}

fn machines_text(count: usize) -> String {
    format!("{count} machine{}", if count == 1 { "" } else { "s" })
}

/// Machines that were made from an earlier template of their MachineSet: an upgrade does not change that.
fn templates(machines: &[MachinePlan]) -> String {
    let mut text = String::new();
    for group in explain::outdated(machines.iter().map(|it| (&*it.name, &*it.template_differs))) {
        let _ = write!(
            text,
            "\n\n{} An upgrade in place does not change that.",
            group.heading()
        );
        for difference in group.differs {
            let _ = write!(text, "\n  {difference}");
        }
        let _ = write!(text, "\n  {}", group.remedy());
    }
    text
}

/// Groups of `machines` with equal `key`, in the order of their first members.
fn groups<'a, K: PartialEq>(
    machines: &[&'a MachinePlan],
    key: impl Fn(&'a MachinePlan) -> K,
) -> Vec<(K, Vec<&'a MachinePlan>)> {
    let mut groups: Vec<(K, Vec<&MachinePlan>)> = Vec::new();
    for machine in machines {
        let key = key(machine);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(machine),
            None => groups.push((key, vec![machine])),
        }
    }
    groups
}

/// Differences, once for all machines that change alike.
fn changes(machines: &[&MachinePlan], wide: bool) -> String {
    let changing = machines.iter().filter(|machine| machine.changes_in_all > 0);
    let changing: Vec<&MachinePlan> = changing.copied().collect();
    let mut text = String::new();
    for (changes, group) in groups(&changing, |machine| &machine.changes) {
        let names: Vec<&str> = group.iter().map(|machine| machine.name.as_str()).collect();
        let _ = write!(text, "\n\n{}:", names.join(", "));
        let shown = if wide { changes.len() } else { TOTAL };
        for change in changes.iter().take(shown) {
            let ItemChange {
                item,
                class,
                detail,
            } = change;
            let _ = write!(text, "\n  {class:8} {item}: {detail}");
        }
        if changes.len() > shown {
            let _ = write!(text, "\n  … and {} more (-o wide)", changes.len() - shown);
        }
    }
    text
}

/// Last durations of the steps, once for all machines with the same steps: the shortest and the longest.
fn steps(machines: &[&MachinePlan]) -> String {
    let stepping = machines.iter().filter(|machine| !machine.steps.is_empty());
    let stepping: Vec<&MachinePlan> = stepping.copied().collect();
    let names = |machine: &'_ MachinePlan| -> Vec<String> {
        let steps = machine.steps.iter();
        steps.map(|step| step.text.clone()).collect()
    };
    let mut text = String::new();
    for (names, group) in groups(&stepping, names) {
        let how = optional(&group[0].how);
        let _ = write!(
            text,
            "\n\nLast durations, {how} ({}):",
            machines_text(group.len())
        );
        for (index, name) in names.iter().enumerate() {
            let took = group.iter().filter_map(|it| it.steps[index].took_ms);
            let _ = write!(text, "\n  {name}: {}", range(took));
        }
    }
    text
}

/// Range of these durations, in milliseconds.
fn range(took: impl Iterator<Item = u64> + Clone) -> String {
    let Some((least, most)) = took.clone().min().zip(took.max()) else {
        return "not known yet".to_owned();
    };
    let least = lasted(0, least);
    let most = lasted(0, most);
    if least == most {
        least
    } else {
        format!("{least} to {most}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::phase::MachinePhase;
    use dormer_views::{
        machine::TemplateDifference,
        plan::{ChangeClass, Step},
    };

    fn machine(name: &str, took: [Option<u64>; 2]) -> MachinePlan {
        let phases = [MachinePhase::Opening, MachinePhase::Evicting];
        let steps = phases.iter().zip(took).map(|(phase, took_ms)| Step {
            phase: (*phase).into(),
            text: phase.text().to_owned(),
            took_ms,
            machine: None,
            at: None,
        });
        let known: Vec<u64> = took.iter().flatten().copied().collect();
        MachinePlan {
            name: name.into(),
            class: Some(ChangeClass::Drain.into()),
            how: Some("with the lease: drained, and stays drained".into()),
            changes: vec![ItemChange {
                item: "file:a".into(),
                class: ChangeClass::Drain.into(),
                detail: "another".into(),
            }],
            changes_in_all: 1,
            expected_ms: Some(known.iter().sum()),
            unknown_steps: 2 - known.len() as u64,
            steps: steps.collect(),
            ..MachinePlan::default()
        }
    }

    #[test]
    fn a_plan_in_eighty_columns_says_how_each_machine_changes() {
        let name = "demo-x7k2p-windows-worker-us-east-1a-9dg4j";
        let mut plan = machine(name, [Some(300), Some(61_000)]);
        plan.from = Some("11.0.0-c29571b262a5".into());
        plan.to = Some("11.1.0-152c25738385".into());
        let narrow = rows(&[&plan], false, Some(80));
        let how = "with the lease: drained, and stays drained";
        assert!(narrow.contains("9dg4j") && narrow.contains(how), "{narrow}");
        assert!(!narrow.contains("NOT ALLOWED"), "{narrow}");
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 80),
            "{narrow}"
        );
        assert!(rows(&[&plan], false, None).contains(name));
    }

    #[test]
    fn a_plan_shows_the_last_duration_of_each_step_and_their_sum() {
        let quick = machine("a", [Some(300), Some(61_000)]);
        let slow = machine("b", [Some(300), Some(122_000)]);
        let said = table_of(&[quick, slow], false);
        assert!(said.contains("61s") && said.contains("2m2s"), "{said}");
        assert!(
            said.contains("\n\na, b:\n  drain    file:a: another\n"),
            "{said}"
        );
        let [opening, evicting] =
            [MachinePhase::Opening, MachinePhase::Evicting].map(|it| it.text());
        let steps = format!(
            "Last durations, with the lease: drained, and stays drained (2 machines):\n  \
             {opening}: 300ms\n  {evicting}: 61s to 2m2s"
        );
        assert!(said.contains(&steps), "{said}");
        let said = table_of(&[machine("a", [None, Some(5)])], false);
        assert!(said.contains("at least 5ms"), "{said}");
        let unknown = format!("{opening}: not known yet");
        assert!(said.contains(&unknown), "{said}");
    }

    #[test]
    fn a_plan_names_machines_of_an_earlier_template() {
        let mut stays = MachinePlan {
            name: "a".to_owned(),
            ..MachinePlan::default()
        };
        stays.template_differs = vec![TemplateDifference {
            field: "spec.version".to_owned(),
            machine: None,
            template: Some("\"v1.34.0\"".to_owned()),
        }];
        let said = table_of(&[stays], false);
        let wanted = "Nothing would change on any of 1 machine.\n\n\
             a was made from an earlier template of its MachineSet. An upgrade in place does not change that.\n  \
             spec.version: absent, the template has \"v1.34.0\"\n  \
             To replace a machine with one of today's template: dormer recreate a";
        assert_eq!(said, wanted);
    }

    #[test]
    fn the_plan_of_one_machine_has_every_item_and_no_other_machine() {
        let many = |name: &str| {
            let mut machine = machine(name, [Some(300), None]);
            let item = machine.changes[0].clone();
            machine.changes = (0..TOTAL + 3)
                .map(|at| ItemChange {
                    item: format!("file:{at}"),
                    ..item.clone()
                })
                .collect();
            machine.changes_in_all = machine.changes.len() as u64;
            machine
        };
        let plan = plan::Plan {
            pool: "windows".to_owned(),
            items: vec![many("a"), many("b")],
        };
        let mut raw = serde_json::to_value(&plan).expect("JSON");
        raw["later"] = "a field of a newer server".into();
        let only = only(&raw, "b");
        assert_eq!(only["later"], raw["later"]);
        let items: plan::Plan = serde_json::from_value(only).expect("a plan");
        let said = of_one("b", &items.items, false);
        assert!(
            said.contains("\n\nb:\n  drain    file:0: another\n"),
            "{said}"
        );
        assert!(
            said.contains(&format!("file:{}: another", TOTAL + 2)),
            "{said}"
        );
        assert!(!said.contains("more (-o wide)"), "{said}");
        let stays = MachinePlan::default();
        assert_eq!(of_one("b", &[stays], false), "Nothing would change on b.");
    }

    #[test]
    fn machines_that_stay_as_they_are_are_counted() {
        let stays = MachinePlan::default();
        let said = table_of(&[stays], false);
        assert_eq!(said, "Nothing would change on any of 1 machine.");
        let leaves = MachinePlan {
            name: "win-a".to_owned(),
            leaves: true,
            ..MachinePlan::default()
        };
        let both = [leaves.clone(), machine("win-b", [None, None])];
        let said = table_of(&both, false);
        let end = "\n\n1 machine would not change. Being deleted: win-a.";
        assert!(said.ends_with(end) && !said.starts_with("win-a"), "{said}");
        assert_eq!(
            of_one("win-a", &[leaves], false),
            "Nothing would change on win-a: its Machine is being deleted."
        );
    }
}
