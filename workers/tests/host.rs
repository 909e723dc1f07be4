//! The hands for Windows hosts against a simulated one, over real SSH and SFTP in memory.

use bytes::Bytes;
use dormer_fleet::{
    World, WorldConfig,
    api::{Key as ObjectKey, User, kinds},
    cluster::client::Client as Admin,
    host::Phase,
    net,
};
use dormer_profile::{payload::Manifest, payload::PayloadFile, render::EXAMPLE_PAYLOAD};
use dormer_proto::{
    id::{Attempt, Incarnation, LeaseToken, RunId, Seq, Sum, TaskId, Timestamp},
    machine::{ChangeClass, HostRef, MachineRef, Outcome, Section, Task},
    message::Failure,
    pool::Desired,
    work::Order,
};
use dormer_workers::{
    catalog::{Catalog, Payload},
    execute::Execute,
    host::{
        HostHands,
        cluster::{Bootstrap, Cluster, Standing},
    },
    pool::Installed,
    progress::Progress,
    ssh::{BoxIo, Dial, Key, Limits},
};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

struct Reach(net::Dialer);

impl Dial for Reach {
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let dialled = self.0.dial(&format!("{address}:22"));
        Box::pin(async move { Ok(Box::new(dialled.await?) as BoxIo) })
    }
}

/// The cluster as far as hosts need it.
struct Plain {
    bootstrap: Bootstrap,
    noted: Mutex<Vec<String>>,
}

impl Cluster for Plain {
    async fn note(&self, _: &MachineRef, node_name: &str, _: &str) -> Result<(), Failure> {
        self.noted.lock().expect("notes").push(node_name.to_owned());
        Ok(())
    }

    async fn standing(&self, _: &MachineRef, _: Option<&str>) -> Result<Standing, Failure> {
        Ok(Standing { token: LeaseToken(3), pods: 2, subnet: None })
    }

    async fn bootstrap(&self) -> Result<Bootstrap, Failure> {
        Ok(self.bootstrap.clone())
    }
}

struct Bench {
    world: World,
    hands: HostHands<Plain>,
    cluster: Arc<Plain>,
    desired: Desired,
    seq: u64,
}

fn payload() -> Payload {
    let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
    let mut files = BTreeMap::new();
    for file in &mut manifest.files {
        let bytes = format!("MZ {} v1.33.4 {}", file.name, "x".repeat(300_000)).into_bytes();
        *file = PayloadFile {
            sha256: dormer_profile::sha256_hex(&bytes),
            size: bytes.len() as u64,
            ..file.clone()
        };
        files.insert(file.name.clone(), Bytes::from(bytes));
    }
    Payload::in_memory(manifest, files)
}

fn bootstrap(world: &World) -> Bootstrap {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let secrets = world.all(&kinds::SECRET);
    let secret = secrets
        .iter()
        .find(|secret| secret.value["metadata"]["name"] == "node-bootstrapper-token")
        .expect("the bootstrap token");
    let token = STANDARD.decode(secret.value["data"]["token"].as_str().expect("text"));
    Bootstrap {
        api_url: world.api_url.to_string(),
        api_ca: world.api.ca().pem().to_string(),
        client_ca: world.api.ca().pem().to_string(),
        token: String::from_utf8(token.expect("base64")).expect("text").into(),
        cluster_dns: "172.30.0.10".into(),
        cluster_domain: "cluster.local".into(),
        service_cidr: "172.30.0.0/16".into(),
    }
}

impl Bench {
    async fn start(faults: &[&str]) -> Self {
        let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
        let config =
            WorldConfig { faults, linux: false, workload: false, ..WorldConfig::in_memory(1) };
        let world = World::start(config).await.expect("a world");
        let catalog = Catalog::new(&[]).expect("a catalog");
        catalog.add(payload());
        let desired = catalog.desired("openshift", None).expect("a version")["10.0.20348"].clone();
        let cluster = Arc::new(Plain { bootstrap: bootstrap(&world), noted: Mutex::default() });
        let key = Key::read(&world.ssh_key.private_pem).expect("a key");
        let reach = Arc::new(Reach(world.host_dialer()));
        let hands = HostHands::new(reach, key, Limits::default(), catalog, Arc::clone(&cluster));
        let bench = Self { world, hands, cluster, desired, seq: 0 };
        bench.until("a host", |bench| bench.phase().is_some()).await;
        bench
    }

