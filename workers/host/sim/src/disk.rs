//! Files and folders as NTFS keeps them, with the rights, the holders and the numbers of Windows.
//!
//! Sources: docs/field-notes.md, Files of Windows (MicrosoftDocs sdk-api `fileapi`, `winbase`; windows-driver-docs-ddi,
//! ntifs/ns-ntifs-_file_rename_information; rust-lang/rust library/std/src/sys/fs/windows).

use std::{collections::BTreeMap, sync::Arc};

use dormer_host::{
    content,
    ops::{
        ATTRIBUTE_READ_ONLY, ATTRIBUTE_REPARSE, Ace, Bytes, Content, ContentSource, Digest,
        DirectoryEntry, Look, Rights, Security, TAG_NAME_SURROGATE, WinError,
    },
};

/// What an operation on the disk answers.
pub(crate) type Result<T> = std::result::Result<T, WinError>;

pub(crate) const fn refused<T>(code: u32) -> Result<T> {
    Err(WinError::new(code))
}

/// Another process with an open file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileHolder {
    /// Until then, by the tick; for ever without.
    until: Option<u64>,
    /// He shares deletion: scanners rarely do.
    share_delete: bool,
}

/// A file or a folder.
#[derive(Debug, Clone)]
pub(crate) struct DiskNode {
    shown: String,
    folder: bool,
    content: Arc<Vec<u8>>,
    attributes: u32,
    /// A link's reparse tag.
    tag: u32,
    security: Security,
    modified_ms: i64,
    holders: Vec<FileHolder>,
}

/// The disk of a host.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    nodes: BTreeMap<String, DiskNode>,
    pub(crate) free: u64,
    pub(crate) total: u64,
    /// Running programs, by path in lower case: Windows maps them, and refuses to delete or replace them.
    pub(crate) running: Vec<String>,
    pub(crate) now_ms: i64,
    pub(crate) tick_ms: u64,
    /// Time for which a scanner holds each new file, without sharing.
    pub(crate) scanner_ms: u64,
    /// Ends of paths (lower case) that a scanner takes away as soon as they are renamed to it.
    pub(crate) quarantine: Vec<String>,
}

pub(crate) const SYSTEM: &str = "S-1-5-18";
pub(crate) const ADMINISTRATORS: &str = "S-1-5-32-544";
pub(crate) const USERS: &str = "S-1-5-32-545";
const FULL: u32 = 0x001f_01ff;
const READ: u32 = 0x0012_00a9;
const INHERITED: u8 = 16;
const INHERIT_ONLY: u8 = 8;
const CHILDREN: u8 = 3;

fn ace(sid: &str, mask: u32, flags: u8) -> Ace {
    Ace {
        allow: true,
        sid: sid.into(),
        mask,
        flags,
    }
}

fn owned_by_administrators(entries: Vec<Ace>, protected: bool) -> Security {
    Security {
        owner: ADMINISTRATORS.into(),
        protected,
        entries: Some(entries),
    }
}

/// Security that a descriptor gives to a new object.
fn given(rights: Rights, folder: bool) -> Option<Security> {
    let flags = if folder { CHILDREN } else { 0 };
    let mut entries = vec![ace(SYSTEM, FULL, flags), ace(ADMINISTRATORS, FULL, flags)];
    match rights {
        Rights::Inherited => return None,
        Rights::Users => entries.push(ace(USERS, READ, flags)),
        Rights::Private => {}
    }
    Some(owned_by_administrators(entries, true))
}

fn lower(path: &str) -> String {
    path.trim_end_matches('\\').to_lowercase()
}

fn above(key: &str) -> Option<&str> {
    key.rsplit_once('\\').map(|(above, _)| above)
}

impl Disk {
    /// A fresh installation of Windows Server.
    pub(crate) fn new() -> Self {
        let mut disk = Self {
            nodes: BTreeMap::new(),
            free: 60 << 30,
            total: 127 << 30,
            running: Vec::new(),
            now_ms: 0,
            tick_ms: 0,
            scanner_ms: 0,
            quarantine: Vec::new(),
        };
        // C:\ of a server: users make folders, and files in every folder that inherits (csi-proxy#382).
        let root = owned_by_administrators(
            vec![
                ace(SYSTEM, FULL, CHILDREN),
                ace(ADMINISTRATORS, FULL, CHILDREN),
                ace(USERS, READ, CHILDREN),
                ace(USERS, 0x4, 2),
                ace(USERS, 0x2, 2 | INHERIT_ONLY),
            ],
            true,
        );
        disk.put_folder("C:", root);
        // Only administrators write there from the start (icacls c:\windows).
        let windows = owned_by_administrators(
            vec![
                ace(SYSTEM, FULL, CHILDREN),
                ace(ADMINISTRATORS, FULL, CHILDREN),
                ace(USERS, READ, CHILDREN),
            ],
            true,
        );
        for folder in [
            r"C:\Windows",
            r"C:\Windows\System32",
            r"C:\Program Files",
            r"C:\ProgramData",
        ] {
            disk.put_folder(folder, windows.clone());
        }
        disk
    }

