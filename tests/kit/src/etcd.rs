//! A real etcd for one test or one control plane.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::https::{plain_post, plain_status};
use crate::minor::Kubernetes;
use crate::process::{Process, ProcessSpec};
use crate::skip::{Skipped, Start};
use crate::{block_until, free_port, test_dir};

/// etcd is up within a second; a busy machine gets this much.
const START_MAX: Duration = Duration::from_secs(60);
/// Most retries after another process took the port between our check and the server's bind.
const PORT_TRIES: usize = 5;

/// A running etcd with one member and a folder of its own. Dropping it kills it and removes the folder.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    program: PathBuf,
    ports: (u16, u16),
    folder: TempDir,
}

impl Etcd {
    /// Finds (or makes) the program, and starts it on free ports. Blocks until it answers.
    ///
    /// # Panics
    /// When there is a program but it does not come up: its log is in the message.
    pub fn start() -> Start<Self> {
        let program = match Self::program() {
            Ok(program) => program,
            Err(skipped) => return Start::Skipped(skipped),
        };
        let folder = test_dir("etcd");
        let mut last = None;
        for _ in 0..PORT_TRIES {
            let ports = (free_port(), free_port());
            match launch(&program, ports, folder.path()) {
                Ok(process) => {
                    return Start::Started(Self {
                        process,
                        program,
                        ports,
                        folder,
                    });
                }
                Err(error) => last = Some(error),
            }
        }
        panic!("etcd did not start: {:#}", last.expect("at least one try"));
    }

    /// Where the program is, found or made.
    ///
    /// # Errors
    /// It cannot be had here.
    pub fn program() -> Result<PathBuf, Skipped> {
        let kubernetes = Kubernetes::chosen();
        Kubernetes::program("etcd").find(&kubernetes.release(kubernetes.etcd, "DORMER_ETCD"))
    }

    /// `http://127.0.0.1:<port>`, where clients connect.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.0)
    }

    /// Forgets all history before the present revision, as the API server asks for every five minutes.
    ///
    /// # Panics
    /// When etcd does not answer.
    pub fn compact(&self) {
        let ask = |path: &str, body: &str| plain_post(self.ports.0, path, body).expect("an answer");
        // The revision stands in every answer's header; keys and numbers are texts there.
        let (_, said) = ask("/v3/kv/range", r#"{"key":"AA==","limit":"1"}"#);
        let after = said.split_once(r#""revision":""#).map(|(_, after)| after);
        let revision = after
            .and_then(|after| after.split('"').next())
            .expect("a revision");
        let body = format!(r#"{{"revision":"{revision}","physical":true}}"#);
        let (status, said) = ask("/v3/kv/compaction", &body);
        assert_eq!(status, 200, "{said}");
    }

    /// Kills etcd, keeps a copy of its files, and starts it again.
    ///
    /// # Panics
    /// When the files cannot be copied or it does not come back.
    pub fn back_up(&mut self) {
        self.process.kill();
        let data = self.folder.path().join("data");
        let copy = self.folder.path().join("copy");
        replace(&data, &copy).expect("a copy");
        self.restart();
    }

    /// Kills etcd, puts the files of [`Etcd::back_up`] in the place of its own, and starts it again: all that was written
    /// since is forgotten.
    ///
    /// # Panics
    /// When there is no copy or it does not come back.
    pub fn restore(&mut self) {
        self.process.kill();
        let data = self.folder.path().join("data");
        let copy = self.folder.path().join("copy");
        replace(&copy, &data).expect("a copy");
        self.restart();
    }

    /// Kills etcd with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Kills etcd with SIGKILL and starts it again on its ports with its files.
    ///
    /// # Panics
    /// When it does not come back.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = launch(&self.program, self.ports, self.folder.path())
            .unwrap_or_else(|error| panic!("etcd did not come back: {error:#}"));
    }
}

/// Makes `to` a copy of the folder `from`.
fn replace(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            replace(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn launch(program: &Path, ports: (u16, u16), folder: &Path) -> Result<Process> {
    let client = format!("http://127.0.0.1:{}", ports.0);
    let peer = format!("http://127.0.0.1:{}", ports.1);
    let args = [
        ("--name", "test".to_owned()),
        ("--data-dir", folder.join("data").display().to_string()),
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client),
        ("--listen-peer-urls", peer.clone()),
        ("--initial-advertise-peer-urls", peer.clone()),
        ("--initial-cluster", format!("test={peer}")),
        // What power loss would take is no concern of these tests, and a sync on a busy disk is.
        ("--unsafe-no-fsync", "true".to_owned()),
        // As clusters have it: a kind to which nothing happens is notified how far the others are. (3.5 knows this name alone.)
        (
            "--experimental-watch-progress-notify-interval",
            "5s".to_owned(),
        ),
        ("--log-level", "warn".to_owned()),
    ];
    let mut process = Process::start(&ProcessSpec {
        program: program.to_path_buf(),
        args: args
            .iter()
            .map(|(flag, value)| format!("{flag}={value}"))
            .collect(),
        env: vec![],
        log: folder.join("etcd.log"),
        folder: Some(folder.to_path_buf()),
    })?;
    let healthy = || plain_status(ports.0, "/health").is_ok_and(|status| status == 200);
    let answers = block_until(START_MAX, || !process.is_running() || healthy());
    if answers && process.is_running() {
        return Ok(process);
    }
    anyhow::bail!("{}", process.log_tail())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::started;

    #[test]
    fn etcd_comes_back_on_its_port_and_dies_with_its_value() {
        let mut etcd = started!(Etcd::start());
        let port = etcd.ports.0;
        let url = etcd.url();
        etcd.restart();
        assert_eq!(etcd.url(), url);
        assert_eq!(plain_status(port, "/health").expect("it answers"), 200);
        drop(etcd);
        assert!(plain_status(port, "/health").is_err());
    }
}
