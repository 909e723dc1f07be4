//! Explanation of a rollout: why it grants no lease, the machines that hold it up, and what to do.

use super::{
    block, dotless,
    drain_steps::{to_continue, to_end_rollback},
    problem::{MachineProblem, Urgency, problem},
    rollout_among::{time_left, word_among},
    rollout_words::stands_still,
    sentence,
    shared_steps::pools,
    step::{Outside, Step, step_lines},
};
use crate::{
    machine::Machine,
    moment::span,
    numbers::Numbers,
    open_enum::OpenEnum,
    rollout::{Rollout, Slot},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most machines by name. The rest is a count.
const MACHINES_MAX: usize = 10;

/// Explanation of a rollout, for lines and for programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutExplanation {
    pub pool: String,
    /// Its state for people.
    pub state: String,
    /// Why it grants no lease, or what the next grant waits for, without a full stop; null if no machine waits.
    pub cause: Option<String>,
    /// Machines that hold it up: holders of the lease, those in whose place another has to serve, and those out of service.
    pub machines: Vec<HoldsUp>,
    /// Next steps, in their order.
    #[serde(rename = "do")]
    pub steps: Vec<Step>,
    /// Everything else that is known, one sentence each.
    pub details: Vec<String>,
}

/// Machine that holds a rollout up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HoldsUp {
    pub name: String,
    /// Machines of two namespaces may have one name; absent if only the name is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// What it does or lacks, without a full stop.
    pub why: String,
    /// How urgently it needs a person; absent without trouble.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgency: Option<OpenEnum<Urgency>>,
}

/// Explanation of the rollout, with what its machines, which are among `machines`, say of it. `None`: they could not be read.
pub fn rollout_explanation(rollout: &Rollout, machines: Option<&[Machine]>) -> RolloutExplanation {
    let ours = machines
        .into_iter()
        .flatten()
        .filter(|it| it.pool == rollout.pool);
    let ours: Vec<&Machine> = ours.collect();
    let holding = holding_up(rollout, &ours);
    let next = || {
        let what = dotless(rollout.waiting_for.as_ref()?);
        Some(format!("the next grant waits for {what}"))
    };
    RolloutExplanation {
        pool: rollout.pool.clone(),
        state: word_among(rollout, ours.iter().copied()).to_owned(),
        cause: stands_still(rollout)
            .map(|it| dotless(&it).to_owned())
            .or_else(next),
        steps: steps(rollout, &holding),
        details: match machines {
            Some(_) => details(rollout, &ours),
            None => vec![
                "Its machines could not be read, so this is what the rollout alone knows."
                    .to_owned(),
            ],
        },
        machines: holding,
    }
}

/// The machines that hold it up, those that need a person first.
fn holding_up(rollout: &Rollout, ours: &[&Machine]) -> Vec<HoldsUp> {
    let by_name = |name: &str| ours.iter().copied().find(|it| it.name == name);
    let by_uid = |uid: &str| ours.iter().copied().find(|it| it.uid == uid);
    let mut all: Vec<HoldsUp> = Vec::new();
    for slot in &rollout.slots {
        let holder = by_uid(&slot.holder);
        all.push(match &slot.waits_for {
            Some(waits) if slot.vacant => gone(&slot.name, &slot.holder, waits),
            _ => holds_the_lease(rollout, slot, holder),
        });
        let candidates = slot.candidates.iter().filter_map(|name| by_name(name));
        all.extend(candidates.filter_map(in_trouble));
    }
    for gap in &rollout.gaps {
        all.push(gone(&gap.name, &gap.uid, &gap.waits_for));
    }
    for away in &rollout.away {
        let known = by_uid(&away.uid);
        let trouble = known.and_then(in_trouble);
        all.push(trouble.unwrap_or_else(|| HoldsUp {
            name: away.name.clone(),
            uid: Some(away.uid.clone()),
            why: format!("it counts as unavailable ({})", away.why),
            urgency: None,
        }));
    }
    // A machine that has failed and is not updated halts its rollout, or is left when the others are done. While leases
    // are granted it holds nothing up.
    if matches!(
        word_among(rollout, ours.iter().copied()),
        "Stuck" | "Halted"
    ) {
        let stuck = ours.iter().filter(|it| !it.is_updated());
        all.extend(stuck.filter_map(|it| {
            let stuck = in_trouble(it)?;
            (stuck.urgency == Some(Urgency::Stuck.into())).then_some(stuck)
        }));
    }
    let mut known: Vec<HoldsUp> = Vec::new();
    for one in all {
        if !known.iter().any(|it| it.same_as(&one)) {
            known.push(one);
        }
    }
    let order = |it: &HoldsUp| {
        let urgency = it.urgency.as_ref().and_then(OpenEnum::known);
        urgency.map_or(usize::MAX, |it| it as usize)
    };
    known.sort_by_key(order);
    known
}

