//! "Owns a Windows host, before and after it joined": what a host does with the credentials that it has. Each attack
//! succeeds where its defence is taken away, and fails where it is there; the API server's own objects say which.

use super::{
    account_tokens::ByAccount,
    accounts::{apply, approver, cloud_nodes, worker_beside},
    ask::{Ask, Kubelet, OPERATOR, account, csr_conditions, expectation, make_node, served, there},
    cluster::{CSR, NODE, PATIENCE, Site, World, plane, run_of},
    tokens::token_of,
};
use dormer_proto::machine::{MachineRef, Outcome, Task};
use dormer_testkit::{Speaker, await_condition};
use dormer_workers::host::cluster::{CloudToken, Cluster};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

/// Before it joined: the name of another machine whose first request is due. With one token for all machines it becomes
/// that machine's Node.
#[tokio::test]
async fn a_host_that_joins_takes_another_machines_name_only_with_one_token_for_all() {
    let open = Site::new(plane!(), "oneforall").await;
    let executor = approver(&open).await;
    let victim = open.provisioned("win-1").await;
    let shared = account(&open, OPERATOR, "node-bootstrapper").await;
    let host = Kubelet::new(&open);
    let csr = "oneforall-taken";
    host.ask(&shared, csr, Ask::client(&victim.name))
        .await
        .expect("it may ask");
    let task = Task::ApproveCsr {
        csr: csr.into(),
        expect: expectation(&victim),
    };
    let done = run_of(&executor, &victim.uid, task).await;
    assert_eq!(done, Ok(Outcome::CsrApproved { csr: csr.into() }));
    let stolen = host.identity(csr).await;
    make_node(&open.client(&stolen).await, &victim.name)
        .await
        .expect("the host is that node");
    assert!(there(&open, &victim.name).await);
    host.forget_all().await;

    let held = ByAccount::new(Site::new(plane!(), "eachitsown").await).await;
    let victim = held.site.provisioned("win-1").await;
    let own = held.site.provisioned("win-2").await;
    let token = token_of(&held.site, &held.worker, &own).await;
    let said = held.judged(&token, "eachitsown-taken", &victim).await;
    assert!(said.is_err(), "{said:?}");
    let (conditions, signed) = csr_conditions(&held.site, "eachitsown-taken").await;
    assert!(conditions.is_empty() && !signed, "{conditions:?}");
    assert!(!there(&held.site, &victim.name).await);
    held.giving.abort();
    Kubelet::new(&held.site).forget_all().await;
}

/// After it joined: the token that it joined by reads every certificate request, and asks for more. It ends when the Node is
/// marked, and not before.
#[tokio::test]
async fn a_host_that_has_joined_uses_its_token_only_until_its_node_is_marked() {
    let by = ByAccount::new(Site::new(plane!(), "tokenkept").await).await;
    let site = &by.site;
    let machine = site.provisioned("win-1").await;
    let token = token_of(site, &by.worker, &machine).await;
    let host = World {
        admin: site.client(&token).await,
    };
    assert_eq!(by.judged(&token, "tokenkept-joins", &machine).await, Ok(()));
    site.node(&machine.name).await;
    site.link(&machine).await;
    let all = ListParams::default();
    let read = host.api(CSR, "").list(&all).await.expect("it may read");
    assert!(
        read.items
            .iter()
            .any(|csr| csr.metadata.name.as_deref() == Some("tokenkept-joins"))
    );

    let mark = Task::MarkNode {
        machine: machine.clone(),
        node: machine.name.clone(),
        version: "v1".into(),
        pin: None,
        expect: None,
    };
    let marked = run_of(&by.worker, &machine.uid, mark).await;
    assert_eq!(marked, Ok(Outcome::NodeMarked));
    await_condition("its token ends", PATIENCE, || async {
        let said = host.api(CSR, "").list(&all).await;
        matches!(said, Err(kube::Error::Api(status)) if status.code == 401)
    })
    .await;
    by.giving.abort();
    Kubelet::new(site).forget_all().await;
}

