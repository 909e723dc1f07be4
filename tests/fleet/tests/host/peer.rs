//! A worker's side of SSH and SFTP, as small as it can be, and documents to send.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{Key, User, kinds},
    cluster::client::Client as Cluster,
    host::{Host, HostPhase, stand_in},
};
use dormer_host::arguments::{self, Announced, Call, command_line};
use dormer_host::paths::{BIN, ROOT, STAGING, program_path};
use dormer_profile::answer::Answer;
use dormer_profile::document::{ChangeClass, DOCUMENT_SCHEMA, Document, Fence, Section};
use dormer_profile::invocation::Mode;
use dormer_profile::item::{Item, ItemKind};
use dormer_profile::{frame, sha256_hex};
use russh::ChannelMsg;
use russh::client::{self, AuthResult};
use russh::keys::{Algorithm, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh_sftp::client::RawSftpSession;
use russh_sftp::protocol::{FileAttributes, OpenFlags};
use serde_json::{Value, json};

/// A world with one Windows machine that is up.
pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) waited: Duration,
}

/// A connection to the host.
pub(crate) struct Peer(client::Handle<TrustAll>);

pub(crate) struct TrustAll;

impl client::Handler for TrustAll {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

impl Bench {
    pub(crate) async fn start(faults: &[&str]) -> Self {
        let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
        let config = WorldConfig {
            faults,
            ..WorldConfig::in_memory(1)
        };
        Self::with(config).await
    }

    /// In a world that runs at another pace.
    pub(crate) async fn start_at(pace: Pace) -> Self {
        let config = WorldConfig {
            pace,
            ..WorldConfig::in_memory(1)
        };
        Self::with(config).await
    }

    pub(crate) async fn start_on_loopback() -> Self {
        let pace = Pace::times_faster(100.0);
        let config = WorldConfig {
            listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
            ssh_port: 22_822,
            ..WorldConfig::on_loopback(1, pace)
        };
        Self::with(config).await
    }

    /// A world whose host is not waited for.
    pub(crate) async fn unborn(faults: &[&str]) -> Self {
        let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
        Self::made(WorldConfig {
            faults,
            ..WorldConfig::in_memory(1)
        })
        .await
    }

    async fn made(config: WorldConfig) -> Self {
        let config = WorldConfig {
            linux: false,
            workload: false,
            ..config
        };
        let world = World::start(config).await.expect("a world");
        let bench = Self {
            world,
            waited: Duration::ZERO,
        };
        bench.until("a host", || !bench.hosts().is_empty()).await;
        bench
    }

    async fn with(config: WorldConfig) -> Self {
        let start = tokio::time::Instant::now();
        let mut bench = Self::made(config).await;
        bench.phase(HostPhase::Up).await;
        bench.waited = start.elapsed();
        bench
    }

    fn hosts(&self) -> Vec<Arc<Host>> {
        self.world.hosts.as_ref().expect("hosts").all()
    }

    pub(crate) fn host(&self) -> Arc<Host> {
        self.hosts().pop().expect("a host")
    }

    pub(crate) async fn phase(&self, wanted: HostPhase) {
        let mut phase = self.host().watch_phase();
        let limit = Duration::from_secs(3_600);
        let reached = tokio::time::timeout(limit, phase.wait_for(|phase| *phase == wanted)).await;
        reached.expect("the phase comes").expect("the host lives");
    }

    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let mut poll = tokio::time::interval(Duration::from_millis(200));
        for _ in 0..9_000 {
            poll.tick().await;
            if holds() {
                return;
            }
        }
        panic!("never: {what}");
    }

    /// Lets so much of the world's time pass, and everything in it happen.
    pub(crate) async fn pass(&self, time: Duration) {
        let end = self.world.clock.elapsed() + time;
        let mut poll = tokio::time::interval(Duration::from_millis(500));
        while self.world.clock.elapsed() < end {
            poll.tick().await;
        }
    }

