//! Browsers that have logged in: links that work once, and sessions of bounded life behind a cookie.

use super::cache::Cache;
use axum::http::{HeaderMap, header::COOKIE};
use std::time::Duration;

/// How long a session lives.
pub(super) const SESSION: Duration = Duration::from_secs(8 * 3_600);
/// How long a link that somebody asked for waits to be opened.
pub(super) const LINK: Duration = Duration::from_secs(60);
/// How long a link that was printed waits: as long as anybody could want it to.
const PRINTED: Duration = Duration::from_secs(365 * 24 * 3_600);
/// Sessions, and links, at most.
const SESSIONS_MAX: usize = 1_000;

/// What a session stands for: the bearer token that it was begun with, which is asked about again at each request.
/// `None`: it was begun by a printed link.
type Behind = Option<String>;

/// Sessions and links of this process. They end with it.
pub(super) struct Sessions {
    open: Cache<Behind>,
    links: Cache<Behind>,
    /// The cookie's name: of this process alone, since cookies of one host are shared by all of its ports.
    cookie: String,
}

/// A word that nobody can guess.
fn drawn() -> String {
    format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>())
}

impl Sessions {
    pub(super) fn new() -> Self {
        let cookie = format!("dormer-{:08x}", rand::random::<u32>());
        Self { open: Cache::new(SESSIONS_MAX), links: Cache::new(SESSIONS_MAX), cookie }
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
    pub(super) fn open(&self, behind: Behind, secure: bool) -> String {
        let id = drawn();
        let cookie = self.cookie_of(&id, SESSION, secure);
        self.open.put(id, behind, SESSION);
        cookie
    }

    fn cookie_of(&self, id: &str, long: Duration, secure: bool) -> String {
        let (name, seconds) = (&self.cookie, long.as_secs());
        let secure = if secure { "; Secure" } else { "" };
        format!("{name}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    /// What the request's session stands for, if it has one that lives.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<Behind> {
        self.open.get(&self.id(headers)?)
    }

    /// Ends the request's session, and answers the cookie that takes it away.
    pub(super) fn close(&self, headers: &HeaderMap) -> String {
        if let Some(id) = self.id(headers) {
            self.open.take(&id);
        }
        self.cookie_of("", Duration::ZERO, false)
    }

    fn id(&self, headers: &HeaderMap) -> Option<String> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|line| line.split(';')).filter_map(|it| it.split_once('='));
        pairs.find(|(name, _)| name.trim() == self.cookie).map(|(_, id)| id.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_link_works_once_and_a_session_ends() {
        let sessions = Sessions::new();
        let link = sessions.link(Some("t".into()));
        let word = link.strip_prefix("/login?token=").expect("a link");
        assert_eq!(sessions.follow(word), Some(Some("t".into())));
        assert_eq!(sessions.follow(word), None);
        let late = sessions.link(None);
        tokio::time::advance(LINK).await;
        assert_eq!(sessions.follow(&late["/login?token=".len()..]), None);

        let cookie = sessions.open(Some("t".into()), true);
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
        let pair = cookie.split(';').next().expect("a pair").to_owned();
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, format!("other=1; {pair}").parse().expect("a header"));
        assert_eq!(sessions.of(&headers), Some(Some("t".into())));
        tokio::time::advance(SESSION).await;
        assert_eq!(sessions.of(&headers), None);
        sessions.close(&headers);
    }
}
