//! Scenarios, and the API server on which each runs.

use super::{
    super::cluster::{CSR, MACHINE},
    crew::{Crew, install},
    ground::{Ground, uids},
};
use dormer_fleet::world::Tally;
use dormer_testkit::{skip, started};
use dormer_workers::kubernetes::{Tokens, account_token, join, keys, token};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What adoption must not do.
pub(super) fn disturbed(before: Tally, after: Tally) -> [u64; 5] {
    [
        after.pods_evicted - before.pods_evicted,
        after.pods_deleted - before.pods_deleted,
        after.kubelet_restarts - before.kubelet_restarts,
        after.machines_deleted - before.machines_deleted,
        after.converges_with_change - before.converges_with_change,
    ]
}

/// Two machines come up, are recreated one at a time by an upgrade, and one that a person deletes is replaced.
async fn recreated_and_deleted(ground: &Ground) {
    install(ground, "11.0.0");
    let crew = started!(Crew::start(ground));
    crew.until_all_serve(2, "11.0.0-").await;
    crew.until("a web server on each node", async || {
        ground.web_servers().await.len() == 2
    })
    .await;
    crew.until("kubectl shows them", async || {
        ground.shown("Joined").await == 2
    })
    .await;
    // The console's own account may not read how nodes join: a worker publishes that.
    crew.until("the console makes a plan", async || crew.planned() == Ok(2))
        .await;
    // The console surveys the cluster by itself.
    let elsewhere = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
        "metadata": {"name": "windows", "namespace": ground.machines}, "spec": {}});
    let made = ground.world.try_create(elsewhere).await;
    made.expect("a pool");
    let old = format!("{}-docker", ground.machines);
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": old}, "handler": "docker"});
    let made = ground.world.try_create(class).await;
    made.expect("a RuntimeClass");
    let object = format!("WindowsPool {}/windows", ground.machines);
    crew.until("a pool in another namespace is found", async || {
        crew.finds("PoolElsewhere", &object)
    })
    .await;
    let class = format!("RuntimeClass {old}");
    crew.until("a RuntimeClass for Docker is found", async || {
        crew.finds("runtime-handler", &class)
    })
    .await;
    let first = uids(&ground.all_machines().await);
    let before = ground.tally();

    ground.record.reset_max_unavailable();
    install(ground, "11.1.0");
    crew.until_all_serve(2, "11.1.0-").await;
    let second = uids(&ground.all_machines().await);
    assert!(
        second.iter().all(|uid| !first.contains(uid)),
        "both were replaced"
    );
    let after = ground.tally();
    assert_eq!(
        after.machines_deleted - before.machines_deleted,
        2,
        "each once"
    );
    assert!(
        after.pods_evicted > before.pods_evicted,
        "drained by evictions"
    );
    assert_eq!(
        after.pods_deleted, before.pods_deleted,
        "no budget was passed over"
    );
    assert_eq!(
        ground.record.max_unavailable_observed(),
        1,
        "one node at a time"
    );

    crew.until("a web server on each node", async || {
        ground.web_servers().await.len() == 2
    })
    .await;
    let one = ground.all_machines().await.remove(0);
    let name = one["metadata"]["name"].as_str().expect("a name");
    ground.world.delete(MACHINE, &ground.machines, name).await;
    crew.until("it is gone", async || {
        !uids(&ground.all_machines().await).contains(&uids(std::slice::from_ref(&one))[0])
    })
    .await;
    crew.until_all_serve(2, "11.1.0-").await;
    assert_eq!(
        ground.record.max_unavailable_observed(),
        1,
        "the deleted one alone"
    );
    crew.end();
}

/// One of two machines fails and is retried; the set grows and shrinks; dormer loses its store and takes over what
/// serves; an upgrade goes through in place.
async fn retried_scaled_adopted_and_upgraded_in_place(ground: &Ground) {
    ground.set(json!({"strategy": {"type": "InPlace"}})).await;
    install(ground, "11.0.0");
    let crew = started!(Crew::start(ground));
    let failed = |crew: &Crew<'_>| -> Option<String> {
        let machines = crew.machines();
        let failed = machines
            .iter()
            .find(|machine| machine["state"] == "Failed")?;
        failed["name"].as_str().map(str::to_owned)
    };
    crew.until("one fails", async || failed(&crew).is_some())
        .await;
    crew.retry(&failed(&crew).expect("just seen"));
    crew.until_all_serve(2, "11.0.0-").await;

    ground.scale(3).await;
    crew.until_all_serve(3, "11.0.0-").await;
    ground.scale(2).await;
    crew.until_all_serve(2, "11.0.0-").await;
    crew.until("a web server on each node", async || {
        ground.web_servers().await.len() == 2
    })
    .await;
    crew.end();

    let before = ground.tally();
    let nodes = uids(&ground.served("11.0.0-").await);
    let crew = started!(Crew::start(ground));
    crew.until_all_serve(2, "11.0.0-").await;
    assert_eq!(disturbed(before, ground.tally()), [0; 5]);
    assert_eq!(
        uids(&ground.served("11.0.0-").await),
        nodes,
        "the same nodes serve"
    );

    let machines = uids(&ground.all_machines().await);
    ground.record.reset_max_unavailable();
    install(ground, "11.1.0");
    crew.until_all_serve(2, "11.1.0-").await;
    assert_eq!(
        uids(&ground.all_machines().await),
        machines,
        "nobody was replaced"
    );
    assert_eq!(
        ground.record.max_unavailable_observed(),
        1,
        "one node at a time"
    );
    crew.end();
}

