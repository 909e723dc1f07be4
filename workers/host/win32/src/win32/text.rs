//! Texts as Windows wants them: UTF-16 with a final NUL.
#![expect(unsafe_code, reason = "reads texts that Windows points to")]

use windows_sys::Win32::Foundation::ERROR_INVALID_NAME;

use super::error::{self, Result};

/// From this length on a path gets `\\?\`: `CreateDirectoryW` wants room for a name of 8.3 below `MAX_PATH` (260).
const LONG: usize = 248;

/// The text with a final NUL. A NUL inside would cut it, so it is refused (123).
pub(super) fn wide(text: &str) -> Result<Vec<u16>> {
    if text.contains('\0') {
        return Err(error::code(ERROR_INVALID_NAME));
    }
    Ok(text.encode_utf16().chain([0]).collect())
}

/// A path, however long it is.
pub(super) fn path(path: &str) -> Result<Vec<u16>> {
    if path.encode_utf16().count() >= LONG && !path.starts_with(r"\\") {
        wide(&format!(r"\\?\{}", path.replace('/', r"\")))
    } else {
        wide(path)
    }
}

/// Texts one after the other, and an empty one.
pub(super) fn list(texts: &[String]) -> Result<Vec<u16>> {
    let mut units = Vec::new();
    for text in texts {
        units.extend(wide(text)?);
    }
    if units.is_empty() {
        units.push(0);
    }
    units.push(0);
    Ok(units)
}

/// The text before the first NUL.
pub(super) fn narrow(units: &[u16]) -> String {
    let text = units.split(|unit| *unit == 0).next().unwrap_or_default();
    String::from_utf16_lossy(text)
}

/// The text that Windows points to; a null pointer is an empty one.
///
/// # Safety
/// The pointer is null, or leads to units that end with a NUL.
pub(super) unsafe fn at(pointer: *const u16) -> String {
    if pointer.is_null() {
        return String::new();
    }
    let mut length = 0;
    // SAFETY: the units up to the NUL may be read, by this function's contract.
    while unsafe { *pointer.add(length) } != 0 {
        length += 1;
    }
    // SAFETY: as above.
    String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// The texts that Windows points to, up to an empty one.
///
/// # Safety
/// The pointer is null, or leads to texts that each end with a NUL, the last of which is empty.
pub(super) unsafe fn list_at(mut pointer: *const u16) -> Vec<String> {
    let mut texts = Vec::new();
    while !pointer.is_null() {
        // SAFETY: by this function's contract.
        let text = unsafe { at(pointer) };
        if text.is_empty() {
            break;
        }
        // SAFETY: behind a text and its NUL begins the next one.
        pointer = unsafe { pointer.add(text.encode_utf16().count() + 1) };
        texts.push(text);
    }
    texts
}
