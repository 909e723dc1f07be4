//! The chart's pods on a Node that runs them: a release is installed, upgraded with work in flight and taken away, with a
//! simulated fleet under it; and a pod is held to its security context.

use super::{
    accounts::granted,
    cluster::{
        INFRASTRUCTURE, MACHINE, NODE, POD, WINDOWS_MACHINE, World, client, plane_without_ours,
        with_kubelets,
    },
    whole::{
        ground::{MACHINE_SET, condition, serves, uids},
        uninstall::{NOT_TRACES, inventory_but},
    },
};
use dormer_fleet::{
    Pace,
    cluster::mirror::Outside,
    payload::write_example,
    world::{OutsideConfig, OutsideWorld},
};
use dormer_testkit::{
    ControlPlane, Helm, Identity, PodImage, PodNode, Speaker, TempDir, TestCa, await_some,
    free_port, long, skip, started, test_dir,
};
use kube::api::DeleteParams;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// Longest wait for one thing: the fleet comes up in half a minute where nothing else is done.
const IN_TIME: Duration = Duration::from_secs(120);
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/chart");
const MACHINES: &str = "openshift-machine-api";
/// Role of the test's own, with the right to make the hosts' user data.
const USER_DATA_ROLE: &str = "user-data";
/// The user of the image, as deploy/image/Containerfile has it.
const USER: (u32, u32) = (65532, 65532);
/// How many times as fast as life the hosts are.
const SPEED: f64 = 60.0;

/// Images in folders.
struct Images(TempDir);

impl Images {
    fn empty(&self, name: &str) -> PodImage {
        let root = self.0.path().join(name);
        std::fs::create_dir_all(&root).expect("written");
        PodImage {
            root,
            ..PodImage::default()
        }
    }

    /// dormer's image: what deploy/image/Containerfile puts into it, with this build's program.
    fn dormer(&self, name: &str) -> PodImage {
        let image = PodImage {
            entrypoint: vec!["/usr/bin/dormer".into()],
            env: vec!["SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt".into()],
            user: USER,
            ..self.empty(name)
        };
        let program = Path::new(env!("CARGO_BIN_EXE_dormer"));
        image.program(program, "/usr/bin/dormer").expect("a file");
        let host_program = crate::host_program(self.0.path());
        let at = "/usr/share/dormer/dormer-host.exe";
        image.file(Path::new(&host_program), at).expect("a file");
        image
    }

    /// A payload's image, which stands on dormer's.
    fn payload(&self, version: &str) -> PodImage {
        let image = self.dormer(&format!("payload-{version}"));
        write_example(&image.root.join("payload"), version).expect("a payload");
        image
    }

    /// A shell and a few programs.
    fn shell(&self) -> PodImage {
        let image = self.empty("shell");
        for program in [
            "sh", "cat", "touch", "chown", "mknod", "id", "stat", "sleep",
        ] {
            let at = format!("/bin/{program}");
            image.program(Path::new(&at), &at).expect("a program");
        }
        image
    }
}

/// A cluster with a Node for pods, a simulated fleet, and a release of the chart.
struct Release {
    world: World,
    helm: Helm,
    kubeconfig: String,
    values: Vec<String>,
    node: PodNode,
    fleet: OutsideWorld,
    /// The console's certificate, and who signed it.
    tls: Identity,
    tls_ca: String,
    folder: TempDir,
    _images: Images,
    _plane: ControlPlane,
}

impl Release {
    fn helm(&self, arguments: &[&str]) -> String {
        self.helm
            .run(&self.kubeconfig, arguments)
            .unwrap_or_else(|why| panic!("{arguments:?}: {why}"))
    }

