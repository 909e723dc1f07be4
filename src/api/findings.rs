//! Findings about the cluster around, payloads, rights and machines. Those about the cluster are made again once a minute, and
//! sooner while they are read.

use super::{Api, ApiError, lacked_rights::lacked, planned::machine, views::template_difference};
use dormer_proto::lock::Locked as _;
use dormer_views::{
    explain,
    finding::{Finding, FindingSeverity},
    machine::TemplateDifference,
};
use futures::future::BoxFuture;
use std::{convert::Infallible, sync::Mutex, time::Duration};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

/// Longest time between two surveys.
const EVERY: Duration = Duration::from_mins(1);
/// Shortest time between two surveys, however often they are read.
const REST: Duration = Duration::from_secs(5);
/// Most findings that are kept. One cause may be found in each of many objects.
const FINDINGS_MAX: usize = 100;
/// Most fields of a template that a finding names.
const FIELDS_MAX: usize = 3;

/// Survey of the cluster: what is found, in the order in which one mends it.
pub type Survey = dyn Fn() -> BoxFuture<'static, Vec<Finding>> + Send + Sync;

/// What the last survey found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Lock held for one copy, never across an await.
    known: Mutex<Vec<Finding>>,
    asked: Notify,
}

impl Findings {
    /// What the last survey found. The next one comes sooner.
    pub(super) fn known(&self) -> Vec<Finding> {
        self.asked.notify_one();
        let known = self.known.locked();
        known.clone()
    }

    fn note(&self, mut found: Vec<Finding>) {
        found.truncate(FINDINGS_MAX);
        let mut known = self.known.locked();
        for new in found.iter().filter(|it| !known.contains(it)) {
            let Finding {
                code,
                object,
                message,
                what_to_do,
                ..
            } = new;
            tracing::warn!(
                code,
                object,
                "found in the cluster: {message}; do: {what_to_do}"
            );
        }
        for gone in known.iter().filter(|it| !found.contains(it)) {
            tracing::info!(
                code = gone.code,
                object = gone.object,
                "mended in the cluster"
            );
        }
        *known = found;
    }
}

impl Api {
    /// What the last survey found, payloads that this process cannot use, rights that roles lack, layers of the pool that are
    /// not in force, and machines of earlier templates.
    ///
    /// # Errors
    /// The store does not answer.
    pub(super) async fn all_findings(&self) -> Result<Vec<Finding>, ApiError> {
        // One cause may be found in a hundred objects of the cluster: these few are not left out for them.
        let mut found: Vec<Finding> = self.unusable_payloads().into_iter().map(unusable).collect();
        let runs = self.run_cache.all().await?;
        found.extend(lacked(&runs));
        let open = runs.iter().filter(|run| run.closed.is_none());
        found.extend(self.layers_refused().map(layers_unusable));
        let machines = open.filter_map(|run| machine(run).filter(|it| !it.machine_gone));
        let machines = machines.map(|state| {
            let template = state.view().template.into_iter();
            let differs: Vec<_> = template.map(template_difference).collect();
            (state.machine_ref().name, differs)
        });
        found.extend(of_earlier_templates(&machines.collect::<Vec<_>>()));
        found.extend(self.findings.known());
        found.truncate(FINDINGS_MAX);
        Ok(found)
    }

    /// Makes the survey again and again.
    pub async fn run_survey(&self, survey: &Survey) -> Infallible {
        loop {
            self.findings.note(survey().await);
            sleep(REST).await;
            let _ = timeout(EVERY - REST, self.findings.asked.notified()).await;
        }
    }
}

fn unusable(why: String) -> Finding {
    Finding {
        code: "PayloadUnusable".into(),
        severity: FindingSeverity::Warning.into(),
        object: "Payload".into(),
        message: why,
        what_to_do: "mend the folder or remove it; dormer payload verify FOLDER checks it".into(),
    }
}

fn layers_unusable(why: String) -> Finding {
    Finding {
        code: "LayerUnusable".into(),
        severity: FindingSeverity::Error.into(),
        object: "WindowsPool".into(),
        message: format!("{why}. The layers as they were last read hold"),
        what_to_do: "correct the ConfigMap, or take its name out of spec.layers".into(),
    }
}

