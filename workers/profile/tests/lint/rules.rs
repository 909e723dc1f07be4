//! The house rules for PowerShell that runs on other people's hosts.

use std::collections::BTreeSet;

use crate::lint::script::{Finding, Script};

/// A rule: what it finds wrong with a script.
type Rule = fn(&Script<'_>) -> Vec<Finding>;

/// Every rule by its name.
pub(crate) const RULES: [(&str, Rule); 12] = [
    ("syntax", syntax),
    ("ascii", ascii),
    ("prelude", prelude),
    ("newer syntax", newer_syntax),
    ("commands", commands),
    ("parameters", parameters),
    ("redirections", redirections),
    ("native calls", native_calls),
    ("bare words", bare_words),
    ("variables", variables),
    ("lists", lists),
    ("empty catches", empty_catches),
];

/// Everything that is wrong with a script.
pub(crate) fn check(script: &Script<'_>) -> Vec<Finding> {
    RULES.iter().flat_map(|(_, rule)| rule(script)).collect()
}

/// The commands that a script may use: each is in Windows PowerShell 5.1, and none evaluates text, writes files in an
/// encoding of its own, or answers in the host's language.
const COMMANDS: [&str; 19] = [
    "Add-WindowsCapability",
    "Enable-LocalUser",
    "ForEach-Object",
    "Get-LocalUser",
    "Get-NetFirewallRule",
    "Get-Service",
    "New-NetFirewallRule",
    "New-Object",
    "Restart-Service",
    "Set-Acl",
    "Set-LocalUser",
    "Set-NetFirewallRule",
    "Set-Service",
    "Set-StrictMode",
    "Start-Process",
    "Start-Service",
    "Start-Sleep",
    "Test-Path",
    "Where-Object",
];

/// Further commands that the chart's scripts may use, each in Windows PowerShell 5.1 on Windows Server.
pub(crate) const COMMANDS_OF_THE_CHART: [&str; 11] = [
    "ConvertFrom-Json",
    "ConvertTo-Json",
    "Copy-Item",
    "Get-Content",
    "Get-HnsNetwork",
    "Join-Path",
    "Move-Item",
    "New-Item",
    "Out-Null",
    "Out-String",
    "Set-Content",
];

/// Parameters that Windows PowerShell 5.1 does not have, or that write a byte-order mark.
const PARAMETERS: [&str; 8] = [
    "-parallel",
    "-ashashtable",
    "-encoding",
    "-skipcertificatecheck",
    "-asutc",
    "-throttlelimit",
    "-enumsasstrings",
    "-escapehandling",
];

/// Commands that would read `[` in a path as a pattern.
const PATHS: [&str; 3] = ["Get-ChildItem", "Get-Item", "Test-Path"];

/// Variables that PowerShell sets.
const AUTOMATIC: [&str; 8] = [
    "_",
    "true",
    "false",
    "null",
    "psversiontable",
    "pscommandpath",
    "lastexitcode",
    "this",
];

fn syntax(script: &Script<'_>) -> Vec<Finding> {
    let wrong = script
        .nodes()
        .into_iter()
        .filter(|node| node.is_error() || node.is_missing());
    wrong
        .map(|node| script.finding(node, "syntax", script.says(node)))
        .collect()
}

/// Windows PowerShell reads a file without a byte-order mark in the host's code page.
fn ascii(script: &Script<'_>) -> Vec<Finding> {
    let lines = script
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_ascii());
    lines
        .map(|(n, line)| Finding {
            line: n + 1,
            rule: "ascii",
            what: line.trim().to_owned(),
        })
        .collect()
}

/// Strict mode, and errors that end the script, before anything happens.
fn prelude(script: &Script<'_>) -> Vec<Finding> {
    let code = script.text.replace(' ', "");
    const WANTED: [&str; 3] = [
        "Set-StrictMode-Version2",
        "$ErrorActionPreference='Stop'",
        "$ProgressPreference='Silently",
    ];
    let missing = WANTED.into_iter().filter(|wanted| !code.contains(wanted));
    let findings_text = |wanted| Finding {
        line: 1,
        rule: "prelude",
        what: format!("no {wanted}"),
    };
    missing.map(findings_text).collect()
}

