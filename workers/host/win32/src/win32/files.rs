//! Files and folders. `std` where it makes the one call that the interface names; it falls back to other calls in
//! `rename`, `remove_file` and `symlink_metadata`, so these are called directly.
#![expect(unsafe_code, reason = "calls Win32")]

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::windows::{
        fs::{MetadataExt, OpenOptionsExt},
        io::{AsRawHandle, FromRawHandle},
    },
    path::Path,
    ptr::{null, null_mut},
};

use dormer_host::{
    content,
    ops::{
        ATTRIBUTE_REPARSE, Bytes, Content, ContentSource, Digest, DirectoryCreate, DirectoryEntry,
        FileAttributes, FileRead, FileRename, FileRights, FileWriteNew, Look, Rights, Security,
        Space,
    },
};
use windows_sys::Win32::{
    Foundation::{
        ERROR_INVALID_DATA, ERROR_INVALID_PARAMETER, GENERIC_WRITE, INVALID_HANDLE_VALUE, LocalFree,
    },
    Security::{
        Authorization::{ConvertStringSecurityDescriptorToSecurityDescriptorW, SDDL_REVISION_1},
        DACL_SECURITY_INFORMATION, GetKernelObjectSecurity, OWNER_SECURITY_INFORMATION,
        PROTECTED_DACL_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR, SECURITY_ATTRIBUTES,
        SetKernelObjectSecurity,
    },
    Storage::FileSystem::{
        CREATE_NEW, CreateDirectoryW, CreateFileW, DELETE, DeleteFileW, FILE_ATTRIBUTE_NORMAL,
        FILE_ATTRIBUTE_TAG_INFO, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
        FILE_READ_ATTRIBUTES, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE,
        FileAttributeTagInfo, GetDiskFreeSpaceExW, GetFileInformationByHandleEx,
        GetFileVersionInfoSizeW, GetFileVersionInfoW, MOVEFILE_REPLACE_EXISTING, MoveFileExW,
        READ_CONTROL, SetFileAttributesW, VS_FIXEDFILEINFO, VerQueryValueW, WRITE_DAC, WRITE_OWNER,
    },
};

use super::{
    error::{self, Result},
    text,
};
use crate::descriptor;

/// Every sharing.
const SHARE_ALL: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
/// 1970 as a FILETIME.
const UNIX_EPOCH: u64 = 116_444_736_000_000_000;

/// Opens what is at a path, folder or link, for no more than `access`.
fn open(path: &str, access: u32) -> Result<File> {
    OpenOptions::new()
        .access_mode(access)
        .share_mode(SHARE_ALL)
        .custom_flags(FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT)
        .open(path)
        .map_err(|error| error::io(&error))
}

/// Opens a file for reading, with every sharing allowed.
fn open_to_read(path: &str) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).share_mode(SHARE_ALL);
    options.open(path).map_err(|error| error::io(&error))
}

pub(super) fn describe(path: &str) -> Result<Look> {
    let file = open(path, FILE_READ_ATTRIBUTES)?;
    let about = file.metadata().map_err(|error| error::io(&error))?;
    let tag = if about.file_attributes() & ATTRIBUTE_REPARSE == 0 {
        0
    } else {
        tag(&file)?
    };
    Ok(described(&about, tag))
}

fn described(about: &Metadata, tag: u32) -> Look {
    const DIRECTORY: u32 = 0x10;
    let attributes = about.file_attributes();
    let folder = attributes & DIRECTORY != 0;
    Look {
        folder,
        size: if folder { 0 } else { about.file_size() },
        attributes,
        tag,
        modified_ms: unix_ms(about.last_write_time()),
    }
}

/// Milliseconds since 1970 of a FILETIME.
pub(super) fn unix_ms(time: u64) -> i64 {
    (time.cast_signed() - UNIX_EPOCH.cast_signed()).div_euclid(10_000)
}

fn tag(file: &File) -> Result<u32> {
    let mut info = FILE_ATTRIBUTE_TAG_INFO::default();
    // SAFETY: the handle is open; the buffer is as large as is said.
    error::check(unsafe {
        GetFileInformationByHandleEx(
            file.as_raw_handle(),
            FileAttributeTagInfo,
            (&raw mut info).cast(),
            size_of_val(&info) as u32,
        )
    })?;
    Ok(info.ReparseTag)
}

