//! Pages that people begin with: their length, the table of changes in ARCHITECTURE.md, and the messages in
//! `docs/messages.md`.

use expect_test::expect_file;
use std::{fs, path::PathBuf};

/// Longest README.md, in bytes: read in ten minutes, the demonstration included.
const README_MAX: usize = 6 << 10;
/// Longest ARCHITECTURE.md, in bytes.
const ARCHITECTURE_MAX: usize = 12 << 10;

/// Change that a newcomer might make.
struct Change {
    what: &'static str,
    /// Words of its row in ARCHITECTURE.md.
    row: &'static str,
    /// Every file that it needs, beside tests and generated files, each with the text at which the change begins there. The
    /// row names all of them, and the first one first.
    files: &'static [(&'static str, &'static str)],
}

/// Twelve changes.
const CHANGES: [Change; 12] = [
    Change {
        what: "a kubelet flag renamed in 1.37",
        row: "a flag or a service of a node's programs",
        files: &[
            ("workers/profile/src/builtin/upstream.yaml", "--cert-dir="),
            (
                "workers/profile/src/settings/kubelet_flags.txt",
                "\ncert-dir ",
            ),
        ],
    },
    Change {
        what: "the cordon's reason names the person",
        row: "the cordon, and what else is written on Node",
        files: &[
            ("workers/src/kubernetes/fence.rs", "fn opening("),
            ("workers/src/kubernetes/keys.rs", "pub const OWN:"),
            ("proto/src/machine/task.rs", "    OpenFence {"),
            ("tests/stores/types.txt", " OpenFence "),
            ("workflows/src/machine/tasks.rs", "Task::OpenFence {"),
        ],
    },
    Change {
        what: "the rollout stops after three failures",
        row: "which failures stop the rollout",
        files: &[
            ("workflows/src/rollout/grant.rs", "pub fn failures("),
            ("workflows/src/rollout/view.rs", "self.state.failures()"),
            ("proto/src/pool.rs", "pub struct PoolSettings"),
        ],
    },
    Change {
        what: "a column \"kernel build\"",
        row: "a column of `dormer get`",
        files: &[
            ("proto/views/src/machine.rs", "pub version:"),
            ("workflows/src/machine/view.rs", "pub version:"),
            ("src/client/items.rs", "VERSION"),
            ("proto/src/machine/fact.rs", "pub kubelet_version:"),
            ("workers/src/watcher/objects/node.rs", "kubelet_version"),
        ],
    },
    Change {
        what: "another retention of a stream",
        row: "a stream and how much it keeps",
        files: &[(
            "proto/src/subject.rs",
            "per_subject_max: RECORDS_PER_RUN_MAX",
        )],
    },
    Change {
        what: "a new usage in certificate requests",
        row: "what a certificate request may hold",
        files: &[("workers/src/kubernetes/csr.rs", "fn usages(")],
    },
    Change {
        what: "a banner before the SSH version",
        row: "an SSH connection, up to the login",
        files: &[("workers/src/ssh/session.rs", "connect_stream(")],
    },
    Change {
        what: "the payload's version on the fleet's page",
        row: "the console's first page",
        files: &[
            ("src/console/fleet.rs", "fn row("),
            ("src/console/item.rs", "ItemColumn::Version"),
        ],
    },
    Change {
        what: "a metric: time waiting for the lease",
        row: "a metric of what happened: counts, times",
        files: &[
            (
                "src/telemetry/metrics/process.rs",
                "\"lease_hold_duration\"",
            ),
            ("src/telemetry/transition.rs", "metrics.lease_ended("),
            ("workflows/src/machine/phase.rs", "MachinePhase::LeaseWait"),
        ],
    },
    Change {
        what: "ten seconds more after the last pod",
        row: "what follows the last pod",
        files: &[
            ("workflows/src/machine/drain.rs", "fn emptied("),
            ("workflows/src/machine/change.rs", "pub struct Drain"),
        ],
    },
    Change {
        what: "a new field in a record",
        row: "a field of a record",
        files: &[
            ("engine/core/src/record.rs", "pub struct Record<"),
            ("engine/core/src/transition.rs", "Record {"),
        ],
    },
    Change {
        what: "a demonstration of three MachineSets",
        row: "the demonstration's MachineSets",
        files: &[
            ("tests/fleet/src/manifest/demo.rs", "pub fn windows("),
            ("tests/fleet/src/world/start.rs", "pub two_sets:"),
            ("src/lab/demo/environment.rs", "fn config("),
        ],
    },
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(root().join(path));
    text.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of the section on changes: what changes, and the cell with its files.
fn rows(architecture: &str) -> Vec<(&str, &str)> {
    let section = architecture.split("\n## Which files a change touches\n");
    let section = section.last().unwrap_or_default();
    let cells = section.lines().filter_map(|line| {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        line.split_once(" | ")
    });
    cells.filter(|(_, files)| *files != "files").collect()
}

/// Paths and file names of a cell, in the order of the row.
fn files(cell: &str) -> impl Iterator<Item = &str> {
    let code = cell.split('`').skip(1).step_by(2);
    code.filter(|word| !word.contains(' ') && (word.contains('/') || word.contains('.')))
}

/// Whether a cell names a file: by its path, by a folder of it, or by its name after another file of its folder.
fn names(cell: &str, file: &str) -> bool {
    let mut folders = Vec::new();
    for word in files(cell) {
        let folder = word.rsplit_once('/').map(|(folder, _)| folder);
        folders.extend(folder);
        let beside = |folder: &&str| format!("{folder}/{word}") == file;
        let inside = word.ends_with('/') && file.starts_with(word);
        if word == file || inside || (folder.is_none() && folders.iter().any(beside)) {
            return true;
        }
    }
    false
}

/// What does not hold of a row that should name these files, and the first one first.
fn wrong_row(rows: &[(&str, &str)], words: &str, needed: &[&str]) -> Option<String> {
    let mut found = rows.iter().filter(|(change, _)| change.contains(words));
    match (found.next(), found.next()) {
        (Some((_, cell)), None) => {
            let first = files(cell).next();
            if first != needed.first().copied() {
                return Some(format!("the row names {first:?} first"));
            }
            let missing = needed.iter().find(|file| !names(cell, file));
            missing.map(|file| format!("the row does not name {file}"))
        }
        (Some(_), Some(_)) => Some(format!("several rows have the words `{words}`")),
        (None, _) => Some(format!("no row has the words `{words}`")),
    }
}

/// File names of a row that are in none of the folders named before them in that row.
fn strangers(cell: &str) -> Vec<String> {
    let mut folders = Vec::new();
    let mut strangers = Vec::new();
    for word in files(cell) {
        let path = root().join(word);
        if word.contains('/') {
            let folder = path.parent().map(PathBuf::from);
            folders.extend(folder.filter(|_| !path.is_dir()));
            folders.extend(path.is_dir().then_some(path));
        } else if !folders.iter().any(|folder| folder.join(word).exists()) {
            strangers.push(word.to_owned());
        }
    }
    strangers
}

#[test]
fn architecture_names_every_file_of_twelve_changes_and_the_first_one_first() {
    let architecture = read("ARCHITECTURE.md");
    let rows = rows(&architecture);
    for Change { what, row, files } in CHANGES {
        let needed: Vec<&str> = files.iter().map(|(file, _)| *file).collect();
        assert_eq!(wrong_row(&rows, row, &needed), None, "{what}");
        for (file, begins) in files {
            let there = read(file).contains(begins);
            assert!(there, "{what}: {file} has no `{begins}`");
        }
    }
}

#[test]
fn a_file_of_a_row_is_in_a_folder_of_that_row() {
    let architecture = read("ARCHITECTURE.md");
    let rows = rows(&architecture);
    assert!(rows.len() > 20, "the table is read");
    for (change, cell) in rows {
        assert!(files(cell).next().is_some(), "{change}: no file");
        assert_eq!(strangers(cell), [""; 0], "{change}");
    }
}

#[test]
fn a_wrong_row_is_found() {
    let text = "\n## Which files a change touches\n| one thing | `src/main.rs`, `cli.rs`, `nothing.rs`, `engine/core/` |\n";
    let rows = rows(text);
    let wrong = |words: &str, needed: &[&str]| wrong_row(&rows, words, needed);
    assert_eq!(wrong("one", &["src/main.rs"]), None);
    let all = ["src/main.rs", "src/cli.rs", "engine/core/src/run.rs"];
    assert_eq!(wrong("one", &all), None);
    assert!(wrong("one", &["src/cli.rs"]).is_some());
    assert!(wrong("one", &["src/main.rs", "src/config.rs"]).is_some());
    assert!(wrong("one", &["src/main.rs", "engine/cli.rs"]).is_some());
    assert!(wrong("another", &["src/main.rs"]).is_some());
    assert_eq!(strangers(rows[0].1), ["nothing.rs"]);
}

#[test]
fn the_first_pages_are_short() {
    for (page, most) in [
        ("README.md", README_MAX),
        ("ARCHITECTURE.md", ARCHITECTURE_MAX),
    ] {
        let length = read(page).len();
        assert!(length <= most, "{page} has {length} bytes, at most {most}");
    }
}

/// The page of messages with the lines of `stories` under each "Now": the first story with the name of its section.
fn renewed(page: &str, stories: &str) -> String {
    let story = |title: &str| {
        let mut stories = stories.split("\n\n").filter_map(|it| it.split_once('\n'));
        let (_, text) = stories.find(|(name, _)| *name == title)?;
        let lines = text.lines().filter(|line| !line.starts_with("  = "));
        let lines: Vec<&str> = lines
            .map(|it| it.strip_prefix("  ").unwrap_or(it))
            .collect();
        Some(lines.join("\n"))
    };
    let sections = page.split("\n## ").map(|section| {
        let title = section.lines().next().unwrap_or_default();
        let parts = section.split_once("\nNow:\n").zip(story(title));
        parts.map_or_else(
            || section.to_owned(),
            |((before, _), now)| format!("{before}\nNow:\n\n```text\n{now}\n```\n"),
        )
    });
    sections.collect::<Vec<_>>().join("\n## ")
}

#[test]
fn the_page_of_messages_says_what_why_says() {
    let page = renewed(&read("docs/messages.md"), &read("tests/why.txt"));
    assert!(
        page.matches("\nNow:\n").count() > 15,
        "the page has its messages"
    );
    expect_file!["../docs/messages.md"].assert_eq(&page);
}

#[test]
fn another_text_of_a_story_is_put_on_the_page() {
    let page = "# Messages\n\n## dead\n\nNow:\n\nold\n\n## other\n\nNow:\n\nkept\n";
    let stories = "# Generated\n\ndead\n  It is\n    dead.\n  = command\n\nlate\n  It is late.\n";
    let wanted = page.replace("old", "```text\nIt is\n  dead.\n```");
    assert_eq!(renewed(page, stories), wanted);
}
