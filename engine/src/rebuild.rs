//! Rebuild of lost queues from the histories.

use crate::{
    any::AnyPorts,
    engine::{Pass, revisit_all},
    nats::NatsStore,
    port::StoreError,
};
use dormer_engine_core::Workflow;
use std::{sync::Arc, time::Duration};

/// Runs per second whose outstanding work is carried out again after a loss.
pub const REVISITS_PER_S: usize = 500;

/// Carries out the outstanding work of every run after each loss of a rebuildable stream. It runs beside the engine.
///
/// # Errors
/// [`StoreError::Broken`]. An unavailable store is tried again.
pub async fn run_rebuild<W: Workflow>(store: Arc<NatsStore>) -> Result<(), StoreError> {
    let mut losses = store.losses();
    let mut done = 0;
    loop {
        let Ok(count) = losses
            .wait_for(|count| *count > done)
            .await
            .map(|count| *count)
        else {
            return Ok(());
        };
        match rebuild::<W>(&store).await {
            Ok(pass) => {
                tracing::info!(
                    runs = pass.runs,
                    "what was outstanding has been carried out again"
                );
                done = count;
            }
            Err(StoreError::Unavailable(why)) => {
                tracing::warn!(why, "cannot rebuild the queues yet");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(broken) => return Err(broken),
        }
    }
}

/// Carries out the outstanding work of every run, and then notes that the queues are whole. A process that ends before
/// leaves no note, so the next one begins again. Neither does one that left runs to a newer build: an engine of that build
/// does the pass, and leaves the note.
///
/// # Errors
/// Errors of the store.
pub async fn rebuild<W: Workflow>(store: &Arc<NatsStore>) -> Result<Pass, StoreError> {
    // Read first: a queue that is lost from now on is not the one that is noted.
    let markers = store.markers().await?;
    let ports = Arc::new(AnyPorts::nats(Arc::clone(store)));
    let pass = revisit_all::<W, _>(ports, REVISITS_PER_S).await?;
    if pass.newer > 0 {
        return Ok(pass);
    }
    // Without the note the next start does the pass again, which is safe. Here it is not repeated for the note alone.
    if let Err(error) = store.note_whole(&markers).await {
        tracing::warn!(%error, "the next start rebuilds the queues again");
    }
    Ok(pass)
}
