//! The HTTP API under `/api/v1`: what dormer knows, and what people may ask of it, as JSON.

pub(crate) mod access;
mod ask;
mod changes;
mod commands;
mod dead;
mod error;
pub(crate) mod lacks;
mod openapi;
pub(crate) mod pages;
mod planned;
pub(crate) mod reads;
mod shelf;
pub(crate) mod shown;
pub(crate) mod story;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod timeline;
mod writes;

pub(crate) use changes::publish_for_ever;
pub(crate) use error::ApiError;
pub(crate) use shelf::Shown;
pub(crate) use shown::time;

use crate::{live::Live, plan::Desk};
use axum::{
    Router,
    routing::{get, post},
};
use dormer_engine::port::{DeadLetters, Ports};
use dormer_proto::id::Timestamp;
use shelf::Shelf;
use std::sync::Arc;

/// Dead letters that a scrape counts.
const DEAD_COUNTED_MAX: usize = 1_000;

/// What the API answers from.
pub(crate) struct Api<P> {
    ports: Arc<P>,
    live: Arc<Live>,
    shelf: Shelf<P>,
    changes: changes::Changes,
    /// What a node would become, where this process knows payloads and the cluster.
    desk: Option<Arc<Desk>>,
}

impl<P: Ports> Api<P> {
    /// An API over a store, with the heartbeats that this process hears.
    #[cfg(test)]
    pub(crate) fn new(ports: Arc<P>, live: Arc<Live>) -> Arc<Self> {
        Self::over(ports, live, None)
    }

    /// The same, which also says what nodes would become.
    pub(crate) fn over(ports: Arc<P>, live: Arc<Live>, desk: Option<Arc<Desk>>) -> Arc<Self> {
        let shelf = Shelf::new(Arc::clone(&ports));
        Arc::new(Self {
            shelf,
            ports,
            live,
            changes: changes::Changes::default(),
            desk,
        })
    }
}

/// What the metrics are made of.
impl<P: Ports> Api<P> {
    /// Every run, the number of dead letters (counted up to [`DEAD_COUNTED_MAX`]), and now by the engine's clock.
    pub(crate) async fn standing(&self) -> Result<(Vec<Shown>, usize, Timestamp), ApiError> {
        let runs = self.shelf.all().await?;
        let dead = self.ports.dead().list(0, DEAD_COUNTED_MAX).await?.len();
        Ok((runs, dead, self.now()))
    }

    /// The heartbeats that this process hears.
    pub(crate) fn live(&self) -> &Live {
        &self.live
    }
}

/// Every endpoint. Who may ask, [`access::around`] says.
pub(crate) fn router<P: Ports>(api: Arc<Api<P>>) -> Router {
    let v1 = Router::new()
        .route("/machines", get(reads::machines))
        .route("/machines/{machine}", get(reads::machine))
        .route("/machines/{machine}/desired", get(planned::desired))
        .route("/machines/{machine}/commands", get(commands::commands))
        .route("/machines/{machine}/history", get(reads::machine_history))
        .route(
            "/machines/{machine}/actions/{action}",
            post(writes::machine),
        )
        .route("/runs", get(reads::runs))
        .route("/runs/{workflow}/{key}", get(reads::run))
        .route("/runs/{workflow}/{key}/history", get(reads::run_history))
        .route("/runs/{workflow}/{key}/timeline", get(reads::run_timeline))
        .route("/runs/{workflow}/{key}/reset", post(writes::reset))
        .route("/rollouts", get(reads::rollouts))
        .route("/rollouts/{pool}", get(reads::rollout))
        .route("/rollouts/{pool}/history", get(reads::rollout_history))
        .route("/rollouts/{pool}/actions/rollback", post(writes::rollback))
        .route("/rollouts/{pool}/actions/{action}", post(writes::rollout))
        .route("/pools", get(reads::pools))
        .route("/pools/{pool}", get(reads::pool))
        .route(
            "/pools/{pool}/plan",
            get(planned::plan).post(planned::plan_with),
        )
        .route("/tasks", get(reads::tasks))
        .route("/changes", get(changes::changes))
        .route("/dead", get(reads::dead))
        .route("/dead/{id}", get(reads::dead_letter))
        .route("/dead/{id}/requeue", post(writes::requeue))
        .route("/openapi.json", get(openapi::openapi))
        .fallback(nowhere);
    Router::new().nest("/api/v1", v1).with_state(api)
}

async fn nowhere(uri: axum::http::Uri) -> ApiError {
    ApiError::absent("endpoint", uri.path(), "dormer help")
}