    async fn session(&self, key: PrivateKey) -> Option<Peer> {
        let authority = format!("{}:22", self.host().internal_ip());
        let io = self
            .world
            .host_dialer()
            .dial(&authority)
            .await
            .expect("a connection");
        let config = Arc::new(client::Config::default());
        let mut handle = client::connect_stream(config, io, TrustAll)
            .await
            .expect("a session");
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
        let user = self.host().image().user.clone();
        match handle.authenticate_publickey(user, key).await {
            Ok(AuthResult::Success) => Some(Peer(handle)),
            Ok(_) | Err(_) => None,
        }
    }

    pub(crate) async fn login(&self) -> Option<Peer> {
        let key = PrivateKey::from_openssh(&self.world.ssh_key.private_pem).expect("a key");
        self.session(key).await
    }

    pub(crate) async fn login_with_another_key(&self) -> Option<Peer> {
        use rand::SeedableRng as _;
        let mut chance = rand::rngs::StdRng::seed_from_u64(99);
        let key = PrivateKey::random(&mut chance, Algorithm::Ed25519).expect("a key");
        self.session(key).await
    }

    pub(crate) async fn connect(&self) -> Peer {
        self.login().await.expect("the key is accepted")
    }

    /// Connected, with our folders and the program on the host. What uploads meet is not met by the program.
    pub(crate) async fn ready(&self) -> Peer {
        {
            let host = self.host();
            let mut state = host.state();
            for folder in [ROOT, BIN, STAGING] {
                state.disk.make_folders(folder);
            }
            let path = program_path(&sha256_hex(stand_in()));
            state.disk.put(&path, stand_in()).expect("it is written");
        }
        self.connect().await
    }

    fn cluster(&self) -> Cluster {
        Cluster::new(&self.world.api, User::admin())
    }

    /// Approves every pending request, as a person does who reads none of them.
    pub(crate) async fn approve(&self) {
        let cluster = self.cluster();
        for csr in self.world.all(&kinds::CSR) {
            if csr.value["status"]["conditions"].is_null() {
                let mut value = csr.value.clone();
                value["status"]["conditions"] = json!([{"type": "Approved", "status": "True",
                    "reason": "Test", "message": "", "lastUpdateTime": cluster.stamp()}]);
                let key = Key::of(&value);
                cluster.approve(&key, value).await.expect("it is approved");
            }
        }
    }

    /// The Node, once it is Ready.
    pub(crate) async fn joined(&self) -> Value {
        let mut poll = tokio::time::interval(Duration::from_millis(100));
        for _ in 0..6_000 {
            poll.tick().await;
            self.approve().await;
            let ready = |node: &Value| {
                let conditions = node["status"]["conditions"].as_array();
                conditions.is_some_and(|all| {
                    all.iter()
                        .any(|c| c["type"] == "Ready" && c["status"] == "True")
                })
            };
            if let Some(node) = self
                .world
                .all(&kinds::NODE)
                .iter()
                .find(|n| ready(&n.value))
            {
                return node.value.clone();
            }
        }
        panic!("the node never became Ready");
    }

    /// A pod that is bound to a node already.
    pub(crate) fn pod_on(&self, node: &str) -> Key {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
        Key::of(&self.world.create(pod).expect("a pod").value)
    }

    pub(crate) fn pod_phase(&self, key: &Key) -> Option<String> {
        let pod = self.cluster().get(&kinds::POD, key)?;
        Some(
            pod.value["status"]["phase"]
                .as_str()
                .unwrap_or("Pending")
                .to_owned(),
        )
    }

    /// Why its container waits; empty where none does.
    pub(crate) fn pod_waits(&self, key: &Key) -> String {
        let pod = self.cluster().get(&kinds::POD, key);
        let status = pod.map(|pod| pod.value["status"]["containerStatuses"].clone());
        let message = status.map(|all| all[0]["state"]["waiting"]["message"].clone());
        let message = message.as_ref().and_then(Value::as_str);
        message.unwrap_or_default().to_owned()
    }

    pub(crate) async fn delete_pod(&self, key: &Key) {
        let options = dormer_fleet::api::DeleteOptions::default();
        let deleted = self.cluster().delete(&kinds::POD, key, &options).await;
        deleted.expect("it is deleted");
    }

    pub(crate) fn lease(&self) -> Vec<Value> {
        let leases = self.world.all(&kinds::LEASE);
        let node = leases
            .iter()
            .filter(|l| l.value["metadata"]["namespace"] == "kube-node-lease");
        node.map(|lease| lease.value["spec"]["renewTime"].clone())
            .collect()
    }
}

