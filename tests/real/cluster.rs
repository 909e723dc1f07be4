//! Control plane of this test binary, and each test's own part of it.

use dormer_profile::yaml;
use dormer_proto::{
    id::{Attempt, Incarnation, LeaseToken, RunId, Seq, Sum, TaskId, Timestamp},
    machine::{Guard, MachineRef, Outcome, Task},
    message::Failure,
    work::Order,
};
use dormer_testkit::{ControlPlane, Skipped, Speaker, Start, await_some, openshift_crd};
use dormer_workers::{
    execute::Execute,
    kubernetes::{KubernetesExecutor, Settings, Tokens, keys},
    progress::Progress,
};
use kube::{
    Api, Client, Config,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use std::{sync::OnceLock, time::Duration};

/// Longest wait for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The CRDs that dormer meets, by their path in OpenShift's module.
const CRDS: [&str; 4] = [
    "machine/v1beta1/zz_generated.crd-manifests/0000_10_machine-api_01_machines-Default.crd.yaml",
    "machine/v1beta1/zz_generated.crd-manifests/0000_10_machine-api_01_machinesets-Default.crd.yaml",
    "config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_infrastructures-Default.crd.yaml",
    "config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_networks.crd.yaml",
];

const PROXIES: &str =
    "config/v1/zz_generated.crd-manifests/0000_03_config-operator_01_proxies.crd.yaml";

/// dormer's own kinds.
pub(crate) const OURS: &str = include_str!("../../deploy/crd.yaml");
/// The same as they were before v1beta1, when the console made status-only pools.
const OURS_BEFORE: &str = include_str!("crd-v1alpha1.yaml");

static PLANE: OnceLock<Result<ControlPlane, Skipped>> = OnceLock::new();

/// Control plane with OpenShift's CRDs, started by the first caller.
pub(crate) fn the_plane() -> Result<&'static ControlPlane, Skipped> {
    PLANE.get_or_init(start).as_ref().map_err(Clone::clone)
}

/// A control plane whose API server may be killed.
pub(crate) fn fragile_plane() -> Result<&'static ControlPlane, Skipped> {
    static FRAGILE: OnceLock<Result<ControlPlane, Skipped>> = OnceLock::new();
    FRAGILE.get_or_init(start).as_ref().map_err(Clone::clone)
}

/// A control plane whose Nodes all have kubelets.
pub(crate) fn with_kubelets() -> Result<&'static ControlPlane, Skipped> {
    static KUBELETS: OnceLock<Result<ControlPlane, Skipped>> = OnceLock::new();
    let start = || start_as(ControlPlane::start_for_kubelets, OURS);
    KUBELETS.get_or_init(start).as_ref().map_err(Clone::clone)
}

/// A control plane of one test, whose servers end with it: a [`Site`] keeps a reference for good.
pub(crate) struct OwnPlane(&'static ControlPlane);

impl OwnPlane {
    fn new(plane: ControlPlane) -> Self {
        Self(Box::leak(Box::new(plane)))
    }

    pub(crate) fn plane(&self) -> &'static ControlPlane {
        self.0
    }
}

