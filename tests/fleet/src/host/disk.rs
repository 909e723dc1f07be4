//! Virtual disk of a host: NTFS, in the parts that SFTP and the host program use (docs/field-notes.md, SFTP on
//! Windows).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormer_host::ops::{Ace, Rights, Security};

use super::body::{Body, BodyWriter};
use super::path::WinPath;

/// Most open handles of one host.
pub const HANDLES_MAX: usize = 4_096;
/// Bytes of a host's system volume.
pub const CAPACITY_BYTES: u64 = 128 << 30;
/// Bytes that Windows itself takes.
pub const WINDOWS_BYTES: u64 = 24 << 30;

/// Folders in which only administrators may write, by key.
const PROTECTED: [&str; 3] = [r"c:\windows", r"c:\programdata", r"c:\program files"];

/// Why the disk refuses; the names are Windows' error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// `ERROR_FILE_NOT_FOUND` (2) or `ERROR_PATH_NOT_FOUND` (3).
    #[error("the system cannot find the path specified")]
    NotFound,
    #[error("access is denied")]
    AccessDenied,
    /// `ERROR_SHARING_VIOLATION` (32).
    #[error("the file is in use by another process")]
    Sharing,
    /// `ERROR_FILE_EXISTS` (80) or `ERROR_ALREADY_EXISTS` (183).
    #[error("the file exists")]
    Exists,
    /// `ERROR_DIR_NOT_EMPTY` (145).
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("there is not enough space on the disk")]
    Full,
    /// A handle that is not open, or not open for this.
    #[error("the handle is invalid")]
    BadHandle,
    /// [`HANDLES_MAX`] is reached.
    #[error("too many open files")]
    TooMany,
}

/// Object at a path.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A folder.
    Directory,
    File {
        /// Its content.
        body: Arc<Body>,
        /// Whether only Administrators and SYSTEM may read it.
        private: bool,
    },
}

#[derive(Debug, Clone)]
struct DiskNode {
    shown: String,
    entry: Entry,
    modified_s: u32,
    rights: Rights,
    read_only: bool,
}

/// Attributes of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Whether it is a folder.
    pub directory: bool,
    /// Length in bytes; 0 for a folder.
    pub size: u64,
    /// Last change, seconds since 1970 by the host's clock.
    pub modified_s: u32,
    /// `FILE_ATTRIBUTE_READONLY`.
    pub read_only: bool,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Access {
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Make it if it is not there.
    pub create: bool,
    /// Fail if it is there.
    pub exclusive: bool,
    /// Empty it.
    pub truncate: bool,
}

/// An open file.
struct Open {
    path: WinPath,
    read: bool,
    writer: Option<BodyWriter>,
}

/// Identifier of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u64);

/// The volume `C:` with its open handles.
pub struct Disk {
    nodes: BTreeMap<String, DiskNode>,
    open: BTreeMap<HandleId, Open>,
    next_handle: u64,
    used: u64,
    capacity: u64,
    /// Files that running processes were started from.
    running: BTreeSet<String>,
    now_s: u32,
}

impl Default for Disk {
    fn default() -> Self {
        let mut disk = Self {
            nodes: BTreeMap::new(),
            open: BTreeMap::new(),
            next_handle: 1,
            used: WINDOWS_BYTES,
            capacity: CAPACITY_BYTES,
            running: BTreeSet::new(),
            now_s: 0,
        };
        for folder in [
            "C:\\",
            r"C:\Windows\System32",
            r"C:\ProgramData\ssh",
            r"C:\Users\Administrator",
        ] {
            disk.make_folders(folder);
        }
        disk
    }
}

impl Disk {
    /// Sets the host's clock, seconds since 1970, for the times of files.
    pub fn set_now(&mut self, now_s: u32) {
        self.now_s = now_s;
    }

    /// Free bytes.
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    /// Bytes in all.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Leaves `free` bytes and no more.
    pub fn squeeze(&mut self, free: u64) {
        self.capacity = self.used + free;
    }

