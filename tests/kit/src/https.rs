//! The least of an HTTPS client: what a server answers to a GET, to know when it is ready, and objects in JSON.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, Stream,
};
use serde_json::Value;

use crate::certs::Identity;

/// A server that is starting may accept and then be silent.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// What is read of an answer: its head, and some of its body.
const ANSWER_BYTES_MAX: u64 = 16 << 10;
/// A list of objects is no longer than this.
const OBJECTS_BYTES_MAX: u64 = 16 << 20;

/// A client of one server on 127.0.0.1, with a certificate of its own.
#[derive(Debug, Clone)]
pub(crate) struct Https {
    config: Arc<ClientConfig>,
    port: u16,
}

impl Https {
    /// A client that trusts `ca` alone and shows `identity`.
    pub(crate) fn new(port: u16, ca: &str, identity: &Identity) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
        let chain = vec![CertificateDer::from_pem_slice(
            identity.certificate.as_bytes(),
        )?];
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        Ok(Self {
            config: Arc::new(config),
            port,
        })
    }

    /// The status of the answer to `GET path`.
    pub(crate) fn status(&self, path: &str) -> Result<u16> {
        let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
        self.asked(&request, |stream| status_of(stream))
    }

    /// The answer to a request: its object. A body goes out with the type of media that stands before it.
    ///
    /// # Errors
    /// What the server says against it.
    pub(crate) fn object(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<Value> {
        let (media, body) = body.map_or(("none", String::new()), |(media, it)| {
            (media, it.to_string())
        });
        let long = body.len();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\
             Content-Type: {media}\r\nContent-Length: {long}\r\n\r\n{body}"
        );
        let mut answer = Vec::new();
        self.asked(&request, |stream| {
            let _ = stream.take(OBJECTS_BYTES_MAX).read_to_end(&mut answer);
            Ok(())
        })?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        anyhow::ensure!(
            status.starts_with('2'),
            "{method} {path}: {status}: {}",
            body.trim()
        );
        Ok(serde_json::from_str(body)?)
    }

    fn asked<T>(&self, request: &str, read: impl FnOnce(&mut dyn Read) -> Result<T>) -> Result<T> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port))?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        socket.set_write_timeout(Some(ANSWER_MAX))?;
        let name = ServerName::try_from("127.0.0.1")?;
        let mut session = ClientConnection::new(Arc::clone(&self.config), name)?;
        let mut stream = Stream::new(&mut session, &mut socket);
        stream.write_all(request.as_bytes())?;
        read(&mut stream)
    }
}

/// A client's settings that take any certificate, as a kubelet's probes do.
pub(crate) fn trusting() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The status of the answer to `GET path` without TLS, on a port of 127.0.0.1.
pub(crate) fn plain_status(port: u16, path: &str) -> Result<u16> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(ANSWER_MAX))?;
    write!(socket, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")?;
    status_of(&mut socket)
}

/// The answer to a POST without TLS, on a port of 127.0.0.1: its status and its body.
pub(crate) fn plain_post(port: u16, path: &str, body: &str) -> Result<(u16, String)> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(ANSWER_MAX))?;
    let long = body.len();
    write!(
        socket,
        "POST {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: {long}\r\n\r\n{body}"
    )?;
    let mut answer = Vec::new();
    socket.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer
        .split(' ')
        .nth(1)
        .context("no HTTP answer")?
        .parse()?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
    Ok((status, body.to_owned()))
}

fn status_of(stream: &mut (impl Read + ?Sized)) -> Result<u16> {
    let mut answer = Vec::new();
    // A server that closes without a TLS farewell has answered nonetheless.
    let _ = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
    let head = String::from_utf8_lossy(&answer);
    let status = head.split(' ').nth(1).context("no HTTP answer")?;
    Ok(status.parse()?)
}
