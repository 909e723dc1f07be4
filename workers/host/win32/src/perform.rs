//! `dormer-host-perform.exe`: performs the operations of the host interface that it reads, for the contract suite. Each
//! line of standard input is a request, each line of standard output what came of it. With the words of a call it gives
//! signs and keeps limits as `dormer-host.exe` does in that call. It is never shipped.

use std::process::ExitCode;

#[cfg(windows)]
fn main() -> ExitCode {
    use dormer_host::{arguments, wire::Output};
    use dormer_host_win32::{MISUSE, Win32, watched};

    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() {
        return perform(Win32::new());
    }
    match arguments::parse(&words) {
        Ok(call) => perform(watched(call, Output::new(std::io::stdout()))),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(MISUSE)
        }
    }
}

#[cfg(windows)]
fn perform(mut host: impl dormer_host::ops::Host) -> ExitCode {
    use std::io::{BufRead, Write};

    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let request = match serde_json::from_str(&line) {
            Ok(request) => request,
            Err(error) => {
                eprintln!("no request: {error}");
                return ExitCode::from(dormer_host_win32::MISUSE);
            }
        };
        let outcome = dormer_host::block_on(host.perform(request));
        let Ok(mut answer) = serde_json::to_vec(&outcome) else {
            return ExitCode::FAILURE;
        };
        answer.push(b'\n');
        // Not held while an operation goes on: its limit is answered by another thread.
        let mut answers = std::io::stdout().lock();
        let written = answers.write_all(&answer).and_then(|()| answers.flush());
        if written.is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

#[cfg(not(windows))]
fn main() -> ExitCode {
    eprintln!("{}", dormer_host_win32::ELSEWHERE);
    ExitCode::from(dormer_host_win32::MISUSE)
}
