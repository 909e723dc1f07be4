//! Trouble that comes through the API from other clients: deletions, uncordons, watches that
//! die, budgets that never allow; and what other people write: cordons, labels, the pool's settings.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{client::Client, machine::is_windows, observe};
use crate::{
    api::{DeleteOptions, Key, Meta, Refusal, kinds, store::Event},
    faults::{Fault, Faults},
    world::Pace,
};

/// How long a node has been Ready before another client changes it.
const SERVES_FOR: Duration = Duration::from_secs(180);
/// How long a person keeps a node cordoned: a look at the node, or a meeting. Nothing in Kubernetes ends a cordon.
const CORDONED_FOR: Duration = Duration::from_secs(1_800);
/// How long a role is gone until it is put back.
const UNREADABLE_FOR: Duration = Duration::from_secs(1_200);
/// How long what was pruned is away: a GitOps tool deletes what is not in its source any more (Argo CD 3.0, `prune:
/// true`), and makes it again once it is back there.
const PRUNED_FOR: Duration = Duration::from_secs(600);
/// Annotation of an open token, the greatest of all.
const FORGED: (&str, &str) = ("dormer.io/fence", "18446744073709551615 open");
/// Age of the backup from which etcd is restored.
const BACKUP_AGE: Duration = Duration::from_secs(120);
/// How long after a cordon a person uncordons the node.
const UNCORDONED_AFTER: Duration = Duration::from_secs(3);

const OURS: [Fault; 17] = [
    Fault::OldNode,
    Fault::FinalizerHolds,
    Fault::StubbornPod,
    Fault::VolumeAttached,
    Fault::MachineDeletedWhileConfiguring,
    Fault::SameNameNewUid,
    Fault::WatchGone,
    Fault::MachineEventsRepeat,
    Fault::Uncordoned,
    Fault::BudgetNever,
    Fault::TwoBudgets,
    Fault::CordonedByAdmin,
    Fault::NodeUnreadable,
    Fault::PruneSettings,
    Fault::Relabelled,
    Fault::EtcdRestored,
    Fault::ForgedMark,
];

/// Watches Machines and Nodes and strikes where it is ordered to. Ends never; does nothing when
/// none of these faults is ordered.
pub async fn run(client: Client, faults: Faults, pace: Pace) {
    loop {
        if OURS.iter().any(|fault| faults.ordered(*fault)) {
            // A watch that ended (by our own doing, perhaps) is begun anew.
            watch(&client, &faults, pace).await;
        }
        pace.sleep(Duration::from_secs(5)).await;
    }
}

async fn watch(client: &Client, faults: &Faults, pace: Pace) -> Option<()> {
    let mut machines = client.watch(&kinds::MACHINE)?;
    let mut nodes = client.watch(&kinds::NODE)?;
    for event in std::mem::take(&mut machines.backlog) {
        machine(client, faults, pace, &event).await;
    }
    for event in std::mem::take(&mut nodes.backlog) {
        node(client, faults, pace, &event).await;
    }
    loop {
        tokio::select! {
            event = machines.changes.recv() => machine(client, faults, pace, &event?).await,
            event = nodes.changes.recv() => node(client, faults, pace, &event?).await,
        }
    }
}

