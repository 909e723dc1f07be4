//! containerd's images, through its pipe. A pipe is opened as a file; every word on it waits for the other side, and the
//! operation's limit ends the process where that lasts too long.

use std::fs::File;

use dormer_host::{
    containerd,
    ops::{ImageArchiveRead, ImageImport, ImageRead, WinError},
};

use super::error;

fn pipe(name: &str) -> Result<File, WinError> {
    let mut how = File::options();
    how.read(true).write(true);
    how.open(name).map_err(|error| error::io(&error))
}

fn archive(path: &str) -> Result<File, WinError> {
    File::open(path).map_err(|error| error::io(&error))
}

/// See [`ImageRead`].
pub(super) fn read(ask: &ImageRead) -> Result<Option<String>, WinError> {
    containerd::find(pipe(&ask.pipe)?, &ask.name)
}

/// See [`ImageArchiveRead`].
pub(super) fn describe(ask: &ImageArchiveRead) -> Result<String, WinError> {
    containerd::describe(archive(&ask.path)?, &ask.name)
}

/// See [`ImageImport`].
pub(super) fn import(ask: &ImageImport) -> Result<(), WinError> {
    containerd::import(pipe(&ask.pipe)?, archive(&ask.path)?, &ask.name)
}
