//! Browsers that have logged in: links that work once, and sessions of bounded life, sealed in the browser's cookie.
//!
//! Nothing is kept here of a session: the cookie holds what it stands for and until when, sealed with a key that
//! several consoles may share. So whichever pod is asked knows it, and a restart logs nobody out. A cookie proves who
//! logged in, never what they may: the token in it is asked about again at each request.

use super::cache::Cache;
use axum::http::{HeaderMap, header::COOKIE};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use dormer_profile::sha256_hex;
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a session lives.
pub(super) const SESSION: Duration = Duration::from_secs(8 * 3_600);
/// How long a link that somebody asked for waits to be opened.
pub(super) const LINK: Duration = Duration::from_secs(60);
/// How long a link that was printed waits: as long as anybody could want it to.
const PRINTED: Duration = Duration::from_secs(365 * 24 * 3_600);
/// Links at most.
const LINKS_MAX: usize = 1_000;
/// Sessions remembered at most that were ended before their time.
const CLOSED_MAX: usize = 10_000;
/// Longest cookie, with its name and what is said of it, in bytes: browsers drop a longer one without a word.
const COOKIE_BYTES_MAX: usize = 4_096;
/// What the words that keys are made of are mixed with, and what says for what a sealed text was made.
const PURPOSE: &[u8] = b"dormer session v1";

/// What a session stands for: the bearer token that it was begun with, which is asked about again at each request.
/// `None`: it was begun by a printed link.
type Behind = Option<String>;

/// The token is too long to be kept in a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token has {bytes} bytes; a browser's cookie has room for {most}")]
pub(super) struct TooLong {
    bytes: usize,
    most: usize,
}

/// A key, and the name of the cookies that it seals: of this key alone, since cookies of one host are shared by all
/// of its ports, and by every dormer behind them.
struct Key {
    seal: LessSafeKey,
    cookie: String,
}

/// Sessions and links. The links are of this process, and end with it.
pub(super) struct Sessions {
    /// The first seals; all of them open.
    keys: Vec<Key>,
    links: Cache<Behind>,
    /// Sessions that were ended here before their time.
    closed: Cache<()>,
}

