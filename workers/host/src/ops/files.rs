//! Operations on files, folders and the host lock. Numbers: docs/field-notes.md, Files of Windows;
//! docs/field-notes.md, Access rights of files.

use serde::{Deserialize, Serialize};

use super::{Bytes, CONTENT_MS, ContentSource, Digest, QUICK_MS, Rights, ask};

ask! {
    /// What is at a path: `FindFirstFileExW`, or `CreateFileW` with `FILE_FLAG_OPEN_REPARSE_POINT` and
    /// `GetFileInformationByHandleEx`. A link is described itself, never what it leads to.
    ///
    /// Refuses with 2 (not there), 3 (a folder above it is not there), 5, 123 (no name for a file).
    FileInformation, "file_information", reads, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
    } -> Stat;

    /// Owner and access list of a file or folder: `GetKernelObjectSecurity` on a handle opened with `READ_CONTROL` and
    /// `FILE_FLAG_OPEN_REPARSE_POINT`.
    ///
    /// Refuses with 2, 3, 5.
    FileSecurity, "file_security", reads, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
    } -> Security;

    /// Gives one existing object the owner and access list of `rights` (not [`Rights::Inherited`]):
    /// `SetKernelObjectSecurity` on a handle with `WRITE_DAC | WRITE_OWNER` and `FILE_FLAG_OPEN_REPARSE_POINT`. The
    /// contents of a folder stay unchanged: the caller walks the tree.
    ///
    /// Refuses with 2, 3, 5, 87 (inherited), 1307 and 1314 (may not set that owner).
    FileRights, "file_rights", changes, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
        /// Its rights from now on.
        rights: Rights,
    } -> ();

    /// SHA-256 and size of a file, read with every sharing allowed: works on programs that run.
    ///
    /// Refuses with 2, 3, 5 (a folder, too), 32, 33, 225 (a virus scanner holds it back).
    FileDigest, "file_digest", reads, |_| CONTENT_MS, {
        /// Full path on the host.
        path: String,
    } -> Digest;

    /// At most `most` bytes of a file, from its begin or up to its end, read with every sharing allowed.
    ///
    /// Refuses as [`FileDigest`].
    FileRead, "file_read", reads, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
        /// Most bytes.
        most: u64,
        /// The last bytes instead of the first.
        end: bool,
    } -> Content;

    /// A new file with this content: `CreateFileW(CREATE_NEW, share none)` with the security descriptor of `rights`,
    /// written, `FlushFileBuffers` on the same handle, closed. Inflates and hashes on the way
    /// (`dormer_host::content::copy`). What was begun and failed stays behind as it is: the caller deletes it.
    ///
    /// Refuses with 80 (exists), 3, 5, 112 or 39 (disk full), 225, 13 (`ERROR_INVALID_DATA`: the staged file is no whole
    /// gzip file), 2 (the staged file is not there: `text` begins with its path).
    FileWriteNew, "file_write_new", changes, |_| CONTENT_MS, {
        path: String,
        source: ContentSource,
        rights: Rights,
    } -> Digest;

    /// `MoveFileExW`, with `MOVEFILE_REPLACE_EXISTING` if asked, without `COPY_ALLOWED`. A moved object keeps its own
    /// rights. Folders can be moved, but never replaced.
    ///
    /// Refuses with 2, 3, 5 (the target is open, runs, or is read-only; a folder has something open in it), 17 (another
    /// volume), 32 (the source is open), 183 (the target exists).
    FileRename, "file_rename", changes, |_| QUICK_MS, {
        /// From here.
        from: String,
        /// To here.
        to: String,
        /// Whether an existing file is replaced.
        replace: bool,
    } -> ();

    /// `DeleteFileW`. For a link, the link itself is deleted.
    ///
    /// Refuses with 2, 3, 5 (runs, read-only, a folder, or being deleted), 32.
    FileDelete, "file_delete", changes, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
    } -> ();

    /// Whether a process holds a file so that it cannot be replaced: opens it for `DELETE` with every sharing allowed
    /// and closes it again. Never opens without sharing: some scanners take that for an attack (astral-sh/uv#20955).
    ///
    /// Refuses with 2, 3, 5, 32 (it is held).
    FileProbe, "file_probe", reads, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
    } -> ();

    /// `SetFileAttributesW`.
    ///
    /// Refuses with 2, 3, 5.
    FileAttributes, "file_attributes", changes, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
        /// `FILE_ATTRIBUTE_*`; 128 is `NORMAL`.
        attributes: u32,
    } -> ();

    /// The version in a program's resources, four numbers: `GetFileVersionInfoW`, `VS_FIXEDFILEINFO`.
    ///
    /// Refuses with 2, 3, 1812 (no resources), 1813 (no version).
    FileVersion, "file_version", reads, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
    } -> [u16; 4];

    /// `CreateDirectoryW` with the security descriptor of `rights`; the folder above it must be there.
    ///
    /// Refuses with 3, 5, 183 (something is there: a file, too).
    DirectoryCreate, "directory_create", changes, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
        rights: Rights,
    } -> ();

    /// Entries of a folder, by name, without `.` and `..`.
    ///
    /// Refuses with 2, 3, 5, 267 (a file).
    DirectoryList, "directory_list", reads, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
    } -> Vec<DirectoryEntry>;

    /// `RemoveDirectoryW`: an empty folder, or a link to one.
    ///
    /// Refuses with 2, 3, 5, 32 (a process's current folder), 145 (not empty), 267 (a file).
    DirectoryRemove, "directory_remove", changes, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
    } -> ();

    /// Deletes a folder with its contents, read-only files included. Walks by handles relative to the parent folder, as
    /// `std::fs::remove_dir_all` does: a link is deleted itself, and its target stays (CVE-2022-21658). Stops at the
    /// first object that cannot be deleted; deleted ones stay deleted.
    ///
    /// Refuses with 2, 3, 5, 32, 145, 267.
    TreeRemove, "tree_remove", changes, |_| 600_000, {
        /// Full path on the host.
        path: String,
    } -> ();

    /// `GetDiskFreeSpaceExW`: the total of free bytes, without regard to quotas.
    VolumeSpace, "volume_space", reads, |_| QUICK_MS, {
        /// A folder on the volume.
        path: String,
    } -> Space;

    /// The host lock: opens (or makes) a file for writing, without any sharing, and keeps it open.
    ///
    /// Refuses with 32 (another process holds it), 3, 5. By this host value held already: answers `()` again.
    LockTake, "lock_take", changes, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
    } -> ();

    /// Closes what [`LockTake`] opened; not held: `()`, too. The end of the process does the same.
    LockRelease, "lock_release", changes, |_| QUICK_MS, {
        /// Full path on the host.
        path: String,
    } -> ();
}

