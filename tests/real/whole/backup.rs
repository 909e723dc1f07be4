//! Restore drill (docs/backup.md): the store is lost, and a dump of it makes a new one, for the same cluster and for another.

use super::{
    super::cluster::POD,
    crew::{Crew, install},
    ground::{Ground, uids},
    scenarios::disturbed,
};
use dormer_fleet::payload::write_example;
use dormer_profile::payload::{MANIFEST_FILE, Manifest};
use dormer_testkit::started;
use serde_json::{Value, json};
use std::{
    fs::{copy, create_dir, read_dir, read_to_string, rename, write},
    path::Path,
    time::Instant,
};

const WHY: &str = "the auditors read its disk";
const FINALIZER: &str = "example.com/hold";

/// A pod on the node, whose finalizer holds each drain.
async fn occupy(ground: &Ground, node: &str, name: &str) {
    let metadata = json!({"name": name, "namespace": ground.pods, "finalizers": [FINALIZER]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}],
            "tolerations": [{"operator": "Exists"}]}});
    ground.world.create(pod).await;
}

/// Installs a payload that may follow all of these.
fn install_after(ground: &Ground, version: &str, others: &[&str]) {
    let made = ground.path("made").join(version);
    write_example(&made, version).expect("a payload");
    let path = made.join(MANIFEST_FILE);
    let mut manifest = Manifest::parse(&read_to_string(&path).expect("text")).expect("a manifest");
    manifest.may_follow = others.iter().map(ToString::to_string).collect();
    write(&path, serde_json::to_string(&manifest).expect("JSON")).expect("written");
    rename(made, ground.path("payloads").join(version)).expect("installed");
}

async fn free(ground: &Ground, name: &str) {
    let change = json!({"metadata": {"finalizers": null}});
    ground.world.patch(POD, &ground.pods, name, change).await;
}

/// A machine as dormer shows it.
fn shown(crew: &Crew<'_>, name: &str) -> Value {
    let machines = crew.machines();
    let mut machines = machines.into_iter();
    machines
        .find(|machine| machine["name"] == name)
        .unwrap_or_default()
}

/// Waits until this machine drains, and its drain waits for that pod.
async fn until_drains(crew: &Crew<'_>, name: &str, pod: &str) {
    crew.until(&format!("{name} drains"), async || {
        let machine = shown(crew, name);
        let waits = machine["waitingFor"].as_str().unwrap_or_default();
        machine["state"] == "Draining" && waits.contains(pod)
    })
    .await;
}

/// Waits until this machine serves at a version that begins so.
async fn until_serves(crew: &Crew<'_>, name: &str, version: &str) {
    crew.until(&format!("{name} serves at {version}"), async || {
        let machine = shown(crew, name);
        let at = machine["version"].as_str().unwrap_or_default();
        machine["state"] == "Joined" && at.starts_with(version)
    })
    .await;
}

/// Number, time and events of every record of a machine.
fn history(crew: &Crew<'_>, name: &str) -> Vec<String> {
    let said = crew.ask(&["history", name, "--all", "-o", "json"]);
    let records: Vec<Value> = serde_json::from_str(&said.expect("a history")).expect("JSON");
    let record = |it: &Value| format!("{} {} {}", it["seq"], it["at"], it["events"]);
    records.iter().map(record).collect()
}

/// Name of a machine, and of its Node.
fn named(machine: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    (
        text(&machine["metadata"]["name"]),
        text(&machine["status"]["nodeRef"]["name"]),
    )
}