impl Peer {
    pub(crate) async fn exec(&self, command: &str) -> (Vec<u8>, u32) {
        self.exec_with(command, Vec::new()).await
    }

    async fn exec_with(&self, command: &str, input: Vec<u8>) -> (Vec<u8>, u32) {
        let mut channel = self.0.channel_open_session().await.expect("a channel");
        channel.exec(true, command).await.expect("it is sent");
        let _ = channel.data_bytes(input).await;
        let _ = channel.eof().await;
        let mut stdout = Vec::new();
        let mut status = u32::MAX;
        while let Some(message) = channel.wait().await {
            match message {
                ChannelMsg::Data { data } => stdout.extend_from_slice(&data),
                ChannelMsg::ExitStatus { exit_status } => status = exit_status,
                ChannelMsg::ExitSignal { .. } => panic!("Windows sends no exit-signal"),
                _ => {}
            }
        }
        (stdout, status)
    }

    pub(crate) async fn probe(&self, task: &str, attempt: u32) -> Answer {
        let line = line(Mode::Probe, task, attempt, 0, None);
        let (stdout, _) = self.exec(&line).await;
        frame::extract(&stdout, task, attempt).expect("an answer")
    }

    pub(crate) async fn sftp(&self) -> RawSftpSession {
        let channel = self.0.channel_open_session().await.expect("a channel");
        channel
            .request_subsystem(true, "sftp")
            .await
            .expect("it is sent");
        let sftp = RawSftpSession::new(channel.into_stream());
        sftp.init().await.expect("SFTP answers");
        sftp
    }

    pub(crate) async fn call(
        &self,
        mode: Mode,
        task: &str,
        seq: u64,
        document: Option<&Document>,
    ) -> Answer {
        let (stdout, _) = self.run(mode, task, seq, document).await;
        frame::extract(&stdout, task, 1).expect("an answer")
    }

    /// What a call says, and its exit status.
    pub(crate) async fn run(
        &self,
        mode: Mode,
        task: &str,
        seq: u64,
        document: Option<&Document>,
    ) -> (Vec<u8>, u32) {
        let input = document.map(|document| document.to_bytes().expect("bytes"));
        let line = line(mode, task, 1, seq, input.as_deref());
        self.exec_with(&line, input.unwrap_or_default()).await
    }
}

fn line(mode: Mode, task: &str, attempt: u32, seq: u64, document: Option<&[u8]>) -> String {
    let call = Call {
        mode: arguments::Mode::Asked(mode),
        task: task.into(),
        attempt,
        fence: Fence { generation: 1, seq },
        boot: None,
        document: document.map(|bytes| Announced {
            bytes: bytes.len(),
            sha256: sha256_hex(bytes),
        }),
        program: sha256_hex(stand_in()),
    };
    command_line(&call).expect("a line")
}

pub(crate) async fn upload(sftp: &RawSftpSession, path: &str, bytes: &[u8]) {
    let flags = OpenFlags::CREATE | OpenFlags::WRITE | OpenFlags::TRUNCATE;
    let opened = sftp.open(path, flags, FileAttributes::empty()).await;
    let handle = opened.expect("it opens").handle;
    for (n, piece) in bytes.chunks(200_000).enumerate() {
        let at = n as u64 * 200_000;
        sftp.write(handle.clone(), at, piece.to_vec())
            .await
            .expect("it is written");
    }
    sftp.close(handle).await.expect("it closes");
}

pub(crate) fn ssh_string(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len())
        .expect("a short text")
        .to_be_bytes();
    [&length[..], text.as_bytes()].concat()
}

pub(crate) fn document(items: Vec<Item>) -> Document {
    Document {
        schema: DOCUMENT_SCHEMA,
        section: Section::Host,
        version: "v1".into(),
        items,
        kept: Vec::new(),
    }
}

/// Items of documents.
pub(crate) mod items {
    use super::*;

    fn item(id: &str, what: Value) -> Item {
        let what: ItemKind = serde_json::from_value(what).expect("an item");
        Item {
            id: id.into(),
            change: ChangeClass::Live,
            what,
        }
    }