    /// `helm install` or `helm upgrade` to a stamp of the image, with payloads in the order of the list.
    fn apply(&self, verb: &str, stamp: &str, payloads: &[&str]) {
        let mut arguments = vec![verb.to_owned(), "dormer".into(), CHART.into()];
        arguments.extend(self.values.clone());
        arguments.push(format!("--set=image.tag={stamp}"));
        arguments.push("--set=payloadUnsigned=true".into());
        for (number, version) in payloads.iter().enumerate() {
            arguments.push(format!("--set=payloads[{number}].name={version}"));
            arguments.push(format!("--set=payloads[{number}].image=payload:{version}"));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.helm(&arguments);
    }

    /// Waits until the pod is Ready with this stamp and these payloads, and answers it.
    async fn ready(&self, stamp: &str, payloads: usize) -> Value {
        let what = format!("dormer-0 is Ready with {stamp}");
        self.until(&what, async || {
            let pod = self.world.get(POD, "dormer", "dormer-0").await?;
            let spec = &pod["spec"];
            let is = spec["containers"][0]["image"] == format!("dormer:{stamp}")
                && spec["initContainers"].as_array()?.len() == payloads
                && condition(&pod, "Ready");
            is.then_some(pod)
        })
        .await
    }

    /// Waits until so many machines serve at a version, by the cluster's word and by dormer's.
    async fn all_serve(&self, count: usize, version: &str) {
        let what = format!("{count} serve at {version}");
        self.until(&what, async || {
            let machines = self.world.list(MACHINE, MACHINES).await;
            let served = self.serving(version).await;
            let shown = self.world.list(WINDOWS_MACHINE, MACHINES).await;
            let joined = shown.iter().filter(|it| it["status"]["state"] == "Joined");
            let all = [machines.len(), served.len(), joined.count()];
            (all == [count; 3]).then_some(())
        })
        .await;
    }

    async fn serving(&self, version: &str) -> Vec<Value> {
        let mut nodes = self.world.list(NODE, "").await;
        nodes.retain(|node| serves(node, version));
        nodes
    }

    async fn scale(&self, replicas: u32) {
        let sets = self.world.list(MACHINE_SET, MACHINES).await;
        let name = sets[0]["metadata"]["name"].as_str().expect("a name");
        let change = json!({"spec": {"replicas": replicas}});
        self.world.patch(MACHINE_SET, MACHINES, name, change).await;
    }

    /// Waits for something; says how all stands if it never comes.
    async fn until<T>(&self, what: &str, mut so: impl AsyncFnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        let mut again = tokio::time::interval(Duration::from_millis(100));
        loop {
            if let Some(found) = so().await {
                return found;
            }
            if begun.elapsed() > IN_TIME {
                let mut lines = vec![format!("never: {what}")];
                for (kind, namespace) in [
                    (POD, "dormer"),
                    (MACHINE, MACHINES),
                    (WINDOWS_MACHINE, MACHINES),
                ] {
                    let all = self.world.list(kind, namespace).await;
                    lines.extend(
                        all.iter()
                            .map(|it| format!("{}: {}", it["metadata"]["name"], it["status"])),
                    );
                }
                let log = self.node.log("dormer-0");
                let log: Vec<&str> = log.lines().rev().take(30).collect();
                lines.extend(log.into_iter().rev().map(str::to_owned));
                panic!("{}", lines.join("\n"));
            }
            again.tick().await;
        }
    }

    /// What a person makes before the chart, and what a cluster's storage makes.
    async fn prepare(&self) {
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "dormer", "labels": labels}});
        self.world.create(namespace).await;
        self.world.namespace("web").await;
        let key = &self.fleet.ssh_key.private_pem;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"private-key.pem": key},
            "metadata": {"name": "cloud-private-key", "namespace": "dormer"}});
        self.world.create(secret).await;
        let tls = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "own-tls", "namespace": "dormer"},
            "stringData": {"tls.crt": self.tls.certificate, "tls.key": self.tls.key}});
        self.world.create(tls).await;
        // As an installer writes it; the user data of hosts differs by it.
        let platform = json!({"platform": "AWS", "platformStatus": {"type": "AWS"}});
        self.world
            .status(INFRASTRUCTURE, "", "cluster", platform)
            .await;
        let path = self.folder.path().join("store");
        std::fs::create_dir(&path).expect("written");
        let node = json!({"matchExpressions": [{"key": "kubernetes.io/hostname",
            "operator": "In", "values": ["linux-a"]}]});
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "store"},
            "spec": {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"],
                "local": {"path": path},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [node]}}}});
        self.world.create(volume).await;
        // The server has OpenShift's kinds, so that dormer makes the hosts' user data; for plain Kubernetes the chart grants no
        // such right.
        let rules = json!([
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["windows-user-data"], "verbs": ["get", "watch", "update"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        ]);
        let named = json!({"name": USER_DATA_ROLE, "namespace": MACHINES});
        let version = "rbac.authorization.k8s.io/v1";
        let role =
            json!({"apiVersion": version, "kind": "Role", "metadata": named, "rules": rules});
        self.world.create(role).await;
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": USER_DATA_ROLE});
        let subjects = json!([{"kind": "ServiceAccount", "name": "dormer", "namespace": "dormer"}]);
        let binding = json!({"apiVersion": version, "kind": "RoleBinding", "metadata": named, "roleRef": role,
            "subjects": subjects});
        self.world.create(binding).await;
    }

    /// The Machines of the fleet, and a web server for them.
    async fn furnish(&self) {
        self.until("dormer has made the user data", async || {
            let kind = ("", "v1", "Secret");
            self.world.get(kind, MACHINES, "windows-user-data").await
        })
        .await;
        for object in self.fleet.furniture().expect("objects") {
            // dormer makes the hosts' user data itself.
            if object["kind"] != "Secret" {
                self.world.create(object).await;
            }
        }
    }

    /// Token of a user who may read.
    async fn reader(&self) -> String {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "reader", "namespace": "default"}});
        let _ = self.world.try_create(account).await;
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dormer-viewer"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]});
        let _ = self.world.try_create(binding).await;
        granted(&self.world, "default", "reader").await
    }

    /// What dormer's client prints of the machines for a user who may read.
    async fn asked(&self) -> Result<Value, String> {
        let token = self.reader().await;
        let port = self.node.forward("dormer-0", 7080);
        let ca = self.folder.path().join("ca.pem");
        std::fs::write(&ca, &self.tls_ca).expect("written");
        let done = Command::new(env!("CARGO_BIN_EXE_dormer"))
            .args(["get", "machines", "-o", "json", "--server"])
            .arg(format!("https://127.0.0.1:{port}"))
            .arg("--ca-file")
            .arg(&ca)
            .env("DORMER_TOKEN", token)
            .output()
            .expect("dormer runs");
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        }
        serde_json::from_slice(&done.stdout).map_err(|error| error.to_string())
    }
}

