//! `dormer-host.exe`, built for Windows once for each state of its sources, and small C programs for Wine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xxhash_rust::xxh3::Xxh3;

use crate::cache;
use crate::skip::{self, Skipped};

/// Its name in `tests/servers/required.txt`: the linker that it needs.
const SERVER: &str = "mingw";
/// The compiler of C programs for Windows.
const COMPILER: &str = "x86_64-w64-mingw32-gcc";
/// What the program is made of, from the root of the workspace.
const SOURCES: [&str; 5] = [
    "proto",
    "workers/host",
    "workers/profile",
    "Cargo.toml",
    "Cargo.lock",
];
const PROGRAMS: [&str; 2] = ["dormer-host.exe", "dormer-host-perform.exe"];

/// The programs of `dormer-host-win32`.
#[derive(Debug, Clone)]
pub struct HostProgram {
    /// `dormer-host.exe`, as it is shipped.
    pub program: PathBuf,
    /// `dormer-host-perform.exe`, which performs single operations.
    pub perform: PathBuf,
}

/// The programs, built now unless these sources were built before. Processes that want them at the same time wait
/// for the one that builds.
///
/// # Errors
/// They cannot be built here, or the tier `fast` starts nothing.
pub fn host_program() -> Result<HostProgram, Skipped> {
    skip::may_start(SERVER)?;
    built().map_err(|error| Skipped {
        server: SERVER.to_owned(),
        reason: format!("dormer-host.exe: {error:#}"),
    })
}

fn built() -> Result<HostProgram> {
    let mut compiler = Command::new("rustc");
    let compiler = said(compiler.arg("-vV"))?;
    let sources = SOURCES.map(|path| root().join(path));
    let name = format!(
        "dormer-host-{}",
        fingerprint(&sources, compiler.as_bytes())?
    );
    let folder = cache::entry(&cache::servers_dir()?, &name, &PROGRAMS, |into| {
        let script = root().join("workers/host/win32/build.sh");
        said(Command::new(script).arg(into)).map(drop)
    })?;
    Ok(HostProgram {
        program: folder.join(PROGRAMS[0]),
        perform: folder.join(PROGRAMS[1]),
    })
}

/// A program or library of `tests/wine`, compiled from its one C file; `file` is its name on Windows.
///
/// # Errors
/// There is no compiler, or it refuses the file.
pub(crate) fn compiled(file: &str) -> Result<PathBuf> {
    let (stem, kind) = file.rsplit_once('.').context("a name with an ending")?;
    let source = root().join("tests/wine").join(format!("{stem}.c"));
    let mut compiler = Command::new(COMPILER);
    let version = said(compiler.arg("-dumpfullversion"))?;
    let name = format!(
        "wine-{stem}-{}",
        fingerprint(std::slice::from_ref(&source), version.as_bytes())?
    );
    let folder = cache::entry(&cache::servers_dir()?, &name, &[file], |into| {
        let mut compiler = Command::new(COMPILER);
        compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-s", "-municode"]);
        if kind == "dll" {
            compiler.arg("-shared");
        }
        compiler.arg("-o").arg(into.join(file)).arg(&source);
        said(compiler.args(["-ladvapi32", "-lole32"])).map(drop)
    })?;
    Ok(folder.join(file))
}

/// What a tool prints; with its errors where it fails.
fn said(tool: &mut Command) -> Result<String> {
    let name = tool.get_program().to_string_lossy().into_owned();
    let output = tool.output().with_context(|| format!("no {name}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Sixteen hex digits that change with the files below these paths, their names, and with `beside`.
fn fingerprint(paths: &[PathBuf], beside: &[u8]) -> Result<String> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, &mut files)?;
    }
    files.sort();
    let mut hasher = Xxh3::new();
    hasher.update(beside);
    for file in files {
        // From the root, so that another checkout of the same sources has the same print.
        let name = file.strip_prefix(root()).unwrap_or(&file);
        hasher.update(name.as_os_str().as_encoded_bytes());
        let content = std::fs::read(&file).with_context(|| file.display().to_string())?;
        hasher.update(&content.len().to_le_bytes());
        hasher.update(&content);
    }
    Ok(format!("{:016x}", hasher.digest()))
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_file() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
    for entry in entries {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir;

    #[test]
    fn a_fingerprint_changes_with_names_and_contents() {
        let folder = test_dir("fingerprint");
        let paths = [folder.path().to_path_buf()];
        let now = |beside: &[u8]| fingerprint(&paths, beside).expect("a folder");
        let mut seen = vec![now(b"1.95")];
        let mut changed = |what: &str, print: String| {
            assert!(!seen.contains(&print), "{what}");
            seen.push(print);
        };
        changed("another compiler", now(b"1.96"));
        std::fs::write(folder.path().join("a"), "1").expect("written");
        changed("a file", now(b"1.95"));
        std::fs::write(folder.path().join("a"), "2").expect("written");
        changed("another content", now(b"1.95"));
        std::fs::rename(folder.path().join("a"), folder.path().join("b")).expect("renamed");
        changed("another name", now(b"1.95"));
        assert_eq!(now(b"1.95"), now(b"1.95"));
    }

    #[test]
    fn what_a_failing_tool_prints_is_in_the_error() {
        let failed = said(Command::new("sh").args(["-c", "echo no linker >&2; exit 3"]));
        assert_eq!(failed.expect_err("it failed").to_string(), "sh: no linker");
        let failed = said(&mut Command::new("a-tool-nobody-has"));
        assert_eq!(
            failed.expect_err("there is none").to_string(),
            "no a-tool-nobody-has"
        );
    }
}
