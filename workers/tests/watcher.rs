//! Watcher against the simulated cluster: its facts, their epochs, and what it does not publish.

pub(crate) mod actions;
pub(crate) mod bench;
mod noticed;
mod sources;

use self::{
    actions::{csr, patch, scale, windows, world},
    bench::{Bench, KnownFacts, Pool, Recorder, run_of},
};
use dormer_fleet::{
    World,
    api::{Grant, Key, Meta, User, kinds},
};
use dormer_proto::{
    id::Epoch, machine, other_operator::OtherOperator, pool::MaxUnavailable, rollout, work::Fact,
};
use dormer_workers::watcher::{Election, Options};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// The Machines whose runs know an address, a ready Node and their pool.
fn serving(state: &KnownFacts) -> Vec<String> {
    let mut uids = state.machines();
    uids.retain(|uid| {
        let facts = state.facts(&run_of(uid));
        let has = |so: fn(&machine::Fact) -> bool| {
            facts.values().any(|fact| matches!(fact, Fact::Machine(fact) if so(fact)))
        };
        has(|f| matches!(f, machine::Fact::Machine(m) if !m.addresses.is_empty() && m.node.is_some()))
            && has(|f| matches!(f, machine::Fact::Node(n) if n.ready))
            && has(|f| matches!(f, machine::Fact::Pool(p) if p.desired.contains_key("*")))
    });
    uids
}

fn owners(state: &KnownFacts) -> Vec<rollout::OwnerFact> {
    let facts = state.facts("rollout/windows").into_values();
    let owner = |fact| match fact {
        Fact::Rollout(rollout::Fact::Owner(owner)) => Some(owner),
        _ => None,
    };
    facts.filter_map(owner).collect()
}

async fn all_serve(bench: &Bench, world: &World, machines: usize) -> Vec<String> {
    let serve = bench.until("all serve", |state| {
        let uids = serving(state);
        let there = windows(world);
        (uids.len() == machines && there.len() == machines && state.machines() == uids)
            .then_some(uids)
    });
    serve.await
}

#[tokio::test]
async fn every_windows_machine_gets_facts_about_itself_only() {
    let world = world(3, &[]).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    let uids = all_serve(&bench, &world, 3).await;
    let published = bench.until("the rollout knows the owner", |state| {
        let owners = owners(state);
        (owners.len() == 1 && owners[0].machines.len() == 3).then(|| state.clone())
    });
    let published = published.await;
    assert_eq!(owners(&published)[0].replicas, 3);
    let linux: Vec<_> = world
        .all(&kinds::MACHINE)
        .iter()
        .map(|m| m.value.uid().to_owned())
        .collect();
    let linux: Vec<_> = linux
        .into_iter()
        .filter(|uid| !uids.contains(uid))
        .collect();
    assert_eq!(linux.len(), 4, "control plane and infra");
    let all = format!("{:?}", published.messages);
    assert!(
        linux.iter().all(|uid| !all.contains(uid.as_str())),
        "are nobody's business"
    );
    let version = |fact: &Fact| matches!(fact, Fact::Rollout(rollout::Fact::Listed { .. }));
    assert!(published.facts("rollout/windows").values().any(version));
    bench.stop().await;
}

#[tokio::test]
async fn scaling_up_and_down_starts_and_ends_runs() {
    let world = world(2, &[]).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    all_serve(&bench, &world, 2).await;
    scale(&world, 6);
    all_serve(&bench, &world, 6).await;
    scale(&world, 1);
    all_serve(&bench, &world, 1).await;
    let owner = bench.until("the owner has one", |state| {
        owners(state)
            .into_iter()
            .find(|owner| owner.machines.len() == 1)
    });
    assert_eq!(owner.await.replicas, 1);
    assert_eq!(
        bench.known.0.borrow().epoch,
        1,
        "nothing of this needed a second list"
    );
    bench.stop().await;
}

