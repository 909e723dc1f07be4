//! Fixtures of the NATS adapter's tests.
#![allow(dead_code, reason = "each test file takes what it needs")]

pub(crate) mod created;
pub(crate) mod ground;

use async_nats::jetstream::{self, AckKind, consumer::pull};
use dormer_engine::{
    nats::{Durability, NatsStore, Options},
    port::{Append, Delivery, Expected, Inbox, Ports},
};
use dormer_engine_core::{InboxMessageOf, Workflow};
use dormer_proto::{
    address::{Address, Origin},
    envelope,
    id::{RunId, Seq, Timestamp},
    message::{Inbound, InboxMessage, ReportReceipt, Reporter, TaskOrder, TaskReport},
    subject::Names,
};
use dormer_testkit::NatsServer;
use futures::StreamExt;
use std::time::Duration;
use tokio::time::timeout;

/// A store on this server that accepts how it syncs.
pub(crate) fn options(server: &NatsServer) -> Options {
    Options {
        servers: server.url(),
        durability: Durability::LazyAccepted,
        ..Options::default()
    }
}

/// A run of the workflow `machine`.
pub(crate) fn run(key: &str) -> RunId {
    RunId::new("machine", key).expect("a run id")
}

/// A record whose bytes are its run and seq.
pub(crate) fn append(run: &RunId, expected: Expected, seq: u64, deadline: Option<u64>) -> Append {
    Append {
        run: run.clone(),
        expected,
        bytes: format!("{run}@{seq}").into_bytes(),
        seq: Seq(seq),
        deadline: deadline.map(Timestamp),
        closed: None,
        quiet: false,
    }
}

/// The next message.
pub(crate) async fn taken(store: &NatsStore) -> Delivery {
    let take = tokio::time::timeout(Duration::from_secs(20), store.inbox().take(1));
    take.await
        .expect("a message in time")
        .expect("a message")
        .remove(0)
}

/// A worker: takes orders, reports until receipted, and only then lets the order go. What it does not answer, and what
/// it cannot read, it leaves to another.
pub(crate) async fn worker<W: Workflow>(
    server: String,
    name: &'static str,
    answer: fn(&W::Task) -> Option<W::Outcome>,
) {
    let names = Names::default();
    let client = async_nats::ConnectOptions::new()
        .max_reconnects(None)
        .connect(server.split(',').collect::<Vec<_>>())
        .await
        .expect("a client");
    let js = jetstream::new(client.clone());
    loop {
        let config = pull::Config {
            durable_name: Some("workers-task".into()),
            filter_subject: names.orders("task"),
            ..pull::Config::default()
        };
        let work = async {
            let consumer = js
                .create_consumer_on_stream(config, names.task_stream())
                .await
                .ok()?;
            let orders = consumer.stream().heartbeat(Duration::from_secs(1));
            let mut orders = orders
                .expires(Duration::from_secs(3))
                .messages()
                .await
                .ok()?;
            while let Some(Ok(message)) = orders.next().await {
                let client = client.clone();
                let js = js.clone();
                tokio::spawn(async move {
                    if done::<W>(&client, &js, name, &message, answer)
                        .await
                        .is_none()
                    {
                        let again = AckKind::Nak(Some(Duration::from_secs(1)));
                        let _ = message.ack_with(again).await;
                    }
                });
            }
            Some(())
        };
        work.await;
        let _ = timeout(Duration::from_millis(100), std::future::pending::<()>()).await;
    }
}

async fn done<W: Workflow>(
    client: &async_nats::Client,
    js: &jetstream::Context,
    name: &str,
    message: &jetstream::Message,
    answer: fn(&W::Task) -> Option<W::Outcome>,
) -> Option<()> {
    let names = Names::default();
    let (order, _) = envelope::decode::<TaskOrder<W::Task>>(&message.payload, W::SCHEMA).ok()?;
    let mut receipts = client.subscribe(names.receipts(name)).await.ok()?;
    let report = TaskReport {
        task: order.task.clone(),
        attempt: order.attempt,
        issued: order.issued,
        worker: name.to_owned(),
        by: Reporter::default(),
        result: Ok(answer(&order.body)?),
    };
    let inbox_message: InboxMessageOf<W> = InboxMessage {
        run: order.task.run.clone(),
        incarnation: Some(order.incarnation),
        body: Inbound::Reported(report),
    };
    let (bytes, _) = envelope::encode(&inbox_message, W::SCHEMA).ok()?;
    let subject = names.message(Origin::Worker, &Address::of(&inbox_message));
    for _ in 0..100 {
        let _ = js.publish(subject.clone(), bytes.clone().into()).await;
        let receipted = async {
            while let Some(receipt) = receipts.next().await {
                let read = envelope::decode::<ReportReceipt>(&receipt.payload, 0);
                if read.is_ok_and(|(r, _)| r.task == order.task && r.attempt == order.attempt) {
                    return;
                }
            }
        };
        if timeout(Duration::from_millis(500), receipted).await.is_ok() {
            let _ = message.ack().await;
            return Some(());
        }
    }
    None
}