    fn put_folder(&mut self, path: &str, security: Security) {
        let node = self.node(path, true, Arc::default(), security);
        self.nodes.insert(lower(path), node);
    }

    fn node(
        &self,
        path: &str,
        folder: bool,
        content: Arc<Vec<u8>>,
        security: Security,
    ) -> DiskNode {
        DiskNode {
            shown: path.trim_end_matches('\\').to_owned(),
            folder,
            content,
            attributes: if folder { 0x10 } else { 0x80 },
            tag: 0,
            security,
            modified_ms: self.now_ms,
            holders: Vec::new(),
        }
    }

    /// Security that a new object inherits: the entries of its folder for children of its kind.
    fn inherited(&self, key: &str, folder: bool) -> Security {
        let wanted = if folder { 2 } else { 1 };
        let entries = above(key)
            .and_then(|above| self.nodes.get(above))
            .and_then(|node| node.security.entries.as_ref());
        let entries = entries.map(|entries| {
            let passed = entries.iter().filter(|ace| ace.flags & wanted != 0);
            passed
                .map(|ace| Ace {
                    flags: if folder {
                        (ace.flags & CHILDREN) | INHERITED
                    } else {
                        INHERITED
                    },
                    ..ace.clone()
                })
                .collect()
        });
        Security {
            owner: ADMINISTRATORS.into(),
            protected: false,
            entries,
        }
    }

    fn find(&self, path: &str) -> Result<&DiskNode> {
        let key = lower(path);
        match self.nodes.get(&key) {
            Some(node) => Ok(node),
            None => refused(self.absent(&key)),
        }
    }

    /// 2: it is not there; 3: what should hold it is not.
    fn absent(&self, key: &str) -> u32 {
        match above(key) {
            Some(above) if !self.nodes.get(above).is_some_and(|node| node.folder) => 3,
            _ => 2,
        }
    }

    fn parent_is_there(&self, key: &str) -> Result<()> {
        if self.absent(key) == 3 {
            refused(3)
        } else {
            Ok(())
        }
    }

    fn holders(&self, key: &str) -> impl Iterator<Item = &FileHolder> {
        let tick = self.tick_ms;
        let node = self.nodes.get(key);
        node.into_iter()
            .flat_map(|node| node.holders.iter())
            .filter(move |holder| holder.until.is_none_or(|until| until > tick))
    }

    fn is_held(&self, key: &str) -> bool {
        self.holders(key).any(|holder| !holder.share_delete)
    }

    fn runs(&self, key: &str) -> bool {
        self.running.iter().any(|path| path == key)
    }

    fn below(&self, key: &str) -> Vec<String> {
        let start = format!("{key}\\");
        self.nodes
            .range(start.clone()..)
            .map(|(key, _)| key)
            .take_while(|key| key.starts_with(&start))
            .cloned()
            .collect()
    }

    pub(crate) fn stat(&self, path: &str) -> Result<Look> {
        self.find(path).map(stat_of)
    }

    pub(crate) fn security(&self, path: &str) -> Result<Security> {
        self.find(path).map(|node| node.security.clone())
    }

    pub(crate) fn set_rights(&mut self, path: &str, rights: Rights) -> Result<()> {
        let folder = self.find(path)?.folder;
        let Some(security) = given(rights, folder) else {
            return refused(87);
        };
        self.set_security(path, security);
        Ok(())
    }

    pub(crate) fn set_security(&mut self, path: &str, security: Security) {
        if let Some(node) = self.nodes.get_mut(&lower(path)) {
            node.security = security;
        }
    }

    fn bytes(&self, path: &str) -> Result<&Arc<Vec<u8>>> {
        let node = self.find(path)?;
        if node.folder {
            refused(5)
        } else {
            Ok(&node.content)
        }
    }

    pub(crate) fn digest(&self, path: &str) -> Result<Digest> {
        let bytes = self.bytes(path)?;
        content::digest(&bytes[..]).map_err(|_| WinError::new(1117))
    }

