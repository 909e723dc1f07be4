//! Removal of secrets from a host's output before people read it. A console may break a line anywhere, so line ends are
//! ignored. Secrets are:
//! - values that this worker knows;
//! - lines and longer words of files that dormer wrote by a document, plain or in base64;
//! - text in the form of a token, a private key, a password in a URL or a long run of base64.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use dormer_profile::{document::Document, proxy, shown::decoded};
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

/// Replacement for a secret.
pub(super) const SECRET: &str = "[secret]";
/// Bytes that are looked through. Nothing is shown of more.
pub(super) const SCRUBBED_BYTES_MAX: usize = 64 << 10;
/// The shortest piece of a document's content that counts as a secret: shorter ones are common words.
const PIECE_LEAST: usize = 12;
/// The shortest run of base64 that is taken out unseen: longer than a SHA-256 in hexadecimal.
const BLOB_LEAST: usize = 80;
/// How a JSON web token begins: base64 of `{"`.
const WEB_TOKEN: &[u8] = b"eyJ";
/// The shortest run after such a beginning that counts as a token.
const WEB_TOKEN_LEAST: usize = 20;
/// Messages of the two halves of a bootstrap token, with a dot between them.
const BOOTSTRAP_TOKEN: (usize, usize) = (6, 16);

/// Secrets by their first bytes.
#[derive(Default)]
pub(super) struct Scrub {
    pieces: HashMap<[u8; FIRST], HashSet<Vec<u8>>>,
    count: usize,
}

impl std::fmt::Debug for Scrub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scrub of {}", self.count)
    }
}

/// Bytes that a secret is looked up by.
const FIRST: usize = 4;

impl Scrub {
    /// Learns all inline contents of a document, except words that it also shows openly (in a path, a name, its
    /// version) and the words in `open`.
    pub(super) fn learn_document<'a>(
        &mut self,
        document: &Document,
        open: impl IntoIterator<Item = &'a str>,
    ) {
        let mut inside = Vec::new();
        let mut said = String::new();
        open.into_iter()
            .for_each(|value| said.extend([value, "\n"]));
        sort(&decoded(document), &mut inside, &mut said);
        inside.iter().for_each(|text| self.learn(text, &said));
    }

    /// How many pieces are known.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Learns each line and each longer word of a text, except those in `open`.
    pub(super) fn learn(&mut self, text: &str, open: &str) {
        let words = text.split(|c: char| c.is_whitespace() || "\"',;<>()[]{}".contains(c));
        // A path or an address is no secret, and outputs are full of them.
        let words = words.filter(|word| !word.contains([':', '\\']));
        for piece in text.lines().map(str::trim).chain(words) {
            if piece.len() >= PIECE_LEAST && !open.contains(piece) {
                self.put(piece.as_bytes().to_vec());
                encoded(piece.as_bytes())
                    .into_iter()
                    .for_each(|piece| self.put(piece));
            }
        }
    }

    fn put(&mut self, piece: Vec<u8>) {
        if let Some(first) = piece.first_chunk() {
            let new = self.pieces.entry(*first).or_default().insert(piece);
            self.count += usize::from(new);
        }
    }

    fn known(&self, flat: &[u8], mark: &mut impl FnMut(Range<usize>)) {
        for (at, first) in flat.windows(FIRST).enumerate() {
            let pieces = <&[u8; FIRST]>::try_from(first)
                .ok()
                .and_then(|first| self.pieces.get(first));
            let found = pieces
                .into_iter()
                .flatten()
                .filter(|piece| flat[at..].starts_with(piece));
            found.for_each(|piece| mark(at..at + piece.len()));
        }
    }
}

/// The text with [`SECRET`] instead of each secret in `known`, and of each text that has the form of a secret.
pub(super) fn clean(known: &[&Scrub], text: &str) -> String {
    let (flat, positions): (Vec<u8>, Vec<usize>) = text
        .bytes()
        .enumerate()
        .filter(|(_, byte)| !matches!(byte, b'\r' | b'\n' | 0))
        .map(|(at, byte)| (byte, at))
        .unzip();
    let mut secret = vec![false; flat.len()];
    let mut mark = |range: Range<usize>| secret[range].fill(true);
    known.iter().for_each(|scrub| scrub.known(&flat, &mut mark));
    shapes(&flat, &mut mark);
    keys(&flat, &mut mark);
    proxy::passwords(&flat).for_each(&mut mark);
    without(text, &positions, &secret)
}

/// Texts of a document that may hold secrets (files' contents, values of variables), and all others.
fn sort(value: &Value, inside: &mut Vec<String>, open: &mut String) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if ["text", "content", "value"].contains(&key.as_str()) => {
                        inside.push(text.clone());
                    }
                    Value::Object(variables) if key == "environment" => {
                        // A path is no secret, and outputs are full of them.
                        let values = variables.values().filter_map(Value::as_str);
                        inside.extend(values.filter(|it| !it.contains('\\')).map(str::to_owned));
                    }
                    other => {
                        open.extend([key, "\n"]);
                        sort(other, inside, open);
                    }
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|one| sort(one, inside, open)),
        Value::String(text) => open.extend([text.as_str(), "\n"]),
        _ => {}
    }
}

