//! kubectl plugin: detection by the name of the program.

use std::{ffi::OsStr, path::Path};

/// Program name of the plugin, which `kubectl dormer …` calls.
pub const PLUGIN: &str = "kubectl-dormer";
/// Program name that kubectl calls for completions of the plugin.
const COMPLETIONS: &str = "kubectl_complete-dormer";

/// Whether this process was called as kubectl's plugin.
pub fn is_plugin() -> bool {
    std::env::args_os()
        .next()
        .is_some_and(|called| names_plugin(&called))
}

/// Whether a program of this name is kubectl's plugin, or completes for it.
pub fn names_plugin(called: &OsStr) -> bool {
    let stem = Path::new(called).file_stem();
    stem.is_some_and(|stem| stem == PLUGIN) || names_completions(called)
}

/// Whether kubectl calls a program of this name for completions of the plugin.
pub fn names_completions(called: &OsStr) -> bool {
    let stem = Path::new(called).file_stem();
    stem.is_some_and(|stem| stem == COMPLETIONS)
}
