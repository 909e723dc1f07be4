//! How a kubelet joins: its requests are approved by dormer, signed by the real signer, and used.

use super::{
    accounts::worker,
    ask::{
        Ask, Kubelet, OPERATOR, account, bootstrap_token, expectation, make_node, standing, there,
    },
    cluster::{Site, plane, run},
};
use dormer_proto::machine::{Outcome, Task};
use serde_json::json;

#[tokio::test]
async fn a_kubelet_joins_by_a_bootstrap_token_and_asks_for_its_serving_certificate() {
    let site = Site::new(plane!(), "join").await;
    let hands = worker(&site).await;
    let kubelet = Kubelet::new(&site);
    let token = bootstrap_token(&site, "join01").await;
    let expect = expectation("join-win-1");
    let approve = |csr: &str| Task::ApproveCsr { csr: csr.into(), expect: expect.clone() };
    let approved = |csr: &str| Ok(Outcome::CsrApproved { csr: csr.into() });

    kubelet.ask(&token, "join-client", Ask::client("join-win-1")).await.expect("it may ask");
    assert_eq!(standing(&site, "join-client").await, (vec![], false), "nobody else approves it");
    assert_eq!(run(&hands, approve("join-client")).await, approved("join-client"));
    let node = kubelet.identity("join-client").await;
    assert_eq!(run(&hands, approve("join-client")).await, approved("join-client"), "a repeat");
    assert_eq!(standing(&site, "join-client").await.0.len(), 1);

    let me = site.client(&node).await;
    make_node(&me, "join-win-1").await.expect("NodeRestriction lets a kubelet make its own Node");
    assert!(there(&site, "join-win-1").await);
    make_node(&me, "join-win-2").await.expect_err("and no other");

    let serving = Ask::serving("join-win-1", &["join-win-1", "10.0.0.7"]);
    kubelet.ask(&node, "join-serving", serving).await.expect("it may ask");
    assert_eq!(run(&hands, approve("join-serving")).await, approved("join-serving"));
    kubelet.identity("join-serving").await;

    // The Node exists: it renews its certificate itself, and a bootstrap token asks in vain.
    let mut renewal = expectation("join-win-1");
    renewal.node_uid = Some("some".into());
    let again = |csr: &str| Task::ApproveCsr { csr: csr.into(), expect: renewal.clone() };
    kubelet.ask(&node, "join-renewal", Ask::client("join-win-1")).await.expect("it may ask");
    assert_eq!(run(&hands, again("join-renewal")).await, approved("join-renewal"));
    kubelet.ask(&token, "join-late", Ask::client("join-win-1")).await.expect("it may ask");
    let refused = run(&hands, again("join-late")).await;
    assert!(
        matches!(&refused, Ok(Outcome::CsrRefused { why, .. }) if why.contains("the Node exists"))
    );
}

#[tokio::test]
async fn a_kubelet_joins_by_openshifts_account() {
    let site = Site::new(plane!(), "account").await;
    let hands = worker(&site).await;
    let kubelet = Kubelet::new(&site);
    let asker = account(&site, OPERATOR, "node-bootstrapper").await;
    kubelet.ask(&asker, "account-client", Ask::client("account-win-1")).await.expect("it may ask");
    let expect = expectation("account-win-1");
    let task = Task::ApproveCsr { csr: "account-client".into(), expect };
    let approved = Outcome::CsrApproved { csr: "account-client".into() };
    assert_eq!(run(&hands, task).await, Ok(approved));
    kubelet.identity("account-client").await;
}

#[tokio::test]
async fn a_denial_stands_and_a_request_that_is_gone_asks_again() {
    let site = Site::new(plane!(), "denied").await;
    let hands = worker(&site).await;
    let kubelet = Kubelet::new(&site);
    let token = bootstrap_token(&site, "denied").await;
    kubelet.ask(&token, "denied-client", Ask::client("denied-win-1")).await.expect("it may ask");
    let condition = json!({"type": "Denied", "status": "True", "reason": "ByAPerson"});
    kubelet.decide("denied-client", condition).await;
    let task =
        |csr: &str| Task::ApproveCsr { csr: csr.into(), expect: expectation("denied-win-1") };
    let outcome = run(&hands, task("denied-client")).await;
    assert!(matches!(&outcome, Ok(Outcome::CsrRefused { why, .. }) if why.contains("Denied")));
    let gone = Outcome::CsrApproved { csr: "denied-none".into() };
    assert_eq!(run(&hands, task("denied-none")).await, Ok(gone));
}
