//! Pages that people begin with: their length, the table of changes in ARCHITECTURE.md, and the messages in
//! `docs/messages.md`.

use expect_test::expect_file;
use std::{fs, path::PathBuf};

/// Longest README.md, in bytes: read in ten minutes, the demonstration included.
const README_MAX: usize = 6 << 10;
/// Longest ARCHITECTURE.md, in bytes.
const ARCHITECTURE_MAX: usize = 12 << 10;

/// Twelve changes that a newcomer might make. Each has words of its row in ARCHITECTURE.md, the file to begin with, and
/// the text in that file at which the change begins.
const CHANGES: [(&str, &str, &str, &str); 12] = [
    (
        "a kubelet flag renamed in 1.37",
        "a flag or a service of a node's programs",
        "workers/profile/src/builtin/upstream.yaml",
        "--cert-dir=",
    ),
    (
        "the cordon's reason names the person",
        "the cordon, and what else is written on Node",
        "workers/src/kubernetes/fence.rs",
        "fn opening(",
    ),
    (
        "the rollout stops after three failures",
        "which failures stop the rollout",
        "workflows/src/rollout/grant.rs",
        "pub fn failures(",
    ),
    (
        "a column \"kernel build\"",
        "a column of `dormer get`",
        "proto/views/src/machine.rs",
        "pub version:",
    ),
    (
        "another retention of a stream",
        "a stream and how much it keeps",
        "proto/src/subject.rs",
        "per_subject_max: RECORDS_PER_RUN_MAX",
    ),
    (
        "a new usage in certificate requests",
        "what a certificate request may hold",
        "workers/src/kubernetes/csr.rs",
        "fn usages(",
    ),
    (
        "a banner before the SSH version",
        "an SSH connection, up to the login",
        "workers/src/ssh/session.rs",
        "connect_stream(",
    ),
    (
        "the payload's version on the fleet's page",
        "the console's first page",
        "src/console/fleet.rs",
        "fn row(",
    ),
    (
        "a metric: time waiting for the lease",
        "a metric of what happened: counts, times",
        "src/telemetry/metrics/process.rs",
        "\"lease_hold_duration\"",
    ),
    (
        "ten seconds more after the last pod",
        "what follows the last pod",
        "workflows/src/machine/drain.rs",
        "fn emptied(",
    ),
    (
        "a new field in a record",
        "a field of a record",
        "engine/core/src/record.rs",
        "pub struct Record<",
    ),
    (
        "a demonstration of three MachineSets",
        "the demonstration's MachineSets",
        "tests/fleet/src/manifest/demo.rs",
        "pub fn windows(",
    ),
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

/// What does not hold of a row that should name `file` first.
fn wrong_beginning(rows: &[(&str, &str)], words: &str, file: &str) -> Option<String> {
    let mut found = rows.iter().filter(|(change, _)| change.contains(words));
    match (found.next(), found.next()) {
        (Some((_, cell)), None) => {
            let first = files(cell).next();
            (first != Some(file)).then(|| format!("the row names {first:?} first"))
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
fn twelve_changes_begin_in_the_file_that_architecture_names_first() {
    let architecture = read("ARCHITECTURE.md");
    let rows = rows(&architecture);
    for (change, words, file, begins) in CHANGES {
        let wrong = wrong_beginning(&rows, words, file);
        assert_eq!(wrong, None, "{change}");
        let there = read(file).contains(begins);
        assert!(there, "{change}: {file} has no `{begins}`");
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
    let text = "\n## Which files a change touches\n| one thing | `src/main.rs`, `cli.rs`, `nothing.rs` |\n";
    let rows = rows(text);
    assert_eq!(wrong_beginning(&rows, "one", "src/main.rs"), None);
    assert!(wrong_beginning(&rows, "one", "src/cli.rs").is_some());
    assert!(wrong_beginning(&rows, "another", "src/main.rs").is_some());
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
