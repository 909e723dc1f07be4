//! NATS JetStream adapter: every port over the streams in `dormer_proto::subject`.
//!
//! History is on file and the only source of truth. Inbox, tasks and alarms are in memory, and can be rebuilt from it
//! and from the watcher. A client that loses its connection keeps trying. Acknowledged results stay valid, unanswered
//! ones are unknown, and the condition on each append makes a late arrival harmless.

mod alarms;
mod backup;
mod changes;
mod connect;
mod consumers;
mod credit;
mod dead_letters;
mod head_headers;
mod history;
mod identity;
mod inbox;
mod kept_heads;
mod last_messages;
mod link;
mod old_inbox;
mod options;
mod publish;
mod pull;
mod quarantine;
mod requests;
mod share;
mod silent;
mod streams;
mod tasks;
mod unacked;
mod watch;

pub use alarms::NatsAlarms;
pub use backup::{BackupError, Checked};
pub use changes::{Mark, NatsChanges, PublishError, PublishedState, StateUpdate, StreamContents};
pub use dead_letters::NatsDead;
pub use dormer_nats::{Login, Tls};
pub use dormer_proto::address::Origin;
pub use history::NatsHistory;
pub use inbox::NatsInbox;
pub use options::{Durability, OpenError, Options, ServerSync};
pub use quarantine::NatsQuarantine;
pub use tasks::NatsTasks;
pub use watch::StreamMarkers;

use crate::port::{Clock, Ports, StoreError, SystemClock};
use async_nats::jetstream::{self, context::ContextBuilder};
use dormer_nats::{ANSWER_MAX, history_keys::HistoryKeys};
use dormer_proto::{
    id::{Epoch, Incarnation},
    subject::Names,
};
use link::Link;
use publish::Publisher;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, watch as channel},
    task::JoinHandle,
};

/// Interval at which the old inbox is examined.
const RETIRE_EVERY: Duration = Duration::from_secs(5 * 60);

/// NATS store with all its ports.
pub struct NatsStore<C = SystemClock> {
    link: Arc<Link>,
    replicas: Option<usize>,
    history: NatsHistory,
    inbox: NatsInbox,
    tasks: NatsTasks,
    alarms: NatsAlarms,
    dead: NatsDead,
    quarantine: NatsQuarantine,
    history_keys: Option<Arc<HistoryKeys>>,
    clock: C,
    synced: ServerSync,
    lost: channel::Receiver<u64>,
    watching: JoinHandle<()>,
}

impl NatsStore {
    /// Opens the store at `options.servers`, and creates missing streams.
    ///
    /// # Errors
    /// [`OpenError`]: what to change on the server, or in the options.
    pub async fn open(options: &Options) -> Result<Self, OpenError> {
        Self::open_with(options, SystemClock).await
    }
}

impl<C: Clock> NatsStore<C> {
    /// As [`NatsStore::open`], with the caller's clock.
    ///
    /// # Errors
    /// As [`NatsStore::open`].
    pub async fn open_with(options: &Options, clock: C) -> Result<Self, OpenError> {
        let woken = Arc::new(Notify::new());
        let client = connect::connect(options, Arc::clone(&woken)).await?;
        let js = ContextBuilder::new()
            .timeout(ANSWER_MAX)
            .build(client.clone());
        let synced = connect::check(&client, &js, options).await?;
        let names = options
            .prefix
            .as_deref()
            .map_or_else(Names::default, Names::with_prefix);
        let incarnation =
            identity::establish(&js, &names, options.origin, options.replicas, None).await?;
        let single = ensure_streams(&js, &names, options.replicas).await?;
        let listening = Publisher::open(client.clone(), Arc::clone(&woken)).await;
        let publisher = listening.map_err(|e| OpenError::server("listening for answers", e))?;
        let link = Arc::new(Link::new(
            client,
            js,
            publisher,
            names,
            incarnation,
            options.keys.clone(),
            single,
        ));
        let server = |e: StoreError| OpenError::server("opening the store", e);
        let mut markers = watch::whole(&link).await.map_err(server)?;
        let was_lost = watch::check(&link, options.replicas, &mut markers)
            .await
            .map_err(server)?;
        let (losses, lost) = channel::channel(u64::from(was_lost));
        let watching = watch::run_watch(
            Arc::clone(&link),
            options.replicas,
            markers,
            Arc::clone(&woken),
            losses,
        );
        let inbox = NatsInbox::new(Arc::clone(&link), &woken, options.origin);
        Ok(Self {
            history: NatsHistory::new(Arc::clone(&link), inbox.share()),
            inbox,
            tasks: NatsTasks::new(Arc::clone(&link)),
            alarms: NatsAlarms::new(Arc::clone(&link)),
            dead: NatsDead::new(Arc::clone(&link)),
            quarantine: NatsQuarantine::new(Arc::clone(&link)),
            link,
            replicas: options.replicas,
            history_keys: options.history_keys.clone(),
            clock,
            synced,
            lost,
            watching: tokio::spawn(watching),
        })
    }

