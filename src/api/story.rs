//! History for people: what happened at each record, by kind and in a sentence.

use crate::views;
use dormer_engine_core::{HistoryEvent, Record, Workflow};
use dormer_proto::{
    checks::{CheckResult, NodeCheck},
    code,
    id::{Attempt, RunId, Seq},
    machine::{
        self, ConditionFact, CsrFact, FenceRefusal, MachineFact, NodeFact, Outcome, Section,
    },
    message::{Failure, ObjectRef, Refusal},
    pool::last_written,
    rollout,
    work::{Fact, Signal, machine_run},
};
use dormer_views::{
    actions,
    explain::cause,
    open_enum::OpenEnum,
    record::{self, Event, EventKind},
};
use dormer_workflows::{Dormer, State, rollout::Slot};
use std::collections::{BTreeMap, HashMap};

/// Narrator of a run's records, in order.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// Names of the tasks so far. A report holds only a task's key.
    asked: HashMap<(Seq, u16), &'static str>,
    /// Names of the machines, by UID.
    names: BTreeMap<String, String>,
}

impl Story {
    /// Narrator that calls other runs by these names of machines, by UID.
    pub(crate) fn new(names: BTreeMap<String, String>) -> Self {
        Self {
            names,
            ..Self::default()
        }
    }

    /// Name of another run for people: its machine's name, if that is known.
    fn called<'a>(&'a self, run: &'a RunId) -> &'a str {
        self.names
            .get(run.key())
            .map_or(run.as_str(), String::as_str)
    }

    /// Learns a record's tasks without output: used for the record before the first one shown.
    pub(crate) fn learn(&mut self, record: &Record<Dormer>) {
        for task in &record.run.tasks {
            self.asked
                .insert((task.key.seq, task.key.ordinal), task.body.name());
        }
    }

    pub(crate) fn events(&self, record: &Record<Dormer>) -> Vec<Event> {
        let events = record.events.iter();
        let shown = |event| Event {
            routine: is_routine(event),
            ..self.event(event)
        };
        events.map(shown).collect()
    }

    /// View of one record. Records are passed in order.
    pub(crate) fn render(&mut self, record: &Record<Dormer>) -> record::Record {
        let mut events = self.events(record);
        events.extend(self.granted(record));
        self.learn(record);
        let machine = record.run.state.machine();
        let phase = machine.map(|state| state.phase.id());
        let asks = self.asks(record).into_iter();
        record::Record {
            seq: record.run.seq.0,
            at: record.at.into(),
            state: Dormer::label(&record.run.state).to_owned(),
            state_text: views::state_text(&record.run.state).map(str::to_owned),
            phase: phase.map(OpenEnum::from),
            phase_text: phase.map(|phase| phase.text().to_owned()),
            events,
            asks: asks.map(str::to_owned).collect(),
            envelope: None,
        }
    }

    /// Leases that this record granted.
    fn granted(&self, record: &Record<Dormer>) -> Vec<Event> {
        let State::Rollout(state) = &record.run.state else {
            return Vec::new();
        };
        // A slot whose machine was gone already was found, and not granted.
        let new = |slot: &&Slot| slot.seq == record.run.seq && !slot.vacant;
        let granted = state.slots.iter().filter(new).map(|slot| {
            let uid = slot.uid.to_string();
            let name = self.names.get(&uid).unwrap_or(&uid);
            let over = if slot.over_limit {
                ", over the limit"
            } else {
                ""
            };
            let text = format!("lease granted to {name}, token {}{over}", slot.token);
            match machine_run(&uid) {
                Ok(run) => about(&run, EventKind::LeaseGranted, text),
                Err(_) => Event::new(EventKind::LeaseGranted, text),
            }
        });
        granted.collect()
    }

