//! `dormer plan` and `dormer profile render --machine` against a held demonstration: changes are shown before they are
//! made.

use dormer_profile::{
    payload::{MANIFEST_FILE, Manifest},
    render::EXAMPLE_PAYLOAD,
};
use dormer_testkit::{Process, ProcessSpec, TempDir, await_condition, free_port, test_dir};
use serde_json::Value;
use std::{
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

const IN_TIME: Duration = Duration::from_secs(180);

/// A demonstration that is over and held.
struct Held {
    folder: TempDir,
    demo: Process,
    url: String,
}

impl Held {
    async fn new() -> Self {
        let folder = test_dir("plan");
        let port = free_port();
        let flags = [
            "demo",
            "--machines",
            "2",
            "--faults",
            "none",
            "--json",
            "--hold",
            "--listen",
        ];
        let mut args: Vec<String> = flags.map(str::to_owned).to_vec();
        args.push(format!("127.0.0.1:{port}"));
        let log = folder.path().join("log");
        let spec = ProcessSpec {
            program: env!("CARGO_BIN_EXE_dormer").into(),
            args,
            env: Vec::new(),
            log: log.clone(),
            folder: None,
        };
        let demo = Process::start(&spec).expect("it starts");
        await_condition("the demonstration's end", IN_TIME, || {
            let held = std::fs::read_to_string(&log)
                .unwrap_or_default()
                .contains("keeps running; Ctrl-C");
            async move { held }
        })
        .await;
        Self {
            folder,
            demo,
            url: format!("http://127.0.0.1:{port}"),
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormer"));
        command
            .args(arguments)
            .env("DORMER_SERVER", &self.url)
            .output()
            .expect("it runs")
    }

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

    fn plan(&self, arguments: &[&str]) -> Vec<Value> {
        let all: Vec<&str> = ["plan", "-o", "json"]
            .into_iter()
            .chain(arguments.to_vec())
            .collect();
        let plan: Value = serde_json::from_str(&self.say(&all)).expect("JSON");
        plan["items"].as_array().expect("items").clone()
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, content).expect("written");
        path.display().to_string()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The items that would change on each of two machines, which change alike.
fn alike<'a>(plan: &'a [Value], class: &str) -> Vec<&'a str> {
    assert_eq!(plan.len(), 2, "{plan:?}");
    assert!(
        plan.iter().all(|machine| machine["class"] == class),
        "{plan:#?}"
    );
    assert_eq!(plan[0]["changes"], plan[1]["changes"]);
    let changes = plan[0]["changes"].as_array().expect("changes");
    changes
        .iter()
        .filter_map(|change| change["item"].as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_change_is_said_before_anything_is_changed() {
    dormer_testkit::full!();
    let held = Held::new().await;
    the_kubeconfig_comes_first(&held);
    assert_eq!(
        held.say(&["plan"]),
        "Nothing would change on any of 2 machines.\n"
    );

    // A layer: the highest class of what differs, and nothing beside it.
    let live = held.file("live.yaml", "host: {firewall: {mine: {port: 9999}}}");
    assert_eq!(
        alike(&held.plan(&["--profile", &live]), "live"),
        ["firewall:mine"]
    );
    let flag = held.file(
        "flag.yaml",
        "host: {services: {kubelet: {environment: {TEAM: blue}}}}",
    );
    let plan = held.plan(&["--profile", &flag]);
    assert_eq!(alike(&plan, "restart"), ["service:kubelet"]);
    assert_eq!(plan[0]["changes"][0]["detail"], "another environment");
    assert_eq!(plan[0]["how"], "with the lease: configured again, no drain");
    let said = held.say(&["plan", "--profile", &flag]);
    assert!(
        said.contains("restart  service:kubelet: another environment"),
        "{said}"
    );
    let wrong = held.file("wrong.yaml", "host: {hostname: '${NOPE}'}");
    let output = held.run(&["plan", "--profile", &wrong]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("host.hostname: there is no variable `NOPE`"));

    // A payload that is not installed: every binary is another, and an edge is missing or there.
    let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
    manifest.version = "11.2.0".into();
    let mut payload = |name: &str, may_follow: &str| {
        manifest.may_follow = vec![may_follow.into()];
        let path = held.file(
            &format!("{name}/{MANIFEST_FILE}"),
            &serde_json::to_string(&manifest).expect("json"),
        );
        path.strip_suffix(MANIFEST_FILE)
            .expect("a folder")
            .to_owned()
    };
    let skips = payload("skips", "10.9.0");
    let next = payload("next", "11.1.0");
    let plan = held.plan(&["--payload", &next]);
    let items = alike(&plan, "drain");
    assert!(items.contains(&"service:containerd"), "{items:?}");
    assert_eq!(
        plan[0]["how"],
        "with the lease: drained, its Machine replaced"
    );
    assert_eq!(plan[0]["notAllowed"], Value::Null);
    how_long_it_took(&held, &next, &plan);
    let plan = held.plan(&["--payload", &skips]);
    let why = plan[0]["notAllowed"].as_str().expect("no edge");
    assert!(
        why.contains("payload 11.2.0 may follow 10.9.0, not 11.1.0"),
        "{why}"
    );
    assert_eq!(
        held.say(&["plan"]),
        "Nothing would change on any of 2 machines.\n"
    );

    one_machine_is_rendered(&held);
    let mut demo = held.demo;
    demo.terminate().expect("it ends");
}

/// People need it while the demonstration runs.
fn the_kubeconfig_comes_first(held: &Held) {
    let said = std::fs::read_to_string(held.folder.path().join("log")).expect("a log");
    let place = |text: &str| {
        let found = said.find(text);
        found.unwrap_or_else(|| panic!("{text}: {said}"))
    };
    let outcome = place("\"upgraded\"");
    assert!(place("kubectl --kubeconfig ") < outcome, "{said}");
}

/// Every machine came up, and was replaced by an upgrade: each step was taken before, by it or by another.
fn how_long_it_took(held: &Held, payload: &str, plan: &[Value]) {
    for machine in plan {
        let steps = machine["steps"].as_array().expect("steps");
        let took = |step: &Value| step["tookMs"].as_u64();
        assert_eq!(machine["unknownSteps"], 0, "{machine:#}");
        assert_eq!(
            machine["expectedMs"].as_u64(),
            steps.iter().map(took).sum(),
            "{machine:#}"
        );
        let of = |name: &str| {
            steps
                .iter()
                .find(|step| step["phase"] == name)
                .expect("the step")
        };
        assert!(took(of("vanishing")) > Some(0), "{machine:#}");
        assert_ne!(
            of("evicting")["machine"],
            machine["name"],
            "another was drained: {machine:#}"
        );
        assert_eq!(of("converging-host")["machine"], machine["name"]);
    }
    let said = held.say(&["plan", "--payload", payload]);
    assert!(said.contains("EXPECTED"), "{said}");
    let output = "Last durations, with the lease: drained, its Machine replaced (2 machines):";
    assert!(
        said.contains(output) && said.contains("\n  converging the host: "),
        "{said}"
    );
    let said = held.say(&["plan", "--payload", payload, "-o", "wide"]);
    assert!(!said.contains("not known yet"), "{said}");
}

fn one_machine_is_rendered(held: &Held) {
    let machines: Value =
        serde_json::from_str(&held.say(&["get", "machines", "-o", "json"])).expect("JSON");
    let machine = &machines[0];
    let name = machine["name"].as_str().expect("a name");
    let said = held.say(&["profile", "render", "--machine", name, "-o", "json"]);
    let rendered: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(rendered["version"], machine["version"]);
    let address = machine["address"].as_str().expect("an address");
    assert!(
        rendered["host"]
            .to_string()
            .contains(&format!("--node-ip={address}")),
        "{rendered}"
    );
    assert!(
        rendered["host"]
            .to_string()
            .contains("${secret:bootstrap-kubeconfig}")
    );
    assert!(rendered["node"]["items"].is_array());
    let nobody = held.run(&["profile", "render", "--machine", "nobody"]);
    assert_eq!(nobody.status.code(), Some(3), "{}", text(&nobody.stderr));
}
