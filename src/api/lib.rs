//! HTTP API under `/api/v1`: views of runs, and actions on them, as JSON.

pub mod access;
mod ask;
mod changes;
mod command_flags;
mod commands;
mod dead_letters;
mod durations;
mod error;
mod findings;
mod lacked_rights;
pub mod live;
pub mod openapi;
pub mod pages;
pub mod plan;
mod planned;
pub mod prerequisites;
pub mod projection;
pub mod quarantine;
pub mod reads;
pub mod replay;
mod run_cache;
mod store;
mod story;
mod timeline;
pub mod turns;
mod usual;
pub mod views;
mod writes;

pub use changes::run_publisher;
pub use command_flags::CommandFlags;
pub use error::ApiError;
pub use findings::Survey;
pub use run_cache::SharedRun;

use crate::{live::Live, plan::PlanRenderer, store::Store};
use axum::{
    Router, middleware,
    routing::{get, post},
};
use dormer_engine::port::Ports;
use dormer_proto::id::Timestamp;
use dormer_telemetry::metrics::{SnapshotSource, fleet::FleetMetrics};
use futures::future::BoxFuture;
use run_cache::RunCache;
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::Semaphore;

/// Most dead letters that a scrape counts.
const DEAD_COUNTED_MAX: usize = 1_000;
/// Most plans at once. One more is refused at once, because a queue would hold their bodies in memory.
const PLANS_MAX: usize = 4;

/// State behind the API.
pub struct Api {
    ports: Arc<dyn Store>,
    live: Arc<Live>,
    run_cache: RunCache,
    changes: changes::Changes,
    /// Renderer of plans, if this process knows payloads and the cluster.
    renderer: Option<Arc<PlanRenderer>>,
    /// Slots of plans: each renders every machine of a pool.
    planning: Semaphore,
    /// Usual durations of turns with the lease.
    estimates: turns::Estimates,
    /// What the last survey of the cluster found.
    findings: findings::Findings,
    /// Flags of suggested commands, if people need some.
    command_flags: OnceLock<CommandFlags>,
}

impl Api {
    /// API over a store, with the heartbeats that this process receives. With a `renderer` it also answers plans.
    pub fn over<P: Ports>(
        ports: Arc<P>,
        live: Arc<Live>,
        renderer: Option<Arc<PlanRenderer>>,
    ) -> Arc<Self> {
        let ports: Arc<dyn Store> = ports;
        let run_cache = RunCache::new(Arc::clone(&ports), Arc::clone(&live));
        Arc::new(Self {
            run_cache,
            ports,
            live,
            changes: changes::Changes::default(),
            renderer,
            planning: Semaphore::new(PLANS_MAX),
            estimates: turns::Estimates::default(),
            findings: findings::Findings::default(),
            command_flags: OnceLock::new(),
        })
    }
}

/// Input of the metrics.
impl Api {
    /// Every run, the number of dead letters (counted up to `DEAD_COUNTED_MAX`), and the engine's present time.
    pub async fn snapshot(&self) -> Result<(Vec<SharedRun>, usize, Timestamp), ApiError> {
        let runs = self.run_cache.all().await?;
        self.learn_usual(&runs).await;
        let dead = self.ports.dead_letters(0, DEAD_COUNTED_MAX).await?.len();
        Ok((runs, dead, self.now()))
    }

    /// Heartbeats that this process receives.
    pub fn live(&self) -> &Live {
        &self.live
    }
}

impl SnapshotSource for Api {
    fn set_gauges<'a>(&'a self, to: &'a FleetMetrics) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            let (runs, dead, now) = self.snapshot().await?;
            to.set_gauges(
                &runs,
                &|task, attempt| self.live.is_alive(task, attempt),
                now,
                dead,
            );
            self.run_cache.read_notes(Duration::ZERO).await?;
            let notes = self.live.noted();
            to.set_quarantined(notes.iter().map(|note| note.code.as_str()));
            Ok(())
        })
    }
}

/// Router of every endpoint. [`access::around`] adds authorization.
pub fn router(api: Arc<Api>) -> Router {
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
        .route("/findings", get(reads::findings))
        .route("/dead-letters", get(reads::dead))
        .route("/dead-letters/{id}", get(reads::dead_letter))
        .route("/dead-letters/{id}/requeue", post(writes::requeue))
        .route("/quarantine", get(quarantine::all))
        .route(
            "/runs/{workflow}/{key}/unquarantine",
            post(quarantine::unquarantine),
        )
        .route("/openapi.json", get(openapi::openapi))
        .fallback(nowhere);
    let v1 = v1.layer(middleware::map_response_with_state(
        Arc::clone(&api),
        command_flags::named,
    ));
    Router::new().nest("/api/v1", v1).with_state(api)
}

async fn nowhere(uri: axum::http::Uri) -> ApiError {
    ApiError::absent("endpoint", uri.path(), "dormer help")
}
