//! `dormer run` as separate processes against the simulated cluster: started, stopped, killed, split into roles and
//! upgraded.

use dormer_fleet::{Pace, World, WorldConfig, api::kinds, payload::write_example};
use dormer_testkit::{
    NatsOptions, NatsServer, Process, ProcessSpec, TempDir, await_condition, free_port, started,
    test_dir,
};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::{Duration, Instant},
};

/// A bring-up takes seconds; a busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(180);
/// Where WMCO's Secret with the key is, and so dormer's settings.
const NAMESPACE: &str = "dormer";

/// Simulated cluster, and dormer's settings for it.
struct Site {
    folder: TempDir,
    world: World,
    ssh_port: u16,
}

impl Site {
    async fn new(machines: u32) -> Self {
        let folder = test_dir("run");
        let ssh_port = free_port();
        let pace = Pace::times_faster(20.0);
        let config = WorldConfig {
            ssh_port,
            ..WorldConfig::on_loopback(machines, pace)
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
        let site = Self {
            folder,
            world,
            ssh_port,
        };
        site.install("11.0.0");
        site
    }

    /// Puts a payload beside those that are there.
    fn install(&self, version: &str) {
        let folder = self.folder.path().join("payloads").join(version);
        write_example(&folder, version).expect("a payload");
    }

    /// Starts `dormer run`; by default on a store in the site's folder.
    fn dormer(&self, more: &[(&str, &str)]) -> Dormer {
        let port = free_port();
        let path = |name: &str| self.folder.path().join(name);
        // An engine has no way to the cluster, and needs none.
        let alone = more.contains(&("--role", "engine"));
        let kubeconfig = if alone { "not-there" } else { "kubeconfig" };
        let mut flags = vec![
            ("--kubeconfig", path(kubeconfig).display().to_string()),
            ("--payload", path("payloads").display().to_string()),
            ("--host-program", crate::host_program(self.folder.path())),
            ("--ssh-port", self.ssh_port.to_string()),
            ("--listen", format!("127.0.0.1:{port}")),
        ];
        flags.extend(
            more.iter()
                .map(|(flag, value)| (*flag, (*value).to_owned())),
        );
        if !more.iter().any(|(flag, _)| *flag == "--store") {
            flags.push(("--store", path("store").display().to_string()));
        }
        let flags = flags
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .chain(["--payload-unsigned".to_owned()]);
        let spec = ProcessSpec {
            program: env!("CARGO_BIN_EXE_dormer").into(),
            args: std::iter::once("run".to_owned()).chain(flags).collect(),
            env: Vec::new(),
            log: path(&format!("log-{port}")),
            folder: None,
        };
        Dormer {
            process: Process::start(&spec).expect("dormer starts"),
            port,
        }
    }

    /// `dormer store WHAT` on a folder: whether it succeeded, and what it said.
    fn store(&self, what: &str, folder: &str, more: &[&str]) -> (bool, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
            .args(["store", what, "--store"])
            .arg(self.folder.path().join(folder))
            .args(more)
            .output()
            .expect("dormer runs");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    /// Windows nodes that are ready, schedulable, and carry a version that begins so.
    fn served(&self, version: &str) -> Vec<Value> {
        let serves = |node: &Value| {
            let conditions = node["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
            let ours = node["metadata"]["annotations"]["dormer.io/version"].as_str();
            ours.is_some_and(|ours| ours.starts_with(version))
                && conditions.iter().any(ready)
                && node["spec"]["unschedulable"] != true
        };
        let nodes = self
            .world
            .all(&kinds::NODE)
            .into_iter()
            .map(|node| node.value.clone());
        nodes.filter(serves).collect()
    }

    async fn await_served(&self, count: usize, version: &str, dormers: &[&Dormer]) {
        let deadline = Instant::now() + IN_TIME;
        await_condition(
            "nodes that serve",
            IN_TIME + Duration::from_secs(5),
            || async {
                let done = self.served(version).len() == count;
                let logs = || dormers.iter().map(|dormer| dormer.process.log_tail());
                assert!(
                    done || Instant::now() < deadline,
                    "no {count} nodes at {version}:\n{}",
                    logs().collect::<Vec<_>>().join("\n---\n")
                );
                done
            },
        )
        .await;
    }
}

/// A process of `dormer run`, which ends with the test.
struct Dormer {
    process: Process,
    port: u16,
}

impl Dormer {
    async fn ready(&self) {
        await_condition("readiness", IN_TIME, || async {
            get(self.port, "/readyz").is_some_and(|(status, _)| status == 200)
        })
        .await;
    }
}

/// The status of a GET, and its body.
fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text.split_once("\r\n\r\n")?.1.to_owned()))
}

