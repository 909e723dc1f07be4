//! Runs of the demonstration: every machine's run, read from the store.

use dormer_engine::port::{History, HistoryReader, Ports};
use dormer_engine_core::Record;
use dormer_proto::{
    envelope,
    id::{Revision, RunId},
    phase::{Listed, MachinePhase, MachineState},
    work::MACHINE,
};
use dormer_workflows::{Dormer, State, machine};
use std::{collections::BTreeMap, sync::Arc};

/// Runs read at once.
const PAGE: usize = 1_000;

/// Run of one machine.
#[derive(Debug, Clone)]
pub(crate) struct MachineRun {
    pub(crate) run: RunId,
    pub(crate) view: machine::View,
    /// Whether the machine has served at any time.
    pub(crate) served: bool,
    /// Whether the run has ended.
    pub(crate) closed: bool,
}

/// Runs of all machines, as last read.
pub(crate) struct MachineRuns<P> {
    ports: Arc<P>,
    runs: BTreeMap<RunId, (Revision, MachineRun)>,
}

impl<P: Ports> MachineRuns<P> {
    pub(crate) fn new(ports: Arc<P>) -> Self {
        Self {
            ports,
            runs: BTreeMap::new(),
        }
    }

    /// Reads the runs that have changed since the last call.
    pub(crate) async fn refresh(&mut self) -> anyhow::Result<()> {
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
                let machine_run = MachineRun {
                    run: run.id.clone(),
                    view: state.view(),
                    served: state.in_service,
                    closed: run.closed.is_some(),
                };
                self.runs.insert(run.id, (stored.revision, machine_run));
            }
        }
        Ok(())
    }

    /// Machines with open runs.
    pub(crate) fn live(&self) -> impl Iterator<Item = &MachineRun> {
        let all = self.runs.values().map(|(_, machine_run)| machine_run);
        all.filter(|machine_run| {
            !machine_run.closed
                && !matches!(
                    machine_run.view.phase.state(),
                    MachineState::Recreated | MachineState::Gone
                )
        })
    }

    /// All machines, including those that are gone.
    pub(crate) fn all(&self) -> impl Iterator<Item = &MachineRun> {
        self.runs.values().map(|(_, machine_run)| machine_run)
    }

    /// Number of machines in each state.
    pub(crate) fn states(&self) -> BTreeMap<&'static str, usize> {
        let mut states = BTreeMap::new();
        for machine_run in self.live() {
            *states
                .entry(machine_run.view.phase.state().id())
                .or_default() += 1;
        }
        states
    }

    /// Machines that serve this version and are not changing.
    pub(crate) fn serving(&self, version: &str) -> usize {
        self.live()
            .filter(|machine_run| serves(machine_run, version))
            .count()
    }
}

/// Whether a machine serves this version.
pub(crate) fn serves(machine_run: &MachineRun, version: &str) -> bool {
    machine_run.view.phase == MachinePhase::Serving
        && machine_run.view.version.as_deref() == Some(version)
}
