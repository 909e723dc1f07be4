//! The controllers that a cluster has: each a loop of its own over the same API.

pub mod client;
pub mod cluster_api;
pub mod collect;
pub mod csr;
pub mod drain;
pub mod health;
pub mod machine;
pub mod machine_set;
pub mod mirror;
pub mod node_life;
pub mod nodelink;
pub mod observe;
pub mod run;
pub mod scheduler;
pub mod trouble;
pub mod workload;

use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::{client::Client, run::Reconcile};
use crate::{
    api::{ApiServer, User, kinds},
    faults::Faults,
    world::{HostCloud, Pace},
};

/// Which controllers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All that a cluster has.
    All,
    /// Only the machine APIs' controllers: others run the rest.
    Machines,
}

/// What the controllers need.
pub struct Controllers {
    /// The API server; of a real one what is known of it.
    pub server: ApiServer,
    /// The real one, if it is.
    pub real: Option<Arc<mirror::Mirror>>,
    /// Where instances come from.
    pub cloud: Arc<dyn HostCloud>,
    /// What trouble is ordered.
    pub faults: Faults,
    /// How fast the world runs.
    pub pace: Pace,
    /// How many Windows machines the world began with.
    pub first_machines: u32,
    /// Whether Cluster API's controllers run, too.
    pub cluster_api: bool,
}

impl Controllers {
    /// Starts them; they end when `stop` is cancelled or the set is dropped.
    pub fn start(self, which: Which, stop: &CancellationToken) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let view = |name: &str| match &self.real {
            None => Client::new(&self.server, User::controller(name)),
            Some(real) => Client::of_real(&self.server, real, User::controller(name)),
        };
        let mut all = self.machine_api(&view);
        if self.cluster_api {
            all.extend(self.cluster_api(&view));
        }
        if which == Which::All {
            all.extend(self.cluster(&view));
        }
        for (name, what) in all {
            tasks.spawn(run::run(view(name), self.pace, what, stop.clone()));
        }
        let trouble = trouble::run(view("trouble"), self.faults.clone(), self.pace);
        let stop = stop.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = trouble => {}
                () = stop.cancelled() => {}
            }
        });
        tasks
    }

    fn machine_api(
        &self,
        view: &impl Fn(&str) -> Client,
    ) -> Vec<(&'static str, Arc<dyn Reconcile>)> {
        let machines = machine::Machines {
            client: view("machine-controller"),
            cloud: self.cloud.clone(),
            faults: self.faults.clone(),
            pace: self.pace,
            first_machines: self.first_machines,
            instances: Mutex::default(),
        };
        let sets = machine_set::MachineSets {
            client: view("machineset-controller"),
        };
        let health = health::HealthChecks::new(view("machinehealthcheck-controller"), self.pace);
        vec![
            ("machine-controller", Arc::new(machines)),
            ("machineset-controller", Arc::new(sets)),
            (
                "nodelink-controller",
                Arc::new(nodelink::NodeLink::new(view("nodelink-controller"))),
            ),
            ("machinehealthcheck-controller", Arc::new(health)),
        ]
    }

    fn cluster_api(
        &self,
        view: &impl Fn(&str) -> Client,
    ) -> Vec<(&'static str, Arc<dyn Reconcile>)> {
        let machines = cluster_api::ClusterMachines {
            client: view("capi-machine-controller"),
            cloud: self.cloud.clone(),
            pace: self.pace,
        };
        let sets = cluster_api::ClusterMachineSets {
            client: view("capi-machineset-controller"),
        };
        vec![
            ("capi-machine-controller", Arc::new(machines)),
            ("capi-machineset-controller", Arc::new(sets)),
        ]
    }

    fn cluster(&self, view: &impl Fn(&str) -> Client) -> Vec<(&'static str, Arc<dyn Reconcile>)> {
        let rs = |kind| workload::ReplicaSets {
            client: view("replicaset-controller"),
            kind,
        };
        let signer = csr::Signer {
            client: view("certificate-controller"),
            faults: self.faults.clone(),
        };
        let pods = scheduler::Pods {
            client: view("kube-scheduler"),
            pace: self.pace,
        };
        let mut all: Vec<(&'static str, Arc<dyn Reconcile>)> = vec![
            (
                "node-controller",
                Arc::new(node_life::NodeLife::new(view("node-controller"), self.pace)),
            ),
            ("certificate-controller", Arc::new(signer)),
            ("kube-scheduler", Arc::new(pods)),
            (
                "deployment-controller",
                Arc::new(workload::Deployments {
                    client: view("deployment-controller"),
                }),
            ),
            ("replicaset-controller", Arc::new(rs(&kinds::REPLICA_SET))),
            ("statefulset-controller", Arc::new(rs(&kinds::STATEFUL_SET))),
            (
                "daemon-set-controller",
                Arc::new(workload::DaemonSets {
                    client: view("daemon-set-controller"),
                }),
            ),
            (
                "disruption-controller",
                Arc::new(workload::Budgets {
                    client: view("disruption-controller"),
                }),
            ),
            (
                "namespace-controller",
                Arc::new(collect::Namespaces {
                    client: view("namespace-controller"),
                }),
            ),
        ];
        for collector in collect::Collector::all(&view("generic-garbage-collector")) {
            all.push(("generic-garbage-collector", Arc::new(collector)));
        }
        all
    }
}
