//! `dormer-host.exe` as it is shipped, on Wine.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use dormer_contract::rows;
use dormer_host::ops::{Ask, OperationRequest, Pause, Step};
use dormer_profile::{answer::FailureCode, frame, sha256_hex};
use dormer_testkit::{Wine, host_program, long, started, test_dir};

use crate::{MANNERS, PROGRAMS, scope, wine};

const PROGRAM: &str = r"C:\windows\dormer-host.exe";
const PERFORM: &str = r"C:\windows\dormer-host-perform.exe";
/// 1.2 MB, of 2^20 bytes each: every host gets it over SSH.
const LARGEST: usize = 12 * (1 << 20) / 10;

#[test]
fn the_program_is_small_and_for_x86_64() {
    let program = match host_program() {
        Ok(program) => program,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let bytes = fs::read(&program.program).expect("it was built");
    assert!(bytes.len() <= LARGEST, "{} bytes", bytes.len());
    // PE/COFF, 2.5.1 and 3.3.1: where the header begins, its signature, the machine.
    let at = u32::from_le_bytes(bytes[0x3c..0x40].try_into().expect("four bytes")) as usize;
    assert_eq!(&bytes[at..at + 4], b"PE\0\0");
    assert_eq!(bytes[at + 4..at + 6], [0x64, 0x86]);
    // Where it was built is not in it.
    let folder = env!("CARGO_MANIFEST_DIR").trim_end_matches("/workers/host/contract");
    let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    assert!(!has(folder.as_bytes()), "{folder} is in the program");
    // Manifest and version are.
    assert!(has(b"longPathAware"));
    let name: Vec<u8> = "dormer-host.exe"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert!(has(&name), "no version resource");
}

#[test]
fn a_probe_answers_in_its_frame_and_a_wrong_call_exits_with_2() {
    let program = match host_program() {
        Ok(program) => program,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let wine = started!(Wine::start());
    wine.install(&program.program, PROGRAM).expect("installed");
    let run = |line: &str| {
        let mut command = wine.command(PROGRAM);
        command.args(line.split(' ')).stdin(Stdio::null());
        wine.output(&mut command).expect("Wine can be started")
    };
    let hash = "ab".repeat(32);
    let probe =
        format!("probe --task machine/1@7.0 --attempt 2 --generation 1 --seq 7 --program {hash}");
    let output = run(&probe);
    let answer = frame::extract(&output.stdout, "machine/1@7.0", 2).expect("an answer");
    assert_eq!(answer.failure, None);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(answer.program, hash);
    assert_eq!(answer.facts.os_build, "10.0.20348");
    assert!(!answer.facts.boot_id.is_empty());
    // Looking at a host writes nothing of ours.
    assert!(!wine.file(r"C:\windows\dormer").exists());
    let wrong = run("fly");
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(said.contains("no mode `fly`"), "{said}");
}

/// What `.github/workflows/windows.yml` runs on a Windows, with the rows that Wine shows.
#[test]
fn the_rows_run_by_themselves_on_the_windows_that_they_are_about() {
    let program = match host_program() {
        Ok(program) => program,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let wine = started!(Wine::start());
    wine.install(&program.perform, PERFORM).expect("installed");
    wine.install_service_programs(PROGRAMS, &MANNERS)
        .expect("compiled");
    let mut command = wine.command(PERFORM);
    let command = command.args(["contract", PROGRAMS, "--wine"]);
    let output = wine
        .output(command.stdin(Stdio::null()))
        .expect("Wine runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let rows = rows(&scope("native"));
    let shown = rows.iter().filter(|row| wine::shown(row)).count();
    let ended = format!("{shown} held, 0 failed, {} skipped", rows.len() - shown);
    assert_eq!(said.lines().last(), Some(ended.as_str()), "{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.lines().count(), rows.len() + 1);
}

/// The operation is a pause of an hour, as one would be that Windows does not end.
#[test]
fn an_operation_past_its_limit_is_answered_and_ends_the_whole_program() {
    let program = match host_program() {
        Ok(program) => program,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let wine = started!(Wine::start());
    wine.install(&program.perform, PERFORM).expect("installed");
    let hash = "ab".repeat(32);
    let call =
        format!("probe --task machine/1@7.0 --attempt 2 --generation 1 --seq 7 --program {hash}");
    let mut running = wine.command(PERFORM);
    running.args(call.split(' '));
    running.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = running.spawn().expect("Wine can be started");
    let mut requests = running.stdin.take().expect("a pipe");
    let doing = "kubelet_stops".to_owned();
    let request = OperationRequest {
        step: Step {
            doing,
            limit_ms: 1_000,
            ..Step::default()
        },
        operation: Pause { ms: 3_600_000 }.operation(),
    };
    let request = serde_json::to_string(&request).expect("JSON");
    writeln!(requests, "{request}").expect("it reads");
    // Its input stays open: it is the limit that ends it.
    let output = running.wait_with_output().expect("it ends");
    drop(requests);
    assert_eq!(output.status.code(), Some(1));
    let answer = frame::extract(&output.stdout, "machine/1@7.0", 2).expect("an answer");
    let failure = answer.failure.expect("a failure");
    assert_eq!(failure.code, FailureCode::TimedOut);
    assert_eq!(failure.message, "kubelet_stops lasted longer than 1000 ms");
}

/// Builds the program of the last commit in a folder that holds nothing else, and answers its SHA-256.
fn built(folder: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut archive = Command::new("git");
    let archive = archive.args(["archive", "--format=tar", "HEAD"]);
    let archive = archive.current_dir(root).output().expect("git");
    assert!(archive.status.success(), "{archive:?}");
    let unpacked = tar::Archive::new(&*archive.stdout).unpack(folder);
    unpacked.expect("the committed files");
    let mut script = Command::new(folder.join("workers/host/win32/build.sh"));
    let script = script.arg("out").current_dir(folder);
    // Each builds everything in its own folder.
    let done = script.env_remove("CARGO_TARGET_DIR").output();
    let done = done.expect("the script");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    sha256_hex(&fs::read(folder.join("out/dormer-host.exe")).expect("it was built"))
}

#[test]
fn two_builds_in_two_folders_are_the_same_bytes() {
    let part = long!("host-program");
    let short = test_dir("a");
    let other = test_dir("host-program");
    let longer = other.path().join("a folder with another length");
    fs::create_dir(&longer).expect("a folder");
    let first = built(short.path());
    assert_eq!(first, built(&longer));
    part.passed(&[("SHA-256", first)]);
}
