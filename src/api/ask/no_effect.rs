//! Requests that would change nothing: why, in the words of the answer.

use super::Body;
use crate::run_cache::SharedRun;
use dormer_engine_core::{Command, Decision, Input, Now, Sender, TaskPhase, Workflow};
use dormer_proto::{
    id::Timestamp,
    machine,
    phase::MachinePhase,
    pool::{Approval, PoolSettings},
    rollout,
    work::Signal,
};
use dormer_workers::ssh::fingerprint;
use dormer_workflows::{
    Dormer, State,
    machine::{self as machine_run, ChangeStrategy, Halt, LeasedRequest, Phase},
    rollout::{self as rollout_run, RollbackStep},
};

/// How a person reads a host's key on the host itself.
const KEY_ON_THE_HOST: &str = "ssh-keygen -lf C:\\ProgramData\\ssh\\ssh_host_ed25519_key.pub";

/// A request without effect.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoEffect {
    /// Why it changes nothing.
    pub(super) why: String,
    /// What has an effect instead; `None`: `dormer why` says it.
    pub(super) remedy: Option<String>,
}

impl From<String> for NoEffect {
    fn from(why: String) -> Self {
        Self { why, remedy: None }
    }
}

/// Why the signal would change nothing in the present state, as the workflow itself decides it. `None`: it changes
/// something, or repeats a request that holds already.
pub(super) fn changes_nothing(
    run: &SharedRun,
    now: Timestamp,
    signal: &Signal,
) -> Option<NoEffect> {
    against_people(run, signal).or_else(|| without_effect(run, now, signal))
}

/// Refusal of a retry that is in the history, and that the workflow refused: a person's hold came just before it.
pub(super) fn refused_after_all(run: &SharedRun, signal: &Signal) -> Option<NoEffect> {
    let is_retry = *signal == Signal::Machine(machine::Signal::Retry);
    let state = run.state.machine().filter(|_| is_retry)?;
    Some(kept(run, state, state.retry_refused()?))
}

/// Why a retry is refused although it would do something: people keep the machine as it is, and a retry would act on it.
fn against_people(run: &SharedRun, signal: &Signal) -> Option<NoEffect> {
    let (State::Machine(state), Signal::Machine(machine::Signal::Retry)) = (&run.state, signal)
    else {
        return None;
    };
    Some(kept(run, state, &state.kept_by_people()?))
}

/// Refusal of a retry of a machine that people keep as it is.
fn kept(run: &SharedRun, state: &machine_run::State, by: &str) -> NoEffect {
    let name = run.id.key();
    let name = state.machine.as_ref().map_or(name, |it| &it.machine.name);
    NoEffect {
        why: format!("it is {by}, and a retry would act on it"),
        remedy: Some(format!(
            "ask them first; dormer resume {name} ends that, and then: dormer retry {name}"
        )),
    }
}

/// Why the signal would change nothing, without a look at what people want.
fn without_effect(run: &SharedRun, now: Timestamp, signal: &Signal) -> Option<NoEffect> {
    if let (State::Machine(state), Signal::Machine(asked)) = (&run.state, signal)
        && let Some(why) = out_of_order(state, asked)
    {
        return Some(why);
    }
    let runs = under_way(run).filter(|_| *signal == Signal::Machine(machine::Signal::Retry));
    let from = Sender::Person {
        who: "somebody".into(),
        why: String::new(),
    };
    let seq = run.seq.next();
    let now = Now {
        run: &run.id,
        seq,
        at: now,
    };
    let signalled = Input::Signalled {
        from,
        signal: signal.clone(),
    };
    let Decision {
        state: after,
        commands,
    } = Dormer::decide(now, run.state.clone(), signalled);
    if commands.iter().any(|command| has_effect(run, command)) {
        return None;
    }
    match (&run.state, after, signal) {
        (State::Machine(before), State::Machine(mut after), Signal::Machine(signal)) => {
            let note = after
                .note
                .take()
                .filter(|it| Some(it) != before.note.as_ref());
            after.note.clone_from(&before.note);
            let why = || runs.or(note).or_else(|| idle(before, signal));
            (*before == after).then(why)?.map(NoEffect::from)
        }
        (State::Rollout(before), State::Rollout(after), Signal::Rollout(signal)) => {
            let idle = match signal {
                rollout::Signal::Resume => {
                    "nobody has paused it with dormer pause".to_owned().into()
                }
                rollout::Signal::EndRollback => no_rollback(before, run.id.key()),
                _ => return None,
            };
            (*before == after).then_some(idle)
        }
        _ => None,
    }
}