impl Drop for OwnPlane {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// As [`with_kubelets`], for one test that changes the whole cluster.
pub(crate) fn own_plane() -> Result<OwnPlane, Skipped> {
    start_as(ControlPlane::start_for_kubelets, OURS).map(OwnPlane::new)
}

/// As [`with_kubelets`], of one test's own, and without dormer's kinds.
pub(crate) fn plane_without_ours() -> Result<ControlPlane, Skipped> {
    start_as(ControlPlane::start_for_kubelets, "")
}

/// A control plane with the kinds of an earlier build.
pub(crate) fn plane_before() -> Result<OwnPlane, Skipped> {
    start_as(ControlPlane::start, OURS_BEFORE).map(OwnPlane::new)
}

/// A control plane of plain Kubernetes: of machines it knows dormer's own kind alone.
pub(crate) fn plain_plane() -> Result<OwnPlane, Skipped> {
    let plane = match ControlPlane::start() {
        Start::Started(plane) => plane,
        Start::Skipped(skipped) => return Err(skipped),
    };
    prepared(&plane, |world| async move { world.define(OURS).await });
    Ok(OwnPlane::new(plane))
}

/// The same with Cluster API's kinds, for kubelets.
pub(crate) fn plain_plane_with_cluster_api() -> Result<OwnPlane, Skipped> {
    let plane = match ControlPlane::start_for_kubelets() {
        Start::Started(plane) => plane,
        Start::Skipped(skipped) => return Err(skipped),
    };
    prepared(&plane, |world| async move {
        world.define(OURS).await;
        define_cluster_api(&world).await;
    });
    Ok(OwnPlane::new(plane))
}

/// As [`own_plane`] with Cluster API's kinds, for a test with machines of every kind.
pub(crate) fn plane_with_both_apis() -> Result<OwnPlane, Skipped> {
    let plane = start_as(ControlPlane::start_for_kubelets, OURS)?;
    prepared(&plane, |world| async move {
        define_cluster_api(&world).await;
    });
    Ok(OwnPlane::new(plane))
}

async fn define_cluster_api(world: &World) {
    for kind in ["Cluster", "Machine", "MachineSet"] {
        world.define(&cluster_api_crd(kind)).await;
    }
}

/// A kind of Cluster API as far as its controllers and dormer need it: any field is kept.
fn cluster_api_crd(kind: &str) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    format!(
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.cluster.x-k8s.io, annotations: {{api-approved.kubernetes.io: unapproved}}}}
spec:
  group: cluster.x-k8s.io
  names: {{kind: {kind}, plural: {plural}}}
  scope: Namespaced
  versions:
    - name: v1beta2
      served: true
      storage: true
      subresources: {{status: {{}}}}
      schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"
    )
}

/// With OpenShift's proxies, too: where they are, dormer watches what they name.
fn start() -> Result<ControlPlane, Skipped> {
    let proxies = openshift_crd(PROXIES)?;
    let plane = start_as(ControlPlane::start, OURS)?;
    prepared(&plane, move |world| async move {
        world.define(&proxies).await;
        await_some("proxies are served", PATIENCE, || async {
            let served = world
                .admin
                .list_api_group_resources("config.openshift.io/v1");
            let served = served.await.ok()?.resources;
            served.iter().any(|it| it.name == "proxies").then_some(())
        })
        .await;
    });
    Ok(plane)
}

fn start_as(how: fn() -> Start<ControlPlane>, ours: &str) -> Result<ControlPlane, Skipped> {
    let crds: Vec<String> = CRDS
        .into_iter()
        .map(openshift_crd)
        .collect::<Result<_, _>>()?;
    let plane = match how() {
        Start::Started(plane) => plane,
        Start::Skipped(skipped) => return Err(skipped),
    };
    let of = &plane;
    let crds = &crds;
    prepared(
        of,
        |world| async move { prepare(of, &world, crds, ours).await },
    );
    Ok(plane)
}

/// Prepares a control plane in another runtime than the test's: this one blocks until it is done.
fn prepared<F: Future<Output = ()>>(plane: &ControlPlane, how: impl FnOnce(World) -> F + Send) {
    std::thread::scope(|scope| {
        let prepare = || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let admin = client(&plane.kubeconfig(&plane.admin())).await;
                how(World { admin }).await;
            });
        };
        let prepared = scope.spawn(prepare).join();
        prepared.expect("the control plane takes the kinds");
    });
}

