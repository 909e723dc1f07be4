//! Proxy of the cluster. A password in its URLs is a secret, which only hosts get.

use serde_json::{Value, json};
use std::{fmt, ops::Range};

/// What people see instead of a password.
pub const HIDDEN: &str = "***";

/// Proxy of the cluster. Empty texts mean no proxy.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxy {
    http: String,
    https: String,
    no: String,
    /// Of the object that has the password, where there is one.
    revision: Option<String>,
}

impl Proxy {
    /// Proxy for `http` and for `https`, and the destinations that bypass it, as an object of that revision has them.
    #[must_use]
    pub fn new(http: &str, https: &str, no: &str, revision: &str) -> Self {
        let secret = [http, https].into_iter().any(|url| password(url).is_some());
        Self {
            http: http.to_owned(),
            https: https.to_owned(),
            no: no.to_owned(),
            revision: secret.then(|| revision.to_owned()),
        }
    }

    /// The three texts as people may see them.
    pub(crate) fn shown(&self) -> (String, String, &str) {
        (
            with(&self.http, HIDDEN),
            with(&self.https, HIDDEN),
            &self.no,
        )
    }

    /// Revision of the object that has the password, if there is one.
    pub(crate) fn revision(&self) -> Option<String> {
        self.revision.clone()
    }

    /// What a version is made of. The revision stands for the password.
    pub(crate) fn for_version(&self) -> Value {
        let (http, https, no) = self.shown();
        let mut for_version = json!({"http": http, "https": https, "no": no});
        if let Some(revision) = &self.revision {
            for_version["revision"] = json!(revision);
        }
        for_version
    }

    /// Variables whose URLs have a password.
    fn secret(&self) -> impl Iterator<Item = (&'static str, &str, Range<usize>)> {
        let both = [("HTTP_PROXY", &*self.http), ("HTTPS_PROXY", &*self.https)];
        both.into_iter()
            .filter_map(|(variable, url)| Some((variable, url, password(url)?)))
    }

    /// Those variables with their whole URLs.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.secret().map(|(variable, url, _)| (variable, url))
    }

    /// The same for a comparison: the revision stands for the password.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.secret().map(|(variable, url, _)| {
            let revision = self.revision.as_deref().unwrap_or_default();
            let name = crate::variables::of_variable(variable);
            (
                variable,
                with(url, &format!("${{secret:{name}@{revision}}}")),
            )
        })
    }

    /// Each URL that has a password, and the password.
    pub(crate) fn passwords(&self) -> impl Iterator<Item = &str> {
        self.secret()
            .flat_map(|(_, url, password)| [url, &url[password]])
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy {}", self.for_version())
    }
}

/// Where the password of a URL is. A password that is not escaped as URLs ask for may contain `/` and `@`.
fn password(url: &str) -> Option<Range<usize>> {
    let from = url.find("://")? + 3;
    let end = from + url[from..].rfind('@')?;
    let begin = from + url[from..end].find(':')? + 1;
    (begin < end).then_some(begin..end)
}

fn with(url: &str, instead: &str) -> String {
    match password(url) {
        Some(at) => format!("{}{instead}{}", &url[..at.start], &url[at.end..]),
        None => url.to_owned(),
    }
}

/// A text with [`HIDDEN`] instead of the password of each URL in it.
#[must_use]
pub fn masked(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    for at in passwords(text.as_bytes()) {
        shown.push_str(&text[done..at.start]);
        shown.push_str(HIDDEN);
        done = at.end;
    }
    shown.push_str(&text[done..]);
    shown
}

/// Where the passwords of the URLs in a text are.
pub fn passwords(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let begun = text[from..].windows(3).position(|it| it == b"://")?;
            from += begun + 3;
            let ends = |byte: &u8| byte.is_ascii_whitespace() || b"/\"'`<>\\\0".contains(byte);
            let authority = text[from..].split(ends).next()?;
            let Some(end) = authority.iter().rposition(|byte| *byte == b'@') else {
                continue;
            };
            let colon = authority[..end].iter().position(|byte| *byte == b':');
            let Some(begin) = colon.map(|at| at + 1).filter(|begin| *begin < end) else {
                continue;
            };
            let found = from + begin..from + end;
            from = found.end;
            return Some(found);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_url_is_found_however_it_is_written() {
        let table = [
            ("http://proxy.example:3128", None),
            ("http://u@proxy.example:3128", None),
            ("http://u:@proxy.example:3128", None),
            ("http://u:p@proxy.example:3128", Some("p")),
            ("https://u:p%40q@proxy.example", Some("p%40q")),
            ("http://u:p/q@r:s@proxy.example", Some("p/q@r:s")),
            ("http://:p@proxy.example", Some("p")),
            ("", None),
        ];
        for (url, wanted) in table {
            assert_eq!(password(url).map(|at| &url[at]), wanted, "{url}");
        }
    }

    #[test]
    fn the_passwords_in_a_text_are_hidden() {
        let table = [
            (
                "to \"http://u:p@a.example:1/x@y\", then https://v:q@b",
                "to \"http://u:***@a.example:1/x@y\", then https://v:***@b",
            ),
            ("http://u:${secret:x@7}@a", "http://u:***@a"),
            (
                "server = \"https://m.example:5000/v2/a@sha256:1\"",
                "server = \"https://m.example:5000/v2/a@sha256:1\"",
            ),
            ("a://b@c d:e@f", "a://b@c d:e@f"),
            ("://:://x:y@", "://:://x:***@"),
        ];
        for (text, wanted) in table {
            assert_eq!(masked(text), wanted, "{text}");
        }
    }
}
