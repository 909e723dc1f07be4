//! Helm, built from its pinned module: it renders the chart, and installs it into a real control plane.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::pinned::{GoModule, Program, Release};
use crate::skip::{Skipped, Start};
use crate::test_dir;

const HELM: Program = Program {
    name: "helm",
    version_arg: "version",
    wheel: None,
};

const MODULE: GoModule = GoModule {
    folder: "helm-4.3.1",
    programs: &[("helm", "helm.sh/helm/v4/cmd/helm")],
    linker_flags: "-X helm.sh/helm/v4/internal/version.version=v4.3.1",
};

const RELEASE: Release = Release {
    version: "4.3.1",
    module: Some(&MODULE),
    wheel_version: "",
    variable: "DORMER_HELM",
    // What is rendered is compared with files, so the version is exact.
    newer_will_do: false,
};

/// Helm with folders of its own, so that a person's repositories and plugins change nothing.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    folder: TempDir,
}

impl Helm {
    /// Finds (or makes) the program.
    pub fn start() -> Start<Self> {
        match Self::program() {
            Ok(program) => Start::Started(Self {
                program,
                folder: test_dir("helm"),
            }),
            Err(skipped) => Start::Skipped(skipped),
        }
    }

    /// Where the program is, found or made.
    ///
    /// # Errors
    /// It cannot be had here.
    pub fn program() -> Result<PathBuf, Skipped> {
        HELM.find(&RELEASE)
    }

    /// What the chart renders to.
    ///
    /// # Errors
    /// What Helm says against the chart or the values.
    pub fn template(&self, chart: &Path, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command();
        command.arg("template").arg("dormer").arg(chart);
        said(command.args(arguments).output())
    }

    /// Runs a command against a cluster, and answers what it printed.
    ///
    /// # Errors
    /// What Helm says.
    pub fn run(&self, kubeconfig: &str, arguments: &[&str]) -> Result<String, String> {
        let file = self.folder.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig).map_err(|error| error.to_string())?;
        let mut command = self.command();
        command.arg("--kubeconfig").arg(&file);
        said(command.args(arguments).output())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (variable, folder) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
        ] {
            command.env(variable, self.folder.path().join(folder));
        }
        command.env_remove("KUBECONFIG");
        command.env_remove("HELM_NAMESPACE");
        command
    }
}

fn said(output: std::io::Result<Output>) -> Result<String, String> {
    let output = output.map_err(|error| format!("helm cannot be started: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
