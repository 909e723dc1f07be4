//! The SFTP subsystem of a host: packets in, answers out, at the speed of the host's line (docs/field-notes.md, SFTP on
//! Windows).

mod answers;
mod extended;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use russh_sftp::protocol::{OpenFlags, Packet, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

use super::body::modelled_sizes;
use super::computer::{Host, lock};
use super::disk::{Access, DiskError, HandleId};
use super::link::Link;
use super::path::{PathError, WinPath};
use crate::faults::Fault;
use answers::{attributes, listing, name, ok, status};

/// Longest packet; a longer one ends the server (docs/field-notes.md, SFTP on Windows).
pub(super) const PACKET_BYTES_MAX: usize = 256 * 1024;
/// Bytes per second that one host takes.
const LINE_BYTES_PER_S: f64 = 20_000_000.0;
/// The same under [`Fault::SlowUpload`].
const SLOW_BYTES_PER_S: f64 = 200_000.0;
/// What happens at this share of an upload under [`Fault::UploadCut`].
const CUT_AT: f64 = 0.7;
/// What happens at this share of an upload under [`Fault::DiskFull`].
const FULL_AT: f64 = 0.95;
/// Uploads shorter than this are no target for faults.
const TARGET_BYTES_MIN: u64 = 4_096;

/// Serves one SFTP session until its stream ends.
pub(super) async fn run<S>(host: Arc<Host>, mut stream: S, link: Link)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if host.image.shell.is_powershell() {
        lock(&host.counts).powershell_starts += 1;
    }
    host.sleep(host.image.shell.start_up(host.draw())).await;
    let noise = host.image.profile_noise && !host.state().profile_quiet;
    if noise
        && stream
            .write_all(b"Loading personal profile...\r\n")
            .await
            .is_err()
    {
        return;
    }
    let slow = host.strike(Fault::SlowUpload);
    let mut server = Server {
        host,
        link,
        handles: HashMap::new(),
        next: 0,
        slow,
    };
    while let Some(packet) = read_packet(&mut stream).await {
        let answer = server.answer(packet).await;
        let Ok(bytes) = Bytes::try_from(answer) else {
            break;
        };
        if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
            break;
        }
    }
    server.close_all();
}

async fn read_packet<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Packet> {
    let length = usize::try_from(stream.read_u32().await.ok()?).ok()?;
    if length == 0 || length > PACKET_BYTES_MAX {
        return None;
    }
    let mut buffer = vec![0; length];
    stream.read_exact(&mut buffer).await.ok()?;
    Packet::try_from(&mut Bytes::from(buffer)).ok()
}

/// An open handle of this session.
enum Held {
    File(Upload),
    Folder(Vec<(String, super::disk::Stat)>),
}

/// An open file, and what is known of an upload into it.
struct Upload {
    id: HandleId,
    /// Time counts for so many bytes per byte that arrives; above 1 for a modelled body.
    stretch: f64,
    /// Length that is expected in the end, if the content says so.
    expected: Option<u64>,
    written: bool,
    /// Which upload of the host's life it is, from 1.
    nth: u32,
}

struct Server {
    host: Arc<Host>,
    link: Link,
    handles: HashMap<String, Held>,
    next: u64,
    slow: bool,
}

impl Server {
    async fn answer(&mut self, packet: Packet) -> Packet {
        let id = packet.get_request_id();
        let answered = match packet {
            Packet::Init(_) => Ok(answers::version(self.host.image.release)),
            Packet::Open(p) => self.open(id, &p.filename, p.pflags),
            Packet::Close(p) => self.close(id, &p.handle),
            Packet::Read(p) => self.read(id, &p.handle, p.offset, p.len).await,
            Packet::Write(p) => self.write(id, &p.handle, p.offset, &p.data).await,
            Packet::Lstat(p) => self.stat(id, &p.path),
            Packet::Stat(p) => self.stat(id, &p.path),
            Packet::Fstat(p) => self.fstat(id, &p.handle),
            Packet::FSetStat(p) => self.set_length(id, &p.handle, p.attrs.size),
            Packet::SetStat(_) => Ok(ok(id)),
            Packet::OpenDir(p) => self.open_folder(id, &p.path),
            Packet::ReadDir(p) => self.read_folder(id, &p.handle),
            Packet::Remove(p) => self.change(id, &p.filename, |disk, path| disk.remove(path)),
            Packet::MkDir(p) => self.change(id, &p.path, |disk, path| disk.make_folder(path)),
            Packet::RmDir(p) => self.change(id, &p.path, |disk, path| disk.remove_folder(path)),
            Packet::RealPath(p) => self.real_path(id, &p.path),
            Packet::Rename(p) => self.rename(id, &p.oldpath, &p.newpath, false),
            Packet::Extended(p) => self.extended(id, &p.request, &p.data),
            _ => Err(StatusCode::OpUnsupported),
        };
        answered.unwrap_or_else(|code| status(id, code))
    }

    fn path(&self, raw: &str) -> Result<WinPath, StatusCode> {
        let home = format!(r"C:\Users\{}", self.host.image.user);
        WinPath::parse(raw, &home).map_err(|error| match error {
            PathError::TooLong | PathError::Invalid => StatusCode::BadMessage,
            PathError::VirtualRoot => StatusCode::PermissionDenied,
        })
    }