/// A release that is not yet installed, and its fleet.
async fn release(helm: Helm, plane: ControlPlane, node: PodNode) -> Release {
    let kubeconfig = plane.kubeconfig(&plane.admin());
    let world = World {
        admin: client(&kubeconfig).await,
    };
    let Speaker::Certificate(controllers) = plane.user("controllers", Some("system:masters"))
    else {
        unreachable!("a user has a certificate")
    };
    let ssh_port = free_port();
    let fleet = OutsideWorld::start(OutsideConfig {
        outside: Outside {
            url: plane.url(),
            ca_pem: plane.ca(),
            cert_pem: controllers.certificate,
            key_pem: controllers.key,
            machines: Some(MACHINES.into()),
            cluster_machines: None,
        },
        machines: 2,
        two_sets: false,
        cluster_machines: 0,
        site: "pods".into(),
        pods: "web".into(),
        faults: vec![],
        pace: Pace::times_faster(SPEED),
        ssh_port,
    });
    let images = Images(test_dir("images"));
    for stamp in ["one", "two"] {
        node.image(&format!("dormer:{stamp}"), images.dormer(stamp));
    }
    for version in ["11.0.0", "11.1.0"] {
        node.image(&format!("payload:{version}"), images.payload(version));
    }
    let authority = TestCa::new();
    Release {
        tls: authority.issue("dormer", &["127.0.0.1", "dormer.dormer.svc"]),
        tls_ca: authority.certificate(),
        values: vec![
            "--namespace=dormer".into(),
            "--set=platform=upstream".into(),
            format!("--set=machineNamespace={MACHINES}"),
            format!("--set=join.apiUrl={}", plane.url()),
            "--set=join.serviceCidr=10.96.0.0/16".into(),
            format!("--set=sshPort={ssh_port}"),
            "--set=pool.spec.soak=1s".into(),
            "--set=http.tlsSecret=own-tls".into(),
        ],
        world,
        helm,
        kubeconfig,
        node,
        fleet: fleet.expect("a world"),
        folder: test_dir("volumes"),
        _images: images,
        _plane: plane,
    }
}

