//! Starts a world: server, objects, controllers and hosts, from one configuration.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use rand::SeedableRng;
use russh::keys::{Algorithm, PrivateKey, ssh_key::LineEnding};
use rustls::ServerConfig;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{HostCloud, HostContext, Pace, Record, WorldClock};
use crate::{
    api::{
        ApiServer, Key, Meta, Object, Part, Refusal, User,
        auth::NODE_BOOTSTRAPPER,
        ca::CaError,
        http, kinds,
        kubeconfig::{Credential, kubeconfig},
    },
    cluster::{Controllers, Which, observe},
    faults::{Fault, FaultError, Faults},
    host::{Hosts, Image, Reach},
    manifest::{
        self, ManifestError, Sets,
        demo::{self, SshKey},
    },
    net::{Dialer, TcpDial},
    wmco,
};

/// The port that stands for 22 where hosts have real sockets; 22 itself is for the privileged.
pub const SSH_PORT: u16 = 2222;

/// What world is to be.
#[derive(Debug, Clone)]
pub struct WorldConfig {
    /// Windows machines, spread over the Windows MachineSets. `None`: as the manifests say.
    pub machines: Option<u32>,
    /// Manifests in place of the built-in Windows MachineSets.
    pub manifests: Vec<PathBuf>,
    /// Values for the manifests' placeholders.
    pub sets: Sets,
    /// Without manifests: whether the Azure set stands beside the AWS one.
    pub two_sets: bool,
    /// Whether control-plane Machines and the infra set are there.
    pub linux: bool,
    /// Whether the cluster has none of OpenShift's kinds and objects.
    pub plain: bool,
    /// Windows machines of a MachineSet of Cluster API; `None`: its controllers do not run.
    pub cluster_api: Option<u32>,
    /// Whether a Deployment with a budget runs on the Windows nodes.
    pub workload: bool,
    /// Orders of faults, as on the command line.
    pub faults: Vec<String>,
    /// Chance comes from here.
    pub seed: u64,
    /// How fast the world runs.
    pub pace: Pace,
    /// Whether its clock counts the world's own seconds: for a world in which every program is dated by that clock.
    /// Otherwise it is the system's.
    pub own_clock: bool,
    /// Where the API server listens; `None`: nowhere, pipes in memory only, for the hosts too.
    pub listen: Option<SocketAddr>,
    /// The port that stands for 22 where hosts have real sockets, each on an address of its own.
    pub ssh_port: u16,
    /// From what image the hosts are made.
    pub image: Image,
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self {
            machines: None,
            manifests: Vec::new(),
            sets: Sets::new(),
            two_sets: false,
            linux: true,
            plain: false,
            cluster_api: None,
            workload: true,
            faults: Vec::new(),
            seed: 1,
            pace: Pace::LIFE,
            own_clock: false,
            listen: None,
            ssh_port: SSH_PORT,
            image: Image::default(),
        }
    }
}

impl WorldConfig {
    /// A world of so many Windows machines on real sockets on the loopback address.
    pub fn on_loopback(machines: u32, pace: Pace) -> Self {
        let listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        Self {
            machines: Some(machines),
            pace,
            listen,
            ..Self::default()
        }
    }

    /// A world of plain Kubernetes without any socket, with so many Windows machines of Cluster API.
    pub fn plain(machines: u32) -> Self {
        Self {
            machines: Some(0),
            linux: false,
            plain: true,
            cluster_api: Some(machines),
            ..Self::default()
        }
    }

    /// A world of so many Windows machines without any socket.
    pub fn in_memory(machines: u32) -> Self {
        Self {
            machines: Some(machines),
            ..Self::default()
        }
    }
}

/// Why a world cannot start.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A fault's order cannot be read.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// A manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The manifests have no Windows machine.
    #[error(
        "--manifest: no MachineSet in it has a Windows machine (label machine.openshift.io/os-id: Windows on its \
         template, and replicas)"
    )]
    NoMachines,
    /// The server refuses an object of a manifest.
    #[error("{object}: {refusal}")]
    Object {
        /// Kind and name.
        object: String,
        /// The server's answer.
        refusal: Refusal,
    },
    /// No certificates can be made.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The address cannot be bound.
    #[error("the API server cannot listen: {0}")]
    Listen(#[from] io::Error),
    /// A real API server cannot be spoken to.
    #[error("no way to the API server: {0}")]
    Outside(String),
    /// No SSH key can be made.
    #[error("no SSH key: {0}")]
    Key(String),
}

