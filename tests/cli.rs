//! Command line as a person types it: its output, and its answers to mistakes.

use std::process::{Command, Output};

fn dormer(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_bench_answers_in_json_with_the_machines_calibration() {
    for store in ["memory", "embedded"] {
        let folder = tempfile::tempdir().unwrap();
        let output = dormer(&[
            "bench",
            "engine",
            "--store",
            store,
            "--in-flight",
            "8",
            "--seconds",
            "1",
            "--json",
            "--folder",
            folder.path().to_str().unwrap(),
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(figures["steps_per_s"].as_f64().unwrap() > 0.0, "{figures}");
        assert!(
            figures["calibration"]["fdatasync_per_s"].as_f64().unwrap() > 0.0,
            "{figures}"
        );
        assert_eq!(figures["store"], store);
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "the bench leaves nothing behind");
    }
}

#[test]
fn an_unknown_store_is_answered_with_the_known_ones() {
    let output = dormer(&["bench", "engine", "--store", "sqlite"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("memory, embedded or nats://"));
}

#[test]
fn help_in_a_pipe_is_not_wrapped() {
    let help = text(&dormer(&["get", "--help"]).stdout);
    let names = help.lines().find(|line| line.contains("Only these: names"));
    let names = names.unwrap_or_else(|| panic!("{help}"));
    assert!(names.ends_with("for tasks, the machine"), "{names}");
    let codes = help.lines().find(|line| line.starts_with("Exit codes:"));
    assert!(
        codes.is_some_and(|it| it.ends_with("no answer from the server")),
        "{help}"
    );
    let whole = text(&dormer(&["--help"]).stdout);
    let words = whole
        .lines()
        .find(|line| line.starts_with("To hold a machine"));
    assert!(
        words.is_some_and(|it| it.ends_with("cannot be compared.")),
        "{whole}"
    );
}

/// The address of a NATS server may have a login.
#[test]
fn help_does_not_print_the_stores_address_of_the_environment() {
    let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args(["run", "--help"])
        .env("DORMER_STORE", "nats://u:s3cret@h:4222")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let help = text(&output.stdout);
    assert!(help.contains("[env: DORMER_STORE]"), "{help}");
    assert!(!help.contains("s3cret"), "{help}");
}

#[cfg(feature = "demo")]
#[test]
fn several_faults_are_read_before_anything_starts() {
    for command in ["demo", "fleet"] {
        let output = dormer(&[
            command,
            "--faults",
            "dead=1,disk-ful=1",
            "--faults",
            "flapping",
        ]);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains("did you mean disk-full?"), "{said}");
    }
}

#[cfg(feature = "demo")]
#[test]
fn the_fleet_lists_its_faults_and_refuses_an_unknown_one() {
    let output = dormer(&["fleet", "--list-faults"]);
    assert!(output.status.success());
    assert!(
        text(&output.stdout).lines().count() >= 26,
        "{}",
        text(&output.stdout)
    );
    let output = dormer(&["fleet", "--faults", "earthquake"]);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("earthquake"),
        "{}",
        text(&output.stderr)
    );
    let output = dormer(&["fleet", "--speed", "0"]);
    assert!(
        text(&output.stderr).contains("above 0"),
        "{}",
        text(&output.stderr)
    );
}

#[cfg(feature = "demo")]
#[test]
fn the_sheet_has_thirty_tasks_and_its_faults_exist() {
    let sheet = include_str!("../docs/tasks.md");
    let numbers: Vec<u32> = sheet
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(numbers, (1..=30).collect::<Vec<u32>>());
    let faults = text(&dormer(&["demo", "--list-faults"]).stdout);
    let part = sheet.split("## When something breaks").nth(1).unwrap();
    let rows = part.lines().filter_map(|line| line.split_once(" | `"));
    let named: Vec<&str> = rows
        .filter_map(|(_, rest)| rest.split('`').next())
        .collect();
    assert_eq!(named.len(), 3, "{named:?}");
    for fault in named {
        let known = faults
            .lines()
            .any(|line| line.split_whitespace().next() == Some(fault));
        assert!(known, "{fault}: {faults}");
    }
}

#[test]
fn a_wrong_path_is_reported_as_one_and_a_misspelt_flag_gets_the_near_one() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().to_str().unwrap();
    let said = |arguments: &[&str]| {
        let output = dormer(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        text(&output.stderr)
    };
    let payload = said(&["payload", "verify", here]);
    assert!(payload.contains("has no payload.yaml"), "{payload}");
    let nowhere = format!("{here}/nowhere");
    let store = said(&["store", "check", "--store", &nowhere]);
    assert!(
        store.contains("there is no such folder") && !store.contains("damaged"),
        "{store}"
    );
    // Elsewhere -o is a format, and no archive is called "json".
    let format = said(&["support-bundle", "-o", "json"]);
    assert!(
        format.contains("'-o'") && format.contains("--to"),
        "{format}"
    );
    let format = said(&["support-bundle", "--output", "json"]);
    assert!(format.contains("'--output'"), "{format}");
    let flag = said(&["get", "machines", "--sort-bye", "name"]);
    assert!(flag.contains("'--sort-by'"), "{flag}");
    // Verbs of other programs lead to the command that does it, and not to one that reads alike.
    for (verb, leads_to) in [
        ("unhold", "dormer resume MACHINE"),
        ("unpause", "dormer resume --pool POOL"),
        ("uncordon", "dormer resume MACHINE"),
        ("uncordon", "kubectl uncordon NODE"),
        ("release", "dormer unquarantine MACHINE"),
        ("release", "dormer resume MACHINE ends a hold"),
        ("edit", "what a payload or a profile would change"),
        ("scale", "what a payload or a profile would change"),
        ("cancel", "dormer abort MACHINE"),
        ("stop", "dormer pause --pool POOL"),
        ("cordon", "dormer drain MACHINE"),
        ("log", "dormer logs MACHINE"),
    ] {
        let answer = said(&[verb, "windows"]);
        assert!(
            answer.contains(leads_to) && !answer.contains("similar"),
            "{verb}: {answer}"
        );
    }
    let rollout = said(&["rollout", "status", "windows"]);
    assert!(
        rollout.contains("dormer get rollouts shows how far each is")
            && !rollout.contains("the commands of dormer status"),
        "{rollout}"
    );
    for (kind, leads_to) in [
        ("workers", "dormer get tasks -o wide"),
        ("events", "dormer history MACHINE"),
        ("all", "dormer status"),
        ("nodes", "dormer get machines -o wide"),
    ] {
        let answer = said(&["get", kind]);
        assert!(answer.contains(leads_to), "{kind}: {answer}");
    }
    let command = said(&["statsu"]);
    assert!(command.contains("'status'"), "{command}");
}

#[test]
fn completions_know_every_command_in_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = dormer(&["completions", shell]);
        assert!(output.status.success(), "{shell}: {}", text(&output.stderr));
        let script = text(&output.stdout);
        for word in ["history", "replay", "recreate", "rollback"] {
            assert!(script.contains(word), "{word} is missing for {shell}");
        }
    }
    for (shell, times) in [("bash", 1), ("zsh", 1), ("fish", 3)] {
        let script = text(&dormer(&["completions", shell]).stdout);
        let asks = script.matches("dormer __complete -- ").count();
        assert_eq!(asks, times, "{shell} asks for names");
    }
    let zsh = text(&dormer(&["completions", "zsh"]).stdout);
    assert!(
        zsh.matches(":_dormer_names'").count() > 20,
        "each argument that is a name: {zsh}"
    );
    assert!(zsh.contains("]:VERSION:_dormer_names'"), "{zsh}");
    assert!(zsh.contains("]:FAULTS:_dormer_faults'"), "{zsh}");
    assert!(zsh.contains("\n_dormer_faults() {"), "{zsh}");
    let fish = text(&dormer(&["completions", "fish"]).stdout);
    assert!(
        fish.contains("-l faults -x -a \"(dormer demo --list-faults"),
        "{fish}"
    );
    assert!(!dormer(&["completions", "csh"]).status.success());
}

