//! Uploads: under a temporary name, several writes in flight, then renamed.

use super::{Io, SshError, guard::SharedState, peek::PeekStream};
use dormer_profile::hex;
use futures::{StreamExt, stream::FuturesUnordered};
use russh_sftp::{
    client::{RawSftpSession, error::Error},
    protocol::{FileAttributes, OpenFlags, Status, StatusCode},
};
use sha2::{Digest, Sha256};
use std::{future::Future, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::Semaphore,
    time::timeout,
};

/// Bytes of one write: below the 256 KiB packets that every OpenSSH takes.
const PIECE: usize = 128 << 10;
/// Writes in flight, of all files together: 4 MiB. sshd accepts 2 MiB in flight, and the rest is ready when it wants
/// more. At 70 kB/s the last write is still answered within [`ANSWER_MAX_S`].
const IN_FLIGHT: usize = 32;
/// Files in transfer at once: enough that some can wait for answers (open, close, rename) while others send.
pub const FILES_AT_ONCE: usize = 6;
/// Longest wait for SFTP's first answer.
const INIT_MAX: Duration = Duration::from_secs(20);
/// Longest wait for any later answer, in seconds.
const ANSWER_MAX_S: u64 = 60;

/// An upload of a file to a host.
#[derive(Debug, Clone, Copy)]
pub struct Upload<'a> {
    /// Path of the file on the host.
    pub path: &'a str,
    /// Its name until it is whole: one that no other attempt uses.
    pub part: &'a str,
    /// Its size in bytes.
    pub size: u64,
    /// SHA-256 of its content, 64 lower-case hex digits.
    pub sha256: &'a str,
}

/// One SFTP session.
pub struct Sftp {
    raw: RawSftpSession,
    address: String,
    shared: SharedState,
    room: Semaphore,
}

impl Sftp {
    pub(super) async fn open(
        stream: impl Io,
        address: &str,
        shared: SharedState,
    ) -> Result<Self, SshError> {
        let (stream, first_bytes) = PeekStream::new(stream);
        let raw = RawSftpSession::new(stream);
        raw.set_timeout(ANSWER_MAX_S);
        let why = match timeout(INIT_MAX, raw.init()).await {
            Ok(Ok(_)) => {
                let address = address.to_owned();
                let room = Semaphore::new(IN_FLIGHT);
                return Ok(Self {
                    raw,
                    address,
                    shared,
                    room,
                });
            }
            Ok(Err(_)) if first_bytes.nothing() => "it ends without a word".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it says nothing".to_owned(),
        };
        Err(match first_bytes.text() {
            Some(text) if text.is_empty() => SshError::Sftp(
                address.to_owned(),
                "it begins with bytes that mean nothing".into(),
            ),
            Some(text) => SshError::SftpNoise(address.to_owned(), text),
            None => SshError::Sftp(address.to_owned(), why),
        })
    }

    /// Size of a file; `None` when it is not there.
    ///
    /// # Errors
    /// The session broke.
    pub async fn size(&self, path: &str) -> Result<Option<u64>, SshError> {
        self.shared.whole(self.size_of(path)).await
    }

    /// First `max` bytes of a file; `None` when it is not there.
    ///
    /// # Errors
    /// It cannot be read, or the session broke.
    pub async fn read_file(&self, path: &str, max: usize) -> Result<Option<Vec<u8>>, SshError> {
        let reading = async {
            let opened = self
                .raw
                .open(path, OpenFlags::READ, FileAttributes::empty());
            let handle = match opened.await {
                Ok(opened) => opened.handle,
                Err(Error::Status(status)) if status.status_code == StatusCode::NoSuchFile => {
                    return Ok(None);
                }
                Err(error) => return Err(self.file(path, &error)),
            };
            let read = self.read_all(&handle, path, max).await;
            let _ = self.raw.close(handle).await;
            read.map(Some)
        };
        self.shared.whole(reading).await
    }

    async fn read_all(&self, handle: &str, path: &str, max: usize) -> Result<Vec<u8>, SshError> {
        let mut content = Vec::new();
        while content.len() < max {
            let piece = u32::try_from(PIECE.min(max - content.len())).unwrap_or(u32::MAX);
            match self.raw.read(handle, content.len() as u64, piece).await {
                Ok(read) if read.data.is_empty() => break,
                Ok(read) => content.extend(read.data),
                Err(Error::Status(status)) if status.status_code == StatusCode::Eof => break,
                Err(error) => return Err(self.file(path, &error)),
            }
        }
        Ok(content)
    }

