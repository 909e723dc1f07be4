//! The kubelet's own port, by which the API server reaches logs and exec: TLS with the serving certificate that it has.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::{ServerConfig, server::ResolvesServerCertUsingSni};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::KUBELET_PORT;
use super::settings::{Settings, text};
use crate::host::computer::{Host, lock};
use crate::net::BoxIo;

/// Connections that wait for the kubelet.
const WAITING_MAX: usize = 16;
/// Longest connection: only the check of a node's certificate opens one.
const LASTS: Duration = Duration::from_secs(30);
/// The pause before an address is tried again that cannot be had just now.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Answer to who has no right here: anonymous requests are off in the profiles (kubernetes v1.33,
/// `pkg/kubelet/server/server.go`, `InstallAuthNotRequiredHandlers` and `InstallAuthFilter`).
const UNAUTHORIZED: &[u8] =
    b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 12\r\nconnection: close\r\n\r\nUnauthorized";

impl Host {
    /// Opens a connection to the kubelet in memory.
    pub(in crate::host) async fn dial_kubelet(&self, far: BoxIo) -> io::Result<()> {
        let door = lock(&self.kubelet_door).clone();
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let door = door.ok_or_else(refused)?;
        door.send(far).await.map_err(|_| refused())
    }

    /// Answers on the port for as long as the kubelet runs.
    pub(super) async fn answer(&self, settings: &Settings) {
        let (door, mut waiting) = mpsc::channel(WAITING_MAX);
        *lock(&self.kubelet_door) = Some(door.clone());
        let own = own_certificate(&settings.node);
        let accepts = async {
            if let Ok(ip) = self.internal_ip().parse::<IpAddr>()
                && ip.is_loopback()
            {
                accept(SocketAddr::new(ip, KUBELET_PORT), &door).await;
            }
            std::future::pending::<()>().await;
        };
        let answers = async {
            while let Some(io) = waiting.recv().await {
                let Ok(config) = self.tls(settings, own.as_ref()) else {
                    continue;
                };
                tokio::spawn(tokio::time::timeout(LASTS, greet(config, io)));
            }
        };
        tokio::join!(accepts, answers);
    }

    /// What it presents: the certificate that was issued. While there is none it presents nothing, since it asks for one
    /// (kubernetes v1.33, `pkg/kubelet/kubelet.go`: "no serving certificate available for the kubelet"). A kubelet that asks
    /// for none signs its own (`cmd/kubelet/app/server.go`, `InitializeTLS`).
    fn tls(&self, settings: &Settings, own: Option<&Pair>) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth();
        let path = format!(r"{}\kubelet-server-current.pem", settings.cert_dir);
        let issued = text(self, &path).ok().and_then(|pem| pair(&pem));
        let own = own.filter(|_| !settings.serving);
        match issued.as_ref().or(own) {
            Some((chain, key)) => config.with_single_cert(chain.clone(), key.clone_key()),
            None => Ok(config.with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()))),
        }
    }
}

/// A certificate with its chain, and its key.
type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn pair(pem: &str) -> Option<Pair> {
    let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
    Some((chain.ok().filter(|chain| !chain.is_empty())?, key.ok()?))
}

fn own_certificate(node: &str) -> Option<Pair> {
    let mut params = CertificateParams::new(vec![node.to_owned()]).ok()?;
    params.distinguished_name.push(DnType::CommonName, node);
    let key = KeyPair::generate().ok()?;
    let certificate = params.self_signed(&key).ok()?;
    pair(&format!("{}{}", certificate.pem(), key.serialize_pem()))
}

async fn accept(address: SocketAddr, door: &mpsc::Sender<BoxIo>) {
    let listener = loop {
        match bind(address) {
            Ok(listener) => break listener,
            Err(_) => tokio::time::sleep(AGAIN_AFTER).await,
        }
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if door.send(Box::new(stream)).await.is_err() {
                    return;
                }
            }
            Err(_) => tokio::time::sleep(AGAIN_AFTER).await,
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(64)
}

/// Shakes hands, and turns away who then asks for something.
async fn greet(config: ServerConfig, io: BoxIo) {
    let Ok(mut stream) = TlsAcceptor::from(Arc::new(config)).accept(io).await else {
        return;
    };
    let mut asked = [0; 1024];
    if matches!(stream.read(&mut asked).await, Ok(read) if read > 0) {
        let _ = stream.write_all(UNAUTHORIZED).await;
        let _ = stream.shutdown().await;
    }
}
