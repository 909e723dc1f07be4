//! Read-only endpoints.

use super::{
    Api, ApiError, dead_letters, prerequisites,
    run_cache::SharedRun,
    story::Story,
    views::{self, names},
};
use axum::{
    Json,
    extract::{Path, Query, State as Of},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_engine_core::Record;
use dormer_proto::{
    envelope,
    id::{RunId, Seq, Timestamp},
    phase::MachinePhase,
    work::{ROLLOUT, SCHEMA, rollout_run},
};
use dormer_views::{
    finding::Finding,
    machine::{Machine, Machines},
    record::History,
    rollout::{Pool, Rollout, Slot},
    run::{DeadLetter, List, Run, Task},
    timeline::Timeline,
};
use dormer_workflows::Dormer;
use serde::Deserialize;
use std::sync::Arc;

/// Default number of records in one answer.
const RECORDS: usize = 100;
/// Most records in one answer.
const RECORDS_MAX: usize = 1_000;

type Answer<T> = Result<Json<T>, ApiError>;
type ApiState = Of<Arc<Api>>;

fn items<T>(items: Vec<T>) -> Answer<List<T>> {
    Ok(Json(List { items }))
}

impl Api {
    /// Present time by the engine's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.ports.now()
    }

    /// View of a machine.
    pub(super) fn shown_machine(&self, run: &SharedRun) -> Answer<Machine> {
        let shown = views::machine(run, &self.live, self.now());
        let absent = || ApiError::absent("machine", run.id.as_str(), "dormer get machines");
        shown.map(Json).ok_or_else(absent)
    }

    /// View of a rollout.
    pub(super) async fn shown_rollout(&self, run: &SharedRun) -> Answer<Rollout> {
        let names = names(&self.run_cache.all().await?);
        let shown = views::rollout(run, &names, &self.live, self.now());
        let absent = || ApiError::absent("rollout", run.id.key(), "dormer get rollouts");
        shown.map(Json).ok_or_else(absent)
    }

    /// Of each machine that waits for the one in its place, says if the cloud cannot create that one.
    fn name_refused_replacements(&self, items: &mut [Machine], runs: &[SharedRun]) {
        let waits = |it: &Machine| it.phase == MachinePhase::ReplacementWait;
        if !items.iter().any(waits) {
            return;
        }
        let names = names(runs);
        let now = self.now();
        let rollouts = runs.iter().filter(|run| run.id.workflow() == ROLLOUT);
        let rollouts = rollouts.filter_map(|run| views::rollout(run, &names, &self.live, now));
        let slots: Vec<Slot> = rollouts.flat_map(|it| it.slots).collect();
        let open = runs.iter().filter(|run| run.closed.is_none());
        let all: Vec<Machine> = open
            .filter_map(|run| views::machine(run, &self.live, now))
            .collect();
        views::name_refused_replacements(items, &slots, &all);
    }

    pub(super) async fn found(&self, run: &RunId) -> Result<SharedRun, ApiError> {
        let found = self.run_cache.one(run).await?;
        found.ok_or_else(|| ApiError::absent("run", run.as_str(), "dormer get runs"))
    }

    pub(super) async fn found_rollout(&self, pool: &str) -> Result<SharedRun, ApiError> {
        let absent = || ApiError::absent("rollout", pool, "dormer get rollouts");
        let run = rollout_run(pool).map_err(|_| absent())?;
        self.run_cache.one(&run).await?.ok_or_else(absent)
    }
}

