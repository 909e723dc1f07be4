//! Fixture: executors on a simulated cluster, with a pause between any two of their calls.

use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{
        DeleteOptions, Key, Meta, Part, User, WriteOptions, kinds, kinds::Kind, patch::PatchKind,
    },
    world::BareCloud,
};
use dormer_proto::{
    id::{Attempt, Incarnation, LeaseToken, RunId, Seq, Sum, TaskId, Timestamp},
    machine::{MachineRef, Outcome, Task, TokenMark},
    message::Failure,
    work::Order,
};
use dormer_testkit::await_condition;
use dormer_workers::{
    execute::Execute,
    kubernetes::{KubernetesExecutor, Settings, keys},
    progress::Progress,
};
use kube::{
    Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};
use tower::{Layer, Service};

/// Longest wait for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What happens just before a call is sent.
#[derive(Default)]
struct Moment {
    calls: u32,
    at: u32,
    action: Option<Box<dyn FnOnce() + Send>>,
}

/// A client that lets something happen between two calls.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<Moment>>);

impl Gate {
    /// Lets `action` happen before the next call but `skip`.
    pub(crate) fn before(&self, skip: u32, action: impl FnOnce() + Send + 'static) {
        *self.0.lock().expect("unpoisoned") = Moment {
            calls: 0,
            at: skip,
            action: Some(Box::new(action)),
        };
    }

    /// Calls since then, and whether it has happened.
    pub(crate) fn passed(&self) -> (u32, bool) {
        let moment = self.0.lock().expect("unpoisoned");
        (moment.calls, moment.action.is_none())
    }

    fn pass(&self) {
        let mut moment = self.0.lock().expect("unpoisoned");
        let due = moment.calls == moment.at;
        moment.calls += 1;
        let action = if due { moment.action.take() } else { None };
        drop(moment);
        if let Some(action) = action {
            action();
        }
    }
}

/// The service behind a [`Gate`].
#[derive(Clone)]
pub(crate) struct Gated<S>(S, Gate);

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;
    fn layer(&self, inner: S) -> Gated<S> {
        Gated(inner, self.clone())
    }
}

impl<S: Service<R>, R> Service<R> for Gated<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.1.pass();
        self.0.call(request)
    }
}

/// World with Windows nodes that configure themselves, and an executor in it.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) world: Arc<World>,
    pub(crate) executor: KubernetesExecutor,
    pub(crate) gate: Gate,
}

impl Bench {
    /// Takes away what the controller manager says of the API server's authority.
    pub(crate) fn without_authority(&self) {
        let key = Key::new("kube-system", "kube-root-ca.crt");
        let gone = self.world.api.delete(
            &User::admin(),
            &kinds::CONFIG_MAP,
            &key,
            &DeleteOptions::now(),
        );
        gone.expect("it was there");
    }