    pub(crate) fn read(&self, path: &str, most: u64, end: bool) -> Result<Content> {
        let bytes = self.bytes(path)?;
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
        let part = if end {
            &bytes[bytes.len() - most..]
        } else {
            &bytes[..most]
        };
        Ok(Content {
            bytes: Bytes(part.to_vec()),
            size: bytes.len() as u64,
        })
    }

    pub(crate) fn write_new(
        &mut self,
        path: &str,
        source: &ContentSource,
        rights: Rights,
    ) -> Result<Digest> {
        let key = lower(path);
        self.parent_is_there(&key)?;
        if self.nodes.contains_key(&key) {
            return refused(80);
        }
        let (bytes, gzip) = match source {
            ContentSource::Inline { bytes } => (Arc::new(bytes.0.clone()), false),
            ContentSource::Staged { path, gzip } => (Arc::clone(self.bytes(path)?), *gzip),
        };
        let mut written = Vec::new();
        let digest = content::copy(&bytes[..], gzip, &mut written);
        let security = given(rights, false).unwrap_or_else(|| self.inherited(&key, false));
        let failed = match digest {
            Err(_) => Some(13),
            Ok(_) if written.len() as u64 > self.free => Some(112),
            Ok(_) => None,
        };
        if failed == Some(112) {
            written.truncate(usize::try_from(self.free).unwrap_or(0));
        }
        self.free -= written.len() as u64;
        let mut node = self.node(path, false, Arc::new(written), security);
        if self.scanner_ms > 0 {
            node.holders.push(FileHolder {
                until: Some(self.tick_ms + self.scanner_ms),
                share_delete: false,
            });
        }
        self.nodes.insert(key, node);
        match (failed, digest) {
            (Some(code), _) => refused(code),
            (None, digest) => digest.map_err(|_| WinError::new(13)),
        }
    }

    /// MS-FSCC, FileRenameInformation: 5 is both "the target has open handles" and "read-only"; 32 is the source's.
    pub(crate) fn rename(&mut self, from: &str, to: &str, replace: bool) -> Result<()> {
        let from_key = lower(from);
        let to_key = lower(to);
        let source = self.find(from)?.clone();
        self.parent_is_there(&to_key)?;
        if self.is_held(&from_key) {
            return refused(32);
        }
        let below = if source.folder {
            self.below(&from_key)
        } else {
            Vec::new()
        };
        // "If it or any subdirectory contains a file that has open handles". A running program counts as well: no
        // source says what Windows does then (docs/field-notes.md, Files of Windows), and callers have to handle this
        // case.
        if below
            .iter()
            .any(|key| self.holders(key).next().is_some() || self.runs(key))
        {
            return refused(5);
        }
        if from_key != to_key
            && let Some(target) = self.nodes.get(&to_key)
        {
            if !replace {
                return refused(183);
            }
            if target.folder
                || source.folder
                || target.attributes & ATTRIBUTE_READ_ONLY != 0
                || self.holders(&to_key).next().is_some()
                || self.runs(&to_key)
            {
                return refused(5);
            }
            self.free += target.content.len() as u64;
        }
        for key in below {
            if let Some(mut node) = self.nodes.remove(&key) {
                let tail = node
                    .shown
                    .get(from_key.len()..)
                    .unwrap_or_default()
                    .to_owned();
                node.shown = format!("{}{tail}", to.trim_end_matches('\\'));
                self.nodes
                    .insert(format!("{to_key}{}", &key[from_key.len()..]), node);
            }
        }
        self.nodes.remove(&from_key);
        if self.quarantine.iter().any(|end| to_key.ends_with(end)) {
            return Ok(());
        }
        self.nodes.insert(
            to_key,
            DiskNode {
                shown: to.trim_end_matches('\\').to_owned(),
                ..source
            },
        );
        Ok(())
    }

    pub(crate) fn delete(&mut self, path: &str) -> Result<()> {
        let key = lower(path);
        let node = self.find(path)?;
        if (node.folder && !is_link(node))
            || node.attributes & ATTRIBUTE_READ_ONLY != 0
            || self.runs(&key)
        {
            return refused(5);
        }
        if self.is_held(&key) {
            return refused(32);
        }
        self.drop_node(&key);
        Ok(())
    }

    fn drop_node(&mut self, key: &str) {
        if let Some(node) = self.nodes.remove(key) {
            self.free += node.content.len() as u64;
        }
    }

    /// Opens for DELETE with every sharing: a program that runs lets that pass.
    pub(crate) fn probe(&self, path: &str) -> Result<()> {
        self.find(path)?;
        if self.is_held(&lower(path)) {
            refused(32)
        } else {
            Ok(())
        }
    }

