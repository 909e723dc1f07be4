//! Names in the field's words: no private word in a type, function, module or file, and few type names in several
//! packages. The glossary is `docs/glossary.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Words that were tried and given up, each with its forms. What to write instead stands behind them.
const PRIVATE: &[(&[&str], &str)] = &[
    (&["letter", "letters"], "message"),
    (
        &["ring", "rings", "rang", "ringing"],
        "timer due, alarm, fire",
    ),
    (
        &[
            "bury", "buries", "buried", "burying", "unbury", "unburies", "unburied",
        ],
        "dead-letter, forget",
    ),
    (
        &["settle", "settles", "settled", "settling", "unsettled"],
        "acknowledge, resolve, reconcile",
    ),
    (&["lane", "lanes"], "shard"),
    (&["hand", "hands"], "executor"),
    (
        &["witness", "witnesses", "witnessed", "unwitnessed"],
        "observer",
    ),
    (&["deed", "deeds"], "operation"),
    (&["glance", "glances", "glanced"], "state before"),
    (
        &["look", "looks", "looked", "looking"],
        "snapshot, read, poll, check",
    ),
    (&["shelf", "shelves", "shelved"], "run cache"),
    (&["book", "books"], "registry"),
    (&["level", "levels"], "gauge"),
    (&["spread", "spreads"], "histogram"),
    (
        &["heard", "hear", "hears", "hearing", "unheard"],
        "signals, received",
    ),
    (&["seen"], "facts, observed"),
    (
        &["told", "untold"],
        "what it holds: published, reported, text",
    ),
    (&["saw"], "observe"),
    (&["news"], "changes, updates"),
    (
        &["wish", "wishes", "wished"],
        "request, leased request, drain hooks",
    ),
    (&["desk", "desks"], "what it holds: renderer, queue"),
    (
        &["way", "ways"],
        "what it holds: method, connector, transfer",
    ),
    (
        &["place", "places", "placed", "placing", "unplaced"],
        "what it holds: target, key, location, slot",
    ),
    (&["standing"], "what it holds: status, state, contents"),
    (&["play", "plays", "played"], "scenario, simulation"),
    (&["act", "acts", "acted", "acting"], "scenario, action"),
];

/// Words of the field that contain a private one, and names that others gave.
const ALLOWED: &[&str] = &[
    // A dead letter is the field's own word.
    "dead_letter",
    "dead_letters",
    // An upgrade in place, as people call it.
    "in_place",
    // A column of `kubectl get events`.
    "last_seen",
    // What has begun and has not ended, as people call it.
    "under_way",
];

/// What declares a name: the keyword, and what kind of name it is.
const DECLARES: &[(&str, &str)] = &[
    ("fn", "function"),
    ("struct", "type"),
    ("enum", "type"),
    ("union", "type"),
    ("trait", "type"),
    ("type", "type"),
    ("mod", "module"),
    ("const", "constant"),
    ("static", "constant"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn collect(under: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(under).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(&path, found);
            }
        } else {
            found.push(path);
        }
    }
}

/// Every Rust file by its path from the root, with its text.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    collect(&root(), &mut found);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    found.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source is readable");
        let path = path.strip_prefix(root()).expect("below the root");
        (path.to_owned(), text)
    };
    found.into_iter().map(read).collect()
}

/// `DeadLetters`, `DEAD_LETTERS` and `dead_letters` as `dead_letters`.
fn snake(name: &str) -> String {
    let mut text = String::new();
    let mut before = '_';
    for character in name.chars() {
        if character.is_ascii_uppercase() && before.is_ascii_lowercase() {
            text.push('_');
        }
        text.push(character.to_ascii_lowercase());
        before = character;
    }
    text
}

/// The private word in a name, with what to write instead. The name may be that of a file.
fn private(name: &str) -> Option<(String, &'static str)> {
    let name = snake(name).replace(|c: char| !c.is_alphanumeric(), "_");
    let mut name = format!("_{name}_");
    for allowed in ALLOWED {
        name = name.replace(&format!("_{allowed}_"), "__");
    }
    let word = |word: &str| {
        let known = PRIVATE.iter().find(|(forms, _)| forms.contains(&word));
        known.map(|(_, instead)| (word.to_owned(), *instead))
    };
    name.split('_').find_map(word)
}

