//! Takes secrets out of values and texts: by the names of fields, by the words before a secret, and by its
//! form.

use dormer_workers::host::scrubbed;
use serde_json::Value;

/// Text that replaces a secret.
const SECRET: &str = "[secret]";
/// Parts of a field's name that make its text a secret, in lower case and without marks.
const FIELDS: [&str; 18] = [
    "password",
    "passwd",
    "secret",
    "token",
    "privatekey",
    "apikey",
    "accesskey",
    "credential",
    "authorization",
    "cookie",
    "userdata",
    "envelope",
    "passphrase",
    "pwd",
    "accountkey",
    "sharedkey",
    "encryptionkey",
    "signature",
];
/// Ends of a field's name that make its text a secret, as in `DB_PASS` and `--pat`.
const ENDS: [&str; 4] = ["pass", "_pw", "pat", "sig"];
/// Words after which the next word is a secret.
const BEFORE: [&str; 10] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "token",
    "bearer",
    "basic",
    "key",
    "cookie",
];
/// Words that may stand between.
const BETWEEN: [&str; 5] = ["is", "was", "=", ":", "the"];
/// Begins of words that are secrets by their form.
const FORMS: [&str; 8] = [
    "sha256~",
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "xox",
];

/// The value without secrets. Numbers and booleans stay.
pub(super) fn redacted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            // An environment variable, a header or a field of a form: its name stands beside its value.
            let named = ["name", "key", "header"]
                .iter()
                .filter_map(|name| fields.get(*name)?.as_str())
                .any(is_secret);
            let fields = fields.iter().map(|(name, value)| {
                let hidden = is_secret(name) || named && name == "value";
                (
                    name.clone(),
                    if hidden { hide(value) } else { redacted(value) },
                )
            });
            Value::Object(fields.collect())
        }
        Value::Array(all) => Value::Array(all.iter().map(redacted).collect()),
        Value::String(said) => Value::String(text(said)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Whether a field of this name holds a secret.
fn is_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let plain = plain.to_ascii_lowercase();
    let lower = name.trim_matches(|c: char| !c.is_alphanumeric());
    let lower = lower.to_lowercase();
    // The last part of a name alone: `path` and `signal` are no secrets.
    let last = lower.rsplit(['_', '-', '.']).next().unwrap_or_default();
    FIELDS.iter().any(|field| plain.contains(field))
        || ENDS.iter().any(|end| last == end.trim_start_matches('_'))
}

/// The value with every text in it hidden.
fn hide(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), hide(value)));
            Value::Object(fields.collect())
        }
        Value::Array(all) => Value::Array(all.iter().map(hide).collect()),
        Value::String(_) => Value::String(SECRET.to_owned()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The text without what looks like a secret.
pub(super) fn text(said: &str) -> String {
    let mut out = String::with_capacity(said.len());
    let mut expects = ExpectedValue::Nothing;
    let mut rest = said;
    while !rest.is_empty() {
        let blank = rest
            .find(|c: char| !c.is_whitespace())
            .unwrap_or(rest.len());
        out += &rest[..blank];
        rest = &rest[blank..];
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let word = &rest[..end];
        rest = &rest[end..];
        let bare = word
            .trim_matches(|c: char| !c.is_alphanumeric())
            .to_lowercase();
        if BETWEEN.contains(&word.to_lowercase().as_str()) {
            out += word;
            if ["=", ":"].contains(&word) {
                expects = expects.certain();
            }
            continue;
        }
        let names = word.ends_with([':', '=']) || word.starts_with('-');
        let named = names && is_secret(&bare) && !bare.contains(['=', ':']);
        if BEFORE.contains(&bare.as_str()) || named {
            out += word;
            expects = ExpectedValue::after(word, &bare);
            continue;
        }
        match (expects.is(word), word.chars().next()) {
            (true, Some(quote @ ('"' | '\''))) => {
                // A quoted secret ends at its quote, and may have blanks.
                let whole = &said[said.len() - rest.len() - word.len()..];
                let close = whole[1..].find(quote).map_or(whole.len(), |at| at + 2);
                rest = &whole[close..];
                out += SECRET;
            }
            (true, _) => out += SECRET,
            (false, _) => out += &part(word),
        }
        expects = ExpectedValue::Nothing;
    }
    scrubbed(&out)
}

/// What the words before say of the next one.
#[derive(Debug, Clone, Copy)]
enum ExpectedValue {
    Nothing,
    /// It may be a secret: people also write of keys and tokens.
    Perhaps,
    Secret,
}

impl ExpectedValue {
    /// After a word such as `password:`, which is `bare` without its marks.
    fn after(word: &str, bare: &str) -> Self {
        let named = word.ends_with([':', '=']) && bare != "key" || word.starts_with('-');
        match named || ["bearer", "basic"].contains(&bare) {
            true => Self::Secret,
            false => Self::Perhaps,
        }
    }

    /// After a mark that stands alone: `password = x`.
    fn certain(self) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Perhaps | Self::Secret => Self::Secret,
        }
    }

    fn is(self, word: &str) -> bool {
        let unlike_words = word.len() >= PERHAPS_LEAST
            && word.contains(|c: char| c.is_ascii_digit())
            && !KINDS_OF_KEY.iter().any(|kind| word.starts_with(kind));
        match self {
            Self::Nothing => false,
            Self::Perhaps => unlike_words,
            Self::Secret => !word.is_empty(),
        }
    }
}

/// Begins of words that follow "key" and are none.
const KINDS_OF_KEY: [&str; 3] = ["ssh-", "ecdsa-", "SHA256:"];
/// Fewest bytes of a word that may be a secret.
const PERHAPS_LEAST: usize = 6;

/// Marks between the parts of a word, as in JSON, in queries and in connection strings.
const MARKS: &str = ",;&?{}[]()|<>";

