//! Trusted roots: the collection `LocalMachine\Root`, and which of it lie in the store's own part.
#![expect(unsafe_code, reason = "calls Win32")]

use std::ptr::{null, null_mut};

use dormer_host::{
    content,
    ops::{Root, RootAdd},
};
use windows_sys::Win32::{
    Foundation::{ERROR_FILE_NOT_FOUND, ERROR_INVALID_DATA},
    Security::Cryptography::{
        CERT_CONTEXT, CERT_FRIENDLY_NAME_PROP_ID, CERT_SHA1_HASH_PROP_ID, CERT_STORE_ADD_NEW,
        CERT_STORE_CTRL_COMMIT, CERT_STORE_OPEN_EXISTING_FLAG, CERT_STORE_PROV_PHYSICAL_W,
        CERT_STORE_PROV_SYSTEM_W, CERT_SYSTEM_STORE_LOCAL_MACHINE_ID,
        CERT_SYSTEM_STORE_LOCATION_SHIFT, CRYPT_INTEGER_BLOB, CertAddCertificateContextToStore,
        CertCloseStore, CertControlStore, CertCreateCertificateContext,
        CertDeleteCertificateFromStore, CertDuplicateCertificateContext,
        CertEnumCertificatesInStore, CertFreeCertificateContext, CertGetCertificateContextProperty,
        CertOpenStore, CertSetCertificateContextProperty, HCERTSTORE, X509_ASN_ENCODING,
    },
};

use super::{
    error::{self, Result},
    registry, text,
};

const MACHINE: u32 = CERT_SYSTEM_STORE_LOCAL_MACHINE_ID << CERT_SYSTEM_STORE_LOCATION_SHIFT;
/// `CRYPT_E_ASN1_BADTAG`, which `CertCreateCertificateContext` says of what is no certificate.
const NO_CERTIFICATE: u32 = 0x8009_310b;
/// `CRYPT_E_NOT_FOUND`.
const NOT_FOUND: u32 = 0x8009_2004;
/// Where the store's own part lies, one key for each certificate, by its SHA-1.
const OWN: &str = r"SOFTWARE\Microsoft\SystemCertificates\ROOT\Certificates";

struct CertificateStore(HCERTSTORE);

impl CertificateStore {
    /// The collection.
    fn open() -> Result<Self> {
        Self::of(CERT_STORE_PROV_SYSTEM_W, "Root", 0)
    }

    /// The part that `RootAdd` adds to; where Windows knows no parts (Wine), the collection.
    fn own() -> Result<Self> {
        Self::of(
            CERT_STORE_PROV_PHYSICAL_W,
            r"Root\.Default",
            CERT_STORE_OPEN_EXISTING_FLAG,
        )
        .or_else(|_| Self::open())
    }

    fn of(provider: *const u8, name: &str, flags: u32) -> Result<Self> {
        let name = text::wide(name)?;
        // SAFETY: this provider takes a text that ends with a NUL.
        let store = unsafe { CertOpenStore(provider, 0, 0, MACHINE | flags, name.as_ptr().cast()) };
        if store.is_null() {
            Err(error::last())
        } else {
            Ok(Self(store))
        }
    }

    /// Writes what was added or deleted. Windows has done so; Wine 8 would lose it.
    fn commit(&self) -> Result<()> {
        // SAFETY: the store is open; this control takes no parameter.
        error::check(unsafe { CertControlStore(self.0, 0, CERT_STORE_CTRL_COMMIT, null()) })
    }

    fn certificates(&self) -> Vec<Certificate> {
        let mut found = Vec::new();
        let mut context = null_mut();
        loop {
            // SAFETY: the store is open; the call frees the context that it is given.
            context = unsafe { CertEnumCertificatesInStore(self.0, context) };
            if context.is_null() {
                return found;
            }
            // SAFETY: the context is one of the store.
            found.push(Certificate(unsafe {
                CertDuplicateCertificateContext(context)
            }));
        }
    }
}

impl Drop for CertificateStore {
    fn drop(&mut self) {
        // SAFETY: it was opened by this module and is closed once.
        unsafe { CertCloseStore(self.0, 0) };
    }
}

struct Certificate(*mut CERT_CONTEXT);

impl Certificate {
    fn der(&self) -> &[u8] {
        // SAFETY: the context lives as long as this value, and so do its bytes.
        unsafe {
            let context = &*self.0;
            std::slice::from_raw_parts(context.pbCertEncoded, context.cbCertEncoded as usize)
        }
    }

    fn sha256(&self) -> Result<String> {
        let digest = content::digest(self.der()).map_err(|error| error::io(&error))?;
        Ok(digest.sha256)
    }

