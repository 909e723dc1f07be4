//! Free TCP ports on the loopback address, each given to one test process only.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::Path;

use rand::RngExt;

/// Below Linux' and Windows' ranges for outgoing connections (32768 and 49152), so that none of
/// those takes a port between our look and the server's bind, or while a server is restarted.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// A port of 127.0.0.1 that nothing listens on. It belongs to this process until the process ends: no other
/// call, in this process or another one of this computer, is given the same, also before a server listens
/// on it and while that server is restarted.
///
/// # Panics
/// When a thousand draws found none, or the folder of the reservations cannot be written.
pub fn free_port() -> u16 {
    let folder = std::env::temp_dir().join("dormer-test-ports");
    std::fs::create_dir_all(&folder).expect("a folder for reserved ports");
    let mut rng = rand::rng();
    (0..1000)
        .map(|_| rng.random_range(PORTS))
        .find(|port| reserve(&folder, *port) && TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port on the loopback address")
}

/// Whether the port is now this process's. The reservation is a lock on a file that stays open: the system
/// ends it with the process, however that dies. The file itself stays, as removing it would let two
/// processes lock two files of one name.
fn reserve(folder: &Path, port: u16) -> bool {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join(port.to_string()));
    let file: File = match file {
        Ok(file) => file,
        // Another user's tests reserved it before.
        Err(_) => return false,
    };
    let reserved = file.try_lock().is_ok();
    if reserved {
        std::mem::forget(file);
    }
    reserved
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::test_dir;

    #[test]
    fn a_port_is_given_once_though_nothing_listens_on_it() {
        let ports: Vec<u16> = (0..400).map(|_| free_port()).collect();
        let distinct: BTreeSet<&u16> = ports.iter().collect();
        assert_eq!(distinct.len(), ports.len(), "a port was given twice");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_port_of_another_process_is_free_again_when_that_process_is_killed() {
        let folder = test_dir("ports");
        let path = folder.path().join("15000");
        File::create(&path).expect("a file");
        let mut other = Command::new("flock")
            .args([
                "--no-fork".as_ref(),
                path.as_os_str(),
                "sleep".as_ref(),
                "600".as_ref(),
            ])
            .spawn()
            .expect("flock, of util-linux");
        let taken = crate::block_until(Duration::from_secs(60), || !probe(&path));
        assert!(taken, "the other process never took its port");
        assert!(!reserve(folder.path(), 15_000), "given to two processes");
        other.kill().expect("killed");
        other.wait().expect("ended");
        assert!(reserve(folder.path(), 15_000), "kept by the dead");
    }

    /// Whether the lock is free now; it is released at once.
    #[cfg(target_os = "linux")]
    fn probe(path: &Path) -> bool {
        File::open(path).expect("the file").try_lock().is_ok()
    }
}
