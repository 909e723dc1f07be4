//! Publisher of changes to a NATS stream: the same changes that readers of server-sent events receive.
//!
//! Every console publishes; there is no election. A change that is newer than the stream is published at once, on
//! condition that the run's message in the stream is unchanged. All other cases are reconciled: an older snapshot, a
//! missing run, a faster publisher. Reconciling reads first the stream, then the store's leader. So nothing is
//! published twice and no state goes back. If the store itself went back (a restored dump), the stream follows.

use super::{Api, RunChange};
use crate::views;
use dormer_engine::{
    nats::{Mark, NatsChanges, PublishError, PublishedState, StreamContents},
    port::StoreError,
};
use dormer_proto::{id::RunId, work::ROLLOUT};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::broadcast::{
        Receiver,
        error::{RecvError, TryRecvError},
    },
    time::{Instant, sleep, timeout_at},
};

/// Interval at which the stream's state is checked.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// Changes published at once.
const BATCH_MAX: usize = 256;
/// Tries to reconcile one run against faster publishers, before everything is compared again.
const RECONCILE_TRIES: usize = 16;

/// Reason for which publishing stopped.
type StopReason = String;

/// Publishes every change to the stream until cancelled. A failure is logged once, and publishing is tried again.
pub async fn run_publisher(api: Arc<Api>, stream: NatsChanges) -> Infallible {
    let mut publisher = Publisher {
        api,
        stream,
        known: BTreeMap::new(),
        last: 0,
    };
    let mut said: Option<StopReason> = None;
    loop {
        let trouble = publisher.follow(&mut said).await;
        if said.as_ref() != Some(&trouble) {
            tracing::warn!(trouble, "changes are not published to NATS");
            said = Some(trouble);
        }
        sleep(PAUSE).await;
    }
}

struct Publisher {
    api: Arc<Api>,
    stream: NatsChanges,
    /// Contents of the stream, as last read by this process.
    known: BTreeMap<RunId, PublishedState>,
    /// Highest sequence of the stream that this process knows.
    last: u64,
}

impl Publisher {
    /// Compares everything once, then follows the changes until a failure. Returns the reason.
    async fn follow(&mut self, said: &mut Option<StopReason>) -> StopReason {
        // Subscribes before it compares, so that no change is lost between the two.
        let api = Arc::clone(&self.api);
        let mut incoming = api.changes.join(&api).await;
        let _present = api.changes.publisher();
        match self.compare().await {
            Ok(()) if said.take().is_some() => {
                tracing::info!("changes are published to NATS again")
            }
            Ok(()) => {}
            Err(trouble) => return trouble,
        }
        let mut check = Instant::now() + CHECK_EVERY;
        loop {
            let done = match timeout_at(check, incoming.recv()).await {
                Ok(Ok(change)) => {
                    let (changes, missed) = gather(change, &mut incoming);
                    match self.publish(changes).await {
                        Ok(()) if missed => self.compare().await,
                        published => published,
                    }
                }
                Ok(Err(RecvError::Lagged(_))) => self.compare().await,
                Ok(Err(RecvError::Closed)) => return "the poller of the store has ended".into(),
                Err(_) => {
                    check = Instant::now() + CHECK_EVERY;
                    self.check().await
                }
            };
            if let Err(trouble) = done {
                return trouble;
            }
        }
    }

    /// Compares everything again if the stream differs from what this process knows: it was emptied or lost, or other
    /// publishers wrote changes that this process has not seen.
    async fn check(&mut self) -> Result<(), StopReason> {
        let (runs, last) = self.stream.extent().await.map_err(|e| e.to_string())?;
        if last < self.last || usize::try_from(runs) != Ok(self.known.len()) {
            self.compare().await?;
        }
        Ok(())
    }

    /// Reads the stream, then the store, and publishes the differences.
    async fn compare(&mut self) -> Result<(), StopReason> {
        let StreamContents {
            runs: published,
            full,
        } = self.stream.contents().await.map_err(|e| e.to_string())?;
        let runs = self
            .api
            .run_cache
            .all()
            .await
            .map_err(|error| error.what_and_remedy().0.to_owned())?;
        self.last = published
            .values()
            .map(|published| published.sequence)
            .max()
            .unwrap_or(0);
        self.known = published;
        if full {
            tracing::warn!(
                runs = runs.len(),
                "the stream of changes is full: it lacks the runs that changed longest ago"
            );
        }
        let names = views::names(&runs);
        let ids: BTreeSet<&RunId> = runs.iter().map(|run| &run.id).collect();
        let gone = self
            .known
            .iter()
            .filter(|(run, published)| published.mark.is_some() && !ids.contains(run));
        let gone: Vec<RunId> = gone.map(|(run, _)| run.clone()).collect();
        // A run that a full stream discarded stays out: publishing it again would discard another.
        let wanted = |run: &&super::SharedRun| match self.known.get(&run.id) {
            Some(published) => published.mark != Some((run.seq, run.sum)),
            None => !full,
        };
        let differ: Vec<super::SharedRun> = runs.iter().filter(wanted).map(Arc::clone).collect();
        for page in differ.chunks(BATCH_MAX) {
            let changes = page
                .iter()
                .map(|run| Arc::new(RunChange::of(&self.api, run, &names)));
            self.publish(changes.collect()).await?;
        }
        for run in gone {
            self.reconcile(&run).await?;
        }
        Ok(())
    }

