//! The whole bring-up against a real Windows host, by one command:
//!
//! ```sh
//! DORMER_E2E_WINDOWS=Administrator@192.0.2.10 DORMER_E2E_WINDOWS_KEY=~/.ssh/windows \\
//!     DORMER_E2E_WINDOWS_PAYLOAD=/srv/payloads cargo test --test integration windows:: -- --nocapture
//! ```
//!
//! dormer's binary runs against the simulated API server, which listens where the host can reach it; the one Machine of
//! that cluster is the host. `DORMER_E2E_WINDOWS_PORT` is another port of SSH, `DORMER_E2E_WINDOWS_PROFILE` another
//! profile than `upstream`. The host stays configured. Without the variable that test is skipped, and says so; the same
//! code brings a simulated host up in the other one.

use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{Key, User, kinds},
    cluster::client::Client,
    host::{Hosts, Image, Reach},
    payload::write_example,
    world::{CloudAction, CloudError, HostCloud, HostContext, HostOrder, Instance},
};
use dormer_testkit::{Process, ProcessSpec, Skipped, TempDir, free_port, test_dir};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

const VARIABLE: &str = "DORMER_E2E_WINDOWS";
const NAMESPACE: &str = "dormer";
/// A real host installs a feature, reboots and takes 300 MB.
const REAL_MAX: Duration = Duration::from_secs(3_600);
const SIMULATED_MAX: Duration = Duration::from_secs(180);

/// A cloud of one computer, which was there before and stays.
struct Given {
    address: String,
}

impl Given {
    fn instance(&self, uid: &str) -> Instance {
        let address = ("InternalIP".to_owned(), self.address.clone());
        Instance {
            provider_id: format!("given:///{uid}"),
            addresses: vec![address],
        }
    }
}

impl HostCloud for Given {
    fn provision(&self, order: HostOrder) -> BoxFuture<'_, Result<Instance, CloudError>> {
        Box::pin(async move { Ok(self.instance(&order.uid)) })
    }

    fn delete<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn perform<'a>(&'a self, uid: &'a str, _: CloudAction) -> BoxFuture<'a, Option<Instance>> {
        Box::pin(async move { Some(self.instance(uid)) })
    }
}

/// What a bring-up needs.
struct Plan {
    listen: SocketAddr,
    ssh_port: u16,
    pace: Pace,
    /// The key; none: the simulated hosts' own.
    key: Option<String>,
    payload: PathBuf,
    /// `dormer-host.exe`; none: the simulated hosts' stand-in.
    host_program: Option<PathBuf>,
    profile: String,
    /// The host joins by a bootstrap token of its own.
    machine_tokens: bool,
    within: Duration,
}

/// A running dormer for one machine.
struct Site {
    folder: TempDir,
    process: Process,
    port: u16,
    world: World,
}

impl Site {
    async fn start<C: HostCloud>(plan: &Plan, cloud: impl FnOnce(HostContext) -> Arc<C>) -> Self {
        let folder = test_dir("windows");
        let config = WorldConfig {
            listen: Some(plan.listen),
            ssh_port: plan.ssh_port,
            linux: false,
            workload: false,
            ..WorldConfig::on_loopback(1, plan.pace)
        };
        let world = World::start_with(config, |context, _| cloud(context))
            .await
            .expect("a world");
        prepare(&world, plan).await;
        let kubeconfig = folder.path().join("kubeconfig");
        let port = free_port();
        world.write_kubeconfig(&kubeconfig).expect("written");
        let host_program = match &plan.host_program {
            Some(file) => file.display().to_string(),
            None => crate::host_program(folder.path()),
        };
        let args = [
            ("--kubeconfig", kubeconfig.display().to_string()),
            ("--host-program", host_program),
            ("--payload", plan.payload.display().to_string()),
            ("--ssh-port", plan.ssh_port.to_string()),
            ("--listen", format!("127.0.0.1:{port}")),
            ("--store", folder.path().join("store").display().to_string()),
        ];
        let args = args
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .chain(["--payload-unsigned".to_owned()]);
        let tokens = plan.machine_tokens.then(|| "--machine-tokens".to_owned());
        let process = Process::start(&ProcessSpec {
            program: env!("CARGO_BIN_EXE_dormer").into(),
            args: std::iter::once("run".to_owned())
                .chain(args)
                .chain(tokens)
                .collect(),
            env: Vec::new(),
            log: folder.path().join("log"),
            folder: None,
        });
        Self {
            folder,
            process: process.expect("dormer starts"),
            port,
            world,
        }
    }

