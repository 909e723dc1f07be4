//! One token of a NATS subject for any text, and back.

use std::fmt::Write as _;

/// One NATS token for any text.
#[must_use]
pub fn token(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "={byte:02X}");
        }
    }
    out
}

/// Text of a token. `None`: [`token`] did not write it.
#[must_use]
pub fn text(token: &str) -> Option<String> {
    let mut out = Vec::with_capacity(token.len());
    let mut bytes = token.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'=' {
            let pair = [bytes.next()?, bytes.next()?];
            out.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}
