//! The cache of built servers: one folder for each build, shared by all checkouts of this user's machine.
//!
//! It lies in `$XDG_CACHE_HOME/dormer/servers` (`~/.cache/dormer/servers`). An entry is named after the module, the
//! module's content and the toolchain, so a new version, a changed pin or another Go is another entry. An entry is made
//! in a folder of its own and renamed when it is complete. Its `entry.json` names each file with size and checksum; an
//! entry that does not match it is built anew. Nothing is ever removed by itself: the folder may be deleted at any
//! time when no test runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

/// The list of an entry's files.
const LIST: &str = "entry.json";
/// The beginning of the names of folders in which an entry is being made.
const UNFINISHED: &str = "unfinished-";
/// Bytes that are read at once when a file is checked.
const PIECE_BYTES: usize = 1 << 20;

/// Entries that this process has checked already; a checksum of 300 MB takes a tenth of a second.
static CHECKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Entries that this process could not make, and why.
static FAILED: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());

/// `$XDG_CACHE_HOME/dormer`, or `~/.cache/dormer`. A relative folder is passed over, as its specification demands.
///
/// # Errors
/// Neither variable names a folder.
pub fn cache_dir() -> Result<PathBuf> {
    let absolute = |name: &str| {
        let folder = PathBuf::from(std::env::var_os(name)?);
        folder.is_absolute().then_some(folder)
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let base = base.context("neither XDG_CACHE_HOME nor HOME names a folder for the cache")?;
    Ok(base.join("dormer"))
}

/// The folder with all built servers.
///
/// # Errors
/// There is no folder for a cache.
pub fn servers_dir() -> Result<PathBuf> {
    Ok(cache_dir()?.join("servers"))
}

/// The complete entry `name` below `servers` with these programs, made by `make` (into the folder that it is given)
/// when it is missing, half-built or damaged. Processes that want the same entry wait for the one that makes it. A build
/// that failed is not tried again by this process.
///
/// # Errors
/// The cache cannot be written, or `make` failed.
pub(crate) fn entry(
    servers: &Path,
    name: &str,
    programs: &[&str],
    make: impl Fn(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let folder = servers.join(name);
    if is_known(&folder) || check(&folder, programs).is_ok() {
        remember(&folder);
        return Ok(folder);
    }
    if let Some(why) = locked(&FAILED).get(&folder) {
        bail!("{why}");
    }
    let made = make_entry(servers, name, programs, make);
    if let Err(error) = &made {
        locked(&FAILED).insert(folder, format!("{error:#}"));
    }
    made
}

fn make_entry(
    servers: &Path,
    name: &str,
    programs: &[&str],
    make: impl Fn(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let folder = servers.join(name);
    std::fs::create_dir_all(servers)
        .with_context(|| format!("the cache {} cannot be written", servers.display()))?;
    // One build at a time on a machine: two would only slow each other.
    let lock = File::create(servers.join("making.lock"))?;
    lock.lock()?;
    if folder.exists() {
        match check(&folder, programs) {
            Ok(()) => return Ok(folder),
            Err(why) => {
                let place = folder.display();
                say(&format!("{place} is damaged ({why:#}); it is built anew"));
                std::fs::remove_dir_all(&folder)?;
            }
        }
    }
    sweep(servers);
    let start = Instant::now();
    say(&format!(
        "building {name} for the tests, once on this machine ..."
    ));
    // A folder of its own for each attempt: a compiler that outlived a killed test may still write into its own.
    let unfinished = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .tempdir_in(servers)?;
    make(unfinished.path())?;
    write_list(unfinished.path())?;
    check(unfinished.path(), programs)?;
    std::fs::rename(unfinished.keep(), &folder)?;
    say(&format!(
        "built {} in {} s",
        folder.display(),
        start.elapsed().as_secs()
    ));
    remember(&folder);
    Ok(folder)
}

/// Removes what builds that were cut off have left.
fn sweep(servers: &Path) {
    for entry in std::fs::read_dir(servers).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The newest complete entry whose name begins and ends so, for a machine whose toolchain cannot build another.
pub(crate) fn any_entry(
    servers: &Path,
    begin: &str,
    end: &str,
    programs: &[&str],
) -> Option<PathBuf> {
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(begin) && name.ends_with(end)
    };
    let entries = std::fs::read_dir(servers).ok()?.flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(fits).collect();
    found.sort_by_key(|path| path.metadata().and_then(|about| about.modified()).ok());
    let complete = |path: &PathBuf| is_known(path) || check(path, programs).is_ok();
    let newest = found.into_iter().rev().find(complete)?;
    remember(&newest);
    Some(newest)
}

fn is_known(folder: &Path) -> bool {
    locked(&CHECKED).contains(folder)
}

fn remember(folder: &Path) {
    locked(&CHECKED).insert(folder.to_path_buf());
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the entry has these programs, and each of its files is as it was made.
fn check(folder: &Path, programs: &[&str]) -> Result<()> {
    let text = std::fs::read_to_string(folder.join(LIST)).context("it has no entry.json")?;
    let list: Value = serde_json::from_str(&text).context("its entry.json is not JSON")?;
    let files = list["files"]
        .as_object()
        .context("its entry.json names no files")?;
    for program in programs {
        ensure!(
            files.contains_key(*program),
            "its entry.json does not name {program}"
        );
        let mode = folder.join(program).metadata()?.permissions().mode();
        ensure!(mode & 0o111 != 0, "{program} cannot be executed");
    }
    for (name, wanted) in files {
        let path = folder.join(name);
        let size = path
            .metadata()
            .with_context(|| format!("{name} is missing"))?
            .len();
        if Some(size) != wanted["bytes"].as_u64() {
            bail!("{name} has {size} bytes, not {}", wanted["bytes"]);
        }
        let sum = checksum(&path)?;
        ensure!(wanted["xxh3"] == sum, "{name} has another checksum");
    }
    Ok(())
}

fn write_list(folder: &Path) -> Result<()> {
    let mut files = BTreeMap::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        let name = path
            .file_name()
            .context("a name")?
            .to_string_lossy()
            .into_owned();
        let bytes = path.metadata()?.len();
        files.insert(name, json!({ "bytes": bytes, "xxh3": checksum(&path)? }));
    }
    ensure!(!files.is_empty(), "the build made no file");
    std::fs::write(
        folder.join(LIST),
        format!("{:#}\n", json!({ "files": files })),
    )?;
    Ok(())
}

fn checksum(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Xxh3::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(format!("{:032x}", hasher.digest128())),
            read => hasher.update(&piece[..read]),
        }
    }
}

/// Prints progress for a person who waits, past the test harness' capture.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Child, Command, Stdio};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::{block_until, test_dir};

    const IN_TIME: Duration = Duration::from_secs(60);
    const SERVER: &[&str] = &["server"];

    fn write(folder: &Path) -> Result<()> {
        let program = folder.join("server");
        std::fs::write(&program, b"a program")?;
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
        Ok(())
    }

    #[test]
    fn an_entry_is_made_once() {
        let servers = test_dir("cache");
        let made = AtomicUsize::new(0);
        let make = |folder: &Path| {
            made.fetch_add(1, Ordering::SeqCst);
            write(folder)
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| entry(servers.path(), "a-1", SERVER, make).expect("an entry"));
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_damaged_entry_is_made_anew() {
        for damage in [
            "cut",
            "changed",
            "gone",
            "not executable",
            "no list",
            "bad list",
        ] {
            let servers = test_dir("cache");
            let folder = entry(servers.path(), "a-1", SERVER, write).expect("an entry");
            let server = folder.join("server");
            match damage {
                "cut" => std::fs::write(&server, b"a prog"),
                "changed" => std::fs::write(&server, b"a progrAm"),
                "gone" => std::fs::remove_file(&server),
                "not executable" => {
                    std::fs::set_permissions(&server, PermissionsExt::from_mode(0o644))
                }
                "no list" => std::fs::remove_file(folder.join(LIST)),
                _ => std::fs::write(folder.join(LIST), b"{"),
            }
            .expect("damaged");
            // Another process has not checked it yet.
            locked(&CHECKED).remove(&folder);
            let again = entry(servers.path(), "a-1", SERVER, write).expect("an entry");
            assert_eq!(check(&again, SERVER).ok(), Some(()), "{damage}");
            assert_eq!(
                std::fs::read(again.join("server")).expect("it"),
                b"a program"
            );
        }
    }

    #[test]
    fn a_build_that_failed_leaves_no_entry_and_is_not_repeated_by_each_test() {
        let servers = test_dir("cache");
        let tries = AtomicUsize::new(0);
        for _ in 0..2 {
            let failed = entry(servers.path(), "a-1", SERVER, |folder| {
                tries.fetch_add(1, Ordering::SeqCst);
                write(folder)?;
                bail!("killed")
            });
            assert_eq!(failed.expect_err("no entry").to_string(), "killed");
        }
        assert_eq!(tries.load(Ordering::SeqCst), 1);
        assert_eq!(any_entry(servers.path(), "a-", "", SERVER), None);
    }

    #[test]
    fn what_a_killed_build_left_is_no_entry_and_is_swept() {
        let servers = test_dir("cache");
        let left = servers.path().join(format!("{UNFINISHED}1"));
        std::fs::create_dir(&left).expect("a folder");
        write(&left).expect("written");
        entry(servers.path(), "a-1", SERVER, write).expect("an entry");
        assert!(!left.exists());
        let any = any_entry(servers.path(), "a-", "", SERVER);
        assert_eq!(any, Some(servers.path().join("a-1")));
    }
    /// Names the cache to a process that `as_another_process` runs in.
    const CACHE: &str = "DORMER_TEST_CACHE";
    /// Names the file whose appearance lets that process finish its build.
    const GO_ON: &str = "DORMER_TEST_GO_ON";

    /// Another process of this binary that wants the entry `a-1`. Its build notes itself in `builds`, writes half a
    /// program, and finishes when the file `go_on` exists.
    fn process(servers: &Path, go_on: &Path) -> Child {
        Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "cache::tests::as_another_process", "--ignored"])
            .env(CACHE, servers)
            .env(GO_ON, go_on)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process")
    }

    #[test]
    #[ignore = "the body of the processes that the tests of this module start"]
    fn as_another_process() {
        let Some(servers) = std::env::var_os(CACHE).map(PathBuf::from) else {
            return;
        };
        let go_on = PathBuf::from(std::env::var_os(GO_ON).expect("a file's name"));
        let made = entry(&servers, "a-1", SERVER, |folder| {
            std::fs::write(folder.join("server"), b"a prog")?;
            let mut builds = File::options()
                .create(true)
                .append(true)
                .open(servers.join("builds"))?;
            builds.write_all(b"one\n")?;
            ensure!(block_until(IN_TIME, || go_on.exists()), "nobody said go on");
            write(folder)
        });
        let program = made.expect("an entry").join("server");
        assert_eq!(std::fs::read(program).expect("it"), b"a program");
    }

    fn builds(servers: &Path) -> usize {
        std::fs::read_to_string(servers.join("builds"))
            .unwrap_or_default()
            .lines()
            .count()
    }

    #[test]
    fn processes_share_one_build_and_one_killed_in_it_leaves_nothing() {
        let servers = test_dir("cache");
        let servers = servers.path();
        let go_on = servers.join("go-on");
        let mut killed = process(servers, &go_on);
        assert!(block_until(IN_TIME, || builds(servers) == 1), "no build");
        killed.kill().expect("SIGKILL");
        killed.wait().expect("ended");

        let mut both = [process(servers, &go_on), process(servers, &go_on)];
        assert!(block_until(IN_TIME, || builds(servers) == 2), "no build");
        File::create(&go_on).expect("written");
        for one in &mut both {
            assert!(one.wait().expect("ended").success());
        }
        assert_eq!(builds(servers), 2, "the second process built again");
        let unfinished = std::fs::read_dir(servers)
            .expect("the cache")
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(UNFINISHED));
        assert_eq!(unfinished.count(), 0);
    }
}