/// Asks, as a node, for a serving certificate with the address of another computer.
async fn asks_for_an_address<'a>(site: &'a Site, machine: &MachineRef, csr: &str) -> Kubelet<'a> {
    let node = format!("system:node:{}", machine.name);
    let node = site.plane.user(&node, Some("system:nodes"));
    let kubelet = Kubelet::new(site);
    kubelet
        .ask(&node, csr, Ask::serving(&machine.name, &["10.0.0.1"]))
        .await
        .expect("a node may ask");
    kubelet
}

/// After it joined: the address of another computer in its serving certificate. An approver that compares nothing gives it
/// that; dormer compares the Machine.
#[tokio::test]
async fn a_node_gets_anothers_address_only_from_who_does_not_compare_it() {
    let site = Site::new(plane!(), "address").await;
    let executor = approver(&site).await;
    let machine = site.joined("win-1").await;
    let kubelet = asks_for_an_address(&site, &machine, "address-open").await;
    let yes = json!({"type": "Approved", "status": "True", "reason": "Unseen"});
    kubelet.decide("address-open", yes).await;
    await_condition("it is signed", PATIENCE, || async {
        csr_conditions(&site, "address-open").await.1
    })
    .await;

    asks_for_an_address(&site, &machine, "address-held").await;
    let task = Task::ApproveCsr {
        csr: "address-held".into(),
        expect: served(&site, &machine).await,
    };
    let answer = run_of(&executor, &machine.uid, task).await;
    let Ok(Outcome::CsrRefused { why, .. }) = &answer else {
        panic!("{answer:?}")
    };
    assert!(why.contains("10.0.0.1"), "{why}");
    let (conditions, signed) = csr_conditions(&site, "address-held").await;
    assert!(conditions.is_empty() && !signed, "{conditions:?}");
    kubelet.forget_all().await;
}

/// After it joined: the Node of a neighbour, by the token of its cloud-node-manager.
#[tokio::test]
async fn a_host_changes_its_neighbours_node_only_without_the_policy() {
    let site = Site::new(plane!(), "neighbour").await;
    apply(&site, |_, _| true).await;
    cloud_nodes(&site).await;
    let mine = site.joined("mine").await;
    let theirs = site.joined("theirs").await;
    let worker = worker_beside(&site).await;
    let given = worker.cloud_token(&mine.name, true).await;
    let Ok(CloudToken::New { token, .. }) = given else {
        panic!("no token")
    };
    let host = site.client(&Speaker::Token(token.to_string())).await;
    let nodes = World { admin: host }.api(NODE, "");
    let change = json!({"metadata": {"labels": {"example.com/taken": "1"}}});
    let tries = async |dry_run| {
        let params = PatchParams {
            dry_run,
            ..PatchParams::default()
        };
        let change = Patch::Merge(&change);
        let done = nodes.patch(&theirs.name, &params, &change);
        done.await.map(drop).map_err(|why| why.to_string())
    };
    let taken = async || {
        let node = site.node_now(&theirs).await;
        node["metadata"]["labels"]["example.com/taken"] == "1"
    };
    // The API server follows roles and policies by a watch.
    let refused = |said: &Result<(), String>| {
        said.as_ref()
            .is_err_and(|why| why.contains("its own Node only"))
    };
    await_condition("the policy refuses it", PATIENCE, || async {
        refused(&tries(true).await)
    })
    .await;
    let said = tries(false).await;
    assert!(refused(&said), "{said:?}");
    assert!(!taken().await);

    let binding = (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
    );
    let policy = "neighbour-guard-cloud-nodes";
    site.world.delete(binding, "", policy).await;
    await_condition("without the policy it is done", PATIENCE, || async {
        tries(false).await.is_ok()
    })
    .await;
    assert!(taken().await);
}
