//! A server that could not be had: the test is skipped in plain words, or fails where it must run.

use std::io::Write;
use std::path::Path;

use crate::tier;

/// What starting a server came to.
#[derive(Debug)]
pub enum Start<S> {
    /// It runs.
    Started(S),
    /// There is no such server here.
    Skipped(Skipped),
}

/// Why a server is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The server's name, as in `tests/servers/required.txt`.
    pub server: String,
    /// Attempts and their results.
    pub reason: String,
}

impl Skipped {
    /// Says on standard error (past the test harness' capture) which server is missing and why.
    ///
    /// # Panics
    /// With `CI=true`, for a server that `tests/servers/required.txt` lists.
    pub fn announce(&self, context: &str) {
        let line = format!("SKIPPED {context}: no {}: {}\n", self.server, self.reason);
        let _ = std::io::stderr().write_all(line.as_bytes());
        let ci = std::env::var("CI").is_ok_and(|value| value == "true") && !tier::is_fast();
        assert!(
            !(ci && required(&self.server)),
            "{line}CI=true requires {}",
            self.server
        );
    }
}

/// Whether a server (or another process) may be started.
///
/// # Errors
/// The tier is `fast`.
pub(crate) fn may_start(server: &str) -> Result<(), Skipped> {
    if !tier::is_fast() {
        return Ok(());
    }
    Err(Skipped {
        server: server.to_owned(),
        reason: format!("{}=fast starts none", tier::TIER),
    })
}

/// Whether `tests/servers/required.txt` lists the server.
fn required(server: &str) -> bool {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../servers/required.txt");
    let text = std::fs::read_to_string(list).unwrap_or_default();
    text.lines().any(|line| line.trim() == server)
}

/// Leaves the test, saying which server is missing.
#[macro_export]
macro_rules! skip {
    ($skipped:expr) => {{
        $skipped.announce(concat!(module_path!(), ":", line!()));
        return;
    }};
}

/// The started server, or leaves the test by [`skip!`].
#[macro_export]
macro_rules! started {
    ($start:expr) => {
        match $start {
            $crate::Start::Started(server) => server,
            $crate::Start::Skipped(skipped) => $crate::skip!(skipped),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_required_servers_is_read() {
        assert!(required("nats-server"));
        assert!(!required("a-server-nobody-has"));
    }

    #[test]
    fn a_missing_server_leaves_the_test() {
        fn body(reached: &mut bool) {
            let skipped = Skipped {
                server: "a-server-nobody-has".into(),
                reason: "test".into(),
            };
            let start: Start<()> = Start::Skipped(skipped);
            let () = started!(start);
            *reached = true;
        }
        let mut reached = false;
        body(&mut reached);
        assert!(!reached);
    }
}
