//! One simulation on a virtual clock: a world in memory, all of dormer in it, and the result.

use crate::{
    clock::PacedClock,
    payload::{payload, program},
    pipe::{Reach, client},
};
use anyhow::Context;
use dormer_api::live::Live;
use dormer_engine::{
    engine,
    local::Local,
    memory::MemoryStore,
    port::{Clock as _, History, HistoryReader},
};
use dormer_engine_core::{HistoryEvent, Record, TaskPhase};
use dormer_fleet::{World, WorldConfig, api::User, host::HostPhase, manifest::demo};
use dormer_proto::{
    envelope,
    id::{Incarnation, RunId, Seq, Timestamp},
    machine::Signal,
    work,
};
use dormer_run::roles::{self, Parts};
use dormer_workers::{
    catalog::Catalog,
    execute::Executors,
    host::{HostExecutor, HostProgram},
    kubernetes::{KUBELET_PORT, KubernetesExecutor, Settings, Tokens},
    ssh::{Key, Limits},
    watcher, worker,
};
use dormer_workflows::{Dormer, State, machine::Phase};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Poll interval in virtual time.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// Time limit of a simulation, in virtual time.
const SIMULATION_MAX: Duration = Duration::from_secs(12 * 3_600);

/// Store and queues in memory, on the virtual clock.
pub(super) type Ports = Local<MemoryStore, PacedClock>;

/// Plan of a simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct StagePlan {
    pub(super) machines: u32,
    /// Number of machines whose hosts never answer.
    pub(super) dead: u32,
    /// Whether all machines are upgraded afterwards.
    pub(super) upgrade: bool,
    pub(super) slots: usize,
    pub(super) seed: u64,
}

/// Result of a simulation. Times are virtual seconds.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// Time until the last healthy machine served.
    pub(super) makespan_s: f64,
    /// Mean time until a healthy machine served.
    pub(super) mean_join_s: f64,
    /// Time until the first host was up.
    pub(super) boot_s: f64,
    pub(super) own_wait_share: f64,
    /// The same in seconds per machine, by the run's phase.
    pub(super) own_wait_s: BTreeMap<&'static str, f64>,
    pub(super) remote_commands: f64,
    pub(super) powershell_starts: f64,
    pub(super) sftp_sessions: f64,
    pub(super) gap_p99_s: Option<f64>,
    /// The most nodes that were taken at one moment, by the world's record.
    pub(super) max_taken: usize,
}

/// Simulates on a separate thread and runtime, whose clock stops while any task is ready.
pub(super) fn simulate(plan: StagePlan) -> anyhow::Result<Measured> {
    let simulated = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()?;
        runtime.block_on(run_simulation(plan))
    });
    simulated
        .join()
        .map_err(|_| anyhow::anyhow!("the simulation panicked"))?
}

async fn run_simulation(plan: StagePlan) -> anyhow::Result<Measured> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let faults = match plan.dead {
        0 => Vec::new(),
        dead => vec![format!("dead={dead}")],
    };
    let config = WorldConfig {
        faults,
        seed: plan.seed,
        linux: false,
        workload: plan.upgrade,
        ..WorldConfig::in_memory(plan.machines)
    };
    let world = crate::fleet::started(config).await?;
    let start = Instant::now();
    let clock = PacedClock::of(&world);
    let store = Arc::new(MemoryStore::new(Incarnation(plan.seed)));
    let ports: Arc<Ports> = Arc::new(Local::new(store, clock));
    let catalog = Catalog::new(&[])?;
    catalog.add(payload(0));
    let mut running = start_roles(&world, &ports, &catalog, plan.slots)?;
    let mut watch = RunObserver::new(&world, Arc::clone(&ports), start);
    let wanted = (plan.machines - plan.dead) as usize;
    watch.until_serving(wanted, 0).await?;
    let mut came = watch.came(wanted);
    if plan.upgrade {
        let before = watch.joined.len();
        catalog.add(payload(1));
        watch.until_serving(wanted, before).await?;
        came.gap_p99_s = Some(watch.gap_p99().await?);
        came.max_taken = world.record.max_taken_observed();
    }
    let ended = tokio::time::timeout(Duration::ZERO, running.ended()).await;
    anyhow::ensure!(
        ended.is_err(),
        "a role ended: {:#}",
        ended.unwrap_or_else(|e| e.into())
    );
    // Nothing must survive: the runtime drops what still runs.
    Ok(came)
}

/// Starts all of dormer's roles in a world in memory, with one worker of `slots` slots.
pub(super) fn start_roles(
    world: &World,
    ports: &Arc<Ports>,
    catalog: &Catalog,
    slots: usize,
) -> anyhow::Result<roles::Running> {
    let spec = match world.plain {
        true => json!({"profile": "upstream"}),
        false => json!({}),
    };
    let pool = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
        "metadata": {"name": "windows", "namespace": "dormer"}, "spec": spec});
    let made = world.create(pool);
    made.map_err(|refusal| anyhow::anyhow!("the pool cannot be made: {refusal:?}"))?;
    roles_of(world, ports, catalog, slots, program()?)
}

