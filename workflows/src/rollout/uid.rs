//! Compact UIDs of Machines: a rollout stores thousands of them in every record.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// UID: 16 bytes if it is a UUID as Kubernetes writes them, otherwise its text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Uid {
    /// Lower case, 8-4-4-4-12.
    Uuid([u8; 16]),
    /// Any other text (a `windows-instances` entry).
    Text(Box<str>),
}

impl Default for Uid {
    fn default() -> Self {
        Self::Text("".into())
    }
}

const DASHES: [usize; 4] = [8, 13, 18, 23];

impl Uid {
    #[must_use]
    pub fn new(text: &str) -> Self {
        uuid(text).map_or_else(|| Self::Text(text.into()), Self::Uuid)
    }
}

/// `None` for every spelling that [`fmt::Display`] would not reproduce byte by byte.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != 36 || DASHES.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let mut digits = text
        .iter()
        .enumerate()
        .filter(|(at, _)| !DASHES.contains(at))
        .map(|(_, c)| c);
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = nibble(*digits.next()?)? << 4 | nibble(*digits.next()?)?;
    }
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            // Digit by digit, since the states do not use `dormer-profile`, and the dashes come between.
            Self::Uuid(bytes) => bytes.iter().enumerate().try_for_each(|(at, byte)| {
                let dash = if matches!(at, 4 | 6 | 8 | 10) {
                    "-"
                } else {
                    ""
                };
                write!(f, "{dash}{byte:02x}")
            }),
        }
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Uuid(bytes) if !to.is_human_readable() => to.serialize_bytes(bytes),
            Self::Uuid(_) => to.collect_str(self),
            Self::Text(text) => to.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl de::Visitor<'_> for Reader {
    type Value = Uid;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a UID, as text or as 16 bytes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Uid, E> {
        Ok(Uid::new(text))
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Uid, E> {
        let bytes = bytes
            .try_into()
            .map_err(|_| E::invalid_length(bytes.len(), &self))?;
        Ok(Uid::Uuid(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::Uid;

    #[test]
    fn a_uuid_is_sixteen_bytes_and_comes_back_as_it_was() {
        let text = "0b5f6f0e-8a54-4c53-9d7a-6a5fb2a5c001";
        let uid = Uid::new(text);
        assert!(matches!(uid, Uid::Uuid(_)));
        assert_eq!(uid.to_string(), text);
        let bytes = rmp_serde::to_vec_named(&uid).unwrap();
        assert_eq!(bytes.len(), 18);
        assert_eq!(rmp_serde::from_slice::<Uid>(&bytes).unwrap(), uid);
    }

    #[test]
    fn any_other_spelling_stays_text() {
        for text in [
            "",
            "host-7@1700000000",
            "0B5F6F0E-8A54-4C53-9D7A-6A5FB2A5C001",
            &"é".repeat(18),
        ] {
            let uid = Uid::new(text);
            assert_eq!(uid, Uid::Text(text.into()));
            let bytes = rmp_serde::to_vec_named(&uid).unwrap();
            assert_eq!(rmp_serde::from_slice::<Uid>(&bytes).unwrap(), uid);
        }
    }
}
