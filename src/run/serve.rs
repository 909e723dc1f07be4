//! Listener of health, readiness, API and console.

use super::{
    roles::{CONSOLE, Running},
    tls::Tls,
};
use anyhow::Context;
use axum::{Router, serve::ListenerExt};
use dormer_telemetry::health::RoleStatus;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

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
    // With the peer's address, because not every caller may act.
    let app = router.into_make_service_with_connect_info::<SocketAddr>();
    running.beside(CONSOLE, async move {
        match tls {
            // axum knows a peer's address on a foreign listener type only through `tap_io`.
            Some(acceptor) => {
                axum::serve(Tls::over(listener, acceptor)?.tap_io(|_| ()), app).await?
            }
            None => axum::serve(listener, app).await?,
        }
        Ok(())
    });
}
