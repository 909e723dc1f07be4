//! `dormer preflight --self-test` through real SSH: a simulated Windows host, other hosts, and hostile ones.

use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{Key, Part, User, WriteOptions, kinds, patch::PatchKind},
    host::Host,
    payload::write_example,
};
use dormer_host::ops::{self, Ask as _, Host as _};
use dormer_testkit::{
    KeyKind, Process, ProcessSpec, SshAgent, SshKey, Sshd, SshdOptions, TempDir, await_condition,
    free_port, started, test_dir,
};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

/// A boot takes seconds at this pace; a busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(120);

/// What one run of the command came to.
struct Ran {
    good: bool,
    said: String,
    report: Value,
}

impl Ran {
    /// Code of the step that failed, and its name.
    fn failed(&self) -> Option<(&str, &str)> {
        let steps = self.report["steps"].as_array()?;
        let step = steps.iter().find(|step| step["ok"] == false)?;
        Some((step["code"].as_str()?, step["name"].as_str()?))
    }
}

fn preflight(folder: &TempDir, host: &str, port: u16, key: &Path, more: &[&str]) -> Ran {
    let key = key.display().to_string();
    preflight_by(folder, host, port, &[&["--key", &key], more].concat())
}

fn preflight_by(folder: &TempDir, host: &str, port: u16, more: &[&str]) -> Ran {
    let out = folder.path().join("report.json");
    let _ = std::fs::remove_file(&out);
    let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args([
            "preflight",
            "--self-test",
            host,
            "--port",
            &port.to_string(),
        ])
        .arg("--host-program")
        .arg(crate::host_program(folder.path()))
        .arg("--out")
        .arg(&out)
        .args(more)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("dormer runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let report = std::fs::read_to_string(&out).unwrap_or_default();
    let report = serde_json::from_str(&report).unwrap_or_default();
    Ran {
        good: output.status.success(),
        said,
        report,
    }
}

/// The fingerprint that a first run shows, and asks for.
fn fingerprint(ran: &Ran) -> String {
    let at = ran
        .said
        .find("--host-key ")
        .unwrap_or_else(|| panic!("no fingerprint: {}", ran.said));
    let rest = &ran.said[at + "--host-key ".len()..];
    rest.split_whitespace()
        .next()
        .expect("a fingerprint")
        .to_owned()
}

/// A simulated host that is up.
struct Site {
    folder: TempDir,
    world: World,
    host: Arc<Host>,
    port: u16,
    key: PathBuf,
}

impl Site {
    async fn new(faults: &[&str]) -> Self {
        let folder = test_dir("preflight");
        let ssh_port = free_port();
        let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
        let config = WorldConfig {
            ssh_port,
            faults,
            ..WorldConfig::on_loopback(1, Pace::times_faster(50.0))
        };
        let world = World::start(config).await.expect("a world");
        let key = folder.path().join("key");
        std::fs::write(&key, &world.ssh_key.private_pem).expect("written");
        let hosts = || world.hosts.as_ref().expect("hosts").all();
        await_condition("a host", IN_TIME, || async { !hosts().is_empty() }).await;
        let host = hosts().pop().expect("a host");
        let up = || {
            let listens = std::net::TcpStream::connect((host.internal_ip(), ssh_port)).is_ok();
            listens && *host.watch_phase().borrow() == dormer_fleet::host::HostPhase::Up
        };
        await_condition("a host that is up", IN_TIME, || async { up() }).await;
        Self {
            folder,
            world,
            host,
            port: ssh_port,
            key,
        }
    }

    async fn run(&self, more: &[&str]) -> Ran {
        let address = self.host.internal_ip();
        // The simulated host needs this thread's runtime meanwhile.
        tokio::task::block_in_place(|| {
            preflight(&self.folder, &address, self.port, &self.key, more)
        })
    }

    /// Files that are there.
    fn files(&self) -> Vec<String> {
        self.host.state().disk.files().map(str::to_owned).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wmco_that_runs_in_the_cluster_is_named_and_one_that_does_not_is_mentioned() {
    dormer_testkit::full!();
    let site = Site::new(&[]).await;
    let user = site.host.image().user.clone();
    let print = fingerprint(&site.run(&["--user", &user]).await);
    let kubeconfig = site.folder.path().join("kubeconfig");
    let written = site.world.write_kubeconfig(&kubeconfig);
    written.expect("a kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("text");
    let more = [
        "--user",
        &user,
        "--host-key",
        &print,
        "--kubeconfig",
        kubeconfig,
    ];
    let ran = site.run(&more).await;
    assert!(ran.good, "{}", ran.said);
    assert!(ran.said.contains("no other operator"), "{}", ran.said);
    let deploy = |replicas: u32| {
        let namespace = format!("winc-{replicas}");
        let objects = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "windows-machine-config-operator", "namespace": namespace},
                "spec": {"replicas": replicas}}),
        ];
        for object in objects {
            site.world.create(object).expect("made");
        }
    };
    deploy(0);
    let ran = site.run(&more).await;
    assert!(ran.good, "{}", ran.said);
    assert!(ran.said.contains("Deployment winc-0/"), "{}", ran.said);
    deploy(1);
    let ran = site.run(&more).await;
    let failed = Some(("AnotherOperatorRuns", "look for another operator"));
    assert_eq!(ran.failed(), failed, "{}", ran.said);
    for part in ["Deployment winc-1/", "kubectl -n winc-1 scale"] {
        assert!(ran.said.contains(part), "{}", ran.said);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preflight_works_through_every_shell_and_leaves_nothing_on_the_host() {
    dormer_testkit::full!();
    for faults in [&[][..], &["shell-varies"], &["code-page-850"]] {
        let site = Site::new(faults).await;
        let files = site.files();
        let user = site.host.image().user.clone();
        let first = site.run(&["--user", &user]).await;
        assert_eq!(
            first.failed(),
            Some(("HostKeyUnknown", "check the host's key")),
            "{}",
            first.said
        );
        assert_eq!(
            site.host.counts().logins,
            0,
            "nobody logs in before the key is known"
        );
        let print = fingerprint(&first);
        let ran = site.run(&["--user", &user, "--host-key", &print]).await;
        assert!(ran.good, "{faults:?}: {}", ran.said);
        // As the simulated host calls its sshd, and docs/support.md knows it.
        assert!(
            ran.said
                .contains("OpenSSH 8.1: of Windows Server 2022 before its updates"),
            "{}",
            ran.said
        );
        assert_eq!(ran.failed(), None);
        let windows = &ran.report["windows"];
        assert!(
            windows["build"]
                .as_str()
                .is_some_and(|it| it.starts_with("10.0.")),
            "{windows}"
        );
        assert_eq!(windows["language"], "0409");
        let plan = &ran.report["plan"];
        assert!(
            plan["items"].as_u64() > Some(20) && plan["right"].as_u64() < plan["items"].as_u64()
        );
        let change = |id: &str| {
            plan["wouldChange"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|it| it["id"] == id)
        };
        assert!(
            change("service:kubelet") && change("service:containerd"),
            "{plan:#}"
        );
        assert!(
            !plan["missingFiles"].as_array().expect("files").is_empty(),
            "{plan:#}"
        );
        // Nothing stays, and nothing but uploads has happened.
        assert_eq!(site.files(), files, "{}", ran.said);
        let effects = site.host.counts().effects;
        assert!(
            effects.iter().all(|it| it.starts_with("upload ")),
            "{effects:?}"
        );
        assert_eq!(site.host.counts().unknown_commands, 0);
        // The report names no host.
        let name = site.host.state().hostname.clone();
        let address = site.host.internal_ip();
        for text in [ran.said, ran.report.to_string()] {
            assert!(!text.contains(&address) && !text.contains(&name), "{text}");
        }
    }
}

/// Names of the services on a host.
async fn services(host: &Arc<Host>) -> Vec<String> {
    let request = ops::OperationRequest {
        step: ops::Step::default(),
        operation: ops::ServiceList {}.operation(),
    };
    match host.interface().perform(request).await {
        Ok(ops::Answer::ServiceList(all)) => all.into_iter().map(|it| it.name).collect(),
        other => panic!("no list of services: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contracts_harmless_rows_run_on_a_host_are_recorded_and_leave_nothing() {
    dormer_testkit::full!();
    let site = Site::new(&["shell-varies"]).await;
    let files = site.files();
    let services_before = services(&site.host).await;
    let user = site.host.image().user.clone();
    let path = |name: &str| site.folder.path().join(name);
    let program = path("dormer-host-perform.exe");
    let record = path("host.jsonl");
    std::fs::write(&program, dormer_fleet::host::performing_stand_in()).expect("written");
    let text = |path: &Path| path.display().to_string();
    let program = text(&program);
    let recorded = text(&record);
    let more = [
        "--user",
        &user,
        "--perform-program",
        &program,
        "--record",
        &recorded,
    ];
    // Without a login no row runs, and the missing file is named.
    let ran = site.run(&more).await;
    let unwritten = format!("{recorded} was not written: no row of the contract ran");
    assert!(ran.said.contains(&unwritten), "{}", ran.said);
    assert!(!record.exists());
    let print = fingerprint(&ran);
    let ran = site
        .run(&[&more[..], &["--host-key", &print]].concat())
        .await;
    // A simulated host's locks hold no file back: tests/fleet/tests/host/contract.rs.
    let failed = Some(("ContractDiffers", "compare with dormer's model"));
    assert_eq!(ran.failed(), failed, "{}", ran.said);
    assert!(!ran.good);
    let contract = &ran.report["contract"];
    assert!(contract["held"].as_u64() > Some(100), "{contract:#}");
    let differs = contract["differs"].as_array().expect("a list");
    let row = "a file that somebody has open is not moved";
    let named = |it: &Value| it.as_str().is_some_and(|it| it.starts_with(row));
    assert!(differs.iter().any(named), "{contract:#}");
    assert!(ran.said.contains(&format!("DIFFERS {row}")), "{}", ran.said);
    assert_eq!(contract["cut"], false);
    assert_eq!(ran.report["scratchRemoved"], true);
    // The host is as before.
    let services_after = services(&site.host).await;
    assert_eq!((site.files(), services_after), (files, services_before));
    assert_eq!(site.host.counts().unknown_commands, 0);
    // What was recorded comes to the same results here, and the host's name is not in it.
    let text = std::fs::read_to_string(&record).expect("a recording");
    let name = site.host.state().hostname.clone();
    assert!(!text.contains(&name), "{name}");
    let lines = dormer_contract::recording::parse(&text).expect("a recording");
    let replaying = dormer_contract::recording::replay(&lines);
    let came = dormer_host::block_on(replaying).expect("replayed");
    assert_eq!((came.outdated, came.wrong), (Vec::new(), Vec::new()));
    let rows = ["held", "skipped", "differs"].map(|it| match &contract[it] {
        Value::Array(rows) => rows.len(),
        count => usize::try_from(count.as_u64().unwrap_or_default()).expect("a count"),
    });
    assert_eq!(
        came.same,
        rows.iter().sum::<usize>() + 1,
        "the probe as well"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_key_and_another_host_key_end_it_before_anything_is_written() {
    dormer_testkit::full!();
    let site = Site::new(&[]).await;
    let user = site.host.image().user.clone();
    let files = site.files();
    let print = fingerprint(&site.run(&["--user", &user]).await);
    let other = format!("SHA256:{}", "A".repeat(43));
    let ran = site.run(&["--user", &user, "--host-key", &other]).await;
    assert_eq!(
        ran.failed(),
        Some(("HostKeyUnknown", "check the host's key")),
        "{}",
        ran.said
    );
    assert!(
        ran.said.contains(&print) && ran.said.contains(&other),
        "both are named: {}",
        ran.said
    );
    let wrong = SshKey::make(site.folder.path(), "wrong", KeyKind::Ed25519).expect("made");
    let run = || {
        preflight(
            &site.folder,
            &site.host.internal_ip(),
            site.port,
            &wrong.path,
            &["--user", &user, "--host-key", &print],
        )
    };
    let ran = tokio::task::block_in_place(run);
    assert_eq!(
        ran.failed(),
        Some(("AuthRejected", "log in")),
        "{}",
        ran.said
    );
    assert!(!ran.good);
    assert_eq!((site.host.counts().logins, site.files()), (0, files));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_an_agent_opens_the_host_and_an_agent_without_it_is_named() {
    dormer_testkit::full!();
    let agent = started!(SshAgent::start());
    let site = Site::new(&[]).await;
    let user = site.host.image().user.clone();
    let print = fingerprint(&site.run(&["--user", &user]).await);
    let socket = agent.socket().display().to_string();
    let run = |more: &[&str]| {
        let login = [
            "--user",
            &user,
            "--host-key",
            &print,
            "--ssh-agent",
            &socket,
        ];
        let more = [&login[..], more].concat();
        let address = site.host.internal_ip();
        tokio::task::block_in_place(|| preflight_by(&site.folder, &address, site.port, &more))
    };
    let empty = run(&[]);
    assert!(
        !empty.good && empty.said.contains("shows no key"),
        "{}",
        empty.said
    );
    std::fs::set_permissions(
        &site.key,
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .expect("ssh-add wants that");
    agent.ssh_add(&[&site.key]).expect("added");
    let ran = run(&[]);
    assert!(ran.good, "{}", ran.said);
    let other = format!("SHA256:{}", "A".repeat(43));
    let absent = run(&["--ssh-agent-key", &other]);
    let says = format!("does not hold the key {other}");
    assert!(
        !absent.good && absent.said.contains(&says),
        "{}",
        absent.said
    );
}

/// A real sshd that is no Windows; `output` answers commands in its place.
fn elsewhere(output: &str) -> (TempDir, Ran) {
    let config = if output.is_empty() {
        String::new()
    } else {
        format!("ForceCommand {output}\n")
    };
    let folder = test_dir("preflight");
    let server = Sshd::start(&SshdOptions {
        config,
        ..SshdOptions::default()
    });
    let dormer_testkit::Start::Started(server) = server else {
        panic!("there was an sshd")
    };
    let user = Sshd::user();
    let key = server.key().path.clone();
    let run = |more: &[&str]| preflight(&folder, "127.0.0.1", server.port(), &key, more);
    let print = fingerprint(&run(&["--user", &user]));
    let ran = run(&["--user", &user, "--host-key", &print]);
    (folder, ran)
}

#[test]
fn what_is_no_windows_or_takes_no_program_is_named_and_left_as_it_is() {
    dormer_testkit::full!();
    drop(started!(Sshd::start(&SshdOptions::default())));
    let (_folder, ran) = elsewhere("");
    assert_eq!(
        ran.failed(),
        Some(("NotWindows", "detect Windows")),
        "{}",
        ran.said
    );
    let registry = "'    InstallLanguage    REG_SZ    0409'";
    let output =
        format!("case \"$SSH_ORIGINAL_COMMAND\" in reg.exe*) echo {registry};; *) exit 127;; esac");
    let (_folder, ran) = elsewhere(&output);
    assert_eq!(
        ran.failed(),
        Some(("SftpUnusable", "look for dormer's folder")),
        "{}",
        ran.said
    );
    assert_eq!(
        ran.report["written"].as_array().map(Vec::len),
        Some(0),
        "{}",
        ran.report
    );
}

/// One survey of the simulated cluster: exit code, and the codes of what was found.
fn survey_of(kubeconfig: &str, more: &[&str]) -> (Option<i32>, Vec<String>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args([
            "preflight",
            "--cluster",
            "-o",
            "json",
            "--kubeconfig",
            kubeconfig,
        ])
        .args(more)
        .output()
        .expect("dormer runs");
    let said =
        String::from_utf8_lossy(&[output.stdout.clone(), output.stderr].concat()).into_owned();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let found = report["findings"].as_array().cloned().unwrap_or_default();
    let code = |it: &Value| it["code"].as_str().unwrap_or_default().to_owned();
    (output.status.code(), found.iter().map(code).collect(), said)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_surveyed_and_each_planted_fault_is_found() {
    dormer_testkit::full!();
    let folder = test_dir("preflight-cluster");
    let world = World::start(WorldConfig::on_loopback(0, Pace::times_faster(50.0)))
        .await
        .expect("a world");
    let kubeconfig = folder.path().join("kubeconfig");
    world.write_kubeconfig(&kubeconfig).expect("a kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("text").to_owned();
    let survey = |more: &[&str]| tokio::task::block_in_place(|| survey_of(&kubeconfig, more));
    let (code, found, said) = survey(&[]);
    assert_eq!((code, found.as_slice()), (Some(0), &[][..]), "{said}");
    // More than one page of classes; that of Windows is the last by its name.
    for number in 0..500 {
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": format!("linux-{number}")}, "handler": "runc"});
        world.create(class).expect("made");
    }
    for object in [
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": "windows"}, "handler": "docker"}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "wmco"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "windows-instances", "namespace": "wmco"},
            "data": {"10.1.42.3:22": "username=Administrator"}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "windows-machine-config-operator", "namespace": "wmco"},
            "spec": {"replicas": 1}}),
        json!({"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineHealthCheck",
            "metadata": {"name": "windows", "namespace": "openshift-machine-api"},
            "spec": {"maxUnhealthy": 1, "selector": {"matchLabels": {"machine.openshift.io/os-id": "Windows"}},
                "unhealthyConditions": []}}),
        json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
            "metadata": {"name": "version"}, "status": {"desired": {"version": "4.6.8"}}}),
    ] {
        world.create(object).expect("made");
    }
    let (code, found, said) = survey(&[]);
    assert_eq!(code, Some(1), "{said}");
    let wanted = [
        "AnotherOperatorRuns",
        "OpenShiftUnsupported",
        "instance-address",
        "runtime-handler",
        "startup-timeout",
    ];
    for wanted in wanted {
        assert!(found.iter().any(|it| it == wanted), "{wanted}: {said}");
    }
    assert_eq!(found.len(), wanted.len(), "{said}");
    let (code, _, said) = survey(&["--as", "nonsense"]);
    assert!(
        code == Some(1) && said.contains("--as nonsense: "),
        "{said}"
    );
    // With another namespace there is no key.
    let (_, found, said) = survey(&["-n", "nowhere"]);
    assert!(found.iter().any(|it| it == "KeyAbsent"), "{said}");
}

/// dormer at work on a simulated cluster without machines.
fn runs_on(folder: &TempDir, kubeconfig: &str, port: u16) -> Process {
    let store = folder.path().join("store").display().to_string();
    let payloads = folder.path().join("payloads");
    write_example(&payloads.join("11.0.0"), "11.0.0").expect("a payload");
    let payloads = payloads.display().to_string();
    let listen = format!("127.0.0.1:{port}");
    let flags = [
        "--kubeconfig",
        kubeconfig,
        "--store",
        &store,
        "--listen",
        &listen,
        "--payload",
        &payloads,
        "--payload-unsigned",
    ];
    let process = Process::start(&ProcessSpec {
        program: env!("CARGO_BIN_EXE_dormer").into(),
        args: std::iter::once("run")
            .chain(flags)
            .map(str::to_owned)
            .collect(),
        env: Vec::new(),
        log: folder.path().join("log"),
        folder: None,
    });
    process.expect("dormer starts")
}

/// What `dormer status` shows of the cluster around.
fn status_of(port: u16) -> Option<Vec<String>> {
    let server = format!("http://127.0.0.1:{port}");
    let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args(["status", "-o", "json", "--server", &server])
        .output()
        .expect("dormer runs");
    let said: Value = serde_json::from_slice(&output.stdout).ok()?;
    let code = |it: &Value| it["code"].as_str().map(str::to_owned);
    Some(
        said["findings"]
            .as_array()?
            .iter()
            .filter_map(code)
            .collect(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_of_the_cluster_is_in_the_status_while_dormer_runs_and_lapses_when_it_is_mended() {
    dormer_testkit::full!();
    let folder = test_dir("findings");
    let world = World::start(WorldConfig::on_loopback(0, Pace::times_faster(50.0)))
        .await
        .expect("a world");
    let path = folder.path().join("kubeconfig");
    world.write_kubeconfig(&path).expect("a kubeconfig");
    let port = free_port();
    let mut process = runs_on(&folder, path.to_str().expect("text"), port);
    let within = Duration::from_secs(120);
    let shows = |wanted: &'static [&'static str]| {
        await_condition(
            wanted.first().unwrap_or(&"nothing"),
            within,
            move || async move {
                let found = tokio::task::block_in_place(|| status_of(port));
                found.is_some_and(|found| found == wanted)
            },
        )
    };
    shows(&[]).await;
    let check = json!({"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineHealthCheck",
        "metadata": {"name": "windows", "namespace": "openshift-machine-api"},
        "spec": {"maxUnhealthy": 1, "selector": {"matchLabels": {"machine.openshift.io/os-id": "Windows"}},
            "unhealthyConditions": []}});
    world.create(check).expect("made");
    shows(&["startup-timeout"]).await;
    let mends = json!({"spec": {"nodeStartupTimeout": "60m"}});
    let key = Key::new("openshift-machine-api", "windows");
    let kind = &kinds::MACHINE_HEALTH_CHECK;
    let how = (PatchKind::Merge, &mends);
    let user = User::admin();
    let options = WriteOptions::default();
    let patched = world
        .api
        .patch(&user, kind, &key, Part::Main, how, &options);
    patched.expect("mended");
    shows(&[]).await;
    process.terminate().expect("it ends");
}