    /// Restores the disk's size.
    pub fn relieve(&mut self) {
        self.capacity = CAPACITY_BYTES.max(self.used);
    }

    /// Makes `path` and the folders above it.
    pub fn make_folders(&mut self, path: &str) {
        if let Ok(path) = WinPath::absolute(path) {
            self.make_folders_at(&path);
        }
    }

    fn make_folders_at(&mut self, path: &WinPath) {
        if let Some(parent) = path.parent() {
            self.make_folders_at(&parent);
        }
        self.nodes
            .entry(path.key().to_owned())
            .or_insert_with(|| DiskNode {
                shown: path.shown().to_owned(),
                entry: Entry::Directory,
                modified_s: self.now_s,
                rights: Rights::Inherited,
                read_only: false,
            });
    }

    /// Object at `path`.
    pub fn stat(&self, path: &WinPath) -> Result<Stat, DiskError> {
        let node = self.nodes.get(path.key()).ok_or(DiskError::NotFound)?;
        let size = match &node.entry {
            Entry::Directory => 0,
            Entry::File { body, .. } => body.size,
        };
        let directory = matches!(node.entry, Entry::Directory);
        Ok(Stat {
            directory,
            size,
            modified_s: node.modified_s,
            read_only: node.read_only,
        })
    }

    /// Whether anything is at `path`.
    pub fn exists(&self, path: &WinPath) -> bool {
        self.nodes.contains_key(path.key())
    }

    /// Content of the file at `path`; refused while it is being written.
    pub fn read(&self, path: &WinPath) -> Result<Arc<Body>, DiskError> {
        if self
            .open
            .values()
            .any(|open| open.writer.is_some() && open.path == *path)
        {
            return Err(DiskError::Sharing);
        }
        match self.nodes.get(path.key()).map(|node| &node.entry) {
            Some(Entry::File { body, .. }) => Ok(body.clone()),
            Some(Entry::Directory) => Err(DiskError::AccessDenied),
            None => Err(DiskError::NotFound),
        }
    }

    pub fn read_text_path(&self, path: &str) -> Result<Arc<Body>, DiskError> {
        self.read(&WinPath::absolute(path).map_err(|_| DiskError::NotFound)?)
    }

    /// Whether the file at `path` may be read by Administrators and SYSTEM alone.
    pub fn is_private(&self, path: &WinPath) -> bool {
        let node = self.nodes.get(path.key()).map(|node| &node.entry);
        matches!(node, Some(Entry::File { private: true, .. }))
    }

    /// Makes a file read-only, or no longer so.
    pub fn set_read_only(&mut self, path: &WinPath, read_only: bool) {
        if let Some(node) = self.nodes.get_mut(path.key()) {
            node.read_only = read_only;
        }
    }

    /// Access rights of a path: its own, or those of the folder above.
    pub fn give(&mut self, path: &WinPath, rights: Rights) {
        if let Some(node) = self.nodes.get_mut(path.key()) {
            node.rights = rights;
            if let Entry::File { private, .. } = &mut node.entry {
                *private = rights == Rights::Private;
            }
        }
    }

    /// Owner and rights of the object at `path`: its own, or inherited ones. Users may create folders in `C:\` and
    /// files in every folder that inherits from there (csi-proxy#382); in Windows' own folders only administrators may
    /// write (icacls).
    pub fn security(&self, path: &WinPath) -> Security {
        let ace = |sid: &str, mask| Ace {
            allow: true,
            sid: sid.into(),
            mask,
            flags: 3,
        };
        let mut entries = vec![
            ace("S-1-5-18", 0x001f_01ff),
            ace("S-1-5-32-544", 0x001f_01ff),
        ];
        let users = "S-1-5-32-545";
        let mut at = Some(path.clone());
        let mut protected = false;
        loop {
            let Some(here) = at else {
                entries.push(ace(users, 0x0012_00a9 | 0x4 | 0x2));
                break;
            };
            let rights = self.nodes.get(here.key()).map(|node| node.rights);
            match rights.unwrap_or_default() {
                Rights::Users => entries.push(ace(users, 0x0012_00a9)),
                Rights::Private => {}
                Rights::Inherited if PROTECTED.contains(&here.key()) => {
                    entries.push(ace(users, 0x0012_00a9));
                }
                Rights::Inherited => {
                    at = here.parent();
                    continue;
                }
            }
            protected = here == *path;
            break;
        }
        Security {
            owner: "S-1-5-32-544".into(),
            protected,
            entries: Some(entries),
        }
    }

