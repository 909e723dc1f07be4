//! A cause holds no command: what a person is to do is a step, with its command on a line of its own.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Packages that write what people read as a cause: workers, states, and the sentences about them.
const WRITERS: &[&str] = &[
    "engine/core/src",
    "engine/src",
    "proto/src",
    "proto/support/src",
    "proto/views/src",
    "workers/host/src",
    "workers/profile/src",
    "workers/src",
    "workflows/src",
];

/// Files and texts in them that are no causes, each with what they are.
const NO_CAUSES: &[(&str, &str, &str)] = &[
    ("proto/views/src/explain/cures.rs", "", "steps"),
    (
        "proto/views/src/explain/outdated.rs",
        "To replace a machine",
        "a step",
    ),
    ("proto/views/src/explain.rs", "dormer history ", "steps"),
    (
        "proto/views/src/explain.rs",
        "dormer continues by itself; ",
        "a step",
    ),
    (
        "proto/views/src/explain/short.rs",
        "",
        "a column, which has no room for what differs",
    ),
    (
        "proto/views/src/explain/situation.rs",
        " and {more} ",
        "the rest of a list",
    ),
    (
        "proto/views/src/rollout.rs",
        "{how} to {to} ",
        "what a rollback leaves to do",
    ),
    (
        "proto/views/src/timeline.rs",
        "Records before ",
        "where earlier records are",
    ),
    (
        "proto/support/src/refusal.rs",
        "Install a payload ",
        "the step beside a cause",
    ),
    (
        "workers/src/watcher/settings.rs",
        "",
        "remedies beside their causes",
    ),
    (
        "workers/src/kubernetes/changing.rs",
        "End the pause ",
        "a remedy",
    ),
    (
        "workers/src/kubernetes/changing.rs",
        "See how far ",
        "remedies",
    ),
    (
        "workers/src/kubernetes/changing.rs",
        "Give the conditions ",
        "a remedy",
    ),
    (
        "workers/src/kubernetes/operators.rs",
        "kubectl -n {namespace} ",
        "the commands beside a cause",
    ),
    (
        "engine/src/nats/options.rs",
        "",
        "errors of dormer's own start",
    ),
    (
        "engine/src/shard/oversize.rs",
        "",
        "where the whole report is",
    ),
];

/// Words after `dormer` that make it a command.
const ACTIONS: &[&str] = &[
    "abort",
    "approve",
    "dead-letters",
    "describe",
    "drain",
    "get",
    "history",
    "hold",
    "keys",
    "lint",
    "logs",
    "pause",
    "payload",
    "plan",
    "pool",
    "preflight",
    "profile",
    "recreate",
    "remove",
    "reset",
    "resume",
    "retry",
    "rollback",
    "run",
    "status",
    "trace",
    "trust-host-key",
    "unquarantine",
    "verify",
    "wait",
    "why",
];

fn sources(under: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(under).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// Texts of a source in its order, without those of its comments and of its tests. A continued line is one text.
fn texts(source: &str) -> Vec<String> {
    let tests = source.match_indices("#[cfg(test)]\n").map(|(at, _)| at);
    let begin = |at: &usize| {
        let line = source[*at..].lines().nth(1).unwrap_or_default();
        line.contains("mod tests {")
    };
    let end = tests.into_iter().find(begin).unwrap_or(source.len());
    let code: Vec<&str> = source[..end]
        .lines()
        .filter(|it| !it.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    let mut rest = code.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            // A character, not the beginning of a text.
            '\'' if rest.peek() == Some(&'"') => {
                rest.next();
            }
            '"' => {
                let mut text = String::new();
                while let Some(character) = rest.next() {
                    match character {
                        '"' => break,
                        '\\' => match rest.next() {
                            Some('\n') => while rest.next_if(|it| it.is_whitespace()).is_some() {},
                            Some(escaped) => text.push(escaped),
                            None => {}
                        },
                        other => text.push(other),
                    }
                }
                found.push(text);
            }
            _ => {}
        }
    }
    found
}

/// Whether a text has a command that a person could copy.
fn has_command(text: &str) -> bool {
    let after = |program: &str| {
        let found = text.match_indices(program);
        let whole = found.filter(|(at, _)| !text[..*at].ends_with(|it: char| it.is_alphanumeric()));
        let words: Vec<&str> = whole
            .map(|(at, _)| {
                text[at + program.len()..]
                    .split([' ', ')', ';', ','])
                    .next()
            })
            .map(Option::unwrap_or_default)
            .collect();
        words
    };
    let plain = ["kubectl ", "oc adm ", "helm "];
    plain.iter().any(|it| !after(it).is_empty())
        || after("dormer ").iter().any(|it| ACTIONS.contains(it))
}

#[test]
fn a_command_is_found_in_a_text() {
    let source = "let a = \"Run it: kubectl \\\n         get csr\";\n// \"dormer why\"\nlet b = '\"';\nlet c = \"dormer may \
                  not get it\";\n#[cfg(test)]\nmod tests { \"dormer why\" }";
    let all = texts(source);
    assert_eq!(all, ["Run it: kubectl get csr", "dormer may not get it"]);
    let found: Vec<bool> = all.iter().map(|it| has_command(it)).collect();
    assert_eq!(found, [true, false]);
    assert!(has_command("approval (dormer approve)"));
    assert!(!has_command("dormer waits for it"));
}

#[test]
fn no_cause_holds_a_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for writer in WRITERS {
        sources(&root.join(writer), &mut files);
    }
    files.sort();
    let mut unused: Vec<_> = NO_CAUSES.iter().collect();
    let mut found = Vec::new();
    for path in files {
        let name = path.strip_prefix(root).expect("below the root");
        let name = name.to_string_lossy();
        if name.ends_with("tests.rs") {
            continue;
        }
        let source = fs::read_to_string(&path).expect("a source is readable");
        for text in texts(&source).iter().filter(|it| has_command(it)) {
            let known = |it: &(&str, &str, &str)| it.0 == name && text.starts_with(it.1);
            unused.retain(|it| !known(it));
            if !NO_CAUSES.iter().any(known) {
                found.push(format!("{name}: {text}"));
            }
        }
    }
    assert!(
        found.is_empty(),
        "commands in causes:\n{}",
        found.join("\n")
    );
    assert!(unused.is_empty(), "no such texts any more: {unused:?}");
}
