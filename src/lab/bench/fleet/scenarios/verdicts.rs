//! Verdict loop: each fault of the simulated world ends by what `dormer why -o json` says, and by nothing else.
//!
//! One loop for all faults of the table: it starts the fault, waits until a machine needs a person, does nothing for
//! long (the control, [`FaultRow::held`]), reads `dormer why`, does what that says, word by word, and waits until all machines serve. A
//! fault that heals must do so without a person, and before the time that `dormer why` says.

mod person;
mod table;

use super::stage::{self, Scenario};
use dormer_api::{Api, views};
use dormer_fleet::{
    Fault,
    faults::{End, FaultOwner},
};
use dormer_proto::phase::{Listed, MachinePhase};
use dormer_testkit::tier::sized;
use dormer_views::{
    explain::{self, Explanation, Outside, problem::Urgency},
    machine::Machine,
    rollout::Rollout,
};
use person::Person;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use table::{During, FaultRow, ROWS, Verdict};

/// Poll interval meanwhile.
const POLL_EVERY: Duration = Duration::from_secs(120);
/// Time after which a person asks `dormer why` again, if not all serve.
const ASKED_AGAIN: Duration = Duration::from_secs(600);
/// Time for which nodes serve before a later upgrade: people do something to one that has served for three minutes
/// (`SERVES_FOR` in `tests/fleet/src/cluster/trouble.rs`).
const SERVED_FOR: Duration = Duration::from_secs(240);
/// Limit of a bring-up, an upgrade and the time until a fault shows.
const AT_MOST: Duration = Duration::from_secs(4 * 3_600);
/// Time after which a fault shows its effect on a fleet that serves.
const QUIET: Duration = Duration::from_secs(2_700);
/// Most times that a person reads `dormer why` and follows it for one fault.
const ROUNDS_MAX: usize = 3;

/// Explanation of a machine for a person, and its record of the run.
struct Explained {
    machine: String,
    why: Explanation,
    seq: u64,
}

/// Machines as a person reads them, with the rollout of their pool.
async fn observed(api: &Api) -> (Vec<Machine>, Option<Rollout>) {
    let (runs, _, now) = api.snapshot().await.expect("runs");
    let machines = runs
        .iter()
        .filter_map(|run| views::machine(run, api.live(), now));
    let machines: Vec<Machine> = machines.collect();
    let names = views::names(&runs);
    let mut rollouts = runs
        .iter()
        .filter_map(|run| views::rollout(run, &names, api.live(), now));
    let rollout = rollouts.next();
    let there = machines
        .into_iter()
        .filter(|it| it.phase != MachinePhase::Gone);
    (there.collect(), rollout)
}

/// Explanations of all machines, the most urgent first; one that only waits for the lease comes last of its kind.
fn explained((machines, rollout): &(Vec<Machine>, Option<Rollout>)) -> Vec<Explained> {
    let explained = machines.iter().map(|machine| {
        let why = explain::explanation(machine, None, rollout.as_ref());
        let queued = machine.phase == MachinePhase::LeaseWait;
        let urgency = why.urgency.as_ref().and_then(|it| it.known());
        let rank = (urgency.is_none(), urgency, queued);
        let explained = Explained {
            machine: machine.name.clone(),
            why,
            seq: machine.status.entered_seq,
        };
        (rank, explained)
    });
    let mut all: Vec<_> = explained.collect();
    all.sort_by_key(|(rank, _)| *rank);
    all.into_iter().map(|(_, explained)| explained).collect()
}

/// Whether a person is needed.
fn needs_a_person(explained: &Explained) -> bool {
    let urgency = explained.why.urgency.as_ref().and_then(|it| it.known());
    matches!(urgency, Some(Urgency::Stuck | Urgency::Person))
}

