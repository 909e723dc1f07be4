//! The PowerShell of the user data and of the chart, read by a grammar and our rules: no Windows is needed to find most
//! mistakes.

mod rules;
mod script;

use dormer_profile::userdata::user_data;
use rules::{COMMANDS_OF_THE_CHART, RULES, check, commands_beside};
use script::{Finding, Script};

fn findings_text(findings: &[Finding]) -> String {
    let lines = findings
        .iter()
        .map(|f| format!("line {}: {}: {}", f.line, f.rule, f.what));
    lines.collect::<Vec<_>>().join("\n")
}

/// The user data as a cloud's agent runs it.
fn text() -> String {
    let text = user_data("ssh-ed25519 AAAA", "aws").expect("user data");
    let (script, _) = text.split_once("</powershell>").expect("its end");
    script.trim_start_matches("<powershell>\n").to_owned()
}

#[test]
fn user_data_keeps_the_rules() {
    let findings = check(&Script::parse(&text(), &[]));
    assert!(findings.is_empty(), "{}", findings_text(&findings));
}

const FLANNEL: &str = include_str!("../../../deploy/chart/files/windows-network/flannel.ps1");
const KUBE_PROXY: &str = include_str!("../../../deploy/chart/files/windows-network/kube-proxy.ps1");

/// As [`check`], with two differences: the chart's scripts call further commands, and do without the prelude. Strict mode
/// would end them where a program's answer lacks a field, and their output goes to the log of a pod.
fn check_of_the_chart(script: &Script<'_>) -> Vec<Finding> {
    let differs = ["commands", "prelude"];
    let rules = RULES.iter().filter(|(name, _)| !differs.contains(name));
    let found = rules.flat_map(|(_, rule)| rule(script));
    found
        .chain(commands_beside(script, &COMMANDS_OF_THE_CHART))
        .collect()
}

#[test]
fn the_charts_scripts_keep_the_rules() {
    for text in [FLANNEL, KUBE_PROXY] {
        let findings = check_of_the_chart(&Script::parse(text, &[]));
        assert!(findings.is_empty(), "{}", findings_text(&findings));
    }
}

#[test]
fn mistakes_in_the_charts_scripts_are_found() {
    for (text, right, wrong, rule) in [
        (KUBE_PROXY, "Get-HnsNetwork", "Get-HnsNetwrk", "commands"),
        (FLANNEL, "-ne $text) {", "-ne $text) {(", "syntax"),
        (
            KUBE_PROXY,
            "(-not $network)",
            "(-not $netwrok)",
            "variables",
        ),
        (KUBE_PROXY, "of ${subnet}:", "of ${subnot}:", "variables"),
        (FLANNEL, "exit $LASTEXITCODE", "", "native calls"),
        (KUBE_PROXY, "catch { $null }", "catch { }", "empty catches"),
        (FLANNEL, "-Encoding ascii", "-Encoding utf8", "parameters"),
        (
            FLANNEL,
            "Test-Path -LiteralPath",
            "Test-Path -Path",
            "parameters",
        ),
        (KUBE_PROXY, "| Out-Null", "> $null", "redirections"),
    ] {
        assert!(text.contains(right), "the script no longer says `{right}`");
        let mistaken = text.replacen(right, wrong, 1);
        let findings = check_of_the_chart(&Script::parse(&mistaken, &[]));
        let found = findings.iter().any(|found| found.rule == rule);
        assert!(found, "{wrong}: {}", findings_text(&findings));
    }
}

/// Mistakes that people make in Windows PowerShell, each with the rule that must find it: a text of the user data, what
/// is written in its place, the rule.
const MISTAKES: [(&str, &str, &str); 18] = [
    (
        "if ($admin.Enabled) { return }",
        "$admin.Enabled ? 1 : 0",
        "newer syntax",
    ),
    (
        "$users = @(Get-LocalUser)",
        "$users = $null ?? @(Get-LocalUser)",
        "newer syntax",
    ),
    (
        "if ($known) {",
        "Get-Service && Get-LocalUser\n if ($known) {",
        "newer syntax",
    ),
    (
        "Set-Service -Name 'sshd' -StartupType Automatic",
        "sc config sshd",
        "commands",
    ),
    (
        "Enable-LocalUser -InputObject $admin",
        "Enable-LocalUsr -InputObject $admin",
        "commands",
    ),
    (
        "$random.GetBytes($bytes)",
        "Invoke-Expression $bytes",
        "commands",
    ),
    (
        "[IO.File]::WriteAllLines($config, $lines)",
        "$lines | Out-File -FilePath $config -Encoding utf8",
        "parameters",
    ),
    (
        "Start-Sleep -Seconds 5",
        "1..3 | ForEach-Object -Parallel { $_ }",
        "parameters",
    ),
    (
        "Set-LocalUser -",
        "Set-LocalUser -ErrorAction SilentlyContinue -",
        "parameters",
    ),
    (
        "Test-Path -LiteralPath $agent",
        "Test-Path -Path $agent",
        "parameters",
    ),
    (
        "Start-Service -Name 'sshd'",
        "Start-Service -Name 'sshd' 2>&1",
        "redirections",
    ),
    (
        "Start-Service -Name 'sshd'",
        "& \"$env:SystemRoot\\net.exe\" start sshd",
        "native calls",
    ),
    (
        "Start-Service -Name 'sshd'",
        "& $env:SystemRoot\\net.exe start sshd",
        "native calls",
    ),
    ("Set-StrictMode -Version 2.0", "", "prelude"),
    ("if ($admin.Enabled)", "if ($admim.Enabled)", "variables"),
    (
        "$lines = @()",
        "$lines = New-Object -TypeName 'Collections.Generic.List[string]'\n $all = @($lines)",
        "lists",
    ),
    (
        "if ($try -eq 10) { throw }\n            Start-Sleep -Seconds 5",
        "",
        "empty catches",
    ),
    (
        "'OpenSSH.Server~~~~0.0.1.0'",
        "\u{2018}OpenSSH.Server~~~~0.0.1.0\u{2019}",
        "ascii",
    ),
];

#[test]
fn typical_mistakes_are_found() {
    let all = text();
    let mut missed = Vec::new();
    for (right, wrong, rule) in MISTAKES {
        assert!(
            all.contains(right),
            "the user data no longer says `{right}`"
        );
        let mistaken = all.replacen(right, wrong, 1);
        let (_, named) = RULES
            .iter()
            .find(|(name, _)| *name == rule)
            .expect("a rule");
        if named(&Script::parse(&mistaken, &[])).is_empty() {
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

#[test]
fn a_missing_brace_or_quote_is_found() {
    let all = text();
    for (right, wrong) in [
        ("function Install-Server {", "function Install-Server {("),
        (
            "-Name 'OpenSSH.Server~~~~0.0.1.0'",
            "-Name 'OpenSSH.Server~~~~0.0.1.0",
        ),
    ] {
        assert!(
            all.contains(right),
            "the user data no longer says `{right}`"
        );
        let mistaken = all.replacen(right, wrong, 1);
        assert!(!check(&Script::parse(&mistaken, &[])).is_empty(), "{wrong}");
    }
}
