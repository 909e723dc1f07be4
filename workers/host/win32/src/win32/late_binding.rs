//! What is bound late: libraries that are there with a feature (`vmcompute.dll`), that an old Windows or Wine 8 lacks
//! (`dismapi.dll`, parts of `iphlpapi.dll`). Loaded from System32 alone.
#![expect(unsafe_code, reason = "loads libraries and calls their functions")]

use std::{
    ffi::{CStr, c_void},
    ptr::{null, null_mut},
};

use dormer_host::ops::{DismState, HnsCall, WinError};
use windows_sys::Win32::{
    Foundation::{ERROR_INVALID_DATA, ERROR_PROC_NOT_FOUND, FARPROC, FreeLibrary, HMODULE},
    System::{
        Com::CoTaskMemFree,
        LibraryLoader::{GetProcAddress, LOAD_LIBRARY_SEARCH_SYSTEM32, LoadLibraryExW},
    },
};

use super::{
    com,
    error::{self, Result},
    text,
};

/// A function before it has its own type.
type Function = unsafe extern "system" fn() -> isize;

/// A library of System32.
pub(super) struct Library(HMODULE);

impl Library {
    pub(super) fn load(name: &str) -> Result<Self> {
        let name = text::wide(name)?;
        // SAFETY: the name ends with a NUL; Windows' own libraries may be loaded at any time.
        let module =
            unsafe { LoadLibraryExW(name.as_ptr(), null_mut(), LOAD_LIBRARY_SEARCH_SYSTEM32) };
        if module.is_null() {
            Err(error::last())
        } else {
            Ok(Self(module))
        }
    }

    /// A function; none where this Windows has none of that name. It must not be called once the library is dropped.
    pub(super) fn function(&self, name: &CStr) -> FARPROC {
        // SAFETY: the library is loaded; the name ends with a NUL.
        unsafe { GetProcAddress(self.0, name.as_ptr().cast()) }
    }

    fn required(&self, name: &CStr) -> Result<Function> {
        self.function(name)
            .ok_or_else(|| error::code(ERROR_PROC_NOT_FOUND))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: it was loaded by this value.
        unsafe { FreeLibrary(self.0) };
    }
}

/// A failing HRESULT.
fn hresult(result: i32) -> Result<u32> {
    let number = result.cast_unsigned();
    if result < 0 {
        Err(error::code(number))
    } else {
        Ok(number)
    }
}

/// `HNSCall`, in no metadata: four texts, the last one answered and freed by `CoTaskMemFree` (microsoft/hcsshim,
/// `internal/hns`).
type HnsFunction =
    unsafe extern "system" fn(*const u16, *const u16, *const u16, *mut *mut u16) -> i32;

pub(super) fn hns(ask: &HnsCall) -> Result<String> {
    let library = Library::load("vmcompute.dll")?;
    let function = library.required(c"HNSCall")?;
    com::enter()?;
    let method = text::wide(&ask.method)?;
    let path = text::wide(&ask.path)?;
    let body = text::wide(&ask.body)?;
    let mut response = null_mut();
    // SAFETY: the function has this signature; the texts end with a NUL; the response is freed in every case.
    let (result, text) = unsafe {
        let call: HnsFunction = std::mem::transmute(function);
        let result = call(
            method.as_ptr(),
            path.as_ptr(),
            body.as_ptr(),
            &raw mut response,
        );
        let text = text::at(response);
        CoTaskMemFree(response.cast());
        (result, text)
    };
    match hresult(result) {
        Ok(_) => Ok(text),
        Err(error) if text.is_empty() => Err(error),
        Err(error) => Err(WinError { text, ..error }),
    }
}

/// `DISM_ONLINE_IMAGE`.
const ONLINE: &str = "DISM_{53BFAE52-B167-4E2F-A258-0A37B57FF845}";
/// Where `DismFeatureInfo` has its state: behind one pointer, packed (dismapi.h, `#pragma pack(1)`).
const STATE_AT: usize = size_of::<*const u16>();

/// The functions of dismapi.dll (dismapi.h).
struct Dism {
    close: unsafe extern "system" fn(u32) -> i32,
    shutdown: unsafe extern "system" fn() -> i32,
    delete: unsafe extern "system" fn(*mut c_void) -> i32,
    info: unsafe extern "system" fn(u32, *const u16, *const u16, i32, *mut *mut c_void) -> i32,
    enable: EnableFunction,
    session: u32,
    _library: Library,
}

