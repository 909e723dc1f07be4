//! Placement of file content: a complete file is written beside the target, and then renamed over it.

use dormer_profile::answer::FailureCode;
use serde::Serialize;

use crate::{
    ops::{
        ATTRIBUTE_NORMAL, ATTRIBUTE_READ_ONLY, Bytes, ContentSource, DirectoryCreate,
        FileAttributes, FileDelete, FileInformation, FileProbe, FileRename, FileWriteNew, Host,
        Look, Rights, TreeRemove, WinError,
    },
    paths::parent,
    problem::{Doing as _, Problem, Result},
    rights::{Care, of_folder},
    session::Session,
};

/// Time to wait for a file that another process has open, such as a virus scanner or an ending process, in
/// milliseconds.
const IN_USE_MS: u64 = 30_000;
/// Pause between two attempts, in milliseconds.
const PAUSE_MS: u64 = 500;
/// Running programs that were renamed aside and still run.
const ASIDE_MAX: u32 = 9;

/// Whether an error passes by itself: another process has the file open (docs/field-notes.md, Files of Windows).
pub(crate) fn passes(error: &WinError) -> bool {
    error.is_any(&[5, 32, 33, 303, 1224])
}

/// Object at a path, if there is one.
pub(crate) async fn stat<H: Host>(host: &mut Session<H>, path: &str) -> Result<Option<Look>> {
    match host.ask(FileInformation { path: path.into() }).await {
        Ok(look) => Ok(Some(look)),
        Err(error) if error.is_any(&[2, 3]) => Ok(None),
        Err(error) => Err(Problem::windows(
            FailureCode::Other,
            &format!("look at {path}"),
            &error,
        )),
    }
}

/// Missing parent folders of a path, the highest first. A file or a link in their place is refused.
pub(crate) async fn missing_folders<H: Host>(
    host: &mut Session<H>,
    path: &str,
) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    let mut at = parent(path);
    while let Some(folder) = at {
        match stat(host, folder).await? {
            Some(look) if look.is_link() => {
                return Err(Problem::new(
                    FailureCode::AccessDenied,
                    format!("{folder} is a link"),
                ));
            }
            Some(look) if look.folder => break,
            Some(_) => {
                return Err(Problem::new(
                    FailureCode::Other,
                    format!("{folder} is a file"),
                ));
            }
            None => missing.push(folder.to_owned()),
        }
        at = parent(folder);
    }
    missing.reverse();
    Ok(missing)
}

/// Makes one folder with the rights that belong to it; one that is there stays as it is.
pub(crate) async fn make_folder<H: Host>(host: &mut Session<H>, path: &str) -> Result<()> {
    let rights = match of_folder(path) {
        Care::Given(rights) => rights,
        Care::Inherited | Care::NotOurs => Rights::Inherited,
    };
    match host
        .ask(DirectoryCreate {
            path: path.into(),
            rights,
        })
        .await
    {
        Ok(()) => Ok(()),
        Err(error) if error.number() == 183 => Ok(()),
        Err(error) => Err(Problem::windows(
            FailureCode::Other,
            &format!("make {path}"),
            &error,
        )),
    }
}

/// Places content in one step: a reader gets the old or the new content, never a part. The new file is written beside
/// the target, so that it has its final rights from the start: a rename keeps them (MicrosoftDocs/win32
/// FileIO/file-security-and-access-rights). Remains of an interrupted call are deleted first; the host lock guarantees
/// that no other call writes them.
pub(crate) async fn put<H: Host>(
    host: &mut Session<H>,
    path: &str,
    source: ContentSource,
    rights: Rights,
    wanted: Option<&str>,
) -> Result<()> {
    for folder in missing_folders(host, path).await? {
        make_folder(host, &folder).await?;
    }
    sweep_aside(host, path).await;
    let temporary = format!("{path}.dormer-new");
    let written = write(host, &temporary, source, rights).await;
    let right = match &written {
        Ok(sha256) => wanted.is_none_or(|wanted| wanted == sha256),
        Err(_) => false,
    };
    if !right {
        let _ = host.ask(FileDelete { path: temporary }).await;
        let sha256 = written?;
        let said = format!("the content for {path} has the SHA-256 {sha256}");
        return Err(Problem::new(FailureCode::HashMismatch, said));
    }
    let swapped = swap(host, &temporary, path).await;
    if swapped.is_err() {
        let _ = host.ask(FileDelete { path: temporary }).await;
    }
    swapped
}