async fn machine(client: &Client, faults: &Faults, pace: Pace, event: &Arc<Event>) {
    let value = &event.object.value;
    if event.deleted || !is_windows(value) || value.deleting() {
        return;
    }
    let key = Key::of(value);
    let phase = value["status"]["phase"].as_str().unwrap_or_default();
    if phase == "Provisioned" && value["status"]["nodeRef"].is_null() {
        if faults.strike(Fault::MachineDeletedWhileConfiguring, &key.name) {
            later(
                pace,
                Duration::from_secs(90),
                delete_machine(client.clone(), key.clone()),
            );
        }
        if faults.strike(Fault::SameNameNewUid, &key.name) {
            let again = same_name(client.clone(), pace, key.clone(), value.clone());
            later(pace, Duration::from_secs(60), again);
        }
        if faults.strike(Fault::WatchGone, &key.name) {
            let gone = watch_gone(client.clone(), key.clone());
            later(pace, Duration::from_secs(60), gone);
        }
    }
    if phase == "Provisioned" && faults.strike(Fault::OldNode, &key.name) {
        let addresses = value["status"]["addresses"]
            .as_array()
            .into_iter()
            .flatten();
        let mut own = addresses.filter(|it| it["type"] == "InternalDNS");
        let own = own.find_map(|it| it["address"].as_str());
        let name = own.unwrap_or(&key.name);
        let old = json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": "windows"}},
            "spec": {"providerID": "old:///an-earlier-instance"},
            "status": {"nodeInfo": {"bootID": "an-earlier-boot"}}});
        // One that is there already is old enough.
        let _ = client.create(&kinds::NODE, "", old).await;
    }
    if phase == "Running" && faults.strike(Fault::MachineEventsRepeat, &key.name) {
        let old = event.clone();
        let server = client.server().clone();
        later(pace, Duration::from_secs(60), async move {
            server.store().transact("trouble", |tx| {
                if let Some(older) = tx.recent(kinds::MACHINE.store, &key, 1) {
                    tx.repeat(kinds::MACHINE.store, &older);
                }
                tx.repeat(kinds::MACHINE.store, &old);
            });
            Ok(())
        });
    }
}

async fn node(client: &Client, faults: &Faults, pace: Pace, event: &Arc<Event>) {
    let value = &event.object.value;
    let machine = value
        .annotation(super::nodelink::MACHINE)
        .and_then(|m| m.split_once('/'));
    let Some((_, machine)) = machine.filter(|_| !event.deleted) else {
        return;
    };
    let fenced_before = event
        .before
        .as_ref()
        .is_some_and(|b| observe::fenced(&b.value));
    if observe::fenced(value) && !fenced_before && faults.strike(Fault::PruneSettings, machine) {
        let lasts = faults.lasts(Fault::PruneSettings, machine);
        let prune = prune_settings(client.clone(), pace, lasts.unwrap_or(PRUNED_FOR));
        later(pace, Duration::ZERO, prune);
    }
    let cordoned = |v: &Value| v["spec"]["unschedulable"] == true;
    let newly = cordoned(value) && !event.before.as_ref().is_some_and(|b| cordoned(&b.value));
    let key = Key::of(value);
    if newly && faults.strike(Fault::Uncordoned, machine) {
        let client_ = client.clone();
        let key = key.clone();
        let after = faults.lasts(Fault::Uncordoned, machine);
        later(pace, after.unwrap_or(UNCORDONED_AFTER), async move {
            let uncordon = json!({"spec": {"unschedulable": null}});
            client_.merge(&kinds::NODE, &key, &uncordon).await.map(drop)
        });
    }
    if newly && faults.strike(Fault::StubbornPod, machine) {
        let client = client.clone();
        let node = key.name.clone();
        later(pace, Duration::ZERO, stubborn_pod(client, pace, node));
    }
    if newly && faults.strike(Fault::VolumeAttached, machine) {
        let client = client.clone();
        let node = key.name.clone();
        later(pace, Duration::ZERO, attached_volume(client, pace, node));
    }
    if !value.is("Ready") {
        return;
    }
    people(client, faults, pace, machine, &key);
    if faults.strike(Fault::FinalizerHolds, machine) {
        let hold = ["fleet.dormer.io/never"];
        let made = guarded_pod(client, &key.name, Fault::FinalizerHolds.name(), 0, &hold).await;
        debug_assert!(made.is_ok(), "{made:?}");
    }
    for (fault, budgets) in [(Fault::BudgetNever, 1), (Fault::TwoBudgets, 2)] {
        if faults.strike(fault, machine) {
            // A pod of its own on this node, with the budgets that do not let it go.
            let made = guarded_pod(client, &key.name, fault.name(), budgets, &[]).await;
            debug_assert!(made.is_ok(), "{made:?}");
        }
    }
}