/// Starts all of dormer's roles, with this program for hosts, in a world that has its pool.
pub(super) fn roles_of(
    world: &World,
    ports: &Arc<Ports>,
    catalog: &Catalog,
    slots: usize,
    program: Arc<HostProgram>,
) -> anyhow::Result<roles::Running> {
    let client = client(world.api.connector(None), &world.token_for(User::admin()))?;
    let key = Key::read(&world.ssh_key.private_pem)?;
    let reach = |port| {
        let dialer = world.host_dialer();
        Arc::new(Reach { dialer, port })
    };
    let kubernetes = KubernetesExecutor::new(client.clone(), settings_for(world));
    let kubernetes = kubernetes.reaching(reach(KUBELET_PORT));
    let host = HostExecutor::new(
        reach(22),
        key,
        Limits::default(),
        catalog.clone(),
        program,
        Arc::new(kubernetes.clone()),
    );
    let clock = ports.clock;
    let host = host.with_clock(Arc::new(move || {
        i64::try_from(clock.now().0).unwrap_or(i64::MAX)
    }));
    let mut running = roles::start(Parts {
        ports: Arc::clone(ports),
        executor: Arc::new(Executors { host, kubernetes }),
        live: Arc::new(Live::default()),
        engine: engine::Options::default(),
        worker: worker::Options {
            slots,
            ..worker::Options::named("bench")
        },
    });
    let options = watcher::Options {
        cluster_machines: Some(clusters_of(world).to_owned()),
        ..watcher::Options::default()
    };
    let catalog = Arc::new(catalog.clone());
    running.watcher(client, roles::facts(ports), catalog, options);
    Ok(running)
}

/// Namespace of Cluster API's objects.
fn clusters_of(world: &World) -> &'static str {
    match world.plain {
        true => demo::CLUSTERS,
        false => demo::OPENSHIFT_CLUSTERS,
    }
}

/// How kubelets join. Plain Kubernetes says nothing of its nodes, and dormer makes their tokens.
fn settings_for(world: &World) -> Settings {
    let settings = Settings {
        cluster_machines: Some(clusters_of(world).to_owned()),
        ..Settings::default()
    };
    match world.plain {
        true => Settings {
            api_url: Some(world.api_url.to_string()),
            tokens: Tokens::Bootstrap,
            service_cidr: Some("10.96.0.0/12".to_owned()),
            ..settings
        },
        false => settings,
    }
}

/// Observer of the world and of dormer's runs.
struct RunObserver<'a> {
    world: &'a World,
    ports: Arc<Ports>,
    start: Instant,
    /// Time at which each machine first served.
    joined: BTreeMap<RunId, Duration>,
    booted: Option<Duration>,
    /// Samples of machines that are not Joined yet, and those in which the machine waited for dormer alone.
    samples: u64,
    own: BTreeMap<&'static str, u64>,
}

impl<'a> RunObserver<'a> {
    fn new(world: &'a World, ports: Arc<Ports>, start: Instant) -> Self {
        let joined = BTreeMap::new();
        Self {
            world,
            ports,
            start,
            joined,
            booted: None,
            samples: 0,
            own: BTreeMap::new(),
        }
    }

    /// Waits until `wanted` machines beyond `before` have served.
    async fn until_serving(&mut self, wanted: usize, before: usize) -> anyhow::Result<()> {
        while self.joined.len() < wanted + before {
            anyhow::ensure!(
                self.start.elapsed() < SIMULATION_MAX,
                "{}",
                self.stuck().await?
            );
            tokio::time::sleep(POLL_EVERY).await;
            self.sample().await?;
        }
        Ok(())
    }

    async fn records(&self) -> anyhow::Result<Vec<Record<Dormer>>> {
        let heads = self.ports.store.heads(None, usize::MAX).await?;
        let machines = heads
            .into_iter()
            .filter(|head| head.run.workflow() == work::MACHINE);
        let runs = machines.map(|head| head.run);
        let unjoined: Vec<RunId> = runs.filter(|run| !self.joined.contains_key(run)).collect();
        let stored = self.ports.store.load(&unjoined).await?;
        let read = stored
            .into_iter()
            .flatten()
            .map(|stored| Ok(envelope::decode::<Record<Dormer>>(&stored.bytes, u16::MAX)?.0));
        read.collect()
    }

