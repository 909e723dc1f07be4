//! Bundles of certificates of authorities, as OpenShift keeps them in ConfigMaps.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{collections::BTreeMap, fmt::Write as _};
use x509_cert::der::Decode;

/// Most certificates that are taken; OpenShift's own bundle of all has about 150.
const CERTIFICATES_MAX: usize = 500;

/// The certificates of a bundle, each once, by its bytes.
pub(super) fn certificates(pem: &str, found: &mut BTreeMap<Vec<u8>, String>) -> Result<(), String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let mut rest = pem;
    let mut number = 0;
    while let Some((_, body)) = rest.split_once(BEGIN) {
        number += 1;
        let broken = |why: &str| format!("cannot be read: its certificate {number} {why}");
        let (body, after) = body.split_once(END).ok_or_else(|| broken("has no end"))?;
        let text: String = body.split_whitespace().collect();
        let der = STANDARD
            .decode(&text)
            .map_err(|_| broken("is not base64"))?;
        x509_cert::Certificate::from_der(&der).map_err(|_| broken("is no certificate"))?;
        found.insert(der, text);
        rest = after;
    }
    if number == 0 && !pem.trim().is_empty() {
        return Err("cannot be read: there is no certificate in it".into());
    }
    if found.len() > CERTIFICATES_MAX {
        return Err(format!("has more than {CERTIFICATES_MAX} certificates"));
    }
    Ok(())
}

pub(super) fn pem_of(certificates: impl Iterator<Item = String>) -> String {
    certificates.fold(String::new(), |mut pem, base64| {
        let _ = writeln!(
            pem,
            "-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----"
        );
        pem
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pem: &str) -> Result<usize, String> {
        let mut found = BTreeMap::new();
        certificates(pem, &mut found).map(|()| found.len())
    }

    #[test]
    fn a_certificate_bundle_is_whole_or_refused_with_its_location() {
        let named = |name: &str| {
            rcgen::generate_simple_self_signed(vec![name.to_owned()])
                .expect("one")
                .cert
                .pem()
        };
        let one = named("one.example");
        let other = named("other.example");
        let comment = format!("# ours\n{one}\nand\n{other}{one}");
        assert_eq!(read(&comment), Ok(2), "each once");
        assert_eq!(read("\n"), Ok(0));
        let half = &other[..other.len() / 2];
        let table = [
            ("no certificate", "there is no certificate in it"),
            (&format!("{one}{half}"), "its certificate 2 has no end"),
            (
                "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----",
                "certificate 1 is not base64",
            ),
            (
                "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----",
                "1 is no certificate",
            ),
        ];
        for (pem, wanted) in table {
            let warnings = read(pem).expect_err(wanted);
            assert!(warnings.contains(wanted), "{warnings}");
        }
        let mut found = BTreeMap::new();
        certificates(&comment, &mut found).expect("read");
        assert_eq!(read(&pem_of(found.into_values())), Ok(2));
    }
}
