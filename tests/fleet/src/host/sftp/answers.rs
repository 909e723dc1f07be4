//! Packets that the SFTP server answers with.

use std::collections::HashMap;

use russh_sftp::protocol::{Attrs, File, FileAttributes, Name, Packet, StatusCode, Version};

use crate::host::disk::Stat;
use crate::host::profile::ServerRelease;

/// VERSION with the extensions that this release of sshd has.
pub(super) fn version(release: ServerRelease) -> Packet {
    let mut extensions: HashMap<String, String> = [
        ("posix-rename@openssh.com", "1"),
        ("statvfs@openssh.com", "2"),
        ("fstatvfs@openssh.com", "2"),
        ("hardlink@openssh.com", "1"),
        ("fsync@openssh.com", "1"),
        ("lsetstat@openssh.com", "1"),
    ]
    .into_iter()
    .map(|(name, version)| (name.to_owned(), version.to_owned()))
    .collect();
    if release.sftp_limits() {
        extensions.insert("limits@openssh.com".into(), "1".into());
        extensions.insert("expand-path@openssh.com".into(), "1".into());
    }
    Packet::Version(Version {
        version: 3,
        extensions,
    })
}

/// STATUS ok.
pub(super) fn ok(id: u32) -> Packet {
    Packet::status(id, StatusCode::Ok, "", "")
}

/// STATUS with an error.
pub(super) fn status(id: u32, code: StatusCode) -> Packet {
    Packet::error(id, code)
}

pub(super) fn attrs(id: u32, attrs: FileAttributes) -> Packet {
    Packet::Attrs(Attrs { id, attrs })
}

/// NAME with one path, as REALPATH answers.
pub(super) fn name(id: u32, path: String) -> Packet {
    Packet::Name(Name {
        id,
        files: vec![File::dummy(path)],
    })
}

/// NAME with the entries of a folder.
pub(super) fn listing(id: u32, entries: Vec<(String, Stat)>) -> Packet {
    let files = entries
        .into_iter()
        .map(|(name, stat)| File::new(name, attributes(stat)))
        .collect();
    Packet::Name(Name { id, files })
}

/// What is known of a path, in SFTP's form.
pub(super) fn attributes(stat: Stat) -> FileAttributes {
    let mut attributes = FileAttributes {
        size: Some(stat.size),
        permissions: Some(if stat.directory { 0o040_777 } else { 0o100_777 }),
        atime: Some(stat.modified_s),
        mtime: Some(stat.modified_s),
        ..FileAttributes::default()
    };
    attributes.uid = Some(0);
    attributes.gid = Some(0);
    attributes
}