#[tokio::test]
async fn what_was_deleted_in_a_gap_is_found_by_the_next_list() {
    let world = world(3, &[]).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    let uids = all_serve(&bench, &world, 3).await;
    let victim = windows(&world)
        .into_iter()
        .find(|m| m.uid() == uids[0])
        .expect("it stands");
    let store = world.api.store();
    store.compact(kinds::MACHINE.store);
    store.transact("test", |tx| {
        tx.delete(kinds::MACHINE.store, &Key::of(&victim));
        tx.delete(kinds::NODE.store, &Key::new("", victim.name()));
    });
    store.compact(kinds::MACHINE.store);
    let gone = bench.until("it is gone", |state| {
        let messages = &state.messages;
        messages
            .iter()
            .find(|(_, o)| o.object.uid == uids[0] && o.fact.is_none())
            .cloned()
    });
    let (run, gone) = gone.await;
    assert_eq!((run, gone.version.epoch), (run_of(&uids[0]), Epoch(2)));
    all_serve(&bench, &world, 3).await;
    bench.stop().await;
}

#[tokio::test]
async fn what_was_deleted_while_no_watcher_was_there_is_gone() {
    let world = world(2, &[]).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    let uids = all_serve(&bench, &world, 2).await;
    let known = bench.known.clone();
    bench.stop().await;
    let victim = windows(&world)
        .into_iter()
        .find(|m| m.uid() == uids[0])
        .expect("it stands");
    world.api.store().transact("test", |tx| {
        tx.delete(kinds::MACHINE.store, &Key::of(&victim))
    });
    let bench = Bench::with(&world, Pool::newest(), Options::default(), known).await;
    bench
        .until("it is gone", |state| {
            (!state.machines().contains(&uids[0])).then_some(())
        })
        .await;
    bench.stop().await;
}

#[tokio::test]
async fn a_restored_etcd_is_believed() {
    let world = world(1, &[]).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    let uid = all_serve(&bench, &world, 1).await.remove(0);
    let phase = |state: &KnownFacts, phase: &str| {
        let facts = state.facts(&run_of(&uid));
        facts.values().any(|f| {
            matches!(f, Fact::Machine(machine::Fact::Machine(m)) if m.error.as_deref() == Some(phase))
        })
    };
    let key = Key::of(&windows(&world)[0]);
    let backup = world.api.store().backup();
    patch(
        &world,
        &kinds::MACHINE,
        &key,
        json!({"status": {"errorMessage": "late"}}),
    );
    bench
        .until("the later state", |state| {
            phase(state, "late").then_some(())
        })
        .await;
    world.api.store().restore(&backup);
    bench
        .until("the earlier state", |state| {
            (!phase(state, "late")).then_some(())
        })
        .await;
    assert!(bench.known.0.borrow().epoch > 1);
    bench.stop().await;
}

#[tokio::test]
async fn certificates_and_nodes_are_routed_by_the_exact_name() {
    let world = world(1, &[]).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    let uid = all_serve(&bench, &world, 1).await.remove(0);
    let key = Key::of(&windows(&world)[0]);
    let name = json!({"metadata": {"annotations": {"dormer.io/node-name": "win-7"}}});
    patch(&world, &kinds::MACHINE, &key, name);
    for name in ["win-70", "win-", "win-7.evil", "WIN-7"] {
        csr(
            &world,
            &format!("foreign-{}", name.to_lowercase().trim_matches('-')),
            name,
        );
    }
    csr(&world, "ours", "win-7");
    let ours = bench.until("ours", |state| {
        let facts = state.facts(&run_of(&uid)).into_values();
        let csrs = facts.filter_map(|f| match f {
            Fact::Machine(machine::Fact::Csr(csr)) => Some(csr),
            _ => None,
        });
        let csrs: Vec<_> = csrs.collect();
        (!csrs.is_empty()).then_some(csrs)
    });
    let ours = ours.await;
    assert_eq!(
        (ours.len(), ours[0].name.as_str(), ours[0].pending),
        (1, "ours", true)
    );
    bench
        .until_status("the others are counted", |status| status.foreign_csrs == 4)
        .await;
    let said = format!("{:?}", bench.known.0.borrow().messages);
    assert!(!said.contains("foreign-"));
    world.api.store().transact("test", |tx| {
        tx.delete(kinds::CSR.store, &Key::new("", "ours"))
    });
    bench
        .until("it is gone", |state| {
            let facts = state.facts(&run_of(&uid));
            let csr = |f: &Fact| matches!(f, Fact::Machine(machine::Fact::Csr(_)));
            (!facts.values().any(csr)).then_some(())
        })
        .await;
    bench.stop().await;
}

