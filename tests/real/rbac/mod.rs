//! Least privilege: with the rules of `deploy/rbac.yaml` every step passes. Without any one rule, the step that needs
//! it fails and names the missing right. Everything that is not granted is refused.

mod approver;
mod bench;
mod console;
mod refused;
mod rights;
mod steps;
mod watcher;
mod worker;

use super::cluster::{Site, plane};
use bench::Bench;
use dormer_testkit::Kubernetes;
use rights::{Right, rights};
use steps::{STEPS, needed_by};

#[tokio::test]
async fn each_rule_is_needed_and_together_they_suffice() {
    let bench = Bench::new(Site::new(plane!(), "rbac").await).await;
    for step in STEPS {
        Box::pin(bench.step(step))
            .await
            .unwrap_or_else(|why| panic!("{step:?} with all its rules: {why}"));
    }
    let all = rights();
    assert!(all.len() >= 30, "{}", all.len());
    for right in all.iter().filter(|right| is_asked_for(right)) {
        let (step, says) = needed_by(right);
        // Forced drains delete pods everywhere; they can be switched off.
        let wider: Vec<_> = all.iter().filter(|other| other.covers(right)).collect();
        for wider in &wider {
            bench.grant(wider, Some(wider)).await;
        }
        bench.grant(right, Some(right)).await;
        let done = Box::pin(bench.step(step)).await;
        let said = done.expect_err(&format!("{step:?} passes without {right:?}"));
        assert!(
            said.contains(&says),
            "{step:?} without {right:?} says {said}"
        );
        for taken in wider.into_iter().chain([right]) {
            bench.grant(taken, None).await;
        }
    }
    for step in STEPS {
        assert!(
            all.iter().any(|right| needed_by(right).0 == step),
            "{step:?} needs nothing"
        );
        Box::pin(bench.step(step))
            .await
            .unwrap_or_else(|why| panic!("{step:?} in the end: {why}"));
    }
}

/// Since 1.35 a command by a WebSocket needs the verb `create`, too (gate `AuthorizePodWebsocketUpgradeCreatePermission`).
fn is_asked_for(right: &Right) -> bool {
    let is_new = right.resource == "pods/exec" && right.verb == "create";
    !is_new || Kubernetes::chosen().minor() >= 35
}

#[test]
fn the_page_about_tests_counts_the_rights_and_the_refused_requests() {
    let row = format!(
        "each of {} rights removed in turn stops a named step; {} requests are refused",
        rights().len(),
        refused::FORBIDDEN.len()
    );
    let page = include_str!("../../../docs/testing.md");
    assert!(page.contains(&row), "docs/testing.md does not say: {row}");
}