    fn file(path: &str, content: &[u8]) -> Item {
        let what = json!({"kind": "file", "path": path, "size": content.len(),
            "sha256": dormer_profile::sha256_hex(content),
            "source": {"from": "inline", "base64": STANDARD.encode(content)}});
        item(&format!("file:{path}"), what)
    }

    fn service(name: &str, command: &str, depends: &[&str]) -> Item {
        let what = json!({"kind": "service", "name": name, "display": name, "description": "",
            "command": command, "depends": depends, "start": "auto", "running": true,
            "failure": {"reset_seconds": 300, "restart_delays_ms": [10000]},
            "start_timeout_ms": 30000});
        item(&format!("service:{name}"), what)
    }

    pub(crate) fn feature() -> Item {
        item(
            "feature:Containers",
            json!({"kind": "feature", "name": "Containers"}),
        )
    }

    pub(crate) fn files() -> Vec<Item> {
        vec![
            item(
                "directory:C:\\k",
                json!({"kind": "directory", "path": "C:\\k"}),
            ),
            file("C:\\k\\a.conf", b"a = 1"),
            item(
                "env:K",
                json!({"kind": "environment", "name": "K", "value": "1"}),
            ),
        ]
    }

    /// containerd and kubelet with all they need to join this world.
    pub(crate) fn node(world: &World) -> Vec<Item> {
        let kubelet = r"C:\k\kubelet.exe --config=C:\k\kubelet.conf --bootstrap-kubeconfig=C:\k\bootstrap-kubeconfig --kubeconfig=C:\k\kubeconfig --cert-dir=C:\var\lib\kubelet\pki\ --windows-service --node-labels=node.openshift.io/os_id=Windows";
        let config = json!({"kind": "KubeletConfiguration", "serverTLSBootstrap": true,
            "registerWithTaints": [{"key": "os", "value": "Windows", "effect": "NoSchedule"}]});
        vec![
            file("C:\\k\\containerd.exe", b"MZ containerd v2.1.4"),
            file("C:\\k\\containerd.toml", b"version = 2"),
            file("C:\\k\\kubelet.exe", b"MZ kubelet v1.33.4 "),
            file("C:\\k\\kubelet.conf", config.to_string().as_bytes()),
            file(
                "C:\\k\\bootstrap-kubeconfig",
                bootstrap(world).to_string().as_bytes(),
            ),
            service(
                "containerd",
                r"C:\k\containerd.exe --config C:\k\containerd.toml",
                &[],
            ),
            service("kubelet", kubelet, &["containerd"]),
            item(
                "http:kubelet",
                json!({"kind": "http", "wait_ms": 30000,
                "url": "http://127.0.0.1:10248/healthz"}),
            ),
        ]
    }

    /// The hybrid overlay, and a file that needs what it makes.
    pub(crate) fn overlay() -> Vec<Item> {
        let network = "OVNKubernetesHybridOverlayNetwork";
        let exe = r"C:\k\hybrid-overlay-node.exe";
        vec![
            file(exe, b"MZ overlay"),
            service(
                "hybrid-overlay-node",
                &format!("{exe} --windows-service"),
                &["kubelet"],
            ),
            item(
                "hns",
                json!({"kind": "hns_network", "name": network, "wait_ms": 60000}),
            ),
            item(
                "cni",
                json!({"kind": "network_file", "path": r"C:\k\cni\config\cni.conf",
                "template": "subnet @{HNS_SUBNET}", "network": network}),
            ),
        ]
    }

    fn bootstrap(world: &World) -> Value {
        let secrets = world.all(&kinds::SECRET);
        let named = |s: &&Arc<dormer_fleet::api::Object>| {
            s.value["metadata"]["name"] == "node-bootstrapper-token"
        };
        let secret = secrets
            .iter()
            .find(named)
            .expect("the bootstrap token's secret");
        let token = secret.value["data"]["token"].as_str().expect("a token");
        let token = String::from_utf8(STANDARD.decode(token).expect("base64")).expect("text");
        json!({"apiVersion": "v1", "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": &*world.api_url,
                "certificate-authority-data": STANDARD.encode(&*world.api.ca().pem())}}],
            "users": [{"name": "u", "user": {"token": token}}]})
    }
}
