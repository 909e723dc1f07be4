//! Consumers that clients create on a server, by the requests for them.

use dormer_proto::{
    lock::Locked as _,
    subject::{HISTORY_STREAMS, Names},
};
use dormer_testkit::{NatsServer, await_condition};
use futures::StreamExt;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;

/// Who created consumers on each stream, in order.
type ByStream = BTreeMap<String, Vec<String>>;

/// Requests to create consumers.
pub(crate) struct Created {
    by_stream: Arc<Mutex<ByStream>>,
    client: async_nats::Client,
    noting: JoinHandle<()>,
}

impl Created {
    /// Requests on this server from now on.
    pub(crate) async fn on(server: &NatsServer) -> Self {
        let client = async_nats::connect(server.url()).await.expect("a client");
        let all = client.subscribe("$JS.API.CONSUMER.CREATE.>").await;
        let mut all = all.expect("subscribed");
        client.flush().await.expect("told");
        let by_stream = Arc::new(Mutex::new(ByStream::new()));
        let noted = Arc::clone(&by_stream);
        let noting = tokio::spawn(async move {
            while let Some(request) = all.next().await {
                let stream = request.subject.split('.').nth(4).unwrap_or_default();
                // The connection's own inbox, with a token for the request.
                let reply = request.reply.as_deref().unwrap_or_default();
                let client = reply.rsplit_once('.').unwrap_or_default().0.to_owned();
                let mut by_stream = noted.locked();
                by_stream.entry(stream.to_owned()).or_default().push(client);
            }
        });
        Self {
            by_stream,
            client,
            noting,
        }
    }

    pub(crate) fn forget(&self) {
        let mut by_stream = self.by_stream.locked();
        by_stream.clear();
    }

    /// Creators on each history stream so far.
    pub(crate) fn of_streams(&self) -> Vec<Vec<String>> {
        let by_stream = self.by_stream.locked();
        let names = (0..HISTORY_STREAMS).map(|index| Names::default().history_stream(index));
        names
            .map(|name| by_stream.get(&name).cloned().unwrap_or_default())
            .collect()
    }

    /// Number of creations on each history stream until now: every answered request is counted.
    pub(crate) async fn counts(&self) -> Vec<usize> {
        let end = format!("end-{}", rand::random::<u64>());
        let subject = format!("$JS.API.CONSUMER.CREATE.{end}");
        self.client.publish(subject, "".into()).await.expect("told");
        await_condition(
            "what was asked until now",
            Duration::from_secs(60),
            || async {
                let by_stream = self.by_stream.locked();
                by_stream.contains_key(&end)
            },
        )
        .await;
        self.of_streams().iter().map(Vec::len).collect()
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        self.noting.abort();
    }
}
