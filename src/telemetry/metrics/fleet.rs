//! Gauges of the fleet, read from the store at each scrape. Every process that can read the store shows the same
//! values: across processes take the maximum, not the sum.

use super::{
    process::Codes,
    registry::{LabelValue, LabelledGauge, MetricsRegistry},
};
use dormer_engine_core::{OpenTask, Run, TaskPhase, Workflow};
use dormer_proto::{
    code,
    id::{Attempt, TaskId, Timestamp},
    lock::Locked as _,
};
use dormer_workflows::{
    Dormer, State,
    machine::{self, Halt, Phase},
    rollout,
};
use prometheus_client::registry::Unit;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

/// Predicate: whether a worker sends heartbeats for this attempt of the task.
pub type IsAlive<'a> = dyn Fn(&TaskId, Attempt) -> bool + Send + Sync + 'a;

/// Gauges of machines, tasks, rollouts and dead letters.
pub struct FleetMetrics {
    machines: LabelledGauge<2>,
    oldest: LabelledGauge<1>,
    tasks: LabelledGauge<2>,
    queue: LabelledGauge<1>,
    queue_oldest: LabelledGauge<1>,
    rollout: RolloutGauges,
    dead: LabelledGauge<0>,
    quarantined: LabelledGauge<1>,
    certificate_expiry: LabelledGauge<1>,
    certificates_late: LabelledGauge<1>,
    codes: Codes,
    /// Time at which this process first saw a machine wait for a lease. Lock held for one map operation, never across
    /// an await.
    waiting: Mutex<HashMap<(String, String), Timestamp>>,
}

struct RolloutGauges {
    members: LabelledGauge<1>,
    unavailable: LabelledGauge<1>,
    max_unavailable: LabelledGauge<1>,
    slots: LabelledGauge<1>,
    lease_held: LabelledGauge<1>,
    waiting: LabelledGauge<1>,
    wait_oldest: LabelledGauge<1>,
    halted: LabelledGauge<1>,
    paused: LabelledGauge<1>,
}

impl FleetMetrics {
    pub(super) fn new(registry: &mut MetricsRegistry) -> Self {
        registry.role("console");
        let seconds = || Some(Unit::Seconds);
        Self {
            machines: registry.gauge(
                "machines",
                ["state", "reason"],
                None,
                "Machines by state and phase; the reason of Failed is the failure's code",
            ),
            oldest: registry.gauge(
                "state_oldest",
                ["state"],
                seconds(),
                "Age of the oldest machine in the state, without those that a person drained, paused or labelled to be \
                 ignored",
            ),
            tasks: registry.gauge(
                "tasks",
                ["task", "phase"],
                None,
                "Open tasks: queued, running (a worker sends heartbeats), or waiting for the next \
                 attempt",
            ),
            queue: registry.gauge(
                "task_queue_length",
                ["class"],
                None,
                "Orders without heartbeats of a worker",
            ),
            queue_oldest: registry.gauge(
                "task_queue_oldest",
                ["class"],
                seconds(),
                "Age of the oldest order without heartbeats of a worker",
            ),
            rollout: RolloutGauges::new(registry),
            dead: registry.gauge("dead_letters", [], None, "Dead letters, up to 1000"),
            quarantined: registry.gauge(
                "quarantined_runs",
                ["code"],
                None,
                "Runs that engines leave alone until a person releases them, by cause",
            ),
            certificate_expiry: registry.gauge(
                "node_certificate_expiry_timestamp",
                ["certificate"],
                seconds(),
                "First expiry among the certificates of kubelets, in seconds since 1970, by their use: client or serving",
            ),
            certificates_late: registry.gauge(
                "node_certificates_late",
                ["certificate"],
                None,
                "Certificates of kubelets that have less than 5 % of their validity left, or none: kubelets renew \
                 before that",
            ),
            codes: Codes::default(),
            waiting: Mutex::default(),
        }
    }

