//! History in four streams on file: a subject per run, a message per record, appended on condition.

use super::{
    head_headers::{head, headers},
    kept_heads::KeptHeads,
    last_messages::last_headers,
    link::{Link, header_of, number},
    publish::{Outgoing, PublishFault},
    share::{Rank, Ranks, is_known},
};
use crate::port::{Append, AppendError, Head, History, HistoryReader, StoreError, Stored};
use async_nats::Message;
use dormer_proto::{
    id::{Incarnation, Revision, RunId, Seq},
    lock::Locked as _,
    subject::{HISTORY_STREAMS, RECORDS_PER_RUN_MAX, SEQ_HEADER, history_stream_of},
};
use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

/// Subjects in one batch of reads. The server answers at most 1,024.
const READ_MAX: usize = 1_000;
/// Most leader reads at once.
const READS_MAX: usize = 64;
/// Time for which the sweep waits until this engine knows the others. Then it sweeps every stream: twice is better than
/// never.
const SHARE_KNOWN_MAX: Duration = Duration::from_secs(10);

/// History of a NATS store.
pub struct NatsHistory {
    link: Arc<Link>,
    /// Heads of each stream for `heads`, which people's views ask for again and again.
    kept: Vec<KeptHeads>,
    /// Current pass of `heads`.
    pass: Pass,
    /// Current pass of the sweep, which has some streams only.
    swept: Pass,
    /// Ranks of this engine.
    share: watch::Receiver<Ranks>,
}

/// Pass over heads, in pages. Lock held for a copy of a pointer, never across an await.
#[derive(Default)]
struct Pass(Mutex<Option<Arc<Vec<Head>>>>);

impl Pass {
    fn current(&self) -> Option<Arc<Vec<Head>>> {
        self.0.locked().clone()
    }

    fn keep(&self, pass: Option<Arc<Vec<Head>>>) {
        *self.0.locked() = pass;
    }

    /// Page after `after`. `begin` reads the heads of a new pass, ordered by run.
    async fn page(
        &self,
        after: Option<&RunId>,
        limit: usize,
        begin: impl Future<Output = Result<Vec<Head>, StoreError>>,
    ) -> Result<Vec<Head>, StoreError> {
        let pass = match (after, self.current()) {
            (Some(_), Some(pass)) => pass,
            _ => {
                let pass = Arc::new(begin.await?);
                self.keep(Some(Arc::clone(&pass)));
                pass
            }
        };
        let start = after.map_or(0, |after| pass.partition_point(|head| head.run <= *after));
        let page: Vec<Head> = pass[start..].iter().take(limit).cloned().collect();
        if page.is_empty() {
            self.keep(None);
        }
        Ok(page)
    }
}

impl NatsHistory {
    pub(super) fn new(link: Arc<Link>, share: watch::Receiver<Ranks>) -> Self {
        Self {
            link,
            kept: (0..HISTORY_STREAMS).map(|_| KeptHeads::default()).collect(),
            pass: Pass::default(),
            swept: Pass::default(),
            share,
        }
    }

    /// Deletes the consumers of who looks again and again.
    pub(super) async fn close(&self) {
        let all = self.kept.iter().map(|kept| kept.end(&self.link));
        join_all(all).await;
    }

    /// History streams that this process sweeps: those of whose first partition it is the first reader. Without word of
    /// other engines it sweeps all.
    async fn streams_to_sweep(&self) -> Vec<u64> {
        let mut share = self.share.clone();
        let ranks = match timeout(SHARE_KNOWN_MAX, share.wait_for(is_known)).await {
            Ok(Ok(ranks)) => Some(Arc::clone(&ranks)),
            Ok(Err(_)) | Err(_) => None,
        };
        let of = |stream: &u64| match &ranks {
            Some(ranks) => usize::try_from(*stream)
                .ok()
                .and_then(|at| ranks.get(at).copied().flatten())
                .is_some_and(Rank::reads),
            None => true,
        };
        (0..HISTORY_STREAMS).filter(of).collect()
    }

    /// Result of an append from the server's answer.
    fn answered(
        &self,
        index: usize,
        floor: u64,
        result: Result<u64, PublishFault>,
    ) -> Result<Revision, AppendError> {
        match result {
            Ok(sequence) => {
                self.link.acknowledge(index, floor, sequence);
                Ok(Revision(sequence))
            }
            Err(PublishFault::WrongSequence) => Err(AppendError::Conflict),
            Err(PublishFault::Refused(why)) => Err(AppendError::Refused(why)),
            Err(PublishFault::SubjectFull) => {
                Err(AppendError::Unknown("the stream is full".into()))
            }
            Err(PublishFault::Unknown(why)) => Err(AppendError::Unknown(why)),
        }
    }

