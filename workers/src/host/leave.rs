//! The end of a host that leaves for good: after everything that it made, the host program goes, too, with its notes. Its
//! fence stays: it refuses a worker that wakes up with an old order (docs/inventory.md).

use super::{HostExecutor, cluster::Cluster};
use crate::ssh::{Session, SshError};
use dormer_host::paths::{BIN, STAGING, STATE};
use serde::Deserialize;

/// Names of the programs that were used on the host.
const USED: &str = "programs.json";
/// Most bytes that are read of it. It names three programs.
const USED_BYTES_MAX: usize = 4 << 10;
/// The program's other notes (`workers/host/src/state.rs`).
const NOTES: [&str; 8] = [
    "boot-run.json",
    "boot.json",
    "holder.json",
    "installed.json",
    "inventory.json",
    "last.json",
    "reboot.json",
    "stopped.json",
];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Used {
    programs: Vec<String>,
}

impl<C: Cluster> HostExecutor<C> {
    /// Takes the program off a host that was torn down. A file that cannot be deleted stays: it does nothing.
    ///
    /// # Errors
    /// The session broke.
    pub(super) async fn take_program_away(&self, session: &Session) -> Result<(), SshError> {
        let sftp = session.sftp().await?;
        let state = |name: &str| format!(r"{STATE}\{name}");
        let read = sftp.read_file(&state(USED), USED_BYTES_MAX).await;
        let bytes = read.ok().flatten().unwrap_or_default();
        let used: Used = serde_json::from_slice(&bytes).unwrap_or_default();
        let programs = used.programs.iter().filter(|name| is_program(name));
        let programs = programs.map(|name| format!(r"{BIN}\{name}"));
        let notes = NOTES.into_iter().chain([USED]).map(state);
        for path in programs.chain(notes) {
            stays_if_it_must(sftp.remove(&path).await)?;
        }
        for folder in [BIN, STAGING] {
            stays_if_it_must(sftp.remove_folder(folder).await)?;
        }
        Ok(())
    }
}

/// Whether a host's own word may be the name of a host program: nothing else is deleted by it.
fn is_program(name: &str) -> bool {
    let hash = name
        .strip_prefix("dormer-host-")
        .and_then(|rest| rest.strip_suffix(".exe"));
    hash.is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn stays_if_it_must(removed: Result<(), SshError>) -> Result<(), SshError> {
    match removed {
        Err(error) if error.breaks() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::is_program;

    #[test]
    fn only_host_programs_are_deleted_by_a_hosts_word() {
        assert!(is_program("dormer-host-9b8a959d710e908b.exe"));
        for other in [
            "kubelet.exe",
            r"dormer-host-..\..\k\kubelet.exe",
            "dormer-host-a/b.exe",
            "dormer-host-.exe.txt",
        ] {
            assert!(!is_program(other), "{other}");
        }
    }
}