/// Verdict of an explanation: its first step outside, else its first command that changes something.
fn verdict(why: &Explanation) -> Option<Verdict> {
    let steps = why.steps.iter().filter(|step| !step.instead);
    let outside = steps
        .clone()
        .find_map(|step| step.outside.as_ref()?.known());
    let command = || {
        let mut commands = steps.clone().filter(|step| !step.argv.is_empty());
        let changes = |argv: &[String]| {
            !argv
                .iter()
                .any(|word| person::READS.contains(&word.as_str()))
        };
        let step = commands.find(|step| changes(&step.argv))?;
        let verb = step
            .argv
            .iter()
            .skip(1)
            .find(|word| person::VERBS.contains(&word.as_str()));
        Some(Verdict::Command(verb?.clone().leak()))
    };
    outside.map(Verdict::Outside).or_else(command)
}

/// One fault from its beginning to its end.
struct Trial {
    scenario: Scenario,
    api: Arc<Api>,
    person: Person,
    row: &'static FaultRow,
    /// Promised times, by machine and by the record at which the phase was entered, and those that have passed.
    promises: BTreeMap<(String, u64), u64>,
    broken: Vec<String>,
    /// What needed a person while the fault was to heal.
    alarms: Vec<String>,
    log: Vec<String>,
}

impl Trial {
    async fn begin(row: &'static FaultRow) -> Self {
        let scenario = Scenario::start_in(row.world()).await;
        let api = Api::over(scenario.ports(), Arc::default(), None);
        let person = Person::over(Arc::clone(&api)).await;
        Self {
            scenario,
            api,
            person,
            row,
            promises: BTreeMap::new(),
            broken: Vec::new(),
            alarms: Vec::new(),
            log: Vec::new(),
        }
    }

    fn note(&mut self, what: String) {
        let at = self.scenario.elapsed().as_secs();
        self.log.push(format!("{at:6} s {what}"));
    }

    /// Reads everything; returns whether all machines serve.
    async fn check(&mut self) -> (bool, Option<Explained>) {
        let statuses = self.scenario.statuses().await;
        let serve = self
            .scenario
            .all_serve(&statuses, self.row.machines as usize);
        let observed = observed(&self.api).await;
        let mut all = explained(&observed);
        for one in &all {
            let now = one.why.since.0.0 + one.why.since_seconds * 1_000;
            let key = (one.machine.clone(), one.seq);
            let promised = self.promises.get(&key).copied();
            if promised.is_some_and(|by| now > by) {
                let said = format!("{} is still {} after healsBy", one.machine, one.why.state);
                if !self.broken.contains(&said) {
                    self.broken.push(said);
                }
            }
            if let Some(by) = one.why.heals_by {
                self.promises.insert(key, by.0.0);
            }
        }
        all.retain(needs_a_person);
        let first = (!all.is_empty()).then(|| all.remove(0));
        if let Some(explained) = &first {
            let said = format!("{}: {:?}", explained.why.state, explained.why.code);
            if !self.alarms.contains(&said) {
                let cause = explained.why.cause.clone().unwrap_or_default();
                self.note(format!("{} {said} {cause}", explained.machine));
                self.alarms.push(said);
            }
        }
        (serve, first)
    }

    /// Polls until the condition holds; `false` after `at_most`.
    async fn until(
        &mut self,
        at_most: Duration,
        holds: impl Fn(&Self, bool, Option<&Explained>) -> bool,
    ) -> bool {
        self.until_every(stage::POLL_EVERY, at_most, holds).await
    }

    async fn until_every(
        &mut self,
        every: Duration,
        at_most: Duration,
        holds: impl Fn(&Self, bool, Option<&Explained>) -> bool,
    ) -> bool {
        let end = self.scenario.elapsed() + at_most;
        let mut ticks = tokio::time::interval(every);
        loop {
            ticks.tick().await;
            let (serve, first) = self.check().await;
            if holds(self, serve, first.as_ref()) {
                return true;
            }
            if self.scenario.elapsed() > end {
                return false;
            }
        }
    }

