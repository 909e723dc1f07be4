//! Files, folders and the host lock, as the program asks for them.

use std::sync::Arc;
use std::time::Duration;

use dormer_host::ops::{
    ATTRIBUTE_NORMAL, ATTRIBUTE_READ_ONLY, Answer, Bytes, Content, ContentSource, Digest,
    DirectoryEntry, FileRead, Look, Operation, Outcome, Rights, Space,
};
use tokio::time::Instant;

use super::{Answered, ProgramProcess, refused};
use crate::faults::Fault;
use crate::host::body::{Body, unpack};
use crate::host::computer::Host;
use crate::host::disk::{Disk, DiskError, Stat};
use crate::host::path::WinPath;

/// How fast a host hashes.
const HASH_BYTES_PER_S: f64 = 400_000_000.0;
/// How long a file is held against a program's replacement ([`Fault::ExeLocked`]).
const LOCKED: Duration = Duration::from_secs(45);

pub(super) async fn answer(process: &mut ProgramProcess, operation: Operation) -> Answered {
    use Operation as O;
    let host = Arc::clone(&process.host);
    Ok(match operation {
        O::FileInformation(ask) => stat(&host, &ask.path).map(Answer::FileInformation),
        O::FileSecurity(ask) => on(&host, &ask.path, |disk, path| {
            object_at(disk, path)?;
            Ok(Answer::FileSecurity(disk.security(path)))
        }),
        O::FileRights(ask) if ask.rights == Rights::Inherited => refused(87),
        O::FileRights(ask) => on(&host, &ask.path, |disk, path| {
            object_at(disk, path)?;
            disk.give(path, ask.rights);
            Ok(Answer::FileRights(()))
        }),
        O::FileDigest(ask) => digest(&host, &ask.path).await,
        O::FileRead(ask) => on(&host, &ask.path, |disk, path| {
            content(disk, path, &ask).map(Answer::FileRead)
        }),
        O::FileWriteNew(ask) => write_new(&host, &ask.path, ask.source, ask.rights).await,
        O::FileRename(ask) => rename(&host, &ask.from, &ask.to, ask.replace),
        O::FileDelete(ask) => on(&host, &ask.path, |disk, path| {
            object_at(disk, path)?;
            // 5: a program that runs, or a read-only file; 32: another process has it open.
            match disk.remove(path) {
                Ok(()) => Ok(Answer::FileDelete(())),
                Err(error) => refused(number_of(error)),
            }
        }),
        O::FileProbe(ask) => {
            if is_locked(&host, &ask.path) {
                return Ok(refused(32));
            }
            on(&host, &ask.path, |disk, path| {
                object_at(disk, path)?;
                if disk.is_open(path) {
                    return refused(32);
                }
                Ok(Answer::FileProbe(()))
            })
        }
        O::FileAttributes(ask) => on(&host, &ask.path, |disk, path| {
            object_at(disk, path)?;
            disk.set_read_only(path, ask.attributes & ATTRIBUTE_READ_ONLY != 0);
            Ok(Answer::FileAttributes(()))
        }),
        // No program of this host has a version in its resources: 1812 (sdk-api, GetFileVersionInfoW).
        O::FileVersion(ask) => stat(&host, &ask.path).and_then(|_| refused(1812)),
        O::DirectoryCreate(ask) => on(&host, &ask.path, |disk, path| {
            match disk.make_folder(path) {
                Ok(()) => {}
                Err(DiskError::Exists) => return refused(183),
                Err(_) => return refused(3),
            }
            disk.give(path, ask.rights);
            Ok(Answer::DirectoryCreate(()))
        }),
        O::DirectoryList(ask) => on(&host, &ask.path, list),
        O::DirectoryRemove(ask) => on(&host, &ask.path, |disk, path| {
            if !object_at(disk, path)?.folder {
                return refused(267);
            }
            disk.remove_folder(path).map_err(number)?;
            Ok(Answer::DirectoryRemove(()))
        }),
        O::TreeRemove(ask) => on(&host, &ask.path, |disk, path| {
            disk.remove_tree(path).map_err(number)?;
            Ok(Answer::TreeRemove(()))
        }),
        O::VolumeSpace(_) => {
            let state = host.state();
            Ok(Answer::VolumeSpace(Space {
                free: state.disk.free(),
                total: state.disk.capacity(),
            }))
        }
        O::LockTake(ask) => take_lock(process, &ask.path).await,
        O::LockRelease(_) => {
            let mut state = host.state();
            if state.mutex == Some(process.pid) {
                state.mutex = None;
            }
            Ok(Answer::LockRelease(()))
        }
        other => return Err(Box::new(other)),
    })
}