/// Run id from a path.
pub(super) fn run_id(workflow: &str, key: &str) -> Result<RunId, ApiError> {
    RunId::new(workflow, key)
        .map_err(|error| ApiError::bad(error.to_string(), "name a run as WORKFLOW/KEY"))
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct ListFilter {
    /// Includes runs that have ended.
    #[serde(default)]
    all: bool,
}

pub(crate) async fn machines(
    Of(api): ApiState,
    Query(which): Query<ListFilter>,
) -> Answer<Machines> {
    let runs = api.run_cache.all().await?;
    api.learn_usual(&runs).await;
    let now = api.now();
    let listed = runs.iter().filter(|run| which.all || run.closed.is_none());
    let mut items: Vec<Machine> = listed
        .filter_map(|run| views::machine(run, &api.live, now))
        .collect();
    if which.all {
        let names = names(&runs);
        items
            .iter_mut()
            .for_each(|it| views::name_reason(it, &names));
    }
    api.name_refused_replacements(&mut items, &runs);
    let lacks = prerequisites::all(&runs, &api.live);
    Ok(Json(Machines { items, lacks }))
}

/// Answers one machine, by its UID, its name, or `namespace/name`.
///
/// # Errors
/// No machine has this name, several have it, or the store does not answer.
pub async fn machine(Of(api): ApiState, Path(called): Path<String>) -> Answer<Machine> {
    let run = api.run_cache.machine(&called).await?;
    if api.usual_is_due(&run) {
        api.learn_usual(&api.run_cache.all().await?).await;
    }
    let Json(mut shown) = api.shown_machine(&run)?;
    if run.closed.is_some() {
        views::name_reason(&mut shown, &names(&api.run_cache.all().await?));
    }
    if shown.phase == MachinePhase::ReplacementWait {
        let runs = api.run_cache.all().await?;
        api.name_refused_replacements(std::slice::from_mut(&mut shown), &runs);
    }
    Ok(Json(shown))
}

pub(super) async fn runs(Of(api): ApiState) -> Answer<List<Run>> {
    let runs = api.run_cache.all().await?;
    let now = api.now();
    items(
        runs.iter()
            .map(|run| views::run(run, &api.live, now))
            .collect(),
    )
}

pub(super) async fn run(
    Of(api): ApiState,
    Path((workflow, key)): Path<(String, String)>,
) -> Answer<Run> {
    let run = api.found(&run_id(&workflow, &key)?).await?;
    Ok(Json(views::run(&run, &api.live, api.now())))
}

/// All rollouts, with the usual duration of their turns.
///
/// # Errors
/// The store does not answer.
pub async fn rollouts(Of(api): ApiState) -> Answer<List<Rollout>> {
    let runs = api.run_cache.all().await?;
    let now = api.now();
    let names = names(&runs);
    let mut shown = Vec::new();
    for run in runs.iter() {
        if let Some(mut rollout) = views::rollout(run, &names, &api.live, now) {
            api.note_typical_turn(&run.id, &mut rollout).await;
            shown.push(rollout);
        }
    }
    items(shown)
}

/// Rollout of a pool, with the usual duration of its turns.
///
/// # Errors
/// The pool has no rollout, or the store does not answer.
pub async fn rollout(Of(api): ApiState, Path(pool): Path<String>) -> Answer<Rollout> {
    let run = api.found_rollout(&pool).await?;
    let Json(mut shown) = api.shown_rollout(&run).await?;
    api.note_typical_turn(&run.id, &mut shown).await;
    Ok(Json(shown))
}

pub(super) async fn pools(Of(api): ApiState) -> Answer<List<Pool>> {
    let runs = api.run_cache.all().await?;
    let rollouts = runs.iter().filter(|run| run.id.workflow() == ROLLOUT);
    items(rollouts.filter_map(|run| views::pool(run)).collect())
}

pub(super) async fn pool(Of(api): ApiState, Path(pool): Path<String>) -> Answer<Pool> {
    let absent = || ApiError::absent("pool", &pool, "dormer get pools");
    let run = rollout_run(&pool).map_err(|_| absent())?;
    let found = api.run_cache.one(&run).await?;
    let shown = found.and_then(|run| views::pool(&run));
    shown.map(Json).ok_or_else(absent)
}

pub(super) async fn tasks(Of(api): ApiState) -> Answer<List<Task>> {
    let runs = api.run_cache.all().await?;
    let now = api.now();
    items(
        runs.iter()
            .flat_map(|run| views::tasks(run, &api.live, now))
            .collect(),
    )
}

pub(super) async fn findings(Of(api): ApiState) -> Answer<List<Finding>> {
    items(api.all_findings().await?)
}

/// Answers every dead letter, oldest first.
///
/// # Errors
/// The store does not answer.
pub async fn dead(Of(api): ApiState) -> Answer<List<DeadLetter>> {
    items(dead_letters::all(api.ports.as_ref()).await?)
}

pub(super) async fn dead_letter(Of(api): ApiState, Path(id): Path<u64>) -> Answer<DeadLetter> {
    dead_letters::one(api.ports.as_ref(), id).await.map(Json)
}

/// Records of a run that are asked for.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct HistoryRange {
    /// First record.
    from: Option<u64>,
    /// Number of records.
    limit: Option<usize>,
    /// Adds each record's stored envelope in base64, and the store's identity: what an export needs.
    #[serde(default)]
    envelopes: bool,
}

