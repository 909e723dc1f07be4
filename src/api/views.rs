//! Conversion of runs into the typed views that API, console and commands share.

use super::{prerequisites, run_cache::SharedRun};
use crate::live::Live;
use dormer_engine::port::QuarantineNote;
use dormer_engine_core::{OpenTask, Run, Workflow};
use dormer_proto::{
    checks::NodeCheck,
    code,
    id::{RunId, TaskId, Timestamp},
    machine::{ConditionFact, Validity},
    message, other_operator,
    phase::{Listed, MachinePhase, RolloutState},
    pool::AfterTimeout,
    requester::Requester,
    rollout::NotCompared,
    work::machine_run,
};
use dormer_views::{
    explain,
    machine::{
        A_PERSON, AskedFor, Blocker, CertificateUse, Condition, CordonedBy, Drain, ForeignNode,
        Halt, HaltKind, KubeletCertificate, Machine, MachineKind, PendingRequest, PhaseFailure,
        Refused, Retried, TemplateDifference,
    },
    moment::Moment,
    problem,
    rollout::{
        ApprovalMode, Away, Gap, MachineSet, Overridden, Pool, PoolEdit, Rollout, Slot, Waiting,
    },
    run::{
        self, EpisodeStatus, Heartbeat, Quarantine, RemoteCommand, RunStatus, Task, TaskFailure,
        TaskPhase,
    },
};
use dormer_workflows::{
    Dormer, State, Timer,
    machine::{self, KubeletCertificates, View},
    rollout,
};
use std::{collections::BTreeMap, ops::Deref};

/// Text of a machine that waits for one of dormer's own prerequisites. The list of machines names the prerequisite
/// once.
const WAITS_FOR_PREREQUISITE: &str = "something that dormer itself lacks";

/// View of a machine at the time `now`. `None`: the run is not a machine's.
#[expect(
    clippy::too_many_lines,
    reason = "a line for each field, so that none is forgotten"
)]
pub fn machine(run: &Run<Dormer>, live: &Live, now: Timestamp) -> Option<Machine> {
    let state = run.state.machine()?;
    let View {
        api,
        name,
        namespace,
        uid,
        phase,
        phase_since,
        reason,
        failure,
        waiting_for,
        change,
        drain,
        version,
        desired_version,
        node,
        expected_node,
        address,
        pool,
        token,
        zone,
        labels,
        template,
        deleting,
        machine_phase,
        machine_error,
        machine_conditions,
        owner,
        halt,
        also_halted,
        halted_since,
        asked,
        retried,
        not_compared,
        unserved,
        neighbour,
        refused,
        certificate_refused,
        foreign_node,
        host_remarks,
        certificates,
        cordoned_by,
        down_since,
        served,
        created,
    } = state.view();
    let lacks = prerequisites::of(run, live);
    let (neighbour, neighbour_stop) = neighbour_and_stop(neighbour.as_deref());
    let status = status(run, live, now);
    let (halt_since, phase_since) = times(live, &run.id, (halted_since, phase_since));
    let by_itself = || waiting_for.map(|text| probed(text, phase, address.as_deref(), run));
    let waiting_for = waits_outside(&run.id, &status, lacks.is_some()).or_else(by_itself);
    Some(Machine {
        kind: Some(MachineKind::from(api).into()),
        name,
        namespace,
        uid,
        state: phase.state().into(),
        phase: phase.into(),
        phase_text: phase.text().to_owned(),
        phase_since: phase_since.map(Moment),
        usual_seconds: live.usual.seconds(&pool, phase),
        reason,
        failure: failure.map(|(phase, failure)| failure_view(phase, failure)),
        waiting_for,
        differs: change.map_or_else(Vec::new, |change| change.differences(asked.is_some())),
        drain: drain.map(|drain| drain_view(drain, run, state)),
        version,
        desired_version,
        node,
        expected_node,
        address,
        pool,
        token,
        zone,
        labels,
        template_differs: template.into_iter().map(template_difference).collect(),
        torn_down: state.is_torn_down(),
        deleting,
        machine_phase,
        machine_error,
        machine_conditions: machine_conditions.into_iter().map(condition_view).collect(),
        owner,
        halt: halt.as_ref().map(|halt| halt_view(halt, halt_since)),
        also_halted: also_halted.iter().map(halt_and_since).collect(),
        hold_code: state.hold_cause().map(|why| why.code().to_owned()),
        set_aside: state.set_aside.iter().map(hold_view).collect(),
        asked: asked.map(asked_view),
        retried: retried.and_then(retried_view),
        retries: state.failing.as_ref().map_or(0, |it| it.retries),
        failing_since: state.failing_since().map(Moment),
        replaced_by: state.replaced_by().map(str::to_owned),
        removed: run.closed.is_some() && Dormer::resets_ended(&run.state),
        ended: Vec::new(),
        would_end: Vec::new(),
        not_compared: not_compared.map(not_compared_view),
        unserved: unserved.as_ref().map(unserved_view),
        neighbour,
        neighbour_stop,
        refused: refused.map(|it| refused_view(it.code(), it.to_string(), it.mend())),
        certificate_refused,
        foreign_node: foreign_node.map(foreign_view),
        host_remarks,
        certificates: certificate_views(&certificates),
        cordoned_by: cordoned_by.map(cordoned_view),
        down_since: down_since.map(Moment),
        created: created.map(Moment),
        deleted: state.machine.as_ref().and_then(|it| it.deleted).map(Moment),
        served,
        attempt: run.tasks.iter().map(|task| task.attempt.0).max(),
        tasks: tasks(run, live, now),
        lacks,
        status,
    })
}

