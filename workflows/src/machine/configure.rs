//! Reachable and Configured: from a host that answers to a Node that is Ready and has our version. A machine that is
//! upgraded under the lease passes these phases again.

use super::{
    change::{Change, ChangeStrategy},
    clock::clock_was_off,
    draft::Draft,
    input::{PhaseObservation, PhaseRequest},
    phase::{Phase, Timer},
    policy,
    state::Reboots,
    table::TaskKind,
};
use dormer_proto::{
    boot::same_boot,
    checks::NodeCheck,
    machine::{OWN_REQUEST, Outcome, Section},
    message::Failure,
    pool::Desired,
};

/// Most reboots of one configuration.
const REBOOTS_MAX: u8 = 3;

/// Begin of a host's reason for a reboot that gives it another name.
const HOSTNAME: &str = "hostname";

/// Phase of this stage, with its data.
pub(super) enum ConfigurePhase {
    PoolWait,
    ConvergingHost { rebooted: bool },
    Rebooting { boot_id: String, asked: bool },
    NodeWait,
    ConvergingNode,
    ReadyWait,
    Soaking,
    Marking,
}

impl ConfigurePhase {
    pub(super) fn enter(self, draft: &mut Draft<'_>) {
        match self {
            Self::PoolWait => {}
            Self::ConvergingHost { rebooted } => {
                if !rebooted {
                    draft.state.host.reboots = Reboots::default();
                }
                converge_host(draft);
            }
            Self::Rebooting { boot_id, asked } => {
                draft.wait(Timer::Deadline);
                match asked {
                    true => {
                        draft.wait(Timer::Again);
                    }
                    false => draft.reboot(boot_id),
                }
            }
            Self::NodeWait => match draft.state.node {
                Some(_) => draft.enter(Phase::ConvergingNode),
                None => {
                    draft.wait(Timer::Deadline);
                    // The kubelet makes no other request while its first one is pending.
                    draft.recheck_csrs();
                }
            },
            Self::ConvergingNode => converge_node(draft),
            Self::ReadyWait => match draft.state.node.as_ref().is_some_and(|node| node.ready) {
                true => draft.enter(Phase::Soaking),
                false => {
                    draft.wait(Timer::Deadline);
                }
            },
            Self::Soaking => {
                if !draft.wait(Timer::Soak) {
                    draft.enter(Phase::Marking);
                }
            }
            Self::Marking => {
                draft.state.checks.clear();
                draft.state.checked_since = None;
                draft.mark();
            }
        }
    }