/// Ternary, `??`, `?.`, `&&` and `||` came with PowerShell 7; `?` and `%` are aliases.
fn newer_syntax(script: &Script<'_>) -> Vec<Finding> {
    let code = script.code();
    let newer = |line: &str| line.contains('?') || line.contains("&&") || line.contains("||");
    let lines = code.lines().enumerate().filter(|(_, line)| newer(line));
    lines
        .map(|(n, line)| Finding {
            line: n + 1,
            rule: "newer syntax",
            what: line.trim().to_owned(),
        })
        .collect()
}

/// Only commands that are known, or defined here: no alias, no misspelling, no `Invoke-Expression`.
fn commands(script: &Script<'_>) -> Vec<Finding> {
    commands_beside(script, &[])
}

/// As [`commands`], where `further` ones are known, too.
pub(crate) fn commands_beside(script: &Script<'_>, further: &[&str]) -> Vec<Finding> {
    let ours = script.functions();
    let mut found = Vec::new();
    for name in script.of("function_name") {
        let says = script.says(name);
        if COMMANDS.contains(&says) || ["Set-Item", "Remove-Item", "Invoke-Item"].contains(&says) {
            found.push(script.finding(name, "commands", format!("{says} hides a command")));
        }
    }
    for name in script.of("command_name") {
        let says = script.says(name);
        let known = COMMANDS.contains(&says) || further.contains(&says) || ours.contains(&says);
        if !known {
            found.push(script.finding(name, "commands", format!("{says} is not known here")));
        }
    }
    found
}

fn parameters(script: &Script<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for command in script.of("command") {
        let says = script.says(command);
        let name = says.split_whitespace().next().unwrap_or_default();
        let lower = says.to_lowercase();
        let words: Vec<&str> = lower.split_whitespace().collect();
        for parameter in PARAMETERS {
            // ASCII has no byte-order mark.
            let bad = |pair: &[&str]| pair[0] == parameter && pair != ["-encoding", "ascii"];
            if words.windows(2).any(bad) || words.last() == Some(&parameter) {
                let what = format!("{parameter} of {name}");
                found.push(script.finding(command, "parameters", what));
            }
        }
        let block = ["Where-Object", "ForEach-Object"].contains(&name);
        if lower.contains("silentlycontinue") && !block {
            found.push(script.finding(command, "parameters", format!("{name} hides its errors")));
        }
        if PATHS.contains(&name) && !says.contains("-LiteralPath") {
            found.push(script.finding(
                command,
                "parameters",
                format!("{name} without -LiteralPath"),
            ));
        }
    }
    found
}

/// `>` writes UTF-16; `2>&1` makes an error of a harmless line.
fn redirections(script: &Script<'_>) -> Vec<Finding> {
    let kinds = [
        "redirection",
        "file_redirection_operator",
        "merging_redirection_operator",
    ];
    let nodes = script
        .nodes()
        .into_iter()
        .filter(|node| kinds.contains(&node.kind()));
    nodes
        .map(|node| script.finding(node, "redirections", script.says(node)))
        .collect()
}

/// A program is called by `&` with its path in quotes, and its exit code is read in the next statement.
fn native_calls(script: &Script<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for operator in script.of("command_invokation_operator") {
        let rest = &script.text[operator.end_byte()..];
        if !rest.trim_start().starts_with('"') {
            found.push(script.finding(operator, "native calls", "the program is not in quotes"));
        }
        let after: String = rest.lines().skip(1).take(2).collect();
        if !after.contains("$LASTEXITCODE") {
            found.push(script.finding(operator, "native calls", "the exit code is not read"));
        }
    }
    found
}

