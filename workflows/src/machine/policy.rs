//! How often and how long each kind of step is tried, and how long each phase may wait. All times in milliseconds.

use dormer_engine_core::RetryPolicy;
use dormer_proto::{id::hash64, machine::Task};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// A host that boots refuses connections for minutes (scenarios 1 to 3 of `tests/SCENARIOS.md`): short looks, for two
/// hours. What lies between two looks is time that a host which is up waits for us.
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

/// Between two passes of evictions.
pub const EVICT_AGAIN: u64 = 5 * SECOND;
/// Before the first look at a host that was asked to reboot; and between two looks.
pub const REBOOT_CHECK: u64 = 10 * SECOND;
/// A reboot that applies updates takes a quarter of an hour (scenario 25).
pub const REBOOT_MAX: u64 = 30 * MINUTE;
/// Between two log-ins that the host refuses: MaxAuthTries and lock-outs are near (scenario 4).
pub const KEY_AGAIN: u64 = 20 * SECOND;
/// How long a refused key may be user data that has not run yet (scenario 3).
pub const KEY_MAX: u64 = 10 * MINUTE;
/// From the kubelet's start to its Node.
pub const NODE_MAX: u64 = 20 * MINUTE;
/// From the Node to Ready.
pub const READY_MAX: u64 = 20 * MINUTE;
/// From the Machine's deletion to its end: drain, instance, finalizers.
pub const VANISH_MAX: u64 = 2 * HOUR;
/// How long a Node that vanished from under a serving machine may stay away before the machine is configured anew.
pub const NODE_AWAY_MAX: u64 = 10 * MINUTE;
/// How long a closed run keeps waiting for the word that its replacement serves.
pub const REPLACEMENT_MAX: u64 = 30 * 24 * HOUR;
/// After a host could not be compared: the next try.
pub const CHECK_AGAIN: u64 = 10 * MINUTE;
/// A host whose clock is further off than this cannot use its certificates (scenario 38).
pub const CLOCK_SKEW_MAX: u64 = 5 * MINUTE;

/// When to look for drift: every six hours, less up to two by the run's id, so that a fleet does not look at once.
#[must_use]
pub fn drift_ms(run: &str) -> u64 {
    6 * HOUR - hash64(run.as_bytes()) % (2 * HOUR)
}
