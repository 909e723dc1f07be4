//! Exclusions of Windows Defender, by WMI: `MSFT_MpPreference` in `ROOT\Microsoft\Windows\Defender`.
#![expect(unsafe_code, reason = "calls COM")]

use dormer_host::ops::{Exclusions, WinError};
use windows::{
    Win32::System::{
        Com::SAFEARRAY,
        Ole::{
            SafeArrayCreateVector, SafeArrayDestroy, SafeArrayGetElement, SafeArrayGetLBound,
            SafeArrayGetUBound, SafeArrayPutElement,
        },
        Variant::{VARIANT, VT_ARRAY, VT_BSTR, VT_I4, VariantClear},
        Wmi::{
            IWbemClassObject, IWbemServices, WBEM_FLAG_FORWARD_ONLY, WBEM_FLAG_RETURN_IMMEDIATELY,
            WBEM_FLAG_RETURN_WBEM_COMPLETE,
        },
    },
    core::{BSTR, PCWSTR, w},
};
use windows_sys::Win32::Foundation::ERROR_NOT_FOUND;

use super::{
    error::{self, Result},
    wmi,
};

const NAMESPACE: &str = r"ROOT\Microsoft\Windows\Defender";
const CLASS: &str = "MSFT_MpPreference";
const PATHS: PCWSTR = w!("ExclusionPath");
const PROCESSES: PCWSTR = w!("ExclusionProcess");
/// The longest wait for the one object.
const WAIT_MS: i32 = 30_000;

pub(super) fn read() -> Result<Exclusions> {
    let services = wmi::connect(NAMESPACE)?;
    let flags = WBEM_FLAG_FORWARD_ONLY | WBEM_FLAG_RETURN_IMMEDIATELY;
    // SAFETY: the objects live as long as they are used.
    let read = || unsafe {
        let found = services.CreateInstanceEnum(&BSTR::from(CLASS), flags, None)?;
        wmi::secure(&found);
        let mut objects = [None];
        let mut count = 0;
        found.Next(WAIT_MS, &mut objects, &raw mut count).ok()?;
        let [Some(object)] = objects else {
            return Ok(None);
        };
        Ok(Some(Exclusions {
            paths: texts(&object, PATHS)?,
            processes: texts(&object, PROCESSES)?,
        }))
    };
    let read = read().map_err(|error: windows::core::Error| error::com(&error))?;
    read.ok_or_else(|| error::code(ERROR_NOT_FOUND))
}

/// A property that is a list of texts; empty where it is null.
fn texts(object: &IWbemClassObject, name: PCWSTR) -> windows::core::Result<Vec<String>> {
    let mut value = VARIANT::default();
    // SAFETY: the object lives; the array is read as what its type says, before it is cleared.
    unsafe {
        object.Get(name, 0, &raw mut value, None, None)?;
        let inner = &value.Anonymous.Anonymous;
        let texts = if inner.vt.0 == VT_ARRAY.0 | VT_BSTR.0 {
            elements(inner.Anonymous.parray)
        } else {
            Ok(Vec::new())
        };
        VariantClear(&raw mut value)?;
        texts
    }
}

/// # Safety
/// The array is one of texts.
unsafe fn elements(array: *const SAFEARRAY) -> windows::core::Result<Vec<String>> {
    // SAFETY: the bounds are those of the array; each element is a text of its own, freed when it is dropped.
    unsafe {
        let low = SafeArrayGetLBound(array, 1)?;
        let high = SafeArrayGetUBound(array, 1)?;
        let mut texts = Vec::new();
        for index in low..=high {
            let mut text = BSTR::new();
            SafeArrayGetElement(array, &raw const index, (&raw mut text).cast())?;
            texts.push(text.to_string());
        }
        Ok(texts)
    }
}

/// Calls the static method `Add` or `Remove`.
pub(super) fn call(method: &str, exclusions: &Exclusions) -> Result<()> {
    let services = wmi::connect(NAMESPACE)?;
    let answer = invoke(&services, method, exclusions).map_err(|error| error::com(&error))?;
    match answer {
        0 => Ok(()),
        code => Err(WinError::new(code)),
    }
}

fn invoke(
    services: &IWbemServices,
    method: &str,
    exclusions: &Exclusions,
) -> windows::core::Result<u32> {
    let class_name = BSTR::from(CLASS);
    let method = BSTR::from(method);
    // SAFETY: the objects live as long as they are used; what is answered is freed when it is dropped.
    unsafe {
        let mut class = None;
        services.GetObject(
            &class_name,
            WBEM_FLAG_RETURN_WBEM_COMPLETE,
            None,
            Some(&raw mut class),
            None,
        )?;
        let class = class.ok_or_else(windows::core::Error::empty)?;
        let mut signature = None;
        let mut answered = None;
        class.GetMethod(
            PCWSTR(method.as_ptr()),
            0,
            &raw mut signature,
            &raw mut answered,
        )?;
        let signature = signature.ok_or_else(windows::core::Error::empty)?;
        let arguments = signature.SpawnInstance(0)?;
        put(&arguments, PATHS, &exclusions.paths)?;
        put(&arguments, PROCESSES, &exclusions.processes)?;
        let mut answer = None;
        services.ExecMethod(
            &class_name,
            &method,
            WBEM_FLAG_RETURN_WBEM_COMPLETE,
            None,
            &arguments,
            Some(&raw mut answer),
            None,
        )?;
        let Some(answer) = answer else { return Ok(0) };
        let mut value = VARIANT::default();
        answer.Get(w!("ReturnValue"), 0, &raw mut value, None, None)?;
        let inner = &value.Anonymous.Anonymous;
        // WMI answers a uint32 as VT_I4.
        let code = if inner.vt == VT_I4 {
            inner.Anonymous.lVal.cast_unsigned()
        } else {
            0
        };
        VariantClear(&raw mut value)?;
        Ok(code)
    }
}

/// Sets an argument that is a list of texts; an empty list is left out.
fn put(object: &IWbemClassObject, name: PCWSTR, texts: &[String]) -> windows::core::Result<()> {
    if texts.is_empty() {
        return Ok(());
    }
    // SAFETY: the array is made, filled within its bounds, copied by `Put` and destroyed.
    unsafe {
        let array = SafeArrayCreateVector(VT_BSTR, 0, texts.len() as u32);
        if array.is_null() {
            return Err(windows::core::Error::empty());
        }
        let fill = || {
            for (index, text) in texts.iter().enumerate() {
                let text = BSTR::from(text);
                let index = index as i32;
                SafeArrayPutElement(array, &raw const index, text.as_ptr().cast())?;
            }
            let mut value = VARIANT::default();
            let inner = &mut *value.Anonymous.Anonymous;
            inner.vt = windows::Win32::System::Variant::VARENUM(VT_ARRAY.0 | VT_BSTR.0);
            inner.Anonymous.parray = array;
            let put = object.Put(name, 0, &raw const value, 0);
            // The array is this function's, not the value's.
            std::mem::forget(value);
            put
        };
        let filled = fill();
        SafeArrayDestroy(array)?;
        filled
    }
}