/// A running world. Dropping it ends it.
pub struct World {
    pub api: ApiServer,
    /// What time it is.
    pub clock: WorldClock,
    /// How fast it runs.
    pub pace: Pace,
    /// What trouble is ordered.
    pub faults: Faults,
    /// What truly happened.
    pub record: Record,
    /// The hosts, as the cloud sees them.
    pub cloud: Arc<dyn HostCloud>,
    /// The hosts themselves, unless another cloud makes them.
    pub hosts: Option<Hosts>,
    /// The keys that open the hosts.
    pub ssh_key: SshKey,
    /// `https://host:port` of the API server.
    pub api_url: Arc<str>,
    /// How the API server is reached: real sockets, or TLS over pipes.
    pub api_dialer: Dialer,
    /// The API server's TLS settings, for further connectors.
    pub tls: Arc<ServerConfig>,
    /// Whether the cluster has none of OpenShift's kinds and objects.
    pub plain: bool,
    admin_token: String,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl World {
    /// Starts a world with simulated Windows hosts: on real sockets where the API server listens
    /// on one, else on pipes in memory.
    ///
    /// # Errors
    /// When the configuration cannot be used, or no socket can be bound.
    pub async fn start(config: WorldConfig) -> Result<Self, WorldError> {
        let port = config.ssh_port;
        let reach = config
            .listen
            .map_or(Reach::Memory, |_| Reach::Loopback { port });
        let image = config.image.clone();
        let mut made = None;
        let mut world = Self::start_with(config, |context, _| {
            let hosts = Hosts::new(context, reach, image);
            made = Some(hosts.clone());
            Arc::new(hosts)
        })
        .await?;
        world.hosts = made;
        if world.faults.ordered(Fault::WmcoBeside) {
            let mut tasks = std::mem::take(&mut world.tasks);
            wmco::beside(&world, &mut tasks)?;
            world.tasks = tasks;
        }
        Ok(world)
    }

    /// How a worker reaches the hosts, by `InternalIP:port`.
    pub fn host_dialer(&self) -> Dialer {
        match &self.hosts {
            Some(hosts) => hosts.dialer(),
            None => Arc::new(TcpDial),
        }
    }

    /// Starts a world whose hosts `make_hosts` makes from what the world lends them.
    ///
    /// # Errors
    /// When the configuration cannot be used, or no socket can be bound.
    pub async fn start_with<C: HostCloud>(
        config: WorldConfig,
        make_hosts: impl FnOnce(HostContext, &ApiServer) -> Arc<C>,
    ) -> Result<Self, WorldError> {
        let clock = match config.own_clock {
            true => WorldClock::of_pace(config.pace),
            false => WorldClock::system(),
        };
        let api = ApiServer::new(clock, config.seed)?;
        let record = Record::new(clock, config.pace);
        api.set_record(record.clone());
        api.store().observe(observe::observer(record.clone()));
        let objects = windows_objects(&config)?;
        let machines = count(&objects) + config.cluster_api.unwrap_or(0);
        let faults = Faults::parse(&config.faults, config.seed, machines)?;
        let names = ["localhost", "kubernetes", "kubernetes.default.svc", "fleet"];
        let ip = config
            .listen
            .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |a| a.ip());
        let tls = Arc::new(
            api.ca()
                .server_config(&names, &[ip, Ipv4Addr::LOCALHOST.into()])?,
        );
        let mut tasks = JoinSet::new();
        let (api_url, api_dialer): (Arc<str>, Dialer) = match config.listen {
            Some(address) => {
                let (listener, bound) = http::bind(address).await?;
                tasks.spawn(api.clone().serve_https(listener, tls.clone()));
                (format!("https://{bound}").into(), Arc::new(TcpDial))
            }
            None => (
                "https://localhost:6443".into(),
                api.connector(Some(tls.clone())),
            ),
        };
        let ssh_key = ssh_key(config.seed)?;
        let admin_token = format!("admin-{}", api.uid());
        let context = HostContext {
            pace: config.pace,
            clock,
            faults: faults.clone(),
            record: record.clone(),
            api_dialer: api_dialer.clone(),
            api_url: api_url.clone(),
            ca_pem: api.ca().pem(),
            seed: config.seed,
        };
        let cloud: Arc<dyn HostCloud> = make_hosts(context, &api);
        let stop = CancellationToken::new();
        let world = Self {
            api,
            clock,
            pace: config.pace,
            faults,
            record,
            cloud,
            hosts: None,
            ssh_key,
            api_url,
            api_dialer,
            tls,
            plain: config.plain,
            admin_token,
            stop,
            tasks,
        };
        world.furnish(&config, objects, machines)?;
        Ok(world.run(machines, config.cluster_api.is_some()))
    }