    /// Last record of one run, from the stream's leader.
    async fn last(&self, run: &RunId) -> Result<Option<Stored>, StoreError> {
        use async_nats::jetstream::stream::LastRawMessageErrorKind::NoMessageFound;
        let lost = |e: String| StoreError::Unavailable(format!("reading {run}: {e}"));
        let name = self.link.names.history_stream(history_stream_of(run));
        let stream = self
            .link
            .js
            .get_stream_no_info(&name)
            .await
            .map_err(|e| lost(e.to_string()))?;
        match stream
            .get_last_raw_message_by_subject(&self.link.names.history(run))
            .await
        {
            Ok(message) => Ok(Some(Stored {
                bytes: message.payload.to_vec(),
                revision: Revision(message.sequence),
            })),
            Err(error) if error.kind() == NoMessageFound => Ok(None),
            Err(error) => Err(lost(error.to_string())),
        }
    }

    /// Last records of runs in one stream of a single server, which is its own leader.
    async fn last_of_stream(
        &self,
        index: u64,
        runs: &[&RunId],
    ) -> Result<HashMap<String, Stored>, StoreError> {
        let stream = self.link.names.history_stream(index);
        let subjects: Vec<String> = runs
            .iter()
            .map(|run| self.link.names.history(run))
            .collect();
        let request = serde_json::json!({ "multi_last": subjects, "batch": READ_MAX });
        let (messages, cut) = self.link.read(&stream, request).await?;
        let mut found = HashMap::with_capacity(messages.len());
        for message in messages {
            let (Some(subject), Some(sequence)) = (
                header_of(&message, "Nats-Subject"),
                number(&message, "Nats-Sequence"),
            ) else {
                continue;
            };
            let stored = Stored {
                bytes: message.payload.to_vec(),
                revision: Revision(sequence),
            };
            found.insert(subject.to_owned(), stored);
        }
        if cut {
            // With large records the server's byte limit applies first. The rest is read one by one.
            for (run, subject) in runs.iter().zip(&subjects) {
                if !found.contains_key(subject)
                    && let Some(stored) = self.last(run).await?
                {
                    found.insert(subject.clone(), stored);
                }
            }
        }
        Ok(found)
    }

    async fn load_single(&self, runs: &[RunId]) -> Result<Vec<Option<Stored>>, StoreError> {
        let mut indexes: BTreeMap<u64, Vec<&RunId>> = BTreeMap::new();
        for run in runs {
            indexes.entry(history_stream_of(run)).or_default().push(run);
        }
        let reads = indexes.iter().flat_map(|(index, runs)| {
            runs.chunks(READ_MAX)
                .map(move |chunk| self.last_of_stream(*index, chunk))
        });
        let mut found = HashMap::new();
        for read in join_all(reads).await {
            found.extend(read?);
        }
        Ok(runs
            .iter()
            .map(|run| found.get(&self.link.names.history(run)).cloned())
            .collect())
    }

    /// Head of every run, ordered by id.
    async fn all_heads(&self) -> Result<Vec<Head>, StoreError> {
        let streams = self.kept.iter().zip(0..);
        ordered(streams.map(|(kept, index)| kept.now(&self.link, index))).await
    }

    /// Heads from the headers of each subject's last message, by a pass that leaves nothing behind.
    async fn heads_of_stream(&self, index: u64) -> Result<Vec<Head>, StoreError> {
        let names = &self.link.names;
        let mut heads = BTreeMap::new();
        let see = |message: &Message, sequence: u64| {
            if let Some(head) = head(message, sequence) {
                heads.insert(head.run.clone(), head);
            }
        };
        let stream = names.history_stream(index);
        last_headers(&self.link, &stream, names.history_all(index), see).await?;
        Ok(heads.into_values().collect())
    }
}

/// Heads of several streams, ordered by run.
async fn ordered(
    streams: impl Iterator<Item = impl Future<Output = Result<Vec<Head>, StoreError>>>,
) -> Result<Vec<Head>, StoreError> {
    let mut heads = Vec::new();
    for stream in join_all(streams).await {
        heads.extend(stream?);
    }
    heads.sort_by(|a, b| a.run.cmp(&b.run));
    Ok(heads)
}

