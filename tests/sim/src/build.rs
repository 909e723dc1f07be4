//! The two builds of the toy workflow, and a lane of either.

use crate::{elder::Elder, ports::Sim, toy::Toy};
use dormer_engine::{
    engine::{lane_of, revisit_page},
    lane::{Arrived, Lane},
    port::{Delivery, StoreError},
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

/// A lane at work, until it answers.
pub(crate) type Turn = Pin<Box<dyn Future<Output = (SimLane, Result<(), StoreError>)>>>;
pub(crate) type SimLane = Box<dyn Works>;

/// A lane, of whatever build.
pub(crate) trait Works {
    /// Works off what was sorted to it.
    fn work_off(self: Box<Self>, batch: Vec<Delivery>) -> Turn;
    /// Carries out everything outstanding.
    fn revisit(self: Box<Self>, runs: Vec<RunId>) -> Turn;
}

impl<W: Workflow> Works for Lane<W, Sim> {
    fn work_off(mut self: Box<Self>, batch: Vec<Delivery>) -> Turn {
        Box::pin(async move {
            let result = self.turn(batch).await;
            (self as SimLane, result)
        })
    }

    fn revisit(mut self: Box<Self>, runs: Vec<RunId>) -> Turn {
        Box::pin(async move {
            let result = Lane::revisit(&mut self, runs).await;
            (self as SimLane, result)
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

    /// A lane of this build that keeps so many runs in memory.
    pub(crate) fn lane(self, sim: &Sim, cached_max: usize) -> SimLane {
        let ports = Arc::new(sim.clone());
        match self {
            Self::Older => Box::new(Lane::<Elder, Sim>::new(ports, self.name(), cached_max)),
            Self::Newer => Box::new(Lane::<Toy, Sim>::new(ports, self.name(), cached_max)),
        }
    }

    /// Which of so many lanes this build sorts a letter to.
    pub(crate) fn lane_of(self, delivery: Delivery, lanes: usize) -> usize {
        match self {
            Self::Older => lane_of(Arrived::<Elder>::open(delivery).run(), lanes),
            Self::Newer => lane_of(Arrived::<Toy>::open(delivery).run(), lanes),
        }
    }
}

async fn pass<W: Workflow>(sim: Arc<Sim>) {
    let mut lane = Lane::<W, Sim>::new(Arc::clone(&sim), "pass", 1);
    let mut after = None;
    while let Ok(Some(page)) = revisit_page(&mut lane, sim.as_ref(), after.as_ref(), 3).await {
        after = Some(page.last);
    }
}
