//! The listener of health, readiness and the console.

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

/// Takes the address, before anything else begins: a second dormer by mistake ends here.
///
/// # Errors
/// The address is taken, or not ours.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address}; --listen names another address, and port 0 any free port"
        )
    })
}

/// Answers on `listener` until the roles end; over TLS, where there is a certificate.
pub fn serve(
    running: &mut Running,
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
) {
    running.health().tell(CONSOLE, RoleStatus::Up);
    // With who asks, since not everybody may.
    let app = router.into_make_service_with_connect_info::<SocketAddr>();
    running.beside(CONSOLE, async move {
        match tls {
            // Tapped, since a peer's address is known of listeners of others only so.
            Some(acceptor) => {
                axum::serve(Tls::over(listener, acceptor)?.tap_io(|_| ()), app).await?
            }
            None => axum::serve(listener, app).await?,
        }
        Ok(())
    });
}