    fn keep(&mut self, held: Held) -> String {
        self.next += 1;
        let handle = self.next.to_string();
        self.handles.insert(handle.clone(), held);
        handle
    }

    fn file(&mut self, handle: &str) -> Result<&mut Upload, StatusCode> {
        match self.handles.get_mut(handle) {
            Some(Held::File(upload)) => Ok(upload),
            Some(Held::Folder(_)) | None => Err(StatusCode::NoSuchFile),
        }
    }

    fn open(&mut self, id: u32, raw: &str, flags: OpenFlags) -> Result<Packet, StatusCode> {
        let path = self.path(raw)?;
        let access = Access {
            read: flags.contains(OpenFlags::READ),
            write: flags.contains(OpenFlags::WRITE),
            create: flags.contains(OpenFlags::CREATE),
            exclusive: flags.contains(OpenFlags::EXCLUDE),
            truncate: flags.contains(OpenFlags::TRUNCATE),
        };
        let opened = {
            let mut state = self.host.state();
            state.refresh_running(Instant::now());
            state.disk.open(&path, access).map_err(code)?
        };
        let nth = if access.write {
            self.host.next_upload()
        } else {
            0
        };
        let upload = Upload {
            id: opened,
            stretch: 1.0,
            expected: None,
            written: false,
            nth,
        };
        let handle = self.keep(Held::File(upload));
        Ok(Packet::Handle(russh_sftp::protocol::Handle { id, handle }))
    }

    fn close(&mut self, id: u32, handle: &str) -> Result<Packet, StatusCode> {
        match self.handles.remove(handle).ok_or(StatusCode::NoSuchFile)? {
            Held::Folder(_) => Ok(ok(id)),
            Held::File(upload) => {
                let full = self.trouble_at_close(&upload);
                self.host.state().disk.close(upload.id).map_err(code)?;
                if full {
                    Err(StatusCode::Failure)
                } else {
                    Ok(ok(id))
                }
            }
        }
    }

    /// Uploads whose length is unknown before are cut, or find the disk full (then true),
    /// at their end.
    fn trouble_at_close(&self, upload: &Upload) -> bool {
        if !upload.written || upload.expected.is_some() {
            return false;
        }
        let size = self
            .host
            .state()
            .disk
            .written(upload.id)
            .map_or(0, |(size, _)| size);
        if size < TARGET_BYTES_MIN {
            return false;
        }
        let share = |share: f64| (size as f64 * share) as u64;
        if self.host.strike(Fault::UploadCut) {
            self.host.state().disk.tear(upload.id, share(CUT_AT));
            self.link.cut();
        }
        let full = self.host.strike(Fault::DiskFull);
        if full {
            self.host.state().disk.tear(upload.id, share(FULL_AT));
        }
        full
    }

    async fn read(
        &mut self,
        id: u32,
        handle: &str,
        at: u64,
        length: u32,
    ) -> Result<Packet, StatusCode> {
        let file = self.file(handle)?.id;
        let data = self
            .host
            .state()
            .disk
            .read_at(file, at, length)
            .map_err(code)?;
        if data.is_empty() && length > 0 {
            return Err(StatusCode::Eof);
        }
        self.take_line(data.len() as f64).await;
        Ok(Packet::Data(russh_sftp::protocol::Data { id, data }))
    }

    async fn write(
        &mut self,
        id: u32,
        handle: &str,
        at: u64,
        data: &[u8],
    ) -> Result<Packet, StatusCode> {
        let upload = self.file(handle)?;
        if at == 0
            && let Some((actual, modelled)) = modelled_sizes(data)
        {
            upload.stretch = modelled as f64 / actual as f64;
            upload.expected = Some(actual);
        }
        upload.written = true;
        let file = upload.id;
        let stretch = upload.stretch;
        let expected = upload.expected;
        let nth = upload.nth;
        self.take_line(data.len() as f64 * stretch).await;
        lock(&self.host.counts).bytes_uploaded += data.len() as u64;
        self.trouble_at_write(at + data.len() as u64, expected)?;
        self.host
            .state()
            .disk
            .write_at(file, at, data)
            .map_err(code)?;
        if (at + data.len() as u64) * 2 >= expected.unwrap_or(0) {
            self.host.at(&format!("upload {nth} half sent")).await;
        }
        Ok(ok(id))
    }

    /// Trouble that comes at a share of an upload whose length is known from its content.
    fn trouble_at_write(&self, so_far: u64, expected: Option<u64>) -> Result<(), StatusCode> {
        let Some(expected) = expected.filter(|e| *e >= TARGET_BYTES_MIN) else {
            return Ok(());
        };
        let share = so_far as f64 / expected as f64;
        if share >= CUT_AT && self.host.strike(Fault::UploadCut) {
            self.link.cut();
            return Err(StatusCode::Failure);
        }
        if share >= FULL_AT && self.host.strike(Fault::DiskFull) {
            return Err(StatusCode::Failure);
        }
        Ok(())
    }