#[test]
fn every_command_has_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    let output = dormer(&["man", folder.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(
        page("dormer.1").contains(".TH dormer 1"),
        "{}",
        page("dormer.1")
    );
    let recreate = page("dormer-recreate.1");
    assert!(
        recreate.contains("dangerous: its Machine is deleted"),
        "{recreate}"
    );
    assert!(page("dormer-history.1").contains("export"));
    assert!(page("dormer-replay.1").contains("Exit codes"));
}

/// kubectl calls `kubectl-dormer` for `kubectl dormer`.
#[test]
#[cfg(unix)]
fn as_a_plugin_it_speaks_of_kubectl() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-dormer");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dormer"), &plugin).unwrap();
    let output = Command::new(&plugin)
        .args(["retry", "--help"])
        .output()
        .unwrap();
    let help = text(&output.stdout);
    assert!(help.contains("Usage: kubectl dormer retry"), "{help}");
    assert!(
        help.contains("waits for the next attempt of a step. It needs no lease."),
        "{help}"
    );
}

/// kubectl asks a program of this name, with the words behind `kubectl dormer` up to the cursor.
#[test]
#[cfg(unix)]
fn kubectl_gets_completions_of_the_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("kubectl_complete-dormer");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dormer"), &program).unwrap();
    let offered = |words: &[&str]| {
        let output = Command::new(&program).args(words).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let commands = offered(&["wh"]);
    assert!(commands.lines().any(|it| it == "why"), "{commands}");
    assert!(!commands.contains("__complete"), "{commands}");
    for before in [
        &["-n", "x"][..],
        &["--context", "east", "--log-format", "json"],
    ] {
        let behind_flags = offered(&[before, &[""]].concat());
        assert!(
            behind_flags.lines().any(|it| it == "why"),
            "{before:?}: {behind_flags}"
        );
    }
    let of_value = offered(&["--context", ""]);
    assert!(!of_value.lines().any(|it| it == "why"), "{of_value}");
    let states = offered(&["get", "machines", "--state", "Fa"]);
    assert_eq!(states.trim(), "Failed");
}

