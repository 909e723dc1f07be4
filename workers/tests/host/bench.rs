//! A simulated Windows host, and the executor of a worker that are to bring it up.

use bytes::Bytes;
use dormer_fleet::{
    World, WorldConfig,
    api::{Key as ObjectKey, User, kinds},
    cluster::client::Client as Admin,
    host::{HostCounts, HostPhase},
    net,
};
use dormer_profile::{
    cluster_config::ClusterSnapshot, payload::Manifest, payload::PayloadFile,
    render::EXAMPLE_PAYLOAD,
};
use dormer_proto::{
    id::{Attempt, Incarnation, LeaseToken, RunId, Seq, Sum, TaskId, Timestamp},
    machine::{HostRef, MachineRef, Outcome, Section, Task},
    message::Failure,
    pool::Desired,
    work::Order,
};
use dormer_workers::{
    catalog::Catalog,
    execute::Execute,
    host::{
        HostExecutor, HostProgram,
        cluster::{Bootstrap, CloudToken, Cluster, MachineInCluster},
    },
    payload::Payload,
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
use zeroize::Zeroizing;

struct Reach(net::Dialer);

impl Dial for Reach {
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let dialled = self.0.dial(&format!("{address}:22"));
        Box::pin(async move { Ok(Box::new(dialled.await?) as BoxIo) })
    }
}

/// The cluster as far as hosts need it.
pub(crate) struct Plain {
    bootstrap: Bootstrap,
    pub(crate) noted: Mutex<Vec<String>>,
    /// The host key that is pinned on the Machine.
    pub(crate) pinned: Mutex<Option<String>>,
    /// The machine's own token, where it has one; else one is for all.
    pub(crate) own: Mutex<Option<OwnToken>>,
    /// Of the node's cloud-node-manager.
    pub(crate) cloud: Mutex<CloudTokens>,
}

/// Tokens of a node's cloud-node-manager.
#[derive(Default)]
pub(crate) struct CloudTokens {
    /// So many were given.
    pub(crate) given: u32,
    /// The last one is noted, and lasts.
    pub(crate) lasts: bool,
}

/// A machine's own token.
#[derive(Clone)]
pub(crate) struct OwnToken {
    pub(crate) text: String,
    /// Whether the machine needs it no more.
    pub(crate) joined: bool,
    /// How often it was asked for.
    pub(crate) asked: u32,
}

impl Plain {
    /// From now on the machine has a token of its own, which is at first the one that was for all.
    pub(crate) fn own_token(&self) {
        let text = self
            .bootstrap
            .token
            .as_ref()
            .expect("one for all")
            .to_string();
        self.change_own(|own| {
            *own = Some(OwnToken {
                text,
                joined: false,
                asked: 0,
            })
        });
    }

    pub(crate) fn change_own<T>(&self, change: impl FnOnce(&mut Option<OwnToken>) -> T) -> T {
        change(&mut self.own.lock().expect("a token"))
    }
}

impl Cluster for Plain {
    async fn note(&self, _: &MachineRef, node_name: &str, _: &str) -> Result<(), Failure> {
        self.noted.lock().expect("notes").push(node_name.to_owned());
        Ok(())
    }

    async fn pinned(&self, _: &HostRef) -> Result<Option<String>, Failure> {
        Ok(self.pinned.lock().expect("a pin").clone())
    }

    async fn pin(&self, _: &MachineRef, host_key: &str) -> Result<(), Failure> {
        *self.pinned.lock().expect("a pin") = Some(host_key.to_owned());
        Ok(())
    }

    async fn leaves(&self, _: &MachineRef) -> Result<bool, Failure> {
        Ok(false)
    }

    async fn machine_in_cluster(
        &self,
        _: &MachineRef,
        _: Option<&str>,
    ) -> Result<MachineInCluster, Failure> {
        let noted = self.noted.lock().expect("notes").last().cloned();
        let names = vec!["ip-10-0-0-9.ec2.internal".to_owned()];
        let joined = self.change_own(|own| own.as_ref().is_some_and(|own| own.joined));
        Ok(MachineInCluster {
            token: LeaseToken(3),
            pods: 2,
            subnet: None,
            names,
            noted,
            joined,
        })
    }

