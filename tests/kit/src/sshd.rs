//! A real OpenSSH sshd for one test, run as the user of the test.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use tempfile::TempDir;

use crate::nats::NatsNetwork;
use crate::process::{Process, ProcessSpec};
use crate::skip::{self, Skipped, Start};
use crate::{block_until, free_port, test_dir};

/// Names a program to be taken as it is.
const VARIABLE: &str = "DORMER_SSHD";
/// Where Debian, Red Hat and those who build it themselves put sshd, beside `PATH`.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// An sshd that runs as root wants this folder. Debian's makes it at boot.
const EMPTY_ROOM: &str = "/run/sshd";
/// sshd is up within a few tens of milliseconds; a busy machine gets this much.
const START_MAX: Duration = Duration::from_secs(30);
/// Most retries after another process took the port between our check and sshd's bind.
const PORT_TRIES: usize = 5;

/// Algorithm of a host key, as `ssh-keygen` makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// What OpenSSH makes by default.
    Ed25519,
    /// ECDSA on a NIST curve of so many bits: 256, 384 or 521.
    Ecdsa(u16),
    /// RSA of so many bits.
    Rsa(u16),
    /// What OpenSSH no longer takes.
    Dsa,
}

impl KeyKind {
    fn arguments(self) -> Vec<String> {
        let (kind, bits) = match self {
            Self::Ed25519 => ("ed25519", None),
            Self::Ecdsa(bits) => ("ecdsa", Some(bits)),
            Self::Rsa(bits) => ("rsa", Some(bits)),
            Self::Dsa => ("dsa", None),
        };
        let bits = bits
            .map(|bits| ["-b".to_owned(), bits.to_string()])
            .into_iter()
            .flatten();
        ["-t".to_owned(), kind.to_owned()]
            .into_iter()
            .chain(bits)
            .collect()
    }
}

/// A key pair, without a passphrase.
#[derive(Debug, Clone)]
pub struct SshKey {
    /// The file with the private key; the public one lies beside it as `.pub`.
    pub path: PathBuf,
    /// The private key, in OpenSSH's form.
    pub private: String,
    /// The public key as `authorized_keys` has it, without a comment.
    pub public: String,
}

impl SshKey {
    /// Makes a key with `ssh-keygen`; `name` is the file's.
    ///
    /// # Errors
    /// There is no `ssh-keygen`, or it makes no such key (any more).
    pub fn make(folder: &Path, name: &str, kind: KeyKind) -> Result<Self> {
        loop {
            let key = Self::made(folder, name, kind)?;
            if !(kind == KeyKind::Ecdsa(256) && is_short(&key.private)) {
                return Ok(key);
            }
            std::fs::remove_file(&key.path)?;
        }
    }

    fn made(folder: &Path, name: &str, kind: KeyKind) -> Result<Self> {
        let path = folder.join(name);
        let output = Command::new("ssh-keygen")
            .args(kind.arguments())
            .args(["-q", "-N", "", "-C", "", "-f"])
            .arg(&path)
            .output()
            .context("no ssh-keygen")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "ssh-keygen makes no {kind:?}: {said}"
        );
        let private = std::fs::read_to_string(&path)?;
        let public = std::fs::read_to_string(path.with_added_extension("pub"))?;
        Ok(Self {
            path,
            private,
            public: public.trim().to_owned(),
        })
    }
}

/// Whether the private number of an ECDSA key on P-256 is written with fewer than 32 bytes, as one of 512 is. dormer's
/// library takes none of these (ssh-key 0.7.0-rc.11, `EcdsaPrivateKey::decode`).
fn is_short(private: &str) -> bool {
    let body: String = private
        .lines()
        .filter(|line| !line.starts_with("---"))
        .collect();
    let bytes = BASE64.decode(body).unwrap_or_default();
    // The public point, with its length, stands before it: once in the public part of the file, and once here.
    let point = [0_u8, 0, 0, 65, 4];
    let at = bytes.windows(point.len()).rposition(|it| it == point);
    let length = at.and_then(|at| bytes.get(at + 4 + 65 + 3));
    length.is_some_and(|length| *length < 32)
}

/// How sshd is started.
#[derive(Debug, Clone)]
pub struct SshdOptions {
    pub host_keys: Vec<KeyKind>,
    /// Public keys that may log in beside [`Sshd::key`].
    pub authorized: Vec<String>,
    /// Lines of configuration. The first word on a matter counts for sshd, and these come first.
    pub config: String,
    /// Whether the SFTP subsystem is there.
    pub sftp: bool,
    /// A network of its own, if any; 127.0.0.1 otherwise.
    pub network: Option<NatsNetwork>,
}

