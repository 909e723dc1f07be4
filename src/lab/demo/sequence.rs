//! Sequence of the demonstration: all machines start, failed ones are retried, then all are upgraded.

use super::{
    environment::{Environment, Ports},
    machine_runs::{MachineRun, MachineRuns, serves},
    outcome::DemoOutcome,
    people,
    progress::DemoProgress,
};
use anyhow::Context;
use dormer_engine::port::Inbox;
use dormer_proto::{
    envelope,
    id::{RunId, Seq},
    machine,
    message::{Ask, Inbound, InboxMessage, Request},
    phase::{MachinePhase, MachineState},
    work::{self, RequestMessage, SCHEMA},
};
use dormer_views::{
    explain,
    machine::Machine,
    problem::{self, Urgency},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// Interval at which machines that are stuck are looked for.
const STUCK_EVERY: Duration = Duration::from_secs(1);
/// Poll interval of the board.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Time of the world without progress after which the demonstration has failed, longer than any of its steps.
const STILL_MAX: Duration = Duration::from_secs(100 * 60);
/// The same in real time at least, for a computer that is busy.
const STILL_LEAST: Duration = Duration::from_secs(40);
/// Most retries of one machine.
const RETRIES_MAX: u32 = 3;
/// Real time for which a failure stays visible before the retry.
const FAILURE_SHOWN: Duration = Duration::from_millis(500);

/// Lines about a machine that failed and that a person mends. A retry does on the simulated world what `dormer why` says,
/// where that is something outside of dormer: another host key has to be trusted instead.
fn left_to_a_person(name: &str, machine: Option<&Machine>, address: &str) -> String {
    let mends = |it: &Machine| !people::remedies(&explain::steps(it, None)).is_empty();
    let retry = match machine.is_none_or(mends) {
        true => "A retry also does on the simulated host what that says",
        false => "A retry alone does not mend it",
    };
    format!("It is left to you. What to do: dormer why {name} --server http://{address}\n{retry}")
}

/// What a person does about a machine that is stuck and has not failed, and how the simulated world is changed.
fn what_to_do(machine: &Machine, address: &str) -> String {
    let name = &machine.name;
    let why = format!("What to do: dormer why {name} --server http://{address}");
    match people::remedies(&explain::steps(machine, None)).is_empty() {
        true => why,
        false => format!(
            "{why}\nNobody can reach into the simulated world. This does there what that says: dormer retry {name} \
             --server http://{address}"
        ),
    }
}

/// Real time without progress after which a demonstration at this speed has failed.
fn still_max(speed: f64) -> Duration {
    STILL_MAX.div_f64(speed).max(STILL_LEAST)
}

/// Machines that need a person, as reported.
#[derive(Debug, Default)]
struct StuckMachines {
    /// UID and code of each trouble that was reported.
    reported: BTreeSet<(String, String)>,
    /// When the machines were read last.
    read: Option<Instant>,
}

impl StuckMachines {
    /// Line about a machine that needs a person. `None`: it needs no person, its failure is reported, or this was said.
    fn line(&mut self, machine: &Machine) -> Option<String> {
        let trouble = problem::problem(machine)?;
        let is = match trouble.urgency {
            Urgency::Stuck if machine.state != MachineState::Failed => "is stuck",
            Urgency::Person => "waits for a person",
            Urgency::Stuck | Urgency::Slow | Urgency::OnPurpose => return None,
        };
        let new = self.reported.insert((machine.uid.clone(), trouble.code));
        new.then(|| format!("{} {is}: {}", machine.name, trouble.cause))
    }
}

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
    stuck: StuckMachines,
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
            stuck: StuckMachines::default(),
        }
    }

    /// Runs the script.
    pub(crate) async fn run(&mut self) -> anyhow::Result<DemoOutcome> {
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
            self.report_stuck().await?;
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
            let most = still_max(self.environment.speed());
            let still = self.moved.elapsed() > most && !left;
            anyhow::ensure!(
                !still,
                "the machines could not {what}: nothing changed for {} s, and {serving} of {wanted} serve with {version}",
                most.as_secs()
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
        let new = |it: &MachineRun| !self.failed.contains_key(&it.run);
        let shown = match self.leave_failed && failed.iter().any(new) {
            true => self.environment.shown_machines().await?,
            false => Vec::new(),
        };
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
                        let machine = shown.iter().find(|it| it.name == *name);
                        self.bars
                            .say(&left_to_a_person(name, machine, &address.to_string()));
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

    /// Reports machines that need a person and have not failed, each trouble once.
    async fn report_stuck(&mut self) -> anyhow::Result<()> {
        if self.stuck.read.is_some_and(|at| at.elapsed() < STUCK_EVERY) {
            return Ok(());
        }
        self.stuck.read = Some(Instant::now());
        let address = self.environment.address();
        for machine in self.environment.shown_machines().await? {
            if let Some(line) = self.stuck.line(&machine) {
                let to_do = what_to_do(&machine, &address.to_string());
                self.bars.say(&format!("{line}\n{to_do}"));
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

    fn outcome(&self, version: &str) -> DemoOutcome {
        let world = self.environment.record();
        let tally = world.tally();
        let bring_ups = self
            .machine_runs
            .all()
            .filter(|machine_run| machine_run.served)
            .count();
        let per = |count: u64| count as f64 / bring_ups.max(1) as f64;
        DemoOutcome {
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

    /// Table of the machines at the end.
    pub(crate) async fn table(&self) -> anyhow::Result<String> {
        let mut machines = self.environment.shown_machines().await?;
        machines.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(dormer_client::machines_table(machines))
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub(in crate::demo) fn machine_with(fields: Value) -> Machine {
        let mut machine = json!({
            "name": "win-1", "namespace": "", "uid": "u", "differs": [], "pool": "windows", "deleting": false,
            "machineConditions": [], "served": false, "tasks": [], "run": "machine/u", "seq": 9, "enteredSeq": 7,
            "began": "2026-11-21T06:00:00.000Z", "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 12,
        });
        for (key, value) in fields.as_object().expect("fields") {
            machine[key] = value.clone();
        }
        serde_json::from_value(machine).expect("a machine")
    }

    /// A boot takes minutes of the world, which a slow demonstration shows as they are.
    #[test]
    fn a_slow_demonstration_has_the_same_time_in_its_own_world() {
        assert_eq!(still_max(150.0), Duration::from_secs(40));
        assert_eq!(still_max(1_000.0), Duration::from_secs(40));
        assert_eq!(still_max(5.0), Duration::from_secs(1_200));
    }

    #[test]
    fn what_a_retry_does_is_promised_only_where_it_is_a_step() {
        let failed = |code: &str| {
            machine_with(
                json!({"state": "Failed", "phase": "failed", "phaseText": "failed",
                "failure": {"code": code, "message": "m", "phase": "probing", "phaseText": "probing"}}),
            )
        };
        let said = |code| left_to_a_person("win-1", Some(&failed(code)), "127.0.0.1:7080");
        assert!(
            said("DiskFull").ends_with("what that says"),
            "{}",
            said("DiskFull")
        );
        let processor = said("ProgramForOtherProcessor");
        assert!(processor.ends_with("what that says"), "{processor}");
        let alone = "A retry alone does not mend it";
        let key = said("HostKeyChanged");
        assert!(key.ends_with(alone), "{key}");
        let mut gone = failed("MachineFailed");
        gone.machine_phase = Some("Failed".into());
        let gone = left_to_a_person("win-1", Some(&gone), "127.0.0.1:7080");
        assert!(gone.ends_with(alone), "{gone}");
        // `--list-faults` names a command of kubectl for it.
        let mut others = failed("NodeOverdue");
        let why = "the Node n is there, and belongs to aws:///a/i-0, not aws:///a/i-1";
        others.certificate_refused = Some(why.into());
        others.node = Some("n".into());
        let failure = others.failure.as_mut().expect("a failure");
        failure.phase = MachinePhase::NodeWait.into();
        let others = left_to_a_person("win-1", Some(&others), "127.0.0.1:7080");
        assert!(others.ends_with(alone), "{others}");
    }

    #[test]
    fn a_machine_that_the_cloud_cannot_create_can_be_mended() {
        let refused = machine_with(
            json!({"state": "Provisioned", "phase": "address-wait", "phaseText": "waiting for an address",
            "machineConditions": [{"kind": "MachineCreated", "status": "False", "reason": "MachineCreationFailed",
            "message": "InstanceLimitExceeded"}]}),
        );
        let said = what_to_do(&refused, "127.0.0.1:7080");
        let retry = "dormer retry win-1 --server http://127.0.0.1:7080";
        assert!(
            said.ends_with(retry),
            "the demonstration's own server: {said}"
        );
        let approval = json!({"state": "Joined", "phase": "approval-wait", "phaseText": "waiting for approval"});
        let said = what_to_do(&machine_with(approval), "127.0.0.1:7080");
        assert!(!said.contains("retry"), "{said}");
    }

    #[test]
    fn a_machine_that_is_stuck_and_has_not_failed_is_reported_once() {
        let mut stuck = StuckMachines::default();
        let probing = json!({"state": "Provisioned", "phase": "probing", "phaseText": "probing"});
        assert_eq!(stuck.line(&machine_with(probing.clone())), None);
        let mut late = probing;
        late["sinceSeconds"] = json!(6 * 3_600);
        let late = machine_with(late);
        let line = stuck.line(&late).expect("a line");
        assert!(line.starts_with("win-1 is stuck: "), "{line}");
        assert_eq!(stuck.line(&late), None, "once");
        let failed = json!({"state": "Failed", "phase": "failed", "phaseText": "failed",
            "failure": {"code": "DiskFull", "message": "full", "phase": "probing", "phaseText": "probing"}});
        assert_eq!(
            stuck.line(&machine_with(failed)),
            None,
            "it is reported as failed"
        );
        let asks = json!({"state": "Joined", "phase": "approval-wait", "phaseText": "waiting for approval",
            "served": true});
        let asks = stuck.line(&machine_with(asks)).expect("a line");
        assert!(asks.starts_with("win-1 waits for a person: "), "{asks}");
    }
}