/// Another operator, and the commands that stop it: the parts of a record's text.
fn neighbour_and_stop(runs: Option<&str>) -> (Option<String>, Option<String>) {
    let parts = runs.map(other_operator::parts);
    let stop = parts.and_then(|(_, stop)| stop);
    (
        parts.map(|(what, _)| what.to_owned()),
        stop.map(str::to_owned),
    )
}

/// What a machine waits for that is outside of its workflow.
fn waits_outside(run: &RunId, status: &RunStatus, lacking: bool) -> Option<String> {
    let quarantine = status.quarantine.as_ref();
    let released = quarantine.map(|quarantine| waits_for_release(run, quarantine));
    released.or_else(|| lacking.then(|| WAITS_FOR_PREREQUISITE.to_owned()))
}

fn refused_view(code: &str, message: String, what_to_do: String) -> Refused {
    Refused {
        code: code.to_owned(),
        message,
        what_to_do,
    }
}

fn certificate_views(certificates: &KubeletCertificates) -> Vec<KubeletCertificate> {
    let all = [
        (CertificateUse::Client, certificates.client),
        (CertificateUse::Serving, certificates.serving),
    ];
    let one = |(used_as, validity): (CertificateUse, Option<Validity>)| {
        let Validity { from, until } = validity?;
        Some(KubeletCertificate {
            used_as: used_as.into(),
            from: Moment(from),
            until: Moment(until),
        })
    };
    all.into_iter().filter_map(one).collect()
}

fn foreign_view(found: dormer_proto::machine::ForeignNode) -> ForeignNode {
    let dormer_proto::machine::ForeignNode { node, theirs, ours } = found;
    ForeignNode { node, theirs, ours }
}

fn cordoned_view(by: dormer_proto::machine::CordonedBy) -> CordonedBy {
    CordonedBy {
        program: by.program,
        at: by.at.map(Moment),
    }
}

/// Names the Machine that replaced a machine, of which the machine's own run knows the UID.
pub(crate) fn name_reason(machine: &mut Machine, names: &BTreeMap<String, String>) {
    let Some(uid) = &mut machine.replaced_by else {
        return;
    };
    if let Some(name) = names.get(&*uid) {
        machine.reason = machine.reason.take().map(|it| it.replace(&**uid, name));
        *uid = name.clone();
    }
}

/// Of each machine that waits for the one in its place, says if the cloud cannot create that one. `slots`: those of the
/// rollouts, with the names of these candidates; `all`: all machines.
pub(crate) fn name_refused_replacements(items: &mut [Machine], slots: &[Slot], all: &[Machine]) {
    let waits = |it: &&mut Machine| it.phase == MachinePhase::ReplacementWait;
    for machine in items.iter_mut().filter(waits) {
        let slot = slots.iter().find(|slot| slot.holder == machine.uid);
        let candidates = slot.map_or(&[][..], |slot| &slot.candidates);
        let mut candidates = all.iter().filter(|it| candidates.contains(&it.name));
        let refused = candidates.find_map(|it| Some((&it.name, problem::refused_by_cloud(it)?)));
        if let Some((name, why)) = refused {
            machine.waiting_for = Some(format!(
                "its replacement {name}, which the cloud cannot create ({why})"
            ));
        }
    }
}

