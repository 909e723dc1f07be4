//! The cluster's certificate authority: creates the server's certificate, signs requests, and identifies the users of
//! client certificates.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SignatureAlgorithm,
};
use rustls::{
    RootCertStore, ServerConfig,
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_cert::{
    Certificate,
    attr::AttributeTypeAndValue,
    der::{Decode, DecodePem, Encode, asn1::ObjectIdentifier},
    ext::pkix::{SubjectAltName, name::GeneralName},
    name::Name,
    request::{CertReq, ExtensionReq},
};

use super::auth::User;

/// How long an issued certificate is valid.
pub const ISSUED_FOR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How far back it begins, for clocks that are behind.
pub const BACKDATED: Duration = Duration::from_secs(5 * 60);

const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
const ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The request is no PKCS#10 request, or of a kind of key that is not known.
    #[error("the certificate request cannot be read: {0}")]
    Request(String),
    /// Making or signing failed.
    #[error("the certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    /// The TLS settings do not fit together.
    #[error("TLS: {0}")]
    Tls(String),
}

/// A certificate with its key, both as PEM.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The certificate.
    pub cert_pem: String,
    /// The private key.
    pub key_pem: String,
}

/// The cluster's certificate authority.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    pem: Arc<str>,
}

impl Ca {
    /// A new authority with a key of its own.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new() -> Result<Self, CaError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(DnType::CommonName, "dormer-fleet-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let cert = params.self_signed(&key)?;
        let pem = cert.pem().into();
        let der = cert.der().clone();
        Ok(Self {
            issuer: Issuer::new(params, key),
            der,
            pem,
        })
    }

    /// The authority's certificate as PEM.
    pub fn pem(&self) -> Arc<str> {
        self.pem.clone()
    }

    /// A client certificate for a user and its groups.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Pair, CaError> {
        let key = KeyPair::generate()?;
        let params = params(user, groups, vec![ExtendedKeyUsagePurpose::ClientAuth]);
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(Pair {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
        })
    }

    /// Signs a certificate request (PEM) with its subject and alternative names as they are.
    ///
    /// # Errors
    /// When the request cannot be read.
    pub fn sign(&self, request_pem: &[u8], server: bool) -> Result<String, CaError> {
        let request = read_request(request_pem)?;
        let usage = if server {
            ExtendedKeyUsagePurpose::ServerAuth
        } else {
            ExtendedKeyUsagePurpose::ClientAuth
        };
        let groups: Vec<&str> = request.organizations.iter().map(String::as_str).collect();
        let mut params = params(&request.common_name, &groups, vec![usage]);
        for name in &request.dns_names {
            let name = name.as_str().try_into()?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        params
            .subject_alt_names
            .extend(request.addresses.iter().map(|a| SanType::IpAddress(*a)));
        Ok(params.signed_by(&request.key, &self.issuer)?.pem())
    }

    /// Settings of a TLS server with a certificate for these names and addresses, which requests client certificates
    /// and admits clients without one.
    ///
    /// # Errors
    ///
    /// It cannot be created.
    pub fn server_config(&self, names: &[&str], ips: &[IpAddr]) -> Result<ServerConfig, CaError> {
        let key = KeyPair::generate()?;
        let mut params = params(
            "kube-apiserver",
            &[],
            vec![ExtendedKeyUsagePurpose::ServerAuth],
        );
        for name in names {
            params
                .subject_alt_names
                .push(SanType::DnsName((*name).try_into()?));
        }
        params
            .subject_alt_names
            .extend(ips.iter().map(|ip| SanType::IpAddress(*ip)));
        let cert = params.signed_by(&key, &self.issuer)?;
        let tls = |e: &dyn std::fmt::Display| CaError::Tls(e.to_string());
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).map_err(|e| tls(&e))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|e| tls(&e))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|e| tls(&e))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![cert.der().clone()], key)
            .map_err(|e| tls(&e))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn params(
    common_name: &str,
    organizations: &[&str],
    usages: Vec<ExtendedKeyUsagePurpose>,
) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for organization in organizations {
        params
            .distinguished_name
            .push(DnType::OrganizationName, *organization);
    }
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    let now = SystemTime::now();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + ISSUED_FOR).into();
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = usages;
    params
}

/// User of a verified client certificate: the common name, and the organisations as groups.
pub fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let certificate = Certificate::from_der(certificate.as_ref()).ok()?;
    let subject = certificate.tbs_certificate().subject();
    let name = texts(subject, COMMON_NAME).into_iter().next()?;
    let groups = texts(subject, ORGANIZATION);
    Some(User::new(&name, groups.iter().map(String::as_str)))
}

