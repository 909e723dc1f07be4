//! Commands over the API of a running dormer, as a person on call uses them: find what is stuck, see why, mend it.

use dormer_fleet::{Pace, World, WorldConfig, payload::write_example};
use dormer_testkit::{Process, ProcessSpec, TempDir, await_some, free_port, test_dir};
use serde_json::{Value, json};
use std::{
    process::{Command, Output},
    time::Duration,
};

/// A bring-up takes seconds; a busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(180);
/// Where WMCO's Secret with the key is, and so dormer's settings.
const NAMESPACE: &str = "dormer";

/// A running dormer on a simulated cluster of two machines, of which one fails until it is retried.
struct Site {
    folder: TempDir,
    _world: World,
    dormer: Process,
    url: String,
}

impl Site {
    async fn new() -> Self {
        let folder = test_dir("api");
        let ssh_port = free_port();
        let port = free_port();
        let config = WorldConfig {
            ssh_port,
            faults: vec!["configure-fails=1".into()],
            ..WorldConfig::on_loopback(2, Pace::times_faster(20.0))
        };
        let world = World::start(config).await.expect("a world");
        world
            .write_kubeconfig(&folder.path().join("kubeconfig"))
            .expect("written");
        let settings = json!({
            "apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
            "metadata": {"name": "windows", "namespace": NAMESPACE},
            "spec": {"soak": "1s"},
        });
        world.create(settings).expect("settings of the pool");
        let payload = folder.path().join("payloads").join("11.0.0");
        write_example(&payload, "11.0.0").expect("a payload");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let flags = [
            ("--kubeconfig", path("kubeconfig")),
            ("--payload", path("payloads")),
            ("--store", path("store")),
            ("--host-program", crate::host_program(folder.path())),
            ("--ssh-port", ssh_port.to_string()),
            ("--listen", format!("127.0.0.1:{port}")),
        ];
        let flags = flags
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .chain(["--payload-unsigned".to_owned()]);
        let spec = ProcessSpec {
            program: env!("CARGO_BIN_EXE_dormer").into(),
            args: std::iter::once("run".to_owned()).chain(flags).collect(),
            env: Vec::new(),
            log: folder.path().join("log"),
            folder: None,
        };
        let dormer = Process::start(&spec).expect("dormer starts");
        let url = format!("http://127.0.0.1:{port}");
        Self {
            folder,
            _world: world,
            dormer,
            url,
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        asked(&self.url, arguments)
    }

    /// What bash offers for the last word of a command.
    fn completed(&self, words: &[&str]) -> Vec<String> {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_dormer"));
        let folder = program.parent().expect("a folder").display();
        let script = text(&self.run(&["completions", "bash"]).stdout);
        let last = words.len();
        let script = format!(
            "{script}\nCOMP_WORDS=(dormer \"$@\")\nCOMP_CWORD={last}\n\
             _dormer_with_names dormer \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let path = std::env::var("PATH").unwrap_or_default();
        let file = self.folder.path().join("completed.bash");
        std::fs::write(&file, script).expect("written");
        let output = Command::new("bash")
            .arg("--norc")
            .arg(&file)
            .args(words)
            .env("PATH", format!("{folder}:{path}"))
            .env("DORMER_SERVER", &self.url)
            .output()
            .expect("bash runs");
        text(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// What a command prints.
    fn say(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = text(&output.stdout);
        assert!(
            output.status.success(),
            "{arguments:?}: {said}{}",
            text(&output.stderr)
        );
        said
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&self.say(&arguments)).expect("JSON")
    }

    /// The first machine of which `is` holds, once there is one.
    async fn await_machine(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        await_some(what, IN_TIME, || async {
            let output = self.run(&["get", "machines", "-o", "json"]);
            let machines: Vec<Value> = serde_json::from_slice(&output.stdout).ok()?;
            machines.into_iter().find(&is)
        })
        .await
    }
}

fn asked(url: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormer"));
    let command = command
        .args(arguments)
        .env("DORMER_SERVER", url)
        .env("USER", "ada");
    command.output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_machine_that_is_stuck_is_found_understood_and_mended() {
    dormer_testkit::full!();
    let mut site = Site::new().await;
    let failed = site
        .await_machine("a failure", |machine| machine["state"] == "Failed")
        .await;
    for field in [
        "name",
        "namespace",
        "uid",
        "state",
        "reason",
        "waitingFor",
        "version",
        "desiredVersion",
        "attempt",
        "since",
        "node",
        "address",
        "pool",
        "run",
    ] {
        assert!(
            failed.get(field).is_some(),
            "{field} is missing in {failed}"
        );
    }
    let name = failed["name"].as_str().expect("a name");

    let listed = site.say(&["get", "machines", "--state", "failed"]);
    assert!(
        listed.contains(name) && listed.starts_with("NAME"),
        "{listed}"
    );
    assert_eq!(
        site.json(&["get", "machines", failed["uid"].as_str().unwrap()])["name"],
        name
    );
    let (begin, _) = name.split_at(name.len() - 3);
    assert_eq!(site.completed(&["why", begin]), [name]);
    assert_eq!(site.completed(&["recreate", "--ye"]), ["--yes"]);
    // bash breaks words at `:` and `=`.
    let port = site.url.rsplit(':').next().expect("a port");
    let server = ["--server", "http", ":", "//127.0.0.1", ":", port];
    let before = [&server[..], &["why", begin]].concat();
    assert_eq!(site.completed(&before), [name]);
    let states = site.completed(&["get", "machines", "--state", "=", "stu"]);
    assert_eq!(states, ["stuck"]);
    // The value of a connection flag may be called like a command.
    assert_eq!(site.completed(&["--token", "demo", "why", begin]), [name]);
    let faults = site.completed(&["demo", "--faults", "disk-f"]);
    assert_eq!(faults, ["disk-full"]);
    // As kubectl: what is no object is not on standard output.
    for nothing in [
        &["get", "quarantine"][..],
        &["get", "machines", "--state", "recreated"],
    ] {
        let none = site.run(nothing);
        assert_eq!(text(&none.stdout), "", "{nothing:?}");
        assert!(
            text(&none.stderr).contains("No resources found."),
            "{none:?}"
        );
    }
    let why = site.say(&["why", name]);
    assert!(
        why.starts_with(&format!("{name} failed ")) && why.contains("\nState:   Failed since "),
        "{why}"
    );
    let command = format!("\n              dormer retry {name}\n");
    assert!(why.contains(&command), "on a line of its own: {why}");
    let steps = site.json(&["why", name])["do"].clone();
    assert_eq!(steps[1]["argv"], json!(["dormer", "retry", name]));
    let stuck = site.say(&["get", "machines", "--state", "stuck", "-o", "name"]);
    assert_eq!(stuck.trim_end(), format!("machine/{name}"));
    let status = site.say(&["status"]);
    assert!(
        status.starts_with("STUCK: 1 of ") && status.contains(name),
        "{status}"
    );
    let aborted = site.run(&["abort", name]);
    let said = text(&aborted.stderr);
    assert!(
        aborted.status.code() == Some(1) && said.contains("nothing to abort"),
        "{said}"
    );

    let left = site.run(&["retry", name, "--against", "1"]);
    assert_eq!(
        left.status.code(),
        Some(1),
        "it was not entered at record 1"
    );
    let retry = [
        "retry",
        name,
        "--why",
        "the disk has room again",
        "--id",
        "ticket-7",
    ];
    let answer = site.say(&retry);
    assert!(answer.starts_with(name), "{answer}");
    site.say(&retry);

    site.await_machine("the mended machine", |machine| {
        machine["name"] == name && machine["state"] == "Joined" && machine["waitingFor"].is_null()
    })
    .await;
    let story = site.say(&["history", name]);
    assert_eq!(
        story.matches("the disk has room again").count(),
        1,
        "once: {story}"
    );
    assert!(story.contains("ada asked: retry"), "{story}");
    assert!(story.contains("Failed"), "{story}");
    let records = site.json(&["history", name, "--from", "2", "--limit", "3"]);
    let seqs: Vec<_> = records
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["seq"].clone())
        .collect();
    assert_eq!(seqs, [2, 3, 4]);
    assert!(
        site.say(&["describe", "machine", name])
            .contains("Desired version:")
    );

    let secret = "hunter2-in-a-reason";
    let reason = format!("a freeze; the password is {secret}");
    site.say(&["pause", "--pool", "windows", "--why", &reason]);
    let rollout = site.json(&["get", "rollouts", "windows"]);
    assert!(
        rollout["paused"]
            .as_str()
            .is_some_and(|by| by.contains("ada")),
        "{rollout}"
    );
    assert_eq!(
        site.json(&["get", "rollouts"]).as_array().map(Vec::len),
        Some(1)
    );
    let bundle = site
        .folder
        .path()
        .join("bundle.tar.gz")
        .display()
        .to_string();
    let said = site.say(&["support-bundle", "--to", &bundle]);
    assert!(
        said.starts_with("wrote ") && said.contains(" files to "),
        "{said}"
    );
    let file = std::fs::File::open(&bundle).expect("a bundle");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let mut whole = String::new();
    let mut count = 0;
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        std::io::Read::read_to_string(&mut entry, &mut whole).expect("text");
        count += 1;
    }
    assert!(
        said.starts_with(&format!("wrote {count} files to ")),
        "{said}"
    );
    let streamed = site.run(&["support-bundle", "--to", "-"]);
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&streamed.stdout[..]));
    assert_eq!(archive.entries().expect("entries").count(), count);
    assert!(!std::path::Path::new("-").exists());
    assert!(
        whole.contains("a freeze") && !whole.contains(secret),
        "{whole}"
    );
    site.say(&["resume", "--pool", "windows"]);
    site.say(&["get", "tasks"]);
    assert!(
        site.say(&["get", "runs", "-o", "yaml"])
            .contains("run: rollout/windows")
    );
    assert_eq!(site.json(&["dead-letters", "list"]), json!([]));
    site.dormer.terminate().expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_done_is_said_with_an_exit_code_of_its_own() {
    dormer_testkit::full!();
    let mut site = Site::new().await;
    let machine = site.await_machine("a machine", |_| true).await;
    let name = machine["name"].as_str().expect("a name");
    let code = |arguments: &[&str]| {
        let output = site.run(arguments);
        (output.status.code().unwrap_or(-1), text(&output.stderr))
    };
    let (missing, said) = code(&["why", "nobody"]);
    assert!(
        missing == 3 && said.contains("dormer get machines"),
        "{missing}: {said}"
    );
    let (dangerous, said) = code(&["recreate", name]);
    assert!(
        dangerous == 2 && said.contains("--yes"),
        "{dangerous}: {said}"
    );
    let (unknown, said) = code(&["get", "planets"]);
    assert!(
        unknown == 2 && said.contains("machines"),
        "{unknown}: {said}"
    );
    let (misspelt, said) = code(&["get", "machines", "--state", "failled"]);
    assert!(
        misspelt == 2 && said.contains("did you mean Failed?") && said.contains("stuck"),
        "{misspelt}: {said}"
    );
    let (nowhere, said) = code(&["get", "machines", "--pool", "nope"]);
    assert!(
        nowhere == 3 && said.contains("windows"),
        "{nowhere}: {said}"
    );
    let mistyped = format!("{}x", &name[..name.len() - 1]);
    let unknown: &[(&[&str], i32, &[&str])] = &[
        (
            &["get", "pools", "nope"],
            3,
            &["there is no pool \"nope\"", "there are: windows"],
        ),
        (&["get", "pools", "windwos"], 3, &["did you mean windows?"]),
        (
            &["get", "rollouts", "nope"],
            3,
            &["there is no rollout \"nope\"", "windows"],
        ),
        (
            &["pause", "--pool", "nope"],
            3,
            &[
                "--pool nope: there is no such pool",
                "the pools are: windows",
            ],
        ),
        (
            &["pause", "windows"],
            2,
            &["windows is a pool and no machine: dormer pause --pool windows"],
        ),
        (&["pause"], 2, &["-l KEY=VALUE, or give --pool POOL"]),
        (&["pause", "nope", "pool/windows"], 2, &["a pool alone"]),
        (
            &["get", "machines", "-l", "version=9.9"],
            0,
            &["no machine has"],
        ),
        (&["get", "machines", "--state", "held"], 0, &[]),
        (
            &["wait", "machines", "--all", "--timeout", "0"],
            1,
            &["dormer why "],
        ),
        (
            &["wait", name, "--for=condition=Ready"],
            2,
            &["--for=state=Joined"],
        ),
        (&["get", "pool/nope"], 3, &["there is no pool \"nope\""]),
        (
            &["history", "windows"],
            2,
            &["windows is a pool and no machine", "rollout/windows"],
        ),
        (&["get", "pool/windows"], 0, &[]),
        (&["describe", "pool/windows"], 0, &[]),
        (
            &["watch", "machine/nope"],
            3,
            &["there is no machine \"nope\""],
        ),
        (
            &["get", "machines", "-l", "pool=nope"],
            3,
            &["--pool nope: there is no such pool"],
        ),
        (
            &["reset", "rollout/windows", "--to", "99999", "--yes"],
            3,
            &["has the records 1 to "],
        ),
        (
            &["resume", "rollout/nope"],
            3,
            &["there is no pool \"nope\""],
        ),
        (
            &["rollback", "nope", "--to", "1.0.0", "--yes"],
            3,
            &["there is no pool \"nope\""],
        ),
        // What is impossible is said before anybody is asked to confirm it.
        (
            &["rollback", "windows", "--to", "10.9.9"],
            1,
            // The demonstration may have installed its next payload meanwhile.
            &["dormer rollback --pool windows shows"],
        ),
        (
            &["rollback", "--pool", "windows", "--end"],
            1,
            &[
                "no rollback is in force",
                "dormer rollback --pool windows shows",
            ],
        ),
        (
            &["plan", "--pool", "windwos"],
            3,
            &["there is no such pool", "did you mean windows?"],
        ),
        (
            &["describe", "rollout", "nope"],
            3,
            &["there is no rollout"],
        ),
        (&["history", "rollout/nope"], 3, &["there is no rollout"]),
        (&["watch", "rollouts", "nope"], 3, &["there is no rollout"]),
        (
            &["watch", "machines", "nope"],
            3,
            &["there is no machine \"nope\""],
        ),
        (
            &["get", "runs", "nope"],
            3,
            &["there is no run \"nope\"", "rollout/windows"],
        ),
        (&["get", "runs", name], 0, &[]),
        (&["get", "machines", &mistyped], 3, &["did you mean ", name]),
        (
            &["get", "quarantine", "nope"],
            3,
            &["nope is not quarantined"],
        ),
        (&["unquarantine", "nope"], 3, &["no run is quarantined"]),
        (
            &["retry", "--all-failed", "--pool", "windwos", "--yes"],
            3,
            &["did you mean windows?"],
        ),
        (
            &["status", "--pool", "windwos"],
            3,
            &["did you mean windows?"],
        ),
        (&["wait"], 2, &["--all, --pool POOL, --state STATE or -l"]),
        (&["retry"], 2, &["--all-failed, --pool POOL or -l"]),
        (
            &["retry", "--pool", "windwos"],
            3,
            &["did you mean windows?"],
        ),
        (&["wait", "--all", "--timeout", "0"], 1, &["dormer why "]),
        (
            &["wait", "--pool", "windwos"],
            3,
            &["did you mean windows?"],
        ),
        (
            &["get", "machines", "--sort-by", "nmae"],
            2,
            &["did you mean name?"],
        ),
    ];
    for (arguments, wanted, parts) in unknown {
        let (ended, said) = code(arguments);
        assert_eq!(ended, *wanted, "{arguments:?}: {said}");
        for part in *parts {
            assert!(said.contains(part), "{arguments:?}: {part}: {said}");
        }
    }
    // bash completes names of machines, also by their ends, and of pools.
    let end = name.rsplit_once('-').expect("a dash").1;
    assert_eq!(site.completed(&["logs", &end[..4]]), [end]);
    assert_eq!(site.completed(&["pause", "--pool", "win"]), ["windows"]);
    assert_eq!(
        site.completed(&["pause", "--pool", "=", "win"]),
        ["windows"]
    );
    assert_eq!(site.completed(&["rollback", ""]), ["windows"]);
    assert_eq!(site.completed(&["rollback", "--pool", ""]), ["windows"]);
    assert_eq!(
        site.completed(&["history", "rollout/"]),
        ["rollout/windows"]
    );
    let (none, said) = code(&["retry", "--all-failed", "--code", "nobody_has_it", "--yes"]);
    assert!(
        none == 1 && said.contains("nothing was done"),
        "{none}: {said}"
    );
    let (early, said) = code(&["approve", name]);
    assert!(early == 1 && said.contains("approv"), "{early}: {said}");
    let (dead, said) = code(&["dead-letters", "show", "77"]);
    assert!(
        dead == 3 && said.contains("dormer dead-letters list"),
        "{dead}: {said}"
    );
    let (kept, said) = code(&["reset", name, "--to-record", "4000", "--yes"]);
    assert!(
        kept == 3 && said.contains("has the records 1 to"),
        "{kept}: {said}"
    );
    let nobody = asked(
        &format!("http://127.0.0.1:{}", free_port()),
        &["get", "machines"],
    );
    assert_eq!(nobody.status.code(), Some(4), "{}", text(&nobody.stderr));
    assert!(
        text(&nobody.stderr).contains("DORMER_SERVER"),
        "{}",
        text(&nobody.stderr)
    );
    site.dormer.terminate().expect("it ends");
}