/// The lock is one for all calls: a host does one thing at a time.
async fn take_lock(process: &mut ProgramProcess, path: &str) -> Outcome {
    {
        let mut state = process.host.state();
        match state.mutex {
            Some(holder) if holder != process.pid => return refused(32),
            _ => state.mutex = Some(process.pid),
        }
    }
    if process.applies() && process.host.strike(Fault::ConfigureFails) {
        return refused(5);
    }
    if std::mem::take(&mut process.long) {
        process.host.sleep(Host::goes_on()).await;
    }
    on(&process.host, path, |disk, path| {
        if disk.exists(path) {
            return Ok(());
        }
        disk.write(path, Body::of(b""), false).map_err(number)
    })?;
    Ok(Answer::LockTake(()))
}

fn on<T>(
    host: &Host,
    path: &str,
    work: impl FnOnce(&mut Disk, &WinPath) -> Result<T, dormer_host::ops::WinError>,
) -> Result<T, dormer_host::ops::WinError> {
    // 123, ERROR_INVALID_NAME.
    let Ok(path) = WinPath::absolute(path) else {
        return refused(123);
    };
    let mut state = host.state();
    state.refresh_running(Instant::now());
    work(&mut state.disk, &path)
}

fn content(
    disk: &Disk,
    path: &WinPath,
    ask: &FileRead,
) -> Result<Content, dormer_host::ops::WinError> {
    object_at(disk, path)?;
    let body = disk.read(path).map_err(number)?;
    let most = usize::try_from(ask.most)
        .unwrap_or(usize::MAX)
        .min(body.head.len());
    let part = if ask.end {
        body.head.slice(body.head.len() - most..)
    } else {
        body.head.slice(..most)
    };
    Ok(Content {
        bytes: Bytes(part.to_vec()),
        size: body.size,
    })
}

fn list(disk: &mut Disk, path: &WinPath) -> Outcome {
    match disk.stat(path) {
        Ok(stat) if stat.directory => {}
        Ok(_) => return refused(267),
        // The pattern's folder is missing (sdk-api, FindFirstFileExW).
        Err(_) => return refused(3),
    }
    let entry = |(name, stat)| DirectoryEntry {
        name,
        stat: stat_of(stat),
    };
    let all = disk.list(path).into_iter();
    Ok(Answer::DirectoryList(all.map(entry).collect()))
}

fn stat(host: &Host, path: &str) -> Result<Look, dormer_host::ops::WinError> {
    on(host, path, |disk, path| object_at(disk, path))
}

/// The object at a path. 2: it is not there; 3: its folder is not there (win32, system error codes).
fn object_at(disk: &Disk, path: &WinPath) -> Result<Look, dormer_host::ops::WinError> {
    let above = path.parent().is_none_or(|above| disk.exists(&above));
    match disk.stat(path) {
        Err(DiskError::NotFound) if !above => refused(3),
        found => found.map(stat_of).map_err(number),
    }
}

fn stat_of(stat: Stat) -> Look {
    Look {
        folder: stat.directory,
        size: stat.size,
        attributes: match (stat.directory, stat.read_only) {
            (true, _) => 0x10,
            (false, true) => ATTRIBUTE_READ_ONLY,
            (false, false) => ATTRIBUTE_NORMAL,
        },
        tag: 0,
        modified_ms: i64::from(stat.modified_s) * 1_000,
    }
}

fn number_of(error: DiskError) -> u32 {
    match error {
        DiskError::NotFound => 2,
        DiskError::AccessDenied => 5,
        DiskError::Sharing => 32,
        DiskError::Exists => 80,
        DiskError::NotEmpty => 145,
        DiskError::Full => 112,
        DiskError::BadHandle => 6,
        DiskError::TooMany => 4,
    }
}