    /// Writes `bytes` at `at` into a file that is there: its other bytes and its rights stay. While it is open, Windows
    /// lets no other process read the file, so it is closed at once.
    ///
    /// # Errors
    /// It is not there, cannot be written, or the session broke.
    pub async fn write_at(&self, path: &str, at: u64, bytes: &[u8]) -> Result<(), SshError> {
        let writing = async |handle: String| {
            let written = self.raw.write(handle, at, bytes.to_vec()).await;
            written.map_err(|error| self.unwritten(path, &error))
        };
        self.changing(path, writing).await
    }

    /// Cuts a file to `size` bytes.
    ///
    /// # Errors
    /// It is not there, cannot be written, or the session broke.
    pub async fn truncate(&self, path: &str, size: u64) -> Result<(), SshError> {
        let cutting = async |handle: String| {
            let attributes = FileAttributes {
                size: Some(size),
                ..FileAttributes::empty()
            };
            let cut = self.raw.fsetstat(handle, attributes).await;
            cut.map_err(|error| self.file(path, &error))
        };
        self.changing(path, cutting).await
    }

    /// Opens a file that is there for one change, and closes it. The change is on the disk when it is closed, where
    /// sshd can say so.
    async fn changing(
        &self,
        path: &str,
        change: impl AsyncFnOnce(String) -> Result<Status, SshError>,
    ) -> Result<(), SshError> {
        let changing = async {
            let opened = self
                .raw
                .open(path, OpenFlags::WRITE, FileAttributes::empty());
            let opened = opened.await.map_err(|error| self.file(path, &error))?;
            let changed = change(opened.handle.clone()).await;
            // An extension that every OpenSSH for Windows has. A server without it is no failure.
            let _ = self.raw.fsync(opened.handle.clone()).await;
            let closed = self.raw.close(opened.handle).await;
            changed?;
            closed
                .map(drop)
                .map_err(|error| self.unwritten(path, &error))
        };
        self.shared.whole(changing).await
    }

