//! Signatures of messages: a key for each role, a ring of public keys, and what is signed.
//!
//! A server checks the subject of a publish, and neither the reply subject of a request nor the deliver subject of a
//! push consumer. So permissions alone do not say who wrote a message; its signature does.

use async_nats::HeaderMap;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom, SystemRandom},
    signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Header with the signature of a message: `2.<time>.<key id>.<signature in Base64>`, the time in milliseconds since
/// 1970 by the signer's clock.
pub const SIGNATURE_HEADER: &str = "Dormer-Signature";
/// File of public keys in a folder of keys: in each line a role, a key id and a public key in Base64.
pub const PUBLIC_KEYS_FILE: &str = "public.keys";
/// Number of this format of signatures.
const FORMAT: &str = "2";
/// Prefix of the signed data, so that a signature is valid for no other purpose.
const DOMAIN: &[u8] = b"dormer message 2\0";
/// First bytes of an Ed25519 key in PKCS#8; its 32 bytes follow.
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";
/// By how much the clocks of two processes may differ.
pub const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(60);
/// Least time between two log lines about refused messages.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Reason for which a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has no signature.
    #[error("it has no signature")]
    Unsigned,
    /// Its signature has another format, or is cut off.
    #[error("its signature cannot be read")]
    Malformed,
    /// No public key has its key id.
    #[error("its key is unknown")]
    UnknownKey,
    /// It is signed by a role that may not say this.
    #[error("the role of its key may not send it")]
    WrongRole,
    /// The signature is of another message, another subject or another store, or by another key.
    #[error("its signature is wrong")]
    WrongSignature,
    /// It was signed too long ago for a message of its kind, or before one that was taken: it is repeated. Or the
    /// clocks of the two processes differ.
    #[error("it was signed too long ago, or the clocks differ")]
    Stale,
    /// Its subject or its origin does not fit what it says.
    #[error("its subject names another message")]
    WrongSubject,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Unsigned,
        Self::Malformed,
        Self::UnknownKey,
        Self::WrongRole,
        Self::WrongSignature,
        Self::Stale,
        Self::WrongSubject,
    ];

    /// Its word in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::Malformed => "malformed",
            Self::UnknownKey => "unknown_key",
            Self::WrongRole => "wrong_role",
            Self::WrongSignature => "wrong_signature",
            Self::Stale => "stale",
            Self::WrongSubject => "wrong_subject",
        }
    }
}

/// Error of a folder of keys. Each message says what to change.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file cannot be read or written.
    #[error("{}: {why}", path.display())]
    File {
        path: PathBuf,
        /// Error of the system.
        why: std::io::Error,
    },
    /// Invalid file.
    #[error("{}: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Problem of the file.
        why: String,
    },
}

pub(crate) fn content(path: &Path, why: impl Into<String>) -> KeysError {
    KeysError::Content {
        path: path.to_owned(),
        why: why.into(),
    }
}

/// Fields that a signature covers.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// Incarnation of the store, so that a message of another store is refused.
    pub incarnation: u64,
    /// Subject. It begins with the prefix of the store's streams.
    pub subject: &'a str,
    /// Bytes of the message.
    pub body: &'a [u8],
}

impl Signed<'_> {
    fn bytes(&self, at_ms: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.subject.len() + self.body.len());
        bytes.extend_from_slice(DOMAIN);
        bytes.extend_from_slice(&at_ms.to_be_bytes());
        bytes.extend_from_slice(&self.incarnation.to_be_bytes());
        // With its length, so that no byte of a subject can be taken for one of a body.
        bytes.extend_from_slice(&(self.subject.len() as u64).to_be_bytes());
        bytes.extend_from_slice(self.subject.as_bytes());
        bytes.extend_from_slice(self.body);
        bytes
    }
}

/// When a message was signed, by the signer's clock. Greater is later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SignedAt(u64);

impl SignedAt {
    /// Now, by this process' clock.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(since.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Whether it is at most `age` before `now`. The clocks may differ by [`CLOCKS_DIFFER_MAX`].
    ///
    /// # Errors
    ///
    /// [`Refusal::Stale`]: it is older, or in the future.
    pub fn within(self, age: Duration, now: Self) -> Result<(), Refusal> {
        let slack = CLOCKS_DIFFER_MAX.as_millis();
        let signed = u128::from(self.0);
        let now = u128::from(now.0);
        let good = now <= signed + age.as_millis() + slack && signed <= now + slack;
        good.then_some(()).ok_or(Refusal::Stale)
    }
}