/// Why there is no rollback to end.
fn no_rollback(state: &rollout_run::State, pool: &str) -> NoEffect {
    let why = match state.rollback.as_ref().map(|it| &it.step) {
        Some(RollbackStep::Ending(by)) => {
            format!("the rollback is being ended already, requested by {by}")
        }
        _ => "no rollback is in force: the payload is the one in the pool's spec".to_owned(),
    };
    let remedy = format!("dormer rollback --pool {pool} shows what it can go back to");
    NoEffect {
        why,
        remedy: Some(remedy),
    }
}

/// Stops of the machine that a resume of this requester would end, and that other people began.
pub(crate) fn ends_of_others(run: &SharedRun, now: Timestamp, body: &Body) -> Vec<String> {
    let who = body.requester();
    let signalled = Input::Signalled {
        from: Sender::Person {
            who: who.to_owned(),
            why: String::new(),
        },
        signal: Signal::Machine(machine::Signal::Resume),
    };
    let now = Now {
        run: &run.id,
        seq: run.seq.next(),
        at: now,
    };
    let after = Dormer::decide(now, run.state.clone(), signalled).state;
    let (Some(before), Some(after)) = (run.state.machine(), after.machine()) else {
        return Vec::new();
    };
    let still = after.halts();
    let of_others = |halt: &Halt| halt.person().is_some_and(|person| person != who);
    let ended = before.halts().into_iter();
    let ended = ended.filter(|it| !still.contains(it) && of_others(it));
    ended.map(|it| it.to_string()).collect()
}

/// Whether a command changes the run: nothing is made due where nothing waits.
fn has_effect(run: &SharedRun, command: &Command<Dormer>) -> bool {
    let waits = |phase: &TaskPhase| matches!(phase, TaskPhase::Waiting { .. });
    match command {
        Command::AttemptNow => run.tasks.iter().any(|task| waits(&task.phase)),
        Command::FireNow(timer) => run.timers.contains_key(timer),
        _ => true,
    }
}

/// That an attempt of a task is under way, which a retry would only repeat.
fn under_way(run: &SharedRun) -> Option<String> {
    let flies = |phase: &TaskPhase| matches!(phase, TaskPhase::InFlight { .. });
    let task = run.tasks.iter().find(|task| flies(&task.phase))?;
    let attempt = task.attempt;
    let name = task.body.name();
    Some(format!(
        "it has not failed: attempt {attempt} of {name} is under way, so there is nothing to retry"
    ))
}

/// Reason for which a request is too early or already recorded, although the workflow would record it again.
fn out_of_order(state: &machine_run::State, signal: &machine::Signal) -> Option<NoEffect> {
    use machine::Signal;
    let why = match signal {
        Signal::Retry => return same_key_again(state),
        Signal::Hold => return not_to_be_kept(state),
        Signal::Pause if state.machine_gone => return not_to_be_kept(state),
        Signal::Approve => unapprovable(state),
        Signal::Recreate => replaced_already(state).or_else(|| deleted_already(state)),
        Signal::Drain => deleted_already(state).or_else(|| drained_already(state)),
        Signal::TrustHostKey { fingerprint: key } => {
            let same = state.host.pin.as_deref().map(fingerprint);
            let same = same.is_some_and(|pin| pin.ends_with(key.as_str()));
            match (same, key_at_the_host(state)) {
                (true, Some(shown)) if !shown.ends_with(key.as_str()) => {
                    return Some(earlier_key(state, key, &shown));
                }
                (true, _) => Some(format!("the host key {key} is already trusted")),
                (false, _) => not_shown(state, key),
            }
        }
        // The resume would only restart the phase, with the same result.
        Signal::Resume
            if state.phase.id() == MachinePhase::Serving
                && state.halts().is_empty()
                && state.leased_request.is_none() =>
        {
            idle(state, signal)
        }
        Signal::Pause
        | Signal::Resume
        | Signal::Abort
        | Signal::Remove
        | Signal::Granted { .. }
        | Signal::Enrol
        | Signal::Replaced { .. } => None,
    };
    why.map(NoEffect::from)
}

