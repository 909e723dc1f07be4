//! Stores and dumps of earlier builds (`tests/stores`), which every build must read.

use dormer_testkit::test_dir;
use flate2::read::GzDecoder;
use std::{fs, io::Read, path::Path, process::Command};

/// What `dormer store check` says of the store of 0.1.
const CONTENT: &str = "5 runs, 223 records, 0 faults";

/// A file of `tests/stores`, unpacked.
fn unpacked(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/stores")
        .join(name);
    let file = fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    GzDecoder::new(file).read_to_end(&mut bytes).expect("gzip");
    bytes
}

/// `dormer store …`: what it prints.
fn store(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .arg("store")
        .args(arguments)
        .arg("--store")
        .arg(folder)
        .output()
        .expect("dormer runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The records of a dump: all but its first line, which names the store, and the last one, which counts them.
fn records(dump: &[u8]) -> Vec<serde_json::Value> {
    let text = std::str::from_utf8(dump).expect("a dump is text");
    let lines = text.lines().skip(1);
    lines
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .filter(|line: &serde_json::Value| line.get("end").is_none())
        .collect()
}

#[test]
fn a_store_of_0_1_is_read_and_gives_the_same_records() {
    let folder = test_dir("store");
    let at = folder.path().join("store");
    fs::create_dir(&at).expect("a folder");
    fs::write(at.join("dormer.redb"), unpacked("0.1/dormer.redb.gz")).expect("written");
    assert_eq!(store(&["check"], &at), CONTENT);
    let to = folder.path().join("dump");
    store(&["dump", "--to", &to.display().to_string()], &at);
    let dumped = fs::read(&to).expect("a dump");
    assert_eq!(records(&dumped), records(&unpacked("0.1/dump.jsonl.gz")));
}

#[test]
fn a_dump_of_0_1_makes_a_store_with_the_same_records() {
    let folder = test_dir("store");
    let from = folder.path().join("dump");
    let dump = unpacked("0.1/dump.jsonl.gz");
    fs::write(&from, &dump).expect("written");
    let at = folder.path().join("store");
    store(&["restore", "--from", &from.display().to_string()], &at);
    assert_eq!(store(&["check"], &at), CONTENT);
    let to = folder.path().join("again");
    store(&["dump", "--to", &to.display().to_string()], &at);
    let restored = records(&fs::read(&to).expect("a dump"));
    let envelope = |line: &serde_json::Value| line["record"]["envelope"].clone();
    let envelopes = |lines: &[serde_json::Value]| lines.iter().map(envelope).collect::<Vec<_>>();
    assert_eq!(envelopes(&restored), envelopes(&records(&dump)));
}
