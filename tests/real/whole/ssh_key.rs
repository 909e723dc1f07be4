//! Rotation of the key for Windows hosts on a real API server, while dormer runs: by an account with the rights of
//! `docs/ssh-key.md`, with user data that follows, and with two people who rotate at once.

use super::{
    crew::{Crew, install},
    ground::{Ground, uids},
};
use crate::real::cluster::{INFRASTRUCTURE, Kind, POD};
use dormer_fleet::host::admin_keys::KEY_FILE;
use dormer_testkit::{KeyKind, SshKey, skip, started};
use dormer_workers::ssh::key_file::permits;
use serde_json::{Value, json};
use std::path::PathBuf;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    process::Command,
};

const SECRET: Kind = ("", "v1", "Secret");
/// Secret with the keys.
const KEYS: &str = "cloud-private-key";
/// The person's account.
const PERSON: &str = "rotator";

/// A cluster that dormer serves, and a person who may rotate its key.
struct Bench<'a> {
    ground: &'a Ground,
    person: PathBuf,
}

impl Bench<'_> {
    fn key(&self, name: &str) -> SshKey {
        SshKey::make(self.ground.folder.path(), name, KeyKind::Ed25519)
            .expect("ssh-keygen makes it")
    }

    /// `dormer ssh-key` by a kubeconfig: its exit code, and what it says.
    async fn ssh_key(&self, kubeconfig: &PathBuf, port: u16, flags: &[&str]) -> (i32, String) {
        let ground = self.ground;
        let said = Command::new(env!("CARGO_BIN_EXE_dormer"))
            .arg("ssh-key")
            .args(flags)
            .args(["--yes", "--namespace", &ground.home])
            .args(["--machine-namespace", &ground.machines])
            .args(["--port", &port.to_string(), "--kubeconfig"])
            .arg(kubeconfig)
            .kill_on_drop(true)
            .output()
            .await
            .expect("dormer runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = said.status.code().expect("an exit code");
        (code, text(&said.stdout) + &text(&said.stderr))
    }

    async fn rotate(&self, key: &SshKey, port: u16) -> (i32, String) {
        let new = key.path.display().to_string();
        self.ssh_key(&self.person, port, &["rotate", "--new", &new])
            .await
    }

    async fn finish(&self) -> (i32, String) {
        // Hosts here have user data of their world, which writes no keys.
        let flags = ["finish", "--user-data-runs-once"];
        self.ssh_key(&self.person, self.ground.ssh_port, &flags)
            .await
    }

    /// What the Secret has: the present key, and the previous one.
    async fn keys(&self) -> [Option<String>; 2] {
        let found = self.ground.world.get(SECRET, &self.ground.home, KEYS).await;
        let found = found.expect("the Secret");
        ["private-key.pem", "previous-private-key.pem"].map(|entry| decoded(&found, entry))
    }

    /// How many hosts a key opens, by their files.
    fn opened_by(&self, key: &SshKey) -> usize {
        let hosts = self.ground.hosts();
        let permitted = hosts.iter().filter(|host| {
            let read = host.state().disk.read_text_path(KEY_FILE);
            permits(&read.expect("the file").head, &key.public)
        });
        permitted.count()
    }

    /// Waits until user data of new machines has one key and not the other.
    async fn until_user_data_has(&self, crew: &Crew<'_>, new: &SshKey, old: Option<&SshKey>) {
        let body = |key: &SshKey| key.public.split(' ').nth(1).expect("base64").to_owned();
        crew.until("user data has the new key alone", async || {
            let found = self
                .ground
                .world
                .get(SECRET, &self.ground.machines, "windows-user-data")
                .await;
            let text = found.and_then(|found| decoded(&found, "userData"));
            let text = text.unwrap_or_default();
            text.contains(&body(new)) && old.is_none_or(|old| !text.contains(&body(old)))
        })
        .await;
    }
}

fn decoded(secret: &Value, entry: &str) -> Option<String> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let text = secret["data"][entry].as_str()?;
    let bytes = STANDARD.decode(text).expect("base64");
    Some(String::from_utf8(bytes).expect("text"))
}

/// An account with the rights that the page on rotation names, and no other; its kubeconfig.
async fn person(ground: &Ground) -> PathBuf {
    let home = &ground.home;
    let world = &ground.world;
    let meta = |name: &str, namespace: Option<&str>| json!({"name": name, "namespace": namespace});
    world
        .create(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(PERSON, Some(home))}))
        .await;
    let lists = json!([
        {"apiGroups": ["machine.openshift.io", "cluster.x-k8s.io"], "resources": ["machines"], "verbs": ["list"]},
        {"apiGroups": ["dormer.io"], "resources": ["windowshosts"], "verbs": ["list"]},
    ]);
    let secret = |name: &str, verbs: Value| json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": verbs}]);
    let reads = || secret("windows-user-data", json!(["get"]));
    world.namespace("openshift-cluster-api").await;
    for (namespace, rules) in [
        (None, lists),
        (Some(home.as_str()), secret(KEYS, json!(["get", "update"]))),
        (Some(ground.machines.as_str()), reads()),
        (Some("openshift-cluster-api"), reads()),
    ] {
        let kind = if namespace.is_some() {
            "Role"
        } else {
            "ClusterRole"
        };
        let version = "rbac.authorization.k8s.io/v1";
        world
            .create(json!({"apiVersion": version, "kind": kind, "metadata": meta(PERSON, namespace), "rules": rules}))
            .await;
        world
            .create(json!({"apiVersion": version, "kind": format!("{kind}Binding"), "metadata": meta(PERSON, namespace),
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": PERSON},
                "subjects": [{"kind": "ServiceAccount", "name": PERSON, "namespace": home}]}))
            .await;
    }
    ground.kubeconfig_of(PERSON).await
}

