//! A payload that has no edge, one whose kubelet is too new for the API servers, and a step back.

use super::DemoScenario;
use crate::payload::payload;
use dormer_client::{Failure, server::Server};
use dormer_workers::payload::Payload;
use serde_json::{Value, json};

/// A payload beside the demonstration's two.
fn another(version: &str, kubelet: &str, may_follow: &str) -> Payload {
    let mut another = payload(1);
    another.manifest.version = version.into();
    another.manifest.kubelet = kubelet.into();
    another.manifest.may_follow = vec![may_follow.into()];
    another
}

impl DemoScenario {
    /// Waits until all machines wait, with this reason.
    async fn until_nobody_may_go(&mut self, rollout: &str, machine: &str) {
        self.until_rollout(rollout, |view| {
            view.queue.len() == 2
                && view
                    .waiting_for
                    .as_ref()
                    .is_some_and(|why| why.contains(rollout))
        })
        .await;
        self.until(machine, |scenario| {
            let waits = scenario
                .machine_runs
                .live()
                .map(|machine_run| machine_run.view.waiting_for.clone());
            waits.flatten().filter(|why| why.contains(machine)).count() == 2
        })
        .await;
    }

    async fn roll_back(&self, to: &str) -> Result<Value, Failure> {
        let server =
            Server::at(&format!("http://{}", self.environment.address())).expect("an address");
        let body = json!({"who": "ada", "why": "it crashes", "payload": to});
        server
            .post("/rollouts/windows/actions/rollback", &body)
            .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_comes_along_its_edges_and_back_by_a_persons_word() {
    let mut scenario = DemoScenario::all_joined(2).await;
    scenario.set(json!({"payload": "11.0.0"})).await;
    scenario.environment.install(1).await.expect("a payload");
    scenario
        .environment
        .catalog()
        .add(another("11.2.0", "1.33", "11.1.0"));
    scenario
        .environment
        .catalog()
        .add(another("11.3.0", "1.34", "11.0.0"));

    scenario.set(json!({"payload": "11.2.0"})).await;
    scenario
        .until_nobody_may_go("payload 11.2.0 may follow 11.1.0", "not 11.0.0")
        .await;
    scenario.set(json!({"payload": "11.3.0"})).await;
    let newer = "kubelet 1.34 is newer than the oldest API server, 1.33";
    scenario.until_nobody_may_go(newer, newer).await;
    assert_eq!(
        scenario.environment.record().max_unavailable_observed(),
        0,
        "nobody was disturbed"
    );

    scenario.set(json!({"payload": "11.1.0"})).await;
    scenario.until_all_serve(1).await;
    scenario.set(json!({"payload": "11.0.0"})).await;
    scenario
        .until_nobody_may_go("11.0.0 may follow no version", "not 11.1.0")
        .await;
    scenario.set(json!({"payload": "11.1.0"})).await;
    scenario
        .until_rollout("nobody waits", |view| view.queue.is_empty())
        .await;

    let refused = scenario
        .roll_back("10.0.0")
        .await
        .expect_err("no step back");
    assert!(
        refused
            .to_string()
            .contains("it goes back one step, to one of: 11.0.0"),
        "{refused}"
    );
    scenario.roll_back("11.0.0").await.expect("one step back");
    scenario.until_all_serve(0).await;
    let events = scenario
        .rollout()
        .await
        .and_then(|view| view.rollback)
        .expect("it is told");
    assert_eq!(
        events,
        "from 11.1.0 back to 11.0.0, asked for by ada: it crashes; written into the pool's status"
    );
    assert_eq!(
        scenario.environment.record().max_unavailable_observed(),
        1,
        "one at a time"
    );
    scenario.end().await;
}
