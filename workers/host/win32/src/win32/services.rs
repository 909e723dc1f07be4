//! Services, by the service control manager.
#![expect(unsafe_code, reason = "calls Win32")]

use std::ptr::{null, null_mut};

use dormer_host::ops::{
    Restarts, ServiceChange, ServiceConfig, ServiceCreate, ServiceDescribe, ServiceEntry,
    ServiceFailure, ServiceSettings, ServiceState, ServiceStatus, Start,
};
use windows_sys::Win32::{
    Foundation::{
        ERROR_INSUFFICIENT_BUFFER, ERROR_INVALID_DATA, ERROR_INVALID_LEVEL,
        ERROR_INVALID_PARAMETER, ERROR_MORE_DATA,
    },
    System::Services::{
        ChangeServiceConfig2W, ChangeServiceConfigW, CloseServiceHandle, ControlService,
        CreateServiceW, DeleteService, ENUM_SERVICE_STATUS_PROCESSW, EnumServicesStatusExW,
        OpenSCManagerW, OpenServiceW, QUERY_SERVICE_CONFIGW, QueryServiceConfig2W,
        QueryServiceConfigW, QueryServiceStatusEx, SC_ACTION, SC_ACTION_NONE, SC_ACTION_RESTART,
        SC_ENUM_PROCESS_INFO, SC_HANDLE, SC_MANAGER_CONNECT, SC_MANAGER_CREATE_SERVICE,
        SC_MANAGER_ENUMERATE_SERVICE, SC_STATUS_PROCESS_INFO, SERVICE_CHANGE_CONFIG,
        SERVICE_CONFIG_DELAYED_AUTO_START_INFO, SERVICE_CONFIG_DESCRIPTION,
        SERVICE_CONFIG_FAILURE_ACTIONS, SERVICE_CONFIG_FAILURE_ACTIONS_FLAG, SERVICE_CONTROL_STOP,
        SERVICE_DELAYED_AUTO_START_INFO, SERVICE_DEMAND_START, SERVICE_DESCRIPTIONW,
        SERVICE_ERROR_NORMAL, SERVICE_FAILURE_ACTIONS_FLAG, SERVICE_FAILURE_ACTIONSW,
        SERVICE_NO_CHANGE, SERVICE_QUERY_CONFIG, SERVICE_QUERY_STATUS, SERVICE_START,
        SERVICE_STATE_ALL, SERVICE_STATUS, SERVICE_STATUS_PROCESS, SERVICE_STOP, SERVICE_WIN32,
        SERVICE_WIN32_OWN_PROCESS, StartServiceW,
    },
};

use super::{
    error::{self, Result},
    text,
};

/// `DELETE`, a right to every object.
const DELETE: u32 = 0x0001_0000;
/// `SERVICE_USERSERVICE_INSTANCE`: one of a person who is logged on.
const USER_SERVICE_INSTANCE: u32 = 0x80;
/// Most bytes of a service's configuration (sdk-api, `nf-winsvc-queryserviceconfigw`).
const CONFIG_MAX: usize = 8192;
/// Most bytes that one call of `EnumServicesStatusExW` answers (sdk-api, `nf-winsvc-enumservicesstatusexw`).
const LIST_MAX: usize = 256 * 1024;

/// A handle of the service control manager: its own or a service's.
struct Handle(SC_HANDLE);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: it was opened by this module and is closed once.
        unsafe { CloseServiceHandle(self.0) };
    }
}

fn manager(access: u32) -> Result<Handle> {
    // SAFETY: null is this machine, and the database that is in use.
    let handle = unsafe { OpenSCManagerW(null(), null(), access) };
    if handle.is_null() {
        Err(error::last())
    } else {
        Ok(Handle(handle))
    }
}

fn open(name: &str, access: u32) -> Result<Handle> {
    open_in(&manager(SC_MANAGER_CONNECT)?, name, access)
}

fn open_in(manager: &Handle, name: &str, access: u32) -> Result<Handle> {
    let name = text::wide(name)?;
    // SAFETY: the handle is open; the name ends with a NUL.
    let handle = unsafe { OpenServiceW(manager.0, name.as_ptr(), access) };
    if handle.is_null() {
        Err(error::last())
    } else {
        Ok(Handle(handle))
    }
}

/// Room for structures that begin with pointers.
fn room(bytes: usize) -> Vec<u64> {
    vec![0; bytes.div_ceil(8)]
}

