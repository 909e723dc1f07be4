//! How a kubelet joins: its requests are approved by dormer, signed by the real signer, and used.

use super::{
    accounts::{ours, worker},
    ask::{
        Ask, Kubelet, OPERATOR, account, bootstrap_token, csr_conditions, expectation, make_node,
        there,
    },
    cluster::{MACHINE, Site, plane, run},
    watching::Watching,
};
use dormer_proto::machine::{Fact, Outcome, Task};
use dormer_workers::kubernetes::keys;
use futures::{StreamExt, stream};
use serde_json::json;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_kubelet_joins_by_a_bootstrap_token_and_asks_for_its_serving_certificate() {
    let site = Site::new(plane!(), "join").await;
    let executor = worker(&site).await;
    let kubelet = Kubelet::new(&site);
    let token = bootstrap_token(&site, "join01").await;
    let expect = expectation("join-win-1");
    let approve = |csr: &str| Task::ApproveCsr {
        csr: csr.into(),
        expect: expect.clone(),
    };
    let approved = |csr: &str| Ok(Outcome::CsrApproved { csr: csr.into() });

    kubelet
        .ask(&token, "join-client", Ask::client("join-win-1"))
        .await
        .expect("it may ask");
    assert_eq!(
        csr_conditions(&site, "join-client").await,
        (vec![], false),
        "nobody else approves it"
    );
    assert_eq!(
        run(&executor, approve("join-client")).await,
        approved("join-client")
    );
    let node = kubelet.identity("join-client").await;
    assert_eq!(
        run(&executor, approve("join-client")).await,
        approved("join-client"),
        "a repeat"
    );
    assert_eq!(csr_conditions(&site, "join-client").await.0.len(), 1);

    let me = site.client(&node).await;
    make_node(&me, "join-win-1")
        .await
        .expect("NodeRestriction lets a kubelet make its own Node");
    assert!(there(&site, "join-win-1").await);
    make_node(&me, "join-win-2")
        .await
        .expect_err("and no other");

    let serving = Ask::serving("join-win-1", &["join-win-1", "10.0.0.7"]);
    kubelet
        .ask(&node, "join-serving", serving)
        .await
        .expect("it may ask");
    assert_eq!(
        run(&executor, approve("join-serving")).await,
        approved("join-serving")
    );
    kubelet.identity("join-serving").await;

    // The Node exists: it renews its certificate itself, and a bootstrap token asks in vain.
    let mut renewal = expectation("join-win-1");
    renewal.node_uid = Some("some".into());
    let again = |csr: &str| Task::ApproveCsr {
        csr: csr.into(),
        expect: renewal.clone(),
    };
    kubelet
        .ask(&node, "join-renewal", Ask::client("join-win-1"))
        .await
        .expect("it may ask");
    assert_eq!(
        run(&executor, again("join-renewal")).await,
        approved("join-renewal")
    );
    kubelet
        .ask(&token, "join-late", Ask::client("join-win-1"))
        .await
        .expect("it may ask");
    let refused = run(&executor, again("join-late")).await;
    assert!(
        matches!(&refused, Ok(Outcome::CsrRefused { why, .. }) if why.contains("the Node exists"))
    );
}

#[tokio::test]
async fn a_kubelet_joins_by_openshifts_account() {
    let site = Site::new(plane!(), "account").await;
    let executor = worker(&site).await;
    let kubelet = Kubelet::new(&site);
    let asker = account(&site, OPERATOR, "node-bootstrapper").await;
    kubelet
        .ask(&asker, "account-client", Ask::client("account-win-1"))
        .await
        .expect("it may ask");
    let expect = expectation("account-win-1");
    let task = Task::ApproveCsr {
        csr: "account-client".into(),
        expect,
    };
    let approved = Outcome::CsrApproved {
        csr: "account-client".into(),
    };
    assert_eq!(run(&executor, task).await, Ok(approved));
    kubelet.identity("account-client").await;
}

#[tokio::test]
async fn a_denial_is_final_and_a_vanished_request_is_made_again() {
    let site = Site::new(plane!(), "denied").await;
    let executor = worker(&site).await;
    let kubelet = Kubelet::new(&site);
    let token = bootstrap_token(&site, "denied").await;
    kubelet
        .ask(&token, "denied-client", Ask::client("denied-win-1"))
        .await
        .expect("it may ask");
    let condition = json!({"type": "Denied", "status": "True", "reason": "ByAPerson"});
    kubelet.decide("denied-client", condition).await;
    let task = |csr: &str| Task::ApproveCsr {
        csr: csr.into(),
        expect: expectation("denied-win-1"),
    };
    let outcome = run(&executor, task("denied-client")).await;
    assert!(matches!(&outcome, Ok(Outcome::CsrRefused { why, .. }) if why.contains("Denied")));
    let gone = Outcome::CsrApproved {
        csr: "denied-none".into(),
    };
    assert_eq!(run(&executor, task("denied-none")).await, Ok(gone));
}

/// Waits until so many requests are nobody's, and that none of them was told to the machine.
async fn nobodys(watching: &Watching, count: usize, csr: &str) {
    watching
        .until_status("it is nobody's", |status| status.foreign_csrs >= count)
        .await;
    let messages = format!("{:?}", watching.published.0.borrow().messages);
    assert!(!messages.contains(csr), "{csr} was told to somebody");
}