/// What a machine that is probed waits for: SSH or, once SSH works and the probe fails, its success.
fn probed(text: String, phase: MachinePhase, address: Option<&str>, run: &Run<Dormer>) -> String {
    use dormer_engine_core::TaskPhase as Phase;
    let last = run.tasks.iter().find_map(|task| match &task.phase {
        Phase::Waiting { failure, .. } => Some(failure),
        Phase::InFlight { .. } => task.last.as_ref(),
    });
    let probing = [MachinePhase::Probing, MachinePhase::Reprobing].contains(&phase);
    match (last, address) {
        (Some(failure), Some(address)) if probing && !explain::is_connection(&failure.code) => {
            format!("the probe of {address} to succeed")
        }
        _ => text,
    }
}

/// A field in which a Machine differs from the template of its set.
pub(crate) fn template_difference(
    difference: dormer_proto::machine::TemplateDifference,
) -> TemplateDifference {
    let dormer_proto::machine::TemplateDifference {
        field,
        machine,
        template,
    } = difference;
    TemplateDifference {
        field,
        machine,
        template,
    }
}

fn failure_view(phase: MachinePhase, failure: message::Failure) -> PhaseFailure {
    PhaseFailure {
        code: code::shown(&failure.code),
        message: failure.message,
        log: failure.log,
        phase: phase.into(),
        phase_text: phase.text().to_owned(),
    }
}

fn not_compared_view(failure: NotCompared) -> TaskFailure {
    TaskFailure {
        code: code::shown(&failure.code),
        message: failure.message,
        log: None,
    }
}

fn condition_view(condition: ConditionFact) -> Condition {
    Condition {
        kind: condition.kind,
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
    }
}

fn unserved_view(check: &NodeCheck) -> TaskFailure {
    TaskFailure {
        code: check.code().to_owned(),
        message: format!("{}: {}", check.check, check.said),
        log: None,
    }
}

/// When the pool's `drain.afterTimeout` ends what holds a drain up. `None`: it waits, or that has been done.
fn drain_ends(run: &Run<Dormer>, state: &machine::State) -> Option<Moment> {
    let machine::Phase::Evicting(_, drain) = &state.phase else {
        return None;
    };
    let mut blockers = drain.blockers.iter();
    let ends = match state.pool.as_ref()?.after_timeout {
        AfterTimeout::Wait => false,
        // It waits for the rest of its pods.
        AfterTimeout::Abort => !state.is_torn_down(),
        // It evicts without budgets, and removes nothing else that holds a pod.
        AfterTimeout::Force => !drain.force && blockers.all(|it| !it.budgets.is_empty()),
    };
    let at = run.timers.get(&Timer::Machine(machine::Timer::Drain));
    at.copied().filter(|_| ends).map(Moment)
}

fn drain_view(drain: machine::Drain, run: &Run<Dormer>, state: &machine::State) -> Drain {
    let blockers = drain.blockers.into_iter();
    Drain {
        evicted: drain.evicted.into(),
        left: drain.left.into(),
        blockers: blockers
            .map(|blocker| Blocker {
                pod: blocker.pod,
                why: blocker.why,
                budgets: blocker.budgets,
                until_off: blocker.until_off,
                finalizers: blocker.finalizers,
            })
            .collect(),
        force: drain.force,
        ends: drain_ends(run, state),
    }
}

fn asked_view(asked: machine::PendingRequest) -> PendingRequest {
    let what = match asked.what {
        machine::LeasedRequest::Drain => AskedFor::Drain,
        machine::LeasedRequest::Recreate => AskedFor::Recreate,
    };
    let (who, why) = who_and_why(asked.by.as_deref(), asked.who.as_deref());
    PendingRequest {
        what: what.into(),
        by: asked.by,
        who,
        why,
        at: asked.at.map(Moment),
        begun: asked.begun,
    }
}

/// The parts of a record's `PERSON: REASON`.
fn who_and_why(by: Option<&str>, who: Option<&str>) -> (Option<String>, Option<String>) {
    let parts = by.map(|by| Requester::of(by, who));
    let why = parts.and_then(|it| it.why);
    (parts.map(|it| it.who.to_owned()), why.map(str::to_owned))
}

