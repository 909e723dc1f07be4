//! Browser sessions: one-time login links, and time-limited sessions sealed in a cookie.
//!
//! The server stores no session. The cookie holds the caller's credential and an expiry time, sealed with a key that
//! several consoles may share. So every replica accepts the cookie, and users stay logged in after a restart. A cookie proves
//! who logged in, never what they may do: the token in it is reviewed again at each request.

use super::cache::Cache;
use axum::http::{HeaderMap, header::COOKIE};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use dormer_profile::sha256_hex;
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Lifetime of a session.
pub(super) const SESSION: Duration = Duration::from_secs(8 * 3_600);
/// Lifetime of a link that a caller requested.
pub(super) const LINK: Duration = Duration::from_secs(60);
/// Lifetime of the link in the file. A fresh one is written in time.
pub(super) const KEPT: Duration = Duration::from_secs(10 * 60);
/// Most unused links.
const LINKS_MAX: usize = 1_000;
/// Most sessions remembered that were logged out before they expired.
const CLOSED_MAX: usize = 10_000;
/// Longest cookie with its name and attributes, in bytes. Browsers drop a longer one silently.
const COOKIE_BYTES_MAX: usize = 4_096;
/// Domain separator: mixed into each key, and the associated data of each sealed text.
const PURPOSE: &[u8] = b"dormer session v1";

/// Credential of a session: the bearer token of its login, which is reviewed again at each request. `None`: the
/// session began with the link in the file.
type SessionCredential = Option<String>;

/// A token that is too long for a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token has {bytes} bytes, but a browser's cookie holds {most}")]
pub struct TooLong {
    bytes: usize,
    most: usize,
}

/// Sealing key with its cookie name. The name is derived from the key, because all ports of a host, and every dormer
/// behind them, share their cookies.
struct Key {
    seal: LessSafeKey,
    cookie: String,
}

/// Sessions and links. Links are kept in this process, and end with it.
pub struct Sessions {
    /// Sealing keys. The first one seals; any of them opens.
    keys: Vec<Key>,
    links: Cache<SessionCredential>,
    /// Sessions that were logged out here before they expired.
    closed: Cache<()>,
    /// Whether callers connect over TLS: browsers then send the cookie over TLS only.
    secure: bool,
}

/// Random, unguessable word.
fn random_word() -> String {
    format!(
        "{:032x}{:032x}",
        rand::random::<u128>(),
        rand::random::<u128>()
    )
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Key {
    fn of(word: &str, secure: bool) -> Option<Self> {
        let mixed = Salt::new(HKDF_SHA256, PURPOSE).extract(word.as_bytes());
        let mut bytes = [0; 32];
        mixed
            .expand(&[b"key"], HKDF_SHA256)
            .ok()?
            .fill(&mut bytes)
            .ok()?;
        let seal = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &bytes).ok()?);
        let mut name = [0; 32];
        mixed
            .expand(&[b"name"], HKDF_SHA256)
            .ok()?
            .fill(&mut name)
            .ok()?;
        let name = sha256_hex(&name);
        Some(Self {
            seal,
            // With this prefix a browser accepts the cookie only over TLS and from this very host. So neither another
            // host of the domain nor an attacker on the network can set one.
            cookie: format!(
                "{}dormer-{}",
                if secure { "__Host-" } else { "" },
                &name[..8]
            ),
        })
    }

    /// Expiry time and credential, sealed as text.
    fn seal(&self, until: u64, credential: &SessionCredential) -> Option<String> {
        let mut text = until.to_be_bytes().to_vec();
        text.push(u8::from(credential.is_some()));
        text.extend(credential.iter().flat_map(|token| token.bytes()));
        let nonce: [u8; NONCE_LEN] = rand::random();
        let with = Nonce::assume_unique_for_key(nonce);
        self.seal
            .seal_in_place_append_tag(with, Aad::from(PURPOSE), &mut text)
            .ok()?;
        Some(URL_SAFE_NO_PAD.encode([nonce.as_slice(), &text].concat()))
    }

    fn open(&self, sealed: &str) -> Option<(u64, SessionCredential)> {
        let mut bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = self
            .seal
            .open_in_place(nonce, Aad::from(PURPOSE), text)
            .ok()?;
        let (until, rest) = text.split_first_chunk()?;
        let (has, token) = rest.split_first()?;
        let token = std::str::from_utf8(token).ok()?.to_owned();
        Some((u64::from_be_bytes(*until), (*has == 1).then_some(token)))
    }
}

