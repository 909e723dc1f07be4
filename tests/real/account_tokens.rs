//! Tokens of dormer's account for kubelets at the real API server: whose request each opens, and when it ends.

use super::{
    accounts::{alone, guard, home, ours, token, unguarded, worker_beside},
    ask::{Ask, Kubelet, OPERATOR, account, csr_conditions, expectation, known, make_node},
    cluster::{CSR, Kind, PATIENCE, Site, World, executor_with, plane, run_of},
    store_lease::start_alone,
    tokens::token_of,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use dormer_proto::machine::{MachineRef, Outcome, Task};
use dormer_testkit::{Speaker, await_condition, await_some};
use dormer_workers::{
    host::cluster::Cluster,
    kubernetes::{KubernetesExecutor, Tokens, account_token, join},
};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::convert::Infallible;

const SECRET: Kind = ("", "v1", "Secret");

/// Claims of a token of an account.
fn claims(token: &Speaker) -> Value {
    let Speaker::Token(token) = token else {
        panic!("a token")
    };
    let claims = token.split('.').nth(1).expect("a JWT");
    let claims = URL_SAFE_NO_PAD.decode(claims).expect("base64");
    serde_json::from_slice(&claims).expect("JSON")
}

/// Its id, as a request carries it.
fn id_of(token: &Speaker) -> String {
    format!("JTI={}", claims(token)["jti"].as_str().expect("an id"))
}

/// The id of the credential that made a request.
async fn asked_with(site: &Site, csr: &str) -> Value {
    let csr = site.world.get(CSR, "", csr).await.expect("it is there");
    csr["spec"]["extra"]["authentication.kubernetes.io/credential-id"].clone()
}

#[tokio::test]
async fn a_request_carries_the_id_of_the_very_token_that_asked() {
    let site = Site::new(plane!(), "credential").await;
    let kubelet = Kubelet::new(&site);
    let mut seen = Vec::new();
    for name in ["credential-one", "credential-two"] {
        let speaker = account(&site, OPERATOR, "credential-joins").await;
        await_some("it may ask", PATIENCE, || async {
            let asked = kubelet.ask(&speaker, name, Ask::client("win-1")).await;
            asked.ok()
        })
        .await;
        let id = id_of(&speaker);
        assert_eq!(asked_with(&site, name).await, json!([id]));
        seen.push(id);
    }
    assert_ne!(seen[0], seen[1], "two tokens of one account");
    kubelet.forget_all().await;
}

/// A dormer that makes machines tokens of its account, with the rules as shipped.
pub(super) struct ByAccount {
    pub(super) site: Site,
    approver: KubernetesExecutor,
    pub(super) worker: KubernetesExecutor,
    pub(super) giving: tokio::task::JoinHandle<Infallible>,
}

impl ByAccount {
    pub(super) async fn new(site: Site) -> Self {
        guard(&site).await;
        let by = Self::unguarded(site).await;
        // The API server follows policies by a watch.
        let written = json!({"apiVersion": "v1", "kind": "Secret", "type": join::TYPE,
            "metadata": {"name": "join-written", "namespace": by.join()},
            "stringData": {"token": "a.b"}});
        let written = serde_json::from_value(written).expect("a Secret");
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let worker = by.site.client(&ours(&by.site, "dormer-worker").await).await;
        let secrets = World { admin: worker }.api(SECRET, &by.join());
        await_condition("the policies hold", PATIENCE, || async {
            let said = secrets.create(&dry, &written).await;
            said.is_err_and(|why| why.to_string().contains("the approver writes it"))
        })
        .await;
        by
    }

    /// The same without the admission policies.
    async fn unguarded(site: Site) -> Self {
        unguarded(&site, |_, _| true).await;
        let approver = site.client(&ours(&site, "dormer-approver").await).await;
        let approver = executor_with(Tokens::Account, approver, home(&site)).of_approver();
        let giving = tokio::spawn(approver.clone().run_token_grants(|_| ()));
        let worker = worker_beside(&site).await;
        Self {
            site,
            approver,
            worker,
            giving,
        }
    }

    /// What the approver says of a client's request in a machine's name.
    pub(super) async fn judged(
        &self,
        by: &Speaker,
        csr: &str,
        machine: &MachineRef,
    ) -> Result<(), String> {
        let kubelet = Kubelet::new(&self.site);
        kubelet
            .ask(by, csr, Ask::client(&machine.name))
            .await
            .expect("it may ask");
        let task = Task::ApproveCsr {
            csr: csr.into(),
            expect: expectation(machine),
        };
        match run_of(&self.approver, &machine.uid, task).await {
            Ok(Outcome::CsrApproved { .. }) => Ok(()),
            Ok(Outcome::CsrRefused { why, .. }) => Err(why),
            other => panic!("{other:?}"),
        }
    }

    fn join(&self) -> String {
        join::namespace(&home(&self.site))
    }

    /// Writes other ids into the Secret of a machine, as they are after a time.
    async fn remember(&self, machine: &MachineRef, ids: String) {
        let change = json!({"stringData": {join::CREDENTIALS: ids}});
        let name = join::name(&machine.uid);
        self.site
            .world
            .patch(SECRET, &self.join(), &name, change)
            .await;
    }
}

#[tokio::test]
async fn a_machine_joins_by_a_token_of_the_account_that_was_made_for_it() {
    let by = ByAccount::new(Site::new(plane!(), "byaccount").await).await;
    let site = &by.site;
    let first = site.provisioned("win-1").await;
    let second = site.provisioned("win-2").await;
    let mine = token_of(site, &by.worker, &first).await;
    let theirs = token_of(site, &by.worker, &second).await;
    let (name, uid) = (join::name(&first.uid), |secret: Option<Value>| {
        secret.expect("it is there")["metadata"]["uid"].clone()
    });
    let said = claims(&mine);
    let bound = &said["kubernetes.io"]["secret"];
    assert_eq!(bound["name"], name.as_str(), "{said}");
    let secret = site.world.get(SECRET, &by.join(), &name).await;
    assert_eq!(bound["uid"], uid(secret), "{said}");
    let time = |claim: &str| said[claim].as_i64().expect("a time");
    assert!(time("exp") - time("iat") <= 3_600, "{said}");
    // Each order asks anew. While the token lasts it stays, because the host may have it already.
    assert_eq!(
        id_of(&mine),
        id_of(&token_of(site, &by.worker, &first).await)
    );

    // A neighbour's token, and one of the account that was made for no machine.
    let not_made = "a token that was not made for this machine";
    let why = by.judged(&theirs, "byaccount-theirs", &first).await;
    assert!(
        why.as_ref().is_err_and(|it| it.contains(not_made)),
        "{why:?}"
    );
    let stray = token(site, &by.join(), account_token::ACCOUNT).await;
    let why = by.judged(&stray, "byaccount-stray", &first).await;
    assert!(
        why.as_ref().is_err_and(|it| it.contains(not_made)),
        "{why:?}"
    );

    // The next order brings another token, and a late request by the one before still counts.
    let until = |minutes| jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes);
    by.remember(&first, format!("{} {}\n", id_of(&mine), until(5)))
        .await;
    let next = token_of(site, &by.worker, &first).await;
    assert_ne!(id_of(&mine), id_of(&next));
    assert_eq!(by.judged(&mine, "byaccount-late", &first).await, Ok(()));
    assert_eq!(
        asked_with(site, "byaccount-late").await,
        json!([id_of(&mine)])
    );
    let kept = format!("{} {}\n", id_of(&next), until(50));
    let ended = format!("{} {}\n{kept}", id_of(&mine), until(-61));
    by.remember(&first, ended).await;
    let why = by.judged(&mine, "byaccount-ended", &first).await;
    assert!(
        why.as_ref().is_err_and(|it| it.contains(not_made)),
        "{why:?}"
    );

    let kubelet = Kubelet::new(site);
    kubelet
        .ask(&next, "byaccount-next", Ask::client(&first.name))
        .await
        .expect("it may ask");
    let approve = Task::ApproveCsr {
        csr: "byaccount-next".into(),
        expect: expectation(&first),
    };
    let approved = Outcome::CsrApproved {
        csr: "byaccount-next".into(),
    };
    assert_eq!(
        run_of(&by.approver, &first.uid, approve).await,
        Ok(approved)
    );
    let node = kubelet.identity("byaccount-next").await;
    make_node(&site.client(&node).await, &first.name)
        .await
        .expect("its own Node");
    make_node(&site.client(&theirs).await, &second.name)
        .await
        .expect_err("a token makes none");
    site.link(&first).await;

    // The machine is a node: its Secret is deleted, and with it both tokens end. The other machine's does not.
    let mark = Task::MarkNode {
        machine: first.clone(),
        node: first.name.clone(),
        version: "v1".into(),
        pin: None,
        expect: None,
    };
    assert_eq!(
        run_of(&by.worker, &first.uid, mark).await,
        Ok(Outcome::NodeMarked)
    );
    known(site, &next, false).await;
    known(site, &mine, false).await;
    known(site, &theirs, true).await;
    by.giving.abort();
    kubelet.forget_all().await;
}

