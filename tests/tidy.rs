//! Rules of the house that a compiler does not check.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Who may know whom: the table of ARCHITECTURE.md ("-" is nobody of ours).
const EDGES: &[(&str, &[&str])] = &[
    ("dormer-proto", &[]),
    ("dormer-engine-core", &["dormer-proto"]),
    ("dormer-workflows", &["dormer-engine-core", "dormer-proto"]),
    ("dormer-engine", &["dormer-engine-core", "dormer-proto"]),
    ("dormer-profile", &[]),
    ("dormer-workers", &["dormer-proto", "dormer-profile"]),
    ("dormer-fleet", &["dormer-proto", "dormer-profile"]),
    ("dormer-testkit", &[]),
    (
        "dormer-sim",
        &["dormer-proto", "dormer-engine-core", "dormer-engine"],
    ),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(under: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(under) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, extension, found);
            }
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    files(&root(), "rs", &mut found);
    found.sort();
    found
        .into_iter()
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect()
}

#[test]
fn crates_know_only_whom_they_may() {
    let metadata = metadata();
    let allowed: BTreeMap<&str, BTreeSet<&str>> = EDGES
        .iter()
        .map(|(name, of)| (*name, of.iter().copied().collect()))
        .collect();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = allowed.get(name) else {
            assert_eq!(name, "dormer", "{name} is not in the table");
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            let for_tests = dependency["kind"] == "dev";
            if other.starts_with("dormer-") && !for_tests {
                assert!(allowed.contains(other), "{name} may not know {other}");
            }
        }
    }
}

#[test]
fn every_file_says_what_it_is() {
    for (path, text) in sources() {
        assert!(
            text.starts_with("//! "),
            "{} does not open with one //! sentence",
            path.display()
        );
    }
}

/// What `cargo metadata` knows of this workspace, without its dependencies.
fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The files at which the compiler begins: one for each library, program and test binary.
fn entries() -> BTreeSet<PathBuf> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let targets = packages
        .iter()
        .flat_map(|package| package["targets"].as_array().unwrap());
    targets
        .map(|target| PathBuf::from(target["src_path"].as_str().unwrap()))
        .collect()
}

/// A file that no `mod` names is silently not compiled.
#[test]
fn no_file_is_an_orphan() {
    let sources = sources();
    let mut named = BTreeSet::new();
    let mut by_path = BTreeSet::new();
    for (path, text) in &sources {
        for line in text.lines().map(str::trim) {
            let line = line
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub(super) ");
            let line = line.trim_start_matches("pub ");
            if let Some(name) = line.strip_prefix("mod ").and_then(|l| l.strip_suffix(';')) {
                named.insert((path.parent().unwrap().to_path_buf(), name.to_owned()));
                let stem = path.file_stem().unwrap();
                named.insert((path.parent().unwrap().join(stem), name.to_owned()));
            }
            if let Some(at) = line.find("#[path = \"") {
                let file = line[at + 10..].split('"').next().unwrap();
                by_path.insert(path.parent().unwrap().join(file));
            }
        }
    }
    let entries = entries();
    for (path, _) in &sources {
        if entries.contains(path) || by_path.contains(path) {
            continue;
        }
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let folder = path.parent().unwrap();
        let (folder, name) = if stem == "mod" {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            (folder.parent().unwrap().to_path_buf(), name)
        } else {
            (folder.to_path_buf(), stem)
        };
        assert!(
            named.contains(&(folder, name)),
            "{} is in no `mod`",
            path.display()
        );
    }
}

#[test]
fn tests_do_not_sleep() {
    // In two pieces, so that this file does not find itself.
    let needles = [concat!("thread::", "sleep("), concat!("time::", "sleep(")];
    for (path, text) in sources() {
        let folder = path.strip_prefix(root()).unwrap();
        let test_target = folder.components().any(|part| part.as_os_str() == "tests")
            && !folder.components().any(|part| part.as_os_str() == "src");
        if test_target {
            for needle in needles {
                assert!(
                    !text.contains(needle),
                    "{} sleeps; await a condition",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn subjects_are_spelled_in_one_file() {
    let needle = concat!("dorm", "er.history.");
    for (path, text) in sources() {
        if !path.ends_with("proto/src/subject.rs") {
            assert!(
                !text.contains(needle),
                "{} spells a NATS subject",
                path.display()
            );
        }
    }
}

/// Length is a hint for a reader, not a rule: the longest files are printed, never failed on.
#[test]
fn the_longest_files() {
    let mut lengths: Vec<_> = sources()
        .into_iter()
        .map(|(path, text)| (text.lines().count(), path))
        .collect();
    lengths.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    for (length, path) in lengths.iter().take(10) {
        println!(
            "{length:5} {}",
            path.strip_prefix(root()).unwrap().display()
        );
    }
}
