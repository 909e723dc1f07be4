//! A real ssh-agent of OpenSSH's for one test.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::process::{Process, ProcessSpec};
use crate::skip::{self, Skipped, Start};
use crate::{block_until, test_dir};

/// It listens within a few milliseconds; a busy machine gets this much.
const START_MAX: Duration = Duration::from_secs(30);

/// A running ssh-agent. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct SshAgent {
    // Before the folder, so that the process is dead when its files are removed.
    process: Process,
    folder: TempDir,
}

impl SshAgent {
    /// Starts an ssh-agent without keys. Blocks until it listens. Keys that want a confirmation (`ssh-add -c`) never get
    /// one.
    ///
    /// # Panics
    /// When there is an ssh-agent but it does not come up: its log is in the message.
    pub fn start() -> Start<Self> {
        let program = skip::may_start("ssh-agent").and_then(|()| program());
        let program = match program {
            Ok(program) => program,
            Err(skipped) => return Start::Skipped(skipped),
        };
        let folder = test_dir("ssh-agent");
        let process = launch(&program, folder.path());
        let agent = Self {
            process: process.expect("ssh-agent starts"),
            folder,
        };
        let says = "#!/bin/sh\necho password\n";
        std::fs::write(agent.password(), says).expect("the folder is ours");
        std::fs::set_permissions(agent.password(), Permissions::from_mode(0o700))
            .expect("the file is ours");
        Start::Started(agent)
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        socket(self.folder.path())
    }

    /// A folder for the test's files, with the socket and the log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A program that says the password of `ssh-add -x` and `-X`. Without a password an agent is not locked.
    fn password(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    /// Runs `ssh-add` with these arguments against it, and returns what that prints.
    ///
    /// # Errors
    /// ssh-add fails.
    pub fn ssh_add(&self, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
        let output = Command::new("ssh-add")
            .args(arguments)
            .env("SSH_AUTH_SOCK", self.socket())
            .env("SSH_ASKPASS", self.password())
            .env("SSH_ASKPASS_REQUIRE", "force")
            .output()
            .context("no ssh-add")?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        ensure!(output.status.success(), "ssh-add: {said}");
        Ok(said)
    }

    /// Stops the process where it is: the system still takes connections for it, and nothing is answered.
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

    /// Kills it. Its socket stays, as after a crash.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again at the same socket, without keys.
    ///
    /// # Errors
    /// It does not come up.
    pub fn restart(&mut self) -> Result<()> {
        self.process.kill();
        let _ = std::fs::remove_file(self.socket());
        let program = program().map_err(|skipped| anyhow::anyhow!(skipped.reason))?;
        self.process = launch(&program, self.folder.path())?;
        Ok(())
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("agent")
}

fn program() -> Result<PathBuf, Skipped> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("ssh-agent"))
        .find(|path| path.is_file())
        .ok_or_else(|| Skipped {
            server: "ssh-agent".to_owned(),
            reason: "not in PATH; install openssh-client".to_owned(),
        })
}

fn launch(program: &Path, folder: &Path) -> Result<Process> {
    let socket = socket(folder);
    let mut process = Process::start(&ProcessSpec {
        program: program.to_path_buf(),
        args: vec!["-D".into(), "-a".into(), socket.display().to_string()],
        env: vec![("SSH_ASKPASS".into(), "/bin/false".into())],
        log: folder.join("log"),
        folder: Some(folder.to_path_buf()),
    })?;
    let up = block_until(START_MAX, || {
        UnixStream::connect(&socket).is_ok() || !process.is_running()
    });
    ensure!(up && process.is_running(), "{}", process.log_tail());
    Ok(process)
}
