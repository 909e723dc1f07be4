//! Retry policy of each kind of task, and limits that are not a phase's timer (`table.rs` has those). All times in
//! milliseconds.

use dormer_engine_core::RetryPolicy;
use dormer_proto::{id::hash64, machine::Task};

pub(super) const SECOND: u64 = 1_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;

/// A cordon that is seen so soon after a person's request counts as known to its author: facts come later than requests.
pub(super) const SAME_MOMENT_MS: u64 = MINUTE;

/// Probing a host. A booting host refuses connections for minutes (scenarios 1 to 3): short probes, for two hours. A
/// host that is up waits for the next probe, so the pause between two is short.
const PROBE: RetryPolicy = RetryPolicy {
    attempts_max: 10_000,
    first_ms: SECOND,
    delay_ms_max: 4 * SECOND,
    attempt_ms_max: MINUTE,
    queue_ms_max: 5 * MINUTE,
    overall_ms_max: 2 * HOUR,
};

/// Changing a host: minutes of work. A host that loses its power, or reboots by itself, is back within a quarter of an
/// hour, and twenty attempts take longer than that.
const CONVERGE: RetryPolicy = RetryPolicy {
    attempts_max: 20,
    first_ms: SECOND,
    delay_ms_max: MINUTE,
    attempt_ms_max: 30 * MINUTE,
    queue_ms_max: HOUR,
    overall_ms_max: 3 * HOUR,
};

/// Comparing a host: one command.
const PLAN: RetryPolicy = RetryPolicy {
    attempts_max: 20,
    first_ms: SECOND,
    delay_ms_max: 30 * SECOND,
    attempt_ms_max: 5 * MINUTE,
    queue_ms_max: 10 * MINUTE,
    overall_ms_max: 15 * MINUTE,
};

/// Calling the Kubernetes API: an absent API server comes back.
const API: RetryPolicy = RetryPolicy {
    attempts_max: 1_000,
    first_ms: 250,
    delay_ms_max: 15 * SECOND,
    attempt_ms_max: MINUTE,
    queue_ms_max: 5 * MINUTE,
    overall_ms_max: 2 * HOUR,
};

/// Closing a fence: it fails only after 30 days, because it frees the lease.
const CLOSE: RetryPolicy = RetryPolicy {
    attempts_max: 1_000_000,
    first_ms: 250,
    delay_ms_max: 30 * SECOND,
    attempt_ms_max: MINUTE,
    queue_ms_max: 5 * MINUTE,
    overall_ms_max: 30 * 24 * HOUR,
};

/// Approving a certificate: the kubelet repeats its request.
const CSR: RetryPolicy = RetryPolicy {
    attempts_max: 20,
    overall_ms_max: 15 * MINUTE,
    ..API
};

/// Tearing down a host that leaves: an unreachable one is given up within a quarter of an hour, and forgotten by force.
pub const REMOVAL: RetryPolicy = RetryPolicy {
    overall_ms_max: 15 * MINUTE,
    ..CONVERGE
};

/// Pause between two passes over the pods of a host that leaves, and while another obstacle delays its removal, in
/// milliseconds.
pub const REMOVAL_AGAIN: u64 = 5 * SECOND;

/// Most failures of one step of a removal, without a success in between, before it waits for a person.
pub const REMOVAL_FAILURES_MAX: u8 = 5;

/// Wait of a failed removal before it requests the lease again, in milliseconds: half an hour, doubled up to four
/// hours.
#[must_use]
pub fn removal_rests(rounds: u8) -> u64 {
    (30 * MINUTE) << rounds.saturating_sub(1).min(3)
}

/// Wait after so many failures of a removal's step: 1, 2, 4 and 8 minutes.
#[must_use]
pub fn removal_again(failed: u8) -> u64 {
    MINUTE << failed.saturating_sub(1).min(6)
}

/// Between two passes of evictions after so many in a row that moved nothing. A store keeps 256 records of a run, two
/// for each pass, so a drain that a budget blocks would push its own beginning out within a quarter of an hour.
#[must_use]
pub const fn next_pass(idle_passes: u8) -> u64 {
    match idle_passes {
        // The first minute.
        0..12 => 5 * SECOND,
        // The first ten.
        12..48 => 15 * SECOND,
        _ => MINUTE,
    }
}

