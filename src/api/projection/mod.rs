//! Projection of runs into the cluster for `kubectl`: WindowsMachines, the status of the WindowsPool, a condition on
//! each Node, Events.
//!
//! All of it derives from the histories. Whatever is deleted is written again within a minute. Several consoles may
//! project side by side: they write the same content, and an Event's name follows from its content.
//!
//! Statuses are rendered from the runs' states and not from the API's views: a status has to be the same from every console,
//! and a view has what one process alone knows (heartbeats, ages, usual durations). Their types are those of the CRDs
//! (`v1alpha1.rs`), which may not change with a field of the API.

mod cluster;
mod conditions;
mod events;
mod exporter;
mod objects;
mod v1alpha1;
#[cfg(test)]
mod v1alpha1_pool;

use crate::{Api, ApiError, SharedRun, prerequisites};
use cluster::{ApiFailure, Cluster};
use conditions::{Context, StatusCondition};
use dormer_proto::id::Timestamp;
use dormer_views::prerequisites::MissingPrerequisite;
use futures::{StreamExt, stream};
use objects::{Kind, ObjectKey, ProjectedObject};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Interval at which the histories are polled.
const POLL_EVERY: Duration = Duration::from_secs(3);
/// Interval at which the cluster's objects are read, to repair what others changed or deleted.
pub const READ_EVERY: Duration = Duration::from_secs(60);
/// Concurrent writes.
const WRITES_MAX: usize = 8;
/// Polls without an answer of the store before the pools are marked as unavailable.
const SILENT_POLLS: u32 = 5;

/// Settings of the projection.
#[derive(Debug, Clone)]
pub struct Settings {
    /// dormer's namespace: it holds the pools, and Events about them.
    pub namespace: String,
    /// Name of this process in Events.
    pub name: String,
    /// Name of this installation's OperatorCondition, if the Operator Lifecycle Manager installed it.
    pub operator_condition: Option<String>,
    /// Interval at which the cluster's objects are read: [`READ_EVERY`], or less in a simulation.
    pub read_every: Duration,
}

/// Projects the runs of `api` into the cluster of `client` until cancelled. A failure is logged once, and the write
/// is tried again.
pub async fn run_projection(
    api: Arc<Api>,
    client: kube::Client,
    settings: Settings,
) -> std::convert::Infallible {
    let mut projector = Projector::new(Cluster::new(client, &settings), settings);
    let mut again = interval(POLL_EVERY);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        again.tick().await;
        match api.snapshot().await {
            Ok((runs, _, now)) => {
                let lacks = prerequisites::all(&runs, api.live());
                projector.project(&runs, &lacks, now).await;
            }
            Err(error) => projector.silent(&error, api.now()).await,
        }
    }
}

/// State of the cluster's objects in this process.
struct Projector {
    cluster: Cluster,
    settings: Settings,
    /// EndpointSlices of the nodes' exporters. `None`: their Service does not exist.
    slices: Option<BTreeMap<String, Value>>,
    /// Objects in the cluster. `None`: not read yet, or the CRD is missing.
    written: Option<BTreeMap<ObjectKey, Value>>,
    /// Time of the next read.
    read_again: Instant,
    /// Pause after the next read, should it fail.
    pause: Duration,
    /// Errors of the last read.
    unread: BTreeSet<ApiFailure>,
    /// Conditions written on Nodes, by the Node's UID.
    nodes: BTreeMap<String, StatusCondition>,
    upgradeable: Option<StatusCondition>,
    sent: events::SentEvents,
    /// Minor version of the API server.
    server: Option<u32>,
    silent: u32,
    failures: BTreeSet<ApiFailure>,
}

impl Projector {
    fn new(cluster: Cluster, settings: Settings) -> Self {
        Self {
            cluster,
            settings,
            slices: None,
            written: None,
            read_again: Instant::now(),
            pause: POLL_EVERY,
            unread: BTreeSet::new(),
            nodes: BTreeMap::new(),
            upgradeable: None,
            sent: events::SentEvents::default(),
            server: None,
            silent: 0,
            failures: BTreeSet::new(),
        }
    }

