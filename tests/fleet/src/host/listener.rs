//! Port 22 of a host as a real socket: open, refused, or silent, as its phase has it.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::computer::{Host, Phase};

/// Connections that the kernel queues for a host that answers.
const BACKLOG: u32 = 128;

/// Listens for as long as the host has this address.
pub(super) async fn listen(host: Arc<Host>, address: SocketAddr) {
    let mut phase = host.watch_phase();
    while host.internal_ip() == address.ip().to_string() {
        let now = *phase.borrow_and_update();
        let changed = match now {
            Phase::Off | Phase::Dropping => {
                let _deaf = deaf(address).await;
                phase.changed().await
            }
            Phase::Refusing => phase.changed().await,
            Phase::Resetting | Phase::AuthFailing | Phase::Up => {
                tokio::select! {
                    changed = phase.changed() => changed,
                    () = accept(&host, address) => phase.changed().await,
                }
            }
        };
        if changed.is_err() {
            return;
        }
    }
}

async fn accept(host: &Arc<Host>, address: SocketAddr) {
    let Ok(listener) = bind(address, BACKLOG) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        host.serve(stream);
    }
}

fn bind(address: SocketAddr, backlog: u32) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

/// A listener whose queue is full: the kernel drops every further SYN, as a firewall would.
async fn deaf(address: SocketAddr) -> Option<(TcpListener, TcpStream)> {
    let listener = bind(address, 0).ok()?;
    let filler = TcpStream::connect(address).await.ok()?;
    Some((listener, filler))
}