pub(super) fn security(path: &str) -> Result<Security> {
    let file = open(path, READ_CONTROL)?;
    let what = OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION;
    let mut bytes = vec![0_u8; 4096];
    loop {
        let mut needed = 0;
        // SAFETY: the handle is open; the buffer is as large as is said.
        let read = unsafe {
            GetKernelObjectSecurity(
                file.as_raw_handle(),
                what,
                bytes.as_mut_ptr().cast(),
                bytes.len() as u32,
                &raw mut needed,
            )
        };
        if read != 0 {
            return descriptor::parse(&bytes).ok_or_else(|| error::code(ERROR_INVALID_DATA));
        }
        let error = error::last();
        if needed as usize <= bytes.len() {
            return Err(error);
        }
        bytes.resize(needed as usize, 0);
    }
}

pub(super) fn set_rights(ask: &FileRights) -> Result<()> {
    let sddl = ask.rights.sddl(describe(&ask.path)?.folder);
    let descriptor = Descriptor::new(sddl.ok_or_else(|| error::code(ERROR_INVALID_PARAMETER))?)?;
    let file = open(&ask.path, WRITE_DAC | WRITE_OWNER)?;
    let what = OWNER_SECURITY_INFORMATION
        | DACL_SECURITY_INFORMATION
        | PROTECTED_DACL_SECURITY_INFORMATION;
    // SAFETY: the handle is open; the descriptor lives as long as the call.
    error::check(unsafe { SetKernelObjectSecurity(file.as_raw_handle(), what, descriptor.0) })
}

pub(super) fn digest(path: &str) -> Result<Digest> {
    content::digest(open_to_read(path)?).map_err(|error| error::io(&error))
}

pub(super) fn read(ask: &FileRead) -> Result<Content> {
    let mut file = open_to_read(&ask.path)?;
    let mut read = || {
        let size = file.metadata()?.len();
        if ask.end {
            file.seek(SeekFrom::Start(size.saturating_sub(ask.most)))?;
        }
        let mut bytes = Vec::new();
        (&file).take(ask.most).read_to_end(&mut bytes)?;
        Ok(Content {
            bytes: Bytes(bytes),
            size,
        })
    };
    read().map_err(|error: std::io::Error| error::io(&error))
}

/// A security descriptor that Windows allocated.
struct Descriptor(PSECURITY_DESCRIPTOR);

impl Descriptor {
    fn new(sddl: &str) -> Result<Self> {
        let sddl = text::wide(sddl)?;
        let mut descriptor = null_mut();
        // SAFETY: the text ends with a NUL; what is allocated is freed once, when this is dropped.
        error::check(unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                sddl.as_ptr(),
                SDDL_REVISION_1,
                &raw mut descriptor,
                null_mut(),
            )
        })?;
        Ok(Self(descriptor))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it was allocated by the conversion, and has no other owner.
        unsafe { LocalFree(self.0) };
    }
}

/// Calls `create` with the attributes for these rights; a null pointer for inherited ones.
fn with_rights<T>(
    rights: Rights,
    folder: bool,
    create: impl FnOnce(*const SECURITY_ATTRIBUTES) -> T,
) -> Result<T> {
    let Some(sddl) = rights.sddl(folder) else {
        return Ok(create(null()));
    };
    let descriptor = Descriptor::new(sddl)?;
    let attributes = SECURITY_ATTRIBUTES {
        nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
        lpSecurityDescriptor: descriptor.0,
        bInheritHandle: 0,
    };
    Ok(create(&raw const attributes))
}

pub(super) fn write_new(ask: &FileWriteNew) -> Result<Digest> {
    // Opened first: where it is not there no file is begun.
    let staged = match &ask.source {
        ContentSource::Inline { .. } => None,
        ContentSource::Staged { path, .. } => Some(open_to_read(path).map_err(|mut error| {
            error.text = format!("{path}: {}", error.text);
            error
        })?),
    };
    let path = text::path(&ask.path)?;
    let handle = with_rights(ask.rights, false, |attributes| {
        // SAFETY: the path ends with a NUL; the attributes and their descriptor live as long as the call.
        let handle = unsafe {
            CreateFileW(
                path.as_ptr(),
                GENERIC_WRITE,
                0,
                attributes,
                CREATE_NEW,
                FILE_ATTRIBUTE_NORMAL,
                null_mut(),
            )
        };
        if handle == INVALID_HANDLE_VALUE {
            Err(error::last())
        } else {
            Ok(handle)
        }
    })??;
    // SAFETY: it was just opened, and has no other owner.
    let mut file = unsafe { File::from_raw_handle(handle) };
    let copied = match (&ask.source, staged) {
        (ContentSource::Staged { gzip, .. }, Some(staged)) => {
            content::copy(staged, *gzip, &mut file)
        }
        (ContentSource::Inline { bytes }, _) => content::copy(&bytes.0[..], false, &mut file),
        (ContentSource::Staged { .. }, None) => unreachable!("a staged file was opened above"),
    };
    let digest = copied.map_err(|error| error::io(&error))?;
    file.sync_all().map_err(|error| error::io(&error))?;
    Ok(digest)
}