fn uids(nodes: &[Value]) -> Vec<Value> {
    nodes
        .iter()
        .map(|node| node["metadata"]["uid"].clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_become_nodes_and_a_second_start_changes_nothing() {
    dormer_testkit::full!();
    let site = Site::new(2).await;
    let mut dormer = site.dormer(&[]);
    dormer.ready().await;
    site.await_served(2, "11.0.0-", &[&dormer]).await;
    let (status, roles) = get(dormer.port, "/healthz").expect("an answer");
    assert_eq!(status, 200, "{roles}");
    await_condition("the console to show both", IN_TIME, || async {
        let (status, machines) = get(dormer.port, "/api/v1/machines").expect("an answer");
        assert_eq!(status, 200, "{machines}");
        machines.matches("\"Joined\"").count() == 2
    })
    .await;
    dormer.process.terminate().expect("it ends");

    let nodes = site.served("");
    let converges = site.world.record.converges();
    let mut dormer = site.dormer(&[]);
    dormer.ready().await;
    assert_eq!(uids(&site.served("")), uids(&nodes), "the same nodes serve");
    assert_eq!(
        site.world.record.converges(),
        converges,
        "nothing was converged again"
    );
    let dump = site.folder.path().join("dump");
    let (in_use, said) = site.store("dump", "store", &["--to", &dump.display().to_string()]);
    assert!(!in_use && said.contains("in use by another"), "{said}");
    dormer.process.terminate().expect("it ends");
    dumped_and_restored(&site, &dump.display().to_string());

    let restored = site.folder.path().join("again").display().to_string();
    let mut dormer = site.dormer(&[("--store", &restored)]);
    dormer.ready().await;
    await_condition("the restored store to show both", IN_TIME, || async {
        let (_, machines) = get(dormer.port, "/api/v1/machines").expect("an answer");
        machines.matches("\"Joined\"").count() == 2
    })
    .await;
    assert_eq!(uids(&site.served("")), uids(&nodes), "the same nodes serve");
    assert_eq!(
        site.world.record.converges(),
        converges,
        "nothing was converged for the restore"
    );
    dormer.process.terminate().expect("it ends");
}

/// What was dumped is what is restored; half a dump is none.
fn dumped_and_restored(site: &Site, dump: &str) {
    let (clean, counted) = site.store("check", "store", &[]);
    assert!(clean && counted.ends_with(" 0 faults\n"), "{counted}");
    let (dumped, said) = site.store("dump", "store", &["--to", dump]);
    assert!(dumped, "{said}");
    let (restored, said) = site.store("restore", "again", &["--from", dump]);
    assert!(restored, "{said}");
    assert_eq!(site.store("check", "again", &[]), (true, counted));
    let whole = std::fs::read(dump).expect("a dump");
    std::fs::write(dump, &whole[..whole.len() / 2]).expect("cut");
    let (restored, said) = site.store("restore", "half", &["--from", dump]);
    assert!(!restored && said.contains("of the dump"), "{said}");
    assert!(!site.store("check", "half", &[]).0, "there is no store");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_it_goes_on_and_an_upgrade_passes_one_at_a_time() {
    dormer_testkit::full!();
    let site = Site::new(3).await;
    for kill_after in [2, 4] {
        let mut dormer = site.dormer(&[]);
        dormer.ready().await;
        let record = &site.world.record;
        let before = Instant::now();
        await_condition("some work", IN_TIME, || async {
            before.elapsed() > Duration::from_secs(kill_after) || !record.converges().is_empty()
        })
        .await;
        dormer.process.kill();
    }
    let mut dormer = site.dormer(&[]);
    site.await_served(3, "11.0.0-", &[&dormer]).await;
    site.world.record.reset_max_unavailable();
    site.install("11.1.0");
    site.await_served(3, "11.1.0-", &[&dormer]).await;
    assert_eq!(
        site.world.record.max_unavailable_observed(),
        1,
        "one node at a time"
    );
    dormer.process.terminate().expect("it ends");
}

/// Engines and workers report what they did; processes that read the store report states.
fn each_role_shows_its_own_metrics(engine: &Dormer, watcher: &Dormer, worker: &Dormer) {
    let shown = |of: &Dormer| get(of.port, "/metrics").expect("metrics").1;
    let engine = shown(engine);
    let watcher = shown(watcher);
    let worker = shown(worker);
    for (name, of_engine, of_watcher, of_worker) in [
        ("dormer_transitions_total{", true, false, false),
        ("dormer_machines{", true, false, false),
        ("dormer_rollout_members{", true, false, false),
        ("dormer_watcher_elected{", false, true, false),
        ("dormer_attempt_duration_seconds_count{", false, false, true),
        ("dormer_remote_commands_total{", false, false, true),
        ("dormer_build_info{", true, true, true),
    ] {
        let has = [&engine, &watcher, &worker].map(|page| page.contains(name));
        assert_eq!(has, [of_engine, of_watcher, of_worker], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_that_starts_before_any_engine_says_so_and_waits() {
    let server = started!(NatsServer::start(NatsOptions {
        sync_always: true,
        monitor: true,
        ..NatsOptions::default()
    }));
    let site = Site::new(1).await;
    let url = server.url();
    let monitor = server.monitor_url().expect("a page");
    let role = |role| {
        [
            ("--store", &*url),
            ("--nats-monitor", &*monitor),
            ("--role", role),
        ]
    };
    let mut console = site.dormer(&role("console"));
    await_condition("the console's probe", IN_TIME, || async {
        let said = get(console.port, "/readyz");
        said.is_some_and(|(status, text)| {
            status == 503 && text.contains("no engine has made the store yet")
        })
    })
    .await;
    let alive = get(console.port, "/healthz").map(|(status, _)| status);
    assert_eq!(alive, Some(200), "nothing restarts it");
    let engine = site.dormer(&role("engine"));
    engine.ready().await;
    console.ready().await;
    let pools = get(console.port, "/api/v1/pools").map(|(status, _)| status);
    assert_eq!(pools, Some(200));
    console.process.terminate().expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_split_over_processes_meet_on_nats_and_a_worker_that_is_killed_is_no_loss() {
    dormer_testkit::full!();
    let server = started!(NatsServer::start(NatsOptions {
        sync_always: true,
        monitor: true,
        ..NatsOptions::default()
    }));
    let site = Site::new(2).await;
    let url = server.url();
    let monitor = server.monitor_url().expect("a page");
    let role = |role| {
        [
            ("--store", &*url),
            ("--nats-monitor", &*monitor),
            ("--role", role),
        ]
    };
    let mut engines = [
        site.dormer(&role("engine")),
        site.dormer(&role("engine,console")),
    ];
    for engine in &engines {
        engine.ready().await;
    }
    let mut watchers = [site.dormer(&role("watcher")), site.dormer(&role("watcher"))];
    let approver = site.dormer(&role("approver"));
    let mut first = site.dormer(&role("worker"));
    await_condition("some work", IN_TIME, || async {
        !site.world.record.converges().is_empty()
    })
    .await;
    first.process.kill();
    let mut second = site.dormer(&role("worker"));
    engines[0].process.kill();
    let all = [&engines[1], &watchers[0], &watchers[1], &second, &approver];
    site.await_served(2, "11.0.0-", &all).await;
    for watcher in &watchers {
        watcher.ready().await;
    }
    each_role_shows_its_own_metrics(&engines[1], &watchers[0], &second);
    for dormer in watchers.iter_mut().chain([&mut second, &mut engines[1]]) {
        dormer.process.terminate().expect("it ends");
    }
}