/// Every certificate was approved by dormer's worker, and signed.
async fn by_dormers_leave(ground: &Ground) {
    let nodes: Vec<String> = ground
        .served("")
        .await
        .iter()
        .map(|node| {
            format!(
                "system:node:{}",
                node["metadata"]["name"].as_str().unwrap_or_default()
            )
        })
        .collect();
    // A kubelet's request for its serving certificate is its own.
    let requests = ground.world.list(CSR, "").await;
    let own = |csr: &&Value| {
        let who = csr["spec"]["username"].as_str().unwrap_or_default();
        nodes.iter().any(|node| node == who)
    };
    let own: Vec<&Value> = requests.iter().filter(own).collect();
    assert!(own.len() >= nodes.len(), "each asked by its own name");
    for csr in own {
        assert!(csr["status"]["certificate"].is_string(), "{csr}");
        let conditions = csr["status"]["conditions"].to_string();
        assert!(conditions.contains("DormerApproved"), "{conditions}");
    }
}

/// Each first certificate request of a machine that is there was made with that machine's own token; none is left.
async fn each_by_its_own_token(ground: &Ground) {
    let requests = ground.world.list(CSR, "").await;
    for uid in uids(&ground.all_machines().await) {
        let user = token::user(&token::id(&ground.home, &uid, 0));
        let own = requests
            .iter()
            .filter(|csr| csr["spec"]["username"] == user.as_str());
        let own: Vec<&Value> = own.collect();
        assert!(
            own.len() >= 2,
            "{user} asked at the bring-up and in the upgrade: {own:?}"
        );
        assert!(
            own.iter()
                .all(|csr| csr["status"]["certificate"].is_string()),
            "{own:?}"
        );
    }
    let secrets = ground.world.list(("", "v1", "Secret"), "kube-system").await;
    let ours =
        |secret: &&Value| secret["metadata"]["labels"][keys::INSTANCE] == ground.home.as_str();
    let left: Vec<&Value> = secrets
        .iter()
        .filter(ours)
        .map(|it| &it["metadata"]["name"])
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Every machine became a node by a token of dormer's account, two machines never by the same one, and no token is left.
async fn each_by_a_token_of_the_account(ground: &Ground) {
    let join = join::namespace(&ground.home);
    let user = format!("system:serviceaccount:{join}:{}", account_token::ACCOUNT);
    let mut requests = ground.world.list(CSR, "").await;
    requests.retain(|csr| {
        csr["spec"]["username"] == user.as_str() && csr["status"]["certificate"].is_string()
    });
    let mut askers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for csr in &requests {
        let id = &csr["spec"]["extra"]["authentication.kubernetes.io/credential-id"][0];
        let why = &csr["status"]["conditions"][0]["message"];
        let nodes = askers.entry(id.to_string()).or_default();
        nodes.insert(why.to_string());
    }
    assert!(askers.len() >= 2, "{requests:?}");
    assert!(askers.values().all(|nodes| nodes.len() == 1), "{askers:?}");
    let left = ground.world.list(("", "v1", "Secret"), &join).await;
    assert!(left.is_empty(), "{left:?}");
}

macro_rules! real {
    ($name:literal, $machines:literal, $faults:expr) => {
        match Ground::real($name, $machines, $faults).await {
            Ok(ground) => ground,
            Err(skipped) => skip!(skipped),
        }
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_recreated_and_deleted_on_a_real_api_server() {
    let mut ground = real!("recreate", 2, &[]);
    ground.tokens = Tokens::Account;
    recreated_and_deleted(&ground).await;
    by_dormers_leave(&ground).await;
    each_by_a_token_of_the_account(&ground).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_recreated_and_deleted_on_the_simulated_one() {
    let ground = Ground::simulated(2, &[]).await;
    recreated_and_deleted(&ground).await;
    by_dormers_leave(&ground).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_retried_scaled_adopted_and_upgraded_in_place_on_a_real_api_server() {
    let mut ground = real!("inplace", 2, &["configure-fails=1"]);
    ground.tokens = Tokens::Bootstrap;
    retried_scaled_adopted_and_upgraded_in_place(&ground).await;
    each_by_its_own_token(&ground).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_retried_scaled_adopted_and_upgraded_in_place_on_the_simulated_one() {
    let ground = Ground::simulated(2, &["configure-fails=1"]).await;
    retried_scaled_adopted_and_upgraded_in_place(&ground).await;
}