    /// Tasks that this record ordered.
    fn asks(&self, record: &Record<Dormer>) -> Vec<&'static str> {
        let new = record
            .run
            .tasks
            .iter()
            .filter(|task| task.key.seq == record.run.seq);
        new.map(|task| task.body.name()).collect()
    }

    fn task(&self, seq: Seq, ordinal: u16, outcome: Option<&Outcome>) -> &'static str {
        let asked = self.asked.get(&(seq, ordinal)).copied();
        asked.or_else(|| outcome.map(task_of)).unwrap_or("a task")
    }

    fn event(&self, event: &HistoryEvent<Dormer>) -> Event {
        match event {
            HistoryEvent::Started => Event::new(EventKind::Started, "the run began"),
            HistoryEvent::Observed { object, fact, .. } => {
                Event::new(EventKind::Observed, observed(object, fact.as_ref()))
            }
            HistoryEvent::TaskFinished {
                seq,
                ordinal,
                attempt,
                outcome,
                ..
            } => {
                let task = self.task(*seq, *ordinal, Some(outcome));
                let ended = match outcome {
                    // The worker completed its task, and refused the request.
                    Outcome::CsrRefused { .. }
                    | Outcome::FenceRefused { .. }
                    | Outcome::FenceClosedMeanwhile => "ended",
                    Outcome::Probed { .. }
                    | Outcome::Converged { .. }
                    | Outcome::RebootAsked
                    | Outcome::Planned { .. }
                    | Outcome::TornDown
                    | Outcome::CsrApproved { .. }
                    | Outcome::NodeMarked
                    | Outcome::NodeChecked { .. }
                    | Outcome::FenceOpened { .. }
                    | Outcome::FenceClosed
                    | Outcome::Evicted { .. }
                    | Outcome::PayloadSet
                    | Outcome::NodeFound { .. }
                    | Outcome::NodeAbsent
                    | Outcome::HostForgotten
                    | Outcome::MachineDeleted => "succeeded",
                };
                let text = format!("{task} {ended}{}{}", after(*attempt), what_came(outcome));
                Event {
                    task: Some(task.to_owned()),
                    attempt: Some(attempt.0),
                    ..Event::new(EventKind::TaskSucceeded, text)
                }
            }
            HistoryEvent::TaskFailed {
                seq,
                ordinal,
                attempt,
                failure,
                ..
            } => {
                let task = self.task(*seq, *ordinal, None);
                Event {
                    task: Some(task.to_owned()),
                    code: Some(code::shown(&failure.code)),
                    attempt: Some(attempt.0),
                    message: Some(failure.message.clone()),
                    log: failure.log.clone(),
                    ..Event::new(EventKind::TaskFailed, failed(task, *attempt, failure))
                }
            }
            HistoryEvent::TimerDue => Event::new(EventKind::TimerDue, "a timer was due"),
            HistoryEvent::SignalTaken { from, signal, .. } => {
                let text = format!("signal from {}: {}", self.called(from), signal_text(signal));
                about(from, EventKind::SignalTaken, text)
            }
            HistoryEvent::SignalReceipted {
                to,
                behind: Some(_),
                ..
            } => {
                let text = format!(
                    "{} already has signals of records that this run has lost; the signal is sent again",
                    self.called(to)
                );
                about(to, EventKind::SignalReceipted, text)
            }
            HistoryEvent::SignalReceipted { to, .. } => {
                let text = format!("{} received the signal", self.called(to));
                about(to, EventKind::SignalReceipted, text)
            }
            HistoryEvent::SignalRefused { to, why, .. } => {
                let name = self.called(to);
                let text = match why {
                    Refusal::Unknown => format!("the signal was refused: {name} does not exist"),
                    Refusal::Closed => format!("the signal was refused: {name} has ended"),
                };
                about(to, EventKind::SignalRefused, text)
            }
            HistoryEvent::Requested {
                who, why, signal, ..
            } => {
                let text = format!("{who} asked: {}{}", signal_text(signal), because(why));
                Event::new(EventKind::Requested, text)
            }
            HistoryEvent::Reset { who, why, to, .. } => {
                let text = format!("{who} reset the run to record {to}{}", because(why));
                Event::new(EventKind::Reset, text)
            }
        }
    }
}

/// An event about another run.
fn about(other: &RunId, kind: EventKind, text: String) -> Event {
    Event {
        other: Some(other.as_str().to_owned()),
        ..Event::new(kind, text)
    }
}

/// Whether an event is a report of a machine that is well, or what the watcher says of a pool's MachineSets.
fn is_routine(event: &HistoryEvent<Dormer>) -> bool {
    match event {
        HistoryEvent::Observed {
            fact: Some(Fact::Rollout(fact)),
            ..
        } => !matches!(fact, rollout::Fact::Pool(_)),
        HistoryEvent::SignalTaken {
            signal: Signal::Rollout(rollout::Signal::Member(report)),
            ..
        } => is_well(report),
        _ => false,
    }
}