pub(super) fn rename(ask: &FileRename) -> Result<()> {
    let from = text::path(&ask.from)?;
    let to = text::path(&ask.to)?;
    let flags = if ask.replace {
        MOVEFILE_REPLACE_EXISTING
    } else {
        0
    };
    // SAFETY: both paths end with a NUL.
    error::check(unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), flags) })
}

pub(super) fn delete(path: &str) -> Result<()> {
    let path = text::path(path)?;
    // SAFETY: the path ends with a NUL.
    error::check(unsafe { DeleteFileW(path.as_ptr()) })
}

pub(super) fn probe(path: &str) -> Result<()> {
    OpenOptions::new()
        .access_mode(DELETE)
        .share_mode(SHARE_ALL)
        .custom_flags(FILE_FLAG_OPEN_REPARSE_POINT)
        .open(path)
        .map(drop)
        .map_err(|error| error::io(&error))
}

pub(super) fn attributes(ask: &FileAttributes) -> Result<()> {
    let path = text::path(&ask.path)?;
    // SAFETY: the path ends with a NUL.
    error::check(unsafe { SetFileAttributesW(path.as_ptr(), ask.attributes) })
}

pub(super) fn version(path: &str) -> Result<[u16; 4]> {
    let path = text::path(path)?;
    // SAFETY: the path ends with a NUL; the second pointer may be null.
    let size = unsafe { GetFileVersionInfoSizeW(path.as_ptr(), null_mut()) };
    if size == 0 {
        return Err(error::last());
    }
    let mut bytes = vec![0_u8; size as usize];
    // SAFETY: the buffer is as large as is said.
    error::check(unsafe {
        GetFileVersionInfoW(path.as_ptr(), 0, size, bytes.as_mut_ptr().cast())
    })?;
    let root = text::wide(r"\")?;
    let mut found = null_mut();
    let mut length = 0;
    // SAFETY: the buffer was filled by the call above; what is answered points into it.
    error::check(unsafe {
        VerQueryValueW(
            bytes.as_ptr().cast(),
            root.as_ptr(),
            &raw mut found,
            &raw mut length,
        )
    })?;
    if (length as usize) < size_of::<VS_FIXEDFILEINFO>() {
        return Err(error::code(ERROR_INVALID_DATA));
    }
    // SAFETY: it has the length of the structure; nothing is said of its alignment.
    let info: VS_FIXEDFILEINFO = unsafe { found.cast::<VS_FIXEDFILEINFO>().read_unaligned() };
    let halves = |number: u32| [(number >> 16) as u16, (number & 0xffff) as u16];
    let [a, b] = halves(info.dwFileVersionMS);
    let [c, d] = halves(info.dwFileVersionLS);
    Ok([a, b, c, d])
}

pub(super) fn directory_create(ask: &DirectoryCreate) -> Result<()> {
    let path = text::path(&ask.path)?;
    with_rights(ask.rights, true, |attributes| {
        // SAFETY: the path ends with a NUL; the attributes and their descriptor live as long as the call.
        error::check(unsafe { CreateDirectoryW(path.as_ptr(), attributes) })
    })?
}

pub(super) fn directory_list(path: &str) -> Result<Vec<DirectoryEntry>> {
    let list = || {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push((name, entry.metadata()?));
        }
        Ok(found)
    };
    let found = list().map_err(|error: std::io::Error| error::io(&error))?;
    let mut entries = Vec::new();
    for (name, about) in found {
        let mut stat = described(&about, 0);
        if stat.attributes & ATTRIBUTE_REPARSE != 0 {
            stat.tag = tag(&open(
                &Path::new(path).join(&name).to_string_lossy(),
                FILE_READ_ATTRIBUTES,
            )?)?;
        }
        entries.push(DirectoryEntry { name, stat });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

pub(super) fn directory_remove(path: &str) -> Result<()> {
    std::fs::remove_dir(path).map_err(|error| error::io(&error))
}

pub(super) fn tree_remove(path: &str) -> Result<()> {
    std::fs::remove_dir_all(path).map_err(|error| error::io(&error))
}

pub(super) fn space(path: &str) -> Result<Space> {
    let path = text::path(path)?;
    let mut total = 0;
    let mut free = 0;
    // SAFETY: the path ends with a NUL; the first number (free for this user) may be left out.
    error::check(unsafe {
        GetDiskFreeSpaceExW(path.as_ptr(), null_mut(), &raw mut total, &raw mut free)
    })?;
    Ok(Space { free, total })
}

pub(super) fn lock(path: &str) -> Result<File> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .share_mode(0);
    options.open(path).map_err(|error| error::io(&error))
}
