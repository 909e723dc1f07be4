//! How often and how long each kind of task is tried, and the limits that are no phase's timer (those stand in
//! `table.rs`). All times in milliseconds.

use dormer_engine_core::RetryPolicy;
use dormer_proto::{id::hash64, machine::Task};

pub(super) const SECOND: u64 = 1_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;

/// A host that boots refuses connections for minutes (scenarios 1 to 3): short looks, for two hours. What lies between
/// two looks is time that a host which is up waits for us.
const PROBE: RetryPolicy = RetryPolicy {
    attempts_max: 10_000,
    first_ms: SECOND,
    delay_ms_max: 4 * SECOND,
    attempt_ms_max: MINUTE,
    queue_ms_max: 5 * MINUTE,
    overall_ms_max: 2 * HOUR,
};

/// Changing a host: minutes of work. A host that loses its power in the middle of it, or reboots by itself, is back
/// within a quarter of an hour: twenty tries outlast that.
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

/// A call at the Kubernetes API: an API server that is away comes back.
const API: RetryPolicy = RetryPolicy {
    attempts_max: 1_000,
    first_ms: 250,
    delay_ms_max: 15 * SECOND,
    attempt_ms_max: MINUTE,
    queue_ms_max: 5 * MINUTE,
    overall_ms_max: 2 * HOUR,
};

/// Closing a fence is never given up: the slot hangs on it.
const CLOSE: RetryPolicy = RetryPolicy {
    attempts_max: 1_000_000,
    first_ms: 250,
    delay_ms_max: 30 * SECOND,
    attempt_ms_max: MINUTE,
    queue_ms_max: 5 * MINUTE,
    overall_ms_max: 30 * 24 * HOUR,
};

/// Approving a certificate: a kubelet asks again by itself.
const CSR: RetryPolicy = RetryPolicy {
    attempts_max: 20,
    overall_ms_max: 15 * MINUTE,
    ..API
};

/// The policy of a task.
#[must_use]
pub fn of(task: &Task) -> RetryPolicy {
    match task {
        Task::Probe { .. } => PROBE,
        Task::Converge { .. } | Task::TearDown { .. } => CONVERGE,
        Task::Plan { .. } | Task::Reboot { .. } => PLAN,
        Task::ApproveCsr { .. } => CSR,
        Task::CloseFence { .. } => CLOSE,
        // It is asked again after ten minutes.
        Task::FindNode { .. } => CSR,
        Task::MarkNode { .. }
        | Task::OpenFence { .. }
        | Task::Evict { .. }
        | Task::DeleteMachine { .. }
        | Task::SetPayload { .. } => API,
    }
}

/// Looking at a host that has a Node already: it ought to answer.
pub const ADOPTION_PROBE: RetryPolicy = RetryPolicy {
    attempts_max: 20,
    overall_ms_max: 5 * MINUTE,
    ..PROBE
};

/// Codes of a host that does not answer over SSH. Any other failure comes of a host that answers, or of dormer itself.
const UNANSWERED: [&str; 5] = [
    "ConnectRefused",
    "ConnectTimeout",
    "ConnectionLost",
    "HandshakeFailed",
    "NoAnswer",
];

/// Whether a failure of this code says that the host did not answer.
#[must_use]
pub fn is_unanswered(code: &str) -> bool {
    UNANSWERED.contains(&code)
}

/// How long a refused key may be user data that has not run yet (scenario 3).
pub const KEY_MAX: u64 = 10 * MINUTE;
/// How long after its host was configured a kubelet may ask for its first certificate: as long as OpenShift's own approver
/// allows after a Machine's creation (docs/field-notes.md, Certificate requests of kubelets).
pub const FIRST_CERTIFICATE_MAX: u64 = 2 * HOUR;
/// After a host could not be compared: the next try.
pub const CHECK_AGAIN: u64 = 10 * MINUTE;
/// A host whose clock is further off than this cannot use its certificates (scenario 38).
pub const CLOCK_SKEW_MAX: u64 = 5 * MINUTE;

/// When to look for drift: every six hours, less up to two by the run's id, so that a fleet does not look at once.
#[must_use]
pub fn drift_ms(run: &str) -> u64 {
    6 * HOUR - hash64(run.as_bytes()) % (2 * HOUR)
}
