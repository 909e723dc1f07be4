//! The steps of SECURITY.md after a theft, on the real API server: what a stolen worker holds is worth nothing then, and a
//! new worker works. Its pods are the test's own, so that no Deployment is scaled.

use super::{
    accounts::{home, ours, unguarded},
    ask::known,
    cluster::{Kind, PATIENCE, Site, World, executor_with, plane},
    tokens::token_of,
};
use dormer_testkit::{Speaker, await_condition};
use dormer_workers::kubernetes::{Tokens, join, token};
use serde_json::json;

const SECRET: Kind = ("", "v1", "Secret");
const ACCOUNT: Kind = ("", "v1", "ServiceAccount");
const WORKER: &str = "dormer-worker";

/// Whether this account reads the key of Windows hosts.
async fn reads_the_key(site: &Site, account: &Speaker) -> bool {
    let world = World {
        admin: site.client(account).await,
    };
    let secrets = world.api(SECRET, &home(site));
    secrets.get("cloud-private-key").await.is_ok()
}

/// Takes the steps 2 and 3 after a stolen worker, while a machine joins by a token of this kind.
async fn after_the_steps(site: Site, tokens: Tokens) {
    unguarded(&site, |_, _| true).await;
    let home = home(&site);
    let world = site.world.clone();
    let key = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "cloud-private-key", "namespace": home},
        "stringData": {"private-key.pem": "a key"}});
    world.create(key).await;
    let approver = site.client(&ours(&site, "dormer-approver").await).await;
    let approver = executor_with(tokens, approver, home.clone()).of_approver();
    let giving = tokio::spawn(approver.run_token_grants(|_| ()));
    let stolen = ours(&site, WORKER).await;
    let worker = executor_with(tokens, site.client(&stolen).await, home.clone()).of_worker();
    let machine = site.provisioned("win-1").await;
    let of_machine = token_of(&site, &worker, &machine).await;
    assert!(reads_the_key(&site, &stolen).await, "what was stolen");

    // kubectl delete serviceaccount dormer-worker -n dormer, then deploy/rbac.yaml again.
    world.delete(ACCOUNT, &home, WORKER).await;
    let again = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": WORKER, "namespace": home}});
    await_condition("the account is made again", PATIENCE, || async {
        world.try_create(again.clone()).await.is_ok()
    })
    .await;
    known(&site, &stolen, false).await;
    assert!(!reads_the_key(&site, &stolen).await);

    // kubectl delete secret -n dormer-join --all
    let joining = join::namespace(&home);
    known(&site, &of_machine, true).await;
    for secret in world.list(SECRET, &joining).await {
        let name = secret["metadata"]["name"].as_str().expect("a name");
        world.delete(SECRET, &joining, name).await;
    }
    known(&site, &of_machine, false).await;
    if tokens == Tokens::Bootstrap {
        let name = format!("bootstrap-token-{}", token::id(&home, &machine.uid, 0));
        await_condition("the approver takes the token away", PATIENCE, || async {
            world.get(SECRET, "kube-system", &name).await.is_none()
        })
        .await;
    }

    // The new worker has its rights, and the machine joins by another token.
    let new = ours(&site, WORKER).await;
    assert!(reads_the_key(&site, &new).await);
    let worker = executor_with(tokens, site.client(&new).await, home).of_worker();
    let next = token_of(&site, &worker, &machine).await;
    let text = |speaker: &Speaker| match speaker {
        Speaker::Token(token) => token.clone(),
        Speaker::Certificate(_) => unreachable!("a machine has a token"),
    };
    assert_ne!(text(&next), text(&of_machine));
    giving.abort();
}

#[tokio::test]
async fn after_a_stolen_worker_its_account_and_the_tokens_of_the_account_end() {
    after_the_steps(Site::new(plane!(), "stolenaccount").await, Tokens::Account).await;
}

#[tokio::test]
async fn after_a_stolen_worker_its_account_and_the_bootstrap_tokens_end() {
    after_the_steps(Site::new(plane!(), "stolenboot").await, Tokens::Bootstrap).await;
}
