//! Sequence of the demonstration: all machines start, failed ones are retried, then all are upgraded.

use super::{
    environment::{Environment, Ports},
    machine_runs::{MachineRun, MachineRuns, serves},
    outcome::Outcome,
    progress::DemoProgress,
};
use anyhow::Context;
use dormer_engine::port::Inbox;
use dormer_proto::{
    envelope,
    id::{RunId, Seq},
    machine,
    message::{Ask, Inbound, InboxMessage, Request},
    phase::MachinePhase,
    work::{self, RequestMessage, SCHEMA},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// Poll interval of the board.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Time without progress after which the demonstration has failed.
const STILL_MAX: Duration = Duration::from_secs(40);
/// Most retries of one machine.
const RETRIES_MAX: u32 = 3;
/// Real time for which a failure stays visible before the retry.
const FAILURE_SHOWN: Duration = Duration::from_millis(500);

/// Running sequence.
pub(crate) struct Sequence<'a> {
    environment: &'a mut Environment,
    bars: &'a DemoProgress,
    machine_runs: MachineRuns<Ports>,
    begun: Instant,
    failed: BTreeMap<RunId, (u32, Instant)>,
    mended: BTreeSet<RunId>,
    moved: Instant,
    last: String,
    /// Whether a person retries failed machines.
    leave_failed: bool,
}

impl<'a> Sequence<'a> {
    pub(crate) fn new(
        environment: &'a mut Environment,
        bars: &'a DemoProgress,
        begun: Instant,
        leave_failed: bool,
    ) -> Self {
        let machine_runs = MachineRuns::new(environment.ports());
        let moved = Instant::now();
        Self {
            environment,
            bars,
            machine_runs,
            begun,
            failed: BTreeMap::new(),
            mended: BTreeSet::new(),
            moved,
            last: String::new(),
            leave_failed,
        }
    }

    /// Runs the script.
    pub(crate) async fn run(&mut self) -> anyhow::Result<Outcome> {
        let machines = self.environment.machines();
        self.say(&format!(
            "{machines} Windows machines are being created; dormer configures them."
        ));
        let address = self.environment.address();
        self.say(&format!(
            "Watch meanwhile: dormer get machines --server http://{address}"
        ));
        self.say(&format!(
            "                 or in a browser: http://{address}/"
        ));
        let first = self.environment.version(0).to_owned();
        self.until(&first, "come up").await?;
        self.say(
            "All machines serve. A new payload is installed: the rollout upgrades one \
        machine after another.",
        );
        self.environment
            .install(1)
            .await
            .context("the new payload cannot be installed")?;
        let second = self.environment.version(1).to_owned();
        self.until(&second, "be upgraded").await?;
        Ok(self.outcome(&second))
    }

    /// Waits until every machine of the world serves with `version`.
    async fn until(&mut self, version: &str, what: &str) -> anyhow::Result<()> {
        loop {
            self.machine_runs.refresh().await?;
            self.retry_failed().await?;
            let wanted = self.environment.machines();
            let serving = self.machine_runs.serving(version);
            let live = self.machine_runs.live().count();
            self.progress(version);
            if serving == wanted && live == wanted {
                return Ok(());
            }
            let left = self.leave_failed
                && self
                    .machine_runs
                    .live()
                    .any(|it| it.view.phase == MachinePhase::Failed);
            let still = self.moved.elapsed() > STILL_MAX && !left;
            anyhow::ensure!(
                !still,
                "the machines could not {what}: nothing changed for {} s, and {serving} of {wanted} serve with {version}",
                STILL_MAX.as_secs()
            );
            self.environment.pause(POLL_EVERY).await?;
        }
    }

    fn progress(&mut self, version: &str) {
        let states = self.machine_runs.states();
        let now = states
            .iter()
            .map(|(state, n)| format!("{n} {state}"))
            .collect::<Vec<_>>()
            .join(", ");
        let upgraded = if version == self.environment.version(0) {
            0
        } else {
            self.machine_runs.serving(version)
        };
        let joined = self
            .machine_runs
            .live()
            .filter(|machine_run| machine_run.served)
            .count();
        self.bars.at(joined, upgraded, &now);
        let all: Vec<_> = self
            .machine_runs
            .live()
            .map(|s| (s.view.name.as_str(), s.view.phase))
            .collect();
        let marks = format!("{all:?}");
        if marks != self.last {
            self.last = marks;
            self.moved = Instant::now();
        }
    }

