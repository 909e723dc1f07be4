//! Endpoints of plans and rendered configurations.

use super::{Api, ApiError, ask::Body, run_cache::SharedRun};
use crate::plan::{
    Candidate, ChangeMethod, NOT_PUBLISHED, PlanRenderer, Times, add_steps, compare, expected_ms,
    merge, times,
};
use axum::{
    Json,
    extract::{Path, State as Of},
};
use dormer_profile::{layers::Layer, payload::Manifest, problem::Problems, shown::readable};
use dormer_proto::{id::RunId, machine::ChangeClass, message::Failure};
use dormer_views::plan::Plan;
use dormer_workflows::{State, machine};
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Most histories that a plan reads for step durations: those of the machines that changed last.
const HISTORIES_MAX: usize = 200;
/// Histories read at once.
const READ_AT_ONCE: usize = 8;

type Answer<T> = Result<Json<T>, ApiError>;

impl Api {
    fn renderer(&self) -> Result<&PlanRenderer, ApiError> {
        let none = || {
            let error = "this dormer process has no access to the cluster, so it cannot render \
                 a node's configuration";
            ApiError::conflict(
                error,
                "start it in a pod of the cluster, or with a kubeconfig: dormer run --help",
            )
        };
        self.renderer.as_deref().ok_or_else(none)
    }
}

/// Desired configuration of one machine: the document of each section, with secrets shown by name.
pub(super) async fn desired(Of(api): Of<Arc<Api>>, Path(called): Path<String>) -> Answer<Value> {
    let run = api.run_cache.machine(&called).await?;
    let renderer = api.renderer()?;
    let unsaid = || ApiError::conflict("the pool has no payload for it", "dormer get pools");
    let state = machine(&run).ok_or_else(unsaid)?;
    let desired = state.desired().ok_or_else(unsaid)?;
    let bootstrap = renderer.bootstrap().await.map_err(unread)?;
    let found = renderer.catalog.find(desired).map_err(cannot)?;
    let parts = (
        found.profile.as_ref(),
        &found.payload.manifest,
        found.cluster_config.as_ref(),
    );
    let documents = renderer
        .documents(&bootstrap, state, parts, &desired.version)
        .map_err(|why| ApiError::conflict(why, "dormer profile render shows the same offline"))?;
    let mut shown = json!({
        "machine": state.machine_ref().name, "profile": found.profile.name,
        "payload": desired.payload, "version": desired.version,
    });
    for document in documents {
        shown[document.section.as_str()] = readable(&document);
    }
    shown["kubernetes"] = serde_json::to_value(&found.profile.kubernetes).unwrap_or_default();
    Ok(Json(shown))
}

/// Plan for the pool's present settings.
pub(super) async fn plan(Of(api): Of<Arc<Api>>, Path(pool): Path<String>) -> Answer<Plan> {
    planned(&api, &pool, Candidate::default()).await
}

/// Plan for a candidate payload or layer.
pub(super) async fn plan_with(
    Of(api): Of<Arc<Api>>,
    Path(pool): Path<String>,
    body: Body,
) -> Answer<Plan> {
    let (payload, layer) = body.tried();
    let wrong = |problems: Problems| {
        ApiError::bad(
            problems.to_string(),
            "nothing was changed; correct the candidate and try again",
        )
    };
    let payload = payload
        .map(|text| Manifest::parse(&text))
        .transpose()
        .map_err(wrong)?;
    let layer = layer
        .map(|text| Layer::parse("layer", &text))
        .transpose()
        .map_err(wrong)?;
    planned(&api, &pool, Candidate { payload, layer }).await
}