    async fn project(&mut self, runs: &[SharedRun], lacks: &[MissingPrerequisite], now: Timestamp) {
        self.silent = 0;
        if Instant::now() >= self.read_again {
            self.read().await;
        }
        // A read that failed is a problem until one succeeds.
        let mut failures = self.unread.clone();
        let beside = Context {
            server: self.server,
            lacks,
        };
        let wanted = objects::of(runs, &self.settings.namespace, beside);
        self.write_objects(wanted, now, &mut failures).await;
        self.write_nodes(runs, &mut failures).await;
        self.write_slices(runs, &mut failures).await;
        self.write_operator(runs, now, &mut failures).await;
        for event in self.sent.unsent(runs, now, &self.settings) {
            failures.extend(self.cluster.write_event(&event).await.err());
        }
        self.say(failures);
    }

    /// Reads the objects that others may have changed. A read that fails is repeated soon: until one succeeds, no object
    /// is written. Right after a release is installed its kinds exist, but the API server does not serve them yet.
    async fn read(&mut self) {
        let mut failures = BTreeSet::new();
        if let Some(minor) = self.cluster.minor().await {
            self.server = Some(minor);
        }
        self.written = None;
        match (
            self.cluster.list_machines().await,
            self.cluster.list_pools().await,
        ) {
            (Ok(machines), Ok(pools)) => {
                self.written = Some(machines.into_iter().chain(pools).collect());
            }
            (machines, pools) => failures.extend(machines.err().into_iter().chain(pools.err())),
        }
        match self.cluster.slices().await {
            Ok(slices) => self.slices = slices,
            Err(failure) => {
                self.slices = None;
                failures.insert(failure);
            }
        }
        // A removed condition is written again.
        self.nodes.clear();
        let every = self.settings.read_every;
        let (wait, pause) = match failures.is_empty() {
            true => (every, POLL_EVERY),
            false => (self.pause.min(every), (self.pause * 2).min(every)),
        };
        self.read_again = Instant::now() + wait;
        self.pause = pause;
        self.unread = failures;
    }

    async fn write_objects(
        &mut self,
        wanted: Vec<ProjectedObject>,
        now: Timestamp,
        failures: &mut BTreeSet<ApiFailure>,
    ) {
        let Some(written) = &mut self.written else {
            return;
        };
        let mut due = Vec::new();
        let mut kept = BTreeSet::new();
        let pool = |key: &ObjectKey| key.kind == Kind::Pool;
        if !written.keys().any(pool) {
            // The administrator applies the CRD, and expects objects at once.
            match self.cluster.list_pools().await {
                Ok(pools) => written.extend(pools),
                Err(failure) => drop(failures.insert(failure)),
            }
        }
        for mut object in wanted {
            let there = written.get(&object.object_key);
            if pool(&object.object_key) && there.is_none() {
                continue;
            }
            conditions::date(&mut object.status, there, now);
            kept.insert(object.object_key.clone());
            if !there.is_some_and(|there| object.is_shown(there)) {
                due.push(object);
            }
        }
        let stale: Vec<ObjectKey> = written
            .keys()
            .filter(|object_key| !pool(object_key) && !kept.contains(*object_key))
            .cloned()
            .collect();
        let cluster = &self.cluster;
        let put = stream::iter(due).map(|object| async move {
            let done = cluster.put(&object).await;
            (object, done)
        });
        let mut put = put.buffer_unordered(WRITES_MAX);
        while let Some((object, done)) = put.next().await {
            match done {
                Ok(()) => {
                    let kept = object.kept();
                    written.insert(object.object_key, kept);
                }
                Err(failure) => drop(failures.insert(failure)),
            }
        }
        for object_key in stale {
            match self.cluster.remove(&object_key).await {
                Ok(()) => drop(written.remove(&object_key)),
                Err(failure) => drop(failures.insert(failure)),
            }
        }
    }

