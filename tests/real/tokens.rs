//! Bootstrap token of each machine at the real API server: who may use it, and for how long.

use super::{
    accounts::{apply, home, ours, worker_beside},
    ask::{Ask, Kubelet, csr_conditions, expectation, known, make_node},
    cluster::{CSR, Kind, NODE, PATIENCE, Site, executor_with_tokens, plane, run_of},
};
use dormer_proto::machine::{MachineRef, Outcome, Task};
use dormer_testkit::{Speaker, await_condition};
use dormer_workers::{
    host::cluster::Cluster,
    kubernetes::{KubernetesExecutor, join, token},
};

const SECRET: Kind = ("", "v1", "Secret");

/// A machine's token as its worker gets it, once the API server knows it.
pub(super) async fn token_of(
    site: &Site,
    executor: &KubernetesExecutor,
    machine: &MachineRef,
) -> Speaker {
    let token = executor.token(machine).await.expect("a token");
    let speaker = Speaker::Token(token.to_string());
    known(site, &speaker, true).await;
    speaker
}

#[tokio::test]
async fn a_machine_joins_by_its_own_token_and_by_no_other() {
    let site = Site::new(plane!(), "tokens").await;
    apply(&site, |_, _| true).await;
    let approver = site.client(&ours(&site, "dormer-approver").await).await;
    let approver = executor_with_tokens(approver, home(&site)).of_approver();
    let giving = tokio::spawn(approver.clone().run_token_grants(|_| ()));
    let worker = worker_beside(&site).await;
    let first = site.provisioned("win-1").await;
    let second = site.provisioned("win-2").await;
    let mine = token_of(&site, &worker, &first).await;
    let theirs = token_of(&site, &worker, &second).await;
    let approve = |csr: &str| Task::ApproveCsr {
        csr: csr.into(),
        expect: expectation(&first),
    };

    // Only the shipped binding permits their requests, and only dormer approves them.
    let kubelet = Kubelet::new(&site);
    let thief = Kubelet::new(&site);
    kubelet
        .ask(&mine, "tokens-mine", Ask::client(&first.name))
        .await
        .expect("it may ask");
    thief
        .ask(&theirs, "tokens-theirs", Ask::client(&first.name))
        .await
        .expect("it may ask");
    assert_eq!(csr_conditions(&site, "tokens-mine").await, (vec![], false));
    // Such a token has no id that reaches the request, as an account's has. Its user has one.
    let csr = site.world.get(CSR, "", "tokens-mine").await;
    let spec = csr.expect("it is there")["spec"].clone();
    assert!(
        spec["extra"]["authentication.kubernetes.io/credential-id"].is_null(),
        "{spec}"
    );
    let own = token::user(&token::id(&home(&site), &first.uid, 0));
    assert_eq!(spec["username"], own.as_str());
    let refused = run_of(&approver, &first.uid, approve("tokens-theirs")).await;
    let other = token::user(&token::id(&home(&site), &second.uid, 0));
    let Ok(Outcome::CsrRefused { why, .. }) = &refused else {
        panic!("{refused:?}")
    };
    assert!(why.contains(&other), "{why}");
    let approved = Outcome::CsrApproved {
        csr: "tokens-mine".into(),
    };
    assert_eq!(
        run_of(&approver, &first.uid, approve("tokens-mine")).await,
        Ok(approved)
    );
    let node = kubelet.identity("tokens-mine").await;
    make_node(&site.client(&node).await, &first.name)
        .await
        .expect("its own Node");
    make_node(&site.client(&theirs).await, &second.name)
        .await
        .expect_err("a token makes none");

    site.link(&first).await;

    // The machine is a node: the token is deleted, and no longer works.
    let name = |machine: &MachineRef| {
        format!(
            "bootstrap-token-{}",
            token::id(&home(&site), &machine.uid, 0)
        )
    };
    assert!(
        site.world
            .get(SECRET, "kube-system", &name(&first))
            .await
            .is_some()
    );
    let mark = Task::MarkNode {
        machine: first.clone(),
        node: first.name.clone(),
        version: "v1".into(),
        pin: None,
        expect: None,
    };
    assert_eq!(
        run_of(&worker, &first.uid, mark).await,
        Ok(Outcome::NodeMarked)
    );
    await_condition("its token is taken away", PATIENCE, || async {
        let token = name(&first);
        let found = site.world.get(SECRET, "kube-system", &token).await;
        found.is_none()
    })
    .await;
    let join = join::namespace(&home(&site));
    let handed = async |machine: &MachineRef| {
        let name = join::name(&machine.uid);
        site.world.get(SECRET, &join, &name).await.is_some()
    };
    assert!(!handed(&first).await && handed(&second).await);
    known(&site, &mine, false).await;
    assert!(
        site.world
            .get(SECRET, "kube-system", &name(&second))
            .await
            .is_some(),
        "not joined"
    );

    // An expired token does not work either, and the next attempt gets another.
    let ended = serde_json::json!({"stringData": {"expiration": "2026-01-01T00:00:00Z"}});
    site.world
        .patch(SECRET, "kube-system", &name(&second), ended)
        .await;
    known(&site, &theirs, false).await;
    token_of(&site, &worker, &second).await;
    assert!(site.world.get(NODE, "", &second.name).await.is_none());
    site.world
        .delete(SECRET, "kube-system", &name(&second))
        .await;
    giving.abort();
    kubelet.forget_all().await;
}
