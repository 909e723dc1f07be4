//! Data for the console's pages beside the endpoints' answers: a run's episodes, and a rollout's turns with the
//! lease.

use super::{Api, ApiError, reads, timeline};
use axum::extract::{Path, Query, State as Of};
use dormer_engine_core::Record;
use dormer_proto::{
    envelope,
    id::{RunId, Seq},
    work::SCHEMA,
};
use dormer_views::{record::History, timeline::Episode};
use dormer_workflows::{Dormer, State};
use std::{collections::BTreeMap, sync::Arc};

/// Records read at once.
const PAGE: usize = 1_000;

/// A machine's turn with the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Token of the lease.
    pub token: u64,
    /// UID of the machine that held the lease.
    pub holder: String,
    /// Time of the grant, in milliseconds by the engine's clock.
    pub from: u64,
    /// Time at which the turn ended. `None`: the machine still holds the lease.
    pub to: Option<u64>,
}

impl Api {
    /// Episodes of a run, and the present time by the engine's clock in milliseconds.
    ///
    /// # Errors
    /// The store does not answer, or its answer cannot be read.
    pub async fn timeline_of(&self, run: &RunId) -> Result<(Vec<Episode>, u64), ApiError> {
        let mut fold = timeline::Fold::default();
        self.each_record(run, |record| fold.take(record)).await?;
        Ok((fold.done(), self.now().0))
    }

    /// Turns with the lease in a rollout's stored records, oldest first.
    ///
    /// # Errors
    /// As [`Api::timeline_of`].
    pub async fn turns_of(&self, run: &RunId) -> Result<Vec<Turn>, ApiError> {
        let mut turns = BTreeMap::new();
        self.each_record(run, |record| turned(&mut turns, record))
            .await?;
        Ok(turns.into_values().collect())
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
        let part = Query(reads::Part::new(from, limit));
        Ok(reads::run_history(Of(Arc::clone(self)), path, part)
            .await?
            .0)
    }

    async fn each_record(
        &self,
        run: &RunId,
        mut take: impl FnMut(&Record<Dormer>) + Send,
    ) -> Result<(), ApiError> {
        let mut from = Seq(1);
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

/// Updates `turns` from a record: new slots begin a turn, missing slots end one.
fn turned(turns: &mut BTreeMap<u64, Turn>, record: &Record<Dormer>) {
    let State::Rollout(state) = &record.run.state else {
        return;
    };
    let slots = state.view().slots;
    for turn in turns.values_mut().filter(|turn| turn.to.is_none()) {
        if slots.iter().all(|slot| slot.token.0 != turn.token) {
            turn.to = Some(record.at.0);
        }
    }
    for slot in slots {
        let token = slot.token.0;
        let from = slot.since.0;
        let holder = slot.holder;
        turns.entry(token).or_insert(Turn {
            token,
            holder,
            from,
            to: None,
        });
    }
}