/// Cluster API's v1beta1 writes a `nodeRef` once, the Machine API's nodelink when readiness changed.
#[tokio::test]
async fn a_node_that_registers_again_is_published_though_its_node_ref_keeps_the_old_uid() {
    let world = world(1, &[]).await;
    let options = Options {
        relist: Duration::from_secs(2),
        ..Options::default()
    };
    let known = Arc::new(Recorder(watch::Sender::default()));
    let bench = Bench::with(&world, Pool::newest(), options, known).await;
    let uid = all_serve(&bench, &world, 1).await.remove(0);
    let key = Key::of(&windows(&world)[0]);
    let (told, epoch) = {
        let known = bench.known.0.borrow();
        (known.messages.len(), known.epoch)
    };
    let stale = json!({"status": {"nodeRef": {"uid": "of-the-node-before"}}});
    patch(&world, &kinds::MACHINE, &key, stale);
    let excluded = json!({"machine.openshift.io/exclude-node-draining": ""});
    let noted = json!({"metadata": {"annotations": excluded}});
    patch(&world, &kinds::MACHINE, &key, noted);
    bench
        .until("the Machine as it is now, in a later list", |state| {
            let facts = state.facts(&run_of(&uid)).into_values();
            let mut machines = facts.filter_map(|fact| match fact {
                Fact::Machine(machine::Fact::Machine(fact)) => Some(fact),
                _ => None,
            });
            machines.find(|it| it.exclude_drain && state.epoch > epoch + 1)
        })
        .await;
    let known = bench.known.0.borrow().clone();
    let mut since = known.messages[told..].iter();
    let gone = since.find(|(_, it)| it.object.kind == "Node" && it.fact.is_none());
    assert_eq!(gone, None);
    assert_eq!(serving(&known), [uid]);
    bench.stop().await;
}

fn pool(state: &KnownFacts) -> Option<dormer_proto::pool::PoolSettings> {
    let facts = state.facts("rollout/windows").into_values();
    facts.into_iter().find_map(|fact| match fact {
        Fact::Rollout(rollout::Fact::Pool(settings)) => Some(settings),
        _ => None,
    })
}

#[tokio::test]
async fn good_settings_are_published_and_bad_ones_get_an_event() {
    let world = world(1, &[]).await;
    let catalog = Pool::newest();
    let bench = Bench::start(&world, catalog.clone()).await;
    let uid = all_serve(&bench, &world, 1).await.remove(0);
    world
        .create(windows_pool(
            json!({"strategy": {"maxUnavailable": 2, "type": "InPlace"}}),
        ))
        .expect("a pool");
    bench
        .until("two at once", |state| {
            let two = pool(state).is_some_and(|p| p.max_unavailable == MaxUnavailable::Count(2));
            let facts = state.facts(&run_of(&uid));
            let machine = facts.values().any(|f| {
                matches!(f, Fact::Machine(machine::Fact::Pool(p)) if p.max_unavailable == MaxUnavailable::Count(2))
            });
            (two && machine).then_some(())
        })
        .await;
    let key = Key::new("dormer", "windows");
    let edit = |spec| patch(&world, &kinds::WINDOWS_POOL, &key, json!({"spec": spec}));
    edit(json!({"strategy": {"maxUnavailable": "none"}, "paused": true}));
    let status = bench
        .until_status("it is refused", |s| s.pool_refused.is_some())
        .await;
    assert!(
        status
            .pool_refused
            .expect("refused")
            .starts_with("spec.strategy.maxUnavailable: must be")
    );
    let published = pool(&bench.known.0.borrow()).expect("settings");
    assert_eq!(
        (published.max_unavailable, published.paused),
        (MaxUnavailable::Count(2), false)
    );
    let events = || {
        world
            .all(&kinds::EVENT)
            .into_iter()
            .filter(|e| e.value["reason"] == "BadPoolSetting")
    };
    assert_eq!(events().count(), 1);
    let event = events().next().expect("one").value.clone();
    assert!(
        event
            .to_string()
            .contains("spec.strategy.maxUnavailable: must be a number"),
        "{event}"
    );
    edit(json!({"strategy": {"maxUnavailable": 1}, "payload": "p9"}));
    let so = |s: &dormer_workers::watcher::Status| {
        s.pool_refused.as_deref() == Some("spec.payload: there is no payload p9")
    };
    bench.until_status("no such payload", so).await;
    let paused = pool(&bench.known.0.borrow()).is_some_and(|pool| pool.paused);
    assert!(
        paused,
        "what people want to stop is stopped, whatever else is refused"
    );
    catalog.install("p9");
    let resolved = bench.until("it is there now", |state| {
        pool(state).filter(|pool| pool.refused.is_none())
    });
    let resolved = resolved.await;
    assert_eq!(resolved.desired["*"].payload, "p9");
    bench
        .until_status("nothing is refused", |status| status.pool_refused.is_none())
        .await;
    let stands = world.api.store().get(kinds::WINDOWS_POOL.store, &key);
    let generation = stands.and_then(|pool| pool.value["metadata"]["generation"].as_u64());
    assert_eq!(Some(resolved.generation), generation);
    bench.stop().await;
}

