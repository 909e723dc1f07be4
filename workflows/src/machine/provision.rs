//! Provisioned: from a Machine without an address to a host that is probed, or adopted as it is.

use super::{
    clock::wrong_clock,
    draft::Draft,
    input::{PhaseObservation, PhaseRequest},
    phase::{Phase, Timer},
    policy,
    serve::{Comparison, compared, finish_earlier, remember_not_compared, serve_unchecked},
};
use dormer_proto::{
    id::Timestamp,
    machine::Outcome,
    message::{Failure, cause},
};

/// Phase of this stage, with its data.
pub(super) enum ProvisionPhase {
    Address,
    Probing,
    KeyWait { since: Timestamp },
    Adopting,
}

impl ProvisionPhase {
    pub(super) fn enter(self, draft: &mut Draft<'_>) {
        match self {
            Self::Address => {
                if draft.state.address().is_some() {
                    draft.enter(Phase::Probing);
                }
            }
            Self::Probing => probe_unless_given_up(draft),
            Self::KeyWait { .. } => {
                draft.wait(Timer::Again);
            }
            Self::Adopting => draft.plan(true),
        }
    }

    pub(super) fn answered(self, draft: &mut Draft<'_>, outcome: Outcome) {
        match (self, outcome) {
            (Self::Probing | Self::KeyWait { .. }, Outcome::Probed { .. }) => probed(draft),
            (
                Self::Adopting,
                Outcome::Planned {
                    class,
                    differs,
                    pods,
                    ..
                },
            ) => adopted(draft, Comparison { class, differs }, pods),
            // Answer to a task of an earlier phase; Address has no tasks.
            (
                Self::Address | Self::Probing | Self::KeyWait { .. } | Self::Adopting,
                Outcome::Probed { .. }
                | Outcome::Converged { .. }
                | Outcome::RebootAsked
                | Outcome::Planned { .. }
                | Outcome::TornDown
                | Outcome::CsrApproved { .. }
                | Outcome::CsrRefused { .. }
                | Outcome::NodeMarked
                | Outcome::NodeChecked { .. }
                | Outcome::FenceOpened { .. }
                | Outcome::FenceRefused { .. }
                | Outcome::FenceClosed
                | Outcome::Evicted { .. }
                | Outcome::PayloadSet
                | Outcome::NodeFound { .. }
                | Outcome::NodeAbsent
                | Outcome::HostForgotten
                | Outcome::FenceClosedMeanwhile
                | Outcome::MachineDeleted,
            ) => {}
        }
    }

    pub(super) fn gave_up(self, draft: &mut Draft<'_>, failure: Failure) {
        let has_node = draft.state.node_name().is_some();
        match self {
            Self::Probing if failure.code == "AuthRejected" => {
                draft.enter(Phase::KeyWait {
                    since: draft.now.at,
                });
            }
            Self::KeyWait { since } => key_refused(draft, since, failure),
            Self::Probing | Self::Adopting if has_node && !draft.state.is_coming_up() => {
                adopted_unseen(draft, failure);
            }
            Self::Probing | Self::Adopting | Self::Address => draft.fail(failure),
        }
    }

    pub(super) fn fired(self, draft: &mut Draft<'_>, timer: Timer) {
        match (self, timer) {
            (Self::KeyWait { .. }, Timer::Again) => draft.probe(),
            // A timer of a phase that was left.
            (Self::KeyWait { .. }, Timer::Deadline | Timer::Soak | Timer::Drift | Timer::Drain) => {
            }
            // They wait for no timer.
            (
                Self::Address | Self::Probing | Self::Adopting,
                Timer::Again | Timer::Deadline | Timer::Soak | Timer::Drift | Timer::Drain,
            ) => {}
        }
    }

    pub(super) fn observed(self, draft: &mut Draft<'_>, observation: PhaseObservation) {
        match (self, observation) {
            (Self::Address, PhaseObservation::Address) => draft.enter(Phase::Address),
            (Self::KeyWait { .. }, PhaseObservation::Address) => {
                draft.cancel_tasks();
                draft.enter(Phase::Probing);
            }
            // Open tasks use the old address.
            (Self::Probing | Self::Adopting, PhaseObservation::Address) => draft.begin_again(),
            (Self::Address, PhaseObservation::Machine { failed: true }) => {
                let error = draft.state.given_up().unwrap_or_default();
                draft.lasting("MachineFailed", error);
            }
            (Self::Probing | Self::KeyWait { .. }, PhaseObservation::Machine { failed: true }) => {
                draft.cancel_tasks();
                draft.enter(Phase::Probing);
            }
            // It has an address: only a login shows whether its host works.
            (
                Self::Address | Self::Probing | Self::KeyWait { .. } | Self::Adopting,
                PhaseObservation::Machine { .. },
            ) => {}
            (Self::Adopting, PhaseObservation::Pool { .. }) => draft.begin_again(),
            // The desired version matters only after the probe.
            (
                Self::Address | Self::Probing | Self::KeyWait { .. },
                PhaseObservation::Pool { .. },
            ) => {}
            // Its Node matters only after the probe or the comparison.
            (
                Self::Address | Self::Probing | Self::KeyWait { .. } | Self::Adopting,
                PhaseObservation::Node(_) | PhaseObservation::NodeGone,
            ) => {}
            // Nothing was begun under a lease.
            (
                Self::Address | Self::Probing | Self::KeyWait { .. } | Self::Adopting,
                PhaseObservation::Ignored,
            ) => {}
        }
    }