    fn run(mut self, first_machines: u32, cluster_api: bool) -> Self {
        let controllers = Controllers {
            server: self.api.clone(),
            real: None,
            cloud: self.cloud.clone(),
            faults: self.faults.clone(),
            pace: self.pace,
            first_machines,
            cluster_api,
        };
        let mut tasks = controllers.start(Which::All, &self.stop);
        self.tasks
            .spawn(async move { while tasks.join_next().await.is_some() {} });
        self
    }

    fn furnish(
        &self,
        config: &WorldConfig,
        windows: Vec<Value>,
        machines: u32,
    ) -> Result<(), WorldError> {
        self.api.tokens().add(&self.admin_token, User::admin());
        let named = |name: &&str| {
            serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name}})
        };
        let mut objects: Vec<Value> = match config.plain {
            true => {
                self.api.unserve(&demo::OPENSHIFT_GROUPS);
                let mut plain: Vec<Value> = demo::PLAIN_NAMESPACES.iter().map(named).collect();
                plain.extend(demo::plain_secrets(&self.ssh_key));
                plain
            }
            false => {
                let mut openshift: Vec<Value> = demo::NAMESPACES.iter().map(named).collect();
                openshift.extend(self.of_openshift());
                openshift
            }
        };
        objects.push(demo::authority(&self.api.ca().pem()));
        if let Some(machines) = config.cluster_api {
            let namespace = match config.plain {
                true => demo::CLUSTERS,
                false => demo::OPENSHIFT_CLUSTERS,
            };
            let of_cluster = demo::cluster_api(namespace, machines, &self.ssh_key, &config.sets)?;
            objects.extend(of_cluster);
        }
        if config.linux {
            objects.extend(demo::linux(&config.sets)?);
        }
        objects.extend(windows);
        if config.workload && machines > 0 {
            objects.extend(match config.plain {
                true => demo::plain_webserver(machines)?,
                false => demo::webserver(machines)?,
            });
        }
        objects
            .into_iter()
            .try_for_each(|object| self.create(object).map(drop))
    }

    /// What an OpenShift cluster has; its bootstrap token becomes valid.
    fn of_openshift(&self) -> Vec<Value> {
        let bootstrap = format!("bootstrap-{}", self.api.uid());
        let (_, name) = NODE_BOOTSTRAPPER.rsplit_once(':').unwrap_or_default();
        let user = User::service_account(demo::MACHINE_CONFIG, name);
        self.api.tokens().add(&bootstrap, user);
        let mut objects = demo::secrets(&self.ssh_key, &self.api.ca().pem(), &bootstrap);
        objects.extend(demo::cluster_objects(&self.api_url));
        objects
    }

    /// Makes an object of whatever kind, as the administrator; its status is kept.
    ///
    /// # Errors
    /// As the server refuses it.
    pub fn create(&self, object: Value) -> Result<Arc<Object>, WorldError> {
        let version = object["apiVersion"].as_str();
        let kind = object["kind"].as_str();
        let named = format!("{} {}", kind.unwrap_or_default(), object.name());
        let failed = |refusal| WorldError::Object {
            object: named.clone(),
            refusal,
        };
        let kind = kinds::of(version.unwrap_or_default(), kind.unwrap_or_default());
        let kind = kind.ok_or_else(|| failed(Refusal::no_such_path()))?;
        let namespace = match (kind.namespaced, object.namespace()) {
            (true, "") => "default".to_owned(),
            (_, namespace) => namespace.to_owned(),
        };
        let user = User::admin();
        let status = object["status"].clone();
        let mut made = self
            .api
            .create(&user, kind, &namespace, object, false)
            .map_err(failed)?;
        if !status.is_null() && kind.has("status") {
            let mut value = made.value.clone();
            value["status"] = status;
            // The scheduler or a kubelet may have written meanwhile: an update without a version takes any.
            value["metadata"]["resourceVersion"] = Value::Null;
            let key = Key::of(&value);
            let updated = self
                .api
                .update(&user, kind, &key, Part::Status, value, false);
            made = updated.map_err(failed)?;
        }
        Ok(made)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Value {
        let token = Credential::Token(self.admin_token.clone());
        kubeconfig(&self.api_url, &self.api.ca().pem(), "admin", &token)
    }

    /// Writes the administrator's kubeconfig to a file that only its owner can read.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_kubeconfig(&self, path: &std::path::Path) -> io::Result<()> {
        use std::{io::Write, os::unix::fs::OpenOptionsExt};
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        let text = dormer_profile::yaml::to_string(&self.kubeconfig()).map_err(io::Error::other)?;
        file.write_all(text.as_bytes())
    }

    /// A kubeconfig for another user, with a token of its own; the record names the user for
    /// what is done with it.
    pub fn kubeconfig_for(&self, user: User) -> Value {
        let token = format!("user-{}", self.api.uid());
        self.api.tokens().add(&token, user.clone());
        kubeconfig(
            &self.api_url,
            &self.api.ca().pem(),
            &user.name,
            &Credential::Token(token),
        )
    }

    /// A bearer token for a user.
    pub fn token_for(&self, user: User) -> String {
        let token = format!("user-{}", self.api.uid());
        self.api.tokens().add(&token, user);
        token
    }

    /// Ends the controllers; the API server stays until the world is dropped.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub fn all(&self, kind: &kinds::Kind) -> Vec<Arc<Object>> {
        self.api.list(kind, &crate::api::ListQuery::default()).items
    }
}

