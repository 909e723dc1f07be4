//! Runs as Kubernetes objects: a `WindowsMachine` that dormer creates for each machine, and the status of people's
//! `WindowsPool`.

use super::{
    conditions::{self, Context},
    v1alpha1::MachineStatus,
};
use crate::SharedRun;
use dormer_engine_core::Run;
use dormer_proto::phase::Listed;
use dormer_views::{explain::host_cure, moment::time};
use dormer_workers::pool::v1beta1::PoolStatus;
use dormer_workflows::{Dormer, State, machine, rollout};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Machine,
    Pool,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Machine => "WindowsMachine",
            Self::Pool => "WindowsPool",
        }
    }
}

/// Kind, namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectKey {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Machine that owns an object: Kubernetes deletes the object with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProjectedOwner {
    pub(super) name: String,
    pub(super) uid: String,
}

/// Desired content of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProjectedObject {
    pub(super) object_key: ObjectKey,
    pub(super) owner: Option<ProjectedOwner>,
    /// Complete status. An absent value is `null`, so that a merge patch removes the field.
    pub(super) status: Value,
}

impl ProjectedObject {
    /// Status as the API server stores it: without `null`.
    pub(super) fn kept(&self) -> Value {
        let mut status = self.status.clone();
        if let Some(fields) = status.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        status
    }

    /// Whether a merge patch with this status changes nothing. It removes no build of a version that the rollout does not
    /// know, so such builds do not count.
    pub(super) fn is_shown(&self, there: &Value) -> bool {
        let mut wanted = self.kept();
        if let Some(builds) = there.get("builds").and_then(Value::as_object)
            && let Some(fields) = wanted.as_object_mut()
            && let Some(known) = fields
                .entry("builds")
                .or_insert_with(|| Value::Object(Default::default()))
                .as_object_mut()
        {
            for (version, build) in builds {
                known
                    .entry(version.as_str())
                    .or_insert_with(|| build.clone());
            }
        }
        *there == wanted
    }
}

/// Objects of these runs. Of two machines with one name the later one is shown.
pub(super) fn of(runs: &[SharedRun], namespace: &str, beside: Context<'_>) -> Vec<ProjectedObject> {
    let mut machines: BTreeMap<ObjectKey, (&Run<Dormer>, ProjectedObject)> = BTreeMap::new();
    let mut pools = Vec::new();
    for run in runs.iter().filter(|run| run.closed.is_none()) {
        match &run.state {
            State::Machine(state) => {
                let object = machine(run, state);
                let older = machines
                    .get(&object.object_key)
                    .is_some_and(|(it, _)| it.began > run.began);
                if !object.object_key.name.is_empty() && !older {
                    machines.insert(object.object_key.clone(), (run.as_ref(), object));
                }
            }
            State::Rollout(state) => pools.push(pool(run, state, runs, namespace, beside)),
            State::None => {}
        }
    }
    machines
        .into_values()
        .map(|(_, object)| object)
        .chain(pools)
        .collect()
}

fn machine(run: &Run<Dormer>, state: &machine::State) -> ProjectedObject {
    let view = state.view();
    let conditions = conditions::of_machine(&view);
    let failure = view.failure.as_ref();
    let cure = failure.and_then(|(_, failure)| host_cure(&failure.code));
    let reason = view.reason.map(|reason| match cure {
        Some(cure) => format!("{}. {cure}.", reason.trim_end_matches('.')),
        None => reason,
    });
    let status = json!(MachineStatus {
        state: Some(view.phase.state().id().to_owned()),
        phase: Some(view.phase.text().to_owned()),
        since: Some(time(run.entered.at)),
        version: view.version,
        desired_version: view.desired_version,
        waiting_for: view.waiting_for,
        reason,
        node: view.node,
        address: view.address,
        pool: Some(view.pool),
        attempt: run.tasks.iter().map(|task| task.attempt.0).max(),
        conditions: Some(conditions),
    });
    let object_key = ObjectKey {
        kind: Kind::Machine,
        namespace: view.namespace,
        name: view.name.clone(),
    };
    ProjectedObject {
        object_key,
        owner: Some(ProjectedOwner {
            name: view.name,
            uid: view.uid,
        }),
        status,
    }
}

fn pool(
    run: &Run<Dormer>,
    state: &rollout::State,
    runs: &[SharedRun],
    namespace: &str,
    beside: Context<'_>,
) -> ProjectedObject {
    let names = crate::views::names(runs);
    let name = |uid: &str| names.get(uid).map_or(uid, String::as_str).to_owned();
    let view = state.view_with(&name);
    let holders: Vec<String> = view.slots.iter().map(|slot| name(&slot.holder)).collect();
    let conditions = conditions::of_pool(run.id.key(), &view, runs, beside);
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let status = json!(PoolStatus {
        observed_generation: i64::try_from(view.generation).ok().filter(|it| *it > 0),
        state: Some(view.state.id().to_owned()),
        since: Some(time(run.entered.at)),
        payload: view.payload,
        builds: Some(state.builds.clone()).filter(|it| !it.is_empty()),
        members: Some(count(view.members)),
        joined: Some(count(view.joined)),
        failed: Some(count(view.failed)),
        unavailable: Some(count(view.unavailable)),
        max_unavailable: view.max_unavailable.map(count),
        holders: Some(holders),
        waiting: Some(count(view.queue.len())),
        waiting_for: view.waiting_for,
        override_: None,
        override_order: None,
        conditions: Some(conditions),
    });
    let namespace = namespace.to_owned();
    let name = run.id.key().to_owned();
    ProjectedObject {
        object_key: ObjectKey {
            kind: Kind::Pool,
            namespace,
            name,
        },
        owner: None,
        status,
    }
}