fn number(error: DiskError) -> dormer_host::ops::WinError {
    dormer_host::ops::WinError::new(number_of(error))
}

async fn digest(host: &Host, path: &str) -> Outcome {
    let body = on(host, path, |disk, path| disk.read(path).map_err(number))?;
    host.hashing(body.modelled).await;
    Ok(Answer::FileDigest(Digest {
        sha256: body.sha256.clone(),
        size: body.size,
    }))
}

async fn write_new(host: &Host, path: &str, source: ContentSource, rights: Rights) -> Outcome {
    let body = match source {
        ContentSource::Inline { bytes } => Body::of(&bytes.0),
        ContentSource::Staged { path, gzip } => {
            let body = on(host, &path, |disk, path| disk.read(path).map_err(number))?;
            match (&body.unpacked, gzip) {
                (_, false) => body,
                (Some((sha256, _)), true) => unpack(&body, sha256),
                // ERROR_INVALID_DATA: no whole gzip stream.
                (None, true) => return refused(13),
            }
        }
    };
    if on(host, path, |disk, path| Ok(disk.exists(path)))? {
        return refused(80);
    }
    host.hashing(body.modelled).await;
    // What a power loss leaves is no whole file.
    let half = Body::of(&body.head[..body.head.len() / 2]);
    let write = |body: Arc<Body>| {
        on(host, path, |disk, path| {
            disk.write(path, body, rights == Rights::Private)
                .map_err(|error| match error {
                    DiskError::NotFound => dormer_host::ops::WinError::new(3),
                    error => number(error),
                })?;
            disk.give(path, rights);
            Ok(())
        })
    };
    if body.size > 0 {
        write(half)?;
        host.midway("half written").await;
    }
    write(Arc::clone(&body))?;
    Ok(Answer::FileWriteNew(Digest {
        sha256: body.sha256.clone(),
        size: body.size,
    }))
}

/// MS-FSCC, FileRenameInformation: 5 is both "the target has open handles" and "it runs"; 32 is the source's.
fn rename(host: &Host, from: &str, to: &str, replace: bool) -> Outcome {
    let is_program = to.to_lowercase().ends_with(".exe");
    if is_program && replace && host.strike(Fault::ExeLocked) {
        let until = Instant::now() + host.context.pace.real(LOCKED);
        host.state().locked.insert(to.to_lowercase(), until);
    }
    if is_locked(host, to) {
        return refused(5);
    }
    let target = WinPath::absolute(to).map_err(|_| dormer_host::ops::WinError::new(123))?;
    on(host, from, |disk, from| {
        disk.stat(from).map_err(number)?;
        if target.parent().is_some_and(|above| !disk.exists(&above)) {
            return refused(3);
        }
        if disk.exists(&target) && *from != target && !replace {
            return refused(183);
        }
        match disk.replace(from, &target) {
            Ok(()) => Ok(()),
            Err(DiskError::Sharing) if disk.is_open(from) => refused(32),
            Err(DiskError::Sharing) => refused(5),
            Err(error) => refused(number_of(error)),
        }
    })?;
    host.maybe_quarantine(&target);
    Ok(Answer::FileRename(()))
}

fn is_locked(host: &Host, path: &str) -> bool {
    let mut state = host.state();
    let now = Instant::now();
    state.locked.retain(|_, until| *until > now);
    state.locked.contains_key(&path.to_lowercase())
}

impl Host {
    /// [`Fault::ScannerDeletes`]: Defender takes the file away 3 s later.
    fn maybe_quarantine(&self, path: &WinPath) {
        let Some(host) = self.me.upgrade() else {
            return;
        };
        if path.name().ends_with(".exe") && self.strike(Fault::ScannerDeletes) {
            let path = path.clone();
            self.spawn_powered(async move {
                host.sleep(Duration::from_secs(3)).await;
                let mut state = host.state();
                state.refresh_running(Instant::now());
                let _ = state.disk.remove(&path);
            });
        }
    }

    /// Takes the time that hashing so many bytes takes.
    async fn hashing(&self, bytes: u64) {
        let time = Duration::from_secs_f64(bytes as f64 / HASH_BYTES_PER_S);
        if time > Duration::from_millis(2) {
            self.sleep(time).await;
        }
    }
}
