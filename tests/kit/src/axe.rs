//! axe-core, the rules of accessibility for a page in a browser: a test tool (MPL-2.0), which is neither committed nor
//! shipped.
//!
//! It lies in `$XDG_CACHE_HOME/dormer/axe` (`~/.cache/dormer/axe`). npm fetches it once; without npm, or without a
//! network, its rules are skipped by name.

use crate::{Skipped, Start, skip};
use anyhow::{Context, Result, ensure};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// Name for people.
const NAME: &str = "axe-core";
/// The pinned package.
const PACKAGE: &str = "axe-core@4.14.1";
/// Its script within the package.
const SCRIPT: &str = "package/axe.min.js";

/// Script of axe-core, or why there is none.
pub fn axe() -> Start<String> {
    static FOUND: OnceLock<Result<String, String>> = OnceLock::new();
    if let Err(skipped) = skip::may_start(NAME) {
        return Start::Skipped(skipped);
    }
    match FOUND.get_or_init(|| found().map_err(|error| format!("{error:#}"))) {
        Ok(script) => Start::Started(script.clone()),
        Err(reason) => Start::Skipped(Skipped {
            server: NAME.into(),
            reason: reason.clone(),
        }),
    }
}

fn found() -> Result<String> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let folder = cache.or_else(home).context("no HOME")?.join("dormer/axe");
    let script = folder.join(format!("{PACKAGE}.min.js"));
    if !script.exists() {
        std::fs::create_dir_all(&folder)?;
        let made = tempfile::tempdir_in(&folder)?;
        fetch(made.path())?;
        // The second one replaces the same content.
        std::fs::rename(made.path().join(SCRIPT), &script)?;
    }
    std::fs::read_to_string(&script).context("axe-core cannot be read")
}

fn fetch(folder: &Path) -> Result<()> {
    run(folder, "npm", &["pack", PACKAGE])?;
    let mut files = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let archive = files.find(|path| path.extension().is_some_and(|it| it == "tgz"));
    let archive = archive.context("npm packed nothing")?;
    run(folder, "tar", &["xzf", &archive.to_string_lossy(), SCRIPT])
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{program} does not start"))?;
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
