//! Processes: the list, handles that keep an id from being given to another, ending, running a program.
#![expect(unsafe_code, reason = "calls Win32")]

use std::{
    os::windows::{
        io::{AsRawHandle, FromRawHandle, OwnedHandle},
        process::CommandExt,
    },
    process::{Command, Stdio},
};

use dormer_host::ops::{Process, ProgramRun};
use windows_sys::Win32::{
    Foundation::{
        ERROR_BAD_PATHNAME, ERROR_NO_MORE_FILES, ERROR_TIMEOUT, FILETIME, INVALID_HANDLE_VALUE,
        WAIT_FAILED, WAIT_OBJECT_0,
    },
    System::{
        Diagnostics::ToolHelp::{
            CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW,
            TH32CS_SNAPPROCESS,
        },
        Threading::{
            CREATE_NO_WINDOW, GetProcessTimes, OpenProcess, PROCESS_NAME_WIN32,
            PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE, PROCESS_TERMINATE,
            QueryFullProcessImageNameW, TerminateProcess, WaitForSingleObject,
        },
    },
};

use super::{
    error::{self, Result},
    text,
};

/// The longest path of a program.
const PATH_MAX: usize = 32_768;
/// Exit code of a process that this program ended.
const ENDED: u32 = 1;

pub(super) fn list() -> Result<Vec<Process>> {
    // SAFETY: no pointer is given; the handle is closed once, when it is dropped.
    let snapshot = unsafe {
        let handle = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
        if handle == INVALID_HANDLE_VALUE {
            return Err(error::last());
        }
        OwnedHandle::from_raw_handle(handle)
    };
    let mut entry = PROCESSENTRY32W {
        dwSize: size_of::<PROCESSENTRY32W>() as u32,
        ..Default::default()
    };
    let mut found = Vec::new();
    // SAFETY: the handle is open; the entry says how large it is.
    let mut more = unsafe { Process32FirstW(snapshot.as_raw_handle(), &raw mut entry) };
    while more != 0 {
        let (created, path) = about(entry.th32ProcessID);
        found.push(Process {
            pid: entry.th32ProcessID,
            created,
            parent: entry.th32ParentProcessID,
            name: text::narrow(&entry.szExeFile),
            path,
        });
        // SAFETY: as above.
        more = unsafe { Process32NextW(snapshot.as_raw_handle(), &raw mut entry) };
    }
    let end = error::last();
    if end.code == ERROR_NO_MORE_FILES {
        Ok(found)
    } else {
        Err(end)
    }
}

/// Creation time and path, as far as Windows says.
fn about(pid: u32) -> (u64, String) {
    let Ok(process) = open_for(pid, PROCESS_QUERY_LIMITED_INFORMATION) else {
        return (0, String::new());
    };
    let created = created(&process).unwrap_or_default();
    let mut units = vec![0_u16; PATH_MAX];
    let mut length = units.len() as u32;
    // SAFETY: the handle is open; the buffer is as large as is said.
    let named = unsafe {
        QueryFullProcessImageNameW(
            process.as_raw_handle(),
            PROCESS_NAME_WIN32,
            units.as_mut_ptr(),
            &raw mut length,
        )
    };
    let path = if named == 0 {
        String::new()
    } else {
        text::narrow(&units[..length as usize])
    };
    (created, path)
}

fn open_for(pid: u32, access: u32) -> Result<OwnedHandle> {
    // SAFETY: no pointer is given.
    let handle = unsafe { OpenProcess(access, 0, pid) };
    if handle.is_null() {
        return Err(error::last());
    }
    // SAFETY: it was just opened, and has no other owner.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn created(process: &OwnedHandle) -> Result<u64> {
    let mut times = [FILETIME::default(); 4];
    let [created, exited, kernel, user] = &mut times;
    // SAFETY: the handle is open; each place holds a FILETIME.
    error::check(unsafe {
        GetProcessTimes(process.as_raw_handle(), created, exited, kernel, user)
    })?;
    Ok(u64::from(times[0].dwHighDateTime) << 32 | u64::from(times[0].dwLowDateTime))
}

/// A process with its creation time, kept open.
pub(super) fn open(pid: u32) -> Result<(u64, OwnedHandle)> {
    let access = PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE | PROCESS_TERMINATE;
    let process = open_for(pid, access)?;
    Ok((created(&process)?, process))
}

pub(super) fn ended(process: &OwnedHandle) -> Result<bool> {
    // SAFETY: the handle is open.
    match unsafe { WaitForSingleObject(process.as_raw_handle(), 0) } {
        WAIT_OBJECT_0 => Ok(true),
        WAIT_FAILED => Err(error::last()),
        _ => Ok(false),
    }
}

pub(super) fn end(process: &OwnedHandle) -> Result<()> {
    // SAFETY: the handle is open, with the right to end the process.
    error::check(unsafe { TerminateProcess(process.as_raw_handle(), ENDED) })
}

pub(super) fn run(ask: &ProgramRun) -> Result<u32> {
    let spawned = Command::new(&ask.path)
        .args(&ask.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .creation_flags(CREATE_NO_WINDOW)
        .spawn();
    let mut child = spawned.map_err(|failed| match failed.raw_os_error() {
        Some(_) => error::io(&failed),
        // An argument that no quoting could bring to a script, or a NUL.
        None => error::code(ERROR_BAD_PATHNAME),
    })?;
    let limit = u32::try_from(ask.limit_ms).unwrap_or(u32::MAX - 1);
    // SAFETY: the handle is open as long as the child is not dropped.
    let waited = unsafe { WaitForSingleObject(child.as_raw_handle(), limit) };
    if waited != WAIT_OBJECT_0 {
        let _ = child.kill();
        let _ = child.wait();
        return Err(error::code(ERROR_TIMEOUT));
    }
    let status = child.wait().map_err(|error| error::io(&error))?;
    Ok(status.code().unwrap_or_default().cast_unsigned())
}