/// One process that is worker and approver makes the Secret and answers it, and asks with the same ids.
#[tokio::test]
async fn one_process_alone_makes_tokens_of_the_account_too() {
    let by = ByAccount::new(Site::new(plane!(), "accountalone").await).await;
    by.giving.abort();
    let machine = by.site.provisioned("win-1").await;
    let admin = by.site.world.admin.clone();
    let alone = executor_with(Tokens::Account, admin, home(&by.site));
    let token = token_of(&by.site, &alone, &machine).await;
    assert_eq!(
        id_of(&token),
        id_of(&token_of(&by.site, &alone, &machine).await)
    );
    assert_eq!(
        by.judged(&token, "accountalone-mine", &machine).await,
        Ok(())
    );
    let joined = by.site.joined("win-2").await;
    let failure = alone.token(&joined).await.expect_err("it has joined");
    assert_eq!(failure.code, join::TOKEN_REFUSED, "{failure:?}");
    Kubelet::new(&by.site).forget_all().await;
}

/// With one process for all roles no approver runs, and a machine that vanished while it joined leaves its Secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_alone_deletes_the_secrets_of_machines_that_never_joined() {
    let site = Site::new(plane!(), "abandoned").await;
    unguarded(&site, |_, _| true).await;
    let kubeconfig = alone(&site).await;
    let namespace = join::namespace(&home(&site));
    let abandoned = async |uid: &str, by: &str, until: &str| {
        let labels =
            json!({"app.kubernetes.io/managed-by": "dormer", "app.kubernetes.io/instance": by});
        let annotations = json!({join::ASKED: "1", join::ANSWERED: "1", join::UNTIL: until});
        let metadata = json!({"name": join::name(uid), "namespace": namespace, "labels": labels,
            "annotations": annotations});
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "type": join::TYPE, "metadata": metadata});
        site.world.create(secret).await;
    };
    let there = async |uid: &str| {
        let found = site.world.get(SECRET, &namespace, &join::name(uid)).await;
        found.is_some()
    };
    let past = "2026-01-01T00:00:00Z";
    let home = home(&site);
    abandoned("of-another", "another-dormer", past).await;
    abandoned("due", &home, "2100-01-01T00:00:00Z").await;
    abandoned("before", &home, past).await;
    let folder = dormer_testkit::test_dir("abandoned");
    let mut dormer = start_alone(&site, &folder, &kubeconfig, &["--account-tokens"]);
    await_condition("what is there at the start", PATIENCE, || async {
        !there("before").await
    })
    .await;
    abandoned("later", &home, past).await;
    await_condition("what comes later", PATIENCE, || async {
        !there("later").await
    })
    .await;
    assert!(there("due").await && there("of-another").await);
    dormer.terminate().expect("it ends");
    let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
    let lacks = log
        .lines()
        .find(|line| line.contains("requests for bootstrap tokens"));
    assert_eq!(lacks, None);
}

