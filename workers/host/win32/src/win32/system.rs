//! Windows as a whole: version, clocks, boot, names, reboot.
#![expect(unsafe_code, reason = "calls Win32")]

use std::{
    ptr::{null, null_mut},
    time::{SystemTime, UNIX_EPOCH},
};

use dormer_host::ops::{Boot, Clock, Domain, RebootAsk, System};
use windows_sys::{
    Wdk::System::{SystemInformation::NtQuerySystemInformation, SystemServices::RtlGetVersion},
    Win32::{
        Foundation::{
            ERROR_NOT_ALL_ASSIGNED, ERROR_PROC_NOT_FOUND, GetLastError, HANDLE, LUID,
            RtlNtStatusToDosError,
        },
        NetworkManagement::NetManagement::{NetApiBufferFree, NetGetJoinInformation},
        Security::{
            AdjustTokenPrivileges, CheckTokenMembership, CreateWellKnownSid, LUID_AND_ATTRIBUTES,
            LookupPrivilegeValueW, SE_PRIVILEGE_ENABLED, TOKEN_ADJUST_PRIVILEGES, TOKEN_PRIVILEGES,
            TOKEN_QUERY, WinBuiltinAdministratorsSid,
        },
        System::{
            Shutdown::{
                InitiateShutdownW, SHUTDOWN_FORCE_OTHERS, SHUTDOWN_FORCE_SELF, SHUTDOWN_RESTART,
            },
            SystemInformation::{
                ComputerNamePhysicalDnsHostname, GetComputerNameExW, GetNativeSystemInfo,
                GetTickCount64, OSVERSIONINFOEXW, SYSTEM_INFO, SetComputerNameExW,
            },
            Threading::{GetCurrentProcess, OpenProcessToken},
        },
    },
};

use super::{
    error::{self, Result},
    files,
    late_binding::Library,
    text,
};

/// `KUSER_SHARED_DATA.BootId`: the page lies at this address in every process (`ntddk.h`).
const KUSER_BOOT_ID: usize = 0x7ffe_0000 + 0x2c4;
/// `SystemTimeOfDayInformation`.
const TIME_OF_DAY: i32 = 3;
/// `SHTDN_REASON_FLAG_PLANNED | MAJOR_OPERATINGSYSTEM | MINOR_RECONFIG`.
const REASON: u32 = 0x8002_0004;

pub(super) fn read() -> Result<System> {
    let mut version = OSVERSIONINFOEXW {
        dwOSVersionInfoSize: size_of::<OSVERSIONINFOEXW>() as u32,
        ..Default::default()
    };
    // SAFETY: the structure says which of the two it is, by its size.
    unsafe { RtlGetVersion((&raw mut version).cast()) };
    let mut info = SYSTEM_INFO::default();
    // SAFETY: the structure is written.
    let architecture = unsafe {
        GetNativeSystemInfo(&raw mut info);
        info.Anonymous.Anonymous.wProcessorArchitecture
    };
    Ok(System {
        version: [
            version.dwMajorVersion,
            version.dwMinorVersion,
            version.dwBuildNumber,
        ],
        product_type: version.wProductType,
        architecture,
        dns_host_name: host_name()?,
        administrator: administrator()?,
    })
}

fn host_name() -> Result<String> {
    let mut units = [0_u16; 256];
    let mut length = units.len() as u32;
    // SAFETY: the buffer is as large as is said.
    error::check(unsafe {
        GetComputerNameExW(
            ComputerNamePhysicalDnsHostname,
            units.as_mut_ptr(),
            &raw mut length,
        )
    })?;
    Ok(text::narrow(&units))
}

fn administrator() -> Result<bool> {
    // SECURITY_MAX_SID_SIZE is 68.
    let mut sid = [0_u64; 9];
    let mut length = size_of_val(&sid) as u32;
    let place = sid.as_mut_ptr().cast();
    let mut member = 0;
    // SAFETY: the buffer is as large as is said; null is no domain, and this thread's token.
    unsafe {
        error::check(CreateWellKnownSid(
            WinBuiltinAdministratorsSid,
            null_mut(),
            place,
            &raw mut length,
        ))?;
        error::check(CheckTokenMembership(null_mut(), place, &raw mut member))?;
    }
    Ok(member != 0)
}

pub(super) fn clock() -> Clock {
    // The standard library asks GetSystemTimePreciseAsFileTime.
    let now = SystemTime::now();
    let now_ms = match now.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    };
    // SAFETY: no pointer is given.
    let tick_ms = unsafe { GetTickCount64() };
    Clock { now_ms, tick_ms }
}

