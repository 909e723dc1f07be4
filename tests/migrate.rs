//! `dormer migrate` on a simulated fleet of the Windows Machine Config Operator (WMCO): nodes move over by the commands
//! alone, some go back, and the world's own record says what that did to pods.

use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{
        DeleteOptions, Key, Meta, Part, User, WriteOptions, kinds, kinds::Kind, patch::PatchKind,
    },
    payload::write_example,
    wmco::{KEY_ANNOTATION, Options, VERSION, VERSION_ANNOTATION, Wmco, layout, process_key},
    world::Happened,
};
use dormer_testkit::{Process, ProcessSpec, TempDir, await_condition, free_port, test_dir, tier};
use serde_json::{Value, json};
use std::{collections::BTreeMap, process::Command, time::Duration};

/// Time for one step; a busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(600);
const HOME: &str = "dormer";
const WICD: &str = "windows-instance-config-daemon";

/// A simulated cluster whose Windows nodes WMCO configured, and dormer's settings for it.
struct Site {
    folder: TempDir,
    world: World,
    ssh_port: u16,
    port: u16,
}

impl Site {
    /// Machines that are not configured.
    async fn empty(machines: u32, speed: f64) -> Self {
        let folder = test_dir("migrate");
        let ssh_port = free_port();
        let config = WorldConfig {
            ssh_port,
            ..WorldConfig::on_loopback(machines, Pace::times_faster(speed))
        };
        let world = World::start(config).await.expect("a world");
        world
            .write_kubeconfig(&folder.path().join("kubeconfig"))
            .expect("written");
        std::fs::write(folder.path().join("key"), &world.ssh_key.private_pem).expect("written");
        write_example(&folder.path().join("payloads/11.0.0"), "11.0.0").expect("a payload");
        Self {
            folder,
            world,
            ssh_port,
            port: free_port(),
        }
    }

