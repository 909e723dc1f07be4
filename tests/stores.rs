//! Stores and dumps of earlier builds (`tests/stores`), which every build must read.

use dormer_proto::work::SCHEMA;
use dormer_testkit::test_dir;
use flate2::read::GzDecoder;
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

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

/// Folders whose types are in records and messages.
const STORED: [&str; 6] = [
    "proto/src",
    "proto/src/machine",
    "engine/core/src",
    "workflows/src",
    "workflows/src/machine",
    "workflows/src/rollout",
];

/// Names of the fields and variants of every serialized type in a file, with their serde attributes, a line for each type.
fn stored_types(folder: &str, text: &str) -> Vec<String> {
    let product = text.split("#[cfg(test)]\nmod tests").next();
    let mut types = Vec::new();
    let mut open = None::<String>;
    let mut serialized = false;
    for line in product.unwrap_or_default().lines() {
        if line.starts_with("#[derive(") {
            serialized = line.contains("Serialize");
        }
        let words = line.split([' ', '(', '<', ';', ',', ':']);
        let mut words =
            words.filter(|word| !word.is_empty() && !["pub", "crate)", "super)"].contains(word));
        match (words.next(), &mut open) {
            (Some("struct" | "enum"), None) => {
                let name = words.next().unwrap_or_default();
                match std::mem::take(&mut serialized) {
                    true if line.ends_with('{') => open = Some(format!("{folder} {name}:")),
                    true => types.push(format!("{folder} {}", line.trim_start_matches("pub "))),
                    false => {}
                }
            }
            (Some("}"), Some(_)) if line == "}" => types.extend(open.take()),
            (Some(word), Some(open)) if word.starts_with(char::is_alphabetic) => {
                *open += &format!(" {word}");
                // A variant on one line: the names of its fields.
                let inside = line.split_once('{').and_then(|(_, it)| it.split_once('}'));
                for field in inside.map_or("", |(it, _)| it).split(',') {
                    if let Some((name, _)) = field.split_once(':') {
                        *open += &format!(" {}", name.trim());
                    }
                }
            }
            (Some("#[serde"), Some(open)) => {
                *open += &format!(" {}", line.trim());
            }
            _ => {}
        }
    }
    types
}

/// A build that meets a record with a field or a variant that it does not know loses the one, and quarantines the run for the
/// other, unless the record's schema number is greater than its own (docs/decisions/0008-schema-numbers.md).
#[test]
fn what_is_stored_is_listed_so_that_a_change_asks_for_the_schema_number() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut types = Vec::new();
    for folder in STORED {
        let files = fs::read_dir(root.join(folder)).expect("a folder");
        let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
        files.retain(|file| file.extension().is_some_and(|it| it == "rs"));
        for file in files {
            types.extend(stored_types(
                folder,
                &fs::read_to_string(file).expect("text"),
            ));
        }
    }
    types.sort();
    let listed = format!("schema {SCHEMA}\n{}\n", types.join("\n"));
    let path = root.join("tests/stores/types.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &listed).expect("written");
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    for (line, known) in listed.lines().zip(known.lines()) {
        assert_eq!(
            line, known,
            "what is stored has changed: if a release has the number {SCHEMA}, raise it in proto/src/work.rs; then \
             UPDATE_EXPECT=1"
        );
    }
    assert_eq!(listed, known, "as above");
}
