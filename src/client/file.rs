//! Files and folders named on the command line.

use super::Failure;
use std::{fmt::Display, path::Path};

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
    let size = std::fs::metadata(path)
        .map_err(|error| failed(error.to_string()))?
        .len();
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
    fn a_file_that_cannot_be_read_is_named_with_its_flag() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let failure = |path: &str| read("--layer", &here.join(path), 10).unwrap_err();
        let said = |path: &str| failure(path).to_string();
        for missing in ["no-such.yaml", "nowhere/x.yaml"] {
            let typed = here.join(missing).display().to_string();
            let begin = format!("--layer {typed}: No such file");
            assert!(said(missing).starts_with(&begin), "{}", said(missing));
        }
        assert!(matches!(failure("lib.rs"), Failure::Usage(why) if why.contains("at most 10")));
    }
}