    /// Lets the fault strike.
    async fn strike(&mut self) -> Result<(), String> {
        if self.row.during == During::BringUp {
            return Ok(());
        }
        let came = self.until(AT_MOST, |_, serve, _| serve).await;
        if !came {
            return Err("they never served before the upgrade".into());
        }
        if self.row.during == During::Serving {
            return Ok(());
        }
        if self.row.during == During::LaterUpgrade {
            self.until(SERVED_FOR, |_, _, _| false).await;
        }
        self.note("the upgrade begins".into());
        self.scenario.upgrade().await;
        if self.row.during == During::Killed {
            let cordoned = |trial: &Self, _, _: Option<&Explained>| trial.scenario.max_taken() > 0;
            if !self.until(AT_MOST, cordoned).await {
                return Err("nothing was taken".into());
            }
            self.scenario.uninstall();
            self.until(Duration::from_secs(180), |_, _, _| false).await;
            self.scenario.install_again();
        }
        Ok(())
    }

    /// Simulates the fault. The error describes the deviation.
    async fn run(&mut self) -> Result<(), String> {
        self.strike().await?;
        let heals = self.row.verdict == Verdict::Heals;
        self.alarms.clear();
        let over = |trial: &Self, serve, first: Option<&Explained>| {
            serve && trial.scenario.struck() || !heals && first.is_some()
        };
        let mut shown = self.until(AT_MOST, over).await;
        if heals && self.row.during == During::Serving {
            self.until(QUIET, |_, _, _| false).await;
            shown = self.check().await.0;
        }
        let (serve, first) = self.check().await;
        if heals {
            return match (shown, self.alarms.as_slice(), self.broken.as_slice()) {
                (false, ..) => Err("it does not heal".into()),
                (_, [_, ..], _) => Err(format!("it heals, and why says {:?}", self.alarms)),
                (_, _, [_, ..]) => Err(format!("it heals later than why says: {:?}", self.broken)),
                _ => Ok(()),
            };
        }
        let Some(explained) = first.filter(|_| shown) else {
            return Err(format!(
                "nothing shows that needs a person (all serve: {serve})"
            ));
        };
        self.note(format!(
            "it shows on {}; nobody does anything",
            explained.machine
        ));
        let held = self.row.held();
        self.until_every(POLL_EVERY, held, |_, serve, _| serve)
            .await;
        let (serve, still) = self.check().await;
        let still = still.filter(|_| !serve);
        let Some(mut explained) = still else {
            return Err("it went away without the cure".into());
        };
        let begun = self.scenario.elapsed();
        for round in 0..ROUNDS_MAX {
            let machine = explained.machine.clone();
            let why = self.person.why(&machine).await?;
            if why.heals_by.is_some() {
                return Err(format!("{machine} needs a person, and why says healsBy"));
            }
            let found = verdict(&why);
            if round == 0 && found != Some(self.row.verdict) {
                return Err(format!("why says {found:?}: {:?}", why.steps));
            }
            for step in why.steps.iter().filter(|step| !step.instead) {
                self.note(format!(
                    "{} {:?} {}",
                    machine,
                    step.outside,
                    step.argv.join(" ")
                ));
                match step.outside.as_ref().and_then(|it| it.known()) {
                    Some(outside) => {
                        self.person
                            .outside(self.scenario.world(), outside, &machine)
                            .await?
                    }
                    None => {
                        self.person
                            .command(self.scenario.world(), &step.argv)
                            .await?
                    }
                }
            }
            if self.until(ASKED_AGAIN, |_, serve, _| serve).await {
                break;
            }
            match self.check().await {
                (_, Some(next)) if round + 1 < ROUNDS_MAX => explained = next,
                _ => return Err("the cure does not mend it".into()),
            }
        }
        let took = self.scenario.elapsed() - begun;
        if took * 2 > held {
            return Err(format!("the cure took {} s", took.as_secs()));
        }
        self.note(format!("it serves {} s after the cure", took.as_secs()));
        Ok(())
    }
}