    /// Reports failed machines, and retries them from the failed step.
    async fn retry_failed(&mut self) -> anyhow::Result<()> {
        let failed: Vec<MachineRun> = self
            .machine_runs
            .live()
            .filter(|machine_run| machine_run.view.phase == MachinePhase::Failed)
            .cloned()
            .collect();
        for machine_run in failed {
            let name = &machine_run.view.name;
            let (tries, since) = *self
                .failed
                .entry(machine_run.run.clone())
                .or_insert_with(|| {
                    let why = machine_run.view.reason.clone().unwrap_or_default();
                    self.bars.say(&format!("{name} failed: {why}"));
                    if self.leave_failed {
                        let address = self.environment.address();
                        self.bars.say(&format!(
                            "It is left to you. What to do: dormer why {name} --server http://{address}\nA retry also does \
                             on the simulated host what that says"
                        ));
                    }
                    (0, Instant::now())
                });
            if !self.leave_failed && tries < RETRIES_MAX && since.elapsed() >= FAILURE_SHOWN {
                self.bars
                    .say(&format!("Retrying {name} from the step that failed."));
                self.retry(&machine_run.run, tries).await?;
                self.failed
                    .insert(machine_run.run.clone(), (tries + 1, Instant::now()));
            }
        }
        for run in self.failed.keys() {
            if self
                .machine_runs
                .live()
                .any(|machine_run| machine_run.run == *run && machine_run.served)
            {
                self.mended.insert(run.clone());
            }
        }
        Ok(())
    }

    async fn retry(&self, run: &RunId, tries: u32) -> anyhow::Result<()> {
        let message: RequestMessage = InboxMessage {
            run: run.clone(),
            incarnation: None,
            body: Inbound::Requested(Request {
                id: format!("demo-retry-{tries}"),
                who: "demo".into(),
                why: "the cause is fixed".into(),
                against: Seq(0),
                ask: Ask::Signal(work::Signal::Machine(machine::Signal::Retry)),
            }),
        };
        let (bytes, _) = envelope::encode(&message, SCHEMA)?;
        self.environment
            .ports()
            .inbox
            .put(vec![(run.clone(), bytes)])
            .await?;
        Ok(())
    }

    fn outcome(&self, version: &str) -> Outcome {
        let world = self.environment.record();
        let tally = world.tally();
        let bring_ups = self
            .machine_runs
            .all()
            .filter(|machine_run| machine_run.served)
            .count();
        let per = |count: u64| count as f64 / bring_ups.max(1) as f64;
        Outcome {
            machines: self.environment.machines(),
            joined: self
                .machine_runs
                .live()
                .filter(|machine_run| machine_run.view.phase == MachinePhase::Serving)
                .count(),
            upgraded: self
                .machine_runs
                .live()
                .filter(|machine_run| serves(machine_run, version))
                .count(),
            failed_then_retried: self.mended.len(),
            max_unavailable_observed: world.max_unavailable_observed(),
            max_taken_observed: world.max_taken_observed(),
            bring_ups,
            remote_commands_per_node: per(tally.remote_commands),
            powershell_starts_per_node: per(tally.powershell_starts),
            sftp_sessions_per_node: per(tally.sftp_sessions),
            pods_evicted: tally.pods_evicted,
            pods_deleted: tally.pods_deleted,
            strategy: self.environment.strategy().as_str(),
            version: version.to_owned(),
            speed: self.environment.speed(),
            seed: self.environment.seed(),
            cpu_s: crate::usage::cpu_seconds(),
            rss_mib: crate::usage::rss_mib(),
            seconds: self.begun.elapsed().as_secs_f64(),
        }
    }

    fn say(&self, line: &str) {
        self.bars.say(line);
    }

    /// Machines at the end.
    pub(crate) fn machines(&self) -> impl Iterator<Item = &MachineRun> {
        self.machine_runs.live()
    }

    /// Address of the API and the console.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.environment.address()
    }
}
