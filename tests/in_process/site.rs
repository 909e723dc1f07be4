//! Fixture: a dormer over a store in memory, with a running engine and failing executors.

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{Request, StatusCode},
};
use dormer_api::{
    Api,
    access::{self, Gate},
};
use dormer_engine::{engine, local::Local, memory::MemoryStore, port::SystemClock};
use dormer_proto::{
    id::Incarnation,
    machine::{self, MachineFact, MachineRef, Outcome},
    message::{Failure, Inbound, InboxMessage, ObjectRef, Observation, Version},
    work::{Fact, FactMessage, Order, machine_run},
};
use dormer_run::roles::{self, Parts, Running};
use dormer_workers::{
    execute::Execute,
    port::{EpochStart, Facts},
    progress::Progress,
    worker,
};
use serde_json::Value;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::timeout};
use tower::ServiceExt;

const IN_TIME: Duration = Duration::from_secs(20);

type Memory = Local<MemoryStore, SystemClock>;

/// Executors that only record their orders.
pub(crate) struct RecordingExecutor(pub(crate) mpsc::UnboundedSender<String>);

impl Execute for RecordingExecutor {
    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        progress.step("tell", 1, "words");
        let _ = self
            .0
            .send(format!("{} {}", order.task.run, order.body.name()));
        Err(Failure::transient("NotToday", "these hands do nothing"))
    }
}

pub(crate) fn machine_observed(uid: &str, beginning: &EpochStart, gone: bool) -> FactMessage {
    let fact = MachineFact {
        machine: MachineRef {
            namespace: "openshift-machine-api".into(),
            name: format!("win-{uid}"),
            uid: uid.into(),
            ..MachineRef::default()
        },
        addresses: vec!["10.0.0.9".into()],
        ..MachineFact::default()
    };
    let fact = Fact::Machine(machine::Fact::Machine(fact));
    let seen = Observation {
        object: ObjectRef {
            cluster: String::new(),
            kind: "Machine".into(),
            uid: uid.into(),
        },
        version: Version {
            epoch: beginning.epoch,
            resource: 1,
        },
        fact: (!gone).then_some(fact),
        may_start: true,
    };
    let run = machine_run(uid).expect("a run");
    InboxMessage {
        run,
        incarnation: Some(beginning.incarnation),
        body: Inbound::Observed(seen),
    }
}

/// A dormer with one machine, `win-u1`, that cannot be probed.
pub(crate) struct Site {
    pub(crate) ports: Arc<Memory>,
    pub(crate) router: Router,
    pub(crate) api: Arc<Api>,
    running: Running,
    _tasks: mpsc::UnboundedReceiver<String>,
}

impl Site {
    pub(crate) async fn new() -> Self {
        let ports = Arc::new(Local::new(
            Arc::new(MemoryStore::new(Incarnation(3))),
            SystemClock,
        ));
        let (done, mut tasks) = mpsc::unbounded_channel();
        let live = Arc::default();
        let running = roles::start(Parts {
            ports: Arc::clone(&ports),
            executor: Arc::new(RecordingExecutor(done)),
            live: Arc::clone(&live),
            engine: engine::Options::default(),
            worker: worker::Options::named("w"),
        });
        let facts = roles::facts(&ports);
        let first = facts.begin().await.expect("an epoch");
        facts
            .publish(vec![machine_observed("u1", &first, false)])
            .await
            .expect("published");
        timeout(IN_TIME, tasks.recv())
            .await
            .expect("in time")
            .expect("a task");
        let api = Api::over(Arc::clone(&ports), live, None);
        let pages = dormer_console::with_api(Arc::clone(&api));
        let router = access::around(pages, Arc::clone(&api), Gate::loopback());
        Self {
            ports,
            router,
            api,
            running,
            _tasks: tasks,
        }
    }

    pub(crate) async fn ask(&self, mut request: Request<Body>) -> (StatusCode, Value) {
        let near: SocketAddr = ([127, 0, 0, 1], 5_000).into();
        request.extensions_mut().insert(ConnectInfo(near));
        let answer = self
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("an answer");
        let status = answer.status();
        let body = to_bytes(answer.into_body(), usize::MAX)
            .await
            .expect("a body");
        (status, serde_json::from_slice(&body).expect("JSON"))
    }

    /// A page of the console: status, policy and text.
    pub(crate) async fn page(&self, path: &str) -> (StatusCode, String, String) {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let answer = self
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("an answer");
        let policy = answer.headers().get("content-security-policy").cloned();
        let policy = policy.and_then(|policy| Some(policy.to_str().ok()?.to_owned()));
        let status = answer.status();
        let body = to_bytes(answer.into_body(), usize::MAX)
            .await
            .expect("a body");
        let text = String::from_utf8(body.to_vec()).expect("text");
        (status, policy.unwrap_or_default(), text)
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        let request = Request::get(format!("/api/v1{path}")).body(Body::empty());
        self.ask(request.expect("a request")).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let request = Request::post(format!("/api/v1{path}"))
            .header("content-type", "application/json")
            .header("x-dormer-user", "ann")
            .body(Body::from(body.to_string()));
        self.ask(request.expect("a request")).await
    }

    pub(crate) async fn end(self) {
        self.running.stop().await.expect("an orderly end");
    }
}