/// The name that a line declares, if it does.
fn declared(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    if line.starts_with("//") || line.starts_with('"') {
        return None;
    }
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '#'));
    let mut before = "";
    for _ in 0..8 {
        let word = words.next()?;
        let known = DECLARES.iter().find(|(keyword, _)| *keyword == before);
        let keyword = DECLARES.iter().any(|(keyword, _)| *keyword == word);
        let qualifies = [
            "pub", "crate", "super", "in", "async", "unsafe", "mut", "default", "",
        ];
        let qualifies = keyword || qualifies.contains(&word);
        if let (Some((_, kind)), false) = (known, qualifies) {
            return Some((kind, word));
        }
        if !qualifies {
            return None;
        }
        if !word.is_empty() {
            before = word;
        }
    }
    None
}

/// Every declared name of a source, with the number of its line: also the variants and fields of its types.
fn names(text: &str) -> Vec<(usize, &'static str, &str)> {
    let mut found = Vec::new();
    // Kind and indentation of the members of the type that is open, as rustfmt writes them.
    let mut members: Option<(&'static str, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let here = declared(line);
        if let Some((kind, name)) = here {
            found.push((number + 1, kind, name));
        }
        match (members, here) {
            (_, Some(("type", _))) if line.ends_with('{') => {
                let kind = if line.contains("enum ") {
                    "variant"
                } else {
                    "field"
                };
                members = Some((kind, indent + 4));
            }
            (Some((_, at)), _) if indent < at && !line.is_empty() => members = None,
            (Some((kind, at)), None) if indent == at => {
                let bare = line.trim_start();
                let bare = match bare.strip_prefix("pub") {
                    Some(rest) => rest.split_once(' ').map_or(bare, |(_, name)| name),
                    None => bare,
                };
                let end = bare.find(|c: char| !(c.is_alphanumeric() || c == '_'));
                let (name, rest) = bare.split_at(end.unwrap_or(bare.len()));
                let is_member = match kind {
                    "field" => rest.starts_with(": "),
                    _ => rest.starts_with([',', '(']) || rest == " {",
                };
                if is_member && !name.is_empty() {
                    found.push((number + 1, kind, name));
                }
            }
            _ => {}
        }
    }
    found
}

#[test]
fn members_are_recognised() {
    let text = "pub enum Kind {\n    /// One.\n    Told(u8),\n    Plain,\n    Rich {\n        seen: u8,\n    },\n}\nconst HEARD: u8 = 1;\n\
                struct Thing {\n    pub(crate) way: u8,\n    plain: u8,\n}\nlet told: u8 = 1;\n";
    let expected = [
        (1, "type", "Kind"),
        (3, "variant", "Told"),
        (4, "variant", "Plain"),
        (5, "variant", "Rich"),
        (9, "constant", "HEARD"),
        (10, "type", "Thing"),
        (11, "field", "way"),
        (12, "field", "plain"),
    ];
    assert_eq!(names(text), expected);
}

#[test]
fn declarations_are_recognised() {
    for (line, expected) in [
        (
            "pub(crate) async fn read_all(",
            Some(("function", "read_all")),
        ),
        ("    pub(super) struct Seen {", Some(("type", "Seen"))),
        ("type Word = str;", Some(("type", "Word"))),
        ("mod tests {", Some(("module", "tests"))),
        (
            "    pub(crate) const HEARD_MAX: usize = 3;",
            Some(("constant", "HEARD_MAX")),
        ),
        ("pub const fn read(", Some(("function", "read"))),
        ("// fn commented()", None),
        ("let kind = 3;", None),
    ] {
        assert_eq!(declared(line), expected, "{line}");
    }
    assert_eq!(snake("HTTPDeadLetter2"), "httpdead_letter2");
    assert_eq!(
        private("LaneCount").map(|(word, _)| word),
        Some("lane".into())
    );
    let un = private("is_unsettled");
    assert_eq!(un.map(|(word, _)| word), Some("unsettled".into()));
    assert_eq!(private("dead_letters_of"), None);
    assert_eq!(private("placeholder"), None);
    let file = private("letter-gone.msgpack");
    assert_eq!(file.map(|(word, _)| word), Some("letter".into()));
}