fn windows_pool(spec: serde_json::Value) -> serde_json::Value {
    json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
        "metadata": {"name": "windows", "namespace": "dormer"}, "spec": spec})
}

/// Why nothing is granted, as the rollout receives it.
fn held(state: &KnownFacts) -> Option<String> {
    pool(state).and_then(|pool| pool.held)
}

#[tokio::test]
async fn nothing_is_granted_without_a_pool_nor_beside_an_earlier_builds_config_map() {
    let world = world(1, &[]).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    let uid = all_serve(&bench, &world, 1).await.remove(0);
    let none = bench.until("there is no pool", |state| {
        pool(state).filter(|pool| pool.held.is_some())
    });
    let none = none.await;
    assert!(
        none.paused && none.absent,
        "also for engines that do not know it"
    );
    assert!(
        none.held
            .expect("why")
            .contains("there is no WindowsPool dormer/windows")
    );
    assert!(
        !none.desired.is_empty(),
        "machines are brought up all the same"
    );
    let facts = bench.known.0.borrow().facts(&run_of(&uid));
    let told = |f: &Fact| matches!(f, Fact::Machine(machine::Fact::Pool(p)) if p.absent && p.desired == none.desired);
    assert!(facts.values().any(told), "the machine is told the defaults");

    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "dormer-pool-windows", "namespace": "dormer"},
        "data": {"maxUnavailable": "3"}});
    world.create(map).expect("a ConfigMap");
    world
        .create(windows_pool(json!({"strategy": {"maxUnavailable": 2}})))
        .expect("a pool");
    let both = bench.until("the ConfigMap holds the pool", |state| {
        pool(state).filter(|pool| !pool.absent && pool.held.is_some())
    });
    let both = both.await;
    assert_eq!(
        both.max_unavailable,
        MaxUnavailable::Count(2),
        "it is not read"
    );
    let why = both.held.expect("why");
    assert!(!why.contains("kubectl"), "the remedy is apart: {why}");
    let why = both.held_cure.expect("a remedy");
    assert!(
        why.contains("dormer pool import -n dormer | kubectl apply -f -"),
        "{why}"
    );
    let gone = |kind: &kinds::Kind, name: &str| {
        let key = Key::new("dormer", name);
        world
            .api
            .store()
            .transact("test", |tx| tx.delete(kind.store, &key));
    };
    gone(&kinds::CONFIG_MAP, "dormer-pool-windows");
    bench
        .until("it may grant", |state| {
            pool(state).filter(|pool| pool.held.is_none() && !pool.paused)
        })
        .await;
    let key = Key::new("dormer", "windows");
    patch(
        &world,
        &kinds::WINDOWS_POOL,
        &key,
        json!({"spec": {"stop": true}}),
    );
    bench
        .until("it is stopped", |state| {
            held(state).filter(|why| why.contains("spec.stop"))
        })
        .await;
    gone(&kinds::WINDOWS_POOL, "windows");
    bench
        .until("it is gone", |state| {
            pool(state).filter(|pool| pool.absent && pool.held.is_some() && pool.paused)
        })
        .await;
    bench.stop().await;
}

fn namespace(world: &World, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    world.create(namespace).expect("a namespace");
}

/// Creates a Pod that leads the Windows Machine Config Operator, and its lock.
fn wmco_leads(world: &World, name: &str, pod: &str) {
    namespace(world, name);
    let namespace = name;
    let pod = world.create(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod, "namespace": namespace},
        "spec": {"containers": [{"name": "manager", "image": "wmco"}]}}));
    let pod = pod.expect("a pod");
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.value.name(),
        "uid": pod.value.uid()});
    let lock = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "windows-machine-config-operator-lock", "namespace": namespace,
        "ownerReferences": [owner]}});
    world.create(lock).expect("a lock");
}

