//! The PowerShell that runs on hosts, read by a grammar and our rules: no Windows is needed to find most mistakes.

mod rules;
mod script;

use std::collections::BTreeSet;

use dormer_profile::{
    answer::FailureCode,
    script::{CONVERGE, PROBE},
    userdata::user_data,
};
use rules::{RULES, check};
use script::{Finding, Script};

fn findings_text(findings: &[Finding]) -> String {
    let lines = findings
        .iter()
        .map(|f| format!("line {}: {}: {}", f.line, f.rule, f.what));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_scripts_keep_the_rules() {
    for (name, text, given) in [
        ("converge", CONVERGE, &[][..]),
        ("probe", PROBE, &["t", "n"]),
    ] {
        let findings = check(&Script::parse(text, given));
        assert!(findings.is_empty(), "{name}:\n{}", findings_text(&findings));
    }
}

/// What user data may call beside: a cloud's agent runs it alone, and nobody reads what these answer.
const AT_BOOT: [&str; 13] = [
    "Add-WindowsCapability",
    "Enable-LocalUser",
    "Get-LocalUser",
    "Get-NetFirewallRule",
    "Get-Service",
    "New-NetFirewallRule",
    "Restart-Service",
    "Set-Acl",
    "Set-LocalUser",
    "Set-NetFirewallRule",
    "Set-Service",
    "Start-Process",
    "Start-Service",
];

#[test]
fn user_data_keeps_the_rules() {
    let text = user_data("ssh-ed25519 AAAA", "aws").expect("user data");
    let (script, _) = text.split_once("</powershell>").expect("its end");
    let script = script.trim_start_matches("<powershell>\n");
    let mut findings = check(&Script::parse(script, &[]));
    let at_boot = |what: &str| {
        AT_BOOT
            .iter()
            .any(|name| what.starts_with(&format!("{name} ")))
    };
    findings.retain(|found| found.rule != "commands" || !at_boot(&found.what));
    assert!(findings.is_empty(), "{}", findings_text(&findings));
}

/// Mistakes that people make in Windows PowerShell, each with the rule that must find it: a text of the script, what
/// is written in its place, the rule.
const MISTAKES: [(&str, &str, &str); 18] = [
    (
        "$(if ($run.apply) { $Item['wait_ms'] } else { 0 })",
        "$run.apply ? 1 : 0",
        "newer syntax",
    ),
    (
        "$state = Get-ServiceState $name",
        "$state = $name ?? 0",
        "newer syntax",
    ),
    (
        "[void][IO.Directory]::CreateDirectory($folder)",
        "Test-Hns && Test-Defender",
        "newer syntax",
    ),
    ("$service.Start() }", "sc start $name }", "commands"),
    (
        "New-HnsNetworkItem $Item",
        "New-HnsNetworkItme $Item",
        "commands",
    ),
    (
        "$item in $Items",
        "$item in (Invoke-Expression $Items)",
        "commands",
    ),
    (
        "[IO.File]::Delete($Path)",
        "'x' | Out-File -FilePath $Path -Encoding utf8",
        "parameters",
    ),
    (
        "Stop-Process -InputObject $process",
        "1..3 | ForEach-Object -Parallel { $_ }",
        "parameters",
    ),
    (
        "Add-MpPreference -",
        "Add-MpPreference -ErrorAction SilentlyContinue -",
        "parameters",
    ),
    (
        "return Test-Path -LiteralPath `",
        "return Test-Path -Path `",
        "parameters",
    ),
    (
        "& \"$Program\" $Arguments",
        "& \"$Program\" $Arguments 2>&1",
        "redirections",
    ),
    ("$number = $LASTEXITCODE", "$number = 0", "native calls"),
    (
        "& \"$Program\" $Arguments",
        "& $Program $Arguments",
        "native calls",
    ),
    ("Set-StrictMode -Version 2.0", "", "prelude"),
    (
        "$names.next -eq $name",
        "$names.next -eq $nmae",
        "variables",
    ),
    ("$run.missing.ToArray()", "@($gone)", "lists"),
    ("catch { continue }", "catch { }", "empty catches"),
    ("'is not there'", "\u{2018}is not there\u{2019}", "ascii"),
];

#[test]
fn typical_mistakes_are_found() {
    let mut missed = Vec::new();
    for (right, wrong, rule) in MISTAKES {
        assert!(
            CONVERGE.contains(right),
            "the script no longer says `{right}`"
        );
        let text = CONVERGE.replacen(right, wrong, 1);
        let (_, named) = RULES
            .iter()
            .find(|(name, _)| *name == rule)
            .expect("a rule");
        if named(&Script::parse(&text, &[])).is_empty() {
            missed.push(format!("{wrong} ({rule})"));
        }
    }
    assert!(
        missed.is_empty(),
        "{} of {}:\n{}",
        missed.len(),
        MISTAKES.len(),
        missed.join("\n")
    );
}

/// What the grammar alone finds of them: why there are rules.
#[test]
fn the_grammar_alone_finds_few_of_them() {
    let found = MISTAKES.iter().filter(|(right, wrong, _)| {
        let text = CONVERGE.replacen(right, wrong, 1);
        !RULES[0].1(&Script::parse(&text, &[])).is_empty()
    });
    assert_eq!(found.count(), 2, "of {}", MISTAKES.len());
}

#[test]
fn a_missing_brace_or_quote_is_found() {
    for (right, wrong) in [
        (
            "function New-Step([string]$State, [string]$Detail) {",
            "function New-Step {(",
        ),
        ("'is not running'", "'is not running"),
    ] {
        assert!(
            CONVERGE.contains(right),
            "the script no longer says `{right}`"
        );
        let text = CONVERGE.replacen(right, wrong, 1);
        assert!(!check(&Script::parse(&text, &[])).is_empty(), "{wrong}");
    }
}

/// The failure codes that the script can say: the first words after those functions that make one.
fn codes() -> BTreeSet<String> {
    let makers = [
        "New-Failure '",
        "Set-CallFailure '",
        "New-NoEvidence '",
        "$code = '",
    ];
    let mut found = BTreeSet::new();
    for maker in makers {
        for rest in CONVERGE.split(maker).skip(1) {
            found.extend(rest.split('\'').next().map(str::to_owned));
        }
    }
    for function in ["Get-FailureCode", "Get-StartFailure"] {
        let body = CONVERGE
            .split(&format!("function {function}("))
            .nth(1)
            .expect("a function");
        let body = body.split("\n}\n").next().expect("an end");
        let returned = body
            .split("return '")
            .skip(1)
            .filter_map(|rest| rest.split('\'').next());
        found.extend(returned.map(str::to_owned));
    }
    found
}

#[test]
fn every_failure_code_of_the_script_is_a_known_one() {
    let known: BTreeSet<String> = FailureCode::ALL.iter().map(|code| code.as_str()).collect();
    let unknown: Vec<_> = codes().difference(&known).cloned().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(codes().len() > 20, "{:?}", codes());
}

#[test]
fn the_script_and_the_answers_agree_on_what_is_final() {
    let list = CONVERGE
        .split("$final = ")
        .nth(1)
        .and_then(|rest| rest.split("$tail").next());
    let list = list.expect("the list of final failures");
    for code in FailureCode::ALL {
        let word = code.as_str();
        assert_eq!(list.contains(&format!("'{word}'")), !code.retry(), "{word}");
    }
}

#[test]
fn the_script_knows_every_kind_of_item() {
    let schema = schemars::schema_for!(dormer_profile::item::What).to_value();
    let kinds = schema["oneOf"]
        .as_array()
        .expect("kinds")
        .iter()
        .map(|one| {
            one["properties"]["kind"]["const"]
                .as_str()
                .expect("a word")
                .to_owned()
        });
    let body = CONVERGE
        .split("function Set-DocumentItem(")
        .nth(1)
        .expect("the function");
    let body = body.split("\n}\n").next().expect("an end");
    for kind in kinds {
        assert!(body.contains(&format!("'{kind}' {{")), "{kind}");
    }
}

/// What script and worker must agree on, word by word.
#[test]
fn the_script_uses_the_names_of_the_contract() {
    use dormer_profile::{
        document::{BIN, DOCUMENT_SCHEMA, DOCUMENTS, FENCE_FILE, HOST_ROOT, INSTALLED_FILE},
        document::{MUTEX, STAGING},
        frame::FRAME_MARK,
        invocation::Mode,
        item::VERSION_MARK,
    };
    let below = |path: &str| {
        path.strip_prefix(HOST_ROOT)
            .expect("below our folder")
            .to_owned()
    };
    let folder = |path: &str| format!("'{}'", below(path).trim_start_matches('\\'));
    let mut wanted = vec![
        HOST_ROOT.replace(r"C:\ProgramData", "$env:ProgramData"),
        format!("$root{}", below(FENCE_FILE)),
        format!("$root{}", below(INSTALLED_FILE)),
        format!("'{MUTEX}'"),
        format!("\\{VERSION_MARK}\""),
        format!("{FRAME_MARK} $Task $Attempt "),
        format!("$read['schema'] -ne {DOCUMENT_SCHEMA}"),
        format!("schema = {DOCUMENT_SCHEMA};"),
    ];
    wanted.extend([BIN, DOCUMENTS, STAGING].map(folder));
    wanted.extend(Mode::ALL.map(|mode| format!("'{mode}'")));
    for text in wanted {
        assert!(CONVERGE.contains(&text), "the script does not say {text}");
    }
    let changing = "if ('apply', 'remove', 'reboot', 'adopt' -contains $Mode) { Update-Fence }";
    assert!(
        CONVERGE.contains(changing),
        "who may change a host asks the fence"
    );
    let changes = Mode::ALL.into_iter().filter(|mode| mode.changes()).count();
    assert_eq!(changes, 4);
}