/// Why a retry of a step that failed at a changed host key fails again at once. An address that changes retries the step
/// by itself.
fn same_key_again(state: &machine_run::State) -> Option<NoEffect> {
    let view = state.view();
    let (_, failure) = view.failure.as_ref()?;
    if failure.code != "HostKeyChanged" {
        return None;
    }
    let trusted = state.host.pin.as_deref().map(fingerprint);
    let trusted = trusted.map_or_else(|| "another".to_owned(), |pin| bare(&pin).to_owned());
    let shown = failure.shown_key.as_deref().unwrap_or("another key");
    let name = state
        .machine
        .as_ref()
        .map_or("MACHINE", |it| &it.machine.name);
    Some(NoEffect {
        why: format!(
            "its host shows {shown}, dormer trusts {trusted}, and a retry would fail at once for that reason"
        ),
        remedy: Some(format!(
            "compare the key on the host itself ({KEY_ON_THE_HOST}), and then: dormer trust-host-key {name} \
             --fingerprint SHA256:… --why REASON\nThe step then continues. {}",
            earlier_key_is_back(name)
        )),
    })
}

/// What to do where the host has the key again that dormer trusts.
fn earlier_key_is_back(name: &str) -> String {
    format!(
        "If the host has its earlier key again, dormer reset {name} --to RECORD repeats the step; dormer history {name} \
         lists the records"
    )
}

/// Refusal of the key that dormer trusts already, while the host shows another: nothing would change.
fn earlier_key(state: &machine_run::State, key: &str, shown: &str) -> NoEffect {
    let name = state
        .machine
        .as_ref()
        .map_or("MACHINE", |it| &it.machine.name);
    NoEffect {
        why: format!(
            "dormer trusts {key} already, and the host shows {shown}: nothing would change"
        ),
        remedy: Some(format!(
            "compare the key on the host itself ({KEY_ON_THE_HOST}). If {shown} is right: dormer trust-host-key {name} \
             --fingerprint {shown} --why REASON\n{}",
            earlier_key_is_back(name)
        )),
    }
}

/// Key that the host showed instead of the one that dormer trusts, when a task failed or a comparison did.
fn key_at_the_host(state: &machine_run::State) -> Option<String> {
    let view = state.view();
    let failed = view
        .failure
        .as_ref()
        .map(|(_, it)| (&it.code, &it.shown_key));
    let compared = state
        .not_compared
        .as_ref()
        .map(|it| (&it.code, &it.shown_key));
    let changed = [failed, compared]
        .into_iter()
        .flatten()
        .find(|(code, _)| *code == "HostKeyChanged");
    changed.and_then(|(_, shown)| shown.clone())
}

/// The fingerprint alone, without the key's type before it.
fn bare(fingerprint: &str) -> &str {
    fingerprint.split(' ').next_back().unwrap_or(fingerprint)
}

/// Why a replacement is no news: it is under way, or accepted already.
fn replaced_already(state: &machine_run::State) -> Option<String> {
    let under_way = match &state.phase {
        Phase::Opening(change) | Phase::Evicting(change, _) => {
            change.how == ChangeStrategy::Recreate
        }
        Phase::Deleting | Phase::Vanishing | Phase::Leaving => true,
        Phase::ClosingGone | Phase::ReplacementWait => true,
        _ => false,
    };
    if under_way {
        let now = state.phase.id().text();
        return Some(format!("it is already being replaced, or deleted: {now}"));
    }
    asked_already(state, LeasedRequest::Recreate)
        .then(|| "its replacement is already accepted, and waits for the rollout's lease".into())
}

/// Kind of the object that stands for the machine.
fn kind(state: &machine_run::State) -> &'static str {
    let api = state.machine.as_ref().map(|it| it.machine.api);
    api.unwrap_or_default().kind()
}

/// Why a drain or a replacement comes too late: the Machine is being deleted, and Kubernetes takes no deletionTimestamp back.
fn deleted_already(state: &machine_run::State) -> Option<String> {
    let phase = state.phase.id();
    let deleting = state.machine.as_ref().is_some_and(|it| it.deleting);
    let gone = matches!(
        phase,
        MachinePhase::Vanishing
            | MachinePhase::Leaving
            | MachinePhase::ClosingGone
            | MachinePhase::ReplacementWait
    );
    let object = kind(state);
    if state.machine_gone {
        return Some(format!(
            "too late: its {object} is already deleted ({})",
            phase.text()
        ));
    }
    (deleting || gone).then(|| {
        format!(
            "too late: its {object} is already being deleted, and dormer drains it before it goes ({})",
            phase.text()
        )
    })
}

/// Why a hold or a pause comes too late: a deletion of the Machine is not taken back.
fn not_to_be_kept(state: &machine_run::State) -> Option<NoEffect> {
    Some(NoEffect {
        why: deleted_already(state)?,
        remedy: Some(
            "keep the machine in its place, once that serves: dormer get machines shows it".into(),
        ),
    })
}

