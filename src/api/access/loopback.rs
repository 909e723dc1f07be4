//! Loopback check: requests from this machine, and those through `kubectl port-forward`, which Kubernetes authorizes
//! by name.

use crate::ApiError;
use axum::{
    extract::ConnectInfo,
    http::{header::HOST, request::Parts},
};
use std::net::{IpAddr, SocketAddr};

/// Checks that a request comes from this machine under one of its own names. The second check stops DNS rebinding: a
/// foreign page can point its own name at our address, but cannot use our name.
pub(super) fn check(request: &Parts) -> Result<(), ApiError> {
    let peer = request
        .extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map(|peer| peer.0.ip());
    if !peer.is_some_and(|peer| peer.to_canonical().is_loopback()) {
        let peer = peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string());
        return Err(ApiError::far(&peer));
    }
    let host = host(request);
    if is_own_name(host) {
        Ok(())
    } else {
        Err(ApiError::far(host))
    }
}

/// Checks that a read from this computer uses one of its own names: a foreign page whose name resolves to our address
/// must not read either (DNS rebinding). The names of other peers are unknown.
pub(super) fn reads(request: &Parts) -> Result<(), ApiError> {
    let peer = request.extensions.get::<ConnectInfo<SocketAddr>>();
    let here = peer.is_some_and(|peer| peer.0.ip().to_canonical().is_loopback());
    match host(request) {
        name if here && !is_own_name(name) => Err(ApiError::misdirected(name)),
        _ => Ok(()),
    }
}

/// Host name in the request; empty if there is none.
pub(super) fn host(request: &Parts) -> &str {
    let host = request.headers.get(HOST);
    host.and_then(|host| host.to_str().ok()).unwrap_or_default()
}

/// Whether `host` is `localhost` or an IP address, with or without a port. Empty counts too: some programs send no
/// name.
pub(super) fn is_own_name(host: &str) -> bool {
    let port = |port: &str| port.parse::<u16>().is_ok();
    let name = host
        .rsplit_once(':')
        .filter(|it| port(it.1))
        .map_or(host, |(name, _)| name);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    host.is_empty() || name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{body::Body, extract::Request};

    fn from(peer: Option<&str>, host: &str) -> bool {
        let mut request = Request::post("/x")
            .header(HOST, host)
            .body(Body::empty())
            .unwrap();
        if let Some(peer) = peer {
            request
                .extensions_mut()
                .insert(ConnectInfo::<SocketAddr>(peer.parse().unwrap()));
        }
        check(&request.into_parts().0).is_ok()
    }

    fn reads_from(peer: &str, host: &str) -> bool {
        let request = Request::get("/x").header(HOST, host);
        let mut request = request.body(Body::empty()).unwrap();
        let peer = ConnectInfo::<SocketAddr>(peer.parse().unwrap());
        request.extensions_mut().insert(peer);
        reads(&request.into_parts().0).is_ok()
    }

    #[test]
    fn a_foreign_name_that_leads_here_reads_nothing() {
        assert!(reads_from("127.0.0.1:5000", "localhost:7080"));
        assert!(reads_from("[::1]:5000", "[::1]:7080"));
        assert!(
            reads_from("10.128.0.7:5000", "dormer.example"),
            "no proxy here"
        );
        for host in ["evil.example:7080", "127.0.0.1.evil.example"] {
            assert!(!reads_from("127.0.0.1:5000", host), "{host}");
            assert!(!reads_from("[::ffff:127.0.0.1]:5000", host), "{host}");
        }
    }

    #[test]
    fn actions_are_taken_from_this_machine_under_its_own_names() {
        for host in [
            "localhost:7080",
            "127.0.0.1:7080",
            "[::1]:7080",
            "127.0.0.1",
            "",
        ] {
            assert!(from(Some("127.0.0.1:5000"), host), "{host}");
        }
        assert!(from(Some("[::ffff:127.0.0.1]:5000"), "localhost"));
        assert!(!from(Some("10.128.0.7:5000"), "localhost:7080"));
        assert!(
            !from(None, "localhost:7080"),
            "who is not known is not near"
        );
        for host in [
            "evil.example:7080",
            "localhost.evil.example",
            "127.0.0.1.evil.example:1",
        ] {
            assert!(!from(Some("127.0.0.1:5000"), host), "{host}");
        }
    }
}
