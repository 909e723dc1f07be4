//! World with a fault and all of dormer in it, in memory and on a virtual clock.

use crate::{
    bench::fleet::stage::{Ports, roles_of, start_roles},
    clock::PacedClock,
    payload::{payload, program},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_engine::{
    local::Local,
    memory::MemoryStore,
    port::{History, HistoryReader},
};
use dormer_engine_core::Record;
use dormer_fleet::{World, WorldConfig, api::kinds, host::later_stand_in};
use dormer_proto::{
    envelope,
    id::Incarnation,
    phase::{Listed, MachinePhase},
    work,
};
use dormer_run::roles;
use dormer_workers::{catalog::Catalog, host::HostProgram, payload::Payload};
use dormer_workflows::{Dormer, State};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Poll interval in virtual time.
pub(super) const POLL_EVERY: Duration = Duration::from_secs(5);
/// Time limit of a scenario, in virtual time.
const SCENARIO_MAX: Duration = Duration::from_secs(8 * 3_600);

/// Attempts that the single worker executes at once.
const SLOTS: usize = 256;

/// Status of a machine's run.
pub(super) struct ScenarioStatus {
    pub(super) uid: String,
    pub(super) state: &'static str,
    /// Text of its phase, its reason, and the condition that it waits for.
    pub(super) words: String,
    /// Version that its node carries.
    version: Option<String>,
    /// Desired version.
    wanted: Option<String>,
    /// Whether it holds the lease.
    pub(super) holds: bool,
}

impl ScenarioStatus {
    fn serves_other_than(&self, old: Option<&str>) -> bool {
        let current = self.version.is_some() && self.version == self.wanted;
        self.state == "Joined" && current && !self.holds && self.wanted.as_deref() != old
    }
}

/// Running scenario.
pub(super) struct Scenario {
    world: World,
    ports: Arc<Ports>,
    catalog: Catalog,
    /// Payload by its number.
    payload: fn(usize) -> Payload,
    faults: usize,
    start: Instant,
    /// Desired version before the upgrade.
    old: Option<String>,
    /// Statuses of the runs, and the time of their last change.
    same: (String, Instant),
    _running: Option<roles::Running>,
}

/// Runs a scenario on a runtime whose clock stops while any task is ready.
pub(super) fn on_a_virtual_clock(scenario: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(scenario);
}

impl Scenario {
    /// Starts a world of `machines` machines with these faults, and dormer in it.
    pub(super) async fn start(machines: u32, faults: &[&str]) -> Self {
        let orders = faults.iter().map(|fault| (*fault).to_owned()).collect();
        let config = WorldConfig {
            faults: orders,
            linux: false,
            ..WorldConfig::in_memory(machines)
        };
        Self::start_in(config).await
    }

    /// Starts a world from its configuration, and dormer in it.
    pub(super) async fn start_in(config: WorldConfig) -> Self {
        Self::start_with(config, payload).await
    }

    /// The same with these payloads.
    pub(super) async fn start_with(config: WorldConfig, payload: fn(usize) -> Payload) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let faults = config.faults.len();
        let world = World::start(config).await.expect("a world");
        let store = Arc::new(MemoryStore::new(Incarnation(1)));
        let ports: Arc<Ports> = Arc::new(Local::new(store, PacedClock::of(&world)));
        let catalog = Catalog::new(&[]).expect("a catalog");
        catalog.add(payload(0));
        let running = start_roles(&world, &ports, &catalog, SLOTS).expect("roles");
        let start = Instant::now();
        let same = (String::new(), start);
        Self {
            world,
            ports,
            catalog,
            payload,
            faults,
            start,
            old: None,
            same,
            _running: Some(running),
        }
    }

    /// Installs a newer payload.
    pub(super) async fn upgrade(&mut self) {
        self.old = self.statuses().await.pop().and_then(|one| one.wanted);
        self.catalog.add((self.payload)(1));
    }

    /// Waits until the condition holds.
    pub(super) async fn until(
        &mut self,
        what: &str,
        holds: impl Fn(&Self, &[ScenarioStatus]) -> bool,
    ) {
        let mut ticks = tokio::time::interval(POLL_EVERY);
        loop {
            ticks.tick().await;
            let statuses = self.statuses().await;
            let words: String = statuses
                .iter()
                .map(|one| format!("{}; ", one.words))
                .collect();
            if words != self.same.0 {
                println!("{:6} s {words}", self.start.elapsed().as_secs());
                self.same = (words, Instant::now());
            }
            if holds(self, &statuses) {
                return;
            }
            assert!(
                self.start.elapsed() < SCENARIO_MAX,
                "never: {what}; {}",
                self.same.0
            );
        }
    }

    /// Waits until exactly `machines` machines serve the desired version.
    pub(super) async fn until_all_serve(&mut self, what: &str, machines: usize) {
        self.until(what, |scenario, statuses| {
            scenario.all_serve(statuses, machines)
        })
        .await;
    }

    /// Sets up a BYOH host, and makes the WindowsHost for it.
    pub(super) async fn own_host(&self, name: &str) {
        let address = self.world.own_host(name).await.expect("a host");
        let host = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsHost",
            "metadata": {"name": name, "namespace": "dormer"},
            "spec": {"address": address, "user": "Administrator", "labels": {"team": "blue"}}});
        self.create(host).expect("a WindowsHost");
    }

    /// The host behind the Machine or WindowsHost of this name.
    pub(super) fn host_of(&self, name: &str) -> Arc<dormer_fleet::host::Host> {
        let mut hosts = self.hosts().into_iter();
        hosts.find(|host| host.name() == name).expect(name)
    }

    /// Whether the runs' statuses have not changed for `minutes` minutes.
    pub(super) fn unchanged_for(&self, minutes: u64) -> bool {
        self.same.1.elapsed() > Duration::from_secs(60 * minutes)
    }

    /// Statuses of the machines that are not gone.
    pub(super) async fn statuses(&self) -> Vec<ScenarioStatus> {
        let heads = self
            .ports
            .store
            .heads(None, usize::MAX)
            .await
            .expect("heads");
        let runs = heads.into_iter().map(|head| head.run);
        let runs: Vec<_> = runs.filter(|run| run.workflow() == work::MACHINE).collect();
        let stored = self.ports.store.load(&runs).await.expect("runs");
        let statuses = stored.into_iter().flatten().filter_map(|stored| {
            let decoded = envelope::decode::<Record<Dormer>>(&stored.bytes, u16::MAX);
            match decoded.expect("a record").0.run.state {
                State::Machine(state) => {
                    Some(state.view()).filter(|view| view.phase != MachinePhase::Gone)
                }
                _ => None,
            }
        });
        statuses
            .map(|view| ScenarioStatus {
                uid: view.uid,
                state: view.phase.state().id(),
                version: view.version,
                wanted: view.desired_version,
                holds: view.token.is_some(),
                words: [
                    Some(format!("{} {}", view.name, view.phase.text())),
                    view.reason,
                    view.waiting_for,
                    view.halt.map(|halt| halt.to_string()),
                ]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", "),
            })
            .collect()
    }

    /// Whether exactly `machines` machines serve the desired version on Ready and schedulable Nodes.
    pub(super) fn all_serve(&self, statuses: &[ScenarioStatus], machines: usize) -> bool {
        statuses.len() == machines
            && statuses
                .iter()
                .all(|one| one.serves_other_than(self.old.as_deref()))
            && self.world.record.serving_now() == machines
    }

    /// Whether all but so many machines serve, with the version that is wanted now.
    pub(super) fn all_but_serve(&self, statuses: &[ScenarioStatus], others: usize) -> bool {
        let serving = statuses
            .iter()
            .filter(|one| one.serves_other_than(self.old.as_deref()));
        let serving = serving.count();
        serving + others == statuses.len() && self.world.record.serving_now() == serving
    }

    /// The world that dormer works in.
    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// Whether every fault has struck.
    pub(super) fn struck(&self) -> bool {
        self.world.faults.struck().len() >= self.faults
    }

    /// Creates an object in the world as the administrator. The error is the API server's refusal.
    pub(super) fn create(&self, object: serde_json::Value) -> Result<(), String> {
        self.world
            .create(object)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Objects of a kind.
    pub(super) fn all(&self, kind: &kinds::Kind) -> Vec<serde_json::Value> {
        self.world
            .all(kind)
            .iter()
            .map(|object| object.value.clone())
            .collect()
    }

    /// All hosts.
    pub(super) fn hosts(&self) -> Vec<Arc<dormer_fleet::host::Host>> {
        self.world
            .hosts
            .as_ref()
            .map(dormer_fleet::host::Hosts::all)
            .unwrap_or_default()
    }

    /// Starts all of dormer again.
    pub(super) fn install_again(&mut self) {
        self.install(program().expect("a program"));
    }

    /// Replaces all of dormer by a later build, which has another program for hosts. Returns the program's file name.
    pub(super) fn update(&mut self) -> String {
        let program = HostProgram::of(later_stand_in()).expect("a program");
        let file = format!("dormer-host-{}.exe", &program.sha256()[..16]);
        self.uninstall();
        self.install(Arc::new(program));
        file
    }

    fn install(&mut self, program: Arc<HostProgram>) {
        let running = roles_of(&self.world, &self.ports, &self.catalog, SLOTS, program);
        self._running = Some(running.expect("roles"));
    }

    /// Store and queues.
    pub(super) fn ports(&self) -> Arc<Ports> {
        Arc::clone(&self.ports)
    }

    /// Virtual time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Ends all of dormer at once, and leaves the world unchanged.
    pub(super) fn uninstall(&mut self) {
        self._running = None;
    }

    /// Administrator's client of the API server.
    pub(super) fn admin(&self) -> dormer_fleet::cluster::client::Client {
        let user = dormer_fleet::api::User::admin();
        dormer_fleet::cluster::client::Client::new(&self.world.api, user)
    }

    /// Pending certificate requests for this user. A request is PEM in base64, with the name as plain bytes in its
    /// DER.
    pub(super) fn undecided_for(&self, whose: &str) -> usize {
        let requests = self.all(&kinds::CSR);
        let open = requests
            .iter()
            .filter(|csr| csr["status"]["conditions"].is_null());
        open.filter(|csr| {
            let pem = STANDARD.decode(csr["spec"]["request"].as_str().unwrap_or_default());
            let pem = String::from_utf8(pem.unwrap_or_default()).unwrap_or_default();
            let der = STANDARD.decode(
                pem.lines()
                    .filter(|line| !line.starts_with("---"))
                    .collect::<String>(),
            );
            String::from_utf8_lossy(&der.unwrap_or_default()).contains(whose)
        })
        .count()
    }

    /// Host of the only machine.
    pub(super) fn only_host(&self) -> Arc<dormer_fleet::host::Host> {
        let all = self
            .world
            .hosts
            .as_ref()
            .map(dormer_fleet::host::Hosts::all)
            .unwrap_or_default();
        all.into_iter().next().expect("a host")
    }

    pub(super) fn all_struck(&self, faults: &[&str]) {
        let struck = self.world.faults.struck();
        let struck: Vec<_> = struck.iter().map(|(fault, ..)| fault.name()).collect();
        // A fault that withholds something never counts as struck.
        let ordered = faults.iter().filter(|fault| **fault != "replacement-never");
        let mut named = ordered.map(|fault| fault.split(['@', '/']).next().unwrap_or_default());
        assert!(
            named.all(|fault| struck.contains(&fault)),
            "{faults:?}: only {struck:?}"
        );
    }

    pub(super) fn max_unavailable(&self) -> usize {
        self.world.record.max_unavailable_observed()
    }

    /// Most nodes that were taken at one moment, by the world's record.
    pub(super) fn max_taken(&self) -> usize {
        self.world.record.max_taken_observed()
    }

    /// Number of starts of a kubelet that had run before.
    pub(super) fn kubelet_restarts(&self) -> u64 {
        self.world.record.tally().kubelet_restarts
    }

    /// Pending certificate requests.
    pub(super) fn pending_requests(&self) -> usize {
        let requests = self.world.all(&kinds::CSR);
        requests
            .iter()
            .filter(|csr| csr.value["status"]["conditions"].is_null())
            .count()
    }
}
