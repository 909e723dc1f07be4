//! `GET /metrics` of a dormer that brought a fleet up, retried a machine and upgraded all: its numbers compared with
//! the facts.

use dormer_testkit::{Process, ProcessSpec, await_condition, free_port, test_dir};
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const IN_TIME: Duration = Duration::from_secs(180);

/// The head and the body of a GET.
fn get(port: u16, path: &str) -> Option<(String, String)> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: dormer\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

/// A page in the exposition format, read strictly.
struct Page {
    kinds: BTreeMap<String, String>,
    units: BTreeMap<String, String>,
    /// Name with labels, as written, and the value.
    samples: BTreeMap<String, f64>,
}

impl Page {
    fn read(text: &str) -> Self {
        let (mut kinds, mut units, mut samples) =
            <(BTreeMap<_, _>, BTreeMap<_, _>, BTreeMap<_, _>)>::default();
        assert!(text.ends_with("# EOF\n"), "cut off");
        for line in text.lines().filter(|line| *line != "# EOF") {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words.as_slice() {
                ["#", "TYPE", name, kind] => {
                    let before = kinds.insert((*name).to_owned(), (*kind).to_owned());
                    assert_eq!(before, None, "{name} twice");
                }
                ["#", "UNIT", name, unit] => {
                    drop(units.insert((*name).to_owned(), (*unit).to_owned()))
                }
                ["#", "HELP", ..] => {}
                _ => {
                    let (name, value) = line.rsplit_once(' ').expect("a sample");
                    samples.insert(name.to_owned(), value.parse().expect("a number"));
                }
            }
        }
        Self {
            kinds,
            units,
            samples,
        }
    }

    /// The sum over every sample of this name that has all these labels.
    fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let of = |sample: &&String| {
            sample.split('{').next() == Some(name)
                && labels.iter().all(|label| sample.contains(label))
        };
        self.samples
            .iter()
            .filter(|(sample, _)| of(sample))
            .map(|(_, value)| value)
            .sum()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrape_counts_what_happened_and_names_no_machine() {
    dormer_testkit::full!();
    let folder = test_dir("metrics");
    let port = free_port();
    let flags = ["demo", "--machines", "3", "--json", "--hold", "--listen"];
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
    let mut demo = Process::start(&spec).expect("it starts");
    let mut outcome = serde_json::Value::Null;
    await_condition("the demonstration's end", IN_TIME, || {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let found = said
            .lines()
            .find_map(|line| serde_json::from_str(line).ok());
        outcome = found.unwrap_or_default();
        let held = said.contains("keeps running; Ctrl-C");
        async move { held }
    })
    .await;
    let (head, text) = get(port, "/metrics").expect("a page");
    demo.terminate().expect("it ends");
    assert!(head.contains("application/openmetrics-text"), "{head}");
    let page = Page::read(&text);

    // Names, kinds and units.
    for (name, kind) in &page.kinds {
        assert!(name.starts_with("dormer_"), "{name}");
        assert!(
            ["counter", "gauge", "histogram"].contains(&kind.as_str()),
            "{name} {kind}"
        );
        for unit in ["seconds", "bytes"] {
            let has = name.ends_with(&format!("_{unit}"));
            assert_eq!(
                page.units.get(name).is_some_and(|of| of == unit),
                has,
                "{name}"
            );
        }
    }

    // No machine's name, however many machines there are.
    for word in [
        "win-",
        "winworker",
        "machine/",
        "10.",
        "127.0.0.1",
        "uid",
        "demo",
    ] {
        let named = page
            .samples
            .keys()
            .find(|sample| sample.contains(&format!("\"{word}")));
        assert_eq!(named, None);
    }
    assert!(page.samples.len() < 2_000, "{}", page.samples.len());

    // What the simulated world saw is what dormer counted.
    let number = |key: &str| outcome[key].as_f64().expect("a number");
    let bring_ups = page.sum(
        "dormer_episode_duration_seconds_count",
        &["\"bring-up\"", "\"joined\""],
    );
    assert_eq!(bring_ups, number("bring_ups"));
    let upgrades = page.sum("dormer_episode_duration_seconds_count", &["\"upgrade\""]);
    assert_eq!(upgrades, number("upgraded"));
    let commands = page.sum("dormer_remote_commands_total", &[]);
    assert_eq!(
        commands,
        (number("remote_commands_per_node") * bring_ups).round()
    );
    assert_eq!(
        page.sum("dormer_transitions_total", &["\"Failed\""]) >= 1.0,
        number("failed_then_retried") >= 1.0
    );
    assert_eq!(
        page.sum("dormer_machines", &["\"Joined\"", "\"serving\""]),
        number("machines")
    );
    assert_eq!(
        page.sum("dormer_lease_hold_duration_seconds_count", &[]),
        number("upgraded")
    );

    // What engine and worker say of the same attempts agrees.
    let engine = page.sum("dormer_task_attempts_total", &[]);
    let worker = page.sum("dormer_attempt_duration_seconds_count", &[]);
    assert_eq!(engine, worker);
    assert_eq!(
        page.sum("dormer_task_failures_total", &[]),
        page.sum("dormer_task_attempts_total", &["\"failed\""])
    );
    assert_eq!(
        page.sum("dormer_transitions_total", &[]),
        page.sum("dormer_store_appends_total", &["\"stored\""])
    );
    let rounds = page.sum("dormer_store_append_duration_seconds_count", &[]);
    assert!(rounds > 0.0 && rounds <= page.sum("dormer_store_appends_total", &[]));

    // How it stands, now that all is done.
    for (name, expected) in [
        ("dormer_task_queue_length", 0.0),
        ("dormer_worker_attempts_running", 0.0),
        ("dormer_dead_letters", 0.0),
        ("dormer_store_up", 1.0),
        ("dormer_watcher_elected", 1.0),
        ("dormer_rollout_slots", 0.0),
        ("dormer_rollout_members", 3.0),
        ("dormer_rollout_halted", 0.0),
        ("dormer_build_info", 1.0),
    ] {
        assert_eq!(page.sum(name, &[]), expected, "{name}");
    }
    assert!(page.sum("dormer_role_up", &[]) >= 4.0);
    assert!(page.sum("dormer_uploaded_bytes_total", &[]) > 0.0);
    assert!(page.sum("dormer_ssh_connections", &[]) >= 3.0);
}