struct PrivateKey {
    id: String,
    pair: Ed25519KeyPair,
}

struct PublicKey {
    role: String,
    key: Vec<u8>,
}

/// Called with each refusal, for counting.
type Counter = Box<dyn Fn(Refusal) + Send + Sync>;

/// Keys of a process: the private ones of its roles, and the public ones of all.
pub struct Keys {
    own: BTreeMap<String, PrivateKey>,
    public: BTreeMap<String, PublicKey>,
    unsigned: bool,
    counter: OnceLock<Counter>,
    unsigned_counter: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Time of the last log line. Lock held for a comparison, never across an await.
    logged: Mutex<Option<Instant>>,
    /// Refused messages since the last log line.
    silent: AtomicU64,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Public ids only: private keys do not belong in logs.
        let own = self.own.iter().map(|(role, key)| (role, &key.id));
        f.debug_map().entries(own).finish()
    }
}

impl Keys {
    /// Reads the private keys of `roles` and the ring of public keys. With `unsigned`, messages without a signature
    /// count as signed, which is for the introduction of keys.
    ///
    /// # Errors
    /// [`KeysError`]: a file is missing, is readable by all users, or is not a key.
    pub fn open(folder: &Path, roles: &[&str], unsigned: bool) -> Result<Self, KeysError> {
        let public = read_public_keys(&folder.join(PUBLIC_KEYS_FILE))?;
        let mut own = BTreeMap::new();
        for role in roles {
            let path = folder.join(private_file(role));
            let pair = read_private(&path)?;
            let id = key_id(pair.public_key().as_ref());
            if public.get(&id).is_none_or(|known| known.role != *role) {
                let why = format!(
                    "{PUBLIC_KEYS_FILE} has no public key for it: a `{role}` with the id {id}"
                );
                return Err(content(&path, why));
            }
            own.insert((*role).to_owned(), PrivateKey { id, pair });
        }
        Ok(Self {
            own,
            public,
            unsigned,
            counter: OnceLock::new(),
            unsigned_counter: OnceLock::new(),
            logged: Mutex::default(),
            silent: AtomicU64::new(0),
        })
    }

    /// Calls `counter` with each refusal from now on. Only the first call counts.
    pub fn count_with(&self, counter: impl Fn(Refusal) + Send + Sync + 'static) {
        let _ = self.counter.set(Box::new(counter));
    }

    /// Calls `counter` with each message that is taken without a signature. Only the first call counts.
    pub fn count_unsigned_with(&self, counter: impl Fn() + Send + Sync + 'static) {
        let _ = self.unsigned_counter.set(Box::new(counter));
    }

    /// Roles of the public keys, each once, in the order of the alphabet.
    pub fn roles(&self) -> BTreeSet<&str> {
        self.public.values().map(|key| key.role.as_str()).collect()
    }

    /// Whether this process can sign as `role`.
    pub fn signs_as(&self, role: &str) -> bool {
        self.own.contains_key(role)
    }

    /// Adds the signature of `role`. A role without a private key here signs nothing, and is refused by readers.
    pub fn sign(&self, role: &str, signed: Signed<'_>, headers: &mut HeaderMap) {
        let Some(key) = self.own.get(role) else {
            return;
        };
        let SignedAt(at_ms) = SignedAt::now();
        let signature = BASE64.encode(key.pair.sign(&signed.bytes(at_ms)));
        let value = format!("{FORMAT}.{at_ms}.{}.{signature}", key.id);
        headers.insert(SIGNATURE_HEADER, value.as_str());
    }

    /// Compares the signature with the message, before anything decodes its body. One of `roles` must have signed. The
    /// answer is when; nothing for an unsigned message that is accepted.
    ///
    /// # Errors
    /// [`Refusal`]: the message may not be acted upon. It is counted and logged.
    pub fn verify(
        &self,
        roles: &[&str],
        signed: Signed<'_>,
        headers: Option<&HeaderMap>,
    ) -> Result<Option<SignedAt>, Refusal> {
        let result = self.examine(roles, signed, headers);
        match result {
            Err(refusal) => self.refused(refusal, signed.subject),
            Ok(None) => {
                if let Some(counter) = self.unsigned_counter.get() {
                    counter();
                }
            }
            Ok(Some(_)) => {}
        }
        result
    }