    async fn write_nodes(&mut self, runs: &[SharedRun], failures: &mut BTreeSet<ApiFailure>) {
        let wanted = conditions::of_nodes(runs);
        self.nodes.retain(|uid, _| wanted.contains_key(uid));
        let due: Vec<_> = wanted
            .into_iter()
            .filter(|(uid, one)| self.nodes.get(uid) != Some(&one.1))
            .collect();
        let cluster = &self.cluster;
        let put = stream::iter(due).map(|(uid, (node, condition))| async move {
            let done = cluster.on_node(&node, &condition).await;
            (uid, condition, done)
        });
        let mut put = put.buffer_unordered(WRITES_MAX);
        while let Some((uid, condition, done)) = put.next().await {
            match done {
                Ok(()) => drop(self.nodes.insert(uid, condition)),
                Err(failure) => drop(failures.insert(failure)),
            }
        }
    }

    /// Writes the EndpointSlices of the nodes' exporters, if their Service exists.
    async fn write_slices(&mut self, runs: &[SharedRun], failures: &mut BTreeSet<ApiFailure>) {
        let Some(written) = &mut self.slices else {
            return;
        };
        let wanted = exporter::slices(runs);
        let stale: Vec<String> = written
            .keys()
            .filter(|name| !wanted.contains_key(*name))
            .cloned()
            .collect();
        for (name, endpoints) in wanted {
            if written.get(&name) == Some(&endpoints) {
                continue;
            }
            match self.cluster.put_slice(&name, &endpoints).await {
                Ok(()) => drop(written.insert(name, endpoints)),
                Err(failure) => drop(failures.insert(failure)),
            }
        }
        for name in stale {
            match self.cluster.remove_slice(&name).await {
                Ok(()) => drop(written.remove(&name)),
                Err(failure) => drop(failures.insert(failure)),
            }
        }
    }

    /// Writes the OperatorCondition. The Operator Lifecycle Manager delays an update of dormer while it is False.
    async fn write_operator(
        &mut self,
        runs: &[SharedRun],
        now: Timestamp,
        failures: &mut BTreeSet<ApiFailure>,
    ) {
        let Some(name) = &self.settings.operator_condition else {
            return;
        };
        let condition = conditions::upgradeable(runs, self.server);
        if self.upgradeable.as_ref() == Some(&condition) {
            return;
        }
        match self.cluster.on_operator(name, &condition, now).await {
            Ok(()) => self.upgradeable = Some(condition),
            Err(failure) => drop(failures.insert(failure)),
        }
    }

    /// Handles a store that does not answer: after [`SILENT_POLLS`] the pools are marked as unavailable.
    async fn silent(&mut self, error: &ApiError, now: Timestamp) {
        self.silent += 1;
        if self.silent != SILENT_POLLS {
            return;
        }
        let Some(written) = &mut self.written else {
            return;
        };
        let mut failures = BTreeSet::new();
        let pools = written
            .iter_mut()
            .filter(|(object_key, _)| object_key.kind == Kind::Pool);
        for (object_key, status) in pools {
            conditions::unavailable(status, error.what_and_remedy().0, now);
            let object = ProjectedObject {
                object_key: object_key.clone(),
                owner: None,
                status: status.clone(),
            };
            failures.extend(self.cluster.put(&object).await.err());
        }
        self.say(failures);
    }

    /// Logs each failure when it begins and when it ends.
    fn say(&mut self, failures: BTreeSet<ApiFailure>) {
        for new in failures.difference(&self.failures) {
            tracing::warn!("{new}");
        }
        for over in self.failures.difference(&failures) {
            tracing::info!("resolved: {over}");
        }
        self.failures = failures;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{Method, Request, Response};
    use dormer_engine_core::{Entered, Run};
    use dormer_proto::{
        id::{LeaseToken, Seq, Sum},
        work::rollout_run,
    };
    use dormer_workflows::{State, rollout};
    use kube::client::Body;
    use serde_json::json;
    use std::sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    };