/// A port for all hosts that lets nothing through before `first` is done.
async fn held_until(port: u16, first: impl Future<Output = ()> + Send + 'static) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").await.expect("a port");
    let held = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let mut first = Some(first);
        loop {
            let Ok((mut near, _)) = listener.accept().await else {
                return;
            };
            if let Some(first) = first.take() {
                first.await;
            }
            let host = near.local_addr().expect("an address").ip();
            tokio::spawn(async move {
                let mut far = TcpStream::connect((host, port)).await.expect("the host");
                // Either side ends it.
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    held
}

/// A rotation while dormer serves three machines, and two people who rotate at once.
async fn rotated(ground: &Ground, person: PathBuf) {
    install(ground, "11.0.0");
    let crew = started!(Crew::start(ground));
    crew.until_all_serve(3, "11.0.0-").await;
    let bench = Bench { person, ground };
    let pods = async || uids(&ground.world.list(POD, &ground.pods).await);
    crew.until("a web server on each node", async || {
        ground.web_servers().await.len() == 3
    })
    .await;
    let moved = pods().await;
    let before = ground.tally();
    let [old, none] = bench.keys().await;
    assert!(old.is_some() && none.is_none());

    let first = bench.key("first");
    let (code, said) = bench.rotate(&first, ground.ssh_port).await;
    assert!(code == 0 && said.contains("3 done"), "{said}");
    assert_eq!(bench.keys().await, [Some(first.private.clone()), old]);
    bench.until_user_data_has(&crew, &first, None).await;
    let (code, said) = bench.finish().await;
    assert!(
        code == 0 && said.contains("No host lets the previous key in"),
        "{said}"
    );
    assert_eq!(bench.keys().await, [Some(first.private.clone()), None]);

    // The second person begins when the first one has read the Secret, and is done before it is written.
    let slow = bench.key("slow");
    let quick = bench.key("quick");
    let person = bench.person.clone();
    let port = ground.ssh_port;
    let arguments = [
        "ssh-key",
        "rotate",
        "--yes",
        "--new",
        &quick.path.display().to_string(),
        "--namespace",
        &ground.home,
        "--machine-namespace",
        &ground.machines,
        "--port",
        &port.to_string(),
        "--kubeconfig",
        &person.display().to_string(),
    ]
    .map(str::to_owned);
    let between = async move {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormer"));
        let done = command.args(arguments).output().await.expect("dormer runs");
        assert!(done.status.success(), "{done:?}");
    };
    let held = held_until(port, between).await;
    let (code, said) = bench.rotate(&slow, held).await;
    let refused = [
        "somebody else changed the Secret",
        "3 hosts do not let that one in any more",
    ];
    assert!(
        code == 1 && refused.iter().all(|it| said.contains(it)),
        "{said}"
    );
    let keys = [&quick, &first].map(|key| Some(key.private.clone()));
    assert_eq!(bench.keys().await, keys);
    let opened = [&quick, &first, &slow].map(|key| bench.opened_by(key));
    assert_eq!(opened, [3, 3, 0]);
    bench.until_user_data_has(&crew, &quick, Some(&first)).await;
    let (code, said) = bench.finish().await;
    assert!(code == 0, "{said}");
    assert_eq!(bench.keys().await, [Some(quick.private.clone()), None]);

    let after = ground.tally();
    assert_eq!(pods().await, moved, "no pod moved");
    assert_eq!(after.pods_evicted, before.pods_evicted);
    assert_eq!(after.kubelet_restarts, before.kubelet_restarts);
    crew.until_all_serve(3, "11.0.0-").await;
    crew.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_rotated_on_a_real_api_server_and_of_two_people_one_is_refused() {
    let ground = match Ground::alone("rotates", 3).await {
        Ok(ground) => ground,
        Err(skipped) => skip!(skipped),
    };
    let platform = json!({"platform": "AWS"});
    ground
        .world
        .status(INFRASTRUCTURE, "", "cluster", platform)
        .await;
    // dormer's own account writes no key, so that who steals a worker does not lock dormer out.
    let bench = Bench {
        person: ground.path("worker.conf"),
        ground: &ground,
    };
    let (code, said) = bench.rotate(&bench.key("stolen"), ground.ssh_port).await;
    assert!(code != 0 && said.contains("nothing was changed"), "{said}");
    rotated(&ground, person(&ground).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_rotated_on_the_simulated_one_and_of_two_people_one_is_refused() {
    let ground = Ground::simulated(3, &[]).await;
    rotated(&ground, ground.path("admin.conf")).await;
}