/// dormer comes up from the chart and brings two machines up. With an upgrade of theirs in flight it is upgraded itself;
/// while a third machine comes up its pod is killed, and it is set back to the stamp before. Then it is taken away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_in_pods_is_upgraded_with_work_in_flight_and_taken_away() {
    let helm = started!(Helm::start());
    let plane = match plane_without_ours() {
        Ok(plane) => plane,
        Err(skipped) => skip!(skipped),
    };
    let node = started!(PodNode::start(&plane, "linux-a"));
    let release = release(helm, plane, node).await;
    release.prepare().await;
    release.apply("install", "one", &["11.0.0"]);
    release.ready("one", 1).await;
    release.furnish().await;
    release.all_serve(2, "11.0.0-").await;
    let machines = release.asked().await.expect("a reader is answered");
    assert_eq!(machines.as_array().map(Vec::len), Some(2), "{machines}");

    // New programs for the hosts, and with the first of them under way a new stamp of dormer.
    let first = uids(&release.world.list(MACHINE, MACHINES).await);
    let before = release.fleet.record.tally();
    release.fleet.record.reset_max_unavailable();
    release.apply("upgrade", "one", &["11.1.0", "11.0.0"]);
    release
        .until("the first is taken", async || {
            let now = release.fleet.record.tally();
            (now.machines_deleted > before.machines_deleted).then_some(())
        })
        .await;
    release.apply("upgrade", "two", &["11.1.0", "11.0.0"]);
    // helm takes its time, and one machine may be done by now.
    assert!(
        release.serving("11.1.0-").await.len() < 2,
        "work is in flight"
    );
    release.ready("two", 2).await;
    release.all_serve(2, "11.1.0-").await;
    let now = uids(&release.world.list(MACHINE, MACHINES).await);
    assert!(
        now.iter().all(|uid| !first.contains(uid)),
        "both were replaced"
    );
    let after = release.fleet.record.tally();
    assert_eq!(
        after.machines_deleted - before.machines_deleted,
        2,
        "each once"
    );
    assert_eq!(
        after.pods_deleted, before.pods_deleted,
        "no budget was passed over"
    );
    let most = release.fleet.record.max_unavailable_observed();
    assert_eq!(most, 1, "one node at a time");

    // The pod is killed with a machine on its way up, and starts again by itself.
    release.scale(3).await;
    release
        .until("dormer works on the third", async || {
            let shown = release.world.list(WINDOWS_MACHINE, MACHINES).await;
            let joined = shown.iter().filter(|it| it["status"]["state"] == "Joined");
            (shown.len() == 3 && joined.count() == 2).then_some(())
        })
        .await;
    release.node.kill("dormer-0");
    let pod = release
        .until("it runs again", async || {
            let pod = release.world.get(POD, "dormer", "dormer-0").await?;
            let status = &pod["status"]["containerStatuses"][0];
            (status["restartCount"] == 1 && condition(&pod, "Ready")).then_some(pod)
        })
        .await;
    let last = &pod["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 137, "{last}");
    release.apply("upgrade", "one", &["11.1.0", "11.0.0"]);
    release.ready("one", 2).await;
    release.all_serve(3, "11.1.0-").await;
    let end = release.fleet.record.tally();
    assert_eq!(
        end.machines_deleted, after.machines_deleted,
        "nobody else was replaced"
    );
    let machines = release.asked().await.expect("a reader is answered");
    assert_eq!(machines.as_array().map(Vec::len), Some(3), "{machines}");

    let log = release.node.log("dormer-0");
    let refused = log
        .lines()
        .find(|line| line.contains("may not ") || line.contains("forbidden"));
    assert_eq!(refused, None);
    taken_away(&release).await;
}

/// A pod that runs dormer's image once, with the authority of the console's certificate as the only one.
fn once(name: &str, arguments: &[&str]) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "dormer"},
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": false,
            "nodeSelector": {"kubernetes.io/hostname": "linux-a"},
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "image": "dormer:one", "args": arguments,
                "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]}},
                "env": [{"name": "SSL_CERT_FILE", "value": "/reader/ca.crt"},
                    {"name": "DORMER_TOKEN", "valueFrom": {"secretKeyRef": {"name": "reader", "key": "token"}}}],
                "volumeMounts": [{"name": "reader", "mountPath": "/reader"}]}],
            "volumes": [{"name": "reader", "secret": {"secretName": "reader"}}]}})
}

