//! kubectl plugin: detection by the name of the program.

use std::{ffi::OsStr, path::Path};

/// Program name of the plugin, which `kubectl dormer …` calls.
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
