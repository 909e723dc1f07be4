//! Conditions of pools, machines and Nodes.

use crate::SharedRun;
use dormer_proto::{
    code,
    id::Timestamp,
    message::listed,
    phase::{Listed, MachineState},
    pool::with_remedy,
};
use dormer_views::{moment::time, prerequisites::MissingPrerequisite};
use dormer_workers::kubernetes::keys::CONDITION as ON_NODES;
use dormer_workflows::{State, machine, rollout};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Most minor versions that a kubelet may be behind its API server (Kubernetes' version skew policy).
const SKEW_MAX: u32 = 3;
/// Most machines that one message names. The rest is a count.
const NAMED_MAX: usize = 3;
/// Longest message, in bytes. Kubernetes permits 32 KiB, but people read less.
const MESSAGE_BYTES_MAX: usize = 1_000;

/// Condition without its transition time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StatusCondition {
    pub(super) kind: &'static str,
    pub(super) status: bool,
    /// Stable identifier in PascalCase.
    pub(super) reason: String,
    pub(super) message: String,
    /// Transition time, if the history knows it.
    pub(super) since: Option<Timestamp>,
}

impl StatusCondition {
    fn new(kind: &'static str, status: bool, reason: &str, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        }
        Self {
            kind,
            status,
            reason: reason.to_owned(),
            message,
            since: None,
        }
    }

    /// JSON of the condition. `since` is the transition time if the history knows none.
    pub(super) fn json(&self, since: Option<Timestamp>) -> Value {
        let status = if self.status { "True" } else { "False" };
        let mut shown = json!({
            "type": self.kind, "status": status, "reason": self.reason, "message": self.message,
        });
        if let Some(since) = self.since.or(since) {
            shown["lastTransitionTime"] = time(since).into();
        }
        shown
    }
}

/// Facts that the histories do not hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// Minor version of the API server.
    pub(super) server: Option<u32>,
    /// Prerequisites that dormer itself lacks.
    pub(super) lacks: &'a [MissingPrerequisite],
}

/// Conditions of a pool: four named as a ClusterOperator's, three that GitOps tools read, and whether a rollback
/// overrides its spec. [`date`] adds the transition times.
pub(super) fn of_pool(
    pool: &str,
    view: &rollout::View,
    runs: &[SharedRun],
    beside: Context<'_>,
) -> Vec<Value> {
    let machines: Vec<machine::View> = views(runs).filter(|one| one.pool == pool).collect();
    let all = [
        available(view),
        progressing(view, &machines),
        degraded(view, &machines, beside.lacks),
        upgradeable(runs, beside.server),
        overridden(pool, view),
    ];
    let stalled = stalled(view, &machines);
    let reconciling = StatusCondition {
        kind: "Reconciling",
        ..all[1].clone()
    };
    let differing = differing(&machines);
    let ready = ready(&[&stalled, &reconciling, &all[2], &differing], &all[0]);
    let all = all.iter().chain([&ready, &reconciling, &stalled]);
    let shown = all.map(|condition| {
        let mut shown = condition.json(None);
        if view.generation > 0 {
            shown["observedGeneration"] = view.generation.into();
        }
        shown
    });
    shown.collect()
}

/// Condition Ready: the pool is available, and none of `against` holds.
fn ready(against: &[&StatusCondition], available: &StatusCondition) -> StatusCondition {
    let why = against.iter().find(|one| one.status).copied();
    match why.or((!available.status).then_some(available)) {
        Some(why) => StatusCondition::new("Ready", false, &why.reason, why.message.clone()),
        None => StatusCondition::new(
            "Ready",
            true,
            "AsExpected",
            "every machine matches the spec",
        ),
    }
}

