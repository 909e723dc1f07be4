//! Store interface of the API: the engine's ports behind one object, so that API and console are compiled once.

use dormer_engine::port::{
    Clock, DeadLetter, DeadLetters, Head, History, HistoryReader, Inbox, Ports, Quarantine,
    QuarantineNote, StoreError, Stored,
};
use dormer_engine::quarantine::release;
use dormer_proto::id::{Incarnation, RunId, Seq, Timestamp};
use futures::future::BoxFuture;

/// Future of the store's answer.
type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Subset of [`Ports`] that the API needs. The ports' contracts apply.
pub(crate) trait Store: Send + Sync + 'static {
    /// Identity of the store.
    fn incarnation(&self) -> Incarnation;
    /// Present time by the engine's clock.
    fn now(&self) -> Timestamp;
    /// Last record of each run.
    fn load<'a>(&'a self, runs: &'a [RunId]) -> Answer<'a, Vec<Option<Stored>>>;
    /// Records of one run from `from` on, at most `limit`.
    fn records<'a>(&'a self, run: &'a RunId, from: Seq, limit: usize) -> Answer<'a, Vec<Vec<u8>>>;
    /// Heads of runs after `after`, at most `limit`.
    fn heads<'a>(&'a self, after: Option<&'a RunId>, limit: usize) -> Answer<'a, Vec<Head>>;
    /// Puts one message into the inbox.
    fn put(&self, run: RunId, message: Vec<u8>) -> Answer<'_, ()>;
    /// Dead letters after `after`, at most `limit`.
    fn dead_letters(&self, after: u64, limit: usize) -> Answer<'_, Vec<DeadLetter>>;
    /// Removes a dead letter.
    fn remove_dead_letter(&self, id: u64) -> Answer<'_, ()>;
    /// Notes about every quarantined run.
    fn notes(&self) -> Answer<'_, Vec<QuarantineNote>>;
    /// Releases a run. Returns whether it was quarantined.
    fn release<'a>(&'a self, run: &'a RunId) -> Answer<'a, bool>;
}

impl<P: Ports> Store for P {
    fn incarnation(&self) -> Incarnation {
        self.history().incarnation()
    }

    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    fn load<'a>(&'a self, runs: &'a [RunId]) -> Answer<'a, Vec<Option<Stored>>> {
        Box::pin(self.history().load(runs))
    }

    fn records<'a>(&'a self, run: &'a RunId, from: Seq, limit: usize) -> Answer<'a, Vec<Vec<u8>>> {
        Box::pin(self.reader().records(run, from, limit))
    }

    fn heads<'a>(&'a self, after: Option<&'a RunId>, limit: usize) -> Answer<'a, Vec<Head>> {
        Box::pin(self.reader().heads(after, limit))
    }

    fn put(&self, run: RunId, message: Vec<u8>) -> Answer<'_, ()> {
        Box::pin(self.inbox().put(vec![(run, message)]))
    }

    fn dead_letters(&self, after: u64, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        Box::pin(self.dead().list(after, limit))
    }

    fn remove_dead_letter(&self, id: u64) -> Answer<'_, ()> {
        Box::pin(self.dead().remove(id))
    }

    fn notes(&self) -> Answer<'_, Vec<QuarantineNote>> {
        Box::pin(self.quarantine().notes())
    }

    fn release<'a>(&'a self, run: &'a RunId) -> Answer<'a, bool> {
        Box::pin(release(self, run))
    }
}
