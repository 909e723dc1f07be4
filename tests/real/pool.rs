//! `WindowsPool` on the real API server: refusals with their texts, and status-only objects of builds before v1beta1.

use super::{
    accounts::home,
    cluster::{CRD, OURS, PATIENCE, POOL_BEFORE, Site, WINDOWS_POOL, plane, plane_before},
    watcher::ready,
    watching::{Watching, settings},
};
use dormer_profile::yaml;
use dormer_proto::{pool::PoolSettings, rollout, work::Fact};
use dormer_testkit::{await_condition, skip};
use expect_test::expect_file;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::fmt::Write as _;

const CONFIG_MAP: super::cluster::Kind = ("", "v1", "ConfigMap");

/// Specs that no pool may have, and what is wrong with each.
fn bad_specs() -> Vec<Value> {
    let strategy = |field: &str, value: Value| json!({"strategy": {field: value}});
    vec![
        json!({"payload": ""}),
        json!({"payload": "two words"}),
        json!({"payload": "../etc"}),
        json!({"payload": 11}),
        json!({"payload": "1".repeat(129)}),
        json!({"rollbackFrom": "11.1.0"}),
        json!({"payload": "11.0.0", "rollbackFrom": "11.0.0"}),
        json!({"profile": ""}),
        json!({"profile": "-x"}),
        json!({"layers": "blue"}),
        json!({"layers": [""]}),
        json!({"layers": ["Blue"]}),
        json!({"layers": ["a/b"]}),
        json!({"layers": ["-a"]}),
        json!({"layers": ["a".repeat(254)]}),
        json!({"layers": ["blue", "blue"]}),
        json!({"layers": ["a", "b", "c", "d", "e", "f", "g", "h", "i"]}),
        strategy("type", json!("recreate")),
        strategy("maxUnavailable", json!(0)),
        strategy("maxUnavailable", json!(-1)),
        strategy("maxUnavailable", json!("0%")),
        strategy("maxUnavailable", json!("101%")),
        strategy("maxUnavailable", json!("1")),
        strategy("maxUnavailable", json!("none")),
        strategy("maxRepairs", json!(-1)),
        strategy("maxRepairs", json!(5001)),
        strategy("repairAfter", json!("10")),
        json!({"approval": "automatic"}),
        json!({"drain": {"timeout": "3600"}}),
        json!({"drain": {"timeout": "-1m"}}),
        json!({"drain": {"timeout": "721h"}}),
        json!({"drain": {"afterTimeout": "Evict"}}),
        json!({"drain": {"timeout": "0s", "afterTimeout": "Force"}}),
        json!({"soak": "half a minute"}),
        json!({"soak": "25h"}),
        json!({"nodeNames": ""}),
        json!({"nodeNames": "*"}),
        json!({"nodeNames": "win-*-*"}),
        json!({"nodeNames": "Win-*"}),
        json!({"paused": "yes"}),
        json!({"stop": "yes"}),
        json!({"maxUnavailable": 1}),
        json!(null),
    ]
}

