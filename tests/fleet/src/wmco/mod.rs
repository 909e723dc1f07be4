//! A simulated Windows Machine Config Operator (WMCO) beside dormer: a client of the API server with an identity and
//! WMCO's own role, which runs while its Pod is there. [`rules`] has what it does, with WMCO's sources.
//!
//! What it does on hosts is done to the hosts' service managers directly. Where it is simpler than WMCO: it adopts hosts
//! that have services and brings none up from nothing; its configuration of a host takes nine minutes and is one restart
//! of each service; requests of certificates are its only business with bring-your-own hosts.

pub mod layout;
pub mod rules;
mod wicd;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use dormer_profile::sha256_hex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    api::{Meta, User, auth::secret_text, ca, kinds},
    faults::Fault,
    host::{
        HostPhase, Hosts,
        kubelet::{Api, KubeletIdentity},
    },
    manifest::demo::{self, MACHINE_API, OPERATOR},
    world::{Pace, World, WorldClock, WorldError},
};
use rules::{ACCOUNT, DEPLOYMENT, LOCK, WmcoRule};

/// The build that its version annotation names.
pub const VERSION: &str = "11.0.0-0be4b9cc";
/// What says on a Node that WMCO has configured it.
pub const VERSION_ANNOTATION: &str = "windowsmachineconfig.openshift.io/version";
/// What its daemon says on a Node whose host has to restart.
pub const REBOOT_ANNOTATION: &str = "windowsmachineconfig.openshift.io/reboot-required";
/// By which key a Node was configured.
pub const KEY_ANNOTATION: &str = "windowsmachineconfig.openshift.io/pub-key-hash";
/// How long it takes to configure a host (README: about 10 minutes).
const CONFIGURE: Duration = Duration::from_secs(540);
/// How often it looks. WMCO watches; what it then does takes minutes.
const POLL_EVERY: Duration = Duration::from_secs(5);
/// How long one that is a fault runs before it is stopped.
const STAYS: Duration = Duration::from_secs(1_800);

/// How it runs.
#[derive(Debug, Clone)]
pub struct Options {
    pub namespace: String,
    /// Rules that are switched off.
    pub off: Vec<WmcoRule>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespace: OPERATOR.to_owned(),
            off: Vec::new(),
        }
    }
}

/// One at work. Dropping it ends its process, as a Node that fails does: its Pod and its lock stay.
pub struct Wmco {
    namespace: String,
    _tasks: JoinSet<()>,
}

