//! Connecting, and refusing a server that is unfit.

use super::options::{Login, OpenError, Options, Sync, Synced};
use async_nats::{Client, ConnectOptions, Event, ServerAddr, jetstream};
use dormer_proto::subject::SERVER_OLDEST;
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
};

/// How long one answer of the server may take before it counts as none.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Longest monitoring page that is read, in bytes.
const MONITOR_BYTES_MAX: u64 = 1 << 20;

/// Connects. `reconnected` is told of every connection after the first.
pub(super) async fn connect(
    options: &Options,
    reconnected: Arc<Notify>,
) -> Result<Client, OpenError> {
    let refused = |why: String| OpenError::Connect {
        servers: options.servers.clone(),
        why,
    };
    let mut servers = Vec::new();
    for server in options.servers.split(',').filter(|s| !s.trim().is_empty()) {
        servers.push(
            server
                .trim()
                .parse::<ServerAddr>()
                .map_err(|e| refused(e.to_string()))?,
        );
    }
    let mut how = ConnectOptions::new()
        .name("dormer")
        .client_capacity(16_384)
        .request_timeout(Some(ANSWER_MAX))
        // An outage may last as long as it likes.
        .max_reconnects(None)
        .reconnect_delay_callback(|tries| Duration::from_millis((50 << tries.min(6)) as u64))
        .event_callback(move |event| {
            if event == Event::Connected {
                reconnected.notify_one();
            }
            async {}
        });
    how = match &options.login {
        Login::Open => how,
        Login::User { user, password } => how.user_and_password(user.clone(), password.clone()),
        Login::Token(token) => how.token(token.clone()),
        #[cfg(feature = "nats-creds")]
        Login::CredentialsFile(path) => how
            .credentials_file(path)
            .await
            .map_err(|e| refused(e.to_string()))?,
    };
    how = how.require_tls(options.tls.required);
    if let Some(ca) = &options.tls.ca {
        how = how.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &options.tls.identity {
        how = how.add_client_certificate(certificate.clone(), key.clone());
    }
    how.connect(servers).await.map_err(|error| {
        // The kind alone says "authorization violation"; the source says which file or name was wrong.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        refused(source.map_or_else(|| error.to_string(), |source| format!("{error} ({source})")))
    })
}

/// Refuses a server that is too old, without JetStream, or without the syncing that was asked for.
pub(super) async fn check(
    client: &Client,
    js: &jetstream::Context,
    options: &Options,
) -> Result<Synced, OpenError> {
    let info = client.server_info();
    if version(&info.version).is_none_or(|found| found < SERVER_OLDEST) {
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
    match (options.sync, synced) {
        (Sync::Always, Synced::Lazy) => return Err(OpenError::LazySync),
        (Sync::Always, Synced::Unknown) => tracing::warn!(
            "cannot find out whether the server syncs each write: make sure that it has `sync_interval: always`, or \
             name its monitoring page so that dormer can look"
        ),
        _ => {}
    }
    Ok(synced)
}

fn version(text: &str) -> Option<(u64, u64, u64)> {
    let plain = text.split(['-', '+']).next()?;
    let mut parts = plain.split('.').map(str::parse::<u64>);
    Some((
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    ))
}

/// Asks the monitoring page, then the system account (which few clients may).
async fn synced(client: &Client, options: &Options) -> Synced {
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
            Err(_) => Synced::Unknown,
        },
        _ => Synced::Unknown,
    }
}

fn read_varz(varz: &serde_json::Value) -> Synced {
    let config = &varz["jetstream"]["config"];
    match (config["sync_always"].as_bool(), config.is_object()) {
        (Some(true), _) => Synced::Always,
        (_, true) => Synced::Lazy,
        _ => Synced::Unknown,
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
        assert_eq!(version("2.12.3"), Some((2, 12, 3)));
        assert!(version("2.14.0-RC.1") > Some(SERVER_OLDEST));
        assert!(version("2.9.10") < Some(SERVER_OLDEST));
        assert_eq!(version("newest"), None);
    }
}
