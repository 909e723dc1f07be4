//! A world around a real API server: the controllers of a machine API, a cloud and simulated Windows hosts, and nothing of
//! what a real control plane does itself.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{HostContext, Pace, Record, WorldClock, WorldError, start};
use crate::{
    api::{ApiServer, Object, kinds},
    cluster::{
        Controllers, Which,
        mirror::{Mirror, Outside},
        observe,
    },
    faults::Faults,
    host::{Hosts, Image, Reach},
    manifest::{
        Sets,
        demo::{self, SshKey},
    },
    net::{Dialer, TcpDial},
};

/// The label that stands for `site` on plain Kubernetes: one that a Machine of Cluster API gives its Node.
pub const PLAIN_SITE: &str = "node.cluster.x-k8s.io/site";

/// What world is to be around a real API server.
#[derive(Clone)]
pub struct OutsideConfig {
    /// The server, and who we are there.
    pub outside: Outside,
    /// Windows machines of the Machine API.
    pub machines: u32,
    /// Whether they are of two MachineSets, one of AWS and one of Azure, and not all of one.
    pub two_sets: bool,
    /// Windows machines of Cluster API, all of one MachineSet.
    pub cluster_machines: u32,
    /// A label for Nodes, by which pods find those of this world: `site=<it>`, or [`PLAIN_SITE`].
    pub site: String,
    /// The namespace of the pods.
    pub pods: String,
    /// Orders of faults, as on the command line.
    pub faults: Vec<String>,
    /// How fast the world runs.
    pub pace: Pace,
    /// The port that stands for 22; each host has an address of its own.
    pub ssh_port: u16,
}

/// A running world around a real API server. Dropping it ends it, and leaves the server's objects as they are.
pub struct OutsideWorld {
    /// What truly happened, by the server's own watches and the hosts' own account.
    pub record: Record,
    /// What trouble is ordered.
    pub faults: Faults,
    pub hosts: Hosts,
    /// The keys that open them.
    pub ssh_key: SshKey,
    cache: ApiServer,
    config: OutsideConfig,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
}

impl Drop for OutsideWorld {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl OutsideWorld {
    /// Starts the controllers and the cloud; what [`OutsideWorld::furniture`] answers is for the caller to make.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub fn start(config: OutsideConfig) -> Result<Self, WorldError> {
        let seed = 1;
        let clock = WorldClock::system();
        let dialer: Dialer = Arc::new(TcpDial);
        let record = Record::new(clock, config.pace);
        let cache = ApiServer::new(clock, seed)?;
        cache.store().observe(observe::observer(record.clone()));
        let machines = config.machines + config.cluster_machines;
        let faults = Faults::parse(&config.faults, seed, machines)?;
        let context = HostContext {
            pace: config.pace,
            clock,
            faults: faults.clone(),
            record: record.clone(),
            api_dialer: dialer.clone(),
            api_url: config.outside.url.as_str().into(),
            ca_pem: config.outside.ca_pem.as_str().into(),
            seed,
        };
        let reach = Reach::Loopback {
            port: config.ssh_port,
        };
        let hosts = Hosts::new(context, reach, Image::default());
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let cloud = hosts.clone();
        let ours = move |node: &Value| {
            let id = node["spec"]["providerID"].as_str().unwrap_or_default();
            // A BYOH host has no such ID.
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            cloud.all().iter().any(|host| match id {
                "" => host.state().hostname.eq_ignore_ascii_case(name),
                id => host.instance().provider_id == id,
            })
        };
        let mirror = Mirror::new(
            &config.outside,
            dialer,
            cache.clone(),
            record.clone(),
            Box::new(ours),
        );
        let mirror = Arc::new(mirror.map_err(WorldError::Outside)?);
        let controllers = Controllers {
            server: cache.clone(),
            real: Some(mirror.clone()),
            cloud: Arc::new(hosts.clone()),
            faults: faults.clone(),
            pace: config.pace,
            first_machines: machines,
            cluster_api: config.outside.cluster_machines.is_some(),
        };
        let mut running = controllers.start(Which::Machines, &stop);
        tasks.spawn(async move { while running.join_next().await.is_some() {} });
        tasks.spawn(mirror.keep());
        let ssh_key = start::ssh_key(seed)?;
        Ok(Self {
            record,
            faults,
            hosts,
            ssh_key,
            cache,
            config,
            stop,
            _tasks: tasks,
        })
    }

    /// What the cluster needs for this world: the hosts' user data, MachineSets, and a web server with a budget that
    /// runs on the nodes of the Machine API, or on those of Cluster API where there is no other.
    ///
    /// # Errors
    /// Never, as the manifests are ours.
    pub fn furniture(&self) -> Result<Vec<Value>, WorldError> {
        let config = &self.config;
        let mut objects = Vec::new();
        if let Some(namespace) = &config.outside.machines {
            objects.extend(self.of_machine_api(namespace)?);
        }
        if let Some(namespace) = &config.outside.cluster_machines {
            objects.extend(self.of_cluster_api(namespace)?);
        }
        let (servers, site) = match config.outside.machines {
            None => (demo::plain_webserver(config.cluster_machines)?, PLAIN_SITE),
            Some(_) => (demo::webserver(config.machines)?, "site"),
        };
        for mut object in servers {
            object["metadata"]["namespace"] = json!(config.pods);
            if object["kind"] == "Deployment" {
                object["spec"]["template"]["spec"]["nodeSelector"][site] = json!(config.site);
            }
            objects.push(object);
        }
        Ok(objects)
    }

    fn of_cluster_api(&self, namespace: &str) -> Result<Vec<Value>, WorldError> {
        let config = &self.config;
        let sets = Sets::from([("cluster_name".to_owned(), config.site.clone())]);
        Ok(demo::cluster_api(
            namespace,
            config.cluster_machines,
            &self.ssh_key,
            &sets,
        )?)
    }

    fn of_machine_api(&self, namespace: &str) -> Result<Vec<Value>, WorldError> {
        let config = &self.config;
        let mut objects = demo::secrets(&self.ssh_key, &config.outside.ca_pem, "");
        objects.retain(|object| object["metadata"]["name"] == "windows-user-data");
        let sets = Sets::from([("infrastructure_id".to_owned(), config.site.clone())]);
        for (number, mut set) in demo::windows(config.two_sets, &sets)?
            .into_iter()
            .enumerate()
        {
            // On Azure a set's name has at most 9 characters.
            let name = match config.two_sets {
                true => format!("{}-{number}", config.site),
                false => format!("{}-windows", config.site),
            };
            set["metadata"]["name"] = json!(name);
            let of_set = "machine.openshift.io/cluster-api-machineset";
            set["spec"]["selector"]["matchLabels"][of_set] = json!(name);
            set["spec"]["template"]["metadata"]["labels"][of_set] = json!(name);
            set["spec"]["template"]["spec"]["metadata"]["labels"]["site"] = json!(config.site);
            objects.push(set);
        }
        demo::distribute(&mut objects, config.machines);
        for object in &mut objects {
            object["metadata"]["namespace"] = json!(namespace);
        }
        Ok(objects)
    }

    /// All objects of a kind that are this world's, as far as they are known.
    pub fn all(&self, kind: &kinds::Kind) -> Vec<Arc<Object>> {
        self.cache
            .list(kind, &crate::api::ListQuery::default())
            .items
    }
}