    /// So many machines, all with Nodes that are Ready; without workload unless `workload`.
    pub(crate) async fn new(machines: u32, workload: bool) -> Self {
        let pace = Pace::times_faster(100.0);
        let config = WorldConfig {
            workload,
            ..WorldConfig::on_loopback(machines, pace)
        };
        let made = World::start_with(config, |context, api| BareCloud::new(api, context.pace));
        let world = Arc::new(made.await.expect("a world"));
        // Without a pool nothing is taken away.
        let pool = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
            "metadata": {"name": "windows", "namespace": "dormer"}, "spec": {}});
        world.create(pool).expect("a pool");
        let gate = Gate::default();
        let executor = executor(&world.kubeconfig(), &gate, Settings::default()).await;
        let bench = Self {
            world,
            executor,
            gate,
        };
        bench
            .until("the nodes are ready", || {
                bench.machines().len() == machines as usize
            })
            .await;
        bench
    }

    /// Waits until it holds.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        await_condition(what, PATIENCE, || std::future::ready(holds())).await;
    }

    /// The Windows Machines whose Nodes are Ready.
    pub(crate) fn machines(&self) -> Vec<MachineRef> {
        let all = self.world.all(&kinds::MACHINE).into_iter();
        let windows =
            all.filter(|m| m.value.label("machine.openshift.io/os-id") == Some("Windows"));
        let ready = windows.filter(|m| {
            let node = self
                .world
                .api
                .get(&kinds::NODE, &Key::new("", m.value.name()));
            m.value["status"]["nodeRef"].is_object() && node.is_ok_and(|n| n.value.is("Ready"))
        });
        let named = ready.map(|m| MachineRef {
            namespace: m.value.namespace().into(),
            name: m.value.name().into(),
            uid: m.value.uid().into(),
            ..MachineRef::default()
        });
        named.collect()
    }

    /// Does a task.
    pub(crate) async fn run(&self, body: Task) -> Result<Outcome, Failure> {
        run(&self.executor, body).await
    }

    /// The Machine as it is; null when it is gone.
    pub(crate) fn machine(&self, machine: &MachineRef) -> Value {
        let key = Key::new(machine.namespace.as_str(), machine.name.as_str());
        self.world
            .api
            .get(&kinds::MACHINE, &key)
            .map_or(Value::Null, |m| m.value.clone())
    }

    /// The Machine's Node as it is.
    pub(crate) fn node(&self, machine: &MachineRef) -> Value {
        let key = Key::new("", machine.name.as_str());
        self.world
            .api
            .get(&kinds::NODE, &key)
            .map_or(Value::Null, |n| n.value.clone())
    }

    /// The marks on the Machine and on its Node.
    pub(crate) fn marks(&self, machine: &MachineRef) -> [Option<(u64, bool)>; 2] {
        [self.machine(machine), self.node(machine)].map(|object| {
            let mark = keys::fence(object.annotation(keys::FENCE)?)?;
            Some((mark.token.0, mark.open))
        })
    }

    /// Whether the Machine's Node is cordoned.
    pub(crate) fn cordoned(&self, machine: &MachineRef) -> bool {
        self.node(machine)["spec"]["unschedulable"] == true
    }

    /// Deletes the Machine's Node.
    pub(crate) fn delete_node(&self, machine: &MachineRef) {
        let key = Key::new("", machine.name.as_str());
        let api = &self.world.api;
        let gone = api.delete(&User::admin(), &kinds::NODE, &key, &DeleteOptions::now());
        gone.expect("it was there");
    }

    pub(crate) fn patch_node(&self, machine: &MachineRef, change: Value) {
        patch(
            &self.world,
            &kinds::NODE,
            &Key::new("", machine.name.as_str()),
            change,
        );
    }

    /// Patches an object, but not its status.
    pub(crate) fn patch_object(&self, kind: &'static Kind, key: &Key, change: Value) {
        patch(&self.world, kind, key, change);
    }

    /// Changes the pool's spec.
    pub(crate) fn edit_pool(&self, spec: Value) {
        let key = Key::new("dormer", "windows");
        patch(
            &self.world,
            &kinds::WINDOWS_POOL,
            &key,
            json!({"spec": spec}),
        );
    }

    /// The Machine's Node says of itself whether it is Ready, since now.
    pub(crate) fn node_says_ready(&self, machine: &MachineRef, status: &str) {
        let since = self.world.api.clock().stamp();
        self.node_says_ready_since(machine, status, &since);
    }

    /// The Machine's kubelet does not answer. The world itself ends pods five minutes after that, which are three seconds
    /// here: by the time of this condition they never pass, however slow the computer is.
    pub(crate) fn node_is_silent(&self, machine: &MachineRef) {
        self.node_says_ready_since(machine, "Unknown", "2099-01-01T00:00:00Z");
    }

    /// The Machine's Node says of itself whether it is Ready, and since when.
    pub(crate) fn node_says_ready_since(&self, machine: &MachineRef, status: &str, since: &str) {
        let conditions = json!([{"type": "Ready", "status": status, "lastTransitionTime": since}]);
        let key = Key::new("", machine.name.as_str());
        let change = json!({"status": {"conditions": conditions}});
        patch_part(&self.world, &kinds::NODE, &key, Part::Status, change);
    }

    /// What a run's own close does, in one moment: N closed on both, and no cordon.
    pub(crate) fn close_at_once(&self, machine: &MachineRef, token: u64) {
        self.write_mark(machine, token, false);
    }

    /// What the next holder's open does, in one moment.
    pub(crate) fn open_at_once(&self, machine: &MachineRef, token: u64) {
        self.write_mark(machine, token, true);
    }

    fn write_mark(&self, machine: &MachineRef, token: u64, open: bool) {
        let mark = keys::fence_text(TokenMark {
            token: LeaseToken(token),
            open,
        });
        let mut change = json!({"metadata": {"annotations": {keys::FENCE: mark}}});
        let key = Key::new(machine.namespace.as_str(), machine.name.as_str());
        patch(&self.world, &kinds::MACHINE, &key, change.clone());
        let (note, cordon) = if open {
            (json!("false"), json!(true))
        } else {
            (Value::Null, Value::Null)
        };
        change["metadata"]["annotations"][keys::WAS_CORDONED] = note;
        change["spec"]["unschedulable"] = cordon;
        self.patch_node(machine, change);
    }

    /// Makes a pod on the Machine's Node that runs; its metadata is completed by `more`.
    pub(crate) fn pod(&self, machine: &MachineRef, name: &str, more: Value) {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
            "spec": {"nodeName": machine.name, "containers": [{"name": "c", "image": "i"}],
                "tolerations": [{"operator": "Exists"}]},
            "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}]}});
        for (key, value) in more.as_object().into_iter().flatten() {
            pod["metadata"][key] = value.clone();
        }
        self.world.create(pod).expect("a pod");
    }

    /// The names of the pods in `default` that stand and are not going.
    pub(crate) fn remaining_pods(&self) -> Vec<String> {
        let pods = self.world.all(&kinds::POD);
        let remaining = pods.iter().filter(|p| !p.value.deleting());
        let ours = remaining.filter(|p| p.value.namespace() == "default");
        ours.map(|p| p.value.name().to_owned()).collect()
    }
}