#[tokio::test]
async fn a_stolen_token_and_a_kubelet_whose_machine_is_gone_get_nothing() {
    let site = Site::new(plane!(), "stories").await;
    let executor = worker(&site).await;
    let token = bootstrap_token(&site, "stolen").await;
    let machine = site.machine("win-1").await;
    let name = json!({"metadata": {"annotations": {keys::NODE_NAME: machine.name}}});
    site.world
        .patch(MACHINE, &machine.namespace, &machine.name, name)
        .await;
    let client = site.client(&ours(&site, "dormer-watcher").await).await;
    let watching = Watching::start(&site, client);
    let task = |csr: &str| Task::ApproveCsr {
        csr: csr.into(),
        expect: expectation(&machine.name),
    };

    // The kubelet joins as it should.
    let kubelet = Kubelet::new(&site);
    kubelet
        .ask(&token, "stories-first", Ask::client(&machine.name))
        .await
        .expect("it may ask");
    let published = |csr: &'static str| {
        let uid = machine.uid.clone();
        move |published: &super::watching::PublishedMessages| {
            published.machine(
                &uid,
                |fact| matches!(fact, Fact::Csr(seen) if seen.name == csr),
            )
        }
    };
    watching
        .until("the first", published("stories-first"))
        .await
        .expect("it is told");
    run(&executor, task("stories-first"))
        .await
        .expect("approved");
    let node = kubelet.identity("stories-first").await;
    make_node(&site.client(&node).await, &machine.name)
        .await
        .expect("its own Node");

    // Whoever stole its bootstrap token asks in the name of a control-plane node: no machine of dormer's is told.
    let thief = Kubelet::new(&site);
    thief
        .ask(&token, "stories-thief", Ask::client("stories-master-0"))
        .await
        .expect("it may ask");
    nobodys(&watching, 1, "stories-thief").await;
    // And in the name of the node that serves: the run is told, and the worker refuses.
    thief
        .ask(&token, "stories-again", Ask::client(&machine.name))
        .await
        .expect("it may ask");
    watching
        .until("the second", published("stories-again"))
        .await
        .expect("it is told");
    let mut served = expectation(&machine.name);
    served.node_uid = Some("a-uid".into());
    let again = Task::ApproveCsr {
        csr: "stories-again".into(),
        expect: served,
    };
    let refused = run(&executor, again).await;
    assert!(
        matches!(&refused, Ok(Outcome::CsrRefused { why, .. }) if why.contains("the Node exists"))
    );

    // The Machine goes, and its kubelet, which still has its certificate, would like another.
    let free = json!({"metadata": {"finalizers": null}});
    site.world
        .patch(MACHINE, &machine.namespace, &machine.name, free)
        .await;
    site.world
        .delete(MACHINE, &machine.namespace, &machine.name)
        .await;
    watching
        .until("it is gone", |published| published.machines().is_empty())
        .await
        .expect("it is told");
    let serving = Ask::serving(&machine.name, &[&machine.name]);
    kubelet
        .ask(&node, "stories-renewal", Ask::client(&machine.name))
        .await
        .expect("it may ask");
    kubelet
        .ask(&node, "stories-serving", serving)
        .await
        .expect("it may ask");
    nobodys(&watching, 3, "stories-renewal").await;
    for csr in [
        "stories-thief",
        "stories-again",
        "stories-renewal",
        "stories-serving",
    ] {
        let (conditions, signed) = csr_conditions(&site, csr).await;
        assert!(
            !conditions.iter().any(|c| c["type"] == "Approved") && !signed,
            "{csr}"
        );
    }
    watching.stop().await;
    kubelet.forget_all().await;
}

/// Requests that nobody means to approve, and how many of them are made side by side.
const JUNK: (usize, usize) = (1_000, 16);
/// How long one that should be approved may take with all of them waiting, from its making to its certificate.
const USUAL: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_thousand_junk_requests_do_not_hold_up_a_good_one() {
    let site = Site::new(plane!(), "junk").await;
    let executor = worker(&site).await;
    let token = bootstrap_token(&site, "junk00").await;
    let machine = site.machine("win-1").await;
    let name = json!({"metadata": {"annotations": {keys::NODE_NAME: machine.name}}});
    site.world
        .patch(MACHINE, &machine.namespace, &machine.name, name)
        .await;
    let client = site.client(&ours(&site, "dormer-watcher").await).await;
    let watching = Watching::start(&site, client);
    let kubelet = Kubelet::new(&site);
    let asker = site.client(&token).await;
    let ask = Ask::client("junk-win-10");
    let made = stream::iter(0..JUNK.0).map(|n| {
        let kubelet = &kubelet;
        let asker = &asker;
        let ask = &ask;
        async move {
            kubelet
                .ask_by(asker, &format!("junk-{n}"), ask)
                .await
                .expect("it may ask")
        }
    });
    made.buffer_unordered(JUNK.1).collect::<Vec<()>>().await;
    watching
        .until_status("they are counted", |status| status.foreign_csrs >= JUNK.0)
        .await;
    let began = Instant::now();
    let good = Ask::client(&machine.name);
    kubelet
        .ask_by(&asker, "junk-good", &good)
        .await
        .expect("it may ask");
    let published = watching.until("the good one", |published| {
        published.machine(
            &machine.uid,
            |fact| matches!(fact, Fact::Csr(csr) if csr.name == "junk-good"),
        )
    });
    published.await.expect("it is told");
    let task = Task::ApproveCsr {
        csr: "junk-good".into(),
        expect: expectation(&machine.name),
    };
    let approved = Outcome::CsrApproved {
        csr: "junk-good".into(),
    };
    assert_eq!(run(&executor, task).await, Ok(approved));
    kubelet.identity("junk-good").await;
    assert!(began.elapsed() < USUAL, "it took {:?}", began.elapsed());
    let messages = format!("{:?}", watching.published.0.borrow().messages);
    assert!(
        !messages.contains("junk-999"),
        "the others are nobody's business"
    );
    watching.stop().await;
    kubelet.forget_all().await;
}