#[test]
fn no_private_word_is_left_in_a_name() {
    let mut found = Vec::new();
    let mut files = Vec::new();
    collect(&root(), &mut files);
    for path in &files {
        let path = path.strip_prefix(root()).expect("below the root");
        for part in path.iter().map(|part| part.to_string_lossy()) {
            if let Some((word, instead)) = private(&part) {
                found.push(format!("{}: `{word}` → {instead}", path.display()));
            }
        }
    }
    for (path, text) in sources() {
        for (number, kind, name) in names(&text) {
            if let Some((word, instead)) = private(name) {
                let path = path.display();
                found.push(format!(
                    "{path}:{number}: {kind} `{name}`: `{word}` → {instead}"
                ));
            }
        }
    }
    assert!(found.is_empty(), "private words:\n{}", found.join("\n"));
}

/// The folder of the package that a file belongs to; the root's is empty.
fn package(path: &Path) -> PathBuf {
    let folders = path.ancestors().skip(1);
    let own = |folder: &&Path| root().join(folder).join("Cargo.toml").exists();
    folders.into_iter().find(own).unwrap_or(path).to_owned()
}

/// Number of type names that more than two packages have. It may only fall: one name, one meaning.
const SHARED_NAMES: usize = 14;

#[test]
fn type_names_in_more_than_two_packages_become_fewer() {
    let mut packages: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for (path, text) in sources() {
        // A target of tests may name its toys as it likes.
        if path.iter().any(|part| part == "tests") && !path.iter().any(|part| part == "src") {
            continue;
        }
        let top = |line: &&str| !line.starts_with(' ');
        for (kind, name) in text.lines().filter(top).filter_map(declared) {
            if kind == "type" {
                packages
                    .entry(name.to_owned())
                    .or_default()
                    .insert(package(&path));
            }
        }
    }
    packages.retain(|_, packages| packages.len() > 2);
    let mut lines = Vec::new();
    for (name, packages) in &packages {
        let named: Vec<_> = packages
            .iter()
            .map(|folder| match folder.to_string_lossy() {
                name if name.is_empty() => ".".into(),
                name => name,
            })
            .collect();
        lines.push(format!("{name:20} {}", named.join(", ")));
    }
    // Also while it passes, for the next rename.
    println!("{}", lines.join("\n"));
    assert!(
        packages.len() <= SHARED_NAMES,
        "{} type names are in more than two packages, at most {SHARED_NAMES} are left:\n{}",
        packages.len(),
        lines.join("\n")
    );
}

/// Whether a line is `let (one, other) = (this, that);`.
fn names_several(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("let (") && line.contains(") = (") && line.ends_with(");")
}

#[test]
fn each_value_is_named_on_a_line_of_its_own() {
    assert!(names_several(
        "    let (from, to) = (lower(from), lower(to));"
    ));
    assert!(!names_several("let (key, value) = line.split_once('=')?;"));
    let mut lines = Vec::new();
    for (path, text) in sources() {
        let found = text.lines().filter(|it| names_several(it));
        lines.extend(found.map(|line| format!("{}: {}", path.display(), line.trim())));
    }
    assert!(
        lines.is_empty(),
        "unrelated values, each of which has a line of its own:\n{}",
        lines.join("\n")
    );
}

/// Words that no text for people has: riddles, and metaphors for what has a plain name.
const UNREAD: &[&str] = &[
    "whoever", "whomever", "whom", "witness", "deed", "glance", "shelf", "bury", "buried", "heard",
    "desk",
];

/// Folders with texts that people read: documents, comments of the chart, and sources whose messages reach a person.
const FOR_PEOPLE: [&str; 14] = [
    "docs",
    "deploy",
    "src",
    "proto/src",
    "proto/nats/src",
    "proto/support/src",
    "proto/views/src",
    "engine/src",
    "engine/core/src",
    "workflows/src",
    "workers/src",
    "workers/profile/src",
    "workers/host/src",
    "workers/host/win32/src",
];