    /// Sets the gauges from these runs at the time `now`. `dead` is the number of dead letters.
    pub fn set_gauges(
        &self,
        runs: &[Arc<Run<Dormer>>],
        is_alive: &IsAlive<'_>,
        now: Timestamp,
        dead: usize,
    ) {
        self.clear();
        self.dead.set([], dead as f64);
        let mut count: BTreeMap<(&'static str, LabelValue), u64> = BTreeMap::new();
        let mut oldest: BTreeMap<&'static str, u64> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.closed.is_none()) {
            match &run.state {
                State::Machine(state) => {
                    let label = Dormer::label(&run.state);
                    *count.entry((label, self.reason(&state.phase))).or_default() += 1;
                    if !is_stopped(state) {
                        let age = oldest.entry(label).or_default();
                        *age = (*age).max(now.since_ms(run.entered.at));
                    }
                }
                State::Rollout(state) => self.rollout(run, state, now),
                State::None => {}
            }
        }
        for ((state, reason), machines) in count {
            self.machines.set([state.into(), reason], machines as f64);
        }
        for (state, age) in oldest {
            self.oldest.set([state.into()], seconds(age));
        }
        self.certificates(runs, now);
        self.tasks(runs, is_alive, now);
    }

    /// Sets the gauges of the certificates of kubelets that have joined.
    fn certificates(&self, runs: &[Arc<Run<Dormer>>], now: Timestamp) {
        let mut first: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut late: BTreeMap<&'static str, u64> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.closed.is_none()) {
            let State::Machine(state) = &run.state else {
                continue;
            };
            let view = state.view();
            if !view.served || view.deleting {
                continue;
            }
            for (used_as, validity) in view.certificates.each() {
                let until = first.entry(used_as).or_insert(u64::MAX);
                *until = (*until).min(validity.until.0);
                let is_late = validity.late_from() <= now;
                *late.entry(used_as).or_default() += u64::from(is_late);
            }
        }
        for (used_as, until) in first {
            self.certificate_expiry
                .set([used_as.into()], seconds(until));
        }
        for (used_as, count) in late {
            self.certificates_late.set([used_as.into()], count as f64);
        }
    }

    /// Sets the number of quarantined runs from the code of each.
    pub fn set_quarantined<'a>(&self, codes: impl Iterator<Item = &'a str>) {
        let mut count: BTreeMap<LabelValue, u64> = BTreeMap::new();
        for code in codes {
            *count.entry(self.codes.bounded(code)).or_default() += 1;
        }
        for (code, runs) in count {
            self.quarantined.set([code], runs as f64);
        }
    }

    /// Clears the gauges, so that stale values do not appear as present ones.
    pub(super) fn clear(&self) {
        self.machines.clear();
        self.oldest.clear();
        self.tasks.clear();
        self.queue.clear();
        self.queue_oldest.clear();
        self.dead.clear();
        self.quarantined.clear();
        self.certificate_expiry.clear();
        self.certificates_late.clear();
        self.rollout.clear();
    }

    fn reason(&self, phase: &machine::Phase) -> LabelValue {
        match phase {
            machine::Phase::Failed { failure, .. } => {
                self.codes.bounded(&code::shown(&failure.code))
            }
            phase => phase.name().into(),
        }
    }

    fn tasks(&self, runs: &[Arc<Run<Dormer>>], is_alive: &IsAlive<'_>, now: Timestamp) {
        let mut count: BTreeMap<(&'static str, &'static str), u64> = BTreeMap::new();
        let mut queue: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
        for class in dormer_proto::subject::CLASSES {
            queue.insert(class, (0, 0));
        }
        for run in runs {
            for task in &run.tasks {
                let phase = phase(run, task, is_alive);
                *count.entry((task.body.name(), phase)).or_default() += 1;
                if let (TaskPhase::InFlight { at, .. }, "queued") = (&task.phase, phase) {
                    let (length, oldest) = queue.entry(Dormer::class(&task.body)).or_default();
                    *length += 1;
                    *oldest = (*oldest).max(now.since_ms(*at));
                }
            }
        }
        for ((task, phase), tasks) in count {
            self.tasks.set([task.into(), phase.into()], tasks as f64);
        }
        for (class, (length, oldest)) in queue {
            self.queue.set([class.into()], length as f64);
            self.queue_oldest.set([class.into()], seconds(oldest));
        }
    }

    fn rollout(&self, run: &Run<Dormer>, state: &rollout::State, now: Timestamp) {
        let pool = || [LabelValue::from(run.id.key().to_owned())];
        let of = &self.rollout;
        let queue = state.queue();
        of.members.set(pool(), state.enrolled() as f64);
        of.unavailable.set(pool(), state.unavailable() as f64);
        if let Some(limit) = state.limit() {
            of.max_unavailable.set(pool(), limit as f64);
        }
        of.slots.set(pool(), state.slots.len() as f64);
        let held = state.slots.iter().map(|slot| now.since_ms(slot.at)).max();
        of.lease_held.set(pool(), seconds(held.unwrap_or(0)));
        of.waiting.set(pool(), queue.len() as f64);
        let uids: Vec<String> = queue.into_iter().map(ToString::to_string).collect();
        of.wait_oldest
            .set(pool(), seconds(self.waited(run.id.key(), &uids, now)));
        of.halted.set(pool(), f64::from(u8::from(state.halted())));
        of.paused.set(pool(), f64::from(u8::from(state.paused())));
    }

    /// Longest time that this process has seen a machine of this queue wait, in milliseconds.
    fn waited(&self, pool: &str, uids: &[String], now: Timestamp) -> u64 {
        let mut waiting = self.waiting.locked();
        waiting.retain(|(of, uid), _| of != pool || uids.contains(uid));
        for uid in uids {
            waiting.entry((pool.to_owned(), uid.clone())).or_insert(now);
        }
        let ours = waiting.iter().filter(|((of, _), _)| of == pool);
        ours.map(|(_, since)| now.since_ms(*since))
            .max()
            .unwrap_or(0)
    }
}

