//! Measured process: a store with many machines, some of which change continuously, and the console on it.

use anyhow::Context;
use dormer_api::Api;
use dormer_engine::{
    embedded::EmbeddedStore,
    local::Local,
    port::{Append, Clock, Expected, History, SystemClock},
};
use dormer_engine_core::{InboxMessageOf, Run, Transition};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, Revision, Timestamp},
    machine::{self, MachineFact, MachineRef, Owner},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
    work::{Fact, SCHEMA, machine_run},
};
use dormer_workflows::Dormer;
use std::{io::Read as _, path::Path, sync::Arc, time::Duration};
use tokio::net::TcpListener;

/// Records appended at once while the store is filled.
const FILL: usize = 500;
/// Batches of changes per second.
const BATCHES: u64 = 20;
/// One in this many machines has an address, and therefore a task that is never answered.
const WITH_TASK: u64 = 20;

type Ports = Local<EmbeddedStore>;

/// Serves, and prints the address, then the number of records after each batch. It ends when its standard input does.
pub(super) async fn serve(folder: &Path, machines: u64, changes: u64) -> anyhow::Result<()> {
    let ports = Arc::new(Local::new(
        Arc::new(EmbeddedStore::open(folder)?),
        SystemClock,
    ));
    let mut herd = SimulatedMachines::new(Arc::clone(&ports), machines);
    herd.fill().await?;
    let api = Api::over(Arc::clone(&ports), Arc::default(), None);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}", listener.local_addr()?);
    let router = dormer_console::with_api(api);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]).map(drop));
    tokio::select! {
        failed = herd.run_changes(changes) => failed,
        _ = ended => Ok(()),
    }
}

/// Machines of the benchmark.
struct SimulatedMachines {
    ports: Arc<Ports>,
    ours: Incarnation,
    runs: Vec<(Run<Dormer>, Revision)>,
    machines: u64,
    records: u64,
}

impl SimulatedMachines {
    fn new(ports: Arc<Ports>, machines: u64) -> Self {
        let ours = ports.store.incarnation();
        Self {
            ports,
            ours,
            runs: Vec::new(),
            machines,
            records: 0,
        }
    }

    async fn fill(&mut self) -> anyhow::Result<()> {
        let all: Vec<u64> = (0..self.machines).collect();
        for some in all.chunks(FILL) {
            let mut batch = Vec::with_capacity(some.len());
            for at in some {
                let message = fact_message(*at, 1)?;
                let begun = Transition::<Dormer>::begin(self.now(), self.ours, &message);
                let begun = begun.map_err(|refused| anyhow::anyhow!("{refused:?}"))?;
                batch.push((begun, message, Expected::Nothing));
            }
            let runs = self.append(batch).await?;
            self.runs.extend(runs);
        }
        Ok(())
    }

    /// Appends `changes` records per second, in even batches, machine after machine.
    async fn run_changes(&mut self, changes: u64) -> anyhow::Result<()> {
        let mut beat = tokio::time::interval(Duration::from_secs(1) / BATCHES as u32);
        let some = usize::try_from((changes / BATCHES).max(1))?.min(self.runs.len());
        let mut next = 0;
        loop {
            beat.tick().await;
            let mut batch = Vec::with_capacity(some);
            let indexes: Vec<usize> = (next..next + some).map(|at| at % self.runs.len()).collect();
            for at in &indexes {
                let (run, revision) = self.runs[*at].clone();
                let message = fact_message(*at as u64, run.seq.0 + 1)?;
                batch.push((
                    Transition::of(run, self.now()),
                    message,
                    Expected::At(revision),
                ));
            }
            for (at, run) in indexes.into_iter().zip(self.append(batch).await?) {
                self.runs[at] = run;
            }
            next = (next + some) % self.runs.len();
            println!("{}", self.records);
        }
    }

    /// Appends one record for each machine together.
    async fn append(
        &mut self,
        batch: Vec<(Transition<Dormer>, InboxMessageOf<Dormer>, Expected)>,
    ) -> anyhow::Result<Vec<(Run<Dormer>, Revision)>> {
        let mut appends = Vec::new();
        let mut runs = Vec::new();
        for (mut transition, message, expected) in batch {
            let message = InboxMessage {
                incarnation: Some(self.ours),
                ..message
            };
            transition.offer(self.ours, message, None);
            let record = transition.finish("bench", Vec::new());
            let (record, _) = record.context("a fact that changed nothing")?;
            let (bytes, sum) = envelope::encode(&record, SCHEMA)?;
            let mut run = record.run;
            appends.push(Append {
                run: run.id.clone(),
                expected,
                bytes,
                seq: run.seq,
                deadline: run.deadline(),
                closed: run.closed,
                quiet: run.is_quiet(),
            });
            run.set_sum(sum);
            runs.push(run);
        }
        let mut stored = Vec::with_capacity(runs.len());
        for (run, revision) in runs.into_iter().zip(self.ports.store.append(appends).await) {
            stored.push((run, revision.map_err(|why| anyhow::anyhow!("{why}"))?));
        }
        self.records += stored.len() as u64;
        Ok(stored)
    }

    fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }
}

/// Machine fact as the watcher reports it. Its phase changes with each version.
fn fact_message(at: u64, version: u64) -> anyhow::Result<InboxMessageOf<Dormer>> {
    let uid = format!("{at:08x}-9003-49ff-8ec4-b416090ac595");
    let fact = MachineFact {
        machine: MachineRef {
            namespace: "openshift-machine-api".into(),
            name: format!("demo-x7k2p-windows-worker-us-east-1a-{at:05}"),
            uid: uid.clone(),
            ..MachineRef::default()
        },
        phase: Some(
            if version.is_multiple_of(2) {
                "Provisioned"
            } else {
                "Provisioning"
            }
            .into(),
        ),
        addresses: at
            .is_multiple_of(WITH_TASK)
            .then(|| "10.0.0.9".to_owned())
            .into_iter()
            .collect(),
        owner: Some(Owner {
            kind: "MachineSet".into(),
            name: "demo-x7k2p-windows-worker-us-east-1a".into(),
            uid: "0d0c3a52-3c1a-4f51-8f0a-2f0a7c1d9e11".into(),
        }),
        platform: "AWS".into(),
        ..MachineFact::default()
    };
    let observed = Observation {
        object: ObjectRef {
            cluster: String::new(),
            kind: "Machine".into(),
            uid: uid.clone(),
        },
        version: Version {
            epoch: Epoch(1),
            resource: version,
        },
        fact: Some(Fact::Machine(machine::Fact::Machine(fact))),
        may_start: true,
    };
    Ok(InboxMessage {
        run: machine_run(&uid)?,
        incarnation: None,
        body: Inbound::Observed(observed),
    })
}