/// Writes a new file, after deleting one that an interrupted call left. Returns its SHA-256.
async fn write<H: Host>(
    host: &mut Session<H>,
    path: &str,
    source: ContentSource,
    rights: Rights,
) -> Result<String> {
    let wait = host.wait(format!("write {path}"), IN_USE_MS).await?;
    loop {
        let new = FileWriteNew {
            path: path.into(),
            source: source.clone(),
            rights,
        };
        let error = match host.ask(new).await {
            Ok(digest) => return Ok(digest.sha256),
            Err(error) => error,
        };
        match error.number() {
            80 => {
                let _ = host.ask(FileDelete { path: path.into() }).await;
            }
            13 => {
                let said = format!("{path}: the upload is no whole gzip file");
                return Err(Problem::new(FailureCode::HashMismatch, said));
            }
            _ if !passes(&error) => {
                return Err(Problem::windows(
                    FailureCode::Other,
                    &format!("write {path}"),
                    &error,
                ));
            }
            _ => {}
        }
        if !host.again(&wait, PAUSE_MS).await? {
            return Err(Problem::windows(
                FailureCode::FileLocked,
                &format!("write {path}"),
                &error,
            ));
        }
    }
}

/// Renames `from` over `to`. Error 5 means that the target is open, runs, or is read-only, or that the right is missing
/// (MS-FSCC, FileRenameInformation). So the target is examined before the error counts as a missing right.
async fn swap<H: Host>(host: &mut Session<H>, from: &str, to: &str) -> Result<()> {
    let wait = host.wait(format!("replace {to}"), IN_USE_MS).await?;
    loop {
        let rename = FileRename {
            from: from.into(),
            to: to.into(),
            replace: true,
        };
        let error = match host.ask(rename).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if error.number() == 2 {
            let said = format!("{from} was written and is gone");
            return Err(Problem::new(FailureCode::QuarantineSuspected, said));
        }
        if !passes(&error) {
            return Err(Problem::windows(
                FailureCode::Other,
                &format!("rename to {to}"),
                &error,
            ));
        }
        if make_room(host, to).await? {
            continue;
        }
        if !host.again(&wait, PAUSE_MS).await? {
            return Err(in_use(host, to, &error).await);
        }
    }
}

/// Whether something was done about what keeps a file from being replaced: a read-only file becomes a plain one, a
/// program that runs is renamed aside.
async fn make_room<H: Host>(host: &mut Session<H>, path: &str) -> Result<bool> {
    let Some(there) = stat(host, path).await? else {
        return Ok(false);
    };
    if there.folder {
        return Err(Problem::new(
            FailureCode::Other,
            format!("{path} is a folder"),
        ));
    }
    if there.attributes & ATTRIBUTE_READ_ONLY != 0 {
        let plain = FileAttributes {
            path: path.into(),
            attributes: ATTRIBUTE_NORMAL,
        };
        return Ok(host.ask(plain).await.is_ok());
    }
    // Another process holds it without sharing: only waiting helps.
    if host.ask(FileProbe { path: path.into() }).await.is_err() {
        return Ok(false);
    }
    for n in 1..=ASIDE_MAX {
        let aside = aside(path, n);
        let rename = FileRename {
            from: path.into(),
            to: aside,
            replace: false,
        };
        match host.ask(rename).await {
            Ok(()) => return Ok(true),
            Err(error) if error.number() == 183 => {}
            Err(_) => return Ok(false),
        }
    }
    Ok(false)
}

fn aside(path: &str, n: u32) -> String {
    format!("{path}.dormer-old{n}")
}