pub(super) fn list() -> Result<Vec<ServiceEntry>> {
    let manager = manager(SC_MANAGER_CONNECT | SC_MANAGER_ENUMERATE_SERVICE)?;
    let mut buffer = room(LIST_MAX);
    let mut needed = 0;
    let mut count = 0;
    let mut resume = 0;
    let mut found = Vec::new();
    loop {
        // SAFETY: the handle is open; the buffer is as large as is said; null is every group.
        let all = unsafe {
            EnumServicesStatusExW(
                manager.0,
                SC_ENUM_PROCESS_INFO,
                SERVICE_WIN32,
                SERVICE_STATE_ALL,
                buffer.as_mut_ptr().cast(),
                (buffer.len() * 8) as u32,
                &raw mut needed,
                &raw mut count,
                &raw mut resume,
                null(),
            )
        };
        let error = (all == 0).then(error::last);
        if let Some(error) = &error
            && error.code != ERROR_MORE_DATA
        {
            return Err(error.clone());
        }
        let first = buffer.as_ptr().cast::<ENUM_SERVICE_STATUS_PROCESSW>();
        // SAFETY: so many structures were written, at the begin of a buffer that is aligned for them.
        let part = unsafe { std::slice::from_raw_parts(first, count as usize) };
        for service in part {
            let status = &service.ServiceStatusProcess;
            if status.dwServiceType & USER_SERVICE_INSTANCE != 0 {
                continue;
            }
            // SAFETY: it points to a text in the buffer.
            let name = unsafe { text::at(service.lpServiceName) };
            found.push(ServiceEntry {
                depends: depends(&manager, &name),
                state: state(status.dwCurrentState)?,
                pid: status.dwProcessId,
                name,
            });
        }
        if error.is_none() {
            return Ok(found);
        }
    }
}

/// What a service depends on; nothing where it is gone by now or may not be read.
fn depends(manager: &Handle, name: &str) -> Vec<String> {
    let service = open_in(manager, name, SERVICE_QUERY_CONFIG);
    service
        .and_then(|service| config(&service))
        .map(|config| config.depends)
        .unwrap_or_default()
}

pub(super) fn read(name: &str) -> Result<ServiceConfig> {
    let service = open(name, SERVICE_QUERY_CONFIG)?;
    let mut config = config(&service)?;
    let level = |level, bytes| config2(&service, level, bytes);
    if let Some(buffer) = level(SERVICE_CONFIG_DESCRIPTION, CONFIG_MAX)? {
        // SAFETY: Windows wrote the structure of this level; the text it points to lies behind it.
        config.description = Some(unsafe {
            text::at((*buffer.as_ptr().cast::<SERVICE_DESCRIPTIONW>()).lpDescription)
        });
    }
    if let Some(buffer) = level(SERVICE_CONFIG_FAILURE_ACTIONS, CONFIG_MAX)? {
        // SAFETY: as above; the actions lie behind it.
        config.failure =
            Some(unsafe { restarts(&*buffer.as_ptr().cast::<SERVICE_FAILURE_ACTIONSW>()) });
    }
    if let Some(buffer) = level(SERVICE_CONFIG_DELAYED_AUTO_START_INFO, CONFIG_MAX)? {
        // SAFETY: as above.
        let info = unsafe { &*buffer.as_ptr().cast::<SERVICE_DELAYED_AUTO_START_INFO>() };
        config.delayed = Some(info.fDelayedAutostart != 0);
    }
    if let Some(buffer) = level(SERVICE_CONFIG_FAILURE_ACTIONS_FLAG, CONFIG_MAX)? {
        // SAFETY: as above.
        let info = unsafe { &*buffer.as_ptr().cast::<SERVICE_FAILURE_ACTIONS_FLAG>() };
        config.failure_flag = Some(info.fFailureActionsOnNonCrashFailures != 0);
    }
    Ok(config)
}

/// `QueryServiceConfigW`.
fn config(service: &Handle) -> Result<ServiceConfig> {
    let mut buffer = room(CONFIG_MAX);
    let place = buffer.as_mut_ptr().cast::<QUERY_SERVICE_CONFIGW>();
    let mut needed = 0;
    // SAFETY: the handle is open; the buffer is as large as is said.
    error::check(unsafe {
        QueryServiceConfigW(service.0, place, CONFIG_MAX as u32, &raw mut needed)
    })?;
    // SAFETY: Windows wrote the structure and the texts it points to into the buffer.
    unsafe {
        let config = &*place;
        Ok(ServiceConfig {
            kind: config.dwServiceType,
            start: start_of(config.dwStartType)?,
            error_control: config.dwErrorControl,
            command: text::at(config.lpBinaryPathName),
            display: text::at(config.lpDisplayName),
            account: text::at(config.lpServiceStartName),
            depends: text::list_at(config.lpDependencies),
            description: None,
            failure: None,
            delayed: None,
            failure_flag: None,
        })
    }
}