/// dormer comes up from its image and a payload's, both in OCI's layout, and brings two machines up. Its client in a pod of
/// the same image reaches it by name over TLS.
pub(crate) async fn a_release_comes_up_from_images(dormer: &Path, payload: &Path) {
    let helm = started!(Helm::start());
    let plane = match plane_without_ours() {
        Ok(plane) => plane,
        Err(skipped) => skip!(skipped),
    };
    let node = started!(PodNode::start(&plane, "linux-a"));
    let release = release(helm, plane, node).await;
    let unpacked = test_dir("unpacked");
    for (name, layout) in [("dormer:one", dormer), ("payload:11.0.0", payload)] {
        // An overlay's list of folders has colons between them.
        let root = unpacked.path().join(name.replace(':', "-"));
        let image = PodImage::from_oci(layout, &root);
        release.node.image(name, image.expect("an image"));
    }
    release.prepare().await;
    release.apply("install", "one", &["11.0.0"]);
    release.ready("one", 1).await;
    release.furnish().await;
    release.all_serve(2, "11.0.0-").await;

    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "reader", "namespace": "dormer"},
        "stringData": {"token": release.reader().await, "ca.crt": release.tls_ca}});
    release.world.create(secret).await;
    let server = "https://dormer.dormer.svc:7080";
    let asks = ["get", "machines", "--server", server];
    release.world.create(once("version", &["version"])).await;
    release.world.create(once("asks", &asks)).await;
    let said = async |name: &str| {
        release
            .until(&format!("{name} has ended"), async || {
                let pod = release.world.get(POD, "dormer", name).await?;
                let phase = pod["status"]["phase"].as_str().unwrap_or_default();
                ["Succeeded", "Failed"].contains(&phase).then_some(())
            })
            .await;
        release.node.log(name)
    };
    let version = said("version").await;
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let machines = said("asks").await;
    assert_eq!(machines.matches("Joined").count(), 2, "{machines}");
}

/// Kills in the story of kills, and machines.
const KILLS: u64 = 5;
const MANY: u32 = 4;
const SEED: u64 = 0x6b69_6c6c;

/// dormer's pod is killed again and again while machines are upgraded, each time after a number of remote commands that is
/// drawn from a seed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_goes_to_its_end_however_often_the_pod_is_killed() {
    let part = long!("pods");
    let helm = started!(Helm::start());
    let plane = match plane_without_ours() {
        Ok(plane) => plane,
        Err(skipped) => skip!(skipped),
    };
    let node = started!(PodNode::start(&plane, "linux-a"));
    let release = release(helm, plane, node).await;
    release.prepare().await;
    release.apply("install", "one", &["11.0.0"]);
    release.ready("one", 1).await;
    release.furnish().await;
    release.scale(MANY).await;
    release.all_serve(MANY as usize, "11.0.0-").await;
    let before = release.fleet.record.tally();
    release.fleet.record.reset_max_unavailable();
    release.apply("upgrade", "one", &["11.1.0", "11.0.0"]);
    release.ready("one", 2).await;

    let mut random = StdRng::seed_from_u64(SEED);
    let began = Instant::now();
    for kill in 1..=KILLS {
        let now = release.fleet.record.tally().remote_commands;
        let until = now + random.random_range(1..=6);
        release
            .until(&format!("work before kill {kill}"), async || {
                let now = release.fleet.record.tally().remote_commands;
                (now >= until).then_some(())
            })
            .await;
        assert!(
            release.serving("11.1.0-").await.len() < MANY as usize,
            "work is in flight at kill {kill} of seed {SEED:#x}"
        );
        release.node.kill("dormer-0");
        release
            .until(&format!("it runs again after kill {kill}"), async || {
                let pod = release.world.get(POD, "dormer", "dormer-0").await?;
                let status = &pod["status"]["containerStatuses"][0];
                (status["restartCount"] == kill && condition(&pod, "Ready")).then_some(())
            })
            .await;
    }
    release.all_serve(MANY as usize, "11.1.0-").await;
    let after = release.fleet.record.tally();
    assert_eq!(
        after.machines_deleted - before.machines_deleted,
        u64::from(MANY),
        "each once"
    );
    assert_eq!(
        after.pods_deleted, before.pods_deleted,
        "no budget was passed over"
    );
    let most = release.fleet.record.max_unavailable_observed();
    assert_eq!(most, 1, "one node at a time");
    part.passed(&[
        ("kills", KILLS.to_string()),
        ("seed", format!("{SEED:#x}")),
        ("upgrade", format!("{} s", began.elapsed().as_secs())),
    ]);
}

