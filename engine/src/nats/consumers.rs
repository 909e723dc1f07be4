//! Consumers from which engines pull: made once, and again where one is gone, was edited, or is stuck.

use super::{connect::ANSWER_MAX, link::Link, unacked::CLAIM};
use async_nats::jetstream::{
    self, ErrorCode,
    consumer::{self, AckPolicy, PullConsumer, pull},
    stream::{ConsumerError, ConsumerErrorKind},
};
use dormer_proto::subject::Names;
use std::{collections::HashMap, time::Duration};
use tokio::time::timeout;

/// Pulls in a row without a message, or silences of the server, after which the consumer is compared with what it was when
/// it was made.
pub(super) const FRUITLESS_MAX: u32 = 3;
/// Most unacknowledged due timers, over all engines.
const UNACKNOWLEDGED_MAX: i64 = 20_000;
/// Name of the consumer that all engines share, where there is one.
pub(super) const CONSUMER: &str = "engines";

/// Why a pull ended, and what it brought.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PullEnd {
    /// Whether it delivered anything.
    pub(super) brought: bool,
    /// Whether it ended because of the engine's rank.
    pub(super) for_rank: bool,
    /// Whether the consumer may be gone.
    pub(super) without_consumer: bool,
}

/// Settings of a consumer that all engines share.
pub(super) fn shared(filter: String) -> pull::Config {
    pull::Config {
        durable_name: Some(CONSUMER.to_owned()),
        filter_subject: filter,
        ack_policy: AckPolicy::Explicit,
        ack_wait: CLAIM,
        max_ack_pending: UNACKNOWLEDGED_MAX,
        ..pull::Config::default()
    }
}

pub(super) async fn make_consumer(
    link: &Link,
    stream: &str,
    config: pull::Config,
) -> Result<PullConsumer, ConsumerError> {
    link.js.create_consumer_on_stream(config, stream).await
}

/// Makes the consumer of a partition. Without a leader of the cluster there is no answer, and a repeat comes sooner to the
/// next leader than the longest wait for an answer.
struct ConsumerMaker {
    answer_max: Duration,
}

impl Default for ConsumerMaker {
    fn default() -> Self {
        let answer_max = Self::ANSWER_FIRST;
        Self { answer_max }
    }
}

impl ConsumerMaker {
    /// Longest wait for the first answer. Each further one waits twice as long, up to [`ANSWER_MAX`].
    const ANSWER_FIRST: Duration = Duration::from_secs(1);

    async fn make(
        &mut self,
        link: &Link,
        stream: &str,
        config: pull::Config,
    ) -> Option<PullConsumer> {
        let name = config.durable_name.clone();
        let made = timeout(self.answer_max, make_consumer(link, stream, config)).await;
        match made {
            Ok(Ok(made)) => {
                self.answer_max = Self::ANSWER_FIRST;
                return Some(made);
            }
            Ok(Err(error)) => {
                tracing::debug!(stream, name, %error, "no consumer");
                if is_taken(&link.names, stream, &error) {
                    delete_shared_consumer(link).await;
                }
            }
            Err(_) => {
                tracing::debug!(stream, name, "nobody answers who makes a consumer");
                self.answer_max = (self.answer_max * 2).min(ANSWER_MAX);
            }
        }
        None
    }
}

/// Consumer that is made once, and again only where it may be gone or is another than it was.
pub(super) struct KeptConsumer<'a> {
    stream: &'a str,
    config: pull::Config,
    maker: ConsumerMaker,
    known: Option<PullConsumer>,
    /// Pulls in a row that brought nothing.
    fruitless: u32,
}

impl<'a> KeptConsumer<'a> {
    pub(super) fn new(stream: &'a str, config: pull::Config) -> Self {
        Self {
            stream,
            config,
            maker: ConsumerMaker::default(),
            known: None,
            fruitless: 0,
        }
    }

    pub(super) async fn get(&mut self, link: &Link) -> Option<&PullConsumer> {
        if self.known.is_none() {
            let config = self.config.clone();
            self.known = self.maker.make(link, self.stream, config).await;
        }
        self.known.as_ref()
    }

