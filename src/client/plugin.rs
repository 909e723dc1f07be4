//! dormer as a plugin of kubectl: under which name it was called.

use std::{ffi::OsStr, path::Path};

/// The name under which kubectl finds a plugin; `kubectl dormer …` calls it.
pub const PLUGIN: &str = "kubectl-dormer";

/// Whether this process was called as kubectl's plugin.
pub fn is_plugin() -> bool {
    std::env::args_os()
        .next()
        .is_some_and(|called| names_plugin(&called))
}

/// Whether a program of this name is kubectl's plugin.
pub fn names_plugin(called: &OsStr) -> bool {
    Path::new(called)
        .file_stem()
        .is_some_and(|stem| stem == PLUGIN)
}
