//! COM for this process: one multithreaded apartment, entered once.
#![expect(unsafe_code, reason = "calls COM")]

use std::sync::OnceLock;

use dormer_host::ops::WinError;
use windows::Win32::System::Com::CoIncrementMTAUsage;

use super::error::{self, Result};

/// Keeps the apartment open for every thread, until the process ends.
pub(super) fn enter() -> Result<()> {
    static ENTERED: OnceLock<std::result::Result<(), WinError>> = OnceLock::new();
    // SAFETY: the cookie is not given back, so the apartment stays.
    let enter = || unsafe { CoIncrementMTAUsage() };
    ENTERED
        .get_or_init(|| enter().map(drop).map_err(|error| error::com(&error)))
        .clone()
}