/// The release goes: accounts, rights and pods with it. dormer's own command takes the rest, and nodes serve on.
async fn taken_away(release: &Release) {
    // What the test itself granted.
    for (kind, namespace, name) in [
        ("ClusterRoleBinding", "", "reader"),
        ("RoleBinding", MACHINES, USER_DATA_ROLE),
        ("Role", MACHINES, USER_DATA_ROLE),
    ] {
        let kind = ("rbac.authorization.k8s.io", "v1", kind);
        release.world.delete(kind, namespace, name).await;
    }
    release.helm(&["uninstall", "dormer", "--namespace=dormer", "--wait"]);
    release
        .until("the pod is gone", async || {
            let pods = release.world.list(POD, "dormer").await;
            pods.is_empty().then_some(())
        })
        .await;
    let left = inventory_but(
        &release.world.admin,
        &[
            "APIService",
            "Event",
            "MachineSet",
            "CertificateSigningRequest",
        ],
    )
    .await;
    let stays = STAYS.map(|kind| format!("{kind} "));
    let superfluous: Vec<&String> = left
        .iter()
        .filter(|line| !stays.iter().any(|kind| line.starts_with(kind.as_str())))
        .collect();
    assert!(superfluous.is_empty(), "{superfluous:#?}");
    let kubeconfig = release.folder.path().join("admin.conf");
    std::fs::write(&kubeconfig, &release.kubeconfig).expect("written");
    let done = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args([
            "uninstall",
            "--namespace=dormer",
            "--keep-nodes",
            "--yes",
            "--kubeconfig",
        ])
        .arg(kubeconfig)
        .output()
        .expect("dormer runs");
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let left = inventory_but(&release.world.admin, &NOT_TRACES).await;
    let ours = |line: &&String| !line.starts_with("PersistentVolumeClaim ");
    assert_eq!(
        left.iter().filter(ours).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
    let nodes = release.world.list(NODE, "").await;
    let serving = |node: &&Value| condition(node, "Ready") && node["spec"]["unschedulable"] != true;
    let windows = |node: &&Value| node["metadata"]["labels"]["kubernetes.io/os"] == "windows";
    let serving = nodes.iter().filter(windows).filter(serving);
    assert_eq!(serving.count(), 3, "nodes serve on");
}

/// Kinds whose objects `helm uninstall` leaves: docs/install.md and docs/uninstall.md say why.
const STAYS: [&str; 10] = [
    "CustomResourceDefinition",
    "Lease",
    "Machine",
    "Namespace",
    "Node",
    "PersistentVolumeClaim",
    "RuntimeClass",
    "Secret",
    "WindowsMachine",
    "WindowsPool",
];

/// What a pod tries, each a line of its log if it succeeds.
const TRIES: &str = "
touch /written 2>/dev/null && echo wrote to the root file system
touch /tmp/mine && chown 1:1 /tmp/mine 2>/dev/null && echo gave a file away
mknod /tmp/node c 1 3 2>/dev/null && echo made a device
touch /secret/new 2>/dev/null && echo wrote to a Secret
[ $(id -u) = 0 ] && echo runs as root
cat /secret/word && echo
cat /var/run/secrets/kubernetes.io/serviceaccount/namespace && echo
[ -r /var/run/secrets/kubernetes.io/serviceaccount/token ] && echo has a token
echo $(stat -c %u:%g:%a /secret/word) $(stat -c %a /tmp) of $NAME
while read -r name value; do [ $name = NoNewPrivs: ] && echo no new privileges: $value; done </proc/self/status
exit 0";

/// A pod with a shell that tries [`TRIES`], and a Secret.
fn tries(name: &str, pod_security: Value, security: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "restrained"},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": "linux-b"},
            "securityContext": pod_security,
            "containers": [{"name": "c", "image": "shell", "command": ["sh", "-c", TRIES],
                "securityContext": security,
                "env": [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"},
                    {"name": "secret", "mountPath": "/secret"}]}],
            "volumes": [{"name": "tmp", "emptyDir": {}},
                {"name": "secret", "secret": {"secretName": "word", "defaultMode": 0o400}}]}})
}