    /// Identity of the store.
    pub fn incarnation(&self) -> Incarnation {
        self.link.incarnation
    }

    /// Known syncing of the server.
    pub fn synced(&self) -> ServerSync {
        self.synced
    }

    /// Allocates the next epoch. Epochs only grow.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn next_epoch(&self) -> Result<Epoch, StoreError> {
        identity::next_epoch(&self.link).await
    }

    /// Stream of changes beside this store.
    pub fn changes(&self) -> NatsChanges {
        NatsChanges::new(Arc::clone(&self.link), self.replicas)
    }

    /// Number of detected losses of rebuildable streams; above 0 at the start if one before is not made good.
    pub fn losses(&self) -> channel::Receiver<u64> {
        self.lost.clone()
    }

    /// Closes the inbox stream of builds before the partitions. It must be empty, no engine of such a build may wait
    /// for its messages, and none may have come for a day. Ten minutes later a further call deletes it. Who sends to it
    /// meanwhile gets an error. Returns whether there is none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn retire_old_inbox(&self) -> Result<bool, StoreError> {
        old_inbox::retire(&self.link, self.clock.now()).await
    }

    /// Markers of the rebuildable streams as they are now.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn markers(&self) -> Result<StreamMarkers, StoreError> {
        watch::present(&self.link).await
    }

    /// Notes that the streams with these markers hold all that is outstanding.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn note_whole(&self, markers: &StreamMarkers) -> Result<(), StoreError> {
        watch::note_whole(&self.link, markers).await
    }

    /// Stops taking messages and returns waiting ones, so that other engines need not wait for them, and takes away what
    /// the server keeps for this process.
    pub async fn close(&self) {
        futures::join!(self.inbox.close(), self.history.close());
    }
}

impl<C> Drop for NatsStore<C> {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Creates and compares every stream. Returns whether each has a single copy. A server without room for the
/// stream of changes still has a usable store.
async fn ensure_streams(
    js: &jetstream::Context,
    names: &Names,
    replicas: Option<usize>,
) -> Result<bool, OpenError> {
    let mut single = true;
    for spec in names.streams() {
        match streams::ensure(js, &spec, replicas, None).await {
            Ok(info) => single &= info.config.num_replicas == 1,
            Err(error @ OpenError::Server { .. }) if spec.name == names.changes_stream() => {
                tracing::warn!(%error, "changes are not published to NATS");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(single)
}

/// Deletes the inbox stream of earlier builds once it is unused. It runs beside the engine.
pub async fn run_old_inbox_retirement<C: Clock>(store: Arc<NatsStore<C>>) -> Infallible {
    loop {
        if let Err(error) = store.retire_old_inbox().await {
            tracing::debug!(%error, "the old inbox is examined again later");
        }
        tokio::time::sleep(RETIRE_EVERY).await;
    }
}

impl<C: Clock> Ports for NatsStore<C> {
    type History = NatsHistory;
    type Reader = NatsHistory;
    type Inbox = NatsInbox;
    type Tasks = NatsTasks;
    type Alarms = NatsAlarms;
    type Dead = NatsDead;
    type Quarantine = NatsQuarantine;
    type Clock = C;

    fn history(&self) -> &NatsHistory {
        &self.history
    }
    fn reader(&self) -> &NatsHistory {
        &self.history
    }
    fn inbox(&self) -> &NatsInbox {
        &self.inbox
    }
    fn tasks(&self) -> &NatsTasks {
        &self.tasks
    }
    fn alarms(&self) -> &NatsAlarms {
        &self.alarms
    }
    fn dead(&self) -> &NatsDead {
        &self.dead
    }
    fn quarantine(&self) -> &NatsQuarantine {
        &self.quarantine
    }
    fn clock(&self) -> &C {
        &self.clock
    }
    fn history_keys(&self) -> Option<&HistoryKeys> {
        self.history_keys.as_deref()
    }
}