async fn planned(api: &Api, pool: &str, candidate: Candidate) -> Answer<Plan> {
    let renderer = api.renderer()?;
    let _slot = api.planning.try_acquire().map_err(|_| ApiError::busy())?;
    api.found_rollout(pool).await?;
    let runs = api.run_cache.all().await?;
    let bootstrap = renderer.bootstrap().await.map_err(unread)?;
    let mut items = Vec::new();
    let ours = |run: &&SharedRun| machine(run).is_some_and(|state| state.view().pool == pool);
    let ours: Vec<&SharedRun> = runs.iter().filter(ours).collect();
    for run in ours.iter().filter(|run| is_planned(run)) {
        let Some(state) = machine(run) else { continue };
        let (plan, method) = compare(renderer, &bootstrap, state, &candidate).map_err(|why| {
            ApiError::bad(
                why,
                "nothing was changed; correct the candidate and try again",
            )
        })?;
        items.push((run.id.clone(), plan, method));
    }
    let times = match items.iter().any(|(_, _, method)| method.is_some()) {
        true => last_times(api, ours).await?,
        false => BTreeMap::new(),
    };
    let mut all = Times::new();
    times.values().for_each(|one| merge(&mut all, one));
    let own = |run: &RunId| times.get(run).cloned().unwrap_or_default();
    let items = items.into_iter().map(|(run, mut plan, method)| {
        if let Some(method) = method {
            add_steps(&mut plan, method, &own(&run), &all);
        }
        plan
    });
    Ok(Json(Plan {
        pool: pool.to_owned(),
        items: items.collect(),
    }))
}

/// Expected duration of a turn with the lease in a pool, in milliseconds: the sum of its steps' last durations. `None`: not
/// all of its steps are known yet.
pub(crate) async fn expected_turn(api: &Api, pool: &str) -> Result<Option<u64>, ApiError> {
    let runs = api.run_cache.all().await?;
    let ours = |run: &&SharedRun| machine(run).is_some_and(|state| state.view().pool == pool);
    let mut ours: Vec<&SharedRun> = runs.iter().filter(ours).collect();
    let under_lease = ours.iter().find_map(|run| machine(run)?.under_lease);
    let how = under_lease.or_else(|| {
        let any = ours.first().and_then(|run| machine(run))?;
        Some(any.how(ChangeClass::Drain))
    });
    let Some(how) = how else { return Ok(None) };
    ours.sort_by_key(|run| std::cmp::Reverse(run.entered.at));
    ours.truncate(READ_AT_ONCE);
    let mut all = Times::new();
    let times = last_times(api, ours).await?;
    times.values().for_each(|one| merge(&mut all, one));
    Ok(expected_ms(ChangeMethod::Leased(how), &all))
}

/// Last step durations of these machines, with ended ones: only the history of a replaced machine shows how long its
/// drain took.
pub(crate) async fn last_times(
    api: &Api,
    mut runs: Vec<&SharedRun>,
) -> Result<BTreeMap<RunId, Times>, ApiError> {
    runs.sort_by_key(|run| std::cmp::Reverse(run.entered.at));
    runs.truncate(HISTORIES_MAX);
    let mut found = BTreeMap::new();
    for some in runs.chunks(READ_AT_ONCE) {
        let mut reads = Vec::new();
        for run in some {
            let id = run.id.clone();
            let name = machine(run).map(|it| it.machine_ref().name);
            reads.push(async move {
                let timeline = api.timeline_of(&id).await?;
                let times = times(&timeline.episodes, &name.unwrap_or_default());
                Ok::<_, ApiError>((id, times))
            });
        }
        found.extend(try_join_all(reads).await?);
    }
    Ok(found)
}

pub(crate) fn machine(run: &SharedRun) -> Option<&machine::State> {
    if let State::Machine(state) = &run.state {
        Some(state)
    } else {
        None
    }
}

/// Whether a plan names the machine: its Machine is there. A run whose Machine is gone may wait for the replacement.
fn is_planned(run: &SharedRun) -> bool {
    run.closed.is_none() && machine(run).is_some_and(|state| !state.machine_gone)
}

