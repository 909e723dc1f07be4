//! Files for a payload: as they are, or in archives as newer images of WMCO hold them.

use dormer_client::{Failure, file::unreadable};
use dormer_profile::payload::PAYLOAD_FILE_BYTES_MAX;
use flate2::read::GzDecoder;
use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

/// Ending of an archive.
const ARCHIVE: &str = ".tar.gz";

/// Place of a file.
#[derive(Debug)]
pub(super) enum PayloadLocation {
    /// A file of its own.
    File(PathBuf),
    /// A file in an archive, by its path in it.
    Member(PathBuf, PathBuf),
}

impl fmt::Display for PayloadLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Member(archive, member) => {
                write!(f, "{} in {}", member.display(), archive.display())
            }
        }
    }
}

impl PayloadLocation {
    /// Content of the file.
    ///
    /// # Errors
    /// It cannot be read, in a sentence.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::File(path) => {
                let file = File::open(path).map_err(|error| error.to_string())?;
                limited(file)
            }
            Self::Member(archive, member) => {
                let mut archive = open(archive)?;
                for entry in archive.entries().map_err(|error| error.to_string())? {
                    let entry = entry.map_err(|error| error.to_string())?;
                    if entry.path().is_ok_and(|path| path == member.as_path()) {
                        return limited(entry);
                    }
                }
                Err("it is no longer in its archive".to_owned())
            }
        }
    }
}

/// At most as many bytes as a payload's file may have, and one more so that the manifest's check refuses it.
fn limited(from: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut from = from.take(PAYLOAD_FILE_BYTES_MAX + 1);
    from.read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn open(archive: &Path) -> Result<tar::Archive<GzDecoder<File>>, String> {
    let file = File::open(archive).map_err(|error| error.to_string())?;
    Ok(tar::Archive::new(GzDecoder::new(file)))
}

/// Files at these places, which `flag` names, and in their folders, by name; only the `wanted` ones, if names are given. Archives are opened
/// for wanted ones only.
///
/// # Errors
/// A place cannot be read, or two files have one name.
pub(super) fn collect(
    flag: &str,
    places: &[PathBuf],
    wanted: Option<&[String]>,
) -> Result<BTreeMap<String, PayloadLocation>, Failure> {
    let mut found = BTreeMap::new();
    let mut left: Vec<PathBuf> = places.to_vec();
    while let Some(path) = left.pop() {
        let failed = |why: String| unreadable(flag, &path, why);
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).map_err(|e| failed(e.to_string()))?;
            for entry in entries {
                left.push(entry.map_err(|e| failed(e.to_string()))?.path());
            }
            continue;
        }
        for (name, one) in files(&path, wanted).map_err(failed)? {
            if wanted.is_some_and(|wanted| !wanted.contains(&name)) {
                continue;
            }
            if let Some(before) = found.insert(name.clone(), one) {
                let now = &found[&name];
                let why = format!("{flag}: {name} is there twice: {before}, and {now}");
                return Err(Failure::refused(why, "name only one of them"));
            }
        }
    }
    Ok(found)
}

/// A file, or those in an archive.
fn files(path: &Path, wanted: Option<&[String]>) -> Result<Vec<(String, PayloadLocation)>, String> {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .ok_or("it has no name")?;
    if wanted.is_none() || !name.ends_with(ARCHIVE) {
        // What cannot be read fails here, and not after the first files were written.
        File::open(path).map_err(|error| error.to_string())?;
        return Ok(vec![(name, PayloadLocation::File(path.to_owned()))]);
    }
    let mut members = Vec::new();
    for entry in open(path)?.entries().map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        let member = entry
            .path()
            .map_err(|error| error.to_string())?
            .into_owned();
        if !entry.header().entry_type().is_file() {
            continue;
        }
        if let Some(name) = member.file_name() {
            let name = name.to_string_lossy().into_owned();
            members.push((name, PayloadLocation::Member(path.to_owned(), member)));
        }
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_twice_is_named_with_both_paths() {
        let folder = tempfile::tempdir().expect("a folder");
        let folders = ["a", "b"].map(|name| folder.path().join(name));
        for one in &folders {
            std::fs::create_dir(one).expect("a folder");
            std::fs::write(one.join("kubelet.exe"), "x").expect("a file");
        }
        let refused = collect("--files", &folders, None).expect_err("twice");
        let text = refused.to_string();
        for one in &folders {
            let path = one.join("kubelet.exe").display().to_string();
            assert!(text.contains(&path), "{path}: {text}");
        }
        assert!(!text.contains("File("), "{text}");
    }
}