    /// As [`Keys::verify`], without counting and logging, for readers that try again.
    ///
    /// # Errors
    /// As [`Keys::verify`].
    pub fn examine(
        &self,
        roles: &[&str],
        signed: Signed<'_>,
        headers: Option<&HeaderMap>,
    ) -> Result<Option<SignedAt>, Refusal> {
        let Some(value) = headers.and_then(|all| all.get(SIGNATURE_HEADER)) else {
            return if self.unsigned {
                Ok(None)
            } else {
                Err(Refusal::Unsigned)
            };
        };
        let mut parts = value.as_str().splitn(4, '.');
        let mut part = || parts.next().ok_or(Refusal::Malformed);
        let format = part()?;
        let at = part()?;
        let id = part()?;
        let signature = part()?;
        let at_ms: u64 = at.parse().map_err(|_| Refusal::Malformed)?;
        if format != FORMAT {
            return Err(Refusal::Malformed);
        }
        let signature = BASE64.decode(signature).map_err(|_| Refusal::Malformed)?;
        let key = self.public.get(id).ok_or(Refusal::UnknownKey)?;
        if !roles.contains(&key.role.as_str()) {
            return Err(Refusal::WrongRole);
        }
        UnparsedPublicKey::new(&ED25519, &key.key)
            .verify(&signed.bytes(at_ms), &signature)
            .map_err(|_| Refusal::WrongSignature)?;
        Ok(Some(SignedAt(at_ms)))
    }

    /// Counts a refused message, and logs it unless another was logged a moment ago.
    pub fn refused(&self, refusal: Refusal, subject: &str) {
        if let Some(counter) = self.counter.get() {
            counter(refusal);
        }
        let now = Instant::now();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_some_and(|at| now.duration_since(at) < LOG_EVERY) {
            self.silent.fetch_add(1, Ordering::Relaxed);
            return;
        }
        *logged = Some(now);
        drop(logged);
        let more = self.silent.swap(0, Ordering::Relaxed);
        tracing::error!(subject, why = %refusal, more, "a message is refused");
    }
}

fn private_file(role: &str) -> String {
    format!("{role}.key")
}

/// Id of a public key: the first 8 bytes of its SHA-256. Its digits are written here, since this package uses none of the
/// others.
pub(crate) fn key_id(public: &[u8]) -> String {
    let sum = digest(&SHA256, public);
    let mut id = String::with_capacity(16);
    for byte in sum.as_ref().iter().take(8) {
        let _ = write!(id, "{byte:02x}");
    }
    id
}

pub(crate) fn read(path: &Path) -> Result<String, KeysError> {
    fs::read_to_string(path).map_err(|why| KeysError::File {
        path: path.to_owned(),
        why,
    })
}

fn read_public_keys(path: &Path) -> Result<BTreeMap<String, PublicKey>, KeysError> {
    if mode(path)? & 0o022 != 0 {
        let why = "others may write this file, and so add a key of their own: chmod go-w";
        return Err(content(path, why));
    }
    let mut ring = BTreeMap::new();
    for (line, text) in read(path)?.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| content(path, format!("line {}: {why}", line + 1));
        let words: Vec<&str> = text.split_whitespace().collect();
        let [role, id, key] = words[..] else {
            return Err(wrong("must be ROLE KEY-ID PUBLIC-KEY"));
        };
        let key = BASE64.decode(key).unwrap_or_default();
        if key.len() != 32 || key_id(&key) != id {
            return Err(wrong("the public key and its id do not fit together"));
        }
        let role = role.to_owned();
        if ring
            .insert(id.to_owned(), PublicKey { role, key })
            .is_some()
        {
            return Err(wrong("the key is there already: each belongs to one role"));
        }
    }
    Ok(ring)
}

fn read_private(path: &Path) -> Result<Ed25519KeyPair, KeysError> {
    let text = read(path)?;
    if is_public(path)? {
        let why = "everybody may read this private key: chmod o= (a Secret: defaultMode 0440)";
        return Err(content(path, why));
    }
    let inner = text.trim().strip_prefix(PEM_BEGIN);
    let inner = inner.and_then(|it| it.strip_suffix(PEM_END));
    let key = inner.and_then(|it| BASE64.decode(it.trim()).ok());
    key.and_then(|key| Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key).ok())
        .ok_or_else(|| {
            content(
                path,
                "not an Ed25519 key in PEM, as `dormer keys make` writes",
            )
        })
}