/// When the halt and the phase began. Of a record that an older build wrote, this process knows what it saw itself.
fn times(
    live: &Live,
    run: &RunId,
    (halt, phase): (Option<Timestamp>, Option<Timestamp>),
) -> (Option<Timestamp>, Option<Timestamp>) {
    let begins = live.begins(run);
    let halt = halt.or_else(|| begins.as_ref()?.halt_since);
    (halt, phase.or_else(|| begins?.phase_since))
}

/// `None`: this build does not know the phase that failed.
fn retried_view(retried: machine::Retried) -> Option<Retried> {
    let failed = MachinePhase::of_id(&retried.failed)?;
    let (who, why) = who_and_why(retried.by.as_deref(), retried.who.as_deref());
    Some(Retried {
        at: retried.at.into(),
        by: retried.by,
        who,
        why,
        failure: failure_view(failed, retried.failure),
    })
}

/// A hold that a person's request has set aside.
fn hold_view(hold: &machine::Hold) -> Halt {
    let held = machine::Halt::Held {
        by: hold.by.clone(),
        holder: hold.holder,
        who: hold.who.clone(),
    };
    halt_view(&held, hold.at)
}

fn halt_and_since((halt, since): &(machine::Halt, Option<Timestamp>)) -> Halt {
    halt_view(halt, *since)
}

fn halt_view(halt: &machine::Halt, since: Option<Timestamp>) -> Halt {
    let kind = match halt {
        machine::Halt::Paused { .. } => HaltKind::Paused,
        machine::Halt::Held { .. } => HaltKind::Held,
        machine::Halt::Ignored => HaltKind::Ignored,
    };
    let parts = halt.requester();
    let why = parts.and_then(|it| it.why);
    Halt {
        kind: kind.into(),
        by: halt.by().map(str::to_owned),
        who: parts.map(|it| it.who.to_owned()),
        why: why.map(str::to_owned),
        own: Some(halt.is_own()),
        text: halt.to_string(),
        since: since.map(Moment),
    }
}

/// View of a pool's rollout. `None`: the run is not a rollout's.
pub fn rollout(
    run: &Run<Dormer>,
    known: &KnownMachines,
    live: &Live,
    now: Timestamp,
) -> Option<Rollout> {
    let state = run.state.rollout()?;
    let name = |uid: &str| known.get(uid).map_or(uid, String::as_str).to_owned();
    let view = state.view_with(&name);
    let named = |uids: Vec<String>| uids.iter().map(|uid| name(uid)).collect();
    let status = status(run, live, now);
    // A quarantined holder keeps its slot.
    let held_back = |holder: &str| {
        let holder = machine_run(holder).ok()?;
        quarantine_of(&holder, live).map(|found| waits_for_release(&holder, &found))
    };
    let stuck = view.slots.iter().find_map(|slot| {
        let what = held_back(&slot.holder)?;
        Some(format!(
            "{}, which holds the lease and waits for {what}",
            name(&slot.holder)
        ))
    });
    let released = status.quarantine.is_none() && stuck.is_none();
    let waiting_for = match &status.quarantine {
        Some(found) => Some(waits_for_release(&run.id, found)),
        None => stuck.or(view.waiting_for),
    };
    Some(Rollout {
        typical_turn_seconds: None,
        typical_turn_expected: false,
        eroded: view.eroded,
        pool: run.id.key().to_owned(),
        state: view.state.into(),
        members: view.members as u64,
        joined: view.joined as u64,
        failed: view.failed as u64,
        unavailable: view.unavailable as u64,
        max_unavailable: view.max_unavailable.map(|max| max as u64),
        manual_approval: view.manual_approval,
        token: view.token.0,
        away: view
            .away
            .into_iter()
            .map(|away| Away {
                name: name(&away.uid),
                uid: away.uid,
                why: away.why.into(),
            })
            .collect(),
        queue: view
            .queue
            .into_iter()
            .map(|waiting| Waiting {
                name: name(&waiting.uid),
                uid: waiting.uid,
                position: waiting.position as u64,
                away: waiting.away,
            })
            .collect(),
        slots: view
            .slots
            .into_iter()
            .map(|slot| {
                let stopped = known.stopped.get(&slot.holder).cloned();
                Slot {
                    token: slot.token.0,
                    waits_for: held_back(&slot.holder).or(slot.waits_for),
                    name: name(&slot.holder),
                    holder: slot.holder,
                    marked: slot.over_limit,
                    seq: slot.seq.0,
                    since: slot.since.into(),
                    candidates: slot.candidates,
                    vacant: slot.vacant,
                    stopped,
                }
            })
            .collect(),
        gaps: view
            .gaps
            .into_iter()
            .map(|gap| gap_view(name(&gap.uid), gap))
            .collect(),
        awaited: named(view.awaited),
        turned_away: named(view.turned_away),
        paused: view.paused,
        waits_for_resume: released && state.waits_for_resume(),
        held: view.held,
        held_cure: view.held_cure,
        waits_cure: view.waits_cure,
        edited: view.edited.map(pool_edit),
        refused: view.refused,
        halted: view.halted,
        payload: view.payload,
        rollback: view.rollback,
        overridden: view.overridden.map(overridden),
        machine_sets: view.machine_sets.into_iter().map(machine_set).collect(),
        waiting_for,
        status,
    })
}