    /// Writes a whole file, as a process on the host does it: folders must exist.
    pub fn write(
        &mut self,
        path: &WinPath,
        body: Arc<Body>,
        private: bool,
    ) -> Result<(), DiskError> {
        self.may_replace(path)?;
        self.put_body(path, body, private)
    }

    /// Writes a whole file and the folders above it.
    pub fn put(&mut self, path: &str, bytes: &[u8]) -> Result<(), DiskError> {
        let path = WinPath::absolute(path).map_err(|_| DiskError::NotFound)?;
        if let Some(parent) = path.parent() {
            self.make_folders_at(&parent);
        }
        self.write(&path, Body::of(bytes), false)
    }

    fn put_body(
        &mut self,
        path: &WinPath,
        body: Arc<Body>,
        private: bool,
    ) -> Result<(), DiskError> {
        let parent = path.parent().ok_or(DiskError::AccessDenied)?;
        match self.nodes.get(parent.key()).map(|node| &node.entry) {
            Some(Entry::Directory) => {}
            Some(Entry::File { .. }) | None => return Err(DiskError::NotFound),
        }
        let rights = self
            .nodes
            .get(path.key())
            .map_or(Rights::Inherited, |node| node.rights);
        let (before, shown) = match self.nodes.get(path.key()) {
            Some(DiskNode {
                entry: Entry::Directory,
                ..
            }) => return Err(DiskError::AccessDenied),
            Some(DiskNode {
                entry: Entry::File { body, .. },
                shown,
                ..
            }) => (body.modelled, shown.clone()),
            None => (0, path.shown().to_owned()),
        };
        if body.modelled > before + self.free() {
            return Err(DiskError::Full);
        }
        self.used = (self.used + body.modelled).saturating_sub(before);
        let node = DiskNode {
            shown,
            entry: Entry::File { body, private },
            modified_s: self.now_s,
            rights,
            read_only: false,
        };
        self.nodes.insert(path.key().to_owned(), node);
        Ok(())
    }

    /// Opens a file under the share rules of OpenSSH for Windows: a reader shares reading and writing, a writer shares
    /// only writing, and neither shares deletion.
    pub fn open(&mut self, path: &WinPath, access: Access) -> Result<HandleId, DiskError> {
        if self.open.len() >= HANDLES_MAX {
            return Err(DiskError::TooMany);
        }
        let there = match self.nodes.get(path.key()).map(|node| &node.entry) {
            Some(Entry::Directory) => return Err(DiskError::AccessDenied),
            Some(Entry::File { body, .. }) => Some(body.clone()),
            None => None,
        };
        if there.is_some() && access.create && access.exclusive {
            return Err(DiskError::Exists);
        }
        if there.is_none() && !(access.create && access.write) {
            return Err(DiskError::NotFound);
        }
        let writer_open = self
            .open
            .values()
            .any(|o| o.path == *path && o.writer.is_some());
        if access.read && writer_open {
            return Err(DiskError::Sharing);
        }
        if access.write && self.running.contains(path.key()) {
            return Err(DiskError::Sharing);
        }
        let writer = access.write.then(|| match &there {
            Some(body) if !access.truncate => BodyWriter::resume(body),
            _ => BodyWriter::default(),
        });
        if access.write && (there.is_none() || access.truncate) {
            self.put_body(path, Body::of(b""), false)?;
        }
        let id = HandleId(self.next_handle);
        self.next_handle += 1;
        self.open.insert(
            id,
            Open {
                path: path.clone(),
                read: access.read,
                writer,
            },
        );
        Ok(id)
    }