    /// Removes a file.
    ///
    /// # Errors
    /// It is not there, or stays; or the session broke.
    pub async fn remove(&self, path: &str) -> Result<(), SshError> {
        let removed = self
            .shared
            .whole(async { Ok(self.raw.remove(path).await) })
            .await?;
        removed.map(drop).map_err(|error| self.file(path, &error))
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// It is not there, or not empty; or the session broke.
    pub async fn remove_folder(&self, path: &str) -> Result<(), SshError> {
        let removed = self
            .shared
            .whole(async { Ok(self.raw.rmdir(path).await) })
            .await?;
        removed.map(drop).map_err(|error| self.file(path, &error))
    }

    /// Creates a folder. An existing one is no error: sshd reports it like any other failure, and a later write into
    /// the folder shows the difference.
    ///
    /// # Errors
    ///
    /// The session broke.
    pub async fn make_folder(&self, path: &str) -> Result<(), SshError> {
        let made = async {
            match self.raw.mkdir(path, FileAttributes::empty()).await {
                Ok(_) | Err(Error::Status(_)) => Ok(()),
                Err(error) => Err(self.broken(&error)),
            }
        };
        self.shared.whole(made).await
    }

    async fn size_of(&self, path: &str) -> Result<Option<u64>, SshError> {
        match self.raw.stat(path).await {
            Ok(attrs) => Ok(Some(attrs.attrs.size.unwrap_or(0))),
            // A file that may not be looked at can be there.
            Err(Error::Status(status)) if status.status_code == StatusCode::PermissionDenied => {
                Err(self.file(path, &Error::Status(status)))
            }
            Err(Error::Status(_)) => Ok(None),
            Err(error) => Err(self.broken(&error)),
        }
    }

    /// Writes `from` to `what.path`, through `what.part`. The file is then complete and correct, or absent.
    ///
    /// # Errors
    ///
    /// `from` differs from the announced size or sum, the file cannot be written, or the session broke. The part may
    /// then remain, and the host program deletes it.
    pub async fn upload(
        &self,
        what: Upload<'_>,
        from: impl AsyncRead + Unpin,
        moved: impl Fn(u64),
    ) -> Result<(), SshError> {
        self.shared.whole(self.put(what, from, moved)).await
    }

    async fn put(
        &self,
        what: Upload<'_>,
        mut from: impl AsyncRead + Unpin,
        moved: impl Fn(u64),
    ) -> Result<(), SshError> {
        let Upload {
            path, part, size, ..
        } = what;
        let flags = OpenFlags::CREATE | OpenFlags::WRITE | OpenFlags::TRUNCATE;
        let opened = self.raw.open(part, flags, FileAttributes::empty()).await;
        let handle = opened.map_err(|error| self.file(part, &error))?.handle;
        let written = self.write_all(&handle, what, &mut from, &moved).await;
        if let Err(error) = &written
            && error.breaks()
        {
            // The session is gone, so nothing can be closed or removed.
            return written;
        }
        let closed = self.raw.close(handle).await;
        if let Err(error) = written {
            // Best effort: a sweep finds what stays.
            let _ = self.raw.remove(part).await;
            return Err(error);
        }
        closed.map_err(|error| self.unwritten(part, &error))?;
        self.promote(part, path, size).await
    }

    async fn write_all(
        &self,
        handle: &str,
        Upload {
            part, size, sha256, ..
        }: Upload<'_>,
        from: &mut (impl AsyncRead + Unpin),
        moved: &impl Fn(u64),
    ) -> Result<(), SshError> {
        let mut writes = FuturesUnordered::new();
        let mut at = 0;
        let mut sum = Sha256::new();
        let wrong = |why: &str| SshError::Source(sha256.to_owned(), why.to_owned());
        while at < size {
            let room = tokio::select! {
                room = self.room.acquire() => room,
                // Ours may be what fills it.
                Some(done) = writes.next() => {
                    moved(done?);
                    continue;
                }
            };
            let mut piece = vec![0; PIECE.min(usize::try_from(size - at).unwrap_or(PIECE))];
            let read = from.read_exact(&mut piece).await;
            read.map_err(|error| wrong(&error.to_string()))?;
            sum.update(&piece);
            let offset = at;
            let length = piece.len() as u64;
            at += length;
            writes.push(async move {
                let _room = room;
                let written = self.raw.write(handle.to_owned(), offset, piece).await;
                written
                    .map(|_| length)
                    .map_err(|error| self.unwritten(part, &error))
            });
        }
        while let Some(done) = writes.next().await {
            moved(done?);
        }
        let found = hex(&sum.finalize());
        if found == sha256 {
            Ok(())
        } else {
            Err(wrong(&format!("SHA-256 {found}")))
        }
    }

    /// A rename never replaces a file on Windows: one that is there already was put by another attempt.
    async fn promote(&self, part: &str, path: &str, size: u64) -> Result<(), SshError> {
        let renamed = self.raw.rename(part, path).await;
        let Err(error) = renamed else { return Ok(()) };
        if self.size_of(path).await? == Some(size) {
            let _ = self.raw.remove(part).await;
            return Ok(());
        }
        let _ = self.raw.remove(path).await;
        self.raw
            .rename(part, path)
            .await
            .map(drop)
            .map_err(|_| self.file(path, &error))
    }

    fn broken(&self, error: &Error) -> SshError {
        match error {
            Error::Timeout => SshError::Silent(self.address.clone(), "SFTP".into()),
            // The words of a library for an end of the stream.
            Error::UnexpectedBehavior(_) => {
                SshError::Broken(self.address.clone(), "SFTP has ended".to_owned())
            }
            error => SshError::Broken(self.address.clone(), error.to_string()),
        }
    }

    fn file(&self, path: &str, error: &Error) -> SshError {
        match error {
            Error::Status(status) if status.status_code != StatusCode::ConnectionLost => {
                let address = self.address.clone();
                let path = path.to_owned();
                SshError::File {
                    address,
                    path,
                    why: error.to_string(),
                }
            }
            error => self.broken(error),
        }
    }

    /// A write into (or the close of) a new file that only dormer has open. OpenSSH for Windows answers just `Failure`
    /// when the disk is full, and other texts for other errors (docs/field-notes.md, SFTP on Windows).
    fn unwritten(&self, path: &str, error: &Error) -> SshError {
        match error {
            Error::Status(status) if status.status_code == StatusCode::Failure => {
                SshError::Full(self.address.clone(), path.to_owned())
            }
            error => self.file(path, error),
        }
    }
}

/// Runs futures concurrently, at most `limit`. After an error no other starts, and the running ones complete: a dropped
/// one would leave an open file on the host, which cannot be removed.
///
/// # Errors
///
/// The first one.
pub async fn at_once<E, F: Future<Output = Result<(), E>>>(
    limit: usize,
    works: impl IntoIterator<Item = F>,
) -> Result<(), E> {
    let mut waiting = works.into_iter();
    let mut running: FuturesUnordered<F> = waiting.by_ref().take(limit).collect();
    let mut outcome = Ok(());
    while let Some(done) = running.next().await {
        outcome = outcome.and(done);
        if outcome.is_ok()
            && let Some(next) = waiting.next()
        {
            running.push(next);
        }
    }
    outcome
}