/// Knowledge about another operator that the rollout and this machine receive.
fn neighbours(state: &KnownFacts, uid: &str) -> (OtherOperator, OtherOperator) {
    let machine = state
        .facts(&run_of(uid))
        .into_values()
        .find_map(|f| match f {
            Fact::Machine(machine::Fact::Machine(machine)) => Some(machine.neighbour),
            _ => None,
        });
    let pool = pool(state).map(|pool| pool.neighbour);
    (pool.unwrap_or_default(), machine.unwrap_or_default())
}

#[tokio::test]
async fn another_operator_is_published_with_its_pod_and_forgotten_by_a_live_list_alone() {
    let world = world(1, &[]).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    let uid = all_serve(&bench, &world, 1).await.remove(0);
    let tell = |what: &'static str, so: fn(&OtherOperator) -> bool| {
        let uid = uid.clone();
        bench.until(what, move |state| {
            let (pool, machine) = neighbours(state, &uid);
            (so(&pool) && so(&machine)).then_some(pool)
        })
    };
    tell("there is none", |it| *it == OtherOperator::Absent).await;
    world.create(windows_pool(json!({}))).expect("a pool");
    bench
        .until("it may grant", |state| {
            pool(state).filter(|pool| pool.held.is_none())
        })
        .await;

    wmco_leads(&world, "winc", "windows-machine-config-operator-1");
    let runs = tell("it runs", |it| it.runs().is_some()).await;
    let why = runs.runs().expect("it runs").to_owned();
    for part in [
        "Pod winc/windows-machine-config-operator-1",
        "kubectl -n winc scale deployment windows-machine-config-operator --replicas=0",
    ] {
        assert!(why.contains(part), "{why}");
    }
    let held = pool(&bench.known.0.borrow()).expect("settings");
    assert_eq!(
        (held.held.as_deref(), held.paused),
        (Some(why.as_str()), true),
        "for engines that do not know it"
    );

    // What cannot be read is not gone.
    let admin = User::admin().name;
    let lists = ["configmaps", "deployments"].map(|what| Grant::of("list", what));
    let tokens = world.api.tokens();
    tokens.forbid(&admin, lists.to_vec());
    let delete = |kind: &kinds::Kind, namespace: &str, name: &str| {
        let key = Key::new(namespace, name);
        let store = world.api.store();
        store.transact("test", |tx| tx.delete(kind.store, &key));
    };
    delete(&kinds::POD, "winc", "windows-machine-config-operator-1");
    let status = bench
        .until_status("it cannot be read", |status| {
            status.neighbour_unread.is_some()
        })
        .await;
    assert_eq!(status.neighbour, Some(why));
    assert!(neighbours(&bench.known.0.borrow(), &uid).1.runs().is_some());
    tokens.forbid(&admin, Vec::new());
    tell("its pod is gone", |it| *it == OtherOperator::Absent).await;

    // Its Deployment alone is enough, while it wants replicas.
    namespace(&world, "elsewhere");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "windows-machine-config-operator", "namespace": "elsewhere"},
        "spec": {"replicas": 1}});
    world.create(deployment).expect("a Deployment");
    let runs = tell("it is wanted", |it| it.runs().is_some()).await;
    let why = runs.runs().expect("it runs");
    assert!(
        why.contains("Deployment elsewhere/windows-machine-config-operator"),
        "{why}"
    );
    let key = Key::new("elsewhere", "windows-machine-config-operator");
    patch(
        &world,
        &kinds::DEPLOYMENT,
        &key,
        json!({"spec": {"replicas": 0}}),
    );
    tell("it is wanted no more", |it| *it == OtherOperator::Absent).await;
    bench.stop().await;
}

/// What upgrades wait for, as the rollout receives it.
fn waits(state: &KnownFacts) -> String {
    let pool = pool(state);
    let texts = pool.map(|pool| [pool.waits, pool.waits_cure].map(Option::unwrap_or_default));
    let [waits, cure] = texts.unwrap_or_default();
    assert!(!waits.contains("kubectl"), "{waits}");
    assert_eq!(waits.is_empty(), cure.is_empty(), "{waits}: {cure}");
    format!("{waits} {cure}").trim().to_owned()
}