/// A bare word with a variable in it falls apart at spaces and quotes.
fn bare_words(script: &Script<'_>) -> Vec<Finding> {
    let bare = |says: &str| says.contains('$') && !says.starts_with('$');
    let words = script
        .of("generic_token")
        .into_iter()
        .filter(|node| bare(script.says(*node)));
    let glued = script
        .of("command_elements")
        .into_iter()
        .flat_map(|elements| {
            let mut cursor = elements.walk();
            let children: Vec<_> = elements.children(&mut cursor).collect();
            let pairs: Vec<_> = children
                .windows(2)
                .filter(|pair| {
                    let kinds = (pair[0].kind(), pair[1].kind());
                    let touching = pair[0].end_byte() == pair[1].start_byte();
                    touching
                        && kinds.0 != "command_argument_sep"
                        && kinds.1 != "command_argument_sep"
                })
                .map(|pair| pair[1])
                .collect();
            pairs
        });
    words
        .chain(glued)
        .map(|node| script.finding(node, "bare words", script.says(node)))
        .collect()
}

/// Every variable that is read is set somewhere: strict mode would find it only on the host.
fn variables(script: &Script<'_>) -> Vec<Finding> {
    let name = |says: &str| says.trim_matches(['$', '@', '{', '}']).to_lowercase();
    let mut set: BTreeSet<String> = script.given.iter().map(|name| (*name).to_owned()).collect();
    let first = |node: tree_sitter::Node<'_>| {
        let says = script.says(node);
        let at = says.find('$')?;
        let end = says[at + 1..].find(|c: char| !c.is_alphanumeric() && c != '_');
        Some(name(&says[at..end.map_or(says.len(), |end| at + 1 + end)]))
    };
    for kind in [
        "assignment_expression",
        "script_parameter",
        "foreach_statement",
    ] {
        for node in script.of(kind) {
            let shown = if kind == "script_parameter" {
                parameter(script, node)
            } else {
                node
            };
            set.extend(first(shown));
        }
    }
    let read = script.of("variable").into_iter().filter(|node| {
        let says = script.says(*node);
        let name = name(says);
        !name.starts_with("env:") && !AUTOMATIC.contains(&name.as_str()) && !set.contains(&name)
    });
    read.map(|node| script.finding(node, "variables", script.says(node)))
        .collect()
}

/// The variable of a parameter, without its type and attributes.
fn parameter<'t>(script: &Script<'_>, node: tree_sitter::Node<'t>) -> tree_sitter::Node<'t> {
    let mut cursor = node.walk();
    let mut children = node.children(&mut cursor);
    children
        .find(|child| script.says(*child).starts_with('$'))
        .unwrap_or(node)
}

/// In Windows PowerShell `@($list)` fails on a generic list that `New-Object` made.
fn lists(script: &Script<'_>) -> Vec<Finding> {
    let made = script
        .of("assignment_expression")
        .into_iter()
        .filter_map(|node| {
            let says = script.says(node);
            let (left, right) = says.split_once('=')?;
            right
                .contains("Generic.List")
                .then(|| format!("@({})", left.trim()))
        });
    let bad: Vec<String> = made.filter(|name| name.starts_with("@($")).collect();
    let wrong =
        |node: &tree_sitter::Node<'_>| bad.iter().any(|bad| script.says(*node).starts_with(bad));
    let nodes = script.of("array_expression").into_iter().filter(wrong);
    nodes
        .map(|node| script.finding(node, "lists", script.says(node)))
        .collect()
}

fn empty_catches(script: &Script<'_>) -> Vec<Finding> {
    let empty = |says: &str| {
        says.split_once('{')
            .is_some_and(|(_, rest)| rest.trim() == "}")
    };
    let nodes = script
        .of("catch_clause")
        .into_iter()
        .filter(|node| empty(script.says(*node)));
    nodes
        .map(|node| script.finding(node, "empty catches", "an error is swallowed"))
        .collect()
}
