//! Doc comments that say something: each public type, trait and module has one, and none only repeats the names beside it.
//! Fields, variants and functions have one where their names do not say enough.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Words without a content of their own.
const FILLERS: &[&str] = &[
    "a", "an", "and", "as", "at", "be", "by", "for", "from", "has", "have", "in", "is", "it",
    "its", "of", "on", "or", "that", "the", "this", "to", "which", "with",
];
/// Item keywords before a name.
const TYPES: &[&str] = &["struct", "enum", "trait", "union", "mod"];
/// Longest doc comment that can be one that only repeats, in words.
const SHORT: usize = 6;

fn collect(under: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(under).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        if path.is_dir() {
            if !name.is_some_and(|name| name == "target" || name.starts_with('.')) {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Item of a source, with its doc comment.
#[derive(Debug, PartialEq, Eq)]
struct Item<'a> {
    /// Counted from 1.
    line: usize,
    doc: String,
    code: &'a str,
    /// Header of the type, trait or `impl` that the item is in, or empty.
    parent: &'a str,
}

/// Every line of code of a source that is no attribute, with the doc comment above it.
fn items(source: &str) -> Vec<Item<'_>> {
    let lines: Vec<&str> = source.lines().collect();
    let mut doc: Vec<&str> = Vec::new();
    let mut open = 0;
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim();
        if let Some(text) = code.strip_prefix("///") {
            doc.push(text.trim());
            continue;
        }
        // An attribute may have several lines.
        if open > 0 || code.starts_with("#[") {
            let brackets = code.matches('[').count() as isize;
            open += brackets - code.matches(']').count() as isize;
            continue;
        }
        found.push(Item {
            line: at + 1,
            doc: doc.join(" "),
            code,
            parent: parent(&lines[..at], indent(line)),
        });
        doc.clear();
    }
    found
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Nearest line above that is indented less.
fn parent<'a>(above: &[&'a str], than: usize) -> &'a str {
    let mut above = above.iter().rev();
    let header = above.find(|line| !line.trim().is_empty() && indent(line) < than);
    header.copied().unwrap_or_default().trim()
}

/// Stems of the words of a text or a name: `LeaseToken`s and `lease_token` are both lease, token.
fn stems(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in text.chars() {
        let is_next = c.is_ascii_uppercase() && after_lower;
        if is_next || !c.is_ascii_alphabetic() {
            words.push(String::new());
        }
        after_lower = c.is_ascii_lowercase();
        if c.is_ascii_alphabetic() {
            words
                .last_mut()
                .expect("a word")
                .push(c.to_ascii_lowercase());
        }
    }
    let said = words.into_iter().filter(|word| !word.is_empty());
    let said = said.filter(|word| !FILLERS.contains(&word.as_str()));
    said.map(|word| stem(&word).to_owned()).collect()
}

fn stem(word: &str) -> &str {
    let endings = ["ings", "ing", "ed", "es", "s"];
    let cut = endings.iter().find_map(|ending| word.strip_suffix(ending));
    cut.filter(|cut| cut.len() >= 3).unwrap_or(word)
}

/// Whether a doc comment holds nothing but the words of its item and of what that is in. Texts of the command line have no
/// full stop, and are help.
fn only_repeats(item: &Item<'_>) -> bool {
    let said = stems(&item.doc);
    let names = [item.code, item.parent].into_iter().flat_map(stems);
    let names: BTreeSet<String> = names.collect();
    let has_link = item.doc.contains('`');
    item.doc.ends_with('.')
        && !has_link
        && said.len() <= SHORT
        && said.iter().all(|word| names.contains(word))
}

/// Whether it is a public type, trait or module without a doc comment. A module may have its in its own file, and a macro
/// gets it from its caller.
fn is_undocumented(item: &Item<'_>) -> bool {
    let mut words = item.code.split_whitespace();
    let is_public = words.next() == Some("pub");
    let is_type = words.next().is_some_and(|word| TYPES.contains(&word));
    let is_elsewhere = item.code.ends_with(';') || item.code.contains('$');
    is_public && is_type && !is_elsewhere && item.doc.is_empty()
}

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(root, &mut files);
    let read = files.into_iter().map(|path| {
        let text = fs::read_to_string(&path).expect("a source");
        let path = path.strip_prefix(root).expect("below the root").to_owned();
        (path, text)
    });
    read.collect()
}

/// Lines of the items of all sources for which this holds.
fn found(is_wrong: fn(&Item<'_>) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, source) in sources() {
        let items = items(&source);
        let wrong = items.iter().filter(|item| is_wrong(item));
        found.extend(wrong.map(|item| {
            let Item {
                line, doc, code, ..
            } = item;
            format!("{}:{line}: {doc} | {code}", path.display())
        }));
    }
    found
}

#[test]
fn no_doc_comment_only_repeats_the_names_beside_it() {
    let found = found(only_repeats).join("\n");
    assert!(
        found.is_empty(),
        "say what the names do not, or delete it:\n{found}"
    );
}

#[test]
fn every_public_type_has_a_doc_comment() {
    let found = found(is_undocumented).join("\n");
    assert!(found.is_empty(), "say what it is for:\n{found}");
}

#[test]
fn a_comment_that_says_nothing_is_found_and_one_that_does_is_left() {
    let source = concat!(
        "/// A rollout.\n",
        "#[derive(\n",
        "    Debug,\n",
        ")]\n",
        "pub struct Rollout {\n",
        "    /// Its pool.\n",
        "    pub pool: String,\n",
        "    /// Seconds since 1970.\n",
        "    pub at: u64,\n",
        "}\n",
        "\n",
        "pub enum Bare {\n",
        "}\n",
    );
    let items = items(source);
    let lines = |is_wrong: fn(&Item<'_>) -> bool| -> Vec<usize> {
        let wrong = items.iter().filter(|item| is_wrong(item));
        wrong.map(|item| item.line).collect()
    };
    assert_eq!(lines(only_repeats), [5, 7]);
    assert_eq!(lines(is_undocumented), [12]);
}