fn gap_view(name: String, gap: rollout::GapView) -> Gap {
    Gap {
        name,
        uid: gap.uid,
        owner: gap.owner,
        seq: gap.seq.0,
        since: gap.since.into(),
        waits_for: gap.waits_for,
    }
}

fn pool_edit(edit: dormer_proto::pool::PoolEdit) -> PoolEdit {
    PoolEdit {
        program: edit.program,
        at: edit.at.map(Moment),
        fields: edit.fields,
    }
}

fn overridden((spec_payload, by): (String, String)) -> Overridden {
    Overridden { spec_payload, by }
}

fn machine_set(set: rollout::SetView) -> MachineSet {
    MachineSet {
        name: set.name,
        replicas: set.replicas.into(),
        machines: set.machines.map(u64::from),
        ready: set.ready.map(u64::from),
        available: set.available.map(u64::from),
    }
}

/// What a rollout's view takes from the runs of machines, by the machines' UIDs.
#[derive(Debug, Clone, Default)]
pub struct KnownMachines {
    names: BTreeMap<String, String>,
    /// How a person stopped those that hold the lease.
    stopped: BTreeMap<String, String>,
}

impl Deref for KnownMachines {
    type Target = BTreeMap<String, String>;

    /// Their names.
    fn deref(&self) -> &BTreeMap<String, String> {
        &self.names
    }
}

/// Names of the machines that have runs, and how a person stopped those that hold the lease.
pub fn names(runs: &[SharedRun]) -> KnownMachines {
    let mut known = KnownMachines::default();
    for run in runs {
        let Some(state) = run.state.machine() else {
            continue;
        };
        let uid = run.id.key().to_owned();
        if let Some(how) = stopped(state) {
            known.stopped.insert(uid.clone(), how);
        }
        known.names.insert(uid, state.machine_ref().name);
    }
    known
}

/// How a person stopped a machine that holds the lease, which it keeps until it is resumed. `None`: it does not hold the lease,
/// or continues.
fn stopped(state: &machine::State) -> Option<String> {
    state.lease.token()?;
    if state.phase.id() == MachinePhase::Drained {
        let progress = &state.request_progress;
        let name = state.leased_request.and(progress.by.as_deref());
        let requester = name.map(|by| Requester::of(by, progress.who.as_deref()));
        let by = requester.map_or_else(|| A_PERSON.to_owned(), |it| it.to_string());
        return Some(format!("drained by {by}"));
    }
    let by = Requester::of(state.paused.as_deref()?, state.paused_who.as_deref());
    Some(format!("paused by {by}"))
}

/// State of a run in the word that people read, where that is not its workflow's: an Open rollout grants leases, and is
/// Idle while no machine wants one. What its machines say of it is in [`dormer_views::problem::word_among`].
pub(crate) fn state_text(state: &State) -> Option<&'static str> {
    let State::Rollout(rollout) = state else {
        return None;
    };
    let open = Dormer::label(state) == RolloutState::Open.id();
    open.then(
        || match (rollout.slots.is_empty(), rollout.queue().is_empty()) {
            (false, _) => "Running",
            (true, false) => "Waiting",
            (true, true) => "Idle",
        },
    )
}

