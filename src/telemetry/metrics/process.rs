//! Counters of this process's own work as engine and worker. Across processes take the sum.

use super::registry::{
    LabelValue, LabelledCounter, LabelledGauge, LabelledHistogram, MetricsRegistry,
};
use dormer_engine::observer::Appended;
use dormer_proto::{code, lock::Locked as _};
use dormer_workers::observer::{Operation, OperationEnd};
use prometheus_client::registry::Unit;
use std::{collections::BTreeSet, sync::Mutex, time::Duration};

/// Most distinct failure codes. Further ones count as `other`.
const CODES_MAX: usize = 64;

/// Buckets in seconds for states and episodes: up to a week.
const LONG: &[f64] = &[
    1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0,
];
/// Buckets in seconds for tasks and attempts: from an API call to an upload over a slow line.
const WORK: &[f64] = &[
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 180.0, 600.0, 1_800.0, 3_600.0,
];
/// Buckets in seconds for the store's answers.
const STORE: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

pub(crate) struct EngineMetrics {
    transitions: LabelledCounter<2>,
    state_duration: LabelledHistogram<2>,
    attempts: LabelledCounter<2>,
    failures: LabelledCounter<2>,
    task_duration: LabelledHistogram<2>,
    episode_duration: LabelledHistogram<2>,
    lease_hold: LabelledHistogram<0>,
    append_duration: LabelledHistogram<0>,
    appends: LabelledCounter<1>,
    quarantined: LabelledCounter<2>,
    dropped: LabelledCounter<1>,
    dead_lettered: LabelledCounter<0>,
    store_up: LabelledGauge<0>,
    codes: Codes,
}

impl EngineMetrics {
    pub(super) fn new(registry: &mut MetricsRegistry) -> Self {
        registry.role("engine");
        Self {
            transitions: registry.counter(
                "transitions",
                ["workflow", "state"],
                None,
                "Records appended to histories, by the state that results",
            ),
            state_duration: registry.histogram(
                "state_duration",
                ["workflow", "state"],
                LONG,
                "Time that runs spent in a state, counted when they leave it",
            ),
            attempts: registry.counter(
                "task_attempts",
                ["task", "outcome"],
                None,
                "Attempts that ended: finished, failed, or lost (no report in time)",
            ),
            failures: registry.counter(
                "task_failures",
                ["task", "code"],
                None,
                "Failed attempts by the code of the failure; beyond 64 codes: other",
            ),
            task_duration: registry.histogram(
                "task_duration",
                ["task", "outcome"],
                WORK,
                "Time from a task's first order to its end with all attempts and waits: finished, exhausted or cancelled",
            ),
            episode_duration: registry.histogram(
                "episode_duration",
                ["kind", "result"],
                LONG,
                "Length of episodes that ended: a bring-up, an upgrade, a removal",
            ),
            lease_hold: registry.histogram(
                "lease_hold_duration",
                [],
                LONG,
                "Time from the grant of a rollout's slot to its end",
            ),
            append_duration: registry.histogram(
                "store_append_duration",
                [],
                STORE,
                "Time that the store took for one round of appends",
            ),
            appends: registry.counter(
                "store_appends",
                ["result"],
                None,
                "Records handed to the store: stored, conflict (another engine was faster), unknown (no answer), refused",
            ),
            quarantined: registry.counter(
                "runs_quarantined",
                ["workflow", "code"],
                None,
                "Runs that this process quarantined: their next record cannot be decided or stored, \
                 or their last one cannot be read",
            ),
            dropped: registry.counter(
                "messages_dropped",
                ["reason"],
                None,
                "Messages that changed nothing: no_change (late, repeated, to an ended run), or unknown (of another incarnation or a lost tail of the store)",
            ),
            dead_lettered: registry.counter(
                "messages_dead_lettered",
                [],
                None,
                "Messages that this process moved to the dead letters",
            ),
            store_up: registry.gauge(
                "store_up",
                [],
                None,
                "Whether the store answered this process's last request: 1 or 0",
            ),
            codes: Codes::default(),
        }
    }

    pub(crate) fn transition(&self, workflow: &str, state: &'static str) {
        self.transitions
            .add([workflow.to_owned().into(), state.into()], 1);
    }

    pub(crate) fn left(&self, workflow: &str, state: &'static str, after: Duration) {
        self.state_duration
            .observe([workflow.to_owned().into(), state.into()], after);
    }

    pub(crate) fn attempt(&self, task: &'static str, outcome: &'static str) {
        self.attempts.add([task.into(), outcome.into()], 1);
    }

    pub(crate) fn failure(&self, task: &'static str, code: &str) {
        self.failures
            .add([task.into(), self.codes.bounded(&code::shown(code))], 1);
    }

    pub(crate) fn task(&self, task: &'static str, outcome: &'static str, took: Duration) {
        self.task_duration
            .observe([task.into(), outcome.into()], took);
    }

    pub(crate) fn episode(&self, kind: &str, result: &str, took: Duration) {
        let kind = self.codes.bounded(kind);
        let result = self.codes.bounded(result);
        self.episode_duration.observe([kind, result], took);
    }

    pub(crate) fn lease_ended(&self, after: Duration) {
        self.lease_hold.observe([], after);
    }

    pub(crate) fn appended(&self, took: Duration, what: Appended) {
        self.append_duration.observe([], took);
        let results = [
            ("stored", what.stored),
            ("conflict", what.conflicts),
            ("unknown", what.unknown),
            ("refused", what.refused),
        ];
        for (result, count) in results.into_iter().filter(|(_, count)| *count > 0) {
            self.appends.add([result.into()], count);
        }
    }

