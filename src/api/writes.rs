//! Endpoints of actions.

use super::{
    Api, ApiError,
    ask::{self, Body},
    dead_letters,
    reads::run_id,
};
use axum::{
    Json,
    extract::{Path, State as Of},
};
use dormer_proto::{message::Ask, rollout, work::Signal};
use dormer_views::{any_run::AnyRun, machine::Machine, rollout::Rollout};
use dormer_workflows::State;
use serde_json::Value;
use std::sync::Arc;

type Answer<T> = Result<Json<T>, ApiError>;

pub(super) async fn machine(
    Of(api): Of<Arc<Api>>,
    Path((called, action)): Path<(String, String)>,
    body: Body,
) -> Answer<Machine> {
    let wish = ask::asked_of_machine(&action, &body)?;
    let run = api.run_cache.machine(&called).await?;
    let run = ask::ask(
        api.ports.as_ref(),
        &api.run_cache,
        run,
        Ask::Signal(wish),
        body,
    )
    .await?;
    api.shown_machine(&run)
}

pub(super) async fn rollout(
    Of(api): Of<Arc<Api>>,
    Path((pool, action)): Path<(String, String)>,
    body: Body,
) -> Answer<Rollout> {
    let wish = ask::of_rollout(&action)
        .ok_or_else(|| ApiError::absent("action on rollouts", &action, "dormer help"))?;
    let run = api.found_rollout(&pool).await?;
    let run = ask::ask(
        api.ports.as_ref(),
        &api.run_cache,
        run,
        Ask::Signal(wish),
        body,
    )
    .await?;
    api.shown_rollout(&run).await
}

/// Rollback: its payload replaces the one in the pool's spec.
pub(super) async fn rollback(
    Of(api): Of<Arc<Api>>,
    Path(pool): Path<String>,
    body: Body,
) -> Answer<Rollout> {
    let to = body.payload()?;
    let run = api.found_rollout(&pool).await?;
    if let State::Rollout(state) = &run.state {
        // The rollout would refuse it as well. Checked here because a person waits for the answer.
        let wanted = state.payload.clone().unwrap_or_default();
        wanted.goes_back_to(&to).map_err(|why| {
            ApiError::conflict(
                why,
                "dormer payload list shows which payload may follow which",
            )
        })?;
    }
    let wish = Signal::Rollout(rollout::Signal::Rollback { to });
    let run = ask::ask(
        api.ports.as_ref(),
        &api.run_cache,
        run,
        Ask::Signal(wish),
        body,
    )
    .await?;
    api.shown_rollout(&run).await
}

pub(super) async fn reset(
    Of(api): Of<Arc<Api>>,
    Path((workflow, key)): Path<(String, String)>,
    body: Body,
) -> Answer<AnyRun> {
    let to = body.reset().ok_or_else(|| {
        ApiError::bad(
            "`to` is missing",
            "name the record to go back to; dormer history lists them",
        )
    })?;
    let run = api.found(&run_id(&workflow, &key)?).await?;
    // The engine would drop the request. Checked here because a person waits for the answer.
    if api.ports.records(&run.id, to, 1).await?.is_empty() || to > run.seq {
        let error = format!("record {to} of {} is no longer stored", run.id);
        return Err(ApiError::bad(
            error,
            "dormer history lists the stored records",
        ));
    }
    let run = ask::ask(
        api.ports.as_ref(),
        &api.run_cache,
        run,
        Ask::Reset { to },
        body,
    )
    .await?;
    Ok(Json(api.shown(&run).await?))
}

pub(super) async fn requeue(Of(api): Of<Arc<Api>>, Path(id): Path<u64>, _: Body) -> Answer<Value> {
    dead_letters::requeue(api.ports.as_ref(), id)
        .await
        .map(Json)
}