    async fn read_cluster(&self) -> ClusterSnapshot {
        ClusterSnapshot::default()
    }

    async fn bootstrap(&self) -> Result<Bootstrap, Failure> {
        let own = self.change_own(|own| own.is_some());
        let token = self.bootstrap.token.clone().filter(|_| !own);
        Ok(Bootstrap {
            token,
            ..self.bootstrap.clone()
        })
    }

    async fn token(&self, _: &MachineRef) -> Result<Zeroizing<String>, Failure> {
        self.change_own(|own| {
            let own = own.as_mut().expect("the machine has one");
            own.asked += 1;
            Ok(own.text.clone().into())
        })
    }

    async fn cloud_token(&self, node: &str, renew: bool) -> Result<CloudToken, Failure> {
        let mut cloud = self.cloud.lock().expect("the cloud's tokens");
        if renew {
            cloud.given += 1;
            let token = format!("cloud-t0ken-{}-of-{node}", cloud.given);
            return Ok(CloudToken::New {
                token: token.into(),
                node_uid: format!("uid-of-{node}"),
                due: Timestamp(u64::MAX),
            });
        }
        Ok(if cloud.lasts {
            CloudToken::Lasts
        } else {
            CloudToken::Due
        })
    }

    async fn note_cloud_token(&self, node: &str, uid: &str, _: Timestamp) -> Result<(), Failure> {
        assert_eq!(uid, format!("uid-of-{node}"));
        self.cloud.lock().expect("the cloud's tokens").lasts = true;
        Ok(())
    }
}

pub(crate) struct Bench {
    pub(crate) world: Arc<World>,
    /// Number of its host among those of the world.
    at: usize,
    pub(crate) executor: HostExecutor<Plain>,
    pub(crate) cluster: Arc<Plain>,
    catalog: Catalog,
    pub(crate) desired: Desired,
    pub(crate) seq: u64,
    /// The platform that the machine is said to be on.
    pub(crate) platform: &'static str,
    /// Names and ends of the remote commands, and of what failed beside them, that people are shown.
    pub(crate) shown: Vec<(String, String)>,
}

/// The example payload, with bodies of 300 kB that no packing makes smaller.
pub(crate) fn payload() -> (Manifest, BTreeMap<String, Bytes>) {
    with_bodies(&|name| {
        let mut state = name.bytes().fold(7_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let noise = (0..37_500).flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        noise.collect()
    })
}

/// The same, with bodies of 400 kB of which packing leaves a third.
pub(crate) fn payload_that_packs() -> (Manifest, BTreeMap<String, Bytes>) {
    with_bodies(&|name| {
        let line = |n: u32| format!("{name} {:08x} again\n", n.wrapping_mul(2_654_435_761));
        let mut text: Vec<u8> = (0..30_000).flat_map(|n| line(n).into_bytes()).collect();
        text.truncate(400_000);
        text
    })
}

fn with_bodies(body: &dyn Fn(&str) -> Vec<u8>) -> (Manifest, BTreeMap<String, Bytes>) {
    let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
    let mut files = BTreeMap::new();
    for file in &mut manifest.files {
        let head = format!("MZ {} v1.33.4 ", file.name).into_bytes();
        let bytes = [head, body(&file.name)].concat();
        *file = PayloadFile {
            sha256: dormer_profile::sha256_hex(&bytes),
            size: bytes.len() as u64,
            ..file.clone()
        };
        files.insert(file.name.clone(), Bytes::from(bytes));
    }
    (manifest, files)
}

/// The same, with one bit of each file turned.
pub(crate) fn damaged(
    (manifest, mut files): (Manifest, BTreeMap<String, Bytes>),
) -> (Manifest, BTreeMap<String, Bytes>) {
    for bytes in files.values_mut() {
        let mut turned = bytes.to_vec();
        turned[9] ^= 1;
        *bytes = turned.into();
    }
    (manifest, files)
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
        token: Some(
            String::from_utf8(token.expect("base64"))
                .expect("text")
                .into(),
        ),
        exporter_tls: None,
        cluster_dns: "172.30.0.10".into(),
        cluster_domain: "cluster.local".into(),
        service_cidr: "172.30.0.0/16".into(),
    }
}