/// Whether a report names nothing that keeps its machine from an upgrade, or others from theirs.
fn is_well(report: &rollout::MemberReport) -> bool {
    let rollout::MemberReport {
        failed,
        unavailable,
        cordoned,
        barred,
        repair,
        not_compared,
        // They say what it is, or what it waits for.
        owner: _,
        created: _,
        had_node: _,
        joined: _,
        deleting: _,
        deleted: _,
        token: _,
        by_request: _,
    } = report;
    ![failed, unavailable, cordoned, barred, repair]
        .into_iter()
        .any(|it| *it)
        && not_compared.is_none()
}

fn because(why: &str) -> String {
    if why.is_empty() {
        String::new()
    } else {
        format!(" (“{why}”)")
    }
}

fn after(attempt: Attempt) -> String {
    if attempt.0 > 1 {
        format!(" at attempt {attempt}")
    } else {
        String::new()
    }
}

fn failed(task: &str, attempt: Attempt, failure: &Failure) -> String {
    let cause = cause(&failure.code, &failure.message);
    let lasting = if failure.retry {
        ""
    } else {
        "; another attempt would not help"
    };
    format!("{task} failed at attempt {attempt}: {cause}{lasting}")
}

fn observed(object: &ObjectRef, fact: Option<&Fact>) -> String {
    match fact {
        None => format!("the {} is gone", object.kind),
        Some(Fact::Machine(machine::Fact::Machine(fact))) => machine_text(fact),
        Some(Fact::Machine(machine::Fact::Node(fact))) => node_text(fact),
        Some(Fact::Machine(machine::Fact::Csr(fact))) => csr_text(fact),
        Some(
            Fact::Machine(machine::Fact::Pool(pool)) | Fact::Rollout(rollout::Fact::Pool(pool)),
        ) => {
            let mut versions: Vec<_> = pool
                .desired
                .values()
                .map(|it| it.version.as_str())
                .collect();
            versions.dedup();
            let paused = if pool.paused { ", paused" } else { "" };
            let edited = pool.edited.as_ref().map(|by| {
                format!(
                    "; last written by {}",
                    last_written(&by.program, &by.fields)
                )
            });
            format!(
                "the pool {} wants {}{paused}{}",
                pool.pool,
                versions.join(", "),
                edited.unwrap_or_default()
            )
        }
        Some(Fact::Rollout(rollout::Fact::Owner(owner))) => {
            let name = &owner.name;
            let has = owner.machines.len();
            let wants = owner.replicas;
            format!("the MachineSet {name} has {has} Machines and wants {wants}")
        }
        Some(Fact::Rollout(rollout::Fact::Listed { with_node, .. })) => {
            let count = match with_node.len() {
                0 => "none had a Node then".to_owned(),
                1 => "1 had a Node then".to_owned(),
                count => format!("{count} had a Node then"),
            };
            format!("the watcher listed all Machines; {count}")
        }
    }
}

fn machine_text(fact: &MachineFact) -> String {
    let mut words = vec![fact.phase.clone().unwrap_or_else(|| "no phase yet".into())];
    words.extend(fact.addresses.first().cloned());
    words.extend(fact.node.as_ref().map(|node| format!("Node {node}")));
    words.extend(fact.deleting.then(|| "being deleted".to_owned()));
    words.extend(fact.ignored.then(|| "to be ignored".to_owned()));
    words.extend(fact.error.clone());
    for ConditionFact {
        kind,
        status,
        reason,
        message,
    } in &fact.conditions
    {
        words.push(format!("{kind} is {status} ({reason}: {message})"));
    }
    format!("observed the Machine: {}", words.join(", "))
}

fn node_text(fact: &NodeFact) -> String {
    let mut words = vec![if fact.ready { "Ready" } else { "not Ready" }.to_owned()];
    words.extend(fact.cordoned.then(|| "cordoned".to_owned()));
    words.extend(
        fact.version
            .as_ref()
            .map(|version| format!("version {version}")),
    );
    format!("observed the Node: {}", words.join(", "))
}

fn csr_text(fact: &CsrFact) -> String {
    if let Some(issued) = fact.issued {
        let kind = fact.signer.rsplit('/').next().unwrap_or_default();
        let until = dormer_proto::duration::utc(issued.until);
        return format!(
            "the CSR {} ({kind}) has its certificate, valid until {until}",
            fact.name
        );
    }
    let pending = if fact.pending {
        "waits for approval"
    } else {
        "waits no longer: somebody approved or denied it"
    };
    let kind = fact.signer.rsplit('/').next().unwrap_or_default();
    format!("the CSR {} ({kind}) {pending}", fact.name)
}

