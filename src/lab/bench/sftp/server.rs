//! OpenSSH's sshd on a free port, for the duration of the bench.

use anyhow::{Context, bail, ensure};
use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpStream,
    process::Child,
    time::sleep,
};

/// Folders of sshd outside `PATH`.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// Folder that an sshd of root needs. Debian creates it at boot.
const EMPTY_ROOM: &str = "/run/sshd";
/// Time limit of the start, which usually takes tens of milliseconds.
const START_MAX: Duration = Duration::from_secs(20);
/// Poll interval of the start.
const POLL: Duration = Duration::from_millis(20);

/// Running sshd.
pub(super) struct Sshd {
    pub(super) port: u16,
    pub(super) user: String,
    /// Private key that may log in.
    pub(super) key_file: PathBuf,
    /// Host key without a comment.
    pub(super) host_key: String,
    /// Version in its greeting.
    pub(super) version: String,
    _process: Child,
}

impl Sshd {
    /// Starts sshd with its files in `folder`.
    pub(super) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let program = program()?;
        let key_file = folder.join("key");
        let host_file = folder.join("host-key");
        for file in [&key_file, &host_file] {
            make_key(file)?;
        }
        std::fs::copy(folder.join("key.pub"), folder.join("authorized_keys"))?;
        let user = user()?;
        if user == "root" && !Path::new(EMPTY_ROOM).exists() {
            std::fs::create_dir_all(EMPTY_ROOM).context(EMPTY_ROOM)?;
        }
        let port = TcpListener::bind((super::HERE, 0))?.local_addr()?.port();
        let config = folder.join("sshd_config");
        std::fs::write(&config, text(port, folder, &host_file))?;
        let process = tokio::process::Command::new(&program)
            .args(["-D", "-e", "-f"])
            .arg(&config)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log"))?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let host_key = std::fs::read_to_string(folder.join("host-key.pub"))?
            .trim()
            .to_owned();
        let version = greeting(port, &folder.join("log")).await?;
        Ok(Self {
            port,
            user,
            key_file,
            host_key,
            version,
            _process: process,
        })
    }
}

fn program() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    let found = folders
        .map(|folder| folder.join("sshd"))
        .find(|path| path.is_file());
    found.context("sshd is not installed: install OpenSSH's server (Debian: openssh-server)")
}

fn make_key(file: &Path) -> anyhow::Result<()> {
    let output = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
        .arg(file)
        .output()
        .context("ssh-keygen is not installed")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn user() -> anyhow::Result<String> {
    let output = Command::new("id").arg("-un").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn text(port: u16, folder: &Path, host_file: &Path) -> String {
    let folder = folder.display();
    let host_file = host_file.display();
    format!(
        "ListenAddress {here}:{port}\nPidFile none\nHostKey {host_file}\n\
         AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\nUseDNS no\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\n\
         Subsystem sftp internal-sftp\n",
        here = super::HERE
    )
}

/// Waits for its greeting, and returns it.
async fn greeting(port: u16, log: &Path) -> anyhow::Result<String> {
    let begun = Instant::now();
    while begun.elapsed() < START_MAX {
        if let Ok(stream) = TcpStream::connect((super::HERE, port)).await {
            let line = BufReader::new(stream)
                .lines()
                .next_line()
                .await?
                .unwrap_or_default();
            if let Some(name) = line.strip_prefix("SSH-2.0-") {
                return Ok(name.to_owned());
            }
        }
        sleep(POLL).await;
    }
    bail!(
        "sshd does not start: {}",
        std::fs::read_to_string(log).unwrap_or_default().trim()
    )
}