#[tokio::test]
async fn what_else_changes_the_cluster_reaches_the_rollout() {
    let world = world(1, &[]).await;
    world
        .create(windows_pool(json!({"strategy": {"type": "InPlace"}})))
        .expect("a pool");
    let bench = Bench::start(&world, Pool::newest()).await;
    let tell = |what: &'static str, words: &'static [&'static str]| {
        bench.until(what, move |state| {
            let waits = waits(state);
            let all = words.iter().all(|word| waits.contains(word));
            (pool(state).is_some() && all && waits.is_empty() == words.is_empty()).then_some(())
        })
    };
    tell("nothing", &[]).await;
    let progressing = |status: &str| {
        json!({"status": {"conditions": [{"type": "Progressing", "status": status,
            "lastTransitionTime": "2026-11-21T06:00:00Z",
            "message": "Working towards 4.20.3: 105 of 900 done"}]}})
    };
    let mut version = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
        "metadata": {"name": "version"}});
    version["status"] = progressing("True")["status"].take();
    world.create(version).expect("a ClusterVersion");
    tell(
        "the cluster's version",
        &["since 2026-11-21", "105 of 900", "waitForClusterVersion"],
    )
    .await;
    let home = Key::new("dormer", "windows");
    let edit = |spec| patch(&world, &kinds::WINDOWS_POOL, &home, json!({"spec": spec}));
    edit(json!({"waitForClusterVersion": false}));
    tell("it is not waited for", &[]).await;
    edit(json!({"waitForClusterVersion": true}));
    tell("it is again", &["105 of 900"]).await;
    let cluster = Key::new("", "version");
    patch(
        &world,
        &kinds::CLUSTER_VERSION,
        &cluster,
        progressing("False"),
    );
    tell("it is done", &[]).await;

    let workers = json!({"apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool", "metadata": {"name": "worker"}, "spec": {"paused": true}});
    world.create(workers).expect("a pool of workers");
    tell(
        "the workers are paused",
        &[
            "MachineConfigPool worker is paused",
            "kubectl patch machineconfigpool worker",
        ],
    )
    .await;
    let workers = Key::new("", "worker");
    let edit_workers = |change| patch(&world, &kinds::MACHINE_CONFIG_POOL, &workers, change);
    edit_workers(json!({"spec": {"paused": false}}));
    let updating = json!({"type": "Updating", "status": "True"});
    edit_workers(json!({"status": {"conditions": [updating]}}));
    tell("they are updated", &["worker is being updated"]).await;
    edit_workers(json!({"status": {"conditions": []}}));
    tell("they are at rest", &[]).await;

    let check = |name: &str, selector: serde_json::Value| {
        let condition = json!({"type": "Ready", "status": "False", "timeout": "5m0s"});
        json!({"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineHealthCheck",
            "metadata": {"name": name, "namespace": "openshift-machine-api"},
            "spec": {"selector": selector, "unhealthyConditions": [condition], "maxUnhealthy": "40%"}})
    };
    let masters = json!({"matchLabels": {"machine.openshift.io/os-id": "Linux"}});
    world.create(check("masters", masters)).expect("a check");
    world.create(check("all", json!({}))).expect("a check");
    tell(
        "a check has less patience than an upgrade in place",
        &[
            "MachineHealthCheck openshift-machine-api/all deletes",
            "for 5 minutes",
        ],
    )
    .await;
    edit(json!({"strategy": {"type": "Recreate"}}));
    tell("a replacement is no upgrade in place", &[]).await;
    edit(json!({"strategy": {"type": "InPlace"}}));
    tell("in place again", &["openshift-machine-api/all"]).await;
    let key = Key::new("openshift-machine-api", "all");
    let with_timeout = |timeout: &str| {
        let condition = json!({"type": "Ready", "status": "False", "timeout": timeout});
        let spec = json!({"spec": {"unhealthyConditions": [condition]}});
        patch(&world, &kinds::MACHINE_HEALTH_CHECK, &key, spec);
    };
    with_timeout("29m");
    tell(
        "a reboot with updates and the kubelet's start last longer",
        &["for 29 minutes", "in place takes up to 30"],
    )
    .await;
    with_timeout("30m");
    tell("as long as an upgrade in place", &[]).await;
    with_timeout("5m0s");
    tell("less again", &["for 5 minutes"]).await;
    let pause = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    patch(&world, &kinds::MACHINE_HEALTH_CHECK, &key, pause);
    tell("it is paused", &[]).await;

    // The same of Cluster API, for machines with the label that its nodes have. Those of the Machine API cannot be read.
    let unread = Grant {
        namespace: Some("openshift-machine-api".into()),
        ..Grant::of("list", "machinehealthchecks")
    };
    let tokens = world.api.tokens();
    tokens.forbid(&User::admin().name, vec![unread]);
    let home = "openshift-cluster-api";
    let machine = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": "win-c", "namespace": home, "labels": {"kubernetes.io/os": "windows"}}, "spec": {}});
    world.create(machine).expect("a Machine");
    let condition = json!({"type": "Ready", "status": "Unknown", "timeoutSeconds": 300});
    let check = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
        "metadata": {"name": "every", "namespace": home},
        "spec": {"clusterName": "c", "selector": {}, "checks": {"unhealthyNodeConditions": [condition]}}});
    world.create(check).expect("a check");
    tell(
        "Cluster API's check has less patience",
        &[
            "MachineHealthCheck openshift-cluster-api/every deletes",
            "for 5 minutes",
        ],
    )
    .await;
    bench.stop().await;
}

