//! Fixture of the scenarios: a real API server or the simulated one, both with simulated Windows hosts.

use super::super::{
    accounts,
    ask::{OPERATOR, account},
    cluster::{
        Kind, MACHINE, NODE, Site, WINDOWS_MACHINE, WINDOWS_POOL, World, client, lone_plane,
        with_kubelets,
    },
};
use dormer_fleet::{
    Pace, WorldConfig,
    api::User,
    cluster::mirror::Outside,
    host::Host,
    world::{OutsideConfig, OutsideWorld, Record, Tally},
};
use dormer_testkit::{ControlPlane, Skipped, Speaker, TempDir, free_port, test_dir};
use dormer_workers::kubernetes::Tokens;
use serde_json::{Value, json};
use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

pub(crate) const MACHINE_SET: Kind = ("machine.openshift.io", "v1beta1", "MachineSet");
/// How many times as fast as life the hosts are.
const SPEED: f64 = 60.0;
/// dormer's roles, and the account of each.
pub(crate) const ROLES: [&str; 5] = ["engine", "watcher", "worker", "approver", "console"];
/// Where the simulated cluster has the key for its hosts, and so dormer's settings.
const SIMULATED_HOME: &str = "dormer";

/// The port of all hosts: worlds that share it have networks of their own.
fn ssh_port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(free_port)
}

/// Keeps a world alive.
enum Keeps {
    Real {
        world: Box<OutsideWorld>,
        plane: &'static ControlPlane,
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
    /// dormer's own namespace.
    pub(crate) home: String,
    /// The namespace of the web server on the nodes.
    pub(crate) pods: String,
    /// Kubeconfigs, payloads and logs.
    pub(crate) folder: TempDir,
    pub(crate) ssh_port: u16,
    /// Whose tokens the machines join by.
    pub(crate) tokens: Tokens,
    keeps: Keeps,
}

impl Ground {
    /// A part of the real control plane, with the accounts of `deploy/rbac.yaml` as they are shipped.
    pub(crate) async fn real(
        name: &'static str,
        machines: u32,
        faults: &[&str],
    ) -> Result<Self, Skipped> {
        Ok(Self::on(with_kubelets()?, name, machines, faults).await)
    }

    /// A control plane of its own, for a test that changes the whole cluster.
    pub(crate) async fn alone(name: &'static str, machines: u32) -> Result<Self, Skipped> {
        Ok(Self::on(lone_plane()?, name, machines, &[]).await)
    }

    /// The same on this control plane.
    pub(crate) async fn of_its_own(
        plane: Result<&'static ControlPlane, Skipped>,
        name: &'static str,
        machines: u32,
    ) -> Result<Self, Skipped> {
        Ok(Self::on(plane?, name, machines, &[]).await)
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
    ) -> Self {
        let site = Site::new(plane, name).await;
        accounts::apply(&site, |_, _| true).await;
        let home = accounts::home(&site);
        let bootstrap = account(&site, OPERATOR, "node-bootstrapper").await;
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
                machines: site.machines.clone(),
            },
            machines,
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
        let Speaker::Token(token) = bootstrap else {
            unreachable!("an account has a token")
        };
        let join = json!({"token": token, "ca.crt": plane.ca()});
        secret(&site.world, OPERATOR, "node-bootstrapper-token", join).await;
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
            home,
            pods: name.into(),
            folder,
            ssh_port,
            tokens: Tokens::Shared,
            keeps: Keeps::Real {
                world: Box::new(outside),
                plane,
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
        let ssh_port = ssh_port();
        let config = WorldConfig {
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
            home: SIMULATED_HOME.into(),
            pods: "default".into(),
            folder,
            ssh_port,
            tokens: Tokens::Shared,
            keeps: Keeps::Simulated {
                world: Box::new(simulated),
            },
        };
        ground.pool().await;
        ground
    }

    pub(crate) async fn pool(&self) {
        let pool = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
            "metadata": {"name": "windows", "namespace": self.home},
            "spec": {"soak": "1s", "strategy": {"maxUnavailable": 1}}});
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
        self.world.list(MACHINE, &self.machines).await
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
