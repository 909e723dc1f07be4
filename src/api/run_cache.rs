//! Cache of every run. A run is read again only if the store has a newer revision.

use super::{ApiError, live::Live, store::Store};
use dormer_engine::port::{Head, QuarantineNote, StoreError};
use dormer_engine_core::{Record, Run};
use dormer_proto::{
    envelope,
    id::{Revision, RunId, Seq},
    work::{MACHINE, SCHEMA, machine_run},
};
use dormer_workflows::{Dormer, State};
use serde::Serialize;
use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Duration};
use tokio::{sync::Mutex, time::Instant};

/// Runs read in one step.
const PAGE: usize = 1_000;
/// Age at which the notes about quarantined runs are read again. One read of all runs may follow another at once.
const NOTES_FOR: Duration = Duration::from_secs(1);

/// Run, shared by its readers.
pub type SharedRun = Arc<Run<Dormer>>;

/// Runs by id, each with its revision. `None`: this build cannot read that revision, and does not try again.
type CachedRuns = BTreeMap<RunId, (Revision, Option<SharedRun>)>;

/// Last record of a run, as the audit names it. Its MAC is not compared here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LastRecord {
    run: RunId,
    seq: Seq,
    /// MAC in the record's envelope, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
}

/// Runs of a store.
pub(crate) struct RunCache {
    ports: Arc<dyn Store>,
    /// Lock held during a read of the store, so that concurrent readers cause one read.
    runs: Mutex<CachedRuns>,
    live: Arc<Live>,
    /// Time at which the notes were read. Lock held during the read.
    noted: Mutex<Option<Instant>>,
}

impl RunCache {
    pub(crate) fn new(ports: Arc<dyn Store>, live: Arc<Live>) -> Self {
        Self {
            ports,
            runs: Mutex::default(),
            live,
            noted: Mutex::default(),
        }
    }

    /// Reads the notes about quarantined runs, unless those known are younger than `age`.
    ///
    /// # Errors
    /// The store does not answer.
    pub(crate) async fn read_notes(&self, age: Duration) -> Result<(), ApiError> {
        let mut noted = self.noted.lock().await;
        if noted.is_none_or(|at| at.elapsed() >= age) {
            self.live.note_all(self.ports.notes().await?);
            *noted = Some(Instant::now());
        }
        Ok(())
    }

    /// Every run of the store, ordered by id.
    ///
    /// # Errors
    /// The store does not answer.
    pub(crate) async fn all(&self) -> Result<Vec<SharedRun>, ApiError> {
        self.read_notes(NOTES_FOR).await?;
        let mut runs = self.runs.lock().await;
        let heads = self.heads().await?;
        let is_new = |head: &&Head| {
            let cached = runs.get(&head.run);
            cached.is_none_or(|(revision, _)| *revision != head.revision)
        };
        let changed = heads.iter().filter(is_new);
        let changed: Vec<RunId> = changed.map(|head| head.run.clone()).collect();
        for page in changed.chunks(PAGE) {
            let loaded = self.ports.load(page).await?;
            for (run, stored) in page.iter().zip(loaded) {
                let Some(stored) = stored else { continue };
                // One record of a newer build must not hide all the others. The state before it is no longer true.
                let read = self
                    .read(&stored.bytes)
                    .inspect_err(|error| tracing::warn!(%run, %error, "a run is not shown"));
                runs.insert(run.clone(), (stored.revision, read.ok()));
            }
        }
        if runs.len() > heads.len() {
            let stored = |run: &RunId| heads.binary_search_by(|head| head.run.cmp(run)).is_ok();
            runs.retain(|run, _| stored(run));
            self.live.forget(stored);
        }
        self.live.observe_all();
        Ok(shared(&runs))
    }

    /// Every run as it was read last, ordered by id. The store is not asked.
    pub(crate) async fn known(&self) -> Vec<SharedRun> {
        shared(&*self.runs.lock().await)
    }

