//! The libraries of the operator framework, built from their pinned modules: they check a bundle and a catalog of the
//! Operator Lifecycle Manager.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::pinned::{GoModule, Program, Release};
use crate::skip::{Skipped, Start};
use crate::source;

const CHECKER: Program = Program {
    name: "operator-framework",
    version_arg: "version",
    wheel: None,
};

const MODULE: GoModule = GoModule {
    folder: "operator-framework-0.45.0",
    programs: &[("operator-framework", ".")],
    linker_flags: "",
};

const RELEASE: Release = Release {
    version: "0.45.0",
    module: Some(&MODULE),
    wheel_version: "",
    variable: "DORMER_OPERATOR_FRAMEWORK",
    newer_will_do: false,
};

/// The checker of `tests/servers/operator-framework-0.45.0`.
#[derive(Debug)]
pub struct OperatorFramework {
    program: PathBuf,
}

impl OperatorFramework {
    /// Finds (or makes) the program.
    pub fn start() -> Start<Self> {
        match Self::program() {
            Ok(program) => Start::Started(Self { program }),
            Err(skipped) => Start::Skipped(skipped),
        }
    }

    /// Where the program is, found or made.
    ///
    /// # Errors
    /// It cannot be had here.
    pub fn program() -> Result<PathBuf, Skipped> {
        CHECKER.find(&RELEASE)
    }

    /// What the libraries have against a `bundle` or a `catalog`: `error: …` and `warning: …`.
    ///
    /// # Panics
    /// The program does not run, or its status contradicts what it prints.
    #[must_use]
    pub fn findings(&self, what: &str, folder: &Path) -> Vec<String> {
        let mut checker = Command::new(&self.program);
        let output = checker.arg(what).arg(folder).output();
        let output = output.expect("the checker can be started");
        let said = String::from_utf8_lossy(&output.stdout);
        // An error of the libraries may have several lines.
        let mut found: Vec<String> = Vec::new();
        for line in said.lines() {
            let begins = line.starts_with("error: ") || line.starts_with("warning: ");
            match found.last_mut() {
                Some(last) if !begins => {
                    last.push('\n');
                    last.push_str(line);
                }
                _ => found.push(line.to_owned()),
            }
        }
        let refused = found.iter().any(|it| it.starts_with("error: "));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), !refused, "{said}{stderr}");
        found
    }
}

/// A definition of the Operator Lifecycle Manager by its plural, such as `subscriptions`, as the framework's module has it.
///
/// # Errors
/// The module cannot be had here.
pub fn olm_crd(plural: &str) -> Result<String, Skipped> {
    let read = || {
        let folder = source::module_files(MODULE.folder, "github.com/operator-framework/api")?;
        let file = format!("crds/operators.coreos.com_{plural}.yaml");
        std::fs::read_to_string(folder.join(&file)).with_context(|| format!("no {file}"))
    };
    read().map_err(|error| Skipped {
        server: CHECKER.name.to_owned(),
        reason: format!("{error:#}"),
    })
}