/// One level of `QueryServiceConfig2W`; none where this Windows does not know it.
fn config2(service: &Handle, level: u32, bytes: usize) -> Result<Option<Vec<u64>>> {
    let mut buffer = room(bytes);
    let mut needed = 0;
    // SAFETY: the handle is open; the buffer is as large as is said.
    let read = unsafe {
        QueryServiceConfig2W(
            service.0,
            level,
            buffer.as_mut_ptr().cast(),
            (buffer.len() * 8) as u32,
            &raw mut needed,
        )
    };
    if read != 0 {
        return Ok(Some(buffer));
    }
    let error = error::last();
    match error.code {
        ERROR_INVALID_LEVEL => Ok(None),
        // A command for failures that is longer than the largest configuration.
        ERROR_INSUFFICIENT_BUFFER if needed as usize > bytes => {
            config2(service, level, needed as usize)
        }
        _ => Err(error),
    }
}

/// # Safety
/// The structure is one that Windows wrote, with its actions.
unsafe fn restarts(info: &SERVICE_FAILURE_ACTIONSW) -> Restarts {
    let actions: &[SC_ACTION] = if info.lpsaActions.is_null() {
        &[]
    } else {
        // SAFETY: so many actions lie there, by this function's contract.
        unsafe { std::slice::from_raw_parts(info.lpsaActions, info.cActions as usize) }
    };
    let is_restart = |action: &&SC_ACTION| action.Type == SC_ACTION_RESTART;
    let is_other =
        |action: &SC_ACTION| action.Type != SC_ACTION_RESTART && action.Type != SC_ACTION_NONE;
    Restarts {
        reset_seconds: info.dwResetPeriod,
        delays_ms: actions
            .iter()
            .filter(is_restart)
            .map(|action| action.Delay)
            .collect(),
        other: actions.iter().any(is_other),
    }
}

pub(super) fn status(name: &str) -> Result<ServiceStatus> {
    let service = open(name, SERVICE_QUERY_STATUS)?;
    let mut status = SERVICE_STATUS_PROCESS::default();
    let mut needed = 0;
    // SAFETY: the handle is open; the buffer is as large as is said.
    error::check(unsafe {
        QueryServiceStatusEx(
            service.0,
            SC_STATUS_PROCESS_INFO,
            (&raw mut status).cast(),
            size_of_val(&status) as u32,
            &raw mut needed,
        )
    })?;
    Ok(ServiceStatus {
        state: state(status.dwCurrentState)?,
        accepts: status.dwControlsAccepted,
        exit: status.dwWin32ExitCode,
        service_exit: status.dwServiceSpecificExitCode,
        checkpoint: status.dwCheckPoint,
        wait_hint_ms: status.dwWaitHint,
        pid: status.dwProcessId,
    })
}

fn state(number: u32) -> Result<ServiceState> {
    Ok(match number {
        1 => ServiceState::Stopped,
        2 => ServiceState::StartPending,
        3 => ServiceState::StopPending,
        4 => ServiceState::Running,
        5 => ServiceState::ContinuePending,
        6 => ServiceState::PausePending,
        7 => ServiceState::Paused,
        _ => return Err(error::code(ERROR_INVALID_DATA)),
    })
}

fn start_of(number: u32) -> Result<Start> {
    Ok(match number {
        0 => Start::Boot,
        1 => Start::System,
        2 => Start::Auto,
        3 => Start::Demand,
        4 => Start::Disabled,
        _ => return Err(error::code(ERROR_INVALID_DATA)),
    })
}

fn number_of(start: Start) -> u32 {
    match start {
        Start::Boot => 0,
        Start::System => 1,
        Start::Auto => 2,
        Start::Demand => 3,
        Start::Disabled => 4,
    }
}

/// Settings as texts with a NUL; what is not given is a null pointer.
struct Texts {
    command: Option<Vec<u16>>,
    display: Option<Vec<u16>>,
    depends: Option<Vec<u16>>,
}

impl Texts {
    fn of(settings: &ServiceSettings) -> Result<Self> {
        let wide = |text: &Option<String>| text.as_deref().map(text::wide).transpose();
        Ok(Self {
            command: wide(&settings.command)?,
            display: wide(&settings.display)?,
            depends: settings.depends.as_deref().map(text::list).transpose()?,
        })
    }
}

fn pointer(text: &Option<Vec<u16>>) -> *const u16 {
    text.as_ref().map_or(null(), |text| text.as_ptr())
}

