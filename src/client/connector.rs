//! Connections to dormer: TCP, or a port of its pod that the API server forwards, optionally with TLS.

use super::{Failure, forwarded_pod::ForwardedPod};
use futures::future::BoxFuture;
use hyper::{Uri, rt};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use std::{
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tower::Service;

/// Time limit for establishing a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Target of a connection.
#[derive(Clone)]
pub(super) enum DialTarget {
    /// Port of a host.
    Tcp(String, u16),
    /// Port of a pod, through the API server.
    Forward(Arc<ForwardedPod>),
}

/// Connector for any number of connections.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) dial: DialTarget,
    /// TLS configuration, and the name that the certificate must carry.
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// Established connection.
pub(super) struct Wire(TokioIo<Pin<Box<dyn Stream>>>);

impl Wire {
    /// Underlying stream.
    pub(super) fn into_inner(self) -> Pin<Box<dyn Stream>> {
        self.0.into_inner()
    }
}

impl Connector {
    pub(super) async fn connect(self) -> io::Result<Wire> {
        let stream: Pin<Box<dyn Stream>> = match self.dial {
            DialTarget::Tcp(host, port) => Box::pin(TcpStream::connect((host, port)).await?),
            DialTarget::Forward(pod) => {
                let (mut forwarded, port) = pod.forward().await?;
                let stream = forwarded.take_stream(port);
                // A task of its own carries the bytes. It ends with the stream.
                Box::pin(
                    stream.ok_or_else(|| io::Error::other("the API server forwarded no port"))?,
                )
            }
        };
        let stream = match self.tls {
            Some((connector, name)) => Box::pin(connector.connect(name, stream).await?),
            None => stream,
        };
        Ok(Wire(TokioIo::new(stream)))
    }
}

impl Service<Uri> for Connector {
    type Response = Wire;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Wire>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let connected = timeout(CONNECT_MAX, connector.connect()).await;
            connected.unwrap_or_else(|_| Err(io::Error::other("no connection within 10 s")))
        })
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl rt::Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl rt::Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// TLS to a server of this name. Certificates are verified with the CAs in the file, or with the system's.
///
/// # Errors
/// The file cannot be read or has no CA; the system has none; the name is invalid.
pub(super) fn tls(
    host: &str,
    authorities: Option<&Path>,
) -> Result<(TlsConnector, ServerName<'static>), Failure> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = authorities {
        let wrong = |why: String| Failure::Usage(format!("--ca-file {}: {why}", path.display()));
        let read = CertificateDer::pem_file_iter(path).map_err(|why| wrong(why.to_string()))?;
        for certificate in read {
            let certificate = certificate.map_err(|why| wrong(why.to_string()))?;
            roots
                .add(certificate)
                .map_err(|why| wrong(why.to_string()))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err(Failure::Usage(
            "the system has no CA certificates for TLS: give --ca-file".into(),
        ));
    }
    let name = ServerName::try_from(host.to_owned())
        .map_err(|why| Failure::Usage(format!("{host} is not a valid server name: {why}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| Failure::Usage(why.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), name))
}
