//! House rules that the compiler does not check.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Permitted dependencies of each package, as in the table of ARCHITECTURE.md ("-": none of the workspace).
const EDGES: &[(&str, &[&str])] = &[
    ("dormer-proto", &[]),
    ("dormer-nats", &[]),
    ("dormer-support", &[]),
    ("dormer-views", &["dormer-proto", "dormer-profile"]),
    ("dormer-engine-core", &["dormer-proto"]),
    (
        "dormer-workflows",
        &["dormer-engine-core", "dormer-proto", "dormer-support"],
    ),
    (
        "dormer-engine",
        &["dormer-engine-core", "dormer-nats", "dormer-proto"],
    ),
    ("dormer-profile", &[]),
    ("dormer-host", &["dormer-profile", "dormer-proto"]),
    ("dormer-host-sim", &["dormer-host", "dormer-profile"]),
    (
        "dormer-host-win32",
        &["dormer-contract", "dormer-host", "dormer-profile"],
    ),
    ("dormer-contract", &["dormer-host"]),
    (
        "dormer-workers",
        &[
            "dormer-nats",
            "dormer-proto",
            "dormer-profile",
            "dormer-host",
        ],
    ),
    (
        "dormer-telemetry",
        &[
            "dormer-engine-core",
            "dormer-engine",
            "dormer-proto",
            "dormer-workers",
            "dormer-workflows",
        ],
    ),
    (
        "dormer-api",
        &[
            "dormer-engine-core",
            "dormer-engine",
            "dormer-profile",
            "dormer-proto",
            "dormer-telemetry",
            "dormer-views",
            "dormer-workers",
            "dormer-workflows",
        ],
    ),
    (
        "dormer-console",
        &["dormer-api", "dormer-proto", "dormer-views"],
    ),
    (
        "dormer-client",
        &["dormer-profile", "dormer-proto", "dormer-views"],
    ),
    (
        "dormer-loop",
        &["dormer-engine", "dormer-telemetry", "dormer-workflows"],
    ),
    (
        "dormer-run",
        &[
            "dormer-api",
            "dormer-console",
            "dormer-engine",
            "dormer-engine-core",
            "dormer-loop",
            "dormer-nats",
            "dormer-profile",
            "dormer-proto",
            "dormer-support",
            "dormer-telemetry",
            "dormer-views",
            "dormer-workers",
            "dormer-workflows",
        ],
    ),
    (
        "dormer-load",
        &["dormer-engine", "dormer-engine-core", "dormer-proto"],
    ),
    (
        "dormer-lab",
        &[
            "dormer-api",
            "dormer-client",
            "dormer-console",
            "dormer-engine",
            "dormer-engine-core",
            "dormer-fleet",
            "dormer-load",
            "dormer-loop",
            "dormer-nats",
            "dormer-profile",
            "dormer-proto",
            "dormer-run",
            "dormer-support",
            "dormer-telemetry",
            "dormer-views",
            "dormer-workers",
            "dormer-workflows",
        ],
    ),
    (
        "dormer-fleet",
        &["dormer-proto", "dormer-profile", "dormer-host"],
    ),
    ("dormer-lint", &["dormer-profile", "dormer-support"]),
    ("dormer-testkit", &[]),
    (
        "dormer-decoders",
        &[
            "dormer-api",
            "dormer-engine-core",
            "dormer-host",
            "dormer-lint",
            "dormer-profile",
            "dormer-proto",
            "dormer-workers",
            "dormer-workflows",
        ],
    ),
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
fn packages_use_only_what_they_may() {
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

/// Win32 is called by unsafe functions, so its package has a table of lints of its own: the workspace's, with one word
/// changed. All other packages take the workspace's.
#[test]
fn one_package_has_other_lints_and_only_by_one_word() {
    let read = |path: &Path| -> toml::Table {
        toml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let mut wanted = read(&root().join("Cargo.toml"))["workspace"]["lints"].clone();
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap() {
        let path = Path::new(package["manifest_path"].as_str().unwrap());
        let lints = read(path)["lints"].clone();
        if package["name"] == "dormer-host-win32" {
            let word = wanted["rust"]["unsafe_code"].clone();
            assert_eq!(word.as_str(), Some("forbid"));
            wanted["rust"]["unsafe_code"] = "deny".into();
            assert_eq!(lints, wanted);
            wanted["rust"]["unsafe_code"] = word;
        } else {
            assert_eq!(
                lints["workspace"].as_bool(),
                Some(true),
                "{}",
                path.display()
            );
        }
    }
}

/// The rest of the workspace is the same on every platform.
#[test]
fn windows_is_asked_for_in_one_package() {
    // In two pieces, so that this file does not find itself.
    let needles = [
        concat!("cfg(win", "dows"),
        concat!("cfg(not(win", "dows"),
        concat!("target_os = \"win", "dows"),
    ];
    for (path, text) in sources() {
        let place = path.strip_prefix(root()).unwrap();
        if !place.starts_with("workers/host/win32") {
            for needle in needles {
                assert!(!text.contains(needle), "{} has {needle}", place.display());
            }
        }
    }
}

/// Whether a source unwraps a lock itself.
fn unwraps_a_lock(text: &str) -> bool {
    let flat: String = text.split_whitespace().collect();
    flat.contains(concat!("PoisonError::", "into_inner"))
}

#[test]
fn every_lock_is_taken_by_the_helper() {
    assert!(unwraps_a_lock(concat!(
        "self.all\n    .lock()\n    .unwrap_or_else(PoisonError::",
        "into_inner)"
    )));
    assert!(!unwraps_a_lock("self.all.locked()"));
    // The one place, the packages that do not know it, and a mutex that is taken apart.
    let apart = [
        "proto/src/lock.rs",
        "proto/nats",
        "tests/kit",
        "tests/sim",
        "src/lab/bench/fleet/chaos.rs",
    ];
    let mut found = Vec::new();
    for (path, text) in sources() {
        let path = path.strip_prefix(root()).unwrap();
        if !apart.iter().any(|it| path.starts_with(it)) && unwraps_a_lock(&text) {
            found.push(path.display().to_string());
        }
    }
    assert!(
        found.is_empty(),
        "these have `dormer_proto::lock`:\n{}",
        found.join("\n")
    );
}

/// The table of ARCHITECTURE.md: each package with the packages that it may know.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut table: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains("| `dormer")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, _, name, _, ours, ..] = cells[..] else {
            continue;
        };
        let (ours, without) = ours.split_once(" but ").unwrap_or((ours, ""));
        let mut may = BTreeSet::new();
        for word in ours.split(", ").filter(|word| *word != "-") {
            if word == "all above" {
                may.extend(table.keys().cloned());
            } else {
                may.insert(format!("dormer-{word}"));
            }
        }
        may.remove(&format!("dormer-{without}"));
        table.insert(name.trim_matches('`').to_owned(), may);
    }
    table
}

