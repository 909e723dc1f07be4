//! Keys whose signatures of payload manifests count. A signature is minisign's, in a file beside the manifest
//! (<https://jedisct1.github.io/minisign/>). It covers the manifest's bytes, and the manifest has the checksum of each
//! file, which a host compares.

use dormer_profile::payload::{MANIFEST_FILE, SIGNATURE_FILE};
use minisign_verify::{Error, PublicKey, Signature};

/// Which payloads are used.
#[derive(Debug, Clone)]
pub enum PayloadKeys {
    /// All, with a signature or without.
    Unsigned,
    /// Those whose manifest one of these keys has signed.
    Signed(Vec<PublicKey>),
}

impl PayloadKeys {
    /// Reads public keys: each is the line of minisign's `.pub` file that begins with `RW`.
    ///
    /// # Errors
    /// The first text that is no such key, in a sentence.
    pub fn parse(keys: &[String]) -> Result<Self, String> {
        let keys = keys.iter().map(|text| {
            let key = PublicKey::from_base64(text.trim());
            key.map_err(|_| {
                format!("`{text}` is no public key of minisign: give the line of minisign.pub that begins with RW")
            })
        });
        Ok(Self::Signed(keys.collect::<Result<_, _>>()?))
    }

    /// Checks the signature of a manifest. `signature` is the text of its file; `None`: there is no such file.
    ///
    /// # Errors
    /// Why the payload is not used, in a sentence that says what to do.
    pub fn check(&self, manifest: &[u8], signature: Option<&str>) -> Result<(), String> {
        let Self::Signed(keys) = self else {
            return Ok(());
        };
        let Some(signature) = signature else {
            return Err(format!(
                "there is no {SIGNATURE_FILE}: sign {MANIFEST_FILE} with `minisign -S -m {MANIFEST_FILE}`"
            ));
        };
        let signature = Signature::decode(signature)
            .map_err(|_| format!("{SIGNATURE_FILE} is no signature of minisign"))?;
        let mut worst = Error::UnexpectedKeyId;
        for key in keys {
            match key.verify(manifest, &signature, false) {
                Ok(()) => return Ok(()),
                Err(Error::UnexpectedKeyId) => {}
                Err(error) => worst = error,
            }
        }
        Err(match worst {
            Error::UnexpectedKeyId => format!(
                "{SIGNATURE_FILE} is of a key that --payload-key does not name: name that key, or sign {MANIFEST_FILE} \
                 with another"
            ),
            Error::UnexpectedAlgorithm => {
                format!(
                    "{SIGNATURE_FILE} is a legacy signature: sign again with minisign 0.10 or newer"
                )
            }
            _ => format!(
                "{MANIFEST_FILE} is not the file that was signed: someone changed it or {SIGNATURE_FILE} afterwards"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made by minisign 0.11: `minisign -S -s a.key -m payload.yaml`, and with `-l -x legacy.minisig`.
    const MANIFEST: &str = include_str!("../tests/signed/payload.yaml");
    const SIGNATURE: &str = include_str!("../tests/signed/payload.yaml.minisig");
    const LEGACY: &str = include_str!("../tests/signed/legacy.minisig");
    const SIGNER: &str = "RWSTP/jCGkh8TMB1thTmpyb28qo9J9hCqDMi9M3TR6D73oOg18MtgdUI";
    const OTHER: &str = "RWSTwX4rYU1725CXG7NKLWnQ+qUUm4ayWmGiJb0OcWpgxxD6U8bGKuAb";

    fn keys(keys: &[&str]) -> PayloadKeys {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        PayloadKeys::parse(&keys).expect("keys")
    }

    #[test]
    fn a_signature_of_a_named_key_counts_and_no_other() {
        let check = |names: &[&str], manifest: &str, signature| {
            keys(names).check(manifest.as_bytes(), signature)
        };
        assert_eq!(check(&[SIGNER], MANIFEST, Some(SIGNATURE)), Ok(()));
        assert_eq!(check(&[OTHER, SIGNER], MANIFEST, Some(SIGNATURE)), Ok(()));
        let changed = MANIFEST.replace("11.0.0", "11.0.1");
        let bent = SIGNATURE.replace("payload 11.0.0", "payload 11.0.1");
        for (names, manifest, signature, says) in [
            (
                &[OTHER][..],
                MANIFEST,
                Some(SIGNATURE),
                "--payload-key does not name",
            ),
            (
                &[SIGNER],
                &changed,
                Some(SIGNATURE),
                "is not the file that was signed",
            ),
            // minisign's trusted comment is signed, too.
            (
                &[SIGNER],
                MANIFEST,
                Some(bent.as_str()),
                "is not the file that was signed",
            ),
            (&[SIGNER], MANIFEST, Some(LEGACY), "minisign 0.10 or newer"),
            (
                &[SIGNER],
                MANIFEST,
                Some("no signature"),
                "no signature of minisign",
            ),
            (&[SIGNER], MANIFEST, Some(""), "no signature of minisign"),
            (&[SIGNER], MANIFEST, None, "minisign -S -m payload.yaml"),
            (
                &[],
                MANIFEST,
                Some(SIGNATURE),
                "--payload-key does not name",
            ),
        ] {
            let why = check(names, manifest, signature).expect_err(says);
            assert!(why.contains(says), "{says}: {why}");
        }
        assert_eq!(PayloadKeys::Unsigned.check(b"anything", None), Ok(()));
    }

    #[test]
    fn what_is_no_public_key_is_refused() {
        for text in [
            "",
            "untrusted comment: minisign public key",
            "RW",
            SIGNATURE,
        ] {
            let why = PayloadKeys::parse(&[text.to_owned()]).expect_err(text);
            assert!(why.contains("begins with RW"), "{why}");
        }
    }
}