/// What every OpenShift cluster has.
async fn prepare(plane: &ControlPlane, world: &World, crds: &[String], ours: &str) {
    let all = crds.iter().map(String::as_str).chain([ours]);
    for crds in all.filter(|crds| !crds.is_empty()) {
        world.define(crds).await;
    }
    // Established is not yet served: for a moment the server answers that its storage is initializing.
    let own = [WINDOWS_MACHINE, POOL_BEFORE].into_iter();
    let own = own.filter(|_| !ours.is_empty());
    for kind in [MACHINE, INFRASTRUCTURE].into_iter().chain(own) {
        await_some("the kind is listed", PATIENCE, || async {
            world
                .api(kind, "")
                .list(&ListParams::default())
                .await
                .ok()
                .map(drop)
        })
        .await;
    }
    let infrastructure = json!({"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure",
        "metadata": {"name": "cluster"}, "spec": {"platformSpec": {"type": "AWS"}}});
    world.create(infrastructure).await;
    let status = json!({"apiServerInternalURI": plane.url(), "apiServerURL": plane.url(),
        "infrastructureName": "test", "controlPlaneTopology": "HighlyAvailable",
        "infrastructureTopology": "HighlyAvailable"});
    world.status(INFRASTRUCTURE, "", "cluster", status).await;
    let network = json!({"apiVersion": "config.openshift.io/v1", "kind": "Network",
        "metadata": {"name": "cluster"}, "spec": {"serviceNetwork": ["10.96.0.0/16"]}});
    world.create(network).await;
    for namespace in [
        "openshift-machine-config-operator",
        "openshift-machine-api",
        "openshift-config",
    ] {
        world.namespace(namespace).await;
    }
}

/// Group, version and kind.
pub(crate) type Kind = (&'static str, &'static str, &'static str);
pub(crate) const CRD: Kind = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
pub(crate) const INFRASTRUCTURE: Kind = ("config.openshift.io", "v1", "Infrastructure");
pub(crate) const MACHINE: Kind = ("machine.openshift.io", "v1beta1", "Machine");
pub(crate) const NODE: Kind = ("", "v1", "Node");
pub(crate) const BUDGET: Kind = ("policy", "v1", "PodDisruptionBudget");
pub(crate) const CSR: Kind = ("certificates.k8s.io", "v1", "CertificateSigningRequest");
pub(crate) const POD: Kind = ("", "v1", "Pod");
pub(crate) const WINDOWS_MACHINE: Kind = ("dormer.io", "v1alpha1", "WindowsMachine");
pub(crate) const WINDOWS_POOL: Kind = ("dormer.io", "v1beta1", "WindowsPool");
/// The version that both definitions serve.
pub(crate) const POOL_BEFORE: Kind = ("dormer.io", "v1alpha1", "WindowsPool");
pub(crate) const SERVICE_ACCOUNT: Kind = ("", "v1", "ServiceAccount");

/// The cluster as its administrator sees it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) admin: Client,
}

impl World {
    pub(crate) fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(kind.0, kind.1, kind.2));
        if namespace.is_empty() {
            Api::all_with(self.admin.clone(), &resource)
        } else {
            Api::namespaced_with(self.admin.clone(), namespace, &resource)
        }
    }

    /// Creates the kinds of a manifest, and waits until they are served.
    pub(crate) async fn define(&self, crds: &str) {
        for crd in yaml::documents(crds).expect("CRDs") {
            let name = crd["metadata"]["name"].as_str().expect("a name").to_owned();
            self.create(crd).await;
            await_some("the kind is served", PATIENCE, || async {
                let crd = self.get(CRD, "", &name).await?;
                let conditions = crd["status"]["conditions"].as_array()?.clone();
                let is = |c: &Value| c["type"] == "Established" && c["status"] == "True";
                conditions.iter().any(is).then_some(())
            })
            .await;
        }
    }

    /// Creates an object, and answers it as it stands.
    pub(crate) async fn create(&self, object: Value) -> Value {
        self.try_create(object.clone())
            .await
            .unwrap_or_else(|error| panic!("{object}: {error}"))
    }

    pub(crate) async fn try_create(&self, object: Value) -> Result<Value, kube::Error> {
        let said = object["apiVersion"].as_str().expect("a version");
        let (group, version) = said.rsplit_once('/').unwrap_or(("", said));
        let kind = object["kind"].as_str().expect("a kind");
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        };
        let object = serde_json::from_value(object).expect("an object");
        let made = api.create(&PostParams::default(), &object).await?;
        Ok(serde_json::to_value(made).expect("an object"))
    }

    /// The object, if it is there.
    pub(crate) async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        let found = self
            .api(kind, namespace)
            .get_opt(name)
            .await
            .expect("an answer");
        found.map(|found| serde_json::to_value(found).expect("an object"))
    }

    /// Patches an object, but not its status.
    pub(crate) async fn patch(&self, kind: Kind, namespace: &str, name: &str, change: Value) {
        let api = self.api(kind, namespace);
        let how = Patch::Merge(&change);
        api.patch(name, &PatchParams::default(), &how)
            .await
            .expect("it is patched");
    }

    /// Patches an object's status.
    pub(crate) async fn status(&self, kind: Kind, namespace: &str, name: &str, status: Value) {
        let change = json!({"status": status});
        let api = self.api(kind, namespace);
        let how = Patch::Merge(&change);
        api.patch_status(name, &PatchParams::default(), &how)
            .await
            .expect("it is patched");
    }

    /// Deletes an object at once, if it is there.
    pub(crate) async fn delete(&self, kind: Kind, namespace: &str, name: &str) {
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        match self.api(kind, namespace).delete(name, &now).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("cannot delete {name}: {error}"),
        }
    }

    /// All objects of a kind in a namespace.
    pub(crate) async fn list(&self, kind: Kind, namespace: &str) -> Vec<Value> {
        let found = self.api(kind, namespace).list(&ListParams::default()).await;
        let items = found.expect("an answer").items.into_iter();
        items
            .map(|one| serde_json::to_value(one).expect("an object"))
            .collect()
    }

    /// A namespace in which pods can be made: its account is there.
    pub(crate) async fn namespace(&self, name: &str) {
        self.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await;
        await_some("the namespace's account", PATIENCE, || {
            self.get(SERVICE_ACCOUNT, name, "default")
        })
        .await;
    }
}