/// Deletes programs that were renamed aside and have ended.
async fn sweep_aside<H: Host>(host: &mut Session<H>, path: &str) {
    for n in 1..=ASIDE_MAX {
        let gone = host
            .ask(FileDelete {
                path: aside(path, n),
            })
            .await;
        if gone.is_err_and(|error| error.is_any(&[2, 3])) {
            return;
        }
    }
}

async fn in_use<H: Host>(host: &mut Session<H>, path: &str, error: &WinError) -> Problem {
    let denied = host.ask(FileProbe { path: path.into() }).await;
    if error.number() == 5 && denied.is_err_and(|error| error.number() == 5) {
        return Problem::windows(FailureCode::AccessDenied, &format!("replace {path}"), error);
    }
    let said = format!("{path} is in use by another process ({error})");
    Problem::new(FailureCode::FileLocked, said)
}

/// Deletes a file, with patience; false if there was none.
pub(crate) async fn delete<H: Host>(host: &mut Session<H>, path: &str) -> Result<bool> {
    sweep_aside(host, path).await;
    let wait = host.wait(format!("delete {path}"), IN_USE_MS).await?;
    loop {
        let error = match host.ask(FileDelete { path: path.into() }).await {
            Ok(()) => return Ok(true),
            Err(error) if error.is_any(&[2, 3]) => return Ok(false),
            Err(error) => error,
        };
        if !passes(&error) {
            return Err(Problem::windows(
                FailureCode::Other,
                &format!("delete {path}"),
                &error,
            ));
        }
        match stat(host, path).await? {
            None => return Ok(true),
            Some(there) if there.attributes & ATTRIBUTE_READ_ONLY != 0 => {
                let plain = FileAttributes {
                    path: path.into(),
                    attributes: ATTRIBUTE_NORMAL,
                };
                let _ = host.ask(plain).await;
            }
            Some(_) => {}
        }
        if !host.again(&wait, PAUSE_MS).await? {
            return Err(in_use(host, path, &error).await);
        }
    }
}

/// Removes a folder with all in it, with patience; false if there was none.
pub(crate) async fn remove_tree<H: Host>(host: &mut Session<H>, path: &str) -> Result<bool> {
    let wait = host.wait(format!("remove {path}"), IN_USE_MS).await?;
    loop {
        let error = match host.ask(TreeRemove { path: path.into() }).await {
            Ok(()) => return Ok(true),
            Err(error) if error.is_any(&[2, 3]) => return Ok(false),
            Err(error) => error,
        };
        if !passes(&error) && error.number() != 145 {
            return Err(Problem::windows(
                FailureCode::Other,
                &format!("remove {path}"),
                &error,
            ));
        }
        if !host.again(&wait, 1_000).await? {
            let said = format!("{path}: something in it is in use ({error})");
            return Err(Problem::new(FailureCode::FileLocked, said));
        }
    }
}

/// Renames a folder aside that is not ours to repair.
pub(crate) async fn put_aside<H: Host>(host: &mut Session<H>, path: &str) -> Result<String> {
    for n in 1..=ASIDE_MAX {
        let to = format!("{path}.dormer-aside{n}");
        let rename = FileRename {
            from: path.into(),
            to: to.clone(),
            replace: false,
        };
        match host.ask(rename).await {
            Ok(()) => return Ok(to),
            Err(error) if error.number() == 183 => {}
            Err(error) if passes(&error) => {
                let said =
                    format!("{path} has to be put aside, and something in it is in use ({error})");
                return Err(Problem::new(FailureCode::FileLocked, said));
            }
            Err(error) => {
                return Err(error).doing(FailureCode::Other, || format!("put {path} aside"));
            }
        }
    }
    let said = format!("{path} was put aside {ASIDE_MAX} times already");
    Err(Problem::new(FailureCode::Other, said))
}

impl<H: Host> Session<H> {
    /// Writes a file of ours, whole or not at all.
    pub(crate) async fn write_json(&mut self, path: &str, value: &impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec(value)
            .map_err(|error| Problem::new(FailureCode::Other, format!("{path}: {error}")))?;
        let source = ContentSource::Inline {
            bytes: Bytes(bytes),
        };
        put(self, path, source, Rights::Private, None).await
    }
}