/// Name of the task that an outcome answers.
fn task_of(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Probed { .. } => "probe",
        Outcome::Converged {
            section: Section::Host,
            ..
        } => "converge-host",
        Outcome::Converged {
            section: Section::Node,
            ..
        } => "converge-node",
        Outcome::RebootAsked => "reboot",
        Outcome::Planned { .. } => "plan",
        Outcome::TornDown => "tear-down",
        Outcome::CsrApproved { .. } | Outcome::CsrRefused { .. } => "approve-csr",
        Outcome::NodeMarked | Outcome::NodeChecked { .. } => "mark-node",
        Outcome::FenceOpened { .. } | Outcome::FenceRefused { .. } => "open-fence",
        Outcome::FenceClosed => "close-fence",
        Outcome::Evicted { .. } => "evict",
        Outcome::FenceClosedMeanwhile => "a task under the lease",
        Outcome::MachineDeleted => "delete-machine",
        Outcome::PayloadSet => "set-payload",
        Outcome::NodeFound { .. } | Outcome::NodeAbsent => "find-node",
        Outcome::HostForgotten => "forget-host",
    }
}

/// Details of an outcome beside its success.
pub(super) fn what_came(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Probed { facts, .. } => format!(": {} ({})", facts.os_name, facts.os_build),
        Outcome::Converged {
            changed,
            reboot,
            owed,
            ..
        } => {
            let reboot = match (reboot, owed.is_empty()) {
                (false, _) => String::new(),
                (true, true) => ", a reboot is needed".to_owned(),
                (true, false) => format!(", a reboot is needed for {}", owed.join(", ")),
            };
            format!(": {changed} changed{reboot}")
        }
        Outcome::Planned { class: None, .. } => ": nothing differs".into(),
        Outcome::Planned { differs, .. } => format!(": {} differ", differs.join(", ")),
        Outcome::CsrApproved { csr } => format!(": {csr} is approved"),
        Outcome::CsrRefused { csr, why, .. } => format!(": {csr} is not approved: {why}"),
        Outcome::FenceRefused { said, .. } if !said.is_empty() => {
            format!(": refused, because {said}")
        }
        Outcome::FenceRefused { why, .. } => match why {
            FenceRefusal::Superseded => ": refused, because the object has a newer token".into(),
            FenceRefusal::NodeServes => ": refused, because the Node serves".into(),
            FenceRefusal::Gone => ": refused, because the object is gone".into(),
            FenceRefusal::NotWindows => ": refused, because the Node is not a Windows node".into(),
            FenceRefusal::ControlPlane => {
                ": refused, because the Node belongs to the control plane".into()
            }
            FenceRefusal::NotItsNode => ": refused, because the Node is another Machine's".into(),
            FenceRefusal::Stopped => ": refused, because the pool is stopped".into(),
            FenceRefusal::Paused => ": refused, because its controllers are paused".into(),
            FenceRefusal::OtherDormer => ": refused, because another dormer has the Machine".into(),
            FenceRefusal::Ignored => {
                ": refused, because the Machine is labelled to be ignored".into()
            }
            FenceRefusal::NoOwner => {
                ": refused, because no controller would replace the Machine".into()
            }
            FenceRefusal::Cordoned => ": refused, because another client cordoned the Node".into(),
            FenceRefusal::Uncordoned => {
                ": refused, because another client uncordoned the Node".into()
            }
        },
        Outcome::Evicted {
            evicted,
            left,
            blockers,
            skipped,
        } => {
            let stays = blockers.iter().map(|it| ("stays", it));
            let skipped = skipped.iter().map(|it| ("is not waited for", it));
            let held = stays
                .chain(skipped)
                .map(|(how, it)| format!("; {} {how}: {}", it.pod, it.why));
            format!(
                ": {evicted} evicted, {left} left{}",
                held.collect::<String>()
            )
        }
        Outcome::FenceClosedMeanwhile => ": nothing was done, because the fence is closed".into(),
        Outcome::NodeFound { name } => format!(": the Node {name} exists"),
        Outcome::NodeAbsent => ": it has no Node".into(),
        Outcome::NodeChecked { checks } => {
            let one = |it: &NodeCheck| match it.result {
                CheckResult::Ok => format!("{} ok", it.check),
                result => format!("{} {}, {}", it.check, result.text(), it.said),
            };
            let all: Vec<_> = checks.iter().map(one).collect();
            format!(": {}", all.join("; "))
        }
        _ => String::new(),
    }
}