/// Whether machines that serve have another version than the spec's, for Ready alone. A machine that is labelled to be
/// ignored is none of dormer's.
fn differing(machines: &[machine::View]) -> StatusCondition {
    let ours = |one: &&machine::View| !matches!(one.halt, Some(machine::Halt::Ignored));
    let ours: Vec<&machine::View> = machines.iter().filter(ours).collect();
    let differs = |one: &&&machine::View| {
        one.phase.state() == MachineState::Joined
            && one.desired_version.is_some()
            && one.version != one.desired_version
    };
    let differ: Vec<&str> = ours
        .iter()
        .filter(differs)
        .map(|one| one.name.as_str())
        .collect();
    let message = format!(
        "{} of {} machines do not match the spec: {}",
        differ.len(),
        ours.len(),
        listed(&differ, NAMED_MAX)
    );
    StatusCondition::new("Differing", !differ.is_empty(), "MachinesDiffer", message)
}

/// First machine that waits for a person: it failed, it could not be compared, or a person keeps it as it is while the
/// pool wants another version.
fn waits_for_a_person(machines: &[machine::View]) -> Option<(&'static str, String)> {
    let first = |waits: &dyn Fn(&machine::View) -> Option<String>| {
        let mut all = machines.iter();
        all.find_map(|one| Some(format!("{}: {}", one.name, waits(one)?)))
    };
    let failed = |one: &machine::View| {
        let failed = one.phase.state() == MachineState::Failed;
        failed.then(|| one.reason.clone().unwrap_or_else(|| "it failed".into()))
    };
    let not_compared = |one: &machine::View| {
        let why = one.not_compared.as_ref()?;
        Some(format!("{} ({})", why.message, code::shown(&why.code)))
    };
    let kept = |one: &machine::View| {
        let why = match one.halt.as_ref()? {
            machine::Halt::Ignored => return None,
            machine::Halt::Paused { by, .. } => format!("paused by {by}"),
            machine::Halt::Held { by, .. } => format!("held by {by}"),
        };
        let differs = one.desired_version.is_some() && one.version != one.desired_version;
        differs.then_some(why)
    };
    first(&failed)
        .map(|why| ("MachineFailed", why))
        .or_else(|| first(&not_compared).map(|why| ("MachineNotCompared", why)))
        .or_else(|| first(&kept).map(|why| ("MachineHalted", why)))
}

/// Condition Stalled: nothing proceeds, on the whole pool or on a machine, until a person acts.
fn stalled(view: &rollout::View, machines: &[machine::View]) -> StatusCondition {
    let (reason, why) = match (&view.refused, &view.held, &view.halted) {
        (Some(why), _, _) => ("BadSpec", why),
        (None, Some(why), _) if view.neighbour => ("AnotherOperatorRuns", why),
        (None, Some(why), _) => {
            let why = with_remedy(why, view.held_cure.as_deref());
            return StatusCondition::new("Stalled", true, "GrantsHeld", why);
        }
        (None, None, Some(why)) => ("RolloutHalted", why),
        (None, None, None) => {
            return match waits_for_a_person(machines) {
                Some((reason, why)) => StatusCondition::new("Stalled", true, reason, why),
                None => StatusCondition::new(
                    "Stalled",
                    false,
                    "AsExpected",
                    "no machine waits for a person",
                ),
            };
        }
    };
    StatusCondition::new("Stalled", true, reason, why.clone())
}

/// Condition Overridden: a rollback replaces the spec's payload.
fn overridden(pool: &str, view: &rollout::View) -> StatusCondition {
    match &view.overridden {
        Some((written, by)) => {
            let payload = view.payload.as_deref().unwrap_or("another payload");
            let message = format!(
                "{by} rolled back to {payload}, which replaces spec.payload: {written}; to go forward \
                 again: dormer rollback --pool {pool} --end"
            );
            StatusCondition::new("Overridden", true, "RolledBack", message)
        }
        None => StatusCondition::new(
            "Overridden",
            false,
            "AsExpected",
            "no rollback overrides the spec",
        ),
    }
}

