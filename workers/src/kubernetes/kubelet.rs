//! The certificate that a kubelet presents on its port, by which the API server reaches logs and exec.

use super::ANSWER_MAX;
use crate::ssh::Dialer;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use x509_cert::{
    Certificate,
    der::Decode,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

/// The port on which kubelets answer.
pub const KUBELET_PORT: u16 = 10_250;
/// How long a connection, and then a handshake, may take.
const LIMIT: Duration = Duration::from_secs(5);
const _: () = assert!(LIMIT.as_secs() * 2 < ANSWER_MAX.as_secs());

/// Serving certificate that a kubelet presents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServingCertificate {
    /// dormer did not reach it from here, which proves nothing about the kubelet.
    Unknown(String),
    /// It answers, and has no certificate to present.
    Nothing(String),
    /// Its certificate cannot be parsed.
    Unreadable(String),
    /// The certificate that it presents.
    Certificate(Leaf),
}

/// A kubelet's serving certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Leaf {
    /// Names and addresses that it is for.
    pub(super) names: Vec<String>,
    /// Whether the certificate is self-signed.
    pub(super) self_signed: bool,
    /// Its end, in milliseconds since 1970.
    pub(super) until_ms: i64,
}

/// Reads the certificate of the kubelet at this address.
pub(super) async fn presented(dialer: &Dialer, address: &str) -> ServingCertificate {
    let not_reached = |why: String| {
        ServingCertificate::Unknown(format!(
            "the kubelet at {address}:{KUBELET_PORT} is not reached from here: {why}"
        ))
    };
    let io = match timeout(LIMIT, dialer.dial(address)).await {
        Err(_) => return not_reached("no answer in 5 s".to_owned()),
        Ok(Err(error)) => return not_reached(error.to_string()),
        Ok(Ok(io)) => io,
    };
    let tls = match config() {
        Ok(config) => TlsConnector::from(Arc::new(config)),
        Err(error) => return ServingCertificate::Unknown(error.to_string()),
    };
    let Ok(name) = ServerName::try_from(address.to_owned()) else {
        return ServingCertificate::Unknown(format!("{address} is no address"));
    };
    let stream = match timeout(LIMIT, tls.connect(name, io)).await {
        Err(_) => return ServingCertificate::Nothing("the TLS handshake has no end".to_owned()),
        Ok(Err(error)) => return ServingCertificate::Nothing(error.to_string()),
        Ok(Ok(stream)) => stream,
    };
    let (_, connection) = stream.get_ref();
    match connection.peer_certificates() {
        Some([leaf, ..]) => match read(leaf) {
            Ok(leaf) => ServingCertificate::Certificate(leaf),
            Err(error) => ServingCertificate::Unreadable(error.to_string()),
        },
        Some([]) | None => ServingCertificate::Nothing("no certificate came".to_owned()),
    }
}

fn read(leaf: &CertificateDer<'_>) -> Result<Leaf, x509_cert::der::Error> {
    let certificate = Certificate::from_der(leaf)?;
    let body = certificate.tbs_certificate();
    let names = body.get_extension::<SubjectAltName>().ok().flatten();
    let names = names.map(|(_, names)| names.0).unwrap_or_default();
    let until = body.validity().not_after.to_unix_duration().as_millis();
    Ok(Leaf {
        names: names.iter().filter_map(text).collect(),
        self_signed: body.issuer() == body.subject(),
        until_ms: i64::try_from(until).unwrap_or(i64::MAX),
    })
}

fn text(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let four = <[u8; 4]>::try_from(bytes).map(|it| std::net::IpAddr::from(it).to_string());
            let six =
                || <[u8; 16]>::try_from(bytes).map(|it| std::net::IpAddr::from(it).to_string());
            four.or_else(|_| six()).ok()
        }
        _ => None,
    }
}

fn config() -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(AnyCertificate(Arc::clone(&provider)));
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// Takes any certificate whose key the kubelet has: it is read afterwards, and nothing is sent.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::{BoxIo, Dial};
    use futures::future::BoxFuture;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::{
        ServerConfig,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    };
    use std::io;
    use tokio_rustls::TlsAcceptor;

    /// Kind of peer for a test.
    enum Kubelet {
        Away,
        /// It answers, and has no certificate.
        Without,
        With(Arc<ServerConfig>),
    }

    impl Dial for Kubelet {
        fn dial(&self, _: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
            let config = match self {
                Self::Away => {
                    return Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) });
                }
                Self::Without => None,
                Self::With(config) => Some(Arc::clone(config)),
            };
            Box::pin(async move {
                let (near, far) = tokio::io::duplex(64 << 10);
                tokio::spawn(async move {
                    if let Some(config) = config {
                        let accepted = TlsAcceptor::from(config).accept(far).await;
                        drop(accepted);
                    }
                });
                Ok(Box::new(near) as BoxIo)
            })
        }
    }

    /// A kubelet with a certificate for these names, signed by itself or by an authority.
    fn with(names: &[&str], issued: bool) -> Kubelet {
        let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "system:node:win-a");
        let key = KeyPair::generate().expect("a key");
        let certificate = if issued {
            let mut of = CertificateParams::new(Vec::new()).expect("an authority");
            of.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            of.distinguished_name
                .push(rcgen::DnType::CommonName, "the signer");
            let signer = KeyPair::generate().expect("a key");
            let authority = CertifiedIssuer::self_signed(of, signer).expect("an authority");
            params.signed_by(&key, &authority)
        } else {
            params.self_signed(&key)
        };
        let chain = vec![certificate.expect("a certificate").der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key);
        Kubelet::With(Arc::new(config.expect("a server")))
    }

    async fn of(kubelet: Kubelet) -> ServingCertificate {
        let dialer: Dialer = Arc::new(kubelet);
        presented(&dialer, "10.0.0.5").await
    }

    #[tokio::test]
    async fn a_certificate_is_read_with_its_names_and_its_signer() {
        for issued in [true, false] {
            let ServingCertificate::Certificate(leaf) =
                of(with(&["win-a", "10.0.0.5"], issued)).await
            else {
                panic!("a certificate")
            };
            assert_eq!(leaf.names, ["win-a", "10.0.0.5"]);
            assert_eq!(leaf.self_signed, !issued);
            assert!(leaf.until_ms > 1_700_000_000_000, "{}", leaf.until_ms);
        }
    }

    #[tokio::test]
    async fn a_kubelet_without_a_certificate_is_another_matter_than_no_answer() {
        assert!(matches!(
            of(Kubelet::Without).await,
            ServingCertificate::Nothing(_)
        ));
        let ServingCertificate::Unknown(why) = of(Kubelet::Away).await else {
            panic!("it was not asked")
        };
        assert!(why.contains("10.0.0.5:10250"), "{why}");
    }
}