/// Error for bootstrap settings that are unknown. A console's own account may not read them: a worker publishes them.
fn unread(failure: Failure) -> ApiError {
    let (message, cure) = match failure.code.as_str() {
        NOT_PUBLISHED => (
            failure.message,
            "every worker does so each 30 seconds: try again. If that does not help, read the log of a worker",
        ),
        "LayersUnusable" => (failure.message, "correct the layer: dormer lint FILE"),
        _ => (
            format!(
                "this dormer process cannot read how nodes join: {}",
                failure.message
            ),
            "the account of this process needs a worker's right to read it: compare it with deploy/rbac.yaml",
        ),
    };
    ApiError::conflict(message, cure)
}

fn cannot(failure: Failure) -> ApiError {
    ApiError::conflict(
        failure.message,
        "check the pool with dormer get pools, and that this process has its payload",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PLANS_MAX, live::Live, router};
    use axum::{
        Router,
        body::{Body as HttpBody, to_bytes},
        http::Request,
    };
    use dormer_engine::{local::Local, memory::MemoryStore, port::SystemClock};
    use dormer_profile::cluster_config::ClusterSnapshot;
    use dormer_proto::{
        id::{Incarnation, Timestamp},
        machine::{HostRef, MachineRef},
    };
    use dormer_workers::{
        catalog::Catalog,
        host::cluster::{Bootstrap, CloudToken, Cluster, MachineInCluster},
    };
    use tower::ServiceExt;
    use zeroize::Zeroizing;

    /// Cluster that nothing is read from here.
    struct NoCluster;

    fn none<T>() -> Result<T, Failure> {
        Err(Failure::transient("NoCluster", "there is none"))
    }

    impl Cluster for NoCluster {
        async fn note(&self, _: &MachineRef, _: &str, _: &str) -> Result<(), Failure> {
            none()
        }
        async fn pinned(&self, _: &HostRef) -> Result<Option<String>, Failure> {
            none()
        }
        async fn pin(&self, _: &MachineRef, _: &str) -> Result<(), Failure> {
            none()
        }
        async fn leaves(&self, _: &MachineRef) -> Result<bool, Failure> {
            none()
        }
        async fn machine_in_cluster(
            &self,
            _: &MachineRef,
            _: Option<&str>,
        ) -> Result<MachineInCluster, Failure> {
            none()
        }
        async fn read_cluster(&self) -> ClusterSnapshot {
            ClusterSnapshot::default()
        }
        async fn bootstrap(&self) -> Result<Bootstrap, Failure> {
            none()
        }
        async fn token(&self, _: &MachineRef) -> Result<Zeroizing<String>, Failure> {
            none()
        }
        async fn note_cloud_token(&self, _: &str, _: &str, _: Timestamp) -> Result<(), Failure> {
            none()
        }
        async fn cloud_token(&self, _: &str, _: bool) -> Result<CloudToken, Failure> {
            none()
        }
    }

    fn api() -> Arc<Api> {
        let ports = Local::new(Arc::new(MemoryStore::new(Incarnation(1))), SystemClock);
        let catalog = Catalog::new(&[]).expect("the built-in profiles");
        let renderer = PlanRenderer::new(catalog, Arc::new(NoCluster));
        Api::over(Arc::new(ports), Arc::<Live>::default(), Some(renderer))
    }

    async fn plan_with(router: &Router, body: &Value) -> (u16, String) {
        let request = Request::post("/api/v1/pools/windows/plan")
            .header("content-type", "application/json")
            .body(HttpBody::from(body.to_string()))
            .expect("a request");
        let answer = router.clone().oneshot(request).await.expect("an answer");
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await;
        let body = body.expect("a body").to_vec();
        (status, String::from_utf8(body).expect("text"))
    }

    #[tokio::test]
    async fn so_many_plans_are_made_at_once_and_one_more_is_refused() {
        let api = api();
        let router = router(Arc::clone(&api));
        let made = u32::try_from(PLANS_MAX).expect("a number");
        let others = api.planning.acquire_many(made).await.expect("slots");
        let (status, said) = plan_with(&router, &json!({})).await;
        assert_eq!(status, 503, "{said}");
        assert!(said.contains("other plans are being made"), "{said}");
        drop(others);
        let (status, said) = plan_with(&router, &json!({})).await;
        assert_eq!(status, 404, "it looks for the pool: {said}");
        assert_eq!(api.planning.available_permits(), PLANS_MAX, "given back");
    }

    #[tokio::test]
    async fn a_console_renders_with_the_settings_that_a_worker_published() {
        use dormer_profile::cluster_config::ClusterConfig;
        let live = Arc::<Live>::default();
        let catalog = Catalog::new(&[]).expect("the built-in profiles");
        let renderer = PlanRenderer::published(catalog.clone(), Arc::clone(&live), false);
        let missing = renderer.bootstrap().await.expect_err("none came");
        let missing = unread(missing);
        let (missing, _) = missing.what_and_remedy();
        assert!(missing.contains("no worker has published"), "{missing}");
        let snapshot = ClusterSnapshot {
            vxlan_port: Ok(Some(9_898)),
            ..ClusterSnapshot::default()
        };
        let (cluster, _) = ClusterConfig::default().with(snapshot, true);
        live.set_settings(dormer_proto::message::NodeSettings {
            api_url: "https://api-int.cluster.example:6443".into(),
            cluster_dns: "172.30.0.10".into(),
            cluster_domain: "cluster.local".into(),
            service_cidr: "172.30.0.0/16".into(),
            exporter: true,
            cluster: cluster.published(),
        });
        let bootstrap = renderer.bootstrap().await.expect("settings");
        assert_eq!(bootstrap.api_url, "https://api-int.cluster.example:6443");
        assert!(bootstrap.exporter_tls.is_some() && bootstrap.token.is_none());
        assert_eq!(catalog.cluster_config().digest(), cluster.digest());
        assert!(cluster.digest().is_some());
    }

    #[test]
    fn a_machine_that_is_gone_is_in_no_plan() {
        use dormer_proto::id::{Seq, Sum};
        let planned = |machine_gone: bool, closed: Option<Timestamp>| {
            let state = machine::State {
                machine_gone,
                ..machine::State::default()
            };
            let run: SharedRun = Arc::new(dormer_engine_core::Run {
                id: "machine/u1".parse().expect("an id"),
                seq: Seq(1),
                began: Timestamp(0),
                state: state.into(),
                entered: dormer_engine_core::Entered {
                    seq: Seq(1),
                    at: Timestamp(0),
                },
                tasks: Vec::new(),
                timers: Default::default(),
                outbox: Vec::new(),
                taken: Default::default(),
                numbered: Seq(0),
                requests: Default::default(),
                facts: Default::default(),
                episodes: Default::default(),
                closed,
                sum: Sum(0),
            });
            is_planned(&run)
        };
        assert!(planned(false, None));
        assert!(!planned(true, None), "it waits for its replacement");
        assert!(!planned(false, Some(Timestamp(1))));
    }

    /// Most memory that this process has had, in bytes.
    fn peak() -> u64 {
        let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kilobytes.expect("a number") << 10
    }

    #[tokio::test]
    async fn a_plan_of_many_aliases_is_refused_before_it_uses_memory() {
        let router = router(api());
        // Expanded, this is 30 GB: 70,000 times 440 kilobytes, in a layer of one megabyte, the largest that is read.
        let letters = ('a'..='z').chain('A'..='Z').chain('0'..='9');
        let letters: Vec<char> = letters.collect();
        let key = |n: usize| [n / 3_844, n / 62 % 62, n % 62].map(|at| letters[at]);
        let aliases = (0..70_000).map(|n| key(n).iter().collect::<String>() + ": *a,");
        let variables: String = aliases.collect();
        let anchor = "x".repeat(440_000);
        let bomb = format!("name: &a {anchor}\nvariables: {{{variables}}}\n");
        let before = peak();
        let (status, said) = plan_with(&router, &json!({"layer": bomb})).await;
        assert_eq!(status, 400, "{said}");
        assert!(said.contains("an alias (`*name`) counts as all"), "{said}");
        let more = peak() - before;
        assert!(more < 512 << 20, "{more} bytes");
    }
}