fn windows_objects(config: &WorldConfig) -> Result<Vec<Value>, WorldError> {
    let mut objects = Vec::new();
    for path in &config.manifests {
        objects.extend(manifest::load(path, &config.sets)?);
    }
    if config.manifests.is_empty() && !config.plain {
        objects = demo::windows(config.two_sets, &config.sets)?;
    }
    if let Some(machines) = config.machines {
        demo::distribute(&mut objects, machines);
    }
    if !config.manifests.is_empty() && config.machines != Some(0) && count(&objects) == 0 {
        return Err(WorldError::NoMachines);
    }
    Ok(objects)
}

fn count(objects: &[Value]) -> u32 {
    let replicas = |o: &Value| {
        o["spec"]["replicas"]
            .as_u64()
            .and_then(|n| u32::try_from(n).ok())
    };
    objects
        .iter()
        .filter(|object| demo::is_windows_set(object))
        .map(|o| replicas(o).unwrap_or(1))
        .sum()
}

pub(super) fn ssh_key(seed: u64) -> Result<SshKey, WorldError> {
    let failed = |e: &dyn std::fmt::Display| WorldError::Key(e.to_string());
    let mut chance = rand::rngs::StdRng::seed_from_u64(seed ^ 0x5353_4821);
    let key = PrivateKey::random(&mut chance, Algorithm::Ed25519).map_err(|e| failed(&e))?;
    let public_line = key.public_key().to_openssh().map_err(|e| failed(&e))?;
    let private_pem = key
        .to_openssh(LineEnding::LF)
        .map_err(|e| failed(&e))?
        .to_string();
    Ok(SshKey {
        private_pem,
        public_line,
    })
}
