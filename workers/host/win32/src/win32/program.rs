//! One call of `dormer-host.exe`, from its standard input to its answer, and the service that runs one at each boot.
#![expect(unsafe_code, reason = "speaks to the service control manager")]

use std::{
    io::{Stdout, Write},
    process::ExitCode,
    ptr::null_mut,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicPtr, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dormer_host::{
    arguments::Call,
    heartbeat::HostHeartbeat,
    ops::Step,
    wire::{self, ObservedHost, Output, Watch},
};
use dormer_profile::answer::FailureCode;
use windows_sys::Win32::{
    Foundation::{ERROR_CALL_NOT_IMPLEMENTED, ERROR_FAILED_SERVICE_CONTROLLER_CONNECT, NO_ERROR},
    System::Services::{
        RegisterServiceCtrlHandlerExW, SERVICE_CONTROL_INTERROGATE, SERVICE_RUNNING,
        SERVICE_STATUS, SERVICE_STATUS_CURRENT_STATE, SERVICE_STOPPED, SERVICE_TABLE_ENTRYW,
        SERVICE_WIN32_OWN_PROCESS, SetServiceStatus, StartServiceCtrlDispatcherW,
    },
};

use super::{Win32, error, system, text};

/// Time between two heartbeats. The caller takes 60 s of silence for death.
const SIGN: Duration = Duration::from_secs(10);
/// How often an operation's limit is looked at.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Exit code of a call that failed.
const FAILED: u8 = 1;

/// One call, its document on standard input, its answer on standard output. An operation that lasts longer than it may
/// ends the whole process, so that no part of it runs under a later fence.
pub fn serve(call: Call) -> ExitCode {
    let output = Output::new(std::io::stdout());
    report_panics(call.clone(), output.clone());
    let host = watched(call.clone(), output.clone());
    let well = wire::serve(call, std::io::stdin(), &output, host);
    ExitCode::from(if well { 0 } else { FAILED })
}

/// This Windows, for one call: from its first operation on signs are given, and an operation's limit ends the process.
pub fn watched(call: Call, output: Output<Stdout>) -> ObservedHost<Win32> {
    let watch = Watch::default();
    let watcher = watch.clone();
    thread::spawn(move || give_signs(&watcher, &call, &output));
    ObservedHost::new(Win32::new(), watch)
}

/// A panic is an answer, too; the process aborts after it.
fn report_panics(call: Call, output: Output<Stdout>) {
    std::panic::set_hook(Box::new(move |panic| {
        output.answer(&wire::broken(
            &call,
            FailureCode::Other,
            &format!("dormer-host.exe panicked: {panic}"),
        ));
    }));
}

/// Reports the present step every few seconds, and ends the process at an operation's limit.
fn give_signs(watch: &Watch, call: &Call, output: &Output<Stdout>) {
    let (mut number, mut step) = watch.now();
    let mut began = Instant::now();
    let mut said = Instant::now();
    loop {
        thread::sleep(POLL_EVERY);
        let now = watch.now();
        if now.0 != number {
            (number, step) = now;
            began = Instant::now();
        }
        let sign = HostHeartbeat::of(&step, elapsed_ms(&step, began));
        if number > 0 && sign.overdue() {
            let message = format!("{} lasted longer than {} ms", sign.doing, sign.limit_ms);
            output.answer(&wire::broken(call, FailureCode::TimedOut, &message));
            std::process::exit(i32::from(FAILED));
        }
        if said.elapsed() >= SIGN {
            said = Instant::now();
            output.heartbeat(&sign);
        }
    }
}

/// How long a step lasts: a wait knows when it began, an operation began when it was seen first.
fn elapsed_ms(step: &Step, seen: Instant) -> u64 {
    match step.since_ms {
        0 => u64::try_from(seen.elapsed().as_millis()).unwrap_or(u64::MAX),
        since => system::clock().tick_ms.saturating_sub(since),
    }
}

/// What the service does, handed to [`service_main`], which Windows calls without arguments of ours.
static SERVICE: OnceLock<(Vec<u16>, Mutex<Option<Call>>)> = OnceLock::new();
static STATUS: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(null_mut());

/// One call as a Windows service of this name: RUNNING, then the work, then STOPPED. Started by hand it is a plain call.
pub fn as_service(name: &str, call: Call) -> ExitCode {
    let Ok(name) = text::wide(name) else {
        return ExitCode::from(FAILED);
    };
    let (name, _) = SERVICE.get_or_init(|| (name, Mutex::new(Some(call.clone()))));
    let services = [
        SERVICE_TABLE_ENTRYW {
            lpServiceName: name.as_ptr().cast_mut(),
            lpServiceProc: Some(service_main),
        },
        SERVICE_TABLE_ENTRYW::default(),
    ];
    // SAFETY: the table ends with an empty entry; name and table live longer than the call.
    let dispatched = error::check(unsafe { StartServiceCtrlDispatcherW(services.as_ptr()) });
    match dispatched {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.code == ERROR_FAILED_SERVICE_CONTROLLER_CONNECT => serve(call),
        Err(error) => {
            let _ = std::io::stderr().write_all(format!("{error}\r\n").as_bytes());
            ExitCode::from(FAILED)
        }
    }
}

unsafe extern "system" fn service_main(_: u32, _: *mut *mut u16) {
    let Some((name, call)) = SERVICE.get() else {
        return;
    };
    // SAFETY: the name ends with a NUL; the handler needs no context.
    let handle = unsafe { RegisterServiceCtrlHandlerExW(name.as_ptr(), Some(control), null_mut()) };
    if handle.is_null() {
        return;
    }
    STATUS.store(handle, Ordering::Release);
    report(SERVICE_RUNNING);
    let call = call.lock().ok().and_then(|mut call| call.take());
    if let Some(call) = call {
        let _ = serve(call);
    }
    report(SERVICE_STOPPED);
}

/// Nothing stops it in the middle: what it does is safe to be cut, and a shutdown cuts it.
unsafe extern "system" fn control(
    code: u32,
    _: u32,
    _: *mut core::ffi::c_void,
    _: *mut core::ffi::c_void,
) -> u32 {
    match code {
        SERVICE_CONTROL_INTERROGATE => NO_ERROR,
        _ => ERROR_CALL_NOT_IMPLEMENTED,
    }
}

fn report(state: SERVICE_STATUS_CURRENT_STATE) {
    let status = SERVICE_STATUS {
        dwServiceType: SERVICE_WIN32_OWN_PROCESS,
        dwCurrentState: state,
        ..Default::default()
    };
    // SAFETY: the handle was answered by the registration; the structure lives as long as the call.
    unsafe { SetServiceStatus(STATUS.load(Ordering::Acquire), &raw const status) };
}
