//! Quarantined runs: their list, and their release.

use super::{Api, ApiError, ask::Body, reads::run_id, run_cache::SharedRun, views};
use axum::{
    Json,
    extract::{Path, State as Of},
};
use dormer_proto::id::RunId;
use dormer_views::run::{List, QuarantinedRun};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Answers every quarantined run, ordered by id.
///
/// # Errors
/// The store does not answer.
pub async fn all(Of(api): Of<Arc<Api>>) -> Result<Json<List<QuarantinedRun>>, ApiError> {
    let runs: Vec<SharedRun> = api.run_cache.all().await?;
    api.run_cache.read_notes(Duration::ZERO).await?;
    let named = |id: &RunId| {
        let at = runs.binary_search_by(|run| run.id.cmp(id)).ok()?;
        Some(views::called(&runs[at]))
    };
    let notes = api.live.noted().into_iter();
    let items = notes.map(|note| QuarantinedRun {
        run: note.run.as_str().to_owned(),
        name: named(&note.run),
        quarantine: views::quarantine(note),
    });
    let items = items.collect();
    Ok(Json(List { items }))
}

/// Releases a run. Engines then try it again.
pub(super) async fn unquarantine(
    Of(api): Of<Arc<Api>>,
    Path((workflow, key)): Path<(String, String)>,
    _: Body,
) -> Result<Json<Value>, ApiError> {
    let run = run_id(&workflow, &key)?;
    if !api.ports.release(&run).await? {
        let error = format!("{run} is not quarantined");
        let what_to_do = "dormer get quarantine lists the runs that are";
        return Err(ApiError::conflict(error, what_to_do));
    }
    api.run_cache.read_notes(Duration::ZERO).await?;
    Ok(Json(json!({"run": run.as_str(), "released": true})))
}
