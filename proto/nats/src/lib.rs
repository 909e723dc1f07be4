//! Connections to NATS for engine and workers: login, TLS, reconnecting, and signatures of messages.
//! The keys of the history lie beside the keys of the messages.

pub mod history_keys;
pub mod signing;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr};
use std::{path::PathBuf, time::Duration};

/// Time limit of one answer of the server.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Login to the server.
#[derive(Clone, Default)]
pub enum Login {
    /// No login, or the user in the URL.
    #[default]
    Open,
    /// A user with a password.
    User {
        /// Name of the user.
        user: String,
        password: String,
    },
    Token(String),
    /// A credentials file (`.creds`: a JWT and its key).
    #[cfg(feature = "nats-creds")]
    CredentialsFile(PathBuf),
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Secrets do not belong in logs.
        f.write_str(match self {
            Self::Open => "Open",
            Self::User { .. } => "User",
            Self::Token(_) => "Token",
            #[cfg(feature = "nats-creds")]
            Self::CredentialsFile(_) => "CredentialsFile",
        })
    }
}

/// TLS files, PEM.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// CA certificates to trust beside the system's.
    pub ca: Option<PathBuf>,
    /// Client certificate and its key, if the server requires one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Refuse a server without TLS.
    pub required: bool,
}

/// Why there is no connection to NATS, and whether another try can help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot connect to {servers}: {why}")]
pub struct ConnectError {
    pub servers: String,
    /// Error of the client.
    pub why: String,
    /// Whether another try would end in the same way: a refused login, an unreadable address or file. A server that
    /// does not answer may still be starting.
    pub lasting: bool,
}

/// Settings of a connection under `name`, with room for `capacity` outgoing messages. A lost connection is retried
/// without limit.
pub fn settings(name: &str, capacity: usize) -> ConnectOptions {
    ConnectOptions::new()
        .name(name)
        .client_capacity(capacity)
        .request_timeout(Some(ANSWER_MAX))
        // The client retries for the whole length of an outage.
        .max_reconnects(None)
        .reconnect_delay_callback(|tries| Duration::from_millis((50 << tries.min(6)) as u64))
}

/// Whether it can stand in a subject as it is.
fn is_token(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    !text.is_empty() && text.chars().all(fits)
}

/// Beginnings of an address that the client knows.
const SCHEMES: [&str; 4] = ["nats://", "tls://", "ws://", "wss://"];

/// Beginning of an address, or nothing if it has none that the client knows.
fn scheme(address: &str) -> &'static str {
    let begins = |it: &&str| address.trim_start().starts_with(*it);
    SCHEMES.into_iter().find(begins).unwrap_or_default()
}

/// The servers for logs and people: `***` stands for a login in an address.
#[must_use]
pub fn without_logins(servers: &str) -> String {
    let mut shown = Vec::new();
    // Whether what comes next is the rest of a login: a password may hold a comma.
    let mut splits_login = false;
    for server in servers.rsplit(',') {
        shown.push(match server.rsplit_once('@') {
            Some((_, host)) => format!("{}***@{host}", scheme(server)),
            None if splits_login => "***".to_owned(),
            None => server.to_owned(),
        });
        splits_login = (splits_login || server.contains('@')) && scheme(server).is_empty();
    }
    shown.reverse();
    shown.join(",")
}

/// Connects to one of `servers`, which commas separate.
///
/// # Errors
/// [`ConnectError`]: no server answers, or it rejects the login.
pub async fn connect(
    mut settings: ConnectOptions,
    servers: &str,
    login: &Login,
    tls: &Tls,
) -> Result<Client, ConnectError> {
    let failed = |why: String, lasting: bool| ConnectError {
        servers: without_logins(servers),
        why,
        lasting,
    };
    let refused = |why: String| failed(why, true);
    let mut addresses = Vec::new();
    for server in servers
        .split(',')
        .filter(|server| !server.trim().is_empty())
    {
        addresses.push(
            server
                .trim()
                .parse::<ServerAddr>()
                .map_err(|e| refused(e.to_string()))?,
        );
    }
    settings = match login {
        Login::Open => settings,
        Login::User { user, password } => {
            let settings = settings.user_and_password(user.clone(), password.clone());
            // Answers come where this user alone may listen, if the server's permissions say so.
            match is_token(user) {
                true => settings.custom_inbox_prefix(format!("_INBOX.{user}")),
                false => settings,
            }
        }
        Login::Token(token) => settings.token(token.clone()),
        #[cfg(feature = "nats-creds")]
        Login::CredentialsFile(path) => settings
            .credentials_file(path)
            .await
            .map_err(|e| refused(e.to_string()))?,
    };
    settings = settings.require_tls(tls.required);
    if let Some(ca) = &tls.ca {
        settings = settings.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &tls.identity {
        settings = settings.add_client_certificate(certificate.clone(), key.clone());
    }
    settings.connect(addresses).await.map_err(|error| {
        // The kind alone says "authorization violation"; the source says which file or name was wrong.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let why = source.map_or_else(|| error.to_string(), |source| format!("{error} ({source})"));
        let lasting = matches!(
            error.kind(),
            ConnectErrorKind::Authentication
                | ConnectErrorKind::AuthorizationViolation
                | ConnectErrorKind::ServerParse
        );
        failed(why, lasting)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_login_is_shown() {
        for (servers, shown) in [
            ("nats://h:4222", "nats://h:4222"),
            ("h:4222,tls://i", "h:4222,tls://i"),
            ("nats://u:p@h:4222", "nats://***@h:4222"),
            ("nats://u:p@ss@h:4222", "nats://***@h:4222"),
            ("nats://u:pa,ss@h:4222", "***,***@h:4222"),
            ("nats://u:77,s,s@h:4222", "***,***,***@h:4222"),
            ("u:p://s@h:4222", "***@h:4222"),
            (
                "nats://g,nats://u:p@h,wss://i",
                "nats://g,nats://***@h,wss://i",
            ),
            ("nats://a:p@g,b:p@h", "nats://***@g,***@h"),
        ] {
            assert_eq!(without_logins(servers), shown);
        }
    }
}