#[tokio::test]
async fn ignored_and_foreign_machines_start_no_run_and_an_open_run_learns_of_it() {
    let world = world(2, &[]).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    let uids = all_serve(&bench, &world, 2).await;
    let label =
        json!({"metadata": {"labels": {"windowsmachineconfig.openshift.io/ignore": "true"}}});
    for machine in windows(&world) {
        patch(&world, &kinds::MACHINE, &Key::of(&machine), label.clone());
    }
    bench
        .until("they are ignored", |state| {
            let ignored = |uid: &&String| {
                let facts = state.facts(&run_of(uid));
                facts
                    .values()
                    .any(|f| matches!(f, Fact::Machine(machine::Fact::Machine(m)) if m.ignored))
            };
            (uids.iter().filter(ignored).count() == 2).then_some(())
        })
        .await;
    bench
        .until_status("they are counted", |status| status.ignored == 2)
        .await;
    bench.stop().await;
    let bench = Bench::start(&world, Pool::newest()).await;
    let status = bench
        .until_status("a list", |status| status.listed.is_some())
        .await;
    assert_eq!((status.machines, status.ignored, status.live), (2, 2, 0));
    assert!(bench.known.0.borrow().machines().is_empty());
    bench.stop().await;
}

#[tokio::test]
async fn a_machine_that_loses_its_label_or_its_sense_is_not_taken_for_gone() {
    let world = world(2, &[]).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    let uids = all_serve(&bench, &world, 2).await;
    let machines = windows(&world);
    let first = Key::of(&machines[0]);
    let second = Key::of(&machines[1]);
    let odd = json!({"status": {"addresses": "10.0.0.1"}});
    patch(&world, &kinds::MACHINE, &first, odd);
    bench
        .until_status("it is counted", |status| status.unreadable == 1)
        .await;
    let unlabelled = json!({"metadata": {"labels": {"machine.openshift.io/os-id": null}}});
    patch(&world, &kinds::MACHINE, &second, unlabelled);
    bench
        .until_status("hands off", |status| {
            (status.machines, status.ignored) == (1, 1)
        })
        .await;
    let known = bench.known.clone();
    bench.stop().await;
    let bench = Bench::with(&world, Pool::newest(), Options::default(), known).await;
    bench
        .until_status("a list", |status| status.epoch == Epoch(2))
        .await;
    assert_eq!(bench.known.0.borrow().machines(), uids);
    world
        .api
        .store()
        .transact("test", |tx| tx.delete(kinds::MACHINE.store, &second));
    let gone = machines[1].uid().to_owned();
    bench
        .until("it is gone", |state| {
            (!state.machines().contains(&gone)).then_some(())
        })
        .await;
    bench.stop().await;
}