impl SshdOptions {
    /// The address at which it listens.
    fn address(&self) -> &str {
        self.network
            .as_ref()
            .map_or("127.0.0.1", |network| &network.address)
    }
}

impl Default for SshdOptions {
    fn default() -> Self {
        Self {
            host_keys: vec![KeyKind::Ed25519],
            authorized: Vec::new(),
            config: String::new(),
            sftp: true,
            network: None,
        }
    }
}

/// A running sshd. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Sshd {
    // Before the folder, so that the process is dead when its files are removed.
    process: Process,
    program: PathBuf,
    port: u16,
    host_keys: Vec<SshKey>,
    key: SshKey,
    folder: TempDir,
}

impl Sshd {
    /// Finds sshd, makes its keys and starts it on a free port of 127.0.0.1. Blocks until it answers.
    ///
    /// # Panics
    /// When there is an sshd but it does not come up: its log is in the message.
    pub fn start(options: &SshdOptions) -> Start<Self> {
        let found = skip::may_start("sshd").and_then(|()| Self::program());
        let program = match found {
            Ok(program) => program,
            Err(skipped) => return Start::Skipped(skipped),
        };
        let folder = test_dir("sshd");
        let (host_keys, key) = keys(folder.path(), options).expect("keys for sshd");
        let mut last = None;
        for _ in 0..PORT_TRIES {
            let port = free_port();
            let text = config(port, folder.path(), &host_keys, options);
            std::fs::write(folder.path().join("config"), text).expect("the folder is ours");
            match launch(&program, port, folder.path(), options) {
                Ok(process) => {
                    let server = Self {
                        process,
                        program,
                        port,
                        host_keys,
                        key,
                        folder,
                    };
                    return Start::Started(server);
                }
                Err(error) => last = Some(error),
            }
        }
        panic!("sshd did not start: {:#}", last.expect("at least one try"));
    }

    /// Where the program is. sshd wants to be called by its whole path.
    ///
    /// # Errors
    /// There is none here, and no test installs one.
    pub fn program() -> Result<PathBuf, Skipped> {
        if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            return Ok(path.into());
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
        folders
            .map(|folder| folder.join("sshd"))
            .find(|path| path.is_file())
            .ok_or_else(|| {
                let reason =
                    format!("not in ${VARIABLE}, PATH or {FOLDERS:?}; install openssh-server");
                Skipped {
                    server: "sshd".to_owned(),
                    reason,
                }
            })
    }

    /// The port, the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A key that may log in.
    pub fn key(&self) -> &SshKey {
        &self.key
    }

    /// The host keys, in the order of the options.
    pub fn host_keys(&self) -> &[SshKey] {
        &self.host_keys
    }