/// A test's own part of the cluster. Names are the test's own where they are not in a namespace.
pub(crate) struct Site {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) world: World,
    /// The test's name: a namespace for pods, and the beginning of all other names.
    pub(crate) name: &'static str,
    /// The namespace of its Machines.
    pub(crate) machines: String,
}

impl Site {
    pub(crate) async fn new(plane: &'static ControlPlane, name: &'static str) -> Self {
        let world = World {
            admin: client(&plane.kubeconfig(&plane.admin())).await,
        };
        let machines = format!("{name}-machines");
        world.namespace(name).await;
        world.namespace(&machines).await;
        Self {
            plane,
            world,
            name,
            machines,
        }
    }

    /// A client for the given user.
    pub(crate) async fn client(&self, speaker: &Speaker) -> Client {
        client(&self.plane.kubeconfig(speaker)).await
    }

    /// A Windows Machine with a finalizer, as machine controllers leave one.
    pub(crate) async fn machine(&self, short: &str) -> MachineRef {
        let name = format!("{}-{short}", self.name);
        let made = self.world.create(json!({
            "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
            "metadata": {"name": name, "namespace": self.machines,
                "labels": {keys::OS_ID: "Windows"},
                "finalizers": ["machine.machine.openshift.io"]},
            "spec": {"providerSpec": {}},
        }));
        let made = made.await;
        let uid = made["metadata"]["uid"].as_str().expect("a UID").into();
        MachineRef {
            namespace: self.machines.clone(),
            name,
            uid,
            ..MachineRef::default()
        }
    }

    /// Gives a Machine a MachineSet that owns it, and so replaces it.
    pub(crate) async fn owned(&self, machine: &MachineRef) {
        let kind = json!({"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet"});
        let mut set = kind.clone();
        set["metadata"] = json!({"name": machine.name, "namespace": self.machines});
        set["spec"] = json!({});
        let made = self.world.create(set).await;
        let mut owner = kind;
        owner["name"] = machine.name.as_str().into();
        owner["uid"] = made["metadata"]["uid"].clone();
        owner["controller"] = true.into();
        let change = json!({"metadata": {"ownerReferences": [owner]}});
        self.world
            .patch(MACHINE, &self.machines, &machine.name, change)
            .await;
    }

