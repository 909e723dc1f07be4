//! A receiver of OTLP over HTTP for one test: the OpenTelemetry collector's own decoder, which refuses what is not OTLP.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::process::{Process, ProcessSpec};
use crate::program::{GoModule, Program, Release};
use crate::skip::{Skipped, Start};
use crate::{block_until, free_port, test_dir};

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
/// Tries at ports that somebody else took between our look and the program's bind.
const PORT_TRIES: usize = 5;

/// A running receiver. Dropping it kills it and removes what it heard.
#[derive(Debug)]
pub struct OtlpReceiver {
    process: Process,
    port: u16,
    folder: TempDir,
}

impl OtlpReceiver {
    /// Finds (or makes) the program, and starts it on a free port. Blocks until it listens.
    ///
    /// # Panics
    /// When there is a program but it does not come up: its log is in the message.
    pub fn start() -> Start<Self> {
        let program = match Self::program() {
            Ok(program) => program,
            Err(skipped) => return Start::Skipped(skipped),
        };
        let folder = test_dir("otlp");
        let mut last = None;
        for _ in 0..PORT_TRIES {
            let port = free_port();
            match launch(program.clone(), port, &folder) {
                Ok(process) => {
                    return Start::Started(Self {
                        process,
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

    /// `http://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What it understood so far, in its own spelling: one message of OTLP/JSON a line.
    pub fn heard(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("heard")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(str::to_owned).collect()
    }

    /// What it refused, in its own words.
    pub fn refused(&self) -> Vec<String> {
        let log = self.process.log_tail();
        log.lines()
            .filter(|line| line.contains("refused: "))
            .map(str::to_owned)
            .collect()
    }
}

fn launch(program: PathBuf, port: u16, folder: &TempDir) -> Result<Process> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut process = Process::start(&ProcessSpec {
        program,
        args: vec![
            format!("-listen={address}"),
            format!("-file={}", folder.path().join("heard").display()),
        ],
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