/// What people do to a node that serves.
fn people(client: &Client, faults: &Faults, pace: Pace, machine: &str, node: &Key) {
    if faults.strike(Fault::CordonedByAdmin, machine) {
        let lasts = faults.lasts(Fault::CordonedByAdmin, machine);
        let cordon = cordon(
            client.clone(),
            pace,
            node.clone(),
            lasts.unwrap_or(CORDONED_FOR),
        );
        later(pace, SERVES_FOR, cordon);
    }
    if faults.strike(Fault::NodeUnreadable, machine) {
        let lasts = faults.lasts(Fault::NodeUnreadable, machine);
        let server = client.server().clone();
        later(pace, SERVES_FOR, async move {
            server.set_nodes_readable(false);
            pace.sleep(lasts.unwrap_or(UNREADABLE_FOR)).await;
            server.set_nodes_readable(true);
            Ok(())
        });
    }
    if faults.strike(Fault::ForgedMark, machine) {
        let client = client.clone();
        let node = node.clone();
        later(pace, SERVES_FOR, async move {
            let (key, token) = FORGED;
            let forged = json!({"metadata": {"annotations": {key: token}}});
            client.merge(&kinds::NODE, &node, &forged).await.map(drop)
        });
    }
    if faults.strike(Fault::EtcdRestored, machine) {
        let lasts = faults.lasts(Fault::EtcdRestored, machine);
        let server = client.server().clone();
        later(pace, SERVES_FOR, async move {
            let backup = server.store().backup();
            pace.sleep(lasts.unwrap_or(BACKUP_AGE)).await;
            server.store().restore(&backup);
            Ok(())
        });
    }
    if faults.strike(Fault::Relabelled, machine) {
        let machine = machine.to_owned();
        later(
            pace,
            SERVES_FOR,
            relabel(client.clone(), pace, node.clone(), machine),
        );
    }
}

/// A person cordons a node, and uncordons it some time later.
async fn cordon(client: Client, pace: Pace, node: Key, lasts: Duration) -> Result<(), Refusal> {
    let unschedulable = |to: Value| json!({"spec": {"unschedulable": to}});
    let on = unschedulable(Value::Bool(true));
    client.merge(&kinds::NODE, &node, &on).await?;
    pace.sleep(lasts).await;
    let off = unschedulable(Value::Null);
    client.merge(&kinds::NODE, &node, &off).await.map(drop)
}

/// Deletes every pool, and makes them again as they were.
async fn prune_settings(client: Client, pace: Pace, lasts: Duration) -> Result<(), Refusal> {
    let pools = client.all(&kinds::WINDOWS_POOL);
    for pool in &pools {
        let key = Key::of(&pool.value);
        let options = DeleteOptions::default();
        client.delete(&kinds::WINDOWS_POOL, &key, &options).await?;
    }
    pace.sleep(lasts).await;
    for pool in &pools {
        let again = json!({"apiVersion": pool.value["apiVersion"], "kind": "WindowsPool",
            "metadata": {"name": pool.value.name()}, "spec": pool.value["spec"]});
        let namespace = pool.value.namespace();
        client
            .create(&kinds::WINDOWS_POOL, namespace, again)
            .await?;
    }
    Ok(())
}

/// An inventory writes what it knows on Node and Machine, three times.
async fn relabel(client: Client, pace: Pace, node: Key, machine: String) -> Result<(), Refusal> {
    for time in 1..=3 {
        let written = json!({"metadata": {"labels": {"example.com/rack": format!("r{time}")},
            "annotations": {"example.com/seen": client.stamp()}}});
        client.merge(&kinds::NODE, &node, &written).await?;
        let all = client.all(&kinds::MACHINE);
        for found in all.iter().filter(|m| m.value.name() == machine) {
            let key = Key::of(&found.value);
            client.merge(&kinds::MACHINE, &key, &written).await?;
        }
        pace.sleep(Duration::from_secs(60)).await;
    }
    Ok(())
}

fn later(
    pace: Pace,
    after: Duration,
    what: impl Future<Output = Result<(), Refusal>> + Send + 'static,
) {
    tokio::spawn(async move {
        pace.sleep(after).await;
        // Whatever it was about may be gone by now.
        let _ = what.await;
    });
}

async fn delete_machine(client: Client, key: Key) -> Result<(), Refusal> {
    client
        .delete(&kinds::MACHINE, &key, &DeleteOptions::default())
        .await
}

