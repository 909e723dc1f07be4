//! `dormer-host.exe`: converges the Windows host that it runs on.

use std::process::ExitCode;

#[cfg(windows)]
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match dormer_host::arguments::parse(&words) {
        Ok(call) if call.mode == dormer_host::arguments::Mode::Boot => {
            dormer_host_win32::as_service(dormer_host::BOOT_SERVICE, call)
        }
        Ok(call) => dormer_host_win32::serve(call),
        Err(why) => {
            // It need not be read.
            let _ =
                std::io::Write::write_all(&mut std::io::stderr(), format!("{why}\r\n").as_bytes());
            ExitCode::from(dormer_host_win32::MISUSE)
        }
    }
}

#[cfg(not(windows))]
fn main() -> ExitCode {
    eprintln!("{}", dormer_host_win32::ELSEWHERE);
    ExitCode::from(dormer_host_win32::MISUSE)
}
