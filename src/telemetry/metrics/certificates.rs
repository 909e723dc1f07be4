//! Expiry of this process's own certificates. An alert fires a week before.

use super::registry::{LabelledGauge, MetricsRegistry};
use prometheus_client::registry::Unit;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use std::path::Path;
use x509_cert::{Certificate, der::Decode};

/// Certificates that this process uses. That of the listener is registered again when it is renewed; NATS' counts from
/// startup, even if its file changes.
pub struct Certificates(LabelledGauge<1>);

impl Certificates {
    pub(super) fn new(registry: &mut MetricsRegistry) -> Self {
        let help = "Expiry of a certificate that this process uses, in seconds since 1970: that \
        of listen or nats";
        Self(registry.gauge(
            "certificate_expiry_timestamp",
            ["certificate"],
            Some(Unit::Seconds),
            help,
        ))
    }

    /// Registers the certificate in a file under `name`. An unreadable file is skipped, because its user refuses it.
    pub fn used(&self, name: &'static str, file: &Path) {
        if let Some(until) = until(file) {
            self.0.set([name.into()], until);
        }
    }
}

/// Expiry of the first certificate of a PEM file, in seconds since 1970.
fn until(file: &Path) -> Option<f64> {
    let first = CertificateDer::from_pem_file(file).ok()?;
    let certificate = Certificate::from_der(&first).ok()?;
    let until = certificate.tbs_certificate().validity().not_after;
    Some(until.to_unix_duration().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_says_until_when_it_is_valid_and_what_is_none_says_nothing() {
        let folder = dormer_testkit::test_dir("certificates");
        let key = rcgen::KeyPair::generate().unwrap();
        let file = folder.path().join("tls.crt");
        let mut parameters = rcgen::CertificateParams::new(vec!["dormer".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(2027, 1, 2);
        let pem = parameters.self_signed(&key).unwrap().pem();
        std::fs::write(&file, pem).unwrap();
        assert_eq!(until(&file), Some(1_798_848_000.0));
        assert_eq!(until(&folder.path().join("nothing")), None);
        std::fs::write(
            &file,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        )
        .unwrap();
        assert_eq!(until(&file), None);
    }
}