async fn same_name(client: Client, pace: Pace, key: Key, old: Value) -> Result<(), Refusal> {
    client
        .delete(&kinds::MACHINE, &key, &DeleteOptions::default())
        .await?;
    while client.get(&kinds::MACHINE, &key).is_some() {
        pace.sleep(Duration::from_secs(1)).await;
    }
    let mut spec = old["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("providerID");
    }
    let again = json!({"metadata": {"name": key.name, "labels": old["metadata"]["labels"],
        "ownerReferences": old["metadata"]["ownerReferences"]}, "spec": spec});
    client
        .create(&kinds::MACHINE, &key.namespace, again)
        .await
        .map(drop)
}

/// The Machine goes at once, and no watch reports it: the log is compacted.
async fn watch_gone(client: Client, key: Key) -> Result<(), Refusal> {
    let store = client.server().store();
    store.end_watches();
    client
        .delete(&kinds::MACHINE, &key, &DeleteOptions::default())
        .await?;
    store.compact(kinds::MACHINE.store);
    Ok(())
}

/// A volume that stays on the node for six minutes.
async fn attached_volume(client: Client, pace: Pace, node: String) -> Result<(), Refusal> {
    let key = Key::new("", format!("held-{node}"));
    let volume = json!({"metadata": {"name": key.name}, "spec": {"attacher": "fleet.dormer.io",
        "nodeName": node, "source": {"persistentVolumeName": "held"}},
        "status": {"attached": true}});
    client.create(&kinds::VOLUME_ATTACHMENT, "", volume).await?;
    let on_node = Key::new("", node);
    let volumes = |volumes: Value| json!({ "volumesAttached": volumes });
    let held = json!([{"name": "fleet.dormer.io/held", "devicePath": ""}]);
    client.status(&kinds::NODE, &on_node, volumes(held)).await?;
    pace.sleep(Duration::from_secs(360)).await;
    client
        .delete(&kinds::VOLUME_ATTACHMENT, &key, &DeleteOptions::default())
        .await?;
    client
        .status(&kinds::NODE, &on_node, volumes(json!([])))
        .await
        .map(drop)
}

/// A workload that tolerates the cordon: as often as its pod goes, its controller makes another, and the scheduler binds
/// that to the same node (kubernetes v1.33, `pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go`).
async fn stubborn_pod(client: Client, pace: Pace, node: String) -> Result<(), Refusal> {
    let of_node = Key::new("", &node);
    for n in 0.. {
        let name = format!("{}-{n}", Fault::StubbornPod.name());
        guarded_pod(&client, &node, &name, 0, &[]).await?;
        let pod = Key::new("default", format!("{name}-{node}"));
        while client.get(&kinds::POD, &pod).is_some() {
            let Some(found) = client.get(&kinds::NODE, &of_node) else {
                return Ok(());
            };
            // The simulated machine controller lists in each round of its own drain. The real one is done when the pods of
            // one list are gone (machine-api-operator 951196122, `drain_controller.go`, `RunNodeDrain`).
            let machine = found.value.annotation(super::nodelink::MACHINE);
            let machine = machine.and_then(|it| it.split_once('/'));
            let machine = machine.map(|(namespace, name)| Key::new(namespace, name));
            let machine = machine.and_then(|key| client.get(&kinds::MACHINE, &key));
            let leaves = machine.is_none_or(|it| it.value.deleting());
            if leaves || found.value["spec"]["unschedulable"] != true {
                return Ok(());
            }
            pace.sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}

async fn guarded_pod(
    client: &Client,
    node: &str,
    name: &str,
    budgets: u32,
    finalizers: &[&str],
) -> Result<(), Refusal> {
    let name = format!("{name}-{node}");
    let labels = json!({"guarded": name});
    let pod = json!({"metadata": {"name": name, "labels": labels, "finalizers": finalizers},
        "spec": {"nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "guarded", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}]}});
    client.create(&kinds::POD, "default", pod).await?;
    for n in 0..budgets {
        let budget = json!({"metadata": {"name": format!("{name}-{n}")},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}});
        client.create(&kinds::PDB, "default", budget).await?;
    }
    Ok(())
}