/// Why a drain is no news: it is done, or accepted already.
fn drained_already(state: &machine_run::State) -> Option<String> {
    if matches!(state.phase, Phase::Drained) && state.halts().is_empty() {
        return Some("its node is already drained, and stays so until dormer resume".into());
    }
    asked_already(state, LeasedRequest::Drain)
        .then(|| "its drain is already accepted, and waits for the rollout's lease".into())
}

/// Whether a person's request is recorded, and a repeat would change nothing: it would end a pause and a hold, and it
/// overrides the cordon of another client.
fn asked_already(state: &machine_run::State, request: LeasedRequest) -> bool {
    let waits = matches!(state.phase, Phase::LeaseWait(_));
    waits
        && state.leased_request == Some(request)
        && state.halts().is_empty()
        && !state.cordoned_by_others()
}

/// Why nothing of the machine waits for an approval, or may be approved. A repeat for the same version is confirmed.
fn unapprovable(state: &machine_run::State) -> Option<String> {
    if !state.in_service {
        return Some("it has not served yet, and what is new needs no approval".into());
    }
    if let Some(by) = &state.held {
        return Some(format!(
            "it is held by {by}, and nothing is changed on it: dormer resume it first, then approve"
        ));
    }
    let waits = state.phase.id() == MachinePhase::ApprovalWait;
    let automatic = |pool: &PoolSettings| pool.approval == Approval::Automatic;
    (!waits && state.pool.as_ref().is_some_and(automatic)).then(|| {
        "nothing waits for an approval: upgrades in its pool need none (spec.approval is Automatic)".into()
    })
}

/// Why a host key is not the one that the host presents. A wrong key locks dormer out: it sends nothing to a
/// host with another key. `None`: the host presents this key, or dormer does not know which key it presents.
fn not_shown(state: &machine_run::State, key: &str) -> Option<String> {
    let view = state.view();
    let failed = view
        .failure
        .as_ref()
        .map(|(_, it)| (&it.code, &it.shown_key));
    let compared = state
        .not_compared
        .as_ref()
        .map(|it| (&it.code, &it.shown_key));
    let changed = [failed, compared]
        .into_iter()
        .flatten()
        .find(|(code, _)| *code == "HostKeyChanged");
    match changed {
        Some((_, shown)) => {
            let shown = shown.as_deref().filter(|shown| *shown != key)?;
            Some(format!(
                "the host shows {shown}, and not {key}. Compare the key on the host itself: {KEY_ON_THE_HOST}"
            ))
        }
        None => (state.phase.id() == MachinePhase::Serving && state.host.pin.is_some()).then(|| {
            "the host shows the key that dormer knows. If it is reinstalled, the next comparison notices, and dormer \
             why names its new key"
                .to_owned()
        }),
    }
}

/// Text about a signal that changes nothing. `None`: it repeats a request that is already in force.
fn idle(state: &machine_run::State, signal: &machine::Signal) -> Option<String> {
    use machine::Signal;
    let text = match signal {
        Signal::Retry => "it has not failed, so there is nothing to retry",
        Signal::Resume => {
            "it is neither paused nor held nor drained, so there is nothing to resume"
        }
        Signal::Approve => "nothing waits for approval",
        Signal::Abort => return Some(no_abort(state)),
        Signal::Remove => "it cannot be removed now",
        Signal::Pause
        | Signal::Hold
        | Signal::Drain
        | Signal::Recreate
        | Signal::TrustHostKey { .. }
        | Signal::Granted { .. }
        | Signal::Enrol
        | Signal::Replaced { .. } => return None,
    };
    Some(text.into())
}

/// Text about an abort that comes too late, with what happens instead, or of a machine without an upgrade.
fn no_abort(state: &machine_run::State) -> String {
    let phase = state.phase.id();
    // Kubernetes takes no deletionTimestamp back.
    if state.own_host() && (phase == MachinePhase::Leaving || state.phase.removal_failed()) {
        return "too late: its WindowsHost is already deleted, and cannot be kept; label it \
                windowsmachineconfig.openshift.io/ignore=true to let it go as it is"
            .into();
    }
    let too_late = match (
        phase,
        state.under_lease.filter(|_| state.lease.token().is_some()),
    ) {
        (MachinePhase::Vanishing | MachinePhase::ReplacementWait, _) => {
            return format!(
                "too late: its {} is already deleted; the upgrade ends when the machine in its place serves",
                kind(state)
            );
        }
        (MachinePhase::Leaving | MachinePhase::ClosingGone, _) => {
            return format!(
                "too late: its {} is already deleted, and cannot be kept",
                kind(state)
            );
        }
        (MachinePhase::Undoing, _) => return "its upgrade is already being given up".into(),
        (_, Some(ChangeStrategy::InPlace)) => "too late: its host is already torn down",
        (_, Some(ChangeStrategy::Restart)) => "too late: its services are already being changed",
        (_, Some(ChangeStrategy::Recreate | ChangeStrategy::Drain) | None) => {
            return "no upgrade is running, so there is nothing to abort".into();
        }
    };
    let to = state
        .desired()
        .map_or("what is desired", |desired| desired.version.as_str());
    let now = match phase {
        MachinePhase::Failed => "after a dormer retry, dormer continues".to_owned(),
        _ => format!("dormer now continues ({})", phase.text()),
    };
    format!("{too_late}; {now} to {to}, and then uncordons its Node")
}