/// Texts that people read. Comments for programmers are left out later.
fn for_people() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for under in FOR_PEOPLE {
        collect(&root().join(under), &mut found);
    }
    for file in ["README.md", "SECURITY.md", "CHANGELOG.md"] {
        found.push(root().join(file));
    }
    // One shows what messages were before, the other has a word in the ids of spans, which stay.
    let apart = ["docs/messages.md", "proto/src/span.rs"];
    found.retain(|path| !apart.iter().any(|it| path.ends_with(it)));
    let kinds = ["md", "yaml", "tpl", "txt", "rs"];
    found.retain(|path| {
        path.extension()
            .is_some_and(|it| kinds.iter().any(|kind| it == *kind))
    });
    let read = |path: PathBuf| Some((path.clone(), fs::read_to_string(path).ok()?));
    found.into_iter().filter_map(read).collect()
}

#[test]
fn nothing_that_people_read_has_a_riddle() {
    let mut found = Vec::new();
    for (path, text) in for_people() {
        let rust = path.extension().is_some_and(|it| it == "rs");
        for (number, line) in text.lines().enumerate() {
            // A doc comment may be a flag's help, other comments are for programmers.
            let bare = line.trim_start();
            if rust && bare.starts_with("//") && !bare.starts_with("///") {
                continue;
            }
            let mut words = line
                .split(|c: char| !c.is_alphabetic())
                .map(str::to_lowercase);
            if let Some(word) = words.find(|it| UNREAD.contains(&it.as_str())) {
                found.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Phrases of comments that a reader has to read twice, with the number that is left, which may only fall. What to write
/// instead stands in `docs/glossary.md`, or is the plain statement.
const RIDDLES: &[(&str, usize)] = &[
    ("two looks", 0),
    ("item in hand", 0),
    ("stands so", 0),
    ("is to be said again", 0),
    ("is told to nobody", 0),
    ("spoken of again", 0),
    ("the program remembers", 0),
    ("what stands in the way", 0),
    ("how deep the change", 0),
    ("cuts at least", 0),
    ("as somebody else would", 0),
    ("is not what it should be", 0),
    ("what there is", 0),
    ("hears", 0),
    ("let go", 0),
    ("in hand", 0),
    ("by all signs", 0),
    ("whoever", 0),
    ("whom", 0),
    ("signs of life", 0),
    ("sign of life", 0),
    ("nobody", 0),
    ("somebody", 0),
    ("for so long", 0),
    ("all the same", 0),
    ("go on", 0),
    ("goes on", 0),
    ("is told", 0),
    ("are told", 0),
    ("is otherwise", 0),
    ("has otherwise", 0),
    ("otherwise than", 0),
    ("once more", 0),
    // What is left is in packages of tests.
    ("what stands", 1),
    ("stands against", 0),
    ("told", 2),
    ("everybody", 2),
    ("heard", 1),
];

/// All comments of a source in one text, without marks and line ends, in lower case.
fn comments(text: &str) -> String {
    let mut all = String::new();
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("//") {
            let words = line.trim_start_matches('/').trim_start_matches('!');
            all.extend([words.trim(), " "]);
        }
    }
    all.to_lowercase()
}

/// How often a phrase occurs in a text as whole words.
fn occurrences(text: &str, phrase: &str) -> usize {
    let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let whole = |(at, found): &(usize, &str)| {
        !letter(text[..*at].chars().next_back()) && !letter(text[at + found.len()..].chars().next())
    };
    text.match_indices(phrase).filter(whole).count()
}

#[test]
fn a_phrase_is_found_across_lines() {
    let text = comments("/// The item\n/// in hand, and whom.\nlet whom = 1;\n    //! Whomever\n");
    assert_eq!(occurrences(&text, "item in hand"), 1);
    assert_eq!(occurrences(&text, "whom"), 1);
}

#[test]
fn riddles_in_comments_become_fewer() {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let text = comments(&text);
        // This file names them.
        if path.ends_with("tidy_words.rs") {
            continue;
        }
        for (phrase, _) in RIDDLES {
            let places = vec![path.display().to_string(); occurrences(&text, phrase)];
            found.entry(phrase).or_default().extend(places);
        }
    }
    for (phrase, limit) in RIDDLES {
        let places = &found[phrase];
        assert!(
            places.len() <= *limit,
            "`{phrase}` occurs {} times in comments, at most {limit} are left:\n{}",
            places.len(),
            places.join("\n")
        );
    }
}
