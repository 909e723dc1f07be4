//! Every path and page that a document or a comment names exists, and every test that a document names.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The folders at the root. A word that begins with one of them is a path.
const FOLDERS: [&str; 10] = [
    ".cargo/",
    ".ci/",
    "deploy/",
    "docs/",
    "engine/",
    "proto/",
    "src/",
    "tests/",
    "workers/",
    "workflows/",
];
/// A word behind one of these is a part of something longer: a variable, a placeholder, an address.
const LONGER: &str = "$~<>{}@…";
/// A word before one of these ends in a placeholder: only its folder is checked.
const PLACEHOLDERS: &str = "{<$…";
/// The page whose sections are cited by their titles.
const FIELD_NOTES: &str = "docs/field-notes.md";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn collect(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if name == "target" || name == ".git" {
            continue;
        }
        if path.is_dir() {
            collect(&path, found);
        } else {
            let path = path.strip_prefix(root()).expect("below the root");
            found.insert(path.to_owned());
        }
    }
}

/// Every file by its path from the root, without build output.
fn files() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    collect(&root(), &mut found);
    found
}

fn extension(path: &Path) -> &str {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.unwrap_or_default()
}

/// How a comment of the file begins: with nothing in a document. `None`: the file is not read.
fn mark(path: &Path) -> Option<&'static str> {
    match extension(path) {
        "md" => Some(""),
        "rs" => Some("//"),
        "yaml" | "toml" | "sh" | "ps1" => Some("#"),
        _ => (path == Path::new(".ci/run")).then_some("#"),
    }
}

/// A document as a whole; of code the lines that are comments, without their marks.
fn prose(path: &Path) -> Option<String> {
    let mark = mark(path)?;
    let text = fs::read_to_string(root().join(path)).ok()?;
    if mark.is_empty() {
        return Some(text);
    }
    let comment = |line: &str| {
        let line = line.trim();
        let comment = line.trim_start_matches(['/', '#', '!']).trim();
        if line.starts_with(mark) {
            comment.to_owned()
        } else {
            String::new()
        }
    };
    let lines: Vec<String> = text.lines().map(comment).collect();
    Some(lines.join("\n"))
}