#[test]
fn the_table_of_architecture_has_these_edges() {
    let mut table = table();
    assert!(table.remove("dormer").is_some(), "the root package");
    let owned = |(name, of): &(&str, &[&str])| {
        let of: BTreeSet<String> = of.iter().map(|name| (*name).to_owned()).collect();
        ((*name).to_owned(), of)
    };
    let edges: BTreeMap<String, BTreeSet<String>> = EDGES.iter().map(owned).collect();
    assert_eq!(table, edges);
}

/// Packages without circles among their modules, each with its folder. The simulated world and the test kit are not
/// among them.
const ROOMS: [(&str, &str); 23] = [
    ("dormer", "src"),
    ("dormer-telemetry", "src/telemetry"),
    ("dormer-api", "src/api"),
    ("dormer-console", "src/console"),
    ("dormer-client", "src/client"),
    ("dormer-run", "src/run"),
    ("dormer-lab", "src/lab"),
    ("dormer-views", "proto/views/src"),
    ("dormer-nats", "proto/nats/src"),
    ("dormer-engine-core", "engine/core/src"),
    ("dormer-workflows", "workflows/src"),
    ("dormer-profile", "workers/profile/src"),
    ("dormer-host", "workers/host/src"),
    ("dormer-host-sim", "workers/host/sim/src"),
    ("dormer-host-win32", "workers/host/win32/src"),
    ("dormer-engine", "engine/src"),
    ("dormer-workers", "workers/src"),
    ("dormer-proto", "proto/src"),
    ("dormer-support", "proto/support/src"),
    ("dormer-lint", "src/lint/src"),
    ("dormer-load", "src/lab/load"),
    ("dormer-sim", "tests/sim/src"),
    ("dormer-decoders", "tests/decoders/src"),
];