    /// The next runs after this one, as they were read last, ordered by id. The store is not asked.
    pub(crate) async fn page(&self, after: Option<&RunId>, most: usize) -> Vec<SharedRun> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let runs = self.runs.lock().await;
        let runs = runs.range::<RunId, _>((from, Bound::Unbounded));
        let readable = runs.filter_map(|(_, (_, run))| run.clone());
        readable.take(most).collect()
    }

    /// Note about a run, if it is quarantined now.
    ///
    /// # Errors
    /// The store does not answer.
    pub(crate) async fn quarantine(&self, run: &RunId) -> Result<Option<QuarantineNote>, ApiError> {
        self.read_notes(Duration::ZERO).await?;
        Ok(self.live.note(run))
    }

    /// Heads of all runs, ordered by id.
    async fn heads(&self) -> Result<Vec<Head>, StoreError> {
        let mut all: Vec<Head> = Vec::new();
        loop {
            let after = all.last().map(|head| head.run.clone());
            let heads = self.ports.heads(after.as_ref(), PAGE).await?;
            if heads.is_empty() {
                all.sort_by(|a, b| a.run.cmp(&b.run));
                return Ok(all);
            }
            all.extend(heads);
        }
    }

    /// Present state of one run.
    ///
    /// # Errors
    /// The store does not answer, or its answer cannot be read.
    pub(crate) async fn one(&self, run: &RunId) -> Result<Option<SharedRun>, ApiError> {
        self.read_notes(NOTES_FOR).await?;
        let stored = self.ports.load(std::slice::from_ref(run)).await?;
        let stored = stored.into_iter().flatten().next();
        Ok(stored.map(|stored| self.read(&stored.bytes)).transpose()?)
    }

    /// Last record of one run.
    ///
    /// # Errors
    /// The store does not answer, or its answer cannot be read.
    pub(crate) async fn last_record(&self, run: &RunId) -> Result<Option<LastRecord>, ApiError> {
        let stored = self.ports.load(std::slice::from_ref(run)).await?;
        let Some(stored) = stored.into_iter().flatten().next() else {
            return Ok(None);
        };
        let mac = envelope::parts(&stored.bytes)?.mac.map(str::to_owned);
        let (record, _) = envelope::decode::<Record<Dormer>>(&stored.bytes, SCHEMA)?;
        Ok(Some(LastRecord {
            run: run.clone(),
            seq: record.run.seq,
            mac,
        }))
    }

    fn read(&self, bytes: &[u8]) -> Result<SharedRun, envelope::DecodeError> {
        let (record, sum) = envelope::decode::<Record<Dormer>>(bytes, SCHEMA)?;
        let mut run = record.run;
        run.set_sum(sum);
        self.live.observe(&run, record.at);
        Ok(Arc::new(run))
    }

    /// Run of a machine, by its UID, its name, or `namespace/name`. Of several with one name, the open run counts, or
    /// else the latest.
    ///
    /// # Errors
    /// No machine has this name; open machines of several namespaces have it; the store does not answer.
    pub(crate) async fn machine(&self, called: &str) -> Result<SharedRun, ApiError> {
        if let Ok(run) = machine_run(called)
            && let Some(run) = self.one(&run).await?
        {
            return Ok(run);
        }
        let mut found: Vec<SharedRun> = self.all().await?;
        found.retain(|run| is_called(run, called));
        found.sort_by_key(|run| (run.closed.is_none(), run.began));
        let living = found.iter().filter(|run| run.closed.is_none()).count();
        if living > 1 {
            return Err(ApiError::conflict(
                format!("{living} machines have the name {called:?}"),
                "give NAMESPACE/NAME or the UID",
            ));
        }
        found
            .pop()
            .ok_or_else(|| ApiError::absent("machine", called, "dormer get machines"))
    }
}

fn shared(cached: &CachedRuns) -> Vec<SharedRun> {
    let runs = cached.values().filter_map(|(_, run)| run.as_ref());
    runs.map(Arc::clone).collect()
}

fn is_called(run: &Run<Dormer>, called: &str) -> bool {
    let State::Machine(state) = &run.state else {
        return false;
    };
    if run.id.workflow() != MACHINE {
        return false;
    }
    let machine = state.machine_ref();
    machine.name == called
        || called
            .split_once('/')
            .is_some_and(|(namespace, name)| machine.namespace == namespace && machine.name == name)
}

#[cfg(test)]
#[path = "run_cache_tests.rs"]
mod tests;
