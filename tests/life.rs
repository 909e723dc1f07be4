//! Whole demonstration, followed from the command line: its changes, a trace, attempts, export and replay of a history,
//! and a reset to an earlier record.

use dormer_testkit::{Process, ProcessSpec, await_some, free_port, test_dir};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
    time::Duration,
};

/// The demonstration takes seconds; a busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(180);

struct Site {
    url: String,
}

impl Site {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormer"));
        command
            .args(arguments)
            .env("DORMER_SERVER", &self.url)
            .env("USER", "ada");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it runs")
    }

    fn say(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}{error}");
        said
    }

    fn machines(&self) -> Vec<Value> {
        let output = self.run(&["get", "machines", "-o", "json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_watched_traced_logged_exported_replayed_and_reset() {
    dormer_testkit::full!();
    let folder = test_dir("life");
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    // In place: the machine's run continues after its upgrade.
    let arguments = [
        "demo",
        "--machines",
        "1",
        "--faults",
        "none",
        "--strategy",
        "in-place",
    ];
    let arguments = [&arguments[..], &["--hold", "--listen", &listen]].concat();
    let spec = ProcessSpec {
        program: env!("CARGO_BIN_EXE_dormer").into(),
        args: arguments.iter().map(|it| (*it).to_owned()).collect(),
        env: Vec::new(),
        log: folder.path().join("log"),
        folder: None,
    };
    let _demo = Process::start(&spec).expect("it starts");
    let site = Site {
        url: format!("http://{listen}"),
    };
    await_some("a machine", IN_TIME, || async { site.machines().pop() }).await;

    // Output before the end: each change is one line of JSON.
    let mut watch = site.command(&["watch", "machines", "-o", "json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let served = lines.find_map(|line| {
        let change: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
        (change["phase"] == "serving").then_some(change)
    });
    let name = served.expect("it serves")["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    watch.kill().expect("it ends");
    watch.wait().expect("it has ended");

    let drawn = site.say(&["trace", &name, "--episode", "1", "--ascii", "--width", "20"]);
    assert!(drawn.starts_with("bring-up (record 1), "), "{drawn}");
    for row in [
        "Provisioned: probing",
        "converge-host",
        "#  ",
        "succeeded by worker demo",
    ] {
        assert!(drawn.contains(row), "{row}: {drawn}");
    }
    let output = site.say(&["logs", &name, "--task", "converge-host"]);
    assert!(
        output.contains("converge-host") && !output.contains("command probe"),
        "{output}"
    );
    assert!(output.contains("command apply host: exit 0"), "{output}");
    assert!(
        output.contains(r"changed directory:C:\k made") && !output.contains(r"C:\k\["),
        "{output}"
    );

    let file = folder.path().join("history.jsonl").display().to_string();
    let said = site.say(&["history", &name, "--export", &file]);
    assert!(said.contains("dormer replay"), "{said}");
    let replayed = site.say(&["replay", &file]);
    assert!(
        replayed.contains("this build decides everything as recorded"),
        "{replayed}"
    );

    let back = [
        "reset", &name, "--to", "3", "--why", "a test", "--id", "ticket-9",
    ];
    assert_eq!(
        site.run(&back).status.code(),
        Some(2),
        "nobody was asked, and nothing done"
    );
    for _ in 0..2 {
        let said = site.say(&[&back[..], &["--yes"]].concat());
        assert!(said.starts_with(&format!("{name}: ")), "{said}");
    }
    let story = site.say(&["history", &name]);
    let sentence = "ada reset the run to record 3 (“a test”)";
    assert_eq!(story.matches(sentence).count(), 1, "{story}");
}

/// The findings of the first round began with it: six machines that flap were all replaced at once.
#[test]
fn six_nodes_that_flap_are_taken_one_by_one() {
    dormer_testkit::full!();
    let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args([
            "demo",
            "--machines",
            "6",
            "--faults",
            "flapping=6",
            "--json",
        ])
        .env_remove("DORMER_HOST_PROGRAM")
        .output()
        .expect("dormer runs");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert_eq!(outcome["max_taken_observed"], 1, "{outcome} {log}");
    assert_eq!(outcome["upgraded"], 6, "{outcome} {log}");
    // The faults did take others.
    assert!(
        outcome["max_unavailable_observed"].as_u64() > Some(1),
        "{outcome}"
    );
    assert!(output.status.success(), "{outcome} {log}");
}
