//! Reading of files named on the command line.

use super::Failure;
use std::path::Path;

/// Text of a file named on the command line.
///
/// # Errors
/// The file cannot be read, or is longer than `bytes_max`.
pub fn read(path: &Path, bytes_max: u64) -> Result<String, Failure> {
    let failed = |why: String| Failure::refused(format!("{}: {why}", path.display()), "");
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