pub(super) fn boot() -> Result<Boot> {
    // SAFETY: Windows maps this page into every process, readable.
    let kuser_boot_id = unsafe { std::ptr::read_volatile(KUSER_BOOT_ID as *const u32) };
    // BootTime, CurrentTime, TimeZoneBias, TimeZoneId and Reserved, BootTimeBias, SleepTimeBias.
    let mut times = [0_u64; 6];
    // SAFETY: the buffer is as large as is said; the length need not be answered.
    let status = unsafe {
        NtQuerySystemInformation(
            TIME_OF_DAY,
            times.as_mut_ptr().cast(),
            size_of_val(&times) as u32,
            null_mut(),
        )
    };
    if status < 0 {
        // SAFETY: no pointer is given.
        return Err(error::code(unsafe { RtlNtStatusToDosError(status) }));
    }
    Ok(Boot {
        kuser_boot_id,
        steady_ms: files::unix_ms(times[0].wrapping_sub(times[4])),
        booted_ms: files::unix_ms(times[0]),
    })
}

pub(super) fn domain() -> Result<Domain> {
    let mut name = null_mut();
    let mut status = 0;
    // SAFETY: null is this machine; what is allocated is freed below.
    error::status(unsafe { NetGetJoinInformation(null(), &raw mut name, &raw mut status) })?;
    // SAFETY: it was answered by the call above, and ends with a NUL.
    let domain = unsafe {
        let text = text::at(name);
        NetApiBufferFree(name.cast());
        text
    };
    Ok(Domain {
        status: status.cast_unsigned(),
        name: domain,
    })
}

pub(super) fn host_name_set(name: &str) -> Result<()> {
    let name = text::wide(name)?;
    // SAFETY: the name ends with a NUL.
    error::check(unsafe { SetComputerNameExW(ComputerNamePhysicalDnsHostname, name.as_ptr()) })
}

pub(super) fn reboot(ask: &RebootAsk) -> Result<()> {
    enable("SeShutdownPrivilege")?;
    let reason = text::wide(&ask.reason)?;
    let flags = SHUTDOWN_RESTART | SHUTDOWN_FORCE_OTHERS | SHUTDOWN_FORCE_SELF;
    // SAFETY: null is this machine; the text ends with a NUL.
    error::status(unsafe {
        InitiateShutdownW(null(), reason.as_ptr(), ask.grace_seconds, flags, REASON)
    })
}

/// Enables a privilege that this process' token has.
fn enable(privilege: &str) -> Result<()> {
    let name = text::wide(privilege)?;
    let mut token: HANDLE = null_mut();
    let mut luid = LUID::default();
    // SAFETY: the handle is closed when the owner is dropped; the texts end with a NUL; the structure lives.
    unsafe {
        error::check(OpenProcessToken(
            GetCurrentProcess(),
            TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY,
            &raw mut token,
        ))?;
        let _token: std::os::windows::io::OwnedHandle =
            std::os::windows::io::FromRawHandle::from_raw_handle(token);
        error::check(LookupPrivilegeValueW(null(), name.as_ptr(), &raw mut luid))?;
        let wanted = TOKEN_PRIVILEGES {
            PrivilegeCount: 1,
            Privileges: [LUID_AND_ATTRIBUTES {
                Luid: luid,
                Attributes: SE_PRIVILEGE_ENABLED,
            }],
        };
        error::check(AdjustTokenPrivileges(
            token,
            0,
            &raw const wanted,
            0,
            null_mut(),
            null_mut(),
        ))?;
        // It succeeds also where the token has no such privilege.
        match GetLastError() {
            ERROR_NOT_ALL_ASSIGNED => Err(error::code(ERROR_NOT_ALL_ASSIGNED)),
            _ => Ok(()),
        }
    }
}

/// `SendMessageTimeoutW`. user32.dll is loaded here alone: in Wine it makes a desktop.
pub(super) fn environment_tell() -> Result<()> {
    type SendMessageTimeout =
        unsafe extern "system" fn(HANDLE, u32, usize, *const u16, u32, u32, *mut usize) -> usize;
    const EVERYBODY: usize = 0xffff;
    const SETTING_CHANGE: u32 = 0x1a;
    const ABORT_IF_HUNG: u32 = 2;
    const ONE_SECOND: u32 = 1000;
    let library = Library::load("user32.dll")?;
    let function = library
        .function(c"SendMessageTimeoutW")
        .ok_or_else(|| error::code(ERROR_PROC_NOT_FOUND))?;
    let what = text::wide("Environment")?;
    let mut answer = 0;
    // SAFETY: the function has this signature (winuser.h); the text ends with a NUL.
    unsafe {
        let send: SendMessageTimeout = std::mem::transmute(function);
        send(
            EVERYBODY as HANDLE,
            SETTING_CHANGE,
            0,
            what.as_ptr(),
            ABORT_IF_HUNG,
            ONE_SECOND,
            &raw mut answer,
        );
    }
    Ok(())
}
