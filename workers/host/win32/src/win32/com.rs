//! COM for this process: one multithreaded apartment, entered once.
#![expect(unsafe_code, reason = "calls COM")]

use std::sync::OnceLock;

use dormer_host::ops::WinError;
use windows::Win32::System::Com::{
    CoIncrementMTAUsage, CoInitializeSecurity, EOAC_NONE, RPC_C_AUTHN_LEVEL_DEFAULT,
    RPC_C_IMP_LEVEL_IMPERSONATE,
};

use super::error::{self, Result};

/// Keeps the apartment open for every thread, until the process ends.
pub(super) fn enter() -> Result<()> {
    static ENTERED: OnceLock<std::result::Result<(), WinError>> = OnceLock::new();
    // SAFETY: the cookie is not given back, so the apartment stays.
    let enter = || unsafe { CoIncrementMTAUsage() };
    // WMI needs more than COM's default, by which it may only learn who asks (Microsoft Learn, "Setting the Default Process
    // Security Level Using C++"). Where DISM was faster, its own setting holds.
    // SAFETY: no pointer is given.
    let secure = || unsafe {
        CoInitializeSecurity(
            None,
            -1,
            None,
            None,
            RPC_C_AUTHN_LEVEL_DEFAULT,
            RPC_C_IMP_LEVEL_IMPERSONATE,
            None,
            EOAC_NONE,
            None,
        )
    };
    ENTERED
        .get_or_init(|| {
            let entered = enter().map(drop).map_err(|error| error::com(&error));
            let _ = secure();
            entered
        })
        .clone()
}
