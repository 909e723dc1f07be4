//! What the tests share: a way to a port of this machine, files, and what a failure is called.

use dormer_profile::sha256_hex;
use dormer_proto::message::Failure;
use dormer_testkit::{Sshd, SshdOptions, Start, tier};
use dormer_workers::ssh::{Dialer, Key, Limits, Session, Sftp, SshError, TcpDial, Upload};
use std::{fs, path::Path, sync::Arc, time::Duration};
use tokio::sync::{Mutex, MutexGuard};

pub(crate) const HERE: &str = "127.0.0.1";

/// Longest wait of a test for something that takes a moment.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) fn dialer(port: u16) -> Dialer {
    Arc::new(TcpDial { port })
}

/// An sshd with an ed25519 key and these lines of configuration.
pub(crate) fn sshd(config: &str) -> Start<Sshd> {
    Sshd::start(&SshdOptions {
        config: config.to_owned(),
        ..SshdOptions::default()
    })
}

pub(crate) fn key(server: &Sshd) -> Key {
    Key::read(&server.key().private).expect("a key")
}

/// Logs in at a port, with the server's own key.
pub(crate) async fn open_at(port: u16, server: &Sshd, limits: Limits) -> Result<Session, SshError> {
    Session::open(
        &dialer(port),
        HERE,
        &Sshd::user(),
        None,
        &key(server),
        limits,
    )
    .await
}

pub(crate) async fn open(server: &Sshd) -> Session {
    open_at(server.port(), server, Limits::default())
        .await
        .expect("a session")
}

/// Limits for a peer that is known not to answer.
pub(crate) fn short() -> Limits {
    Limits {
        login: Duration::from_secs(2),
        keepalive: Duration::from_millis(100),
        ..Limits::default()
    }
}

/// Failure as reported to the engine: the code, and whether to retry.
pub(crate) fn error_code(error: SshError) -> (String, bool) {
    let failure = Failure::from(error);
    println!("{}: {}", failure.code, failure.message);
    (failure.code, failure.retry)
}

/// What went wrong with what should not have gone well.
pub(crate) fn error<T>(result: Result<T, SshError>) -> SshError {
    match result {
        Err(error) => error,
        Ok(_) => panic!("it went well"),
    }
}

/// A body of so many bytes that no two of which repeat soon.
pub(crate) fn body(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Sends `bytes` to `path`, by way of a part with this mark.
pub(crate) async fn send(
    sftp: &Sftp,
    path: &Path,
    mark: &str,
    bytes: &[u8],
) -> Result<(), SshError> {
    let path = path.display().to_string();
    let sha256 = sha256_hex(bytes);
    let part = format!("{path}.{mark}.part");
    let what = Upload {
        path: &path,
        part: &part,
        size: bytes.len() as u64,
        sha256: &sha256,
    };
    sftp.upload(what, bytes, |_| {}).await
}

/// Whether the file is there and is this.
pub(crate) fn is(path: &Path, bytes: &[u8]) -> bool {
    fs::read(path).is_ok_and(|found| sha256_hex(&found) == sha256_hex(bytes))
}

/// How far this process's memory grows, measured by one test at a time.
///
/// The tests of this binary run beside each other, so the growth counts what the others take in
/// the meantime too: it is a bound, not a figure.
pub(crate) struct MemoryGrowth {
    before_kib: u64,
    /// The kernel keeps one peak for each process, and a reset clears it for all tests.
    _alone: MutexGuard<'static, ()>,
}

impl MemoryGrowth {
    /// Sets the peak back to what the process has now, and begins.
    pub(crate) async fn begin() -> Self {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        // proc(5): 5 resets the peak. A kernel without it keeps the old one, a weaker bound.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self {
            before_kib: peak_kib(),
            _alone: alone,
        }
    }

    /// MiB from the begin to the peak since then. The kernel sums its counters for each processor
    /// roughly (`percpu_counter`), so a peak may read a few pages lower than the one before it.
    pub(crate) fn mib(&self) -> u64 {
        peak_kib().saturating_sub(self.before_kib) / 1024
    }
}

/// The peak of this process's resident memory.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|value| value.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .expect("VmHWM in kB")
}

/// The part of the long tier with large files and outputs, if it runs.
pub(crate) fn large() -> Option<tier::Running> {
    tier::long("ssh-volume")
}