/// Plays a row on a virtual clock, and returns what went wrong with the log of it.
fn run(row: &'static FaultRow) -> Result<(), String> {
    let ended = Arc::new(Mutex::new(Err("it panicked".to_owned())));
    let result = Arc::clone(&ended);
    stage::on_a_virtual_clock(async move {
        let mut trial = Trial::begin(row).await;
        let came = trial.run().await;
        let log = trial.log.join("\n    ");
        let came = came.map_err(|why| format!("{}: {why}\n    {log}", row.faults));
        println!("    {log}");
        *result.lock().expect("no panic") = came;
    });
    let ended = ended.lock().expect("no panic");
    ended.clone()
}

/// Plays rows on two threads, and returns what went wrong.
fn run_all(rows: Vec<&'static FaultRow>) -> Vec<String> {
    let rows = Mutex::new(rows);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(row) = rows.lock().expect("no panic").pop() else {
                        return;
                    };
                    let begun = std::time::Instant::now();
                    let trial = std::thread::Builder::new().spawn(move || run(row));
                    let came = trial.expect("a thread").join();
                    let came = came.unwrap_or_else(|_| Err(format!("{}: it panicked", row.faults)));
                    let seconds = begun.elapsed().as_secs_f64();
                    let how = came.as_ref().err().map_or("ok", String::as_str);
                    println!("{seconds:5.1} s {} {how}", row.faults);
                    if let Err(why) = came {
                        wrong.lock().expect("no panic").push(why);
                    }
                }
            });
        }
    });
    wrong.into_inner().expect("no panic")
}

#[test]
fn each_fault_has_a_verdict() {
    for fault in Fault::ALL {
        let name = fault.name();
        let rows = ROWS.iter().filter(|row| row.fault() == name);
        assert_eq!(rows.count(), 1, "{name} has one verdict");
    }
    for row in ROWS {
        let fault = Fault::ALL.iter().find(|it| it.name() == row.fault());
        let fault = fault.unwrap_or_else(|| panic!("{} is a fault", row.faults));
        // With its usual count and length it ends by itself, unless a person ends it also then.
        let own = row.faults.split(' ').next().unwrap_or_default();
        let longer = own.contains("x9999") && fault.end() != End::Person;
        let end = match row.verdict {
            Verdict::Heals => End::Itself,
            Verdict::Command(_) | Verdict::Outside(_) if longer => End::Count,
            Verdict::Command(_) | Verdict::Outside(_) if own.contains("/86400") => End::Itself,
            Verdict::Command(_) | Verdict::Outside(_) => End::Person,
        };
        assert_eq!(fault.end(), end, "{}", row.faults);
        let by_command = match row.verdict {
            Verdict::Command(verb) if fault.end() == End::Person => Some(verb),
            Verdict::Outside(Outside::CompareHostKey) => Some("trust-host-key"),
            _ => None,
        };
        let command = fault
            .command()
            .map(|it| it.split(' ').nth(1).unwrap_or_default());
        assert_eq!(
            command, by_command,
            "{}: what --list-faults promises",
            row.faults
        );
        let of_scenario = fault.owner() == FaultOwner::Scenario;
        assert_eq!(of_scenario, row.during == During::Killed, "{}", row.faults);
    }
    let often = ROWS.iter().filter(|row| row.often).count();
    assert_eq!(often, 12, "so many on each commit");
}

#[test]
fn the_world_can_do_what_dormer_asks_for() {
    let asked: Vec<&str> = Outside::ALL.iter().map(|it| it.id()).collect();
    let done = dormer_fleet::world::Remedy::ALL.iter().map(|it| it.name());
    assert_eq!(asked, done.collect::<Vec<_>>());
}

#[test]
fn twelve_faults_end_by_what_dormer_why_says() {
    let often = ROWS.iter().filter(|row| row.often);
    let wrong = run_all(often.step_by(sized(3, 1)).collect());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_fault_ends_by_what_dormer_why_says() {
    let running = dormer_testkit::long!("verdicts");
    let wrong = run_all(ROWS.iter().collect());
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        ROWS.len(),
        wrong.join("\n")
    );
    running.passed(&[("faults", ROWS.len().to_string())]);
}