    pub(crate) fn quarantined(&self, workflow: &str, code: &str) {
        let code = self.codes.bounded(code);
        self.quarantined.add([workflow.to_owned().into(), code], 1);
    }

    pub(crate) fn dropped(&self, messages: u64, unknown: u64) {
        self.dropped
            .add(["no_change".into()], messages.saturating_sub(unknown));
        self.dropped.add(["unknown".into()], unknown);
    }

    pub(crate) fn dead_lettered(&self) {
        self.dead_lettered.add([], 1);
    }

    pub(crate) fn store_answered(&self, answered: bool) {
        self.store_up.set([], f64::from(u8::from(answered)));
    }
}

pub(crate) struct WorkerMetrics {
    running: LabelledGauge<0>,
    wait: LabelledHistogram<1>,
    attempt_duration: LabelledHistogram<2>,
    connections: LabelledGauge<0>,
    operations: [(&'static str, LabelledCounter<1>, LabelledHistogram<0>); 3],
    uploaded: LabelledCounter<0>,
}

impl WorkerMetrics {
    pub(super) fn new(registry: &mut MetricsRegistry) -> Self {
        registry.role("worker");
        Self {
            running: registry.gauge(
                "worker_attempts_running",
                [],
                None,
                "Attempts that this worker executes now",
            ),
            wait: registry.histogram(
                "task_queue_wait",
                ["task"],
                WORK,
                "Time from an order to its execution: the clocks of two processes are compared",
            ),
            attempt_duration: registry.histogram(
                "attempt_duration",
                ["task", "outcome"],
                WORK,
                "Time that a worker spent on an attempt: finished, failed, or cut_off (given up \
                 to another worker)",
            ),
            connections: registry.gauge(
                "ssh_connections",
                [],
                None,
                "SSH connections that this worker holds open",
            ),
            operations: [
                (
                    "connect",
                    registry.counter(
                        "ssh_logins",
                        ["result"],
                        None,
                        "SSH logins: done, failed, cut_off",
                    ),
                    registry.histogram(
                        "ssh_login_duration",
                        [],
                        WORK,
                        "Time from dialling to the login",
                    ),
                ),
                (
                    "command",
                    registry.counter(
                        "remote_commands",
                        ["result"],
                        None,
                        "Commands on hosts: done, failed (the connection broke), cut_off (a limit)",
                    ),
                    registry.histogram(
                        "remote_command_duration",
                        [],
                        WORK,
                        "Time that remote commands took",
                    ),
                ),
                (
                    "upload",
                    registry.counter(
                        "uploads",
                        ["result"],
                        None,
                        "Files sent to hosts: done, failed, cut_off",
                    ),
                    registry.histogram("upload_duration", [], WORK, "Time that uploads took"),
                ),
            ],
            uploaded: registry.counter(
                "uploaded",
                [],
                Some(Unit::Bytes),
                "Bytes of completely sent files",
            ),
        }
    }

    pub(crate) fn began(&self, task: &'static str, waited: Duration) {
        self.running.add([], 1.0);
        self.wait.observe([task.into()], waited);
    }

    pub(crate) fn ended(&self, task: &'static str, outcome: &'static str, took: Duration) {
        self.running.add([], -1.0);
        self.attempt_duration
            .observe([task.into(), outcome.into()], took);
    }

    pub(crate) fn operation_ended(&self, operation: Operation, took: Duration, end: OperationEnd) {
        let Some((_, count, histogram)) = self
            .operations
            .iter()
            .find(|(name, ..)| *name == operation.name())
        else {
            return;
        };
        count.add([end.name().into()], 1);
        histogram.observe([], took);
        if let (Operation::Upload { bytes }, OperationEnd::Done) = (operation, end) {
            self.uploaded.add([], bytes);
        }
    }

    pub(crate) fn connections(&self, by: i64) {
        self.connections.add([], by as f64);
    }
}

/// Metrics of exported spans.
pub(crate) struct SpanMetrics(LabelledCounter<1>);

impl SpanMetrics {
    pub(super) fn new(registry: &mut MetricsRegistry) -> Self {
        let help = "Spans for the collector: sent, or dropped (it did not answer in time)";
        Self(registry.counter("spans", ["result"], None, help))
    }

    pub(crate) fn sent(&self, spans: u64) {
        self.0.add(["sent".into()], spans);
    }

    pub(crate) fn dropped(&self, spans: u64) {
        self.0.add(["dropped".into()], spans);
    }
}

/// Label values from records, limited in number for the metrics store.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    /// Lock held for one set operation, never across an await.
    known: Mutex<BTreeSet<String>>,
}

impl Codes {
    /// Code, or `other` once there are too many.
    pub(crate) fn bounded(&self, code: &str) -> LabelValue {
        let mut known = self.known.locked();
        if !known.contains(code) {
            if known.len() >= CODES_MAX {
                return "other".into();
            }
            known.insert(code.to_owned());
        }
        code.to_owned().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_codes_become_one() {
        let codes = Codes::default();
        for n in 0..CODES_MAX {
            assert_eq!(codes.bounded(&format!("Code{n}")), format!("Code{n}"));
        }
        assert_eq!(codes.bounded("OneMore"), "other");
        assert_eq!(codes.bounded("Code0"), "Code0");
    }
}
