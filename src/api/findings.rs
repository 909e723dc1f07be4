//! Findings about the cluster around. They are made again once a minute, and sooner while they are read.

use super::Api;
use dormer_views::finding::Finding;
use futures::future::BoxFuture;
use std::{
    convert::Infallible,
    sync::{Mutex, PoisonError},
    time::Duration,
};
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
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    fn note(&self, mut found: Vec<Finding>) {
        found.truncate(FINDINGS_MAX);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
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
    /// Makes the survey again and again.
    pub async fn run_survey(&self, survey: &Survey) -> Infallible {
        loop {
            self.findings.note(survey().await);
            sleep(REST).await;
            let _ = timeout(EVERY - REST, self.findings.asked.notified()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_views::finding::FindingSeverity;

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
}