pub(super) fn create(ask: &ServiceCreate) -> Result<()> {
    let manager = manager(SC_MANAGER_CONNECT | SC_MANAGER_CREATE_SERVICE)?;
    let name = text::wide(&ask.name)?;
    let settings = &ask.settings;
    let texts = Texts::of(settings)?;
    if texts.command.is_none() {
        return Err(error::code(ERROR_INVALID_PARAMETER));
    }
    // SAFETY: the handle is open; each text ends with a NUL, the list with two; what is null is Windows' default.
    let service = unsafe {
        CreateServiceW(
            manager.0,
            name.as_ptr(),
            pointer(&texts.display),
            SERVICE_QUERY_STATUS,
            SERVICE_WIN32_OWN_PROCESS,
            settings.start.map_or(SERVICE_DEMAND_START, number_of),
            settings.error_control.unwrap_or(SERVICE_ERROR_NORMAL),
            pointer(&texts.command),
            null(),
            null_mut(),
            pointer(&texts.depends),
            null(),
            null(),
        )
    };
    if service.is_null() {
        return Err(error::last());
    }
    drop(Handle(service));
    Ok(())
}

pub(super) fn change(ask: &ServiceChange) -> Result<()> {
    let service = open(&ask.name, SERVICE_CHANGE_CONFIG)?;
    let settings = &ask.settings;
    let texts = Texts::of(settings)?;
    // SAFETY: the handle is open; each text ends with a NUL, the list with two; what is null stays.
    error::check(unsafe {
        ChangeServiceConfigW(
            service.0,
            SERVICE_NO_CHANGE,
            settings.start.map_or(SERVICE_NO_CHANGE, number_of),
            settings.error_control.unwrap_or(SERVICE_NO_CHANGE),
            pointer(&texts.command),
            null(),
            null_mut(),
            pointer(&texts.depends),
            null(),
            null(),
            pointer(&texts.display),
        )
    })
}

pub(super) fn describe(ask: &ServiceDescribe) -> Result<()> {
    let service = open(&ask.name, SERVICE_CHANGE_CONFIG)?;
    let mut description = text::wide(&ask.description)?;
    let info = SERVICE_DESCRIPTIONW {
        lpDescription: description.as_mut_ptr(),
    };
    // SAFETY: the handle is open; the structure is this level's, and its text ends with a NUL.
    error::check(unsafe {
        ChangeServiceConfig2W(
            service.0,
            SERVICE_CONFIG_DESCRIPTION,
            (&raw const info).cast(),
        )
    })
}

pub(super) fn failure(ask: &ServiceFailure) -> Result<()> {
    let service = open(&ask.name, SERVICE_CHANGE_CONFIG | SERVICE_START)?;
    let restart = |delay: &u32| SC_ACTION {
        Type: SC_ACTION_RESTART,
        Delay: *delay,
    };
    let mut actions: Vec<SC_ACTION> = ask.actions.delays_ms.iter().map(restart).collect();
    let count = actions.len() as u32;
    // An empty list must lead somewhere: a null pointer would leave everything as it is.
    actions.push(SC_ACTION {
        Type: SC_ACTION_NONE,
        Delay: 0,
    });
    let info = SERVICE_FAILURE_ACTIONSW {
        dwResetPeriod: ask.actions.reset_seconds,
        lpRebootMsg: null_mut(),
        lpCommand: null_mut(),
        cActions: count,
        lpsaActions: actions.as_mut_ptr(),
    };
    // SAFETY: the handle is open; the structure is this level's, with as many actions as it says.
    error::check(unsafe {
        ChangeServiceConfig2W(
            service.0,
            SERVICE_CONFIG_FAILURE_ACTIONS,
            (&raw const info).cast(),
        )
    })
}

pub(super) fn start(name: &str) -> Result<()> {
    let service = open(name, SERVICE_START)?;
    // SAFETY: the handle is open; there are no arguments.
    error::check(unsafe { StartServiceW(service.0, 0, null()) })
}

pub(super) fn stop(name: &str) -> Result<()> {
    let service = open(name, SERVICE_STOP)?;
    let mut status = SERVICE_STATUS::default();
    // SAFETY: the handle is open; the structure is written.
    error::check(unsafe { ControlService(service.0, SERVICE_CONTROL_STOP, &raw mut status) })
}

pub(super) fn delete(name: &str) -> Result<()> {
    let service = open(name, DELETE)?;
    // SAFETY: the handle is open.
    error::check(unsafe { DeleteService(service.0) })
}