    /// Publishes these changes. Each run occurs once.
    async fn publish(&mut self, changes: Vec<Arc<RunChange>>) -> Result<(), StopReason> {
        let mut updates = Vec::new();
        let mut unclear = Vec::new();
        for change in changes {
            match self.known.get(&change.run) {
                Some(known) if known.mark == change.mark => {}
                known if is_newer(change.mark, known) => {
                    let replaces = known.map_or(0, |known| known.sequence);
                    updates.push((change.mark, change.update(replaces)));
                }
                _ => unclear.push(change.run.clone()),
            }
        }
        let runs: Vec<(RunId, Mark)> = updates
            .iter()
            .map(|(mark, updates)| (updates.run.clone(), *mark))
            .collect();
        let results = self
            .stream
            .publish(updates.into_iter().map(|(_, updates)| updates).collect())
            .await;
        for ((run, mark), result) in runs.into_iter().zip(results) {
            match result {
                Ok(sequence) => self.note(run, Some(PublishedState { sequence, mark })),
                Err(PublishError::Conflict) => {
                    // The usual cause: another console was first with the same change.
                    let published = self.stream.one(&run).await.map_err(|e| e.to_string())?;
                    if published.is_none_or(|published| published.mark != mark) {
                        unclear.push(run);
                    } else {
                        self.note(run, published);
                    }
                }
                Err(PublishError::Refused(why)) => {
                    tracing::warn!(%run, why, "a change is not published to NATS");
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        for run in unclear {
            self.reconcile(&run).await?;
        }
        Ok(())
    }

    /// Replaces a run's message in the stream by the store leader's state. The stream is read first, so the store's
    /// answer is not older than the message. The replacement therefore goes forward, or follows a store that went
    /// back.
    async fn reconcile(&mut self, run: &RunId) -> Result<(), StopReason> {
        let lost = |error: StoreError| error.to_string();
        for _ in 0..RECONCILE_TRIES {
            let published = self.stream.one(run).await.map_err(lost)?;
            let change = match self.now(run).await? {
                Some(change) => change,
                // A record that this build cannot read is left to newer builds.
                None => return Ok(()),
            };
            let mark = published.map(|published| published.mark);
            if mark == Some(change.mark) || (mark.is_none() && change.mark.is_none()) {
                self.note(run.clone(), published);
                return Ok(());
            }
            let replaces = published.map_or(0, |published| published.sequence);
            match self
                .stream
                .publish(vec![change.update(replaces)])
                .await
                .pop()
            {
                Some(Ok(sequence)) => {
                    self.note(
                        run.clone(),
                        Some(PublishedState {
                            sequence,
                            mark: change.mark,
                        }),
                    );
                    return Ok(());
                }
                Some(Err(PublishError::Conflict)) => {}
                Some(Err(PublishError::Refused(why))) => {
                    tracing::warn!(%run, why, "a change is not published to NATS");
                    return Ok(());
                }
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err("no answer".into()),
            }
        }
        Err(format!("{run} changes faster than it can be published"))
    }

    /// State of a run on the store's leader: its record, or that it is forgotten. `None`: this build cannot read it.
    async fn now(&self, run: &RunId) -> Result<Option<RunChange>, StopReason> {
        use axum::http::StatusCode;
        let found = match self.api.run_cache.one(run).await {
            Ok(found) => found,
            Err(error) if error.status() == StatusCode::SERVICE_UNAVAILABLE => {
                return Err(error.what_and_remedy().0.to_owned());
            }
            Err(_) => return Ok(None),
        };
        let Some(found) = found else {
            return Ok(Some(RunChange::forgotten(run)));
        };
        let names = if run.workflow() == ROLLOUT {
            let all = self
                .api
                .run_cache
                .all()
                .await
                .map_err(|error| error.what_and_remedy().0.to_owned())?;
            views::names(&all)
        } else {
            views::KnownMachines::default()
        };
        Ok(Some(RunChange::of(&self.api, &found, &names)))
    }

    fn note(&mut self, run: RunId, published: Option<PublishedState>) {
        match published {
            Some(published) => {
                self.last = self.last.max(published.sequence);
                self.known.insert(run, published);
            }
            None => drop(self.known.remove(&run)),
        }
    }
}

/// Whether a snapshot with `mark` is certainly newer than the stream's message.
fn is_newer(mark: Mark, known: Option<&PublishedState>) -> bool {
    match (mark, known.map(|known| known.mark)) {
        (Some(_), None) => true,
        (Some((seq, _)), Some(Some((published, _)))) => seq > published,
        // Only the store's leader decides that a run is forgotten, or exists again.
        (None, _) | (Some(_), Some(None)) => false,
    }
}

/// The change together with those received since, the last of each run; and whether some were missed.
fn gather(
    first: Arc<RunChange>,
    incoming: &mut Receiver<Arc<RunChange>>,
) -> (Vec<Arc<RunChange>>, bool) {
    let mut changes = BTreeMap::from([(first.run.clone(), first)]);
    let mut missed = false;
    while changes.len() < BATCH_MAX {
        match incoming.try_recv() {
            Ok(change) => drop(changes.insert(change.run.clone(), change)),
            Err(TryRecvError::Lagged(_)) => missed = true,
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    (changes.into_values().collect(), missed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::id::{Seq, Sum};

    #[test]
    fn only_a_higher_seq_is_published_without_reading_first() {
        let published = |mark| PublishedState { sequence: 9, mark };
        let at = |seq, sum| Some((Seq(seq), Sum(sum)));
        assert!(is_newer(at(1, 1), None));
        assert!(is_newer(at(3, 1), Some(&published(at(2, 7)))));
        assert!(
            !is_newer(at(2, 1), Some(&published(at(2, 7)))),
            "another record of the same seq"
        );
        assert!(
            !is_newer(at(1, 1), Some(&published(at(2, 7)))),
            "an older look"
        );
        assert!(
            !is_newer(at(5, 1), Some(&published(None))),
            "it was forgotten"
        );
        assert!(
            !is_newer(None, Some(&published(at(2, 7)))),
            "perhaps only this look lacks it"
        );
    }
}