impl HoldsUp {
    fn same_as(&self, other: &Self) -> bool {
        match (&self.uid, &other.uid) {
            (Some(one), Some(another)) => one == another,
            _ => self.name == other.name,
        }
    }
}

fn gone(name: &str, uid: &str, waits: &str) -> HoldsUp {
    HoldsUp {
        name: name.to_owned(),
        uid: Some(uid.to_owned()),
        why: format!("it is gone, and its place waits for {}", dotless(waits)),
        urgency: None,
    }
}

fn holds_the_lease(rollout: &Rollout, slot: &Slot, holder: Option<&Machine>) -> HoldsUp {
    let now = rollout.status.since.0.0 + rollout.status.since_seconds * 1_000;
    let long = span(now.saturating_sub(slot.since.0.0) / 1_000);
    let trouble = holder.and_then(problem);
    let doing = match (&trouble, &slot.stopped, holder) {
        (Some(MachineProblem { cause, .. }), _, _) => format!(": {}", dotless(cause)),
        (None, Some(how), _) => format!(", and was {how}"),
        (None, None, Some(holder)) => format!(": {}", holder.phase_text),
        (None, None, None) => String::new(),
    };
    HoldsUp {
        name: slot.name.clone(),
        uid: Some(slot.holder.clone()),
        why: format!("it has held the lease for {long}{doing}"),
        urgency: trouble.map(|it| it.urgency.into()),
    }
}

/// A machine in trouble. `None`: it is in none.
fn in_trouble(machine: &Machine) -> Option<HoldsUp> {
    let MachineProblem { urgency, cause, .. } = problem(machine)?;
    Some(HoldsUp {
        name: machine.name.clone(),
        uid: Some(machine.uid.clone()),
        why: dotless(&cause).to_owned(),
        urgency: Some(urgency.into()),
    })
}

/// What lets it continue: a command for the rollout itself, and else what the first machine needs.
fn steps(rollout: &Rollout, holding: &[HoldsUp]) -> Vec<Step> {
    if let Some(held) = &rollout.held {
        let say = rollout.held_cure.as_deref().unwrap_or(held);
        return vec![Step::outside(Outside::CorrectPool, dotless(say))];
    }
    let needs = |it: &&HoldsUp| {
        let urgency = it.urgency.as_ref().and_then(OpenEnum::known);
        matches!(urgency, Some(Urgency::Stuck | Urgency::Person))
    };
    let machine = holding.iter().find(needs).map(|it| {
        let say = format!("See what {} needs", it.name);
        Step::command(&say, &["dormer", "why", &it.name])
    });
    let mut steps = Vec::from_iter(to_continue(rollout));
    let own = steps.is_empty();
    steps.extend(machine);
    if holding.len() > MACHINES_MAX {
        let all = [
            "dormer",
            "get",
            "machines",
            "--pool",
            &rollout.pool,
            "--state",
            "attention",
        ];
        steps.push(Step::command("See all that need attention", &all));
    }
    if own && let Some(cure) = &rollout.waits_cure {
        steps.push(Step::outside(Outside::MendCluster, dotless(cure)));
    }
    if rollout.refused.is_some() {
        steps.push(pools());
    }
    if rollout.overridden.is_some() {
        steps.push(to_end_rollback(rollout).instead());
    }
    steps
}