/// Conditions of a machine, for `kubectl wait`. [`date`] adds the transition times.
pub(super) fn of_machine(view: &machine::View) -> Vec<Value> {
    let state = view.phase.state();
    let phase = view.phase.text();
    let why = view.reason.clone().or_else(|| view.waiting_for.clone());
    let why = why.unwrap_or_else(|| phase.to_owned());
    let version = view.version.as_deref();
    let serves = state == MachineState::Joined;
    let right = version.is_some() && version == view.desired_version.as_deref();
    let failed = state == MachineState::Failed;
    let moving = !serves && !failed && state != MachineState::Gone;
    let all = [
        StatusCondition::new("Ready", serves, state.id(), why.clone()),
        match (right, version) {
            (true, Some(version)) => StatusCondition::new("UpToDate", true, "AsExpected", version),
            (_, version) => {
                let is = version.unwrap_or("no known version");
                let wanted = view.desired_version.as_deref().unwrap_or("not known yet");
                let message = format!("it carries {is}; it should carry {wanted}");
                StatusCondition::new("UpToDate", false, "NotAsDesired", message)
            }
        },
        StatusCondition::new("Reconciling", moving, state.id(), phase),
        StatusCondition::new("Stalled", failed, state.id(), why),
    ];
    all.iter().map(|condition| condition.json(None)).collect()
}

fn available(view: &rollout::View) -> StatusCondition {
    match view.max_unavailable {
        Some(_) => {
            StatusCondition::new("Available", true, "AsExpected", "the pool accepts machines")
        }
        None => StatusCondition::new(
            "Available",
            false,
            "NoSettings",
            "the watcher has not reported the pool yet, so no machine is configured",
        ),
    }
}

fn progressing(view: &rollout::View, machines: &[machine::View]) -> StatusCondition {
    let at_rest = [
        MachineState::Joined,
        MachineState::Failed,
        MachineState::Gone,
    ];
    let moving = |one: &&machine::View| !at_rest.contains(&one.phase.state());
    let moving: Vec<&str> = machines
        .iter()
        .filter(moving)
        .map(|one| one.name.as_str())
        .collect();
    if !moving.is_empty() {
        let message = format!(
            "{} of {} machines: {}",
            moving.len(),
            machines.len(),
            listed(&moving, NAMED_MAX)
        );
        return StatusCondition::new("Progressing", true, "MachinesUnderWay", message);
    }
    match view.queue.len() {
        0 => StatusCondition::new("Progressing", false, "AsExpected", "no machine is changing"),
        waiting => {
            let why = view.waiting_for.as_deref().unwrap_or("the next decision");
            let why = with_remedy(why, view.waits_cure.as_deref());
            let message = format!("{waiting} machines wait for the lease: {why}");
            StatusCondition::new("Progressing", true, "MachinesWait", message)
        }
    }
}

fn degraded(
    view: &rollout::View,
    machines: &[machine::View],
    lacks: &[MissingPrerequisite],
) -> StatusCondition {
    if let Some(lack) = lacks.first() {
        return StatusCondition::new("Degraded", true, "DormerLacks", lack.sentence());
    }
    let failed: Vec<&machine::View> = machines
        .iter()
        .filter(|one| one.phase.state() == MachineState::Failed)
        .collect();
    if let Some(first) = failed.first() {
        let names: Vec<&str> = failed.iter().map(|one| one.name.as_str()).collect();
        let why = first.reason.as_deref().unwrap_or("no reason is known");
        let message = format!(
            "{} failed: {} ({why})",
            failed.len(),
            listed(&names, NAMED_MAX)
        );
        return StatusCondition::new("Degraded", true, "MachineFailed", message);
    }
    match &view.halted {
        Some(why) => StatusCondition::new("Degraded", true, "RolloutHalted", why.clone()),
        None => StatusCondition::new("Degraded", false, "AsExpected", "no machine has failed"),
    }
}