#[tokio::test]
async fn facts_come_again_under_the_same_epoch_and_the_next_list_has_a_new_one() {
    let world = world(1, &[]).await;
    let options = Options {
        repeat: Duration::from_millis(600),
        relist: Duration::from_secs(2),
        ..Options::default()
    };
    let recorder = Arc::new(Recorder(watch::Sender::default()));
    let bench = Bench::with(&world, Pool::newest(), options, recorder).await;
    let uid = all_serve(&bench, &world, 1).await.remove(0);
    let run = run_of(&uid);
    let other = "rollout/windows".to_owned();
    for run in [run, other] {
        bench
            .until("repeats", |state| {
                let epoch = Epoch(state.epoch);
                let same = state
                    .messages
                    .iter()
                    .filter(|(r, o)| *r == run && o.version.epoch == epoch);
                let last = same.clone().next_back()?.1.clone();
                (same.filter(|(_, o)| *o == last).count() >= 3).then_some(())
            })
            .await;
    }
    bench
        .until("a third epoch", |state| (state.epoch >= 3).then_some(()))
        .await;
    let state = bench.known.0.borrow().clone();
    assert!(
        state
            .messages
            .windows(2)
            .all(|two| two[0].1.version.epoch <= two[1].1.version.epoch)
    );
    bench.stop().await;
}

#[tokio::test]
async fn messages_that_were_refused_are_written_again() {
    let world = world(1, &[]).await;
    let known = KnownFacts {
        fail: 3,
        ..KnownFacts::default()
    };
    let recorder = Arc::new(Recorder(watch::Sender::new(known)));
    let bench = Bench::with(&world, Pool::newest(), Options::default(), recorder).await;
    all_serve(&bench, &world, 1).await;
    let status = bench
        .until_status("no error", |status| status.error.is_none())
        .await;
    assert!(status.epoch >= Epoch(4) && status.ready());
    bench.stop().await;
}

#[tokio::test]
async fn an_api_server_that_is_away_is_named_and_waited_for() {
    let world = world(1, &[]).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    all_serve(&bench, &world, 1).await;
    world.api.set_available(false);
    world.api.store().end_watches();
    // The first error may be that of a connection that was cut off.
    let named = |error: &String| error.starts_with("cannot ") && error.ends_with("(503)");
    bench
        .until_status("it is away", |status| {
            status.error.as_ref().is_some_and(named)
        })
        .await;
    world.api.set_available(true);
    bench
        .until_status("it is back", |status| status.error.is_none())
        .await;
    scale(&world, 2);
    all_serve(&bench, &world, 2).await;
    bench.stop().await;
}

#[tokio::test]
async fn one_of_two_watchers_is_elected_and_the_other_follows() {
    let world = world(1, &[]).await;
    let recorder = Arc::new(Recorder(watch::Sender::default()));
    let options = |identity: &str| Options {
        election: Some(Election {
            identity: identity.into(),
            duration: Duration::from_secs(3),
        }),
        ..Options::default()
    };
    let first = Bench::with(&world, Pool::newest(), options("a"), recorder.clone()).await;
    first
        .until_status("a is elected", |status| {
            status.elected && status.listed.is_some()
        })
        .await;
    let second = Bench::with(&world, Pool::newest(), options("b"), recorder.clone()).await;
    let status = second
        .until_status("b knows", |status| status.holder.is_some())
        .await;
    assert_eq!(
        (status.elected, status.holder.as_deref()),
        (false, Some("a"))
    );
    assert!(status.ready() && status.listed.is_none());
    let epoch = recorder.0.borrow().epoch;
    first.stop().await;
    let status = second
        .until_status("b is elected", |s| s.elected && s.listed.is_some())
        .await;
    assert_eq!(status.holder.as_deref(), Some("b"));
    assert!(status.epoch > Epoch(epoch));
    // A holder that dies without a word is waited for, and then followed.
    second.abort().await;
    let third = Bench::with(&world, Pool::newest(), options("c"), recorder).await;
    third
        .until_status("c is elected", |status| status.elected)
        .await;
    third.stop().await;
}

#[tokio::test]
async fn the_worlds_own_troubles_are_survived() {
    let faults = [
        "machine-events-repeat",
        "watch-gone",
        "same-name-new-uid",
        "old-node",
    ];
    let world = world(4, &faults).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    bench
        .until("all struck, and four serve", |state| {
            let there: Vec<_> = windows(&world).iter().map(|m| m.uid().to_owned()).collect();
            let mut known = state.machines();
            known.retain(|uid| !there.contains(uid));
            let struck = world.faults.struck().len() == faults.len();
            (struck && known.is_empty() && serving(state).len() == 4).then_some(())
        })
        .await;
    bench.stop().await;
}