/// Machines (name and differences) that were made from an earlier template of their MachineSet.
fn of_earlier_templates(machines: &[(String, Vec<TemplateDifference>)]) -> Vec<Finding> {
    let machines = machines.iter().map(|(name, differs)| (&**name, &**differs));
    let groups = explain::outdated(machines).into_iter();
    let finding = |group: explain::OutdatedMachines<'_>| {
        let shown = group.differs.iter().take(FIELDS_MAX);
        let mut fields: Vec<String> = shown.map(ToString::to_string).collect();
        let more = group.differs.len().saturating_sub(FIELDS_MAX);
        if more > 0 {
            fields.push(format!("and {more} more fields"));
        }
        let first = group.names.first().copied().unwrap_or_default();
        Finding {
            code: "TemplateOutdated".into(),
            severity: FindingSeverity::Warning.into(),
            object: format!("Machine {first}"),
            message: format!("{} {}", group.heading(), fields.join("; ")),
            what_to_do: group.remedy(),
        }
    };
    groups.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{live::Live, plan::PlanRenderer, router};
    use axum::{
        body::{Body, to_bytes},
        http::Request,
    };
    use dormer_engine::{local::Local, memory::MemoryStore, port::SystemClock};
    use dormer_proto::id::Incarnation;
    use dormer_workers::catalog::Catalog;
    use std::sync::Arc;
    use tower::ServiceExt;

    fn finding(object: String) -> Finding {
        Finding {
            code: "NodeWithoutTaint".into(),
            severity: FindingSeverity::Warning.into(),
            object,
            message: "it has no taint os".into(),
            what_to_do: "taint it".into(),
        }
    }

    #[test]
    fn a_finding_lapses_when_a_survey_does_not_make_it_again_and_never_are_too_many() {
        let findings = Findings::default();
        findings.note(vec![finding("Node a".into()), finding("Node b".into())]);
        assert_eq!(findings.known().len(), 2);
        findings.note(vec![finding("Node b".into())]);
        assert_eq!(findings.known(), [finding("Node b".into())]);
        findings.note((0..500).map(|at| finding(format!("Node {at}"))).collect());
        assert_eq!(findings.known().len(), FINDINGS_MAX);
        findings.note(Vec::new());
        assert_eq!(findings.known(), []);
    }

    #[tokio::test]
    async fn a_payload_that_cannot_be_used_is_a_finding_until_it_is_mended() {
        let ports = Local::new(Arc::new(MemoryStore::new(Incarnation(1))), SystemClock);
        let catalog = Catalog::new(&[]).expect("the built-in profiles");
        let live = Arc::<Live>::default();
        let renderer = PlanRenderer::published(catalog.clone(), Arc::clone(&live), false);
        let api = Api::over(Arc::new(ports), live, Some(renderer));
        // As many as are shown at all.
        let of_nodes = (0..FINDINGS_MAX).map(|at| finding(format!("Node {at}")));
        api.findings.note(of_nodes.collect());
        let router = router(api);
        let read = async || {
            let request = Request::get("/api/v1/findings").body(Body::empty());
            let answer = router.clone().oneshot(request.expect("a request")).await;
            let body = to_bytes(answer.expect("an answer").into_body(), usize::MAX).await;
            String::from_utf8(body.expect("a body").to_vec()).expect("text")
        };
        let why = "the payload in /payloads/11 cannot be used: kubelet.exe is absent";
        catalog.note_unusable("/payloads/11", Some(why.into()));
        let said = read().await;
        assert!(
            said.contains("PayloadUnusable") && said.contains("kubelet.exe is absent"),
            "{said}"
        );
        catalog.note_unusable("/payloads/11", None);
        let said = read().await;
        assert!(!said.contains("PayloadUnusable"), "{said}");
    }

    /// A console that reads nothing of the cluster itself has it from a worker.
    #[tokio::test]
    async fn a_layer_that_is_not_in_force_is_a_finding_with_its_config_map() {
        use dormer_profile::cluster_config::{ClusterConfig, ClusterSnapshot};
        let live = Arc::<Live>::default();
        let catalog = Catalog::new(&[]).expect("the built-in profiles");
        let renderer = PlanRenderer::published(catalog, Arc::clone(&live), false);
        assert_eq!(renderer.layers_refused(), None);
        for (layers, refused) in [
            (
                Err("ConfigMap dormer/blue has no layer.yaml".to_owned()),
                true,
            ),
            (Ok(Vec::new()), false),
        ] {
            let snapshot = ClusterSnapshot {
                layers,
                ..ClusterSnapshot::default()
            };
            let (cluster, _) = ClusterConfig::default().with(snapshot, false);
            live.set_settings(dormer_proto::message::NodeSettings {
                api_url: String::new(),
                cluster_dns: String::new(),
                cluster_domain: String::new(),
                service_cidr: String::new(),
                exporter: false,
                cluster: cluster.published(),
            });
            let why = renderer.layers_refused();
            assert_eq!(why.is_some(), refused, "{why:?}");
            let Some(found) = why.map(layers_unusable) else {
                continue;
            };
            assert!(found.message.contains("ConfigMap dormer/blue"), "{found:?}");
        }
    }

    #[test]
    fn machines_with_equal_differences_from_their_template_are_one_finding() {
        let image = |n: usize| TemplateDifference {
            field: format!("spec.image{n}"),
            machine: Some("\"a\"".into()),
            template: Some("\"b\"".into()),
        };
        let differs: Vec<_> = (0..FIELDS_MAX + 2).map(image).collect();
        let machines = [
            ("win-a".to_owned(), differs.clone()),
            ("win-b".to_owned(), Vec::new()),
            ("win-c".to_owned(), differs),
        ];
        let found = of_earlier_templates(&machines);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].object, "Machine win-a");
        let message = &found[0].message;
        assert!(message.starts_with("win-a, win-c were made"), "{message}");
        assert!(message.ends_with("and 2 more fields"), "{message}");
        assert!(found[0].what_to_do.contains("dormer recreate win-a"));
    }
}