/// Summary of any run.
pub fn run(run: &Run<Dormer>, live: &Live, now: Timestamp) -> run::Run {
    run::Run {
        status: status(run, live, now),
        workflow: run.id.workflow().to_owned(),
        name: called(run),
        state: Dormer::label(&run.state).to_owned(),
        state_text: state_text(&run.state).map(str::to_owned),
        tasks: run.tasks.len() as u64,
        deadline: run.deadline().map(Moment),
    }
}

/// Unfinished tasks of a run, with their heartbeats.
pub(crate) fn tasks(run: &Run<Dormer>, live: &Live, now: Timestamp) -> Vec<Task> {
    let beats = live.of(&run.id);
    let tasks = run.tasks.iter().map(|task| {
        let id = run.task_id(task.key);
        let heartbeat = beats
            .iter()
            .find(|beat| beat.task == id && beat.attempt == task.attempt);
        Task {
            machine: name(&run.state),
            heartbeat: heartbeat.map(heartbeat_view),
            ..open_task(&id, task, now)
        }
    });
    tasks.collect()
}

fn open_task(id: &TaskId, task: &OpenTask<Dormer>, now: Timestamp) -> Task {
    use dormer_engine_core::TaskPhase as Phase;
    let (phase, since, until, failure) = match &task.phase {
        Phase::InFlight { at, .. } => (TaskPhase::InFlight, Some(*at), task.deadline(), None),
        Phase::Waiting { until, failure } => (TaskPhase::Waiting, None, *until, Some(failure)),
    };
    Task {
        task: id.to_string(),
        run: id.run.as_str().to_owned(),
        name: task.body.name().to_owned(),
        machine: None,
        attempt: task.attempt.0,
        attempts_max: task.policy.attempts_max,
        ends: ends(task, now).map(Moment),
        phase: phase.into(),
        since: since.map(Moment),
        since_seconds: since.map(|since| now.since_ms(since) / 1_000),
        until: until.into(),
        failure: failure.map(task_failure),
        last_failure: match &task.phase {
            Phase::InFlight { .. } => task.last.as_ref().map(task_failure),
            Phase::Waiting { .. } => None,
        },
        heartbeat: None,
    }
}

fn task_failure(failure: &message::Failure) -> TaskFailure {
    TaskFailure {
        code: code::shown(&failure.code),
        message: failure.message.clone(),
        log: failure.log.clone(),
    }
}

/// Time limit of a task. `None`: its attempts are used up earlier, at the rate of the attempts so far or of the longest
/// pause between two.
fn ends(task: &OpenTask<Dormer>, now: Timestamp) -> Option<Timestamp> {
    let policy = &task.policy;
    let left = policy.attempts_max.saturating_sub(task.attempt.0);
    let each = now.since_ms(task.first_at) / task.attempt.0.max(1);
    let attempts_ms = left.saturating_mul(each.max(policy.delay_ms_max));
    let ends = task.overall();
    (attempts_ms > ends.since_ms(now)).then_some(ends)
}

fn heartbeat_view(beat: &message::Heartbeat) -> Heartbeat {
    Heartbeat {
        worker: beat.worker.clone(),
        step: beat.step.clone(),
        done: beat.done,
        of: beat.of,
        unit: beat.unit.clone(),
    }
}

/// View of a remote command.
pub(crate) fn remote_command(command: &message::RemoteCommand) -> RemoteCommand {
    RemoteCommand {
        task: command.task.to_string(),
        attempt: command.attempt.0,
        worker: command.worker.clone(),
        number: command.number.into(),
        name: command.name.clone(),
        line: command.line.clone(),
        at: command.at.into(),
        took_ms: command.took_ms,
        ended: command.ended.clone(),
        head: command.head.clone(),
        left_out_bytes: command.left_out,
        tail: command.tail.clone(),
    }
}

/// Name of a run for people: a machine's name, a rollout's pool.
fn name(state: &State) -> Option<String> {
    state.machine().map(|state| state.machine_ref().name)
}

/// Name of a run for people, or else its key.
pub(crate) fn called(run: &Run<Dormer>) -> String {
    name(&run.state).unwrap_or_else(|| run.id.key().to_owned())
}

