//! Facts over NATS: the store's identity, epochs, live machines, and the messages of the inbox.

use super::link::{ANSWER_MAX, NatsLink, failed};
use crate::{
    message_bytes,
    port::{EpochStart, Facts, PortError},
};
use async_nats::{
    HeaderMap,
    jetstream::consumer::{AckPolicy, DeliverPolicy, pull},
};
use bytes::Bytes;
use dormer_proto::{
    address::{Address, Origin},
    id::Epoch,
    subject::{CLOSED_HEADER, HISTORY_STREAMS, META_EPOCH, Names},
    work::{FactMessage, MACHINE},
};
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::timeout;

/// Most concurrent publishes.
const PUBLISHES_MAX: usize = 256;
/// Most heads requested at once.
const HEADS_MAX: usize = 5_000;

/// Where the watcher's facts go, on NATS.
pub struct NatsFacts {
    link: Arc<NatsLink>,
}

impl NatsFacts {
    /// Facts over this connection.
    #[must_use]
    pub fn new(link: Arc<NatsLink>) -> Self {
        Self { link }
    }

    /// The machines of one history stream whose last record is not their end: the headers alone are read.
    async fn live_of(&self, index: u64) -> Result<Vec<String>, PortError> {
        let name = self.link.names.history_stream(index);
        let mut stream = self.link.js.get_stream(&name).await.map_err(failed)?;
        let end = stream.info().await.map_err(failed)?.state.last_sequence;
        let config = pull::Config {
            deliver_policy: DeliverPolicy::LastPerSubject,
            ack_policy: AckPolicy::None,
            filter_subject: self.link.names.history_of(index, MACHINE),
            headers_only: true,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: Duration::from_secs(30),
            ..pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(failed)?;
        let mut pending = consumer.cached_info().num_pending;
        // A run may be met twice, when it writes meanwhile: the later word counts.
        let mut open = BTreeMap::new();
        while pending > 0 {
            let page = consumer.fetch().max_messages(HEADS_MAX).messages();
            let mut page = page.await.map_err(failed)?;
            let before = pending;
            while let Some(message) = timeout(ANSWER_MAX, page.next()).await.map_err(failed)? {
                let message = message.map_err(failed)?;
                let info = message.info().map_err(failed)?;
                pending = if info.stream_sequence >= end {
                    0
                } else {
                    info.pending
                };
                let closed = message
                    .headers
                    .as_ref()
                    .and_then(|all| all.get(CLOSED_HEADER));
                if let Some(run) = Names::run_of(message.subject.as_str()) {
                    open.insert(run, closed.is_none());
                }
            }
            if pending == before {
                return Err(PortError(format!("{name} sends no heads")));
            }
        }
        let _ = stream.delete_consumer(&consumer.cached_info().name).await;
        let live = open.into_iter().filter(|(_, open)| *open);
        Ok(live.map(|(run, _)| run.key().to_owned()).collect())
    }
}

impl Facts for NatsFacts {
    async fn begin(&self) -> Result<EpochStart, PortError> {
        let incarnation = self.link.incarnation().await?;
        // The sequence of a message in the identity's stream only grows.
        let epoch = self
            .link
            .publish(
                self.link.names.meta(META_EPOCH),
                HeaderMap::new(),
                Bytes::new(),
            )
            .await?;
        let live = try_join_all((0..HISTORY_STREAMS).map(|index| self.live_of(index))).await?;
        Ok(EpochStart {
            incarnation,
            epoch: Epoch(epoch),
            live: live.concat(),
        })
    }

    async fn publish(&self, messages: Vec<FactMessage>) -> Result<(), PortError> {
        let mut encoded = Vec::with_capacity(messages.len());
        for one in &messages {
            match message_bytes::fact(one) {
                Ok(bytes) => {
                    let subject = self.link.names.message(Origin::Watcher, &Address::of(one));
                    let incarnation = one.incarnation.unwrap_or_default();
                    let headers =
                        self.link
                            .signature(Origin::Watcher, incarnation, &subject, &bytes);
                    encoded.push((subject, headers, bytes));
                }
                Err(error) => tracing::error!(run = %one.run, %error, "a fact cannot be written"),
            }
        }
        let put = |(subject, headers, bytes): (String, HeaderMap, Vec<u8>)| {
            self.link.publish(subject, headers, bytes.into())
        };
        let puts = stream::iter(encoded)
            .map(put)
            .buffer_unordered(PUBLISHES_MAX);
        puts.try_for_each(async |_| Ok(())).await
    }
}
