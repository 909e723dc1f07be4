//! A child process that dies with its test, however the test ends.
//!
//! A watchdog shell holds the read end of a pipe from us: when we are gone, even by SIGKILL, it reads
//! the end of the file, kills the child and removes its folder. (`PR_SET_PDEATHSIG` would be bound to
//! the *thread* that started the child, and a test's thread ends before the test binary does.)

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::block_until;

/// `$1` the process to kill, `$2` the folder to remove afterwards. A line on standard input stands
/// the watchdog down. The signals of a terminal reach us first and must not end the watchdog.
const WATCHDOG: &str =
    r#"trap '' INT HUP TERM; read -r _ && exit 0; kill -9 "$1"; [ -n "$2" ] && rm -rf "$2""#;

/// Time that a child has to end after SIGTERM.
const END_MAX: Duration = Duration::from_secs(120);

/// Time in which the threads of a child stand still after SIGSTOP.
const STOPPED_WITHIN: Duration = Duration::from_secs(10);

/// What to start.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables set beside the inherited ones.
    pub env: Vec<(String, String)>,
    /// Where standard output and error go (appended).
    pub log: PathBuf,
    /// A folder that the watchdog removes if we die before we can.
    pub folder: Option<PathBuf>,
}

/// A running child and its watchdog. Dropping it kills the child with SIGKILL.
#[derive(Debug)]
pub struct Process {
    child: Child,
    watchdog: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the program with its output in the log.
    pub fn start(spec: &ProcessSpec) -> Result<Self> {
        let log = File::options().create(true).append(true).open(&spec.log)?;
        let child = Command::new(&spec.program)
            .args(&spec.args)
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", spec.program.display()))?;
        let watchdog = watch(child.id(), spec.folder.as_deref())?;
        Ok(Self {
            child,
            watchdog,
            log: spec.log.clone(),
        })
    }

    /// The child's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the child still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits, blocking the thread, until something takes connections on the port of 127.0.0.1.
    ///
    /// # Errors
    /// When the child has ended, or `within` has passed; both with the child's last lines.
    pub fn await_listening(&mut self, port: u16, within: Duration) -> Result<()> {
        let mut listening = false;
        let settled = block_until(within, || {
            listening = TcpStream::connect(("127.0.0.1", port)).is_ok();
            listening || !self.is_running()
        });
        anyhow::ensure!(
            settled,
            "nothing on port {port} after {within:?}: {}",
            self.log_tail()
        );
        anyhow::ensure!(
            listening,
            "ended before it listened on port {port}: {}",
            self.log_tail()
        );
        Ok(())
    }

    /// Kills the child with SIGKILL and waits until it is gone. Again is harmless.
    pub fn kill(&mut self) {
        self.stop();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM to the child and waits for its end.
    ///
    /// # Errors
    /// It runs on for more than two minutes; with its last lines.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal("TERM")?;
        anyhow::ensure!(
            block_until(END_MAX, || !self.is_running()),
            "runs on {END_MAX:?} after SIGTERM: {}",
            self.log_tail()
        );
        self.stop();
        Ok(())
    }

    /// Sends the child a signal by name: `STOP` and `CONT` freeze and thaw it.
    ///
    /// After `STOP` it waits until every thread stands still. The signal reaches the thread that stops the others only
    /// when that thread is next scheduled; on a busy machine the others answer requests until then.
    pub fn signal(&self, name: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status()?;
        anyhow::ensure!(status.success(), "kill -s {name} {pid}: {status}");
        if name == "STOP" && cfg!(target_os = "linux") {
            let stands = block_until(STOPPED_WITHIN, || stands_still(&pid));
            anyhow::ensure!(stands, "{pid} did not stop within {STOPPED_WITHIN:?}");
        }
        Ok(())
    }

    /// The last lines that the child wrote, for messages.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Tells the watchdog by a line that no process is left to kill.
    fn stop(&mut self) {
        if let Some(mut pipe) = self.watchdog.stdin.take() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.watchdog.wait();
    }
}

/// Whether every thread of a process is stopped, by `/proc`: the state follows the name, which is in parentheses.
fn stands_still(pid: &str) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.flatten().all(|thread| {
        let text = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = text.rsplit_once(") ").map(|(_, rest)| rest);
        state.is_some_and(|state| state.starts_with('T'))
    })
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn watch(pid: u32, folder: Option<&Path>) -> Result<Child> {
    Command::new("sh")
        .args(["-c", WATCHDOG, "watchdog", &pid.to_string()])
        .arg(folder.map_or_else(PathBuf::new, Path::to_path_buf))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the watchdog: no sh")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir;

    fn sleeper(log: &Path, folder: Option<PathBuf>) -> Process {
        let spec = ProcessSpec {
            program: "sleep".into(),
            args: vec!["600".into()],
            env: vec![],
            log: log.to_path_buf(),
            folder,
        };
        Process::start(&spec).expect("sleep starts")
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let dir = test_dir("process");
        let mut process = sleeper(&dir.path().join("log"), None);
        assert!(process.is_running());
        process.kill();
        assert!(!process.is_running());
    }

    #[test]
    fn a_process_dies_and_is_cleaned_up_when_its_owner_vanishes() {
        let dir = test_dir("process");
        let folder = dir.path().join("own");
        std::fs::create_dir(&folder).expect("a folder");
        let mut process = sleeper(&dir.path().join("log"), Some(folder.clone()));
        // What the operating system does to our end of the pipe when we die.
        drop(process.watchdog.stdin.take());
        assert!(block_until(Duration::from_secs(5), || !process.is_running()));
        assert!(block_until(Duration::from_secs(5), || !folder.exists()));
    }
    #[test]
    fn a_process_that_ends_before_it_listens_is_not_waited_for() {
        let dir = test_dir("process");
        let log = dir.path().join("log");
        let mut process = sleeper(&log, None);
        process.kill();
        std::fs::write(&log, "no such store").expect("written");
        let said = process.await_listening(crate::free_port(), Duration::from_secs(600));
        let said = said.expect_err("nothing listens").to_string();
        assert!(
            said.contains("ended") && said.contains("no such store"),
            "{said}"
        );
    }
}