/// Whether others than its owner and its group may read, write or execute a file.
pub(crate) fn is_public(path: &Path) -> Result<bool, KeysError> {
    mode(path).map(|mode| mode & 0o007 != 0)
}

/// Bits of a file's permissions. 0 where the system has none.
#[cfg(unix)]
fn mode(path: &Path) -> Result<u32, KeysError> {
    use std::os::unix::fs::PermissionsExt as _;
    let data = fs::metadata(path).map_err(|why| KeysError::File {
        path: path.to_owned(),
        why,
    })?;
    Ok(data.permissions().mode())
}

#[cfg(not(unix))]
fn mode(_: &Path) -> Result<u32, KeysError> {
    Ok(0)
}

/// Writes a new private key for each of `roles` into a new folder, and the ring with their public keys and those of the
/// ring `keep`. Returns the files.
///
/// # Errors
/// [`KeysError`]: the folder exists, or cannot be written.
pub fn make(folder: &Path, roles: &[&str], keep: Option<&Path>) -> Result<Vec<PathBuf>, KeysError> {
    let mut ring = match keep {
        Some(path) => {
            read_public_keys(path)?;
            read(path)?
        }
        None => "# Public keys of dormer's roles: ROLE KEY-ID PUBLIC-KEY\n".to_owned(),
    };
    if !ring.ends_with('\n') {
        ring.push('\n');
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |why| KeysError::File { path, why }
    };
    // It fails if the folder exists: nothing is overwritten.
    new_folder(folder).map_err(failed(folder))?;
    let mut files = Vec::new();
    for role in roles {
        let mut key = [0; 48];
        key[..16].copy_from_slice(&PKCS8);
        let path = folder.join(private_file(role));
        SystemRandom::new()
            .fill(&mut key[16..])
            .map_err(|_| content(&path, "the system has no randomness"))?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key)
            .map_err(|error| content(&path, error.to_string()))?;
        let public = pair.public_key().as_ref();
        let _ = writeln!(ring, "{role} {} {}", key_id(public), BASE64.encode(public));
        let text = format!("{PEM_BEGIN}\n{}\n{PEM_END}\n", BASE64.encode(key));
        write_new(&path, &text).map_err(failed(&path))?;
        files.push(path);
    }
    let path = folder.join(PUBLIC_KEYS_FILE);
    write_new(&path, &ring).map_err(failed(&path))?;
    files.push(path);
    Ok(files)
}

fn new_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