/// Condition Upgradeable of dormer and the cluster. It is false while a machine holds a lease, or if the cluster's
/// next minor version would leave a kubelet too old.
pub(super) fn upgradeable(runs: &[SharedRun], server: Option<u32>) -> StatusCondition {
    let names = crate::views::names(runs);
    let slots = runs
        .iter()
        .filter(|run| run.closed.is_none())
        .filter_map(|run| run.state.rollout())
        .flat_map(|state| state.view().slots);
    if let Some(slot) = slots.into_iter().next() {
        let holder = names.get(&slot.holder).unwrap_or(&slot.holder);
        let message = format!("{holder} holds the lease (token {})", slot.token.0);
        return StatusCondition::new("Upgradeable", false, "LeaseHeld", message);
    }
    let kubelets = runs
        .iter()
        .filter(|run| run.closed.is_none())
        .filter_map(|run| {
            let State::Machine(state) = &run.state else {
                return None;
            };
            let node = state.node.as_ref()?;
            Some((minor(&node.kubelet_version)?, node.name.clone()))
        });
    let oldest = kubelets.min();
    if let (Some(server), Some((kubelet, node))) = (server, oldest)
        && server + 1 > kubelet + SKEW_MAX
    {
        let message = format!(
            "the API server is at 1.{server}; at 1.{} the kubelet of {node} (1.{kubelet}) would be more than \
             {SKEW_MAX} minors behind: install a newer payload first",
            server + 1
        );
        return StatusCondition::new("Upgradeable", false, "KubeletSkew", message);
    }
    StatusCondition::new(
        "Upgradeable",
        true,
        "AsExpected",
        "no machine holds a lease",
    )
}

/// Minor version of a version text: 33 of `v1.33.4`.
fn minor(version: &str) -> Option<u32> {
    version
        .trim_start_matches('v')
        .split('.')
        .nth(1)?
        .parse()
        .ok()
}

/// Conditions of Nodes, by the Node's UID: the Node's name and the condition.
pub(super) fn of_nodes(runs: &[SharedRun]) -> BTreeMap<String, (String, StatusCondition)> {
    let mut all = BTreeMap::new();
    for run in runs.iter().filter(|run| run.closed.is_none()) {
        let State::Machine(state) = &run.state else {
            continue;
        };
        let Some(node) = state.node.as_ref().filter(|node| !node.uid.is_empty()) else {
            continue;
        };
        let view = state.view();
        let state = view.phase.state();
        let phase = view.phase.text();
        let right = state == MachineState::Joined
            && view.version.is_some()
            && view.version == view.desired_version;
        let message = match (&view.reason, &view.waiting_for) {
            _ if right => format!("at {}", view.version.as_deref().unwrap_or_default()),
            (Some(reason), Some(waits)) => format!("{phase}: {reason}; waits for {waits}"),
            (Some(one), None) => format!("{phase}: {one}"),
            (None, Some(waits)) => format!("{phase}: waits for {waits}"),
            (None, None) => phase.to_owned(),
        };
        let reason = if state == MachineState::Joined && !right {
            "NotAsDesired"
        } else {
            state.id()
        };
        let mut condition = StatusCondition::new(ON_NODES, right, reason, message);
        condition.since = Some(run.entered.at);
        all.insert(node.uid.clone(), (node.name.clone(), condition));
    }
    all
}

/// Sets the transition times: an unchanged condition keeps its time, a changed one gets `now`.
pub(super) fn date(status: &mut Value, before_status: Option<&Value>, now: Timestamp) {
    let before = before_status
        .and_then(|it| it["conditions"].as_array())
        .cloned()
        .unwrap_or_default();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        let same =
            |old: &&Value| old["type"] == condition["type"] && old["status"] == condition["status"];
        let since = before
            .iter()
            .find(same)
            .map(|old| old["lastTransitionTime"].clone());
        let since = since.filter(Value::is_string);
        condition["lastTransitionTime"] = since.unwrap_or_else(|| time(now).into());
    }
}

