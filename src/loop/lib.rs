//! Two calls that instantiate the generic engine for dormer's workflows.
//!
//! A package of its own, so that only this code is compiled with full optimisation; the loop itself is
//! `engine/src/shard.rs`.

use dormer_engine::{
    any::AnyPorts, engine, nats::NatsStore, port::StoreError, rebuild, shard::Counters,
};
use dormer_telemetry::Telemetry;
use dormer_workflows::Dormer;
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::watch;

/// Runs an engine until `stop`. `telemetry` observes it.
#[must_use]
pub fn run(
    ports: AnyPorts,
    options: engine::Options,
    telemetry: Arc<Telemetry>,
    stop: watch::Receiver<bool>,
) -> BoxFuture<'static, Result<Counters, StoreError>> {
    let ports = Arc::new(ports);
    Box::pin(engine::run_observed::<Dormer, _, _>(
        ports, options, telemetry, stop,
    ))
}

#[must_use]
pub fn run_rebuild(store: Arc<NatsStore>) -> BoxFuture<'static, Result<(), StoreError>> {
    Box::pin(rebuild::run_rebuild::<Dormer>(store))
}