/// Two upgrades of a machine are in no record of the dump, and a third is under way when the store is lost. Its host's fence
/// is later than its run knows.
async fn lost_and_restored(ground: &Ground, dump: &Path) {
    ground.set(json!({"strategy": {"type": "InPlace"}})).await;
    install(ground, "11.0.0");
    let crew = started!(Crew::start(ground));
    crew.until_all_serve(2, "11.0.0-").await;
    let machines = ground.all_machines().await;
    let [(held, _), (upgraded, node)] = [named(&machines[0]), named(&machines[1])];
    crew.ask(&["hold", &held, "--yes", "--why", WHY])
        .expect("it is held");
    occupy(ground, &node, "first").await;
    install(ground, "11.1.0");
    until_drains(&crew, &upgraded, "first").await;
    let before = [history(&crew, &held), history(&crew, &upgraded)];
    crew.dump(dump);

    free(ground, "first").await;
    until_serves(&crew, &upgraded, "11.1.0-").await;
    install_after(ground, "11.2.0", &["11.0.0", "11.1.0"]);
    until_serves(&crew, &upgraded, "11.2.0-").await;
    occupy(ground, &node, "second").await;
    install_after(ground, "11.3.0", &["11.0.0", "11.2.0"]);
    until_drains(&crew, &upgraded, "second").await;
    drop(crew);

    let tally = ground.tally();
    let nodes = uids(&ground.served("11.0.0-").await);
    ground.record.reset_max_unavailable();
    let began = Instant::now();
    let crew = started!(Crew::restored(ground, dump));
    crew.until("the held machine is shown", async || {
        shown(&crew, &held)["halt"].to_string().contains(WHY)
    })
    .await;
    until_drains(&crew, &upgraded, "second").await;
    free(ground, "second").await;
    until_serves(&crew, &upgraded, "11.3.0-").await;
    println!(
        "restored beside the same cluster: {:.1} s from the restore to the end of the upgrade",
        began.elapsed().as_secs_f64()
    );
    assert_eq!(
        uids(&ground.served("11.0.0-").await),
        nodes,
        "the held machine serves as before"
    );
    assert_eq!(shown(&crew, &held)["state"], "Joined");
    for (name, before) in [&held, &upgraded].into_iter().zip(&before) {
        let after = history(&crew, name);
        assert_eq!(after.get(..before.len()), Some(&before[..]), "{name}");
        assert!(after.len() > before.len(), "{name}: its history continues");
    }
    assert_eq!(
        uids(&ground.all_machines().await),
        uids(&machines),
        "nothing was replaced"
    );
    assert_eq!(ground.tally().machines_deleted, tally.machines_deleted);
    crew.ask(&["resume", &held, "--yes", "--why", "they are done"])
        .expect("it is resumed");
    crew.until_all_serve(2, "11.3.0-").await;
    assert_eq!(
        ground.record.max_unavailable_observed(),
        1,
        "one node at a time"
    );
    crew.end();
}

/// The dump comes to a cluster with other machines, which serve already.
async fn restored_beside_another(ground: &Ground, lost: &Ground, dump: &Path) {
    install(ground, "11.0.0");
    let keys = read_dir(lost.path("keys")).expect("keys");
    create_dir(ground.path("keys")).expect("a folder");
    for file in keys {
        let file = file.expect("a file");
        let to = ground.path("keys").join(file.file_name());
        copy(file.path(), to).expect("copied");
    }
    let crew = started!(Crew::start(ground));
    crew.until_all_serve(2, "11.0.0-").await;
    crew.end();

    let tally = ground.tally();
    let nodes = uids(&ground.served("11.0.0-").await);
    let began = Instant::now();
    let crew = started!(Crew::restored(ground, dump));
    crew.until_all_serve(2, "11.0.0-").await;
    println!(
        "restored beside another cluster: {:.1} s from the restore to machines that serve",
        began.elapsed().as_secs_f64()
    );
    assert_eq!(disturbed(tally, ground.tally()), [0; 5]);
    assert_eq!(uids(&ground.served("11.0.0-").await), nodes);
    for machine in &lost.all_machines().await {
        let (name, _) = named(machine);
        let uid = machine["metadata"]["uid"].as_str().expect("a UID");
        crew.until(&format!("the run of {name} ends"), async || {
            let said = crew.ask(&["get", "machines", "--all", "-o", "json"]);
            let all: Vec<Value> =
                serde_json::from_str(&said.unwrap_or_default()).unwrap_or_default();
            let gone = |it: &Value| it["uid"] == uid && it["state"] == "Gone";
            all.iter().any(gone)
        })
        .await;
    }
    // The rollout waits for no replacement of machines whose MachineSet is not there either.
    install(ground, "11.1.0");
    crew.until_all_serve(2, "11.1.0-").await;
    crew.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_store_is_restored_from_a_dump_for_the_same_cluster_and_for_another() {
    let ground = Ground::simulated(2, &[]).await;
    let dump = ground.path("dump.jsonl");
    lost_and_restored(&ground, &dump).await;
    if dump.exists() {
        restored_beside_another(&Ground::another(2).await, &ground, &dump).await;
    }
}
