//! Envelope: version, kind and checksum around every MessagePack body.

use crate::id::{Sum, hash64};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Version of the envelope and of the engine's own types. Raise it when an older build could not read a newer one's.
pub const VERSION: u16 = 1;
/// Largest encoded message, in bytes: NATS' default `max_payload` (1 MiB) less room for headers.
pub const MESSAGE_BYTES_MAX: usize = 1_000_000;

/// Body of an envelope.
pub trait Message {
    /// Kind in the envelope.
    const KIND: &'static str;
}

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    v: u16,
    schema: u16,
    kind: &'a str,
    sum: u64,
    #[serde(with = "serde_bytes")]
    body: &'a [u8],
    /// MAC of a record, with the id of its key. Builds without it pass over it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    mac: Option<&'a str>,
}

/// Parts of an envelope that a MAC covers, before anything decodes the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    /// Version of the envelope.
    pub version: u16,
    /// The workflow's schema.
    pub schema: u16,
    /// Kind of the message.
    pub kind: &'a str,
    pub body: &'a [u8],
    /// MAC, if there is one.
    pub mac: Option<&'a str>,
}

/// Reads the parts of an envelope, and not its body.
///
/// # Errors
/// [`DecodeError::NotAnEnvelope`].
pub fn parts(bytes: &[u8]) -> Result<Parts<'_>, DecodeError> {
    let Envelope {
        v: version,
        schema,
        kind,
        body,
        mac,
        ..
    } = rmp_serde::from_slice(bytes).map_err(|e| DecodeError::NotAnEnvelope(e.to_string()))?;
    Ok(Parts {
        version,
        schema,
        kind,
        body,
        mac,
    })
}

/// The same envelope with this MAC instead of its own. `None`: the bytes are not an envelope.
#[must_use]
pub fn with_mac(bytes: &[u8], mac: &str) -> Option<Vec<u8>> {
    let mut envelope: Envelope<'_> = rmp_serde::from_slice(bytes).ok()?;
    envelope.mac = Some(mac);
    rmp_serde::to_vec_named(&envelope).ok()
}

/// Error of decoding. [`DecodeError::Newer`] is not a fault: leave the message to a newer build.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not an envelope.
    #[error("not an envelope: {0}")]
    NotAnEnvelope(String),
    /// A newer build wrote it.
    #[error(
        "written with version {version}, schema {schema}; this build reads up to {known}, \
         {known_schema}"
    )]
    Newer {
        /// The envelope's version.
        version: u16,
        /// The workflow schema inside.
        schema: u16,
        /// Envelope version that this build knows.
        known: u16,
        /// The workflow schema that this build knows.
        known_schema: u16,
    },
    /// Another kind of message.
    #[error("expected a {want} message, found {found:?}")]
    Kind {
        /// Expected kind.
        want: &'static str,
        found: String,
    },
    /// The checksum does not match the body.
    #[error("{kind} message is damaged: the checksum of its {bytes} bytes does not match")]
    Damaged {
        /// The kind found.
        kind: String,
        /// Length of the body.
        bytes: usize,
    },
    /// The body does not have the fields of its kind.
    #[error("{kind} message has an unreadable body: {detail}")]
    Body {
        /// The kind found.
        kind: &'static str,
        /// Error of serde.
        detail: String,
    },
}

/// Error of encoding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Larger than [`MESSAGE_BYTES_MAX`].
    #[error("{kind} message has {bytes} bytes, but at most {MESSAGE_BYTES_MAX} are allowed")]
    TooLarge {
        /// Kind of the message, as [`Message::KIND`].
        kind: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A value that MessagePack cannot hold.
    #[error("{kind} message cannot be written: {detail}")]
    Value {
        /// Kind of the message, as [`Message::KIND`].
        kind: &'static str,
        /// Error of serde.
        detail: String,
    },
}