#[cfg(test)]
mod tests {
    use super::*;

    use dormer_engine_core::{Entered, OpenTask, RetryPolicy, Run, TaskKey};
    use dormer_proto::{
        id::{Attempt, LeaseToken, Seq, Sum},
        machine::{MachineApi, MachineRef},
        message::Failure,
    };
    use dormer_workflows::machine::{Change, Lease, Phase, State as Machine};
    use std::{collections::VecDeque, sync::Arc};

    /// Why a machine in this state refuses the signal.
    fn refused_of(state: Machine, signal: machine::Signal) -> Option<String> {
        let run = Arc::new(run_in(state));
        changes_nothing(&run, Timestamp(1), &Signal::Machine(signal)).map(|it| it.why)
    }

    fn run_in(state: Machine) -> Run<Dormer> {
        Run {
            id: "machine/u1".parse().expect("an id"),
            seq: Seq(1),
            began: Timestamp(0),
            state: state.into(),
            entered: Entered {
                seq: Seq(1),
                at: Timestamp(0),
            },
            tasks: Vec::new(),
            timers: Default::default(),
            outbox: Vec::new(),
            taken: Default::default(),
            numbered: Seq(0),
            requests: VecDeque::new(),
            facts: Default::default(),
            episodes: VecDeque::new(),
            closed: None,
            sum: Sum(0),
        }
    }

    #[test]
    fn a_retry_of_a_machine_that_people_hold_is_refused() {
        let failed = |held: Option<&str>, paused: Option<&str>| Machine {
            phase: Phase::Failed {
                from: Box::new(Phase::Probing),
                failure: Failure::lasting("DiskFull", "full"),
            },
            held: held.map(str::to_owned),
            paused: paused.map(str::to_owned),
            ..Machine::default()
        };
        let refused = |state: Machine| {
            let run = Arc::new(run_in(state));
            changes_nothing(&run, Timestamp(1), &Signal::Machine(machine::Signal::Retry))
        };
        assert_eq!(refused(failed(None, None)), None);
        assert_eq!(refused(failed(Some("dormer: no owner"), None)), None);
        let held = refused(failed(Some("ann: a look"), None)).expect("refused");
        assert_eq!(
            held.why,
            "it is held by ann: a look, and a retry would act on it"
        );
        let remedy = held.remedy.unwrap_or_default();
        assert!(remedy.contains("dormer resume "), "{remedy}");
        let paused = refused(failed(None, Some("bob"))).expect("refused");
        assert!(paused.why.contains("paused by bob"), "{}", paused.why);
        // A hold that came after the check: the workflow refuses the retry, and the answer says so.
        let retry = Signal::Machine(machine::Signal::Retry);
        let run = Arc::new(run_in(failed(None, None)));
        assert_eq!(refused_after_all(&run, &retry), None);
        let now = Now {
            run: &run.id,
            seq: Seq(2),
            at: Timestamp(1),
        };
        let retried = Input::Signalled {
            from: Sender::Person {
                who: "bob".into(),
                why: String::new(),
            },
            signal: retry.clone(),
        };
        let before = failed(Some("ann: a look"), None);
        let after = Dormer::decide(now, before.clone().into(), retried);
        assert!(after.commands.is_empty());
        let after = after.state.machine().expect("a machine").clone();
        assert_eq!(after.phase, before.phase);
        let run = Arc::new(run_in(after));
        let late = refused_after_all(&run, &retry).expect("refused");
        assert_eq!(late.why, held.why);
        // Other requests are for people to end a hold by.
        let run = Arc::new(run_in(failed(Some("ann"), None)));
        let resume = Signal::Machine(machine::Signal::Resume);
        assert_eq!(changes_nothing(&run, Timestamp(1), &resume), None);
    }

