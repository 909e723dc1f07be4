//! Small text tools: hex digests and JSON that survives any code page.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// SHA-256 of `bytes`, 64 lower-case hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// `bytes` as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Whether `text` is 64 lower-case hex digits.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The same JSON in ASCII: other characters become `\uXXXX`. Outside of strings JSON is ASCII anyway.
pub fn ascii_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() && c != '\u{7f}' {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_lower_case_hex() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256_hex(b""), empty);
        assert!(is_sha256(empty));
        assert!(!is_sha256(&empty.to_uppercase()));
        assert!(!is_sha256("e3b0"));
    }

    #[test]
    fn json_keeps_its_meaning_in_ascii() {
        let json = serde_json::to_string("Größe 🙂").unwrap_or_default();
        let ascii = ascii_json(&json);
        assert!(ascii.is_ascii());
        assert_eq!(
            serde_json::from_str::<String>(&ascii).ok().as_deref(),
            Some("Größe 🙂")
        );
    }
}