    /// The path of an open file.
    pub fn path_of(&self, id: HandleId) -> Result<WinPath, DiskError> {
        self.open
            .get(&id)
            .map(|open| open.path.clone())
            .ok_or(DiskError::BadHandle)
    }

    /// Up to `length` bytes at `offset`; empty at the end. Content that is not kept reads as zeros.
    pub fn read_at(&self, id: HandleId, offset: u64, length: u32) -> Result<Vec<u8>, DiskError> {
        let open = self
            .open
            .get(&id)
            .filter(|open| open.read)
            .ok_or(DiskError::BadHandle)?;
        let Some(Entry::File { body, .. }) = self.nodes.get(open.path.key()).map(|n| &n.entry)
        else {
            return Err(DiskError::BadHandle);
        };
        let end = (offset + u64::from(length)).min(body.size);
        let wanted = usize::try_from(end.saturating_sub(offset)).unwrap_or(0);
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(body.head.len());
        let mut bytes = body.head[start..(start + wanted).min(body.head.len())].to_vec();
        bytes.resize(wanted, 0);
        Ok(bytes)
    }

    /// Takes `data` at `offset`. Disk space is counted as it is written.
    pub fn write_at(&mut self, id: HandleId, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        let free = self.free().saturating_sub(self.being_written());
        let open = self.open.get_mut(&id).ok_or(DiskError::BadHandle)?;
        let writer = open.writer.as_mut().ok_or(DiskError::BadHandle)?;
        let grows = (offset + data.len() as u64).saturating_sub(writer.size());
        if grows > free {
            return Err(DiskError::Full);
        }
        writer.write(offset, data);
        Ok(())
    }

    /// Bytes that open files have grown by.
    fn being_written(&self) -> u64 {
        let there = |path: &WinPath| self.stat(path).map_or(0, |stat| stat.size);
        let grown = |o: &Open| {
            o.writer
                .as_ref()
                .map(|w| w.size().saturating_sub(there(&o.path)))
        };
        self.open.values().filter_map(grown).sum()
    }

    /// Bytes written to an open file so far, with its first ones.
    pub fn written(&self, id: HandleId) -> Option<(u64, &[u8])> {
        let writer = self.open.get(&id)?.writer.as_ref()?;
        Some((writer.size(), writer.head()))
    }

    /// Keeps only the first `bytes` of the written data: the effect of a lost connection on an upload.
    pub fn tear(&mut self, id: HandleId, bytes: u64) {
        if let Some(writer) = self.open.get_mut(&id).and_then(|open| open.writer.as_mut()) {
            writer.tear(bytes);
        }
    }

    /// Cuts a file that is open for writing (`ftruncate`).
    pub fn cut(&mut self, id: HandleId, length: u64) -> Result<(), DiskError> {
        let open = self.open.get_mut(&id).ok_or(DiskError::BadHandle)?;
        let writer = open.writer.as_mut().ok_or(DiskError::BadHandle)?;
        writer.cut(length);
        Ok(())
    }

    /// Closes a file; the written data become its content.
    pub fn close(&mut self, id: HandleId) -> Result<(), DiskError> {
        let open = self.open.remove(&id).ok_or(DiskError::BadHandle)?;
        let Some(writer) = open.writer else {
            return Ok(());
        };
        if !self.nodes.contains_key(open.path.key()) {
            return Ok(());
        }
        let private = self.is_private(&open.path);
        self.put_body(&open.path, writer.finish(), private)
    }