/// Executor with this kubeconfig.
pub(crate) async fn executor(
    kubeconfig: &Value,
    gate: &Gate,
    settings: Settings,
) -> KubernetesExecutor {
    let parsed = Kubeconfig::from_yaml(&kubeconfig.to_string()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(parsed, &options)
        .await
        .expect("a config");
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config).expect("a client");
    KubernetesExecutor::new(builder.with_layer(gate).build(), settings)
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
    run_issued(executor, uid, (Incarnation(1), Seq(1)), body).await
}

/// Does a task that this record of a machine's run in this store issued.
pub(crate) async fn run_issued(
    executor: &KubernetesExecutor,
    uid: &str,
    (incarnation, seq): (Incarnation, Seq),
    body: Task,
) -> Result<Outcome, Failure> {
    let run = RunId::new("machine", uid).expect("an id");
    let order = Order {
        task: TaskId {
            run,
            seq,
            ordinal: 0,
        },
        attempt: Attempt(1),
        incarnation,
        issued: Sum(1),
        episode: Seq(0),
        at: Timestamp(0),
        limit_ms: 60_000,
        body,
    };
    executor.execute(&order, &Progress::default()).await
}

/// Patches an object as the administrator.
pub(crate) fn patch(world: &World, kind: &'static Kind, key: &Key, change: Value) {
    patch_part(world, kind, key, Part::Main, change);
}

pub(crate) fn patch_part(world: &World, kind: &'static Kind, key: &Key, part: Part, change: Value) {
    let user = User::admin();
    let options = WriteOptions::default();
    let how = (PatchKind::Merge, &change);
    world
        .api
        .patch(&user, kind, key, part, how, &options)
        .expect("it is patched");
}