impl RolloutGauges {
    fn new(registry: &mut MetricsRegistry) -> Self {
        let mut gauge = |name, unit, help| registry.gauge(name, ["pool"], unit, help);
        Self {
            members: gauge("rollout_members", None, "Machines enrolled with a rollout"),
            unavailable: gauge(
                "rollout_unavailable",
                None,
                "Machines that count as unavailable",
            ),
            max_unavailable: gauge(
                "rollout_max_unavailable",
                None,
                "Most machines that may be unavailable",
            ),
            slots: gauge("rollout_slots", None, "Leases held"),
            lease_held: gauge(
                "rollout_lease_held",
                Some(Unit::Seconds),
                "Age of the oldest held lease; 0 if none is held",
            ),
            waiting: gauge("rollout_waiting", None, "Machines that wait for the lease"),
            wait_oldest: gauge(
                "rollout_wait_oldest",
                Some(Unit::Seconds),
                "Longest time that this process has seen a machine wait for the lease",
            ),
            halted: gauge(
                "rollout_halted",
                None,
                "Whether a failure stops new grants: 1 or 0",
            ),
            paused: gauge(
                "rollout_paused",
                None,
                "Whether a person paused new grants: 1 or 0",
            ),
        }
    }

    fn clear(&self) {
        let all = [
            &self.members,
            &self.unavailable,
            &self.max_unavailable,
            &self.slots,
            &self.lease_held,
            &self.waiting,
            &self.wait_oldest,
            &self.halted,
            &self.paused,
        ];
        all.into_iter().for_each(LabelledGauge::clear);
    }
}