/// Marks a pool as unknown because the store does not answer.
pub(super) fn unavailable(status: &mut Value, why: &str, now: Timestamp) {
    let condition = StatusCondition::new("Available", false, "StoreSilent", why);
    let all = status["conditions"].as_array_mut();
    if let Some(old) = all
        .into_iter()
        .flatten()
        .find(|old| old["type"] == "Available")
    {
        *old = condition.json(Some(now));
    }
}

fn views(runs: &[SharedRun]) -> impl Iterator<Item = machine::View> {
    runs.iter()
        .filter(|run| run.closed.is_none())
        .filter_map(|run| run.state.machine())
        .map(machine::State::view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::phase::MachinePhase;

    /// `kubectl wait --for=condition=Ready` passed while a node stayed behind.
    #[test]
    fn a_pool_is_ready_only_if_every_machine_is_as_the_spec_has_it() {
        let machine = |name: &str, version: &str| machine::View {
            name: name.into(),
            phase: MachinePhase::Serving,
            version: Some(version.into()),
            desired_version: Some("v2".into()),
            ..machine::State::default().view()
        };
        let conditions = |machines: &[machine::View]| {
            let view = rollout::State::default().view();
            let fine = StatusCondition::new("Available", true, "AsExpected", "");
            let stalled = stalled(&view, machines);
            let ready = ready(&[&stalled, &differing(machines)], &fine);
            (ready.status, ready.reason, stalled.status, stalled.message)
        };
        let as_wanted = machine("a", "v2");
        assert!(conditions(std::slice::from_ref(&as_wanted)).0);
        let behind = machine("b", "v1");
        let (ready, reason, stalled, _) = conditions(&[as_wanted.clone(), behind.clone()]);
        assert_eq!(
            (ready, reason.as_str(), stalled),
            (false, "MachinesDiffer", false)
        );
        let held = machine::View {
            halt: Some(machine::Halt::Held {
                by: "ann".into(),
                holder: None,
                who: None,
            }),
            ..behind.clone()
        };
        let (ready, reason, stalled, why) = conditions(&[as_wanted.clone(), held]);
        assert_eq!(
            (ready, reason.as_str(), stalled),
            (false, "MachineHalted", true)
        );
        assert_eq!(why, "b: held by ann");
        let not_compared = machine::View {
            not_compared: Some(dormer_proto::rollout::NotCompared {
                code: "HostKeyChanged".into(),
                message: "another key".into(),
                shown_key: None,
            }),
            ..behind.clone()
        };
        let (_, reason, stalled, why) = conditions(&[not_compared]);
        assert_eq!((reason.as_str(), stalled), ("MachineNotCompared", true));
        assert_eq!(why, "b: another key (HostKeyChanged)");
        let ignored = machine::View {
            halt: Some(machine::Halt::Ignored),
            ..behind
        };
        assert!(
            conditions(&[as_wanted, ignored]).0,
            "it is none of dormer's"
        );
    }

    #[test]
    fn a_condition_that_goes_on_keeps_its_time() {
        let mut status = json!({"conditions": [
            {"type": "Available", "status": "True", "message": "new words"},
            {"type": "Degraded", "status": "True"},
        ]});
        let before_status = json!({"conditions": [
            {"type": "Available", "status": "True", "lastTransitionTime": "then"},
            {"type": "Degraded", "status": "False", "lastTransitionTime": "then"},
        ]});
        date(&mut status, Some(&before_status), Timestamp(0));
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "then");
        assert_eq!(
            status["conditions"][1]["lastTransitionTime"],
            "1970-01-01T00:00:00.000Z"
        );
    }

    #[test]
    fn names_and_versions_appear_in_conditions() {
        assert_eq!(minor("v1.33.4+abc"), Some(33));
        assert_eq!(minor("nonsense"), None);
    }
}