    /// Follows the end of a pull. The server may refuse each request because the consumer was edited.
    pub(super) async fn ended(&mut self, end: PullEnd) {
        if end.without_consumer {
            self.known = None;
        }
        self.fruitless += 1;
        if end.brought || end.for_rank || self.known.is_none() {
            self.fruitless = 0;
        }
        if self.fruitless >= FRUITLESS_MAX
            && let Some(known) = &self.known
        {
            self.fruitless = 0;
            if is_changed(known).await {
                self.known = None;
            }
        }
    }
}

/// Whether a consumer was deleted or edited since it was made. `false` without an answer. A pause is an operator's
/// own, and ends by itself.
pub(super) async fn is_changed(consumer: &PullConsumer) -> bool {
    use jetstream::context::ConsumerInfoErrorKind::{NoResponders, Request, TimedOut};
    match consumer.get_info().await {
        Ok(info) => differs(&info, consumer.cached_info()),
        Err(error) => !matches!(error.kind(), TimedOut | Request | NoResponders),
    }
}

/// Whether two settings of a consumer differ in more than what a server adds.
fn differs(now: &consumer::Info, made: &consumer::Info) -> bool {
    let set = |info: &consumer::Info| consumer::Config {
        metadata: HashMap::new(),
        pause_until: None,
        ..info.config.clone()
    };
    let differs = set(now) != set(made);
    if differs {
        tracing::warn!(consumer = now.name, "somebody edited a consumer");
    }
    differs
}

/// Whether the consumer of builds that read all partitions with one reads the same messages. In another stream the
/// consumer in the way is another program's.
fn is_taken(names: &Names, stream: &str, error: &ConsumerError) -> bool {
    let inbox = stream == names.inbox_stream();
    matches!(error.kind(), ConsumerErrorKind::JetStream(error)
        if inbox && matches!(error.error_code(),
            ErrorCode::CONSUMER_WQ_CONSUMER_NOT_UNIQUE | ErrorCode::CONSUMER_WQ_MULTIPLE_UNFILTERED))
}

/// Whether a consumer must be made again: it is gone or another, or it is stuck.
///
/// Deletes a consumer that delivers nothing although messages are pending and there is room. The next one is new, and
/// begins with the unacknowledged messages.
pub(super) async fn stuck(link: &Link, consumer: &PullConsumer) -> bool {
    let Ok(info) = consumer.get_info().await else {
        return true;
    };
    if differs(&info, consumer.cached_info()) {
        return true;
    }
    let most = info.config.max_ack_pending;
    let full = i64::try_from(info.num_ack_pending).is_ok_and(|pending| pending >= most);
    if info.num_pending == 0 || full {
        return false;
    }
    tracing::warn!(
        consumer = info.name,
        pending = info.num_pending,
        "a consumer is stuck"
    );
    let _ = link
        .js
        .delete_consumer_from_stream(&info.name, &info.stream_name)
        .await;
    true
}

/// Deletes the consumer of builds that read all partitions with one. The messages stay.
pub(super) async fn delete_shared_consumer(link: &Link) {
    let stream = link.names.inbox_stream();
    let deleted = link.js.delete_consumer_from_stream(CONSUMER, &stream).await;
    tracing::debug!(gone = deleted.is_ok(), "the consumer of all partitions");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_that_reads_timers_costs_the_inbox_none() {
        let names = Names::default();
        let refused = |code: u64| {
            let error =
                serde_json::json!({"code": 400, "err_code": code, "description": "refused"});
            let error = serde_json::from_value(error).expect("an error of the server");
            ConsumerError::new(ConsumerErrorKind::JetStream(error))
        };
        let taken = |stream: &str, code: u64| is_taken(&names, stream, &refused(code));
        for code in [10_099, 10_100] {
            assert!(taken(&names.inbox_stream(), code), "{code}");
            assert!(!taken(&names.alarm_stream(), code), "{code}");
        }
        assert!(!taken(&names.inbox_stream(), 10_005), "no peers");
    }
}