    /// Closes all files, as a power loss does: data written so far stay.
    pub fn close_all(&mut self) {
        let open: Vec<HandleId> = self.open.keys().copied().collect();
        for id in open {
            let _ = self.close(id);
        }
    }

    /// Whether `path` is open over SFTP.
    pub fn is_open(&self, path: &WinPath) -> bool {
        self.open.values().any(|open| open.path == *path)
    }

    /// Whether `path` is open, or runs.
    pub fn in_use(&self, path: &WinPath) -> bool {
        self.running.contains(path.key()) || self.open.values().any(|open| open.path == *path)
    }

    /// Notes which files running processes were started from.
    pub fn set_running(&mut self, paths: BTreeSet<String>) {
        self.running = paths;
    }

    fn may_replace(&self, path: &WinPath) -> Result<(), DiskError> {
        let read_only = self.nodes.get(path.key()).is_some_and(|it| it.read_only);
        if read_only && !self.running.contains(path.key()) {
            Err(DiskError::AccessDenied)
        } else if self.in_use(path) {
            Err(DiskError::Sharing)
        } else {
            Ok(())
        }
    }

    /// SFTP's plain RENAME: a hard link and an unlink, so it fails if the target exists.
    pub fn rename(&mut self, from: &WinPath, to: &WinPath) -> Result<(), DiskError> {
        if self.exists(to) && from != to {
            return Err(DiskError::Exists);
        }
        self.replace(from, to)
    }

    /// `posix-rename@openssh.com`: replaces the target unless it is open or running.
    pub fn replace(&mut self, from: &WinPath, to: &WinPath) -> Result<(), DiskError> {
        let node = self
            .nodes
            .get(from.key())
            .cloned()
            .ok_or(DiskError::NotFound)?;
        if self.open.values().any(|open| open.path == *from) {
            return Err(DiskError::Sharing);
        }
        let Entry::File { body, private } = node.entry else {
            return self.move_folder(from, to);
        };
        if from != to {
            self.may_replace(to)?;
            self.used = self.used.saturating_sub(body.modelled);
            if let Err(error) = self.put_body(to, body.clone(), private) {
                self.used += body.modelled;
                return Err(error);
            }
            self.nodes.remove(from.key());
            // A rename keeps the object's rights.
            self.give(to, node.rights);
        }
        Ok(())
    }

    fn move_folder(&mut self, from: &WinPath, to: &WinPath) -> Result<(), DiskError> {
        if self.exists(to) {
            return Err(DiskError::AccessDenied);
        }
        let inside = format!("{}\\", from.key());
        if self
            .open
            .values()
            .any(|o| o.path.key().starts_with(&inside))
            || self.running.iter().any(|path| path.starts_with(&inside))
        {
            return Err(DiskError::AccessDenied);
        }
        let moved: Vec<String> = self
            .nodes
            .keys()
            .filter(|k| k.starts_with(&inside) || *k == from.key())
            .cloned()
            .collect();
        for key in moved {
            if let Some(mut node) = self.nodes.remove(&key) {
                let rest = node
                    .shown
                    .get(from.shown().len()..)
                    .unwrap_or_default()
                    .to_owned();
                node.shown = format!("{}{rest}", to.shown());
                self.nodes.insert(node.shown.to_lowercase(), node);
            }
        }
        Ok(())
    }

    /// Removes a file.
    pub fn remove(&mut self, path: &WinPath) -> Result<(), DiskError> {
        match self.nodes.get(path.key()).map(|node| &node.entry) {
            None => Err(DiskError::NotFound),
            Some(Entry::Directory) => Err(DiskError::AccessDenied),
            Some(Entry::File { body, .. }) => {
                let size = body.modelled;
                if self.running.contains(path.key()) {
                    return Err(DiskError::AccessDenied);
                }
                self.may_replace(path)?;
                self.used = self.used.saturating_sub(size);
                self.nodes.remove(path.key());
                Ok(())
            }
        }
    }

