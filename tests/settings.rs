//! Settings of `dormer run` as a person gives them: flags override variables, variables override the file, and mistakes
//! are refused.

use dormer_testkit::test_dir;
use std::process::{Command, Output};

fn dormer(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormer"));
    command
        .arg("run")
        .args(arguments)
        .envs(variables.iter().copied())
        .output()
        .expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let folder = test_dir("settings");
    let file = folder.path().join("dormer.toml");
    let written = "slots = 1\nssh-port = 2201\nprivate-key-secret = 'blue'\n[nats]\nprefix = 'x'\ntoken = 'hush'\n";
    std::fs::write(&file, written).expect("written");
    let config = file.display().to_string();
    let variables = [
        ("DORMER_SLOTS", "2"),
        ("DORMER_SSH_PORT", "2202"),
        ("DORMER_NATS_MONITOR", "http://m"),
    ];
    let arguments = ["--config", &*config, "--print-config", "--slots", "3"];
    let printed = dormer(&arguments, &variables);
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    let printed: toml::Table = text(&printed.stdout).parse().expect("TOML");
    assert_eq!(printed["slots"].as_integer(), Some(3), "the flag");
    assert_eq!(printed["ssh-port"].as_integer(), Some(2202), "the variable");
    assert_eq!(
        printed["private-key-secret"].as_str(),
        Some("blue"),
        "the file"
    );
    assert_eq!(printed["pool"].as_str(), Some("windows"), "the default");
    let nats = &printed["nats"];
    assert_eq!(
        (nats["prefix"].as_str(), nats["token"].as_str()),
        (Some("x"), Some("***"))
    );
    assert_eq!(nats["monitor"].as_str(), Some("http://m"));
}

#[test]
fn a_token_for_each_machine_is_a_flag_a_variable_or_a_key() {
    let printed = |arguments: &[&str], variables: &[(&str, &str)]| {
        let output = dormer(&[arguments, &["--print-config"]].concat(), variables);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let table: toml::Table = text(&output.stdout).parse().expect("TOML");
        table
            .get("join")
            .and_then(|join| join.get("machine-tokens")?.as_bool())
    };
    assert_eq!(printed(&[], &[]), None, "one for all");
    assert_eq!(printed(&["--machine-tokens"], &[]), Some(true));
    assert_eq!(
        printed(&[], &[("DORMER_MACHINE_TOKENS", "true")]),
        Some(true)
    );
    assert_eq!(
        printed(
            &["--machine-tokens=false"],
            &[("DORMER_MACHINE_TOKENS", "true")]
        ),
        Some(false)
    );
    let both = dormer(
        &["--machine-tokens", "--bootstrap-secret", "kube-system/a"],
        &[],
    );
    let both = text(&both.stderr);
    assert!(
        both.contains("a token for each machine, or one for all"),
        "{both}"
    );
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let split = text(&dormer(&["--role", "worker"], &[]).stderr);
    assert!(split.contains("one process owns a folder"), "{split}");
    let store = text(&dormer(&["--store", "mysql://db"], &[]).stderr);
    assert!(store.contains("nats://HOST:PORT"), "{store}");
    let missing = text(&dormer(&["--config", "/nowhere/dormer.toml"], &[]).stderr);
    assert!(missing.contains("/nowhere/dormer.toml"), "{missing}");
    let lone = text(&dormer(&[], &[("DORMER_NATS_USER", "me")]).stderr);
    assert!(lone.contains("give both or neither"), "{lone}");
}

#[test]
fn every_flag_is_explained_and_has_its_variable() {
    let help = text(&dormer(&["--help"], &[]).stdout);
    let flags: Vec<&str> = help
        .lines()
        .filter_map(|line| line.trim().strip_prefix("--"))
        .collect();
    assert!(flags.len() > 25, "{help}");
    for flag in flags {
        let name = flag.split([' ', '[', '=']).next().expect("a name");
        let variable = format!("DORMER_{}", name.to_uppercase().replace('-', "_"));
        // The Operator Lifecycle Manager names one variable itself.
        let own = ["print-config", "help", "operator-condition"].contains(&name);
        let known = own || help.contains(&variable);
        assert!(known, "--{name} has no variable {variable}");
    }
    assert!(!help.contains("hush"));
}

/// The tables of the page are written from the same definitions, by a test of `src/run/config/page.rs`.
#[test]
fn every_flag_of_the_help_has_its_row_in_the_page() {
    let help = text(&dormer(&["--help"], &[]).stdout);
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let flags = help
        .lines()
        .filter_map(|line| line.trim().strip_prefix("--"));
    for flag in flags {
        let name = flag.split([' ', '[', '=']).next().expect("a name");
        let row = [' ', '`', '['].map(|end| format!("| `--{name}{end}"));
        let known = name == "help" || row.iter().any(|row| page.contains(row));
        assert!(known, "--{name} is not in docs/configuration.md");
    }
}
