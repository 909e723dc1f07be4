//! Embedded store for which a paused clock waits: tokio's paused clock waits only for blocking work, not for other
//! threads.

use dormer_engine::{
    embedded::EmbeddedStore,
    port::{
        Append, AppendError, DeadLetter, DeadLetters, Head, History, HistoryReader, Quarantine,
        QuarantineNote, StoreError, Stored,
    },
};
use dormer_proto::id::{Incarnation, Revision, RunId, Seq};
use std::sync::Arc;

pub(crate) struct Awaited(pub(crate) Arc<EmbeddedStore>);

impl Awaited {
    async fn job<T: Send + 'static, F: Future<Output = T>>(
        &self,
        job: impl FnOnce(Arc<EmbeddedStore>) -> F + Send + 'static,
    ) -> T {
        let store = Arc::clone(&self.0);
        let runtime = tokio::runtime::Handle::current();
        let work = move || runtime.block_on(job(store));
        tokio::task::spawn_blocking(work).await.expect("no panic")
    }
}

impl History for Awaited {
    fn incarnation(&self) -> Incarnation {
        self.0.incarnation()
    }
    fn exclusive(&self) -> bool {
        self.0.exclusive()
    }
    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Stored>>, StoreError> {
        self.0.load(runs).await
    }
    async fn append(&self, batch: Vec<Append>) -> Vec<Result<Revision, AppendError>> {
        self.job(async move |store| store.append(batch).await).await
    }
}

impl HistoryReader for Awaited {
    async fn records(
        &self,
        run: &RunId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.0.records(run, from, limit).await
    }
    async fn heads(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.0.heads(after, limit).await
    }
    async fn forget(&self, run: &RunId, revision: Revision) -> Result<(), StoreError> {
        let run = run.clone();
        self.job(async move |store| store.forget(&run, revision).await)
            .await
    }
}

impl DeadLetters for Awaited {
    async fn put(&self, message: DeadLetter) -> Result<(), StoreError> {
        self.job(async move |store| DeadLetters::put(store.as_ref(), message).await)
            .await
    }
    async fn list(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.0.list(after, limit).await
    }
    async fn remove(&self, id: u64) -> Result<(), StoreError> {
        self.job(async move |store| DeadLetters::remove(store.as_ref(), id).await)
            .await
    }
}

impl Quarantine for Awaited {
    async fn put(&self, note: QuarantineNote) -> Result<u64, StoreError> {
        self.job(async move |store| Quarantine::put(store.as_ref(), note).await)
            .await
    }
    async fn notes_of(&self, runs: &[RunId]) -> Result<Vec<Option<QuarantineNote>>, StoreError> {
        self.0.notes_of(runs).await
    }
    async fn notes(&self) -> Result<Vec<QuarantineNote>, StoreError> {
        self.0.notes().await
    }
    async fn remove(&self, run: &RunId, version: u64) -> Result<(), StoreError> {
        let run = run.clone();
        self.job(async move |store| Quarantine::remove(store.as_ref(), &run, version).await)
            .await
    }
}
