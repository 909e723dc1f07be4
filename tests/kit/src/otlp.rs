//! A receiver of OTLP over HTTP for one test: the OpenTelemetry collector's own decoder, which refuses what is not OTLP.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::pinned::{GoModule, Program, Release};
use crate::process::{Process, ProcessSpec};
use crate::skip::{Skipped, Start};
use crate::{TestCa, block_until, free_port, test_dir};

const RECEIVER: Program = Program {
    name: "otlp-receiver",
    version_arg: "-version",
    wheel: None,
};

const MODULE: GoModule = GoModule {
    folder: "otlp-receiver-1.70.0",
    programs: &[("otlp-receiver", ".")],
    linker_flags: "",
};

const RELEASE: Release = Release {
    version: "1.70.0",
    module: Some(&MODULE),
    wheel_version: "",
    variable: "DORMER_OTLP_RECEIVER",
    newer_will_do: true,
};

/// It listens within milliseconds; a busy machine gets this much.
const START_MAX: Duration = Duration::from_secs(60);
/// Most retries after another process took the port between our check and the program's bind.
const PORT_TRIES: usize = 5;

/// A running receiver. Dropping it kills it and deletes what it received.
#[derive(Debug)]
pub struct OtlpReceiver {
    process: Process,
    scheme: &'static str,
    port: u16,
    folder: TempDir,
}

impl OtlpReceiver {
    /// Finds (or makes) the program, and starts it on a free port. Blocks until it listens.
    ///
    /// # Panics
    /// When there is a program but it does not come up: its log is in the message.
    pub fn start() -> Start<Self> {
        Self::start_with(test_dir("otlp"), "http", &[])
    }

    /// The same with TLS: its certificate is signed by `authority`, and so must be those of the senders.
    ///
    /// # Panics
    /// When there is a program but it does not come up, or a certificate cannot be made.
    pub fn start_tls(authority: &TestCa) -> Start<Self> {
        let folder = test_dir("otlp");
        let ours = authority.issue("collector", &["127.0.0.1"]);
        let files = [
            ("certificate", ours.certificate),
            ("key", ours.key),
            ("client-authority", authority.certificate()),
        ];
        let flags = files.map(|(flag, pem)| {
            let path = folder.path().join(flag);
            std::fs::write(&path, pem).expect("written");
            format!("-{flag}={}", path.display())
        });
        Self::start_with(folder, "https", &flags)
    }

    fn start_with(folder: TempDir, scheme: &'static str, flags: &[String]) -> Start<Self> {
        let program = match Self::program() {
            Ok(program) => program,
            Err(skipped) => return Start::Skipped(skipped),
        };
        let mut last = None;
        for _ in 0..PORT_TRIES {
            let port = free_port();
            match launch(program.clone(), port, &folder, flags) {
                Ok(process) => {
                    return Start::Started(Self {
                        process,
                        scheme,
                        port,
                        folder,
                    });
                }
                Err(error) => last = Some(error),
            }
        }
        panic!(
            "the OTLP receiver did not start: {:#}",
            last.expect("at least one try")
        );
    }

    /// Where the program is, found or made.
    ///
    /// # Errors
    /// It cannot be had here.
    pub fn program() -> Result<PathBuf, Skipped> {
        RECEIVER.find(&RELEASE)
    }

    /// `http://127.0.0.1:<port>`, or `https://`.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// Every request so far, with its `path` and its `headers`: one JSON object a line.
    pub fn requests(&self) -> Vec<String> {
        self.lines("requests")
    }

    /// Received data in its own form: one message of OTLP/JSON a line.
    pub fn received(&self) -> Vec<String> {
        self.lines("heard")
    }

    /// The complete lines of one of its files.
    fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(str::to_owned).collect()
    }

    /// Refused data, in its own words.
    pub fn refused(&self) -> Vec<String> {
        let log = self.process.log_tail();
        log.lines()
            .filter(|line| line.contains("refused: "))
            .map(str::to_owned)
            .collect()
    }
}

fn launch(program: PathBuf, port: u16, folder: &TempDir, flags: &[String]) -> Result<Process> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let file = |name: &str| folder.path().join(name).display().to_string();
    let mut args = vec![
        format!("-listen={address}"),
        format!("-file={}", file("heard")),
        format!("-requests={}", file("requests")),
    ];
    args.extend_from_slice(flags);
    let mut process = Process::start(&ProcessSpec {
        program,
        args,
        env: vec![],
        log: folder.path().join("otlp-receiver.log"),
        folder: None,
    })?;
    let listens = || TcpStream::connect(address).is_ok();
    let up = block_until(START_MAX, || !process.is_running() || listens());
    if up && process.is_running() {
        return Ok(process);
    }
    anyhow::bail!("{}", process.log_tail())
}