    /// A Machine whose computer runs, and to which its platform gives an address and no name.
    pub(crate) async fn provisioned(&self, short: &str) -> MachineRef {
        let machine = self.machine(short).await;
        let status = json!({"phase": "Provisioned",
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]});
        self.world
            .status(MACHINE, &self.machines, &machine.name, status)
            .await;
        machine
    }

    /// Links a Machine with the Node of its name, as the Machine API does once a kubelet has made that.
    pub(crate) async fn link(&self, machine: &MachineRef) {
        let node = self.world.get(NODE, "", &machine.name).await;
        let uid = &node.expect("its Node")["metadata"]["uid"];
        let node_ref = json!({"kind": "Node", "name": machine.name, "uid": uid});
        self.world
            .status(
                MACHINE,
                &self.machines,
                &machine.name,
                json!({"nodeRef": node_ref}),
            )
            .await;
    }

    /// A Machine with a Node of its name that is Ready.
    pub(crate) async fn joined(&self, short: &str) -> MachineRef {
        let machine = self.machine(short).await;
        let node = self.node(&machine.name).await;
        let status = json!({"phase": "Running",
            "nodeRef": {"kind": "Node", "name": machine.name, "uid": node},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"},
                {"type": "InternalDNS", "address": machine.name}]});
        self.world
            .status(MACHINE, &self.machines, &machine.name, status)
            .await;
        machine
    }

    /// Makes a Windows Node that is Ready, and answers its UID.
    pub(crate) async fn node(&self, name: &str) -> String {
        let labels = json!({"kubernetes.io/os": "windows"});
        let made = self
            .world
            .create(json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": labels}}))
            .await;
        let condition = json!({"type": "Ready", "status": "True", "reason": "KubeletReady"});
        self.world
            .status(NODE, "", name, json!({"conditions": [condition]}))
            .await;
        made["metadata"]["uid"].as_str().expect("a UID").into()
    }

    /// The Machine's Node says of itself whether it is Ready, since so many seconds.
    pub(crate) async fn node_says_ready(&self, machine: &MachineRef, status: &str, seconds: i64) {
        let since = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
        let since = since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({"type": "Ready", "status": status, "reason": "Told",
            "lastTransitionTime": since});
        self.world
            .status(NODE, "", &machine.name, json!({"conditions": [condition]}))
            .await;
    }

    /// The Machine as it is; null when it is gone.
    pub(crate) async fn machine_now(&self, machine: &MachineRef) -> Value {
        self.world
            .get(MACHINE, &machine.namespace, &machine.name)
            .await
            .unwrap_or_default()
    }

    /// The Machine's Node as it is; null when it is gone.
    pub(crate) async fn node_now(&self, machine: &MachineRef) -> Value {
        self.world
            .get(NODE, "", &machine.name)
            .await
            .unwrap_or_default()
    }

    /// The marks on the Machine and on its Node.
    pub(crate) async fn marks(&self, machine: &MachineRef) -> [Option<(u64, bool)>; 2] {
        [
            self.machine_now(machine).await,
            self.node_now(machine).await,
        ]
        .map(|object| {
            let mark = keys::fence(object["metadata"]["annotations"][keys::FENCE].as_str()?)?;
            Some((mark.token.0, mark.open))
        })
    }

    /// Whether the Machine's Node is cordoned.
    pub(crate) async fn cordoned(&self, machine: &MachineRef) -> bool {
        self.node_now(machine).await["spec"]["unschedulable"] == true
    }

    /// A pod on the Machine's Node that runs and is ready; its metadata is completed by `more`.
    pub(crate) async fn pod(&self, machine: &MachineRef, name: &str, more: Value) {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.name, "labels": {"app": name}},
            "spec": {"nodeName": machine.name, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i"}],
                "tolerations": [{"operator": "Exists"}]}});
        for (key, value) in more.as_object().into_iter().flatten() {
            pod["metadata"][key] = value.clone();
        }
        self.world.create(pod).await;
        let ready = json!({"type": "Ready", "status": "True"});
        let status = json!({"phase": "Running", "conditions": [ready]});
        self.world.status(POD, self.name, name, status).await;
    }
}

