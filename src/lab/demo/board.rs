//! What the demonstration sees of dormer: every machine's run, read from the store as anybody could.

use dormer_engine::port::{History, HistoryReader, Ports};
use dormer_engine_core::Record;
use dormer_proto::{
    envelope,
    id::{Revision, RunId},
    work::MACHINE,
};
use dormer_workflows::{Dormer, State, machine};
use std::{collections::BTreeMap, sync::Arc};

/// Runs read in one step.
const PAGE: usize = 1_000;

/// One machine's run.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) run: RunId,
    pub(crate) view: machine::View,
    /// Whether it has served.
    pub(crate) served: bool,
    /// Whether the run is over.
    pub(crate) closed: bool,
}

/// Every machine's run, as last read.
pub(crate) struct Board<P> {
    ports: Arc<P>,
    runs: BTreeMap<RunId, (Revision, Seen)>,
}

impl<P: Ports> Board<P> {
    pub(crate) fn new(ports: Arc<P>) -> Self {
        Self {
            ports,
            runs: BTreeMap::new(),
        }
    }

    /// Reads what has changed since the last look.
    pub(crate) async fn look(&mut self) -> anyhow::Result<()> {
        let mut after: Option<RunId> = None;
        loop {
            let heads = self.ports.reader().heads(after.as_ref(), PAGE).await?;
            let Some(last) = heads.last() else {
                return Ok(());
            };
            after = Some(last.run.clone());
            let known = |run: &RunId| self.runs.get(run).map(|(revision, _)| *revision);
            let changed: Vec<RunId> = heads
                .iter()
                .filter(|head| head.run.workflow() == MACHINE)
                .filter(|head| known(&head.run) != Some(head.revision))
                .map(|head| head.run.clone())
                .collect();
            self.read(&changed).await?;
        }
    }

    async fn read(&mut self, runs: &[RunId]) -> anyhow::Result<()> {
        let stored = self.ports.history().load(runs).await?;
        for stored in stored.into_iter().flatten() {
            let (record, _) = envelope::decode::<Record<Dormer>>(&stored.bytes, u16::MAX)?;
            let run = record.run;
            if let State::Machine(state) = &run.state {
                let seen = Seen {
                    run: run.id.clone(),
                    view: state.view(),
                    served: state.served,
                    closed: run.closed.is_some(),
                };
                self.runs.insert(run.id, (stored.revision, seen));
            }
        }
        Ok(())
    }

    /// The machines whose runs go on.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Seen> {
        let all = self.runs.values().map(|(_, seen)| seen);
        all.filter(|seen| !seen.closed && !matches!(seen.view.state, "Recreated" | "Gone"))
    }

    /// Every machine there ever was.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Seen> {
        self.runs.values().map(|(_, seen)| seen)
    }

    /// How many are in each state.
    pub(crate) fn states(&self) -> BTreeMap<&'static str, usize> {
        let mut states = BTreeMap::new();
        for seen in self.live() {
            *states.entry(seen.view.state).or_default() += 1;
        }
        states
    }

    /// Machines that serve with this version, and are not on their way anywhere.
    pub(crate) fn serving(&self, version: &str) -> usize {
        self.live().filter(|seen| serves(seen, version)).count()
    }
}

/// Whether a machine serves with this version.
pub(crate) fn serves(seen: &Seen, version: &str) -> bool {
    seen.view.phase == "serving" && seen.view.version.as_deref() == Some(version)
}
