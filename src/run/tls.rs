//! TLS listener: handshakes run concurrently, and yield connections.

use anyhow::Context;
use axum::serve::Listener;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Time limit of a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Established connections that wait to be accepted.
const WAITING_MAX: usize = 64;
/// Pause after a failed accept, for example when the process has no file descriptors left.
const PAUSE: Duration = Duration::from_secs(1);

/// TLS acceptor with this certificate.
///
/// # Errors
/// A file cannot be read or parsed, or certificate and key do not match.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> anyhow::Result<TlsAcceptor> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)
        .with_context(|| format!("--tls-certificate {}", certificate.display()))?
        .collect();
    let chain = chain.with_context(|| format!("--tls-certificate {}", certificate.display()))?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("--tls-key {}", key.display()))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .context("--tls-certificate and --tls-key do not match")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Listener of established TLS connections.
pub(crate) struct Tls {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl Tls {
    /// Accepts on `listener` until it is dropped.
    ///
    /// # Errors
    /// The listener has no address.
    pub(crate) fn over(listener: TcpListener, acceptor: TlsAcceptor) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (tell, ready) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move {
            loop {
                let (stream, peer) = tokio::select! {
                    () = tell.closed() => return,
                    accepted = listener.accept() => match accepted {
                        Ok(accepted) => accepted,
                        Err(error) => {
                            tracing::warn!(%error, "cannot accept a connection");
                            tokio::time::sleep(PAUSE).await;
                            continue;
                        }
                    },
                };
                let acceptor = acceptor.clone();
                let tell = tell.clone();
                tokio::spawn(async move {
                    match timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => drop(tell.send((stream, peer)).await),
                        Ok(Err(error)) => tracing::debug!(%error, %peer, "TLS handshake failed"),
                        Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
                    }
                });
            }
        });
        Ok(Self { address, ready })
    }
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(ready) => ready,
            // The accepting task lives as long as this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}
