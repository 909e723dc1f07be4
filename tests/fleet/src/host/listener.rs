//! Port 22 of a host as a real socket: open, refused, or silent, as its phase has it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;

use super::computer::{Host, HostPhase};

/// Connections that the kernel queues for a host that answers.
const BACKLOG: u32 = 128;
/// The pause before an address is tried again that cannot be had just now.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Listens for as long as the host has this address.
pub(super) async fn listen(host: Arc<Host>, address: SocketAddr) {
    let mut phase = host.watch_phase();
    while host.internal_ip() == address.ip().to_string() {
        let now = *phase.borrow_and_update();
        let changed = match now {
            HostPhase::Off | HostPhase::Dropping => {
                tokio::select! {
                    changed = phase.changed() => changed,
                    never = deaf(address) => match never {},
                }
            }
            HostPhase::Refusing => phase.changed().await,
            HostPhase::Resetting | HostPhase::AuthFailing | HostPhase::Up => {
                tokio::select! {
                    changed = phase.changed() => changed,
                    never = accept(&host, address) => match never {},
                }
            }
        };
        if changed.is_err() {
            return;
        }
    }
}

async fn accept(host: &Arc<Host>, address: SocketAddr) -> Infallible {
    let listener = bound(address, BACKLOG).await;
    loop {
        // It fails where a peer has gone before it was answered, or files run out: the next one is another matter.
        let Ok((stream, _)) = listener.accept().await else {
            sleep(AGAIN_AFTER).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        host.serve(stream);
    }
}

/// Listens. The host's own listener of before may live a moment longer in a process that was forked meanwhile and has
/// not begun its program yet: the address is in use until then.
async fn bound(address: SocketAddr, backlog: u32) -> TcpListener {
    loop {
        match bind(address, backlog) {
            Ok(listener) => return listener,
            Err(_) => sleep(AGAIN_AFTER).await,
        }
    }
}

fn bind(address: SocketAddr, backlog: u32) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

/// A listener whose queue is full: the kernel drops every further SYN, as a firewall would.
async fn deaf(address: SocketAddr) -> Infallible {
    let listener = bound(address, 0).await;
    let _filler = TcpStream::connect(address).await;
    let never = std::future::pending().await;
    drop(listener);
    never
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::time::timeout;

    #[tokio::test]
    async fn an_address_that_is_in_use_for_a_moment_is_listened_on_afterwards() {
        let before = bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), 1).expect("a listener");
        let address = before.local_addr().expect("an address");
        let mut listening = std::pin::pin!(bound(address, 1));
        assert!(
            timeout(AGAIN_AFTER * 2, listening.as_mut()).await.is_err(),
            "it is in use"
        );
        drop(before);
        timeout(Duration::from_secs(10), listening)
            .await
            .expect("it listens");
    }
}