    #[test]
    fn a_machine_that_is_deleted_cannot_be_held() {
        let held = |phase: Phase, machine_gone: bool| {
            let state = Machine {
                phase,
                machine_gone,
                ..Machine::default()
            };
            refused_of(state, machine::Signal::Hold)
        };
        assert_eq!(held(Phase::Serving, false), None);
        assert_eq!(
            held(Phase::ReplacementWait, true).as_deref(),
            Some("too late: its Machine is already deleted (waiting for the replacement)")
        );
        let going = held(Phase::Vanishing, false).unwrap_or_default();
        assert!(
            going.starts_with("too late: its Machine is already being deleted"),
            "{going}"
        );
    }

    #[test]
    fn a_byoh_host_is_named_by_its_own_kind() {
        let state = |machine_gone: bool, phase: Phase| Machine {
            machine: Some(machine::MachineFact {
                machine: MachineRef {
                    api: MachineApi::Host,
                    ..MachineRef::default()
                },
                deleting: true,
                ..machine::MachineFact::default()
            }),
            machine_gone,
            phase,
            ..Machine::default()
        };
        for why in [
            refused_of(state(true, Phase::ClosingGone), machine::Signal::Drain).unwrap_or_default(),
            refused_of(state(false, Phase::Serving), machine::Signal::Drain).unwrap_or_default(),
            no_abort(&state(true, Phase::ClosingGone)),
            no_abort(&state(true, Phase::Vanishing)),
        ] {
            assert!(
                why.starts_with("too late: its WindowsHost is already"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_retry_brings_the_next_attempt_forward_and_repeats_none_that_is_under_way() {
        let refused = |phase: TaskPhase| {
            let mut run = run_in(Machine {
                phase: Phase::Probing,
                ..Machine::default()
            });
            run.tasks.push(OpenTask {
                key: TaskKey {
                    seq: Seq(1),
                    ordinal: 0,
                },
                body: machine::Task::Probe {
                    host: machine::HostRef::default(),
                },
                policy: RetryPolicy::PROMPT,
                first_at: Timestamp(0),
                attempt: Attempt(3),
                episode: Seq(1),
                phase,
                last: None,
            });
            let retry = Signal::Machine(machine::Signal::Retry);
            changes_nothing(&Arc::new(run), Timestamp(1), &retry)
        };
        let waits = TaskPhase::Waiting {
            until: Timestamp(10_001),
            failure: Failure::transient("ConnectTimeout", "no answer"),
        };
        assert_eq!(refused(waits), None);
        let runs = refused(TaskPhase::InFlight {
            at: Timestamp(0),
            issued: None,
        });
        assert_eq!(
            runs.map(|it| it.why).as_deref(),
            Some(
                "it has not failed: attempt 3 of probe is under way, so there is nothing to retry"
            )
        );
    }

    #[test]
    fn a_retry_fires_a_timer_that_would_try_again() {
        let since = Timestamp(0);
        let mut run = run_in(Machine {
            phase: Phase::KeyWait { since },
            ..Machine::default()
        });
        let retry = Signal::Machine(machine::Signal::Retry);
        let refused = |run: &Run<Dormer>| {
            changes_nothing(&Arc::new(run.clone()), Timestamp(1), &retry).is_some()
        };
        assert!(refused(&run), "no timer runs");
        let again = machine_run::Timer::Again.into();
        run.timers.insert(again, Timestamp(60_000));
        assert!(!refused(&run));
    }

    #[test]
    fn a_retry_that_meets_the_same_changed_host_key_is_refused_and_names_the_command() {
        let shown = format!("SHA256:{}", "a".repeat(43));
        let mut state = Machine {
            phase: Phase::Failed {
                from: Box::new(Phase::Probing),
                failure: Failure {
                    shown_key: Some(shown.clone()),
                    ..Failure::lasting("HostKeyChanged", "another key")
                },
            },
            ..Machine::default()
        };
        state.host.pin = Some("SHA256:old".into());
        let retry = Signal::Machine(machine::Signal::Retry);
        let run = Arc::new(run_in(state.clone()));
        let no = changes_nothing(&run, Timestamp(1), &retry).expect("refused");
        assert!(no.why.contains(&shown) && no.why.contains("SHA256:old"));
        let remedy = no.remedy.unwrap_or_default();
        for part in ["dormer trust-host-key ", " --fingerprint ", " --why "] {
            assert!(remedy.contains(part), "{remedy}");
        }
        let trust = machine::Signal::TrustHostKey {
            fingerprint: "SHA256:old".into(),
        };
        // The key before the change: nothing would change.
        let why = refused_of(state, trust).unwrap_or_default();
        assert!(
            why.contains(&shown) && why.contains("trusts SHA256:old already"),
            "{why}"
        );
    }

    #[test]
    fn a_drain_or_a_replacement_of_a_machine_that_is_deleted_comes_too_late() {
        for signal in [machine::Signal::Drain, machine::Signal::Recreate] {
            for phase in [Phase::Vanishing, Phase::Leaving, Phase::ReplacementWait] {
                let leaves = Machine {
                    phase: phase.clone(),
                    ..Machine::default()
                };
                let why = refused_of(leaves, signal.clone()).unwrap_or_default();
                assert!(why.contains("already being"), "{phase:?}: {why}");
            }
            let fact = machine::MachineFact {
                deleting: true,
                ..machine::MachineFact::default()
            };
            let deleting = Machine {
                machine: Some(fact),
                phase: Phase::Serving,
                ..Machine::default()
            };
            let why = refused_of(deleting, signal).unwrap_or_default();
            assert!(
                why.starts_with("too late: its Machine is already being deleted"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_resume_names_what_it_would_end_of_other_people() {
        let hold = |by: &str| machine_run::Hold {
            by: by.into(),
            who: None,
            at: None,
            why: None,
            holder: None,
        };
        let of = |state: Machine, who: &str| {
            let body = Body {
                who: Some(who.into()),
                ..Body::default()
            };
            ends_of_others(&Arc::new(run_in(state)), Timestamp(1), &body)
        };
        let held = Machine {
            phase: Phase::Serving,
            held: Some("ann: a new disk".into()),
            ..Machine::default()
        };
        assert_eq!(of(held.clone(), "ann"), Vec::<String>::new());
        assert_eq!(of(held.clone(), "bob"), ["held by ann: a new disk"]);
        let both = Machine {
            also_held: vec![hold("bob")],
            ..held
        };
        assert_eq!(of(both.clone(), "bob"), Vec::<String>::new());
        let all = ["held by ann: a new disk", "held by bob"];
        assert_eq!(of(both, "carl"), all);
    }

    #[test]
    fn a_replacement_that_is_under_way_or_accepted_is_not_accepted_again() {
        let refused =
            |phase: Phase, leased_request: Option<LeasedRequest>, signal: machine::Signal| {
                let state = Machine {
                    phase,
                    leased_request,
                    in_service: true,
                    ..Machine::default()
                };
                refused_of(state, signal).unwrap_or_default()
            };
        let change = |how: ChangeStrategy| Change {
            how,
            differs: vec!["kubelet.exe".into()],
            repair: false,
            anew: false,
            asked: false,
        };
        let recreate = || machine::Signal::Recreate;
        for phase in [
            Phase::Opening(change(ChangeStrategy::Recreate)),
            Phase::Deleting,
            Phase::Vanishing,
            Phase::Leaving,
            Phase::ReplacementWait,
        ] {
            let why = refused(phase, None, recreate());
            assert!(why.starts_with("it is already being replaced"), "{why}");
        }
        let queued = || Phase::LeaseWait(change(ChangeStrategy::Recreate));
        let asked = Some(LeasedRequest::Recreate);
        let why = refused(queued(), asked, recreate());
        assert!(why.contains("already accepted"), "{why}");
        let why = refused(
            Phase::Drained,
            Some(LeasedRequest::Drain),
            machine::Signal::Drain,
        );
        assert!(why.contains("already drained"), "{why}");
        for (phase, leased_request) in [
            (queued(), None),
            (queued(), Some(LeasedRequest::Drain)),
            (Phase::Opening(change(ChangeStrategy::InPlace)), None),
            (Phase::Serving, None),
        ] {
            let why = refused(phase.clone(), leased_request, recreate());
            assert_eq!(why, "", "{phase:?}");
        }
    }

    #[test]
    fn nothing_is_approved_where_the_pool_asks_for_no_approval() {
        let approved = |approval: Approval, phase: Phase| {
            let pool = PoolSettings {
                approval,
                ..PoolSettings::default()
            };
            let mut state = Machine {
                phase,
                pool: Some(pool),
                in_service: true,
                version: Some("v1".into()),
                ..Machine::default()
            };
            let desired = dormer_proto::pool::Desired {
                version: "v2".into(),
                payload: "p".into(),
            };
            let pool = state.pool.as_mut().expect("a pool");
            pool.desired.insert("*".into(), desired);
            refused_of(state, machine::Signal::Approve)
        };
        let change = Change {
            how: ChangeStrategy::Recreate,
            differs: vec!["kubelet.exe".into()],
            repair: false,
            anew: false,
            asked: false,
        };
        let why = approved(Approval::Automatic, Phase::LeaseWait(change.clone()));
        let why = why.unwrap_or_default();
        assert!(why.starts_with("nothing waits for an approval"), "{why}");
        for phase in [Phase::Serving, Phase::ApprovalWait(change)] {
            assert_eq!(approved(Approval::Manual, phase), None);
        }
    }

    #[test]
    fn an_abort_that_comes_too_late_says_what_happens_now() {
        let abort = |phase: Phase, how: ChangeStrategy| {
            let token = LeaseToken(7);
            let state = Machine {
                phase,
                lease: Lease::Held {
                    token,
                    over_limit: false,
                },
                under_lease: Some(how),
                ..Machine::default()
            };
            refused_of(state, machine::Signal::Abort).unwrap_or_default()
        };
        let converging = || Phase::ConvergingHost { rebooted: false };
        assert_eq!(
            abort(converging(), ChangeStrategy::InPlace),
            "too late: its host is already torn down; dormer now continues (converging the host) to what is desired, \
             and then uncordons its Node"
        );
        let text = abort(Phase::Closing, ChangeStrategy::Restart);
        assert!(text.starts_with("too late: its services"), "{text}");
        let failed = Phase::Failed {
            from: Box::new(converging()),
            failure: Failure::lasting("Broken", "it broke"),
        };
        let text = abort(failed, ChangeStrategy::InPlace);
        assert!(text.contains("after a dormer retry"), "{text}");
    }

    #[test]
    fn a_request_that_changes_nothing_is_refused_with_its_reason() {
        let refused = |phase: Phase, signal: machine::Signal| {
            let state = Machine {
                phase,
                ..Machine::default()
            };
            refused_of(state, signal)
        };
        use machine::Signal;
        for (phase, signal, part) in [
            (Phase::Probing, Signal::Abort, "nothing to abort"),
            (Phase::Probing, Signal::Approve, "has not served"),
            (Phase::Probing, Signal::Resume, "nothing to resume"),
            (Phase::Probing, Signal::Retry, "nothing to retry"),
            (Phase::Vanishing, Signal::Abort, "already deleted"),
        ] {
            let why = refused(phase, signal).unwrap_or_default();
            assert!(why.contains(part), "{part}: {why}");
        }
        let failed = Phase::Failed {
            from: Box::new(Phase::Probing),
            failure: Failure::lasting("Broken", "it broke"),
        };
        assert_eq!(refused(failed, Signal::Retry), None);
        assert_eq!(refused(Phase::Probing, Signal::Pause), None);
        let held = Machine {
            held: Some("ann".into()),
            in_service: true,
            ..Machine::default()
        };
        let why = refused_of(held, Signal::Approve).unwrap_or_default();
        assert!(why.starts_with("it is held by ann"), "{why}");
        let trusts_of_a_changed_key = |at: usize| {
            let shown = format!("SHA256:{}", "a".repeat(43));
            let asked = [shown.clone(), format!("SHA256:{}", "b".repeat(43))][at].clone();
            let failed = Phase::Failed {
                from: Box::new(Phase::Probing),
                failure: Failure {
                    shown_key: Some(shown),
                    ..Failure::lasting("HostKeyChanged", "another key")
                },
            };
            refused(failed, Signal::TrustHostKey { fingerprint: asked })
        };
        let trusts = |pin: &str| {
            let mut state = Machine::default();
            state.host.pin = Some(pin.to_owned());
            let fingerprint = "SHA256:abc".to_owned();
            refused_of(state, Signal::TrustHostKey { fingerprint })
        };
        assert_eq!(
            trusts("SHA256:abc").as_deref(),
            Some("the host key SHA256:abc is already trusted")
        );
        assert_eq!(trusts("SHA256:def"), None);
        assert_eq!(trusts_of_a_changed_key(0), None, "the shown one");
        let other = trusts_of_a_changed_key(1).unwrap_or_default();
        assert!(other.starts_with("the host shows SHA256:aaa"), "{other}");
        let mut serving = Machine {
            phase: Phase::Serving,
            in_service: true,
            ..Machine::default()
        };
        let why = refused_of(serving.clone(), Signal::Resume).unwrap_or_default();
        assert!(why.contains("nothing to resume"), "{why}");
        serving.host.pin = Some("SHA256:abc".into());
        let fingerprint = "SHA256:def".to_owned();
        let why = refused_of(serving, Signal::TrustHostKey { fingerprint }).unwrap_or_default();
        assert!(why.contains("the key that dormer knows"), "{why}");
    }
}
