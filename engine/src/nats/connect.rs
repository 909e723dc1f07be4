//! Connection to NATS, and rejection of unsuitable servers.

use super::options::{Durability, OpenError, Options, ServerSync};
use async_nats::{Client, Event, jetstream};
pub(super) use dormer_nats::ANSWER_MAX;
use dormer_proto::subject::SERVER_OLDEST;
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
};

/// Longest monitoring page, in bytes.
const MONITOR_BYTES_MAX: u64 = 1 << 20;

/// Connects. `reconnected` is notified of every connection after the first.
pub(super) async fn connect(
    options: &Options,
    reconnected: Arc<Notify>,
) -> Result<Client, OpenError> {
    let settings = dormer_nats::settings("dormer", 16_384).event_callback(move |event| {
        if event == Event::Connected {
            reconnected.notify_one();
        }
        async {}
    });
    let connected = dormer_nats::connect(settings, &options.servers, &options.login, &options.tls);
    Ok(connected.await?)
}

/// Rejects a server that is too old, lacks JetStream, or lacks the required syncing.
pub(super) async fn check(
    client: &Client,
    js: &jetstream::Context,
    options: &Options,
) -> Result<ServerSync, OpenError> {
    let info = client.server_info();
    if parse_version(&info.version).is_none_or(|found| found < SERVER_OLDEST) {
        return Err(OpenError::TooOld {
            found: info.version,
        });
    }
    if let Err(error) = js.query_account().await {
        return Err(OpenError::NoJetStream {
            why: error.to_string(),
        });
    }
    let synced = synced(client, options).await;
    match (options.durability, synced) {
        (Durability::PowerLossSafe, ServerSync::AtIntervals) => return Err(OpenError::LazySync),
        (Durability::PowerLossSafe, ServerSync::Unknown) => tracing::warn!(
            "cannot determine whether the server syncs each write: make sure that it has \
             `sync_interval: always`, or give its monitoring page so that dormer can check"
        ),
        _ => {}
    }
    Ok(synced)
}

fn parse_version(text: &str) -> Option<(u64, u64, u64)> {
    let plain = text.split(['-', '+']).next()?;
    let mut parts = plain.split('.').map(str::parse::<u64>);
    Some((
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    ))
}

/// Queries the monitoring page, then the system account (which few clients may use).
async fn synced(client: &Client, options: &Options) -> ServerSync {
    if let Some(monitor) = &options.monitor {
        let page = tokio::time::timeout(ANSWER_MAX, varz_page(monitor)).await;
        if let Ok(Ok(page)) = page {
            return read_varz(&page);
        }
        tracing::warn!(monitor, "the monitoring page does not answer");
    }
    let ask = client.request("$SYS.REQ.SERVER.PING.VARZ", "".into());
    match tokio::time::timeout(Duration::from_millis(500), ask).await {
        Ok(Ok(answer)) => match serde_json::from_slice::<serde_json::Value>(&answer.payload) {
            Ok(value) => read_varz(&value["data"]),
            Err(_) => ServerSync::Unknown,
        },
        _ => ServerSync::Unknown,
    }
}

fn read_varz(varz: &serde_json::Value) -> ServerSync {
    let config = &varz["jetstream"]["config"];
    match (config["sync_always"].as_bool(), config.is_object()) {
        (Some(true), _) => ServerSync::EveryWrite,
        (_, true) => ServerSync::AtIntervals,
        _ => ServerSync::Unknown,
    }
}

/// `/varz` of a monitoring page, over plain HTTP/1.0 so that the body ends with the connection.
async fn varz_page(monitor: &str) -> std::io::Result<serde_json::Value> {
    let host = monitor.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).await?;
    stream
        .write_all(format!("GET /varz HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes())
        .await?;
    let mut text = Vec::new();
    stream
        .take(MONITOR_BYTES_MAX)
        .read_to_end(&mut text)
        .await?;
    let start = text
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map_or(text.len(), |at| at + 4);
    serde_json::from_slice(&text[start..]).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered() {
        assert_eq!(parse_version("2.12.3"), Some((2, 12, 3)));
        assert!(parse_version("2.14.0-RC.1") > Some(SERVER_OLDEST));
        assert!(parse_version("2.9.10") < Some(SERVER_OLDEST));
        assert_eq!(parse_version("newest"), None);
    }
}