/// The program that simulated hosts take for `dormer-host.exe`.
pub(crate) fn program() -> Arc<HostProgram> {
    Arc::new(HostProgram::of(dormer_fleet::host::stand_in()).expect("a program"))
}

fn executor(
    world: &World,
    catalog: &Catalog,
    program: Arc<HostProgram>,
    cluster: &Arc<Plain>,
) -> HostExecutor<Plain> {
    let key = Key::read(&world.ssh_key.private_pem).expect("a key");
    HostExecutor::new(
        Arc::new(Reach(world.host_dialer())),
        key,
        Limits::default(),
        catalog.clone(),
        program,
        Arc::clone(cluster),
    )
}

impl Bench {
    pub(crate) async fn start(faults: &[&str]) -> Self {
        Self::start_with(faults, payload()).await
    }

    pub(crate) async fn start_with(
        faults: &[&str],
        (manifest, files): (Manifest, BTreeMap<String, Bytes>),
    ) -> Self {
        let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
        let config = WorldConfig {
            faults,
            linux: false,
            workload: false,
            ..WorldConfig::in_memory(1)
        };
        let world = World::start(config).await.expect("a world");
        let bench = Self::at(Arc::new(world), 0, (manifest, files));
        bench.until("a host", |bench| bench.phase().is_some()).await;
        bench
    }

    /// A bench for each of so many hosts of one world.
    pub(crate) async fn start_many(hosts: u32) -> Vec<Self> {
        let config = WorldConfig {
            linux: false,
            workload: false,
            ..WorldConfig::in_memory(hosts)
        };
        let world = Arc::new(World::start(config).await.expect("a world"));
        let bench = |at: u32| Self::at(Arc::clone(&world), at as usize, payload());
        let benches: Vec<Self> = (0..hosts).map(bench).collect();
        let last = benches.last().expect("a host");
        let all = |bench: &Self| bench.hosts().len() == hosts as usize;
        last.until("all hosts", all).await;
        benches
    }

    fn at(
        world: Arc<World>,
        at: usize,
        (manifest, files): (Manifest, BTreeMap<String, Bytes>),
    ) -> Self {
        let catalog = Catalog::new(&[]).expect("a catalog");
        catalog.add(Payload::in_memory(manifest, files));
        let desired = catalog.desired("openshift", None).expect("a version")["10.0.20348"].clone();
        let noted = Mutex::default();
        let own = Mutex::default();
        let cluster = Arc::new(Plain {
            bootstrap: bootstrap(&world),
            noted,
            pinned: Mutex::default(),
            own,
            cloud: Mutex::default(),
        });
        let executor = executor(&world, &catalog, program(), &cluster);
        Self {
            world,
            at,
            executor,
            cluster,
            catalog,
            desired,
            seq: 0,
            platform: "AWS",
            shown: Vec::new(),
        }
    }

    /// dormer is updated: its worker brings another host program. Answers the program's name on the host.
    pub(crate) fn updated(&mut self) -> String {
        let program = HostProgram::of(dormer_fleet::host::later_stand_in()).expect("a program");
        let path = dormer_host::paths::program_path(program.sha256());
        self.executor = executor(&self.world, &self.catalog, Arc::new(program), &self.cluster);
        path
    }

    fn hosts(&self) -> Vec<Arc<dormer_fleet::host::Host>> {
        self.world.hosts.as_ref().expect("hosts").all()
    }

    /// The simulated host itself.
    pub(crate) fn simulated(&self) -> Arc<dormer_fleet::host::Host> {
        self.hosts().swap_remove(self.at)
    }

    pub(crate) fn counts(&self) -> HostCounts {
        self.world
            .hosts
            .as_ref()
            .expect("hosts")
            .counts()
            .pop()
            .expect("a host")
            .1
    }