fn details(rollout: &Rollout, ours: &[&Machine]) -> Vec<String> {
    let Numbers {
        machines, updated, ..
    } = Numbers::of(ours.iter().copied());
    let max = rollout.max_unavailable;
    let max = max.map_or_else(|| "an unknown number".to_owned(), |it| it.to_string());
    let mut details = vec![format!(
        "{updated} of {machines} machines are updated, {} of at most {max} unavailable, {} in the queue.",
        rollout.unavailable,
        rollout.queue.len()
    )];
    if let Some(left) = time_left(rollout, ours.iter().copied()) {
        details.push(format!(
            "The rest takes about {}.",
            left.trim_start_matches("~ ")
        ));
    }
    details.extend(rollout.refused.as_ref().map(|why| {
        let why = dotless(why);
        format!("The pool's present settings are refused, and the ones before them hold: {why}.")
    }));
    details.extend(
        rollout
            .direction()
            .map(|text| sentence(&format!("It is {text}"))),
    );
    details
}

impl RolloutExplanation {
    /// Lines for people, as those of a machine.
    pub fn lines(&self) -> String {
        let Self { pool, state, .. } = self;
        let begin = format!("Rollout {pool} is {state}");
        let mut lines = vec![match &self.cause {
            Some(cause) => format!("{begin}: {cause}."),
            None if self.machines.is_empty() => format!("{begin}: no machine waits for the lease."),
            None => format!("{begin}."),
        }];
        if !self.machines.is_empty() {
            let shown = self.machines.iter().take(MACHINES_MAX);
            let shown = shown.map(|it| sentence(&format!("{}: {}", it.name, it.why)));
            let more = self.machines.len().saturating_sub(MACHINES_MAX);
            let more = (more > 0).then(|| format!("And {more} more."));
            lines.extend(block("Held by", shown.chain(more), ""));
        }
        let steps = step_lines(&self.steps).into_iter();
        lines.extend(block(
            "Do now",
            steps,
            "Nothing: dormer continues by itself.",
        ));
        lines.extend(block("Details", self.details.iter().cloned(), ""));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::{failed_while, machine_in, rollout_with};
    use dormer_proto::phase::MachinePhase;
    use serde_json::{Value, json};

    fn named(name: &str, machine: Machine) -> Machine {
        Machine {
            name: name.into(),
            uid: format!("uid of {name}"),
            ..machine
        }
    }

    fn slot(name: &str, more: &Value) -> Value {
        let mut slot = json!({"token": 4, "holder": format!("uid of {name}"), "name": name, "marked": false, "seq": 2,
            "since": "2026-11-21T07:00:12.000Z", "waitsFor": null});
        for (key, value) in more.as_object().expect("fields") {
            slot[key] = value.clone();
        }
        slot
    }

    fn waiting(name: &str) -> Value {
        json!([{"uid": format!("uid of {name}"), "name": name, "position": 1, "away": false}])
    }

    fn lines(rollout: Value, machines: &[Machine]) -> String {
        rollout_explanation(&rollout_with(rollout), Some(machines)).lines()
    }

    #[test]
    fn a_slot_that_waits_for_a_machine_which_the_cloud_cannot_create_names_that_one_first() {
        let refused = json!([{"kind": "MachineCreation", "status": "False", "reason": "MachineCreationFailed",
            "message": "InstanceLimitExceeded"}]);
        let new = Machine {
            machine_conditions: serde_json::from_value(refused).expect("conditions"),
            ..named("win-new", machine_in(MachinePhase::AddressWait))
        };
        let vacant =
            json!({"vacant": true, "waitsFor": "win-new to be Joined", "candidates": ["win-new"]});
        let rollout = json!({"slots": [slot("win-old", &vacant)], "queue": waiting("win-2"), "maxUnavailable": 1,
            "waitingFor": "a slot: at most 1 machine may be unavailable"});
        assert_eq!(
            lines(rollout, &[new]),
            "Rollout windows is Running: the next grant waits for a slot: at most 1 machine may be unavailable.\n\
             Held by: win-new: the cloud cannot create it: InstanceLimitExceeded.\n         \
             win-old: it is gone, and its place waits for win-new to be Joined.\n\
             Do now:  See what win-new needs:\n           dormer why win-new\n\
             Details: 0 of 1 machines are updated, 1 of at most 1 unavailable, 1 in the queue."
        );
    }

    #[test]
    fn without_its_machines_it_has_no_numbers_of_them() {
        let text = rollout_explanation(&rollout_with(json!({})), None).lines();
        assert!(text.contains("could not be read"), "{text}");
        assert!(!text.contains("machines are updated"), "{text}");
    }

    #[test]
    fn a_paused_rollout_is_called_so_once_with_the_command_that_continues_it() {
        let rollout = json!({"state": "Paused", "paused": "ann: a look", "queue": waiting("win-2"),
            "maxUnavailable": 1, "waitingFor": "a resume (paused by ann: a look)"});
        let text = lines(
            rollout,
            &[named("win-2", machine_in(MachinePhase::LeaseWait))],
        );
        assert_eq!(text.matches("paused by").count(), 1, "{text}");
        assert!(
            text.starts_with("Rollout windows is Paused: paused by ann: a look.\nDo now:  Continue the rollout:\n"),
            "{text}"
        );
        assert!(text.contains("dormer resume --pool windows"), "{text}");
    }

    #[test]
    fn a_failed_machine_holds_up_no_rollout_that_grants_leases() {
        let failed = |name: &str| {
            let machine = failed_while(MachinePhase::ConvergingHost, "DiskFull", "no room");
            named(name, machine)
        };
        let going = named("win-1", machine_in(MachinePhase::ConvergingHost));
        let runs = json!({"slots": [slot("win-1", &json!({}))], "queue": waiting("win-2")});
        let text = lines(runs, &[going, failed("win-9")]);
        assert!(
            text.contains("Running") && !text.contains("win-9"),
            "{text}"
        );
        // Two namespaces have a machine of this name.
        let other = Machine {
            uid: "another uid".into(),
            ..failed("win-9")
        };
        let halted = json!({"state": "Halted", "halted": "win-9 failed while it held the lease"});
        let text = lines(halted.clone(), &[failed("win-9"), other]);
        assert_eq!(text.matches("win-9: no room").count(), 2, "{text}");
        let all = "dormer get machines --pool windows --state attention";
        assert!(!text.contains(all), "{text}");
        let many: Vec<Machine> = (0..=MACHINES_MAX)
            .map(|at| failed(&format!("win-{at}")))
            .collect();
        let text = lines(halted, &many);
        assert!(text.contains("And 1 more.") && text.contains(all), "{text}");
    }

    #[test]
    fn a_holder_that_failed_and_one_that_continues_are_named_with_their_causes() {
        let failed = named(
            "win-1",
            failed_while(MachinePhase::ConvergingHost, "DiskFull", "no room"),
        );
        let halted = json!({"state": "Halted", "halted": "win-1 failed while it held the lease",
            "slots": [slot("win-1", &json!({}))], "queue": waiting("win-2")});
        let text = lines(halted, std::slice::from_ref(&failed));
        assert!(
            text.contains("Held by: win-1: it has held the lease for 5m: no room (DiskFull)."),
            "{text}"
        );
        assert!(text.contains("dormer why win-1"), "{text}");
        let going = named("win-1", machine_in(MachinePhase::ConvergingHost));
        let runs = json!({"slots": [slot("win-1", &json!({}))]});
        let text = lines(runs, &[going]);
        assert!(
            text.contains("win-1: it has held the lease for 5m: converging the host."),
            "{text}"
        );
        assert!(
            text.contains("Do now:  Nothing: dormer continues by itself."),
            "{text}"
        );
        let idle = lines(json!({}), &[]);
        assert!(
            idle.starts_with("Rollout windows is Idle: no machine waits for the lease."),
            "{idle}"
        );
        let mut elsewhere = failed;
        elsewhere.pool = "another".into();
        assert_eq!(lines(json!({}), &[elsewhere]), idle);
    }
}
