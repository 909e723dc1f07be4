//! `dormer-host.exe` as it is shipped, on Wine.

use std::{fs, process::Stdio};

use dormer_profile::frame;
use dormer_testkit::{Wine, host_program, started};

const PROGRAM: &str = r"C:\windows\dormer-host.exe";
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
        command.output().expect("Wine can be started")
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
