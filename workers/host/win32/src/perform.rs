//! `dormer-host-perform.exe`: performs the operations of the host interface that it reads, for the contract suite. Each
//! line of standard input is a request, each line of standard output what came of it. With the words of a call it gives
//! signs and keeps limits as `dormer-host.exe` does in that call. With `contract FOLDER` it runs the rows of the contract
//! on the Windows that it runs on, where FOLDER has the service programs; with `--wine` behind it, those that Wine
//! shows. It is never shipped.

use std::process::ExitCode;

#[cfg(windows)]
fn main() -> ExitCode {
    use dormer_host::{arguments, wire::Output};
    use dormer_host_win32::{MISUSE, Win32, watched};

    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() {
        return perform(Win32::new());
    }
    if let Some(("contract", rest)) = words
        .split_first()
        .map(|(word, rest)| (word.as_str(), rest))
    {
        return contract(rest);
    }
    match arguments::parse(&words) {
        Ok(call) => perform(watched(call, Output::new(std::io::stdout()))),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(MISUSE)
        }
    }
}

/// Runs the rows, prints each, and exits with 0 where all held.
#[cfg(windows)]
fn contract(words: &[String]) -> ExitCode {
    use dormer_contract::{Scope, Shown, run_here};

    let (programs, on_wine) = match words {
        [programs] => (programs, false),
        [programs, wine] if wine == "--wine" => (programs, true),
        _ => {
            eprintln!("contract FOLDER [--wine]");
            return ExitCode::from(dormer_host_win32::MISUSE);
        }
    };
    let scope = Scope {
        folder: r"C:\dormer-contract".into(),
        prefix: "dormer-contract".into(),
        programs: programs.clone(),
    };
    let mut held = 0_u32;
    let mut skipped = 0_u32;
    let mut failed = 0_u32;
    let report = |shown| match shown {
        Shown::Held(name) => {
            held += 1;
            println!("held     {name}");
        }
        Shown::Skipped(name, why) => {
            skipped += 1;
            println!("skipped  {name}: {why}");
        }
        Shown::Failed(why) => {
            failed += 1;
            println!("FAILED   {why}");
        }
    };
    let mut host = dormer_host_win32::Win32::new();
    dormer_host::block_on(run_here(&scope, &mut host, on_wine, report));
    println!("{held} held, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0 || held == 0))
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
        // Not held while an operation runs: its limit is answered by another thread.
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
