//! What a program needs is a field: views, commands, pages and the API take no sentence apart.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where views are made, shown and acted on.
const FOLDERS: [&str; 4] = ["proto/views/src", "src/client", "src/console", "src/api"];

/// Calls that ask for a part of a text; also `rsplit_once` and `rfind`.
const CALLS: [&str; 5] = [
    "strip_prefix(",
    "starts_with(",
    "contains(",
    "split_once(",
    "find(",
];

/// Literals with a word and a blank that may stand in such a call: file, literal, and why.
const ALLOWED: [(&str, &str, &str); 2] = [
    (
        "proto/views/src/older_texts.rs",
        "no Node ",
        "the one file that reads sentences of older servers",
    ),
    (
        "src/client/cluster.rs",
        "Bearer ",
        "a header of HTTP (RFC 6750)",
    ),
];

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "tests" {
                collect(&path, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The source without its tests at the end.
fn product(text: &str) -> &str {
    let mut begins = text.match_indices("#[cfg(test)]\n").map(|(at, _)| at);
    let is_tests = |at: &usize| {
        let declaration = text[*at..].lines().nth(1);
        declaration.is_some_and(|it| it.ends_with("mod tests {"))
    };
    let end = begins.find(is_tests);
    &text[..end.unwrap_or(text.len())]
}

/// Literals with a word and a blank that a call of [`CALLS`] has, with the numbers of their lines.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for call in CALLS {
        for (at, _) in text.match_indices(call) {
            let begin = at + call.len();
            let argument = text[begin..].trim_start().trim_start_matches('&');
            let argument = argument.strip_prefix("format!(").unwrap_or(argument);
            let Some(literal) = argument.trim_start().strip_prefix('"') else {
                continue;
            };
            let literal = literal.split('"').next().unwrap_or_default();
            if literal.contains(' ') && literal.contains(char::is_alphabetic) {
                let line = text[..at].matches('\n').count() + 1;
                found.push((line, literal));
            }
        }
    }
    found
}

#[test]
fn a_literal_is_found_across_lines() {
    let text = "it.contains(\"word\");\nit.starts_with(\n    \"two words\",\n);\nit.contains(&format!(\"by {by}\"));\n\
                it.strip_prefix(BEGIN);\nit.split_once(\": \");\n";
    assert_eq!(prose(text), [(2, "two words"), (5, "by {by}")]);
    let cut = "it.split_once(\"; to stop it: \");\nit.rfind(\" more\");\nit.find(|it| it.contains(' '));\n";
    assert_eq!(prose(cut), [(1, "; to stop it: "), (2, " more")]);
    let tested = "a\n#[cfg(test)]\nuse b;\n#[cfg(test)]\npub(crate) mod tests {\n}\n";
    assert_eq!(product(tested), "a\n#[cfg(test)]\nuse b;\n");
}

#[test]
fn no_sentence_is_taken_apart() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), &mut files);
    }
    assert!(files.len() > 100, "{}", files.len());
    let mut wrong = Vec::new();
    let mut allowed = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("a source is readable");
        let path = path.strip_prefix(root).expect("below the root");
        for (line, literal) in prose(product(&text)) {
            let known = ALLOWED
                .iter()
                .find(|(file, text, _)| path == Path::new(file) && *text == literal);
            match known {
                Some((file, _, _)) => allowed.push(*file),
                None => wrong.push(format!("{}:{line}: {literal:?}", path.display())),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "a field is missing, where a text is taken apart instead:\n{}",
        wrong.join("\n")
    );
    for (file, literal, why) in ALLOWED {
        assert!(
            allowed.contains(&file),
            "{file} has {literal:?} no more ({why}): take it out of the list"
        );
    }
}