/// What a security context forbids is forbidden, and without one it is not: a Node that let everything pass would prove
/// nothing about the chart. What the Node does not implement fails the pod by its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_held_to_its_security_context() {
    let plane = match with_kubelets() {
        Ok(plane) => plane,
        Err(skipped) => skip!(skipped),
    };
    let node = started!(PodNode::start(plane, "linux-b"));
    let images = Images(test_dir("images"));
    node.image("shell", images.shell());
    let world = World {
        admin: client(&plane.kubeconfig(&plane.admin())).await,
    };
    world.namespace("restrained").await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"word": "sesame"},
        "metadata": {"name": "word", "namespace": "restrained"}});
    world.create(secret).await;
    let restricted = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}});
    let user = json!({"runAsNonRoot": true, "runAsUser": 7, "runAsGroup": 7, "fsGroup": 7});
    let pods = [
        tries("free", json!({}), json!({})),
        tries("strict", user, restricted.clone()),
        tries("root", json!({"runAsNonRoot": true}), restricted),
        tries(
            "powerless",
            json!({}),
            json!({"capabilities": {"drop": ["ALL"]}}),
        ),
        {
            let mut pod = tries("unknown", json!({}), json!({}));
            pod["spec"]["shareProcessNamespace"] = json!(true);
            pod
        },
        // Its probe fails until the file is there; it answers SIGTERM.
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probed", "namespace": "restrained"},
            "spec": {"nodeSelector": {"kubernetes.io/hostname": "linux-b"},
                "containers": [{"name": "c", "image": "shell",
                    "command": ["sh", "-c", "trap 'echo asked to end; exit 0' TERM; echo begins; [ -e /d/once ] && touch /d/ready; touch /d/once; while :; do sleep 0.1; done"],
                    // On a slow machine the shell needs some seconds until its trap is set.
                    "startupProbe": {"exec": {"command": ["cat", "/d/ready"]}, "periodSeconds": 1, "failureThreshold": 8},
                    "volumeMounts": [{"name": "d", "mountPath": "/d"}]}],
                "volumes": [{"name": "d", "emptyDir": {}}]}}),
    ];
    for pod in pods {
        world.create(pod).await;
    }
    let over = async |name: &str, phase: &str| {
        let what = format!("{name} is {phase}");
        let pod = await_some(&what, IN_TIME, || async {
            let pod = world.get(POD, "restrained", name).await?;
            (pod["status"]["phase"] == phase).then_some(pod)
        });
        (pod.await, node.log(name))
    };
    let (_, log) = over("free", "Succeeded").await;
    assert_eq!(
        log.lines().collect::<Vec<_>>(),
        [
            "wrote to the root file system",
            "gave a file away",
            "made a device",
            "runs as root",
            "sesame",
            "restrained",
            "has a token",
            "0:0:400 777 of free",
            "no new privileges: 0",
        ]
    );
    let (_, log) = over("strict", "Succeeded").await;
    let strict = [
        "sesame",
        "restrained",
        "has a token",
        "0:7:440 2777 of strict",
        "no new privileges: 1",
    ];
    assert_eq!(log.lines().collect::<Vec<_>>(), strict);
    let (_, log) = over("powerless", "Succeeded").await;
    assert!(
        !log.contains("gave a file away") && !log.contains("made a device"),
        "{log}"
    );
    assert!(log.contains("runs as root"), "{log}");
    let (pod, _) = over("unknown", "Failed").await;
    let why = pod["status"]["message"].as_str().unwrap_or_default();
    assert_eq!(why, "spec.shareProcessNamespace is not implemented");
    let waiting = await_some("root is refused", IN_TIME, || async {
        let pod = world.get(POD, "restrained", "root").await?;
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        (waiting["reason"] == "CreateContainerConfigError").then(|| waiting.to_string())
    });
    assert!(waiting.await.contains("runAsNonRoot"));
    assert_eq!(node.log("root"), "");

    await_some(
        "the probed pod is Ready at its second start",
        IN_TIME,
        || async {
            let pod = world.get(POD, "restrained", "probed").await?;
            let again = pod["status"]["containerStatuses"][0]["restartCount"] == 1;
            (again && condition(&pod, "Ready")).then_some(())
        },
    )
    .await;
    for pod in world.list(POD, "restrained").await {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let api = world.api(POD, "restrained");
        api.delete(name, &DeleteParams::default())
            .await
            .expect("it is taken");
    }
    await_some("all pods are gone", IN_TIME, || async {
        world.list(POD, "restrained").await.is_empty().then_some(())
    })
    .await;
    let log = node.log("probed");
    let lines = ["begins", "asked to end", "begins", "asked to end"];
    assert_eq!(log.lines().collect::<Vec<_>>(), lines);
    // Other tests continue with this control plane.
    world.delete(NODE, "", "linux-b").await;
}
