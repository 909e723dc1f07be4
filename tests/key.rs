//! The key for Windows hosts: an unusable one is shown once as the thing that all machines wait for, until a usable key is
//! there; a new one takes its place while nodes serve.

use dormer_fleet::{Pace, World, WorldConfig, api::kinds, payload::write_example};
use dormer_testkit::{
    KeyKind, Process, ProcessSpec, SshAgent, SshKey, TempDir, await_condition, free_port, started,
    test_dir,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    time::Duration,
};

/// A bring-up takes seconds; a busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(180);
const NAMESPACE: &str = "dormer";
const SECRET: &str = "cloud-private-key";
const MACHINES: usize = 3;

struct Site {
    folder: TempDir,
    world: World,
    process: Process,
    port: u16,
    secrets: Api<Secret>,
    client: Client,
    ssh_port: u16,
}

/// What a site lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Key,
    Program,
    Nothing,
}

impl Site {
    /// dormer against a simulated cluster without the Secret.
    async fn without_key() -> Self {
        Self::without(Without::Key).await
    }

    async fn without(without: Without) -> Self {
        Self::with(without, &[]).await
    }

    /// The same with more flags.
    async fn with(without: Without, more: &[String]) -> Self {
        let folder = test_dir("key");
        let ssh_port = free_port();
        let port = free_port();
        let config = WorldConfig {
            ssh_port,
            ..WorldConfig::on_loopback(3, Pace::times_faster(20.0))
        };
        let world = World::start(config).await.expect("a world");
        let kubeconfig = folder.path().join("kubeconfig");
        world.write_kubeconfig(&kubeconfig).expect("written");
        let settings = json!({
            "apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
            "metadata": {"name": "windows", "namespace": NAMESPACE},
            "spec": {"soak": "1s"},
        });
        world.create(settings).expect("settings of the pool");
        let file = serde_json::from_value(world.kubeconfig()).expect("a kubeconfig");
        let client = kube::Config::from_custom_kubeconfig(file, &Default::default()).await;
        let client = Client::try_from(client.expect("a configuration")).expect("a client");
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        if without == Without::Key {
            let deleted = secrets.delete(SECRET, &DeleteParams::default()).await;
            deleted.expect("deleted");
        }
        let payload = folder.path().join("payloads").join("11.0.0");
        write_example(&payload, "11.0.0").expect("a payload");
        let args = [
            ("--kubeconfig", kubeconfig.display().to_string()),
            (
                "--payload",
                folder.path().join("payloads").display().to_string(),
            ),
            ("--ssh-port", ssh_port.to_string()),
            ("--listen", format!("127.0.0.1:{port}")),
            ("--store", folder.path().join("store").display().to_string()),
        ];
        let program = crate::host_program(folder.path());
        let program = (without != Without::Program).then_some(("--host-program", program));
        let args = args
            .into_iter()
            .chain(program)
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .chain(["--payload-unsigned".to_owned()])
            .chain(more.iter().cloned());
        let process = Process::start(&ProcessSpec {
            program: env!("CARGO_BIN_EXE_dormer").into(),
            args: std::iter::once("run".to_owned()).chain(args).collect(),
            env: Vec::new(),
            log: folder.path().join("log"),
            folder: None,
        });
        Self {
            folder,
            world,
            process: process.expect("dormer starts"),
            port,
            secrets,
            client,
            ssh_port,
        }
    }

