//! Names of locals in product code: one name for one thing in a block, and a word that says what it is in a long closure.
//! It reads lines as rustfmt writes them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Fewest lines of a closure whose argument has a name that says what it is.
const LONG: usize = 5;

/// Where one name may be given three times in a block, and why.
const ALLOWED: [(&str, &str); 1] = [(
    "workers/host/contract",
    "each row of the contract makes a fixture of its own, by the same name in all rows",
)];

/// Names that are left, which may only become fewer: `stopped` in `src/console/fleet.rs`.
const LEFT: usize = 1;

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            let apart = ["target", "tests", "examples", "fuzz"];
            if !apart.contains(&name.as_str()) && !name.starts_with('.') {
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
        declaration.is_some_and(|line| line.ends_with("mod tests {"))
    };
    let end = begins.find(is_tests);
    &text[..end.unwrap_or(text.len())]
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Name that `let` gives in a line. Patterns have none.
fn bound(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix("let ")?;
    let line = line.strip_prefix("mut ").unwrap_or(line);
    let end = line.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    let (name, rest) = line.split_at(end);
    let is_name = !name.is_empty() && name != "_";
    (is_name && [" =", ":", ";"].iter().any(|it| rest.starts_with(it))).then_some(name)
}

/// Lines in which a name is given for the third time in a block, with the name.
fn rebound(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    // Blocks that are open: the indentation of their lines, and how often they give each name.
    let mut blocks: Vec<(usize, BTreeMap<&str, usize>)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let indent = indent(line);
        while blocks.last().is_some_and(|(inner, _)| *inner > indent) {
            blocks.pop();
        }
        let Some(name) = bound(line) else {
            continue;
        };
        if blocks.last().is_none_or(|(own, _)| *own != indent) {
            blocks.push((indent, BTreeMap::new()));
        }
        let Some((_, names)) = blocks.last_mut() else {
            continue;
        };
        let count = names.entry(name).or_default();
        *count += 1;
        if *count == 3 {
            found.push((number + 1, name));
        }
    }
    found
}

/// Whether the line opens a closure with the argument `it`, or one of a single letter, that goes beyond the line.
fn opens_closure(line: &str) -> bool {
    line.match_indices("| ").any(|(at, _)| {
        let argument = line[..at].rsplit('|').next().unwrap_or_default();
        let opens = line[..at].contains('|');
        let is_letter = argument.len() == 1 && argument.chars().all(char::is_alphabetic);
        if !(opens && (is_letter || argument == "it")) {
            return false;
        }
        let mut depth = 0;
        for c in line[at + 2..].chars() {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                _ => {}
            }
            if depth < 0 {
                return false;
            }
        }
        depth > 0
    })
}

/// Lines that open a closure of at least [`LONG`] lines whose argument has no name.
fn unnamed(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let length = |at: usize| {
        let own = indent(lines[at]);
        let inside = |line: &&&str| line.trim().is_empty() || indent(line) > own;
        lines[at + 1..].iter().take_while(inside).count() + 2
    };
    let opening = lines.iter().enumerate();
    let opening = opening.filter(|(_, line)| opens_closure(line));
    let long = opening.filter(|(at, _)| length(*at) >= LONG);
    long.map(|(at, _)| at + 1).collect()
}

/// Product sources by their path from the root, each without its tests.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(root, &mut files);
    files.sort();
    assert!(files.len() > 500, "{}", files.len());
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source is readable");
        let path = path.strip_prefix(root).expect("below the root").to_owned();
        (path, product(&text).to_owned())
    };
    files.into_iter().map(read).collect()
}

#[test]
fn a_name_that_is_given_three_times_in_a_block_is_found() {
    let text = "fn a() {\n    let x = 1;\n    let mut x = 2;\n    {\n        let x = 3;\n    }\n    let x: u8 = 4;\n}\n\
                fn b() {\n    let x = 1;\n    let (x, _) = x;\n    let Some(x) = x else {\n        return;\n    };\n    let x = 5;\n}\n";
    assert_eq!(rebound(text), [(7, "x")]);
    assert_eq!(bound("    let mut all;"), Some("all"));
    assert_eq!(bound("letter = 1;"), None);
}

#[test]
fn a_long_closure_without_a_name_is_found() {
    let long = "    1\n".repeat(3);
    let found = |open: &str, close: &str| unnamed(&format!("{open}\n{long}{close}\n")).len();
    assert_eq!(found("all.map(|it| {", "})"), 1);
    assert_eq!(found("all.map(|n| match n {", "})"), 1);
    assert_eq!(found("all.map(|machine| {", "})"), 0);
    assert_eq!(found("for one in all.map(|it| it.one()) {", "}"), 0);
    assert_eq!(unnamed("all.map(|it| {\n    1\n})\n"), [0; 0]);
}

#[test]
fn no_block_of_product_code_gives_one_name_three_times() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        if ALLOWED.iter().any(|(folder, _)| path.starts_with(folder)) {
            continue;
        }
        let lines = rebound(&text);
        found.extend(
            lines
                .iter()
                .map(|(line, name)| format!("{}:{line}: {name}", path.display())),
        );
    }
    assert!(
        found.len() <= LEFT,
        "each is a thing of its own, with its own name; at most {LEFT} is left:\n{}",
        found.join("\n")
    );
}

#[test]
fn the_argument_of_a_long_closure_says_what_it_is() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let lines = unnamed(&text);
        found.extend(
            lines
                .iter()
                .map(|line| format!("{}:{line}", path.display())),
        );
    }
    assert!(
        found.is_empty(),
        "closures of {LONG} lines and more name their argument:\n{}",
        found.join("\n")
    );
}
