//! MachineHealthChecks: delete the Machine of an unhealthy node (docs/field-notes.md, Machines of OpenShift).

use dormer_proto::lock::Locked as _;
use std::{collections::HashMap, sync::Mutex, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{client::Client, run::Reconcile};
use crate::{
    api::{
        DeleteOptions, Key, ListQuery, Meta, Refusal, kinds, kinds::Kind, selector::Labels,
        store::Event,
    },
    world::Pace,
};

const POLL_EVERY: Duration = Duration::from_secs(10);

/// The controller of MachineHealthChecks.
pub struct HealthChecks {
    client: Client,
    pace: Pace,
    /// Since when a machine is unhealthy in which way; by Machine UID and way.
    since: Mutex<HashMap<(String, String), Instant>>,
}

impl HealthChecks {
    /// A controller with this view of the cluster.
    pub fn new(client: Client, pace: Pace) -> Self {
        Self {
            client,
            pace,
            since: Mutex::default(),
        }
    }
}

impl Reconcile for HealthChecks {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![&kinds::MACHINE_HEALTH_CHECK]
    }

    fn keys(&self, _: &'static Kind, event: &Event) -> Vec<Key> {
        if event.deleted {
            Vec::new()
        } else {
            vec![Key::of(&event.object.value)]
        }
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let Some(check) = self.client.get(&kinds::MACHINE_HEALTH_CHECK, &key) else {
                return Ok(None);
            };
            let check = &check.value;
            let labels = Labels::of(&check["spec"]["selector"]);
            let query = ListQuery {
                namespace: Some(key.namespace.clone()),
                labels,
                ..ListQuery::default()
            };
            let machines = self.client.list(&kinds::MACHINE, &query);
            let unhealthy: Vec<_> = machines
                .iter()
                .filter(|m| self.unhealthy(check, &m.value))
                .collect();
            let paused = check.annotation("cluster.x-k8s.io/paused").is_some();
            if unhealthy.len() <= most(check, machines.len()) && !paused {
                let owned = unhealthy.iter().filter(|m| m.value.controller().is_some());
                for machine in owned.filter(|m| !m.value.deleting()) {
                    let key = Key::of(&machine.value);
                    self.client
                        .delete(&kinds::MACHINE, &key, &DeleteOptions::default())
                        .await?;
                }
            }
            let status = json!({"expectedMachines": machines.len(),
                "currentHealthy": machines.len() - unhealthy.len()});
            self.client
                .status(&kinds::MACHINE_HEALTH_CHECK, &key, status)
                .await?;
            Ok(Some(POLL_EVERY))
        })
    }
}

impl HealthChecks {
    fn unhealthy(&self, check: &Value, machine: &Value) -> bool {
        if machine["status"]["phase"] == "Failed" {
            return true;
        }
        let Some(name) = machine["status"]["nodeRef"]["name"].as_str() else {
            let startup = check["spec"]["nodeStartupTimeout"]
                .as_str()
                .unwrap_or("10m");
            return startup != "0" && self.lasts(machine, "startup", true, seconds(startup));
        };
        let Some(node) = self.client.get(&kinds::NODE, &Key::new("", name)) else {
            return true;
        };
        let conditions = check["spec"]["unhealthyConditions"].as_array();
        let mut any = false;
        for condition in conditions.into_iter().flatten() {
            let kind = condition["type"].as_str().unwrap_or_default();
            let status = condition["status"].as_str().unwrap_or_default();
            let holds = node
                .value
                .condition(kind)
                .is_some_and(|c| c["status"] == status);
            let limit = seconds(condition["timeout"].as_str().unwrap_or("300s"));
            any |= self.lasts(machine, &format!("{kind}={status}"), holds, limit);
        }
        any
    }

    /// Whether this has held for as long as the limit says.
    fn lasts(&self, machine: &Value, reason: &str, holds: bool, limit: Duration) -> bool {
        let mut since = self.since.locked();
        let key = (machine.uid().to_owned(), reason.to_owned());
        if !holds {
            since.remove(&key);
            return false;
        }
        let first = *since.entry(key).or_insert_with(Instant::now);
        self.pace.simulated(first.elapsed()) >= limit
    }
}

/// `maxUnhealthy`: a number or a percentage, all by default.
fn most(check: &Value, machines: usize) -> usize {
    match &check["spec"]["maxUnhealthy"] {
        Value::Number(n) => n
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(0),
        Value::String(text) => match text.strip_suffix('%') {
            Some(percent) => machines * percent.parse::<usize>().unwrap_or(100) / 100,
            None => text.parse().unwrap_or(machines),
        },
        _ => machines,
    }
}

/// A duration as Go writes it, in its usual parts: `1h30m`, `300s`.
fn seconds(text: &str) -> Duration {
    let mut total = 0u64;
    let mut number = 0u64;
    for c in text.chars() {
        match c {
            '0'..='9' => number = number * 10 + u64::from(c) - u64::from('0'),
            'h' | 'm' | 's' => {
                total += number
                    * match c {
                        'h' => 3600,
                        'm' => 60,
                        _ => 1,
                    };
                number = 0;
            }
            _ => {}
        }
    }
    Duration::from_secs(total + number)
}
