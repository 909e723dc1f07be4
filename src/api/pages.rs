//! Data for the console's pages beside the endpoints' answers: a run's episodes, requests of people, and payloads.

use super::{Api, ApiError, planned, reads, story, timeline, views};
use axum::extract::{Path, Query, State as Of};
use dormer_engine_core::{HistoryEvent, Record, Workflow};
use dormer_proto::{
    envelope,
    id::{RunId, Seq, Timestamp},
    work::SCHEMA,
};
use dormer_views::{plan::Plan, record::History, timeline::Timeline};
use dormer_workflows::Dormer;
use std::sync::Arc;

/// Records read at once.
const PAGE: usize = 1_000;

/// Request of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Number of its record.
    pub seq: u64,
    /// Time of its record.
    pub at: Timestamp,
    /// Id of the request. Each program begins its ids with its own word.
    pub id: String,
    /// Requester.
    pub who: String,
    /// Request in words.
    pub what: String,
    /// Reason in the person's words.
    pub why: String,
    /// State of the run after its record.
    pub state: String,
}

/// Payload that this process can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPayload {
    pub version: String,
    /// Version of its kubelet.
    pub kubelet: String,
    /// Windows builds that it runs on.
    pub windows_builds: Vec<String>,
    /// Versions that it may follow in a rollout.
    pub may_follow: Vec<String>,
    /// Size of its files.
    pub bytes: u64,
}

impl Api {
    /// Requests of people in a run's stored records, from `from` on.
    ///
    /// # Errors
    /// As [`Api::timeline_of`].
    pub async fn requests_of(&self, run: &RunId, from: Seq) -> Result<Vec<Request>, ApiError> {
        let mut found = Vec::new();
        self.each_record_from(run, from, |record| {
            for event in &record.events {
                let (id, who, what, why) = match event {
                    HistoryEvent::Requested {
                        id,
                        who,
                        why,
                        signal,
                    } => (id, who, story::signal_text(signal), why),
                    HistoryEvent::Reset {
                        id, who, why, to, ..
                    } => (id, who, format!("reset to record {to}"), why),
                    _ => continue,
                };
                found.push(Request {
                    seq: record.run.seq.0,
                    at: record.at,
                    id: id.clone(),
                    who: who.clone(),
                    what,
                    why: why.clone(),
                    state: views::state_text(&record.run.state)
                        .unwrap_or_else(|| Dormer::label(&record.run.state))
                        .to_owned(),
                });
            }
        })
        .await?;
        Ok(found)
    }

    /// Plan for the pool's present settings.
    ///
    /// # Errors
    /// There is no such pool, or this process cannot render its machines' configuration.
    pub async fn plan_of(self: &Arc<Self>, pool: &str) -> Result<Plan, ApiError> {
        let planned = planned::plan(Of(Arc::clone(self)), Path(pool.to_owned())).await?;
        Ok(planned.0)
    }

    /// Payloads of this process, the oldest first. `None`: it reads none.
    #[must_use]
    pub fn payloads(&self) -> Option<Vec<KnownPayload>> {
        let renderer = self.renderer.as_ref()?;
        let payloads = renderer.catalog.manifests().into_iter();
        Some(
            payloads
                .map(|manifest| KnownPayload {
                    bytes: manifest.files.iter().map(|file| file.size).sum(),
                    version: manifest.version,
                    kubelet: manifest.kubelet,
                    windows_builds: manifest.windows_builds,
                    may_follow: manifest.may_follow,
                })
                .collect(),
        )
    }

    /// Sentences about payloads that this process cannot use.
    #[must_use]
    pub fn unusable_payloads(&self) -> Vec<String> {
        let renderer = self.renderer.as_ref();
        renderer.map_or_else(Vec::new, |it| it.catalog.unusable())
    }

    /// Why the pool's latest layers are not in force.
    pub(super) fn layers_refused(&self) -> Option<String> {
        self.renderer.as_ref()?.layers_refused()
    }

    /// Episodes of a run, as far as its records are stored.
    ///
    /// # Errors
    /// The store does not answer, or its answer cannot be read.
    pub async fn timeline_of(&self, run: &RunId) -> Result<Timeline, ApiError> {
        let mut fold = timeline::Fold::default();
        self.each_record(run, |record| fold.take(record)).await?;
        Ok(Timeline {
            run: run.as_str().to_owned(),
            now: self.now().0,
            first_record: fold.first_record(),
            episodes: fold.done(),
        })
    }

    /// At most `limit` records of a run from `from` on, as the history endpoint answers them.
    ///
    /// # Errors
    /// As [`Api::timeline_of`].
    pub async fn part_of(
        self: &Arc<Self>,
        run: &RunId,
        from: u64,
        limit: usize,
    ) -> Result<History, ApiError> {
        let path = Path((run.workflow().to_owned(), run.key().to_owned()));
        let part = Query(reads::HistoryRange::new(from, limit));
        Ok(reads::run_history(Of(Arc::clone(self)), path, part)
            .await?
            .0)
    }

    pub(super) async fn each_record(
        &self,
        run: &RunId,
        take: impl FnMut(&Record<Dormer>) + Send,
    ) -> Result<(), ApiError> {
        self.each_record_from(run, Seq(1), take).await
    }

    async fn each_record_from(
        &self,
        run: &RunId,
        mut from: Seq,
        mut take: impl FnMut(&Record<Dormer>) + Send,
    ) -> Result<(), ApiError> {
        loop {
            let stored = self.ports.records(run, from, PAGE).await?;
            let whole = stored.len() < PAGE;
            for bytes in stored {
                let (record, _) = envelope::decode::<Record<Dormer>>(&bytes, SCHEMA)?;
                from = record.run.seq.next();
                take(&record);
            }
            if whole {
                return Ok(());
            }
        }
    }
}