    pub(crate) fn set_attributes(&mut self, path: &str, attributes: u32) -> Result<()> {
        self.find(path)?;
        if let Some(node) = self.nodes.get_mut(&lower(path)) {
            node.attributes = attributes;
        }
        Ok(())
    }

    /// 183 means that a file or folder exists there.
    pub(crate) fn create_folder(&mut self, path: &str, rights: Rights) -> Result<()> {
        let key = lower(path);
        self.parent_is_there(&key)?;
        if self.nodes.contains_key(&key) {
            return refused(183);
        }
        let security = given(rights, true).unwrap_or_else(|| self.inherited(&key, true));
        self.put_folder(path, security);
        Ok(())
    }

    pub(crate) fn list(&self, path: &str) -> Result<Vec<DirectoryEntry>> {
        let node = self.find(path)?;
        if !node.folder {
            return refused(267);
        }
        let key = lower(path);
        let start = key.len() + 1;
        let all = self
            .below(&key)
            .into_iter()
            .filter(|below| !below[start..].contains('\\'));
        Ok(all
            .filter_map(|below| {
                let node = self.nodes.get(&below)?;
                let name = node
                    .shown
                    .rsplit('\\')
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                Some(DirectoryEntry {
                    name,
                    stat: stat_of(node),
                })
            })
            .collect())
    }

    pub(crate) fn remove_folder(&mut self, path: &str) -> Result<()> {
        let key = lower(path);
        let node = self.find(path)?;
        if !node.folder {
            return refused(267);
        }
        if !is_link(node) && !self.below(&key).is_empty() {
            return refused(145);
        }
        self.nodes.remove(&key);
        Ok(())
    }

    /// As `std::fs::remove_dir_all`: the deepest entries first, links themselves, and removed entries stay removed
    /// after a failure.
    pub(crate) fn remove_tree(&mut self, path: &str) -> Result<()> {
        let key = lower(path);
        let node = self.find(path)?;
        if !node.folder {
            return refused(267);
        }
        for below in self.below(&key).into_iter().rev() {
            if self.runs(&below) {
                return refused(5);
            }
            if self.is_held(&below) {
                return refused(32);
            }
            self.drop_node(&below);
        }
        self.nodes.remove(&key);
        Ok(())
    }

    // What tests and the rest of the host do to a disk beside the interface.

    pub(crate) fn put(&mut self, path: &str, bytes: &[u8]) {
        let key = lower(path);
        let mut parents = Vec::new();
        let mut at = above(path.trim_end_matches('\\'));
        while let Some(folder) = at.filter(|folder| !self.nodes.contains_key(&lower(folder))) {
            parents.push(folder.to_owned());
            at = above(folder);
        }
        for folder in parents.into_iter().rev() {
            let security = self.inherited(&lower(&folder), true);
            self.put_folder(&folder, security);
        }
        let security = self.inherited(&key, false);
        let node = self.node(path, false, Arc::new(bytes.to_vec()), security);
        self.drop_node(&key);
        self.free = self.free.saturating_sub(bytes.len() as u64);
        self.nodes.insert(key, node);
    }

    pub(crate) fn link(&mut self, path: &str, folder: bool, tag: u32) {
        self.put(path, b"");
        if let Some(node) = self.nodes.get_mut(&lower(path)) {
            node.folder = folder;
            node.attributes |= ATTRIBUTE_REPARSE;
            node.tag = tag;
        }
    }

    pub(crate) fn hold(&mut self, path: &str, until: Option<u64>, share_delete: bool) {
        if let Some(node) = self.nodes.get_mut(&lower(path)) {
            node.holders.push(FileHolder {
                until,
                share_delete,
            });
        }
    }

    pub(crate) fn let_go(&mut self) {
        for node in self.nodes.values_mut() {
            node.holders.clear();
        }
    }

    /// Every path with its content, for comparisons.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, bool, &[u8])> {
        self.nodes
            .values()
            .map(|node| (node.shown.as_str(), node.folder, &node.content[..]))
    }
}

fn is_link(node: &DiskNode) -> bool {
    node.attributes & ATTRIBUTE_REPARSE != 0 && node.tag & TAG_NAME_SURROGATE != 0
}

fn stat_of(node: &DiskNode) -> Look {
    Look {
        folder: node.folder,
        size: node.content.len() as u64,
        attributes: node.attributes,
        tag: node.tag,
        modified_ms: node.modified_ms,
    }
}
