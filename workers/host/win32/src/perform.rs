//! `dormer-host-perform.exe`: performs the operations of the host interface that it reads, for the contract suite. Each
//! line of standard input is a request, each line of standard output what came of it. It is never shipped.

use std::process::ExitCode;

#[cfg(windows)]
fn main() -> ExitCode {
    use std::io::{BufRead, Write};

    use dormer_host::{block_on, ops::Host};

    let mut host = dormer_host_win32::Win32::new();
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let request = match serde_json::from_str(&line) {
            Ok(request) => request,
            Err(error) => {
                eprintln!("no request: {error}");
                return ExitCode::from(dormer_host_win32::MISUSE);
            }
        };
        let outcome = block_on(host.perform(request));
        let Ok(mut answer) = serde_json::to_vec(&outcome) else {
            return ExitCode::FAILURE;
        };
        answer.push(b'\n');
        if answers
            .write_all(&answer)
            .and_then(|()| answers.flush())
            .is_err()
        {
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
