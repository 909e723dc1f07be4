//! Keys of the history: a MAC on each record proves that an engine of this installation wrote it, where it lies.
//!
//! All engines share the keys, because each engine decides for every run. No other role needs them.

use crate::signing::{KeysError, content, is_public, key_id, read, write_new};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ring::{
    hmac::{self, HMAC_SHA256},
    rand::{SecureRandom, SystemRandom},
};
use std::{fmt::Write as _, path::Path};

/// File of the history's keys in a folder of keys: in each line a key id and a key in Base64. The first key writes, and
/// every key is accepted.
pub const HISTORY_KEYS_FILE: &str = "history.keys";
/// Number of this format of MACs.
const FORMAT: &str = "1";
/// Prefix of the data under a MAC, so that the MAC is valid for no other purpose.
const DOMAIN: &[u8] = b"dormer record 1\0";
const KEY_BYTES: usize = 32;

/// Reason for which a record is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// It has no MAC.
    #[error("it has no MAC")]
    Missing,
    /// No key has the id that its MAC names.
    #[error("its MAC is by the key {0}, which is not in --history-keys")]
    UnknownKey(String),
    /// Its MAC is of other bytes, another run or another store, or cannot be read.
    #[error("its MAC is wrong: it was changed, or written for another run or store")]
    Wrong,
}

impl Unproven {
    /// Stable code of the quarantine.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing => "RecordUnkeyed",
            Self::UnknownKey(_) => "RecordKeyUnknown",
            Self::Wrong => "RecordForged",
        }
    }
}

struct Key {
    id: String,
    key: hmac::Key,
}

/// Keys of the history. The first writes; all are accepted.
pub struct HistoryKeys {
    keys: Vec<Key>,
    unkeyed: bool,
}

impl std::fmt::Debug for HistoryKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Ids only: keys do not belong in logs.
        let ids = self.keys.iter().map(|key| &key.id);
        f.debug_list().entries(ids).finish()
    }
}

impl HistoryKeys {
    /// Reads a file of keys. With `unkeyed`, records without a MAC are believed, which is for the introduction of keys.
    ///
    /// # Errors
    /// [`KeysError`]: the file is missing, is readable by all users, or has no keys.
    pub fn open(path: &Path, unkeyed: bool) -> Result<Self, KeysError> {
        let text = read(path)?;
        if is_public(path)? {
            let why = "everybody may read these keys: chmod o= (a Secret: defaultMode 0440)";
            return Err(content(path, why));
        }
        let mut keys: Vec<Key> = Vec::new();
        for (id, bytes) in parse(path, &text)? {
            if keys.iter().any(|key| key.id == id) {
                return Err(content(path, format!("the key {id} is there twice")));
            }
            let key = hmac::Key::new(HMAC_SHA256, &bytes);
            keys.push(Key { id, key });
        }
        if keys.is_empty() {
            return Err(content(path, "it has no key"));
        }
        Ok(Self { keys, unkeyed })
    }

    /// Whether records without a MAC are believed.
    pub fn accepts_unkeyed(&self) -> bool {
        self.unkeyed
    }

    /// Id of the key that writes.
    pub fn writes_as(&self) -> &str {
        self.keys.first().map_or("", |key| key.id.as_str())
    }

    /// MAC over these parts, with the id of its key: `1.<key id>.<MAC in Base64>`.
    pub fn mac(&self, parts: &[&[u8]]) -> Option<String> {
        let Key { id, key } = self.keys.first()?;
        let mac = BASE64.encode(hmac::sign(key, &framed(parts)));
        Some(format!("{FORMAT}.{id}.{mac}"))
    }

    /// Compares a MAC with these parts. Returns the id of its key.
    ///
    /// # Errors
    /// [`Unproven`], also for a missing MAC: whether that is believed is the caller's decision.
    pub fn verify<'a>(&self, parts: &[&[u8]], mac: Option<&'a str>) -> Result<&'a str, Unproven> {
        let mut words = mac.ok_or(Unproven::Missing)?.splitn(3, '.');
        let (Some(FORMAT), Some(id), Some(mac)) = (words.next(), words.next(), words.next()) else {
            return Err(Unproven::Wrong);
        };
        let Some(key) = self.keys.iter().find(|key| key.id == id) else {
            return Err(Unproven::UnknownKey(id.chars().take(32).collect()));
        };
        let mac = BASE64.decode(mac).map_err(|_| Unproven::Wrong)?;
        hmac::verify(&key.key, &framed(parts), &mac).map_err(|_| Unproven::Wrong)?;
        Ok(id)
    }
}

/// The parts, each with its length, so that no byte of one can be taken for one of the next.
fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len() + 8).sum();
    let mut bytes = Vec::with_capacity(DOMAIN.len() + length);
    bytes.extend_from_slice(DOMAIN);
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

fn parse(path: &Path, text: &str) -> Result<Vec<(String, Vec<u8>)>, KeysError> {
    let mut keys = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let key = match words[..] {
            [id, key] => (id, BASE64.decode(key).unwrap_or_default()),
            _ => ("", Vec::new()),
        };
        if key.1.len() != KEY_BYTES || key_id(&key.1) != key.0 {
            let why = format!("line {}: must be KEY-ID KEY, as written", line + 1);
            return Err(content(path, why));
        }
        keys.push((key.0.to_owned(), key.1));
    }
    Ok(keys)
}

/// Writes a file with the keys of the file `keep` and a new one behind them. The first key still writes: every engine
/// must know the new one before one of them writes with it.
///
/// # Errors
/// [`KeysError`]: the file exists, or `keep` is no file of keys.
pub fn make_history_keys(path: &Path, keep: Option<&Path>) -> Result<(), KeysError> {
    let mut text =
        "# Keys of dormer's history, for engines only: KEY-ID KEY. The first one writes.\n"
            .to_owned();
    if let Some(keep) = keep {
        for (id, key) in parse(keep, &read(keep)?)? {
            let _ = writeln!(text, "{id} {}", BASE64.encode(key));
        }
    }
    let mut key = [0; KEY_BYTES];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| content(path, "the system has no randomness"))?;
    let _ = writeln!(text, "{} {}", key_id(&key), BASE64.encode(key));
    write_new(path, &text).map_err(|why| KeysError::File {
        path: path.to_owned(),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_holds_for_its_parts_and_its_key_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let [old, new, other] = ["old", "new", "other"].map(|name| folder.path().join(name));
        make_history_keys(&old, None).expect("keys");
        make_history_keys(&new, Some(&old)).expect("keys");
        make_history_keys(&other, None).expect("keys");
        let keys = HistoryKeys::open(&old, false).expect("keys");
        let mac = keys.mac(&[b"run", b"body"]).expect("a MAC");
        let rotated = HistoryKeys::open(&new, false).expect("keys");
        assert_eq!(rotated.writes_as(), keys.writes_as(), "the old key writes");
        let same = rotated.verify(&[b"run", b"body"], Some(&mac));
        assert_eq!(same, Ok(keys.writes_as()));
        let moved = rotated.verify(&[b"runb", b"ody"], Some(&mac));
        assert_eq!(moved, Err(Unproven::Wrong));
        assert_eq!(rotated.verify(&[b"run"], None), Err(Unproven::Missing));
        let short = rotated.verify(&[b"run", b"body"], Some(&mac[..mac.len() - 4]));
        assert_eq!(short, Err(Unproven::Wrong));
        let other = HistoryKeys::open(&other, false).expect("keys");
        let unknown = Err(Unproven::UnknownKey(keys.writes_as().to_owned()));
        assert_eq!(other.verify(&[b"run", b"body"], Some(&mac)), unknown);
    }
}
