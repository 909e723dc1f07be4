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
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

/// The list of an entry's files.
const LIST: &str = "entry.json";
/// Bytes that are read at once when a file is checked.
const PIECE_BYTES: usize = 1 << 20;

/// Entries that this process has checked already; a checksum of 300 MB takes a tenth of a second.
static CHECKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// `$XDG_CACHE_HOME/dormer`, or `~/.cache/dormer`; the system's temporary folder where there is no home.
pub fn cache_dir() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = named("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| named("HOME").map(|home| PathBuf::from(home).join(".cache")));
    base.unwrap_or_else(std::env::temp_dir).join("dormer")
}

/// The folder with all built servers.
pub fn servers_dir() -> PathBuf {
    cache_dir().join("servers")
}

/// The complete entry `name` below `servers`, made by `make` (into the folder that it is given) when it is missing,
/// half-built or damaged. Processes that want the same entry wait for the one that makes it.
///
/// # Errors
/// The cache cannot be written, or `make` failed.
pub(crate) fn entry(
    servers: &Path,
    name: &str,
    make: impl Fn(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let folder = servers.join(name);
    if checked(&folder) || check(&folder).is_ok() {
        remember(&folder);
        return Ok(folder);
    }
    std::fs::create_dir_all(servers)
        .with_context(|| format!("the cache {} cannot be written", servers.display()))?;
    // One build at a time on a machine: two would only slow each other.
    let lock = File::create(servers.join("making.lock"))?;
    lock.lock()?;
    if folder.exists() {
        match check(&folder) {
            Ok(()) => return Ok(folder),
            Err(why) => {
                say(&format!(
                    "{} is damaged ({why:#}); it is built anew",
                    folder.display()
                ));
                std::fs::remove_dir_all(&folder)?;
            }
        }
    }
    let start = Instant::now();
    say(&format!(
        "building {name} for the tests, once on this machine ..."
    ));
    let unfinished = servers.join(format!("{name}.unfinished"));
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished)?;
    }
    std::fs::create_dir_all(&unfinished)?;
    make(&unfinished)?;
    write_list(&unfinished)?;
    std::fs::rename(&unfinished, &folder)?;
    say(&format!(
        "built {} in {} s",
        folder.display(),
        start.elapsed().as_secs()
    ));
    remember(&folder);
    Ok(folder)
}

/// The newest complete entry whose name begins with `prefix`, for a machine without the toolchain that built it.
pub(crate) fn any_entry(servers: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(servers).ok()?;
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(prefix) && !name.ends_with(".unfinished")
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(fits)
        .collect();
    found.sort();
    found.into_iter().rev().find(|path| check(path).is_ok())
}

fn checked(folder: &Path) -> bool {
    locked().contains(folder)
}

fn remember(folder: &Path) {
    locked().insert(folder.to_path_buf());
}

fn locked() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    CHECKED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Whether each file of the entry is as it was made.
fn check(folder: &Path) -> Result<()> {
    let text = std::fs::read_to_string(folder.join(LIST)).context("it has no entry.json")?;
    let list: Value = serde_json::from_str(&text).context("its entry.json is not JSON")?;
    let files = list["files"]
        .as_object()
        .context("its entry.json names no files")?;
    ensure!(!files.is_empty(), "its entry.json names no files");
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::test_dir;

    fn write(folder: &Path) -> Result<()> {
        std::fs::write(folder.join("server"), b"a program").map_err(Into::into)
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
                scope.spawn(|| entry(servers.path(), "a-1", make).expect("an entry"));
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_damaged_entry_is_made_anew() {
        for damage in ["cut", "changed", "gone", "no list", "bad list"] {
            let servers = test_dir("cache");
            let folder = entry(servers.path(), "a-1", write).expect("an entry");
            let server = folder.join("server");
            match damage {
                "cut" => std::fs::write(&server, b"a prog"),
                "changed" => std::fs::write(&server, b"a progrAm"),
                "gone" => std::fs::remove_file(&server),
                "no list" => std::fs::remove_file(folder.join(LIST)),
                _ => std::fs::write(folder.join(LIST), b"{"),
            }
            .expect("damaged");
            // Another process has not checked it yet.
            locked().remove(&folder);
            let again = entry(servers.path(), "a-1", write).expect("an entry");
            assert_eq!(
                std::fs::read(again.join("server")).expect("it"),
                b"a program",
                "{damage}"
            );
        }
    }

    #[test]
    fn a_build_that_was_cut_off_leaves_no_entry_and_is_made_anew() {
        let servers = test_dir("cache");
        let failed = entry(servers.path(), "a-1", |folder| {
            write(folder)?;
            bail!("killed")
        });
        assert!(failed.is_err());
        assert!(!servers.path().join("a-1").exists());
        assert_eq!(
            any_entry(servers.path(), "a-"),
            None,
            "what is unfinished is no entry"
        );
        entry(servers.path(), "a-1", write).expect("an entry");
        assert_eq!(
            any_entry(servers.path(), "a-"),
            Some(servers.path().join("a-1"))
        );
    }
}
