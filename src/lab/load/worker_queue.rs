//! Order source of the bench's worker: the queue in this process, or a consumer on NATS.

use anyhow::Context;
use async_nats::jetstream::{self, AckKind, consumer::pull};
use dormer_engine::local::LocalTasks;
use dormer_proto::{id::RunId, subject::Names};
use futures::StreamExt;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// Orders taken at once.
const TAKEN_MAX: usize = 1_024;
/// Time without orders after which the engine counts as stuck.
const QUIET_MAX: Duration = Duration::from_secs(10);

/// Worker's side of a task queue.
pub enum WorkerQueue {
    /// Queue in this process.
    Local(Arc<LocalTasks>),
    /// Queue on NATS. An order is acknowledged when the run's next order proves that its report was recorded.
    Nats {
        /// Messages from the server.
        orders: Box<pull::Stream>,
        /// Present order of each run.
        at: HashMap<RunId, jetstream::Message>,
    },
}

impl WorkerQueue {
    /// Consumer on the task stream of the store at `url`.
    pub async fn nats(url: &str, prefix: &str) -> anyhow::Result<Self> {
        let client = async_nats::connect(url)
            .await
            .context("the bench's worker cannot connect")?;
        let names = Names::with_prefix(prefix);
        let stream = jetstream::new(client)
            .get_stream(names.task_stream())
            .await?;
        let config = pull::Config {
            filter_subject: names.orders("task"),
            max_ack_pending: 100_000,
            ..pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await?;
        let orders = consumer
            .stream()
            .max_messages_per_batch(TAKEN_MAX)
            .messages()
            .await?;
        Ok(Self::Nats {
            orders: Box::new(orders),
            at: HashMap::new(),
        })
    }

    /// Bytes of the next orders, at least one.
    pub async fn take(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        let quiet = "no order for 10 s: the engine makes no progress";
        match self {
            Self::Local(tasks) => {
                let taken = tokio::time::timeout(QUIET_MAX, tasks.take(TAKEN_MAX)).await;
                let orders = taken.context(quiet)?;
                tasks.receipts();
                Ok(orders.into_iter().map(|order| order.bytes).collect())
            }
            Self::Nats { orders, at } => {
                let first = tokio::time::timeout(QUIET_MAX, orders.next())
                    .await
                    .context(quiet)?;
                let mut taken = vec![first.context("the consumer ended")??];
                // Adds orders that have already arrived, without waiting.
                while taken.len() < TAKEN_MAX {
                    match futures::FutureExt::now_or_never(orders.next()) {
                        Some(Some(message)) => taken.push(message?),
                        _ => break,
                    }
                }
                accept(taken, at).await
            }
        }
    }
}

impl WorkerQueue {
    /// Acknowledges every order taken so far, for a worker whose reports need no repeat.
    pub async fn acknowledge_all(&mut self) -> anyhow::Result<()> {
        if let Self::Nats { at, .. } = self {
            for (_, message) in at.drain() {
                message
                    .ack_with(AckKind::Ack)
                    .await
                    .map_err(|error| anyhow::anyhow!(error))?;
            }
        }
        Ok(())
    }
}

async fn accept(
    taken: Vec<jetstream::Message>,
    at: &mut HashMap<RunId, jetstream::Message>,
) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(taken.len());
    for message in taken {
        bytes.push(message.payload.to_vec());
        let run = run_of(&message.payload)?;
        if let Some(before) = at.insert(run, message) {
            before
                .ack_with(AckKind::Ack)
                .await
                .map_err(|error| anyhow::anyhow!(error))?;
        }
    }
    Ok(bytes)
}

fn run_of(bytes: &[u8]) -> anyhow::Result<RunId> {
    use crate::workflow::Payload;
    use dormer_proto::{envelope, message::TaskOrder};
    Ok(envelope::decode::<TaskOrder<Payload>>(bytes, 1)?.0.task.run)
}