fn phase(run: &Run<Dormer>, task: &OpenTask<Dormer>, is_alive: &IsAlive<'_>) -> &'static str {
    match task.phase {
        TaskPhase::Waiting { .. } => "waiting",
        TaskPhase::InFlight { .. } if is_alive(&run.task_id(task.key), task.attempt) => "running",
        TaskPhase::InFlight { .. } => "queued",
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

/// Whether a person keeps the machine where it is. No alert has to call another one for that.
fn is_stopped(state: &machine::State) -> bool {
    let stops = |halt: Halt| match halt {
        Halt::Paused { .. } => !state.phase.row().even_paused,
        Halt::Ignored => state.lease.token().is_none(),
        // A hold keeps it out of the next upgrade only.
        Halt::Held { .. } => false,
    };
    state.phase == Phase::Drained || state.halts().into_iter().any(stops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_engine_core::Entered;
    use dormer_proto::{
        id::{LeaseToken, Seq, Sum},
        machine::MachineFact,
    };
    use dormer_workflows::machine::{Lease, State as Machine};
    use opentelemetry_sdk::Resource;

    const HOUR_MS: u64 = 3_600_000;

    /// A run that has been in its state since `at`.
    fn run_in(state: Machine, at: Timestamp) -> Arc<Run<Dormer>> {
        Arc::new(Run {
            id: "machine/u1".parse().expect("an id"),
            seq: Seq(1),
            began: at,
            state: state.into(),
            entered: Entered { seq: Seq(1), at },
            tasks: Vec::new(),
            timers: BTreeMap::new(),
            outbox: Vec::new(),
            taken: BTreeMap::new(),
            numbered: Seq(0),
            requests: [].into(),
            facts: BTreeMap::new(),
            episodes: [].into(),
            closed: None,
            sum: Sum(0),
        })
    }

    /// Ages of the oldest machines as a scrape shows them.
    fn oldest(states: impl IntoIterator<Item = Machine>) -> Vec<String> {
        let mut registry = MetricsRegistry::new(Resource::builder_empty().build());
        let metrics = FleetMetrics::new(&mut registry);
        oldest_in(&registry, &metrics, states)
    }

    /// The same as the next scrape of one process shows them.
    fn oldest_in(
        registry: &MetricsRegistry,
        metrics: &FleetMetrics,
        states: impl IntoIterator<Item = Machine>,
    ) -> Vec<String> {
        let runs = states.into_iter().map(|it| run_in(it, Timestamp(0)));
        let runs: Vec<_> = runs.collect();
        metrics.set_gauges(&runs, &|_, _| false, Timestamp(2 * HOUR_MS), 0);
        let page = registry.page();
        let lines = page
            .lines()
            .filter_map(|it| it.strip_prefix("dormer_state_oldest_seconds"));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn the_age_of_a_machine_that_is_stopped_later_is_shown_no_more() {
        let mut registry = MetricsRegistry::new(Resource::builder_empty().build());
        let metrics = FleetMetrics::new(&mut registry);
        let probing = Machine {
            phase: Phase::Probing,
            ..Machine::default()
        };
        let paused = Machine {
            paused: Some("ann: a new disk".into()),
            ..probing.clone()
        };
        let shown = |state: &Machine| oldest_in(&registry, &metrics, [state.clone()]).len();
        assert_eq!(shown(&probing), 1);
        assert_eq!(shown(&paused), 0, "the gauge keeps no value");
        assert_eq!(shown(&probing), 1);
    }

    /// An alert rests on the age, and calls no person for what another one did.
    #[test]
    fn the_age_of_a_machine_that_a_person_stopped_is_not_shown() {
        let ignored = || {
            Some(MachineFact {
                ignored: true,
                ..MachineFact::default()
            })
        };
        let paused = || Some("ann: a new disk".to_owned());
        let of = |phase| Machine {
            phase,
            ..Machine::default()
        };
        let held = Lease::Held {
            token: LeaseToken(3),
            over_limit: false,
        };
        let stopped = [
            of(Phase::Drained),
            Machine {
                paused: paused(),
                ..of(Phase::Probing)
            },
            Machine {
                machine: ignored(),
                ..of(Phase::Probing)
            },
        ];
        for state in stopped {
            assert_eq!(oldest([state.clone()]), Vec::<String>::new(), "{state:?}");
        }
        // What they do not stop.
        let continues = [
            of(Phase::Probing),
            Machine {
                held: paused(),
                ..of(Phase::Probing)
            },
            Machine {
                paused: paused(),
                ..of(Phase::Undoing)
            },
            Machine {
                machine: ignored(),
                lease: held,
                ..of(Phase::Deleting)
            },
        ];
        for state in continues {
            let ages = oldest([state.clone()]);
            assert_eq!(ages.len(), 1, "{state:?}");
            assert!(ages[0].ends_with(" 7200.0"), "{ages:?}");
        }
    }
}