    /// Waits until the host's line has taken `bytes`. Debts below a millisecond are carried on, so a fast pace costs
    /// no timer per packet.
    async fn take_line(&self, bytes: f64) {
        let rate = if self.slow {
            SLOW_BYTES_PER_S
        } else {
            LINE_BYTES_PER_S
        };
        let cost = self
            .host
            .context
            .pace
            .real(Duration::from_secs_f64(bytes / rate));
        let now = Instant::now();
        let free = {
            let mut line = lock(&self.host.line_free);
            let free = line.map_or(now, |at| at.max(now)) + cost;
            *line = Some(free);
            free
        };
        if free.duration_since(now) >= Duration::from_millis(1) {
            tokio::time::sleep_until(free).await;
        }
    }

    fn stat(&self, id: u32, raw: &str) -> Result<Packet, StatusCode> {
        let path = self.path(raw)?;
        let stat = self.host.state().disk.stat(&path).map_err(code)?;
        Ok(answers::attrs(id, attributes(stat)))
    }

    fn fstat(&mut self, id: u32, handle: &str) -> Result<Packet, StatusCode> {
        let file = self.file(handle)?.id;
        let state = self.host.state();
        let path = state.disk.path_of(file).map_err(code)?;
        let mut stat = state.disk.stat(&path).map_err(code)?;
        if let Some((size, _)) = state.disk.written(file) {
            stat.size = size;
        }
        Ok(answers::attrs(id, attributes(stat)))
    }

    /// Cuts an open file where a length is given; other attributes change nothing here.
    fn set_length(
        &mut self,
        id: u32,
        handle: &str,
        length: Option<u64>,
    ) -> Result<Packet, StatusCode> {
        let file = self.file(handle)?.id;
        if let Some(length) = length {
            self.host.state().disk.cut(file, length).map_err(code)?;
        }
        Ok(ok(id))
    }

    fn open_folder(&mut self, id: u32, raw: &str) -> Result<Packet, StatusCode> {
        let path = self.path(raw)?;
        let entries = {
            let state = self.host.state();
            match state.disk.stat(&path).map_err(code)? {
                stat if stat.directory => state.disk.list(&path),
                _ => return Err(StatusCode::NoSuchFile),
            }
        };
        let handle = self.keep(Held::Folder(entries));
        Ok(Packet::Handle(russh_sftp::protocol::Handle { id, handle }))
    }

    fn read_folder(&mut self, id: u32, handle: &str) -> Result<Packet, StatusCode> {
        match self.handles.get_mut(handle) {
            Some(Held::Folder(entries)) if entries.is_empty() => Err(StatusCode::Eof),
            Some(Held::Folder(entries)) => Ok(listing(id, std::mem::take(entries))),
            Some(Held::File(_)) | None => Err(StatusCode::NoSuchFile),
        }
    }

    fn change(
        &self,
        id: u32,
        raw: &str,
        change: impl FnOnce(&mut super::disk::Disk, &WinPath) -> Result<(), DiskError>,
    ) -> Result<Packet, StatusCode> {
        let path = self.path(raw)?;
        let mut state = self.host.state();
        state.refresh_running(Instant::now());
        change(&mut state.disk, &path).map_err(code)?;
        Ok(ok(id))
    }

    fn real_path(&self, id: u32, raw: &str) -> Result<Packet, StatusCode> {
        let home = format!(r"C:\Users\{}", self.host.image.user);
        let raw = if raw.is_empty() { "." } else { raw };
        match WinPath::parse(raw, &home) {
            Ok(path) => Ok(name(id, path.sftp())),
            Err(PathError::VirtualRoot) => Ok(name(id, "/".into())),
            Err(PathError::TooLong | PathError::Invalid) => Err(StatusCode::BadMessage),
        }
    }

    fn rename(&self, id: u32, from: &str, to: &str, posix: bool) -> Result<Packet, StatusCode> {
        let from = self.path(from)?;
        let to = self.path(to)?;
        if posix && to.name().ends_with(".exe") && self.host.strike(Fault::ExeLocked) {
            return Err(StatusCode::Failure);
        }
        let mut state = self.host.state();
        state.refresh_running(Instant::now());
        let done = if posix {
            state.disk.replace(&from, &to)
        } else {
            state.disk.rename(&from, &to)
        };
        done.map_err(code)?;
        drop(state);
        self.host.effect(&format!("upload {}", to.shown()));
        Ok(ok(id))
    }

    fn close_all(&mut self) {
        for (_, held) in self.handles.drain() {
            if let Held::File(upload) = held {
                let _ = self.host.state().disk.close(upload.id);
            }
        }
    }
}

/// How Windows' errors come out as SFTP status (docs/field-notes.md, SFTP on Windows).
fn code(error: DiskError) -> StatusCode {
    match error {
        DiskError::NotFound | DiskError::BadHandle => StatusCode::NoSuchFile,
        DiskError::AccessDenied => StatusCode::PermissionDenied,
        DiskError::Sharing
        | DiskError::Exists
        | DiskError::NotEmpty
        | DiskError::Full
        | DiskError::TooMany => StatusCode::Failure,
    }
}
