//! File with the login link, which only its owner reads.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Puts `link` into the file, in one step. Whatever stood there is replaced, and a link to another file is not
/// followed.
pub(super) fn write(file: &Path, link: &str) -> io::Result<()> {
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("--login-link {}: {error}", file.display()),
        )
    };
    let mut fresh = OsString::from(file);
    fresh.push(".new");
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(error)),
        _ => {}
    }
    // `create_new` follows no link, and opens no file that another user created there.
    let mut options = OpenOptions::new();
    let opened = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh);
    let written = opened.and_then(|mut out| writeln!(out, "{link}"));
    written
        .and_then(|()| std::fs::rename(&fresh, file))
        .map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_the_owner_reads_it_and_nothing_of_others_is_written_into() {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, other] = ["link", "other"].map(|name| folder.path().join(name));
        std::fs::write(&other, "theirs").expect("written");
        symlink(&other, &file).expect("a link");
        symlink(&other, folder.path().join("link.new")).expect("a link");
        for link in ["http://one", "http://two"] {
            write(&file, link).expect("written");
            let text = std::fs::read_to_string(&file).expect("a file");
            assert_eq!(text, format!("{link}\n"));
        }
        let about = std::fs::symlink_metadata(&file).expect("a file");
        assert!(about.is_file());
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&other).expect("a file"), "theirs");
        let nowhere = folder.path().join("no/link");
        let error = write(&nowhere, "x").expect_err("no folder").to_string();
        assert!(
            error.contains("--login-link") && error.contains("no/link"),
            "{error}"
        );
    }
}