/// Object at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Whether it is a folder (or a link to one).
    pub folder: bool,
    /// Size in bytes; 0 for folders.
    pub size: u64,
    /// `FILE_ATTRIBUTE_*`.
    pub attributes: u32,
    /// Reparse tag; 0 without one.
    pub tag: u32,
    /// Last change, milliseconds since 1970 UTC.
    pub modified_ms: i64,
}

/// `FILE_ATTRIBUTE_READONLY`.
pub const ATTRIBUTE_READ_ONLY: u32 = 0x1;
/// `FILE_ATTRIBUTE_NORMAL`.
pub const ATTRIBUTE_NORMAL: u32 = 0x80;
/// `FILE_ATTRIBUTE_REPARSE_POINT`.
pub const ATTRIBUTE_REPARSE: u32 = 0x400;
/// Bit of a reparse tag for a name surrogate (link). Deduplicated files lack it.
pub const TAG_NAME_SURROGATE: u32 = 0x2000_0000;

impl Stat {
    /// Whether it is a true link: a junction or a symbolic link.
    pub const fn is_link(&self) -> bool {
        self.attributes & ATTRIBUTE_REPARSE != 0 && self.tag & TAG_NAME_SURROGATE != 0
    }
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryEntry {
    /// Name within the folder, without a path.
    pub name: String,
    /// Kind of object.
    #[serde(flatten)]
    pub stat: Stat,
}

/// Bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Requested bytes.
    pub bytes: Bytes,
    /// Size of the whole file.
    pub size: u64,
}

/// Room on a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Free bytes.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// Owner and access list of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Security {
    /// SID of the owner, `S-1-5-32-544`.
    pub owner: String,
    /// Whether nothing is inherited (`SE_DACL_PROTECTED`).
    pub protected: bool,
    /// Entries in their order; `None`: there is no list, so every user has all rights.
    pub entries: Option<Vec<Ace>>,
}

/// One entry of an access list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ace {
    /// Whether it allows; otherwise it denies. Entries of other types are left out.
    pub allow: bool,
    /// SID of the user or group.
    pub sid: String,
    /// Which rights.
    pub mask: u32,
    /// `ACE_FLAGS`: 1 object inherit, 2 container inherit, 4 no propagation, 8 inherit only, 16 inherited.
    pub flags: u8,
}