    fn phase(&self) -> Option<Phase> {
        let host = self.world.hosts.as_ref()?.all().pop()?;
        Some(*host.watch_phase().borrow())
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut look_again = tokio::time::interval(Duration::from_millis(500));
        for _ in 0..9_000 {
            look_again.tick().await;
            if holds(self) {
                return;
            }
        }
        panic!("never: {what}");
    }

    fn host(&self) -> HostRef {
        let host = self.world.hosts.as_ref().expect("hosts").all().pop().expect("a host");
        HostRef {
            machine: MachineRef { namespace: "ns".into(), name: "a".into(), uid: "u".into() },
            address: host.internal_ip(),
            user: host.image().user.clone(),
            pin: None,
            platform: "AWS".into(),
        }
    }

    async fn attempt(&mut self, attempt: u64, body: Task) -> Result<Outcome, Failure> {
        let task = TaskId {
            run: RunId::new("machine", "u").expect("a run"),
            seq: Seq(self.seq),
            ordinal: 0,
        };
        let order = Order {
            task,
            attempt: Attempt(attempt),
            incarnation: Incarnation(1),
            issued: Sum(1),
            episode: Seq(0),
            at: Timestamp(0),
            limit_ms: 3_600_000,
            body,
        };
        self.hands.execute(&order, &Progress::default()).await
    }

    /// The engine's delay between two attempts.
    async fn pause(&self) {
        let mut pause = tokio::time::interval(Duration::from_secs(10));
        pause.tick().await;
        pause.tick().await;
    }

    /// Attempts until the host is up and gives another answer.
    async fn once_up(&mut self, body: Task) -> Result<Outcome, Failure> {
        self.seq += 1;
        for attempt in 1..200 {
            match self.attempt(attempt, body.clone()).await {
                Err(failure) if failure.retry => self.pause().await,
                other => return other,
            }
        }
        panic!("it never comes up");
    }

    async fn does(&mut self, body: Task) -> Outcome {
        self.seq += 1;
        let mut last = None;
        for attempt in 1..60 {
            match self.attempt(attempt, body.clone()).await {
                Ok(outcome) => return outcome,
                // The host is still booting.
                Err(failure) if failure.code.starts_with("Connect") => self.pause().await,
                Err(failure) => {
                    assert!(failure.retry, "{failure:?}");
                    last = Some(failure);
                    self.pause().await;
                }
            }
        }
        panic!("never done: {last:?}");
    }

    fn converge(&self, section: Section, node_name: Option<String>) -> Task {
        Task::Converge {
            host: self.host(),
            section,
            desired: self.desired.clone(),
            generation: 1,
            node_name,
        }
    }

    fn plan(&self, node_name: Option<String>, adopt: bool) -> Task {
        let (host, desired) = (self.host(), self.desired.clone());
        Task::Plan { host, desired, node_name, adopt, generation: 1 }
    }

    fn approve(&self) {
        let admin = Admin::new(&self.world.api, User::admin());
        for csr in self.world.all(&kinds::CSR) {
            if csr.value["status"]["conditions"].is_null() {
                let mut value = csr.value.clone();
                value["status"]["conditions"] = json!([{"type": "Approved", "status": "True",
                    "reason": "Test", "message": "", "lastUpdateTime": admin.stamp()}]);
                let key = ObjectKey::of(&value);
                let approving = admin.approve(&key, value);
                futures::executor::block_on(approving).expect("it is approved");
            }
        }
    }