impl Sessions {
    /// Sessions sealed with a key derived from the first of `words`, and opened with any. Without words the key is
    /// random, and sessions end with this process. `secure`: callers connect over TLS.
    pub fn new(words: &[String], secure: bool) -> Self {
        let keys = words.iter().filter_map(|word| Key::of(word, secure));
        let mut keys: Vec<Key> = keys.collect();
        if keys.is_empty() {
            keys.extend(Key::of(&random_word(), secure));
        }
        Self {
            keys,
            links: Cache::new(LINKS_MAX),
            closed: Cache::new(CLOSED_MAX),
            secure,
        }
    }

    /// Path of a link that opens one session within [`LINK`].
    pub(super) fn link(&self, credential: SessionCredential) -> String {
        self.linked(credential, LINK)
    }

    /// Path of a link for the file. It works once, within [`KEPT`].
    pub(super) fn file_link(&self) -> String {
        self.linked(None, KEPT)
    }

    fn linked(&self, credential: SessionCredential, long: Duration) -> String {
        let word = random_word();
        let path = format!("/login?token={word}");
        self.links.put(word, credential, long);
        path
    }

    /// Credential of the link with this word. The link stops working.
    pub(super) fn follow(&self, word: &str) -> Option<SessionCredential> {
        self.links.take(word)
    }

    /// Opens a session. Returns the cookie to set.
    ///
    /// # Errors
    /// The credential does not fit into a cookie.
    pub fn open(&self, credential: &SessionCredential) -> Result<String, TooLong> {
        let bytes = credential.as_ref().map_or(0, String::len);
        let cookie = self.keys.first().and_then(|key| {
            let sealed = key.seal(now() + SESSION.as_secs(), credential)?;
            Some(cookie(&key.cookie, &sealed, SESSION, self.secure))
        });
        // A key that fails to seal is reported like a text that is too long.
        let length = cookie.as_ref().map_or(usize::MAX, String::len);
        match cookie {
            Some(cookie) if length <= COOKIE_BYTES_MAX => Ok(cookie),
            _ => Err(TooLong {
                bytes,
                most: self.most(),
            }),
        }
    }

    /// Longest token that fits into a cookie. Base64 writes three bytes as four.
    fn most(&self) -> usize {
        let name = self.keys.first().map_or("", |key| &key.cookie);
        let around = cookie(name, "", SESSION, self.secure).len();
        (COOKIE_BYTES_MAX - around) / 4 * 3 - NONCE_LEN - CHACHA20_POLY1305.tag_len() - 9
    }

    /// Credential of the request's session. `None`: there is no valid session.
    pub fn of(&self, headers: &HeaderMap) -> Option<SessionCredential> {
        self.at(headers, now())
    }

    fn at(&self, headers: &HeaderMap, now: u64) -> Option<SessionCredential> {
        let (sealed, until, credential) = self.found(headers)?;
        let closed = || self.closed.get(&sha256_hex(sealed.as_bytes())).is_some();
        (now < until && !closed()).then_some(credential)
    }

    /// First cookie that one of our keys decrypts.
    fn found<'a>(&self, headers: &'a HeaderMap) -> Option<(&'a str, u64, SessionCredential)> {
        self.keys.iter().find_map(|key| {
            let sealed = named(headers, &key.cookie)?;
            let (until, credential) = key.open(sealed)?;
            Some((sealed, until, credential))
        })
    }

    /// Ends the request's session. Returns the cookies that delete it. This process rejects the session from
    /// now on; other processes accept a copy until the session or its token expires.
    pub fn close(&self, headers: &HeaderMap) -> Vec<String> {
        if let Some((sealed, until, _)) = self.found(headers) {
            let left = Duration::from_secs(until.saturating_sub(now()));
            self.closed.put(sha256_hex(sealed.as_bytes()), (), left);
        }
        let held = |key: &&Key| named(headers, &key.cookie).is_some();
        let held = self.keys.iter().filter(held);
        held.map(|key| cookie(&key.cookie, "", Duration::ZERO, self.secure))
            .collect()
    }
}

