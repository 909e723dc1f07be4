//! Files and folders named on the command line.

use super::Failure;
use std::{fmt::Display, io, path::Path};

/// Failure of a file or folder that the command line names by `flag` (`--layer`, or an argument such as `DIR`).
pub fn unreadable(flag: &str, path: &Path, why: impl Display) -> Failure {
    Failure::Usage(format!("{flag} {}: {why}", path.display()))
}

/// Text of a file that the command line names by `flag`.
///
/// # Errors
/// [`Failure::Usage`]: the file cannot be read, or is longer than `bytes_max`.
pub fn read(flag: &str, path: &Path, bytes_max: u64) -> Result<String, Failure> {
    let failed = |why: String| unreadable(flag, path, why);
    let cannot = |error: io::Error| {
        let folder = path.parent().filter(|folder| folder.is_dir());
        match (error.kind(), folder, path.file_name()) {
            (io::ErrorKind::NotFound, Some(folder), Some(file)) if folder.as_os_str() != "" => {
                let folder = folder.display();
                failed(format!("the folder {folder} has no {}", file.display()))
            }
            _ => failed(error.to_string()),
        }
    };
    let size = std::fs::metadata(path).map_err(cannot)?.len();
    if size > bytes_max {
        return Err(failed(format!(
            "the file has {size} bytes, but at most {bytes_max} are allowed"
        )));
    }
    std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_there_is_not_called_missing_and_the_flag_is_named() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let failure = |path: &str| read("--layer", &here.join(path), 10).unwrap_err();
        let said = |path: &str| failure(path).to_string();
        assert!(said("no-such.yaml").ends_with("has no no-such.yaml"));
        let typed = here.join("no-such.yaml").display().to_string();
        assert!(said("no-such.yaml").starts_with(&format!("--layer {typed}: the folder ")));
        assert!(said("nowhere/x.yaml").contains("No such file"));
        assert!(said("nowhere/x.yaml").starts_with("--layer "));
        assert!(matches!(failure("lib.rs"), Failure::Usage(why) if why.contains("at most 10")));
    }
}