/// Settings of a pool as its rollout knows them. `None`: the run is not a rollout's.
pub(crate) fn pool(run: &Run<Dormer>) -> Option<Pool> {
    let State::Rollout(state) = &run.state else {
        return None;
    };
    let view = state.view();
    let wanted = state.payload.as_ref();
    let overridden = view.overridden.map(overridden);
    let rollback_to = wanted.map_or_else(Vec::new, |it| it.terms.installed.clone());
    let approval = if view.manual_approval {
        ApprovalMode::Manual
    } else {
        ApprovalMode::Automatic
    };
    Some(Pool {
        pool: run.id.key().to_owned(),
        max_unavailable: view.max_unavailable.map(|max| max as u64),
        approval: approval.into(),
        paused: view.paused,
        payload: view.payload,
        rollback_to,
        overridden,
        refused: view.refused.or(view.held),
        members: view.members as u64,
    })
}

/// Common fields of every run.
fn status(run: &Run<Dormer>, live: &Live, now: Timestamp) -> RunStatus {
    RunStatus {
        run: run.id.as_str().to_owned(),
        seq: run.seq.0,
        entered_seq: run.entered.seq.0,
        began: run.began.into(),
        since: run.entered.at.into(),
        since_seconds: now.since_ms(run.entered.at) / 1_000,
        closed: run.closed.map(Moment),
        episode: run.episodes.back().map(|episode| EpisodeStatus {
            kind: episode.kind.to_string(),
            seq: episode.seq.0,
            from: episode.from.into(),
            to: episode.to.map(Moment),
            result: episode.result.to_string(),
        }),
        quarantine: quarantine_of(&run.id, live),
    }
}

/// Quarantine of a run in its view.
fn quarantine_of(run: &RunId, live: &Live) -> Option<Quarantine> {
    live.note(run).map(quarantine)
}

/// What people and other runs wait for while this run is quarantined.
fn waits_for_release(run: &RunId, quarantine: &Quarantine) -> String {
    let code = &quarantine.code;
    format!("its release from quarantine ({code}): dormer unquarantine {run}")
}