    /// A property; none where it has none.
    fn property(&self, id: u32) -> Option<Vec<u8>> {
        let mut length = 0;
        // SAFETY: the context lives; without a buffer the call answers the length.
        let known =
            unsafe { CertGetCertificateContextProperty(self.0, id, null_mut(), &raw mut length) };
        if known == 0 {
            return None;
        }
        let mut bytes = vec![0_u8; length as usize];
        // SAFETY: the buffer is as large as is said.
        let read = unsafe {
            CertGetCertificateContextProperty(
                self.0,
                id,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        (read != 0).then_some(bytes)
    }

    fn name(&self) -> String {
        let bytes = self
            .property(CERT_FRIENDLY_NAME_PROP_ID)
            .unwrap_or_default();
        let pairs = bytes.chunks_exact(2);
        let units: Vec<u16> = pairs
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
            .collect();
        text::narrow(&units)
    }

    fn sha1(&self) -> String {
        let bytes = self.property(CERT_SHA1_HASH_PROP_ID).unwrap_or_default();
        bytes.iter().map(|byte| format!("{byte:02X}")).collect()
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        // SAFETY: it was counted for this value, and is freed once.
        unsafe { CertFreeCertificateContext(self.0) };
    }
}

/// SHA-1 of every certificate in the store's own part.
fn own() -> Result<Vec<String>> {
    match registry::list(OWN) {
        Ok(names) => Ok(names
            .keys
            .iter()
            .map(|key| key.to_ascii_uppercase())
            .collect()),
        Err(error) if error.code == ERROR_FILE_NOT_FOUND => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

pub(super) fn list() -> Result<Vec<Root>> {
    let own = own()?;
    let part = CertificateStore::own()?;
    let all = CertificateStore::open()?;
    let mut roots: Vec<Root> = Vec::new();
    // The own part comes first: a policy's copy does not have the name that ours was added with.
    for certificate in part.certificates().into_iter().chain(all.certificates()) {
        let root = Root {
            sha256: certificate.sha256()?,
            name: certificate.name(),
            own: own.contains(&certificate.sha1()),
        };
        // One that lies in several parts is listed once.
        if !roots.iter().any(|known| known.sha256 == root.sha256) {
            roots.push(root);
        }
    }
    Ok(roots)
}

pub(super) fn add(ask: &RootAdd) -> Result<()> {
    let der = &ask.der.0;
    let length = u32::try_from(der.len()).map_err(|_| error::code(ERROR_INVALID_DATA))?;
    // SAFETY: the bytes are as many as is said.
    let context = unsafe { CertCreateCertificateContext(X509_ASN_ENCODING, der.as_ptr(), length) };
    if context.is_null() {
        return Err(error::last());
    }
    let certificate = Certificate(context);
    // Bytes behind the certificate are taken, and would make it another by its SHA-256.
    if der_length(der) != Some(der.len()) {
        return Err(error::code(NO_CERTIFICATE));
    }
    let mut name = text::wide(&ask.name)?;
    let blob = CRYPT_INTEGER_BLOB {
        cbData: (name.len() * 2) as u32,
        pbData: name.as_mut_ptr().cast(),
    };
    // SAFETY: the context lives; the property is a text with its NUL.
    error::check(unsafe {
        CertSetCertificateContextProperty(
            certificate.0,
            CERT_FRIENDLY_NAME_PROP_ID,
            0,
            (&raw const blob).cast(),
        )
    })?;
    // Not the collection: it has links to what a policy or Windows Update brings, and a link counts as there.
    let store = CertificateStore::own()?;
    // SAFETY: store and context live; the added context is not asked for.
    error::check(unsafe {
        CertAddCertificateContextToStore(store.0, certificate.0, CERT_STORE_ADD_NEW, null_mut())
    })?;
    // Wine 8 does not write while a context is held.
    drop(certificate);
    store.commit()
}

pub(super) fn remove(sha256: &str) -> Result<()> {
    let store = CertificateStore::own()?;
    let mut found = None;
    for certificate in store.certificates() {
        if certificate.sha256()? == sha256 {
            found = Some(certificate);
            break;
        }
    }
    let Some(certificate) = found else {
        return Err(error::code(NOT_FOUND));
    };
    // SAFETY: the call frees the context that it is given, so it gets one of its own.
    error::check(unsafe {
        CertDeleteCertificateFromStore(CertDuplicateCertificateContext(certificate.0))
    })?;
    drop(certificate);
    store.commit()
}

/// Length of the one DER value at the begin.
fn der_length(der: &[u8]) -> Option<usize> {
    let first = usize::from(*der.get(1)?);
    if first < 0x80 {
        return Some(2 + first);
    }
    let count = first & 0x7f;
    let bytes = der.get(2..2 + count)?;
    let length = bytes.iter().try_fold(0_usize, |sum, byte| {
        sum.checked_mul(256)?.checked_add(usize::from(*byte))
    })?;
    length.checked_add(2 + count)
}