/// A client with a user's kubeconfig that does not retry, as `dormer run` makes it.
pub(crate) async fn client(kubeconfig: &str) -> Client {
    Client::try_from(config(kubeconfig).await).expect("a client")
}

/// The configuration of such a client.
pub(crate) async fn config(kubeconfig: &str) -> Config {
    let parsed = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(parsed, &options)
        .await
        .expect("a config");
    config.default_retry = false;
    config
}

/// Executor with this account, whose own namespace is this one.
pub(crate) fn executor(client: Client, home: String) -> KubernetesExecutor {
    KubernetesExecutor::new(
        client,
        Settings {
            namespace: home,
            ..Settings::default()
        },
    )
}

/// The same, of a dormer that gives each machine a token of this kind.
pub(crate) fn executor_with(tokens: Tokens, client: Client, home: String) -> KubernetesExecutor {
    let settings = Settings {
        namespace: home,
        tokens,
        ..Settings::default()
    };
    KubernetesExecutor::new(client, settings)
}

/// The same, of a dormer that makes each machine a bootstrap token.
pub(crate) fn executor_with_tokens(client: Client, home: String) -> KubernetesExecutor {
    executor_with(Tokens::Bootstrap, client, home)
}

/// Does a task with this executor.
pub(crate) async fn run(executor: &KubernetesExecutor, body: Task) -> Result<Outcome, Failure> {
    run_of(executor, "m", body).await
}

/// Does a task of the machine with this UID.
pub(crate) async fn run_of(
    executor: &KubernetesExecutor,
    uid: &str,
    body: Task,
) -> Result<Outcome, Failure> {
    let run = RunId::new("machine", uid).expect("an id");
    let order = Order {
        task: TaskId {
            run,
            seq: Seq(1),
            ordinal: 0,
        },
        attempt: Attempt(1),
        incarnation: Incarnation(1),
        issued: Sum(1),
        episode: Seq(0),
        at: Timestamp(0),
        limit_ms: 60_000,
        body,
    };
    executor.execute(&order, &Progress::default()).await
}

/// Opens the fence of a Machine and its Node, with a cordon.
pub(crate) fn open(machine: &MachineRef, token: u64) -> Task {
    let node = Some(machine.name.clone());
    let token = LeaseToken(token);
    Task::OpenFence {
        machine: machine.clone(),
        node,
        token,
        over_limit: false,
        cordon: true,
        guard: Guard::default(),
    }
}

/// Closes the fence of a Machine and its Node.
pub(crate) fn close(machine: &MachineRef, token: u64) -> Task {
    let node = Some(machine.name.clone());
    Task::CloseFence {
        machine: machine.clone(),
        node,
        token: LeaseToken(token),
    }
}

/// Deletes a Machine under its token.
pub(crate) fn delete(machine: &MachineRef, token: u64) -> Task {
    Task::DeleteMachine {
        machine: machine.clone(),
        token: LeaseToken(token),
        guard: Guard::default(),
    }
}

/// Evicts the pods of a Machine's Node.
pub(crate) fn evict(machine: &MachineRef, token: u64, force: bool) -> Task {
    let node = machine.name.clone();
    let token = LeaseToken(token);
    Task::Evict {
        machine: machine.clone(),
        node,
        token,
        force,
        guard: Guard::default(),
    }
}

/// The same with what has to hold before it.
pub(crate) fn guarded(task: Task, guard: Guard) -> Task {
    let mut task = task;
    match &mut task {
        Task::OpenFence {
            guard: there,
            over_limit,
            ..
        } => {
            *over_limit = guard.down_ms.is_some();
            *there = guard;
        }
        Task::Evict { guard: there, .. } | Task::DeleteMachine { guard: there, .. } => {
            *there = guard;
        }
        other => panic!("{} has no guard here", other.name()),
    }
    task
}

/// Leaves the test where there is no control plane.
macro_rules! plane {
    () => {
        match $crate::real::cluster::the_plane() {
            Ok(plane) => plane,
            Err(skipped) => dormer_testkit::skip!(skipped),
        }
    };
}
pub(crate) use plane;