fn belongs_to_a_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_./*-".contains(c)
}

/// The words of a text that could be paths. Of a word with a `*` or a placeholder it is the folder before that.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut begin = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        let Some(from) = begin else {
            begin = belongs_to_a_path(c).then_some(at);
            continue;
        };
        if belongs_to_a_path(c) {
            continue;
        }
        begin = None;
        let before = text[..from].chars().next_back().unwrap_or(' ');
        if LONGER.contains(before) {
            continue;
        }
        let word = &text[from..at];
        let whole = word.split('*').next().unwrap_or_default();
        let cut = whole.len() < word.len() || PLACEHOLDERS.contains(c);
        let word = if cut {
            whole.rsplit_once('/').map_or("", |(folder, _)| folder)
        } else {
            word.trim_end_matches(['.', '-'])
        };
        words.push(word);
    }
    words
}

/// The relative targets of a document's links, without their anchors.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let files = targets.map(|target| target.split('#').next().unwrap_or_default());
    files.filter(|file| !file.is_empty() && !file.contains([':', ' ', '\n']))
}

/// The titles of the field notes, without their numbers.
fn titles() -> Vec<String> {
    let page = fs::read_to_string(root().join(FIELD_NOTES)).expect("the field notes");
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    let numbered = headings.filter_map(|heading| heading.split_once(". "));
    numbered.map(|(_, title)| title.to_owned()).collect()
}

/// What is there: names of files, and titles of the field notes.
struct Known {
    names: BTreeSet<String>,
    titles: Vec<String>,
}

impl Known {
    fn of(files: &BTreeSet<PathBuf>) -> Self {
        let names = files.iter().filter_map(|file| file.file_name());
        Self {
            names: names
                .map(|name| name.to_string_lossy().into_owned())
                .collect(),
            titles: titles(),
        }
    }

    /// What the text of the file at `path` names, and what is not there.
    fn missing(&self, path: &Path, text: &str) -> Vec<String> {
        // A path begins at the root, or in the folder of a package or of the file.
        let folders: Vec<PathBuf> = path.ancestors().skip(1).map(|it| root().join(it)).collect();
        let absent = |word: &&str| {
            if FOLDERS.iter().any(|folder| word.starts_with(folder)) {
                !folders.iter().any(|folder| folder.join(word).exists())
            } else {
                // A page that does not ship helps no reader, in whatever folder it is said to be.
                // What follows a URL's scheme is a page of another site.
                let page = extension(Path::new(word)) == "md" && !word.starts_with("//");
                let there = || folders.iter().any(|folder| folder.join(word).exists());
                page && !self.names.contains(*word) && !there()
            }
        };
        let words = words(text).into_iter().filter(absent);
        let mut missing: Vec<String> = words.map(str::to_owned).collect();
        if extension(path) == "md" {
            let dead = links(text).filter(|link| !folders[0].join(link).exists());
            missing.extend(dead.map(|link| format!("a link to {link}")));
        }
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let page = format!("{FIELD_NOTES}, ");
        let cited = flat.split(&page).skip(1);
        let known = |rest: &&str| self.titles.iter().any(|title| rest.starts_with(title));
        let unknown = cited.filter(|rest| !known(rest));
        let start = |rest: &str| rest.chars().take(40).collect::<String>();
        missing.extend(unknown.map(|rest| format!("{FIELD_NOTES} has no section {}", start(rest))));
        missing
    }
}

#[test]
fn every_path_that_a_document_or_a_comment_names_exists() {
    let files = files();
    let known = Known::of(&files);
    let mut found = Vec::new();
    for path in &files {
        let Some(text) = prose(path) else {
            continue;
        };
        for missing in known.missing(path, &text) {
            found.push(format!("{}: {missing}", path.display()));
        }
    }
    assert!(
        found.is_empty(),
        "named, but not there:\n{}",
        found.join("\n")
    );
}

/// Tests that a document names, each with the file that it names behind it. A test's name is a sentence; names of metrics,
/// which begin with dormer's, are none.
fn tests_named_in(text: &str) -> Vec<(&str, Option<&str>)> {
    let pieces: Vec<&str> = text.split('`').collect();
    let is_test = |name: &str| {
        let whole = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        name.chars().all(whole) && name.matches('_').count() > 3 && !name.starts_with("dormer_")
    };
    let quoted = (1..pieces.len()).step_by(2);
    let named = quoted.filter(|at| is_test(pieces[*at]));
    named
        .map(|at| {
            let beside = pieces.get(at + 1).is_some_and(|it| it.trim() == ",");
            let file = pieces
                .get(at + 2)
                .filter(|it| beside && it.ends_with(".rs"));
            (pieces[at], file.copied())
        })
        .collect()
}

#[test]
fn every_test_that_a_document_names_exists_in_the_file_that_it_names() {
    let files = files();
    let sources = files.iter().filter(|path| extension(path) == "rs");
    let sources: Vec<(String, String)> = sources
        .filter_map(|path| {
            let text = fs::read_to_string(root().join(path)).ok()?;
            Some((path.display().to_string(), text))
        })
        .collect();
    let is_in = |name: &str, file: Option<&str>| {
        let begins = format!("fn {name}(");
        let mut among = sources
            .iter()
            .filter(|(path, _)| file.is_none_or(|it| it == path));
        among.any(|(_, text)| text.contains(&begins))
    };
    let mut count = 0;
    let mut missing = Vec::new();
    for path in files.iter().filter(|path| extension(path) == "md") {
        let text = fs::read_to_string(root().join(path)).expect("a document");
        for (name, file) in tests_named_in(&text) {
            count += 1;
            if !is_in(name, file) {
                missing.push(format!("{}: {name} {file:?}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(count > 30, "{count}: the threat model names more");
    let found = tests_named_in("| x | `that_is_no_test_here`, `tests/a.rs`; `dormer_a_b_c_d` |");
    assert_eq!(found, [("that_is_no_test_here", Some("tests/a.rs"))]);
    assert!(!is_in("that_is_no_test_here", None));
}

#[test]
fn what_is_not_there_is_found() {
    let known = Known::of(&files());
    let missing = |file: &str, text: &str| known.missing(Path::new(file), text);
    for there in [
        "see src/main.rs, `docs/runbook.md`: and (tests/real/).",
        "the crate's tests/SCENARIOS.md, README.md, glossary.md",
        "workers/profile/src/builtin/*.yaml, tests/servers/<module>, deploy/{a,b}.yaml",
        "https://example.org/docs/nothing.md and ~/src/nothing and $HOME/tests/nothing",
        "[the runbook](../docs/runbook.md#dormermachinefailed), [elsewhere](https://example.org)",
        "docs/field-notes.md, Output of PowerShell: and more",
    ] {
        assert_eq!(missing("tests/page.md", there), [""; 0], "{there}");
    }
    for (text, absent) in [
        ("src/nothing.rs:12", "src/nothing.rs"),
        ("`docs/nothing.md`.", "docs/nothing.md"),
        ("as nothing.md has it", "nothing.md"),
        ("numbers: elsewhere/nothing.md §3", "elsewhere/nothing.md"),
        ("tests/nothing/*.rs", "tests/nothing"),
        ("[a link](runbook.md)", "a link to runbook.md"),
        (
            "docs/field-notes.md,\nNothing",
            "docs/field-notes.md has no section Nothing",
        ),
    ] {
        assert_eq!(missing("tests/page.md", text), [absent], "{text}");
    }
}