fn stream_index(run: &RunId) -> usize {
    // Below HISTORY_SHARDS, which is small.
    usize::try_from(history_stream_of(run)).unwrap_or(0)
}

impl History for NatsHistory {
    fn incarnation(&self) -> Incarnation {
        self.link.incarnation
    }

    fn exclusive(&self) -> bool {
        false
    }

    /// A leader that was deposed may still answer for a moment, and another engine deletes what ended long ago. The
    /// watch over the streams decides whether records are lost.
    fn contradiction(&self, what: String) -> StoreError {
        self.link.doubted.notify_one();
        StoreError::Unavailable(what)
    }

    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Stored>>, StoreError> {
        self.link.sound()?;
        if self.link.single.load(Ordering::Acquire) {
            return self.load_single(runs).await;
        }
        // Direct reads may ask a replica that lags behind the leader.
        let read = |run: RunId| async move { self.last(&run).await };
        stream::iter(runs.to_vec())
            .map(read)
            .buffered(READS_MAX)
            .try_collect()
            .await
    }

    async fn append(&self, batch: Vec<Append>) -> Vec<Result<Revision, AppendError>> {
        if let Err(error) = self.link.sound() {
            return batch
                .iter()
                .map(|_| Err(AppendError::Unknown(error.to_string())))
                .collect();
        }
        let floors: Vec<u64> = self
            .link
            .acknowledged
            .iter()
            .map(|a| a.load(Ordering::Acquire))
            .collect();
        let indexes: Vec<usize> = batch
            .iter()
            .map(|append| stream_index(&append.run))
            .collect();
        let messages = batch.into_iter().map(|append| Outgoing {
            subject: self.link.names.history(&append.run),
            headers: headers(&append),
            body: append.bytes.into(),
        });
        let results = self.link.publisher.publish(messages.collect()).await;
        let published = indexes.into_iter().zip(results);
        published
            .map(|(index, result)| self.answered(index, floors[index], result))
            .collect()
    }
}

impl HistoryReader for NatsHistory {
    async fn records(
        &self,
        run: &RunId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let stream = self.link.names.history_stream(history_stream_of(run));
        let subject = self.link.names.history(run);
        let mut records = Vec::new();
        let mut last = None;
        let mut next = 1;
        loop {
            let request = serde_json::json!({
                "next_by_subj": subject, "seq": next, "batch": RECORDS_PER_RUN_MAX,
            });
            let (messages, cut) = self.link.read(&stream, request).await?;
            for message in &messages {
                next = number(message, "Nats-Sequence").map_or(next, |sequence| sequence + 1);
                let Some(seq) = number(message, SEQ_HEADER).filter(|seq| Seq(*seq) >= from) else {
                    continue;
                };
                // A record that was written again, for its MAC, has the same seq.
                let again = last == Some(seq);
                if again {
                    records.pop();
                }
                if again || records.len() < limit {
                    records.push(message.payload.to_vec());
                    last = Some(seq);
                }
            }
            if !cut || messages.is_empty() || records.len() >= limit {
                return Ok(records);
            }
        }
    }

    async fn heads(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.link.sound()?;
        self.pass.page(after, limit, self.all_heads()).await
    }

    async fn heads_to_sweep(
        &self,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<Head>, StoreError> {
        self.link.sound()?;
        let begin = async {
            let streams = self.streams_to_sweep().await.into_iter();
            ordered(streams.map(|index| self.heads_of_stream(index))).await
        };
        self.swept.page(after, limit, begin).await
    }

    async fn forget(&self, run: &RunId, revision: Revision) -> Result<(), StoreError> {
        let lost = |e: String| StoreError::Unavailable(format!("deleting {run}: {e}"));
        if self
            .last(run)
            .await?
            .is_none_or(|last| last.revision != revision)
        {
            return Ok(());
        }
        let name = self.link.names.history_stream(history_stream_of(run));
        let stream = self
            .link
            .js
            .get_stream_no_info(&name)
            .await
            .map_err(|e| lost(e.to_string()))?;
        // Deletes up to and including this revision, so that a record appended meanwhile stays.
        let purge = stream
            .purge()
            .filter(self.link.names.history(run))
            .sequence(revision.0 + 1);
        purge.await.map(drop).map_err(|e| lost(e.to_string()))
    }
}
