//! Fixture of the scenarios: a real API server or the simulated one, both with simulated Windows hosts.

use super::super::{
    accounts,
    ask::{OPERATOR, account},
    cluster::{
        Kind, MACHINE, NODE, OwnPlane, Site, WINDOWS_MACHINE, WINDOWS_POOL, World, client,
        own_plane, plain_plane_with_cluster_api, plane_with_both_apis, with_kubelets,
    },
};
use dormer_fleet::{
    Pace, WorldConfig,
    api::User,
    cluster::mirror::Outside,
    host::Host,
    world::{OutsideConfig, OutsideWorld, PLAIN_SITE, Record, Tally},
};
use dormer_testkit::{ControlPlane, Helm, Skipped, Speaker, TempDir, free_port, test_dir};
use dormer_workers::kubernetes::Tokens;
use serde_json::{Value, json};
use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

pub(crate) const CLUSTER_MACHINE: Kind = ("cluster.x-k8s.io", "v1beta2", "Machine");
pub(crate) const CLUSTER_MACHINE_SET: Kind = ("cluster.x-k8s.io", "v1beta2", "MachineSet");
pub(crate) const WINDOWS_HOST: Kind = ("dormer.io", "v1beta1", "WindowsHost");
pub(crate) const MACHINE_SET: Kind = ("machine.openshift.io", "v1beta1", "MachineSet");
/// How many times as fast as life the hosts are.
const SPEED: f64 = 60.0;
/// dormer's roles, and the account of each.
pub(crate) const ROLES: [&str; 5] = ["engine", "watcher", "worker", "approver", "console"];
/// Where the simulated cluster has the key for its hosts, and so dormer's settings.
const SIMULATED_HOME: &str = "dormer";

/// Kinds of Windows machines that a cluster has.
enum MachineKinds {
    /// Machines of the Machine API.
    OpenShift,
    /// Machines of Cluster API and BYOH hosts; the cluster has none of OpenShift's kinds.
    Plain(Helm),
    /// All of them: two MachineSets of the Machine API, so many machines of Cluster API, and BYOH hosts.
    Every(Helm, u32),
}

/// The port of all hosts: worlds that share it have networks of their own.
fn ssh_port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(free_port)
}

/// Keeps a world alive.
enum Keeps {
    Real {
        // In the order in which they end: callers before those that they call.
        world: Box<OutsideWorld>,
        plane: &'static ControlPlane,
        own: Option<OwnPlane>,
    },
    Simulated {
        world: Box<dormer_fleet::World>,
    },
}

/// A cluster with Windows machines.
pub(crate) struct Ground {
    /// The cluster as its administrator sees it.
    pub(crate) world: World,
    /// What truly happened, as the API server's own changes and the hosts tell it.
    pub(crate) record: Record,
    /// The namespace of the Machines.
    pub(crate) machines: String,
    /// The namespace of Cluster API's Machines, where there are any.
    pub(crate) cluster_machines: Option<String>,
    /// dormer's own namespace.
    pub(crate) home: String,
    /// The namespace of the web server on the nodes.
    pub(crate) pods: String,
    /// Whether the cluster has none of OpenShift's kinds: the machines are Cluster API's, and BYOH hosts.
    pub(crate) plain: bool,
    /// Kubeconfigs, payloads and logs.
    pub(crate) folder: TempDir,
    pub(crate) ssh_port: u16,
    /// Whose tokens the machines join by.
    pub(crate) tokens: Tokens,
    /// OperatorCondition by which the Operator Lifecycle Manager would run dormer here.
    pub(crate) operator_condition: Option<&'static str>,
    keeps: Keeps,
}

impl Ground {
    /// A part of the real control plane, with the accounts of `deploy/rbac.yaml` as they are shipped.
    pub(crate) async fn real(
        name: &'static str,
        machines: u32,
        faults: &[&str],
    ) -> Result<Self, Skipped> {
        Ok(Self::on(
            with_kubelets()?,
            name,
            machines,
            faults,
            MachineKinds::OpenShift,
        )
        .await)
    }

    /// A control plane of its own, for a test that changes the whole cluster.
    pub(crate) async fn alone(name: &'static str, machines: u32) -> Result<Self, Skipped> {
        Ok(Self::owning(own_plane()?, name, machines, MachineKinds::OpenShift).await)
    }

