//! The two builds of the toy workflow, and a shard of either.

use crate::{older_build::Elder, ports::Sim, toy::Toy};
use dormer_engine::{
    engine::{revisit_page, shard_of},
    port::{Delivery, StoreError},
    quarantine::KnownNotes,
    shard::{DecodedDelivery, Shard},
};
use dormer_engine_core::Workflow;
use dormer_proto::id::RunId;
use std::{future::Future, pin::Pin, sync::Arc};

/// Which build an engine is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    Older,
    Newer,
}

/// A shard at work, until it answers.
pub(crate) type ShardTurn = Pin<Box<dyn Future<Output = (SimShard, Result<(), StoreError>)>>>;
pub(crate) type SimShard = Box<dyn Works>;

/// A shard, of whatever build.
pub(crate) trait Works {
    /// Processes what was sorted to it.
    fn turn_deliveries(self: Box<Self>, batch: Vec<Delivery>) -> ShardTurn;
    /// Carries out everything outstanding.
    fn revisit(self: Box<Self>, runs: Vec<RunId>) -> ShardTurn;
}

impl<W: Workflow> Works for Shard<W, Sim> {
    fn turn_deliveries(mut self: Box<Self>, batch: Vec<Delivery>) -> ShardTurn {
        Box::pin(async move {
            let result = self.turn(batch).await;
            (self as SimShard, result)
        })
    }

    fn revisit(mut self: Box<Self>, runs: Vec<RunId>) -> ShardTurn {
        Box::pin(async move {
            let result = Shard::revisit(&mut self, runs).await;
            (self as SimShard, result)
        })
    }
}

impl Build {
    /// The name that it writes into its records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Older => "older",
            Self::Newer => "newer",
        }
    }

    /// The build that an engine has after an upgrade, or after a roll-back.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Older => Self::Newer,
            Self::Newer => Self::Older,
        }
    }

    /// The pass of an engine of this build over all runs, after which everything outstanding was carried out again.
    pub(crate) fn pass(self, sim: &Sim) -> Pin<Box<dyn Future<Output = ()>>> {
        let sim = Arc::new(sim.clone());
        match self {
            Self::Older => Box::pin(pass::<Elder>(sim)),
            Self::Newer => Box::pin(pass::<Toy>(sim)),
        }
    }

    /// Begins a shard of this build that keeps so many runs in memory.
    pub(crate) fn begin(self, sim: &Sim, cached_max: usize) -> ShardTurn {
        let ports = Arc::new(sim.clone());
        match self {
            Self::Older => begin::<Elder>(ports, self.name(), cached_max),
            Self::Newer => begin::<Toy>(ports, self.name(), cached_max),
        }
    }

    /// Which of so many shards this build sorts a message to.
    pub(crate) fn shard_of(self, delivery: Delivery, shards: usize) -> usize {
        match self {
            Self::Older => shard_of(DecodedDelivery::<Elder>::decode(delivery).run(), shards),
            Self::Newer => shard_of(DecodedDelivery::<Toy>::decode(delivery).run(), shards),
        }
    }
}

/// A shard, once its engine has read the notes, or got no answer.
fn begin<W: Workflow>(sim: Arc<Sim>, build: &'static str, cached_max: usize) -> ShardTurn {
    Box::pin(async move {
        let known = Arc::new(KnownNotes::default());
        drop(known.refresh(sim.as_ref()).await);
        let shard = Shard::<W, Sim>::new(sim, build, cached_max).with_quarantine_notes(known);
        (Box::new(shard) as SimShard, Ok(()))
    })
}

async fn pass<W: Workflow>(sim: Arc<Sim>) {
    let mut shard = Shard::<W, Sim>::new(Arc::clone(&sim), "pass", 1);
    let mut after = None;
    while let Ok(Some(page)) = revisit_page(&mut shard, sim.as_ref(), after.as_ref(), 3).await {
        after = Some(page.last);
    }
}
