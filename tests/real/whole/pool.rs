//! Deletion of the pool during a rollout: nothing more is granted, whichever process restarts.

use super::{
    super::cluster::WINDOWS_POOL,
    crew::{Crew, install},
    ground::{Ground, uids},
};
use dormer_testkit::{skip, started};
use serde_json::json;

const CONFIG_MAP: super::super::cluster::Kind = ("", "v1", "ConfigMap");

/// Two machines serve, and a rollout is under way that one of them has begun. The pool is deleted, an earlier build's
/// ConfigMap is there, and every process is killed: the holder gives its lease back if nothing is destroyed yet, else
/// it finishes; and no other is begun.
async fn deleted_in_mid_rollout(ground: &Ground) {
    install(ground, "11.0.0");
    let mut crew = started!(Crew::start(ground));
    crew.until_all_serve(2, "11.0.0-").await;
    let first = uids(&ground.all_machines().await);
    let before = ground.tally();
    install(ground, "11.1.0");
    crew.until("one holds the lease", async || {
        crew.rollout()["slots"]
            .as_array()
            .is_some_and(|slots| slots.len() == 1)
    })
    .await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "dormer-pool-windows", "namespace": ground.home},
        "data": {"maxUnavailable": "2"}});
    ground.world.create(map).await;
    ground
        .world
        .delete(WINDOWS_POOL, &ground.home, "windows")
        .await;
    let held = |crew: &Crew<'_>, word: &str| {
        let rollout = crew.rollout();
        let texts = ["held", "heldCure"].map(|field| rollout[field].as_str().unwrap_or_default());
        texts.concat().contains(word)
    };
    crew.until("the ConfigMap holds grants", async || {
        held(&crew, "dormer pool import")
    })
    .await;
    crew.restart();
    crew.until("nobody holds the lease, and all serve", async || {
        let rollout = crew.rollout();
        let count = |field: &str| rollout[field].as_array().map_or(0, Vec::len);
        let changed = ground.served("11.1.0-").await.len();
        let unchanged = ground.served("11.0.0-").await.len();
        // The console answers nothing yet right after a restart.
        rollout["slots"].is_array()
            && count("slots") == 0
            && count("gaps") == 0
            && changed <= 1
            && changed + unchanged == 2
            // One whose lease the live pool refused before the fact came asks again after a while, or once there is a pool. That it
            // asks is what `until_all_serve` shows, at the end.
            && count("queue") <= unchanged
    })
    .await;
    let changed = ground.served("11.1.0-").await.len();
    ground
        .world
        .delete(CONFIG_MAP, &ground.home, "dormer-pool-windows")
        .await;
    crew.until("there is no pool", async || {
        held(&crew, "there is no WindowsPool")
    })
    .await;
    crew.restart();
    crew.until("all answer again", async || {
        held(&crew, "there is no WindowsPool")
    })
    .await;
    let now = uids(&ground.all_machines().await);
    let kept = now.iter().filter(|uid| first.contains(uid)).count();
    assert_eq!(kept, 2 - changed);
    let deleted = ground.tally().machines_deleted - before.machines_deleted;
    assert_eq!(deleted, u64::try_from(changed).expect("at most one"));
    assert_eq!(
        ground.served("11.0.0-").await.len(),
        2 - changed,
        "they serve as they were"
    );
    ground.pool().await;
    crew.until_all_serve(2, "11.1.0-").await;
    assert_eq!(ground.tally().machines_deleted - before.machines_deleted, 2);
    assert_eq!(ground.record.max_unavailable_observed(), 1, "one at a time");
    crew.until("kubectl wait finds it Ready", async || {
        let pool = ground
            .world
            .get(WINDOWS_POOL, &ground.home, "windows")
            .await;
        pool.is_some_and(|pool| {
            super::ground::condition(&pool, "Ready")
                && pool["status"]["observedGeneration"] == pool["metadata"]["generation"]
        })
    })
    .await;
    crew.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_deleted_in_mid_rollout_grants_nothing_on_a_real_api_server() {
    let ground = match Ground::real("poolless", 2, &[]).await {
        Ok(ground) => ground,
        Err(skipped) => skip!(skipped),
    };
    deleted_in_mid_rollout(&ground).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_deleted_in_mid_rollout_grants_nothing_on_the_simulated_one() {
    deleted_in_mid_rollout(&Ground::simulated(2, &[]).await).await;
}