/// "Owns a worker" and a Windows host that joins: whether a certificate in another machine's name is issued for the host,
/// once the worker's account has put the id of the host's token beside that machine's.
async fn ids_are_written_for(by: &ByAccount) -> bool {
    let site = &by.site;
    let victim = site.provisioned("win-1").await;
    let host = site.provisioned("win-2").await;
    token_of(site, &by.worker, &victim).await;
    let token = token_of(site, &by.worker, &host).await;
    let ids = format!("{} 2100-01-01T00:00:00Z\n", id_of(&token));
    let change = json!({"stringData": {join::CREDENTIALS: ids}});
    let worker = site.client(&ours(site, "dormer-worker").await).await;
    let written = World { admin: worker }
        .api(SECRET, &by.join())
        .patch(
            &join::name(&victim.uid),
            &PatchParams::default(),
            &Patch::Merge(&change),
        )
        .await;
    let csr = format!("{}-victim", site.name);
    let judged = by.judged(&token, &csr, &victim).await;
    assert_eq!(written.is_ok(), judged.is_ok(), "{written:?} {judged:?}");
    if judged.is_ok() {
        await_condition("it is signed", PATIENCE, || async {
            csr_conditions(site, &csr).await.1
        })
        .await;
    }
    let issued = csr_conditions(site, &csr).await.1;
    by.giving.abort();
    Kubelet::new(site).forget_all().await;
    issued
}

#[tokio::test]
async fn a_worker_that_writes_ids_gets_another_machines_name_only_without_the_policies() {
    let open = ByAccount::unguarded(Site::new(plane!(), "idsopen").await).await;
    assert!(ids_are_written_for(&open).await);
    let held = ByAccount::new(Site::new(plane!(), "idsheld").await).await;
    assert!(!ids_are_written_for(&held).await);
}