    /// dormer brings the nodes up, because the simulated WMCO makes none from nothing; then they become WMCO's.
    async fn of_wmco(machines: u32, speed: f64) -> Self {
        let site = Self::empty(machines, speed).await;
        let pool = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
            "metadata": {"name": "windows", "namespace": HOME},
            "spec": {"soak": "1s", "strategy": {"type": "InPlace"}}});
        site.world.create(pool).expect("a pool");
        let mut before = site.dormer("store-before");
        site.until("the nodes serve", || {
            site.nodes().len() == usize::try_from(machines).expect("few")
                && site
                    .nodes()
                    .iter()
                    .all(|node| node.annotation("dormer.io/version").is_some())
        })
        .await;
        before.terminate().expect("it ends");
        layout::all(&site.world).await.expect("WMCO's layout");
        site.delete(&kinds::LEASE, HOME, "dormer-watcher");
        site.delete(&kinds::SECRET, HOME, "cloud-private-key");
        site.delete(&kinds::WINDOWS_POOL, HOME, "windows");
        for shown in site.world.all(&kinds::WINDOWS_MACHINE) {
            let key = Key::of(&shown.value);
            let user = User::admin();
            let options = DeleteOptions::default();
            let gone = site
                .world
                .api
                .delete(&user, &kinds::WINDOWS_MACHINE, &key, &options);
            gone.expect("it goes");
        }
        site
    }

    fn dormer(&self, store: &str) -> Process {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let flags = [
            ("--kubeconfig", path("kubeconfig")),
            ("--payload", path("payloads")),
            ("--host-program", crate::host_program(self.folder.path())),
            ("--ssh-port", self.ssh_port.to_string()),
            ("--listen", format!("127.0.0.1:{}", self.port)),
            ("--store", path(store)),
        ];
        let flags = flags.into_iter();
        let flags = flags
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .chain(["--payload-unsigned".to_owned()]);
        let spec = ProcessSpec {
            program: env!("CARGO_BIN_EXE_dormer").into(),
            args: std::iter::once("run".to_owned()).chain(flags).collect(),
            env: Vec::new(),
            log: self.folder.path().join(format!("log-{store}")),
            folder: None,
        };
        Process::start(&spec).expect("dormer starts")
    }

    /// A command: its exit code, and what it says.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        tokio::task::block_in_place(|| {
            let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
                .args(arguments)
                .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
                .env("DORMER_SERVER", format!("http://127.0.0.1:{}", self.port))
                .output()
                .expect("dormer runs");
            let said = [output.stdout, output.stderr].concat();
            (
                output.status.code(),
                String::from_utf8_lossy(&said).into_owned(),
            )
        })
    }

    fn done(&self, arguments: &[&str]) -> String {
        let (code, said) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {said}");
        said
    }

    /// Name of the next step.
    fn next(&self) -> String {
        let (_, said) = self.run(&["migrate", "next", "-o", "json"]);
        let answer: Value = serde_json::from_str(&said).unwrap_or_default();
        answer["next"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    async fn until(&self, what: &str, so: impl Fn() -> bool) {
        await_condition(what, IN_TIME, || async { so() }).await;
    }

    fn nodes(&self) -> Vec<Value> {
        let all = self.world.all(&kinds::NODE).into_iter();
        let all = all.map(|node| node.value.clone());
        all.filter(|node| node.label("kubernetes.io/os") == Some("windows"))
            .collect()
    }

    /// Machines by the names of their Nodes.
    fn machines(&self) -> BTreeMap<String, Value> {
        let all = self.world.all(&kinds::MACHINE).into_iter();
        all.filter_map(|machine| {
            let node = machine.value["status"]["nodeRef"]["name"].as_str()?;
            Some((node.to_owned(), machine.value.clone()))
        })
        .filter(|(node, _)| self.nodes().iter().any(|it| it.name() == node))
        .collect()
    }

    fn delete(&self, kind: &Kind, namespace: &str, name: &str) {
        let key = Key::new(namespace, name);
        // What is not there need not go.
        let options = DeleteOptions::default();
        drop(self.world.api.delete(&User::admin(), kind, &key, &options));
    }

    fn patch(&self, kind: &'static Kind, object: &Value, patch: &Value) {
        let user = User::admin();
        let how = (PatchKind::Merge, patch);
        let key = Key::of(object);
        let options = WriteOptions::default();
        let done = self
            .world
            .api
            .patch(&user, kind, &key, Part::Main, how, &options);
        done.expect("it is patched");
    }

    fn inventory(&self, machine: &Value) -> Vec<String> {
        let hosts = self.world.hosts.as_ref().expect("hosts");
        layout::inventory(&hosts.host(machine.uid()).expect("a host"))
    }

    /// How WICD stands on a host.
    fn daemon(&self, machine: &Value) -> String {
        let all = self.inventory(machine);
        let ours = all.into_iter().find(|line| line.contains(WICD));
        ours.expect("WICD's service")
    }

    /// What people of the cluster feel: evictions, deletions, restarts of kubelets, Machines deleted.
    fn felt(&self) -> [u64; 4] {
        let tally = self.world.record.tally();
        [
            tally.pods_evicted,
            tally.pods_deleted,
            tally.kubelet_restarts,
            tally.machines_deleted,
        ]
    }
}

/// Lines that one inventory has and another has not.
fn differing<'a>(a: &'a [String], b: &'a [String]) -> Vec<&'a String> {
    let only = |a: &'a [String], b: &'a [String]| {
        a.iter()
            .filter(|line| !b.contains(line))
            .collect::<Vec<_>>()
    };
    [only(a, b), only(b, a)].concat()
}

/// Moves a fleet over, and gives some of its nodes back before their first upgrade.
async fn moved_over_and_back(machines: u32, back: usize, speed: f64) {
    let site = Site::of_wmco(machines, speed).await;
    let wmco = Wmco::start(&site.world, Options::default()).expect("WMCO");
    let services = Key::new(wmco.namespace(), format!("windows-services-{VERSION}"));
    let store = site.world.api.store();
    site.until("WMCO's daemons follow their ConfigMap", || {
        store.get(kinds::CONFIG_MAP.store, &services).is_some()
    })
    .await;
    let all = site.machines();
    let before: BTreeMap<&String, Vec<String>> = all
        .iter()
        .map(|(node, machine)| (node, site.inventory(machine)))
        .collect();
    let felt = site.felt();

    // What is there, and what comes first.
    let said = site.done(&["migrate", "check"]);
    for part in [
        "it runs",
        "replicas: 1",
        VERSION,
        "mcr.microsoft.com/oss/kubernetes/pause:3.9 (WMCO's own; no node lists one); dormer's first upgrade: \
         registry.k8s.io/pause:3.10.2",
        "Nothing stands in the way",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (code, said) = site.run(&["migrate", "next", "--do", "remove-wmco"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("remove-wmco is not the next step; the next is copy-key"),
        "{said}"
    );
    site.done(&["migrate", "next", "--do", "copy-key"]);
    assert_eq!(site.next(), "install");

    // dormer comes, paused, and leaves the hosts to WMCO.
    let pool = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
        "metadata": {"name": "windows", "namespace": HOME},
        "spec": {"soak": "1s", "paused": true, "approval": "Manual", "strategy": {"type": "InPlace"}}});
    site.world.create(pool).expect("a pool");
    let mut dormer = site.dormer("store");
    site.until("WMCO is the next to go", || site.next() == "remove-wmco")
        .await;
    let said = site.done(&["migrate", "next", "--do", "remove-wmco"]);
    assert!(
        said.contains("Subscription") && said.contains("Deployment"),
        "{said}"
    );

    // Adoption moves no pod; WICD alone is another on each host.
    site.until("dormer has taken every node over", || {
        site.next() == "resume"
    })
    .await;
    assert_eq!(site.felt(), felt, "{}", site.done(&["migrate", "status"]));
    for (node, machine) in &all {
        let now = site.inventory(machine);
        let differ = differing(&before[node], &now);
        assert!(differ.iter().all(|line| line.contains(WICD)), "{differ:#?}");
        assert!(
            site.daemon(machine).contains("Disabled runs: false"),
            "{differ:#?}"
        );
    }

    // Some go back.
    let path = |name: &str| site.folder.path().join(name).display().to_string();
    let ssh_port = site.ssh_port.to_string();
    let program = crate::host_program(site.folder.path());
    let key = path("key");
    for (node, machine) in all.iter().take(back) {
        let (code, said) = site.run(&["migrate", "back", node]);
        assert!(
            code == Some(1) && said.contains("dormer still owns it"),
            "{said}"
        );
        let label =
            json!({"metadata": {"labels": {"windowsmachineconfig.openshift.io/ignore": "true"}}});
        site.patch(&kinds::MACHINE, machine, &label);
        let marks = json!({"metadata": {"annotations": {KEY_ANNOTATION: "older"}}});
        let of_node = json!({"metadata": {"name": node}});
        site.patch(&kinds::NODE, &of_node, &marks);
        let given = [
            "migrate",
            "back",
            node,
            "--yes",
            "--key",
            &key,
            "--host-program",
            &program,
            "--port",
            &ssh_port,
        ];
        let said = site.done(&given);
        assert!(said.contains(WICD), "{said}");
        assert_eq!(
            differing(&before[node], &site.inventory(machine)),
            [""; 0],
            "{said}"
        );
    }
    assert_eq!(site.felt(), felt, "the way back moves nobody");

    // The others: one by approval, then by themselves.
    let (_, first) = all.iter().nth(back).expect("one that stays");
    site.done(&["migrate", "next", "--do", "resume"]);
    site.until("the first waits for an approval", || {
        let (code, _) = site.run(&[
            "approve",
            first.name(),
            "--why",
            "first of the move",
            "--yes",
        ]);
        code == Some(0)
    })
    .await;
    site.until("the first is upgraded", || site.next() == "automatic")
        .await;
    site.done(&["migrate", "next", "--do", "automatic"]);
    site.until("all are upgraded", || site.next() == "clean-up")
        .await;
    let went: Vec<String> = site
        .world
        .record
        .entries()
        .into_iter()
        .filter_map(|entry| match entry.happened {
            Happened::NodeUnavailable { node, .. } => Some(node),
            _ => None,
        })
        .collect();
    for (node, machine) in &all {
        let given_back = all.keys().take(back).any(|it| it == node);
        let away = went.iter().filter(|it| *it == node).count();
        assert_eq!(
            away,
            usize::from(!given_back),
            "{node} was away {away} times"
        );
        assert_eq!(site.daemon(machine).contains("Disabled"), !given_back);
    }
    assert_eq!(site.world.record.tally().machines_deleted, felt[3]);
    dormer.terminate().expect("it ends");

    // WMCO comes again, and has nothing to do on the nodes that are its own.
    drop(wmco);
    let felt = site.felt();
    let _wmco = Wmco::start(&site.world, Options::default()).expect("WMCO");
    for (node, machine) in all.iter().take(back) {
        let label =
            json!({"metadata": {"labels": {"windowsmachineconfig.openshift.io/ignore": null}}});
        site.patch(&kinds::MACHINE, machine, &label);
        let marked = site
            .nodes()
            .into_iter()
            .find(|it| it.name() == node)
            .expect("a Node");
        assert_eq!(marked.annotation(VERSION_ANNOTATION), Some(VERSION));
        let hash = process_key(&site.world.ssh_key.private_pem);
        assert_eq!(marked.annotation(KEY_ANNOTATION), hash.as_deref());
    }
    let begun = site.world.clock.elapsed();
    site.until("ten minutes of WMCO's time", || {
        site.world
            .pace
            .simulated(site.world.clock.elapsed() - begun)
            > Duration::from_secs(600)
    })
    .await;
    assert_eq!(site.felt(), felt, "WMCO leaves them as they are");
    for (node, machine) in all.iter().take(back) {
        assert_eq!(differing(&before[node], &site.inventory(machine)), [""; 0]);
    }
}

/// The commands refuse what is out of order, on a cluster with WMCO and two nodes without hosts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_wmcos_is_checked_and_nothing_is_done_out_of_order() {
    dormer_testkit::full!();
    let site = Site::empty(0, 5.0).await;
    site.delete(&kinds::SECRET, HOME, "cloud-private-key");
    let _wmco = Wmco::start(&site.world, Options::default()).expect("WMCO");
    let hash = process_key(&site.world.ssh_key.private_pem);
    for name in ["win-a", "win-b"] {
        let marks = json!({KEY_ANNOTATION: hash, VERSION_ANNOTATION: VERSION});
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": marks, "labels": {"kubernetes.io/os": "windows"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "images": [{"names": ["mcr.microsoft.com/oss/kubernetes/pause:3.9"]}]}});
        site.world.create(node).expect("a Node");
    }
    let mirrored = json!({"apiVersion": "config.openshift.io/v1", "kind": "ImageTagMirrorSet", "metadata": {"name": "all"},
        "spec": {"imageTagMirrors": [{"source": "mcr.microsoft.com", "mirrors": ["m.example/mcr"]}]}});
    site.world.create(mirrored).expect("a set");
    let (code, said) = site.run(&["migrate", "check", "-o", "json"]);
    let report: Value = serde_json::from_str(&said).expect("JSON");
    let found = report["findings"].as_array().expect("findings").iter();
    let found: Vec<&str> = found.filter_map(|it| it["code"].as_str()).collect();
    assert_eq!(code, Some(1), "{said}");
    let wanted = [
        "NodeWithoutMachine",
        "NodeWithoutMachine",
        "ServicesAbsent",
        "PauseImage",
    ];
    assert_eq!(found, wanted, "{said}");
    assert_eq!(
        report["cluster"]["subscriptions"].as_array().map(Vec::len),
        Some(1)
    );
    assert_eq!(report["cluster"]["key"]["of"], json!(hash));
    assert_eq!(site.next(), "wmco-at-rest");
    let (code, said) = site.run(&["migrate", "next", "--do", "copy-key"]);
    assert!(
        code == Some(1) && said.contains("the next is wmco-at-rest"),
        "{said}"
    );
    // BYOH hosts need no Machine.
    for node in site.nodes() {
        let label =
            json!({"metadata": {"labels": {"windowsmachineconfig.openshift.io/byoh": "true"}}});
        site.patch(&kinds::NODE, &node, &label);
    }
    let map = |namespace: &str, name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace}, "data": {"10.1.42.1": "username=a"}})
    };
    let theirs = "openshift-windows-machine-config-operator";
    let services = format!("windows-services-{VERSION}");
    for (namespace, name) in [(theirs, services.as_str()), (HOME, "windows-instances")] {
        site.world
            .create(map(namespace, name))
            .expect("a ConfigMap");
    }
    site.done(&["migrate", "check"]);
    site.done(&["migrate", "next", "--do", "copy-key"]);
    let said = site.done(&["migrate", "status"]);
    assert!(said.contains("NEXT  install"), "{said}");
    let (code, said) = site.run(&["migrate", "next", "--do", "remove-wmco"]);
    assert!(
        code == Some(1) && said.contains("the next is install"),
        "{said}"
    );
    let (code, said) = site.run(&["migrate", "back", "win-a"]);
    assert!(code == Some(1) && said.contains("a BYOH host"), "{said}");
    let (code, said) = site.run(&["migrate", "back", "win-c"]);
    assert!(
        code == Some(3) && said.contains("no Windows node win-c"),
        "{said}"
    );
}

/// Three over and one back, then twenty and five: most of the time is dormer's own waiting, which no world makes faster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_move_over_and_some_go_back_without_moving_a_pod() {
    let Some(larger) = tier::long("migration") else {
        return;
    };
    moved_over_and_back(3, 1, 150.0).await;
    moved_over_and_back(20, 5, 100.0).await;
    larger.passed(&[("nodes", "20".to_owned()), ("given back", "5".to_owned())]);
}