    fn ready_node(&self) -> Option<String> {
        self.approve();
        let ready = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array()?;
            conditions.iter().find(|c| c["type"] == "Ready" && c["status"] == "True").map(drop)
        };
        let nodes = self.world.all(&kinds::NODE);
        let node = nodes.iter().find(|node| ready(&node.value).is_some())?;
        node.value["metadata"]["name"].as_str().map(str::to_owned)
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_host_becomes_a_node_and_is_torn_down() {
    let mut bench = Bench::start(&[]).await;
    let host = bench.host();
    let Outcome::Probed { facts, host_key, node_name } = bench.does(Task::Probe { host }).await
    else {
        panic!("another outcome");
    };
    assert_eq!(facts.os_build, "10.0.20348");
    assert!(host_key.starts_with("ssh-"), "{host_key}");
    assert_eq!(*bench.cluster.noted.lock().expect("notes"), [node_name.clone()]);

    let task = bench.converge(Section::Host, None);
    let Outcome::Converged { changed, reboot, .. } = bench.does(task).await else {
        panic!("another outcome");
    };
    assert!(changed > 10 && !reboot, "{changed}");
    let there = |bench: &Bench| {
        bench.approve();
        bench.world.all(&kinds::NODE).iter().any(|n| n.value["metadata"]["name"] == node_name)
    };
    bench.until("a node", there).await;

    let task = bench.converge(Section::Node, Some(node_name.clone()));
    bench.does(task).await;
    bench.until("a Ready node", |bench| bench.ready_node() == Some(node_name.clone())).await;
    let task = bench.plan(Some(node_name.clone()), false);
    let Outcome::Planned { class, differs, token, pods, .. } = bench.does(task).await else {
        panic!("another outcome");
    };
    assert_eq!((class, differs, token, pods), (None, vec![], LeaseToken(3), 2));

    let counts = bench.world.hosts.as_ref().expect("hosts").counts().pop().expect("one").1;
    assert_eq!(counts.unknown_commands, 0);
    assert_eq!(counts.sftp_sessions, 1);
    assert!(counts.remote_commands <= 10 && counts.powershell_starts <= 6, "{counts:?}");

    let task = Task::TearDown { host: bench.host(), generation: 1 };
    assert_eq!(bench.does(task).await, Outcome::TornDown);
    let task = bench.plan(None, true);
    let Outcome::Planned { class, generation, .. } = bench.does(task).await else {
        panic!("another outcome");
    };
    assert_eq!((class, generation), (Some(ChangeClass::Drain), 2));
}

#[tokio::test(start_paused = true)]
async fn a_feature_takes_one_reboot_that_is_asked_for() {
    let mut bench = Bench::start(&["feature-needs-reboot"]).await;
    let host = bench.host();
    bench.does(Task::Probe { host }).await;
    let task = bench.converge(Section::Host, None);
    let Outcome::Converged { reboot: true, boot_id, .. } = bench.does(task.clone()).await else {
        panic!("no reboot is asked for");
    };
    let reboot = Task::Reboot { host: bench.host(), boot_id: boot_id.clone(), generation: 1 };
    assert_eq!(bench.does(reboot.clone()).await, Outcome::RebootAsked);
    let probed = loop {
        let host = bench.host();
        if let Outcome::Probed { facts, .. } = bench.does(Task::Probe { host }).await
            && facts.boot_id != boot_id
        {
            break facts;
        }
    };
    assert_ne!(probed.boot_id, boot_id);
    // Asked twice, it reboots once.
    assert_eq!(bench.does(reboot).await, Outcome::RebootAsked);
    let Outcome::Converged { reboot: false, .. } = bench.does(task).await else {
        panic!("another reboot is asked for");
    };
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_is_cut_is_done_again() {
    for fault in ["upload-cut", "drop-during-script"] {
        let mut bench = Bench::start(&[fault]).await;
        let host = bench.host();
        bench.does(Task::Probe { host }).await;
        let task = bench.converge(Section::Host, None);
        let Outcome::Converged { .. } = bench.does(task).await else { panic!("another outcome") };
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_not_who_was_pinned_gets_no_command() {
    let mut bench = Bench::start(&[]).await;
    let host = HostRef { pin: Some("ssh-ed25519 AAAA".into()), ..bench.host() };
    let failure = bench.once_up(Task::Probe { host }).await.expect_err("another key");
    assert_eq!((failure.code.as_str(), failure.retry), ("HostKeyChanged", false));
    let counts = bench.world.hosts.as_ref().expect("hosts").counts().pop().expect("one").1;
    assert_eq!((counts.logins, counts.remote_commands), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_refused_says_so() {
    let mut bench = Bench::start(&["auth-refused"]).await;
    let task = Task::Probe { host: bench.host() };
    let failure = bench.once_up(task).await.expect_err("refused");
    assert_eq!((failure.code.as_str(), failure.retry), ("AuthRejected", false));
}

#[tokio::test(start_paused = true)]
async fn an_older_task_is_refused_by_the_host() {
    let mut bench = Bench::start(&[]).await;
    let host = bench.host();
    bench.does(Task::Probe { host }).await;
    bench.seq = 9;
    let task = bench.converge(Section::Host, None);
    bench.does(task.clone()).await;
    bench.seq = 4;
    let failure = bench.attempt(1, task).await.expect_err("stale");
    assert_eq!((failure.code.as_str(), failure.retry), ("fence_too_old", false));
}
