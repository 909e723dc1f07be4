//! Further scenarios, as tests: requirements that dormer has to meet in a world that does not wait for it.

mod adoption;
mod changes;
mod cluster_config;
mod edges;
mod others;
mod scaling;
mod shown;

use super::{
    Options, Strategy,
    environment::{Environment, Ports},
    machine_runs::{MachineRun, MachineRuns},
};
use dormer_engine::port::{History, Ports as _};
use dormer_engine_core::Record;
use dormer_fleet::manifest::Sets;
use dormer_proto::{envelope, pool::DEFAULT_POOL, work::rollout_run};
use dormer_testkit::tier;
use dormer_workflows::{Dormer, State, rollout};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

/// Poll interval of a condition.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// A condition that does not come about in so long never will.
const SCENARIO_MAX: Duration = Duration::from_secs(120);
/// How many seconds of the world pass in one second.
const SPEED: f64 = 150.0;
/// dormer's namespace in the simulated cluster.
const NAMESPACE: &str = "dormer";
/// Where Machines are.
const MACHINES: &str = "openshift-machine-api";

/// The part of the long tier with larger fleets, if it runs.
fn larger() -> Option<tier::Running> {
    tier::long("demo-fleets")
}

/// A stage, and its observed states.
struct DemoScenario {
    environment: Environment,
    machine_runs: MachineRuns<Ports>,
    _folder: tempfile::TempDir,
}

impl DemoScenario {
    /// So many machines are made; nothing is waited for.
    async fn begin(machines: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options {
            machines: Some(machines),
            json: true,
            manifest: Vec::new(),
            sets: Vec::new(),
            faults: vec!["none".into()],
            list_faults: false,
            seed: 1,
            speed: SPEED,
            strategy: Strategy::Recreate,
            max_unavailable: 1,
            store: Some(folder.path().join("store")),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            otlp_endpoint: None,
            leave_failed: false,
            hold: false,
        };
        let environment = Environment::set(&options, Sets::new())
            .await
            .expect("a stage");
        let machine_runs = MachineRuns::new(environment.ports());
        Self {
            environment,
            machine_runs,
            _folder: folder,
        }
    }

    /// So many machines, all of them serving.
    async fn all_joined(machines: u32) -> Self {
        let mut scenario = Self::begin(machines).await;
        scenario.until_all_serve(0).await;
        scenario
    }

    /// dormer is stopped, its store is deleted, and it starts again.
    async fn start_again_without_store(&mut self) {
        self.environment
            .start_again_without_store()
            .await
            .expect("dormer starts again");
        self.machine_runs = MachineRuns::new(self.environment.ports());
    }

    async fn end(self) {
        self.environment.clear().await.expect("everything ends");
    }

    /// Polls dormer's machines until `condition` holds.
    async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        loop {
            self.machine_runs
                .refresh()
                .await
                .expect("the store is read");
            if condition(self) {
                return;
            }
            assert!(
                begun.elapsed() < SCENARIO_MAX,
                "never: {what}\n{}",
                self.report().await
            );
            self.environment
                .pause(POLL_EVERY)
                .await
                .expect("dormer's roles go on");
        }
    }

    /// Waits until every machine of the world serves payload number `n`, and no other machine is known.
    async fn until_all_serve(&mut self, n: usize) {
        let what = format!("all serve with payload {n}");
        self.until(&what, |scenario| {
            let wanted = scenario.environment.machines();
            let version = scenario.environment.version(n);
            scenario.machine_runs.serving(version) == wanted
                && scenario.machine_runs.live().count() == wanted
        })
        .await;
    }

    /// Polls dormer's rollout until `fits` holds.
    async fn until_rollout(&mut self, what: &str, fits: impl Fn(&rollout::View) -> bool) {
        let begun = Instant::now();
        loop {
            if self.rollout().await.is_some_and(|view| fits(&view)) {
                return;
            }
            assert!(
                begun.elapsed() < SCENARIO_MAX,
                "never: {what}\n{}",
                self.report().await
            );
            self.environment
                .pause(POLL_EVERY)
                .await
                .expect("dormer's roles go on");
        }
    }

    async fn rollout(&self) -> Option<rollout::View> {
        let run = rollout_run(DEFAULT_POOL).expect("a run");
        let ports = self.environment.ports();
        let stored = ports
            .history()
            .load(&[run])
            .await
            .expect("the store is read");
        let bytes = stored.into_iter().flatten().next()?.bytes;
        let (record, _) = envelope::decode::<Record<Dormer>>(&bytes, u16::MAX).expect("a record");
        match record.run.state {
            State::Rollout(state) => Some(state.view()),
            State::Machine(_) | State::None => None,
        }
    }

    /// Present states, for a failed test.
    async fn report(&self) -> String {
        let of = |machine_run: &MachineRun| {
            let view = &machine_run.view;
            let why = view.reason.as_ref().or(view.waiting_for.as_ref());
            let name = &view.name;
            let phase = view.phase.text();
            let closed = machine_run.closed;
            format!("{name}: {phase} (closed: {closed}): {why:?}")
        };
        let machines: Vec<_> = self.machine_runs.all().map(of).collect();
        format!("{}\n{:#?}", machines.join("\n"), self.rollout().await)
    }

    /// One machine's run, by its Machine's name.
    fn machine_run(&self, name: &str) -> &MachineRun {
        self.machine_runs
            .all()
            .find(|machine_run| machine_run.view.name == name)
            .expect("a known machine")
    }

    /// Names of the machines with open runs, in order.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self
            .machine_runs
            .live()
            .map(|machine_run| machine_run.view.name.clone())
            .collect();
        names.sort();
        names
    }

    /// Merges something into the pool's spec.
    async fn set(&self, spec: Value) {
        let edited = self.environment.edit_pool(spec).await;
        edited.expect("the pool is edited");
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.environment.client())
    }
}

/// Machines, or MachineSets, for a user.
fn of_kind(client: Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("machine.openshift.io", "v1beta1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::namespaced_with(client, MACHINES, &resource)
}
