//! Paths: where everything of ours lies on a host, and which names a document may hold.

use dormer_profile::windows_name;

/// Where everything of ours lies on a host. No space in it, so one line without quotes starts the program under every
/// shell; only administrators may write there from the start (docs/field-notes.md, Access rights of files).
pub const ROOT: &str = r"C:\Windows\dormer";
/// The program, under names by its hash: `dormer-host-<hash16>.exe`.
pub const BIN: &str = r"C:\Windows\dormer\bin";
/// Uploads.
pub const STAGING: &str = r"C:\Windows\dormer\staging";
/// State of the program; only administrators may read it.
pub const STATE: &str = r"C:\Windows\dormer\state";
/// Where the script of earlier releases kept the same things; taken over, then removed.
pub const OLD_ROOT: &str = r"C:\ProgramData\dormer";
/// State of CNI plugins; the addresses that host-local gave lie in `networks`.
pub(crate) const CNI: &str = r"C:\var\lib\cni";

/// A file in [`STATE`].
pub(crate) fn state(name: &str) -> String {
    format!(r"{STATE}\{name}")
}

pub fn program_path(sha256: &str) -> String {
    format!(
        r"{BIN}\dormer-host-{}.exe",
        sha256.get(..16).unwrap_or(sha256)
    )
}

/// The folder above; none above a drive's own.
pub(crate) fn parent(path: &str) -> Option<&str> {
    let (above, name) = path.rsplit_once('\\')?;
    (!above.is_empty() && !name.is_empty() && above.len() > 2).then_some(above)
}

/// The last name of a path.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit('\\').next().unwrap_or(path)
}

/// Whether `path` is `folder`, or lies below it; without regard to case, as Windows compares.
pub(crate) fn within(path: &str, folder: &str) -> bool {
    let path = path.to_ascii_lowercase();
    let folder = folder.to_ascii_lowercase();
    path.strip_prefix(folder.trim_end_matches('\\'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('\\'))
}

/// Whether two paths or names are the same to Windows. Letters beyond ASCII count as they are written: the tables that
/// fold them take 29 KB, and Unicode's fold a Kelvin sign into the `k` of another folder, which Windows' do not.
pub(crate) fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Longest path of a document, in UTF-16 units: short enough for programs that know no long paths.
const PATH_UNITS_MAX: usize = 240;

/// Why a path of a document is refused; none when it is a path that Windows keeps as it is written.
///
/// Reserved names open devices, trailing dots and spaces vanish, `:` names a stream, `~` may be
/// another file's short name (docs/field-notes.md, Files of Windows).
pub(crate) fn refused(path: &str) -> Option<&'static str> {
    let bytes = path.as_bytes();
    if bytes.len() < 4 || !bytes[0].is_ascii_alphabetic() || &bytes[1..3] != b":\\" {
        return Some("is not an absolute path with a drive");
    }
    if path.encode_utf16().count() > PATH_UNITS_MAX {
        return Some("is too long");
    }
    path[3..].split('\\').find_map(windows_name::refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_windows_keeps_are_taken() {
        for path in [
            r"C:\k\kubelet.exe",
            r"C:\k\auxiliary\com10.txt",
            r"C:\Program Files\a b\.hidden",
        ] {
            assert_eq!(refused(path), None, "{path}");
        }
        for path in [
            "",
            "C:",
            r"C:\",
            r"k\x",
            "/k/x",
            r"\\server\share\x",
            r"C:\k\..\x",
            r"C:\k\.\x",
            r"C:\k\x.",
            r"C:\k\x ",
            r"C:\k\x:stream",
            r"C:\k\nul",
            r"C:\k\NUL.txt",
            r"C:\k\com1.log",
            r"C:\k\LPT³",
            r"C:\k\aux .txt",
            r"C:\PROGRA~1\x",
            r"C:\k\\x",
            r"C:\k\a*b",
            "C:\\k\\a\u{1}b",
            "C:/k/x",
            r"C:\k\",
        ] {
            assert!(refused(path).is_some(), "{path}");
        }
        let long = format!(r"C:\{}", "x".repeat(238));
        assert_eq!(refused(&long), Some("is too long"));
    }

    #[test]
    fn a_path_lies_within_its_folders_alone() {
        assert!(within(r"C:\K\pki\x", r"c:\k"));
        assert!(within(r"C:\k", r"C:\k\"));
        assert!(!within(r"C:\kube\x", r"C:\k"));
        assert_eq!(parent(r"C:\k\x"), Some(r"C:\k"));
        assert_eq!(parent(r"C:\k"), None);
        assert_eq!(name(r"C:\k\x"), "x");
    }
}
