//! A host behind a route that loses everything: no packet says that the connection is over.

use crate::bench::{SOON, body, dialer, error, error_code, key, send, short};
use dormer_testkit::{Cable, Sshd, SshdOptions, skip, started};
use dormer_workers::ssh::{Session, SshError};
use std::time::{Duration, Instant};

/// A connection is given ten seconds, here a little more.
const DIALLED_MAX: Duration = Duration::from_secs(20);

async fn open(server: &Sshd, address: &str) -> Result<Session, SshError> {
    let dialer = dialer(server.port());
    let user = Sshd::user();
    Session::open(&dialer, address, &user, None, &key(server), short()).await
}

#[tokio::test]
async fn a_host_that_falls_into_a_black_hole_is_noticed_and_serves_again_after_it() {
    let cable = match Cable::lay() {
        Ok(cable) => cable,
        Err(skipped) => skip!(skipped),
    };
    let network = Some(cable.network());
    let address = cable.network().address;
    let server = started!(Sshd::start(&SshdOptions {
        network,
        ..SshdOptions::default()
    }));
    let path = server.folder().join("black-hole");
    for uploads in [false, true] {
        let session = open(&server, &address).await.expect("a session");
        let sftp = session.sftp().await.expect("SFTP");
        let begun = Instant::now();
        let work = async {
            if uploads {
                send(&sftp, &path, "1", &body(1, 48 << 20)).await
            } else {
                // Nothing is on its way: only the keepalives can tell.
                session.exec("sleep 600", |_| {}).await.map(drop)
            }
        };
        let cut = async {
            tokio::task::yield_now().await;
            cable.cut(true);
        };
        let (done, ()) = tokio::join!(work, cut);
        let error = error(done);
        assert!(begun.elapsed() < SOON && error.breaks(), "{error}");
        assert_eq!(error_code(error), ("ConnectionLost".into(), true));
        assert!(session.is_closed() && !path.exists());

        // A new connection is not refused either: it costs the limit of dialling.
        let begun = Instant::now();
        let error = crate::bench::error(open(&server, &address).await);
        assert!(begun.elapsed() < DIALLED_MAX, "{:?}", begun.elapsed());
        let (code, again) = error_code(error);
        assert!(again, "{code}");
        cable.cut(false);
        let session = open(&server, &address).await.expect("it is back");
        let output = session.exec("echo hello", |_| {}).await.expect("an answer");
        assert_eq!(output.stdout, b"hello\n");
    }
}