    /// Who may log in: the user who runs the test.
    ///
    /// # Panics
    /// When the name is unknown.
    pub fn user() -> String {
        let output = Command::new("id").arg("-un").output().expect("id runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// A folder for the test's files, with the keys and the log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The listening process; each connection has processes of its own.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Stops the listening process where it is: the system still takes connections for it, and no banner is sent.
    ///
    /// # Errors
    /// It is not there any more.
    pub fn freeze(&self) -> Result<()> {
        self.process.signal("STOP")
    }

    /// The opposite of [`freeze`](Self::freeze).
    ///
    /// # Errors
    /// It is not there any more.
    pub fn thaw(&self) -> Result<()> {
        self.process.signal("CONT")
    }

    /// Kills the processes of all its connections with SIGKILL. The listener stays.
    ///
    /// # Errors
    /// They cannot be listed or signalled.
    pub fn kill_connections(&self) -> Result<()> {
        let parent = self.process.id().to_string();
        let output = Command::new("ps")
            .args(["-o", "pid=", "--ppid", &parent])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut children = text
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        ensure!(!children.is_empty(), "sshd has no connections");
        children.splice(0..0, ["-s".to_owned(), "KILL".to_owned()]);
        let status = Command::new("kill").args(children).status()?;
        ensure!(status.success(), "kill: {status}");
        Ok(())
    }

    /// Ends the listener and starts another on the same port, with new host keys of these kinds. Connections that are
    /// open stay.
    ///
    /// # Errors
    /// It does not come up.
    pub fn restart_with(&mut self, options: &SshdOptions) -> Result<()> {
        self.process.kill();
        for old in &self.host_keys {
            std::fs::remove_file(&old.path)?;
            std::fs::remove_file(old.path.with_added_extension("pub"))?;
        }
        self.host_keys = host_keys(self.folder.path(), options)?;
        let text = config(self.port, self.folder.path(), &self.host_keys, options);
        std::fs::write(self.folder.path().join("config"), text)?;
        self.process = launch(&self.program, self.port, self.folder.path(), options)?;
        Ok(())
    }
}

fn keys(folder: &Path, options: &SshdOptions) -> Result<(Vec<SshKey>, SshKey)> {
    let key = SshKey::make(folder, "key", KeyKind::Ed25519)?;
    let mut lines = key.public.clone() + "\n";
    for public in &options.authorized {
        writeln!(lines, "{public}")?;
    }
    std::fs::write(folder.join("authorized_keys"), lines)?;
    Ok((host_keys(folder, options)?, key))
}

fn host_keys(folder: &Path, options: &SshdOptions) -> Result<Vec<SshKey>> {
    let kinds = options.host_keys.iter().enumerate();
    kinds
        .map(|(at, kind)| SshKey::make(folder, &format!("host-{at}"), *kind))
        .collect()
}

fn config(port: u16, folder: &Path, host_keys: &[SshKey], options: &SshdOptions) -> String {
    let mut text = options.config.clone();
    let folder = folder.display();
    let address = options.address();
    let _ = write!(
        text,
        "\nListenAddress {address}:{port}\nPidFile none\nAuthorizedKeysFile {folder}/authorized_keys\n\
         StrictModes no\nUsePAM no\nUseDNS no\nPermitRootLogin prohibit-password\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nLogLevel VERBOSE\n\
         MaxAuthTries 20\n",
    );
    // Here the last word counts.
    if !options.config.contains("MaxStartups") {
        text.push_str("MaxStartups 200\n");
    }
    for key in host_keys {
        let _ = writeln!(text, "HostKey {}", key.path.display());
    }
    if options.sftp {
        text.push_str("Subsystem sftp internal-sftp\n");
    }
    text
}

fn launch(program: &Path, port: u16, folder: &Path, options: &SshdOptions) -> Result<Process> {
    if !Path::new(EMPTY_ROOM).exists() && Sshd::user() == "root" {
        std::fs::create_dir_all(EMPTY_ROOM).context(EMPTY_ROOM)?;
    }
    let config = folder.join("config").display().to_string();
    let mut args = vec!["-D".to_owned(), "-e".into(), "-f".into(), config];
    let mut program = program.to_path_buf();
    if let Some(network) = &options.network {
        let sshd = program.display().to_string();
        args.splice(
            0..0,
            [
                "netns".into(),
                "exec".into(),
                network.namespace.clone(),
                sshd,
            ],
        );
        program = "ip".into();
    }
    let mut process = Process::start(&ProcessSpec {
        program,
        args,
        env: vec![],
        log: folder.join("log"),
        folder: Some(folder.to_path_buf()),
    })?;
    let up = block_until(START_MAX, || {
        answers(options.address(), port) || !process.is_running()
    });
    ensure!(up && process.is_running(), "{}", process.log_tail());
    Ok(process)
}

/// Whether an sshd greets there.
fn answers(address: &str, port: u16) -> bool {
    let Ok(stream) = TcpStream::connect((address, port)) else {
        return false;
    };
    let mut line = String::new();
    let read = stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .and_then(|()| BufReader::new(stream).read_line(&mut line));
    read.is_ok() && line.starts_with("SSH-2.0-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::started;

    #[test]
    fn a_private_number_with_fewer_bytes_is_short() {
        let file = |length: u8| {
            let point = [&[0, 0, 0, 65, 4][..], &[7; 64]].concat();
            let number = [&[0, 0, 0, length][..], &[9; 32]].concat();
            let body =
                BASE64.encode([&b"ecdsa"[..], &point, b"nistp256", &point, &number].concat());
            format!("-----BEGIN-----\n{body}\n-----END-----\n")
        };
        assert!(is_short(&file(31)));
        assert!(!is_short(&file(32)) && !is_short(&file(33)) && !is_short("no key"));
    }

    #[test]
    fn openssh_itself_logs_in() {
        let options = SshdOptions {
            host_keys: vec![KeyKind::Ecdsa(384)],
            ..Default::default()
        };
        let server = started!(Sshd::start(&options));
        let known = server.folder().join("known");
        let port = server.port();
        let host_key = &server.host_keys()[0].public;
        std::fs::write(&known, format!("[127.0.0.1]:{port} {host_key}\n")).expect("a file");
        let output = Command::new("ssh")
            .args(["-F", "none", "-o", "BatchMode=yes", "-o"])
            .arg(format!("UserKnownHostsFile={}", known.display()))
            .args(["-i", &server.key().path.display().to_string()])
            .args([
                "-p",
                &port.to_string(),
                &format!("{}@127.0.0.1", Sshd::user()),
                "echo hello",
            ])
            .output()
            .expect("ssh runs");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "hello\n",
            "{}",
            server.log()
        );
    }
}
