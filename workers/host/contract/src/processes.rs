//! Rows about processes.

use dormer_host::ops::{
    Answer, Ask, Operation, Process, ProcessEnd, ProcessEnded, ProcessHold, ProcessKey,
    ProcessList, ProcessRelease, ProgramRun, WinError,
};

use crate::{
    Row, Scope,
    Wanted::{self, Done, Refused},
};

const RUN: &str = "sdk-api nf-processthreadsapi-createprocessw";
const CMD: &str = r"C:\windows\system32\cmd.exe";

/// A process without a held handle.
const NOBODY: ProcessKey = ProcessKey { pid: 4, created: 1 };

fn run(path: &str, arguments: &[&str], limit_ms: u64) -> Operation {
    ProgramRun {
        path: path.into(),
        arguments: arguments.iter().map(|it| (*it).to_owned()).collect(),
        limit_ms,
    }
    .operation()
}

fn code(code: u32) -> Wanted {
    Wanted::Answer(
        "this exit code",
        Box::new(move |answer| matches!(answer, Answer::ProgramRun(found) if *found == code)),
    )
}

pub(crate) fn rows(scope: &Scope) -> Vec<Row> {
    let mut rows = vec![
        Row::new(
            "the list has this program, with its path and its begin",
            vec![],
            ProcessList {}.operation(),
            Wanted::Answer(
                "a process that is told whole",
                Box::new(|answer| {
                    let Answer::ProcessList(all) = answer else {
                        return false;
                    };
                    let whole = |one: &Process| {
                        one.pid != 0
                            && one.created > 0
                            && one.path.len() > one.name.len()
                            && one.path.to_lowercase().ends_with(&one.name.to_lowercase())
                    };
                    all.iter().any(whole)
                }),
            ),
            "sdk-api nf-tlhelp32-createtoolhelp32snapshot",
        )
        .liar(Ok(Answer::ProcessList(vec![]))),
        Row::new(
            "a process that is not there is not held",
            vec![],
            // Ids are multiples of four.
            ProcessHold { pid: 0x7fff_fff3 }.operation(),
            Refused(&[87]),
            "sdk-api nf-processthreadsapi-openprocess; windows_exporter#2045",
        )
        .liar(Ok(Answer::ProcessHold(1))),
        Row::new(
            "the idle process is not held",
            vec![],
            ProcessHold { pid: 0 }.operation(),
            Refused(&[87]),
            "sdk-api nf-processthreadsapi-openprocess",
        )
        .liar(Ok(Answer::ProcessHold(1))),
        Row::new(
            "Windows' own process is not held",
            vec![],
            ProcessHold { pid: 4 }.operation(),
            Refused(&[5]),
            "sdk-api nf-processthreadsapi-openprocess",
        )
        .not_on_wine("87: there is no process 4"),
        Row::new(
            "what is not held is not asked about",
            vec![],
            ProcessEnded { process: NOBODY }.operation(),
            Refused(&[6]),
            "winerror.h, ERROR_INVALID_HANDLE",
        )
        .liar(Ok(Answer::ProcessEnded(true))),
        Row::new(
            "what is not held is not ended",
            vec![],
            ProcessEnd { process: NOBODY }.operation(),
            Refused(&[6]),
            "winerror.h, ERROR_INVALID_HANDLE",
        ),
        Row::new(
            "what is not held is released all the same",
            vec![],
            ProcessRelease { process: NOBODY }.operation(),
            Done,
            "the interface's own promise",
        )
        .liar(Err(WinError::new(6))),
    ];
    rows.extend(of_programs(scope));
    rows
}

fn of_programs(scope: &Scope) -> Vec<Row> {
    let folder = &scope.folder;
    vec![
        Row::new(
            "a program's exit code is answered",
            vec![],
            run(CMD, &["/c", "exit", "3"], 60_000),
            code(3),
            RUN,
        )
        .liar(Ok(Answer::ProgramRun(0))),
        Row::new(
            "an exit code has 32 bits",
            vec![],
            run(CMD, &["/c", "exit", "-2147023436"], 60_000),
            code(0x8007_05b4),
            "PowerShell/openssh-portable w32-doexec.c; sdk-api nf-processthreadsapi-getexitcodeprocess",
        )
        .liar(Ok(Answer::ProgramRun(0xb4))),
        Row::new(
            "a program that is not there",
            vec![],
            run(&format!(r"{folder}\no.exe"), &[], 60_000),
            Refused(&[2]),
            RUN,
        )
        .liar(Ok(Answer::ProgramRun(0))),
        Row::new(
            "a program in a folder that is not there",
            vec![],
            run(&format!(r"{folder}\no\no.exe"), &[], 60_000),
            Refused(&[3, 2]),
            RUN,
        )
        .liar(Ok(Answer::ProgramRun(0))),
        Row::new(
            "what is no program does not run",
            vec![crate::files::write(
                &format!(r"{folder}\text.exe"),
                "no program",
            )],
            run(&format!(r"{folder}\text.exe"), &[], 60_000),
            Refused(&[193]),
            "winerror.h, ERROR_BAD_EXE_FORMAT",
        )
        .liar(Ok(Answer::ProgramRun(0))),
        Row::new(
            "a program that does not end is ended at its limit",
            vec![],
            run(&format!(r"{}\idle.exe", scope.programs), &["idle"], 100),
            Refused(&[1460]),
            "sdk-api nf-synchapi-waitforsingleobject; winerror.h, ERROR_TIMEOUT",
        )
        .liar(Ok(Answer::ProgramRun(0))),
    ]
}
