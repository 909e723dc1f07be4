//! Load of `dormer bench`: its workflow, its worker, and the engine that both measure.
//!
//! A package of its own, so that what is measured is compiled for speed, like `dormer_loop` and unlike the rest of
//! the bench.

mod load;
mod worker_queue;
pub mod workflow;

pub use load::{Flood, Gatherer, Load, Partitions, WatchedRuns};
pub use worker_queue::WorkerQueue;

use dormer_engine::{any::AnyPorts, engine, port::StoreError, shard::Counters};
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::watch;
use workflow::Bench;

/// Runs an engine for the bench's workflow until `stop`.
#[must_use]
pub fn engine(
    ports: AnyPorts,
    options: engine::Options,
    stop: watch::Receiver<bool>,
) -> BoxFuture<'static, Result<Counters, StoreError>> {
    Box::pin(engine::run::<Bench, _>(Arc::new(ports), options, stop))
}
