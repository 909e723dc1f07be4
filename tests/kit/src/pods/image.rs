//! Images as folders of this computer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// An image: a folder of this computer, and what its configuration says.
#[derive(Debug, Clone, Default)]
pub struct PodImage {
    /// The root of its files.
    pub root: PathBuf,
    /// The program, before a container's arguments.
    pub entrypoint: Vec<String>,
    /// Variables, `NAME=VALUE`.
    pub env: Vec<String>,
    /// User and group, by number.
    pub user: (u32, u32),
}

impl PodImage {
    /// Puts a program of this computer at a path in the image, with the libraries that it loads. A static one has none.
    ///
    /// # Errors
    /// A file cannot be had, or the folder cannot be written.
    pub fn program(&self, program: &Path, at: &str) -> Result<()> {
        self.file(program, at)?;
        let said = Command::new("ldd").arg(program).output()?;
        for line in String::from_utf8_lossy(&said.stdout).lines() {
            let path = line.rsplit(" => ").next().unwrap_or_default().trim();
            let path = path.split(" (").next().unwrap_or_default();
            ensure!(!line.contains("not found"), "{line}");
            if path.starts_with('/') {
                self.file(Path::new(path), path)?;
            }
        }
        Ok(())
    }

    /// Puts a file of this computer at a path in the image, by a link where that is possible.
    ///
    /// # Errors
    /// The file cannot be had, or the folder cannot be written.
    pub fn file(&self, file: &Path, at: &str) -> Result<()> {
        let to = self.root.join(at.trim_start_matches('/'));
        if to.exists() {
            return Ok(());
        }
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        let real = fs::canonicalize(file)?;
        fs::hard_link(&real, &to)
            .or_else(|_| fs::copy(&real, &to).map(drop))
            .with_context(|| format!("{} in the image", file.display()))
    }
}