fn named(name: &str, namespace: &str, spec: &Value) -> Value {
    json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

/// The server's words, without those that are about checks it left out.
fn words(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else {
        panic!("no answer: {error}");
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes: Vec<String> = causes
        .filter(|cause| {
            !cause
                .message
                .contains("some validation rules were not checked")
        })
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    if causes.is_empty() {
        status.message.clone()
    } else {
        causes.join("; ")
    }
}

#[tokio::test]
async fn bad_pools_are_refused_with_what_is_wrong() {
    let site = Site::new(plane!(), "pools").await;
    let api = site.world.api(WINDOWS_POOL, "pools");
    let mut table = String::new();
    // As kubectl asks: a field that the schema does not have is an error.
    let how = PatchParams::apply("person").validation_strict();
    let specs = bad_specs();
    assert!(specs.len() >= 25);
    let pools = specs.iter().map(|spec| named("windows", "pools", spec));
    let other = named("linux", "pools", &json!({}));
    for pool in pools.chain([other]) {
        let name = pool["metadata"]["name"].as_str().expect("a name");
        let answer = api.patch(name, &how, &Patch::Apply(&pool)).await;
        let error = answer.expect_err(&pool.to_string());
        let mut spec = pool["spec"].to_string();
        spec.truncate(60);
        let _ = writeln!(table, "{name} {spec}\n    {}", words(&error));
    }
    expect_file!["pools.txt"].assert_eq(&table);
    let good = named("windows", "pools", &json!({}));
    let made = site.world.create(good).await;
    let shipped = yaml::documents(include_str!("../../deploy/pool.yaml")).expect("a pool");
    assert_eq!(
        made["spec"], shipped[0]["spec"],
        "the file has all defaults"
    );
}

/// Last settings that the rollout received.
fn published(watching: &Watching) -> Option<PoolSettings> {
    let record = watching.published.0.borrow();
    record
        .messages
        .iter()
        .rev()
        .find_map(|(_, it)| match &it.fact {
            Some(Fact::Rollout(rollout::Fact::Pool(pool))) => Some(pool.clone()),
            _ => None,
        })
}

async fn until_held(watching: &Watching, word: &str) {
    await_condition(&format!("grants are held: {word}"), PATIENCE, || async {
        published(watching).is_some_and(|pool| {
            let held = [pool.held, pool.held_cure].map(Option::unwrap_or_default);
            pool.paused && held.concat().contains(word)
        })
    })
    .await;
}

async fn until_granting(watching: &Watching) -> PoolSettings {
    await_condition("leases are granted", PATIENCE, || async {
        published(watching).is_some_and(|pool| pool.held.is_none() && !pool.paused)
    })
    .await;
    published(watching).expect("settings")
}

/// Lays the definitions of this build over those that are there, as `kubectl apply` does.
async fn apply_definitions(site: &Site) {
    for crd in yaml::documents(OURS).expect("CRDs") {
        let name = crd["metadata"]["name"].as_str().expect("a name").to_owned();
        let how = PatchParams::apply("person").force();
        let definitions = site.world.api(CRD, "");
        let applied = definitions.patch(&name, &how, &Patch::Apply(&crd)).await;
        applied.expect("it is applied");
    }
    await_condition("v1beta1 is served", PATIENCE, || async {
        let pools = site.world.api(WINDOWS_POOL, "");
        pools.list(&kube::api::ListParams::default()).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn an_earlier_builds_pool_and_config_map_grant_nothing() {
    let plane = match plane_before() {
        Ok(plane) => plane,
        Err(skipped) => skip!(skipped),
    };
    let site = Site::new(plane.plane(), "before").await;
    let client = ready(&site).await;
    let home = home(&site);
    // As the console of an earlier build made it, and what people had written.
    site.world
        .create(
            json!({"apiVersion": "dormer.io/v1alpha1", "kind": "WindowsPool",
            "metadata": {"name": "windows", "namespace": home,
                "labels": {"app.kubernetes.io/managed-by": "dormer"}}}),
        )
        .await;
    let before = json!({"state": "Open", "joined": 2, "payload": "1"});
    site.world
        .status(POOL_BEFORE, &home, "windows", before)
        .await;
    site.world
        .create(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "dormer-pool-windows", "namespace": home},
            "data": {"maxUnavailable": "3", "approval": "automatic"}}))
        .await;

    // This build on the definitions of the earlier one: the kind is not there in its version.
    let watching = Watching::start(&site, client.clone());
    until_held(&watching, "dormer pool import").await;
    apply_definitions(&site).await;
    let read = site.world.get(WINDOWS_POOL, &home, "windows").await;
    let read = read.expect("it is there");
    assert!(read["spec"].is_null(), "no defaults: {read}");
    assert_eq!(read["status"]["state"], "Open");
    until_held(&watching, "dormer pool import").await;
    site.world
        .delete(CONFIG_MAP, &home, "dormer-pool-windows")
        .await;
    watching.stop().await;
    let watching = Watching::start(&site, client.clone());
    until_held(&watching, "has no spec").await;

    // What people write is laid over the old object, and nothing of it is lost by its old version.
    let pool = named(
        "windows",
        &home,
        &json!({"strategy": {"maxUnavailable": 2}}),
    );
    let api = site.world.api(WINDOWS_POOL, &home);
    let how = PatchParams::apply("person").validation_strict();
    api.patch("windows", &how, &Patch::Apply(&pool))
        .await
        .expect("applied");
    let granting = until_granting(&watching).await;
    assert_eq!(granting.generation, 2);
    let rollback = json!({"payload": "0", "from": "1", "insteadOf": "other", "by": "ada"});
    site.world
        .status(
            WINDOWS_POOL,
            &home,
            "windows",
            json!({"override": rollback, "observedGeneration": 2}),
        )
        .await;
    site.world
        .status(POOL_BEFORE, &home, "windows", json!({"state": "Paused"}))
        .await;
    let read = site.world.get(WINDOWS_POOL, &home, "windows").await;
    let read = read.expect("it is there");
    assert_eq!(read["spec"]["strategy"]["maxUnavailable"], 2);
    assert_eq!(read["status"]["override"], rollback);
    assert_eq!(read["status"]["state"], "Paused");

    // The pool is deleted, and the watcher restarts.
    site.world.delete(WINDOWS_POOL, &home, "windows").await;
    until_held(&watching, "there is no WindowsPool").await;
    watching.stop().await;
    let watching = Watching::start(&site, client);
    until_held(&watching, "there is no WindowsPool").await;
    settings(&site, json!({"stop": true})).await;
    until_held(&watching, "spec.stop").await;
    settings(&site, json!({"stop": false})).await;
    until_granting(&watching).await;
    watching.stop().await;
    the_old_version_can_go(&site, &home).await;
}

/// Every object is stored again, v1alpha1 is taken out of `storedVersions`, and then out of the definition.
async fn the_old_version_can_go(site: &Site, home: &str) {
    let api = site.world.api(WINDOWS_POOL, home);
    let pool = api.get("windows").await.expect("it is there");
    let stored = api.replace("windows", &PostParams::default(), &pool).await;
    stored.expect("it is stored again");
    let crds = site.world.api(CRD, "");
    let name = "windowspools.dormer.io";
    let versions = json!({"storedVersions": ["v1beta1"]});
    site.world.status(CRD, "", name, versions).await;
    let crd = crds.get(name).await.expect("it is there");
    let mut versions = crd.data["spec"]["versions"].clone();
    let all = versions.as_array_mut().expect("versions");
    all.retain(|version| version["name"] == "v1beta1");
    let change = Patch::Merge(json!({"spec": {"versions": versions}}));
    let without = crds.patch(name, &PatchParams::default(), &change).await;
    without.expect("the API server lets it go");
}
