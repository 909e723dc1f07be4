//! Reading of files named on the command line.

use super::Failure;
use std::{io, path::Path};

/// Text of a file named on the command line.
///
/// # Errors
/// The file cannot be read, or is longer than `bytes_max`.
pub fn read(path: &Path, bytes_max: u64) -> Result<String, Failure> {
    let failed = |why: String| Failure::refused(format!("{}: {why}", path.display()), "");
    let cannot = |error: io::Error| {
        let folder = path.parent().filter(|folder| folder.is_dir());
        match (error.kind(), folder, path.file_name()) {
            (io::ErrorKind::NotFound, Some(folder), Some(file)) if folder.as_os_str() != "" => {
                let (folder, file) = (folder.display(), file.display());
                Failure::refused(format!("{folder}: the folder has no {file}"), "")
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
    fn a_folder_that_is_there_is_not_called_missing() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let said = |path: &str| read(&here.join(path), 10).unwrap_err().to_string();
        assert!(said("no-such.yaml").ends_with("the folder has no no-such.yaml"));
        assert!(said("nowhere/x.yaml").contains("No such file"));
    }
}
