//! `GET /metrics`: what this process did and, where it reads the store, how everything stands. No machine is named.

mod book;
mod certificates;
pub(crate) mod deeds;
#[cfg(test)]
mod generated;
mod page;
pub mod standing;

pub use certificates::Certificates;

use crate::{
    Telemetry,
    health::{Health, Standing as RoleStanding},
};
use axum::{
    Router, extract::State, http::header::CONTENT_TYPE, response::IntoResponse, routing::get,
};
use book::{Book, Level};
use deeds::{EngineDeeds, SpanDeeds, WorkerDeeds};
use dormer_workers::watcher::Status;
use futures::future::BoxFuture;
use opentelemetry_sdk::Resource;
use prometheus_client::registry::Unit;
use standing::Standing;
use std::{sync::Arc, time::Duration};

/// What a scraper is told that the page is.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// A scrape does not wait longer for the store: without it the page says what this process did itself.
const STANDING_WITHIN: Duration = Duration::from_secs(5);

/// Every metric of this process.
pub struct Metrics {
    pub(crate) book: Book,
    pub(crate) engine: EngineDeeds,
    pub(crate) worker: WorkerDeeds,
    pub(crate) spans: Arc<SpanDeeds>,
    standing: Standing,
    watcher: Watcher,
    role_up: Level<1>,
    /// The certificates that this process uses.
    pub certificates: Certificates,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(Resource::builder_empty().build())
    }
}

impl Metrics {
    /// The metrics of the process that `resource` names.
    pub(crate) fn new(resource: Resource) -> Self {
        let mut book = Book::new(resource);
        let engine = EngineDeeds::new(&mut book);
        let worker = WorkerDeeds::new(&mut book);
        let watcher = Watcher::new(&mut book);
        let standing = Standing::new(&mut book);
        book.role("every");
        let spans = Arc::new(SpanDeeds::new(&mut book));
        let role_up = book.level(
            "role_up",
            ["role"],
            None,
            "Whether a role of this process works: 1 or 0",
        );
        let certificates = Certificates::new(&mut book);
        let build = book.level("build_info", ["version"], None, "The build; always 1");
        build.set([env!("CARGO_PKG_VERSION").into()], 1.0);
        let help = "When this process began, in seconds since 1970";
        let started = book.level("start_time", [], Some(Unit::Seconds), help);
        started.set([], jiff::Timestamp::now().as_millisecond() as f64 / 1_000.0);
        Self {
            book,
            engine,
            worker,
            spans,
            standing,
            watcher,
            role_up,
            certificates,
        }
    }

    /// What a scrape is answered, without how everything stands.
    pub fn page(&self) -> String {
        self.book.page()
    }

    /// The book: names, kinds, labels, roles.
    #[cfg(test)]
    pub(crate) fn book(&self) -> &Book {
        &self.book
    }
}

/// Where a scrape learns how everything stands.
pub trait Source: Send + Sync + 'static {
    /// Tells `to` how everything stands.
    ///
    /// # Errors
    /// The store does not answer.
    fn tell<'a>(&'a self, to: &'a Standing) -> BoxFuture<'a, anyhow::Result<()>>;
}

/// How this process's watcher fares.
struct Watcher {
    elected: Level<0>,
    listed: Level<0>,
    machines: Level<0>,
    foreign_csrs: Level<0>,
    unreadable: Level<0>,
    pool_refused: Level<0>,
}

impl Watcher {
    fn new(book: &mut Book) -> Self {
        book.role("watcher");
        let mut level = |name, unit, help| book.level(name, [], unit, help);
        Self {
            elected: level(
                "watcher_elected",
                None,
                "Whether this watcher publishes: 1 or 0",
            ),
            listed: level(
                "watcher_last_list_timestamp",
                Some(Unit::Seconds),
                "When the last full list was published, in seconds since 1970; 0: never",
            ),
            machines: level(
                "watcher_machines",
                None,
                "Windows Machines that the watcher sees",
            ),
            foreign_csrs: level(
                "watcher_foreign_csrs",
                None,
                "Pending CSRs of kubelets that are none of our machines'",
            ),
            unreadable: level(
                "watcher_unreadable_objects",
                None,
                "Readings of objects that could not be understood, since the start",
            ),
            pool_refused: level(
                "watcher_pool_refused",
                None,
                "Whether the pool's ConfigMap asks for what cannot be: 1 or 0",
            ),
        }
    }

    fn tell(&self, status: &Status) {
        let flag = |flag: bool| f64::from(u8::from(flag));
        self.elected.set([], flag(status.elected));
        let listed = status
            .listed
            .map_or(0.0, |at| at.as_millisecond() as f64 / 1_000.0);
        self.listed.set([], listed);
        self.machines.set([], status.machines as f64);
        self.foreign_csrs.set([], status.foreign_csrs as f64);
        self.unreadable.set([], status.unreadable as f64);
        self.pool_refused
            .set([], flag(status.pool_refused.is_some()));
    }
}

/// `GET /metrics`.
pub fn router(telemetry: Arc<Telemetry>, health: Arc<Health>) -> Router {
    Router::new()
        .route("/metrics", get(answer))
        .with_state((telemetry, health))
}

async fn answer(
    State((telemetry, health)): State<(Arc<Telemetry>, Arc<Health>)>,
) -> impl IntoResponse {
    refresh(&telemetry, &health).await;
    let page = telemetry.metrics().book.page();
    ([(CONTENT_TYPE, OPEN_METRICS)], page)
}

/// Sets every gauge that is read when somebody asks.
pub(crate) async fn refresh(telemetry: &Telemetry, health: &Health) {
    let metrics = telemetry.metrics();
    metrics.role_up.clear();
    for (role, standing) in health.all() {
        let works = matches!(standing, RoleStanding::Up | RoleStanding::Hindered(_));
        metrics
            .role_up
            .set([role.into()], f64::from(u8::from(works)));
    }
    if let Some(status) = telemetry.watcher() {
        metrics.watcher.tell(&status);
    }
    if let Some(source) = telemetry.source() {
        let told = tokio::time::timeout(STANDING_WITHIN, source.tell(&metrics.standing)).await;
        if !matches!(told, Ok(Ok(()))) {
            metrics.standing.clear();
        }
    }
}