pub(crate) fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed<'a>(subject: &'a str, body: &'a [u8]) -> Signed<'a> {
        Signed {
            incarnation: 7,
            subject,
            body,
        }
    }

    #[test]
    fn a_signature_holds_for_one_message_of_one_store_by_one_role() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("keys");
        let files = make(&folder, &["engine", "worker"], None).expect("keys");
        assert_eq!(files.len(), 3);
        let keys = Keys::open(&folder, &["engine", "worker"], false).expect("keys");
        let mut headers = HeaderMap::new();
        keys.sign("engine", signed("d.tasks.host.a", b"order"), &mut headers);
        let by = |roles: &[&str], signed: Signed<'_>| keys.verify(roles, signed, Some(&headers));
        let right = signed("d.tasks.host.a", b"order");
        assert!(matches!(by(&["engine"], right), Ok(Some(_))));
        assert_eq!(by(&["worker"], right), Err(Refusal::WrongRole));
        let elsewhere = Signed {
            incarnation: 8,
            ..right
        };
        for other in [
            signed("e.tasks.host.a", b"order"),
            signed("d.tasks.host.b", b"order"),
            signed("d.tasks.host.ao", b"rder"),
            signed("d.tasks.host.a", b"other"),
            elsewhere,
        ] {
            assert_eq!(by(&["engine"], other), Err(Refusal::WrongSignature));
        }
    }

    #[test]
    fn a_signature_has_an_age() {
        let age = Duration::from_secs(60);
        let second = 1_000;
        let now = SignedAt(1_000_000 * second);
        for (ago_s, good) in [
            (0, true),
            (120, true),
            (121, false),
            (-60, true),
            (-61, false),
        ] {
            let at = SignedAt(now.0.saturating_add_signed(-ago_s * second as i64));
            assert_eq!(at.within(age, now).is_ok(), good, "{ago_s} s ago");
        }
    }

    #[test]
    fn what_is_no_signature_of_a_known_key_is_refused_and_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let ours = folder.path().join("a");
        let others = folder.path().join("b");
        make(&ours, &["engine"], None).expect("keys");
        make(&others, &["engine"], None).expect("keys");
        let keys = Keys::open(&ours, &["engine"], false).expect("keys");
        let foreign = Keys::open(&others, &["engine"], false).expect("keys");
        let counted = std::sync::Arc::new(AtomicU64::new(0));
        let counts = std::sync::Arc::clone(&counted);
        keys.count_with(move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
        });
        let message = signed("d.x", b"body");
        let mut headers = HeaderMap::new();
        let read = |headers: &HeaderMap| keys.verify(&["engine"], message, Some(headers));
        assert_eq!(read(&headers), Err(Refusal::Unsigned));
        foreign.sign("engine", message, &mut headers);
        assert_eq!(read(&headers), Err(Refusal::UnknownKey));
        keys.sign("engine", message, &mut headers);
        assert!(matches!(read(&headers), Ok(Some(_))));
        let value = headers.get(SIGNATURE_HEADER).expect("a value").to_string();
        let later = value.replacen("2.1", "2.2", 1);
        for (text, refusal) in [
            (&value[..value.len() - 4], Refusal::WrongSignature),
            (&value[..value.len() - 1], Refusal::Malformed),
            (&value[..value.len() - 88], Refusal::WrongSignature),
            (&value[..10], Refusal::Malformed),
            ("", Refusal::Malformed),
            ("2.a.b.c", Refusal::Malformed),
            ("1.a.b", Refusal::Malformed),
            // Another time than the one that was signed.
            (later.as_str(), Refusal::WrongSignature),
        ] {
            headers.insert(SIGNATURE_HEADER, text);
            assert_eq!(read(&headers), Err(refusal), "{text}");
        }
        assert_eq!(counted.load(Ordering::Relaxed), 10);
        // A process without a role's key signs nothing.
        let mut none = HeaderMap::new();
        keys.sign("worker", message, &mut none);
        assert!(none.is_empty() && !keys.signs_as("worker"));
        // Without a signature only where that is accepted, and with a wrong one nowhere.
        let lax = Keys::open(&ours, &["engine"], true).expect("keys");
        assert_eq!(lax.verify(&["engine"], message, None), Ok(None));
        let wrong = lax.verify(&["engine"], message, Some(&headers));
        assert_eq!(wrong, Err(Refusal::WrongSignature));
    }

    #[test]
    fn keys_are_never_overwritten_and_overlap_in_a_rotation() {
        let folder = tempfile::tempdir().expect("a folder");
        let old = folder.path().join("old");
        let new = folder.path().join("new");
        make(&old, &["engine"], None).expect("keys");
        assert!(make(&old, &["engine"], None).is_err(), "it is there");
        make(&new, &["engine"], Some(&old.join(PUBLIC_KEYS_FILE))).expect("keys");
        let before = Keys::open(&old, &["engine"], false).expect("keys");
        let after = Keys::open(&new, &["engine"], false).expect("keys");
        let message = signed("d.x", b"body");
        let mut headers = HeaderMap::new();
        before.sign("engine", message, &mut headers);
        assert!(matches!(
            after.verify(&["engine"], message, Some(&headers)),
            Ok(Some(_))
        ));
        after.sign("engine", message, &mut headers);
        let early = before.verify(&["engine"], message, Some(&headers));
        assert_eq!(early, Err(Refusal::UnknownKey), "the ring goes first");
        assert!(Keys::open(&new, &["worker"], false).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_private_key_that_everybody_may_read_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("keys");
        let files = make(&folder, &["engine"], None).expect("keys");
        for file in &files {
            let mode = fs::metadata(file).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
        let refusal = |file: &Path, mode: u32| {
            let before = fs::metadata(file).expect("a file").permissions();
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("a mode");
            let why = Keys::open(&folder, &["engine"], false).expect_err("a refusal");
            fs::set_permissions(file, before).expect("a mode");
            why.to_string()
        };
        let why = refusal(&files[0], 0o644);
        assert!(why.contains("chmod o="), "{why}");
        for mode in [0o620, 0o602] {
            let why = refusal(&folder.join(PUBLIC_KEYS_FILE), mode);
            assert!(why.contains("chmod go-w"), "{why}");
        }
        Keys::open(&folder, &["engine"], false).expect("keys");
    }
}