    /// What a command says of the running dormer.
    fn says(&self, arguments: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
            .args(arguments)
            .args(["--server", &format!("http://127.0.0.1:{}", self.port)])
            .output()
            .expect("dormer runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn page(&self, path: &str) -> String {
        let mut answer = String::new();
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return answer;
        };
        let ask = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(ask.as_bytes());
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// Waits until `says(arguments)` contains `text`.
    async fn await_said(&self, arguments: &[&str], text: &str) -> String {
        let mut said = String::new();
        let deadline = std::time::Instant::now() + IN_TIME;
        loop {
            said.clone_from(&self.says(arguments));
            if said.contains(text) {
                return said;
            }
            let log = || self.process.log_tail();
            assert!(
                std::time::Instant::now() < deadline,
                "no {text:?} in:\n{said}\n{}",
                log()
            );
            tokio::task::yield_now().await;
        }
    }

    /// Puts `pem` into the Secret, which is made if need be.
    async fn give(&self, pem: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE},
            "stringData": {"private-key.pem": pem},
        });
        if self.secrets.get_opt(SECRET).await.expect("asked").is_none() {
            self.world.create(secret).expect("made");
            return;
        }
        let patch = Patch::Merge(json!({"stringData": {"private-key.pem": pem}}));
        self.secrets
            .patch(SECRET, &PatchParams::default(), &patch)
            .await
            .expect("edited");
    }

    /// Nodes that carry a version of ours.
    fn served(&self) -> usize {
        let nodes = self.world.all(&kinds::NODE);
        let ours = |node: &Value| node["metadata"]["annotations"]["dormer.io/version"].is_string();
        nodes.iter().filter(|node| ours(&node.value)).count()
    }

    /// The pool's condition `Degraded`, as the cluster shows it.
    fn degraded(&self) -> Value {
        let pools = self.world.all(&kinds::WINDOWS_POOL);
        let all = pools.iter().flat_map(|pool| {
            pool.value["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        });
        all.into_iter()
            .find(|it| it["type"] == "Degraded")
            .unwrap_or_default()
    }
}

/// An encrypted key.
fn encrypted(folder: &Path) -> String {
    let file = folder.join("encrypted");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "a passphrase", "-f"])
        .arg(&file)
        .status();
    assert!(made.expect("ssh-keygen runs").success());
    std::fs::read_to_string(file).expect("read")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_cannot_be_used_is_the_one_thing_and_dormer_goes_on_once_it_is_mended() {
    dormer_testkit::full!();
    let site = Site::without_key().await;
    let get = ["get", "machines"];
    let all = format!("All {MACHINES} machines wait for one thing: ");
    let absent = format!("{all}there is no SSH private key: the Secret {NAMESPACE}/{SECRET} does");
    let said = site.await_said(&get, &absent).await;
    assert_eq!(
        said.matches("--from-file=private-key.pem").count(),
        1,
        "said once: {said}"
    );
    let name = said
        .lines()
        .find(|line| line.contains("Provisioned"))
        .expect("a machine");
    let name = name.split_whitespace().next().expect("its name").to_owned();

    let weak = SshKey::make(site.folder.path(), "weak", KeyKind::Rsa(1024)).expect("made");
    for (pem, output) in [
        (
            "this is no key at all".to_owned(),
            "the SSH private key cannot be read: ",
        ),
        (
            encrypted(site.folder.path()),
            "the SSH private key is encrypted: store it without",
        ),
        (
            weak.private,
            "the SSH private key is RSA of only 1024 bits: make another (ssh-keygen",
        ),
    ] {
        site.give(&pem).await;
        let said = site.await_said(&get, &format!("{all}{output}")).await;
        assert_eq!(said.matches(output).count(), 1, "said once: {said}");
        assert!(
            !said.contains("this is no key"),
            "the key's text is never shown: {said}"
        );
    }
    let one = "waits for one thing, as all machines do: the SSH private key is RSA of only 1024";
    site.await_said(&["why", &name], one).await;
    assert!(
        site.page("/")
            .contains("the SSH private key is RSA of only 1024 bits")
    );
    let ready = site.page("/readyz");
    assert!(
        ready.contains("200 OK") && ready.contains("hindered"),
        "{ready}"
    );
    await_condition("Degraded", IN_TIME, || async {
        site.degraded()["status"] == "True"
    })
    .await;
    assert_eq!(
        site.degraded()["reason"],
        "DormerLacks",
        "{}",
        site.degraded()
    );
    assert_eq!(
        site.says(&["dead-letters", "list"]).trim(),
        "There are no dead letters."
    );
    let tasks: Value = serde_json::from_str(&site.says(&["get", "tasks", "-o", "json"])).unwrap();
    let tasks = tasks
        .as_array()
        .expect("tasks")
        .iter()
        .filter(|task| task["name"] == "probe");
    let attempts: Vec<&Value> = tasks.map(|task| &task["attempt"]).collect();
    assert_eq!(attempts, [1, 1, 1], "no attempt was used up");

    site.give(&site.world.ssh_key.private_pem).await;
    await_condition("nodes", IN_TIME, || async { site.served() == MACHINES }).await;
    let said = site.says(&get);
    assert!(!said.contains("one thing"), "{said}");
    await_condition("health", IN_TIME, || async {
        !site.page("/readyz").contains("hindered")
    })
    .await;
    await_condition("no Degraded", IN_TIME, || async {
        site.degraded()["status"] == "False"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_host_program_every_machine_waits_for_one_thing_and_why_names_the_flag() {
    dormer_testkit::full!();
    let site = Site::without(Without::Program).await;
    let one = format!("All {MACHINES} machines wait for one thing: there is no host program: ");
    let said = site.await_said(&["get", "machines"], &one).await;
    assert_eq!(said.matches("--host-program FILE").count(), 1, "{said}");
    let name = said.lines().find(|line| line.contains("Provisioned"));
    let name = name.and_then(|line| line.split_whitespace().next());
    let why = site.says(&["why", name.expect("a machine")]);
    assert!(why.contains("start it with --host-program FILE"), "{why}");
    assert!(site.page("/readyz").contains("hindered"));
    assert_eq!(
        site.says(&["dead-letters", "list"]).trim(),
        "There are no dead letters."
    );
}

impl Site {
    /// `dormer ssh-key …` against the cluster and its hosts: its exit code, and what it says.
    fn ssh_key(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let kubeconfig = self.folder.path().join("kubeconfig").display().to_string();
        let port = self.ssh_port.to_string();
        // The simulated hosts need this thread's runtime meanwhile.
        tokio::task::block_in_place(|| {
            let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
                .arg("ssh-key")
                .args(arguments)
                .args(["--yes", "--kubeconfig", &kubeconfig, "--port", &port])
                .output()
                .expect("dormer runs");
            let said = [output.stdout, output.stderr].concat();
            (
                output.status.code(),
                String::from_utf8_lossy(&said).into_owned(),
            )
        })
    }

    /// Pods of the Windows nodes that are Ready: UID and node.
    fn pods(&self) -> Vec<(String, String)> {
        let pods = self.world.all(&kinds::POD);
        let ready = |pod: &&Value| {
            let all = pod["status"]["conditions"].as_array();
            let all = all.into_iter().flatten();
            all.into_iter()
                .any(|it| it["type"] == "Ready" && it["status"] == "True")
        };
        let pods = pods.iter().map(|pod| &pod.value).filter(ready);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut pods: Vec<_> = pods
            .map(|pod| {
                (
                    text(&pod["metadata"]["uid"]),
                    text(&pod["spec"]["nodeName"]),
                )
            })
            .collect();
        pods.sort();
        pods
    }

    /// User data of new machines.
    async fn user_data(&self) -> String {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "openshift-machine-api");
        let secret = secrets.get_opt("windows-user-data").await.expect("asked");
        let data = secret
            .and_then(|it| it.data)
            .unwrap_or_default()
            .remove("userData");
        String::from_utf8(data.unwrap_or_default().0).expect("text")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_nodes_that_serve_is_rotated_no_pod_moves_and_new_machines_have_the_new_key() {
    dormer_testkit::full!();
    let site = Site::without(Without::Nothing).await;
    await_condition("nodes and pods", IN_TIME, || async {
        site.served() == MACHINES && site.pods().len() >= MACHINES
    })
    .await;
    let pods = site.pods();
    let made = SshKey::make(site.folder.path(), "new", KeyKind::Ed25519).expect("made");
    let new = made.path.display().to_string();

    let (code, said) = site.ssh_key(&["rotate", "--new", &new]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("3 done, 0 already, 0 failed."), "{said}");
    await_condition("user data with the new key", IN_TIME, || async {
        site.user_data().await.contains(&made.public)
    })
    .await;
    // The hosts were made with user data of another program, which would bring the old key back at each boot.
    let (code, said) = site.ssh_key(&["finish"]);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(
        said.matches("writes the old key again").count(),
        3,
        "{said}"
    );
    let (code, said) = site.ssh_key(&["finish", "--user-data-runs-once"]);
    assert_eq!(code, Some(0), "{said}");
    let secret = site.secrets.get(SECRET).await.expect("the Secret");
    assert_eq!(secret.data.expect("data").len(), 1, "the new key alone");
    assert_eq!(site.pods(), pods, "no pod moved");

    // A machine that is made now has the new key alone, and dormer opens it.
    let sets = site.world.all(&kinds::MACHINE_SET);
    let windows = |set: &&Value| {
        set["spec"]["template"]["metadata"]["labels"]["machine.openshift.io/os-id"] == "Windows"
    };
    let set = sets.iter().map(|set| &set.value).find(windows);
    let set = set.expect("a set")["metadata"]["name"].clone();
    let gvk = kube::api::GroupVersionKind::gvk("machine.openshift.io", "v1beta1", "MachineSet");
    let sets: Api<kube::api::DynamicObject> = Api::namespaced_with(
        site.client.clone(),
        "openshift-machine-api",
        &kube::api::ApiResource::from_gvk(&gvk),
    );
    let more = Patch::Merge(json!({"spec": {"replicas": MACHINES + 1}}));
    let set = set.as_str().expect("a name");
    let scaled = sets.patch(set, &PatchParams::default(), &more).await;
    scaled.expect("scaled");
    await_condition("one more node", IN_TIME, || async {
        site.served() == MACHINES + 1
    })
    .await;
}

/// The worker has the public half alone: the cluster has no Secret with a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_come_up_by_a_key_that_only_an_agent_has_and_wait_for_it_by_name() {
    dormer_testkit::full!();
    let mut agent = started!(SshAgent::start());
    let socket = agent.socket().display().to_string();
    let flags = ["--ssh-agent".to_owned(), socket.clone()];
    let site = Site::with(Without::Key, &flags).await;
    let get = ["get", "machines"];
    let all = format!(
        "All {MACHINES} machines wait for one thing: there is no SSH private key: the SSH agent at {socket} "
    );
    let said = site.await_said(&get, &format!("{all}shows no key")).await;
    assert_eq!(said.matches("ssh-add -X").count(), 1, "said once: {said}");

    let file = site.folder.path().join("key");
    let add = |agent: &SshAgent| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::write(&file, &site.world.ssh_key.private_pem).expect("written");
        std::fs::set_permissions(&file, mode).expect("as ssh-add wants it");
        agent.ssh_add(&[&file]).expect("added");
        std::fs::remove_file(&file).expect("removed");
    };
    add(&agent);
    await_condition("nodes", IN_TIME, || async { site.served() == MACHINES }).await;
    let user_data: Api<Secret> = Api::namespaced(site.client.clone(), "openshift-machine-api");
    let params = DeleteParams::default();
    let gone = user_data.delete("windows-user-data", &params).await;
    gone.expect("deleted");
    let secret = site.secrets.get_opt(SECRET).await.expect("asked");
    assert!(secret.is_none(), "{secret:?}");
    let public = site.world.ssh_key.public_line.split_whitespace();
    let public = public.take(2).collect::<Vec<_>>().join(" ");
    await_condition("user data with its public half", IN_TIME, || async {
        site.user_data().await.contains(&public)
    })
    .await;

    // Without its agent dormer has no key, and has it again with the agent.
    agent.kill();
    await_condition("the agent is missed", IN_TIME, || async {
        let ready = site.page("/readyz");
        ready.contains("hindered") && ready.contains("nothing listens at its socket")
    })
    .await;
    agent.restart().expect("it comes up");
    add(&agent);
    await_condition("health", IN_TIME, || async {
        !site.page("/readyz").contains("hindered")
    })
    .await;
    assert_eq!(site.served(), MACHINES);
}