    pub(super) fn asked(self, draft: &mut Draft<'_>, request: PhaseRequest) {
        match self {
            Self::Address | Self::Probing | Self::KeyWait { .. } | Self::Adopting => {
                match request {
                    PhaseRequest::Resume { paused: true } => draft.begin_again(),
                    PhaseRequest::Granted { .. } => draft.give_back(),
                    // Nothing was held back.
                    PhaseRequest::Resume { paused: false } => {}
                    // Its Machine is deleted next, so no further attempt to reach the host is of use.
                    PhaseRequest::Leased if draft.state.replaces_before_it_serves() => {
                        draft.cancel_tasks();
                        draft.want_replacement();
                    }
                    // Recorded, and followed once it serves or its step fails.
                    PhaseRequest::Hold | PhaseRequest::Leased | PhaseRequest::Approve => {}
                    // There is no upgrade to give up.
                    PhaseRequest::Abort { .. } => {}
                }
            }
        }
    }
}

/// Probes the host. A machine that the Machine API gave up has no host any more; its Node is adopted without a probe.
fn probe_unless_given_up(draft: &mut Draft<'_>) {
    match draft.state.given_up() {
        None => draft.probe(),
        Some(error) => {
            ProvisionPhase::Probing.gave_up(draft, Failure::lasting("MachineFailed", error))
        }
    }
}

/// Continues after the probe, whose result is on record.
fn probed(draft: &mut Draft<'_>) {
    if let Some(failure) = wrong_clock(draft) {
        draft.state.phase = Phase::Probing;
        if draft.state.in_service {
            // Its certificates work, or its Node would not serve. dormer's own clock may be the one that is off.
            return adopted_unseen(draft, failure);
        }
        return draft.fail(failure);
    }
    let has_node = draft.state.node_name().is_some();
    draft.approve_csrs();
    match has_node {
        true => draft.enter(Phase::Adopting),
        false => draft.enter(Phase::ConvergingHost { rebooted: false }),
    }
}

fn key_refused(draft: &mut Draft<'_>, since: Timestamp, failure: Failure) {
    let patient = draft.now.at.since_ms(since) < policy::KEY_MAX;
    if patient && failure.code == "AuthRejected" {
        draft.state.note = Some(failure.message);
        draft.wait(Timer::Again);
    } else {
        draft.state.phase = Phase::Probing;
        draft.fail(failure);
    }
}

/// Continues after the comparison of a host that already had a Node.
fn adopted(draft: &mut Draft<'_>, found: Comparison, pods: u32) {
    let ready = draft.state.node.as_ref().is_none_or(|node| node.ready);
    let open = draft.state.stray_token().is_some();
    if !ready && pods == 0 && !open {
        // The node does not serve, so it is configured without the lease (docs/decisions/0002-adoption.md).
        draft.state.in_service = false;
        return draft.enter(Phase::ConvergingHost { rebooted: false });
    }
    if draft.state.is_coming_up() && !open {
        // Its Node came during a bring-up, whose checks it has not passed.
        return match found.class {
            Some(_) if draft.may_queue_for_version() => draft.queue_for_version(),
            differs => {
                draft.state.host.half_changed = differs.is_some();
                draft.enter(Phase::ReadyWait);
            }
        };
    }
    let facts = draft.state.host.facts.as_ref();
    let installed = facts.and_then(|facts| facts.installed.clone());
    let carried = draft
        .state
        .node
        .as_ref()
        .and_then(|node| node.version.clone());
    draft.state.version = carried.or(installed);
    draft.state.in_service = true;
    draft.end_episode("adopted");
    if open {
        return finish_earlier(draft, found.class);
    }
    compared(draft, found);
}

/// Marks a host with a Node that does not answer as Joined at an unknown version, with the reason.
fn adopted_unseen(draft: &mut Draft<'_>, failure: Failure) {
    draft.state.version = draft
        .state
        .node
        .as_ref()
        .and_then(|node| node.version.clone());
    let cause = cause(&failure.code, None, &failure.message);
    draft.state.note = Some(format!("{cause}; adopted without a login"));
    remember_not_compared(draft, failure);
    draft.end_episode("adopted unseen");
    draft.state.in_service = true;
    serve_unchecked(draft);
}