    fn phase(&self) -> Option<HostPhase> {
        let host = self.hosts().into_iter().nth(self.at)?;
        Some(*host.watch_phase().borrow())
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut poll = tokio::time::interval(Duration::from_millis(500));
        for _ in 0..9_000 {
            poll.tick().await;
            if holds(self) {
                return;
            }
        }
        panic!("never: {what}");
    }

    pub(crate) fn host(&self) -> HostRef {
        let host = self.simulated();
        HostRef {
            machine: MachineRef {
                namespace: "ns".into(),
                name: "a".into(),
                uid: "u".into(),
                ..MachineRef::default()
            },
            address: host.internal_ip(),
            user: host.image().user.clone(),
            pin: None,
            platform: self.platform.into(),
        }
    }

    pub(crate) async fn attempt(&mut self, attempt: u64, body: Task) -> Result<Outcome, Failure> {
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
        let progress = Progress::default();
        let mut tick = tokio::time::interval(Duration::from_secs(5));
        let mut execution = std::pin::pin!(self.executor.execute(&order, &progress));
        loop {
            tokio::select! {
                answer = &mut execution => {
                    let ran = progress.take_commands().into_iter();
                    self.shown.extend(ran.map(|it| (it.name, it.ended)));
                    return answer;
                }
                // As a worker does.
                _ = tick.tick() => if progress.still_for() > Duration::from_secs(60) {
                    let message = format!("nothing moves in {}", progress.step_name());
                    return Err(Failure::transient("NoProgress", message));
                }
            }
        }
    }

    /// The engine's delay between two attempts.
    pub(crate) async fn pause(&self) {
        self.pass(Duration::from_secs(10)).await;
    }

    /// Lets the world's time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        let mut pause = tokio::time::interval(time);
        pause.tick().await;
        pause.tick().await;
    }

    /// Attempts until the host is up and gives another answer.
    pub(crate) async fn once_up(&mut self, body: Task) -> Result<Outcome, Failure> {
        self.seq += 1;
        for attempt in 1..200 {
            match self.attempt(attempt, body.clone()).await {
                Err(failure) if failure.retry => self.pause().await,
                other => return other,
            }
        }
        panic!("it never comes up");
    }

    pub(crate) async fn does(&mut self, body: Task) -> Outcome {
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

    pub(crate) fn converge(&self, section: Section, node_name: Option<String>) -> Task {
        Task::Converge {
            host: self.host(),
            section,
            desired: self.desired.clone(),
            generation: 1,
            node_name,
        }
    }

    pub(crate) fn plan(&self, node_name: Option<String>, adopt: bool) -> Task {
        let host = self.host();
        let desired = self.desired.clone();
        Task::Plan {
            host,
            desired,
            node_name,
            adopt,
            generation: 1,
            renew: false,
        }
    }

    /// A comparison that renews what ends.
    pub(crate) fn plan_and_renew(&self, node: &str) -> Task {
        let Task::Plan {
            host,
            desired,
            node_name,
            adopt,
            generation,
            ..
        } = self.plan(Some(node.to_owned()), false)
        else {
            panic!("a plan")
        };
        Task::Plan {
            host,
            desired,
            node_name,
            adopt,
            generation,
            renew: true,
        }
    }

    pub(crate) fn approve(&self) {
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

    /// Whether the Node of this name is Ready.
    pub(crate) fn is_ready(&self, name: &str) -> bool {
        self.ready_nodes().iter().any(|ready| ready == name)
    }

    pub(crate) fn ready_node(&self) -> Option<String> {
        self.ready_nodes().into_iter().next()
    }

    fn ready_nodes(&self) -> Vec<String> {
        self.approve();
        let ready = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array()?;
            conditions
                .iter()
                .find(|c| c["type"] == "Ready" && c["status"] == "True")
                .map(drop)
        };
        let nodes = self.world.all(&kinds::NODE).into_iter();
        nodes
            .filter(|node| ready(&node.value).is_some())
            .filter_map(|node| node.value["metadata"]["name"].as_str().map(str::to_owned))
            .collect()
    }
}