impl HistoryRange {
    /// `limit` records from `from` on.
    pub(crate) fn new(from: u64, limit: usize) -> Self {
        Self {
            from: Some(from),
            limit: Some(limit),
            envelopes: false,
        }
    }
}

pub(crate) async fn machine_history(
    Of(api): ApiState,
    Path(called): Path<String>,
    Query(part): Query<HistoryRange>,
) -> Answer<History> {
    let run = api.run_cache.machine(&called).await?;
    history(&api, &run.id, &part).await
}

pub(crate) async fn rollout_history(
    Of(api): ApiState,
    Path(pool): Path<String>,
    Query(part): Query<HistoryRange>,
) -> Answer<History> {
    let run = api.found_rollout(&pool).await?;
    history(&api, &run.id, &part).await
}

pub(super) async fn run_history(
    Of(api): ApiState,
    Path((workflow, key)): Path<(String, String)>,
    Query(part): Query<HistoryRange>,
) -> Answer<History> {
    let run = api.found(&run_id(&workflow, &key)?).await?;
    history(&api, &run.id, &part).await
}

async fn history(api: &Api, run: &RunId, part: &HistoryRange) -> Answer<History> {
    let from = part.from.unwrap_or(1).max(1);
    let limit = part.limit.unwrap_or(RECORDS).clamp(1, RECORDS_MAX);
    // The record before the range names the tasks that the range finishes. One record after it tells whether more
    // follow.
    let stored = api.ports.records(run, Seq(from - 1), limit + 2).await?;
    let names = names(&api.run_cache.all().await?);
    let mut story = Story::new((*names).clone());
    let mut items = Vec::new();
    let mut next = None;
    for bytes in stored {
        let (record, _) = envelope::decode::<Record<Dormer>>(&bytes, SCHEMA)?;
        let seq = record.run.seq.0;
        if seq < from {
            story.learn(&record);
        } else if items.len() < limit {
            let mut record = story.render(&record);
            record.envelope = part.envelopes.then(|| STANDARD.encode(&bytes));
            items.push(record);
        } else {
            next = next.or(Some(seq));
        }
    }
    let source = part.envelopes;
    Ok(Json(History {
        run: run.as_str().to_owned(),
        items,
        next,
        schema: source.then(|| SCHEMA.into()),
        incarnation: source.then(|| api.ports.incarnation().to_string()),
        build: source.then(|| env!("CARGO_PKG_VERSION").to_owned()),
    }))
}

/// A run as a tree of episodes, phases, tasks and attempts.
pub(super) async fn run_timeline(
    Of(api): Of<Arc<Api>>,
    Path((workflow, key)): Path<(String, String)>,
) -> Answer<Timeline> {
    let run = api.found(&run_id(&workflow, &key)?).await?.id.clone();
    api.timeline_of(&run).await.map(Json)
}
