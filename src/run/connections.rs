//! Limit on the connections of each peer, so that no peer takes all. A connection counts from its first packet, so
//! that a TLS handshake that never ends is limited too.

use dormer_proto::lock::Locked as _;
use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::net::{TcpListener, TcpStream};

/// Pause after a failed accept, for example when the process has no file descriptors left.
const PAUSE: Duration = Duration::from_secs(1);

/// Most connections of one peer beyond loopback. A proxy is one peer for all of its callers, and each open page uses
/// one connection.
const PEER_MAX: usize = 512;
/// Most connections of all peers beyond loopback.
const CONNECTIONS_MAX: usize = 2_048;

/// Source of connections that are within the limits.
pub(crate) trait Accept {
    /// Stream of bytes of a connection.
    type Stream;

    /// Next connection, its peer, and its slot among the peer's.
    fn accept(&mut self)
    -> impl Future<Output = (Self::Stream, SocketAddr, OpenConnection)> + Send;
}

/// Listener that refuses connections beyond the limits.
pub(crate) struct Limited {
    listener: TcpListener,
    connections: Arc<Connections>,
}

impl Limited {
    /// `listener` with the limits of this module.
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self::within(listener, Connections::default())
    }

    pub(crate) fn within(listener: TcpListener, connections: Connections) -> Self {
        let connections = Arc::new(connections);
        Self {
            listener,
            connections,
        }
    }

    /// Address of the listener.
    ///
    /// # Errors
    /// The socket has none.
    #[cfg(test)]
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Accept for Limited {
    type Stream = TcpStream;

    async fn accept(&mut self) -> (TcpStream, SocketAddr, OpenConnection) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => match self.connections.open(peer.ip()) {
                    Some(open) => return (stream, peer, open),
                    None => tracing::debug!(%peer, "a connection is refused: there are too many"),
                },
                Err(error) if is_of_one(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Whether the error is of one connection, whose peer has gone.
fn is_of_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// Open connections by peer.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Lock held for one map operation, never across an await.
    open: Mutex<HashMap<IpAddr, usize>>,
    /// Most of one peer.
    peer_max: usize,
    /// Peers that are not limited.
    unlimited: fn(&IpAddr) -> bool,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            peer_max: PEER_MAX,
            unlimited: IpAddr::is_loopback,
        }
    }
}

/// An open connection. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    connections: Arc<Connections>,
    peer: IpAddr,
}

impl Connections {
    fn all(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.locked()
    }

    /// Counts a connection. `None`: the peer, or all peers together, have reached the limit. Peers on this computer are
    /// not limited, and use no slot of others.
    pub(crate) fn open(self: &Arc<Self>, peer: IpAddr) -> Option<OpenConnection> {
        let peer = peer.to_canonical();
        if !(self.unlimited)(&peer) {
            let mut all = self.all();
            let of_peer = all.get(&peer).copied().unwrap_or_default();
            if of_peer >= self.peer_max || all.values().sum::<usize>() >= CONNECTIONS_MAX {
                return None;
            }
            all.insert(peer, of_peer + 1);
        }
        let connections = Arc::clone(self);
        Some(OpenConnection { connections, peer })
    }
}

impl Drop for OpenConnection {
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
pub(crate) mod tests {
    use super::*;

    /// Listener on loopback, which limits its peers to `peer_max` connections.
    pub(crate) async fn listener(peer_max: usize) -> (Limited, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let connections = Connections {
            peer_max,
            unlimited: |_| false,
            ..Connections::default()
        };
        let limited = Limited::within(listener, connections);
        let address = limited.address().expect("an address");
        (limited, address)
    }

    #[test]
    fn one_peer_has_its_share_and_leaves_the_others_theirs() {
        let connections = Arc::<Connections>::default();
        let peer = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut held: Vec<OpenConnection> = Vec::new();
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