/// Contents of a certificate request.
pub struct Requested {
    /// `CN`.
    pub common_name: String,
    /// `O`, each.
    pub organizations: Vec<String>,
    /// DNS alternative names.
    pub dns_names: Vec<String>,
    /// IP alternative names.
    pub addresses: Vec<IpAddr>,
    key: RequestKey,
}

struct RequestKey {
    bits: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl PublicKeyData for RequestKey {
    fn der_bytes(&self) -> &[u8] {
        &self.bits
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

/// Reads a certificate request (PEM).
///
/// # Errors
/// When it is none, or its key is of an unknown kind.
pub fn read_request(pem: &[u8]) -> Result<Requested, CaError> {
    let bad = |e: &dyn std::fmt::Display| CaError::Request(e.to_string());
    let request = CertReq::from_pem(pem).map_err(|e| bad(&e))?;
    let info = request.info;
    let spki = &info.public_key;
    let algorithm = match spki.algorithm.oid {
        EC_PUBLIC_KEY => {
            let curve = spki.algorithm.parameters.as_ref();
            let curve = curve.and_then(|p| p.decode_as::<ObjectIdentifier>().ok());
            if curve == Some(P384) {
                &rcgen::PKCS_ECDSA_P384_SHA384
            } else {
                &rcgen::PKCS_ECDSA_P256_SHA256
            }
        }
        RSA => &rcgen::PKCS_RSA_SHA256,
        ED25519 => &rcgen::PKCS_ED25519,
        other => return Err(CaError::Request(format!("unknown kind of key {other}"))),
    };
    let key = RequestKey {
        bits: spki.subject_public_key.raw_bytes().to_vec(),
        algorithm,
    };
    let mut dns_names = Vec::new();
    let mut addresses = Vec::new();
    for name in alt_names(&info.attributes).map_err(|e| bad(&e))? {
        match name {
            GeneralName::DnsName(name) => dns_names.push(name.to_string()),
            GeneralName::IpAddress(bytes) => addresses.extend(address(bytes.as_bytes())),
            _ => {}
        }
    }
    let common_name = texts(&info.subject, COMMON_NAME)
        .into_iter()
        .next()
        .unwrap_or_default();
    let organizations = texts(&info.subject, ORGANIZATION);
    Ok(Requested {
        common_name,
        organizations,
        dns_names,
        addresses,
        key,
    })
}

fn alt_names(
    attributes: &x509_cert::attr::Attributes,
) -> Result<Vec<GeneralName>, x509_cert::der::Error> {
    let mut names = Vec::new();
    for attribute in attributes.iter().filter(|a| a.oid == EXTENSION_REQUEST) {
        for value in attribute.values.iter() {
            let extensions = value.decode_as::<ExtensionReq>()?.0;
            for extension in extensions.iter().filter(|e| e.extn_id == ALT_NAME) {
                names.extend(SubjectAltName::from_der(extension.extn_value.as_bytes())?.0);
            }
        }
    }
    Ok(names)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

fn texts(name: &Name, oid: ObjectIdentifier) -> Vec<String> {
    name.iter()
        .filter(|a| a.oid == oid)
        .filter_map(text)
        .collect()
}

fn text(attribute: &AttributeTypeAndValue) -> Option<String> {
    // All the string types that occur here hold their text as plain bytes.
    let der = attribute.value.to_der().ok()?;
    let any = x509_cert::der::asn1::AnyRef::from_der(&der).ok()?;
    String::from_utf8(any.value().to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_signed_as_it_is_and_speaks_for_its_subject() {
        let ca = Ca::new().expect("an authority");
        let key = KeyPair::generate().expect("a key");
        let mut params =
            CertificateParams::new(vec!["win-1".to_owned(), "10.0.0.7".to_owned()]).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:nodes");
        params
            .distinguished_name
            .push(DnType::CommonName, "system:node:win-1");
        let request = params
            .serialize_request(&key)
            .expect("a request")
            .pem()
            .expect("PEM");
        let read = read_request(request.as_bytes()).expect("it reads");
        assert_eq!(read.common_name, "system:node:win-1");
        assert_eq!(read.organizations, ["system:nodes"]);
        assert_eq!(read.dns_names, ["win-1"]);
        assert_eq!(read.addresses.len(), 1);
        let signed = ca.sign(request.as_bytes(), false).expect("it is signed");
        let der = Certificate::from_pem(signed)
            .expect("a certificate")
            .to_der()
            .expect("DER");
        let user = user_of(&der.into()).expect("a user");
        assert_eq!(user.name, "system:node:win-1");
        assert!(user.groups.iter().any(|g| g == "system:nodes"));
    }
}