/// The part of a piece's base64 that does not depend on its surroundings: one for each of the three possible offsets of
/// its first byte.
fn encoded(piece: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(piece);
        let whole = bytes.len() / 3 * 4;
        let first = if before == 0 { 0 } else { 4 };
        for text in [
            STANDARD_NO_PAD.encode(&bytes),
            URL_SAFE_NO_PAD.encode(&bytes),
        ] {
            all.extend(text.as_bytes().get(first..whole).map(<[u8]>::to_vec));
        }
    }
    all.retain(|text| text.len() >= PIECE_LEAST);
    all
}

fn of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'_' | b'-' | b'.')
}

/// Finds text that has the form of a secret.
fn shapes(flat: &[u8], mark: &mut impl FnMut(Range<usize>)) {
    let mut at = 0;
    for run in flat.split(|byte| !of_token(*byte)) {
        let range = at..at + run.len();
        at = range.end + 1;
        let web = run
            .windows(WEB_TOKEN.len())
            .position(|part| part == WEB_TOKEN);
        if run.len() >= BLOB_LEAST || bootstrap(run) {
            mark(range);
        } else if let Some(from) = web
            && run.len() - from >= WEB_TOKEN_LEAST
        {
            mark(range.start + from..range.end);
        }
    }
}

fn bootstrap(run: &[u8]) -> bool {
    let (id, secret) = BOOTSTRAP_TOKEN;
    let messages = |part: &[u8]| part.iter().all(u8::is_ascii_alphanumeric);
    run.len() == id + 1 + secret
        && run[id] == b'.'
        && messages(&run[..id])
        && messages(&run[id + 1..])
}

/// Private keys as PEM: from one's beginning to its end, or to the end of the text.
fn keys(flat: &[u8], mark: &mut impl FnMut(Range<usize>)) {
    let find = |from: usize, what: &[u8]| {
        let found = flat[from..]
            .windows(what.len())
            .position(|part| part == what);
        found.map(|at| from + at)
    };
    let mut from = 0;
    while let Some(begun) = find(from, b"PRIVATE KEY-----") {
        let inside = begun + b"PRIVATE KEY-----".len();
        let end = find(inside, b"-----END").unwrap_or(flat.len());
        mark(inside..end);
        // The end line identifies a private key as well.
        from = find(end, b"PRIVATE KEY-----").map_or(flat.len(), |at| at + 16);
    }
}

/// The text without secret bytes, and without the line ends between two of them.
fn without(text: &str, positions: &[usize], secret: &[bool]) -> String {
    let mut kept = Vec::with_capacity(text.len());
    let mut next = 0;
    let mut at = 0;
    while at < secret.len() {
        if !secret[at] {
            at += 1;
            continue;
        }
        let end = secret[at..]
            .iter()
            .position(|is| !is)
            .map_or(secret.len(), |more| at + more);
        kept.extend_from_slice(&text.as_bytes()[next..positions[at]]);
        kept.extend_from_slice(SECRET.as_bytes());
        next = positions[end - 1] + 1;
        at = end;
    }
    kept.extend_from_slice(&text.as_bytes()[next..]);
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;

    const TOKEN: &str = "s3cr3t-marked-token-of-a-host";

    fn scrub() -> Scrub {
        let mut scrub = Scrub::default();
        let open = "C:\\k\\11.0.0-0123456789ab\\kubelet.exe";
        scrub.learn(
            &format!("{{\"users\": [{{\"token\": \"{TOKEN}\"}}]}}\n11.0.0-0123456789ab"),
            open,
        );
        scrub
    }

    #[test]
    fn what_a_document_says_is_taken_out_plain_encoded_and_broken_by_line_ends() {
        let scrub = scrub();
        assert_eq!(clean(&[&scrub], &format!("a {TOKEN} b")), "a [secret] b");
        let (one, two) = TOKEN.split_at(9);
        assert_eq!(
            clean(&[&scrub], &format!("a {one}\r\n{two} b")),
            "a [secret] b"
        );
        for before in ["", "x", "xy", "xyz"] {
            let text = STANDARD.encode(format!("{before}{TOKEN}{before}"));
            let cleaned = clean(&[&scrub], &text);
            assert!(
                cleaned.contains(SECRET) && cleaned.len() < 24,
                "{before}: {cleaned}"
            );
        }
        let folder = "C:\\k\\11.0.0-0123456789ab";
        assert_eq!(
            clean(&[&scrub], folder),
            folder,
            "the document says it openly, too"
        );
        let plain =
            "kubelet: the service did not start within 30 s, code 1053\r\nC:\\k\\kubelet.exe";
        assert_eq!(clean(&[&scrub], plain), plain);
    }

    #[test]
    fn what_resembles_a_secret_is_removed_without_being_known() {
        let blob = "Zm9v".repeat(30);
        let key = "-----BEGIN PRIVATE KEY-----\nMIIB\nabc\n-----END PRIVATE KEY-----\nand";
        for (text, expected) in [
            ("join abcdef.0123456789abcdef now", "join [secret] now"),
            (
                "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOi.AAAA ok",
                "Bearer [secret] ok",
            ),
            (&format!("<{blob}>"), "<[secret]>"),
            (
                key,
                "-----BEGIN PRIVATE KEY-----\n[secret]\n-----END PRIVATE KEY-----\nand",
            ),
        ] {
            assert_eq!(clean(&[], text), expected);
        }
        let hash = "ab12".repeat(16);
        assert_eq!(clean(&[], &hash), hash);
    }
}