/// Writes `message` as a named MessagePack map in an envelope; `schema` is the workflow's number (0: none inside).
/// The [`Sum`] is the body's checksum: of a record, the record's.
///
/// # Errors
/// [`EncodeError`]: the result would be too large.
pub fn encode<M: Message + Serialize>(
    message: &M,
    schema: u16,
) -> Result<(Vec<u8>, Sum), EncodeError> {
    let value = |e: rmp_serde::encode::Error| EncodeError::Value {
        kind: M::KIND,
        detail: e.to_string(),
    };
    let body = rmp_serde::to_vec_named(message).map_err(value)?;
    let sum = hash64(&body);
    let envelope = Envelope {
        v: VERSION,
        schema,
        kind: M::KIND,
        sum,
        body: &body,
        mac: None,
    };
    let bytes = rmp_serde::to_vec_named(&envelope).map_err(value)?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(EncodeError::TooLarge {
            kind: M::KIND,
            bytes: bytes.len(),
        });
    }
    Ok((bytes, Sum(sum)))
}

/// Reads a message of kind `M`; `known_schema` is the workflow's number in this build.
///
/// # Errors
/// [`DecodeError`] with the reason.
pub fn decode<M: Message + DeserializeOwned>(
    bytes: &[u8],
    known_schema: u16,
) -> Result<(M, Sum), DecodeError> {
    let envelope: Envelope<'_> =
        rmp_serde::from_slice(bytes).map_err(|e| DecodeError::NotAnEnvelope(e.to_string()))?;
    if envelope.v > VERSION || envelope.schema > known_schema {
        return Err(DecodeError::Newer {
            version: envelope.v,
            schema: envelope.schema,
            known: VERSION,
            known_schema,
        });
    }
    if envelope.kind != M::KIND {
        return Err(DecodeError::Kind {
            want: M::KIND,
            found: envelope.kind.to_owned(),
        });
    }
    if hash64(envelope.body) != envelope.sum {
        return Err(DecodeError::Damaged {
            kind: envelope.kind.to_owned(),
            bytes: envelope.body.len(),
        });
    }
    let body = rmp_serde::from_slice(envelope.body).map_err(|e| DecodeError::Body {
        kind: M::KIND,
        detail: e.to_string(),
    })?;
    Ok((body, Sum(envelope.sum)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Note {
        text: String,
    }
    impl Message for Note {
        const KIND: &'static str = "note";
    }

    fn written() -> Vec<u8> {
        encode(
            &Note {
                text: "hello".into(),
            },
            3,
        )
        .unwrap()
        .0
    }

    #[test]
    fn a_newer_schema_is_left_alone() {
        assert!(matches!(
            decode::<Note>(&written(), 2),
            Err(DecodeError::Newer {
                schema: 3,
                known_schema: 2,
                ..
            })
        ));
        assert!(decode::<Note>(&written(), 3).is_ok());
    }

    #[test]
    fn a_mac_changes_nothing_else() {
        let bytes = with_mac(&written(), "1.key.mac").expect("an envelope");
        let plain = written();
        let with = parts(&bytes).unwrap();
        let without = parts(&plain).unwrap();
        assert_eq!(
            with,
            Parts {
                mac: Some("1.key.mac"),
                ..without
            }
        );
        assert_eq!(decode::<Note>(&bytes, 3), decode::<Note>(&written(), 3));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = written();
        for at in 0..bytes.len() * 8 {
            let mut hurt = bytes.clone();
            hurt[at / 8] ^= 1 << (at % 8);
            // A flip in the version or schema may read as newer or older; it never yields another note.
            if let Ok((note, _)) = decode::<Note>(&hurt, 3) {
                assert_eq!(note.text, "hello", "bit {at}");
            }
        }
    }

    #[test]
    fn every_truncation_is_named() {
        let bytes = written();
        for len in 0..bytes.len() {
            assert!(decode::<Note>(&bytes[..len], 3).is_err(), "{len} bytes");
        }
    }
}