    async fn sample(&mut self) -> anyhow::Result<()> {
        let now = self.start.elapsed();
        let hosts = self.world.hosts.as_ref().context("no hosts")?;
        let is_up = |host: &dormer_fleet::host::Host| host.phase() == HostPhase::Up;
        if self.booted.is_none() && hosts.all().iter().any(|host| is_up(host)) {
            self.booted = Some(now);
        }
        for record in self.records().await? {
            let run = record.run;
            let State::Machine(state) = &run.state else {
                continue;
            };
            if state.phase.joined() {
                self.joined.insert(run.id.clone(), now);
                continue;
            }
            let up = hosts
                .host(&state.view().uid)
                .is_some_and(|host| is_up(&host));
            let at_work = run
                .tasks
                .iter()
                .any(|t| matches!(t.phase, TaskPhase::InFlight { .. }));
            self.samples += 1;
            if !at_work && !awaits_the_world(&state.phase, up) {
                *self.own.entry(state.phase.name()).or_default() += 1;
            }
        }
        Ok(())
    }

    async fn stuck(&self) -> anyhow::Result<String> {
        let mut text = "the simulation does not end".to_owned();
        for record in self.records().await?.iter().take(5) {
            if let State::Machine(state) = &record.run.state {
                let view = state.view();
                let why = view.reason.or(view.waiting_for).unwrap_or_default();
                text += &format!("; {}: {} ({why})", view.name, view.phase.text());
            }
        }
        Ok(text)
    }

    fn came(&self, machines: usize) -> Measured {
        let seconds = |at: &Duration| at.as_secs_f64();
        let tally = self.world.record.tally();
        let per = |count: u64| count as f64 / machines.max(1) as f64;
        Measured {
            makespan_s: self.joined.values().map(seconds).fold(0.0, f64::max),
            mean_join_s: self.joined.values().map(seconds).sum::<f64>() / machines.max(1) as f64,
            boot_s: self.booted.as_ref().map_or(0.0, seconds),
            own_wait_share: self.own.values().sum::<u64>() as f64 / self.samples.max(1) as f64,
            own_wait_s: self
                .own
                .iter()
                .map(|(phase, samples)| (*phase, waited(*samples, machines)))
                .collect(),
            remote_commands: per(tally.remote_commands),
            powershell_starts: per(tally.powershell_starts),
            sftp_sessions: per(tally.sftp_sessions),
            gap_p99_s: None,
            max_taken: self.world.record.max_taken_observed(),
        }
    }

    /// Gap between the end of one upgrade (its replacement serves) and the next grant, from the histories.
    async fn gap_p99(&self) -> anyhow::Result<f64> {
        let mut grants = Vec::new();
        let mut ends = Vec::new();
        for run in self.joined.keys() {
            let mut served = false;
            for bytes in self.ports.store.records(run, Seq(1), usize::MAX).await? {
                let record = envelope::decode::<Record<Dormer>>(&bytes, u16::MAX)?.0;
                let State::Machine(state) = &record.run.state else {
                    continue;
                };
                if !served && state.phase.joined() {
                    served = true;
                    ends.push(record.at);
                }
                if record.events.iter().any(is_grant) {
                    grants.push(record.at);
                }
            }
        }
        Ok(gaps_p99(grants, ends))
    }
}

/// Seconds per machine that these samples represent.
fn waited(samples: u64, machines: usize) -> f64 {
    samples as f64 * POLL_EVERY.as_secs_f64() / machines.max(1) as f64
}

pub(super) fn is_grant(event: &HistoryEvent<Dormer>) -> bool {
    let HistoryEvent::SignalTaken { signal, .. } = event else {
        return false;
    };
    matches!(signal, work::Signal::Machine(Signal::Granted { .. }))
}

fn gaps_p99(mut grants: Vec<Timestamp>, mut ends: Vec<Timestamp>) -> f64 {
    grants.sort();
    ends.sort();
    let gap = |grant: &Timestamp| {
        let end = ends.iter().rev().find(|end| *end <= grant)?;
        Some(grant.since_ms(*end))
    };
    // The first grant follows the new payload, not another upgrade.
    let mut gaps: Vec<u64> = grants.iter().skip(1).filter_map(gap).collect();
    gaps.sort_unstable();
    let at = (gaps.len() * 99 / 100).min(gaps.len().saturating_sub(1));
    gaps.get(at).map_or(0.0, |ms| *ms as f64 / 1_000.0)
}

/// Whether something other than dormer ends the run's phase: a boot, a Node, a certificate, the configured soak. A
/// probe that waits for its next attempt counts only while its host is not up.
fn awaits_the_world(phase: &Phase, up: bool) -> bool {
    match phase {
        Phase::Address
        | Phase::KeyWait { .. }
        | Phase::Rebooting { .. }
        | Phase::NodeWait
        | Phase::ReadyWait
        | Phase::Soaking => true,
        Phase::Probing => !up,
        // The hybrid overlay cuts the connection while it creates its network.
        Phase::ConvergingNode => false,
        _ => false,
    }
}