fn cookie(name: &str, value: &str, long: Duration, secure: bool) -> String {
    let seconds = long.as_secs();
    let secure = if secure { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

fn named<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut pairs = cookies
        .flat_map(|line| line.split(';'))
        .filter_map(|it| it.split_once('='));
    pairs
        .find(|(found, _)| found.trim() == name)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(cookie: &str) -> HeaderMap {
        let pair = cookie.split(';').next().expect("a pair");
        let mut headers = HeaderMap::new();
        headers.insert(
            COOKIE,
            format!("other=1; {pair}").parse().expect("a header"),
        );
        headers
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_works_once_and_a_session_ends() {
        let sessions = Sessions::new(&[], true);
        let link = sessions.link(Some("t".into()));
        let word = link.strip_prefix("/login?token=").expect("a link");
        assert_eq!(sessions.follow(word), Some(Some("t".into())));
        assert_eq!(sessions.follow(word), None);
        let late = sessions.link(None);
        tokio::time::advance(LINK).await;
        assert_eq!(sessions.follow(&late["/login?token=".len()..]), None);

        for credential in [Some("t".to_owned()), Some(String::new()), None] {
            let cookie = sessions.open(&credential).expect("a cookie");
            assert!(
                cookie.ends_with("; HttpOnly; SameSite=Strict; Secure"),
                "{cookie}"
            );
            // Requirements of browsers for this prefix: Secure, Path=/ and no Domain.
            assert!(cookie.starts_with("__Host-dormer-"), "{cookie}");
            assert!(
                cookie.contains("; Path=/;") && !cookie.contains("Domain"),
                "{cookie}"
            );
            let planted = with(cookie.trim_start_matches("__Host-"));
            assert_eq!(sessions.of(&planted), None, "anybody can plant such a name");
            let headers = with(&cookie);
            assert_eq!(sessions.of(&headers), Some(credential));
            assert_eq!(sessions.at(&headers, now() + SESSION.as_secs() + 1), None);
            let gone = sessions.close(&headers);
            assert!(
                gone.len() == 1
                    && gone[0].contains("=; Path=/; Max-Age=0")
                    && gone[0].ends_with("; Secure"),
                "{gone:?}"
            );
            assert_eq!(
                sessions.of(&headers),
                None,
                "a copy of it is of no use here"
            );
        }
    }

    #[test]
    fn a_shared_key_opens_what_another_process_sealed_and_nothing_else_does() {
        let one = "a".repeat(32);
        let two = "b".repeat(32);
        let before = Sessions::new(&words(&[&one]), false);
        let credential = Some("sha256~token".to_owned());
        let cookie = before.open(&credential).expect("a cookie");
        assert!(!cookie.contains("token"), "it can be read: {cookie}");
        let headers = with(&cookie);
        assert_eq!(
            Sessions::new(&words(&[&one]), false).of(&headers),
            Some(credential.clone())
        );
        assert_eq!(
            Sessions::new(&words(&[&two, &one]), false).of(&headers),
            Some(credential.clone())
        );
        assert_eq!(Sessions::new(&words(&[&two]), false).of(&headers), None);
        assert_eq!(Sessions::new(&[], false).of(&headers), None);
        // It does not become longer under another key's name.
        let other = Sessions::new(&words(&[&two]), false)
            .open(&credential)
            .expect("a cookie");
        let name = other.split('=').next().expect("a name");
        let value = cookie.split(['=', ';']).nth(1).expect("a value");
        assert_eq!(
            Sessions::new(&words(&[&two]), false).of(&with(&format!("{name}={value}"))),
            None
        );
        // Each byte of the cookie is authenticated.
        let pair = cookie.split(';').next().expect("a pair");
        let start = pair.find('=').expect("a value") + 1;
        for at in start..pair.len() {
            let mut changed = pair.as_bytes().to_vec();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("text");
            assert_eq!(before.of(&with(&changed)), None, "byte {at}");
        }
        assert_eq!(before.of(&with(&pair[..pair.len() - 4])), None);
        assert_eq!(before.of(&with(&pair[..start])), None);
    }

    #[test]
    fn a_token_that_no_browser_would_keep_is_refused_with_what_there_is_room_for() {
        let sessions = Sessions::new(&[], true);
        let most = sessions.most();
        let fits = sessions.open(&Some("x".repeat(most))).expect("it fits");
        assert!(fits.len() <= COOKIE_BYTES_MAX && fits.len() > COOKIE_BYTES_MAX - 8);
        let refused = sessions
            .open(&Some("x".repeat(most + 4)))
            .expect_err("too long");
        assert_eq!(
            refused,
            TooLong {
                bytes: most + 4,
                most
            }
        );
        assert!(most > 2_900, "{most}");
    }
}