    /// Makes one folder; the one above must exist.
    pub fn make_folder(&mut self, path: &WinPath) -> Result<(), DiskError> {
        if self.exists(path) {
            return Err(DiskError::Exists);
        }
        let parent = path.parent().ok_or(DiskError::Exists)?;
        if !self.exists(&parent) {
            return Err(DiskError::NotFound);
        }
        self.make_folders_at(path);
        Ok(())
    }

    /// Removes an empty folder.
    pub fn remove_folder(&mut self, path: &WinPath) -> Result<(), DiskError> {
        if !matches!(
            self.nodes.get(path.key()).map(|n| &n.entry),
            Some(Entry::Directory)
        ) {
            return Err(DiskError::NotFound);
        }
        if self.children(path).next().is_some() {
            return Err(DiskError::NotEmpty);
        }
        self.nodes.remove(path.key());
        Ok(())
    }

    /// Deletes a folder with its contents, except objects in use; returns the first of those.
    pub fn remove_tree(&mut self, path: &WinPath) -> Result<(), DiskError> {
        let inside = format!("{}\\", path.key());
        let keys: Vec<String> = self
            .nodes
            .keys()
            .filter(|k| k.starts_with(&inside))
            .cloned()
            .collect();
        let mut refused = None;
        for key in keys.iter().rev() {
            let Ok(child) = WinPath::absolute(key) else {
                continue;
            };
            // FILE_DISPOSITION_IGNORE_READONLY_ATTRIBUTE.
            self.set_read_only(&child, false);
            let removed = match self.nodes.get(key).map(|node| &node.entry) {
                Some(Entry::Directory) => self.remove_folder(&child),
                Some(Entry::File { .. }) => self.remove(&child),
                None => Ok(()),
            };
            refused = refused.or(removed.err().filter(|e| *e != DiskError::NotEmpty));
        }
        match refused {
            Some(error) => Err(error),
            None => self.remove_folder(path),
        }
    }

    /// Takes away every file whose path begins so.
    pub fn remove_like(&mut self, beginning: &str) {
        let beginning = beginning.to_lowercase();
        let found: Vec<WinPath> = self
            .nodes
            .range(beginning.clone()..)
            .take_while(|(key, _)| key.starts_with(&beginning))
            .filter_map(|(_, node)| WinPath::absolute(&node.shown).ok())
            .collect();
        for path in found {
            let _ = self.remove(&path);
        }
    }

