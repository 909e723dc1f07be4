//! Access rights of paths: the rights that our folders and files get, and the differences of existing rights.

use crate::{
    ops::{Ace, Rights, Security},
    paths::{same, within},
};

/// Folders that only administrators may list.
const PRIVATE: [&str; 4] = [
    r"C:\var\lib\kubelet\pki",
    r"C:\k\tls",
    r"C:\k\pki",
    r"C:\k\cni\config",
];
/// Files that only administrators may read, also if a document does not say so.
const PRIVATE_FILES: [&str; 3] = [
    r"C:\k\kubeconfig",
    r"C:\k\bootstrap-kubeconfig",
    r"C:\k\cloud.conf",
];
/// Folders that the kubelet fills for containers. A container that is no administrator writes its emptyDir by rights
/// that it inherits (csi-proxy#382, kubernetes#131341), so these are neither given, walked nor compared.
const KUBELET: &str = r"C:\var\lib\kubelet";
/// Folders that containerd makes itself, with its own rights (containerd, `MkdirAllWithACL`).
const CONTAINERD: [&str; 2] = [
    r"C:\ProgramData\containerd\root",
    r"C:\ProgramData\containerd\state",
];

/// Treatment of a folder's rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// It is made with these, and has to keep them.
    Given(Rights),
    /// It is created with inherited rights, which are never checked.
    Inherited,
    /// Another program creates it.
    NotOurs,
}

/// Treatment of the rights of a folder.
pub(crate) fn of_folder(path: &str) -> Care {
    if CONTAINERD.iter().any(|folder| within(path, folder)) {
        Care::NotOurs
    } else if PRIVATE.iter().any(|folder| within(path, folder)) || within(path, crate::paths::STATE)
    {
        Care::Given(Rights::Private)
    } else if within(path, KUBELET) {
        Care::Inherited
    } else {
        Care::Given(Rights::Users)
    }
}

/// Whether only administrators may read a file; `asked` is the document's value.
pub(crate) fn file_is_private(path: &str, asked: bool) -> bool {
    asked
        || PRIVATE_FILES.iter().any(|file| same(path, file))
        || PRIVATE.iter().any(|folder| within(path, folder))
}

const SYSTEM: &str = "S-1-5-18";
const ADMINISTRATORS: &str = "S-1-5-32-544";
const TRUSTED_INSTALLER: &str = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464";

/// Rights that permit a change of an object or its contents (docs/field-notes.md, Access rights of files).
const WRITES: u32 =
    0x2 | 0x4 | 0x10 | 0x40 | 0x100 | 0x1_0000 | 0x4_0000 | 0x8_0000 | GENERIC_WRITE;
const GENERIC_WRITE: u32 = 0x4000_0000 | 0x1000_0000 | 0x0200_0000;
/// Rights that permit reading: `FILE_READ_DATA`, `GENERIC_READ`, `GENERIC_ALL`, `MAXIMUM_ALLOWED`.
const READS: u32 = 0x1 | 0x8000_0000 | 0x1000_0000 | 0x0200_0000;

fn trusted(sid: &str) -> bool {
    [SYSTEM, ADMINISTRATORS, TRUSTED_INSTALLER].contains(&sid)
}

/// Who may change an object beside those who may; none is well.
pub(crate) fn foreign(security: &Security) -> Option<String> {
    if !trusted(&security.owner) {
        return Some(format!("belongs to {}", security.owner));
    }
    others(security, WRITES).map(|sid| format!("{sid} may write to it"))
}

/// Who may read a private object beside those who may; none is well.
pub(crate) fn readable(security: &Security) -> Option<String> {
    others(security, READS).map(|sid| format!("{sid} may read it"))
}

/// First untrusted user or group that has one of `rights`. Masks are compared instead of texts: generic rights come
/// back as specific ones. An entry only for children counts as well, since a future child inherits it.
fn others(security: &Security, rights: u32) -> Option<String> {
    let Some(entries) = &security.entries else {
        return Some("everybody".into());
    };
    let found = entries.iter().find(
        |Ace {
             allow, sid, mask, ..
         }| { *allow && mask & rights != 0 && !trusted(sid) },
    );
    found.map(|ace| ace.sid.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ace(sid: &str, mask: u32) -> Ace {
        Ace {
            allow: true,
            sid: sid.into(),
            mask,
            flags: 3,
        }
    }

    fn of(owner: &str, entries: Vec<Ace>) -> Security {
        Security {
            owner: owner.into(),
            protected: true,
            entries: Some(entries),
        }
    }

    #[test]
    fn others_may_read_and_run_but_not_write() {
        let ours = of(
            ADMINISTRATORS,
            vec![
                ace(SYSTEM, 0x001f_01ff),
                ace(ADMINISTRATORS, 0x001f_01ff),
                ace("S-1-5-32-545", 0x0012_00a9),
            ],
        );
        assert_eq!(foreign(&ours), None);
        assert!(readable(&ours).is_some());
        for mask in [0x2, 0x4, 0x40, 0x1_0000, 0x4_0000, 0x4000_0000, 0x1000_0000] {
            let theirs = of(ADMINISTRATORS, vec![ace("S-1-5-32-545", mask)]);
            assert!(foreign(&theirs).is_some(), "{mask:x}");
        }
        assert!(foreign(&of("S-1-5-21-1-2-3-1001", Vec::new())).is_some());
        let nothing = Security {
            entries: None,
            ..ours
        };
        assert!(foreign(&nothing).is_some());
    }

    #[test]
    fn the_table_of_folders() {
        assert_eq!(of_folder(r"C:\k\v1\cni"), Care::Given(Rights::Users));
        assert_eq!(
            of_folder(r"c:\var\lib\kubelet\PKI"),
            Care::Given(Rights::Private)
        );
        assert_eq!(of_folder(r"C:\var\lib\kubelet\pods\x"), Care::Inherited);
        assert_eq!(of_folder(r"C:\ProgramData\containerd\root"), Care::NotOurs);
        assert_eq!(of_folder(r"C:\k\cni\config"), Care::Given(Rights::Private));
        assert!(file_is_private(r"C:\k\kubeconfig", false));
        assert!(!file_is_private(r"C:\k\kubelet.exe", false));
    }
}