type EnableFunction = unsafe extern "system" fn(
    u32,
    *const u16,
    *const u16,
    i32,
    i32,
    *const *const u16,
    u32,
    i32,
    *mut c_void,
    *const c_void,
    *mut c_void,
) -> i32;

impl Dism {
    /// A session with the Windows that runs.
    fn open() -> Result<Self> {
        let library = Library::load("dismapi.dll")?;
        let initialize = library.required(c"DismInitialize")?;
        let open = library.required(c"DismOpenSession")?;
        // SAFETY: each function has the signature that dismapi.h gives it.
        unsafe {
            let initialize: unsafe extern "system" fn(i32, *const u16, *const u16) -> i32 =
                std::mem::transmute(initialize);
            let open: unsafe extern "system" fn(
                *const u16,
                *const u16,
                *const u16,
                *mut u32,
            ) -> i32 = std::mem::transmute(open);
            let mut dism = Self {
                close: std::mem::transmute::<Function, unsafe extern "system" fn(u32) -> i32>(
                    library.required(c"DismCloseSession")?,
                ),
                shutdown: std::mem::transmute::<Function, unsafe extern "system" fn() -> i32>(
                    library.required(c"DismShutdown")?,
                ),
                delete: std::mem::transmute::<
                    Function,
                    unsafe extern "system" fn(*mut c_void) -> i32,
                >(library.required(c"DismDelete")?),
                info: std::mem::transmute::<
                    Function,
                    unsafe extern "system" fn(
                        u32,
                        *const u16,
                        *const u16,
                        i32,
                        *mut *mut c_void,
                    ) -> i32,
                >(library.required(c"DismGetFeatureInfo")?),
                enable: std::mem::transmute::<Function, EnableFunction>(
                    library.required(c"DismEnableFeature")?,
                ),
                session: 0,
                _library: library,
            };
            let image = text::wide(ONLINE)?;
            // 0 logs errors alone.
            hresult(initialize(0, null(), null()))?;
            let opened = open(image.as_ptr(), null(), null(), &raw mut dism.session);
            // Without a session there is none to close: only the library is shut down.
            if let Err(error) = hresult(opened) {
                (dism.shutdown)();
                return Err(error);
            }
            Ok(dism)
        }
    }

    fn end(&self) {
        // SAFETY: the session is open, and this is the last call.
        unsafe {
            (self.close)(self.session);
            (self.shutdown)();
        }
    }
}

pub(super) fn feature_read(name: &str) -> Result<DismState> {
    let name = text::wide(name)?;
    let dism = Dism::open()?;
    let mut info = null_mut();
    // SAFETY: the session is open; the name ends with a NUL; the structure is read before it is deleted.
    let read = unsafe {
        let result = (dism.info)(dism.session, name.as_ptr(), null(), 0, &raw mut info);
        hresult(result).map(|_| {
            let state = info.cast::<u8>().add(STATE_AT).cast::<u32>();
            let state = state.read_unaligned();
            (dism.delete)(info);
            state
        })
    };
    dism.end();
    Ok(match read? {
        0 => DismState::NotPresent,
        1 => DismState::UninstallPending,
        2 => DismState::Staged,
        3 => DismState::Removed,
        4 => DismState::Installed,
        5 => DismState::InstallPending,
        6 => DismState::Superseded,
        7 => DismState::PartiallyInstalled,
        _ => return Err(error::code(ERROR_INVALID_DATA)),
    })
}

pub(super) fn feature_enable(name: &str) -> Result<u32> {
    const BY_NAME: i32 = 0;
    const ALL: i32 = 1;
    let name = text::wide(name)?;
    let dism = Dism::open()?;
    // SAFETY: the session is open; the name ends with a NUL; there are no sources, no event and no callback.
    let result = unsafe {
        (dism.enable)(
            dism.session,
            name.as_ptr(),
            null(),
            BY_NAME,
            0,
            null(),
            0,
            ALL,
            null_mut(),
            null(),
            null_mut(),
        )
    };
    dism.end();
    hresult(result)
}