/// A word that nobody can guess.
fn drawn() -> String {
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
    fn of(word: &str) -> Option<Self> {
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
            cookie: format!("dormer-{}", &name[..8]),
        })
    }

    /// Until when, and what it stands for: sealed, as text.
    fn seal(&self, until: u64, behind: &Behind) -> Option<String> {
        let mut text = until.to_be_bytes().to_vec();
        text.push(u8::from(behind.is_some()));
        text.extend(behind.iter().flat_map(|token| token.bytes()));
        let nonce: [u8; NONCE_LEN] = rand::random();
        let with = Nonce::assume_unique_for_key(nonce);
        self.seal
            .seal_in_place_append_tag(with, Aad::from(PURPOSE), &mut text)
            .ok()?;
        Some(URL_SAFE_NO_PAD.encode([nonce.as_slice(), &text].concat()))
    }

    fn open(&self, sealed: &str) -> Option<(u64, Behind)> {
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
    /// Sessions sealed with the first of `words`; what the others sealed is honoured, too. Without any the key is
    /// drawn, and sessions end with this process.
    pub(super) fn new(words: &[String]) -> Self {
        let mut keys: Vec<Key> = words.iter().filter_map(|word| Key::of(word)).collect();
        if keys.is_empty() {
            keys.extend(Key::of(&drawn()));
        }
        Self {
            keys,
            links: Cache::new(LINKS_MAX),
            closed: Cache::new(CLOSED_MAX),
        }
    }

    /// The path of a link that opens a session, once and within [`LINK`].
    pub(super) fn link(&self, behind: Behind) -> String {
        self.linked(behind, LINK)
    }

    /// The path of a link that is printed: it works once, whenever that is.
    pub(super) fn printed(&self) -> String {
        self.linked(None, PRINTED)
    }

    fn linked(&self, behind: Behind, long: Duration) -> String {
        let word = drawn();
        let path = format!("/login?token={word}");
        self.links.put(word, behind, long);
        path
    }

    /// What the link with that word stands for; it works no more.
    pub(super) fn follow(&self, word: &str) -> Option<Behind> {
        self.links.take(word)
    }

    /// Opens a session, and answers the cookie to set. `secure`: it is sent over TLS only.
    ///
    /// # Errors
    /// What it stands for does not fit into a cookie.
    pub(super) fn open(&self, behind: &Behind, secure: bool) -> Result<String, TooLong> {
        let bytes = behind.as_ref().map_or(0, String::len);
        let cookie = self.keys.first().and_then(|key| {
            let sealed = key.seal(now() + SESSION.as_secs(), behind)?;
            Some(cookie(&key.cookie, &sealed, SESSION, secure))
        });
        // A key that seals nothing is as good as a text that is too long.
        let length = cookie.as_ref().map_or(usize::MAX, String::len);
        match cookie {
            Some(cookie) if length <= COOKIE_BYTES_MAX => Ok(cookie),
            _ => Err(TooLong {
                bytes,
                most: self.most(secure),
            }),
        }
    }

    /// Longest token that a cookie has room for: three bytes of it take four.
    fn most(&self, secure: bool) -> usize {
        let name = self.keys.first().map_or("", |key| &key.cookie);
        let around = cookie(name, "", SESSION, secure).len();
        (COOKIE_BYTES_MAX - around) / 4 * 3 - NONCE_LEN - CHACHA20_POLY1305.tag_len() - 9
    }

    /// What the request's session stands for, if it has one that lives.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<Behind> {
        self.at(headers, now())
    }

    fn at(&self, headers: &HeaderMap, now: u64) -> Option<Behind> {
        let (sealed, until, behind) = self.found(headers)?;
        let closed = || self.closed.get(&sha256_hex(sealed.as_bytes())).is_some();
        (now < until && !closed()).then_some(behind)
    }

    /// The first cookie that one of our keys opens.
    fn found<'a>(&self, headers: &'a HeaderMap) -> Option<(&'a str, u64, Behind)> {
        self.keys.iter().find_map(|key| {
            let sealed = named(headers, &key.cookie)?;
            let (until, behind) = key.open(sealed)?;
            Some((sealed, until, behind))
        })
    }

    /// Ends the request's session, and answers the cookies that take it away. This process honours it no more; what
    /// another would make of a copy ends with the session, or with the token in it.
    pub(super) fn close(&self, headers: &HeaderMap) -> Vec<String> {
        if let Some((sealed, until, _)) = self.found(headers) {
            let left = Duration::from_secs(until.saturating_sub(now()));
            self.closed.put(sha256_hex(sealed.as_bytes()), (), left);
        }
        let held = |key: &&Key| named(headers, &key.cookie).is_some();
        let held = self.keys.iter().filter(held);
        held.map(|key| cookie(&key.cookie, "", Duration::ZERO, false))
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
        let sessions = Sessions::new(&[]);
        let link = sessions.link(Some("t".into()));
        let word = link.strip_prefix("/login?token=").expect("a link");
        assert_eq!(sessions.follow(word), Some(Some("t".into())));
        assert_eq!(sessions.follow(word), None);
        let late = sessions.link(None);
        tokio::time::advance(LINK).await;
        assert_eq!(sessions.follow(&late["/login?token=".len()..]), None);

        for behind in [Some("t".to_owned()), Some(String::new()), None] {
            let cookie = sessions.open(&behind, true).expect("a cookie");
            assert!(
                cookie.ends_with("; HttpOnly; SameSite=Strict; Secure"),
                "{cookie}"
            );
            let headers = with(&cookie);
            assert_eq!(sessions.of(&headers), Some(behind));
            assert_eq!(sessions.at(&headers, now() + SESSION.as_secs() + 1), None);
            let gone = sessions.close(&headers);
            assert!(
                gone.len() == 1 && gone[0].contains("=; Path=/; Max-Age=0"),
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
        let before = Sessions::new(&words(&[&one]));
        let behind = Some("sha256~token".to_owned());
        let cookie = before.open(&behind, false).expect("a cookie");
        assert!(!cookie.contains("token"), "it can be read: {cookie}");
        let headers = with(&cookie);
        assert_eq!(
            Sessions::new(&words(&[&one])).of(&headers),
            Some(behind.clone())
        );
        assert_eq!(
            Sessions::new(&words(&[&two, &one])).of(&headers),
            Some(behind.clone())
        );
        assert_eq!(Sessions::new(&words(&[&two])).of(&headers), None);
        assert_eq!(Sessions::new(&[]).of(&headers), None);
        // Under another key's name it is no more than under its own.
        let other = Sessions::new(&words(&[&two]))
            .open(&behind, false)
            .expect("a cookie");
        let name = other.split('=').next().expect("a name");
        let value = cookie.split(['=', ';']).nth(1).expect("a value");
        assert_eq!(
            Sessions::new(&words(&[&two])).of(&with(&format!("{name}={value}"))),
            None
        );
        // Every byte of it counts.
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
        let sessions = Sessions::new(&[]);
        let most = sessions.most(true);
        let fits = sessions
            .open(&Some("x".repeat(most)), true)
            .expect("it fits");
        assert!(fits.len() <= COOKIE_BYTES_MAX && fits.len() > COOKIE_BYTES_MAX - 8);
        let refused = sessions
            .open(&Some("x".repeat(most + 4)), true)
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
