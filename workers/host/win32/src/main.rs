//! `dormer-host.exe`: converges the Windows host that it runs on.

use std::process::ExitCode;

#[cfg(windows)]
fn main() -> ExitCode {
    ExitCode::from(dormer_host_win32::MISUSE)
}

#[cfg(not(windows))]
fn main() -> ExitCode {
    eprintln!("{}", dormer_host_win32::ELSEWHERE);
    ExitCode::from(dormer_host_win32::MISUSE)
}