    pub(super) fn answered(self, draft: &mut Draft<'_>, outcome: Outcome) {
        match (self, outcome) {
            (
                Self::ConvergingHost { rebooted },
                Outcome::Converged {
                    reboot: true,
                    boot_id,
                    owed,
                    ..
                },
            ) => reboot_owed(draft, rebooted, boot_id, owed),
            (Self::ConvergingHost { .. }, Outcome::Converged { .. }) => host_converged(draft),
            (Self::Rebooting { boot_id, .. }, Outcome::RebootAsked) => {
                draft.enter(Phase::Rebooting {
                    boot_id,
                    asked: true,
                });
            }
            (Self::Rebooting { boot_id, .. }, Outcome::Probed { facts, .. }) => {
                match same_boot(&facts.boot_id, &boot_id) {
                    true => {
                        draft.wait(Timer::Again);
                    }
                    false => draft.enter(Phase::ConvergingHost { rebooted: true }),
                }
            }
            (Self::ConvergingNode, Outcome::Converged { .. }) => draft.enter(Phase::ReadyWait),
            (Self::Marking, Outcome::NodeMarked) => marked(draft),
            (Self::Marking, Outcome::NodeChecked { checks }) => node_checked(draft, checks),
            // Answer to a task of an earlier phase, or in a phase without tasks.
            (
                Self::ConvergingHost { .. }
                | Self::Rebooting { .. }
                | Self::ConvergingNode
                | Self::Marking
                | Self::PoolWait
                | Self::NodeWait
                | Self::ReadyWait
                | Self::Soaking,
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

    pub(super) fn gave_up(self, draft: &mut Draft<'_>, task: TaskKind, failure: Failure) {
        match self {
            // A booting host does not answer; the deadline limits that.
            Self::Rebooting { .. } if task == TaskKind::Probe => {
                draft.wait(Timer::Again);
            }
            Self::ConvergingHost { .. } => {
                // Some attempt may have started its kubelet.
                draft.state.host.stopped = false;
                draft.fail(failure);
            }
            Self::PoolWait
            | Self::Rebooting { .. }
            | Self::NodeWait
            | Self::ConvergingNode
            | Self::ReadyWait
            | Self::Soaking
            | Self::Marking => draft.fail(failure),
        }
    }

    pub(super) fn fired(self, draft: &mut Draft<'_>, timer: Timer) {
        match (self, timer) {
            (Self::Rebooting { .. }, Timer::Again) => draft.probe(),
            (Self::Rebooting { boot_id, .. }, Timer::Deadline) => {
                let message =
                    format!("the host has not rebooted: it still runs the boot {boot_id}");
                draft.lasting("RebootOverdue", message);
            }
            (Self::NodeWait, Timer::Deadline) => {
                let message = no_node(draft);
                draft.lasting("NodeOverdue", message);
            }
            (Self::ReadyWait, Timer::Deadline) => {
                let message = "the Node did not become Ready within 20 minutes: see its conditions";
                draft.lasting("NotReadyOverdue", message);
            }
            (Self::Soaking, Timer::Soak) => draft.enter(Phase::Marking),
            (Self::Marking, Timer::Again) if draft.state.checked_since.is_some() => draft.mark(),
            // A timer of a phase that was left.
            (Self::Rebooting { .. }, Timer::Soak | Timer::Drift | Timer::Drain) => {}
            (
                Self::NodeWait | Self::ReadyWait,
                Timer::Again | Timer::Soak | Timer::Drift | Timer::Drain,
            ) => {}
            (Self::Soaking, Timer::Again | Timer::Deadline | Timer::Drift | Timer::Drain) => {}
            (
                Self::Marking,
                Timer::Again | Timer::Deadline | Timer::Soak | Timer::Drift | Timer::Drain,
            ) => {}
            // They wait for no timer.
            (
                Self::PoolWait | Self::ConvergingHost { .. } | Self::ConvergingNode,
                Timer::Again | Timer::Deadline | Timer::Soak | Timer::Drift | Timer::Drain,
            ) => {}
        }
    }

    pub(super) fn observed(self, draft: &mut Draft<'_>, observation: PhaseObservation) {
        match observation {
            PhaseObservation::Address => self.address_changed(draft),
            // This matters only to a Machine without an address, or without an owner that would replace it.
            PhaseObservation::Machine { .. } => {}
            PhaseObservation::Node(node) => self.node_observed(draft, node.ready),
            PhaseObservation::NodeGone => self.node_gone(draft),
            PhaseObservation::Pool { retarget, .. } => self.pool_observed(draft, retarget),
            // The configuration of the host is incomplete, so it continues to the end.
            PhaseObservation::Ignored => {}
        }
    }

    fn address_changed(self, draft: &mut Draft<'_>) {
        match self {
            // Open tasks use the old address.
            Self::ConvergingHost { .. } | Self::Rebooting { .. } | Self::ConvergingNode => {
                draft.begin_again();
            }
            // Its services were set up for the old one.
            Self::NodeWait | Self::ReadyWait | Self::Soaking | Self::Marking => {
                draft.state.moved = draft.state.protected();
                draft.cancel_tasks();
                draft.enter(Phase::ConvergingHost { rebooted: false });
            }
            // No task uses the host yet.
            Self::PoolWait => {}
        }
    }

    fn node_observed(self, draft: &mut Draft<'_>, ready: bool) {
        match self {
            Self::NodeWait => draft.enter(Phase::ConvergingNode),
            Self::ReadyWait if ready => draft.enter(Phase::Soaking),
            Self::Soaking if !ready => draft.enter(Phase::ReadyWait),
            // `ReadyWait` waits for a Node that is Ready, and `Soaking` for one that stays Ready: nothing has changed.
            Self::ReadyWait | Self::Soaking => {}
            // The host comes first, its Node afterwards.
            Self::PoolWait | Self::ConvergingHost { .. } | Self::Rebooting { .. } => {}
            // The readiness of the Node is checked after its section has converged.
            Self::ConvergingNode => {}
            // The Node is not returned to service, and does not count as joined, before it is Ready again. A node that
            // serves only had a change that does not disturb its pods.
            Self::Marking if !ready && !draft.state.protected() => {
                draft.cancel_tasks();
                draft.enter(Phase::ReadyWait);
            }
            // It was Ready for long enough.
            Self::Marking => {}
        }
    }

    fn node_gone(self, draft: &mut Draft<'_>) {
        match self {
            Self::ConvergingNode | Self::ReadyWait | Self::Soaking | Self::Marking => {
                draft.cancel_tasks();
                draft.enter(Phase::NodeWait);
            }
            // This was an old Node. The new one registers after the host is converged.
            Self::PoolWait
            | Self::ConvergingHost { .. }
            | Self::Rebooting { .. }
            | Self::NodeWait => {}
        }
    }

    fn pool_observed(self, draft: &mut Draft<'_>, retarget: bool) {
        match self {
            Self::PoolWait => draft.enter(Phase::ConvergingHost { rebooted: false }),
            // Pods may run there. If the checks pass, this version is finished, and the newest one is an ordinary upgrade. If they
            // fail, the lease for the newest one is requested now.
            Self::Marking if retarget && draft.may_queue_for_version() && fails_checks(draft) => {
                draft.cancel_tasks();
                draft.queue_for_version();
            }
            Self::Marking
                if retarget
                    && fails_checks(draft)
                    && draft.pods_may_run()
                    && draft.state.version_refusal().is_none()
                    && !finishes_first(draft) =>
            {
                draft.cancel_tasks();
                draft.enter(Phase::ConvergingHost { rebooted: false });
            }
            // If the step fails, it is left for that version (`ended.rs`).
            Self::ConvergingNode | Self::ReadyWait | Self::Soaking | Self::Marking
                if retarget && (draft.state.pods_before_service() || draft.pods_may_run()) => {}
            // A machine that is coming up gets the newest known version, so that it is not drained twice.
            Self::ConvergingHost { .. }
            | Self::NodeWait
            | Self::ConvergingNode
            | Self::ReadyWait
            | Self::Soaking
            | Self::Marking
                if retarget && !finishes_first(draft) =>
            {
                draft.cancel_tasks();
                draft.enter(Phase::ConvergingHost { rebooted: false });
            }
            // It comes up with the version in progress.
            Self::ConvergingHost { .. }
            | Self::NodeWait
            | Self::ConvergingNode
            | Self::ReadyWait
            | Self::Soaking
            | Self::Marking => {}
            // A boot is not interrupted: the host is converged to the newest version after it.
            Self::Rebooting { .. } => {}
        }
    }

    pub(super) fn asked(self, draft: &mut Draft<'_>, request: PhaseRequest) {
        match self {
            Self::PoolWait
            | Self::ConvergingHost { .. }
            | Self::Rebooting { .. }
            | Self::NodeWait
            | Self::ConvergingNode
            | Self::ReadyWait
            | Self::Soaking
            | Self::Marking => match request {
                PhaseRequest::Resume { paused: true } => draft.begin_again(),
                PhaseRequest::Granted { .. } => draft.give_back(),
                // A hold delays nothing in these phases.
                PhaseRequest::Resume { paused: false } => {}
                // Recorded, and carried out once the node serves.
                PhaseRequest::Hold | PhaseRequest::Leased | PhaseRequest::Approve => {}
                // The host is being changed: no complete earlier configuration is left.
                PhaseRequest::Abort { .. } => {}
            },
        }
    }
}

fn converge_host(draft: &mut Draft<'_>) {
    match draft.state.desired().cloned() {
        None => draft.enter(Phase::PoolWait),
        // The granted change is finished. A change that came meanwhile may not follow it, or needs another method.
        Some(_)
            if draft.state.target != Desired::default()
                && (draft.state.version_refusal().is_some() || finishes_first(draft)) =>
        {
            draft.converge(Section::Host);
        }
        Some(_) if draft.state.version_refusal().is_some() => draft.enter(Phase::PoolWait),
        Some(desired) => {
            draft.state.target = desired;
            draft.converge(Section::Host);
        }
    }
}

/// Whether the version in progress comes before anything newer: it was planned as a restart without a drain, or a
/// person approved it.
pub(super) fn finishes_first(draft: &Draft<'_>) -> bool {
    let restart = draft.state.under_lease == Some(ChangeStrategy::Restart);
    let unapproved = !draft.state.first_bring_up() && draft.state.needs_approval();
    restart || unapproved
}

fn host_converged(draft: &mut Draft<'_>) {
    match draft.state.node {
        Some(_) => draft.enter(Phase::ConvergingNode),
        None => draft.enter(Phase::NodeWait),
    }
}

/// Reboots a host that still requires it. A requirement that a boot does not clear stays after the next one as well:
/// the same list again fails the step, and so does a host that reports a new reason after every boot.
fn reboot_owed(draft: &mut Draft<'_>, rebooted: bool, boot_id: String, owed: Vec<String>) {
    let before = &draft.state.host.reboots;
    // An older build has counted none.
    let count = before.count.max(u8::from(rebooted));
    let what = match owed.is_empty() {
        true => "it does not say for what".to_owned(),
        false => owed.join(", "),
    };
    if rebooted && before.owed == owed {
        let message = format!("the host was rebooted, and still requires a reboot: {what}");
        return draft.lasting("RebootLoop", message);
    }
    if count >= REBOOTS_MAX {
        let message = format!(
            "the host was rebooted {count} times, and requires another reboot: {what}; the limit of one configuration is \
             {REBOOTS_MAX}"
        );
        return draft.lasting("RebootLoop", message);
    }
    if draft.pods_may_run() {
        return drain_first(draft, &owed, &what);
    }
    draft.state.host.reboots = Reboots {
        count: count + 1,
        owed,
    };
    draft.enter(Phase::Rebooting {
        boot_id,
        asked: false,
    });
}

/// Drains a Node whose change was planned without a reboot, before the reboot that its host needs. A pending rename is
/// recorded before the reboot: afterwards the Node would have another name.
fn drain_first(draft: &mut Draft<'_>, owed: &[String], what: &str) {
    draft.state.host.renamed |= owed.iter().any(|it| it.starts_with(HOSTNAME));
    let how = draft.drain_method();
    draft.state.under_lease = Some(how);
    draft.state.host.half_changed = true;
    draft.state.host.half_changed_under = draft.state.lease.token();
    draft.state.note = Some(format!(
        "its host needs a reboot, so its Node is drained first: {what}"
    ));
    draft.enter(Phase::Opening(Change {
        how,
        differs: vec![format!("a reboot of its host: {what}")],
        repair: false,
        anew: false,
        asked: false,
    }));
}

/// Converges the Node's section. The Node must have the expected name: certificates were approved for that one
/// (scenario 39).
fn converge_node(draft: &mut Draft<'_>) {
    let found = draft.state.node.as_ref().map(|node| node.name.clone());
    match (found, draft.state.host.node_name.clone()) {
        (None, _) => draft.enter(Phase::NodeWait),
        (Some(found), Some(expected)) if found != expected => {
            let message = format!("the Node is named {found}; {expected} was expected");
            draft.lasting("NameMismatch", message);
        }
        (Some(_), Some(_) | None) => draft.converge(Section::Node),
    }
}

fn no_node(draft: &Draft<'_>) -> String {
    let name = draft.state.host.node_name.as_deref().unwrap_or("?");
    let refused = draft.state.refused_csr();
    let foreign = refused.and_then(|csr| csr.foreign.as_ref());
    let refusal = refused
        .and_then(|csr| csr.refused.as_ref())
        .map(|why| format!("; a certificate request was not approved: {why}"));
    let machine = draft.state.machine.as_ref();
    let mut conditions = machine
        .map_or(&[][..], |it| it.conditions.as_slice())
        .iter();
    let asks = conditions.rfind(|it| it.kind == OWN_REQUEST);
    let request = refusal.or_else(|| Some(format!("; {}", asks?.message)));
    let csr = request.unwrap_or_default();
    let clock_off = clock_was_off(draft).map(|it| format!("; {it}"));
    let clock = clock_off.unwrap_or_default();
    match foreign {
        Some(foreign) => format!("{}{clock}", foreign.name_taken()),
        None => format!("no Node {name} appeared{csr}{clock}"),
    }
}

/// Takes the results of the checks: the Node was marked if none failed. What failed is checked again, since
/// certificates, labels and images take their time. Then the first check that failed names the failure.
fn node_checked(draft: &mut Draft<'_>, checks: Vec<NodeCheck>) {
    let at = draft.now.at;
    let since = *draft.state.checked_since.get_or_insert(at);
    let failed: Vec<_> = checks.iter().filter(|check| check.failed()).collect();
    let sentence = |check: &&NodeCheck| format!("{}: {}", check.check, check.said);
    let why = failed.iter().map(sentence).collect::<Vec<_>>().join("; ");
    let code = failed.first().map(|check| check.code());
    draft.state.checks = checks;
    if draft.own_hold_is_over() {
        draft.end_own_hold();
    }
    match code {
        None => marked(draft),
        // The desired version has changed, or the host is not set up to the end.
        Some(_)
            if (draft.state.retargeted() || draft.state.host.half_changed)
                && draft.may_queue_for_version() =>
        {
            draft.queue_for_version()
        }
        Some(_)
            if draft.state.retargeted()
                && draft.pods_may_run()
                && draft.state.version_refusal().is_none()
                && !finishes_first(draft) =>
        {
            draft.enter(Phase::ConvergingHost { rebooted: false });
        }
        Some(code) if at.since_ms(since) >= policy::NODE_CHECKS_MAX => {
            draft.lasting(code, format!("the Node is Ready but does not serve: {why}"));
        }
        Some(_) => {
            draft.state.note = Some(format!("its Node is Ready but does not serve yet: {why}"));
            draft.wait_ms(Timer::Again, policy::NODE_CHECK_AGAIN);
        }
    }
}

/// Whether a check of its Node has failed, and is made again.
fn fails_checks(draft: &Draft<'_>) -> bool {
    draft.state.checks.iter().any(NodeCheck::failed)
}

fn marked(draft: &mut Draft<'_>) {
    let leased = draft.state.lease.token().is_some();
    // A change that was undone before it ever served is compared once it serves.
    draft.state.host.half_changed &= draft.state.first_bring_up() && !leased;
    draft.state.version = Some(draft.state.target.version.clone());
    draft.state.note = None;
    draft.state.moved = false;
    draft.state.clear_approval();
    if leased {
        draft.enter(Phase::Closing);
    } else {
        draft.state.in_service = true;
        draft.end_episode("joined");
        draft.enter(Phase::Serving);
    }
}
