//! Listener of health, readiness, API and console.

use super::{
    roles::{CONSOLE, Running},
    tls::Tls,
};
use anyhow::Context;
use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
    serve::Listener,
};
use dormer_telemetry::health::RoleStatus;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    collections::HashMap,
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// Time limit of a request's headers, and of the pause before the next request of a connection.
const HEADERS_MAX: Duration = Duration::from_secs(60);
/// Most connections of one peer beyond loopback. A proxy is one peer for all of its callers, of whom each open page
/// holds one.
const PEER_MAX: usize = 512;
/// Most connections of all peers beyond loopback.
const CONNECTIONS_MAX: usize = 2_048;

/// Binds the address before anything else starts, so that a second dormer started by mistake fails here.
///
/// # Errors
/// The address is in use, or does not belong to this computer.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address}; give another address with --listen (port 0 is any free \
             port)"
        )
    })
}

/// Serves on `listener` until the roles end, over TLS if there is a certificate.
pub fn serve(
    running: &mut Running,
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
) {
    running.health().tell(CONSOLE, RoleStatus::Up);
    running.beside(CONSOLE, async move {
        match tls {
            Some(acceptor) => match accept(Tls::over(listener, acceptor)?, router).await {},
            None => match accept(listener, router).await {},
        }
    });
}

/// Serves every connection of the listener, within the limits of this module.
async fn accept<L: Listener<Addr = SocketAddr>>(mut listener: L, router: Router) -> Infallible {
    let connections = Arc::<Connections>::default();
    loop {
        let (stream, peer) = listener.accept().await;
        let Some(open) = connections.open(peer.ip()) else {
            tracing::debug!(%peer, "a connection is refused: there are too many");
            continue;
        };
        let router = router.clone();
        // With the peer's address, because not every caller may act.
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let mut request: Request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().oneshot(request)
        });
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_MAX)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, %peer, "a connection ended");
            }
            drop(open);
        });
    }
}

/// Open connections by peer.
#[derive(Debug, Default)]
struct Connections {
    /// Lock held for one map operation, never across an await.
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// An open connection. It counts until it is dropped.
#[derive(Debug)]
struct Open {
    connections: Arc<Connections>,
    peer: IpAddr,
}

impl Connections {
    fn all(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection. `None`: the peer, or all peers, have as many as they may. Who is on this computer is not
    /// limited, and takes no one's place.
    fn open(self: &Arc<Self>, peer: IpAddr) -> Option<Open> {
        let peer = peer.to_canonical();
        if !peer.is_loopback() {
            let mut all = self.all();
            let of_peer = all.get(&peer).copied().unwrap_or_default();
            if of_peer >= PEER_MAX || all.values().sum::<usize>() >= CONNECTIONS_MAX {
                return None;
            }
            all.insert(peer, of_peer + 1);
        }
        let connections = Arc::clone(self);
        Some(Open { connections, peer })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut all = self.connections.all();
        let Some(count) = all.get_mut(&self.peer) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            all.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    #[tokio::test(start_paused = true)]
    async fn who_never_ends_the_headers_is_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(accept(listener, Router::new()));
        let mut slow = TcpStream::connect(address).await.expect("connected");
        slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n")
            .await
            .expect("sent");
        let mut said = Vec::new();
        let ended = tokio::time::timeout(10 * HEADERS_MAX, slow.read_to_end(&mut said)).await;
        ended.expect("the connection ends").expect("read");
    }

    #[test]
    fn one_peer_has_its_share_and_leaves_the_others_theirs() {
        let connections = Arc::<Connections>::default();
        let peer = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut held: Vec<Open> = Vec::new();
        held.extend((0..PEER_MAX).map_while(|_| connections.open(peer(1))));
        assert_eq!(held.len(), PEER_MAX);
        assert!(connections.open(peer(1)).is_none());
        let mapped = "::ffff:10.0.0.1".parse().expect("an address");
        assert!(connections.open(mapped).is_none(), "the same peer");
        assert!(connections.open(peer(2)).is_some());
        held.truncate(PEER_MAX - 1);
        assert!(connections.open(peer(1)).is_some(), "one has ended");

        let most = |_| (2..=254).find_map(|last| connections.open(peer(last)));
        held.extend((0..CONNECTIONS_MAX).map_while(most));
        assert_eq!(held.len(), CONNECTIONS_MAX);
        assert!(connections.open(peer(255)).is_none());
        assert!(connections.open(IpAddr::from([127, 0, 0, 1])).is_some());
        held.clear();
        assert!(
            connections.all().is_empty(),
            "nothing is kept of who has gone"
        );
    }
}