impl Wmco {
    /// Installs it, as an administrator and OLM do, and starts its process.
    ///
    /// # Errors
    /// The server refuses one of its objects, or no connection can be made.
    pub fn start(world: &World, options: Options) -> Result<Self, WorldError> {
        let namespace = options.namespace.clone();
        if namespace != OPERATOR {
            world.create(json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": namespace}}))?;
        }
        for object in installed(&namespace) {
            let kind = kinds::of(
                object["apiVersion"].as_str().unwrap_or_default(),
                object["kind"].as_str().unwrap_or_default(),
            );
            let key = crate::api::Key::of(&object);
            // It is installed again.
            if kind.is_some_and(|kind| world.api.store().get(kind.store, &key).is_some()) {
                continue;
            }
            world.create(object)?;
        }
        let connect = |account: &str, grants| {
            let user = User::service_account(&namespace, account);
            world.api.tokens().confine(&user.name, grants);
            let token = KubeletIdentity::Token(world.token_for(user));
            let dialer = world.api_dialer.clone();
            let api = Api::new(dialer, &world.api_url, &world.api.ca().pem(), &token);
            api.map(Arc::new).map_err(WorldError::Outside)
        };
        let process = OperatorProcess {
            api: connect(ACCOUNT, rules::operator(&namespace))?,
            wicd: connect(rules::WICD, rules::daemon())?,
            hosts: world.hosts.clone(),
            pace: world.pace,
            clock: world.clock,
            options,
            daemons: BTreeSet::new(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(process.run());
        Ok(Self {
            namespace,
            _tasks: tasks,
        })
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// [`Fault::WmcoBeside`]: it runs from the start, until an administrator scales it down.
///
/// # Errors
/// As [`Wmco::start`].
pub(crate) fn beside(world: &World, tasks: &mut JoinSet<()>) -> Result<(), WorldError> {
    let wmco = Wmco::start(world, Options::default())?;
    let server = world.api.clone();
    let pace = world.pace;
    let stays = world.faults.lasts(Fault::WmcoBeside, DEPLOYMENT);
    tasks.spawn(async move {
        pace.sleep(stays.unwrap_or(STAYS)).await;
        let key = crate::api::Key::new(wmco.namespace(), DEPLOYMENT);
        let client = crate::cluster::client::Client::new(&server, User::admin());
        let scale = json!({"spec": {"replicas": 0}});
        if let Err(refusal) = client
            .merge(&crate::api::kinds::DEPLOYMENT, &key, &scale)
            .await
        {
            tracing::warn!("{} goes on: {refusal}", Fault::WmcoBeside);
        }
        // What it was in the middle of stays cordoned: that is mended, too.
        pace.sleep(POLL_EVERY * 2).await;
        for node in client.list(&crate::api::kinds::NODE, &Default::default()) {
            if node.value["spec"]["unschedulable"] == true {
                let uncordon = json!({"spec": {"unschedulable": null}});
                let key = crate::api::Key::of(&node.value);
                drop(
                    client
                        .merge(&crate::api::kinds::NODE, &key, &uncordon)
                        .await,
                );
            }
        }
        // Its daemons on hosts continue.
        std::future::pending::<()>().await;
    });
    Ok(())
}

/// What OLM makes, and the account of WICD, which the bundle has.
fn installed(namespace: &str) -> [Value; 4] {
    let olm = "operators.coreos.com/v1alpha1";
    let version = VERSION.split('-').next().unwrap_or(VERSION);
    let csv = format!("{DEPLOYMENT}.v{version}");
    [
        json!({"apiVersion": olm, "kind": "Subscription",
            "metadata": {"name": DEPLOYMENT, "namespace": namespace},
            "spec": {"name": DEPLOYMENT, "channel": "stable", "source": "redhat-operators",
                "sourceNamespace": "openshift-marketplace"},
            "status": {"installedCSV": csv}}),
        json!({"apiVersion": olm, "kind": "ClusterServiceVersion",
            "metadata": {"name": csv, "namespace": namespace}, "spec": {"version": version}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": rules::WICD, "namespace": namespace}}),
        deployment(namespace),
    ]
}

/// WMCO's hash of a key: of its public half's line, without comment and line end (`pkg/nodeconfig/nodeconfig.go`,
/// CreatePubKeyHashAnnotation).
pub fn process_key(private_pem: &str) -> Option<String> {
    let line = public_line(private_pem)?;
    Some(sha256_hex(line.as_bytes()))
}

/// The line of a key's public half, without comment and line end.
fn public_line(private_pem: &str) -> Option<String> {
    let key = russh::keys::decode_secret_key(private_pem, None).ok()?;
    let mut public = key.public_key().clone();
    public.set_comment("");
    let line = public.to_openssh().ok()?;
    Some(line.trim_end().to_owned())
}

fn deployment(namespace: &str) -> Value {
    let labels = json!({"name": DEPLOYMENT});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT, "namespace": namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "nodeSelector": {"node-role.kubernetes.io/master": ""},
                "containers": [{"name": "manager", "image": "windows-machine-config-operator"}]}}}})
}

/// A Machine that runs, and its Node.
struct Configured {
    machine: Value,
    node: Value,
}

/// The operator's process.
struct OperatorProcess {
    api: Arc<Api>,
    /// The daemons' way to the API server.
    wicd: Arc<Api>,
    hosts: Option<Hosts>,
    pace: Pace,
    clock: WorldClock,
    options: Options,
    /// UIDs of Machines whose hosts' daemon is played.
    daemons: BTreeSet<String>,
}

impl OperatorProcess {
    fn follows(&self, rule: WmcoRule) -> bool {
        !self.options.off.contains(&rule)
    }

    async fn run(mut self) {
        let pod = loop {
            if let Some(pod) = self.own_pod().await {
                break pod;
            }
            self.pace.sleep(POLL_EVERY).await;
        };
        if self.follows(WmcoRule::LeadsForLife) {
            self.lead(&pod).await;
        }
        let mut daemons = JoinSet::new();
        let ends = self.ends(&pod);
        tokio::select! {
            () = ends => {}
            () = self.work(&mut daemons) => {}
        }
        // Daemons are services of their hosts: they outlive the operator.
        while daemons.join_next().await.is_some() {}
    }

    fn path(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.options.namespace)
    }

    async fn items(&self, path: &str) -> Result<Vec<Value>, String> {
        let (code, mut list) = self.api.get(path).await?;
        match list["items"].take() {
            Value::Array(items) if code == 200 => Ok(items),
            _ => Err(format!("{path}: {code} {}", list["message"])),
        }
    }

    async fn own_pod(&self) -> Option<Value> {
        let pods = self.items(&self.path("pods")).await.ok()?;
        let ours = |pod: &Value| pod.label("name") == Some(DEPLOYMENT) && !pod.deleting();
        pods.into_iter().find(ours)
    }

    /// Ends when its Pod is gone.
    fn ends(&self, pod: &Value) -> impl Future<Output = ()> + Send + use<> {
        let api = Arc::clone(&self.api);
        let pace = self.pace;
        let path = format!("{}/{}", self.path("pods"), pod.name());
        let uid = pod.uid().to_owned();
        async move {
            loop {
                let lives = match api.get(&path).await {
                    Ok((200, found)) => found.uid() == uid && !found.deleting(),
                    // An API server that does not answer ends no process.
                    other => !matches!(other, Ok((404, _))),
                };
                if !lives {
                    return;
                }
                pace.sleep(POLL_EVERY).await;
            }
        }
    }

    async fn work(&mut self, daemons: &mut JoinSet<()>) {
        loop {
            if let Err(why) = self.pass(daemons).await {
                tracing::debug!("the simulated WMCO tries again: {why}");
            }
            self.pace.sleep(POLL_EVERY).await;
        }
    }

    /// Leader for life: the lock goes with the Pod that owns it.
    async fn lead(&self, pod: &Value) {
        let lock = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": LOCK, "namespace": self.options.namespace, "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": pod.uid()}]}});
        let maps = self.path("configmaps");
        let stale = format!("{maps}/{LOCK}");
        while !matches!(self.api.post(&maps, &lock).await, Ok((201, _))) {
            // One whose Pod is gone is collected; here it is taken over.
            drop(self.api.put(&stale, &lock).await);
            if matches!(self.api.get(&stale).await, Ok((200, _))) {
                return;
            }
            self.pace.sleep(POLL_EVERY).await;
        }
    }

    /// One worker: whatever it finds first is done to its end.
    async fn pass(&mut self, daemons: &mut JoinSet<()>) -> Result<(), String> {
        if self.follows(WmcoRule::ApprovesRequests) {
            self.approve().await?;
        }
        let secret = self.secret().await?;
        let key = process_key(&secret).ok_or("its private key cannot be read")?;
        if self.follows(WmcoRule::ClearsKeysForOtherUserData) {
            self.user_data(&secret).await?;
        }
        for found in self.configured().await? {
            let owes = found.node.annotation(REBOOT_ANNOTATION).is_some();
            if owes && self.follows(WmcoRule::RebootsWhatOwesIt) {
                return self.reboot(&found).await;
            }
            let version = found.node.annotation(VERSION_ANNOTATION);
            if version.is_some() {
                self.daemon(&found, daemons).await?;
            }
            match version {
                None if self.follows(WmcoRule::ConfiguresWithoutVersion) => {
                    return self.configure(&found, &key, daemons).await;
                }
                Some(_)
                    if found.node.annotation(KEY_ANNOTATION) != Some(key.as_str())
                        && self.follows(WmcoRule::DeletesOtherKeys) =>
                {
                    let path = format!(
                        "/apis/machine.openshift.io/v1beta1/namespaces/{MACHINE_API}/machines/{}",
                        found.machine.name()
                    );
                    return self.api.delete(&path, &json!({})).await.map(drop);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The key in its own namespace.
    async fn secret(&self) -> Result<String, String> {
        let path = format!("{}/cloud-private-key", self.path("secrets"));
        let (_, secret) = self.api.get(&path).await?;
        secret_text(&secret, "private-key.pem").ok_or_else(|| "it has no private key".to_owned())
    }

    /// Writes user data of new machines by its key. What was there before, if it is not the same, is taken for that of
    /// another key.
    async fn user_data(&self, private: &str) -> Result<(), String> {
        const NAME: &str = "windows-user-data";
        let text = demo::user_data(&public_line(private).ok_or("its private key cannot be read")?);
        let wanted = demo::secret(MACHINE_API, NAME, &[("userData", &text)]);
        let secrets = format!("/api/v1/namespaces/{MACHINE_API}/secrets");
        let (code, there) = self.api.get(&format!("{secrets}/{NAME}")).await?;
        if code == 404 {
            return self.api.post(&secrets, &wanted).await.map(drop);
        }
        if secret_text(&there, "userData").as_deref() == Some(text.as_str()) {
            return Ok(());
        }
        let of_machine = |node: &Value| {
            node.label("kubernetes.io/os") == Some("windows")
                && node
                    .label("windowsmachineconfig.openshift.io/byoh")
                    .is_none()
        };
        let cleared = json!({"metadata": {"annotations": {KEY_ANNOTATION: ""}}});
        for node in self.items("/api/v1/nodes").await? {
            if of_machine(&node) {
                let path = format!("/api/v1/nodes/{}", node.name());
                self.api.merge(&path, &cleared).await?;
            }
        }
        let path = format!("{secrets}/{NAME}");
        self.api.put(&path, &wanted).await.map(drop)
    }

    /// Restarts a host that owes a reboot (`pkg/nodeconfig/nodeconfig.go`, SafeReboot).
    async fn reboot(&self, found: &Configured) -> Result<(), String> {
        let node = format!("/api/v1/nodes/{}", found.node.name());
        let cordon = |on: bool| json!({"spec": {"unschedulable": on.then_some(true)}});
        self.api.merge(&node, &cordon(true)).await?;
        for pod in self.items("/api/v1/pods").await? {
            if pod["spec"]["nodeName"] == found.node.name() {
                let path = format!("/api/v1/namespaces/{}/pods", pod.namespace());
                let meta = json!({"name": pod.name(), "namespace": pod.namespace()});
                let eviction =
                    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta});
                let path = format!("{path}/{}/eviction", pod.name());
                self.api.post(&path, &eviction).await?;
            }
        }
        let hosts = self.hosts.as_ref();
        if let Some(host) = hosts.and_then(|hosts| hosts.host(found.machine.uid())) {
            let boots = host.state().boots;
            host.reboot_in(Duration::from_secs(1));
            while host.state().boots == boots || host.phase() != HostPhase::Up {
                self.pace.sleep(POLL_EVERY).await;
            }
        }
        let paid = json!({"metadata": {"annotations": {REBOOT_ANNOTATION: null}}});
        self.api.merge(&node, &paid).await?;
        self.api.merge(&node, &cordon(false)).await.map(drop)
    }

    /// Plays the daemon of a host that has one.
    async fn daemon(
        &mut self,
        found: &Configured,
        daemons: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let hosts = self.hosts.as_ref();
        let host = hosts.and_then(|hosts| hosts.host(found.machine.uid()));
        let Some(host) = host.filter(|_| self.follows(WmcoRule::RestoresCommandLines)) else {
            return Ok(());
        };
        let there = host.state().scm.get(wicd::SERVICE).is_some();
        if !there || !self.daemons.insert(found.machine.uid().to_owned()) {
            return Ok(());
        }
        self.services(&host).await?;
        let api = Arc::clone(&self.wicd);
        let map = format!("{}/{}", self.path("configmaps"), wicd::map());
        daemons.spawn(wicd::run(host, api, map, self.pace));
        Ok(())
    }

    /// Windows Machines that run and have a Node, but for those that it is to ignore.
    async fn configured(&self) -> Result<Vec<Configured>, String> {
        let path = format!("/apis/machine.openshift.io/v1beta1/namespaces/{MACHINE_API}/machines");
        let nodes = self.items("/api/v1/nodes").await?;
        let mut found = Vec::new();
        for machine in self.items(&path).await? {
            let windows = machine.label("machine.openshift.io/os-id") == Some("Windows");
            let ignored = machine.label("windowsmachineconfig.openshift.io/ignore") == Some("true");
            let runs = machine["status"]["phase"] == "Running";
            if !windows || ignored || !runs || machine.deleting() {
                continue;
            }
            let name = machine["status"]["nodeRef"]["name"].as_str();
            if let Some(node) = nodes.iter().find(|node| Some(node.name()) == name) {
                let node = node.clone();
                found.push(Configured { machine, node });
            }
        }
        Ok(found)
    }

    /// A Node without a version was never finished, so nothing is drained.
    async fn configure(
        &mut self,
        found: &Configured,
        key: &str,
        daemons: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let node = format!("/api/v1/nodes/{}", found.node.name());
        let cordon = |on: bool| json!({"spec": {"unschedulable": on.then_some(true)}});
        self.api.merge(&node, &cordon(true)).await?;
        let hosts = self.hosts.as_ref();
        let host = hosts.and_then(|hosts| hosts.host(found.machine.uid()));
        if let Some(host) = &host {
            self.services(host).await?;
            wicd::restart_all(host).await;
        }
        self.pace.sleep(CONFIGURE).await;
        let marks = json!({"metadata": {"annotations": {
            KEY_ANNOTATION: key, VERSION_ANNOTATION: VERSION,
            "windowsmachineconfig.openshift.io/desired-version": VERSION}}});
        self.api.merge(&node, &marks).await?;
        self.api.merge(&node, &cordon(false)).await?;
        self.say(&found.machine).await?;
        self.daemon(found, daemons).await
    }

    /// The ConfigMap that daemons follow: made once for this build, of the command lines that the first host has.
    async fn services(&self, host: &crate::host::Host) -> Result<(), String> {
        let services = wicd::services(host).to_string();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
            "metadata": {"name": wicd::map(), "namespace": self.options.namespace},
            "data": {"services": services, "files": "[]"}});
        self.api.post(&self.path("configmaps"), &map).await?;
        Ok(())
    }

    async fn say(&self, machine: &Value) -> Result<(), String> {
        let at = self.clock.stamp();
        let name = format!("{}.{}", machine.name(), sha256_hex(at.as_bytes()));
        let event = json!({"apiVersion": "v1", "kind": "Event", "type": "Normal",
            "metadata": {"name": name, "namespace": MACHINE_API},
            "involvedObject": {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
                "name": machine.name(), "namespace": MACHINE_API, "uid": machine.uid()},
            "reason": "MachineSetup", "message": "Machine configured successfully",
            "firstTimestamp": at, "lastTimestamp": at, "count": 1,
            "source": {"component": "windowsmachine"}});
        let path = format!("/api/v1/namespaces/{MACHINE_API}/events");
        self.api.post(&path, &event).await.map(drop)
    }

    /// Requests whose name is a part of an instance's name.
    async fn approve(&self) -> Result<(), String> {
        let path = format!("{}/windows-instances", self.path("configmaps"));
        let (code, instances) = self.api.get(&path).await?;
        let data = instances["data"].as_object().filter(|_| code == 200);
        let Some(instances) = data else {
            return Ok(());
        };
        const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        for mut csr in self.items(REQUESTS).await? {
            let pending = csr["status"]["conditions"]
                .as_array()
                .is_none_or(Vec::is_empty);
            let node = requested_node(&csr);
            let ours = node.is_some_and(|node| instances.keys().any(|it| it.contains(&node)));
            if !pending || !ours {
                continue;
            }
            csr["status"]["conditions"] = json!([{"type": "Approved", "status": "True",
                "reason": "WMCOApprove", "message": "Approved by WMCO",
                "lastUpdateTime": self.clock.stamp()}]);
            let path = format!("{REQUESTS}/{}/approval", csr.name());
            self.api.put(&path, &csr).await?;
        }
        Ok(())
    }
}

/// The node for which a request asks, by its common name.
fn requested_node(csr: &Value) -> Option<String> {
    let pem = BASE64_STANDARD
        .decode(csr["spec"]["request"].as_str()?)
        .ok()?;
    let name = ca::read_request(&pem).ok()?.common_name;
    name.strip_prefix("system:node:").map(str::to_owned)
}
