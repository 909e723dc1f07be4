//! A connection to WMI.
#![expect(unsafe_code, reason = "calls COM")]

use windows::{
    Win32::System::{
        Com::{
            CLSCTX_INPROC_SERVER, CoCreateInstance, CoSetProxyBlanket, EOAC_NONE,
            RPC_C_AUTHN_LEVEL_CALL, RPC_C_IMP_LEVEL_IMPERSONATE,
        },
        Rpc::{RPC_C_AUTHN_WINNT, RPC_C_AUTHZ_NONE},
        Wmi::{IEnumWbemClassObject, IWbemLocator, IWbemServices, WbemLocator},
    },
    core::BSTR,
};

use super::{
    com,
    error::{self, Result},
};

/// Connects to a namespace on this host.
pub(super) fn connect(namespace: &str) -> Result<IWbemServices> {
    com::enter()?;
    // SAFETY: COM is there; the objects live as long as they are used.
    let connect = || unsafe {
        let locator: IWbemLocator = CoCreateInstance(&WbemLocator, None, CLSCTX_INPROC_SERVER)?;
        let empty = BSTR::new();
        let services = locator.ConnectServer(
            &BSTR::from(namespace),
            &empty,
            &empty,
            &empty,
            0,
            &empty,
            None,
        )?;
        CoSetProxyBlanket(
            &services,
            RPC_C_AUTHN_WINNT,
            RPC_C_AUTHZ_NONE,
            None,
            RPC_C_AUTHN_LEVEL_CALL,
            RPC_C_IMP_LEVEL_IMPERSONATE,
            None,
            EOAC_NONE,
        )?;
        Ok(services)
    };
    connect().map_err(|error: windows::core::Error| error::com(&error))
}

/// Sets what [`connect`] set, for the objects of a query: a proxy of its own begins with the process' defaults (Microsoft
/// Learn, "Setting the Security on IWbemServices and Other Proxies"). One that is no proxy needs none.
pub(super) fn secure(found: &IEnumWbemClassObject) {
    // SAFETY: the object lives.
    let _ = unsafe {
        CoSetProxyBlanket(
            found,
            RPC_C_AUTHN_WINNT,
            RPC_C_AUTHZ_NONE,
            None,
            RPC_C_AUTHN_LEVEL_CALL,
            RPC_C_IMP_LEVEL_IMPERSONATE,
            None,
            EOAC_NONE,
        )
    };
}
