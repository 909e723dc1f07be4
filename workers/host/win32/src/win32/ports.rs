//! The range of dynamic ports of TCP, by WMI: `MSFT_NetTCPSetting` in `ROOT\StandardCimv2`.
#![expect(unsafe_code, reason = "calls COM")]

use dormer_host::ops::PortRange;
use windows::{
    Win32::System::{
        Variant::{VARIANT, VT_I4, VariantClear},
        Wmi::{IWbemClassObject, WBEM_FLAG_FORWARD_ONLY, WBEM_FLAG_RETURN_IMMEDIATELY},
    },
    core::{BSTR, PCWSTR, w},
};
use windows_sys::Win32::Foundation::ERROR_NOT_FOUND;

use super::{
    error::{self, Result},
    wmi,
};

const NAMESPACE: &str = r"ROOT\StandardCimv2";
/// The template that connections have by default; names of templates are not translated.
const QUERY: &str = "SELECT * FROM MSFT_NetTCPSetting WHERE SettingName = 'Internet'";
const START: PCWSTR = w!("DynamicPortRangeStartPort");
const COUNT: PCWSTR = w!("DynamicPortRangeNumberOfPorts");
/// The longest wait for the one object.
const WAIT_MS: i32 = 30_000;

pub(super) fn read() -> Result<PortRange> {
    let services = wmi::connect(NAMESPACE)?;
    let flags = WBEM_FLAG_FORWARD_ONLY | WBEM_FLAG_RETURN_IMMEDIATELY;
    // SAFETY: the objects live as long as they are used.
    let read = || unsafe {
        let found = services.ExecQuery(&BSTR::from("WQL"), &BSTR::from(QUERY), flags, None)?;
        wmi::secure(&found);
        let mut objects = [None];
        let mut count = 0;
        found.Next(WAIT_MS, &mut objects, &raw mut count).ok()?;
        let [Some(object)] = objects else {
            return Ok(None);
        };
        let start = port(&object, START)?;
        let count = port(&object, COUNT)?;
        Ok(start
            .zip(count)
            .map(|(start, count)| PortRange { start, count }))
    };
    let read = read().map_err(|error: windows::core::Error| error::com(&error))?;
    read.ok_or_else(|| error::code(ERROR_NOT_FOUND))
}

/// A property that is a number of 16 bits. `None`: it is null.
fn port(object: &IWbemClassObject, name: PCWSTR) -> windows::core::Result<Option<u16>> {
    let mut value = VARIANT::default();
    // SAFETY: the object lives; the number is read as what its type says, before the value is cleared.
    unsafe {
        object.Get(name, 0, &raw mut value, None, None)?;
        let inner = &value.Anonymous.Anonymous;
        // WMI answers a uint16 as VT_I4.
        let number = (inner.vt == VT_I4).then(|| inner.Anonymous.lVal);
        VariantClear(&raw mut value)?;
        Ok(number.and_then(|number| u16::try_from(number).ok()))
    }
}