#[test]
fn a_closed_pipe_ends_a_command_silently() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args([
            "bench",
            "engine",
            "--store",
            "memory",
            "--in-flight",
            "1",
            "--seconds",
            "1",
        ])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_demonstration_whose_reader_goes_leaves_nothing_behind() {
    use std::io::{BufRead as _, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args([
            "demo",
            "--faults",
            "none",
            "--machines",
            "1",
            "--speed",
            "2000",
        ])
        .env("TMPDIR", folder.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Like `dormer demo 2>&1 | head -1`: the next line has no reader.
    drop(child.stdout.take());
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    said.read_line(&mut first).unwrap();
    assert!(first.contains("being created"), "{first}");
    drop(said);
    assert_eq!(child.wait().unwrap().code(), Some(141));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_demonstration_that_a_person_ends_says_so_by_its_exit_status() {
    use std::io::{BufRead as _, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args(["demo", "--faults", "dead", "--machines", "1"])
        .env("TMPDIR", folder.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = said.next().unwrap().unwrap();
    assert!(first.contains("being created"), "{first}");
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(sent.unwrap().success());
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    let end = rest
        .iter()
        .filter(|line| line.contains("interrupted by SIGINT"));
    assert_eq!(end.count(), 1, "{rest:?}");
}

#[test]
fn the_version_names_the_build_and_every_format_that_outlives_it() {
    let output = dormer(&["version", "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(
        version["target"]
            .as_str()
            .unwrap()
            .starts_with(std::env::consts::ARCH)
    );
    let schemas = version["schemas"].as_object().unwrap();
    let formats = [
        "convergeDocument",
        "dump",
        "embeddedStore",
        "envelope",
        "export",
        "workflows",
    ];
    assert_eq!(schemas.keys().collect::<Vec<_>>(), formats);
    assert!(schemas.values().all(|number| number.as_u64() > Some(0)));
    let people = text(&dormer(&["version"]).stdout);
    assert_eq!(people, text(&dormer(&["--version"]).stdout));
    let first = format!("dormer {}\ncommit: ", env!("CARGO_PKG_VERSION"));
    assert!(people.starts_with(&first), "{people}");
    // A build from a repository names its commit; one from an archive cannot.
    if std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(".git")
        .exists()
    {
        let commit = people.lines().nth(1).unwrap_or_default();
        let commit = commit.trim_start_matches("commit: ");
        let hex = commit.bytes().all(|it| it.is_ascii_hexdigit());
        assert!(hex && commit.len() >= 40, "{people}");
    }
    let short = text(&dormer(&["-V"]).stdout);
    assert_eq!(short, format!("dormer {}\n", env!("CARGO_PKG_VERSION")));
}