pub(crate) fn signal_text(signal: &Signal) -> String {
    match signal {
        Signal::Machine(machine::Signal::Granted { token, over_limit }) => {
            let how = if *over_limit { ", over the limit" } else { "" };
            format!("lease granted, token {token}{how}")
        }
        Signal::Machine(machine::Signal::Replaced { by: Some(by) }) => {
            format!("the Machine {by} has replaced it and serves")
        }
        Signal::Machine(machine::Signal::Replaced { by: None }) => {
            "no replacement will come".into()
        }
        Signal::Machine(machine::Signal::TrustHostKey { fingerprint }) => {
            format!("{} {fingerprint}", actions::TRUST_HOST_KEY.name)
        }
        Signal::Machine(machine::Signal::Enrol) => "enrol again".into(),
        Signal::Machine(_) => {
            let mut all = actions::ACTIONS.iter();
            let action = all.find(|action| action.signal.as_ref() == Some(signal));
            action.map_or("a signal", |action| action.name).to_owned()
        }
        Signal::Rollout(rollout::Signal::Member(report)) => {
            let states = [(report.joined, "has joined"), (report.failed, "has failed")];
            let reported = states.iter().find(|(it, _)| *it);
            let how = reported.map_or("has not joined yet", |(_, how)| how);
            let away = if report.unavailable {
                ", and counts as unavailable"
            } else {
                ""
            };
            format!("it {how}{away}")
        }
        Signal::Rollout(rollout::Signal::Request { .. }) => "lease requested".into(),
        Signal::Rollout(rollout::Signal::Withdraw) => "lease request withdrawn".into(),
        Signal::Rollout(rollout::Signal::Release { token, .. }) => {
            format!("lease returned, token {token}")
        }
        Signal::Rollout(rollout::Signal::Left { .. }) => "machine leaves the pool".into(),
        Signal::Rollout(rollout::Signal::Pause) => "pause".into(),
        Signal::Rollout(rollout::Signal::Resume) => "resume".into(),
        Signal::Rollout(rollout::Signal::Rollback { to }) => {
            format!("rollback to the payload {to}")
        }
        Signal::Rollout(rollout::Signal::EndRollback) => "end of the rollback".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::id::SignalId;

    fn text_of(outcome: Outcome) -> String {
        let event = HistoryEvent::TaskFinished {
            seq: Seq(3),
            ordinal: 0,
            attempt: Attempt(1),
            worker: "w".into(),
            outcome,
        };
        Story::default().event(&event).text
    }

    #[test]
    fn a_report_of_a_machine_that_is_well_is_routine() {
        let taken = |signal| HistoryEvent::SignalTaken {
            from: machine_run("u-1").expect("an id"),
            id: SignalId {
                seq: Seq(3),
                ordinal: 0,
            },
            issued: None,
            signal: Signal::Rollout(signal),
        };
        let signal = |report| taken(rollout::Signal::Member(report));
        let joined = rollout::MemberReport {
            joined: true,
            ..rollout::MemberReport::default()
        };
        assert!(is_routine(&signal(joined.clone())));
        let amiss: [fn(&mut rollout::MemberReport); 6] = [
            |it| it.unavailable = true,
            |it| it.failed = true,
            |it| it.cordoned = true,
            |it| it.barred = true,
            |it| it.repair = true,
            |it| it.not_compared = Some(rollout::NotCompared::default()),
        ];
        for amiss in amiss {
            let mut report = joined.clone();
            amiss(&mut report);
            assert!(!is_routine(&signal(report.clone())), "{report:?}");
        }
        assert!(!is_routine(&taken(rollout::Signal::Pause)));
    }

    #[test]
    fn the_settings_of_a_pool_name_the_program_that_edited_them_and_its_fields() {
        use dormer_proto::pool::{PoolEdit, PoolSettings};
        let text = |edited| {
            let settings = PoolSettings {
                pool: "windows".into(),
                paused: true,
                edited,
                ..PoolSettings::default()
            };
            let fact = Fact::Rollout(rollout::Fact::Pool(settings));
            let object = ObjectRef {
                cluster: String::new(),
                kind: "Pool".into(),
                uid: "windows".into(),
            };
            observed(&object, Some(&fact))
        };
        let by = PoolEdit {
            program: "kubectl-edit".into(),
            at: None,
            fields: vec!["paused".into(), "payload".into()],
        };
        let said = text(Some(by));
        assert!(
            said.ends_with(
                r#", paused; last written by "kubectl-edit" (it owns: paused, payload)"#
            ),
            "{said}"
        );
        let by = PoolEdit {
            program: "x\"; the lease is free".into(),
            ..PoolEdit::default()
        };
        let said = text(Some(by));
        assert!(
            said.ends_with(r#", paused; last written by "x\"; the lease is free""#),
            "{said}"
        );
        assert!(text(None).ends_with(", paused"));
    }

    #[test]
    fn another_run_has_its_machines_name_in_the_text_and_its_id_in_a_field() {
        let story = Story::new([("u-1".to_owned(), "win-a".to_owned())].into());
        let refused = |run: &str| {
            let run: RunId = run.parse().expect("an id");
            story.event(&HistoryEvent::SignalRefused {
                to: run,
                id: SignalId {
                    seq: Seq(1),
                    ordinal: 0,
                },
                why: Refusal::Closed,
            })
        };
        let known = refused("machine/u-1");
        assert_eq!(known.text, "the signal was refused: win-a has ended");
        assert_eq!(known.other.as_deref(), Some("machine/u-1"));
        let unknown = refused("machine/u-2");
        assert_eq!(
            unknown.text,
            "the signal was refused: machine/u-2 has ended"
        );
    }

    #[test]
    fn the_history_of_a_rollout_says_to_which_machine_the_lease_was_granted() {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        use dormer_proto::{envelope, work::SCHEMA};
        let text = include_str!("../../tests/histories/0.1/rollout-in-place.jsonl");
        let mut story = Story::default();
        let mut granted = Vec::new();
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let Some(bytes) = line["record"]["envelope"].as_str() else {
                continue;
            };
            let bytes = STANDARD.decode(bytes).expect("base64");
            let (record, _): (Record<Dormer>, _) =
                envelope::decode(&bytes, SCHEMA).expect("a record");
            let told = story.render(&record).events.into_iter();
            granted.extend(told.filter(|it| it.kind == EventKind::LeaseGranted));
        }
        let texts: Vec<&str> = granted.iter().map(|it| it.text.as_str()).collect();
        assert!(texts.len() > 1, "{texts:?}");
        for (at, event) in granted.iter().enumerate() {
            let other = event.other.as_deref().unwrap_or_default();
            let uid = other.strip_prefix("machine/").unwrap_or_default();
            let expected = format!("lease granted to {uid}, token {}", at + 1);
            assert_eq!(event.text, expected);
        }
    }

    #[test]
    fn a_refusal_is_no_success() {
        let csr = "csr-x".to_owned();
        let why = "it names another host".to_owned();
        let refused = text_of(Outcome::CsrRefused {
            csr,
            why,
            foreign: None,
        });
        assert_eq!(
            refused,
            "approve-csr ended: csr-x is not approved: it names another host"
        );
        let csr = "csr-x".to_owned();
        let approved = text_of(Outcome::CsrApproved { csr });
        assert_eq!(approved, "approve-csr succeeded: csr-x is approved");
        let why = FenceRefusal::NodeServes;
        let said = String::new();
        let refused = text_of(Outcome::FenceRefused { why, said });
        assert_eq!(
            refused,
            "open-fence ended: refused, because the Node serves"
        );
    }

    #[test]
    fn a_reboot_names_what_it_is_for() {
        let converged = |owed: &[&str]| Outcome::Converged {
            section: Section::Host,
            changed: 2,
            reboot: true,
            boot_id: "7".into(),
            owed: owed.iter().map(|&it| it.to_owned()).collect(),
        };
        let text = "converge-host succeeded: 2 changed, a reboot is needed";
        assert_eq!(text_of(converged(&[])), text);
        let text = format!("{text} for feature:Containers, hostname");
        assert_eq!(
            text_of(converged(&["feature:Containers", "hostname"])),
            text
        );
    }
}
