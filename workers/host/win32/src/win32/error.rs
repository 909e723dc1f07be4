//! What Windows refused with, as a number and its text.

use std::io;

use dormer_host::ops::WinError;
use windows_sys::Win32::Foundation::{ERROR_GEN_FAILURE, ERROR_INVALID_DATA};

/// Result of an operation.
pub(super) type Result<T> = std::result::Result<T, WinError>;

/// Error code with the text of Windows.
pub(super) fn code(code: u32) -> WinError {
    let text = io::Error::from_raw_os_error(code.cast_signed()).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    WinError {
        code,
        text: text.trim_end().to_owned(),
    }
}

/// Error of the last call, from `GetLastError`.
pub(super) fn last() -> WinError {
    io(&io::Error::last_os_error())
}

/// Converts a `BOOL`: zero is a failure, and `GetLastError` has its code.
pub(super) fn check(result: windows_sys::core::BOOL) -> Result<()> {
    if result == 0 { Err(last()) } else { Ok(()) }
}

/// Converts a returned error code: zero is success.
pub(super) fn status(result: u32) -> Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(code(result))
    }
}

/// An error of the standard library, which carries Windows' number unless it is its own.
pub(super) fn io(error: &io::Error) -> WinError {
    let own = match error.kind() {
        // A gzip file that is damaged or cut.
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => ERROR_INVALID_DATA,
        _ => ERROR_GEN_FAILURE,
    };
    match error.raw_os_error() {
        Some(number) => code(number.cast_unsigned()),
        None => WinError {
            code: own,
            text: error.to_string(),
        },
    }
}

/// An HRESULT of COM.
pub(super) fn com(error: &windows::core::Error) -> WinError {
    WinError {
        code: error.code().0.cast_unsigned(),
        text: error.message(),
    }
}
