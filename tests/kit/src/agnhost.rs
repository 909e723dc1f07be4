//! agnhost, Kubernetes' own program for tests, built from its pinned module: what a canary pod runs.

use std::path::PathBuf;

use crate::pinned::{GoModule, Program, Release};
use crate::skip::Skipped;

const AGNHOST: Program = Program {
    name: "agnhost",
    version_arg: "--version",
    wheel: None,
};

const MODULE: GoModule = GoModule {
    folder: "agnhost-2.63.0",
    programs: &[("agnhost", "k8s.io/kubernetes/test/images/agnhost")],
    linker_flags: "",
};

const RELEASE: Release = Release {
    version: "2.63.0",
    module: Some(&MODULE),
    wheel_version: "",
    variable: "DORMER_AGNHOST",
    newer_will_do: true,
};

/// Where the program is, found or made.
///
/// # Errors
/// It cannot be had here.
pub fn program() -> Result<PathBuf, Skipped> {
    AGNHOST.find(&RELEASE)
}