/// Between two checks of a Node that is Ready and does not serve yet.
pub const NODE_CHECK_AGAIN: u64 = 15 * SECOND;

/// From the first checks of a Node to the last that may fail: the images of DaemonSets are large.
pub const NODE_CHECKS_MAX: u64 = dormer_proto::checks::NODE_CHECKS_MAX_MS;

/// How long a removal waits for a Node that the API server does not show as this host's, in milliseconds.
pub const LINK_MAX: u64 = 5 * MINUTE;

#[must_use]
pub fn of(task: &Task) -> RetryPolicy {
    match task {
        Task::Probe { .. } => PROBE,
        Task::Converge { .. } | Task::TearDown { .. } => CONVERGE,
        Task::Plan { .. } | Task::Reboot { .. } => PLAN,
        Task::ApproveCsr { .. } => CSR,
        Task::CloseFence { .. } => CLOSE,
        // The run repeats the task after ten minutes.
        Task::FindNode { .. } => CSR,
        Task::MarkNode { .. }
        | Task::OpenFence { .. }
        | Task::Evict { .. }
        | Task::DeleteMachine { .. }
        | Task::ForgetHost { .. }
        | Task::SetPayload { .. } => API,
    }
}

/// Probing a host that has a Node already: it should answer.
pub const ADOPTION_PROBE: RetryPolicy = RetryPolicy {
    attempts_max: 20,
    overall_ms_max: 5 * MINUTE,
    ..PROBE
};

/// Codes of a host that does not answer over SSH. All other failures come from a host that answers, or from dormer.
const UNANSWERED: [&str; 5] = [
    "ConnectRefused",
    "ConnectTimeout",
    "ConnectionLost",
    "HandshakeFailed",
    "NoAnswer",
];

/// Whether this failure code means that the host did not answer.
#[must_use]
pub fn is_unanswered(code: &str) -> bool {
    UNANSWERED.contains(&code)
}

/// Codes of causes that all hosts share (profile, payload, rights, dormer's key).
const SHARED: [&str; 13] = [
    "BootstrapUnusable",
    "DocumentUnusable",
    "Forbidden",
    "Invalid",
    "KeyEncrypted",
    "KeyTooWeak",
    "KeyUnreadable",
    "PayloadDamaged",
    "PayloadUnreadable",
    "ProfileUnusable",
    "SshAgentUnusable",
    "Unauthorized",
    "VersionNotHere",
];

/// Whether all hosts share the cause of this code.
#[must_use]
pub fn is_shared(code: &str) -> bool {
    SHARED.contains(&code)
}

/// Codes of a login that dormer's own key or pin prevents. The host is as it was.
const NOT_LET_IN: [&str; 5] = [
    "AuthRejected",
    "HostKeyChanged",
    "KeyEncrypted",
    "KeyTooWeak",
    "KeyUnreadable",
];

/// Whether this failure code comes from the way to a host: the network, the login, or dormer itself. It says nothing
/// about the host.
pub(super) fn is_outside_host(code: &str) -> bool {
    is_unanswered(code) || NOT_LET_IN.contains(&code) || is_shared(code)
}

/// How long a refused key may mean that user data has not run yet (scenario 3).
pub const KEY_MAX: u64 = 10 * MINUTE;
/// Limit, in milliseconds after its host was configured, for a kubelet's first certificate request: OpenShift's own
/// approver allows as long after a Machine's creation (docs/field-notes.md, Certificate requests of kubelets).
pub const FIRST_CERTIFICATE_MAX: u64 = 2 * HOUR;
/// Wait after a failed comparison of a host.
pub const CHECK_AGAIN: u64 = 10 * MINUTE;
/// Code of a host whose Node would have another name than its certificates (`workers/src/kubernetes/cluster.rs`).
pub(super) const NAME_CHANGED: &str = "NameChanged";
/// Code of a host whose clock is off.
pub(super) const CLOCK_SKEW: &str = "ClockSkew";
/// A host whose clock is further off than this cannot use its certificates (scenario 38).
pub const CLOCK_SKEW_MAX: u64 = 5 * MINUTE;

/// Interval of drift checks: six hours, less up to two by the run's id, so that a fleet does not check all at once.
#[must_use]
pub fn drift_ms(run: &str) -> u64 {
    6 * HOUR - hash64(run.as_bytes()) % (2 * HOUR)
}