    /// What a command says of the running dormer.
    fn says(&self, arguments: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
            .args(arguments)
            .args(["--server", &format!("http://127.0.0.1:{}", self.port)])
            .output()
            .expect("dormer runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn machine(&self) -> Value {
        let said = self.says(&["get", "machines", "-o", "json"]);
        let all: Value = serde_json::from_str(&said).unwrap_or_default();
        all.get(0).cloned().unwrap_or_default()
    }

    /// Follows the machine until it serves, and prints each of its steps.
    async fn joined(&self, within: Duration) {
        let began = Instant::now();
        let mut output = String::new();
        loop {
            let machine = self.machine();
            let word = |key: &str| machine[key].as_str().unwrap_or_default().to_owned();
            let now = format!("{} ({})", word("state"), word("phase"));
            if now != output {
                println!("{:5} s  {now}", began.elapsed().as_secs());
                output = now;
            }
            if word("state") == "Joined" {
                return;
            }
            let why = || self.says(&["why", &word("name")]);
            let log = || self.process.log_tail();
            let late = began.elapsed() > within;
            assert!(
                !late && word("state") != "Failed",
                "{output}\n{}\n{}",
                why(),
                log()
            );
            tokio::task::yield_now().await;
        }
    }
}

/// The key, a platform without rules of its own, and the pool's settings.
async fn prepare(world: &World, plan: &Plan) {
    let admin = Client::new(&world.api, User::admin());
    for (kind, name) in [
        (&kinds::INFRASTRUCTURE, "cluster"),
        (&kinds::SECRET, "cloud-private-key"),
    ] {
        let all = world.all(kind);
        let found = all
            .iter()
            .find(|object| object.value["metadata"]["name"] == name);
        let key = Key::of(&found.expect("a world with it").value);
        let patch = match (&plan.key, name) {
            (Some(pem), "cloud-private-key") => json!({"stringData": {"private-key.pem": pem}}),
            (Some(_), _) => {
                json!({"platform": "None", "platformStatus": {"type": "None"}})
            }
            (None, _) => continue,
        };
        let done = match name {
            "cluster" => admin.status(kind, &key, patch).await.map(drop),
            _ => admin.merge(kind, &key, &patch).await.map(drop),
        };
        done.unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
    }
    let settings = json!({
        "apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
        "metadata": {"name": "windows", "namespace": NAMESPACE},
        "spec": {"soak": "1s", "profile": plan.profile},
    });
    world.create(settings).expect("settings of the pool");
}

/// This computer's address as `host` sees it.
fn own_address(host: &str) -> IpAddr {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
    // Nothing is sent: it only chooses the way.
    socket
        .connect((host, 9))
        .unwrap_or_else(|why| panic!("no way to {host}: {why}"));
    socket.local_addr().expect("an address").ip()
}

fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn needed(name: &str) -> String {
    given(name).unwrap_or_else(|| panic!("{VARIABLE} needs {name}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_windows_host_becomes_a_node() {
    dormer_testkit::full!();
    let Some(target) = given(VARIABLE) else {
        let reason =
            format!("{VARIABLE}=Administrator@HOST names one; see the top of tests/windows.rs");
        dormer_testkit::skip!(Skipped {
            server: "Windows host".into(),
            reason
        });
    };
    let (user, host) = target.split_once('@').unwrap_or(("Administrator", &target));
    assert_eq!(user, "Administrator", "dormer logs in as Administrator");
    let key = std::fs::read_to_string(needed("DORMER_E2E_WINDOWS_KEY")).expect("the key");
    let port = given("DORMER_E2E_WINDOWS_PORT").map_or(22, |port| port.parse().expect("a port"));
    let program = dormer_testkit::host_program().map_err(|skipped| skipped.reason);
    let program = program.expect("dormer-host.exe, built here").program;
    let plan = Plan {
        listen: SocketAddr::new(own_address(host), 0),
        ssh_port: port,
        pace: Pace::LIFE,
        key: Some(key),
        payload: needed("DORMER_E2E_WINDOWS_PAYLOAD").into(),
        host_program: Some(program),
        machine_tokens: false,
        profile: given("DORMER_E2E_WINDOWS_PROFILE").unwrap_or_else(|| "upstream".into()),
        within: REAL_MAX,
    };
    let address = host.to_owned();
    let site = Site::start(&plan, |_| Arc::new(Given { address })).await;
    site.joined(plan.within).await;
    println!(
        "{}",
        site.says(&[
            "describe",
            "machine",
            site.machine()["name"].as_str().unwrap_or_default()
        ])
    );
}

/// A simulated host is brought up by the code that the real one is.
async fn a_simulated_host_comes_up(profile: &str, machine_tokens: bool) -> Site {
    let payloads = test_dir("windows-payload");
    write_example(&payloads.path().join("11.0.0"), "11.0.0").expect("a payload");
    let plan = Plan {
        listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
        ssh_port: free_port(),
        pace: Pace::times_faster(20.0),
        key: None,
        payload: payloads.path().to_owned(),
        host_program: None,
        profile: profile.into(),
        machine_tokens,
        within: SIMULATED_MAX,
    };
    let port = plan.ssh_port;
    let hosts = |context| {
        Arc::new(Hosts::new(
            context,
            Reach::Loopback { port },
            Image::default(),
        ))
    };
    let site = Site::start(&plan, hosts).await;
    site.joined(plan.within).await;
    assert_eq!(site.world.all(&kinds::NODE).len(), 1);
    assert!(site.folder.path().join("store").exists());
    site
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_code_brings_a_simulated_host_up() {
    dormer_testkit::full!();
    a_simulated_host_comes_up("openshift", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_host_joins_plain_kubernetes_by_a_token_of_its_own() {
    dormer_testkit::full!();
    let site = a_simulated_host_comes_up("upstream", true).await;
    let node = &site.world.all(&kinds::NODE)[0].value;
    let taints = node["spec"]["taints"].to_string();
    assert!(
        taints.contains(r#""value":"windows""#),
        "upstream's spelling: {taints}"
    );
    let csrs = site.world.all(&kinds::CSR);
    let by = |csr: &Value| {
        csr["spec"]["username"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let first = csrs
        .iter()
        .map(|csr| by(&csr.value))
        .find(|by| by.starts_with("system:bootstrap:"));
    let id = first.expect("a request by a bootstrap token")["system:bootstrap:".len()..].to_owned();
    let secrets = site.world.all(&kinds::SECRET);
    let name = format!("bootstrap-token-{id}");
    let left = secrets
        .iter()
        .filter(|secret| secret.value["metadata"]["name"] == name.as_str());
    assert_eq!(left.count(), 0, "it is deleted once the Node is there");
}
