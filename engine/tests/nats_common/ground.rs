//! Network namespaces that can be disconnected, and a disk that fills up, for tests of a cluster. Both need root and
//! iproute2 or mount; without them the test says so.

use dormer_testkit::{NatsNetwork, Skipped};
use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

fn run(program: &str, words: &str) -> Result<(), Skipped> {
    let missing = |reason: String| Skipped {
        server: format!("way to run {program}"),
        reason,
    };
    let mut command = Command::new(program);
    command
        .args(words.split_whitespace())
        .stdout(Stdio::null())
        .stdin(Stdio::null());
    let done = command
        .output()
        .map_err(|error| missing(error.to_string()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(missing(format!(
        "{program} {words}: {}",
        String::from_utf8_lossy(&done.stderr).trim()
    )))
}

/// A namespace for each of three servers, all on one bridge that this process can reach.
pub(crate) struct Ground {
    name: String,
    net: u32,
}

impl Ground {
    pub(crate) fn lay() -> Result<Self, Skipped> {
        let pid = std::process::id();
        let ground = Self {
            name: format!("dm{pid}"),
            net: pid % 250,
        };
        let Self { name, net } = &ground;
        run("ip", &format!("link add name {name} type bridge"))?;
        run("ip", &format!("addr add 10.213.{net}.254/24 dev {name}"))?;
        run("ip", &format!("link set {name} up"))?;
        for at in 0..3 {
            let inside = ground.namespace(at);
            run("ip", &format!("netns add {inside}"))?;
            run(
                "ip",
                &format!("link add {inside}h type veth peer name eth0 netns {inside}"),
            )?;
            run("ip", &format!("link set {inside}h master {name} up"))?;
            let address = ground.address(at);
            run("ip", &format!("-n {inside} addr add {address}/24 dev eth0"))?;
            run("ip", &format!("-n {inside} link set eth0 up"))?;
            run("ip", &format!("-n {inside} link set lo up"))?;
        }
        Ok(ground)
    }

    fn namespace(&self, at: usize) -> String {
        format!("{}n{at}", self.name)
    }

    /// The address of one.
    pub(crate) fn address(&self, at: usize) -> String {
        format!("10.213.{}.{}", self.net, at + 1)
    }

    /// The network of one.
    pub(crate) fn network(&self, at: usize) -> NatsNetwork {
        NatsNetwork {
            namespace: self.namespace(at),
            address: self.address(at),
        }
    }

    /// Cuts one off from the other two, or heals the cut. This process still reaches all of them.
    pub(crate) fn cut(&self, at: usize, cut: bool) {
        let verb = if cut { "add" } else { "del" };
        for other in (0..3).filter(|other| *other != at) {
            let to = self.address(other);
            run(
                "ip",
                &format!("-n {} route {verb} blackhole {to}/32", self.namespace(at)),
            )
            .unwrap_or_else(|skipped| panic!("{}", skipped.reason));
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for at in 0..3 {
            let _ = run("ip", &format!("netns del {}", self.namespace(at)));
        }
        let _ = run("ip", &format!("link del {}", self.name));
    }
}

/// A disk of limited size.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// A disk of so many MiB.
    pub(crate) fn mounted(mib: u32) -> Result<Self, Skipped> {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().display();
        run("mount", &format!("-t tmpfs -o size={mib}m tmpfs {at}"))?;
        Ok(Self(folder))
    }

    /// Where the server may keep its files.
    pub(crate) fn folder(&self) -> PathBuf {
        self.0.path().join("jetstream")
    }

    fn filler(&self) -> PathBuf {
        Path::join(self.0.path(), "filler")
    }

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) {
        let mut filler = File::create(self.filler()).expect("a file");
        let page = vec![1; 4_096];
        while filler.write_all(&page).is_ok() {}
    }

    /// Gives it back.
    pub(crate) fn free(&self) {
        std::fs::remove_file(self.filler()).expect("removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = run("umount", &format!("-l {}", self.0.path().display()));
    }
}