    /// A control plane of plain Kubernetes, with so many Windows machines of Cluster API.
    pub(crate) async fn plain(
        name: &'static str,
        machines: u32,
        helm: Helm,
    ) -> Result<Self, Skipped> {
        let plane = plain_plane_with_cluster_api()?;
        Ok(Self::owning(plane, name, machines, MachineKinds::Plain(helm)).await)
    }

    /// A control plane of OpenShift's kinds and Cluster API's: so many Windows machines of two MachineSets, and of a
    /// MachineSet of Cluster API.
    pub(crate) async fn of_every_kind(
        name: &'static str,
        machines: u32,
        cluster_machines: u32,
        helm: Helm,
    ) -> Result<Self, Skipped> {
        let plane = plane_with_both_apis()?;
        let kinds = MachineKinds::Every(helm, cluster_machines);
        Ok(Self::owning(plane, name, machines, kinds).await)
    }

    async fn owning(
        plane: OwnPlane,
        name: &'static str,
        machines: u32,
        kinds: MachineKinds,
    ) -> Self {
        let mut ground = Self::on(plane.plane(), name, machines, &[], kinds).await;
        if let Keeps::Real { own, .. } = &mut ground.keeps {
            *own = Some(plane);
        }
        ground
    }

    /// Sets up a BYOH host, and makes the WindowsHost for it.
    pub(crate) async fn own_host(&self, name: &str) {
        let Keeps::Real { world, .. } = &self.keeps else {
            unreachable!("it is real")
        };
        let address = world.own_host(name).await.expect("a host");
        let host = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsHost",
            "metadata": {"name": name, "namespace": self.home},
            "spec": {"address": address, "user": "Administrator", "labels": {PLAIN_SITE: self.pods}}});
        self.world.create(host).await;
    }

    /// Kubeconfig of an account in dormer's namespace on a real control plane.
    pub(crate) async fn kubeconfig_of(&self, account: &str) -> PathBuf {
        let Keeps::Real { plane, .. } = &self.keeps else {
            unreachable!("the simulated one has users of its own")
        };
        let token = accounts::granted(&self.world, &self.home, account).await;
        let path = self.path(&format!("{account}.conf"));
        std::fs::write(&path, plane.kubeconfig(&Speaker::Token(token))).expect("written");
        path
    }

    /// The hosts that are there.
    pub(crate) fn hosts(&self) -> Vec<Arc<Host>> {
        match &self.keeps {
            Keeps::Real { world, .. } => world.hosts.all(),
            Keeps::Simulated { world } => world.hosts.as_ref().expect("hosts").all(),
        }
    }

    async fn on(
        plane: &'static ControlPlane,
        name: &'static str,
        machines: u32,
        faults: &[&str],
        kinds: MachineKinds,
    ) -> Self {
        let site = Site::new(plane, name).await;
        let clusters = format!("{name}-clusters");
        let (of_machine_api, of_cluster_api) = match &kinds {
            MachineKinds::OpenShift => {
                accounts::apply(&site, |_, _| true).await;
                (machines, None)
            }
            MachineKinds::Plain(helm) => {
                accounts::plain(&site, helm).await;
                (0, Some((site.machines.clone(), machines)))
            }
            MachineKinds::Every(helm, count) => {
                site.world.namespace(&clusters).await;
                accounts::every_kind(&site, helm, &clusters).await;
                (machines, Some((clusters, *count)))
            }
        };
        let plain = matches!(kinds, MachineKinds::Plain(_));
        let (cluster_machines, of_cluster_api) = of_cluster_api.unzip();
        let home = accounts::home(&site);
        let Speaker::Certificate(controllers) =
            plane.user("machine-api-controllers", Some("system:masters"))
        else {
            unreachable!("a user has a certificate")
        };
        let ssh_port = ssh_port();
        let config = OutsideConfig {
            outside: Outside {
                url: plane.url(),
                ca_pem: plane.ca(),
                cert_pem: controllers.certificate,
                key_pem: controllers.key,
                machines: (!plain).then(|| site.machines.clone()),
                cluster_machines: cluster_machines.clone(),
            },
            machines: of_machine_api,
            two_sets: matches!(kinds, MachineKinds::Every(..)),
            cluster_machines: of_cluster_api.unwrap_or_default(),
            site: name.into(),
            pods: name.into(),
            faults: faults.iter().map(ToString::to_string).collect(),
            pace: Pace::times_faster(SPEED),
            ssh_port,
        };
        let outside = OutsideWorld::start(config).expect("a world");
        // Nodes are named by addresses, and those of a play that is over stay: no address is given twice.
        std::mem::forget(outside.hosts.clone());
        let key = outside.ssh_key.private_pem.clone();
        secret(
            &site.world,
            &home,
            "cloud-private-key",
            json!({"private-key.pem": key}),
        )
        .await;
        if !plain {
            let bootstrap = account(&site, OPERATOR, "node-bootstrapper").await;
            let Speaker::Token(token) = bootstrap else {
                unreachable!("an account has a token")
            };
            let join = json!({"token": token, "ca.crt": plane.ca()});
            secret(&site.world, OPERATOR, "node-bootstrapper-token", join).await;
        }
        let folder = test_dir("whole");
        let admin = plane.kubeconfig(&plane.admin());
        std::fs::write(folder.path().join("admin.conf"), admin).expect("written");
        for role in ROLES {
            let who = accounts::ours(&site, &format!("dormer-{role}")).await;
            let path = folder.path().join(format!("{role}.conf"));
            std::fs::write(path, plane.kubeconfig(&who)).expect("written");
        }
        let ground = Self {
            world: site.world.clone(),
            record: outside.record.clone(),
            machines: site.machines.clone(),
            cluster_machines,
            home,
            pods: name.into(),
            folder,
            ssh_port,
            plain,
            tokens: match plain {
                true => Tokens::Bootstrap,
                false => Tokens::Shared,
            },
            operator_condition: None,
            keeps: Keeps::Real {
                world: Box::new(outside),
                plane,
                own: None,
            },
        };
        ground.pool().await;
        let Keeps::Real { world: outside, .. } = &ground.keeps else {
            unreachable!("it is")
        };
        for object in outside.furniture().expect("objects") {
            ground.world.create(object).await;
        }
        ground
    }

    /// A simulated cluster of its own.
    pub(crate) async fn simulated(machines: u32, faults: &[&str]) -> Self {
        let seed = WorldConfig::default().seed;
        Self::of_seed(seed, machines, faults).await
    }

    /// The same with other UIDs and names.
    pub(super) async fn another(machines: u32) -> Self {
        let seed = WorldConfig::default().seed + 1;
        Self::of_seed(seed, machines, &[]).await
    }

    async fn of_seed(seed: u64, machines: u32, faults: &[&str]) -> Self {
        let ssh_port = ssh_port();
        let config = WorldConfig {
            seed,
            ssh_port,
            linux: false,
            faults: faults.iter().map(ToString::to_string).collect(),
            ..WorldConfig::on_loopback(machines, Pace::times_faster(SPEED))
        };
        let simulated = dormer_fleet::World::start(config).await.expect("a world");
        let folder = test_dir("whole");
        for role in ROLES {
            let who = User::service_account("dormer", &format!("dormer-{role}"));
            let path = folder.path().join(format!("{role}.conf"));
            std::fs::write(path, simulated.kubeconfig_for(who).to_string()).expect("written");
        }
        let admin = simulated.kubeconfig().to_string();
        std::fs::write(folder.path().join("admin.conf"), admin).expect("written");
        let ground = Self {
            world: World {
                admin: client(&simulated.kubeconfig().to_string()).await,
            },
            record: simulated.record.clone(),
            machines: "openshift-machine-api".into(),
            cluster_machines: None,
            home: SIMULATED_HOME.into(),
            pods: "default".into(),
            folder,
            ssh_port,
            plain: false,
            tokens: Tokens::Shared,
            operator_condition: None,
            keeps: Keeps::Simulated {
                world: Box::new(simulated),
            },
        };
        ground.pool().await;
        ground
    }

    pub(crate) async fn pool(&self) {
        let mut pool = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
            "metadata": {"name": "windows", "namespace": self.home},
            "spec": {"soak": "1s", "strategy": {"maxUnavailable": 1}}});
        if self.plain {
            pool["spec"]["profile"] = json!("upstream");
        }
        self.world.create(pool).await;
    }

    /// Changes its spec.
    pub(crate) async fn set(&self, spec: Value) {
        self.world
            .patch(WINDOWS_POOL, &self.home, "windows", json!({"spec": spec}))
            .await;
    }

    /// Scales the Windows MachineSet.
    pub(crate) async fn scale(&self, replicas: u32) {
        let sets = self.world.list(MACHINE_SET, &self.machines).await;
        let name = sets[0]["metadata"]["name"].as_str().expect("a name");
        let change = json!({"spec": {"replicas": replicas}});
        self.world
            .patch(MACHINE_SET, &self.machines, name, change)
            .await;
    }

    /// The Machines, also those that are being deleted.
    pub(crate) async fn all_machines(&self) -> Vec<Value> {
        let mut all = Vec::new();
        if let Some(namespace) = &self.cluster_machines {
            all.extend(self.world.list(CLUSTER_MACHINE, namespace).await);
            all.retain(|it| it["metadata"]["labels"]["kubernetes.io/os"] == "windows");
            all.extend(self.world.list(WINDOWS_HOST, &self.home).await);
        }
        if !self.plain {
            all.extend(self.world.list(MACHINE, &self.machines).await);
        }
        all
    }

    /// The namespace of the Machine API, as the chart has it: dormer's own where there is no such API.
    pub(crate) fn machine_namespace(&self) -> String {
        match self.plain {
            true => self.home.clone(),
            false => self.machines.clone(),
        }
    }

    /// The real control plane's URL as hosts reach it.
    pub(crate) fn api_url(&self) -> String {
        match &self.keeps {
            Keeps::Real { plane, .. } => plane.url(),
            Keeps::Simulated { world } => world.api_url.to_string(),
        }
    }

    /// Nodes of the Machines that serve: Ready, not cordoned, at a version that begins so.
    pub(crate) async fn served(&self, version: &str) -> Vec<Value> {
        let machines = self.all_machines().await;
        let ours = |node: &Value| {
            let is = |m: &Value| m["status"]["nodeRef"]["name"] == node["metadata"]["name"];
            machines.iter().any(is)
        };
        let mut nodes = self.world.list(NODE, "").await;
        nodes.retain(|node| ours(node) && serves(node, version));
        nodes
    }

    /// Pods of the web server that are ready, by the node that they run on.
    pub(crate) async fn web_servers(&self) -> Vec<String> {
        let pods = self
            .world
            .list(super::super::cluster::POD, &self.pods)
            .await;
        let ready = pods.iter().filter(|pod| condition(pod, "Ready"));
        ready
            .filter_map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned))
            .collect()
    }

    /// WindowsMachines in this state, as `kubectl get` shows them.
    pub(crate) async fn shown(&self, state: &str) -> usize {
        let shown = self.world.list(WINDOWS_MACHINE, &self.machines).await;
        shown
            .iter()
            .filter(|machine| machine["status"]["state"] == state)
            .count()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn tally(&self) -> Tally {
        self.record.tally()
    }
}

/// Whether a Node serves at a version that begins so: Ready, and not cordoned.
pub(crate) fn serves(node: &Value, version: &str) -> bool {
    let ours = node["metadata"]["annotations"]["dormer.io/version"].as_str();
    ours.is_some_and(|ours| ours.starts_with(version))
        && condition(node, "Ready")
        && node["spec"]["unschedulable"] != true
}

/// Whether a condition of an object is true.
pub(crate) fn condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let is = |c: &Value| c["type"] == kind && c["status"] == "True";
    conditions.into_iter().flatten().any(is)
}

/// UIDs, in order.
pub(crate) fn uids(objects: &[Value]) -> Vec<String> {
    let uid = |object: &Value| object["metadata"]["uid"].as_str().map(str::to_owned);
    let mut uids: Vec<String> = objects.iter().filter_map(uid).collect();
    uids.sort();
    uids
}

/// A Secret; one that is there already may be another test's, and says the same.
async fn secret(world: &World, namespace: &str, name: &str, data: Value) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace}, "stringData": data});
    let _ = world.try_create(secret).await;
}
