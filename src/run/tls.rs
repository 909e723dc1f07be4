//! TLS listener: handshakes run concurrently, and yield connections.

use super::connections::{Accept, Limited, OpenConnection};
use anyhow::Context;
use dormer_proto::lock::Locked as _;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Time limit of a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Established connections that wait to be accepted.
const WAITING_MAX: usize = 64;

/// TLS acceptor with this certificate, which is read again when its files change. The receiver is notified of each
/// renewal.
///
/// # Errors
///
/// A file cannot be read or parsed, or certificate and key do not match.
pub(crate) fn acceptor(
    certificate: &Path,
    key: &Path,
) -> anyhow::Result<(TlsAcceptor, watch::Receiver<()>)> {
    let files = Arc::new(CertificateFiles::read(certificate, key)?);
    let renewed = files.renewed.subscribe();
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(files);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), renewed))
}

/// Certificate and key in files. The last matching pair is presented.
#[derive(Debug)]
struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// Lock held while two small files are read, never across an await.
    last: Mutex<LastRead>,
    renewed: watch::Sender<()>,
}

#[derive(Debug)]
struct LastRead {
    /// State of the files when the pair was read.
    current: [Option<FileState>; 2],
    /// State of the files at the last failed read, so that each failure is logged once.
    refused: Option<[Option<FileState>; 2]>,
    pair: Arc<CertifiedKey>,
}

/// Device, inode, length and modification time. A file for which all four are unchanged is not read again.
type FileState = (u64, u64, u64, i64, i64);

fn file_state(path: &Path) -> Option<FileState> {
    let about = std::fs::metadata(path).ok()?;
    let seconds = about.mtime();
    let nanos = about.mtime_nsec();
    Some((about.dev(), about.ino(), about.len(), seconds, nanos))
}

impl CertificateFiles {
    fn read(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let last = LastRead {
            current: [file_state(certificate), file_state(key)],
            refused: None,
            pair: Arc::new(pair(certificate, key)?),
        };
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            last: Mutex::new(last),
            renewed: watch::Sender::default(),
        })
    }

    /// The present pair. Files that changed and cannot be used, such as between two writes or without the right to read
    /// them, are read again for each connection; meanwhile the last pair stays.
    fn present(&self) -> Arc<CertifiedKey> {
        let mut last = self.last.locked();
        let now = [file_state(&self.certificate), file_state(&self.key)];
        if now != last.current {
            match pair(&self.certificate, &self.key) {
                Ok(pair) => {
                    tracing::info!("the server's certificate was read anew");
                    last.current = now;
                    last.refused = None;
                    last.pair = Arc::new(pair);
                    self.renewed.send_replace(());
                }
                Err(why) if last.refused.as_ref() != Some(&now) => {
                    last.refused = Some(now);
                    tracing::warn!(
                        why = format!("{why:#}"),
                        "the server's certificate has changed and cannot be used; the one before stays"
                    );
                }
                Err(_) => {}
            }
        }
        Arc::clone(&last.pair)
    }
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.present())
    }
}

fn pair(certificate: &Path, key: &Path) -> anyhow::Result<CertifiedKey> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)
        .with_context(|| format!("--tls-certificate {}", certificate.display()))?
        .collect();
    let chain = chain.with_context(|| format!("--tls-certificate {}", certificate.display()))?;
    anyhow::ensure!(
        !chain.is_empty(),
        "--tls-certificate {}: it holds no certificate",
        certificate.display()
    );
    let secret = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("--tls-key {}", key.display()))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, secret, &provider)
        .context("--tls-certificate and --tls-key do not match")
}

/// Source of established TLS connections. A connection counts for its peer during its handshake as well.
pub(crate) struct Tls {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr, OpenConnection)>,
}

impl Tls {
    /// Accepts from `source` until it is dropped.
    pub(crate) fn over(mut source: Limited, acceptor: TlsAcceptor) -> Self {
        let (tell, ready) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move {
            loop {
                let (stream, peer, open) = tokio::select! {
                    () = tell.closed() => return,
                    accepted = source.accept() => accepted,
                };
                let acceptor = acceptor.clone();
                let tell = tell.clone();
                tokio::spawn(async move {
                    match timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => drop(tell.send((stream, peer, open)).await),
                        Ok(Err(error)) => tracing::debug!(%error, %peer, "TLS handshake failed"),
                        Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
                    }
                });
            }
        });
        Self { ready }
    }
}

impl Accept for Tls {
    type Stream = TlsStream<TcpStream>;

    async fn accept(&mut self) -> (Self::Stream, SocketAddr, OpenConnection) {
        match self.ready.recv().await {
            Some(ready) => ready,
            // The accepting task runs as long as this source exists.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::connections::tests::listener, *};
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
    use tokio::io::AsyncReadExt;
    use tokio_rustls::TlsConnector;

    fn issued() -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["dormer.test".into()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn a_renewed_certificate_is_shown_once_its_key_is_there_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        // A new file replaces the old one, as cert-manager and kubelets write them.
        let put = |path: &Path, text: &str| {
            let fresh = folder.path().join("fresh");
            std::fs::write(&fresh, text).expect("written");
            std::fs::rename(&fresh, path).expect("in place");
        };
        let first = issued();
        let second = issued();
        put(&certificate, &first.0);
        put(&key, &first.1);
        let files = CertificateFiles::read(&certificate, &key).expect("a pair");
        let renewed = files.renewed.subscribe();
        let before = files.present();
        assert!(Arc::ptr_eq(&before, &files.present()), "not read again");
        put(&certificate, &second.0);
        assert_eq!(files.present().cert, before.cert, "half of a pair");
        put(&certificate, "nothing");
        assert_eq!(files.present().cert, before.cert, "no certificate");
        assert!(!renewed.has_changed().expect("it is there"));
        put(&certificate, &second.0);
        put(&key, &second.1);
        let after = files.present().cert.clone();
        assert_ne!(after, before.cert);
        assert!(renewed.has_changed().expect("it is there"));
        std::fs::remove_file(&key).expect("removed");
        assert_eq!(files.present().cert, after, "what is gone is not missed");
        let error = CertificateFiles::read(&certificate, &key).expect_err("no key");
        assert!(error.to_string().contains("--tls-key"), "{error}");
    }

    /// Client that trusts the certificate in `pem` alone.
    fn client(pem: &str) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        roots.add(certificate).expect("a root");
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }

    #[tokio::test]
    async fn handshakes_that_never_end_are_limited_and_end() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder");
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        let issued = issued();
        std::fs::write(&certificate, &issued.0).expect("written");
        std::fs::write(&key, &issued.1).expect("written");
        let (acceptor, _renewed) = acceptor(&certificate, &key).expect("a pair");
        let (limited, address) = listener(2).await;
        let mut tls = Tls::over(limited, acceptor);
        let connected = || async { TcpStream::connect(address).await.expect("connected") };
        let mut silent = [connected().await, connected().await];
        let mut end = Vec::new();
        let mut third = connected().await;
        third.read_to_end(&mut end).await.expect("refused at once");
        tokio::time::pause();
        for silent in &mut silent {
            silent.read_to_end(&mut end).await.expect("let go");
        }
        tokio::time::resume();
        assert!(end.is_empty());
        let name = ServerName::try_from("dormer.test").expect("a name");
        let shaken = client(&issued.0).connect(name, connected().await);
        let (shaken, (_, peer, _)) = tokio::join!(shaken, tls.accept());
        let shaken = shaken.expect("room again");
        assert_eq!(shaken.get_ref().0.local_addr().ok(), Some(peer));
    }
}