    /// Paths of all files, in their order.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let file = |node: &&DiskNode| matches!(node.entry, Entry::File { .. });
        self.nodes
            .values()
            .filter(file)
            .map(|node| node.shown.as_str())
    }

    /// Paths of all folders, in their order.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        let folder = |node: &&DiskNode| !matches!(node.entry, Entry::File { .. });
        self.nodes
            .values()
            .filter(folder)
            .map(|node| node.shown.as_str())
    }

    /// Names of the direct children of `path`.
    pub fn list(&self, path: &WinPath) -> Vec<(String, Stat)> {
        let with_stat = |path: WinPath| Some((path.name().to_owned(), self.stat(&path).ok()?));
        self.children(path)
            .filter_map(|n| WinPath::absolute(&n.shown).ok())
            .filter_map(with_stat)
            .collect()
    }

    fn children<'a>(&'a self, path: &WinPath) -> impl Iterator<Item = &'a DiskNode> + use<'a> {
        let mut inside = path.key().to_owned();
        if !inside.ends_with('\\') {
            inside.push('\\');
        }
        let length = inside.len();
        self.nodes
            .range(inside.clone()..)
            .take_while(move |(key, _)| key.starts_with(&inside))
            .filter(move |(key, _)| key.len() > length && !key[length..].contains('\\'))
            .map(|(_, node)| node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> WinPath {
        WinPath::absolute(text).unwrap_or_else(|e| panic!("{text}: {e:?}"))
    }

    fn with_file(name: &str) -> (Disk, WinPath) {
        let mut disk = Disk::default();
        disk.put(name, b"content").unwrap_or_else(|e| panic!("{e}"));
        (disk, path(name))
    }

    const WRITE: Access = Access {
        read: false,
        write: true,
        create: true,
        exclusive: false,
        truncate: true,
    };
    const READ: Access = Access {
        read: true,
        write: false,
        create: false,
        exclusive: false,
        truncate: false,
    };

    #[test]
    fn a_plain_rename_fails_on_an_existing_target_and_a_posix_one_replaces_it() {
        let (mut disk, old) = with_file(r"C:\k\kubelet.exe");
        disk.put(r"C:\k\.tmp-1", b"new")
            .unwrap_or_else(|e| panic!("{e}"));
        let new = path(r"C:\k\.tmp-1");
        assert_eq!(disk.rename(&new, &old), Err(DiskError::Exists));
        assert_eq!(disk.replace(&new, &old), Ok(()));
        assert_eq!(
            disk.read(&old).map(|b| b.head.to_vec()),
            Ok(b"new".to_vec())
        );
        assert!(!disk.exists(&new));
    }

    #[test]
    fn nobody_reads_or_renames_what_is_being_written() {
        let (mut disk, file) = with_file(r"C:\k\x");
        let handle = disk.open(&file, WRITE);
        assert!(handle.is_ok());
        assert_eq!(disk.open(&file, READ), Err(DiskError::Sharing));
        assert!(disk.open(&file, WRITE).is_ok(), "two writers are let in");
        assert_eq!(
            disk.replace(&file, &path(r"C:\k\y")),
            Err(DiskError::Sharing)
        );
        assert_eq!(disk.read(&file).err(), Some(DiskError::Sharing));
        assert_eq!(disk.remove(&file), Err(DiskError::Sharing));
    }

    #[test]
    fn a_running_executable_is_not_overwritten() {
        let (mut disk, exe) = with_file(r"C:\k\containerd.exe");
        disk.set_running([exe.key().to_owned()].into());
        disk.put(r"C:\k\.tmp", b"new")
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            disk.replace(&path(r"C:\k\.tmp"), &exe),
            Err(DiskError::Sharing)
        );
        assert_eq!(disk.open(&exe, WRITE), Err(DiskError::Sharing));
        assert_eq!(disk.remove(&exe), Err(DiskError::AccessDenied));
        assert!(disk.open(&exe, READ).is_ok());
    }

    #[test]
    fn a_full_disk_says_so_and_keeps_what_is_there() {
        let (mut disk, file) = with_file(r"C:\k\x");
        disk.squeeze(10);
        let handle = disk.open(&path(r"C:\k\new"), WRITE).unwrap_or(HandleId(0));
        assert_eq!(disk.write_at(handle, 0, b"0123456789"), Ok(()));
        assert_eq!(disk.write_at(handle, 10, b"x"), Err(DiskError::Full));
        assert_eq!(disk.close(handle), Ok(()));
        assert_eq!(disk.free(), 0);
        assert!(disk.read(&file).is_ok());
    }

    #[test]
    fn folders_are_listed_and_removed_with_what_is_in_them() {
        let mut disk = Disk::default();
        for file in [r"C:\k\a", r"C:\k\sub\b", r"C:\kk\c"] {
            disk.put(file, b"x").unwrap_or_else(|e| panic!("{e}"));
        }
        let names: Vec<String> = disk
            .list(&path(r"C:\k"))
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["a", "sub"]);
        assert_eq!(disk.remove_folder(&path(r"C:\k")), Err(DiskError::NotEmpty));
        assert_eq!(disk.remove_tree(&path(r"C:\k")), Ok(()));
        assert!(disk.exists(&path(r"C:\kk\c")) && !disk.exists(&path(r"C:\k")));
        assert!(
            disk.list(&path("C:\\"))
                .iter()
                .any(|(name, _)| name == "kk")
        );
    }
}