    const OPERATOR: &str =
        "/apis/operators.coreos.com/v2/namespaces/dormer/operatorconditions/dormer.v1";

    /// Conditions that are patched, as an API server gets them.
    type Patches = Arc<Mutex<Vec<Value>>>;

    /// A projector of an installation of the Operator Lifecycle Manager. Its API server refuses the first patch.
    fn of_operator() -> (Projector, Patches) {
        let patches = Patches::default();
        let recorded = Arc::clone(&patches);
        let answer = move |request: Request<Body>| {
            let recorded = Arc::clone(&recorded);
            async move {
                let ours = request.uri().path() == OPERATOR && request.method() == Method::PATCH;
                let body = request.into_body().collect_bytes().await.expect("a body");
                let refused = if ours {
                    let patch: Value = serde_json::from_slice(&body).expect("JSON");
                    let mut recorded = recorded.lock().expect("unpoisoned");
                    recorded.push(patch["spec"]["conditions"][0].clone());
                    recorded.len() == 1
                } else {
                    true
                };
                let (code, body) = match refused {
                    false => (
                        200,
                        json!({"apiVersion": "operators.coreos.com/v2",
                        "kind": "OperatorCondition", "metadata": {"name": "dormer.v1"}}),
                    ),
                    true => (
                        404,
                        json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                        "status": "Failure", "code": 404, "reason": "NotFound", "message": "absent"}),
                    ),
                };
                let body = Body::from(body.to_string().into_bytes());
                Response::builder().status(code).body(body)
            }
        };
        let client = kube::Client::new(tower::service_fn(answer), "dormer");
        let settings = Settings {
            namespace: "dormer".into(),
            name: "test".into(),
            operator_condition: Some("dormer.v1".into()),
            read_every: READ_EVERY,
        };
        let projector = Projector::new(Cluster::new(client, &settings), settings);
        (projector, patches)
    }

    /// Rollout whose lease a machine holds, or none.
    fn rollout(held: bool) -> SharedRun {
        let slot = rollout::Slot {
            token: LeaseToken(7),
            uid: rollout::Uid::new("uid-a"),
            owner: 0,
            over_limit: false,
            first: false,
            seq: Seq(1),
            at: Timestamp(0),
            loss: None,
            vacant: false,
        };
        let state = rollout::State {
            slots: Some(slot).filter(|_| held).into_iter().collect(),
            ..rollout::State::default()
        };
        Arc::new(Run {
            id: rollout_run("windows").expect("a run"),
            seq: Seq(7),
            began: Timestamp(1),
            state: State::Rollout(Box::new(state)),
            entered: Entered::default(),
            tasks: Vec::new(),
            timers: BTreeMap::new(),
            outbox: Vec::new(),
            taken: BTreeMap::new(),
            numbered: Seq(0),
            requests: Default::default(),
            facts: BTreeMap::new(),
            episodes: Default::default(),
            closed: None,
            sum: Sum(0),
        })
    }

    /// Object that a rollout with these builds is shown by.
    fn shown_with(builds: BTreeMap<String, String>) -> objects::ProjectedObject {
        let mut run = Arc::unwrap_or_clone(rollout(false));
        if let State::Rollout(state) = &mut run.state {
            state.builds = builds;
        }
        let beside = conditions::Context {
            server: None,
            lacks: &[],
        };
        objects::of(&[Arc::new(run)], "dormer", beside).remove(0)
    }

    /// A merge patch without the field leaves what an earlier store knew.
    #[test]
    fn a_pools_status_has_the_builds_that_its_rollout_remembers() {
        let known = [("11.0.0".to_owned(), "its SHA-256".to_owned())];
        let shown = &shown_with(known.into()).status["builds"];
        assert_eq!(shown, &json!({"11.0.0": "its SHA-256"}));
        let none = shown_with(BTreeMap::new()).status;
        assert!(
            none.get("payload").is_some() && none.get("builds").is_none(),
            "{none}"
        );
    }

    /// The API server keeps such a key at each merge patch, so another patch would change nothing.
    #[test]
    fn a_build_that_the_rollout_does_not_know_is_no_reason_for_another_patch() {
        let own = || BTreeMap::from([("11.0.0".to_owned(), "its own".to_owned())]);
        for (known, builds, shown) in [
            (own(), json!({"11.0.0": "its own", "11.2.0": "x"}), true),
            (own(), json!({"11.0.0": "its own"}), true),
            (own(), json!({"11.0.0": "another", "11.2.0": "x"}), false),
            (own(), json!({"11.2.0": "x"}), false),
            (BTreeMap::new(), json!({"11.2.0": "x"}), true),
        ] {
            let object = shown_with(known);
            let mut there = object.kept();
            there["builds"] = builds;
            assert_eq!(object.is_shown(&there), shown, "{there}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_update_of_dormer_begins_while_a_machine_holds_the_lease() {
        let (mut projector, patches) = of_operator();
        let said = |patches: &Patches| -> Vec<(Value, Value)> {
            let patches = patches.lock().expect("unpoisoned");
            let one = |it: &Value| (it["status"].clone(), it["reason"].clone());
            patches.iter().map(one).collect()
        };
        let held = (json!("False"), json!("LeaseHeld"));
        // The first patch is refused, and repeated. Once it is there, it is not written again.
        for expected in [1, 2, 2] {
            projector.project(&[rollout(true)], &[], Timestamp(0)).await;
            assert_eq!(said(&patches), vec![held.clone(); expected]);
        }
        let message = patches.lock().expect("unpoisoned")[0]["message"].to_string();
        assert!(message.contains("holds the lease (token 7)"), "{message}");
        projector
            .project(&[rollout(false)], &[], Timestamp(0))
            .await;
        let all = said(&patches);
        assert_eq!((all.len(), &all[2].0), (3, &json!("True")), "{all:?}");
    }

    /// A projector whose API server begins to serve the machines' kind after so many lists of them.
    fn projector(refusals: usize) -> Projector {
        let lists = Arc::new(AtomicUsize::new(0));
        let answer = move |request: Request<Body>| {
            let path = request.uri().path();
            let machines = path.ends_with("/windowsmachines");
            let refused = machines && lists.fetch_add(1, Ordering::Relaxed) < refusals;
            let code = match path {
                _ if refused => 429,
                _ if machines || path.ends_with("/windowspools") => 200,
                _ => 404,
            };
            let body = match code {
                200 => json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}),
                code => json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                    "status": "Failure", "code": code, "reason": if code == 404 { "NotFound" } else { "TooManyRequests" },
                    "message": "not served"}),
            };
            let body = Body::from(body.to_string().into_bytes());
            let response = Response::builder().status(code).body(body);
            async move { response }
        };
        let client = kube::Client::new(tower::service_fn(answer), "dormer");
        let settings = Settings {
            namespace: "dormer".into(),
            name: "test".into(),
            operator_condition: None,
            read_every: READ_EVERY,
        };
        Projector::new(Cluster::new(client, &settings), settings)
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_failed_is_a_problem_and_is_repeated_soon() {
        let mut projector = projector(2);
        for expected in [1, 1, 1, 0] {
            projector.project(&[], &[], Timestamp(0)).await;
            assert_eq!(
                projector.failures.len(),
                expected,
                "{:?}",
                projector.failures
            );
            assert_eq!(projector.written.is_some(), expected == 0);
            tokio::time::advance(POLL_EVERY).await;
        }
        projector.project(&[], &[], Timestamp(0)).await;
        assert_eq!(projector.pause, POLL_EVERY, "the next trouble begins anew");
        assert!(projector.read_again > Instant::now() + READ_EVERY / 2);
    }
}