/// View of a note about a quarantined run.
pub(crate) fn quarantine(note: QuarantineNote) -> Quarantine {
    Quarantine {
        code: note.code,
        why: note.why,
        since: note.at.into(),
        builds: note.builds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_engine_core::Entered;
    use dormer_proto::{
        id::{LeaseToken, Seq, Sum},
        pool::PoolSettings,
    };
    use dormer_workflows::machine::{Change, ChangeStrategy, Phase};
    use serde_json::json;

    fn machine_with(fields: serde_json::Value) -> Machine {
        let mut machine = json!({
            "name": "win-1", "namespace": "", "uid": "u", "differs": [], "pool": "windows", "deleting": false,
            "machineConditions": [], "served": false, "tasks": [], "run": "machine/u", "seq": 9, "enteredSeq": 7,
            "began": "2026-11-21T06:00:00.000Z", "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 7_200,
        });
        for (key, value) in fields.as_object().expect("fields") {
            machine[key] = value.clone();
        }
        serde_json::from_value(machine).expect("a machine")
    }

    #[test]
    fn a_machine_whose_replacement_the_cloud_refuses_says_why() {
        let old = machine_with(
            json!({"uid": "old", "name": "win-old", "state": "Recreated",
            "phase": "replacement-wait", "phaseText": "waiting for the replacement",
            "waitingFor": "a replacement to serve"}),
        );
        let new = |message: &str| {
            machine_with(
                json!({"uid": "new", "name": "win-new", "state": "Provisioned", "phase": "address-wait",
                "phaseText": "waiting for an address", "machineConditions": [{"kind": "MachineCreation",
                "status": "False", "reason": "MachineCreationFailed", "message": message}]}),
            )
        };
        let slot = json!({"token": 4, "holder": "old", "name": "win-old", "marked": false, "seq": 2,
            "since": "2026-11-21T07:00:12.000Z", "waitsFor": null, "vacant": true, "candidates": ["win-new"]});
        let slot: Slot = serde_json::from_value(slot).expect("a slot");
        let mut shown = [old.clone()];
        let quota = new("InstanceLimitExceeded: you have reached your quota.");
        name_refused_replacements(&mut shown, std::slice::from_ref(&slot), &[quota]);
        let why = "its replacement win-new, which the cloud cannot create (InstanceLimitExceeded)";
        assert_eq!(shown[0].waiting_for.as_deref(), Some(why));
        let short = problem::in_short(&shown[0]).expect("a reason");
        assert!(short.contains("InstanceLimitExceeded"), "{short}");
        let mut other = [old.clone()];
        let fine = Machine {
            machine_conditions: Vec::new(),
            ..new("")
        };
        name_refused_replacements(&mut other, &[slot], &[fine]);
        assert_eq!(other[0], old, "nothing is known to be refused");
    }

    #[test]
    fn a_hold_has_its_person_and_its_reason_apart() {
        let shown = |by: &str, who: Option<&str>| {
            let shown = hold_view(&machine::Hold {
                by: by.into(),
                who: who.map(str::to_owned),
                at: None,
                why: None,
                holder: None,
            });
            (shown.who, shown.why)
        };
        let parts = |who: &str| (Some(who.to_owned()), Some("a disk".to_owned()));
        assert_eq!(shown("ann: a disk", None), parts("ann"), "an older record");
        assert_eq!(
            shown("ops: ann: a disk", Some("ops: ann")),
            parts("ops: ann")
        );
    }

    /// A drain that a budget holds up, or something else, under this policy; `forced` if it has been applied.
    fn ends(policy: AfterTimeout, by_budget: bool, forced: bool) -> Option<Moment> {
        let drain = drained(policy, by_budget, forced, None).drain;
        drain.expect("a drain").ends
    }

    /// A machine in such a drain; `torn_down`: the lease under which its host was torn down, and which is still held.
    fn drained(
        policy: AfterTimeout,
        by_budget: bool,
        forced: bool,
        torn_down: Option<LeaseToken>,
    ) -> Machine {
        let budgets = by_budget.then(|| "cart".to_owned());
        let blocker = dormer_proto::machine::Blocker {
            pod: "shop/cart-7".into(),
            why: "no".into(),
            budgets: budgets.into_iter().collect(),
            until_off: false,
            finalizers: Vec::new(),
        };
        let drain = machine::Drain {
            left: 1,
            blockers: vec![blocker],
            force: forced,
            ..machine::Drain::default()
        };
        let change = Change {
            how: ChangeStrategy::InPlace,
            differs: Vec::new(),
            repair: false,
            anew: false,
            asked: false,
        };
        let lease = torn_down.map_or(machine::Lease::None, |token| machine::Lease::Held {
            token,
            over_limit: false,
        });
        let state = machine::State {
            phase: Phase::Evicting(change, drain),
            lease,
            host: machine::Host {
                torn_down,
                ..machine::Host::default()
            },
            pool: Some(PoolSettings {
                after_timeout: policy,
                ..PoolSettings::default()
            }),
            ..machine::State::default()
        };
        let timer = Timer::Machine(machine::Timer::Drain);
        let run = Run {
            id: machine_run("u").expect("an id"),
            seq: Seq(1),
            began: Timestamp(0),
            state: state.into(),
            entered: Entered {
                seq: Seq(1),
                at: Timestamp(1),
            },
            tasks: Vec::new(),
            timers: [(timer, Timestamp(3_600_000))].into(),
            outbox: Vec::new(),
            taken: BTreeMap::new(),
            numbered: Seq(0),
            requests: [].into(),
            facts: BTreeMap::new(),
            episodes: [].into(),
            closed: None,
            sum: Sum(0),
        };
        machine(&run, &Live::default(), Timestamp(2)).expect("a machine")
    }

    #[test]
    fn the_pool_gives_up_no_drain_of_a_host_that_is_torn_down() {
        use AfterTimeout::{Abort, Force};
        let torn_down = |policy| drained(policy, true, false, Some(LeaseToken(7)));
        let ends = |policy| torn_down(policy).drain.expect("a drain").ends;
        assert_eq!(ends(Abort), None);
        assert!(ends(Force).is_some(), "it evicts without budgets");
        assert!(torn_down(Abort).torn_down);
        assert!(!drained(Abort, true, false, None).torn_down);
    }

    #[test]
    fn a_drain_ends_where_the_pool_says_so() {
        use AfterTimeout::{Abort, Force, Wait};
        let at = Some(Moment(Timestamp(3_600_000)));
        assert_eq!(ends(Wait, true, false), None);
        assert_eq!(ends(Abort, true, false), at);
        assert_eq!(ends(Abort, false, false), at);
        assert_eq!(ends(Force, true, false), at);
        assert_eq!(ends(Force, false, false), None, "no budget holds the pod");
        assert_eq!(ends(Force, true, true), None, "it was done");
    }
}