/// A word without its secret parts: `--token=x`, `{"password":"x"}`, `Server=db;Password=x`, `https://user:x@host`, and
/// words of a known form.
fn part(word: &str) -> String {
    if let Some((scheme, tail)) = word.split_once("://")
        && let Some((_, host)) = tail.rsplit_once('@')
    {
        return format!("{scheme}://{SECRET}@{}", part(host));
    }
    let mut out = String::with_capacity(word.len());
    // What follows a secret up to the next name may be its rest: a password may hold a mark.
    let mut rest_of_secret = false;
    for piece in word.split_inclusive(|c: char| MARKS.contains(c)) {
        let body = piece.trim_end_matches(|c: char| MARKS.contains(c));
        let named = body.contains(['=', ':']);
        if rest_of_secret && !named && !body.is_empty() {
            out += SECRET;
        } else {
            let shown = piece_without(body);
            rest_of_secret = (rest_of_secret && body.is_empty()) || (named && shown != body);
            out += &shown;
        }
        out += &piece[body.len()..];
    }
    out
}

/// A piece between marks without its secret part.
fn piece_without(piece: &str) -> String {
    if let Some((name, value)) = piece.split_once(['=', ':'])
        && !value.is_empty()
    {
        let mark = &piece[name.len()..=name.len()];
        let plain = name.to_lowercase();
        let plain = plain.trim_matches(|c: char| !c.is_alphanumeric());
        if is_secret(name) || BEFORE.iter().any(|before| plain.ends_with(before)) {
            return format!("{name}{mark}{SECRET}");
        }
        if let Some((_, host)) = value.rsplit_once('@') {
            return format!("{SECRET}@{host}");
        }
    }
    let mut bare = piece.split(|c: char| "\"'=".contains(c));
    let formed = |bare: &str| FORMS.iter().any(|form| bare.starts_with(form)) || is_key(bare);
    let mut words = piece.split(|c: char| !c.is_ascii_alphanumeric());
    match bare.any(formed) || words.any(is_seed) {
        true => SECRET.to_owned(),
        false => piece.to_owned(),
    }
}

/// Fewest bytes of a key in base64: 240 bits.
const KEY_LEAST: usize = 40;

/// Length of a seed of NATS, such as `SU…`: a private key in base32 (nats-io/nkeys, `strkey.go`).
const SEED_LENGTH: usize = 58;

/// Whether a word is a seed of NATS. Public keys begin with another letter, and are shorter.
fn is_seed(word: &str) -> bool {
    word.len() == SEED_LENGTH
        && word.starts_with('S')
        && word.chars().all(|c| matches!(c, 'A'..='Z' | '2'..='7'))
}

/// Whether a word is a key in base64. Digests in hexadecimal stay, and so do fingerprints: they are no secrets.
fn is_key(word: &str) -> bool {
    let has = |of: fn(&char) -> bool| word.chars().any(|c| of(&c));
    word.len() >= KEY_LEAST
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+/_-".contains(c))
        && has(char::is_ascii_uppercase)
        && has(char::is_ascii_lowercase)
        && has(char::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_sentences_stay_as_they_are() {
        for said in [
            "win-a failed 8 minutes ago (08:02 UTC) while probing: no answer (NoAnswer)",
            "C:\\Windows\\dormer\\state\\lock at 10.0.0.9:22, https://10.0.0.9:10250/metrics",
            "converge-host failed, attempt 3 of 5: access_denied\n  second line",
            "the key is not accepted (AuthRejected); no key fits; the token 7 is closed",
            "the host key ssh-ed25519 SHA256:DRwR6J0CVaRnaXbLZJ0bDk4lYwWJxyHnOGpnHuHHuUo, pinned at 08:02:11",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 of C:\\k\\kubelet.exe",
            "aws:///us-east-1a/i-0123456789abcdef0, machine/6d3f0c1e-8a52-4a0e-9c53-2f8f2b7f1a11",
            "{\"phase\":\"serving\",\"attempt\":3}",
            "",
        ] {
            assert_eq!(text(said), said);
        }
        assert_eq!(text("pwd=a,b;mode=fast"), "pwd=[secret],[secret];mode=fast");
        for (said, shown) in [
            ("DB_PASSWORD: correcthorse9 ok", "DB_PASSWORD: [secret] ok"),
            ("password = correcthorse and", "password = [secret] and"),
            (
                "--password correcthorse --mode x",
                "--password [secret] --mode x",
            ),
            ("--client-secret abc123def", "--client-secret [secret]"),
            (
                "db.password: \"correct horse battery\", next",
                "db.password: [secret], next",
            ),
            ("DB_PASS=hunter22", "DB_PASS=[secret]"),
            (
                "https://x.blob/y?sv=1&sig=abc%3D",
                "https://x.blob/y?sv=1&sig=[secret]",
            ),
            ("X-Auth-Token: abc", "X-Auth-Token: [secret]"),
            ("password: \"never closed", "password: [secret]"),
        ] {
            assert_eq!(text(said), shown);
        }
        let seed = format!("SU{}", "A2".repeat(28));
        assert_eq!(text(&format!("as {seed} says")), "as [secret] says");
        for said in [
            format!("seed:{seed}"),
            format!("it is {seed}."),
            format!("with {seed}: no"),
            format!("`{seed}`"),
        ] {
            let shown = text(&said);
            assert!(
                shown.contains("[secret]") && !shown.contains(&seed),
                "{shown}"
            );
        }
        let public = format!("U{}", "A".repeat(55));
        assert_eq!(text(&public), public);
        assert_eq!(text("password: x y"), "password: [secret] y");
        assert_eq!(text("a token=x, b"), "a token=[secret], b");
    }
}