/// The modules at the top of the package in `folder`, each with the text of its files, tests left away.
fn modules(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let mut found = Vec::new();
        if path.is_file() && path.extension().is_some_and(|it| it == "rs") {
            found.push(path.clone());
        } else if path.is_dir() && !path.join("Cargo.toml").exists() {
            files(&path, "rs", &mut found);
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        for file in found {
            let text = fs::read_to_string(&file).unwrap();
            let product = text.split("#[cfg(test)]\nmod tests {").next();
            let lines = product.unwrap_or_default().lines();
            let code: Vec<&str> = lines
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect();
            let mut code = code.join("\n");
            if file == path || file == path.join("mod.rs") {
                code = code.replace("super::", "crate::");
            }
            modules.entry(name.clone()).or_default().push(code);
        }
    }
    modules
}

/// The modules of the package that a text names: `crate::one`, or several in braces.
fn named(text: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for part in text.split("crate::").skip(1) {
        let Some(list) = part.strip_prefix('{') else {
            named.insert(
                part.chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect(),
            );
            continue;
        };
        let mut depth = 0;
        let mut word = String::new();
        let mut first = true;
        for c in list.chars() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    named.insert(std::mem::take(&mut word));
                    first = true;
                }
                c if depth == 0 && first && (c.is_alphanumeric() || c == '_') => word.push(c),
                c if c.is_whitespace() => {}
                _ => first = false,
            }
        }
        named.insert(word);
    }
    named
}

/// The names that a package's entry file imports from its own modules, each with its module: others may name them
/// without it.
fn imported(entry: &str) -> BTreeMap<String, String> {
    let word = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut imported = BTreeMap::new();
    for part in entry.split("use ").skip(1) {
        let statement = part.split(';').next().unwrap_or_default();
        let statement = statement.strip_prefix("crate::").unwrap_or(statement);
        if let Some((module, names)) = statement.split_once("::") {
            let names = word(names).into_iter();
            imported.extend(names.map(|name| (name, module.to_owned())));
        }
    }
    imported
}

/// Cargo holds the packages apart; within one, no module may come back to itself by way of others.
#[test]
fn modules_make_no_circle() {
    for (package, folder) in ROOMS {
        let modules = modules(&root().join(folder));
        let mut knows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let entry = ["lib", "main"].iter().find_map(|name| modules.get(*name));
        let imported = imported(&entry.expect("the package's entry").join("\n"));
        for (name, texts) in &modules {
            let mut named: BTreeSet<String> = texts.iter().flat_map(|text| named(text)).collect();
            let owners: Vec<String> = named
                .iter()
                .filter_map(|it| imported.get(it))
                .cloned()
                .collect();
            named.extend(owners);
            let others = modules.keys().map(String::as_str);
            let others = others.filter(|other| other != name && named.contains(*other));
            knows.insert(name, others.collect());
        }
        // A module without remaining dependencies is removed; in a circle there is none.
        while let Some(lowest) = knows
            .iter()
            .find(|(_, known)| known.iter().all(|it| !knows.contains_key(it)))
            .map(|(name, _)| *name)
        {
            knows.remove(lowest);
        }
        assert!(knows.is_empty(), "{package}: a circle among {knows:?}");
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
pub(crate) fn metadata() -> serde_json::Value {
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
        // The programs of the fuzzer are no part of the workspace.
        let fuzzer = path.starts_with(root().join("fuzz"));
        if fuzzer || entries.contains(path) || by_path.contains(path) {
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
